//! IPv6: the fixed header and every extension header after it, walked once.

use core::fmt;
use core::net::Ipv6Addr;
use core::num::NonZeroU64;
use core::ops::Deref;

use zerocopy::FromBytes;

use crate::ethernet::ethertype;
use crate::ip::{FIRST_FRAGMENT, announced_by_first_fragment};
use crate::protocol;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, Usual, malformed, whole};

crate::header! {
    /// The fixed part of an IPv6 header (RFC 8200, section 3).
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |Version|   DSCP    |ECN|             Flow Label                |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |         Payload Length        |  Next Header  |   Hop Limit   |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                                                               |
    /// +                         Source Address                        +
    /// |                        (four such lines)                      |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                                                               |
    /// +                      Destination Address                      +
    /// |                        (four such lines)                      |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Ipv6, "ipv6", 40 bytes {
        /// 6.
        version, set_version: u8 = 0, 4, No, Dec, kept;
        /// Differentiated services code point, 0 to 63: the high bits of the traffic class.
        dscp, set_dscp: u8 = 4, 6, No, Dec, plain;
        /// Explicit congestion notification, 0 to 3: the low bits of the traffic class.
        ecn, set_ecn: u8 = 10, 2, No, Dec, plain;
        /// Flow label, 20 bits.
        flow_label, set_flow_label: u32 = 12, 20, No, Hex, plain;
        /// Bytes after the fixed part, extension headers included; 0 in a jumbogram.
        payload_length, set_payload_length: u16 = 32, 16, No, Dec, kept;
        /// The header after the fixed part: an extension header or the upper layer.
        next_header, set_next_header: u8 = 48, 8, No, Protocol, kept;
        /// Hops left.
        hop_limit, set_hop_limit: u8 = 56, 8, No, Dec, plain;
        /// The sender's address.
        source, put_source: Ipv6Addr = 64, 128, Pseudo, Ipv6, kept;
        /// The receiver's address (with a routing header, of the next hop in it).
        destination, put_destination: Ipv6Addr = 192, 128, Pseudo, Ipv6, kept;
    }
}

crate::field::display! { Ipv6 }

impl Ipv6 {
    /// A header without extension headers for `payload` bytes (limited to what 16 bits can state), hop limit
    /// 64.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: usize) -> Self {
        let mut header = Self([0; 40]);
        header.set_version(6);
        header.set_payload_length(payload.min(0xffff) as u16);
        header.set_next_header(next_header);
        header.set_hop_limit(64);
        header.put_source(source);
        header.put_destination(destination);
        header
    }
    /// DSCP and ECN as one byte.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        self.dscp() << 2 | self.ecn()
    }
    /// Takes one hop off; 0 stays 0.
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) {
        self.0[7] = self.0[7].saturating_sub(1);
    }
}

/// The most extension headers that a parse walks.
///
/// A parse does not look for the transport header behind more of them. Then nothing is announced, and the
/// payload begins with the first header that was not walked.
pub const MAX_EXTENSIONS: usize = 16;

/// Results of the walk over the extension headers, in one word, so that it stays in a register.
///
/// From the least significant bit on, with offsets in bytes from the start:
///
/// - where the last header's "next header" byte is: 6, or in an extension header (16 bits)
/// - where the fragment header is, 0 without one (16 bits)
/// - where the jumbo payload length is, 0 without one (16 bits)
/// - the protocol (8 bits)
/// - whether it is a later fragment (1 bit)
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Facts(NonZeroU64);

