//! Entries in memory: one run of words each, which a cache line holds for most.
//!
//! Words and masks that entries share stand once, in a shape. A record then has values alone.

use std::collections::BTreeMap;

use super::condition::Condition;
use super::tested::{MaskedWord, Tested, WordRange};

/// Words of the smallest record, and the unit of record numbers.
const UNIT: usize = 8;
/// Classes of records: 8, 16, 32 words and so on.
const CLASSES: usize = 16;
/// Words before the first record, so that most records lie in one cache line.
///
/// Large blocks of glibc start 16 bytes behind a line's start. Elsewhere it costs speed only.
const LEAD: usize = 12;

/// Places of the words in front of a record's values.
const ORDER: usize = 0;
const RULE: usize = 2;
const SHAPE: usize = 3;
const NEXT: usize = 4;
const ENTRY: usize = 5;
const VALUES: usize = 6;

/// Flags beside the shape.
const LAST: u32 = 1 << 31;
const REST: u32 = 1 << 30;
const SHAPES: u32 = REST - 1;

/// No record.
pub(super) const NONE: u32 = 0x7fff_ffff;

/// The number of a record.
pub(super) type RecordNumber = u32;

/// Words that a shape starts with: the counts of masked words and of ranges.
const COUNTS: usize = 1;

/// Masks and places of words, each distinct list once.
#[derive(Clone, Debug, Default)]
struct Shapes {
    /// Shapes one after the other: counts, then word and mask of each masked word, then the word of each range.
    words: Vec<u32>,
    /// Where each is, and how many records have it.
    index: BTreeMap<Box<[u32]>, (u32, u32)>,
    /// Unused places by length.
    free: BTreeMap<usize, Vec<u32>>,
}

impl Shapes {
    fn take(&mut self, shape: &[u32]) -> Option<u32> {
        if let Some((place, uses)) = self.index.get_mut(shape) {
            *uses += 1;
            return Some(*place);
        }
        let place = match self.free.get_mut(&shape.len()).and_then(Vec::pop) {
            Some(place) => {
                self.words[place as usize..][..shape.len()].copy_from_slice(shape);
                place
            }
            None => {
                let place = u32::try_from(self.words.len()).ok().filter(|place| *place < SHAPES)?;
                self.words.extend_from_slice(shape);
                place
            }
        };
        self.index.insert(shape.into(), (place, 1));
        Some(place)
    }

    fn give_back(&mut self, place: u32) {
        let start = place as usize;
        let (masked, ranges) = counts(self.words[start]);
        let len = COUNTS + 2 * masked + ranges;
        let shape = &self.words[start..start + len];
        let Some((_, uses)) = self.index.get_mut(shape) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.index.remove(shape);
            self.free.entry(len).or_default().push(place);
        }
    }

    fn bytes(&self) -> usize {
        // A node of the index has about twice the key's own size beside it.
        self.words.capacity() * 4 + self.index.keys().map(|shape| shape.len() * 4 + 64).sum::<usize>()
    }
}

#[inline(always)]
fn counts(word: u32) -> (usize, usize) {
    ((word & 0xffff) as usize, (word >> 16) as usize)
}

/// All entries that can match.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    words: Vec<u32>,
    /// Unused records by class.
    free: [Vec<RecordNumber>; CLASSES],
    shapes: Shapes,
    /// Conditions of the entries that have any in neither masks nor ranges.
    rest: Vec<Box<[Condition]>>,
    free_rest: Vec<u32>,
}

impl Records {
    /// Room for so many records, which takes memory only as they come.
    pub(super) fn with_capacity(records: usize) -> Self {
        let mut all = Self { words: Vec::with_capacity(LEAD + records * 2 * UNIT), ..Self::default() };
        all.words.resize(LEAD, 0);
        all
    }

