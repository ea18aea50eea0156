//! Memory shared with another process, which may write any of it at any time.
//!
//! No reference into the bytes leaves this file: they are copied by atomic accesses. Places come from the other
//! process, and each is compared with the mapped size. The file behind the memory cannot shrink, so that no
//! access ends in SIGBUS.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use netbricks_buffer::Packet;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The file system of memory files of ordinary pages (`linux/magic.h`).
///
/// Files on huge pages are on another one: an access fails where the system has no huge page left.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const WORD: usize = size_of::<u64>();

fn failed(action: &'static str) -> impl Fn(rustix::io::Errno) -> String {
    move |error| format!("{action}: {error}")
}

/// The seals of another process's file, which must be a memory file.
///
/// It asks no file system, which could make us wait.
///
/// # Errors
/// The reason why the file is refused.
pub(crate) fn seals(file: BorrowedFd<'_>) -> Result<SealFlags, String> {
    match rustix::fs::fcntl_get_seals(file) {
        Err(rustix::io::Errno::INVAL) => {
            Err("its file is no memory file: share memory from memfd_create(2), without huge pages".into())
        }
        seals => seals.map_err(failed("asking for its seals")),
    }
}

/// The size of a memory file in bytes.
///
/// # Errors
/// The kernel's error.
pub(crate) fn size(file: BorrowedFd<'_>) -> Result<u64, String> {
    Ok(rustix::fs::fstat(file).map_err(failed("asking for its size"))?.st_size as u64)
}

/// Checks that no access to the memory of a file can fail: it has ordinary pages, and cannot shrink.
///
/// # Errors
/// The reason why an access might fail.
pub(crate) fn cannot_fail(file: BorrowedFd<'_>) -> Result<(), String> {
    let seals = seals(file)?;
    let kind = rustix::fs::fstatfs(file).map_err(failed("asking for its file system"))?.f_type as u64;
    if kind != TMPFS_MAGIC {
        return Err(format!(
            "its file is no memory file of ordinary pages (file system {kind:#x}): share memory from memfd_create(2), without huge pages"
        ));
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err("its file can shrink: seal it with F_SEAL_SHRINK".into());
    }
    Ok(())
}

