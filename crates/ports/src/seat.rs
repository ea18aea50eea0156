//! The hand-over of a queue to the worker that has another one.
//!
//! The worker pays one relaxed load a batch. A thread of the port makes the new queue and drops the old one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value that is replaced as a whole or not at all.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queues before that a place has room for at first.
const ROOM: usize = 4;

/// The place where a queue is handed over.
pub(crate) struct Seat<Q: ?Sized> {
    waits: AtomicBool,
    next: Mutex<Option<Box<Q>>>,
    /// The queues before, which the port's thread drops: that takes system calls.
    left: Mutex<Vec<Box<Q>>>,
    /// Wakes a worker that sleeps.
    bell: Option<OwnedFd>,
}

impl<Q: ?Sized> Seat<Q> {
    /// A place without a queue. A worker that may sleep needs a bell.
    pub(crate) fn new(bell: Option<OwnedFd>) -> Self {
        Self {
            waits: AtomicBool::new(false),
            next: Mutex::new(None),
            left: Mutex::new(Vec::with_capacity(ROOM)),
            bell,
        }
    }

    /// Hands a queue over.
    pub(crate) fn offer(&self, queue: Box<Q>) {
        // A queue that no worker took is as useless as the one in use.
        let unused = self.change(|next| next.replace(queue));
        drop(unused);
    }

    /// Changes the waiting queue and, under the same lock, the flag and the bell that the packet path checks.
    ///
    /// A queue that is offered while another is taken must not be lost, and no bell may ring for a queue that
    /// was taken already.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Option<Box<Q>>) -> R) -> R {
        let mut next = lock(&self.next);
        let answer = change(&mut next);
        self.waits.store(next.is_some(), Ordering::Release);
        // A bell can only fail because it rings already, or does not ring.
        match &self.bell {
            Some(bell) if next.is_some() => drop(rustix::io::write(bell, &1u64.to_ne_bytes())),
            Some(bell) => drop(rustix::io::read(bell, &mut [0; 8])),
            None => {}
        }
        answer
    }

    /// Whether a queue waits.
    #[inline(always)]
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// The queue that waits.
    pub(crate) fn take(&self) -> Option<Box<Q>> {
        self.change(Option::take)
    }

    /// Replaces `queue` by the waiting queue.
    #[cold]
    pub(crate) fn swap(&self, queue: &mut Box<Q>) {
        if let Some(next) = self.take() {
            let old = std::mem::replace(queue, next);
            lock(&self.left).push(old);
        }
    }

    /// The descriptor that is readable while a queue waits.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Drops the queues before.
    pub(crate) fn clear(&self) {
        let mut left = lock(&self.left);
        if !left.is_empty() {
            // Outside of the lock, on which a worker may wait; the worker that adds to the list allocates nothing.
            let old = std::mem::replace(&mut *left, Vec::with_capacity(ROOM));
            drop(left);
            drop(old);
        }
    }
}
