//! Second step: translates a segment's acknowledgment number, window and options for the other end.

use netbricks_core::packet::tcp::{TcpRef, flags};
use netbricks_core::packet::tcp_options::LONGEST;

use super::emit::{Reply, bare};
use super::receive::Received;
use super::{Emit, Packetizer, sack};
use crate::{Arrival, Rewriter, Side};

impl<R: Rewriter> Packetizer<R> {
    /// Records a segment's acknowledgment and position, and answers the header fields for the other end.
    pub(super) fn acknowledge<'r>(
        &mut self,
        received: &Received<'_>,
        header: TcpRef<'r>,
        room: &'r mut [u8; LONGEST],
    ) -> Reply<'r> {
        let Received { number, side, segment, arrival, aborts, .. } = *received;
        let (connection, way) = received.places();
        let waits = !self.streams.direction(number, side.other()).waiting.is_empty();
        let (acknowledgment, window) = self.translate(connection, way, header, waits);
        let reach = self.room;
        let map = &mut self.maps[connection][way];
        let at = map.input(header.sequence_number());
        // A segment from far ahead may be forged.
        if arrival != Arrival::Ignored && !aborts && at <= map.taken.saturating_add(reach) {
            map.came(header, at, segment.bytes.len());
            if !segment.bytes.is_empty() {
                map.is_cut_into(segment.bytes.len(), arrival == Arrival::Old);
            }
        }
        match arrival {
            Arrival::Waits => map.came_late(at, segment.bytes.len()),
            Arrival::Old => map.came_again(&self.edits, at, segment.bytes.len()),
            _ => {}
        }
        let options = self.options(number, side, header, room);
        Reply {
            acknowledgment,
            window,
            flags: header.flags() & !(flags::FIN | flags::PSH | flags::URG),
            options,
        }
    }

    /// Tells a sender that asks about held bytes that they arrived.
    ///
    /// No segment is forwarded that would bring an acknowledgment.
    pub(super) fn acknowledge_held(
        &mut self,
        received: &Received<'_>,
        header: TcpRef<'_>,
        send: &mut impl FnMut(&Emit<'_>) -> bool,
    ) {
        let (connection, way) = received.places();
        let map = &mut self.maps[connection][way];
        let at = map.input(header.sequence_number());
        let probes = received.probes(map, at);
        let again = received.arrival == Arrival::Old
            && at >= received.before.emitted
            && map.sent == received.before.transmitted;
        // Its sender must still have all output that was lost on the way to the receiver.
        let all_has_come = map.acknowledged == map.sent;
        if R::HOLDS && map.emitted < map.taken && all_has_come && (probes || again) {
            let acknowledgment = map.own(self.rewriter.waits(&self.memories[connection][way]));
            let number = header.acknowledgment_number();
            send(&Emit { window: map.window, ..bare(number, acknowledgment, flags::ACK, true) });
        }
    }

    /// The number of bits by which a side's windows are shifted.
    pub(super) fn shift(&self, connection: usize, way: usize) -> u8 {
        match self.maps[connection].map(|map| map.scale) {
            // Only where both sides offer it (RFC 7323, section 2.2).
            [Some(_), Some(_)] => self.maps[connection][way].scale.unwrap_or_default(),
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
        let maps = &mut self.maps[number as usize];
        let agreed = maps.iter().all(|map| map.selective) && header.flags() & flags::ACK != 0;
        let both = [&maps[side as usize], &maps[other as usize]];
        let options = sack::options(header, agreed, both, &self.edits, waiting, room);
        // The duplicate range is reported once.
        maps[other as usize].twice = None;
        options
    }

    /// Records what the sender of this segment acknowledges of the other direction.
    ///
    /// Answers the acknowledgment number and the window for the other end.
    fn translate(&mut self, connection: usize, way: usize, header: TcpRef<'_>, waits: bool) -> (u32, u16) {
        let shift = self.shift(connection, way);
        let Self { maps, kept, edits, room, .. } = self;
        let other = &mut maps[connection][1 - way];
        if header.flags() & flags::ACK == 0 {
            return (header.acknowledgment_number(), header.window());
        }
        // Nothing else of a reset counts (RFC 9293, section 3.10.7.4).
        if header.flags() & flags::RST != 0 {
            return (other.translate(edits, header.acknowledgment_number(), waits), other.window);
        }
        other.acknowledge(header.acknowledgment_number(), kept, edits);
        let bytes = u64::from(header.window()) << shift;
        let acknowledgment = other.translate(edits, header.acknowledgment_number(), waits);
        let says = (header.acknowledgment_number(), header.window(), other.told.min(other.emitted));
        // An end that repeats itself is repeated unchanged, even if bytes that came meanwhile would change the
        // window. With another window it would be no duplicate acknowledgment (RFC 5681, section 2).
        if std::mem::replace(&mut other.said, says) != says {
            let window = other.takes(edits, header.acknowledgment_number(), bytes).min(*room) >> shift;
            other.window = window.min(0xffff) as u16;
        }
        (acknowledgment, other.window)
    }
}
