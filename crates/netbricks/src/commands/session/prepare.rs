//! Preparing a change: all of it that can be done while the director answers others and packets move.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use netbricks_buffer::Pool;
use netbricks_control::api::{self, Code, Problem};
use netbricks_control::{Answer, Prepared, Wanted, Written};
use netbricks_core::graph::contain;
use netbricks_core::tables::stock;
use netbricks_core::{Worker, WorkerGroup};
use netbricks_ports::Port;
use netbricks_ports::steer::Filtering;
use netbricks_runtime::Control;

use super::super::Application;
use super::super::file::{self, Checked, Faults, File};
use super::apply::functions_of;
use super::installed::{Difference, Installed, Undo};
use super::{Overrides, Session};
use crate::chain::{Circumstances, Division, Filters, OpenPorts, Opening, overcommitted};
use crate::config::Plan;
use crate::diagnostic::{Diagnostic, Diagnostics, Level, Source};
use crate::report::thousands;

/// A preparation on the thread for them.
type Job = Box<dyn FnOnce() + Send>;

/// The time that a preparation under way has to end after the run.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to the thread that prepares changes, one after the other.
pub(crate) struct Preparing(Sender<Job>);

/// The thread that prepares changes; it ends when no more can come.
pub(crate) struct Preparer(Receiver<()>);

impl Preparing {
    /// Starts the thread; not on a worker's core, where others are free.
    pub(crate) fn new(free: Option<Vec<usize>>) -> std::io::Result<(Self, Preparer)> {
        let (jobs, wanted) = channel::<Job>();
        let (ends, ended) = channel();
        let prepare_all = move || {
            let _told = ends;
            if let Some(cores) = free {
                // Without permission it goes where the kernel puts it.
                let _anywhere = netbricks_control::server::run_on(&cores);
            }
            wanted.iter().for_each(|job| job());
        };
        std::thread::Builder::new().name("netbricks-prepare".into()).spawn(prepare_all)?;
        Ok((Self(jobs), Preparer(ended)))
    }

    /// Has a change prepared. Where the thread has ended, `done` is dropped.
    pub(super) fn prepare(&self, basis: Basis, wanted: Wanted, done: Answer<Prepared>) {
        let job = move || {
            let prepared = contain(|| basis.prepare(&wanted));
            done(prepared.unwrap_or_else(|caught| {
                Err(Problem::new(Code::Internal, format!("checking the file panicked: {}", caught.message)))
            }));
        };
        let _ended = self.0.send(Box::new(job));
    }
}

impl Preparer {
    /// Lets a preparation end, after the run has dropped the way to it. One that does not is left behind.
    pub(crate) fn end(self) {
        let _late = self.0.recv_timeout(PATIENCE);
    }
}

/// A port that is open.
struct Running {
    name: String,
    number: Option<u16>,
    division: Division,
    filtering: Option<Filtering>,
}

/// All that preparing a change has to know of what runs.
pub(super) struct Basis {
    app: Application,
    overrides: Overrides,
    control: Control,
    pool: Pool,
    seed: u64,
    installed: Arc<Installed>,
    ports: Vec<Running>,
    /// The number of the next port.
    next: u16,
}

/// A file that passed all checks, and what it changes.
pub(super) struct Candidate {
    pub(super) installed: Installed,
    pub(super) difference: Difference,
    /// The writes of handlers that it knows of.
    pub(super) written: Arc<[Written]>,
    pub(super) warnings: Vec<String>,
    /// The receive queues of each worker, by port number.
    pub(super) shares: Vec<Vec<(usize, usize)>>,
}

impl Candidate {
    /// Lets functions that are made again begin without these writes, which the journal then makes again.
    pub(super) fn undo_late(&mut self, late: &[Written]) {
        let Self { installed, difference, .. } = self;
        let of = |name: &String| {
            late.iter().any(|written| written.function == *name) && !difference.kept_functions.contains(name)
        };
        let functions = installed.functions.iter().filter(|function| of(&function.name));
        difference.kept.undone.extend(functions.flat_map(|function| function.nodes.iter().cloned()));
    }
}

/// A prepared change.
pub(super) struct Parts {
    pub(super) candidate: Candidate,
    /// The new ports, or why they are not open.
    pub(super) opened: Result<OpenPorts, Problem>,
    /// The configuration that it changes.
    pub(super) basis: Arc<Installed>,
}

