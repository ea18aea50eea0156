//! Tables that readers look up without changing them, while their one writer changes another copy.

use std::hash::Hash;

use crate::flow::{FlowTable, FlowTicket};
use crate::hash::Key;
use crate::lpm::Routes;
use crate::table::Table;

/// A table that can be looked up by a shared reference.
///
/// The steps are those of [`Table`]: `hash`, `prefetch`, then [`show`].
///
/// [`show`]: Self::show
pub trait ReadTable: Table {
    /// The value under a key: a copy, so that it outlives the read.
    type Value: Copy + 'static;

    /// The value for `key` as of `now` (ns), or of the table's own time if that is later.
    ///
    /// It refreshes and counts nothing. The ticket is a hint, as for [`resolve`](Table::resolve).
    fn show(&self, key: &Self::Key, ticket: Self::Ticket, now: u64) -> Option<Self::Value>;
}

impl<K: Key, V: Copy + 'static> ReadTable for FlowTable<K, V> {
    type Value = V;
    #[inline(always)]
    fn show(&self, key: &K, _: FlowTicket, now: u64) -> Option<V> {
        self.get_at(key, now).copied()
    }
}

impl<V: Copy + Eq + Hash + 'static> ReadTable for Routes<V> {
    type Value = V;
    #[inline(always)]
    fn show(&self, address: &Self::Key, ticket: Self::Ticket, _: u64) -> Option<V> {
        self.known(*address, ticket).copied()
    }
}
