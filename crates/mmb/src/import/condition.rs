//! The packets that a rule of a firewall means, as conditions that mmb knows.

use std::fmt::Write as _;

use crate::field::{FieldId, Kind, Layer};
use crate::language::{extent, number_of, parse_rule};
use crate::rule::{Atom, Comparison, Match, Value};

/// States of connections, as bits.
pub(super) mod states {
    pub(crate) const NEW: u8 = 1;
    pub(crate) const ESTABLISHED: u8 = 2;
    pub(crate) const RELATED: u8 = 4;
    pub(crate) const INVALID: u8 = 8;
    pub(crate) const UNTRACKED: u8 = 16;
    pub(crate) const ALL: u8 = 31;
}

/// The most parts into which the rest of a set of packets falls.
const MOST_PARTS: usize = 64;

/// The network protocols of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// All frames.
    Any,
    /// IPv4 and IPv6.
    Ip,
    V4,
    V6,
}

impl Version {
    /// The packets of both; `None` where there are none.
    fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, other) | (other, Self::Any) => Some(other),
            (Self::Ip, other) | (other, Self::Ip) => Some(other),
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// Conditions that all hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions {
    pub(super) version: Version,
    /// The IP protocol, behind extension headers.
    pub(super) protocol: Option<u8>,
    pub(super) not_protocols: Vec<u8>,
    pub(super) matches: Vec<Match>,
    /// States of the packet's connection, as bits of [`states`].
    pub(super) states: u8,
}

impl Conditions {
    pub(super) fn of(version: Version) -> Self {
        Self { version, protocol: None, not_protocols: Vec::new(), matches: Vec::new(), states: states::ALL }
    }

    /// These conditions for packets of an IP protocol too.
    pub(super) fn with_protocol(mut self, protocol: u8) -> Self {
        self.version = self.version.and(Version::Ip).unwrap_or(self.version);
        self.protocol = Some(protocol);
        self
    }

    /// These conditions and a match, with the layers that it implies.
    pub(super) fn with(mut self, condition: Match) -> Option<Self> {
        let implied = condition.field.info().layer.implied();
        let has = |layer: Layer| implied & layer.bit() != 0;
        let of_layer =
            [(Layer::Tcp, 6), (Layer::Udp, 17), (Layer::Icmp, 1), (Layer::Icmpv6, 58), (Layer::Gre, 47)];
        if let Some((_, protocol)) = of_layer.into_iter().find(|(layer, _)| has(*layer)) {
            self = self.and(&Self::of(Version::Ip).with_protocol(protocol))?;
        }
        if has(Layer::Ipv4) {
            self.version = self.version.and(Version::V4)?;
        }
        if has(Layer::Ipv6) {
            self.version = self.version.and(Version::V6)?;
        }
        if !self.matches.contains(&condition) {
            self.matches.push(condition);
        }
        Some(self)
    }

