//! Memory for bytes that wait: a fixed number of blocks, all allocated at the start.
//!
//! Each block holds a piece of a stream. Blocks form lists that are sorted by position.

mod index;

use netbricks_core::tables::{HugeArray, MemoryError};

use super::memory::filled;
use index::Index;

/// Bytes of a block: three hold an Ethernet segment.
pub const BLOCK: usize = 512;

/// The number that means no block.
pub(super) const NONE: u32 = u32::MAX;

/// The most blocks: their numbers have 32 bits, and [`NONE`] takes one number.
pub(super) const MOST: usize = NONE as usize;

/// The place of a block's bytes in the stream, and the next block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// Position at which its run began when it came. The first byte that counts may lie behind it.
    pub(super) from: u64,
    /// Position of its first byte.
    pub(super) start: u64,
    /// Offset of that byte in the block.
    skip: u16,
    len: u16,
    /// The block behind it, or the next free one.
    pub(super) next: u32,
}

impl Piece {
    /// The position behind its last byte.
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// A sorted list of blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The number of blocks.
    pub(super) blocks: u32,
    /// The root of the blocks' tree, if the blocks are indexed.
    root: u32,
    /// The number of bytes in the blocks.
    pub(super) bytes: u64,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, blocks: 0, root: NONE, bytes: 0 };
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// All blocks, used and free.
pub(super) struct Blocks {
    bytes: HugeArray<u8>,
    pieces: Vec<Piece>,
    /// The index that finds a position in long lists, if it is needed.
    index: Option<Index>,
    /// The first block that was used and given back.
    free: u32,
    /// Blocks from this number on were never used.
    fresh: u32,
    used: u32,
    /// The most blocks that were ever used at the same time.
    pub(super) high_water: u32,
}

impl Blocks {
    /// For lists that grow at their ends.
    pub(super) fn new(count: usize) -> Result<Self, MemoryError> {
        let bytes = HugeArray::zeroed(count.saturating_mul(BLOCK))?;
        let pieces = filled(Piece::default(), count)?;
        Ok(Self { bytes, pieces, index: None, free: NONE, fresh: 0, used: 0, high_water: 0 })
    }

    /// For lists that grow anywhere: [`last`](Self::last) finds the place.
    pub(super) fn indexed(count: usize) -> Result<Self, MemoryError> {
        Ok(Self { index: Some(Index::new(count)?), ..Self::new(count)? })
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }
    pub(super) fn available(&self) -> usize {
        self.pieces.len() - self.used as usize
    }

    #[inline]
    pub(super) fn piece(&self, block: u32) -> &Piece {
        &self.pieces[block as usize]
    }
    /// As [`piece`](Self::piece), if there is a block.
    #[inline]
    pub(super) fn get(&self, block: u32) -> Option<&Piece> {
        self.pieces.get(block as usize)
    }
    /// The bytes that a block holds.
    #[inline]
    pub(super) fn bytes(&self, block: u32) -> &[u8] {
        let piece = self.piece(block);
        let first = block as usize * BLOCK + usize::from(piece.skip);
        &self.bytes[first..first + usize::from(piece.len)]
    }

    fn take(&mut self) -> Option<u32> {
        let block = if self.free != NONE {
            let block = self.free;
            self.free = self.pieces[block as usize].next;
            block
        } else if (self.fresh as usize) < self.pieces.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.used += 1;
        self.high_water = self.high_water.max(self.used);
        Some(block)
    }

    fn give_back(&mut self, block: u32) {
        self.pieces[block as usize] = Piece { next: self.free, ..Piece::default() };
        self.free = block;
        self.used -= 1;
    }

