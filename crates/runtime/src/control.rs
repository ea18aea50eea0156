//! The control side: changing and asking running workers, from any thread.
//!
//! A change of all workers has two steps. Every worker makes its new graph first, and only when all have one
//! do they take over. So a change that fails leaves the running graphs everywhere. There is one such change
//! at a time. So all workers have their graphs in the same order, in which they wait for each other when they
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netbricks_core::graph::ShuffleEnd;
use netbricks_core::{StateTerms, WorkerGroup};

use crate::config::{Change, Config, Factory};
use crate::mailbox::{Claim, Letterbox};
use crate::observe::Watches;
use crate::progress::{PacketLimit, Progress, Published};
use crate::report::{CommandError, GraphReport, Replaced, Snapshot, WorkerReport};
use crate::retired::Retired;
use crate::shuffles::compare;
use crate::worker::{Worker, contained};

/// The time between two looks around while a call waits for a worker.
const SLICE: Duration = Duration::from_millis(50);

/// The terms of the state that a node has declared, by name.
pub type NodeTerms = Vec<(String, StateTerms)>;

/// Takes a worker's report, on its thread.
type Told = Box<dyn FnMut(WorkerReport)>;

/// Called while a call waits for a worker; `true` means that it need not wait any longer.
type Waiting = Box<dyn FnMut(usize) -> bool + Send>;

/// State that workers and the control side share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) limit: Option<PacketLimit>,
    pub(crate) published: Vec<Published>,
    letterboxes: Vec<Letterbox>,
    stopping: AtomicBool,
    /// Set once all workers are ready.
    deadline: OnceLock<Instant>,
    ended: Mutex<Vec<Option<WorkerReport>>>,
    someone_ended: Condvar,
    tickets: AtomicU64,
    /// Held while all workers change.
    together: Mutex<()>,
    /// The group through which functions of different workers find each other.
    pub(crate) group: WorkerGroup,
    pub(crate) watches: Watches,
    waiting: Mutex<Option<Waiting>>,
    /// The nodes that are gone, by worker.
    pub(crate) retired: Vec<Retired>,
}

impl Shared {
    pub(crate) fn new(config: Config, letterboxes: Vec<Letterbox>) -> Self {
        let workers = letterboxes.len();
        Self {
            limit: config.packets.map(PacketLimit::new),
            config,
            published: (0..workers).map(|_| Published::default()).collect(),
            letterboxes,
            stopping: AtomicBool::new(false),
            deadline: OnceLock::new(),
            ended: Mutex::new(vec![None; workers]),
            someone_ended: Condvar::new(),
            tickets: AtomicU64::new(0),
            together: Mutex::new(()),
            group: WorkerGroup::new(workers),
            watches: Watches::default(),
            waiting: Mutex::new(None),
            retired: (0..workers).map(|_| Retired::default()).collect(),
        }
    }

    /// Starts the time of a limited run.
    pub(crate) fn begin(&self, now: Instant) {
        if let Some(deadline) = self.config.duration.and_then(|duration| now.checked_add(duration)) {
            self.deadline.get_or_init(|| deadline);
        }
    }
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }
    #[inline(always)]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.letterboxes.iter().for_each(|letterbox| letterbox.bell.ring());
    }

    /// The sums of all workers' published totals.
    pub(crate) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        self.published.iter().for_each(|published| progress.merge(&published.read()));
        progress
    }

    /// The reports of workers that have ended. No value under this lock can be half-written, so poison is
    /// ignored.
    pub(crate) fn ended(&self) -> MutexGuard<'_, Vec<Option<WorkerReport>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn end(&self, mut report: WorkerReport) {
        let worker = report.worker;
        self.retired[worker].complete(&mut report);
        self.published[worker].end();
        self.ended()[worker] = Some(report);
        self.someone_ended.notify_all();
    }
    /// Locks changes of all workers. A panic in a caller's factory leaves no state half-changed.
    fn together(&self) -> MutexGuard<'_, ()> {
        self.together.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Waits until all workers have ended, or until `until`. Answers whether they have.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let mut ended = self.ended();
        while ended.iter().any(Option::is_none) {
            ended = match until {
                None => self.someone_ended.wait(ended).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.someone_ended.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

/// Stops a runtime, from any thread.
#[derive(Clone)]
pub struct StopHandle(pub(crate) Arc<Shared>);

impl StopHandle {
    /// Makes every worker stop receiving, run to completion, flush and end. Returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl std::fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopHandle")
    }
}

/// Changes and asks running workers, from any thread.
///
/// Calls wait for the worker's next batch boundary. They lose no packet.
#[derive(Clone)]
pub struct Control(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("workers", &self.workers()).finish()
    }
}

