//! Pools of frames: building them, asking them, and returning their memory to the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::HEADROOM;
use crate::batch::Batch;
use crate::class::Shape;
use crate::depot::Shared;
use crate::meta::Lines;
use crate::packet::{Packet, RawFrame};
use crate::region::{Mapping, Pages, Region, SharedMapping};
use crate::worker;

/// A pool that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A number that makes no pool.
    #[error("a pool needs {what}, found {found}")]
    Shape {
        /// The expected value.
        what: &'static str,
        /// The given value.
        found: usize,
    },
    /// The memory is not to be had.
    #[error("no memory for {frames} frames, {bytes} bytes: {source}")]
    Memory {
        /// Frames asked for, of all sizes.
        frames: usize,
        /// Bytes of all of them.
        bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Packets that were asked for and could not be had.
    pub exhausted: u64,
    /// Packets copied, those that moved into a larger frame among them.
    pub copied: u64,
}

/// A pool of frames. Clones are handles to the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Handle>);

/// Keeps the memory for as long as a handle or a packet needs it.
struct Handle(NonNull<Shared>);

// SAFETY: it is a pointer to what is `Send` and `Sync`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Pools without handles, some of whose packets were still out: looked through whenever a pool is made or ends.
static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());

struct Orphan(NonNull<Shared>);

// SAFETY: as for `Handle`.
unsafe impl Send for Orphan {}

impl Drop for Handle {
    fn drop(&mut self) {
        // A packet may outlive its pool. Then the memory stays until a later call looks again after the
        // packet's end.
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.push(Orphan(self.0));
        bury(&mut orphans);
    }
}

/// Frees the orphans that have no packet out.
fn bury(orphans: &mut Vec<Orphan>) {
    orphans.retain(|orphan| {
        // SAFETY: an orphan lives until it is freed below, and leaves the list then.
        let shared = unsafe { orphan.0.as_ref() };
        let alive = shared.out() > 0;
        if !alive {
            crate::poison::claimed(shared.memory.mapping.base(), shared.memory.mapping.len());
            // SAFETY: it was leaked when the pool was made, and there is no handle left. `out` proves that
            // there is no packet either. So the thread that freed the last one has already touched the pool
            // for the last time.
            drop(unsafe { Box::from_raw(orphan.0.as_ptr()) });
        }
        alive
    });
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// How large a pool is to be.
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    frames: usize,
    frame_size: usize,
    for_device: bool,
    large_frames: usize,
    large_size: usize,
    short_frames: usize,
    short_size: usize,
    workers: usize,
    in_advance: bool,
}

