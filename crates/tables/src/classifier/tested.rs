//! The conditions of an entry, brought into masked words, intervals of words, and the rest.
//!
//! Masked words are found by hashing. Intervals and the rest are looked at on the entry that was found.

use super::condition::{Condition, Entry, Test};
use super::layout::{Field, Layout};

/// Bits of one word that must have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaskedWord {
    pub(super) word: u32,
    pub(super) mask: u32,
    pub(super) value: u32,
}

/// Least and greatest value of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordRange {
    pub(super) word: u32,
    pub(super) low: u32,
    pub(super) high: u32,
}

/// An entry's conditions, as a classifier keeps them. All three parts must hold.
#[derive(Debug, Default)]
pub(super) struct Tested {
    /// At most one a word, in ascending order, no mask 0.
    pub(super) masked: Vec<MaskedWord>,
    /// At most one a word.
    pub(super) ranges: Vec<WordRange>,
    /// Conditions that the others do not express.
    pub(super) rest: Vec<Condition>,
}

/// A condition on a field outside the layout.
pub(super) struct Outside(pub(super) Field);

/// Of one field: the bits that are given, and the interval in which its value is.
struct Bounds {
    value: u128,
    mask: u128,
    low: u128,
    high: u128,
}

impl Tested {
    /// The conditions of `entry`, or `None` if no key vector fulfils them.
    pub(super) fn of(entry: &Entry, layout: &Layout) -> Result<Option<Self>, Outside> {
        let mut conditions: Vec<&Condition> = entry.conditions.iter().collect();
        if let Some(outside) = conditions.iter().find(|condition| !layout.has(condition.field)) {
            return Err(Outside(outside.field));
        }
        conditions.sort_by_key(|condition| condition.field);
        let mut all = Self::default();
        for same in conditions.chunk_by(|a, b| a.field == b.field) {
            let Some(field) = same.first().map(|condition| condition.field) else { continue };
            let mut bounds = Bounds { value: 0, mask: 0, low: 0, high: field.greatest() };
            for condition in same {
                if !all.narrow(&mut bounds, condition) {
                    return Ok(None);
                }
            }
            if !all.file(field, bounds) {
                return Ok(None);
            }
        }
        all.masked.sort_by_key(|part| part.word);
        // Fields that share words, from another layout, may have put in two of one word.
        let twice = all.masked.windows(2).any(|pair| pair[0].word == pair[1].word);
        let distinct = all.ranges.iter().enumerate();
        let range_twice =
            distinct.clone().any(|(at, range)| all.ranges[..at].iter().any(|r| r.word == range.word));
        if twice || range_twice {
            all.masked.clear();
            all.ranges.clear();
            all.rest = entry.conditions.clone();
        }
        Ok(Some(all))
    }

    /// Takes a condition into the bounds of its field or the rest; whether it can be fulfilled.
    fn narrow(&mut self, bounds: &mut Bounds, condition: &Condition) -> bool {
        let greatest = condition.field.greatest();
        match &condition.test {
            Test::Masked { value, mask } => {
                let (value, beyond) = (value & mask, value & mask & !greatest);
                let mask = mask & greatest;
                if beyond != 0 || mask == 0 {
                    // It fails always, or holds always.
                    return (beyond == 0) != condition.negated;
                }
                // The opposite of a test of one bit is a test of that bit.
                let flip = condition.negated && mask.count_ones() == 1;
                if condition.negated && !flip {
                    self.rest.push(condition.clone());
                    return true;
                }
                let value = if flip { value ^ mask } else { value };
                if (bounds.value ^ value) & bounds.mask & mask != 0 {
                    return false;
                }
                bounds.value |= value;
                bounds.mask |= mask;
                true
            }
            Test::Range { low, high } => {
                let high = *high.min(&greatest);
                match (condition.negated, *low <= high) {
                    (false, false) => return false,
                    (true, false) => return true,
                    (false, true) => bounds.limit(*low, high),
                    (true, true) if *low == 0 && high == greatest => return false,
                    (true, true) if *low == 0 => bounds.limit(high + 1, greatest),
                    (true, true) if high == greatest => bounds.limit(0, low - 1),
                    (true, true) => self.rest.push(condition.clone()),
                }
                true
            }
            Test::Within(set) => {
                let (first, last) = (set.intervals().first(), set.intervals().last());
                let (Some((low, _)), Some((_, high))) = (first, last) else { return condition.negated };
                if !condition.negated {
                    bounds.limit(*low, *high);
                }
                if condition.negated || set.intervals().len() > 1 {
                    self.rest.push(condition.clone());
                }
                true
            }
        }
    }

    /// Puts the bounds of a field into words; whether they can be fulfilled.
    fn file(&mut self, field: Field, mut bounds: Bounds) -> bool {
        if bounds.low > bounds.high {
            return false;
        }
        // The leading bits that all values of the interval share are bits that are given.
        let differ = bounds.low ^ bounds.high;
        let free = u128::MAX.checked_shr(differ.leading_zeros()).unwrap_or(0);
        let shared = field.greatest() & !free;
        if (bounds.value ^ bounds.low) & bounds.mask & shared != 0 {
            return false;
        }
        bounds.value |= bounds.low & shared;
        bounds.mask |= shared;
        for nth in 0..field.words() {
            let (mask, value) = (field.part(bounds.mask, nth), field.part(bounds.value, nth));
            if mask != 0 {
                self.masked.push(MaskedWord { word: (field.word() + nth) as u32, mask, value });
            }
        }
        if bounds.low & free == 0 && bounds.high & free == free {
            return true; // A prefix, which the mask says in full.
        }
        // Words before the first that differs are given; so it lies in an interval with any words behind it.
        let lower = differ.ilog2() / 32;
        let nth = field.words() - 1 - lower as usize;
        let (low, high) = (field.part(bounds.low, nth), field.part(bounds.high, nth));
        self.ranges.push(WordRange { word: (field.word() + nth) as u32, low, high });
        let behind = (1u128 << (32 * lower)) - 1;
        if bounds.low & behind != 0 || bounds.high & behind != behind {
            let test = Test::Range { low: bounds.low, high: bounds.high };
            self.rest.push(Condition { field, test, negated: false });
        }
        true
    }
}

impl Bounds {
    fn limit(&mut self, low: u128, high: u128) {
        self.low = low.max(self.low);
        self.high = high.min(self.high);
    }
}
