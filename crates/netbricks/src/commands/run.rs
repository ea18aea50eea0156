//! `run`: runs a file's chains, from opening the ports to the last line of the report.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netbricks_buffer::{Pool, PoolError};
use netbricks_control::api::{EventLevel, RunState};
use netbricks_control::store::Store;
use netbricks_control::{Dataplane, Director, Events, Grants, Listener, Records, Tasks, Waiting};
use netbricks_core::tables::stock;
use netbricks_core::{DropReason, GraphError};
use netbricks_ports::{Counters, Drivers, Port};
use netbricks_runtime::{
    Clock, CommandError, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime, Snapshot,
    allowed_cores,
};

use super::arguments::ControlArguments;
use super::attend::{
    Attending, Interrupts, Reloaded, attend, heard_events, interruptible, link_name, now_ns, report_requests,
};
use super::control::{self, ControlSide};
use super::file::{self, Checked, Faults, File};
use super::log;
use super::session::{
    ControlTasks, Installed, LastReports, Overrides, Preparing, Session, functions_of, grants_of,
};
use super::shared_watchdog::SharedWatchdog;
use super::{Application, Console, FAILURE, Failure, RunArguments, RunLimits, concluded};
use crate::chain::{
    Design, Filters, Layout, Network, OpenPorts, Parted, Place, WorkerPorts, overcommitted, receive_name,
    transmit_name,
};
use crate::config::{self, Idle, Plan, RuntimeSettings};
use crate::diagnostic::{Diagnostic, Diagnostics, Level};
use crate::frames::{self, Writer};
use crate::report::{
    NodeSection, NodeSummary, PoolSummary, PortSummary, RecordedPacket, ShuffleSummary, Summary, WorkerPlace,
    cores, counted, memory,
};

pub(super) fn run(app: &Application, console: Console, arguments: &RunArguments) -> Result<(), Failure> {
    log::begin(&arguments.log)?;
    // While the file is checked and memory is taken there is no report yet, and SIGUSR1 is no reason to end.
    let _no_report_yet = report_requests()?;
    // Between lines of JSON there is no place for others.
    let limits = RunLimits { quiet: arguments.limits.quiet || log::is_json(), ..arguments.limits };
    let (file, store) = match &arguments.file {
        Some(path) => (File::read_with(path, &arguments.parameters)?, None),
        None => control::restored(console, &arguments.control).map(|(file, store)| (file, Some(store)))?,
    };
    // A start without a file goes on under the name of the first one, whatever was applied since.
    let restored = store.as_ref().and_then(Store::place).map(|place| place.graph.clone());
    let overrides = Overrides::of(arguments);
    let checked = file::check_with(app, &file, |runtime| overrides.adjust(runtime));
    let checked = checked.map_err(|faults| faults.told(console))?;
    let how = How {
        overrides,
        control: Some(&arguments.control),
        file: arguments.file.as_deref(),
        parameters: &arguments.parameters,
        graph: restored.as_deref(),
        ..How::plain(&limits, arguments.json)
    };
    let summary = execute(app, console, &file, checked, &how, store).map_err(|unrun| unrun.told(console))?;
    let written = if arguments.json { console.json(&summary) } else { console.print(&summary.text()) };
    concluded(outcome(&summary), written)
}

/// Turns a run's summary into the command's outcome.
pub(super) fn outcome(summary: &Summary) -> Result<(), Failure> {
    if summary.succeeded() { Ok(()) } else { Err(Failure::Told(FAILURE)) }
}

/// Why there is no summary of a run.
pub(super) enum Unrun<'t> {
    /// The faults have places in the file, and have not been shown yet.
    Faults(Faults<'t>),
    /// The failure has no place in the file.
    Failed(Failure),
}

impl Unrun<'_> {
    /// Shows the faults at their places.
    fn told(self, console: Console) -> Failure {
        match self {
            Self::Faults(faults) => faults.told(console),
            Self::Failed(failure) => failure,
        }
    }
}

