//! One worker's end of a shuffle.
//!
//! Packets of other workers leave through their rings, and packets that other workers sent come out here.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netbricks_buffer::{BATCH, Batch, Packet, Producer};

use super::key::{BUCKETS, ShuffleKey};
use super::migration::Moving;
use super::migration_request::{BoundState, Handoff, MigrationRequest, ShuffleId};
use super::shared::{Ends, ShuffleShared};
use super::sorter::sorters_state;
use super::{Sorter, WhenFull};
use crate::context::{Context, MILLISECOND, last_arrival};
use crate::node::{
    CallError, Departed, Handler, HandlerSide, Node, NodeQueue, NodeState, Output, Poll, Shape, StateImage,
};
use crate::reason::{DropReason as Reason, Edge};
use crate::worker::BuildError;

/// The most packets that wait for room in one ring.
///
/// No source that leads here is polled while one waits. So these are packets that were within the worker: a
/// few batches, and packets that functions made from them.
pub(super) const WAITING: usize = 8 * BATCH;

/// A worker's node of a shuffle.
pub(super) struct ShuffleNode {
    sorter: Box<dyn Sorter>,
    shared: Arc<ShuffleShared>,
    me: usize,
    ends: Ends,
    moving: Moving,
    /// By worker: packets about to be sent, and packets that wait for room, oldest first.
    outgoing: Vec<Batch>,
    waiting: Vec<VecDeque<Packet>>,
    /// By worker: packets given to it, including those that wait, and packets that came from it.
    given: Vec<u64>,
    seen: Vec<u64>,
    numbers: Vec<u16>,
    /// The worker whose ring is read next.
    next: usize,
    /// Packets from a worker that arrived later than the time of the batch before them.
    later: VecDeque<Packet>,
    later_from: usize,
    /// No more packets come from this worker, except those of events.
    closing: bool,
    /// Another node does this one's part: this one has not taken it over yet, or has given it up.
    succeeded: bool,
}

impl ShuffleNode {
    pub(super) fn new(
        sorter: Box<dyn Sorter>,
        shared: Arc<ShuffleShared>,
        me: usize,
    ) -> Result<Self, BuildError> {
        let ends = shared.take(me).map(|ends| (ends, false));
        let Some((ends, succeeded)) = ends.or_else(|| Some((shared.succession(me)?, true))) else {
            return Err(BuildError::new(format_args!(
                "worker {me} of {} has its end of this shuffle already: make a shuffle for each place",
                shared.workers
            )));
        };
        let workers = shared.workers;
        let room = if workers > 1 { WAITING } else { 0 };
        Ok(Self {
            sorter,
            moving: Moving::new(me, &shared),
            me,
            ends,
            outgoing: (0..workers).map(|_| Batch::new()).collect(),
            waiting: (0..workers).map(|_| VecDeque::with_capacity(room)).collect(),
            given: vec![0; workers],
            seen: vec![0; workers],
            numbers: Vec::with_capacity(BATCH),
            next: 0,
            later: VecDeque::with_capacity(if workers > 1 { BATCH } else { 0 }),
            later_from: 0,
            closing: false,
            succeeded,
            shared,
        })
    }

