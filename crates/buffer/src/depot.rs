//! The shared part of a pool: its memory, its frame sizes, and the count of frames in use.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::class::{Class, Place, Shape};
use crate::meta::{FAR, Fresh, Lines, Meta, Second};
use crate::packet::Packet;
use crate::region::{Mapping, SharedMapping};
use crate::{HEADROOM, poison, worker};

/// Bytes that a short frame must have free behind a packet, so that a small addition needs no larger frame.
const SPARE: usize = 64;

/// One thread's counts of frames taken and given back; they only grow.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    taken: AtomicU64,
    given: AtomicU64,
    copied: AtomicU64,
    exhausted: AtomicU64,
}

/// A pool's memory and free frames.
///
/// There is no count of packets. Each worker counts the frames that it takes and gives back, and [`Shared::out`] reads
/// all `given` before all `handoff_in`. So its answer is at least the number of packets that were out in between. An answer
/// of 0 proves that there are none, and with no handle left there never will be again.
pub(crate) struct Shared {
    pub(crate) memory: SharedMapping,
    pub(crate) metas: Mapping,
    /// Frames that take any packet of the usual length, lie first in memory and have the first numbers.
    pub(crate) small: Class,
    /// Frames for jumbo frames, and for packets that a device cuts later.
    pub(crate) large: Class,
    /// Frames for short packets, side by side: more of what is looked at lies in a page.
    pub(crate) short: Class,
    /// By worker slot.
    tallies: Box<[Tally]>,
    /// The tally of all threads that are no workers.
    others: Tally,
}

