//! Buckets: the entries with one value in one table. Few are a list by order, many a tree.

use super::matches::Receive;
use super::records::{NONE, RecordNumber, Records};
use super::slots::BucketNumber;
use super::table::Table;
use super::trees::Trees;

/// Entries of a list at most.
const LIST: usize = 8;
/// Entries of a tree that becomes a list again.
const FEW: usize = 4;
/// Set in the numbers of buckets that are trees. Others are the first record of a list, plus one.
const TREE: BucketNumber = 1 << 31;

/// All records, and the buckets that they are in.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    pub(super) records: Records,
    trees: Trees,
}

impl Buckets {
    pub(super) fn with_capacity(records: usize) -> Self {
        Self { records: Records::with_capacity(records), trees: Trees::default() }
    }

    /// The records of a bucket, in order if they are few.
    pub(super) fn all(&self, bucket: BucketNumber) -> Vec<RecordNumber> {
        if bucket & TREE != 0 {
            return self.trees.records(bucket & !TREE);
        }
        self.list(bucket).collect()
    }

    fn list(&self, bucket: BucketNumber) -> impl Iterator<Item = RecordNumber> {
        let listed = |record: RecordNumber| (record != NONE).then_some(record);
        let first = bucket.checked_sub(1).and_then(listed);
        std::iter::successors(first, move |record| listed(self.records.next(*record)))
    }

    /// The number of entries in a bucket.
    pub(super) fn len(&self, bucket: BucketNumber) -> usize {
        if bucket & TREE != 0 { self.trees.len(bucket & !TREE) } else { self.list(bucket).count() }
    }

    /// Puts a record into a table, under its hash there.
    pub(super) fn insert(&mut self, table: &mut Table, hash: u32, record: RecordNumber) {
        let bucket = table.slots.get(hash);
        if bucket & TREE != 0 {
            self.trees.insert(bucket & !TREE, record, &mut self.records);
            return;
        }
        let mut all: Vec<RecordNumber> = self.list(bucket).collect();
        let order = self.records.order(record);
        let place = all.partition_point(|other| self.records.order(*other) <= order);
        all.insert(place, record);
        self.file(table, hash, &all);
    }

    /// Takes a record out of a table.
    pub(super) fn remove(&mut self, table: &mut Table, hash: u32, record: RecordNumber) {
        let bucket = table.slots.get(hash);
        if bucket & TREE != 0 {
            let tree = bucket & !TREE;
            self.trees.remove(tree, record, &self.records);
            if self.trees.len(tree) <= FEW {
                let mut all = self.trees.fell(tree);
                all.sort_by_key(|record| self.records.order(*record));
                self.file(table, hash, &all);
            }
            return;
        }
        let all: Vec<RecordNumber> = self.list(bucket).filter(|other| *other != record).collect();
        self.file(table, hash, &all);
    }

    /// Makes a bucket of records in order.
    fn file(&mut self, table: &mut Table, hash: u32, all: &[RecordNumber]) {
        if all.len() > LIST {
            let tree = self.trees.plant(all, &mut self.records);
            table.slots.set(hash, tree | TREE);
            return;
        }
        let Some(first) = all.first() else {
            table.slots.remove(hash);
            return;
        };
        let following = all.iter().skip(1).copied().chain(std::iter::once(NONE));
        all.iter().zip(following).for_each(|(record, next)| self.records.set_next(*record, next));
        table.slots.set(hash, first + 1);
    }

    /// Tells of all entries in a bucket that match.
    #[inline(always)]
    pub(super) fn search<R: Receive>(&self, bucket: BucketNumber, key: &[u32], to: &mut R) {
        if bucket & TREE != 0 {
            self.search_tree(bucket & !TREE, key, to);
            return;
        }
        let mut record = bucket - 1;
        while record != NONE {
            let order = self.records.order(record);
            if order > to.bound() {
                return;
            }
            if self.records.holds(record, key) {
                to.take(order, self.records.rule(record), self.records.last(record));
            }
            record = self.records.next(record);
        }
    }

    #[inline(never)]
    fn search_tree<R: Receive>(&self, tree: u32, key: &[u32], to: &mut R) {
        self.trees.search(tree, key, to.bound(), &mut |record| {
            if self.records.holds(record, key) {
                to.take(self.records.order(record), self.records.rule(record), self.records.last(record));
            }
            to.bound()
        });
    }

    /// The memory that is read first for a bucket, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, bucket: BucketNumber) -> *const u8 {
        if bucket & TREE != 0 {
            self.trees.address(bucket & !TREE)
        } else {
            self.records.address(bucket.wrapping_sub(1)).cast()
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.bytes() + self.trees.bytes()
    }
}
