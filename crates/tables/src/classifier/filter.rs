//! A filter that says of a key vector which tables may have an entry for it.
//!
//! Each half of a tested word indexes a set of tables: those with an entry that allows this half. The sets of all halves,
//! intersected, are the candidates. No read waits for another half's. Equal sets are stored once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::records::{RecordNumber, Records};
use super::table::MaskPart;

/// Tables of a classifier at most.
pub(super) const TABLES: usize = 256;
/// Halves of words that a filter looks at, at most: memory is 128 KiB and more for each.
const HALVES: usize = 16;
/// Values of a half word.
const VALUES: usize = 1 << 16;

/// A half is looked at if more than one in so many tables tests it.
const SHARE: usize = 8;
/// The place of a table that a filter does not know.
const NOWHERE: u16 = u16::MAX;

/// A set of tables, or of their places in a filter.
pub(super) type TableSet = [u64; TABLES / 64];

/// The number of a distinct set in a half.
type SetNumber = u16;

/// The sets of one half of a word.
#[derive(Clone, Debug)]
struct Half {
    word: u32,
    shift: u32,
    /// The number of the set of each value.
    numbers: Box<[SetNumber]>,
    /// The sets, `width` words each.
    sets: Vec<u64>,
    /// Values that have each set.
    uses: Vec<u32>,
    free: Vec<SetNumber>,
    index: BTreeMap<TableSet, SetNumber>,
    /// Tables that don't test this half.
    open: TableSet,
}

/// Candidates among the tables; they may be too many, never too few.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    halves: Vec<Half>,
    /// Words of a set.
    width: usize,
    /// The table in each place of a set; when the filter was made, by ascending least order.
    tables: Vec<u16>,
    /// The place of each table.
    places: Vec<u16>,
    /// Places of tables that have entries.
    occupied: TableSet,
    /// Tables by which its halves were chosen.
    pub(super) built_for: usize,
}

/// Whether a set has a table.
#[inline(always)]
pub(super) fn has(set: &TableSet, table: usize) -> bool {
    set[table / 64] & 1 << (table % 64) != 0
}

/// Puts a table in a set.
pub(super) fn put(set: &mut TableSet, table: usize) {
    set[table / 64] |= 1 << (table % 64);
}

/// Takes a table out of a set.
pub(super) fn take(set: &mut TableSet, table: usize) {
    set[table / 64] &= !(1 << (table % 64));
}

/// The tables of a set, in ascending order.
#[inline(always)]
pub(super) fn each(set: TableSet) -> impl Iterator<Item = usize> {
    set.into_iter().enumerate().flat_map(|(at, mut word)| {
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                at * 64 + bit
            })
        })
    })
}

impl Half {
    fn new(word: u32, shift: u32) -> Self {
        Self {
            word,
            shift,
            numbers: vec![0; VALUES].into(),
            sets: vec![0; 1],
            uses: vec![VALUES as u32],
            free: Vec::new(),
            index: BTreeMap::from([([0; TABLES / 64], 0)]),
            open: [u64::MAX; TABLES / 64],
        }
    }

    fn set(&self, number: SetNumber, width: usize) -> TableSet {
        let mut set = [0; TABLES / 64];
        set[..width].copy_from_slice(&self.sets[usize::from(number) * width..][..width]);
        set
    }

    fn write(&mut self, number: SetNumber, set: &TableSet, width: usize) {
        self.sets[usize::from(number) * width..][..width].copy_from_slice(&set[..width]);
    }

    /// The bits of this half among those of a mask.
    fn part(&self, mask: &[MaskPart]) -> u32 {
        let bits = mask.iter().find(|(word, _)| *word == self.word).map_or(0, |(_, bits)| *bits);
        bits >> self.shift & 0xffff
    }

    /// Puts a table into the sets of all values that have these bits under a mask.
    fn allow(&mut self, table: usize, mask: u32, value: u32, width: usize) {
        if has(&self.set(self.numbers[value as usize], width), table) {
            return; // All of these values came together.
        }
        let others = !mask & 0xffff;
        let mut at = others;
        let mut known = None;
        loop {
            let place = (value | at) as usize;
            let before = self.numbers[place];
            let after = match known {
                Some((known, after)) if known == before => after,
                _ => self.joined(before, table, width),
            };
            if after != before {
                self.uses[usize::from(before)] -= 1;
                self.uses[usize::from(after)] += 1;
                self.numbers[place] = after;
                if self.uses[usize::from(before)] == 0 {
                    self.index.remove(&self.set(before, width));
                    self.free.push(before);
                    known = None;
                } else {
                    known = Some((before, after));
                }
            }
            if at == 0 {
                return;
            }
            at = (at - 1) & others;
        }
    }

    /// The number of a set with a table more.
    fn joined(&mut self, before: SetNumber, table: usize, width: usize) -> SetNumber {
        let mut set = self.set(before, width);
        let old = set;
        put(&mut set, table);
        if let Some(number) = self.index.get(&set) {
            return *number;
        }
        if self.uses[usize::from(before)] == 1 {
            // Nobody else has it.
            self.index.remove(&old);
            self.write(before, &set, width);
            self.index.insert(set, before);
            return before;
        }
        // Some value shares its set, so there are fewer sets than values.
        let number = self.free.pop().unwrap_or_else(|| {
            self.uses.push(0);
            self.sets.resize(self.sets.len() + width, 0);
            (self.uses.len() - 1) as SetNumber
        });
        self.write(number, &set, width);
        self.index.insert(set, number);
        number
    }

