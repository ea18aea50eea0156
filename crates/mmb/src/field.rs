//! The fields that rules speak of.
//!
//! Fields of fixed headers come from the field tables of [`netbricks_core::packet`]; their RFC names in those tables
//! are names here, with the header's name before them: `tcp-window`. mmb has shorter names for many: `tcp-win`.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use netbricks_core::packet::field::{Field, Show};
use netbricks_core::packet::{
    Arp, Ethernet, Geneve, Gre, Gtpu, Icmpv4, Icmpv6, Ipv4, Ipv6, Mpls, Pppoe, SegmentRouting, Tcp, Udp,
    Vlan, Vxlan,
};

/// A header of a packet, or a part of one, that a packet has or has not.
///
/// A rule about a field means packets with its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Layer {
    /// Every packet has it: ports of arrival and departure, lengths.
    Frame,
    /// Ethernet.
    Ethernet,
    /// The outermost 802.1Q tag.
    Vlan,
    /// The 802.1Q tag within the outermost.
    InnerVlan,
    /// The outermost MPLS label.
    Mpls,
    /// PPPoE.
    Pppoe,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ICMP (for IPv4).
    Icmp,
    /// An ICMP message with an identifier and a sequence number: echo, timestamp and their replies.
    IcmpEcho,
    /// An ICMP message that states an MTU: fragmentation needed.
    IcmpMtu,
    /// ICMPv6.
    Icmpv6,
    /// An ICMPv6 echo request or reply.
    Icmpv6Echo,
    /// An ICMPv6 message that states an MTU: packet too big.
    Icmpv6Mtu,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// GRE.
    Gre,
    /// VXLAN, on UDP port 4789.
    Vxlan,
    /// Geneve, on UDP port 6081.
    Geneve,
    /// GTP-U, on UDP port 2152.
    Gtpu,
    /// The segment routing header of IPv6 (RFC 8754).
    Srv6,
}

impl Layer {
    /// All layers.
    pub const ALL: [Self; 22] = [
        Self::Frame,
        Self::Ethernet,
        Self::Vlan,
        Self::InnerVlan,
        Self::Mpls,
        Self::Pppoe,
        Self::Arp,
        Self::Ipv4,
        Self::Ipv6,
        Self::Icmp,
        Self::IcmpEcho,
        Self::IcmpMtu,
        Self::Icmpv6,
        Self::Icmpv6Echo,
        Self::Icmpv6Mtu,
        Self::Udp,
        Self::Tcp,
        Self::Gre,
        Self::Vxlan,
        Self::Geneve,
        Self::Gtpu,
        Self::Srv6,
    ];

    /// Its bit in a set of layers.
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// The layers that a packet with this one always has, itself included, as bits.
    pub const fn implied(self) -> u32 {
        self.bit()
            | match self {
                Self::Icmp => Self::Ipv4.bit(),
                Self::IcmpEcho | Self::IcmpMtu => Self::Icmp.implied(),
                Self::Icmpv6 | Self::Srv6 => Self::Ipv6.bit(),
                Self::Icmpv6Echo | Self::Icmpv6Mtu => Self::Icmpv6.implied(),
                Self::Vxlan | Self::Geneve | Self::Gtpu => Self::Udp.bit(),
                Self::InnerVlan => Self::Vlan.bit(),
                _ => 0,
            }
    }

    /// The layers that no packet with this one has, as bits.
    pub const fn excludes(self) -> u32 {
        const NETWORK: u32 = Layer::Arp.bit() | Layer::Ipv4.bit() | Layer::Ipv6.bit();
        const TRANSPORT: u32 =
            Layer::Icmp.bit() | Layer::Icmpv6.bit() | Layer::Udp.bit() | Layer::Tcp.bit() | Layer::Gre.bit();
        const TUNNELS: u32 = Layer::Vxlan.bit() | Layer::Geneve.bit() | Layer::Gtpu.bit();
        let alike = match self {
            Self::Arp | Self::Ipv4 | Self::Ipv6 => NETWORK,
            Self::Icmp | Self::Icmpv6 | Self::Udp | Self::Tcp | Self::Gre => TRANSPORT,
            Self::Vxlan | Self::Geneve | Self::Gtpu => TUNNELS,
            Self::IcmpEcho | Self::IcmpMtu => Self::IcmpEcho.bit() | Self::IcmpMtu.bit(),
            Self::Icmpv6Echo | Self::Icmpv6Mtu => Self::Icmpv6Echo.bit() | Self::Icmpv6Mtu.bit(),
            _ => 0,
        };
        alike & !self.bit()
    }

