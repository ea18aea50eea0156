//! All headers below the network layer as one header: Ethernet with its tags, labels and sessions.
//!
//! One type for all of them, so that one chain serves tagged and untagged frames alike.

use zerocopy::FromBytes;

use crate::ethernet::{Ethernet, ethertype, type_or_length};
use crate::mpls::Mpls;
use crate::pppoe::Pppoe;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, Usual, malformed, shape, whole};
use crate::vlan::Vlan;

/// Ethernet with any VLAN tags, an MPLS label stack or a PPPoE session. Announces the network layer by its ethertype.
///
/// An MPLS stack does not state its payload's type. The first nibble after it is taken as an IP version,
/// which RFC 4928 makes safe. Any other payload announces [`NOTHING`].
#[derive(Debug)]
pub enum Link {}

/// At most so many tags and labels together; a frame with more is malformed.
pub const MAX_TAGS: usize = 8;

/// The tags between Ethernet and the network layer, in one word, so that it stays in a register.
///
/// The lowest byte counts VLAN tags, the next MPLS labels. The third has the bytes of the PPP protocol
/// number, 1 or 2; it is 0 without a PPPoE session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts(u64);

impl LinkFacts {
    const fn new(vlans: u8, labels: u8, ppp: u8) -> Self {
        Self(vlans as u64 | (labels as u64) << 8 | (ppp as u64) << 16)
    }
    #[inline(always)]
    const fn vlans(self) -> usize {
        self.0 as u8 as usize
    }
    #[inline(always)]
    const fn labels(self) -> usize {
        (self.0 >> 8) as u8 as usize
    }
    #[inline(always)]
    const fn ppp(self) -> usize {
        (self.0 >> 16) as u8 as usize
    }
    /// Whether the network layer directly follows Ethernet.
    #[inline(always)]
    pub const fn is_untagged(self) -> bool {
        self.0 == 0
    }
}

/// A link header, for reading.
#[derive(Clone, Copy)]
pub struct LinkRef<'a> {
    ethernet: &'a Ethernet,
    rest: &'a [u8],
    facts: LinkFacts,
}

/// A link header, for writing.
pub struct LinkMut<'a> {
    ethernet: &'a mut Ethernet,
    rest: &'a mut [u8],
    facts: LinkFacts,
}

const PLAIN: LinkFacts = LinkFacts::new(0, 0, 0);
const TAGGED: LinkFacts = LinkFacts::new(1, 0, 0);
const PPPOE_SIZE: usize = 6;

