//! Rules in a port's table: `steer = [{ protocol = "udp", destination_port = 4789, queue = 1 }]`.
//!
//! An error in a rule is reported at its place, also one about its position among the others.

use std::fmt;

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Filter, Prefix, Rule, Rules, Steer};

/// A rule as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    ethertype: Option<EtherType>,
    #[serde(default)]
    vlan: Option<Number<4094, VLAN>>,
    #[serde(default)]
    ip: Option<Ip>,
    #[serde(default)]
    protocol: Option<Protocol>,
    #[serde(default)]
    source: Option<Network>,
    #[serde(default)]
    destination: Option<Network>,
    #[serde(default)]
    source_port: Option<Number<65_535, PORT>>,
    #[serde(default)]
    destination_port: Option<Number<65_535, PORT>>,
    #[serde(default)]
    queue: Option<Number<255, QUEUE>>,
}

const VLAN: usize = 0;
const PORT: usize = 1;
const QUEUE: usize = 2;
/// The kinds of numbers.
const NUMBERS: [&str; 3] = [
    "a VLAN's id, 0 (a tag with a priority only) to 4094",
    "a port, 0 to 65535",
    "a receive queue's number, 0 to 255",
];

impl Written {
    fn rule(self) -> Result<Rule, String> {
        let Some(Number(queue)) = self.queue else {
            return Err("a rule needs its `queue`: add `queue = 0`, or another receive queue's number".into());
        };
        let mut filter = Filter::ANY;
        if let Some(EtherType(number)) = self.ethertype {
            filter = filter.ethertype(number);
        }
        if let Some(Number(id)) = self.vlan {
            filter = filter.in_vlan(id);
        }
        if let Some(Ip(version)) = self.ip {
            filter = filter.version(version);
        }
        if let Some(Protocol(number)) = self.protocol {
            filter = filter.protocol(number);
        }
        if let Some(Network(prefix)) = self.source {
            filter = filter.from(prefix);
        }
        if let Some(Network(prefix)) = self.destination {
            filter = filter.to(prefix);
        }
        if let Some(Number(port)) = self.source_port {
            filter = filter.from_port(port);
        }
        if let Some(Number(port)) = self.destination_port {
            filter = filter.to_port(port);
        }
        Ok(Rule { filter, queue })
    }
}

/// A number up to `MOST`; [`NUMBERS`] describes it under `KIND`.
struct Number<const MOST: u16, const KIND: usize>(u16);

/// A value of a rule: a number or a text, and a description of what is accepted.
trait Value: Sized {
    const WANTED: &'static str;
    fn of_number(_: i64) -> Option<Self> {
        None
    }
    fn of_text(_: &str) -> Option<Result<Self, String>> {
        None
    }
}

impl<const MOST: u16, const KIND: usize> Value for Number<MOST, KIND> {
    const WANTED: &'static str = NUMBERS[KIND];
    fn of_number(number: i64) -> Option<Self> {
        u16::try_from(number).ok().filter(|number| *number <= MOST).map(Self)
    }
}

struct EtherType(u16);

impl Value for EtherType {
    const WANTED: &'static str = "an EtherType such as 0x88cc or \"arp\"";
    fn of_number(number: i64) -> Option<Self> {
        u16::try_from(number).ok().map(Self)
    }
    fn of_text(text: &str) -> Option<Result<Self, String>> {
        (0x600..=u16::MAX)
            .find(|number| ethertype::name(*number) == Some(text))
            .map(|number| Ok(Self(number)))
    }
}

struct Protocol(u8);

impl Value for Protocol {
    const WANTED: &'static str = "an IP protocol such as \"udp\" or 17";
    fn of_number(number: i64) -> Option<Self> {
        u8::try_from(number).ok().map(Self)
    }
    fn of_text(text: &str) -> Option<Result<Self, String>> {
        (0..=u8::MAX).find(|number| protocol::name(*number) == Some(text)).map(|number| Ok(Self(number)))
    }
}

struct Ip(Version);

impl Value for Ip {
    const WANTED: &'static str = "\"v4\" or \"v6\"";
    fn of_text(text: &str) -> Option<Result<Self, String>> {
        match text {
            "v4" => Some(Ok(Self(Version::V4))),
            "v6" => Some(Ok(Self(Version::V6))),
            _ => None,
        }
    }
}

struct Network(Prefix);

impl Value for Network {
    const WANTED: &'static str = "an address or a prefix such as \"192.0.2.0/24\"";
    fn of_text(text: &str) -> Option<Result<Self, String>> {
        Some(text.parse().map(Self).map_err(|error: super::NoPrefix| error.to_string()))
    }
}

/// Reads a value, and reports an error in terms of the rules.
struct Reading<V>(std::marker::PhantomData<V>);

impl<'de, V: Value> Visitor<'de> for Reading<V> {
    type Value = V;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(V::WANTED)
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<V, E> {
        V::of_number(number).ok_or_else(|| E::custom(format!("expected {}, found {number}", V::WANTED)))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<V, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<V, E> {
        match V::of_text(text) {
            Some(value) => value.map_err(E::custom),
            None => Err(E::custom(format!("expected {}, found {text:?}", V::WANTED))),
        }
    }
    fn visit_bool<E: Error>(self, found: bool) -> Result<V, E> {
        Err(E::custom(format!("expected {}, found {found}", V::WANTED)))
    }
    fn visit_f64<E: Error>(self, found: f64) -> Result<V, E> {
        Err(E::custom(format!("expected {}, found {found}", V::WANTED)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<V, A::Error> {
        Err(A::Error::custom(format!("expected {}, found a list", V::WANTED)))
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<V, A::Error> {
        Err(A::Error::custom(format!("expected {}, found a table", V::WANTED)))
    }
}

macro_rules! readable {
    ($([$($generic:tt)*] $name:ty;)*) => {
        $(impl<'de, $($generic)*> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Reading(std::marker::PhantomData))
            }
        })*
    };
}
readable! {
    [const MOST: u16, const KIND: usize] Number<MOST, KIND>;
    [] EtherType;
    [] Protocol;
    [] Ip;
    [] Network;
}

/// Reads the rule that follows others.
struct Next<'r>(&'r [Rule]);

impl<'de> DeserializeSeed<'de> for Next<'_> {
    type Value = Rule;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Rule, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Next<'_> {
    type Value = Rule;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule such as { protocol = \"udp\", queue = 1 }")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rule, A::Error> {
        let written: Written =
            serde::Deserialize::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let rule = written.rule().map_err(A::Error::custom)?;
        Rules::admitted(self.0, rule).map_err(A::Error::custom)
    }
}

impl<'de> serde::Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(All)
    }
}

impl<'de> serde::Deserialize<'de> for Steer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Choice)
    }
}

/// Reads a list of rules, or the name of another choice.
struct Choice;

impl<'de> Visitor<'de> for Choice {
    type Value = Steer;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rules or \"graph\"")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Steer, E> {
        match text {
            "graph" => Ok(Steer::Graph),
            _ => Err(E::custom(format!("expected a list of rules or \"graph\", found {text:?}"))),
        }
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Steer, A::Error> {
        All.visit_seq(list).map(Steer::Rules)
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Rules;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rules")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rules, A::Error> {
        let mut rules: Vec<Rule> = Vec::new();
        while let Some(rule) = list.next_element_seed(Next(&rules))? {
            rules.push(rule);
        }
        Ok(Rules(rules.into()))
    }
}
