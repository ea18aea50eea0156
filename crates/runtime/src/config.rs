//! What a runtime is told before it starts, and how it is given graphs.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::{Graph, WorkerGroup};

use crate::clock::Clock;
use crate::event::EventSink;
use crate::idle::IdlePolicy;
use crate::placement::Placement;
use crate::worker::contained;

/// Packets that a source is asked for at once by default, as DPDK's examples do: enough to share the cost of a turn,
/// few enough to stay in the nearest cache.
pub const BURST: usize = 32;

/// How workers run. Start from [`Config::new`] and change what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where packets come from; [`FinalReport::pool_whole`](crate::FinalReport) says whether all went home.
    pub pool: Pool,
    /// How many workers (default 1, at most 64).
    pub workers: usize,
    /// On which cores (default automatic).
    pub placement: Placement,
    /// What a worker does when there is nothing to do (default balanced).
    pub idle: IdlePolicy,
    /// What drives the graphs' time, where their factories do not say otherwise (default real).
    pub clock: Clock,
    /// Where everything random starts (default 0).
    pub seed: u64,
    /// Packets that a source is asked for at most a turn (default [`BURST`], at most
    /// [`BATCH`](netbricks_buffer::BATCH)).
    pub burst: usize,
    /// Stop and drain after this time.
    pub duration: Option<Duration>,
    /// Stop and drain after this many received packets, over all workers: exactly, save for arrivals that were lost
    /// for want of a buffer, which count as received when they are noticed.
    pub packets: Option<u64>,
    /// Whether workers whose graphs have all ended wait for new ones from the control side (default no: they end).
    pub linger: bool,
    /// How long a call of the control side waits for a worker's answer (default 30 s): an NF that never returns must
    /// not hang the control side as well.
    pub patience: Duration,
    /// Who hears of panics and warnings (default nobody).
    pub events: EventSink,
}

impl Config {
    /// One worker with packets from this pool, and defaults for the rest.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            workers: 1,
            placement: Placement::default(),
            idle: IdlePolicy::default(),
            clock: Clock::default(),
            seed: 0,
            burst: BURST,
            duration: None,
            packets: None,
            linger: false,
            patience: Duration::from_secs(30),
            events: EventSink::default(),
        }
    }
    /// The same with this many workers.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }
    /// The same on these cores.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }
    /// The same with this idle policy.
    #[must_use]
    pub fn idle(mut self, idle: IdlePolicy) -> Self {
        self.idle = idle;
        self
    }
    /// The same with this clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
    /// The same with this sink for events.
    #[must_use]
    pub fn events(mut self, events: EventSink) -> Self {
        self.events = events;
        self
    }
}

/// Why a factory could not make its graph.
pub type FactoryError = Box<dyn Error + Send + Sync>;

type Build = dyn FnOnce(&WorkerContext) -> Result<Graph, FactoryError> + Send;

/// Makes a worker's own copy of a graph, on that worker's thread: a graph never crosses threads, its factory does.
pub struct Factory {
    clock: Option<Clock>,
    build: Box<Build>,
}

impl Factory {
    /// A factory of this closure.
    pub fn new<E: Into<FactoryError>>(
        build: impl FnOnce(&WorkerContext) -> Result<Graph, E> + Send + 'static,
    ) -> Self {
        Self { clock: None, build: Box::new(move |context| build(context).map_err(Into::into)) }
    }
    /// The same with a clock of its own, in place of [`Config::clock`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }
    pub(crate) fn build(self, context: &WorkerContext) -> Result<(Graph, Option<Clock>), FactoryError> {
        Ok(((self.build)(context)?, self.clock))
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// What a factory may know of its worker.
pub struct WorkerContext {
    index: usize,
    workers: usize,
    core: Option<usize>,
    worker: netbricks_core::Worker,
    kept: RefCell<BTreeMap<String, Rc<dyn Any>>>,
}

impl WorkerContext {
    pub(crate) fn new(index: usize, core: Option<usize>, config: &Config, group: WorkerGroup) -> Self {
        Self {
            index,
            workers: config.workers,
            core,
            worker: netbricks_core::Worker::new(index, config.seed, config.pool.clone()).of_team(group),
            kept: RefCell::default(),
        }
    }
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }
    /// The core that it is bound to.
    pub fn core(&self) -> Option<usize> {
        self.core
    }
    /// What functions are built with.
    pub fn worker(&self) -> &netbricks_core::Worker {
        &self.worker
    }
    /// Where new packets come from.
    pub fn pool(&self) -> &Pool {
        self.worker.pool()
    }
    /// What outlives a graph on this worker, by name: a port's queue, which a replacement goes on with while there
    /// can be only one. It is made by `make` when it is asked for first, and dropped when the worker ends.
    ///
    /// # Errors
    /// What `make` says; or that something of another type is kept under the name.
    pub fn kept<T: 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T, FactoryError>,
    ) -> Result<Rc<T>, FactoryError> {
        let known = self.kept.borrow().get(name).cloned();
        match known.map(Rc::downcast::<T>) {
            Some(Ok(kept)) => Ok(kept),
            Some(Err(_)) => {
                let wanted = std::any::type_name::<T>();
                Err(format!("`{name}` is kept on worker {} already, but is no {wanted}", self.index).into())
            }
            None => {
                let made = Rc::new(make()?);
                self.kept.borrow_mut().insert(name.to_owned(), made.clone());
                Ok(made)
            }
        }
    }
    /// Lets go of what is kept under a name; a graph that uses it still has it. Answers whether there was anything.
    pub fn release(&self, name: &str) -> bool {
        self.kept.borrow_mut().remove(name).is_some()
    }
    /// Lets go of everything that is kept, one by one; answers who panicked in that, and how.
    pub(crate) fn release_all(&self) -> Vec<(String, String)> {
        let kept = std::mem::take(&mut *self.kept.borrow_mut());
        let released = kept.into_iter().map(|(name, kept)| (name, contained(|| drop(kept))));
        released.filter_map(|(name, released)| Some((name, released.err()?))).collect()
    }
}
