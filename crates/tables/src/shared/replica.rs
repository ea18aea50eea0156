//! Two copies of one state: readers read one, the writer changes the other, and they swap.
//!
//! This is left-right (Ramalhete and Correia, 2013). Reading never waits, not even for the writer.

use std::ptr::NonNull;
use std::rc::Rc;

use super::Changing;
use super::atomics::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence, yield_now};

/// The most readers of one state at a time.
///
/// There is room for two graphs on each of 64 workers, and for copies on the control side.
pub const MAXIMUM_READERS: usize = if cfg!(loom) { 2 } else { 136 };

/// Turns of a waiting writer that only pause the processor, before it lets other threads run.
const SPINS: u32 = if cfg!(loom) { 0 } else { 128 };

/// All places for readers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a replicated state has {MAXIMUM_READERS} readers already: make one a worker, and drop those that are done"
)]
pub struct NoReaderLeft;

/// One reader's progress, for the writer, on cache lines of its own.
#[repr(align(128))]
struct Place {
    taken: AtomicBool,
    /// Odd while it reads. Never goes back, also when the place gets another reader.
    epoch: AtomicUsize,
}

struct Sides<T> {
    sides: [UnsafeCell<T>; 2],
    /// Which of them is read.
    live: AtomicUsize,
    /// Changes that the live side has.
    published: AtomicU64,
    places: Box<[Place]>,
}

// SAFETY: the sides move to whichever thread drops them, and are changed by the writer's thread.
unsafe impl<T: Send + Sync> Send for Sides<T> {}
// SAFETY: readers share the live side (`T: Sync`). The writer changes the other one, and only after every reader that
// may have begun while that side was live has left it (`Writer::reclaim`).
unsafe impl<T: Send + Sync> Sync for Sides<T> {}

/// Makes a replicated state: `make` makes each of its two copies, which must be equal.
///
/// A read that starts after update `k` returned sees at least the first `k − updates` of them; with 0, all. A writer
/// that pauses calls [`publish`](Writer::publish), or is dropped, and readers see everything.
///
/// ```
/// use netbricks_tables::{Changing, replicated};
///
/// #[derive(Default)]
/// struct Sum(u64);
/// impl Changing for Sum {
///     type Change = u64;
///     type Outcome = u64;
///     fn apply(&mut self, change: &u64) -> u64 {
///         self.0 += change;
///         self.0
///     }
/// }
///
/// let (mut writer, publication) = replicated(1, Sum::default);
/// let reader = publication.reader()?;
/// assert_eq!(writer.update(3), 3);
/// assert_eq!(reader.read(|sum| sum.0), 0); // one update may be missing
/// assert_eq!(writer.update(4), 7);
/// assert_eq!(reader.read(|sum| sum.0), 7);
/// # Ok::<(), netbricks_tables::NoReaderLeft>(())
/// ```
pub fn replicated<T: Changing + Send + Sync>(
    updates: usize,
    make: impl Fn() -> T + Send + 'static,
) -> (Writer<T>, Publication<T>) {
    let copies = [make(), make()];
    replicated_of(updates, copies, move |state| {
        *state = make();
        true
    })
}

/// As [`replicated`], of two equal copies that were made already, for state for which there may be no memory.
///
/// `remake` restores a copy's initial state, also after a panic left it half-changed, and returns whether it could.
pub fn replicated_of<T: Changing + Send + Sync>(
    updates: usize,
    [first, second]: [T; 2],
    remake: impl Fn(&mut T) -> bool + Send + 'static,
) -> (Writer<T>, Publication<T>) {
    let place = || Place { taken: AtomicBool::new(false), epoch: AtomicUsize::new(0) };
    let sides = Arc::new(Sides {
        sides: [UnsafeCell::new(first), UnsafeCell::new(second)],
        live: AtomicUsize::new(0),
        published: AtomicU64::new(0),
        places: std::iter::repeat_with(place).take(MAXIMUM_READERS).collect(),
    });
    let updates = updates.min(MOST_BEHIND);
    let writer = Writer {
        sides: sides.clone(),
        remake: Box::new(remake),
        own: 1,
        updates,
        log: Vec::with_capacity(updates + 1),
        settled: true,
        whole: true,
        spoilt: 0,
        done: 0,
        reading: [0; MAXIMUM_READERS],
    };
    (writer, Publication(sides))
}

/// Changes for which the log has room from the start.
///
/// Readers may miss more. The log grows once for a longer group of changes that belong together.
const MOST_BEHIND: usize = 4_096;

