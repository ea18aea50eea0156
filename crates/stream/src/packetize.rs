//! Streams that are rewritten on their way (NetBricks, section 3.1): bytes come in by one numbering and go out by another.
//!
//! Each direction of a connection is a [lane](lane). What a rewriter made of its bytes is kept until the receiver has it,
//! so that a retransmission is answered with the same bytes however the rewriter would see them now. Acknowledgments and
//! windows are translated back, [selective ones](sack) too.

mod astray;
mod moving;
mod opening;
mod owed;
mod severed;

use netbricks_core::packet::tcp::{TcpRef, flags};
use netbricks_core::packet::tcp_options::LONGEST;
use netbricks_core::packet::{FlowKey, Tcp};

use netbricks_core::context::SEGMENTS_A_PACKET;

use super::blocks::{BLOCK, Blocks};
use super::connection::Stage;
use super::lane::{Edits, Lane, Output};
use super::memory::filled;
use super::rewriter::{Cut, Rewriter, Source};
use super::sack;
use super::{
    Arrival, End, Full, LINGER, OPENING, PacketizeConfig, Protocol, Reassembler, Side, Signature, Strangers,
    StreamConfig, StreamError, What,
};

pub(crate) use owed::ANSWER;
use severed::Severed;

/// Connections that a new one may end because nothing was heard of them.
const EXPIRED_BY_NEW: usize = 2;

/// A packet to be sent in the place of one that came: its headers with these numbers, and these bytes.
#[derive(Debug)]
pub struct Emit<'a> {
    /// Sequence number.
    pub number: u32,
    /// Acknowledgment number; counts where the ACK flag is set.
    pub acknowledgment: u32,
    /// Flags, from CWR to FIN.
    pub flags: u8,
    /// Window, as it stands in the header.
    pub window: u16,
    /// Its options, a multiple of 4 bytes.
    pub options: &'a [u8],
    /// How many bytes it carries.
    pub len: usize,
    /// It goes to whoever sent the packet that came, in the name of the other end.
    pub back: bool,
    kept: Option<(&'a Blocks, &'a Lane, u64)>,
}

impl Emit<'_> {
    /// Writes its bytes; `to` has [`len`](Self::len) places.
    pub fn write(&self, to: &mut [u8]) {
        if let Some((blocks, lane, from)) = self.kept {
            lane.read(blocks, from, to);
        }
    }
}

/// What becomes of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It goes on as it is: its connection is not rewritten.
    Unchanged,
    /// Others went in its place, if any.
    Replaced,
    /// There is no memory for what would become of it: it counts as lost, and will be sent again.
    NoRoom,
    /// It goes nowhere: its connection was cut, or is none that is rewritten and those are [refused](Strangers::Refuse).
    /// Resets went out, if any.
    Refused,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketizeCounters {
    /// Replacements.
    pub replaced: u64,
    /// Bytes that were sent again out of what was kept.
    pub resent: u64,
    /// Packets that found no room.
    pub no_room: u64,
    /// Bytes that waited for others before them, and were thrown away when those came since there was room for those only. They
    /// count as lost: their sender has not been told by its acknowledgment number that they arrived, and sends them again.
    pub thrown_away: u64,
    /// Packets of connections that are not rewritten: their beginning was not seen, there were too many, or
    /// their ends sign what they send.
    pub unchanged: u64,
    /// Connections that were cut: by the rewriter, or since they found no room where they moved to.
    pub cut: u64,
    /// Packets that went nowhere: their connection was cut or is none that is rewritten, or they are signed and it is not.
    pub refused: u64,
    /// Connections that came from another worker and found no room here.
    pub homeless: u64,
}

/// Connections that are rewritten.
pub struct Packetizer<R: Rewriter> {
    streams: Reassembler<Tcp>,
    lanes: Vec<[Lane; 2]>,
    memories: Vec<[R::Memory; 2]>,
    kept: Blocks,
    edits: Edits,
    share: usize,
    /// Bytes of input for whose output there is room even if most of them come out of order: no larger window is let
    /// through, so that one loss does not become many.
    room: u64,
    strangers: Strangers,
    rewriter: R,
    counters: PacketizeCounters,
    /// Directions whose end the rewriter has not been told of: those who have connections move may not call it.
    gone: Vec<(Source, R::Memory, End)>,
    /// Connections that found no room where they moved to, and so are cut.
    severed: Severed,
}

