//! The effects of a bad line on packets, one after the other: loss, corruption, duplication, reordering,
//! delay.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use netbricks_buffer::{Offload, Packet};
use netbricks_core::DropReason;
use netbricks_core::context::last_arrival;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::port::Counters;

/// The faults of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSettings {
    /// Probability of losing a packet.
    pub loss: f64,
    /// Probability of duplicating a packet.
    pub duplicate: f64,
    /// Probability that others overtake a packet.
    pub reorder: f64,
    /// The number of packets that overtake it.
    pub reorder_gap: u32,
    /// Probability of flipping one bit of a packet.
    pub corrupt: f64,
    /// How long a packet is on the line (ns).
    pub delay: u64,
    /// The variation of the delay, to either side (ns).
    pub jitter: u64,
    /// The most packets that are on the line.
    pub limit: usize,
}

impl LineSettings {
    pub(super) fn does_something(&self) -> bool {
        self.loss + self.duplicate + self.reorder + self.corrupt > 0.0 || self.delay > 0
    }
}

/// A packet that is on the line until a time. Packets of equal time leave in the order of arrival.
struct Delayed {
    due: u64,
    serial: u64,
    packet: Packet,
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}
impl Eq for Delayed {}
impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.serial).cmp(&(other.due, other.serial))
    }
}

/// A line.
pub(super) struct Line {
    settings: LineSettings,
    random: Xoshiro256PlusPlus,
    counters: Arc<Counters>,
    /// Packets that others overtake, each with the number of packets that still have to overtake it.
    overtaken: VecDeque<(u32, Packet)>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    serial: u64,
    /// When a packet last entered (ns).
    entered: u64,
}

/// The longest time that a packet waits for others to overtake it (ns).
///
/// After it the packet goes on, so that traffic that stops leaves no packet on the line.
const PATIENCE: u64 = 1_000_000_000;

/// The handlers of a line's user for its packets.
pub(super) trait Exit {
    /// The packet comes out of the line.
    fn leave(&mut self, packet: Packet);
    /// The packet is lost.
    fn lose(&mut self, packet: Packet, reason: DropReason);
    /// A copy of this many bytes was made. It is on the line or has left it.
    fn copied(&mut self, bytes: usize);
    /// Whether the packet may go on after the line changed its bytes.
    fn accepts(&mut self, _packet: &Packet) -> bool {
        true
    }
}

/// Counts a packet. The lines of both directions of a queue share its counters, and may be on two workers.
fn count(counter: &AtomicU64) {
    Counters::add_shared(counter, 1);
}

/// The verdict that marks a copy while it is on the line; other packets have 0 there.
pub(super) const COPY: u16 = 1;

impl Line {
    pub(super) fn new(settings: LineSettings, seed: u64, counters: Arc<Counters>) -> Self {
        Self {
            settings,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            counters,
            overtaken: VecDeque::with_capacity(if settings.reorder > 0.0 { settings.limit } else { 0 }),
            delayed: BinaryHeap::with_capacity(if settings.delay > 0 { settings.limit } else { 0 }),
            serial: 0,
            entered: 0,
        }
    }

    /// The number of packets on the line.
    pub(super) fn held(&self) -> usize {
        self.overtaken.len() + self.delayed.len()
    }

    /// When the next packet comes out (ns).
    pub(super) fn due(&self) -> Option<u64> {
        let delayed = self.delayed.peek().map(|Reverse(delayed)| delayed.due);
        delayed.into_iter().chain(self.gives_up()).min()
    }

    /// When the packets that wait to be overtaken stop waiting (ns).
    fn gives_up(&self) -> Option<u64> {
        (!self.overtaken.is_empty()).then(|| self.entered.saturating_add(PATIENCE))
    }

    /// The port's counters.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether packets stay on the line.
    pub(super) fn keeps(&self) -> bool {
        self.settings.delay > 0 || self.settings.reorder > 0.0
    }

    /// Whether an event of this probability happens now. Draws no number if it never does.
    fn happens(&mut self, probability: f64) -> bool {
        // 53 random bits, evenly spread from 0 to 1, without 1.
        probability > 0.0 && ((self.random.next_u64() >> 11) as f64) * 2f64.powi(-53) < probability
    }