impl Session<'_> {
    /// All that preparing a change has to know of what runs.
    pub(super) fn basis(&self) -> Basis {
        let running = |port: &dyn Port| Running {
            name: port.name().to_owned(),
            number: self.ports.number(port.name()),
            division: Division::of(port),
            filtering: port.filtered_by(),
        };
        Basis {
            app: self.app.clone(),
            overrides: self.overrides,
            control: self.control.clone(),
            pool: self.pool.clone(),
            seed: self.seed,
            installed: self.installed.clone(),
            ports: self.ports.iter().map(running).collect(),
            next: self.ports.next_number(),
        }
    }
}

impl Basis {
    /// The configuration that runs.
    pub(super) fn installed(&self) -> &Installed {
        &self.installed
    }

    /// The control side of the workers.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// A worker for nodes that never run, as they are made beside the running ones.
    pub(super) fn trial_worker(&self) -> Worker {
        let group = WorkerGroup::new(self.control.workers());
        Worker::new(0, self.seed, self.pool.clone()).in_group(group).on_trial()
    }

    fn port(&self, name: &str) -> Option<&Running> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Checks a file, opens its new ports, and makes its large tables.
    pub(super) fn prepare(&self, wanted: &Wanted) -> Result<Prepared, Problem> {
        // What workers do for it from here on belongs to the change.
        self.control.take_longest_pause();
        let file = File::of(&wanted.source, &wanted.files);
        let checked = self.checked(&file)?;
        let opened = match wanted.is_plan {
            true => Ok(OpenPorts::none()),
            false => self.open_new(&checked, &file),
        };
        let expected = file::expected(&checked.plan, &self.app.drivers, self.control.workers());
        let none = OpenPorts::none();
        let known = opened.as_ref().unwrap_or(&none);
        let (undone, rewritten) = (Some(&wanted.undone), Some(&wanted.rewritten));
        let quarantined = self.control.in_quarantine();
        let undo = Undo { undone, rewritten, written: &wanted.written, quarantined: Some(&quarantined) };
        let mut candidate = self.candidate(checked, &file, known, &expected, &undo)?;
        candidate.written = wanted.written.clone();
        self.tell_tables(&mut candidate.difference.changes);
        self.label_ports(&mut candidate, known);
        self.tell_states(&mut candidate);
        let plan = plan_of(&candidate);
        if opened.is_ok() && !wanted.is_plan {
            self.keep_blueprints(&mut candidate);
            let kept = |name: &str| candidate.difference.kept_functions.contains(name);
            let workers = self.control.workers();
            // State that workers share is made here, so that the director and the workers only join it.
            drop(functions_of(&candidate.installed, kept, (&self.pool, self.seed), workers)?);
            self.stock_up(&candidate)?;
        }
        let parts = Parts { candidate, opened, basis: self.installed.clone() };
        Ok(Prepared::new(wanted.clone(), plan, parts))
    }

