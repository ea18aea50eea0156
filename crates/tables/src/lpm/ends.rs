//! Expiry of routes, by a timer wheel, which also knows the first to leave where a table is full.
//!
//! A lookup does not look at it: a route is found until it has been ended.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::{Address, Lpm, LpmError};
use crate::flow::{Counters, MAXIMUM_WORK};
use crate::memory::MemoryError;
use crate::wheel::TimerWheel;

/// Cost of removing a route, relative to looking at one.
const LEAVING: usize = 8;

/// A route's lifetime, and the policy when the table is full; for [`Routes::insert_with_lifetime`].
///
/// [`Routes::insert_with_lifetime`]: super::Routes::insert_with_lifetime
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteLifetime {
    /// The time (ns) as of which the route is put in.
    pub now: u64,
    /// The time (ns) at which the route ends, as a router's advertisement or a hold time says; `None`: never.
    ///
    /// A route whose end has passed already ends with the next [`expire`](super::Routes::expire).
    pub end: Option<u64>,
    /// The policy where the table holds as many prefixes as it may.
    pub full: RoutesFull,
}

/// The policy of a table of routes for a new prefix when it is full.
///
/// It makes room for prefixes, not for groups. Where groups run out a prefix is refused under either policy, since the
/// one that leaves may have no group. [`LpmConfig::for_prefixes`](super::LpmConfig::for_prefixes) counts the groups
/// that are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutesFull {
    /// The new prefix is refused.
    #[default]
    Refuse,
    /// The new prefix takes the place of the one of its version of IP that ends first.
    ///
    /// It looks at all that end where they are 64 or fewer, else at 64 that end soon. Prefixes without an end never
    /// leave for others: where there are only those, the new one is refused.
    EvictFirstToEnd,
}

/// Which prefixes end, and when.
pub(super) struct Ends<A> {
    /// In nanoseconds; made when it is needed first, since most tables never need it.
    pub(super) wheel: Option<TimerWheel>,
    timers: BTreeMap<(A, u8), u32>,
    /// By timer; those of free ones say nothing.
    prefixes: Vec<(A, u8)>,
    free: Vec<u32>,
}

impl<A: Address> Ends<A> {
    /// No prefix ends.
    pub(super) fn none() -> Self {
        Self { wheel: None, timers: BTreeMap::new(), prefixes: Vec::new(), free: Vec::new() }
    }

    /// Makes the wheel for so many prefixes, unless it is there.
    pub(super) fn make(&mut self, prefixes: usize) -> Result<(), MemoryError> {
        if self.wheel.is_none() {
            let wheel = TimerWheel::new(prefixes)?;
            let bytes = prefixes.saturating_mul(size_of::<(A, u8)>() + size_of::<u32>());
            let refused = |_| MemoryError::Refused { bytes, source: std::io::ErrorKind::OutOfMemory.into() };
            // Now, so that no later one waits while they grow.
            self.prefixes.try_reserve_exact(prefixes).map_err(refused)?;
            self.free.try_reserve_exact(prefixes).map_err(refused)?;
            self.wheel = Some(wheel);
        }
        Ok(())
    }

    /// When a prefix ends, if it does.
    pub(super) fn get(&self, prefix: &(A, u8)) -> Option<u64> {
        self.wheel.as_ref()?.deadline(*self.timers.get(prefix)? as usize)
    }

    /// From `now` on a prefix ends then, or never. Where it does the wheel must be [there](Self::make).
    fn set(&mut self, prefix: (A, u8), end: Option<u64>, now: u64) {
        let (Some(wheel), Some(end)) = (&mut self.wheel, end) else { return self.forget(&prefix) };
        if wheel.is_empty() {
            // From where it stands it tells ends apart that are near.
            wheel.advance(now, 1, |_| None);
        }
        let timer = *self.timers.entry(prefix).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.prefixes.push(prefix);
                (self.prefixes.len() - 1) as u32
            })
        });
        self.prefixes[timer as usize] = prefix;
        wheel.insert(timer as usize, end);
    }

    /// A prefix is no more, or does not end any more.
    pub(super) fn forget(&mut self, prefix: &(A, u8)) {
        let Some(wheel) = &mut self.wheel else { return };
        if let Some(timer) = self.timers.remove(prefix) {
            wheel.remove(timer as usize);
            self.free.push(timer);
        }
    }

    /// The prefix that ends first, and its time.
    fn first(&self) -> Option<((A, u8), u64)> {
        let (timer, end) = self.wheel.as_ref()?.first(MAXIMUM_WORK)?;
        Some((self.prefixes[timer], end))
    }

    /// Advances to `now` by one timer.
    ///
    /// Returns the prefix that is due, or `Some(None)` if a timer only moved nearer, or `None` at the end.
    fn step(&mut self, now: u64) -> Option<Option<(A, u8)>> {
        let mut fired = None;
        let visited = self.wheel.as_mut()?.advance(now, 1, |timer| {
            fired = Some(timer);
            None
        });
        (visited > 0).then(|| fired.map(|timer| self.prefixes[timer]))
    }
}

