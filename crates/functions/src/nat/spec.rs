//! Addresses, prefixes and mappings as an operator writes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use netbricks_core::packet::protocol;

/// A prefix of addresses: `10.0.0.0/8`, `fd00::/48`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// Its length in bits.
    pub len: u8,
}

impl Prefix {
    /// Whether it holds this address.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether both hold a common address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.holds(other.address) || other.holds(self.address)
    }

    /// The first and last address as numbers, of IPv4.
    pub(super) fn v4_range(&self) -> Option<(u32, u32)> {
        let IpAddr::V4(first) = self.address else { return None };
        let rest = u32::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
        Some((first.to_bits(), first.to_bits() | rest))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a prefix as `10.0.0.0/8`, found `{text}`");
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.trim().parse().map_err(|_| expected())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(most), |len| len.trim().parse().map_err(|_| expected()))?;
        if len > most {
            return Err(format!("the prefix `{text}` has {len} bits: give at most {most}"));
        }
        let first = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::from(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::from(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        if first != address {
            return Err(format!("the prefix `{text}` has host bits: write `{first}/{len}`"));
        }
        Ok(Self { address, len })
    }
}

/// A range of IPv4 addresses: `203.0.113.0/28`, `203.0.113.5-203.0.113.9`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address.
    pub last: Ipv4Addr,
}

impl PoolRange {
    /// The number of addresses.
    pub fn addresses(&self) -> u64 {
        u64::from(self.last.to_bits() - self.first.to_bits()) + 1
    }

    /// The addresses, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }

    /// Whether both hold a common address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for PoolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PoolRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected IPv4 addresses as `203.0.113.0/28` or `203.0.113.5-203.0.113.9`, found `{text}`"
            )
        };
        let range = match text.split_once('-') {
            Some((first, last)) => Self {
                first: first.trim().parse().map_err(|_| expected())?,
                last: last.trim().parse().map_err(|_| expected())?,
            },
            None => {
                let prefix: Prefix = text.parse()?;
                let (first, last) = prefix.v4_range().ok_or_else(expected)?;
                Self { first: Ipv4Addr::from_bits(first), last: Ipv4Addr::from_bits(last) }
            }
        };
        if range.first > range.last {
            return Err(format!("the range `{text}` ends before it begins: exchange its ends"));
        }
        let is_host = |address: Ipv4Addr| {
            !(address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast()
                || address.is_loopback())
        };
        if !is_host(range.first) || !is_host(range.last) {
            return Err(format!("the range `{text}` holds addresses that no host can have"));
        }
        Ok(range)
    }
}

/// A transport protocol with ports of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries, whose identifiers serve as ports.
    Icmp,
}

impl Transport {
    /// The number of transports.
    pub(super) const COUNT: usize = 3;

    /// The transport of an IP protocol number, as IPv4 or IPv6 has it.
    #[inline]
    pub(super) fn of(number: u8) -> Option<Self> {
        match number {
            protocol::TCP => Some(Self::Tcp),
            protocol::UDP => Some(Self::Udp),
            protocol::ICMP | protocol::ICMPV6 => Some(Self::Icmp),
            _ => None,
        }
    }

    /// Its number in IPv4.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Icmp => protocol::ICMP,
        }
    }

    /// Its number in packets of the version of `address`.
    pub(super) const fn number_with(self, address: IpAddr) -> u8 {
        match (self, address) {
            (Self::Icmp, IpAddr::V6(_)) => protocol::ICMPV6,
            _ => self.number(),
        }
    }

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

impl FromStr for Transport {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "icmp" => Ok(Self::Icmp),
            _ => Err(format!("expected `tcp`, `udp` or `icmp`, found `{text}`")),
        }
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port, or the identifier of an ICMP query.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}:{}", self.port),
            IpAddr::V6(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end: std::net::SocketAddr = text
            .parse()
            .map_err(|_| format!("expected an address and a port as `203.0.113.7:80`, found `{text}`"))?;
        Ok(Self { address: end.ip(), port: end.port() })
    }
}

