//! ICMP messages around packets: `ICMPPingEncap`, `ICMPIPEncap`.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::encap::{Destination, Template};
use super::header::{self, set16};
use super::{names, pass};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::Word;

pub(super) const CLASSES: &[Class] =
    &[Class::new("ICMPPingEncap", icmp_ping_encap), Class::new("ICMPIPEncap", icmp_ip_encap)];

/// ICMP type of an echo request.
pub(super) const ECHO: u8 = 8;
/// ICMP type of an echo reply.
pub(super) const ECHO_REPLY: u8 = 0;

/// `ICMPPingEncap(SRC, DST [, IDENTIFIER])` and `ICMPIPEncap(SRC, DST, TYPE [, CODE, IDENTIFIER])`.
///
/// Each packet becomes the payload of an ICMP message with an IPv4 header: an echo request, or one of any type.
struct IcmpEncap {
    source: Cell<Ipv4Addr>,
    destination: Cell<Ipv4Addr>,
    kind: u8,
    code: u8,
    identifier: u16,
    id: Cell<u16>,
}

fn icmp_ping_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let destination: Option<Ipv4Addr> = arguments.required("DST");
    let identifier: u16 = arguments.keyword("IDENTIFIER").unwrap_or(0);
    arguments.complete()?;
    Some(Rc::new(IcmpEncap {
        source: Cell::new(source?),
        destination: Cell::new(destination?),
        kind: ECHO,
        code: 0,
        identifier,
        id: Cell::new(1),
    }))
}

fn icmp_ip_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let destination: Option<Ipv4Addr> = arguments.required("DST");
    let kind = arguments.required_with("TYPE", names::icmp_type);
    let Word(code) = arguments.positional("CODE").unwrap_or(Word("0".into()));
    let identifier: u16 = arguments.keyword("IDENTIFIER").unwrap_or(0);
    arguments.complete()?;
    let Ok(kind) = u8::try_from(kind?) else {
        arguments.error("invalid TYPE");
        return None;
    };
    let Some(code) = names::icmp_code(kind, &code) else {
        arguments.error("invalid CODE");
        return None;
    };
    Some(Rc::new(IcmpEncap {
        source: Cell::new(source?),
        destination: Cell::new(destination?),
        kind,
        code,
        identifier,
        id: Cell::new(1),
    }))
}

impl IcmpEncap {
    /// The length of the message's header (bytes).
    fn header_length(&self) -> usize {
        if matches!(self.kind, 13 | 14) { 20 } else { 8 }
    }
}

/// Writes the header of a message over its first bytes. Messages that ask or answer have identifier and sequence.
pub(super) fn write_icmp(message: &mut [u8], kind: u8, code: u8, identifier: u16, sequence: u16) {
    header::put(message, 0, &[kind, code, 0, 0]);
    if matches!(kind, 0 | 8 | 13..=16) {
        set16(message, 4, identifier);
        set16(message, 6, sequence);
    }
    let sum = checksum::internet(message);
    set16(message, 2, sum);
}

impl Element for IcmpEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !packet.push_bytes(at.pool(), header::LENGTH + self.header_length()) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let id = self.id.get();
        let destination = Destination::Fixed(self.destination.get());
        Template::new(header::ICMP, self.source.get(), destination, 255).write(&mut packet, id);
        if let Some(message) = packet.data_mut().get_mut(header::LENGTH..) {
            write_icmp(message, self.kind, self.code, self.identifier, id);
        }
        // 0 is skipped: some hosts take it for no identification.
        self.id.set(if id == u16::MAX { 1 } else { id + 1 });
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let read = |value: &str, at: At<'_>| Ipv4Addr::parse(value.trim(), at).map_err(|_| "syntax error");
        handlers.read("src", |this: &Self, _| this.source.get()).calm = true;
        handlers.write("src", move |this: &Self, at, value| {
            this.source.set(read(value, at)?);
            Ok(String::new())
        });
        handlers.read("dst", |this: &Self, _| this.destination.get()).calm = true;
        handlers.write("dst", move |this: &Self, at, value| {
            this.destination.set(read(value, at)?);
            Ok(String::new())
        });
    }
}
