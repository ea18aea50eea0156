//! Elements that put Ethernet headers before packets, change or check them.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::{
    ETHERTYPE_IP, ETHERTYPE_IP6, HEADER, aside, ether_at, ether_data, ethernet_header, made, put_before,
    put_before_all, u16_at,
};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, Kind};
use crate::router::{At, Setup};
use crate::value::Ether;

pub(super) const CLASSES: &[Class] = &[
    Class::new("EtherEncap", ether_encap).live().creates_nothing(),
    Class::new("EnsureEther", ensure_ether).creates_nothing(),
    Class::new("EtherRewrite", ether_rewrite).live().creates_nothing(),
    Class::new("EtherMirror", ether_mirror).creates_nothing(),
    Class::new("HostEtherFilter", host_ether_filter)
        .live()
        .ports("1/1-2")
        .processing("a/ah")
        .creates_nothing(),
    Class::new("MarkMACHeader", mark_mac_header).creates_nothing(),
    Class::new("IPMulticastEtherEncap", multicast_encap).ports("1/1-2").processing("a/ah").creates_nothing(),
];

/// `EtherEncap(ETHERTYPE, SRC, DST)`: puts an Ethernet header before each packet.
struct EtherEncap {
    header: Cell<[u8; HEADER]>,
}

fn ether_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ethertype: Option<u16> = arguments.required("ETHERTYPE");
    let source: Option<Ether> = arguments.required("SRC");
    let destination: Option<Ether> = arguments.required("DST");
    arguments.complete()?;
    made(EtherEncap { header: Cell::new(ethernet_header(destination?, source?, ethertype?)) })
}

impl Element for EtherEncap {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        put_before(at, packet, &self.header.get())
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        put_before_all(at, batch, &self.header.get());
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.header.set(fresh.header.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let address = |this: &Self, place| ether_at(&this.header.get(), place).unwrap_or_default();
        handlers.read("src", move |this: &Self, _| address(this, 6));
        handlers.change_argument("src", Some(1), "SRC");
        handlers.read("dst", move |this: &Self, _| address(this, 0));
        handlers.change_argument("dst", Some(2), "DST");
        for name in ["ethertype", "etht"] {
            handlers.read(name, |this: &Self, _| u16_at(&this.header.get(), 12).unwrap_or(0));
            handlers.change_argument(name, Some(0), "ETHERTYPE");
        }
    }
}

/// `EnsureEther([ETHERTYPE, SRC, DST])`: puts an Ethernet header before IP packets that have none.
///
/// A header that was stripped before comes back instead.
struct EnsureEther {
    header: [u8; HEADER],
}

fn ensure_ether(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ethertype: u32 = arguments.positional("ETHERTYPE").unwrap_or(u32::from(ETHERTYPE_IP));
    let source = arguments.positional("SRC").unwrap_or(Ether([1; 6]));
    let destination = arguments.positional("DST").unwrap_or(Ether([2; 6]));
    arguments.complete()?;
    let Ok(ethertype) = u16::try_from(ethertype) else {
        setup.errors.error("argument 1 (Ethernet encapsulation type) must be <= 0xFFFF");
        return None;
    };
    made(EnsureEther { header: ethernet_header(destination, source, ethertype) })
}

impl Element for EnsureEther {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let Some(place) = packet.network_place().and_then(|place| usize::try_from(place).ok()) else {
            return Some(packet);
        };
        let is_ip = |ethertype| matches!(ethertype, Some(ETHERTYPE_IP | ETHERTYPE_IP6));
        if place == HEADER && is_ip(u16_at(packet.data(), 12)) {
            return Some(packet);
        }
        let stripped = packet.pulled_bytes().last_chunk::<HEADER>();
        if place == 0 && is_ip(stripped.and_then(|header| u16_at(header, 12))) {
            if packet.unpull_bytes(at.pool(), HEADER) {
                return Some(packet);
            }
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        if packet.pull_front(place).is_err() {
            at.drop_packet(packet, DropReason::Malformed);
            return None;
        }
        put_before(at, packet, &self.header)
    }
}

/// `EtherRewrite(SRC, DST)`: sets the addresses of the packet's MAC header.
struct EtherRewrite {
    source: Cell<Ether>,
    destination: Cell<Ether>,
}

fn ether_rewrite(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ether> = arguments.required("SRC");
    let destination: Option<Ether> = arguments.required("DST");
    arguments.complete()?;
    made(EtherRewrite { source: Cell::new(source?), destination: Cell::new(destination?) })
}

impl EtherRewrite {
    fn rewrite(&self, packet: &mut Packet) {
        let place = packet.mac_place().map_or(Some(0), |place| usize::try_from(place).ok());
        let header = place.and_then(|place| packet.data_mut().get_mut(place..)?.first_chunk_mut::<12>());
        if let Some(header) = header {
            header[..6].copy_from_slice(&self.destination.get().0);
            header[6..].copy_from_slice(&self.source.get().0);
        }
    }
}

impl Element for EtherRewrite {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.rewrite(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.rewrite(packet));
        at.push_batch(0, batch);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.source.set(fresh.source.get());
        self.destination.set(fresh.destination.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| this.source.get());
        handlers.change_argument("src", Some(0), "SRC");
        handlers.read("dst", |this: &Self, _| this.destination.get());
        handlers.change_argument("dst", Some(1), "DST");
    }
}

