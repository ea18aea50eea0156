//! A Click configuration as one node of a graph, and the function `click` of chain files.
//!
//! Its elements call each other inside the node, so that other nodes keep their boundary. Its devices are the node's
//! inputs and ways out: `FromDevice(lan)` takes what comes on the input of `lan`.

use std::any::Any;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use netbricks_core::buffer::{BATCH, Batch, Pool};
use netbricks_core::node::Handler;
use netbricks_core::{
    BuildError, CallError, Context, DropReason, Edge, InvalidSetting, Node, NodeQueue, NodeState, Output,
    Poll, Random, Registry, Section, Settings, Shape, Worker, read_text,
};

use crate::build;
use crate::classes::Known;
use crate::clock::Clock;
use crate::drive::{self, Round};
use crate::elements::device::{FromDevice, HostDevice, INLET};
use crate::handler_call::{HandlerCall, ROOT};
use crate::language::config::{self, Configuration, Source};
use crate::language::errors::Errors;
use crate::router::{Capabilities, Router, Surroundings};

netbricks_core::settings! {
    /// Settings of `click`.
    #[derive(Clone, Debug)]
    pub struct ClickSettings {
        /// A file with a Click configuration.
        pub config: Option<PathBuf> = unset, "path of a .click file, from the chain file's directory";
        /// A Click configuration, instead of a file.
        pub text: Option<String> = unset, "a Click configuration";
        /// Values of the configuration's parameters.
        pub parameters: Vec<String> = [], "list of NAME=VALUE";
        /// Capabilities of elements beyond the graph.
        pub capabilities: Vec<String> = [], "list of files, sockets and process";
        /// Whether each packet goes all its way before the next one starts, as in Click.
        ///
        /// Otherwise bursts go from element to element. Packets keep their order on each path and where paths meet.
        pub exact: Option<bool> = unset "true where captures drive the clock, else false", "true or false";
        /// Whether runs of elements, as an IP router's input and output paths, are done in one pass over a burst.
        ///
        /// The elements keep their names, counters and handlers, and packets are the same either way.
        pub fuse: bool = true, "true or false";
        /// Devices in the order of the node's inputs; else in the order of the elements that take their packets.
        pub inputs: Vec<String> = [], "list of the devices of FromDevice";
        /// Devices in the order of the node's ways out; else in the order in which elements send to them.
        ///
        /// Behind them are devices of `KernelTun` without an input, by which only answers to ARP requests leave.
        pub outputs: Vec<String> = [], "list of the devices of ToDevice";
        /// The most packets that all its elements hold together. A tenant has to give this key.
        pub frames: Option<usize> = unset "no limit", "whole number of packets, at least 256";
        /// The file's text, after it has been read.
        read: OnceLock<Arc<str>> = skipped;
    }
}

/// The most bytes of a configuration.
pub(crate) const LARGEST: u64 = 10 << 20;
/// Turns of tasks for each turn of the node.
const TASKS_A_TURN: usize = 64;
/// Pushes, pulls and calls of handlers in a turn, where the configuration may not end the process.
const MOST_WORK: u64 = 1 << 24;
/// Rounds of tasks that a batch may cause before others get their turn.
const ROUNDS_A_BATCH: usize = 8;
/// Descriptors are looked at once in so many turns while tasks are busy.
const TURNS_A_LOOK: u32 = 64;

