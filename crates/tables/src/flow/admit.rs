//! Taking in flows that another table gave away.
//!
//! They exist nowhere else any more. So flows for which there is room stay, and the table's policy decides about the
//! others.

use super::{Encode, FlowTable, ImportError};
use crate::hash::Key;

impl<K: Key + Encode, V: Encode + 'static> FlowTable<K, V> {
    /// Takes in flows that another table [gave away](Self::take_where), as of `now` (ns), and returns how many.
    ///
    /// It works as [`decode`](Self::decode), but flow by flow, and by this table's policy where it is full.
    /// [`EvictOldest`](super::Full::EvictOldest) ends the flow that was hit least recently, an old one or a new one,
    /// and counts it as evicted. Where no flow leaves, the new one is left out and counts as refused. A table [without
    /// expiry of its own](Self::without_own_expiry) ends no flow, since its owner would not learn of it.
    ///
    /// The work is a lookup's for each flow.
    ///
    /// ```
    /// use netbricks_tables::{FlowTable, FlowTableConfig, Full, Table};
    ///
    /// let config = FlowTableConfig { full: Full::EvictOldest, ..FlowTableConfig::new(100) };
    /// let mut here: FlowTable<u32, u32> = FlowTable::new(config)?;
    /// let mut there: FlowTable<u32, u32> = FlowTable::new(config)?;
    /// for key in 0..80 {
    ///     here.lookup(key, 0).or_insert_with(|| key);
    ///     there.lookup(100 + key, 0).or_insert_with(|| key);
    /// }
    /// let mut bytes = Vec::new();
    /// assert_eq!(here.take_where(&mut bytes, |_| true), 80);
    /// assert_eq!(there.admit(&bytes, 0)?, 80);
    /// assert_eq!((there.len(), there.counters().evicted), (100, 60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the bytes are not a whole, unchanged export of a table with the same kinds of keys and values. The table
    /// then holds what it held.
    pub fn admit(&mut self, bytes: &[u8], now: u64) -> Result<usize, ImportError> {
        let flows = Self::records(bytes)?;
        self.set_time(now);
        let mut taken = 0;
        for (key, value, age, timeout) in flows {
            let Some((age, timeout)) = self.times(age, timeout) else { continue };
            taken += usize::from(self.admit_flow(key, value, age, timeout));
        }
        Ok(taken)
    }

    /// Whether the flow is in the table now, with this value.
    fn admit_flow(&mut self, key: K, value: V, age: u32, timeout: u32) -> bool {
        let home = self.home(key.hash(&self.secret));
        if let Some(index) = self.find_or_bring(&key, home) {
            return self.renew(index, value, age, timeout);
        }
        let Some(place) = self.room(home) else { return false };
        if let Some(leaves) = place.displaces.map(|index| index as usize) {
            if !self.expires_itself {
                self.counters.refused += 1;
                return false;
            }
            let younger = |slot| !self.clock.is_over(slot) && self.clock.age(slot) < age;
            if self.slots.get(leaves).is_some_and(younger) {
                // As if it had come first, and then the other.
                self.counters.inserted += 1;
                self.counters.evicted += 1;
                return false;
            }
            drop(self.end(leaves));
        }
        self.put(place, key, value);
        self.set_times(place.index as usize, age, timeout);
        true
    }
}
