//! Segments to a receiver in answer to its own segment, because no other packet brings these bytes.
//!
//! They carry output for which the packets of its direction were too few. They also carry output that was
//! lost on the way to the receiver after its sender was told that it arrived.

use netbricks_core::packet::tcp::{TcpRef, flags};

use crate::sequence_map::SequenceMap;
use crate::{Rewriter, Side};

use super::{Emit, Packetizer};

/// The most segments that answer a receiver's packet.
///
/// It keeps the answers to a batch within the limit of a batch.
const ANSWERS: usize = 2;
/// The most bytes of such a segment: those that an Ethernet link takes behind IPv6 and time stamps.
pub(crate) const ANSWER: usize = 1_428;
/// Bytes of its options, if its ends have agreed on time stamps: these, behind two bytes of padding.
const OPTIONS: usize = 12;

impl<R: Rewriter> Packetizer<R> {
    /// Sends missing bytes of the other direction to the sender of `side`, after a segment from it.
    pub(super) fn retransmit(
        &mut self,
        number: u32,
        side: Side,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) {
        if header.flags() & (flags::ACK | flags::RST) != flags::ACK {
            return;
        }
        let shift = self.shift(number as usize, side as usize);
        let Self { maps, kept, edits, counters, .. } = self;
        let maps = &mut maps[number as usize];
        let own = maps[side as usize];
        let map = &mut maps[side.other() as usize];
        if !map.has_sent(header.acknowledgment_number()) {
            return;
        }
        // The edge of its window: it would answer bytes beyond that, and be answered again.
        let edge = map.output(header.acknowledgment_number()) + (u64::from(header.window()) << shift);
        let most = map.at_most(own.segment_size(OPTIONS)).min(ANSWER);
        let mut times = [0; OPTIONS];
        times[..4].copy_from_slice(&[1, 1, 8, 10]);
        let options: &[u8] = match super::sack::clocks(header) {
            Some((value, echo)) => {
                times[4..8].copy_from_slice(&map.clock.unwrap_or(echo).to_be_bytes());
                times[8..].copy_from_slice(&value.to_be_bytes());
                &times
            }
            None => &[],
        };
        let mut left = ANSWERS;
        for range in [
            map.missed(header, edits, most as u64),
            map.transmitted.max(map.acknowledged)..map.sent.min(edge),
        ] {
            let mut at = range.start;
            while at < range.end && left > 0 {
                let len = ((range.end - at) as usize).min(most);
                let next = at + len as u64;
                let ends = next == map.sent && map.finished;
                let end = if ends { flags::FIN | flags::PSH } else { 0 };
                let sent = send(&Emit {
                    number: map.number(at),
                    acknowledgment: own.number(own.told),
                    flags: flags::ACK | end,
                    window: own.window,
                    options,
                    len,
                    back: true,
                    kept: Some((kept, map, at)),
                });
                if !sent {
                    return;
                }
                if at < map.transmitted {
                    counters.resent += len as u64;
                    map.retransmitted = next;
                }
                map.transmitted = map.transmitted.max(next);
                map.end_transmitted |= ends;
                (at, left) = (next, left - 1);
            }
        }
    }
}

impl SequenceMap {
    /// Output that its receiver misses, although its input waited here.
    ///
    /// The sender was told that the input waited, so it does not send it again before its timer expires. Each
    /// byte is sent from here once; if it is lost again, the sender's timer has to send it.
    fn missed(&self, header: TcpRef<'_>, edits: &super::Edits, most: u64) -> std::ops::Range<u64> {
        let from = self.acknowledged.max(self.retransmitted);
        if self.sack_told <= self.told {
            return from..from;
        }
        let (mut first, mut last) = (self.transmitted, 0);
        for (start, end) in super::sack::said(header).map(|(from, to)| (self.output(from), self.output(to))) {
            if self.acknowledged < start && start < end && end <= self.transmitted {
                (first, last) = (first.min(start), last.max(end));
            }
        }
        // More than two segments came behind it (RFC 6675, section 3).
        if last <= from + 2 * most {
            return from..from;
        }
        from..first.min(self.output_behind(edits, self.sack_told.min(self.emitted)))
    }
}
