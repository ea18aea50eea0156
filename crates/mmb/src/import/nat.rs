//! Translations of addresses, and filter rules about the addresses behind them.
//!
//! A firewall translates destinations before it filters. mmb's matches see packets as they arrive. So a filter rule about
//! a translated destination is written once more, for the packets that bring the destination from before.

use std::net::IpAddr;

use super::condition::{Conditions, Version, condition, states};
use super::emit::{rule, write};
use super::flatten::{Flat, FlatAction};
use super::order::{MOST_PAIRS, Ordered};
use super::{ImportOptions, Imported, Nat};
use crate::rule::{Atom, Match, Value};

/// Writes rules that translate addresses.
pub(super) fn translations(flats: Vec<Flat>, options: &ImportOptions, imported: &mut Imported) {
    for flat in flats {
        match &flat.action {
            FlatAction::Nat(nat) => match address(nat, &flat, options) {
                Ok(address) => translation(nat, &address, &flat, imported),
                Err(why) => {
                    imported.skip(&flat.place, why);
                    imported.warn(format!("line {}: addresses are not translated", flat.place.line));
                }
            },
            FlatAction::Accept if flat.conditions.states != states::ALL => {}
            FlatAction::Accept => {
                imported.skip(&flat.place, "connections without a translation can't be told from others");
                imported.warn(format!(
                    "line {}: connections that it leaves alone are translated by later rules: {}",
                    flat.place.line, flat.place.text
                ));
            }
            _ => rule(&Ordered { is_stateful: false, answers: None, flat }, options, imported),
        }
    }
}

/// The address that a rule gives to connections.
fn address(nat: &Nat, flat: &Flat, options: &ImportOptions) -> Result<String, String> {
    if let Some(address) = &nat.address {
        return Ok(address.clone());
    }
    if !nat.is_source {
        return Err("it leads to this machine, and a function has no addresses".into());
    }
    let name =
        flat.conditions.matches.iter().find_map(|own| match own {
            Match {
                is_negated: false, field, test: Some((_, Value::Atom(Atom::Interface(name)))), ..
            } if field.info().name == "out" => Some(name),
            _ => None,
        });
    let Some(name) = name else {
        return Err("it takes the address of the interface, which the rule does not name".into());
    };
    let is_wanted = |address: &&IpAddr| match flat.conditions.version {
        Version::V4 => address.is_ipv4(),
        Version::V6 => address.is_ipv6(),
        _ => true,
    };
    match options.addresses.get(name).filter(is_wanted) {
        Some(address) => Ok(address.to_string()),
        None => Err(format!("it takes the address of `{name}`, which is not known: give it to the import")),
    }
}

/// Writes a rule that maps addresses, for each protocol that has ports or identifiers to choose from.
fn translation(nat: &Nat, address: &str, flat: &Flat, imported: &mut Imported) {
    let is_v6 = address.contains(':');
    let (version, prefix) = if is_v6 { (Version::V6, "ip6") } else { (Version::V4, "ip") };
    let end = if nat.is_source { "saddr" } else { "daddr" };
    let map = if address.is_empty() { String::new() } else { format!("map {prefix}-{end} {address} ") };
    let version = if address.is_empty() { flat.conditions.version } else { version };
    let Some(conditions) = flat.conditions.and(&Conditions::of(version)) else {
        return imported.skip(&flat.place, "its address is of another version of IP");
    };
    let conditions = Conditions { states: states::ALL, ..conditions };
    let mut one = |protocol: Option<u8>, targets: String| {
        let of = Conditions::of(version);
        let of = match protocol {
            Some(protocol) => of.with_protocol(protocol),
            None => of,
        };
        if let Some(conditions) = conditions.and(&of) {
            write(
                &conditions,
                targets.trim_end(),
                &Ordered { is_stateful: true, answers: None, flat: flat.clone() },
                imported,
            );
        }
    };
    let port = if nat.is_source { "sport" } else { "dport" };
    match (&nat.ports, nat.is_source) {
        (Some(ports), _) => {
            one(Some(6), format!("{map}map tcp-{port} {ports}"));
            one(Some(17), format!("{map}map udp-{port} {ports}"));
        }
        (None, true) => {
            let (icmp, number) = if is_v6 { ("icmp6", 58) } else { ("icmp", 1) };
            one(Some(6), format!("{map}shuffle tcp-{port}"));
            one(Some(17), format!("{map}shuffle udp-{port}"));
            one(Some(number), format!("{map}shuffle {icmp}-id"));
        }
        (None, false) => one(None, map.clone()),
    }
}

