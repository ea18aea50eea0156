//! The flow table: a bounded number of flows by key, with expiry and a keyed hash.
//!
//! Every operation has a bound on its work. A batch looks flows up through [`Table`](crate::Table); all other methods
//! are for the control side.

mod admit;
mod change;
mod encode;
mod entry;
mod expiry;
mod iterate;
mod place;
mod prefetch;
mod slots;
mod steps;
mod succeed;
#[cfg(test)]
mod tests;
mod transfer;

pub use change::{MapChange, MapOutcome};
pub use encode::Encode;
pub use entry::{Entry, Occupied, Vacant};
pub use iterate::{Cursor, Iter};
pub use succeed::{FlowSuccession, FlowTerms};
pub use transfer::{BUCKETS, ImportError};

use crate::group::{Group, WIDTH};
use crate::hash::{Key, Secret};
use crate::memory::{HugeArray, MemoryError, Zeroable};
use crate::parts::Parts;
use crate::prefetch::prefetch;
use crate::table::{Asked, Missed, Table};
use crate::wheel::TimerWheel;
use expiry::{Clock, TIMED};
use place::Home;
use prefetch::Prefetch;
use slots::{Far, NEVER, Near, Slot, Slots};
use std::hint::cold_path;
use std::ptr::NonNull;

/// The most slots that one operation probes, moves or expires.
pub const MAXIMUM_WORK: usize = 64;

/// The policy of a flow table for a new flow when it has no room for it.
///
/// It has no room when it holds as many flows as its capacity, or when all 40 places of this key are taken. The latter
/// has a probability of less than one in a million, unless the secret leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The new flow gets no entry ([`Entry::Full`]).
    #[default]
    Refuse,
    /// The new flow takes the place of an expired one or of the least recently hit one.
    ///
    /// It looks at up to 16 flows where the new one would lie. This sample is random, since the hash chose it. So the
    /// victim is the oldest of the whole table only when the capacity is at most 16. Otherwise it is older than 15 of
    /// 16 flows on average.
    EvictOldest,
    /// The new flow takes the place of an expired flow, or gets no entry.
    ///
    /// It looks at up to 16 flows where the new one would lie.
    EvictExpired,
}

/// How a flow table is to be.
///
/// ```
/// use netbricks_tables::{FlowTable, FlowTableConfig, Full};
///
/// let config = FlowTableConfig {
///     capacity: 65_536,
///     idle_timeout: Some(30_000_000_000),
///     full: Full::EvictOldest,
///     seed: 0x5eed,
/// };
/// let table: FlowTable<[u64; 5], (u64, u64)> = FlowTable::new(config)?;
/// assert_eq!((table.capacity(), table.len()), (65_536, 0));
/// # Ok::<(), netbricks_tables::TableError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTableConfig {
    /// The most flows held at a time; 1 or more.
    pub capacity: usize,
    /// Nanoseconds without a hit after which a flow expires, unless its own timeout was set; `None`: never.
    ///
    /// Time is kept in ticks, at most 2⁻¹⁶ of this and at most 2²⁰ ns. A flow never expires early, and at most two
    /// ticks late (exactly on time with a timeout of at most 131 µs). No timeout is of 2³¹ ticks or longer.
    pub idle_timeout: Option<u64>,
    /// The policy for a new flow when there is no room.
    pub full: Full,
    /// Seed of the keyed hash; random in production, so that an attacker cannot choose flows that collide.
    ///
    /// 0 where none was set: a graph then takes its worker's.
    pub seed: u64,
}

impl FlowTableConfig {
    /// A table for `capacity` flows that never expire and are refused beyond it, with a seed of 0.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, idle_timeout: None, full: Full::Refuse, seed: 0 }
    }

    /// The same configuration with this seed, unless it has one.
    #[must_use]
    pub const fn seeded(self, seed: u64) -> Self {
        if self.seed == 0 { Self { seed, ..self } } else { self }
    }
}

