//! The node of a module: it lends batches to an instance, checks what comes back, and survives faults.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::buffer::Batch;
use netbricks_core::node::SectionMerge;
use netbricks_core::{
    BuildError, Context, Counter, DropReason, EVENTS, Edge, Handler, Node, Output, Section, Shape, Worker,
    declare_node,
};

use crate::abi::{Fate, edge_of, fate};
use crate::backend::{Fault, Instance, Loaded};
use crate::config::{KeptState, Mode, SandboxSettings, Stopped};
use crate::host::{Host, Window};
use crate::policy::{Status, Strikes};
use crate::prepare::Prepared;
use crate::records::{KEPT_EVENTS, Records, Told};
use crate::starts::{AT_ONCE, Starts};
use crate::sys::frames::{Copies, Frames, TOO_BIG};
use crate::sys::ticks::thread_time;

/// Makes the node of a function.
///
/// # Errors
/// The module is refused, or this worker has no memory or timer for it.
pub fn node(settings: &SandboxSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let prepared = settings.prepared().map_err(BuildError::new)?;
    let records = Rc::<RefCell<Records>>::default();
    let strikes = Rc::new(RefCell::new(Strikes::new(settings.policy())));
    let running = if worker.is_control() {
        None
    } else {
        let mapped = settings.mode == Mode::Mapped;
        let loaded = prepared.program.load(settings.limits(), mapped).map_err(BuildError::new)?;
        let frames = match settings.mode {
            Mode::Copy => None,
            Mode::Mapped => {
                Some(Frames::of(settings.pool.as_deref(), settings.frames).map_err(BuildError::new)?)
            }
        };
        let (window, _) = window(settings, &prepared, worker);
        let random = worker.random("module");
        let host = Host::new(prepared.needs, window, settings.calls, random, Rc::clone(&records));
        let host = Box::new(match frames {
            Some(frames) => host.over(Copies::of(frames)),
            None => host,
        });
        let state = begin(&*loaded, host, &prepared.config).map_err(|fault| {
            BuildError::new(format_args!("setting up {} failed: {fault}", settings.module.display()))
        })?;
        if let State::Waiting(_) = state {
            strikes.borrow_mut().status = Status::New;
        }
        Some((loaded, state))
    };
    declare_node(worker, || {
        handlers(worker, &records, &strikes);
        let events = worker.event_log(EVENTS, KEPT_EVENTS, |told: &Told, to| told.write(to));
        records.borrow_mut().tell(events);
        let counters = Counters::declare(worker);
        report(worker, &records, &strikes, &counters);
        explain(worker, settings, &records, &strikes);
        let (loaded, state) = match running {
            Some((loaded, state)) => (Some(loaded), state),
            None => (None, State::Gone),
        };
        SandboxNode {
            is_noted: false,
            loaded,
            state,
            config: prepared.config.clone(),
            stopped: settings.stopped,
            outputs: settings.outputs,
            demands: Demands::of(settings, &prepared, worker),
            strikes,
            records,
            counters,
        }
    })
}

/// The first instance, or the host that waits for it where the worker has set up enough in this change.
///
/// # Errors
/// The fault of an instance that cannot begin.
fn begin(loaded: &dyn Loaded, host: Box<Host>, config: &[u8]) -> Result<State, Fault> {
    let began = thread_time();
    if !Starts::here(|starts| starts.has_room(began)) {
        return Ok(State::Waiting(host));
    }
    let instance = loaded.start(host, config).map_err(|(fault, _)| fault)?;
    Starts::here(|starts| starts.note(began, thread_time().wrapping_sub(began)));
    Ok(State::Running(instance))
}

/// The host's window in the module's memory, and the frames that are mapped beside it.
fn window(settings: &SandboxSettings, prepared: &Prepared, worker: &Worker) -> (Window, usize) {
    let config = prepared.config.len();
    match settings.mode {
        Mode::Copy => (Window::new(prepared.needs, worker.pool().largest_packet(), config), 0),
        Mode::Mapped => (Window::without_frames(config), settings.frames),
    }
}

