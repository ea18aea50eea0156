//! The opening of a connection: reads both ends' options, and decides which segments count before it is open.

use netbricks_core::packet::tcp::{TcpRef, flags};
use netbricks_core::packet::tcp_options::LONGEST;
use netbricks_core::packet::{FlowKey, Tcp, TcpOption};

use super::{Arrival, Emit, Packetizer, Passage};
use crate::acceptability::is_another;
use crate::connection::Stage;
use crate::sequence_map::{Opening, SequenceMap};
use crate::{End, MidstreamPolicy, Protocol, Rewriter, Segment, Side};

/// The option kind of Multipath TCP (RFC 8684, section 3).
const MULTIPATH: u8 = 30;

impl<R: Rewriter> Packetizer<R> {
    /// The passage of a signed segment (RFC 2385, RFC 5925), which no other host can write for its sender.
    ///
    /// A connection that it opens is not rewritten, and ends an older connection of the same ends. The ends
    /// of a rewritten connection do not sign, so they drop the segment.
    pub(super) fn signed(&mut self, flow: FlowKey, segment: &Segment<'_>, now: u64) -> Passage {
        let Some((number, _)) = self.streams.side(flow) else { return self.not_rewritten(false) };
        let way = usize::from(flow.canonical() != flow);
        if is_another(self.streams.connections.get(number), way, segment, Tcp::BITS) {
            self.forget(number, End::Replaced, now);
            return self.not_rewritten(false);
        }
        // Before the ends have agreed, the segment may be theirs, and the segments that were seen may be
        // forged.
        if self.streams.stage(number) == Stage::Opening {
            return self.not_rewritten(false);
        }
        self.counters.refused += 1;
        Passage::Refused
    }

    /// Whether a segment counts.
    ///
    /// Before both ends were seen to open the connection, only two kinds count, since any host may send the
    /// others. One kind opens the connection. The other is a reset by an end that refuses it or gives it up
    /// (RFC 9293, section 3.10.7.3).
    pub(super) fn counts(&self, number: u32, side: Side, segment: &Segment<'_>, header: TcpRef<'_>) -> bool {
        let maps = &self.maps[number as usize];
        let [own, other] = [side, side.other()].map(|side| &maps[side as usize]);
        let answers = || {
            let first = other.rewrites.then_some(u64::from(other.first));
            first.is_some() && segment.acknowledges == first
        };
        match (segment.opens, segment.aborts) {
            (true, _) => !segment.answers || answers(),
            (false, _) if own.rewrites && other.rewrites => true,
            (false, true) if own.rewrites => header.sequence_number() == own.first,
            (false, true) => answers(),
            (false, false) => false,
        }
    }

    /// The passage of a segment that comes before its connection is open, and is not rewritten.
    ///
    /// Where bytes of such a connection may not be forwarded, the segment is forwarded without them. So the
    /// ends can still tell each other that they do not know the connection.
    pub(super) fn before_it_opens(
        &mut self,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        if self.midstream == MidstreamPolicy::Pass {
            return self.not_rewritten(false);
        }
        let mut room = [0; LONGEST];
        let options = without_multipath(header, &mut room);
        let flags = header.flags() & !(flags::FIN | flags::PSH | flags::URG);
        let acknowledgment = header.acknowledgment_number();
        send(&as_it_is(header, options, acknowledgment, flags));
        Passage::Replaced
    }

    /// Takes a segment that opens a direction; it is forwarded without bytes.
    pub(super) fn opened(
        &mut self,
        number: u32,
        side: Side,
        header: TcpRef<'_>,
        arrival: Arrival,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        let (connection, way) = (number as usize, side as usize);
        if arrival != Arrival::Ignored {
            self.open(connection, way, header);
        }
        let said = header.acknowledgment_number();
        let acknowledgment = match header.flags() & flags::ACK {
            0 => said,
            _ => self.maps[connection][1 - way].translate(&self.edits, said, false),
        };
        let mut room = [0; LONGEST];
        let options = without_multipath(header, &mut room);
        send(&as_it_is(header, options, acknowledgment, header.flags() & !flags::URG));
        Passage::Replaced
    }

    /// Whether this is a client that has the server's answer: no other host knows the number that it
    /// acknowledges.
    pub(super) fn agrees(&self, connection: usize, side: Side, header: TcpRef<'_>) -> bool {
        side == Side::Client
            && header.flags() & flags::ACK != 0
            && self.maps[connection][Side::Server as usize].has_sent(header.acknowledgment_number())
    }

