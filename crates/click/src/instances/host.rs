//! The node that holds instances and their switch, and gives instances their turns.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::node::Handler;
use netbricks_core::{
    BuildError, CallError, Context, DropReason, Node, NodeQueue, NodeState, Poll, Section, Shape, Worker,
};

use crate::clock::Clock;
use crate::drive::{self, Round};
use crate::node::shape_of;
use crate::router::{Router, Surroundings};

use super::InstancesSettings;
use super::declared::Awaited;
use super::instance::{Instance, State};
use super::switch::{End, PortCounts, Switch, SwitchPort};

/// Turns of instances in one turn of the node.
const TURNS: usize = 16;
/// Descriptors are looked at once in so many turns of the node while instances are busy.
const TURNS_A_LOOK: u32 = 64;

/// The node.
pub(super) struct Host {
    pub(super) instances: Vec<Option<Instance>>,
    pub(super) switch: Switch,
    pub(super) surroundings: Surroundings,
    pub(super) most: usize,
    /// Configurations that ended in a handler, until the next turn counts what they held.
    pub(super) ended: Vec<Rc<Router>>,
    /// Packets of rings whose instances a handler destroyed.
    pub(super) orphans: Vec<Packet>,
    /// Configurations of declared instances, until the first turn.
    pub(super) awaited: Vec<Awaited>,
    devices: usize,
    /// Instances that want a turn, the one with the least time first.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    timers: BTreeSet<(u64, usize)>,
    /// The time of the instance that had the last turn: those that wake begin there.
    pass: u64,
    batch: Batch,
    watched: Vec<Rc<OwnedFd>>,
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
        let mut switch = Switch::new(settings.learning, settings.addresses, worker.seed());
        for (number, name) in settings.devices.iter().enumerate() {
            let port = SwitchPort {
                name: name.clone(),
                end: End::Device(number),
                mac: None,
                ring: std::collections::VecDeque::new(),
                capacity: 0,
                counts: PortCounts::default(),
            };
            switch.add(port).map_err(BuildError::new)?;
        }
        let surroundings = Surroundings {
            pool: worker.pool().clone(),
            clock: Rc::new(Clock::set_from_outside(0)),
            capabilities: settings.granted().map_err(BuildError::new)?,
            chatter: Rc::new(|_| ()),
            seed: worker.seed(),
            reconfigures: false,
            exact: settings.exact,
            most_elements: 16_384,
            most_memory: usize::MAX,
            keeps_dropped: true,
        };
        let mut host = Self {
            instances: Vec::new(),
            switch,
            surroundings,
            most: settings.most,
            ended: Vec::new(),
            orphans: Vec::new(),
            awaited: Vec::new(),
            devices: settings.devices.len(),
            ready: BinaryHeap::new(),
            timers: BTreeSet::new(),
            pass: 0,
            batch: Batch::new(),
            watched: Vec::new(),
            turns: 0,
            sleeping: false,
            woken: Vec::new(),
            meter: Meter::new(),
            held: Cell::new(0),
            is_stale: Cell::new(true),
        };
        host.declare(&settings.instance)?;
        Ok(host)
    }

    /// The number of an instance, if there is one of that name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.instances.iter().position(|one| one.as_ref().is_some_and(|one| one.name == name))
    }

    /// The number of an instance.
    pub(super) fn find(&self, name: &str) -> Result<usize, String> {
        self.place(name).ok_or_else(|| {
            let known = self.instances.iter().flatten().map(|one| one.name.as_str());
            match netbricks_core::nearest(name, known) {
                Some(near) => format!("there is no instance `{name}`; did you mean `{near}`?"),
                None => format!("there is no instance `{name}`"),
            }
        })
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
                cx.created(created, bytes);
            }
            router.take_outbox(|_, packet| cx.drop_packet(packet, DropReason::Unconnected));
            router.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
            // A panic may have freed some on its way.
            cx.dropped(router.take_held(), 0, DropReason::Panicked);
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

    /// Gives the instance with the least time its turn. `false` when none wants one.
    fn turn(&mut self, cx: &mut Context) -> bool {
        let Some(Reverse((pass, number))) = self.ready.pop() else { return false };
        self.pass = self.pass.max(pass);
        let Some(instance) = self.instances.get_mut(number).and_then(Option::as_mut) else { return true };
        instance.ready = false;
        if instance.state == State::Suspended {
            return true;
        }
        // Should this panic, all is counted anew.
        let was_stale = self.is_stale.replace(true);
        let (round, took) = instance.turn(&mut self.switch, &mut self.batch, cx);
        instance.charge(self.meter.of_turn(took));
        if instance.is_to_be_measured() {
            self.ended.extend(instance.measure());
        }
        let held = instance.held();
        let before = instance.counted.replace(held);
        self.held.set(self.held.get().wrapping_add(held).wrapping_sub(before));
        self.is_stale.set(was_stale);
        match round {
            Round::Busy => self.wake(number),
            Round::Until(time) => self.set_timer(number, Some(time)),
            Round::Idle | Round::Stopped => self.set_timer(number, None),
        }
        self.wake_woken();
        true
    }

    /// Packets of all ports of an instance together.
    pub(super) fn counts(&self, one: &Instance) -> PortCounts {
        let mut counts = PortCounts::default();
        for port in one.ports.iter().filter_map(|port| self.switch.port(*port)) {
            counts.received += port.counts.received;
            counts.sent += port.counts.sent;
            counts.lost += port.counts.lost;
        }
        counts
    }

    fn look(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        self.watched.clear();
        let busy = !self.ready.is_empty();
        for number in 0..self.instances.len() {
            let Some(instance) = &self.instances[number] else { continue };
            let Some(router) = instance.router.clone() else { continue };
            if router.watched().is_empty() || instance.state != State::Running {
                continue;
            }
            if !busy || self.turns.is_multiple_of(TURNS_A_LOOK) {
                drive::look_at_descriptors(&router, Duration::ZERO);
                if !router.tasks.is_empty() {
                    self.wake(number);
                }
            }
            self.watched.extend(router.watched().iter().map(|one| Rc::clone(&one.descriptor)));
        }
    }

    fn begin(&mut self, cx: &mut Context) {
        self.surroundings.clock.set(cx.now());
        self.settle(cx);
        if !self.awaited.is_empty() {
            self.is_stale.set(true);
            self.install_declared();
        }
    }
}

