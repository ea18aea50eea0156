//! A transmit queue as a node: it corrects packets that the port cannot carry, or drops them with a reason.
//!
//! Software completes checksums and cuts large packets. A full queue is asked again, a bounded number of
//! times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::{Batch, GsoKind, Offload, Packet};
use netbricks_core::{Context, Departed, DropReason, Node, NodeQueue, Poll, Shape};

use crate::checksum;
use crate::port::{Counters, Port, PortError, TransmitQueue};
use crate::segment::Cut;

/// The limits of a port that its transmit node has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitLimits {
    /// The largest frame without its link header, in bytes.
    pub mtu: usize,
    /// The port computes partial checksums itself.
    pub checksum_offload: bool,
    /// The port cuts packets that are larger than the MTU itself.
    pub segmentation_offload: bool,
}

impl TransmitLimits {
    /// The limits that a port states.
    pub fn of(port: &dyn Port) -> Self {
        let capabilities = port.capabilities();
        Self {
            mtu: port.mtu(),
            checksum_offload: capabilities.checksum_offload,
            segmentation_offload: capabilities.segmentation_offload,
        }
    }
}

/// The limits of a port that may change while it runs.
///
/// They change when its device was deleted and made again under its name.
///
/// Clones share them.
#[derive(Clone, Debug)]
pub struct LiveLimits {
    now: Arc<AtomicU64>,
    longest: usize,
}

impl LiveLimits {
    const CHECKSUM: u64 = 1;
    const SEGMENTATION: u64 = 2;

    /// The limits with these first values.
    pub fn new(limits: TransmitLimits) -> Self {
        Self { now: Arc::new(AtomicU64::new(Self::packed(limits))), longest: usize::MAX }
    }
    /// The same limits, with an MTU of at most `mtu`, also if the device's is larger.
    #[must_use]
    pub fn at_most(self, mtu: usize) -> Self {
        Self { longest: self.longest.min(mtu), ..self }
    }
    /// Sets the limits of the device that is there now.
    pub fn set(&self, limits: TransmitLimits) {
        self.now.store(Self::packed(limits), Ordering::Relaxed);
    }
    /// The limits now.
    #[inline]
    pub fn get(&self) -> TransmitLimits {
        let packed = self.now.load(Ordering::Relaxed);
        TransmitLimits {
            mtu: self.longest.min((packed >> 2) as usize),
            checksum_offload: packed & Self::CHECKSUM != 0,
            segmentation_offload: packed & Self::SEGMENTATION != 0,
        }
    }
    fn packed(limits: TransmitLimits) -> u64 {
        let checksum = if limits.checksum_offload { Self::CHECKSUM } else { 0 };
        let segmentation = if limits.segmentation_offload { Self::SEGMENTATION } else { 0 };
        (limits.mtu as u64) << 2 | checksum | segmentation
    }
}

/// How often a queue that takes nothing is asked again before the rest of a batch counts as lost.
pub(super) const TRIES: usize = 64;
/// Time between turns in which a transmit node only looks after packets in flight (ns).
pub(super) const FLUSH_INTERVAL: u64 = 1_000_000;
/// The same time while no packet is in flight (ns).
///
/// Waking up every millisecond without need takes some 2 % of a core.
const LONGEST_INTERVAL: u64 = 8_000_000;

/// A node that gives a graph's packets to a transmit queue.
pub struct TransmitNode {
    queue: Box<dyn TransmitQueue>,
    kind: String,
    limits: TransmitLimits,
    /// The limits, if they change while the port runs.
    live: Option<LiveLimits>,
    counters: Arc<Counters>,
    keeps: bool,
    /// The graph is being taken down: nothing is kept any more, although other nodes may still give up
    /// packets.
    drained: bool,
    /// Time to the next turn without packets (ns).
    interval: u64,
    /// The number of packets that the queue has taken.
    given: u64,
    /// Packets that leave next, in order with those that had to be corrected. Empty between calls, except
    /// after a panic.
    out: Batch,
}

