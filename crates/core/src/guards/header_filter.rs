//! Filters by header fields of Ethernet, IP and transport, each of which is optional.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;

use super::facts::Facts;

/// A filter: a packet matches it if it matches every field that is given.
///
/// A filter without fields matches every frame. A list of rules takes only filters that some packet
/// could match ([`checked`](Self::checked)). A filter sees nothing behind two VLAN tags or in a tunnel, and
/// no ports in a fragment; see [`Facts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The EtherType behind up to two VLAN tags.
    pub ethertype: Option<u16>,
    /// The id in the first VLAN tag.
    pub vlan: Option<u16>,
    /// The IP version.
    pub version: Option<Version>,
    /// The IP protocol.
    pub protocol: Option<u8>,
    /// Networks of the source address.
    pub source: Option<Prefix>,
    /// Networks of the destination address.
    pub destination: Option<Prefix>,
    /// The source port.
    pub source_port: Option<u16>,
    /// The destination port.
    pub destination_port: Option<u16>,
}

/// The reason why no packet could match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Not an EtherType: smaller numbers give a frame's length.
    #[error("an EtherType is 0x600 to 0xffff, found {0:#x}")]
    EtherType(u16),
    /// A tag's own EtherType.
    #[error("{0:#x} announces a VLAN tag, behind which filters look: give its id as `vlan`")]
    Tag(u16),
    /// Not the id of a VLAN.
    #[error("a VLAN's id is 0 (a tag with a priority only) to 4094, found {0}")]
    Vlan(u16),
    /// One field says IPv4, another IPv6.
    #[error("`{0}` and `{1}` are of different IP versions: no packet has both")]
    Versions(&'static str, &'static str),
    /// Fields of IP, in frames without IP.
    #[error("`{0}` is a field of IP, and `ethertype` says that the frame holds none: take one of them out")]
    NotIp(&'static str),
    /// A port without a protocol, or with a protocol that has no ports.
    #[error("`{0}` needs a `protocol` that has ports: \"tcp\", \"udp\", \"sctp\", \"udp-lite\" or \"dccp\"")]
    NoPorts(&'static str),
}

impl Filter {
    /// The filter that matches every frame.
    pub const ANY: Self = Self {
        ethertype: None,
        vlan: None,
        version: None,
        protocol: None,
        source: None,
        destination: None,
        source_port: None,
        destination_port: None,
    };

    /// Frames with this EtherType, behind up to two VLAN tags.
    #[must_use]
    pub const fn ethertype(self, number: u16) -> Self {
        Self { ethertype: Some(number), ..self }
    }
    /// Frames whose first VLAN tag has this id.
    #[must_use]
    pub const fn in_vlan(self, id: u16) -> Self {
        Self { vlan: Some(id), ..self }
    }
    /// IP packets of this version.
    #[must_use]
    pub const fn version(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }
    /// IP packets of this protocol.
    #[must_use]
    pub const fn protocol(self, number: u8) -> Self {
        Self { protocol: Some(number), ..self }
    }
    /// IP packets from these addresses.
    #[must_use]
    pub const fn from(self, prefix: Prefix) -> Self {
        Self { source: Some(prefix), ..self }
    }
    /// IP packets to these addresses.
    #[must_use]
    pub const fn to(self, prefix: Prefix) -> Self {
        Self { destination: Some(prefix), ..self }
    }
    /// Packets from this port.
    #[must_use]
    pub const fn from_port(self, port: u16) -> Self {
        Self { source_port: Some(port), ..self }
    }
    /// Packets to this port.
    #[must_use]
    pub const fn to_port(self, port: u16) -> Self {
        Self { destination_port: Some(port), ..self }
    }

    /// Checks that some packet could match, and fills in the fields that follow from the others.
    ///
    /// # Errors
    /// [`Contradiction`]
    pub fn checked(mut self) -> Result<Self, Contradiction> {
        match self.ethertype {
            Some(number) if number < 0x600 => return Err(Contradiction::EtherType(number)),
            Some(number) if ethertype::is_vlan(number) => return Err(Contradiction::Tag(number)),
            _ => {}
        }
        if let Some(id) = self.vlan.filter(|id| *id > 4094) {
            return Err(Contradiction::Vlan(id));
        }
        let of = |prefix: Option<Prefix>| prefix.map(|prefix| prefix.version());
        let announced = match self.ethertype {
            Some(ethertype::IPV4) => Some(Version::V4),
            Some(ethertype::IPV6) => Some(Version::V6),
            _ => None,
        };
        let said = [
            ("ip", self.version),
            ("source", of(self.source)),
            ("destination", of(self.destination)),
            ("ethertype", announced),
        ];
        let mut versions = said.iter().filter_map(|(name, version)| Some((*name, (*version)?)));
        if let Some((first, version)) = versions.next() {
            if let Some((other, _)) = versions.find(|(_, other)| *other != version) {
                return Err(Contradiction::Versions(first, other));
            }
            if first != "ethertype" {
                self.version = Some(version);
            }
        }
        let ports = [("source_port", self.source_port), ("destination_port", self.destination_port)];
        let port = ports.iter().find(|(_, port)| port.is_some()).map(|(name, _)| *name);
        if let Some(name) = port
            && !self.protocol.is_some_and(protocol::has_ports)
        {
            return Err(Contradiction::NoPorts(name));
        }
        if self.ethertype.is_some() && announced.is_none() {
            let fields = [
                ("ip", self.version.is_some() && self.source.is_none() && self.destination.is_none()),
                ("source", self.source.is_some()),
                ("destination", self.destination.is_some()),
                ("protocol", self.protocol.is_some()),
            ];
            if let Some((name, _)) = fields.iter().find(|(_, is_given)| *is_given) {
                return Err(Contradiction::NotIp(name));
            }
        }
        if let Some(version) = self.version {
            self.ethertype = Some(match version {
                Version::V4 => ethertype::IPV4,
                Version::V6 => ethertype::IPV6,
            });
        }
        Ok(self)
    }

    /// Whether a frame with these facts matches.
    #[inline]
    pub fn matches(&self, facts: &Facts) -> bool {
        if self.ethertype.is_some_and(|number| number != facts.ethertype)
            || self.vlan.is_some_and(|id| facts.vlan != Some(id))
        {
            return false;
        }
        let of_ip = self.version.is_some()
            || self.protocol.is_some()
            || self.source.or(self.destination).is_some()
            || self.source_port.or(self.destination_port).is_some();
        if !of_ip {
            return true;
        }
        let Some(ip) = facts.ip else { return false };
        let port = |wanted: Option<u16>, of: fn((u16, u16)) -> u16| {
            wanted.is_none_or(|wanted| ip.ports.map(of) == Some(wanted))
        };
        self.version.is_none_or(|version| version == ip.version())
            && self.protocol.is_none_or(|protocol| ip.protocol == Some(protocol))
            && self.source.is_none_or(|prefix| prefix.holds(ip.source))
            && self.destination.is_none_or(|prefix| prefix.holds(ip.destination))
            && port(self.source_port, |(source, _)| source)
            && port(self.destination_port, |(_, destination)| destination)
    }

    /// Whether this filter matches every packet that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        fn wider<T: PartialEq>(this: Option<T>, other: Option<T>) -> bool {
            this.is_none() || this == other
        }
        let holds = |this: Option<Prefix>, other: Option<Prefix>| match (this, other) {
            (None, _) => true,
            (Some(this), Some(other)) => this.len <= other.len && this.holds(other.address),
            (Some(_), None) => false,
        };
        wider(self.ethertype, other.ethertype)
            && wider(self.vlan, other.vlan)
            && wider(self.version, other.version)
            && wider(self.protocol, other.protocol)
            && holds(self.source, other.source)
            && holds(self.destination, other.destination)
            && wider(self.source_port, other.source_port)
            && wider(self.destination_port, other.destination_port)
    }

    /// The filter that matches exactly the packets that both filters match; `None` where there are none.
    #[must_use]
    pub fn and(&self, other: &Self) -> Option<Self> {
        let both = Self {
            ethertype: equal(self.ethertype, other.ethertype)?,
            vlan: equal(self.vlan, other.vlan)?,
            version: equal(self.version, other.version)?,
            protocol: equal(self.protocol, other.protocol)?,
            source: narrower(self.source, other.source)?,
            destination: narrower(self.destination, other.destination)?,
            source_port: equal(self.source_port, other.source_port)?,
            destination_port: equal(self.destination_port, other.destination_port)?,
        };
        both.with_version()
    }

    /// Fills in version and EtherType where another field gives them; `None` where no packet has all fields.
    fn with_version(mut self) -> Option<Self> {
        let of = |prefix: Option<Prefix>| prefix.map(|prefix| prefix.version());
        let version = equal(self.version, equal(of(self.source), of(self.destination))?)?;
        if let Some(version) = version {
            let number = if version == Version::V4 { ethertype::IPV4 } else { ethertype::IPV6 };
            self.ethertype = equal(self.ethertype, Some(number))?;
            self.version = Some(version);
        }
        let has_ports = self.source_port.or(self.destination_port).is_some();
        if has_ports && self.protocol.is_some_and(|protocol| !protocol::has_ports(protocol)) {
            return None;
        }
        let of_ip = has_ports || self.protocol.is_some();
        let not_ip = |number: u16| ![ethertype::IPV4, ethertype::IPV6].contains(&number);
        if of_ip && self.ethertype.is_some_and(not_ip) {
            return None;
        }
        Some(self)
    }

    /// The filter for the other direction of the flows that this filter matches.
    #[must_use]
    pub const fn mirrored(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }
}

