//! Counts of matches by rule and address, for rules with a threshold.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{FlowTable, FlowTableConfig, Full, Table, TableError};
use netbricks_core::{Declared, Mobility, ShuffleKey, StateTerms, StoredFlow, Succession, TableKey};

use super::language::{Threshold, ThresholdKind, Track};

/// The counts of one worker. When it is full, the oldest count gives its place.
pub(super) struct Thresholds(FlowTable<StoredFlow, (u64, u64)>);

/// The effect of a threshold on a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// An event tells of it.
    Yes,
    /// It counts, and no event tells of it.
    No,
    /// It does not count as a match.
    NoMatch,
}

impl Thresholds {
    pub(super) fn new(capacity: usize, seed: u64) -> Result<Self, TableError> {
        let config = FlowTableConfig { capacity, idle_timeout: None, full: Full::EvictOldest, seed };
        FlowTable::new(config).map(Self)
    }

    /// Counts a match of the rule with this sid at time `now` (ns).
    pub(super) fn count(&mut self, threshold: &Threshold, sid: u32, flow: &FlowKey, now: u64) -> Told {
        let none = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let (from, to) = match threshold.track {
            Track::Source => (flow.source(), none),
            Track::Destination => (none, flow.destination()),
            Track::Both => (flow.source(), flow.destination()),
            Track::Rule => (none, none),
        };
        // The sid stands in the ports of a key that no packet has.
        let key = FlowKey::new(from, to, (sid >> 16) as u16, sid as u16, 255);
        let Some((since, count)) = self.0.lookup(key.store(), now).or_insert_with(|| (now, 0)) else {
            return Told::Yes;
        };
        if now.saturating_sub(*since) >= threshold.time {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let wanted = u64::from(threshold.count);
        let told = match threshold.kind {
            ThresholdKind::Limit => *count <= wanted,
            ThresholdKind::Threshold => {
                let is = *count >= wanted;
                if is {
                    *count = 0;
                }
                is
            }
            ThresholdKind::Both => *count == wanted,
            ThresholdKind::Filter => {
                return if *count > wanted { Told::Yes } else { Told::NoMatch };
            }
        };
        if told { Told::Yes } else { Told::No }
    }
}

/// Counts belong to no flow. They are not exported: after a change of the function they begin again.
impl Declared for Thresholds {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(format!("counts come without bytes, found {}", bytes.len()))
        }
    }
    fn succession(&self, _: &StateTerms) -> Succession {
        Succession::anew("counts belong to the rules that made them")
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0.len() as u64, self.0.capacity() as u64)
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
}
