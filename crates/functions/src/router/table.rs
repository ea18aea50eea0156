//! The routes that all workers share, with the next hops behind them, and changes that are made together.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::Declared;
use netbricks_core::consistency::Contents;
use netbricks_core::sealed::{damaged, hash_text, open, seal};
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::state::Mobility;
use netbricks_core::tables::{Changing, Handover, Lpm, LpmConfig, LpmError, LpmTicket, Routes, Secret};

use super::buckets::Buckets;
use super::faces::Faces;
use super::interface::truncated;
use super::route::{Action, Route};

/// Where a route comes from. The first of two routes for one prefix decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// An interface's address or network, which nothing replaces.
    Interface,
    /// The operator: the configuration, or a handler.
    Static,
    /// The kernel's table.
    Kernel,
}

/// A route with its next hops resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) prefix: IpAddr,
    pub(super) len: u8,
    pub(super) action: Action,
    pub(super) origin: Origin,
}

/// The first routes: those of interfaces, and those of the operator, with the interfaces that they name.
#[derive(Clone, Debug, Default)]
pub(super) struct First {
    pub(super) faces: Arc<Faces>,
    pub(super) routes: Arc<[Entry]>,
    /// The kernel's table whose routes are taken over.
    pub(super) kernel: Option<u32>,
}

/// Whether the content is the same. Another table of the kernel leaves it as it is.
impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.faces, &other.faces) || self.faces == other.faces)
            && (Arc::ptr_eq(&self.routes, &other.routes) || self.routes == other.routes)
    }
}

/// A meaning that prefixes share.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) action: Action,
    pub(super) origin: Origin,
    /// The next hop of each bucket of flows, where there are several.
    pub(super) buckets: Buckets,
    /// Prefixes with this meaning.
    uses: u32,
}

/// All workers' routes, under bounded inconsistency.
pub(super) struct RouteTable {
    routes: Routes<u32>,
    targets: Vec<Option<Target>>,
    /// The number of each meaning, by origin.
    numbers: [BTreeMap<Action, u32>; 3],
    free: Vec<u32>,
    /// Routes of the kernel whose prefixes have a route of the operator.
    shadowed: BTreeMap<(IpAddr, u8), Action>,
    /// The number of changes.
    version: u64,
    first: First,
}

/// One change of a route.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// Puts a route in, in the place of one of the same origin with the same prefix.
    Add(Entry),
    /// Takes a route of this origin out.
    Withdraw { prefix: IpAddr, len: u8, origin: Origin },
}

/// Several changes that are one.
#[derive(Clone)]
pub(super) enum Edits {
    /// Makes all of these, in order, or none.
    All(Arc<[Edit]>),
    /// Replaces the table by a larger one with the same routes, unless it has changed since version `base`.
    Grow {
        base: u64,
        /// Two equal tables, one for each copy of the state.
        larger: Handover<Routes<u32>>,
    },
}

/// The numbers of routes that were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) added: usize,
    pub(super) replaced: usize,
    pub(super) withdrawn: usize,
}

/// The reason why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The edit at this place withdraws a route that is not there.
    Absent { at: usize },
    /// The edit at this place is about a prefix of an interface.
    OfInterface { at: usize },
    /// The edit at this place needs a larger table.
    Full { at: usize, error: LpmError },
    /// The table has changed since a larger one was made.
    Changed,
}

/// The meaning of a prefix before an edit.
struct Before {
    prefix: IpAddr,
    len: u8,
    had: Option<(Origin, Action)>,
    shadow: Option<Action>,
}

