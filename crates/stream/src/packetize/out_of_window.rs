//! Segments that lie where the ends of a connection don't take them, as those of an attacker who knows its addresses and ports but not
//! its numbers (RFC 5961). What they say does not count, and they go on as far from what is next as they came: never nearer.

use netbricks_core::packet::tcp::{TcpRef, flags};

use super::{Edits, Emit, Packetizer};
use crate::connection::Stage;
use crate::sequence_map::SequenceMap;
use crate::{Rewriter, Segment, Side};

/// Bytes that a window has which is not shifted, at most: that of a segment that opens never is.
const UNSHIFTED: u64 = 1 << 16;

impl<R: Rewriter> Packetizer<R> {
    /// Whether a segment lies further from what its direction's next than any window that was let through; or opens again what
    /// both ends agreed on and did not both end (section 4).
    pub(super) fn is_out_of_window(&self, number: u32, side: Side, header: TcpRef<'_>) -> bool {
        let maps = &self.maps[number as usize];
        if !maps.iter().all(|map| map.rewrites) {
            return false;
        }
        let map = &maps[side as usize];
        let said = header.sequence_number();
        if opens(header) {
            // That of one end may be forged as well once the other has no more to say.
            return self.streams.stage(number) == Stage::Open && said.wrapping_add(1) != map.first;
        }
        let distance = said.wrapping_sub(map.number(map.taken)).cast_signed();
        u64::from(distance.unsigned_abs()) > self.room + UNSHIFTED
    }

    /// The segment that goes on in the place of such a one. An end that knows better says so.
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

    /// A reset counts where its receiver takes it: at the very next byte that it expects (section 3.2), by its own word or by what
    /// went to it. Another one is answered by it, and comes again where it counts.
    pub(super) fn weigh_reset(&self, number: u32, side: Side, segment: &mut Segment<'_>) {
        let map = &self.maps[number as usize][side as usize];
        if !map.rewrites {
            return;
        }
        let said = segment.number as u32;
        let next = [map.told, map.taken, map.taken + u64::from(map.finished)];
        segment.aborts = next.iter().any(|at| map.number(*at) == said);
        if segment.aborts {
            // Whatever of its bytes is still on its way to the receiver.
            segment.number = u64::from(map.number(map.taken));
        }
    }
}

/// One that opens and aborts is a reset.
fn opens(header: TcpRef<'_>) -> bool {
    header.flags() & (flags::SYN | flags::RST) == flags::SYN
}

impl SequenceMap {
    /// How many bytes before the first one a number lies, if it does: there is no position for it.
    fn before_first(&self, number: u32) -> Option<u64> {
        let distance = i64::from(number.wrapping_sub(self.number(self.taken)).cast_signed());
        self.taken.checked_add_signed(distance).is_none().then(|| distance.unsigned_abs() - self.taken)
    }

    /// Where a segment without bytes goes that came at an input position, by this number: from far ahead as far, so that its
    /// receiver may tell what it never waited for; and from before the first byte, as a keep-alive may, before it.
    pub(super) fn bare_at(&self, edits: &Edits, number: u32, at: u64) -> u64 {
        let end = self.taken + u64::from(self.finished);
        match self.before_first(number) {
            Some(before) => 0u64.wrapping_sub(before),
            None if at > end => self.ends() + (at - end),
            None => self.output_of(edits, at).min(self.ends()),
        }
    }

    /// Where a reset goes that came at an input position, by this number, `before` it took effect.
    pub(super) fn reset_at(&self, edits: &Edits, before: &Self, number: u32, at: u64) -> u64 {
        if let Some(before) = self.before_first(number) {
            return 0u64.wrapping_sub(before);
        }
        let end = self.taken + u64::from(self.finished);
        if at > end {
            return self.ends() + (at - end);
        }
        if at == before.told && at <= self.taken {
            // What it has of a replacement, too.
            return before.acknowledged;
        }
        let most = if self.transmitted < self.sent { self.transmitted } else { self.ends() };
        self.output_of(edits, at).min(most)
    }
}
