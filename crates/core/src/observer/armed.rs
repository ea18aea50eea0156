//! The watches of one graph, and what they see.

use std::sync::Arc;

use netbricks_buffer::{Batch, Packet};

use super::sightings::{Place, Seen};
use super::{Sight, Sightings, Watch, WatchKind, WatchPoint, Why, serial, watches_of};
use crate::context::Leaving;
use crate::node::Role;
use crate::reason::{DropReason, Edge};

/// Bytes of a sentence about one packet at one node.
const SENTENCE: usize = 512;

/// A node as watches know it.
struct Known {
    name: Arc<str>,
    role: Role,
    /// Its ways out other than the main one.
    ways: Vec<(Edge, Arc<str>)>,
    /// The bits of the watches that look at packets that come to it, or that it brings in.
    entering: u8,
    /// The bits of the captures that look at packets that leave it or that it drops.
    leaving: u8,
}

/// A watch, and what it has seen.
struct Armed {
    watch: Watch,
    seen: Sightings,
    /// Packets that it may take at once, and when that was computed (ns); from the first packet on.
    credit: u64,
    since: Option<u64>,
}

/// The traced packet that the running node has alone.
struct Alone {
    number: u32,
    /// Its end was seen.
    ended: bool,
}

/// The watches of one graph.
pub(crate) struct Observer {
    armed: Vec<Armed>,
    nodes: Vec<Known>,
    /// The bits of the watches that trace, and of the captures of drops.
    traces: u8,
    drops: u8,
    alone: Option<Alone>,
    sentence: String,
}

/// The way that a packet took out of a node.
pub(crate) enum Leave {
    Sent,
    Held,
    HandedOver,
    Absorbed,
}

impl Armed {
    /// Whether the watch takes one more packet of this many bytes, at time `now` (ns).
    ///
    /// A packet that comes too fast counts as lost.
    fn admits(&mut self, now: u64, bytes: usize) -> bool {
        if self.watch.left.is_used_up() {
            return false;
        }
        let rate = self.watch.rate;
        let since = *self.since.get_or_insert(now);
        if self.credit == 0 {
            let more = u128::from(now.saturating_sub(since)) * u128::from(rate) / 1_000_000_000;
            if more > 0 {
                self.credit = u64::try_from(more).unwrap_or(rate).min(rate);
                self.since = Some(now);
            }
        }
        if self.credit == 0 || !self.seen.has_room(bytes) {
            self.seen.lose(1);
            return false;
        }
        if !self.watch.left.take() {
            return false;
        }
        self.credit -= 1;
        true
    }

    /// Whether it selects this packet and takes it.
    fn takes(&mut self, now: u64, packet: &Packet) -> bool {
        self.watch.filter.matches(packet.data(), packet.wire_len())
            && self.admits(now, packet.len().min(self.watch.snap))
    }
}

