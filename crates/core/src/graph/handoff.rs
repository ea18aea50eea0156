//! Nodes that exchange packets with other workers.
//!
//! This module decides what is not polled while such a node waits for room, and when no more packets come to
//! one.

use std::collections::VecDeque;
use std::time::Duration;

use super::drain::Keepers;
use super::run::ASK_IDLE;
use super::{Graph, Slot};
use crate::context::MIGRATION_REQUESTED;
use crate::node::Role;

/// Shuffles that a graph can have: each has a bit.
pub(super) const MOST: usize = 64;
/// How often a graph that is taken down asks whether other workers have given it all their packets.
///
/// Between two questions it waits for `PATIENCE`. Together this is some seconds, after which a worker that
/// does not answer is given up.
const ASKS: u32 = 1 << 16;
/// The number of these questions after which the graph no longer waits for a device.
const LAST_ASKS: u32 = 1 << 11;
const PATIENCE: Duration = Duration::from_micros(50);

/// Gives each shuffle its bit, and determines which nodes feed which shuffles. Answers the bits by node.
pub(super) fn connect(slots: &mut [Slot]) -> Vec<u64> {
    let mut bit = 1;
    for slot in slots.iter_mut().filter(|slot| slot.handoff != 0) {
        slot.handoff = bit;
        bit <<= 1;
    }
    if bit == 1 {
        return Vec::new();
    }
    // A node feeds its targets and the nodes that they feed. After as many rounds as there are nodes this is
    // known for all.
    for _ in 0..slots.len() {
        let mut changed = false;
        for node in 0..slots.len() {
            let reached = slots[node].targets.iter().flatten().fold(slots[node].feeds, |feeds, target| {
                feeds | slots[target.node].handoff | slots[target.node].feeds
            });
            changed |= std::mem::replace(&mut slots[node].feeds, reached) != reached;
        }
        if !changed {
            break;
        }
    }
    slots.iter().map(|slot| slot.handoff).collect()
}

/// The shortest way on which packets come back to a shuffle that they passed, by the names of its nodes.
pub(super) fn way_back(slots: &[Slot]) -> Option<Vec<&str>> {
    let shuffles = (0..slots.len()).filter(|node| slots[*node].handoff != 0);
    shuffles.filter_map(|shuffle| way_back_to(shuffle, slots)).min_by_key(Vec::len)
}

fn way_back_to(shuffle: usize, slots: &[Slot]) -> Option<Vec<&str>> {
    // By node: the node from which it was reached first.
    let mut before = vec![None; slots.len()];
    let mut reached = VecDeque::from([shuffle]);
    while let Some(here) = reached.pop_front() {
        for target in slots[here].targets.iter().flatten() {
            if before[target.node].is_none() {
                before[target.node] = Some(here);
                reached.push_back(target.node);
            }
        }
    }
    let mut way = vec![shuffle];
    loop {
        let here = before[*way.last()?]?;
        way.push(here);
        if here == shuffle {
            return Some(way.iter().rev().map(|node| slots[*node].name.as_str()).collect());
        }
    }
}

impl Graph {
    /// The next schedulable node that leads to no shuffle that waits for room and to no full queue.
    ///
    /// A shuffle that waits itself gets its turn: it takes packets that others sent it, and so makes room in
    /// their rings.
    ///
    /// A shuffle before one that waits is not polled either, so its rings stay full meanwhile. Still no
    /// worker waits for ever, however small the rings are. No shuffle leads to itself ([`way_back`]), and all
    /// workers have the shuffles in one order, so some are last. These lead to no shuffle, so every worker
    /// takes the packets that come to them, and packets before their rings get room. Then nothing keeps the
    /// shuffles before them from their turns, and so on up to the ports. A full queue sends whenever it leads
    /// to nothing that waits, and so belongs to the last ones.
    pub(super) fn next_unblocked(&mut self) -> Option<usize> {
        // Packets that wait in a shuffle without arrivals leave in a turn of the shuffle that yields nothing.
        // Other nodes that always yield something would make them wait for ever.
        let idle_first = self.turns.is_multiple_of(ASK_IDLE);
        for idle in [idle_first, !idle_first] {
            // A node that is passed over keeps its place: otherwise a port would come before it whenever
            // there is room again.
            let queue = if idle { &self.idle } else { &self.ready };
            if let Some(place) = queue.iter().position(|node| !self.is_held_up(*node)) {
                let queue = if idle { &mut self.idle } else { &mut self.ready };
                return queue.remove(place);
            }
        }
        None
    }

