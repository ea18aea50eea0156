//! State under three consistencies (NetBricks, section 3.1), chosen by type.
//!
//! State is private to a worker, or has one writer and readers that may miss a few updates, or is one state
//! for all. The interface is the same, so that one word changes a function's consistency.

mod asked;
mod bounded;
mod contents;
mod counter_array;
mod entry;
mod held;
mod own;
mod shared_state;
mod shares;
mod strict;

use netbricks_tables::Changing;

pub use asked::Lookable;
#[doc(hidden)]
pub use asked::{Ask, Asked};
pub use bounded::Bounded;
pub use counter_array::{BoundedTally, TallyEntry};
#[doc(hidden)]
pub use entry::Shown;
pub use entry::{BoundedEntry, MapEntry};
#[doc(hidden)]
pub use held::HeldRoutes;
pub use held::{Held, RoutesState};
pub use shared_state::SharedStateRef;
pub use shares::Shares;
pub use strict::StrictState;

use crate::node::HandlerSide;
use crate::state::Declared;
use crate::worker::{BuildError, Worker};

/// State that works under any consistency.
///
/// It is made from a configuration, changes by plain changes, and can be found, exported and imported. Flow tables,
/// [`Routes`](netbricks_tables::Routes), [`RingLog`](netbricks_tables::RingLog), [`CounterArray`](netbricks_tables::CounterArray)
/// and [`KeyedCounterArray`](netbricks_tables::KeyedCounterArray) are such state.
pub trait Contents: Changing + Declared + Send + Sync + Sized {
    /// The configuration, which decides the size.
    ///
    /// Where a graph is replaced and the configuration stays equal, shared state goes on as it is. Otherwise
    /// it is [fitted](Self::fit) or made again from the old one's export, unless it
    /// [gives way](Self::gives_way).
    type Config: Clone + PartialEq + Send + Sync + 'static;

    /// Whether the configuration also names the content, as a list of routes does.
    ///
    /// Another configuration then counts more than changes made since: shared state begins with the new
    /// graph's configuration.
    const IS_CONFIGURED: bool = false;

    /// Whether shared state of the configuration `old` gives way to that which `new` names.
    fn gives_way(old: &Self::Config, new: &Self::Config) -> bool {
        Self::IS_CONFIGURED && old != new
    }

    /// The change that fits the state to another configuration; `None` where it is made again from its export.
    ///
    /// It is asked of state that does not [give way](Self::gives_way), under
    /// [`BoundedInconsistency`]. State that is large, or that an export does not hold whole, stays so as it is.
    ///
    /// # Errors
    /// The part of the state that does not fit. The new graph then begins with its configuration.
    fn fit(&self, _config: &Self::Config) -> Result<Option<Self::Change>, String> {
        Ok(None)
    }

    /// The configuration with this seed, where it has a keyed hash without a chosen seed.
    #[must_use]
    fn seeded(config: Self::Config, _seed: u64) -> Self::Config {
        config
    }

    /// Makes the state; equal configurations make equal states.
    ///
    /// # Errors
    /// A configuration that is not possible, or a lack of memory.
    fn make(config: &Self::Config) -> Result<Self, String>;

    /// A second copy of a state that was just made; `None` has it made a second time.
    ///
    /// Under [`BoundedInconsistency`] readers change between two copies, which get the same changes. A state with
    /// counters beside its content lets both copies share them here, so that none is lost where readers change over.
    #[must_use]
    fn copy(&self) -> Option<Self> {
        None
    }

    /// The most bytes that [`export_step`](Self::export_step) appends, where that is known.
    const STEP_BYTES: usize = 0;

    /// Appends a step of an export to `bytes`, with bounded work; returns the next step, or `None` after the last.
    ///
    /// The first is step 0, with no bytes. Between two steps other workers may change the state.
    fn export_step(&self, _step: usize, bytes: &mut Vec<u8>) -> Option<usize> {
        bytes.extend(self.export());
        None
    }

    /// Makes the result of [`export`](Declared::export) from the bytes of all steps.
    fn export_end(_bytes: &mut Vec<u8>) {}

    /// The smallest state: it stands in for state that could not be made, in a node that is not built.
    fn least() -> Self;
}