    /// Its name in messages: "IPv4".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frame => "the frame",
            Self::Ethernet => "Ethernet",
            Self::Vlan => "802.1Q",
            Self::InnerVlan => "a second 802.1Q tag",
            Self::Mpls => "MPLS",
            Self::Pppoe => "PPPoE",
            Self::Arp => "ARP",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Icmp => "ICMP",
            Self::IcmpEcho => "an ICMP echo",
            Self::IcmpMtu => "ICMP fragmentation needed",
            Self::Icmpv6 => "ICMPv6",
            Self::Icmpv6Echo => "an ICMPv6 echo",
            Self::Icmpv6Mtu => "ICMPv6 packet too big",
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Gre => "GRE",
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
            Self::Gtpu => "GTP-U",
            Self::Srv6 => "SRv6",
        }
    }
}

/// A field's place in a packet, and the kind of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `all`: every packet has it, and it has no value.
    All,
    /// The port of arrival.
    In,
    /// The port by which the packet leaves this function.
    Out,
    /// The EtherType behind all tags and labels, which tells the network protocol.
    NetworkProtocol,
    /// Bits of a layer's fixed header, from its first bit, most significant first; 1 to 128 of them.
    Bits {
        /// The first.
        bit: u16,
        /// How many.
        bits: u16,
    },
    /// Whether another field has this value: `ip-ect0` is `ip-ecn 2`.
    Code {
        /// The other field's first bit.
        bit: u16,
        /// How many bits it has.
        bits: u16,
        /// The value.
        value: u8,
    },
    /// The bytes behind the layer's header, up to where its length field says.
    Payload,
    /// Whether an IPv6 packet has an extension header with this number.
    ExtensionHeader(u8),
    /// A TCP option of this kind, whose value is a number of so many bits behind its kind and length.
    NumberOption {
        /// Its kind.
        kind: u8,
        /// 8, 16 or 32.
        bits: u16,
    },
    /// A TCP option of this kind, whose value is the bytes behind its kind and length.
    BytesOption {
        /// Its kind.
        kind: u8,
    },
    /// `tcp-opt`: any TCP option, or the option whose kind is the value.
    AnyOption,
}

impl Kind {
    /// Bits of a value; 0 where it has no number for a value.
    pub const fn bits(self) -> u16 {
        match self {
            Self::Bits { bits, .. } | Self::NumberOption { bits, .. } => bits,
            Self::In | Self::Out | Self::NetworkProtocol => 16,
            Self::AnyOption => 8,
            Self::Code { .. } | Self::ExtensionHeader(_) => 1,
            Self::All | Self::Payload | Self::BytesOption { .. } => 0,
        }
    }
    /// Whether the length of its value differs between packets.
    pub const fn is_variable(self) -> bool {
        matches!(self, Self::Payload | Self::BytesOption { .. })
    }
    /// Whether it is a bit that means 1 where no value is given.
    pub const fn is_flag(self) -> bool {
        matches!(self, Self::Bits { bits: 1, .. } | Self::Code { .. })
    }
    /// Whether it is a TCP option.
    pub const fn is_option(self) -> bool {
        matches!(self, Self::NumberOption { .. } | Self::BytesOption { .. } | Self::AnyOption)
    }
}

/// A field of the catalogue.
#[derive(Clone, Debug)]
pub struct FieldInfo {
    /// Its name in rules, mmb's where mmb has one.
    pub name: String,
    /// Other names that are understood.
    pub other_names: Vec<String>,
    /// The layer that it is in.
    pub layer: Layer,
    /// Its place and the kind of its values.
    pub kind: Kind,
    /// How people read its values.
    pub show: Show,
    /// Whether `mod` may write it.
    pub is_writable: bool,
}

/// A field, by its place in the [catalogue](FieldId::all).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(u16);

impl FieldId {
    /// The field of this name; names are compared without case.
    pub fn named(name: &str) -> Option<Self> {
        let catalogue = &*CATALOGUE;
        match catalogue.ids.get(name) {
            Some(id) => Some(*id),
            None if name.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                catalogue.ids.get(name.to_ascii_lowercase().as_str()).copied()
            }
            None => None,
        }
    }
    /// All fields, in the order of their layers.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..CATALOGUE.fields.len() as u16).map(Self)
    }
    /// The names that are understood, in order, each with its field.
    pub fn names() -> impl Iterator<Item = (&'static str, Self)> {
        CATALOGUE.names.iter().map(|(name, id)| (name.as_str(), *id))
    }
    /// The field's facts.
    pub fn info(self) -> &'static FieldInfo {
        &CATALOGUE.fields[usize::from(self.0)]
    }
    /// The field of which this one names a value, as of the ECN field one codepoint; else this field.
    pub(crate) fn whole(self) -> Self {
        let info = self.info();
        let Kind::Code { bit, bits, .. } = info.kind else { return self };
        let is_whole = |id: &Self| {
            let other = id.info();
            other.layer == info.layer && other.kind == Kind::Bits { bit, bits }
        };
        Self::all().find(is_whole).unwrap_or(self)
    }
    /// Its place in the catalogue.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

