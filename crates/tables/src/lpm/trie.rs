//! A trie of large strides in one array.
//!
//! The cells of the first stride come first, then groups of cells for the bits of each further stride. Every cell knows
//! the length of the prefix that wrote it, so that a change touches only the cells for which its prefix decides.

use std::marker::PhantomData;
use std::ops::Range;

use super::address::Address;
use super::compressed_leaf::{CompressedLeaf, REST, Runs};
use crate::memory::{HugeArray, MemoryError, Zeroable};
use crate::prefetch::prefetch;

/// A cell: nothing (0), the number of a value, or the number of the group that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Cell(u32);
// SAFETY: an integer, without drop.
unsafe impl Zeroable for Cell {}

impl Cell {
    /// The largest number of a value, and how many groups there can be.
    pub(super) const MAXIMUM: usize = (u32::MAX >> 1) as usize;
    const GROUP: u32 = 1 << 31;

    fn of_value(value: u32) -> Self {
        Self(value)
    }
    fn of_group(group: usize) -> Self {
        Self(group as u32 | Self::GROUP)
    }
    /// The group that decides.
    #[inline(always)]
    fn group(self) -> Option<usize> {
        (self.0 >= Self::GROUP).then_some((self.0 & !Self::GROUP) as usize)
    }
    /// The value, if no group decides.
    #[inline(always)]
    fn value(self) -> usize {
        self.0 as usize
    }
    /// The value in a byte, or [`BEYOND`].
    fn byte(self) -> u8 {
        u8::try_from(self.0).unwrap_or(BEYOND)
    }
}

/// In the place of a cell that a byte cannot hold.
const BEYOND: u8 = u8::MAX;

/// The prefix that wrote a cell: its value's number, and its length plus 1; both 0 where none did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) value: u32,
    pub(super) depth: u8,
}

impl Route {
    pub(super) const NONE: Self = Self { value: 0, depth: 0 };

    pub(super) fn new(value: u32, len: u8) -> Self {
        Self { value, depth: len + 1 }
    }
}

pub(super) struct Trie<A> {
    cells: HugeArray<Cell>,
    /// The cells of the first stride in a byte each.
    ///
    /// This is a quarter of the memory, which stays in the caches where the cells do not. Empty while it is of no use,
    /// since too many are [`BEYOND`].
    bytes: HugeArray<u8>,
    /// Its place meanwhile.
    unused: HugeArray<u8>,
    /// How many are [`BEYOND`].
    beyond: usize,
    /// By cell of the first stride, a compressed leaf that holds all of the cell's group, if one can.
    ///
    /// There are as many as bytes.
    leaves: HugeArray<CompressedLeaf>,
    /// By cell, [`Route::depth`]; nothing of it where a group decides. Lookups never look here.
    depths: HugeArray<u8>,
    free: Vec<u32>,
    groups: usize,
    /// Cells of the first stride where a group decides.
    forks: usize,
    /// Cells that changes have looked at since the trie was made.
    expanded_cells: u64,
    of: PhantomData<A>,
}

impl<A: Address> Trie<A> {
    /// Cells in a group.
    const GROUP: usize = 1 << A::STRIDE;

    /// An empty trie of at most `groups` groups.
    pub(super) fn new(groups: usize) -> Result<Self, MemoryError> {
        const { assert!(!A::ENDS || A::ROOT + REST == A::BITS) }
        let cells = (1 << A::ROOT) + groups * Self::GROUP;
        Ok(Self {
            cells: HugeArray::zeroed(cells)?,
            bytes: if A::ENDS { HugeArray::zeroed(1 << A::ROOT)? } else { HugeArray::empty() },
            unused: HugeArray::empty(),
            beyond: 0,
            leaves: if A::ENDS { HugeArray::zeroed(1 << A::ROOT)? } else { HugeArray::empty() },
            depths: HugeArray::zeroed(cells)?,
            free: (0..groups as u32).rev().collect(),
            groups,
            forks: 0,
            expanded_cells: 0,
            of: PhantomData,
        })
    }

