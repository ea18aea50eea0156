//! Segments outside the windows of a connection's ends, such as those of an attacker.
//!
//! An attacker may know addresses and ports but not the numbers (RFC 5961). These segments do not count. They
//! are forwarded at the same distance from the next byte, and never nearer.

use netbricks_core::packet::tcp::{TcpRef, flags};

use super::{Edits, Emit, Packetizer};
use crate::connection::Stage;
use crate::sequence_map::SequenceMap;
use crate::{Rewriter, Segment, Side};

/// The largest window that is not shifted, in bytes. The window of a segment that opens is never shifted.
const UNSHIFTED: u64 = 1 << 16;

impl<R: Rewriter> Packetizer<R> {
    /// Whether a segment lies further from its direction's next byte than any window that was let through.
    ///
    /// The answer is also `true` for a segment that opens a connection again whose ends have agreed and have
    /// not both ended it (section 4).
    pub(super) fn is_out_of_window(&self, number: u32, side: Side, header: TcpRef<'_>) -> bool {
        let maps = &self.maps[number as usize];
        if !maps.iter().all(|map| map.rewrites) {
            return false;
        }
        let map = &maps[side as usize];
        let said = header.sequence_number();
        if opens(header) {
            // An opening in the name of one end may also be forged once the other end has finished.
            return self.streams.stage(number) == Stage::Open && said.wrapping_add(1) != map.first;
        }
        let distance = said.wrapping_sub(map.number(map.taken)).cast_signed();
        u64::from(distance.unsigned_abs()) > self.room + UNSHIFTED
    }

    /// The segment that is sent in the place of one outside the windows. An end that knows better answers it.
    pub(super) fn out_of_window<'a>(&self, number: u32, side: Side, header: TcpRef<'a>) -> Emit<'a> {
        let maps = &self.maps[number as usize];
        let [own, other] = [side, side.other()].map(|side| {
            let map = &maps[side as usize];
            // An end that opens a connection again counts from the beginning.
            if !opens(header) { map.sent.wrapping_sub(map.emitted) as u32 } else { 0 }
        });
        Emit {
            number: header.sequence_number().wrapping_add(own),
            acknowledgment: header.acknowledgment_number().wrapping_sub(other),
            flags: header.flags() & !(flags::FIN | flags::PSH | flags::URG),
            window: header.window(),
            options: header.options_bytes(),
            len: 0,
            back: false,
            kept: None,
        }
    }

    /// Lets a reset count only where its receiver takes it: at the next byte that it expects (section 3.2).
    ///
    /// The expected number comes from the receiver's acknowledgments or from the segments that went to it.
    /// The receiver answers any other reset, which then comes again with a number that counts.
    pub(super) fn weigh_reset(&self, number: u32, side: Side, segment: &mut Segment<'_>) {
        let map = &self.maps[number as usize][side as usize];
        if !map.rewrites {
            return;
        }
        let said = segment.number as u32;
        let next = [map.told, map.taken, map.taken + u64::from(map.finished)];
        segment.aborts = next.iter().any(|at| map.number(*at) == said);
        if segment.aborts {
            // Some bytes before it may still be on their way to the receiver.
            segment.number = u64::from(map.number(map.taken));
        }
    }
}

/// A segment that opens and aborts is a reset.
fn opens(header: TcpRef<'_>) -> bool {
    header.flags() & (flags::SYN | flags::RST) == flags::SYN
}

impl SequenceMap {
    /// The distance in bytes of a number before the first one, if it lies there: it has no position.
    fn before_first(&self, number: u32) -> Option<u64> {
        let distance = i64::from(number.wrapping_sub(self.number(self.taken)).cast_signed());
        self.taken.checked_add_signed(distance).is_none().then(|| distance.unsigned_abs() - self.taken)
    }

    /// The output position of a segment without bytes that came at input position `at` with this number.
    ///
    /// A segment far ahead stays as far ahead, so that its receiver can say that it did not expect it. A
    /// segment before the first byte stays before it, as a keep-alive may lie there.
    pub(super) fn bare_at(&self, edits: &Edits, number: u32, at: u64) -> u64 {
        let end = self.taken + u64::from(self.finished);
        match self.before_first(number) {
            Some(before) => 0u64.wrapping_sub(before),
            None if at > end => self.ends() + (at - end),
            None => self.output_of(edits, at).min(self.ends()),
        }
    }

    /// The output position of a reset that came at input position `at` with this number.
    ///
    /// `before` is the map before the reset.
    pub(super) fn reset_at(&self, edits: &Edits, before: &Self, number: u32, at: u64) -> u64 {
        if let Some(before) = self.before_first(number) {
            return 0u64.wrapping_sub(before);
        }
        let end = self.taken + u64::from(self.finished);
        if at > end {
            return self.ends() + (at - end);
        }
        if at == before.told && at <= self.taken {
            // This includes the part of a replacement that the receiver has.
            return before.acknowledged;
        }
        let most = if self.transmitted < self.sent { self.transmitted } else { self.ends() };
        self.output_of(edits, at).min(most)
    }
}
