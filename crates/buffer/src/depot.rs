//! Who owns the frames that no packet uses. Each worker has a cache of plain memory; caches are filled from and emptied
//! into a shared depot in bulk, so a packet freed on another core finds its way home with its neighbours.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::HEADROOM;
use crate::meta::{ANNOTATED, Fresh, Lines, Meta};
use crate::packet::Packet;
use crate::region::{Mapping, SharedMapping};
use crate::{poison, worker};

/// Frames that a worker's cache holds at most, in a pool large enough; half of them move at a time.
const CACHE: usize = 512;

/// Where a batch, a cache or an iterator keeps a packet's or a free frame's line. As large as the pointer.
pub(crate) type Place = Option<NonNull<Meta>>;

/// One size of frame.
pub(crate) struct Class {
    first: u32,
    pub(crate) frames: u32,
    depot: Mutex<Vec<NonNull<Meta>>>,
}

/// What one thread did to the pool: counters that only grow.
#[derive(Default)]
struct Tally {
    taken: AtomicU64,
    given: AtomicU64,
    copied: AtomicU64,
    exhausted: AtomicU64,
}

#[repr(align(128))]
struct Cache {
    /// Written by the slot's owner only.
    len: AtomicU32,
    tally: Tally,
    frames: UnsafeCell<[Place; CACHE]>,
}

/// A pool's memory and free frames.
///
/// Nobody counts its packets. Instead each worker counts what it takes and what it gives back, and [`Shared::out`] reads
/// all `given` before all `taken`: what it answers is at least the number of packets that were out in between. So 0 is a
/// proof that there are none, and with no handle left there never will be again.
pub(crate) struct Shared {
    pub(crate) memory: SharedMapping,
    pub(crate) metas: Mapping,
    pub(crate) frame_size: usize,
    /// Bytes from one small frame to the next.
    pub(crate) stride: usize,
    pub(crate) large_size: usize,
    /// Frames that move between a cache and the depot at a time; a cache holds twice as many.
    bulk: usize,
    pub(crate) small: Class,
    pub(crate) large: Class,
    caches: Box<[Cache]>,
    /// The tally of all threads that are no workers.
    others: Tally,
}

// SAFETY: frames move between threads through the depots' locks; a cache is touched only by the thread that has
// claimed its worker slot; all else is atomic or never written after the pool is made.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Adds to a counter that no other thread writes.
#[inline(always)]
fn bump(counter: &AtomicU64, by: usize, order: Ordering) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by as u64), order);
}

impl Shared {
    /// A pool in leaked memory, all its frames in the depots, the first on top. Sizes were checked by the builder.
    pub(crate) fn leak(
        (memory, metas): (SharedMapping, Mapping),
        (frames, frame_size, stride): (usize, usize, usize),
        (large_frames, large_size): (usize, usize),
    ) -> NonNull<Self> {
        let class = |first: usize, frames: usize| Class {
            first: first as u32,
            frames: frames as u32,
            depot: Mutex::new(Vec::with_capacity(frames)),
        };
        let cache = |_| Cache {
            len: AtomicU32::new(0),
            tally: Tally::default(),
            frames: UnsafeCell::new([None; CACHE]),
        };
        let pool = NonNull::from(Box::leak(Box::new(Self {
            memory,
            metas,
            frame_size,
            stride,
            large_size,
            // A cache must not starve the other workers of a small pool.
            bulk: (frames / 8).clamp(1, CACHE / 2),
            small: class(0, frames),
            large: class(frames, large_frames),
            caches: (0..worker::SLOTS).map(cache).collect(),
            others: Tally::default(),
        })));
        // SAFETY: it was leaked above and nobody else has it yet.
        let shared = unsafe { pool.as_ref() };
        for class in [&shared.small, &shared.large] {
            let mut depot = class.depot.lock().unwrap_or_else(PoisonError::into_inner);
            for index in (class.first..class.first + class.frames).rev() {
                depot.push(shared.write_line(pool, index));
            }
        }
        pool
    }

