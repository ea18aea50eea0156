//! The tables of a graph's nodes, for metrics.

use netbricks_tables::Counters;

use super::Graph;

/// A table that a node declared, with its occupancy and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// The node.
    pub node: String,
    /// The owner to whom the node is accounted.
    pub owner: u16,
    /// The table's name, such as `flows`.
    pub table: String,
    /// Whether workers share it: each of them tells the same.
    pub is_shared: bool,
    /// Its entries.
    pub entries: u64,
    /// The most entries that it holds.
    pub capacity: u64,
    /// Its events since it was made.
    pub counters: Counters,
}

impl Graph {
    /// The tables with counters that its nodes declared, in the order of adding.
    ///
    /// Nodes whose state has another form than declarations have none. It costs some work for each table, and none
    /// for each entry.
    pub fn tables(&self) -> Vec<TableStatus> {
        let mut tables = Vec::new();
        for slot in &self.slots {
            let declared = slot.ask_state(&self.panics, self.now(), |state| {
                state.declarations().map(|declared| declared.tables()).unwrap_or_default()
            });
            for (table, is_shared, (entries, capacity), counters) in declared.unwrap_or_default() {
                let (node, owner) = (slot.name.clone(), slot.owner);
                tables.push(TableStatus { node, owner, table, is_shared, entries, capacity, counters });
            }
        }
        tables
    }
}
