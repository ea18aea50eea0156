//! One transmit queue for several workers: for ports that have fewer queues than there are workers.
//!
//! A worker that finds the queue free sends its own packets and those that wait. A worker that finds the
//! queue taken leaves its packets in a ring of its own and goes on. So no worker waits for another worker's
//! system call. A full ring has the same effect as a full queue, unless the queue is a file: then the worker
//! waits.
//!
//! Waiting packets are sent by age, whichever worker left them, so a flow that moved to another worker keeps
//! its order. Other workers' packets occupy a worker for at most [`BUDGET`] packets. The rest is for the next
//! sender: a worker that has packets, or one that serves the queue in [`flush`](TransmitQueue::flush).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use netbricks_buffer::{BATCH, Batch};
use netbricks_core::{Context, Departed, DropReason};

use self::left::{Leaves, Left, Tickets, WAITING};
use super::transmit::{FLUSH_INTERVAL, LiveLimits, TRIES};
use crate::port::{Counters, TransmitQueue};

mod left;

/// The most packets of others that a worker sends in one call: the capacity of one ring.
const BUDGET: usize = WAITING;
/// How often a worker that has sent checks again for packets that others left meanwhile, within its budget.
const ROUNDS: usize = 64;
/// Time until a worker returns for packets beyond the budget (ns).
const SOON: u64 = 50_000;

/// A transmit queue that several workers share.
pub struct SharedTransmit {
    shared: Arc<Shared>,
    /// This worker's packets wait here while another worker sends.
    leaves: Leaves,
    /// This handle reports the packets that all of them hold, so that they are counted once.
    reports: bool,
}

struct Shared {
    sending: Mutex<Sending>,
    tickets: Tickets,
    /// Packets that were left in rings.
    waiting: AtomicUsize,
    keeps: bool,
    patient: bool,
    limits: Option<LiveLimits>,
    counters: Arc<Counters>,
    /// The answers of the queue at its last use: held, in flight, due.
    held: AtomicU64,
    in_flight: AtomicUsize,
    due: AtomicU64,
}

/// The value of [`Shared::due`] when nothing is due.
const NEVER: u64 = u64::MAX;

struct Sending {
    queue: Box<dyn TransmitQueue>,
    rings: Vec<Left>,
    /// Packets that came out of a ring and that the full queue has not taken yet. They go first.
    hand: Batch,
    /// The number of packets of the hand that were given to the queue in a call that has not returned.
    ///
    /// If the queue panics, the worker that called it counts them.
    offered: usize,
    /// The number of packets that the queue has taken.
    taken: u64,
}

/// The result of serving the packets that waited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The queue took all of them.
    All,
    /// The queue took as many as the budget allows.
    Part,
    /// The queue is full.
    Full,
}

impl Clone for SharedTransmit {
    fn clone(&self) -> Self {
        let (leaves, left) = left::ring();
        self.shared.lock().rings.push(left);
        Self { shared: self.shared.clone(), leaves, reports: false }
    }
}

impl SharedTransmit {
    /// Shares `queue`; each worker's transmit node gets a clone.
    ///
    /// Packets that still wait for a full queue at the end are counted in `counters` as not sent.
    pub fn new(queue: Box<dyn TransmitQueue>, counters: Arc<Counters>) -> Self {
        let (leaves, left) = left::ring();
        let shared = Shared {
            tickets: Tickets::default(),
            waiting: AtomicUsize::new(0),
            keeps: queue.keeps_packets(),
            patient: queue.is_patient(),
            limits: queue.limits(),
            counters,
            held: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            due: AtomicU64::new(NEVER),
            sending: Mutex::new(Sending {
                queue,
                rings: vec![left],
                hand: Batch::new(),
                offered: 0,
                taken: 0,
            }),
        };
        Self { shared: Arc::new(shared), leaves, reports: true }
    }
}

impl Sending {
    /// Fills the hand with packets left before ticket `before`, by age, up to `count` packets in all.
    ///
    /// Answers how many were added.
    fn fill(&mut self, before: u64, count: usize) -> usize {
        let count = count.min(BATCH).saturating_sub(self.hand.len());
        left::take(&mut self.rings, before, count, &mut self.hand)
    }

