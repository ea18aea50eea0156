//! Connections that are cut and have no place among the others: they came from another worker and found no
//! room.

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Table};

use crate::Cut;
use netbricks_core::StoredFlow;
use netbricks_core::state::TableKey;

/// A bounded set of cut connections. It takes no memory before the first one.
#[derive(Default)]
pub(super) struct CutConnections(Option<FlowTable<StoredFlow, u8>>);

const RESET: u8 = 0;
const SILENCE: u8 = 1;

impl CutConnections {
    /// Adds a connection, of `most` at most, until it was silent for `idle` (ns).
    ///
    /// When there are too many, an old one is forgotten. Where there is no memory for any, this one is
    /// forgotten.
    pub(super) fn add(&mut self, flow: FlowKey, cut: Cut, [most, idle, now]: [u64; 3], seed: u64) {
        if self.0.is_none() {
            let capacity = most as usize;
            let config =
                FlowTableConfig { capacity, idle_timeout: Some(idle), full: Full::EvictOldest, seed };
            self.0 = FlowTable::new(config).ok();
        }
        let Some(table) = &mut self.0 else { return };
        if let Entry::Vacant(place) = table.lookup(flow.canonical().store(), now) {
            place.insert(if cut == Cut::Silence { SILENCE } else { RESET });
        }
    }

    /// How a connection was cut of which a segment came at `now` (ns), if it is in the set.
    ///
    /// Where the segment opens it `anew`, it leaves the set.
    pub(super) fn cut(&mut self, flow: FlowKey, anew: bool, now: u64) -> Option<Cut> {
        let table = self.0.as_mut().filter(|table| !table.is_empty())?;
        let known = match table.lookup(flow.canonical().store(), now) {
            Entry::Found(known) => known,
            Entry::Vacant(_) | Entry::Full => return None,
        };
        if anew {
            known.remove();
            return None;
        }
        Some(of(*known.get()))
    }

    /// Whether the set has this connection.
    pub(super) fn holds(&self, flow: FlowKey) -> bool {
        self.0.as_ref().is_some_and(|table| table.get(&flow.canonical().store()).is_some())
    }

    /// Forgets connections that were silent for too long at `now` (ns), of about `most`.
    pub(super) fn expire(&mut self, now: u64, most: usize) {
        if let Some(table) = &mut self.0 {
            table.expire(now, most);
        }
    }

    /// Takes out the connections for which `leaves` answers `true`.
    pub(super) fn take_where(&mut self, mut leaves: impl FnMut(FlowKey) -> bool) -> Vec<(FlowKey, Cut)> {
        let mut taken = Vec::new();
        if let Some(table) = &mut self.0 {
            table.retain(|stored, cut| {
                let flow = FlowKey::restore(*stored);
                let hold_times = !leaves(flow);
                if !hold_times {
                    taken.push((flow, of(*cut)));
                }
                hold_times
            });
        }
        taken
    }
}

fn of(cut: u8) -> Cut {
    if cut == SILENCE { Cut::Silence } else { Cut::Reset }
}
