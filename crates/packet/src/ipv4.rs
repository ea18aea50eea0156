//! IPv4: the fixed header, its options, and the header checksum kept right by every setter.

use core::net::Ipv4Addr;
use core::ops::Deref;

use zerocopy::FromBytes;

use crate::checksum::{Sum, update16};
use crate::ethernet::ethertype;
use crate::ip::{FIRST_FRAGMENT, announced_by_first_fragment};
use crate::protocol;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, Usual, malformed, whole};

crate::header! {
    /// The fixed part of an IPv4 header (RFC 791, section 3.1; RFC 2474 and RFC 3168 for the second byte).
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |Version|  IHL  |   DSCP    |ECN|          Total Length         |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |         Identification        |Flags|      Fragment Offset    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  Time to Live |    Protocol   |         Header Checksum       |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                       Source Address                          |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                    Destination Address                        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                    Options                    |    Padding    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Ipv4, "ipv4", 20 bytes {
        /// 4.
        version, put_version: u8 = 0, 4, Own, Dec, kept;
        /// Header length in words of 4 bytes, 5 to 15.
        ihl, put_ihl: u8 = 4, 4, Own, Dec, kept;
        /// Differentiated services code point, 0 to 63.
        dscp, put_dscp: u8 = 8, 6, Own, Dec, kept;
        /// Explicit congestion notification, 0 to 3.
        ecn, put_ecn: u8 = 14, 2, Own, Dec, kept;
        /// Bytes of header and payload.
        total_length, put_total_length: u16 = 16, 16, Own, Dec, kept;
        /// Groups the fragments of one packet.
        identification, put_identification: u16 = 32, 16, Own, Hex, kept;
        /// Must be zero.
        reserved, put_reserved: bool = 48, 1, Own, Flag, kept;
        /// The packet must not be fragmented on its way.
        dont_fragment, put_dont_fragment: bool = 49, 1, Own, Flag, kept;
        /// More fragments of this packet follow.
        more_fragments, put_more_fragments: bool = 50, 1, Own, Flag, kept;
        /// Where this fragment's payload belongs, in units of 8 bytes.
        fragment_offset, put_fragment_offset: u16 = 51, 13, Own, Dec, kept;
        /// Hops left.
        time_to_live, put_time_to_live: u8 = 64, 8, Own, Dec, kept;
        /// The protocol that follows.
        protocol, put_protocol: u8 = 72, 8, Own, Protocol, kept;
        /// The complement of the one's complement sum of the header's other words.
        header_checksum, set_header_checksum: u16 = 80, 16, No, Hex, plain;
        /// The sender's address.
        source, put_source: Ipv4Addr = 96, 32, Both, Ipv4, kept;
        /// The receiver's address.
        destination, put_destination: Ipv4Addr = 128, 32, Both, Ipv4, kept;
    }
}

crate::field::display! { Ipv4 }