/// What a packetizer needs beside its rewriter, of which `M` is what that remembers of a direction.
pub(crate) struct Workings<M> {
    config: PacketizeConfig,
    streams: Reassembler<Tcp>,
    lanes: Vec<[Lane; 2]>,
    memories: Vec<[M; 2]>,
    kept: Blocks,
    edits: Edits,
}

impl<M: Copy + Default> Workings<M> {
    pub(crate) fn new(config: PacketizeConfig) -> Result<Self, StreamError> {
        let PacketizeConfig { flows, flow_memory, memory, edits, idle, seed, .. } = config;
        let mut streams = Reassembler::new(StreamConfig {
            flows,
            flow_memory,
            memory,
            idle,
            seed,
            full: Full::Refuse,
            gaps_by_acknowledgment: false,
            ..StreamConfig::default()
        })?;
        streams.forget_sooner(OPENING, LINGER);
        // As large a part of all as of the memory.
        let part = (edits as u128 * flow_memory as u128 / memory as u128) as usize;
        Ok(Self {
            config,
            streams,
            lanes: filled([Lane::default(); 2], flows)?,
            memories: filled([M::default(); 2], flows)?,
            kept: Blocks::new(memory / BLOCK)?,
            edits: Edits::new(edits, flows.saturating_mul(2), part)?,
        })
    }
}

impl<R: Rewriter> Packetizer<R> {
    /// No connection yet.
    ///
    /// # Errors
    /// [`StreamError`], as of a [`Reassembler`] with these bounds.
    pub fn new(config: PacketizeConfig, rewriter: R) -> Result<Self, StreamError> {
        Workings::new(config).map(|workings| Self::over(workings, rewriter))
    }

