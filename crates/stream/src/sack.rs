//! Selective acknowledgments (RFC 2018) across a change of numbers.
//!
//! A sender is told of the blocks that its receiver reports. A replacement counts only when all of its output
//! is there. The sender is also told of the bytes that wait here for bytes lost on their way here. The
//! receiver knows nothing of these. A sender that is not told of them learns only from its timer which bytes
//! were lost.
//!
//! A sender must still keep bytes that were acknowledged selectively (section 8). Only the acknowledgment
//! number lets it forget them, and that number stands for bytes that the receiver has.

use netbricks_core::packet::tcp::TcpRef;
use netbricks_core::packet::tcp_options::{LONGEST, set_clock, with_sack};
use netbricks_core::packet::{Tcp, TcpOption};

use super::sequence_map::{Edit, Edits, SequenceMap};
use super::{Reassembler, Side};

/// The most blocks that an option has room for.
pub(super) const MOST: usize = 4;

/// The blocks for a sender, in its numbers: the first number of each, and the one behind its last.
#[derive(Default)]
struct Told {
    blocks: [(u32, u32); MOST],
    count: usize,
}

impl Told {
    /// Adds a block as long as there is room.
    fn add(&mut self, map: &SequenceMap, (from, to): (u64, u64)) {
        if let Some(place) = self.blocks.get_mut(self.count) {
            *place = (map.number(from), map.number(to));
            self.count += 1;
        }
    }
}

/// An edge of a block.
#[derive(Clone, Copy, Default)]
struct Edge {
    output: u64,
    ends: bool,
    block: usize,
}

/// The blocks in a segment's option, if it has any.
pub(super) fn said(header: TcpRef<'_>) -> impl Iterator<Item = (u32, u32)> {
    let blocks = header.options().flatten().find_map(|option| match option {
        TcpOption::Sack(blocks) => Some(blocks),
        _ => None,
    });
    blocks.into_iter().flat_map(|blocks| blocks.iter()).take(MOST)
}

/// A segment's time stamps: its sender's clock, and the echo of the other's, where they have agreed on them.
pub(super) fn clocks(header: TcpRef<'_>) -> Option<(u32, u32)> {
    header.options().flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo_reply } => Some((value, echo_reply)),
        _ => None,
    })
}

/// The options of a segment of `own`, as the sender of `other` has to see them.
///
/// They have no selective acknowledgments where the ends have not `agreed` on these.
pub(super) fn options<'a>(
    header: TcpRef<'a>,
    agreed: bool,
    [own, other]: [&SequenceMap; 2],
    edits: &Edits,
    waiting: impl Iterator<Item = (u64, u64)>,
    room: &'a mut [u8; LONGEST],
) -> &'a [u8] {
    let told = if agreed { other.tell(header, edits, waiting) } else { Told::default() };
    let clock = clocks(header).and_then(|(value, _)| own.clock.filter(|clock| value != *clock));
    let said = header.options_bytes();
    let len = if told.count > 0 || header.options().flatten().any(|option| option.is_sack()) {
        with_sack(said, &told.blocks[..told.count], room)
    } else if clock.is_some() {
        room[..said.len()].copy_from_slice(said);
        said.len()
    } else {
        return said;
    };
    if let Some(clock) = clock {
        set_clock(&mut room[..len], clock);
    }
    &room[..len]
}

/// Whether a clock showed `value` before `clock` (RFC 7323, section 5.2).
fn is_before(value: u32, clock: u32) -> bool {
    value.wrapping_sub(clock).cast_signed() < 0
}

impl SequenceMap {
    /// Records a segment of `len` bytes that waits; its first byte has this position.
    pub(super) fn came_late(&mut self, place: u64, len: usize) {
        self.late.rotate_right(1);
        self.late[0] = place;
        if self.selective {
            self.sack_told = self.sack_told.max(place + len as u64);
        }
    }

    /// Records the clock of a segment of `len` bytes at this position.
    ///
    /// Bytes that waited for this segment are forwarded with it. With an older clock than the receiver has
    /// seen since, they would not count there (RFC 7323, section 5.3).
    pub(super) fn came(&mut self, header: TcpRef<'_>, place: u64, len: usize) {
        // A segment that its receiver would ignore does not set the clock, and goes out with the clock as it
        // is set.
        if place + len as u64 + 1 < self.told {
            return;
        }
        if let Some((value, _)) = clocks(header)
            && self.clock.is_none_or(|clock| is_before(clock, value))
        {
            self.clock = Some(value);
        }
    }

