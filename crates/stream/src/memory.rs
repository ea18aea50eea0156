//! Memory that is allocated once, when a value of a configured size is made.
//!
//! Memory that cannot be allocated is an error.

use std::io;

use netbricks_core::tables::MemoryError;

/// An empty vector with room for `count` values.
pub(super) fn room<T>(count: usize) -> Result<Vec<T>, MemoryError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| MemoryError::Refused {
        bytes: count.saturating_mul(size_of::<T>()),
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    Ok(all)
}

/// A vector of `count` copies of one value.
pub(super) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, MemoryError> {
    let mut all = room(count)?;
    all.resize(count, value);
    Ok(all)
}
