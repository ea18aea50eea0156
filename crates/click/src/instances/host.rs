//! The node that holds instances and their switch, and gives instances their turns.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::node::Handler;
use netbricks_core::shuffle::Handoff;
use netbricks_core::{
    BuildError, CallError, Context, DropReason, Node, NodeQueue, NodeState, Poll, Section, Shape, Worker,
};

use crate::clock::Clock;
use crate::drive::{self, Round};
use crate::node::shape_of;
use crate::router::{Router, Surroundings};

use super::InstancesSettings;
use super::directory::{Change, Made};
use super::exchange::Exchange;
use super::instance::{Instance, LARGEST, State};
use super::shared::Shared;
use super::switch::{End, PortCounts, Switch, SwitchPort};

/// Turns of instances in one turn of the node, at most.
const TURNS: usize = 16;
/// After this time (ns) the graph's other nodes get turns, before another instance does.
///
/// An idle port is asked once in eight turns, and its packets wait meanwhile.
const SLICE: u64 = 5_000;
/// The most elements of an instance: packets wait while they are made.
const MOST_ELEMENTS: usize = 4_096;
/// The most bytes of the automata of an instance's regular expressions, for the same reason.
const MOST_AUTOMATA: usize = 1 << 20;
/// Pushes, pulls and calls of handlers in one turn of an instance: far more than useful ones need.
const MOST_WORK: u64 = 1 << 20;
/// Descriptors are looked at once in so many turns of the node while instances are busy.
const TURNS_A_LOOK: u32 = 64;

/// The node.
pub(super) struct Host {
    /// The number of its worker.
    pub(super) me: usize,
    pub(super) shared: Arc<Shared>,
    /// The last change of the directory that it knows.
    seen: u64,
    /// By number: the instances of this worker.
    pub(super) instances: Vec<Option<Instance>>,
    pub(super) switch: Switch,
    pub(super) surroundings: Surroundings,
    /// Configurations that ended in a handler, until the next turn counts what they held.
    pub(super) ended: Vec<Rc<Router>>,
    /// Packets of rings whose instances a handler destroyed.
    pub(super) orphans: Vec<Packet>,
    /// Declared instances that wait for their configurations.
    pub(super) awaiting: VecDeque<usize>,
    devices: usize,
    /// Instances that want a turn, the one with the least time first.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    timers: BTreeSet<(u64, usize)>,
    /// The time of the instance that had the last turn: those that wake begin there.
    pass: u64,
    batch: Batch,
    watched: Vec<Rc<OwnedFd>>,
    /// Instances whose elements have descriptors.
    watching: BTreeSet<usize>,
    turns: u32,
    sleeping: bool,
    woken: Vec<usize>,
    meter: Meter,
    /// Packets that instances held after their last turns, and whether something else has changed that since.
    held: Cell<u64>,
    pub(super) is_stale: Cell<bool>,
}

/// A turn of this length (ns) may have been interrupted by other programs.
const LONG: u64 = 100_000;

/// Takes the time out of long turns in which other programs had the core: instances do not pay for it.
struct Meter {
    wall: Instant,
    cpu: u64,
    /// The worker may have slept since those were read.
    slept: bool,
}

impl Meter {
    fn new() -> Self {
        Self { wall: Instant::now(), cpu: Self::cpu(), slept: true }
    }
    /// The time that the thread has had (ns).
    fn cpu() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    }
    /// The time of a turn, by how long it took.
    #[inline]
    fn of_turn(&mut self, took: u64) -> u64 {
        if took < LONG { took } else { self.of_long_turn(took) }
    }
    #[cold]
    fn of_long_turn(&mut self, took: u64) -> u64 {
        let now = Self { wall: Instant::now(), cpu: Self::cpu(), slept: false };
        let passed = u64::try_from(now.wall.duration_since(self.wall).as_nanos()).unwrap_or(u64::MAX);
        let stolen = passed.saturating_sub(now.cpu.saturating_sub(self.cpu));
        let slept = std::mem::replace(self, now).slept;
        if slept { took } else { took.saturating_sub(stolen).max(1) }
    }
}

