//! Counters: by number where that is fixed, by key where keys come and go.

mod keyed;
#[cfg(test)]
mod tests;

pub use keyed::{CounterChange, CounterOutcome, KeyedCounterArray};

use crate::flow::Encode;
use crate::memory::{MemoryError, reserved};
use crate::ring_log::{ImageError, open, seal};
use crate::shared::Changing;

/// Counters by number, from 0: one for each thing, as long as the table exists.
///
/// So it is never full, and nothing in it ends. [`KeyedCounterArray`] counts things that come and go. Counters saturate at
/// their largest value.
///
/// ```
/// use netbricks_tables::{Changing, CounterArray};
///
/// let mut bytes = CounterArray::new(4);
/// assert_eq!(bytes.apply(&(3, 60)), Some(60));
/// assert_eq!(bytes.apply(&(3, 40)), Some(100));
/// assert_eq!(bytes.apply(&(4, 1)), None); // no such counter
/// assert_eq!((bytes.get(3), bytes.get(0)), (Some(100), Some(0)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterArray(Box<[u64]>);

impl CounterArray {
    /// So many counters, all 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(vec![0; capacity].into())
    }

    /// As [`new`](Self::new), where there may be no memory for so many.
    ///
    /// All of it is touched, so that counting never waits for memory.
    ///
    /// # Errors
    /// When the machine has less than that, or the kernel refuses it.
    pub fn try_new(capacity: usize) -> Result<Self, MemoryError> {
        let mut all = reserved(capacity)?;
        all.resize(capacity, 0);
        Ok(Self(all.into()))
    }

    /// The value of counter `number`, if there is such a one.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<u64> {
        self.0.get(number).copied()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    /// Adds to counter `number`; its new value, if there is such a one.
    #[inline]
    pub fn add(&mut self, number: usize, by: u64) -> Option<u64> {
        let counter = self.0.get_mut(number)?;
        *counter = counter.saturating_add(by);
        Some(*counter)
    }

    /// The counters in a form that [`decode`](Self::decode) reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        seal(*b"NBTA", 0, 8, self.0.iter().map(|value| value.to_be_bytes().to_vec()))
    }

    /// Takes exported counters in the place of those that are there.
    ///
    /// # Errors
    /// When the bytes are no whole export of as many counters.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<usize, ImageError> {
        let refused = |problem: String| ImageError { what: "counters", problem };
        let values = open(*b"NBTA", 0, 8, bytes).map_err(refused)?;
        if values.len() != self.0.len() {
            return Err(refused(format!("they are {}, here are {}", values.len(), self.0.len())));
        }
        for (counter, value) in self.0.iter_mut().zip(values) {
            *counter = u64::decode(value).unwrap_or_default();
        }
        Ok(self.0.len())
    }
}

impl Changing for CounterArray {
    /// Which, and how much is added.
    type Change = (usize, u64);
    type Outcome = Option<u64>;
    #[inline]
    fn apply(&mut self, (number, by): &(usize, u64)) -> Option<u64> {
        self.add(*number, *by)
    }
}
