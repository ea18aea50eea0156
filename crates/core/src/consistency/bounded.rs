//! State with one writer at a time, and readers that never wait.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netbricks_tables::{Counters, HeldRead, Publication, Reader, Writer, replicated_of};

use super::shared_state::{Fate, Given, SharedStateRef, TWICE, refitted};
use super::{
    Access, BoundedInconsistency, CannotWrite, Consistency, Contents, Shares, both, export_in_steps, held,
    remaker, strict,
};
use crate::node::HandlerSide;
use crate::shuffle::ShuffleKey;
use crate::state::{Declared, Mobility, Settle, StateTerms, Succession};
use crate::worker::Worker;

/// A handle to state under [`BoundedInconsistency`].
pub struct Bounded<T: Contents>(Rc<Side<T>>);

impl<T: Contents> Clone for Bounded<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The part that all workers share: the writer, while no worker has it.
struct Home<T: Contents> {
    writer: Mutex<Option<Box<Writer<T>>>>,
    publication: Publication<T>,
    /// The terms by which it was last made.
    terms: Mutex<Terms<T>>,
    /// The decision about this state when its graph took over from another.
    fate: Fate<Self>,
}

/// The agreed terms of a state.
struct Terms<T: Contents> {
    config: T::Config,
    updates: usize,
}

/// A worker's access to a state.
struct Joined<T: Contents> {
    home: Arc<Home<T>>,
    reader: Rc<Reader<T>>,
}

/// One worker's side of a state.
struct Side<T: Contents> {
    own: Rc<Joined<T>>,
    /// The state that replaces this one, where its graph took over from another.
    inherited: OnceCell<Rc<Joined<T>>>,
    terms: Terms<T>,
    /// The place and the name under which other workers find the state.
    shares: Shares,
    name: String,
    /// The writer, from the first update in a batch until the batch's end.
    writer: RefCell<Option<Box<Writer<T>>>>,
    /// The number of this worker's writes.
    written: Cell<u64>,
    /// Whether a batch, event or call of its node is in progress, at whose end it settles.
    busy: Cell<bool>,
    /// Whether workers [hold](Bounded::held) reads of it while their batches wait for other state.
    apart: Cell<bool>,
}

impl<T: Contents> Clone for Terms<T> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), updates: self.updates }
    }
}

impl<T: Contents> PartialEq for Terms<T> {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.updates == other.updates
    }
}

/// Access to the writer's place.
///
/// The lock is held only to move a pointer: no panic and no other wait can happen under it.
impl<T: Contents> Home<T> {
    fn new(terms: Terms<T>, copies: [T; 2]) -> Arc<Self> {
        let remake = remaker::<T>(terms.config.clone());
        let (writer, publication) = replicated_of(terms.updates, copies, remake);
        let writer = Mutex::new(Some(Box::new(writer)));
        Arc::new(Self { writer, publication, terms: Mutex::new(terms), fate: Fate::new() })
    }
    /// Makes both copies, so that no change of one fails because the other lacks memory.
    fn make(terms: Terms<T>) -> Result<Arc<Self>, String> {
        let copies = both(|| T::make(&terms.config))?;
        Ok(Self::new(terms, copies))
    }
    fn take(&self) -> Option<Box<Writer<T>>> {
        self.place().take()
    }
    fn put_back(&self, writer: Box<Writer<T>>) {
        *self.place() = Some(writer);
    }
    fn gives_way_to(&self, config: &T::Config) -> bool {
        T::gives_way(&self.terms.lock().unwrap_or_else(PoisonError::into_inner).config, config)
    }
    fn place(&self) -> MutexGuard<'_, Option<Box<Writer<T>>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// Reads of bounded state that this thread is in.
    ///
    /// Writers on other workers wait for these reads. So the reads must not wait themselves, neither for
    /// other readers, as writers do, nor for strict state.
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a read of any bounded state.
#[inline(always)]
pub(super) fn is_reading() -> bool {
    READS.get() > 0
}

/// A guard for a read that this thread is in; its drop ends the read, also in a panic.
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
    #[inline(always)]
    fn joined(&self) -> &Joined<T> {
        self.inherited.get().unwrap_or(&self.own)
    }

