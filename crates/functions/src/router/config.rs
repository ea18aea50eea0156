//! Settings of `router`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::live::Entries;
use netbricks_core::packet::MacAddress;
use netbricks_core::units::{Duration, list_from_text};
use netbricks_core::{InvalidSetting, LiveSettings, RefusedItem, Settings, read_text};
use serde::de::{Deserialize, Deserializer};

use super::faces::Faces;
use super::interface::Interface;
use super::neighbours::NeighbourKey;
use super::reassemble::FRAGMENTS;
use super::resolver::Sizes;
use super::route::{self, Action, Hop, Lines, Route};
use super::table::{Entry, First, Origin};
use super::words::{Fault, Words};

netbricks_core::settings! {
    /// Settings of `router`.
    #[derive(Clone, Debug)]
    pub struct RouterConfig {
        /// The interfaces: each a port, its addresses, and what differs from the defaults.
        ///
        /// The defaults are an MTU of 1500 bytes, frames without a tag, and a MAC address that the name decides.
        pub interfaces: Vec<Interface> = required, "list of \"PORT [ADDRESS/LENGTH ...] [mtu BYTES] [mac MAC] [vlan NUMBER]\"", read by interfaces;
        /// The port, usually a TAP, by which the host gets packets for the router and sends its own.
        pub host: Option<HostPort> = unset "the router answers pings itself", "\"PORT [mtu BYTES] [mac MAC]\"";
        /// Routes; the longest prefix that holds the destination decides.
        pub routes: Vec<Route> = [], "list of \"PREFIX via ADDRESS [dev INTERFACE] [weight NUMBER] [via ...]\", or with blackhole, unreachable or prohibit", read by routes;
        /// More routes; `#` begins a comment.
        pub table: Option<PathBuf> = unset, "path of a file with one route a line, from the chain file's directory";
        /// The routing table of the host's kernel whose routes are taken over, too.
        pub kernel: Option<KernelTable> = unset, "\"main\", or the number of a table";
        /// Neighbours whose MAC addresses are not asked for.
        pub neighbours: Vec<StaticNeighbour> = [], "list of \"INTERFACE ADDRESS MAC\"", read by neighbours;
        /// Neighbours that are known at a time.
        pub capacity: usize = 65_536, "whole number, neighbours";
        /// Time after its last answer in which a neighbour is not asked again.
        pub reachable: Duration = "30 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// Hosts that a worker asks for at once; next hops of routes come beside them.
        pub questions: usize = 1_024, "whole number, neighbours";
        /// Packets of a worker that wait for MAC addresses.
        pub held: usize = 1_024, "whole number, packets";
        /// Packets that wait for one neighbour; a new one takes the place of the oldest.
        pub held_each: usize = 16, "whole number, packets";
        /// ICMP errors by interface and worker.
        pub error_rate: u64 = 1_000, "whole number, packets a second";
        /// Whether IPv4 fragments are put together before they are routed.
        pub reassemble: bool = false, "true or false";
        /// Packets of a worker whose fragments are put together at a time.
        pub reassembling: usize = 64, "whole number, packets";
        /// The file's routes with their lines, after they have been read.
        read: OnceLock<Lines<Route>> = skipped;
        /// The first state, once a node was built.
        first: OnceLock<First> = skipped;
    }
}

/// The port of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(pub Interface);

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let interface: Interface = netbricks_core::units::from_text(deserializer)?;
        if interface.vlan.is_some() || !interface.networks.is_empty() {
            let problem =
                "the host's port has no addresses and no VLAN of its own: it has those of all interfaces";
            return Err(serde::de::Error::custom(problem));
        }
        Ok(Self(interface))
    }
}

/// A routing table of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTable(pub u32);

impl<'de> Deserialize<'de> for KernelTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        netbricks_core::units::from_text(deserializer)
    }
}

impl std::str::FromStr for KernelTable {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "main" => Ok(Self(254)),
            number => {
                number.parse().ok().filter(|number| *number > 0 && *number != 255).map(Self).ok_or_else(
                    || format!("expected \"main\" or the number of a routing table, found \"{text}\""),
                )
            }
        }
    }
}

