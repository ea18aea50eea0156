//! Ports without a device.
//!
//! Packets sent on one memory port arrive on its peer, in the same process and perhaps on another core. Tests
//! hold the far end themselves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use netbricks_buffer::{BATCH, Batch, Packet, Pool};
use netbricks_core::{Context, InvalidSetting, Poll, Settings};

use crate::arrival::Arrivals;
use crate::driver::{OpenContext, PortDriver, QueueDivision};
use crate::node::{count_received, count_sent};
use crate::port::{Capabilities, Counters, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::steer::{Rules, Unsteerable};
use crate::taken::Taken;

netbricks_core::settings! {
    /// The settings of a memory port.
    #[derive(Clone, Debug)]
    pub struct MemorySettings {
        /// The memory port at the other end: each of the two receives the packets that the other sends.
        ///
        /// A port that is its own peer receives its own packets.
        peer: Option<String> = unset "the port itself", "text, a port's name";
        /// The most packets that wait on each queue of each direction.
        ///
        /// Packets that do not fit are retried, then dropped as transmit-full.
        capacity: usize = 1024, "whole number, packets";
    }
}

impl Settings for MemorySettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        match self.capacity {
            1..=1_048_576 => Ok(()),
            found => Err(InvalidSetting {
                key: "capacity",
                problem: format!("must be 1 to 1048576, found {found}"),
            }),
        }
    }
}

/// One direction of one queue.
#[derive(Debug)]
struct Wire {
    packets: Mutex<VecDeque<Packet>>,
    capacity: usize,
    /// No more packets will be put in.
    ended: AtomicBool,
}

impl Wire {
    fn new(capacity: usize) -> Self {
        let packets = Mutex::new(VecDeque::with_capacity(capacity));
        Self { packets, capacity, ended: AtomicBool::new(false) }
    }
    fn packets(&self) -> std::sync::MutexGuard<'_, VecDeque<Packet>> {
        // A queue is consistent between any two operations, so a panic elsewhere leaves it usable.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn push(&self, packet: Packet) -> Result<(), Packet> {
        let mut packets = self.packets();
        if packets.len() == self.capacity {
            return Err(packet);
        }
        packets.push_back(packet);
        Ok(())
    }
}

/// One direction: a wire for each queue, and the rules by which packets come to them.
#[derive(Debug)]
struct Direction {
    wires: Vec<Wire>,
    rules: OnceLock<Rules>,
}

impl Direction {
    fn new(queues: usize, capacity: usize) -> Arc<Self> {
        let wires = (0..queues).map(|_| Wire::new(capacity)).collect();
        Arc::new(Self { wires, rules: OnceLock::new() })
    }
    /// The queue at which a frame arrives after it was put on queue `sent`.
    fn queue_of(&self, frame: &[u8], sent: usize) -> usize {
        self.rules.get().and_then(|rules| rules.queue_of(frame)).map_or(sent, usize::from)
    }
}

/// A memory port.
#[derive(Debug)]
pub struct Memory {
    name: String,
    arriving: Arc<Direction>,
    leaving: Arc<Direction>,
    counters: Vec<Arc<Counters>>,
    taken: Taken,
    drives_clock: bool,
}

/// The far end of a memory port, for tests.
///
/// Packets that are pushed here arrive at the port; packets that the port sends are taken here.
#[derive(Clone, Debug)]
pub struct FarEnd {
    pool: Pool,
    arriving: Arc<Direction>,
    leaving: Arc<Direction>,
}

impl Memory {
    /// A port with `queues` queues in each direction, of up to `capacity` packets each, and its far end.
    ///
    /// The far end takes frames for pushed packets from `pool`. Packets that are pushed with a time drive the
    /// graph's clock.
    pub fn new(name: &str, queues: usize, capacity: usize, pool: &Pool) -> (Self, FarEnd) {
        let wires = || Direction::new(queues, capacity);
        let far = FarEnd { pool: pool.clone(), arriving: wires(), leaving: wires() };
        let port = Self { drives_clock: true, ..Self::over(name, far.arriving.clone(), far.leaving.clone()) };
        (port, far)
    }

