//! Frames and rules for tests. They are made of few values, so that rules often match frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Facts, Filter, IpFacts, Prefix, Rule, Rules};

const ETHERTYPES: [u16; 5] = [ethertype::ARP, ethertype::LLDP, ethertype::MPLS, 0x05dc, 0xffff];
const TAGS: [u16; 3] = [ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ];
const PROTOCOLS: [u8; 8] = [
    protocol::TCP,
    protocol::UDP,
    protocol::SCTP,
    protocol::UDP_LITE,
    protocol::ICMP,
    protocol::ICMPV6,
    protocol::ESP,
    protocol::NO_NEXT_HEADER,
];
const EXTENSIONS: [u8; 4] =
    [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION_OPTIONS, protocol::FRAGMENT];
const PORTS: [u16; 4] = [0, 53, 4789, 65_535];
const IDS: [u16; 4] = [0, 1, 10, 4094];

/// The network layer of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
    /// Words of IPv4's options, or IPv6's extension headers with their bytes in units of eight after the first.
    options: u8,
    extensions: Vec<(u8, u8)>,
    /// Flags and offset, as in the header.
    fragment: u16,
}

/// A frame before it is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) tags: Vec<(u16, u16)>,
    ethertype: u16,
    pub(crate) packet: Option<Packet>,
    payload: Vec<u8>,
}

fn v4() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        prop::sample::select(vec![
            Ipv4Addr::new(10, 0, 0, 1),
            Ipv4Addr::new(10, 0, 0, 2),
            Ipv4Addr::new(10, 1, 0, 1),
            Ipv4Addr::new(255, 255, 255, 255),
        ]),
        any::<u32>().prop_map(Ipv4Addr::from_bits),
    ]
    .prop_map(IpAddr::V4)
}
fn v6() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        prop::sample::select(vec![
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
            Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 1, 0, 0, 1),
            Ipv6Addr::UNSPECIFIED,
        ]),
        any::<u128>().prop_map(Ipv6Addr::from_bits),
    ]
    .prop_map(IpAddr::V6)
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![prop::sample::select(PORTS.to_vec()), any::<u16>()]
}

fn packet() -> impl Strategy<Value = Packet> {
    let addresses = prop_oneof![(v4(), v4()), (v6(), v6())];
    let protocols = prop_oneof![4 => prop::sample::select(PROTOCOLS.to_vec()), 1 => any::<u8>()];
    // An extension header is not a transport: parsers would look behind it.
    let protocols = protocols.prop_filter("an extension header", |number| !EXTENSIONS.contains(number));
    let extensions = vec((prop::sample::select(EXTENSIONS.to_vec()), 0u8..3), 0..7);
    let fragment =
        prop_oneof![3 => Just(0u16), 1 => prop::sample::select(vec![1, 8, 0x2000, 0x3fff, 0x4000])];
    let extensions = prop_oneof![1 => Just(Vec::new()), 1 => extensions];
    (addresses, protocols, (port(), port()), 0u8..=10, extensions, fragment).prop_map(
        |((source, destination), protocol, ports, options, extensions, fragment)| Packet {
            source,
            destination,
            protocol,
            ports,
            options,
            extensions,
            fragment,
        },
    )
}

/// Any frame.
pub(crate) fn made() -> impl Strategy<Value = Made> {
    let tag = (prop::sample::select(TAGS.to_vec()), prop::sample::select(IDS.to_vec()), 0u16..16);
    let tags = vec(tag.prop_map(|(kind, id, priority)| (kind, priority << 12 | id)), 0..4);
    let tags = prop_oneof![1 => Just(Vec::new()), 1 => tags];
    (
        tags,
        prop::sample::select(ETHERTYPES.to_vec()),
        prop::option::weighted(0.9, packet()),
        vec(any::<u8>(), 0..16),
    )
        .prop_map(|(tags, ethertype, packet, payload)| Made { tags, ethertype, packet, payload })
}

