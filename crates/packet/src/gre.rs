//! Generic routing encapsulation: version 0 (RFC 2784, key and sequence of RFC 2890) and PPTP's version 1 (RFC 2637).
//!
//! Flags in the first two bytes say which four-byte words follow. The view reads only those that exist.

use core::fmt;
use core::ops::{Deref, DerefMut};

use zerocopy::FromBytes;

use crate::field::Field;
use crate::print::Fields;
use crate::stack::{Found, Header, Malformed, whole};

crate::header! {
    /// GRE, RFC 2784, section 2.1 with RFC 2890, section 2; words that a flag does not announce are absent.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |C|R|K|S|        Reserved0|A|Ver|         Protocol Type         |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |      Checksum (optional)      |       Reserved1 (Optional)    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                         Key (optional)                        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                 Sequence Number (Optional)                    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    /// (A is version 1's acknowledgement flag, bit 8 of the first byte pair: RFC 2637, section 4.1.)
    pub struct Gre, "gre", 4 bytes {
        /// A checksum over header and payload follows.
        checksum_present, set_checksum_present: bool = 0, 1, No, Flag, kept;
        /// Source routes follow (RFC 1701), which RFC 2784 no longer allows.
        routing_present, set_routing_present: bool = 1, 1, No, Flag, kept;
        /// A key follows.
        key_present, set_key_present: bool = 2, 1, No, Flag, kept;
        /// A sequence number follows.
        sequence_number_present, set_sequence_number_present: bool = 3, 1, No, Flag, kept;
        /// An acknowledgement number follows (version 1).
        acknowledgment_present, set_acknowledgment_present: bool = 8, 1, No, Flag, kept;
        /// 0, or 1 for PPTP.
        version, set_version: u8 = 13, 3, No, Dec, kept;
        /// The EtherType of the payload.
        protocol_type, set_protocol_type: u16 = 16, 16, Own, EtherType, kept;
    }
}

/// The optional words, in the order of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreWord {
    /// Checksum and Reserved1.
    Checksum,
    /// The key; in version 1 payload length and call identifier.
    Key,
    /// The sequence number.
    SequenceNumber,
    /// The acknowledgement number (version 1).
    Acknowledgment,
}

crate::field::display! { Gre }

impl Gre {
    /// Bytes that the length field does not count; only PPTP's has one, where RFC 2784's may have a checksum.
    pub(crate) fn uncounted(header: &[u8]) -> Option<usize> {
        let (header, _) = Self::ref_from_prefix(header).ok()?;
        header.is_pptp().then(|| header.header_length())
    }
    /// The IP protocol number.
    pub const PROTOCOL: u16 = 47;
    /// The protocol type of a bridged Ethernet frame.
    pub const ETHERNET: u16 = 0x6558;

    /// A version 0 header without optional words.
    pub fn new(protocol_type: u16) -> Self {
        let mut header = Self([0; 4]);
        header.set_protocol_type(protocol_type);
        header
    }

    /// PPTP's version, RFC 2637.
    #[inline(always)]
    pub fn is_pptp(&self) -> bool {
        self.version() == 1
    }

    /// Bytes of the header, optional words included.
    #[inline(always)]
    pub fn header_length(&self) -> usize {
        let words = self.0[0] & 0b1011_0000;
        4 + 4 * (words.count_ones() as usize + usize::from(self.is_pptp() && self.acknowledgment_present()))
    }

    /// The place of `word` in bytes from the header's first; `None` if the flags do not announce it.
    #[inline(always)]
    pub fn word_offset(&self, word: GreWord) -> Option<usize> {
        let present = [
            self.checksum_present(),
            self.key_present(),
            self.sequence_number_present(),
            self.is_pptp() && self.acknowledgment_present(),
        ];
        let before = present[..word as usize].iter().filter(|present| **present).count();
        present[word as usize].then_some(4 + 4 * before)
    }
}

/// A checked GRE header, for reading; its fixed part is read through it.
#[derive(Clone, Copy)]
pub struct GreRef<'a> {
    bytes: &'a [u8],
}