    /// A packet enters at `now`.
    pub(super) fn enter(&mut self, mut packet: Packet, now: u64, exit: &mut impl Exit) {
        packet.set_verdict(0);
        self.entered = now;
        let LineSettings { loss, duplicate, corrupt, .. } = self.settings;
        if self.happens(loss) {
            count(&self.counters.impaired);
            return exit.lose(packet, DropReason::Impaired);
        }
        if self.happens(corrupt) {
            let bits = 8 * packet.len() as u64;
            let bit = self.random.next_u64();
            if bits > 0 {
                count(&self.counters.corrupted);
                let bit = bit % bits;
                packet.data_mut()[(bit / 8) as usize] ^= 1 << (bit % 8);
                // An earlier verification is no longer valid.
                let offload = packet.offload();
                packet.set_offload(Offload { checksum_valid: false, ..offload });
            }
        }
        if !exit.accepts(&packet) {
            return exit.lose(packet, DropReason::BadChecksum);
        }
        // Without a free buffer there is no copy.
        let copy = if self.happens(duplicate) { packet.try_copy() } else { None };
        if let Err(packet) = self.pass(packet, now, exit) {
            exit.lose(packet, DropReason::QueueFull);
        }
        if let Some(mut copy) = copy {
            copy.set_verdict(COPY);
            let bytes = copy.wire_len();
            // If the line has no room for a copy, none was made.
            if self.pass(copy, now, exit).is_ok() {
                count(&self.counters.duplicated);
                exit.copied(bytes);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.held() < self.settings.limit
    }

    /// The steps after loss and duplication: the packet waits to be overtaken, or goes on.
    ///
    /// Gives the packet back if the line has no room for it.
    fn pass(&mut self, packet: Packet, now: u64, exit: &mut impl Exit) -> Result<(), Packet> {
        if self.happens(self.settings.reorder) {
            if !self.has_room() {
                return Err(packet);
            }
            count(&self.counters.reordered);
            self.overtaken.push_back((self.settings.reorder_gap, packet));
            return Ok(());
        }
        let varied = self.vary();
        let passed = if self.settings.delay == 0 || self.has_room() {
            self.delay(packet, varied, now, exit);
            Ok(())
        } else {
            Err(packet)
        };
        for (left, _) in &mut self.overtaken {
            *left -= 1;
        }
        // Packets that waited longest have the fewest left to wait for. They already have room on the line.
        while let Some((0, _)) = self.overtaken.front()
            && let Some((_, packet)) = self.overtaken.pop_front()
        {
            let varied = self.vary();
            self.delay(packet, varied, now, exit);
        }
        passed
    }

    /// The random addition to the shortest delay (ns).
    fn vary(&mut self) -> u64 {
        let jitter = self.settings.jitter;
        if jitter > 0 { self.random.next_u64() % jitter.saturating_mul(2).saturating_add(1) } else { 0 }
    }

    fn delay(&mut self, mut packet: Packet, varied: u64, now: u64, exit: &mut impl Exit) {
        let LineSettings { delay, jitter, .. } = self.settings;
        if delay == 0 {
            return exit.leave(packet);
        }
        // A function before a transmit queue may have written any time.
        let arrived = packet.received_at().clamp(now, last_arrival(now));
        let due = arrived.saturating_add(delay - jitter).saturating_add(varied);
        packet.set_received_at(due);
        self.serial += 1;
        self.delayed.push(Reverse(Delayed { due, serial: self.serial, packet }));
    }

    /// Lets out the packets that are due at `now`, in the order of their times.
    pub(super) fn advance(&mut self, now: u64, exit: &mut impl Exit) {
        if let Some(time) = self.gives_up()
            && time <= now
        {
            self.end(time, exit);
        }
        while let Some(Reverse(delayed)) = self.delayed.peek()
            && delayed.due <= now
            && let Some(Reverse(delayed)) = self.delayed.pop()
        {
            exit.leave(delayed.packet);
        }
    }

    /// Ends the waiting for packets that overtake: the waiting packets go on.
    pub(super) fn end(&mut self, now: u64, exit: &mut impl Exit) {
        while let Some((_, packet)) = self.overtaken.pop_front() {
            let varied = self.vary();
            self.delay(packet, varied, now, exit);
        }
    }

    /// Lets out all packets.
    pub(super) fn empty(&mut self, exit: &mut impl Exit) {
        while let Some(Reverse(delayed)) = self.delayed.pop() {
            exit.leave(delayed.packet);
        }
        while let Some((_, packet)) = self.overtaken.pop_front() {
            exit.leave(packet);
        }
    }
}
