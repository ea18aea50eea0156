//! The director: the one thread that changes and asks the running dataplane.
//!
//! Other threads pass it [tasks](Task) by a bounded queue. A task must not wait: what a worker answers goes
//! straight to the [`Answer`] that came with the question.

mod changes;
mod writes;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use self::changes::Changes;
pub use self::changes::{Change, ChangeAnswer, ChangeAsker, Prepared, Wanted};
pub use self::writes::WriteAnswer;
pub(crate) use self::writes::{Fence, UnderWay};
use crate::api::{
    Answers, Applied, Code, EventLevel, Function, Graph, HistoryEntry, ObserveRequest, Port, Problem,
    RunState, Source, Stats, Status,
};
use crate::events::Events;
use crate::observe::Observing;
use crate::records::{Records, Subject, Unconfirmed, Written, without_superseded};
use crate::store::Files;

/// Tasks that may wait for the director; more are refused as [`Busy`](Code::Busy).
const WAITING: usize = 256;
/// The time after which a rollback is tried again that failed.
const AGAIN: Duration = Duration::from_secs(60);
/// The time that a write of a handler has when the journal is replayed.
const REPLAY: Duration = Duration::from_secs(10);

/// A task for the director.
pub type Task = Box<dyn FnOnce(&mut Director<'_>) + Send>;

/// The receiver of an answer. It is called once, on any thread, and must not wait.
pub type Answer<T> = Box<dyn FnOnce(Result<T, Problem>) + Send>;

/// The sending end of the director's queue.
#[derive(Clone)]
pub struct Tasks(SyncSender<Task>);

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tasks")
    }
}

impl Tasks {
    /// Passes a task to the director. Returns at once.
    ///
    /// # Errors
    /// [`Code::Busy`] where too many wait already, [`Code::Ending`] where the director has ended.
    pub fn post(&self, task: impl FnOnce(&mut Director<'_>) + Send + 'static) -> Result<(), Problem> {
        self.0.try_send(Box::new(task)).map_err(|error| match error {
            TrySendError::Full(_) => Problem::new(Code::Busy, format!("{WAITING} requests wait already"))
                .help("try again in a moment"),
            TrySendError::Disconnected(_) => Problem::new(Code::Ending, "the dataplane is ending"),
        })
    }
    /// As [`post`](Self::post), from a thread that may wait until there is room.
    pub fn post_patiently(&self, task: impl FnOnce(&mut Director<'_>) + Send + 'static) {
        // Where the director has ended, there is no one to do it.
        let _ended = self.0.send(Box::new(task));
    }
}

/// The director's end of its queue.
#[derive(Debug)]
pub struct Waiting(Receiver<Task>);

impl Waiting {
    /// A queue, and the end by which tasks are passed to it.
    pub fn new() -> (Tasks, Self) {
        let (sender, receiver) = sync_channel(WAITING);
        (Tasks(sender), Self(receiver))
    }
    /// The next task; waits at most until `deadline`.
    pub fn next(&self, deadline: Instant) -> Option<Task> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.0.recv_timeout(left) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // No listener is left: only time passes.
                std::thread::sleep(left);
                None
            }
        }
    }
}

/// A call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: String,
    /// The handler.
    pub handler: String,
    /// Its argument.
    pub argument: String,
    /// Whether it is to change state.
    pub write: bool,
    /// The worker to call; all where none is given.
    pub worker: Option<usize>,
    /// When the caller stops waiting: a worker that has not begun by then does nothing.
    pub deadline: Instant,
}

