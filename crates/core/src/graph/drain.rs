//! The end of a graph: nodes give up packets that they hold, and learn that no more come.
//!
//! Queued packets are passed on here too while flows move.

use std::collections::BTreeSet;

use netbricks_buffer::Batch;

use super::Graph;
use crate::context::Context;
use crate::node::{NodeQueue, Role};

/// Which nodes give up the packets that they hold, when the graph is taken down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keepers {
    /// All nodes whose packets have room at their targets.
    All,
    /// Of those, the nodes that lead to shuffles.
    BeforeShuffles,
    /// All nodes, whether there is room or not.
    Last,
}

/// The call by which a node passes packets on: [`NodeQueue::drain`] or [`NodeQueue::flush`].
pub(super) type LetGo = fn(&mut dyn NodeQueue, &mut Batch, &mut Context);

/// Rounds in which each node passes on a batch: no node holds more packets than a pool has.
const ROUNDS: usize = 1 << 16;

impl Graph {
    /// Takes the graph down.
    ///
    /// Sources are no longer polled, nodes give up packets that they hold, and everything runs to completion.
    /// Answers how many packets are still held, which is 0 unless a port cannot send.
    pub fn drain(&mut self, now: u64) -> u64 {
        self.cx.advance(now);
        self.ready.clear();
        self.clear_tenants();
        self.idle.clear();
        self.sleeping.clear();
        self.parked.clear();
        self.timers.clear();
        self.draining = true;
        self.set_deadline();
        while !self.waiting.is_empty() {
            self.contained(None, 1);
        }
        if self.cx.handoffs.is_empty() {
            // Nodes that fill queues wait for them first.
            self.drain_keepers(Keepers::All);
            self.drain_keepers(Keepers::Last);
        } else {
            let mut held_up = self.drain_keepers(Keepers::All);
            let given_up = self.drain_handoffs(&mut held_up);
            self.drain_keepers(Keepers::Last);
            // Also for shuffles that hold nothing: packets that other workers gave them have nowhere to go.
            for shuffle in given_up {
                self.let_go_once(shuffle, |queue, batch, cx| queue.drain(batch, cx));
            }
        }
        self.totals().held
    }

    /// Makes nodes give up packets that they hold, and tells nodes that no more packets come.
    ///
    /// A node holds back where its packets would come to a shuffle that waits for room and may still get it.
    /// Answers whether packets are held up.
    pub(super) fn drain_keepers(&mut self, keepers: Keepers) -> bool {
        loop {
            let mut nodes = self.downstream_first();
            nodes.retain(|node| {
                let slot = &self.slots[*node];
                slot.keeps
                    && (slot.handoff == 0 || slot.ended)
                    && (keepers != Keepers::BeforeShuffles || slot.feeds != 0 || slot.queue.is_some())
            });
            // Shuffles that were given up are last: packets that wait there have nowhere to go.
            nodes.sort_by_key(|node| self.slots[*node].handoff != 0);
            let held_up =
                self.let_go(&nodes, |queue, batch, cx| queue.drain(batch, cx), keepers != Keepers::Last);
            if keepers != Keepers::BeforeShuffles {
                self.drain_transmits();
            }
            if !self.tell_ends(keepers == Keepers::Last) {
                return held_up;
            }
        }
    }

    /// Makes these nodes, given downstream first, pass on a batch each, in turn, for as long as any does.
    ///
    /// So there is room for the packets that come to them. Where it is `patient`, nodes hold back whose
    /// packets would come to a shuffle that waits for room. Answers whether there were any.
    pub(super) fn let_go(&mut self, nodes: &[usize], how: LetGo, patient: bool) -> bool {
        // Bounded: a node that never gives up its packets keeps them, and the totals then show them.
        for _ in 0..ROUNDS {
            let (mut any, mut held_up) = (false, false);
            for node in nodes.iter().copied() {
                let held = self.held(node);
                if held == 0 {
                    continue;
                }
                if patient && self.is_held_up(node) {
                    held_up = true;
                    continue;
                }
                self.let_go_once(node, how);
                any |= self.held(node) < held;
            }
            if !any {
                return held_up;
            }
        }
        false
    }