impl<'t> From<Faults<'t>> for Unrun<'t> {
    fn from(faults: Faults<'t>) -> Self {
        Self::Faults(faults)
    }
}

impl From<Failure> for Unrun<'_> {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// How a run goes, beside its file.
pub(super) struct How<'a> {
    pub(super) limits: &'a RunLimits,
    pub(super) json: bool,
    pub(super) overrides: Overrides,
    /// Where it can be asked and changed; nowhere where there is none.
    pub(super) control: Option<&'a ControlArguments>,
    /// The path of the file, where it was not restored from the state directory.
    pub(super) file: Option<&'a Path>,
    /// Values of a Click configuration's parameters.
    pub(super) parameters: &'a [String],
    /// The graph's name, where it is not that of the file.
    pub(super) graph: Option<&'a str>,
    /// Called once the run has begun, with the way to its director.
    pub(super) begun: Option<&'a dyn Fn(&Tasks)>,
}

impl<'a> How<'a> {
    /// As the file says.
    pub(super) fn plain(limits: &'a RunLimits, json: bool) -> Self {
        let overrides = Overrides::default();
        Self { limits, json, overrides, control: None, file: None, parameters: &[], graph: None, begun: None }
    }
}

/// Faults of a file that show once the number of workers is known.
fn circumstances(checked: &Checked<'_>, ports: &OpenPorts, workers: usize) -> Vec<Diagnostic> {
    let Checked { plan, network, .. } = checked;
    let mut found: Vec<Diagnostic> = overcommitted(plan, workers, checked.frames).into_iter().collect();
    found.extend(network.unmet(plan, workers));
    // No shuffle is put in with `shuffles = false`, or where the key of a function's state is not known.
    let split = network.split(plan, &ports.divisions(), workers);
    let split = split.iter().filter(|split| split.key.is_none() || !plan.runtime.shuffles);
    found.extend(split.map(|split| split.warning(plan)));
    found
}