/// The value that both fields ask for; the outer `None` where they contradict each other.
fn equal<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

/// As [`equal`], for prefixes, of which one may hold the other.
fn narrower(one: Option<Prefix>, other: Option<Prefix>) -> Option<Option<Prefix>> {
    let (Some(one), Some(other)) = (one, other) else { return Some(one.or(other)) };
    let (wide, narrow) = if one.len <= other.len { (one, other) } else { (other, one) };
    wide.holds(narrow.address).then_some(Some(narrow))
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.vlan.map(|id| format!("vlan {id}")));
        let with_addresses = self.source.or(self.destination).is_some();
        match (self.version, self.ethertype) {
            (Some(Version::V4), _) if !with_addresses => parts.push("ipv4".into()),
            (Some(Version::V6), _) if !with_addresses => parts.push("ipv6".into()),
            (None, Some(number)) => {
                parts.push(match ethertype::name(number).filter(|name| !is_protocol(name)) {
                    Some(name) => name.into(),
                    None => format!("ethertype {number:#06x}"),
                })
            }
            _ => {}
        }
        parts.extend(self.protocol.map(
            |number| match protocol::name(number).filter(|name| !is_version(name)) {
                Some(name) => name.to_owned(),
                None => format!("protocol {number}"),
            },
        ));
        parts.extend(self.source.map(|prefix| format!("from {prefix}")));
        parts.extend(self.source_port.map(|port| format!("from port {port}")));
        parts.extend(self.destination.map(|prefix| format!("to {prefix}")));
        parts.extend(self.destination_port.map(|port| format!("to port {port}")));
        if parts.is_empty() {
            parts.push("all packets".into());
        }
        f.write_str(&parts.join(", "))
    }
}

