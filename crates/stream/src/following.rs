//! One direction of a connection: applies each segment and delivers the bytes, gaps and ends that it makes
//! known.

use netbricks_core::packet::FlowKey;

use super::acceptability::{NOT_SEEN, REACH};
use super::blocks::{Blocks, NONE};
use super::connection::{Connection, Direction, Phase, Side, Start, UNKNOWN};
use super::queue::Stored;
use super::reassembler::{Arrival, Counters};
use super::segment::Segment;
use super::settings::Overlap;
use super::{Delivery, End, What};

/// Ends the directions of a connection that have not ended.
pub(super) fn close<D: FnMut(Delivery<'_>)>(
    connection: &mut Connection,
    number: u32,
    end: End,
    blocks: &mut Blocks,
    tell: &mut Teller<'_, D>,
) {
    let client = connection.client;
    for way in [client, 1 - client] {
        let mut following = Following::new(connection, number, way, blocks, tell);
        match following.direction.phase {
            Phase::Ended => {}
            // No beginning of it was delivered, so no end is either.
            Phase::Unseen => following.direction.phase = Phase::Ended,
            Phase::Open => {
                // A receiver that is reset never sees bytes behind a gap, and a connection that moves waits
                // for them elsewhere.
                if !matches!(end, End::Reset | End::Moved) {
                    following.flush();
                }
                following.end(end);
            }
        }
    }
}

/// The callback for deliveries, and the counters.
pub(super) struct Teller<'a, D> {
    pub(super) counters: &'a mut Counters,
    pub(super) deliver: &'a mut D,
}

/// A direction, and everything that is needed to follow it.
pub(super) struct Following<'a, 't, D> {
    pub(super) direction: &'a mut Direction,
    number: u32,
    side: Side,
    flow: FlowKey,
    blocks: &'a mut Blocks,
    tell: &'a mut Teller<'t, D>,
}

