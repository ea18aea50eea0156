//! A run as the control API sees it: its counters, handlers, ports, and changes while packets move.

mod apply;
mod calls;
mod carried;
#[cfg(test)]
mod carried_tests;
mod control_tasks;
mod installed;
#[cfg(test)]
mod late_tests;
#[cfg(test)]
mod live_tests;
mod logs;
mod observe;
#[cfg(test)]
mod ports_tests;
mod prepare;
#[cfg(test)]
mod rollback_tests;
mod said;
mod tenants;
#[cfg(test)]
mod tenants_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use netbricks_buffer::Pool;
use netbricks_control::{
    Answer, Call, Dataplane, Events, Files, Grants, Observing, Prepared, Subject, Tasks, Wanted, Written, api,
};
use netbricks_core::{ControlCopy, Handler, HandlerKind, HandlerSide, Role};
use netbricks_ports::{Counters, Port};
use netbricks_runtime::{Control, Progress, Snapshot, TenantReport, WorkerReport, by_reason};

pub(crate) use apply::functions_of;
pub(crate) use control_tasks::ControlTasks;
pub(crate) use installed::{Installed, InstalledFunction};
pub(crate) use logs::FunctionEvents;
pub(crate) use prepare::Preparing;
pub(crate) use tenants::grants_of;
#[cfg(test)]
pub(crate) use tests::{chain, while_running};

use super::attend::link_name;
use super::file::File;
use super::run::Begun;
use super::shared_watchdog::SharedWatchdog;
use super::{Application, RunArguments};
use crate::chain::{Layout, OpenPorts, receive_name, transmit_name};
use crate::config::{QUEUE, RuntimeSettings};
use crate::report::WorkerPlace;

/// Settings of the command line, which stand before those of any file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overrides {
    workers: Option<u16>,
    seed: Option<u64>,
    idle: Option<crate::config::Idle>,
    burst: Option<u16>,
}

impl Overrides {
    pub(crate) fn of(arguments: &RunArguments) -> Self {
        let RunArguments { workers, seed, idle, burst, .. } = *arguments;
        Self { workers, seed, idle, burst }
    }

    /// Puts them in the place of a file's settings.
    pub(crate) fn adjust(self, runtime: &mut RuntimeSettings) {
        if let Some(workers) = self.workers {
            runtime.workers = Some(usize::from(workers));
        }
        if let Some(seed) = self.seed {
            runtime.seed = Some(seed);
        }
        if let Some(idle) = self.idle {
            runtime.idle = idle;
        }
        if let Some(burst) = self.burst {
            runtime.burst = usize::from(burst);
        }
    }
}

/// The counters that each worker told last.
pub(crate) type LastReports = Arc<Mutex<BTreeMap<usize, WorkerReport>>>;

/// A run that has begun, with all that a change of it needs.
pub(crate) struct Session<'a> {
    pub(crate) app: &'a Application,
    pub(crate) overrides: Overrides,
    pub(crate) control: Control,
    pub(crate) preparing: Preparing,
    pub(crate) started: Instant,
    pub(crate) pool: &'a Pool,
    pub(crate) ports: OpenPorts,
    pub(crate) installed: Arc<Installed>,
    /// The control side's copies of the functions' nodes, by function.
    pub(crate) copies: BTreeMap<String, ControlCopy>,
    /// The workers' seed.
    pub(crate) seed: u64,
    pub(crate) places: Vec<WorkerPlace>,
    pub(crate) begun: Begun<'a>,
    pub(crate) watchdog: SharedWatchdog,
    pub(crate) reports: LastReports,
    pub(crate) tasks: Tasks,
    /// `None` for a replay, which is to repeat exactly.
    pub(crate) control_tasks: Option<ControlTasks>,
    /// The credentials of tenants.
    pub(crate) grants: Grants,
    pub(crate) events: Events,
    pub(crate) state: api::RunState,
}