impl Ipv4 {
    /// A header without options for `payload` bytes, its checksum right.
    ///
    /// Time to live 64, don't fragment, identification 0. Lengths saturate at 16 bits.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: usize) -> Self {
        let mut header = Self([0; 20]);
        header.put_version(4);
        header.put_ihl(5);
        header.put_total_length((payload + Self::SIZE).min(0xffff) as u16);
        header.put_dont_fragment(true);
        header.put_time_to_live(64);
        header.put_protocol(protocol);
        header.put_source(source);
        header.put_destination(destination);
        header.set_header_checksum(Sum::ZERO.add_bytes(&header.0).finish());
        header
    }

    /// Hops left: `time_to_live`.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.time_to_live()
    }

    /// Takes one hop off and carries it into the checksum (RFC 1141, corrected by RFC 1624); 0 stays 0.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        if self.0[8] == 0 {
            return;
        }
        self.0[8] -= 1;
        // One's complement sums are the same in either byte order, so no swap is needed: the bytes are added
        // in the frame's order. The time to live is the high byte of its word.
        let sum = u32::from(u16::from_ne_bytes([self.0[10], self.0[11]])) + u32::from(0x0100u16.to_be());
        let checksum = (sum + u32::from(sum >= 0xffff)) as u16;
        [self.0[10], self.0[11]] = checksum.to_ne_bytes();
    }

    /// Writes the time to live and carries it into the checksum.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.carry(8, |header| header.put_time_to_live(ttl));
    }
    /// Writes the DSCP (its low 6 bits) and carries it into the checksum.
    #[inline(always)]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.carry(0, |header| header.put_dscp(dscp));
    }
    /// Writes the ECN (its low 2 bits) and carries it into the checksum.
    #[inline(always)]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.carry(0, |header| header.put_ecn(ecn));
    }
    /// Writes the identification and carries it into the checksum.
    #[inline(always)]
    pub fn set_identification(&mut self, identification: u16) {
        self.carry(4, |header| header.put_identification(identification));
    }
    /// Writes the "don't fragment" flag and carries it into the checksum.
    #[inline(always)]
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        self.carry(6, |header| header.put_dont_fragment(dont_fragment));
    }

    /// Changes the 16-bit word at byte `at` and carries the change into the checksum.
    #[inline(always)]
    pub(crate) fn carry(&mut self, at: usize, change: impl FnOnce(&mut Self)) {
        let old = u16::from_be_bytes([self.0[at], self.0[at + 1]]);
        change(self);
        let new = u16::from_be_bytes([self.0[at], self.0[at + 1]]);
        self.set_header_checksum(update16(self.header_checksum(), old, new));
    }

    /// This is a part of a larger packet: the first, a middle or the last.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }
    /// This is a fragment but not the first: it holds no transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment_offset() != 0
    }
}

/// The "more fragments" flag in the word that holds flags and fragment offset.
const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 header with its options, for reading.
#[derive(Clone, Copy)]
pub struct Ipv4Ref<'a> {
    fixed: &'a Ipv4,
    options: &'a [u8],
}

/// An IPv4 header with its options, for writing.
pub struct Ipv4Mut<'a> {
    fixed: &'a mut Ipv4,
    options: &'a mut [u8],
}

impl Deref for Ipv4Ref<'_> {
    type Target = Ipv4;
    #[inline(always)]
    fn deref(&self) -> &Ipv4 {
        self.fixed
    }
}
impl Deref for Ipv4Mut<'_> {
    type Target = Ipv4;
    #[inline(always)]
    fn deref(&self) -> &Ipv4 {
        self.fixed
    }
}
/// Setters, one by one: a view that could replace the whole header could change its length.
impl Ipv4Mut<'_> {
    /// As [`Ipv4::decrement_ttl`].
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        self.fixed.decrement_ttl();
    }
    /// As [`Ipv4::set_ttl`].
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.fixed.set_ttl(ttl);
    }
    /// As [`Ipv4::set_dscp`].
    #[inline(always)]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.fixed.set_dscp(dscp);
    }
    /// As [`Ipv4::set_ecn`].
    #[inline(always)]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.fixed.set_ecn(ecn);
    }
    /// As [`Ipv4::set_identification`].
    #[inline(always)]
    pub fn set_identification(&mut self, identification: u16) {
        self.fixed.set_identification(identification);
    }
    /// As [`Ipv4::set_dont_fragment`].
    #[inline(always)]
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        self.fixed.set_dont_fragment(dont_fragment);
    }
    /// As [`Ipv4::set_header_checksum`].
    #[inline(always)]
    pub fn set_header_checksum(&mut self, header_checksum: u16) {
        self.fixed.set_header_checksum(header_checksum);
    }
}

impl<'a> Ipv4Ref<'a> {
    /// The fixed part, for as long as the bytes live.
    #[inline(always)]
    pub fn fixed(&self) -> &'a Ipv4 {
        self.fixed
    }
    /// The options, padding included; 0 to 40 bytes.
    #[inline(always)]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }
    /// The options one by one.
    pub fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options { rest: self.options }
    }
    /// Whether the header checksum is right, options included.
    pub fn checksum_is_valid(&self) -> bool {
        Sum::ZERO.add_bytes(&self.fixed.0).add_bytes(self.options).fold() == 0xffff
    }
}

