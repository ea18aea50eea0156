//! One state behind one lock: what one thread did is what the next one sees, and several changes are one.

use super::atomics::{AtomicU64, Mutex, MutexGuard, Ordering};

/// State that one thread at a time has, wholly: any number of reads and changes under one hold are one step, before or
/// after every other hold (serialisable).
///
/// A holder that panics leaves what it had half done; the next one finds the state made anew.
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
    /// Times that it was made anew.
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
    /// While somebody holds it, and after a panic in that.
    Held,
    /// It could not be made anew yet.
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

    /// A state that was made already: for one that there may be no memory for. `remake` makes it as it was at first of what a
    /// panic left half done, and answers whether it could. Where not, the next hold tries again, and what this one gets is
    /// what `remake` put there.
    pub fn of(state: T, remake: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        let inside = Inside { state, condition: Condition::Whole, remake: Box::new(remake) };
        Self { inside: Mutex::new(inside), remade: AtomicU64::new(0) }
    }

    /// Gives `f` the state. Without contention it costs two atomic exchanges, some 15 ns, so that a batch asks once;
    /// with contention it waits for whoever has it, in the kernel if that takes long. A hold inside a hold waits for
    /// ever.
    #[inline]
    pub fn hold<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        Self::show(self.lock(), f)
    }

    /// As [`hold`](Self::hold), if the state is what it should be: `None`, without a call of `f`, where a panic spoilt it and it
    /// could not be made anew yet, so that whatever changed in it would be lost.
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

    /// Puts in its place what `next` makes of it, in one step, and from here on makes it anew by `remake`. Where `next` fails or
    /// panics everything stays.
    ///
    /// # Errors
    /// What `next` says.
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

    /// Times that a hold found the state made anew, since the one before it had panicked. Who holds it may ask too.
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