/// Runs a checked file to its end.
pub(super) fn execute<'t>(
    app: &Application,
    console: Console,
    file: &File,
    checked: Checked<'t>,
    how: &How<'_>,
    store: Option<Store>,
) -> Result<Summary, Unrun<'t>> {
    let How { limits, json, .. } = *how;
    console.show(&checked.diagnostics, &checked.source);
    let Checked { plan, network, .. } = &checked;
    let allowed = allowed_cores();
    let mut found = Diagnostics::default();
    plan.forbidden_cores(&allowed).into_iter().for_each(|error| found.push(error));
    plan.unattested(&file.directory).into_iter().for_each(|error| found.push(error));
    if found.has_errors() {
        return Err(Faults { source: checked.source, diagnostics: found }.into());
    }
    let wanted = file::wanted_workers(network, plan);
    let pool = pool_for(plan, &app.drivers, wanted).map_err(|error| Failure::Failed(error.to_string()))?;
    // Already shown: these lines are for the report only.
    let mut told = checked.diagnostics.lines(&checked.source);

    let interrupted = interruptible()?;
    let opened = OpenPorts::open(plan, &pool, wanted, &file.directory, &mut found);
    let Some(mut ports) = opened else {
        return Err(Faults { source: checked.source, diagnostics: found }.into());
    };
    // A replay repeats exactly only while one worker does all of the work.
    let is_replay = ports.is_replay(network);
    let alone = plan.runtime.workers.is_none() && plan.placed_workers() == 0 && is_replay;
    let workers = if alone { 1 } else { wanted };
    circumstances(&checked, &ports, workers).into_iter().for_each(|told| found.push(told));
    if found.has_errors() {
        return Err(Faults { source: checked.source, diagnostics: found }.into());
    }
    console.show(&found, &checked.source);
    told.extend(found.lines(&checked.source));
    let mut warnings = Vec::new();
    let mut unsteered = Diagnostics::default();
    let Some(filters) = filtered(&checked, &mut ports, workers, &mut unsteered) else {
        return Err(Faults { source: checked.source, diagnostics: unsteered }.into());
    };
    console.show(&unsteered, &checked.source);
    told.extend(unsteered.lines(&checked.source));
    let parted = network.parted(plan, &filters.divisions(&ports.divisions()), workers);
    let checked = Checked { filters, ..checked };
    let mut checked = if checked.plan.runtime.shuffles {
        let checked = checked.with_shuffles(file, parted)?;
        let split = checked.network.split(&checked.plan, &ports.divisions(), workers);
        checked.with_key_shuffles(file, split)?
    } else {
        warnings.extend(
            parted.into_iter().map(|Parted { why, .. }| format!("{why}; {}", file::WITHOUT_SHUFFLES)),
        );
        checked
    };
    if let Some(name) = how.graph {
        name.clone_into(&mut checked.design.name);
    }
    let put_in: Vec<String> = checked.told_shuffles().chain(checked.filters.told()).collect();
    let shuffles = checked.shuffles.iter().map(ShuffleSummary::from).collect();
    let Checked { plan, network, design, .. } = &checked;
    let settings = &plan.runtime;
    let shares =
        ports.share_out(plan, network, workers).map_err(|error| Failure::Failed(error.to_string()))?;
    let queues: Vec<Vec<(usize, usize)>> = shares.iter().map(|share| share.queues.clone()).collect();
    let mut installed = Installed::new(&checked, file, &queues);
    installed.graph.name.clone_from(&design.name);
    let workers = shares.len();
    if settings.workers.is_some_and(|asked| asked > workers) {
        warnings.push(left_out(wanted, workers));
    }
    warnings.extend(ports.iter().flat_map(Port::warnings));
    // Small pages cost speed but no packets, so `--quiet` leaves this warning out.
    let pages = pool.pages().warning();
    for warning in pages.iter().filter(|_| !limits.quiet).chain(&warnings) {
        console.complain(Level::Warning, warning);
    }
    told.extend(pages);
    told.append(&mut warnings);

    let placed = placement(settings)
        .assign(workers, &allowed)
        .map_err(|error| Failure::Failed(format!("`cores`: {error}")))?;
    let places = places(plan, &shares, &placed);
    if !json && !limits.quiet && !limits.unannounced {
        console.tell(&opening(file, plan, &placed, &pool));
        if places.len() > 1 {
            places.iter().for_each(|place| console.tell(&format!("  {place}\n")));
        }
        put_in.iter().for_each(|line| console.tell(line));
    }

    let free = free_cores(&allowed, &placed);
    let opened = Opened {
        app,
        console,
        file,
        how,
        plan,
        design,
        pool: &pool,
        ports,
        shares,
        installed,
        told,
        shuffles,
        places,
        free,
        is_replay,
        interrupted: &interrupted,
    };
    Ok(opened.run(store)?)
}

/// Derives the filters of ports that steer by the graph, and gives them to the ports.
///
/// `None` where that fails. The faults are in `diagnostics`, and so are warnings.
fn filtered(
    checked: &Checked<'_>,
    ports: &mut OpenPorts,
    workers: usize,
    diagnostics: &mut Diagnostics,
) -> Option<Filters> {
    let open = |port: &str| ports.find(port)?.filtered_by();
    let filters = file::filters_of(checked, &ports.divisions(), workers, &open);
    filters.faults(&checked.plan).into_iter().for_each(|fault| diagnostics.push(fault));
    if !diagnostics.has_errors() {
        for (number, error) in filters.install(ports) {
            diagnostics.push(config::refusal(&error, &checked.plan.ports[number].settings));
        }
    }
    (!diagnostics.has_errors()).then_some(filters)
}

