//! PPP over Ethernet (RFC 2516) and the PPP protocol field that it and PPTP carry (RFC 1661, section 2).
//!
//! IP after PPP is announced by its EtherType, as after any other link; discovery and session packets share one header; only a session packet (code 0) carries PPP.

use zerocopy::FromBytes;

use crate::ethernet::ethertype;
use crate::field::Field;
use crate::stack::{Found, Header, Malformed, NOTHING, whole};

crate::header! {
    /// PPPoE, RFC 2516, section 4.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  VER  | TYPE  |      CODE     |          SESSION_ID           |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |            LENGTH             |           payload             ~
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Pppoe, "pppoe", 6 bytes {
        /// Always 1.
        version, set_version: u8 = 0, 4, No, Dec, kept;
        /// Always 1 (the RFC's "TYPE").
        kind, set_kind: u8 = 4, 4, No, Dec, kept;
        /// 0 for a session; 0x09 PADI, 0x07 PADO, 0x19 PADR, 0x65 PADS, 0xa7 PADT.
        code, set_code: u8 = 8, 8, No, Hex, plain;
        /// The session, as the access concentrator numbered it.
        session_id, set_session_id: u16 = 16, 16, No, Hex, plain;
        /// Bytes after this header: PPP's protocol field and payload, not the frame's padding.
        length, set_length: u16 = 32, 16, No, Dec, kept;
    }
}

crate::header! {
    /// PPP's protocol field, RFC 1661, section 2, uncompressed.
    ///
    /// ```text
    ///  0                   1
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |           Protocol            |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Ppp, "ppp", 2 bytes {
        /// The protocol number: 0x0021 IPv4, 0x0057 IPv6, 0xc021 LCP and others (IANA).
        protocol, set_protocol: u16 = 0, 16, No, Hex, kept;
    }
}

crate::field::display! { Pppoe Ppp }

impl Pppoe {
    /// The EtherType of a session's packets.
    pub const SESSION: u16 = 0x8864;
    /// The EtherType of discovery packets.
    pub const DISCOVERY: u16 = 0x8863;
    /// The announcement of a session packet: the number of PPP among the EtherTypes.
    pub const PPP: u16 = 0x880b;

    /// A session packet with `length` bytes after this header.
    pub fn new(session_id: u16, length: u16) -> Self {
        let mut header = Self([0x11, 0, 0, 0, 0, 0]);
        header.set_session_id(session_id);
        header.set_length(length);
        header
    }
}

impl Header for Pppoe {
    type Facts = ();
    type Ref<'a> = &'a Pppoe;
    type Mut<'a> = &'a mut Pppoe;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let Ok((header, _)) = Pppoe::ref_from_prefix(bytes) else {
            return Err(malformed("the bytes end before the header does", 6, bytes.len() as u32));
        };
        if header.0[0] != 0x11 {
            return Err(malformed("version and type are not both 1", 0x11, u32::from(header.0[0])));
        }
        let next = if header.code() == 0 { Self::PPP } else { NOTHING };
        Ok(Found { facts: (), len: 6, total: Some(6 + usize::from(header.length())), next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Pppoe {
        whole(Pppoe::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Pppoe {
        whole(Pppoe::mut_from_prefix(bytes)).0
    }
    /// Saturates at 65,535 bytes; an operator refuses a longer packet before it gets here.
    fn set_total(header: &mut Pppoe, total: usize) {
        header.set_length(total.saturating_sub(6).min(usize::from(u16::MAX)) as u16);
    }
}

/// The shape of a PPP header.
///
/// See RFC 1661, section 2; RFC 1662, section 3.1; RFC 1661, section 6.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PppShape {
    /// Two bytes of protocol.
    Plain,
    /// One byte of protocol: its low bit is set, which no first byte of two has.
    Compressed,
    /// `ff 03` (all stations, unnumbered information), then two bytes of protocol, as PPTP sends it.
    Framed,
    /// `ff 03`, then one byte of protocol.
    FramedCompressed,
}

impl PppShape {
    /// The shape of a header under construction: the builder writes the plain one.
    pub(crate) fn of_built(_: &[u8]) -> Self {
        Self::Plain
    }
    /// Bytes of a header of this shape.
    pub const fn size(self) -> usize {
        match self {
            Self::Compressed => 1,
            Self::Plain => 2,
            Self::FramedCompressed => 3,
            Self::Framed => 4,
        }
    }
}

/// A checked PPP header, for reading.
#[derive(Clone, Copy, Debug)]
pub struct PppRef<'a> {
    bytes: &'a [u8],
    shape: PppShape,
}

impl PppRef<'_> {
    /// The protocol number, whether it was compressed or not.
    #[inline(always)]
    pub fn protocol(&self) -> u16 {
        match (self.shape, self.bytes) {
            (PppShape::Plain, [high, low, ..]) | (PppShape::Framed, [_, _, high, low, ..]) => {
                u16::from_be_bytes([*high, *low])
            }
            (PppShape::Compressed, [low, ..]) | (PppShape::FramedCompressed, [_, _, low, ..]) => {
                u16::from(*low)
            }
            _ => NOTHING,
        }
    }
    /// Which of its shapes the header has.
    pub fn shape(&self) -> PppShape {
        self.shape
    }
}

impl Header for Ppp {
    type Facts = PppShape;
    type Ref<'a> = PppRef<'a>;
    type Mut<'a> = &'a mut [u8];
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<PppShape>, Malformed> {
        let framed = bytes.starts_with(&[0xff, 0x03]);
        let protocol = if framed { &bytes[2..] } else { bytes };
        let (shape, number) = match (framed, protocol) {
            (_, [low, ..]) if low & 1 == 1 => {
                let shape = if framed { PppShape::FramedCompressed } else { PppShape::Compressed };
                (shape, u16::from(*low))
            }
            (_, [high, low, ..]) => {
                let shape = if framed { PppShape::Framed } else { PppShape::Plain };
                (shape, u16::from_be_bytes([*high, *low]))
            }
            _ => {
                return Err(Malformed {
                    header: Self::NAME,
                    rule: "the bytes end before the protocol field does",
                    needed: if framed { 4 } else { 2 },
                    found: bytes.len() as u32,
                });
            }
        };
        let next = match number {
            Self::IPV4 => ethertype::IPV4,
            Self::IPV6 => ethertype::IPV6,
            _ => NOTHING,
        };
        Ok(Found { facts: shape, len: shape.size(), total: None, next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], shape: PppShape) -> PppRef<'_> {
        PppRef { bytes, shape }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], _: PppShape) -> &mut [u8] {
        bytes
    }
    /// Takes the EtherTypes of IPv4 and IPv6, or a PPP number.
    ///
    /// A compressed field keeps its one byte: numbers that do not fit it are not written.
    fn announce(bytes: &mut [u8], next: u16) {
        let next = Self::number(next);
        let at = if bytes.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
        match &mut bytes[at..] {
            [one] if next < 0x100 && next & 1 == 1 => *one = next as u8,
            [high, low] => [*high, *low] = next.to_be_bytes(),
            _ => {}
        }
    }
}