    pub(crate) fn over(workings: Workings<R::Memory>, rewriter: R) -> Self {
        let Workings { config, streams, lanes, memories, kept, edits } = workings;
        let PacketizeConfig { flow_memory, strangers, .. } = config;
        let half = flow_memory / 2;
        let mut room = half;
        while room > 0 && rewriter.most(room) > half {
            room -= room.div_ceil(16);
        }
        Self {
            streams,
            lanes,
            memories,
            kept,
            edits,
            share: flow_memory / BLOCK,
            // Segments end where they do.
            room: (room as u64 / 4 * 3).max(1),
            strangers,
            rewriter,
            counters: PacketizeCounters::default(),
            gone: Vec::new(),
            severed: Severed::default(),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> PacketizeCounters {
        self.counters
    }
    /// Connections, and the most there may be.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.streams.len(), self.streams.capacity())
    }
    /// Bytes of memory that unacknowledged and out-of-order bytes take.
    pub fn memory(&self) -> usize {
        self.kept.used() as usize * BLOCK + self.streams.memory().0
    }

    /// What rewrites them.
    pub fn rewriter(&self) -> &R {
        &self.rewriter
    }

    /// Forgets connections that were silent for too long at `now` (ns), `most` at most; answers how many. As many are cut at
    /// most of which bytes are held back for too long.
    pub fn expire(&mut self, now: u64, most: usize) -> usize {
        self.tell_of_ends();
        self.severed.expire(now, most);
        for _ in 0..most {
            let Some(number) = self.rewriter.overstays(now) else { break };
            self.counters.cut += 1;
            self.close(number, Cut::Reset);
        }
        for ended in 0..most {
            let Some(number) = self.streams.overdue(now) else { return ended };
            self.forget(number, End::Idle, now);
        }
        most
    }

    /// Forgets all connections, since nothing more will come.
    pub fn finish(&mut self) {
        self.tell_of_ends();
        while let Some(number) = self.streams.oldest() {
            self.forget(number, End::Drained, self.streams.last_heard(number));
        }
    }

    fn forget(&mut self, number: u32, end: End, now: u64) {
        self.clear(number, end, now);
        self.streams.forget(number, end);
    }

    /// Nothing is known of a connection's directions any more.
    fn clear(&mut self, number: u32, end: End, now: u64) {
        for side in [Side::Client, Side::Server] {
            let source = Source { connection: number, side, flow: self.streams.flow(number, side), now };
            let (connection, way) = (number as usize, side as usize);
            let (lane, memory) = (&mut self.lanes[connection][way], &mut self.memories[connection][way]);
            conclude(&mut self.rewriter, &source, lane, memory, end);
            lane.clear(&mut self.kept, &mut self.edits);
        }
    }

    /// Whether the streams of `flow` are rewritten, or none of it goes on.
    pub fn takes(&self, flow: FlowKey) -> bool {
        let lanes = self.streams.side(flow).map(|(number, _)| &self.lanes[number as usize]);
        self.strangers == Strangers::Refuse
            || self.severed.holds(flow)
            || lanes.is_some_and(|lanes| lanes.iter().all(|lane| lane.rewrites || lane.cut.is_some()))
    }

    /// Takes a segment of `flow` that arrived at `now` (ns), and says which go out in its place, in order. `send` answers
    /// whether it could send one: what it could not, and what becomes of a packet that makes more than a few of it, goes out
    /// with the next packets of its direction.
    pub fn push(
        &mut self,
        flow: FlowKey,
        header: TcpRef<'_>,
        payload: &[u8],
        now: u64,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        self.tell_of_ends();
        if header.flags() & (flags::SYN | flags::FIN | flags::ACK | flags::RST) == flags::SYN | flags::FIN {
            // No receiver takes it, unless its end were taken away.
            return self.strange(false);
        }
        let mut segment = Tcp::segment(header, payload);
        // Its windows are of what goes out, and its receiver sees nothing else.
        segment.credit = None;
        if segment.opens {
            // What it carries is not acknowledged by whoever does not see it, and comes again.
            segment.bytes = &[];
        }
        if let Some((number, side)) = self.streams.side(flow) {
            let cut = self.lanes[number as usize][side as usize].cut;
            // Whoever opens one anew where another was cut is asked about anew.
            let anew = cut.is_some() && segment.opens && !segment.answers;
            if anew || self.streams.is_overdue(number, now) {
                self.forget(number, if anew { End::Replaced } else { End::Idle }, now);
            } else if let Some(cut) = cut {
                self.streams.heard(number, now);
                return self.refuse(cut, header, send);
            }
        }
        if self.streams.side(flow).is_none() {
            if let Some(cut) = self.severed.cut(flow, segment.opens && !segment.answers, now) {
                return self.refuse(cut, header, send);
            }
            if !segment.opens || segment.answers {
                return self.strange(false);
            }
        }
        if segment.signature != Signature::None {
            return self.signed(flow, &segment, now);
        }
        if let Some((number, side)) = self.streams.side(flow) {
            self.settle(number, flow, &segment, now);
            if self.is_astray(number, side, header) {
                send(&self.astray(number, side, header));
                return Passage::Replaced;
            }
        }
        if self.streams.side(flow).is_none() {
            self.expire(now, EXPIRED_BY_NEW);
            if self.streams.len() == self.streams.capacity()
                && let Some(number) = self.streams.expendable()
            {
                self.forget(number, End::Evicted, now);
            }
        }
        if let Some((number, side)) = self.streams.side(flow)
            && !self.counts(number, side, &segment, header)
        {
            return self.before_it_opens(header, send);
        }
        let aborts = segment.aborts;
        if aborts && let Some((number, side)) = self.streams.side(flow) {
            self.weigh_reset(number, side, &mut segment);
        }
        if let Some((number, side)) = self.streams.side(flow)
            && !segment.opens
            && !self.has_room(number, side, header.sequence_number(), segment.bytes.len(), segment.ends)
        {
            self.counters.no_room += 1;
            return Passage::NoRoom;
        }
        let connections = self.streams.counters().connections;
        let Self { streams, lanes, memories, kept, edits, share, rewriter, counters, .. } = self;
        let before = streams.side(flow).map(|(number, side)| lanes[number as usize][side as usize]);
        // Their sender waits for bytes to go on that are held back.
        if let Some((number, side)) = streams.side(flow) {
            let lane = &mut lanes[number as usize][side as usize];
            let memory = &mut memories[number as usize][side as usize];
            // What waits follows them.
            let alone = streams.direction(number, side).waiting.is_empty();
            let again = alone && lane.repeats_held(header.sequence_number(), segment.bytes.len());
            // Who has no more to say says so (RFC 9293, section 3.9.1.2, MUST-61). Who has, and waits for these to arrive
            // before it sends more, is told that they did.
            let goes_on = again && !R::HOLDS && header.flags() & flags::PSH == 0;
            if goes_on && lane.acknowledged == lane.sent {
                lane.own(true);
            }
            if lane.rewrites
                && (again && !goes_on && lane.is_overdue() || rewriter.is_due(memory, now))
                // What goes on now may be lost: its sender must still have some of it.
                && (!R::HOLDS || lane.is_owed())
                && fits(rewriter.most(0), lane, *share, kept)
            {
                let source = Source { connection: number, side, flow, now };
                rewriter.flush(&source, memory, &mut Output::new(lane, kept, edits, counters));
            }
        }
        let arrival = streams.push_settled(flow, segment, now, |told| {
            let source = Source { connection: told.connection, side: told.side, flow: told.flow, now };
            let (connection, side) = (told.connection as usize, told.side);
            let (lane, memory) =
                (&mut lanes[connection][side as usize], &mut memories[connection][side as usize]);
            match told.what {
                What::Bytes(bytes) if lane.rewrites && lane.cut.is_none() => {
                    let output = &mut Output::new(lane, kept, edits, counters);
                    output.taken(bytes.len());
                    rewriter.rewrite(&source, memory, bytes, output);
                }
                What::Urgent(byte) if lane.rewrites && lane.cut.is_none() => {
                    let output = &mut Output::new(lane, kept, edits, counters);
                    if !output.take_out() {
                        // There is one place for such a one: the next goes on among the others, and is shown as it goes on.
                        output.taken(1);
                        rewriter.rewrite(&source, memory, &[byte], output);
                    }
                }
                What::End(End::Finished) if lane.rewrites => {
                    let output = &mut Output::new(lane, kept, edits, counters);
                    rewriter.end(&source, memory, End::Finished, Some(output));
                    (lane.finished, lane.over) = (true, true);
                }
                // Late segments are still translated.
                What::End(End::Reset) => {
                    conclude(rewriter, &source, lane, memory, End::Reset);
                    lane.give_up(kept, edits);
                }
                What::Bytes(_) | What::Urgent(_) => {}
                // Forgotten, or another one's.
                What::End(end) => {
                    conclude(rewriter, &source, lane, memory, end);
                    lane.clear(kept, edits);
                }
                // There are none.
                What::Gap(_) => {
                    conclude(rewriter, &source, lane, memory, End::Evicted);
                    lane.clear(kept, edits);
                }
            }
        });
        let Some((number, side)) = self.streams.side(flow) else {
            return self.strange(segment.opens);
        };
        // Its ends go on talking, whatever counts of it.
        self.streams.heard(number, now);
        if aborts && self.follow_beginnings(number) {
            return self.before_it_opens(header, send);
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
        if let Some(cut) = self.lanes[connection][way].cut {
            let before = before.map_or(0, |before| before.launched);
            return self.sever(number, side, cut, before, header, send);
        }
        if segment.opens {
            return self.opened(number, side, header, arrival, send);
        }
        let lanes = &mut self.lanes[connection];
        if !lanes[0].rewrites || !lanes[1].rewrites {
            return self.before_it_opens(header, send);
        }
        if lanes[0].torn || lanes[1].torn {
            self.counters.no_room += 1;
            return Passage::NoRoom;
        }
        let waits = !self.streams.direction(number, side.other()).waiting.is_empty();
        let (acknowledgment, window) = self.acknowledge(connection, way, header, waits);
        let room = self.room;
        let lane = &mut self.lanes[connection][way];
        let before = before.filter(|before| before.rewrites).unwrap_or(*lane);
        let at = lane.input(header.sequence_number());
        // Who says something from far ahead may be anybody.
        if arrival != Arrival::Ignored && !aborts && at <= lane.taken.saturating_add(room) {
            lane.came(header, at, segment.bytes.len());
            if !segment.bytes.is_empty() {
                lane.is_cut_into(segment.bytes.len(), arrival == Arrival::Old);
            }
        }
        match arrival {
            Arrival::Waits => lane.came_late(at, segment.bytes.len()),
            Arrival::Old => lane.came_again(&self.edits, at, segment.bytes.len()),
            _ => {}
        }
        let mut room = [0; LONGEST];
        let options = self.options(number, side, header, &mut room);
        let lane = &mut self.lanes[connection][way];
        // Whoever was told of a window of 0 asks with no byte at all, before those it was told of.
        let probes = segment.bytes.is_empty() && !segment.ends && !aborts && at < lane.taken;
        let again = arrival == Arrival::Old && at >= before.emitted && lane.sent == before.launched;
        // What was lost on its way on, its sender must still have.
        let all_has_come = lane.acknowledged == lane.sent;
        if R::HOLDS && lane.emitted < lane.taken && all_has_come && (probes || again) {
            let acknowledgment = lane.own(self.rewriter.waits(&self.memories[connection][way]));
            let number = header.acknowledgment_number();
            send(&Emit { window: lane.window, ..bare(number, acknowledgment, flags::ACK, true) });
        }
        let lane = &self.lanes[connection][way];
        let emit = |from: u64, len: usize, more: u8| Emit {
            number: lane.number(from),
            acknowledgment,
            flags: header.flags() & !(flags::FIN | flags::PSH | flags::URG) | more,
            window,
            options,
            len,
            back: false,
            kept: (len > 0).then_some((&self.kept, lane, from)),
        };
        if aborts {
            send(&emit(lane.reset_at(&self.edits, &before, header.sequence_number(), at), 0, 0));
            return Passage::Replaced;
        }
        // Up to where its receiver takes what goes on, by its own word.
        let takes = lane.output(lane.said.0) + (u64::from(lane.said.1) << self.shift(connection, 1 - way));
        // What it has again, and what it has made new.
        let start = lane.input(header.sequence_number());
        // Of what its receiver has not, some is ours to send again: its sender was told that it came. And where that is more
        // than the receiver takes at once, for more went on than came, the sender was told of a window of 0, and can but ask.
        let owes = lane.input_acknowledged(&self.edits) < lane.told;
        let stopped = lane.window == 0 && start <= lane.told && lane.acknowledged < takes;
        let ours = probes && (owes && start < lane.told || stopped);
        let repeats = match segment.bytes {
            [] => segment.ends && before.finished || ours,
            _ => start < before.emitted,
        };
        // What its receiver has went out, whatever became of it here.
        let launched = before.launched.max(lane.acknowledged);
        let again = if !repeats {
            launched..launched
        } else {
            let end = match (ours, owes) {
                (true, true) => lane.told,
                (true, false) => before.emitted,
                (false, _) => start + segment.bytes.len() as u64,
            };
            let end = lane.output_behind(&self.edits, end.min(before.emitted)).min(launched);
            let end = if ours && !owes { end.min(takes) } else { end };
            lane.answer_from(&self.edits, start).min(end)..end
        };
        let fresh = launched..lane.sent;
        let to = if !fresh.is_empty() {
            fresh.end
        } else if again.is_empty() {
            launched
        } else {
            again.end
        };
        // At the end of all its bytes, and where its sender says so.
        let fin = lane.finished && (segment.ends || !lane.end_launched) && to == lane.sent;
        let push = if header.flags() & flags::PSH != 0 { flags::PSH } else { 0 };
        let most = lane.at_most(self.lanes[connection][1 - way].segment_size(options.len()));
        // Its own bytes (several segments, where it was not cut) and those that waited for it, and as much more as a full batch
        // of packets may send together: so what goes out does not depend on batches. What did not go out yet comes no later
        // than what did.
        let said = segment.bytes.len().max((lane.taken - before.taken) as usize);
        let left = SEGMENTS_A_PACKET + said / most;
        let (mut at, mut resent, mut ended) = (launched, 0, false);
        let nothing = again.is_empty() && fresh.is_empty();
        let repeated = match (again.is_empty(), fresh.is_empty()) {
            (true, _) => 0,
            (_, true) => left,
            _ => left / 2,
        };
        for (range, mut left) in [(again, repeated), (fresh, left - repeated)] {
            let mut next = range.start;
            while next < range.end && left > 0 {
                let len = ((range.end - next) as usize).min(most);
                let last = next + len as u64 == to;
                let end = if last && fin { flags::FIN } else { 0 };
                if !send(&emit(next, len, end | if last { push } else { 0 })) {
                    break;
                }
                (next, left, ended) = (next + len as u64, left - 1, ended || end != 0);
                resent += next.min(launched) - (next - len as u64).min(launched);
            }
            at = at.max(next);
        }
        if nothing {
            // It has no bytes to go on: those that are held, those that wait, those that the receiver has. An old byte
            // makes the receiver say what it has (RFC 9293, section 3.8.4), which the sender counts as a duplicate
            // acknowledgment, or is what it missed.
            let held_again = !R::HOLDS && arrival == Arrival::Old && start >= lane.emitted;
            let asks = !segment.bytes.is_empty()
                && (matches!(arrival, Arrival::Waits | Arrival::Refused)
                    || held_again
                    || start < lane.input_acknowledged(&self.edits));
            match (fin, asks) {
                (true, _) => ended = send(&emit(lane.sent, 0, flags::FIN)),
                (false, true) => {
                    send(&Emit { len: 1, kept: None, ..emit(lane.acknowledged.wrapping_sub(1), 0, 0) });
                }
                // A keep-alive stays one.
                (false, false) => {
                    let alive = segment.bytes.len() <= 1
                        && start.wrapping_add(1) == lane.emitted
                        && start < lane.emitted;
                    send(&emit(
                        if alive {
                            // Before the first byte, where nothing was left of any.
                            lane.sent.wrapping_sub(1)
                        } else {
                            lane.bare_at(&self.edits, header.sequence_number(), start)
                        },
                        0,
                        0,
                    ));
                }
            }
        }
        self.counters.resent += resent;
        let lane = &mut self.lanes[connection][way];
        lane.launched = at;
        lane.end_launched |= ended;
        // Who has no more to say still acknowledges what it hears.
        if arrival != Arrival::Ignored || lane.finished {
            self.pay(number, side, header, send);
        }
        Passage::Replaced
    }

    /// A packet of a connection that is not rewritten; `opens` says that it is a new one, without a place.
    fn strange(&mut self, opens: bool) -> Passage {
        match (self.strangers, opens) {
            (Strangers::Pass, _) => {
                self.counters.unchanged += 1;
                Passage::Unchanged
            }
            (Strangers::Refuse, true) => {
                self.counters.no_room += 1;
                Passage::NoRoom
            }
            (Strangers::Refuse, false) => {
                self.counters.refused += 1;
                Passage::Refused
            }
        }
    }

    /// The packet in hand cut its connection, whose direction `side` had sent `sent` bytes before it.
    fn sever(
        &mut self,
        number: u32,
        side: Side,
        cut: Cut,
        sent: u64,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        let [own, other] = [side, side.other()].map(|side| side as usize);
        let lanes = &mut self.lanes[number as usize];
        if cut == Cut::Reset {
            let acknowledgment = lanes[other].translate(&self.edits, header.acknowledgment_number(), false);
            send(&bare(lanes[own].number(sent), acknowledgment, flags::RST | flags::ACK, false));
        }
        self.close(number, cut);
        self.refuse(cut, header, send)
    }

    /// Nothing of a connection goes on any more.
    fn close(&mut self, number: u32, cut: Cut) {
        let now = self.streams.last_heard(number);
        self.clear(number, End::Reset, now);
        self.lanes[number as usize].iter_mut().for_each(|lane| lane.cut = Some(cut));
        // Where nobody was told to stop, it is known for as long as any.
        self.streams.reset(number, if cut == Cut::Reset { Stage::Over } else { Stage::Open });
    }

    /// A packet of a connection that was cut.
    fn refuse(&mut self, cut: Cut, header: TcpRef<'_>, mut send: impl FnMut(&Emit<'_>) -> bool) -> Passage {
        self.counters.refused += 1;
        if cut == Cut::Reset && header.flags() & (flags::ACK | flags::RST) == flags::ACK {
            // What its sender expects next, by its own word (RFC 9293, section 3.10.7.1).
            send(&bare(header.acknowledgment_number(), 0, flags::RST, true));
        }
        Passage::Refused
    }

    /// Whether there is room for whatever becomes of `bytes` more bytes, and at an end of those that are held back. What has to
    /// wait may come to half of what its direction may have, so that there is mostly room for it once what it waits for comes.
    /// Where there is none then it is thrown away: the next bytes go on without it.
    fn has_room(&mut self, number: u32, side: Side, first: u32, bytes: usize, ends: bool) -> bool {
        let lane = &self.lanes[number as usize][side as usize];
        let start = lane.input(first);
        let behind = start + bytes as u64;
        let says_more = bytes > 0 && behind > lane.taken || ends && !lane.finished && behind >= lane.taken;
        // What is sent again is answered with what is kept.
        if !lane.rewrites || !says_more {
            return true;
        }
        if bytes > 0 && !self.rewriter.has_room(side, &self.memories[number as usize][side as usize]) {
            return false;
        }
        let waiting = self.streams.waiting(number, side);
        let [alone, all] = [bytes, bytes + waiting].map(|bytes| self.rewriter.most(bytes));
        // Who is not acknowledged gets no more than is left for all others.
        let left = self.kept.available();
        let share = self.share.min(left);
        if start > lane.taken {
            return blocks_of(all) <= share / 2;
        }
        // Who has none has a place for the next bytes.
        if !fits(alone, lane, if lane.kept.is_empty() { self.share } else { share }, &self.kept) {
            return false;
        }
        // What waits may be much at once: it counts what is left behind it.
        let behind = left.saturating_sub(blocks_of(all));
        if blocks_of(all) > blocks_of(alone) && !fits(all, lane, share.min(behind), &self.kept) {
            self.counters.thrown_away += self.streams.throw_away(number, side);
        }
        true
    }

    /// By what the windows are shifted that a side says.
    fn shift(&self, connection: usize, way: usize) -> u8 {
        match self.lanes[connection].map(|lane| lane.scale) {
            // Only where both say so (RFC 7323, section 2.2).
            [Some(_), Some(_)] => self.lanes[connection][way].scale.unwrap_or_default(),
            _ => 0,
        }
    }

    /// The options of a segment, as its receiver has to see them.
    fn options<'a>(
        &mut self,
        number: u32,
        side: Side,
        header: TcpRef<'a>,
        room: &'a mut [u8; LONGEST],
    ) -> &'a [u8] {
        let other = side.other();
        let waiting = self.streams.runs(number, other);
        let lanes = &mut self.lanes[number as usize];
        let agreed = lanes.iter().all(|lane| lane.selective) && header.flags() & flags::ACK != 0;
        let both = [&lanes[side as usize], &lanes[other as usize]];
        let options = sack::options(header, agreed, both, &self.edits, waiting, room);
        // Once is enough.
        lanes[other as usize].twice = None;
        options
    }

    /// Takes note of what the sender of this segment has of the other direction; answers acknowledgment number and window
    /// as the other side has to see them.
    fn acknowledge(&mut self, connection: usize, way: usize, header: TcpRef<'_>, waits: bool) -> (u32, u16) {
        let shift = self.shift(connection, way);
        let Self { lanes, kept, edits, room, .. } = self;
        let other = &mut lanes[connection][1 - way];
        if header.flags() & flags::ACK == 0 {
            return (header.acknowledgment_number(), header.window());
        }
        // Of a reset nothing else counts (RFC 9293, section 3.10.7.4).
        if header.flags() & flags::RST != 0 {
            return (other.translate(edits, header.acknowledgment_number(), waits), other.window);
        }
        other.acknowledge(header.acknowledgment_number(), kept, edits);
        let bytes = u64::from(header.window()) << shift;
        let acknowledgment = other.translate(edits, header.acknowledgment_number(), waits);
        let says = (header.acknowledgment_number(), header.window(), other.told.min(other.emitted));
        // Whoever says the same again is told as the same again, whatever came meanwhile: with another window it would be no
        // duplicate acknowledgment (RFC 5681, section 2).
        if std::mem::replace(&mut other.said, says) != says {
            let window = other.takes(edits, header.acknowledgment_number(), bytes).min(*room) >> shift;
            other.window = window.min(0xffff) as u16;
        }
        (acknowledgment, other.window)
    }
}

/// A packet without bytes.
fn bare(number: u32, acknowledgment: u32, flags: u8, back: bool) -> Emit<'static> {
    Emit { number, acknowledgment, flags, window: 0, options: &[], len: 0, back, kept: None }
}

/// A direction's rewriter learns of its end, where not all of it was told.
fn conclude<R: Rewriter>(
    rewriter: &mut R,
    source: &Source,
    lane: &mut Lane,
    memory: &mut R::Memory,
    end: End,
) {
    if lane.rewrites && !lane.over {
        rewriter.end(source, memory, end, None);
        lane.over = true;
    }
    *memory = R::Memory::default();
}

/// The most blocks that so many bytes more take.
fn blocks_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK) + 1
}

/// Whether a direction may have so many bytes more.
fn fits(bytes: usize, lane: &Lane, share: usize, kept: &Blocks) -> bool {
    let blocks = blocks_of(bytes);
    blocks <= kept.available() && lane.kept.blocks as usize + blocks <= share
}

impl<R: Rewriter> std::fmt::Debug for Packetizer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packetizer")
            .field("streams", &self.streams)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
