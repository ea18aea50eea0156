//! State behind one lock, for all workers.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_tables::{Counters, Locked};

use super::{Access, CannotWrite, Consistency, Contents, Strict, bounded, export_in_steps, maker};
use crate::registry::Worker;
use crate::shuffle::ShuffleKey;
use crate::state::{Declared, Mobility};

/// A handle to state under [`Strict`] consistency.
pub struct StrictState<T>(Arc<Ranked<T>>);

/// What is locked, and its place in the order of locking: that of making, which is that of declaring, since all workers declare
/// alike. Two workers that asked for two states in opposite orders would wait for each other for ever.
struct Ranked<T> {
    rank: u64,
    locked: Locked<T>,
}

impl<T> Ranked<T> {
    fn new(locked: Locked<T>) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self { rank: 1 + MADE.fetch_add(1, Ordering::Relaxed), locked }
    }
}

thread_local! {
    /// The rank of the state that this thread asked for last, of those that it has; 0 where it has none.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

impl<T> Clone for StrictState<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Says that it is held no more, also after a panic, and what was asked for before it.
struct Holding(u64);

impl Drop for Holding {
    fn drop(&mut self) {
        LAST.set(self.0);
    }
}

impl<T> StrictState<T> {
    /// Gives `f` the whole state: all that it reads and changes is one step for everybody else. One lock: ask once a
    /// batch, or once for several things. Who needs several states at once asks for them in the order of their declaration, one inside
    /// the other.
    ///
    /// # Panics
    /// From inside such a call on the same worker, which would wait for itself. From inside one on a state that was declared later, or
    /// inside a read of [bounded](super::BoundedInconsistency) state, for which its writer would wait: two workers might wait for each
    /// other. The panic is contained, as a function's.
    #[inline]
    pub fn transact<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.enter(f).unwrap_or_else(|error| match error {
            CannotWrite::OutOfOrder => panic!("{error}"),
            _ => panic!(
                "strict state is asked for by who has it: use what the outer call gave, or ask after it"
            ),
        })
    }

    #[inline]
    fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, CannotWrite> {
        let Ranked { rank, locked } = &*self.0;
        let last = LAST.get();
        if last == *rank {
            return Err(CannotWrite::Reading);
        }
        if last > *rank || bounded::is_reading() {
            return Err(CannotWrite::OutOfOrder);
        }
        LAST.set(*rank);
        let _holding = Holding(last);
        Ok(locked.hold(f))
    }

    /// Times that it was found made anew, after a panic inside; also from inside a call.
    #[must_use]
    pub fn remade(&self) -> u64 {
        self.0.locked.remade()
    }
}

impl Consistency for Strict {
    type Handle<T: Contents> = StrictState<T>;

    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> StrictState<T> {
        let name = worker.declarations.borrow().unique(name);
        let state = worker.shares.part(&name, || {
            // So that a failure is the node's; what follows then never fails.
            drop(worker.made::<T>(&name, &config));
            Arc::new(Ranked::new(Locked::new(maker::<T>(config))))
        });
        worker.declare(&name, Seen(state.clone()));
        StrictState(state)
    }
}

impl<T: Contents> Access<T> for StrictState<T> {
    #[inline]
    fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        self.transact(|state| f(state))
    }

    fn update_all(
        &self,
        changes: impl IntoIterator<Item = T::Change>,
        mut outcome: impl FnMut(T::Outcome),
    ) -> Result<(), CannotWrite> {
        self.enter(|state| changes.into_iter().for_each(|change| outcome(state.apply(&change))))
    }
}

/// The state as the control side finds it, on any of its workers.
struct Seen<T>(Arc<Ranked<T>>);

impl<T: Contents> Declared for Seen<T> {
    fn export(&self) -> Vec<u8> {
        export_in_steps(|step| self.0.locked.hold(|state| step(state)))
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        self.0.locked.hold(|state| state.import(bytes, now))
    }
    fn occupancy(&self) -> (u64, u64) {
        self.0.locked.hold(|state| state.occupancy())
    }
    fn flow_counters(&self) -> Option<Counters> {
        self.0.locked.hold(|state| state.flow_counters())
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
}