impl Session<'_> {
    /// The name of the graph, which stays while the process runs.
    fn graph_name(&self) -> &str {
        &self.installed.design.name
    }

    /// Refuses a change at once where a worker cannot make it.
    fn no_worker_is_stuck(&self) -> Result<(), api::Problem> {
        let stuck = (0..self.control.workers()).find(|worker| self.watchdog.is_stuck(*worker));
        match stuck {
            None => Ok(()),
            Some(worker) => {
                let detail =
                    format!("worker {worker} does not come back from a function, so that it cannot change");
                Err(api::Problem::new(api::Code::Timeout, detail)
                    .help("`netbricks events` names the function"))
            }
        }
    }

    /// Refuses a change at once that could not be made.
    fn may_change(&self, wanted: &Wanted) -> Result<(), api::Problem> {
        match wanted.is_plan {
            true => Ok(()),
            false if self.is_stopping() => {
                Err(api::Problem::new(api::Code::Ending, "the dataplane is ending"))
            }
            false => self.no_worker_is_stuck(),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state == api::RunState::Stopping
    }
}

impl Dataplane for Session<'_> {
    fn status(&self) -> api::Status {
        let progress = self.control.progress();
        api::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            file: self.installed.source.name.clone(),
            graph: self.graph_name().to_owned(),
            state: self.state,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            generation: 0,
            configuration: 0,
            confirmed: true,
            confirm_within_seconds: None,
            journal: 0,
            workers: self.control.workers(),
            received: progress.received.into(),
            sent: progress.sent.into(),
            created: progress.created,
            dropped: progress.dropped,
            consumed: progress.consumed,
            held: progress.held,
        }
    }

    fn state(&self) -> api::RunState {
        self.state
    }

    fn stats(&mut self, answer: Answer<api::Stats>) {
        let part = Arc::new(StatsPart {
            current: self.installed.graph.nodes.iter().map(|node| node.name.clone()).collect(),
            layout: self.begun.layout.clone(),
            ports: self.ports.iter().map(port_stats).collect(),
            workers: worker_stats(&self.places, &self.control.progress_by_worker()),
            time_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            free_buffers: self.pool.available() as u64,
            buffers: self.pool.capacity() as u64,
            known: self.reports.clone(),
            control: self.control.clone(),
        });
        let workers = self.control.workers();
        let gathered =
            Arc::new(Mutex::new(Gathered { missing: workers, reports: Vec::new(), answer: Some(answer) }));
        for worker in 0..workers {
            if self.watchdog.is_stuck(worker) {
                // The others' counters are worth more than an answer that does not come. Sums must not fall.
                Gathered::add(&gathered, part.last(worker), &part, &self.tasks);
                continue;
            }
            let (gather, of, tasks) = (gathered.clone(), part.clone(), self.tasks.clone());
            let posted = self
                .control
                .post_counters(worker, move |report| Gathered::add(&gather, Some(report), &of, &tasks));
            if posted.is_err() {
                let last = self.control.ended(worker).or_else(|| part.last(worker));
                Gathered::add(&gathered, last, &part, &self.tasks);
            }
        }
    }

    fn graph(&self) -> api::Graph {
        self.installed.graph.clone()
    }

    fn ports(&self) -> Vec<api::Port> {
        let of = |port: &dyn Port| {
            let capabilities = port.capabilities();
            api::Port {
                name: port.name().to_owned(),
                driver: port.driver().to_owned(),
                link: link_name(port.link()).to_owned(),
                mtu: port.mtu(),
                receive_queues: capabilities.receive_queues,
                transmit_queues: capabilities.transmit_queues,
                warnings: port.warnings(),
            }
        };
        self.ports.iter().map(of).collect()
    }

    fn functions(&self) -> Vec<api::Function> {
        let of = |function: &InstalledFunction| apply::function(function, self.copies.get(&function.name));
        self.installed.functions.iter().map(of).collect()
    }

    fn call(&mut self, call: Call, answer: Answer<api::Answers>) {
        self.call_handler(call, answer);
    }

    fn subject(&self, function: &str, handler: &str) -> Option<Subject> {
        let is_it = |known: &&Handler| known.name == handler && known.kind == HandlerKind::Write;
        let handler = self.copies.get(function)?.handlers().iter().find(is_it)?;
        let subject = handler.subject.as_ref()?;
        // Another side's answer comes too late for several writes at once.
        let by_lines = subject.by_lines && handler.side == HandlerSide::Control;
        Some(Subject { name: subject.name, sets: subject.sets, by_lines })
    }

    fn with_written(&mut self, written: &[Written]) -> (api::Source, Vec<Written>) {
        let Self { installed, copies, .. } = self;
        installed.with_written(written, &mut |function, handler| {
            copies.get_mut(function)?.call_as(HandlerKind::Read, handler, "").ok()
        })
    }

    fn said_by(&mut self, source: &api::Source, written: &[Written]) -> Vec<Written> {
        // Of a function whose settings stay, a file says no more than the one that runs.
        let stays = said::alike(&self.installed.source.text, &source.text);
        let written: Vec<Written> = written.iter().filter(|of| !stays(&of.function)).cloned().collect();
        if written.is_empty() {
            return written;
        }
        let (printed, rest) = self.with_written(&written);
        let is_said = said::alike(&printed.text, &source.text);
        written.into_iter().filter(|of| !rest.contains(of) && is_said(&of.function)).collect()
    }

    fn prepare(&mut self, wanted: &Wanted) -> Result<Prepared, api::Problem> {
        self.may_change(wanted)?;
        self.basis().prepare(wanted)
    }

    fn prepare_beside(&mut self, wanted: Wanted, done: Answer<Prepared>) {
        match self.may_change(&wanted) {
            Ok(()) => self.preparing.prepare(self.basis(), wanted, done),
            // The answer is the director's task, for which this thread does not wait.
            Err(problem) => drop(std::thread::spawn(move || done(Err(problem)))),
        }
    }

    fn apply(&mut self, prepared: Prepared) -> Result<api::Applied, api::Problem> {
        self.applied(prepared)
    }

    fn named_files(&self, source: &api::Source, files: &Files) -> Files {
        File::of(source, files).named_files()
    }

    fn source(&self) -> api::Source {
        self.installed.source.clone()
    }

    fn stop(&mut self) {
        self.state = api::RunState::Stopping;
        self.control.stop_handle().stop();
    }

    fn suspend(&mut self) -> Result<(), api::Problem> {
        if self.state == api::RunState::Suspended {
            return Ok(());
        }
        self.no_worker_is_stuck()?;
        self.control.suspend_all().map_err(|error| calls::problem_of(&error))?;
        self.state = api::RunState::Suspended;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), api::Problem> {
        if self.state == api::RunState::Running {
            return Ok(());
        }
        self.no_worker_is_stuck()?;
        self.control.resume_all().map_err(|error| calls::problem_of(&error))?;
        if !self.is_stopping() {
            self.state = api::RunState::Running;
        }
        Ok(())
    }

    fn observe(&mut self, request: &api::ObserveRequest) -> Result<Observing, api::Problem> {
        self.no_worker_is_stuck()?;
        self.observed(request)
    }
}