/// Makes readers, on any thread.
pub struct Publication<T>(Arc<Sides<T>>);

impl<T> Clone for Publication<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Changing + Send + Sync> Publication<T> {
    /// A reader for one thread.
    ///
    /// # Errors
    /// When there are [`MAXIMUM_READERS`].
    pub fn reader(&self) -> Result<Reader<T>, NoReaderLeft> {
        let free = |place: &Place| {
            place.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = self.0.places.iter().position(free).ok_or(NoReaderLeft)?;
        Ok(Reader { sides: self.0.clone(), place, depth: 0.into() })
    }
}

/// Reads a replicated state on one thread.
pub struct Reader<T: Changing> {
    sides: Arc<Sides<T>>,
    place: usize,
    /// Reads inside reads.
    depth: std::cell::Cell<usize>,
}

impl<T: Changing> Reader<T> {
    /// Shows `f` the state as the writer last published it; it does not change until `f` returns.
    ///
    /// It takes a bounded number of steps, which other threads cannot raise: two stores, a load and a fence, some 10
    /// ns. So a batch calls it once. The writer waits for `f` before it publishes the next but one time.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _reading = Reading::enter(self);
        let live = self.sides.live.load(Ordering::Acquire);
        // SAFETY: the writer changes no side while a reader is in that was in when the side was given up: this one's
        // epoch became odd before it loaded `live`, and stays so until `_reading` is dropped, after the last use.
        self.sides.sides[live].with(|side| f(unsafe { &*side }))
    }

    /// Begins a read that ends when the answer is dropped.
    ///
    /// It costs what [`read`](Self::read) does. The writer waits for its end before it publishes the next but
    /// one time.
    ///
    /// ```
    /// use netbricks_tables::{Changing, replicated};
    /// use std::rc::Rc;
    ///
    /// #[derive(Default)]
    /// struct Sum(u64);
    /// impl Changing for Sum {
    ///     type Change = u64;
    ///     type Outcome = ();
    ///     fn apply(&mut self, change: &u64) {
    ///         self.0 += change;
    ///     }
    /// }
    ///
    /// let (mut writer, publication) = replicated(0, Sum::default);
    /// let reader = Rc::new(publication.reader()?);
    /// let held = reader.hold();
    /// writer.update(3);
    /// assert_eq!((held.0, reader.is_reading()), (0, true), "it stays as it was");
    /// drop(held);
    /// assert_eq!(reader.hold().0, 3);
    /// # Ok::<(), netbricks_tables::NoReaderLeft>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn hold(self: &Rc<Self>) -> HeldRead<T> {
        self.enter();
        let live = self.sides.live.load(Ordering::Acquire);
        // SAFETY: the address of a side is not null. Nobody has a `&mut` to the live side, as in `read`.
        let state = self.sides.sides[live].with(|side| NonNull::from(unsafe { &*side }));
        HeldRead { keeper: Keeper::Reader(self.clone()), state }
    }

    /// The number of changes published so far; a later read has at least these. One load.
    ///
    /// For readers that cache values computed from the state.
    #[inline(always)]
    #[must_use]
    pub fn published(&self) -> u64 {
        self.sides.published.load(Ordering::Acquire)
    }

    /// Whether a read is under way on this thread, for which the writer would wait.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.depth.get() > 0
    }
}

impl<T: Changing> Drop for Reader<T> {
    fn drop(&mut self) {
        self.sides.places[self.place].taken.store(false, Ordering::Release);
    }
}

impl<T: Changing> Reader<T> {
    /// Makes the epoch odd, unless this thread reads already.
    #[inline(always)]
    fn enter(&self) {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            let epoch = &self.sides.places[self.place].epoch;
            // Released too: a writer that sees this epoch and not the even one before it must see the read before it over.
            epoch.store(epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
            // With the one in `Writer::publish`: either the writer sees the odd epoch, or `live` is read as it set it.
            fence(Ordering::SeqCst);
        }
    }

    /// Makes the epoch even, unless a read around this one goes on.
    #[inline(always)]
    fn leave(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            let epoch = &self.sides.places[self.place].epoch;
            epoch.store(epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }
}

/// Keeps the epoch odd, also when a read panics.
struct Reading<'r, T: Changing>(&'r Reader<T>);

impl<'r, T: Changing> Reading<'r, T> {
    #[inline(always)]
    fn enter(reader: &'r Reader<T>) -> Self {
        reader.enter();
        Self(reader)
    }
}