impl Ipv6Facts {
    const fn new(protocol: u8) -> Self {
        // Not zero, since the fixed header's "next header" byte is the seventh.
        Self(NonZeroU64::MIN.saturating_add(5)).with_protocol(protocol)
    }
    const fn with(self, mask: u64, bits: u64) -> Self {
        match NonZeroU64::new(self.0.get() & !mask | bits) {
            Some(word) => Self(word),
            // Only `with_announcer(0)` would come here, and nothing announces from byte 0.
            None => self,
        }
    }
    const fn with_announcer(self, at: u16) -> Self {
        self.with(0xffff, at as u64)
    }
    const fn with_fragment(self, at: u16) -> Self {
        self.with(0xffff << 16, (at as u64) << 16)
    }
    const fn with_jumbo(self, at: u16) -> Self {
        self.with(0xffff << 32, (at as u64) << 32)
    }
    const fn with_protocol(self, protocol: u8) -> Self {
        self.with(0xff << 48, (protocol as u64) << 48)
    }
    const fn as_later(self) -> Self {
        self.with(0, 1 << 56)
    }
    #[inline(always)]
    pub(crate) const fn announcer(&self) -> usize {
        (self.0.get() & 0xffff) as usize
    }
    #[inline(always)]
    const fn jumbo(&self) -> usize {
        (self.0.get() >> 32 & 0xffff) as usize
    }
    /// The upper-layer protocol: in a later fragment, that of the whole packet; 50 for ESP; 59 for nothing.
    ///
    /// Where the transport is [hidden](Self::hides_transport), the number of the first header that was not walked.
    #[inline(always)]
    pub const fn protocol(&self) -> u8 {
        (self.0.get() >> 48) as u8
    }
    /// The place of the fragment header in bytes from the IPv6 header's first, if there is one.
    #[inline(always)]
    pub const fn fragment_header(&self) -> Option<usize> {
        match self.0.get() >> 16 & 0xffff {
            0 => None,
            at => Some(at as usize),
        }
    }
    /// A fragment, but not the first: it holds no transport header.
    #[inline(always)]
    pub const fn is_later_fragment(&self) -> bool {
        self.0.get() >> 56 & 1 == 1
    }
    /// More than [`MAX_EXTENSIONS`] extension headers come before the transport header, which was not looked for.
    #[inline(always)]
    pub const fn hides_transport(&self) -> bool {
        is_extension(self.protocol()) && !self.is_later_fragment()
    }
}

impl fmt::Debug for Ipv6Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ipv6Facts")
            .field("protocol", &self.protocol())
            .field("fragment_header", &self.fragment_header())
            .field("is_later_fragment", &self.is_later_fragment())
            .field("announcer", &self.announcer())
            .field("jumbo", &self.jumbo())
            .finish()
    }
}

/// An IPv6 header with its extension headers, for reading.
#[derive(Clone, Copy)]
pub struct Ipv6Ref<'a> {
    fixed: &'a Ipv6,
    extensions: &'a [u8],
    facts: Ipv6Facts,
}

/// An IPv6 header with its extension headers, for writing.
pub struct Ipv6Mut<'a> {
    fixed: &'a mut Ipv6,
    extensions: &'a mut [u8],
    facts: Ipv6Facts,
}

impl Deref for Ipv6Ref<'_> {
    type Target = Ipv6;
    #[inline(always)]
    fn deref(&self) -> &Ipv6 {
        self.fixed
    }
}
impl Deref for Ipv6Mut<'_> {
    type Target = Ipv6;
    #[inline(always)]
    fn deref(&self) -> &Ipv6 {
        self.fixed
    }
}

/// Setters of the fixed part, except for lengths and the next header, which were checked.
impl Ipv6Mut<'_> {
    /// As [`Ipv6::decrement_hop_limit`].
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) {
        self.fixed.decrement_hop_limit();
    }
    /// As [`Ipv6::set_hop_limit`].
    #[inline(always)]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.fixed.set_hop_limit(hop_limit);
    }
    /// As [`Ipv6::set_dscp`].
    #[inline(always)]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.fixed.set_dscp(dscp);
    }
    /// As [`Ipv6::set_ecn`].
    #[inline(always)]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.fixed.set_ecn(ecn);
    }
    /// As [`Ipv6::set_flow_label`].
    #[inline(always)]
    pub fn set_flow_label(&mut self, flow_label: u32) {
        self.fixed.set_flow_label(flow_label);
    }
}