/// The decision on a packet that needs a check.
enum Fate {
    Go,
    Cut(Cut),
    Lose(DropReason),
}

impl TransmitNode {
    /// A node over `queue`; `driver` names its kind, and packets that could not be sent are counted in
    /// `counters`.
    pub fn new(
        queue: Box<dyn TransmitQueue>,
        driver: &str,
        limits: TransmitLimits,
        counters: Arc<Counters>,
    ) -> Self {
        let keeps = queue.keeps_packets() || queue.needs_flush();
        let kind = format!("{driver} transmit");
        let interval = FLUSH_INTERVAL;
        let live = queue.limits();
        Self {
            queue,
            kind,
            limits,
            live,
            counters,
            keeps,
            drained: false,
            interval,
            given: 0,
            out: Batch::new(),
        }
    }

    /// Takes transmit queue `queue` of a port.
    ///
    /// # Errors
    /// As [`Port::take_transmit`].
    pub fn take(port: &mut dyn Port, queue: usize) -> Result<Self, PortError> {
        let taken = port.take_transmit(queue)?;
        let counters = port.counters().get(queue).cloned().unwrap_or_default();
        Ok(Self::new(taken, port.driver(), TransmitLimits::of(port), counters))
    }

    /// Decides on a packet, and completes its checksum if only that is missing.
    fn decide(&self, packet: &mut Packet) -> Fate {
        let TransmitLimits { mtu, checksum_offload, segmentation_offload } = self.limits;
        let offload = packet.offload();
        let cut = Cut::of(packet);
        let asks = offload.gso != GsoKind::None;
        if asks && cut.is_none() {
            return Fate::Lose(DropReason::NoOffload);
        }
        let longest = cut.as_ref().map_or(packet.len(), Cut::longest);
        if longest > mtu + checksum::link_len(packet.data()) {
            return Fate::Lose(DropReason::TooBig);
        }
        if let Some(cut) = cut
            && (!segmentation_offload || cut.is_inside())
        {
            // A tunnel's outer checksum is finished with its segments, however few.
            if cut.segments() > 1 || cut.is_inside() {
                return Fate::Cut(cut);
            }
            // One segment: the packet is whole already.
            packet.set_offload(Offload { gso: GsoKind::None, gso_size: 0, ..offload });
        }
        if checksum_offload || checksum::complete(packet) {
            Fate::Go
        } else {
            Fate::Lose(DropReason::NoOffload)
        }
    }

    /// Sends a batch in which some packets need a check, in order.
    #[cold]
    fn mend(&mut self, batch: &mut Batch, cx: &mut Context) {
        // Packets that a queue did not reach when it panicked were counted as lost then.
        self.out.clear();
        let plain = self.limits.mtu + 14;
        for mut packet in batch.drain() {
            let fate = if packet.len() > plain || packet.needs_device() {
                self.decide(&mut packet)
            } else {
                Fate::Go
            };
            match fate {
                Fate::Go => self.put(packet, cx),
                Fate::Cut(cut) => self.cut(cut, packet, cx),
                Fate::Lose(reason) => {
                    Counters::add_shared(&self.counters.not_sent, 1);
                    if reason == DropReason::TooBig {
                        Counters::add_shared(&self.counters.too_big_to_send, 1);
                    }
                    cx.drop_packet(packet, reason);
                }
            }
        }
        self.given += give(&mut *self.queue, &mut self.out, &self.counters, cx);
    }

    /// Puts a packet behind those that leave next.
    fn put(&mut self, packet: Packet, cx: &mut Context) {
        if self.out.is_full() {
            self.given += give(&mut *self.queue, &mut self.out, &self.counters, cx);
        }
        if let Err(packet) = self.out.push(packet) {
            // Not reached: all packets that were there have left.
            cx.drop_packet(packet, DropReason::TransmitFull);
        }
    }

