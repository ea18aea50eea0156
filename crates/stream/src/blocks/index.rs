//! Finds a position in a list of blocks with a balanced tree (AVL), without a walk through the list.
//!
//! So the cost of a segment grows with the logarithm of the number of blocks that wait, and not with the
//! number itself.

use netbricks_core::tables::MemoryError;

use super::{NONE, Piece};
use crate::memory::filled;

/// A block's place in the tree of its list.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The roots of the blocks before it and of the blocks behind it.
    sides: [u32; 2],
    /// The number of levels of its tree, its own included.
    height: u32,
}

const LEAF: Node = Node { sides: [NONE; 2], height: 1 };

/// The trees' nodes, one for each block.
///
/// A tree of as many blocks as can be numbered has a height of at most 46. The recursion in these functions
/// is no deeper.
pub(super) struct Index(Vec<Node>);

impl Index {
    pub(super) fn new(blocks: usize) -> Result<Self, MemoryError> {
        filled(LEAF, blocks).map(Self)
    }

    /// The last block of a tree, in order, for which `is` holds; it must hold for all before that.
    pub(super) fn last(&self, mut root: u32, mut is: impl FnMut(u32) -> bool) -> u32 {
        let mut last = NONE;
        while let Some(node) = self.0.get(root as usize) {
            let is = is(root);
            if is {
                last = root;
            }
            root = node.sides[usize::from(is)];
        }
        last
    }

    /// Inserts a block into a tree by its position. Answers the root.
    pub(super) fn add(&mut self, pieces: &[Piece], root: u32, block: u32) -> u32 {
        if root == NONE {
            self.0[block as usize] = LEAF;
            return block;
        }
        let way = usize::from(pieces[root as usize].start < pieces[block as usize].start);
        self.0[root as usize].sides[way] = self.add(pieces, self.side(root, way), block);
        self.balance(root)
    }

    /// Takes a block out of its tree. Answers the root.
    pub(super) fn remove(&mut self, pieces: &[Piece], root: u32, block: u32) -> u32 {
        if root == block {
            return match self.0[block as usize].sides {
                [one, NONE] | [NONE, one] => one,
                [before, behind] => {
                    let (rest, first) = self.remove_first(behind);
                    self.0[first as usize].sides = [before, rest];
                    self.balance(first)
                }
            };
        }
        let way = usize::from(pieces[root as usize].start < pieces[block as usize].start);
        self.0[root as usize].sides[way] = self.remove(pieces, self.side(root, way), block);
        self.balance(root)
    }

    /// Takes the first block out of a tree. Answers the root and the block.
    fn remove_first(&mut self, root: u32) -> (u32, u32) {
        let [before, behind] = self.0[root as usize].sides;
        if before == NONE {
            return (behind, root);
        }
        let (rest, first) = self.remove_first(before);
        self.0[root as usize].sides[0] = rest;
        (self.balance(root), first)
    }

    fn side(&self, block: u32, way: usize) -> u32 {
        self.0[block as usize].sides[way]
    }
    fn height(&self, root: u32) -> u32 {
        self.0.get(root as usize).map_or(0, |node| node.height)
    }
    fn measure(&mut self, block: u32) {
        let [before, behind] = self.0[block as usize].sides.map(|side| self.height(side));
        self.0[block as usize].height = before.max(behind) + 1;
    }

    /// Balances a tree after one side of `root` has gained or lost a block.
    ///
    /// Answers the root of the tree, whose sides' heights then differ by at most one.
    fn balance(&mut self, root: u32) -> u32 {
        for way in [0, 1] {
            let higher = self.side(root, way);
            if self.height(higher) > self.height(self.side(root, 1 - way)) + 1 {
                let [outer, inner] = [way, 1 - way].map(|way| self.height(self.side(higher, way)));
                if inner > outer {
                    self.0[root as usize].sides[way] = self.raise(higher, 1 - way);
                }
                return self.raise(root, way);
            }
        }
        self.measure(root);
        root
    }

    /// Makes one side of `root` the root of the tree.
    fn raise(&mut self, root: u32, way: usize) -> u32 {
        let raised = self.side(root, way);
        self.0[root as usize].sides[way] = self.side(raised, 1 - way);
        self.0[raised as usize].sides[1 - way] = root;
        self.measure(root);
        self.measure(raised);
        raised
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCK, Blocks, List};
    use super::*;