    /// Two ports that are peers of each other.
    pub fn pair((first, second): (&str, &str), queues: usize, capacity: usize) -> (Self, Self) {
        let (there, back) = (Direction::new(queues, capacity), Direction::new(queues, capacity));
        (Self::over(first, back.clone(), there.clone()), Self::over(second, there, back))
    }

    fn over(name: &str, arriving: Arc<Direction>, leaving: Arc<Direction>) -> Self {
        let counters = arriving.wires.iter().map(|_| Arc::default()).collect();
        let taken = Taken::new(arriving.wires.len(), leaving.wires.len());
        Self { name: name.into(), arriving, leaving, counters, taken, drives_clock: false }
    }
}

impl FarEnd {
    /// Lets a frame arrive without a time, on this queue or where the port's rules send it.
    ///
    /// `false` when the queue is full or no buffer is free.
    pub fn push(&self, queue: usize, frame: &[u8]) -> bool {
        self.push_at(queue, frame, 0)
    }
    /// Lets a frame arrive at a time (ns). The time drives the graph's clock when it is not 0.
    pub fn push_at(&self, queue: usize, frame: &[u8], time: u64) -> bool {
        let Some(mut packet) = self.pool.packet(frame) else { return false };
        packet.set_received_at(time);
        self.push_packet(queue, packet).is_ok()
    }
    /// Lets a packet arrive.
    ///
    /// # Errors
    /// Gives the packet back when the queue is full.
    pub fn push_packet(&self, queue: usize, packet: Packet) -> Result<(), Packet> {
        let queue = self.arriving.queue_of(packet.data(), queue);
        self.arriving.wires[queue].push(packet)
    }
    /// Ends the arrivals: the receive queues end when they are empty.
    pub fn end(&self) {
        self.arriving.wires.iter().for_each(|wire| wire.ended.store(true, Ordering::Release));
    }
    /// The next packet that the port sent on a queue.
    pub fn pop(&self, queue: usize) -> Option<Packet> {
        self.leaving.wires[queue].packets().pop_front()
    }
    /// The bytes of all packets that the port sent on a queue since the last call.
    pub fn frames(&self, queue: usize) -> Vec<Vec<u8>> {
        self.leaving.wires[queue].packets().drain(..).map(|packet| packet.data().to_vec()).collect()
    }
}

/// Ports that wait for their peers, by the names of both.
type Links = Mutex<BTreeMap<(String, String), (Weak<Direction>, Weak<Direction>)>>;

/// The driver `memory`.
#[derive(Default)]
pub(crate) struct MemoryDriver {
    links: Links,
}

impl PortDriver for MemoryDriver {
    type Settings = MemorySettings;
    const NAME: &'static str = "memory";
    const SUMMARY: &'static str =
        "Joins two ports of the same run, or a port with itself, through bounded queues in memory.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;

    fn open(
        &self,
        name: &str,
        settings: &MemorySettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        let peer = settings.peer.as_deref().unwrap_or(name);
        let wires = || Direction::new(cx.queues.max(1), settings.capacity);
        if peer == name {
            let wires = wires();
            return Ok(Box::new(Memory::over(name, wires.clone(), wires)));
        }
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = (name.to_owned(), peer.to_owned());
        let theirs = (peer.to_owned(), name.to_owned());
        // The peer that was opened first left both directions here; they are valid while it lives.
        if let Some((there, back)) = links.remove(&theirs)
            && let (Some(there), Some(back)) = (there.upgrade(), back.upgrade())
        {
            return Ok(Box::new(Memory::over(name, there, back)));
        }
        let (there, back) = (wires(), wires());
        links.insert(ours, (Arc::downgrade(&there), Arc::downgrade(&back)));
        Ok(Box::new(Memory::over(name, back, there)))
    }
}

