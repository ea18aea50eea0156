//! Dissects a frame, layer by layer, as far as this crate's headers reach. Every printer here starts from
//! this.
//!
//! The [table of headers](Protocol) gives the next header, and the field tables its form.

use crate::field::Field;
use crate::icmpv4::Icmpv4;
use crate::icmpv6::Icmpv6;
use crate::ip::IpRef;
use crate::ipv6::{Extensions, Ipv6, Ipv6Facts};
pub use crate::protocol_table::Protocol;
use crate::quoted::Quoted;
use crate::stack::{Header, Malformed, Stack, Wire};
use crate::tcp::Tcp;
use crate::udp::Udp;

use super::parts::Parts;
use super::show::{Fields, Shown};

/// The most headers of a dissection; deeper headers stay payload.
pub const MOST_LAYERS: usize = 32;

/// A place in a frame, as a stack of one entry: how far the dissection has come.
#[derive(Clone, Copy, Debug)]
struct Position {
    end: usize,
    limit: usize,
    next: u16,
}

impl Stack for Position {
    type Top = Wire;
    fn top(&self) -> (usize, ()) {
        (self.end, ())
    }
    fn end(&self) -> usize {
        self.end
    }
    fn limit(&self, frame: usize) -> usize {
        self.limit.min(frame)
    }
    fn next(&self) -> u16 {
        self.next
    }
    fn resized(self, _: isize) -> Self {
        self
    }
    fn stretched(self, _: isize) -> Self {
        self
    }
    fn announcing(self, _: u16) -> Self {
        self
    }
    type Packed = Self;
    fn pack(self) -> Self {
        self
    }
    fn unpack(packed: Self) -> Self {
        packed
    }
    fn restate(&self, _: &mut [u8]) {}
}

/// One header of a frame.
#[derive(Clone, Copy)]
pub struct DissectedLayer<'a> {
    /// Which header it is.
    pub protocol: Protocol,
    /// Where it begins, in bytes from the frame's first.
    pub offset: usize,
    /// Its bytes, options and extension headers included.
    pub bytes: &'a [u8],
    /// It is part of a packet that an ICMP error quotes, so it may be cut short.
    pub quoted: bool,
    extensions: Option<Ipv6Facts>,
}

impl<'a> DissectedLayer<'a> {
    /// Its short name.
    pub fn name(&self) -> &'static str {
        self.protocol.name()
    }
    /// The table that fits its fixed part.
    pub fn table(&self) -> &'static [Field] {
        match self.protocol {
            Protocol::Ppp => super::parts::ppp_table(self.bytes.len()),
            protocol => protocol.table(),
        }
    }
    /// The fields of its fixed part and their values, in the order of the bytes.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, Shown)> + use<'a> {
        let bytes = self.bytes;
        self.table().iter().map_while(move |field| Some((field, Shown::of(field, bytes)?)))
    }
    /// The value of the field with this name.
    pub fn value(&self, name: &str) -> Option<u128> {
        self.table().iter().find(|field| field.name == name)?.read(self.bytes)
    }
    /// A flag's value; absent ones are clear.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name) == Some(1)
    }
    /// As [`value`](DissectedLayer::value), ready to be printed.
    pub fn shown(&self, name: &str) -> Option<Shown> {
        Shown::of(self.table().iter().find(|field| field.name == name)?, self.bytes)
    }
    /// The parts after the fixed part: options, extension headers, optional words.
    pub fn parts(&self) -> Parts<'a> {
        Parts::of(self.protocol, self.bytes, self.extensions())
    }
    fn extensions(&self) -> Option<Extensions<'a>> {
        self.extensions.map(|facts| Ipv6::view(self.bytes, facts).extensions())
    }
    /// The upper-layer protocol of IP, after all extension headers.
    pub(super) fn upper_protocol(&self) -> Option<u8> {
        match (self.protocol, self.extensions) {
            (Protocol::Ipv6, Some(facts)) => Some(facts.protocol()),
            (Protocol::Ipv4, _) => self.value("protocol").map(|number| number as u8),
            _ => None,
        }
    }
}

/// The fixed part in one line.
impl core::fmt::Display for DissectedLayer<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        Fields { name: self.name(), table: self.table(), bytes: self.bytes }.fmt(f)
    }
}
impl core::fmt::Debug for DissectedLayer<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// A frame taken apart.
#[derive(Clone, Debug)]
pub struct Dissection<'a> {
    frame: &'a [u8],
    layers: [Option<DissectedLayer<'a>>; MOST_LAYERS],
    count: usize,
    /// The place of the innermost header's payload.
    payload: (usize, usize),
    malformed: Option<(usize, Malformed)>,
}

