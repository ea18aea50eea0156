//! Settings of `policer`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netbricks_core::declaration::Declared;
use netbricks_core::units::{Bytes, from_text, list_from_text};
use netbricks_core::{ConfigWarning, InvalidSetting, Settings};
use serde::de::{Deserialize, Deserializer};

use super::meter::{Algorithm, Colour, Meter};
use super::parameters;
use crate::tokens::{Counted, LARGEST, TokenRate};

netbricks_core::settings! {
    /// Settings of `policer`.
    #[derive(Clone, Debug)]
    pub struct PolicerConfig {
        /// The meter: the single rate marker, the two rate marker, or the two rate marker with an excess rate.
        pub meter: Algorithm = "rfc2697", "\"rfc2697\", \"rfc2698\" or \"rfc4115\"", read by algorithm;
        /// Committed information rate.
        pub cir: TokenRate = required, "rate: a number and bit/s, kbit/s, Mbit/s, Gbit/s, pps, kpps or Mpps";
        /// Committed burst size, in packets where the rate is.
        pub cbs: Option<Bytes> = unset "what `cir` brings in 100 ms, at least 3,000 bytes or 1 packet",
            "size in bytes, or number of packets";
        /// Excess burst size of RFC 2697 and RFC 4115.
        pub ebs: Option<Bytes> = unset "0 for RFC 2697, what `eir` brings in 100 ms for RFC 4115",
            "size in bytes, or number of packets";
        /// Peak information rate of RFC 2698.
        pub pir: Option<TokenRate> = unset, "rate, as `cir`";
        /// Peak burst size of RFC 2698.
        pub pbs: Option<Bytes> = unset "what `pir` brings in 100 ms, at least `cbs`",
            "size in bytes, or number of packets";
        /// Excess information rate of RFC 4115.
        pub eir: Option<TokenRate> = unset, "rate, as `cir`";
        /// Whether packets come with a colour: the drop precedence of their class (RFC 2597).
        pub colour_aware: bool = false, "true or false";
        /// The packets that share a meter.
        ///
        /// A subscriber is the address of `subscribers` that a packet has, as its source or its destination.
        pub by: By = "all", "\"all\", \"flow\", \"source\", \"destination\" or \"subscriber\"";
        /// The networks whose addresses are subscribers; packets of none pass unmetered.
        pub subscribers: Vec<Network> = [], "list of networks, as \"100.64.0.0/10\"", read by networks;
        /// IPv4 addresses that agree in so many bits share a meter.
        pub prefix_v4: u8 = 32, "whole number, 1 to 32 bits";
        /// IPv6 addresses that agree in so many bits share a meter.
        pub prefix_v6: u8 = 64, "whole number, 1 to 128 bits";
        /// Meters that are kept: of flows each worker's, of addresses those of all workers together.
        pub capacity: usize = 65_536, "whole number, meters";
        /// A packet's fate when there is no meter for it and no room for another.
        ///
        /// With "evict" the meter that was idle longest gives way.
        pub full: WhenFull = "evict", "\"evict\", \"pass\" or \"drop\"";
        /// The bytes that count: those of IP packets, as in the RFCs, or of whole frames without FCS.
        pub count: Count = "ip", "\"ip\" or \"frame\"";
        /// The action for green packets.
        pub green: Action = "pass", "\"pass\", \"drop\", \"mark\", or a code point as \"af11\", \"cs1\", \"ef\" or \"0\" to \"63\"";
        /// The action for yellow packets.
        pub yellow: Action = "pass", "as `green`";
        /// The action for red packets.
        pub red: Action = "drop", "as `green`";
        /// The assured forwarding class that "mark" gives to packets of no class (RFC 2597).
        pub class: Option<u8> = unset "they stay unmarked", "whole number, 1 to 4";
    }
}

/// Reads the name of an algorithm.
fn algorithm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Algorithm, D::Error> {
    struct Named(Algorithm);
    impl FromStr for Named {
        type Err = String;
        fn from_str(text: &str) -> Result<Self, String> {
            Ok(Self(match text {
                "rfc2697" => Algorithm::SingleRate,
                "rfc2698" => Algorithm::TwoRate,
                "rfc4115" => Algorithm::Excess,
                _ => {
                    return Err(format!(
                        "expected \"rfc2697\", \"rfc2698\" or \"rfc4115\", found \"{text}\""
                    ));
                }
            }))
        }
    }
    from_text::<Named, D>(deserializer).map(|named| named.0)
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
    list_from_text(deserializer, str::parse::<Network>)
}

