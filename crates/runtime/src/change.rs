//! Changes to a worker's graphs between two batches, for the control side.
//!
//! Graphs come, take over and go. Snapshots and reports of them are made here too.

use netbricks_core::graph::{ShuffleEnd, TakenOver};
use netbricks_core::{CallError, Graph, GraphBuilder, ImportError, StateSuccession, Way};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::clock::Clock;
use crate::config::{Change, Factory};
use crate::event::Event;
use crate::report::{CommandError, GraphReport, NodeSection, Replaced, WorkerReport};
use crate::worker::{Hosted, Prepared, Worker, contained, tell_panics};

/// Records state of a node that could not move.
///
/// A panic in that also lost the state that the node had been given before.
fn lose(node: &str, error: &ImportError, moved: &mut Vec<(String, String)>, refused: &mut Vec<String>) {
    refused.push(format!("{node}: {error}"));
    if matches!(error, ImportError::Panicked { .. }) {
        let gone = moved.extract_if(.., |(of, _)| of == node);
        refused.extend(gone.map(|(of, state)| format!("{of}: `{state}` went with that")));
    }
}

/// The error of a call of this node.
pub(crate) fn refusal(worker: usize, graph: &str, node: &str, error: CallError) -> CommandError {
    match error {
        CallError::Panicked { message, .. } => CommandError::Panicked { worker, message },
        error => CommandError::Call { worker, graph: graph.to_owned(), node: node.to_owned(), error },
    }
}

impl Worker {
    fn position(&self, graph: &str) -> Result<usize, CommandError> {
        let place = self.graphs.iter().position(|hosted| hosted.graph.name() == graph);
        place.ok_or_else(|| CommandError::NoGraph {
            worker: self.context.index(),
            graph: graph.to_owned(),
            known: match self.graphs.len() {
                0 => "none".into(),
                _ => self.graphs.iter().map(|hosted| hosted.graph.name()).collect::<Vec<_>>().join(", "),
            },
        })
    }

