//! Sources of UDP packets for benchmarks: `FastUDPSource`, `FastUDPFlows`.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::encap::{Destination, Template, write_udp};
use super::header;
use super::names;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, SECOND, boolean, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("FastUDPSource", fast_udp_source).ports("0/1").processing("a/l").flow("x/y"),
    Class::new("FastUDPFlows", fast_udp_flows).ports("0/1").processing("a/l").flow("x/y"),
];

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The most flows that a source may have.
const MOST_FLOWS: u32 = 1 << 16;
/// The highest rate (packets a second).
const MOST: u32 = 1_000_000 << 12;

/// Packets a second, evenly: at most one second's worth is made up for.
#[derive(Default)]
struct Rate {
    rate: Cell<u32>,
    second: Cell<u64>,
    count: Cell<i64>,
}

impl Rate {
    fn set(&self, rate: u32) {
        self.rate.set(rate.min(MOST));
        self.second.set(0);
    }
    /// Whether a packet is due; it is then counted.
    fn take(&self, now: u64) -> bool {
        let rate = self.rate.get();
        if rate == 0 {
            return true;
        }
        let (second, rest) = (now / SECOND, now % SECOND);
        let due = (u128::from(rest) * u128::from(rate) / u128::from(SECOND)) as i64;
        let before = self.second.replace(second);
        if before == 0 || before > second || before + 1 < second {
            self.count.set(due);
        } else if before < second {
            self.count.set(self.count.get() - i64::from(rate));
        }
        let takes = self.count.get() <= due;
        self.count.set(self.count.get() + i64::from(takes));
        takes
    }
}

/// How the ports of packets change.
enum Ports {
    /// From these, both one more after so many packets.
    Stepped { first: [u16; 2], step: Cell<u16>, interval: u32 },
    /// Random ports for so many flows, new ones after so many packets of a flow.
    Random { flows: RefCell<Vec<([u16; 2], u32)>>, number: u32, size: u32 },
}

/// `FastUDPSource` and `FastUDPFlows`: UDP packets in Ethernet frames, pulled at a rate (0: as fast as can be).
///
/// - `FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT [, CHECKSUM, INTERVAL, ACTIVE])`
///   has both ports one higher after each `INTERVAL` packets.
/// - `FastUDPFlows(RATE, LIMIT, LENGTH, SRCETH, SRCIP, DSTETH, DSTIP, FLOWS, FLOWSIZE [, CHECKSUM, ACTIVE])` sends
///   packets of flows with random ports, which end after `FLOWSIZE` packets.
struct UdpSource {
    rate: Rate,
    limit: Cell<Option<u32>>,
    length: Cell<u32>,
    ethernet: [Ether; 2],
    template: Template,
    destination: Ipv4Addr,
    checksum: bool,
    ports: Ports,
    active: Cell<bool>,
    count: Cell<u32>,
    first: Cell<u64>,
    last: Cell<u64>,
}

fn checked_length(at: At<'_>, length: u32) -> u32 {
    if length < 60 {
        at.chatter("warning: packet length < 60, defaulting to 60");
    }
    // Lengths of IPv4 packets have 16 bits.
    length.clamp(60, u32::from(u16::MAX) + ETHERNET as u32)
}

fn fast_udp_source(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let rate: Option<u32> = arguments.required("RATE");
    let limit: Option<i32> = arguments.required("LIMIT");
    let length: Option<u32> = arguments.required("LENGTH");
    let source_ethernet: Option<Ether> = arguments.required("SRCETH");
    let source: Option<Ipv4Addr> = arguments.required("SRCIP");
    let source_port = arguments.required_with("SPORT", names::udp_port);
    let destination_ethernet: Option<Ether> = arguments.required("DSTETH");
    let destination: Option<Ipv4Addr> = arguments.required("DSTIP");
    let destination_port = arguments.required_with("DPORT", names::udp_port);
    let checksum = arguments.positional("CHECKSUM").unwrap_or(true);
    let interval: u32 = arguments.positional("INTERVAL").unwrap_or(0);
    let active = arguments.positional("ACTIVE").unwrap_or(true);
    arguments.complete()?;
    let ports = Ports::Stepped { first: [source_port?, destination_port?], step: Cell::default(), interval };
    let ethernet = [destination_ethernet?, source_ethernet?];
    make(arguments, (rate?, limit?, length?), ethernet, [source?, destination?], (checksum, active), ports)
}

fn fast_udp_flows(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let rate: Option<u32> = arguments.required("RATE");
    let limit: Option<i32> = arguments.required("LIMIT");
    let length: Option<i32> = arguments.required("LENGTH");
    let source_ethernet: Option<Ether> = arguments.required("SRCETH");
    let source: Option<Ipv4Addr> = arguments.required("SRCIP");
    let destination_ethernet: Option<Ether> = arguments.required("DSTETH");
    let destination: Option<Ipv4Addr> = arguments.required("DSTIP");
    let number: Option<u32> = arguments.required("FLOWS");
    let size: Option<u32> = arguments.required("FLOWSIZE");
    let checksum = arguments.positional("CHECKSUM").unwrap_or(true);
    let active = arguments.positional("ACTIVE").unwrap_or(true);
    arguments.complete()?;
    let number = number?;
    if number == 0 || number > MOST_FLOWS {
        arguments.error(&format!("FLOWS: out of range, bound {}", if number == 0 { 1 } else { MOST_FLOWS }));
        return None;
    }
    let length = u32::try_from(length?).unwrap_or(0);
    if !setup.has_room("FLOWS", number as usize * size_of::<([u16; 2], u32)>()) {
        return None;
    }
    let ports = Ports::Random { flows: RefCell::default(), number, size: size? };
    let ethernet = [destination_ethernet?, source_ethernet?];
    make(arguments, (rate?, limit?, length), ethernet, [source?, destination?], (checksum, active), ports)
}