impl PoolBuilder {
    /// How many small frames (default 4,096).
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }
    /// Bytes of a small frame with its headroom: 1,024 to 65,536, a power of two (default 2,048).
    pub fn frame_size(mut self, bytes: usize) -> Self {
        self.frame_size = bytes;
        self
    }
    /// Lays frames so that a device can write into them (AF_XDP's UMEM).
    ///
    /// There is a cache line between frames. At distances of a power of two, the headers of all packets would share a
    /// few sets of each cache, and the rest of the cache would go unused. But on small pages a device divides memory by
    /// a power of two: there a pool for a device has its frames exactly their size apart.
    pub fn for_device(mut self, for_device: bool) -> Self {
        self.for_device = for_device;
        self
    }
    /// Sets how many large frames there are, and their bytes with headroom (default none).
    ///
    /// They are for jumbo frames and for packets that a device cuts later. `bytes` is rounded up to a multiple of
    /// 4,096; 69,632 hold the largest packet.
    pub fn large(mut self, frames: usize, bytes: usize) -> Self {
        self.large_frames = frames;
        self.large_size = bytes;
        self
    }

    /// Sets how many short frames there are, and their bytes with headroom (a multiple of 64; default none).
    ///
    /// They are for packets that leave 64 bytes of one free behind them: 512 bytes take packets of up to 192. When no
    /// short frame is left such packets take small ones. A packet that outgrows its frame moves.
    ///
    /// The bytes that functions read of short packets then lie in a quarter of the pages. A core that touches thousands
    /// of packets mostly waits for address translation. Do not use short frames in pools that a device takes frames of:
    /// it takes small ones for every packet.
    pub fn short(mut self, frames: usize, bytes: usize) -> Self {
        self.short_frames = frames;
        self.short_size = bytes;
        self
    }

    /// Sets how many workers will use the pool (default 2).
    ///
    /// Each keeps up to 512 free frames of a size at hand, and all together half of all frames. With fewer than four
    /// frames a worker, none are kept. If more workers than this use the pool, they may keep all frames.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, worker::SLOTS);
        self
    }

    /// Whether memory is taken when the pool is made, or page by page as frames are used.
    ///
    /// The default is in advance.
    ///
    /// The latter is for commands that start in milliseconds and use few of their frames.
    pub fn in_advance(mut self, in_advance: bool) -> Self {
        self.in_advance = in_advance;
        self
    }

    fn check(&self) -> Result<(), PoolError> {
        let shape = |holds, what, found| if holds { Ok(()) } else { Err(PoolError::Shape { what, found }) };
        let size = self.frame_size;
        shape((1..=1 << 24).contains(&self.frames), "1 to 16,777,216 frames", self.frames)?;
        shape(
            size.is_power_of_two() && (1024..=65_536).contains(&size),
            "a frame size that is a power of two from 1,024 to 65,536 bytes",
            size,
        )?;
        shape(self.large_frames <= 1 << 20, "at most 1,048,576 large frames", self.large_frames)?;
        shape(
            self.large_frames == 0 || (size + 1..=1 << 20).contains(&self.large_size),
            "large frames that are larger than the small ones and at most 1,048,576 bytes",
            self.large_size,
        )?;
        shape(self.short_frames <= 1 << 24, "at most 16,777,216 short frames", self.short_frames)?;
        shape(
            !self.for_device || self.short_frames == 0,
            "no short frames in a pool for a device, which takes any frame for any packet",
            self.short_frames,
        )?;
        shape(
            self.short_frames == 0
                || (self.short_size.is_multiple_of(LINE)
                    && (HEADROOM + 2 * LINE..size).contains(&self.short_size)),
            "short frames of a multiple of 64 bytes, at least 384 and less than small ones",
            self.short_size,
        )
    }

    /// Makes the pool: takes the memory, on huge pages where enough are reserved, and zeroes it.
    ///
    /// # Errors
    /// [`PoolError`] when a number makes no pool or the memory is not to be had.
    pub fn build(self) -> Result<Pool, PoolError> {
        self.check()?;
        bury(&mut ORPHANS.lock().unwrap_or_else(PoisonError::into_inner));
        let Self { frames, frame_size: size, .. } = self;
        let mut small = Shape { frames, size, stride: size + LINE };
        let large = match self.large_frames {
            0 => Shape::default(),
            frames => {
                let size = self.large_size.next_multiple_of(4096);
                Shape { frames, size, stride: size }
            }
        };
        let short = match self.short_frames {
            0 => Shape::default(),
            frames => Shape { frames, size: self.short_size, stride: self.short_size + LINE },
        };
        let shapes = [small, large, short];
        let all = shapes.iter().map(|shape| shape.frames).sum::<usize>();
        let bytes = shapes.iter().map(|shape| shape.bytes()).sum();
        let no_memory = |source| PoolError::Memory { frames: all, bytes, source };
        let memory = SharedMapping::new(bytes, self.in_advance).map_err(no_memory)?;
        if self.for_device && memory.pages != Pages::Huge {
            small.stride = size;
        }
        let shapes = [small, large, short];
        let metas = Mapping::private(Lines::bytes(all)).map_err(no_memory)?;
        Ok(Pool(Arc::new(Handle(Shared::leak((memory, metas), shapes, self.workers)))))
    }
}

impl Pool {
    /// A pool to be.
    pub fn builder() -> PoolBuilder {
        PoolBuilder {
            frames: 4096,
            frame_size: 2048,
            for_device: false,
            large_frames: 0,
            large_size: 69_632,
            short_frames: 0,
            short_size: 512,
            workers: 2,
            in_advance: true,
        }
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: `Shared` lives as long as any handle.
        unsafe { self.0.0.as_ref() }
    }

