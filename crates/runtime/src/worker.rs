//! A worker: a thread on its core that gives its graphs their turns, run to completion.
//!
//! Between batches it reads its mailbox. It checks the time and the mailbox once a round of several turns.
//! The number of turns is adapted so that a round takes some tens of microseconds. So these checks cost
//! almost nothing a packet, and graphs never see a time that is much older.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netbricks_core::graph::contain;
use netbricks_core::observer::Watch;
use netbricks_core::tenants::ThreadTime;
use netbricks_core::{Graph, GraphBuilder, Totals, Turn};

use crate::chores::Chore;
use crate::clock::Clock;
use crate::config::WorkerContext;
use crate::control::Shared;
use crate::event::{Event, PanicLog, TenantLog};
use crate::idle::{Idler, Rest, Sleeper, Woken};
use crate::mailbox::Mailbox;

/// The most turns of a round, and the duration that a round should have.
const MOST_TURNS: u32 = 256;
const SHORT_ROUND: Duration = Duration::from_micros(20);
const LONG_ROUND: Duration = Duration::from_micros(50);
/// The most commands between two rounds.
const MOST_COMMANDS: usize = 32;
/// How often totals are published while there is work.
const PUBLISH: Duration = Duration::from_millis(5);
/// The number of timers in a row without a packet after which a driven graph without sources counts as ended.
///
/// Otherwise a periodic timer would keep the graph alive for ever. A graph with sources that have not ended
/// takes one step a round from there on.
const EMPTY_TIMERS: u32 = 1 << 16;
/// How long such sources may wait in vain while no worker moves a packet.
///
/// After that no buffer will come back.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most that one step adds to that time, because a process that was halted has not waited.
const LONGEST_STEP: Duration = Duration::from_millis(10);

/// A graph on its worker.
pub(crate) struct Hosted {
    pub(crate) graph: Graph,
    clock: Clock,
    /// The time to which a driven clock was made to jump (ns).
    pub(crate) jumped: u64,
    empty_timers: u32,
    /// Whether it took a step, so that it needs another round.
    stepped: bool,
    /// How long its sources have waited in vain.
    waiting: Option<Waiting>,
    done: bool,
    /// Its next timer (ns), when it is idle.
    timer: Option<u64>,
}

