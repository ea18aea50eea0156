//! ARP packets for IPv4 over Ethernet (RFC 826), with their Ethernet headers.

use std::net::Ipv4Addr;

use netbricks_core::buffer::Packet;
use netbricks_core::packet::arp::Arp;
use netbricks_core::packet::mac::MacAddress;

use super::{ETHERTYPE_ARP, HEADER, ethernet_header, u16_at};
use crate::packet::{Annotated, place};
use crate::router::At;
use crate::value::Ether;

/// Length of an ARP packet for IPv4 with its Ethernet header (bytes).
pub(super) const LENGTH: usize = HEADER + 28;

/// The fields of an ARP packet that elements need.
pub(super) struct Message {
    pub operation: u16,
    pub sender: Ether,
    pub sender_ip: Ipv4Addr,
    pub target_ip: Ipv4Addr,
}

/// The ARP packet in an Ethernet frame, if it is one for IPv4 over Ethernet.
pub(super) fn read(bytes: &[u8]) -> Option<Message> {
    let bytes = bytes.first_chunk::<LENGTH>()?;
    let is_ip_over_ethernet = u16_at(bytes, 12) == Some(ETHERTYPE_ARP)
        && u16_at(bytes, HEADER) == Some(1)
        && u16_at(bytes, HEADER + 2) == Some(super::ETHERTYPE_IP);
    if !is_ip_over_ethernet {
        return None;
    }
    let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    Some(Message {
        operation: u16_at(bytes, HEADER + 6)?,
        sender: super::ether_at(bytes, HEADER + 8)?,
        sender_ip: ip(HEADER + 14),
        target_ip: ip(HEADER + 24),
    })
}

fn frame(at: At<'_>, destination: Ether, source: Ether, arp: &Arp) -> Option<Packet> {
    let mut bytes = [0; LENGTH];
    bytes[..HEADER].copy_from_slice(&ethernet_header(destination, source, ETHERTYPE_ARP));
    bytes[HEADER..].copy_from_slice(&arp.octets());
    let Some(mut packet) = at.packet(&bytes) else {
        at.complain(|| format!("{}: no frame for an ARP packet", at.declaration()));
        return None;
    };
    packet.set_mac_header(0, HEADER);
    Some(packet)
}

fn mac(address: Ether) -> MacAddress {
    MacAddress::new(address.0)
}

/// Asks for the owner of an address. `None` when the pool had no frame.
pub(super) fn request(
    at: At<'_>,
    destination: Ether,
    source: Ether,
    source_ip: Ipv4Addr,
    wanted: Ipv4Addr,
) -> Option<Packet> {
    frame(at, destination, source, &Arp::request(mac(source), source_ip, wanted))
}

/// Tells one host (address, IPv4 address) that another has an address. `None` when the pool had no frame.
pub(super) fn reply(at: At<'_>, to: (Ether, Ipv4Addr), from: (Ether, Ipv4Addr)) -> Option<Packet> {
    let asked = Arp::request(mac(to.0), to.1, from.1);
    frame(at, to.0, from.0, &asked.reply(mac(from.0)))
}

/// Copies the VLAN annotation of a packet to the ARP packet that it caused.
pub(super) fn copy_vlan(from: &Packet, to: &mut Packet) {
    to.set_anno_u16(place::VLAN_TCI, from.anno_u16(place::VLAN_TCI));
}