    /// Decides between two openings of a direction, if the segment in hand shows which one counts.
    ///
    /// An opening may be forged, or may have been given up.
    pub(super) fn settle(&mut self, number: u32, flow: FlowKey, segment: &Segment<'_>, now: u64) {
        let way = usize::from(flow.canonical() != flow);
        let connections = self.streams.counters().connections;
        if !self.streams.settle(number, way, segment, now, &mut |_| ()) {
            return;
        }
        if self.streams.counters().connections != connections {
            let rivals = self.maps[number as usize].map(|map| map.rival);
            self.clear(number, End::Replaced, now);
            self.streams.comes_to(number, Stage::Opening);
            for side in [Side::Client, Side::Server] {
                let first = self.streams.first(number, side);
                if let Some(opening) = rivals.into_iter().flatten().find(|rival| rival.first == first) {
                    self.maps[number as usize][side as usize] = SequenceMap::opened(opening, None);
                }
            }
        }
        self.follow_beginnings(number);
    }

    /// Follows directions that began with another opening than assumed. Answers whether one did.
    pub(super) fn follow_beginnings(&mut self, number: u32) -> bool {
        let mut changed = false;
        for side in [Side::Client, Side::Server] {
            let first = self.streams.first(number, side);
            let map = &mut self.maps[number as usize][side as usize];
            if let Some(counts) = map.rival.filter(|rival| map.rewrites && rival.first == first)
                && map.first != first
            {
                let (given_up, window) = (map.opening(), map.window);
                map.clear(&mut self.kept, &mut self.edits);
                *map = SequenceMap::opened(counts, Some(given_up));
                map.window = window;
                changed = true;
            }
        }
        changed
    }

    fn open(&mut self, connection: usize, way: usize, header: TcpRef<'_>) {
        let mut opening = Opening::new(header.sequence_number().wrapping_add(1));
        for option in header.options().flatten() {
            match option {
                TcpOption::MaximumSegmentSize(size) => opening.maximum_segment_size = size,
                TcpOption::WindowScale(shift) => opening.scale = Some(shift.min(14)),
                TcpOption::SackPermitted => opening.selective = true,
                _ => {}
            }
        }
        let old = &mut self.maps[connection][way];
        // A repeated SYN changes nothing that was agreed.
        if !old.rewrites || old.first != opening.first {
            let rival = old.rewrites.then(|| old.opening());
            old.clear(&mut self.kept, &mut self.edits);
            *old = SequenceMap::opened(opening, rival);
            if header.flags() & flags::ACK != 0 {
                self.agree_on_window(connection, way, header.window());
            }
        }
    }

    /// Sets the first window of an end that answers, which states it unshifted.
    ///
    /// From now on its sender is told the window shifted, even where nothing has come from the receiver
    /// since.
    fn agree_on_window(&mut self, connection: usize, way: usize, window: u16) {
        let shift = self.shift(connection, way);
        self.maps[connection][1 - way].window = (u64::from(window).min(self.room) >> shift) as u16;
    }
}

/// A segment without bytes, in its own numbers.
fn as_it_is<'a>(header: TcpRef<'_>, options: &'a [u8], acknowledgment: u32, flags: u8) -> Emit<'a> {
    Emit {
        number: header.sequence_number(),
        acknowledgment,
        flags,
        window: header.window(),
        options,
        len: 0,
        back: false,
        kept: None,
    }
}

/// The options of a segment, with no-operations in the place of Multipath TCP.
///
/// Segments of several paths refer to bytes by their numbers and a checksum (RFC 8684, section 3.3), and some
/// of them would not pass here. An end whose offer of Multipath TCP gets no answer uses one path.
fn without_multipath<'a>(header: TcpRef<'a>, room: &'a mut [u8; LONGEST]) -> &'a [u8] {
    let said = header.options_bytes();
    let options = &mut room[..said.len()];
    options.copy_from_slice(said);
    let mut rest = options;
    loop {
        let length = match *rest {
            [1, ..] => 1,
            [kind, length, ..] if kind > 1 && (2..=rest.len()).contains(&usize::from(length)) => {
                usize::from(length)
            }
            _ => return &room[..said.len()],
        };
        let (option, behind) = rest.split_at_mut(length);
        if option[0] == MULTIPATH {
            option.fill(1);
        }
        rest = behind;
    }
}