    /// Whether a node's packets would come to another shuffle that waits for room, or to a full queue.
    pub(super) fn is_held_up(&self, node: usize) -> bool {
        let slot = &self.slots[node];
        (slot.feeds & !slot.handoff | slot.fills) & self.cx.blocked != 0
    }

    /// Tells shuffles to which no more packets come that this is so; answers whether there were any.
    ///
    /// `stopped`: nothing is received any more.
    pub(super) fn close_ended(&mut self, stopped: bool) -> bool {
        let mut any = false;
        for node in 0..self.cx.handoffs.len() {
            let bit = self.cx.handoffs[node];
            if bit == 0 || self.slots[node].closed {
                continue;
            }
            let over = self.slots.iter().enumerate().all(|(other, slot)| {
                let ended =
                    !slot.source || slot.ended || slot.stopped || stopped && slot.role == Role::Receive;
                let waits = || stopped && self.has_untold_end(other) && !self.ends_after(other, node);
                let over = || ended && self.held(other) == 0 && !waits();
                other == node || slot.feeds & bit == 0 || over()
            });
            if over {
                self.slots[node].closed = true;
                any = true;
                self.handoff(node, |handoff| handoff.close());
            }
        }
        any
    }

    /// Counts packets that crossed between workers, and notes that the shuffle asks for a migration step.
    pub(super) fn settle_handoff(&mut self, node: usize, effects: u8) {
        let counters = &mut self.slots[node].counters;
        counters.handoff_out += std::mem::take(&mut self.cx.handoff_out);
        counters.handoff_in += std::mem::take(&mut self.cx.handoff_in);
        if effects & MIGRATION_REQUESTED != 0 && !self.moves.asking.contains(&node) {
            self.moves.asking.push(node);
        }
    }

    /// Exchanges all remaining packets with other workers, when the graph is taken down.
    ///
    /// `held_up`: some node still holds packets for which a shuffle had no room. Answers the shuffles that
    /// other workers left waiting.
    pub(super) fn drain_handoffs(&mut self, held_up: &mut bool) -> Vec<usize> {
        let handoffs: Vec<usize> =
            (0..self.cx.handoffs.len()).filter(|node| self.cx.handoffs[*node] != 0).collect();
        let mut asks = 0;
        while asks < ASKS && handoffs.iter().any(|node| !self.slots[*node].ended) {
            self.close_ended(true);
            let before = self.handed_off(&handoffs);
            let mut moved = 0;
            for node in &handoffs {
                if !self.slots[*node].ended && !self.is_held_up(*node) {
                    moved += self.contained(Some(*node), 1);
                    while !self.waiting.is_empty() {
                        self.contained(None, 1);
                    }
                    moved += u64::from(self.run_migrations(asks >= LAST_ASKS));
                }
            }
            if moved > 0 {
                *held_up = self.drain_keepers(Keepers::All);
            } else if *held_up || self.cx.blocked & self.queue_bits != 0 {
                *held_up = self.drain_keepers(Keepers::BeforeShuffles);
            } else {
                self.tell_ends(false);
            }
            // A worker that still takes packets from this one is alive, even if it sends none.
            if moved > 0 || self.handed_off(&handoffs) > before {
                asks = 0;
            } else {
                asks += 1;
                std::thread::sleep(PATIENCE);
            }
            self.ready.clear();
            self.idle.clear();
        }
        let given_up: Vec<usize> = handoffs.into_iter().filter(|node| !self.slots[*node].ended).collect();
        for node in &given_up {
            // Packets that it holds are counted, and its ends of the rings are dropped with it.
            self.slots[*node].ended = true;
        }
        given_up
    }

    /// The number of packets that these shuffles have given to other workers.
    fn handed_off(&self, handoffs: &[usize]) -> u64 {
        handoffs.iter().map(|node| self.slots[*node].counters.handoff_out.packets).sum()
    }
}
