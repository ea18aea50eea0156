//! The second step of a lookup: tags tell where a flow seems to be, and its memory is asked for.

use std::hint::cold_path;

use super::expiry::TIMED;
use super::place::Home;
use super::slots::Slots;
use super::{FlowTable, FlowTicket};
use crate::group::{FREE, Group, WIDTH};
use crate::hash::Key;
use crate::parts::Parts;
use crate::prefetch::prefetch;
use crate::table::Asked;

/// The fields of a table that the prefetch step reads, as local variables.
///
/// While tickets are written, the compiler must assume that the table changes.
pub(super) struct Prefetch<'t, K: Key, V> {
    groups: &'t [Group],
    /// In the groups that a hash may name.
    hashed: u64,
    slots: &'t Slots<K, V>,
    first_slot: *const u8,
}

impl<'t, K: Key, V: 'static> Prefetch<'t, K, V> {
    #[inline(always)]
    pub(super) fn to(table: &'t FlowTable<K, V>) -> Self {
        let FlowTable { groups, hashed_slots, slots, .. } = table;
        // `look` relies on it.
        assert!(*hashed_slots <= (groups.len() * WIDTH) as u64);
        Self { groups, hashed: *hashed_slots, slots, first_slot: slots.start() }
    }

    /// The tags of the group whose first slot this is.
    ///
    /// # Safety
    /// It must be one's.
    #[inline(always)]
    unsafe fn group(&self, first: usize) -> &'t Group {
        // SAFETY: the caller says that a group begins there, which lies whole in the slice: each slot has two bytes of it.
        let group = unsafe { self.groups.as_ptr().byte_add(first * (Group::BYTES / WIDTH)) };
        // SAFETY: as above, and the slice is borrowed for as long as what is returned.
        unsafe { &*group }
    }

    /// The slot of this bit of two groups, whose first slots these are.
    #[inline(always)]
    fn slot([first, second]: [usize; 2], bit: u32) -> usize {
        // The processor cannot predict which of the two it is.
        let group = std::hint::select_unpredictable(bit < WIDTH as u32, first, second);
        group + bit as usize % WIDTH
    }

    /// Turns a ticket's hash into a slot; returns whether a flow seems to be there.
    #[inline(always)]
    pub(super) fn look(&self, asked: &impl Asked<K>, ticket: &mut FlowTicket) -> bool {
        // A ticket from elsewhere names some groups too, though not this key's.
        // By slots throughout: a group's number would be shifted there and back.
        // Written out: a call of `map` is not always inlined, and costs more than the rest.
        let [first, second] = Home::slots(ticket.0, self.hashed);
        let groups @ [first, second] = [first & !(WIDTH - 1), second & !(WIDTH - 1)];
        let tag = Home::tag(ticket.0);
        // SAFETY: `Home::slots` scales 64 bits to numbers below `self.hashed`, which is no more than the groups have
        // (`to`), and rounded down to a group's size, a power of two, they are where one begins.
        let a = unsafe { self.group(first) };
        // SAFETY: as above.
        let b = unsafe { self.group(second) };
        let found = Group::both_match(a, b, tag);
        // The processor cannot predict whether a packet begins its flow. Where no flow is found the bit is
        // 32, and a slot of the second group is prefetched.
        let slot = Self::slot(groups, found.trailing_zeros());
        Slots::<K, V>::prefetch_from(self.first_slot, slot);
        if Slots::<K, V>::APART && asked.long().is_some_and(|key| K::Parts::split(key).1.is_some()) {
            cold_path();
            self.slots.prefetch_far(slot);
        }
        let no_slot = FlowTicket::NO_SLOT.0;
        ticket.0 = std::hint::select_unpredictable(found != 0, slot as u64, no_slot);
        found != 0
    }
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// Asks for what is written where a key that is not there is put in: its slot and timer.
    #[inline(always)]
    pub(super) fn ask_for_room(&self, key: &K) {
        let Home { groups, .. } = self.home(key.hash(&self.secret));
        let [first, second] = groups.map(|group| &self.groups[group as usize]);
        let Some(slot) = Self::emptier(groups, Group::both_match(first, second, FREE)) else { return };
        let slot = slot as usize;
        prefetch(self.wheel.address(slot / TIMED));
        self.slots.prefetch(slot);
        if Slots::<K, V>::APART && K::Parts::split(key).1.is_some() {
            self.slots.prefetch_far(slot);
        }
    }
}
