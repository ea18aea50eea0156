//! Names for values: what `AddressInfo`, `PortInfo` and their kin define, and well-known names of protocols.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::router::At;

/// Kinds of named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// An IPv4 address: 4 bytes.
    Ip,
    /// An IPv4 prefix: address and mask, 8 bytes.
    IpPrefix,
    /// An IPv6 address: 16 bytes.
    Ip6,
    /// An IPv6 prefix: address and length, 17 bytes.
    Ip6Prefix,
    /// An Ethernet address: 6 bytes.
    Ether,
    /// A TCP port: 2 bytes, in network order.
    TcpPort,
    /// A UDP port: 2 bytes, in network order.
    UdpPort,
    /// An annotation: offset and size, 2 bytes.
    Annotation,
    /// A pattern of rewriters: its number, 4 bytes in network order.
    RewriterPattern,
}

/// Values by name, in the scope of the compound element that defines them.
#[derive(Default)]
pub struct Names {
    defined: RefCell<HashMap<(Named, String), Vec<u8>>>,
}

impl Names {
    /// Defines a name in the scope of an element: those in the same compound and within see it.
    pub fn define(&self, at: At<'_>, kind: Named, name: &str, value: &[u8]) {
        let scope = scope(at.name());
        self.defined.borrow_mut().insert((kind, format!("{scope}{name}")), value.to_vec());
    }

    /// The value of a name as an element sees it: defined in its compound, or in one around it.
    ///
    /// Names of addresses may end in what is meant: `net:ip`, `net:ipnet`, `net:bcast`, `net:gw`, `net:ip6`,
    /// `net:ip6net`, `net:eth`.
    pub fn find(&self, at: At<'_>, kind: Named, name: &str) -> Option<Vec<u8>> {
        let (base, suffix) = match name.rfind(':') {
            Some(colon) if kind.is_address() => (&name[..colon], name[colon + 1..].to_ascii_lowercase()),
            _ => (name, String::new()),
        };
        match (kind, suffix.as_str()) {
            (Named::Ip, "bcast") => {
                let prefix = self.find(at, Named::IpPrefix, base)?;
                let (address, mask) = prefix.split_at_checked(4)?;
                Some(address.iter().zip(mask).map(|(address, mask)| address | !mask).collect())
            }
            (Named::Ip, "gw") => self.defined(at, kind, name).or_else(|| {
                let prefix = self.defined(at, Named::IpPrefix, base)?;
                let (address, mask) = prefix.split_at_checked(4)?;
                let mut first: Vec<u8> =
                    address.iter().zip(mask).map(|(address, mask)| address & mask).collect();
                *first.last_mut()? |= 1;
                Some(first)
            }),
            (_, "")
            | (Named::Ip, "ip" | "ip4")
            | (Named::IpPrefix, "net" | "ipnet" | "ip4net")
            | (Named::Ip6, "ip6")
            | (Named::Ip6Prefix, "ip6net")
            | (Named::Ether, "eth" | "ether" | "ethernet") => {
                self.defined(at, kind, base).or_else(|| device(at, kind, base))
            }
            _ => None,
        }
    }

    fn defined(&self, at: At<'_>, kind: Named, name: &str) -> Option<Vec<u8>> {
        let defined = self.defined.borrow();
        if defined.is_empty() {
            return None;
        }
        let mut scope = scope(at.name());
        loop {
            if let Some(value) = defined.get(&(kind, format!("{scope}{name}"))) {
                return Some(value.clone());
            }
            if scope.is_empty() {
                return None;
            }
            let inner = &scope[..scope.len() - 1];
            scope = &scope[..inner.rfind('/').map_or(0, |place| place + 1)];
        }
    }
}

impl Named {
    fn is_address(self) -> bool {
        matches!(self, Self::Ip | Self::IpPrefix | Self::Ip6 | Self::Ip6Prefix | Self::Ether)
    }
}

/// The Ethernet address of a network device of the machine, for a configuration that may look at the host.
fn device(at: At<'_>, kind: Named, name: &str) -> Option<Vec<u8>> {
    let is_name = (1..16).contains(&name.len()) && !name.contains(['/', ' ']) && name != "." && name != "..";
    if kind != Named::Ether || !is_name || !at.capabilities().process {
        return None;
    }
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    crate::value::Ether::read(text.trim()).map(|address| address.0.to_vec())
}

/// The part of a name up to and with the last `/`.
fn scope(name: &str) -> &str {
    &name[..name.rfind('/').map_or(0, |place| place + 1)]
}

/// Numbers of IP protocols by name (RFC 5237's registry, those that Click knows).
pub const IP_PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("pim", 103),
    ("sctp", 132),
    ("udplite", 136),
];

/// The number of an IP protocol by its name.
pub fn ip_protocol(name: &str) -> Option<u8> {
    IP_PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Ports of services by name (RFC 6335's registry, those that filters usually name).
pub const PORTS: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("finger", 79),
    ("www", 80),
    ("http", 80),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("irc", 194),
    ("imap3", 220),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("rip", 520),
    ("imaps", 993),
    ("pop3s", 995),
];

/// The port of a service by its name.
pub fn port(name: &str) -> Option<u16> {
    PORTS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Types of ICMP messages by name (IANA's registry, those that Click names).
pub(crate) const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo", 8),
    ("echo-reply", 0),
    ("inforeq", 15),
    ("inforeq-reply", 16),
    ("maskreq", 17),
    ("maskreq-reply", 18),
    ("parameterproblem", 12),
    ("redirect", 5),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("sourcequench", 4),
    ("timeexceeded", 11),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("unreachable", 3),
];
