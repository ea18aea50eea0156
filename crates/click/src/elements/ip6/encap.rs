//! IPv6 headers put before packets: `IP6Encap`, `UDPIP6Encap`.

use std::cell::Cell;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, Fields, annotate, annotation, pass, put, set_transport_checksum, set16, show};
use crate::arguments::{Argument, Arguments, Parsed, Problem};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::names::{self, Named};
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Raw, integer};

pub(super) const CLASSES: &[Class] =
    &[Class::new("IP6Encap", ip6_encap).live(), Class::new("UDPIP6Encap", udp_ip6_encap).live()];

/// A header that is put before packets; without a destination, each packet's annotation is its own.
#[derive(Clone, Copy)]
struct Outer {
    next: u8,
    class: u8,
    hop_limit: u8,
    source: Ipv6Addr,
    destination: Option<Ipv6Addr>,
}

impl Outer {
    /// Writes the header over a packet's first bytes, and marks it.
    fn write(&self, packet: &mut Packet) {
        let destination = self.destination.unwrap_or_else(|| annotation(packet));
        let fields = Fields { next: self.next, hop_limit: self.hop_limit, source: self.source, destination };
        fields.write(packet.data_mut());
        put(packet.data_mut(), 0, &[0x60 | self.class >> 4, self.class << 4]);
        annotate(packet, destination);
        packet.set_network(0, header::LENGTH);
    }
    fn destination(&self) -> String {
        self.destination.map_or_else(|| "DST_ANNO".to_owned(), show)
    }
}

fn destination(text: &str, at: At<'_>) -> Option<Option<Ipv6Addr>> {
    match text {
        "DST_ANNO" => Some(None),
        _ => Ipv6Addr::parse(text, at).ok().map(Some),
    }
}

/// `IP6Encap(PROTO, SRC, DST [, HLIM, CLASS])`: puts an IPv6 header before each packet.
///
/// `DST` may be `DST_ANNO`: each packet's destination annotation.
struct Ip6Encap {
    outer: Cell<Outer>,
}

fn protocol(text: &str, _: At<'_>) -> Parsed<i64> {
    let number = || integer(text).and_then(|number| i64::try_from(number).ok());
    let known = names::ip_protocol(text).map(i64::from);
    known.or_else(number).ok_or_else(|| Problem::Said("invalid number".into()))
}

fn ip6_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let next = arguments.required_with("PROTO", protocol);
    let source: Option<Ipv6Addr> = arguments.required("SRC");
    let to: Option<Raw> = arguments.required("DST");
    let hop_limit: u8 = arguments.keyword("HLIM").unwrap_or(250);
    let class: u8 = arguments.keyword("CLASS").unwrap_or(0);
    arguments.complete()?;
    let Ok(next) = u8::try_from(next?) else {
        arguments.error("bad IP protocol");
        return None;
    };
    let Some(destination) = destination(&to?.0, arguments.at()) else {
        arguments.error("DST argument should be IP address or 'DST_ANNO'");
        return None;
    };
    Some(Rc::new(Ip6Encap {
        outer: Cell::new(Outer { next, class, hop_limit, source: source?, destination }),
    }))
}

impl Element for Ip6Encap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !packet.push_bytes(at.pool(), header::LENGTH) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        self.outer.get().write(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| show(this.outer.get().source)).calm = true;
        handlers.read("dst", |this: &Self, _| this.outer.get().destination()).calm = true;
        handlers.change_argument("src", Some(1), "SRC");
        handlers.change_argument("dst", Some(2), "DST");
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.outer.set(fresh.outer.get())).is_some()
    }
}

/// `UDPIP6Encap(SRC, SPORT, DST, DPORT)`: puts IPv6 and UDP headers before each packet.
///
/// `DST` may be `DST_ANNO`: each packet's destination annotation.
struct UdpIp6Encap {
    settings: Cell<(Outer, [u16; 2])>,
}

fn port(text: &str, at: At<'_>) -> Parsed<u16> {
    if let Some(number) = integer(text) {
        return u16::try_from(number).map_err(|_| "overflow, range 0-65535".into());
    }
    match at.names().find(at, Named::UdpPort, text).as_deref() {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => names::port(text).ok_or(Problem::Syntax),
    }
}

fn udp_ip6_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv6Addr> = arguments.required("SRC");
    let source_port = arguments.required_with("SPORT", port);
    let to: Option<Raw> = arguments.required("DST");
    let destination_port = arguments.required_with("DPORT", port);
    arguments.complete()?;
    let Some(destination) = destination(&to?.0, arguments.at()) else {
        arguments.error("bad DST");
        return None;
    };
    let outer = Outer { next: header::UDP, class: 0, hop_limit: 255, source: source?, destination };
    Some(Rc::new(UdpIp6Encap { settings: Cell::new((outer, [source_port?, destination_port?])) }))
}

impl Element for UdpIp6Encap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !packet.push_bytes(at.pool(), header::LENGTH + 8) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let (outer, ports) = self.settings.get();
        outer.write(&mut packet);
        let data = packet.data_mut();
        set16(data, header::LENGTH, ports[0]);
        set16(data, header::LENGTH + 2, ports[1]);
        let length = header::get16(data, 4);
        set16(data, header::LENGTH + 4, length);
        set_transport_checksum(data);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| show(this.settings.get().0.source));
        handlers.read("sport", |this: &Self, _| this.settings.get().1[0]);
        handlers.read("dst", |this: &Self, _| {
            show(this.settings.get().0.destination.unwrap_or(Ipv6Addr::UNSPECIFIED))
        });
        handlers.read("dport", |this: &Self, _| this.settings.get().1[1]);
        for (position, name, keyword) in
            [(0, "src", "SRC"), (1, "sport", "SPORT"), (2, "dst", "DST"), (3, "dport", "DPORT")]
        {
            handlers.change_argument(name, Some(position), keyword);
        }
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.settings.set(fresh.settings.get())).is_some()
    }
}