/// The memory and frames of a function that its tables do not count, and its state.
#[derive(Clone, Copy)]
struct Demands {
    memory: u64,
    frames: usize,
    by_flow: bool,
}

impl Demands {
    /// Beside what the module may have, there are the host's window behind it, the configuration, and the native code.
    fn of(settings: &SandboxSettings, prepared: &Prepared, worker: &Worker) -> Self {
        let (window, frames) = window(settings, prepared, worker);
        let room = window.room(Frames::bytes_of(frames)) + prepared.config.len();
        let code = prepared.program.contents().code;
        let by_flow = settings.state == KeptState::Flow;
        Self { memory: settings.memory.bytes() + (room + code) as u64, frames, by_flow }
    }
}

/// The declared counters of a node: faults of its module, new instances, host calls.
#[derive(Clone)]
struct Counters {
    traps: Counter,
    preemptions: Counter,
    restarts: Counter,
    host_calls: Counter,
}

impl Counters {
    fn declare(worker: &Worker) -> Self {
        Self {
            traps: worker.counter("traps"),
            preemptions: worker.counter("preemptions"),
            restarts: worker.counter("restarts"),
            host_calls: worker.counter("host_calls"),
        }
    }
}

fn described(strikes: &Strikes) -> String {
    match strikes.status {
        Status::New => "new: it begins with its first packets".to_owned(),
        Status::Running => format!("running, {} strikes", strikes.count()),
        Status::Waiting(until) => format!("waiting until {until} ns, {} strikes", strikes.count()),
        Status::Stopped => format!("stopped, {} strikes", strikes.count()),
    }
}

fn handlers(worker: &Worker, records: &Rc<RefCell<Records>>, strikes: &Rc<RefCell<Strikes>>) {
    let kept = Rc::clone(records);
    let handler = Handler::read("counters", "The module's own counters, as NAME VALUE, one a line.");
    worker.handler(handler, move |_| Ok(kept.borrow().counters()));
    let kept = Rc::clone(records);
    let handler = Handler::read("log", "The module's last lines, each after its time (ns).");
    worker.handler(handler, move |_| Ok(kept.borrow().lines()));
    let kept = Rc::clone(records);
    let handler = Handler::read("faults", "The module's last faults, each after its time (ns).");
    worker.handler(handler, move |_| Ok(kept.borrow().faults()));
    let present = Rc::clone(strikes);
    let handler = Handler::read("state", "Whether the module runs, and its strikes.");
    worker.handler(handler, move |_| Ok(described(&present.borrow())));
    let present = Rc::clone(strikes);
    let handler = Handler::write("restart", "Has a module that stopped try once more; its strikes stay.");
    worker.handler(handler, move |_| {
        let mut strikes = present.borrow_mut();
        let stopped = strikes.try_again();
        let state = described(&strikes);
        match stopped {
            true => Ok(state),
            false => Err(format!("only a module that stopped starts again: this one is {state}")),
        }
    });
}

fn report(
    worker: &Worker,
    records: &Rc<RefCell<Records>>,
    strikes: &Rc<RefCell<Strikes>>,
    counters: &Counters,
) {
    let (index, strikes, counters) = (worker.index(), Rc::clone(strikes), counters.clone());
    let kept = Rc::clone(records);
    worker.report(move || {
        let strikes = strikes.borrow();
        let numbers = [&counters.traps, &counters.preemptions, &counters.restarts, &counters.host_calls]
            .map(|c| c.get());
        let row = [index.to_string(), described(&strikes)].into_iter();
        let row = row.chain(numbers.map(|number| number.to_string()));
        Section {
            title: "sandbox".into(),
            columns: ["worker", "state", "traps", "preemptions", "restarts", "host calls"]
                .map(Into::into)
                .into(),
            rows: vec![row.collect()],
            counts: [("log_lines_suppressed".into(), kept.borrow().suppressed())].into(),
            merge: SectionMerge::Concatenate,
            ..Section::default()
        }
    });
    let kept = Rc::clone(records);
    worker.report(move || kept.borrow().counter_section());
    let kept = Rc::clone(records);
    worker.report(move || kept.borrow().text_section());
}

