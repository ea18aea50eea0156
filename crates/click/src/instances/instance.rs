//! One instance: a Click configuration with virtual ports, quotas and a weight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use netbricks_core::buffer::{Batch, HEADROOM};
use netbricks_core::graph::contain;
use netbricks_core::{Context, DropReason};

use crate::build;
use crate::drive::{self, Round};
use crate::elements::device::{FromDevice, INLET};
use crate::language::config::Source;
use crate::language::errors::Errors;
use crate::router::{Router, Surroundings};

use super::declared::Awaited;
use super::switch::Switch;

/// Packets that an instance takes from each ring in one turn.
const BURST: usize = 32;
/// Turns of tasks in one turn of an instance: some, so that its neighbours wait for microseconds.
const TASKS: usize = 8;
/// The most bytes of a configuration, and of what its variables and compound elements expand to.
pub(super) const LARGEST: usize = 1 << 20;
/// Letters of a line that are kept.
const LONGEST_LINE: usize = 400;
/// Messages about a configuration that are told.
const MOST_TOLD: usize = 100;
/// Turns between two looks at the memory of an instance that has a quota of it.
const TURNS_A_LOOK: u32 = 64;
/// Lines that an instance has said and that are kept.
const MOST_SAID: usize = 64;

/// Quotas of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quotas {
    /// Packets that its elements hold at most before they may create no more.
    pub frames: u64,
    /// Its share of the processor beside that of others.
    pub weight: u32,
    /// Bytes that its elements, their tables and the packets that they hold may take.
    pub memory: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { frames: 4_096, weight: 1_024, memory: None }
    }
}

/// The state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no configuration: what comes is dropped.
    Empty,
    /// It waits for the turn in which it gets the configuration of its file. What comes waits, too.
    Starting,
    Running,
    Suspended,
    /// Its configuration asked to stop.
    Stopped,
    /// It panicked, or did too much in one turn, with this message.
    Failed(String),
    /// The configuration that its file names was refused with these messages.
    Refused(String),
    /// It took more memory than its quota, as this message says.
    OverQuota(String),
}

impl State {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
            Self::Refused(_) => "refused",
            Self::OverQuota(_) => "over-quota",
        }
    }
    /// Why it does not run, where that is an error.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(message) | Self::Refused(message) | Self::OverQuota(message) => Some(message),
            _ => None,
        }
    }
}

/// An instance.
pub(super) struct Instance {
    pub name: String,
    pub state: State,
    /// Its ports, by their numbers in the switch.
    pub ports: Vec<usize>,
    pub quotas: Quotas,
    /// The tenant that may configure it.
    pub owner: Option<String>,
    /// While it is suspended: whether the operator has done that.
    pub operator_suspended: bool,
    pub router: Option<Rc<Router>>,
    /// Element that takes the packets of each port.
    inlets: Vec<Option<usize>>,
    /// Port of each device that elements send to.
    places: Vec<usize>,
    /// Time that it had, over its weight: the instance that has the least goes next.
    pub pass: u64,
    pub ready: bool,
    /// Packets that its elements held when that was counted last.
    pub counted: Cell<u64>,
    /// Time that it had (ns).
    pub used: u64,
    pub timer: Option<u64>,
    /// The configuration that it waits for.
    pub awaited: Option<Awaited>,
    /// Turns until the next look at its memory.
    looks: u32,
    /// Packets that ended in it, without those that its elements now count.
    dropped: Cell<u64>,
    /// Packets that its elements made, without those that the graph does not know of yet.
    created: Cell<u64>,
    pub said: Rc<RefCell<Vec<String>>>,
}

/// Messages as one text; of very many the first.
pub(super) fn told(lines: &[String]) -> String {
    let mut text = lines.iter().take(MOST_TOLD).map(String::as_str).collect::<Vec<_>>().join("\n");
    if lines.len() > MOST_TOLD {
        text += &format!("\n… and {} more lines", lines.len() - MOST_TOLD);
    }
    text
}

/// Says that a turn of a configuration did more than it may.
fn too_much(router: &Router) -> String {
    format!(
        "it did more in one turn than {} pushes, pulls and calls of handlers (a handler counts as 8): packets go in a \
         cycle, or a script asks for too much without a wait",
        router.surroundings().most_work
    )
}