struct Catalogue {
    fields: Vec<FieldInfo>,
    names: BTreeMap<String, FieldId>,
    /// The same, for a look-up in constant time: a rule's line has many names.
    ids: HashMap<String, FieldId, BuildHasherDefault<NameHasher>>,
}

/// FNV-1a, which is quick for short names and the same in every run.
struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::make);

/// TCP option kinds with names of their own.
const OPTIONS: [(&str, Kind); 7] = [
    ("tcp-opt-mss", Kind::NumberOption { kind: 2, bits: 16 }),
    ("tcp-opt-wscale", Kind::NumberOption { kind: 3, bits: 8 }),
    ("tcp-opt-sackp", Kind::BytesOption { kind: 4 }),
    ("tcp-opt-sack", Kind::BytesOption { kind: 5 }),
    ("tcp-opt-timestamp", Kind::NumberOption { kind: 8, bits: 32 }),
    ("tcp-opt-fast-open", Kind::BytesOption { kind: 34 }),
    ("tcp-opt-mptcp", Kind::BytesOption { kind: 30 }),
];

/// Extension headers by name (the IANA registry of IPv6 extension header types).
const EXTENSION_HEADERS: [(&str, u8); 9] = [
    ("hop-by-hop", 0),
    ("routing", 43),
    ("fragment", 44),
    ("esp", 50),
    ("ah", 51),
    ("destination", 60),
    ("mobility", 135),
    ("hip", 139),
    ("shim6", 140),
];

/// mmb's names for fields of the tables; the first of two names for one field is shown.
const SHORT: &[(&str, &str)] = &[
    ("ip-ver", "ip-version"),
    ("ip-len", "ip-total-length"),
    ("ip-id", "ip-identification"),
    ("ip-res", "ip-reserved"),
    ("ip-df", "ip-dont-fragment"),
    ("ip-mf", "ip-more-fragments"),
    ("ip-frag-offset", "ip-fragment-offset"),
    ("ip-ttl", "ip-time-to-live"),
    ("ip-proto", "ip-protocol"),
    ("ip-checksum", "ip-header-checksum"),
    ("ip-saddr", "ip-source"),
    ("ip-daddr", "ip-destination"),
    ("ip6-ver", "ip6-version"),
    ("ip6-len", "ip6-payload-length"),
    ("ip6-next", "ip6-next-header"),
    ("ip6-saddr", "ip6-source"),
    ("ip6-daddr", "ip6-destination"),
    ("icmp-type", "icmp-message-type"),
    ("icmp6-type", "icmp6-message-type"),
    ("udp-sport", "udp-source-port"),
    ("udp-dport", "udp-destination-port"),
    ("udp-len", "udp-length"),
    ("tcp-sport", "tcp-source-port"),
    ("tcp-dport", "tcp-destination-port"),
    ("tcp-seq-num", "tcp-sequence-number"),
    ("tcp-ack-num", "tcp-acknowledgment-number"),
    ("tcp-offset", "tcp-data-offset"),
    ("tcp-urg-ptr", "tcp-urgent-pointer"),
    ("tcp-push", "tcp-psh"),
    ("tcp-win", "tcp-window"),
    ("eth-daddr", "eth-destination"),
    ("eth-saddr", "eth-source"),
    ("eth-type", "eth-ethertype"),
    ("vlan-id", "vlan-vid"),
    ("inner-vlan-id", "inner-vlan-vid"),
];

/// Fields of several that are one to the reader, or of a part of a message.
///
/// Each has a name, a layer, the first bit, the number of bits, and a form.
const PARTS: &[(&str, Layer, u16, u16, Show)] = &[
    ("ip-flags", Layer::Ipv4, 48, 3, Show::Hex),
    ("ip6-traffic-class", Layer::Ipv6, 4, 8, Show::Hex),
    ("icmp-id", Layer::IcmpEcho, 32, 16, Show::Dec),
    ("icmp-seq", Layer::IcmpEcho, 48, 16, Show::Dec),
    ("icmp-mtu", Layer::IcmpMtu, 48, 16, Show::Dec),
    ("icmp6-id", Layer::Icmpv6Echo, 32, 16, Show::Dec),
    ("icmp6-seq", Layer::Icmpv6Echo, 48, 16, Show::Dec),
    ("icmp6-mtu", Layer::Icmpv6Mtu, 32, 32, Show::Dec),
    ("tcp-flags", Layer::Tcp, 104, 8, Show::Hex),
];