/// The warning about workers that have no queue.
fn left_out(wanted: usize, workers: usize) -> String {
    format!(
        "{} of {wanted} workers would receive nothing and {} left out: the ports that chains receive from have no \
         more queues to share out",
        wanted - workers,
        if wanted - workers == 1 { "is" } else { "are" }
    )
}

/// A run whose ports are open, and that has not begun.
struct Opened<'a> {
    app: &'a Application,
    console: Console,
    file: &'a File,
    how: &'a How<'a>,
    plan: &'a Plan<'a>,
    design: &'a Design,
    pool: &'a Pool,
    ports: OpenPorts,
    shares: Vec<WorkerPorts>,
    installed: Installed,
    /// Lines for the final report.
    told: Vec<String>,
    shuffles: Vec<ShuffleSummary>,
    places: Vec<WorkerPlace>,
    /// Cores without a worker.
    free: Option<Vec<usize>>,
    is_replay: bool,
    interrupted: &'a Interrupts,
}

impl<'a> Opened<'a> {
    /// Runs it to its end, beside a thread that prepares changes.
    fn run(self, store: Option<Store>) -> Result<Summary, Failure> {
        let (preparing, preparer) =
            Preparing::new(self.free.clone()).map_err(|error| Failure::Failed(error.to_string()))?;
        let summary = self.attended(store, preparing);
        preparer.end();
        summary
    }

    fn attended(self, store: Option<Store>, preparing: Preparing) -> Result<Summary, Failure> {
        let Self { app, console, file, how, plan, pool, ports, installed, places, free, .. } = self;
        let How { limits, json, overrides, control, begun: on_begin, .. } = *how;
        let name = installed.design.name.clone();
        let side = |arguments| {
            ControlSide::new(&plan.control, arguments, store, &name, &file.directory, !self.is_replay)
        };
        let mut side = control.map(side).transpose()?;
        let (tasks, waiting) = Waiting::new();
        let (events, heard) = heard_events(&tasks);
        let workers = self.shares.len();
        let seed = plan.runtime.seed(self.is_replay).map_err(|error| Failure::Failed(error.to_string()))?;
        let mut config = runtime_config(&plan.runtime, seed, pool, workers).events(events);
        config.duration = limits.duration.map(Duration::from);
        let copies = functions_of(&installed, |_| false, (pool, seed), workers)
            .map_err(|problem| Failure::Failed(problem.detail))?;
        // No packet comes before what handlers changed is there again.
        let waits = side.as_ref().is_some_and(|side| side.store.is_some());
        let runtime = start(config, self.shares, self.design, waits)?;
        let _memory = GivenBackLater::begin();
        let base = Summary {
            warnings: self.told,
            workers,
            placement: places.clone(),
            shuffles: self.shuffles,
            seed,
            ..Summary::default()
        };
        let begun = Begun { layout: installed.layout.clone(), pool, base, closed: Vec::new() };
        let store = side.as_mut().and_then(|side| side.store.take());
        let files = file.named_files();
        let mut records =
            Records::with_files(installed.source.clone(), &files, now_ns(), Events::new(), store)
                .map_err(|error| Failure::Failed(error.to_string()))?;
        let grants = Grants::default();
        grants.set(grants_of(&installed.tenants).map_err(Failure::Failed)?);
        let listening =
            side.map(|side| side.listen(console, &tasks, records.events(), &grants, free.clone()));
        let listener = listening.transpose()?.flatten();
        records.set_place(&name, listener.as_ref().and_then(Listener::unix));
        if let Some(cores) = &free {
            // The director stays where no worker is; without permission it goes where the kernel puts it.
            let _anywhere = netbricks_control::server::run_on(cores);
            log::run_on(cores);
        }
        if let Some(path) = listener.as_ref().and_then(Listener::unix).filter(|_| !json && !limits.quiet) {
            let path = path.display();
            console.tell(&format!("  listens on {path} for `netbricks status`, `shell` and others\n"));
        }
        let mut session = Session {
            app,
            overrides,
            control: runtime.control().clone(),
            preparing,
            started: Instant::now(),
            pool,
            ports,
            installed: Arc::new(installed),
            copies,
            seed,
            places,
            begun,
            watchdog: SharedWatchdog::new(runtime.control()),
            reports: LastReports::default(),
            tasks,
            control_tasks: None,
            grants,
            events: records.events().clone(),
            state: if waits { RunState::Suspended } else { RunState::Running },
        };
        if let Some(begun) = on_begin {
            begun(&session.tasks);
        }
        if waits {
            begin_again(&mut session, &mut records);
        }
        // After the journal: a task that writes the same handlers has the last word.
        if !self.is_replay {
            let mut tasks = ControlTasks::new(&session.tasks, &session.events, free);
            tasks.follow(&session.installed, &BTreeSet::new());
            session.control_tasks = Some(tasks);
        }
        let reloads = listener.as_ref().map(|_| Reloaded::of(how.file, how.parameters, file));
        let interrupts = self.interrupted;
        let attending = Attending { reloads, console, limits, json, interrupts, heard: &heard };
        let (report, events) = attend(&attending, runtime, &mut session, &waiting, &mut records)?;
        drop(listener);
        drop(session.control_tasks.take());
        let Session { begun, ports, .. } = session;
        Ok(ended(console, begun, ports, &report, events))
    }
}

