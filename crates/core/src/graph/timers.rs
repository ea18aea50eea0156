//! Nodes that wait for a time.
//!
//! Functions with events get their turns on time: before a source may bring packets that arrived later.

use std::cmp::Reverse;

use super::{Graph, Turn};
use crate::node::Role;

impl Graph {
    /// Makes every idle schedulable node ready: for a worker that slept or backed off.
    pub fn wake(&mut self) {
        if self.tenants.is_none() {
            return self.ready.append(&mut self.idle);
        }
        for node in std::mem::take(&mut self.idle) {
            self.push_ready(node);
        }
    }

    /// Stops asking ports for packets; the rest goes on. Nodes that bring packets from other workers do too.
    pub fn suspend(&mut self) {
        self.suspended = true;
        let receives = |node: &usize| self.slots[*node].role == Role::Receive;
        let sleeping = self.sleeping.drain().map(|Reverse(entry)| entry);
        let (parked, sleeping): (Vec<_>, Vec<_>) = sleeping.partition(|(_, node)| receives(node));
        let ready = self.ready.iter().chain(&self.idle).copied().filter(|node| receives(node));
        self.parked.extend(ready.chain(parked.into_iter().map(|(_, node)| node)));
        self.ready.retain(|node| !receives(node));
        self.idle.retain(|node| !receives(node));
        self.sleeping.extend(sleeping.into_iter().map(Reverse));
    }

    /// Asks ports for packets again.
    pub fn resume(&mut self) {
        self.suspended = false;
        for node in std::mem::take(&mut self.parked) {
            self.push_ready(node);
        }
    }

    /// Whether ports are not asked.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub(super) fn rest(&mut self) -> Turn {
        if self.close_ended(false) {
            return Turn::Moved(0);
        }
        let next = self.sleeping.peek().map(|Reverse((time, _))| *time);
        let next = next.into_iter().chain(self.next_release()).min();
        let nothing = self.idle.is_empty() && next.is_none() && !self.has_ready() && self.timers.is_empty();
        // Once every source has ended, a node that still wants turns has work only as long as it holds
        // packets.
        let ended = self.has_sources && self.sources == 0;
        if nothing && self.parked.is_empty()
            || ended && (0..self.slots.len()).all(|node| self.slots[node].stopped || self.held(node) == 0)
        {
            Turn::Done
        } else if self.cx.knows_time() {
            Turn::Idle(next.into_iter().chain(self.next_event()).min())
        } else if self.has_sources || self.timers.is_empty() {
            // Events wait until a source sets the time.
            Turn::Idle(next)
        } else {
            self.cx.began = true;
            Turn::Moved(0)
        }
    }

    #[inline(always)]
    pub(super) fn wake_due(&mut self) {
        while let Some(Reverse((time, node))) = self.sleeping.peek().copied() {
            if time > self.cx.now() {
                break;
            }
            self.sleeping.pop();
            self.push_ready(node);
        }
    }

    /// Runs all events that are due, earliest first, and their packets to completion; answers how many
    /// packets moved.
    #[cold]
    pub(super) fn run_due(&mut self) -> u64 {
        if !self.cx.knows_time() {
            return 0;
        }
        // A sample would count the cycles of events as their node's cycles for packets.
        self.sampled = self.observed;
        let mut moved = 0;
        while let Some(Reverse((time, node))) = self.timers.peek().copied() {
            if time > self.cx.now() {
                break;
            }
            self.timers.pop();
            let packets = self.contained(Some(node), 1);
            self.charge_event(node, packets);
            moved += packets;
        }
        self.set_deadline();
        moved
    }

    /// Asks a node again when its next event is due.
    ///
    /// Does nothing where no event runs any more: packets that come with their time would wait for the event
    /// for ever.
    pub(super) fn rearm(&mut self, node: usize) {
        if self.draining {
            return;
        }
        self.timers.retain(|Reverse((_, other))| *other != node);
        let schedule = self.slots[node].schedule(&self.panics, self.cx.now());
        let next = schedule.and_then(|schedule| schedule.next());
        self.timers.extend(next.map(|time| Reverse((time, node))));
        self.set_deadline();
    }

    /// Tells sources when the next event is due.
    pub(super) fn set_deadline(&mut self) {
        self.cx.deadline = self.next_event().unwrap_or(u64::MAX);
    }

    /// When the next event is due (ns).
    pub(super) fn next_event(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((time, _))| *time)
    }
}
