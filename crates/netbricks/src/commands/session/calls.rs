//! Calls of handlers: posted to workers with a deadline, answered when all have answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use netbricks_control::api::{self, Code, Problem};
use netbricks_control::{Answer, Call};
use netbricks_core::{CallError, ControlCopy, HandlerKind, HandlerSide};
use netbricks_runtime::{CommandError, Control, HandlerCall};

use super::Session;

/// Answers of nodes and workers so far.
struct Gathered {
    missing: usize,
    answers: api::Answers,
    problem: Option<Problem>,
    /// Why a worker has not what the call names, which counts where no worker has it.
    absent: Option<Problem>,
    answer: Option<Answer<api::Answers>>,
}

impl Session<'_> {
    pub(super) fn call_handler(&mut self, mut call: Call, answer: Answer<api::Answers>) {
        let called = self.called(&call);
        if let Ok(Called { side: HandlerSide::Worker | HandlerSide::AnyWorker, .. }) = called
            && let Some(copy) = self.copies.get_mut(&call.function)
        {
            match copy.prepare(&call.handler, &call.argument) {
                Ok(prepared) => call.argument = prepared.unwrap_or(call.argument),
                Err(error) => return answer(Err(refused(&error))),
            }
        }
        match called {
            Err(problem) => answer(Err(problem)),
            Ok(Called { side: HandlerSide::Control, nodes }) => answer(self.call_here(&call, &nodes)),
            Ok(Called { side: HandlerSide::AnyWorker, nodes }) => {
                let turns = Turns {
                    control: self.control.clone(),
                    graph: self.graph_name().to_owned(),
                    node: nodes.into_iter().next().unwrap_or_default(),
                    workers: call.worker.map_or_else(
                        || (0..self.control.workers()).collect(),
                        |worker| VecDeque::from([worker]),
                    ),
                    call,
                };
                turns.next(None, answer);
            }
            Ok(Called { side: HandlerSide::Worker, nodes }) => self.call_workers(&call, &nodes, answer),
        }
    }

    /// The target of a call, if there is such a handler.
    fn called(&self, call: &Call) -> Result<Called, Problem> {
        let functions = &self.installed.functions;
        let Some(function) = functions.iter().find(|function| function.name == call.function) else {
            let known = functions.iter().map(|function| function.name.as_str());
            return Err(Problem::unknown("function", &call.function, known));
        };
        let handlers = self.copies.get(&function.name).map(ControlCopy::handlers).unwrap_or_default();
        let kind = if call.write { HandlerKind::Write } else { HandlerKind::Read };
        // A name may be read and written: it is then listed once for each.
        let mut named = handlers.iter().filter(|handler| handler.name == call.handler);
        let first = named.clone().next();
        let Some(handler) = named.find(|handler| handler.kind == kind).or(first) else {
            let known = handlers.iter().map(|handler| handler.name.as_str());
            let what = format!("handler of `{}` named", call.function);
            return Err(Problem::unknown(&what, &call.handler, known));
        };
        if handler.kind != kind {
            let (is, by) = if call.write { ("read", "get") } else { ("written", "set") };
            let detail = format!("`{}.{}` is {is}: use `{by}`", call.function, call.handler);
            return Err(Problem::new(Code::WrongKind, detail));
        }
        let workers = self.control.workers();
        if let Some(worker) = call.worker.filter(|worker| *worker >= workers) {
            let detail = format!("there is no worker {worker}: there are {workers}, from 0");
            return Err(Problem::new(Code::NotFound, detail));
        }
        // Where all nodes of a function on a worker are one, the first answers for all.
        let nodes = if function.is_one_node() { &function.nodes[..1] } else { &function.nodes[..] };
        Ok(Called { side: handler.side, nodes: nodes.to_vec() })
    }

    /// Calls a handler of state that all workers share, on the control side's copy of the node.
    fn call_here(&mut self, call: &Call, nodes: &[String]) -> Result<api::Answers, Problem> {
        let kind = if call.write { HandlerKind::Write } else { HandlerKind::Read };
        let copy = self.copies.get_mut(&call.function);
        let copy = copy.ok_or_else(|| Problem::unknown("function", &call.function, []))?;
        let value = copy.call_as(kind, &call.handler, &call.argument).map_err(|error| refused(&error))?;
        let node = nodes.first().cloned().unwrap_or_default();
        Ok(answers(call, vec![api::HandlerAnswer { worker: None, node, value }]))
    }

    /// Calls a handler of which each worker has an answer of its own.
    fn call_workers(&self, call: &Call, nodes: &[String], answer: Answer<api::Answers>) {
        let workers =
            call.worker.map_or_else(|| (0..self.control.workers()).collect(), |worker| vec![worker]);
        let gathered = Arc::new(Mutex::new(Gathered {
            missing: workers.len() * nodes.len(),
            answers: answers(call, Vec::new()),
            problem: None,
            absent: None,
            answer: Some(answer),
        }));
        for worker in workers {
            for node in nodes {
                let posted = posted(self.graph_name(), node, call);
                let (gather, of) = (gathered.clone(), node.clone());
                let answer = move |result| Gathered::add(&gather, worker, of, result);
                if let Err(error) = self.control.post_call(worker, posted, call.deadline, answer) {
                    Gathered::add(&gathered, worker, node.clone(), Err(error));
                }
            }
        }
    }
}

