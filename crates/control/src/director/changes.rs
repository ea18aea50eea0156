//! Changes of what runs: plans, files that are applied, and rollbacks.
//!
//! A change is prepared beside the director, one at a time, so that it answers other requests meanwhile. When that is
//! done the director waits for handlers' writes under way, looks again whether the change still fits, and only then
//! makes it run.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AGAIN, Director, Tasks, now_ns};
use crate::api::{
    Applied, ApplyOptions, ChangeKind, Code, ConfigurationState, EventLevel, Plan, Problem, Source,
};
use crate::log::ChangeLog;
use crate::records::{ROLLBACK, Unconfirmed, Written, unkept};
use crate::store::{Files, StoreError};

/// Changes that may wait for the one that is being prepared; more are refused as [`Busy`](Code::Busy).
const WAITING: usize = 32;

/// The way back to the last confirmed configuration.
const BACK: Change = Change::Rollback { to: None, dry_run: false, expected: None };

/// A file to prepare.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The file.
    pub source: Source,
    /// Other places of files that it names.
    pub files: Files,
    /// Functions that begin as the file says, without what handlers changed since.
    pub undone: BTreeSet<String>,
    /// Functions whose journal is written again where they are made again.
    pub rewritten: BTreeSet<String>,
    /// The writes of the journal, which stay with functions that go on.
    pub written: Arc<[Written]>,
    /// Only the plan is wanted: no port is opened.
    pub is_plan: bool,
}

impl Wanted {
    /// A file that keeps what these writes changed.
    fn of(source: Source, written: &[Written], is_plan: bool) -> Self {
        let rewritten = written.iter().map(|written| written.function.clone()).collect();
        let written = written.into();
        Self { source, files: Files::new(), undone: BTreeSet::new(), rewritten, written, is_plan }
    }
}

/// A file that passed all checks, with all that it needs to run.
pub struct Prepared {
    /// The file.
    pub wanted: Wanted,
    /// The changes that it makes.
    pub plan: Plan,
    parts: Box<dyn Any + Send>,
}