/// State of any consistency, as a function holds it.
pub trait Access<T: Contents>: Clone + 'static {
    /// The side of [handlers](Worker::handler_of) about such state.
    const SIDE: HandlerSide;

    /// Shows the state to `f`.
    ///
    /// It costs up to 15 ns where workers share it: read once for several values.
    ///
    /// # Panics
    /// Inside code that has the state already, on the same worker:
    /// - a change of it that is under way, whose iterator or `outcome` calls this;
    /// - a lookup in it, save under [`BoundedInconsistency`]: use the entry;
    /// - another read of it: always under [`Strict`], under [`BoundedInconsistency`] once this worker has changed it in
    ///   the same batch, event or call, never under [`NoExternalAccess`].
    ///
    /// Under [`Strict`] also inside a read of bounded state or a call on a strict state that was declared later, as
    /// [`StrictState::transact`] says.
    ///
    /// Strict state then starts again, as after every panic inside. Code that leaves its consistency open reads once,
    /// and takes the rest from the outer read's `&T`.
    fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R;

    /// Makes one change.
    ///
    /// # Errors
    /// When this worker cannot write now; nothing has changed. Outside all reads and changes of state, own
    /// and strict state can always be written. Inside such a call:
    /// - No change of the same state is possible ([`CannotWrite::Reading`], or `OutOfOrder` inside another
    ///   strict state).
    /// - Inside a read of other bounded state, own state can be changed. Bounded and strict state cannot
    ///   ([`CannotWrite::OutOfOrder`]).
    /// - Inside strict state, own and bounded state can be changed, and strict state that was declared later.
    fn update(&self, change: T::Change) -> Result<T::Outcome, CannotWrite> {
        let mut outcome = None;
        self.update_all([change], |came| outcome = Some(came))?;
        outcome.ok_or(CannotWrite::Elsewhere)
    }

    /// Makes several changes, of which others see all or none. Their outcomes go to `outcome`, in order.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn update_all(
        &self,
        changes: impl IntoIterator<Item = T::Change>,
        outcome: impl FnMut(T::Outcome),
    ) -> Result<(), CannotWrite>;
}

/// The reason why a change could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotWrite {
    /// Another worker is the state's writer until its batch or call ends.
    #[error(
        "another worker is writing this state: bounded inconsistency has one writer at a time; try again"
    )]
    Elsewhere,
    /// The change is inside a read of the same state.
    #[error("this change is inside a read of the same state: make it after the read")]
    Reading,
    /// Two workers might wait for each other.
    ///
    /// This call is inside a call on a strict state that was declared after this one; workers that nest both ways would
    /// wait for each other. Or it is inside a read of bounded state, for which its writer waits.
    #[error(
        "two workers might wait for each other: strict states are asked for in the order of their declaration, and inside a read of \
         bounded state neither another one is changed nor a strict one asked for; ask for one after the other"
    )]
    OutOfOrder,
    /// A panic spoilt the shared state, and there was no memory to make it again.
    #[error(
        "a panic spoilt this state and there is no memory to make it again: free memory, or lower its capacity, and try again"
    )]
    Spoilt,
}

/// How state is shared between workers.
pub trait Consistency {
    /// The handle that the function holds.
    type Handle<T: Contents>: Access<T>;

    /// Declares state, for [`Worker::state`].
    #[doc(hidden)]
    fn declare<T: Contents>(self, worker: &Worker, name: &str, config: T::Config) -> Self::Handle<T>;
}

/// Each worker has its own state, which no other worker reads or writes. It needs no synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoExternalAccess;

/// One state for all workers; one writes at a time, and all read without ever waiting.
///
/// A read that starts after update `k` returned sees at least the first `k − updates`. A worker's changes are published
/// at the latest when its batch, event or handler call ends. A thread without these, such as one that controls workers,
/// publishes at once. So an idle writer has published everything. Lookups of a batch are one read, after which a packet
/// sees the changes that its own worker made for the packets before it.
///
/// A writer may wait: its first change after a publication waits for other workers' reads that began before. So that
/// these end, nothing inside a read waits: there, changes of bounded state are [refused](CannotWrite::OutOfOrder), and
/// so is strict state.
///
/// Reads refresh nothing: an entry with a timeout stays for that time after it was last put, and is not shown after it.
/// An export of a flow table is many short reads, [in steps](Strict); an export of other state is one read.
///
/// It takes the memory of two copies, and a change is made twice. A change that panics is never seen, nor are those
/// that belong to it ([`Access::update_all`]), and the state starts again. Without memory for that, readers keep the
/// last published state, and changes are [refused](CannotWrite::Spoilt) until there is some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundedInconsistency {
    /// Updates that a reader may miss; of more than 4,096 it misses no more than that.
    pub updates: usize,
}