/// A neighbour of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticNeighbour {
    /// The interface's name.
    pub interface: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddress,
}

impl std::str::FromStr for StaticNeighbour {
    type Err = Fault;
    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut words = Words::of(text);
        let interface = words.next("the name of an interface")?.to_owned();
        let word = words.next("an IP address")?;
        let address =
            word.parse().map_err(|_| words.fault(word, format!("expected an IP address, found `{word}`")))?;
        let word = words.next("a MAC address")?;
        let mac =
            word.parse().map_err(|_| words.fault(word, format!("expected a MAC address, found `{word}`")))?;
        match words.more() {
            None => Ok(Self { interface, address, mac }),
            Some(word) => Err(words.fault(word, format!("expected nothing more, found `{word}`"))),
        }
    }
}

fn interfaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Interface>, D::Error> {
    let mut known: Vec<Interface> = Vec::new();
    list_from_text(deserializer, |text| {
        let interface: Interface = text.parse().map_err(|fault: Fault| fault.to_string())?;
        stands_beside(&known, &interface)?;
        known.push(interface.clone());
        Ok::<_, String>(interface)
    })
}

/// Whether an interface may be beside those that are `known`.
fn stands_beside(known: &[Interface], interface: &Interface) -> Result<(), String> {
    for other in known {
        let name = other.name();
        if name == interface.name() {
            return Err(format!("`{name}` is an interface already: give it all its addresses in one item"));
        }
        for network in &interface.networks {
            if let Some(same) = other.networks.iter().find(|same| same.address == network.address) {
                return Err(format!("{} is the address of `{name}` already", same.address));
            }
            let overlaps = |same: &&super::interface::Network| {
                same.holds(network.address) || network.holds(same.address)
            };
            let is_link_local =
                matches!(network.address, IpAddr::V6(address) if address.is_unicast_link_local());
            if let Some(same) = other.networks.iter().filter(|_| !is_link_local).find(overlaps) {
                return Err(format!("the network of {network} overlaps {same} of `{name}`"));
            }
        }
    }
    let twice = |(at, network): &(usize, &super::interface::Network)| {
        interface.networks[..*at].iter().any(|before| before.address == network.address)
    };
    match interface.networks.iter().enumerate().find(twice) {
        Some((_, network)) => Err(format!("{} stands here twice", network.address)),
        None => Ok(()),
    }
}

fn routes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Route>, D::Error> {
    let mut known = BTreeSet::new();
    list_from_text(deserializer, |text| {
        let route: Route = text.parse().map_err(|fault: Fault| fault.to_string())?;
        if known.insert((route.prefix, route.len)) { Ok(route) } else { Err(given_twice(&route)) }
    })
}

fn given_twice(route: &Route) -> String {
    format!(
        "gives {}/{} a second time: one route has several next hops by several `via`",
        route.prefix, route.len
    )
}

fn neighbours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<StaticNeighbour>, D::Error> {
    list_from_text(deserializer, |text| text.parse::<StaticNeighbour>().map_err(|fault| fault.to_string()))
}

/// The most interfaces: each port takes a way out of the node.
const MOST_INTERFACES: usize = 250;
/// The most bytes of a table's file: some million routes.
const LARGEST: u64 = 256 << 20;
/// Wrong lines of a file that are shown; after mending twenty a user checks again anyway.
const SHOWN: usize = 20;

impl RouterConfig {
    pub(super) fn faces(&self) -> Faces {
        Faces::of(&self.interfaces, self.host.as_ref().map(|host| &host.0))
    }

    /// The names of the ports, in the order of the node's inputs.
    pub fn ports(&self) -> Vec<String> {
        self.faces().ports
    }

    /// The most packets that wait for an answer or for their other fragments.
    pub(super) fn most_held(&self) -> usize {
        self.held + if self.reassemble { self.reassembling * FRAGMENTS } else { 0 }
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes { questions: self.questions, packets: self.held, packets_each: self.held_each }
    }

