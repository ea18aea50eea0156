//! Which table an entry goes to, and when there is to be another one.

use super::Classifier;
use super::filter::{put, take};
use super::records::RecordNumber;
use super::table::{MaskPart, Table, within};

/// Tables up to which each mask gets its own.
const OWN: usize = 16;
/// Buckets that were crowded before this many times over are not moved to a new table at once.
const MOVED: usize = 4;
/// Units of bits to which each word of a new table's mask is rounded down, from so many tables on.
const ROUNDING: [(usize, u32); 4] = [(192, 32), (128, 16), (64, 8), (OWN, 4)];

impl Classifier {
    /// Puts a record into the table that suits it, which may be a new one.
    pub(super) fn place(&mut self, record: RecordNumber) {
        let tested = self.buckets.records.placed_by(record);
        // The tables with room for it, and the others.
        let (mut roomy, mut crowded) = (None, Vec::new());
        for (number, table) in self.tables.iter().enumerate().filter(|(_, table)| table.takes(&tested)) {
            let hash = self.hasher.hash_record(&table.mask, record, &self.buckets.records);
            let bucket = table.slots.get(hash);
            let size = self.buckets.len(bucket);
            // Nothing else tells entries without a mask apart.
            if size >= self.config.crowded && number > 0 {
                crowded.push((size, number, bucket));
            } else if (number > 0 || tested.is_empty()) && roomy.is_none_or(|(bits, _)| bits < table.bits) {
                roomy = Some((table.bits, number));
            }
        }
        let bits = tested.iter().map(|(_, bits)| bits.count_ones()).sum::<u32>();
        let occupied = self.tables.iter().filter(|table| table.entries > 0).count();
        if let Some((found, number)) = roomy
            && (found == bits || occupied >= OWN)
        {
            self.enter(number, record);
            return;
        }
        let added = self.new_mask(&tested, occupied, &crowded).and_then(|mask| self.add_table(mask));
        let Some(added) = added else {
            crowded.sort_unstable();
            let least = crowded.first().map_or(0, |(_, number, _)| *number);
            self.enter(roomy.map_or(least, |(_, number)| number), record);
            return;
        };
        self.enter(added, record);
        for (size, _, bucket) in crowded {
            if size > MOVED * self.config.crowded {
                continue;
            }
            for other in self.buckets.all(bucket) {
                if self.tables[added].takes(&self.buckets.records.placed_by(other)) {
                    self.leave(other);
                    self.enter(added, other);
                }
            }
        }
    }

    /// The mask of a new table for entries that test these bits, unless it would tell them apart no better.
    fn new_mask(
        &self,
        tested: &[MaskPart],
        occupied: usize,
        crowded: &[(usize, usize, u32)],
    ) -> Option<Box<[MaskPart]>> {
        let units = ROUNDING.iter().filter(|(from, _)| occupied >= *from).map(|(_, unit)| *unit);
        let mut masks = units.chain(std::iter::once(1)).map(|unit| rounded(tested, unit));
        masks.find(|mask| {
            !mask.is_empty() && !crowded.iter().any(|(_, number, _)| within(mask, &self.tables[*number].mask))
        })
    }

    /// A new table, or one without entries that gets another mask; none if there is neither.
    fn add_table(&mut self, mask: Box<[MaskPart]>) -> Option<usize> {
        let number = if self.tables.len() < self.config.tables {
            self.tables.push(Table::new(Box::default()));
            self.tables.len() - 1
        } else {
            let empty = self.tables.iter().skip(1).position(|table| table.entries == 0)? + 1;
            if let Some(filter) = &mut self.filter {
                filter.forget_table(empty);
            }
            if let Some(sweep) = &mut self.sweep {
                sweep.forget_table(empty);
            }
            empty
        };
        if let Some(filter) = &mut self.filter {
            filter.add_table(number, &mask);
            // It knows the new one, and another filter costs much: a few more tables than it was made for do.
            self.stale |= filter.len() > filter.built_for + filter.built_for / 4;
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.add_table(number, &mask);
        }
        self.tables[number] = Table::new(mask);
        Some(number)
    }

    /// Puts a record into a table.
    pub(super) fn enter(&mut self, number: usize, record: RecordNumber) {
        let table = &mut self.tables[number];
        let hash = self.hasher.hash_record(&table.mask, record, &self.buckets.records);
        self.buckets.insert(table, hash, record);
        let records = &self.buckets.records;
        table.entries += 1;
        table.least = table.least.min(records.order(record));
        put(&mut self.occupied, number);
        self.held[records.entry(record) as usize].table = number as u16;
        if let Some(filter) = &mut self.filter {
            filter.allow(number, &table.mask, record, records);
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.allow(number, &table.mask, record, records);
        }
    }

    /// Takes a record out of its table.
    pub(super) fn leave(&mut self, record: RecordNumber) {
        let number = usize::from(self.held[self.buckets.records.entry(record) as usize].table);
        let table = &mut self.tables[number];
        let hash = self.hasher.hash_record(&table.mask, record, &self.buckets.records);
        self.buckets.remove(table, hash, record);
        table.entries -= 1;
        if table.entries == 0 {
            table.least = u64::MAX;
            take(&mut self.occupied, number);
            if let Some(filter) = &mut self.filter {
                filter.empty(number);
            }
            if let Some(sweep) = &mut self.sweep {
                sweep.empty(number);
            }
        }
    }
}

/// Of each word of a mask the highest bits, in whole units of so many.
fn rounded(mask: &[MaskPart], unit: u32) -> Box<[MaskPart]> {
    let round = |bits: u32| {
        let mut kept = bits;
        for _ in 0..bits.count_ones() % unit {
            kept &= kept - 1;
        }
        kept
    };
    mask.iter().map(|(word, bits)| (*word, round(*bits))).filter(|(_, bits)| *bits != 0).collect()
}
