//! IPv4 headers put before packets: `IPEncap`, `UDPIPEncap`, `DynamicUDPIPEncap`.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum::Sum;

use super::header::{self, Ip, set16};
use super::{names, pass};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Raw, boolean};

pub(super) const CLASSES: &[Class] = &[
    Class::new("IPEncap", ip_encap).live(),
    Class::new("UDPIPEncap", udp_ip_encap).live(),
    Class::new("DynamicUDPIPEncap", dynamic_udp_ip_encap).live(),
];

/// A destination: an address, or each packet's destination annotation (`DST_ANNO`).
#[derive(Clone, Copy)]
pub(super) enum Destination {
    Fixed(Ipv4Addr),
    Annotation,
}

impl Destination {
    pub(super) fn read(text: &str, at: At<'_>) -> Option<Self> {
        if text == "DST_ANNO" {
            return Some(Self::Annotation);
        }
        Ipv4Addr::parse(text, at).ok().map(Self::Fixed)
    }
    /// The packet's destination, which its annotation then says.
    #[inline]
    pub(super) fn of(self, packet: &mut Packet) -> Ipv4Addr {
        match self {
            Self::Fixed(address) => {
                packet.set_dst_ip(address);
                address
            }
            Self::Annotation => packet.dst_ip(),
        }
    }
}

/// An IPv4 header without length, identification and destination, and the sum of its words.
#[derive(Clone, Copy)]
pub(super) struct Template {
    header: [u8; header::LENGTH],
    sum: Sum,
    destination: Destination,
}

impl Template {
    pub(super) fn new(protocol: u8, source: Ipv4Addr, destination: Destination, ttl: u8) -> Self {
        let mut template = Self { header: [0; header::LENGTH], sum: Sum::ZERO, destination };
        template.header[0] = 0x45;
        template.header[8] = ttl;
        template.header[9] = protocol;
        template.header[12..16].copy_from_slice(&source.octets());
        template.sum = Sum::ZERO.add_bytes(&template.header);
        template
    }
    fn with_tos_and_df(mut self, tos: u8, df: bool) -> Self {
        self.header[1] = tos;
        set16(&mut self.header, 6, if df { header::DF } else { 0 });
        self.sum = Sum::ZERO.add_bytes(&self.header);
        self
    }
    fn source(&self) -> Ipv4Addr {
        header::get_address(&self.header, 12)
    }
    /// Writes a header over a packet's first bytes, and marks it.
    #[inline]
    pub(super) fn write(&self, packet: &mut Packet, id: u16) {
        let length = packet.len() as u16;
        let destination = self.destination.of(packet);
        let sum = self.sum.add16(length).add16(id).add32(destination.into()).finish();
        let Some(to) = packet.data_mut().first_chunk_mut::<{ header::LENGTH }>() else { return };
        *to = self.header;
        set16(to, 2, length);
        set16(to, 4, id);
        set16(to, 10, sum);
        to[16..20].copy_from_slice(&destination.octets());
        packet.set_network(0, header::LENGTH);
    }
}

/// The next of a sequence of identifications.
pub(super) fn next(id: &Cell<u16>) -> u16 {
    id.replace(id.get().wrapping_add(1))
}

/// `IPEncap(PROTO, SRC, DST [, TOS, TTL, DSCP, ECT, CE, DF])`: puts an IPv4 header before each packet.
///
/// `DST` may be `DST_ANNO`: each packet's destination annotation.
struct IpEncap {
    template: Cell<Template>,
    id: Cell<u16>,
}

fn ip_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let template = read_template(arguments)?;
    Some(Rc::new(IpEncap { template: Cell::new(template), id: Cell::default() }))
}

/// The ECT codepoint that a word means.
fn ect(word: &str) -> Option<u8> {
    match word {
        "" => Some(0),
        "2" => Some(2),
        _ => boolean(word).map(u8::from),
    }
}

fn tos_byte(arguments: &mut Arguments<'_>) -> Option<u8> {
    let [tos, dscp] = ["TOS", "DSCP"].map(|keyword| arguments.keyword::<i32>(keyword).unwrap_or(-1));
    let word: String = arguments.keyword("ECT").unwrap_or_default();
    let ce = arguments.keyword("CE").unwrap_or(false);
    if !arguments.is_good() {
        return Some(0);
    }
    let Some(ect) = ect(&word) else {
        arguments.error(&format!("bad ECT value '{word}'"));
        return None;
    };
    let error = if tos >= 0 && dscp >= 0 {
        "cannot set both TOS and DSCP"
    } else if tos >= 0 && (ect != 0 || ce) {
        "cannot set both TOS and ECN bits"
    } else if !(-1..256).contains(&tos) {
        "TOS too large; max 255"
    } else if !(-1..63).contains(&dscp) {
        "DSCP too large; max 63"
    } else if ect != 0 && ce {
        "can set at most one ECN option"
    } else {
        let base = if tos >= 0 { tos } else { dscp.max(0) << 2 };
        let ecn = match (ect, ce) {
            (_, true) => 3,
            (1, _) => 1,
            (0, _) => 0,
            _ => 2,
        };
        return Some(base as u8 | ecn);
    };
    arguments.error(error);
    None
}