fn explain(
    worker: &Worker,
    settings: &SandboxSettings,
    records: &Rc<RefCell<Records>>,
    strikes: &Rc<RefCell<Strikes>>,
) {
    let module = settings.module.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (records, strikes, stopped) = (Rc::clone(records), Rc::clone(strikes), settings.stopped);
    worker.explain(move |_, why| {
        let strikes = strikes.borrow();
        let fate = match (strikes.status, stopped) {
            (Status::Running, _) => "decides",
            (_, Stopped::Drop) => "does not run, so that its packets are dropped",
            (_, Stopped::Pass) => "does not run, so that its packets pass",
        };
        write!(why, "module {module} {fate} ({})", described(&strikes))?;
        match records.borrow().last_fault() {
            Some(fault) => write!(why, "; its last fault: {fault}"),
            None => Ok(()),
        }
    });
}

/// A node's instance, or the host that waits for the next one.
enum State {
    Running(Box<dyn Instance>),
    Waiting(Box<Host>),
    /// The control side's copy, to which no packets come.
    Gone,
}

struct SandboxNode {
    /// Whether the thread is noted as a worker.
    is_noted: bool,
    loaded: Option<Box<dyn Loaded>>,
    state: State,
    config: Vec<u8>,
    stopped: Stopped,
    outputs: usize,
    demands: Demands,
    strikes: Rc<RefCell<Strikes>>,
    records: Rc<RefCell<Records>>,
    counters: Counters,
}

impl SandboxNode {
    /// Counts a fault and decides how to go on.
    #[cold]
    fn strike(&mut self, fault: &Fault, now: u64) -> DropReason {
        self.strikes.borrow_mut().strike(now);
        let state = described(&self.strikes.borrow());
        self.records.borrow_mut().fault(now, fault.to_string(), state);
        match fault {
            Fault::Trapped(_) => {
                self.counters.traps.add(1);
                DropReason::Trapped
            }
            Fault::Preempted => {
                self.counters.preemptions.add(1);
                DropReason::Preempted
            }
        }
    }

    /// Makes the next instance, where it is due. Answers whether it may run in this turn.
    ///
    /// After a fault, one that took long to begin gets no packets in the same turn: so a turn holds the worker for the time of
    /// one of both. The first one gets them, as no packet may be lost by a change.
    #[cold]
    fn revive(&mut self, now: u64) -> bool {
        if !self.strikes.borrow().is_due(now) {
            return false;
        }
        let host = match std::mem::replace(&mut self.state, State::Gone) {
            State::Waiting(host) => host,
            running @ State::Running(_) => {
                self.state = running;
                return true;
            }
            State::Gone => return false,
        };
        let Some(loaded) = &self.loaded else { return false };
        let is_first = self.strikes.borrow().status == Status::New;
        let began = thread_time();
        let started = loaded.start(host, &self.config);
        let took = thread_time().wrapping_sub(began);
        match started {
            Ok(instance) => {
                self.counters.restarts.add(u64::from(!is_first));
                self.strikes.borrow_mut().status = Status::Running;
                self.state = State::Running(instance);
                is_first || took <= AT_ONCE
            }
            Err((fault, host)) => {
                self.state = State::Waiting(host);
                self.strike(&fault, now);
                false
            }
        }
    }

