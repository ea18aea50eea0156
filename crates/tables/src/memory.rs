//! One zeroed array, mapped once, on huge pages where the kernel grants them, and touched at once.
//!
//! So nothing on the packet path faults, grows or fails for lack of memory.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::stock;

/// Why memory for a table could not be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More than the machine has, so that asking the kernel would at best end in its out-of-memory killer.
    #[error("needs {bytes} bytes of memory, but this machine has {physical}: lower the capacity")]
    BeyondPhysical {
        /// Bytes asked for; `usize::MAX` when their number does not even fit.
        bytes: usize,
        /// Bytes of physical memory in this machine.
        physical: usize,
    },
    /// The kernel refused.
    #[error("the kernel refused {bytes} bytes of memory: {source}: lower the capacity or free memory")]
    Refused {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Types for which memory full of zeros is a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and its drop must do nothing.
pub unsafe trait Zeroable {
    /// The value whose bytes are all 0.
    #[inline(always)]
    fn zero() -> Self
    where
        Self: Sized,
    {
        // SAFETY: an implementation of the trait promises that zero bytes are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        // SAFETY: zero is a valid integer.
        unsafe impl Zeroable for $integer {}
    )*};
}
integers!(u8 u16 u32 u64 u128);
// SAFETY: if zeros are valid elements, they are a valid tuple of them, whose drop is theirs and does nothing.
unsafe impl<A: Zeroable, B: Zeroable, C: Zeroable> Zeroable for (A, B, C) {}
// SAFETY: there are no bytes in it, and its only value is valid.
unsafe impl Zeroable for () {}
// SAFETY: if zeros are a valid element, they are a valid array of them.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

const HUGE_PAGE: usize = 2 << 20;
const SMALL_PAGE: usize = 4 << 10;
/// Smaller arrays stay on small pages: a table of a dozen flows must not cost megabytes.
const WORTH_A_HUGE_PAGE: usize = 128 << 10;

/// A fixed array of zeroed, already touched memory, aligned to at least 4 KiB.
///
/// From 128 KiB on it is aligned to 2 MiB, and on huge pages where the kernel grants them.
///
/// ```
/// let mut counters: netbricks_tables::HugeArray<u64> = netbricks_tables::HugeArray::zeroed(1 << 20)?;
/// counters[7] += 1;
/// assert_eq!((counters.len(), counters[7], counters[8]), (1 << 20, 1, 0));
/// # Ok::<(), netbricks_tables::MemoryError>(())
/// ```
pub struct HugeArray<T> {
    start: NonNull<T>,
    len: usize,
    mapped: usize,
}

impl<T: Zeroable> HugeArray<T> {
    /// An array of no elements, which takes no memory, and is aligned as its elements alone.
    #[must_use]
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, mapped: 0 }
    }

    /// Maps `len` zeroed elements (at least one page), rounded up to 2 MiB where a huge page is worth it.
    ///
    /// # Errors
    /// When the machine has less memory than that, or the kernel refuses it.
    pub fn zeroed(len: usize) -> Result<Self, MemoryError> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= SMALL_PAGE) };
        let bytes = bytes_of::<T>(len)?;
        let huge = bytes >= WORTH_A_HUGE_PAGE;
        let mapped = bytes.max(1).next_multiple_of(if huge { HUGE_PAGE } else { SMALL_PAGE });
        let region = match stock::take(mapped) {
            Some(region) => region,
            None => Region::zeroed(mapped)?,
        };
        Ok(Self { start: region.into_start().cast(), len, mapped })
    }

    /// The first element's address, with leave to write all of them as far as the borrow of `self` allows.
    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<T> {
        self.start
    }
}

/// A mapping of zeroed, already touched memory that nothing uses yet, or no more.
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region owns its memory, and nothing else refers to it.
unsafe impl Send for Region {}

impl Region {
    /// Maps so many bytes: whole pages, and whole huge pages where one is worth it.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, MemoryError> {
        let start = map(bytes, bytes >= WORTH_A_HUGE_PAGE)?;
        let region = Self { start, bytes };
        region.populate()?;
        Ok(region)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, for the array that owns the memory from now on.
    fn into_start(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }

    /// Gives the memory back. Answers how many bytes it has.
    pub(crate) fn unmap(self) -> usize {
        self.bytes
    }

