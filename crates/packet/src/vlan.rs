//! One IEEE 802.1Q or 802.1ad tag, for chains that add, remove or require tags one by one.
//!
//! Chains that only want to see through tags parse [`Link`](crate::link::Link) instead.

use zerocopy::FromBytes;

use crate::ethernet::{Ethernet, ethertype, type_or_length};
use crate::stack::{Follows, Found, Header, Malformed, malformed, whole};

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
        /// What follows the tag, as in [`Ethernet`].
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

impl Follows<Ethernet> for Vlan {
    const NUMBERS: &'static [u16] = &[ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ];
}
impl Follows<Vlan> for Vlan {
    const NUMBERS: &'static [u16] = <Self as Follows<Ethernet>>::NUMBERS;
}