impl Packet {
    fn is_v4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// The bytes of the packet, with correct lengths.
    fn bytes(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes.extend([0x45 + self.options, 0, 0, 0, 0, 7]);
                bytes.extend(self.fragment.to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
                bytes.extend(vec![1; usize::from(self.options) * 4]);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut nexts: Vec<u8> = self.extensions.iter().map(|(kind, _)| *kind).collect();
                nexts.push(self.protocol);
                bytes.extend([0x60, 0, 0, 0, 0, 0, nexts[0], 64]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
                for ((kind, units), next) in self.extensions.iter().zip(&nexts[1..]) {
                    if *kind == protocol::FRAGMENT {
                        bytes.extend([*next, *units]);
                        bytes.extend(self.fragment_v6().to_be_bytes());
                        bytes.extend([0, 0, 0, 9]);
                    } else {
                        bytes.extend([*next, *units, 1, 1, 1, 1, 1, 1]);
                        bytes.extend(vec![1; usize::from(*units) * 8]);
                    }
                }
            }
            _ => unreachable!("both are of one version"),
        }
        bytes.extend(self.ports.0.to_be_bytes());
        bytes.extend(self.ports.1.to_be_bytes());
        bytes.extend(payload);
        let (place, len) = if self.is_v4() { (2, bytes.len()) } else { (4, bytes.len() - 40) };
        bytes[place..place + 2].copy_from_slice(&(len as u16).to_be_bytes());
        bytes
    }

    fn fragment_v6(&self) -> u16 {
        (self.fragment & 0x1fff) << 3 | self.fragment >> 13 & 1
    }

    /// The facts that a filter should find in the packet.
    fn facts(&self) -> IpFacts {
        let (source, destination) = (self.source, self.destination);
        let with_ports = |protocol: u8| protocol::has_ports(protocol).then_some(self.ports);
        if self.is_v4() {
            let ports = if self.fragment & 0x3fff == 0 { with_ports(self.protocol) } else { None };
            return IpFacts { source, destination, protocol: Some(self.protocol), ports };
        }
        let mut nexts = self.extensions.iter().map(|(kind, _)| *kind).chain([self.protocol]);
        for (walked, kind) in nexts.by_ref().enumerate() {
            let is_fragment = kind == protocol::FRAGMENT && self.fragment_v6() & 0xfff9 != 0;
            if walked == 4 || !EXTENSIONS.contains(&kind) {
                let is_last = walked == self.extensions.len();
                let ports = if is_last { with_ports(kind) } else { None };
                return IpFacts { source, destination, protocol: Some(kind), ports };
            }
            if is_fragment {
                break;
            }
        }
        IpFacts { source, destination, protocol: nexts.next(), ports: None }
    }
}

impl Made {
    /// The frame.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for (kind, control) in &self.tags {
            bytes.extend(kind.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        match &self.packet {
            Some(packet) => {
                bytes.extend(self.ethertype().to_be_bytes());
                bytes.extend(packet.bytes(&self.payload));
            }
            None => {
                bytes.extend(self.ethertype.to_be_bytes());
                bytes.extend(&self.payload);
            }
        }
        bytes
    }

    fn ethertype(&self) -> u16 {
        match &self.packet {
            Some(packet) if packet.is_v4() => ethertype::IPV4,
            Some(_) => ethertype::IPV6,
            None => self.ethertype,
        }
    }

    /// The facts that a filter should find in the frame.
    pub(crate) fn facts(&self) -> Facts {
        let vlan = self.tags.first().map(|(_, control)| control & 0xfff);
        match self.tags.get(2) {
            Some((kind, _)) => Facts { vlan, ethertype: *kind, ip: None },
            None => Facts { vlan, ethertype: self.ethertype(), ip: self.packet.as_ref().map(Packet::facts) },
        }
    }

