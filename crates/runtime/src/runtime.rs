//! Starts workers, waits for them, and makes the report at the end.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use netbricks_buffer::WorkerSlot;
use netbricks_core::graph::ShuffleEnd;

use crate::clock::nanoseconds;
use crate::config::{Config, Factory, WorkerContext};
use crate::control::{Control, Shared, StopHandle};
use crate::event::Event;
use crate::idle::IdlePolicy;
use crate::mailbox::{Mailbox, mailbox};
use crate::placement::{Placement, PlacementError, allowed_cores, pin_this_thread};
use crate::progress::Progress;
use crate::report::{CommandError, FinalReport, Snapshot, WorkerReport};
use crate::shuffles::{ShuffleMismatch, compare};
use crate::worker::{Worker, contained};

/// Bytes of a worker's stack, of which the system takes memory for what was used only.
///
/// Elements of a Click configuration call each other up to 512 deep, with batches in their hands.
const STACK: usize = 16 << 20;

/// The reason why a runtime does not start. No thread is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number of workers that is not possible.
    #[error("{workers} workers: expected 1 to 64")]
    Workers {
        /// The requested number.
        workers: usize,
    },
    /// Cores that are not available.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The system refused something.
    #[error("worker {worker}: {action}: {source}")]
    System {
        /// The worker.
        worker: usize,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The worker has no packet cache.
    #[error("worker {worker}: {source}")]
    Slot {
        /// The worker.
        worker: usize,
        /// The reason.
        source: netbricks_buffer::NoWorkerSlot,
    },
    /// A graph could not be made.
    #[error(transparent)]
    Build(CommandError),
    /// The workers' graphs exchange packets, and do not fit together.
    #[error(transparent)]
    Shuffles(#[from] ShuffleMismatch),
    /// The thread died before it reported.
    #[error("worker {worker} ended before it was ready; its message was printed")]
    Died {
        /// The worker.
        worker: usize,
    },
}

/// Running workers. Dropping the value stops and drains them.
#[derive(Debug)]
pub struct Runtime {
    control: Control,
    threads: Vec<JoinHandle<()>>,
    begun: Instant,
}

impl Runtime {
    /// Starts the workers. Worker `n` runs the graph that `factory(n)` makes on its thread.
    ///
    /// Returns once all graphs are built. When one cannot be built, all are dropped. Every worker's graph
    /// must have a node of each shuffle. Where there are several shuffles, packets must come to them in the
    /// same order on all workers.
    ///
    /// # Errors
    /// [`StartError`] of the first worker that failed.
    pub fn start(config: Config, mut factory: impl FnMut(usize) -> Factory) -> Result<Self, StartError> {
        Self::start_several(config, |worker| vec![factory(worker)])
    }

    /// As [`start`](Self::start), with any number of graphs a worker.
    ///
    /// A worker without a graph waits for the control side if [`Config::linger`] is set, and ends otherwise.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_several(
        config: Config,
        mut factories: impl FnMut(usize) -> Vec<Factory>,
    ) -> Result<Self, StartError> {
        if !(1..=64).contains(&config.workers) {
            return Err(StartError::Workers { workers: config.workers });
        }
        netbricks_core::graph::observe_panics();
        let allowed = allowed_cores();
        let cores = config.placement.assign(config.workers, &allowed)?;
        if config.placement == Placement::Automatic && config.workers > allowed.len() {
            let warning = format!("{} workers share {} cores", config.workers, allowed.len());
            config.events.tell(Event::Warning(warning));
        }
        let (mut letterboxes, mut mailboxes) = (Vec::new(), Vec::new());
        for worker in 0..config.workers {
            let action = "making its mailbox's eventfd";
            let (letterbox, mailbox) =
                mailbox().map_err(|source| StartError::System { worker, action, source })?;
            letterboxes.push(letterbox);
            mailboxes.push(mailbox);
        }
        let shared = Arc::new(Shared::new(config, letterboxes));
        // If anything below fails, its drop stops the workers.
        let mut runtime =
            Self { control: Control(shared.clone()), threads: Vec::new(), begun: Instant::now() };
        let mut gates = Vec::new();
        let mut seats = Vec::new();
        for (worker, (mailbox, core)) in mailboxes.into_iter().zip(cores).enumerate() {
            let (ready, when_ready) = channel();
            let (open, gate) = channel();
            let seat = Seat { worker, core, shared: shared.clone(), mailbox, factories: factories(worker) };
            let thread = Builder::new()
                .name(format!("netbricks-{worker}"))
                .stack_size(STACK)
                .spawn(move || seat.run(&ready, &gate))
                .map_err(|source| StartError::System { worker, action: "starting its thread", source });
            match thread {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => {
                    drop((gates, open));
                    runtime.join();
                    return Err(error);
                }
            }
            gates.push(open);
            seats.push(when_ready);
        }
        let answers: Vec<Result<Vec<ShuffleEnd>, StartError>> = seats
            .into_iter()
            .enumerate()
            .map(|(worker, seat)| seat.recv().unwrap_or(Err(StartError::Died { worker })))
            .collect();
        let ends: Result<Vec<_>, _> = answers.into_iter().collect();
        if let Err(error) = ends.and_then(|ends| Ok(compare(&ends)?)) {
            drop(gates);
            runtime.join();
            return Err(error);
        }
        runtime.begun = Instant::now();
        shared.begin(runtime.begun);
        for gate in gates {
            // A worker that is ready waits only for this.
            let _waits = gate.send(());
        }
        Ok(runtime)
    }

    /// The control side of the workers.
    pub fn control(&self) -> &Control {
        &self.control
    }
    /// A handle that stops them, from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.control.stop_handle()
    }
    /// Live sums, without stopping a worker.
    pub fn progress(&self) -> Progress {
        self.control.progress()
    }
    /// The state of all workers now.
    ///
    /// # Errors
    /// As [`Control::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot, CommandError> {
        self.control.snapshot()
    }
    /// How long the workers have run.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
    /// Waits for all workers to end, at most for `timeout`. Answers whether they have.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.control.0.wait(Instant::now().checked_add(timeout))
    }
    /// Waits for all workers to end by themselves (sources, limits) or through a [`StopHandle`].
    pub fn wait(mut self) -> FinalReport {
        self.control.0.wait(None);
        let seconds = nanoseconds(self.begun.elapsed()) as f64 / 1e9;
        self.join();
        let shared = &self.control.0;
        let workers: Vec<WorkerReport> = shared.ended().iter().filter_map(|report| report.clone()).collect();
        let failed = workers.iter().any(|worker| worker.failure.is_some());
        let state = Snapshot::of(workers);
        let pool = &shared.config.pool;
        let (pool_available, pool_capacity) = (pool.available(), pool.capacity());
        FinalReport {
            conserved: !failed
                && state.unbalanced.is_empty()
                && state.totals.is_conserved()
                && state.totals.handoff_out == state.totals.handoff_in,
            pool_whole: pool_available == pool_capacity,
            pool_available,
            pool_capacity,
            seconds,
            state,
        }
    }
    /// Stops, drains and reports.
    pub fn stop(self) -> FinalReport {
        self.control.0.stop();
        self.wait()
    }
    /// Runs for `duration` at most, then stops, drains and reports.
    pub fn run_for(self, duration: Duration) -> FinalReport {
        self.wait_timeout(duration);
        self.stop()
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // Its panics are caught on the thread and are in its report.
            let _reported = thread.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.control.0.stop();
        self.join();
    }
}