impl Prepared {
    /// A file with the dataplane's own parts.
    pub fn new(wanted: Wanted, plan: Plan, parts: impl Any + Send) -> Self {
        Self { wanted, plan, parts: Box::new(parts) }
    }
    /// The dataplane's own parts.
    ///
    /// # Panics
    /// When they are of another type than those that it was made with.
    pub fn into_parts<T: 'static>(self) -> T {
        *self.parts.downcast().expect("a dataplane gets what it made itself")
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("wanted", &self.wanted)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// A change that a client asks for.
#[derive(Debug)]
pub enum Change {
    /// The changes that a file would make.
    Plan(Source),
    /// A file is to run.
    Apply {
        /// The file.
        source: Source,
        /// Whether it only plans, and how it is confirmed.
        options: ApplyOptions,
        /// The generation that must still be the current one.
        expected: Option<u64>,
        /// The time of the request (nanoseconds since 1970, UTC).
        time_ns: u64,
    },
    /// An earlier configuration is to run again.
    Rollback {
        /// Its number; the last confirmed one before the running one where none is given.
        to: Option<u64>,
        /// Only plans: nothing changes.
        dry_run: bool,
        /// The generation that must still be the current one.
        expected: Option<u64>,
    },
}

/// The receiver of a change's answer.
pub trait ChangeAsker: Send {
    /// Whether nothing waits for the answer any more: a change that is not begun then never is.
    fn is_gone(&self) -> bool {
        false
    }
    /// Takes the answer, with the generation then. It must not wait.
    fn answer(self: Box<Self>, generation: u64, result: Result<Applied, Problem>);
}

impl<F: FnOnce(u64, Result<Applied, Problem>) + Send> ChangeAsker for F {
    fn answer(self: Box<Self>, generation: u64, result: Result<Applied, Problem>) {
        self(generation, result);
    }
}

/// The receiver of a change's answer, on the heap.
pub type ChangeAnswer = Box<dyn ChangeAsker>;

/// The one who asked for a change.
enum Asker {
    Client(ChangeAnswer),
    /// The director itself: the time to confirm is over.
    Director,
}

/// The changes that wait, and whether one is being prepared.
#[derive(Default)]
pub(crate) struct Changes {
    is_preparing: bool,
    waiting: VecDeque<(Change, Asker)>,
}

impl Changes {
    pub(crate) fn is_preparing(&self) -> bool {
        self.is_preparing
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.len();
        f.debug_struct("Changes")
            .field("is_preparing", &self.is_preparing)
            .field("waiting", &waiting)
            .finish()
    }
}

/// The rest of a change, once its file is prepared.
enum Rest {
    /// The plan is the answer.
    Plan {
        configuration: Option<u64>,
        warnings: Vec<String>,
        /// The generation that it starts from.
        generation: u64,
        /// Whether what handlers changed is to go on.
        goes_on: bool,
    },
    Apply {
        options: ApplyOptions,
        expected: Option<u64>,
        time_ns: u64,
        /// The configuration that it was prepared for.
        from: u64,
    },
    Rollback {
        number: u64,
        from: u64,
        written: Vec<Written>,
        warnings: Vec<String>,
        expected: Option<u64>,
    },
}

/// The window in which a configuration has to be confirmed, before it runs.
#[derive(Clone, Copy)]
struct Waits {
    within: Duration,
    back_to: u64,
}

/// The functions whose writes differ between two journals.
fn differing(one: &[Written], other: &[Written]) -> BTreeSet<String> {
    let (one, other) = (by_function(one), by_function(other));
    let functions = one.keys().chain(other.keys());
    functions
        .filter(|function| one.get(*function) != other.get(*function))
        .map(|&name| name.to_owned())
        .collect()
}

/// The functions that a plan takes out.
fn removed(plan: &Plan) -> BTreeSet<&str> {
    let removed = plan.changes.iter().filter(|change| change.kind == ChangeKind::Removed);
    removed.filter(|change| change.part == "function").map(|change| change.name.as_str()).collect()
}

/// Warnings about writes that are lost by a plan, because their functions go.
fn lost(plan: &Plan, written: &[Written]) -> Vec<String> {
    let removed = removed(plan);
    let functions = by_function(written).into_iter().filter(|(function, _)| removed.contains(function));
    let told = |(function, written): (&str, Vec<&Written>)| {
        let writes = written.len();
        format!(
            "what handlers changed of `{function}` is lost ({writes} in the journal): the file has no such function"
        )
    };
    functions.map(told).collect()
}

/// These writes without the first ones that are like the refused.
fn without(written: Vec<Written>, refused: Vec<Written>) -> Vec<Written> {
    if refused.is_empty() {
        return written;
    }
    let mut refused = refused.into_iter().peekable();
    // Both are in the order in which they were made again.
    written.into_iter().filter(|written| refused.next_if(|refused| refused == written).is_none()).collect()
}

/// The writes of each function, oldest first.
fn by_function(written: &[Written]) -> BTreeMap<&str, Vec<&Written>> {
    let mut functions: BTreeMap<&str, Vec<&Written>> = BTreeMap::new();
    for written in written {
        functions.entry(&written.function).or_default().push(written);
    }
    functions
}

impl Director<'_> {
    /// Makes a change, or plans it. Requests that come while it is prepared are answered.
    pub fn change(&mut self, change: Change, tasks: &Tasks, answer: ChangeAnswer) {
        let changes = &mut self.records.changes;
        if !changes.is_preparing {
            self.begin(change, tasks, Asker::Client(answer));
        } else if changes.waiting.len() < WAITING {
            changes.waiting.push_back((change, Asker::Client(answer)));
        } else {
            let problem = Problem::new(Code::Busy, format!("{WAITING} changes wait already"));
            answer.answer(self.records.generation, Err(problem.help("try again in a moment")));
        }
    }

