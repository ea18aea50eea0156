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
    make: Box<dyn Fn() -> T + Send + Sync>,
    /// Times that it was made anew.
    remade: AtomicU64,
}

struct Inside<T> {
    state: T,
    /// Cleared while somebody holds it.
    whole: bool,
}

impl<T> Locked<T> {
    /// The state that `make` makes, now and after a panic.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let inside = Inside { state: make(), whole: true };
        Self { inside: Mutex::new(inside), make: Box::new(make), remade: AtomicU64::new(0) }
    }

    /// Gives `f` the state. Without contention it costs two atomic exchanges, some 15 ns, so that a batch asks once;
    /// with contention it waits for whoever has it, in the kernel if that takes long. A hold inside a hold waits for
    /// ever.
    #[inline]
    pub fn hold<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut inside = self.lock();
        inside.whole = false;
        let answer = f(&mut inside.state);
        inside.whole = true;
        answer
    }

    /// Times that a hold found the state made anew, since the one before it had panicked. Who holds it may ask too.
    #[must_use]
    pub fn remade(&self) -> u64 {
        self.remade.load(Ordering::Relaxed)
    }

    /// Ours, and whole.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // The standard library's mark of a panic can't be had from the model checker; ours says the same.
        let mut inside = self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !inside.whole {
            inside.state = (self.make)();
            inside.whole = true;
            self.remade.fetch_add(1, Ordering::Relaxed);
        }
        inside
    }
}

impl<T> std::fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locked").finish_non_exhaustive()
    }
}