/// A mapping that does not expire: a port, or a whole address.
///
/// It is written `tcp 203.0.113.7:80 -> 10.0.0.5:8080`, or `203.0.113.8 -> 10.0.0.6` for all of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Static {
    /// One port of an outside address leads to a host inside (port forwarding).
    Port {
        /// The transport.
        transport: Transport,
        /// The address and port outside.
        external: Endpoint,
        /// The address and port inside.
        inside: Endpoint,
    },
    /// All of an outside address leads to a host inside (1:1).
    Address {
        /// The address outside.
        external: Ipv4Addr,
        /// The address inside.
        inside: Ipv4Addr,
    },
}

impl Static {
    /// The address outside.
    pub fn external(&self) -> IpAddr {
        match self {
            Self::Port { external, .. } => external.address,
            Self::Address { external, .. } => IpAddr::V4(*external),
        }
    }

    /// Whether the two cannot stand beside each other.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Port { transport, external, inside },
                Self::Port { transport: its, external: its_external, inside: its_inside },
            ) => transport == its && (external == its_external || inside == its_inside),
            (
                Self::Address { external, inside },
                Self::Address { external: its_external, inside: its_inside },
            ) => external == its_external || inside == its_inside,
            _ => self.external() == other.external(),
        }
    }
}

impl fmt::Display for Static {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { transport, external, inside } => {
                write!(f, "{} {external} -> {inside}", transport.name())
            }
            Self::Address { external, inside } => write!(f, "{external} -> {inside}"),
        }
    }
}

impl FromStr for Static {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a mapping as `tcp 203.0.113.7:80 -> 10.0.0.5:8080` or `203.0.113.8 -> 10.0.0.6`, found `{text}`"
            )
        };
        let (outside, inside) = text.split_once("->").ok_or_else(expected)?;
        let (outside, inside) = (outside.trim(), inside.trim());
        match outside.split_once(char::is_whitespace) {
            Some((transport, external)) => {
                let transport: Transport = transport.parse()?;
                let (external, inside): (Endpoint, Endpoint) = (external.trim().parse()?, inside.parse()?);
                if !external.address.is_ipv4() {
                    return Err(format!("the outside address of `{text}` must be IPv4"));
                }
                if external.port == 0 || inside.port == 0 {
                    return Err(format!("the mapping `{text}` has port 0: give 1 to 65535"));
                }
                Ok(Self::Port { transport, external, inside })
            }
            None => Ok(Self::Address {
                external: outside.parse().map_err(|_| expected())?,
                inside: inside.parse().map_err(|_| expected())?,
            }),
        }
    }
}

/// A destination that packets from the inside get in place of another (destination NAT).
///
/// It is written `udp 192.0.2.53:53 -> 198.51.100.53:5353`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The transport.
    pub transport: Transport,
    /// The destination that hosts inside use.
    pub seen: Endpoint,
    /// The destination that packets get.
    pub real: Endpoint,
}

impl FromStr for Redirect {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected a destination as `udp 192.0.2.53:53 -> 198.51.100.53:53`, found `{text}`");
        let (seen, real) = text.split_once("->").ok_or_else(expected)?;
        let (transport, seen) = seen.trim().split_once(char::is_whitespace).ok_or_else(expected)?;
        let redirect =
            Self { transport: transport.parse()?, seen: seen.trim().parse()?, real: real.trim().parse()? };
        if !redirect.seen.address.is_ipv4() || !redirect.real.address.is_ipv4() {
            return Err(format!("both destinations of `{text}` must be IPv4"));
        }
        Ok(redirect)
    }
}

/// Destinations whose packets pass untranslated (RFC 6888, REQ-6).
///
/// They are written `192.0.2.0/24`, or `tcp 192.0.2.0/24:25` for one port of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exempt {
    /// The addresses.
    pub prefix: Prefix,
    /// One transport and port, or all.
    pub port: Option<(Transport, u16)>,
}

impl Exempt {
    /// Whether it covers this destination.
    pub fn covers(&self, address: IpAddr, transport: Option<Transport>, port: u16) -> bool {
        self.prefix.holds(address) && self.port.is_none_or(|(own, its)| transport == Some(own) && port == its)
    }
}

