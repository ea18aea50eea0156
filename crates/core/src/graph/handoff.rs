//! Nodes that exchange packets with other workers: what is not polled while one of them waits for room, and when nothing
//! comes to one any more.

use std::collections::VecDeque;
use std::time::Duration;

use super::drain::Keepers;
use super::run::ASK_IDLE;
use super::{Graph, Slot};
use crate::context::MIGRATION_REQUESTED;
use crate::node::Role;

/// Shuffles that a graph can have: each has a bit.
pub(super) const MOST: usize = 64;
/// When a graph is taken down: how often it asks whether other workers have given it all that they had, and how long it
/// waits in between. Together some seconds, after which a worker that does not answer is given up.
const ASKS: u32 = 1 << 16;
/// After how many of these no device is waited for any more.
const LAST_ASKS: u32 = 1 << 11;
const PATIENCE: Duration = Duration::from_micros(50);

/// Gives each handoff its bit, and learns who feeds whom. Answers the bits by node.
pub(super) fn connect(slots: &mut [Slot]) -> Vec<u64> {
    let mut bit = 1;
    for slot in slots.iter_mut().filter(|slot| slot.handoff != 0) {
        slot.handoff = bit;
        bit <<= 1;
    }
    if bit == 1 {
        return Vec::new();
    }
    // What a node feeds is what its targets are and feed; as many rounds as there are nodes reach the first.
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

/// The shortest way on which packets come back to a shuffle that they have passed, by its nodes' names.
pub(super) fn way_back(slots: &[Slot]) -> Option<Vec<&str>> {
    let shuffles = (0..slots.len()).filter(|node| slots[*node].handoff != 0);
    shuffles.filter_map(|shuffle| way_back_to(shuffle, slots)).min_by_key(Vec::len)
}

fn way_back_to(shuffle: usize, slots: &[Slot]) -> Option<Vec<&str>> {
    // By node: from where it was reached first.
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
    /// The next schedulable that leads to none of the shuffles that wait for room, and to no full queue. One that waits itself gets its turn:
    /// it takes what others sent it, and so makes room in their rings.
    ///
    /// A shuffle before one that waits is not polled either, so that its rings stay full for so long. No worker waits for
    /// ever all the same, however small rings are: no shuffle leads to itself ([`way_back`]), and all workers have them in
    /// one order, so that some are last. These lead to none: whatever waits, every worker takes what comes to them, so
    /// that what waits before their rings gets room. Then nothing keeps those before them from their turns, and so on
    /// up to the ports. A full queue lets go whenever it leads to nothing that waits, and so is one of these.
    pub(super) fn next_unblocked(&mut self) -> Option<usize> {
        // What waits in a shuffle to which nobody sends is sent by a turn in which it yields nothing: others that always
        // yield something would keep it waiting for ever.
        let idle_first = self.turns.is_multiple_of(ASK_IDLE);
        for idle in [idle_first, !idle_first] {
            // Who is passed over keeps its place: a port would else come before it whenever there is room again.
            let queue = if idle { &self.idle } else { &self.ready };
            if let Some(place) = queue.iter().position(|node| !self.is_held_up(*node)) {
                let queue = if idle { &mut self.idle } else { &mut self.ready };
                return queue.remove(place);
            }
        }
        None
    }

    /// Whether what a node sends would come to a shuffle, not itself, that waits for room, or to a queue that is full.
    pub(super) fn is_held_up(&self, node: usize) -> bool {
        let slot = &self.slots[node];
        (slot.feeds & !slot.handoff | slot.fills) & self.cx.blocked != 0
    }

    /// Tells those shuffles to which nothing comes any more that this is so; answers whether there were any. `stopped`:
    /// nothing is received any more.
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

    /// Counts what crossed, and notes that the shuffle asks for something.
    pub(super) fn settle_handoff(&mut self, node: usize, effects: u8) {
        let counters = &mut self.slots[node].counters;
        counters.handoff_out += std::mem::take(&mut self.cx.handoff_out);
        counters.handoff_in += std::mem::take(&mut self.cx.handoff_in);
        if effects & MIGRATION_REQUESTED != 0 && !self.moves.asking.contains(&node) {
            self.moves.asking.push(node);
        }
    }

    /// When the graph is taken down: all workers give each other what they still have for each other. `held_up`: some node still
    /// holds what a shuffle had no room for. Answers the shuffles that other workers left waiting.
    pub(super) fn drain_crossings(&mut self, held_up: &mut bool) -> Vec<usize> {
        let handoffs: Vec<usize> =
            (0..self.cx.handoffs.len()).filter(|node| self.cx.handoffs[*node] != 0).collect();
        let mut asks = 0;
        while asks < ASKS && handoffs.iter().any(|node| !self.slots[*node].ended) {
            self.close_ended(true);
            let handed = self.handed(&handoffs);
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
            // Whose packets another worker still takes is not alone, even if none comes from there.
            if moved > 0 || self.handed(&handoffs) > handed {
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
            // What it holds is counted, and its ends of the rings go with it.
            self.slots[*node].ended = true;
        }
        given_up
    }

    /// Packets that these shuffles have given to other workers.
    fn handed(&self, handoffs: &[usize]) -> u64 {
        handoffs.iter().map(|node| self.slots[*node].counters.handoff_out.packets).sum()
    }
}