    fn write<R>(&self, f: impl FnOnce(&mut Writer<T>) -> R) -> Result<R, CannotWrite> {
        let Joined { home, reader } = self.joined();
        if reader.is_reading() {
            return Err(CannotWrite::Reading);
        }
        // Dropped after `held`, also by a panic.
        let _ending = Ending(self);
        let mut held = self.writer.try_borrow_mut().map_err(|_| CannotWrite::Reading)?;
        // A batch with a held read may wait for strict state, and this write waits for that batch.
        if is_reading() || self.apart.get() && (held::is_held() || strict::is_locked()) {
            return Err(CannotWrite::OutOfOrder);
        }
        if held.is_none() {
            *held = home.take();
        }
        let writer = held.as_mut().ok_or(CannotWrite::Elsewhere)?;
        if !writer.recover() {
            return Err(CannotWrite::Spoilt);
        }
        // Counted before the write: a write that panics half-way has written too.
        self.written.set(self.written.get().wrapping_add(1));
        Ok(f(writer))
    }
}

impl<T: Contents> Side<T> {
    /// Writes as `write` does, but waits while another worker that takes over the same state writes.
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

/// The number of tries; between two of them other threads get the processor. A batch or an import takes less.
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
    /// Publishes, and lets other workers write; does nothing inside a change.
    fn give_back(&self) {
        let Ok(mut held) = self.writer.try_borrow_mut() else { return };
        if let Some(mut writer) = held.take() {
            writer.publish();
            self.joined().home.put_back(writer);
        }
    }

    /// Takes over the state of the graph that this one replaces.
    ///
    /// Where the terms differ, the first worker makes the state again from the old one's export, save where
    /// the configuration names the content: then this graph begins with its own. Until then other workers may
    /// write it from their old graphs, and wait for that at their own changes.
    fn adopt(&self, old: &Rc<Joined<T>>, now: u64) -> Result<(), String> {
        let own = &self.own.home;
        if Arc::ptr_eq(own, &old.home) {
            return self.refit(&old.home, now);
        }
        if old.home.gives_way_to(&self.terms.config) {
            return Ok(());
        }
        // The state with which it began stays as it is: workers whose graphs took over from none have it.
        own.fate.of(&old.home, || {
            self.refit(&old.home, now)?;
            self.shares.set(&self.name, old.home.clone());
            Ok(())
        })?;
        self.written.set(self.written.get().wrapping_add(1));
        // Set once: a graph takes over from one other.
        let _again = self.inherited.set(old.clone());
        Ok(())
    }

    /// The answer of `adopt` to state of these terms, without a change of it.
    ///
    /// It reads that state on any thread, as another worker.
    fn succession(&self, before: &StateTerms, home: &Home<T>) -> Succession {
        let Terms { config, .. } = &self.terms;
        if home.gives_way_to(config) {
            return Succession::configured();
        }
        if home.terms.lock().unwrap_or_else(PoisonError::into_inner).config == *config {
            return Succession::whole();
        }
        let fitted = home.publication.reader().map(|reader| {
            let _reading = Reading::enter();
            reader.read(|state| state.fit(config).map(|change| change.is_some()))
        });
        match fitted {
            Ok(Err(problem)) => Succession::anew(problem),
            Ok(Ok(true)) => Succession::copied("it is fitted to other settings"),
            Ok(Ok(false)) | Err(_) => self.made_from(before, "it is made again by other settings"),
        }
    }

    /// The answer to state of these terms whose entries are copied.
    fn made_from(&self, before: &StateTerms, reason: &str) -> Succession {
        self.own.reader.read(|state| state.succession(&before.apart())).or_copied(reason)
    }

