//! Sends the packets of a port to the queues of the tenants to whom they belong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_buffer::Batch;
use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;
use netbricks_tables::{LpmConfig, Routes};

use crate::context::Context;
use crate::guards::{Certainty, Filter, Guard, Guards, Prefix};
use crate::node::{Node, Output, Shape};
use crate::reason::{DropReason, Edge};
use crate::worker::BuildError;

/// The packets of a tenant at a port that it shares with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantFilter {
    /// The tenant's name.
    pub tenant: String,
    /// Networks of the tenant: address and length of the prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Identifiers of outer VLAN tags, 1 to 4094.
    pub vlans: Vec<u16>,
}

/// Two tenants to whom one packet would belong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantFilterError {
    /// One network holds the other, or is the same.
    #[error("`{}/{}` of tenant `{second}` overlaps `{}/{}` of tenant `{first}`", theirs.0, theirs.1, ours.0, ours.1)]
    Addresses {
        /// A tenant.
        first: String,
        /// Its network.
        ours: (IpAddr, u8),
        /// The other tenant.
        second: String,
        /// The network of that one.
        theirs: (IpAddr, u8),
    },
    /// Both have the same VLAN.
    #[error("VLAN {vlan} belongs to tenant `{first}` and to tenant `{second}`")]
    Vlan {
        /// A tenant.
        first: String,
        /// The other tenant.
        second: String,
        /// The VLAN.
        vlan: u16,
    },
}

impl TenantFilter {
    /// Whether each packet belongs to one tenant at most.
    ///
    /// # Errors
    /// The first two tenants that share packets.
    pub fn check_apart(filters: &[Self]) -> Result<(), TenantFilterError> {
        // In order of their first address, nested networks follow each other.
        let mut networks: Vec<((IpAddr, u8), &str)> = Vec::new();
        let mut vlans: Vec<(u16, &str)> = Vec::new();
        for filter in filters {
            networks.extend(filter.addresses.iter().map(|network| (*network, filter.tenant.as_str())));
            vlans.extend(filter.vlans.iter().map(|vlan| (*vlan, filter.tenant.as_str())));
        }
        networks.sort_unstable();
        vlans.sort_unstable();
        let mut around: Vec<((IpAddr, u8), &str)> = Vec::new();
        for (network, tenant) in networks {
            around.retain(|(outer, _)| holds(*outer, network.0));
            if let Some((ours, first)) = around.iter().find(|(_, other)| *other != tenant) {
                let (first, second) = ((*first).to_owned(), tenant.to_owned());
                return Err(TenantFilterError::Addresses { first, ours: *ours, second, theirs: network });
            }
            around.push((network, tenant));
        }
        match vlans.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
            Some(pair) => {
                let (first, second) = (pair[0].1.to_owned(), pair[1].1.to_owned());
                Err(TenantFilterError::Vlan { first, second, vlan: pair[0].0 })
            }
            None => Ok(()),
        }
    }
}

/// The rank of guards by source, which no other packets of tenants come behind.
const LAST_RANK: u16 = 2;

impl TenantFilter {
    /// The packets that may be the tenant's, in the order in which [`Demultiplexer`] looks.
    fn guards(&self) -> Vec<Guard> {
        let mut guards: Vec<Guard> =
            self.vlans.iter().map(|vlan| Guard::certain(0, Filter::ANY.in_vlan(*vlan))).collect();
        let prefixes = || self.addresses.iter().map(|(address, length)| Prefix::around(*address, *length));
        let certain = |rank, filter: Filter| filter.checked().ok().map(|filter| Guard::certain(rank, filter));
        guards.extend(prefixes().filter_map(|prefix| certain(1, Filter::ANY.to(prefix))));
        guards.extend(prefixes().filter_map(|prefix| certain(LAST_RANK, Filter::ANY.from(prefix))));
        // Filters see no header in a malformed packet, and no address in ARP. A neighbour solicitation goes to a group
        // of its target.
        let v4 = prefixes().any(|prefix| prefix.version() == Version::V4);
        let v6 = prefixes().any(|prefix| prefix.version() == Version::V6);
        let mut types = Vec::new();
        types.extend(if v4 { &[ethertype::IPV4, ethertype::ARP][..] } else { &[] });
        types.extend(v6.then_some(ethertype::IPV6));
        guards.extend(types.into_iter().map(|number| Guard::no_flow(Filter::ANY.ethertype(number))));
        // They see no address behind more than two tags, and this node does. A tag that is cut off has no flow.
        let behind = if v4 || v6 { Guard::possible } else { Guard::no_flow };
        let tags = [ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ];
        guards.extend(tags.map(|number| behind(Filter::ANY.ethertype(number))));
        guards
    }
}