/// Why a flow table could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A table for no flows.
    #[error("a flow table's capacity is 0 flows: give it 1 or more")]
    CapacityZero,
    /// More flows than slots can be numbered.
    #[error("a flow table's capacity is {capacity} flows, but at most {maximum} are possible")]
    CapacityTooLarge {
        /// Flows asked for.
        capacity: usize,
        /// Flows possible.
        maximum: usize,
    },
    /// Memory for so many flows can't be had.
    #[error("a flow table for {capacity} flows {source}")]
    Memory {
        /// Flows asked for.
        capacity: usize,
        /// The cause.
        source: MemoryError,
    },
}

/// Events of a flow table, in flows (hits: packets).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups that found a flow.
    pub hits: u64,
    /// Flows that were put in.
    pub inserted: u64,
    /// Flows that gave their place to a new one while they were not expired.
    pub evicted: u64,
    /// Flows that ended because nothing hit them for their timeout.
    pub expired: u64,
    /// Lookups that were answered [`Entry::Full`], and flows that [moved here](FlowTable::admit) and found no place.
    pub refused: u64,
}

/// Flows by key.
///
/// # Layout
/// Slots come in groups of 16. A key's hash names two groups and a 16-bit tag. A flow lives in whichever of the two had
/// more room when it came or, if both are full, in a stash of 8 slots. The tags lie apart, 32 bytes a group. So the
/// tags of 64k flows fit the second-level cache, and two SIMD comparisons find a flow's slot without a branch.
///
/// A slot holds key, value, the tick of the last hit and the timeout. Up to 64 bytes (a 40-byte key and a 16-byte
/// value) it is one cache line, the only one for which a hit may have to wait. Flows never move. Timers are kept apart,
/// one for 8 slots, since a hit does not touch them.
///
/// The far [parts](crate::Parts) of long keys are also kept apart where slots get smaller by that. With 40-byte keys of
/// which 16 are near, and an 8-byte value, a short key touches 32 bytes. A long key touches 24 more, which are
/// prefetched at the same time.
///
/// # Memory
/// A flow costs `(slot + far + 2 + 2) / 0.8` bytes of capacity:
///
/// - the slot: 8 bytes more than the value and the key's part beside it, rounded up to a power of two below 64 and to
///   lines of 64 above;
/// - the key's far part if it lies apart, whether it is used or not;
/// - the tag, and a share of a timer.
///
/// Groups are 80 % full when the table is. A 64-byte slot thus costs 85 bytes, and one of 32 with a far part of 24
/// costs 75. All of it is allocated and touched at once. Each array takes units of 2 MiB where it is large enough (128
/// KiB) for a huge page.
///
/// # Work
/// No operation probes, moves or expires more than [`MAXIMUM_WORK`] slots. The bound is the same for all keys, and for
/// any number of flows in the table and of flows that are due. An operation probes 32 slots in two groups and 8 in the
/// stash, looks at 16 for one to evict, and at 8 that share a timer for expired flows.
///
/// # Example
/// ```
/// use netbricks_tables::{Entry, FlowTable, FlowTableConfig, Table};
///
/// let mut flows: FlowTable<u32, u64> = FlowTable::new(FlowTableConfig {
///     idle_timeout: Some(1_000), // ns
///     ..FlowTableConfig::new(100)
/// })?;
/// // Count packets by key: hit or insert.
/// flows.lookup_bulk(&[7, 8, 7], 0, |_, entry| {
///     if let Some(packets) = entry.or_insert_with(|| 0) {
///         *packets += 1;
///     }
/// });
/// assert_eq!(flows.get(&7), Some(&2));
/// // An expired flow is found no more.
/// assert!(matches!(flows.lookup(7, 1_000), Entry::Vacant(_)));
/// # Ok::<(), netbricks_tables::TableError>(())
/// ```
pub struct FlowTable<K: Key, V: 'static> {
    slots: Slots<K, V>,
    /// By group of slots; the stash is the last.
    groups: HugeArray<Group>,
    clock: Clock,
    counters: Counters,
    secret: Secret,
    /// Groups that hashes name; one more is the stash.
    hashed: usize,
    /// And their slots. Kept, since a compiler that knows it for a multiple masks what it scales by it.
    hashed_slots: u64,
    len: usize,
    stashed: usize,
    /// The flows for which it has room, beside those that are still in the table before.
    capacity: usize,
    /// The capacity, or 0 while flows are in the table before: a key that is not here may be there.
    settled: usize,
    /// The table before, as long as it has flows.
    before: Option<Box<Self>>,
    /// The slot of the table before that moves next.
    next_moved: usize,
    /// Ticks.
    idle_timeout: u32,
    full: Full,
    expires_itself: bool,
    /// A new tick has come and timers were visited for it: the share of the lookup that brought it.
    turned: bool,
    /// Where the next search for a flow to evict begins, so that searches in one place differ.
    hand: usize,
    wheel: TimerWheel,
    bucket_secret: Secret,
    #[cfg(test)]
    work: std::cell::Cell<usize>,
}

