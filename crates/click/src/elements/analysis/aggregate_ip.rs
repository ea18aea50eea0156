//! `AggregateIP`: a field of the headers becomes the aggregate.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::aggregates::aggregate;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::Raw;

pub(super) const CLASSES: &[Class] =
    &[Class::new("AggregateIP", configure).ports("1/1-2").processing("a/ah").creates_nothing()];

/// Origin of a field's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Ip,
    /// The transport header of any protocol.
    Transport,
    /// The transport header of TCP or UDP.
    TcpOrUdp,
    /// The bytes behind the headers of TCP or UDP.
    Payload,
    /// The transport header of one protocol.
    Protocol(u8),
}

/// Bits of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    header: Header,
    offset: u32,
    length: u32,
}

type Named = (&'static str, u32, u32);

const IP: &[Named] = &[
    ("df", 49, 1),
    ("dscp", 8, 6),
    ("dst", 128, 32),
    ("ecn", 14, 2),
    ("fragoff", 51, 13),
    ("hl", 4, 4),
    ("id", 32, 16),
    ("len", 16, 16),
    ("mf", 50, 1),
    ("off", 48, 16),
    ("proto", 72, 8),
    ("rf", 48, 1),
    ("src", 96, 32),
    ("sum", 80, 16),
    ("tos", 8, 8),
    ("ttl", 64, 8),
    ("vers", 0, 4),
];
const PORTS: &[Named] = &[("dport", 16, 16), ("sport", 0, 16)];
const UDP: &[Named] = &[("dport", 16, 16), ("len", 32, 16), ("sport", 0, 16), ("sum", 48, 16)];
const TCP: &[Named] = &[
    ("ack", 107, 1),
    ("ackno", 64, 32),
    ("dport", 16, 16),
    ("fin", 111, 1),
    ("flags", 104, 8),
    ("hl", 96, 4),
    ("psh", 108, 1),
    ("push", 108, 1),
    ("rst", 109, 1),
    ("seq", 32, 32),
    ("seqno", 32, 32),
    ("sport", 0, 16),
    ("sum", 128, 16),
    ("syn", 110, 1),
    ("urg", 106, 1),
    ("urp", 144, 16),
    ("win", 112, 16),
];
const ICMP: &[Named] = &[("code", 8, 8), ("sum", 16, 16), ("type", 0, 8)];

impl Header {
    fn fields(self) -> &'static [Named] {
        match self {
            Self::Ip => IP,
            Self::TcpOrUdp => PORTS,
            Self::Protocol(6) => TCP,
            Self::Protocol(17) => UDP,
            Self::Protocol(1) => ICMP,
            _ => &[],
        }
    }
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "ip" => Self::Ip,
            "transp" => Self::Transport,
            "tcpudp" => Self::TcpOrUdp,
            "payload" | "data" => Self::Payload,
            _ => match crate::names::ip_protocol(name) {
                Some(protocol) => Self::Protocol(protocol),
                None => Self::Protocol(number(name)?.try_into().ok()?),
            },
        })
    }
    fn name(self) -> String {
        match self {
            Self::Ip => String::new(),
            Self::Transport => "transp".into(),
            Self::TcpOrUdp => "tcpudp".into(),
            Self::Payload => "payload".into(),
            Self::Protocol(number) => crate::names::IP_PROTOCOLS
                .iter()
                .find(|(_, known)| *known == number)
                .map_or_else(String::new, |(name, _)| (*name).to_owned()),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    crate::value::integer(text).and_then(|value| u32::try_from(value).ok())
}

const FORM: &str = "expected 'HEADER [NAME] [{OFFSET:LENGTH}] [/PREFIX] [& MASK]'";
const RANGE: &str = "bad offset or length in TCP/IP field";
const MASK: &str = "bad prefix or mask in TCP/IP field";

/// Takes the letters, digits and underscores at the front of a text.
fn word<'t>(text: &mut &'t str) -> &'t str {
    let trimmed = text.trim_start();
    let end = trimmed
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .unwrap_or(trimmed.len());
    *text = &trimmed[end..];
    &trimmed[..end]
}

