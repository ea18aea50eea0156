//! Counters whose report shows only the part that this instance counted.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::{Counter, Worker};

/// A declared counter, and how much of it this instance counted.
///
/// The counter continues in the function that replaces this one. A report shows the part that was counted here, beside
/// other numbers that begin with the function.
#[derive(Clone)]
pub(crate) struct Count {
    all: Counter,
    here: Rc<Cell<u64>>,
}

impl Count {
    /// Declares the counter.
    pub(crate) fn new(name: &str, worker: &Worker) -> Self {
        Self { all: worker.counter(name), here: Rc::default() }
    }
    pub(crate) fn add(&self, by: u64) {
        self.all.add(by);
        self.here.set(self.here.get() + by);
    }
    /// The part that this instance counted.
    pub(crate) fn here(&self) -> u64 {
        self.here.get()
    }
}
