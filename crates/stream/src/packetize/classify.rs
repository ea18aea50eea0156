//! First step: decides whether a packet's connection is rewritten, and whether its receiver would take the
//! segment.

use netbricks_core::packet::tcp::{TcpRef, flags};
use netbricks_core::packet::{FlowKey, Tcp};

use super::{EXPIRED_BY_NEW, Emit, Packetizer, Passage, blocks_of, fits};
use crate::{End, MidstreamPolicy, Protocol, Rewriter, Segment, Side, Signature};

impl<R: Rewriter> Packetizer<R> {
    /// Answers the segment that counts, or the packet's passage if it does not count.
    pub(super) fn classify<'p>(
        &mut self,
        flow: FlowKey,
        header: TcpRef<'_>,
        payload: &'p [u8],
        now: u64,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) -> Result<Segment<'p>, Passage> {
        if header.flags() & (flags::SYN | flags::FIN | flags::ACK | flags::RST) == flags::SYN | flags::FIN {
            // No receiver takes it, but one would without its FIN.
            return Err(self.not_rewritten(false));
        }
        let mut segment = Tcp::segment(header, payload);
        // Its windows stand for output, and its receiver sees only output.
        segment.advertised = None;
        if segment.opens {
            // Its receiver does not see its bytes and does not acknowledge them, so they come again.
            segment.bytes = &[];
        }
        self.admit(flow, header, &segment, now, send)?;
        if segment.signature != Signature::None {
            return Err(self.signed(flow, &segment, now));
        }
        if let Some((number, side)) = self.streams.side(flow) {
            self.settle(number, flow, &segment, now);
            if self.is_out_of_window(number, side, header) {
                send(&self.out_of_window(number, side, header));
                return Err(Passage::Replaced);
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
            return Err(self.before_it_opens(header, send));
        }
        if segment.aborts
            && let Some((number, side)) = self.streams.side(flow)
        {
            self.weigh_reset(number, side, &mut segment);
        }
        if let Some((number, side)) = self.streams.side(flow)
            && !segment.opens
            && !self.has_room(number, side, header.sequence_number(), segment.bytes.len(), segment.ends)
        {
            self.counters.no_room += 1;
            return Err(Passage::NoRoom);
        }
        Ok(segment)
    }

    /// Whether its connection continues here, or the segment opens one that may.
    fn admit(
        &mut self,
        flow: FlowKey,
        header: TcpRef<'_>,
        segment: &Segment<'_>,
        now: u64,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) -> Result<(), Passage> {
        if let Some((number, side)) = self.streams.side(flow) {
            let cut = self.maps[number as usize][side as usize].cut;
            // A segment that opens where another connection was cut begins a new connection, which may go on.
            let anew = cut.is_some() && segment.opens && !segment.answers;
            if anew || self.streams.is_overdue(number, now) {
                self.forget(number, if anew { End::Replaced } else { End::Idle }, now);
            } else if let Some(cut) = cut {
                self.streams.heard(number, now);
                return Err(self.refuse(cut, header, send));
            }
        }
        if self.streams.side(flow).is_none() {
            if let Some(cut) = self.cut_connections.cut(flow, segment.opens && !segment.answers, now) {
                return Err(self.refuse(cut, header, send));
            }
            if !segment.opens || segment.answers {
                return Err(self.not_rewritten(false));
            }
        }
        Ok(())
    }

    /// The passage of a packet of a connection that is not rewritten. `opens` marks a new connection without
    /// a place.
    pub(super) fn not_rewritten(&mut self, opens: bool) -> Passage {
        match (self.midstream, opens) {
            (MidstreamPolicy::Pass, _) => {
                self.counters.unchanged += 1;
                Passage::Unchanged
            }
            (MidstreamPolicy::Refuse, true) => {
                self.counters.no_room += 1;
                Passage::NoRoom
            }
            (MidstreamPolicy::Refuse, false) => {
                self.counters.refused += 1;
                Passage::Refused
            }
        }
    }

    /// Whether there is room for the output of `bytes` more bytes, and at an end for that of held bytes.
    ///
    /// Bytes that have to wait may take half of their direction's share. So there is mostly room for them
    /// once the missing bytes come. Where there is none then, the waiting bytes are discarded, and the
    /// missing ones are forwarded without them.
    fn has_room(&mut self, number: u32, side: Side, first: u32, bytes: usize, ends: bool) -> bool {
        let map = &self.maps[number as usize][side as usize];
        let start = map.input(first);
        let behind = start + bytes as u64;
        let says_more = bytes > 0 && behind > map.taken || ends && !map.finished && behind >= map.taken;
        // Repeated bytes are answered with kept output.
        if !map.rewrites || !says_more {
            return true;
        }
        if bytes > 0 && !self.rewriter.has_room(side, &self.memories[number as usize][side as usize]) {
            return false;
        }
        let waiting = self.streams.waiting(number, side);
        let [alone, all] = [bytes, bytes + waiting].map(|bytes| self.rewriter.most(bytes));
        // A direction with unacknowledged bytes gets no more than is left for all others.
        let left = self.kept.available();
        let share = self.share.min(left);
        if start > map.taken {
            return blocks_of(all) <= share / 2;
        }
        // A direction without any has its share for the next bytes.
        if !fits(alone, map, if map.kept.is_empty() { self.share } else { share }, &self.kept) {
            return false;
        }
        // The waiting bytes may be many at once: they have to leave as much free as they take.
        let behind = left.saturating_sub(blocks_of(all));
        if blocks_of(all) > blocks_of(alone) && !fits(all, map, share.min(behind), &self.kept) {
            self.counters.thrown_away += self.streams.throw_away(number, side);
        }
        true
    }
}