    /// Writes what stays the same in a frame's line for as long as the pool lives.
    fn write_line(&self, pool: NonNull<Self>, index: u32) -> NonNull<Meta> {
        let (offset, capacity) = if index < self.large.first {
            (index as usize * self.stride, self.frame_size)
        } else {
            let small = (self.small.frames as usize * self.stride).next_multiple_of(4096);
            (small + (index - self.large.first) as usize * self.large_size, self.large_size)
        };
        // SAFETY: the mapping was made for all small frames and all large ones behind them.
        let frame = unsafe { self.memory.mapping.base().add(offset) };
        // With the gap behind a small frame, which nobody ever has.
        let gap = if index < self.large.first { self.stride - capacity } else { 0 };
        poison::freed(frame, capacity + gap);
        let line = self.line(index);
        let meta = Meta {
            frame,
            pool,
            index,
            capacity: capacity as u32,
            start: HEADROOM as u32,
            len: 0,
            fresh: Fresh::NEW,
        };
        // SAFETY: the table has a line for each index, aligned, and nobody else has the pool yet.
        unsafe { line.write(meta) };
        line
    }

    pub(crate) fn capacity(&self) -> usize {
        (self.small.frames + self.large.frames) as usize
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.caches.iter().map(|cache| &cache.tally).chain([&self.others])
    }

    fn sum(&self, counter: fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies().fold(0, |sum, tally| sum.wrapping_add(counter(tally).load(Ordering::Acquire)))
    }

    /// Packets that are out: exact when no other thread allocates or frees, else at least what there was at one moment.
    pub(crate) fn out(&self) -> usize {
        // The order matters. Who sees a packet's `given` (acquire) sees whatever happened before it, and so the `taken`
        // of that packet and of every copy that was made of it.
        let given = self.sum(|tally| &tally.given);
        let taken = self.sum(|tally| &tally.taken);
        taken.wrapping_sub(given) as usize
    }

    pub(crate) fn available(&self) -> usize {
        self.capacity().saturating_sub(self.out())
    }

    pub(crate) fn copied(&self) -> u64 {
        self.sum(|tally| &tally.copied)
    }

    pub(crate) fn exhausted(&self) -> u64 {
        self.sum(|tally| &tally.exhausted)
    }

    /// The metadata line of a frame; `index` must be below the capacity.
    pub(crate) fn line(&self, index: u32) -> NonNull<Meta> {
        assert!((index as usize) < self.capacity(), "no such frame");
        // SAFETY: the table has a line for each index, as was just checked.
        unsafe { self.metas.base().cast::<Lines>().add(index as usize) }.cast()
    }

    pub(crate) fn is_small(&self, index: u32) -> bool {
        index < self.large.first
    }

    /// This thread's cache, if it is a worker.
    #[inline(always)]
    fn cache(&self) -> Option<&Cache> {
        self.caches.get(worker::index())
    }

    /// Counts for this thread. With `Release` this must be the thread's last touch of the pool.
    fn count(&self, counter: fn(&Tally) -> &AtomicU64, by: usize, order: Ordering) {
        match self.cache() {
            Some(cache) => bump(counter(&cache.tally), by, order),
            None => _ = counter(&self.others).fetch_add(by as u64, order),
        }
    }

    pub(crate) fn count_copy(&self) {
        self.count(|tally| &tally.copied, 1, Ordering::Relaxed);
    }

    /// Takes `out.len()` small frames; answers how many there were, and counts those that there were not. Places behind
    /// those are left as they were.
    #[inline(always)]
    pub(crate) fn take(&self, out: &mut [Place]) -> usize {
        if let Some(cache) = self.cache() {
            let len = cache.len.load(Ordering::Relaxed) as usize;
            // SAFETY: only the thread with this worker slot touches the cache, and this is it.
            let frames = unsafe { &*cache.frames.get() };
            if let Some(rest) = len.checked_sub(out.len())
                && let Some(top) = frames.get(rest..len)
            {
                out.copy_from_slice(top);
                cache.len.store(rest as u32, Ordering::Relaxed);
                bump(&cache.tally.taken, top.len(), Ordering::Relaxed);
                return top.len();
            }
        }
        self.take_slowly(out)
    }

