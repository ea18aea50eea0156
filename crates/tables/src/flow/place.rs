//! Places of flows: finding a key, placing a new flow, and choosing a victim when there is no place.

use std::ptr::NonNull;

use super::entry::{Entry, Occupied, Place, Vacant};
use super::expiry::{TIMED, occupied};
use super::slots::{NEVER, Slot};
use super::{FlowTable, Full};
use crate::group::{FREE, Group, WIDTH};
use crate::hash::Key;

/// Slots of the stash that are used: as many as the bound on an operation's work leaves.
pub(super) const STASH: usize = 8;
/// Flows looked at to choose one that leaves.
pub(super) const SAMPLE: usize = 16;

/// The number of groups for `capacity` flows.
///
/// In groups of 16 with the emptier of two choices, the fullest group holds three or four more than the mean (Azar et
/// al., SIAM J. Comput. 29, 1999). So a mean of 12.8 fits. Few groups need more room, since two choices are often one.
pub(super) fn groups_for(capacity: usize) -> usize {
    if capacity <= WIDTH { 1 } else { (capacity * 5).div_ceil(WIDTH * 4) + 2 }
}

/// Where a key's flow can be, the stash aside.
#[derive(Clone, Copy)]
pub(super) struct Home {
    pub(super) groups: [u32; 2],
    pub(super) tag: u16,
}

impl Home {
    /// The two groups and the tag that a hash names.
    ///
    /// The hash, scaled to the slots of all groups, names the first. The rest of it behind the point, scaled likewise,
    /// names the second. The low 15 bits are the tag.
    ///
    /// Of 64 bits, `2·log2(groups) + 4` name slots. With up to 2²² groups (50 million flows) none of them is part of
    /// the tag.
    #[inline(always)]
    pub(super) fn of(hash: u64, slots: u64) -> Self {
        let [first, second] = Self::slots(hash, slots);
        let groups = [(first / WIDTH) as u32, (second / WIDTH) as u32];
        Self { groups, tag: Self::tag(hash) }
    }

    /// Never [`FREE`].
    #[inline(always)]
    pub(super) fn tag(hash: u64) -> u16 {
        hash as u16 | 0x8000
    }

    /// A slot of each of the groups that [`of`](Self::of) names, below `slots` for every hash.
    ///
    /// A caller that only prefetches the line of tags does not need the group's first slot, and rounding down would be
    /// an instruction.
    #[inline(always)]
    pub(super) fn slots(hash: u64, slots: u64) -> [usize; 2] {
        let first = u128::from(hash) * u128::from(slots);
        let second = u128::from(first as u64) * u128::from(slots);
        [(first >> 64) as usize, (second >> 64) as usize]
    }
}

/// The result of a search in two words, which return in registers.
///
/// An [`Entry`] would return through memory and be read wider than it was written, for which a processor waits.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    /// The slot, and above it the slot of the flow that has to leave.
    places: u64,
    /// The tag, and above it the outcome.
    rest: u64,
}

impl Answer {
    /// No slot has this number: there are fewer.
    const NO_SLOT: u32 = u32::MAX;
    const FOUND: u64 = 1 << 16;
    const VACANT: u64 = 2 << 16;
    const FULL: Self = Self { places: 0, rest: 0 };

    #[inline(always)]
    fn found(index: u32) -> Self {
        Self { places: u64::from(index), rest: Self::FOUND }
    }
    #[inline(always)]
    fn vacant(Place { index, tag, displaces }: Place) -> Self {
        let displaces = displaces.unwrap_or(Self::NO_SLOT);
        Self { places: u64::from(displaces) << 32 | u64::from(index), rest: Self::VACANT | u64::from(tag) }
    }
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// Where a key with this hash can be.
    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> Home {
        Home::of(hash, self.hashed_slots)
    }

    /// The place for a key with this hash that is plainly new, in a table with room for it.
    ///
    /// It serves most keys that are not where their ticket says. [`search`](Self::search) answers for all others.
    #[inline(always)]
    pub(super) fn new_place(&self, hash: u64) -> Option<Place> {
        let home = self.home(hash);
        let [first, second] = home.groups.map(|group| &self.groups[group as usize]);
        let known = Group::both_match(first, second, home.tag) != 0 || self.stashed != 0;
        if known || self.len >= self.settled {
            return None;
        }
        let index = Self::emptier(home.groups, Group::both_match(first, second, FREE))?;
        // Else a search looks at the same slots.
        self.worked(2 * WIDTH);
        Some(Place { index, tag: home.tag, displaces: None })
    }

