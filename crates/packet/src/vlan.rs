//! One IEEE 802.1Q or 802.1ad tag, for chains that add, remove or require tags one by one.
//!
//! Chains that only want to see through tags parse [`Link`](crate::link::Link) instead.

use zerocopy::FromBytes;

use crate::ethernet::type_or_length;
use crate::stack::{Found, Header, Malformed, malformed, whole};

crate::header! {
    /// A VLAN tag (IEEE 802.1Q-2022, clause 9.6), without the ethertype before it that announces it.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// | PCP |D|      VLAN ID          |        Type or Length         |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Vlan, "vlan", 4 bytes {
        /// Priority code point, 0 to 7.
        pcp, set_pcp: u8 = 0, 3, No, Dec, plain;
        /// Drop eligible indicator.
        dei, set_dei: bool = 3, 1, No, Flag, plain;
        /// VLAN identifier, 0 to 4095; 0 is "priority only".
        vid, set_vid: u16 = 4, 12, No, Dec, plain;
        /// The EtherType or length after the tag, as in [`Ethernet`](crate::Ethernet).
        ethertype, set_ethertype: u16 = 16, 16, No, EtherType, kept;
    }
}

crate::field::display! { Vlan }

impl Vlan {
    /// A tag with priority 0; the low 12 bits of `vid` count.
    pub fn new(vid: u16, ethertype: u16) -> Self {
        let mut tag = Self([0; 4]);
        tag.set_vid(vid);
        tag.set_ethertype(ethertype);
        tag
    }
}

impl Header for Vlan {
    type Facts = ();
    type Ref<'a> = &'a Self;
    type Mut<'a> = &'a mut Self;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Ok((tag, _)) = Self::ref_from_prefix(bytes) else {
            return Err(malformed::<Self>("the frame ends before the tag does", Self::SIZE, bytes.len()));
        };
        let (next, total) = type_or_length(tag.ethertype(), Self::SIZE);
        if total.is_some_and(|total| total > bytes.len()) {
            return Err(malformed::<Self>(
                "its 802.3 length points beyond the frame",
                total.unwrap_or(0),
                bytes.len(),
            ));
        }
        Ok(Found { facts: (), len: Self::SIZE, total, next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Self {
        whole(Self::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Self {
        whole(Self::mut_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn announce(tag: &mut Self, next: u16) {
        tag.set_ethertype(next);
    }
    fn set_total(tag: &mut Self, total: usize) {
        if tag.ethertype() <= 1500 {
            tag.set_ethertype(total.saturating_sub(Self::SIZE).min(1500) as u16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::ethertype;
    use crate::stack::NOTHING;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn bits_are_where_the_standard_draws_them() {
        // PCP 5, DEI set, VLAN 0x123, IPv4.
        let bytes = [0b1011_0001, 0x23, 0x08, 0x00];
        let tag = Vlan::view(&bytes, ());
        assert_eq!((tag.pcp(), tag.dei(), tag.vid(), tag.ethertype()), (5, true, 0x123, ethertype::IPV4));
        assert_eq!(tag.to_string(), "vlan pcp 5, dei, vid 291, ethertype ipv4 (0x0800)");
        assert_eq!(Vlan::new(0xf123, ethertype::IPV4).octets(), [0x01, 0x23, 0x08, 0x00]);
    }

    #[test]
    fn a_field_is_written_without_its_neighbours() {
        for background in [0x00, 0xff] {
            for pcp in 0..8 {
                let mut tag = Vlan([background; 4]);
                tag.set_pcp(pcp);
                assert_eq!(tag.octets(), [pcp << 5 | background & 0x1f, background, background, background]);
            }
            for dei in [false, true] {
                let mut tag = Vlan([background; 4]);
                tag.set_dei(dei);
                assert_eq!(tag.octets()[0], background & 0xef | u8::from(dei) << 4);
                assert_eq!(tag.octets()[1..], [background; 3]);
            }
            for vid in 0..4096 {
                let mut tag = Vlan([background; 4]);
                tag.set_vid(vid);
                let [high, low] = vid.to_be_bytes();
                assert_eq!(tag.octets(), [background & 0xf0 | high, low, background, background]);
            }
        }
    }

    #[test]
    fn a_type_says_what_follows_and_a_length_where_that_ends() {
        let find = |type_or_length: u16, size: usize| {
            let mut bytes = [0; 1600];
            bytes[2..4].copy_from_slice(&type_or_length.to_be_bytes());
            Vlan::find(&bytes[..size], ethertype::VLAN).map(|found| (found.next, found.len, found.total))
        };
        assert_eq!(find(0x8100, 4), Ok((0x8100, 4, None)));
        assert_eq!(find(42, 46), Ok((NOTHING, 4, Some(46))));
        assert_eq!(find(1500, 1504), Ok((NOTHING, 4, Some(1504))));
        assert_eq!(find(1501, 46), Ok((NOTHING, 4, None)));
        let beyond = find(42, 45).unwrap_err();
        assert_eq!(
            beyond.to_string(),
            "vlan: its 802.3 length points beyond the frame (needed 46, found 45)"
        );
        let short = find(0x0800, 3).unwrap_err();
        assert_eq!(short.to_string(), "vlan: the frame ends before the tag does (needed 4, found 3)");
    }

    #[test]
    fn a_length_follows_the_payload_and_a_type_stays() {
        let set = |before: u16, total: usize| {
            let mut tag = Vlan::new(7, before);
            Vlan::set_total(&mut tag, total);
            assert_eq!(tag.vid(), 7);
            tag.ethertype()
        };
        assert_eq!((set(46, 104), set(1500, 4), set(0, 9_000)), (100, 0, 1500));
        assert_eq!((set(1501, 104), set(ethertype::IPV4, 104)), (1501, 0x0800));
        let mut tag = Vlan::new(7, 46);
        Vlan::announce(&mut tag, ethertype::IPV6);
        assert_eq!(tag.octets(), [0, 7, 0x86, 0xdd]);
    }
}