/// Whether a configuration is short enough to be read.
pub(super) fn check_length(text: &str) -> Result<(), String> {
    if text.len() > LARGEST {
        return Err(format!("the configuration has {} bytes: there can be {LARGEST}", text.len()));
    }
    Ok(())
}

/// Bytes that a packet's frame takes.
fn frame_bytes(router: &Router) -> usize {
    (router.surroundings().pool.small_packet() + HEADROOM).next_power_of_two()
}

/// The number of a port that a device's name means: `0`, `eth0`, `vif0`.
fn port_number(name: &str) -> Option<usize> {
    let digits = name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    if digits.is_empty() || name.len() - digits.len() > 8 { None } else { digits.parse().ok() }
}

impl Instance {
    /// An instance without a configuration, or one that waits for it.
    pub(super) fn new(name: String, quotas: Quotas, awaited: Option<Awaited>) -> Self {
        Self {
            name,
            state: if awaited.is_some() { State::Starting } else { State::Empty },
            awaited,
            ports: Vec::new(),
            quotas,
            owner: None,
            operator_suspended: false,
            router: None,
            inlets: Vec::new(),
            places: Vec::new(),
            pass: 0,
            ready: false,
            counted: Cell::new(0),
            used: 0,
            timer: None,
            looks: TURNS_A_LOOK,
            dropped: Cell::new(0),
            created: Cell::new(0),
            said: Rc::default(),
        }
    }

    /// Gives it a configuration, which takes over the state of the one before. An empty text takes that away.
    ///
    /// Returns the configuration before, which has ended.
    ///
    /// # Errors
    /// Click's messages; the configuration before goes on.
    pub(super) fn install(
        &mut self,
        text: &str,
        parameters: &[(String, String)],
        surroundings: &Surroundings,
    ) -> Result<Option<Rc<Router>>, String> {
        check_length(text)?;
        if text.trim().is_empty() {
            let before = self.end();
            self.state = State::Empty;
            return Ok(before);
        }
        let (said, lost) = (Rc::<RefCell<Vec<String>>>::default(), Cell::new(0_u64));
        let lines = Rc::clone(&said);
        let surroundings = Surroundings {
            chatter: Rc::new(move |line| {
                let mut said = lines.borrow_mut();
                if said.len() < MOST_SAID {
                    said.push(line.chars().take(LONGEST_LINE).collect());
                } else if let Some(last) = said.last_mut() {
                    lost.set(lost.get() + 1);
                    *last = format!("… and {} more lines", lost.get());
                }
            }),
            most_memory: self
                .quotas
                .memory
                .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            ..surroundings.clone()
        };
        let errors = Errors::collected();
        let source = Source { text, file: &self.name, is_expression: false };
        let made = contain(|| build::build(&source, parameters, surroundings, &errors))
            .map_err(|caught| format!("a panic while it was made: {}", caught.message))?;
        let router = made.ok_or_else(|| told(&errors.lines()))?;
        if router.is_spent() {
            let _ = contain(|| router.cleanup());
            return Err(too_much(&router));
        }
        let (inlets, places) = match self.connect(&router) {
            Ok(connected) => connected,
            Err(problem) => {
                let _ = contain(|| router.cleanup());
                return Err(problem);
            }
        };
        if let Err(problem) = self.limit(&router) {
            let _ = contain(|| router.cleanup());
            return Err(problem);
        }
        let held = self.router.as_ref().map_or(0, |before| before.held());
        if let Some(before) = &self.router {
            // Packets go over with the state: all count here, until it is known which ended there.
            router.arrived(held);
            let taken = contain(|| router.take_state(before));
            if let Err(caught) = taken {
                return Err(format!("a panic while it took over: {}", caught.message));
            }
        }
        let was_suspended = self.state == State::Suspended;
        let before = self.hand_over();
        if let Some(before) = &before {
            router.count_left(held.saturating_sub(before.take_held()));
        }
        (self.inlets, self.places) = (inlets, places);
        self.router = Some(router);
        self.said = said;
        self.state = if was_suspended { State::Suspended } else { State::Running };
        self.timer = None;
        Ok(before)
    }