    /// Joins the state under this name, where a graph of this blueprint has taken it over from another.
    fn follow(&self) -> Result<(), String> {
        let Some(home) = self.shares.get::<Arc<Home<T>>>(&self.name) else { return Ok(()) };
        if Arc::ptr_eq(&home, &self.joined().home) {
            return Ok(());
        }
        let reader = home.publication.reader().map_err(|error| error.to_string())?;
        self.written.set(self.written.get().wrapping_add(1));
        self.inherited.set(Rc::new(Joined { home, reader: Rc::new(reader) })).map_err(|_| TWICE.to_owned())
    }

    /// Makes the state again as this graph's terms say, from its content; nothing changes where that fails.
    fn refit(&self, home: &Home<T>, now: u64) -> Result<(), String> {
        let mut terms = home.terms.lock().unwrap_or_else(PoisonError::into_inner);
        if *terms == self.terms {
            return Ok(());
        }
        // The writer comes back also where an author's code panics.
        let mut writer = Lent::of(home);
        let writer = writer.writer.as_mut().ok_or_else(|| CannotWrite::Elsewhere.to_string())?;
        let Terms { config, updates } = &self.terms;
        if *config != terms.config {
            match writer.read(|state| state.fit(config))? {
                Some(change) => drop(writer.update(change)),
                None => {
                    let fresh = both(|| writer.read(|state| refitted(state, config, now)))?;
                    writer.replace(fresh);
                }
            }
        }
        writer.agree(*updates, remaker::<T>(config.clone()));
        *terms = self.terms.clone();
        Ok(())
    }
}

impl<T: Contents> Side<T> {
    /// Makes this graph's terms those of the state, whose content agrees with them already.
    fn agree(&self) {
        let home = &self.joined().home;
        let mut terms = home.terms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lent = Lent::of(home);
        if let Some(writer) = lent.writer.as_mut().filter(|_| *terms != self.terms) {
            writer.agree(self.terms.updates, remaker::<T>(self.terms.config.clone()));
            *terms = self.terms.clone();
        }
    }
}

/// The writer on loan; its drop gives it back.
struct Lent<'h, T: Contents> {
    home: &'h Home<T>,
    writer: Option<Box<Writer<T>>>,
}

impl<'h, T: Contents> Lent<'h, T> {
    /// Waits while another worker writes; there is no writer where that takes too long.
    fn of(home: &'h Home<T>) -> Self {
        for _ in 0..PATIENCE {
            if let Some(writer) = home.take() {
                return Self { home, writer: Some(writer) };
            }
            std::thread::yield_now();
        }
        Self { home, writer: None }
    }
}

impl<T: Contents> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if let Some(mut writer) = self.writer.take() {
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
        let terms = Terms { config, updates: self.updates };
        let home = worker.shares.part(&name, || Home::make(terms.clone()));
        let least = || Home::new(terms.clone(), [T::least(), T::least()]);
        let home = worker.made(&name, home, least);
        let reader = home.publication.reader();
        // The reader of a substitute state, in a node that is not built.
        let reader = worker.made(&name, reader.map_err(|error| error.to_string()), || {
            least().publication.reader().expect("a new state has no readers yet")
        });
        let side = Rc::new(Side {
            own: Rc::new(Joined { home, reader: Rc::new(reader) }),
            inherited: OnceCell::new(),
            terms,
            shares: worker.shares.clone(),
            name: name.clone(),
            writer: RefCell::new(None),
            written: Cell::new(0),
            busy: Cell::new(false),
            apart: Cell::new(false),
        });
        worker.declare(&name, Seen(side.clone(), Given::default()));
        worker.declarations.borrow_mut().settles(side.clone());
        Bounded(side)
    }
}