impl ClickSettings {
    /// This configuration.
    pub fn of(text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::default() }
    }

    fn text(&self) -> Result<Arc<str>, InvalidSetting> {
        if let Some(read) = self.read.get() {
            return Ok(Arc::clone(read));
        }
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let text: Arc<str> = match (&self.config, &self.text) {
            (Some(_), Some(_)) => return refused("text", "stands beside `config`: give one of them".into()),
            (None, None) => return refused("config", "is missing: name a file, or give `text`".into()),
            (None, Some(text)) => text.as_str().into(),
            (Some(path), None) => match read_text(path, LARGEST) {
                Ok(text) => text.into(),
                Err(error) => {
                    return refused(
                        "config",
                        format!("names {}, which cannot be read: {error}", path.display()),
                    );
                }
            },
        };
        Ok(Arc::clone(self.read.get_or_init(|| text)))
    }

    fn capabilities(&self) -> Result<Capabilities, InvalidSetting> {
        granted(&self.capabilities)
    }

    fn parameters(&self) -> Result<Vec<(String, String)>, InvalidSetting> {
        let split = |one: &String| match one.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(InvalidSetting {
                key: "parameters",
                problem: format!("must be NAME=VALUE, found \"{one}\""),
            }),
        };
        self.parameters.iter().map(split).collect()
    }

    /// The flat configuration, or Click's messages.
    fn flat(&self) -> Result<Configuration, InvalidSetting> {
        let text = self.text()?;
        let errors = Errors::collected();
        let file = self.config.as_ref().map_or("config".into(), |path| path.display().to_string());
        let source = Source { text: &text, file: &file, is_expression: self.text.is_some() };
        let directory =
            self.config.as_ref().and_then(|path| path.parent()).map(Path::to_owned).unwrap_or_default();
        let library = |name: &str| read_text(&directory.join(name), LARGEST).ok();
        let flat = config::parse(&source, &self.parameters()?, &Known, &library, &errors);
        let key = if self.text.is_some() { "text" } else { "config" };
        match errors.count() {
            0 => Ok(flat),
            _ => Err(InvalidSetting { key, problem: format!("is wrong:\n{}", errors.lines().join("\n")) }),
        }
    }

    /// The configuration with its elements made, which has had no effect yet.
    fn router(&self, surroundings: Surroundings) -> Result<Rc<Router>, InvalidSetting> {
        let errors = Errors::collected();
        let flat = self.flat()?;
        let key = if self.text.is_some() { "text" } else { "config" };
        build::configured(flat, surroundings, &errors).ok_or_else(|| InvalidSetting {
            key,
            problem: format!("is wrong:\n{}", errors.lines().join("\n")),
        })
    }
}

/// The capabilities of a list of names, and devices.
pub(crate) fn granted(names: &[String]) -> Result<Capabilities, InvalidSetting> {
    let mut granted = Capabilities { devices: true, ..Capabilities::default() };
    for name in names {
        match name.as_str() {
            "files" => granted.files = true,
            "sockets" => granted.sockets = true,
            "process" => granted.process = true,
            _ => {
                let problem = format!("must be \"files\", \"sockets\" or \"process\", found \"{name}\"");
                return Err(InvalidSetting { key: "capabilities", problem });
            }
        }
    }
    Ok(granted)
}

impl Settings for ClickSettings {
    fn start_from(&mut self, directory: &Path) {
        self.config = self.config.take().map(|config| directory.join(config));
    }
    fn check(&self) -> Result<(), InvalidSetting> {
        self.capabilities()?;
        // A whole batch is held on its way.
        if let Some(frames) = self.frames.filter(|frames| *frames < BATCH) {
            return Err(InvalidSetting {
                key: "frames",
                problem: format!("must be at least {BATCH}, found {frames}"),
            });
        }
        self.flat().map(|_| ())
    }
}

/// The devices that a configuration names.
///
/// # Errors
/// Click's messages for what is wrong with the configuration.
pub fn devices(settings: &ClickSettings) -> Result<Devices, BuildError> {
    let pool = Pool::builder().frames(64).build().map_err(BuildError::new)?;
    let surroundings = Surroundings {
        pool,
        clock: Rc::new(Clock::set_from_outside(0)),
        capabilities: settings.capabilities().map_err(BuildError::new)?,
        chatter: Rc::new(|_| ()),
        seed: 1,
        secrets: Rc::new(RefCell::new(Random::of(&[b"click secrets"]))),
        reconfigures: false,
        exact: None,
        most_elements: usize::MAX,
        most_memory: usize::MAX,
        most_text: 1 << 26,
        most_automata: usize::MAX,
        most_work: u64::MAX,
        keeps_dropped: true,
    };
    Devices::of(&*settings.router(surroundings).map_err(BuildError::new)?)
}