/// The nodes that answer a call, and the side on which they do.
struct Called {
    side: HandlerSide,
    nodes: Vec<String>,
}

fn answers(call: &Call, answers: Vec<api::HandlerAnswer>) -> api::Answers {
    api::Answers { function: call.function.clone(), handler: call.handler.clone(), answers }
}

fn posted(graph: &str, node: &str, call: &Call) -> HandlerCall {
    HandlerCall {
        graph: graph.to_owned(),
        node: node.to_owned(),
        handler: call.handler.clone(),
        argument: call.argument.clone(),
    }
}

/// A call that one worker is to answer for all: the first that has the node.
struct Turns {
    control: Control,
    graph: String,
    node: String,
    /// The workers that were not asked yet.
    workers: VecDeque<usize>,
    call: Call,
}

impl Turns {
    /// Asks the next worker. `problem` is what the last one said.
    fn next(mut self, problem: Option<Problem>, answer: Answer<api::Answers>) {
        let Some(worker) = self.workers.pop_front() else {
            let none = || Problem::new(Code::NotFound, format!("no worker runs `{}`", self.call.function));
            return answer(Err(problem.unwrap_or_else(none)));
        };
        let (call, deadline) = (posted(&self.graph, &self.node, &self.call), self.call.deadline);
        let control = self.control.clone();
        // Taken by the worker's answer, or by this where the worker has ended.
        let waits = Arc::new(Mutex::new(Some((self, answer))));
        let take = |waits: &Mutex<Option<(Self, Answer<api::Answers>)>>| {
            waits.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let waiting = waits.clone();
        let posted = control.post_call(worker, call, deadline, move |result| {
            let Some((turns, answer)) = take(&waiting) else { return };
            match result {
                Ok(value) => {
                    let answered =
                        api::HandlerAnswer { worker: Some(worker), node: turns.node.clone(), value };
                    answer(Ok(answers(&turns.call, vec![answered])));
                }
                Err(CommandError::NoNode { .. }) => turns.next(None, answer),
                Err(error) => answer(Err(problem_of(&error))),
            }
        });
        if let Err(error) = posted
            && let Some((turns, answer)) = take(&waits)
        {
            turns.next(Some(problem_of(&error)), answer);
        }
    }
}

impl Gathered {
    /// Adds an answer; the last one is followed by the answer to the call.
    fn add(gathered: &Mutex<Self>, worker: usize, node: String, result: Result<String, CommandError>) {
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.missing -= 1;
        match result {
            Ok(value) => {
                gathered.answers.answers.push(api::HandlerAnswer { worker: Some(worker), node, value });
            }
            // No packet comes to the node on this worker, so that it has no state there.
            Err(CommandError::NoNode { .. }) => {}
            Err(error @ CommandError::Call { error: CallError::Elsewhere { .. }, .. }) => {
                gathered.absent.get_or_insert_with(|| problem_of(&error));
            }
            Err(error) => {
                gathered.problem.get_or_insert_with(|| problem_of(&error));
            }
        }
        if gathered.missing > 0 {
            return;
        }
        let (mut answers, problem) = (std::mem::take(&mut gathered.answers), gathered.problem.take());
        let problem = problem.or_else(|| gathered.absent.take().filter(|_| answers.answers.is_empty()));
        let Some(answer) = gathered.answer.take() else { return };
        drop(gathered);
        answers.answers.sort_by(|one, other| (one.worker, &one.node).cmp(&(other.worker, &other.node)));
        answer(match problem {
            Some(problem) => Err(problem),
            None if answers.answers.is_empty() => {
                Err(Problem::new(Code::NotFound, format!("no worker runs `{}`", answers.function)))
            }
            None => Ok(answers),
        });
    }
}

/// An error of the runtime as the API tells it.
pub(super) fn problem_of(error: &CommandError) -> Problem {
    let code = match error {
        CommandError::Call { error, .. } => return refused(error),
        CommandError::NoWorker { .. } | CommandError::NoGraph { .. } | CommandError::NoNode { .. } => {
            Code::NotFound
        }
        CommandError::Ended { .. } => Code::Ending,
        CommandError::NoAnswer { .. } | CommandError::TooLate { .. } => Code::Timeout,
        CommandError::TooManyWatches { .. } => Code::Busy,
        CommandError::Build { .. } | CommandError::Shuffles(_) => Code::Machine,
        _ => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

/// The refusal of a handler as the API tells it.
fn refused(error: &CallError) -> Problem {
    let code = match error {
        CallError::Unknown { .. } => Code::NotFound,
        CallError::Argument { .. } | CallError::Elsewhere { .. } => Code::BadRequest,
        CallError::Kind { .. } | CallError::OnWorker { .. } => Code::WrongKind,
        _ => Code::Internal,
    };
    Problem::new(code, error.to_string())
}