impl<'a> Dissection<'a> {
    /// The whole frame.
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }
    /// The headers, outermost first; those of a packet that an ICMP error quotes come last.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = &DissectedLayer<'a>> + Clone {
        self.layers[..self.count].iter().flatten()
    }
    /// Where the header that could not be read begins, in bytes from the frame's first, and which rule it breaks.
    pub fn malformed(&self) -> Option<&(usize, Malformed)> {
        self.malformed.as_ref()
    }
    /// Where the payload begins, in bytes from the frame's first.
    pub fn payload_offset(&self) -> usize {
        self.payload.0
    }
    /// The bytes after the innermost header, up to the end that the innermost length field states.
    pub fn payload(&self) -> &'a [u8] {
        self.frame.get(self.payload.0..self.payload.1).unwrap_or_default()
    }
    /// The bytes after the payload: padding, and trailers of outer headers.
    pub fn padding(&self) -> &'a [u8] {
        self.frame.get(self.payload.1..).unwrap_or_default()
    }

    fn push(&mut self, layer: DissectedLayer<'a>) -> bool {
        let Some(place) = self.layers.get_mut(self.count) else { return false };
        *place = Some(layer);
        self.count += 1;
        true
    }

    /// Walks from `at` on, where a header of kind `first` begins.
    fn walk(&mut self, first: Protocol, at: Position) {
        let (mut protocol, mut at) = (first, at);
        while self.count < MOST_LAYERS {
            self.payload = (at.end, at.limit);
            let after = match protocol.parse(at, self.frame) {
                Ok((end, limit, next)) => Position { end, limit, next },
                Err(malformed) => {
                    self.malformed = Some((at.end, malformed));
                    return;
                }
            };
            let bytes = &self.frame[at.end..after.end];
            let extensions = match protocol {
                Protocol::Ipv6 => {
                    Ipv6::find(&self.frame[at.end..at.limit], at.next).ok().map(|found| found.facts)
                }
                _ => None,
            };
            self.push(DissectedLayer { protocol, offset: at.end, bytes, quoted: false, extensions });
            at = after;
            self.payload = (at.end, at.limit);
            if let Some(quoted) = quoted(protocol, bytes, &self.frame[at.end..at.limit]) {
                return self.quote(quoted, at.end);
            }
            match protocol.follower(at.next) {
                // A header without payload announces a header that does not follow.
                Some(next) if at.end < at.limit => protocol = next,
                _ => return,
            }
        }
    }

    /// Dissects the packet that an ICMP error quotes: its IP header, and the quoted part of the transport
    /// header.
    ///
    /// Its length fields also count bytes that were not quoted, so nothing here is malformed.
    fn quote(&mut self, quoted: Quoted<'a>, at: usize) {
        let (protocol, extensions) = match quoted.ip() {
            IpRef::V4(_) => (Protocol::Ipv4, None),
            IpRef::V6(header) => (Protocol::Ipv6, Some(header.facts())),
        };
        let inside = at + quoted.header_len();
        let Some(bytes) = self.frame.get(at..inside) else { return };
        if !self.push(DissectedLayer { protocol, offset: at, bytes, quoted: true, extensions }) {
            return;
        }
        self.payload.0 = inside;
        let (transport, number) = (quoted.transport(), u16::from(quoted.ip().protocol()));
        let Some(protocol) = protocol.follower(number) else { return };
        let size = match protocol {
            Protocol::Tcp => {
                let words = transport.get(12).map_or(0, |offset| usize::from(offset >> 4));
                (4 * words).max(Tcp::SIZE)
            }
            Protocol::Udp | Protocol::Icmpv4 | Protocol::Icmpv6 => Udp::SIZE,
            _ => return,
        };
        if quoted.ip().is_later_fragment() || transport.is_empty() {
            return;
        }
        let bytes = &transport[..size.min(transport.len())];
        if self.push(DissectedLayer { protocol, offset: inside, bytes, quoted: true, extensions: None }) {
            self.payload.0 = inside + bytes.len();
        }
    }
}

/// Dissects an Ethernet frame. Never fails: an unreadable header is named and stays payload.
pub fn dissect(frame: &[u8]) -> Dissection<'_> {
    dissect_from(Protocol::Ethernet, frame)
}

/// Dissects a packet that begins with an IP header. The first nibble gives its version.
pub fn dissect_ip(packet: &[u8]) -> Dissection<'_> {
    let first =
        if packet.first().is_some_and(|byte| byte >> 4 == 6) { Protocol::Ipv6 } else { Protocol::Ipv4 };
    dissect_from(first, packet)
}

/// Takes a packet apart that begins with a header of kind `first`.
pub fn dissect_from(first: Protocol, frame: &[u8]) -> Dissection<'_> {
    let mut dissection = Dissection {
        frame,
        layers: [None; MOST_LAYERS],
        count: 0,
        payload: (0, frame.len()),
        malformed: None,
    };
    dissection.walk(first, Position { end: 0, limit: frame.len(), next: 0 });
    dissection
}

/// The packet that an ICMP error quotes, if `header` is one's.
fn quoted<'a>(protocol: Protocol, header: &[u8], payload: &'a [u8]) -> Option<Quoted<'a>> {
    match protocol {
        Protocol::Icmpv4 => Icmpv4::view(header, ()).quoted(payload),
        Protocol::Icmpv6 => Icmpv6::view(header, ()).quoted(payload),
        _ => None,
    }
}
