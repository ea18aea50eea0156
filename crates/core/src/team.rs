//! What the workers of one runtime have in common while their graphs are built: how many they are, and where their
//! copies of one node meet.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The workers of one runtime.
#[derive(Clone)]
pub struct Team(Arc<Members>);

struct Members {
    workers: usize,
    met: Mutex<Vec<(Meeting, Arc<dyn Any + Send + Sync>)>>,
}

/// A place where the workers' copies of one node meet; each that is made is another. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Meeting(Arc<()>);

impl Team {
    /// A team of so many workers, 1 or more.
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Members { workers: workers.max(1), met: Mutex::default() }))
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
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}
