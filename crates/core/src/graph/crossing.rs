//! Nodes that exchange packets with other workers: what is not polled while one of them waits for room, when nothing
//! comes to one any more, and the state that moves with its packets.

use std::collections::VecDeque;
use std::time::Duration;

use super::run::ASK_IDLE;
use super::{Graph, Slot};
use crate::context::DUTY;
use crate::node::Role;
use crate::shuffle::{BoundState, Crossing, Duty, ShuffleKey};

/// Shuffles that a graph can have: each has a bit.
pub(super) const MOST: usize = 64;
/// When a graph is taken down: how often it asks whether other workers have given it all that they had, and how long it
/// waits in between. Together some seconds, after which a worker that does not answer is given up.
const ASKS: u32 = 1 << 16;
const PATIENCE: Duration = Duration::from_micros(50);

/// Gives each crossing its bit, and learns who feeds whom. Answers the bits by node.
pub(super) fn connect(slots: &mut [Slot]) -> Vec<u64> {
    let mut bit = 1;
    for slot in slots.iter_mut().filter(|slot| slot.crossing != 0) {
        slot.crossing = bit;
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
                feeds | slots[target.node].crossing | slots[target.node].feeds
            });
            changed |= std::mem::replace(&mut slots[node].feeds, reached) != reached;
        }
        if !changed {
            break;
        }
    }
    slots.iter().map(|slot| slot.crossing).collect()
}

