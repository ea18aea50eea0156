//! Last step: sends the planned bytes, or a segment without bytes where there are none.

use netbricks_core::packet::tcp::{TcpRef, flags};

use super::plan::Plan;
use super::receive::Received;
use super::{Emit, Packetizer};
use crate::blocks::Blocks;
use crate::sequence_map::SequenceMap;
use crate::{Arrival, Rewriter};

/// The header fields that all segments share that go out in the place of one.
pub(super) struct Reply<'a> {
    pub(super) acknowledgment: u32,
    pub(super) window: u16,
    pub(super) flags: u8,
    pub(super) options: &'a [u8],
}

impl Reply<'_> {
    /// The segment of `len` bytes of a direction's output from a position on, with more flags.
    fn segment<'b>(
        &'b self,
        kept: &'b Blocks,
        map: &'b SequenceMap,
        from: u64,
        len: usize,
        more: u8,
    ) -> Emit<'b> {
        Emit {
            number: map.number(from),
            acknowledgment: self.acknowledgment,
            flags: self.flags | more,
            window: self.window,
            options: self.options,
            len,
            back: false,
            kept: (len > 0).then_some((kept, map, from)),
        }
    }
}

impl<R: Rewriter> Packetizer<R> {
    /// Sends the planned segments.
    pub(super) fn emit(
        &mut self,
        received: &Received<'_>,
        header: TcpRef<'_>,
        reply: &Reply<'_>,
        plan: Plan,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) {
        let (connection, way) = received.places();
        let map = &self.maps[connection][way];
        let emit = |from: u64, len: usize, more: u8| reply.segment(&self.kept, map, from, len, more);
        let Plan { again, fresh, transmitted, to, fin, push, most, left, repeated } = plan;
        let nothing = again.is_empty() && fresh.is_empty();
        let (mut at, mut resent, mut ended) = (transmitted, 0, false);
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
                resent += next.min(transmitted) - (next - len as u64).min(transmitted);
            }
            at = at.max(next);
        }
        if nothing {
            ended = self.emit_nothing(received, header, reply, fin, send);
        }
        self.counters.resent += resent;
        let map = &mut self.maps[connection][way];
        map.transmitted = at;
        map.end_transmitted |= ended;
        // An end that has sent everything still acknowledges segments.
        if received.arrival != Arrival::Ignored || map.finished {
            self.retransmit(received.number, received.side, header, send);
        }
    }

    /// Sends a segment where no byte goes out. Answers whether it was the direction's end.
    fn emit_nothing(
        &self,
        received: &Received<'_>,
        header: TcpRef<'_>,
        reply: &Reply<'_>,
        fin: bool,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) -> bool {
        let Received { segment, arrival, .. } = *received;
        let (connection, way) = received.places();
        let map = &self.maps[connection][way];
        let start = map.input(header.sequence_number());
        let emit = |from: u64, len: usize, more: u8| reply.segment(&self.kept, map, from, len, more);
        // None of its bytes are forwarded: they are held, they wait, or the receiver has them. An old byte
        // makes the receiver acknowledge (RFC 9293, section 3.8.4). The sender counts that as a duplicate
        // acknowledgment, or the receiver missed that one.
        let held_again = !R::HOLDS && arrival == Arrival::Old && start >= map.emitted;
        let asks = !segment.bytes.is_empty()
            && (matches!(arrival, Arrival::Waits | Arrival::Refused)
                || held_again
                || start < map.input_acknowledged(&self.edits));
        match (fin, asks) {
            (true, _) => return send(&emit(map.sent, 0, flags::FIN)),
            (false, true) => {
                send(&Emit { len: 1, kept: None, ..emit(map.acknowledged.wrapping_sub(1), 0, 0) });
            }
            // A keep-alive stays a keep-alive.
            (false, false) => {
                let alive =
                    segment.bytes.len() <= 1 && start.wrapping_add(1) == map.emitted && start < map.emitted;
                send(&emit(
                    if alive {
                        // Before the first byte, where the output is empty.
                        map.sent.wrapping_sub(1)
                    } else {
                        map.bare_at(&self.edits, header.sequence_number(), start)
                    },
                    0,
                    0,
                ));
            }
        }
        false
    }

    /// Sends a reset in the place of one that came.
    pub(super) fn emit_reset(
        &self,
        received: &Received<'_>,
        header: TcpRef<'_>,
        reply: &Reply<'_>,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) {
        let (connection, way) = received.places();
        let map = &self.maps[connection][way];
        let number = header.sequence_number();
        let at = map.reset_at(&self.edits, &received.before, number, map.input(number));
        send(&reply.segment(&self.kept, map, at, 0, 0));
    }
}

/// A packet without bytes.
pub(super) fn bare(number: u32, acknowledgment: u32, flags: u8, back: bool) -> Emit<'static> {
    Emit { number, acknowledgment, flags, window: 0, options: &[], len: 0, back, kept: None }
}
