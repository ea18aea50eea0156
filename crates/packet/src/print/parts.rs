//! The parts of a header after its fixed one: options, extension headers, optional words.
//!
//! Each has a table of its own.
//!
//! The parse has checked the lengths here, or they are wrong: then the rest is one part that says so.

use core::fmt;
use core::net::Ipv6Addr;

use zerocopy::FromBytes;

use super::dissect::Protocol;
use super::show::{Fields, Shown};
use crate::field::{Covered, Field, Show};
use crate::geneve::GeneveOptionHeader;
use crate::gre::{Gre, GreWord};
use crate::ipv6::Extensions;
use crate::pppoe::Ppp;
use crate::protocol;
use crate::protocol_table::OptionFormat;
use crate::srv6::SegmentRouting;

const fn field(name: &'static str, bit: u16, bits: u16, show: Show) -> Field {
    Field { name, bit, bits, covered: Covered::No, show }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $($field:ident $bit:literal $bits:literal $show:ident),*;)*) => {
        $( $(#[$doc])* const $name: &[Field] = &[$( field(stringify!($field), $bit, $bits, Show::$show) ),*]; )*
    };
}
tables! {
    NONE = ;
    OPTION = kind 0 8 Dec, length 8 8 Dec;
    MAXIMUM_SEGMENT_SIZE = kind 0 8 Dec, length 8 8 Dec, maximum_segment_size 16 16 Dec;
    WINDOW_SCALE = kind 0 8 Dec, length 8 8 Dec, shift_count 16 8 Dec;
    TIMESTAMPS = kind 0 8 Dec, length 8 8 Dec, value 16 32 Dec, echo_reply 48 32 Dec;
    // RFC 8200, section 4: all but the fragment header state their length.
    EXTENSION = next_header 0 8 Protocol, header_extension_length 8 8 Dec;
    ROUTING = next_header 0 8 Protocol, header_extension_length 8 8 Dec, routing_type 16 8 Dec, segments_left 24 8 Dec;
    FRAGMENT = next_header 0 8 Protocol, fragment_offset 16 13 Dec, more_fragments 31 1 Flag, identification 32 32 Hex;
    // RFC 4302, section 2.
    AUTHENTICATION = next_header 0 8 Protocol, payload_length 8 8 Dec, security_parameters_index 32 32 Hex,
        sequence_number 64 32 Dec;
    CHECKSUM = checksum 0 16 Hex;
    KEY = key 0 32 Hex;
    CALL = payload_length 0 16 Dec, call_id 16 16 Dec;
    SEQUENCE = sequence_number 0 32 Dec;
    ACKNOWLEDGMENT = acknowledgment_number 0 32 Dec;
    GTPU_OPTIONAL = sequence_number 0 16 Dec, npdu_number 16 8 Dec, next_extension_header_type 24 8 Hex;
    GTPU_EXTENSION = length 0 8 Dec;
    PPP_COMPRESSED = protocol 0 8 Hex;
    PPP_FRAMED = address 0 8 Hex, control 8 8 Hex, protocol 16 16 Hex;
    PPP_FRAMED_COMPRESSED = address 0 8 Hex, control 8 8 Hex, protocol 16 8 Hex;
}

/// The table that fits a PPP header of so many bytes.
pub(super) fn ppp_table(size: usize) -> &'static [Field] {
    match size {
        1 => PPP_COMPRESSED,
        3 => PPP_FRAMED_COMPRESSED,
        4 => PPP_FRAMED,
        _ => Ppp::TABLE,
    }
}

/// One option, extension header or optional word.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its name: `"maximum_segment_size"`, `"hop-by-hop"`.
    pub name: &'static str,
    /// The table of its fixed part.
    pub table: &'static [Field],
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// The fields of its fixed part and their values.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, Shown)> + use<'a> {
        let bytes = self.bytes;
        self.table.iter().map_while(move |field| Some((field, Shown::of(field, bytes)?)))
    }
    /// The bytes after its fixed part.
    pub fn rest(&self) -> &'a [u8] {
        let end = self.table.last().map_or(0, |field| usize::from(field.bit + field.bits).div_ceil(8));
        self.bytes.get(end..).unwrap_or_default()
    }
}