impl<'a> GreRef<'a> {
    #[inline(always)]
    fn word(&self, word: GreWord) -> Option<u32> {
        let at = self.word_offset(word)?;
        let word = self.bytes.get(at..at + 4)?;
        Some(word.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }
    /// The checksum over header and payload (RFC 2784, section 2.5), if present.
    pub fn checksum(&self) -> Option<u16> {
        self.word(GreWord::Checksum).map(|word| (word >> 16) as u16)
    }
    /// The key (RFC 2890, section 2.1), if present in a version 0 header.
    pub fn key(&self) -> Option<u32> {
        self.word(GreWord::Key).filter(|_| !self.is_pptp())
    }
    /// The sequence number (RFC 2890, section 2.2), if present.
    pub fn sequence_number(&self) -> Option<u32> {
        self.word(GreWord::SequenceNumber)
    }
    /// PPTP's acknowledgement number (RFC 2637, section 4.1), if present.
    pub fn acknowledgment_number(&self) -> Option<u32> {
        self.word(GreWord::Acknowledgment)
    }
    /// PPTP's payload length in bytes, not counting this header.
    pub fn payload_length(&self) -> Option<u16> {
        self.word(GreWord::Key).filter(|_| self.is_pptp()).map(|word| (word >> 16) as u16)
    }
    /// PPTP's call identifier.
    pub fn call_id(&self) -> Option<u16> {
        self.word(GreWord::Key).filter(|_| self.is_pptp()).map(|word| word as u16)
    }
    /// All the header's bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Deref for GreRef<'_> {
    type Target = Gre;
    #[inline(always)]
    fn deref(&self) -> &Gre {
        whole(Gre::ref_from_prefix(self.bytes)).0
    }
}

/// A checked GRE header, for writing.
pub struct GreMut<'a> {
    bytes: &'a mut [u8],
}

impl GreMut<'_> {
    /// As it reads.
    #[inline(always)]
    pub fn as_ref(&self) -> GreRef<'_> {
        GreRef { bytes: self.bytes }
    }
    fn set_word(&mut self, word: GreWord, mask: u32, value: u32) -> bool {
        let Some(at) = self.word_offset(word) else { return false };
        let Some(bytes) = self.bytes.get_mut(at..at + 4) else { return false };
        let old = bytes.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        bytes.copy_from_slice(&(old & !mask | value & mask).to_be_bytes());
        true
    }
    /// Writes the checksum; false where the header has none. It covers the payload too: write it last.
    pub fn set_checksum(&mut self, checksum: u16) -> bool {
        self.set_word(GreWord::Checksum, 0xffff_0000, u32::from(checksum) << 16)
    }
    /// Writes the key of a version 0 header; false where it has none.
    pub fn set_key(&mut self, key: u32) -> bool {
        !self.is_pptp() && self.set_word(GreWord::Key, u32::MAX, key)
    }
    /// Writes the sequence number; false where the header has none.
    pub fn set_sequence_number(&mut self, number: u32) -> bool {
        self.set_word(GreWord::SequenceNumber, u32::MAX, number)
    }
}

impl Deref for GreMut<'_> {
    type Target = Gre;
    #[inline(always)]
    fn deref(&self) -> &Gre {
        whole(Gre::ref_from_prefix(self.bytes)).0
    }
}
impl DerefMut for GreMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Gre {
        whole(Gre::mut_from_prefix(self.bytes)).0
    }
}

impl Header for Gre {
    type Facts = ();
    type Ref<'a> = GreRef<'a>;
    type Mut<'a> = GreMut<'a>;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let short = |needed: usize| {
            malformed("the bytes end before the header does", needed as u32, bytes.len() as u32)
        };
        let Ok((header, _)) = Gre::ref_from_prefix(bytes) else { return Err(short(4)) };
        if header.version() > 1 {
            return Err(malformed("the version is neither 0 nor 1 (PPTP)", 1, u32::from(header.version())));
        }
        if header.routing_present() {
            // RFC 2784, section 2.3: a receiver that does not implement RFC 1701's source routes discards.
            return Err(malformed("source routes (RFC 1701) are not supported", 0, 1));
        }
        let len = header.header_length();
        if len > bytes.len() {
            return Err(short(len));
        }
        let total = match header.is_pptp() {
            false => None,
            true if !header.key_present() => {
                return Err(malformed("PPTP's version without its key", 1, 0));
            }
            // RFC 2637, section 4.1: without a sequence number there is no payload, only an acknowledgement.
            true if !header.sequence_number_present() => Some(len),
            true => Some(len + GreRef { bytes }.payload_length().map_or(0, usize::from)),
        };
        Ok(Found { facts: (), len, total, next: header.protocol_type() })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> GreRef<'_> {
        GreRef { bytes }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> GreMut<'_> {
        GreMut { bytes }
    }
    fn announce(mut header: GreMut<'_>, next: u16) {
        header.set_protocol_type(next);
    }
    /// Only PPTP states a length.
    fn set_total(mut header: GreMut<'_>, total: usize) {
        if header.is_pptp() {
            let payload = total.saturating_sub(header.header_length()).min(usize::from(u16::MAX)) as u32;
            header.set_word(GreWord::Key, 0xffff_0000, payload << 16);
        }
    }
    fn cover(bytes: &mut [u8], out: bool) -> bool {
        let header = Gre::ref_from_prefix(bytes).ok();
        let Some(at) = header.and_then(|(header, _)| header.word_offset(GreWord::Checksum)) else {
            return false;
        };
        crate::checksum::cover(bytes, at, 0, out, false);
        true
    }
}