    fn is_blocked(&self) -> bool {
        self.moving.kept() >= self.shared.ring
            || self.moving.is_releasing()
            || self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    /// Sends the packets for a worker, behind those that wait.
    fn send(&mut self, to: usize, cx: &mut Context) {
        let batch = &mut self.outgoing[to];
        let Some(producer) = self.ends.out[to].as_mut().filter(|producer| !producer.is_closed()) else {
            // The other worker is there if this one closed the ring.
            let reason = if self.ends.out[to].is_none() && self.closing {
                Reason::Drained
            } else {
                Reason::WorkerGone
            };
            return cx.drop_batch(batch, reason);
        };
        let waiting = &mut self.waiting[to];
        if waiting.is_empty() {
            let (packets, bytes) = (batch.len(), batch.bytes());
            producer.push(batch);
            let gone = packets - batch.len();
            if gone > 0 {
                cx.handoff_out(gone as u64, bytes - batch.bytes());
                self.given[to] += gone as u64;
            }
        }
        if batch.is_empty() {
            return;
        }
        if self.shared.full == WhenFull::Drop || waiting.len() + batch.len() > WAITING {
            cx.drop_batch(batch, Reason::RingFull);
        } else {
            self.given[to] += batch.len() as u64;
            waiting.extend(batch.drain());
        }
    }

    /// Sends packets that wait, as far as there is room.
    fn send_waiting(&mut self, cx: &mut Context) {
        for (to, waiting) in self.waiting.iter_mut().enumerate() {
            let Some(producer) = &mut self.ends.out[to] else { continue };
            if producer.is_closed() {
                waiting.drain(..).for_each(|packet| cx.drop_packet(packet, Reason::WorkerGone));
            }
            let batch = &mut self.outgoing[to];
            while !waiting.is_empty() {
                while !batch.is_full()
                    && let Some(packet) = waiting.pop_front()
                {
                    // It is not full.
                    let _room = batch.push(packet);
                }
                let (packets, bytes) = (batch.len(), batch.bytes());
                let gone = producer.push(batch);
                if gone > 0 {
                    cx.handoff_out(gone as u64, bytes - batch.bytes());
                }
                if gone < packets {
                    while let Some(packet) = batch.pop() {
                        waiting.push_front(packet);
                    }
                    break;
                }
            }
        }
        if self.closing && self.waiting.iter().all(VecDeque::is_empty) && self.shared.is_closing() {
            // The other ends learn this once they have taken everything. It waits until all workers have come
            // this far: the graph goes on until then, with packets of events.
            self.ends.out.iter_mut().for_each(|end| *end = None);
        }
    }

    /// Takes packets from one other worker, each worker in turn.
    ///
    /// Where too many packets wait for state, it takes only those from before that state moved: other workers
    /// may wait until this one has seen them.
    ///
    /// Where only arrivals move the clock, packets bring their time with them. Packets of a later time than
    /// the batch wait.
    fn take(&mut self, batch: &mut Batch, cx: &mut Context) {
        if self.later.is_empty() {
            self.take_from_rings(batch, cx);
            let count = if cx.follows_arrivals { admit(batch.iter(), cx) } else { batch.len() };
            while batch.len() > count
                && let Some(packet) = batch.pop()
            {
                self.later.push_front(packet);
            }
        } else {
            let count = if cx.follows_arrivals { admit(self.later.iter(), cx) } else { self.later.len() };
            for packet in self.later.drain(..count) {
                // No more packets were put off than a batch has room for.
                let _room = batch.push(packet);
            }
        }
        self.seen[self.later_from] += batch.len() as u64;
        // The headers that the next node reads first may be in the other core's cache.
        batch.warm();
    }

    fn take_from_rings(&mut self, batch: &mut Batch, cx: &mut Context) {
        let full = self.moving.kept() >= self.shared.ring;
        let workers = self.shared.workers;
        for _ in 0..workers {
            let from = self.next;
            self.next = (self.next + 1) % workers;
            let Some(consumer) = &mut self.ends.into[from] else { continue };
            let mut most = cx.burst();
            if full {
                most = most.min(self.moving.owed(&self.shared, from, self.seen[from]) as usize);
            }
            let count = consumer.pop_up_to(batch, most);
            if count > 0 {
                self.later_from = from;
                cx.handoff_in(count as u64, batch.bytes());
                return;
            }
        }
    }

    /// Keeps packets that must wait for their flow's state.
    fn keep_expected(&mut self, batch: &mut Batch, cx: &mut Context) {
        if !self.moving.is_expecting() {
            return;
        }
        self.numbers.clear();
        self.numbers.extend(batch.iter().map(|packet| packet.flow_hash() as u16));
        let (moving, numbers) = (&self.moving, &self.numbers);
        let kept = batch.compact(|slot, _| u16::from(moving.waits(numbers[slot])));
        for packet in batch.drain_from(kept) {
            self.keep(packet.flow_hash() as u16, packet, cx);
        }
    }

    fn keep(&mut self, bucket: u16, packet: Packet, cx: &mut Context) {
        if self.moving.kept() < self.shared.ring + WAITING {
            self.moving.keep(bucket, packet);
        } else {
            cx.drop_packet(packet, Reason::RingFull);
        }
    }

    /// Learns of moves and notes the graph's next step, between two batches: all earlier packets were
    /// processed.
    fn look_after_moves(&mut self, cx: &mut Context) {
        self.moving.learn(&self.shared, &self.given);
        let (into, seen) = (&self.ends.into, &self.seen);
        // A worker that has ended has given everything, but its packets may not have been processed.
        let later = if self.later.is_empty() { self.me } else { self.later_from };
        let seen = |from: usize| match &into[from] {
            Some(consumer) if !consumer.is_closed() || from == later => Some(seen[from]),
            _ => None,
        };
        if self.moving.has_request(&self.shared, seen) {
            cx.request_migration();
        }
    }

    fn has_ended(&mut self) -> bool {
        self.closing
            && self.later.is_empty()
            && self.ends.out.iter().all(Option::is_none)
            && self.ends.into.iter().flatten().all(netbricks_buffer::Consumer::is_closed)
            && self.moving.is_over(&self.shared)
    }

    /// Moves buckets as an argument such as `"0-2047 1"` says: these buckets to that worker.
    fn move_buckets(&self, argument: &str) -> Result<String, String> {
        let expected = || format!("expected buckets and a worker, as `0-2047 1`, found `{argument}`");
        let mut wanted = Vec::new();
        for part in argument.split(',') {
            let (buckets, worker) = part.trim().split_once(' ').ok_or_else(expected)?;
            let (first, last) = buckets.split_once('-').unwrap_or((buckets, buckets));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| expected());
            let (first, last, worker) = (number(first)?, number(last)?, number(worker)?);
            if first > last {
                return Err(format!(
                    "buckets {first}-{last} are none: expected the smaller number first, as `{last}-{first} {worker}`"
                ));
            }
            if last >= BUCKETS {
                return Err(super::MoveError::NoBucket { bucket: last }.to_string());
            }
            wanted.extend((first..=last).map(|bucket| (bucket, worker)));
        }
        self.shared.owner_table.begin(wanted).map_err(|error| error.to_string())?;
        Ok(self.shared.owner_table.moving().to_string())
    }
}

