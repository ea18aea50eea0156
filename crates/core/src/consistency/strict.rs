//! State behind one lock, for all workers.

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netbricks_tables::{Counters, Locked};

use super::shared_state::{Fate, Given, SharedStateRef, TWICE, refitted};
use super::{Access, CannotWrite, Consistency, Contents, Shares, Strict, bounded, export_in_steps, remaker};
use crate::node::HandlerSide;
use crate::shuffle::ShuffleKey;
use crate::state::{Declared, Mobility, StateTerms, Succession};
use crate::worker::Worker;

/// A handle to state under [`Strict`] consistency.
pub struct StrictState<T: Contents>(Rc<Side<T>>);

/// One worker's side of a state.
struct Side<T: Contents> {
    own: Arc<Ranked<T>>,
    /// The state that replaces this one, where its graph took over from another.
    inherited: OnceCell<Arc<Ranked<T>>>,
    config: T::Config,
    /// The place and the name under which other workers find the state.
    shares: Shares,
    name: String,
}

/// The locked state, and its place in the order of locking.
///
/// That order is the order of making, and so of declaring, since all workers declare alike. Two workers that asked for
/// two states in opposite orders would wait for each other for ever.
struct Ranked<T: Contents> {
    rank: u64,
    locked: Locked<T>,
    /// The configuration by which it was last made.
    config: Mutex<T::Config>,
    /// The decision about this state when its graph took over from another, made once for all workers.
    fate: Fate<Self>,
}

impl<T: Contents> Ranked<T> {
    fn new(state: T, config: T::Config) -> Arc<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let rank = 1 + MADE.fetch_add(1, Ordering::Relaxed);
        let locked = Locked::of(state, remaker::<T>(config.clone()));
        Arc::new(Self { rank, locked, config: Mutex::new(config), fate: Fate::new() })
    }

    fn gives_way_to(&self, config: &T::Config) -> bool {
        T::gives_way(&self.config.lock().unwrap_or_else(PoisonError::into_inner), config)
    }

    /// Makes the state again as a graph wants it, from its content, in one step; nothing changes where that
    /// fails.
    fn refit(&self, config: &T::Config, now: u64) -> Result<(), String> {
        let mut known = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != *config {
            self.locked.replace(|state| refitted(state, config, now), remaker::<T>(config.clone()))?;
            *known = config.clone();
        }
        Ok(())
    }
}

impl<T: Contents> Side<T> {
    #[inline(always)]
    fn ranked(&self) -> &Arc<Ranked<T>> {
        self.inherited.get().unwrap_or(&self.own)
    }

    /// Takes over the state of the graph that this one replaces.
    ///
    /// Where its configuration differs, the first worker makes it again from the old one's export.
    fn adopt(&self, old: &Arc<Ranked<T>>, now: u64) -> Result<(), String> {
        if Arc::ptr_eq(&self.own, old) {
            return old.refit(&self.config, now);
        }
        if old.gives_way_to(&self.config) {
            return Ok(());
        }
        // The state with which it began stays as it is: workers whose graphs took over from none have it.
        self.own.fate.of(old, || {
            old.refit(&self.config, now)?;
            self.shares.set(&self.name, old.clone());
            Ok(())
        })?;
        // Set once: a graph takes over from one other.
        let _again = self.inherited.set(old.clone());
        Ok(())
    }
}

thread_local! {
    /// The rank of the state that this thread locked last, of those that it holds; 0 where it holds none.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Whether this thread is in a call on any strict state.
pub(super) fn is_locked() -> bool {
    LAST.get() > 0
}

impl<T: Contents> Clone for StrictState<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A guard that restores the rank before the lock, also after a panic.
struct Holding(u64);

impl Drop for Holding {
    fn drop(&mut self) {
        LAST.set(self.0);
    }
}

impl<T: Contents> StrictState<T> {
    /// Gives `f` the whole state: all its reads and changes are one step for other workers.
    ///
    /// It takes one lock: call it once a batch, or once for several values. A caller that needs several
    /// states nests the calls in the order of declaration.
    ///
    /// # Panics
    /// Inside such a call on the same worker, which would wait for itself. Also where two workers might wait
    /// for each other: inside a call on a state that was declared later, or inside a read of
    /// [bounded](super::BoundedInconsistency) state. That state's writer would wait for the read. The panic
    /// is contained, like that of a function.
    #[inline]
    pub fn transact<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.enter(|locked| locked.hold(f)).unwrap_or_else(|error| match error {
            CannotWrite::OutOfOrder => panic!("{error}"),
            _ => panic!(
                "strict state is asked for by who has it: use what the outer call gave, or ask after it"
            ),
        })
    }

    #[inline]
    fn enter<R>(&self, hold: impl FnOnce(&Locked<T>) -> R) -> Result<R, CannotWrite> {
        let Ranked { rank, locked, .. } = &**self.0.ranked();
        let last = LAST.get();
        if last == *rank {
            return Err(CannotWrite::Reading);
        }
        if last > *rank || bounded::is_reading() {
            return Err(CannotWrite::OutOfOrder);
        }
        LAST.set(*rank);
        let _holding = Holding(last);
        Ok(hold(locked))
    }

    /// How often the state was made again after a panic inside; also callable inside a call.
    #[must_use]
    pub fn remade(&self) -> u64 {
        self.0.ranked().locked.remade()
    }
}