    fn let_go_once(&mut self, node: usize, how: LetGo) {
        self.drain_node(node, how);
        while !self.waiting.is_empty() {
            self.contained(None, 1);
        }
    }

    /// Drains transmit queues: the device may have packets of a queue that holds none.
    fn drain_transmits(&mut self) {
        for node in 0..self.slots.len() {
            if self.slots[node].role != Role::Transmit {
                continue;
            }
            for _ in 0..ROUNDS {
                let before = self.held(node);
                self.let_go_once(node, |queue, batch, cx| queue.drain(batch, cx));
                if before == 0 {
                    break;
                }
            }
        }
    }

    /// Tells nodes without packets that wait for more that no more come.
    ///
    /// These are nodes to which no open shuffle and no node with packets leads, or all nodes at the very end.
    /// Answers whether there were any.
    pub(super) fn tell_ends(&mut self, all: bool) -> bool {
        let mut any = false;
        for node in self.downstream_first().into_iter().rev() {
            if !self.has_untold_end(node) || !all && self.is_fed(node) {
                continue;
            }
            self.slots[node].told = true;
            any = true;
            // A node that panics counts as told.
            let _told = self.guarded(node, |node| node.state(|state| state.end()));
        }
        any
    }

    /// Whether a node waits to be told of its end.
    pub(super) fn has_untold_end(&self, node: usize) -> bool {
        let slot = &self.slots[node];
        slot.has_end && !slot.keeps && slot.role != Role::Transmit && !slot.told
    }

    /// Whether packets may still come to a node, or to another place of the same function.
    fn is_fed(&self, node: usize) -> bool {
        let state = self.slots[node].state;
        (0..self.slots.len()).any(|other| {
            let slot = &self.slots[other];
            let feeds = if slot.handoff != 0 { !slot.ended } else { slot.keeps && self.held(other) > 0 };
            feeds && self.behind(other).iter().any(|reached| self.slots[*reached].state == state)
        })
    }

    /// Whether a node can learn of its end only after this shuffle was closed.
    ///
    /// This is so where packets from other workers come to another place of the same function. It is also so
    /// where they come to nodes that wait for their own end before another such shuffle. Two that waited for
    /// each other would wait for ever.
    pub(super) fn ends_after(&self, node: usize, shuffle: usize) -> bool {
        let mut shuffles = vec![shuffle];
        let mut next = 0;
        while let Some(here) = shuffles.get(next).copied() {
            next += 1;
            for reached in self.behind(here) {
                let state = self.slots[reached].state;
                if state == self.slots[node].state {
                    return true;
                }
                let places = (0..self.slots.len()).filter(|place| self.slots[*place].state == state);
                for feeds in
                    places.filter(|place| self.has_untold_end(*place)).map(|place| self.slots[place].feeds)
                {
                    let fed = (0..self.slots.len()).filter(|other| self.slots[*other].handoff & feeds != 0);
                    let new: Vec<usize> = fed.filter(|other| !shuffles.contains(other)).collect();
                    shuffles.extend(new);
                }
            }
        }
        false
    }

    /// All nodes, each after those that its packets may reach, except for cycles.
    pub(super) fn downstream_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.slots.len());
        let mut seen = BTreeSet::new();
        for first in 0..self.slots.len() {
            // Nodes on the way, each with its next way out.
            let mut way = Vec::new();
            if seen.insert(first) {
                way.push((first, 0));
            }
            while let Some((node, next)) = way.last_mut() {
                let targets = &self.slots[*node].targets;
                if *next == targets.len() {
                    order.push(*node);
                    way.pop();
                    continue;
                }
                *next += 1;
                if let Some(target) = &targets[*next - 1]
                    && seen.insert(target.node)
                {
                    way.push((target.node, 0));
                }
            }
        }
        order
    }
}
