//! What workers have in common: shared state by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared state by name. Each blueprint has its own: what it makes for several workers shares, what another one makes does
/// not. Without a blueprint, workers share that were [given](crate::Worker::sharing) the same one.
#[derive(Clone, Default)]
pub struct Shares(Arc<Mutex<BTreeMap<String, Box<dyn Any + Send>>>>);

impl Shares {
    /// The part of type `S` under this name, which `make` makes for the first who asks. Two types under one name are two
    /// parts.
    pub(super) fn part<S: Clone + Send + 'static>(&self, name: &str, make: impl FnOnce() -> S) -> S {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{name}: {}", std::any::type_name::<S>());
        if let Some(part) = parts.get(&name).and_then(|part| part.downcast_ref::<S>()) {
            return part.clone();
        }
        let part = make();
        parts.insert(name, Box::new(part.clone()));
        part
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(parts.keys()).finish()
    }
}