impl Ppp {
    /// The number of IPv4.
    pub const IPV4: u16 = 0x0021;
    /// The number of IPv6.
    pub const IPV6: u16 = 0x0057;

    /// The PPP number for `next`: IP's EtherTypes are converted, other numbers are PPP's already.
    pub(crate) fn number(next: u16) -> u16 {
        match next {
            ethertype::IPV4 => Self::IPV4,
            ethertype::IPV6 => Self::IPV6,
            other => other,
        }
    }

    /// An uncompressed protocol field.
    pub fn new(protocol: u16) -> Self {
        Self(protocol.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn a_session_packet_bounds_its_payload_and_announces_ppp() {
        let header = Pppoe::new(0x1234, 20);
        assert_eq!(header.octets(), [0x11, 0, 0x12, 0x34, 0, 20]);
        let found = Pppoe::find(&header.octets(), 0x8864).unwrap();
        assert_eq!((found.len, found.total, found.next), (6, Some(26), Pppoe::PPP));
        assert_eq!(header.to_string(), "pppoe version 1, kind 1, code 0x00, session_id 0x1234, length 20");
    }

    #[test]
    fn discovery_carries_nothing_to_parse_and_other_versions_are_malformed() {
        assert_eq!(Pppoe::find(&[0x11, 0x09, 0, 0, 0, 0], 0x8863).unwrap().next, NOTHING);
        let error = Pppoe::find(&[0x21, 0, 0, 0, 0, 0], 0x8864).unwrap_err();
        assert_eq!(error.rule, "version and type are not both 1");
        assert_eq!(Pppoe::find(&[0x11; 5], 0x8864).unwrap_err().needed, 6);
    }

    #[test]
    fn the_stated_length_never_wraps() {
        let mut header = Pppoe::new(1, 0);
        for (total, length) in [(6, 0), (26, 20), (3, 0), (65_541, 65_535), (70_000, 65_535)] {
            Pppoe::set_total(&mut header, total);
            assert_eq!(header.length(), length, "{total}");
        }
    }

    #[test]
    fn every_shape_of_ppp_tells_the_same_protocol() {
        let shapes: [(&[u8], PppShape, usize); 4] = [
            (&[0x00, 0x21, 0x45], PppShape::Plain, 2),
            (&[0x21, 0x45], PppShape::Compressed, 1),
            (&[0xff, 0x03, 0x00, 0x21, 0x45], PppShape::Framed, 4),
            (&[0xff, 0x03, 0x21, 0x45], PppShape::FramedCompressed, 3),
        ];
        for (bytes, shape, len) in shapes {
            let found = Ppp::find(bytes, Pppoe::PPP).unwrap();
            assert_eq!((found.facts, found.len, found.next), (shape, len, ethertype::IPV4));
            assert_eq!(Ppp::view(&bytes[..len], shape).protocol(), Ppp::IPV4);
            let mut copy = [0; 4];
            copy[..len].copy_from_slice(&bytes[..len]);
            Ppp::announce(&mut copy[..len], ethertype::IPV6);
            assert_eq!(Ppp::view(&copy[..len], shape).protocol(), Ppp::IPV6);
        }
        for short in [&[][..], &[0x00], &[0xff, 0x03], &[0xff, 0x03, 0x00]] {
            assert!(Ppp::find(short, Pppoe::PPP).is_err(), "{short:?}");
        }
    }
}
