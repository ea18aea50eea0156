//! Search trees over the intervals of crowded buckets.
//!
//! Entries whose masked words are alike differ in ranges, or in bits that their table's mask leaves out. Each is a box
//! over two words of the key vector, and a tree of boxes (Guttman, "R-trees", SIGMOD 1984) finds those around a key.
//! Inner nodes know the least order below them, so that a search leaves out what comes too late to count.

use super::records::{RecordNumber, Records};

/// Entries or nodes in a node.
const FAN: usize = 16;
/// Words by which a tree searches.
pub(super) const AXES: usize = 2;
/// No node.
const NONE: u32 = u32::MAX;
/// Numbers of entries at which a tree chooses its words again.
const RECHOOSE: [u32; 2] = [32, 128];
/// Entries by which words are chosen.
const SAMPLE: usize = 16;

/// The number of a tree.
pub(super) type TreeNumber = u32;

#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    len: u8,
    leaf: bool,
    low: [[u32; FAN]; AXES],
    high: [[u32; FAN]; AXES],
    order: [u64; FAN],
    /// Records in a leaf, else nodes.
    child: [u32; FAN],
}

/// One of a node's children: its box, the least order in it, and the number of the record or node.
#[derive(Clone, Copy, Debug)]
struct Item {
    low: [u32; AXES],
    high: [u32; AXES],
    order: u64,
    child: u32,
}

#[derive(Clone, Debug)]
struct Tree {
    root: u32,
    len: u32,
    words: [u32; AXES],
}

/// All trees.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees {
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    trees: Vec<Tree>,
    free_trees: Vec<TreeNumber>,
}

impl Node {
    const EMPTY: Self = Self {
        parent: NONE,
        len: 0,
        leaf: true,
        low: [[0; FAN]; AXES],
        high: [[0; FAN]; AXES],
        order: [0; FAN],
        child: [0; FAN],
    };

    fn item(&self, at: usize) -> Item {
        let (low, high) = (self.low.map(|low| low[at]), self.high.map(|high| high[at]));
        Item { low, high, order: self.order[at], child: self.child[at] }
    }

    fn set(&mut self, at: usize, item: Item) {
        for axis in 0..AXES {
            self.low[axis][at] = item.low[axis];
            self.high[axis][at] = item.high[axis];
        }
        self.order[at] = item.order;
        self.child[at] = item.child;
    }

    fn items(&self) -> impl Iterator<Item = Item> {
        (0..usize::from(self.len)).map(|at| self.item(at))
    }

    /// The place of a child.
    fn place(&self, child: u32) -> Option<usize> {
        self.child[..usize::from(self.len)].iter().position(|other| *other == child)
    }

    /// One bit for each child whose box has the point and whose order is at most `bound`.
    #[inline(always)]
    fn around(&self, point: [u32; AXES], bound: u64) -> u32 {
        let mut found = 0;
        for at in 0..FAN {
            let inside = (self.low[0][at] <= point[0])
                & (point[0] <= self.high[0][at])
                & (self.low[1][at] <= point[1])
                & (point[1] <= self.high[1][at])
                & (self.order[at] <= bound);
            found |= u32::from(inside) << at;
        }
        found & ((1 << self.len) - 1)
    }

    /// Of the children with a bit in `found` the one of least order.
    #[inline(always)]
    fn least(&self, found: u32) -> usize {
        let mut rest = found & (found - 1);
        let mut least = found.trailing_zeros() as usize;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if self.order[at] < self.order[least] {
                least = at;
            }
        }
        least
    }
}

impl Item {
    /// The smallest item around all of these, of a node `child`.
    fn around(items: impl Iterator<Item = Self>, child: u32) -> Self {
        let none = Self { low: [u32::MAX; AXES], high: [0; AXES], order: u64::MAX, child };
        items.fold(none, |all, item| all.with(&item))
    }

    fn with(self, other: &Self) -> Self {
        let mut both = self;
        for axis in 0..AXES {
            both.low[axis] = both.low[axis].min(other.low[axis]);
            both.high[axis] = both.high[axis].max(other.high[axis]);
        }
        both.order = both.order.min(other.order);
        both
    }

    /// The box's share of `whole` on each axis.
    fn shares(&self, whole: &Self) -> [f64; AXES] {
        let extent = |item: &Self, axis: usize| f64::from(item.high[axis] - item.low[axis]) + 1.0;
        std::array::from_fn(|axis| extent(self, axis) / extent(whole, axis))
    }
}

impl Trees {
    /// A tree of these records, at least one.
    pub(super) fn plant(&mut self, all: &[RecordNumber], records: &mut Records) -> TreeNumber {
        let root = self.new_node(Node::EMPTY);
        let tree = Tree { root, len: 0, words: choose_words(all, records) };
        let number = match self.free_trees.pop() {
            Some(number) => {
                self.trees[number as usize] = tree;
                number
            }
            None => {
                self.trees.push(tree);
                self.trees.len() as u32 - 1
            }
        };
        all.iter().for_each(|record| self.add(number, *record, records));
        number
    }

