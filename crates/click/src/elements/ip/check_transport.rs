//! Checks of TCP, UDP and ICMP headers: `CheckTCPHeader`, `CheckUDPHeader`, `CheckICMPHeader`.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::check::Faults;
use super::header::{self, Ip};
use super::pass;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("CheckTCPHeader", check_tcp).ports("1/1-2").processing("a/ah"),
    Class::new("CheckUDPHeader", check_udp).ports("1/1-2").processing("a/ah"),
    Class::new("CheckICMPHeader", check_icmp).ports("1/1-2").processing("a/ah"),
];

/// A fault of a transport header.
#[derive(Clone, Copy)]
enum Fault {
    Protocol,
    Length,
    Checksum,
}

/// `CheckTCPHeader`, `CheckUDPHeader`, `CheckICMPHeader` (`[VERBOSE, DETAILS]`): refuse bad lengths and checksums.
struct CheckTransport {
    protocol: u8,
    faults: Faults<3>,
}

fn configure(
    arguments: &mut Arguments<'_>,
    protocol: u8,
    texts: [&'static str; 3],
) -> Option<Rc<dyn Element>> {
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let details = arguments.keyword("DETAILS").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(CheckTransport { protocol, faults: Faults::new(texts, verbose, details) }))
}

fn check_tcp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    configure(arguments, header::TCP, ["not TCP", "bad packet length", "bad TCP checksum"])
}
fn check_udp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    configure(arguments, header::UDP, ["not UDP", "bad packet length", "bad UDP checksum"])
}
fn check_icmp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    configure(arguments, header::ICMP, ["not ICMP", "bad packet length", "bad ICMP checksum"])
}

/// The sum over a segment and its pseudo-header: whether it is that of a right checksum.
fn is_right(ip: Ip<'_>, protocol: u8, segment: &[u8]) -> bool {
    let (source, destination) = (ip.source().into(), header::final_destination(ip).into());
    checksum::is_valid(source, destination, protocol, segment) == Some(true)
}

fn check_tcp_segment(ip: Ip<'_>, transport: &[u8]) -> Result<(), Fault> {
    let length = ip.total_length().checked_sub(ip.header_length()).ok_or(Fault::Length)?;
    let header_length = transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
    if header_length < 20 || length < header_length {
        return Err(Fault::Length);
    }
    let segment = transport.get(..length).ok_or(Fault::Length)?;
    if is_right(ip, header::TCP, segment) { Ok(()) } else { Err(Fault::Checksum) }
}

fn check_udp_datagram(ip: Ip<'_>, transport: &[u8]) -> Result<(), Fault> {
    let length = usize::from(header::get16(transport, 4));
    if length < 8 {
        return Err(Fault::Length);
    }
    let datagram = transport.get(..length).ok_or(Fault::Length)?;
    if is_right(ip, header::UDP, datagram) { Ok(()) } else { Err(Fault::Checksum) }
}

fn check_icmp_message(message: &[u8]) -> Result<(), Fault> {
    let right = match (message.first(), message.len()) {
        (None, _) | (_, 0..8) => false,
        // Errors quote an IP header and 8 bytes.
        (Some(3 | 4 | 5 | 11 | 12), length) => length >= 8 + 28,
        (Some(13 | 14), length) => length == 20,
        (Some(15 | 16), length) => length == 8,
        _ => true,
    };
    if !right {
        return Err(Fault::Length);
    }
    if checksum::internet(message) == 0 { Ok(()) } else { Err(Fault::Checksum) }
}

impl CheckTransport {
    fn check(&self, packet: &Packet) -> Result<(), Fault> {
        let ip = Ip::of(packet).filter(|ip| ip.protocol() == self.protocol).ok_or(Fault::Protocol)?;
        let transport = packet.transport().ok_or(Fault::Length)?;
        match self.protocol {
            header::TCP => check_tcp_segment(ip, transport),
            header::UDP => check_udp_datagram(ip, transport),
            _ => check_icmp_message(transport),
        }
    }
}

impl Element for CheckTransport {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let fault = match self.check(&packet) {
            Ok(()) => return Some(packet),
            Err(fault) => fault,
        };
        let subject = match self.protocol {
            header::TCP => format!("{}: TCP", at.declaration()),
            header::UDP => "UDP".to_owned(),
            _ => format!("{}: ICMP", at.declaration()),
        };
        let reason = match fault {
            Fault::Protocol => DropReason::Unmatched,
            Fault::Length => DropReason::Malformed,
            Fault::Checksum => DropReason::BadChecksum,
        };
        self.faults.refuse(at, packet, fault as usize, &subject, reason);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.faults.handlers(handlers, |this: &Self| &this.faults);
    }
}