/// Names for values of a field: name, layer, first bit, bits, value.
const CODES: &[(&str, Layer, u16, u16, u8)] = &[
    ("ip-non-ect", Layer::Ipv4, 14, 2, 0),
    ("ip-ect1", Layer::Ipv4, 14, 2, 1),
    ("ip-ect0", Layer::Ipv4, 14, 2, 2),
    ("ip-ce", Layer::Ipv4, 14, 2, 3),
    ("ip6-non-ect", Layer::Ipv6, 10, 2, 0),
    ("ip6-ect1", Layer::Ipv6, 10, 2, 1),
    ("ip6-ect0", Layer::Ipv6, 10, 2, 2),
    ("ip6-ce", Layer::Ipv6, 10, 2, 3),
];

/// Fixed fields whose value decides where others are, so that `mod` does not write them.
///
/// A rule that wrote a length or an announcement would make a packet that lies about itself.
const STRUCTURE: &[&str] = &[
    "ip-ver",
    "ip-ihl",
    "ip-len",
    "ip-mf",
    "ip-frag-offset",
    "ip-flags",
    "ip-proto",
    "ip6-ver",
    "ip6-len",
    "ip6-next",
    "udp-len",
    "tcp-offset",
    "eth-type",
    "vlan-ethertype",
    "inner-vlan-ethertype",
    "mpls-bottom-of-stack",
    "gre-checksum-present",
    "gre-routing-present",
    "gre-key-present",
    "gre-sequence-number-present",
    "gre-acknowledgment-present",
    "gre-version",
    "gre-protocol-type",
    "geneve-version",
    "geneve-option-length",
    "geneve-protocol-type",
    "gtpu-version",
    "gtpu-protocol-type",
    "gtpu-extension-header",
    "gtpu-sequence-number-flag",
    "gtpu-npdu-number-flag",
    "gtpu-message-type",
    "gtpu-length",
    "srv6-next-header",
    "srv6-header-extension-length",
    "srv6-routing-type",
    "srv6-segments-left",
    "srv6-last-entry",
    "pppoe-version",
    "pppoe-kind",
    // A session's packets have 0 (RFC 2516, section 4).
    "pppoe-code",
    "pppoe-length",
    "arp-hardware-type",
    "arp-protocol-type",
    "arp-hardware-length",
    "arp-protocol-length",
];

impl Catalogue {
    fn make() -> Self {
        let mut all = Self { fields: Vec::new(), names: BTreeMap::new(), ids: HashMap::default() };
        all.add("all", Layer::Frame, Kind::All, Show::Dec, false);
        all.add("in", Layer::Frame, Kind::In, Show::Dec, false);
        all.add("out", Layer::Frame, Kind::Out, Show::Dec, false);
        all.add("net-proto", Layer::Ethernet, Kind::NetworkProtocol, Show::EtherType, false);
        all.table("eth", Layer::Ethernet, Ethernet::TABLE);
        all.table("vlan", Layer::Vlan, Vlan::TABLE);
        all.table("inner-vlan", Layer::InnerVlan, Vlan::TABLE);
        all.table("mpls", Layer::Mpls, Mpls::TABLE);
        all.table("pppoe", Layer::Pppoe, Pppoe::TABLE);
        all.table("arp", Layer::Arp, Arp::TABLE);
        all.table("ip", Layer::Ipv4, Ipv4::TABLE);
        all.parts("ip-", Layer::Ipv4);
        all.table("ip6", Layer::Ipv6, Ipv6::TABLE);
        all.parts("ip6-", Layer::Ipv6);
        for (name, number) in EXTENSION_HEADERS {
            let kind = Kind::ExtensionHeader(number);
            all.add(&format!("ip6-eh-{name}"), Layer::Ipv6, kind, Show::Flag, false);
        }
        all.table("icmp", Layer::Icmp, Icmpv4::TABLE);
        all.parts("icmp-", Layer::Icmp);
        all.table("icmp6", Layer::Icmpv6, Icmpv6::TABLE);
        all.parts("icmp6-", Layer::Icmpv6);
        all.table("udp", Layer::Udp, Udp::TABLE);
        all.parts("udp-", Layer::Udp);
        all.table("tcp", Layer::Tcp, Tcp::TABLE);
        all.parts("tcp-", Layer::Tcp);
        for (name, kind) in OPTIONS {
            all.add(name, Layer::Tcp, kind, Show::Dec, true);
        }
        all.add("tcp-opt", Layer::Tcp, Kind::AnyOption, Show::Dec, false);
        all.table("gre", Layer::Gre, Gre::TABLE);
        all.table("vxlan", Layer::Vxlan, Vxlan::TABLE);
        all.table("geneve", Layer::Geneve, Geneve::TABLE);
        all.table("gtpu", Layer::Gtpu, Gtpu::TABLE);
        all.table("srv6", Layer::Srv6, SegmentRouting::TABLE);
        all
    }