    /// Offers the hand for as long as the queue takes packets of it.
    ///
    /// The callers that retry on the queue offer it again.
    fn offer(&mut self, cx: &mut Context) {
        let mut before = usize::MAX;
        while !self.hand.is_empty() && self.hand.len() < before {
            before = self.hand.len();
            self.offered = before;
            self.queue.transmit(&mut self.hand, cx);
            self.taken += (before - self.hand.len()) as u64;
        }
        self.offered = 0;
    }

    /// Offers a batch once.
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        let before = batch.len();
        self.queue.transmit(batch, cx);
        self.taken += (before - batch.len()) as u64;
    }
}

impl Shared {
    /// Leaves packets to the next sender; those that do not fit stay in the batch.
    #[cold]
    fn leave(&self, leaves: &mut Leaves, batch: &mut Batch, cx: &mut Context) {
        let (packets, bytes) = (batch.len(), batch.bytes());
        // Counted before they become visible: no worker takes more than is counted.
        self.waiting.fetch_add(packets, Ordering::Relaxed);
        let left = leaves.push(batch, &self.tickets);
        self.waiting.fetch_sub(packets - left, Ordering::Relaxed);
        cx.transmitting().handoff_out(left as u64, bytes - batch.bytes());
    }

    /// Makes the queue usable again after a panic in the driver, which the driver's graph contains.
    ///
    /// The packets of the hand that the queue had were counted as lost with the panic.
    fn mended<'m>(&'m self, mut sending: MutexGuard<'m, Sending>) -> MutexGuard<'m, Sending> {
        self.sending.clear_poison();
        let offered = std::mem::take(&mut sending.offered);
        if offered > 0 {
            sending.taken += offered as u64;
            sending.hand.clear();
        }
        sending
    }

    /// Takes the lock for work that is done once: setup and shutdown.
    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(|poisoned| self.mended(poisoned.into_inner()))
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Sending>> {
        match self.sending.try_lock() {
            Ok(sending) => Some(sending),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(self.mended(poisoned.into_inner())),
        }
    }

    /// Sends packets left before ticket `before`, by age, as far as the budget goes.
    fn serve(&self, sending: &mut Sending, before: u64, budget: &mut usize, cx: &mut Context) -> Served {
        loop {
            let came = sending.fill(before, *budget);
            self.waiting.fetch_sub(came, Ordering::Relaxed);
            let count = sending.hand.len();
            if count == 0 {
                let more = *budget == 0 && left::oldest(&mut sending.rings, before).is_some();
                return if more { Served::Part } else { Served::All };
            }
            cx.transmitting().handoff_in(count as u64, sending.hand.bytes());
            sending.offer(cx);
            let rest = sending.hand.len();
            *budget = budget.saturating_sub(count - rest);
            if rest > 0 {
                // The next sender takes them over.
                cx.transmitting().handoff_out(rest as u64, sending.hand.bytes());
                return Served::Full;
            }
        }
    }

    fn send(
        &self,
        mut sending: MutexGuard<'_, Sending>,
        leaves: &mut Leaves,
        batch: &mut Batch,
        cx: &mut Context,
    ) {
        let mut budget = BUDGET;
        // Packets that were left before this call go first, also those of this worker's flows.
        let served = self.serve(&mut sending, self.tickets.next(), &mut budget, cx);
        match served {
            _ if batch.is_empty() => {}
            Served::All => sending.transmit(batch, cx),
            Served::Part => self.leave(leaves, batch, cx),
            Served::Full => {}
        }
        self.unlock(sending, served, budget, cx);
    }

    /// Stores the queue's answers for workers that ask while another has the queue.
    ///
    /// Also stores when a worker has to return for waiting packets.
    fn note(&self, sending: &Sending, served: Served, cx: &Context) {
        self.held.store(if self.keeps { sending.queue.held() } else { 0 }, Ordering::Relaxed);
        self.in_flight.store(sending.queue.in_flight(), Ordering::Relaxed);
        let again = match served {
            Served::All => NEVER,
            Served::Part => cx.now().saturating_add(SOON),
            Served::Full => cx.now().saturating_add(FLUSH_INTERVAL),
        };
        self.due.store(sending.queue.due().unwrap_or(NEVER).min(again), Ordering::Relaxed);
    }