/// A hint about a key before its lookup in a [`FlowTable`]; the default holds nothing, and costs a search.
///
/// It is one word, since a batch keeps one a packet. It holds the key's hash, and later the slot where the flow seems
/// to be. A search then computes the hash again.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowTicket(u64);

impl FlowTicket {
    /// The flow seems to be in no slot.
    const NO_SLOT: Self = Self(u32::MAX as u64);
}

/// The parameters for hashing a key for a [`FlowTable`].
///
/// One of a table that is gone still names groups, though of no table.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    secret: Secret,
    /// For prefetching alone: never read through.
    groups: *const Group,
    hashed_slots: u64,
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// The largest possible capacity, in flows.
    pub const MAXIMUM_CAPACITY: usize = 3_000_000_000;

    /// An empty table.
    ///
    /// # Errors
    /// When the capacity is 0, too large to number, or more than there is memory for.
    pub fn new(config: FlowTableConfig) -> Result<Self, TableError> {
        let FlowTableConfig { capacity, idle_timeout, full, seed } = config;
        if capacity == 0 {
            return Err(TableError::CapacityZero);
        }
        if capacity > Self::MAXIMUM_CAPACITY {
            return Err(TableError::CapacityTooLarge { capacity, maximum: Self::MAXIMUM_CAPACITY });
        }
        let hashed = place::groups_for(capacity);
        let slots = (hashed + 1) * WIDTH;
        let memory = |source| TableError::Memory { capacity, source };
        let mut clock = Clock::new(idle_timeout);
        Ok(Self {
            slots: Slots::empty(slots).map_err(memory)?,
            groups: HugeArray::zeroed(hashed + 1).map_err(memory)?,
            counters: Counters::default(),
            secret: Secret::from_seed(seed),
            hashed,
            hashed_slots: (hashed * WIDTH) as u64,
            len: 0,
            stashed: 0,
            capacity,
            settled: capacity,
            before: None,
            next_moved: 0,
            idle_timeout: idle_timeout.map_or(NEVER, |timeout| clock.ticks(timeout)),
            clock,
            full,
            expires_itself: true,
            turned: false,
            hand: 0,
            wheel: TimerWheel::new(slots / TIMED).map_err(memory)?,
            bucket_secret: Secret::from_seed(0),
            #[cfg(test)]
            work: std::cell::Cell::new(0),
        })
    }

    /// Goes on with the flows of another table of the same capacity and timeout, without a copy.
    ///
    /// The policy when full stays this table's. Answers `false`, and changes nothing, where the tables differ
    /// or this one has flows. The other table then has this one's memory, without flows.
    #[must_use]
    pub fn take_over(&mut self, other: &mut Self) -> bool {
        let fits = self.succession(&other.terms()) == FlowSuccession::Whole;
        if fits {
            std::mem::swap(self, other);
            std::mem::swap(&mut self.full, &mut other.full);
        }
        fits
    }

    /// Flows in the table, including those that expired and wait to be collected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len + self.before.as_ref().map_or(0, |before| before.len)
    }

    /// Whether the table holds no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most flows held at a time.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity + self.before.as_ref().map_or(0, |before| before.len)
    }

    /// Events since the table was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The value of `key`, as of the latest time that the table was told; counts and refreshes nothing.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let Some(index) = self.find(key, self.home(key.hash(&self.secret))) else {
            return self.before.as_ref()?.get(key);
        };
        let slot = self.slots.get(index).filter(|slot| !self.clock.is_over(slot))?;
        slot.value()
    }

    /// Looks up as [`get`](Self::get), as of `now` (ns) if that is later.
    ///
    /// For readers of a table that is never told the time.
    #[must_use]
    pub fn get_at(&self, key: &K, now: u64) -> Option<&V> {
        let Some(index) = self.find(key, self.home(key.hash(&self.secret))) else {
            return self.before.as_ref()?.get_at(key, now);
        };
        let slot = self.slots.get(index).filter(|slot| !self.clock.is_over_at(slot, now))?;
        slot.value()
    }

    /// Nanoseconds since the last hit of `key`, in whole ticks, as of the latest time that the table was told.
    ///
    /// It refreshes nothing. `None` where the flow is not there, or expired. The age of a flow without a timeout
    /// is known for 2³² ticks.
    #[must_use]
    pub fn idle(&self, key: &K) -> Option<u64> {
        let Some(index) = self.find(key, self.home(key.hash(&self.secret))) else {
            return self.before.as_ref()?.idle(key);
        };
        let slot = self.slots.get(index).filter(|slot| !self.clock.is_over(slot))?;
        Some(self.clock.nanoseconds(u64::from(self.clock.age(slot))))
    }

    /// As [`get`](Self::get), to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = self.find_or_bring(key, self.home(key.hash(&self.secret)))?;
        let clock = &self.clock;
        self.slots.get_mut(index).filter(|slot| !clock.is_over(slot))?.value_mut()
    }

    /// Takes `key` out; its value unless it was expired.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.find_or_bring(key, self.home(key.hash(&self.secret)))?;
        let over = self.slots.get(index).is_some_and(|slot| self.clock.is_over(slot));
        self.counters.expired += u64::from(over);
        let (_, value) = self.take(index)?;
        (!over).then_some(value)
    }

    /// Takes all flows out; counters stay.
    pub fn clear(&mut self) {
        self.forget_before();
        for group in 0..self.groups.len() {
            let mut occupied = self.groups[group].occupied();
            while occupied != 0 {
                let index = group * WIDTH + occupied.trailing_zeros() as usize;
                occupied &= occupied - 1;
                // Whole before the value is dropped, so that a drop that panics loses no more than the rest.
                drop(self.take(index));
            }
        }
    }

    /// The slot that `ticket` names, if the key of these parts lives there: it is hit.
    #[inline(always)]
    fn hit(&mut self, parts: (Near<K>, Option<Far<K>>), ticket: FlowTicket) -> Option<NonNull<Slot<K, V>>> {
        let (tick, index) = (self.clock.tick as u32, ticket.0 as u32 as usize);
        if let Some(slot) = self.slots.get(index)
            && tick.wrapping_sub(slot.seen) < slot.timeout()
            && self.slots.is_of(index, parts)
        {
            // Before anything is written: a compiler must suppose that the slots begin elsewhere then.
            let place = self.slots.place(index);
            if let Some(slot) = self.slots.get_mut(index) {
                slot.seen = tick;
                self.worked(1);
                self.counters.hits += 1;
                return Some(place);
            }
        }
        cold_path();
        None
    }

    /// Counts work towards [`MAXIMUM_WORK`] where tests assert it.
    #[inline(always)]
    fn worked(&self, slots: usize) {
        #[cfg(test)]
        self.work.set(self.work.get() + slots);
        #[cfg(not(test))]
        let _ = slots;
    }
}

