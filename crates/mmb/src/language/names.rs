//! Names for values: IP protocols, EtherTypes, ports, ICMP types and DSCPs.
//!
//! `/etc/services` and `/etc/protocols` are not read: a rule means the same on every machine.

use netbricks_core::packet::field::Show;
use netbricks_core::packet::{ethertype, icmpv4, icmpv6, protocol};

use crate::field::{FieldInfo, Kind, Layer};

/// A registry of names for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    Protocol,
    EtherType,
    Port,
    Icmp,
    Icmpv6,
    Dscp,
    /// Ports and protocols, for sets of numbers, which do not tell their field.
    OfSets,
}

/// Names beside those of [`protocol::name`]; the usual ones first.
const PROTOCOLS: &[(&str, u128)] = &[
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("icmp6", 58),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("sctp", 132),
    ("ipv6-icmp", 58),
    ("ip4", 4),
    ("ipip", 4),
    ("ip6", 41),
    ("udplite", 136),
];

/// Names beside those of [`ethertype::name`].
const ETHERTYPES: &[(&str, u128)] = &[
    ("ip4", 0x0800),
    ("ip", 0x0800),
    ("ip6", 0x86dd),
    ("vlan", 0x8100),
    ("qinq", 0x88a8),
    ("pppoe-session", 0x8864),
];

/// EtherTypes with a name in [`ethertype::name`], other than 0x9100, whose name means 0x88a8 here.
const NAMED_ETHERTYPES: &[u16] = &[
    ethertype::IPV4,
    ethertype::ARP,
    ethertype::WAKE_ON_LAN,
    ethertype::TRANSPARENT_ETHERNET,
    ethertype::RARP,
    ethertype::VLAN,
    ethertype::IPV6,
    ethertype::FLOW_CONTROL,
    ethertype::SLOW_PROTOCOLS,
    ethertype::MPLS,
    ethertype::MPLS_MULTICAST,
    ethertype::PPPOE_DISCOVERY,
    ethertype::PPPOE_SESSION,
    ethertype::EAPOL,
    ethertype::SERVICE_VLAN,
    ethertype::LLDP,
    ethertype::MACSEC,
    ethertype::PTP,
];

/// Ports by the names of IANA's "Service Name and Port Number Registry", the usual ones.
#[rustfmt::skip]
const PORTS: &[(&str, u128)] = &[
    ("http", 80), ("https", 443), ("domain", 53), ("dns", 53), ("ssh", 22), ("ftp", 21), ("ftp-data", 20), ("telnet", 23),
    ("smtp", 25), ("submission", 587), ("submissions", 465), ("imap", 143), ("imaps", 993), ("pop3", 110), ("pop3s", 995),
    ("bootps", 67), ("bootpc", 68), ("dhcpv6-client", 546), ("dhcpv6-server", 547), ("tftp", 69), ("ntp", 123),
    ("snmp", 161), ("snmptrap", 162), ("syslog", 514), ("bgp", 179), ("ldap", 389), ("ldaps", 636), ("kerberos", 88),
    ("isakmp", 500), ("ipsec-nat-t", 4500), ("radius", 1812), ("radius-acct", 1813), ("nfs", 2049), ("sunrpc", 111),
    ("mysql", 3306), ("postgresql", 5432), ("redis", 6379), ("rdp", 3389), ("sip", 5060), ("sips", 5061), ("mdns", 5353),
    ("http-alt", 8080), ("vxlan", 4789), ("geneve", 6081), ("gtp-user", 2152), ("echo", 7), ("discard", 9),
    ("domain-s", 853), ("rsync", 873), ("microsoft-ds", 445), ("epmap", 135), ("netbios-ns", 137),
];

/// Differentiated services by name (RFC 2474, 2597, 3246, 5865 and 8622).
#[rustfmt::skip]
const DSCPS: &[(&str, u128)] = &[
    ("cs0", 0), ("cs1", 8), ("cs2", 16), ("cs3", 24), ("cs4", 32), ("cs5", 40), ("cs6", 48), ("cs7", 56),
    ("af11", 10), ("af12", 12), ("af13", 14), ("af21", 18), ("af22", 20), ("af23", 22), ("af31", 26), ("af32", 28),
    ("af33", 30), ("af41", 34), ("af42", 36), ("af43", 38), ("ef", 46), ("voice-admit", 44), ("le", 1),
];

