//! One MPLS label stack entry (RFC 3032, section 2.1; the traffic class is RFC 5462's name for the "Exp" bits).
//!
//! Labels do not state their payload's type, so after the bottom of the stack the payload's first nibble
//! decides.

use zerocopy::FromBytes;

use crate::field::Field;
use crate::stack::{Found, Header, Malformed, NOTHING, whole};

crate::header! {
    /// One label stack entry, RFC 3032, section 2.1.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                Label                  | TC  |S|      TTL      |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Mpls, "mpls", 4 bytes {
        /// The label, 20 bits; 0 to 15 are reserved (RFC 3032, section 2.1).
        label, set_label: u32 = 0, 20, No, Dec, plain;
        /// Traffic class, 3 bits (RFC 5462).
        traffic_class, set_traffic_class: u8 = 20, 3, No, Dec, plain;
        /// Set in the last entry of the stack. An announcement: operators that push and pop labels write it.
        bottom_of_stack, set_bottom_of_stack: bool = 23, 1, No, Flag, kept;
        /// Hops left.
        time_to_live, set_time_to_live: u8 = 24, 8, No, Dec, plain;
    }
}

crate::field::display! { Mpls }

impl Mpls {
    /// The EtherType of a unicast label stack (RFC 5332, section 4), which an entry above the bottom announces too.
    pub const ETHER_TYPE: u16 = 0x8847;
    /// The EtherType of a label stack with an upstream-assigned label (RFC 5332, section 4).
    pub const ETHER_TYPE_UPSTREAM: u16 = 0x8848;

    /// An entry at the bottom of the stack. Labels over 20 bits lose their upper bits.
    pub fn new(label: u32, time_to_live: u8) -> Self {
        let mut entry = Self([0; 4]);
        entry.set_label(label);
        entry.set_bottom_of_stack(true);
        entry.set_time_to_live(time_to_live);
        entry
    }

    /// The EtherType of the bytes after this label: another label, or the protocol that their first nibble
    /// shows.
    ///
    /// RFC 4928, section 2: 4 and 6 are IP. 0 is a pseudowire's control word, which no code here reads.
    #[inline(always)]
    fn follower(&self, payload: &[u8]) -> u16 {
        match payload.first().map(|byte| byte >> 4) {
            _ if !self.bottom_of_stack() => Self::ETHER_TYPE,
            Some(4) => 0x0800,
            Some(6) => 0x86dd,
            _ => NOTHING,
        }
    }
}

impl Header for Mpls {
    type Facts = ();
    type Ref<'a> = &'a Mpls;
    type Mut<'a> = &'a mut Mpls;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Ok((entry, payload)) = Mpls::ref_from_prefix(bytes) else {
            return Err(Malformed {
                header: Self::NAME,
                rule: "the bytes end before the label does",
                needed: 4,
                found: bytes.len() as u32,
            });
        };
        Ok(Found { facts: (), len: 4, total: None, next: entry.follower(payload) })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Mpls {
        whole(Mpls::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Mpls {
        whole(Mpls::mut_from_prefix(bytes)).0
    }
    /// Another label after this one makes it not the bottom. Any other header makes it the bottom.
    fn announce(entry: &mut Mpls, next: u16) {
        entry.set_bottom_of_stack(next != Self::ETHER_TYPE && next != Self::ETHER_TYPE_UPSTREAM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn bits_are_where_the_rfc_draws_them() {
        let mut entry = Mpls::new(0xabcde, 64);
        entry.set_traffic_class(5);
        assert_eq!(entry.octets(), [0xab, 0xcd, 0xeb, 64]);
        assert_eq!(entry.to_string(), "mpls label 703710, traffic_class 5, bottom_of_stack, time_to_live 64");
        entry.set_label(u32::MAX);
        assert_eq!((entry.label(), entry.traffic_class(), entry.time_to_live()), (0xfffff, 5, 64));
    }

    #[test]
    fn labels_follow_until_the_bottom_and_then_the_nibble_decides() {
        let next = |bytes: &[u8]| Mpls::find(bytes, 0).map(|found| found.next);
        assert_eq!(next(&[0, 1, 0x00, 64, 0x45]), Ok(0x8847));
        assert_eq!(next(&[0, 1, 0x01, 64, 0x45]), Ok(0x0800));
        assert_eq!(next(&[0, 1, 0x01, 64, 0x60]), Ok(0x86dd));
        assert_eq!(next(&[0, 1, 0x01, 64, 0x00]), Ok(NOTHING));
        assert_eq!(next(&[0, 1, 0x01, 64]), Ok(NOTHING));
        let error = next(&[0, 1, 0x01]).unwrap_err();
        assert_eq!(error.to_string(), "mpls: the bytes end before the label does (needed 4, found 3)");
    }

    #[test]
    fn announcing_sets_the_bottom() {
        let mut entry = Mpls::new(1, 1);
        Mpls::announce(&mut entry, 0x8847);
        assert!(!entry.bottom_of_stack());
        Mpls::announce(&mut entry, 0x86dd);
        assert!(entry.bottom_of_stack());
    }
}