/// Makes the writes of the journal again, and lets packets come.
fn begin_again(session: &mut Session<'_>, records: &mut Records) {
    Director::new(session, records).replay();
    if let Err(problem) = session.resume() {
        // A worker that has ended is told of by the run; the others wait for `netbricks resume`.
        session.events.tell(EventLevel::Error, "suspended", "", problem.detail);
    }
}

/// Makes the summary of a run that has ended, and closes its ports.
fn ended(
    console: Console,
    mut begun: Begun<'_>,
    mut ports: OpenPorts,
    report: &FinalReport,
    events: Vec<String>,
) -> Summary {
    begun.base.warnings.extend(events);
    let told = begun.base.warnings.len();
    let mut summary = begun.ended(report, &mut ports);
    // Devices keep buffers to receive into as long as their ports are open.
    drop(ports);
    let (available, capacity) = (begun.pool.available(), begun.pool.capacity());
    if available != capacity && summary.conserved && summary.held == 0 {
        summary
            .warnings
            .push(format!("{} of {capacity} packet buffers have not come home", capacity - available));
    }
    for warning in &summary.warnings[told..] {
        console.complain(Level::Warning, warning);
    }
    summary.add_hints();
    summary
}

/// Starts the workers, each with its share of the ports' queues; `suspended` workers ask no port yet.
fn start(
    config: Config,
    shares: Vec<WorkerPorts>,
    design: &Design,
    suspended: bool,
) -> Result<Runtime, Failure> {
    let shares: Vec<Mutex<Option<WorkerPorts>>> =
        shares.into_iter().map(|share| Mutex::new(Some(share))).collect();
    // All workers share one clock, so that their times compare.
    let real = Clock::real();
    Runtime::start(config, |worker| {
        // The runtime asks for each worker once.
        let share =
            shares.get(worker).and_then(|share| share.lock().unwrap_or_else(PoisonError::into_inner).take());
        let share = share.unwrap_or_default();
        let clock = if share.drives_clock { Clock::Driven } else { real.clone() };
        let design = design.clone();
        Factory::new(move |context| -> Result<_, GraphError> {
            let graph = design.builder(share, context.worker())?;
            let mut graph = graph.build(context.pool().clone())?;
            if suspended {
                graph.suspend();
            }
            Ok(graph)
        })
        .clock(clock)
    })
    .map_err(|error| Failure::Failed(error.to_string()))
}

