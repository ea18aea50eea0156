//! One turn: a schedulable node is polled and its packets run to completion, contained.

use std::any::Any;
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use netbricks_buffer::{Batch, Packet};
use netbricks_tables::cycles;

use super::asked::held as held_by;
use super::contain::{Caught, Containing, Panic, account, contain};
use super::drain::LetGo;
use super::{Graph, Running, Slot, Target, Turn, Waiting};
use crate::context::{DROPPED, EMITTED, HANDED_OFF, Leaving, MIGRATION_REQUESTED, SENT, WOKEN};
use crate::events::Schedule;
use crate::node::{Node, Poll, Role};
use crate::reason::{DropReason, Edge};

/// One turn in so many is timed node by node.
///
/// Reading the time stamp counter at every boundary would cost more than the boundary itself (some 25 cycles
/// each). The number is a prime, so that each of two or four nodes that alternate is timed.
const SAMPLE: u64 = 61;
/// Panics in a row after which a schedulable node gets no more turns.
const STRIKES: u8 = 64;
/// Rounds that a packet may go in a cycle within one turn.
pub(super) const ROUNDS: u32 = 16;
/// While others are busy, idle sources are asked once in so many turns.
pub(super) const ASK_IDLE: u64 = 8;

impl Graph {
    /// Gives the next schedulable node its turn at time `now` (ns) and runs its packets to completion.
    pub fn turn(&mut self, now: u64) -> Turn {
        self.turns(now, 1).0
    }

    /// As [`turn`](Self::turn), for up to `most` turns (at least one) while only the same busy source has
    /// work.
    ///
    /// The work around a turn is then done once for all of them. Answers the result of all turns together,
    /// and their number.
    pub fn turns(&mut self, now: u64, most: u32) -> (Turn, u32) {
        self.cx.advance(now);
        if !self.quarantined.is_empty() {
            self.release_quarantined();
        }
        if !self.waiting.is_empty() {
            // A panic ended the turn before: batches that waited go on first.
            return (Turn::Moved(self.contained(None, 1)), 1);
        }
        let mut by_events = 0;
        if self.cx.deadline <= self.cx.now() {
            by_events = self.run_due();
            if !self.waiting.is_empty() {
                // A panic followed an event: batches that wait go on first.
                return (Turn::Moved(by_events), 1);
            }
        }
        let worked = !self.moves.is_idle() && self.run_migrations(false);
        self.wake_due();
        let Some(node) = self.next_schedulable() else {
            return (if by_events > 0 || worked { Turn::Moved(by_events) } else { self.rest() }, 1);
        };
        let before = self.turns;
        self.count_turn();
        let packets = self.contained(Some(node), most);
        self.charge(node, packets);
        let moved = by_events + packets;
        let turns = (self.turns - before) as u32;
        if worked {
            self.idle_turns = 0;
            return (Turn::Moved(moved), turns);
        }
        // A full queue empties in a turn of its own; a shuffle that waits for other workers cannot.
        if moved == 0 && self.cx.blocked & !self.queue_bits != 0 {
            return (self.rest(), turns);
        }
        self.idle_turns = if moved > 0 { 0 } else { self.idle_turns + 1 };
        // The graph is idle only when every schedulable node in turn had nothing.
        if self.has_ready() || self.idle_turns < self.idle.len() || self.idle.is_empty() {
            return (Turn::Moved(moved), turns);
        }
        self.idle_turns = 0;
        (if moved > 0 { Turn::Moved(moved) } else { self.rest() }, turns)
    }

    #[inline(always)]
    fn next_schedulable(&mut self) -> Option<usize> {
        if self.tenants.is_some() {
            return self.next_among_tenants();
        }
        if self.cx.blocked != 0 {
            return self.next_unblocked();
        }
        if self.turns.is_multiple_of(ASK_IDLE)
            && let Some(node) = self.idle.pop_front()
        {
            return Some(node);
        }
        if self.ready.len() == 1 {
            // A single busy source keeps its place: taking it out and putting it back costs as much as a
            // node.
            self.in_place = true;
            return self.ready.front().copied();
        }
        self.ready.pop_front().or_else(|| self.idle.pop_front())
    }

