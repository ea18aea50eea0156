//! Geneve (RFC 8926, section 3.4): an encapsulation in UDP with options of type, length and value.
//!
//! The options are part of the header. The view iterates them and stops at the first one with a wrong length.

use core::fmt;
use core::ops::{Deref, DerefMut};

use zerocopy::FromBytes;

use crate::field::Field;
use crate::print::Fields;
use crate::stack::{Found, Header, Malformed, whole};

crate::header! {
    /// Geneve, RFC 8926, section 3.4.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |Ver|  Opt Len  |O|C|    Rsvd.  |          Protocol Type        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |        Virtual Network Identifier (VNI)       |    Reserved   |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ~                    Variable-Length Options                    ~
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Geneve, "geneve", 8 bytes {
        /// Always 0; other versions are malformed, as the RFC asks.
        version, set_version: u8 = 0, 2, No, Dec, kept;
        /// The options' length in 4-byte words.
        option_length, set_option_length: u8 = 2, 6, No, Dec, kept;
        /// A control message: not to be forwarded to tenants.
        control, set_control: bool = 8, 1, No, Flag, plain;
        /// At least one option is critical: a receiver that does not know it drops the packet.
        critical, set_critical: bool = 9, 1, No, Flag, kept;
        /// The EtherType of the payload; 0x6558 for an Ethernet frame.
        protocol_type, set_protocol_type: u16 = 16, 16, No, EtherType, kept;
        /// The virtual network identifier, 24 bits.
        vni, set_vni: u32 = 32, 24, No, Dec, plain;
    }
}

crate::header! {
    /// The fixed part of one option, RFC 8926, section 3.5.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |          Option Class         |      Type     |R|R|R| Length  |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ~                  Variable-Length Option Data                  ~
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct GeneveOptionHeader, "option", 4 bytes {
        /// The organisation that defines the type (IANA).
        class, set_class: u16 = 0, 16, No, Hex, plain;
        /// The type; its upper bit makes the option critical.
        kind, set_kind: u8 = 16, 8, No, Hex, plain;
        /// The data's length in 4-byte words.
        length, set_length: u8 = 27, 5, No, Dec, kept;
    }
}

crate::field::display! { Geneve GeneveOptionHeader }

impl Geneve {
    /// The UDP destination port that IANA assigned.
    pub const PORT: u16 = 6081;
    /// The protocol type of a bridged Ethernet frame.
    pub const ETHERNET: u16 = 0x6558;

    /// The header of network `vni` without options; numbers over 24 bits lose their upper bits.
    pub fn new(vni: u32, protocol_type: u16) -> Self {
        let mut header = Self([0; 8]);
        header.set_protocol_type(protocol_type);
        header.set_vni(vni);
        header
    }

    /// Bytes of the header, options included.
    #[inline(always)]
    pub fn header_length(&self) -> usize {
        8 + 4 * usize::from(self.option_length())
    }
}

/// One option: its class, its type, and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// The organisation that defines the type (IANA).
    pub class: u16,
    /// The type; its upper bit makes the option critical.
    pub kind: u8,
    /// The data: a multiple of 4 bytes, up to 124.
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// A receiver that does not know the option has to drop the packet.
    pub fn is_critical(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// The options of a header, first to last; ends early at an option that reaches beyond the header.
#[derive(Clone, Copy, Debug)]
pub struct GeneveOptions<'a> {
    rest: &'a [u8],
}

impl<'a> GeneveOptions<'a> {
    /// Bytes that are not read yet.
    ///
    /// If an option has a wrong length, they are not empty after the last option.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for GeneveOptions<'a> {
    type Item = GeneveOption<'a>;
    fn next(&mut self) -> Option<GeneveOption<'a>> {
        let (option, data) = GeneveOptionHeader::ref_from_prefix(self.rest).ok()?;
        let (data, rest) = data.split_at_checked(4 * usize::from(option.length()))?;
        self.rest = rest;
        Some(GeneveOption { class: option.class(), kind: option.kind(), data })
    }
}

/// A checked Geneve header, for reading; its fixed part is read through it.
#[derive(Clone, Copy)]
pub struct GeneveRef<'a> {
    bytes: &'a [u8],
}

