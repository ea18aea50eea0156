//! Turns of a graph with watches: a copy of the loop over nodes that looks at packets between them.

use super::asked::held as held_by;
use super::run::{ROUNDS, ask_before};
use super::{Graph, Running, Target, Waiting};
use crate::node::Role;
use crate::observer::{Leave, Observer, Sightings, Watch};
use std::sync::atomic::Ordering;

/// In [`Waiting::hops`]: the packets were looked at as they came to the node.
const LOOKED_AT: u32 = 1 << 31;

impl Graph {
    /// Adds a watch over its packets, between two batches.
    pub fn watch(&mut self, watch: Watch) {
        let mut observer = self.cx.observer.take().unwrap_or_else(|| Box::new(self.observer()));
        observer.arm(watch);
        self.observe(Some(observer));
    }

    /// Removes a watch, between two batches.
    pub fn unwatch(&mut self, id: u64) {
        let Some(mut observer) = self.cx.observer.take() else { return };
        observer.disarm(id);
        self.observe(Some(observer).filter(|observer| !observer.is_idle()));
    }

    /// Takes the sightings of a watch, and leaves an empty set in their place.
    ///
    /// `None` where there is no such watch.
    pub fn take_sightings(&mut self, id: u64, empty: Sightings) -> Option<Sightings> {
        self.cx.observer.as_mut()?.take(id, empty)
    }

    /// Takes over the watches of the graph before this one, with what they have seen.
    ///
    /// A watch of nodes that this graph does not have sees nothing until it has them again.
    pub fn take_watches_over(&mut self, before: &mut Self) {
        let Some(mut old) = before.cx.observer.take() else { return };
        before.observe(None);
        let mut observer = self.cx.observer.take().unwrap_or_else(|| Box::new(self.observer()));
        observer.follow(&mut old);
        self.observe(Some(observer));
    }

    fn observer(&self) -> Observer {
        Observer::new(self.slots.iter().map(|slot| {
            let ways = slot.outputs.iter().filter(|output| output.edge != crate::Edge::OUT);
            (&*slot.name, slot.role, ways.map(|output| (output.edge, output.name.to_string())).collect())
        }))
    }

    fn observe(&mut self, observer: Option<Box<Observer>>) {
        self.observed = observer.is_some();
        self.sampled = self.observed;
        self.cx.recorder.show_all(self.observed);
        self.cx.observer = observer;
        if !self.observed {
            self.waiting.iter_mut().for_each(|waiting| waiting.hops &= !LOOKED_AT);
        }
    }

    /// As [`follow`](Graph::follow), for a graph with watches.
    #[inline(never)]
    pub(super) fn follow_observed(&mut self, target: Target, hops: u32) {
        let Target { mut node, mut input } = target;
        let limit = ROUNDS * self.slots.len() as u32;
        let (mut hops, mut looked_at) = (hops & !LOOKED_AT, hops & LOOKED_AT != 0);
        loop {
            hops += 1;
            if hops > limit {
                self.went_round(node);
                return;
            }
            let now = self.cx.now();
            if let Some(observer) = self.cx.observer.as_mut().filter(|_| !looked_at) {
                observer.enter(node, now, &mut self.hand);
            }
            looked_at = false;
            self.isolate(Target { node, input }, hops);
            let (packets, bytes) = (self.hand.len() as u64, self.hand.bytes());
            self.running = Running { hops, entered: packets, entered_bytes: bytes, held: 0, polled: false };
            self.cx.node = node;
            self.called.store(node, Ordering::Relaxed);
            let slot = &mut self.slots[node];
            if slot.keeps {
                ask_before(slot, &mut self.running);
            }
            slot.counters.batches += 1;
            slot.counters.arrived.add(packets, bytes);
            slot.node.get_mut().process(input, &mut self.hand, &mut self.cx);
            let out = slot.out;
            if !self.hand.is_empty() {
                slot.counters.left.add(self.hand.len() as u64, self.hand.bytes());
            }
            self.look_behind(node);
            if self.cx.effects != 0 {
                self.settle(node);
            }
            if self.hand.is_empty() {
                return;
            }
            let Some(next) = out else { return self.nowhere(node) };
            if self.slots[next.node].open.is_some() {
                // Packets that already wait there came first.
                return self.wait(next, hops);
            }
            Target { node, input } = next;
        }
    }

    /// Leaves in the hand a traced packet alone, or the packets before the first traced one.
    ///
    /// The rest is the next batch that runs, so that the order stays.
    fn isolate(&mut self, target: Target, hops: u32) {
        let Some(observer) = self.cx.observer.as_mut() else { return };
        let traced = self.hand.iter().position(|packet| observer.follows(packet));
        let Some(first) = traced else { return };
        if self.hand.len() > 1 {
            let mut rest = self.spare.pop().unwrap_or_default();
            self.hand.split_into(first.max(1), &mut rest);
            if rest.is_empty() {
                self.spare.push(rest);
            } else {
                self.serial = self.serial.wrapping_sub(1);
                self.waiting.push_front(Waiting { target, hops: (hops - 1) | LOOKED_AT, batch: rest });
            }
        }
        let Some(packet) = self.hand.get(0).filter(|_| first == 0) else { return };
        let Some(number) = packet.trace() else { return };
        observer.isolate(number);
        let slot = &self.slots[target.node];
        let frame = packet.data();
        let said = slot.ask(&self.panics, self.cx.now, |node| {
            node.state(|state| state.explain(frame, &mut observer.sentence()))
        });
        if !matches!(said, Some(None | Some(Ok(())))) {
            observer.unsay();
        }
    }

    /// Looks at the packets that a node has processed.
    fn look_behind(&mut self, node: usize) {
        let (now, slot) = (self.cx.now(), &self.slots[node]);
        let holds_more = || {
            let held = slot.ask(&self.panics, now, |node| held_by(node));
            slot.keeps && held.is_some_and(|held| held > self.running.held)
        };
        let vanished = if slot.role == Role::Transmit {
            // It may still wait there, for the device or for another worker's queue.
            Leave::Sent
        } else if self.cx.handoff_out.packets > 0 {
            Leave::HandedOver
        } else if holds_more() {
            Leave::Held
        } else {
            Leave::Absorbed
        };
        let (hand, cx) = (&mut self.hand, &mut self.cx);
        if let Some(observer) = &mut cx.observer {
            observer.leave(node, now, hand, &cx.leaving);
            observer.departed(node, now, hand, &mut cx.leaving, vanished);
        }
    }

    /// Looks at the packets that a node's turn has brought.
    #[cold]
    pub(super) fn look_at_turn(&mut self, node: usize) {
        let (now, role) = (self.cx.now(), self.slots[node].role);
        let (hand, cx) = (&mut self.hand, &mut self.cx);
        let Some(observer) = &mut cx.observer else { return };
        if role == Role::Receive {
            observer.enter(node, now, hand);
        } else {
            observer.leave(node, now, hand, &cx.leaving);
            observer.released(node, now, hand, &cx.leaving);
        }
    }

    /// Notes the end of a traced packet whose node panicked.
    pub(super) fn look_at_panic(&mut self, node: usize) {
        let now = self.cx.now();
        if let Some(observer) = &mut self.cx.observer {
            observer.panicked(node, now);
        }
    }
}
