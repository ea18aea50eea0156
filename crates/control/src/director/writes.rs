//! Writes of handlers: who may make them, and what of them goes into the journal.
//!
//! A write that the control side does itself is recorded in the same task. A worker answers later: until then, a
//! request that expects a generation is refused, since the next generation is not known yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Answers, Call, Code, Director, Problem, Task, Tasks, WAITING, Written, now_ns};
use crate::log;

/// The receiver of a write's answer, with the generation then. It must not wait.
pub type WriteAnswer = Box<dyn FnOnce(u64, Result<Answers, Problem>) + Send>;

/// The writes whose answers have not come.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// All of them.
    now: AtomicUsize,
    /// Those that the generation counts.
    counted: AtomicUsize,
    /// Writes that may have changed something, and that no generation counts yet.
    uncounted: AtomicUsize,
}

impl UnderWay {
    /// A write that begins, which the generation counts or not.
    fn begin(&self, counts: bool) -> Ticket {
        self.0.now.fetch_add(1, Ordering::SeqCst);
        self.0.counted.fetch_add(usize::from(counts), Ordering::SeqCst);
        Ticket { of: self.0.clone(), counts, is_counted: !counts }
    }
    /// Whether the answer of any write has not come.
    pub(crate) fn is_any(&self) -> bool {
        self.0.now.load(Ordering::SeqCst) > 0
    }
    /// Whether the answer of any write has not come that the generation counts.
    pub(crate) fn is_any_counted(&self) -> bool {
        self.0.counted.load(Ordering::SeqCst) > 0
    }
    /// The writes that ended without a record since this was asked last.
    pub(crate) fn take_uncounted(&self) -> u64 {
        self.0.uncounted.swap(0, Ordering::SeqCst) as u64
    }
}

/// A write under way. Its end is noticed also where its answer never comes.
struct Ticket {
    of: Arc<Counts>,
    /// Whether the generation counts it.
    counts: bool,
    /// Whether the generation has grown for it, or need not.
    is_counted: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Before the other one: who sees no write under way sees all that were.
        self.of.uncounted.fetch_add(usize::from(!self.is_counted), Ordering::SeqCst);
        self.of.counted.fetch_sub(usize::from(self.counts), Ordering::SeqCst);
        self.of.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The time in which the answers of writes under way come before a change, or the change is refused.
const PATIENCE: Duration = Duration::from_secs(2);

/// A step that waits until no write is under way, or learns that it waited too long.
pub(super) type Step = Box<dyn FnOnce(&mut Director<'_>, Result<(), Problem>) + Send>;

/// The steps that wait until no write is under way, and the writes that wait for these steps.
#[derive(Default)]
pub(crate) struct Fence {
    /// With the times when they give up.
    steps: VecDeque<(Instant, Step)>,
    writes: VecDeque<Task>,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (steps, writes) = (self.steps.len(), self.writes.len());
        f.debug_struct("Fence").field("steps", &steps).field("writes", &writes).finish()
    }
}

/// A write, and what follows its answer.
struct Pending {
    written: Written,
    /// The configuration that it changes.
    configuration: u64,
    ticket: Ticket,
    answer: WriteAnswer,
    tasks: Tasks,
}

impl Pending {
    /// Answers a write that a handler refused, or that failed.
    fn fail(mut self, generation: u64, problem: Problem) {
        // A refusal comes before anything is changed. After other failures, some workers may have changed.
        self.ticket.is_counted |= matches!(problem.code, Code::BadRequest | Code::NotFound | Code::WrongKind);
        self.end(generation, problem);
    }

    fn end(self, generation: u64, problem: Problem) {
        drop(self.ticket);
        (self.answer)(generation, Err(problem));
    }
}

/// The way from a call to its answer, which may come before the call returns.
enum Slot {
    /// The call has not returned.
    Calling,
    /// The answer came first.
    Answered(Result<Answers, Problem>),
    /// The call returned first.
    Waits(Box<Pending>),
}

impl Director<'_> {
    /// Whether a write would be allowed now.
    ///
    /// # Errors
    /// [`Code::Stale`] where the generation is not `expected`, and where the journal is full.
    pub fn may_write(
        &mut self,
        call: &Call,
        expected: Option<u64>,
        tenant: Option<&str>,
    ) -> Result<(), Problem> {
        self.is_current(expected)?;
        self.records.may_record(Written::bytes_of(call), tenant).or_else(|_full| {
            self.write_down();
            self.compact();
            self.records.may_record(Written::bytes_of(call), tenant)
        })
    }