/// The nodes that run, and one more for all that changes took out, so that their number stays bounded.
fn without_gone(nodes: Vec<api::NodeStats>, current: &BTreeSet<String>) -> Vec<api::NodeStats> {
    let runs = |node: &api::NodeStats| {
        // A port's second receive queue on one worker is `lan.2`.
        let base = node.node.rsplit_once('.').filter(|(_, tail)| tail.parse::<usize>().is_ok());
        current.contains(&node.node) || base.is_some_and(|(name, _)| current.contains(name))
    };
    let (mut nodes, gone): (Vec<_>, Vec<_>) = nodes.into_iter().partition(runs);
    let mut sum =
        api::NodeStats { node: GONE.into(), of: GONE.into(), role: "gone".into(), ..Default::default() };
    for node in &gone {
        for (to, count) in [
            (&mut sum.arrived, node.arrived),
            (&mut sum.left, node.left),
            (&mut sum.received, node.received),
            (&mut sum.sent, node.sent),
            (&mut sum.created, node.created),
            (&mut sum.handoff_out, node.handoff_out),
            (&mut sum.handoff_in, node.handoff_in),
        ] {
            add(to, count);
        }
        for (to, counts) in [(&mut sum.dropped, &node.dropped), (&mut sum.consumed, &node.consumed)] {
            counts.iter().for_each(|(reason, count)| add(to.entry(reason.clone()).or_default(), *count));
        }
        sum.held += node.held;
        sum.batches += node.batches;
        sum.panics += node.panics;
    }
    nodes.extend((!gone.is_empty()).then_some(sum));
    nodes
}

/// A tenant's use of the workers, and the packets of its nodes.
fn tenant_stats(tenant: &TenantReport, nodes: &[api::NodeStats]) -> api::TenantStats {
    let mut stats = api::TenantStats {
        tenant: tenant.tenant.clone(),
        weight: tenant.weight,
        priority: tenant.priority,
        ceiling: tenant.ceiling,
        used_ns: tenant.used_ns,
        slices: tenant.slices,
        overruns: tenant.overruns,
        longest_slice_ns: tenant.longest_slice_ns,
        throttled: tenant.throttled,
        demoted: tenant.demoted,
        ..Default::default()
    };
    for node in nodes.iter().filter(|node| node.tenant.as_ref() == Some(&tenant.tenant)) {
        if node.of.ends_with(QUEUE) {
            add(&mut stats.arrived, node.arrived);
        }
        stats.held += node.held;
        node.dropped
            .iter()
            .for_each(|(reason, count)| add(stats.dropped.entry(reason.clone()).or_default(), *count));
    }
    stats
}

