//! Settings of `nat`.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::MacAddress;
use netbricks_core::units::{Duration, list_from_text};
use netbricks_core::{ConfigWarning, InvalidSetting, Settings};
use serde::de::Deserializer;

use super::engine::is_of_the_link;
use super::spec::{Exempt, PoolRange, Prefix, PrefixPair, Redirect, Static};

/// The remote endpoints whose packets a mapping lets in (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// All.
    #[default]
    EndpointIndependent,
    /// Those of addresses to which the inside has sent.
    AddressDependent,
    /// Those of addresses and ports to which the inside has sent.
    AddressAndPortDependent,
}

/// The choice of an outside address (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// All mappings of a subscriber have one outside address.
    #[default]
    Paired,
    /// Each mapping may have another outside address.
    Arbitrary,
}

/// The ICMP error that tells a host inside that it gets no new mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Host unreachable (RFC 6888, REQ-11).
    #[default]
    HostUnreachable,
    /// Communication administratively prohibited (RFC 5508, REQ-8).
    Prohibited,
    /// None.
    Silent,
}

/// The fate of protocols without ports that can be translated, such as SCTP, GRE and ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// Dropped as `no-mapping`.
    #[default]
    Drop,
    /// Passed on unchanged.
    Pass,
}

netbricks_core::settings! {
    /// Settings of `nat`.
    #[derive(Clone, Debug)]
    pub struct NatConfig {
        /// The addresses inside, whose packets are translated.
        pub inside: Vec<Prefix> = [], "list of prefixes", read by prefixes;
        /// Ports of the chain file at which the inside is; `[]` tells the sides apart by `inside` alone.
        pub inside_ports: Vec<String> = [], "list of port names";
        /// The outside addresses.
        pub pool: Vec<PoolRange> = [], "list of IPv4 addresses, ranges and prefixes", read by pool;
        /// Mappings that do not expire: ports that lead inside, and whole addresses (1:1).
        pub fixed as "static": Vec<Static> = [],
            "list of \"TRANSPORT OUTSIDE:PORT -> INSIDE:PORT\" and \"OUTSIDE -> INSIDE\"", read by statics;
        /// Destinations that packets from the inside get in place of others.
        pub redirect: Vec<Redirect> = [], "list of \"TRANSPORT ADDRESS:PORT -> ADDRESS:PORT\"", read by redirects;
        /// Destinations whose packets pass untranslated.
        pub exempt: Vec<Exempt> = [], "list of \"PREFIX\" and \"TRANSPORT PREFIX:PORT\"", read by exempts;
        /// IPv6 prefixes between which addresses are translated without state (NPTv6).
        pub nptv6: Vec<PrefixPair> = [], "list of \"INSIDE-PREFIX OUTSIDE-PREFIX\"", read by pairs;
        /// The IPv6 prefix under which hosts inside reach IPv4 (NAT64).
        pub nat64: Option<Prefix> = unset, "IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits", read by nat64;
        /// The remote endpoints whose packets a mapping lets in.
        pub filtering: Filtering = "endpoint-independent",
            "\"endpoint-independent\", \"address-dependent\" or \"address-and-port-dependent\"";
        /// Whether all mappings of a subscriber have one outside address.
        pub pooling: Pooling = "paired", "\"paired\" or \"arbitrary\"";
        /// Whether an even port gets an even port, and an odd port an odd one.
        pub parity: bool = false, "true or false";
        /// Ports of the blocks that subscribers get; 0 gives single ports.
        pub block: u16 = 0, "whole number, ports";
        /// Whether each address inside has a block of its own that its place in `inside` decides (RFC 7422).
        pub deterministic: bool = false, "true or false";
        /// Blocks that a subscriber may have.
        pub blocks: u8 = 4, "whole number, 1 to 8";
        /// Mappings of each transport that a subscriber may have; 0 is no limit.
        pub subscriber_ports: u32 = 0, "whole number, mappings";
        /// Sessions that a subscriber may have; 0 is no limit.
        pub subscriber_sessions: u32 = 0, "whole number, sessions";
        /// New mappings a second that a subscriber may have, with bursts of as many; 0 is no limit.
        pub subscriber_rate: u32 = 0, "whole number, mappings a second";
        /// Bits of an IPv6 address that tell subscribers apart.
        pub subscriber_v6: u8 = 64, "whole number, 1 to 128";
        /// Sessions that each worker has room for.
        pub capacity: usize = 65_536, "whole number, sessions";
        /// After this time without a packet, an established TCP connection is forgotten.
        pub tcp: Duration = "124 min", "duration: a number and ns, us, ms, s, min, h or d";
        /// The same for a TCP connection that opens or closes.
        pub tcp_transitory: Duration = "4 min", "duration";
        /// The same for UDP.
        pub udp: Duration = "5 min", "duration";
        /// The same for ICMP queries.
        pub icmp: Duration = "60 s", "duration";
        /// Whether packets from outside keep a UDP or ICMP session alive, too.
        pub inbound_refresh: bool = true, "true or false";
        /// A released port is not given out again for so long; TCP's connections that were closed need no such time.
        pub hold_down: Duration = "120 s", "duration";
        /// The ICMP error for a host inside that gets no new mapping.
        pub refusal: Refusal = "host-unreachable", "\"host-unreachable\", \"prohibited\" or \"silent\"";
        /// ICMP errors a second.
        pub answer_rate: u64 = 100, "whole number, errors a second";
        /// The source of ICMP errors to the inside; left out, the first address of the pool.
        pub answer_v4: Option<Ipv4Addr> = unset "the first of the pool", "IPv4 address";
        /// The source of ICMPv6 errors to the inside.
        pub answer_v6: Option<std::net::Ipv6Addr> = unset, "IPv6 address";
        /// The fate of protocols other than TCP, UDP and ICMP, unless the whole address is mapped.
        pub others: Others = "drop", "\"drop\" or \"pass\"";
        /// Packets in fragments that are known at a time.
        pub fragments: usize = 1024, "whole number, packets";
        /// Fragments that wait for the first of their packet at a time.
        pub fragments_held: usize = 256, "whole number, fragments";
        /// So long a fragment waits, and a packet in fragments is known.
        pub fragment_timeout: Duration = "10 s", "duration";
        /// The largest IP packet that goes outside; 0 is no limit.
        pub mtu: u16 = 0, "whole number, bytes";
        /// The largest IP packet that goes inside; 0 is no limit.
        pub inside_mtu: u16 = 0, "whole number, bytes";
        /// Whether ARP requests and neighbour solicitations for outside addresses are answered.
        pub answer: bool = true, "true or false";
        /// The link address of these answers.
        pub mac: Option<String> = "02:4e:42:00:00:02", "MAC address";
        /// Whether packets that may be cut leave with an IPv4 identification of our own.
        pub identification: bool = true, "true or false";
        /// The IPv4 address at which requests of the Port Control Protocol are answered; left out, none are.
        pub pcp: Option<Ipv4Addr> = unset, "IPv4 address";
        /// The shortest lifetime that the protocol gives a mapping.
        pub pcp_min_lifetime: Duration = "2 min", "duration";
        /// The longest lifetime that the protocol gives a mapping.
        pub pcp_max_lifetime: Duration = "24 h", "duration";
        /// Mappings and sessions with a lifetime by the protocol that each worker has room for.
        pub pcp_mappings: usize = 4_096, "whole number, mappings";
        /// The same for each subscriber.
        pub pcp_subscriber: usize = 64, "whole number, mappings";
        /// Parts of the subscribers and ports, which workers share; 1 keeps all on one worker.
        pub parts: u32 = 1, "power of two, 1 to 256";
        /// Events of subscribers and blocks that the handler `log` remembers.
        pub log: usize = 1024, "whole number, events";
    }
}

fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let mut known: Vec<Prefix> = Vec::new();
    list_from_text(deserializer, |text| {
        let prefix: Prefix = text.parse()?;
        if let Some(other) = known.iter().find(|other| other.overlaps(&prefix)) {
            return Err(format!("holds {prefix}, which overlaps {other}: take one out"));
        }
        known.push(prefix);
        Ok(prefix)
    })
}

fn pool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PoolRange>, D::Error> {
    let mut known: Vec<PoolRange> = Vec::new();
    list_from_text(deserializer, |text| {
        let range: PoolRange = text.parse()?;
        if let Some(other) = known.iter().find(|other| other.overlaps(&range)) {
            return Err(overlapping(&range, other));
        }
        known.push(range);
        Ok(range)
    })
}

fn overlapping(range: &PoolRange, other: &PoolRange) -> String {
    format!("holds {range}, which overlaps {other}: take the common addresses out of one")
}

fn statics<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Static>, D::Error> {
    let mut known: Vec<Static> = Vec::new();
    list_from_text(deserializer, |text| {
        let mapping: Static = text.parse()?;
        if let Some(other) = known.iter().find(|other| other.conflicts(&mapping)) {
            return Err(conflicting(&mapping, other));
        }
        known.push(mapping);
        Ok(mapping)
    })
}