    /// Limits the packets that elements hold and the growth of their tables, as the quotas allow.
    ///
    /// # Errors
    /// The elements take more memory than the quota, without any packet.
    fn limit(&self, router: &Router) -> Result<(), String> {
        let Some(memory) = self.quotas.memory else {
            router.limit_held(self.quotas.frames);
            return Ok(());
        };
        let taken = router.memory();
        let frame = frame_bytes(router);
        let left = usize::try_from(memory).unwrap_or(usize::MAX).saturating_sub(taken);
        if left < frame {
            let most = (0..router.len()).max_by_key(|id| router.memory_of(*id)).unwrap_or(0);
            return Err(format!(
                "the elements of instance `{}` take {taken} bytes, {} of them `{}`, and a packet {frame}: `memory` \
                 allows {memory}. Give their tables a smaller CAPACITY, or the instance more `memory`",
                self.name,
                router.memory_of(most),
                router.name(most),
            ));
        }
        router.limit_held(self.quotas.frames.min((left / frame) as u64));
        let held = usize::try_from(router.held()).unwrap_or(usize::MAX).saturating_mul(frame);
        router.room().set(left.saturating_sub(held));
        Ok(())
    }

    /// Whether its rings keep what comes until it runs.
    pub(super) fn keeps_waiting(&self) -> bool {
        matches!(self.state, State::Suspended | State::Starting)
    }

    /// Whether it is time to look at its memory again.
    pub(super) fn is_to_be_measured(&mut self) -> bool {
        if self.quotas.memory.is_none() || self.router.is_none() {
            return false;
        }
        self.looks -= 1;
        if self.looks == 0 {
            self.looks = TURNS_A_LOOK;
        }
        self.looks == TURNS_A_LOOK
    }

    /// Ends its configuration, which is returned, where that takes more memory than the quota.
    pub(super) fn measure(&mut self) -> Option<Rc<Router>> {
        self.quotas.memory?;
        let router = self.router.as_ref()?;
        let problem = self.limit(router).err()?;
        self.state = State::OverQuota(problem);
        self.end()
    }

    /// Bytes that its elements, their tables and their packets take.
    pub(super) fn memory(&self) -> u64 {
        let of = |router: &Rc<Router>| {
            let packets = router.held().saturating_mul(frame_bytes(router) as u64);
            packets.saturating_add(router.memory() as u64)
        };
        self.router.as_ref().map_or(0, of)
    }

    /// Which elements take the packets of which ports.
    fn connect(&self, router: &Router) -> Result<(Vec<Option<usize>>, Vec<usize>), String> {
        let count = self.ports.len();
        let place = |name: &str| match port_number(name) {
            Some(number) if number < count => Ok(number),
            _ => Err(format!(
                "device `{name}`: instance `{}` has ports 0 to {}",
                self.name,
                count.saturating_sub(1)
            )),
        };
        let mut inlets = vec![None; count];
        for id in 0..router.len() {
            let Some(from) = router.element_as::<FromDevice>(id) else { continue };
            let number = place(&from.name)?;
            if inlets[number].replace(id).is_some() {
                return Err(format!("two elements take the packets of port {number}"));
            }
        }
        let places = router.devices().iter().map(|name| place(name)).collect::<Result<_, _>>()?;
        Ok((inlets, places))
    }

    /// Ends its configuration, which is returned, where it did more in this turn than it may.
    pub(super) fn end_if_spent(&mut self) -> Option<Rc<Router>> {
        let router = self.router.as_ref().filter(|router| router.is_spent())?;
        self.state = State::Failed(too_much(router));
        self.end()
    }

