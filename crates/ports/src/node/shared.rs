//! One transmit queue for several workers, one batch at a time: for ports that have fewer queues than there are workers.

use std::sync::{Arc, Mutex, PoisonError};

use netbricks_buffer::Batch;
use netbricks_core::Context;

use crate::port::TransmitQueue;

/// A transmit queue that several workers share.
pub struct SharedTransmit {
    queue: Arc<Mutex<Box<dyn TransmitQueue>>>,
    /// The handle that reports what all of them hold, so that it is counted once.
    reports: bool,
}

impl Clone for SharedTransmit {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), reports: false }
    }
}

impl SharedTransmit {
    /// Shares `queue`; each worker's transmit node gets a clone.
    pub fn new(queue: Box<dyn TransmitQueue>) -> Self {
        Self { queue: Arc::new(Mutex::new(queue)), reports: true }
    }

    fn with<R>(&self, f: impl FnOnce(&mut dyn TransmitQueue) -> R) -> R {
        // A panic in a driver is contained by its graph; the queue stays as usable as it was to that worker.
        f(&mut **self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TransmitQueue for SharedTransmit {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.with(|queue| queue.transmit(batch, cx));
    }
    fn in_flight(&self) -> usize {
        self.with(|queue| queue.in_flight())
    }
    fn flush(&mut self, cx: &mut Context) {
        self.with(|queue| queue.flush(cx));
    }
    fn needs_flush(&self) -> bool {
        self.with(|queue| queue.needs_flush())
    }
    fn keeps_packets(&self) -> bool {
        self.with(|queue| queue.keeps_packets())
    }
    fn held(&self) -> u64 {
        if self.reports { self.with(|queue| queue.held()) } else { 0 }
    }
    fn due(&self) -> Option<u64> {
        self.with(|queue| queue.due())
    }
    fn release(&mut self, cx: &mut Context) {
        self.with(|queue| queue.release(cx));
    }
}

#[cfg(test)]
mod tests;
