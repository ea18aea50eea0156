//! The flow table as state that is changed by values: a map for state shared under any consistency.

use super::expiry::TIMED;
use super::place::groups_for;
use super::slots::Slots;
use super::{Entry, FlowTable};
use crate::group::{Group, WIDTH};
use crate::hash::Key;
use crate::shared::Changing;
use crate::table::{BULK, Table};
use crate::wheel::TimerWheel;

/// One change of a map, with the time (ns) as of which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange<K, V> {
    /// Puts a value under a key, in place of the one that is there, and counts as a hit.
    Put {
        /// The key.
        key: K,
        /// The value.
        value: V,
        /// Nanoseconds without a hit after which it ends; `None`: as the table's.
        timeout: Option<u64>,
        /// The time.
        now: u64,
    },
    /// Takes a key out.
    Remove {
        /// The key.
        key: K,
        /// The time.
        now: u64,
    },
    /// Ends what is due, looking at 64 entries at most.
    Expire {
        /// The time.
        now: u64,
    },
}

/// The result of a [`MapChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOutcome<V> {
    /// It is in; the value that was there before.
    Put(Option<V>),
    /// It is not in: the table is full, by its policy.
    Full,
    /// The key is out; the value that it had.
    Removed(Option<V>),
    /// So many entries ended.
    Expired(usize),
}

impl<K: Key, V: Copy + Send + 'static> Changing for FlowTable<K, V> {
    type Change = MapChange<K, V>;
    type Outcome = MapOutcome<V>;

    fn apply(&mut self, change: &Self::Change) -> MapOutcome<V> {
        match *change {
            MapChange::Put { key, value, timeout, now } => match self.lookup(key, now) {
                Entry::Found(mut entry) => {
                    let before = std::mem::replace(entry.get_mut(), value);
                    if let Some(timeout) = timeout {
                        entry.set_timeout(timeout);
                    }
                    MapOutcome::Put(Some(before))
                }
                Entry::Vacant(place) => {
                    let mut entry = place.insert_entry(value);
                    if let Some(timeout) = timeout {
                        entry.set_timeout(timeout);
                    }
                    MapOutcome::Put(None)
                }
                Entry::Full => MapOutcome::Full,
            },
            MapChange::Remove { key, now } => {
                self.tell(now);
                MapOutcome::Removed(self.remove(&key))
            }
            MapChange::Expire { now } => MapOutcome::Expired(self.expire(now, super::MAXIMUM_WORK)),
        }
    }
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// Bytes of memory that slots, tags and timers take, as long as there is the table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.bytes());
        let own = self.slots.len() * Slots::<K, V>::BYTES + self.groups.len() * size_of::<Group>();
        own + self.wheel.bytes() + before
    }

    /// Bytes of memory that a table of a capacity (in flows) takes, before it is made.
    #[must_use]
    pub fn bytes_for(capacity: usize) -> usize {
        let groups = groups_for(capacity.clamp(1, Self::MAXIMUM_CAPACITY)) + 1;
        let slots = groups * WIDTH;
        slots * Slots::<K, V>::BYTES + groups * size_of::<Group>() + TimerWheel::bytes_for(slots / TIMED)
    }

    /// Looks up as [`get`](Self::get), many keys in order, hiding memory latency; for readers, which change nothing.
    pub fn get_bulk<'t>(&'t self, keys: &[K], mut visit: impl FnMut(usize, Option<&'t V>)) {
        let hasher = self.hasher();
        for (chunk, keys) in keys.chunks(BULK).enumerate() {
            let mut tickets = [Default::default(); BULK];
            for (ticket, key) in tickets.iter_mut().zip(keys) {
                *ticket = Self::hash(&hasher, key);
            }
            for (ticket, key) in tickets.iter_mut().zip(keys) {
                self.prefetch(key, ticket);
            }
            for (at, key) in keys.iter().enumerate() {
                visit(chunk * BULK + at, self.get(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{FlowTable, FlowTableConfig};

    #[test]
    fn a_table_takes_the_memory_that_was_told_before() {
        for capacity in [1, 13, 1_000, 65_536] {
            let table = FlowTable::<[u64; 2], u64>::new(FlowTableConfig::new(capacity)).expect("memory");
            assert_eq!(FlowTable::<[u64; 2], u64>::bytes_for(capacity), table.bytes(), "{capacity} flows");
        }
    }
}