/// The pool that a plan asks for; each of the `workers` keeps some packets in its own stock.
pub(crate) fn pool_for(plan: &Plan<'_>, drivers: &Drivers, workers: usize) -> Result<Pool, PoolError> {
    let takes_frames = |driver: &str| drivers.get(driver).is_some_and(|driver| driver.device_frames);
    let device = plan.ports.iter().any(|port| takes_frames(&port.driver));
    let writer = if device { Writer::Device } else { Writer::Us };
    frames::pool(plan.frames(workers), plan.large_frames(), writer, workers)
}

/// The cores that workers run on.
pub(crate) fn placement(settings: &RuntimeSettings) -> Placement {
    match &settings.cores {
        Some(cores) => Placement::Cores(cores.get_ref().numbers()),
        None => Placement::Automatic,
    }
}

/// The runtime's configuration, from the settings in `[runtime]`.
pub(crate) fn runtime_config(settings: &RuntimeSettings, seed: u64, pool: &Pool, workers: usize) -> Config {
    let mut config = Config::new(pool.clone()).workers(workers).placement(placement(settings));
    config.idle = match settings.idle {
        Idle::Latency => IdlePolicy::Latency,
        Idle::Balanced => IdlePolicy::Balanced,
        Idle::Quiet => IdlePolicy::Quiet,
    };
    config.seed = seed;
    config.burst = settings.burst;
    config
}

/// A worker for each group of ports that must share one, and a core left for everything else.
pub(super) fn automatic_workers(network: &Network, plan: &Plan<'_>) -> usize {
    let mut groups: Vec<usize> = (0..plan.ports.len())
        .filter(|port| network.has(Place::Receive(*port)))
        .map(|port| network.groups[port])
        .collect();
    groups.sort_unstable();
    groups.dedup();
    let listed = plan.runtime.cores.as_ref().map_or(usize::MAX, |cores| cores.get_ref().numbers().len());
    let most = allowed_cores().len().saturating_sub(1).min(listed).max(1);
    // With a shuffle there is work for every worker, even if there are few queues.
    if network.crosses() { most } else { groups.len().clamp(1, most) }
}

/// The queues that each worker receives from, and the core that it runs on.
pub(crate) fn places(plan: &Plan<'_>, shares: &[WorkerPorts], cores: &[Option<usize>]) -> Vec<WorkerPlace> {
    let queue = |(port, queue): &(usize, usize)| format!("{}.{queue}", plan.ports[*port].name);
    shares
        .iter()
        .zip(cores)
        .enumerate()
        .map(|(worker, (share, core))| WorkerPlace {
            worker,
            core: *core,
            receives: share.queues.iter().map(queue).collect(),
        })
        .collect()
}

/// `edge.toml  2 ports · 2 chains · 2 functions · 2 workers on cores 1–2 · 512 MB in huge pages`
fn opening(file: &File, plan: &Plan<'_>, placed: &[Option<usize>], pool: &Pool) -> String {
    let mut numbers: Vec<usize> = placed.iter().copied().flatten().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let on = if numbers.is_empty() { String::new() } else { format!(" on {}", cores(&numbers)) };
    let pages = if pool.pages().warning().is_none() { "huge pages" } else { "small pages" };
    format!(
        "{}  {} · {} · {} · {}{on} · {} in {pages}\n",
        file.name,
        counted(plan.ports.len(), "port"),
        counted(plan.chains.len(), "chain"),
        counted(plan.functions.len(), "function"),
        counted(placed.len(), "worker"),
        memory(pool.memory() as u64)
    )
}

/// While it lives, memory that workers drop is given back by the director.
struct GivenBackLater;

impl GivenBackLater {
    fn begin() -> Self {
        stock::give_back_later(true);
        Self
    }
}

impl Drop for GivenBackLater {
    fn drop(&mut self) {
        stock::give_back_later(false);
    }
}

/// The allowed cores on which no worker runs, where there are any.
fn free_cores(allowed: &[usize], placed: &[Option<usize>]) -> Option<Vec<usize>> {
    let free: Vec<usize> = allowed.iter().copied().filter(|core| !placed.contains(&Some(*core))).collect();
    (!free.is_empty()).then_some(free)
}

