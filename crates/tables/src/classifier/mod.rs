//! Classification of packets: of many conjunctions of tests on fields, those that hold for a key vector.
//!
//! A [`Classifier`] knows fields and values, and nothing of packets. Its caller lays the fields of a packet side by side
//! in a key vector of 32-bit words, as a [`Layout`] says.
//!
//! # Structure
//! Entries lie in hash tables by the value of some of their bits. This is tuple space search (Srinivasan, Suri and
//! Varghese, SIGCOMM 1999). Tables are merged as in TupleMerge (Daly et al., IEEE/ACM Transactions on Networking 27(4),
//! 2019). A table's mask leaves out bits that its entries test, so that entries of different masks share a table.
//!
//! The bits that a mask leaves out are tested on the entry that was found. So are negated tests, sets, and ranges. A
//! range that is a prefix is a mask. The leading bits that low and high of another range share are no part of a
//! table's mask. A tree tells ranges apart with less work than a table for each number of bits.
//!
//! An entry goes to the table with the most bits where fewer than [`crowded`](ClassifierConfig::crowded) entries have
//! its value. Where there is none, a new table takes it, and those entries too which that table's mask tells apart. The
//! first 16 masks get tables of their own. Later ones are rounded down to whole units of 4, 8 or 16 bits in each word,
//! the coarser the more tables there are. There are at most 256.
//!
//! Entries with one value in one table are a list. From nine on they are a tree of boxes over the two words in which
//! they differ most. From four tables on a filter finds the tables that may have an entry for a key. Each half of a
//! word that enough tables test has a set of tables for each of its 65,536 values.
//!
//! # Bounds
//! A lookup probes each candidate table once. Hashes are keyed, so a sender cannot choose keys that collide. Nothing
//! grows by a lookup, except a [`Matches`] with more rules than ever before. The entries bound the work of a lookup. At
//! worst it looks at all whose masks had to share one table and whose boxes have the key.
//!
//! A change moves at most some hundred entries, and 32 slots of a table that grows. The first entry with a value in a
//! half of which its table tests few bits writes up to 32,768 numbers of the filter.
//! [`maintain`](Classifier::maintain) does in steps what can wait.

mod batch;
mod bucket;
mod cache;
mod condition;
mod filter;
mod layout;
mod maintain;
mod matches;
mod place;
mod records;
mod slots;
mod table;
mod tested;
#[cfg(test)]
mod tests;
mod trees;

pub use batch::Keys;
pub use cache::MatchCache;
pub use condition::{Condition, Entry, Test, ValueSet};
pub use layout::{Field, Layout};
pub use matches::Matches;

use bucket::Buckets;
use filter::{Filter, TableSet, each};
use maintain::Sweep;
use matches::{Every, First, Receive};
use records::{NONE, RecordNumber};
use table::{Hasher, Table};
use tested::{Outside, Tested};

/// The size of a classifier, and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierConfig {
    /// The most entries held at a time. A number above [`Classifier::MAXIMUM`] counts as that one.
    pub capacity: usize,
    /// The most hash tables, 1 to 256; the nearest of them counts.
    pub tables: usize,
    /// Entries of one value in one table from which on others go to a finer one.
    pub crowded: usize,
    /// The seed of the hashes. Draw it from the system's randomness where traffic is hostile.
    pub seed: u64,
}

impl Default for ClassifierConfig {
    /// A million entries, 256 tables, crowded from 40 on, and seed 0.
    fn default() -> Self {
        Self { capacity: 1 << 20, tables: filter::TABLES, crowded: 40, seed: 0 }
    }
}

/// Why an entry was refused; the classifier is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifierError {
    /// No room for another entry.
    #[error("no room for another entry: the classifier holds its {capacity}, make it larger")]
    Full {
        /// Entries that it can hold.
        capacity: usize,
    },
    /// A field of another layout.
    #[error(
        "a condition on {bits} bits from word {word} of a key of {words} words: use the fields of its layout"
    )]
    Outside {
        /// The field's first word.
        word: usize,
        /// The field's bits.
        bits: u16,
        /// Words of a key.
        words: usize,
    },
    /// More different masks, or more words of conditions, than can be numbered.
    #[error(
        "the masks and values of {entries} entries take all the numbers that there are for them: take some out"
    )]
    Numbers {
        /// Entries held.
        entries: usize,
    },
}

/// An entry of a classifier; no later entry has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    number: u32,
    generation: u32,
}

/// An entry's place: its record, or none for one that never matches.
#[derive(Clone, Copy, Debug)]
struct Held {
    record: RecordNumber,
    generation: u32,
    table: u16,
    used: bool,
}

/// One hash table of a classifier, as [`Classifier::tables`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShown {
    /// Words of the key vector and the bits of each by which the table tells entries apart.
    pub mask: Vec<(usize, u32)>,
    /// Entries in the table.
    pub entries: usize,
    /// Different values under the mask.
    pub values: usize,
}