/// Lines that elements say, kept for the node's report; the first ones, since a packet may cause each.
type Said = Rc<RefCell<Vec<String>>>;
const MOST_SAID: usize = 1_000;

/// The most devices of a configuration.
const MOST_DEVICES: usize = 250;

/// The edge of a device by its place: answers have an edge of their own.
pub(crate) fn edge_of(place: usize) -> Edge {
    match u8::try_from(place) {
        Ok(0) | Err(_) => Edge::OUT,
        Ok(place) => Edge(place.saturating_add(Edge::REPLY.0)),
    }
}

/// The shape of a node with these numbers of devices to take packets from and to give packets to.
pub(crate) fn shape_of(kind: &'static str, inputs: usize, outputs: usize) -> Shape {
    let output = |number: usize| match number {
        0 => Output { optional: true, ..Output::out() },
        _ => Output { edge: edge_of(number), name: number.to_string(), optional: true },
    };
    Shape {
        kind: kind.into(),
        inputs,
        outputs: (0..outputs).map(output).collect(),
        schedulable: true,
        keeps_packets: true,
        ..Shape::default()
    }
}

/// A Click configuration as a node.
struct ClickNode {
    router: Rc<Router>,
    clock: Rc<Clock>,
    said: Said,
    begun: bool,
    failed: bool,
    exact: Option<bool>,
    /// The element of each input.
    inlets: Vec<Option<usize>>,
    /// Places of elements' devices among the node's inputs and ways out.
    places: Vec<usize>,
    outputs: usize,
    /// The most packets that elements hold.
    most: Option<usize>,
    watched: Vec<Rc<OwnedFd>>,
    sleeping: bool,
    turns: u32,
    /// The configuration that this one replaces, until this one begins and takes over its state and packets.
    before: Option<Rc<Router>>,
    /// Whether a node that replaces this one is to have its packets, and has them.
    kept: bool,
    succeeded: bool,
}

/// Makes the node of a configuration.
///
/// # Errors
/// The configuration is wrong, or several workers would each run a copy of it.
pub fn node(settings: &ClickSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    if worker.group().workers() > 1 {
        return Err(BuildError::new(
            "a Click configuration runs on one worker: its elements share state without locks. Set `workers = 1`",
        ));
    }
    let clock = Rc::new(Clock::set_from_outside(0));
    let said = Said::default();
    let lines = Rc::clone(&said);
    let capabilities = settings.capabilities().map_err(BuildError::new)?;
    let surroundings = Surroundings {
        pool: worker.pool().clone(),
        clock: Rc::clone(&clock),
        capabilities,
        chatter: Rc::new(move |line| {
            let mut lines = lines.borrow_mut();
            if lines.len() < MOST_SAID {
                lines.push(line.to_owned());
            }
        }),
        // Elements show their random numbers in packets: these lead to no other function's.
        seed: worker.random("click").draw(),
        secrets: Rc::new(RefCell::new(worker.random("click secrets"))),
        reconfigures: false,
        exact: None,
        most_elements: usize::MAX,
        most_memory: usize::MAX,
        most_text: 1 << 26,
        most_automata: usize::MAX,
        // The worker has other functions: one without power over the process does not hold them up.
        most_work: if capabilities.process { u64::MAX } else { MOST_WORK },
        keeps_dropped: true,
    };
    let router = settings.router(surroundings).map_err(BuildError::new)?;
    ClickNode::over(router, clock, said, settings).map(|node| Box::new(node) as Box<dyn Node>)
}

/// The devices that a configuration takes packets from and gives packets to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Devices of `FromDevice`, in the order of the node's inputs.
    pub inputs: Vec<String>,
    /// Devices of `ToDevice`, in the order of the node's ways out.
    pub outputs: Vec<String>,
    /// Those that are to be made, with the host's stack at their other ends.
    pub hosts: Vec<HostDevice>,
}

