//! Addresses and fields of IPv6 headers: `GetIP6Address`, `SetIP6Address`, `IP6Mirror`, `SetIP6DSCP`, `IP6Print`.

use std::cell::Cell;
use std::fmt::Write;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, Ip6, annotate, get_address, ip6_mut, show};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("GetIP6Address", get_ip6_address),
    Class::new("SetIP6Address", set_ip6_address),
    Class::new("IP6Mirror", ip6_mirror),
    Class::new("SetIP6DSCP", set_ip6_dscp).live(),
    Class::new("IP6Print", ip6_print),
];

/// `GetIP6Address(OFFSET)`: copies an address from the packet into the destination annotation.
///
/// Packets that do not reach that far pass unchanged.
struct GetIp6Address {
    offset: usize,
}

fn get_ip6_address(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: Option<u32> = arguments.required("OFFSET");
    arguments.complete()?;
    Some(Rc::new(GetIp6Address { offset: offset? as usize }))
}

impl GetIp6Address {
    fn apply(&self, packet: &mut Packet) {
        if self.offset.saturating_add(16) <= packet.len() {
            let address = get_address(packet.data(), self.offset);
            annotate(packet, address);
        }
    }
}

impl Element for GetIp6Address {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.apply(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.apply(packet));
        at.push_batch(0, batch);
    }
}

/// `SetIP6Address(IPADDR)`: sets the destination annotation to an address.
struct SetIp6Address {
    address: Ipv6Addr,
}

fn set_ip6_address(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv6Addr> = arguments.required("IPADDR");
    arguments.complete()?;
    Some(Rc::new(SetIp6Address { address: address? }))
}

impl Element for SetIp6Address {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        annotate(&mut packet, self.address);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| annotate(packet, self.address));
        at.push_batch(0, batch);
    }
}

/// `IP6Mirror`: swaps source and destination, and the ports of TCP and UDP. Checksums stay right.
struct Ip6Mirror;

fn ip6_mirror(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Ip6Mirror))
}

fn mirror(packet: &mut Packet) {
    let Some((header, rest)) =
        ip6_mut(packet).and_then(|bytes| bytes.split_first_chunk_mut::<{ header::LENGTH }>())
    else {
        return;
    };
    let (front, back) = header.split_at_mut(header::DESTINATION);
    front[header::SOURCE..].swap_with_slice(back);
    if matches!(header[6], header::TCP | header::UDP) && rest.len() >= 8 {
        let (from, to) = rest[..4].split_at_mut(2);
        from.swap_with_slice(to);
    }
}

impl Element for Ip6Mirror {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        mirror(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| mirror(packet));
        at.push_batch(0, batch);
    }
}

/// `SetIP6DSCP(DSCP)`: sets the differentiated services codepoint of IPv6 packets.
struct SetIp6Dscp {
    dscp: Cell<u8>,
}

fn set_ip6_dscp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let dscp: Option<u32> = arguments.required("DSCP");
    arguments.complete()?;
    match u8::try_from(dscp?) {
        Ok(dscp) if dscp <= 0x3F => Some(Rc::new(SetIp6Dscp { dscp: Cell::new(dscp) })),
        _ => {
            arguments.error("diffserv code point out of range");
            None
        }
    }
}

impl SetIp6Dscp {
    fn apply(&self, packet: &mut Packet) {
        // The traffic class lies across the first two bytes; its two low bits are not the codepoint's.
        let dscp = self.dscp.get();
        if let Some([first, second, ..]) = ip6_mut(packet) {
            *first = *first & 0xF0 | dscp >> 2;
            *second = *second & 0x3F | dscp << 6;
        }
    }
}

impl Element for SetIp6Dscp {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.apply(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.apply(packet));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.argument("dscp", Some(0), "DSCP").calm = true;
        handlers.change_argument("dscp", Some(0), "DSCP");
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.dscp.set(fresh.dscp.get())).is_some()
    }
}

/// `IP6Print([LABEL, CONTENTS, NBYTES])`: says a line for each IPv6 packet, and its bytes where asked.
struct Ip6Print {
    label: String,
    contents: bool,
    bytes: usize,
}

fn ip6_print(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let label: String = arguments.positional("LABEL").unwrap_or_default();
    let contents = arguments.keyword("CONTENTS").unwrap_or(false);
    let bytes: u32 = arguments.keyword("NBYTES").unwrap_or(1500);
    arguments.complete()?;
    Some(Rc::new(Ip6Print { label, contents, bytes: bytes as usize }))
}

impl Ip6Print {
    fn line(&self, packet: &Packet) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}: ", self.label);
        }
        let _ = match Ip6::of(packet) {
            Some(ip) => writeln!(
                line,
                "{} -> {} plen {}, next {}, hlim {}",
                show(ip.source()),
                show(ip.destination()),
                ip.payload_length(),
                ip.next(),
                ip.hop_limit()
            ),
            None => writeln!(line, "(Not an IP6 packet)"),
        };
        if self.contents {
            line.push_str("  ");
            for (number, byte) in packet.data().iter().take(self.bytes).enumerate() {
                let _ = write!(line, "{byte:02x}");
                line.push_str(match number % 24 {
                    23 => "\n  ",
                    number if number % 4 == 3 => " ",
                    _ => "",
                });
            }
        }
        line
    }
}

impl Element for Ip6Print {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        at.chatter(&self.line(&packet));
        Some(packet)
    }
}