    /// Writes a record, in no bucket yet; `None` where there are too many different shapes or too much of anything.
    pub(super) fn write(
        &mut self,
        entry: u32,
        rule: u32,
        order: u64,
        last: bool,
        tested: Tested,
    ) -> Option<RecordNumber> {
        let Tested { masked, ranges, rest } = tested;
        let counts = u32::try_from(masked.len()).ok()? | u32::try_from(ranges.len()).ok()? << 16;
        let shape: Vec<u32> = std::iter::once(counts)
            .chain(masked.iter().flat_map(|part| [part.word, part.mask]))
            .chain(ranges.iter().map(|range| range.word))
            .collect();
        let place = self.shapes.take(&shape)?;
        let flags = if last { LAST } else { 0 } | if rest.is_empty() { 0 } else { REST };
        let header = [(order >> 32) as u32, order as u32, rule, place | flags, NONE, entry];
        let mut words: Vec<u32> = header.into();
        words.extend(masked.iter().map(|part| part.value));
        words.extend(ranges.iter().flat_map(|range| [range.low, range.high - range.low]));
        if !rest.is_empty() {
            words.push(self.keep_rest(rest.into()));
        }
        let number = self.allocate(words.len());
        if let Some(number) = number {
            self.words[at(number)..][..words.len()].copy_from_slice(&words);
        } else {
            self.shapes.give_back(place);
        }
        number
    }

    fn keep_rest(&mut self, rest: Box<[Condition]>) -> u32 {
        if let Some(free) = self.free_rest.pop() {
            self.rest[free as usize] = rest;
            return free;
        }
        self.rest.push(rest);
        self.rest.len() as u32 - 1
    }

    fn allocate(&mut self, words: usize) -> Option<RecordNumber> {
        let class = class(words);
        if let Some(number) = self.free.get_mut(class)?.pop() {
            return Some(number);
        }
        let size = UNIT << class;
        let mut start = self.words.len() - LEAD;
        // A record of 16 words lies in one cache line; what is skipped serves smaller ones.
        while !start.is_multiple_of(size.min(2 * UNIT)) {
            self.free[0].push((start / UNIT) as u32);
            start += UNIT;
        }
        let number = u32::try_from(start / UNIT).ok().filter(|number| *number < NONE)?;
        self.words.resize(LEAD + start + size, 0);
        Some(number)
    }

    /// Takes a record out that is in no bucket.
    pub(super) fn erase(&mut self, number: RecordNumber) {
        let (_, masked, ranges) = self.shape(number);
        let mut words = VALUES + masked + 2 * ranges;
        if self.words[at(number) + SHAPE] & REST != 0 {
            let rest = self.words[at(number) + words];
            self.rest[rest as usize] = Box::default();
            self.free_rest.push(rest);
            words += 1;
        }
        self.shapes.give_back(self.words[at(number) + SHAPE] & SHAPES);
        self.free[class(words)].push(number);
    }

    /// The words of a record's shape behind its counts, and these counts: of masked words, and of ranges.
    #[inline(always)]
    fn shape(&self, number: RecordNumber) -> (&[u32], usize, usize) {
        let place = (self.words[at(number) + SHAPE] & SHAPES) as usize;
        let (masked, ranges) = counts(self.shapes.words[place]);
        (&self.shapes.words[place + COUNTS..][..2 * masked + ranges], masked, ranges)
    }

    /// Whether the record's conditions hold for a key vector.
    #[inline(always)]
    pub(super) fn holds(&self, number: RecordNumber, key: &[u32]) -> bool {
        let record = &self.words[at(number)..];
        let (shape, masked, ranges) = self.shape(number);
        let (masks, ranged) = shape.split_at(2 * masked);
        let (given, intervals) = record[VALUES..].split_at(masked);
        let mut differ = 0;
        for (part, value) in masks.chunks_exact(2).zip(given) {
            differ |= key[part[0] as usize] & part[1] ^ value;
        }
        if differ != 0 {
            return false;
        }
        let mut inside = true;
        for (word, interval) in ranged.iter().zip(intervals.chunks_exact(2)) {
            inside &= key[*word as usize].wrapping_sub(interval[0]) <= interval[1];
        }
        inside && (record[SHAPE] & REST == 0 || self.rest_holds(intervals[2 * ranges], key))
    }

    #[inline(never)]
    fn rest_holds(&self, rest: u32, key: &[u32]) -> bool {
        self.rest[rest as usize].iter().all(|condition| condition.holds(key))
    }

    /// The masked words of a record, in ascending order.
    pub(super) fn masked(&self, number: RecordNumber) -> impl Iterator<Item = MaskedWord> {
        let (shape, masked, _) = self.shape(number);
        let values = &self.words[at(number) + VALUES..][..masked];
        let parts = shape[..2 * masked].chunks_exact(2);
        parts.zip(values).map(|(part, value)| MaskedWord { word: part[0], mask: part[1], value: *value })
    }