    /// Checks all of a file that can be checked without opening a port.
    fn checked<'t>(&self, file: &'t File) -> Result<Checked<'t>, Problem> {
        let checked = file::check_with(&self.app, file, |runtime| self.overrides.adjust(runtime));
        let checked = checked.map_err(|faults| faulty(&faults))?;
        let fixed = self.installed.fixed_settings(&checked.plan.runtime);
        if !fixed.is_empty() {
            let names: Vec<String> = fixed.iter().map(|name| format!("`{name}`")).collect();
            let detail = format!("{} in `[runtime]` cannot change while packets move", names.join(", "));
            return Err(Problem::new(Code::NeedsRestart, detail)
                .help("leave the old value, or stop the run and start it with this file"));
        }
        Ok(checked)
    }

    /// Opens the ports that the file has and the run has not.
    fn open_new(&self, checked: &Checked<'_>, file: &File) -> Result<OpenPorts, Problem> {
        let new = self.installed.opened_by(&Installed::new(checked, file, &[]));
        let opening =
            Opening { pool: &self.pool, queues: self.control.workers(), directory: &file.directory };
        let mut diagnostics = Diagnostics::default();
        let wanted = |name: &str| new.contains(name);
        let opened = OpenPorts::open_beside(self.next, &checked.plan, wanted, &opening, &mut diagnostics);
        opened.ok_or_else(|| {
            let problem = problem_of(&diagnostics, &checked.source);
            match new.iter().any(|name| self.port(name).is_some()) {
                false => problem,
                true => problem.help(
                    "where the old port still holds the device, take the port out by one `apply` and put it in by the next",
                ),
            }
        })
    }

    /// Finds out what the file changes, with the shuffles that its state needs.
    fn candidate(
        &self,
        checked: Checked<'_>,
        file: &File,
        opened: &OpenPorts,
        expected: &[Division],
        undo: &Undo<'_>,
    ) -> Result<Candidate, Problem> {
        let workers = self.control.workers();
        if let Some(error) = overcommitted(&checked.plan, workers, self.pool.region().frames) {
            let mut faults = Diagnostics::default();
            faults.push(error);
            return Err(problem_of(&faults, &checked.source));
        }
        let divisions: Vec<Division> = checked
            .plan
            .ports
            .iter()
            .zip(expected)
            .map(|(port, expected)| {
                let opened = opened.find(&port.name).map(Division::of);
                let running = || self.port(&port.name).map(|port| port.division.clone());
                opened.or_else(running).unwrap_or_else(|| expected.clone())
            })
            .collect();
        let mut warnings = checked.diagnostics.lines(&checked.source);
        let share = |checked: &Checked<'_>| {
            let queues: Vec<usize> = divisions.iter().map(|division| division.queues).collect();
            let running = self.running_shares(&checked.plan);
            checked.network.deal_beside(&checked.plan, &queues, &running)
        };
        let told = |faults: Faults<'_>| faulty(&faults);
        let shares = share(&checked);
        checked
            .network
            .unmet(&checked.plan, workers)
            .iter()
            .for_each(|unmet| warnings.push(checked.source.line_of(unmet)));
        let open = |name: &str| match opened.find(name) {
            Some(port) => port.filtered_by(),
            None => self.port(name)?.filtering.clone(),
        };
        let filters = self.filters_of(&checked, &divisions, &shares, &open);
        let mut unsteered = Diagnostics::default();
        filters.faults(&checked.plan).into_iter().for_each(|fault| unsteered.push(fault));
        if unsteered.has_errors() {
            return Err(problem_of(&unsteered, &checked.source));
        }
        warnings.extend(unsteered.lines(&checked.source));
        let filtered = filters.divisions(&divisions);
        let checked = Checked { filters, ..checked };
        let parted = checked.network.parted_among(&checked.plan, &filtered, &shares);
        let checked = if checked.plan.runtime.shuffles {
            let checked = checked.with_shuffles(file, parted).map_err(told)?;
            let split = checked.network.split_among(&checked.plan, &share(&checked));
            checked.with_key_shuffles(file, split).map_err(told)?
        } else {
            warnings.extend(
                parted.into_iter().map(|parted| format!("{}; {}", parted.why, file::WITHOUT_SHUFFLES)),
            );
            let split = checked.network.split_among(&checked.plan, &shares);
            warnings.extend(split.iter().map(|split| split.line()));
            checked
        };
        let shares = share(&checked);
        let mut installed = Installed::new(&checked, file, &shares);
        // The graph's name stays while the process runs.
        installed.design.name.clone_from(&self.installed.design.name);
        installed.graph.name.clone_from(&self.installed.design.name);
        let difference = self.installed.changes_to(&installed, undo);
        installed.keep_transmits(&difference.kept);
        warnings.extend(self.installed.later(&installed));
        Ok(Candidate { installed, difference, written: Arc::default(), warnings, shares })
    }

    /// The filters of ports that steer by the graph: rules go to the paths with the most packets so far.
    fn filters_of(
        &self,
        checked: &Checked<'_>,
        divisions: &[Division],
        shares: &[Vec<(usize, usize)>],
        open: &dyn Fn(&str) -> Option<Filtering>,
    ) -> Filters {
        // Workers are asked only where a port steers by the graph.
        let arrived = OnceCell::new();
        let packets = |name: &str| {
            let arrived: &BTreeMap<String, u64> = arrived.get_or_init(|| self.arrived());
            arrived.get(name).copied().unwrap_or(0)
        };
        let circumstances = Circumstances { packets: &packets, open, before: &self.installed.filters };
        checked.network.filters(&checked.plan, divisions, shares, &circumstances)
    }

    /// Tells of functions that go how many entries their tables have now.
    fn tell_tables(&self, changes: &mut [api::Change]) {
        let ends =
            |change: &&mut api::Change| change.part == "function" && change.kind == api::ChangeKind::Removed;
        let mut changes = changes.iter_mut().filter(ends).peekable();
        // Workers are asked only where there is something to tell.
        let Some(Ok(snapshot)) = changes.peek().map(|_| self.control.counters()) else { return };
        for change in changes {
            let Some(function) = self.installed.functions.iter().find(|known| known.name == change.name)
            else {
                continue;
            };
            let mut tables: BTreeMap<&str, u64> = BTreeMap::new();
            for table in snapshot.tables.iter().filter(|table| function.nodes.contains(&table.node)) {
                *tables.entry(&table.table).or_default() += table.entries;
            }
            for (table, entries) in tables {
                let before = if change.detail.is_empty() { "" } else { "; " };
                change.detail.push_str(&format!("{before}`{table}` has {} now", counted_entries(entries)));
            }
        }
    }

    /// The packets that each node has processed so far; none where a worker does not answer.
    fn arrived(&self) -> BTreeMap<String, u64> {
        let nodes = self.control.counters().map(|snapshot| snapshot.nodes).unwrap_or_default();
        nodes.into_iter().map(|node| (node.node, node.counters.arrived.packets)).collect()
    }

    /// The receive queues of each worker that stay there: those of ports that go on.
    fn running_shares(&self, plan: &Plan<'_>) -> Vec<Vec<(String, usize)>> {
        let goes_on = |name: &String| {
            let planned = plan.ports.iter().find(|port| port.name == *name);
            let running = self.installed.ports.iter().find(|port| port.name == *name);
            planned.zip(running).is_some_and(|(planned, running)| running.is_like(planned))
        };
        let of =
            |share: &Vec<(String, usize)>| share.iter().filter(|(name, _)| goes_on(name)).cloned().collect();
        self.installed.shares.iter().map(of).collect()
    }

    /// Lets functions that go on keep the blueprint that their nodes were made from, or the state that it shares.
    fn keep_blueprints(&self, candidate: &mut Candidate) {
        for (number, function) in candidate.installed.functions.iter().enumerate() {
            if !candidate.difference.kept_functions.contains(&function.name) {
                continue;
            }
            let known = self.installed.functions.iter().position(|known| known.name == function.name);
            if let Some(known) = known {
                let running = &self.installed.design.functions[known];
                let next = &mut candidate.installed.design.functions[number];
                *next = match candidate.difference.live.contains_key(&function.name) {
                    true => next.in_place_of(running),
                    false => running.clone(),
                };
            }
        }
    }

    /// Tells functions by which number the packets of each port know it.
    fn label_ports(&self, candidate: &mut Candidate, opened: &OpenPorts) {
        let Installed { ports, design, .. } = &mut candidate.installed;
        for (label, port) in design.labels.iter_mut().zip(ports) {
            let running = || self.port(&port.name)?.number;
            if let Some(number) = opened.number(&port.name).or_else(running) {
                *label = number;
            }
        }
    }

    /// Makes memory ready for the tables of new functions, so that no worker waits for the kernel.
    fn stock_up(&self, candidate: &Candidate) -> Result<(), Problem> {
        let worker = Worker::new(0, self.seed, self.pool.clone()).on_trial();
        let Installed { functions, design, .. } = &candidate.installed;
        for (number, function) in functions.iter().enumerate() {
            // A shuffle's node takes its end of the rings, of which there is one for each worker.
            if candidate.difference.kept_functions.contains(&function.name) || design.crosses[number] {
                continue;
            }
            // The node is made to learn what it takes. A fault shows again where a worker makes it.
            let (_, sizes) = stock::sizes_of(|| contain(|| drop(design.functions[number].build(&worker))));
            stock::stock_up(&sizes, self.control.workers())
                .map_err(|error| Problem::new(Code::Machine, format!("`{}`: {error}", function.name)))?;
        }
        Ok(())
    }
}