impl<'a> Ipv6Ref<'a> {
    /// The fixed part, for as long as the bytes live.
    #[inline(always)]
    pub fn fixed(&self) -> &'a Ipv6 {
        self.fixed
    }
    /// The facts that the parse remembers.
    #[inline(always)]
    pub fn facts(&self) -> Ipv6Facts {
        self.facts
    }
    /// The upper-layer protocol, after all extension headers.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.facts.protocol()
    }
    /// The bytes of all extension headers.
    #[inline(always)]
    pub fn extensions_bytes(&self) -> &'a [u8] {
        self.extensions
    }
    /// The extension headers one by one.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { next: self.fixed.next_header(), rest: self.extensions }
    }
    /// The fragment header's 8 bytes.
    fn fragment(&self) -> Option<&'a [u8; 8]> {
        let at = self.facts.fragment_header()?.checked_sub(Ipv6::SIZE)?;
        self.extensions.get(at..)?.first_chunk()
    }
    /// The packet is a part of a larger one.
    ///
    /// A packet with a fragment header can be whole: an "atomic fragment" (RFC 6946).
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.facts.fragment_header().is_some() && (self.fragment_offset() != 0 || self.more_fragments())
    }
    /// A fragment, but not the first.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.facts.is_later_fragment()
    }
    /// Where this fragment's payload belongs, in units of 8 bytes; 0 without a fragment header.
    pub fn fragment_offset(&self) -> u16 {
        self.fragment().map_or(0, |bytes| u16::from_be_bytes([bytes[2], bytes[3]]) >> 3)
    }
    /// More fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.fragment().is_some_and(|bytes| bytes[3] & 1 == 1)
    }
    /// Groups the fragments of one packet; `None` without a fragment header.
    pub fn identification(&self) -> Option<u32> {
        self.fragment().map(|bytes| u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
    }
}

impl<'a> Ipv6Mut<'a> {
    /// The same header, for reading.
    #[inline(always)]
    pub fn as_ref(&self) -> Ipv6Ref<'_> {
        Ipv6Ref { fixed: self.fixed, extensions: self.extensions, facts: self.facts }
    }
    /// The facts that the parse remembers.
    #[inline(always)]
    pub fn facts(&self) -> Ipv6Facts {
        self.facts
    }
    /// The upper-layer protocol, after all extension headers.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.facts.protocol()
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// The number that announced it: see [`protocol`].
    pub kind: u8,
    /// The number of the header after it.
    pub next: u8,
    /// All its bytes, the "next header" byte first.
    pub bytes: &'a [u8],
}

/// The extension headers of one packet, in order.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let kind = self.next;
        let size = extension_size(kind, self.rest)?;
        let (bytes, rest) = self.rest.split_at_checked(size)?;
        self.next = *bytes.first()?;
        self.rest = rest;
        Some(Extension { kind, next: self.next, bytes })
    }
}

/// The bytes that an extension header takes by its own length field.
///
/// `None` if `kind` is no extension header that can be walked or fewer than its first two bytes are there.
#[inline(always)]
fn extension_size(kind: u8, bytes: &[u8]) -> Option<usize> {
    let length = || bytes.get(1).map(|length| usize::from(*length));
    match kind {
        protocol::HOP_BY_HOP
        | protocol::ROUTING
        | protocol::DESTINATION_OPTIONS
        | protocol::MOBILITY
        | protocol::HIP
        | protocol::SHIM6 => Some((length()? + 1) * 8),
        protocol::FRAGMENT => length().map(|_| 8),
        // RFC 4302, section 2.2: in words of 4 bytes, less 2.
        protocol::AH => Some((length()? + 2) * 4),
        _ => None,
    }
}

#[inline(always)]
const fn is_extension(kind: u8) -> bool {
    matches!(
        kind,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AH
            | protocol::DESTINATION_OPTIONS
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6
    )
}

/// The announcement of upper-layer protocol `number`.
#[inline(always)]
const fn announces(number: u8) -> u16 {
    if matches!(number, protocol::ESP | protocol::NO_NEXT_HEADER) { NOTHING } else { number as u16 }
}