impl Ipv4Mut<'_> {
    /// The same header, for reading.
    #[inline(always)]
    pub fn as_ref(&self) -> Ipv4Ref<'_> {
        Ipv4Ref { fixed: self.fixed, options: self.options }
    }
    /// Computes the header checksum from all of the header, options included.
    pub fn refresh_checksum(&mut self) {
        self.fixed.set_header_checksum(0);
        let checksum = Sum::ZERO.add_bytes(&self.fixed.0).add_bytes(self.options).finish();
        self.fixed.set_header_checksum(checksum);
    }
}

/// One IPv4 option (RFC 791, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number in one byte.
    ///
    /// 7 is record route, 68 timestamp, 131 and 137 source routes, 148 router alert.
    pub kind: u8,
    /// The bytes after kind and length.
    pub data: &'a [u8],
}

/// The options of one header, in order, without padding. After a wrong length, one error and then nothing.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => {
                    self.rest = &[];
                    return None;
                }
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] if length >= 2 && usize::from(length) <= self.rest.len() => {
                    let (option, rest) = self.rest.split_at(usize::from(length));
                    self.rest = rest;
                    return Some(Ok(Ipv4Option { kind, data: &option[2..] }));
                }
                [_, ref rest @ ..] => {
                    let (found, needed) =
                        (rest.first().map_or(0, |length| usize::from(*length)), self.rest.len());
                    self.rest = &[];
                    return Some(Err(malformed::<Ipv4>(
                        "an option's length is below 2 or beyond the options",
                        needed,
                        found,
                    )));
                }
            }
        }
    }
}

impl Ipv4 {
    /// Finds the header at the start of a packet that may be cut short, as ICMP errors quote it.
    ///
    /// Answers its length, and where the packet ends in `bytes`.
    pub(crate) fn find_quoted(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<20>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        let (len, total) =
            (usize::from(fixed[0] & 15) * 4, usize::from(u16::from_be_bytes([fixed[2], fixed[3]])));
        if fixed[0] >> 4 != 4 || len < Self::SIZE || total < len {
            return Err(malformed::<Self>("the quoted header's version or lengths are wrong", len, total));
        }
        if len > bytes.len() {
            return Err(malformed::<Self>("the bytes end before the header does", len, bytes.len()));
        }
        Ok((len, total.min(bytes.len())))
    }
}