/// A handler to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCall {
    /// The graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// The handler.
    pub handler: String,
    /// Its argument.
    pub argument: String,
}

/// An answer that is awaited.
struct Pending<T> {
    worker: usize,
    answer: Receiver<T>,
    claim: Arc<Claim>,
}

impl Control {
    /// The number of workers, including those that have ended.
    pub fn workers(&self) -> usize {
        self.0.letterboxes.len()
    }

    fn post<T: Send + 'static>(
        &self,
        worker: usize,
        run: impl FnOnce(&mut Worker) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<Pending<Result<T, CommandError>>, CommandError> {
        let letterbox = self.letterbox(worker)?;
        let (sender, answer) = channel();
        let claim = Arc::new(Claim::default());
        let claimed = claim.clone();
        let posted = letterbox.post(Box::new(move |hands| {
            if !claimed.begin() {
                return;
            }
            let result = contained(|| run(hands))
                .unwrap_or_else(|message| Err(CommandError::Panicked { worker, message }));
            // The caller may have stopped waiting.
            let _gone = sender.send(result);
        }));
        if posted { Ok(Pending { worker, answer, claim }) } else { Err(CommandError::Ended { worker }) }
    }

    /// Has a worker run a command between two batches, without an answer.
    pub(crate) fn post_command(
        &self,
        worker: usize,
        run: impl FnOnce(&mut Worker) + Send + 'static,
    ) -> Result<(), CommandError> {
        let posted = self.letterbox(worker)?.post(Box::new(run));
        if posted { Ok(()) } else { Err(CommandError::Ended { worker }) }
    }

