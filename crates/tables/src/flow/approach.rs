//! The second step of a lookup: tags tell where a flow seems to be, and its memory is asked for.

use std::hint::cold_path;

use super::expiry::TIMED;
use super::place::Home;
use super::slots::Slots;
use super::{FlowTable, FlowTicket};
use crate::group::{Group, WIDTH};
use crate::hash::Key;
use crate::parts::Parts;
use crate::prefetch::prefetch;
use crate::table::Asked;
use crate::wheel::TimerWheel;

/// What the step takes of a table, as local variables: while tickets are written, the compiler must suppose that the table
/// changes.
pub(super) struct Approach<'t, K: Key, V> {
    groups: &'t [Group],
    /// In the groups that a hash may name.
    hashed: u64,
    slots: &'t Slots<K, V>,
    first_slot: *const u8,
    wheel: &'t TimerWheel,
}

impl<'t, K: Key, V: 'static> Approach<'t, K, V> {
    #[inline(always)]
    pub(super) fn to(table: &'t FlowTable<K, V>) -> Self {
        let FlowTable { groups, hashed_slots, slots, wheel, .. } = table;
        // `look` relies on it.
        assert!(*hashed_slots <= (groups.len() * WIDTH) as u64);
        Self { groups, hashed: *hashed_slots, slots, first_slot: slots.start(), wheel }
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
        // Nobody can predict which of the two it is.
        let group = std::hint::select_unpredictable(bit < WIDTH as u32, first, second);
        group + bit as usize % WIDTH
    }

    /// Turns what a ticket knows from a hash into a slot.
    #[inline(always)]
    pub(super) fn look(&self, asked: &impl Asked<K>, ticket: &mut FlowTicket) {
        // A ticket from elsewhere names some groups too, though not this key's.
        // By slots throughout: a group's number would be shifted there and back.
        let groups @ [first, second] = Home::slots(ticket.0, self.hashed).map(|slot| slot & !(WIDTH - 1));
        let tag = Home::tag(ticket.0);
        // SAFETY: `Home::slots` scales 64 bits to numbers below `self.hashed`, which is no more than the groups have
        // (`to`), and rounded down to a group's size, a power of two, they are where one begins.
        let a = unsafe { self.group(first) };
        // SAFETY: as above.
        let b = unsafe { self.group(second) };
        let found = Group::both_match(a, b, tag);
        if found == 0 {
            cold_path();
            // Nobody seems to be there: the place where an insertion would write, and the timer that goes with it. The
            // ticket says so at once, and not only when the slot has been read.
            let (free, other) = (a.free(), b.free());
            let second = other.count_ones() > free.count_ones();
            let bit = if second { other.trailing_zeros() + WIDTH as u32 } else { free.trailing_zeros() };
            let slot = Self::slot(groups, bit);
            prefetch(self.wheel.address(slot / TIMED));
            asked.missed();
            self.ask(slot, asked);
            *ticket = FlowTicket::NOBODY;
            return;
        }
        let slot = Self::slot(groups, found.trailing_zeros());
        self.ask(slot, asked);
        ticket.0 = slot as u64;
    }

    /// Asks for the memory of a slot.
    #[inline(always)]
    fn ask(&self, slot: usize, asked: &impl Asked<K>) {
        Slots::<K, V>::prefetch_from(self.first_slot, slot);
        if Slots::<K, V>::APART && asked.long().is_some_and(|key| K::Parts::split(key).1.is_some()) {
            cold_path();
            self.slots.prefetch_far(slot);
        }
    }
}
