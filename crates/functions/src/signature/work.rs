//! Counts the work of evaluations in tests, which compare it with the bytes that are looked at.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
}

/// Notes that so many bytes were read, or states followed.
#[inline(always)]
pub(super) fn spend(_steps: usize) {
    #[cfg(test)]
    SPENT.set(SPENT.get() + _steps as u64);
}

/// The work of this thread since the last call.
#[cfg(test)]
pub(super) fn take() -> u64 {
    SPENT.take()
}