/// The shortest way on which packets come back to a shuffle that they have passed, by its nodes' names.
pub(super) fn way_back(slots: &[Slot]) -> Option<Vec<&str>> {
    let shuffles = (0..slots.len()).filter(|node| slots[*node].crossing != 0);
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
    /// The next schedulable that leads to none of the shuffles that wait for room. One that waits itself gets its turn:
    /// it takes what others sent it, and so makes room in their rings.
    ///
    /// A shuffle before one that waits is not polled either, so that its rings stay full for so long. No worker waits for
    /// ever all the same, however small rings are: no shuffle leads to itself ([`way_back`]), and all workers have them in
    /// one order, so that some are last. These lead to none: whatever waits, every worker takes what comes to them, so
    /// that what waits before their rings gets room. Then nothing keeps those before them from their turns, and so on
    /// up to the ports.
    pub(super) fn next_unblocked(&mut self) -> Option<usize> {
        let blocked = self.cx.blocked;
        // What waits in a shuffle to which nobody sends is sent by a turn in which it yields nothing: others that always
        // yield something would keep it waiting for ever.
        let idle_first = self.turns.is_multiple_of(ASK_IDLE);
        for idle in [idle_first, !idle_first] {
            let queue = if idle { &mut self.idle } else { &mut self.ready };
            let leads_on = |node: &usize| {
                let slot = &self.slots[*node];
                slot.feeds & !slot.crossing & blocked == 0
            };
            // Who is passed over keeps its place: a port would else come before it whenever there is room again.
            if let Some(place) = queue.iter().position(leads_on) {
                return queue.remove(place);
            }
        }
        None
    }

    /// Tells those shuffles to which nothing comes any more that this is so; answers whether there were any. `stopped`:
    /// nothing is received any more.
    pub(super) fn close_ended(&mut self, stopped: bool) -> bool {
        let mut any = false;
        for node in 0..self.cx.crossings.len() {
            let bit = self.cx.crossings[node];
            if bit == 0 || self.slots[node].closed {
                continue;
            }
            let over = self.slots.iter().enumerate().all(|(other, slot)| {
                let ended =
                    !slot.source || slot.ended || slot.stopped || stopped && slot.role == Role::Receive;
                other == node || slot.feeds & bit == 0 || ended && self.held(other) == 0
            });
            if over {
                self.slots[node].closed = true;
                any = true;
                self.crossing(node, |crossing| crossing.close());
            }
        }
        any
    }

    /// Counts what crossed, and notes that the shuffle asks for something.
    pub(super) fn settle_crossing(&mut self, node: usize, stirred: u8) {
        let counters = &mut self.slots[node].counters;
        counters.handed += std::mem::take(&mut self.cx.handed);
        counters.taken += std::mem::take(&mut self.cx.taken);
        if stirred & DUTY != 0 && !self.duties.contains(&node) {
            self.duties.push(node);
        }
    }

    /// Between two turns: what shuffles have asked for.
    #[cold]
    pub(super) fn do_duties(&mut self) {
        for node in std::mem::take(&mut self.duties) {
            match self.crossing(node, |crossing| crossing.duty()).flatten() {
                None => {}
                Some(Duty::Give { to, part }) => {
                    let behind = self.behind(node);
                    self.hurry(&behind);
                    let mut images = Vec::new();
                    for behind in behind {
                        let taken = self.guarded(behind, |node| node.take_part(&part)).unwrap_or_default();
                        let name = &self.slots[behind].name;
                        images.extend(taken.into_iter().map(|image| (name.clone(), image)));
                    }
                    self.crossing(node, |crossing| crossing.given(to, images));
                }
                Some(Duty::Take { from, images }) => {
                    let refused = images
                        .iter()
                        .filter(|(name, (state, bytes))| self.import(name, state, bytes).is_err())
                        .count();
                    self.crossing(node, |crossing| crossing.took(from, refused));
                }
            }
        }
    }

    /// Tells each shuffle which state behind it cannot move: what says so itself, what packets of two shuffles come to,
    /// since they are not done with a move at the same time, and the order in which packets come to a shuffle by another
    /// key: those from the old owner and those from the new one would reach a third worker by two rings.
    pub(super) fn announce_bound(&mut self) {
        let crossings: Vec<usize> =
            (0..self.cx.crossings.len()).filter(|node| self.cx.crossings[*node] != 0).collect();
        let regions: Vec<Vec<usize>> = crossings.iter().map(|node| self.behind(*node)).collect();
        let keys: Vec<Option<ShuffleKey>> =
            crossings.iter().map(|node| self.crossing(*node, |crossing| crossing.key())).collect();
        for (number, (node, behind)) in crossings.iter().copied().zip(&regions).enumerate() {
            let Some(by) = keys[number] else { continue };
            let bound = behind.iter().flat_map(|behind| {
                let slot = &self.slots[*behind];
                let named = |state| BoundState { node: slot.name.clone(), state };
                let several = regions.iter().filter(|region| region.contains(behind)).count() > 1;
                let bound = slot.ask(&self.panics, self.cx.now(), |node| {
                    let follows = if several { node.follows(by) } else { Vec::new() };
                    node.bound(by).into_iter().chain(follows).collect::<Vec<_>>()
                });
                // What cannot even say: better no flow moves.
                let bound = bound.unwrap_or_else(|| vec!["(it panicked when it was asked)".into()]);
                bound.into_iter().map(named).collect::<Vec<_>>()
            });
            // Those that say `Own` have a table each.
            let alike = |other: Option<ShuffleKey>| other == Some(by) && by != ShuffleKey::Own;
            let leads_to = |other: usize| {
                behind
                    .iter()
                    .flat_map(|here| self.slots[*here].targets.iter().flatten())
                    .any(|target| target.node == other)
            };
            let parting = crossings
                .iter()
                .copied()
                .zip(keys.iter().copied())
                .filter(|(other, key)| *other != node && !alike(*key) && leads_to(*other))
                .map(|(other, _)| BoundState {
                    node: self.slots[other].name.clone(),
                    state: "(the order of its packets)".into(),
                });
            let bound = bound.chain(parting).collect();
            let bit = self.cx.crossings[node];
            let leads_here = |other: &Slot| other.crossing & !bit != 0 && other.feeds & bit != 0;
            let upstream = self.slots.iter().filter(|other| leads_here(other)).count();
            self.crossing(node, |crossing| crossing.bound(bound, upstream));
        }
    }

    /// Calls a node's part in what goes from worker to worker, where it has one.
    fn crossing<T>(&mut self, node: usize, call: impl FnOnce(&mut dyn Crossing) -> T) -> Option<T> {
        self.guarded(node, |node| node.crossing().map(call)).ok().flatten()
    }

    /// Lets queued packets through, in order.
    fn hurry(&mut self, nodes: &[usize]) {
        for node in nodes.iter().copied() {
            if !self.slots[node].keeps || self.slots[node].crossing != 0 {
                continue;
            }
            let mut held = self.held(node);
            while held > 0 {
                self.drain_node(node, |node, batch, cx| node.hurry(batch, cx));
                while !self.waiting.is_empty() {
                    self.contained(None, 1);
                }
                let left = self.held(node);
                if left >= held {
                    break;
                }
                held = left;
            }
        }
    }

    /// The nodes that a shuffle's packets may come to, and itself; not those behind the next one, which moves their state.
    fn behind(&self, node: usize) -> Vec<usize> {
        let mut reached = vec![node];
        let mut next = 0;
        while let Some(here) = reached.get(next).copied() {
            next += 1;
            for target in self.slots[here].targets.iter().flatten() {
                if !reached.contains(&target.node) && self.slots[target.node].crossing == 0 {
                    reached.push(target.node);
                }
            }
        }
        reached
    }

    /// When the graph is taken down: all workers give each other what they still have for each other. Answers whether
    /// there was anything to do.
    pub(super) fn drain_crossings(&mut self) -> bool {
        let crossings: Vec<usize> =
            (0..self.cx.crossings.len()).filter(|node| self.cx.crossings[*node] != 0).collect();
        let mut asks = 0;
        while asks < ASKS && crossings.iter().any(|node| !self.slots[*node].ended) {
            self.close_ended(true);
            let mut moved = 0;
            for node in &crossings {
                if !self.slots[*node].ended {
                    moved += self.contained(Some(*node), 1);
                    while !self.waiting.is_empty() {
                        self.contained(None, 1);
                    }
                    self.do_duties();
                }
            }
            if moved > 0 {
                asks = 0;
                self.drain_keepers();
            } else {
                asks += 1;
                std::thread::sleep(PATIENCE);
            }
            self.ready.clear();
            self.idle.clear();
        }
        for node in &crossings {
            // Given up: what it holds is counted, and its ends of the rings go with it.
            self.slots[*node].ended = true;
        }
        !crossings.is_empty()
    }
}
