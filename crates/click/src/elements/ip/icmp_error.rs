//! `ICMPError`: ICMP error messages about packets (RFC 792, RFC 1812 section 4.3.2).

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::encap::{Destination, Template, next};
use super::header::{self, Ip, option, set16};
use super::names;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::Word;

pub(super) const CLASSES: &[Class] = &[Class::new("ICMPError", icmp_error).live().answers()];

const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const PARAMETER_PROBLEM: u8 = 12;

fn is_error(kind: i64) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// The texts of messages.
#[derive(Clone)]
struct Message {
    kind: u8,
    code: u8,
    bad_addresses: Rc<[Ipv4Addr]>,
    asks_for_source: bool,
}

/// `ICMPError(SRC, TYPE [, CODE, BADADDRS, MTU, PMTU, SET_FIX_ANNO])`: answers a packet with an ICMP error.
///
/// Nothing answers packets that RFC 1812 forbids to answer: errors, later fragments, and those to or from groups.
/// `BADADDRS` are the router's broadcast addresses. A message has at most `MTU` bytes.
struct IcmpError {
    source: Cell<Ipv4Addr>,
    mtu: Cell<u32>,
    path_mtu: Cell<u32>,
    message: RefCell<Message>,
}

fn icmp_error(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let kind = arguments.required_with("TYPE", names::icmp_type);
    let Word(code) = arguments.positional("CODE").unwrap_or(Word("0".into()));
    let bad_addresses = arguments.positional_with("BADADDRS", names::addresses).unwrap_or_default();
    let mtu: u32 = arguments.keyword("MTU").unwrap_or(576);
    let path_mtu: u32 = arguments.keyword("PMTU").unwrap_or(0);
    let asks_for_source = arguments.keyword("SET_FIX_ANNO").unwrap_or(true);
    arguments.complete()?;
    let kind = kind?;
    let Some(number) = u8::try_from(kind).ok().filter(|_| is_error(kind)) else {
        arguments.error(&match kind {
            0..=255 => format!("ICMP type {kind} is not an error type"),
            _ => "ICMP type must be between 0 and 255".to_owned(),
        });
        return None;
    };
    let Some(code) = names::icmp_code(number, &code) else {
        arguments.error("argument 2 takes ICMP code (integer between 0 and 255)");
        return None;
    };
    let message = Message { kind: number, code, bad_addresses: bad_addresses.into(), asks_for_source };
    Some(Rc::new(IcmpError {
        source: Cell::new(source?),
        mtu: Cell::new(mtu),
        path_mtu: Cell::new(path_mtu),
        message: RefCell::new(message),
    }))
}

/// Where a source route option lies in a header, if it has one that is well formed, and the option.
fn source_route(header: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = header::LENGTH;
    loop {
        let rest = header.get(at..)?;
        match rest {
            [option::NOP, ..] => at += 1,
            [option::END, ..] => return None,
            [kind, length, ..] => {
                let length = usize::from(*length);
                if length < 2 || length > rest.len() {
                    return None;
                }
                let pointer = usize::from(rest.get(2).copied().unwrap_or(0));
                if matches!(*kind, option::LOOSE | option::STRICT)
                    && pointer >= 4
                    && pointer % 4 == 0
                    && pointer <= length + 1
                {
                    return Some((at, &rest[..length]));
                }
                at += length;
            }
            _ => return None,
        }
    }
}

/// The option that leads back the way that a source route has taken.
fn reversed(route: &[u8]) -> Vec<u8> {
    let passed = usize::from(route[2]) - 4;
    let mut back = vec![route[0], (passed + 3) as u8, 4];
    for address in route.get(3..3 + passed).unwrap_or_default().rchunks_exact(4) {
        back.extend_from_slice(address);
    }
    back.resize(back.len().next_multiple_of(4), option::END);
    back
}