impl<'a> GeneveRef<'a> {
    /// Its options, first to last.
    pub fn options(&self) -> GeneveOptions<'a> {
        GeneveOptions { rest: self.bytes.get(8..).unwrap_or_default() }
    }
    /// All the header's bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Deref for GeneveRef<'_> {
    type Target = Geneve;
    #[inline(always)]
    fn deref(&self) -> &Geneve {
        whole(Geneve::ref_from_prefix(self.bytes)).0
    }
}

/// A checked Geneve header, for writing.
pub struct GeneveMut<'a> {
    bytes: &'a mut [u8],
}

impl GeneveMut<'_> {
    /// As it reads.
    #[inline(always)]
    pub fn as_ref(&self) -> GeneveRef<'_> {
        GeneveRef { bytes: self.bytes }
    }
}

impl Deref for GeneveMut<'_> {
    type Target = Geneve;
    #[inline(always)]
    fn deref(&self) -> &Geneve {
        whole(Geneve::ref_from_prefix(self.bytes)).0
    }
}
impl DerefMut for GeneveMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Geneve {
        whole(Geneve::mut_from_prefix(self.bytes)).0
    }
}

impl Header for Geneve {
    type Facts = ();
    type Ref<'a> = GeneveRef<'a>;
    type Mut<'a> = GeneveMut<'a>;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let short = |needed: usize| {
            malformed("the bytes end before the header does", needed as u32, bytes.len() as u32)
        };
        let Ok((header, _)) = Geneve::ref_from_prefix(bytes) else { return Err(short(8)) };
        if header.version() != 0 {
            return Err(malformed("the version is not 0", 0, u32::from(header.version())));
        }
        let len = header.header_length();
        if len > bytes.len() {
            return Err(short(len));
        }
        Ok(Found { facts: (), len, total: None, next: header.protocol_type() })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> GeneveRef<'_> {
        GeneveRef { bytes }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> GeneveMut<'_> {
        GeneveMut { bytes }
    }
    fn announce(mut header: GeneveMut<'_>, next: u16) {
        header.set_protocol_type(next);
    }
}

impl fmt::Display for GeneveRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fields { name: Geneve::SHORT, table: Geneve::TABLE, bytes: self.bytes }.fmt(f)?;
        for option in self.options() {
            write!(f, ", option {:#06x}/{:#04x} of {} bytes", option.class, option.kind, option.data.len())?;
        }
        Ok(())
    }
}
impl fmt::Debug for GeneveRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for GeneveMut<'_> {
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

    /// Two options: 4 bytes of data, then none; and one byte of payload.
    const BYTES: [u8; 21] =
        [0x03, 0x40, 0x65, 0x58, 0, 0, 7, 0, 0x01, 0x02, 0x83, 1, 9, 8, 7, 6, 0x01, 0x03, 0x04, 0, 0xff];

    #[test]
    fn options_are_iterated_within_the_header() {
        let found = Geneve::find(&BYTES, 6081).unwrap();
        assert_eq!((found.len, found.total, found.next), (20, None, 0x6558));
        let view = Geneve::view(&BYTES[..20], ());
        let options: Vec<_> = view.options().collect();
        assert_eq!(
            options,
            [
                GeneveOption { class: 0x0102, kind: 0x83, data: &[9, 8, 7, 6] },
                GeneveOption { class: 0x0103, kind: 0x04, data: &[] }
            ]
        );
        assert!(options[0].is_critical() && !options[1].is_critical());
        assert_eq!(
            view.to_string(),
            "geneve version 0, option_length 3, critical, protocol_type transparent-ethernet (0x6558), vni 7, \
             option 0x0102/0x83 of 4 bytes, option 0x0103/0x04 of 0 bytes"
        );
    }

    #[test]
    fn an_option_that_reaches_beyond_the_header_ends_the_options() {
        let mut bytes = BYTES;
        bytes[11] = 31;
        let mut options = Geneve::view(&bytes[..20], ()).options();
        assert_eq!(options.next(), None);
        assert_eq!(options.rest().len(), 12);
    }

    #[test]
    fn a_short_header_or_another_version_is_malformed() {
        assert_eq!(Geneve::find(&BYTES[..19], 6081).unwrap_err().needed, 20);
        assert_eq!(Geneve::find(&BYTES[..7], 6081).unwrap_err().needed, 8);
        let mut bytes = BYTES;
        bytes[0] |= 0x40;
        assert_eq!(Geneve::find(&bytes, 6081).unwrap_err().rule, "the version is not 0");
    }
}
