//! The meaning of rules, written down without a thought for speed.

use std::net::IpAddr;

use netbricks_mmb::rule::{Atom, Value};

use super::super::rule::{Action, Choice, End, Policy, Rule, Sets, Version};
use super::super::{RuleList, values};
use super::generate::Sample;

/// The verdict about a packet without connections, and the places of the rules that count it.
pub(super) fn verdict(list: &RuleList, packet: &Sample) -> (Action, Vec<usize>) {
    let mut counted = Vec::new();
    for (place, (_, rule)) in list.rules.iter().enumerate() {
        if means(rule, packet, &list.sets) {
            counted.push(place);
            if rule.action != Action::Count {
                return (rule.action, counted);
            }
        }
    }
    let policy = match list.policy {
        Policy::Allow => Action::Allow,
        Policy::Deny => Action::Deny,
        Policy::Reject => Action::Reject(super::super::Answer::Usual),
    };
    (policy, counted)
}

fn means(rule: &Rule, packet: &Sample, sets: &Sets) -> bool {
    let version = if packet.from.is_ipv4() { Version::V4 } else { Version::V6 };
    let number = |choice: &Option<Choice>, of: Option<u128>| match (choice, of) {
        (None, _) => true,
        (Some(choice), Some(number)) => chosen(choice, sets, |value| {
            values::as_interval(value).is_some_and(|(low, high)| (low..=high).contains(&number))
        }),
        (Some(_), None) => false,
    };
    let end = |end: &End, address: IpAddr, port: Option<u16>| {
        end.addresses.as_ref().is_none_or(|choice| chosen(choice, sets, |value| has(value, address)))
            && number(&end.ports, port.map(u128::from))
    };
    let is_icmp_of_version = match packet.protocol {
        1 => version == Version::V4,
        58 => version == Version::V6,
        _ => true,
    };
    rule.version.is_none_or(|wanted| wanted == version)
        && number(&rule.protocol, Some(packet.protocol.into()))
        && end(&rule.from, packet.from, packet.ports.map(|ports| ports.0))
        && end(&rule.to, packet.to, packet.ports.map(|ports| ports.1))
        && number(&rule.icmp_type, packet.icmp.filter(|_| is_icmp_of_version).map(|icmp| icmp.0.into()))
        && number(&rule.icmp_code, packet.icmp.filter(|_| is_icmp_of_version).map(|icmp| icmp.1.into()))
        && rule.flags.is_none_or(|test| {
            packet.flags.is_some_and(|flags| (flags & test.mask == test.set) != test.is_negated)
        })
}

fn chosen(choice: &Choice, sets: &Sets, holds: impl Fn(&Value) -> bool) -> bool {
    let any = choice.values.iter().any(|value| match value {
        Value::Named(name) => sets[name].iter().any(&holds),
        value => holds(value),
    });
    any != choice.is_negated
}

fn has(value: &Value, address: IpAddr) -> bool {
    let of = |atom: &Atom| match atom {
        Atom::Ipv4(address) => IpAddr::V4(*address),
        Atom::Ipv6(address) => IpAddr::V6(*address),
        other => panic!("{other:?} is no address"),
    };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    match value {
        Value::Atom(atom) => of(atom) == address,
        Value::Range(low, high) => {
            of(low).is_ipv4() == address.is_ipv4() && of(low) <= address && address <= of(high)
        }
        Value::Prefix(atom, length) => {
            let differ = bits(of(atom)) ^ bits(address);
            of(atom).is_ipv4() == address.is_ipv4()
                && (*length == 0 || differ >> (128 - u32::from(*length)) == 0)
        }
        other => panic!("{other:?} is no address"),
    }
}