impl Host {
    pub(super) fn new(settings: &InstancesSettings, worker: &Worker) -> Result<Self, BuildError> {
        let shared = worker.group().shared(&settings.place, || Shared::new(settings, worker))?;
        let me = worker.index();
        // No packet comes to the control side's copy.
        let exchange = if worker.is_control() { None } else { Exchange::new(&shared, me)? };
        let mut switch = Switch::new(settings.learning, settings.addresses, worker.seed(), exchange);
        for (number, name) in settings.devices.iter().enumerate() {
            switch.add(number, SwitchPort::device(name.clone(), number));
        }
        let surroundings = Surroundings {
            pool: worker.pool().clone(),
            clock: Rc::new(Clock::set_from_outside(0)),
            capabilities: settings.granted().map_err(BuildError::new)?,
            chatter: Rc::new(|_| ()),
            // Elements show their random numbers in packets: these lead to no other function's.
            seed: worker.random("click instances").draw(),
            secrets: Rc::new(RefCell::new(worker.random("click secrets"))),
            reconfigures: false,
            exact: settings.exact,
            most_elements: MOST_ELEMENTS,
            most_memory: usize::MAX,
            most_text: LARGEST,
            most_automata: MOST_AUTOMATA,
            most_work: MOST_WORK,
            keeps_dropped: true,
        };
        let (changes, seen) = shared.all(me);
        let mut host = Self {
            me,
            shared,
            seen,
            instances: Vec::new(),
            switch,
            surroundings,
            ended: Vec::new(),
            orphans: Vec::new(),
            awaiting: VecDeque::new(),
            devices: settings.devices.len(),
            ready: BinaryHeap::new(),
            timers: BTreeSet::new(),
            pass: 0,
            batch: Batch::new(),
            watched: Vec::new(),
            watching: BTreeSet::new(),
            turns: 0,
            sleeping: false,
            woken: Vec::new(),
            meter: Meter::new(),
            held: Cell::new(0),
            is_stale: Cell::new(true),
        };
        changes.into_iter().for_each(|change| host.learn(change));
        Ok(host)
    }

    /// Learns of instances and ports that commands made or ended, on any worker.
    #[inline]
    pub(super) fn sync(&mut self) {
        if self.shared.version() != self.seen {
            self.read_news();
        }
    }

    #[cold]
    fn read_news(&mut self) {
        let (changes, seen) = self.shared.news(self.me);
        self.seen = seen;
        self.is_stale.set(true);
        changes.into_iter().for_each(|change| self.learn(change));
    }

    fn learn(&mut self, change: Change) {
        match change {
            Change::Created(made) => self.add(&made),
            Change::Destroyed(number, ports) => {
                if let Some(mut instance) = self.instances.get_mut(number).and_then(Option::take) {
                    self.forget(number);
                    self.ended.extend(instance.end());
                }
                for port in ports {
                    self.orphans.extend(self.switch.remove(port));
                }
            }
            Change::Mapped(mac, port) => self.switch.map(mac, port),
            Change::Learning(learning) => self.switch.set_learning(learning),
        }
    }

    fn add(&mut self, made: &Made) {
        let is_here = made.worker == self.me;
        for port in &made.ports {
            let end = if is_here { End::Instance(made.number) } else { End::Elsewhere(made.worker) };
            let port_here = SwitchPort {
                name: port.name.clone(),
                end,
                mac: port.mac,
                ring: VecDeque::new(),
                capacity: made.creation.ring,
                counts: PortCounts::default(),
                generation: port.generation,
                lost_between: Arc::clone(&port.lost),
            };
            self.switch.add(port.number, port_here);
        }
        if !is_here {
            return;
        }
        let awaited = made.awaited.clone();
        if awaited.is_some() {
            self.awaiting.push_back(made.number);
        }
        let mut instance = Instance::new(made.creation.name.clone(), made.creation.quotas, awaited);
        instance.ports = made.ports.iter().map(|port| port.number).collect();
        instance.owner.clone_from(&made.creation.owner);
        if made.number >= self.instances.len() {
            self.instances.resize_with(made.number + 1, || None);
        }
        self.instances[made.number] = Some(instance);
    }

