//! The second step of a lookup: tags tell where a flow seems to be, and its memory is asked for.

use std::marker::PhantomData;

use super::place::Home;
use super::slots::Slots;
use super::{FlowTable, FlowTicket};
use crate::group::{Group, WIDTH};
use crate::hash::Key;

/// What the step takes of a table, as local variables: while tickets are written, the compiler must suppose that the table
/// changes.
pub(super) struct Approach<'t, K, V> {
    /// One more than `hashed`.
    groups: &'t [Group],
    hashed: usize,
    slots: PhantomData<&'t Slots<K, V>>,
    first_slot: *const u8,
}

impl<'t, K: Key, V: 'static> Approach<'t, K, V> {
    #[inline(always)]
    pub(super) fn to(table: &'t FlowTable<K, V>) -> Self {
        let FlowTable { groups, hashed, slots, .. } = table;
        // `look` relies on it.
        assert!(*hashed < groups.len());
        Self { groups, hashed: *hashed, slots: PhantomData, first_slot: slots.start() }
    }

    /// The tags of a group that a [`Home`] named.
    #[inline(always)]
    fn group(&self, group: u32) -> &'t Group {
        debug_assert!((group as usize) < self.groups.len());
        // SAFETY: `Home::of` scales 32 bits to numbers below `hashed`, and there are more groups than that.
        unsafe { self.groups.get_unchecked(group as usize) }
    }

    /// Turns what a ticket knows from a hash into a slot.
    #[inline(always)]
    pub(super) fn look(&self, ticket: &mut FlowTicket) {
        // A ticket from elsewhere names some groups too, though not this key's.
        let Home { groups: [first, second], tag } = Home::of(ticket.0, self.hashed);
        let (a, b) = (self.group(first), self.group(second));
        let found = a.matches(tag) | b.matches(tag) << WIDTH;
        // No match gives a place as good as any: `resolve` will see that it isn't the flow's.
        let bit = found.trailing_zeros();
        let group = if bit < WIDTH as u32 { first } else { second };
        let slot = group * WIDTH as u32 + bit % WIDTH as u32;
        Slots::<K, V>::prefetch_from(self.first_slot, slot as usize);
        ticket.0 = u64::from(slot);
    }
}
