//! Checks of IPv6 headers: `CheckIP6Header`, `MarkIP6Header`, `DecIP6HLIM`, `IP6Fragmenter`.

use std::cell::Cell;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, Ip6, ip6_mut, pass};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::text;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::Raw;

pub(super) const CLASSES: &[Class] = &[
    Class::new("CheckIP6Header", check_ip6_header).ports("1/1-2").processing("a/ah"),
    Class::new("MarkIP6Header", mark_ip6_header),
    Class::new("DecIP6HLIM", dec_ip6_hlim).ports("1/1-2").processing("a/ah"),
    Class::new("IP6Fragmenter", ip6_fragmenter).ports("1/1-2").processing("h/h"),
];

/// `CheckIP6Header([BADADDRS, OFFSET])`: refuses bad IPv6 packets, and those with a bad source.
///
/// Packets that pass have their header marked and no bytes behind their length.
struct CheckIp6Header {
    bad_sources: Vec<Ipv6Addr>,
    offset: usize,
    drops: Cell<u64>,
}

fn check_ip6_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let Raw(bad) = arguments.positional("BADADDRS").unwrap_or(Raw(String::new()));
    let offset: u32 = arguments.positional("OFFSET").unwrap_or(0);
    arguments.complete()?;
    let mut bad_sources = vec![Ipv6Addr::from_bits(u128::MAX)];
    for word in text::split_words(&String::from_utf8_lossy(&text::unquote(&bad))) {
        match Ipv6Addr::parse(&word, arguments.at()) {
            Ok(address) => bad_sources.push(address),
            Err(_) => {
                arguments.error("expects IP6ADDRESS -a ");
                return None;
            }
        }
    }
    Some(Rc::new(CheckIp6Header { bad_sources, offset: offset as usize, drops: Cell::default() }))
}

impl CheckIp6Header {
    fn fault(&self, packet: &mut Packet) -> Option<DropReason> {
        let bytes = packet.data().get(self.offset..).unwrap_or_default();
        let Some(ip) = Ip6::read(bytes).filter(|ip| ip.version() == 6) else {
            return Some(DropReason::Malformed);
        };
        let length = header::LENGTH + ip.payload_length();
        if length > bytes.len() {
            return Some(DropReason::Malformed);
        }
        if self.bad_sources.contains(&ip.source()) {
            return Some(DropReason::Denied);
        }
        packet.set_network(self.offset, header::LENGTH);
        packet.truncate(self.offset + length);
        None
    }
}

impl Element for CheckIp6Header {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let Some(reason) = self.fault(&mut packet) else { return Some(packet) };
        if self.drops.replace(self.drops.get() + 1) == 0 {
            at.complain(|| "IP6 header check failed".into());
        }
        at.push_or_drop(1, packet, reason);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}

/// `MarkIP6Header([OFFSET])`: marks the IPv6 header at a place, without a check.
struct MarkIp6Header {
    offset: usize,
}

fn mark_ip6_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: u32 = arguments.positional("OFFSET").unwrap_or(0);
    arguments.complete()?;
    Some(Rc::new(MarkIp6Header { offset: offset as usize }))
}

impl Element for MarkIp6Header {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        packet.set_network(self.offset, header::LENGTH);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| packet.set_network(self.offset, header::LENGTH));
        at.push_batch(0, batch);
    }
}

/// `DecIP6HLIM`: decrements the hop limit; packets whose limit runs out go to output 1.
struct DecIp6Hlim {
    drops: Cell<u64>,
}

fn dec_ip6_hlim(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(DecIp6Hlim { drops: Cell::default() }))
}

impl Element for DecIp6Hlim {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let reason = match ip6_mut(&mut packet).map(|ip| &mut ip[7]) {
            Some(limit) if *limit > 1 => {
                *limit -= 1;
                return Some(packet);
            }
            Some(_) => DropReason::TtlExpired,
            None => DropReason::Malformed,
        };
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, reason);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}

/// `IP6Fragmenter(MTU)`: passes packets that fit the MTU, and sends larger ones to output 1.
///
/// Routers do not fragment IPv6 packets (RFC 8200 section 4.5): an `ICMP6Error` at output 1 tells the sender.
struct Ip6Fragmenter {
    mtu: usize,
    drops: Cell<u64>,
}

fn ip6_fragmenter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mtu: Option<u32> = arguments.required("MTU");
    arguments.complete()?;
    Some(Rc::new(Ip6Fragmenter { mtu: mtu? as usize, drops: Cell::default() }))
}

impl Element for Ip6Fragmenter {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if packet.len() <= self.mtu {
            return Some(packet);
        }
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::TooBig);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.read("fragments", |_: &Self, _| 0);
    }
}
