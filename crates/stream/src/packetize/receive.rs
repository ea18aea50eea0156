//! The rest of the first step: hands a segment's bytes and ends to the rewriter.
//!
//! It also follows the stage of the connection.

use netbricks_core::packet::FlowKey;
use netbricks_core::packet::tcp::{TcpRef, flags};

use super::{Emit, PacketizeCounters, Packetizer, Passage, conclude, fits};
use crate::blocks::Blocks;
use crate::connection::Stage;
use crate::rewriter::Source;
use crate::sequence_map::{Edits, Output, SequenceMap};
use crate::{Arrival, Delivery, End, Rewriter, Segment, Side, What};

/// A segment of a rewritten connection, and its outcome.
pub(super) struct Received<'p> {
    pub(super) number: u32,
    pub(super) side: Side,
    pub(super) segment: Segment<'p>,
    pub(super) arrival: Arrival,
    /// Whether it is a reset, wherever that counts.
    pub(super) aborts: bool,
    /// The map of its direction before it.
    pub(super) before: SequenceMap,
}

impl Received<'_> {
    /// The indexes of its connection and of its direction.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.number as usize, self.side as usize)
    }
}

/// Memory that all directions share.
struct Store<'a> {
    kept: &'a mut Blocks,
    edits: &'a mut Edits,
    counters: &'a mut PacketizeCounters,
}

impl<R: Rewriter> Packetizer<R> {
    /// Takes a segment. Answers its packet's passage where nothing has to be sent in its place.
    pub(super) fn receive<'p>(
        &mut self,
        flow: FlowKey,
        header: TcpRef<'_>,
        segment: Segment<'p>,
        now: u64,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) -> Result<Received<'p>, Passage> {
        let aborts = header.flags() & flags::RST != 0;
        let connections = self.streams.counters().connections;
        let place = self.streams.side(flow);
        let before = place.map(|(number, side)| self.maps[number as usize][side as usize]);
        if let Some((number, side)) = place {
            self.flush_held(flow, (number, side), header, &segment, now);
        }
        let Self { streams, maps, memories, kept, edits, rewriter, counters, .. } = self;
        let mut store = Store { kept, edits, counters };
        let arrival = streams.push_settled(flow, segment, now, |told| {
            let (connection, way) = (told.connection as usize, told.side as usize);
            take(
                rewriter,
                &told,
                now,
                &mut maps[connection][way],
                &mut memories[connection][way],
                &mut store,
            );
        });
        let Some((number, side)) = self.streams.side(flow) else {
            return Err(self.not_rewritten(segment.opens));
        };
        // Its ends still send segments, whether or not this one counts.
        self.streams.heard(number, now);
        if aborts && self.follow_beginnings(number) {
            return Err(self.before_it_opens(header, send));
        }
        let (connection, way) = (number as usize, side as usize);
        if self.streams.counters().connections != connections {
            self.clear(number, End::Replaced, now);
            self.streams.comes_to(number, Stage::Opening);
        } else if self.streams.stage(number) != Stage::Over {
            let agreed = self.streams.stage(number) == Stage::Open
                || !segment.opens && self.agrees(connection, side, header);
            self.streams.comes_to(number, if agreed { Stage::Open } else { Stage::Opening });
        }
        if let Some(cut) = self.maps[connection][way].cut {
            let before = before.map_or(0, |before| before.transmitted);
            return Err(self.sever(number, side, cut, before, header, send));
        }
        if segment.opens {
            return Err(self.opened(number, side, header, arrival, send));
        }
        let maps = &mut self.maps[connection];
        if !maps[0].rewrites || !maps[1].rewrites {
            return Err(self.before_it_opens(header, send));
        }
        if maps[0].incomplete || maps[1].incomplete {
            self.counters.no_room += 1;
            return Err(Passage::NoRoom);
        }
        let before = before.filter(|before| before.rewrites).unwrap_or(self.maps[connection][way]);
        Ok(Received { number, side, segment, arrival, aborts, before })
    }

    /// Forwards held bytes, where their sender waits for that or they are due.
    fn flush_held(
        &mut self,
        flow: FlowKey,
        (number, side): (u32, Side),
        header: TcpRef<'_>,
        segment: &Segment<'_>,
        now: u64,
    ) {
        let Self { streams, maps, memories, kept, edits, share, rewriter, counters, .. } = self;
        let map = &mut maps[number as usize][side as usize];
        let memory = &mut memories[number as usize][side as usize];
        // Waiting bytes follow them.
        let alone = streams.direction(number, side).waiting.is_empty();
        let again = alone && map.repeats_held(header.sequence_number(), segment.bytes.len());
        // A sender without further bytes sets PSH (RFC 9293, section 3.9.1.2, MUST-61). A sender that has
        // more, and waits for these to arrive before it sends them, is told that they arrived.
        let goes_on = again && !R::HOLDS && header.flags() & flags::PSH == 0;
        if goes_on && map.acknowledged == map.sent {
            map.own(true);
        }
        if map.rewrites
            && (again && !goes_on && map.is_overdue() || rewriter.is_due(memory, now))
            // The bytes that are forwarded now may be lost, so their sender must still have some of them.
            && (!R::HOLDS || map.is_owed())
            && fits(rewriter.most(0), map, *share, kept)
        {
            let source = Source { connection: number, side, flow, now };
            rewriter.flush(&source, memory, &mut Output::new(map, kept, edits, counters));
        }
    }
}

/// Hands a delivery of the reassembler to the rewriter.
#[inline]
fn take<R: Rewriter>(
    rewriter: &mut R,
    told: &Delivery<'_>,
    now: u64,
    map: &mut SequenceMap,
    memory: &mut R::Memory,
    Store { kept, edits, counters }: &mut Store<'_>,
) {
    let source = Source { connection: told.connection, side: told.side, flow: told.flow, now };
    match told.what {
        What::Bytes(bytes) if map.rewrites && map.cut.is_none() => {
            let output = &mut Output::new(map, kept, edits, counters);
            output.taken(bytes.len());
            rewriter.rewrite(&source, memory, bytes, output);
        }
        What::Urgent(byte) if map.rewrites && map.cut.is_none() => {
            let output = &mut Output::new(map, kept, edits, counters);
            if !output.take_out() {
                // There is room for one urgent byte: the next one is forwarded in place, and is shown to the
                // rewriter.
                output.taken(1);
                rewriter.rewrite(&source, memory, &[byte], output);
            }
        }
        What::End(End::Finished) if map.rewrites => {
            let output = &mut Output::new(map, kept, edits, counters);
            rewriter.end(&source, memory, End::Finished, Some(output));
            (map.finished, map.over) = (true, true);
        }
        // Late segments are still translated.
        What::End(End::Reset) => {
            conclude(rewriter, &source, map, memory, End::Reset);
            map.give_up(kept, edits);
        }
        What::Bytes(_) | What::Urgent(_) => {}
        // The connection is forgotten, or replaced by another one.
        What::End(end) => {
            conclude(rewriter, &source, map, memory, end);
            map.clear(kept, edits);
        }
        // This reassembler reports no gaps.
        What::Gap(_) => {
            conclude(rewriter, &source, map, memory, End::Evicted);
            map.clear(kept, edits);
        }
    }
}
