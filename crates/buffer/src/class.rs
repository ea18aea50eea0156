//! Free frames of one size.
//!
//! Each worker has a stack of them in plain memory. It is filled from a shared depot and emptied into it in bulk, so
//! that packets freed on another core return together.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::meta::Meta;
use crate::worker;

/// Frames that a worker's stack holds at most, in a pool large enough; half of them move at a time.
const STACK: usize = 512;

/// A place for the line of a packet or of a free frame, as large as the pointer.
pub(crate) type Place = Option<NonNull<Meta>>;

/// A worker's own free frames.
#[repr(align(128))]
struct Stack {
    /// Written by the slot's owner only.
    len: AtomicU32,
    frames: UnsafeCell<[Place; STACK]>,
}

/// Where frames of one size lie in a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) frames: usize,
    /// Bytes of a frame, with its headroom.
    pub(crate) size: usize,
    /// Bytes from one frame to the next.
    pub(crate) stride: usize,
}

impl Shape {
    /// Bytes of all, in whole pages.
    pub(crate) fn bytes(self) -> usize {
        (self.frames * self.stride).next_multiple_of(4096)
    }
}

/// One size of frame.
pub(crate) struct Class {
    pub(crate) shape: Shape,
    /// Number of the first frame, and its place in the pool's memory (bytes).
    first: u32,
    offset: usize,
    /// Frames that move between a stack and the depot at a time; a stack holds twice as many.
    bulk: usize,
    depot: Mutex<Vec<NonNull<Meta>>>,
    /// Frames in the depot, written under its lock, so that a caller that finds 0 need not wait for it.
    stored: AtomicUsize,
    /// [`worker::releases`] before the last search of the stacks, plus 1: until there are more, another would find nothing.
    searched: AtomicU64,
    /// By worker slot; none where frames come out of the depot one by one.
    stacks: Box<[Stack]>,
}

impl Class {
    /// A class without frames, with stacks for `workers` workers, or without stacks (0).
    ///
    /// [`fill`](Self::fill) puts the frames in.
    pub(crate) fn new(shape: Shape, first: usize, offset: usize, workers: usize) -> Self {
        let stack = |_| Stack { len: AtomicU32::new(0), frames: UnsafeCell::new([None; STACK]) };
        // With fewer than four frames a worker, the least that stacks hold would be more than half.
        let stacked = if workers > 0 && shape.frames >= 4 * workers { worker::SLOTS } else { 0 };
        Self {
            shape,
            first: first as u32,
            offset,
            // All stacks together hold half of the frames, and no more: what one worker frees and never takes is another's to take.
            bulk: (shape.frames / (4 * workers.max(1))).clamp(1, STACK / 2),
            depot: Mutex::new(Vec::with_capacity(shape.frames)),
            stored: AtomicUsize::new(0),
            searched: AtomicU64::new(0),
            stacks: (0..stacked).map(stack).collect(),
        }
    }

    /// Puts all frames into the depot, the first on top.
    ///
    /// `line` makes a frame's line from its number and its place in the pool's memory.
    pub(crate) fn fill(&self, line: impl Fn(u32, usize) -> NonNull<Meta>) {
        let mut depot = self.depot();
        let frames = (0..self.shape.frames).rev();
        depot.extend(
            frames.map(|frame| line(self.first + frame as u32, self.offset + frame * self.shape.stride)),
        );
        self.stored.store(depot.len(), Ordering::Relaxed);
    }

    /// Whether the frame of this number is one of these.
    #[inline(always)]
    pub(crate) fn has(&self, index: u32) -> bool {
        index.wrapping_sub(self.first) < self.shape.frames as u32
    }

    /// This thread's stack, if it is a worker.
    #[inline(always)]
    fn stack(&self) -> Option<&Stack> {
        self.stacks.get(worker::index())
    }

