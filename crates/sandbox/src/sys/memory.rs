//! Linear memories of our own, into which a pool's frames can be mapped (the mode `mapped`).
//!
//! A memory reserves its whole address space and what lies behind it; pages become accessible as it grows. The frames of
//! one pool may lie in a part of it: the pool's memory file is mapped there a second time. Nothing else of this process is
//! ever mapped into a memory.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use netbricks_core::buffer::Pool;
use wasmtime::{AsContext, LinearMemory, Memory, MemoryCreator, MemoryType};

/// The alignment of a memory, and of frames in it: that of huge pages.
pub(crate) const ALIGNMENT: usize = 2 << 20;

/// Makes memories for an engine.
pub(crate) struct Creator;

/// A memory: reserved address space, of which the first `size` bytes are accessible.
struct Reserved {
    /// The address that `mmap` gave, and the length.
    mapping: (usize, usize),
    /// The first byte of the memory, aligned.
    base: usize,
    size: usize,
    capacity: usize,
}

impl Reserved {
    fn new(minimum: usize, capacity: usize, guard: usize) -> io::Result<Self> {
        let len = capacity + guard + ALIGNMENT;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: no address is asked for, so that no existing mapping is replaced.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = (address as usize).next_multiple_of(ALIGNMENT);
        advise_huge(base, capacity);
        let mut reserved = Self { mapping: (address as usize, len), base, size: 0, capacity };
        reserved.open(minimum)?;
        Ok(reserved)
    }

    /// Makes the first `size` bytes accessible.
    fn open(&mut self, size: usize) -> io::Result<()> {
        if size > self.capacity {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if size > self.size {
            let (first, len) = (self.base + self.size, size - self.size);
            // SAFETY: the pages are this reservation's, and nothing has lain there before.
            let failed = unsafe { libc::mprotect(first as *mut _, len, libc::PROT_READ | libc::PROT_WRITE) };
            if failed != 0 {
                return Err(io::Error::last_os_error());
            }
            self.size = size;
        }
        Ok(())
    }
}

/// Asks for huge pages, where a part of the memory is large enough for one.
///
/// Tables take a fifth less time with them. It is advice: a system without them has small pages.
pub(crate) fn prefer_huge_pages(memory: &mut [u8]) {
    let start = (memory.as_mut_ptr() as usize).next_multiple_of(ALIGNMENT);
    let end = memory.as_mut_ptr() as usize + memory.len();
    if end.saturating_sub(start) >= ALIGNMENT {
        advise_huge(start, end - start);
    }
}

fn advise_huge(start: usize, len: usize) {
    // SAFETY: the advice changes no byte of any mapping.
    unsafe { libc::madvise(start as *mut _, len, libc::MADV_HUGEPAGE) };
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (address, len) = self.mapping;
        // SAFETY: it is what `mmap` gave, with all that was mapped over it; the memory's owner has given it up.
        unsafe { libc::munmap(address as *mut _, len) };
    }
}

// SAFETY: the first `byte_size` bytes from `as_ptr` are mapped and accessible, the reservation and the guard behind them
// stay mapped without access, and the base never moves.
unsafe impl LinearMemory for Reserved {
    fn byte_size(&self) -> usize {
        self.size
    }
    fn byte_capacity(&self) -> usize {
        self.capacity
    }
    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        Ok(self.open(new_size)?)
    }
    fn as_ptr(&self) -> *mut u8 {
        self.base as *mut u8
    }
}

// SAFETY: each memory is a new zeroed reservation of the size that is asked for, with the guard behind it.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let capacity = reserved.or(maximum).unwrap_or(minimum).max(minimum);
        let memory = Reserved::new(minimum, capacity, guard);
        memory.map(|memory| Box::new(memory) as Box<dyn LinearMemory>).map_err(|error| error.to_string())
    }
}

/// Bytes of a memory that a pool's frames take.
pub(crate) fn mapped_bytes(pool: &Pool) -> usize {
    pool.region().len.next_multiple_of(ALIGNMENT)
}

/// Maps a pool's small frames into a memory at `at`, over pages that the memory has grown by for them.
///
/// Afterwards the instance reads and writes every frame of the pool, whenever it runs. Several instances of one thread may
/// have the same pool; they run one after another.
///
/// # Errors
/// Where the place does not fit, or the system refuses.
///
/// # Safety
/// The memory comes from a [`Creator`]. The pool and all of its packets stay on this thread, and nothing refers to the
/// bytes of one while an instance runs that has them mapped. The slice of a memory that the host has between two runs
/// covers the frames too: nothing touches them by it.
pub(crate) unsafe fn map_frames(
    memory: &Memory,
    store: impl AsContext,
    pool: &Pool,
    at: usize,
) -> io::Result<()> {
    let len = mapped_bytes(pool);
    let base = memory.data_ptr(&store) as usize;
    let fits = at.checked_add(len).is_some_and(|end| end <= memory.data_size(&store));
    if !fits || !(base + at).is_multiple_of(ALIGNMENT) {
        return Err(io::Error::other("there is no aligned place for frames in the memory"));
    }
    // SAFETY: only instances of this thread touch the mapping. As the caller says, the pool's packets stay on this thread,
    // and nothing refers to their bytes while an instance runs.
    let file = unsafe { pool.memory_file() };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the range lies in the memory, which is a private reservation; nothing has a reference to its pages.
    let mapped = unsafe { libc::mmap((base + at) as *mut _, len, protection, flags, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the mapping at an address is advised to have huge pages; `None` where this system has none.
#[cfg(test)]
pub(crate) fn is_advised(address: usize) -> Option<bool> {
    std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists().then_some(())?;
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut within = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) {
            within = (from..to).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| within) {
            return Some(flags.split(' ').any(|flag| flag == "hg"));
        }
    }
    None
}
