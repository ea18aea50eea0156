//! Ethernet, VLAN tags and ARP, and named values such as `AddressInfo`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::Argument;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::router::At;
use crate::value::Ether;

mod address;
mod arp;
mod arp_print;
mod arp_table;
mod check;
mod header;
mod info;
mod pause;
mod querier;
mod responder;
mod switch;
#[cfg(test)]
mod tests;
mod vlan;

pub(super) const FAMILIES: &[&[Class]] = &[
    address::CLASSES,
    arp_print::CLASSES,
    arp_table::CLASSES,
    check::CLASSES,
    header::CLASSES,
    info::CLASSES,
    querier::CLASSES,
    responder::CLASSES,
    pause::CLASSES,
    switch::CLASSES,
    vlan::CLASSES,
];

/// Length of an Ethernet header without tags (bytes).
const HEADER: usize = 14;
/// EtherType of IPv4.
const ETHERTYPE_IP: u16 = 0x0800;
/// EtherType of ARP.
const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
const ETHERTYPE_IP6: u16 = 0x86DD;
/// EtherType of an 802.1Q tag.
const ETHERTYPE_VLAN: u16 = 0x8100;

/// An Ethernet header without tags.
fn ethernet_header(destination: Ether, source: Ether, ethertype: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    header
}

/// Two bytes of a packet in network order, if it has them.
fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    let (pair, _) = bytes.get(place..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*pair))
}

/// Six bytes of a packet as an address, if it has them.
fn ether_at(bytes: &[u8], place: usize) -> Option<Ether> {
    bytes.get(place..)?.first_chunk::<6>().map(|bytes| Ether(*bytes))
}

/// The second output of an element that may have one; without it, packets end for a reason.
fn aside(at: At<'_>, packet: Packet, reason: DropReason) -> Option<Packet> {
    at.push_or_drop(1, packet, reason);
    None
}

/// Puts a header before a packet. `None` when the pool had no frame: the packet is dropped.
fn put_before<const LENGTH: usize>(at: At<'_>, mut packet: Packet, header: &[u8; LENGTH]) -> Option<Packet> {
    if put_on(at, &mut packet, header) {
        return Some(packet);
    }
    at.drop_packet(packet, DropReason::PoolExhausted);
    None
}

/// Puts a header before each packet of a batch, and passes on those for which there was memory.
fn put_before_all<const LENGTH: usize>(at: At<'_>, batch: &mut Batch, header: &[u8; LENGTH]) {
    let put = |packet: &mut Packet| u8::from(!put_on(at, packet, header));
    at.sift(batch, put, |packet, _| at.drop_packet(packet, DropReason::PoolExhausted));
}

/// Puts a header before a packet. `false` when the pool had no frame.
#[inline]
fn put_on<const LENGTH: usize>(at: At<'_>, packet: &mut Packet, header: &[u8; LENGTH]) -> bool {
    use crate::packet::Annotated as _;
    if !packet.push_bytes(at.pool(), LENGTH) {
        return false;
    }
    if let Some(place) = packet.data_mut().first_chunk_mut() {
        *place = *header;
    }
    packet.set_mac_header(0, LENGTH);
    true
}

/// A handler that reads and writes a value in a cell.
fn data<E: Element, T: Argument + Copy + 'static>(
    handlers: &mut Handlers,
    name: &str,
    kind: &'static str,
    cell: fn(&E) -> &Cell<T>,
    show: fn(T) -> String,
) {
    handlers.read(name, move |element: &E, _| show(cell(element).get()));
    handlers.write(name, move |element: &E, at, value| {
        let value = T::parse(value.trim(), at).map_err(|_| format!("expected {kind}"))?;
        cell(element).set(value);
        Ok(String::new())
    });
}

/// A handler that reads and writes an Ethernet address.
fn ether_data<E: Element>(handlers: &mut Handlers, name: &str, cell: fn(&E) -> &Cell<Ether>) {
    data(handlers, name, "Ethernet address", cell, |address| address.to_string());
}

/// An element, shared as elements are.
fn made<E: Element>(element: E) -> Option<Rc<dyn Element>> {
    Some(Rc::new(element))
}