    /// Packets that ended in it since it was created: in its elements, or because it had none to take them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get() + self.router.as_ref().map_or(0, |router| router.drops())
    }
    /// Packets that its elements made since it was created.
    pub(super) fn created(&self) -> u64 {
        self.created.get() + self.router.as_ref().map_or(0, |router| router.created())
    }
    fn count_dropped(&self, packets: u64) {
        self.dropped.set(self.dropped.get() + packets);
    }

    /// Ends its configuration, and returns it: what it held is dropped.
    pub(super) fn end(&mut self) -> Option<Rc<Router>> {
        let router = self.hand_over();
        // A panic may have freed some on its way.
        self.count_dropped(router.as_ref().map_or(0, |router| router.held()));
        router
    }

    /// Ends its configuration, and returns it, with the number of the packets that another one has taken over.
    fn hand_over(&mut self) -> Option<Rc<Router>> {
        let router = self.router.take();
        if let Some(router) = &router {
            let _ = contain(|| router.cleanup());
            self.count_dropped(router.drops() + router.sent() as u64);
            self.created.set(self.created.get() + router.created());
        }
        self.inlets.clear();
        self.places.clear();
        router
    }

    /// Passes on what left the elements, and counts what they made and what ended.
    pub(super) fn settle(&self, switch: &mut Switch, cx: &mut Context) {
        let Some(router) = &self.router else { return };
        let (created, bytes) = router.take_created();
        if created > 0 {
            self.created.set(self.created.get() + created);
            cx.keeping().created(created, bytes);
        }
        router.take_outbox(|device, packet| {
            match self.places.get(device).and_then(|place| self.ports.get(*place)) {
                Some(port) => switch.forward(*port, packet, cx),
                None => {
                    self.count_dropped(1);
                    cx.drop_packet(packet, DropReason::Unconnected);
                }
            }
        });
        router.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
    }

    /// Packets that its elements hold, as the graph counts them.
    pub(super) fn held(&self) -> u64 {
        self.router.as_ref().map_or(0, |router| router.held_as_counted())
    }

    /// Has it pay for the time of a turn (ns).
    pub(super) fn charge(&mut self, time: u64) {
        self.used += time;
        self.pass += time * 1024 / u64::from(self.quotas.weight.max(1));
    }

    /// A turn: packets of its rings, its tasks and its timers. Yields how long it took (ns), too.
    pub(super) fn turn(&mut self, switch: &mut Switch, batch: &mut Batch, cx: &mut Context) -> (Round, u64) {
        let begin = Instant::now();
        let round = self.work(switch, batch, cx);
        self.settle(switch, cx);
        let used = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let waits =
            self.ports.iter().any(|port| switch.port(*port).is_some_and(|port| !port.ring.is_empty()));
        // One that ended drops what waits; one that is suspended keeps it.
        (if waits && !self.keeps_waiting() { Round::Busy } else { round }, used)
    }

    fn work(&mut self, switch: &mut Switch, batch: &mut Batch, cx: &mut Context) -> Round {
        let running = self.state == State::Running;
        if let Some(router) = &self.router {
            router.begin_turn();
        }
        for (number, port) in self.ports.iter().enumerate() {
            switch.take_from_ring(*port, batch, BURST);
            if batch.is_empty() {
                continue;
            }
            match (&self.router, self.inlets.get(number).copied().flatten()) {
                (Some(router), Some(_)) if running && router.is_full() => {
                    self.count_dropped(batch.len() as u64);
                    cx.drop_batch(batch, DropReason::QueueFull);
                }
                (Some(router), Some(id)) if running => {
                    router.arrived(batch.len() as u64);
                    let (element, at) = (router.element(id), router.at(id));
                    let exact = router.surroundings().exact.unwrap_or_else(|| cx.follows_arrivals());
                    let pushed = contain(|| {
                        if exact {
                            batch.drain().for_each(|packet| {
                                element.push(at, INLET, packet);
                                drive::round(router, TASKS);
                            });
                        } else {
                            element.push_batch(at, INLET, batch);
                        }
                    });
                    if let Err(caught) = pushed {
                        return self.fail(caught.message, batch, cx);
                    }
                }
                _ => {
                    self.count_dropped(batch.len() as u64);
                    cx.drop_batch(batch, DropReason::Unconnected);
                }
            }
        }
        let Some(router) = self.router.clone().filter(|_| running) else { return Round::Idle };
        match contain(|| drive::round(&router, TASKS)) {
            Ok(Round::Stopped) => {
                self.state = State::Stopped;
                Round::Idle
            }
            Ok(round) => round,
            Err(caught) => self.fail(caught.message, batch, cx),
        }
    }

    /// After a panic, its configuration is gone; others go on.
    fn fail(&mut self, message: String, batch: &mut Batch, cx: &mut Context) -> Round {
        batch.clear();
        if let Some(router) = &self.router {
            let _ = contain(|| router.cleanup());
            let (created, bytes) = router.take_created();
            cx.keeping().created(created, bytes);
            self.created.set(self.created.get() + created);
            self.count_dropped(router.drops() + router.sent() as u64 + router.held());
            router.take_outbox(|_, packet| cx.drop_packet(packet, DropReason::Panicked));
            router.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
            // What the panic freed on its way is counted without its bytes.
            cx.keeping().dropped(router.held(), 0, DropReason::Panicked);
        }
        self.router = None;
        self.state = State::Failed(message);
        Round::Idle
    }
}