    /// Rolls back what was not confirmed in time, before all changes that wait.
    ///
    /// It is prepared beside the director. Where another change is, which may take long, the director prepares it itself.
    pub(super) fn roll_back_overdue(&mut self, tasks: &Tasks) {
        if let Some(unconfirmed) = &mut self.records.unconfirmed {
            unconfirmed.is_overdue = true;
        }
        if !self.records.changes.is_preparing {
            return self.begin(BACK, tasks, Asker::Director);
        }
        // It undoes writes whose answers have not come.
        self.after_writes(Box::new(|director, _waited| {
            // A client went back first.
            if director.records.is_overdue() {
                let result = director.change_now(BACK);
                director.end_overdue(result);
            }
        }));
    }

    fn begin(&mut self, change: Change, tasks: &Tasks, asker: Asker) {
        let is_gone = match &asker {
            // It was told that the change is not made in time.
            Asker::Client(answer) => answer.is_gone(),
            // A client went back first.
            Asker::Director => !self.records.is_overdue(),
        };
        if is_gone {
            return self.begin_next(tasks);
        }
        let log = ChangeLog::of(&change);
        let (wanted, rest) = match self.wanted(change) {
            Ok(begun) => begun,
            Err(problem) => {
                let refused = Err(problem);
                log.end(&refused);
                self.answer(asker, refused);
                return self.begin_next(tasks);
            }
        };
        self.records.changes.is_preparing = true;
        let tasks = tasks.clone();
        let done = move |prepared: Result<Prepared, Problem>| {
            let next = tasks.clone();
            let changes = prepared.is_ok() && !matches!(rest, Rest::Plan { .. });
            let step = move |director: &mut Director<'_>, waited: Result<(), Problem>| {
                director.records.changes.is_preparing = false;
                // A rollback that is overdue undoes the writes that it waited for.
                let prepared = match asker {
                    Asker::Director => prepared,
                    Asker::Client(_) => waited.and(prepared),
                };
                let result = log.within(|| prepared.and_then(|prepared| director.end(rest, prepared)));
                log.end(&result);
                director.answer(asker, result);
                director.begin_next(&next);
            };
            tasks.post_patiently(move |director| match changes {
                true => director.after_writes(Box::new(step)),
                false => step(director, Ok(())),
            });
        };
        self.plane.prepare_beside(wanted, Box::new(done));
    }

    /// Tells the one who asked how a change ended.
    fn answer(&mut self, asker: Asker, result: Result<Applied, Problem>) {
        match asker {
            Asker::Client(answer) => answer.answer(self.records.generation, result),
            // Handlers were written meanwhile. Now nothing comes between.
            Asker::Director if matches!(&result, Err(problem) if problem.code == Code::Stale) => {
                let result = self.change_now(BACK);
                self.end_overdue(result);
            }
            Asker::Director => self.end_overdue(result),
        }
    }

    /// Tells how the rollback ended that came because the time to confirm was over.
    fn end_overdue(&mut self, result: Result<Applied, Problem>) {
        match result {
            Ok(applied) => {
                for warning in applied.plan.warnings {
                    self.tell(EventLevel::Warning, "warning", warning);
                }
            }
            Err(problem) => {
                // It runs on, and a restart goes back. Another try comes a minute later.
                if let Some(unconfirmed) = &mut self.records.unconfirmed {
                    (unconfirmed.until, unconfirmed.is_overdue) = (Instant::now() + AGAIN, false);
                }
                self.tell(EventLevel::Error, "rollback-failed", problem.detail);
            }
        }
    }

    /// Begins the change that has waited longest, if no other one is being prepared.
    fn begin_next(&mut self, tasks: &Tasks) {
        let changes = &mut self.records.changes;
        if changes.is_preparing {
            return;
        }
        if let Some((change, asker)) = changes.waiting.pop_front() {
            self.begin(change, tasks, asker);
        }
    }

    /// Makes a change at once. No other request is answered meanwhile.
    fn change_now(&mut self, change: Change) -> Result<Applied, Problem> {
        let log = ChangeLog::of(&change);
        let result = log.within(|| {
            let (wanted, rest) = self.wanted(change)?;
            let prepared = self.plane.prepare(&wanted)?;
            self.end(rest, prepared)
        });
        log.end(&result);
        result
    }

    /// The file of a change, if the change fits now.
    fn wanted(&mut self, change: Change) -> Result<(Wanted, Rest), Problem> {
        self.write_down();
        let generation = self.records.generation;
        match change {
            Change::Plan(source) => Ok((
                Wanted::of(source, self.records.written(), true),
                Rest::Plan { configuration: None, warnings: Vec::new(), generation, goes_on: true },
            )),
            Change::Apply { source, options, expected, time_ns } => {
                self.is_current(expected)?;
                if let Some(seconds) = options.confirm.filter(|seconds| !(1.0..=86_400.0).contains(seconds)) {
                    let detail = format!("`confirm` is {seconds} s: expected 1 s to 1 day");
                    return Err(Problem::new(Code::BadRequest, detail));
                }
                let mut wanted = Wanted::of(source, self.records.written(), options.dry_run);
                if options.forget {
                    std::mem::swap(&mut wanted.undone, &mut wanted.rewritten);
                }
                let rest = match options.dry_run {
                    true => Rest::Plan {
                        configuration: Some(self.records.running),
                        warnings: Vec::new(),
                        generation,
                        goes_on: !options.forget,
                    },
                    false => Rest::Apply { options, expected, time_ns, from: self.records.running },
                };
                Ok((wanted, rest))
            }
            Change::Rollback { to, dry_run, expected } => {
                self.is_current(expected)?;
                let number = self.earlier(to)?;
                let (source, written) = self.records.configuration(number)?;
                let (files, warnings) = self.records.changed_files(number);
                let undone = differing(&self.records.written, &written);
                let rewritten = written.iter().map(|written| written.function.clone()).collect();
                let journal = self.records.written().into();
                let wanted = Wanted { source, files, undone, rewritten, written: journal, is_plan: dry_run };
                let rest = match dry_run {
                    true => Rest::Plan { configuration: Some(number), warnings, generation, goes_on: false },
                    false => {
                        let from = self.records.running;
                        Rest::Rollback { number, from, written, warnings, expected }
                    }
                };
                Ok((wanted, rest))
            }
        }
    }

    /// The last step of a change, if it still fits.
    fn end(&mut self, rest: Rest, mut prepared: Prepared) -> Result<Applied, Problem> {
        self.write_down();
        prepared.plan.generation = self.records.generation;
        match rest {
            Rest::Plan { configuration, warnings, generation, goes_on } => {
                if generation != self.records.generation {
                    let detail = "what runs changed while the plan was made";
                    return Err(Problem::new(Code::Stale, detail).help("repeat the plan"));
                }
                let mut plan = prepared.plan;
                plan.warnings.extend(warnings);
                if goes_on {
                    let lost = lost(&plan, self.records.written());
                    plan.warnings.extend(lost);
                }
                let configuration = configuration.unwrap_or(self.records.running);
                Ok(Applied { configuration, generation: plan.generation, plan, ..Applied::default() })
            }
            Rest::Apply { options, expected, time_ns, from } => {
                self.is_current(expected)?;
                self.still_runs(from)?;
                if self.records.is_overdue() {
                    return Err(Problem::new(Code::Stale, self.overdue()).help("apply it again after that"));
                }
                let before = self.records.running;
                let back_to = self.records.unconfirmed.map_or(before, |unconfirmed| unconfirmed.back_to);
                let within = options.confirm.map(Duration::from_secs_f64);
                let waits = within.map(|within| Waits { within, back_to });
                let file = prepared.wanted.source.name.clone();
                let note = options.note.unwrap_or_default();
                let mut applied =
                    self.install(prepared, &note, waits, options.forget.then(Vec::new), time_ns)?;
                applied.confirm_within_seconds = options.confirm;
                let number = applied.configuration;
                self.tell(EventLevel::Info, "applied", format!("configuration {number} runs: `{file}`"));
                Ok(applied)
            }
            Rest::Rollback { number, from, written, warnings, expected } => {
                self.is_current(expected)?;
                self.still_runs(from)?;
                if differing(&self.records.written, &written) != prepared.wanted.undone {
                    let detail = "a handler has written while the rollback was prepared";
                    return Err(Problem::new(Code::Stale, detail).help("repeat the rollback"));
                }
                let running = self.records.running;
                // A copy of a copy is one of the first.
                let note = format!("{ROLLBACK}{}", self.records.origin(number));
                let mut applied = self.install(prepared, &note, None, Some(written), now_ns())?;
                applied.plan.warnings.extend(warnings);
                if let Err(error) = self.records.give_up(running, false) {
                    self.tell(EventLevel::Error, "not-kept", error.to_string());
                }
                let now = applied.configuration;
                self.tell(
                    EventLevel::Info,
                    "rolled-back",
                    format!("configuration {now} runs: {number} again"),
                );
                Ok(applied)
            }
        }
    }

    /// Whether the configuration runs that a change was prepared for.
    fn still_runs(&self, from: u64) -> Result<(), Problem> {
        let running = self.records.running;
        if running == from {
            return Ok(());
        }
        let detail =
            format!("configuration {running} runs instead of {from}, for which the change was prepared");
        Err(Problem::new(Code::Stale, detail).help("look at `netbricks history`, and repeat the change"))
    }

    /// Plans what a file would change.
    ///
    /// # Errors
    /// The faults of the file.
    pub fn plan(&mut self, source: &Source) -> Result<Plan, Problem> {
        self.change_now(Change::Plan(source.clone())).map(|applied| applied.plan)
    }

    /// Makes a file run at once, if the generation is still `expected`.
    ///
    /// # Errors
    /// The faults of the file or the machine, or [`Code::Stale`]; what ran before then runs on untouched.
    pub fn apply(
        &mut self,
        source: Source,
        options: ApplyOptions,
        expected: Option<u64>,
        time_ns: u64,
    ) -> Result<Applied, Problem> {
        self.change_now(Change::Apply { source, options, expected, time_ns })
    }

    /// Plans what [`rollback`](Self::rollback) would change.
    ///
    /// # Errors
    /// Those of [`rollback`](Self::rollback).
    pub fn plan_rollback(&mut self, to: Option<u64>) -> Result<Applied, Problem> {
        self.change_now(Change::Rollback { to, dry_run: true, expected: None })
    }

    /// Goes back at once to a configuration: to this one, or to the last confirmed one before the running one.
    ///
    /// It runs again under a new number, with what handlers had changed of it, and without what they changed since.
    ///
    /// # Errors
    /// [`Code::NotFound`] or [`Code::Conflict`] where there is none, and the errors of [`apply`](Self::apply).
    pub fn rollback(&mut self, to: Option<u64>) -> Result<Applied, Problem> {
        self.change_now(Change::Rollback { to, dry_run: false, expected: None })
    }

    /// Makes a file run as a new configuration.
    ///
    /// `again` has its journal, where it ran before.
    fn install(
        &mut self,
        mut prepared: Prepared,
        note: &str,
        waits: Option<Waits>,
        again: Option<Vec<Written>>,
        time_ns: u64,
    ) -> Result<Applied, Problem> {
        // Handlers may have written since it was prepared.
        prepared.wanted.written = self.records.written().into();
        let Prepared { wanted: Wanted { source, files, .. }, plan, .. } = &prepared;
        // One that waits to be confirmed is confirmed by a number of its own, and so is one that comes back.
        let confirms = waits.is_some() || self.records.unconfirmed.is_some();
        if plan.unchanged && *source == self.plane.source() && again.is_none() && !confirms {
            let (configuration, mut plan) = (self.records.running, prepared.plan);
            if !note.is_empty() {
                plan.warnings.push("nothing changes, so that no new configuration has the note".to_owned());
            }
            return Ok(Applied { configuration, generation: plan.generation, plan, ..Applied::default() });
        }
        let kept = |error: StoreError| unkept(&error);
        let state = ConfigurationState::Applied;
        let named = self.plane.named_files(source, files);
        let number = self.records.remember(source.clone(), &named, time_ns, note, state).map_err(kept)?;
        let said = match again {
            None => self.plane.said_by(&prepared.wanted.source, &prepared.wanted.written),
            Some(_) => Vec::new(),
        };
        let mut applied = match self.plane.apply(prepared) {
            Ok(applied) => applied,
            Err(problem) => {
                // What ran before runs on. A disk that fails now has been told of already.
                let _unkept = self.records.give_up(number, true);
                return Err(problem);
            }
        };
        // The operator has the whole window, however long the change took.
        let unconfirmed = waits.map(|Waits { within, back_to }| {
            let until = Instant::now() + within;
            Unconfirmed { until, back_to, is_overdue: false }
        });
        let written = self.written_after(&mut applied, again, &said);
        self.records.unconfirmed = unconfirmed;
        let begun =
            self.records.begin(number, written, &applied.plan.kept, time_ns).and_then(
                |()| match unconfirmed {
                    Some(_) => Ok(()),
                    None => self.records.confirm(number),
                },
            );
        if let Err(error) = begun {
            // It runs; only a restart would not know.
            let told = format!("the configuration runs, but a restart would not run it: {error}");
            self.tell(EventLevel::Error, "not-kept", told.clone());
            applied.plan.warnings.push(told);
        }
        applied.configuration = number;
        applied.generation = self.records.generation;
        applied.plan.generation = self.records.generation;
        Ok(applied)
    }

    /// Makes the writes again that a change has undone. Answers the journal after it.
    ///
    /// A rollback brings a journal of its own, `again`. Another file keeps the writes that still apply, but for those
    /// that it says itself.
    fn written_after(
        &mut self,
        applied: &mut Applied,
        again: Option<Vec<Written>>,
        said: &[Written],
    ) -> Vec<Written> {
        let plan = &mut applied.plan;
        let kept: BTreeSet<&str> = plan.kept.iter().map(String::as_str).collect();
        let (mut written, others): (Vec<Written>, Vec<Written>) = self
            .records
            .written
            .iter()
            .cloned()
            .partition(|written| kept.contains(written.function.as_str()));
        let again = match again {
            Some(again) => {
                let again: Vec<Written> =
                    again.into_iter().filter(|written| !kept.contains(written.function.as_str())).collect();
                self.write_again(&again, None);
                again
            }
            None => {
                // The file has them, also for functions that go on.
                written.retain(|of| !said.contains(of));
                let (lost, removed) = (lost(plan, &others), removed(plan));
                let still = |written: &Written| {
                    !removed.contains(written.function.as_str()) && !said.contains(written)
                };
                let again: Vec<Written> = others.into_iter().filter(still).collect();
                let refused = self.write_again(&again, None);
                plan.warnings.extend(lost);
                plan.warnings.extend(refused.iter().map(
                    |Written { function, handler, argument, .. }| {
                        format!("`{function}.{handler} {argument}` does not apply any more, and is lost")
                    },
                ));
                without(again, refused)
            }
        };
        written.extend(again);
        written
    }

    /// Confirms the running configuration.
    ///
    /// # Errors
    /// [`Code::Conflict`] where nothing waits to be confirmed.
    pub fn confirm(&mut self) -> Result<crate::api::Status, Problem> {
        if self.records.unconfirmed.is_none() {
            return Err(Problem::new(Code::Conflict, "nothing waits to be confirmed"));
        }
        if self.records.is_overdue() {
            return Err(Problem::new(Code::Conflict, self.overdue()));
        }
        let number = self.records.running;
        self.records.confirm(number).map_err(|error| unkept(&error))?;
        self.records.unconfirmed = None;
        self.records.generation += 1;
        self.tell(EventLevel::Info, "confirmed", format!("configuration {number} is confirmed"));
        Ok(self.status())
    }

    /// One sentence about a configuration whose time to confirm is over.
    fn overdue(&self) -> String {
        format!("configuration {} was not confirmed in time, and is being rolled back", self.records.running)
    }

    /// The configuration to go back to: this one, or the last confirmed one before the running one.
    fn earlier(&self, to: Option<u64>) -> Result<u64, Problem> {
        let none = || Problem::new(Code::Conflict, "there is no earlier configuration to go back to");
        to.or_else(|| self.records.earlier()).ok_or_else(none)
    }
}
