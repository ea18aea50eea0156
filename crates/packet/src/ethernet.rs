//! Ethernet II and IEEE 802.3 frames: two addresses, a type or length, and a payload.
//!
//! [`Ethernet`] is the bare header; functions that should also serve tagged frames parse
//! [`Link`](crate::link::Link).

use zerocopy::FromBytes;

use crate::mac::MacAddress;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, Usual, malformed, shape, whole};

crate::header! {
    /// An Ethernet header (IEEE 802.3-2022, clause 3.1; RFC 894).
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                     Destination Address                       |
    /// +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                               |        Source Address         |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
    /// |                                                               |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |       Type or Length          |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Ethernet, "ethernet", 14 bytes {
        /// The receiver's address.
        destination, set_destination: MacAddress = 0, 48, No, Mac, plain;
        /// The sender's address.
        source, set_source: MacAddress = 48, 48, No, Mac, plain;
        /// The EtherType, from 0x0600 on; below, the number of bytes that follow (802.3).
        ethertype, set_ethertype: u16 = 96, 16, No, EtherType, kept;
    }
}

crate::field::display! { Ethernet }

impl Ethernet {
    /// A header with these addresses, announcing `ethertype`.
    pub fn new(destination: MacAddress, source: MacAddress, ethertype: u16) -> Self {
        let mut header = Self([0; 14]);
        header.set_destination(destination);
        header.set_source(source);
        header.set_ethertype(ethertype);
        header
    }

    /// Exchanges source and destination, as a reply needs it.
    #[inline(always)]
    pub fn swap_addresses(&mut self) {
        let (destination, source) = (self.destination(), self.source());
        self.set_destination(source);
        self.set_source(destination);
    }
}

/// Reads the type-or-length field in the last two of `len` header bytes.
///
/// Answers the number of the next header, and where the payload ends if the field is a length.
pub(crate) fn type_or_length(value: u16, len: usize) -> (u16, Option<usize>) {
    match value {
        0..=1500 => (NOTHING, Some(len + value as usize)),
        1501..0x600 => (NOTHING, None),
        _ => (value, None),
    }
}