fn conflicting(mapping: &Static, other: &Static) -> String {
    format!("holds `{mapping}`, which conflicts with `{other}`: take one out")
}

fn redirects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Redirect>, D::Error> {
    let mut known: Vec<Redirect> = Vec::new();
    list_from_text(deserializer, |text| {
        let redirect: Redirect = text.parse()?;
        let twice = |other: &Redirect| other.transport == redirect.transport && other.seen == redirect.seen;
        if known.iter().any(twice) {
            return Err(format!(
                "redirects {} {} twice: take one out",
                redirect.transport.name(),
                redirect.seen
            ));
        }
        known.push(redirect);
        Ok(redirect)
    })
}

fn exempts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Exempt>, D::Error> {
    list_from_text(deserializer, str::parse)
}

fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PrefixPair>, D::Error> {
    let mut known: Vec<PrefixPair> = Vec::new();
    list_from_text(deserializer, |text| {
        let pair: PrefixPair = text.parse()?;
        let clashes = |other: &PrefixPair| {
            [other.inside, other.outside]
                .iter()
                .any(|its| its.overlaps(&pair.inside) || its.overlaps(&pair.outside))
        };
        if let Some(other) = known.iter().find(|other| clashes(other)) {
            return Err(format!(
                "holds `{text}`, which overlaps `{} {}`: take one out",
                other.inside, other.outside
            ));
        }
        known.push(pair);
        Ok(pair)
    })
}

fn nat64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Prefix>, D::Error> {
    let prefix: Prefix = netbricks_core::units::from_text(deserializer)?;
    let fits = prefix.address.is_ipv6() && [32, 40, 48, 56, 64, 96].contains(&prefix.len);
    if !fits {
        return Err(serde::de::Error::custom(format!(
            "expected an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits (RFC 6052), as `64:ff9b::/96`, found `{prefix}`"
        )));
    }
    Ok(Some(prefix))
}

/// The most addresses of the pool and of static mappings together.
pub(super) const MOST_ADDRESSES: usize = 4_096;
/// Ports of one address that blocks are made of: 1024 to 65535.
pub(super) const HIGH_PORTS: u32 = 64_512;
/// From a millisecond to 30 days.
const TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(2_592_000_000_000_000);
const SECOND: u64 = 1_000_000_000;

impl NatConfig {
    /// The MAC address of answers.
    pub(super) fn mac(&self) -> MacAddress {
        let written = |config: &Self| config.mac.as_deref().and_then(|text| text.parse().ok());
        written(self).or_else(|| written(&Self::default())).expect("the declared default is an address")
    }

    /// The addresses inside of IPv4, as ranges of numbers.
    pub(super) fn inside_v4(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.inside.iter().filter_map(Prefix::v4_range)
    }

    fn numbers(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let within = [
            ("capacity", self.capacity as u64, 1, 1 << 24, "sessions"),
            ("fragments", self.fragments as u64, 1, 1 << 20, "packets"),
            ("fragments_held", self.fragments_held as u64, 0, 65_536, "fragments"),
            ("log", self.log as u64, 1, 1 << 20, "events"),
            ("blocks", self.blocks.into(), 1, 8, "blocks"),
            ("pcp_mappings", self.pcp_mappings as u64, 1, 1 << 20, "mappings"),
            ("pcp_subscriber", self.pcp_subscriber as u64, 1, 1_024, "mappings"),
            ("subscriber_v6", self.subscriber_v6.into(), 1, 128, "bits"),
        ];
        for (key, found, least, most, unit) in within {
            if !(least..=most).contains(&found) {
                return refused(key, format!("must be {least} to {most} {unit}, found {found}"));
            }
        }
        if !self.parts.is_power_of_two() || self.parts > 256 {
            return refused("parts", format!("must be a power of two, 1 to 256, found {}", self.parts));
        }
        for (key, found) in [
            ("tcp", self.tcp),
            ("tcp_transitory", self.tcp_transitory),
            ("udp", self.udp),
            ("icmp", self.icmp),
            ("fragment_timeout", self.fragment_timeout),
            ("pcp_min_lifetime", self.pcp_min_lifetime),
            ("pcp_max_lifetime", self.pcp_max_lifetime),
        ] {
            if !TIMEOUT.contains(&found) {
                return refused(key, format!("must be \"1 ms\" to \"30 d\", found \"{found}\""));
            }
        }
        if self.hold_down > *TIMEOUT.end() {
            return refused("hold_down", format!("must be at most \"30 d\", found \"{}\"", self.hold_down));
        }
        for (key, found, least) in [("mtu", self.mtu, 68), ("inside_mtu", self.inside_mtu, 68)] {
            if found > 0 && found < least {
                return refused(key, format!("must be 0 or at least {least} bytes, found {found}"));
            }
        }
        match self.mac.as_deref().map(str::parse::<MacAddress>) {
            Some(Err(error)) => refused("mac", error.to_string()),
            Some(Ok(mac)) if mac.is_multicast() => {
                refused("mac", format!("must be one host's address, found a group's, `{mac}`"))
            }
            _ => Ok(()),
        }
    }

