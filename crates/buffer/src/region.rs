//! Memory mapped for a pool: frames in a shared file on huge pages where there are some, metadata private.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const HUGE: usize = 2 << 20;

/// On what pages a pool's frames lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB pages.
    Huge,
    /// Ordinary pages: each frame costs its own TLB entry.
    Small {
        /// How many 2 MiB pages would have been needed.
        needed: usize,
    },
}

impl Pages {
    /// The one warning where there are no huge pages: how to reserve them.
    pub fn warning(self) -> Option<String> {
        match self {
            Self::Huge => None,
            Self::Small { needed } => Some(format!(
                "no huge pages: packets lie on 4 KiB pages, which costs speed; reserve {needed} of 2 MiB with `sysctl -w vm.nr_hugepages={needed}` (or more, where others use them too)"
            )),
        }
    }
}

/// A mapping, unmapped on drop.
///
/// It gives out raw addresses only; the pool decides which code owns which part.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; it has no methods that touch the memory.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are what mmap gave, and this is the only unmapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    fn new(len: usize, flags: libc::c_int, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let descriptor = file.map_or(-1, |file| file.as_raw_fd());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast()) {
            Some(base) => Ok(Self { base, len }),
            None => Err(io::Error::other("the kernel mapped address 0")),
        }
    }

    /// Zeroed private memory of at least `len` bytes, page-aligned, on huge pages where the kernel likes.
    pub(crate) fn private(len: usize) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(HUGE);
        let mapping = Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, None)?;
        // SAFETY: the range is the mapping's own; the advice changes no contents.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Bytes of memory that this machine has.
fn physical_memory() -> Option<usize> {
    // SAFETY: it reads a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: as above.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?)
}

/// A shared memory file and its mapping.
pub(crate) struct SharedMapping {
    pub(crate) file: OwnedFd,
    pub(crate) mapping: Mapping,
    pub(crate) pages: Pages,
}

impl SharedMapping {
    /// Zeroed shared memory of at least `len` bytes, on huge pages if enough are reserved.
    ///
    /// It is taken `in_advance`, or page by page.
    pub(crate) fn new(len: usize, in_advance: bool) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(HUGE);
        if physical_memory().is_some_and(|all| len > all) {
            // The kernel would promise the memory, and kill a process when it is touched.
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Self::on(len, libc::MFD_HUGETLB, Pages::Huge, in_advance)
            .or_else(|_| Self::on(len, 0, Pages::Small { needed: len / HUGE }, in_advance))
    }

    fn on(len: usize, flag: libc::c_uint, pages: Pages, in_advance: bool) -> io::Result<Self> {
        // SAFETY: the name is a C string literal.
        let descriptor = unsafe {
            libc::memfd_create(
                c"netbricks-frames".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flag,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and no other code has it.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: the descriptor is open; truncating a file of our own has no other effect.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // A process that is given the file (a sandbox) must not be able to remove its pages.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open, and sealing touches no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let populate = if in_advance { libc::MAP_POPULATE } else { 0 };
        let mapping = Mapping::new(len, libc::MAP_SHARED | populate, Some(file.as_fd()))?;
        Ok(Self { file, mapping, pages })
    }
}

/// A pool's small frames, for devices that work on them directly (AF_XDP's UMEM, pinned DPDK buffers).
///
/// The addresses are plain numbers: using them is up to crates that may use `unsafe`.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// The first frame's address.
    pub base: NonNull<u8>,
    /// Bytes of all small frames together.
    pub len: usize,
    /// Bytes of a frame, headroom included: a power of two.
    pub frame_size: usize,
    /// Bytes from one frame to the next.
    ///
    /// That is the frame's size on small pages in a pool [`for_device`](crate::PoolBuilder::for_device), else a cache
    /// line more.
    pub stride: usize,
    /// How many there are.
    pub frames: usize,
}
