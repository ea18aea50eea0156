//! Work for the control side that takes longer than a worker may be away from its packets.
//!
//! A worker does one step of one chore between two rounds.

use std::time::{Duration, Instant};

use netbricks_core::{CallError, Section, Steps};

use crate::change::refusal;
use crate::control::HandlerCall;
use crate::report::{CommandError, NodeSection, WorkerReport};
use crate::worker::Worker;

/// The time after the deadline of a call in which an answer that had begun may still come.
const LONGEST: Duration = Duration::from_secs(2);

/// A chore: answers whether it goes on after a step.
pub(crate) type Chore = Box<dyn FnMut(&mut Worker) -> bool>;

/// The receiver of a handler's answer. It must not wait.
pub(crate) type CallAnswer = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

/// A call that is answered in steps.
struct Reading {
    call: HandlerCall,
    /// When no client waits for the answer any more.
    until: Instant,
    steps: Steps<String>,
    /// The changes of the worker's graphs when it began: a new graph's state is read from its beginning.
    changes: u64,
}

impl Worker {
    /// Calls a handler, and answers at once or after some steps.
    pub(crate) fn answer_call(&mut self, call: HandlerCall, deadline: Instant, answer: CallAnswer) {
        match self.begin_reading(&call) {
            None => {
                let HandlerCall { graph, node, handler, argument } = &call;
                answer(self.call(graph, node, handler, argument));
            }
            Some(Err(error)) => answer(Err(error)),
            Some(Ok(steps)) => {
                let until = deadline + LONGEST;
                let mut reading = Reading { call, until, steps, changes: self.takeovers };
                let mut answer = Some(answer);
                self.chores.push_back(Box::new(move |hands| {
                    let answered = hands.read_on(&mut reading);
                    match answered.and_then(|answered| Some((answered, answer.take()?))) {
                        None => answer.is_some(),
                        Some((answered, answer)) => {
                            answer(answered);
                            false
                        }
                    }
                }));
            }
        }
    }

    fn begin_reading(&mut self, call: &HandlerCall) -> Option<Result<Steps<String>, CommandError>> {
        let HandlerCall { graph, node, handler, argument } = call;
        let worker = self.context.index();
        let hosted = self.graphs.iter_mut().find(|hosted| hosted.graph.name() == graph)?;
        let begun = hosted.graph.call_steps(node, handler, argument)?;
        Some(begun.map_err(|error| refusal(worker, graph, node, error)))
    }

    /// The next step of a call, and its answer after the last one.
    fn read_on(&mut self, reading: &mut Reading) -> Option<Result<String, CommandError>> {
        let worker = self.context.index();
        if Instant::now() > reading.until {
            return Some(Err(CommandError::TooLate { worker }));
        }
        if reading.changes != self.takeovers {
            reading.changes = self.takeovers;
            match self.begin_reading(&reading.call) {
                Some(Ok(steps)) => reading.steps = steps,
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    let HandlerCall { graph, node, handler, argument } = &reading.call;
                    return Some(self.call(graph, node, handler, argument));
                }
            }
        }
        let HandlerCall { graph, node, handler, .. } = &reading.call;
        let hosted = self.graphs.iter_mut().find(|hosted| hosted.graph.name() == graph);
        let steps = &mut reading.steps;
        let stepped = match hosted {
            Some(hosted) => hosted.graph.call_step(node, handler, steps),
            None => Err(CallError::Unknown { name: node.clone(), known: String::new() }),
        };
        match stepped {
            Ok(answer) => answer.map(Ok),
            Err(error) => Some(Err(refusal(worker, graph, node, error))),
        }
    }

    /// Reports with the tables of all nodes, each made in steps. The counters are those of its end.
    pub(crate) fn report_in_steps(&mut self, mut answer: impl FnMut(WorkerReport) + 'static) {
        let nodes = self.graphs.iter().flat_map(|hosted| {
            let graph = hosted.graph.name().to_owned();
            hosted.graph.node_names().map(move |node| (graph.clone(), node.to_owned()))
        });
        let mut nodes = nodes.collect::<Vec<_>>().into_iter();
        let mut current: Option<(String, String, std::vec::IntoIter<Steps<Section>>)> = None;
        let (mut step, mut sections): (Option<Steps<Section>>, Vec<NodeSection>) = (None, Vec::new());
        self.chores.push_back(Box::new(move |hands| {
            let Some((graph, node, tables)) = &mut current else {
                let Some((graph, node)) = nodes.next() else {
                    answer(hands.with_sections(std::mem::take(&mut sections)));
                    return false;
                };
                let hosted = hands.graphs.iter().find(|hosted| hosted.graph.name() == graph);
                let tables = hosted.map(|hosted| hosted.graph.report_steps(&node)).unwrap_or_default();
                current = (!tables.is_empty()).then(|| (graph, node, tables.into_iter()));
                return true;
            };
            let Some(steps) = &mut step else {
                step = tables.next();
                if step.is_none() {
                    current = None;
                }
                return true;
            };
            let hosted = hands.graphs.iter().find(|hosted| hosted.graph.name() == graph);
            match hosted.and_then(|hosted| hosted.graph.report_step(node, steps)) {
                Some(None) => {}
                Some(Some(section)) => {
                    sections.push(NodeSection { graph: graph.clone(), node: node.clone(), section });
                    step = None;
                }
                // It panicked, or is gone.
                None => step = None,
            }
            true
        }));
    }

    /// Does one step of the chore that has waited longest.
    pub(crate) fn do_chore(&mut self) {
        let Some(mut chore) = self.chores.pop_front() else { return };
        let goes_on = crate::worker::contained(|| chore(self)).unwrap_or(false);
        if goes_on {
            self.chores.push_back(chore);
        }
    }
}