    /// A router's error about `quoted`, with this protocol number and message kind.
    ///
    /// It stands behind `options` words of options or headers.
    pub(crate) fn error(&self, number: u8, kind: u8, options: usize, quoted: &[u8]) -> Self {
        let mut error = self.clone();
        if let Some(packet) = &mut error.packet {
            packet.destination = packet.source;
            packet.source = match packet.source {
                IpAddr::V4(_) => Ipv4Addr::new(203, 0, 113, 9).into(),
                IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9).into(),
            };
            packet.protocol = number;
            packet.ports = (u16::from(kind) << 8, 0);
            packet.options = options as u8;
            packet.extensions = vec![(protocol::DESTINATION_OPTIONS, 1); options];
            packet.fragment = 0;
        }
        error.payload = [&[0; 4], quoted].concat();
        error
    }

    /// The same frame in the other direction.
    pub(crate) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        if let Some(packet) = &mut reversed.packet {
            (packet.source, packet.destination) = (packet.destination, packet.source);
            packet.ports = (packet.ports.1, packet.ports.0);
        }
        reversed
    }
}

/// Changes that may happen to frames in transit.
pub(crate) fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, bool)>> {
    vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..4)
}

/// A frame with these changes: changed bytes, cut ends.
pub(crate) fn mutated(mut frame: Vec<u8>, changes: &[(prop::sample::Index, u8, bool)]) -> Vec<u8> {
    for (place, value, cut) in changes {
        if frame.is_empty() {
            break;
        }
        let place = place.index(frame.len());
        if *cut {
            frame.truncate(place);
        } else {
            frame[place] ^= value;
        }
    }
    frame
}

fn prefix(address: impl Strategy<Value = IpAddr>) -> impl Strategy<Value = Prefix> {
    (address, prop::sample::select(vec![0u8, 1, 8, 15, 16, 31, 32, 33, 64, 65, 127, 128])).prop_map(
        |(address, len)| {
            let len = len.min(if address.is_ipv4() { 32 } else { 128 });
            Prefix::around(address, len)
        },
    )
}

/// Any filter that some packet matches.
pub(crate) fn filter() -> impl Strategy<Value = Filter> {
    let few = |values: Vec<u16>| prop::option::weighted(0.3, prop::sample::select(values));
    let ports = || few(PORTS.to_vec());
    let v4s = (prop::option::weighted(0.4, prefix(v4())), prop::option::weighted(0.4, prefix(v4())));
    let v6s = (prop::option::weighted(0.4, prefix(v6())), prop::option::weighted(0.4, prefix(v6())));
    let prefixes = prop_oneof![2 => Just((None, None)), 2 => v4s, 2 => v6s];
    (
        few([ETHERTYPES.to_vec(), vec![ethertype::IPV4, ethertype::IPV6]].concat()),
        few(IDS.to_vec()),
        prop::option::weighted(0.2, prop::sample::select(vec![Version::V4, Version::V6])),
        prop::option::weighted(0.5, prop::sample::select(PROTOCOLS.to_vec())),
        prefixes,
        (ports(), ports()),
    )
        .prop_map(
            |(ethertype, vlan, version, protocol, (source, destination), (source_port, destination_port))| {
                Filter {
                    ethertype,
                    vlan,
                    version,
                    protocol,
                    source,
                    destination,
                    source_port,
                    destination_port,
                }
            },
        )
        .prop_filter_map("contradictory", |filter| filter.checked().ok())
}

/// Rules for a port with so many queues.
pub(crate) fn rules(queues: u16) -> impl Strategy<Value = Rules> {
    vec((filter(), 0..queues), 1..8).prop_map(|rules| {
        let mut list = Vec::new();
        for (filter, queue) in rules {
            list.push(Rule { filter, queue });
            if Rules::new(list.iter().copied()).is_err() {
                list.pop();
            }
        }
        Rules::new(list).expect("only those that fit were kept")
    })
}
