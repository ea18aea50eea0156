//! Values of fields in summaries, from text and from binary records.

use super::draft::{Draft, Told};
use super::field::{Column, Field, Form, icmp_code, icmp_type};
use super::options::{Choice, read_ip, read_tcp};
use crate::arguments::Argument;
use crate::language::text;
use crate::router::At;
use crate::value::{Ether, integer, signed_seconds};

fn number(text: &str, most: u64) -> Option<Told> {
    integer(text).and_then(|value| u64::try_from(value).ok()).filter(|value| *value <= most).map(Told::Number)
}

/// A field's value in words. `None` where they mean none.
pub(super) fn text(column: &Column, word: &[u8], draft: &Draft, minor: u32, at: At<'_>) -> Option<Told> {
    let string = String::from_utf8_lossy(word);
    let string = string.as_ref();
    match column.field {
        Field::Timestamp
        | Field::TimestampNanoseconds
        | Field::FirstTimestamp
        | Field::FirstTimestampNanoseconds => {
            let time = signed_seconds(string).filter(|time| *time >= 0)?;
            i64::try_from(time).ok().map(Told::Time)
        }
        Field::Link | Field::Direction => match string {
            ">" | "L" => Some(Told::Number(0)),
            "<" | "R" | "X" => Some(Told::Number(1)),
            _ => number(string, u64::from(u32::MAX)),
        },
        Field::EthernetSource | Field::EthernetDestination => {
            Ether::parse(string, at).ok().map(|address| Told::Ethernet(address.0))
        }
        Field::EthernetType => {
            let digits = string.strip_prefix("0x").or(string.strip_prefix("0X")).unwrap_or(string);
            u16::from_str_radix(digits, 16).ok().map(|kind| Told::Number(u64::from(kind)))
        }
        Field::IpSource | Field::IpDestination => std::net::Ipv4Addr::parse(string, at)
            .ok()
            .map(|address| Told::Number(u64::from(u32::from(address)))),
        Field::IpFragment | Field::IpFragmentOffset => fragment(string, minor),
        Field::IpProtocol => match string {
            "T" => Some(Told::Number(6)),
            "U" => Some(Told::Number(17)),
            "I" => Some(Told::Number(1)),
            _ => number(string, 255),
        },
        Field::IpEcn => match string {
            "0" | "no" => Some(Told::Number(0)),
            "1" | "ect1" | "ECT(1)" => Some(Told::Number(1)),
            "2" | "ect2" | "ECT(0)" => Some(Told::Number(2)),
            "3" | "ce" | "CE" => Some(Told::Number(3)),
            _ => None,
        },
        Field::IpOptions => read_ip(word).map(Told::Bytes),
        Field::TcpOptions => read_tcp(word, Choice::All).map(Told::Bytes),
        Field::TcpOptionsWithoutTime => read_tcp(word, Choice::WithoutTime).map(Told::Bytes),
        Field::TcpSack => read_tcp(word, Choice::Sack).map(Told::Bytes),
        Field::TcpFlags => flags(string),
        Field::IcmpType | Field::IcmpTypeName => match icmp_type(string) {
            Some(kind) => Some(Told::Number(u64::from(kind))),
            None => number(string, 255),
        },
        Field::IcmpCode | Field::IcmpCodeName => {
            match draft.icmp_type.and_then(|kind| icmp_code(kind, string)) {
                Some(code) => Some(Told::Number(u64::from(code))),
                None => number(string, 255),
            }
        }
        Field::Payload => Some(Told::Bytes(text::unquote(string))),
        _ => match column.form {
            Form::Bytes(count) => number(string, u64::MAX >> (64 - 8 * count.clamp(1, 8))),
            _ => None,
        },
    }
}

/// `.`, `!`, `F`, `f`, or an offset in bytes with `+` and `!` behind it.
///
/// Dumps of version 1.0 have offsets in 8-byte units.
fn fragment(text: &str, minor: u32) -> Option<Told> {
    match text {
        "." => return Some(Told::Number(0)),
        "!" => return Some(Told::Number(0x4000)),
        "F" => return Some(Told::Number(0x2000)),
        "f" => return Some(Told::Number(100)),
        _ => (),
    }
    let digits = text.trim_end_matches(['+', '!']);
    let marks = &text[digits.len()..];
    let mut value = match (digits, marks) {
        ("", "") => return None,
        ("", _) => 0,
        _ => integer(digits).and_then(|value| u32::try_from(value).ok())?,
    };
    if minor > 0 {
        value >>= 3;
    }
    if marks.contains('+') {
        value |= 0x2000;
    }
    if marks.contains('!') {
        value |= 0x4000;
    }
    Some(Told::Number(u64::from(value)))
}

/// Letters of TCP's flags, or their number.
fn flags(text: &str) -> Option<Told> {
    if text == "." {
        return Some(Told::Number(0));
    }
    if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        return number(text, 0xFFF);
    }
    let mut flags = 0;
    for letter in text.bytes() {
        let bit = match letter {
            b'X' => 6,
            b'Y' | b'W' => 7,
            _ => super::TCP_FLAGS.iter().position(|flag| *flag == letter)?,
        };
        flags |= 1 << bit;
    }
    (!text.is_empty()).then_some(Told::Number(flags))
}

/// Takes a field's value from the front of a binary record. `None` where the record is too short.
pub(super) fn binary(column: &Column, record: &mut &[u8]) -> Option<Told> {
    let mut take = |count: usize| {
        let (value, rest) = record.split_at_checked(count)?;
        *record = rest;
        Some(value)
    };
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let time = |seconds: u64, nanoseconds: u64| Told::Time((seconds * 1_000_000_000 + nanoseconds) as i64);
    match column.form {
        Form::Bytes(count) => take(count).map(|bytes| Told::Number(sum(bytes))),
        Form::Time => take(8).map(|bytes| time(sum(&bytes[..4]), sum(&bytes[4..]).saturating_mul(1000))),
        Form::NanoTime => take(8).map(|bytes| time(sum(&bytes[4..]), sum(&bytes[..4]))),
        Form::Ethernet => take(6).map(|bytes| {
            let mut address = [0; 6];
            address.copy_from_slice(bytes);
            Told::Ethernet(address)
        }),
        Form::Counted => {
            let count = take(1)?[0];
            take(usize::from(count)).map(|bytes| Told::Bytes(bytes.to_vec()))
        }
        Form::Digest => take(16).map(|bytes| Told::Bytes(bytes.to_vec())),
        Form::Text => {
            *record = &[];
            None
        }
    }
}
