//! Payloads and random destinations: `EraseIPPayload`, `TruncateIPPayload`, `SetRandIPAddress`.

use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, Ip, ip_mut, set16};
use super::pass;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::Prefix;

pub(super) const CLASSES: &[Class] = &[
    Class::new("EraseIPPayload", erase_ip_payload),
    Class::new("TruncateIPPayload", truncate_ip_payload),
    Class::new("SetRandIPAddress", set_rand_ip_address),
];

/// The most addresses that `SetRandIPAddress` chooses from.
const MOST: i32 = 1 << 20;

/// `EraseIPPayload`: sets the payload of TCP and UDP packets, and their checksum, to zero.
///
/// ICMP packets pass. All else is dropped.
struct EraseIpPayload;

fn erase_ip_payload(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(EraseIpPayload))
}

/// Erases. `None`: the packet is neither TCP, UDP nor ICMP over IPv4.
fn erase(packet: &mut Packet) -> Option<()> {
    let transport = packet.network_length();
    let ip = ip_mut(packet)?;
    let protocol = Ip(ip).protocol();
    let segment = ip.get_mut(transport?..)?;
    let (header, sum) = match protocol {
        header::TCP => (segment.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4), 16),
        header::UDP => (8, 6),
        header::ICMP => return Some(()),
        _ => return None,
    };
    if let Some(payload) = segment.get_mut(header..) {
        payload.fill(0);
    }
    set16(segment, sum, 0);
    Some(())
}

impl Element for EraseIpPayload {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if erase(&mut packet).is_some() {
            return Some(packet);
        }
        at.drop_packet(packet, DropReason::Unmatched);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}

/// `TruncateIPPayload([LENGTH, TRANSPORT, EXTRA_LENGTH])`: cuts what lies more than `LENGTH` bytes behind the headers.
///
/// The headers are that of IP and, where `TRANSPORT` is true, that of TCP, UDP or ICMP. The extra length annotation
/// says how many bytes went, where `EXTRA_LENGTH` is true.
struct TruncateIpPayload {
    length: usize,
    transport: bool,
    counts: bool,
}

fn truncate_ip_payload(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let length: u16 = arguments.positional("LENGTH").unwrap_or(0);
    let transport = arguments.positional("TRANSPORT").unwrap_or(true);
    let counts = arguments.keyword("EXTRA_LENGTH").unwrap_or(true);
    arguments.complete()?;
    Some(Rc::new(TruncateIpPayload { length: length.into(), transport, counts }))
}

/// The length of an ICMP header of a type (bytes).
fn icmp_length(kind: u8) -> usize {
    match kind {
        13 | 14 => 20,
        17 | 18 => 12,
        _ => 8,
    }
}

/// The length of the header of TCP, UDP or ICMP (bytes).
fn transport_length(protocol: u8, segment: &[u8]) -> usize {
    match protocol {
        header::TCP => match segment.get(12) {
            Some(offset) if offset >> 4 >= 5 => usize::from(offset >> 4) * 4,
            _ => 20,
        },
        header::UDP => 8,
        header::ICMP => segment.first().filter(|_| segment.len() >= 8).map_or(0, |kind| icmp_length(*kind)),
        _ => 0,
    }
}

impl TruncateIpPayload {
    /// The packet's length when it is cut.
    fn length(&self, packet: &Packet) -> usize {
        let Some(ip) = packet.network() else { return self.length };
        let before = packet.len() - ip.len();
        let length = header::header_length(ip);
        if length < header::LENGTH {
            return before + self.length + header::LENGTH;
        }
        let segment = ip.get(length..).unwrap_or_default();
        let transport = match ip.get(9) {
            Some(protocol) if self.transport => transport_length(*protocol, segment),
            _ => 0,
        };
        before + self.length + length + transport
    }
    fn cut(&self, packet: &mut Packet) {
        let length = self.length(packet);
        let Some(gone) = packet.len().checked_sub(length).filter(|gone| *gone > 0) else { return };
        packet.truncate(length);
        if self.counts {
            let gone = packet.anno_u32(place::EXTRA_LENGTH).wrapping_add(gone as u32);
            packet.set_anno_u32(place::EXTRA_LENGTH, gone);
        }
    }
}

impl Element for TruncateIpPayload {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.cut(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.cut(packet));
        at.push_batch(0, batch);
    }
}

/// `SetRandIPAddress(PREFIX [, LIMIT])`: sets the destination annotation to a random address of a prefix.
///
/// With `LIMIT`, to one of so many random addresses, at most a million.
struct SetRandIpAddress {
    prefix: Prefix,
    chosen: Vec<Ipv4Addr>,
}

fn pick(prefix: Prefix, at: At<'_>) -> Ipv4Addr {
    let mask = u32::from(prefix.mask);
    Ipv4Addr::from(at.router.random() & !mask | u32::from(prefix.address) & mask)
}

fn set_rand_ip_address(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let prefix = arguments.required_with("PREFIX", |text, at| Prefix::read(text, at, true));
    let limit: i32 = arguments.positional("LIMIT").unwrap_or(-1);
    arguments.complete()?;
    let prefix = prefix?;
    let chosen = (0..limit.min(MOST)).map(|_| pick(prefix, setup.at)).collect();
    Some(Rc::new(SetRandIpAddress { prefix, chosen }))
}

impl Element for SetRandIpAddress {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let number = at.router.random_below(self.chosen.len() as u32) as usize;
        let address = self.chosen.get(number).copied().unwrap_or_else(|| pick(self.prefix, at));
        packet.set_dst_ip(address);
        Some(packet)
    }
}