    /// Sends a packet's segments in its place. They count as created, the packet as consumed.
    fn cut(&mut self, cut: Cut, packet: Packet, cx: &mut Context) {
        for index in 0..cut.segments() {
            let Some(segment) = cut.segment(&packet, index, cx.pool()) else {
                // The segments that left already are a part of the stream that its receiver can use.
                Counters::add_shared(&self.counters.not_sent, 1);
                Counters::add_shared(&self.counters.no_buffer, 1);
                return cx.drop_packet(packet, DropReason::PoolExhausted);
            };
            cx.transmitting().created(1, segment.len() as u64);
            self.put(segment, cx);
        }
        cx.drop_packet(packet, DropReason::Segmented);
    }
}

/// Gives the queue a batch that it can carry, and answers how many packets it took.
///
/// Packets that it does not take in time are lost.
#[inline]
fn give(queue: &mut dyn TransmitQueue, batch: &mut Batch, counters: &Counters, cx: &mut Context) -> u64 {
    let packets = batch.len();
    offer(queue, batch, cx);
    let taken = packets - batch.len();
    if !batch.is_empty() {
        Counters::add_shared(&counters.not_sent, batch.len() as u64);
        cx.drop_batch(batch, DropReason::TransmitFull);
    }
    taken as u64
}

/// Offers a batch until the queue took all of it, or took nothing `TRIES` times in a row.
#[inline]
pub(crate) fn offer(queue: &mut dyn TransmitQueue, batch: &mut Batch, cx: &mut Context) {
    let mut tries = 0;
    while !batch.is_empty() && tries < TRIES {
        let before = batch.len();
        queue.transmit(batch, cx);
        tries = if batch.len() < before { 0 } else { tries + 1 };
    }
}

/// How often a device is asked at shutdown, at intervals of 100 µs, whether it has sent its packets.
const LAST_FLUSHES: usize = 1_000;

impl Node for TransmitNode {
    #[inline]
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        if let Some(live) = &self.live {
            self.limits = live.get();
        }
        // One branch a packet, over cache lines that the sender has touched already.
        let plain = self.limits.mtu + 14;
        if batch.iter().any(|packet| packet.len() > plain || packet.needs_device()) {
            self.mend(batch, cx);
        } else {
            self.given += give(&mut *self.queue, batch, &self.counters, cx);
        }
        if self.drained {
            self.queue.release(cx);
        }
    }
    fn poll(&mut self, _batch: &mut Batch, cx: &mut Context) -> Poll {
        let in_use = self.queue.in_flight() > 0 || self.queue.keeps_packets();
        self.queue.flush(cx);
        self.interval = if in_use { FLUSH_INTERVAL } else { (self.interval * 2).min(LONGEST_INTERVAL) };
        let next = cx.now().saturating_add(self.interval);
        if next == cx.now() {
            // The clock has reached its last value: all that was due has left, and there is no later time.
            return Poll::Idle;
        }
        Poll::Until(
            self.queue.due().map_or(next, |due| due.clamp(cx.now().saturating_add(1).min(next), next)),
        )
    }
    fn shape(&self) -> Shape {
        Shape {
            kind: self.kind.clone().into(),
            schedulable: self.queue.needs_flush(),
            keeps_packets: self.keeps,
            ..Shape::transmit()
        }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for TransmitNode {
    fn held(&self) -> u64 {
        self.queue.held()
    }
    fn flush(&mut self, _batch: &mut Batch, cx: &mut Context) {
        self.queue.flush(cx);
    }
    fn departed(&self) -> Vec<Departed> {
        let departed = self.queue.departed().unwrap_or_else(|| {
            let there = self.queue.held() + self.queue.in_flight() as u64;
            Departed { given: self.given, left: self.given.saturating_sub(there) }
        });
        vec![departed]
    }
    fn drain(&mut self, _batch: &mut Batch, cx: &mut Context) {
        self.drained = true;
        self.out.clear();
        self.queue.release(cx);
        self.queue.flush(cx);
        // Packets that the device has count as sent: it gets the time to send them before its socket is
        // closed.
        for _ in 0..LAST_FLUSHES {
            if self.queue.in_flight() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
            self.queue.flush(cx);
        }
    }
}