impl Registry {
    /// The registry for a field's values, if there is one.
    pub(crate) fn of(info: &FieldInfo) -> Option<Self> {
        let Kind::Bits { bit, bits } = info.kind else {
            return (info.show == Show::EtherType).then_some(Self::EtherType);
        };
        match (info.show, info.layer) {
            (Show::Protocol, _) => Some(Self::Protocol),
            (Show::EtherType, _) => Some(Self::EtherType),
            (_, Layer::Udp | Layer::Tcp) if bits == 16 && bit <= 16 => Some(Self::Port),
            (_, Layer::Icmp) if bit == 0 => Some(Self::Icmp),
            (_, Layer::Icmpv6) if bit == 0 => Some(Self::Icmpv6),
            (_, Layer::Ipv4 | Layer::Ipv6) if info.name.ends_with("-dscp") => Some(Self::Dscp),
            _ => None,
        }
    }

    /// The value with this name.
    pub(crate) fn value(self, name: &str) -> Option<u128> {
        let names: &[(&str, u128)] = match self {
            Self::Protocol => PROTOCOLS,
            Self::EtherType => ETHERTYPES,
            Self::Port => PORTS,
            Self::Dscp => DSCPS,
            Self::OfSets => return Self::Port.value(name).or_else(|| Self::Protocol.value(name)),
            Self::Icmp | Self::Icmpv6 => &[],
        };
        if let Some((_, value)) = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Some(*value);
        }
        if matches!(self, Self::Port | Self::Dscp) {
            return None;
        }
        self.registered().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The name that a value is shown by.
    pub(crate) fn name(self, value: u128) -> Option<&'static str> {
        match self {
            Self::Protocol => u8::try_from(value).ok().and_then(protocol::name),
            Self::EtherType => {
                let number = u16::try_from(value).ok().filter(|&number| number != ethertype::LEGACY_QINQ)?;
                ethertype::name(number)
            }
            Self::Icmp => u8::try_from(value).ok().and_then(icmpv4::kind::name),
            Self::Icmpv6 => u8::try_from(value).ok().and_then(icmpv6::kind::name),
            Self::OfSets => None,
            Self::Port => PORTS.iter().find(|(_, port)| *port == value).map(|(name, _)| *name),
            Self::Dscp => DSCPS.iter().find(|(_, dscp)| *dscp == value).map(|(name, _)| *name),
        }
    }

    /// All names, each with its value.
    pub(crate) fn names(self) -> impl Iterator<Item = (&'static str, u128)> {
        let names: &[(&str, u128)] = match self {
            Self::Protocol => PROTOCOLS,
            Self::EtherType => ETHERTYPES,
            Self::Port | Self::OfSets => PORTS,
            Self::Dscp => DSCPS,
            Self::Icmp | Self::Icmpv6 => &[],
        };
        let registered = (!matches!(self, Self::Port | Self::Dscp)).then(|| self.registered());
        names.iter().copied().chain(registered.into_iter().flatten())
    }

    /// The names of the packet crate.
    fn registered(self) -> impl Iterator<Item = (&'static str, u128)> {
        let ethertypes = NAMED_ETHERTYPES.iter().map(|&number| u128::from(number));
        let ethertypes = (self == Self::EtherType).then_some(ethertypes);
        let bytes = (self != Self::EtherType).then_some(0..=255);
        let values = ethertypes.into_iter().flatten().chain(bytes.into_iter().flatten());
        values.filter_map(move |value| self.name(value).map(|name| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_the_name_that_it_is_shown_by() {
        use Registry as R;
        for registry in [R::Protocol, R::EtherType, R::Port, R::Icmp, R::Icmpv6, R::Dscp] {
            for value in 0..=0xffff {
                if let Some(name) = registry.name(value) {
                    assert_eq!(registry.value(name), Some(value), "{registry:?} {name}");
                }
            }
            for (name, value) in registry.names() {
                assert_eq!(registry.value(name), Some(value), "{registry:?} {name}");
            }
        }
    }

    #[test]
    fn registries_are_those_of_the_fields() {
        use crate::field::FieldId;
        let of = |name| Registry::of(FieldId::named(name).unwrap().info());
        assert_eq!(of("ip-proto"), Some(Registry::Protocol));
        assert_eq!(of("ip6-next"), Some(Registry::Protocol));
        assert_eq!(of("net-proto"), Some(Registry::EtherType));
        assert_eq!(of("eth-type"), Some(Registry::EtherType));
        assert_eq!((of("tcp-sport"), of("udp-dport")), (Some(Registry::Port), Some(Registry::Port)));
        assert_eq!((of("tcp-win"), of("udp-len"), of("tcp-opt-mss")), (None, None, None));
        assert_eq!((of("icmp-type"), of("icmp6-type")), (Some(Registry::Icmp), Some(Registry::Icmpv6)));
        assert_eq!(of("icmp-code"), None);
        assert_eq!(of("ip-dscp"), Some(Registry::Dscp));
    }
}