impl RouteTable {
    fn with(first: &First, routes: &[Entry]) -> Result<Self, String> {
        let mut sorted: Vec<&Entry> = routes.iter().collect();
        // With more meanings than a byte can number, those that come first get the bytes.
        sorted.sort_by_key(|route| route.len);
        let (v4, v6) = sizes(routes.iter().map(|route| (route.prefix, route.len)));
        let mut fresh = Self {
            routes: Routes::new(Some(v4), Some(v6)).map_err(|error| error.to_string())?,
            first: first.clone(),
            ..Self::empty()
        };
        for Entry { prefix, len, action, origin } in sorted {
            fresh.put(*prefix, *len, *origin, action).map_err(|error| error.to_string())?;
        }
        Ok(fresh)
    }

    fn empty() -> Self {
        Self {
            routes: Routes::none(),
            targets: Vec::new(),
            numbers: [const { BTreeMap::new() }; 3],
            free: Vec::new(),
            shadowed: BTreeMap::new(),
            version: 0,
            first: First::default(),
        }
    }

    /// The table of prefixes, for lookups of a batch.
    pub(super) fn prefixes(&self) -> &Routes<u32> {
        &self.routes
    }
    /// The meaning of an address, which `ticket` may know.
    #[inline(always)]
    pub(super) fn known(&self, address: IpAddr, ticket: LpmTicket<std::net::Ipv6Addr>) -> Option<&Target> {
        self.target(*self.routes.known(address, ticket)?)
    }
    #[inline(always)]
    fn target(&self, number: u32) -> Option<&Target> {
        self.targets.get(number as usize)?.as_ref()
    }