    #[inline(never)]
    fn take_slowly(&self, out: &mut [Place]) -> usize {
        let mut taken = 0;
        if let Some(cache) = self.cache() {
            let mut len = cache.len.load(Ordering::Relaxed) as usize;
            // SAFETY: as in `take`; reclaiming leaves slots alone that somebody has.
            let frames = unsafe { &mut *cache.frames.get() };
            while taken < out.len() {
                if len == 0 {
                    len = self.withdraw(&self.small, &mut frames[..self.bulk]);
                    if len == 0 {
                        break;
                    }
                }
                let count = len.min(out.len() - taken);
                out[taken..taken + count].copy_from_slice(&frames[len - count..len]);
                len -= count;
                taken += count;
            }
            cache.len.store(len as u32, Ordering::Relaxed);
        } else {
            while taken < out.len() {
                let more = self.withdraw(&self.small, &mut out[taken..]);
                if more == 0 {
                    break;
                }
                taken += more;
            }
        }
        self.count_taken(taken, out.len());
        taken
    }

    fn count_taken(&self, taken: usize, wanted: usize) {
        self.count(|tally| &tally.taken, taken, Ordering::Relaxed);
        if taken < wanted {
            self.count(|tally| &tally.exhausted, wanted - taken, Ordering::Relaxed);
        }
    }

    /// A packet of length 0 with room for `len` bytes from `start` on (for copies that keep their headroom), or behind
    /// the usual headroom.
    pub(crate) fn frame_for(&self, len: usize, start: Option<usize>) -> Option<Packet> {
        let end = start.unwrap_or(HEADROOM).checked_add(len)?;
        let mut place = [None];
        if end <= self.frame_size {
            self.take(&mut place);
        } else if self.large.frames > 0 && end <= self.large_size {
            let taken = self.withdraw(&self.large, &mut place);
            self.count_taken(taken, 1);
        }
        // SAFETY: the frame has just left the free ones.
        let mut packet = unsafe { Packet::claim(place[0]?) };
        match start {
            None => Some(packet),
            Some(start) => packet.set_bounds(start, 0).then_some(packet),
        }
    }

    /// Takes back small frames.
    ///
    /// # Safety
    /// They are small frames of this pool that no packet has any more. The pool may be gone when this returns.
    #[inline(always)]
    unsafe fn give(&self, frames: &[Place]) {
        if let Some(cache) = self.cache() {
            let len = cache.len.load(Ordering::Relaxed) as usize;
            let end = len + frames.len();
            // SAFETY: only the thread with this worker slot touches the cache, and this is it.
            let mine = unsafe { &mut *cache.frames.get() };
            if end <= 2 * self.bulk
                && let Some(top) = mine.get_mut(len..end)
            {
                top.copy_from_slice(frames);
                cache.len.store(end as u32, Ordering::Relaxed);
                bump(&cache.tally.given, frames.len(), Ordering::Release);
                return;
            }
        }
        self.give_slowly(frames);
    }

    #[inline(never)]
    fn give_slowly(&self, frames: &[Place]) {
        if let Some(cache) = self.cache() {
            let mut len = cache.len.load(Ordering::Relaxed) as usize;
            // SAFETY: as in `give`.
            let mine = unsafe { &mut *cache.frames.get() };
            for chunk in frames.chunks(self.bulk) {
                if len + chunk.len() > 2 * self.bulk {
                    let keep = len.saturating_sub(self.bulk);
                    self.small.deposit(&mine[keep..len]);
                    len = keep;
                }
                mine[len..len + chunk.len()].copy_from_slice(chunk);
                len += chunk.len();
            }
            cache.len.store(len as u32, Ordering::Relaxed);
        } else {
            self.small.deposit(frames);
        }
        self.count(|tally| &tally.given, frames.len(), Ordering::Release);
    }

