//! One transmit queue for several workers: for ports that have fewer queues than there are workers.
//!
//! Whoever finds the queue free sends, its own packets and those that wait. Whoever does not leaves its packets in a ring of
//! its own and goes on: nobody waits for a system call that another makes. A ring that is full is a queue that is full, but
//! where the queue is a file, for which one waits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use netbricks_buffer::{Batch, Consumer, Packet, Producer, Ring};
use netbricks_core::{Context, Drop};

use super::transmit::offer;
use crate::port::TransmitQueue;

/// Packets that a worker may leave for others to send.
const WAITING: usize = 1024;
/// How often a worker that has sent looks once more for what others left meanwhile. Only where they bring packets faster than
/// the queue takes them does it come to that; the next of them then sends what is left.
const ROUNDS: usize = 64;

/// A transmit queue that several workers share.
pub struct SharedTransmit {
    shared: Arc<Shared>,
    /// Where this worker's packets wait while another sends.
    waits: Producer,
    /// The handle that reports what all of them hold, so that it is counted once.
    reports: bool,
}

struct Shared {
    sending: Mutex<Sending>,
    /// Packets that were left in rings.
    waiting: AtomicUsize,
    keeps: bool,
    patient: bool,
    needs_flush: bool,
    /// What the queue said when it was used last: held, in flight, due.
    held: AtomicU64,
    in_flight: AtomicUsize,
    due: AtomicU64,
}

/// In [`Shared::due`].
const NEVER: u64 = u64::MAX;

struct Sending {
    queue: Box<dyn TransmitQueue>,
    rings: Vec<Consumer>,
    /// What came out of a ring and was not taken yet: the queue is full. First in line.
    hand: Batch,
}

impl Clone for SharedTransmit {
    fn clone(&self) -> Self {
        let (waits, comes) = Ring::new(WAITING);
        self.shared.lock().rings.push(comes);
        Self { shared: self.shared.clone(), waits, reports: false }
    }
}

impl SharedTransmit {
    /// Shares `queue`; each worker's transmit node gets a clone.
    pub fn new(queue: Box<dyn TransmitQueue>) -> Self {
        let (waits, comes) = Ring::new(WAITING);
        let shared = Shared {
            waiting: AtomicUsize::new(0),
            keeps: queue.keeps_packets(),
            patient: queue.is_patient(),
            needs_flush: queue.needs_flush(),
            held: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            due: AtomicU64::new(NEVER),
            sending: Mutex::new(Sending { queue, rings: vec![comes], hand: Batch::new() }),
        };
        Self { shared: Arc::new(shared), waits, reports: true }
    }
}

impl Shared {
    /// Leaves packets to whoever sends now; what does not fit stays in the batch.
    #[cold]
    fn leave(&self, waits: &mut Producer, batch: &mut Batch, cx: &mut Context) {
        let (packets, bytes) = (batch.len(), batch.bytes());
        // Before they can be seen: nobody takes more than is counted.
        self.waiting.fetch_add(packets, Ordering::Relaxed);
        let left = waits.push(batch);
        self.waiting.fetch_sub(packets - left, Ordering::Relaxed);
        cx.handed(left as u64, bytes - batch.bytes());
    }

    /// After a panic in the driver, which its graph contains, the queue stays as usable as it was to that worker. What was in
    /// hand was counted as lost with it.
    fn mended<'m>(&'m self, mut sending: MutexGuard<'m, Sending>) -> MutexGuard<'m, Sending> {
        self.sending.clear_poison();
        sending.hand.clear();
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

    /// Sends what waits in rings, ring by ring in order; answers whether the queue took all of it.
    fn serve(&self, sending: &mut Sending, cx: &mut Context) -> bool {
        let Sending { queue, rings, hand } = sending;
        for ring in rings {
            loop {
                if hand.is_empty() {
                    let came = ring.pop(hand);
                    self.waiting.fetch_sub(came, Ordering::Relaxed);
                }
                if hand.is_empty() {
                    break;
                }
                cx.taken(hand.len() as u64, hand.bytes());
                offer(&mut **queue, hand, cx);
                if !hand.is_empty() {
                    // Whoever comes next takes them over.
                    cx.handed(hand.len() as u64, hand.bytes());
                    return false;
                }
            }
        }
        true
    }

    fn send(&self, mut sending: MutexGuard<'_, Sending>, batch: &mut Batch, cx: &mut Context) {
        // What waits came first, of this worker's flows too.
        if self.serve(&mut sending, cx) && !batch.is_empty() {
            sending.queue.transmit(batch, cx);
        }
        self.unlock(sending, cx);
    }

    /// What the queue says now, for those who ask while another has it.
    fn note(&self, sending: &Sending) {
        self.held.store(if self.keeps { sending.queue.held() } else { 0 }, Ordering::Relaxed);
        self.in_flight.store(sending.queue.in_flight(), Ordering::Relaxed);
        self.due.store(sending.queue.due().unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Lets the queue go. Who found it taken until now has left its packets, and does not come back for them: between the
    /// fence here and the one in `transmit`, either it finds the queue free or we find its packets.
    fn unlock(&self, sending: MutexGuard<'_, Sending>, cx: &mut Context) {
        self.note(&sending);
        drop(sending);
        for _ in 0..ROUNDS {
            fence(Ordering::SeqCst);
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            let Some(mut sending) = self.try_lock() else { return };
            let all = self.serve(&mut sending, cx);
            self.note(&sending);
            drop(sending);
            if !all {
                return;
            }
        }
    }
}

impl TransmitQueue for SharedTransmit {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        let Self { shared, waits, .. } = self;
        let Some(sending) = shared.try_lock() else {
            shared.leave(waits, batch, cx);
            fence(Ordering::SeqCst);
            if let Some(sending) = shared.try_lock() {
                shared.send(sending, batch, cx);
            } else if shared.patient && !batch.is_empty() {
                shared.send(shared.lock(), batch, cx);
            }
            return;
        };
        shared.send(sending, batch, cx);
    }
    fn is_patient(&self) -> bool {
        self.shared.patient
    }
    fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }
    fn flush(&mut self, cx: &mut Context) {
        if let Some(mut sending) = self.shared.try_lock() {
            self.shared.serve(&mut sending, cx);
            sending.queue.flush(cx);
            self.shared.unlock(sending, cx);
        }
    }
    fn needs_flush(&self) -> bool {
        self.shared.needs_flush
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
    /// Waits for the queue: nobody is kept from anything any more.
    fn release(&mut self, cx: &mut Context) {
        let mut sending = self.shared.lock();
        if !self.shared.serve(&mut sending, cx) {
            // It is full and stays so.
            let lost: Vec<Packet> = sending.hand.drain().collect();
            let bytes = lost.iter().map(|packet| packet.len() as u64).sum();
            cx.taken(lost.len() as u64, bytes);
            lost.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::TransmitFull));
        }
        sending.queue.release(cx);
        self.shared.unlock(sending, cx);
    }
}

#[cfg(test)]
mod tests;