impl Header for Ipv6 {
    type Facts = Ipv6Facts;
    type Ref<'a> = Ipv6Ref<'a>;
    type Mut<'a> = Ipv6Mut<'a>;
    const EXACT: bool = true;
    const UNSTATED_IS_EMPTY: bool = true;
    const SHAPES: bool = false;
    const FAST_PATH: bool = true;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find_usual<const SHAPE: u8>(
        bytes: &[u8],
        at: usize,
        _: u16,
        usual: Usual,
    ) -> Option<Found<Ipv6Facts>> {
        let total = usual.ip::<SHAPE>(at, ethertype::IPV6)?;
        // Checked once more: an operator's author can announce another number.
        let number = bytes.get(6).copied().filter(|number| Usual::is_followed_by(*number))?;
        Some(Found {
            facts: Ipv6Facts::new(number),
            len: Self::SIZE,
            total: Some(total),
            next: number.into(),
        })
    }
    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<Ipv6Facts>, Malformed> {
        let Some(fixed) = bytes.first_chunk::<40>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        if fixed[0] >> 4 != 6 {
            return Err(malformed::<Self>("its version is not 6", 6, usize::from(fixed[0] >> 4)));
        }
        let total = Self::SIZE + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        if is_extension(fixed[6]) {
            let (facts, rest) = walk_in_registers(bytes, fixed[6], total);
            let Some(facts) = NonZeroU64::new(facts) else {
                return Err(why_not(bytes, fixed[6], total));
            };
            return Ok(Found {
                facts: Ipv6Facts(facts),
                len: usize::from((rest >> 16) as u16),
                total: Some((rest >> 32) as usize),
                next: rest as u16,
            });
        }
        if total > bytes.len() {
            return Err(malformed::<Self>(
                "its payload length points beyond what encloses it",
                total,
                bytes.len(),
            ));
        }
        let facts = Ipv6Facts::new(fixed[6]);
        Ok(Found { facts, len: Self::SIZE, total: Some(total), next: announces(fixed[6]) })
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<Ipv6Facts>, Malformed> {
        let refused = match Self::find(bytes, announced) {
            // A payload length of 0 is right only where nothing follows: no segment is empty.
            Ok(found)
                if !(slack.unstated
                    && found.total == Some(Self::SIZE)
                    && bytes.len() > Self::SIZE
                    && bytes.get(6).is_some_and(|next| protocol::is_segmented(*next))) =>
            {
                return Ok(found);
            }
            Ok(found) => return Ok(Found { total: Some(bytes.len()), ..found }),
            Err(refused) => refused,
        };
        let Some(fixed) = bytes.first_chunk::<40>() else { return Err(refused) };
        if fixed[0] >> 4 != 6 {
            return Err(refused);
        }
        let total = Self::SIZE + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        match walk(bytes, fixed[6], total, true) {
            Ok(found)
                if found.total.is_some_and(|total| total <= bytes.len().saturating_add(slack.missing)) =>
            {
                Ok(found)
            }
            _ => Err(refused),
        }
    }
    #[inline(always)]
    fn view(bytes: &[u8], facts: Ipv6Facts) -> Ipv6Ref<'_> {
        let (fixed, extensions) = whole(Self::ref_from_prefix(bytes));
        Ipv6Ref { fixed, extensions, facts }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], facts: Ipv6Facts) -> Ipv6Mut<'_> {
        let (fixed, extensions) = whole(Self::mut_from_prefix(bytes));
        Ipv6Mut { fixed, extensions, facts }
    }
    fn announce(header: Ipv6Mut<'_>, next: u16) {
        match header.facts.announcer().checked_sub(Self::SIZE) {
            None => header.fixed.set_next_header(next as u8),
            Some(at) => {
                if let Some(byte) = header.extensions.get_mut(at) {
                    *byte = next as u8;
                }
            }
        }
    }
    fn set_total(header: Ipv6Mut<'_>, total: usize) {
        let payload = total.saturating_sub(Self::SIZE);
        let jumbo = header.facts.jumbo().checked_sub(Self::SIZE);
        match jumbo.and_then(|at| header.extensions.get_mut(at..)?.first_chunk_mut::<4>()) {
            Some(length) => *length = (payload as u32).to_be_bytes(),
            None => header.fixed.set_payload_length(payload.min(0xffff) as u16),
        }
    }
}

