//! Iteration over all flows, at once or a bounded number of slots at a time between packets.

use super::FlowTable;
use super::MAXIMUM_WORK;
use crate::group::WIDTH;
use crate::hash::Key;

/// The position of a stepwise walk through a table; [`Cursor::default`] is its beginning.
///
/// Flows never move. So a walk meets every flow that stays during all of it exactly once, also when others are inserted
/// and removed meanwhile. A flow that comes or goes during the walk is met at most once each time that it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    slot: usize,
}

impl Cursor {
    /// Whether the walk has been at a slot.
    pub(super) fn has_passed(self, slot: usize) -> bool {
        slot < self.slot
    }
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// All flows that are not expired, in no order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { table: self, group: 0, occupied: self.groups[0].occupied() }
    }

    /// Removes the flows for which `keep` answers `false`. Goes through the whole table at once: beside packets, use
    /// [`walk`](Self::walk).
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut cursor = Cursor::default();
        while self.walk(&mut cursor, MAXIMUM_WORK, &mut keep) {}
    }

    /// Continues a walk through the flows that are not expired, and removes those for which `keep` returns `false`.
    ///
    /// It visits at most `budget` slots, and never more than [`MAXIMUM_WORK`]. Returns whether there is more to come.
    ///
    /// ```
    /// use netbricks_tables::{Cursor, FlowTable, FlowTableConfig, Table};
    ///
    /// let mut flows: FlowTable<u32, u32> = FlowTable::new(FlowTableConfig::new(1_000))?;
    /// flows.lookup_bulk(&[1, 2, 3], 0, |at, entry| { entry.or_insert_with(|| at as u32); });
    /// let mut cursor = Cursor::default();
    /// while flows.walk(&mut cursor, 64, |key, _| *key != 2) {
    ///     // Packets may be looked up, inserted and removed here.
    /// }
    /// assert_eq!((flows.len(), flows.get(&2)), (2, None));
    /// # Ok::<(), netbricks_tables::TableError>(())
    /// ```
    pub fn walk(
        &mut self,
        cursor: &mut Cursor,
        budget: usize,
        mut keep: impl FnMut(&K, &mut V) -> bool,
    ) -> bool {
        if self.move_on(budget.min(MAXIMUM_WORK)) {
            return true;
        }
        let end = self.slots.len().min(cursor.slot.saturating_add(budget.min(MAXIMUM_WORK)));
        while cursor.slot < end {
            let index = cursor.slot;
            // Before `keep` is called: one that panics doesn't meet the same flow again.
            cursor.slot += 1;
            self.worked(1);
            let clock = &self.clock;
            if self.slots.get(index).is_none_or(|slot| clock.is_over(slot)) {
                continue;
            }
            if self.slots.pair_mut(index).is_some_and(|(key, value)| !keep(&key, value)) {
                drop(self.take(index));
            }
        }
        cursor.slot < self.slots.len()
    }
}

/// The flows of a table, see [`FlowTable::iter`].
pub struct Iter<'t, K: Key, V: 'static> {
    table: &'t FlowTable<K, V>,
    group: usize,
    /// Slots of this group that are still to come.
    occupied: u32,
}

impl<'t, K: Key, V: 'static> Iterator for Iter<'t, K, V> {
    type Item = (K, &'t V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(index) = self.next_slot() {
                return self.table.slots.pair(index);
            }
            *self = self.table.before.as_ref()?.iter();
        }
    }
}

impl<K: Key, V: 'static> Iter<'_, K, V> {
    /// The index of the next live slot that isn't expired.
    pub(super) fn next_slot(&mut self) -> Option<usize> {
        loop {
            while self.occupied == 0 {
                self.group += 1;
                self.occupied = self.table.groups.get(self.group)?.occupied();
            }
            let index = self.group * WIDTH + self.occupied.trailing_zeros() as usize;
            self.occupied &= self.occupied - 1;
            if self.table.slots.get(index).is_some_and(|slot| !self.table.clock.is_over(slot)) {
                return Some(index);
            }
        }
    }
}

impl<'t, K: Key, V: 'static> IntoIterator for &'t FlowTable<K, V> {
    type Item = (K, &'t V);
    type IntoIter = Iter<'t, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