impl Header for Link {
    type Facts = LinkFacts;
    type Ref<'a> = LinkRef<'a>;
    type Mut<'a> = LinkMut<'a>;
    const EXACT: bool = true;
    const FAST_PATH: bool = true;
    const NAME: &'static str = "link";
    const FIELDS: &'static [crate::field::Field] = &[];

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<LinkFacts>, Malformed> {
        let Some(header) = bytes.first_chunk::<14>() else {
            return Err(malformed::<Self>(
                "the frame ends before the header does",
                Ethernet::SIZE,
                bytes.len(),
            ));
        };
        let ethertype = u16::from_be_bytes([header[12], header[13]]);
        if ethertype == ethertype::IPV4 || ethertype == ethertype::IPV6 {
            return Ok(Found { facts: PLAIN, len: Ethernet::SIZE, total: None, next: ethertype });
        }
        let (sizes, rest) = walk_in_registers(bytes, ethertype);
        if rest == 0 {
            return Err(why_not(bytes, ethertype));
        }
        let total = (sizes >> 32) as u32;
        Ok(Found {
            facts: LinkFacts(rest >> 16 & 0xff_ffff),
            len: sizes as u32 as usize,
            total: (total != u32::MAX).then_some(total as usize),
            next: rest as u16,
        })
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<LinkFacts>, Malformed> {
        match (Self::find(bytes, announced), bytes.get(12..14)) {
            (Err(_), Some([high, low])) => walk(bytes, u16::from_be_bytes([*high, *low]), slack.missing),
            (found, _) => found,
        }
    }
    #[inline(always)]
    fn find_usual<const SHAPE: u8>(_: &[u8], at: usize, _: u16, usual: Usual) -> Option<Found<LinkFacts>> {
        let len = usual.link::<SHAPE>();
        let facts = if len == Ethernet::SIZE { PLAIN } else { TAGGED };
        let here = SHAPE != shape::ANY && at == 0;
        here.then_some(Found { facts, len, total: None, next: Usual::network::<SHAPE>() })
    }
    #[inline(always)]
    fn view(bytes: &[u8], facts: LinkFacts) -> LinkRef<'_> {
        let (ethernet, rest) = whole(Ethernet::ref_from_prefix(bytes));
        LinkRef { ethernet, rest, facts }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], facts: LinkFacts) -> LinkMut<'_> {
        let (ethernet, rest) = whole(Ethernet::mut_from_prefix(bytes));
        LinkMut { ethernet, rest, facts }
    }
    /// Writes the innermost ethertype, or the PPP protocol. An MPLS stack has neither: its payload's first
    /// nibble gives the type.
    fn announce(mut link: LinkMut<'_>, next: u16) {
        let facts = link.facts;
        if facts.labels() > 0 {
            return;
        }
        if facts.ppp() > 0 {
            let number: u16 = match next {
                ethertype::IPV4 => PPP_IPV4,
                ethertype::IPV6 => PPP_IPV6,
                other => other,
            };
            let at = facts.vlans() * Vlan::SIZE + PPPOE_SIZE;
            if let Some(field) = link.rest.get_mut(at..at + facts.ppp()) {
                let [high, low] = number.to_be_bytes();
                match field {
                    [a, b] => (*a, *b) = (high, low),
                    [a] => *a = low,
                    _ => {}
                }
            }
            return;
        }
        match link.vlans_mut().last_mut() {
            Some(tag) => tag.set_ethertype(next),
            None => link.ethernet.set_ethertype(next),
        }
    }
    /// Writes the PPPoE length, or the 802.3 length.
    fn set_total(mut link: LinkMut<'_>, total: usize) {
        let at = link.facts.vlans() * Vlan::SIZE;
        let payload = total.saturating_sub(Ethernet::SIZE + at);
        if link.facts.ppp() > 0 {
            if let Some(length) = link.rest.get_mut(at + 4..at + PPPOE_SIZE) {
                length
                    .copy_from_slice(&(payload.saturating_sub(PPPOE_SIZE).min(0xffff) as u16).to_be_bytes());
            }
            return;
        }
        let length = payload.min(1500) as u16;
        match link.vlans_mut().last_mut() {
            Some(tag) => {
                if tag.ethertype() <= 1500 {
                    tag.set_ethertype(length);
                }
            }
            None => {
                if link.ethernet.ethertype() <= 1500 {
                    link.ethernet.set_ethertype(length);
                }
            }
        }
    }
}

const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// The result of [`walk`] in two registers.
///
/// The first has the length and the end. The second has the next header's number, the facts, and a bit that
/// is set.
///
/// A `Result` would come back through memory, and the fast path's would then take the same way. Narrow stores
/// that are read back wide cost a dozen cycles a packet.
#[inline(never)]
fn walk_in_registers(bytes: &[u8], ethertype: u16) -> (u64, u64) {
    match walk(bytes, ethertype, 0) {
        Ok(Found { facts, len, total, next }) => {
            let total = total.map_or(u32::MAX, |total| total as u32);
            let facts = facts.0 << 16;
            (len as u64 | u64::from(total) << 32, u64::from(next) | facts | 1 << 63)
        }
        Err(_) => (0, 0),
    }
}