    fn is_free(&self, name: &str, but: Option<&str>) -> Result<(), CommandError> {
        let taken = self.graphs.iter().any(|hosted| hosted.graph.name() == name && Some(name) != but);
        match taken {
            true => Err(CommandError::NameTaken { worker: self.context.index(), graph: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Makes a graph that does not run yet.
    fn make(&self, factory: Factory) -> Result<(Graph, Clock), CommandError> {
        let failed = |problem| CommandError::Build { worker: self.context.index(), problem };
        match contained(|| factory.build(&self.context)) {
            Ok(Ok((graph, clock))) => Ok((graph, clock.unwrap_or_else(|| self.shared.config.clock.clone()))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(message) => Err(failed(format!("its factory panicked: {message}"))),
        }
    }

    /// Makes a graph with which the worker begins. Answers its ends of shuffles.
    ///
    /// The other workers must have the same ends.
    pub(crate) fn begin(&mut self, factory: Factory) -> Result<Vec<ShuffleEnd>, CommandError> {
        let (graph, clock) = self.make(factory)?;
        self.is_free(graph.name(), None)?;
        let ends = graph.shuffle_ends();
        self.host(graph, clock);
        Ok(ends)
    }

    /// Makes a graph that needs no other worker, to run or to replace `old`. Keeps it under the ticket.
    pub(crate) fn prepare_alone(
        &mut self,
        ticket: u64,
        old: Option<&str>,
        factory: Factory,
    ) -> Result<(), CommandError> {
        if let Some(old) = old {
            let place = self.position(old)?;
            let ends = self.graphs[place].graph.shuffle_ends();
            self.exchanges_nothing(old, &ends)?;
        }
        let ends = self.prepare(ticket, old, factory)?;
        let graph = match self.prepared.get(&ticket) {
            Some(Prepared::Graph(graph, _)) => graph.name().to_owned(),
            _ => String::new(),
        };
        let alone = self.exchanges_nothing(&graph, &ends);
        if alone.is_err() {
            self.forget(ticket);
        }
        alone
    }

    /// Whether a graph with these ends exchanges no packets with other workers.
    fn exchanges_nothing(&self, graph: &str, ends: &[ShuffleEnd]) -> Result<(), CommandError> {
        match ends.first().filter(|_| self.context.workers() > 1) {
            None => Ok(()),
            Some(end) => Err(CommandError::Alone {
                worker: self.context.index(),
                graph: graph.to_owned(),
                shuffle: end.node.clone(),
            }),
        }
    }

    fn host(&mut self, mut graph: Graph, clock: Clock) -> String {
        let name = graph.name().to_owned();
        self.watches.iter().for_each(|watch| graph.watch(watch.clone()));
        self.graphs.push(Hosted::new(graph, clock, self.shared.config.burst));
        self.tell_graphs();
        self.idler.busy();
        name
    }

    /// Makes a graph that runs, or replaces `old`, once all workers have theirs. Answers its ends of
    /// shuffles.
    pub(crate) fn prepare(
        &mut self,
        ticket: u64,
        old: Option<&str>,
        factory: Factory,
    ) -> Result<Vec<ShuffleEnd>, CommandError> {
        if let Some(old) = old {
            self.position(old)?;
        }
        let (graph, clock) = self.make(factory)?;
        self.is_free(graph.name(), old)?;
        let ends = graph.shuffle_ends();
        self.prepared.insert(ticket, Prepared::Graph(Box::new(graph), clock));
        Ok(ends)
    }

    /// Makes the graph that takes over from the graph of this name once all workers have theirs.
    ///
    /// Answers its ends of shuffles.
    pub(crate) fn prepare_change(
        &mut self,
        ticket: u64,
        graph: &str,
        change: Change,
    ) -> Result<Vec<ShuffleEnd>, CommandError> {
        let running = &self.graphs[self.position(graph)?].graph;
        let failed = |problem| CommandError::Build { worker: self.context.index(), problem };
        let made = contained(|| change.build(&self.context, running))
            .map_err(|message| failed(format!("making its nodes panicked: {message}")))?;
        let mut builder = made.map_err(|error| failed(error.to_string()))?;
        builder.check().map_err(|error| failed(error.to_string()))?;
        if builder.name() != graph {
            return Err(failed(format!("it is named `{}`, not `{graph}`", builder.name())));
        }
        let ends = builder.shuffle_ends(running);
        self.prepared.insert(ticket, Prepared::Change(builder));
        Ok(ends)
    }

    /// Drops a prepared graph.
    pub(crate) fn forget(&mut self, ticket: u64) {
        let prepared = self.prepared.remove(&ticket);
        prepared.into_iter().for_each(|prepared| self.discard(prepared));
    }

    fn discard(&self, prepared: Prepared) {
        match prepared {
            Prepared::Graph(graph, _) => self.let_go(*graph),
            // Each node's drop is contained.
            Prepared::Change(builder) => drop(builder),
        }
    }

    /// Runs a prepared graph as a new one. Answers its name.
    pub(crate) fn install_prepared(&mut self, ticket: u64) -> Result<String, CommandError> {
        let Prepared::Graph(graph, clock) = self.take_prepared(ticket)? else {
            return Err(self.given_up());
        };
        self.is_free(graph.name(), None)?;
        Ok(self.host(*graph, clock))
    }

    /// Lets a prepared graph take over from `old`.
    pub(crate) fn replace_prepared(&mut self, ticket: u64, old: &str) -> Result<Replaced, CommandError> {
        let prepared = self.take_prepared(ticket)?;
        let place = self.position(old)?;
        match prepared {
            Prepared::Graph(graph, clock) => {
                self.is_free(graph.name(), Some(old))?;
                Ok(self.take_over(place, *graph, clock))
            }
            Prepared::Change(builder) => self.carry_out(place, builder),
        }
    }

    fn take_prepared(&mut self, ticket: u64) -> Result<Prepared, CommandError> {
        self.prepared.remove(&ticket).ok_or_else(|| self.given_up())
    }

    fn given_up(&self) -> CommandError {
        CommandError::Build {
            worker: self.context.index(),
            problem: "the prepared graph was given up before it was to run".into(),
        }
    }

    /// The last step of a change: nodes that stay and state move across.
    ///
    /// It fails only where another change has taken nodes out since, and nothing has changed then.
    fn carry_out(&mut self, place: usize, builder: GraphBuilder) -> Result<Replaced, CommandError> {
        let pool = self.context.pool().clone();
        let old = &mut self.graphs[place];
        let time = old.time(self.now);
        let (graph, taken) = Graph::take_over(builder, pool, &mut old.graph, time).map_err(|error| {
            CommandError::Build { worker: self.context.index(), problem: error.to_string() }
        })?;
        let clock = old.clock().clone();
        self.is_moving = true;
        self.mailbox.bell.ring();
        Ok(self.replace_by(place, graph, clock, Some(taken)))
    }

    /// The last step, which cannot fail: the old graph drains, its state moves across, and it is counted.
    fn take_over(&mut self, place: usize, graph: Graph, clock: Clock) -> Replaced {
        let old = &mut self.graphs[place];
        let time = old.time(self.now);
        old.graph.drain(time);
        self.replace_by(place, graph, clock, None)
    }

    /// Moves state to a graph in place of the one that has drained, and counts that one.
    ///
    /// `taken` names the state that has moved already, by node and name. Where it is given, nodes without a
    /// successor are meant to go, and their state with them.
    fn replace_by(&mut self, place: usize, graph: Graph, clock: Clock, taken: Option<TakenOver>) -> Replaced {
        self.takeovers += 1;
        let index = self.context.index();
        let mut new = Hosted::new(graph, clock, self.shared.config.burst);
        let old = &mut self.graphs[place];
        let time = old.time(self.now);
        new.jumped = old.jumped;
        new.graph.take_watches_over(&mut old.graph);
        // Imported state has ages, which count from now and not from the epoch.
        new.graph.advance(time.max(old.graph.now()));
        tell_panics(old, &mut self.panics, &self.shared, index, self.now);
        let carried = taken.is_some();
        let (mut moved, mut refused, mut anew) = (Vec::new(), Vec::new(), Vec::new());
        for (node, StateSuccession { name, succession }) in taken.unwrap_or_default() {
            if succession.way == Way::Anew {
                refused.push(format!("{node}: `{name}` begins again: {}", succession.reason));
                anew.push((node, name));
            } else {
                moved.push((node, name));
            }
        }
        // Other workers may still write shared state from their old graphs. That state continues as it is.
        let shared = new.graph.adopt(&old.graph);
        let known: BTreeSet<_> = shared
            .iter()
            .map(|(node, state, _)| (node.clone(), state.clone()))
            .chain(moved.iter().cloned())
            .chain(anew)
            .collect();
        for (node, state, done) in shared {
            match done {
                Ok(()) => moved.push((node, state)),
                Err(error) => lose(&node, &error, &mut moved, &mut refused),
            }
        }
        let images = old.graph.export_of(|node| !carried || new.graph.successor(node).is_some());
        for panic in old.graph.take_panics() {
            refused.push(format!("{}: the export panicked: {}", panic.node, panic.message));
            if let Some(event) = self.panics.add(index, old.graph.name(), panic, self.now) {
                self.shared.config.events.tell(event);
            }
        }
        let mut copied: BTreeMap<String, u64> = BTreeMap::new();
        for (node, (state, bytes)) in images {
            if known.contains(&(node.clone(), state.clone())) {
                continue;
            }
            let successor = new.graph.successor(&node).unwrap_or(&node).to_owned();
            match new.graph.import(&successor, &state, &bytes) {
                Ok(()) => {
                    *copied.entry(successor).or_default() += bytes.len() as u64;
                    moved.push((node, state));
                }
                Err(error) => lose(&node, &error, &mut moved, &mut refused),
            }
        }
        let moved = moved.into_iter().map(|(node, state)| format!("{node}: {state}")).collect();
        let name = new.graph.name().to_owned();
        std::mem::swap(&mut self.graphs[place], &mut new);
        self.tell_graphs();
        // Its tables are those of state that has moved on.
        let old = GraphReport::counters(&new.graph);
        tell_panics(&mut new, &mut self.panics, &self.shared, index, self.now);
        self.let_go(new.graph);
        self.retire(&old);
        self.idler.busy();
        Replaced { graph: name, moved, refused, copied, old }
    }

    /// As [`remove`](Self::remove), for a graph to which no other worker gives packets.
    ///
    /// Any other graph would wait for the other workers' end before it went.
    pub(crate) fn remove_alone(&mut self, graph: &str) -> Result<GraphReport, CommandError> {
        let place = self.position(graph)?;
        let ends = self.graphs[place].graph.shuffle_ends();
        self.exchanges_nothing(graph, &ends)?;
        self.remove(graph)
    }

    /// Drains a graph and drops it. Answers its report.
    pub(crate) fn remove(&mut self, graph: &str) -> Result<GraphReport, CommandError> {
        let place = self.position(graph)?;
        let mut hosted = self.graphs.remove(place);
        self.takeovers += 1;
        self.tell_graphs();
        let report = self.wind_up(&mut hosted).checked();
        self.let_go(hosted.graph);
        self.retire(&report);
        Ok(report)
    }

    fn wind_up(&mut self, hosted: &mut Hosted) -> GraphReport {
        let time = hosted.time(self.now);
        hosted.graph.drain(time);
        let report = GraphReport::of(&hosted.graph);
        tell_panics(hosted, &mut self.panics, &self.shared, self.context.index(), self.now);
        report
    }

    /// Drops a graph. Code of its functions may panic during that.
    fn let_go(&self, graph: Graph) {
        let name = graph.name().to_owned();
        for panic in graph.take_down() {
            let worker = self.context.index();
            let warning = format!(
                "worker {worker}: `{}` of `{name}` panicked while it was taken down: {}",
                panic.node, panic.message
            );
            self.shared.config.events.tell(Event::Warning(warning));
        }
    }

    /// Keeps the sums of a graph that is gone, and hands in the counters of its nodes.
    ///
    /// The sections of its nodes are left to the caller: their state has moved on, and would be reported
    /// twice.
    fn retire(&mut self, report: &GraphReport) {
        self.add_totals(report);
        if report.nodes.is_empty() && report.unbalanced.is_empty() {
            return;
        }
        self.changes += 1;
        let counters = GraphReport {
            nodes: report.nodes.clone(),
            unbalanced: report.unbalanced.clone(),
            ..GraphReport::empty(&report.graph)
        };
        self.shared.retired[self.context.index()].hand_in(self.changes, counters);
    }

    fn add_totals(&mut self, report: &GraphReport) {
        match self.retired.iter_mut().find(|(graph, _)| *graph == report.graph) {
            Some((_, totals)) => totals.merge(&report.totals),
            None => self.retired.push((report.graph.clone(), report.totals.clone())),
        }
    }

    /// Calls a node's handler.
    pub(crate) fn call(
        &mut self,
        graph: &str,
        node: &str,
        handler: &str,
        argument: &str,
    ) -> Result<String, CommandError> {
        let worker = self.context.index();
        let place = self.position(graph)?;
        if !self.graphs[place].graph.has(node) {
            return Err(CommandError::NoNode { worker, node: node.to_owned() });
        }
        self.graphs[place]
            .graph
            .call(node, handler, argument)
            .map_err(|error| refusal(worker, graph, node, error))
    }

    /// The report of this worker so far, with these tables of its nodes.
    pub(crate) fn with_sections(&self, sections: Vec<NodeSection>) -> WorkerReport {
        let mut report = self.so_far(GraphReport::with_headers);
        for section in sections {
            if let Some(graph) = report.graphs.iter_mut().find(|graph| graph.graph == section.graph) {
                graph.sections.push(section);
            }
        }
        report
    }

    /// The counters of this worker so far.
    pub(crate) fn counters(&self) -> WorkerReport {
        self.so_far(GraphReport::counters)
    }

    fn so_far(&self, of: fn(&Graph) -> GraphReport) -> WorkerReport {
        self.with_retired(self.graphs.iter().map(|hosted| of(&hosted.graph)).collect())
    }

    /// The report of these graphs, with the sums of those that are gone.
    fn with_retired(&self, graphs: Vec<GraphReport>) -> WorkerReport {
        let mut all: Vec<GraphReport> = Vec::with_capacity(graphs.len());
        for (graph, totals) in &self.retired {
            all.push(GraphReport { totals: totals.clone(), ..GraphReport::empty(graph) });
        }
        for graph in graphs {
            match all.iter_mut().find(|known| known.graph == graph.graph) {
                Some(known) => {
                    let mut totals = std::mem::take(&mut known.totals);
                    totals.merge(&graph.totals);
                    *known = GraphReport { totals, ..graph };
                }
                None => all.push(graph),
            }
        }
        self.report(all.into_iter().map(GraphReport::checked).collect())
    }

    fn report(&self, graphs: Vec<GraphReport>) -> WorkerReport {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        WorkerReport {
            worker: self.context.index(),
            core: self.context.core(),
            graphs,
            retired: Some(self.changes),
            turns: self.turns,
            sleeps: self.idler.sleeps,
            cpu_seconds: used.tv_sec as f64 + used.tv_nsec as f64 / 1e9,
            panics: self.panics.reports().to_vec(),
            failure: None,
            gave_up: self.gave_up.clone(),
            failed_nodes: self.failures.clone(),
        }
    }

    /// Stops receiving, runs to completion, flushes, reports, and drops everything.
    pub(crate) fn finish(&mut self) -> WorkerReport {
        self.now = Instant::now();
        let mut graphs = std::mem::take(&mut self.graphs);
        let reports = graphs.iter_mut().map(|hosted| self.wind_up(hosted)).collect::<Vec<_>>();
        let report = self.with_retired(reports.clone());
        reports.iter().for_each(|report| self.add_totals(report));
        self.publish();
        for hosted in graphs {
            self.let_go(hosted.graph);
        }
        self.abandon();
        report
    }

    /// Drops everything without a report.
    pub(crate) fn abandon(&mut self) {
        for hosted in std::mem::take(&mut self.graphs) {
            self.let_go(hosted.graph);
        }
        for (_, prepared) in std::mem::take(&mut self.prepared) {
            self.discard(prepared);
        }
        // Those who asked see that the worker has ended.
        let _chores = contained(|| self.chores.clear());
        for (name, message) in self.context.release_all() {
            let worker = self.context.index();
            let warning =
                format!("worker {worker}: what it kept as `{name}` panicked while it was let go: {message}");
            self.shared.config.events.tell(Event::Warning(warning));
        }
    }
}
