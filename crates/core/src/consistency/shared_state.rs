//! Shared state that a graph leaves to the graph that replaces it.
//!
//! The state goes on as it is, since some workers may still write it from the old graph while others have the
//! new one.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Contents;

/// A reference to state that workers share, for the same worker's next graph.
///
/// It is opaque. The state that [gives](crate::Declared::shared_state) it knows its type. The state that
/// [takes it over](crate::Declared::adopt) must have the same type.
pub struct SharedStateRef {
    state: Box<dyn Any>,
    given: Given,
}

/// The error of a control side's copy whose graph has taken over state more than once.
pub(super) const TWICE: &str = "another graph has taken it over since: make the control side's copy again";

/// Whether another graph has taken over the state, so that an export would be a second copy.
#[derive(Clone, Default)]
pub(super) struct Given(Rc<Cell<bool>>);

impl Given {
    pub(super) fn get(&self) -> bool {
        self.0.get()
    }
}

impl SharedStateRef {
    pub(super) fn new(state: impl Any, given: &Given) -> Self {
        Self { state: Box::new(state), given: given.clone() }
    }
    pub(super) fn of<S: Any>(&self) -> Option<&S> {
        self.state.downcast_ref()
    }
    pub(crate) fn mark_adopted(&self) {
        self.given.0.set(true);
    }
}

/// The decision about a state when its graph takes over from another one.
///
/// The first worker that takes over decides, so that workers that shared one state share one again.
pub(super) struct Fate<S>(Mutex<Option<Decided<S>>>);

/// The old state, and the decision about it.
type Decided<S> = (Weak<S>, Result<(), String>);

impl<S> Fate<S> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The decision about the state `old`, made by `decide` if there is none yet.
    ///
    /// Other callers wait for it.
    pub(super) fn of(&self, old: &Arc<S>, decide: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, decided)) if of.as_ptr() == Arc::as_ptr(old) => decided.clone(),
            _ => {
                let decided = decide();
                *known = Some((Arc::downgrade(old), decided.clone()));
                decided
            }
        }
    }
}

/// The content of `old` in a state of another configuration.
///
/// # Errors
/// The part that does not fit there, or a lack of memory.
pub(super) fn refitted<T: Contents>(old: &T, config: &T::Config, now: u64) -> Result<T, String> {
    let (mut bytes, mut next) = (Vec::new(), Some(0));
    while let Some(step) = next {
        next = old.export_step(step, &mut bytes);
    }
    T::export_end(&mut bytes);
    let mut fresh = T::make(config)?;
    fresh.import(&bytes, now)?;
    Ok(fresh)
}