impl fmt::Display for GreRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fields { name: Gre::SHORT, table: Gre::TABLE, bytes: self.bytes }.fmt(f)?;
        let optional = [
            ("checksum", self.checksum().map(u32::from)),
            ("key", self.key()),
            ("payload_length", self.payload_length().map(u32::from)),
            ("call_id", self.call_id().map(u32::from)),
            ("sequence_number", self.sequence_number()),
            ("acknowledgment_number", self.acknowledgment_number()),
        ];
        for (name, value) in optional {
            match value {
                Some(value) if name == "checksum" || name == "key" => write!(f, ", {name} {value:#x}")?,
                Some(value) => write!(f, ", {name} {value}")?,
                None => {}
            }
        }
        Ok(())
    }
}
impl fmt::Debug for GreRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for GreMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    const FULL: [u8; 17] = [0xb0, 0, 0x08, 0, 0xab, 0xcd, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0x45];

    #[test]
    fn each_combination_of_words_lies_where_the_flags_put_it() {
        for flags in 0u8..8 {
            // Each word holds its own number, so that a wrong offset shows.
            let bits = (flags & 4) << 5 | (flags & 2) << 4 | (flags & 1) << 4;
            let mut bytes = [0u8; 16];
            (bytes[0], bytes[2]) = (bits, 8);
            let mut at = 4;
            for (bit, number) in [(4u8, 11u8), (2, 22), (1, 33)] {
                if flags & bit != 0 {
                    bytes[at + 3] = number;
                    bytes[at + 1] = number;
                    at += 4;
                }
            }
            assert_eq!(Gre::find(&bytes, 47).unwrap().len, at);
            let view = Gre::view(&bytes[..at], ());
            assert_eq!(view.checksum(), (flags & 4 != 0).then_some(11));
            assert_eq!(view.key(), (flags & 2 != 0).then_some(22 << 16 | 22));
            assert_eq!(view.sequence_number(), (flags & 1 != 0).then_some(33 << 16 | 33));
            assert!(at == 4 || Gre::find(&bytes[..at - 1], 47).is_err());
        }
    }

    #[test]
    fn display_names_what_is_there() {
        assert_eq!(
            Gre::view(&FULL[..16], ()).to_string(),
            "gre checksum_present, key_present, sequence_number_present, version 0, protocol_type ipv4 (0x0800), \
             checksum 0xabcd, key 0x7, sequence_number 256"
        );
    }

    #[test]
    fn writing_a_word_leaves_its_neighbours() {
        let mut bytes = FULL;
        let mut view = Gre::view_mut(&mut bytes[..16], ());
        assert!(view.set_checksum(0x1234) && view.set_key(9) && view.set_sequence_number(10));
        Gre::announce(view, 0x86dd);
        assert_eq!(bytes[..16], [0xb0, 0, 0x86, 0xdd, 0x12, 0x34, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10]);
        let mut plain = Gre::new(0x0800).octets();
        assert!(!Gre::view_mut(&mut plain, ()).set_key(1));
        assert_eq!(plain, [0, 0, 8, 0]);
    }

    #[test]
    fn pptp_states_its_payload_and_an_acknowledgement_alone_has_none() {
        let data = [0x30, 0x81, 0x88, 0x0b, 0, 3, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 3, 0x21];
        let found = Gre::find(&data, 47).unwrap();
        assert_eq!((found.len, found.total, found.next), (16, Some(19), 0x880b));
        let view = Gre::view(&data[..16], ());
        assert_eq!((view.payload_length(), view.call_id(), view.key()), (Some(3), Some(7), None));
        assert_eq!((view.sequence_number(), view.acknowledgment_number()), (Some(1), Some(2)));
        let acknowledgement = [0x20, 0x81, 0x88, 0x0b, 0, 0, 0, 7, 0, 0, 0, 2];
        let found = Gre::find(&acknowledgement, 47).unwrap();
        assert_eq!((found.len, found.total), (12, Some(12)));
        let mut grown = data;
        Gre::set_total(Gre::view_mut(&mut grown[..16], ()), 16 + 300);
        assert_eq!(grown[4..8], [1, 44, 0, 7]);
    }

    #[test]
    fn headers_that_the_rfcs_do_not_allow_are_malformed() {
        for (bytes, rule) in [
            ([0x40, 0, 8, 0], "source routes (RFC 1701) are not supported"),
            ([0, 2, 8, 0], "the version is neither 0 nor 1 (PPTP)"),
            ([0, 1, 8, 0], "PPTP's version without its key"),
        ] {
            assert_eq!(Gre::find(&bytes, 47).unwrap_err().rule, rule);
        }
    }
}
