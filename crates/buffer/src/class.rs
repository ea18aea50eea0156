//! Frames of one size that no packet uses. Each worker has a stack of them in plain memory, filled from and emptied into a
//! shared depot in bulk, so that a packet freed on another core finds its way home with its neighbours.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::meta::Meta;
use crate::worker;

/// Frames that a worker's stack holds at most, in a pool large enough; half of them move at a time.
const STACK: usize = 512;

/// Where a batch, a stack or an iterator keeps a packet's or a free frame's line. As large as the pointer.
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
    /// By worker slot; none where frames come out of the depot one by one.
    stacks: Box<[Stack]>,
}

impl Class {
    /// A class whose frames are yet to be [filled in](Self::fill), with stacks for workers or without.
    pub(crate) fn new(shape: Shape, first: usize, offset: usize, stacks: bool) -> Self {
        let stack = |_| Stack { len: AtomicU32::new(0), frames: UnsafeCell::new([None; STACK]) };
        let stacked = if stacks && shape.frames > 0 { worker::SLOTS } else { 0 };
        Self {
            shape,
            first: first as u32,
            offset,
            // A stack must not starve the other workers of a small pool.
            bulk: (shape.frames / 8).clamp(1, STACK / 2),
            depot: Mutex::new(Vec::with_capacity(shape.frames)),
            stacks: (0..stacked).map(stack).collect(),
        }
    }

    /// Puts all frames into the depot, the first on top: `line` makes one's line of its number and its place in the pool's
    /// memory.
    pub(crate) fn fill(&self, line: impl Fn(u32, usize) -> NonNull<Meta>) {
        let mut depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = (0..self.shape.frames).rev();
        depot.extend(
            frames.map(|frame| line(self.first + frame as u32, self.offset + frame * self.shape.stride)),
        );
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
        // SAFETY: as in `take`; reclaiming leaves slots alone that somebody has.
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

    /// Takes up to `out.len()` frames out of the depot, and where that is empty out of the stacks of workers that are gone.
    fn withdraw(&self, out: &mut [Place]) -> usize {
        let taken = self.pop(out);
        if taken == 0 && self.reclaim() { self.pop(out) } else { taken }
    }

    fn pop(&self, out: &mut [Place]) -> usize {
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

    /// Empties the stacks of workers that are gone into the depot; answers whether there was anything.
    #[cold]
    fn reclaim(&self) -> bool {
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
            worker::release(index);
            any |= len > 0;
        }
        any
    }
}