/// One state for all workers, behind one lock (linearizable).
///
/// All reads and updates are as if they were done one after the other, each at one time between its start and its end.
/// Lookups of a batch are one step. A panic inside one makes the state again, for all. Without memory for that it is
/// the smallest state until there is some. Meanwhile changes are [refused](CannotWrite::Spoilt), and changes by
/// [`StrictState::transact`] are lost.
///
/// An export of a flow table takes the lock many times, each time for 512 slots, so that no packets wait for all of it.
/// Every flow is in it as it was at one time of the export. Of changes that another worker makes together meanwhile, it
/// may have a part. A caller that needs all flows of one time writes them down in [`StrictState::transact`]. Exports of
/// other state are one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strict;

impl Worker {
    /// Declares state under a consistency.
    ///
    /// Workers share all state but [`NoExternalAccess`] by its name: the first makes it. They share where they come
    /// from the same [`Blueprint`](crate::Blueprint), or were given the same [`Shares`]. Where making it fails, the
    /// building of the node does.
    ///
    /// ```
    /// use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, NoExternalAccess, Strict};
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::tables::CounterArray;
    /// use netbricks_core::{Function, Input, Operator, Worker, Verdict};
    ///
    /// /// Counts packets by IP protocol, for itself or together with other workers.
    /// fn protocols<C: Consistency>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C> {
    ///     let seen = worker.state::<CounterArray, C>("seen", consistency, 256);
    ///     input
    ///         .parse::<Link>().or(Verdict::PASS)
    ///         .parse::<Ip>().or(Verdict::PASS)
    ///         .inspect(move |packet| {
    ///             // Where another worker writes at this moment, this packet is not counted.
    ///             let _ = seen.update((usize::from(packet.header().protocol()), 1));
    ///         })
    ///         .done()
    /// }
    ///
    /// let packet = || [netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2)];
    /// netbricks_testkit::run_with(|input, worker| protocols(input, worker, NoExternalAccess), packet());
    /// netbricks_testkit::run_with(|input, worker| protocols(input, worker, Strict), packet());
    /// let bounded = BoundedInconsistency { updates: 32 };
    /// netbricks_testkit::run_with(move |input, worker| protocols(input, worker, bounded), packet());
    /// ```
    pub fn state<T: Contents, C: Consistency>(
        &self,
        name: &str,
        consistency: C,
        config: T::Config,
    ) -> C::Handle<T> {
        consistency.declare(self, name, T::seeded(config, self.seed()))
    }

    /// The state in `made`, or that of `instead` where it failed.
    ///
    /// A failure also fails the building of the present node.
    fn made<T>(&self, name: &str, made: Result<T, String>, instead: impl FnOnce() -> T) -> T {
        made.unwrap_or_else(|problem| {
            self.fail(BuildError::new(format_args!("state `{name}`: {problem}")));
            instead()
        })
    }
}

/// Exports in steps. `look` passes the state to each step; other workers get the state in between.
fn export_in_steps<T: Contents>(mut look: impl FnMut(&mut dyn FnMut(&T))) -> Vec<u8> {
    let (mut bytes, mut next) = (Vec::new(), Some(0));
    while let Some(step) = next {
        // Reserved here, where no other worker waits for the state.
        bytes.reserve(T::STEP_BYTES);
        look(&mut |state| next = state.export_step(step, &mut bytes));
        std::thread::yield_now();
    }
    T::export_end(&mut bytes);
    bytes
}

/// Makes both copies of a state; the second [may be of the first](Contents::copy).
///
/// # Errors
/// Those of `make`.
fn both<T: Contents>(mut make: impl FnMut() -> Result<T, String>) -> Result<[T; 2], String> {
    let first = make()?;
    let second = match first.copy() {
        Some(copy) => copy,
        None => make()?,
    };
    Ok([first, second])
}

/// Makes a function that restores a state's initial content.
///
/// It first drops the old content, so that there is memory. Without memory it leaves the smallest state.
fn remaker<T: Contents>(config: T::Config) -> impl Fn(&mut T) -> bool + Send + Sync + 'static {
    move |state| {
        *state = T::least();
        T::make(&config).map(|made| *state = made).is_ok()
    }
}
