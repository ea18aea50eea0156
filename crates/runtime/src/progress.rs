//! Live totals without stopping a worker: workers publish them periodically, and any thread reads them.
//!
//! This module also has the limit on received packets, which workers share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use netbricks_core::graph::Whereabouts;
use netbricks_core::{Count, Totals};

/// The totals that a worker published last.
///
/// They have their own pair of cache lines, so that workers do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    received: AtomicU64,
    received_bytes: AtomicU64,
    created: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    dropped: AtomicU64,
    consumed: AtomicU64,
    held: AtomicU64,
    handoff_out: AtomicU64,
    handoff_in: AtomicU64,
    turns: AtomicU64,
    sleeps: AtomicU64,
    ended: AtomicU64,
    longest_pause: AtomicU64,
    /// As `longest_pause`, since it was taken last.
    recent_pause: AtomicU64,
    long_pauses: AtomicU64,
    /// A number that changes whenever the worker comes back to its loop.
    pub(crate) beat: AtomicU64,
    /// Whether it rests, because there is no work.
    pub(crate) resting: AtomicBool,
    /// Whether it does a command of the control side.
    commanded: AtomicBool,
    /// Its thread's number.
    pub(crate) thread: AtomicU32,
    /// The graph whose turn it is, and where each graph is.
    pub(crate) graph: AtomicUsize,
    places: Mutex<Vec<Whereabouts>>,
}

/// The workers' totals so far, as published at most some milliseconds ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Progress {
    /// Packets from outside.
    pub received: Count,
    /// Packets made by nodes.
    pub created: u64,
    /// Packets given to the outside.
    pub sent: Count,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets consumed.
    pub consumed: u64,
    /// Packets that nodes hold.
    pub held: u64,
    /// Packets that workers handed to each other.
    pub handoff_out: u64,
    /// Packets that workers took over from each other.
    pub handoff_in: u64,
    /// Turns that graphs had.
    pub turns: u64,
    /// Times that workers went to sleep in the kernel.
    pub sleeps: u64,
    /// Workers that have ended.
    pub ended: u64,
    /// The longest time between two batches that a worker spent on commands of the control side (ns).
    pub longest_pause_ns: u64,
    /// Such times of more than 500 µs.
    pub long_pauses: u64,
}

/// The time between two batches beyond which a pause for commands counts as long.
const LONG_PAUSE: Duration = Duration::from_micros(500);

impl Progress {
    /// A number that grows whenever a packet comes, leaves or changes workers.
    pub(crate) fn packets(&self) -> u64 {
        let ends = self.received.packets + self.created + self.sent.packets + self.dropped + self.consumed;
        ends + self.handoff_out + self.handoff_in
    }
    pub(crate) fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.created += other.created;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.consumed += other.consumed;
        self.held += other.held;
        self.handoff_out += other.handoff_out;
        self.handoff_in += other.handoff_in;
        self.turns += other.turns;
        self.sleeps += other.sleeps;
        self.ended += other.ended;
        self.longest_pause_ns = self.longest_pause_ns.max(other.longest_pause_ns);
        self.long_pauses += other.long_pauses;
    }
}

impl Published {
    pub(crate) fn publish(&self, totals: &Totals, turns: u64, sleeps: u64) {
        let put = |cell: &AtomicU64, value| cell.store(value, Ordering::Relaxed);
        put(&self.received, totals.received.packets);
        put(&self.received_bytes, totals.received.bytes);
        put(&self.created, totals.created.packets);
        put(&self.sent, totals.sent.packets);
        put(&self.sent_bytes, totals.sent.bytes);
        put(&self.dropped, totals.drops.dropped().packets);
        put(&self.consumed, totals.drops.consumed().packets);
        put(&self.held, totals.held);
        put(&self.handoff_out, totals.handoff_out.packets);
        put(&self.handoff_in, totals.handoff_in.packets);
        put(&self.turns, turns);
        put(&self.sleeps, sleeps);
    }
    /// Takes note of the graphs that the worker has, in their order.
    pub(crate) fn hosts(&self, places: Vec<Whereabouts>) {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }
    /// Says whether the worker does a command.
    pub(crate) fn commanded(&self, commanded: bool) {
        self.commanded.store(commanded, Ordering::Relaxed);
    }
    /// The node that the worker is in; `None` in a command.
    pub(crate) fn node(&self) -> Option<String> {
        if self.commanded.load(Ordering::Relaxed) {
            return None;
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(self.graph.load(Ordering::Relaxed))?.node()
    }
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) > 0
    }
    pub(crate) fn end(&self) {
        self.ended.store(1, Ordering::Relaxed);
    }
    /// Notes that commands took this long.
    pub(crate) fn paused(&self, took: Duration) {
        self.long_pauses.fetch_add(u64::from(took > LONG_PAUSE), Ordering::Relaxed);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.longest_pause.fetch_max(took, Ordering::Relaxed);
        self.recent_pause.fetch_max(took, Ordering::Relaxed);
    }
    /// The longest pause since this was called last (ns).
    pub(crate) fn take_longest_pause(&self) -> u64 {
        self.recent_pause.swap(0, Ordering::Relaxed)
    }
    pub(crate) fn read(&self) -> Progress {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Progress {
            received: Count { packets: get(&self.received), bytes: get(&self.received_bytes) },
            created: get(&self.created),
            sent: Count { packets: get(&self.sent), bytes: get(&self.sent_bytes) },
            dropped: get(&self.dropped),
            consumed: get(&self.consumed),
            held: get(&self.held),
            handoff_out: get(&self.handoff_out),
            handoff_in: get(&self.handoff_in),
            turns: get(&self.turns),
            sleeps: get(&self.sleeps),
            ended: get(&self.ended),
            longest_pause_ns: get(&self.longest_pause),
            long_pauses: get(&self.long_pauses),
        }
    }
}

/// A limit on received packets over all workers.
///
/// Workers reserve a batch before a turn, and give back the part that did not come.
#[derive(Debug)]
pub(crate) struct PacketLimit {
    limit: u64,
    reserved: AtomicU64,
    received: AtomicU64,
}

impl PacketLimit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, reserved: AtomicU64::new(0), received: AtomicU64::new(0) }
    }
    /// Up to `wanted` packets that the caller may receive; 0 when other workers hold the rest.
    pub(crate) fn reserve(&self, wanted: u64) -> u64 {
        let mut granted = 0;
        let update = |reserved: u64| {
            granted = wanted.min(self.limit.saturating_sub(reserved));
            Some(reserved + granted)
        };
        // The closure never refuses, so this cannot fail.
        let _always = self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        granted
    }
    /// Settles a reservation after `received` packets came.
    pub(crate) fn settle(&self, reserved: u64, received: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        match received.checked_sub(reserved) {
            Some(more) => self.reserved.fetch_add(more, Ordering::Relaxed),
            None => self.reserved.fetch_sub(reserved - received, Ordering::Relaxed),
        };
    }
    /// Whether the limit is reached.
    pub(crate) fn is_reached(&self) -> bool {
        self.received.load(Ordering::Relaxed) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_receive_exactly_the_limit() {
        let limit = PacketLimit::new(100_003);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let limit = &limit;
                scope.spawn(move || {
                    let mut seed = thread + 1;
                    while !limit.is_reached() {
                        let reserved = limit.reserve(32);
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        limit.settle(reserved, (seed >> 33) % (reserved + 1));
                    }
                });
            }
        });
        assert_eq!(limit.received.load(Ordering::Relaxed), 100_003);
        assert_eq!(limit.reserve(1), 0);
    }
}