    /// Has an instance get a turn.
    pub(super) fn wake(&mut self, number: usize) {
        let Some(instance) = self.instances.get_mut(number).and_then(Option::as_mut) else { return };
        if !instance.ready {
            instance.ready = true;
            // Time that it did not use while it slept is gone.
            instance.pass = instance.pass.max(self.pass);
            self.ready.push(Reverse((instance.pass, number)));
        }
    }

    /// Forgets what a destroyed instance waits for.
    pub(super) fn forget(&mut self, number: usize) {
        self.ready.retain(|Reverse((_, other))| *other != number);
        self.timers.retain(|(_, other)| *other != number);
    }

    fn wake_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        self.switch.take_woken(&mut woken);
        woken.drain(..).for_each(|number| self.wake(number));
        self.woken = woken;
    }

    /// Counts what handlers ended since the last turn.
    fn settle(&mut self, cx: &mut Context) {
        for router in self.ended.drain(..) {
            let (created, bytes) = router.take_created();
            if created > 0 {
                cx.keeping().created(created, bytes);
            }
            router.take_outbox(|_, packet| cx.drop_packet(packet, DropReason::Unconnected));
            router.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
            // A panic may have freed some on its way.
            cx.keeping().dropped(router.take_held(), 0, DropReason::Panicked);
        }
        for packet in self.orphans.drain(..) {
            cx.drop_packet(packet, DropReason::Drained);
        }
    }

    fn expire(&mut self, now: u64) {
        while let Some(&(time, number)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            if let Some(instance) = self.instances.get_mut(number).and_then(Option::as_mut) {
                instance.timer = None;
            }
            self.wake(number);
        }
    }

    fn set_timer(&mut self, number: usize, time: Option<u64>) {
        let Some(instance) = self.instances.get_mut(number).and_then(Option::as_mut) else { return };
        if instance.timer != time {
            if let Some(old) = instance.timer.take() {
                self.timers.remove(&(old, number));
            }
            instance.timer = time;
            if let Some(time) = time {
                self.timers.insert((time, number));
            }
        }
    }

    /// Gives the instance with the least time its turn, and returns how long it took (ns).
    ///
    /// `None` when none wants one.
    fn turn(&mut self, cx: &mut Context) -> Option<u64> {
        let Reverse((pass, number)) = self.ready.pop()?;
        self.pass = self.pass.max(pass);
        let Some(instance) = self.instances.get_mut(number).and_then(Option::as_mut) else { return Some(0) };
        instance.ready = false;
        if instance.keeps_waiting() {
            return Some(0);
        }
        // Should this panic, all is counted anew.
        let was_stale = self.is_stale.replace(true);
        let (round, took) = instance.turn(&mut self.switch, &mut self.batch, cx);
        instance.charge(self.meter.of_turn(took));
        self.ended.extend(instance.end_if_spent());
        if instance.is_to_be_measured() {
            self.ended.extend(instance.measure());
        }
        let held = instance.held();
        let before = instance.counted.replace(held);
        self.held.set(self.held.get().wrapping_add(held).wrapping_sub(before));
        self.is_stale.set(was_stale);
        if self.surroundings.capabilities.sockets || self.surroundings.capabilities.files {
            self.note_descriptors(number);
        }
        match round {
            Round::Busy => self.wake(number),
            Round::Until(time) => self.set_timer(number, Some(time)),
            Round::Idle | Round::Stopped => self.set_timer(number, None),
        }
        self.wake_woken();
        Some(took)
    }

    /// Packets of all ports of an instance together.
    pub(super) fn counts(&self, one: &Instance) -> PortCounts {
        let mut counts = PortCounts::default();
        for port in one.ports.iter().filter_map(|port| self.switch.port(*port)) {
            let port = port.counts();
            counts.received += port.received;
            counts.sent += port.sent;
            counts.lost += port.lost;
        }
        counts
    }

    /// Notes that an instance has descriptors, after its elements did something.
    pub(super) fn note_descriptors(&mut self, number: usize) {
        let router = self.instances.get(number).and_then(|one| one.as_ref()?.router.as_ref());
        if router.is_some_and(|router| !router.watched().is_empty()) {
            self.watching.insert(number);
        }
    }

    /// Looks at the descriptors of those instances that have some.
    fn look(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        self.watched.clear();
        if self.watching.is_empty() {
            return;
        }
        let busy = !self.ready.is_empty();
        let mut watching = std::mem::take(&mut self.watching);
        watching.retain(|number| {
            let instance = self.instances.get(*number).and_then(Option::as_ref);
            let Some((state, router)) = instance.and_then(|one| Some((&one.state, one.router.clone()?)))
            else {
                return false;
            };
            if *state != State::Running {
                return true;
            }
            if !busy || self.turns.is_multiple_of(TURNS_A_LOOK) {
                router.begin_turn();
                drive::look_at_descriptors(&router, Duration::ZERO);
                if let Some(instance) = self.instances.get_mut(*number).and_then(Option::as_mut) {
                    self.ended.extend(instance.end_if_spent());
                    self.is_stale.set(true);
                }
                if !router.tasks.is_empty() {
                    self.wake(*number);
                }
            }
            self.watched.extend(router.watched().iter().map(|one| Rc::clone(&one.descriptor)));
            true
        });
        self.watching = watching;
    }

    fn begin(&mut self, cx: &mut Context) {
        self.sync();
        self.surroundings.clock.set(cx.now());
        self.settle(cx);
    }

    /// Takes packets that other workers sent. Answers whether there were any.
    fn take_from_others(&mut self, cx: &mut Context) -> bool {
        let Some(mut exchange) = self.switch.exchange.take() else { return false };
        self.meter.slept |= exchange.begin();
        let came = exchange.take(cx, |crossing, cx| {
            if !self.switch.is_for(&crossing) {
                // The sender may have learnt of the port before this worker.
                self.sync();
            }
            if self.switch.is_for(&crossing) {
                self.switch.arrive(crossing, cx);
            } else {
                cx.drop_packet(crossing.packet, DropReason::Unconnected);
            }
        });
        self.switch.exchange = Some(exchange);
        self.surroundings.clock.set(cx.now());
        self.wake_woken();
        came
    }

    /// Gives other workers their packets, and says how the turn ended.
    fn leave(&mut self, came: bool, cx: &mut Context) -> Poll {
        if self.switch.exchange.is_none() {
            return self.how_to_wait();
        }
        let holds = self.held() > 0;
        let Some(exchange) = &mut self.switch.exchange else { return Poll::Done };
        exchange.flush(cx);
        let busy = came || exchange.is_waiting() || !self.sleeping;
        if exchange.ends_now(busy || holds) {
            self.end_all(cx);
        }
        let Some(exchange) = &mut self.switch.exchange else { return Poll::Done };
        if exchange.has_ended(cx) {
            Poll::Done
        } else if busy || exchange.is_ending() {
            Poll::Busy
        } else {
            // Other workers' packets wake it, and a timer of its own.
            Poll::Idle
        }
    }

    fn how_to_wait(&self) -> Poll {
        match self.timers.first() {
            _ if !self.sleeping => Poll::Busy,
            // A node that waits for descriptors has no timer, but for an exchange's.
            Some(_) if !self.watched.is_empty() && self.switch.exchange.is_none() => Poll::Busy,
            _ if !self.watched.is_empty() => Poll::Idle,
            Some((time, _)) => Poll::Until(*time),
            // Nothing is done until packets come or a handler is called.
            None => Poll::Until(u64::MAX),
        }
    }

    /// Ends all configurations: what they and the rings hold is dropped.
    fn end_all(&mut self, cx: &mut Context) {
        self.is_stale.set(true);
        self.awaiting.clear();
        for instance in self.instances.iter_mut().flatten() {
            self.ended.extend(instance.end());
            instance.awaited = None;
            instance.state = State::Empty;
        }
        self.switch.drain(cx);
        self.settle(cx);
    }
}