    /// The bits of a record's masked words by which it may lie in a table, in ascending order of words.
    ///
    /// Words with a range are left out. The bits that low and high share vary from range to range, and a tree tells
    /// ranges apart better than a table for each number of bits.
    pub(super) fn placed_by(&self, number: RecordNumber) -> Vec<(u32, u32)> {
        let (shape, masked, _) = self.shape(number);
        let (masks, ranged) = shape.split_at(2 * masked);
        let parts = masks.chunks_exact(2).map(|part| (part[0], part[1]));
        parts.filter(|(word, _)| !ranged.contains(word)).collect()
    }

    /// The ranges of a record.
    pub(super) fn ranges(&self, number: RecordNumber) -> impl Iterator<Item = WordRange> {
        let (shape, masked, ranges) = self.shape(number);
        let intervals = &self.words[at(number) + VALUES + masked..][..2 * ranges];
        let words = shape[2 * masked..].iter().zip(intervals.chunks_exact(2));
        words.map(|(word, at)| WordRange { word: *word, low: at[0], high: at[0] + at[1] })
    }

    /// The conditions of a record in neither of these.
    pub(super) fn rest(&self, number: RecordNumber) -> &[Condition] {
        let (_, masked, ranges) = self.shape(number);
        let record = &self.words[at(number)..];
        if record[SHAPE] & REST == 0 {
            return &[];
        }
        &self.rest[record[VALUES + masked + 2 * ranges] as usize]
    }

    /// Least and greatest value that the word has in keys which the record matches.
    pub(super) fn interval(&self, number: RecordNumber, word: u32) -> (u32, u32) {
        let (mut low, mut high) = (0, u32::MAX);
        if let Some(part) = self.masked(number).find(|part| part.word == word) {
            (low, high) = (part.value, part.value | !part.mask);
        }
        if let Some(range) = self.ranges(number).find(|range| range.word == word) {
            (low, high) = (range.low.max(low), range.high.min(high));
        }
        // A mask with gaps and a range may leave nothing; an interval needs a value nevertheless.
        (low, high.max(low))
    }

    #[inline(always)]
    pub(super) fn order(&self, number: RecordNumber) -> u64 {
        let record = &self.words[at(number)..][..2];
        u64::from(record[ORDER]) << 32 | u64::from(record[ORDER + 1])
    }

    pub(super) fn set_order(&mut self, number: RecordNumber, order: u64) {
        let start = at(number) + ORDER;
        self.words[start..start + 2].copy_from_slice(&[(order >> 32) as u32, order as u32]);
    }

    #[inline(always)]
    pub(super) fn rule(&self, number: RecordNumber) -> u32 {
        self.words[at(number) + RULE]
    }

    #[inline(always)]
    pub(super) fn last(&self, number: RecordNumber) -> bool {
        self.words[at(number) + SHAPE] & LAST != 0
    }

    /// The number of the entry.
    pub(super) fn entry(&self, number: RecordNumber) -> u32 {
        self.words[at(number) + ENTRY]
    }

    /// The next record of the bucket, or the node of the tree that has this one.
    #[inline(always)]
    pub(super) fn next(&self, number: RecordNumber) -> u32 {
        self.words[at(number) + NEXT]
    }

    pub(super) fn set_next(&mut self, number: RecordNumber, next: u32) {
        self.words[at(number) + NEXT] = next;
    }

    /// The first word of a record, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, number: RecordNumber) -> *const u32 {
        self.words.as_ptr().wrapping_add(at(number))
    }

    /// Bytes in use, without those that are only reserved.
    pub(super) fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(|free| free.capacity() * 4).sum();
        let conditions: usize = self.rest.iter().map(|all| size_of_val::<[Condition]>(all)).sum();
        self.words.len() * 4 + free + self.shapes.bytes() + self.rest.capacity() * 16 + conditions
    }
}

/// The place of a record's first word.
#[inline(always)]
fn at(number: RecordNumber) -> usize {
    LEAD + number as usize * UNIT
}

/// The class of the least records that hold so many words.
fn class(words: usize) -> usize {
    words.div_ceil(UNIT).next_power_of_two().ilog2() as usize
}