/// Takes `[OFFSET:LENGTH]` in bytes, or `{OFFSET-LAST}` in bits, if the text begins with it: offset and length in bits.
fn limits(text: &mut &str) -> Result<Option<(u32, u32)>, &'static str> {
    let trimmed = text.trim_start();
    let (unit, close) = match trimmed.chars().next() {
        Some('[') => (8, ']'),
        Some('{') => (1, '}'),
        _ => return Ok(None),
    };
    let end = trimmed.find(close).ok_or(FORM)?;
    let inside = &trimmed[1..end];
    *text = &trimmed[end + 1..];
    let parse = |text: &str| number(text.trim()).filter(|value| *value < 1 << 16).ok_or(FORM);
    let (offset, length) = if let Some((offset, length)) = inside.split_once([':', ',']) {
        (parse(offset)?, parse(length)?)
    } else if let Some((first, last)) = inside.split_once('-') {
        let (first, last) = (parse(first)?, parse(last)?);
        (first, (last + 1).checked_sub(first).ok_or(RANGE)?)
    } else {
        (parse(inside)?, 1)
    };
    if length == 0 { Err(RANGE) } else { Ok(Some((offset * unit, length * unit))) }
}

impl Field {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut rest = text;
        let mut header = Header::of_name(word(&mut rest)).ok_or(FORM)?;
        let mut after = rest;
        if header == Header::Ip && word(&mut after) == "proto" {
            let mut beyond = after;
            if let Some(protocol) = number(word(&mut beyond)).and_then(|value| u8::try_from(value).ok()) {
                header = if protocol == 0 { Header::Ip } else { Header::Protocol(protocol) };
                rest = beyond;
            }
        }
        let mut after = rest;
        let name = word(&mut after);
        let find = |fields: &[Named]| fields.iter().find(|(known, _, _)| *known == name).copied();
        let mut field = find(header.fields()).map(|(_, offset, length)| Self { header, offset, length });
        if header == Header::Ip && field.is_none() {
            field = find(PORTS).map(|(_, offset, length)| Self { header: Header::TcpOrUdp, offset, length });
        }
        if field.is_some() {
            rest = after;
        }
        let mut field = match (limits(&mut rest)?, field) {
            (None, None) => return Err(FORM),
            (None, Some(field)) => field,
            (Some((offset, length)), None) => Self { header, offset, length },
            (Some((offset, length)), Some(field)) if offset + length <= field.length => {
                Self { offset: field.offset + offset, length, ..field }
            }
            _ => return Err(RANGE),
        };
        if let Some(prefix) = rest.trim_start().strip_prefix('/') {
            rest = prefix;
            field.length = number(word(&mut rest)).filter(|length| *length <= field.length).ok_or(MASK)?;
        }
        if let Some(mask) = rest.trim_start().strip_prefix('&') {
            rest = mask;
            let mask = number(word(&mut rest)).filter(|mask| *mask != 0).ok_or(MASK)?;
            let (low, high) = (mask.trailing_zeros(), 32 - mask.leading_zeros());
            if mask.count_ones() != high - low || high > field.length {
                return Err(MASK);
            }
            field = Self { offset: field.offset + field.length - high, length: high - low, ..field };
        }
        if rest.trim().is_empty() { Ok(field) } else { Err("garbage after field specification") }
    }

    /// The field in the form in which it is configured.
    fn describe(&self) -> String {
        let head = if self.header == Header::Ip { "ip".into() } else { self.header.name() };
        let fields = self.header.fields();
        if let Some((name, ..)) = fields.iter().find(|one| (one.1, one.2) == (self.offset, self.length)) {
            return format!("{head} {name}");
        }
        for size in [8, 16, 32] {
            let begin = self.offset - self.offset % size;
            if begin == self.offset
                && self.length <= size
                && let Some((name, ..)) = fields.iter().find(|one| (one.1, one.2) == (begin, size))
            {
                return format!("{head} {name}/{}", self.length);
            }
        }
        match (self.offset, self.length) {
            (offset, 8) if offset % 8 == 0 => format!("{head}[{}]", offset / 8),
            (offset, length) if offset % 8 == 0 && length % 8 == 0 => {
                format!("{head}[{}:{}]", offset / 8, length / 8)
            }
            (offset, 1) => format!("{head}{{{offset}}}"),
            (offset, length) => format!("{head}{{{offset}:{length}}}"),
        }
    }
}