fn make(
    arguments: &mut Arguments<'_>,
    (rate, limit, length): (u32, i32, u32),
    ethernet: [Ether; 2],
    [source, destination]: [Ipv4Addr; 2],
    (checksum, active): (bool, bool),
    ports: Ports,
) -> Option<Rc<dyn Element>> {
    if rate > MOST {
        arguments.error(&format!("rate too large; lowered to {MOST}"));
        return None;
    }
    let made = UdpSource {
        rate: Rate::default(),
        limit: Cell::new(u32::try_from(limit).ok()),
        length: Cell::new(checked_length(arguments.at(), length)),
        ethernet,
        template: Template::new(header::UDP, source, Destination::Fixed(destination), 250),
        destination,
        checksum,
        ports,
        active: Cell::new(active),
        count: Cell::default(),
        first: Cell::default(),
        last: Cell::default(),
    };
    made.rate.set(rate);
    Some(Rc::new(made))
}

fn random_ports(at: At<'_>) -> [u16; 2] {
    [at.router.random_below(0xFFFF) as u16, at.router.random_below(0xFFFF) as u16]
}

impl UdpSource {
    fn ended(&self) -> bool {
        self.limit.get().is_some_and(|limit| self.count.get() >= limit)
    }
    fn next_ports(&self, at: At<'_>) -> [u16; 2] {
        match &self.ports {
            Ports::Stepped { first, step, .. } => first.map(|port| port.wrapping_add(step.get())),
            Ports::Random { flows, number, size } => {
                let chosen = at.router.random_below(*number) as usize;
                let mut flows = flows.borrow_mut();
                let Some((ports, sent)) = flows.get_mut(chosen) else { return [0; 2] };
                if *sent == *size {
                    *ports = random_ports(at);
                    *sent = 0;
                }
                *sent += 1;
                *ports
            }
        }
    }
    fn make(&self, at: At<'_>) -> Option<Packet> {
        let ports = self.next_ports(at);
        let mut packet = at.allocate((self.length.get() as usize).saturating_sub(ETHERNET))?;
        self.template.write(&mut packet, 0);
        write_udp(&mut packet, ports, self.checksum);
        packet.set_dst_ip(self.destination);
        if !packet.push_bytes(at.pool(), ETHERNET) {
            at.discard(packet);
            return None;
        }
        let data = packet.data_mut();
        header::put(data, 0, &self.ethernet[0].0);
        header::put(data, 6, &self.ethernet[1].0);
        header::set16(data, 12, 0x0800);
        Some(packet)
    }
    fn reset(&self) {
        self.count.set(0);
        self.first.set(0);
        self.last.set(0);
        if let Ports::Stepped { step, .. } = &self.ports {
            step.set(0);
        }
    }
    /// Packets a second from the first to the last, once the limit is reached.
    fn measured(&self) -> u64 {
        match self.last.get() {
            0 => 0,
            last => {
                let span = last.saturating_sub(self.first.get()).max(SECOND / 1000);
                (u128::from(self.count.get()) * u128::from(SECOND) / u128::from(span)) as u64
            }
        }
    }
}

impl Element for UdpSource {
    fn memory(&self) -> usize {
        match &self.ports {
            Ports::Stepped { .. } => 0,
            Ports::Random { flows, number, .. } => {
                flows.borrow().capacity().max(*number as usize) * size_of::<([u16; 2], u32)>()
            }
        }
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if let Ports::Random { flows, number, .. } = &self.ports {
            *flows.borrow_mut() = (0..*number).map(|_| (random_ports(at), 0)).collect();
        }
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if !self.active.get() || self.ended() || !self.rate.take(at.now()) {
            return None;
        }
        let packet = self.make(at)?;
        let count = self.count.get().wrapping_add(1);
        self.count.set(count);
        if count == 1 {
            self.first.set(at.steady());
        }
        if self.ended() {
            self.last.set(at.steady());
        }
        if let Ports::Stepped { step, interval, .. } = &self.ports
            && *interval > 0
            && count.is_multiple_of(*interval)
        {
            step.set(step.get().wrapping_add(1));
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("rate", |this: &Self, _| this.measured());
        handlers.write("rate", |this: &Self, _, value| {
            let rate = integer(value.trim()).filter(|rate| *rate >= 0);
            let rate = rate.ok_or("rate parameter must be integer >= 0")?;
            match u32::try_from(rate).ok().filter(|rate| *rate <= MOST) {
                Some(rate) => this.rate.set(rate),
                None => return Err(format!("rate too large; max is {MOST}")),
            }
            Ok(String::new())
        });
        handlers.button("reset", |this: &Self, _| this.reset());
        handlers
            .write("active", |this: &Self, _, value| {
                this.active.set(boolean(value.trim()).ok_or("active parameter must be boolean")?);
                if this.active.get() {
                    this.reset();
                }
                Ok(String::new())
            })
            .checkbox = true;
        handlers.write("limit", |this: &Self, _, value| {
            let limit = integer(value.trim()).ok_or("limit parameter must be integer >= 0")?;
            this.limit.set(u32::try_from(limit).ok());
            Ok(String::new())
        });
        if matches!(self.ports, Ports::Random { .. }) {
            handlers.read("length", |this: &Self, _| this.length.get());
            handlers.write("length", |this: &Self, at, value| {
                let length = integer(value.trim()).and_then(|length| u32::try_from(length).ok());
                let length = length.ok_or("length parameter must be integer")?;
                this.length.set(checked_length(at, length));
                Ok(String::new())
            });
        }
    }
}