    /// Unlocks the queue, and serves packets that were left meanwhile.
    ///
    /// A worker that found the queue taken until now has left its packets and does not return for them. The
    /// fence here and the one in `transmit` guarantee that either that worker finds the queue free or this
    /// one finds its packets.
    fn unlock(
        &self,
        sending: MutexGuard<'_, Sending>,
        mut served: Served,
        mut budget: usize,
        cx: &mut Context,
    ) {
        self.note(&sending, served, cx);
        drop(sending);
        for _ in 0..ROUNDS {
            fence(Ordering::SeqCst);
            if served == Served::Full || budget == 0 || self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            let Some(mut sending) = self.try_lock() else { return };
            served = self.serve(&mut sending, u64::MAX, &mut budget, cx);
            self.note(&sending, served, cx);
            drop(sending);
        }
    }
}

impl TransmitQueue for SharedTransmit {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        let Self { shared, leaves, .. } = self;
        let Some(sending) = shared.try_lock() else {
            shared.leave(leaves, batch, cx);
            fence(Ordering::SeqCst);
            if let Some(sending) = shared.try_lock() {
                shared.send(sending, leaves, batch, cx);
            } else if shared.patient && !batch.is_empty() {
                shared.send(shared.lock(), leaves, batch, cx);
            }
            return;
        };
        shared.send(sending, leaves, batch, cx);
    }
    fn is_patient(&self) -> bool {
        self.shared.patient
    }
    fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }
    /// Waits for the queue: this is rarely asked.
    ///
    /// Packets that another worker is sending at this moment have not left.
    fn departed(&self) -> Option<Departed> {
        let sending = self.shared.lock();
        let there = sending.queue.held() + sending.queue.in_flight() as u64;
        let waits = sending.hand.len() + sending.rings.iter().map(Left::waiting).sum::<usize>();
        Some(Departed { given: sending.taken + waits as u64, left: sending.taken.saturating_sub(there) })
    }
    fn flush(&mut self, cx: &mut Context) {
        if let Some(mut sending) = self.shared.try_lock() {
            let mut budget = BUDGET;
            let served = self.shared.serve(&mut sending, u64::MAX, &mut budget, cx);
            sending.queue.flush(cx);
            self.shared.unlock(sending, served, budget, cx);
        }
    }
    /// Always true, also when the queue needs no flush.
    ///
    /// A worker has to return for packets that a full queue left, even if no worker sends any more.
    fn needs_flush(&self) -> bool {
        true
    }
    fn keeps_packets(&self) -> bool {
        self.shared.keeps
    }
    fn held(&self) -> u64 {
        if self.reports { self.shared.held.load(Ordering::Relaxed) } else { 0 }
    }
    fn due(&self) -> Option<u64> {
        Some(self.shared.due.load(Ordering::Relaxed)).filter(|due| *due != NEVER)
    }
    fn limits(&self) -> Option<LiveLimits> {
        self.shared.limits.clone()
    }
    /// Waits for the queue: at shutdown there is no other work.
    ///
    /// Packets that a full queue does not take are lost, whichever worker left them.
    fn release(&mut self, cx: &mut Context) {
        let shared = &self.shared;
        let mut sending = shared.lock();
        // Workers that go on may leave more packets; those are theirs to send.
        let before = shared.tickets.next();
        let mut served = Served::Full;
        for _ in 0..TRIES {
            served = shared.serve(&mut sending, before, &mut { usize::MAX }, cx);
            if served == Served::All {
                break;
            }
        }
        loop {
            let came = sending.fill(before, BATCH);
            shared.waiting.fetch_sub(came, Ordering::Relaxed);
            if sending.hand.is_empty() {
                break;
            }
            cx.transmitting().handoff_in(sending.hand.len() as u64, sending.hand.bytes());
            Counters::add_shared(&shared.counters.not_sent, sending.hand.len() as u64);
            cx.drop_batch(&mut sending.hand, DropReason::TransmitFull);
        }
        sending.queue.release(cx);
        shared.unlock(sending, served, BUDGET, cx);
    }
}

#[cfg(test)]
mod full;
#[cfg(test)]
mod tests;