impl Hosted {
    pub(crate) fn new(mut graph: Graph, clock: Clock, burst: usize) -> Self {
        graph.set_burst(burst);
        graph.follow_arrivals(matches!(clock, Clock::Driven));
        graph.follow_thread(thread_time);
        Self {
            graph,
            clock,
            jumped: 0,
            empty_timers: 0,
            stepped: false,
            waiting: None,
            done: false,
            timer: None,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
    pub(crate) fn time(&self, instant: Instant) -> u64 {
        self.clock.at(instant).max(self.jumped)
    }

    /// Moves the time of a driven graph to its next timer at once, if only timers are left.
    ///
    /// Answers `false` where there is something to wait for.
    fn jump(&mut self, timer: Option<u64>) -> bool {
        let Some(timer) = timer else { return false };
        let waits = !matches!(self.clock, Clock::Driven) || !self.graph.waits_for_time_alone();
        let weary = self.empty_timers >= EMPTY_TIMERS;
        if waits || weary && self.graph.awaits_time() {
            return false;
        }
        self.jumped = self.jumped.max(timer);
        self.empty_timers += 1;
        self.done = weary;
        true
    }

    /// Lets a driven graph take a step when all its sources wait for a time.
    ///
    /// They do so while no buffer is free. It applies where the graph may not jump. No other worker moves its
    /// time, so it reaches that time in the next round. Between the two rounds other workers, which may have
    /// the buffers, continue. Answers whether it took a step.
    fn step(&mut self, timer: Option<u64>) -> bool {
        let Some(timer) = timer else { return false };
        let steps = matches!(self.clock, Clock::Driven) && self.graph.awaits_time();
        if steps {
            self.jumped = self.jumped.max(timer);
        }
        self.stepped = steps;
        steps
    }

    /// Whether it has waited in vain for the maximum time while no worker moved a packet.
    fn is_stuck(&mut self, now: Instant, done: impl Fn() -> u64) -> bool {
        let waiting =
            self.waiting.get_or_insert_with(|| Waiting { last: now, long: Duration::ZERO, done: done() });
        waiting.long += now.saturating_duration_since(waiting.last).min(LONGEST_STEP);
        waiting.last = now;
        if waiting.long < PATIENCE {
            return false;
        }
        let (before, now_done) = (waiting.done, done());
        (waiting.long, waiting.done) = (Duration::ZERO, now_done);
        before == now_done
    }
}

/// A driven graph whose sources wait for buffers.
struct Waiting {
    last: Instant,
    long: Duration,
    /// The packets that all workers had moved when it began.
    done: u64,
}

/// The result of a round.
#[derive(Default)]
struct Round {
    moved: u64,
    /// Whether a graph still had work when its share of the round was over.
    unsettled: bool,
    /// Whether a graph has sources that have not ended.
    alive: bool,
    /// Whether other workers hold the rest of the packet limit.
    starved: bool,
}

/// A graph that does not run yet.
pub(crate) enum Prepared {
    /// A graph of its own.
    Graph(Box<Graph>, Clock),
    /// The graph that takes over from a running one, of which it keeps nodes.
    Change(GraphBuilder),
}

pub(crate) struct Worker {
    pub(crate) context: WorkerContext,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Mailbox,
    pub(crate) graphs: Vec<Hosted>,
    /// The sums of packets of graphs that were removed or replaced, by name. Their nodes are handed in.
    pub(crate) retired: Vec<(String, Totals)>,
    /// Changes by which nodes went.
    pub(crate) changes: u64,
    /// Graphs that wait until the other workers have made theirs, by ticket.
    pub(crate) prepared: BTreeMap<u64, Prepared>,
    /// Work that is done in steps, one between two rounds.
    pub(crate) chores: VecDeque<Chore>,
    /// Graphs that took over or went.
    pub(crate) takeovers: u64,
    /// State of nodes that were replaced is still moving to their successors.
    pub(crate) is_moving: bool,
    /// The watches over the packets of its graphs.
    pub(crate) watches: Vec<Watch>,
    pub(crate) idler: Idler,
    sleeper: Sleeper,
    pub(crate) panics: PanicLog,
    tenants: TenantLog,
    /// The reason why it ended the run.
    pub(crate) gave_up: Option<String>,
    /// Nodes that could not do their work, and why.
    pub(crate) failures: Vec<String>,
    pub(crate) now: Instant,
    round_turns: u32,
    pub(crate) turns: u64,
}

impl Worker {
    pub(crate) fn new(context: WorkerContext, shared: Arc<Shared>, mailbox: Mailbox) -> Self {
        let idler = Idler::new(shared.config.idle);
        Self {
            context,
            shared,
            mailbox,
            graphs: Vec::new(),
            retired: Vec::new(),
            changes: 0,
            prepared: BTreeMap::new(),
            chores: VecDeque::new(),
            takeovers: 0,
            is_moving: false,
            watches: Vec::new(),
            idler,
            sleeper: Sleeper::default(),
            panics: PanicLog::default(),
            tenants: TenantLog::default(),
            gave_up: None,
            failures: Vec::new(),
            now: Instant::now(),
            round_turns: 1,
            turns: 0,
        }
    }

    /// Runs until all its graphs have ended or it is told to stop.
    pub(crate) fn run(&mut self) {
        self.now = Instant::now();
        let mut publish_at = self.now;
        let shared = self.shared.clone();
        let published = &shared.published[self.context.index()];
        published
            .thread
            .store(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(), Ordering::Relaxed);
        self.tell_graphs();
        let mut beat = 0;
        loop {
            beat += 1;
            published.beat.store(beat, Ordering::Relaxed);
            if self.mailbox.bell.rang() {
                self.read_mail();
                self.now = Instant::now();
            }
            if self.shared.is_stopping() {
                return;
            }
            let before = self.now;
            let round = self.round();
            self.now = Instant::now();
            self.adapt(&round, self.now.saturating_duration_since(before));
            if self.shared.deadline().is_some_and(|deadline| self.now >= deadline) {
                return;
            }
            if self.now >= publish_at {
                self.publish();
                publish_at = self.now + PUBLISH;
            }
            if round.moved > 0 {
                self.idler.busy();
            } else if !round.alive && !self.shared.config.linger {
                return;
            } else if !round.unsettled {
                published.resting.store(true, Ordering::Relaxed);
                self.rest(round.starved);
                published.resting.store(false, Ordering::Relaxed);
                self.now = Instant::now();
                self.restart_corrections();
            }
        }
    }

    /// Leaves the rest out of the time that tenants are charged for.
    fn restart_corrections(&mut self) {
        for hosted in self.graphs.iter_mut().filter(|hosted| hosted.graph.has_tenants()) {
            hosted.graph.restart_correction();
        }
    }

    /// Gives every graph its turns, one graph after the other.
    #[inline(always)]
    fn round(&mut self) -> Round {
        let mut round = Round::default();
        let current = &self.shared.published[self.context.index()].graph;
        for (place, hosted) in self.graphs.iter_mut().enumerate() {
            if hosted.done {
                continue;
            }
            current.store(place, Ordering::Relaxed);
            hosted.graph.begin_round();
            (hosted.timer, hosted.stepped) = (None, false);
            let mut rested = false;
            let mut now = hosted.time(self.now);
            let mut left = self.round_turns;
            while left > 0 {
                let (turn, turns) = match &self.shared.limit {
                    None => hosted.graph.turns(now, left),
                    Some(_) => match limited_turn(&self.shared, &mut hosted.graph, now) {
                        Some(turn) => (turn, 1),
                        None => {
                            round.starved = true;
                            rested = true;
                            break;
                        }
                    },
                };
                self.turns += u64::from(turns);
                left = left.saturating_sub(turns);
                match turn {
                    Turn::Moved(packets) => {
                        round.moved += packets;
                        if packets > 0 {
                            hosted.empty_timers = 0;
                            hosted.waiting = None;
                        }
                    }
                    Turn::Idle(timer) => {
                        if hosted.jump(timer) {
                            now = hosted.jumped;
                            if !hosted.done {
                                continue;
                            }
                            self.shared.config.events.tell(Event::Warning(format!(
                                "graph `{}`: its sources have ended and {EMPTY_TIMERS} timers in a row moved nothing: taken as ended",
                                hosted.graph.name()
                            )));
                        }
                        hosted.timer = timer;
                        rested = true;
                        let done = || self.shared.progress().packets();
                        if hosted.step(timer) && hosted.is_stuck(self.now, done) {
                            self.gave_up.get_or_insert_with(|| give_up(hosted, &self.shared));
                        }
                        break;
                    }
                    Turn::Done => {
                        hosted.done = true;
                        break;
                    }
                }
            }
            round.alive |= !hosted.done;
            round.unsettled |= !rested && !hosted.done;
            tell_panics(hosted, &mut self.panics, &self.shared, self.context.index(), self.now);
            tell_failures(hosted, &mut self.failures, &self.shared, self.context.index());
            if hosted.graph.is_correction_due() {
                correct_time(hosted, &mut self.tenants, &self.shared, self.context.index(), self.now);
            }
        }
        round
    }

    /// Keeps rounds short enough for the time that graphs see, and long enough to cost little.
    #[inline(always)]
    fn adapt(&mut self, round: &Round, took: Duration) {
        // A round without packets tells nothing about the time that packets take.
        if took < SHORT_ROUND && round.moved > 0 && round.unsettled {
            self.round_turns = (self.round_turns * 2).min(MOST_TURNS);
        } else if took > LONG_ROUND {
            self.round_turns = (self.round_turns / 2).max(1);
        }
    }

    /// Rests by the idle policy, because there is no work.
    fn rest(&mut self, starved: bool) {
        if self.idler.is_fresh() {
            self.publish();
        }
        let running = || self.graphs.iter().filter(|hosted| !hosted.done);
        let timer = running()
            .filter_map(|hosted| hosted.clock.until(hosted.timer?, self.now))
            .chain(self.shared.deadline().map(|deadline| deadline.saturating_duration_since(self.now)))
            .min();
        let watched = !starved && running().all(|hosted| hosted.graph.can_sleep() && !hosted.stepped);
        match self.idler.rest(watched, timer) {
            Rest::Pause(pauses) => (0..pauses).for_each(|_| std::hint::spin_loop()),
            Rest::Yield => std::thread::yield_now(),
            Rest::Sleep { timeout, descriptors } => {
                let graphs = self.graphs.iter_mut().filter(|hosted| descriptors && !hosted.done);
                let woken = self.sleeper.sleep(
                    self.mailbox.bell.as_fd(),
                    |watch| graphs.for_each(|hosted| hosted.graph.descriptors(watch)),
                    timeout,
                );
                self.idler.slept(woken);
                if woken == Woken::Bell {
                    self.read_mail();
                }
                // All sources are polled before the next sleep, those included that were polled last.
                self.graphs.iter_mut().for_each(|hosted| hosted.graph.wake());
            }
        }
    }

    /// Runs commands, for as long as a round of packets takes. The rest waits for the next round.
    ///
    /// While the state of nodes that were replaced moves in, a step of that is all: who asks is to find all of it.
    fn read_mail(&mut self) {
        self.mailbox.open();
        let before = Instant::now();
        let shared = self.shared.clone();
        let published = &shared.published[self.context.index()];
        published.commanded(true);
        if self.is_moving {
            self.is_moving = self.graphs.iter_mut().any(|hosted| hosted.graph.move_on());
            self.mailbox.bell.ring();
            published.commanded(false);
            published.paused(before.elapsed());
            return;
        }
        let mut run = 0;
        while let Some(command) = self.mailbox.next() {
            command(self);
            run += 1;
            if run == MOST_COMMANDS || before.elapsed() > LONG_ROUND || self.is_moving {
                // There may be more, so that the next round must not end in a sleep.
                self.mailbox.bell.ring();
                break;
            }
        }
        if !self.is_moving {
            self.do_chore();
        }
        if !self.chores.is_empty() {
            self.mailbox.bell.ring();
        }
        published.commanded(false);
        published.paused(before.elapsed());
    }

    /// Tells the control side which graphs it has, so that a watchdog can name a node.
    pub(crate) fn tell_graphs(&self) {
        let places = self.graphs.iter().map(|hosted| hosted.graph.whereabouts()).collect();
        self.shared.published[self.context.index()].hosts(places);
    }

    pub(crate) fn publish(&self) {
        let mut totals = Totals::default();
        self.retired.iter().for_each(|(_, of)| totals.merge(of));
        self.graphs.iter().for_each(|hosted| totals.merge(&hosted.graph.totals()));
        self.shared.published[self.context.index()].publish(&totals, self.turns, self.idler.sleeps);
    }
}

/// Ends a graph whose sources wait for buffers that do not come back, and the run with it.
///
/// Answers the reason.
#[cold]
fn give_up(hosted: &mut Hosted, shared: &Shared) -> String {
    hosted.done = true;
    let pool = &shared.config.pool;
    let why = format!(
        "graph `{}`: its sources wait for packet buffers, of which {} of {} are free, and no packet has moved for {} s: \
         the pool needs more of them, or what holds packets has to hold fewer",
        hosted.graph.name(),
        pool.available(),
        pool.capacity(),
        PATIENCE.as_secs()
    );
    if shared.config.linger {
        shared.config.events.tell(Event::Warning(why.clone()));
    } else {
        shared.stop();
    }
    why
}

/// A turn that receives no more than the rest of the limit; `None` when other workers hold the rest.
fn limited_turn(shared: &Shared, graph: &mut Graph, now: u64) -> Option<Turn> {
    let limit = shared.limit.as_ref()?;
    let reserved = limit.reserve(shared.config.burst as u64);
    if reserved == 0 {
        if limit.is_reached() {
            shared.stop();
        }
        return None;
    }
    graph.set_burst(reserved as usize);
    let before = graph.totals().received.packets;
    let turn = graph.turn(now);
    limit.settle(reserved, graph.totals().received.packets - before);
    Some(turn)
}

/// Gives tenants back the time that the system took the core away, and tells what happened to them.
#[cold]
fn correct_time(hosted: &mut Hosted, log: &mut TenantLog, shared: &Shared, worker: usize, now: Instant) {
    hosted.graph.correct_time();
    for event in hosted.graph.take_tenant_events() {
        if let Some(event) = log.add(worker, event, now) {
            shared.config.events.tell(event);
        }
    }
}

/// The time of this thread.
fn thread_time() -> ThreadTime {
    let ns = |clock| {
        let time = rustix::time::clock_gettime(clock);
        let seconds = time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000);
        seconds.saturating_add(time.tv_nsec.unsigned_abs())
    };
    ThreadTime {
        wall: ns(rustix::time::ClockId::Monotonic),
        on_core: ns(rustix::time::ClockId::ThreadCPUTime),
    }
}

#[inline(always)]
pub(crate) fn tell_panics(
    hosted: &mut Hosted,
    log: &mut PanicLog,
    shared: &Shared,
    worker: usize,
    now: Instant,
) {
    let panics = hosted.graph.take_panics();
    if panics.is_empty() {
        return;
    }
    for panic in panics {
        if let Some(event) = log.add(worker, hosted.graph.name(), panic, now) {
            shared.config.events.tell(event);
        }
    }
}

/// Tells of nodes that cannot do their work, and keeps that for the report.
#[inline(always)]
fn tell_failures(hosted: &mut Hosted, failures: &mut Vec<String>, shared: &Shared, worker: usize) {
    if !hosted.graph.has_failures() {
        return;
    }
    for (node, problem) in hosted.graph.take_failures() {
        let event = Event::NodeFailed { worker, graph: hosted.graph.name().to_owned(), node, problem };
        failures.push(event.to_string());
        shared.config.events.tell(event);
    }
}

/// Runs code of functions or factories outside a graph. A panic becomes its message and place.
pub(crate) fn contained<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    contain(run).map_err(|caught| match caught.place {
        Some(place) => format!("{} (at {place})", caught.message),
        None => caught.message,
    })
}