impl Node for ShuffleNode {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        if self.shared.workers == 1 {
            if self.sorter.declarations().is_some() {
                self.sorter.sort(batch, cx, &mut self.numbers);
            }
            return;
        }
        if cx.follows_arrivals {
            bound_arrivals(batch, cx.now());
        }
        self.sorter.sort(batch, cx, &mut self.numbers);
        self.moving.learn(&self.shared, &self.given);
        let (me, moving, numbers) = (self.me, &self.moving, &self.numbers);
        let expecting = moving.is_expecting();
        let kept = batch.compact(|slot, _| {
            let bucket = numbers[slot];
            u16::from(moving.owner(bucket) != me || expecting && moving.waits(bucket))
        });
        if kept == batch.len() {
            return;
        }
        for mut packet in batch.drain_from(kept) {
            let bucket = self.numbers[usize::from(packet.slot())];
            packet.set_flow_hash(u32::from(bucket));
            let owner = self.moving.owner(bucket);
            if owner == me {
                self.keep(bucket, packet, cx);
            } else if let Err(packet) = self.outgoing[owner].push(packet) {
                // Not reached: the batch is empty between calls, and has room for a whole batch.
                cx.drop_packet(packet, Reason::RingFull);
            }
        }
        for to in 0..self.shared.workers {
            if !self.outgoing[to].is_empty() {
                self.send(to, cx);
            }
        }
        cx.set_blocked(self.is_blocked());
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.look_after_moves(cx);
        self.send_waiting(cx);
        if self.moving.is_expecting() {
            self.moving.release(batch, cx.burst(), &self.shared);
        }
        if batch.is_empty() {
            self.take(batch, cx);
            // Packets from the new owners come after the news of the move, which can therefore be read now.
            self.moving.learn(&self.shared, &self.given);
            self.keep_expected(batch, cx);
        }
        cx.set_blocked(self.is_blocked());
        if !batch.is_empty() || !self.later.is_empty() {
            Poll::Busy
        } else if self.has_ended() {
            Poll::Done
        } else {
            Poll::Idle
        }
    }

    fn shape(&self) -> Shape {
        let mut outputs = vec![Output::out()];
        if self.sorter.declarations().is_some() {
            outputs.push(Output { edge: Edge::REPLY, name: "reply".into(), optional: true });
        }
        self.sorter.edges(&mut |edge| {
            if !outputs.iter().any(|output| output.edge == edge) {
                outputs.push(Output { edge, name: edge.0.to_string(), optional: false });
            }
        });
        // What waits for the rings to others, and what waits for state from them.
        let places = if self.shared.workers > 1 { self.shared.workers } else { 0 };
        Shape {
            kind: "shuffle".into(),
            outputs,
            schedulable: true,
            keeps_packets: true,
            holds: Some(places * (self.shared.ring + WAITING)),
            has_end: self.sorter.declared(|declared| declared.has_ends()),
            ..Shape::default()
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        Some(self)
    }
}