impl Message {
    fn is_unicast(&self, address: Ipv4Addr) -> bool {
        !address.is_broadcast() && !address.is_multicast() && !self.bad_addresses.contains(&address)
    }
    /// Whether an address may be a source (RFC 1812, sections 4.2.2.11, 4.2.3.1 and 5.3.7).
    fn is_source(&self, address: Ipv4Addr) -> bool {
        self.is_unicast(address) && !matches!(address.octets()[0], 0 | 127 | 240..)
    }
    /// Whether a packet may be answered (RFC 1812, section 4.3.2.7).
    fn may_answer(&self, packet: &Packet, ip: Ip<'_>) -> bool {
        if ip.protocol() == header::ICMP {
            let icmp = ip.0.get(ip.header_length()..).unwrap_or_default();
            if icmp.len() < 4 || is_error(icmp[0].into()) {
                return false;
            }
        }
        self.is_unicast(ip.destination())
            && !super::field::is_for_group(packet)
            && self.is_source(ip.source())
            && ip.is_first()
    }
}

impl IcmpError {
    fn answer(&self, at: At<'_>, packet: &Packet) -> Option<Packet> {
        let message = self.message.borrow().clone();
        let ip = Ip::of(packet).filter(|ip| message.may_answer(packet, *ip))?;
        let header = ip.0.get(..ip.header_length()).unwrap_or(ip.0);
        let mut route = source_route(header);
        if route.is_some() && message.kind == REDIRECT {
            return None;
        }
        let pointer = packet.anno_u8(place::ICMP_PARAMETER_PROBLEM);
        let points = message.kind == PARAMETER_PROBLEM && message.code == 0;
        if let Some((begin, option)) = route
            && points
            && (begin..begin + option.len()).contains(&usize::from(pointer))
        {
            // The fault is in the route itself.
            route = None;
        }
        let options = route.map(|(_, option)| reversed(option)).unwrap_or_default();
        let begin = header::LENGTH + options.len();
        let room = (self.mtu.get() as usize).saturating_sub(begin + 8);
        let quoted = ip.0.get(..room).unwrap_or(ip.0);
        let mut answer = at.allocate(begin + 8 + quoted.len())?;
        let ids = at.router.shared("ICMPError id", || Cell::new(1_u16));
        let to = Destination::Fixed(ip.source());
        Template::new(header::ICMP, self.source.get(), to, 200).write(&mut answer, next(&ids));
        let data = answer.data_mut();
        header::put(data, header::LENGTH, &options);
        data[0] = 0x40 | (begin / 4) as u8;
        header::set_checksum(data);
        let icmp = &mut data[begin..];
        header::put(icmp, 0, &[message.kind, message.code]);
        if points {
            header::put(icmp, 4, &[pointer]);
        }
        if message.kind == REDIRECT {
            header::put(icmp, 4, &packet.dst_ip().octets());
        }
        if message.kind == UNREACHABLE && message.code == 4 {
            set16(icmp, 6, self.path_mtu.get() as u16);
        }
        header::put(icmp, 8, quoted);
        let sum = checksum::internet(icmp);
        set16(icmp, 2, sum);
        answer.set_network(0, begin);
        answer.set_anno_u8(place::FIX_IP_SRC, u8::from(message.asks_for_source));
        answer.set_timestamp(at.now());
        Some(answer)
    }
}

impl Element for IcmpError {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let answer = self.answer(at, &packet);
        let reason = if answer.is_some() { DropReason::Answered } else { DropReason::Discarded };
        at.drop_packet(packet, reason);
        answer
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("src", |this: &Self, _| this.source.get());
        handlers.write("src", |this: &Self, at, value| {
            this.source.set(Ipv4Addr::parse(value.trim(), at).map_err(|_| "expected IP address")?);
            Ok(String::new())
        });
        handlers.number("mtu", |this: &Self| &this.mtu);
        handlers.number("pmtu", |this: &Self| &this.path_mtu);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.source.set(fresh.source.get());
        self.mtu.set(fresh.mtu.get());
        self.path_mtu.set(fresh.path_mtu.get());
        *self.message.borrow_mut() = fresh.message.borrow().clone();
        true
    }
}
