//! Memory shared with the kernel: a mapping with bounds.
//!
//! Its words are read and written with the ordering that the kernel's rings require.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A shared mapping, unmapped on drop. Every access is checked against its length.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range of the process; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are what mmap gave, nothing borrows from a mapping that is dropped, and this is the only
        // unmapping. A failure would leave the range mapped, which does no harm.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, for reading and writing, with every page present.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, offset) }?;
        let base =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, len })
    }

    /// The address of `size` bytes at `at`, which must be inside the mapping and aligned.
    ///
    /// # Panics
    /// If they are not: offsets come from the kernel at setup and from masked indices, never from a packet.
    #[inline(always)]
    fn place(&self, at: usize, size: usize, align: usize) -> *mut u8 {
        assert!(
            size <= self.len && at <= self.len - size && at.is_multiple_of(align),
            "offset {at} is outside"
        );
        // SAFETY: at + size is at most len, as was just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, 4, 4).cast::<u32>();
        // SAFETY: the place is inside the mapping and aligned, lives as long as `self`, and the kernel's side of it is
        // accessed atomically as well.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// Reads a word that the kernel releases.
    #[inline(always)]
    pub(crate) fn load_acquire(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }
    /// Reads a word without ordering: a word that only we write, or a hint.
    #[inline(always)]
    pub(crate) fn load_relaxed(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }
    /// Writes a word that the kernel acquires.
    #[inline(always)]
    pub(crate) fn store_release(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Copies a value out.
    #[inline(always)]
    pub(crate) fn read<T: FromBytes>(&self, at: usize) -> T {
        let place = self.place(at, size_of::<T>(), align_of::<T>()).cast::<T>();
        // SAFETY: inside the mapping and aligned; any bytes make a `T`; volatile, since the kernel may write it.
        unsafe { place.read_volatile() }
    }
    /// Copies a value in.
    #[inline(always)]
    pub(crate) fn write<T: IntoBytes + Immutable>(&self, at: usize, value: T) {
        let place = self.place(at, size_of::<T>(), align_of::<T>()).cast::<T>();
        // SAFETY: inside the mapping and aligned; volatile, since the kernel may read it.
        unsafe { place.write_volatile(value) }
    }

    /// Lends bytes that the kernel does not write at the moment.
    ///
    /// # Safety
    /// Until the borrow ends, neither the kernel nor this process writes to these bytes.
    pub(crate) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let place = self.place(at, len, 1);
        // SAFETY: inside the mapping, initialised by it, and not written to, as the caller promises.
        unsafe { std::slice::from_raw_parts(place, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn values_go_through_and_bounds_hold() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let first = Mapping::shared(file.as_fd(), 0, 4096).unwrap();
        let second = Mapping::shared(file.as_fd(), 0, 4096).unwrap();
        first.write(4088, 0x0102_0304_0506_0708_u64);
        assert_eq!(second.read::<u64>(4088), 0x0102_0304_0506_0708);
        first.store_release(0, 7);
        assert_eq!((second.load_acquire(0), second.load_relaxed(0)), (7, 7));
        for (at, what) in [(4089, "past the end"), (usize::MAX - 3, "wrapping"), (4, "misaligned")] {
            let outside = std::panic::catch_unwind(|| second.read::<u64>(at));
            assert!(outside.is_err(), "{what}");
        }
    }
}
