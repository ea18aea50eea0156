//! Calls of handlers: posted to workers with a deadline, answered when all have answered.

use std::sync::{Arc, Mutex, PoisonError};

use netbricks_control::api::{self, Code, Problem};
use netbricks_control::{Answer, Call};
use netbricks_core::CallError;
use netbricks_runtime::{CommandError, HandlerCall};

use super::Session;

/// Answers of nodes and workers so far.
struct Gathered {
    missing: usize,
    answers: api::Answers,
    problem: Option<Problem>,
    answer: Option<Answer<api::Answers>>,
}

impl Session<'_> {
    pub(super) fn call_handler(&self, call: Call, answer: Answer<api::Answers>) {
        let function = match self.functions.iter().find(|function| function.name == call.function) {
            Some(function) => function,
            None => {
                let known = self.functions.iter().map(|function| function.name.as_str());
                return answer(Err(Problem::unknown("function", &call.function, known)));
            }
        };
        let Some(handler) = function.handlers.iter().find(|handler| handler.name == call.handler) else {
            let known = function.handlers.iter().map(|handler| handler.name.as_str());
            let what = format!("handler of `{}` named", call.function);
            return answer(Err(Problem::unknown(&what, &call.handler, known)));
        };
        if handler.writes != call.write {
            let (is, use_) = if handler.writes { ("written", "PUT") } else { ("read", "GET") };
            let detail = format!("`{}.{}` is {is}, by {use_}", call.function, call.handler);
            return answer(Err(Problem::new(Code::WrongKind, detail)));
        }
        let workers = self.control.workers();
        let workers: Vec<usize> = match call.worker {
            Some(worker) if worker >= workers => {
                let detail = format!("there is no worker {worker}: there are {workers}, from 0");
                return answer(Err(Problem::new(Code::NotFound, detail)));
            }
            Some(worker) => vec![worker],
            None => (0..workers).collect(),
        };
        let nodes = &function.nodes;
        let gathered = Arc::new(Mutex::new(Gathered {
            missing: workers.len() * nodes.len(),
            answers: api::Answers {
                function: call.function.clone(),
                handler: call.handler.clone(),
                answers: Vec::new(),
            },
            problem: None,
            answer: Some(answer),
        }));
        for worker in workers {
            for node in nodes {
                let posted = HandlerCall {
                    graph: self.graph_name().to_owned(),
                    node: node.clone(),
                    handler: call.handler.clone(),
                    argument: call.argument.clone(),
                };
                let (gather, of) = (gathered.clone(), node.clone());
                let answer = move |result| Gathered::add(&gather, worker, of, result);
                if let Err(error) = self.control.post_call(worker, posted, call.deadline, answer) {
                    Gathered::add(&gathered, worker, node.clone(), Err(error));
                }
            }
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
            Err(error) => {
                gathered.problem.get_or_insert_with(|| problem(&error));
            }
        }
        if gathered.missing > 0 {
            return;
        }
        let (mut answers, problem) = (std::mem::take(&mut gathered.answers), gathered.problem.take());
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
pub(super) fn problem(error: &CommandError) -> Problem {
    let code = match error {
        CommandError::NoWorker { .. } | CommandError::NoGraph { .. } | CommandError::NoNode { .. } => {
            Code::NotFound
        }
        CommandError::Ended { .. } => Code::Ending,
        CommandError::NoAnswer { .. } | CommandError::TooLate { .. } => Code::Timeout,
        CommandError::Call { error: CallError::Unknown { .. }, .. } => Code::NotFound,
        CommandError::Call { error: CallError::Argument { .. }, .. } => Code::BadRequest,
        CommandError::Build { .. } | CommandError::Shuffles(_) => Code::Machine,
        _ => Code::Internal,
    };
    match error {
        CommandError::Call { error, .. } => Problem::new(code, error.to_string()),
        error => Problem::new(code, error.to_string()),
    }
}
