//! Whether a rule means a frame, one condition after the other.

use std::collections::BTreeMap;

use netbricks_mmb::rule::{Atom, Comparison, Match, Rule, Value};

use crate::fields::{Found, Means, found, meaning};
use crate::places::Places;

/// The values of named sets.
pub(crate) type Sets = BTreeMap<String, Vec<Value>>;

/// The number of an atom.
pub(crate) fn number(atom: &Atom) -> u128 {
    match atom {
        Atom::Number(number) => *number,
        Atom::Ipv4(address) => u32::from(*address).into(),
        Atom::Ipv6(address) => u128::from(*address),
        Atom::Mac(address) => address.octets().iter().fold(0, |all, octet| all * 256 + u128::from(*octet)),
        // Where no ports are known, as in a test's graph, a name is that of a port without packets.
        Atom::Interface(_) => u16::MAX.into(),
        other @ Atom::Bytes(_) => panic!("no number: {other:?}"),
    }
}

/// Whether a number is among the values.
fn has_number(value: &Value, bits: usize, sets: &Sets, given: u128) -> bool {
    match value {
        Value::Atom(atom) => given == number(atom),
        Value::Range(low, high) => number(low) <= given && given <= number(high),
        Value::Prefix(atom, length) => {
            let host = bits - usize::from(*length);
            host == 128 || given >> host == number(atom) >> host
        }
        Value::Masked(atom, mask) => given & number(mask) == number(atom) & number(mask),
        Value::Set(values) => values.iter().any(|value| has_number(value, bits, sets, given)),
        Value::Named(name) => sets[name].iter().any(|value| has_number(value, bits, sets, given)),
    }
}

/// Whether bytes are the same where a mask has ones.
fn equal_where(left: &[u8], right: &[u8], mask: &[u8]) -> bool {
    (0..mask.len()).all(|at| (left[at] ^ right[at]) & mask[at] == 0)
}

/// Whether one of the values, as bytes with a mask of as many, fulfils this.
fn has_bytes(value: &Value, sets: &Sets, test: &dyn Fn(&[u8], &[u8]) -> bool) -> bool {
    match value {
        Value::Atom(Atom::Bytes(bytes)) => test(bytes, &vec![255; bytes.len()]),
        Value::Masked(Atom::Bytes(bytes), Atom::Bytes(mask)) => test(bytes, mask),
        Value::Set(values) => values.iter().any(|value| has_bytes(value, sets, test)),
        Value::Named(name) => sets[name].iter().any(|value| has_bytes(value, sets, test)),
        other => panic!("no bytes: {other:?}"),
    }
}

fn holds(condition: &Match, sets: &Sets, frame: &[u8], places: &Places) -> bool {
    let Some(found) = found(frame, places, condition.field) else { return false };
    let means = meaning(condition.field).means;
    let Some((comparison, value)) = &condition.test else {
        return condition.is_negated
            != match (found, means) {
                (Found::Number(number), Means::Bits(_, 1) | Means::Is(..) | Means::Extension(_)) => {
                    number == 1
                }
                (Found::Option(data), _) => data.is_some(),
                (Found::Kinds(kinds), _) => !kinds.is_empty(),
                _ => true,
            };
    };
    let bits = match means {
        Means::Bits(_, bits) => bits,
        Means::Number(_, bytes) => 8 * bytes,
        _ => 16,
    };
    let compared = |given: u128| {
        let bound = || match value {
            Value::Atom(atom) => number(atom),
            other => panic!("no bound: {other:?}"),
        };
        match comparison {
            Comparison::Equal => has_number(value, bits, sets, given),
            Comparison::NotEqual => !has_number(value, bits, sets, given),
            Comparison::Less => given < bound(),
            Comparison::AtMost => given <= bound(),
            Comparison::Greater => given > bound(),
            Comparison::AtLeast => given >= bound(),
        }
    };
    let is_unequal = *comparison == Comparison::NotEqual;
    let result = match (found, means) {
        (Found::Number(given), _) => compared(given),
        (Found::Bytes(bytes), _) => {
            let begins = |prefix: &[u8], mask: &[u8]| {
                bytes.len() >= prefix.len() && equal_where(&bytes[..prefix.len()], prefix, mask)
            };
            is_unequal != has_bytes(value, sets, &begins)
        }
        (Found::Kinds(kinds), _) => {
            is_unequal != kinds.iter().any(|kind| has_number(value, 8, sets, (*kind).into()))
        }
        // An option that is not there has no value, not even another one.
        (Found::Option(None), _) => false,
        (Found::Option(Some(data)), Means::Number(_, bytes)) => {
            let is_whole = data.len() == bytes || (bytes, data.len()) == (4, 8);
            match is_whole {
                true => compared(data[..bytes].iter().fold(0, |all, byte| all * 256 + u128::from(*byte))),
                false => is_unequal,
            }
        }
        (Found::Option(Some(data)), _) => {
            let is = |bytes: &[u8], mask: &[u8]| data.len() == bytes.len() && equal_where(&data, bytes, mask);
            is_unequal != has_bytes(value, sets, &is)
        }
        (Found::There, _) => panic!("`all` has no value"),
    };
    result != condition.is_negated
}

/// Whether a rule means a frame.
pub(crate) fn means(rule: &Rule, sets: &Sets, frame: &[u8], places: &Places) -> bool {
    rule.matches.iter().all(|condition| holds(condition, sets, frame, places))
}