/// Its fields in one line, and the bytes after them; segments as addresses.
impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fields { name: self.name, table: self.table, bytes: self.bytes }.fmt(f)?;
        let mut rest = self.rest();
        if self.name == SegmentRouting::SHORT {
            while let Some((segment, after)) = rest.split_first_chunk::<16>() {
                write!(f, ", segment {}", Ipv6Addr::from(*segment))?;
                rest = after;
            }
        }
        if !rest.is_empty() {
            write!(f, ", data {}", Hex(rest))?;
        }
        Ok(())
    }
}

/// Bytes in hexadecimal, the first 32 of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(32) {
            write!(f, "{byte:02x}")?;
        }
        if self.0.len() > 32 { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

/// The parts of one header, in the order of the bytes.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: Rest<'a>,
}

#[derive(Clone, Debug)]
enum Rest<'a> {
    Nothing,
    /// IPv4's and TCP's options: kind, length, data.
    Options(Protocol, &'a [u8]),
    Extensions(Extensions<'a>),
    Gre(&'a [u8], usize),
    Geneve(&'a [u8]),
    GtpuOptional(&'a [u8]),
    /// Extension headers, the first of type `.0`.
    Gtpu(u8, &'a [u8]),
    /// Bytes of the header that no table names.
    Data(&'a [u8]),
}

impl<'a> Parts<'a> {
    pub(super) fn of(protocol: Protocol, bytes: &'a [u8], extensions: Option<Extensions<'a>>) -> Self {
        let after = |size: usize| bytes.get(size..).unwrap_or_default();
        let rest = match (protocol.options(), extensions) {
            (Some(options), extensions) => match (options.format, extensions) {
                (OptionFormat::KindLengthData, _) => Rest::Options(protocol, after(options.fixed)),
                (OptionFormat::Extensions, Some(extensions)) => Rest::Extensions(extensions),
                (OptionFormat::Extensions, None) => Rest::Nothing,
                (OptionFormat::GreWords, _) => Rest::Gre(bytes, 0),
                (OptionFormat::Geneve, _) => Rest::Geneve(after(options.fixed)),
                (OptionFormat::Gtpu, _) => Rest::GtpuOptional(bytes),
            },
            // Its table depends on its shape, and covers all of it.
            (None, _) if protocol == Protocol::Ppp => Rest::Nothing,
            (None, _) => {
                let last = protocol.table().last();
                let end = last.map_or(0, |field| usize::from(field.bit + field.bits).div_ceil(8));
                // Reserved bits after the last field are no part.
                if bytes.len() > end.next_multiple_of(4) { Rest::Data(after(end)) } else { Rest::Nothing }
            }
        };
        Self { rest }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;
    fn next(&mut self) -> Option<Part<'a>> {
        match core::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Nothing => None,
            Rest::Data([]) => None,
            Rest::Data(bytes) => Some(Part { name: "data", table: NONE, bytes }),
            Rest::Options(protocol, bytes) => {
                let (part, rest) = option(protocol, bytes)?;
                self.rest = Rest::Options(protocol, rest);
                Some(part)
            }
            Rest::Extensions(mut extensions) => {
                let extension = extensions.next()?;
                self.rest = Rest::Extensions(extensions);
                Some(extension_part(extension.kind, extension.bytes))
            }
            Rest::Gre(bytes, index) => {
                let (part, index) = gre_word(bytes, index)?;
                self.rest = Rest::Gre(bytes, index);
                Some(part)
            }
            Rest::Geneve([]) => None,
            Rest::Geneve(bytes) => {
                let size = 4 + 4 * usize::from(bytes.get(3)? & 31);
                let Some((option, rest)) = bytes.split_at_checked(size) else { return Some(lying(bytes)) };
                self.rest = Rest::Geneve(rest);
                Some(Part {
                    name: GeneveOptionHeader::SHORT,
                    table: GeneveOptionHeader::TABLE,
                    bytes: option,
                })
            }
            Rest::GtpuOptional(bytes) => {
                let optional = bytes.get(8..12)?;
                let kind = if bytes[0] & 4 != 0 { optional[3] } else { 0 };
                self.rest = Rest::Gtpu(kind, &bytes[12..]);
                Some(Part { name: "optional", table: GTPU_OPTIONAL, bytes: optional })
            }
            Rest::Gtpu(0, _) | Rest::Gtpu(_, []) => None,
            Rest::Gtpu(_, bytes) => {
                let Some((extension, rest)) = bytes.split_at_checked(4 * usize::from(bytes[0])) else {
                    return Some(lying(bytes));
                };
                self.rest = Rest::Gtpu(*extension.last()?, rest);
                Some(Part { name: "extension", table: GTPU_EXTENSION, bytes: extension })
            }
        }
    }
}

fn lying(bytes: &[u8]) -> Part<'_> {
    Part { name: "option whose length lies", table: NONE, bytes }
}

/// The first option that is not padding, and the bytes after it.
fn option(protocol: Protocol, mut bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
    while let [1, rest @ ..] = bytes {
        bytes = rest;
    }
    let (kind, length) = match bytes {
        [] | [0, ..] => return None,
        [kind, length, ..] if *length >= 2 && usize::from(*length) <= bytes.len() => {
            (*kind, usize::from(*length))
        }
        _ => return Some((lying(bytes), &[])),
    };
    let (option, rest) = bytes.split_at(length);
    let (name, table) = match (protocol, kind, length) {
        (Protocol::Tcp, 2, 4) => ("maximum_segment_size", MAXIMUM_SEGMENT_SIZE),
        (Protocol::Tcp, 3, 3) => ("window_scale", WINDOW_SCALE),
        (Protocol::Tcp, 4, 2) => ("sack_permitted", OPTION),
        (Protocol::Tcp, 5, _) => ("sack", OPTION),
        (Protocol::Tcp, 8, 10) => ("timestamps", TIMESTAMPS),
        (Protocol::Tcp, 19, _) => ("md5", OPTION),
        (Protocol::Tcp, 29, _) => ("authentication", OPTION),
        (Protocol::Tcp, 30, _) => ("multipath", OPTION),
        (Protocol::Tcp, 34, _) => ("fast_open", OPTION),
        (Protocol::Ipv4, 7, _) => ("record_route", OPTION),
        (Protocol::Ipv4, 68, _) => ("timestamp", OPTION),
        (Protocol::Ipv4, 131, _) => ("loose_source_route", OPTION),
        (Protocol::Ipv4, 137, _) => ("strict_source_route", OPTION),
        (Protocol::Ipv4, 148, _) => ("router_alert", OPTION),
        _ => ("option", OPTION),
    };
    Some((Part { name, table, bytes: option }, rest))
}

fn extension_part(kind: u8, bytes: &[u8]) -> Part<'_> {
    let name = protocol::name(kind).unwrap_or("extension");
    let (name, table) = match kind {
        protocol::FRAGMENT => (name, FRAGMENT),
        protocol::AH => (name, AUTHENTICATION),
        protocol::ROUTING if SegmentRouting::read(bytes).is_ok() => {
            (SegmentRouting::SHORT, SegmentRouting::TABLE)
        }
        protocol::ROUTING => (name, ROUTING),
        _ => (name, EXTENSION),
    };
    Part { name, table, bytes }
}

/// The first optional word from number `index` on.
fn gre_word(bytes: &[u8], index: usize) -> Option<(Part<'_>, usize)> {
    let (header, _) = Gre::ref_from_prefix(bytes).ok()?;
    let words = [
        (GreWord::Checksum, "checksum", CHECKSUM),
        (GreWord::Key, "key", if header.is_pptp() { CALL } else { KEY }),
        (GreWord::SequenceNumber, "sequence_number", SEQUENCE),
        (GreWord::Acknowledgment, "acknowledgment_number", ACKNOWLEDGMENT),
    ];
    for (i, (word, name, table)) in words.into_iter().enumerate().skip(index) {
        if let Some(at) = header.word_offset(word) {
            return Some((Part { name, table, bytes: bytes.get(at..at + 4)? }, i + 1));
        }
    }
    None
}