impl FromStr for Exempt {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((transport, rest)) = text.split_once(char::is_whitespace) else {
            return Ok(Self { prefix: text.parse()?, port: None });
        };
        let expected =
            || format!("expected a destination as `192.0.2.0/24` or `tcp 192.0.2.0/24:25`, found `{text}`");
        let (prefix, port) = rest.rsplit_once(':').ok_or_else(expected)?;
        let port = port.trim().parse().map_err(|_| expected())?;
        Ok(Self { prefix: prefix.trim().parse()?, port: Some((transport.parse()?, port)) })
    }
}

/// Two IPv6 prefixes of one length between which NPTv6 translates (RFC 6296).
///
/// They are written `fd00:1::/48 2001:db8:1::/48`, the inside first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixPair {
    /// The prefix inside.
    pub inside: Prefix,
    /// The prefix outside.
    pub outside: Prefix,
}

impl FromStr for PrefixPair {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected two IPv6 prefixes as `fd00:1::/48 2001:db8:1::/48`, found `{text}`");
        let (inside, outside) = text.trim().split_once(char::is_whitespace).ok_or_else(expected)?;
        let pair = Self { inside: inside.parse()?, outside: outside.trim().parse()? };
        if !pair.inside.address.is_ipv6() || !pair.outside.address.is_ipv6() {
            return Err(expected());
        }
        if pair.inside.len != pair.outside.len {
            return Err(format!("the two prefixes of `{text}` have different lengths: give them one"));
        }
        if !(1..=64).contains(&pair.inside.len) {
            return Err(format!("the prefixes of `{text}` must have 1 to 64 bits"));
        }
        if pair.inside.overlaps(&pair.outside) {
            return Err(format!("the two prefixes of `{text}` overlap"));
        }
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written() {
        for text in ["tcp 203.0.113.7:80 -> 10.0.0.5:8080", "203.0.113.8 -> 10.0.0.6"] {
            assert_eq!(text.parse::<Static>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.0/8".parse::<Prefix>().unwrap().to_string(), "10.0.0.0/8");
        assert_eq!("203.0.113.4/30".parse::<PoolRange>().unwrap().to_string(), "203.0.113.4-203.0.113.7");
        assert_eq!("203.0.113.4".parse::<PoolRange>().unwrap().addresses(), 1);
        let exempt: Exempt = "tcp 192.0.2.0/24:25".parse().unwrap();
        let covers =
            |address: &str, transport, port| exempt.covers(address.parse().unwrap(), Some(transport), port);
        assert!(covers("192.0.2.9", Transport::Tcp, 25));
        assert!(!covers("192.0.2.9", Transport::Udp, 25) && !covers("192.0.3.9", Transport::Tcp, 25));
    }

    #[test]
    fn wrong_texts_say_how_to_mend_them() {
        let refused = |text: &str| text.parse::<Static>().unwrap_err();
        assert!(refused("tcp 203.0.113.7:80").contains("expected a mapping as"));
        assert!(refused("sctp 203.0.113.7:80 -> 10.0.0.5:80").contains("expected `tcp`, `udp` or `icmp`"));
        assert!(refused("tcp 203.0.113.7:0 -> 10.0.0.5:80").contains("has port 0"));
        assert!("10.0.0.1/8".parse::<Prefix>().unwrap_err().contains("write `10.0.0.0/8`"));
        assert!("203.0.113.9-203.0.113.4".parse::<PoolRange>().unwrap_err().contains("exchange its ends"));
        assert!("fd00::/48 2001:db8::/56".parse::<PrefixPair>().unwrap_err().contains("different lengths"));
    }

    #[test]
    fn prefixes_of_all_lengths_hold_their_addresses() {
        for len in 0..=32u8 {
            let prefix = Prefix { address: "0.0.0.0".parse().unwrap(), len };
            let last = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
            assert!(prefix.holds(Ipv4Addr::from_bits(last).into()), "{len}");
            if len > 0 {
                assert!(!prefix.holds(Ipv4Addr::from_bits(last + 1).into()), "{len}");
            }
        }
        assert!(Prefix { address: "::".parse().unwrap(), len: 0 }.holds("ff::1".parse().unwrap()));
    }
}
