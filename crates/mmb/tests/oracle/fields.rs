//! The meaning of each field's name, written down from the RFCs, for the oracle alone.

use std::collections::HashMap;
use std::sync::LazyLock;

use netbricks_mmb::field::FieldId;

use crate::places::{Part, Places};

/// The kind of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    All,
    Port,
    NetworkProtocol,
    /// First bit and bits of a header.
    Bits(usize, usize),
    /// Two bits from this one have this value.
    Is(usize, u8),
    Payload,
    Extension(u8),
    /// A TCP option with a number of so many bytes.
    Number(u8, usize),
    /// A TCP option with bytes.
    Bytes(u8),
    AnyOption,
}

/// A field: its header, and its value there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    pub(crate) part: Part,
    pub(crate) means: Means,
}

const PARTS: [(&str, Part); 21] = [
    ("eth", Part::Ethernet),
    ("vlan", Part::Vlan),
    ("inner-vlan", Part::InnerVlan),
    ("mpls", Part::Mpls),
    ("pppoe", Part::Pppoe),
    ("arp", Part::Arp),
    ("ip", Part::Ip),
    ("ip6", Part::Ip6),
    ("icmp", Part::Icmp),
    ("icmp-echo", Part::IcmpEcho),
    ("icmp-mtu", Part::IcmpMtu),
    ("icmp6", Part::Icmp6),
    ("icmp6-echo", Part::Icmp6Echo),
    ("icmp6-mtu", Part::Icmp6Mtu),
    ("udp", Part::Udp),
    ("tcp", Part::Tcp),
    ("gre", Part::Gre),
    ("vxlan", Part::Vxlan),
    ("geneve", Part::Geneve),
    ("gtpu", Part::Gtpu),
    ("srv6", Part::Srv6),
];

const OTHERS: [(&str, Part, Means); 38] = [
    ("all", Part::Frame, Means::All),
    ("in", Part::Frame, Means::Port),
    ("out", Part::Frame, Means::Port),
    ("net-proto", Part::Ethernet, Means::NetworkProtocol),
    ("ip-non-ect", Part::Ip, Means::Is(14, 0)),
    ("ip-ect1", Part::Ip, Means::Is(14, 1)),
    ("ip-ect0", Part::Ip, Means::Is(14, 2)),
    ("ip-ce", Part::Ip, Means::Is(14, 3)),
    ("ip6-non-ect", Part::Ip6, Means::Is(10, 0)),
    ("ip6-ect1", Part::Ip6, Means::Is(10, 1)),
    ("ip6-ect0", Part::Ip6, Means::Is(10, 2)),
    ("ip6-ce", Part::Ip6, Means::Is(10, 3)),
    ("ip-payload", Part::Ip, Means::Payload),
    ("ip6-payload", Part::Ip6, Means::Payload),
    ("icmp-payload", Part::Icmp, Means::Payload),
    ("icmp6-payload", Part::Icmp6, Means::Payload),
    ("udp-payload", Part::Udp, Means::Payload),
    ("tcp-payload", Part::Tcp, Means::Payload),
    ("ip6-eh-hop-by-hop", Part::Ip6, Means::Extension(0)),
    ("ip6-eh-routing", Part::Ip6, Means::Extension(43)),
    ("ip6-eh-fragment", Part::Ip6, Means::Extension(44)),
    ("ip6-eh-esp", Part::Ip6, Means::Extension(50)),
    ("ip6-eh-ah", Part::Ip6, Means::Extension(51)),
    ("ip6-eh-destination", Part::Ip6, Means::Extension(60)),
    ("ip6-eh-mobility", Part::Ip6, Means::Extension(135)),
    ("ip6-eh-hip", Part::Ip6, Means::Extension(139)),
    ("ip6-eh-shim6", Part::Ip6, Means::Extension(140)),
    ("tcp-opt", Part::Tcp, Means::AnyOption),
    ("tcp-opt-mss", Part::Tcp, Means::Number(2, 2)),
    ("tcp-opt-wscale", Part::Tcp, Means::Number(3, 1)),
    ("tcp-opt-sackp", Part::Tcp, Means::Bytes(4)),
    ("tcp-opt-sack", Part::Tcp, Means::Bytes(5)),
    ("tcp-opt-timestamp", Part::Tcp, Means::Number(8, 4)),
    ("tcp-opt-fast-open", Part::Tcp, Means::Bytes(34)),
    ("tcp-opt-mptcp", Part::Tcp, Means::Bytes(30)),
    // Other names.
    ("tcp-window", Part::Tcp, Means::Bits(112, 16)),
    ("ip-time-to-live", Part::Ip, Means::Bits(64, 8)),
    ("ip-source", Part::Ip, Means::Bits(96, 32)),
];

