//! Third step: plans the output that goes out in the place of a segment, and the number of segments.

use std::ops::Range;

use netbricks_core::context::SEGMENTS_A_PACKET;
use netbricks_core::packet::tcp::{TcpRef, flags};

use super::Packetizer;
use super::emit::Reply;
use super::receive::Received;
use crate::Rewriter;
use crate::sequence_map::SequenceMap;

/// The bytes that go out, by their positions in the output.
pub(super) struct Plan {
    /// Bytes that its receiver is sent again.
    pub(super) again: Range<u64>,
    /// Bytes that went out in no packet yet.
    pub(super) fresh: Range<u64>,
    /// Position behind all output that went out.
    pub(super) transmitted: u64,
    /// Position behind the last byte of both ranges.
    pub(super) to: u64,
    /// Whether the end of the direction goes out behind that position.
    pub(super) fin: bool,
    /// The flag of the last segment, if it is pushed.
    pub(super) push: u8,
    /// The most bytes of a segment.
    pub(super) most: usize,
    /// The most segments, in total and for the bytes that are sent again.
    pub(super) left: usize,
    pub(super) repeated: usize,
}

impl Received<'_> {
    /// Whether its sender, which was told of a window of 0, sends a probe.
    ///
    /// A probe has no bytes, and lies before the bytes that were taken.
    pub(super) fn probes(&self, map: &SequenceMap, at: u64) -> bool {
        self.segment.bytes.is_empty() && !self.segment.ends && !self.aborts && at < map.taken
    }
}

impl<R: Rewriter> Packetizer<R> {
    /// Plans the output in the place of a segment.
    pub(super) fn plan(&self, received: &Received<'_>, header: TcpRef<'_>, reply: &Reply<'_>) -> Plan {
        let Received { segment, before, .. } = received;
        let (connection, way) = received.places();
        let map = &self.maps[connection][way];
        let probes = received.probes(map, map.input(header.sequence_number()));
        // The position up to which its receiver takes output, by its last window.
        let takes = map.output(map.said.0) + (u64::from(map.said.1) << self.shift(connection, 1 - way));
        // The input that the segment repeats, and the new input.
        let start = map.input(header.sequence_number());
        // Some of the output that its receiver does not have must be sent again from here, because the sender
        // was told that it arrived. The output may also be more than the receiver takes at once, because it
        // is longer than the input. Then the sender was told of a window of 0, and can only send probes.
        let owes = map.input_acknowledged(&self.edits) < map.told;
        let stopped = map.window == 0 && start <= map.told && map.acknowledged < takes;
        let ours = probes && (owes && start < map.told || stopped);
        let repeats = match segment.bytes {
            [] => segment.ends && before.finished || ours,
            _ => start < before.emitted,
        };
        // Output that its receiver has was sent, even if no sending was recorded here.
        let transmitted = before.transmitted.max(map.acknowledged);
        let again = if !repeats {
            transmitted..transmitted
        } else {
            let end = match (ours, owes) {
                (true, true) => map.told,
                (true, false) => before.emitted,
                (false, _) => start + segment.bytes.len() as u64,
            };
            let end = map.output_behind(&self.edits, end.min(before.emitted)).min(transmitted);
            let end = if ours && !owes { end.min(takes) } else { end };
            map.answer_from(&self.edits, start).min(end)..end
        };
        let fresh = transmitted..map.sent;
        let to = if !fresh.is_empty() {
            fresh.end
        } else if again.is_empty() {
            transmitted
        } else {
            again.end
        };
        // At the end of all its bytes, and where its sender repeats it.
        let fin = map.finished && (segment.ends || !map.end_transmitted) && to == map.sent;
        let push = if header.flags() & flags::PSH != 0 { flags::PSH } else { 0 };
        let most = map.at_most(self.maps[connection][1 - way].segment_size(reply.options.len()));
        // The segment's own bytes (several segments, if it was not cut), the bytes that waited for it, and as
        // many more as each packet of a full batch may send. So the output does not depend on batches. Output
        // that did not go out yet is not delayed by output that is repeated.
        let said = segment.bytes.len().max((map.taken - before.taken) as usize);
        let left = SEGMENTS_A_PACKET + said / most;
        let repeated = match (again.is_empty(), fresh.is_empty()) {
            (true, _) => 0,
            (_, true) => left,
            _ => left / 2,
        };
        Plan { again, fresh, transmitted, to, fin, push, most, left, repeated }
    }
}