/// Entries by their conditions, and a search for those that hold for a key vector.
///
/// Two classifiers of one layout and configuration that got the same calls in the same order are alike: they answer alike, and number entries
/// and versions alike.
///
/// ```
/// use netbricks_tables::classifier::{Classifier, ClassifierConfig, Condition, Entry, Layout, Matches, Test};
///
/// let mut layout = Layout::new();
/// let (address, port) = (layout.field(32), layout.field(16));
/// let mut classifier = Classifier::new(layout.clone(), ClassifierConfig::default());
///
/// let network = Test::Masked { value: 0x0a00_0000, mask: 0xff00_0000 };
/// let ports = Test::Range { low: 1_024, high: 65_535 };
/// let not_ports = Condition { field: port, test: ports, negated: true };
/// let in_network = Condition { field: address, test: network, negated: false };
/// classifier.insert(Entry { rule: 7, order: 1, last: false, conditions: vec![in_network, not_ports] })?;
/// let rest = classifier.insert(Entry { rule: 8, order: 2, last: true, conditions: vec![] })?;
///
/// let mut key = vec![0; layout.words()];
/// address.put(&mut key, 0x0a01_0203);
/// port.put(&mut key, 80);
/// let mut found = Matches::new();
/// classifier.matches(&key, &mut found);
/// assert!(found.rules().eq([7, 8]));
/// port.put(&mut key, 8_080);
/// assert_eq!(classifier.first(&key), Some(8));
/// assert!(classifier.remove(rest));
/// assert_eq!(classifier.first(&key), None);
/// # Ok::<(), netbricks_tables::classifier::ClassifierError>(())
/// ```
///
/// # Memory
/// An entry of five masked words takes 64 bytes, 12 for its number, and 16 to 32 for its slot. One of up to two masked
/// words takes 32 instead of 64. With four tables or more there is a filter. It has 128 KiB and its distinct sets for
/// each half of a word that it looks at, of which there are at most 16.
#[derive(Clone, Debug)]
pub struct Classifier {
    layout: Layout,
    config: ClassifierConfig,
    version: u64,
    /// Entries by number.
    held: Vec<Held>,
    free: Vec<u32>,
    len: usize,
    hasher: Hasher,
    buckets: Buckets,
    /// The first has no mask, so that every entry fits in one.
    tables: Vec<Table>,
    /// Tables with entries.
    occupied: TableSet,
    filter: Option<Box<Filter>>,
    sweep: Option<Box<Sweep>>,
    /// Whether a sweep would improve something.
    stale: bool,
    /// Entries that test each word.
    testing: Vec<u32>,
}

impl Classifier {
    /// The most entries of a classifier.
    pub const MAXIMUM: usize = 1 << 24;

    /// A classifier without entries.
    #[must_use]
    pub fn new(layout: Layout, config: ClassifierConfig) -> Self {
        let capacity = config.capacity.min(Self::MAXIMUM);
        let words = layout.words();
        let config = ClassifierConfig {
            capacity,
            tables: config.tables.clamp(1, filter::TABLES),
            crowded: config.crowded.max(1),
            seed: config.seed,
        };
        Self {
            version: 0,
            held: Vec::new(),
            free: Vec::new(),
            len: 0,
            hasher: Hasher::new(words, config.seed),
            buckets: Buckets::with_capacity(capacity.min(1 << 20)),
            tables: vec![Table::new(Box::default())],
            occupied: [0; filter::TABLES / 64],
            filter: None,
            sweep: None,
            stale: false,
            testing: vec![0; words],
            layout,
            config,
        }
    }

    /// Adds an entry. It takes some microseconds among any number of entries.
    ///
    /// One that no key vector fulfils is added too, and never matches.
    ///
    /// # Errors
    /// When there is no room for it, or a field is not of this layout. Nothing changes then.
    pub fn insert(&mut self, entry: Entry) -> Result<EntryId, ClassifierError> {
        if self.len >= self.config.capacity {
            return Err(ClassifierError::Full { capacity: self.config.capacity });
        }
        let outside = |Outside(field): Outside| {
            let (word, bits, words) = (field.word(), field.bits(), self.layout.words());
            ClassifierError::Outside { word, bits, words }
        };
        let tested = Tested::of(&entry, &self.layout).map_err(outside)?;
        let number = self.free.last().copied().unwrap_or(self.held.len() as u32);
        let mut record = NONE;
        if let Some(tested) = tested {
            let written = self.buckets.records.write(number, entry.rule, entry.order, entry.last, tested);
            record = written.ok_or(ClassifierError::Numbers { entries: self.len })?;
        }
        if self.free.pop().is_none() {
            self.held.push(Held { record, generation: 0, table: 0, used: true });
        }
        let held = &mut self.held[number as usize];
        (held.record, held.used) = (record, true);
        let id = EntryId { number, generation: held.generation };
        self.len += 1;
        self.version += 1;
        if record != NONE {
            self.count(record, 1);
            self.place(record);
        }
        self.catch_up();
        Ok(id)
    }

