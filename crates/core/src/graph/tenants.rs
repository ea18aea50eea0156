//! Turns of a graph that tenants share: the operator's nodes between the slices of tenants.

use netbricks_tables::cycles;

use super::Graph;
use crate::tenants::{TenantEvent, TenantStatus, ThreadClock};

impl Graph {
    /// Makes a node ready, at the end of its owner's list.
    #[inline(always)]
    pub(super) fn push_ready(&mut self, node: usize) {
        let owner = self.slots[node].owner;
        match &mut self.tenants {
            Some(tenants) if owner > 0 => tenants.ready(owner, node),
            _ => self.ready.push_back(node),
        }
    }

    /// Whether a node is ready, its tenant's ceiling aside.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.tenants.as_ref().is_some_and(|tenants| tenants.has_work())
    }

    pub(super) fn is_ready(&self, node: usize) -> bool {
        let owner = self.slots[node].owner;
        self.ready.contains(&node)
            || self.tenants.as_ref().is_some_and(|tenants| tenants.contains(owner, node))
    }

    /// The next schedulable node of a graph with tenants.
    ///
    /// The operator's nodes, such as ports, have a turn each, and one idle node is asked; then a tenant has its
    /// slice. Where packets drive the clock, the operator's nodes wait until no tenant has work: a replay can wait.
    pub(super) fn next_among_tenants(&mut self) -> Option<usize> {
        let mut tenants = self.tenants.take()?;
        let node = self.next_of(&mut tenants);
        self.tenants = Some(tenants);
        node
    }

    fn next_of(&mut self, tenants: &mut crate::tenants::scheduler::Scheduler) -> Option<usize> {
        let held_up = self.cx.blocked != 0;
        let operator_first = !tenants.by_packets;
        if operator_first
            && tenants.operator_turns > 0
            && let Some(node) = self.next_of_operator(held_up, tenants.operator_turns == 1)
        {
            tenants.operator_turns -= 1;
            return Some(node);
        }
        let mut chosen = None;
        // Where a slice ends, there is no tenant for a moment: the operator's nodes come in between.
        for _ in 0..2 {
            while let Some(tenant) = tenants.current() {
                if let Some(node) = tenants.pop(tenant, |node| !held_up || !self.is_held_up(node)) {
                    chosen = Some(node);
                    break;
                }
                // All its nodes lead to something that is full. Others may run meanwhile.
                tenants.set_aside();
            }
            let ended = chosen.is_none();
            if ended && operator_first {
                tenants.operator_turns = self.ready.len() + 1;
                let node = self.next_of_operator(held_up, tenants.operator_turns == 1);
                if node.is_some() {
                    tenants.operator_turns -= 1;
                    chosen = node;
                }
            }
            if chosen.is_some() {
                break;
            }
        }
        tenants.take_back();
        chosen.or_else(|| self.next_of_operator(held_up, false))
    }

    /// The operator's next node that is ready; `idle_first` asks one that had nothing before that.
    fn next_of_operator(&mut self, held_up: bool, idle_first: bool) -> Option<usize> {
        for idle in [idle_first, !idle_first] {
            let queue = if idle { &mut self.idle } else { &mut self.ready };
            if !held_up && let Some(node) = queue.pop_front() {
                return Some(node);
            }
            let queue = if idle { &self.idle } else { &self.ready };
            let place = queue.iter().position(|node| !held_up || !self.is_held_up(*node));
            if let Some(place) = place {
                let queue = if idle { &mut self.idle } else { &mut self.ready };
                return queue.remove(place);
            }
        }
        None
    }

    /// Charges the turn that just ended to the owner of its node.
    #[inline(always)]
    pub(super) fn charge(&mut self, node: usize, packets: u64) {
        if let Some(tenants) = &mut self.tenants {
            tenants.charge(self.slots[node].owner, cycles::now(), packets);
        }
    }

    /// As [`charge`](Self::charge), for a turn that a timer brought.
    pub(super) fn charge_event(&mut self, node: usize, packets: u64) {
        if let Some(tenants) = &mut self.tenants {
            tenants.charge_event(self.slots[node].owner, cycles::now(), packets);
        }
    }

    /// The cycle counter before a call of a node, where its owner is charged for that.
    pub(super) fn before_call(&self) -> u64 {
        if self.tenants.is_some() { cycles::now() } else { 0 }
    }

    /// Charges a call of a node that began [then](Self::before_call) to its owner.
    pub(super) fn charge_call(&mut self, node: usize, began: u64) {
        if let Some(tenants) = &mut self.tenants {
            tenants.charge_call(self.slots[node].owner, began, cycles::now());
        }
    }

    /// Compares the tenants' time with that of the worker's thread from now on, where they have any.
    ///
    /// Without it, time that the system took the core away counts as the tenants'.
    pub fn follow_thread(&mut self, clock: ThreadClock) {
        if let Some(tenants) = &mut self.tenants {
            tenants.follow_thread(clock);
        }
    }

    /// Begins a round of turns: what came before it is charged to none.
    #[inline(always)]
    pub fn begin_round(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.restart(cycles::now());
        }
    }

    /// Whether tenants share it.
    #[inline(always)]
    pub fn has_tenants(&self) -> bool {
        self.tenants.is_some()
    }

    /// Begins the time of the next [correction](Self::correct_time) now, since the worker has rested.
    pub fn restart_correction(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.restart_correction(cycles::now());
        }
    }

    /// Whether to call [`correct_time`](Self::correct_time) and [`take_tenant_events`](Self::take_tenant_events) now.
    #[inline(always)]
    pub fn is_correction_due(&self) -> bool {
        self.tenants.as_ref().is_some_and(|tenants| tenants.is_correction_due())
    }

    /// Gives tenants back the time that the worker's thread did not run, by [its clock](Self::follow_thread).
    pub fn correct_time(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.correct();
        }
    }

    /// Each tenant's use of this worker, in the order of their owners' numbers.
    pub fn tenants(&self) -> Vec<TenantStatus> {
        self.tenants.as_ref().map(|tenants| tenants.status()).unwrap_or_default()
    }

    /// The events of tenants since the last call, oldest first, at most 16.
    pub fn take_tenant_events(&mut self) -> Vec<TenantEvent> {
        self.tenants.as_mut().map(|tenants| tenants.take_events()).unwrap_or_default()
    }

    /// When a tenant that its ceiling holds back may run (ns).
    pub(super) fn next_release(&self) -> Option<u64> {
        let wait = self.tenants.as_ref()?.next_release()?;
        Some(self.cx.now().saturating_add(wait))
    }

    /// Goes on with the counts of the tenants of the graph before.
    pub(super) fn follow_tenants(&mut self, before: &Self) {
        if let (Some(tenants), Some(before)) = (&mut self.tenants, &before.tenants) {
            tenants.follow(before);
        }
    }

    pub(super) fn clear_tenants(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.clear();
        }
    }
}
