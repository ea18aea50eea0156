//! GTP-U version 1 (3GPP TS 29.281, section 5.1): the tunnels of mobile networks, with a chain of extension headers.
//!
//! The chain is walked when the header is found, so the payload starts where the last extension header ends.

use core::fmt;
use core::ops::{Deref, DerefMut};

use zerocopy::FromBytes;

use crate::field::Field;
use crate::print::Fields;
use crate::stack::{Found, Header, Malformed, NOTHING, whole};

crate::header! {
    /// GTP-U, TS 29.281, section 5.1.
    ///
    /// If one of E, S and PN is set, all of the four bytes after the fixed part exist.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// | Ver |P|*|E|S|N| Message Type  |            Length             |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                  Tunnel Endpoint Identifier                   |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  Sequence Number (optional)   | N-PDU Number  | Next Ext. Type|
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Gtpu, "gtpu", 8 bytes {
        /// Always 1.
        version, set_version: u8 = 0, 3, No, Dec, kept;
        /// 1 for GTP; 0 is GTP', which is not for user data.
        protocol_type, set_protocol_type: u8 = 3, 1, No, Dec, kept;
        /// Extension headers follow.
        extension_header, set_extension_header: bool = 5, 1, No, Flag, kept;
        /// The sequence number is meaningful.
        sequence_number_flag, set_sequence_number_flag: bool = 6, 1, No, Flag, kept;
        /// The N-PDU number is meaningful.
        npdu_number_flag, set_npdu_number_flag: bool = 7, 1, No, Flag, kept;
        /// 255 carries a user packet (G-PDU); 1 and 2 echo, 26 error indication, 254 end marker.
        message_type, set_message_type: u8 = 8, 8, No, Dec, kept;
        /// Bytes after these eight: the optional four, extension headers and payload.
        length, set_length: u16 = 16, 16, No, Dec, kept;
        /// The tunnel endpoint identifier, as the receiver numbered it.
        teid, set_teid: u32 = 32, 32, No, Hex, plain;
    }
}

/// More extension headers than any network chains: an attack on the parser that walks them.
const EXTENSIONS: usize = 16;

crate::field::display! { Gtpu }

impl Gtpu {
    /// The UDP destination port that IANA assigned.
    pub const PORT: u16 = 2152;
    /// The message type of a user packet.
    pub const G_PDU: u8 = 255;

    /// A user packet's header without optional fields, with `length` bytes after it.
    pub fn new(teid: u32, length: u16) -> Self {
        let mut header = Self([0x30, Self::G_PDU, 0, 0, 0, 0, 0, 0]);
        header.set_length(length);
        header.set_teid(teid);
        header
    }

    /// The four optional bytes are there.
    #[inline(always)]
    pub fn has_optional_fields(&self) -> bool {
        self.0[0] & 0b111 != 0
    }
}

/// One extension header: its type, and its content without length and next type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GtpuExtension<'a> {
    /// Its type: 0x85 PDU session container, 0xc0 PDCP PDU number (TS 29.281, section 5.2).
    pub kind: u8,
    /// Its content: 4 n - 2 bytes.
    pub content: &'a [u8],
}

/// The extension headers, first to last.
#[derive(Clone, Copy, Debug)]
pub struct GtpuExtensions<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for GtpuExtensions<'a> {
    type Item = GtpuExtension<'a>;
    fn next(&mut self) -> Option<GtpuExtension<'a>> {
        if self.kind == 0 {
            return None;
        }
        let size = 4 * usize::from(*self.rest.first()?);
        let (extension, rest) = self.rest.split_at_checked(size)?;
        // Length first, next type last, content between.
        let [_, content @ .., next] = extension else { return None };
        let found = GtpuExtension { kind: self.kind, content };
        (self.kind, self.rest) = (*next, rest);
        Some(found)
    }
}

/// A checked GTP-U header, for reading; its fixed part is read through it.
#[derive(Clone, Copy)]
pub struct GtpuRef<'a> {
    bytes: &'a [u8],
}

impl<'a> GtpuRef<'a> {
    fn optional(&self) -> Option<&'a [u8]> {
        self.bytes.get(8..12).filter(|_| self.has_optional_fields())
    }
    /// The sequence number, if its flag is set.
    pub fn sequence_number(&self) -> Option<u16> {
        let optional = self.optional().filter(|_| self.sequence_number_flag())?;
        Some(u16::from_be_bytes([optional[0], optional[1]]))
    }
    /// The N-PDU number, if its flag is set.
    pub fn npdu_number(&self) -> Option<u8> {
        self.optional().filter(|_| self.npdu_number_flag()).map(|optional| optional[2])
    }
    /// The extension headers, first to last.
    pub fn extensions(&self) -> GtpuExtensions<'a> {
        match self.optional().filter(|_| self.extension_header()) {
            Some(optional) => GtpuExtensions { kind: optional[3], rest: &self.bytes[12..] },
            None => GtpuExtensions { kind: 0, rest: &[] },
        }
    }
    /// All the header's bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Deref for GtpuRef<'_> {
    type Target = Gtpu;
    #[inline(always)]
    fn deref(&self) -> &Gtpu {
        whole(Gtpu::ref_from_prefix(self.bytes)).0
    }
}

/// A checked GTP-U header, for writing.
pub struct GtpuMut<'a> {
    bytes: &'a mut [u8],
}

impl GtpuMut<'_> {
    /// As it reads.
    #[inline(always)]
    pub fn as_ref(&self) -> GtpuRef<'_> {
        GtpuRef { bytes: self.bytes }
    }
}