/// Whether a network holds an address.
fn holds((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
        IpAddr::V6(address) => (address.to_bits(), false),
    };
    let ((network, four), (address, also)) = (bits(network), bits(address));
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    four == also && (network ^ address) & mask == 0
}

/// Sends each packet to the way out of the tenant to whom it belongs.
///
/// A packet belongs to the tenant of its outer VLAN tag, else to that of its destination address, else to that of
/// its source address. ARP packets and neighbour solicitations belong to the tenant of the address that they look
/// for, or else to that of their sender. All other packets go on, or are dropped as [`DropReason::Unmatched`].
#[derive(Debug)]
pub struct Demultiplexer {
    filters: Vec<TenantFilter>,
    /// The tenants of nodes behind this one.
    later: Vec<TenantFilter>,
    table: Table,
    /// Whether packets of no tenant go on.
    rest: bool,
}

/// The edge of each address and VLAN; 0 for none.
struct Table {
    routes: Routes<u8>,
    vlans: Option<Box<[u8; 4096]>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("prefixes", &self.routes.len()).finish_non_exhaustive()
    }
}

/// The edge for packets that are dropped.
const DROPPED: u8 = u8::MAX;
/// The entry of the tenants behind this node, whose packets go on.
const LATER: u8 = DROPPED - 1;
/// The most guards of the way to later tenants; where it has more of them, they are not told.
///
/// A walk conjoins them with those of each of these tenants.
const MOST_GUARDS: usize = 512;

impl Demultiplexer {
    /// The most tenants of one node; further ones need [another node](Self::followed) behind it.
    pub const MOST: usize = 250;

    /// A node with a way out for each of these tenants, named as the tenant.
    ///
    /// `rest`: packets of no tenant go on; else they are dropped. The filters must be
    /// [apart](TenantFilter::check_apart).
    ///
    /// # Errors
    /// For more than [`MOST`](Self::MOST) tenants, VLANs above 4094, or where there is no memory for the table.
    pub fn new(filters: Vec<TenantFilter>, rest: bool) -> Result<Self, BuildError> {
        Self::with_later(filters, Vec::new(), rest)
    }

    /// As [`new`](Self::new), with another node behind [`Edge::OUT`] that has the tenants of `later`.
    ///
    /// A packet in a VLAN of a later tenant goes on there, also where its addresses are those of a tenant here.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn followed(filters: Vec<TenantFilter>, later: Vec<TenantFilter>) -> Result<Self, BuildError> {
        Self::with_later(filters, later, true)
    }

    fn with_later(
        filters: Vec<TenantFilter>,
        later: Vec<TenantFilter>,
        rest: bool,
    ) -> Result<Self, BuildError> {
        if filters.len() > Self::MOST {
            let most = Self::MOST;
            return Err(BuildError::new(format_args!(
                "{} tenants at one port: at most {most}",
                filters.len()
            )));
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, length) in filters.iter().chain(&later).flat_map(|filter| &filter.addresses) {
            match address {
                IpAddr::V4(address) => v4.push((*address, *length)),
                IpAddr::V6(address) => v6.push((*address, *length)),
            }
        }
        let v4 = (!v4.is_empty()).then(|| LpmConfig::for_prefixes::<Ipv4Addr>(v4));
        let v6 = (!v6.is_empty()).then(|| LpmConfig::for_prefixes::<Ipv6Addr>(v6));
        let mut routes = Routes::new(v4, v6).map_err(BuildError::new)?;
        let has_vlans = filters.iter().chain(&later).any(|filter| !filter.vlans.is_empty());
        let mut vlans = has_vlans.then(|| Box::new([0; 4096]));
        let own = filters.iter().enumerate().map(|(number, filter)| (filter, Self::edge(number).0));
        for (filter, edge) in own.chain(later.iter().map(|filter| (filter, LATER))) {
            for (address, length) in &filter.addresses {
                routes.insert(*address, *length, edge).map_err(BuildError::new)?;
            }
            for vlan in &filter.vlans {
                let slot = vlans.as_mut().and_then(|vlans| vlans.get_mut(usize::from(*vlan)));
                let slot = slot.filter(|_| (1..4095).contains(vlan));
                *slot.ok_or_else(|| BuildError::new(format_args!("there is no VLAN {vlan}: 1 to 4094")))? =
                    edge;
            }
        }
        Ok(Self { filters, later, table: Table { routes, vlans }, rest })
    }

    /// The way out of the tenant with this number.
    pub fn edge(tenant: usize) -> Edge {
        Edge((tenant + 1).min(Self::MOST) as u8)
    }

    /// The packets that go on: those of later tenants, and the rest.
    ///
    /// Later tenants' VLANs come before addresses of tenants here.
    fn guards_of_rest(&self) -> Guards {
        let decide = |guard: &Guard| guard.certainty == Certainty::Certain && guard.rank < LAST_RANK;
        let mut guards: Vec<Guard> =
            self.later.iter().flat_map(TenantFilter::guards).filter(decide).take(MOST_GUARDS + 1).collect();
        if guards.len() > MOST_GUARDS {
            return Guards::Unknown;
        }
        guards.push(Guard::certain(u16::MAX, Filter::ANY));
        Guards::Only(guards)
    }
}