impl<T: Contents> Bounded<T> {
    /// The number of updates that readers may have seen since the state was made.
    ///
    /// While the number stays the same, so does the content that they read. It costs one load, for functions
    /// that cache a value computed from the state.
    #[inline(always)]
    #[must_use]
    pub fn published(&self) -> u64 {
        match self.0.inherited.get() {
            None => self.0.own.reader.published(),
            // Different from all numbers of the state with which it began.
            Some(inherited) => inherited.reader.published() | 1 << 63,
        }
    }

    /// Begins a read that ends with the answer's drop.
    ///
    /// What is read is what is published. User functions may run meanwhile, so that it does not count as a
    /// read in which nothing waits.
    #[inline(always)]
    pub(super) fn hold(&self) -> HeldRead<T> {
        self.0.joined().reader.hold()
    }

    /// Has changes refused where they might wait for a [held](Self::hold) read that waits for them.
    pub(super) fn writes_apart(&self) {
        self.0.apart.set(true);
    }

    /// The number of this worker's writes. While it stays the same, this worker's own writes change nothing
    /// that it reads.
    #[inline(always)]
    pub(crate) fn written(&self) -> u64 {
        self.0.written.get()
    }
}

impl<T: Contents> Access<T> for Bounded<T> {
    const SIDE: HandlerSide = HandlerSide::Control;

    /// Reads also the changes that this worker has made and not yet published.
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
                self.0.joined().reader.read(f)
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
struct Seen<T: Contents>(Rc<Side<T>>, Given);

impl<T: Contents> Seen<T> {
    /// Replaces the state by one that is made again and takes this in; nothing changes where that fails.
    fn begin_with(&self, take: impl Fn(&mut T) -> Result<(), String>) -> Result<(), String> {
        let config = &self.0.terms.config;
        let taken = self.0.write_patiently(|writer| {
            let fresh = || {
                let mut fresh = T::make(config)?;
                take(&mut fresh).map(|()| fresh)
            };
            writer.replace(both(fresh)?);
            Ok(())
        });
        self.0.settle();
        taken.unwrap_or_else(|cannot| Err(cannot.to_string()))
    }
}

impl<T: Contents> Declared for Seen<T> {
    fn export(&self) -> Vec<u8> {
        if self.1.get() {
            return Vec::new();
        }
        let state = Bounded(self.0.clone());
        export_in_steps(|step| state.read(|state| step(state)))
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        self.begin_with(|fresh| fresh.import(bytes, now))
    }
    fn occupancy(&self) -> (u64, u64) {
        Bounded(self.0.clone()).read(|state| state.occupancy())
    }
    fn terms(&self) -> StateTerms {
        let terms = Bounded(self.0.clone()).read(|state| state.terms());
        terms.shared_by(self.0.joined().home.clone())
    }
    fn succession(&self, before: &StateTerms) -> Succession {
        match before.shared::<Arc<Home<T>>>() {
            Some(home) => self.0.succession(before, home),
            None => self.0.made_from(before, "workers share it otherwise"),
        }
    }
    fn flow_counters(&self) -> Option<Counters> {
        Bounded(self.0.clone()).read(|state| state.flow_counters())
    }
    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }
    fn is_written(&self) -> bool {
        Bounded(self.0.clone()).read(|state| state.is_written())
    }
    fn learned(&self) -> Option<Vec<u8>> {
        Bounded(self.0.clone()).read(|state| state.learned())
    }
    fn learn(&mut self, learned: &[u8]) -> Result<(), String> {
        self.begin_with(|fresh| fresh.learn(learned))
    }
    fn shared_state(&self) -> Option<SharedStateRef> {
        let Self(side, given) = self;
        Some(SharedStateRef::new(side.inherited.get().unwrap_or(&side.own).clone(), given))
    }
    fn follow(&mut self) -> Result<(), String> {
        self.0.follow()
    }
    fn agree(&self) {
        self.0.agree();
    }
    fn adopt(&mut self, shared: &SharedStateRef, _: Range<u64>, now: u64) -> Option<Result<(), String>> {
        let old = shared.of::<Rc<Joined<T>>>()?;
        Some(self.0.adopt(old, now))
    }
}