    /// The longest prefix that holds this address.
    pub(super) fn route(&self, address: IpAddr) -> Option<Entry> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (0..=most).rev().find_map(|len| self.exact(truncated(address, len), len))
    }
    /// The route of exactly this prefix.
    pub(super) fn exact(&self, prefix: IpAddr, len: u8) -> Option<Entry> {
        let target = self.target(*self.routes.get(prefix, len)?)?;
        Some(Entry { prefix, len, action: target.action.clone(), origin: target.origin })
    }

    /// All routes, those of IPv4 first, by address and then by length.
    pub(super) fn all(&self) -> impl Iterator<Item = (IpAddr, u8, &Target)> {
        self.routes.iter().filter_map(|(prefix, len, number)| Some((prefix, len, self.target(*number)?)))
    }

    /// Whether an address on an interface is a next hop of some route.
    pub(super) fn is_gateway(&self, interface: u16, address: IpAddr) -> bool {
        // Few sets of next hops serve many prefixes.
        self.numbers.iter().flat_map(BTreeMap::keys).any(|action| match action {
            Action::Via(hops) => {
                hops.iter().any(|hop| hop.interface == interface && hop.gateway == Some(address))
            }
            _ => false,
        })
    }

    /// A change to a table with room for these edits too. It may take long, and disturbs no worker.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn larger(
        (base, mut routes): (u64, Vec<(IpAddr, u8, u32)>),
        edits: &[Edit],
    ) -> Result<Edits, String> {
        let added = edits.iter().filter_map(|edit| match edit {
            Edit::Add(route) => Some((route.prefix, route.len)),
            Edit::Withdraw { .. } => None,
        });
        let (v4, v6) = sizes(routes.iter().map(|(prefix, len, _)| (*prefix, *len)).chain(added));
        routes.sort_by_key(|(_, len, _)| *len);
        let make = || {
            let mut table = Routes::new(Some(v4), Some(v6)).map_err(|error| error.to_string())?;
            for (prefix, len, value) in &routes {
                table.insert(*prefix, *len, *value).map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(table)
        };
        Ok(Edits::Grow { base, larger: Handover::new(vec![make()?, make()?]) })
    }

    /// The version and all routes, for [`larger`](Self::larger).
    pub(super) fn copied(&self) -> (u64, Vec<(IpAddr, u8, u32)>) {
        (self.version, self.routes.iter().map(|(prefix, len, number)| (prefix, len, *number)).collect())
    }

    fn had(&self, prefix: IpAddr, len: u8) -> Option<(Origin, Action)> {
        self.exact(prefix, len).map(|Entry { origin, action, .. }| (origin, action))
    }

    /// Gives a prefix a meaning, in the place of the one that it has.
    fn put(&mut self, prefix: IpAddr, len: u8, origin: Origin, action: &Action) -> Result<(), LpmError> {
        let known = self.numbers[origin as usize].get(action).copied();
        let number = match known {
            Some(number) => number,
            None => self.free.last().copied().unwrap_or(self.targets.len() as u32),
        };
        let before = self.routes.insert(prefix, len, number)?;
        if known.is_none() {
            let hops = if let Action::Via(hops) = action { &hops[..] } else { &[] };
            let target = Target { action: action.clone(), origin, buckets: Buckets::of(hops), uses: 0 };
            if self.free.pop().is_some() {
                self.targets[number as usize] = Some(target);
            } else {
                self.targets.push(Some(target));
            }
            self.numbers[origin as usize].insert(action.clone(), number);
        }
        if let Some(target) = self.targets.get_mut(number as usize).and_then(Option::as_mut) {
            target.uses += 1;
        }
        before.into_iter().for_each(|before| self.release(before));
        Ok(())
    }

    fn take(&mut self, prefix: IpAddr, len: u8) {
        let before = self.routes.remove(prefix, len);
        before.into_iter().for_each(|before| self.release(before));
    }

    /// Takes note that one prefix less has this meaning.
    fn release(&mut self, number: u32) {
        let Some(place) = self.targets.get_mut(number as usize) else { return };
        let Some(target) = place else { return };
        target.uses = target.uses.saturating_sub(1);
        if target.uses == 0
            && let Some(Target { action, origin, .. }) = place.take()
        {
            self.numbers[origin as usize].remove(&action);
            self.free.push(number);
        }
    }

    fn make_all(&mut self, edits: &[Edit]) -> Result<Done, Refusal> {
        let mut done = Done::default();
        let mut before: Vec<Before> = Vec::with_capacity(edits.len());
        for (at, edit) in edits.iter().enumerate() {
            let (prefix, len) = match edit {
                Edit::Add(route) => (route.prefix, route.len),
                Edit::Withdraw { prefix, len, .. } => (*prefix, *len),
            };
            let (had, shadow) = (self.had(prefix, len), self.shadowed.get(&(prefix, len)).cloned());
            before.push(Before { prefix, len, had: had.clone(), shadow });
            let made = match edit {
                Edit::Add(route) => self.add(at, route, had, &mut done),
                Edit::Withdraw { origin, .. } => self.withdraw(at, (prefix, len), *origin, had, &mut done),
            };
            if let Err(refusal) = made {
                self.undo(before);
                return Err(refusal);
            }
        }
        self.version += 1;
        Ok(done)
    }

    fn add(
        &mut self,
        at: usize,
        Entry { prefix, len, action, origin }: &Entry,
        had: Option<(Origin, Action)>,
        done: &mut Done,
    ) -> Result<(), Refusal> {
        let key = (*prefix, *len);
        match had {
            Some((Origin::Interface, _)) if *origin == Origin::Static => {
                return Err(Refusal::OfInterface { at });
            }
            // The kernel has the interfaces' networks, too.
            Some((Origin::Interface, _)) => return Ok(()),
            Some((Origin::Static, _)) if *origin == Origin::Kernel => {
                self.shadowed.insert(key, action.clone());
                done.added += 1;
                return Ok(());
            }
            Some((Origin::Kernel, kernel)) if *origin == Origin::Static => {
                self.shadowed.insert(key, kernel);
                done.added += 1;
            }
            Some(_) => done.replaced += 1,
            None => done.added += 1,
        }
        self.put(*prefix, *len, *origin, action).map_err(|error| Refusal::Full { at, error })
    }

    fn withdraw(
        &mut self,
        at: usize,
        (prefix, len): (IpAddr, u8),
        origin: Origin,
        had: Option<(Origin, Action)>,
        done: &mut Done,
    ) -> Result<(), Refusal> {
        match (origin, had) {
            (_, Some((of, _))) if of == origin => match self.shadowed.remove(&(prefix, len)) {
                Some(kernel) => self
                    .put(prefix, len, Origin::Kernel, &kernel)
                    .map_err(|error| Refusal::Full { at, error })?,
                None => self.take(prefix, len),
            },
            (Origin::Kernel, _) => {
                // The kernel may tell of a route that it never had to tell.
                if self.shadowed.remove(&(prefix, len)).is_none() {
                    return Ok(());
                }
            }
            (_, Some((Origin::Interface, _))) => return Err(Refusal::OfInterface { at }),
            _ => return Err(Refusal::Absent { at }),
        }
        done.withdrawn += 1;
        Ok(())
    }

    /// Gives prefixes what they had, the last first. The room that each needs is that which it had.
    fn undo(&mut self, before: Vec<Before>) {
        for Before { prefix, len, had, shadow } in before.into_iter().rev() {
            match had {
                Some((origin, action)) => {
                    let restored = self.put(prefix, len, origin, &action);
                    debug_assert!(restored.is_ok(), "{prefix}/{len} had room before");
                }
                None => self.take(prefix, len),
            }
            match shadow {
                Some(action) => drop(self.shadowed.insert((prefix, len), action)),
                None => drop(self.shadowed.remove(&(prefix, len))),
            }
        }
    }
}

