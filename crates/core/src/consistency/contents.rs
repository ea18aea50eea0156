//! The containers as declared state.

use std::hash::Hash;

use netbricks_tables::{
    CounterArray, Counters, Encode, FlowTable, FlowTableConfig, Key, LpmConfig, RingLog, Routes,
};

use super::Contents;
use crate::state::{Declared, StateTerms, Succession};

impl<K, V> Contents for FlowTable<K, V>
where
    K: Key + Encode + Send + Sync,
    V: Encode + Copy + Send + Sync + 'static,
{
    type Config = FlowTableConfig;
    fn seeded(config: FlowTableConfig, seed: u64) -> FlowTableConfig {
        config.seeded(seed)
    }
    fn make(config: &FlowTableConfig) -> Result<Self, String> {
        Self::new(*config).map_err(|error| error.to_string())
    }
    const STEP_BYTES: usize = Self::STEP_BYTES;
    fn export_step(&self, slot: usize, bytes: &mut Vec<u8>) -> Option<usize> {
        self.encode_step(slot, bytes)
    }
    fn export_end(bytes: &mut Vec<u8>) {
        Self::encode_end(bytes);
    }
    fn least() -> Self {
        Self::new(FlowTableConfig::new(1)).expect("there is memory for a table of one entry")
    }
}

/// The configuration for IPv4 and for IPv6; a version without a size takes no prefixes.
impl<V: Copy + Eq + Hash + Encode + Send + Sync + 'static> Contents for Routes<V> {
    type Config = (Option<LpmConfig>, Option<LpmConfig>);
    fn make((v4, v6): &Self::Config) -> Result<Self, String> {
        Self::new(*v4, *v6).map_err(|error| error.to_string())
    }
    fn least() -> Self {
        Self::none()
    }
}

impl<V: Copy + Eq + Hash + Encode + 'static> Declared for Routes<V> {
    fn export(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        self.decode(bytes, now).map(|_| ()).map_err(|error| error.to_string())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.len() as u64, self.capacity() as u64)
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        match before.is_of::<Self>() {
            true => Succession::copied_into(self.capacity() as u64, before, "the routes have no other way"),
            false => Succession::unlike(),
        }
    }
    fn flow_counters(&self) -> Option<Counters> {
        Some(self.counters())
    }
}

/// The number of items, and the time in ns after which they end, if ever.
impl<T: Copy + Encode + Send + Sync + 'static> Contents for RingLog<T> {
    type Config = (usize, Option<u64>);
    fn make((capacity, timeout): &Self::Config) -> Result<Self, String> {
        if *capacity == 0 {
            return Err("a ring's capacity is 0 items: give it 1 or more".into());
        }
        Self::try_new(*capacity, *timeout).map_err(|error| format!("a ring of {capacity} items {error}"))
    }
    fn least() -> Self {
        Self::new(1, None)
    }
}

impl<T: Copy + Encode + 'static> Declared for RingLog<T> {
    fn export(&self) -> Vec<u8> {
        self.encode()
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        self.decode(bytes, now).map(|_| ()).map_err(|error| error.to_string())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.len() as u64, self.capacity() as u64)
    }
    fn flow_counters(&self) -> Option<Counters> {
        Some(Counters { evicted: self.evicted(), expired: self.expired(), ..Counters::default() })
    }
}

/// The number of counters.
impl Contents for CounterArray {
    type Config = usize;
    fn make(capacity: &usize) -> Result<Self, String> {
        if *capacity == 0 {
            return Err("there are 0 counters: give it 1 or more".into());
        }
        Self::try_new(*capacity).map_err(|error| format!("an array of {capacity} counters {error}"))
    }
    fn least() -> Self {
        Self::new(1)
    }
}

impl Declared for CounterArray {
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(self.all().len() as u64).sized(size_of::<u64>())
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        match self.all().len() as u64 {
            _ if !before.is_of::<Self>() => Succession::unlike(),
            counters if counters == before.entries() => Succession::copied("counters have no other way"),
            counters => {
                Succession::anew(format!("there are {counters} instead of {} counters", before.entries()))
            }
        }
    }
    fn export(&self) -> Vec<u8> {
        self.encode()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        self.decode(bytes).map(|_| ()).map_err(|error| error.to_string())
    }
    fn occupancy(&self) -> (u64, u64) {
        let used = self.all().iter().filter(|value| **value > 0).count();
        (used as u64, self.all().len() as u64)
    }
}