// SAFETY: frames move between threads through the depots' locks; a stack is touched only by the thread that has
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
    /// A pool in leaked memory for `workers` workers, with all frames in the depots, the first on top.
    ///
    /// The builder checked the sizes.
    pub(crate) fn leak(
        (memory, metas): (SharedMapping, Mapping),
        [small, large, short]: [Shape; 3],
        workers: usize,
    ) -> NonNull<Self> {
        let behind_small = (small.frames, small.bytes());
        let behind_large = (behind_small.0 + large.frames, behind_small.1 + large.bytes());
        let pool = NonNull::from(Box::leak(Box::new(Self {
            memory,
            metas,
            small: Class::new(small, 0, 0, workers),
            large: Class::new(large, behind_small.0, behind_small.1, 0),
            short: Class::new(short, behind_large.0, behind_large.1, workers),
            tallies: (0..worker::SLOTS).map(|_| Tally::default()).collect(),
            others: Tally::default(),
        })));
        // SAFETY: it was leaked above and no other code has it yet.
        let shared = unsafe { pool.as_ref() };
        for class in [&shared.small, &shared.large, &shared.short] {
            class.fill(|index, offset| shared.write_line(pool, index, offset, class.shape));
        }
        pool
    }

    /// Writes what stays the same in a frame's line for as long as the pool lives.
    fn write_line(&self, pool: NonNull<Self>, index: u32, offset: usize, shape: Shape) -> NonNull<Meta> {
        // SAFETY: the mapping was made for the frames of all classes, one class behind the other.
        let frame = unsafe { self.memory.mapping.base().add(offset) };
        // With the gap behind a frame, which no packet ever has.
        poison::freed(frame, shape.stride);
        let line = self.line(index);
        let meta = Meta {
            frame,
            pool,
            index,
            capacity: shape.size as u32,
            start: HEADROOM as u32,
            len: 0,
            fresh: Fresh::NEW,
        };
        // SAFETY: the table has a line for each index, aligned, and no other code has the pool yet.
        unsafe { line.write(meta) };
        line
    }

    pub(crate) fn capacity(&self) -> usize {
        self.small.shape.frames + self.large.shape.frames + self.short.shape.frames
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.tallies.iter().chain([&self.others])
    }

    fn sum(&self, counter: fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies().fold(0, |sum, tally| sum.wrapping_add(counter(tally).load(Ordering::Acquire)))
    }

    /// Packets that are out.
    ///
    /// Exact when no other thread allocates or frees, else at least the number at one moment.
    pub(crate) fn out(&self) -> usize {
        // The order matters. A thread that sees a packet's `given` (acquire) sees all that happened before
        // it, and so the `handoff_in` of that packet and of every copy of it.
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
        unsafe { Lines::line(self.metas.base().cast(), index as usize) }
    }

    /// Which size the frame of this number has; the number must be below the capacity.
    #[inline(always)]
    fn class_of(&self, index: u32) -> &Class {
        if self.small.has(index) {
            &self.small
        } else if self.short.has(index) {
            &self.short
        } else {
            &self.large
        }
    }

    /// The smallest frames that hold `end` bytes, those before the packet's first included.
    #[inline(always)]
    pub(crate) fn class_for(&self, end: usize) -> Option<&Class> {
        // Where there are no short frames their size is 0.
        if end < self.short.shape.size.saturating_sub(SPARE - 1) {
            Some(&self.short)
        } else if end <= self.small.shape.size {
            Some(&self.small)
        } else {
            (end <= self.large.shape.size).then_some(&self.large)
        }
    }

    /// This thread's tally, if it is a worker.
    #[inline(always)]
    fn tally(&self) -> Option<&Tally> {
        self.tallies.get(worker::index())
    }

    /// Counts for this thread. With `Release` this must be the thread's last touch of the pool.
    fn count(&self, counter: fn(&Tally) -> &AtomicU64, by: usize, order: Ordering) {
        match self.tally() {
            Some(tally) => bump(counter(tally), by, order),
            None => _ = counter(&self.others).fetch_add(by as u64, order),
        }
    }

    pub(crate) fn count_copy(&self) {
        self.count(|tally| &tally.copied, 1, Ordering::Relaxed);
    }

    /// Takes `out.len()` frames of a class, or small ones in place of short ones; returns how many.
    ///
    /// It counts frames that were missing, and leaves their places as they were.
    #[inline(always)]
    pub(crate) fn take(&self, class: &Class, out: &mut [Place]) -> usize {
        if let Some(tally) = self.tally()
            && class.take(out)
        {
            bump(&tally.taken, out.len(), Ordering::Relaxed);
            return out.len();
        }
        self.take_slowly(class, out)
    }

    #[inline(never)]
    fn take_slowly(&self, class: &Class, out: &mut [Place]) -> usize {
        let mut taken = class.take_anywhere(out);
        if taken < out.len() && std::ptr::eq(class, &self.short) {
            taken += self.small.take_anywhere(&mut out[taken..]);
        }
        self.count(|tally| &tally.taken, taken, Ordering::Relaxed);
        if taken < out.len() {
            self.count(|tally| &tally.exhausted, out.len() - taken, Ordering::Relaxed);
        }
        taken
    }

    /// A packet of length 0 with room for `len` bytes from `start` on, or behind the usual headroom.
    ///
    /// `start` is for packets that keep their headroom.
    pub(crate) fn frame_for(&self, len: usize, start: Option<usize>) -> Option<Packet> {
        let end = start.unwrap_or(HEADROOM).checked_add(len)?;
        let mut place = [None];
        self.take(self.class_for(end)?, &mut place);
        // SAFETY: the frame has just left the free ones.
        let mut packet = unsafe { Packet::claim(place[0]?) };
        match start {
            None => Some(packet),
            Some(start) => packet.set_bounds(start, 0).then_some(packet),
        }
    }

    /// Takes back frames of a class of this pool.
    ///
    /// # Safety
    /// They are of that class, and no packet has them any more. The pool may be gone when this returns.
    #[inline(always)]
    unsafe fn give(&self, class: &Class, frames: &[Place]) {
        if let Some(tally) = self.tally()
            // SAFETY: as the caller says.
            && unsafe { class.give(frames) }
        {
            bump(&tally.given, frames.len(), Ordering::Release);
            return;
        }
        // SAFETY: as the caller says; the stack took none.
        unsafe { self.give_slowly(class, frames) };
    }

    /// # Safety
    /// As of [`give`](Self::give).
    #[inline(never)]
    unsafe fn give_slowly(&self, class: &Class, frames: &[Place]) {
        // SAFETY: as the caller says.
        unsafe { class.give_anyhow(frames) };
        self.count(|tally| &tally.given, frames.len(), Ordering::Release);
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
        let class = shared.class_of(line.index);
        let same = rest
            .iter()
            .map_while(|place| {
                // SAFETY: as for the first.
                let line = unsafe { (*place)?.as_ref() };
                (line.pool == pool && class.has(line.index)).then_some(*place).flatten()
            })
            // SAFETY: the caller owns the packet.
            .map(|line| unsafe { end_use(line) })
            .count();
        let (run, others) = rest.split_at(same);
        // SAFETY: they are of this pool and class, and their packets end here.
        unsafe { shared.give(class, run) };
        rest = others;
    }
}

/// Clears the parts of a frame's line that its next packet must not see.
///
/// # Safety
/// The packet is the caller's, and ends.
#[inline(always)]
pub(crate) unsafe fn end_use(line: NonNull<Meta>) {
    // SAFETY: the packet is the caller's.
    let meta = unsafe { line.as_ref() };
    if meta.fresh.annotated {
        // SAFETY: a packet's pointer was made from its pool's memory.
        let second = unsafe { Lines::second(line) };
        // SAFETY: the packet is the caller's.
        unsafe { wipe(second) };
    }
    poison::freed(meta.frame, meta.capacity as usize);
}

/// Zeroes used annotations, so that the next packet finds none.
///
/// # Safety
/// The packet to whose frame the line belongs is the caller's.
#[cold]
pub(crate) unsafe fn wipe(mut second: NonNull<Second>) {
    // SAFETY: the packet is the caller's.
    unsafe { second.as_mut() }.far = [0; FAR];
}