    fn addresses(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let prefix_of = |range: &PoolRange| (range.first.to_bits(), range.last.to_bits());
        for (at, range) in self.pool.iter().enumerate() {
            if let Some(other) = self.pool[..at].iter().find(|other| other.overlaps(range)) {
                return refused("pool", overlapping(range, other));
            }
            let (first, last) = prefix_of(range);
            if let Some((low, high)) = self.inside_v4().find(|(low, high)| first <= *high && *low <= last) {
                let [low, high] = [low, high].map(Ipv4Addr::from_bits);
                return refused(
                    "pool",
                    format!(
                        "holds {range}, which is inside: it overlaps {low}-{high} of `inside`; give it addresses of the outside"
                    ),
                );
            }
        }
        for (at, mapping) in self.fixed.iter().enumerate() {
            if let Some(other) = self.fixed[..at].iter().find(|other| other.conflicts(mapping)) {
                return refused("static", conflicting(mapping, other));
            }
            if self.inside.iter().any(|prefix| prefix.holds(mapping.external())) {
                return refused(
                    "static",
                    format!("holds `{mapping}`, whose outside address is one of `inside`: exchange its ends"),
                );
            }
            if let Some(address) = self.stranger(mapping) {
                return refused(
                    "static",
                    format!(
                        "holds `{mapping}`, but {address} is none of `inside`: its answers would not be translated"
                    ),
                );
            }
            if let Static::Address { external, .. } = mapping
                && self.pool.iter().any(|range| (range.first..=range.last).contains(external))
            {
                return refused(
                    "static",
                    format!(
                        "holds `{mapping}`, whose outside address is one of `pool`: take it out of the pool"
                    ),
                );
            }
        }
        let addresses = self.pool.iter().map(PoolRange::addresses).sum::<u64>();
        if addresses + self.fixed.len() as u64 > MOST_ADDRESSES as u64 {
            return refused(
                "pool",
                format!("must hold at most {MOST_ADDRESSES} addresses, found {addresses}"),
            );
        }
        if addresses == 0 && self.fixed.is_empty() && self.nptv6.is_empty() {
            let problem = "must hold at least one address, as \"203.0.113.7\", found []: without `static` or `nptv6` there is \
                           nothing to translate to";
            return refused("pool", problem.into());
        }
        if addresses > 0 && self.inside.is_empty() && self.nat64.is_none() {
            return refused(
                "inside",
                "must hold at least one prefix, as \"10.0.0.0/8\", found []: none would use `pool`".into(),
            );
        }
        if self.nat64.is_some() && addresses == 0 {
            return refused("nat64", "needs outside IPv4 addresses: give some in `pool`".into());
        }
        self.pcp_fits()?;
        if self.answer_v4.is_some_and(|address| address.is_unspecified() || address.is_multicast()) {
            return refused("answer_v4", "must be one host's address".into());
        }
        Ok(())
    }