impl Table {
    /// The edge of a frame; 0 for a packet of no tenant.
    #[inline]
    fn edge_of(&self, frame: &[u8]) -> u8 {
        let Some((mut kind, mut rest)) = frame.get(12..).and_then(split_type) else { return 0 };
        let mut outer = true;
        while ethertype::is_vlan(kind) {
            let Some((tag, inner)) = rest.split_first_chunk::<2>() else { return 0 };
            if let Some(vlans) = self.vlans.as_ref().filter(|_| outer) {
                let edge = vlans[usize::from(u16::from_be_bytes(*tag) & 0xfff)];
                if edge != 0 {
                    return edge;
                }
            }
            outer = false;
            let Some(inner) = split_type(inner) else { return 0 };
            (kind, rest) = inner;
        }
        match kind {
            ethertype::IPV4 => match self.of(v4(rest, 16)) {
                Some(edge) => edge,
                None => self.of_v4(rest, 12),
            },
            ethertype::IPV6 => self.of_v6(rest),
            ethertype::ARP => self.of_pair(v4(rest, 24), v4(rest, 14)),
            _ => 0,
        }
    }

    /// The edge of the IPv4 address at this place.
    ///
    /// It is apart, so that the loop over a batch has the usual lookup alone.
    #[inline(never)]
    fn of_v4(&self, packet: &[u8], at: usize) -> u8 {
        self.of(v4(packet, at)).unwrap_or(0)
    }

    #[inline(never)]
    fn of_pair(&self, first: Option<IpAddr>, second: Option<IpAddr>) -> u8 {
        self.of(first).or_else(|| self.of(second)).unwrap_or(0)
    }
    #[inline(always)]
    fn of(&self, address: Option<IpAddr>) -> Option<u8> {
        self.routes.longest(address?).copied()
    }

    #[inline(never)]
    fn of_v6(&self, packet: &[u8]) -> u8 {
        let (source, destination) = (v6(packet, 8), v6(packet, 24));
        // A neighbour solicitation goes to a group; its target is behind the header (RFC 4861, section 4.3).
        let solicits = packet.get(6) == Some(&protocol::ICMPV6) && packet.get(40) == Some(&135);
        let target = if solicits { v6(packet, 48) } else { None };
        self.of(target).unwrap_or_else(|| self.of_pair(destination, source))
    }
}

/// The type at the beginning of these bytes, and those behind it.
#[inline]
fn split_type(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*kind), rest))
}

#[inline(always)]
fn v4(packet: &[u8], at: usize) -> Option<IpAddr> {
    let bytes = packet.get(at..)?.first_chunk::<4>()?;
    Some(IpAddr::V4(Ipv4Addr::from(*bytes)))
}

#[inline]
fn v6(packet: &[u8], at: usize) -> Option<IpAddr> {
    let bytes = packet.get(at..)?.first_chunk::<16>()?;
    Some(IpAddr::V6(Ipv6Addr::from(*bytes)))
}