/// The name of the sum of nodes that are gone; no node of a file can have it.
const GONE: &str = "(gone)";

/// The part of the statistics that needs no worker.
struct StatsPart {
    /// The nodes that run.
    current: BTreeSet<String>,
    layout: Layout,
    ports: Vec<api::PortStats>,
    workers: Vec<api::Worker>,
    time_ns: u64,
    free_buffers: u64,
    buffers: u64,
    known: LastReports,
    control: Control,
}

/// Answers of workers so far.
struct Gathered {
    missing: usize,
    reports: Vec<WorkerReport>,
    answer: Option<Answer<api::Stats>>,
}

impl Gathered {
    /// Adds a worker's answer; the last one is followed by the answer to the request.
    ///
    /// It is called on the worker's thread, so that another thread makes that answer.
    fn add(gathered: &Mutex<Self>, report: Option<WorkerReport>, part: &Arc<StatsPart>, tasks: &Tasks) {
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.missing -= 1;
        gathered.reports.extend(report);
        if gathered.missing > 0 {
            return;
        }
        let (reports, part) = (std::mem::take(&mut gathered.reports), part.clone());
        let Some(answer) = gathered.answer.take() else { return };
        // The task takes it along; where the task is refused, it is still needed.
        let shared = Arc::new(Mutex::new(Some(answer)));
        let take = |shared: &Mutex<Option<Answer<api::Stats>>>| {
            shared.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let taken = shared.clone();
        let posted = tasks.post(move |_| {
            part.remember(&reports);
            if let Some(answer) = take(&taken) {
                answer(Ok(part.with(reports)));
            }
        });
        if let Err(problem) = posted
            && let Some(answer) = take(&shared)
        {
            answer(Err(problem));
        }
    }
}

impl StatsPart {
    /// The counters that a worker told last.
    fn last(&self, worker: usize) -> Option<WorkerReport> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&worker).cloned()
    }

    fn remember(&self, reports: &[WorkerReport]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(reports.iter().map(|report| (report.worker, report.clone())));
    }

    /// The tables of functions that run, by function: a table in several of its nodes is added up.
    fn tables(&self, snapshot: &Snapshot) -> Vec<api::TableStats> {
        let mut tables: Vec<api::TableStats> = Vec::new();
        for table in snapshot.tables.iter().filter(|table| self.current.contains(&table.node)) {
            let function = self.layout.uses.iter().find(|(name, _)| *name == table.node);
            let function = function.map_or(&table.node, |(_, function)| function);
            let known =
                |known: &&mut api::TableStats| (&known.function, &known.table) == (function, &table.table);
            let of = match tables.iter_mut().find(known) {
                Some(known) => known,
                None => {
                    let number = usize::from(table.owner).checked_sub(1);
                    let tenant = number.and_then(|number| snapshot.tenants.get(number));
                    tables.push(api::TableStats {
                        function: function.clone(),
                        table: table.table.clone(),
                        tenant: tenant.map(|tenant| tenant.tenant.clone()),
                        ..api::TableStats::default()
                    });
                    tables.last_mut().expect("it was just put in")
                }
            };
            of.entries += table.entries;
            of.capacity += table.capacity;
            of.evicted += table.evicted;
            of.expired += table.expired;
            of.refused += table.refused;
        }
        tables
    }

    /// The statistics with these workers' counters.
    fn with(&self, mut reports: Vec<WorkerReport>) -> api::Stats {
        reports.sort_by_key(|report| report.worker);
        reports.iter_mut().for_each(|report| self.control.complete(report));
        let snapshot = Snapshot::of(reports);
        let mut ports = self.ports.clone();
        let mut nodes: Vec<api::NodeStats> = Vec::with_capacity(snapshot.nodes.len());
        for node in &snapshot.nodes {
            let port = ports.iter_mut().find(|port| {
                let base = node.node.rsplit_once('.').filter(|(_, tail)| tail.parse::<usize>().is_ok());
                let name = base.map_or(node.node.as_str(), |(name, _)| name);
                receive_name(&port.port) == name || transmit_name(&port.port) == node.node
            });
            let function = self.layout.uses.iter().find(|(name, _)| *name == node.node);
            let counters = &node.counters;
            let of = match (function, port) {
                (Some((_, function)), _) => function.clone(),
                (None, Some(port)) => {
                    add(&mut port.received, counters.received.into());
                    add(&mut port.sent, counters.sent.into());
                    port.port.clone()
                }
                (None, None) => node.node.clone(),
            };
            let reasons = |consumed| {
                let counts = by_reason(&counters.drops, consumed).into_iter();
                counts.map(|(reason, count)| (reason.to_owned(), count.into())).collect()
            };
            let number = usize::from(node.owner).checked_sub(1);
            let tenant = number.and_then(|number| snapshot.tenants.get(number));
            nodes.push(api::NodeStats {
                node: node.node.clone(),
                of,
                tenant: tenant.map(|tenant| tenant.tenant.clone()),
                role: role_name(node.role).to_owned(),
                arrived: counters.arrived.into(),
                left: counters.left.into(),
                received: counters.received.into(),
                sent: counters.sent.into(),
                created: counters.created.into(),
                handoff_out: counters.handoff_out.into(),
                handoff_in: counters.handoff_in.into(),
                held: counters.held,
                dropped: reasons(false),
                consumed: reasons(true),
                batches: counters.batches,
                sampled_cycles: counters.sampled_cycles,
                sampled_packets: counters.sampled_packets,
                panics: counters.panics,
            });
        }
        let tenants = snapshot.tenants.iter().map(|tenant| tenant_stats(tenant, &nodes)).collect();
        let mut nodes = without_gone(nodes, &self.current);
        nodes.sort_by_key(|node| {
            let place = self.layout.uses.iter().position(|(name, _)| *name == node.node);
            (node.role == "gone", node.role != "receive", node.role == "transmit", place)
        });
        let tables = self.tables(&snapshot);
        api::Stats {
            time_ns: self.time_ns,
            generation: 0,
            nodes,
            ports,
            tenants,
            tables,
            workers: self.workers.clone(),
            free_buffers: self.free_buffers,
            buffers: self.buffers,
        }
    }
}

