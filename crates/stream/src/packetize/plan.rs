//! Third step: plans which bytes of a direction go out in the place of a segment, and in how many segments.

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
    /// Behind all that went out.
    pub(super) transmitted: u64,
    /// Behind the last byte of either.
    pub(super) to: u64,
    /// The end of the direction goes out behind that.
    pub(super) fin: bool,
    /// The flag of the last segment, if it is pushed.
    pub(super) push: u8,
    /// Bytes of a segment at most.
    pub(super) most: usize,
    /// Segments at most: of all, and of those that are sent again.
    pub(super) left: usize,
    pub(super) repeated: usize,
}

impl Received<'_> {
    /// Whether its sender, who was told of a window of 0, asks: with no byte at all, before those it was told of.
    pub(super) fn probes(&self, map: &SequenceMap, at: u64) -> bool {
        self.segment.bytes.is_empty() && !self.segment.ends && !self.aborts && at < map.taken
    }
}

impl<R: Rewriter> Packetizer<R> {
    /// Plans what goes out in the place of a segment.
    pub(super) fn plan(&self, received: &Received<'_>, header: TcpRef<'_>, reply: &Reply<'_>) -> Plan {
        let Received { segment, before, .. } = received;
        let (connection, way) = received.places();
        let map = &self.maps[connection][way];
        let probes = received.probes(map, map.input(header.sequence_number()));
        // Up to where its receiver takes what goes on, by its own word.
        let takes = map.output(map.said.0) + (u64::from(map.said.1) << self.shift(connection, 1 - way));
        // What it has again, and what it has made new.
        let start = map.input(header.sequence_number());
        // Of what its receiver has not, some is ours to send again: its sender was told that it came. And where that is more
        // than the receiver takes at once, for more went on than came, the sender was told of a window of 0, and can but ask.
        let owes = map.input_acknowledged(&self.edits) < map.told;
        let stopped = map.window == 0 && start <= map.told && map.acknowledged < takes;
        let ours = probes && (owes && start < map.told || stopped);
        let repeats = match segment.bytes {
            [] => segment.ends && before.finished || ours,
            _ => start < before.emitted,
        };
        // What its receiver has went out, whatever became of it here.
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
        // At the end of all its bytes, and where its sender says so.
        let fin = map.finished && (segment.ends || !map.end_transmitted) && to == map.sent;
        let push = if header.flags() & flags::PSH != 0 { flags::PSH } else { 0 };
        let most = map.at_most(self.maps[connection][1 - way].segment_size(reply.options.len()));
        // Its own bytes (several segments, where it was not cut) and those that waited for it, and as much more as a full batch
        // of packets may send together: so what goes out does not depend on batches. What did not go out yet comes no later
        // than what did.
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
