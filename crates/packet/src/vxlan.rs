//! VXLAN (RFC 7348, section 5): an Ethernet frame in UDP, with a 24-bit network identifier.

use zerocopy::FromBytes;

use crate::field::Field;
use crate::stack::{Found, Header, Malformed, whole};

crate::header! {
    /// VXLAN, RFC 7348, section 5.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |R|R|R|R|I|R|R|R|            Reserved                           |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                VXLAN Network Identifier (VNI) |   Reserved    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Vxlan, "vxlan", 8 bytes {
        /// The "I" flag: the identifier is valid. Without it the packet is not VXLAN.
        vni_valid, set_vni_valid: bool = 4, 1, No, Flag, kept;
        /// The VXLAN network identifier, 24 bits.
        vni, set_vni: u32 = 32, 24, No, Dec, plain;
    }
}

crate::field::display! { Vxlan }

impl Vxlan {
    /// The UDP destination port that IANA assigned.
    pub const PORT: u16 = 4789;
    /// The announcement of every VXLAN packet: a bridged Ethernet frame.
    pub const ETHERNET: u16 = 0x6558;

    /// The header of network `vni`; numbers over 24 bits lose their upper bits.
    pub fn new(vni: u32) -> Self {
        let mut header = Self([0; 8]);
        header.set_vni_valid(true);
        header.set_vni(vni);
        header
    }
}

impl Header for Vxlan {
    type Facts = ();
    type Ref<'a> = &'a Vxlan;
    type Mut<'a> = &'a mut Vxlan;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let Ok((header, _)) = Vxlan::ref_from_prefix(bytes) else {
            return Err(malformed("the bytes end before the header does", 8, bytes.len() as u32));
        };
        if !header.vni_valid() {
            return Err(malformed(
                "the flag that makes the VNI valid is clear",
                0x08,
                u32::from(header.0[0]),
            ));
        }
        Ok(Found { facts: (), len: 8, total: None, next: Self::ETHERNET })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Vxlan {
        whole(Vxlan::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Vxlan {
        whole(Vxlan::mut_from_prefix(bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn bits_are_where_the_rfc_draws_them() {
        let header = Vxlan::new(0x0012_3456);
        assert_eq!(header.octets(), [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(header.to_string(), "vxlan vni_valid, vni 1193046");
        let found = Vxlan::find(&header.octets(), Vxlan::PORT).unwrap();
        assert_eq!((found.len, found.total, found.next), (8, None, 0x6558));
    }

    #[test]
    fn without_its_flag_or_its_bytes_it_is_not_vxlan() {
        assert_eq!(Vxlan::find(&[0; 8], 4789).unwrap_err().needed, 8);
        assert_eq!(Vxlan::find(&[8; 7], 4789).unwrap_err().rule, "the bytes end before the header does");
    }
}
