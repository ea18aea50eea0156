//! State of one writer at a time, for readers who never wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netbricks_tables::{Counters, Publication, Reader, Writer, replicated};

use super::{Access, BoundedInconsistency, CannotWrite, Consistency, Contents, export_in_steps, maker};
use crate::registry::{BuildError, Worker};
use crate::shuffle::ShuffleKey;
use crate::state::{Declared, Mobility, Settle};

/// A handle to state under [`BoundedInconsistency`].
pub struct Bounded<T: Contents>(Rc<Side<T>>);

impl<T: Contents> Clone for Bounded<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What all workers share: the writer, while nobody has it.
struct Home<T: Contents> {
    writer: Mutex<Option<Box<Writer<T>>>>,
    publication: Publication<T>,
}

/// One worker's side of it.
struct Side<T: Contents> {
    home: Arc<Home<T>>,
    reader: Reader<T>,
    /// From its first update in a batch until the batch's end.
    writer: RefCell<Option<Box<Writer<T>>>>,
    /// How often it wrote.
    written: Cell<u64>,
    /// Whether a batch, event or call of its node is under way, at whose end it settles.
    busy: Cell<bool>,
}

/// The writer's place, for a move of a pointer: nobody panics or waits for anything else while it has the lock.
impl<T: Contents> Home<T> {
    fn take(&self) -> Option<Box<Writer<T>>> {
        self.place().take()
    }
    fn put_back(&self, writer: Box<Writer<T>>) {
        *self.place() = Some(writer);
    }
    fn place(&self) -> MutexGuard<'_, Option<Box<Writer<T>>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// Reads of bounded state that this thread is in. Writers elsewhere wait for them, so that they themselves must wait for nobody:
    /// neither for other readers, as writers do, nor for strict state.
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a read of bounded state, whichever.
#[inline(always)]
pub(super) fn is_reading() -> bool {
    READS.get() > 0
}

/// A read that this thread is in, also when it panics.
struct Reading;

impl Reading {
    #[inline(always)]
    fn enter() -> Self {
        READS.set(READS.get() + 1);
        Self
    }
}

impl Drop for Reading {
    #[inline(always)]
    fn drop(&mut self) {
        READS.set(READS.get() - 1);
    }
}

impl<T: Contents> Side<T> {
    fn write<R>(&self, f: impl FnOnce(&mut Writer<T>) -> R) -> Result<R, CannotWrite> {
        if self.reader.is_reading() {
            return Err(CannotWrite::Reading);
        }
        // Dropped after `held`, also by a panic.
        let _ending = Ending(self);
        let mut held = self.writer.try_borrow_mut().map_err(|_| CannotWrite::Reading)?;
        if is_reading() {
            return Err(CannotWrite::OutOfOrder);
        }
        if held.is_none() {
            *held = self.home.take();
        }
        let writer = held.as_mut().ok_or(CannotWrite::Elsewhere)?;
        // Before it is done: what panics half way has written too.
        self.written.set(self.written.get().wrapping_add(1));
        Ok(f(writer))
    }
}

impl<T: Contents> Side<T> {
    /// As `write`, where somebody else writes in this moment: another worker that takes over the same state.
    fn write_patiently<R>(&self, mut f: impl FnMut(&mut Writer<T>) -> R) -> Result<R, CannotWrite> {
        for _ in 0..PATIENCE {
            match self.write(&mut f) {
                Err(CannotWrite::Elsewhere) => std::thread::yield_now(),
                answer => return answer,
            }
        }
        Err(CannotWrite::Elsewhere)
    }
}

/// Tries, each after others had the processor: a batch or an import takes less.
const PATIENCE: usize = 100_000;

/// Settles a change that belongs to no batch, event or call.
struct Ending<'s, T: Contents>(&'s Side<T>);

impl<T: Contents> Drop for Ending<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.busy.get() {
            self.0.give_back();
        }
    }
}

