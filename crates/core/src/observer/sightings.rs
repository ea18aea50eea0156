//! The records of a watch on one worker, in memory of a fixed size.

use std::ops::Range;
use std::sync::Arc;

use netbricks_buffer::{Packet, VlanTag};

use super::Watch;
use crate::reason::DropReason;

/// One look at a packet.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The traced packet's number; 0 in a capture.
    pub number: u32,
    /// The time (ns, the graph's clock).
    pub time: u64,
    /// The node.
    pub node: Arc<str>,
    /// The kind of sighting.
    pub sight: Sight,
    /// The port and queue of its arrival.
    pub ingress: (u16, u16),
    /// The VLAN tag that is not in its bytes.
    pub vlan: Option<VlanTag>,
    /// The frame's length on the wire in bytes.
    pub wire_len: usize,
    frame: Range<usize>,
    why: Range<usize>,
}

/// The kind of a sighting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The trace begins where the packet came in or comes to the node.
    Began,
    /// The trace of a packet begins that the node made from the packet of this number.
    Born(u32),
    /// The node made another packet, of this number, for the traced one.
    Made(u32),
    /// The traced packet left the node: by its main way out, or by the way of this name.
    Left(Option<Arc<str>>),
    /// The node keeps the traced packet for now.
    Held,
    /// The port took the traced packet.
    Sent,
    /// The traced packet is on its way to another worker.
    HandedOver,
    /// The packet was dropped or consumed.
    Dropped(DropReason),
    /// The node took the traced packet in, and it went on in other packets or not at all.
    Absorbed,
    /// A captured packet came to the node, or came in there.
    Arriving,
    /// A captured packet left the node, or was given to the port.
    Leaving,
}

/// The records of a watch on one worker.
#[derive(Debug, Default)]
pub struct Sightings {
    records: Vec<Sighting>,
    bytes: Vec<u8>,
    lost: u64,
}

impl Sightings {
    /// An empty set with the memory that a watch may take on one worker.
    pub fn new(watch: &Watch) -> Self {
        Self { records: Vec::with_capacity(watch.sightings), bytes: Vec::with_capacity(watch.bytes), lost: 0 }
    }

    /// The sightings, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Sighting> {
        self.records.iter()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
    /// The bytes of a sighting's frame, as many as the watch copies.
    pub fn frame(&self, sighting: &Sighting) -> &[u8] {
        self.bytes.get(sighting.frame.clone()).unwrap_or_default()
    }
    /// The sentence of the node's function about the packet; empty where it said nothing.
    pub fn why(&self, sighting: &Sighting) -> &str {
        let bytes = self.bytes.get(sighting.why.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
    /// Sightings for which there was no room, or which came too fast.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    /// Counts sightings that are lost.
    pub(super) fn lose(&mut self, sightings: u64) {
        self.lost += sightings;
    }
    /// Whether there is room for one more with so many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.records.len() < self.records.capacity() && bytes <= self.bytes.capacity() - self.bytes.len()
    }

    /// Adds a sighting of a packet, or counts it as lost where there is no room. Allocates nothing.
    pub(super) fn add(&mut self, at: Place<'_>, seen: Seen<'_>, snap: usize, why: &str) {
        let frame = &seen.frame[..seen.frame.len().min(snap)];
        if !self.has_room(frame.len() + why.len()) {
            self.lost += 1;
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(why.as_bytes());
        self.records.push(Sighting {
            number: at.number,
            time: at.time,
            node: at.node.clone(),
            sight: at.sight,
            ingress: seen.ingress,
            vlan: seen.vlan,
            wire_len: seen.wire_len,
            frame: start..middle,
            why: middle..self.bytes.len(),
        });
    }
}

/// The facts of a sighting beside the packet itself.
#[derive(Clone)]
pub(super) struct Place<'n> {
    pub(super) number: u32,
    pub(super) time: u64,
    pub(super) node: &'n Arc<str>,
    pub(super) sight: Sight,
}

/// The part of a packet that a sighting keeps.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen<'p> {
    frame: &'p [u8],
    wire_len: usize,
    ingress: (u16, u16),
    vlan: Option<VlanTag>,
}

impl<'p> Seen<'p> {
    pub(super) fn of(packet: &'p Packet) -> Self {
        Self {
            frame: packet.data(),
            wire_len: packet.wire_len(),
            ingress: (packet.ingress(), packet.queue()),
            vlan: packet.vlan(),
        }
    }
}
