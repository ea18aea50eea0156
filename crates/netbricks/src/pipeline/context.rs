//! A run whose chains are written in Rust: opens the configured ports, shares out their queues, and runs
//! pipelines.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_core::{GraphError, Node, Worker};
use netbricks_ports::{Drivers, PortError, ReceiveNode};
use netbricks_runtime::{Clock, Factory, PlacementError, Runtime, StartError, allowed_cores};
use toml::Spanned;
use toml::de::DeTable;

use super::stop::{Signals, StopHandle, attend};
use super::{Draft, Queue, Sent, halves};
use crate::chain::{Design, Network, OpenPorts, Place, Wire, WorkerPorts, transmit_nodes};
use crate::commands::{Begun, placement, places, pool_for, runtime_config};
use crate::config::{Plan, PlannedFunction, PlannedPort, Written, parse, resolve_ports};
use crate::diagnostic::{Diagnostics, Source};
use crate::report::Summary;

/// The reason why there is no context, or no run.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Its name.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The configuration is wrong; the text lists all faults with their places, as `netbricks check` shows
    /// them.
    #[error("{0}")]
    Configuration(String),
    /// There is no memory for packets.
    #[error(transparent)]
    Pool(#[from] netbricks_buffer::PoolError),
    /// Workers cannot be placed on the cores of `[runtime]`.
    #[error("`cores`: {0}")]
    Cores(#[from] PlacementError),
    /// A queue could not be taken.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A pipeline does not end, a function's way out leads nowhere, or a function cannot be made.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The system has no randomness to hash by.
    #[error(transparent)]
    Seed(std::io::Error),
    /// A worker could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The process cannot listen to its signals.
    #[error("signals cannot be listened to: {0}")]
    Signals(std::io::Error),
}

/// Open ports, their queues, and the workers that the queues are bound to (the paper's Listing 2).
///
/// ```
/// use netbricks::prelude::*;
/// use netbricks::{NetBricksContext, Pipeline};
///
/// # fn main() -> Result<(), netbricks::ContextError> {
/// let context = NetBricksContext::from_text(
///     "[port.lan]\ndriver = \"generator\"\npackets = 1000\n[port.wan]\ndriver = \"null\"\n",
/// )?;
/// let (lan, wan) = (context.queues_of("lan"), context.queues_of("wan"));
/// let ends: Vec<_> = lan
///     .iter()
///     .map(|queue| queue.receive().function("count", |input| input.parse::<Link>().done()).send(&wan[0]))
///     .collect();
/// let summary = context.run(ends)?;
/// assert_eq!((summary.received, summary.sent, summary.conserved), (1000, 1000, true));
/// # Ok(())
/// # }
/// ```
pub struct NetBricksContext {
    plan: Plan<'static>,
    ports: OpenPorts,
    pool: Pool,
    workers: usize,
    queues: Vec<Queue>,
    draft: Rc<RefCell<Draft>>,
    stop: StopHandle,
    /// Whether the run listens to the process's signals.
    listens: bool,
}

impl NetBricksContext {
    /// Reads a configuration with ports and `[runtime]`, as a chain file has them, and opens the ports.
    ///
    /// # Errors
    /// [`ContextError`]: a fault in the file, or of the ports and cores that it asks for.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ContextError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ContextError::File { file: file.clone(), error })?;
        Self::make(&file, &text, path.parent().unwrap_or(Path::new(".")))
    }

    /// As [`from_file`](Self::from_file), from a text. Relative names in it start from the current directory.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_text(text: &str) -> Result<Self, ContextError> {
        Self::make("configuration", text, Path::new("."))
    }

    fn make(name: &str, text: &str, directory: &Path) -> Result<Self, ContextError> {
        let (drivers, mut diagnostics) = (Drivers::standard(), Diagnostics::default());
        let refused = |diagnostics: &Diagnostics| {
            ContextError::Configuration(diagnostics.render(&Source::new(name.to_owned(), text), false))
        };
        let plan = resolve_ports(parse(text, &mut diagnostics), &drivers, directory, &mut diagnostics);
        plan.forbidden_cores(&allowed_cores()).into_iter().for_each(|error| diagnostics.push(error));
        plan.unattested(directory).into_iter().for_each(|error| diagnostics.push(error));
        if diagnostics.has_errors() {
            return Err(refused(&diagnostics));
        }
        let workers = plan.runtime.workers.unwrap_or(1).max(plan.placed_workers());
        let pool = pool_for(&plan, &drivers, workers)?;
        let ports = OpenPorts::open(&plan, &pool, workers, directory, &mut diagnostics);
        let Some(ports) = ports else { return Err(refused(&diagnostics)) };
        let draft = Rc::<RefCell<Draft>>::default();
        let mut queues: Vec<Queue> = Vec::new();
        for (port, open) in ports.iter().enumerate() {
            let placed = &plan.ports[port].workers;
            // A port that only sends is a queue to send to.
            for number in 0..open.capabilities().receive_queues.max(1) {
                let worker = match placed.len() {
                    0 => (port + number) % workers,
                    queues => *placed[number % queues].get_ref(),
                };
                queues.push(Queue {
                    port,
                    name: open.name().to_owned(),
                    number,
                    worker,
                    place: Place::Receive(plan.ports.len() + queues.len()),
                    draft: draft.clone(),
                });
            }
        }
        let (plan, stop) = (plan.without_places(), StopHandle::default());
        Ok(Self { plan, ports, pool, workers, queues, draft, stop, listens: true })
    }

    /// How many workers will run.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// All queues of all ports, in the order of the file.
    pub fn queues(&self) -> Vec<Queue> {
        self.queues.clone()
    }

    /// The queues of one port; none where there is no such port.
    pub fn queues_of(&self, port: &str) -> Vec<Queue> {
        self.queues.iter().filter(|queue| queue.name == port).cloned().collect()
    }

    /// A handle that stops the run from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Leaves the process's signals to the program, which has its own handlers.
    ///
    /// The program can stop the run by a [`stop_handle`](Self::stop_handle).
    #[must_use]
    pub fn without_signals(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Runs all pipelines of this context until every source has ended or the run is stopped, and drains.
    ///
    /// `ends` makes the compiler remind an author of a pipeline without an end. All pipelines run, whether
    /// their ends are in `ends` or not.
    ///
    /// While it runs, Ctrl-C (SIGINT), SIGTERM and SIGHUP stop it. A second SIGINT or SIGTERM, over 300 ms
    /// later, ends the process. SIGUSR1 prints the report so far to standard error. After the run, signals do
    /// what they did before. [`without_signals`](Self::without_signals) leaves them alone.
    ///
    /// # Errors
    /// [`ContextError`] when a pipeline leads nowhere, a queue cannot be taken or a worker cannot start.
    pub fn run(self, ends: impl IntoIterator<Item = Sent>) -> Result<Summary, ContextError> {
        self.start(ends, None)
    }

    /// As [`run`](Self::run), for at most `duration`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_for(
        self,
        ends: impl IntoIterator<Item = Sent>,
        duration: Duration,
    ) -> Result<Summary, ContextError> {
        self.start(ends, Some(duration))
    }

    fn start(
        mut self,
        ends: impl IntoIterator<Item = Sent>,
        duration: Option<Duration>,
    ) -> Result<Summary, ContextError> {
        ends.into_iter().for_each(drop);
        let (design, network) = self.design()?;
        let shares = self.share_out(&design)?;
        let warnings = self.halved(&network, &design, &shares);
        let cores = placement(&self.plan.runtime).assign(self.workers, &allowed_cores())?;
        let places = places(&self.plan, &shares, &cores);
        let is_replay = shares.iter().all(|share| share.drives_clock);
        let seed = self.plan.runtime.seed(is_replay).map_err(ContextError::Seed)?;
        let mut config = runtime_config(&self.plan.runtime, seed, &self.pool, self.workers);
        config.duration = duration;
        let mut shares: Vec<Mutex<Option<WorkerPorts>>> =
            shares.into_iter().map(|share| Mutex::new(Some(share))).collect();
        let real = Clock::real();
        let runtime = Runtime::start(config, |worker| {
            let share = shares.get_mut(worker).and_then(|share| {
                // The runtime asks for each worker once.
                share.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            });
            let share = share.unwrap_or_default();
            let clock = if share.drives_clock { Clock::Driven } else { real.clone() };
            let design = design.clone();
            Factory::new(move |context| -> Result<_, GraphError> {
                design.builder(share, context.worker())?.build(context.pool().clone())
            })
            .clock(clock)
        })?;
        self.stop.begin(runtime.stop_handle());
        let signals = self.listens.then(|| Signals::listen(&runtime)).transpose();
        let signals = signals.map_err(ContextError::Signals)?;
        let base = Summary { warnings, workers: self.workers, placement: places, seed, ..Summary::default() };
        let layout = network.layout(&self.plan);
        let begun = Begun { layout, pool: &self.pool, base, closed: Vec::new() };
        let report = attend(runtime, signals, &self.ports, &begun);
        let mut summary = begun.ended(&report, &mut self.ports);
        summary.add_hints();
        Ok(summary)
    }

    /// The pipelines as a design and as a network; the network has only ports, without their queues.
    ///
    /// The design's ports are the plan's ports, by number, followed by the queues, by number.
    fn design(&mut self) -> Result<(Design, Network), GraphError> {
        let draft = std::mem::take(&mut *self.draft.borrow_mut());
        let names = self.queues.iter().map(|queue| format!("{}.{}", queue.name, queue.number));
        let ports: Vec<String> = self.plan.ports.iter().map(|port| port.name.clone()).chain(names).collect();
        let uses = draft.names.iter().cloned().enumerate().map(|(number, name)| (name, number)).collect();
        self.plan.functions = draft
            .names
            .iter()
            .zip(&draft.blueprints)
            .map(|(name, blueprint)| PlannedFunction {
                name: name.clone(),
                definition: name.clone(),
                blueprint: blueprint.clone(),
                settings: Written::new(),
                place: 0..0,
                owner: 0,
            })
            .collect();
        let port = |place: Place| match self.queues.iter().find(|queue| queue.place == place) {
            Some(queue) => Place::Receive(queue.port),
            None => place,
        };
        let wires = draft.wires.iter().map(|wire| Wire { from: port(wire.from), ..*wire }).collect();
        let worker = Worker::new(0, self.plan.runtime.seed.unwrap_or(0), self.pool.clone()).on_trial();
        let network = Network::along(wires, &self.plan.functions, self.plan.ports.len(), &worker)?;
        let design = Design {
            name: "pipelines".into(),
            labels: (0..ports.len()).map(|number| number as u16).collect(),
            ports,
            functions: draft.blueprints,
            uses,
            wires: draft.wires,
            stateful: network.stateful.clone(),
            inputs: network.inputs.clone(),
            crosses: network.crosses.clone(),
            owners: Vec::new(),
            policies: Vec::new(),
        };
        Ok((design, network))
    }

    /// Warnings about functions that would see only half of their flows.
    fn halved(&self, network: &Network, design: &Design, shares: &[WorkerPorts]) -> Vec<String> {
        let begins = |queue: &&Queue| design.wires.iter().any(|wire| wire.from == queue.place);
        let begun: Vec<_> =
            self.queues.iter().filter(begins).map(|queue| (queue.port, queue.place)).collect();
        let shares: Vec<_> = shares.iter().map(|share| share.queues.clone()).collect();
        halves::warnings(&self.plan, network, design, &self.ports.divisions(), &begun, &shares)
    }

    /// Takes the queues that pipelines begin at, and the transmit nodes of each port that a pipeline ends at.
    fn share_out(&mut self, design: &Design) -> Result<Vec<WorkerPorts>, ContextError> {
        let begins = |queue: &Queue| design.wires.iter().any(|wire| wire.from == queue.place);
        let used: Vec<Queue> = self.queues.iter().filter(|queue| begins(queue)).cloned().collect();
        let mut shares: Vec<WorkerPorts> = (0..self.workers).map(|_| WorkerPorts::default()).collect();
        let mut driven = !used.is_empty();
        for queue in &used {
            let Some(port) = self.ports.get_mut(queue.port) else { continue };
            driven &= port.capabilities().drives_clock;
            let node = ReceiveNode::take(port, queue.port as u16, queue.number)?;
            let Place::Receive(place) = queue.place else { continue };
            shares[queue.worker].receive.push((place, Box::new(node) as Box<dyn Node + Send>));
            shares[queue.worker].queues.push((queue.port, queue.number));
        }
        shares.iter_mut().for_each(|share| share.drives_clock = driven);
        for number in 0..self.plan.ports.len() {
            if !design.wires.iter().any(|wire| wire.to == Place::Transmit(number)) {
                continue;
            }
            let Some(port) = self.ports.get_mut(number) else { continue };
            if port.capabilities().transmit_queues == 0 {
                let problem = "does not exist: the port only receives".to_owned();
                let port = port.name().to_owned();
                return Err(PortError::Queue { port, direction: "transmit", queue: 0, problem }.into());
            }
            for (share, node) in shares.iter_mut().zip(transmit_nodes(port, self.workers)?) {
                share.transmit.insert(number, node);
            }
        }
        Ok(shares)
    }
}

impl std::fmt::Debug for NetBricksContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetBricksContext").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Plan<'_> {
    /// The plan of open ports, without their tables: the settings in them have been applied.
    fn without_places(self) -> Plan<'static> {
        let ports = self
            .ports
            .into_iter()
            .map(|port| PlannedPort {
                name: port.name,
                place: port.place,
                driver: port.driver,
                driver_place: port.driver_place,
                workers: port.workers,
                settings: Spanned::new(0..0, DeTable::new()),
                written: port.written,
                configured: None,
                can_transmit: port.can_transmit,
                receives: port.receives,
                transmits: port.transmits,
            })
            .collect();
        Plan {
            ports,
            functions: self.functions,
            chains: self.chains,
            tenants: self.tenants,
            runtime: self.runtime,
            control: self.control,
        }
    }
}
