//! Tells AddressSanitizer which frames are free, in builds with `--cfg asan`.
//!
//! Frames are mapped, not allocated, so the sanitizer would not notice a use of a packet after it was freed. In all
//! other builds both functions are empty.

use std::ptr::NonNull;

#[cfg(asan)]
unsafe extern "C" {
    fn __asan_poison_memory_region(address: *const std::ffi::c_void, size: usize);
    fn __asan_unpoison_memory_region(address: *const std::ffi::c_void, size: usize);
}

/// Forbids any access to these bytes from now on.
#[inline(always)]
pub(crate) fn freed(frame: NonNull<u8>, size: usize) {
    #[cfg(asan)]
    // SAFETY: it changes the sanitizer's notes only.
    unsafe {
        __asan_poison_memory_region(frame.as_ptr().cast(), size);
    }
    #[cfg(not(asan))]
    let _ = (frame, size);
}

/// A packet has these bytes, or the memory is given back to the kernel.
#[inline(always)]
pub(crate) fn claimed(frame: NonNull<u8>, size: usize) {
    #[cfg(asan)]
    // SAFETY: as above.
    unsafe {
        __asan_unpoison_memory_region(frame.as_ptr().cast(), size);
    }
    #[cfg(not(asan))]
    let _ = (frame, size);
}