/// A run that has begun: what its reports start from.
pub(crate) struct Begun<'a> {
    pub(crate) layout: Layout,
    pub(crate) pool: &'a Pool,
    /// Ports that were closed before the end.
    pub(crate) closed: Vec<PortSummary>,
    /// The part of the summary that was known before the run began.
    pub(crate) base: Summary,
}

impl Begun<'_> {
    /// Makes the run's summary. Closes the ports.
    pub(crate) fn ended(&self, report: &FinalReport, ports: &mut OpenPorts) -> Summary {
        let mut summary = self.summarise(report, ports, report.seconds);
        summary.conserved &= report.conserved;
        summary.failures = ports.close();
        for worker in &report.workers {
            summary
                .failures
                .extend(worker.failure.iter().map(|failure| format!("worker {}: {failure}", worker.worker)));
            summary.failures.extend(worker.failed_nodes.iter().cloned());
            if let Some(why) = worker.gave_up.as_ref().filter(|why| !summary.failures.contains(why)) {
                summary.failures.push(why.clone());
            }
        }
        summary
    }

    /// Makes the summary so far.
    ///
    /// Each worker answers between two of its batches, so the numbers of different workers are of different
    /// moments.
    ///
    /// # Errors
    /// When a worker is stuck.
    pub(crate) fn so_far(&self, runtime: &Runtime, ports: &OpenPorts) -> Result<Summary, CommandError> {
        let seconds = runtime.elapsed().as_secs_f64();
        let snapshot = runtime.snapshot()?;
        let mut summary = self.summarise(&snapshot, ports, seconds);
        summary.running = true;
        summary.add_hints();
        // Packets on their way between workers count as held, too.
        let (handed, taken) = (snapshot.totals.handoff_out.packets, snapshot.totals.handoff_in.packets);
        summary.held += handed.saturating_sub(taken);
        Ok(summary)
    }

    /// Combines the counters of workers and ports.
    fn summarise(&self, report: &Snapshot, ports: &OpenPorts, seconds: f64) -> Summary {
        let Self { layout, pool, base, closed } = self;
        let mut summary = Summary {
            unbalanced: report.unbalanced.clone(),
            panics: report.panics.clone(),
            pool: PoolSummary::from(*pool),
            seconds,
            ..base.clone()
        };
        summary.ports = ports.iter().map(port_summary).collect();
        let gone = closed.iter().filter(|gone| ports.find(&gone.name).is_none());
        summary.ports.extend(gone.cloned());
        for node in &report.nodes {
            // A port's second receive queue on one worker is `lan.2`.
            let base = node.node.rsplit_once('.').filter(|(_, tail)| tail.parse::<usize>().is_ok());
            let port_name = base.map_or(node.node.as_str(), |(name, _)| name);
            let port = summary
                .ports
                .iter_mut()
                .find(|port| receive_name(&port.name) == port_name || transmit_name(&port.name) == node.node);
            let use_ = layout.uses.iter().find(|(name, _)| *name == node.node);
            let of = match (use_, port) {
                (Some((_, function)), _) => function.clone(),
                (None, Some(port)) => {
                    port.add(&node.counters);
                    port.name.clone()
                }
                (None, None) => node.node.clone(),
            };
            summary.nodes.push(NodeSummary::new(
                node.node.clone(),
                of,
                node.owner,
                node.role,
                node.kind.clone(),
                node.counters.clone(),
            ));
        }
        summary.tenants.clone_from(&report.tenants);
        for worker in &report.workers {
            for header in worker.graphs.iter().flat_map(|graph| &graph.dropped_headers) {
                if let Some(node) = summary.nodes.iter_mut().find(|node| node.name == header.node) {
                    node.recorded.push(RecordedPacket::new(worker.worker, header.clone()));
                }
            }
        }
        let unconnected = |name: &str| {
            let node = summary.nodes.iter().find(|node| node.name == name);
            node.and_then(|node| node.dropped.get(DropReason::Unconnected.name())).copied().unwrap_or(0)
        };
        let unanswered = layout.unanswered(unconnected);
        summary.warnings.extend(unanswered);
        // Workers reach different nodes, so sort all nodes in the order of the chains.
        let order = |node: &NodeSummary| {
            let use_ = layout.uses.iter().position(|(name, _)| *name == node.name);
            (node.role != "receive", node.role == "transmit", use_)
        };
        summary.nodes.sort_by_key(order);
        summary.sections = report
            .sections
            .iter()
            .map(|section| NodeSection { node: section.node.clone(), section: section.section.clone() })
            .collect();
        summary.set_totals(&report.totals);
        summary
    }
}

