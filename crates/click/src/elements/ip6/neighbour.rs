//! Neighbour discovery (RFC 4861): `IP6NDSolicitor`, `IP6NDAdvertiser`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::header::{
    self, ETHER, Fields, ICMP6, Ip6, Prefix6, annotation, get_address, get16, put, set_transport_checksum,
    set16, show,
};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, SECOND};

pub(super) const CLASSES: &[Class] = &[
    Class::new("IP6NDSolicitor", solicitor).ports("2/1-2").processing("h/h").flow("xy/x"),
    Class::new("IP6NDAdvertiser", advertiser).answers(),
];

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const TYPE: u16 = 0x86DD;
/// Bytes of a message with one option of a link-layer address.
const MESSAGE: usize = 32;
/// The option of the sender's address.
const FROM: u8 = 1;
/// The option of the target's address.
const TARGET: u8 = 2;
/// The most neighbours that a table knows.
const CAPACITY: usize = 1024;
/// After so long without an advertisement a neighbour is forgotten (ns).
const FORGOTTEN: u64 = 120 * SECOND;
/// After so long without an advertisement a neighbour is asked again (ns).
const ASKED_AGAIN: u64 = 60 * SECOND;
/// Time between looks for neighbours that are to be forgotten (ns).
const LOOK: u64 = 15 * SECOND;

/// A message that is to be made.
struct Message {
    to: Ether,
    from: Ether,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: (u8, Ether),
}

impl Message {
    fn make(&self, at: At<'_>) -> Option<Packet> {
        let mut packet = at.allocate(ETHER + header::LENGTH + MESSAGE)?;
        let data = packet.data_mut();
        data.fill(0);
        write_ether(data, self.to, self.from);
        let ip = &mut data[ETHER..];
        let fields =
            Fields { next: ICMP6, hop_limit: 255, source: self.source, destination: self.destination };
        fields.write(ip);
        let icmp = &mut ip[header::LENGTH..];
        put(icmp, 0, &[self.kind, 0, 0, 0, self.flags]);
        put(icmp, 8, &self.target.octets());
        put(icmp, 24, &[self.option.0, 1]);
        put(icmp, 26, &self.option.1.0);
        set_transport_checksum(ip);
        packet.set_mac_place(Some(0));
        packet.set_network(ETHER, header::LENGTH);
        packet.set_timestamp(at.now());
        Some(packet)
    }
}

fn write_ether(data: &mut [u8], to: Ether, from: Ether) {
    put(data, 0, &to.0);
    put(data, 6, &from.0);
    set16(data, 12, TYPE);
}

fn get_ether(bytes: &[u8], at: usize) -> Option<Ether> {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<6>).copied().map(Ether)
}

/// The header and the ICMPv6 message of a frame, if it is a good neighbour discovery message of a kind.
fn message(frame: &[u8], kind: u8) -> Option<(Ip6<'_>, &[u8])> {
    let ip = frame.get(ETHER..).and_then(Ip6::read)?;
    let whole = ip.0.len() >= header::LENGTH + ip.payload_length();
    let icmp = ip.payload();
    let good = whole
        && get16(frame, 12) == TYPE
        && ip.version() == 6
        && ip.next() == ICMP6
        && ip.hop_limit() == 255
        && icmp.len() >= 24
        && icmp.starts_with(&[kind, 0])
        && checksum::is_valid(ip.source().into(), ip.destination().into(), ICMP6, icmp) == Some(true);
    good.then_some((ip, icmp))
}

/// The link-layer address of an option of a message.
fn option(icmp: &[u8], kind: u8) -> Option<Ether> {
    let mut rest = icmp.get(24..)?;
    while let [this, length, ..] = rest {
        if *length == 0 {
            break;
        }
        if *this == kind && *length == 1 {
            return get_ether(rest, 2);
        }
        rest = rest.get(usize::from(*length) * 8..)?;
    }
    None
}

/// The state of a neighbour.
struct Neighbour {
    address: Option<Ether>,
    /// Whether it is to be asked again with the next packet for it.
    asks: bool,
    heard: u64,
    waiting: Option<Packet>,
}

/// `IP6NDSolicitor(IP, ETH)`: puts Ethernet headers before IPv6 packets, and asks who has their destinations.
///
/// Input 0 takes IPv6 packets with a destination annotation, input 1 advertisements. Solicitations leave by the last
/// output. One packet waits for each neighbour that has not answered.
struct Solicitor {
    address: Ipv6Addr,
    ether: Ether,
    neighbours: RefCell<HashMap<Ipv6Addr, Neighbour>>,
    killed: Cell<u64>,
    sent: Cell<u64>,
}