impl<T: Changing> Drop for Reading<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A read of a replicated state that goes on until this is dropped, on the reader's thread.
///
/// [`Reader::hold`] begins it. The state does not change meanwhile.
pub struct HeldRead<T: Changing> {
    /// It keeps the state alive and as it is.
    keeper: Keeper<T>,
    state: NonNull<T>,
}

enum Keeper<T: Changing> {
    /// The reader keeps the sides alive, and its epoch odd.
    Reader(Rc<Reader<T>>),
    /// No writer can change it.
    Own { _state: Rc<T> },
}

impl<T: Changing> HeldRead<T> {
    /// A read of a state that nothing else changes, where there must be one and no other state is read.
    #[must_use]
    pub fn own(state: Rc<T>) -> Self {
        Self { state: NonNull::from(&*state), keeper: Keeper::Own { _state: state } }
    }
}

impl<T: Changing> std::ops::Deref for HeldRead<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `keeper` keeps the state alive. A reader's side does not change: the writer changes no side while a
        // reader is in that was in when the side was given up; its epoch became odd before `live` was loaded, and stays
        // so until the drop. A state in an `Rc` is shared, so that it does not change either.
        unsafe { self.state.as_ref() }
    }
}

impl<T: Changing> Drop for HeldRead<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Keeper::Reader(reader) = &self.keeper {
            reader.leave();
        }
    }
}

/// Changes a replicated state; there is one. It may move between threads.
pub struct Writer<T: Changing> {
    sides: Arc<Sides<T>>,
    remake: Box<dyn Fn(&mut T) -> bool + Send>,
    /// The side that is not read.
    own: usize,
    /// Changes that readers may miss.
    updates: usize,
    /// While settled: changes that `own` has and the live side has not.
    ///
    /// Else: those that the live side has and `own` has not.
    log: Vec<T::Change>,
    /// Whether `own` is ours alone and up to date.
    settled: bool,
    /// Cleared while a change, or several that are one, are applied: a panic leaves it so.
    whole: bool,
    /// Copies that must be made again after a panic; 0 where none was noticed.
    spoilt: u8,
    /// Changes made.
    done: u64,
    /// Every place's epoch when the sides last changed places.
    reading: [usize; MAXIMUM_READERS],
}

impl<T: Changing + Send + Sync> Writer<T> {
    /// Makes one change, and publishes when more than the agreed number of changes would be missing.
    ///
    /// The next change then waits for readers that still read the former copy.
    ///
    /// # Panics
    /// As [`update_all`](Self::update_all), where the state can't be made again after a panic:
    /// [`recover`](Self::recover) asks.
    pub fn update(&mut self, change: T::Change) -> T::Outcome {
        let outcome = self.change(change);
        if self.log.len() > self.updates {
            self.publish();
        }
        outcome
    }

    /// Makes several changes of which readers see all or none; passes the results to `outcome`, in order.
    ///
    /// Where `changes` or `outcome` panics in between, readers see none. The state starts again, as after a change that
    /// panics.
    pub fn update_all(
        &mut self,
        changes: impl IntoIterator<Item = T::Change>,
        mut outcome: impl FnMut(T::Outcome),
    ) {
        let mut begun = false;
        for change in changes {
            if !begun {
                self.make_ready();
                begun = true;
            }
            outcome(self.apply(change));
        }
        self.whole |= begun;
        if self.log.len() > self.updates {
            self.publish();
        }
    }

    /// Shows the state with all changes made, published or not, without waiting.
    ///
    /// After a change that panicked it is the state that was published last: the state starts again with the next
    /// change.
    pub fn read<R>(&mut self, f: impl FnOnce(&T) -> R) -> R {
        // A change that is not settled was published as a whole: the live side has it already, while readers
        // may still be on `own`.
        let side = if self.settled && self.whole { self.own } else { 1 - self.own };
        // SAFETY: no other code changes either side meanwhile, since `&mut self` is the only writer; readers
        // may read the live one.
        self.sides.sides[side].with(|side| f(unsafe { &*side }))
    }

    /// Shows readers all changes made so far. Does not wait.
    pub fn publish(&mut self) {
        if !self.settled || self.log.is_empty() || !self.whole {
            return;
        }
        self.change_places();
    }

    /// Changes that readers don't see yet.
    #[must_use]
    pub fn unpublished(&self) -> usize {
        if self.settled { self.log.len() } else { 0 }
    }

