//! Watches over the packets of running workers: armed, read and ended from any thread.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use netbricks_core::observer::{Numbers, Sightings, WATCHES, Watch};

use crate::control::Control;
use crate::report::CommandError;
use crate::worker::Worker;

/// The watches of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    next: AtomicU64,
    /// A bit for each place that is taken.
    places: AtomicU8,
    numbers: Numbers,
}

const _: () = assert!(WATCHES == u8::BITS as usize, "a watch has a bit");

/// A watch over running workers. Dropping it ends the watch.
#[derive(Debug)]
pub struct Observation {
    control: Control,
    watch: Watch,
}

impl Control {
    /// The source of the numbers of traced packets, for [`observe`](Self::observe).
    pub fn numbers(&self) -> Numbers {
        self.0.watches.numbers.clone()
    }

    /// Arms a watch on all workers, between two of their batches. Graphs that come later have it too.
    ///
    /// # Errors
    /// [`CommandError::TooManyWatches`], or a worker is stuck.
    pub fn observe(&self, watch: Watch) -> Result<Observation, CommandError> {
        let watches = &self.0.watches;
        let taken = watches.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken != u8::MAX).then(|| taken | 1 << taken.trailing_ones())
        });
        let place =
            taken.map_err(|_| CommandError::TooManyWatches { watches: WATCHES })?.trailing_ones() as u8;
        let id = watches.next.fetch_add(1, Ordering::Relaxed) + 1;
        let observation = Observation { control: self.clone(), watch: Watch { id, place, ..watch } };
        for worker in 0..self.workers() {
            let watch = observation.watch.clone();
            match self.ask(worker, move |hands| {
                hands.arm(watch);
                Ok(())
            }) {
                Ok(()) | Err(CommandError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(observation)
    }
}

impl Observation {
    /// The watch.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.control.workers()
    }

    /// Asks a worker for what the watch has seen there since this was asked last; the answer comes later.
    ///
    /// There is an item for each graph. `answer` is called once, on the worker's thread: it must not wait. It
    /// is dropped without a call where the worker ends first.
    ///
    /// # Errors
    /// [`CommandError::NoWorker`] or [`CommandError::Ended`]; `answer` is then not called.
    pub fn post_take(
        &self,
        worker: usize,
        answer: impl FnOnce(Vec<Sightings>) + Send + 'static,
    ) -> Result<(), CommandError> {
        let id = self.watch.id;
        // Memory is taken here, and not by the worker.
        let mut empty = vec![Sightings::new(&self.watch)];
        self.control.post_command(worker, move |hands| {
            let mut seen = Vec::new();
            for hosted in &mut hands.graphs {
                let spare = empty.pop().unwrap_or_else(|| empty_sightings(&hands.watches, id));
                seen.extend(hosted.graph.take_sightings(id, spare));
            }
            answer(seen);
        })
    }

    /// As [`post_take`](Self::post_take) from all workers, and waits. Workers that have ended are left out.
    ///
    /// # Errors
    /// A worker is stuck.
    pub fn take(&self) -> Result<Vec<(usize, Sightings)>, CommandError> {
        let mut all = Vec::new();
        for worker in 0..self.workers() {
            let (sender, answer) = std::sync::mpsc::sync_channel(1);
            let posted = self.post_take(worker, move |seen| {
                // The caller may have stopped waiting.
                let _gone = sender.send(seen);
            });
            match posted.and_then(|()| self.control.answer_of(worker, &answer, None)) {
                Ok(seen) => all.extend(seen.into_iter().map(|seen| (worker, seen))),
                Err(CommandError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let (id, bit) = (self.watch.id, 1 << self.watch.place);
        for worker in 0..self.workers() {
            // A worker that has ended watches nothing.
            let _ended = self.control.post_command(worker, move |hands| hands.disarm(id));
        }
        self.control.0.watches.places.fetch_and(!bit, Ordering::Relaxed);
    }
}

impl Worker {
    pub(crate) fn arm(&mut self, watch: Watch) {
        self.graphs.iter_mut().for_each(|hosted| hosted.graph.watch(watch.clone()));
        self.watches.push(watch);
    }

    pub(crate) fn disarm(&mut self, id: u64) {
        self.graphs.iter_mut().for_each(|hosted| hosted.graph.unwatch(id));
        self.watches.retain(|watch| watch.id != id);
    }
}

/// An empty set for another graph: only a worker with several graphs needs more than one.
fn empty_sightings(watches: &[Watch], id: u64) -> Sightings {
    watches.iter().find(|watch| watch.id == id).map(Sightings::new).unwrap_or_default()
}