    /// The neighbours of the configuration, by interface.
    pub(super) fn static_neighbours(&self, faces: &Faces) -> Vec<(NeighbourKey, MacAddress)> {
        let of = |neighbour: &StaticNeighbour| {
            let interface = faces.by_name(&neighbour.interface)?;
            Some((NeighbourKey { interface, address: neighbour.address }, neighbour.mac))
        };
        self.neighbours.iter().filter_map(of).collect()
    }

    /// The first routes, which are made once for all workers.
    ///
    /// # Errors
    /// The key that is wrong, and the fault.
    pub(super) fn first(&self) -> Result<First, InvalidSetting> {
        if let Some(first) = self.first.get() {
            return Ok(first.clone());
        }
        let faces = Arc::new(self.faces());
        let mut routes = of_interfaces(&faces);
        let refused = |key, problem| InvalidSetting { key, problem };
        for route in &self.routes {
            let action = route.resolved(&faces).map_err(|problem| refused("routes", problem))?;
            routes.push(Entry { prefix: route.prefix, len: route.len, action, origin: Origin::Static });
        }
        if let Some(path) = &self.table {
            let known: BTreeSet<(IpAddr, u8)> =
                routes.iter().map(|route| (route.prefix, route.len)).collect();
            let mut seen = BTreeSet::new();
            let mut wrong = Vec::new();
            for (line, route) in self.lines(path)? {
                let key = (route.prefix, route.len);
                let problem = match route.resolved(&faces) {
                    Err(problem) => problem,
                    Ok(_) if known.contains(&key) => {
                        format!("{}/{} is of an interface or stands in `routes`: take one out", key.0, key.1)
                    }
                    Ok(_) if !seen.insert(key) => format!("{}/{} stands here twice", key.0, key.1),
                    Ok(action) => {
                        routes.push(Entry { prefix: key.0, len: key.1, action, origin: Origin::Static });
                        continue;
                    }
                };
                wrong.push(format!("{}:{line}: {problem}", path.display()));
            }
            if !wrong.is_empty() {
                return Err(refused("table", format!("names a file with {}", listed(&wrong))));
            }
        }
        let kernel = self.kernel.map(|table| table.0);
        let first = First { faces, routes: routes.into(), kernel };
        Ok(self.first.get_or_init(|| first).clone())
    }

    /// The file's routes with their lines.
    fn lines(&self, path: &Path) -> Result<&[(usize, Route)], InvalidSetting> {
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let refused = |problem| InvalidSetting { key: "table", problem };
        let shown = path.display();
        let text = read_text(path, LARGEST)
            .map_err(|error| refused(format!("names {shown}, which cannot be read: {error}")))?;
        let routes = route::lines(&text, str::parse::<Route>).map_err(|wrong| {
            let line = |(line, fault): &(usize, Fault)| {
                format!("{shown}:{line}:{}: {}", fault.column, fault.problem)
            };
            refused(format!("names a file with {}", listed(&wrong.iter().map(line).collect::<Vec<_>>())))
        })?;
        Ok(self.read.get_or_init(|| routes))
    }
}

/// The routes that interfaces bring: their addresses, their networks, and the broadcast addresses of these.
fn of_interfaces(faces: &Faces) -> Vec<Entry> {
    let entry = |prefix, len, action| Entry { prefix, len, action, origin: Origin::Interface };
    let mut known = BTreeSet::new();
    let mut routes = Vec::new();
    for (number, face) in (0u16..).zip(&faces.all).filter(|(_, face)| !face.is_host) {
        let mut add = |prefix: IpAddr, len: u8, action| {
            if known.insert((prefix, len)) {
                routes.push(entry(prefix, len, action));
            }
        };
        add(face.link_local.into(), 128, Action::Local);
        for network in &face.networks {
            let whole = if network.address.is_ipv4() { 32 } else { 128 };
            add(network.address, whole, Action::Local);
            if matches!(network.address, IpAddr::V6(address) if address.is_unicast_link_local()) {
                continue;
            }
            if let Some(broadcast) = network.broadcast() {
                add(broadcast.into(), 32, Action::Broadcast);
                add(network.prefix(), 32, Action::Broadcast);
            }
            let hop = Hop { gateway: None, interface: number, weight: 1 };
            add(network.prefix(), network.len, Action::Via(vec![hop]));
        }
    }
    routes
}