impl Header for Ipv4 {
    type Facts = ();
    type Ref<'a> = Ipv4Ref<'a>;
    type Mut<'a> = Ipv4Mut<'a>;
    const EXACT: bool = true;
    const SHAPES: bool = false;
    const FAST_PATH: bool = true;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Some(fixed) = bytes.first_chunk::<20>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        let mut len = 20;
        if fixed[0] != 0x45 {
            if fixed[0] >> 4 != 4 {
                return Err(malformed::<Self>("its version is not 4", 4, usize::from(fixed[0] >> 4)));
            }
            len = usize::from(fixed[0] & 15) * 4;
            if len < 20 {
                return Err(malformed::<Self>("its header length is less than 20 bytes", 20, len));
            }
        }
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if total > bytes.len() {
            return Err(malformed::<Self>(
                "its total length points beyond what encloses it",
                total,
                bytes.len(),
            ));
        }
        if total < len {
            return Err(malformed::<Self>("its total length is less than its header length", len, total));
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
        let next = if fragment == 0 {
            u16::from(fixed[9])
        } else if fragment == MORE_FRAGMENTS {
            announced_by_first_fragment(fixed[9], bytes.get(len..total).unwrap_or_default())
        } else {
            NOTHING
        };
        Ok(Found { facts: (), len, total: Some(total), next })
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<()>, Malformed> {
        let refused = match Self::find(bytes, announced) {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        let Some(fixed) = bytes.first_chunk::<20>() else { return Err(refused) };
        let (len, total) =
            (usize::from(fixed[0] & 15) * 4, usize::from(u16::from_be_bytes([fixed[2], fixed[3]])));
        if fixed[0] >> 4 != 4 || len < Self::SIZE || len > bytes.len() {
            return Err(refused);
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
        let next = u16::from(fixed[9]);
        // Only segments are cut by devices, and no fragments of them.
        if total == 0 && slack.unstated && fragment == 0 && protocol::is_segmented(fixed[9]) {
            return Ok(Found { facts: (), len, total: Some(bytes.len()), next });
        }
        if total < len || total > bytes.len().saturating_add(slack.missing) {
            return Err(refused);
        }
        let next = match fragment {
            0 => next,
            MORE_FRAGMENTS => FIRST_FRAGMENT | next,
            _ => NOTHING,
        };
        Ok(Found { facts: (), len, total: Some(total), next })
    }
    #[inline(always)]
    fn find_usual<const SHAPE: u8>(bytes: &[u8], at: usize, _: u16, usual: Usual) -> Option<Found<()>> {
        let total = usual.ip::<SHAPE>(at, ethertype::IPV4)?;
        // A usual frame has them all; that is not asked again.
        let fixed = bytes.first_chunk::<20>().unwrap_or(&[0; 20]);
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
        let next = match fragment {
            0 => u16::from(fixed[9]),
            MORE_FRAGMENTS => {
                announced_by_first_fragment(fixed[9], bytes.get(Self::SIZE..total).unwrap_or_default())
            }
            _ => NOTHING,
        };
        Some(Found { facts: (), len: Self::SIZE, total: Some(total), next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> Ipv4Ref<'_> {
        let (fixed, options) = whole(Self::ref_from_prefix(bytes));
        Ipv4Ref { fixed, options }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> Ipv4Mut<'_> {
        let (fixed, options) = whole(Self::mut_from_prefix(bytes));
        Ipv4Mut { fixed, options }
    }
    fn announce(header: Ipv4Mut<'_>, next: u16) {
        header.fixed.carry(8, |header| header.put_protocol(next as u8));
    }
    fn set_total(header: Ipv4Mut<'_>, total: usize) {
        header.fixed.carry(2, |header| header.put_total_length(total.min(0xffff) as u16));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::ip::FIRST_FRAGMENT;
    use crate::oracle::{self, Random};

    fn valid(bytes: &[u8]) -> bool {
        oracle::checksum(bytes) == 0
    }

    #[test]
    fn one_hop_less_is_a_recomputation_for_every_checksum() {
        let mut header = Ipv4::new(Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(172, 16, 0, 1), 17, 100);
        for ttl in [0, 1, 2, 64, 127, 128, 255] {
            // Every identification makes another checksum, 0 and 0xfeff among them.
            for identification in 0..=u16::MAX {
                header.put_identification(identification);
                header.put_time_to_live(ttl);
                header.set_header_checksum(0);
                header.set_header_checksum(oracle::checksum(&header.0));
                let mut expected = header;
                expected.put_time_to_live(ttl.saturating_sub(1));
                expected.set_header_checksum(0);
                expected.set_header_checksum(oracle::checksum(&expected.0));
                header.decrement_ttl();
                assert_eq!(header, expected, "ttl {ttl}, identification {identification}");
            }
        }
    }

    #[test]
    fn setters_keep_the_checksum_and_the_other_fields() {
        let mut random = Random(10);
        for _ in 0..20_000 {
            let sample = oracle::packet(&mut random);
            if sample.v6 {
                continue;
            }
            let mut bytes: Vec<u8> = sample.bytes[..sample.transport].into();
            let mut header = Ipv4::view_mut(&mut bytes, ());
            let (before, value) = (*header, random.word());
            match random.below(5) {
                0 => header.set_ttl(value as u8),
                1 => header.set_dscp(value as u8 & 63),
                2 => header.set_ecn(value as u8 & 3),
                3 => header.set_identification(value as u16),
                _ => header.set_dont_fragment(value & 1 == 1),
            }
            let differing = Ipv4::TABLE.iter().filter(|field| field.read(&before.0) != field.read(&header.0));
            assert!(differing.filter(|field| field.name != "header_checksum").count() <= 1);
            assert!(header.as_ref().checksum_is_valid());
            let stored = header.header_checksum();
            header.refresh_checksum();
            assert_eq!(header.header_checksum(), stored, "an update is a recomputation");
            assert!(valid(&bytes));
        }
    }

    #[test]
    fn lengths_that_lie_are_named() {
        let good = Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, 4);
        let find = |change: fn(&mut Ipv4), size: usize| {
            let mut header = good;
            change(&mut header);
            let mut bytes = Vec::from(header.octets());
            bytes.resize(size, 0);
            Ipv4::find(&bytes, 0x0800)
                .map(|found| (found.len, found.total, found.next))
                .map_err(|error| error.rule)
        };
        assert_eq!(find(|_| (), 60), Ok((20, Some(24), 6)));
        assert_eq!(find(|header| header.put_ihl(6), 60), Ok((24, Some(24), 6)));
        for (change, size, word) in [
            ((|_| ()) as fn(&mut Ipv4), 19, "bytes end"),
            (|header| header.put_version(5), 60, "version"),
            (|header| header.put_ihl(4), 60, "header length"),
            (|header| header.put_ihl(7), 60, "less than its header"),
            (|header| header.put_total_length(0), 60, "less than its header"),
            (|header| header.put_total_length(19), 60, "less than its header"),
            (|_| (), 23, "beyond"),
        ] {
            let rule = find(change, size).unwrap_err();
            assert!(rule.contains(word), "{rule} should speak of {word}");
        }
        assert_eq!(find(|header| header.put_fragment_offset(1), 60).unwrap().2, NOTHING);
    }

    #[test]
    fn a_first_fragment_with_a_part_of_its_transport_header_announces_nothing() {
        let next = |number: u8, payload: &[u8]| {
            let mut header = Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, number, payload.len());
            header.put_more_fragments(true);
            let bytes = [&header.octets()[..], payload].concat();
            Ipv4::find(&bytes, 0).unwrap().next
        };
        let mut tcp = [0; 60];
        // 32 bytes of TCP header.
        tcp[12] = 0x80;
        for size in [0, 8, 12, 13, 20, 31] {
            assert_eq!(next(6, &tcp[..size]), NOTHING, "{size} bytes of 32");
        }
        assert_eq!(next(6, &tcp[..32]), FIRST_FRAGMENT | 6);
        // A wrong data offset makes the header malformed; it is not a cut.
        tcp[12] = 0x10;
        assert_eq!(next(6, &tcp[..24]), FIRST_FRAGMENT | 6);
        for number in [1, 17] {
            assert_eq!(next(number, &[0; 7]), NOTHING);
            assert_eq!(next(number, &[0; 8]), FIRST_FRAGMENT | u16::from(number));
        }
        assert_eq!(next(132, &[]), FIRST_FRAGMENT | 132);
    }

    #[test]
    fn options_are_walked_and_lies_end_the_walk() {
        let walk = |bytes: &[u8]| -> Vec<Option<(u8, usize)>> {
            Ipv4Options { rest: bytes }
                .map(|item| item.ok().map(|option| (option.kind, option.data.len())))
                .collect()
        };
        assert_eq!(walk(&[1, 1, 148, 4, 0, 0, 7, 3, 4, 0, 9, 9]), [Some((148, 2)), Some((7, 1))]);
        assert_eq!(walk(&[148, 4, 0, 0, 7, 1, 0, 0]), [Some((148, 2)), None]);
        assert_eq!(walk(&[7, 9, 0, 0]), [None]);
        assert_eq!(walk(&[1, 1, 1, 7]), [None]);
    }
}
