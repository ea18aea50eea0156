//! The routes that all workers share, and changes of them that are made together.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::Declared;
use netbricks_core::consistency::{Contents, RoutesState};
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::state::Mobility;
use netbricks_core::tables::{Changing, Handover, Lpm, LpmConfig, LpmError, Routes, Secret};

use super::route::{self, Route};
use netbricks_core::sealed::{hash_text, open, seal};

/// The routes of the configuration, the shortest prefixes first.
///
/// With more next hops than a byte can number, those that are inserted first get the bytes, and short prefixes
/// decide for most addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct First(Arc<[Route]>);

impl First {
    pub(super) fn of(mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| route.len);
        Self(routes.into())
    }
}

impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// The value of a prefix: its next hop, and what a worker needs to know of it.
pub(super) trait NextHop: Copy + Eq + Hash + Send + Sync + 'static {
    /// The value for this next hop, in a table that has given these places so far.
    fn of(number: u32, places: &mut BTreeMap<u32, u32>) -> Self;
    /// The next hop.
    fn number(self) -> u32;
}

impl NextHop for u32 {
    fn of(number: u32, _: &mut BTreeMap<u32, u32>) -> Self {
        number
    }
    fn number(self) -> u32 {
        self
    }
}

/// All workers' routes, under bounded inconsistency.
pub(super) struct RouteTable<V: NextHop> {
    routes: Routes<V>,
    /// The places of the next hops' counts in each worker, in the order in which they came.
    places: BTreeMap<u32, u32>,
    /// The number of changes.
    version: u64,
    first: First,
}

/// One change of a route.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    /// Puts a route in, in the place of one with the same prefix.
    Add(Route),
    /// Takes the route with this prefix out.
    Withdraw { prefix: IpAddr, len: u8 },
}

/// Several changes that are one.
pub(super) enum Edits<V: NextHop> {
    /// Makes all of these, in order, or none.
    All(Arc<[Edit]>),
    /// Replaces the table by a larger one with the same routes, unless it has changed since version `base`.
    Grow {
        base: u64,
        /// Two equal tables, one for each copy of the state.
        larger: Handover<Routes<V>>,
    },
}

impl<V: NextHop> Clone for Edits<V> {
    fn clone(&self) -> Self {
        match self {
            Self::All(edits) => Self::All(edits.clone()),
            Self::Grow { base, larger } => Self::Grow { base: *base, larger: larger.clone() },
        }
    }
}

/// The numbers of routes that were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) added: usize,
    /// Routes in whose place another one with the same prefix came.
    pub(super) replaced: usize,
    pub(super) withdrawn: usize,
}

/// The reason why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The edit at this place withdraws a route that is not there.
    Absent { at: usize },
    /// The edit at this place needs a larger table.
    Full { at: usize, error: LpmError },
    /// The table has changed since a larger one was made.
    Changed,
}

impl<V: NextHop> RouteTable<V> {
    /// These routes in a new table, which gives next hops the places that they have.
    fn with(first: First, routes: &[Route], places: BTreeMap<u32, u32>) -> Result<Self, String> {
        let (v4, v6) = sizes(routes);
        let table = Routes::new(v4, v6).map_err(|error| error.to_string())?;
        let mut fresh = Self { routes: table, places, version: 0, first };
        for Route { prefix, len, next_hop } in routes {
            let value = V::of(*next_hop, &mut fresh.places);
            fresh.routes.insert(*prefix, *len, value).map_err(|error| error.to_string())?;
        }
        Ok(fresh)
    }

    /// The next hops that it has or had, each with the place of its counts.
    pub(super) fn places(&self) -> impl Iterator<Item = (u32, usize)> {
        self.places.iter().map(|(number, place)| (*number, *place as usize))
    }

    /// The next hop for an address.
    pub(super) fn longest(&self, address: IpAddr) -> Option<u32> {
        self.routes.longest(address).map(|value| value.number())
    }