/// The number of wrong lines, and the first of them, one on each line.
pub(super) fn listed(wrong: &[String]) -> String {
    let mut text =
        if let [_] = wrong { "a wrong line".to_owned() } else { format!("{} wrong lines", wrong.len()) };
    for line in wrong.iter().take(SHOWN) {
        text += &format!("\n{line}");
    }
    if wrong.len() > SHOWN {
        text += &format!("\n… and {} more", wrong.len() - SHOWN);
    }
    text
}

/// From a second, in which a question is asked once, to an hour.
const REACHABLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000_000)..=Duration::from_nanoseconds(3_600_000_000_000);

impl Settings for RouterConfig {
    fn start_from(&mut self, directory: &Path) {
        self.table = self.table.take().map(|table| directory.join(table));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.interfaces.is_empty() || self.interfaces.len() > MOST_INTERFACES {
            let problem =
                format!("must hold 1 to {MOST_INTERFACES} interfaces, found {}", self.interfaces.len());
            return refused("interfaces", problem);
        }
        if let Some(HostPort(host)) = &self.host
            && self.interfaces.iter().any(|interface| interface.port == host.port)
        {
            let problem =
                format!("is `{}`, which is an interface: give the host a port of its own", host.port);
            return refused("host", problem);
        }
        for (key, value, most) in [
            ("capacity", self.capacity, 1 << 24),
            ("questions", self.questions, 1 << 16),
            ("held", self.held, 1 << 16),
            ("held_each", self.held_each, 1 << 10),
            ("reassembling", self.reassembling, 1 << 12),
        ] {
            if value == 0 || value > most {
                return refused(key, format!("must be 1 to {most}, found {value}"));
            }
        }
        if !REACHABLE.contains(&self.reachable) {
            return refused("reachable", format!("must be \"1 s\" to \"1 h\", found \"{}\"", self.reachable));
        }
        // The file's lines; those of the list have places of their own.
        if self.table.is_some() && self.check_items().is_ok() {
            self.first()?;
        }
        Ok(())
    }

    fn check_items(&self) -> Result<(), RefusedItem> {
        let faces = self.faces();
        let of_interfaces: BTreeSet<(IpAddr, u8)> =
            of_interfaces(&faces).into_iter().map(|route| (route.prefix, route.len)).collect();
        for (item, route) in self.routes.iter().enumerate() {
            let of_interface = of_interfaces.contains(&(route.prefix, route.len));
            let problem = match route.resolved(&faces) {
                Err(problem) => problem,
                Ok(_) if of_interface => {
                    format!("has {}/{}, which is of an interface", route.prefix, route.len)
                }
                Ok(_) => continue,
            };
            return Err(RefusedItem {
                key: "routes",
                item,
                problem: format!("item {}: {problem}", item + 1),
            });
        }
        for (item, neighbour) in self.neighbours.iter().enumerate() {
            let StaticNeighbour { interface, address, .. } = neighbour;
            let face = faces.by_name(interface).and_then(|number| faces.get(number));
            let problem = match face {
                None => format!("there is no interface `{interface}`; there are: {}", faces.names()),
                Some(face) if !face.is_on_link(*address) => {
                    format!("{address} is not on the network of `{interface}`")
                }
                Some(_) => continue,
            };
            return Err(RefusedItem {
                key: "neighbours",
                item,
                problem: format!("item {}: {problem}", item + 1),
            });
        }
        Ok(())
    }
}

impl LiveSettings for RouterConfig {
    const LIVE: &'static [&'static str] = &["routes", "table"];
    const ENTRIES: &'static str = "routes";
    const ADD: &'static str = "add";
    const REMOVE: &'static str = "withdraw";

    fn entries(&self) -> Entries {
        let lines = self.table.as_ref().and_then(|path| self.lines(path).ok()).unwrap_or_default();
        let routes = self.routes.iter().chain(lines.iter().map(|(_, route)| route));
        routes.map(|route| (format!("{}/{}", route.prefix, route.len), route.to_string())).collect()
    }

    fn entry(word: &str) -> String {
        route::shown_prefix(word)
    }
}
