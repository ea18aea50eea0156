//! The switch between instances and devices: by MAC address, from a static table or learnt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::{Context, DropReason};

use crate::hash::{Keyed, KeyedMap};
use crate::node::edge_of;
use crate::value::{Ether, SECOND};

use super::exchange::Exchange;
use super::shared::Crossing;

/// A learnt address is forgotten after this time without a packet from it (ns).
const FORGOTTEN: u64 = 300 * SECOND;

/// Where a port of the switch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To a device, by its number.
    Device(usize),
    /// To an instance of this worker, by its number.
    Instance(usize),
    /// To an instance of another worker, by the worker's number.
    Elsewhere(usize),
}

/// Packets that went over a port of the switch.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct PortCounts {
    /// Packets that the port's owner sent.
    pub sent: u64,
    /// Packets that came to the port's owner.
    pub received: u64,
    /// Packets that found the ring full.
    pub lost: u64,
}

/// A port of the switch.
pub(super) struct SwitchPort {
    pub name: String,
    pub end: End,
    pub mac: Option<Ether>,
    pub ring: VecDeque<Packet>,
    pub capacity: usize,
    pub counts: PortCounts,
    /// Tells the port from one that had its number before.
    pub generation: u64,
    /// Packets for it that found no room on their way from another worker.
    pub lost_between: Arc<AtomicU64>,
}

impl SwitchPort {
    /// A port to a device.
    pub(super) fn device(name: String, number: usize) -> Self {
        Self {
            name,
            end: End::Device(number),
            mac: None,
            ring: VecDeque::new(),
            capacity: 0,
            counts: PortCounts::default(),
            generation: 0,
            lost_between: Arc::default(),
        }
    }
    /// The counts of its packets, with those that other workers lost on the way.
    pub(super) fn counts(&self) -> PortCounts {
        PortCounts { lost: self.counts.lost + self.lost_between.load(Ordering::Relaxed), ..self.counts }
    }
    /// Whether this worker tells about the port: its instance is here, or it leads to a device.
    fn is_told_here(&self) -> bool {
        !matches!(self.end, End::Elsewhere(_))
    }
}

/// Where an address is.
#[derive(Clone, Copy)]
struct Known {
    port: usize,
    /// When it was seen last (ns), for an address that was learnt.
    seen: Option<u64>,
}

/// The switch.
pub(super) struct Switch {
    ports: Vec<Option<SwitchPort>>,
    /// The way to ports of other workers, where there are some.
    pub(super) exchange: Option<Exchange>,
    addresses: KeyedMap<Ether, Known>,
    learning: bool,
    most_learnt: usize,
    learnt: usize,
    /// When old addresses may be looked for again (ns).
    swept_next: u64,
    /// How often they were looked for.
    sweeps: u64,
    flooded: u64,
    /// Packets that wait in rings.
    waiting: u64,
    /// Instances whose rings got packets.
    woken: Vec<usize>,
}

/// The switch as its handler `switch show` tells it.
#[derive(serde::Serialize)]
pub(super) struct SwitchShown {
    learning: bool,
    flooded: u64,
    sweeps: u64,
    ports: Vec<PortShown>,
    addresses: Vec<AddressShown>,
}

#[derive(serde::Serialize)]
struct PortShown {
    name: String,
    mac: Option<String>,
    ring: usize,
    waiting: usize,
    #[serde(flatten)]
    counts: PortCounts,
}

#[derive(serde::Serialize)]
struct AddressShown {
    mac: String,
    port: String,
    learnt: bool,
}

impl Switch {
    pub(super) fn new(learning: bool, most_learnt: usize, seed: u64, exchange: Option<Exchange>) -> Self {
        Self {
            ports: Vec::new(),
            exchange,
            addresses: KeyedMap::with_hasher(Keyed::new(seed)),
            learning,
            most_learnt,
            learnt: 0,
            swept_next: 0,
            sweeps: 0,
            flooded: 0,
            waiting: 0,
            woken: Vec::new(),
        }
    }

    /// Adds a port of this number.
    pub(super) fn add(&mut self, number: usize, port: SwitchPort) {
        if number >= self.ports.len() {
            self.ports.resize_with(number + 1, || None);
        }
        if let Some(mac) = port.mac {
            self.map(mac, number);
        }
        self.ports[number] = Some(port);
    }