    /// Runs with every panic contained; answers how many packets moved.
    #[inline(always)]
    pub(super) fn contained(&mut self, schedulable: Option<usize>, most: u32) -> u64 {
        let _containing = Containing::enter();
        match catch_unwind(AssertUnwindSafe(|| self.run(schedulable, most))) {
            Ok(moved) => moved,
            Err(payload) => {
                self.clear_up(account(payload));
                1
            }
        }
    }

    fn run(&mut self, schedulable: Option<usize>, most: u32) -> u64 {
        let Some(node) = schedulable else { return self.run_waiting() };
        let (mut moved, mut left) = (0, most);
        loop {
            let packets = self.poll(node);
            moved += packets;
            if !self.waiting.is_empty() {
                moved += self.run_waiting();
            }
            left = left.saturating_sub(1);
            if left == 0 || packets == 0 || !self.goes_on(node) {
                return moved;
            }
            self.count_turn();
            self.in_place = true;
        }
    }

    #[inline(always)]
    fn count_turn(&mut self) {
        self.turns += 1;
        self.sampled = self.turns.is_multiple_of(SAMPLE) | self.observed;
    }

    /// Whether the next turn is the same node's, and nothing comes before it.
    #[inline(always)]
    fn goes_on(&self, node: usize) -> bool {
        self.ready.len() == 1
            && self.ready.front() == Some(&node)
            && (self.idle.is_empty() || !self.turns.is_multiple_of(ASK_IDLE))
            && self.sleeping.is_empty()
            && self.cx.deadline > self.cx.now()
            && self.moves.is_idle()
            && self.cx.blocked == 0
            && self.tenants.is_none()
    }

    fn run_waiting(&mut self) -> u64 {
        let mut moved = 0;
        while let Some(Waiting { target, hops, mut batch }) = self.waiting.pop_front() {
            let slot = &mut self.slots[target.node];
            if slot.open == Some(self.serial) {
                slot.open = None;
            }
            self.serial += 1;
            moved += batch.len() as u64;
            std::mem::swap(&mut self.hand, &mut batch);
            self.spare.push(batch);
            self.follow(target, hops);
        }
        moved
    }

    #[inline(always)]
    fn poll(&mut self, node: usize) -> u64 {
        let slot = &mut self.slots[node];
        self.running = Running { hops: 0, entered: 0, entered_bytes: 0, held: 0, polled: true };
        self.cx.node = node;
        self.called.store(node, Ordering::Relaxed);
        self.cx.burst = self.burst.min(slot.most);
        if let Some(tenants) = &self.tenants {
            self.cx.burst = tenants.most(slot.owner, self.cx.burst);
        }
        self.polled = node;
        let held = if slot.keeps { ask_before(slot, &mut self.running) } else { 0 };
        let start = if self.sampled { cycles::now() } else { 0 };
        let poll = slot.node.get_mut().poll(&mut self.hand, &mut self.cx);
        let (packets, bytes) = (self.hand.len() as u64, self.hand.bytes());
        // Asked before anything is counted, so that a panic here counts as a panic of the poll.
        let held_now =
            if slot.keeps && slot.role == Role::Receive { held_by(slot.node.get_mut().as_mut()) } else { 0 };
        let counters = &mut slot.counters;
        counters.batches += 1;
        counters.left.add(packets, bytes);
        if slot.role == Role::Receive {
            if slot.keeps || self.cx.effects != 0 {
                // A queue that delays packets has received those that it holds, and has not received its own
                // copies.
                let made = self.cx.made;
                let arrived = (packets + held_now).saturating_sub(held).saturating_sub(made.packets);
                counters.received.add(arrived, bytes.saturating_sub(made.bytes));
            } else {
                counters.received.add(packets, bytes);
            }
        }
        slot.strikes = 0;
        let timed = slot.timed;
        let in_place = std::mem::take(&mut self.in_place);
        if !(in_place && poll == Poll::Busy) {
            if in_place {
                self.ready.pop_front();
            }
            match poll {
                Poll::Busy => self.push_ready(node),
                Poll::Idle => self.idle.push_back(node),
                Poll::Until(time) if timed => self.timers.push(Reverse((time, node))),
                Poll::Until(time) => self.sleeping.push(Reverse((time, node))),
                Poll::Asleep => self.slots[node].asleep = true,
                Poll::Done => {
                    let slot = &mut self.slots[node];
                    slot.ended = true;
                    if slot.source {
                        self.sources -= 1;
                    }
                }
            }
        }
        let slot = &mut self.slots[node];
        let out = slot.out;
        if self.sampled {
            if self.observed {
                self.look_at_turn(node);
            } else {
                slot.counters.sampled_cycles += cycles::now().wrapping_sub(start);
                slot.counters.sampled_packets += packets;
            }
        }
        if self.cx.effects != 0 {
            self.settle(node);
        }
        if packets > 0 {
            match out {
                Some(target) => self.follow(target, 0),
                None => self.nowhere(node),
            }
        }
        packets
    }

