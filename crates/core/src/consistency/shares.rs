//! State that workers share, by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared state by name.
///
/// Each blueprint has its own: workers of one blueprint share state, workers of two do not. Without a
/// blueprint, workers share state if they were [given](crate::Worker::sharing) the same value.
#[derive(Clone, Default)]
pub struct Shares(Arc<Mutex<BTreeMap<String, Box<dyn Any + Send>>>>);

impl Shares {
    /// The part of type `S` under this name; the first caller makes it.
    ///
    /// Two types under one name are two parts.
    ///
    /// # Errors
    /// The error of `make`; the next caller tries again.
    pub(super) fn part<S: Clone + Send + 'static, E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<S, E>,
    ) -> Result<S, E> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = of_type::<S>(name);
        if let Some(part) = parts.get(&name).and_then(|part| part.downcast_ref::<S>()) {
            return Ok(part.clone());
        }
        let part = make()?;
        parts.insert(name, Box::new(part.clone()));
        Ok(part)
    }

    /// The part of type `S` under this name, if there is one.
    pub(super) fn get<S: Clone + Send + 'static>(&self, name: &str) -> Option<S> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(&of_type::<S>(name))?.downcast_ref::<S>().cloned()
    }

    /// Replaces the part under this name, for all later callers.
    pub(super) fn set<S: Clone + Send + 'static>(&self, name: &str, part: S) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(of_type::<S>(name), Box::new(part));
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(parts.keys()).finish()
    }
}

fn of_type<S>(name: &str) -> String {
    format!("{name}: {}", std::any::type_name::<S>())
}