    /// Makes an address lead to a port, for good.
    pub(super) fn map(&mut self, mac: Ether, port: usize) {
        if let Some(Known { seen: Some(_), .. }) = self.addresses.insert(mac, Known { port, seen: None }) {
            self.learnt -= 1;
        }
    }

    /// Removes a port. Returns the packets that wait in its ring.
    pub(super) fn remove(&mut self, number: usize) -> VecDeque<Packet> {
        let Some(port) = self.ports.get_mut(number).and_then(Option::take) else { return VecDeque::new() };
        self.addresses.retain(|_, known| known.port != number);
        self.learnt = self.addresses.values().filter(|known| known.seen.is_some()).count();
        self.waiting -= port.ring.len() as u64;
        port.ring
    }

    pub(super) fn port(&self, number: usize) -> Option<&SwitchPort> {
        self.ports.get(number).and_then(Option::as_ref)
    }
    pub(super) fn port_mut(&mut self, number: usize) -> Option<&mut SwitchPort> {
        self.ports.get_mut(number).and_then(Option::as_mut)
    }
    fn name(&self, number: usize) -> &str {
        self.port(number).map_or("", |port| &port.name)
    }
    pub(super) fn set_learning(&mut self, learning: bool) {
        self.learning = learning;
        if !learning {
            self.addresses.retain(|_, known| known.seen.is_none());
            self.learnt = 0;
        }
    }
    /// Packets that wait in rings, or on their way to other workers.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting + self.exchange.as_ref().map_or(0, Exchange::held)
    }
    /// Moves packets from a port's ring to a batch, which has at most `most` then.
    pub(super) fn take_from_ring(&mut self, number: usize, batch: &mut Batch, most: usize) {
        let Some(port) = self.ports.get_mut(number).and_then(Option::as_mut) else { return };
        while batch.len() < most
            && let Some(packet) = port.ring.pop_front()
        {
            self.waiting -= 1;
            if let Err(packet) = batch.push(packet) {
                self.waiting += 1;
                port.ring.push_front(packet);
                break;
            }
        }
    }
    /// The instances whose rings got packets since the last call.
    pub(super) fn take_woken(&mut self, to: &mut Vec<usize>) {
        to.append(&mut self.woken);
    }

    fn learn(&mut self, mac: Ether, port: usize, now: u64) {
        if mac.is_group() {
            return;
        }
        match self.addresses.get_mut(&mac) {
            Some(Known { seen: None, .. }) => (),
            Some(known) => *known = Known { port, seen: Some(now) },
            None => {
                // A full table is swept once a second at most, so that many new addresses cost little.
                if self.learnt >= self.most_learnt && now >= self.swept_next {
                    self.swept_next = now.saturating_add(SECOND);
                    self.sweeps += 1;
                    let old =
                        |known: &Known| known.seen.is_some_and(|seen| now.saturating_sub(seen) > FORGOTTEN);
                    self.addresses.retain(|_, known| !old(known));
                    self.learnt = self.addresses.values().filter(|known| known.seen.is_some()).count();
                }
                if self.learnt < self.most_learnt {
                    self.addresses.insert(mac, Known { port, seen: Some(now) });
                    self.learnt += 1;
                }
            }
        }
    }

    /// Passes a packet from a port on to the port of its destination, or to all others.
    pub(super) fn forward(&mut self, from: usize, packet: Packet, cx: &mut Context) {
        if let Some(port) = self.port_mut(from) {
            port.counts.sent += 1;
        }
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *packet.data() else {
            cx.drop_packet(packet, DropReason::Malformed);
            return;
        };
        if self.learning {
            self.learn(Ether([s0, s1, s2, s3, s4, s5]), from, cx.now());
        }
        let destination = Ether([d0, d1, d2, d3, d4, d5]);
        let known = if destination.is_group() { None } else { self.addresses.get(&destination) };
        let old = |known: &Known| known.seen.is_some_and(|seen| cx.now().saturating_sub(seen) > FORGOTTEN);
        match known.filter(|known| !old(known)).map(|known| known.port) {
            Some(to) if to == from => cx.drop_packet(packet, DropReason::Denied),
            Some(to) => self.deliver(from, to, packet, cx),
            None => self.flood(from, packet, cx),
        }
    }

    fn flood(&mut self, from: usize, packet: Packet, cx: &mut Context) {
        self.flooded += 1;
        let mut last = None;
        for to in 0..self.ports.len() {
            if to == from || self.ports[to].is_none() {
                continue;
            }
            if let Some(before) = last.replace(to) {
                match packet.try_copy() {
                    Some(copy) => {
                        cx.created(&copy);
                        self.deliver(from, before, copy, cx);
                    }
                    None => {
                        if let Some(port) = self.port_mut(before) {
                            port.counts.lost += 1;
                        }
                    }
                }
            }
        }
        match last {
            Some(to) => self.deliver(from, to, packet, cx),
            None => cx.drop_packet(packet, DropReason::Unconnected),
        }
    }

    /// Whether this is the port for which a packet set out from another worker.
    pub(super) fn is_for(&self, crossing: &Crossing) -> bool {
        self.port(crossing.to).is_some_and(|port| port.generation == crossing.generation)
    }

    /// Delivers a packet that came from another worker.
    pub(super) fn arrive(&mut self, crossing: Crossing, cx: &mut Context) {
        let Crossing { packet, from, to, .. } = crossing;
        if self.learning
            && self.port(from).is_some()
            && let [_, _, _, _, _, _, s0, s1, s2, s3, s4, s5, ..] = *packet.data()
        {
            self.learn(Ether([s0, s1, s2, s3, s4, s5]), from, cx.now());
        }
        self.deliver(from, to, packet, cx);
    }

    fn deliver(&mut self, from: usize, to: usize, packet: Packet, cx: &mut Context) {
        let Some(port) = self.ports.get_mut(to).and_then(Option::as_mut) else {
            cx.drop_packet(packet, DropReason::Unconnected);
            return;
        };
        match port.end {
            End::Elsewhere(worker) => {
                let crossing = Crossing { packet, from, to, generation: port.generation };
                let put = match &mut self.exchange {
                    Some(exchange) => exchange.put(worker, crossing),
                    None => Err(crossing.packet),
                };
                if let Err(packet) = put {
                    port.lost_between.fetch_add(1, Ordering::Relaxed);
                    cx.drop_packet(packet, DropReason::RingFull);
                }
            }
            End::Device(number) => {
                port.counts.received += 1;
                cx.emit(edge_of(number), packet);
            }
            End::Instance(instance) => {
                if port.ring.len() >= port.capacity {
                    port.counts.lost += 1;
                    cx.drop_packet(packet, DropReason::QueueFull);
                    return;
                }
                port.counts.received += 1;
                port.ring.push_back(packet);
                self.waiting += 1;
                if port.ring.len() == 1 {
                    self.woken.push(instance);
                }
            }
        }
    }

    /// Drops what waits in all rings.
    pub(super) fn drain(&mut self, cx: &mut Context) {
        for port in self.ports.iter_mut().flatten() {
            for packet in port.ring.drain(..) {
                cx.drop_packet(packet, DropReason::Drained);
            }
        }
        self.waiting = 0;
    }

    pub(super) fn show(&self) -> SwitchShown {
        let mut addresses: Vec<(&Ether, &Known)> = self.addresses.iter().collect();
        addresses.sort_unstable_by_key(|(mac, _)| **mac);
        let port = |port: &SwitchPort| PortShown {
            name: port.name.clone(),
            mac: port.mac.map(|mac| mac.to_string()),
            ring: port.capacity,
            waiting: port.ring.len(),
            counts: port.counts(),
        };
        let address = |(mac, known): (&Ether, &Known)| AddressShown {
            mac: mac.to_string(),
            port: self.name(known.port).to_owned(),
            learnt: known.seen.is_some(),
        };
        SwitchShown {
            learning: self.learning,
            flooded: self.flooded,
            sweeps: self.sweeps,
            ports: self.ports.iter().flatten().filter(|port| port.is_told_here()).map(port).collect(),
            addresses: addresses.into_iter().map(address).collect(),
        }
    }
}