    /// Both conditions; `None` where no packet fulfils them.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        if self.is_disjoint(other) {
            return None;
        }
        let mut both = self.clone();
        both.version = self.version.and(other.version)?;
        both.protocol = self.protocol.or(other.protocol);
        for protocol in &other.not_protocols {
            if !both.not_protocols.contains(protocol) {
                both.not_protocols.push(*protocol);
            }
        }
        for condition in &other.matches {
            if !both.matches.contains(condition) {
                both.matches.push(condition.clone());
            }
        }
        both.states &= other.states;
        Some(both)
    }

    /// Whether it is sure that no packet fulfils both.
    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        let is_barred = |one: &Self, other: &Self| {
            one.protocol.is_some_and(|protocol| other.not_protocols.contains(&protocol))
        };
        self.version
            .and(other.version)
            .is_none_or(|version| self.matches.iter().chain(&other.matches).any(|own| excludes(own, version)))
            || self.states & other.states == 0
            || matches!((self.protocol, other.protocol), (Some(a), Some(b)) if a != b)
            || is_barred(self, other)
            || is_barred(other, self)
            || self.matches.iter().any(|one| other.matches.iter().any(|other| are_disjoint(one, other)))
    }

    /// Whether every packet that fulfils these conditions surely fulfils the others, in any state of its connection.
    pub(super) fn implies(&self, other: &Self) -> bool {
        self.version.and(other.version) == Some(self.version)
            && other.protocol.is_none_or(|protocol| self.protocol == Some(protocol))
            && other.not_protocols.iter().all(|protocol| {
                self.not_protocols.contains(protocol) || self.protocol.is_some_and(|own| own != *protocol)
            })
            && other.matches.iter().all(|condition| self.has(condition))
    }

    /// Whether a match surely holds for all these packets.
    fn has(&self, condition: &Match) -> bool {
        let is_presence = condition.test.is_none()
            && !condition.is_negated
            && matches!(condition.field.info().kind, Kind::Bits { bits: 2.., .. });
        if is_presence {
            let layer = condition.field.info().layer;
            return self.matches.iter().any(|own| own.field.info().layer == layer);
        }
        self.matches.iter().any(|own| {
            own == condition
                || own.field == condition.field
                    && !own.field.info().kind.is_option()
                    && match (extent::of(own), extent::of(condition)) {
                        (Some(own), Some(other)) => extent::contains(&other, &own),
                        _ => false,
                    }
        })
    }

    /// These packets without the others, in parts that have no packet in common.
    ///
    /// `None` where mmb cannot say it, or only by many rules.
    pub(super) fn without(&self, other: &Self) -> Option<Vec<Self>> {
        if self.is_disjoint(other) {
            return Some(vec![self.clone()]);
        }
        if self.states & !other.states != 0 {
            return None;
        }
        let mut parts = Vec::new();
        let mut rest = self.clone();
        let both = self.version.and(other.version)?;
        if both != self.version {
            match (self.version, other.version) {
                (Version::Ip, Version::V4) => parts.push(Self { version: Version::V6, ..rest.clone() }),
                (Version::Ip, Version::V6) => parts.push(Self { version: Version::V4, ..rest.clone() }),
                (_, Version::V4) => parts.push(rest.clone().with(condition("net-proto != ip4").ok()?)?),
                (_, Version::V6) => parts.push(rest.clone().with(condition("net-proto != ip6").ok()?)?),
                _ => parts.push(rest.clone().with(condition("! net-proto {ip4, ip6}").ok()?)?),
            }
            rest.version = both;
        }
        if let Some(protocol) = other.protocol
            && rest.protocol.is_none()
        {
            let mut part = rest.clone();
            part.not_protocols.push(protocol);
            parts.push(part);
            rest.protocol = Some(protocol);
        }
        for protocol in &other.not_protocols {
            if rest.protocol.is_none() && !rest.not_protocols.contains(protocol) {
                parts.push(Self { protocol: Some(*protocol), ..rest.clone() });
                rest.not_protocols.push(*protocol);
            }
        }
        for condition in &other.matches {
            if rest.has(condition) {
                continue;
            }
            let opposite = Match { is_negated: !condition.is_negated, ..condition.clone() };
            let mut part = rest.clone();
            if !part.matches.iter().any(|own| are_disjoint(own, &opposite)) {
                part.matches.push(opposite);
                parts.push(part);
            }
            rest.matches.push(condition.clone());
        }
        (parts.len() <= MOST_PARTS && parts.iter().all(Self::is_sayable)).then_some(parts)
    }

    /// Whether mmb has words for it: a protocol is excluded in IPv4 only, where no extension header hides it.
    fn is_sayable(&self) -> bool {
        self.not_protocols.is_empty() || self.protocol.is_some() || self.version == Version::V4
    }

    /// The fields that are the same in all packets of one direction of a connection.
    pub(super) fn of_flow(&self) -> Self {
        let matches = self.matches.iter().filter(|own| opposite(&own.field.info().name).is_some());
        Self { matches: matches.cloned().collect(), states: states::ALL, ..self.clone() }
    }

    /// Whether it is about more than what is the same in all packets of a direction.
    pub(super) fn is_of_packets(&self) -> bool {
        self.matches.iter().any(|own| opposite(&own.field.info().name).is_none())
    }

    /// Packets that answer to these, and perhaps others.
    pub(super) fn answers(&self) -> Self {
        let mut turned = self.of_flow();
        for condition in &mut turned.matches {
            let name = opposite(&condition.field.info().name);
            condition.field = name.and_then(FieldId::named).unwrap_or(condition.field);
        }
        turned
    }

    /// The matches of mmb, for each version of IP that needs rules of its own.
    ///
    /// # Errors
    /// The reason why there are no words for it.
    pub(super) fn lines(&self) -> Result<Vec<String>, String> {
        if !self.is_sayable() {
            let why = "mmb excludes a protocol in IPv4 only: in IPv6 it may stand behind extension headers";
            return Err(why.into());
        }
        let needs_version = match self.protocol {
            Some(6 | 17) | None => false,
            Some(_) => matches!(self.version, Version::Ip | Version::Any),
        };
        let versions = match self.protocol {
            Some(1 | 58) if needs_version => vec![self.version],
            _ if needs_version => vec![Version::V4, Version::V6],
            _ => vec![self.version],
        };
        Ok(versions.into_iter().map(|version| self.line(version)).collect())
    }

    fn line(&self, version: Version) -> String {
        let layers = self.matches.iter().fold(0, |all, own| all | own.field.info().layer.implied());
        let has = |layer: Layer| layers & layer.bit() != 0;
        let mut text = String::new();
        let mut says_version = has(Layer::Ipv4) || has(Layer::Ipv6);
        let named = |protocol: u8| match protocol {
            6 => "tcp".into(),
            17 => "udp".into(),
            1 => "icmp".into(),
            58 => "icmp6".into(),
            other => other.to_string(),
        };
        match (self.protocol, version) {
            (None, _) => {}
            (Some(6), _) if has(Layer::Tcp) && (says_version || version != Version::V4) => {}
            (Some(17), _) if has(Layer::Udp) && (says_version || version != Version::V4) => {}
            (Some(1), Version::V4 | Version::Ip | Version::Any) if has(Layer::Icmp) => {}
            (Some(58), Version::V6 | Version::Ip | Version::Any) if has(Layer::Icmpv6) => {}
            // A header that is there is found behind extension headers, unlike the number in `ip6-next`.
            (Some(6), Version::V6 | Version::Ip | Version::Any) => text += "tcp-dport ",
            (Some(17), Version::V6 | Version::Ip | Version::Any) => text += "udp-dport ",
            (Some(58), Version::V6 | Version::Ip | Version::Any) => {
                text += "icmp6-type ";
                says_version = true;
            }
            (Some(1), Version::Ip | Version::Any) => {
                text += "icmp-type ";
                says_version = true;
            }
            (Some(protocol), Version::V6) => {
                // Taking the text cannot fail.
                let _ = write!(text, "ip6-next {} ", named(protocol));
                says_version = true;
            }
            (Some(protocol), _) => {
                let _ = write!(text, "ip-proto {} ", named(protocol));
                says_version = true;
            }
        }
        if self.protocol.is_none() && !self.not_protocols.is_empty() {
            let all: Vec<String> = self.not_protocols.iter().map(|protocol| named(*protocol)).collect();
            match &all[..] {
                [one] => {
                    let _ = write!(text, "ip-proto != {one} ");
                }
                all => {
                    let _ = write!(text, "! ip-proto {{{}}} ", all.join(", "));
                }
            }
            says_version = true;
        }
        let version = match version {
            Version::V4 if !says_version => "net-proto ip4 ",
            Version::V6 if !says_version => "net-proto ip6 ",
            Version::Ip if self.protocol.is_none() && !says_version => "net-proto {ip4, ip6} ",
            _ => "",
        };
        text.insert_str(0, version);
        for condition in &self.matches {
            let _ = write!(text, "{condition} ");
        }
        if text.is_empty() {
            text += "all ";
        }
        text.pop();
        text
    }
}

