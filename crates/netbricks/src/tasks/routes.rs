//! The kernel's routes as its messages tell them: the best of each prefix, and what changed since the last look.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteProtocol, RouteType,
    RouteVia,
};

/// A prefix: its address, and its length.
pub(super) type Prefix = (IpAddr, u8);

/// A route of the kernel that can be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) prefix: Prefix,
    /// The smaller it is, the better the route.
    priority: u32,
    pub(super) way: KernelWay,
}

/// Where the packets of a route go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelWay {
    /// To one of these routers, each with its weight.
    Via(BTreeMap<IpAddr, u16>),
    /// Nowhere, by the name of the kind of route.
    Nowhere(&'static str),
}

/// A route of a message, where it is of this table and one that a router takes over.
///
/// The networks of the kernel's own interfaces, which have no gateway, are not.
pub(super) fn taken_over(message: &RouteMessage, table: u32) -> Option<KernelRoute> {
    let header = &message.header;
    let (prefix, priority) = place_of(message, table)?;
    if header.protocol == RouteProtocol::Kernel {
        return None;
    }
    let way = match header.kind {
        RouteType::Unicast => {
            let mut hops = BTreeMap::new();
            for attribute in &message.attributes {
                if let RouteAttribute::MultiPath(paths) = attribute {
                    let found = |path: &RouteNextHop| Some((gateway(&path.attributes)?, weight(path)));
                    hops.extend(paths.iter().filter_map(found));
                }
            }
            hops.extend(gateway(&message.attributes).map(|gateway| (gateway, 1)));
            if hops.is_empty() {
                return None;
            }
            KernelWay::Via(hops)
        }
        RouteType::BlackHole => KernelWay::Nowhere("blackhole"),
        RouteType::Unreachable => KernelWay::Nowhere("unreachable"),
        RouteType::Prohibit => KernelWay::Nowhere("prohibit"),
        _ => return None,
    };
    Some(KernelRoute { prefix, priority, way })
}

/// The prefix and priority of a message's route, where it is of this table and for all sources.
pub(super) fn place_of(message: &RouteMessage, table: u32) -> Option<(Prefix, u32)> {
    let header = &message.header;
    let mut of = u32::from(header.table);
    let (mut prefix, mut priority) = (None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => of = *number,
            RouteAttribute::Destination(address) => prefix = of_address(address),
            RouteAttribute::Priority(number) => priority = *number,
            _ => {}
        }
    }
    if of != table || header.source_prefix_length > 0 {
        return None;
    }
    let prefix = prefix.or(match header.address_family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    })?;
    Some(((prefix, header.destination_prefix_length), priority))
}

/// Takes the next hops out of a route whose links are down. The kernel does not use them.
pub(super) fn without_dead_hops(message: &mut RouteMessage) {
    for attribute in &mut message.attributes {
        if let RouteAttribute::MultiPath(paths) = attribute {
            paths.retain(|path| !path.flags.contains(RouteNextHopFlags::Dead));
        }
    }
}