impl<T: Contents> Side<T> {
    /// Publishes, and lets others write; not while it is inside a change itself.
    fn give_back(&self) {
        let Ok(mut held) = self.writer.try_borrow_mut() else { return };
        if let Some(mut writer) = held.take() {
            writer.publish();
            self.home.put_back(writer);
        }
    }
}

impl<T: Contents> Settle for Side<T> {
    fn begin(&self) {
        self.busy.set(true);
    }
    fn settle(&self) {
        self.busy.set(false);
        self.give_back();
    }
}

impl<T: Contents> Drop for Side<T> {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Consistency for BoundedInconsistency {
    type Handle<T: Contents> = Bounded<T>;

    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> Bounded<T> {
        let name = worker.declarations.borrow().unique(name);
        let home = worker.shares.part(&name, || {
            // So that a failure is the node's; what follows then never fails.
            drop(worker.made::<T>(&name, &config));
            let (writer, publication) = replicated(self.updates, maker::<T>(config));
            Arc::new(Home { writer: Mutex::new(Some(Box::new(writer))), publication })
        });
        let reader = match home.publication.reader() {
            Ok(reader) => reader,
            Err(error) => {
                worker.fail(BuildError::new(format_args!("state `{name}`: {error}")));
                // Of a state of its own, in a node that is not built.
                let (_, publication) = replicated(0, T::least);
                publication.reader().expect("a new state has no readers yet")
            }
        };
        let side = Rc::new(Side {
            home,
            reader,
            writer: RefCell::new(None),
            written: Cell::new(0),
            busy: Cell::new(false),
        });
        worker.declare(&name, Seen(side.clone()));
        worker.declarations.borrow_mut().settles(side.clone());
        Bounded(side)
    }
}

impl<T: Contents> Bounded<T> {
    /// Updates that readers may have got since the state was made: while this stays the same, so does what they read. One
    /// load, for functions that keep something made of the state.
    #[inline(always)]
    #[must_use]
    pub fn published(&self) -> u64 {
        self.0.reader.published()
    }

    /// How often this worker wrote: while this stays the same, what it reads is no newer by its own doing.
    #[inline(always)]
    pub(crate) fn written(&self) -> u64 {
        self.0.written.get()
    }
}

impl<T: Contents> Access<T> for Bounded<T> {
    /// What this worker wrote and has not published yet, it sees too.
    #[inline]
    fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let mut writer = self.0.writer.try_borrow_mut().unwrap_or_else(|_| {
            panic!("this state is read or changed by who asks for it: use what the outer call gave, or ask after it")
        });
        let _reading = Reading::enter();
        match writer.as_mut() {
            Some(writer) => writer.read(f),
            None => {
                drop(writer);
                self.0.reader.read(f)
            }
        }
    }

    fn update(&self, change: T::Change) -> Result<T::Outcome, CannotWrite> {
        self.0.write(|writer| writer.update(change))
    }

    fn update_all(
        &self,
        changes: impl IntoIterator<Item = T::Change>,
        outcome: impl FnMut(T::Outcome),
    ) -> Result<(), CannotWrite> {
        self.0.write(|writer| writer.update_all(changes, outcome))
    }
}

/// The state as the control side finds it, on any of its workers.
struct Seen<T: Contents>(Rc<Side<T>>);

impl<T: Contents> Declared for Seen<T> {
    fn export(&self) -> Vec<u8> {
        let state = Bounded(self.0.clone());
        export_in_steps(|step| state.read(|state| step(state)))
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        let imported = self.0.write_patiently(|writer| {
            let mut fresh = [writer.fresh(), writer.fresh()];
            for fresh in &mut fresh {
                fresh.import(bytes, now)?;
            }
            writer.replace(fresh);
            Ok(())
        });
        self.0.settle();
        imported.unwrap_or_else(|cannot| Err(cannot.to_string()))
    }
    fn occupancy(&self) -> (u64, u64) {
        Bounded(self.0.clone()).read(|state| state.occupancy())
    }
    fn flow_counters(&self) -> Option<Counters> {
        Bounded(self.0.clone()).read(|state| state.flow_counters())
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
}