static MEANINGS: LazyLock<HashMap<String, Meaning>> = LazyLock::new(|| {
    let mut all: HashMap<String, Meaning> = HashMap::new();
    for line in include_str!("fields.txt").lines().filter(|line| !line.starts_with('#')) {
        let [header, field, bit, bits] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let part = PARTS.iter().find(|(name, _)| *name == header).expect("a header").1;
        // The parts of messages are named as the message is.
        let prefix = header.trim_end_matches("-echo").trim_end_matches("-mtu");
        let means = Means::Bits(bit.parse().expect("a bit"), bits.parse().expect("bits"));
        all.insert(format!("{prefix}-{field}"), Meaning { part, means });
    }
    all.extend(OTHERS.map(|(name, part, means)| (name.to_owned(), Meaning { part, means })));
    all
});

static BY_ID: LazyLock<Vec<Meaning>> = LazyLock::new(|| {
    let meaning = |id: FieldId| MEANINGS.get(&id.info().name).copied();
    FieldId::all().map(|id| meaning(id).unwrap_or_else(|| panic!("{}", id.info().name))).collect()
});

/// The meaning of a field, by its name.
pub(crate) fn meaning(field: FieldId) -> Meaning {
    BY_ID[field.index()]
}

/// Bits of bytes as a number, most significant first.
pub(crate) fn read_bits(bytes: &[u8], first: usize, count: usize) -> u128 {
    (first..first + count).fold(0, |value, bit| value << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
}

/// Writes such bits.
pub(crate) fn write_bits(bytes: &mut [u8], first: usize, count: usize, value: u128) {
    for place in 0..count {
        let bit = first + place;
        let mask = 1 << (7 - bit % 8);
        match value >> (count - 1 - place) & 1 {
            0 => bytes[bit / 8] &= !mask,
            _ => bytes[bit / 8] |= mask,
        }
    }
}

/// A frame's value for a field; `None` where the frame has not the field's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing to compare: the header is there.
    There,
    Number(u128),
    Bytes(Vec<u8>),
    /// The kinds of options, or an option that is not there or has no value of its kind.
    Kinds(Vec<u8>),
    Option(Option<Vec<u8>>),
}

/// The value of a field in a frame.
pub(crate) fn found(frame: &[u8], places: &Places, field: FieldId) -> Option<Found> {
    let Meaning { part, means } = meaning(field);
    let at = places.at(part)?;
    let option = |kind: u8| {
        let (options, _) = places.tcp_options(frame);
        let data = options.into_iter().find(|(known, _)| *known == kind);
        Found::Option(data.map(|(_, range)| frame[range].to_vec()))
    };
    Some(match means {
        Means::All => Found::There,
        // The test's graph has one port of no name.
        Means::Port => Found::Number(1),
        Means::NetworkProtocol => Found::Number(places.network.into()),
        Means::Bits(first, count) => Found::Number(read_bits(&frame[at..], first, count)),
        Means::Is(first, value) => {
            Found::Number(u128::from(read_bits(&frame[at..], first, 2) == u128::from(value)))
        }
        Means::Payload => Found::Bytes(frame[places.payload(frame, part)?].to_vec()),
        Means::Extension(number) => {
            let ip = places.ip.as_ref()?;
            Found::Number(ip.extensions.contains(&number).into())
        }
        Means::Number(kind, _) | Means::Bytes(kind) => option(kind),
        Means::AnyOption => {
            Found::Kinds(places.tcp_options(frame).0.into_iter().map(|(kind, _)| kind).collect())
        }
    })
}

#[test]
fn the_catalogue_has_the_fields_of_the_rfcs() {
    for field in FieldId::all() {
        let _ = meaning(field);
    }
    assert_eq!(BY_ID.len(), MEANINGS.len() - 3, "three have a second name");
}