/// The dataplane as the director sees it. Each kind of configuration implements it once.
pub trait Dataplane {
    /// The state of the run; the director fills in what it knows itself.
    fn status(&self) -> Status;
    /// Whether packets move.
    fn state(&self) -> RunState;
    /// Asks for the counters. The answer may come before this returns, or later.
    fn stats(&mut self, answer: Answer<Stats>);
    /// The graph.
    fn graph(&self) -> Graph;
    /// The ports, in the order of the file.
    fn ports(&self) -> Vec<Port>;
    /// The functions with their handlers, in the order of the file.
    fn functions(&self) -> Vec<Function>;
    /// Calls a handler. The answer may come before this returns, or later from a worker.
    fn call(&mut self, call: Call, answer: Answer<Answers>);
    /// The form in which the journal keeps writes of a handler; `None` where each write counts.
    fn subject(&self, _function: &str, _handler: &str) -> Option<Subject> {
        None
    }
    /// The running file with what these writes changed as keys of it, and those writes that no key can say.
    fn with_written(&mut self, written: &[Written]) -> (Source, Vec<Written>) {
        (self.source(), written.to_vec())
    }
    /// Those of these writes that another file has as keys, so that they are not made again under it.
    fn said_by(&mut self, _source: &Source, _written: &[Written]) -> Vec<Written> {
        Vec::new()
    }
    /// Prepares a change: checks the file, opens new ports, and makes large tables. What runs goes on as it is.
    ///
    /// # Errors
    /// The faults of the file.
    fn prepare(&mut self, wanted: &Wanted) -> Result<Prepared, Problem>;
    /// As [`prepare`](Self::prepare), on another thread, where `done` is called.
    fn prepare_beside(&mut self, wanted: Wanted, done: Answer<Prepared>) {
        let prepared = self.prepare(&wanted);
        std::thread::spawn(move || done(prepared));
    }
    /// Makes a prepared file run.
    ///
    /// # Errors
    /// [`Code::Stale`] where what runs has changed since it was prepared, and faults of the machine; what ran before
    /// then runs on untouched.
    fn apply(&mut self, prepared: Prepared) -> Result<Applied, Problem>;
    /// The files that a file names, with the places of their content.
    ///
    /// These are the places of `files`, where it has them.
    fn named_files(&self, source: &Source, files: &Files) -> Files;
    /// The file that runs.
    fn source(&self) -> Source;
    /// Drains and ends the run.
    fn stop(&mut self);
    /// Stops asking the sources for packets.
    ///
    /// # Errors
    /// When a worker does not answer.
    fn suspend(&mut self) -> Result<(), Problem>;
    /// Asks the sources for packets again.
    ///
    /// # Errors
    /// When a worker does not answer.
    fn resume(&mut self) -> Result<(), Problem>;
    /// Arms a watch over packets. Dropping the answer ends it.
    ///
    /// # Errors
    /// A wrong filter, no such place, too many watches, or a worker that does not answer.
    fn observe(&mut self, request: &ObserveRequest) -> Result<Observing, Problem>;
}

/// The owner of what runs and of its history.
pub struct Director<'d> {
    plane: &'d mut dyn Dataplane,
    records: &'d mut Records,
}

impl<'d> Director<'d> {
    /// The director of this dataplane.
    pub fn new(plane: &'d mut dyn Dataplane, records: &'d mut Records) -> Self {
        Self { plane, records }
    }

    /// Does what is due by itself: a configuration that was not confirmed in time is rolled back.
    ///
    /// The rollback waits for no other change. A change that waits for handlers' writes ends when they are answered.
    pub fn tick(&mut self, now: Instant, tasks: &Tasks) {
        if self.records.deadline().is_some_and(|until| now >= until) {
            let number = self.records.running;
            self.tell(
                EventLevel::Warning,
                "not-confirmed",
                format!("configuration {number} was not confirmed in time"),
            );
            self.roll_back_overdue(tasks);
        }
        self.pass_fence(now);
    }

    fn tell(&self, level: EventLevel, kind: &str, message: String) {
        self.records.events.tell(level, kind, "", message);
    }

