//! One state behind one lock: what one thread did is what the next one sees, and several changes are one.

use super::atomics::{Mutex, MutexGuard};

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
}

struct Inside<T> {
    state: T,
    /// Cleared while somebody holds it.
    whole: bool,
    /// Times that it was made anew.
    remade: u64,
}

impl<T> Locked<T> {
    /// The state that `make` makes, now and after a panic.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let inside = Inside { state: make(), whole: true, remade: 0 };
        Self { inside: Mutex::new(inside), make: Box::new(make) }
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

    /// Times that the state was made anew since a holder panicked.
    #[must_use]
    pub fn remade(&self) -> u64 {
        self.lock().remade
    }

    /// Ours, and whole.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // The standard library's mark of a panic can't be had from the model checker; ours says the same.
        let mut inside = self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !inside.whole {
            inside.state = (self.make)();
            inside.whole = true;
            inside.remade += 1;
        }
        inside
    }
}

impl<T> std::fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locked").finish_non_exhaustive()
    }
}
