//! ARP for IPv4 over Ethernet (RFC 826), the only kind still met.

use core::net::Ipv4Addr;

use zerocopy::FromBytes;

use crate::ethernet::ethertype;
use crate::mac::MacAddress;
use crate::stack::{Found, Header, Malformed, NOTHING, malformed, whole};

crate::header! {
    /// An ARP packet for IPv4 over Ethernet (RFC 826, "Packet format").
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |         Hardware Type         |         Protocol Type         |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  Hw. Length   | Proto. Length |           Operation           |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                    Sender Hardware Address                    |
    /// +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                               |    Sender Protocol Address    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                               |    Target Hardware Address    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
    /// |                                                               |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                    Target Protocol Address                    |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Arp, "arp", 28 bytes {
        /// 1: Ethernet.
        hardware_type, set_hardware_type: u16 = 0, 16, No, Dec, kept;
        /// 0x0800: IPv4.
        protocol_type, set_protocol_type: u16 = 16, 16, No, EtherType, kept;
        /// 6.
        hardware_length, set_hardware_length: u8 = 32, 8, No, Dec, kept;
        /// 4.
        protocol_length, set_protocol_length: u8 = 40, 8, No, Dec, kept;
        /// 1 asks, 2 answers.
        operation, set_operation: u16 = 48, 16, No, Dec, plain;
        /// The sender's MAC address.
        sender_mac, set_sender_mac: MacAddress = 64, 48, No, Mac, plain;
        /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227).
        sender_ip, set_sender_ip: Ipv4Addr = 112, 32, No, Ipv4, plain;
        /// The target's MAC address; zero in a request.
        target_mac, set_target_mac: MacAddress = 144, 48, No, Mac, plain;
        /// The target's IPv4 address.
        target_ip, set_target_ip: Ipv4Addr = 192, 32, No, Ipv4, plain;
    }
}

crate::field::display! { Arp }

impl Arp {
    /// The operation that asks.
    pub const REQUEST: u16 = 1;
    /// The operation that answers.
    pub const REPLY: u16 = 2;

    /// Asks for the owner of `target_ip`.
    pub fn request(sender_mac: MacAddress, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        let mut packet = Self([0; 28]);
        packet.set_hardware_type(1);
        packet.set_protocol_type(ethertype::IPV4);
        packet.set_hardware_length(6);
        packet.set_protocol_length(4);
        packet.set_operation(Self::REQUEST);
        packet.set_sender_mac(sender_mac);
        packet.set_sender_ip(sender_ip);
        packet.set_target_ip(target_ip);
        packet
    }
    /// The answer to this request: its target is at `mac` (RFC 826, "Packet reception").
    #[must_use]
    pub fn reply(&self, mac: MacAddress) -> Self {
        let mut reply = *self;
        reply.set_operation(Self::REPLY);
        reply.set_target_mac(self.sender_mac());
        reply.set_target_ip(self.sender_ip());
        reply.set_sender_mac(mac);
        reply.set_sender_ip(self.target_ip());
        reply
    }
    /// Whether it asks.
    #[inline(always)]
    pub fn is_request(&self) -> bool {
        self.operation() == Self::REQUEST
    }
}

impl Header for Arp {
    type Facts = ();
    type Ref<'a> = &'a Self;
    type Mut<'a> = &'a mut Self;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Ok((packet, _)) = Self::ref_from_prefix(bytes) else {
            return Err(malformed::<Self>("the bytes end before the packet does", Self::SIZE, bytes.len()));
        };
        if (packet.hardware_type(), packet.hardware_length()) != (1, 6) {
            let found = usize::from(packet.hardware_type());
            return Err(malformed::<Self>(
                "its hardware is not Ethernet with addresses of 6 bytes",
                1,
                found,
            ));
        }
        if (packet.protocol_type(), packet.protocol_length()) != (ethertype::IPV4, 4) {
            let found = usize::from(packet.protocol_type());
            return Err(malformed::<Self>(
                "its protocol is not IPv4 with addresses of 4 bytes",
                0x0800,
                found,
            ));
        }
        // The bytes behind it are padding to the smallest frame.
        Ok(Found { facts: (), len: Self::SIZE, total: Some(Self::SIZE), next: NOTHING })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Self {
        whole(Self::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Self {
        whole(Self::mut_from_prefix(bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_swaps_the_roles() {
        let (a, b) = (MacAddress::new([2, 0, 0, 0, 0, 1]), MacAddress::new([2, 0, 0, 0, 0, 2]));
        let (x, y) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let request = Arp::request(a, x, y);
        // RFC 826's layout, byte for byte.
        assert_eq!(
            request.octets(),
            [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]
        );
        let reply = request.reply(b);
        assert_eq!((reply.sender_mac(), reply.sender_ip()), (b, y));
        assert_eq!((reply.target_mac(), reply.target_ip(), reply.operation()), (a, x, Arp::REPLY));
        assert_eq!(reply.reply(a).sender_ip(), x);
    }

    #[test]
    fn only_ethernet_and_ipv4_pass() {
        let mut bytes =
            Arp::request(MacAddress::default(), Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST).octets();
        assert!(Arp::find(&bytes, ethertype::ARP).is_ok());
        assert_eq!(Arp::find(&bytes[..27], ethertype::ARP).unwrap_err().found, 27);
        for at in [0, 1, 2, 3, 4, 5] {
            bytes[at] ^= 1;
            assert!(Arp::find(&bytes, ethertype::ARP).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
