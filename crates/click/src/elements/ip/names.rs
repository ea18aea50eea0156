//! Values of arguments that IPv4 elements share: protocols, ports, ICMP types and codes, annotations.

use std::net::Ipv4Addr;

use crate::arguments::{Argument, Parsed, Problem};
use crate::language::text;
use crate::names::{self, Named};
use crate::router::At;
use crate::value::integer;

/// Names of ICMP codes with the type that they belong to.
const ICMP_CODES: &[(u8, &str, u8)] = &[
    (3, "net", 0),
    (3, "host", 1),
    (3, "protocol", 2),
    (3, "port", 3),
    (3, "needfrag", 4),
    (3, "srcroutefail", 5),
    (3, "netunknown", 6),
    (3, "hostunknown", 7),
    (3, "isolated", 8),
    (3, "netprohibited", 9),
    (3, "hostprohibited", 10),
    (3, "tosnet", 11),
    (3, "toshost", 12),
    (3, "filterprohibited", 13),
    (3, "hostprecedence", 14),
    (3, "precedencecutoff", 15),
    (5, "net", 0),
    (5, "host", 1),
    (5, "tosnet", 2),
    (5, "toshost", 3),
    (11, "transit", 0),
    (11, "reassembly", 1),
    (12, "erroratptr", 0),
    (12, "missingopt", 1),
    (12, "length", 2),
];

/// Protocols that `IPPrint` names in unreachable messages.
const SHOWN_PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("sctp", 132),
];

/// The name of an ICMP type.
pub(super) fn icmp_type_name(number: u8) -> Option<&'static str> {
    names::ICMP_TYPES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// The name of an ICMP code of a type.
pub(super) fn icmp_code_name(kind: u8, number: u8) -> Option<&'static str> {
    ICMP_CODES.iter().find(|(of, _, known)| (*of, *known) == (kind, number)).map(|(_, name, _)| *name)
}

/// The name of an IP protocol as `IPPrint` shows it.
pub(super) fn protocol_name(number: u8) -> Option<&'static str> {
    SHOWN_PROTOCOLS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

fn named_number(text: &str, known: impl Fn(&str) -> Option<i64>) -> Parsed<i64> {
    known(text)
        .or_else(|| integer(text).and_then(|number| i64::try_from(number).ok()))
        .ok_or_else(|| Problem::Said("invalid number".into()))
}

/// An IP protocol by name or number, which may be out of range.
pub(super) fn protocol(text: &str, _: At<'_>) -> Parsed<i64> {
    named_number(text, |name| names::ip_protocol(name).map(i64::from))
}

/// An ICMP type by name or number, which may be out of range.
pub(super) fn icmp_type(text: &str, _: At<'_>) -> Parsed<i64> {
    named_number(text, |name| {
        names::ICMP_TYPES.iter().find(|(known, _)| *known == name).map(|one| i64::from(one.1))
    })
}

/// An ICMP code of a type, by name or number.
pub(super) fn icmp_code(kind: u8, text: &str) -> Option<u8> {
    let named = ICMP_CODES.iter().find(|(of, name, _)| (*of, *name) == (kind, text)).map(|one| one.2);
    named.or_else(|| integer(text).and_then(|number| u8::try_from(number).ok()))
}

/// A UDP port by name or number.
pub(super) fn udp_port(text: &str, at: At<'_>) -> Parsed<u16> {
    if let Some(number) = integer(text) {
        return u16::try_from(number).map_err(|_| "overflow, range 0-65535".into());
    }
    match at.names().find(at, Named::UdpPort, text).as_deref() {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => names::port(text).ok_or(Problem::Syntax),
    }
}

/// Addresses with spaces between them.
pub(super) fn addresses(text: &str, at: At<'_>) -> Parsed<Vec<Ipv4Addr>> {
    text::split_words(text).iter().map(|word| Ipv4Addr::parse(word, at)).collect()
}