/// Groups of cells for routes to come, beside as many again as are in use.
const ROOM: usize = 256;

/// The sizes of tables for these prefixes, and for as many more.
fn sizes(prefixes: impl Iterator<Item = (IpAddr, u8)>) -> (LpmConfig, LpmConfig) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (prefix, len) in prefixes {
        match prefix {
            IpAddr::V4(prefix) => v4.extend(
                [20u8, 26]
                    .into_iter()
                    .filter(|end| *end < len)
                    .map(|end| (end, prefix.to_bits() >> (32 - end))),
            ),
            IpAddr::V6(prefix) => {
                v6.extend((16..len).step_by(8).map(|end| (end, prefix.to_bits() >> (128 - u32::from(end)))))
            }
        }
    }
    v4.sort_unstable();
    v4.dedup();
    v6.sort_unstable();
    v6.dedup();
    let config = |groups: usize| LpmConfig {
        prefixes: Lpm::<std::net::Ipv4Addr, u32>::MAXIMUM,
        groups: 2 * groups + ROOM,
    };
    (config(v4.len()), config(v6.len()))
}

impl Changing for RouteTable {
    type Change = Edits;
    type Outcome = Result<Done, Refusal>;

    fn apply(&mut self, change: &Edits) -> Result<Done, Refusal> {
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

impl Contents for RouteTable {
    type Config = First;
    /// Other routes in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        Self::with(first, &first.routes)
    }
    fn least() -> Self {
        Self::empty()
    }
}

const FORMAT: &str = "router-routes-1";
const LEARNED: &str = "router-kernel-1";
const SEED: u64 = 0x7274_7261_6269_6c65;

/// The hash of the configuration's interfaces and routes.
fn origin(first: &First) -> u64 {
    hash_text(&format!("{:?} {:?}", first.faces, first.routes), &Secret::from_seed(SEED))
}

/// The format is lines: the hash of the configuration, one line for each route, and the checksum.
impl Declared for RouteTable {
    fn export(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT} {:016x}\n", origin(&self.first));
        for (prefix, len, target) in self.all() {
            let route = Shown { prefix, len, action: &target.action, faces: &self.first.faces };
            // Text takes any text.
            let _ = match target.origin {
                Origin::Interface => Ok(()),
                Origin::Static => writeln!(text, "static {route}"),
                Origin::Kernel => writeln!(text, "kernel {route}"),
            };
        }
        for ((prefix, len), action) in &self.shadowed {
            let _ = writeln!(
                text,
                "kernel {}",
                Shown { prefix: *prefix, len: *len, action, faces: &self.first.faces }
            );
        }
        seal(text, SEED)
    }

