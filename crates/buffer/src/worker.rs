//! Worker slots: a thread's index into the per-worker stacks of free frames of every pool.
//!
//! An index belongs to one thread at a time, so a stack is plain memory. A pool's `take` and `give` read the index from
//! a thread-local, as DPDK does with its lcore number.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Workers that may have stacks at one time.
pub(crate) const SLOTS: usize = 64;
const NONE: usize = usize::MAX;

static CLAIMED: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];
/// How often a slot was given up.
static RELEASES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(NONE) };
}

/// This thread's index, or `usize::MAX`.
#[inline(always)]
pub(crate) fn index() -> usize {
    MINE.get()
}

/// A thread's claim to stacks of free frames in every pool.
///
/// While it lives, the thread allocates and frees packets through plain memory. Threads without a slot use the pools'
/// shared depots.
#[derive(Debug)]
pub struct WorkerSlot {
    index: usize,
    // The claim is the thread's: it must be given up where it was made.
    not_send: PhantomData<*const ()>,
}

/// No worker slot can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWorkerSlot {
    /// All are taken.
    #[error("all {SLOTS} worker slots are taken: run fewer workers in one process")]
    Exhausted,
    /// This thread has one already.
    #[error("this thread has a worker slot already")]
    Twice,
}

impl WorkerSlot {
    /// Claims a slot for this thread.
    ///
    /// # Errors
    /// [`NoWorkerSlot`] when 64 threads have one, or this thread does.
    pub fn claim() -> Result<Self, NoWorkerSlot> {
        if MINE.get() != NONE {
            return Err(NoWorkerSlot::Twice);
        }
        let index = (0..SLOTS).find(|i| try_claim(*i)).ok_or(NoWorkerSlot::Exhausted)?;
        MINE.set(index);
        Ok(Self { index, not_send: PhantomData })
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        MINE.set(NONE);
        release(self.index);
    }
}

/// Claims slot `index` without becoming its worker, to empty a stack that is not in use.
pub(crate) fn try_claim(index: usize) -> bool {
    // Acquire: what the last owner left in the stacks is seen.
    CLAIMED[index].compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

pub(crate) fn release(index: usize) {
    CLAIMED[index].store(false, Ordering::Release);
    // Behind the store: who sees this count also sees that the slot is free.
    RELEASES.fetch_add(1, Ordering::Release);
}

/// How often a slot was given up so far.
///
/// While it stays the same, no more stacks have lost their worker.
#[inline(always)]
pub(crate) fn releases() -> u64 {
    RELEASES.load(Ordering::Acquire)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Runs tests one at a time, since slots belong to the process.
    ///
    /// Frames of a slot that one test gave up would be out of reach while another test has the slot.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_thread_has_one_slot_and_gives_it_back() {
        let _alone = alone();
        let first = WorkerSlot::claim().unwrap();
        assert_eq!(WorkerSlot::claim().unwrap_err(), NoWorkerSlot::Twice);
        drop(first);
        assert!(WorkerSlot::claim().is_ok());
    }
}
