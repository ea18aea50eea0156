//! Counters by key, over the flow table: bounded, with ends of their own.

use crate::flow::{
    Counters, Entry, FlowHasher, FlowTable, FlowTableConfig, FlowTicket, MAXIMUM_WORK, TableError,
};
use crate::hash::Key;
use crate::shared::{Changing, ReadTable};
use crate::table::{Asked, Missed, Table};

/// Counters by key.
///
/// A key's counter begins with the first addition. It ends when nothing was added for its timeout, or when the table is
/// full and its policy lets another one in. Counters saturate at their largest value.
///
/// It is a [`FlowTable`] of numbers, whose documentation of memory, work, hashing and time holds here. No operation
/// looks at more than 64 entries. A lookup through [`Table`] counts as a hit, whether anything is added or not. For
/// things with a fixed number, such as ports or protocols, [`CounterArray`](super::CounterArray) takes 8 bytes each.
///
/// ```
/// use netbricks_tables::{FlowTableConfig, Full, KeyedCounterArray};
///
/// let config = FlowTableConfig {
///     idle_timeout: Some(1_000), // ns
///     full: Full::EvictOldest,
///     ..FlowTableConfig::new(100)
/// };
/// let mut bytes: KeyedCounterArray<u32> = KeyedCounterArray::new(config)?;
/// assert_eq!(bytes.add(7, 60, 0), Some(60));
/// assert_eq!(bytes.add(7, 40, 999), Some(100));
/// bytes.add_within(8, 1_500, 5_000, 999); // has a timeout of its own
/// assert_eq!((bytes.get(&7), bytes.get(&9)), (Some(100), None));
/// // Nothing was added to it for 1,000 ns, so that it starts again.
/// assert_eq!(bytes.add(7, 1, 1_999), Some(1));
/// let mut largest = (0, 0);
/// bytes.get_bulk(&[7, 8, 9], |at, counted| largest = largest.max((counted.unwrap_or(0), at)));
/// assert_eq!(largest, (1_500, 1));
/// # Ok::<(), netbricks_tables::TableError>(())
/// ```
#[derive(Debug)]
pub struct KeyedCounterArray<K: Key>(FlowTable<K, u64>);

impl<K: Key> KeyedCounterArray<K> {
    /// No counters yet.
    ///
    /// # Errors
    /// As [`FlowTable::new`].
    pub fn new(config: FlowTableConfig) -> Result<Self, TableError> {
        FlowTable::new(config).map(Self)
    }

    /// The flow table that holds the counters.
    ///
    /// It has length and capacity, [counters](FlowTable::counters) of evictions and ends, [`iter`](FlowTable::iter) and
    /// [`encode`](FlowTable::encode).
    #[must_use]
    pub fn table(&self) -> &FlowTable<K, u64> {
        &self.0
    }

    /// As [`table`](Self::table), to [`walk`](FlowTable::walk) through it, [take counters out](FlowTable::take_where) or
    /// [decode](FlowTable::decode) exported ones.
    #[must_use]
    pub fn table_mut(&mut self) -> &mut FlowTable<K, u64> {
        &mut self.0
    }

    /// Adds to the counter of `key` at `now` (ns) and returns its new value.
    ///
    /// Makes the counter where there is none, with the table's timeout. `None` where the table is full, by its policy.
    #[inline]
    pub fn add(&mut self, key: K, by: u64, now: u64) -> Option<u64> {
        self.count(key, by, None, now)
    }

    /// As [`add`](Self::add); from now on the counter ends `timeout` ns after something was last added.
    #[inline]
    pub fn add_within(&mut self, key: K, by: u64, timeout: u64, now: u64) -> Option<u64> {
        self.count(key, by, Some(timeout), now)
    }

    #[inline]
    fn count(&mut self, key: K, by: u64, timeout: Option<u64>, now: u64) -> Option<u64> {
        let mut entry = match self.0.lookup(key, now) {
            Entry::Found(entry) => entry,
            Entry::Vacant(place) => place.insert_entry(0),
            Entry::Full => return None,
        };
        if let Some(timeout) = timeout {
            entry.set_timeout(timeout);
        }
        let counter = entry.into_mut();
        *counter = counter.saturating_add(by);
        Some(*counter)
    }