    /// Makes a state that a panic spoilt again, each copy in its own place, and publishes it at once.
    ///
    /// It waits for readers. `false` where it fails: nothing can be changed until it succeeds, and readers keep the
    /// published state. Where nothing panicked it costs one check.
    #[inline]
    #[must_use]
    pub fn recover(&mut self) -> bool {
        self.whole || self.begin_anew()
    }

    #[cold]
    fn begin_anew(&mut self) -> bool {
        if self.spoilt == 0 {
            self.spoilt = 2;
        }
        while self.spoilt > 0 {
            self.log.clear();
            self.reclaim();
            self.whole = false;
            let Self { sides, remake, own, .. } = self;
            // SAFETY: as in `apply`.
            if !sides.sides[*own].with_mut(|side| remake(unsafe { &mut *side })) {
                return false;
            }
            self.spoilt -= 1;
            if self.spoilt == 1 {
                self.done += 1;
                self.change_places();
            }
        }
        self.whole = true;
        true
    }

    /// Sets how many updates readers may miss, and `remake`, as for [`replicated_of`].
    pub fn agree(&mut self, updates: usize, remake: impl Fn(&mut T) -> bool + Send + 'static) {
        self.updates = updates.min(MOST_BEHIND);
        self.log.reserve(self.updates + 1);
        self.remake = Box::new(remake);
    }

    /// Puts two equal states in the place of both copies, for readers at once. Waits for readers.
    pub fn replace(&mut self, fresh: [T; 2]) {
        self.spoilt = 0;
        for fresh in fresh {
            self.whole = true;
            self.settled = false;
            self.log.clear();
            self.reclaim();
            // SAFETY: as in `apply`.
            self.sides.sides[self.own].with_mut(|side| drop(std::mem::replace(unsafe { &mut *side }, fresh)));
            self.done += 1;
            self.change_places();
        }
    }

    /// Swaps the two copies; the writer owns the former live one once its readers have left.
    fn change_places(&mut self) {
        self.sides.live.store(self.own, Ordering::Release);
        self.sides.published.store(self.done, Ordering::Release);
        // With the one in `Reading::enter`.
        fence(Ordering::SeqCst);
        for (seen, place) in self.reading.iter_mut().zip(&self.sides.places) {
            *seen = place.epoch.load(Ordering::Acquire);
        }
        self.own = 1 - self.own;
        self.settled = false;
    }

    fn change(&mut self, change: T::Change) -> T::Outcome {
        self.make_ready();
        let outcome = self.apply(change);
        self.whole = true;
        outcome
    }

    /// Has `own` ours, whole and up to date.
    fn make_ready(&mut self) {
        assert!(
            self.recover(),
            "no memory to make the state again after a panic: ask `recover` before a change"
        );
        self.reclaim();
    }

    /// Makes a change to the copy that is [ready](Self::make_ready).
    ///
    /// It is whole again when its caller, whose changes may be several, says so.
    fn apply(&mut self, change: T::Change) -> T::Outcome {
        self.whole = false;
        self.log.push(change.clone());
        // SAFETY: after `reclaim`, no reader is on `own`, nor comes to it before it is live; `&mut self` is the only
        // writer.
        let outcome = self.sides.sides[self.own].with_mut(|side| unsafe { &mut *side }.apply(&change));
        self.done += 1;
        outcome
    }

    /// Makes `own` ours and as new as the live side.
    fn reclaim(&mut self) {
        if self.settled {
            return;
        }
        for (seen, place) in self.reading.iter().zip(&self.sides.places) {
            let mut spins = 0;
            while seen % 2 == 1 && place.epoch.load(Ordering::Acquire) == *seen {
                if spins < SPINS {
                    spins += 1;
                    std::hint::spin_loop();
                } else {
                    yield_now();
                }
            }
        }
        self.whole = false;
        for change in &self.log {
            // SAFETY: every reader that was on this side when it was given up has left (above), and every
            // later reader is on the other.
            self.sides.sides[self.own].with_mut(|side| drop(unsafe { &mut *side }.apply(change)));
        }
        self.whole = true;
        self.log.clear();
        self.settled = true;
    }
}

impl<T: Changing> Drop for Writer<T> {
    fn drop(&mut self) {
        // As `publish`, but no code writes after it, so that the readers need not be known.
        if self.settled && !self.log.is_empty() && self.whole {
            self.sides.live.store(self.own, Ordering::Release);
            self.sides.published.store(self.done, Ordering::Release);
        }
    }
}