    /// Takes a table out of all sets.
    fn forget(&mut self, table: usize, width: usize) {
        put(&mut self.open, table);
        self.index.clear();
        for number in 0..self.uses.len() {
            let mut set = self.set(number as SetNumber, width);
            take(&mut set, table);
            self.write(number as SetNumber, &set, width);
            if self.uses[number] > 0 {
                self.index.insert(set, number as SetNumber);
            }
        }
    }

    fn widen(&mut self, from: usize, to: usize) {
        let mut sets = vec![0; self.uses.len() * to];
        for (wide, narrow) in sets.chunks_mut(to).zip(self.sets.chunks(from)) {
            wide[..from].copy_from_slice(narrow);
        }
        self.sets = sets;
    }
}

impl Filter {
    /// A filter for these tables, and others that may come. The first of them is the first candidate.
    ///
    /// It looks at the halves that most tables test. One that few test excludes few tables, and reading it costs about
    /// what a probe does.
    pub(super) fn new<'m>(tables: impl Iterator<Item = (usize, &'m [MaskPart])>) -> Self {
        let mut tests: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let mut all = Self {
            halves: Vec::new(),
            width: 1,
            tables: Vec::new(),
            places: Vec::new(),
            occupied: [0; TABLES / 64],
            built_for: 0,
        };
        let tables: Vec<(usize, &[MaskPart])> = tables.collect();
        all.built_for = tables.len();
        for (word, bits) in tables.iter().flat_map(|(_, mask)| *mask) {
            for shift in [16, 0] {
                *tests.entry((*word, shift)).or_default() += usize::from(bits >> shift & 0xffff != 0);
            }
        }
        let mut halves: Vec<(usize, (u32, u32))> =
            tests.into_iter().map(|(half, tests)| (tests, half)).collect();
        halves.sort_by_key(|(tests, _)| Reverse(*tests));
        halves.retain(|(tests, _)| *tests > 1 && tests * SHARE > tables.len());
        halves.truncate(HALVES);
        all.halves.extend(halves.iter().map(|(_, (word, shift))| Half::new(*word, *shift)));
        tables.iter().for_each(|(table, mask)| all.add_table(*table, mask));
        all
    }

    /// Adds a table without entries. It gets the place of one that was taken out, or one behind all others.
    pub(super) fn add_table(&mut self, table: usize, mask: &[MaskPart]) {
        if self.places.len() <= table {
            self.places.resize(table + 1, NOWHERE);
        }
        let place = if self.places[table] == NOWHERE { self.tables.len() } else { self.places[table].into() };
        if place == self.tables.len() {
            self.tables.push(table as u16);
            self.places[table] = place as u16;
        }
        let width = (place / 64 + 1).next_power_of_two().max(self.width);
        if width > self.width {
            self.halves.iter_mut().for_each(|half| half.widen(self.width, width));
            self.width = width;
        }
        for half in &mut self.halves {
            if half.part(mask) != 0 {
                take(&mut half.open, place);
            }
        }
    }

    /// The number of tables that it knows.
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    fn place(&self, table: usize) -> Option<usize> {
        self.places.get(table).filter(|place| **place != NOWHERE).map(|place| usize::from(*place))
    }

    /// Notes that a table has no entries left.
    pub(super) fn empty(&mut self, table: usize) {
        if let Some(place) = self.place(table) {
            take(&mut self.occupied, place);
        }
    }

    /// Takes out the mask of a table that has no entries left, which then gets another.
    pub(super) fn forget_table(&mut self, table: usize) {
        if let Some(place) = self.place(table) {
            self.halves.iter_mut().for_each(|half| half.forget(place, self.width));
        }
    }

    /// Lets a table be a candidate for the keys of a record.
    pub(super) fn allow(&mut self, table: usize, mask: &[MaskPart], record: RecordNumber, records: &Records) {
        let Some(place) = self.place(table) else { return };
        put(&mut self.occupied, place);
        for half in &mut self.halves {
            let bits = half.part(mask);
            if bits == 0 {
                continue;
            }
            let value =
                records.masked(record).find(|part| part.word == half.word).map_or(0, |part| part.value);
            half.allow(place, bits, value >> half.shift & bits, self.width);
        }
    }

    /// The places of the tables that may have an entry for a key.
    #[inline(always)]
    pub(super) fn candidates(&self, key: &[u32]) -> TableSet {
        match self.width {
            1 => self.intersect::<1>(key),
            2 => self.intersect::<2>(key),
            _ => self.intersect::<{ TABLES / 64 }>(key),
        }
    }

    /// The table in a place.
    #[inline(always)]
    pub(super) fn table(&self, place: usize) -> usize {
        self.tables[place].into()
    }

    #[inline(always)]
    fn intersect<const W: usize>(&self, key: &[u32]) -> TableSet {
        let mut found = [0; W];
        found.copy_from_slice(&self.occupied[..W]);
        for half in &self.halves {
            let value = key[half.word as usize] >> half.shift & 0xffff;
            let number = usize::from(half.numbers[value as usize]);
            let set = &half.sets[number * W..][..W];
            for at in 0..W {
                found[at] &= set[at] | half.open[at];
            }
        }
        let mut set = [0; TABLES / 64];
        set[..W].copy_from_slice(&found);
        set
    }

    /// The places that are read first for a key, for a prefetch.
    #[inline(always)]
    pub(super) fn addresses(&self, key: &[u32]) -> impl Iterator<Item = *const SetNumber> {
        self.halves.iter().map(|half| {
            let value = key[half.word as usize] >> half.shift & 0xffff;
            half.numbers.as_ptr().wrapping_add(value as usize)
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let of = |half: &Half| {
            half.numbers.len() * 2
                + half.sets.capacity() * 8
                + half.uses.capacity() * 4
                + half.index.len() * 80
        };
        self.halves.iter().map(of).sum()
    }
}
