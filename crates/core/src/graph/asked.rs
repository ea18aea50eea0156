//! Calls of nodes outside their turns: questions, calls of the control side, and their end.
//!
//! All of it is authors' code. A panic there costs an answer, or the state of one node, and never the graph.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::contain::{Caught, Panic, contain};
use super::{Graph, Running, Slot};
use crate::context::Context;
use crate::events::Schedule;
use crate::node::{CallError, Node, NodeState, Section};
use crate::steps::Steps;
use netbricks_buffer::Batch;

/// Panics kept for the report; older ones are only counted.
const KEPT: usize = 16;

/// The last panics of a graph's nodes.
pub(super) struct Panics(RefCell<VecDeque<Panic>>);

impl Panics {
    pub(super) fn new() -> Self {
        Self(RefCell::new(VecDeque::with_capacity(KEPT)))
    }

    pub(super) fn push(&self, panic: Panic) {
        let mut panics = self.0.borrow_mut();
        if panics.len() == KEPT {
            panics.pop_front();
        }
        panics.push_back(panic);
    }

    #[inline(always)]
    pub(super) fn take(&mut self) -> Vec<Panic> {
        self.0.get_mut().drain(..).collect()
    }
}

/// In the place of a node that is gone.
struct Gone;

impl Node for Gone {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
}

/// The number of packets that a node keeps, as it says itself.
#[inline(always)]
pub(super) fn held(node: &mut dyn Node) -> u64 {
    node.as_queue().map_or(0, |queue| queue.held())
}

/// Counts and keeps a panic of this node that cost no packets.
pub(super) fn note(
    name: &str,
    unanswered: &Cell<u64>,
    panics: &Panics,
    time: u64,
    Caught { message, place }: Caught,
) {
    unanswered.set(unanswered.get() + 1);
    panics.push(Panic {
        node: name.to_owned(),
        message,
        place,
        packets: 0,
        time,
        rebuilt: false,
        quarantine: None,
    });
}

impl Slot {
    /// The node's answer, or `None` where it panics, which is counted and kept.
    ///
    /// The node goes on, since the call could not change it.
    pub(super) fn ask<T>(
        &self,
        panics: &Panics,
        now: u64,
        question: impl FnOnce(&mut dyn Node) -> T,
    ) -> Option<T> {
        match contain(|| question(self.node.borrow_mut().as_mut())) {
            Ok(answer) => Some(answer),
            Err(caught) => {
                self.note(panics, now, caught);
                None
            }
        }
    }

    /// As [`ask`](Self::ask), about the node's state. Of nodes that share state, only the first answers.
    pub(super) fn ask_state<T>(
        &self,
        panics: &Panics,
        now: u64,
        question: impl FnOnce(&mut dyn NodeState) -> T,
    ) -> Option<T> {
        if !self.speaks {
            return None;
        }
        self.ask(panics, now, |node| node.state(question)).flatten()
    }

    /// The schedule of the node's events, unless it has none or another node runs them.
    pub(super) fn schedule(&self, panics: &Panics, now: u64) -> Option<Schedule> {
        self.ask_state(panics, now, |state| state.schedule()).flatten()
    }

    /// Counts and keeps a panic that cost no packets.
    pub(super) fn note(&self, panics: &Panics, now: u64, caught: Caught) {
        note(&self.name, &self.unanswered, panics, now, caught);
    }

    /// Packets that the node keeps: as it says, or as its counters must have it where it cannot say.
    pub(super) fn held(&self, panics: &Panics, now: u64) -> u64 {
        if !self.keeps {
            return 0;
        }
        let held = if self.uncertain { None } else { self.ask(panics, now, |node| held(node)) };
        held.unwrap_or_else(|| self.counters.balance())
    }

    /// A source can say again what it keeps: all of that has arrived.
    #[cold]
    pub(super) fn made_certain(&mut self, held: u64) {
        self.uncertain = false;
        let more = held.saturating_sub(self.counters.balance());
        self.counters.received.add(more, 0);
    }
}

/// Each node is dropped alone.
///
/// Where several panic in their drop, the second does so before the first one's panic goes anywhere.
impl Drop for Slot {
    fn drop(&mut self) {
        let _ended = self.end();
    }
}