    /// Inserts bytes at `start` into a list, behind block `after`, or in front where that is [`NONE`].
    ///
    /// Where block `after` ends at `start` and belongs to the same run, the bytes begin in it. Answers the
    /// last block with some of the bytes, and how many bytes found no block.
    pub(super) fn insert(
        &mut self,
        list: &mut List,
        mut after: u32,
        from: u64,
        mut start: u64,
        mut bytes: &[u8],
    ) -> (u32, usize) {
        if let Some(piece) = self.pieces.get_mut(after as usize)
            && piece.end() == start
            && piece.from == from
        {
            let used = usize::from(piece.skip + piece.len);
            let more = bytes.len().min(BLOCK - used);
            piece.len += more as u16;
            list.bytes += more as u64;
            let first = after as usize * BLOCK + used;
            self.bytes[first..first + more].copy_from_slice(&bytes[..more]);
            start += more as u64;
            bytes = &bytes[more..];
        }
        while !bytes.is_empty() {
            let Some(block) = self.take() else { break };
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK));
            let first = block as usize * BLOCK;
            self.bytes[first..first + part.len()].copy_from_slice(part);
            let next = if after == NONE {
                std::mem::replace(&mut list.head, block)
            } else {
                std::mem::replace(&mut self.pieces[after as usize].next, block)
            };
            if next == NONE {
                list.tail = block;
            }
            self.pieces[block as usize] = Piece { from, start, skip: 0, len: part.len() as u16, next };
            if let Some(index) = &mut self.index {
                list.root = index.add(&self.pieces, list.root, block);
            }
            list.blocks += 1;
            list.bytes += part.len() as u64;
            start += part.len() as u64;
            (after, bytes) = (block, rest);
        }
        (after, bytes.len())
    }

    /// Takes the block behind `after` out of a list, or the first block where `after` is [`NONE`].
    pub(super) fn remove_after(&mut self, list: &mut List, after: u32) {
        let block = self.after(list, after);
        if block == NONE {
            return;
        }
        let Piece { next, len, .. } = self.pieces[block as usize];
        if let Some(index) = &mut self.index {
            list.root = index.remove(&self.pieces, list.root, block);
        }
        if after == NONE {
            list.head = next;
        } else {
            self.pieces[after as usize].next = next;
        }
        if list.tail == block {
            list.tail = after;
        }
        list.blocks -= 1;
        list.bytes -= u64::from(len);
        self.give_back(block);
    }

    /// The block behind `after`, or the first block where `after` is [`NONE`].
    #[inline]
    pub(super) fn after(&self, list: &List, after: u32) -> u32 {
        if after == NONE { list.head } else { self.pieces[after as usize].next }
    }

    /// The last block of a list for which `is` holds; it must hold for all blocks before that one.
    ///
    /// In [indexed](Self::indexed) lists this takes at most a logarithm of their length in steps, and none
    /// where it is the list's last block.
    pub(super) fn last(&self, list: &List, mut is: impl FnMut(&Piece) -> bool) -> u32 {
        match &self.index {
            Some(index) if self.get(list.tail).is_some_and(|piece| !is(piece)) => {
                index.last(list.root, |block| is(self.piece(block)))
            }
            _ => list.tail,
        }
    }

    /// Takes `count` bytes off the front of a block, which must have more.
    pub(super) fn trim(&mut self, list: &mut List, block: u32, count: u64) {
        let piece = &mut self.pieces[block as usize];
        debug_assert!(count < u64::from(piece.len));
        piece.start += count;
        piece.skip += count as u16;
        piece.len -= count as u16;
        list.bytes -= count;
    }

    /// Begins the first run of a list at position `at`, where its first byte is.
    ///
    /// Bytes before that position are no part of the run.
    pub(super) fn begin_run(&mut self, list: &List, at: u64) {
        let mut block = list.head;
        while let Some(piece) = self.pieces.get_mut(block as usize).filter(|piece| piece.from < at) {
            piece.from = at;
            block = piece.next;
        }
    }

    /// Cuts a block of a list at position `end`, which lies in it.
    pub(super) fn cut(&mut self, list: &mut List, block: u32, end: u64) {
        let piece = &mut self.pieces[block as usize];
        debug_assert!(piece.start < end && end <= piece.end());
        list.bytes -= piece.end() - end;
        piece.len = (end - piece.start) as u16;
    }

    /// Writes over bytes of a block from position `at` on. Answers how many bytes it wrote.
    pub(super) fn overwrite(&mut self, block: u32, at: u64, bytes: &[u8]) -> usize {
        let piece = &self.pieces[block as usize];
        let skip = (at - piece.start) as usize;
        let count = bytes.len().min(usize::from(piece.len) - skip);
        let first = block as usize * BLOCK + usize::from(piece.skip) + skip;
        self.bytes[first..first + count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Gives back a whole list.
    pub(super) fn clear(&mut self, list: &mut List) {
        let mut block = list.head;
        while let Some(piece) = self.get(block) {
            let next = piece.next;
            self.give_back(block);
            block = next;
        }
        *list = List::EMPTY;
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks({} of {} used)", self.used, self.pieces.len())
    }
}
