//! One state behind one lock: what one thread did is what the next one sees, and several changes are one.

use super::atomics::{AtomicU64, Mutex, MutexGuard, Ordering};

/// State that one thread at a time has, wholly (serialisable).
///
/// Any number of reads and changes under one hold are one step, before or after every other hold. If a holder panics,
/// the next one finds the state made again.
///
/// ```
/// use netbricks_tables::Locked;
///
/// let accounts = Locked::new(|| [100u64, 0]);
/// accounts.hold(|[from, to]| {
///     *from -= 30;
///     *to += 30;
/// });
/// assert_eq!(accounts.hold(|accounts| *accounts), [70, 30]);
/// ```
pub struct Locked<T> {
    inside: Mutex<Inside<T>>,
    /// How often it was made again.
    remade: AtomicU64,
}

struct Inside<T> {
    state: T,
    condition: Condition,
    remake: Remake<T>,
}

type Remake<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

#[derive(Clone, Copy, PartialEq)]
enum Condition {
    Whole,
    /// While a thread holds it, and after a panic in that.
    Held,
    /// It could not be made again yet.
    Lacking,
}

impl<T> Locked<T> {
    /// The state that `make` makes, now and after a panic.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::of(make(), move |state| {
            *state = make();
            true
        })
    }

    /// A state that was made already, for one for which there may be no memory.
    ///
    /// After a panic `remake` restores the initial state and returns whether it could. If not, the next hold tries
    /// again, and this one gets the state that `remake` left.
    pub fn of(state: T, remake: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        let inside = Inside { state, condition: Condition::Whole, remake: Box::new(remake) };
        Self { inside: Mutex::new(inside), remade: AtomicU64::new(0) }
    }

    /// Gives `f` the state.
    ///
    /// Without contention it costs two atomic exchanges, some 15 ns, so a batch calls it once. With contention it waits
    /// for the holder, in the kernel if that takes long. A hold inside a hold waits for ever.
    #[inline]
    pub fn hold<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        Self::show(self.lock(), f)
    }

    /// Gives `f` the state as [`hold`](Self::hold), or returns `None` where a panic spoilt it.
    ///
    /// `None` means that it could not be made again yet, so that any change in it would be lost. `f` is not called
    /// then.
    #[inline]
    pub fn hold_whole<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let inside = self.lock();
        (inside.condition == Condition::Whole).then(|| Self::show(inside, f))
    }

    #[inline]
    fn show<R>(mut inside: MutexGuard<'_, Inside<T>>, f: impl FnOnce(&mut T) -> R) -> R {
        let condition = inside.condition;
        inside.condition = Condition::Held;
        let answer = f(&mut inside.state);
        inside.condition = condition;
        answer
    }

    /// Replaces the state by the result of `next`, in one step, and uses `remake` from here on.
    ///
    /// Where `next` fails or panics nothing changes.
    ///
    /// # Errors
    /// The error of `next`.
    pub fn replace<E>(
        &self,
        next: impl FnOnce(&T) -> Result<T, E>,
        remake: impl Fn(&mut T) -> bool + Send + Sync + 'static,
    ) -> Result<(), E> {
        let mut inside = self.lock();
        let state = next(&inside.state)?;
        let old = std::mem::replace(
            &mut *inside,
            Inside { state, condition: Condition::Whole, remake: Box::new(remake) },
        );
        // Others need not wait while memory goes back.
        drop(inside);
        drop(old);
        Ok(())
    }

    /// How often a hold found the state made again after a panic. The holder may ask too.
    #[must_use]
    pub fn remade(&self) -> u64 {
        self.remade.load(Ordering::Relaxed)
    }

    /// Ours, and whole, or lacking what it needs.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // The standard library's mark of a panic can't be had from the model checker; ours says the same.
        let mut inside = self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if inside.condition != Condition::Whole {
            self.make_anew(&mut inside);
        }
        inside
    }

    #[cold]
    fn make_anew(&self, inside: &mut Inside<T>) {
        if (inside.remake)(&mut inside.state) {
            inside.condition = Condition::Whole;
            self.remade.fetch_add(1, Ordering::Relaxed);
        } else {
            inside.condition = Condition::Lacking;
        }
    }
}

impl<T> std::fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locked").finish_non_exhaustive()
    }
}