impl Slot {
    fn end(&mut self) -> Result<(), Caught> {
        let node: Box<dyn Node> = std::mem::replace(self.node.get_mut(), Box::new(Gone));
        let origin = self.origin.take();
        let ended = contain(|| drop(node));
        // Captured settings are an author's as well.
        ended.and(contain(|| drop(origin)))
    }
}

impl Graph {
    /// Begins a call of a node's handler that is answered in [steps](Steps); `None` where the node has none.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_steps(
        &mut self,
        node: &str,
        handler: &str,
        argument: &str,
    ) -> Option<Result<Steps<String>, CallError>> {
        let ask = |node: &mut dyn Node| node.state(|state| state.call_steps(handler, argument)).flatten();
        match self.step(node, handler, ask)? {
            Ok(begun) => begun,
            Err(panicked) => Some(Err(panicked)),
        }
    }

    /// Begins a node's part of the report.
    pub fn report_steps(&self, node: &str) -> Vec<Steps<Section>> {
        let Some(slot) = self.slots.iter().find(|slot| slot.name == node) else { return Vec::new() };
        let now = self.now();
        slot.ask_state(&self.panics, now, |state| state.report_steps(now)).unwrap_or_default()
    }

    /// Makes a step of a node's part of the report; `None` where it panics or the node is gone.
    pub fn report_step<T>(&self, node: &str, step: impl FnOnce() -> T) -> Option<T> {
        let slot = self.slots.iter().find(|slot| slot.name == node)?;
        slot.ask(&self.panics, self.now(), |_| step())
    }

    /// Makes a step of a call of this handler, on the account of the node's owner.
    ///
    /// # Errors
    /// [`CallError`] where there is no such node, or the step panics.
    pub fn call_step<T>(
        &mut self,
        node: &str,
        handler: &str,
        step: impl FnOnce() -> T,
    ) -> Result<T, CallError> {
        let stepped = self.step(node, handler, |_| step());
        stepped.unwrap_or_else(|| Err(CallError::Unknown { name: node.into(), known: String::new() }))
    }

    fn step<T>(
        &mut self,
        node: &str,
        handler: &str,
        step: impl FnOnce(&mut dyn Node) -> T,
    ) -> Option<Result<T, CallError>> {
        let place = self.slots.iter().position(|slot| slot.name == node)?;
        let began = self.before_call();
        let stepped = self
            .guarded(place, step)
            .map_err(|caught| CallError::Panicked { name: handler.into(), message: caught.message });
        self.charge_call(place, began);
        Some(stepped)
    }

    /// Packets that a node keeps.
    pub(super) fn held(&self, node: usize) -> u64 {
        self.slots[node].held(&self.panics, self.cx.now())
    }

    /// Calls a node between batches, contained.
    ///
    /// A panic may leave its state half-changed: the node is rebuilt, and the panic's message is the answer.
    pub(super) fn guarded<T>(
        &mut self,
        node: usize,
        call: impl FnOnce(&mut dyn Node) -> T,
    ) -> Result<T, Caught> {
        self.running = Running { held: self.held(node), ..Running::default() };
        self.cx.node = node;
        let answer = contain(|| call(self.slots[node].node.get_mut().as_mut()));
        if let Err(caught) = &answer {
            self.clear_up(caught.clone());
        }
        answer
    }

    /// Whether nodes have said so since [`take_failures`](Self::take_failures) was called last.
    #[inline(always)]
    pub fn has_failures(&self) -> bool {
        !self.cx.failed.is_empty()
    }

    /// Nodes that said since the last call that they [cannot do their work](Context::fail), and why.
    pub fn take_failures(&mut self) -> Vec<(String, String)> {
        let named = |(node, problem): (usize, String)| {
            let name = self.slots.get(node).map_or_else(String::new, |slot| slot.name.clone());
            (name, problem)
        };
        std::mem::take(&mut self.cx.failed).into_iter().map(named).collect()
    }

    /// Drops the nodes one by one; returns panics in that, which cost nothing any more.
    ///
    /// Dropping the graph does the same, without an answer.
    pub fn take_down(mut self) -> Vec<Panic> {
        let time = self.cx.now();
        let mut panics = Vec::new();
        for mut slot in std::mem::take(&mut self.slots) {
            if let Err(Caught { message, place }) = slot.end() {
                let node = slot.name.clone();
                panics.push(Panic {
                    node,
                    message,
                    place,
                    packets: 0,
                    time,
                    rebuilt: false,
                    quarantine: None,
                });
            }
        }
        panics
    }
}