    fn pcp_fits(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.pcp_min_lifetime > self.pcp_max_lifetime {
            return refused(
                "pcp_min_lifetime",
                format!(
                    "must be at most `pcp_max_lifetime`, \"{}\", found \"{}\"",
                    self.pcp_max_lifetime, self.pcp_min_lifetime
                ),
            );
        }
        let Some(server) = self.pcp else { return Ok(()) };
        if server.is_unspecified() || is_of_the_link(server) {
            return refused("pcp", format!("must be one host's address, as \"10.0.0.1\", found `{server}`"));
        }
        let is_outside = self.pool.iter().any(|range| (range.first..=range.last).contains(&server))
            || self.fixed.iter().any(|mapping| mapping.external() == server);
        if is_outside {
            let problem = format!(
                "is {server}, which `pool` or `static` has: give the address of the gateway that hosts inside know"
            );
            return refused("pcp", problem);
        }
        if self.pool.is_empty() {
            return refused("pcp", "needs outside addresses for mappings: give some in `pool`".into());
        }
        Ok(())
    }

    /// The address inside of a mapping of a port, where it is not inside.
    fn stranger(&self, mapping: &Static) -> Option<IpAddr> {
        match mapping {
            Static::Port { inside, .. } if inside.address.is_ipv4() || self.nat64.is_none() => {
                (!is_in(&self.inside, inside.address)).then_some(inside.address)
            }
            _ => None,
        }
    }

    fn blocks_fit(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.block == 0 {
            return match self.deterministic {
                true => refused("deterministic", "needs blocks of ports: give their size in `block`".into()),
                false => Ok(()),
            };
        }
        let room = if self.deterministic { HIGH_PORTS } else { HIGH_PORTS / self.parts };
        if u32::from(self.block) > room {
            let part =
                if self.deterministic { String::new() } else { format!(", of which {} share", self.parts) };
            return refused(
                "block",
                format!(
                    "must be at most {room} ports, found {}: an address has {HIGH_PORTS}{part}",
                    self.block
                ),
            );
        }
        if !self.deterministic {
            return Ok(());
        }
        if self.inside.iter().any(|prefix| prefix.address.is_ipv6()) {
            return refused(
                "deterministic",
                "knows subscribers of IPv4 alone: take IPv6 out of `inside`".into(),
            );
        }
        let each = u64::from(HIGH_PORTS / u32::from(self.block));
        let addresses = self.pool.iter().map(PoolRange::addresses).sum::<u64>();
        let subscribers: u64 = self.inside_v4().map(|(low, high)| u64::from(high - low) + 1).sum();
        if addresses * each < subscribers {
            let needed = subscribers.div_ceil(each);
            return refused(
                "pool",
                format!(
                    "is too small for its blocks: {addresses} addresses have {} blocks of {} ports, and `inside` has {subscribers} \
                     addresses; give {needed} addresses, or smaller blocks",
                    addresses * each,
                    self.block
                ),
            );
        }
        Ok(())
    }
}

impl Settings for NatConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        self.numbers()?;
        self.addresses()?;
        self.blocks_fit()
    }

    fn warnings(&self) -> Vec<ConfigWarning> {
        let mut warnings = Vec::new();
        let mut warn = |key, problem: String| warnings.push(ConfigWarning { key, item: None, problem });
        for (key, found, least, section) in [
            ("tcp", self.tcp, 7_440 * SECOND, "RFC 5382, REQ-5"),
            ("tcp_transitory", self.tcp_transitory, 240 * SECOND, "RFC 5382, REQ-5"),
            ("udp", self.udp, 120 * SECOND, "RFC 4787, REQ-5"),
            ("icmp", self.icmp, 60 * SECOND, "RFC 5508, REQ-2"),
        ] {
            if found.nanoseconds() < least {
                let least = Duration::from_nanoseconds(least);
                warn(
                    key,
                    format!(
                        "`{key}` is \"{found}\", less than \"{least}\" ({section}): live sessions may be lost"
                    ),
                );
            }
        }
        if self.pcp.is_some() && self.inside_ports.is_empty() {
            let problem = "`pcp` takes requests from all ports while `inside_ports` is empty, also from outside: name the ports of \
                           the hosts there"
                .to_owned();
            warn("pcp", problem);
        }
        if self.parts > 1 {
            warn(
                "parts",
                format!(
                    "with {} parts, hosts inside of different parts do not reach each other by their outside endpoints, and \
                     later fragments from outside are lost unless part 0 has their session; 1 part has no such limit",
                    self.parts
                ),
            );
        }
        if self.block > 0 && self.block < 64 {
            warn(
                "block",
                format!("blocks of {} ports are few for a host: sessions may find no port", self.block),
            );
        }
        warnings
    }
}

/// Whether one of these prefixes holds an address.
pub(super) fn is_in(prefixes: &[Prefix], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.holds(address))
}