impl Node for Demultiplexer {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        let Self { table, rest, .. } = self;
        let none = if *rest { 0 } else { u16::from(DROPPED) };
        batch.warm();
        // The verdict of a packet that leaves is its edge.
        let kept = batch.compact(|_, frame| match table.edge_of(frame.data()) {
            0 => none,
            LATER => 0,
            edge => u16::from(edge),
        });
        for packet in batch.drain_from(kept) {
            match packet.verdict() as u8 {
                DROPPED => cx.drop_packet(packet, DropReason::Unmatched),
                edge => cx.emit_from(usize::from(packet.slot()), Edge(edge), packet),
            }
        }
    }
    fn guards(&self, edge: Edge) -> Guards {
        let tenant = (0..self.filters.len()).find(|number| Self::edge(*number) == edge);
        match (tenant, edge) {
            (Some(tenant), _) => Guards::Only(self.filters[tenant].guards()),
            (None, Edge::OUT) => self.guards_of_rest(),
            (None, _) => Guards::Unknown,
        }
    }
    fn shape(&self) -> Shape {
        let out = Output { optional: !self.rest, ..Output::out() };
        let tenants = self.filters.iter().enumerate().map(|(number, filter)| Output {
            edge: Self::edge(number),
            name: filter.tenant.clone(),
            optional: false,
        });
        Shape {
            kind: "demultiplexer".into(),
            outputs: std::iter::once(out).chain(tenants).collect(),
            ..Shape::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::guards::Facts;

    const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 1, 0, 1], [10, 1, 200, 1], [192, 0, 2, 1]];
    const NETWORKS: [&str; 6] =
        ["10.0.0.0/16", "10.1.0.0/17", "10.1.128.0/17", "192.0.2.1/32", "2001:db8::/64", "2001:db8:1::/48"];

    /// Tenants that have some of the networks and VLANs, each one of them at most once.
    fn tenants() -> impl Strategy<Value = Vec<TenantFilter>> {
        (vec(0usize..4, NETWORKS.len()), vec(0usize..4, 3)).prop_map(|(networks, vlans)| {
            let prefix = |text: &str| {
                let prefix: Prefix = text.parse().unwrap();
                (prefix.address(), prefix.bits())
            };
            (0..3)
                .map(|tenant| TenantFilter {
                    tenant: format!("t{tenant}"),
                    addresses: (0..networks.len())
                        .filter(|network| networks[*network] == tenant)
                        .map(|network| prefix(NETWORKS[network]))
                        .collect(),
                    vlans: (1..4).filter(|vlan| vlans[usize::from(*vlan) - 1] == tenant).collect(),
                })
                .collect()
        })
    }

    /// A frame, whole, cut short or with wrong bytes.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let tags = [ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ];
        let types =
            [ethertype::IPV4, ethertype::IPV4, ethertype::IPV6, ethertype::IPV6, ethertype::ARP, 0x88cc];
        let v6 = |number: u8| [0x20, 1, 0x0d, 0xb8, 0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        (
            vec((select(tags.to_vec()), 0u16..4), 0..4),
            select(types.to_vec()),
            (select(V4.to_vec()), select(V4.to_vec()), 0u8..3, 0u8..3),
            (0usize..120, vec((14usize..110, any::<u8>()), 0..3)),
        )
            .prop_map(move |(tags, kind, (from4, to4, from6, to6), (len, wrong))| {
                let mut frame = vec![2; 12];
                for (tag, id) in tags {
                    frame.extend(tag.to_be_bytes());
                    frame.extend(id.to_be_bytes());
                }
                frame.extend(kind.to_be_bytes());
                match kind {
                    ethertype::IPV4 => {
                        frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
                        frame.extend(from4);
                        frame.extend(to4);
                    }
                    ethertype::IPV6 => {
                        let solicits = from6 == to6;
                        frame.extend([0x60, 0, 0, 0, 0, 60, if solicits { 58 } else { 17 }, 64]);
                        frame.extend(v6(from6));
                        frame.extend(v6(to6));
                        frame.extend([if solicits { 135 } else { 1 }, 0, 0, 0, 0, 0, 0, 0]);
                        frame.extend(v6(to4[1]));
                    }
                    _ => {
                        frame.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2]);
                        frame.extend(from4);
                        frame.extend([0; 6]);
                        frame.extend(to4);
                    }
                }
                frame.resize(frame.len().max(90), 0);
                frame.truncate(len.max(12));
                for (at, byte) in wrong {
                    frame.get_mut(at).into_iter().for_each(|place| *place = byte);
                }
                frame
            })
    }

    fn is_solicitation(frame: &[u8]) -> bool {
        let facts = Facts::of(frame);
        facts.ethertype == ethertype::IPV6 && facts.ip.is_none_or(|ip| ip.protocol == Some(protocol::ICMPV6))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// No packet of a tenant misses its guards, and certain guards name the tenant.
        ///
        /// Neighbour solicitations may look for an address of another tenant than the one they go to.
        #[test]
        fn guards_are_those_of_the_lookup(tenants in tenants(), frame in frame()) {
            let node = Demultiplexer::new(tenants, true).unwrap();
            let edge = Edge(node.table.edge_of(&frame));
            let facts = Facts::of(&frame);
            prop_assert!(node.guards(edge).admit(&facts), "{edge:?} {facts:?}");
            let mut certain: Vec<(u16, Edge)> = Vec::new();
            for of in (0..3).map(Demultiplexer::edge) {
                let Guards::Only(guards) = node.guards(of) else { panic!("each tenant has guards") };
                certain.extend(
                    guards
                        .iter()
                        .filter(|guard| guard.certainty == Certainty::Certain && guard.filter.matches(&facts))
                        .map(|guard| (guard.rank, of)),
                );
            }
            certain.sort_unstable_by_key(|(rank, _)| *rank);
            if let Some((_, of)) = certain.first().filter(|_| !is_solicitation(&frame)) {
                prop_assert_eq!(*of, edge, "{:?}", facts);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Nodes one behind the other find the tenant that a single node finds, and their guards say so.
        #[test]
        fn tenants_behind_another_node_are_found_as_by_one_node(
            tenants in tenants(),
            split in 0usize..4,
            frame in frame(),
        ) {
            let (first, second) = tenants.split_at(split);
            let one = Demultiplexer::new(tenants.clone(), true).unwrap().table.edge_of(&frame);
            let front = Demultiplexer::followed(first.to_vec(), second.to_vec()).unwrap();
            let back = Demultiplexer::new(second.to_vec(), true).unwrap();
            let edge = front.table.edge_of(&frame);
            let found = match edge {
                0 | LATER => match back.table.edge_of(&frame) {
                    0 => 0,
                    behind => behind + split as u8,
                },
                edge => edge,
            };
            prop_assert_eq!(found, one);
            let facts = Facts::of(&frame);
            let left = if edge == LATER { Edge::OUT } else { Edge(edge) };
            prop_assert!(front.guards(left).admit(&facts));
            let mut certain: Vec<(u16, Edge)> = Vec::new();
            for of in (0..split).map(Demultiplexer::edge).chain([Edge::OUT]) {
                let Guards::Only(guards) = front.guards(of) else { panic!("each way has guards") };
                let decides =
                    |guard: &&Guard| guard.certainty == Certainty::Certain && guard.filter.matches(&facts);
                certain.extend(guards.iter().filter(decides).map(|guard| (guard.rank, of)));
            }
            certain.sort_by_key(|(rank, _)| *rank);
            // Where filters see no address, guards that are not certain have such packets.
            let sees = facts.ip.is_some() && !is_solicitation(&frame);
            if let Some((_, of)) = certain.first().filter(|(rank, _)| sees || *rank == 0) {
                prop_assert_eq!(*of, left, "{:?}", facts);
            }
        }
    }

    #[test]
    fn the_guards_of_very_many_tenants_behind_a_node_are_not_told() {
        let behind = |tenants: u16| {
            let later = (0..tenants).map(|number| TenantFilter {
                tenant: format!("t{number}"),
                addresses: vec![(Ipv4Addr::from_bits(0x0a00_0000 + (u32::from(number) << 8)).into(), 24)],
                vlans: vec![number + 1],
            });
            Demultiplexer::followed(Vec::new(), later.collect()).unwrap().guards(Edge::OUT)
        };
        let Guards::Only(few) = behind(256) else { panic!("these are told") };
        assert_eq!(few.len(), MOST_GUARDS + 1);
        assert_eq!(behind(257), Guards::Unknown);
    }

    /// Filters see no address behind three tags, and such packets may be of flows all the same.
    #[test]
    fn packets_behind_many_tags_are_possible_where_addresses_decide() {
        let certainty = |addresses: &[&str]| {
            let prefix =
                |text: &&str| text.parse::<Prefix>().map(|prefix| (prefix.address(), prefix.bits())).unwrap();
            let filter = TenantFilter {
                tenant: "acme".into(),
                addresses: addresses.iter().map(prefix).collect(),
                vlans: vec![5],
            };
            let tagged = |guard: &&Guard| guard.filter.ethertype == Some(ethertype::VLAN);
            filter.guards().iter().find(tagged).unwrap().certainty
        };
        assert_eq!(certainty(&["10.0.0.0/8"]), Certainty::Possible);
        assert_eq!(certainty(&[]), Certainty::NoFlow, "the first tag is enough");
    }
}