impl Node for Host {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        self.begin(cx);
        for packet in batch.drain() {
            self.switch.forward(input, packet, cx);
        }
        self.wake_woken();
        if let Some(exchange) = &mut self.switch.exchange {
            exchange.flush(cx);
        }
        if self.sleeping && !self.ready.is_empty() {
            self.sleeping = false;
            cx.wake();
        }
    }

    fn poll(&mut self, _batch: &mut Batch, cx: &mut Context) -> Poll {
        self.begin(cx);
        self.meter.slept |= self.sleeping;
        let came = self.take_from_others(cx);
        self.expire(cx.now());
        if !self.awaiting.is_empty() {
            self.is_stale.set(true);
            self.install_one_declared();
        }
        let (mut turns, mut spent) = (0, 0);
        while turns < TURNS
            && spent < SLICE
            && let Some(took) = self.turn(cx)
        {
            turns += 1;
            spent += took;
        }
        if self.surroundings.capabilities.sockets || self.surroundings.capabilities.files {
            self.look();
        }
        self.sleeping = self.ready.is_empty() && self.awaiting.is_empty();
        self.leave(came, cx)
    }

    fn shape(&self) -> Shape {
        Shape { spans_workers: true, ..shape_of("instances", self.devices, self.devices) }
    }

    fn descriptors<'n>(&'n self, watch: &mut dyn FnMut(BorrowedFd<'n>)) {
        self.watched.iter().for_each(|descriptor| watch(descriptor.as_fd()));
        if let Some(exchange) = &self.switch.exchange {
            let now = self.surroundings.clock.now();
            let timer = self.timers.first().map(|(time, _)| time.saturating_sub(now));
            exchange.watch(timer, self.seen, watch);
        }
    }
    fn has_descriptor(&self) -> bool {
        !self.watched.is_empty() || self.switch.exchange.is_some()
    }
    fn as_handoff(&mut self) -> Option<&mut dyn Handoff> {
        if self.switch.exchange.is_some() { Some(self) } else { None }
    }

    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }

    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Host {
    fn held(&self) -> u64 {
        if self.is_stale.replace(false) {
            let count = |one: &Instance| {
                one.counted.set(one.held());
                one.counted.get()
            };
            self.held.set(self.instances.iter().flatten().map(count).sum());
        }
        let ended: u64 = self.ended.iter().map(|router| router.held_as_counted()).sum();
        self.held.get() + ended + self.switch.waiting() + self.orphans.len() as u64
    }
    fn drain(&mut self, _batch: &mut Batch, cx: &mut Context) {
        self.end_all(cx);
        if let Some(exchange) = &mut self.switch.exchange {
            exchange.drain(cx);
        }
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        self.switch.exchange.as_mut()?.give_back();
        Some(self)
    }
    fn restore_failed(&mut self) {
        if let Some(exchange) = &mut self.switch.exchange {
            exchange.take_again();
        }
    }
}

impl NodeState for Host {
    fn handlers(&self) -> Vec<Handler> {
        super::commands::handlers()
    }
    fn prepare(&mut self, name: &str, argument: &str) -> Result<Option<String>, CallError> {
        self.prepare_call(name, argument)
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        self.command(name, argument)
    }
    fn report(&self) -> Vec<Section> {
        let row = |one: &Instance| {
            let counts = self.counts(one);
            let numbers = [counts.received, counts.sent, counts.lost, one.used / 1_000]
                .map(|number| number.to_string());
            [one.name.clone(), one.state.name().to_owned()].into_iter().chain(numbers).collect()
        };
        vec![Section {
            title: "instances".into(),
            columns: ["instance", "state", "received", "sent", "lost", "used (us)"]
                .map(str::to_owned)
                .to_vec(),
            rows: self.instances.iter().flatten().map(row).collect(),
            ..Section::default()
        }]
    }
}