/// Which rule a frame that [`walk`] refused breaks.
#[cold]
#[inline(never)]
fn why_not(bytes: &[u8], ethertype: u16) -> Malformed {
    match walk(bytes, ethertype, 0) {
        Err(malformed) => malformed,
        // Only refused frames come here.
        Ok(found) => malformed::<Link>("its tags are refused", found.len, bytes.len()),
    }
}

/// Everything but an untagged IP frame, of which `missing` bytes more were on the wire.
fn walk(bytes: &[u8], mut ethertype: u16, missing: usize) -> Result<Found<LinkFacts>, Malformed> {
    let (mut vlans, mut labels, mut ppp) = (0, 0, 0);
    let (mut len, mut total) = (Ethernet::SIZE, None);
    let short = |needed: usize| malformed::<Link>("the frame ends before its tags do", needed, bytes.len());
    let many = || malformed::<Link>("it has more than 8 tags and labels", MAX_TAGS, MAX_TAGS + 1);
    while ethertype::is_vlan(ethertype) {
        if usize::from(vlans) == MAX_TAGS {
            return Err(many());
        }
        let Some([_, _, high, low]) = bytes.get(len..len + 4) else { return Err(short(len + 4)) };
        ethertype = u16::from_be_bytes([*high, *low]);
        vlans += 1;
        len += Vlan::SIZE;
    }
    let next = match ethertype {
        ethertype::MPLS | ethertype::MPLS_MULTICAST => {
            loop {
                if usize::from(vlans + labels) == MAX_TAGS {
                    return Err(many());
                }
                let Some([_, _, bottom, _]) = bytes.get(len..len + 4) else { return Err(short(len + 4)) };
                labels += 1;
                len += 4;
                if bottom & 1 == 1 {
                    break;
                }
            }
            match bytes.get(len).map(|byte| byte >> 4) {
                Some(4) => ethertype::IPV4,
                Some(6) => ethertype::IPV6,
                _ => NOTHING,
            }
        }
        ethertype::PPPOE_SESSION => {
            let Some([kind, code, _, _, high, low, rest @ ..]) = bytes.get(len..) else {
                return Err(short(len + PPPOE_SIZE));
            };
            if (*kind, *code) != (0x11, 0) {
                return Err(malformed::<Link>(
                    "a PPPoE session's version, type and code are not 1, 1 and 0 (RFC 2516)",
                    0x1100,
                    usize::from(u16::from_be_bytes([*kind, *code])),
                ));
            }
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > rest.len().saturating_add(missing) {
                return Err(malformed::<Link>(
                    "its PPPoE length points beyond the frame",
                    length,
                    rest.len(),
                ));
            }
            let payload = rest.get(..length).unwrap_or(rest);
            // RFC 1661, section 2 and 6.5: an odd first byte is a protocol number compressed to one byte.
            let (number, size) = match payload {
                [low, ..] if low & 1 == 1 => (u16::from(*low), 1),
                [high, low, ..] => (u16::from_be_bytes([*high, *low]), 2),
                _ => return Err(malformed::<Link>("its PPPoE payload holds no PPP protocol", 2, length)),
            };
            ppp = size;
            total = Some(len + PPPOE_SIZE + length);
            len += PPPOE_SIZE + usize::from(size);
            match number {
                PPP_IPV4 => ethertype::IPV4,
                PPP_IPV6 => ethertype::IPV6,
                _ => NOTHING,
            }
        }
        other => {
            let (next, end) = type_or_length(other, len);
            total = end;
            if let Some(end) = end
                && end > bytes.len().saturating_add(missing)
            {
                return Err(malformed::<Link>("its 802.3 length points beyond the frame", end, bytes.len()));
            }
            next
        }
    };
    Ok(Found { facts: LinkFacts::new(vlans, labels, ppp), len, total, next })
}

/// The tags directly behind Ethernet: never fewer than the parse counted.
#[inline]
fn vlans(rest: &[u8], count: usize) -> &[Vlan] {
    <[Vlan]>::ref_from_prefix_with_elems(rest, count).map_or(&[], |(tags, _)| tags)
}

