//! Tests of fields, and entries made of them.

use std::sync::Arc;

use super::layout::Field;

/// A set of values as sorted intervals that neither overlap nor touch.
///
/// ```
/// use netbricks_tables::classifier::ValueSet;
///
/// let set = ValueSet::new([(80, 80), (1_024, 2_000), (1_500, 3_000)]);
/// assert_eq!(set.intervals(), [(80, 80), (1_024, 3_000)]);
/// assert!(set.contains(2_500) && !set.contains(81));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSet {
    intervals: Box<[(u128, u128)]>,
}

impl ValueSet {
    /// The values in any of these intervals, each given by its least and greatest value.
    ///
    /// An interval without values is left out.
    #[must_use]
    pub fn new(intervals: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut all: Vec<(u128, u128)> = intervals.into_iter().filter(|(low, high)| low <= high).collect();
        all.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(all.len());
        for (low, high) in all {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = high.max(last.1),
                _ => joined.push((low, high)),
            }
        }
        Self { intervals: joined.into() }
    }

    /// The intervals, each by its least and greatest value, in ascending order.
    #[must_use]
    pub fn intervals(&self) -> &[(u128, u128)] {
        &self.intervals
    }

    /// Whether a value is in the set: a binary search.
    #[must_use]
    pub fn contains(&self, value: u128) -> bool {
        let after = self.intervals.partition_point(|(low, _)| *low <= value);
        after > 0 && self.intervals.get(after - 1).is_some_and(|(_, high)| value <= *high)
    }
}

/// A test of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The bits under the mask are those of `value`; other bits of `value` do not count.
    Masked {
        /// The bits.
        value: u128,
        /// The bits that count. Any mask will do, also one with gaps.
        mask: u128,
    },
    /// The value is in an interval.
    Range {
        /// The least value.
        low: u128,
        /// The greatest value; less than `low` for an interval without values.
        high: u128,
    },
    /// The value is in a set.
    Within(Arc<ValueSet>),
}

/// A test of one field, or the opposite of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field, of the classifier's layout.
    pub field: Field,
    /// The test of its value.
    pub test: Test,
    /// Whether the condition holds where the test does not.
    pub negated: bool,
}

impl Condition {
    /// Whether it holds for a key vector.
    #[must_use]
    pub fn holds(&self, key: &[u32]) -> bool {
        let at = self.field.get(key);
        let passed = match &self.test {
            Test::Masked { value, mask } => (at ^ value) & mask == 0,
            Test::Range { low, high } => *low <= at && at <= *high,
            Test::Within(set) => set.contains(at),
        };
        passed != self.negated
    }
}

/// One conjunction: it matches a key vector for which all its conditions hold.
///
/// Several entries may carry the same rule, which then matches where any of them does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The rule, as the caller numbers it.
    pub rule: u32,
    /// The rule's place among the others: the least comes first. Of equal ones the least `rule` does.
    pub order: u64,
    /// Whether [`matches`](super::Classifier::matches) ends where this entry matches.
    pub last: bool,
    /// The conditions; without any it matches always. Several on one field must all hold.
    pub conditions: Vec<Condition>,
}