    /// The events of the run.
    pub fn events(&self) -> Events {
        self.records.events.clone()
    }
    /// The generation now.
    pub fn generation(&self) -> u64 {
        self.records.generation
    }
    /// The state of the run.
    pub fn status(&self) -> Status {
        let records = &self.records;
        let left = |unconfirmed: Unconfirmed| unconfirmed.until.saturating_duration_since(Instant::now());
        Status {
            generation: records.generation,
            configuration: records.running,
            confirmed: records.unconfirmed.is_none(),
            confirm_within_seconds: records.unconfirmed.map(|unconfirmed| left(unconfirmed).as_secs_f64()),
            journal: records.written.len() as u64,
            ..self.plane.status()
        }
    }
    /// Asks for the counters. The answer may come before this returns, or later, on another thread.
    pub fn stats(&mut self, answer: Answer<Stats>) {
        let generation = self.records.generation;
        self.plane.stats(Box::new(move |stats| answer(stats.map(|stats| Stats { generation, ..stats }))));
    }
    /// The graph.
    pub fn graph(&self) -> Graph {
        self.plane.graph()
    }
    /// The ports.
    pub fn ports(&self) -> Vec<Port> {
        self.plane.ports()
    }
    /// The functions.
    pub fn functions(&self) -> Vec<Function> {
        self.plane.functions()
    }
    /// The configurations that ran, newest first.
    pub fn history(&self) -> Vec<HistoryEntry> {
        self.records.entries()
    }
    /// The file that runs.
    pub fn source(&self) -> Source {
        self.plane.source()
    }
    /// The file that would make what runs.
    ///
    /// Routes, backends and the like that handlers changed since are keys of it. Comments behind it say all else that they
    /// changed.
    pub fn running_source(&mut self) -> Source {
        let (mut source, rest) = self.plane.with_written(self.records.written());
        if rest.is_empty() {
            return source;
        }
        if !source.text.ends_with('\n') {
            source.text.push('\n');
        }
        source
            .text
            .push_str("\n# Changed live since this file was applied, and done again at the next start:\n");
        for written in &rest {
            source.text.extend(command(written).lines().map(|line| format!("#   {line}\n")));
        }
        source
    }
    /// The writes of handlers since it was applied, oldest first.
    pub fn written(&self) -> &[Written] {
        &self.records.written
    }

    /// The file of a configuration of the history.
    ///
    /// # Errors
    /// [`Code::NotFound`] where the history does not have it, and failures of the state directory.
    pub fn configuration(&mut self, number: u64) -> Result<Source, Problem> {
        self.records.configuration(number).map(|(source, _)| source)
    }

    /// Calls a handler. The answer comes later, on another thread.
    pub fn call(&mut self, call: Call, answer: Answer<Answers>) {
        self.plane.call(call, answer);
    }
    /// Does again what handlers changed of the running configuration before the process started.
    ///
    /// It waits for the workers' answers, as long as a worker may take for a write.
    pub fn replay(&mut self) {
        self.compact();
        let written = self.records.written().to_vec();
        let (waits, answered) = channel();
        self.write_again(&written, Some(&waits));
        drop(waits);
        // The way ends with the last answer.
        let _late = answered.recv_timeout(REPLAY);
    }