    /// The longest prefix that holds this address, with its next hop.
    pub(super) fn route(&self, address: IpAddr) -> Option<Route> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let of = |len| {
            let prefix = route::truncated(address, len);
            let next_hop = self.routes.get(prefix, len)?.number();
            Some(Route { prefix, len, next_hop })
        };
        (0..=most).rev().find_map(of)
    }

    /// The longest prefix around this one that is in the table.
    pub(super) fn around(&self, prefix: IpAddr, len: u8) -> Option<(IpAddr, u8)> {
        let shorter = |len| (route::truncated(prefix, len), len);
        (0..len).rev().map(shorter).find(|(prefix, len)| self.routes.get(*prefix, *len).is_some())
    }

    /// All routes, those of IPv4 first, by address and then by length.
    pub(super) fn all(&self) -> impl Iterator<Item = Route> {
        self.routes.iter().map(|(prefix, len, value)| Route { prefix, len, next_hop: value.number() })
    }

    /// A change to a table with room for these edits too. It may take long, and disturbs no worker.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn larger(
        (base, mut routes): (u64, Vec<(Route, V)>),
        edits: &[Edit],
    ) -> Result<Edits<V>, String> {
        let added = edits.iter().filter_map(|edit| match edit {
            Edit::Add(route) => Some(*route),
            Edit::Withdraw { .. } => None,
        });
        let all: Vec<Route> = routes.iter().map(|(route, _)| *route).chain(added).collect();
        routes.sort_by_key(|(route, _)| route.len);
        let (v4, v6) = sizes(&all);
        let make = || {
            let mut table = Routes::new(v4, v6).map_err(|error| error.to_string())?;
            for (Route { prefix, len, .. }, value) in &routes {
                table.insert(*prefix, *len, *value).map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(table)
        };
        Ok(Edits::Grow { base, larger: Handover::new(vec![make()?, make()?]) })
    }

    /// The version and all routes, for [`larger`](Self::larger).
    pub(super) fn copied(&self) -> (u64, Vec<(Route, V)>) {
        let of = |(prefix, len, value): (IpAddr, u8, &V)| {
            (Route { prefix, len, next_hop: value.number() }, *value)
        };
        (self.version, self.routes.iter().map(of).collect())
    }

    fn make_all(&mut self, edits: &[Edit]) -> Result<Done, Refusal> {
        let mut done = Done::default();
        // What each prefix had before.
        let mut before: Vec<(IpAddr, u8, Option<V>)> = Vec::with_capacity(edits.len());
        for (at, edit) in edits.iter().enumerate() {
            let made = match *edit {
                Edit::Add(Route { prefix, len, next_hop }) => {
                    let value = V::of(next_hop, &mut self.places);
                    let inserted = self.routes.insert(prefix, len, value);
                    inserted.map(|had| (prefix, len, had)).map_err(|error| Refusal::Full { at, error })
                }
                Edit::Withdraw { prefix, len } => {
                    let had = self.routes.remove(prefix, len);
                    had.map(|had| (prefix, len, Some(had))).ok_or(Refusal::Absent { at })
                }
            };
            match (made, edit) {
                (Ok(had), Edit::Add(_)) => {
                    *(if had.2.is_some() { &mut done.replaced } else { &mut done.added }) += 1;
                    before.push(had);
                }
                (Ok(had), Edit::Withdraw { .. }) => {
                    done.withdrawn += 1;
                    before.push(had);
                }
                (Err(refusal), _) => {
                    self.undo(before);
                    return Err(refusal);
                }
            }
        }
        self.version += 1;
        Ok(done)
    }

    /// Gives prefixes what they had, the last first. The room that each needs is that which it had.
    fn undo(&mut self, before: Vec<(IpAddr, u8, Option<V>)>) {
        for (prefix, len, had) in before.into_iter().rev() {
            match had {
                Some(value) => {
                    let restored = self.routes.insert(prefix, len, value);
                    debug_assert!(restored.is_ok(), "{prefix}/{len} had room before");
                }
                None => drop(self.routes.remove(prefix, len)),
            }
        }
    }
}

/// The sizes of tables for these routes, and for some more; a version without routes gets none.
///
/// The number of prefixes takes no memory, so that it is unlimited.
fn sizes(routes: &[Route]) -> (Option<LpmConfig>, Option<LpmConfig>) {
    let (v4, v6) = route::sizes(routes);
    let roomy = |config: LpmConfig| LpmConfig {
        prefixes: Lpm::<std::net::Ipv4Addr, u32>::MAXIMUM,
        groups: config.groups + config.groups / 8 + ROOM,
    };
    (v4.map(roomy), v6.map(roomy))
}

/// Groups of cells for routes to come, beside an eighth of those in use.
const ROOM: usize = 64;

impl<V: NextHop> RoutesState for RouteTable<V> {
    type Value = V;
    #[inline(always)]
    fn routes(&self) -> &Routes<V> {
        &self.routes
    }
}

impl<V: NextHop> Changing for RouteTable<V> {
    type Change = Edits<V>;
    type Outcome = Result<Done, Refusal>;

    fn apply(&mut self, change: &Edits<V>) -> Result<Done, Refusal> {
        match change {
            Edits::All(edits) => self.make_all(edits),
            Edits::Grow { base, .. } if *base != self.version => Err(Refusal::Changed),
            Edits::Grow { larger, .. } => {
                self.routes = larger.take().ok_or(Refusal::Changed)?;
                self.version += 1;
                Ok(Done::default())
            }
        }
    }
}

impl<V: NextHop> Contents for RouteTable<V> {
    type Config = First;
    /// Other routes in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        Self::with(first.clone(), &first.0, BTreeMap::new())
    }
    fn least() -> Self {
        Self { routes: Routes::none(), places: BTreeMap::new(), version: 0, first: First::default() }
    }
}

const FORMAT: &str = "lpm-routes-1";
const SEED: u64 = 0x006c_706d_726f_7574;

/// The hash of the configuration's routes.
fn origin(First(routes): &First) -> u64 {
    let text = routes.iter().fold(String::new(), |mut text, route| {
        // Text takes any text.
        let _ = writeln!(text, "{route}");
        text
    });
    hash_text(&text, &Secret::from_seed(SEED))
}

/// The format is lines: the hash of the configuration's routes, one line for each route, and the checksum.
impl<V: NextHop> Declared for RouteTable<V> {
    fn export(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT} {:016x}\n", origin(&self.first));
        for route in self.all() {
            // As above.
            let _ = writeln!(text, "{route}");
        }
        seal(text, SEED)
    }

    /// Takes over changes made by handlers, unless the configuration has named other routes since.
    ///
    /// In that case the configuration stands.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let (of, lines) = open(bytes, SEED, FORMAT, "routes")?;
        if of != format!("{:016x}", origin(&self.first)) {
            return Ok(());
        }
        let mut known = HashSet::new();
        let routes: Result<Vec<Route>, _> = lines.lines().map(str::parse).collect();
        let routes = routes.map_err(|error: super::RouteError| error.problem)?;
        if let Some(twice) = routes.iter().find(|route| !known.insert((route.prefix, route.len))) {
            return Err(format!("exported routes have {}/{} twice", twice.prefix, twice.len));
        }
        let fresh = Self::with(self.first.clone(), &First::of(routes).0, self.places.clone())?;
        *self = Self { version: self.version + 1, ..fresh };
        Ok(())
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.routes.len() as u64, self.routes.capacity() as u64)
    }

    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }

    fn is_written(&self) -> bool {
        true
    }
}
