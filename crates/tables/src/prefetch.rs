//! Prefetching a cache line before it is needed, on any machine.
//!
//! A prefetch never faults and never changes a result, so these are safe functions of plain addresses.

/// Bytes in a cache line, as far as this crate's layouts are concerned.
pub const CACHE_LINE: usize = 64;

/// Prefetches the cache line that holds `address`, into all cache levels.
///
/// It faults on no address. It is about one instruction, or nothing on machines without a known prefetch.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads no memory in the sense of the language and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