    /// Runs the batch in hand along `OUT` edges, until nothing of it is left or another batch must go first.
    #[inline(always)]
    fn follow(&mut self, target: Target, hops: u32) {
        if self.sampled { self.follow_sampled(target, hops) } else { self.follow_as::<false>(target, hops) }
    }

    /// As [`follow`](Self::follow), in a turn that is timed or observed.
    #[inline(never)]
    fn follow_sampled(&mut self, target: Target, hops: u32) {
        if self.observed { self.follow_observed(target, hops) } else { self.follow_as::<true>(target, hops) }
    }

    #[inline(always)]
    fn follow_as<const TIMED: bool>(&mut self, target: Target, mut hops: u32) {
        let Target { mut node, mut input } = target;
        let limit = ROUNDS * self.slots.len() as u32;
        let mut stamp = if TIMED { cycles::now() } else { 0 };
        let mut slot = &mut self.slots[node];
        loop {
            hops += 1;
            if hops > limit {
                self.went_round(node);
                return;
            }
            let (packets, bytes) = (self.hand.len() as u64, self.hand.bytes());
            self.running = Running { hops, entered: packets, entered_bytes: bytes, held: 0, polled: false };
            self.cx.node = node;
            self.called.store(node, Ordering::Relaxed);
            if slot.keeps {
                ask_before(slot, &mut self.running);
            }
            slot.counters.batches += 1;
            slot.counters.arrived.add(packets, bytes);
            slot.node.get_mut().process(input, &mut self.hand, &mut self.cx);
            if TIMED {
                let now = cycles::now();
                slot.counters.sampled_cycles += now.wrapping_sub(stamp);
                slot.counters.sampled_packets += packets;
                stamp = now;
            }
            let out = slot.out;
            if !self.hand.is_empty() {
                slot.counters.left.add(self.hand.len() as u64, self.hand.bytes());
            }
            if self.cx.effects != 0 {
                self.settle(node);
            }
            if self.hand.is_empty() {
                return;
            }
            let Some(next) = out else { return self.nowhere(node) };
            slot = &mut self.slots[next.node];
            if slot.open.is_some() {
                // Packets that already wait there came first.
                return self.wait(next, hops);
            }
            Target { node, input } = next;
        }
    }

    /// Takes over the counts and packets of the running node: dropped, sent, emitted and created.
    #[inline(always)]
    pub(super) fn settle(&mut self, node: usize) {
        let effects = std::mem::take(&mut self.cx.effects);
        if effects & SENT != 0 {
            let counters = &mut self.slots[node].counters;
            counters.sent += std::mem::take(&mut self.cx.sent);
            counters.created += std::mem::take(&mut self.cx.made);
        }
        if effects & !SENT != 0 {
            self.settle_packets(node, effects);
        }
    }