    /// Inserts `count` blocks in this order of their places. Each holds a byte at every tenth position.
    fn list(order: impl Iterator<Item = u64>, count: usize) -> (Blocks, List) {
        let mut blocks = Blocks::indexed(count).expect("so little memory is there");
        let mut list = List::EMPTY;
        for at in order.map(|place| 10 * place) {
            let before = blocks.last(&list, |piece| piece.start < at);
            let (_, missing) = blocks.insert(&mut list, before, at, at, &[at as u8]);
            assert_eq!(missing, 0);
        }
        (blocks, list)
    }

    fn walk(blocks: &Blocks, list: &List) -> Vec<u64> {
        let (mut block, mut starts) = (list.head, Vec::new());
        while let Some(piece) = blocks.get(block) {
            starts.push(piece.start);
            block = piece.next;
        }
        starts
    }

    /// Finds every place and every position behind one. Answers the most steps of a search.
    fn search(blocks: &Blocks, list: &List) -> u32 {
        let starts = walk(blocks, list);
        assert!(starts.is_sorted() && starts.len() == list.blocks as usize);
        let mut most = 0;
        for start in &starts {
            for at in [*start, start + 1] {
                let mut steps = 0;
                let found = blocks.last(list, |piece| {
                    steps += 1;
                    piece.start < at
                });
                let expected = starts[..starts.partition_point(|start| *start < at)].last();
                assert_eq!(blocks.get(found).map(|piece| piece.start), expected.copied());
                most = most.max(steps);
            }
        }
        most
    }

    /// All numbers below `count`, which is a power of two, in mixed order.
    fn shuffled(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |place| place.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (count - 1))
    }

    #[test]
    fn a_place_is_found_in_few_steps_however_many_blocks_there_are() {
        const COUNT: u64 = 1 << 12;
        let ends_first = (0..COUNT / 2).flat_map(|place| [place, COUNT - 1 - place]);
        let orders: [Box<dyn Iterator<Item = u64>>; 4] =
            [Box::new(0..COUNT), Box::new((0..COUNT).rev()), Box::new(ends_first), Box::new(shuffled(COUNT))];
        for order in orders {
            let (mut blocks, mut list) = list(order, COUNT as usize);
            // The search looks at one more block first: the last of the list.
            assert!(search(&blocks, &list) <= 1 + 17, "1.44 times the logarithm");
            assert_eq!(list.bytes, COUNT);
            // Then only an eighth of the blocks are left, spread over the list.
            for place in shuffled(COUNT).take(COUNT as usize * 7 / 8) {
                let before = blocks.last(&list, |piece| piece.start < 10 * place);
                blocks.remove_after(&mut list, before);
            }
            assert_eq!((list.blocks, list.bytes), (COUNT as u32 / 8, COUNT / 8));
            assert!(search(&blocks, &list) <= 1 + 13);
            while !list.is_empty() {
                blocks.remove_after(&mut list, NONE);
            }
            assert_eq!((list.root, list.tail, list.bytes, blocks.used()), (NONE, NONE, 0, 0));
        }
    }

    #[test]
    fn bytes_are_counted_however_they_come_and_go() {
        let mut blocks = Blocks::indexed(8).expect("so little memory is there");
        let mut list = List::EMPTY;
        let (last, _) = blocks.insert(&mut list, NONE, 5, 5, &[1; BLOCK + 100]);
        let (last, _) = blocks.insert(&mut list, last, 5, 5 + BLOCK as u64 + 100, &[2; 50]);
        assert_eq!((list.blocks, list.bytes), (2, BLOCK as u64 + 150));
        let head = list.head;
        blocks.trim(&mut list, head, 12);
        blocks.cut(&mut list, last, 5 + BLOCK as u64 + 120);
        assert_eq!(list.bytes, BLOCK as u64 - 12 + 120);
        blocks.remove_after(&mut list, NONE);
        assert_eq!(list.bytes, 120);
        blocks.clear(&mut list);
        assert_eq!((list.bytes, list.root, blocks.used()), (0, NONE, 0));
    }
}