    /// One without cells, where every address finds nothing. There is nothing to write to either.
    pub(super) fn none() -> Self {
        Self {
            cells: HugeArray::empty(),
            bytes: HugeArray::empty(),
            unused: HugeArray::empty(),
            beyond: 0,
            leaves: HugeArray::empty(),
            depths: HugeArray::empty(),
            free: Vec::new(),
            groups: 0,
            forks: 0,
            expanded_cells: 0,
            of: PhantomData,
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    pub(super) fn groups_in_use(&self) -> usize {
        self.groups - self.free.len()
    }

    /// The address that any lookup reads first, and the logarithm of the bytes of each entry there.
    #[inline(always)]
    pub(super) fn start(&self) -> (*const u8, u8) {
        const CELL: u8 = size_of::<Cell>().ilog2() as u8;
        match self.bytes.is_empty() {
            true => (self.cells.start().as_ptr().cast_const().cast(), CELL),
            false => (self.bytes.start().as_ptr().cast_const(), 0),
        }
    }

    /// Whether lookups begin with a byte.
    #[cfg(test)]
    pub(super) fn is_in_bytes(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The number of the value that decides for `address`, if its byte or its compressed leaf says it.
    ///
    /// It takes one read for nearly all addresses, and two for the others, for which it may be in vain.
    #[inline(always)]
    fn early(&self, address: A) -> Option<usize> {
        let root = address.root();
        let byte = if A::ENDS { *self.bytes.get(root)? } else { return None };
        if byte != BEYOND {
            return Some(byte.into());
        }
        self.leaves.get(root)?.number(address.rest())
    }

    /// The byte of cell `index`, if it is of the first stride and a byte holds it.
    #[inline(always)]
    fn byte(&self, index: usize) -> Option<u8> {
        if A::ENDS { self.bytes.get(index).copied().filter(|byte| *byte != BEYOND) } else { None }
    }

    /// Writes cell `index`, and its byte if it is of the first stride.
    fn write(&mut self, index: usize, cell: Cell) {
        self.cells[index] = cell;
        let bytes = if self.bytes.is_empty() { &mut self.unused } else { &mut self.bytes };
        let Some(byte) = bytes.get_mut(index) else { return };
        let before = std::mem::replace(byte, cell.byte());
        self.beyond += usize::from(*byte == BEYOND);
        self.beyond -= usize::from(before == BEYOND);
        if Self::are_many(self.beyond) != self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, &mut self.unused);
        }
    }

    /// Whether that many of the first stride's cells are more than exceptions: a 32nd, or more.
    fn are_many(cells: usize) -> bool {
        cells >= 1 << (A::ROOT - 5)
    }

    /// Cell `index`, or an empty one where there are no cells at all.
    ///
    /// The bounds check covers both cases at once.
    #[inline(always)]
    fn cell(&self, index: usize) -> Cell {
        self.cells.get(index).copied().unwrap_or(Cell::of_value(0))
    }

    /// The number of the value that decides for `address`; 0 for none.
    #[inline(always)]
    pub(super) fn find(&self, address: A) -> usize {
        if let Some(number) = self.early(address) {
            return number;
        }
        let mut cell = self.cell(address.root());
        let mut level = 0;
        while let Some(group) = cell.group() {
            cell = self.cells[Self::first_of(group) + address.part(level)];
            level += 1;
        }
        cell.value()
    }

    /// As [`find`](Self::find), where no more than three strides decide, which is all that IPv4 has: three looks and no loop.
    #[inline(always)]
    pub(super) fn find_near(&self, address: A) -> Option<usize> {
        if let Some(number) = self.early(address) {
            return Some(number);
        }
        let mut cell = self.cell(address.root());
        if let Some(group) = cell.group() {
            cell = self.cell(Self::first_of(group) + address.part(0));
            if let Some(group) = cell.group() {
                cell = self.cell(Self::first_of(group) + address.part(1));
            }
        }
        cell.group().is_none().then_some(cell.value())
    }

    /// The number in cell `index`, or the next cell for `address`, which is prefetched.
    ///
    /// `level` is the number of the next cell's stride, from 0 for the one behind the first.
    #[inline(always)]
    pub(super) fn step(&self, index: usize, address: A, level: u8) -> Result<u32, usize> {
        if let Some(byte) = self.byte(index) {
            return Ok(byte.into());
        }
        let cell = self.cell(index);
        let Some(group) = cell.group() else { return Ok(cell.0) };
        let next = Self::first_of(group) + address.part(level);
        prefetch(self.cells.start().as_ptr().wrapping_add(next));
        Err(next)
    }

    #[inline(always)]
    fn first_of(group: usize) -> usize {
        (1 << A::ROOT) + group * Self::GROUP
    }

    /// How many groups are missing on the way to a prefix.
    pub(super) fn missing(&self, prefix: A, len: u8) -> usize {
        let (mut index, mut end, mut level) = (prefix.root(), A::ROOT, 0);
        while len > end {
            let Some(group) = self.cells[index].group() else {
                return usize::from((len - end).div_ceil(A::STRIDE));
            };
            index = Self::first_of(group) + prefix.part(level);
            end += A::STRIDE;
            level += 1;
        }
        0
    }

    /// Whether that many groups are free.
    pub(super) fn has_free(&self, groups: usize) -> bool {
        self.free.len() >= groups
    }

    /// Writes `route` of `prefix` wherever no longer prefix decides. All groups on the way must be there or free.
    pub(super) fn insert(&mut self, prefix: A, len: u8, route: Route) {
        let (mut index, mut end, mut level) = (prefix.root(), A::ROOT, 0);
        while len > end {
            let Some(group) = self.group_at(index) else { return };
            index = Self::first_of(group) + prefix.part(level);
            end += A::STRIDE;
            level += 1;
        }
        self.expand_prefix(index..index + (1 << (end - len)), route, &|depth| depth <= route.depth);
        if len > A::ROOT {
            self.look_for_compressed_leaf(prefix.root());
        }
    }

    /// Gives the cells of `prefix` of length `len` to `parent`, the route of the longest prefix around it.
    ///
    /// It frees groups that decide nothing any more.
    pub(super) fn remove(&mut self, prefix: A, len: u8, parent: Route) {
        let (mut index, mut end, mut level) = (prefix.root(), A::ROOT, 0);
        let mut way = Vec::new();
        while len > end {
            let Some(group) = self.cells[index].group() else { return };
            way.push((index, group, end));
            index = Self::first_of(group) + prefix.part(level);
            end += A::STRIDE;
            level += 1;
        }
        self.expand_prefix(index..index + (1 << (end - len)), parent, &|depth| depth == len + 1);
        while let Some((cell, group, before)) = way.pop() {
            let first = Self::first_of(group);
            // Prefixes no longer than what leads here cover the whole group, so that all its cells are equal.
            let idle = (first..first + Self::GROUP)
                .all(|index| self.cells[index].group().is_none() && self.depths[index] <= before + 1);
            if !idle {
                break;
            }
            self.write(cell, self.cells[first]);
            self.depths[cell] = self.depths[first];
            self.free.push(group as u32);
            self.forks -= usize::from(cell < 1 << A::ROOT);
        }
        if len > A::ROOT {
            self.look_for_compressed_leaf(prefix.root());
        }
    }

    /// The group behind a cell, made from the cell if there was none. `None` when no group is free.
    fn group_at(&mut self, index: usize) -> Option<usize> {
        if let Some(group) = self.cells[index].group() {
            return Some(group);
        }
        let group = self.free.pop()? as usize;
        let first = Self::first_of(group);
        let (cell, depth) = (self.cells[index], self.depths[index]);
        self.cells[first..first + Self::GROUP].fill(cell);
        self.depths[first..first + Self::GROUP].fill(depth);
        self.write(index, Cell::of_group(group));
        self.forks += usize::from(index < 1 << A::ROOT);
        Some(group)
    }

    /// Whether lookups often go on behind the first stride. Where few do there is also less memory to wait for.
    #[inline(always)]
    pub(super) fn is_deep(&self) -> bool {
        Self::are_many(self.forks)
    }

    #[cfg(test)]
    pub(super) fn forks_as_counted(&self) -> (usize, usize) {
        (self.forks, (0..1 << A::ROOT).filter(|index| self.cells[*index].group().is_some()).count())
    }

    /// Whether bytes equal the cells and compressed leaves the groups, and bytes are in use exactly when they should be.
    #[cfg(test)]
    pub(super) fn bytes_are_right(&self) -> bool {
        let bytes = if self.bytes.is_empty() { &self.unused } else { &self.bytes };
        let cells = self.cells.iter().take(bytes.len());
        let beyond = bytes.iter().filter(|byte| **byte == BEYOND).count();
        bytes.iter().copied().eq(cells.map(|cell| cell.byte()))
            && beyond == self.beyond
            && self.bytes.is_empty() == (!A::ENDS || Self::are_many(beyond))
            && (0..self.leaves.len()).all(|root| self.leaf_is_right(root))
    }

    #[cfg(test)]
    fn leaf_is_right(&self, root: usize) -> bool {
        let (leaf, cell) = (self.leaves[root], self.cells[root]);
        let says = |rest: u32| {
            let mut cell = cell;
            let mut left = REST;
            while let Some(group) = cell.group() {
                left -= A::STRIDE;
                cell = self.cells[Self::first_of(group) + (rest >> left) as usize % Self::GROUP];
            }
            cell.value()
        };
        let is_right = |rest| leaf.number(rest) == Some(says(rest));
        leaf == CompressedLeaf::NONE || cell.group().is_some() && (0..1 << REST).all(is_right)
    }

    /// How many compressed leaves there are.
    #[cfg(test)]
    pub(super) fn leaves(&self) -> usize {
        self.leaves.iter().filter(|leaf| **leaf != CompressedLeaf::NONE).count()
    }

    #[cfg(test)]
    pub(super) fn first_stride_is_empty(&self) -> bool {
        (0..1 << A::ROOT).all(|index| self.cells[index] == Cell::of_value(0) && self.depths[index] == 0)
    }

    /// Cells that changes have looked at since the trie was made.
    pub(super) fn expanded_cells(&self) -> u64 {
        self.expanded_cells
    }

    fn expand_prefix(&mut self, range: Range<usize>, route: Route, over: &impl Fn(u8) -> bool) {
        self.expanded_cells += range.len() as u64;
        for index in range {
            match self.cells[index].group() {
                Some(group) => {
                    let first = Self::first_of(group);
                    self.expand_prefix(first..first + Self::GROUP, route, over);
                    self.look_for_compressed_leaf(index);
                }
                None if over(self.depths[index]) => {
                    self.write(index, Cell::of_value(route.value));
                    self.depths[index] = route.depth;
                }
                None => {}
            }
        }
    }

    /// Updates the compressed leaf of cell `index` of the first stride after a change behind it.
    ///
    /// Where no group decides, or no longer, there is none, so that a value can be written without looking at it.
    fn look_for_compressed_leaf(&mut self, index: usize) {
        // None over IPv6, and none of a cell in a group.
        if index >= self.leaves.len() {
            return;
        }
        let cell = self.cells[index];
        let mut runs = Runs::default();
        let is_told = cell.group().is_some() && self.tell_runs(cell, 1 << REST, &mut runs);
        self.leaves[index] = is_told.then(|| runs.leaf()).flatten().unwrap_or(CompressedLeaf::NONE);
    }

    /// Passes the numbers behind a cell of `addresses` addresses to `runs`, in order.
    ///
    /// Returns `false` where more are of no use. It reads two groups, however many there are.
    fn tell_runs(&self, cell: Cell, addresses: u32, runs: &mut Runs) -> bool {
        let Some(group) = cell.group() else { return runs.add(cell.0, addresses) };
        let first = Self::first_of(group);
        runs.enter()
            && (first..first + Self::GROUP)
                .all(|index| self.tell_runs(self.cells[index], addresses >> A::STRIDE, runs))
    }
}
