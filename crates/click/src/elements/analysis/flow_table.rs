//! Flows between pairs of hosts, numbered in the order of their begin, and fragments that wait for their ports.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use netbricks_core::buffer::Packet;

use crate::hash::{Keyed, KeyedMap};
use crate::packet::{Annotated, place};

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// The most flows of a table.
const MOST_FLOWS: usize = 1 << 20;
/// The most packets that wait in a table.
const MOST_WAITING: usize = 1 << 10;

/// Two addresses, the lower first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hosts {
    pub(super) low: u32,
    pub(super) high: u32,
}

impl Hash for Hosts {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.low) << 32 | u64::from(self.high));
    }
}

/// A flow: all packets between two addresses and ports, until it ends or falls silent.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Ports of the lower and of the higher address.
    pub(super) ports: (u16, u16),
    pub(super) aggregate: u32,
    pub(super) first: i64,
    last: i64,
    /// Directions that have ended: bits 0 and 1.
    over: u8,
    /// The first packet came from the higher address.
    pub(super) is_reverse: bool,
    /// Packets by direction.
    pub(super) packets: [u32; 2],
    /// Where in its file the first packet lies, if that is known.
    pub(super) file_place: u64,
}

impl Flow {
    /// From the first to the last packet (ns).
    pub(super) fn duration(&self) -> i64 {
        self.last.wrapping_sub(self.first)
    }
}

/// Seconds of silence after which flows end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// A flow that has not said its end.
    pub(super) active: i64,
    /// A flow that both sides have ended.
    pub(super) done: i64,
    /// How long fragments wait.
    pub(super) fragment: i64,
}

/// Flows of two hosts. Most hosts have one at a time: it lies here, and no packet looks elsewhere.
#[derive(Default)]
struct FlowList {
    first: Option<Flow>,
    others: VecDeque<Flow>,
}

impl FlowList {
    #[inline(always)]
    fn position(&self, is: impl Fn(&Flow) -> bool) -> Option<usize> {
        if is(self.first.as_ref()?) {
            return Some(0);
        }
        self.others.iter().position(is).map(|place| place + 1)
    }
    #[inline(always)]
    fn get_mut(&mut self, place: usize) -> Option<&mut Flow> {
        match place.checked_sub(1) {
            None => self.first.as_mut(),
            Some(place) => self.others.get_mut(place),
        }
    }
    fn remove(&mut self, place: usize) -> Option<Flow> {
        match place.checked_sub(1) {
            None => std::mem::replace(&mut self.first, self.others.pop_front()),
            Some(place) => self.others.remove(place),
        }
    }
    fn push_front(&mut self, flow: Flow) {
        if let Some(before) = self.first.replace(flow) {
            self.others.push_front(before);
        }
    }
    fn retain(&mut self, mut stays: impl FnMut(&Flow) -> bool) {
        let goes = self.first.as_ref().is_some_and(|first| !stays(first));
        self.others.retain(stays);
        if goes {
            self.first = self.others.pop_front();
        }
    }
    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

#[derive(Default)]
struct Pair {
    /// The flow of the last packet comes first.
    flows: FlowList,
    waiting: VecDeque<Packet>,
}

/// Headers of a packet, as far as flows are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) hosts: Hosts,
    /// Identification of the IP header.
    pub(super) id: u16,
    pub(super) is_fragment: bool,
    pub(super) is_first: bool,
    /// Ports of the lower and the higher address, if they are there.
    pub(super) ports: Option<(u16, u16)>,
    /// Paint without what the flow's first direction adds: 1 if it goes from the higher address, 2 for ICMP errors.
    pub(super) paint: u8,
    /// Whether it is TCP.
    pub(super) is_tcp: bool,
    /// TCP's flags, if they are there.
    pub(super) flags: Option<u8>,
}

/// Fate of a packet.
pub(super) enum Outcome {
    Pass(Packet),
    Drop(Packet),
    /// It waits, or left with others.
    Taken,
}

/// Changes to flows and packets while one packet is looked at.
#[derive(Default)]
pub(super) struct Events {
    /// Flows that ended.
    pub(super) ended: Vec<(Hosts, Flow)>,
    /// Packets that need wait no longer.
    pub(super) released: Vec<Packet>,
    /// Packets whose ports will not be known.
    pub(super) lost: Vec<Packet>,
}

/// Flows of one protocol.
pub(super) struct FlowTable {
    pairs: KeyedMap<Hosts, Pair>,
    timeouts: Timeouts,
    flows: usize,
    waiting: usize,
    /// Reads a packet's headers again when it leaves.
    headers: fn(&Packet) -> Option<Headers>,
}

impl FlowTable {
    /// A table without flows; the seed keys its hash.
    pub(super) fn new(timeouts: Timeouts, headers: fn(&Packet) -> Option<Headers>, seed: u64) -> Self {
        Self { pairs: KeyedMap::with_hasher(Keyed::new(seed)), timeouts, flows: 0, waiting: 0, headers }
    }