impl Devices {
    pub(crate) fn of(router: &Router) -> Result<Self, BuildError> {
        let (mut inputs, mut hosts): (Vec<String>, Vec<HostDevice>) = Default::default();
        for from in (0..router.len()).filter_map(|id| router.element_as::<FromDevice>(id)) {
            if inputs.contains(&from.name) {
                return Err(BuildError::new(format!("two elements take the packets of `{}`", from.name)));
            }
            inputs.push(from.name.clone());
            hosts.extend(from.host.clone());
        }
        let devices = Self { inputs, outputs: router.devices(), hosts };
        if devices.inputs.len().max(devices.outputs.len()) > MOST_DEVICES {
            return Err(BuildError::new(format!("there can be at most {MOST_DEVICES} devices")));
        }
        Ok(devices)
    }
}

/// The devices in the order that settings ask for.
///
/// Those that settings may leave out follow them.
fn ordered(
    named: &[String],
    wanted: &[String],
    key: &str,
    may_miss: impl Fn(&str) -> bool,
) -> Result<Vec<String>, BuildError> {
    if wanted.is_empty() {
        return Ok(named.to_vec());
    }
    let mut all = wanted.to_vec();
    for name in named.iter().filter(|name| !wanted.contains(name)) {
        if !may_miss(name) {
            let problem = format!("`{key}` leaves out `{name}`, which the configuration names");
            return Err(BuildError::new(problem));
        }
        all.push(name.clone());
    }
    Ok(all)
}

impl ClickNode {
    fn over(
        router: Rc<Router>,
        clock: Rc<Clock>,
        said: Said,
        settings: &ClickSettings,
    ) -> Result<Self, BuildError> {
        router.set_fusing(settings.fuse);
        router.limit_held(settings.frames.map_or(u64::MAX, |frames| frames as u64));
        let devices = Devices::of(&router)?;
        let inputs = ordered(&devices.inputs, &settings.inputs, "inputs", |_| false)?;
        let answering = |name: &str| router.is_answering(name);
        let outputs = ordered(&devices.outputs, &settings.outputs, "outputs", answering)?;
        let place = |name: &String| outputs.iter().position(|known| known == name).unwrap_or(0);
        let places = devices.outputs.iter().map(place).collect();
        let taker = |name: &String| {
            (0..router.len())
                .find(|id| router.element_as::<FromDevice>(*id).is_some_and(|from| from.name == *name))
        };
        let mut inlets: Vec<Option<usize>> = inputs.iter().map(taker).collect();
        inlets.resize(inlets.len().max(1), None);
        // Each input goes on by a way out of its number, also where no packets leave by it.
        let outputs = outputs.len().max(inlets.len());
        Ok(Self {
            router,
            clock,
            said,
            begun: false,
            failed: false,
            exact: settings.exact,
            inlets,
            places,
            outputs,
            most: settings.frames,
            watched: Vec::new(),
            sleeping: false,
            turns: 0,
            before: None,
            kept: false,
            succeeded: false,
        })
    }

    /// Initialises the elements at the node's first turn, and moves their clock on.
    fn begin(&mut self, cx: &mut Context) {
        self.clock.set(cx.now());
        if !self.begun {
            self.begun = true;
            let errors = Errors::collected();
            self.failed = !self.router.initialize(&errors);
            if let Some(before) = self.before.take() {
                self.take_over(&before, cx);
            }
            let lines = errors.lines();
            if self.failed {
                cx.fail(format!("its Click configuration cannot start:\n{}", lines.join("\n")));
            }
            self.said.borrow_mut().extend(lines);
        }
    }

