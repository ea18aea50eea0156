//! Going on with the flows of a table of another size, which move a bounded number at a time.
//!
//! Until then a key that is not here is looked for in the table before, and moves here when it is found.

use super::entry::Place;
use super::place::Home;
use super::slots::NEVER;
use super::{FlowTable, FlowTableConfig};
use crate::hash::Key;

/// The terms of a table by which another decides [how its flows go on](FlowTable::succession).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTerms {
    /// The flows in it, including those that expired and wait to be collected.
    pub flows: usize,
    /// The most flows held at a time.
    pub capacity: usize,
    /// The timeout in ticks, and the length of a tick.
    times: (u32, u32),
}

/// The way in which the flows of a table go on in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSuccession {
    /// The table is handed over as it is.
    Whole,
    /// The flows move a bounded number at a time, for the table has another capacity or timeout.
    InSteps,
    /// There are more flows than the table has room for.
    NoRoom,
    /// The table has flows already.
    Occupied,
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// The terms by which another table decides how the flows of this one go on.
    #[must_use]
    pub fn terms(&self) -> FlowTerms {
        let times = (self.idle_timeout, self.clock.pace());
        FlowTerms { flows: self.len(), capacity: self.capacity(), times }
    }

    /// The way in which the flows of a table with these terms go on in this one, by [`succeed`](Self::succeed).
    #[must_use]
    pub fn succession(&self, before: &FlowTerms) -> FlowSuccession {
        let own = self.terms();
        if own.flows > 0 {
            FlowSuccession::Occupied
        } else if (own.capacity, own.times) == (before.capacity, before.times) {
            FlowSuccession::Whole
        } else if before.flows > self.capacity {
            FlowSuccession::NoRoom
        } else {
            FlowSuccession::InSteps
        }
    }

    /// Goes on with the flows of another table of any capacity and timeout, without a copy of all.
    ///
    /// Where [`take_over`](Self::take_over) is not possible, flows move when they are looked up, and by
    /// [`move_on`](Self::move_on). Each keeps its own age and timeout. The other table then has no flows and no room.
    /// Answers `false`, and changes nothing, where this one has flows or too little room, or memory is short.
    ///
    /// ```
    /// use netbricks_tables::{FlowTable, FlowTableConfig, Table};
    ///
    /// let mut old: FlowTable<u32, u32> = FlowTable::new(FlowTableConfig::new(1_000))?;
    /// let mut new: FlowTable<u32, u32> = FlowTable::new(FlowTableConfig::new(2_000))?;
    /// for key in 0..1_000 {
    ///     old.lookup(key, 0).or_insert_with(|| key);
    /// }
    /// assert!(new.succeed(&mut old));
    /// assert_eq!((new.len(), new.lookup(7, 0).found().copied()), (1_000, Some(7)));
    /// while new.move_on(64) {
    ///     // Packets may be looked up here.
    /// }
    /// assert_eq!((new.len(), new.capacity()), (1_000, 2_000));
    /// # Ok::<(), netbricks_tables::TableError>(())
    /// ```
    #[must_use]
    pub fn succeed(&mut self, other: &mut Self) -> bool {
        match self.succession(&other.terms()) {
            FlowSuccession::Whole => return self.take_over(other),
            FlowSuccession::InSteps => {}
            FlowSuccession::NoRoom | FlowSuccession::Occupied => return false,
        }
        let Ok(none) = Self::new(FlowTableConfig::new(1)) else { return false };
        other.move_all();
        self.set_time(other.clock.begins_at(other.clock.tick));
        // The wheel knows the longest timeout of flows to come, which set the pace of long silences.
        let longest = other.clock.nanoseconds(u64::from(other.clock.longest()));
        self.clock.ticks(longest);
        let mut before = std::mem::replace(other, none);
        self.counters = std::mem::take(&mut before.counters);
        self.capacity -= before.len;
        (self.settled, self.next_moved) = (0, 0);
        self.before = Some(Box::new(before));
        self.end_when_moved();
        true
    }

    /// Moves the flows of at most so many slots of the table before; returns whether more are to come.
    pub fn move_on(&mut self, slots: usize) -> bool {
        for _ in 0..slots {
            let Some(before) = &self.before else { return false };
            let index = self.next_moved;
            self.next_moved += 1;
            if before.slots.get(index).is_some_and(|slot| slot.is_live()) {
                self.bring_slot(index);
            }
        }
        self.before.is_some()
    }

    /// Moves all flows that are still in the table before.
    pub(super) fn move_all(&mut self) {
        while self.move_on(usize::MAX) {}
    }

    /// As [`find`](Self::find), also in the table before: a flow that is found there moves here.
    #[inline(always)]
    pub(super) fn find_or_bring(&mut self, key: &K, home: Home) -> Option<usize> {
        match self.find(key, home) {
            None if self.before.is_some() => self.bring(key),
            found => found,
        }
    }

    #[cold]
    fn bring(&mut self, key: &K) -> Option<usize> {
        let before = self.before.as_ref()?;
        let index = before.find(key, before.home(key.hash(&before.secret)))?;
        self.bring_slot(index)
    }

    /// Moves the flow in a slot of the table before; answers its slot here.
    ///
    /// There is a place for it, but for one in a million; then this table's policy decides.
    fn bring_slot(&mut self, index: usize) -> Option<usize> {
        let now = self.clock.begins_at(self.clock.tick);
        let before = self.before.as_mut()?;
        before.set_time(now);
        let slot = before.slots.get(index)?;
        let age = before.clock.nanoseconds(u64::from(before.clock.age(slot)));
        let timeout = match slot.timeout() {
            NEVER => None,
            ticks => Some(before.clock.exact_timeout(ticks)),
        };
        let (key, value) = before.take(index)?;
        self.capacity += 1;
        self.end_when_moved();
        let age = u32::try_from(self.clock.whole_ticks(age)).unwrap_or(u32::MAX);
        let timeout = timeout.map_or(NEVER, |timeout| self.clock.ticks(timeout));
        let home = self.home(key.hash(&self.secret));
        let free = self.free_slot(home).map(|index| Place { index, tag: home.tag, displaces: None });
        let place = match free {
            Some(free) => free,
            // Its owner would not learn of the end of another flow.
            None => self.room(home).filter(|place| place.displaces.is_none() || self.expires_itself)?,
        };
        if let Some(leaves) = place.displaces {
            drop(self.end(leaves as usize));
        }
        self.put(place, key, value);
        // It was counted where it came from.
        self.counters.inserted -= 1;
        self.set_times(place.index as usize, age, timeout);
        Some(place.index as usize)
    }

    /// Lets the table before go where it has no flows any more.
    fn end_when_moved(&mut self) {
        if self.before.as_ref().is_some_and(|before| before.len == 0) {
            self.forget_before();
        }
    }

    /// Lets the table before go, with its flows.
    pub(super) fn forget_before(&mut self) {
        if let Some(before) = self.before.take() {
            self.capacity += before.len;
            self.settled = self.capacity;
        }
    }
}