/// The packets that share a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// All packets.
    #[default]
    All,
    /// Those of a flow, each direction separately.
    Flow,
    /// Those from a source address.
    Source,
    /// Those to a destination address.
    Destination,
    /// Those from and to a subscriber's address.
    Subscriber,
}

/// The treatment of packets for which there is no room for another meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Another meter gives way, and the packet's meter begins with full buckets.
    #[default]
    Evict,
    /// The packet passes unmetered.
    Pass,
    /// The packet is dropped as `table-full`.
    Drop,
}

/// The bytes of a packet that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// Those of the IP packet.
    #[default]
    Ip,
    /// Those of the frame, without FCS.
    Frame,
}

/// An action for packets of one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet passes unchanged.
    Pass,
    /// The packet is dropped as `rate-limited`.
    Drop,
    /// The packet gets the drop precedence of its colour in its class (RFC 2597).
    Mark,
    /// The packet gets this code point.
    Dscp(u8),
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = |digit: u8| if (b'1'..=b'4').contains(&digit) { Some(digit - b'0') } else { None };
        let number = |text: &str| text.parse::<u8>().ok();
        let dscp = match (text, text.as_bytes()) {
            ("pass", _) => return Ok(Self::Pass),
            ("drop", _) => return Ok(Self::Drop),
            ("mark", _) => return Ok(Self::Mark),
            ("ef", _) => Some(46),
            ("df" | "be", _) => Some(0),
            (_, [b'a', b'f', x, y @ b'1'..=b'3']) => class(*x).map(|x| x << 3 | (y - b'0') << 1),
            (_, [b'c', b's', x @ b'0'..=b'7']) => Some((x - b'0') << 3),
            _ => number(text).filter(|dscp| *dscp < 64),
        };
        dscp.map(Self::Dscp).ok_or_else(|| {
            format!("expected \"pass\", \"drop\", \"mark\", or a code point as \"af11\", \"cs1\", \"ef\" or \"0\" to \"63\", found \"{text}\"")
        })
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// A network of addresses: `100.64.0.0/10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    /// Whether the address belongs to the network.
    #[inline(always)]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && prefix(address, self.length, self.length) == self.address
    }
}

