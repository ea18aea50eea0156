//! Elements that define names: `AddressInfo`, `PortInfo`, `AnnotationInfo`; and `AlignmentInfo`, which tools read.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use super::made;
use crate::annotation::Annotation;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::language::errors::Errors;
use crate::language::text;
use crate::names::Named;
use crate::packet::place;
use crate::router::{At, Setup};
use crate::value::{Ether, Prefix, integer};

pub(super) const CLASSES: &[Class] = &[
    info("AddressInfo", address_info),
    info("PortInfo", port_info),
    info("AnnotationInfo", annotation_info),
    info("AlignmentInfo", alignment_info),
];

const fn info(
    name: &'static str,
    configure: fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>,
) -> Class {
    Class::new(name, configure).ports("0/0").phase(Class::INFO)
}

/// `AddressInfo(NAME ADDRS, …)`: names for addresses and prefixes, of IPv4, IPv6 and Ethernet.
struct AddressInfo;

/// An IPv6 prefix `address/length`.
fn ip6_prefix(text: &str, at: At<'_>) -> Option<(Ipv6Addr, u8)> {
    let (address, length) = text.rsplit_once('/')?;
    let length = length.parse().ok().filter(|length| *length <= 128)?;
    Some((Ipv6Addr::parse(address, at).ok()?, length))
}

/// The meanings of an address: kinds and values.
fn meanings(text: &str, at: At<'_>) -> Vec<(Named, Vec<u8>)> {
    let mut found = Vec::new();
    if let Ok(address) = Ether::parse(text, at) {
        found.push((Named::Ether, address.0.to_vec()));
    }
    if let Ok(address) = Ipv4Addr::parse(text, at) {
        found.push((Named::Ip, address.octets().to_vec()));
    } else if let Ok(prefix) = Prefix::read(text, at, false) {
        let (address, mask) = (prefix.address.octets(), prefix.mask.octets());
        if u32::from(prefix.address) & !u32::from(prefix.mask) != 0 {
            found.push((Named::Ip, address.to_vec()));
        }
        found.push((Named::IpPrefix, [address, mask].concat()));
    }
    if let Ok(address) = Ipv6Addr::parse(text, at) {
        found.push((Named::Ip6, address.octets().to_vec()));
    } else if let Some((address, length)) = ip6_prefix(text, at) {
        let host_bits = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        if u128::from(address) & host_bits != 0 {
            found.push((Named::Ip6, address.octets().to_vec()));
        }
        let mut bytes = address.octets().to_vec();
        bytes.push(length);
        found.push((Named::Ip6Prefix, bytes));
    }
    found
}

fn address_info(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let before = setup.errors.count();
    for argument in arguments.rest() {
        let words = text::split_words(&argument);
        let Some((name, addresses)) = words.split_first() else { continue };
        if addresses.is_empty() {
            setup.errors.error("expected 'NAME [ADDRS]'");
        }
        let mut known: Vec<Named> = Vec::new();
        for address in addresses {
            let meanings = meanings(address, setup.at);
            // A text that means several things gives way to one that means one.
            let clear = meanings.len() == 1;
            for (kind, value) in &meanings {
                if clear || !known.contains(kind) {
                    setup.at.names().define(setup.at, *kind, name, value);
                }
            }
            known.extend(meanings.iter().map(|(kind, _)| *kind));
            if meanings.is_empty() {
                setup.errors.error(&format!("'{address}' is not a recognizable address"));
            }
        }
    }
    arguments.complete()?;
    (setup.errors.count() == before).then_some(Rc::new(AddressInfo) as Rc<dyn Element>)
}

impl Element for AddressInfo {}

/// `PortInfo(NAME PORT[/PROTO], …)`: names for TCP and UDP ports.
struct PortInfo;

fn port_info(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let before = setup.errors.count();
    for argument in arguments.rest() {
        let words = text::split_words(&argument);
        let mut words = words.iter().take_while(|word| !word.starts_with('#'));
        let Some(first) = words.next() else { continue };
        let definition = words.next().map_or("", String::as_str);
        let (number, protocol) = definition.split_once('/').unwrap_or((definition, ""));
        let Some(port) = integer(number).and_then(|port| u16::try_from(port).ok()) else {
            setup.errors.error("expected 'NAME PORT/PROTO'");
            continue;
        };
        let kinds: &[Named] = match protocol {
            "" => &[Named::TcpPort, Named::UdpPort],
            "tcp" => &[Named::TcpPort],
            "udp" => &[Named::UdpPort],
            _ => continue,
        };
        for name in std::iter::once(first).chain(words) {
            for kind in kinds {
                setup.at.names().define(setup.at, *kind, name, &port.to_be_bytes());
            }
        }
    }
    arguments.complete()?;
    (setup.errors.count() == before).then_some(Rc::new(PortInfo) as Rc<dyn Element>)
}