impl<'a> LinkRef<'a> {
    /// Bytes that Ethernet, tags, labels and session take together.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        Ethernet::SIZE + self.rest.len()
    }

    /// The Ethernet header.
    #[inline(always)]
    pub fn ethernet(&self) -> &'a Ethernet {
        self.ethernet
    }
    /// The VLAN tags, outermost first.
    #[inline]
    pub fn vlans(&self) -> &'a [Vlan] {
        vlans(self.rest, self.facts.vlans())
    }
    /// The MPLS label stack, outermost first.
    #[inline]
    pub fn labels(&self) -> &'a [Mpls] {
        let rest = self.rest.get(self.facts.vlans() * Vlan::SIZE..).unwrap_or(&[]);
        <[Mpls]>::ref_from_prefix_with_elems(rest, self.facts.labels()).map_or(&[], |(labels, _)| labels)
    }
    /// The PPPoE session header, if there is one.
    #[inline]
    pub fn pppoe(&self) -> Option<&'a Pppoe> {
        if self.facts.ppp() == 0 {
            return None;
        }
        let rest = self.rest.get(self.facts.vlans() * Vlan::SIZE..)?;
        Pppoe::ref_from_prefix(rest).ok().map(|(header, _)| header)
    }
    /// The facts that the parse remembers.
    #[inline(always)]
    pub fn facts(&self) -> LinkFacts {
        self.facts
    }
}

