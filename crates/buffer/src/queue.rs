//! A bounded queue of any items between two threads; rings are made of it.
//!
//! Items that go in or out together are published with one store. It holds plain items so that `tests/loom.rs` can
//! check this very code.

use std::mem::MaybeUninit;

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(loom)]
use loom::sync::Arc;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// As much of loom's cell as is needed.
#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);
#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    #[inline(always)]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Keeps what one end writes off the other end's cache lines (which come in pairs).
#[repr(align(128))]
struct Apart<T>(T);

/// `head` and `tail` count items since the start; they never wrap in the life of a machine.
struct Shared<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Where the receiver reads next; it alone writes this.
    head: Apart<AtomicUsize>,
    /// Where the sender writes next; it alone writes this.
    tail: Apart<AtomicUsize>,
    closed: AtomicBool,
}

// SAFETY: a place is written by the sender before it moves `tail` past it (release) and read by the receiver after it
// saw that (acquire), and the other way round for `head`: never by both at once. Items move between threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn place(&self, at: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The number of places is a power of two.
        &self.places[at & (self.places.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (head, tail) = (self.head.0.load(Ordering::Relaxed), self.tail.0.load(Ordering::Relaxed));
        for at in head..tail {
            // SAFETY: what lies between head and tail was written and not read, and both ends are gone.
            drop(self.place(at).with(|place| unsafe { place.cast::<T>().read() }));
        }
    }
}

/// A queue for at least `capacity` items (the next power of two).
pub fn queue<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let size = capacity.clamp(1, 1 << 30).next_power_of_two();
    let shared = Arc::new(Shared {
        places: (0..size).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        head: Apart(AtomicUsize::new(0)),
        tail: Apart(AtomicUsize::new(0)),
        closed: AtomicBool::new(false),
    });
    (Sender { shared: shared.clone(), tail: 0, head_seen: 0 }, Receiver { shared, head: 0, tail_seen: 0 })
}

/// The end that items go in by.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
}

/// The end that items come out of.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
}

impl<T> Sender<T> {
    /// Up to `wanted` places, to be written; what was written is published when the answer is dropped.
    #[inline]
    pub fn write(&mut self, wanted: usize) -> Writing<'_, T> {
        let size = self.shared.places.len();
        if size - (self.tail - self.head_seen) < wanted {
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        }
        let room = size - (self.tail - self.head_seen);
        let at = self.tail;
        Writing { shared: &self.shared, tail: &mut self.tail, at, end: at + room.min(wanted) }
    }
    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
    /// Items that wait.
    pub fn waiting(&self) -> usize {
        self.tail - self.shared.head.0.load(Ordering::Acquire)
    }
}

impl<T> Receiver<T> {
    /// Up to `wanted` items, to be read; the places of those that were are free when the answer is dropped.
    #[inline]
    pub fn read(&mut self, wanted: usize) -> Reading<'_, T> {
        if self.tail_seen - self.head < wanted {
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        }
        let at = self.head;
        Reading {
            shared: &self.shared,
            at,
            end: at + (self.tail_seen - at).min(wanted),
            head: &mut self.head,
        }
    }
    /// Whether the other end is gone and nothing waits.
    pub fn is_closed(&self) -> bool {
        // In this order: what the sender wrote before it closed is seen.
        self.shared.closed.load(Ordering::Acquire) && self.waiting() == 0
    }
    /// Items that wait.
    pub fn waiting(&self) -> usize {
        self.shared.tail.0.load(Ordering::Acquire) - self.head
    }
}

/// Places that are being written.
pub struct Writing<'q, T> {
    shared: &'q Shared<T>,
    tail: &'q mut usize,
    at: usize,
    end: usize,
}

impl<T> Writing<'_, T> {
    /// How many more there are.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.end - self.at
    }
    /// Writes the next.
    ///
    /// # Errors
    /// Gives the item back where there is none.
    #[inline(always)]
    pub fn put(&mut self, item: T) -> Result<(), T> {
        if self.at == self.end {
            return Err(item);
        }
        self.shared.place(self.at).with_mut(|place| {
            // SAFETY: the receiver has left this place, and does not look at it before `tail` is past it.
            unsafe { place.write(MaybeUninit::new(item)) };
        });
        self.at += 1;
        Ok(())
    }
}

impl<T> Drop for Writing<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.at != *self.tail {
            *self.tail = self.at;
            self.shared.tail.0.store(self.at, Ordering::Release);
        }
    }
}

/// Items that are being read. It must be dropped: forgotten, it would give out the same items again.
pub struct Reading<'q, T> {
    shared: &'q Shared<T>,
    head: &'q mut usize,
    at: usize,
    end: usize,
}

impl<T> Iterator for Reading<'_, T> {
    type Item = T;
    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        if self.at == self.end {
            return None;
        }
        let place = self.shared.place(self.at);
        self.at += 1;
        Some(place.with(|place| {
            // SAFETY: the sender has published this place; it is read once, as `at` is past it now and `head` follows.
            unsafe { place.cast::<T>().read() }
        }))
    }
    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.at, Some(self.end - self.at))
    }
}
impl<T> ExactSizeIterator for Reading<'_, T> {}

impl<T> Drop for Reading<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.at != *self.head {
            *self.head = self.at;
            self.shared.head.0.store(self.at, Ordering::Release);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}
