//! The workers of one runtime while their graphs are built.
//!
//! A group knows their number, and the state that their copies of one node share.

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
    /// By tenant, key and seed, the owner table of all the tenant's shuffles with that key.
    owner_table: Mutex<Vec<(TableKey, Arc<OwnerTable>)>>,
}

/// The identity of an owner table: a tenant, empty for the operator, the key, and the seed of its hashes.
type TableKey = (Box<str>, ShuffleKey, u64);

/// The identity of state that the workers' copies of one node share.
///
/// Each new value is another slot; clones are the same slot.
#[derive(Clone, Debug, Default)]
pub struct SharedSlot(Arc<()>);

impl WorkerGroup {
    /// A group of this many workers, at least 1.
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Members {
            workers: workers.max(1),
            met: Mutex::default(),
            owner_table: Mutex::default(),
        }))
    }
    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.0.workers
    }
    /// The state of a shared slot, made by the first worker that asks.
    ///
    /// # Errors
    /// The error of `make`; the next worker that asks then tries again.
    pub fn shared<T: Any + Send + Sync, E>(
        &self,
        place: &SharedSlot,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut met = self.0.met.lock().unwrap_or_else(PoisonError::into_inner);
        let known = met.iter().find(|(other, _)| Arc::ptr_eq(&other.0, &place.0));
        // Its type never differs: a shared slot belongs to one node.
        if let Some(Ok(known)) = known.map(|(_, known)| known.clone().downcast::<T>()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        met.push((place.clone(), made.clone()));
        Ok(made)
    }

    /// The owner table of a tenant's shuffles by this key, with hashes of this seed.
    ///
    /// It is made for the first that asks. A tenant may move buckets, and must not move those of others.
    pub(crate) fn owner_table(
        &self,
        tenant: &str,
        key: ShuffleKey,
        seed: u64,
        make: impl FnOnce() -> OwnerTable,
    ) -> Arc<OwnerTable> {
        let mut owner_table = self.0.owner_table.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(of, other, its): &TableKey| **of == *tenant && (*other, *its) == (key, seed);
        if let Some((_, known)) = owner_table.iter().find(|(known, _)| is_it(known)) {
            return known.clone();
        }
        let made = Arc::new(make());
        owner_table.push(((tenant.into(), key, seed), made.clone()));
        made
    }
}

impl fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGroup").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}