impl LinkMut<'_> {
    /// The same header, for reading.
    #[inline(always)]
    pub fn as_ref(&self) -> LinkRef<'_> {
        LinkRef { ethernet: self.ethernet, rest: self.rest, facts: self.facts }
    }
    /// The Ethernet header.
    #[inline(always)]
    pub fn ethernet(&self) -> &Ethernet {
        self.ethernet
    }
    /// The Ethernet header, for writing.
    #[inline(always)]
    pub fn ethernet_mut(&mut self) -> &mut Ethernet {
        self.ethernet
    }
    /// The VLAN tags, outermost first, for writing.
    #[inline]
    pub fn vlans_mut(&mut self) -> &mut [Vlan] {
        <[Vlan]>::mut_from_prefix_with_elems(self.rest, self.facts.vlans()).map_or(&mut [], |(tags, _)| tags)
    }
    /// The MPLS label stack, outermost first, for writing.
    #[inline]
    pub fn labels_mut(&mut self) -> &mut [Mpls] {
        let at = (self.facts.vlans() * Vlan::SIZE).min(self.rest.len());
        <[Mpls]>::mut_from_prefix_with_elems(&mut self.rest[at..], self.facts.labels())
            .map_or(&mut [], |(labels, _)| labels)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::oracle::Random;

    /// A frame with these tags, labels and PPP protocol bytes, and the expected answer of `find`.
    fn frame(random: &mut Random) -> (Vec<u8>, usize, u16, Option<usize>, LinkFacts) {
        let mut bytes = random.bytes(12);
        let (vlans, v6) = (random.below(5), random.chance(2));
        for _ in 0..vlans {
            bytes.extend([[0x81, 0], [0x88, 0xa8], [0x91, 0]][random.below(3)]);
            bytes.extend(random.bytes(2));
        }
        let payload = random.below(30) + 1;
        let mut rest = random.bytes(payload);
        rest[0] = if v6 { 0x60 } else { 0x45 };
        let ip = if v6 { 0x86dd } else { 0x0800 };
        let (mut labels, mut ppp) = (0, 0);
        let (mut next, mut total) = (ip, None);
        match random.below(4) {
            0 => {
                labels = (1 + random.below(4)) as u8;
                bytes.extend([0x88, 0x47 + random.below(2) as u8]);
                for i in 1..=labels {
                    bytes.extend([1, 2, 0x30 | u8::from(i == labels), 64]);
                }
                if random.chance(4) {
                    rest[0] = 0;
                    next = NOTHING;
                }
            }
            1 => {
                ppp = 1 + random.below(2) as u8;
                bytes.extend([0x88, 0x64, 0x11, 0, 0, 9]);
                bytes.extend((u16::from(ppp) + payload as u16).to_be_bytes());
                if ppp == 2 {
                    bytes.push(0);
                }
                bytes.push(if v6 { 0x57 } else { 0x21 });
                total = Some(bytes.len() + payload);
                rest.extend(random.bytes(5));
            }
            2 => {
                bytes.extend((payload as u16).to_be_bytes());
                total = Some(bytes.len() + payload);
                next = NOTHING;
                rest.extend(random.bytes(9));
            }
            _ => bytes.extend(u16::to_be_bytes(ip)),
        }
        let len = bytes.len();
        bytes.extend(rest);
        (bytes, len, next, total, LinkFacts::new(vlans as u8, labels, ppp))
    }

    #[test]
    fn every_stack_of_tags_is_seen_through() {
        let mut random = Random(30);
        for _ in 0..50_000 {
            let (mut bytes, len, next, total, facts) = frame(&mut random);
            let found = Link::find(&bytes, 0).unwrap();
            assert_eq!(found, Found { facts, len, total, next });
            let view = Link::view(&bytes[..len], facts);
            assert_eq!(view.vlans().len(), facts.vlans());
            for (i, tag) in view.vlans().iter().enumerate() {
                assert_eq!(tag.octets(), bytes[14 + 4 * i..18 + 4 * i]);
            }
            assert_eq!(view.labels().len(), facts.labels());
            assert_eq!(view.labels().last().map(Mpls::bottom_of_stack), (facts.labels() > 0).then_some(true));
            assert_eq!(view.pppoe().map(Pppoe::session_id), (facts.ppp() > 0).then_some(9));
            // Any of it cut off is too short, never another frame.
            let cut = random.below(len);
            assert!(Link::find(&bytes[..cut], 0).is_err());
            // The number that an operator announces is read back.
            if facts.labels() == 0 && next != NOTHING {
                Link::announce(Link::view_mut(&mut bytes[..len], facts), 0x86dd);
                assert_eq!(Link::find(&bytes, 0).unwrap().next, 0x86dd);
            }
            if let Some(total) = total
                && total - len > 2
            {
                Link::set_total(Link::view_mut(&mut bytes[..len], facts), total - 1);
                assert_eq!(Link::find(&bytes, 0).unwrap().total, Some(total - 1));
            }
        }
    }

    #[test]
    fn lies_and_excess_are_named() {
        let rule = |rest: &[u8]| Link::find(&[&[0; 12][..], rest].concat(), 0).map_err(|error| error.rule);
        let tags = |count: usize| [&[0x81, 0, 0, 1].repeat(count)[..], &[8, 0]].concat();
        assert_eq!(rule(&tags(8)).unwrap().facts.vlans(), 8);
        assert!(rule(&tags(9)).unwrap_err().contains("more than 8"));
        let labels = |count: usize| [&[0x88, 0x47][..], &[0, 0, 0, 9].repeat(count), &[0, 0, 1, 9]].concat();
        assert_eq!(rule(&labels(7)).unwrap().facts.labels(), 8);
        assert!(rule(&labels(8)).unwrap_err().contains("more than 8"));
        assert!(rule(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0, 0x21, 1]).unwrap_err().contains("PPPoE length"));
        assert!(rule(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 0]).unwrap_err().contains("no PPP protocol"));
        assert!(rule(&[0x88, 0x64, 0x12, 0, 0, 1, 0, 0]).unwrap_err().contains("version"));
        assert!(rule(&[0, 5, 1]).unwrap_err().contains("802.3 length"));
        assert_eq!(rule(&[5, 0xf0]).unwrap().next, NOTHING);
        assert_eq!(rule(&[8, 6]).unwrap().next, ethertype::ARP);
    }
}
