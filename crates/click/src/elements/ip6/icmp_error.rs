//! `ICMP6Error`: ICMPv6 error messages about packets (RFC 4443).

use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{self, Fields, ICMP6, Ip6, annotate, annotation, put, set_transport_checksum};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::language::errors::Errors;
use crate::packet::{Annotated, Kind, place};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[Class::new("ICMP6Error", icmp6_error).answers()];

const TOO_BIG: u8 = 2;
const PARAMETER_PROBLEM: u8 = 4;
const REDIRECT: u8 = 137;
/// The most bytes of the packet that a message quotes.
const QUOTED: usize = 568;
/// The MTU that messages of packets that are too big tell.
const MTU: u32 = 1500;

fn is_error(kind: i64) -> bool {
    matches!(kind, 1..=4)
}

/// `ICMP6Error(SRC, TYPE, CODE)`: answers a packet with an ICMPv6 error, or a redirect.
///
/// Nothing answers packets that RFC 4443 section 2.4 forbids to answer: errors and redirects, and those to groups.
struct Icmp6Error {
    source: Ipv6Addr,
    kind: i64,
    code: i64,
}

fn icmp6_error(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv6Addr> = arguments.required("SRC");
    let kind: Option<i32> = arguments.required("TYPE");
    let code: Option<i32> = arguments.required("CODE");
    arguments.complete()?;
    Some(Rc::new(Icmp6Error { source: source?, kind: kind?.into(), code: code?.into() }))
}

/// Whether a packet may be answered.
fn may_answer(packet: &Packet, ip: Ip6<'_>) -> bool {
    if ip.next() == ICMP6 {
        // Messages below 128 are errors, those that nobody knows yet among them.
        match ip.payload().first() {
            None | Some(0..128 | &REDIRECT) => return false,
            _ => (),
        }
    }
    let source = ip.source();
    ip.version() == 6
        && !ip.destination().is_multicast()
        && !source.is_multicast()
        && !source.is_unspecified()
        && !matches!(packet.kind(), Kind::Broadcast | Kind::Multicast)
}

impl Icmp6Error {
    fn answer(&self, at: At<'_>, packet: &Packet) -> Option<Packet> {
        let ip = Ip6::of(packet).filter(|ip| may_answer(packet, *ip))?;
        let (kind, code) = (u8::try_from(self.kind).ok()?, u8::try_from(self.code).ok()?);
        let message = if kind == REDIRECT { 40 } else { 8 };
        let quoted = ip.0.get(..QUOTED).unwrap_or(ip.0);
        let mut answer = at.allocate(header::LENGTH + message + quoted.len())?;
        let data = answer.data_mut();
        data.fill(0);
        let fields = Fields { next: ICMP6, hop_limit: 255, source: self.source, destination: ip.source() };
        fields.write(data);
        let icmp = &mut data[header::LENGTH..];
        put(icmp, 0, &[kind, code]);
        match (kind, code) {
            (TOO_BIG, 0) => put(icmp, 4, &MTU.to_be_bytes()),
            (PARAMETER_PROBLEM, 0) => put(icmp, 7, &[packet.anno_u8(place::ICMP_PARAMETER_PROBLEM)]),
            (REDIRECT, 0) => {
                put(icmp, 8, &annotation(packet).octets());
                put(icmp, 24, &ip.destination().octets());
            }
            _ => (),
        }
        put(icmp, message, quoted);
        set_transport_checksum(data);
        annotate(&mut answer, ip.source());
        answer.set_anno_u8(place::FIX_IP_SRC, 1);
        answer.set_network(0, header::LENGTH);
        answer.set_timestamp(at.now());
        Some(answer)
    }
}

impl Element for Icmp6Error {
    fn initialize(&self, _: At<'_>, errors: &Errors) -> bool {
        if self.kind < 0 || self.code < 0 || self.source.is_unspecified() {
            errors.error("not configured -a");
            return false;
        }
        if !is_error(self.kind) && self.kind != i64::from(REDIRECT) {
            errors.error(&format!("ICMP6 type {} is not an error or redirect type", self.kind));
            return false;
        }
        true
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let answer = self.answer(at, &packet);
        let reason = if answer.is_some() { DropReason::Answered } else { DropReason::Discarded };
        at.drop_packet(packet, reason);
        answer
    }
}
