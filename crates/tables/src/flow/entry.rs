//! The result of a lookup: the flow, the place where it may be put, or neither.

use std::hint::cold_path;
use std::ptr::NonNull;

use super::slots::{NEVER, Slot};
use super::{Cursor, FlowTable};
use crate::hash::Key;

/// The result of a lookup in a flow table.
pub enum Entry<'t, K: Key, V: 'static> {
    /// The flow; its last-seen time is now.
    Found(Occupied<'t, K, V>),
    /// No such flow (or one that expired), and room for it.
    Vacant(Vacant<'t, K, V>),
    /// No such flow, and no room for it by the table's policy: counted as refused.
    Full,
}

impl<'t, K: Key, V: 'static> Entry<'t, K, V> {
    /// The flow's value, new from `make` if it isn't there; `None` when the table is full.
    #[inline(always)]
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> Option<&'t mut V> {
        match self {
            Entry::Found(flow) => Some(flow.into_mut()),
            Entry::Vacant(place) => Some(place.insert(make())),
            Entry::Full => None,
        }
    }

    /// The key that was looked up; `None` when the table is full.
    #[inline]
    pub fn key(&self) -> Option<K> {
        match self {
            Entry::Found(flow) => flow.key(),
            Entry::Vacant(place) => Some(place.key),
            Entry::Full => None,
        }
    }

    /// The flow's value, if it is there.
    #[inline(always)]
    pub fn found(self) -> Option<&'t mut V> {
        match self {
            Entry::Found(flow) => Some(flow.into_mut()),
            Entry::Vacant(_) | Entry::Full => None,
        }
    }
}

/// A flow in the table.
pub struct Occupied<'t, K: Key, V: 'static> {
    table: &'t mut FlowTable<K, V>,
    /// The table's slot `index`, which is live: found out before, so that nothing has to be checked again.
    slot: NonNull<Slot<K, V>>,
    index: u32,
}

impl<'t, K: Key, V: 'static> Occupied<'t, K, V> {
    /// `slot` must be the table's slot `index`, and live.
    #[inline(always)]
    pub(super) fn new(table: &'t mut FlowTable<K, V>, slot: NonNull<Slot<K, V>>, index: u32) -> Self {
        debug_assert!(table.slots.get(index as usize).is_some_and(|slot| slot.is_live()));
        Self { table, slot, index }
    }

    /// The flow's key, put together again.
    fn key(&self) -> Option<K> {
        self.table.slots.key(self.index as usize)
    }

    /// The value.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> &V {
        // SAFETY: the slot belongs to the table that `self` borrows, and nothing else lends it out meanwhile.
        let slot = unsafe { self.slot.as_ref() };
        // SAFETY: `new` was given a live slot, and `remove` consumes `self`.
        unsafe { slot.value_unchecked() }
    }

    /// The value, to change it.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: as in `get`, and `&mut self` makes it unique.
        let slot = unsafe { self.slot.as_mut() };
        // SAFETY: as in `get`.
        unsafe { slot.value_unchecked_mut() }
    }

    /// The value for as long as the table was borrowed.
    #[inline(always)]
    #[must_use]
    pub fn into_mut(mut self) -> &'t mut V {
        // SAFETY: the slot belongs to the table, which stays borrowed for `'t` by what is returned.
        let slot = unsafe { self.slot.as_mut() };
        // SAFETY: as in `get`.
        unsafe { slot.value_unchecked_mut() }
    }

    /// Whether a walk has been at the flow's place: it does not meet the flow any more.
    ///
    /// With it, values that a [walk](FlowTable::walk) collects can be kept right while flows come and go.
    #[must_use]
    pub fn is_behind(&self, walk: Cursor) -> bool {
        walk.has_passed(self.index as usize)
    }

    /// Takes the hit back in the counters alone, for a caller that will look the flow up again.
    ///
    /// An entry that was inserted, not found, has no hit to take back.
    #[cold]
    #[inline(never)]
    pub fn forget_hit(self) {
        self.table.counters.hits = self.table.counters.hits.saturating_sub(1);
    }

    /// Ends the flow.
    pub fn remove(self) -> V {
        let (_, value) = self.table.take(self.index as usize).expect("an occupied entry's slot is live");
        value
    }

    /// Sets the timeout: the flow expires after `timeout` nanoseconds without a hit.
    ///
    /// Costs a comparison when nothing changes, and a timer when the flow's end comes nearer.
    #[inline]
    pub fn set_timeout(&mut self, timeout: u64) {
        let ticks = self.table.clock.ticks(timeout);
        self.change_timeout(ticks);
    }

    /// From now on the flow doesn't expire.
    pub fn keep_forever(&mut self) {
        self.change_timeout(NEVER);
    }

    #[inline]
    fn change_timeout(&mut self, ticks: u32) {
        // SAFETY: as in `get_mut`.
        let slot = unsafe { self.slot.as_mut() };
        if slot.timeout() != ticks {
            slot.set_timeout(ticks);
            self.table.file_timer(self.index as usize);
        }
    }
}

/// A place for a flow that isn't in the table.
pub struct Vacant<'t, K: Key, V: 'static> {
    table: &'t mut FlowTable<K, V>,
    key: K,
    place: Place,
}

/// Where a new flow goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) tag: u16,
    /// The slot whose flow has to leave first, if any.
    pub(super) displaces: Option<u32>,
}

impl<'t, K: Key, V: 'static> Vacant<'t, K, V> {
    #[inline(always)]
    pub(super) fn new(table: &'t mut FlowTable<K, V>, key: K, place: Place) -> Self {
        Self { table, key, place }
    }

    /// The flow that an insertion would end to make room: expired or, by the policy [`EvictOldest`], old.
    ///
    /// [`EvictOldest`]: super::Full::EvictOldest
    #[must_use]
    pub fn displaces(&self) -> Option<(K, &V)> {
        self.table.slots.pair(self.place.displaces? as usize)
    }

    /// Whether a walk has been at the place of the flow that is [displaced](Self::displaces).
    #[must_use]
    pub fn displaces_behind(&self, walk: Cursor) -> bool {
        self.place.displaces.is_some_and(|index| walk.has_passed(index as usize))
    }

    /// Puts the flow in, seen now, with the table's timeout.
    // Out of line, as new flows are few: a user function that handles them too stays small enough to be inlined.
    #[inline(never)]
    pub fn insert(self, value: V) -> &'t mut V {
        self.insert_entry(value).into_mut()
    }

    /// Inserts as [`insert`](Self::insert) and returns the entry, for example to set its timeout.
    ///
    /// It is inlined, for functions that see only new flows.
    #[inline(always)]
    pub fn insert_entry(self, value: V) -> Occupied<'t, K, V> {
        self.replace(value).1
    }

    /// Inserts as [`insert_entry`](Self::insert_entry) and returns the flow that it [displaced](Self::displaces).
    ///
    /// For values that stand for something that has to be given back, such as a port of a NAT.
    #[inline(always)]
    pub fn replace(self, value: V) -> (Option<(K, V)>, Occupied<'t, K, V>) {
        let Self { table, key, place } = self;
        let displaced = place.displaces.and_then(|index| {
            cold_path();
            table.end(index as usize)
        });
        let slot = table.put(place, key, value);
        (displaced, Occupied::new(table, slot, place.index))
    }
}

impl<K: Key, V: std::fmt::Debug + 'static> std::fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Entry::Found(flow) => f.debug_tuple("Found").field(flow.get()).finish(),
            Entry::Vacant(place) => f.debug_tuple("Vacant").field(&place.place).finish(),
            Entry::Full => f.write_str("Full"),
        }
    }
}