    /// Takes an entry out; whether it was there.
    pub fn remove(&mut self, id: EntryId) -> bool {
        let Some(Held { record, .. }) = self.get(id) else { return false };
        if record != NONE {
            self.leave(record);
            self.count(record, -1);
            self.buckets.records.erase(record);
        }
        let held = &mut self.held[id.number as usize];
        (held.record, held.used) = (NONE, false);
        // A number whose generations are used up is given to no entry any more.
        if let Some(next) = held.generation.checked_add(1) {
            held.generation = next;
            self.free.push(id.number);
        }
        self.len -= 1;
        self.version += 1;
        self.stale = true;
        self.catch_up();
        true
    }

    /// Has key vectors of a layout from now on that adds fields behind those of the present one.
    ///
    /// Entries keep their conditions. Returns whether it did: not where `layout` has fewer words than the present one.
    pub fn widen(&mut self, layout: &Layout) -> bool {
        if !layout.extends(&self.layout) {
            return false;
        }
        self.layout = layout.clone();
        self.hasher = Hasher::new(layout.words(), self.config.seed);
        self.testing.resize(layout.words(), 0);
        self.version += 1;
        true
    }

    /// Gives an entry another order, as where a rule was moved; whether the entry was there.
    pub fn set_order(&mut self, id: EntryId, order: u64) -> bool {
        let Some(Held { record, table, .. }) = self.get(id) else { return false };
        self.version += 1;
        if record != NONE {
            self.leave(record);
            self.buckets.records.set_order(record, order);
            self.enter(table.into(), record);
            self.stale = true;
        }
        self.catch_up();
        true
    }

    fn get(&self, id: EntryId) -> Option<Held> {
        let held = self.held.get(id.number as usize)?;
        (held.used && held.generation == id.generation).then_some(*held)
    }

    /// The rule of least order that matches; `None` also for a key vector shorter than the layout.
    #[inline]
    #[must_use]
    pub fn first(&self, key: &[u32]) -> Option<u32> {
        let mut first = First::NONE;
        self.search(key, &mut first);
        first.rule()
    }

    /// Finds all rules that match, in ascending order, each once.
    ///
    /// It ends with the first whose entry is the [last](Entry::last). For a key vector shorter than the layout none
    /// matches.
    #[inline]
    pub fn matches(&self, key: &[u32], found: &mut Matches) {
        found.clear();
        self.search(key, found);
    }

    /// As [`matches`](Self::matches), with those behind an entry that is the last.
    pub fn every(&self, key: &[u32], found: &mut Matches) {
        found.clear();
        self.search(key, &mut Every(found));
    }

    #[inline(always)]
    fn search<R: Receive>(&self, key: &[u32], to: &mut R) {
        let Some(key) = key.get(..self.layout.words()) else { return };
        match &self.filter {
            Some(filter) => {
                for place in each(filter.candidates(key)) {
                    self.probe(filter.table(place), key, to);
                }
            }
            None => each(self.occupied).for_each(|table| self.probe(table, key, to)),
        }
        to.finish();
    }

    /// Tells of all entries in a table that match.
    #[inline(always)]
    fn probe<R: Receive>(&self, table: usize, key: &[u32], to: &mut R) {
        let table = &self.tables[table];
        if table.least <= to.bound() {
            let bucket = table.slots.get(self.hasher.hash(&table.pairs, key));
            if bucket != 0 {
                self.buckets.search(bucket, key, to);
            }
        }
    }

    /// The number of changes so far. What was found at one version holds as long as it stays.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The places of the fields.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Words of the key vector that some entry tests, in ascending order.
    pub fn tested_words(&self) -> impl Iterator<Item = usize> {
        self.testing.iter().enumerate().filter(|(_, entries)| **entries > 0).map(|(word, _)| word)
    }

    /// The tables that have entries.
    pub fn tables(&self) -> impl Iterator<Item = TableShown> {
        let occupied = self.tables.iter().filter(|table| table.entries > 0);
        occupied.map(|table| TableShown {
            mask: table.mask.iter().map(|(word, bits)| (*word as usize, *bits)).collect(),
            entries: table.entries,
            values: table.slots.len(),
        })
    }

    /// Bytes that the entries and all tables take, without those that are only reserved.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tables: usize =
            self.tables.iter().map(|t| size_of::<Table>() + t.slots.bytes() + 8 * t.mask.len()).sum();
        let filters = self.filter.as_ref().map_or(0, |filter| filter.bytes());
        let entries = self.held.capacity() * size_of::<Held>() + self.free.capacity() * 4;
        let sweep = self.sweep.as_ref().map_or(0, |sweep| sweep.bytes());
        entries + tables + filters + sweep + self.buckets.bytes() + self.testing.len() * 4
    }

    /// Counts the words that an entry tests.
    fn count(&mut self, record: RecordNumber, by: i32) {
        let records = &self.buckets.records;
        let rest = records.rest(record).iter().flat_map(|condition| {
            let first = condition.field.word();
            first..first + condition.field.words()
        });
        let masked = records.masked(record).map(|part| part.word as usize);
        let ranges = records.ranges(record).map(|range| range.word as usize);
        for word in masked.chain(ranges).chain(rest) {
            if let Some(count) = self.testing.get_mut(word) {
                *count = count.wrapping_add_signed(by);
            }
        }
    }
}