/// `1 entry`, `64 entries`.
fn counted_entries(entries: u64) -> String {
    match entries {
        1 => "1 entry".into(),
        several => format!("{} entries", thousands(several)),
    }
}

fn plan_of(candidate: &Candidate) -> api::Plan {
    api::Plan {
        generation: 0,
        unchanged: candidate.difference.changes.is_empty(),
        changes: candidate.difference.changes.clone(),
        kept: candidate.difference.kept_names.clone(),
        warnings: candidate.warnings.clone(),
    }
}

/// The faults of a file as the API tells them.
fn faulty(faults: &Faults<'_>) -> Problem {
    problem_of(&faults.diagnostics, &faults.source)
}

fn problem_of(diagnostics: &Diagnostics, source: &Source<'_>) -> Problem {
    let errors: Vec<&Diagnostic> =
        diagnostics.sorted().into_iter().filter(|diagnostic| diagnostic.level == Level::Error).collect();
    let code = if diagnostics.is_machine() { Code::Machine } else { Code::Faulty };
    let detail = match errors.as_slice() {
        [] => "the file has faults".into(),
        [one] => source.line_of(one),
        [first, rest @ ..] => format!("{}, and {} more", source.line_of(first), rest.len()),
    };
    let place = |diagnostic: &&Diagnostic| {
        let label = diagnostic.labels.first()?;
        let position = source.position(label.span.start);
        let message = diagnostic.message.clone();
        Some(api::Place { line: position.line, column: position.column, message })
    };
    Problem {
        places: errors.iter().filter_map(place).collect(),
        rendered: Some(diagnostics.render(source, false)),
        ..Problem::new(code, detail)
    }
}
