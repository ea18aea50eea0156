//! Watches over the packets of a running graph: traces of single packets, and captures.
//!
//! A graph without a watch runs the same code as ever. With one, its turns take a copy of their loop that looks
//! at packets before and after each node. A traced packet goes to each node alone, as a batch of one, so that
//! every drop, answer and effect of the call is that packet's. Results do not depend on the batch size, so that
//! a watch changes no packet.
//!
//! A worker only copies bytes into [`Sightings`] of a fixed size. The control side takes them away and gives an
//! empty set. Where they are full, or a watch has too many packets a second, sightings are lost and counted.

mod armed;
mod sightings;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use armed::{Leave, Observer};
pub use sightings::{Sight, Sighting, Sightings};

use crate::filter::Filter;
use crate::reason::DropReason;

/// Watches that there may be at once.
pub const WATCHES: usize = 8;
/// Bits of a packet's number below those of its watches.
const SERIAL: u32 = 24;

/// Where a watch looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchPoint {
    /// Where packets come in: behind every receive node.
    Arrivals,
    /// At these nodes: before each, or behind it where it receives.
    Nodes(Vec<String>),
    /// Where packets are dropped for this reason, in all nodes.
    Drops(DropReason),
}

/// The kind of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Follows packets from node to node, from where they match on.
    Trace,
    /// Copies packets where they match.
    Capture,
}

/// A watch: which packets to look at, where, and how many.
#[derive(Clone)]
pub struct Watch {
    /// Its number, which no other watch of the process has.
    pub id: u64,
    /// Its place among the watches of the process, below [`WATCHES`].
    pub place: u8,
    /// Whether it follows packets or copies them.
    pub kind: WatchKind,
    /// Where it looks.
    pub at: WatchPoint,
    /// The packets that it selects.
    pub filter: Filter,
    /// Packets that it still takes, on all workers together.
    pub left: Allowance,
    /// Bytes of a frame that it copies.
    pub snap: usize,
    /// Packets that it takes a second on one worker, and at once.
    pub rate: u64,
    /// Sightings that wait on one worker.
    pub sightings: usize,
    /// Bytes of frames and sentences that wait on one worker.
    pub bytes: usize,
    /// The source of the numbers of traced packets.
    pub numbers: Numbers,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).field("kind", &self.kind).field("at", &self.at).finish()
    }
}

impl Watch {
    /// A watch that follows packets, with the usual bounds.
    ///
    /// It copies 256 bytes of a frame. It takes up to 1,000 packets a second on a worker, and takes 1.5 MB there.
    pub fn trace(at: WatchPoint, filter: Filter, left: Allowance, numbers: Numbers) -> Self {
        let (id, place, kind) = (0, 0, WatchKind::Trace);
        let (snap, rate, sightings, bytes) = (256, 1_000, 4_096, 1 << 20);
        Self { id, place, kind, at, filter, left, snap, rate, sightings, bytes, numbers }
    }

    /// A watch that copies packets, with the usual bounds.
    ///
    /// It takes up to 500,000 packets a second on a worker, and 6 MB there.
    pub fn capture(at: WatchPoint, filter: Filter, left: Allowance, snap: usize, numbers: Numbers) -> Self {
        let (id, place, kind) = (0, 0, WatchKind::Capture);
        let (rate, sightings, bytes) = (500_000, 16_384, 4 << 20);
        Self { id, place, kind, at, filter, left, snap, rate, sightings, bytes, numbers }
    }

    fn bit(&self) -> u8 {
        1 << (self.place % WATCHES as u8)
    }
}

/// How many packets a watch takes, counted by all workers together.
#[derive(Clone, Debug, Default)]
pub struct Allowance(Option<Arc<AtomicU64>>);

impl Allowance {
    /// No more than this many; without a number, all.
    pub fn of(packets: Option<u64>) -> Self {
        Self(packets.map(|packets| Arc::new(AtomicU64::new(packets))))
    }
    /// Takes one packet, if there is one left.
    fn take(&self) -> bool {
        let Some(left) = &self.0 else { return true };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
    /// Whether none is left.
    pub fn is_used_up(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }
}

/// The source of the numbers of traced packets, for all watches of a process.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<AtomicU32>);

impl Numbers {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) & ((1 << SERIAL) - 1)
    }
}

/// The watches that follow a packet of this number.
fn watches_of(number: u32) -> u8 {
    (number >> SERIAL) as u8
}

/// A traced packet's number without the bits of its watches.
fn serial(number: u32) -> u32 {
    number & ((1 << SERIAL) - 1)
}

/// The sentence of a function about a packet, in bounded memory.
pub struct Why<'t> {
    text: &'t mut String,
    room: usize,
}

impl fmt::Write for Why<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.floor_char_boundary(text.len().min(self.room));
        self.text.push_str(&text[..kept]);
        // After a part was cut off, nothing more is added.
        self.room = if kept < text.len() { 0 } else { self.room - kept };
        Ok(())
    }
}

impl fmt::Debug for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Why").field(&self.text).finish()
    }
}