fn read_template(arguments: &mut Arguments<'_>) -> Option<Template> {
    let protocol = arguments.required_with("PROTO", names::protocol);
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let destination: Option<Raw> = arguments.required("DST");
    let ttl: u8 = arguments.keyword("TTL").unwrap_or(250);
    let df = arguments.keyword("DF").unwrap_or(false);
    // These are read here so that none is left over; faults of their values come behind the others'.
    let good = arguments.is_good();
    let read = good.then(|| {
        let protocol = u8::try_from(protocol?).map_err(|_| arguments.error("bad IP protocol")).ok()?;
        let destination = Destination::read(&destination?.0, arguments.at());
        if destination.is_none() {
            arguments.error("DST argument should be IP address or 'DST_ANNO'");
        }
        let tos = tos_byte(arguments)?;
        Some(Template::new(protocol, source?, destination?, ttl).with_tos_and_df(tos, df))
    });
    if !good {
        tos_byte(arguments);
    }
    arguments.complete()?;
    read?
}

impl Element for IpEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !packet.push_bytes(at.pool(), header::LENGTH) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        self.template.get().write(&mut packet, next(&self.id));
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| this.template.get().source()).calm = true;
        handlers
            .read("dst", |this: &Self, _| match this.template.get().destination {
                Destination::Fixed(address) => address.to_string(),
                Destination::Annotation => "DST_ANNO".to_owned(),
            })
            .calm = true;
        handlers.change_argument("src", Some(1), "SRC");
        handlers.change_argument("dst", Some(2), "DST");
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.template.set(fresh.template.get())).is_some()
    }
}

/// Settings of [`UdpIpEncap`].
#[derive(Clone, Copy)]
struct UdpSettings {
    template: Template,
    ports: [u16; 2],
    checksum: bool,
    /// Packets after which both ports become one higher; 0: never.
    interval: u32,
}

/// `UDPIPEncap(SRC, SPORT, DST, DPORT [, CHECKSUM])`: puts IPv4 and UDP headers before each packet.
///
/// `DST` may be `DST_ANNO`: each packet's destination annotation. `DynamicUDPIPEncap` has a further argument `INTERVAL`: both
/// ports become one higher after so many packets.
struct UdpIpEncap {
    settings: Cell<UdpSettings>,
    id: Cell<u16>,
    /// Packets since the ports changed.
    count: Cell<u32>,
}

fn udp_ip_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make_udp(arguments, false)
}
fn dynamic_udp_ip_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make_udp(arguments, true)
}

fn make_udp(arguments: &mut Arguments<'_>, is_dynamic: bool) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let source_port = arguments.required_with("SPORT", names::udp_port);
    let destination: Option<Raw> = arguments.required("DST");
    let destination_port = arguments.required_with("DPORT", names::udp_port);
    let checksum = arguments.positional("CHECKSUM").unwrap_or(true);
    let interval = if is_dynamic { arguments.positional("INTERVAL").unwrap_or(0) } else { 0 };
    arguments.complete()?;
    let Some(destination) = Destination::read(&destination?.0, arguments.at()) else {
        arguments.error("bad DST");
        return None;
    };
    let settings = UdpSettings {
        template: Template::new(header::UDP, source?, destination, 250),
        ports: [source_port?, destination_port?],
        checksum,
        interval,
    };
    Some(Rc::new(UdpIpEncap { settings: Cell::new(settings), id: Cell::default(), count: Cell::default() }))
}

/// Writes a UDP header over a packet's bytes behind its IPv4 header of 20 bytes.
pub(super) fn write_udp(packet: &mut Packet, ports: [u16; 2], checksum: bool) {
    let data = packet.data_mut();
    let Some((ip, datagram)) = data.split_at_mut_checked(header::LENGTH) else { return };
    set16(datagram, 0, ports[0]);
    set16(datagram, 2, ports[1]);
    let length = datagram.len() as u16;
    set16(datagram, 4, length);
    set16(datagram, 6, 0);
    if checksum {
        let sum = header::transport_checksum(Ip(ip), header::UDP, datagram);
        set16(datagram, 6, sum);
    }
}

impl Element for UdpIpEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !packet.push_bytes(at.pool(), header::LENGTH + 8) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let mut settings = self.settings.get();
        settings.template.write(&mut packet, next(&self.id));
        write_udp(&mut packet, settings.ports, settings.checksum);
        if settings.interval > 0 {
            let count = self.count.get() + 1;
            self.count.set(count % settings.interval);
            if count == settings.interval {
                settings.ports = settings.ports.map(|port| port.wrapping_add(1));
                self.settings.set(settings);
            }
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| this.settings.get().template.source());
        handlers.read("sport", |this: &Self, _| this.settings.get().ports[0]);
        handlers.read("dst", |this: &Self, _| match this.settings.get().template.destination {
            Destination::Fixed(address) => address,
            Destination::Annotation => Ipv4Addr::UNSPECIFIED,
        });
        handlers.read("dport", |this: &Self, _| this.settings.get().ports[1]);
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
