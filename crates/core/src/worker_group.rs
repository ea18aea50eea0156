//! What the workers of one runtime have in common while their graphs are built: how many they are, and where their
//! copies of one node meet.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::shuffle::{OwnerTable, ShuffleKey};

/// The workers of one runtime.
#[derive(Clone)]
pub struct WorkerGroup(Arc<Members>);

struct Members {
    workers: usize,
    met: Mutex<Vec<(SharedSlot, Arc<dyn Any + Send + Sync>)>>,
    /// By key and seed: what all shuffles have in common that sort alike.
    owner_table: Mutex<Vec<(ShuffleKey, u64, Arc<OwnerTable>)>>,
}

/// A place where the workers' copies of one node meet; each that is made is another. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct SharedSlot(Arc<()>);

impl WorkerGroup {
    /// A group of so many workers, 1 or more.
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Members {
            workers: workers.max(1),
            met: Mutex::default(),
            owner_table: Mutex::default(),
        }))
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.0.workers
    }
    /// What stands at a meeting place: made by whoever comes first.
    ///
    /// # Errors
    /// What `make` says; who comes next then tries again.
    pub fn shared<T: Any + Send + Sync, E>(
        &self,
        place: &SharedSlot,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut met = self.0.met.lock().unwrap_or_else(PoisonError::into_inner);
        let known = met.iter().find(|(other, _)| Arc::ptr_eq(&other.0, &place.0));
        // Of another type it never is: a meeting place belongs to one node.
        if let Some(Ok(known)) = known.map(|(_, known)| known.clone().downcast::<T>()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        met.push((place.clone(), made.clone()));
        Ok(made)
    }

    /// The owner table of shuffles by this key, with hashes of this seed; made for the first that asks.
    pub(crate) fn owner_table(
        &self,
        key: ShuffleKey,
        seed: u64,
        make: impl FnOnce() -> OwnerTable,
    ) -> Arc<OwnerTable> {
        let mut owner_table = self.0.owner_table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., known)) = owner_table.iter().find(|(other, its, _)| (*other, *its) == (key, seed)) {
            return known.clone();
        }
        let made = Arc::new(make());
        owner_table.push((key, seed, made.clone()));
        made
    }
}

impl fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGroup").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}