    /// Takes a tree away. Answers its records.
    pub(super) fn fell(&mut self, number: TreeNumber) -> Vec<RecordNumber> {
        let all = self.clear(number);
        self.free_trees.push(number);
        all
    }

    /// Takes all nodes of a tree away. Answers its records.
    fn clear(&mut self, number: TreeNumber) -> Vec<RecordNumber> {
        let all = self.records(number);
        let mut open = vec![self.trees[number as usize].root];
        while let Some(node) = open.pop() {
            let held = &self.nodes[node as usize];
            if !held.leaf {
                open.extend(held.items().map(|item| item.child));
            }
            self.free_nodes.push(node);
        }
        all
    }

    /// The records of a tree.
    pub(super) fn records(&self, number: TreeNumber) -> Vec<RecordNumber> {
        let mut all = Vec::new();
        let mut open = vec![self.trees[number as usize].root];
        while let Some(node) = open.pop() {
            let held = &self.nodes[node as usize];
            let to = if held.leaf { &mut all } else { &mut open };
            to.extend(held.items().map(|item| item.child));
        }
        all
    }

    pub(super) fn len(&self, number: TreeNumber) -> usize {
        self.trees[number as usize].len as usize
    }

    /// Puts a record in.
    pub(super) fn insert(&mut self, number: TreeNumber, record: RecordNumber, records: &mut Records) {
        self.add(number, record, records);
        if RECHOOSE.contains(&self.trees[number as usize].len) {
            let all = self.records(number);
            let words = choose_words(&all, records);
            if words != self.trees[number as usize].words {
                let all = self.clear(number);
                let root = self.new_node(Node::EMPTY);
                self.trees[number as usize] = Tree { root, len: 0, words };
                all.iter().for_each(|record| self.add(number, *record, records));
            }
        }
    }

    fn add(&mut self, number: TreeNumber, record: RecordNumber, records: &mut Records) {
        let tree = &mut self.trees[number as usize];
        tree.len += 1;
        let mut item = Item { low: [0; AXES], high: [0; AXES], order: records.order(record), child: record };
        for (axis, word) in tree.words.iter().enumerate() {
            (item.low[axis], item.high[axis]) = records.interval(record, *word);
        }
        let root = tree.root;
        let whole = Item::around(self.nodes[root as usize].items(), root).with(&item);
        let mut node = root;
        while !self.nodes[node as usize].leaf {
            node = self.nearest(node, &item, &whole);
        }
        self.put(number, node, item, &whole, records);
    }

    /// The child of a node whose box grows least by an item; of equal ones the smallest.
    fn nearest(&self, node: u32, item: &Item, whole: &Item) -> u32 {
        let mut best = (f64::INFINITY, f64::INFINITY, NONE);
        for child in self.nodes[node as usize].items() {
            let sum = |item: &Item| item.shares(whole).iter().sum::<f64>();
            let size = sum(&child);
            let cost = (sum(&child.with(item)) - size, size, child.child);
            if (cost.0, cost.1) < (best.0, best.1) || best.2 == NONE {
                best = cost;
            }
        }
        best.2
    }

    /// Puts an item into a node, which splits where it is full, and so may those above.
    fn put(&mut self, tree: TreeNumber, mut node: u32, mut item: Item, whole: &Item, records: &mut Records) {
        loop {
            let held = &mut self.nodes[node as usize];
            if usize::from(held.len) < FAN {
                held.set(held.len.into(), item);
                held.len += 1;
                self.adopt(node, item.child, records);
                self.tell_parents(node);
                return;
            }
            let leaf = held.leaf;
            let mut items: Vec<Item> = held.items().collect();
            items.push(item);
            let right = split(&mut items, whole);
            let sibling = self.new_node(Node { leaf, ..Node::EMPTY });
            self.fill(node, &items, records);
            self.fill(sibling, &right, records);
            let parent = self.nodes[node as usize].parent;
            item = Item::around(right.iter().copied(), sibling);
            if parent != NONE {
                self.tell_parents(node);
                node = parent;
                continue;
            }
            let root = self.new_node(Node { leaf: false, ..Node::EMPTY });
            self.fill(root, &[Item::around(items.iter().copied(), node), item], records);
            self.trees[tree as usize].root = root;
            return;
        }
    }

    /// Gives a node just these items.
    fn fill(&mut self, node: u32, items: &[Item], records: &mut Records) {
        let held = &mut self.nodes[node as usize];
        held.len = items.len() as u8;
        items.iter().enumerate().for_each(|(at, item)| held.set(at, *item));
        items.iter().for_each(|item| self.adopt(node, item.child, records));
    }

    /// Notes at a child in which node it is.
    fn adopt(&mut self, node: u32, child: u32, records: &mut Records) {
        if self.nodes[node as usize].leaf {
            records.set_next(child, node);
        } else {
            self.nodes[child as usize].parent = node;
        }
    }