impl<A: Address, V: Copy + Eq + Hash + 'static> Lpm<A, V> {
    /// Gives a prefix a value and a lifetime; returns the value that it had.
    ///
    /// A prefix that is there gets both again, as if it were refreshed, also one that had no end.
    /// [`insert`](Self::insert) takes a prefix's end away.
    ///
    /// The first prefix with an end costs 25 bytes for each that an IPv4 table may hold (37 for IPv6), and 11 KiB. It
    /// takes the time to map that memory.
    ///
    /// ```
    /// use netbricks_tables::{Lpm, LpmConfig, RouteLifetime};
    /// use std::net::Ipv4Addr;
    ///
    /// let mut routes: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 10, groups: 1 })?;
    /// let (network, host) = (Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 1, 2, 3));
    /// let lifetime = RouteLifetime { now: 0, end: Some(1_000), ..Default::default() };
    /// routes.insert_with_lifetime(network, 8, 7, lifetime)?;
    /// assert_eq!((routes.expire(999, 64), routes.longest(host)), (0, Some(&7)));
    /// // Refreshed in time.
    /// routes.insert_with_lifetime(network, 8, 7, RouteLifetime { now: 999, end: Some(2_000), ..lifetime })?;
    /// assert_eq!((routes.expire(1_000, 64), routes.end(network, 8)), (0, Some(2_000)));
    /// assert_eq!((routes.expire(2_000, 64), routes.longest(host)), (1, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is no prefix of these addresses, or does not fit, by the [policy](RoutesFull), or there is no memory to
    /// file its end. Nothing changes then, except that expired prefixes may have left to make room.
    pub fn insert_with_lifetime(
        &mut self,
        prefix: A,
        len: u8,
        value: V,
        lifetime: RouteLifetime,
    ) -> Result<Option<V>, LpmError> {
        Self::is_prefix(prefix, len)?;
        self.now = self.now.max(lifetime.now);
        if let Err(error) = self.make_room(prefix, len, lifetime) {
            self.counters.refused += 1;
            return Err(error);
        }
        let replaced = self.put(prefix, len, value);
        self.ends.set((prefix, len), lifetime.end, self.now);
        Ok(replaced)
    }

    /// Sees to it that a prefix fits, which may take another out.
    fn make_room(&mut self, prefix: A, len: u8, lifetime: RouteLifetime) -> Result<(), LpmError> {
        let is_new = !self.prefixes.contains_key(&(prefix, len));
        if is_new && self.len() == self.capacity && lifetime.full == RoutesFull::EvictFirstToEnd {
            // Routes whose time is over give up their places first.
            self.end_due(self.now, &mut { MAXIMUM_WORK });
        }
        let full = is_new && self.len() == self.capacity;
        let leaves = match lifetime.full {
            RoutesFull::EvictFirstToEnd if full => self.ends.first(),
            _ => None,
        };
        if full && leaves.is_none() {
            return Err(LpmError::PrefixesFull { capacity: self.capacity });
        }
        // A group on the way that goes with who leaves is one more that is missing, and one more that is free.
        if !self.trie.has_free(self.trie.missing(prefix, len)) {
            return Err(LpmError::GroupsFull { groups: self.trie.groups() });
        }
        if lifetime.end.is_some() {
            let memory = |error: MemoryError| LpmError::Memory { problem: error.to_string() };
            self.ends.make(self.capacity).map_err(memory)?;
        }
        if let Some(((prefix, len), end)) = leaves {
            self.remove(prefix, len);
            let over = end <= self.now;
            self.counters.expired += u64::from(over);
            self.counters.evicted += u64::from(!over);
        }
        Ok(())
    }

    /// When exactly this prefix ends (ns); `None` where it does not, or is not there.
    #[must_use]
    pub fn end(&self, prefix: A, len: u8) -> Option<u64> {
        self.ends.get(&(prefix, len))
    }

    /// Advances to `now` (ns) and removes prefixes that are over; returns how many.
    ///
    /// It looks at up to `budget` of those that end, and never at more than 64. A removal counts as eight looks, and as
    /// one more for every 64 cells of the prefix. So a call removes eight at most, fewer short ones, but always one. A
    /// result of 0 does not mean that it is done: while [`is_due`](Self::is_due) returns true, call it again when there
    /// is time.
    pub fn expire(&mut self, now: u64, budget: usize) -> usize {
        self.end_due(now, &mut budget.min(MAXIMUM_WORK))
    }

    /// As [`expire`](Self::expire), and takes what it looks at off the budget.
    pub(super) fn end_due(&mut self, now: u64, budget: &mut usize) -> usize {
        self.now = self.now.max(now);
        let mut ended = 0;
        while *budget > 0
            && let Some(due) = self.ends.step(now)
        {
            *budget -= 1;
            if let Some((prefix, len)) = due {
                let before = self.trie.expanded_cells();
                self.remove(prefix, len);
                let cells = usize::try_from(self.trie.expanded_cells() - before).unwrap_or(usize::MAX);
                *budget = budget.saturating_sub(LEAVING - 1 + cells / MAXIMUM_WORK);
                ended += 1;
            }
        }
        self.counters.expired += ended as u64;
        ended
    }

    /// Whether more may be over at `now` (ns) than was ended so far: [`expire`](Self::expire) again when there is time.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        self.ends.wheel.as_ref().is_some_and(|wheel| wheel.is_due(now))
    }

    /// The time (ns) from which on [`expire`](Self::expire) has something to do, or `None` while no prefix ends.
    ///
    /// It is at most the first end, and earlier where timers have to move nearer.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.ends.wheel.as_ref()?.next_deadline()
    }

    /// Events since the table was made: prefixes inserted, evicted before their end, expired, and refused for lack of
    /// room.
    ///
    /// Lookups are not counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