    /// The fields of a header's table.
    fn table(&mut self, prefix: &str, layer: Layer, table: &[Field]) {
        for Field { name, bit, bits, show, .. } in table {
            let name = format!("{prefix}-{}", name.replace('_', "-"));
            self.add(&name, layer, Kind::Bits { bit: *bit, bits: *bits }, *show, true);
        }
    }

    /// Fields of this prefix beside those of the table, and the payload.
    fn parts(&mut self, prefix: &str, payload_of: Layer) {
        for &(name, layer, bit, bits, show) in PARTS {
            if name.starts_with(prefix) {
                self.add(name, layer, Kind::Bits { bit, bits }, show, true);
            }
        }
        for &(name, layer, bit, bits, value) in CODES {
            if name.starts_with(prefix) {
                self.add(name, layer, Kind::Code { bit, bits, value }, Show::Flag, true);
            }
        }
        self.add(&format!("{prefix}payload"), payload_of, Kind::Payload, Show::Hex, true);
    }

    fn add(&mut self, name: &str, layer: Layer, kind: Kind, show: Show, is_writable: bool) {
        let short = SHORT.iter().find(|(_, long)| *long == name).map(|(short, _)| *short);
        let shown = short.unwrap_or(name);
        let is_writable = is_writable && !STRUCTURE.contains(&shown);
        let id = FieldId(self.fields.len() as u16);
        let other_names: Vec<String> = short.map(|_| name.to_owned()).into_iter().collect();
        for name in other_names.iter().map(String::as_str).chain([shown]) {
            self.names.insert(name.to_owned(), id);
            self.ids.insert(name.to_owned(), id);
        }
        self.fields.push(FieldInfo { name: shown.to_owned(), other_names, layer, kind, show, is_writable });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that mmb's grammar names.
    const OF_MMB: &str = "in out net-proto all ip-ver ip-ihl ip-dscp ip-ecn ip-non-ect ip-ect0 ip-ect1 ip-ce ip-len ip-id \
        ip-flags ip-res ip-df ip-mf ip-frag-offset ip-ttl ip-proto ip-checksum ip-saddr ip-daddr ip-payload ip6-ver \
        ip6-traffic-class ip6-flow-label ip6-len ip6-next ip6-hop-limit ip6-saddr ip6-daddr ip6-payload icmp-type \
        icmp-code icmp-checksum icmp-payload icmp-id icmp-seq icmp-mtu icmp6-type icmp6-code icmp6-checksum \
        icmp6-payload icmp6-id icmp6-seq icmp6-mtu udp-sport udp-dport udp-len udp-checksum udp-payload tcp-sport \
        tcp-dport tcp-seq-num tcp-ack-num tcp-offset tcp-reserved tcp-urg-ptr tcp-flags tcp-cwr tcp-ece tcp-urg \
        tcp-ack tcp-push tcp-rst tcp-syn tcp-fin tcp-win tcp-checksum tcp-payload tcp-opt tcp-opt-mss tcp-opt-wscale \
        tcp-opt-sackp tcp-opt-sack tcp-opt-timestamp tcp-opt-fast-open tcp-opt-mptcp";

    #[test]
    fn every_field_of_mmb_has_its_name() {
        for name in OF_MMB.split_whitespace() {
            let id = FieldId::named(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(id.info().name, name);
        }
    }

    #[test]
    fn every_name_is_of_one_field_and_every_field_is_found_by_its_names() {
        let mut names = 0;
        for id in FieldId::all() {
            let info = id.info();
            for name in info.other_names.iter().chain([&info.name]) {
                assert_eq!(FieldId::named(name), Some(id), "{name}");
                names += 1;
            }
            assert!(info.kind.bits() <= 128, "{}", info.name);
        }
        assert_eq!(FieldId::names().count(), names);
        for (short, long) in SHORT {
            assert_eq!(FieldId::named(short), FieldId::named(long), "{short}");
        }
        for name in STRUCTURE {
            assert!(!FieldId::named(name).unwrap().info().is_writable, "{name}");
        }
    }
}