impl Header for Ethernet {
    type Facts = ();
    type Ref<'a> = &'a Self;
    type Mut<'a> = &'a mut Self;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Ok((header, _)) = Self::ref_from_prefix(bytes) else {
            return Err(malformed::<Self>("the frame ends before the header does", Self::SIZE, bytes.len()));
        };
        let (next, total) = type_or_length(header.ethertype(), Self::SIZE);
        if total.is_some_and(|total| total > bytes.len()) {
            return Err(malformed::<Self>(
                "its 802.3 length points beyond the frame",
                total.unwrap_or(0),
                bytes.len(),
            ));
        }
        Ok(Found { facts: (), len: Self::SIZE, total, next })
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<()>, Malformed> {
        let refused = match Self::find(bytes, announced) {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        let Some([high, low]) = bytes.get(12..14) else { return Err(refused) };
        let (next, total) = type_or_length(u16::from_be_bytes([*high, *low]), Self::SIZE);
        if total.is_none_or(|total| total > bytes.len().saturating_add(slack.missing)) {
            return Err(refused);
        }
        Ok(Found { facts: (), len: Self::SIZE, total, next })
    }
    #[inline(always)]
    fn find_usual<const SHAPE: u8>(_: &[u8], at: usize, _: u16, usual: Usual) -> Option<Found<()>> {
        let here = SHAPE != shape::ANY && at == 0 && usual.link::<SHAPE>() == Self::SIZE;
        here.then_some(Found { facts: (), len: Self::SIZE, total: None, next: Usual::network::<SHAPE>() })
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
    fn announce(header: &mut Self, next: u16) {
        header.set_ethertype(next);
    }
    fn set_total(header: &mut Self, total: usize) {
        if header.ethertype() <= 1500 {
            header.set_ethertype(total.saturating_sub(Self::SIZE).min(1500) as u16);
        }
    }
}

/// EtherType numbers (IANA "IEEE 802 Numbers"), and their names.
pub mod ethertype {
    macro_rules! numbers {
        ($($(#[$doc:meta])* $name:ident = $number:literal, $short:literal;)*) => {
            $( $(#[$doc])* pub const $name: u16 = $number; )*

            /// The short name that tools print, where the number has one.
            pub const fn name(number: u16) -> Option<&'static str> {
                match number {
                    $( $number => Some($short), )*
                    _ => None,
                }
            }
        };
    }
    numbers! {
        /// IPv4 (RFC 894).
        IPV4 = 0x0800, "ipv4";
        /// ARP (RFC 826).
        ARP = 0x0806, "arp";
        /// Wake-on-LAN.
        WAKE_ON_LAN = 0x0842, "wake-on-lan";
        /// Transparent Ethernet bridging (RFC 1701): a whole Ethernet frame in GRE or Geneve.
        TRANSPARENT_ETHERNET = 0x6558, "transparent-ethernet";
        /// Reverse ARP (RFC 903).
        RARP = 0x8035, "rarp";
        /// An IEEE 802.1Q customer tag.
        VLAN = 0x8100, "802.1q";
        /// IPv6 (RFC 2464).
        IPV6 = 0x86dd, "ipv6";
        /// Ethernet flow control (IEEE 802.3x).
        FLOW_CONTROL = 0x8808, "flow-control";
        /// Link aggregation and other slow protocols (IEEE 802.3 Annex 57A).
        SLOW_PROTOCOLS = 0x8809, "slow-protocols";
        /// MPLS, unicast (RFC 5332).
        MPLS = 0x8847, "mpls";
        /// MPLS, upstream-assigned label or multicast (RFC 5332).
        MPLS_MULTICAST = 0x8848, "mpls-multicast";
        /// PPPoE discovery (RFC 2516).
        PPPOE_DISCOVERY = 0x8863, "pppoe-discovery";
        /// A PPPoE session (RFC 2516).
        PPPOE_SESSION = 0x8864, "pppoe";
        /// Port-based access control (IEEE 802.1X).
        EAPOL = 0x888e, "eapol";
        /// An IEEE 802.1ad service tag.
        SERVICE_VLAN = 0x88a8, "802.1ad";
        /// Link layer discovery (IEEE 802.1AB).
        LLDP = 0x88cc, "lldp";
        /// MACsec (IEEE 802.1AE).
        MACSEC = 0x88e5, "macsec";
        /// Precision time (IEEE 1588).
        PTP = 0x88f7, "ptp";
        /// An outer tag from before 802.1ad.
        LEGACY_QINQ = 0x9100, "qinq";
    }

    /// A tag announces another ethertype four bytes further on.
    #[inline(always)]
    pub const fn is_vlan(number: u16) -> bool {
        matches!(number, VLAN | SERVICE_VLAN | LEGACY_QINQ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    const ALL_NODES: MacAddress = MacAddress::new([0x33, 0x33, 0, 0, 0, 1]);
    const SENDER: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 9]);
    /// IPv6 from the sender to all nodes, as on the wire.
    const BYTES: [u8; 14] = [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x86, 0xdd];

    #[test]
    fn fields_are_where_the_standard_draws_them() {
        let mut header = Ethernet::new(ALL_NODES, SENDER, ethertype::IPV6);
        assert_eq!(header.octets(), BYTES);
        let read = Ethernet::view(&BYTES, ());
        assert_eq!((read.destination(), read.source(), read.ethertype()), (ALL_NODES, SENDER, 0x86dd));
        assert_eq!(
            read.to_string(),
            "ethernet destination 33:33:00:00:00:01, source 02:00:00:00:00:09, ethertype ipv6 (0x86dd)"
        );
        header.swap_addresses();
        assert_eq!(header.octets(), [2, 0, 0, 0, 0, 9, 0x33, 0x33, 0, 0, 0, 1, 0x86, 0xdd]);
    }

    #[test]
    fn a_type_says_what_follows_and_a_length_where_that_ends() {
        let find = |type_or_length: u16, size: usize| {
            let mut frame = [0; 1600];
            frame[12..14].copy_from_slice(&type_or_length.to_be_bytes());
            Ethernet::find(&frame[..size], 0).map(|found| (found.next, found.len, found.total))
        };
        assert_eq!(find(0x0600, 14), Ok((0x0600, 14, None)));
        assert_eq!(find(0x0800, 1600), Ok((0x0800, 14, None)));
        assert_eq!(find(0, 60), Ok((NOTHING, 14, Some(14))));
        assert_eq!(find(46, 60), Ok((NOTHING, 14, Some(60))));
        assert_eq!(find(1500, 1514), Ok((NOTHING, 14, Some(1514))));
        // IEEE 802.3-2022, clause 3.2.6: neither a length nor a type.
        for undefined in [1501, 0x05ff] {
            assert_eq!(find(undefined, 60), Ok((NOTHING, 14, None)));
        }
        let beyond = find(46, 59).unwrap_err();
        assert_eq!(
            beyond.to_string(),
            "ethernet: its 802.3 length points beyond the frame (needed 60, found 59)"
        );
        let short = find(0x0800, 13).unwrap_err();
        assert_eq!(
            short.to_string(),
            "ethernet: the frame ends before the header does (needed 14, found 13)"
        );
    }

    #[test]
    fn a_length_follows_the_payload_and_a_type_stays() {
        let set = |before: u16, total: usize| {
            let mut header = Ethernet::new(ALL_NODES, SENDER, before);
            Ethernet::set_total(&mut header, total);
            header.ethertype()
        };
        assert_eq!((set(46, 114), set(1500, 14), set(0, 9_000)), (100, 0, 1500));
        assert_eq!((set(1501, 114), set(ethertype::IPV4, 114)), (1501, 0x0800));
    }

    #[test]
    fn three_types_announce_a_tag() {
        let tags: std::vec::Vec<u16> = (0..=u16::MAX).filter(|number| ethertype::is_vlan(*number)).collect();
        assert_eq!(tags, [0x8100, 0x88a8, 0x9100]);
    }
}