    /// Touches every page, so that none faults later; out of memory is an error here rather than a signal there.
    fn populate(&self) -> Result<(), MemoryError> {
        let start = self.start.as_ptr();
        // SAFETY: the range is the whole of a mapping that this region owns.
        let failed = unsafe { libc::madvise(start.cast(), self.bytes, libc::MADV_POPULATE_WRITE) } != 0;
        if !failed {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        if source.raw_os_error() != Some(libc::EINVAL) {
            return Err(MemoryError::Refused { bytes: self.bytes, source });
        }
        // Kernels before 5.14 don't know the request: touch by hand.
        for page in (0..self.bytes).step_by(SMALL_PAGE) {
            // SAFETY: `page` lies inside the mapping, which is writable, zeroed and not yet lent to anybody.
            unsafe { start.wrapping_add(page).write_volatile(0) };
        }
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.start.as_ptr(), self.bytes);
    }
}

fn map(bytes: usize, huge: bool) -> Result<NonNull<u8>, MemoryError> {
    // A mapping longer by one huge page holds an aligned one; the rest goes back.
    let asked = if huge { bytes.saturating_add(HUGE_PAGE) } else { bytes };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other memory.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), asked, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(MemoryError::Refused { bytes, source: io::Error::last_os_error() });
    }
    let address = address.cast::<u8>();
    let lead = if huge { address.align_offset(HUGE_PAGE) } else { 0 };
    let start = address.wrapping_add(lead);
    unmap(address, lead);
    unmap(start.wrapping_add(bytes), asked - lead - bytes);
    if huge {
        // SAFETY: the range was mapped above and belongs to us. Refusal is no error: small pages serve too.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    NonNull::new(start)
        .ok_or_else(|| MemoryError::Refused { bytes, source: io::ErrorKind::OutOfMemory.into() })
}

fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: callers pass parts of mappings that they own and never touch again.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

/// How many bytes so many values take, if the machine has as many.
fn bytes_of<T>(len: usize) -> Result<usize, MemoryError> {
    let physical = physical_memory();
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= physical);
    bytes.ok_or(MemoryError::BeyondPhysical { bytes: len.saturating_mul(size_of::<T>()), physical })
}

/// An empty vector with room for so many values.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, MemoryError> {
    let bytes = bytes_of::<T>(len)?;
    let mut all = Vec::new();
    let refused = |_| MemoryError::Refused { bytes, source: io::ErrorKind::OutOfMemory.into() };
    all.try_reserve_exact(len).map_err(refused)?;
    Ok(all)
}

fn physical_memory() -> usize {
    // SAFETY: `sysconf` only reads.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: as above.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // An unknown size bounds nothing; the kernel still may refuse.
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => isize::MAX as usize,
    }
}

impl<T> Deref for HugeArray<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned, `len` elements fit the mapping (where there is none, they are none), all are
        // initialised (zeroed at first, and `Zeroable` says that this is a value), and `self` owns them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HugeArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `&mut self` makes it unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for HugeArray<T> {
    fn drop(&mut self) {
        // An empty one has no mapping.
        if self.mapped > 0 {
            stock::drop_region(Region { start: self.start.cast(), bytes: self.mapped });
        }
    }
}

impl<T> std::fmt::Debug for HugeArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HugeArray")
            .field("len", &self.len)
            .field("mapped", &self.mapped)
            .finish_non_exhaustive()
    }
}

// SAFETY: the array owns its memory like a `Box<[T]>`.
unsafe impl<T: Send> Send for HugeArray<T> {}
// SAFETY: shared access only lends `&[T]`.
unsafe impl<T: Sync> Sync for HugeArray<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_aligned_and_writable_to_the_last_byte() {
        for len in [0, 1, 4096, 4097, WORTH_A_HUGE_PAGE, HUGE_PAGE + 1] {
            let mut array = HugeArray::<u8>::zeroed(len).unwrap();
            assert_eq!(array.len(), len);
            assert!(array.iter().all(|byte| *byte == 0));
            let align = if len >= WORTH_A_HUGE_PAGE { HUGE_PAGE } else { SMALL_PAGE };
            assert_eq!(array.as_ptr().align_offset(align), 0);
            array.fill(0xa5);
            assert!(array.iter().all(|byte| *byte == 0xa5));
        }
    }

    #[test]
    fn an_empty_one_is_a_slice_of_nothing() {
        let mut array = HugeArray::<u64>::empty();
        array.fill(1);
        assert_eq!((array.len(), array.first(), array.iter().next()), (0, None, None));
    }

    #[test]
    fn more_than_the_machine_has_is_an_error() {
        let error = HugeArray::<u8>::zeroed(usize::MAX).err().unwrap();
        assert!(matches!(error, MemoryError::BeyondPhysical { .. }), "{error}");
        let error = HugeArray::<u8>::zeroed(physical_memory().saturating_add(1)).err().unwrap();
        assert!(matches!(error, MemoryError::BeyondPhysical { .. }), "{error}");
    }
}
