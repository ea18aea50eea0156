//! Stores an out-of-order segment among those that wait, by the policy for overlaps.

use super::blocks::{BLOCK, Blocks, List, NONE, Piece};
use super::settings::Overlap;

/// The most blocks that storing `bytes` bytes takes, where they fill `holes` separate gaps.
pub(super) fn blocks_for(bytes: usize, holes: usize) -> usize {
    bytes.div_ceil(BLOCK) + holes
}

/// The outcome of storing a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Some bytes of it are new.
    Some,
    /// All bytes of it were there.
    Nothing,
    /// There are not enough blocks; nothing was changed.
    NoRoom,
}

impl Blocks {
    /// Stores a segment whose first byte has position `start`.
    ///
    /// `ends` says whether the stream ends behind the segment. The list may have `most` blocks.
    pub(super) fn store(
        &mut self,
        list: &mut List,
        overlap: Overlap,
        start: u64,
        bytes: &[u8],
        ends: bool,
        most: usize,
    ) -> Stored {
        let room = most.saturating_sub(list.blocks as usize).min(self.available());
        match overlap {
            Overlap::Linux => self.store_as_linux(list, start, bytes, ends, room),
            Overlap::First | Overlap::Last => {
                self.store_plainly(list, start, bytes, room, overlap == Overlap::Last)
            }
        }
    }

    fn store_as_linux(
        &mut self,
        list: &mut List,
        start: u64,
        bytes: &[u8],
        ends: bool,
        room: usize,
    ) -> Stored {
        let end = start + bytes.len() as u64;
        // The end counts as one more byte, which can make this segment the longer one.
        let (before, covered) = self.find_as_linux(list, start, end + u64::from(ends));
        if covered {
            return Stored::Nothing;
        }
        let (mut from, mut first) = (start, start);
        if let Some(piece) = self.get(before) {
            if piece.end() == start {
                from = piece.from;
            }
            first = start.max(piece.end());
        }
        if blocks_for(bytes.len(), 0) > room {
            return Stored::NoRoom;
        }
        // Later pieces that end within the new segment are covered by it. Where a piece ends later, the new
        // segment has its beginning.
        loop {
            let block = self.after(list, before);
            if block == NONE || self.piece(block).start >= end {
                break;
            }
            if self.piece(block).end() > end {
                self.trim(list, block, end - self.piece(block).start);
                break;
            }
            self.remove_after(list, before);
        }
        let (_, missing) = self.insert(list, before, from, first, &bytes[(first - start) as usize..]);
        debug_assert_eq!(missing, 0, "there was room");
        Stored::Some
    }

    /// The last block whose run begins before `start`, and whether the queue covers the segment.
    ///
    /// It does where a run that begins at `start` or before has all bytes up to `end`.
    fn find_as_linux(&self, list: &List, start: u64, end: u64) -> (u32, bool) {
        let before = self.last(list, |piece| piece.from < start);
        let behind = self.after(list, before);
        let at_or_before = match self.get(behind) {
            Some(piece) if piece.from <= start => self.last(list, |piece| piece.from <= start),
            _ => before,
        };
        let reaches = |block| self.get(block).is_some_and(|piece: &Piece| piece.end() >= end);
        (before, reaches(before) || reaches(at_or_before))
    }

    /// The position at which the run begins with which an end of the stream is queued.
    ///
    /// The end comes with a segment from `start` to `end`, and takes the position behind it as one more byte.
    /// The answer is `None` where that position is taken.
    pub(super) fn end_as_linux(&self, list: &List, start: u64, end: u64) -> Option<u64> {
        let (before, covered) = self.find_as_linux(list, start, end + 1);
        let joins = self.get(before).filter(|piece| piece.end() == start);
        (!covered).then(|| joins.map_or(start, |piece| piece.from))
    }

    fn store_plainly(
        &mut self,
        list: &mut List,
        start: u64,
        bytes: &[u8],
        room: usize,
        overwrite: bool,
    ) -> Stored {
        let end = start + bytes.len() as u64;
        let mut before = self.last(list, |piece| piece.end() <= start);
        // The range is visited twice, so that nothing changes where there is no room.
        let (mut needed, mut new) = (0, false);
        self.each_part(self.after(list, before), start, end, |hole, from, to| {
            if hole {
                needed += blocks_for((to - from) as usize, 0);
                new = true;
            }
        });
        if needed > room {
            return Stored::NoRoom;
        }
        let mut at = start;
        while at < end {
            let next = self.after(list, before);
            if next != NONE && self.piece(next).end() <= at {
                before = next;
                continue;
            }
            let rest = &bytes[(at - start) as usize..];
            if next != NONE && self.piece(next).start <= at {
                let shared = (self.piece(next).end().min(end) - at) as usize;
                if overwrite {
                    self.overwrite(next, at, rest);
                }
                at += shared as u64;
                before = next;
                continue;
            }
            let until = if next == NONE { end } else { self.piece(next).start.min(end) };
            let missing;
            (before, missing) = self.insert(list, before, 0, at, &rest[..(until - at) as usize]);
            debug_assert_eq!(missing, 0, "there was room");
            at = until;
        }
        if new || overwrite { Stored::Some } else { Stored::Nothing }
    }

    /// Visits the parts of a range in order: the parts that are stored and the gaps.
    ///
    /// `block` is the first block that ends in the range or behind it.
    fn each_part(&self, mut block: u32, start: u64, end: u64, mut visit: impl FnMut(bool, u64, u64)) {
        let mut at = start;
        while at < end {
            let Some(piece) = (block != NONE).then(|| *self.piece(block)) else {
                visit(true, at, end);
                return;
            };
            if piece.start > at {
                let to = piece.start.min(end);
                visit(true, at, to);
                at = to;
            } else if piece.end() > at {
                let to = piece.end().min(end);
                visit(false, at, to);
                at = to;
            } else {
                block = piece.next;
            }
        }
    }
}