    /// Writes handlers again. A write that is refused becomes an event.
    ///
    /// Those that a later one stands for are left out. Writes in a row to one handler are one call, where it takes
    /// lines. Answers those that were refused at once. Each write has a copy of `waits` until its answer comes.
    fn write_again(&mut self, written: &[Written], waits: Option<&Sender<()>>) -> Vec<Written> {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let plane = &*self.plane;
        let written = without_superseded(written, |function, handler| plane.subject(function, handler));
        let is_like = |one: &Written, other: &Written| {
            (&one.function, &one.handler, one.worker) == (&other.function, &other.handler, other.worker)
        };
        let one_worker = self.answered_by_one();
        for alike in written.chunk_by(is_like) {
            let of = &alike[0];
            let by_lines = self.plane.subject(&of.function, &of.handler).is_some_and(|of| of.by_lines);
            if by_lines && alike.len() > 1 && self.write_together(alike) {
                continue;
            }
            let waits_for_each = one_worker.contains(&(of.function.clone(), of.handler.clone()));
            self.write_one_by_one(alike, &refused, waits, waits_for_each);
        }
        std::mem::take(&mut *refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes writes to one handler by one call. Answers whether all were made; otherwise none was.
    fn write_together(&mut self, alike: &[Written]) -> bool {
        let lines: Vec<&str> = alike.iter().map(|written| written.argument.trim_end()).collect();
        let Written { function, handler, worker, .. } = alike[0].clone();
        let deadline = Instant::now() + REPLAY;
        let call = Call { function, handler, argument: lines.join("\n"), write: true, worker, deadline };
        let (sender, answered) = sync_channel(1);
        // Handlers that take lines are called here; the answer of any other comes too late, and all is done again.
        self.plane.call(
            call,
            Box::new(move |result: Result<Answers, Problem>| {
                let _gone = sender.send(result.is_ok());
            }),
        );
        answered.try_recv().unwrap_or(false)
    }

    /// Write handlers that one worker answers for all, in functions where others ask each worker.
    ///
    /// Another worker could do a later write before the first has done such a one.
    fn answered_by_one(&self) -> BTreeSet<(String, String)> {
        let functions = self.plane.functions().into_iter();
        let mixed = functions.filter(|function| function.handlers.iter().any(|of| of.writes && of.by_worker));
        mixed
            .flat_map(|function| {
                let one = function.handlers.into_iter().filter(|of| of.writes && !of.by_worker);
                one.map(move |of| (function.name.clone(), of.name)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn write_one_by_one(
        &mut self,
        alike: &[Written],
        refused: &Arc<Mutex<Vec<Written>>>,
        waits: Option<&Sender<()>>,
        waits_for_each: bool,
    ) {
        for written in alike {
            let waits = waits.cloned();
            let (done, is_done) = sync_channel(1);
            let (again, refused) = (written.clone(), refused.clone());
            let Written { function, handler, argument, worker, .. } = written.clone();
            let events = self.records.events.clone();
            let name = format!("{function}.{handler}");
            let deadline = Instant::now() + REPLAY;
            let call = Call { function, handler, argument, write: true, worker, deadline };
            let answer = move |result: Result<Answers, Problem>| {
                if let Err(problem) = result {
                    events.tell(EventLevel::Warning, "not-replayed", name, problem.detail);
                    refused.lock().unwrap_or_else(PoisonError::into_inner).push(again);
                }
                drop(waits);
                let _gone = done.send(());
            };
            self.plane.call(call, Box::new(answer));
            if waits_for_each {
                let _late = is_done.recv_timeout(REPLAY);
            }
        }
    }

    /// Drains and ends the run.
    pub fn stop(&mut self) {
        self.tell(EventLevel::Info, "stopping", "a client asked to stop".into());
        self.plane.stop();
    }
    /// Stops asking the sources for packets.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn suspend(&mut self) -> Result<Status, Problem> {
        self.plane.suspend()?;
        self.tell(EventLevel::Info, "suspended", "sources are no longer asked".into());
        Ok(self.status())
    }
    /// Asks the sources for packets again.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn resume(&mut self) -> Result<Status, Problem> {
        self.plane.resume()?;
        self.tell(EventLevel::Info, "resumed", "sources are asked again".into());
        Ok(self.status())
    }

    /// Arms a watch over packets. Dropping the answer ends it.
    ///
    /// # Errors
    /// A wrong filter, no such place, too many watches, or a worker that does not answer.
    pub fn observe(&mut self, request: &ObserveRequest) -> Result<Observing, Problem> {
        self.plane.observe(request)
    }

    /// Whether a writer knows the current state.
    ///
    /// # Errors
    /// [`Code::Stale`] where another writer was first, or writes at this moment.
    pub fn is_current(&mut self, expected: Option<u64>) -> Result<(), Problem> {
        let help = "read the resource again and repeat the change on it";
        // Asked first: a write that ends now is counted below.
        let is_open = self.records.under_way.is_any_counted();
        self.records.count_writes();
        let generation = self.records.generation;
        if let Some(expected) = expected.filter(|expected| is_open && *expected == generation) {
            let detail = format!(
                "a write is under way to which the generation {expected} belongs: another writer was first"
            );
            return Err(Problem::new(Code::Stale, detail).help(help));
        }
        match expected.filter(|expected| *expected != generation) {
            None => Ok(()),
            Some(expected) => Err(Problem::new(
                Code::Stale,
                format!("the generation is {generation}, and the request expects {expected}: another writer was first"),
            )
            .help(help)),
        }
    }
}

/// The command that makes a write, for a shell.
fn command(Written { function, handler, argument, worker, .. }: &Written) -> String {
    let argument = argument.trim_end();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ./:_-,+@%=".contains(&byte);
    let argument = match argument {
        "" => String::new(),
        plain if plain.bytes().all(is_plain) => format!(" {plain}"),
        quoted => format!(" '{}'", quoted.replace('\'', r"'\''")),
    };
    let worker = worker.map(|worker| format!(" --worker {worker}")).unwrap_or_default();
    format!("netbricks set {function}.{handler}{argument}{worker}")
}

/// Nanoseconds since 1970 (UTC).
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
