//! The configuration of a runtime, and the factories that make its graphs.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::{Graph, GraphBuilder, WorkerGroup};

use crate::clock::Clock;
use crate::event::EventSink;
use crate::idle::IdlePolicy;
use crate::placement::Placement;
use crate::worker::contained;

/// The default for [`Config::burst`], as in DPDK's examples.
///
/// It is large enough to share the cost of a turn, and small enough to stay in the first-level cache.
pub const BURST: usize = 32;

/// How workers run. Start from [`Config::new`] and change what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The pool of packets. [`FinalReport::pool_whole`](crate::FinalReport) says whether all came back.
    pub pool: Pool,
    /// The number of workers (default 1, at most 64).
    pub workers: usize,
    /// The workers' cores (default automatic).
    pub placement: Placement,
    /// The policy of a worker without work (default balanced).
    pub idle: IdlePolicy,
    /// The clock of graphs whose factories do not set another (default real).
    pub clock: Clock,
    /// The seed of everything random (default 0).
    pub seed: u64,
    /// The most packets that a source is asked for in a turn (default [`BURST`], at most
    /// [`BATCH`](netbricks_buffer::BATCH)).
    pub burst: usize,
    /// Stop and drain after this time.
    pub duration: Option<Duration>,
    /// Stop and drain after this many received packets, over all workers.
    ///
    /// The number is exact, except for arrivals that were lost for lack of a buffer. These count as received
    /// when they are noticed.
    pub packets: Option<u64>,
    /// Whether workers whose graphs have all ended wait for new ones from the control side. By default they
    /// end.
    pub linger: bool,
    /// How long a call of the control side waits for a worker's answer (default 30 s).
    ///
    /// A function that never returns must not block the control side as well.
    pub patience: Duration,
    /// The sink for panics and warnings (default none).
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

/// The reason why a factory could not make its graph.
pub type FactoryError = Box<dyn Error + Send + Sync>;

type Build = dyn FnOnce(&WorkerContext) -> Result<Graph, FactoryError> + Send;
type BuildChange = dyn FnOnce(&WorkerContext, &Graph) -> Result<GraphBuilder, FactoryError> + Send;

/// Makes a worker's own copy of a graph, on that worker's thread. Factories cross threads; graphs never do.
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

/// Makes the graph that takes over from a running one, of which it [keeps](GraphBuilder::keep) nodes.
pub struct Change(Box<BuildChange>);

impl Change {
    /// A change by this closure, which sees the worker and its running graph.
    pub fn new<E: Into<FactoryError>>(
        build: impl FnOnce(&WorkerContext, &Graph) -> Result<GraphBuilder, E> + Send + 'static,
    ) -> Self {
        Self(Box::new(move |context, running| build(context, running).map_err(Into::into)))
    }
    pub(crate) fn build(
        self,
        context: &WorkerContext,
        running: &Graph,
    ) -> Result<GraphBuilder, FactoryError> {
        (self.0)(context, running)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// A factory's view of its worker.
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
            worker: netbricks_core::Worker::new(index, config.seed, config.pool.clone()).in_group(group),
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
    /// The worker for which functions are built.
    pub fn worker(&self) -> &netbricks_core::Worker {
        &self.worker
    }
    /// The pool of new packets.
    pub fn pool(&self) -> &Pool {
        self.worker.pool()
    }
    /// State of this worker that outlives a graph, by name.
    ///
    /// An example is a port's queue, of which there can be only one: a replacement continues to use it.
    /// `make` makes the state at the first call. It is dropped when the worker ends.
    ///
    /// # Errors
    /// The error of `make`, or that state of another type is kept under the name.
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
    /// Drops the state that is kept under a name. Answers whether there was any.
    ///
    /// A graph that uses it still has it.
    pub fn release(&self, name: &str) -> bool {
        self.kept.borrow_mut().remove(name).is_some()
    }
    /// Drops all kept state, one after the other. Answers the names of those that panicked, with the
    /// messages.
    pub(crate) fn release_all(&self) -> Vec<(String, String)> {
        let kept = std::mem::take(&mut *self.kept.borrow_mut());
        let released = kept.into_iter().map(|(name, kept)| (name, contained(|| drop(kept))));
        released.filter_map(|(name, released)| Some((name, released.err()?))).collect()
    }
}