fn solicitor(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv6Addr> = arguments.required("IP");
    let ether: Option<Ether> = arguments.required("ETH");
    arguments.complete()?;
    Some(Rc::new(Solicitor {
        address: address?,
        ether: ether?,
        neighbours: RefCell::default(),
        killed: Cell::default(),
        sent: Cell::default(),
    }))
}

/// The fate of a packet.
enum Verdict {
    Send(Ether, bool, Packet),
    Wait(Option<Packet>),
    Full(Packet),
}

impl Solicitor {
    fn ask(&self, at: At<'_>, target: Ipv6Addr) {
        let [.., a, b, c] = target.octets();
        let message = Message {
            to: Ether([0x33, 0x33, 0xFF, a, b, c]),
            from: self.ether,
            source: self.address,
            destination: Ipv6Addr::from_bits(
                0xFF02_0000_0000_0000_0000_0001_FF00_0000 | target.to_bits() & 0xFF_FFFF,
            ),
            kind: SOLICITATION,
            flags: 0,
            target,
            option: (FROM, self.ether),
        };
        let Some(packet) = message.make(at) else { return };
        self.sent.set(self.sent.get() + 1);
        at.push(at.outputs().saturating_sub(1), packet);
    }

    fn decide(&self, at: At<'_>, target: Ipv6Addr, packet: Packet) -> Verdict {
        let mut neighbours = self.neighbours.borrow_mut();
        if let Some(neighbour) = neighbours.get_mut(&target) {
            return match neighbour.address {
                Some(ether) => Verdict::Send(ether, std::mem::take(&mut neighbour.asks), packet),
                None => Verdict::Wait(neighbour.waiting.replace(packet)),
            };
        }
        if neighbours.len() >= CAPACITY {
            return Verdict::Full(packet);
        }
        let neighbour = Neighbour { address: None, asks: false, heard: at.steady(), waiting: Some(packet) };
        neighbours.insert(target, neighbour);
        Verdict::Wait(None)
    }

    fn take(&self, at: At<'_>, packet: Packet) {
        let target = annotation(&packet);
        match self.decide(at, target, packet) {
            Verdict::Send(ether, asks, packet) => {
                if asks {
                    self.ask(at, target);
                }
                self.send(at, ether, packet);
            }
            Verdict::Wait(before) => {
                if let Some(packet) = before {
                    self.killed.set(self.killed.get() + 1);
                    at.drop_packet(packet, DropReason::QueueFull);
                }
                self.ask(at, target);
            }
            Verdict::Full(packet) => {
                self.killed.set(self.killed.get() + 1);
                at.drop_packet(packet, DropReason::TableFull);
            }
        }
    }

    fn send(&self, at: At<'_>, to: Ether, mut packet: Packet) {
        if !packet.push_bytes(at.pool(), ETHER) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return;
        }
        write_ether(packet.data_mut(), to, self.ether);
        packet.set_mac_place(Some(0));
        at.push(0, packet);
    }

    fn hear(&self, at: At<'_>, frame: &[u8]) {
        let Some((_, icmp)) = message(frame, ADVERTISEMENT) else { return };
        let target = get_address(icmp, 8);
        // An advertisement without an option comes from the address itself.
        let Some(ether) =
            option(icmp, TARGET).or_else(|| get_ether(frame, 6)).filter(|ether| !ether.is_group())
        else {
            return;
        };
        let (overwrites, waiting) = {
            let mut neighbours = self.neighbours.borrow_mut();
            let Some(neighbour) = neighbours.get_mut(&target) else { return };
            let before = neighbour.address.replace(ether);
            neighbour.asks = false;
            neighbour.heard = at.steady();
            (before.is_some_and(|before| before != ether), neighbour.waiting.take())
        };
        if overwrites {
            at.complain(|| "IP6NDSolicitor overwriting an entry".into());
        }
        if let Some(packet) = waiting {
            self.send(at, ether, packet);
        }
    }

    fn show(&self) -> String {
        let neighbours = self.neighbours.borrow();
        let mut known: Vec<_> = neighbours.iter().collect();
        known.sort_unstable_by_key(|(address, _)| **address);
        let mut lines = String::new();
        for (address, neighbour) in known {
            let ether = neighbour.address.unwrap_or_default();
            let known = u8::from(neighbour.address.is_some());
            let _ = writeln!(lines, "{} {known} {ether}", show(*address));
        }
        lines
    }
}