/// `EtherMirror`: swaps the Ethernet addresses.
struct EtherMirror;

fn ether_mirror(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    made(EtherMirror)
}

/// Swaps the addresses in two whole loads and stores.
///
/// Narrower ones, or one with a mask, would wait for those before.
#[inline(always)]
fn mirror(bytes: &mut [u8]) {
    if let Some(addresses) = bytes.first_chunk_mut::<12>() {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *addresses;
        let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let second = u32::from_le_bytes([i, j, k, l]);
        let swapped = first >> 48 | u64::from(second) << 16 | first << 48;
        addresses[..8].copy_from_slice(&swapped.to_le_bytes());
        addresses[8..].copy_from_slice(&((first >> 16) as u32).to_le_bytes());
    }
}

impl Element for EtherMirror {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        mirror(packet.data_mut());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each(|_, bytes| mirror(bytes.data_mut()));
        at.push_batch(0, batch);
    }
}

/// `HostEtherFilter(ETHER [, DROP_OWN, DROP_OTHER, OFFSET])`: tells whom packets are for, and drops those for others.
///
/// It sets the packet type annotation as a network card with the address ETHER would.
struct HostEtherFilter {
    address: Cell<Ether>,
    drop_own: Cell<bool>,
    drop_other: Cell<bool>,
    offset: Cell<usize>,
}

fn host_ether_filter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ether> = arguments.required("ETHER");
    let drop_own = arguments.positional("DROP_OWN").unwrap_or(false);
    let drop_other = arguments.positional("DROP_OTHER").unwrap_or(true);
    let offset: usize = arguments.keyword("OFFSET").unwrap_or(0);
    arguments.complete()?;
    made(HostEtherFilter {
        address: Cell::new(address?),
        drop_own: Cell::new(drop_own),
        drop_other: Cell::new(drop_other),
        offset: Cell::new(offset),
    })
}

impl Element for HostEtherFilter {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let offset = self.offset.get();
        let header = packet.data().get(offset..).and_then(|bytes| bytes.first_chunk::<12>());
        let Some(header) = header else { return aside(at, packet, DropReason::Truncated) };
        let destination = ether_at(header, 0).unwrap_or_default();
        let source = ether_at(header, 6).unwrap_or_default();
        if self.drop_own.get() && source == self.address.get() {
            return aside(at, packet, DropReason::Denied);
        }
        let kind = if destination == self.address.get() {
            Kind::Host
        } else if destination == Ether::BROADCAST {
            Kind::Broadcast
        } else if destination.is_group() {
            Kind::Multicast
        } else {
            Kind::OtherHost
        };
        packet.set_kind(kind);
        if kind == Kind::OtherHost && self.drop_other.get() {
            return aside(at, packet, DropReason::Denied);
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.gather(batch, |packet| self.action(at, packet));
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.address.set(fresh.address.get());
        self.drop_own.set(fresh.drop_own.get());
        self.drop_other.set(fresh.drop_other.get());
        self.offset.set(fresh.offset.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        ether_data(handlers, "ether", |this: &Self| &this.address);
    }
}

/// `MarkMACHeader([OFFSET, LENGTH])`: notes where the MAC header is, and with LENGTH where the network header is.
struct MarkMACHeader {
    offset: usize,
    length: usize,
}

fn mark_mac_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset = arguments.positional("OFFSET").unwrap_or(0);
    let length = arguments.positional("LENGTH").unwrap_or(0);
    arguments.complete()?;
    made(MarkMACHeader { offset, length })
}

impl MarkMACHeader {
    fn mark(&self, packet: &mut Packet) {
        if self.length == 0 {
            packet.set_mac_place(Some(self.offset));
        } else {
            packet.set_mac_header(self.offset, self.length);
        }
    }
}

impl Element for MarkMACHeader {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.mark(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.mark(packet));
        at.push_batch(0, batch);
    }
}

/// `IPMulticastEtherEncap(ETHERTYPE, SRC)`: puts Ethernet headers before packets to IPv4 groups (RFC 1112, 6.4).
///
/// The group is the destination annotation. Packets to other addresses leave by a second output, or are dropped.
struct MulticastEncap {
    ethertype: u16,
    source: Ether,
}

fn multicast_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ethertype: Option<u16> = arguments.required("ETHERTYPE");
    let source: Option<Ether> = arguments.required("SRC");
    arguments.complete()?;
    made(MulticastEncap { ethertype: ethertype?, source: source? })
}

/// The Ethernet address of an IPv4 group (RFC 1112, 6.4): its lower 23 bits behind 01-00-5E.
pub(super) fn group_address(group: std::net::Ipv4Addr) -> Ether {
    let [_, b, c, d] = group.octets();
    Ether([0x01, 0x00, 0x5E, b & 0x7F, c, d])
}

impl Element for MulticastEncap {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let group = packet.dst_ip();
        if !group.is_multicast() {
            return aside(at, packet, DropReason::Unmatched);
        }
        put_before(at, packet, &ethernet_header(group_address(group), self.source, self.ethertype))
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.gather(batch, |packet| self.action(at, packet));
    }
}