/// The field that has the same value in packets of the other direction.
fn opposite(name: &str) -> Option<&'static str> {
    const PAIRS: [(&str, &str); 6] = [
        ("in", "out"),
        ("ip-saddr", "ip-daddr"),
        ("ip6-saddr", "ip6-daddr"),
        ("tcp-sport", "tcp-dport"),
        ("udp-sport", "udp-dport"),
        ("eth-saddr", "eth-daddr"),
    ];
    PAIRS.iter().find_map(|&(a, b)| match name {
        name if name == a => Some(b),
        name if name == b => Some(a),
        _ => None,
    })
}

/// Whether it is sure that no packet fulfils both matches.
fn are_disjoint(one: &Match, other: &Match) -> bool {
    if one.field != other.field {
        return false;
    }
    if one.is_negated != other.is_negated && one.test == other.test {
        return true;
    }
    if one.field.info().kind == Kind::AnyOption {
        return false;
    }
    let is_plain = !one.is_negated && !other.is_negated;
    if let (Some((Comparison::Equal, a)), Some((Comparison::Equal, b))) = (&one.test, &other.test)
        && is_plain
    {
        if let (Value::Atom(Atom::Interface(a)), Value::Atom(Atom::Interface(b))) = (a, b) {
            return a != b;
        }
        if let (Some((a, a_mask)), Some((b, b_mask))) = (masked(a), masked(b)) {
            return (a ^ b) & a_mask & b_mask != 0;
        }
    }
    match (extent::of(one), extent::of(other)) {
        (Some(one), Some(other)) => extent::intersection(&one, &other).is_empty(),
        _ => false,
    }
}

/// Whether a match excludes the EtherType of a version of IP.
fn excludes(condition: &Match, version: Version) -> bool {
    let number = match version {
        Version::V4 => 0x0800,
        Version::V6 => 0x86dd,
        Version::Any | Version::Ip => return false,
    };
    condition.field.info().kind == Kind::NetworkProtocol
        && extent::of(condition).is_some_and(|own| !extent::contains(&own, &[(number, number)]))
}

fn masked(value: &Value) -> Option<(u128, u128)> {
    match value {
        Value::Masked(value, mask) => Some((number_of(value)?, number_of(mask)?)),
        Value::Atom(value) => Some((number_of(value)?, u128::MAX)),
        _ => None,
    }
}

/// A match as it stands in a line.
///
/// # Errors
/// The fault, as the language's parser names it.
pub(super) fn condition(text: &str) -> Result<Match, String> {
    let rule = parse_rule(&format!("{text} accept")).map_err(|error| error.message)?;
    match <[Match; 1]>::try_from(rule.matches) {
        Ok([condition]) => Ok(Match { span: 0..0, ..condition }),
        Err(_) => Err(format!("`{text}` is not understood")),
    }
}

/// A match of the interface by which packets come (`in`) or go (`out`).
pub(super) fn interface(field: &str, name: &str, is_negated: bool) -> Result<Match, String> {
    if name.ends_with(['+', '*']) {
        return Err(format!("`{name}` means many interfaces, and mmb's `{field}` one"));
    }
    let field = FieldId::named(field).ok_or("no such field")?;
    let test = Some((Comparison::Equal, Value::Atom(Atom::Interface(name.to_owned()))));
    Ok(Match { is_negated, field, test, span: 0..0 })
}
