//! Values of rules and sets: addresses, ports, protocols and interfaces.

use std::net::IpAddr;

use netbricks_core::packet::protocol;
use netbricks_mmb::field::FieldId;
use netbricks_mmb::language::number_named;
use netbricks_mmb::rule::{Atom, Value};

use super::rule::{Rule, ValueKind, Version};

/// The fault of a value, and the remedy.
type Fault = (String, String);

/// The name of a kind of values in messages.
pub(super) const fn name_of(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Address => "address",
        ValueKind::Port => "port",
        ValueKind::Protocol => "protocol",
        ValueKind::Interface => "interface",
        ValueKind::Number => "number",
    }
}

/// Values of a kind, as examples.
pub(super) const fn example_of(kind: Option<ValueKind>) -> &'static str {
    match kind {
        None => "as `192.0.2.0/24` or `443`",
        Some(ValueKind::Address) => "as `any`, `192.0.2.0/24`, `2001:db8::1` or `@web`",
        Some(ValueKind::Port) => "as `443`, `https`, `1024-65535` or `{ 80, 443 }`",
        Some(ValueKind::Protocol) => "as `tcp`, `89` or `{ tcp, udp }`",
        Some(ValueKind::Interface) => "the name of a port of the chain file",
        Some(ValueKind::Number) => "as `3` or `0-5`",
    }
}

/// An interface by name.
pub(super) fn interface(name: &str) -> Value {
    Value::Atom(Atom::Interface(name.to_owned()))
}

/// A number.
pub(super) const fn number(value: u128) -> Value {
    Value::Atom(Atom::Number(value))
}

/// Reads a value of a kind.
pub(super) fn read(text: &str, kind: ValueKind) -> Result<Value, Fault> {
    match kind {
        ValueKind::Address => address(text),
        ValueKind::Port => numbers(text, 0xffff, "tcp-dport", kind),
        ValueKind::Protocol => numbers(text, 0xff, "ip-proto", kind),
        ValueKind::Number => numbers(text, 0xff, "icmp-code", kind),
        ValueKind::Interface => Ok(interface(text)),
    }
}

/// Reads a value of a set, whose kind follows from its form.
pub(super) fn read_any(text: &str) -> Result<Value, Fault> {
    if text.contains([':', '.']) || text.contains('/') {
        return address(text);
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return numbers(text, 0xffff, "tcp-dport", ValueKind::Port);
    }
    Ok(numbers(text, 0xffff, "tcp-dport", ValueKind::Port).unwrap_or_else(|_| interface(text)))
}

fn address(text: &str) -> Result<Value, Fault> {
    let wrong = |word: &str| {
        let hint = "write one as `192.0.2.1`, `192.0.2.0/24`, `2001:db8::/32` or `192.0.2.1-192.0.2.9`";
        (format!("`{word}` is no address"), hint.to_owned())
    };
    let one = |word: &str| word.parse::<IpAddr>().map_err(|_| wrong(word));
    if let Some((address, length)) = text.split_once('/') {
        return prefix(text, one(address)?, length);
    }
    if let Some((low, high)) = text.split_once('-') {
        let (low, high) = (one(low)?, one(high)?);
        if low.is_ipv4() != high.is_ipv4() {
            let message = format!("`{text}` begins and ends in different versions of IP");
            return Err((message, "write two ranges".into()));
        }
        if low > high {
            return Err((format!("`{text}` ends before it begins"), "write the lower address first".into()));
        }
        return Ok(Value::Range(atom(low), atom(high)));
    }
    Ok(Value::Atom(atom(one(text)?)))
}

fn prefix(text: &str, address: IpAddr, length: &str) -> Result<Value, Fault> {
    let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
    let Some(length) = length.parse::<u32>().ok().filter(|length| *length <= bits) else {
        let message = format!("`{text}`: addresses like this have {bits} bits");
        return Err((message, format!("give a length of 0 to {bits}")));
    };
    let number = number_of(address);
    let mask = if length == 0 { 0 } else { u128::MAX << (bits - length) };
    if number & !mask != 0 {
        let host = atom_like(address, number & mask);
        let message = format!("`{text}` has bits set behind its first {length}");
        return Err((message, format!("write `{host}/{length}`")));
    }
    Ok(if length == bits { Value::Atom(atom(address)) } else { Value::Prefix(atom(address), length as u8) })
}

fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn atom(address: IpAddr) -> Atom {
    match address {
        IpAddr::V4(address) => Atom::Ipv4(address),
        IpAddr::V6(address) => Atom::Ipv6(address),
    }
}

fn atom_like(address: IpAddr, number: u128) -> Atom {
    match address {
        IpAddr::V4(_) => Atom::Ipv4((number as u32).into()),
        IpAddr::V6(_) => Atom::Ipv6(number.into()),
    }
}

fn numbers(text: &str, most: u128, field: &str, kind: ValueKind) -> Result<Value, Fault> {
    let named = |word: &str| {
        let value = match word.parse::<u128>() {
            Ok(number) => Some(number),
            Err(_) if kind == ValueKind::Number => None,
            Err(_) => FieldId::named(field).and_then(|field| number_named(field, word)),
        };
        value.filter(|value| *value <= most)
    };
    if let Some(value) = named(text) {
        return Ok(number(value));
    }
    let hint = || match kind {
        ValueKind::Port => {
            format!("write a number from 0 to {most}, a name as `https`, or a range as `1024-65535`")
        }
        ValueKind::Protocol => format!("write a number from 0 to {most}, or a name as `tcp` or `ospf`"),
        _ => format!("write a number from 0 to {most}"),
    };
    if let Some((low, high)) = text.split_once('-')
        && let (Some(low), Some(high)) = (named(low), named(high))
    {
        if low > high {
            return Err((format!("`{text}` ends before it begins"), "write the lower number first".into()));
        }
        return Ok(Value::Range(Atom::Number(low), Atom::Number(high)));
    }
    Err((format!("`{text}` is no {}", name_of(kind)), hint()))
}

/// The number of a value that is one.
pub(super) const fn as_number(value: &Value) -> Option<u128> {
    match value {
        Value::Atom(Atom::Number(number)) => Some(*number),
        _ => None,
    }
}

/// The first and last number of a value that has numbers.
pub(super) const fn as_interval(value: &Value) -> Option<(u128, u128)> {
    match value {
        Value::Atom(Atom::Number(number)) => Some((*number, *number)),
        Value::Range(Atom::Number(low), Atom::Number(high)) => Some((*low, *high)),
        _ => None,
    }
}

/// The version of IP of a value that is an address, a prefix or a range of addresses.
pub(super) const fn version_of(value: &Value) -> Option<Version> {
    match value {
        Value::Atom(Atom::Ipv4(_)) | Value::Prefix(Atom::Ipv4(_), _) | Value::Range(Atom::Ipv4(_), _) => {
            Some(Version::V4)
        }
        Value::Atom(Atom::Ipv6(_)) | Value::Prefix(Atom::Ipv6(_), _) | Value::Range(Atom::Ipv6(_), _) => {
            Some(Version::V6)
        }
        _ => None,
    }
}

/// Whether a value of a set is of the kind that a place takes.
pub(super) fn is_of(value: &Value, kind: ValueKind) -> bool {
    match kind {
        ValueKind::Address => version_of(value).is_some(),
        ValueKind::Port => as_interval(value).is_some_and(|(_, high)| high <= 0xffff),
        ValueKind::Protocol | ValueKind::Number => as_interval(value).is_some_and(|(_, high)| high <= 0xff),
        ValueKind::Interface => matches!(value, Value::Atom(Atom::Interface(_))),
    }
}

/// A value as a line of a listing.
pub(super) fn shown_line(value: &Value) -> String {
    format!("{}\n", super::print::shown(value))
}

pub(super) fn named_in(value: &Value) -> Option<&str> {
    match value {
        Value::Named(name) => Some(name),
        Value::Set(values) => values.iter().find_map(named_in),
        _ => None,
    }
}

/// The one protocol of a rule, where it is ICMP or ICMPv6.
pub(super) fn icmp_of(rule: &Rule) -> Option<u8> {
    let choice = rule.protocol.as_ref().filter(|choice| !choice.is_negated)?;
    let [only] = &choice.values[..] else { return None };
    let number = as_number(only)? as u8;
    matches!(number, protocol::ICMP | protocol::ICMPV6).then_some(number)
}

/// Whether a word may name a rule or a set.
pub(super) fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && word.len() <= 64
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
