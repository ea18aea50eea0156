//! Holds packets and lets them leave at a rate, in order or in turn by flow.

mod backlog;
mod bucket;
mod codel;
mod config;
mod ecn;
mod queues;
mod tally;
#[cfg(test)]
mod tests;

pub use codel::{Codel, CodelParameters, Verdict as CodelVerdict};
pub use config::{By, Discipline, ShaperConfig};

use netbricks_core::buffer::{BATCH, Batch, Packet};
use netbricks_core::consistency::{Strict, StrictState};
use netbricks_core::context::last_arrival;
use netbricks_core::guards::Guards;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_core::tables::{Key, Secret};
use netbricks_core::{BuildError, Context, Edge, Node, Poll, QueueFunction, TableKey, Worker, compose_queue};

use bucket::Bucket;
use queues::{Leaving, Queues};
use tally::Tally;

/// The node that these settings describe.
///
/// # Errors
/// When its state cannot be declared.
pub fn node(config: &ShaperConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_queue(worker, || Shaper::new(config, worker))
}

/// A packet whose tokens are reserved.
struct Serving {
    leaving: Leaving,
    /// When it leaves (ns).
    due: u64,
}

/// The queues, and the packet that leaves next.
///
/// Everything happens at the packets' own times: before a packet is queued, those leave whose time has come. So
/// results depend neither on the batch size nor on when the node gets its turns.
struct Shaper {
    queues: Queues,
    serving: Option<Serving>,
    bucket: StrictState<Bucket>,
    by: Option<By>,
    secret: Secret,
    overhead: u64,
    /// The latest time of a packet (ns).
    last: u64,
    /// The time for which the node asked to have its next turn (ns).
    asked: u64,
    out: Vec<Packet>,
    tally: Tally,
}

impl Shaper {
    fn new(config: &ShaperConfig, worker: &Worker) -> Self {
        let bucket: StrictState<Bucket> = worker.state("bucket", Strict, config.pace());
        bucket::declare(&bucket, worker);
        let tally = Tally::new(worker);
        tally.clone().report(worker);
        // No packet comes to the control side's copy.
        let mut settings = config.queues();
        if worker.is_control() {
            (settings.packets, settings.flows) = (1, 1);
        }
        Self {
            queues: Queues::new(settings),
            serving: None,
            bucket,
            by: config.discipline.has_flows().then_some(config.by),
            // The constant is arbitrary: it makes the seed differ from a shuffle's.
            secret: Secret::from_seed(worker.seed() ^ 0x7368_6170_6572_2121),
            overhead: config.overhead.into(),
            last: 0,
            asked: u64::MAX,
            out: Vec::with_capacity(2 * BATCH),
            tally,
        }
    }

    /// The queue of a packet.
    fn flow(&self, packet: &Packet) -> usize {
        let Some(by) = self.by else { return 0 };
        let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
        let flows = self.queues.flows() - 1;
        let Some((header, payload)) = Ip::in_frame_with(packet.data(), slack) else { return flows };
        let hash = match by {
            By::Flow => FlowKey::related(header, payload).store().hash(&self.secret),
            By::Source => header.source().hash(&self.secret),
            By::Destination => header.destination().hash(&self.secret),
        };
        ((u128::from(hash) * flows as u128) >> 64) as usize
    }

    /// Lets go the packets whose time comes until `now`, each at its own time, `most` of them at most.
    ///
    /// Answers whether that were all.
    fn run(&mut self, now: u64, most: usize, cx: &mut Context) -> bool {
        loop {
            if self.serving.is_none() {
                self.serve(now, cx);
            }
            let Some(serving) = self.serving.take_if(|serving| serving.due <= now) else { return true };
            if self.out.len() >= most {
                self.serving = Some(serving);
                return false;
            }
            let Serving { leaving: Leaving { mut packet, bytes, waited }, due } = serving;
            self.tally.left(bytes, waited);
            // One that did not wait keeps the time of its arrival.
            if waited > 0 {
                packet.set_received_at(due);
            }
            self.out.push(packet);
            self.serve(due, cx);
        }
    }

    /// Chooses the packet that leaves next, at `now` (ns), and reserves its tokens.
    fn serve(&mut self, now: u64, cx: &mut Context) {
        if let Some(mut leaving) = self.queues.take(now, cx) {
            let due = self.bucket.transact(|bucket| bucket.reserve(now, leaving.bytes));
            leaving.waited += due - now;
            self.serving = Some(Serving { leaving, due });
        }
    }

    fn held_now(&self) -> u64 {
        (self.queues.packets() + usize::from(self.serving.is_some())) as u64
    }
}

impl QueueFunction for Shaper {
    fn guards(&self) -> Guards {
        Guards::Any
    }
    fn enqueue(&mut self, batch: &mut Batch, cx: &mut Context) {
        let now = cx.now();
        for packet in batch.drain() {
            let came = packet.received_at().clamp(now, last_arrival(now)).max(self.last);
            self.last = came;
            self.run(came, usize::MAX, cx);
            let (bytes, flow) = (packet.wire_len() as u64 + self.overhead, self.flow(&packet));
            self.queues.put(packet, bytes, flow, came, cx);
            self.tally.queued(&self.queues);
            self.run(came, usize::MAX, cx);
        }
        // What is emitted goes before what is in the batch: all of them go the one way or the other.
        if self.out.len() <= BATCH {
            for packet in self.out.drain(..) {
                if let Err(packet) = batch.push(packet) {
                    cx.emit(Edge::OUT, packet);
                }
            }
        } else {
            self.out.drain(..).for_each(|packet| cx.emit(Edge::OUT, packet));
        }
        let due = self.serving.as_ref().map_or(u64::MAX, |serving| serving.due);
        if due < self.asked {
            self.asked = due;
            cx.wake();
        }
        self.tally.congestion(&self.queues);
    }

    fn dequeue(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let now = cx.now();
        let all = self.run(now, cx.burst(), cx);
        for packet in self.out.drain(..) {
            if let Err(packet) = batch.push(packet) {
                // Not reached: the batch was empty, and a burst fits.
                cx.emit(Edge::OUT, packet);
            }
        }
        self.last = self.last.max(now);
        self.tally.congestion(&self.queues);
        self.asked = match &self.serving {
            _ if !all => 0,
            Some(serving) => serving.due,
            None => u64::MAX,
        };
        match self.asked {
            0 => Poll::Busy,
            u64::MAX => Poll::Idle,
            due => Poll::Until(due),
        }
    }

    fn release(&mut self, batch: &mut Batch, cx: &mut Context) {
        let now = cx.now();
        while batch.len() < cx.burst() {
            let serving = self.serving.take().map(|serving| serving.leaving);
            let taken = serving.or_else(|| {
                let leaving = self.queues.take_any(now)?;
                // The packets that come later wait for these, too.
                self.bucket.transact(|bucket| bucket.reserve(now, leaving.bytes));
                Some(leaving)
            });
            let Some(Leaving { packet, bytes, waited }) = taken else { break };
            self.tally.left(bytes, waited);
            if let Err(packet) = batch.push(packet) {
                // Not reached: a burst fits.
                cx.emit(Edge::OUT, packet);
            }
        }
    }

    fn held(&self) -> u64 {
        self.held_now()
    }
    fn most_held(&self) -> Option<usize> {
        // One more has left its queue and waits for its tokens.
        Some(self.queues.most() + 1)
    }

    fn restore(&mut self, before: &mut Self) {
        std::mem::swap(&mut self.queues, &mut before.queues);
        std::mem::swap(&mut self.serving, &mut before.serving);
        self.last = before.last;
    }
}