impl<K: Key, V: 'static> Table for FlowTable<K, V> {
    type Key = K;
    type Short = Near<K>;
    type Ticket = FlowTicket;
    type Entry<'t> = Entry<'t, K, V>;

    type Hasher = FlowHasher;

    #[inline(always)]
    fn shorten(key: &K) -> Option<Near<K>> {
        let (near, far) = K::Parts::split(key);
        far.is_none().then_some(near)
    }
    /// A key without a far part reads none: zeros stand for it.
    #[inline(always)]
    fn lengthen(near: Near<K>) -> K {
        K::Parts::join(near, Zeroable::zero)
    }

    #[inline(always)]
    fn hasher(&self) -> FlowHasher {
        let groups = self.groups.start().as_ptr().cast_const();
        FlowHasher { secret: self.secret, groups, hashed_slots: self.hashed_slots }
    }

    #[inline(always)]
    fn hash(hasher: &FlowHasher, key: &K) -> FlowTicket {
        let hash = key.hash(&hasher.secret);
        // Somewhere in each group, which lies in one cache line.
        let [first, second] = Home::slots(hash, hasher.hashed_slots);
        prefetch(hasher.groups.cast::<u16>().wrapping_add(first));
        prefetch(hasher.groups.cast::<u16>().wrapping_add(second));
        FlowTicket(hash)
    }

    #[inline(always)]
    fn prefetch(&self, key: &K, ticket: &mut FlowTicket) {
        Prefetch::to(self).look(&Some(key), ticket);
    }

    #[inline(always)]
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<K>, &'k mut FlowTicket)>,
        missed: &mut Missed,
    ) {
        let prefetch = Prefetch::to(self);
        missed.list(keys, |(asked, ticket)| !prefetch.look(&asked, ticket));
    }

    #[inline(always)]
    fn prefetch_missed(&self, key: &K) {
        self.ask_for_room(key);
    }

    #[inline(always)]
    fn tell(&mut self, now: u64) {
        if now >= self.clock.next_tick_at {
            self.turn(now);
        }
    }

    #[inline(always)]
    fn resolve(&mut self, key: K, ticket: FlowTicket) -> Entry<'_, K, V> {
        match self.hit(K::Parts::split(&key), ticket) {
            Some(slot) => Entry::Found(Occupied::new(self, slot, ticket.0 as u32)),
            None => self.resolve_elsewhere(key),
        }
    }

    #[inline(always)]
    fn resolve_elsewhere(&mut self, key: K) -> Entry<'_, K, V> {
        // By the hash, which is made of registers: a key that has just been written is not to be read back.
        let hash = key.hash(&self.secret);
        match self.new_place(hash) {
            Some(place) => Entry::Vacant(Vacant::new(self, key, place)),
            None => {
                let answer = self.search(&key, hash);
                self.entry(key, answer)
            }
        }
    }

    #[inline(always)]
    fn resolve_here(&mut self, near: Near<K>, ticket: FlowTicket) -> Option<Entry<'_, K, V>> {
        let slot = self.hit((near, None), ticket)?;
        Some(Entry::Found(Occupied::new(self, slot, ticket.0 as u32)))
    }

    #[inline(always)]
    fn resolve_there(&mut self, key: &K, ticket: FlowTicket) -> Option<Entry<'_, K, V>> {
        let slot = self.hit(K::Parts::split(key), ticket)?;
        Some(Entry::Found(Occupied::new(self, slot, ticket.0 as u32)))
    }
}

impl<K: Key, V: 'static> Drop for FlowTable<K, V> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<V>() {
            self.clear();
        }
    }
}

impl<K: Key, V: 'static> std::fmt::Debug for FlowTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowTable")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
