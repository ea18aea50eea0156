//! Asking for memory before it is needed, safely: a prefetch reads nothing that the program can see.

/// Asks for the cache line of `value`.
#[inline(always)]
pub fn prefetch_read<T>(value: &T) {
    prefetch_address(std::ptr::from_ref(value).cast());
}

#[inline(always)]
pub(crate) fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults on no address and never writes.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