impl<'a, 't, D: FnMut(Delivery<'_>)> Following<'a, 't, D> {
    pub(super) fn new(
        connection: &'a mut Connection,
        number: u32,
        way: usize,
        blocks: &'a mut Blocks,
        tell: &'a mut Teller<'t, D>,
    ) -> Self {
        let key = FlowKey::from_words(connection.key);
        Self {
            number,
            side: if way == connection.client { Side::Client } else { Side::Server },
            flow: if way == 0 { key } else { key.reversed() },
            direction: &mut connection.directions[way],
            blocks,
            tell,
        }
    }

    fn tell(&mut self, what: What<'_>) {
        let (connection, side, flow, offset) = (self.number, self.side, self.flow, self.direction.offset());
        (self.tell.deliver)(Delivery { connection, side, flow, offset, what });
    }

    /// Takes a segment of an open direction.
    pub(super) fn take(
        &mut self,
        segment: &Segment<'_>,
        bits: u32,
        overlap: Overlap,
        most: usize,
    ) -> Arrival {
        if self.direction.phase == Phase::Ended {
            self.tell.counters.ignored += 1;
            return Arrival::Ignored;
        }
        let mut start = self.direction.position(segment.number, bits);
        let (next, mut bytes) = (self.direction.next, segment.bytes);
        let mut end = start + bytes.len() as u64;
        if start.abs_diff(next) > REACH {
            self.tell.counters.ignored += 1;
            return Arrival::Ignored;
        }
        if segment.opens && !bytes.is_empty() {
            return self.hold(start, bytes, overlap, most);
        }
        self.learn_end(start, end, segment.ends, overlap);
        if end > self.direction.end && overlap != Overlap::Linux {
            bytes = &bytes[..self.direction.end.saturating_sub(start).min(bytes.len() as u64) as usize];
            end = start + bytes.len() as u64;
        }
        if self.holds() && !bytes.is_empty() && start < self.direction.behind_held() && end > next {
            // Its sender had to send the bytes of its opening again.
            self.drop_held();
        }
        if start < next && !bytes.is_empty() {
            if end <= next {
                self.tell.counters.old += 1;
                // The end that the segment states may be new.
                self.end_if_whole();
                return Arrival::Old;
            }
            bytes = &bytes[(next - start) as usize..];
            start = next;
        }
        if bytes.is_empty() {
            self.end_if_whole();
            return Arrival::InOrder;
        }
        if start == next {
            self.in_order(bytes, overlap);
            return Arrival::InOrder;
        }
        match self.blocks.store(&mut self.direction.waiting, overlap, start, bytes, segment.ends, most) {
            Stored::Some => {
                self.tell.counters.out_of_order += 1;
                Arrival::Waits
            }
            Stored::Nothing => {
                self.tell.counters.old += 1;
                Arrival::Old
            }
            Stored::NoRoom => Arrival::Refused,
        }
    }

    /// Takes note of the end that a segment states, and of bytes that refute a known end.
    fn learn_end(&mut self, start: u64, end: u64, ends: bool, overlap: Overlap) {
        let Direction { next, end: known, end_from, .. } = *self.direction;
        let is_next = start <= next;
        // Whether another segment has a byte at the position of the known end.
        let refuted = match overlap {
            // The end is queued as one more byte of its run.
            Overlap::Linux => {
                is_next || start < end_from || start == end_from && end > known.saturating_add(1)
            }
            Overlap::First => false,
            Overlap::Last => start <= known,
        };
        if end > known && refuted {
            (self.direction.end, self.direction.end_from) = (UNKNOWN, UNKNOWN);
        }
        if !ends || end < next {
            return;
        }
        let known = self.direction.end;
        let from = match overlap {
            Overlap::Linux if is_next => Some(start.min(next)),
            Overlap::Linux => self.blocks.end_as_linux(&self.direction.waiting, start, end),
            // An end at the next byte counts even where another end was stated ahead of it: a receiver of
            // this end waits for nothing else.
            Overlap::First => (known == UNKNOWN || is_next).then_some(start),
            Overlap::Last => Some(start),
        };
        let Some(from) = from.filter(|_| end <= known) else { return };
        // Of two segments that state the same end, the one of the longer run counts.
        self.direction.end_from = if end == known { from.min(self.direction.end_from) } else { from };
        self.direction.end = end;
        if overlap != Overlap::Linux {
            self.cut_at_end();
        }
    }

    /// Delivers bytes that are next, and the waiting bytes that follow them.
    fn in_order(&mut self, mut bytes: &[u8], overlap: Overlap) {
        if overlap == Overlap::First {
            // The bytes that wait came first, so these only fill the gaps between them.
            while !self.direction.waiting.is_empty() && !bytes.is_empty() {
                let hole = self.blocks.piece(self.direction.waiting.head).start - self.direction.next;
                let (fills, rest) = bytes.split_at(bytes.len().min(hole as usize));
                self.bytes(fills);
                let before = self.direction.next;
                self.deliver_waiting();
                bytes = rest.get((self.direction.next - before) as usize..).unwrap_or_default();
            }
        }
        self.bytes(bytes);
        self.deliver_waiting();
        self.end_if_whole();
        if self.direction.rival.is_some() {
            // The direction goes on from its own opening, not from its rival.
            self.direction.rival = None;
        }
    }

    /// Keeps the bytes of a segment that opens, until it is known whether the receiver took them.
    ///
    /// Until then the bytes wait at the direction's first position.
    fn hold(&mut self, start: u64, bytes: &[u8], overlap: Overlap, most: usize) -> Arrival {
        let Direction { start: known, first, next, ref waiting, .. } = *self.direction;
        // Only before any other bytes of the direction, and once: a repeated opening carries the same bytes.
        let is_first = known == Start::Opened && start == first && next == first && !self.holds();
        if !is_first
            || self.blocks.get(waiting.head).is_some_and(|head| head.start < start + bytes.len() as u64)
        {
            self.tell.counters.old += 1;
            return Arrival::Old;
        }
        match self.blocks.store(&mut self.direction.waiting, overlap, start, bytes, false, most) {
            Stored::Some => {
                self.direction.held = bytes.len() as u32;
                Arrival::Waits
            }
            _ => Arrival::InOrder,
        }
    }

    fn holds(&self) -> bool {
        self.direction.held > 0
    }

    /// Drops the bytes that came with the opening, because the receiver did not take them.
    #[cold]
    fn drop_held(&mut self) {
        let behind = self.direction.behind_held();
        self.direction.held = 0;
        self.direction.end_from = self.direction.end_from.max(behind).min(self.direction.end);
        let list = &mut self.direction.waiting;
        while let Some(head) = self.blocks.get(list.head).copied().filter(|head| head.start < behind) {
            if head.end() <= behind {
                self.blocks.remove_after(list, NONE);
            } else {
                self.blocks.trim(list, list.head, behind - head.start);
            }
        }
        self.blocks.begin_run(list, behind);
    }

    /// The other side acknowledges the opening: either with the bytes that came with it, or without them.
    ///
    /// The number is the first one that it does not have.
    #[cold]
    pub(super) fn opening_acknowledged(&mut self, number: u64, bits: u32) {
        let position = self.direction.position(number, bits);
        let sent = self.direction.first..=self.direction.heard_to(self.blocks) + 1 + NOT_SEEN;
        if !sent.contains(&position) {
            return;
        }
        self.direction.start = Start::Agreed;
        if self.holds() && position == self.direction.first {
            self.drop_held();
        } else if self.holds() {
            self.direction.held = 0;
            self.deliver_waiting();
            self.end_if_whole();
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        deliver(self.direction, self.tell, (self.number, self.side, self.flow), bytes);
    }

    /// Delivers the waiting bytes that are next.
    fn deliver_waiting(&mut self) {
        while !self.direction.waiting.is_empty() {
            let block = self.direction.waiting.head;
            let piece = self.blocks.piece(block);
            let (next, end) = (self.direction.next, piece.end().min(self.direction.end));
            if piece.start > next {
                return;
            }
            if end > next {
                let bytes = &self.blocks.bytes(block);
                let bytes = &bytes[(next - piece.start) as usize..(end - piece.start) as usize];
                deliver(self.direction, self.tell, (self.number, self.side, self.flow), bytes);
            }
            if self.direction.next == self.direction.end {
                return;
            }
            self.blocks.remove_after(&mut self.direction.waiting, NONE);
        }
    }

    /// The other side has all bytes before this number.
    ///
    /// Where bytes or the end wait before that number, the gap in front of them will not be filled, and is
    /// given up.
    pub(super) fn acknowledged(&mut self, number: u64, bits: u32) {
        if self.direction.waiting.is_empty() && self.direction.end == UNKNOWN {
            return;
        }
        let position = self.direction.position(number, bits);
        if position > self.direction.next + REACH {
            return;
        }
        while !self.direction.waiting.is_empty()
            && self.blocks.piece(self.direction.waiting.head).start < position
        {
            self.skip_gap();
        }
        // The end has a number, too.
        if self.direction.end != UNKNOWN && position == self.direction.end + 1 {
            self.skip_as_far_as(self.direction.end);
        }
    }

    /// Gives up the oldest gap and delivers the bytes behind it.
    pub(super) fn skip_gap(&mut self) {
        if !self.direction.waiting.is_empty() {
            self.direction.held = 0;
            self.skip_as_far_as(self.blocks.piece(self.direction.waiting.head).start);
            self.deliver_waiting();
            self.end_if_whole();
        }
    }

    /// As [`skip_to`](Self::skip_to), but not past the end.
    pub(super) fn skip_as_far_as(&mut self, position: u64) {
        self.skip_to(position.min(self.direction.end));
        self.end_if_whole();
    }

    fn skip_to(&mut self, position: u64) {
        let missing = position.saturating_sub(self.direction.next);
        if missing > 0 && self.direction.phase == Phase::Open {
            self.tell.counters.gaps += 1;
            self.tell.counters.gap_bytes += missing;
            self.tell(What::Gap(missing));
            self.direction.next = position;
        }
    }

    /// Delivers all waiting bytes, with the gaps between them, and a gap up to the end where that is known.
    pub(super) fn flush(&mut self) {
        while !self.direction.waiting.is_empty() {
            self.skip_gap();
        }
        if self.direction.end != UNKNOWN {
            self.skip_to(self.direction.end);
            self.end_if_whole();
        }
    }

    /// Discards waiting bytes behind the end, which is known now.
    fn cut_at_end(&mut self) {
        let (list, end) = (&mut self.direction.waiting, self.direction.end);
        let mut before = self.blocks.last(list, |piece| piece.end() <= end);
        let block = self.blocks.after(list, before);
        if self.blocks.get(block).is_some_and(|piece| piece.start < end) {
            self.blocks.cut(list, block, end);
            before = block;
        }
        while self.blocks.after(list, before) != NONE {
            self.blocks.remove_after(list, before);
        }
    }

    fn end_if_whole(&mut self) {
        if self.direction.next == self.direction.end {
            self.end(End::Finished);
        }
    }

    fn end(&mut self, end: End) {
        if self.direction.phase == Phase::Open {
            self.tell(What::End(end));
            (self.direction.phase, self.direction.held) = (Phase::Ended, 0);
            self.blocks.clear(&mut self.direction.waiting);
        }
    }
}

/// Delivers the next bytes of a direction. An urgent byte among them is delivered separately.
#[inline]
fn deliver<D: FnMut(Delivery<'_>)>(
    direction: &mut Direction,
    tell: &mut Teller<'_, D>,
    (connection, side, flow): (u32, Side, FlowKey),
    mut bytes: &[u8],
) {
    while !bytes.is_empty() {
        let before = direction.urgent.wrapping_sub(direction.next).min(bytes.len() as u64);
        let (plain, rest) = bytes.split_at(before as usize);
        let offset = direction.offset();
        if let ([], [urgent, rest @ ..]) = (plain, rest) {
            (tell.deliver)(Delivery { connection, side, flow, offset, what: What::Urgent(*urgent) });
            (direction.next, direction.taken_out) = (direction.next + 1, direction.taken_out + 1);
            bytes = rest;
        } else {
            tell.counters.bytes += plain.len() as u64;
            (tell.deliver)(Delivery { connection, side, flow, offset, what: What::Bytes(plain) });
            direction.next += plain.len() as u64;
            bytes = rest;
        }
    }
}
