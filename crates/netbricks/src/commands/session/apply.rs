//! Another file takes over from the one that runs, without a packet lost.
//!
//! First the file is [prepared](super::prepare): it is checked, and its new ports are opened. Then every worker makes
//! its new nodes. Only when all of that worked do the workers take over. Until then nothing has changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use netbricks_buffer::Pool;
use netbricks_control::api::{self, Code, EventLevel, Problem};
use netbricks_control::{Prepared, Written};
use netbricks_core::tables::stock;
use netbricks_core::{ControlCopy, Handler, HandlerKind, HandlerSide, LiveChange};
use netbricks_runtime::{Change, Replaced};

use super::super::run::port_summary;
use super::installed::{Installed, InstalledFunction, writes_of};
use super::prepare::{Candidate, Parts};
use super::{Session, calls, grants_of};
use crate::chain::{OpenPorts, Place, WorkerPorts};

impl Session<'_> {
    pub(super) fn applied(&mut self, prepared: Prepared) -> Result<api::Applied, Problem> {
        if self.is_stopping() {
            return Err(Problem::new(Code::Ending, "the dataplane is ending"));
        }
        self.no_worker_is_stuck()?;
        let (plan, written) = (prepared.plan.clone(), prepared.wanted.written.clone());
        let Parts { mut candidate, opened, basis } = prepared.into_parts();
        if !Arc::ptr_eq(&basis, &self.installed) {
            let detail = "what runs has changed while the file was prepared";
            return Err(Problem::new(Code::Stale, detail).help("apply it again"));
        }
        // Handlers may have written since it was prepared.
        let late = written.strip_prefix(&*candidate.written).unwrap_or(&written);
        candidate.undo_late(late);
        let live = &candidate.difference.live;
        for (name, change) in live {
            if writes_of(late, name).into_iter().any(|(_, argument)| change.touches(argument)) {
                let detail = format!("a handler of `{name}` has written of the same entries meanwhile");
                return Err(Problem::new(Code::Stale, detail).help("apply it again"));
            }
        }
        let mut opened = opened?;
        let grants = grants_of(&candidate.installed.tenants)
            .map_err(|problem| Problem::new(Code::Machine, problem))?;
        let kept = |name: &str| candidate.difference.kept_functions.contains(name);
        let workers = self.control.workers();
        let mut copies = functions_of(&candidate.installed, kept, (self.pool, self.seed), workers)?;
        let goes_on = |name: &str| !live.contains_key(name);
        let mut updated = functions_of(&candidate.installed, goes_on, (self.pool, self.seed), workers)?;
        self.pass_on_what_was_learned(&candidate.installed, &mut copies);
        // Before their queues are taken, which some ports ask for.
        if let Some((_, error)) = candidate.installed.filters.install(&mut opened).into_iter().next() {
            return Err(Problem::new(Code::Machine, error.to_string()));
        }
        let ports = self.new_queues(&candidate, &mut opened)?;
        self.filter_beside(&candidate, &opened)?;
        let replaced = write_live(live, &mut updated).and_then(|()| {
            let replaced = self.take_over(&candidate, ports);
            if replaced.is_err() {
                self.undo_live(live, &mut updated);
            }
            replaced
        });
        stock::give_back();
        if replaced.is_err() {
            self.filter_again();
        }
        let replaced = replaced?;
        updated.values_mut().for_each(ControlCopy::agree);
        copies.extend(updated);
        let longest_pause_ns = self.control.take_longest_pause();
        let mut plan = plan;
        copied_bytes(&mut plan, &candidate.installed, &replaced);
        undone_late(&mut plan, &self.installed, late, &replaced);
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

    /// Undoes what handlers wrote for a change that failed.
    fn undo_live(&self, live: &BTreeMap<String, LiveChange>, copies: &mut BTreeMap<String, ControlCopy>) {
        for (name, change) in live {
            let Some(copy) = copies.get_mut(name) else { continue };
            if let Err(problem) = change.undo(copy) {
                let told = format!("what the file changes of `{name}` could not be undone: {problem}");
                self.events.tell(EventLevel::Error, "not-undone", name.as_str(), told);
            }
        }
    }

    /// Lets functions that are made again begin with what their control tasks have found out.
    ///
    /// No worker has joined the state of the new ones yet, so that no packet meets them without it.
    fn pass_on_what_was_learned(&mut self, after: &Installed, copies: &mut BTreeMap<String, ControlCopy>) {
        let definition = |installed: &Installed, name: &str| {
            let function = installed.functions.iter().find(|function| function.name == name);
            function.map(|function| function.definition.clone())
        };
        for (name, copy) in copies {
            let Some(before) = self.copies.get_mut(name) else { continue };
            if definition(&self.installed, name) != definition(after, name) {
                continue;
            }
            for problem in copy.learn_from(before) {
                self.events.tell(EventLevel::Warning, "state-lost", name.as_str(), problem);
            }
        }
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
        self.installed = Arc::new(installed);
        // Those of the graph before go.
        self.filter_again();
        self.copies.retain(|name, _| difference.kept_functions.contains(name));
        self.copies.extend(copies);
        if let Some(tasks) = &mut self.control_tasks {
            tasks.follow(&self.installed, &difference.kept_functions);
        }
    }
}