/// The first bits of an address: `v4` or `v6` of them, as its version is.
#[inline(always)]
pub(super) fn prefix(address: IpAddr, v4: u8, v6: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(v4.min(32))).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(v6.min(128))).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a network as `100.64.0.0/10` or `2001:db8::/32`, found `{text}`");
        let (address, length) = text.split_once('/').ok_or_else(expected)?;
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = length.parse().ok().filter(|length| *length <= most).ok_or_else(expected)?;
        let first = prefix(address, length, length);
        if first != address {
            return Err(format!(
                "`{text}` has address bits behind its prefix: the network is `{first}/{length}`"
            ));
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Default for PolicerConfig {
    fn default() -> Self {
        Self::with_defaults((TokenRate::bits(10_000_000),))
    }
}

/// Networks are compared one by one.
const MOST_NETWORKS: usize = 64;
/// A burst that is left out: the amount of this time (ns).
const BURST: u64 = 100_000_000;
/// Two packets of 1,500 bytes.
const LEAST: u64 = 3_000;
/// The largest packet of most links (bytes).
const PACKET: u64 = 1_500;

impl PolicerConfig {
    /// The parameters of the meters.
    ///
    /// # Errors
    /// The key that is missing or does not fit, and why.
    pub(super) fn parameters(&self) -> Result<Meter, InvalidSetting> {
        let refused = |key, problem: String| InvalidSetting { key, problem };
        let size = |given: Option<Bytes>, rate: TokenRate| {
            let least = if rate.counted() == Counted::Bits { LEAST } else { 1 };
            given.map_or_else(|| rate.amount(BURST).clamp(least, LARGEST), Bytes::bytes)
        };
        let cbs = size(self.cbs, self.cir);
        let (other_rate, other_size) = match self.meter {
            Algorithm::SingleRate => (self.cir, self.ebs.map_or(0, Bytes::bytes)),
            Algorithm::TwoRate => {
                let pir =
                    self.pir.ok_or_else(|| refused("meter", "is \"rfc2698\", which needs `pir`".into()))?;
                let pbs = self.pbs.map_or_else(|| size(None, pir).max(cbs), Bytes::bytes);
                (pir, pbs)
            }
            Algorithm::Excess => {
                let eir =
                    self.eir.ok_or_else(|| refused("meter", "is \"rfc4115\", which needs `eir`".into()))?;
                (eir, size(self.ebs, eir))
            }
        };
        let needless = [
            ("pir", self.pir.is_some() && self.meter != Algorithm::TwoRate, "rfc2698"),
            ("pbs", self.pbs.is_some() && self.meter != Algorithm::TwoRate, "rfc2698"),
            ("eir", self.eir.is_some() && self.meter != Algorithm::Excess, "rfc4115"),
        ];
        if let Some((key, _, needed)) = needless.into_iter().find(|(_, given, _)| *given) {
            return Err(refused(
                key,
                format!("is a parameter of `meter = \"{needed}\"`: take it out, or set that"),
            ));
        }
        if self.ebs.is_some() && self.meter == Algorithm::TwoRate {
            return Err(refused("ebs", "is no parameter of `meter = \"rfc2698\"`: it has `pbs`".into()));
        }
        let meter = Meter { algorithm: self.meter, cir: self.cir, cbs, other_rate, other_size };
        let key = match self.meter {
            Algorithm::SingleRate => "cbs",
            Algorithm::TwoRate => "pir",
            Algorithm::Excess => "eir",
        };
        parameters::check(meter).map_err(|problem| refused(key, format!("cannot be: {problem}")))
    }

    /// The action for packets of a colour.
    pub(super) fn action(&self, colour: Colour) -> Action {
        match colour {
            Colour::Green => self.green,
            Colour::Yellow => self.yellow,
            Colour::Red => self.red,
        }
    }
}

impl Settings for PolicerConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem: String| Err(InvalidSetting { key, problem });
        self.parameters()?;
        if self.capacity == 0 || self.capacity > 1 << 24 {
            return refused("capacity", format!("must be 1 to 16,777,216 meters, found {}", self.capacity));
        }
        if !(1..=32).contains(&self.prefix_v4) {
            return refused("prefix_v4", format!("must be 1 to 32 bits, found {}", self.prefix_v4));
        }
        if !(1..=128).contains(&self.prefix_v6) {
            return refused("prefix_v6", format!("must be 1 to 128 bits, found {}", self.prefix_v6));
        }
        if let Some(class) = self.class.filter(|class| !(1..=4).contains(class)) {
            return refused("class", format!("must be 1 to 4, found {class}"));
        }
        if self.subscribers.len() > MOST_NETWORKS {
            let count = self.subscribers.len();
            return refused(
                "subscribers",
                format!("must hold at most {MOST_NETWORKS} networks, found {count}"),
            );
        }
        match (self.by, self.subscribers.is_empty()) {
            (By::Subscriber, true) => {
                refused("by", "is \"subscriber\", which needs the networks of `subscribers`".into())
            }
            (By::Subscriber, false) | (_, true) => Ok(()),
            (_, false) => refused("subscribers", "has a meaning only with `by = \"subscriber\"`".into()),
        }
    }

    /// Warns of bursts smaller than a packet, which no large packet ever conforms to.
    fn warnings(&self) -> Vec<ConfigWarning> {
        let Ok(meter) = self.parameters() else { return Vec::new() };
        let small = |size: u64| meter.cir.counted() == Counted::Bits && size < PACKET;
        let warning = |key, what: String| ConfigWarning { key, item: None, problem: what };
        let mut warnings = Vec::new();
        if small(meter.cbs) && (meter.algorithm != Algorithm::SingleRate || small(meter.other_size)) {
            warnings.push(warning(
                "cbs",
                format!(
                    "CBS is {} bytes: packets of {PACKET} bytes are never green; give it 1,500 bytes or more",
                    meter.cbs
                ),
            ));
        }
        if meter.algorithm == Algorithm::TwoRate && small(meter.other_size) {
            warnings.push(warning(
                "pbs",
                format!(
                    "PBS is {} bytes: packets of {PACKET} bytes are always red; give it 1,500 bytes or more",
                    meter.other_size
                ),
            ));
        }
        warnings
    }
}