    /// Brings what is above a node up to date with it.
    fn tell_parents(&mut self, mut node: u32) {
        loop {
            let held = &self.nodes[node as usize];
            let (parent, item) = (held.parent, Item::around(held.items(), node));
            let Some(above) = self.nodes.get_mut(parent as usize) else { return };
            let Some(place) = above.place(node) else { return };
            above.set(place, item);
            node = parent;
        }
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, number: TreeNumber, record: RecordNumber, records: &Records) {
        let (mut node, mut child) = (records.next(record), record);
        self.trees[number as usize].len -= 1;
        loop {
            let held = &mut self.nodes[node as usize];
            if let Some(place) = held.place(child) {
                held.len -= 1;
                let end = held.item(held.len.into());
                held.set(place, end);
            }
            if held.len > 0 || held.parent == NONE {
                break;
            }
            (child, node) = (node, held.parent);
            self.free_nodes.push(child);
        }
        self.tell_parents(node);
        let tree = &mut self.trees[number as usize];
        loop {
            let root = &mut self.nodes[tree.root as usize];
            if root.leaf || root.len > 1 {
                return;
            }
            if root.len == 0 {
                root.leaf = true;
                return;
            }
            let below = root.child[0];
            self.free_nodes.push(tree.root);
            tree.root = below;
            self.nodes[below as usize].parent = NONE;
        }
    }

    /// Visits records of a tree whose box has `key` and whose order is at most `bound`.
    ///
    /// Near ones in order come first, by and large. `visit` answers the bound from then on.
    #[inline(always)]
    pub(super) fn search(
        &self,
        number: TreeNumber,
        key: &[u32],
        bound: u64,
        visit: &mut impl FnMut(RecordNumber) -> u64,
    ) {
        let tree = &self.trees[number as usize];
        self.search_node(tree.root, tree.words.map(|word| key[word as usize]), bound, visit);
    }

    fn search_node(
        &self,
        node: u32,
        point: [u32; AXES],
        mut bound: u64,
        visit: &mut impl FnMut(RecordNumber) -> u64,
    ) -> u64 {
        let node = &self.nodes[node as usize];
        let mut found = node.around(point, bound);
        while found != 0 {
            let at = node.least(found);
            if node.order[at] > bound {
                break;
            }
            found &= !(1 << at);
            let child = node.child[at];
            bound = if node.leaf { visit(child) } else { self.search_node(child, point, bound, visit) };
        }
        bound
    }

    /// The root of a tree, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, number: TreeNumber) -> *const u8 {
        let root = self.trees[number as usize].root;
        self.nodes.as_ptr().wrapping_add(root as usize).cast()
    }

    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.trees.capacity() * size_of::<Tree>()
            + (self.free_nodes.capacity() + self.free_trees.capacity()) * 4
    }

    fn new_node(&mut self, node: Node) -> u32 {
        if let Some(free) = self.free_nodes.pop() {
            self.nodes[free as usize] = node;
            return free;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

/// Takes half of the items out that overflow a node.
///
/// Of the ways to halve them it is the one where a key most seldom lies in both boxes.
fn split(items: &mut Vec<Item>, whole: &Item) -> Vec<Item> {
    let (mut best, mut least) = ((0, false), f64::INFINITY);
    for axis in 0..AXES {
        for by_high in [false, true] {
            sort(items, axis, by_high);
            let (left, right) = items.split_at(items.len() / 2);
            let size =
                |half: &[Item]| Item::around(half.iter().copied(), 0).shares(whole).iter().product::<f64>();
            let both = size(left) + size(right);
            if both < least {
                (best, least) = ((axis, by_high), both);
            }
        }
    }
    sort(items, best.0, best.1);
    items.split_off(items.len() / 2)
}

fn sort(items: &mut [Item], axis: usize, by_high: bool) {
    items.sort_by_key(|item| if by_high { item.high[axis] } else { item.low[axis] });
}

/// The words by which some of these records differ most.
///
/// By such a word a key in the middle of one record lies in the fewest others.
fn choose_words(all: &[RecordNumber], records: &Records) -> [u32; AXES] {
    let step = all.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<RecordNumber> = all.iter().copied().step_by(step).collect();
    let mut words: Vec<u32> = Vec::new();
    for record in &sample {
        words.extend(records.masked(*record).map(|part| part.word));
        words.extend(records.ranges(*record).map(|range| range.word));
    }
    words.sort_unstable();
    words.dedup();
    let overlaps = |word: u32| {
        let intervals: Vec<(u32, u32)> =
            sample.iter().map(|record| records.interval(*record, word)).collect();
        let middles = intervals.iter().map(|(low, high)| low + (high - low) / 2);
        middles
            .map(|at| intervals.iter().filter(|(low, high)| *low <= at && at <= *high).count())
            .sum::<usize>()
    };
    let mut by_overlap: Vec<(usize, u32)> = words.iter().map(|word| (overlaps(*word), *word)).collect();
    by_overlap.sort_unstable();
    let first = by_overlap.first().map_or(0, |(_, word)| *word);
    std::array::from_fn(|axis| by_overlap.get(axis).map_or(first, |(_, word)| *word))
}