impl Node for Host {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        self.begin(cx);
        for packet in batch.drain() {
            self.switch.forward(input, packet, cx);
        }
        self.wake_woken();
        if self.sleeping && !self.ready.is_empty() {
            self.sleeping = false;
            cx.wake();
        }
    }

    fn poll(&mut self, _batch: &mut Batch, cx: &mut Context) -> Poll {
        self.begin(cx);
        self.meter.slept |= self.sleeping;
        self.expire(cx.now());
        for _ in 0..TURNS {
            if !self.turn(cx) {
                break;
            }
        }
        if self.surroundings.capabilities.sockets || self.surroundings.capabilities.files {
            self.look();
        }
        self.sleeping = self.ready.is_empty();
        match self.timers.first() {
            _ if !self.sleeping => Poll::Busy,
            _ if !self.watched.is_empty() => Poll::Idle,
            Some((time, _)) => Poll::Until(*time),
            // Nothing is done until packets come or a handler is called.
            None => Poll::Until(u64::MAX),
        }
    }

    fn shape(&self) -> Shape {
        shape_of("instances", self.devices, self.devices)
    }

    fn descriptors<'n>(&'n self, watch: &mut dyn FnMut(BorrowedFd<'n>)) {
        self.watched.iter().for_each(|descriptor| watch(descriptor.as_fd()));
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
        self.is_stale.set(true);
        for number in 0..self.instances.len() {
            if let Some(instance) = self.instances[number].as_mut() {
                self.ended.extend(instance.end());
                instance.state = State::Empty;
            }
        }
        self.switch.drain(cx);
        self.settle(cx);
    }
}

impl NodeState for Host {
    fn handlers(&self) -> Vec<Handler> {
        super::commands::handlers()
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