fn of_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => of_address(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

/// The kernel counts weights from 0.
fn weight(path: &RouteNextHop) -> u16 {
    u16::from(path.hops) + 1
}

/// All routes of the kernel's table, and the prefixes that changed since they were last written.
#[derive(Debug, Default)]
pub(super) struct KernelTable {
    /// The routes of each prefix, by priority.
    routes: BTreeMap<Prefix, BTreeMap<u32, KernelWay>>,
    /// The routes before all are told again, until that is over.
    before: Option<BTreeMap<Prefix, BTreeMap<u32, KernelWay>>>,
    changed: BTreeSet<Prefix>,
}

impl KernelTable {
    /// Takes note of a new route. With `joins`, its next hops come beside those that are there.
    pub(super) fn add(&mut self, route: KernelRoute, joins: bool) {
        let KernelRoute { prefix, priority, way } = route;
        if self.before.is_none() {
            self.changed.insert(prefix);
        }
        let routes = self.routes.entry(prefix).or_default();
        match (routes.get_mut(&priority), way) {
            (Some(KernelWay::Via(known)), KernelWay::Via(more)) if joins => known.extend(more),
            (_, way) => drop(routes.insert(priority, way)),
        }
    }

    /// Takes note of a route that went, or of some of its next hops.
    pub(super) fn remove(&mut self, route: &KernelRoute) {
        let Some(routes) = self.routes.get_mut(&route.prefix) else { return };
        if self.before.is_none() {
            self.changed.insert(route.prefix);
        }
        let goes = match (routes.get_mut(&route.priority), &route.way) {
            (Some(KernelWay::Via(known)), KernelWay::Via(gone)) => {
                known.retain(|gateway, _| !gone.contains_key(gateway));
                known.is_empty()
            }
            _ => true,
        };
        if goes {
            routes.remove(&route.priority);
        }
        if routes.is_empty() {
            self.routes.remove(&route.prefix);
        }
    }

    /// Takes note of a route that is gone: one that is not taken over has its prefix and priority.
    pub(super) fn replaced(&mut self, (prefix, priority): (Prefix, u32)) {
        let Some(routes) = self.routes.get_mut(&prefix) else { return };
        if routes.remove(&priority).is_none() {
            return;
        }
        if routes.is_empty() {
            self.routes.remove(&prefix);
        }
        if self.before.is_none() {
            self.changed.insert(prefix);
        }
    }

    /// Begins with no routes, before the kernel tells them again.
    pub(super) fn begin_again(&mut self) {
        let told = std::mem::take(&mut self.routes);
        // If it was interrupted, what was told before that counts.
        self.before.get_or_insert(told);
    }

    /// All routes were told again: those that are other than before have changed, or that are no more.
    pub(super) fn all_told(&mut self) {
        let Some(before) = self.before.take() else { return };
        let best = |routes: &BTreeMap<u32, KernelWay>| routes.first_key_value().map(|(_, way)| way.clone());
        for (prefix, routes) in &before {
            if self.routes.get(prefix).and_then(best) != best(routes) {
                self.changed.insert(*prefix);
            }
        }
        self.changed.extend(self.routes.keys().filter(|prefix| !before.contains_key(*prefix)));
    }

    /// Takes note of a prefix that the router has from the kernel.
    pub(super) fn known(&mut self, prefix: Prefix) {
        self.changed.insert(prefix);
    }

    /// The number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether anything is to be written.
    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Lines for up to so many changed prefixes, as the handler `kernel` reads them.
    pub(super) fn take_changes(&mut self, most: usize) -> String {
        let mut text = String::new();
        for _ in 0..most {
            let Some(prefix) = self.changed.pop_first() else { break };
            let best = self.routes.get(&prefix).and_then(|routes| routes.first_key_value());
            // Text takes any text.
            let _ = match best {
                None => writeln!(text, "- {}/{}", prefix.0, prefix.1),
                Some((_, KernelWay::Nowhere(kind))) => writeln!(text, "+ {}/{} {kind}", prefix.0, prefix.1),
                Some((_, KernelWay::Via(hops))) => {
                    let _ = write!(text, "+ {}/{}", prefix.0, prefix.1);
                    for (gateway, weight) in hops {
                        let _ = match weight {
                            1 => write!(text, " via {gateway}"),
                            weight => write!(text, " via {gateway} weight {weight}"),
                        };
                    }
                    writeln!(text)
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(prefix: Ipv4Addr, len: u8, gateways: &[Ipv4Addr], priority: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = len;
        message.header.table = 254;
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::Bgp;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(prefix)));
        message.attributes.push(RouteAttribute::Priority(priority));
        match gateways {
            [] => {}
            [one] => message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(*one))),
            several => {
                let path = |gateway: &Ipv4Addr| {
                    let mut path = RouteNextHop::default();
                    path.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(*gateway)));
                    path
                };
                message.attributes.push(RouteAttribute::MultiPath(several.iter().map(path).collect()));
            }
        }
        message
    }

    const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);
    const NET: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

    fn route(gateways: &[Ipv4Addr], priority: u32) -> KernelRoute {
        taken_over(&message(NET, 8, gateways, priority), 254).unwrap()
    }

    #[test]
    fn only_routes_of_the_table_with_gateways_are_taken_over() {
        assert_eq!(taken_over(&message(NET, 8, &[], 0), 254), None);
        assert_eq!(taken_over(&message(NET, 8, &[A], 0), 10), None);
        let mut own = message(NET, 8, &[A], 0);
        own.header.protocol = RouteProtocol::Kernel;
        assert_eq!(taken_over(&own, 254), None);
        let mut local = message(NET, 8, &[A], 0);
        local.header.kind = RouteType::Local;
        assert_eq!(taken_over(&local, 254), None);
        // A number above 255 stands in an attribute.
        let mut high = message(NET, 8, &[A], 0);
        high.attributes.push(RouteAttribute::Table(1_000));
        assert!(taken_over(&high, 1_000).is_some());
        assert_eq!(taken_over(&high, 254), None);
    }

    #[test]
    fn the_best_route_of_a_prefix_is_written_and_each_change_once() {
        let mut table = KernelTable::default();
        table.add(route(&[A], 20), false);
        table.add(route(&[B], 30), false);
        assert_eq!(table.take_changes(10), "+ 10.0.0.0/8 via 192.0.2.2\n");
        assert!(!table.has_changes());
        table.remove(&route(&[A], 20));
        assert_eq!(table.take_changes(10), "+ 10.0.0.0/8 via 192.0.2.3\n");
        table.add(route(&[A, B], 20), false);
        assert_eq!(table.take_changes(10), "+ 10.0.0.0/8 via 192.0.2.2 via 192.0.2.3\n");
        table.remove(&route(&[A], 20));
        assert_eq!(table.take_changes(10), "+ 10.0.0.0/8 via 192.0.2.3\n");
        table.add(route(&[A], 20), true);
        assert_eq!(table.take_changes(10), "+ 10.0.0.0/8 via 192.0.2.2 via 192.0.2.3\n");
        table.remove(&route(&[A, B], 20));
        table.remove(&route(&[B], 30));
        assert_eq!((table.take_changes(10), table.len()), ("- 10.0.0.0/8\n".into(), 0));
    }

    #[test]
    fn routes_that_are_not_told_again_go() {
        let mut table = KernelTable::default();
        table.add(route(&[A], 20), false);
        table.known((Ipv4Addr::new(11, 0, 0, 0).into(), 8));
        assert_eq!(table.take_changes(1), "+ 10.0.0.0/8 via 192.0.2.2\n");
        assert_eq!(table.take_changes(9), "- 11.0.0.0/8\n");
        table.begin_again();
        table.add(route(&[B], 20), false);
        assert!(!table.has_changes(), "until all are told");
        table.all_told();
        assert_eq!(table.take_changes(9), "+ 10.0.0.0/8 via 192.0.2.3\n");
        table.begin_again();
        table.all_told();
        assert_eq!(table.take_changes(9), "- 10.0.0.0/8\n");
    }

    #[test]
    fn routes_that_are_told_again_as_they_were_are_not_written() {
        let other = || taken_over(&message(Ipv4Addr::new(11, 0, 0, 0), 8, &[A], 0), 254).unwrap();
        let mut table = KernelTable::default();
        table.add(route(&[A], 20), false);
        table.add(other(), false);
        table.take_changes(9);
        table.begin_again();
        table.add(route(&[A], 20), false);
        // It was interrupted.
        table.begin_again();
        table.add(other(), false);
        table.add(route(&[A], 20), false);
        // A worse one beside it changes nothing.
        table.add(route(&[B], 30), false);
        table.all_told();
        assert!(!table.has_changes());
        // One that changed before and was not written yet still is.
        table.remove(&other());
        table.begin_again();
        table.add(route(&[A], 20), false);
        table.add(route(&[B], 30), false);
        table.all_told();
        assert_eq!(table.take_changes(9), "- 11.0.0.0/8\n");
    }

    #[test]
    fn next_hops_of_a_link_that_is_down_are_not_used() {
        let mut found = message(NET, 8, &[A, B], 20);
        let paths = found.attributes.iter_mut().find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(paths) => Some(paths),
            _ => None,
        });
        paths.unwrap()[0].flags = RouteNextHopFlags::Dead;
        without_dead_hops(&mut found);
        assert_eq!(taken_over(&found, 254), Some(route(&[B], 20)));
    }
}