    #[inline(never)]
    fn settle_packets(&mut self, node: usize, effects: u8) {
        if effects & (HANDED_OFF | MIGRATION_REQUESTED) != 0 {
            self.settle_handoff(node, effects);
        }
        if effects & WOKEN != 0 {
            self.wake_queue(node);
        }
        let slot = &mut self.slots[node];
        if effects & DROPPED != 0 {
            slot.counters.received += std::mem::take(&mut self.cx.lost_on_arrival);
            if let Some(tenants) = &mut self.tenants
                && self.cx.drops.has(DropReason::Preempted)
            {
                tenants.preempted(slot.owner);
            }
            self.cx.drops.move_to(&mut slot.counters.drops);
        }
        if effects & EMITTED != 0 {
            // Taken first: a panic of a node that takes packets one by one empties the context.
            let mut leaving = std::mem::take(&mut self.cx.leaving);
            if self.cx.take_newborn() > 0 {
                leaving.sort_unstable_by_key(|packet| packet.order);
            }
            self.deliver_batches(node);
            for Leaving { edge, new, packet, .. } in leaving.drain(..) {
                if new {
                    self.slots[node].counters.created.add(1, packet.wire_len() as u64);
                }
                self.deliver(node, edge, packet);
            }
            self.cx.leaving = leaving;
        }
    }

    /// Passes on the batches that leave as a whole.
    fn deliver_batches(&mut self, from: usize) {
        for place in 0..std::mem::take(&mut self.cx.batches_used) {
            let Some((edge, left)) = self.cx.leaving_batches.get_mut(place) else { return };
            let (edge, mut batch) = (*edge, std::mem::take(left));
            self.deliver_batch(from, edge, &mut batch);
            self.cx.leaving_batches[place].1 = batch;
        }
    }

    /// Puts the packets of a batch behind those that wait for the edge's other end.
    fn deliver_batch(&mut self, from: usize, edge: Edge, batch: &mut Batch) {
        let target = self.slots[from].targets.get(edge.0 as usize).copied().flatten();
        let Some(target) = target.filter(|target| !self.slots[target.node].offers) else {
            batch.drain().for_each(|packet| self.deliver(from, edge, packet));
            return;
        };
        self.slots[from].counters.left.add(batch.len() as u64, batch.bytes());
        let hops = self.running.hops;
        if let Some(waiting) = self.open_batch(target) {
            waiting.hops = waiting.hops.max(hops);
            waiting.batch.append(batch);
        }
        if !batch.is_empty() {
            let mut rest = self.spare.pop().unwrap_or_default();
            std::mem::swap(&mut rest, batch);
            self.enqueue(Waiting { target, hops, batch: rest });
        }
    }

    /// Puts a packet into the last batch that waits for the edge's other end.
    ///
    /// Only the usual case is in the caller's loop: a batch waits there, and has room.
    #[inline(always)]
    fn deliver(&mut self, from: usize, edge: Edge, packet: Packet) {
        let target = self.slots[from].targets.get(edge.0 as usize).copied().flatten();
        let bytes = packet.wire_len() as u64;
        let hops = self.running.hops;
        let open =
            target.and_then(|target| self.open_batch(target)).filter(|waiting| !waiting.batch.is_full());
        let packet = match open {
            Some(waiting) => {
                waiting.hops = waiting.hops.max(hops);
                match waiting.batch.push(packet) {
                    Ok(()) => return self.slots[from].counters.left.add(1, bytes),
                    Err(packet) => packet,
                }
            }
            None => packet,
        };
        self.deliver_apart(from, edge, packet);
    }

