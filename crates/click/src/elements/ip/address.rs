//! Addresses in headers and annotations: `GetIPAddress`, `SetIPAddress`, `StoreIPAddress`, `FixIPSrc`, `IPMirror`.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::fuse::Step;
use super::header::{self, Ip, get16, get32, ip_mut, put, set16};
use super::pass;
use crate::annotation;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Word, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("GetIPAddress", get_ip_address),
    Class::new("SetIPAddress", set_ip_address).live(),
    Class::new("StoreIPAddress", store_ip_address).ports("1/1-2").processing("a/ah"),
    Class::new("FixIPSrc", fix_ip_src),
    Class::new("IPMirror", ip_mirror),
];

/// A place of an address.
#[derive(Clone, Copy)]
enum Place {
    /// So many bytes from the packet's first.
    Packet(usize),
    /// So many bytes from the network header's first.
    Network(usize),
}

/// Where an IPv4 header has its source.
const SOURCE: usize = 12;
/// Where an IPv4 header has its destination.
const DESTINATION: usize = 16;

/// `GetIPAddress(OFFSET [, ANNO])`, `GetIPAddress(IP src|dst [, ANNO])`: copies an address into an annotation.
///
/// Packets that do not reach that far pass unchanged.
pub(super) struct GetIpAddress {
    from: Place,
    annotation: usize,
}

fn get_ip_address(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: i32 = arguments.positional("OFFSET").unwrap_or(-1);
    let annotation = arguments.positional("ANNO").map(|place: annotation::Place<4>| place.0);
    let word: String = arguments.keyword("IP").unwrap_or_default();
    arguments.complete()?;
    let from = match (usize::try_from(offset), &word[..]) {
        (Ok(offset), "") => Place::Packet(offset),
        (Ok(_), _) | (Err(_), "") => {
            arguments.error("set one of OFFSET, IP");
            return None;
        }
        (_, "src") => Place::Network(SOURCE),
        (_, "dst") => Place::Network(DESTINATION),
        _ => {
            arguments.error("bad IP");
            return None;
        }
    };
    Some(Rc::new(GetIpAddress { from, annotation: annotation.unwrap_or(place::DST_IP) }))
}

impl GetIpAddress {
    fn apply(&self, packet: &mut Packet) {
        let address = match self.from {
            Place::Packet(offset) => packet.data().get(offset..).and_then(<[u8]>::first_chunk::<4>),
            Place::Network(offset) => {
                packet.network().and_then(|ip| ip.get(offset..)).and_then(<[u8]>::first_chunk::<4>)
            }
        };
        if let Some(address) = address.copied() {
            put(packet.anno_mut(), self.annotation, &address);
        }
    }
}

impl Step for GetIpAddress {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        self.apply(packet);
        0
    }
}

impl Element for GetIpAddress {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.apply(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.apply(packet));
        at.push_batch(0, batch);
    }
}

/// `SetIPAddress(IPADDR [, ANNO])`: sets an annotation to an address.
struct SetIpAddress {
    settings: Cell<(Ipv4Addr, usize)>,
}

fn set_ip_address(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv4Addr> = arguments.required("IPADDR");
    let annotation = arguments.keyword("ANNO").map(|place: annotation::Place<4>| place.0);
    arguments.complete()?;
    Some(Rc::new(SetIpAddress { settings: Cell::new((address?, annotation.unwrap_or(place::DST_IP))) }))
}

impl Element for SetIpAddress {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        let (address, annotation) = self.settings.get();
        put(packet.anno_mut(), annotation, &address.octets());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        let (address, annotation) = self.settings.get();
        batch.each_packet(|_, packet| put(packet.anno_mut(), annotation, &address.octets()));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("addr", |this: &Self, _| this.settings.get().0);
        handlers.write("addr", |this: &Self, at, value| {
            let address = Ipv4Addr::parse(value.trim(), at).map_err(|_| "expected IP address")?;
            this.settings.set((address, this.settings.get().1));
            Ok(String::new())
        });
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.settings.set(fresh.settings.get())).is_some()
    }
}

/// `StoreIPAddress([ADDR,] OFFSET)`: writes an address, or the destination annotation, into the packet.
///
/// `OFFSET` may be `src` or `dst`: checksums of the IPv4, TCP and UDP headers are then corrected. Packets that do not
/// reach that far, or without an annotation, go to output 1.
struct StoreIpAddress {
    address: Option<Ipv4Addr>,
    to: Place,
}

fn store_ip_address(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let fixed = arguments.len() > 1;
    let address: Option<Ipv4Addr> = if fixed { arguments.required("ADDR") } else { None };
    let offset: Option<Word> = arguments.required("OFFSET");
    arguments.complete()?;
    let Word(offset) = offset?;
    let to = match &offset.to_ascii_lowercase()[..] {
        "src" => Place::Network(SOURCE),
        "dst" => Place::Network(DESTINATION),
        _ => match integer(&offset).and_then(|offset| u32::try_from(offset).ok()) {
            Some(offset) if offset <= i32::MAX as u32 => Place::Packet(offset as usize),
            _ => {
                arguments.error("type mismatch: OFFSET requires integer");
                return None;
            }
        },
    };
    Some(Rc::new(StoreIpAddress { address, to }))
}