    /// Takes `out.len()` frames off this thread's stack, if there are as many.
    #[inline(always)]
    pub(crate) fn take(&self, out: &mut [Place]) -> bool {
        let Some(stack) = self.stack() else { return false };
        let len = stack.len.load(Ordering::Relaxed) as usize;
        // SAFETY: only the thread with this worker slot touches the stack, and this is it.
        let frames = unsafe { &*stack.frames.get() };
        if let Some(rest) = len.checked_sub(out.len())
            && let Some(top) = frames.get(rest..len)
        {
            out.copy_from_slice(top);
            stack.len.store(rest as u32, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Takes up to `out.len()` frames, from wherever they are; answers how many there were.
    pub(crate) fn take_anywhere(&self, out: &mut [Place]) -> usize {
        let mut taken = 0;
        let Some(stack) = self.stack() else {
            while taken < out.len() {
                let more = self.withdraw(&mut out[taken..]);
                if more == 0 {
                    break;
                }
                taken += more;
            }
            return taken;
        };
        let mut len = stack.len.load(Ordering::Relaxed) as usize;
        // SAFETY: as in `take`; reclaiming leaves alone slots that are taken.
        let frames = unsafe { &mut *stack.frames.get() };
        while taken < out.len() {
            if len == 0 {
                len = self.withdraw(&mut frames[..self.bulk]);
                if len == 0 {
                    break;
                }
            }
            let count = len.min(out.len() - taken);
            out[taken..taken + count].copy_from_slice(&frames[len - count..len]);
            len -= count;
            taken += count;
        }
        stack.len.store(len as u32, Ordering::Relaxed);
        taken
    }

    /// Puts frames onto this thread's stack, if there is room.
    ///
    /// # Safety
    /// They are frames of this class that no packet has any more.
    #[inline(always)]
    pub(crate) unsafe fn give(&self, frames: &[Place]) -> bool {
        let Some(stack) = self.stack() else { return false };
        let len = stack.len.load(Ordering::Relaxed) as usize;
        let end = len + frames.len();
        // SAFETY: only the thread with this worker slot touches the stack, and this is it.
        let mine = unsafe { &mut *stack.frames.get() };
        if end <= 2 * self.bulk
            && let Some(top) = mine.get_mut(len..end)
        {
            top.copy_from_slice(frames);
            stack.len.store(end as u32, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// As [`give`](Self::give), where there is no room too: others go to the depot then.
    ///
    /// # Safety
    /// As of [`give`](Self::give).
    pub(crate) unsafe fn give_anyhow(&self, frames: &[Place]) {
        let Some(stack) = self.stack() else { return self.deposit(frames) };
        let mut len = stack.len.load(Ordering::Relaxed) as usize;
        // SAFETY: as in `give`.
        let mine = unsafe { &mut *stack.frames.get() };
        for chunk in frames.chunks(self.bulk) {
            if len + chunk.len() > 2 * self.bulk {
                let keep = len.saturating_sub(self.bulk);
                self.deposit(&mine[keep..len]);
                len = keep;
            }
            mine[len..len + chunk.len()].copy_from_slice(chunk);
            len += chunk.len();
        }
        stack.len.store(len as u32, Ordering::Relaxed);
    }

    /// Takes up to `out.len()` frames from the depot, then from the stacks of workers that are gone.
    ///
    /// With neither, it reads two counters only: packets then take frames of another size, and each of them comes
    /// through here.
    fn withdraw(&self, out: &mut [Place]) -> usize {
        let taken = self.pop(out);
        if taken == 0 && self.reclaim() { self.pop(out) } else { taken }
    }

    fn depot(&self) -> MutexGuard<'_, Vec<NonNull<Meta>>> {
        #[cfg(test)]
        tests::count(&tests::LOCKED);
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self, out: &mut [Place]) -> usize {
        // If the threads agree that a deposit came before this load, the load sees its count.
        if self.stored.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut depot = self.depot();
        let count = out.len().min(depot.len());
        for place in &mut out[..count] {
            *place = depot.pop();
        }
        self.stored.store(depot.len(), Ordering::Relaxed);
        count
    }

    fn deposit(&self, frames: &[Place]) {
        let mut depot = self.depot();
        // Within the capacity reserved at the start: a depot never holds more frames than there are.
        depot.extend(frames.iter().flatten());
        self.stored.store(depot.len(), Ordering::Relaxed);
    }

    /// Empties the stacks of workers that are gone into the depot; returns whether there were any frames.
    ///
    /// It looks only after another slot was given up. A present worker keeps its frames.
    fn reclaim(&self) -> bool {
        let releases = worker::releases().wrapping_add(1);
        self.searched.load(Ordering::Relaxed) != releases && self.search(releases)
    }

    #[cold]
    fn search(&self, releases: u64) -> bool {
        #[cfg(test)]
        tests::count(&tests::SEARCHED);
        let mut any = false;
        for (index, stack) in self.stacks.iter().enumerate() {
            if stack.len.load(Ordering::Relaxed) == 0 || !worker::try_claim(index) {
                continue;
            }
            let len = stack.len.load(Ordering::Relaxed) as usize;
            // SAFETY: the slot was just claimed, so no thread uses this stack until it is released.
            let frames = unsafe { &*stack.frames.get() };
            self.deposit(&frames[..len]);
            stack.len.store(0, Ordering::Relaxed);
            // Counted like any other: a thread that searches frames of another size meanwhile skips this
            // slot, and comes back.
            worker::release(index);
            any |= len > 0;
        }
        // Of the time before it: a slot given up meanwhile may have been passed by.
        self.searched.store(releases, Ordering::Relaxed);
        any
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;
    use std::thread::{self, LocalKey};

    use crate::{Packet, Pool, WorkerSlot, worker};

    thread_local! {
        /// Times that this thread took a depot's lock, and searched the stacks.
        pub(super) static LOCKED: Cell<u64> = const { Cell::new(0) };
        pub(super) static SEARCHED: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count(counter: &'static LocalKey<Cell<u64>>) {
        counter.set(counter.get() + 1);
    }

    const SHORT: usize = 64;

    /// All short frames that there are.
    fn exhaust(pool: &Pool) -> Vec<Packet> {
        let packets = std::iter::repeat_with(|| pool.empty(64)).map_while(|packet| packet);
        packets.take_while(|packet| !pool.owns_small(packet)).collect()
    }

    /// A short packet that gets a small frame takes no lock for it, nor looks into every worker's stack.
    fn small_ones_come_cheaply(pool: &Pool) {
        let (locked, searched) = (LOCKED.get(), SEARCHED.get());
        assert!((0..1_000).all(|_| pool.empty(64).is_some_and(|packet| pool.owns_small(&packet))));
        assert_eq!((LOCKED.get() - locked, SEARCHED.get() - searched), (0, 0));
    }

    #[test]
    fn exhaustion_is_remembered_until_frames_come_back() {
        let _alone = worker::tests::alone();
        let _slot = WorkerSlot::claim().unwrap();
        let pool = Pool::builder().frames(64).short(SHORT, 512).build().unwrap();
        let mut out = exhaust(&pool);
        assert_eq!(out.len(), SHORT);
        for back in [1, 2, 15, 16, 17, SHORT] {
            small_ones_come_cheaply(&pool);
            // More than this thread's stack holds go by way of the depot.
            out.truncate(SHORT - back);
            out.extend(exhaust(&pool));
            assert_eq!(out.len(), SHORT, "{back} came back");
        }
        small_ones_come_cheaply(&pool);
    }

    /// Of a thread that is no worker, whose frames go to the depot at once.
    #[test]
    fn frames_that_another_thread_frees_are_found() {
        let _alone = worker::tests::alone();
        let _slot = WorkerSlot::claim().unwrap();
        let pool = Pool::builder().frames(64).short(SHORT, 512).build().unwrap();
        let mut out = exhaust(&pool);
        for back in [1, 20] {
            small_ones_come_cheaply(&pool);
            let freed = out.split_off(SHORT - back);
            thread::spawn(|| drop(freed)).join().unwrap();
            out.extend(exhaust(&pool));
            assert_eq!(out.len(), SHORT);
        }
    }

    /// Also those that a worker has in its stack when this thread finds none.
    #[test]
    fn frames_of_a_worker_that_goes_later_are_found() {
        let _alone = worker::tests::alone();
        let _slot = WorkerSlot::claim().unwrap();
        let pool = Pool::builder().frames(64).short(SHORT, 512).build().unwrap();
        let mut out = exhaust(&pool);
        for _ in 0..3 {
            let freed = out.split_off(SHORT - 16);
            let ((has_them, had), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
            let worker = thread::spawn(move || {
                let _slot = WorkerSlot::claim().unwrap();
                drop(freed);
                has_them.send(()).unwrap();
                // Until the other end is let go of.
                assert!(gone.recv().is_err());
            });
            had.recv().unwrap();
            assert_eq!(exhaust(&pool).len(), 0, "it is there");
            small_ones_come_cheaply(&pool);
            drop(go);
            worker.join().unwrap();
            out.extend(exhaust(&pool));
            assert_eq!(out.len(), SHORT);
            small_ones_come_cheaply(&pool);
        }
    }

    /// One of many workers takes and all others free: the frames that they keep leave it enough.
    #[test]
    fn workers_that_only_free_leave_half_of_the_frames_to_one_that_takes() {
        let _alone = worker::tests::alone();
        let _slot = WorkerSlot::claim().unwrap();
        let workers = 32;
        let pool = Pool::builder().frames(2_048).workers(workers).build().unwrap();
        let threads: Vec<_> = (1..workers)
            .map(|_| {
                let (to, freed) = mpsc::channel::<Vec<Packet>>();
                let (done, is_done) = mpsc::channel();
                let thread = thread::spawn(move || {
                    let _slot = WorkerSlot::claim().unwrap();
                    for packets in freed {
                        drop(packets);
                        done.send(()).unwrap();
                    }
                });
                (to, is_done, thread)
            })
            .collect();
        for _ in 0..20 {
            for (to, is_done, _) in &threads {
                let packets: Vec<_> = (0..1_024).map_while(|_| pool.empty(1_000)).collect();
                assert_eq!(packets.len(), 1_024, "others keep what this one needs");
                to.send(packets).unwrap();
                is_done.recv().unwrap();
            }
        }
        for (to, _, thread) in threads {
            drop(to);
            thread.join().unwrap();
        }
        assert_eq!(pool.available(), 2_048);
    }
}