    /// As [`deliver`](Self::deliver), in all cases.
    #[inline(never)]
    fn deliver_apart(&mut self, from: usize, edge: Edge, packet: Packet) {
        let slot = &mut self.slots[from];
        let Some(target) = slot.targets.get(edge.0 as usize).copied().flatten() else {
            slot.counters.drops.add(DropReason::Unconnected, 1, packet.wire_len() as u64);
            self.cx.record_drop(from, DropReason::Unconnected, packet);
            return;
        };
        slot.counters.left.add(1, packet.wire_len() as u64);
        let to = &self.slots[target.node];
        if to.offers && to.open.is_none() && !self.observed {
            return self.offer(target.node, packet);
        }
        let hops = self.running.hops;
        let mut packet = packet;
        if let Some(waiting) = self.open_batch(target) {
            waiting.hops = waiting.hops.max(hops);
            match waiting.batch.push(packet) {
                Ok(()) => return,
                Err(back) => packet = back,
            }
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        // A spare batch is empty and has room for one packet.
        let pushed = batch.push(packet);
        debug_assert!(pushed.is_ok(), "a spare batch is empty");
        self.enqueue(Waiting { target, hops, batch });
    }

    /// Gives a packet to a node that takes them one by one.
    ///
    /// A panic there is that node's own: the node that sends the packet goes on.
    #[inline]
    fn offer(&mut self, node: usize, packet: Packet) {
        let (length, waits) = (packet.wire_len() as u64, self.cx.follows_arrivals);
        let slot = &mut self.slots[node];
        slot.counters.arrived.add(1, length);
        let offered = catch_unwind(AssertUnwindSafe(|| match slot.node.get_mut().as_queue() {
            Some(queue) => queue.offer(packet, waits),
            None => Err(packet),
        }));
        match offered {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => self.wake_queue(node),
            Ok(Err(packet)) => {
                let reason = if slot.quarantined { DropReason::Quarantined } else { DropReason::QueueFull };
                slot.counters.drops.add(reason, 1, length);
                self.cx.record_drop(node, reason, packet);
            }
            Err(payload) => self.clear_up_offer(node, length, account(payload)),
        }
    }

    /// Clears up after a panic of a node that was offered a packet, while another node's call is settled.
    #[cold]
    fn clear_up_offer(&mut self, node: usize, bytes: u64, caught: Caught) {
        let held = self.slots[node].counters.balance().saturating_sub(1);
        let running = Running { hops: 0, entered: 1, entered_bytes: bytes, held, polled: false };
        // The batch in hand and the call are those of the node that sends.
        let hand = std::mem::take(&mut self.hand);
        let (running, sender) =
            (std::mem::replace(&mut self.running, running), std::mem::replace(&mut self.cx.node, node));
        self.clear_up(caught);
        (self.hand, self.running, self.cx.node) = (hand, running, sender);
        // A new node may have packets that survived, and has had no turn.
        self.wake_queue(node);
    }

    #[inline(always)]
    fn open_batch(&mut self, target: Target) -> Option<&mut Waiting> {
        let place = self.slots[target.node].open?.wrapping_sub(self.serial) as usize;
        self.waiting.get_mut(place).filter(|waiting| waiting.target == target)
    }

    fn enqueue(&mut self, waiting: Waiting) {
        self.slots[waiting.target.node].open = Some(self.serial + self.waiting.len() as u64);
        self.waiting.push_back(waiting);
    }

    #[cold]
    pub(super) fn wait(&mut self, target: Target, hops: u32) {
        let mut batch = self.spare.pop().unwrap_or_default();
        std::mem::swap(&mut self.hand, &mut batch);
        self.enqueue(Waiting { target, hops, batch });
    }

    #[cold]
    pub(super) fn nowhere(&mut self, node: usize) {
        let counters = &mut self.slots[node].counters;
        // The packets were counted as leaving, but their edge leads nowhere.
        counters.left =
            counters.left - crate::Count { packets: self.hand.len() as u64, bytes: self.hand.bytes() };
        self.cx.drop_batch(&mut self.hand, DropReason::Unconnected);
        self.settle(node);
    }

    #[cold]
    pub(super) fn went_round(&mut self, node: usize) {
        self.cx.node = node;
        self.called.store(node, Ordering::Relaxed);
        self.slots[node].counters.arrived.add(self.hand.len() as u64, self.hand.bytes());
        self.cx.drop_batch(&mut self.hand, DropReason::LoopLimit);
        self.settle(node);
    }

    /// Corrects the counters after a panic, and rebuilds the node.
    ///
    /// The packets of the call are lost. Their number is a difference, since a node that keeps packets may
    /// have freed some while unwinding. New packets are not counted.
    #[cold]
    pub(super) fn clear_up(&mut self, Caught { message, place }: Caught) {
        let Running { entered, entered_bytes, mut held, polled, .. } = self.running;
        let node = self.cx.node;
        if held == UNKNOWN {
            // The node was not called yet: nothing that enters is counted.
            held = self.slots[node].counters.balance();
            self.slots[node].counters.arrived.add(entered, entered_bytes);
        }
        if std::mem::take(&mut self.in_place) {
            self.ready.pop_front();
        }
        let in_hand = crate::Count { packets: self.hand.len() as u64, bytes: self.hand.bytes() };
        let first = self.hand.get(0).map(|packet| (packet.wire_len(), packet.data().to_vec()));
        self.hand.clear();
        let batches = self.cx.clear_leaving_batches();
        let emitted = (self.cx.leaving.len() - self.cx.take_newborn() + batches) as u64;
        self.cx.leaving.clear();
        let slot = &mut self.slots[node];
        let made = self.cx.made;
        let mut entered = crate::Count { packets: entered, bytes: entered_bytes };
        if polled && slot.role == Role::Receive {
            // The poll did not return, so nothing was counted. Packets that the node has now and did not have
            // before were received.
            let kept = ask_held(slot);
            slot.uncertain |= kept.is_none();
            let kept = kept.unwrap_or(held);
            let packets = (in_hand.packets + emitted + kept).saturating_sub(held + made.packets);
            entered = crate::Count { packets, bytes: in_hand.bytes.saturating_sub(made.bytes) };
            slot.counters.received += entered;
        }
        entered += self.cx.handoff_in;
        let settled = self.cx.drops.total() - self.cx.lost_on_arrival + self.cx.sent + self.cx.handoff_out;
        let until = slot.quarantine(self.cx.now());
        let (rebuilt, more) = if until.is_some() { (Rebuilt::Empty, Vec::new()) } else { rebuild(slot) };
        let is_empty = rebuilt == Rebuilt::Empty;
        let rebuilt = rebuilt != Rebuilt::No;
        slot.uncertain &= !rebuilt;
        let answer = if slot.uncertain { None } else { ask_held(slot) };
        let keeps_now = answer.unwrap_or(if is_empty { 0 } else { held });
        let lost =
            (entered.packets + held + made.packets).saturating_sub(settled.packets).saturating_sub(keeps_now);
        let lost_bytes = entered.bytes.saturating_sub(settled.bytes);
        self.cx.drops.add(DropReason::Panicked, lost, lost_bytes);
        self.cx.effects = DROPPED | SENT | HANDED_OFF;
        if let Some((_, bytes)) = first {
            self.cx.recorder.record(node, DropReason::Panicked, self.cx.now(), &bytes);
        }
        self.look_at_panic(node);
        let slot = &mut self.slots[node];
        slot.strikes += u8::from(polled);
        if polled && slot.strikes == STRIKES {
            // Otherwise the node would burn the core for ever, and the graph would never end.
            slot.strikes = 0;
            slot.stopped = true;
            if slot.source {
                self.sources = self.sources.saturating_sub(1);
            }
        } else if slot.timed && !slot.stopped {
            self.rearm(node);
        } else if polled && !self.is_ready(node) {
            self.push_ready(node);
        }
        let slot = &mut self.slots[node];
        slot.counters.panics += 1;
        let panic = Panic {
            node: slot.name.clone(),
            message,
            place,
            packets: lost,
            time: self.cx.now(),
            rebuilt,
            quarantine: until,
        };
        self.quarantined.extend(until.map(|until| (node, until)));
        self.settle(node);
        self.panics.push(panic);
        for caught in more {
            self.slots[node].note(&self.panics, self.cx.now(), caught);
        }
    }

    pub(super) fn drain_node(&mut self, node: usize, how: LetGo) {
        let _containing = Containing::enter();
        let slot = &mut self.slots[node];
        if slot.uncertain
            && let Some(held) = ask_held(slot)
        {
            slot.made_certain(held);
        }
        self.running = Running { held: self.held(node), ..Running::default() };
        self.cx.node = node;
        self.called.store(node, Ordering::Relaxed);
        self.cx.burst = self.burst.min(self.slots[node].most);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let slot = &mut self.slots[node];
            if let Some(queue) = slot.node.get_mut().as_queue() {
                how(queue, &mut self.hand, &mut self.cx);
            }
            slot.counters.left.add(self.hand.len() as u64, self.hand.bytes());
            let out = slot.out;
            self.look_at_turn(node);
            if self.cx.effects != 0 {
                self.settle(node);
            }
            match out {
                _ if self.hand.is_empty() => {}
                Some(target) => self.follow(target, 0),
                None => self.nowhere(node),
            }
        }));
        if let Err(payload) = result {
            self.clear_up(account(payload));
        }
    }
}