    /// Takes up to `out.len()` frames out of a depot, and where that is empty out of the caches of workers that are gone.
    fn withdraw(&self, class: &Class, out: &mut [Place]) -> usize {
        let taken = class.withdraw(out);
        if taken == 0 && class.first == 0 && self.reclaim() { class.withdraw(out) } else { taken }
    }

    /// Empties the caches of workers that are gone into the depot; answers whether there was anything.
    #[cold]
    fn reclaim(&self) -> bool {
        let mut any = false;
        for (index, cache) in self.caches.iter().enumerate() {
            if cache.len.load(Ordering::Relaxed) == 0 || !worker::try_claim(index) {
                continue;
            }
            let len = cache.len.load(Ordering::Relaxed) as usize;
            // SAFETY: the slot was just claimed, so no thread uses this cache until it is released.
            let frames = unsafe { &*cache.frames.get() };
            self.small.deposit(&frames[..len]);
            cache.len.store(0, Ordering::Relaxed);
            worker::release(index);
            any |= len > 0;
        }
        any
    }
}

impl Class {
    fn withdraw(&self, out: &mut [Place]) -> usize {
        let mut depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        let count = out.len().min(depot.len());
        for place in &mut out[..count] {
            *place = depot.pop();
        }
        count
    }

    fn deposit(&self, frames: &[Place]) {
        let mut depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        // Within the capacity reserved at the start: a depot never holds more frames than there are.
        depot.extend(frames.iter().flatten());
    }
}

/// Ends these packets' use of their frames, those of one pool and size in one go.
///
/// # Safety
/// The caller owns the packets of these lines, and gives them up.
#[inline(always)]
pub(crate) unsafe fn free(lines: &[Place]) {
    let mut rest = lines;
    while let Some(Some(first)) = rest.first() {
        // SAFETY: the caller owns the packet.
        let line = unsafe { first.as_ref() };
        let pool = line.pool;
        // SAFETY: a pool lives as long as one of its frames is out.
        let shared = unsafe { pool.as_ref() };
        let small = shared.is_small(line.index);
        let same = rest
            .iter()
            .map_while(|place| {
                // SAFETY: as for the first.
                let line = unsafe { (*place)?.as_ref() };
                (line.pool == pool && shared.is_small(line.index) == small).then_some(*place).flatten()
            })
            // SAFETY: the caller owns the packet.
            .map(|line| unsafe { end_use(line) })
            .count();
        let (run, others) = rest.split_at(same);
        if small {
            // SAFETY: they are of this pool, small, and their packets end here.
            unsafe { shared.give(run) };
        } else {
            shared.large.deposit(run);
            shared.count(|tally| &tally.given, run.len(), Ordering::Release);
        }
        rest = others;
    }
}

/// What a frame must not keep of its packet.
///
/// # Safety
/// The packet is the caller's, and ends.
#[inline(always)]
pub(crate) unsafe fn end_use(line: NonNull<Meta>) {
    // SAFETY: the packet is the caller's.
    let meta = unsafe { line.as_ref() };
    if meta.fresh.flags & ANNOTATED != 0 {
        // SAFETY: a packet's pointer was made from its pool's memory.
        wipe(unsafe { Lines::annotations(line) });
    }
    poison::freed(meta.frame, meta.capacity as usize);
}

/// Zeroes a used annotation line, so that the next packet finds none.
#[cold]
pub(crate) fn wipe(annotations: NonNull<[u8; 64]>) {
    // SAFETY: callers own the packet to whose frame the line belongs.
    unsafe { annotations.write([0; 64]) };
}
