//! Another file takes over from the one that runs, without a packet lost.
//!
//! First the file is checked and its new ports are opened; then every worker makes its new nodes. Only when all
//! of that worked do the workers take over. Until then nothing has changed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use netbricks_buffer::Pool;
use netbricks_control::api::{self, Code, EventLevel, Problem};
use netbricks_core::graph::contain;
use netbricks_core::tables::stock;
use netbricks_core::{ControlCopy, Handler, HandlerKind, HandlerSide, Worker};
use netbricks_ports::steer::Filtering;
use netbricks_runtime::{Change, Replaced};

use super::super::file::{self, Checked, Faults, File};
use super::super::run::port_summary;
use super::installed::{Difference, Installed, InstalledFunction};
use super::{Session, calls, grants_of};
use crate::chain::{Circumstances, Division, Filters, OpenPorts, Opening, Place, WorkerPorts, overcommitted};
use crate::config::Plan;
use crate::diagnostic::{Diagnostic, Diagnostics, Level, Source};

/// A file that passed all checks, and what it changes.
struct Candidate {
    installed: Installed,
    difference: Difference,
    warnings: Vec<String>,
    /// The receive queues of each worker, by port number.
    shares: Vec<Vec<(usize, usize)>>,
}

impl Session<'_> {
    pub(super) fn planned(&mut self, file: &File) -> Result<api::Plan, Problem> {
        let checked = self.checked(file)?;
        let expected = file::expected(&checked.plan, &self.app.drivers, self.control.workers());
        let candidate = self.candidate(checked, file, &OpenPorts::none(), &expected)?;
        Ok(plan_of(&candidate))
    }

    pub(super) fn applied(&mut self, file: &File) -> Result<api::Applied, Problem> {
        if self.is_stopping() {
            return Err(Problem::new(Code::Ending, "the dataplane is ending"));
        }
        self.no_worker_is_stuck()?;
        let checked = self.checked(file)?;
        let mut opened = self.open_new(&checked, file)?;
        let expected = file::expected(&checked.plan, &self.app.drivers, self.control.workers());
        let mut candidate = self.candidate(checked, file, &opened, &expected)?;
        let plan = plan_of(&candidate);
        let grants = grants_of(&candidate.installed.tenants)
            .map_err(|problem| Problem::new(Code::Machine, problem))?;
        self.keep_blueprints(&mut candidate);
        self.label_ports(&mut candidate, &opened);
        let kept = |name: &str| candidate.difference.kept_functions.contains(name);
        let workers = self.control.workers();
        let copies = functions_of(&candidate.installed, kept, (self.pool, self.seed), workers)?;
        self.stock_up(&candidate)?;
        // Before their queues are taken, which some ports ask for.
        if let Some((_, error)) = candidate.installed.filters.install(&mut opened).into_iter().next() {
            return Err(Problem::new(Code::Machine, error.to_string()));
        }
        let ports = self.new_queues(&candidate, &mut opened)?;
        self.filter_beside(&candidate, &opened)?;
        self.control.take_longest_pause();
        let replaced = self.take_over(&candidate, ports);
        stock::give_back();
        if replaced.is_err() {
            self.filter_again();
        }
        let replaced = replaced?;
        let longest_pause_ns = self.control.take_longest_pause();
        self.settle(candidate, opened, copies);
        self.grants.set(grants);
        let mut applied = api::Applied { plan, longest_pause_ns, ..api::Applied::default() };
        for Replaced { moved, refused, .. } in replaced {
            let new = moved.into_iter().filter(|state| !applied.moved.contains(state)).collect::<Vec<_>>();
            applied.moved.extend(new);
            applied.refused.extend(refused);
        }
        for refused in &applied.refused {
            self.events.tell(EventLevel::Warning, "state-lost", "", refused.clone());
        }
        Ok(applied)
    }

    /// Checks all of a file that can be checked without opening a port.
    fn checked<'t>(&self, file: &'t File) -> Result<Checked<'t>, Problem> {
        let checked = file::check_with(self.app, file, |runtime| self.overrides.adjust(runtime));
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
        let difference = self.installed.changes_to(&Installed::new(checked, file, &[]));
        let opening = Opening { pool: self.pool, queues: self.control.workers(), directory: &file.directory };
        let mut diagnostics = Diagnostics::default();
        let wanted = |name: &str| difference.opened.contains(name);
        let opened = self.ports.open_beside(&checked.plan, wanted, &opening, &mut diagnostics);
        opened.ok_or_else(|| {
            let problem = problem_of(&diagnostics, &checked.source);
            match difference.opened.iter().any(|name| self.ports.find(name).is_some()) {
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
                let open = opened.find(&port.name).or_else(|| self.ports.find(&port.name));
                open.map_or_else(|| expected.clone(), Division::of)
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
        let open = |port: &str| opened.find(port).or_else(|| self.ports.find(port))?.filtered_by();
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
        let difference = self.installed.changes_to(&installed);
        installed.keep_transmits(&difference.kept);
        warnings.extend(self.installed.later(&installed));
        Ok(Candidate { installed, difference, warnings, shares })
    }

    /// The filters of ports that steer by the graph: rules go to the paths with the most packets so far.
    fn filters_of(
        &self,
        checked: &Checked<'_>,
        divisions: &[Division],
        shares: &[Vec<(usize, usize)>],
        open: &dyn Fn(&str) -> Option<Filtering>,
    ) -> Filters {
        let snapshot = self.control.snapshot();
        let nodes = snapshot.as_ref().map(|snapshot| snapshot.nodes.as_slice()).unwrap_or_default();
        let packets = |name: &str| {
            let counters = nodes.iter().find(|node| node.node == name).map(|node| &node.counters);
            counters.map_or(0, |counters| counters.arrived.packets)
        };
        let circumstances = Circumstances { packets: &packets, open, before: &self.installed.filters };
        checked.network.filters(&checked.plan, divisions, shares, &circumstances)
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

    /// Lets functions that go on keep the blueprint that their nodes were made from, and its shared state.
    fn keep_blueprints(&self, candidate: &mut Candidate) {
        for (number, function) in candidate.installed.functions.iter().enumerate() {
            if !candidate.difference.kept_functions.contains(&function.name) {
                continue;
            }
            let known = self.installed.functions.iter().position(|known| known.name == function.name);
            if let Some(known) = known {
                candidate.installed.design.functions[number] = self.installed.design.functions[known].clone();
            }
        }
    }

    /// Tells functions by which number the packets of each port know it.
    fn label_ports(&self, candidate: &mut Candidate, opened: &OpenPorts) {
        let Installed { ports, design, .. } = &mut candidate.installed;
        for (label, port) in design.labels.iter_mut().zip(ports) {
            if let Some(number) = opened.number(&port.name).or_else(|| self.ports.number(&port.name)) {
                *label = number;
            }
        }
    }

    /// Makes memory ready for the tables of new functions, so that no worker waits for the kernel.
    fn stock_up(&self, candidate: &Candidate) -> Result<(), Problem> {
        let worker = Worker::new(0, self.seed, self.pool.clone());
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

    /// The new nodes of ports, by worker.
    fn new_queues(
        &mut self,
        candidate: &Candidate,
        opened: &mut OpenPorts,
    ) -> Result<Vec<WorkerPorts>, Problem> {
        let workers = self.control.workers();
        let refused = |error: netbricks_ports::PortError| Problem::new(Code::Machine, error.to_string());
        let mut new: Vec<WorkerPorts> = (0..workers).map(|_| WorkerPorts::default()).collect();
        for (number, port) in candidate.installed.ports.iter().enumerate() {
            let name = &port.name;
            let from = if opened.find(name).is_some() { &mut *opened } else { &mut self.ports };
            if !candidate.difference.kept.receives.contains(name) {
                for (worker, share) in candidate.shares.iter().enumerate() {
                    for (_, queue) in share.iter().filter(|(port, _)| *port == number) {
                        let node = from.take_receive(name, *queue).map_err(refused)?;
                        new[worker].receive.extend(node.map(|node| (number, node)));
                    }
                }
            }
            let is_target =
                candidate.installed.design.wires.iter().any(|wire| wire.to == Place::Transmit(number));
            if is_target && !candidate.difference.kept.transmits.contains(name) {
                let nodes = from.take_transmits(name, workers).map_err(refused)?;
                for (worker, node) in new.iter_mut().zip(nodes) {
                    worker.transmit.insert(number, node);
                }
            }
        }
        Ok(new)
    }

    /// Gives ports that go on the new filters beside the old ones, or leaves the old ones.
    ///
    /// The new graph may lack a shuffle that it would need without its filters, so it comes after them.
    fn filter_beside(&mut self, candidate: &Candidate, opened: &OpenPorts) -> Result<(), Problem> {
        let goes_on = |name: &str| opened.find(name).is_none();
        let failed = candidate.installed.filters.install_beside(&mut self.ports, goes_on);
        match failed.into_iter().next() {
            None => Ok(()),
            Some((_, error)) => {
                self.filter_again();
                Err(Problem::new(Code::Machine, error.to_string()))
            }
        }
    }

    /// Gives ports the filters of the graph that runs.
    fn filter_again(&mut self) {
        for (_, error) in self.installed.filters.install(&mut self.ports) {
            self.events.tell(EventLevel::Warning, "filters-refused", "", error.to_string());
        }
    }

    fn take_over(&self, candidate: &Candidate, ports: Vec<WorkerPorts>) -> Result<Vec<Replaced>, Problem> {
        let ports: Vec<Mutex<Option<WorkerPorts>>> =
            ports.into_iter().map(|ports| Mutex::new(Some(ports))).collect();
        let changed = self.control.change_all(self.graph_name(), |worker| {
            // The runtime asks for each worker once.
            let ports = ports
                .get(worker)
                .and_then(|ports| ports.lock().unwrap_or_else(PoisonError::into_inner).take());
            let (design, kept) = (candidate.installed.design.clone(), candidate.difference.kept.clone());
            Change::new(move |context, running| {
                design.change(ports.unwrap_or_default(), &kept, running, context.worker())
            })
        });
        changed.map_err(|error| calls::problem_of(&error))
    }

    /// Takes note of the change after the workers have made it, and closes the ports that went.
    fn settle(&mut self, candidate: Candidate, opened: OpenPorts, copies: BTreeMap<String, ControlCopy>) {
        let Candidate { installed, difference, .. } = candidate;
        let names: Vec<String> = installed.ports.iter().map(|port| port.name.clone()).collect();
        let mut gone = self.ports.arrange(&names, opened);
        self.begun.closed.extend(gone.iter().map(port_summary));
        for failure in gone.close() {
            self.events.tell(EventLevel::Error, "port-failed", "", failure);
        }
        for (place, share) in self.places.iter_mut().zip(&installed.shares) {
            place.receives = share.iter().map(|(port, queue)| format!("{port}.{queue}")).collect();
        }
        self.begun.layout = installed.layout.clone().after(&self.begun.layout);
        self.installed = installed;
        // Those of the graph before go.
        self.filter_again();
        self.copies.retain(|name, _| difference.kept_functions.contains(name));
        self.copies.extend(copies);
        if let Some(tasks) = &mut self.control_tasks {
            tasks.follow(&self.installed, &difference.kept_functions);
        }
    }
}

/// The functions of a configuration with their handlers, and the control side's copies of their nodes.
///
/// `known` has copies of functions that go on. The state that workers share is made here, so that workers only
/// join it.
pub(crate) fn functions_of(
    installed: &Installed,
    known: impl Fn(&str) -> bool,
    (pool, seed): (&Pool, u64),
    workers: usize,
) -> Result<BTreeMap<String, ControlCopy>, Problem> {
    let mut copies = BTreeMap::new();
    let design = &installed.design;
    for (number, (function, blueprint)) in installed.functions.iter().zip(&design.functions).enumerate() {
        if known(&function.name) {
            continue;
        }
        let copy = blueprint
            .control_among(pool.clone(), seed, workers, design.ports_of(number))
            .map_err(|error| Problem::new(Code::Machine, format!("`{}`: {error}", function.name)))?;
        copies.insert(function.name.clone(), copy);
    }
    Ok(copies)
}

/// A function as the API tells it.
pub(super) fn function(function: &InstalledFunction, copy: Option<&ControlCopy>) -> api::Function {
    let handler = |handler: &Handler| api::Handler {
        name: handler.name.clone(),
        summary: handler.summary.clone(),
        writes: handler.kind == HandlerKind::Write,
        argument: handler.argument.clone().unwrap_or_default(),
        by_worker: handler.side == HandlerSide::Worker,
    };
    api::Function {
        name: function.name.clone(),
        definition: function.definition.clone(),
        nodes: function.nodes.clone(),
        handlers: copy.map(|copy| copy.handlers().iter().map(handler).collect()).unwrap_or_default(),
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