    /// Takes over what the elements of the configuration before hold, by name and class, and ends the others.
    fn take_over(&mut self, before: &Router, cx: &mut Context) {
        let held = before.held();
        if !self.failed {
            // Packets go over with the state: all count here, until it is known which ended there.
            self.router.arrived(held);
            self.router.take_state(before);
        }
        before.cleanup();
        if self.failed {
            // What elements held has ended with them.
            before.take_held();
        } else {
            self.router.count_left(held.saturating_sub(before.take_held()));
        }
        let (created, bytes) = before.take_created();
        if created > 0 {
            cx.keeping().created(created, bytes);
        }
        before.take_outbox(|_, packet| cx.drop_packet(packet, DropReason::Drained));
        before.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
    }

    /// Passes on what left the elements, and counts what they made and what ended.
    ///
    /// Packets for the first way out go on in the node's own batch, where there is one and all of them fit. Others leave in
    /// batches of their own.
    fn settle(&mut self, batch: Option<&mut Batch>, cx: &mut Context) {
        let (created, bytes) = self.router.take_created();
        if created > 0 {
            cx.keeping().created(created, bytes);
        }
        let places = &self.places;
        let place = |device: usize| places.get(device).copied().unwrap_or(0);
        let mut own = batch.filter(|batch| batch.is_empty() && self.router.sent() <= BATCH);
        self.router.take_sent(|device, sent| match (place(device), &mut own) {
            // There is room for all that was sent.
            (0, Some(own)) => {
                own.append(sent);
            }
            (place, _) => cx.emit_batch(edge_of(place), sent),
        });
        self.router.take_dropped(|packet, reason| cx.drop_packet(packet, reason));
    }

    fn run(&mut self, rounds: usize) -> Round {
        let mut round = Round::Busy;
        for _ in 0..rounds {
            self.router.begin_turn();
            round = drive::round(&self.router, TASKS_A_TURN);
            if round != Round::Busy {
                break;
            }
        }
        round
    }

    fn look(&mut self, busy: bool) {
        self.turns = self.turns.wrapping_add(1);
        if self.router.watched().is_empty() {
            self.watched.clear();
            return;
        }
        if !busy || self.turns.is_multiple_of(TURNS_A_LOOK) {
            drive::look_at_descriptors(&self.router, Duration::ZERO);
        }
        self.watched.clear();
        self.watched.extend(self.router.watched().iter().map(|one| Rc::clone(&one.descriptor)));
    }
}

