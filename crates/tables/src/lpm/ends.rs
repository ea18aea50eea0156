//! Routes that end: filed by a timer wheel, which also knows who is to leave where a table is full. Nothing of it is on a
//! lookup's way: a route is found until it has been ended.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::{Address, Lpm, LpmError};
use crate::flow::{Counters, MAXIMUM_WORK};
use crate::memory::MemoryError;
use crate::wheel::TimerWheel;

/// What it costs to take a route out, beside to look at one.
const LEAVING: usize = 8;

/// How long a route stays, and who leaves for it: what [`Routes::insert_with_lifetime`] asks beside the route.
///
/// [`Routes::insert_with_lifetime`]: super::Routes::insert_with_lifetime
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteLifetime {
    /// The time (ns) as of which the route is put in.
    pub now: u64,
    /// The time (ns) at which it ends, as a router's advertisement or a hold time says it; `None`: never. One that is over
    /// already ends with the next [`expire`](super::Routes::expire).
    pub end: Option<u64>,
    /// What happens where the table holds as many prefixes as it may.
    pub full: RoutesFull,
}

/// What a table of routes does with a new prefix when it holds as many as it may.
///
/// It makes room for prefixes, not for groups: where those run out a prefix is refused under either policy, since who leaves
/// need not be who has them. [`LpmConfig::for_prefixes`](super::LpmConfig::for_prefixes) counts what is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutesFull {
    /// The new prefix is refused.
    #[default]
    Refuse,
    /// The new prefix takes the place of the one of its version of IP that ends first: of all that end where they are 64 or
    /// fewer, else of 64 that end soon. Prefixes without an end never leave for others: where there are only those, the new
    /// one is refused.
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

    /// Who ends first, and when.
    fn first(&self) -> Option<((A, u8), u64)> {
        let (timer, end) = self.wheel.as_ref()?.first(MAXIMUM_WORK)?;
        Some((self.prefixes[timer], end))
    }

    /// Goes on to `now`, by one timer: who is due, who has been moved nearer only (`Some(None)`), or that there is no more to do.
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
    /// Gives a prefix a value and a lifetime; the value that it had. A prefix that is there gets both anew, as if it were
    /// refreshed: also one that had no end, and one that [`insert`](Self::insert) puts in again has none any more.
    ///
    /// The first prefix that ends costs 25 bytes for each that an IPv4 table may hold, 37 of IPv6, and 11 KiB, and takes the time to have
    /// that memory.
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
    /// When it is no prefix of these addresses, or does not fit, by the [policy](RoutesFull), or there is no memory to file
    /// its end. Nothing changes then, but that prefixes whose time was over may have left to make room.
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
            // Who is over gives its place first.
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

    /// Goes on to `now` (ns) and takes out prefixes that are over, looking at up to `budget` of those that end and never at more
    /// than 64; answers how many it took out. Who is taken out counts as eight that are looked at, and one more for every 64 cells that
    /// it had: so a call takes eight at most, and fewer short ones, but always one. None is not a sign that it is done: while
    /// [`is_due`](Self::is_due) says so, call again when there is time.
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
                let before = self.trie.painted();
                self.remove(prefix, len);
                let cells = usize::try_from(self.trie.painted() - before).unwrap_or(usize::MAX);
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

    /// The time (ns) from which on [`expire`](Self::expire) has something to do: at most the first end, and before it where
    /// timers have to be moved nearer. `None` while no prefix ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.ends.wheel.as_ref()?.next_deadline()
    }

    /// What has happened since the table was made: prefixes that were new, that gave their place to others before they were over,
    /// that ended by their lifetime, and that were refused since there was no room. Lookups are not counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