impl Observer {
    /// An observer of nodes with these names, roles and ways out.
    pub(crate) fn new<'n>(nodes: impl Iterator<Item = (&'n str, Role, Vec<(Edge, String)>)>) -> Self {
        let known = |(name, role, ways): (&str, Role, Vec<(Edge, String)>)| Known {
            name: name.into(),
            role,
            ways: ways.into_iter().map(|(edge, name)| (edge, name.into())).collect(),
            entering: 0,
            leaving: 0,
        };
        Self {
            armed: Vec::new(),
            nodes: nodes.map(known).collect(),
            traces: 0,
            drops: 0,
            alone: None,
            sentence: String::with_capacity(SENTENCE),
        }
    }

    /// Takes over the watches of the observer of another graph, with all that they have seen.
    pub(crate) fn follow(&mut self, before: &mut Self) {
        self.armed.append(&mut before.armed);
        self.place();
    }

    /// Adds a watch.
    pub(crate) fn arm(&mut self, watch: Watch) {
        let (seen, credit) = (Sightings::new(&watch), watch.rate);
        self.armed.push(Armed { watch, seen, credit, since: None });
        self.place();
    }

    /// Removes a watch.
    pub(crate) fn disarm(&mut self, id: u64) {
        self.armed.retain(|armed| armed.watch.id != id);
        self.place();
    }

    /// Whether there is no watch.
    pub(crate) fn is_idle(&self) -> bool {
        self.armed.is_empty()
    }

    /// Takes what a watch has seen, and leaves an empty set in its place.
    pub(crate) fn take(&mut self, id: u64, empty: Sightings) -> Option<Sightings> {
        let armed = self.armed.iter_mut().find(|armed| armed.watch.id == id)?;
        Some(std::mem::replace(&mut armed.seen, empty))
    }

    /// Finds the nodes at which the watches look.
    fn place(&mut self) {
        (self.traces, self.drops) = (0, 0);
        for node in &mut self.nodes {
            (node.entering, node.leaving) = (0, 0);
        }
        for Armed { watch, .. } in &self.armed {
            let bit = watch.bit();
            match watch.kind {
                WatchKind::Trace => self.traces |= bit,
                WatchKind::Capture => {}
            }
            for node in &mut self.nodes {
                match &watch.at {
                    WatchPoint::Arrivals if node.role == Role::Receive => node.entering |= bit,
                    WatchPoint::Nodes(names) if names.iter().any(|name| **name == *node.name) => {
                        node.entering |= bit;
                        if watch.kind == WatchKind::Capture {
                            node.leaving |= bit;
                        }
                    }
                    _ => {}
                }
            }
            if matches!(watch.at, WatchPoint::Drops(_)) && watch.kind == WatchKind::Capture {
                self.drops |= bit;
            }
        }
    }

    /// Whether the packet is one that a present watch follows.
    pub(crate) fn follows(&self, packet: &Packet) -> bool {
        packet.trace().is_some_and(|number| watches_of(number) & self.traces != 0)
    }

    /// Looks at packets that come to a node, or that a receiving node brings in.
    pub(crate) fn enter(&mut self, node: usize, now: u64, batch: &mut Batch) {
        let Self { armed, nodes, .. } = self;
        let Some(node) = nodes.get(node).filter(|node| node.entering != 0) else { return };
        let direction = match node.role {
            Role::Receive | Role::Function => Sight::Arriving,
            Role::Transmit => Sight::Leaving,
        };
        batch.each_packet(|_, packet| {
            for armed in armed.iter_mut().filter(|armed| armed.watch.bit() & node.entering != 0) {
                let (bit, kind) = (armed.watch.bit(), armed.watch.kind);
                let before = packet.trace();
                let known = before.is_some_and(|number| watches_of(number) & bit != 0);
                if kind == WatchKind::Trace && known || !armed.takes(now, packet) {
                    continue;
                }
                let (number, sight) = match kind {
                    WatchKind::Capture => (0, direction.clone()),
                    WatchKind::Trace => {
                        let number = before.unwrap_or_else(|| armed.watch.numbers.next());
                        packet.set_trace(Some(number | u32::from(bit) << super::SERIAL));
                        (serial(number), Sight::Began)
                    }
                };
                let place = Place { number, time: now, node: &node.name, sight };
                armed.seen.add(place, Seen::of(packet), armed.watch.snap, "");
            }
        });
    }

    /// Looks at packets that a node passes on: those in the batch, and those on other ways.
    pub(crate) fn leave(&mut self, node: usize, now: u64, batch: &Batch, leaving: &[Leaving]) {
        let Self { armed, nodes, .. } = self;
        // Packets that a port brings in were seen as they arrived.
        let Some(node) = nodes.get(node).filter(|node| node.leaving != 0 && node.role == Role::Function)
        else {
            return;
        };
        let others = leaving.iter().map(|leaving| &leaving.packet);
        for packet in batch.iter().chain(others) {
            for armed in armed.iter_mut().filter(|armed| armed.watch.bit() & node.leaving != 0) {
                if armed.takes(now, packet) {
                    let place = Place { number: 0, time: now, node: &node.name, sight: Sight::Leaving };
                    armed.seen.add(place, Seen::of(packet), armed.watch.snap, "");
                }
            }
        }
    }

    /// Looks at a packet that a node drops.
    pub(crate) fn dropped(&mut self, node: usize, reason: DropReason, now: u64, packet: &Packet) {
        if let Some(number) = packet.trace() {
            let alone = self.alone.as_mut().filter(|alone| alone.number == number);
            let explained = alone.is_some();
            if let Some(alone) = alone {
                alone.ended = true;
            }
            self.tell(node, now, number, Sight::Dropped(reason), Seen::of(packet), explained);
        }
        let Self { armed, nodes, drops, .. } = self;
        let Some(node) = nodes.get(node) else { return };
        let bits = node.leaving | *drops;
        for armed in armed.iter_mut().filter(|armed| armed.watch.bit() & bits != 0) {
            let wanted = match &armed.watch.at {
                WatchPoint::Drops(wanted) => *wanted == reason,
                _ => true,
            };
            if wanted && armed.takes(now, packet) {
                let place = Place { number: 0, time: now, node: &node.name, sight: Sight::Dropped(reason) };
                armed.seen.add(place, Seen::of(packet), armed.watch.snap, "");
            }
        }
    }

    /// Says that the node is about to get this traced packet alone.
    pub(crate) fn isolate(&mut self, number: u32) {
        self.alone = Some(Alone { number, ended: false });
        self.sentence.clear();
    }

    /// The place for a function's sentence about the packet that a node is about to get.
    pub(crate) fn sentence(&mut self) -> Why<'_> {
        Why { text: &mut self.sentence, room: SENTENCE }
    }

    /// The sentence is not wanted, because it was not finished.
    pub(crate) fn unsay(&mut self) {
        self.sentence.clear();
    }

    /// Says how the traced packet left the node that had it alone. `batch` leaves by the main way out.
    ///
    /// `vanished` tells the end of a packet that is not among those that leave.
    pub(crate) fn departed(
        &mut self,
        node: usize,
        now: u64,
        batch: &mut Batch,
        leaving: &mut [Leaving],
        vanished: Leave,
    ) {
        let Some(Alone { number, ended }) = self.alone.take() else { return };
        let same = |packet: &Packet| packet.trace() == Some(number);
        if !ended {
            if let Some(packet) = batch.iter().find(|packet| same(packet)) {
                self.tell(node, now, number, Sight::Left(None), Seen::of(packet), true);
            } else if let Some(left) = leaving.iter().find(|left| !left.new && same(&left.packet)) {
                let sight = Sight::Left(self.way(node, left.edge));
                self.tell(node, now, number, sight, Seen::of(&left.packet), true);
            } else {
                let sight = match vanished {
                    Leave::Sent => Sight::Sent,
                    Leave::Held => Sight::Held,
                    Leave::HandedOver => Sight::HandedOver,
                    Leave::Absorbed => Sight::Absorbed,
                };
                self.tell(node, now, number, sight, Seen::default(), true);
            }
        }
        for new in leaving.iter_mut().filter(|left| left.new) {
            self.born(node, now, number, &mut new.packet);
        }
    }

    /// Gives a packet that was made for a traced one a number of its own.
    fn born(&mut self, node: usize, now: u64, parent: u32, packet: &mut Packet) {
        let Some(numbers) = self.armed.first().map(|armed| armed.watch.numbers.clone()) else { return };
        let child = numbers.next() | u32::from(watches_of(parent)) << super::SERIAL;
        packet.set_trace(Some(child));
        self.tell(node, now, parent, Sight::Made(serial(child)), Seen::default(), false);
        self.tell(node, now, child, Sight::Born(serial(parent)), Seen::of(packet), false);
    }

    /// Looks at traced packets that a node's turn brought out: from a queue, or from another worker.
    pub(crate) fn released(&mut self, node: usize, now: u64, batch: &Batch, leaving: &[Leaving]) {
        if self.traces == 0 {
            return;
        }
        for packet in batch.iter() {
            if let Some(number) = packet.trace() {
                self.tell(node, now, number, Sight::Left(None), Seen::of(packet), false);
            }
        }
        for left in leaving {
            if let Some(number) = left.packet.trace() {
                let sight = Sight::Left(self.way(node, left.edge));
                self.tell(node, now, number, sight, Seen::of(&left.packet), false);
            }
        }
    }

    /// Says that the node that had a traced packet alone panicked.
    pub(crate) fn panicked(&mut self, node: usize, now: u64) {
        if let Some(Alone { number, ended: false }) = self.alone.take() {
            self.tell(node, now, number, Sight::Dropped(DropReason::Panicked), Seen::default(), true);
        }
    }

    fn way(&self, node: usize, edge: Edge) -> Option<Arc<str>> {
        let ways = &self.nodes.get(node)?.ways;
        ways.iter().find(|(known, _)| *known == edge).map(|(_, name)| name.clone())
    }

    /// Adds a sighting to all watches that follow the packet, with the function's sentence if it is about this.
    fn tell(&mut self, node: usize, now: u64, number: u32, sight: Sight, seen: Seen<'_>, explained: bool) {
        let Self { armed, nodes, sentence, .. } = self;
        let Some(node) = nodes.get(node) else { return };
        let why = if explained { sentence.as_str() } else { "" };
        let wanted = watches_of(number);
        for armed in armed.iter_mut() {
            if armed.watch.kind == WatchKind::Trace && armed.watch.bit() & wanted != 0 {
                let place =
                    Place { number: serial(number), time: now, node: &node.name, sight: sight.clone() };
                armed.seen.add(place, seen, armed.watch.snap, why);
            }
        }
    }
}
