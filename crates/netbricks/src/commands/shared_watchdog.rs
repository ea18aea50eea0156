//! Keeps watch over workers, also while the director waits for one of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netbricks_runtime::{Control, Stuck, Watchdog};
use sd_notify::NotifyState;

/// The longest time between two signs of life to the service manager while the director waits.
const SIGN: Duration = Duration::from_millis(500);

/// The watchdog of a run, which the director and its waiting for a worker share.
#[derive(Clone)]
pub(crate) struct SharedWatchdog(Arc<Mutex<Seen>>);

struct Seen {
    watchdog: Watchdog,
    /// Not told yet.
    found: Vec<Stuck>,
    /// Workers that take long over a command for which the director waits.
    asked: BTreeSet<usize>,
    signed: Instant,
}

impl SharedWatchdog {
    /// Keeps watch over all workers from now on.
    pub(crate) fn new(control: &Control) -> Self {
        let now = Instant::now();
        let watchdog = Watchdog::new(control, now);
        let seen = Seen { watchdog, found: Vec::new(), asked: BTreeSet::new(), signed: now };
        let watching = Self(Arc::new(Mutex::new(seen)));
        // The workers' state must not keep itself alive.
        let seen = Arc::downgrade(&watching.0);
        control.while_waiting(move |worker| seen.upgrade().is_some_and(|seen| Self(seen).wait_for(worker)));
        watching
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a worker is stuck, as of the last look.
    pub(crate) fn is_stuck(&self, worker: usize) -> bool {
        self.seen().watchdog.is_stuck(worker)
    }

    /// Looks at all workers, and answers what was found since.
    pub(crate) fn look(&self) -> Vec<Stuck> {
        let mut seen = self.seen();
        seen.look(false);
        std::mem::take(&mut seen.found)
    }

    /// Looks around while the director waits for a worker. Answers whether that worker is stuck.
    fn wait_for(&self, worker: usize) -> bool {
        let mut seen = self.seen();
        seen.look(true);
        if seen.signed.elapsed() >= SIGN {
            seen.signed = Instant::now();
            notify(&[NotifyState::Watchdog]);
        }
        seen.watchdog.is_stuck(worker)
    }
}

impl Seen {
    fn look(&mut self, waits: bool) {
        for stuck in self.watchdog.look(Instant::now()) {
            match stuck {
                // What the director waits for may take long, such as large tables.
                Stuck::Began { worker, node: None, .. } if waits => _ = self.asked.insert(worker),
                Stuck::Ended { worker, .. } if self.asked.remove(&worker) => {}
                stuck => self.found.push(stuck),
            }
        }
    }
}

/// Tells the service manager, where there is one (`sd_notify(3)`).
pub(super) fn notify(state: &[NotifyState<'_>]) {
    // A manager that does not hear acts by its own timeouts.
    let _unheard = sd_notify::notify(state);
}