/// `AggregateIP(FIELD [, INCREMENTAL, UNSHIFT_IP_ADDR])`: makes a field the aggregate, such as `tcp[2:2]`.
///
/// Packets without the field leave by output 1 or are dropped.
struct AggregateIp {
    field: Field,
    incremental: bool,
    /// The 32-bit word that has the field, in bytes from the header's begin.
    word: usize,
    shift: u32,
    mask: u32,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let text: Option<Raw> = arguments.required("FIELD");
    let incremental = arguments.keyword("INCREMENTAL").unwrap_or(false);
    let unshifted = arguments.keyword("UNSHIFT_IP_ADDR").unwrap_or(false);
    arguments.complete()?;
    let text = crate::language::text::unquote(&text?.0);
    let fail = |message: &str| {
        setup.errors.error(message);
        None
    };
    let field = match Field::parse(&String::from_utf8_lossy(&text)) {
        Ok(field) => field,
        Err(message) => return fail(message),
    };
    if field.length == 0 {
        return fail(RANGE);
    }
    let last = field.offset + field.length - 1;
    if field.offset / 32 != last / 32 {
        return fail("field specification does not fit within a single word");
    }
    if field.length == 32 && incremental {
        return fail("'INCREMENTAL' is incompatible with field length 32");
    }
    let ones = u32::MAX >> (32 - field.length);
    let right = 31 - last % 32;
    let is_address = field.header == Header::Ip && (96..160).contains(&field.offset);
    let (shift, mask) = if unshifted && is_address { (0, ones << right) } else { (right, ones) };
    let word = field.offset as usize / 32 * 4;
    Some(Rc::new(AggregateIp { field, incremental, word, shift, mask }))
}

impl AggregateIp {
    /// Bytes from the header on, if the packet has it.
    fn header<'p>(&self, packet: &'p Packet) -> Option<&'p [u8]> {
        let ip = packet.network()?;
        if self.field.header == Header::Ip {
            return Some(ip);
        }
        let (fragment, protocol) = (ip.get(6..8)?, *ip.get(9)?);
        if fragment[0] & 0x1F != 0 || fragment[1] != 0 {
            return None;
        }
        let transport = packet.transport()?;
        match self.field.header {
            Header::TcpOrUdp if !matches!(protocol, 6 | 17) => None,
            Header::Protocol(wanted) if protocol != wanted => None,
            Header::Payload => match protocol {
                6 => transport.get(usize::from(*transport.get(12)? >> 4) * 4..),
                17 => transport.get(8..),
                _ => None,
            },
            _ => Some(transport),
        }
    }
}

impl Element for AggregateIp {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let word = self.header(&packet).and_then(|header| header.get(self.word..self.word + 4));
        let Some(word) = word else {
            at.push_or_drop(1, packet, DropReason::Unmatched);
            return None;
        };
        let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]) >> self.shift & self.mask;
        aggregate(&mut packet, value, self.incremental.then_some(self.field.length));
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("header", |this: &Self, _| this.field.header.name());
        handlers.read("bit_offset", |this: &Self, _| this.field.offset);
        handlers.read("bit_length", |this: &Self, _| this.field.length);
        handlers.read("field", |this: &Self, _| this.field.describe());
    }
}