impl NodeQueue for ShuffleNode {
    fn held(&self) -> u64 {
        (self.moving.kept() + self.later.len() + self.waiting.iter().map(VecDeque::len).sum::<usize>()) as u64
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        // Packets that other workers gave it count as its own. Later packets find the ring closed.
        for mut consumer in self.ends.into.iter_mut().filter_map(Option::take) {
            while consumer.pop(batch) > 0 {
                cx.handoff_in(batch.len() as u64, batch.bytes());
                cx.drop_batch(batch, Reason::Drained);
            }
        }
        for packet in self.waiting.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            cx.drop_packet(packet, Reason::WorkerGone);
        }
        for packet in self.later.drain(..).chain(self.moving.give_up()) {
            cx.drop_packet(packet, Reason::Drained);
        }
    }
    fn departed(&self) -> Vec<Departed> {
        let ways = self.ends.out.iter().zip(&self.waiting).zip(&self.given);
        let departed = ways.map(|((end, waiting), given)| {
            let there = end.as_ref().filter(|end| !end.is_closed()).map_or(0, Producer::waiting);
            Departed { given: *given, left: given - (waiting.len() + there) as u64 }
        });
        departed.collect()
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        self.shared.publish_succession(self.me);
        Some(self)
    }
    /// Takes over everything except the function: the rings, packets that wait for them, and moves in
    /// progress.
    fn restore(&mut self, before: &mut dyn Any) {
        if let Some(before) = before.downcast_mut::<Self>() {
            std::mem::swap(&mut self.sorter, &mut before.sorter);
            std::mem::swap(self, before);
            self.shared.succession(self.me);
        }
    }
    fn restore_failed(&mut self) {
        self.shared.succession(self.me);
    }
}

#[deny(clippy::missing_trait_methods)]
impl NodeState for ShuffleNode {
    fn handlers(&self) -> Vec<Handler> {
        let all = HandlerSide::AnyWorker;
        let owners = "Which worker owns which buckets, as `0-2047 0, 2048-4095 1`.";
        let routes = "To which worker this one gives which buckets: `owners`, once the last move is over.";
        let moves =
            "Moves buckets to a worker while traffic flows, behind all shuffles by this key: `0-2047 1`.";
        let moving = "Pairs of workers that have not finished the last move, one for each shuffle.";
        let mut handlers = vec![
            Handler::read("owners", owners).on(all),
            Handler::read("routes", routes),
            Handler::write("move", moves).argument("BUCKETS WORKER[, BUCKETS WORKER]").on(all),
            Handler::read("moving", moving).on(all),
            Handler::read("refused", "Images of state that a new owner could not take.").on(all),
        ];
        handlers.extend(self.sorter.declared(|declared| declared.handlers()));
        handlers
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        match name {
            "owners" => Ok(runs(&self.shared.owners())),
            "routes" => Ok(runs(self.moving.owners())),
            "moving" => Ok(self.shared.owner_table.moving().to_string()),
            "refused" => Ok(self.shared.refused.load(Ordering::Relaxed).to_string()),
            "move" => self
                .move_buckets(argument)
                .map_err(|problem| CallError::Argument { name: name.into(), problem }),
            _ => self.sorter.call(name, argument, "owners, routes, move, moving, refused"),
        }
    }
    sorters_state!();
}