    /// Writes a handler, if the generation is still `expected`, and puts the write into the journal.
    ///
    /// The answer may come before this returns, or later, from another thread. A `tenant` has a part of the journal,
    /// and its writes raise no generation.
    pub fn write(
        &mut self,
        call: Call,
        expected: Option<u64>,
        tenant: Option<Arc<str>>,
        tasks: &Tasks,
        answer: WriteAnswer,
    ) {
        if !self.records.fence.steps.is_empty() {
            return self.hold(call, expected, tenant, tasks, answer);
        }
        let allowed = self.may_write(&call, expected, tenant.as_deref());
        let generation = self.records.generation;
        if let Err(problem) = allowed {
            return answer(generation, Err(problem));
        }
        let written = written(&call, tenant.as_deref());
        let configuration = self.records.running;
        let ticket = self.records.under_way.begin(tenant.is_none());
        let pending = Pending { written, configuration, ticket, answer, tasks: tasks.clone() };
        let slot = Arc::new(Mutex::new(Slot::Calling));
        let (answered, tasks) = (slot.clone(), tasks.clone());
        let answer = move |result| {
            let mut slot = answered.lock().unwrap_or_else(PoisonError::into_inner);
            match std::mem::replace(&mut *slot, Slot::Calling) {
                Slot::Waits(pending) => later(*pending, generation, result, &tasks),
                Slot::Calling | Slot::Answered(_) => *slot = Slot::Answered(result),
            }
        };
        self.plane.call(call, Box::new(answer));
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *slot, Slot::Calling) {
            Slot::Answered(Ok(answers)) => self.settle(pending, answers),
            Slot::Answered(Err(problem)) => pending.fail(generation, problem),
            Slot::Calling | Slot::Waits(_) => *slot = Slot::Waits(Box::new(pending)),
        }
    }

    /// Has a write wait for the change that waits for those under way.
    fn hold(
        &mut self,
        call: Call,
        expected: Option<u64>,
        tenant: Option<Arc<str>>,
        tasks: &Tasks,
        answer: WriteAnswer,
    ) {
        let held = &mut self.records.fence.writes;
        if held.len() >= WAITING {
            let problem = Problem::new(Code::Busy, format!("{WAITING} writes wait already for a change"));
            return answer(self.records.generation, Err(problem.help("try again in a moment")));
        }
        let tasks = tasks.clone();
        held.push_back(Box::new(move |director| {
            if Instant::now() <= call.deadline {
                return director.write(call, expected, tenant, &tasks, answer);
            }
            // Its client was told so, and may repeat it.
            let detail = "a change took the time that there was for the write: nothing was written";
            answer(director.generation(), Err(Problem::new(Code::Timeout, detail).help("repeat it")));
        }));
    }

    /// Does a step of a change when no write is under way, so that the change knows all of them.
    ///
    /// Writes that come meanwhile wait for it.
    pub(super) fn after_writes(&mut self, step: Step) {
        let now = Instant::now();
        self.records.fence.steps.push_back((now + PATIENCE, step));
        self.pass_fence(now);
    }

    /// Does the steps of changes that need not wait any more, and then the writes that waited for them.
    pub(super) fn pass_fence(&mut self, now: Instant) {
        if self.records.fence.steps.is_empty() {
            return;
        }
        self.write_down();
        while let Some((until, _)) = self.records.fence.steps.front() {
            let waited = match self.records.under_way.is_any() {
                false => Ok(()),
                true if now >= *until => {
                    let detail = "a worker has not answered a handler's write, which the change would lose: nothing changed";
                    Err(Problem::new(Code::Timeout, detail).help("repeat the change"))
                }
                true => return,
            };
            if let Some((_, step)) = self.records.fence.steps.pop_front() {
                step(self, waited);
            }
        }
        while let Some(write) = self.records.fence.writes.pop_front() {
            write(self);
        }
    }

    /// Records a write that was made. It is answered when it is durable, together with those that wait behind it.
    fn settle(&mut self, pending: Pending, answers: Answers) {
        let Pending { written, configuration, mut ticket, answer, tasks } = pending;
        log::written(&written);
        let subject = self.plane.subject(&written.function, &written.handler);
        let done = move |generation: u64, recorded: Result<(), Problem>| {
            ticket.is_counted |= recorded.is_ok();
            drop(ticket);
            answer(generation, recorded.map(|()| answers).map_err(unrecorded));
        };
        let was_any = self.records.is_any_unwritten();
        self.records.record(written, subject, configuration, now_ns(), Box::new(done));
        // Behind all tasks that wait now, whose writes become durable at the same time.
        let begins = !was_any && self.records.is_any_unwritten();
        if begins && tasks.post(|director| director.write_down()).is_err() {
            self.write_down();
        }
        self.records.count_writes();
    }

    /// Makes all writes durable that wait for it, and answers them.
    pub(super) fn write_down(&mut self) {
        self.records.write_down();
        self.records.count_writes();
        if self.records.is_mostly_superseded() {
            self.compact();
        }
    }

    /// Drops writes from the journal that later ones stand for.
    pub(super) fn compact(&mut self) {
        let plane = &*self.plane;
        self.records.compact(now_ns(), |function, handler| plane.subject(function, handler));
    }
}

/// A call as the journal has it, which a tenant or the operator makes.
fn written(call: &Call, tenant: Option<&str>) -> Written {
    let Call { function, handler, argument, worker, .. } = call.clone();
    Written { function, handler, argument, worker, tenant: tenant.map(str::to_owned) }
}

/// Has a write recorded whose answer came from a worker.
fn later(pending: Pending, generation: u64, result: Result<Answers, Problem>, tasks: &Tasks) {
    let answers = match result {
        Ok(answers) => answers,
        Err(problem) => return pending.fail(generation, problem),
    };
    // The task takes it along; where the task is refused, it is still needed.
    let shared = Arc::new(Mutex::new(Some(pending)));
    let take = |shared: &Mutex<Option<Pending>>| shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    let taken = shared.clone();
    let posted = tasks.post(move |director| {
        if let Some(pending) = take(&taken) {
            director.settle(pending, answers);
        }
    });
    if let Err(problem) = posted
        && let Some(pending) = take(&shared)
    {
        pending.end(generation, unrecorded(problem));
    }
}

fn unrecorded(problem: Problem) -> Problem {
    Problem::new(
        problem.code,
        format!("the handler has done it, but the journal lacks it: {}", problem.detail),
    )
    .help("a restart forgets this change unless it is repeated")
}