impl Deref for GtpuMut<'_> {
    type Target = Gtpu;
    #[inline(always)]
    fn deref(&self) -> &Gtpu {
        whole(Gtpu::ref_from_prefix(self.bytes)).0
    }
}
impl DerefMut for GtpuMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Gtpu {
        whole(Gtpu::mut_from_prefix(self.bytes)).0
    }
}

impl Header for Gtpu {
    type Facts = ();
    type Ref<'a> = GtpuRef<'a>;
    type Mut<'a> = GtpuMut<'a>;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let short = |needed: usize| {
            malformed("the bytes end before the header does", needed as u32, bytes.len() as u32)
        };
        let Ok((header, _)) = Gtpu::ref_from_prefix(bytes) else { return Err(short(8)) };
        if header.version() != 1 {
            return Err(malformed("the version is not 1", 1, u32::from(header.version())));
        }
        if header.protocol_type() != 1 {
            return Err(malformed("the protocol type is GTP', not GTP", 1, 0));
        }
        // The header ends inside its stated length, also where more bytes follow.
        let total = 8 + usize::from(header.length());
        let bytes = bytes.get(..total).unwrap_or(bytes);
        let mut len = 8;
        if header.has_optional_fields() {
            len = 12;
            let Some(next) = bytes.get(11) else { return Err(short(12)) };
            let mut kind = if header.extension_header() { *next } else { 0 };
            let mut count = 0;
            while kind != 0 {
                let Some(words) = bytes.get(len) else { return Err(short(len + 4)) };
                if *words == 0 {
                    return Err(malformed("an extension header of length 0", 1, 0));
                }
                count += 1;
                if count > EXTENSIONS {
                    return Err(malformed("more extension headers than 16", EXTENSIONS as u32, count as u32));
                }
                len += 4 * usize::from(*words);
                let Some(next) = bytes.get(len - 1) else { return Err(short(len)) };
                kind = *next;
            }
        }
        let next = match bytes.get(len).map(|byte| byte >> 4) {
            Some(4) if header.message_type() == Self::G_PDU => 0x0800,
            Some(6) if header.message_type() == Self::G_PDU => 0x86dd,
            _ => NOTHING,
        };
        Ok(Found { facts: (), len, total: Some(total), next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> GtpuRef<'_> {
        GtpuRef { bytes }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> GtpuMut<'_> {
        GtpuMut { bytes }
    }
    fn set_total(mut header: GtpuMut<'_>, total: usize) {
        header.set_length(total.saturating_sub(8).min(usize::from(u16::MAX)) as u16);
    }
}

impl fmt::Display for GtpuRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fields { name: Gtpu::SHORT, table: Gtpu::TABLE, bytes: self.bytes }.fmt(f)?;
        if let Some(number) = self.sequence_number() {
            write!(f, ", sequence_number {number}")?;
        }
        if let Some(number) = self.npdu_number() {
            write!(f, ", npdu_number {number}")?;
        }
        for extension in self.extensions() {
            write!(f, ", extension {:#04x} of {} bytes", extension.kind, extension.content.len())?;
        }
        Ok(())
    }
}
impl fmt::Debug for GtpuRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for GtpuMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// Sequence number 258, a PDU session container, and one byte of IPv4.
    const BYTES: [u8; 17] = [0x36, 255, 0, 9, 0, 0, 0, 7, 1, 2, 0, 0x85, 1, 0, 9, 0, 0x45];

    #[test]
    fn the_payload_starts_after_the_extension_headers() {
        let found = Gtpu::find(&BYTES, 2152).unwrap();
        assert_eq!((found.len, found.total, found.next), (16, Some(17), 0x0800));
        let view = Gtpu::view(&BYTES[..16], ());
        assert_eq!((view.sequence_number(), view.npdu_number()), (Some(258), None));
        let extensions: Vec<_> = view.extensions().collect();
        assert_eq!(extensions, [GtpuExtension { kind: 0x85, content: &[0, 9] }]);
        assert_eq!(
            view.to_string(),
            "gtpu version 1, protocol_type 1, extension_header, sequence_number_flag, message_type 255, length 9, \
             teid 0x00000007, sequence_number 258, extension 0x85 of 2 bytes"
        );
    }

    #[test]
    fn without_optional_fields_it_is_eight_bytes() {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&Gtpu::new(1, 1).octets());
        bytes[8] = 0x60;
        let found = Gtpu::find(&bytes, 2152).unwrap();
        assert_eq!((found.len, found.total, found.next), (8, Some(9), 0x86dd));
        bytes[1] = 26;
        assert_eq!(Gtpu::find(&bytes, 2152).unwrap().next, NOTHING);
    }

    #[test]
    fn a_chain_that_lies_is_malformed() {
        let rule = |change: &dyn Fn(&mut [u8; 17])| {
            let mut bytes = BYTES;
            change(&mut bytes);
            Gtpu::find(&bytes, 2152).unwrap_err().rule
        };
        assert_eq!(rule(&|bytes| bytes[12] = 0), "an extension header of length 0");
        assert_eq!(rule(&|bytes| bytes[12] = 2), "the bytes end before the header does");
        assert_eq!(rule(&|bytes| bytes[3] = 7), "the bytes end before the header does");
        assert_eq!(rule(&|bytes| bytes[0] = 0x56), "the version is not 1");
        assert_eq!(rule(&|bytes| bytes[0] = 0x26), "the protocol type is GTP', not GTP");
    }

    #[test]
    fn an_endless_chain_is_cut() {
        let mut bytes = [1u8; 400];
        bytes[..12].copy_from_slice(&[0x34, 255, 1, 100, 0, 0, 0, 7, 0, 0, 0, 0x85]);
        assert_eq!(Gtpu::find(&bytes, 2152).unwrap_err().rule, "more extension headers than 16");
    }
}