/// Limits arrival times to that of the batch, where packets bring other workers the time.
///
/// A function may have written any time.
fn bound_arrivals(batch: &mut Batch, now: u64) {
    let last = last_arrival(now);
    if batch.iter().any(|packet| packet.received_at() > last) {
        batch.each_packet(|_, packet| packet.set_received_at(packet.received_at().min(last)));
    }
}

/// The number of these packets, in order, that may be one batch.
///
/// A batch has arrivals of one millisecond, before the next event, as a port's batch has. Moves the clock
/// where they begin another millisecond; 0 where an event comes first.
fn admit<'a>(packets: impl Iterator<Item = &'a Packet>, cx: &mut Context) -> usize {
    let (mut count, mut end) = (0, 0);
    for packet in packets {
        let time = packet.received_at();
        if count == 0 {
            if !cx.approach(time) {
                return 0;
            }
            cx.advance(time - time % MILLISECOND);
            end = (cx.now() - cx.now() % MILLISECOND).saturating_add(MILLISECOND).min(cx.deadline());
        }
        // The largest possible time has no later one behind it.
        if count > 0 && time >= end {
            break;
        }
        count += 1;
    }
    count
}

/// The owners as text: `"0-2047 0, 2048-4095 1"`.
fn runs(owners: &[u8]) -> String {
    let mut text = Vec::new();
    let mut first = 0;
    for run in owners.chunk_by(|a, b| a == b) {
        text.push(format!("{first}-{} {}", first + run.len() - 1, run[0]));
        first += run.len();
    }
    text.join(", ")
}

impl Handoff for ShuffleNode {
    fn id(&self) -> ShuffleId {
        // The group keeps shared state for as long as it lives, so no other state takes this address.
        ShuffleId(Arc::as_ptr(&self.shared) as usize)
    }
    fn key(&self) -> ShuffleKey {
        self.shared.buckets().by
    }
    fn bound(&mut self, state: Vec<BoundState>, upstream: usize) {
        self.shared.upstream.store(upstream, Ordering::Relaxed);
        self.shared.set_bound(self.me, state);
    }
    fn close(&mut self) {
        self.closing = true;
        self.shared.progress[self.me].closing.store(true, Ordering::Release);
    }
    fn migration_request(&mut self) -> Option<MigrationRequest> {
        self.moving.take_request()
    }
    fn is_to_give(&self, to: usize) -> bool {
        self.moving.is_to_give(&self.shared, to)
    }
    fn is_to_take(&self, from: usize) -> bool {
        self.moving.is_to_take(&self.shared, from)
    }
    fn given(&mut self, to: usize, images: Vec<(String, StateImage)>) {
        self.moving.given(&self.shared, to, images);
    }
    fn took(&mut self, from: usize, refused: usize) {
        self.moving.took(&self.shared, from, refused);
    }
}

impl Drop for ShuffleNode {
    fn drop(&mut self) {
        if self.succeeded {
            return;
        }
        self.shared.progress[self.me].gone.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;

    use super::*;

    #[test]
    fn the_last_time_there_is_is_admitted() {
        let pool = Pool::builder().frames(4).build().unwrap();
        let mut cx = Context::new(pool.clone());
        let at = |time| {
            let mut packet = pool.packet(&[0; 64]).unwrap();
            packet.set_received_at(time);
            packet
        };
        let packets = [at(5), at(MILLISECOND - 1), at(MILLISECOND), at(u64::MAX)];
        assert_eq!(admit(packets.iter(), &mut cx), 2);
        assert_eq!(admit(packets[3..].iter(), &mut cx), 1);
    }
}