/// Writes what changes of functions that go on, all of it or nothing.
fn write_live(
    live: &BTreeMap<String, LiveChange>,
    copies: &mut BTreeMap<String, ControlCopy>,
) -> Result<(), Problem> {
    let mut done: Vec<(&String, &LiveChange)> = Vec::new();
    for (name, change) in live {
        let written = copies.get_mut(name).map_or(Ok(()), |copy| change.write(copy));
        let Err(problem) = written else {
            done.push((name, change));
            continue;
        };
        // What was before had room, so that a refusal is not to be expected; the first problem is the one to tell.
        for (name, change) in done {
            let _refused = copies.get_mut(name).map(|copy| change.undo(copy));
        }
        let detail = format!("`{name}` does not take what the file changes ({change}): {problem}");
        return Err(Problem::new(Code::Conflict, detail)
            .help("mend what runs by its handlers, or take the function out by one `apply` and put it in by the next"));
    }
    Ok(())
}

/// Tells of state that begins again since handlers wrote of its function while the change was prepared.
fn undone_late(plan: &mut api::Plan, before: &Installed, late: &[Written], replaced: &[Replaced]) {
    for change in plan.changes.iter_mut().filter(|change| change.kind == api::ChangeKind::Replaced) {
        let function = before.functions.iter().find(|known| known.name == change.name);
        let Some(function) = function.filter(|known| late.iter().any(|of| of.function == known.name)) else {
            continue;
        };
        let moved = |name: &str| {
            let of = function.nodes.iter().map(|node| format!("{node}: {name}"));
            of.into_iter().any(|of| replaced.iter().any(|replaced| replaced.moved.contains(&of)))
        };
        for state in change.states.iter_mut().filter(|state| !moved(&state.name)) {
            if state.way != api::StateWay::Anew {
                (state.way, state.bytes) = (api::StateWay::Anew, None);
                state.reason =
                    "a handler wrote while the change was prepared, and that is written again".into();
            }
        }
    }
}

/// Tells of each function how much of its state all workers have copied.
fn copied_bytes(plan: &mut api::Plan, installed: &Installed, replaced: &[Replaced]) {
    for change in plan.changes.iter_mut().filter(|change| change.part == "function") {
        let function = installed.functions.iter().find(|function| function.name == change.name);
        let nodes = function.map(|function| function.nodes.as_slice()).unwrap_or_default();
        let bytes = replaced.iter().flat_map(|replaced| &replaced.copied);
        let bytes: u64 = bytes.filter(|(node, _)| nodes.contains(node)).map(|(_, bytes)| bytes).sum();
        change.copied_bytes = Some(bytes).filter(|bytes| *bytes > 0);
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
        tenants: handler.tenants,
    };
    api::Function {
        name: function.name.clone(),
        definition: function.definition.clone(),
        nodes: function.nodes.clone(),
        handlers: copy.map(|copy| copy.handlers().iter().map(handler).collect()).unwrap_or_default(),
    }
}