    /// Frames that no packet uses, wherever they are kept.
    ///
    /// Exact when no other thread allocates or frees at the moment.
    pub fn available(&self) -> usize {
        self.shared().available()
    }
    /// All frames, large and small.
    pub fn capacity(&self) -> usize {
        self.shared().capacity()
    }
    /// Bytes of the largest packet behind its frame's headroom.
    pub fn largest_packet(&self) -> usize {
        let shared = self.shared();
        shared.large.shape.size.max(shared.small.shape.size) - HEADROOM
    }
    /// Bytes of the largest packet that a small frame takes behind its headroom.
    pub fn small_packet(&self) -> usize {
        self.shared().small.shape.size - HEADROOM
    }
    /// On what pages the frames lie.
    pub fn pages(&self) -> Pages {
        self.shared().memory.pages
    }
    /// Bytes of memory mapped for frames and metadata.
    pub fn memory(&self) -> usize {
        let shared = self.shared();
        shared.memory.mapping.len() + shared.metas.len()
    }
    /// Counts since the pool was made.
    pub fn counters(&self) -> PoolCounters {
        let shared = self.shared();
        PoolCounters { exhausted: shared.exhausted(), copied: shared.copied() }
    }

    /// A packet of length 0 in a frame with room for `len` bytes behind the headroom.
    ///
    /// `None` when no frame is free (counted), or no frame is that large (not counted).
    #[inline]
    pub fn empty(&self, len: usize) -> Option<Packet> {
        self.shared().frame_for(len, None)
    }

    /// A packet of these bytes. `None` as [`empty`](Pool::empty).
    #[inline]
    pub fn packet(&self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.empty(bytes.len())?;
        packet.extend_from(bytes).ok()?;
        Some(packet)
    }

    /// A packet of `len` zero bytes. `None` as [`empty`](Pool::empty).
    #[inline]
    pub fn allocate(&self, len: usize) -> Option<Packet> {
        let mut packet = self.empty(len)?;
        packet.extend(len).ok()?;
        Some(packet)
    }

    /// Adds up to `count` packets of length 0 in small frames to the batch; returns how many.
    ///
    /// Fewer than fit mean that the pool is exhausted (counted). Their tailroom is
    /// [`small_packet`](Pool::small_packet).
    #[inline]
    pub fn allocate_into(&self, batch: &mut Batch, count: usize) -> usize {
        let shared = self.shared();
        batch.allocate(shared, &shared.small, count, &[])
    }

    /// Adds up to `count` packets of these bytes to the batch; returns how many.
    ///
    /// Fewer than fit mean that the pool is exhausted (counted), or that no frame is that large (not counted).
    #[inline]
    pub fn allocate_written_into(&self, batch: &mut Batch, count: usize, bytes: &[u8]) -> usize {
        let shared = self.shared();
        let Some(class) = shared.class_for(HEADROOM.saturating_add(bytes.len())) else { return 0 };
        batch.allocate(shared, class, count, bytes)
    }

    /// The shared memory file in which all frames lie, for devices and processes that map it.
    ///
    /// # Safety
    /// A holder of the file can read and write every packet of the pool behind its owner's back. The caller lets a frame
    /// be touched through the file only while nothing else reads or writes its bytes or refers to them:
    ///
    /// - where the pool gave the frame away ([`Packet::into_raw`]), or
    /// - where one thread has the pool and all of its packets, and itself does nothing but touch them through the file.
    pub unsafe fn memory_file(&self) -> BorrowedFd<'_> {
        self.shared().memory.file.as_fd()
    }

    /// Where the small frames are, for devices that work on them directly.
    pub fn region(&self) -> Region {
        let shared = self.shared();
        let Shape { frames, size, stride } = shared.small.shape;
        Region { base: shared.memory.mapping.base(), len: frames * stride, frame_size: size, stride, frames }
    }

    /// Makes a packet again of a frame that [`Packet::into_raw`] gave away.
    ///
    /// Its bytes are those from `start` (bytes from the frame's first) for `len`, as a device left them. `None` where
    /// they are not inside the frame, which is free then.
    ///
    /// # Safety
    /// `raw` came from `into_raw` of a packet of this pool, each such value is used once, and no device touches the
    /// frame any more.
    pub unsafe fn from_raw(&self, raw: RawFrame, start: usize, len: usize) -> Option<Packet> {
        let shared = self.shared();
        if raw.index as usize >= shared.capacity() {
            return None;
        }
        // SAFETY: as the caller says, the frame was a packet's that has given it up.
        let mut packet = unsafe { Packet::claim(shared.line(raw.index)) };
        packet.set_bounds(start, len).then_some(packet)
    }

    /// Whether the packet's frame is one of this pool's small frames.
    pub fn owns_small(&self, packet: &Packet) -> bool {
        packet.is_of(self.0.0) && self.shared().small.has(packet.index())
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} of {} frames free)", self.available(), self.capacity())
    }
}