pub(super) fn port_summary(port: &dyn Port) -> PortSummary {
    let counters = port.counters();
    let sum = |of: fn(&Counters) -> &AtomicU64| {
        counters.iter().map(|queue: &Arc<Counters>| of(queue).load(Ordering::Relaxed)).sum()
    };
    PortSummary {
        name: port.name().to_owned(),
        driver: port.driver().to_owned(),
        link: link_name(port.link()).to_owned(),
        mtu: port.mtu(),
        returned: port.returned(),
        missed: sum(|counters| &counters.missed),
        bad_checksum: sum(|counters| &counters.bad_checksum),
        linearised: sum(|counters| &counters.linearised),
        no_buffer: sum(|counters| &counters.no_buffer),
        too_big_to_receive: sum(|counters| &counters.too_big_to_receive),
        too_big_to_send: sum(|counters| &counters.too_big_to_send),
        cut: sum(|counters| &counters.cut),
        overlong: sum(|counters| &counters.overlong),
        duplicated: sum(|counters| &counters.duplicated),
        reordered: sum(|counters| &counters.reordered),
        corrupted: sum(|counters| &counters.corrupted),
        queues: counters
            .iter()
            .take(port.capabilities().receive_queues)
            .map(|queue| queue.received.load(Ordering::Relaxed))
            .collect(),
        steered: !port.rules().is_empty(),
        filtered_by: port.filtered_by().map(|filtering| filtering.by),
        warnings: port.warnings(),
        ..PortSummary::default()
    }
}

#[cfg(test)]
mod tests {
    use netbricks_ports::memory::Memory;

    use super::*;

    /// The report has each counter of a port, summed over its queues, under its own name.
    ///
    /// The documentation names all keys.
    #[test]
    fn port_counters_are_reported_and_documented() {
        let pool = Pool::builder().frames(64).build().expect("memory");
        let (port, _far) = Memory::new("lan", 2, 16, &pool);
        for (queue, counters) in (1..).zip(port.counters()) {
            let of = [
                &counters.missed,
                &counters.bad_checksum,
                &counters.linearised,
                &counters.no_buffer,
                &counters.too_big_to_receive,
                &counters.too_big_to_send,
                &counters.cut,
                &counters.overlong,
                &counters.duplicated,
                &counters.reordered,
                &counters.corrupted,
            ];
            for (number, counter) in (1..).zip(of) {
                counter.store(100 * number + queue, Ordering::Relaxed);
            }
        }
        let summary = serde_json::to_value(port_summary(&port)).expect("numbers and text");
        let names = [
            "missed",
            "bad_checksum",
            "linearised",
            "no_buffer",
            "too_big_to_receive",
            "too_big_to_send",
            "cut",
            "overlong",
            "duplicated",
            "reordered",
            "corrupted",
        ];
        for (number, name) in (1..).zip(names) {
            assert_eq!(summary[name].as_u64(), Some(200 * number + 3), "{name}");
        }
        let documented = include_str!("../../README.md").lines().find(|line| line.starts_with("| `ports` |"));
        let documented = documented.expect("a row of the table of keys");
        for key in summary.as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
        }
    }
}