impl Port for Memory {
    fn driver(&self) -> &'static str {
        "memory"
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> usize {
        65_535
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            receive_queues: self.arriving.wires.len(),
            transmit_queues: self.leaving.wires.len(),
            // Packets keep their metadata on the way, so the far side knows the work that is left.
            checksum_offload: true,
            segmentation_offload: true,
            drives_clock: self.drives_clock,
            ..Capabilities::default()
        }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }
    fn steer(&mut self, rules: &Rules) -> Result<(), Unsteerable> {
        rules.check_queues(self.arriving.wires.len())?;
        if self.taken.is_any() {
            return Err(Unsteerable::Taken);
        }
        self.arriving.rules.set(rules.clone()).map_err(|_| Unsteerable::Taken)
    }
    fn rules(&self) -> Rules {
        self.arriving.rules.get().cloned().unwrap_or_default()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.name, queue)?;
        Ok(Box::new(Receive {
            from: self.arriving.clone(),
            queue,
            counters: self.counters[queue].clone(),
            arrivals: Arrivals::default(),
            drives_clock: self.drives_clock,
        }))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.name, queue)?;
        Ok(Box::new(Transmit { to: self.leaving.clone(), queue, counters: self.counters[queue].clone() }))
    }
}

struct Receive {
    from: Arc<Direction>,
    queue: usize,
    counters: Arc<Counters>,
    arrivals: Arrivals,
    drives_clock: bool,
}

impl ReceiveQueue for Receive {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let wire = &self.from.wires[self.queue];
        let ended = wire.ended.load(Ordering::Acquire);
        let mut refused = false;
        self.arrivals.begin(cx);
        {
            let mut packets = wire.packets();
            while batch.len() < cx.burst()
                && let Some(front) = packets.front()
            {
                let time = if self.drives_clock { front.received_at() } else { 0 };
                if time != 0 && !self.arrivals.admit(time, batch, cx) {
                    refused = true;
                    break;
                }
                let Some(mut packet) = packets.pop_front() else { break };
                if time == 0 {
                    packet.set_received_at(cx.now());
                }
                if batch.push(packet).is_err() {
                    // Room was checked above: a burst is at most a batch.
                    break;
                }
            }
        }
        count_received(&self.counters, batch);
        match batch.is_empty() {
            false => Poll::Busy,
            // An event comes first.
            true if refused => Poll::Busy,
            true if ended => Poll::Done,
            true => Poll::Idle,
        }
    }
}

struct Transmit {
    to: Arc<Direction>,
    queue: usize,
    counters: Arc<Counters>,
}

impl Transmit {
    /// Puts each packet, in order, on the wire that the far side's rules choose.
    ///
    /// Takes one lock for each such wire.
    #[inline(never)]
    fn steered(&self, rules: &Rules, batch: &mut Batch, cx: &mut Context) {
        let mut queues = [0_u16; BATCH];
        for (queue, packet) in queues.iter_mut().zip(batch.iter()) {
            *queue = rules.queue_of(packet.data()).unwrap_or(self.queue as u16);
        }
        for (queue, wire) in (0_u16..).zip(&self.to.wires) {
            if !queues[..batch.len()].contains(&queue) {
                continue;
            }
            let mut packets = wire.packets();
            let (mut room, mut kept) = (wire.capacity - packets.len(), 0);
            let stays = batch.compact(|slot, _| {
                if queues[slot] == queue && room > 0 {
                    room -= 1;
                    return 1;
                }
                queues[kept] = queues[slot];
                kept += 1;
                0
            });
            let mut bytes = 0;
            let before = packets.len();
            packets.extend(batch.drain_from(stays).inspect(|packet| bytes += packet.len() as u64));
            let sent = (packets.len() - before) as u64;
            cx.transmitting().sent(sent, bytes);
            Counters::add(&self.counters.sent, sent);
            Counters::add(&self.counters.sent_bytes, bytes);
        }
    }
}

impl TransmitQueue for Transmit {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        if let Some(rules) = self.to.rules.get() {
            return self.steered(rules, batch, cx);
        }
        let wire = &self.to.wires[self.queue];
        let mut packets = wire.packets();
        let room = wire.capacity - packets.len();
        if room >= batch.len() {
            count_sent(&self.counters, batch, cx);
            packets.extend(batch.drain());
            return;
        }
        let mut part = Batch::new();
        batch.take_front(room, &mut part);
        count_sent(&self.counters, &part, cx);
        packets.extend(part.drain());
    }
}

#[cfg(test)]
mod tests;
