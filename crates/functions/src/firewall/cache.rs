//! The rules of recent flows, where all packets of a flow meet the same rule.
//!
//! A worker looks a flow up here before it searches the list. Nothing depends on it but time: a change of the list
//! empties it.

use netbricks_core::StoredFlow;
use netbricks_core::tables::{Entry, FlowHasher, FlowTable, FlowTableConfig, FlowTicket, Full, Table};

/// Flows with the places of their rules; it takes memory when it is first used.
pub(super) struct FlowCache {
    capacity: usize,
    seed: u64,
    /// The version of the list by which it was filled.
    version: u64,
    /// The place of a flow's rule from 1; 0 where none decides.
    table: Option<FlowTable<StoredFlow, u32>>,
}

impl FlowCache {
    /// A cache for so many flows; 0 is none.
    pub(super) const fn new(capacity: usize, seed: u64) -> Self {
        Self { capacity, seed, version: 0, table: None }
    }

    /// Makes it ready for lists of this version; `false` where there is none.
    pub(super) fn begin(&mut self, version: u64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        match &mut self.table {
            Some(table) if self.version != version => table.clear(),
            Some(_) => {}
            None => {
                let config = FlowTableConfig {
                    full: Full::EvictOldest,
                    seed: self.seed,
                    ..FlowTableConfig::new(self.capacity)
                };
                match FlowTable::new(config) {
                    Ok(table) => self.table = Some(table),
                    // Without memory the list is searched.
                    Err(_) => self.capacity = 0,
                }
            }
        }
        self.version = version;
        self.table.is_some()
    }

    /// The parameters of lookups.
    pub(super) fn hasher(&self) -> Option<FlowHasher> {
        self.table.as_ref().map(Table::hasher)
    }

    /// Begins a lookup.
    #[inline]
    pub(super) fn hash(hasher: &FlowHasher, flow: &StoredFlow) -> FlowTicket {
        <FlowTable<StoredFlow, u32> as Table>::hash(hasher, flow)
    }

    /// Asks memory for a flow's place.
    #[inline]
    pub(super) fn prefetch(&self, flow: &StoredFlow, ticket: &mut FlowTicket) {
        if let Some(table) = &self.table {
            table.prefetch(flow, ticket);
        }
    }

    /// The place of a flow's rule, or that none decides; `None` for a flow that is not here.
    #[inline]
    pub(super) fn get(&mut self, flow: StoredFlow, ticket: FlowTicket) -> Option<Option<u32>> {
        match self.table.as_mut()?.resolve(flow, ticket) {
            Entry::Found(known) => Some(known.get().checked_sub(1)),
            Entry::Vacant(_) | Entry::Full => None,
        }
    }

    /// Remembers a flow's rule.
    pub(super) fn put(&mut self, flow: StoredFlow, rule: Option<u32>) {
        let Some(table) = &mut self.table else { return };
        let place = rule.map_or(0, |rule| rule + 1);
        if let Entry::Vacant(vacant) = table.lookup(flow, 0) {
            vacant.insert(place);
        }
    }
}