impl Element for PortInfo {}

/// `AnnotationInfo(NAME OFFSET [SIZE], …, CHECK_OVERLAP NAME…)`: names for annotations.
struct AnnotationInfo {
    /// Names of annotations that must not overlap.
    apart: Vec<Vec<String>>,
}

fn annotation_info(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let (at, errors) = (setup.at, setup.errors);
    let before = errors.count();
    let mut apart = Vec::new();
    for argument in arguments.rest() {
        let words = text::split_words(&argument);
        let Some((name, rest)) = words.split_first() else { continue };
        if name == "CHECK_OVERLAP" {
            apart.push(rest.to_vec());
            continue;
        }
        if name.starts_with('#') {
            continue;
        }
        let is_number = integer(name).is_some_and(|number| (0..place::SIZE as i128).contains(&number));
        if !text::is_word(name) || is_number || Annotation::is_known(name) {
            errors.error(&format!("bad NAME '{name}'"));
            continue;
        }
        match entry(rest, at) {
            Some(bytes) => at.names().define(at, Named::Annotation, name, &bytes),
            None => errors.error(&format!("bad entry for '{name}'")),
        }
    }
    arguments.complete()?;
    (errors.count() == before).then_some(Rc::new(AnnotationInfo { apart }) as Rc<dyn Element>)
}

/// Place and size that the words behind a name mean.
fn entry(words: &[String], at: At<'_>) -> Option<[u8; 2]> {
    let (offset, size) = match words {
        [offset] => (offset, 0),
        [offset, size] => (offset, usize::try_from(integer(size)?).ok()?),
        _ => return None,
    };
    let found = Annotation::parse(offset, at).ok()?;
    if found.place.saturating_add(size) > place::SIZE || size != 0 && found.size != 0 && size != found.size {
        return None;
    }
    Some([u8::try_from(found.place).ok()?, u8::try_from(size).ok()?])
}

impl Element for AnnotationInfo {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let before = errors.count();
        for names in &self.apart {
            let mut known: Vec<(&str, Annotation)> = Vec::new();
            for name in names {
                let Ok(found) = Annotation::parse(name, at) else {
                    errors.error(&format!("bad ANNO '{name}'"));
                    continue;
                };
                known.push((name, found));
            }
            for (number, (name, one)) in known.iter().enumerate() {
                for (other_name, other) in &known[number + 1..] {
                    let (end, other_end) = (one.place + one.size.max(1), other.place + other.size.max(1));
                    if end > other.place && other_end > one.place {
                        errors.error(&format!("annotations '{name}' and '{other_name}' conflict"));
                    }
                }
            }
        }
        errors.count() == before
    }
}

/// `AlignmentInfo(ELEMENT [CHUNK OFFSET]…, …)`: how packets lie in memory, as the tool `click-align` wrote it.
///
/// Nothing here needs it: all elements read packets at any alignment.
struct AlignmentInfo;

fn alignment_info(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    for (number, argument) in arguments.rest().iter().enumerate() {
        let words = text::split_words(argument);
        let Some((name, places)) = words.split_first() else {
            setup.errors.warning(&format!("empty configuration argument {number}"));
            continue;
        };
        if setup.at.router.find(name, setup.at.id).is_none() {
            continue;
        }
        if places.len() % 2 != 0 {
            setup.errors.error("expected 'ELEMENTNAME CHUNK OFFSET [CHUNK OFFSET...]'");
        }
        for pair in places.chunks_exact(2) {
            for (word, what) in pair.iter().zip(["CHUNK", "OFFSET"]) {
                if integer(word).is_none() {
                    setup.errors.error(&format!("expected {what}"));
                }
            }
        }
    }
    arguments.complete()?;
    made(AlignmentInfo)
}

impl Element for AlignmentInfo {}