    /// Takes over changes by handlers, unless the configuration has named others since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let damaged = || damaged("routes");
        let (of, lines) = open(bytes, SEED, FORMAT, "routes")?;
        if of != format!("{:016x}", origin(&self.first)) {
            return Ok(());
        }
        let faces = self.first.faces.clone();
        let mut known = HashSet::new();
        let (mut routes, mut shadowed) = (Vec::new(), Vec::new());
        routes.extend(self.first.routes.iter().filter(|route| route.origin == Origin::Interface).cloned());
        for line in lines.lines() {
            let (origin, route) = line.split_once(' ').ok_or_else(damaged)?;
            let origin = match origin {
                "static" => Origin::Static,
                "kernel" => Origin::Kernel,
                _ => return Err(damaged()),
            };
            let route: Route = route.parse().map_err(|fault: super::words::Fault| fault.to_string())?;
            let action = route.resolved(&faces)?;
            let entry = Entry { prefix: route.prefix, len: route.len, action, origin };
            let is_first = known.insert((route.prefix, route.len));
            if is_first { routes.push(entry) } else { shadowed.push(entry) }
        }
        let mut fresh = Self::with(&self.first, &routes)?;
        for entry in shadowed {
            fresh.apply(&Edits::All([Edit::Add(entry)].into())).map_err(|_| damaged())?;
        }
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

    /// The kernel's routes, a line each behind the number of their table.
    fn learned(&self) -> Option<Vec<u8>> {
        let mut text = format!("{LEARNED} {}\n", self.first.kernel?);
        let faces = &self.first.faces;
        let routes = self.all().filter(|(_, _, target)| target.origin == Origin::Kernel);
        let routes = routes.map(|(prefix, len, target)| (prefix, len, &target.action));
        let shadowed = self.shadowed.iter().map(|((prefix, len), action)| (*prefix, *len, action));
        for (prefix, len, action) in routes.chain(shadowed) {
            // Text takes any text.
            let _ = writeln!(text, "{}", Shown { prefix, len, action, faces });
        }
        Some(seal(text, SEED))
    }

    /// Takes over the routes of the same table, as far as there are interfaces for them.
    fn learn(&mut self, learned: &[u8]) -> Result<(), String> {
        let (table, lines) = open(learned, SEED, LEARNED, "routes of the kernel")?;
        if self.first.kernel.is_none_or(|kernel| kernel.to_string() != table) {
            return Ok(());
        }
        let taken: HashSet<(IpAddr, u8)> =
            self.first.routes.iter().map(|route| (route.prefix, route.len)).collect();
        let (mut routes, mut shadowed) = (self.first.routes.to_vec(), Vec::new());
        for line in lines.lines() {
            let route: Route = line.parse().map_err(|_| damaged("routes of the kernel"))?;
            // The task that follows the kernel finds out about the others.
            let Ok(action) = route.resolved(&self.first.faces) else { continue };
            let entry = Entry { prefix: route.prefix, len: route.len, action, origin: Origin::Kernel };
            let is_taken = taken.contains(&(route.prefix, route.len));
            if is_taken { shadowed.push(Edit::Add(entry)) } else { routes.push(entry) }
        }
        let mut fresh = Self::with(&self.first, &routes)?;
        fresh.apply(&Edits::All(shadowed.into())).map_err(|_| damaged("routes of the kernel"))?;
        *self = Self { version: self.version + 1, ..fresh };
        Ok(())
    }
}

