//! Building the headers below the network layer: Ethernet, VLAN tags, MPLS labels, PPPoE, and ARP.

use core::net::Ipv4Addr;

use super::{Builder, IntoAddress};
use crate::arp::Arp;
use crate::ethernet::{Ethernet, ethertype};
use crate::mac::MacAddress;
use crate::mpls::Mpls;
use crate::pppoe::{Ppp, Pppoe};
use crate::protocol_table::Protocol;
use crate::stack::Follows;
use crate::vlan::Vlan;

/// The locally administered address from which frames come unless they say otherwise.
pub const SOURCE: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);
/// The locally administered address to which frames go unless they say otherwise.
pub const DESTINATION: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);

/// The EtherType of a frame that ends with its payload: IEEE's first number for local experiments.
const EXPERIMENTAL: u16 = 0x88b5;

/// An Ethernet frame from 02:00:00:00:00:01 to 02:00:00:00:00:02.
pub fn ethernet() -> Builder<'static, Ethernet> {
    Builder::<Ethernet>::empty().push(0, &Ethernet::new(DESTINATION, SOURCE, EXPERIMENTAL).octets())
}

impl<'p, H> Builder<'p, H> {
    /// An Ethernet frame inside a tunnel.
    pub fn ethernet(self) -> Builder<'p, Ethernet>
    where
        Ethernet: Follows<H>,
        H: crate::stack::Header,
    {
        let header = Ethernet::new(DESTINATION, SOURCE, EXPERIMENTAL).octets();
        self.push(<Ethernet as Follows<H>>::NUMBERS[0], &header)
    }

    /// An 802.1Q tag; identifiers over 12 bits lose their upper bits.
    pub fn vlan(self, vid: u16) -> Builder<'p, Vlan>
    where
        Vlan: Follows<H>,
        H: crate::stack::Header,
    {
        self.push(ethertype::VLAN, &Vlan::new(vid, EXPERIMENTAL).octets())
    }

    /// An 802.1ad service tag and an 802.1Q customer tag inside it (QinQ).
    pub fn qinq(self, service: u16, customer: u16) -> Builder<'p, Vlan>
    where
        Vlan: Follows<H>,
        H: crate::stack::Header,
    {
        let outer = self.push::<Vlan>(ethertype::SERVICE_VLAN, &Vlan::new(service, EXPERIMENTAL).octets());
        outer.vlan(customer)
    }

    /// An MPLS label, with 64 hops left; labels over 20 bits lose their upper bits.
    pub fn mpls(self, label: u32) -> Builder<'p, Mpls>
    where
        Mpls: Follows<H>,
        H: crate::stack::Header,
    {
        self.push(<Mpls as Follows<H>>::NUMBERS[0], &Mpls::new(label, 64).octets())
    }

    /// A PPPoE session packet and PPP's protocol field.
    pub fn pppoe(self, session_id: u16) -> Builder<'p, Ppp>
    where
        Pppoe: Follows<H>,
        H: crate::stack::Header,
    {
        let number = <Pppoe as Follows<H>>::NUMBERS[0];
        self.push::<Pppoe>(number, &Pppoe::new(session_id, 0).octets()).ppp()
    }

    /// PPP's protocol field, in PPPoE or in PPTP's GRE.
    pub fn ppp(self) -> Builder<'p, Ppp>
    where
        Ppp: Follows<H>,
        H: crate::stack::Header,
    {
        self.push(<Ppp as Follows<H>>::NUMBERS[0], &Ppp::new(0xc021).octets())
    }

    /// Asks all hosts for the owner of `target`; the frame goes to the broadcast address.
    pub fn arp_request(
        self,
        sender: impl IntoAddress<Ipv4Addr>,
        target: impl IntoAddress<Ipv4Addr>,
    ) -> Builder<'p, Arp>
    where
        Arp: Follows<H>,
        H: crate::stack::Header,
    {
        self.arp(1, sender, target)
    }

    /// Tells the frame's receiver, the owner of `target`, that the frame's sender owns `sender`.
    pub fn arp_reply(
        self,
        sender: impl IntoAddress<Ipv4Addr>,
        target: impl IntoAddress<Ipv4Addr>,
    ) -> Builder<'p, Arp>
    where
        Arp: Follows<H>,
        H: crate::stack::Header,
    {
        self.arp(2, sender, target)
    }

    fn arp(
        mut self,
        operation: u16,
        sender: impl IntoAddress<Ipv4Addr>,
        target: impl IntoAddress<Ipv4Addr>,
    ) -> Builder<'p, Arp>
    where
        Arp: Follows<H>,
        H: crate::stack::Header,
    {
        let (sender, target) = (self.read(sender.into_address()), self.read(target.into_address()));
        let frame = self.layers[..self.count].iter().rev().find(|layer| layer.protocol == Protocol::Ethernet);
        let at = frame.map_or(0, |layer| layer.at);
        if operation == 1 {
            self.headers[at..at + 6].fill(0xff);
        }
        let mut header = [0; 28];
        header[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation as u8]);
        header[8..14].copy_from_slice(&self.headers[at + 6..at + 12]);
        header[14..18].copy_from_slice(&sender.octets());
        if operation == 2 {
            header[18..24].copy_from_slice(&self.headers[at..at + 6]);
        }
        header[24..].copy_from_slice(&target.octets());
        self.push(<Arp as Follows<H>>::NUMBERS[0], &header)
    }
}

impl Builder<'_, Ethernet> {
    /// The sender's address.
    pub fn source(mut self, address: impl IntoAddress<MacAddress>) -> Self {
        let address = self.read(address.into_address());
        self.with::<Ethernet>(|header| header.set_source(address))
    }
    /// The receiver's address.
    pub fn destination(mut self, address: impl IntoAddress<MacAddress>) -> Self {
        let address = self.read(address.into_address());
        self.with::<Ethernet>(|header| header.set_destination(address))
    }
    /// The number of a payload that no method here builds.
    pub fn ethertype(self, number: u16) -> Self {
        self.with::<Ethernet>(|header| header.set_ethertype(number))
    }
}

impl Builder<'_, Vlan> {
    /// The priority code point, 0 to 7.
    pub fn priority(self, pcp: u8) -> Self {
        self.with::<Vlan>(|tag| tag.set_pcp(pcp))
    }
    /// The number of a payload that no method here builds.
    pub fn ethertype(self, number: u16) -> Self {
        self.with::<Vlan>(|tag| tag.set_ethertype(number))
    }
}

impl Builder<'_, Mpls> {
    /// The traffic class, 0 to 7.
    pub fn traffic_class(self, class: u8) -> Self {
        self.with::<Mpls>(|entry| entry.set_traffic_class(class))
    }
    /// Hops left.
    pub fn ttl(self, hops: u8) -> Self {
        self.with::<Mpls>(|entry| entry.set_time_to_live(hops))
    }
}

impl Builder<'_, Ppp> {
    /// The number of a payload that no method here builds.
    pub fn protocol(self, number: u16) -> Self {
        self.with::<Ppp>(|header| header.set_protocol(number))
    }
}