impl Consistency for Strict {
    type Handle<T: Contents> = StrictState<T>;

    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> StrictState<T> {
        let name = worker.declarations.borrow().unique(name);
        let made = worker.shares.part(&name, || Ok(Ranked::new(T::make(&config)?, config.clone())));
        let own = worker.made(&name, made, || Ranked::new(T::least(), config.clone()));
        let (shares, inherited) = (worker.shares.clone(), OnceCell::new());
        let side = Rc::new(Side { own, inherited, config, shares, name: name.clone() });
        worker.declare(&name, Seen(side.clone(), Given::default()));
        StrictState(side)
    }
}

impl<T: Contents> Access<T> for StrictState<T> {
    const SIDE: HandlerSide = HandlerSide::Control;

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        self.transact(|state| f(state))
    }

    fn update_all(
        &self,
        changes: impl IntoIterator<Item = T::Change>,
        mut outcome: impl FnMut(T::Outcome),
    ) -> Result<(), CannotWrite> {
        let change = |state: &mut T| changes.into_iter().for_each(|change| outcome(state.apply(&change)));
        self.enter(|locked| locked.hold_whole(change))?.ok_or(CannotWrite::Spoilt)
    }
}

/// The state as the control side finds it, on any of its workers.
struct Seen<T: Contents>(Rc<Side<T>>, Given);

impl<T: Contents> Seen<T> {
    fn hold<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.ranked().locked.hold(f)
    }
}

impl<T: Contents> Declared for Seen<T> {
    fn export(&self) -> Vec<u8> {
        if self.1.get() {
            return Vec::new();
        }
        export_in_steps(|step| self.hold(|state| step(state)))
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        let imported = self.0.ranked().locked.hold_whole(|state| state.import(bytes, now));
        imported.unwrap_or_else(|| Err(CannotWrite::Spoilt.to_string()))
    }
    fn occupancy(&self) -> (u64, u64) {
        self.hold(|state| state.occupancy())
    }
    fn terms(&self) -> StateTerms {
        self.hold(|state| state.terms()).shared_by(self.0.ranked().clone())
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        let config = &self.0.config;
        let reason = match before.shared::<Arc<Ranked<T>>>() {
            None => "workers share it otherwise",
            Some(old) if old.gives_way_to(config) => return Succession::configured(),
            Some(old) if *old.config.lock().unwrap_or_else(PoisonError::into_inner) == *config => {
                return Succession::whole();
            }
            Some(_) => "it is made again by other settings",
        };
        self.hold(|state| state.succession(&before.apart())).or_copied(reason)
    }
    fn flow_counters(&self) -> Option<Counters> {
        self.hold(|state| state.flow_counters())
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
    fn is_written(&self) -> bool {
        self.hold(|state| state.is_written())
    }
    fn learned(&self) -> Option<Vec<u8>> {
        self.hold(|state| state.learned())
    }
    fn learn(&mut self, learned: &[u8]) -> Result<(), String> {
        let taken = self.0.ranked().locked.hold_whole(|state| state.learn(learned));
        taken.unwrap_or_else(|| Err(CannotWrite::Spoilt.to_string()))
    }
    fn shared_state(&self) -> Option<SharedStateRef> {
        Some(SharedStateRef::new(self.0.ranked().clone(), &self.1))
    }
    /// Takes over only state that keeps the order of locking.
    ///
    /// If a function declares its states in another order, a call might wait for a worker whose old graph
    /// waits for this one.
    fn adopt(
        &mut self,
        shared: &SharedStateRef,
        between: Range<u64>,
        now: u64,
    ) -> Option<Result<(), String>> {
        let old = shared.of::<Arc<Ranked<T>>>().filter(|old| between.contains(&old.rank))?;
        Some(self.0.adopt(old, now))
    }
    fn follow(&mut self) -> Result<(), String> {
        match self.0.shares.get::<Arc<Ranked<T>>>(&self.0.name) {
            Some(other) if !Arc::ptr_eq(&other, self.0.ranked()) => {
                self.0.inherited.set(other).map_err(|_| TWICE.to_owned())
            }
            _ => Ok(()),
        }
    }
    fn rank(&self) -> u64 {
        self.0.ranked().rank
    }
}