/// In [`Running::held`]: the node is being asked.
const UNKNOWN: u64 = u64::MAX;

/// Asks how many packets a node holds before its turn or call.
///
/// The turn or call has begun already, so a panic here counts as one of it.
pub(super) fn ask_before(slot: &mut Slot, running: &mut Running) -> u64 {
    running.held = UNKNOWN;
    let held = held_by(slot.node.get_mut().as_mut());
    if slot.uncertain {
        slot.made_certain(held);
    }
    running.held = held;
    held
}

/// How many packets a node keeps after a panic: 0 where it keeps none, `None` where asking panics too.
fn ask_held(slot: &Slot) -> Option<u64> {
    if slot.keeps { contain(|| held_by(slot.node.borrow_mut().as_mut())).ok() } else { Some(0) }
}

/// Whether a node was made again after a panic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rebuilt {
    /// The old one goes on.
    No,
    /// The new one has no packets.
    Empty,
    /// The new one has the packets that survived.
    WithSurvivors,
}

/// Rebuilds a function's node with empty state, except for packets that other nodes left in its queues.
///
/// A node without a blueprint goes on as it is. Answers whether there is a new node, and other panics on the
/// way.
fn rebuild(slot: &mut Slot) -> (Rebuilt, Vec<Caught>) {
    let mut panics = Vec::new();
    if slot.origin.is_none() {
        return (Rebuilt::No, panics);
    }
    let mut noted = |result: Result<bool, Caught>| {
        result.unwrap_or_else(|caught| {
            panics.push(caught);
            false
        })
    };
    let mut lasts = noted(contain(|| survivors(slot.node.get_mut().as_mut()).is_some()));
    // Asked before: where nodes share state outside them, the new node takes the old one's place there at
    // once.
    let schedule = if slot.speaks { contain(|| slot.node.get_mut().schedule()).ok().flatten() } else { None };
    let mut new = make(slot, schedule.as_ref());
    if lasts
        && let Some(node) = &mut new
        && !noted(contain(|| {
            if let (Some(before), Some(queue)) = (survivors(slot.node.get_mut().as_mut()), node.as_queue()) {
                queue.restore(before);
            }
            true
        }))
    {
        // The new node has half of the surviving part, so it is dropped.
        let half = new.take();
        noted(contain(|| drop(half)).map(|()| true));
        new = make(slot, schedule.as_ref());
        lasts = false;
    }
    let Some(mut node) = new else {
        let failed = contain(|| slot.node.get_mut().as_queue().map(|queue| queue.restore_failed()));
        noted(failed.map(|_| true));
        return (Rebuilt::No, panics);
    };
    std::mem::swap(slot.node.get_mut(), &mut node);
    // The old node's drop runs the author's code as well.
    let _ended = contain(|| drop(node));
    (if lasts { Rebuilt::WithSurvivors } else { Rebuilt::Empty }, panics)
}

/// The part of a node that survives a panic in it.
fn survivors(node: &mut dyn Node) -> Option<&mut dyn Any> {
    node.as_queue()?.survivors()
}

/// Builds another node for a slot; `None` where its blueprint fails or panics.
pub(super) fn make(slot: &Slot, schedule: Option<&Schedule>) -> Option<Box<dyn Node>> {
    let (blueprint, worker) = slot.origin.as_ref()?;
    let mut node = contain(|| blueprint.build(worker).ok()).ok().flatten()?;
    // Contained separately: a node that panicked here and again in its drop would end the process.
    let resumed = contain(|| {
        if let (Some(new), Some(old)) = (node.schedule(), schedule) {
            new.resume(old);
        }
    });
    if resumed.is_err() {
        let _ended = contain(|| drop(node));
        return None;
    }
    Some(node)
}

impl std::ops::Add for crate::Count {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}