/// Memory that another process may map as well, unmapped on drop.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range of the process; nothing in it is tied to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: all accesses are atomic.
unsafe impl Sync for SharedMemory {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: base and len are what mmap gave, nothing borrows from a mapping that is dropped, and this is the only
        // unmapping. A failure would leave the range mapped, which does no harm.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl SharedMemory {
    /// Makes memory of `len` zero bytes, and the file to hand to another process.
    pub(crate) fn create(name: &str, len: usize) -> io::Result<(Self, OwnedFd)> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        // The other process gets the same file, and could otherwise shrink it under our mapping.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(file.as_fd(), len)?, file))
    }

    /// Maps the first `len` bytes of another process's file.
    ///
    /// # Errors
    /// The reason why an access to that memory might fail.
    pub(crate) fn accept(file: BorrowedFd<'_>, len: u64) -> Result<Self, String> {
        cannot_fail(file)?;
        let there = size(file)?;
        if len == 0 || len > there {
            return Err(format!("it must have 1 to {there} bytes, the size of its file, and has {len}"));
        }
        let len = usize::try_from(len).map_err(|_| "it is larger than the address space".to_owned())?;
        Self::map(file, len).map_err(|error| format!("mapping it for reading and writing: {error}"))
    }

    fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        let base =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, len })
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether `len` bytes from `at` on are in it.
    #[inline(always)]
    pub(crate) fn holds(&self, at: usize, len: usize) -> bool {
        len <= self.len && at <= self.len - len
    }

    /// The address of `size` bytes at `at`.
    ///
    /// # Panics
    /// If they are outside or misaligned: callers have compared the place with the size when they were made.
    #[inline(always)]
    fn place(&self, at: usize, size: usize) -> *mut u8 {
        assert!(self.holds(at, size) && at.is_multiple_of(size), "offset {at} is outside");
        self.base.as_ptr().wrapping_add(at)
    }

    #[inline(always)]
    fn half(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, since the mapping begins with a page;
        // all accesses here are atomic.
        unsafe { AtomicU16::from_ptr(place) }
    }
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, WORD).cast::<u64>();
        // SAFETY: as in `half`.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// Reads a number that the other side releases.
    #[inline(always)]
    pub(crate) fn load_acquire(&self, at: usize) -> u16 {
        self.half(at).load(Ordering::Acquire)
    }
    /// Reads a number without ordering.
    #[inline(always)]
    pub(crate) fn load_relaxed(&self, at: usize) -> u16 {
        self.half(at).load(Ordering::Relaxed)
    }
    /// Writes a number that the other side acquires.
    #[inline(always)]
    pub(crate) fn store_release(&self, at: usize, value: u16) {
        self.half(at).store(value, Ordering::Release);
    }
    /// Reads 4 bytes.
    pub(crate) fn load_u32(&self, at: usize) -> u32 {
        let place = self.place(at, 4).cast::<u32>();
        // SAFETY: as in `half`.
        unsafe { AtomicU32::from_ptr(place) }.load(Ordering::Relaxed)
    }
    /// Writes 4 bytes.
    pub(crate) fn store_u32(&self, at: usize, value: u32) {
        let place = self.place(at, 4).cast::<u32>();
        // SAFETY: as in `half`.
        unsafe { AtomicU32::from_ptr(place) }.store(value, Ordering::Relaxed);
    }
    /// Reads 8 bytes, once.
    #[inline(always)]
    pub(crate) fn load_word(&self, at: usize) -> [u8; WORD] {
        self.word(at).load(Ordering::Relaxed).to_ne_bytes()
    }
    /// Writes 8 bytes.
    #[inline(always)]
    pub(crate) fn store_word(&self, at: usize, bytes: [u8; WORD]) {
        self.word(at).store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }

    /// A byte of a range that is inside.
    ///
    /// # Safety
    /// `at` is less than the size.
    #[inline(always)]
    unsafe fn byte_unchecked(&self, at: usize) -> &AtomicU8 {
        // SAFETY: inside the mapping, as the caller promises, and all accesses here are atomic.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().wrapping_add(at)) }
    }
    /// A word of a range that is inside.
    ///
    /// # Safety
    /// `at` is a multiple of 8, and `at + 8` at most the size.
    #[inline(always)]
    unsafe fn word_unchecked(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping and aligned, as the caller promises, and all accesses here are atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().wrapping_add(at).cast()) }
    }

    /// The number of bytes before the first whole word of a range.
    #[inline(always)]
    fn lead(at: usize, len: usize) -> usize {
        (at.wrapping_neg() % WORD).min(len)
    }

    /// Copies bytes out. `false` if they are not all inside; nothing is copied then.
    #[inline]
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) -> bool {
        if !self.holds(at, to.len()) {
            return false;
        }
        let (lead, rest) = to.split_at_mut(Self::lead(at, to.len()));
        let middle = at + lead.len();
        for (place, byte) in (at..).zip(lead) {
            // SAFETY: place is in the range, which is inside.
            *byte = unsafe { self.byte_unchecked(place) }.load(Ordering::Relaxed);
        }
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        let end = middle + words.len() * WORD;
        for (place, word) in (middle..).step_by(WORD).zip(words) {
            // SAFETY: the word is in the range, and the lead ends where a word begins.
            *word = unsafe { self.word_unchecked(place) }.load(Ordering::Relaxed).to_ne_bytes();
        }
        for (place, byte) in (end..).zip(tail) {
            // SAFETY: place is in the range, which is inside.
            *byte = unsafe { self.byte_unchecked(place) }.load(Ordering::Relaxed);
        }
        true
    }

    /// Copies bytes in. `false` if there is no room for all; nothing is copied then.
    #[inline]
    pub(crate) fn copy_in(&self, at: usize, from: &[u8]) -> bool {
        if !self.holds(at, from.len()) {
            return false;
        }
        let (lead, rest) = from.split_at(Self::lead(at, from.len()));
        let middle = at + lead.len();
        for (place, byte) in (at..).zip(lead) {
            // SAFETY: place is in the range, which is inside.
            unsafe { self.byte_unchecked(place) }.store(*byte, Ordering::Relaxed);
        }
        let (words, tail) = rest.as_chunks::<WORD>();
        let end = middle + words.len() * WORD;
        for (place, word) in (middle..).step_by(WORD).zip(words) {
            // SAFETY: the word is in the range, and the lead ends where a word begins.
            unsafe { self.word_unchecked(place) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        for (place, byte) in (end..).zip(tail) {
            // SAFETY: place is in the range, which is inside.
            unsafe { self.byte_unchecked(place) }.store(*byte, Ordering::Relaxed);
        }
        true
    }

    /// Appends bytes to a packet. `false` if they are not all inside, or the packet's frame has no room.
    #[inline]
    pub(crate) fn append_to(&self, at: usize, len: usize, packet: &mut Packet) -> bool {
        let copy = |room: &mut [u8]| match room.get_mut(..len) {
            Some(room) => len * usize::from(self.copy_out(at, room)),
            None => 0,
        };
        // SAFETY: `copy` counts bytes only after it has written them all, and shows them to no other code.
        let copied = unsafe { packet.fill(copy) };
        copied == len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> (SharedMemory, OwnedFd) {
        SharedMemory::create("test", len).unwrap()
    }

    #[test]
    fn ranges_of_every_alignment_go_through() {
        let (ours, file) = memory(4096);
        let theirs = SharedMemory::accept(file.as_fd(), 4096).unwrap();
        let bytes: Vec<u8> = (0..64).map(|number| number as u8 ^ 0x5a).collect();
        for at in (0..17).chain(4096 - 64..4096 - 47) {
            for len in 0..=47 {
                assert!(ours.copy_in(at, &[0; 48][..len.min(4096 - at)]));
                assert!(ours.copy_in(at, &bytes[..len]), "{at} {len}");
                let mut found = [0; 48];
                assert!(theirs.copy_out(at, &mut found[..len]), "{at} {len}");
                assert_eq!(found[..len], bytes[..len], "{at} {len}");
            }
        }
    }

    #[test]
    fn nothing_outside_is_touched() {
        let (ours, _file) = memory(4096);
        for (at, len) in [(4096, 1), (4095, 2), (0, 4097), (usize::MAX, 2), (usize::MAX - 7, 8)] {
            assert!(!ours.holds(at, len), "{at} {len}");
            assert!(!ours.copy_in(at, &vec![1; len]) && !ours.copy_out(at, &mut vec![1; len]), "{at} {len}");
        }
        assert!(ours.holds(4096, 0) && ours.holds(0, 4096));
        assert!(std::panic::catch_unwind(|| ours.load_word(4)).is_err(), "misaligned");
    }

    #[test]
    fn a_file_whose_memory_may_go_away_is_refused() {
        let (_ours, file) = memory(4096);
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "ours cannot shrink");
        for len in [0, 4097, u64::MAX] {
            assert!(SharedMemory::accept(file.as_fd(), len).unwrap_err().contains("4096"), "{len}");
        }
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 4096).unwrap();
        assert!(SharedMemory::accept(loose.as_fd(), 4096).unwrap_err().contains("F_SEAL_SHRINK"));
        let other = std::fs::File::open("/proc/self/status").unwrap();
        assert!(SharedMemory::accept(other.as_fd(), 1).unwrap_err().contains("memfd_create"));
        rustix::fs::fcntl_add_seals(&loose, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        assert!(SharedMemory::accept(loose.as_fd(), 4096).unwrap_err().contains("mapping"));
    }
}