    /// Ends the instance after a fault: its batch is dropped.
    #[cold]
    fn fail(&mut self, fault: &Fault, batch: &mut Batch, cx: &mut Context) {
        if let State::Running(instance) = std::mem::replace(&mut self.state, State::Gone) {
            let mut host = instance.retire();
            std::mem::swap(&mut host.batch, batch);
            host.mapped().into_iter().for_each(Copies::clear);
            self.state = State::Waiting(host);
        }
        let reason = self.strike(fault, cx.now());
        cx.drop_batch(batch, reason);
    }
}

/// Runs the module over the batch that its host holds. Answers whether all packets pass, as most batches do.
///
/// # Errors
/// The module trapped, or left a verdict that is none.
fn run(instance: &mut dyn Instance, outputs: usize, now: u64) -> Result<bool, Fault> {
    let (memory, host) = instance.parts();
    host.fill(memory, now);
    instance.process()?;
    let (memory, host) = instance.parts();
    if host.all_pass(memory) {
        return Ok(true);
    }
    for slot in 0..host.batch.len() {
        let verdict = host.verdict(memory, slot);
        if fate(verdict, outputs).is_none() {
            return Err(Fault::Trapped(format!(
                "it left the verdict {verdict:#x} for packet {slot}, which is none"
            )));
        }
    }
    Ok(false)
}

/// How a verdict of [`Batch::compact`] marks another edge; the numbers below are those of reasons, from 1.
const TO_EDGE: u16 = 0x100;

impl Node for SandboxNode {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        if !self.is_noted {
            // Not when it is made: checks make nodes on other threads, too.
            self.is_noted = true;
            self.loaded.iter().for_each(|loaded| loaded.note_worker());
        }
        let runs = self.strikes.borrow().status == Status::Running || self.revive(cx.now());
        let instance = match &mut self.state {
            State::Running(instance) if runs => instance,
            _ => {
                if self.stopped == Stopped::Drop {
                    cx.drop_batch(batch, DropReason::Quarantined);
                }
                return;
            }
        };
        let (_, host) = instance.parts();
        if let Some(kept) = host.mapped().and_then(|copies| copies.take_in(batch)) {
            lost(batch, kept, cx);
        }
        if batch.is_empty() {
            return;
        }
        std::mem::swap(&mut host.batch, batch);
        let all_pass = match run(&mut **instance, self.outputs, cx.now()) {
            Ok(all_pass) => all_pass,
            Err(fault) => {
                self.fail(&fault, batch, cx);
                return;
            }
        };
        let outputs = self.outputs;
        let (memory, host) = instance.parts();
        self.counters.host_calls.add(u64::from(host.calls()));
        if all_pass {
            host.settle_all(memory);
            std::mem::swap(&mut host.batch, batch);
            return;
        }
        let kept = host.settle(memory, |verdict| mark(verdict, outputs));
        std::mem::swap(&mut host.batch, batch);
        if kept != batch.len() {
            depart(batch, kept, cx);
        }
    }

    fn shape(&self) -> Shape {
        let reply = Output { edge: Edge::REPLY, name: "reply".into(), optional: true };
        let others = (1..self.outputs).map(|output| Output {
            edge: edge_of(output),
            name: output.to_string(),
            optional: false,
        });
        Shape {
            kind: "sandbox".into(),
            outputs: [Output::out(), reply].into_iter().chain(others).collect(),
            memory: self.demands.memory,
            frames: self.demands.frames,
            by_flow: self.demands.by_flow,
            ..Shape::default()
        }
    }
}

/// Drops the packets from `kept` on, for which the pool of mapped frames has no frame.
#[cold]
fn lost(batch: &mut Batch, kept: usize, cx: &mut Context) {
    for packet in batch.drain_from(kept) {
        let reason = if packet.verdict() == TOO_BIG { DropReason::TooBig } else { DropReason::PoolExhausted };
        cx.drop_packet(packet, reason);
    }
}

