//! State that is replaced as a whole: each change is prepared without a lock, and each worker has a copy.

use std::cell::RefCell;
use std::hint::cold_path;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::tables::Changing;

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;

/// The whole of some state at one time.
pub(crate) trait Snapshot: Sized + 'static {
    /// The number of changes that led to it.
    fn version(&self) -> u64;
    /// The hash of the configuration that it began with.
    fn origin(&self) -> u64;
}

/// Replaces one snapshot by the next, unless another replacement came first.
pub(crate) struct Replace<T> {
    base: u64,
    next: Arc<T>,
}

impl<T> Clone for Replace<T> {
    fn clone(&self) -> Self {
        Self { base: self.base, next: self.next.clone() }
    }
}

impl<T: Snapshot> Replace<T> {
    /// Replaces `now`; the answer is whether it did.
    ///
    /// A new configuration counts its versions from the beginning, and so has another origin.
    pub(crate) fn apply(&self, now: &mut Arc<T>) -> bool {
        let fits = now.version() == self.base && now.origin() == self.next.origin();
        if fits {
            *now = self.next.clone();
        }
        fits
    }
}

/// Shared state that holds a snapshot.
pub(crate) trait Holds: Contents + Changing<Change = Replace<Self::Snapshot>, Outcome = bool> {
    type Snapshot: Snapshot;
    fn snapshot(&self) -> &Arc<Self::Snapshot>;
}

/// The snapshot as one worker's packets see it: a copy that is [renewed](Self::renew) after each change.
pub(crate) struct Current<S: Holds> {
    shared: Bounded<S>,
    published: u64,
    snapshot: Arc<S::Snapshot>,
}

impl<S: Holds> Current<S> {
    pub(crate) fn of(shared: Bounded<S>) -> Self {
        let published = shared.published();
        let snapshot = shared.read(|shared| shared.snapshot().clone());
        Self { shared, published, snapshot }
    }

    /// The snapshot as of the last [`get`](Self::get).
    #[inline(always)]
    pub(crate) fn seen(&self) -> &Arc<S::Snapshot> {
        &self.snapshot
    }

    /// Renews the copy if need be; returns whether it changed.
    #[inline(always)]
    pub(crate) fn renew(&mut self) -> bool {
        let published = self.shared.published();
        let changed = published != self.published;
        if changed {
            cold_path();
            // Read the number first: the snapshot that is read after it is at least as new.
            self.published = published;
            self.snapshot = self.shared.read(|shared| shared.snapshot().clone());
        }
        changed
    }

    /// The snapshot, renewed if need be.
    #[inline(always)]
    pub(crate) fn get(&mut self) -> &Arc<S::Snapshot> {
        self.renew();
        &self.snapshot
    }
}

/// Changes the state for callers of handlers.
pub(crate) struct Changes<T> {
    /// Replaced snapshots, until all packets use the next one.
    ///
    /// They are freed here, and not by the worker whose packet leaves them last.
    replaced: Rc<RefCell<Vec<Arc<T>>>>,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { replaced: Rc::default() }
    }
}

impl<T> Clone for Changes<T> {
    fn clone(&self) -> Self {
        Self { replaced: self.replaced.clone() }
    }
}

impl<T: Snapshot> Changes<T> {
    /// Replaces the snapshot by what `next` makes of it; `what` names its parts in an error.
    ///
    /// # Errors
    /// Those of `next`, or other changes come first all the time.
    pub(crate) fn make<S: Holds<Snapshot = T>>(
        &self,
        shared: &Bounded<S>,
        what: &str,
        next: impl Fn(&T) -> Result<T, String>,
    ) -> Result<Arc<T>, String> {
        self.replaced.borrow_mut().retain(|snapshot| Arc::strong_count(snapshot) > 1);
        for _ in 0..TRIES {
            let now = shared.read(|shared| shared.snapshot().clone());
            let next = Arc::new(next(&now)?);
            let replace = Replace { base: now.version(), next: next.clone() };
            if shared.update(replace).map_err(|cannot| cannot.to_string())? {
                self.replaced.borrow_mut().push(now);
                return Ok(next);
            }
        }
        Err(format!("others change the {what} all the time: try again"))
    }
}