    /// Has this called from time to time while a call waits for a worker, with the worker's number.
    ///
    /// Where it answers `true`, the call does not wait for a worker that has not begun.
    pub fn while_waiting(&self, looks: impl FnMut(usize) -> bool + Send + 'static) {
        *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(looks));
    }

    /// Looks around while a call waits. Answers whether waiting for the worker is in vain.
    fn is_in_vain(&self, worker: usize) -> bool {
        let mut looks = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        looks.as_mut().is_some_and(|looks| looks(worker))
    }

    /// Waits for a worker's answer, at most as long as the patience lasts.
    pub(crate) fn answer_of<T>(
        &self,
        worker: usize,
        answer: &Receiver<T>,
        claim: Option<&Claim>,
    ) -> Result<T, CommandError> {
        let (start, patience) = (Instant::now(), self.0.config.patience);
        loop {
            let waited = start.elapsed();
            match answer.recv_timeout(SLICE.min(patience.saturating_sub(waited))) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(CommandError::Ended { worker }),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let in_vain = self.is_in_vain(worker) && claim.is_none_or(|claim| !claim.is_begun());
            let waited = start.elapsed();
            if in_vain || waited >= patience {
                return Err(CommandError::NoAnswer { worker, seconds: waited.as_secs_f64() });
            }
        }
    }

    fn letterbox(&self, worker: usize) -> Result<&Letterbox, CommandError> {
        let known = self.0.letterboxes.get(worker);
        known.ok_or_else(|| CommandError::NoWorker { worker, workers: self.workers() })
    }

    /// Waits for an answer. Where it does not come, a worker that has not begun will not begin.
    fn wait<T>(&self, pending: Pending<Result<T, CommandError>>) -> Result<T, CommandError> {
        let Pending { worker, answer, claim } = pending;
        let error = match self.answer_of(worker, &answer, Some(&claim)) {
            Err(error @ CommandError::NoAnswer { .. }) => error,
            answer => return answer?,
        };
        let has_patience = |seconds: f64| seconds < self.0.config.patience.as_secs_f64();
        match error {
            _ if claim.withdraw() => Err(error),
            // It began at the last moment.
            CommandError::NoAnswer { seconds, .. } if has_patience(seconds) => {
                self.answer_of(worker, &answer, Some(&claim))?
            }
            error => answer.try_recv().unwrap_or(Err(error)),
        }
    }

    /// As [`wait`](Self::wait), but a worker that is late does it when it comes back.
    fn wait_for_all<T>(&self, pending: Pending<Result<T, CommandError>>) -> Result<T, CommandError> {
        let Pending { worker, answer, claim } = pending;
        self.answer_of(worker, &answer, Some(&claim))?
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        run: impl FnOnce(&mut Worker) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let pending = self.post(worker, run)?;
        self.wait(pending)
    }

    /// Makes a graph on one worker and runs it beside the others. Answers its name.
    ///
    /// For a graph that exchanges packets with other workers, use [`install_all`](Self::install_all).
    ///
    /// # Errors
    /// [`CommandError`]: the factory failed or panicked, a graph of that name runs, it has a shuffle and
    /// there are several workers, the worker ended or is stuck.
    pub fn install(&self, worker: usize, factory: Factory) -> Result<String, CommandError> {
        let ticket = self.ticket();
        self.ask(worker, move |hands| {
            hands.prepare_alone(ticket, None, factory)?;
            hands.install_prepared(ticket)
        })
    }

    /// Makes a graph on every worker and, when all could, runs them. Answers the graphs' names by worker.
    ///
    /// Their shuffles must be the same on all workers, as for [`Runtime::start`](crate::Runtime::start).
    ///
    /// # Errors
    /// As [`install`](Self::install), for the first worker that fails, and [`CommandError::Shuffles`]; then
    /// no worker runs it.
    pub fn install_all(&self, factories: impl FnMut(usize) -> Factory) -> Result<Vec<String>, CommandError> {
        let _alone = self.0.together();
        let ticket = self.prepare_all(None, factories)?;
        self.all(move |hands| hands.install_prepared(ticket))
    }

    /// Makes a graph on one worker and, when that worked, lets it take over from the graph `old`.
    ///
    /// The old graph first drains the packets that it holds. Its declared state moves across by node and
    /// name.
    ///
    /// # Errors
    /// As [`install`](Self::install), also where the new graph or the old one has a shuffle; use
    /// [`replace_all`](Self::replace_all) for these. The old graph then continues to run.
    pub fn replace(&self, worker: usize, old: &str, factory: Factory) -> Result<Replaced, CommandError> {
        let (old, ticket) = (old.to_owned(), self.ticket());
        self.ask(worker, move |hands| {
            hands.prepare_alone(ticket, Some(&old), factory)?;
            hands.replace_prepared(ticket, &old)
        })
    }

    /// As [`replace`](Self::replace) on every worker, when all could make their new graph.
    ///
    /// # Errors
    /// As [`install_all`](Self::install_all), for the first worker that fails; then the old graph runs on
    /// everywhere.
    pub fn replace_all(
        &self,
        old: &str,
        factories: impl FnMut(usize) -> Factory,
    ) -> Result<Vec<Replaced>, CommandError> {
        let _alone = self.0.together();
        let ticket = self.prepare_all(Some(old), factories)?;
        let old = old.to_owned();
        self.all(move |hands| hands.replace_prepared(ticket, &old))
    }

    /// Lets another graph of the same name take over on every worker, when all could make theirs.
    ///
    /// Nodes that the new graphs keep go on as they are, with the packets and the state that they hold. So do
    /// the graphs' clocks. All other nodes are new; state moves to them as for [`replace`](Self::replace).
    ///
    /// A worker that does not answer in time takes over when it comes back; its [`Replaced`] says so.
    ///
    /// # Errors
    /// As [`replace_all`](Self::replace_all); then the graphs run on as they are everywhere.
    pub fn change_all(
        &self,
        graph: &str,
        mut changes: impl FnMut(usize) -> Change,
    ) -> Result<Vec<Replaced>, CommandError> {
        let _alone = self.0.together();
        let ticket = self.prepared(|ticket, worker| {
            let (graph, change) = (graph.to_owned(), changes(worker));
            self.post(worker, move |hands| hands.prepare_change(ticket, &graph, change))
        })?;
        let asked: Vec<_> = (0..self.workers())
            .map(|worker| {
                let graph = graph.to_owned();
                self.post(worker, move |hands| hands.replace_prepared(ticket, &graph))
            })
            .collect();
        // All have their graphs: nothing can fail any more, and a worker that is late takes over later.
        let late = |worker: usize, error: &CommandError| Replaced {
            graph: graph.to_owned(),
            moved: Vec::new(),
            refused: vec![format!("worker {worker} takes over when it comes back: {error}")],
            copied: BTreeMap::new(),
            old: GraphReport::empty(graph),
        };
        let answers = asked.into_iter().map(|pending| pending.and_then(|pending| self.wait_for_all(pending)));
        let replaced = answers.enumerate().map(|(worker, answer)| match answer {
            Err(error @ (CommandError::NoAnswer { .. } | CommandError::Ended { .. })) => {
                Ok(late(worker, &error))
            }
            answer => answer,
        });
        replaced.collect()
    }

    /// The longest time between two batches that any worker spent on commands since this was called last (ns).
    pub fn take_longest_pause(&self) -> u64 {
        self.0.published.iter().map(Published::take_longest_pause).max().unwrap_or(0)
    }

    /// Calls a node's handler on one worker, between two batches; the answer comes later.
    ///
    /// `answer` is called once, on the worker's thread: it must not wait. It is dropped without a call where
    /// the worker ends first. A worker that comes to it after `deadline` does not call the handler.
    ///
    /// # Errors
    /// [`CommandError::NoWorker`] or [`CommandError::Ended`]; `answer` is then not called.
    pub fn post_call(
        &self,
        worker: usize,
        call: HandlerCall,
        deadline: Instant,
        answer: impl FnOnce(Result<String, CommandError>) + Send + 'static,
    ) -> Result<(), CommandError> {
        let posted = self.letterbox(worker)?.post(Box::new(move |hands| match Instant::now() > deadline {
            true => answer(Err(CommandError::TooLate { worker })),
            // The node's code is contained by its graph.
            false => hands.answer_call(call, deadline, Box::new(answer)),
        }));
        if posted { Ok(()) } else { Err(CommandError::Ended { worker }) }
    }

    /// Asks a worker for its counters, between two of its batches; the answer comes later.
    ///
    /// The report has no tables of nodes and no dropped headers, which take longer, and no nodes that are gone:
    /// [`complete`](Self::complete) adds them. `answer` is called once, on the worker's thread: it must not wait.
    ///
    /// # Errors
    /// [`CommandError::NoWorker`] or [`CommandError::Ended`]; `answer` is then not called.
    pub fn post_counters(
        &self,
        worker: usize,
        answer: impl FnOnce(WorkerReport) + Send + 'static,
    ) -> Result<(), CommandError> {
        let posted = self.letterbox(worker)?.post(Box::new(move |hands| answer(hands.counters())));
        if posted { Ok(()) } else { Err(CommandError::Ended { worker }) }
    }

    /// Adds the nodes that are gone to a worker's counters, once. Their packets are in the sums already.
    pub fn complete(&self, report: &mut WorkerReport) {
        if let Some(retired) = self.0.retired.get(report.worker) {
            retired.complete(report);
        }
    }

    /// The last report of a worker that has ended.
    pub fn ended(&self, worker: usize) -> Option<WorkerReport> {
        self.0.ended().get(worker).cloned().flatten()
    }

    /// Stops asking ports for packets on all workers; packets that came go on.
    ///
    /// # Errors
    /// A worker has ended or is stuck. Then all go on as before, also that one when it comes back.
    pub fn suspend_all(&self) -> Result<(), CommandError> {
        self.all_or_none(suspend, resume)
    }

    /// Asks ports for packets again on all workers.
    ///
    /// # Errors
    /// A worker has ended or is stuck. Then all stay suspended.
    pub fn resume_all(&self) -> Result<(), CommandError> {
        self.all_or_none(resume, suspend)
    }

    /// Takes a graph off one worker: it stops receiving, runs to completion, and is dropped. Answers its
    /// report.
    ///
    /// For a graph that exchanges packets with other workers, use [`remove_all`](Self::remove_all).
    ///
    /// # Errors
    /// [`CommandError`]: no such graph or worker, it has a shuffle and there are several workers, the worker
    /// ended or is stuck.
    pub fn remove(&self, worker: usize, graph: &str) -> Result<GraphReport, CommandError> {
        let graph = graph.to_owned();
        self.ask(worker, move |hands| hands.remove_alone(&graph))
    }

    /// As [`remove`](Self::remove) on every worker.
    ///
    /// # Errors
    /// No such graph, the worker ended or is stuck, for the first worker that fails; the others have removed
    /// it.
    pub fn remove_all(&self, graph: &str) -> Result<Vec<GraphReport>, CommandError> {
        let _alone = self.0.together();
        let graph = graph.to_owned();
        self.all(move |hands| hands.remove(&graph))
    }

    /// Calls a node's handler on one worker, between two batches.
    ///
    /// # Errors
    /// [`CommandError`]: no such graph, node or handler, a refused argument, a panic in the handler, the
    /// worker ended or is stuck.
    pub fn call(
        &self,
        worker: usize,
        graph: &str,
        node: &str,
        handler: &str,
        argument: &str,
    ) -> Result<String, CommandError> {
        let [graph, node, handler, argument] = [graph, node, handler, argument].map(str::to_owned);
        self.ask(worker, move |hands| hands.call(&graph, &node, &handler, &argument))
    }

    /// The state of all workers, each between two of its batches.
    ///
    /// Tables of nodes are made in steps, with packets between them. Workers that have ended appear with their last
    /// report.
    ///
    /// # Errors
    /// [`CommandError::NoAnswer`] when a worker is stuck.
    pub fn snapshot(&self) -> Result<Snapshot, CommandError> {
        self.snapshot_by(|hands, answer| hands.report_in_steps(answer))
    }

    /// As [`snapshot`](Self::snapshot), without tables of nodes and dropped headers, which take longer.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn counters(&self) -> Result<Snapshot, CommandError> {
        self.snapshot_by(|hands, mut answer| answer(hands.counters()))
    }

    /// The nodes of functions in quarantine, on any worker that answers.
    pub fn in_quarantine(&self) -> BTreeSet<String> {
        let names = |hands: &mut Worker| {
            let graphs = hands.graphs.iter().flat_map(|hosted| hosted.graph.in_quarantine());
            Ok(graphs.map(str::to_owned).collect::<Vec<_>>())
        };
        let asked: Vec<_> = (0..self.workers()).map(|worker| self.post(worker, names)).collect();
        let told = asked.into_iter().flatten().filter_map(|pending| self.wait(pending).ok());
        told.flatten().collect()
    }

    /// The terms of the state that these nodes have declared, of each worker that answers, by node.
    ///
    /// They take a worker no time by entry.
    pub fn state_terms(&self, nodes: &BTreeSet<String>) -> Vec<BTreeMap<String, NodeTerms>> {
        let nodes = Arc::new(nodes.clone());
        let ask = |worker| {
            let nodes = nodes.clone();
            let terms = move |hands: &mut Worker| {
                let of = |node: &String| {
                    let terms = hands.graphs.iter().map(|hosted| hosted.graph.state_terms(node));
                    Some((node.clone(), terms.flatten().collect::<NodeTerms>()))
                        .filter(|(_, of)| !of.is_empty())
                };
                Ok(nodes.iter().filter_map(of).collect::<BTreeMap<_, _>>())
            };
            self.post(worker, terms)
        };
        let asked: Vec<_> = (0..self.workers()).map(ask).collect();
        asked.into_iter().flatten().filter_map(|pending| self.wait(pending).ok()).collect()
    }

    fn snapshot_by(&self, of: fn(&mut Worker, Told)) -> Result<Snapshot, CommandError> {
        let ask = |worker| {
            let (sender, answer) = channel();
            self.post_command(worker, move |hands| {
                of(hands, Box::new(move |report| drop(sender.send(report))));
            })?;
            Ok((worker, answer))
        };
        let asked: Vec<Result<_, CommandError>> = (0..self.workers()).map(ask).collect();
        let mut reports = Vec::with_capacity(asked.len());
        for (worker, pending) in asked.into_iter().enumerate() {
            match pending.and_then(|(worker, answer)| self.answer_of(worker, &answer, None)) {
                Ok(mut report) => {
                    self.complete(&mut report);
                    reports.push(report);
                }
                // A worker hands in its last report within moments of closing its mailbox.
                Err(CommandError::Ended { .. }) => reports.extend(self.last_report(worker)),
                Err(error) => return Err(error),
            }
        }
        Ok(Snapshot::of(reports))
    }

    fn last_report(&self, worker: usize) -> Option<WorkerReport> {
        let until = Instant::now().checked_add(self.0.config.patience);
        let mut ended = self.0.ended();
        while ended[worker].is_none() {
            let left = until?.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            ended = self.0.someone_ended.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        ended[worker].clone()
    }

    /// Live sums over all workers, as published at most some milliseconds ago. The call costs the workers
    /// nothing.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// As [`progress`](Self::progress), by worker.
    pub fn progress_by_worker(&self) -> Vec<Progress> {
        self.0.published.iter().map(Published::read).collect()
    }

    /// A handle that can only stop the runtime.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.0.clone())
    }

    fn ticket(&self) -> u64 {
        // Before each change, so that what workers hand in does not pile up.
        self.0.retired.iter().for_each(Retired::add_up);
        self.0.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets every worker make its graph. When one fails, or the graphs do not fit together, all drop theirs.
    fn prepare_all(
        &self,
        old: Option<&str>,
        mut factories: impl FnMut(usize) -> Factory,
    ) -> Result<u64, CommandError> {
        self.prepared(|ticket, worker| {
            let (old, factory) = (old.map(str::to_owned), factories(worker));
            self.post(worker, move |hands| hands.prepare(ticket, old.as_deref(), factory))
        })
    }

    /// As [`prepare_all`](Self::prepare_all), by this request to each worker.
    fn prepared(
        &self,
        mut ask: impl FnMut(u64, usize) -> Result<Pending<Result<Vec<ShuffleEnd>, CommandError>>, CommandError>,
    ) -> Result<u64, CommandError> {
        let ticket = self.ticket();
        let asked: Vec<_> = (0..self.workers()).map(|worker| ask(ticket, worker)).collect();
        let prepared = self.gather(asked).and_then(|ends| Ok(compare(&ends)?));
        if prepared.is_err() {
            for worker in 0..self.workers() {
                // Commands run in order: this one comes after the making, however long that still takes.
                let _ended = self.post(worker, move |hands| {
                    hands.forget(ticket);
                    Ok(())
                });
            }
        }
        prepared.map(|_| ticket)
    }

    /// Asks all workers at once and waits for all.
    fn all<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Worker) -> Result<T, CommandError> + Clone + Send + 'static,
    ) -> Result<Vec<T>, CommandError> {
        let asked: Vec<_> = (0..self.workers()).map(|worker| self.post(worker, run.clone())).collect();
        let answers: Vec<_> =
            asked.into_iter().map(|pending| pending.and_then(|pending| self.wait_for_all(pending))).collect();
        answers.into_iter().collect()
    }

    /// Has all workers do something; where one does not, all that did undo it.
    fn all_or_none(&self, run: fn(&mut Worker), undo: fn(&mut Worker)) -> Result<(), CommandError> {
        let _alone = self.0.together();
        let asked: Vec<_> = (0..self.workers())
            .map(|worker| {
                self.post(worker, move |hands| {
                    run(hands);
                    Ok(())
                })
            })
            .collect();
        let done = self.gather(asked);
        if done.is_err() {
            for worker in 0..self.workers() {
                // Behind the other command, where that was not withdrawn.
                let _ended = self.post_command(worker, undo);
            }
        }
        done.map(drop)
    }

    fn gather<T>(
        &self,
        asked: Vec<Result<Pending<Result<T, CommandError>>, CommandError>>,
    ) -> Result<Vec<T>, CommandError> {
        let answers: Vec<_> =
            asked.into_iter().map(|pending| pending.and_then(|pending| self.wait(pending))).collect();
        answers.into_iter().collect()
    }
}

fn suspend(hands: &mut Worker) {
    hands.graphs.iter_mut().for_each(|hosted| hosted.graph.suspend());
}

fn resume(hands: &mut Worker) {
    hands.graphs.iter_mut().for_each(|hosted| hosted.graph.resume());
    hands.idler.busy();
}
