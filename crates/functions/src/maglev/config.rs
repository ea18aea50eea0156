//! Settings of `maglev`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{AddrParseError, IpAddr};

use netbricks_core::declaration::Declared;
use netbricks_core::live::{Entries, Written, follow_weights};
use netbricks_core::tables::MaglevTable;
use netbricks_core::units::{Duration, list_from_text};
use netbricks_core::{ConfigWarning, InvalidSetting, LiveSettings, Settings};
use serde::de::Deserializer;

use super::backend::{Backend, BackendError};
use super::backends::{First, Snapshot, given_twice, too_many_slots};

netbricks_core::settings! {
    /// Settings of `maglev`.
    #[derive(Clone, Debug)]
    pub struct MaglevConfig {
        /// The servers that get the packets.
        ///
        /// Weights are 0 to 1,000,000; the default is 1. With 0 a backend drains: it keeps its flows and gets
        /// no new ones.
        pub backends: Vec<Backend> = required, "list of \"NAME ETHERNET-ADDRESS [WEIGHT]\"", read by backends;
        /// The virtual addresses; `[]` takes every IP packet except IPv6 neighbour discovery.
        pub addresses: Vec<IpAddr> = [], "list of IP addresses", read by addresses;
        /// Connections that each worker remembers.
        pub capacity: usize = 65_536, "whole number, connections";
        /// After this time without a packet, a connection is forgotten.
        pub idle: Duration = "5 min", "duration: a number and ns, us, ms, s, min, h or d";
        /// Slots of the table; should be at least a hundred times the number of backends.
        pub slots: usize = 65_537, "prime number, up to 131_101";
        /// A secret that is the same on all nodes, which must be of one version.
        ///
        /// An attacker who knows it can choose flows that go to one backend.
        pub key: String = "", "text";
    }
}

/// Reads a list of backends; an error points at a backend that is given twice.
fn backends<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Backend>, D::Error> {
    let mut names = BTreeSet::new();
    list_from_text(deserializer, |text| {
        let backend: Backend = text.parse().map_err(|BackendError { problem }| problem)?;
        if !names.insert(backend.name.clone()) {
            return Err(given_twice(&backend.name));
        }
        Ok(backend)
    })
}

fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    list_from_text(deserializer, |text| {
        let address: IpAddr = text.parse().map_err(|error: AddrParseError| error.to_string())?;
        if address.is_multicast() { Err(is_group(address)) } else { Ok(address) }
    })
}

fn is_group(address: IpAddr) -> String {
    format!("holds {address}, which is a group's: take it out")
}

impl Default for MaglevConfig {
    fn default() -> Self {
        Self::with_defaults((Vec::new(),))
    }
}

/// From a millisecond to a day: less is no connection, and more is no timeout.
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);
/// Virtual addresses are compared one by one.
const MOST_ADDRESSES: usize = 64;

impl MaglevConfig {
    pub(super) fn state(&self) -> First {
        First { backends: self.backends.clone(), slots: self.slots, key: self.key.clone() }
    }
}

impl Settings for MaglevConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.addresses.len() > MOST_ADDRESSES {
            let problem =
                format!("must hold at most {MOST_ADDRESSES} addresses, found {}", self.addresses.len());
            return refused("addresses", problem);
        }
        if let Some(group) = self.addresses.iter().find(|address| address.is_multicast()) {
            return refused("addresses", is_group(*group));
        }
        let twice = |(at, address): &(usize, &IpAddr)| self.addresses[..*at].contains(address);
        if let Some((_, address)) = self.addresses.iter().enumerate().find(twice) {
            return refused("addresses", format!("holds {address} twice: take one out"));
        }
        if self.capacity == 0 || self.capacity > 1 << 24 {
            let problem = format!("must be 1 to 16,777,216 connections, found {}", self.capacity);
            return refused("capacity", problem);
        }
        if !IDLE.contains(&self.idle) {
            return refused("idle", format!("must be \"1 ms\" to \"1 d\", found \"{}\"", self.idle));
        }
        if let Some(problem) = too_many_slots(self.slots) {
            return refused("slots", problem);
        }
        if let Err(error) = MaglevTable::new(self.slots, &netbricks_core::tables::Secret::from_seed(0), &[]) {
            return refused("slots", format!("cannot be {}: {error}", self.slots));
        }
        if self.backends.is_empty() {
            let problem = "must hold at least one backend as \"web-1 02:00:00:00:00:01\", found []".into();
            return refused("backends", problem);
        }
        match Snapshot::first(&self.state()) {
            Ok(_) => Ok(()),
            Err(problem) => refused("backends", format!("cannot be: {problem}")),
        }
    }

    /// Warns of backends with the same address, which are one machine, and of backends without a slot.
    fn warnings(&self) -> Vec<ConfigWarning> {
        let mut first: BTreeMap<[u8; 6], &str> = BTreeMap::new();
        let warnings = self.backends.iter().enumerate().filter_map(|(item, Backend { name, mac, .. })| {
            let other = match first.entry(mac.octets()) {
                Entry::Vacant(place) => {
                    place.insert(name);
                    return None;
                }
                Entry::Occupied(place) => *place.get(),
            };
            let problem = format!(
                "backend `{name}` has the Ethernet address of `{other}`, {mac}: one of the two addresses is wrong, or one machine \
                 gets the share of both"
            );
            Some(ConfigWarning { key: "backends", item: Some(item), problem })
        });
        let drained = !self.backends.is_empty() && self.backends.iter().all(|backend| backend.weight == 0);
        let drained = drained.then(|| {
            "all backends have weight 0, so that new flows are dropped (no-route): give one a weight of 1 or more".to_owned()
        });
        let starved = Snapshot::first(&self.state()).ok().and_then(|first| first.starved());
        let whole = drained.or(starved).map(|problem| ConfigWarning { key: "backends", item: None, problem });
        warnings.chain(whole).collect()
    }
}

impl LiveSettings for MaglevConfig {
    const LIVE: &'static [&'static str] = &["backends"];
    const ENTRIES: &'static str = "backends";
    const ADD: &'static str = "add";
    const REMOVE: &'static str = "remove";

    fn entries(&self) -> Entries {
        self.backends.iter().map(|backend| (backend.name.clone(), backend.to_string())).collect()
    }

    fn follow(entries: &mut Entries, written: Written<'_>) -> bool {
        follow_weights::<Self, _>(entries, written, |backend, weight| Backend { weight, ..backend })
    }
}