/// The parts with which a worker's thread starts.
struct Seat {
    worker: usize,
    core: Option<usize>,
    shared: Arc<Shared>,
    mailbox: Mailbox,
    factories: Vec<Factory>,
}

impl Seat {
    fn run(self, ready: &Sender<Result<Vec<ShuffleEnd>, StartError>>, gate: &Receiver<()>) {
        let (index, core, shared) = (self.worker, self.core, self.shared.clone());
        let seated = self.sit_down();
        let (mut worker, slot, ends) = match seated {
            Ok(seated) => seated,
            Err(error) => {
                let _gone = ready.send(Err(error));
                return;
            }
        };
        let _waits = ready.send(Ok(ends));
        if gate.recv().is_err() {
            worker.abandon();
            return;
        }
        let report = contained(|| {
            worker.run();
            worker.finish()
        })
        .unwrap_or_else(|message| WorkerReport {
            worker: index,
            core,
            graphs: Vec::new(),
            retired: None,
            turns: 0,
            sleeps: 0,
            cpu_seconds: 0.0,
            panics: Vec::new(),
            failure: Some(format!("the worker itself panicked: {message}")),
            gave_up: None,
            failed_nodes: Vec::new(),
        });
        // The mailbox closes and every frame returns to the pool before the end is published.
        let closed = contained(|| drop(worker));
        drop(slot);
        let failure = report.failure.clone().or(closed.err());
        shared.end(WorkerReport { failure, ..report });
        shared.config.events.tell(Event::WorkerEnded { worker: index });
    }

    /// Binds the thread to its core, claims its packet cache and makes its graphs. Answers their ends of
    /// shuffles.
    fn sit_down(self) -> Result<(Worker, WorkerSlot, Vec<ShuffleEnd>), StartError> {
        let Self { worker: index, core, shared, mailbox, factories } = self;
        if let Some(core) = core {
            match pin_this_thread(core) {
                Ok(()) => {}
                Err(error) if shared.config.placement == Placement::Automatic => {
                    let warning = format!("worker {index} is not bound to core {core}: {error}");
                    shared.config.events.tell(Event::Warning(warning));
                }
                Err(source) => {
                    return Err(StartError::System {
                        worker: index,
                        action: "binding it to its core",
                        source,
                    });
                }
            }
        }
        if shared.config.idle == IdlePolicy::Balanced {
            // The default slack of 50 µs is half of its longest sleep. Without permission to set it, sleeps
            // are longer.
            let _slack = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        }
        let slot = WorkerSlot::claim().map_err(|source| StartError::Slot { worker: index, source })?;
        let context = WorkerContext::new(index, core, &shared.config, shared.group.clone());
        let mut worker = Worker::new(context, shared, mailbox);
        let mut ends = Vec::new();
        for factory in factories {
            match worker.begin(factory) {
                Ok(of_graph) => ends.extend(of_graph),
                Err(error) => {
                    worker.abandon();
                    return Err(StartError::Build(error));
                }
            }
        }
        Ok((worker, slot, ends))
    }
}