    /// Searches every place of the key with this hash, and counts a hit if it finds the key.
    ///
    /// For keys that are not where their ticket says.
    #[inline(never)]
    pub(super) fn search(&mut self, key: &K, hash: u64) -> Answer {
        let home = self.home(hash);
        let Some(index) = self.find_or_bring(key, home) else { return self.vacancy(home) };
        let clock = &self.clock;
        if let Some(slot) = self.slots.get_mut(index).filter(|slot| !clock.is_over(slot)) {
            slot.seen = clock.tick as u32;
            self.counters.hits += 1;
            return Answer::found(index as u32);
        }
        // It takes its own expired place again.
        let index = index as u32;
        Answer::vacant(Place { index, tag: home.tag, displaces: Some(index) })
    }

    /// The entry for the answer of a search for `key`.
    #[inline(always)]
    pub(super) fn entry(&mut self, key: K, answer: Answer) -> Entry<'_, K, V> {
        let (index, displaces) = (answer.places as u32, (answer.places >> 32) as u32);
        if answer.rest & Answer::VACANT != 0 {
            let displaces = (displaces != Answer::NO_SLOT).then_some(displaces);
            let place = Place { index, tag: answer.rest as u16, displaces };
            return Entry::Vacant(Vacant::new(self, key, place));
        }
        if answer.rest & Answer::FOUND == 0 {
            return Entry::Full;
        }
        let slot = self.slots.place(index as usize);
        Entry::Found(Occupied::new(self, slot, index))
    }

    /// The slot of `key`, expired or not.
    #[inline(always)]
    pub(super) fn find(&self, key: &K, home: Home) -> Option<usize> {
        let [first, second] = home.groups.map(|group| group as usize);
        self.worked(2 * WIDTH);
        let mut matches = Group::both_match(&self.groups[first], &self.groups[second], home.tag);
        while matches != 0 {
            let bit = matches.trailing_zeros() as usize;
            let index = if bit < WIDTH { first } else { second } * WIDTH + bit % WIDTH;
            if self.slots.is(index, key) {
                return Some(index);
            }
            matches &= matches - 1;
        }
        if self.stashed == 0 { None } else { self.find_stashed(key, home.tag) }
    }

    #[cold]
    fn find_stashed(&self, key: &K, tag: u16) -> Option<usize> {
        self.worked(STASH);
        let mut matches = self.groups[self.hashed].matches(tag);
        while matches != 0 {
            let index = self.hashed * WIDTH + matches.trailing_zeros() as usize;
            if self.slots.is(index, key) {
                return Some(index);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Room for a key that is nowhere, by the policy.
    fn vacancy(&mut self, home: Home) -> Answer {
        self.room(home).map_or(Answer::FULL, Answer::vacant)
    }

    /// As [`vacancy`](Self::vacancy), without a lookup before; counts where there is none.
    #[inline(always)]
    pub(super) fn room(&mut self, home: Home) -> Option<Place> {
        if self.len >= self.capacity && self.expires_itself && !std::mem::take(&mut self.turned) {
            self.visit_timers(TIMED, |_, _, _| ());
        }
        let free = self.free_slot(home);
        let place = match free {
            Some(index) if self.len < self.capacity => Some(Place { index, tag: home.tag, displaces: None }),
            _ => self.victim(home).and_then(|victim| {
                let own = home.groups.contains(&(victim / WIDTH as u32));
                // One that leaves one of the key's own groups makes room there.
                let index = if own { Some(victim) } else { free };
                index.map(|index| Place { index, tag: home.tag, displaces: Some(victim) })
            }),
        };
        self.counters.refused += u64::from(place.is_none());
        place
    }

    /// A free slot in the emptier of the key's groups, else in the stash.
    pub(super) fn free_slot(&self, home: Home) -> Option<u32> {
        let [first, second] = home.groups;
        let free = Group::both_match(&self.groups[first as usize], &self.groups[second as usize], FREE);
        Self::emptier(home.groups, free).or_else(|| {
            let stash = self.groups[self.hashed].free() & ((1 << STASH) - 1);
            (stash != 0).then(|| (self.hashed * WIDTH) as u32 + stash.trailing_zeros())
        })
    }

    /// The first free slot of that of two groups which has more of them.
    #[inline(always)]
    pub(super) fn emptier([first, second]: [u32; 2], free: u32) -> Option<u32> {
        if free == 0 {
            return None;
        }
        // The processor cannot predict which of the two it is.
        let (a, b) = (free & 0xffff, free >> WIDTH);
        let is_first = a.count_ones() >= b.count_ones();
        let group = std::hint::select_unpredictable(is_first, first, second);
        let free = std::hint::select_unpredictable(is_first, a, b);
        Some(group * WIDTH as u32 + free.trailing_zeros())
    }

    /// The flow that leaves for a new one: an expired one or, by policy, the one hit least recently.
    ///
    /// It is chosen among a bounded sample of the key's own groups or, if these hold none, of any group.
    fn victim(&mut self, home: Home) -> Option<u32> {
        if self.full == Full::Refuse {
            return None;
        }
        let [first, second] = home.groups;
        let own = self.groups[first as usize].occupied()
            | if first == second { 0 } else { self.groups[second as usize].occupied() << WIDTH };
        self.hand = self.hand.wrapping_add(1);
        if own != 0 {
            return self.oldest(own, [first, second]);
        }
        let group = (self.hand % self.hashed) as u32;
        self.oldest(self.groups[group as usize].occupied(), [group, group])
    }

    fn oldest(&self, mut occupied: u32, groups: [u32; 2]) -> Option<u32> {
        // Another place to begin each time, so that those beyond the sample get their turn.
        let turn = (self.hand as u32).wrapping_mul(7) % 32;
        occupied = occupied.rotate_right(turn);
        // All of the sample's memory first: as many misses side by side as the processor takes, not one after the other.
        let mut ahead = occupied;
        for _ in 0..SAMPLE.min(occupied.count_ones() as usize) {
            let bit = (ahead.trailing_zeros() + turn) % 32;
            ahead &= ahead - 1;
            self.slots.prefetch(groups[bit as usize / WIDTH] as usize * WIDTH + bit as usize % WIDTH);
        }
        let mut oldest: Option<(u32, u32)> = None;
        for _ in 0..SAMPLE.min(occupied.count_ones() as usize) {
            let bit = (occupied.trailing_zeros() + turn) % 32;
            occupied &= occupied - 1;
            self.worked(1);
            let index = groups[bit as usize / WIDTH] * WIDTH as u32 + bit % WIDTH as u32;
            let Some(slot) = self.slots.get(index as usize) else { continue };
            if self.clock.is_over(slot) {
                return Some(index);
            }
            let age = self.clock.age(slot);
            if self.full == Full::EvictOldest && oldest.is_none_or(|(_, other)| age > other) {
                oldest = Some((index, age));
            }
        }
        oldest.map(|(index, _)| index)
    }

    /// Puts a flow into the free place that [`vacancy`](Self::vacancy) returned.
    #[inline(always)]
    pub(super) fn put(&mut self, place: Place, key: K, value: V) -> NonNull<Slot<K, V>> {
        let index = place.index as usize;
        debug_assert_eq!(self.groups[index / WIDTH].tags[index % WIDTH], FREE);
        let (tick, timeout) = (self.clock.tick, self.idle_timeout);
        // First what calls the author's code: should it panic, nothing has happened.
        self.slots.fill(index, &key, value, tick as u32, timeout);
        self.groups[index / WIDTH].tags[index % WIDTH] = place.tag;
        self.len += 1;
        self.stashed += usize::from(index / WIDTH == self.hashed);
        self.counters.inserted += 1;
        if timeout != NEVER {
            self.wheel.insert_earlier(index / TIMED, tick.saturating_add(u64::from(timeout)));
        }
        self.slots.place(index)
    }

    /// Takes out the flow in slot `index`, if there is one.
    pub(super) fn take(&mut self, index: usize) -> Option<(K, V)> {
        let flow = self.slots.take(index)?;
        self.groups[index / WIDTH].tags[index % WIDTH] = FREE;
        self.len -= 1;
        self.stashed -= usize::from(index / WIDTH == self.hashed);
        // Else the clock would wait for it.
        if occupied(&self.groups, index / TIMED) == 0 {
            self.wheel.remove(index / TIMED);
        }
        Some(flow)
    }

    /// Takes out a flow that is over or has to leave, and counts it.
    pub(super) fn end(&mut self, index: usize) -> Option<(K, V)> {
        let over = self.slots.get(index).is_some_and(|slot| self.clock.is_over(slot));
        let flow = self.take(index)?;
        self.counters.expired += u64::from(over);
        self.counters.evicted += u64::from(!over);
        Some(flow)
    }
}