/// A route as an operator writes it.
pub(super) struct Shown<'a> {
    pub(super) prefix: IpAddr,
    pub(super) len: u8,
    pub(super) action: &'a Action,
    pub(super) faces: &'a Faces,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.prefix, self.len)?;
        match self.action {
            Action::Local => f.write_str(" local"),
            Action::Broadcast => f.write_str(" broadcast"),
            Action::Blackhole => f.write_str(" blackhole"),
            Action::Unreachable => f.write_str(" unreachable"),
            Action::Prohibit => f.write_str(" prohibit"),
            Action::Via(hops) => hops.iter().try_for_each(|hop| {
                hop.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))?;
                let name = self.faces.get(hop.interface).map_or("?", |face| face.name.as_str());
                write!(f, " dev {name}")?;
                if hop.weight == 1 { Ok(()) } else { write!(f, " weight {}", hop.weight) }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::RouterConfig;
    use super::*;

    fn config(text: &str) -> RouterConfig {
        let lan = "interfaces = [\"lan 192.0.2.1/24\", \"wan 198.51.100.1/24\"]";
        toml::from_str(&format!("{lan}\n{text}")).unwrap()
    }

    fn table(text: &str) -> RouteTable {
        RouteTable::make(&config(text).first().unwrap()).unwrap()
    }

    fn edit(table: &RouteTable, route: &str, origin: Origin) -> Edit {
        let route: Route = route.parse().unwrap_or_else(|_| panic!("{route}"));
        let action = route.resolved(&table.first.faces).unwrap();
        Edit::Add(Entry { prefix: route.prefix, len: route.len, action, origin })
    }

    fn of_kernel(table: &RouteTable) -> Vec<String> {
        let kernel = table.all().filter(|(_, _, target)| target.origin == Origin::Kernel);
        kernel.map(|(prefix, len, _)| format!("{prefix}/{len}")).collect()
    }

    #[test]
    fn routes_that_begin_again_have_those_of_the_kernel_and_none_of_handlers() {
        let file = "kernel = \"main\"\nroutes = [\"10.1.0.0/16 via 192.0.2.9\"]";
        let mut before = table(file);
        let edits = [
            ("10.0.0.0/8 via 192.0.2.2", Origin::Kernel),
            ("10.2.0.0/16 via 198.51.100.9", Origin::Kernel),
            // Behind the operator's own.
            ("10.1.0.0/16 via 192.0.2.3", Origin::Kernel),
            ("10.3.0.0/16 via 192.0.2.4", Origin::Static),
        ];
        let edits: Vec<Edit> = edits.iter().map(|(route, origin)| edit(&before, route, *origin)).collect();
        before.apply(&Edits::All(edits.into())).unwrap();
        let learned = before.learned().unwrap();
        let mut after = table(file);
        after.learn(&learned).unwrap();
        assert_eq!(of_kernel(&after), ["10.0.0.0/8", "10.2.0.0/16"]);
        assert!(after.exact([10, 3, 0, 0].into(), 16).is_none());
        assert_eq!(after.exact([10, 1, 0, 0].into(), 16).unwrap().origin, Origin::Static);
        // Without the operator's route, the kernel's shows.
        let gone = Edit::Withdraw { prefix: [10, 1, 0, 0].into(), len: 16, origin: Origin::Static };
        after.apply(&Edits::All([gone].into())).unwrap();
        assert_eq!(of_kernel(&after), ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"]);
        // Without that interface, those on it are left out. Another table has other routes, and none has none.
        let mut fewer = RouteTable::make(
            &toml::from_str::<RouterConfig>("interfaces = [\"lan 192.0.2.1/24\"]\nkernel = \"main\"")
                .unwrap()
                .first()
                .unwrap(),
        )
        .unwrap();
        fewer.learn(&learned).unwrap();
        assert_eq!(of_kernel(&fewer), ["10.0.0.0/8", "10.1.0.0/16"]);
        for other in ["kernel = \"100\"", ""] {
            let mut other = table(other);
            other.learn(&learned).unwrap();
            assert_eq!(of_kernel(&other), Vec::<String>::new());
        }
        assert!(table("").learned().is_none());
        assert!(table(file).learn(&learned[1..]).is_err());
    }
}