    /// Bytes that the table takes now.
    pub(super) fn memory(&self) -> usize {
        self.pairs.capacity() * size_of::<(Hosts, Pair)>() + self.flows * size_of::<Flow>()
    }

    /// Annotates a packet of the flow that its hosts' last packet had, or of another that goes on.
    ///
    /// `false` where more is to be done than to note the packet: nothing has happened then.
    #[inline]
    pub(super) fn pass(&mut self, packet: &mut Packet, headers: &Headers, keeps_fragments: bool) -> bool {
        let Some(ports) = headers.ports.filter(|_| headers.is_first) else { return false };
        if keeps_fragments && headers.is_fragment {
            return false;
        }
        let Some(pair) = self.pairs.get_mut(&headers.hosts).filter(|pair| pair.waiting.is_empty()) else {
            return false;
        };
        let Some(found) = pair.flows.position(|flow| flow.ports == ports) else { return false };
        let Some(flow) = pair.flows.get_mut(found) else { return false };
        let time = packet.timestamp() as i64;
        let age = time.div_euclid(SECOND) - flow.last.div_euclid(SECOND);
        let limit = if flow.over == 3 { self.timeouts.done } else { self.timeouts.active };
        if age > limit || flow.over == 3 && headers.flags.is_some_and(|flags| flags & 2 != 0) {
            return false;
        }
        packet.set_anno_u32(place::AGGREGATE, flow.aggregate);
        packet.set_anno_u8(place::PAINT, headers.paint ^ u8::from(flow.is_reverse));
        flow.note(packet, headers);
        if found > 0
            && let Some(flow) = pair.flows.remove(found)
        {
            pair.flows.push_front(flow);
        }
        true
    }

    /// Finds a packet's flow and annotates it. `place` tells where in its file the packet lies.
    pub(super) fn take(
        &mut self,
        mut packet: Packet,
        headers: &Headers,
        keeps_fragments: bool,
        next: &mut u32,
        place: &dyn Fn() -> u64,
        events: &mut Events,
    ) -> Outcome {
        let time = packet.timestamp() as i64;
        let (mut aggregate, mut paint) = (0, headers.paint);
        let has_flow = match headers.ports {
            Some(ports) if headers.is_first => {
                let Some(flow) = self.find(headers, ports, time, next, place, events) else {
                    return Outcome::Drop(packet);
                };
                aggregate = flow.aggregate;
                paint ^= u8::from(flow.is_reverse);
                true
            }
            None if headers.is_first => return Outcome::Drop(packet),
            _ => false,
        };
        packet.set_anno_u32(place::AGGREGATE, aggregate);
        packet.set_anno_u8(place::PAINT, paint);
        let someone_waits = self.pairs.get(&headers.hosts).is_some_and(|pair| !pair.waiting.is_empty());
        if keeps_fragments && headers.is_fragment || someone_waits {
            self.wait(packet, headers.hosts, time, events);
            return Outcome::Taken;
        }
        if !has_flow {
            return Outcome::Drop(packet);
        }
        if let Some(flow) = self.pairs.get_mut(&headers.hosts).and_then(|pair| pair.flows.get_mut(0)) {
            flow.note(&packet, headers);
        }
        Outcome::Pass(packet)
    }

    /// The packet's flow, which comes first then. `None` when there is no room for another.
    fn find(
        &mut self,
        headers: &Headers,
        ports: (u16, u16),
        time: i64,
        next: &mut u32,
        place: &dyn Fn() -> u64,
        events: &mut Events,
    ) -> Option<&mut Flow> {
        let timeouts = self.timeouts;
        let known = self.pairs.get(&headers.hosts).is_some_and(|pair| pair.knows(ports));
        if !known && self.flows >= MOST_FLOWS {
            return None;
        }
        let pair = self.pairs.entry(headers.hosts).or_default();
        let mut begin = || {
            let aggregate = *next;
            *next = next.wrapping_add(1);
            Flow {
                ports,
                aggregate,
                first: time,
                last: time,
                over: 0,
                is_reverse: headers.paint & 1 != 0,
                packets: [0; 2],
                file_place: place(),
            }
        };
        let flow = match pair.flows.position(|flow| flow.ports == ports) {
            Some(found) => {
                let mut flow = pair.flows.remove(found)?;
                let age = time.div_euclid(SECOND) - flow.last.div_euclid(SECOND);
                let limit = if flow.over == 3 { timeouts.done } else { timeouts.active };
                let begins_again = flow.over == 3 && headers.flags.is_some_and(|flags| flags & 2 != 0);
                if age > limit || begins_again {
                    events.ended.push((headers.hosts, flow));
                    flow = begin();
                }
                flow
            }
            None => {
                self.flows += 1;
                begin()
            }
        };
        pair.flows.push_front(flow);
        pair.flows.get_mut(0)
    }