    /// Records a segment all of whose bytes were here before.
    ///
    /// Output that its receiver does not have yet may be sent again because of it.
    pub(super) fn came_again(&mut self, edits: &Edits, place: u64, len: usize) {
        let end = place + len as u64;
        if self.selective && len > 1 && (end <= self.input_acknowledged(edits) || place > self.taken) {
            self.twice = Some((place, end));
        }
    }

    fn tell(&self, header: TcpRef<'_>, edits: &Edits, waiting: impl Iterator<Item = (u64, u64)>) -> Told {
        let mut told = Told::default();
        let acknowledged = self.output(header.acknowledgment_number());
        let mut edges = [Edge::default(); 2 * MOST];
        let mut count = 0;
        // A range that came twice comes first (RFC 2883).
        let mut twice = false;
        if acknowledged <= self.ends() {
            for (place, (first, behind)) in said(header).enumerate() {
                let (from, to) = (self.output(first), self.output(behind));
                let sent = self.transmitted + u64::from(self.end_transmitted);
                let again = place == 0
                    && to <= acknowledged
                    // Before that position, the map of input and output is forgotten.
                    && from >= self.shifted
                    // A single byte was asked for, here or by a keep-alive.
                    && from + 1 < to;
                if from < to && to <= sent && (again || from > acknowledged) {
                    edges[count] = Edge { output: from, ends: false, block: count / 2 };
                    edges[count + 1] = Edge { output: to, ends: true, block: count / 2 };
                    (count, twice) = (count + 2, twice || again);
                }
            }
        }
        let mut has = self.inputs(edits, &edges[..count]).into_iter().take(count / 2);
        let has_twice =
            if twice { has.next().filter(|(from, to)| from < to && *to <= self.told) } else { None };
        let runs = self.runs(waiting);
        let here_twice = self.twice.filter(|(from, to)| {
            *to <= self.told || runs.iter().flatten().any(|(first, behind)| first <= from && to <= behind)
        });
        if let Some(block) = here_twice.or(has_twice) {
            told.add(self, block);
        }
        runs.into_iter().flatten().for_each(|run| told.add(self, run));
        // Blocks that do not lie behind the acknowledged bytes were reported before these were acknowledged.
        has.filter(|(from, to)| self.told < *from && from < to).for_each(|block| told.add(self, block));
        told
    }

    /// The runs of waiting bytes that got the latest segments.
    fn runs(&self, waiting: impl Iterator<Item = (u64, u64)>) -> [Option<(u64, u64)>; MOST] {
        let mut runs = [None; MOST];
        for (from, to) in waiting.filter(|(from, _)| *from > self.told) {
            if let Some(latest) = self.late.iter().position(|place| (from..to).contains(place)) {
                runs[latest] = Some((from, to));
            }
        }
        runs
    }

    /// Translates blocks of output to the input whose whole output lies in them.
    fn inputs(&self, edits: &Edits, edges: &[Edge]) -> [(u64, u64); MOST] {
        let mut blocks = [(0, 0); MOST];
        for edge in edges {
            let at = edge.output;
            // An empty replacement belongs to the blocks on both sides of it.
            let before = edits.last(self, |edit: &Edit| {
                edit.output_end < at || edit.output_end == at && (edge.ends || edit.output < at)
            });
            let input = match self.next(edits, before) {
                Some(edit) if edit.output < at && edge.ends => edit.input,
                Some(edit) if edit.output < at => edit.input_end,
                // The end of the direction has a number too.
                _ => {
                    let shift = self.shift_behind(before);
                    at.min(self.sent).saturating_add_signed(-shift) + u64::from(at > self.sent)
                }
            };
            let (from, to) = &mut blocks[edge.block];
            *(if edge.ends { to } else { from }) = input;
        }
        blocks
    }
}

impl Reassembler<Tcp> {
    /// The runs of bytes that wait in a direction of a connection, in order.
    ///
    /// Each is the position of its first byte and the one behind its last. A known end counts as a byte.
    pub(super) fn runs(&self, number: u32, side: Side) -> impl Iterator<Item = (u64, u64)> + '_ {
        let direction = self.direction(number, side);
        let mut block = direction.waiting.head;
        std::iter::from_fn(move || {
            // Bytes behind the end are not acknowledged.
            let from = self.blocks.get(block).filter(|piece| piece.start < direction.end)?.start;
            let mut to = from;
            while let Some(piece) = self.blocks.get(block).filter(|piece| piece.start == to) {
                (to, block) = (piece.end(), piece.next);
            }
            let end = u64::from(to >= direction.end);
            Some((from - direction.first, to.min(direction.end) + end - direction.first))
        })
    }
}