/// Adds filter rules for packets whose destination is translated before the filter sees it.
pub(super) fn before_translation(
    flats: Vec<Flat>,
    translated: &[Flat],
    imported: &mut Imported,
) -> Vec<Flat> {
    if flats.len().saturating_mul(translated.len()) > MOST_PAIRS {
        imported
            .warn("too many rules to compare: filter rules see destinations before their translation".into());
        return flats;
    }
    let mut all = Vec::with_capacity(flats.len());
    for flat in flats {
        let mut own = vec![flat.conditions.clone()];
        for nat in translated {
            let is_about = flat.conditions.matches.iter().any(is_destination);
            if !is_about || flat.conditions.and(&nat.conditions).is_none() && !may_meet(&flat, nat) {
                continue;
            }
            match arriving(&flat.conditions, nat) {
                Some(Some(conditions)) => all.push(Flat { conditions, ..flat.clone() }),
                Some(None) => {
                    // Behind the translation, the rule does not mean these packets.
                    let of_nat = Conditions { states: states::ALL, ..nat.conditions.clone() };
                    let rest: Option<Vec<Vec<Conditions>>> =
                        own.iter().map(|part| part.without(&of_nat)).collect();
                    match rest {
                        Some(rest) => own = rest.concat(),
                        None => differs(&flat, nat, imported),
                    }
                }
                None => differs(&flat, nat, imported),
            }
        }
        all.extend(own.into_iter().map(|conditions| Flat { conditions, ..flat.clone() }));
    }
    all
}

fn differs(flat: &Flat, nat: &Flat, imported: &mut Imported) {
    imported.warn(format!(
        "line {}: mmb compares the destination from before the translation of line {}: {}",
        flat.place.line, nat.place.line, flat.place.text
    ));
}

fn is_destination(condition: &Match) -> bool {
    matches!(condition.field.info().name.as_str(), "ip-daddr" | "ip6-daddr" | "tcp-dport" | "udp-dport")
}

/// Whether a rule can be about packets of a translation, but for their destination.
fn may_meet(flat: &Flat, nat: &Flat) -> bool {
    others(&flat.conditions).and(&others(&nat.conditions)).is_some()
}

/// The conditions that are about no destination.
fn others(of: &Conditions) -> Conditions {
    Conditions {
        matches: of.matches.iter().filter(|own| !is_destination(own)).cloned().collect(),
        ..of.clone()
    }
}

/// The conditions of a rule for packets before a translation.
///
/// `None` where that is not known, `Some(None)` where the rule means none of them.
fn arriving(conditions: &Conditions, nat: &Flat) -> Option<Option<Conditions>> {
    let FlatAction::Nat(Nat { address, ports, .. }) = &nat.action else { return None };
    let mut behind = Conditions::of(Version::Any);
    let is_v6 = nat.conditions.version == Version::V6;
    if let Some(address) = address.as_ref().filter(|address| !address.is_empty()) {
        let field = if is_v6 { "ip6-daddr" } else { "ip-daddr" };
        behind = behind.with(condition(&format!("{field} {address}")).ok()?)?;
    } else {
        behind.matches.extend(destinations(&nat.conditions, true));
    }
    let mut rest = others(conditions).and(&nat.conditions)?;
    rest.states = conditions.states;
    let protocol = rest.protocol;
    match (ports, protocol) {
        (Some(ports), Some(6)) => behind = behind.with(condition(&format!("tcp-dport {ports}")).ok()?)?,
        (Some(ports), Some(17)) => behind = behind.with(condition(&format!("udp-dport {ports}")).ok()?)?,
        (Some(_), _) => return None,
        (None, _) => behind.matches.extend(destinations(&nat.conditions, false)),
    }
    let wanted: Vec<Match> = conditions.matches.iter().filter(|own| is_destination(own)).cloned().collect();
    for one in &wanted {
        let alone = Conditions { matches: vec![one.clone()], ..Conditions::of(Version::Any) };
        let found = Conditions { version: Version::Any, protocol: None, ..behind.clone() };
        if found.is_disjoint(&alone) {
            return Some(None);
        }
        let is_port = one.field.info().name.ends_with("dport");
        if found.implies(&alone) {
            continue;
        }
        // A port that is not translated is compared as it arrives.
        if !is_port || ports.is_some() {
            return None;
        }
        rest = rest.with(one.clone())?;
    }
    Some(Some(rest))
}

fn destinations(of: &Conditions, addresses: bool) -> Vec<Match> {
    let is_wanted =
        |own: &&Match| is_destination(own) && own.field.info().name.ends_with("daddr") == addresses;
    of.matches.iter().filter(is_wanted).cloned().collect()
}
