//! Memory that is asked for once, when something is made whose size was configured: what can't be had is an error.

use std::io;

use netbricks_core::tables::MemoryError;

/// Nothing yet, and room for so many.
pub(super) fn room<T>(count: usize) -> Result<Vec<T>, MemoryError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| MemoryError::Refused {
        bytes: count.saturating_mul(size_of::<T>()),
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    Ok(all)
}

/// So many of one value.
pub(super) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, MemoryError> {
    let mut all = room(count)?;
    all.resize(count, value);
    Ok(all)
}
