//! Values that are made in one place and used up in another.

use std::sync::{Arc, Mutex, PoisonError};

/// Values for the copies of a shared state: each copy takes one when it makes the change that has them.
///
/// A clone leads to the same values. No code runs while they are locked, so that taking one waits for no one's
/// work.
pub struct Handover<T>(Arc<Mutex<Vec<T>>>);

impl<T> Handover<T> {
    /// These values.
    pub fn new(values: Vec<T>) -> Self {
        Self(Arc::new(Mutex::new(values)))
    }
    /// One of the values that are left.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl<T> Clone for Handover<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handover")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_taken_once() {
        let one = Handover::new(vec![1, 2]);
        let other = one.clone();
        let mut taken = [one.take(), other.take()];
        taken.sort_unstable();
        assert_eq!((taken, one.take()), ([Some(1), Some(2)], None));
    }
}
