//! Building ICMP for both versions: echo, errors that quote a packet, and neighbour discovery.

use core::net::Ipv6Addr;

use super::{Builder, IntoAddress, Payload};
use crate::icmpv4::Icmpv4;
use crate::icmpv6::Icmpv6;
use crate::mac::MacAddress;
use crate::stack::{Follows, Header};

impl<'p, H> Builder<'p, H> {
    /// Any ICMP message: type, code, and the four bytes after the checksum (RFC 792).
    pub fn icmp(self, message_type: u8, code: u8, rest: [u8; 4]) -> Builder<'p, Icmpv4>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        let [a, b, c, d] = rest;
        self.push(<Icmpv4 as Follows<H>>::NUMBERS[0], &[message_type, code, 0, 0, a, b, c, d])
    }

    /// An echo request; its data is the payload.
    pub fn icmp_echo_request(self, identifier: u16, sequence: u16) -> Builder<'p, Icmpv4>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(8, 0, pair(identifier, sequence))
    }

    /// An echo reply; its data is the payload.
    pub fn icmp_echo_reply(self, identifier: u16, sequence: u16) -> Builder<'p, Icmpv4>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(0, 0, pair(identifier, sequence))
    }

    /// Destination unreachable for the reason `code`, quoting a packet from its IPv4 header on.
    pub fn icmp_unreachable<'q>(self, code: u8, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(3, code, [0; 4]).payload(quoted)
    }

    /// Fragmentation needed, and the next hop's MTU in bytes (RFC 1191), quoting a packet from its IPv4 header on.
    pub fn icmp_fragmentation_needed<'q>(self, mtu: u16, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(3, 4, pair(0, mtu)).payload(quoted)
    }

    /// Time to live exceeded in transit, quoting a packet from its IPv4 header on.
    pub fn icmp_time_exceeded<'q>(self, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(11, 0, [0; 4]).payload(quoted)
    }

    /// A parameter problem at byte `pointer` of the quoted packet.
    pub fn icmp_parameter_problem<'q>(self, pointer: u8, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv4: Follows<H>,
        H: Header,
    {
        self.icmp(12, 0, [pointer, 0, 0, 0]).payload(quoted)
    }

    /// Any ICMPv6 message: type, code, and the four bytes after the checksum (RFC 4443).
    pub fn icmpv6(self, message_type: u8, code: u8, rest: [u8; 4]) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        let [a, b, c, d] = rest;
        self.push(<Icmpv6 as Follows<H>>::NUMBERS[0], &[message_type, code, 0, 0, a, b, c, d])
    }

    /// An echo request; its data is the payload.
    pub fn icmpv6_echo_request(self, identifier: u16, sequence: u16) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(128, 0, pair(identifier, sequence))
    }

    /// An echo reply; its data is the payload.
    pub fn icmpv6_echo_reply(self, identifier: u16, sequence: u16) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(129, 0, pair(identifier, sequence))
    }

    /// Destination unreachable for the reason `code`, quoting a packet from its IPv6 header on.
    pub fn icmpv6_unreachable<'q>(self, code: u8, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(1, code, [0; 4]).payload(quoted)
    }

    /// Packet too big, and the next hop's MTU in bytes, quoting a packet from its IPv6 header on.
    pub fn icmpv6_packet_too_big<'q>(self, mtu: u32, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(2, 0, mtu.to_be_bytes()).payload(quoted)
    }

    /// Hop limit exceeded in transit, quoting a packet from its IPv6 header on.
    pub fn icmpv6_time_exceeded<'q>(self, quoted: &'q [u8]) -> Builder<'q, Payload>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(3, 0, [0; 4]).payload(quoted)
    }

    /// A parameter problem for the reason `code` at byte `pointer` of the quoted packet.
    pub fn icmpv6_parameter_problem<'q>(
        self,
        code: u8,
        pointer: u32,
        quoted: &'q [u8],
    ) -> Builder<'q, Payload>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.icmpv6(4, code, pointer.to_be_bytes()).payload(quoted)
    }

    /// Asks for the owner of `target`, and states the sender's own MAC address (RFC 4861, section 4.3).
    ///
    /// The hop limit must be 255. The caller sets it: [`hop_limit`](Builder::hop_limit).
    pub fn neighbor_solicitation(
        self,
        target: impl IntoAddress<Ipv6Addr>,
        source: impl IntoAddress<MacAddress>,
    ) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.neighbor(135, [0; 4], target, 1, source)
    }

    /// States that `target` is at `address` (RFC 4861, section 4.4), solicited and overriding.
    ///
    /// The hop limit must be 255. The caller sets it: [`hop_limit`](Builder::hop_limit).
    pub fn neighbor_advertisement(
        self,
        target: impl IntoAddress<Ipv6Addr>,
        address: impl IntoAddress<MacAddress>,
    ) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        self.neighbor(136, [0x60, 0, 0, 0], target, 2, address)
    }

    fn neighbor(
        mut self,
        message_type: u8,
        rest: [u8; 4],
        target: impl IntoAddress<Ipv6Addr>,
        option: u8,
        address: impl IntoAddress<MacAddress>,
    ) -> Builder<'p, Icmpv6>
    where
        Icmpv6: Follows<H>,
        H: Header,
    {
        let (target, address) = (self.read(target.into_address()), self.read(address.into_address()));
        let mut packet = self.icmpv6(message_type, 0, rest);
        packet.append(&target.octets());
        packet.append(&[option, 1]);
        packet.append(&address.octets());
        packet
    }
}

fn pair(high: u16, low: u16) -> [u8; 4] {
    (u32::from(high) << 16 | u32::from(low)).to_be_bytes()
}
