//! Upkeep in bounded steps: entries move to better tables, and the filter forgets what was removed.

use super::Classifier;
use super::filter::{Filter, each};
use super::records::{NONE, RecordNumber, Records};
use super::table::MaskPart;

/// Occupied tables from which on a filter is worth its memory.
const FILTERED: usize = 4;
/// Entries of a sweep in one change, while there should be another filter.
const STEP: usize = 8;
/// Entries of a table that is given up if others have room for them.
const SMALL: usize = 16;
/// Occupied tables from which on small ones are given up.
const MANY: usize = 16;
/// Entries of one value in a table that are too many if another table has fewer than half as many.
const LONG: usize = 8;

/// A pass over all entries that makes another filter, and counts the tables' least orders again.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    /// The entry that is next.
    at: usize,
    filter: Option<Filter>,
    least: Vec<u64>,
}

impl Sweep {
    pub(super) fn add_table(&mut self, table: usize, mask: &[MaskPart]) {
        if self.least.len() <= table {
            self.least.resize(table + 1, u64::MAX);
        }
        self.least[table] = u64::MAX;
        if let Some(filter) = &mut self.filter {
            filter.add_table(table, mask);
        }
    }

    pub(super) fn empty(&mut self, table: usize) {
        if let Some(filter) = &mut self.filter {
            filter.empty(table);
        }
    }

    pub(super) fn forget_table(&mut self, table: usize) {
        self.least[table] = u64::MAX;
        if let Some(filter) = &mut self.filter {
            filter.forget_table(table);
        }
    }

    pub(super) fn allow(&mut self, table: usize, mask: &[MaskPart], record: RecordNumber, records: &Records) {
        self.least[table] = self.least[table].min(records.order(record));
        if let Some(filter) = &mut self.filter {
            filter.allow(table, mask, record, records);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::bytes) + self.least.capacity() * 8
    }
}

impl Classifier {
    /// Improves tables and filter by work on at most so many entries; whether more is left to do.
    ///
    /// Call it now and then where entries are removed or their order changes. Without it answers are right, and lookups
    /// get slower. No answer changes, and the [version](Self::version) stays.
    pub fn maintain(&mut self, moves: usize) -> bool {
        if self.sweep.is_none() && self.stale {
            self.begin_sweep();
        }
        for _ in 0..moves {
            if self.sweep.is_none() {
                break;
            }
            self.step(true);
        }
        self.sweep.is_some() || self.stale
    }

    /// Goes on with a filter that is needed.
    pub(super) fn catch_up(&mut self) {
        // Halves are chosen by the tables that there are, so again when they are twice as many.
        let known = self.filter.as_ref().map_or(FILTERED / 2, |filter| filter.built_for);
        let wanted = self.occupied_tables() >= 2 * known;
        if wanted && self.sweep.is_none() {
            self.begin_sweep();
        }
        for _ in 0..STEP {
            if wanted && self.sweep.is_some() {
                self.step(false);
            }
        }
    }

    fn occupied_tables(&self) -> usize {
        self.occupied.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn begin_sweep(&mut self) {
        self.stale = false;
        let mut occupied: Vec<(u64, usize)> =
            each(self.occupied).map(|number| (self.tables[number].least, number)).collect();
        occupied.sort_unstable();
        let masks = occupied.iter().map(|(_, number)| (*number, &self.tables[*number].mask[..]));
        let filter = (occupied.len() >= FILTERED).then(|| Filter::new(masks));
        let mut sweep = Sweep { at: 0, filter, least: Vec::new() };
        for (number, table) in self.tables.iter().enumerate() {
            sweep.add_table(number, &table.mask);
        }
        self.sweep = Some(Box::new(sweep));
    }

    /// Does one entry of a sweep, or ends it.
    fn step(&mut self, relocate: bool) {
        let Some(sweep) = &mut self.sweep else { return };
        let at = sweep.at;
        sweep.at += 1;
        let Some(held) = self.held.get(at).copied() else {
            self.end_sweep();
            return;
        };
        if held.record == NONE {
            return;
        }
        if relocate && let Some(better) = self.better_table(held.record, held.table.into()) {
            self.leave(held.record);
            self.enter(better, held.record);
            return; // The sweep has it by that.
        }
        let table = &mut self.tables[usize::from(held.table)];
        table.slots.shift(1);
        if let Some(sweep) = &mut self.sweep {
            sweep.allow(held.table.into(), &table.mask, held.record, &self.buckets.records);
        }
    }

    fn end_sweep(&mut self) {
        let Some(sweep) = self.sweep.take() else { return };
        for (table, least) in self.tables.iter_mut().zip(&sweep.least) {
            table.least = *least;
        }
        self.filter = sweep.filter.map(Box::new);
    }

    /// A table where a record is found with less work.
    fn better_table(&self, record: RecordNumber, now: usize) -> Option<usize> {
        let records = &self.buckets.records;
        let size_in = |number: usize| {
            let table = &self.tables[number];
            let hash = self.hasher.hash_record(&table.mask, record, records);
            self.buckets.len(table.slots.get(hash))
        };
        let (size, entries) = (size_in(now), self.tables[now].entries);
        let small = entries < SMALL && self.occupied_tables() > MANY;
        if size <= LONG && !small {
            return None;
        }
        let tested = records.placed_by(record);
        let others = self.tables.iter().enumerate().skip(1).filter(|(number, table)| {
            *number != now && table.entries > entries.min(SMALL) && table.takes(&tested)
        });
        let sized = others.map(|(number, table)| (size_in(number), u32::MAX - table.bits, number));
        let (least, _, number) = sized.min()?;
        let shorter = size > LONG && least + 1 < size / 2;
        let merged = small && least < self.config.crowded.min(LONG);
        (shorter || merged).then_some(number)
    }
}