/// Whether a name means a version of IP; IP in IP has the same.
fn is_version(name: &str) -> bool {
    ["ipv4", "ipv6"].contains(&name)
}

/// Whether a name means a protocol, or a version of IP.
fn is_protocol(name: &str) -> bool {
    (0..=u8::MAX).any(|number| protocol::name(number) == Some(name))
}

/// Not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFilter {
    /// A part of the text is no condition.
    #[error(
        "expected conditions such as \"tcp, from 10.0.0.0/8, to port 443\", \"vlan 7\", \"ipv6\", \"arp\" or \"all packets\", found {0:?}"
    )]
    Part(String),
    /// Two parts are about the same field.
    #[error("{0:?} is about a field that has a condition already: give one of them")]
    Twice(String),
    /// An address is none.
    #[error(transparent)]
    Prefix(#[from] NoPrefix),
    /// No packet could match.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
}

/// Reads what [`Display`](fmt::Display) writes: conditions with commas between them.
impl FromStr for Filter {
    type Err = NoFilter;
    fn from_str(text: &str) -> Result<Self, NoFilter> {
        let mut filter = Self::ANY;
        let all = text.trim();
        for part in all.split(',').map(str::trim).filter(|_| all != "all packets") {
            let more = condition(part)?;
            if !filter.is_apart_from(&more) {
                return Err(NoFilter::Twice(part.into()));
            }
            filter = Self {
                ethertype: filter.ethertype.or(more.ethertype),
                vlan: filter.vlan.or(more.vlan),
                version: filter.version.or(more.version),
                protocol: filter.protocol.or(more.protocol),
                source: filter.source.or(more.source),
                destination: filter.destination.or(more.destination),
                source_port: filter.source_port.or(more.source_port),
                destination_port: filter.destination_port.or(more.destination_port),
            };
        }
        Ok(filter.checked()?)
    }
}