    /// Has a packet wait behind those of the same hosts, and releases those that have waited long enough.
    fn wait(&mut self, packet: Packet, hosts: Hosts, time: i64, events: &mut Events) {
        let pair = self.pairs.entry(hosts).or_default();
        pair.waiting.push_back(packet);
        self.waiting += 1;
        let limit = time.div_euclid(SECOND) - self.timeouts.fragment;
        while pair.is_due(limit, self.headers) || self.waiting > MOST_WAITING && !pair.waiting.is_empty() {
            pair.release(self.headers, events);
            self.waiting -= 1;
        }
    }

    /// Ends flows that were silent for long, or all, and releases packets that need wait no longer.
    pub(super) fn reap(&mut self, now: i64, all: bool, events: &mut Events) {
        let mut hosts: Vec<Hosts> = self.pairs.keys().copied().collect();
        hosts.sort_unstable();
        for hosts in hosts {
            let Some(pair) = self.pairs.get_mut(&hosts) else { continue };
            while !pair.waiting.is_empty() && (all || pair.is_due(now - self.timeouts.fragment, self.headers))
            {
                pair.release(self.headers, events);
                self.waiting -= 1;
            }
            if !pair.waiting.is_empty() {
                continue;
            }
            let timeouts = self.timeouts;
            let before = pair.flows.len();
            pair.flows.retain(|flow| {
                let limit = if flow.over == 3 { timeouts.done } else { timeouts.active };
                let ends = all || flow.last.div_euclid(SECOND) < now - limit;
                if ends {
                    events.ended.push((hosts, flow.clone()));
                }
                !ends
            });
            self.flows -= before - pair.flows.len();
            if pair.flows.len() == 0 {
                self.pairs.remove(&hosts);
            }
        }
    }

    /// Ends all flows; packets that wait are lost.
    pub(super) fn end(&mut self, events: &mut Events) {
        for pair in self.pairs.values_mut() {
            events.lost.extend(pair.waiting.drain(..));
        }
        self.waiting = 0;
        self.reap(0, true, events);
    }
}

impl Flow {
    /// Notes a packet that passes: its time, and whether it ends the flow.
    fn note(&mut self, packet: &Packet, headers: &Headers) {
        self.last = packet.timestamp() as i64;
        let paint = packet.paint();
        if paint > 1 {
            return;
        }
        if let Some(flags) = headers.flags.filter(|_| headers.is_first) {
            if flags & 4 != 0 {
                self.over = 3;
            } else if flags & 1 != 0 {
                self.over |= 1 << paint;
            } else if flags & 2 != 0 {
                self.over = 0;
            }
        }
        let count = &mut self.packets[usize::from(paint)];
        *count = count.wrapping_add(1);
    }
}

impl Pair {
    fn knows(&self, ports: (u16, u16)) -> bool {
        self.flows.position(|flow| flow.ports == ports).is_some()
    }

    /// Whether the packet in front has waited since before a time (s), or is no fragment.
    fn is_due(&self, limit: i64, headers: fn(&Packet) -> Option<Headers>) -> bool {
        self.waiting.front().is_some_and(|packet| {
            let time = packet.timestamp() as i64;
            time.div_euclid(SECOND) < limit || !headers(packet).is_some_and(|headers| headers.is_fragment)
        })
    }

    /// Releases the packet in front with the flow of the fragments of the same IP packet.
    fn release(&mut self, read: fn(&Packet) -> Option<Headers>, events: &mut Events) {
        let Some(mut head) = self.waiting.pop_front() else { return };
        let Some(headers) = read(&head) else {
            events.lost.push(head);
            return;
        };
        let same = |packet: &Packet| read(packet).is_some_and(|other| other.id == headers.id);
        let aggregate = head.anno_u32(place::AGGREGATE);
        if aggregate != 0 {
            let paint = head.paint();
            for packet in self.waiting.iter_mut().filter(|packet| same(packet)) {
                packet.set_anno_u32(place::AGGREGATE, aggregate);
                packet.set_anno_u8(place::PAINT, paint);
            }
        } else {
            let first =
                self.waiting.iter().find(|packet| packet.anno_u32(place::AGGREGATE) != 0 && same(packet));
            let Some(first) = first else {
                events.lost.push(head);
                return;
            };
            let (aggregate, paint) = (first.anno_u32(place::AGGREGATE), first.paint());
            head.set_anno_u32(place::AGGREGATE, aggregate);
            head.set_anno_u8(place::PAINT, paint);
        }
        let aggregate = head.anno_u32(place::AGGREGATE);
        if let Some(found) = self.flows.position(|flow| flow.aggregate == aggregate)
            && let Some(mut flow) = self.flows.remove(found)
        {
            flow.note(&head, &headers);
            self.flows.push_front(flow);
        }
        events.released.push(head);
    }
}