/// The result of [`walk`] in two registers; see [`crate::link`] for why.
///
/// The first holds the facts, 0 if they are refused. The second holds the next header's number, the length
/// and the end.
#[inline(never)]
fn walk_in_registers(bytes: &[u8], kind: u8, total: usize) -> (u64, u64) {
    match walk(bytes, kind, total, false) {
        Ok(Found { facts, len, total, next }) => {
            let total = total.map_or(0, |total| total as u64);
            (facts.0.get(), u64::from(next) | (len as u64) << 16 | total << 32)
        }
        Err(_) => (0, 0),
    }
}

/// Which rule extension headers that [`walk`] refused break.
#[cold]
#[inline(never)]
fn why_not(bytes: &[u8], kind: u8, total: usize) -> Malformed {
    match walk(bytes, kind, total, false) {
        Err(malformed) => malformed,
        // Only refused headers come here.
        Ok(found) => malformed::<Ipv6>("its extension headers are refused", found.len, bytes.len()),
    }
}

/// Walks the extension headers from `kind` on, which announces the first. A `truncated` packet may end anywhere after
/// them.
fn walk(bytes: &[u8], kind: u8, total: usize, truncated: bool) -> Result<Found<Ipv6Facts>, Malformed> {
    let mut facts = Ipv6Facts::new(kind);
    let (mut total, mut len) = (total, Ipv6::SIZE);
    if kind == protocol::HOP_BY_HOP
        && let Some((at, payload)) = jumbo(bytes)
    {
        if total != Ipv6::SIZE {
            return Err(malformed::<Ipv6>(
                "a jumbo payload option beside a payload length (RFC 2675)",
                0,
                total - Ipv6::SIZE,
            ));
        }
        if payload <= 0xffff {
            return Err(malformed::<Ipv6>(
                "a jumbo payload length below 65536 (RFC 2675)",
                0x1_0000,
                payload,
            ));
        }
        facts = facts.with_jumbo(at as u16);
        total = payload.saturating_add(Ipv6::SIZE);
    }
    if total > bytes.len() && !truncated {
        return Err(malformed::<Ipv6>(
            "its payload length points beyond what encloses it",
            total,
            bytes.len(),
        ));
    }
    let bytes = bytes.get(..total).unwrap_or(bytes);
    let (mut walked, mut first) = (0, false);
    while is_extension(facts.protocol()) {
        if walked == MAX_EXTENSIONS {
            // RFC 8200 sets no limit. A sender that hides a transport header costs no more than this walk.
            return Ok(Found { facts, len, total: Some(total), next: NOTHING });
        }
        walked += 1;
        let rest = bytes.get(len..).unwrap_or(&[]);
        let size = extension_size(facts.protocol(), rest).unwrap_or(8);
        let Some(extension) = rest.get(..size) else {
            return Err(malformed::<Ipv6>("an extension header ends beyond the payload", size, rest.len()));
        };
        let this = facts.protocol();
        facts = facts.with_announcer(len as u16).with_protocol(extension[0]);
        if this == protocol::FRAGMENT {
            facts = facts.with_fragment(len as u16);
            if u16::from_be_bytes([extension[2], extension[3]]) >> 3 != 0 {
                facts = facts.as_later();
                len += size;
                return Ok(Found { facts, len, total: Some(total), next: NOTHING });
            }
            first = extension[3] & 1 == 1;
        }
        len += size;
    }
    let next = match announces(facts.protocol()) {
        NOTHING => NOTHING,
        // Of the rest a capture holds nothing.
        next if first && bytes.len() < total => FIRST_FRAGMENT | next,
        _ if first => announced_by_first_fragment(facts.protocol(), bytes.get(len..).unwrap_or_default()),
        next => next,
    };
    Ok(Found { facts, len, total: Some(total), next })
}

impl Ipv6 {
    /// Finds the header at the start of a packet that may be cut short, as ICMP errors quote it.
    ///
    /// Answers the facts of a parse, the length with extension headers, and where the packet ends in `bytes`.
    pub(crate) fn find_quoted(bytes: &[u8]) -> Result<(Ipv6Facts, usize, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<40>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        if fixed[0] >> 4 != 6 {
            return Err(malformed::<Self>("its version is not 6", 6, usize::from(fixed[0] >> 4)));
        }
        let total = Self::SIZE + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let found = walk(bytes, fixed[6], total, true)?;
        Ok((found.facts, found.len, found.total.map_or(bytes.len(), |total| total.min(bytes.len()))))
    }
}