/// Whether a packet of this verdict stays in the graph, and its mark for [`Batch::compact`].
#[inline(always)]
pub(crate) fn mark(verdict: u32, outputs: usize) -> (bool, u16) {
    match fate(verdict, outputs) {
        Some(Fate::Leave(Edge::OUT)) => (true, 0),
        Some(Fate::Leave(edge)) => (true, TO_EDGE | u16::from(edge.0)),
        Some(Fate::Drop(reason)) => (false, 1 + reason as u16),
        // `run` has refused it.
        None => (false, 1 + DropReason::Trapped as u16),
    }
}

/// Drops packets and sends them away, by their marks.
pub(crate) fn depart(batch: &mut Batch, kept: usize, cx: &mut Context) {
    for packet in batch.drain_from(kept) {
        let mark = packet.verdict();
        if mark >= TO_EDGE {
            cx.emit(Edge(mark as u8), packet);
        } else {
            let reason = DropReason::ALL.get(usize::from(mark).wrapping_sub(1));
            cx.drop_packet(packet, reason.copied().unwrap_or(DropReason::Trapped));
        }
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::buffer::Pool;
    use netbricks_core::{DetachedContext, Random};

    use super::*;
    use crate::abi::Writes;
    use crate::backend::Declared;
    use crate::host::Needs;
    use crate::policy::Policy;

    /// An instance that does nothing.
    struct Passing(Box<Host>, Vec<u8>);

    impl Instance for Passing {
        fn parts(&mut self) -> (&mut [u8], &mut Host) {
            (&mut self.1, &mut self.0)
        }
        fn process(&mut self) -> Result<(), Fault> {
            Ok(())
        }
        fn retire(self: Box<Self>) -> Box<Host> {
            self.0
        }
    }

    /// A module whose instances take this much CPU time (ns) to set themselves up.
    struct Slow(u64);

    impl Loaded for Slow {
        fn note_worker(&self) {}
        fn declared(&self) -> Result<Declared, Fault> {
            Ok(Declared { abi: 1, reads: 64, writes: 0 })
        }
        fn start(&self, mut host: Box<Host>, _: &[u8]) -> Result<Box<dyn Instance>, (Fault, Box<Host>)> {
            let began = thread_time();
            while thread_time() - began < self.0 {
                std::hint::spin_loop();
            }
            let room = host.window().bytes();
            let memory = vec![0; room + (64 << 10)];
            host.begin(0, 64 << 10);
            host.set_batch(&memory, 1_024).unwrap();
            Ok(Box::new(Passing(host, memory)))
        }
    }

    #[test]
    fn a_new_instance_that_took_long_runs_in_the_next_turn() {
        let pool = Pool::builder().frames(256).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let policy = Policy { strikes: 8, backoff: 1, forgive: 1 };
        let strikes = Rc::new(RefCell::new(Strikes::new(policy)));
        strikes.borrow_mut().strike(0);
        let needs = Needs { reads: 64, writes: Writes::None };
        let records = Rc::<RefCell<Records>>::default();
        let host = Host::new(needs, Window::new(needs, 2_048, 0), 16, Random::of(&[]), Rc::clone(&records));
        let mut cx = DetachedContext::new(pool.clone());
        let mut node = declare_node(&worker, || SandboxNode {
            is_noted: false,
            loaded: Some(Box::new(Slow(AT_ONCE + 1))),
            state: State::Waiting(Box::new(host)),
            config: Vec::new(),
            stopped: Stopped::Drop,
            outputs: 1,
            demands: Demands { memory: 0, frames: 0, by_flow: false },
            strikes,
            records,
            counters: Counters::declare(&worker),
        })
        .unwrap();
        cx.advance(1_000);
        let mut batch = Batch::new();
        for left in [0, 1, 1] {
            batch.clear();
            batch.push(pool.packet(&[1; 60]).unwrap()).unwrap();
            node.process(0, &mut batch, &mut cx);
            assert_eq!(batch.len(), left);
        }
        assert_eq!(cx.take_drops().of(DropReason::Quarantined).packets, 1);
    }
}