fn add(to: &mut api::Count, count: api::Count) {
    to.packets += count.packets;
    to.bytes += count.bytes;
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Receive => "receive",
        Role::Function => "function",
        Role::Transmit => "transmit",
    }
}

fn worker_stats(places: &[WorkerPlace], progress: &[Progress]) -> Vec<api::Worker> {
    let of = |(worker, progress): (usize, &Progress)| {
        let place = places.get(worker);
        api::Worker {
            worker,
            core: place.and_then(|place| place.core),
            receives: place.map(|place| place.receives.clone()).unwrap_or_default(),
            received: progress.received.into(),
            sent: progress.sent.into(),
            dropped: progress.dropped,
            turns: progress.turns,
            sleeps: progress.sleeps,
            longest_pause_ns: progress.longest_pause_ns,
            long_pauses: progress.long_pauses,
            ended: progress.ended > 0,
        }
    };
    progress.iter().enumerate().map(of).collect()
}

fn port_stats(port: &dyn Port) -> api::PortStats {
    let counters = port.counters();
    let sum = |of: fn(&Counters) -> &std::sync::atomic::AtomicU64| -> u64 {
        counters.iter().map(|queue| of(queue).load(Ordering::Relaxed)).sum()
    };
    let named: [(&str, u64); 8] = [
        ("bad_checksum", sum(|counters| &counters.bad_checksum)),
        ("linearised", sum(|counters| &counters.linearised)),
        ("no_buffer", sum(|counters| &counters.no_buffer)),
        ("too_big_to_receive", sum(|counters| &counters.too_big_to_receive)),
        ("too_big_to_send", sum(|counters| &counters.too_big_to_send)),
        ("duplicated", sum(|counters| &counters.duplicated)),
        ("reordered", sum(|counters| &counters.reordered)),
        ("corrupted", sum(|counters| &counters.corrupted)),
    ];
    api::PortStats {
        port: port.name().to_owned(),
        driver: port.driver().to_owned(),
        link: link_name(port.link()).to_owned(),
        missed: sum(|counters| &counters.missed),
        counters: named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..api::PortStats::default()
    }
}