/// Replaces an address of an IPv4 header, and corrects the checksums over it.
fn replace_address(packet: &mut Packet, at: usize, address: Ipv4Addr) -> bool {
    let Some(header_length) = packet.network_length() else { return false };
    let Some(ip) = ip_mut(packet).filter(|_| header_length >= header::LENGTH) else { return false };
    let (old, new) = (get32(ip, at), u32::from(address));
    put(ip, at, &address.octets());
    let carried = checksum::update32(get16(ip, 10), old, new);
    set16(ip, 10, carried);
    let (protocol, is_first) = (Ip(ip).protocol(), Ip(ip).is_first());
    let Some(transport) = ip.get_mut(header_length..).filter(|_| is_first) else { return true };
    let sum = match protocol {
        header::TCP if transport.len() >= 20 => 16,
        header::UDP if transport.len() >= 8 && get16(transport, 6) != 0 => 6,
        _ => return true,
    };
    let carried = checksum::update32(get16(transport, sum), old, new);
    set16(transport, sum, if carried == 0 && protocol == header::UDP { 0xFFFF } else { carried });
    true
}

impl Element for StoreIpAddress {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let address = self.address.unwrap_or_else(|| packet.dst_ip());
        let done = match self.to {
            Place::Network(place) => replace_address(&mut packet, place, address),
            Place::Packet(offset) => {
                let fits = offset.checked_add(4).is_some_and(|end| end <= packet.len());
                let stores = fits && (self.address.is_some() || !address.is_unspecified());
                if stores {
                    put(packet.data_mut(), offset, &address.octets());
                }
                stores
            }
        };
        if done {
            return Some(packet);
        }
        at.push_or_drop(1, packet, DropReason::Malformed);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}

/// `FixIPSrc(IPADDR)`: sets the source of packets whose annotation asks for it, as `ICMPError`'s do.
pub(super) struct FixIpSrc {
    address: Ipv4Addr,
}

fn fix_ip_src(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv4Addr> = arguments.required("IPADDR");
    arguments.complete()?;
    Some(Rc::new(FixIpSrc { address: address? }))
}

/// Sets the source of a packet whose annotation asks for it. Whether it did.
pub(super) fn fix_source(packet: &mut Packet, address: Ipv4Addr) -> bool {
    if packet.anno_u8(place::FIX_IP_SRC) == 0 {
        return false;
    }
    let Some(ip) = ip_mut(packet) else { return false };
    put(ip, SOURCE, &address.octets());
    header::set_checksum(ip);
    packet.set_anno_u8(place::FIX_IP_SRC, 0);
    true
}

impl Step for FixIpSrc {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        fix_source(packet, self.address);
        0
    }
}

impl Element for FixIpSrc {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        fix_source(&mut packet, self.address);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| {
            fix_source(packet, self.address);
        });
        at.push_batch(0, batch);
    }
}

/// `IPMirror([DST_ANNO])`: swaps source and destination, ports, and TCP's sequence and acknowledgement numbers.
struct IpMirror {
    annotates: bool,
}

fn ip_mirror(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let annotates = arguments.positional("DST_ANNO").unwrap_or(true);
    arguments.complete()?;
    Some(Rc::new(IpMirror { annotates }))
}

/// Swaps two ranges of `length` bytes.
fn swap(bytes: &mut [u8], first: usize, second: usize, length: usize) {
    if second + length <= bytes.len() {
        let (front, back) = bytes.split_at_mut(second);
        front[first..first + length].swap_with_slice(&mut back[..length]);
    }
}

/// Mirrors a packet. `None`: it has no IPv4 header.
pub(super) fn mirror(packet: &mut Packet) -> Option<Ipv4Addr> {
    let transport = packet.network_length();
    let ip = ip_mut(packet)?;
    let destination = Ip(ip).source();
    swap(ip, SOURCE, DESTINATION, 4);
    let (protocol, is_first) = (Ip(ip).protocol(), Ip(ip).is_first());
    if let Some(transport) = transport.and_then(|place| ip.get_mut(place..))
        && is_first
        && transport.len() >= 8
    {
        if matches!(protocol, header::TCP | header::UDP) {
            swap(transport, 0, 2, 2);
        }
        if protocol == header::TCP {
            swap(transport, 4, 8, 4);
        }
    }
    Some(destination)
}

impl Element for IpMirror {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        if let Some(destination) = mirror(&mut packet)
            && self.annotates
        {
            packet.set_dst_ip(destination);
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| {
            if let Some(destination) = mirror(packet)
                && self.annotates
            {
                packet.set_dst_ip(destination);
            }
        });
        at.push_batch(0, batch);
    }
}