impl Element for Solicitor {
    fn memory(&self) -> usize {
        self.neighbours.borrow().capacity() * size_of::<(Ipv6Addr, Neighbour)>()
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.timer_after(0, LOOK);
        true
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        if input == 0 {
            self.take(at, packet);
        } else {
            self.hear(at, packet.data());
            at.drop_packet(packet, DropReason::LocalDelivery);
        }
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let now = at.steady();
        let mut given_up = Vec::new();
        self.neighbours.borrow_mut().retain(|_, neighbour| {
            let age = now.saturating_sub(neighbour.heard);
            if age > ASKED_AGAIN {
                neighbour.asks = true;
            }
            if age > FORGOTTEN {
                given_up.extend(neighbour.waiting.take());
            }
            age <= FORGOTTEN
        });
        for packet in given_up {
            self.killed.set(self.killed.get() + 1);
            at.drop_packet(packet, DropReason::NoRoute);
        }
        at.timer_after(0, LOOK);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, _| this.show());
        handlers.read("stats", |this: &Self, _| {
            let (killed, sent) = (this.killed.get(), this.sent.get());
            format!("{killed} packets killed\n{sent} ND Solicitation Message sent\n")
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before)
            && (self.address, self.ether) == (before.address, before.ether)
        {
            self.neighbours.swap(&before.neighbours);
        }
    }
    fn cleanup(&self, at: At<'_>) {
        let neighbours = self.neighbours.take();
        for packet in neighbours.into_values().filter_map(|neighbour| neighbour.waiting) {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}

/// `IP6NDAdvertiser(PREFIX ... ETH, ...)`: answers solicitations for addresses in prefixes.
struct Advertiser {
    entries: Vec<(Prefix6, Ether)>,
}

fn advertiser(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut entries = Vec::new();
    let mut good = true;
    let mut fault = |message: String| {
        setup.errors.error(&message);
        good = false;
    };
    for (number, argument) in arguments.rest().iter().enumerate() {
        let mut ether = None;
        let mut prefixes = Vec::new();
        for word in text::split_words(argument) {
            if let Ok(prefix) = Prefix6::parse(&word, setup.at) {
                prefixes.push(prefix);
            } else if let Ok(address) = Ether::parse(&word, setup.at) {
                if ether.replace(address).is_some() {
                    fault(format!("argument {number} has more than one Ethernet address"));
                }
            } else {
                fault(format!("argument {number} should be `IP6/MASK ETHADDR'"));
                break;
            }
        }
        if prefixes.is_empty() {
            fault(format!("argument {number} had no IP6 address and masks"));
        }
        entries.extend(prefixes.into_iter().map(|prefix| (prefix, ether.unwrap_or_default())));
    }
    good.then(|| Rc::new(Advertiser { entries }) as Rc<dyn Element>)
}

impl Advertiser {
    fn find(&self, address: Ipv6Addr) -> Option<Ether> {
        let mut best: Option<(u32, Ether)> = None;
        for (prefix, ether) in self.entries.iter().filter(|(prefix, _)| prefix.contains(address)) {
            if best.is_none_or(|(length, _)| length < prefix.length) {
                best = Some((prefix.length, *ether));
            }
        }
        best.map(|(_, ether)| ether)
    }

    fn answer(&self, at: At<'_>, packet: &Packet) -> Option<Packet> {
        let (ip, icmp) = message(packet.data(), SOLICITATION)?;
        let target = get_address(icmp, 8);
        let ether = self.find(target)?;
        // A host that looks whether its own address is free hears the answer as one of all hosts.
        let asks_for_itself = ip.source().is_unspecified();
        let (to, destination, flags) = if asks_for_itself {
            let all = Ipv6Addr::from_bits(0xFF02_0000_0000_0000_0000_0000_0000_0001);
            (Ether([0x33, 0x33, 0, 0, 0, 1]), all, 0x80)
        } else {
            (get_ether(packet.data(), 6)?, ip.source(), 0xC0)
        };
        let message = Message {
            to,
            from: ether,
            source: target,
            destination,
            kind: ADVERTISEMENT,
            flags,
            target,
            option: (TARGET, ether),
        };
        message.make(at)
    }
}

impl Element for Advertiser {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let answer = self.answer(at, &packet);
        let reason = if answer.is_some() { DropReason::Answered } else { DropReason::Discarded };
        at.drop_packet(packet, reason);
        answer
    }
}
