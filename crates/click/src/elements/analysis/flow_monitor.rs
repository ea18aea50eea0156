//! `FlowMonitor`: packets and bytes of each flow, in bounded memory.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::tables::{FlowTable, FlowTableConfig, Table};

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{SECOND, Span};

pub(super) const CLASSES: &[Class] = &[Class::new("FlowMonitor", configure).creates_nothing()];

/// The most flows that a configuration may ask for.
const MOST_FLOWS: u32 = 1 << 22;

/// Addresses in one word; ports and protocol in the other.
type Key = [u64; 2];

/// Packets and bytes of a flow.
#[derive(Clone, Copy, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

/// `FlowMonitor([CAPACITY, TIMEOUT])`: counts packets and bytes of each flow, by addresses, ports and protocol.
///
/// Bytes are those of IP. Packets without ports, and fragments but the first, count for port 0. A flow ends after
/// `TIMEOUT` without packets (300 s). When `CAPACITY` flows are known (65536), packets of further ones are `missed`.
struct FlowMonitor {
    flows: RefCell<FlowTable<Key, Traffic>>,
    capacity: u32,
    timeout: u64,
    packets: Cell<u64>,
    bytes: Cell<u64>,
    missed: Cell<u64>,
    strangers: Cell<u64>,
    /// Memory for the keys and lengths of the packets of a batch.
    scratch: RefCell<(Vec<Key>, Vec<u64>)>,
}

fn table(capacity: u32, timeout: u64, seed: u32) -> Option<FlowTable<Key, Traffic>> {
    let config = FlowTableConfig {
        idle_timeout: Some(timeout),
        seed: u64::from(seed),
        ..FlowTableConfig::new(usize::try_from(capacity).ok()?)
    };
    FlowTable::new(config).ok()
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let capacity: u32 = arguments.positional("CAPACITY").unwrap_or(1 << 16);
    let timeout: Span = arguments.keyword("TIMEOUT").unwrap_or(Span(300 * SECOND));
    arguments.complete()?;
    if !(1..=MOST_FLOWS).contains(&capacity) {
        setup.errors.error(&format!("CAPACITY must be 1 to {MOST_FLOWS}"));
        return None;
    }
    if !setup.has_room("CAPACITY", FlowTable::<Key, Traffic>::bytes_for(capacity as usize)) {
        return None;
    }
    let timeout = timeout.0.max(1);
    let Some(flows) = table(capacity, timeout, setup.at.router.random()) else {
        setup.errors.error("out of memory!");
        return None;
    };
    Some(Rc::new(FlowMonitor {
        flows: RefCell::new(flows),
        capacity,
        timeout,
        packets: Cell::default(),
        bytes: Cell::default(),
        missed: Cell::default(),
        strangers: Cell::default(),
        scratch: RefCell::default(),
    }))
}

/// A packet's flow, and the length that its header tells. `None`: it is not IPv4.
fn flow(packet: &Packet) -> Option<(Key, u64)> {
    let ip = packet.network().filter(|ip| ip.len() >= 20 && ip[0] >> 4 == 4)?;
    let number = |at: usize| u64::from(u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]));
    let protocol = u64::from(ip[9]);
    let is_first = ip[6] & 0x1F == 0 && ip[7] == 0;
    let has_ports = is_first && matches!(ip[9], 6 | 17 | 33 | 132 | 136);
    let ports = match ip.get(usize::from(ip[0] & 15) * 4..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(ports) if has_ports => u64::from(u32::from_be_bytes(*ports)),
        _ => 0,
    };
    let length = u64::from(u16::from_be_bytes([ip[2], ip[3]]));
    Some(([number(12) << 32 | number(16), ports << 8 | protocol], length))
}

impl FlowMonitor {
    fn count(&self, packet: &Packet, now: u64) {
        let Some((key, length)) = flow(packet) else {
            self.strangers.set(self.strangers.get() + 1);
            return;
        };
        self.packets.set(self.packets.get() + 1);
        self.bytes.set(self.bytes.get() + length);
        match self.flows.borrow_mut().lookup(key, now).or_insert_with(Traffic::default) {
            Some(traffic) => {
                traffic.packets += 1;
                traffic.bytes += length;
            }
            None => self.missed.set(self.missed.get() + 1),
        }
    }

    /// Counts the packets of a batch, whose flows are looked up together.
    fn count_all(&self, batch: &Batch, now: u64) {
        let (mut keys, mut lengths) = self.scratch.take();
        keys.clear();
        lengths.clear();
        for (key, length) in batch.iter().filter_map(flow) {
            keys.push(key);
            lengths.push(length);
        }
        self.strangers.set(self.strangers.get() + (batch.len() - keys.len()) as u64);
        self.packets.set(self.packets.get() + keys.len() as u64);
        self.bytes.set(self.bytes.get() + lengths.iter().sum::<u64>());
        let mut missed = 0;
        self.flows.borrow_mut().lookup_bulk(&keys, now, |at, entry| {
            match entry.or_insert_with(Traffic::default) {
                Some(traffic) => {
                    traffic.packets += 1;
                    traffic.bytes += lengths.get(at).copied().unwrap_or(0);
                }
                None => missed += 1,
            }
        });
        self.missed.set(self.missed.get() + missed);
        self.scratch.replace((keys, lengths));
    }

    /// A line for each flow, those of the most bytes first.
    fn text(&self, now: u64) -> String {
        let mut flows = self.flows.borrow_mut();
        flows.expire_all(now);
        let mut lines: Vec<(Key, Traffic)> = flows.iter().map(|(key, traffic)| (key, *traffic)).collect();
        lines.sort_unstable_by_key(|(key, traffic)| (std::cmp::Reverse(traffic.bytes), *key));
        let mut text = String::new();
        for ([addresses, rest], traffic) in lines {
            let address = |bits: u64| Ipv4Addr::from_bits((bits & 0xFFFF_FFFF) as u32);
            let (source, destination) = (address(addresses >> 32), address(addresses));
            let (source_port, port, protocol) = (rest >> 24 & 0xFFFF, rest >> 8 & 0xFFFF, rest & 0xFF);
            let Traffic { packets, bytes } = traffic;
            let _ =
                writeln!(text, "{source} {source_port} {destination} {port} {protocol} {packets} {bytes}");
        }
        text
    }
}

impl Element for FlowMonitor {
    fn memory(&self) -> usize {
        self.flows.borrow().bytes()
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        self.count(&packet, at.steady());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        self.count_all(batch, at.steady());
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, at| this.text(at.steady()));
        handlers.read("flows", |this: &Self, at| {
            let mut flows = this.flows.borrow_mut();
            flows.expire_all(at.steady());
            flows.len()
        });
        handlers.read("capacity", |this: &Self, _| this.capacity);
        handlers.read("count", |this: &Self, _| this.packets.get());
        handlers.read("byte_count", |this: &Self, _| this.bytes.get());
        handlers.read("missed", |this: &Self, _| this.missed.get());
        handlers.read("strangers", |this: &Self, _| this.strangers.get());
        handlers.button("reset", |this: &Self, at| {
            if let Some(fresh) = table(this.capacity, this.timeout, at.router.random()) {
                *this.flows.borrow_mut() = fresh;
            }
            for counter in [&this.packets, &this.bytes, &this.missed, &this.strangers] {
                counter.set(0);
            }
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before)
            && before.capacity == self.capacity
            && before.timeout == self.timeout
        {
            self.flows.swap(&before.flows);
            self.packets.set(before.packets.get());
            self.bytes.set(before.bytes.get());
            self.missed.set(before.missed.get());
            self.strangers.set(before.strangers.get());
        }
    }
}
