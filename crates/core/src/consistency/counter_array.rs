//! Counters by key as declared state, and the entries of a lookup under each consistency.

use std::any::Any;

use netbricks_tables::{
    CounterChange, CounterOutcome, Counters, Encode, Entry, FlowTable, FlowTableConfig, Key,
    KeyedCounterArray,
};

use super::{Access, Bounded, CannotWrite, Contents, Shown};
use crate::operators::Expiring;
use crate::shuffle::{Part, ShuffleKey};
use crate::state::{Declared, Mobility, StateTerms, Succession};

/// A key's counter in a [`KeyedCounterArray`] of any consistency.
///
/// It is for a function that leaves the consistency open. Each addition is a change of its own. So additions of several
/// workers add up, also where one reads before another has published.
///
/// ```
/// use netbricks_core::consistency::{BoundedInconsistency, Consistency, Lookable, NoExternalAccess, Strict, TallyEntry};
/// use netbricks_core::packet::{Ip, Link};
/// use netbricks_core::tables::{FlowTableConfig, Full, KeyedCounterArray};
/// use netbricks_core::view::{IpRewrite, Metadata};
/// use netbricks_core::{DropReason, Function, Input, Operator, StoredFlow, Worker};
///
/// type Bytes = KeyedCounterArray<StoredFlow>;
///
/// /// Lets 100 bytes of each flow pass, and as many again after a minute's silence.
/// fn quota<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
/// where
///     C: Consistency,
///     C::Handle<Bytes>: Lookable<Table = Bytes>,
///     for<'e> <C::Handle<Bytes> as Lookable>::Entry<'e>: TallyEntry,
/// {
///     let config = FlowTableConfig {
///         idle_timeout: Some(60_000_000_000),
///         full: Full::EvictOldest,
///         ..FlowTableConfig::new(64)
///     };
///     let bytes = worker.state::<Bytes, C>("bytes", consistency, config);
///     input
///         .parse::<Link>()
///         .parse::<Ip>()
///         .lookup(&bytes, |packet| packet.flow_key(), |packet, entry| {
///             // Where it could not be counted this packet is free.
///             entry.add(packet.frame_len() as u64).ok().flatten().unwrap_or(0)
///         })
///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 100)
///         .done()
/// }
///
/// // Of 42 bytes each.
/// let packets = || [(); 3].map(|()| netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2));
/// let own = netbricks_testkit::run_with(|input, worker| quota(input, worker, NoExternalAccess), packets());
/// let strict = netbricks_testkit::run_with(|input, worker| quota(input, worker, Strict), packets());
/// let bounded = BoundedInconsistency { updates: 8 };
/// let bounded = netbricks_testkit::run_with(move |input, worker| quota(input, worker, bounded), packets());
/// assert_eq!([own, strict, bounded].map(|report| report.dropped(DropReason::RateLimited)), [1; 3]);
/// ```
pub trait TallyEntry {
    /// The value, if there is a counter.
    fn count(&self) -> Option<u64>;

    /// Adds to the counter, and makes it where there is none; returns its new value.
    ///
    /// `None` where the table is full, by its policy.
    ///
    /// # Errors
    /// When this worker cannot write now; nothing has changed. Private and strict counters can always be written.
    fn add(self, by: u64) -> Result<Option<u64>, CannotWrite>;
}

impl<K: Key> TallyEntry for Entry<'_, K, u64> {
    #[inline(always)]
    fn count(&self) -> Option<u64> {
        match self {
            Entry::Found(entry) => Some(*entry.get()),
            Entry::Vacant(_) | Entry::Full => None,
        }
    }

    #[inline(always)]
    fn add(self, by: u64) -> Result<Option<u64>, CannotWrite> {
        let counter = self.or_insert_with(|| 0);
        Ok(counter.map(|counter| {
            *counter = counter.saturating_add(by);
            *counter
        }))
    }
}

/// A key's counter under [`BoundedInconsistency`](super::BoundedInconsistency), as this worker sees it.
///
/// An addition goes through the state's one writer. This worker is the writer until its batch ends, if no other is.
pub struct BoundedTally<'e, K: Key + Encode + Send + Sync> {
    count: Option<u64>,
    key: K,
    tallies: &'e Bounded<KeyedCounterArray<K>>,
    now: u64,
}

impl<K: Key + Encode + Send + Sync> TallyEntry for BoundedTally<'_, K> {
    #[inline]
    fn count(&self) -> Option<u64> {
        self.count
    }

    fn add(self, by: u64) -> Result<Option<u64>, CannotWrite> {
        let Self { key, tallies, now, .. } = self;
        match tallies.update(CounterChange::Add { key, by, timeout: None, now })? {
            CounterOutcome::Added(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }
}

impl<K: Key + Encode + Send + Sync> Shown for KeyedCounterArray<K> {
    type Seen<'e> = BoundedTally<'e, K>;
    #[inline(always)]
    fn shown<'e>(
        value: Option<&'e u64>,
        key: K,
        tallies: &'e Bounded<Self>,
        now: u64,
    ) -> BoundedTally<'e, K> {
        BoundedTally { count: value.copied(), key, tallies, now }
    }
}

impl<K: Key + Encode> Expiring for KeyedCounterArray<K> {
    #[inline(always)]
    fn expire(&mut self, now: u64, packets: usize) {
        Expiring::expire(self.table_mut(), now, packets);
    }
}

impl<K: Key + Encode + Send + Sync> Contents for KeyedCounterArray<K> {
    type Config = FlowTableConfig;
    fn seeded(config: FlowTableConfig, seed: u64) -> FlowTableConfig {
        config.seeded(seed)
    }
    fn make(config: &FlowTableConfig) -> Result<Self, String> {
        Self::new(*config).map_err(|error| error.to_string())
    }
    const STEP_BYTES: usize = FlowTable::<K, u64>::STEP_BYTES;
    fn export_step(&self, slot: usize, bytes: &mut Vec<u8>) -> Option<usize> {
        self.table().encode_step(slot, bytes)
    }
    fn export_end(bytes: &mut Vec<u8>) {
        FlowTable::<K, u64>::encode_end(bytes);
    }
    fn least() -> Self {
        Self::new(FlowTableConfig::new(1)).expect("there is memory for one counter")
    }
}

/// The declared state is the flow table in it.
impl<K: Key + Encode> Declared for KeyedCounterArray<K> {
    fn export(&self) -> Vec<u8> {
        Declared::export(self.table())
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        Declared::import(self.table_mut(), bytes, now)
    }
    fn occupancy(&self) -> (u64, u64) {
        self.table().occupancy()
    }
    fn terms(&self) -> StateTerms {
        Declared::terms(self.table())
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        Declared::succession(self.table(), before)
    }
    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        old.downcast_mut::<Self>().is_some_and(|old| Declared::take_over(self.table_mut(), old.table_mut()))
    }
    fn move_on(&mut self) -> bool {
        Declared::move_on(self.table_mut())
    }
    fn flow_counters(&self) -> Option<Counters> {
        self.table().flow_counters()
    }
    fn mobility(&self, by: ShuffleKey) -> Mobility {
        self.table().mobility(by)
    }
    fn take_part(&mut self, part: &Part, place: usize) -> (Vec<u8>, Option<usize>) {
        self.table_mut().take_part(part, place)
    }
}