impl Filter {
    /// Whether no field has a condition in both.
    fn is_apart_from(&self, other: &Self) -> bool {
        let both = [
            self.ethertype.is_some() && other.ethertype.is_some(),
            self.vlan.is_some() && other.vlan.is_some(),
            self.version.is_some() && other.version.is_some(),
            self.protocol.is_some() && other.protocol.is_some(),
            self.source.is_some() && other.source.is_some(),
            self.destination.is_some() && other.destination.is_some(),
            self.source_port.is_some() && other.source_port.is_some(),
            self.destination_port.is_some() && other.destination_port.is_some(),
        ];
        !both.contains(&true)
    }
}

/// Reads one condition.
fn condition(part: &str) -> Result<Filter, NoFilter> {
    let refused = || NoFilter::Part(part.into());
    let number = |text: &str| {
        let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        u16::from_str_radix(digits, radix).map_err(|_| refused())
    };
    let words: Vec<&str> = part.split_whitespace().collect();
    Ok(match words[..] {
        ["vlan", id] => Filter::ANY.in_vlan(number(id)?),
        ["ipv4"] => Filter::ANY.version(Version::V4),
        ["ipv6"] => Filter::ANY.version(Version::V6),
        ["ethertype", of] => Filter::ANY.ethertype(number(of)?),
        ["protocol", of] => Filter::ANY.protocol(u8::try_from(number(of)?).map_err(|_| refused())?),
        ["from", "port", port] => Filter::ANY.from_port(number(port)?),
        ["to", "port", port] => Filter::ANY.to_port(number(port)?),
        ["from", prefix] => Filter::ANY.from(prefix.parse()?),
        ["to", prefix] => Filter::ANY.to(prefix.parse()?),
        [name] => {
            let protocol = (0..=u8::MAX).find(|number| protocol::name(*number) == Some(name));
            let ethertype = || (0x600..=u16::MAX).find(|number| ethertype::name(*number) == Some(name));
            match protocol {
                Some(number) => Filter::ANY.protocol(number),
                None => Filter::ANY.ethertype(ethertype().ok_or_else(refused)?),
            }
        }
        _ => return Err(refused()),
    })
}

/// Addresses with the same first bits: `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPrefix {
    /// The text does not have the form of a prefix.
    #[error("expected an address or a prefix such as \"192.0.2.0/24\" or \"2001:db8::/32\", found {0:?}")]
    Form(String),
    /// The address has bits beyond the length.
    #[error("{address}/{len} has bits behind its first {len}: write {meant}")]
    Bits {
        /// The address that was written.
        address: IpAddr,
        /// Its length, in bits.
        len: u8,
        /// The prefix without those bits.
        meant: Prefix,
    },
}

impl Prefix {
    /// The first `len` bits of an address.
    ///
    /// # Errors
    /// [`NoPrefix`] if the address is shorter, or has other bits.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, NoPrefix> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if len > longest {
            return Err(NoPrefix::Form(format!("{address}/{len}")));
        }
        let meant = Self { address: cut(address, len), len };
        if meant.address == address { Ok(meant) } else { Err(NoPrefix::Bits { address, len, meant }) }
    }
    /// The prefix of `len` bits that an address is in.
    #[must_use]
    pub fn around(address: IpAddr, len: u8) -> Self {
        let len = len.min(if address.is_ipv4() { 32 } else { 128 });
        Self { address: cut(address, len), len }
    }
    /// The version of its addresses.
    pub const fn version(&self) -> Version {
        if self.address.is_ipv4() { Version::V4 } else { Version::V6 }
    }
    /// The first of its addresses.
    pub const fn address(&self) -> IpAddr {
        self.address
    }
    /// The number of bits that its addresses have in common.
    pub const fn bits(&self) -> u8 {
        self.len
    }
    /// Whether an address is among them.
    #[inline]
    pub fn holds(&self, address: IpAddr) -> bool {
        cut(address, self.len) == self.address
    }
}

/// The first `len` bits of an address, with the other bits 0.
#[inline]
fn cut(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(len.into())).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(len.into())).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;
    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let form = || NoPrefix::Form(text.into());
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len.parse().map_err(|_| form())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        Self::new(address, len.unwrap_or(longest)).map_err(|error| match error {
            NoPrefix::Form(_) => form(),
            bits @ NoPrefix::Bits { .. } => bits,
        })
    }
}