impl Ipv6 {
    /// The view of `header`: an IPv6 header with all its extension headers.
    ///
    /// Its lengths are not looked at, and the facts of a parse are not known.
    pub(crate) fn whole_header(header: &[u8]) -> Ipv6Ref<'_> {
        Self::view(header, Ipv6Facts::new(protocol::NO_NEXT_HEADER))
    }
    /// The place where such a header announces the next header, as a parse would store it.
    pub(crate) fn facts_of_built(header: &[u8]) -> Ipv6Facts {
        let (mut announcer, mut end) = (6, Self::SIZE);
        let mut number = Self::whole_header(header).next_header();
        for extension in Self::whole_header(header).extensions() {
            (announcer, number) = (end, extension.next);
            end += extension.bytes.len();
        }
        Ipv6Facts::new(number).with_announcer(announcer as u16)
    }
}

/// Where the hop-by-hop header right after the fixed part holds a jumbo payload length, and that length.
fn jumbo(bytes: &[u8]) -> Option<(usize, usize)> {
    const JUMBO: u8 = 0xc2;
    let rest = bytes.get(Ipv6::SIZE..)?;
    let options = rest.get(..extension_size(protocol::HOP_BY_HOP, rest)?)?;
    let mut at = 2;
    loop {
        match options.get(at..)? {
            [0, ..] => at += 1,
            [JUMBO, 4, a, b, c, d, ..] => {
                return Some((Ipv6::SIZE + at + 2, u32::from_be_bytes([*a, *b, *c, *d]) as usize));
            }
            [_, length, ..] => at += 2 + usize::from(*length),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::oracle::{self, Random};

    #[test]
    fn the_walk_ends_where_the_oracle_put_the_transport() {
        let mut random = Random(20);
        let mut walked = 0;
        for _ in 0..20_000 {
            let sample = oracle::packet(&mut random);
            if !sample.v6 {
                continue;
            }
            let found = Ipv6::find(&sample.bytes, ethertype::IPV6).unwrap();
            assert_eq!((found.len, found.total), (sample.transport, Some(sample.bytes.len())));
            assert_eq!((found.next, found.facts.protocol()), (u16::from(sample.protocol), sample.protocol));
            let view = Ipv6::view(&sample.bytes[..found.len], found.facts);
            assert_eq!(view.extensions().count(), sample.extensions);
            assert_eq!(view.extensions().map(|e| e.bytes.len()).sum::<usize>(), sample.transport - 40);
            assert_eq!(view.extensions().last().map_or(view.next_header(), |e| e.next), sample.protocol);
            assert!(!view.is_fragment(), "atomic fragments are whole packets");
            walked += sample.extensions;

            // Numbers and lengths that an operator writes are read back.
            let mut bytes = sample.bytes.clone();
            Ipv6::announce(Ipv6::view_mut(&mut bytes[..found.len], found.facts), 47);
            Ipv6::set_total(Ipv6::view_mut(&mut bytes[..found.len], found.facts), sample.bytes.len() - 1);
            let again = Ipv6::find(&bytes, ethertype::IPV6).unwrap();
            assert_eq!((again.len, again.next, again.total), (found.len, 47, Some(sample.bytes.len() - 1)));
        }
        assert!(walked > 10_000);
    }

    fn header(next: u8, rest: &[u8]) -> Vec<u8> {
        let fixed = Ipv6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, next, rest.len());
        [&fixed.octets()[..], rest].concat()
    }

    #[test]
    fn fragments_announce_what_they_hold() {
        let find = |offset: u16, more: u16| {
            let [high, low] = (offset << 3 | more).to_be_bytes();
            let bytes = header(44, &[17, 0, high, low, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8]);
            let cut = header(44, &[17, 0, high, low, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7]);
            if offset == 0 && more == 1 {
                assert_eq!(Ipv6::find(&cut, 0).unwrap().next, NOTHING, "the header goes on in the next");
            }
            let found = Ipv6::find(&bytes, 0).unwrap();
            let view = Ipv6::view(&bytes[..found.len], found.facts);
            assert_eq!((found.len, view.identification(), view.fragment_offset()), (48, Some(7), offset));
            assert_eq!(found.facts.fragment_header(), Some(40));
            (found.next, found.facts.protocol(), view.is_fragment(), view.is_later_fragment())
        };
        assert_eq!(find(0, 0), (17, 17, false, false));
        assert_eq!(find(0, 1), (FIRST_FRAGMENT | 17, 17, true, false));
        assert_eq!(find(1, 1), (NOTHING, 17, true, true));
        assert_eq!(find(8191, 0), (NOTHING, 17, true, true));
    }

    #[test]
    fn extension_headers_that_cannot_be_walked_are_named() {
        let rule = |bytes: &[u8]| Ipv6::find(bytes, 0).map(|found| found.next).map_err(|error| error.rule);
        assert_eq!(rule(&header(50, &[1, 2, 3, 4])), Ok(NOTHING));
        assert_eq!(rule(&header(59, &[1, 2, 3, 4])), Ok(NOTHING));
        // An extension header that states 16 bytes, of which 8 exist.
        assert!(rule(&header(60, &[6, 1, 1, 4, 0, 0, 0, 0])).unwrap_err().contains("beyond the payload"));
        assert!(rule(&header(60, &[6])).unwrap_err().contains("beyond the payload"));
        // Behind more than 16 extension headers nothing is looked for.
        let chain = |count: usize| {
            let mut rest = [60, 0, 1, 4, 0, 0, 0, 0].repeat(count);
            rest[count * 8 - 8] = 6;
            rule(&header(60, &rest))
        };
        assert_eq!(chain(16), Ok(6));
        assert_eq!(chain(17), Ok(NOTHING));
        assert_eq!(chain(1_000), Ok(NOTHING));
        // AH counts in words of 4 bytes, less 2.
        assert_eq!(rule(&header(51, &[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2])), Ok(6));
    }

    #[test]
    fn bytes_behind_too_many_extension_headers_are_payload() {
        let mut rest = [60, 0, 1, 4, 0, 0, 0, 0].repeat(17);
        rest[16 * 8] = 6;
        rest.extend([0; 20]);
        let bytes = header(60, &rest);
        let found = Ipv6::find(&bytes, 0).unwrap();
        let view = Ipv6::view(&bytes[..found.len], found.facts);
        assert_eq!((found.len, found.total), (40 + 16 * 8, Some(bytes.len())));
        assert!(found.facts.hides_transport());
        assert_eq!((view.protocol(), view.extensions().count()), (60, 16));
        // One fewer, and TCP is found.
        let found = Ipv6::find(&header(60, &rest[8..]), 0).unwrap();
        assert!(!found.facts.hides_transport());
        assert_eq!((found.next, found.facts.protocol()), (6, 6));
    }

    #[test]
    fn jumbograms_are_as_long_as_their_option_says() {
        let options = |length: u32| {
            let [a, b, c, d] = length.to_be_bytes();
            let mut bytes = header(0, &[17, 0, 0xc2, 4, a, b, c, d]);
            bytes[4..6].fill(0);
            bytes.resize(40 + 70_000, 0);
            bytes
        };
        let bytes = options(70_000);
        let found = Ipv6::find(&bytes, 0).unwrap();
        assert_eq!((found.len, found.total, found.next), (48, Some(70_040), 17));
        assert!(Ipv6::find(&options(70_001), 0).unwrap_err().rule.contains("beyond"));
        assert!(Ipv6::find(&options(65_535), 0).unwrap_err().rule.contains("below 65536"));
        let mut both = options(70_000);
        both[5] = 8;
        assert!(Ipv6::find(&both, 0).unwrap_err().rule.contains("beside a payload length"));
        let mut bytes = bytes;
        Ipv6::set_total(Ipv6::view_mut(&mut bytes[..48], found.facts), 69_040);
        assert_eq!(Ipv6::find(&bytes, 0).unwrap().total, Some(69_040));
    }
}