    /// The value of a key's counter, as of the latest time that the table was told. Refreshes nothing.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key).copied()
    }

    /// As [`get`](Self::get) for many keys in order, with the memory's latency hidden.
    pub fn get_bulk(&self, keys: &[K], mut visit: impl FnMut(usize, Option<u64>)) {
        self.0.get_bulk(keys, |at, value| visit(at, value.copied()));
    }

    /// Takes a key's counter out; its value.
    pub fn remove(&mut self, key: &K) -> Option<u64> {
        self.0.remove(key)
    }

    /// Ends counters that are due at `now` (ns), as [`FlowTable::expire`] does; answers how many.
    pub fn expire(&mut self, now: u64, budget: usize) -> usize {
        self.0.expire(now, budget)
    }

    /// Events since the table was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// One change of [`KeyedCounterArray`], with the time (ns) as of which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterChange<K> {
    /// Adds to a key's counter, and makes it where there is none.
    Add {
        /// The key.
        key: K,
        /// How much.
        by: u64,
        /// Nanoseconds without an addition after which it ends; `None`: as it has, and at first the table's.
        timeout: Option<u64>,
        /// The time.
        now: u64,
    },
    /// Takes a key's counter out.
    Remove {
        /// The key.
        key: K,
        /// The time.
        now: u64,
    },
    /// Ends what is due, looking at 64 counters at most.
    Expire {
        /// The time.
        now: u64,
    },
}

/// The result of a [`CounterChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterOutcome {
    /// The counter's new value.
    Added(u64),
    /// Nothing was added: the table is full, by its policy.
    Full,
    /// The counter is out; the value that it had.
    Removed(Option<u64>),
    /// So many counters ended.
    Expired(usize),
}

impl<K: Key + Send> Changing for KeyedCounterArray<K> {
    type Change = CounterChange<K>;
    type Outcome = CounterOutcome;

    #[inline]
    fn apply(&mut self, change: &CounterChange<K>) -> CounterOutcome {
        match *change {
            CounterChange::Add { key, by, timeout, now } => {
                self.count(key, by, timeout, now).map_or(CounterOutcome::Full, CounterOutcome::Added)
            }
            CounterChange::Remove { key, now } => {
                self.tell(now);
                CounterOutcome::Removed(self.remove(&key))
            }
            CounterChange::Expire { now } => CounterOutcome::Expired(self.expire(now, MAXIMUM_WORK)),
        }
    }
}

/// As the flow table that it is.
impl<K: Key> Table for KeyedCounterArray<K> {
    type Key = K;
    type Short = <FlowTable<K, u64> as Table>::Short;
    type Ticket = FlowTicket;
    type Entry<'t> = Entry<'t, K, u64>;
    type Hasher = FlowHasher;

    #[inline(always)]
    fn shorten(key: &K) -> Option<Self::Short> {
        FlowTable::<K, u64>::shorten(key)
    }
    #[inline(always)]
    fn lengthen(short: Self::Short) -> K {
        FlowTable::<K, u64>::lengthen(short)
    }
    #[inline(always)]
    fn hasher(&self) -> FlowHasher {
        self.0.hasher()
    }
    #[inline(always)]
    fn hash(hasher: &FlowHasher, key: &K) -> FlowTicket {
        FlowTable::<K, u64>::hash(hasher, key)
    }
    #[inline(always)]
    fn prefetch(&self, key: &K, ticket: &mut FlowTicket) {
        self.0.prefetch(key, ticket);
    }
    #[inline(always)]
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<K>, &'k mut FlowTicket)>,
        missed: &mut Missed,
    ) {
        self.0.prefetch_all(keys, missed);
    }
    #[inline(always)]
    fn prefetch_missed(&self, key: &K) {
        self.0.prefetch_missed(key);
    }
    #[inline(always)]
    fn tell(&mut self, now: u64) {
        self.0.tell(now);
    }
    #[inline(always)]
    fn resolve(&mut self, key: K, ticket: FlowTicket) -> Entry<'_, K, u64> {
        self.0.resolve(key, ticket)
    }
    #[inline(always)]
    fn resolve_here(&mut self, short: Self::Short, ticket: FlowTicket) -> Option<Entry<'_, K, u64>> {
        self.0.resolve_here(short, ticket)
    }
    #[inline(always)]
    fn resolve_there(&mut self, key: &K, ticket: FlowTicket) -> Option<Entry<'_, K, u64>> {
        self.0.resolve_there(key, ticket)
    }
    #[inline(always)]
    fn resolve_elsewhere(&mut self, key: K) -> Entry<'_, K, u64> {
        self.0.resolve_elsewhere(key)
    }
}

impl<K: Key> ReadTable for KeyedCounterArray<K> {
    type Value = u64;
    #[inline(always)]
    fn show(&self, key: &K, ticket: FlowTicket, now: u64) -> Option<u64> {
        self.0.show(key, ticket, now)
    }
}
