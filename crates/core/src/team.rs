//! What the workers of one runtime have in common while their graphs are built: how many they are, and where their
//! copies of one node meet.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::shuffle::{Kin, ShuffleKey};

/// The workers of one runtime.
#[derive(Clone)]
pub struct Team(Arc<Members>);

struct Members {
    workers: usize,
    met: Mutex<Vec<(Meeting, Arc<dyn Any + Send + Sync>)>>,
    /// By key and seed: what all shuffles have in common that sort alike.
    kin: Mutex<Vec<(ShuffleKey, u64, Arc<Kin>)>>,
}

/// A place where the workers' copies of one node meet; each that is made is another. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Meeting(Arc<()>);

impl Team {
    /// A team of so many workers, 1 or more.
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Members { workers: workers.max(1), met: Mutex::default(), kin: Mutex::default() }))
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.0.workers
    }
    /// What stands at a meeting place: made by whoever comes first.
    ///
    /// # Errors
    /// What `make` says; who comes next then tries again.
    pub fn meet<T: Any + Send + Sync, E>(
        &self,
        place: &Meeting,
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
    pub(crate) fn kin(&self, key: ShuffleKey, seed: u64, make: impl FnOnce() -> Kin) -> Arc<Kin> {
        let mut kin = self.0.kin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., known)) = kin.iter().find(|(other, its, _)| (*other, *its) == (key, seed)) {
            return known.clone();
        }
        let made = Arc::new(make());
        kin.push((key, seed, made.clone()));
        made
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}
