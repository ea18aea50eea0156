//! Tables of routes: the longest prefix decides.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use netbricks_core::tables::{Lpm, LpmConfig};

use super::route::{Hop, Route};

/// Routes up to which they are searched one by one.
const FEW: usize = 16;
/// The most routes.
const MOST: usize = 1 << 22;

/// Why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::elements) enum Refusal {
    /// There is a route of this prefix.
    Exists(Route),
    /// There is no such route.
    NotFound,
    /// There is no room.
    Full,
}

/// In which order routes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::elements) enum Order {
    /// A new route takes the first place that is free.
    FirstFree,
    /// A new route takes the place that became free last.
    LastFree,
    /// By address.
    Address,
    /// Longer prefixes first.
    Length,
}

/// Bytes that a trie's first stride, each group behind it and each route take, about.
const TRIE: usize = 8 << 20;
const GROUP: usize = 512;
const ROUTE: usize = 96;

/// How destinations are found.
enum Finder {
    /// Routes, longer prefixes first: the first that has the destination.
    List(Vec<Route>),
    /// A trie.
    Trie(Box<Lpm<Ipv4Addr, Hop>>),
}

/// A table of routes.
pub(in crate::elements) struct Table {
    /// Routes in their places; free places are `None`.
    slots: Vec<Option<Route>>,
    free: Vec<usize>,
    places: HashMap<(u32, u32), usize>,
    order: Order,
    finder: Finder,
    /// Routes whose masks are no prefixes.
    odd: usize,
}

impl Table {
    /// Bytes that the table takes now.
    pub(in crate::elements) fn memory(&self) -> usize {
        let finder = match &self.finder {
            Finder::List(routes) => routes.capacity() * size_of::<Route>(),
            Finder::Trie(trie) => TRIE + trie.groups().1 * GROUP + trie.len() * ROUTE,
        };
        self.slots.capacity() * size_of::<Option<Route>>()
            + self.free.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<((u32, u32), usize)>()
            + finder
    }

    /// A table without routes.
    pub(in crate::elements) fn new(order: Order) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            order,
            finder: Finder::List(Vec::new()),
            odd: 0,
        }
    }

    /// Where packets to a destination go.
    #[inline]
    pub(in crate::elements) fn find(&self, address: u32) -> Option<Hop> {
        match &self.finder {
            Finder::List(list) => list.iter().find(|route| route.contains(address)).map(|route| route.hop),
            Finder::Trie(trie) => trie.longest(Ipv4Addr::from(address)).copied(),
        }
    }

    fn place_of(&self, route: &Route) -> Option<(usize, Route)> {
        let place = *self.places.get(&(route.address, route.mask))?;
        Some((place, (*self.slots.get(place)?)?))
    }

    /// Adds a route, in place of another of its prefix where that is allowed; the one that was there.
    pub(in crate::elements) fn add(&mut self, route: Route, replace: bool) -> Result<Option<Route>, Refusal> {
        if let Some((place, before)) = self.place_of(&route) {
            if !replace {
                return Err(Refusal::Exists(before));
            }
            if self.order == Order::LastFree {
                self.take_out(place);
                self.put_in(route);
            } else if let Some(slot) = self.slots.get_mut(place) {
                *slot = Some(route);
            }
            if !self.find_also(&route) {
                self.rebuild();
            }
            return Ok(Some(before));
        }
        if self.places.len() >= MOST {
            return Err(Refusal::Full);
        }
        self.odd += usize::from(route.length().is_none());
        self.put_in(route);
        if !self.find_also(&route) {
            self.rebuild();
        }
        Ok(None)
    }

    /// Removes a route; the one that was there.
    pub(in crate::elements) fn remove(&mut self, route: &Route) -> Result<Route, Refusal> {
        let (place, before) = self.place_of(route).ok_or(Refusal::NotFound)?;
        if !route.means(&before) {
            return Err(Refusal::NotFound);
        }
        self.take_out(place);
        self.odd -= usize::from(before.length().is_none());
        match (&mut self.finder, before.length()) {
            (Finder::Trie(trie), Some(length)) => {
                trie.remove(Ipv4Addr::from(before.address), length);
            }
            (Finder::List(list), _) => {
                list.retain(|other| (other.address, other.mask) != (before.address, before.mask));
            }
            _ => self.rebuild(),
        }
        Ok(before)
    }

    /// Removes all routes.
    pub(in crate::elements) fn clear(&mut self) {
        *self = Self::new(self.order);
    }

    fn put_in(&mut self, route: Route) {
        let place = if self.order == Order::LastFree {
            self.free.pop()
        } else {
            let first = (0..self.free.len()).min_by_key(|at| self.free[*at]);
            first.map(|at| self.free.swap_remove(at))
        };
        let place = place.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[place] = Some(route);
        self.places.insert((route.address, route.mask), place);
    }

    fn take_out(&mut self, place: usize) {
        if let Some(route) = self.slots.get_mut(place).and_then(Option::take) {
            self.places.remove(&(route.address, route.mask));
            self.free.push(place);
        }
    }

    /// Has a route found too. `false` where the finder must be rebuilt.
    fn find_also(&mut self, route: &Route) -> bool {
        match (&mut self.finder, route.length()) {
            (Finder::Trie(trie), Some(length)) => {
                trie.insert(Ipv4Addr::from(route.address), length, route.hop).is_ok()
            }
            (Finder::List(list), _) if self.places.len() <= FEW || self.odd > 0 => {
                list.retain(|other| (other.address, other.mask) != (route.address, route.mask));
                let ones = route.mask.count_ones();
                let place = list.partition_point(|other| other.mask.count_ones() >= ones);
                list.insert(place, *route);
                true
            }
            _ => false,
        }
    }

    /// Rebuilds the finder for all routes, with room for as many again.
    fn rebuild(&mut self) {
        let routes: Vec<Route> = self.slots.iter().flatten().copied().collect();
        if self.odd == 0
            && routes.len() > FEW
            && let Some(trie) = trie(&routes)
        {
            self.finder = Finder::Trie(Box::new(trie));
            return;
        }
        let mut list = routes;
        list.sort_by_key(|route| std::cmp::Reverse(route.mask.count_ones()));
        self.finder = Finder::List(list);
    }

    /// The routes in the order in which they are shown.
    pub(in crate::elements) fn routes(&self) -> Vec<Route> {
        let mut routes: Vec<Route> = self.slots.iter().flatten().copied().collect();
        match self.order {
            Order::Address => routes.sort_by_key(|route| (route.address, route.mask)),
            Order::Length => routes.sort_by_key(|route| std::cmp::Reverse(route.mask.count_ones())),
            Order::FirstFree | Order::LastFree => (),
        }
        routes
    }
}

/// A trie of routes, with room for as many again. `None` where there is no memory for it.
fn trie(routes: &[Route]) -> Option<Lpm<Ipv4Addr, Hop>> {
    let prefixes =
        routes.iter().filter_map(|route| Some((Ipv4Addr::from(route.address), route.length()?, route.hop)));
    let exact = LpmConfig::for_prefixes(prefixes.clone().map(|(address, length, _)| (address, length)));
    let most = Lpm::<Ipv4Addr, Hop>::MAXIMUM;
    let room = |count: usize| count.saturating_mul(2).saturating_add(64).min(most);
    let config = LpmConfig { prefixes: room(exact.prefixes), groups: room(exact.groups) };
    let mut trie = Lpm::new(config).ok()?;
    for (address, length, hop) in prefixes {
        trie.insert(address, length, hop).ok()?;
    }
    Some(trie)
}