impl Node for ClickNode {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        if self.succeeded {
            cx.drop_batch(batch, DropReason::Drained);
            return;
        }
        self.begin(cx);
        if self.failed {
            cx.drop_batch(batch, DropReason::Quarantined);
            return;
        }
        match self.inlets.get(input).copied().flatten() {
            Some(id) => {
                let room = usize::try_from(self.router.room_for_packets()).unwrap_or(usize::MAX);
                for packet in batch.drain_from(room.min(batch.len())) {
                    cx.drop_packet(packet, DropReason::QueueFull);
                }
                self.router.arrived(batch.len() as u64);
                self.router.begin_turn();
                let router = Rc::clone(&self.router);
                let (element, at) = (router.element(id), router.at(id));
                if self.exact.unwrap_or_else(|| cx.follows_arrivals()) {
                    for packet in batch.drain() {
                        element.push(at, INLET, packet);
                        // What the packet caused comes before the next one.
                        self.run(ROUNDS_A_BATCH);
                    }
                } else {
                    element.push_batch(at, INLET, batch);
                }
            }
            None => cx.drop_batch(batch, DropReason::Unconnected),
        }
        let round = self.run(ROUNDS_A_BATCH);
        self.settle(Some(batch), cx);
        if self.sleeping && round != Round::Idle {
            self.sleeping = false;
            cx.wake();
        }
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.begin(cx);
        if self.failed {
            return Poll::Done;
        }
        let round = self.run(1);
        self.look(round == Round::Busy);
        self.settle(Some(batch), cx);
        self.sleeping = !matches!(round, Round::Busy);
        match round {
            Round::Busy => Poll::Busy,
            Round::Stopped => Poll::Done,
            // A node that waits for descriptors has no timer.
            Round::Until(_) if !self.watched.is_empty() => Poll::Busy,
            Round::Until(time) => Poll::Until(time),
            Round::Idle if !self.watched.is_empty() => Poll::Idle,
            // It sleeps until packets come, or a handler has it do something.
            Round::Idle => Poll::Until(u64::MAX),
        }
    }

    fn shape(&self) -> Shape {
        Shape { holds: self.most, ..shape_of("click", self.inlets.len(), self.outputs) }
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

impl NodeQueue for ClickNode {
    fn held(&self) -> u64 {
        if self.succeeded {
            return 0;
        }
        let before = self.before.as_ref().map_or(0, |before| before.held_as_counted());
        before + self.router.held_as_counted()
    }
    fn keep_for_successor(&mut self, keep: bool) -> bool {
        self.kept = keep && self.begun && !self.failed;
        self.kept
    }
    fn predecessor(&mut self) -> Option<&mut dyn Any> {
        self.kept.then_some(self as &mut dyn Any)
    }
    fn succeed(&mut self, before: &mut dyn Any) -> u64 {
        let Some(before) = before.downcast_mut::<Self>() else { return 0 };
        let packets = before.held();
        self.router.set_predecessor(&before.router.configuration());
        self.before = Some(Rc::clone(&before.router));
        before.succeeded = true;
        packets
    }
    fn drain(&mut self, _batch: &mut Batch, cx: &mut Context) {
        if self.kept || self.succeeded {
            return;
        }
        if let Some(before) = self.before.take() {
            self.failed = true;
            self.take_over(&before, cx);
        }
        // Files are written out, and what queues hold ends as drained.
        self.router.cleanup();
        self.failed = true;
        self.begun = true;
        self.settle(None, cx);
    }
}

impl NodeState for ClickNode {
    fn handlers(&self) -> Vec<Handler> {
        let mut all = Vec::new();
        for id in (0..self.router.len()).chain([ROOT]) {
            let prefix = if id == ROOT { String::new() } else { format!("{}.", self.router.name(id)) };
            for handler in self.router.all_handlers(id) {
                let name = format!("{prefix}{}", handler.name);
                if handler.is_visibly_readable() {
                    let mut read = Handler::read(&name, "Click's read handler.");
                    if handler.read_parameter {
                        read = read.argument("PARAMETER");
                    }
                    all.push(read);
                }
                if handler.is_visibly_writable() && id != ROOT {
                    all.push(Handler::write(&name, "Click's write handler.").argument("VALUE"));
                }
            }
        }
        all
    }

    /// A name that can be read and written is written where there is a value.
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        let refused = |problem: String| CallError::Argument { name: name.to_owned(), problem };
        let mut call = HandlerCall::parse(name, self.router.at(ROOT)).map_err(refused)?;
        let handler = self.router.handler(call.element, &call.name);
        let (reads, writes) = handler
            .map_or((false, false), |handler| (handler.is_visibly_readable(), handler.is_visibly_writable()));
        if !reads && !writes {
            let known =
                self.handlers().into_iter().map(|handler| handler.name).collect::<Vec<_>>().join(", ");
            return Err(CallError::Unknown { name: name.to_owned(), known });
        }
        argument.trim().clone_into(&mut call.value);
        self.router.begin_turn();
        let answer = if writes && (!reads || !call.value.is_empty()) {
            call.write(&self.router)
        } else {
            call.read(&self.router)
        };
        answer.map_err(refused)
    }

    fn report(&self) -> Vec<Section> {
        let rows: Vec<Vec<String>> = self.said.borrow().iter().map(|line| vec![line.clone()]).collect();
        vec![Section { title: "chatter".into(), columns: vec!["line".into()], rows, ..Section::default() }]
    }
}

/// Adds the function `click`.
pub fn register(registry: &mut Registry) {
    registry.add("click", "Runs a Click configuration.", node).examples("click", &[EXAMPLE]);
}

#[cfg(test)]
mod tests;

const EXAMPLE: &str = "text = \"FromDevice(lan) -> Counter -> ToDevice(lan)\"";
