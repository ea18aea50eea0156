//! One transmit queue for several workers: for ports that have fewer queues than there are workers.
//!
//! Whoever finds the queue free sends, its own packets and those that wait. Whoever does not leaves its packets in a ring of
//! its own and goes on: nobody waits for a system call that another makes. A ring that is full is a queue that is full, but
//! where the queue is a file, for which one waits.
//!
//! What waits goes by age, whichever worker left it: a flow that went from one worker to another keeps its order. Nobody is
//! kept by others' packets for longer than [`BUDGET`] says; what is left then is for whoever comes next, which is a worker
//! with packets or one that looks after the queue in [`flush`](TransmitQueue::flush).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use netbricks_buffer::{BATCH, Batch};
use netbricks_core::{Context, Departed, DropReason};

use self::left::{Leaves, Left, Tickets, WAITING};
use super::transmit::{FLUSH_INTERVAL, LiveLimits, TRIES};
use crate::port::{Counters, TransmitQueue};

mod left;

/// Packets of others that a worker sends in one call at most: as many as one of them may have left.
const BUDGET: usize = WAITING;
/// How often a worker that has sent looks once more for what others left meanwhile, within its budget.
const ROUNDS: usize = 64;
/// When somebody looks after what was over the budget (ns).
const SOON: u64 = 50_000;

/// A transmit queue that several workers share.
pub struct SharedTransmit {
    shared: Arc<Shared>,
    /// Where this worker's packets wait while another sends.
    leaves: Leaves,
    /// The handle that reports what all of them hold, so that it is counted once.
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
    /// What the queue said when it was used last: held, in flight, due.
    held: AtomicU64,
    in_flight: AtomicUsize,
    due: AtomicU64,
}

/// In [`Shared::due`].
const NEVER: u64 = u64::MAX;

struct Sending {
    queue: Box<dyn TransmitQueue>,
    rings: Vec<Left>,
    /// What came out of a ring and was not taken yet: the queue is full. First in line.
    hand: Batch,
    /// So many packets of the hand the queue has been given, and is at: whoever called it counts them, where it panics.
    offered: usize,
    /// Packets that the queue has taken.
    taken: u64,
}

/// What became of that which waited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The queue took all of it.
    All,
    /// It took as much as the budget allows.
    Part,
    /// It is full.
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
    /// Shares `queue`; each worker's transmit node gets a clone. What still waits for a full queue in the end is counted in
    /// `counters` as not sent.
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
    /// Fills the hand with what was left before ticket `before`, by age, up to `count` packets in all; answers how many came.
    fn fill(&mut self, before: u64, count: usize) -> usize {
        let count = count.min(BATCH).saturating_sub(self.hand.len());
        left::take(&mut self.rings, before, count, &mut self.hand)
    }

    /// Offers the hand for as long as the queue takes of it. It is asked again by those who ask for the queue again.
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
    /// Leaves packets to whoever sends next; what does not fit stays in the batch.
    #[cold]
    fn leave(&self, leaves: &mut Leaves, batch: &mut Batch, cx: &mut Context) {
        let (packets, bytes) = (batch.len(), batch.bytes());
        // Before they can be seen: nobody takes more than is counted.
        self.waiting.fetch_add(packets, Ordering::Relaxed);
        let left = leaves.push(batch, &self.tickets);
        self.waiting.fetch_sub(packets - left, Ordering::Relaxed);
        cx.transmitting().handoff_out(left as u64, bytes - batch.bytes());
    }

    /// After a panic in the driver, which its graph contains, the queue stays as usable as it was to that worker. What the
    /// queue had of the hand was counted as lost with it.
    fn mended<'m>(&'m self, mut sending: MutexGuard<'m, Sending>) -> MutexGuard<'m, Sending> {
        self.sending.clear_poison();
        let offered = std::mem::take(&mut sending.offered);
        if offered > 0 {
            sending.taken += offered as u64;
            sending.hand.clear();
        }
        sending
    }

    /// For what is done once: setting up and taking down.
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

    /// Sends what was left before ticket `before`, by age, as far as the budget goes.
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
                // Whoever comes next takes them over.
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
        // What was left before this call came first, of this worker's flows too.
        let served = self.serve(&mut sending, self.tickets.next(), &mut budget, cx);
        match served {
            _ if batch.is_empty() => {}
            Served::All => sending.transmit(batch, cx),
            Served::Part => self.leave(leaves, batch, cx),
            Served::Full => {}
        }
        self.unlock(sending, served, budget, cx);
    }

    /// What the queue says now, for those who ask while another has it; and when somebody has to come back for what waits.
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

    /// Lets the queue go. Who found it taken until now has left its packets, and does not come back for them: between the
    /// fence here and the one in `transmit`, either it finds the queue free or we find its packets.
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
    /// Waits for the queue: seldom asked, and what another is just sending has not left.
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
    /// Whatever the queue needs: somebody has to come back for what a full one left, though nobody sends any more.
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
    /// Waits for the queue: nobody is kept from anything any more. What a full one does not take, whoever left it, is lost.
    fn release(&mut self, cx: &mut Context) {
        let shared = &self.shared;
        let mut sending = shared.lock();
        // Those who go on may leave more: that is theirs to send.
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
