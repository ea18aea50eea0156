//! The graph: nodes, numbered edges, and the run of a batch from its source to the nodes that end it.
//!
//! A worklist follows edges instead of recursion, since graphs have cycles. A ready list holds schedulable
//! nodes, so that a thousand idle nodes cost no scan.

mod adopt;
mod asked;
mod build;
mod contain;
mod drain;
mod export;
mod handoff;
mod moves;
mod observed;
mod quarantine;
mod queues;
mod run;
mod shuffles;
mod tables;
mod takeover;
mod tenants;
mod timers;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_buffer::{Batch, Pool};

pub use build::{GraphBuilder, GraphError, NodeId};
pub use contain::{AuthorCall, Caught, Panic, contain, observe_panics};
pub use export::{DescribedEdge, DescribedNode, Description};
pub use quarantine::RestartPolicy;
pub use shuffles::ShuffleEnd;
pub use tables::TableStatus;
pub use takeover::TakenOver;

use asked::{Panics, note};
use moves::Moves;

use crate::context::{Context, OwnedContext};
use crate::counters::NodeCounters;
use crate::node::{CallError, Node, Output, Role, StateImage};
use crate::recorder::Record;
use crate::registry::Blueprint;
use crate::tenants::TenantPolicy;
use crate::tenants::scheduler::Scheduler;
use crate::worker::Worker;

/// An input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    node: usize,
    input: usize,
}

/// A node in its graph.
struct Slot {
    name: String,
    owner: u16,
    /// A question borrows the node. Code that runs the node has exclusive access to the graph.
    node: RefCell<Box<dyn Node>>,
    /// The node's answers when it was added.
    role: Role,
    kind: String,
    inputs: usize,
    schedulable: bool,
    keeps: bool,
    /// The node has events; its turn comes when one is due.
    timed: bool,
    /// The node's state waits to be told of the end.
    has_end: bool,
    outputs: Vec<Output>,
    /// The target of each edge, by number.
    targets: Vec<Option<Target>>,
    /// The target of `OUT`, the edge that every batch takes.
    out: Option<Target>,
    counters: NodeCounters,
    /// Calls that only ask, in which the node panicked.
    unanswered: Cell<u64>,
    /// For a source: it panicked when asked how many packets it holds. Its last arrivals are not counted yet.
    uncertain: bool,
    /// Serial number of the waiting batch that takes more packets for this node.
    open: Option<u64>,
    /// Polls in a row that panicked.
    strikes: u8,
    /// The node panicked too often, and gets no more turns.
    stopped: bool,
    /// The node wants no turn until it asks for one.
    asleep: bool,
    /// Its panics, and whether it is in quarantine for them.
    panicked: quarantine::Panicked,
    quarantined: bool,
    /// The node brings packets in, from outside or from other workers.
    source: bool,
    /// For a source: it has ended.
    ended: bool,
    /// For a shuffle: its bit, and whether it was told that no more packets come.
    handoff: u64,
    closed: bool,
    /// The bits of the shuffles that the node's packets may reach.
    feeds: u64,
    /// For a queue: how many packets it has room for.
    queue: Option<usize>,
    /// The node takes packets one by one.
    offers: bool,
    /// Most packets that a poll may bring: the room of the shortest queue that they may reach.
    most: usize,
    /// The bits of the queues that the node's packets may reach and that do not lead back to it.
    fills: u64,
    /// For a shuffle: itself and all shuffles that lead to the same state. Flows move behind all of them
    /// together.
    company: Vec<usize>,
    /// The first node with the same state, which may be this node.
    state: usize,
    shares_state: Option<usize>,
    /// Whether this node is that first node, which is asked for the state.
    speaks: bool,
    /// The node was told that the graph is taken down, and keeps nothing.
    told: bool,
    /// The node goes on from the graph before this one; or, in that graph, it went on to the next.
    kept: bool,
    /// The node of the graph before this one whose state goes on here, where its name differs.
    succeeds: Option<String>,
    /// The state that handlers wrote does not go on here.
    undoes_writes: bool,
    origin: Option<(Blueprint, Worker)>,
}

impl Slot {
    /// A node that has not been asked anything yet.
    fn new(name: String, node: Box<dyn Node>, origin: Option<(Blueprint, Worker)>) -> Self {
        Self {
            name,
            owner: 0,
            role: Role::Function,
            kind: String::new(),
            inputs: 0,
            schedulable: false,
            keeps: false,
            timed: false,
            has_end: false,
            outputs: Vec::new(),
            targets: Vec::new(),
            out: None,
            counters: NodeCounters::default(),
            unanswered: Cell::new(0),
            uncertain: false,
            open: None,
            strikes: 0,
            stopped: false,
            asleep: false,
            panicked: quarantine::Panicked::default(),
            quarantined: false,
            source: false,
            ended: false,
            handoff: 0,
            closed: false,
            feeds: 0,
            queue: None,
            offers: false,
            most: netbricks_buffer::BATCH,
            fills: 0,
            company: Vec::new(),
            state: 0,
            shares_state: None,
            speaks: true,
            told: false,
            kept: false,
            succeeds: None,
            undoes_writes: false,
            origin,
            node: RefCell::new(node),
        }
    }

    /// Asks the node for its properties, and answers the fault in them, if there is one.
    ///
    /// The node is in its slot by then: where it panics, its drop is contained separately.
    fn describe(&mut self) -> Result<Option<&'static str>, Caught> {
        contain(|| {
            let node = self.node.get_mut();
            let (handoff, keeper) = (node.as_handoff().is_some(), node.as_queue().is_some());
            let shape = node.shape();
            self.timed = node.schedule().is_some();
            self.role = shape.role;
            self.kind = shape.kind.into_owned();
            self.inputs = shape.inputs;
            self.outputs = shape.outputs;
            self.schedulable = shape.schedulable;
            self.keeps = shape.keeps_packets;
            self.queue = shape.queue;
            self.offers = shape.takes_packets;
            self.has_end = shape.has_end;
            self.shares_state = shape.shares_state;
            self.source = handoff || self.role == Role::Receive && self.schedulable;
            self.handoff = u64::from(handoff);
            if self.keeps && self.has_end {
                return Some(
                    "a node that keeps packets is not told of its end: put what waits for it (`at_the_end`) into a \
                     node of its own",
                );
            }
            match (self.keeps, keeper) {
                (true, false) => Some("its shape says that it keeps packets: let `as_queue` answer them"),
                (false, true) if self.role != Role::Transmit => {
                    Some("it has a queue that its shape does not tell of: say `keeps_packets: true` there")
                }
                _ => None,
            }
        })
    }

    /// Finds the first node with the same state; this node is node `number`, behind the nodes `before`.
    ///
    /// Only the first node with a state has that state's events and is told of its end.
    fn join(&mut self, number: usize, before: &[Self]) {
        let same = |other: &Self| self.shares_state.is_some() && other.shares_state == self.shares_state;
        self.state = before.iter().position(same).unwrap_or(number);
        self.speaks = self.state == number;
        self.timed &= self.speaks;
        self.has_end &= self.speaks;
        self.schedulable |= self.timed;
    }
}

/// A batch that waits for its turn at an input.
struct Waiting {
    target: Target,
    hops: u32,
    batch: Batch,
}

/// The packets that the running node was given, for the correction of counters after a panic.
#[derive(Clone, Copy, Default)]
struct Running {
    hops: u32,
    /// Packets that entered the node with this call, and those that it held before.
    entered: u64,
    entered_bytes: u64,
    held: u64,
    polled: bool,
}

/// Shows another thread which node of a graph was called last.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    called: Arc<AtomicUsize>,
    names: Vec<String>,
}

impl Whereabouts {
    /// The node's name.
    pub fn node(&self) -> Option<String> {
        self.names.get(self.called.load(Ordering::Relaxed)).cloned()
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A schedulable node had this many packets, or other work was done.
    Moved(u64),
    /// Every schedulable node was asked and had nothing.
    ///
    /// Ask again when the idle policy says, or at this time (ns).
    Idle(Option<u64>),
    /// Every source has ended and nothing waits.
    Done,
}

/// The sums of a graph's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets from outside.
    pub received: crate::Count,
    /// Packets made by nodes.
    pub created: crate::Count,
    /// Packets given to the outside.
    pub sent: crate::Count,
    /// Packets that were dropped or consumed, by reason.
    pub drops: crate::Drops,
    /// Packets that nodes, edges and queues hold.
    pub held: u64,
    /// Packets that went to other workers.
    pub handoff_out: crate::Count,
    /// Packets that came from other workers.
    pub handoff_in: crate::Count,
}

impl Totals {
    /// Whether received + created = sent + dropped + consumed + held.
    ///
    /// Packets that one worker's graph takes over from others count as received, and packets that it gives to
    /// them as sent.
    pub fn is_conserved(&self) -> bool {
        self.received.packets + self.created.packets + self.handoff_in.packets
            == self.sent.packets + self.drops.total().packets + self.held + self.handoff_out.packets
    }
    /// For all workers together: packets on their way between two workers.
    pub fn handoff(&self) -> u64 {
        self.handoff_out.packets.saturating_sub(self.handoff_in.packets)
    }
    /// Adds another graph's totals.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.created += other.created;
        self.sent += other.sent;
        self.drops.merge(&other.drops);
        self.held += other.held;
        self.handoff_out += other.handoff_out;
        self.handoff_in += other.handoff_in;
    }
}

/// One node's name, owner, kind and counters.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The owner to whom the node is accounted.
    pub owner: u16,
    /// The node's kind.
    pub kind: String,
    /// How its packets are counted.
    pub role: Role,
    /// Its counters.
    pub counters: NodeCounters,
}

/// A running graph: one worker's copy.
pub struct Graph {
    name: String,
    slots: Vec<Slot>,
    cx: OwnedContext,
    /// The batch that is being run.
    hand: Batch,
    running: Running,
    waiting: VecDeque<Waiting>,
    /// Serial number of `waiting`'s first entry.
    serial: u64,
    spare: Vec<Batch>,
    ready: VecDeque<usize>,
    /// Whether the schedulable node whose turn it is still stands first in `ready`.
    in_place: bool,
    /// The node that had the last turn.
    polled: usize,
    /// The node that was called last, for other threads.
    called: Arc<AtomicUsize>,
    idle: VecDeque<usize>,
    sleeping: BinaryHeap<Reverse<(u64, usize)>>,
    /// As `sleeping`, for nodes that wait for their events; these come first when they are due.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    /// The graph is being taken down: no event runs any more.
    draining: bool,
    turns: u64,
    /// Most packets that a poll is asked for.
    burst: usize,
    /// The bits of all queues.
    queue_bits: u64,
    /// The turn is timed node by node, or observed.
    sampled: bool,
    /// The graph has watches.
    observed: bool,
    /// Turns in a row that moved nothing.
    idle_turns: usize,
    /// Receiving nodes that have not ended, and whether there ever were any.
    sources: usize,
    has_sources: bool,
    /// Functions in quarantine, each with the time at which it is made again (ns).
    quarantined: Vec<(usize, u64)>,
    /// The node that moves state on next; none where it is behind the last.
    moving: usize,
    /// Receiving nodes that get no turns, while the graph is suspended.
    parked: Vec<usize>,
    suspended: bool,
    /// Shuffles that have asked for a step of a migration.
    moves: Moves,
    panics: Panics,
    /// Gives tenants their turns, where there are tenants.
    tenants: Option<Box<Scheduler>>,
}

impl Graph {
    fn assemble(name: String, mut slots: Vec<Slot>, policies: Vec<TenantPolicy>, pool: Pool) -> Self {
        let mut ready = VecDeque::with_capacity(slots.len());
        let mut timers = BinaryHeap::new();
        let panics = Panics::new();
        for (i, slot) in slots.iter_mut().enumerate() {
            slot.out = slot.targets.first().copied().flatten();
            match slot.schedule(&panics, 0) {
                Some(schedule) => timers.extend(schedule.next().map(|time| Reverse((time, i)))),
                None if slot.schedulable && !slot.ended && !slot.stopped => ready.push_back(i),
                None => {}
            }
        }
        let schedulable = ready.len();
        let mut tenants = (!policies.is_empty()).then(|| Box::new(Scheduler::new(policies)));
        if let Some(tenants) = &mut tenants {
            for node in ready.iter().filter(|node| slots[**node].owner > 0) {
                tenants.ready(slots[*node].owner, *node);
            }
            ready.retain(|node| slots[*node].owner == 0);
        }
        let has_sources = slots.iter().any(|slot| slot.source);
        let sources = slots.iter().filter(|slot| slot.source && !slot.ended && !slot.stopped).count();
        let handoffs = handoff::connect(&mut slots);
        let queues = queues::connect(&mut slots);
        let queue_bits = queues.iter().fold(0, |bits, bit| bits | bit);
        let mut graph = Self {
            name,
            slots,
            cx: Context::new(pool),
            hand: Batch::new(),
            running: Running::default(),
            waiting: VecDeque::with_capacity(16),
            // Numbers before it are for batches that go to the front.
            serial: 1 << 32,
            spare: Vec::with_capacity(16),
            ready,
            in_place: false,
            polled: 0,
            called: Arc::default(),
            idle: VecDeque::with_capacity(schedulable),
            sleeping: BinaryHeap::with_capacity(schedulable),
            timers,
            draining: false,
            turns: 0,
            burst: 0,
            queue_bits,
            sampled: false,
            observed: false,
            idle_turns: 0,
            sources,
            has_sources,
            quarantined: Vec::new(),
            moving: usize::MAX,
            parked: Vec::new(),
            suspended: false,
            moves: Moves::default(),
            panics,
            tenants,
        };
        (graph.cx.handoffs, graph.cx.queues) = (handoffs, queues);
        graph.cx.roles = graph.slots.iter().map(|slot| slot.role).collect();
        graph.cx.keeps = graph.slots.iter().map(|slot| slot.keeps).collect();
        graph.set_burst(netbricks_buffer::BATCH);
        graph.report_bound();
        graph.set_deadline();
        graph
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// A way to see from another thread which node the graph has called last.
    pub fn whereabouts(&self) -> Whereabouts {
        let names = self.slots.iter().map(|slot| slot.name.clone()).collect();
        Whereabouts { called: self.called.clone(), names }
    }
    /// The time that its nodes see (ns).
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
    /// Sets the time (ns) before the first turn, so that imported state keeps its age.
    ///
    /// The time never goes back.
    pub fn advance(&mut self, now: u64) {
        self.cx.advance(now);
    }
    /// Whether packets from other workers move the time on, as those of its own sources do.
    ///
    /// For a graph whose time only arrivals move.
    pub fn follow_arrivals(&mut self, follow: bool) {
        self.cx.follows_arrivals = follow;
        if let Some(tenants) = &mut self.tenants {
            tenants.by_packets = follow;
        }
    }

    /// Every node with its counters, in the order of adding.
    pub fn nodes(&self) -> impl Iterator<Item = NodeStatus> + '_ {
        self.slots.iter().map(|slot| {
            let mut counters = slot.counters.clone();
            counters.held = slot.held(&self.panics, self.now());
            counters.panics += slot.unanswered.get();
            NodeStatus {
                name: slot.name.clone(),
                owner: slot.owner,
                kind: slot.kind.clone(),
                role: slot.role,
                counters,
            }
        })
    }

    /// The sums over all nodes, with the packets that wait on edges.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for slot in &self.slots {
            totals.received += slot.counters.received;
            totals.created += slot.counters.created;
            totals.sent += slot.counters.sent;
            totals.handoff_out += slot.counters.handoff_out;
            totals.handoff_in += slot.counters.handoff_in;
            totals.drops.merge(&slot.counters.drops);
            totals.held += slot.held(&self.panics, self.now());
        }
        totals.held += self.waiting.iter().map(|waiting| waiting.batch.len() as u64).sum::<u64>();
        totals
    }

    /// The names of nodes at which packets are not conserved.
    pub fn unbalanced(&self) -> Vec<String> {
        self.nodes().filter(|node| !node.counters.is_conserved()).map(|node| node.name).collect()
    }

    /// Panics since the last call, oldest first, at most 16.
    pub fn take_panics(&mut self) -> Vec<Panic> {
        self.panics.take()
    }

    /// The last dropped headers, newest first, with their node's name.
    pub fn dropped_headers(&self) -> impl Iterator<Item = (&str, &Record)> + '_ {
        self.cx.recorder.records().map(|record| (self.slots[record.node].name.as_str(), record))
    }

    /// Each node's part of the report, without flows that are over at the graph's time.
    ///
    /// A node that panics adds nothing but its panic.
    pub fn reports(&self) -> Vec<(String, Vec<crate::Section>)> {
        let of = |slot: &Slot| {
            let now = self.now();
            let report = |state: &mut dyn crate::NodeState| {
                state.expire(now);
                state.report()
            };
            slot.ask_state(&self.panics, now, report).unwrap_or_default()
        };
        let reports = self.slots.iter().map(|slot| (slot.name.clone(), of(slot)));
        reports.filter(|(_, sections)| !sections.is_empty()).collect()
    }

    /// The names of its nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> + '_ {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    fn place(&self, node: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == node)
    }

    /// Calls a node's handler: `call("flows", "flows.occupancy", "")`.
    ///
    /// # Errors
    /// [`CallError`] when the node or handler is unknown, its argument does not fit, or it panics. After a
    /// panic the node was rebuilt, as after every panic.
    pub fn call(&mut self, node: &str, handler: &str, argument: &str) -> Result<String, CallError> {
        match self.place(node) {
            Some(i) => {
                let began = self.before_call();
                let answer = self.guarded(i, |node| node.call(handler, argument)).unwrap_or_else(|caught| {
                    Err(CallError::Panicked { name: handler.into(), message: caught.message })
                });
                self.charge_call(i, began);
                // A handler may give the node something to do before the time that it slept until.
                self.wake_sleeper(i);
                answer
            }
            None => Err(CallError::Unknown {
                name: format!("{node}.{handler}"),
                known: self.slots.iter().map(|slot| slot.name.as_str()).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// All declared state: node, state's name, versioned bytes. A node that panics gives nothing but its
    /// panic.
    pub fn export(&self) -> Vec<(String, StateImage)> {
        self.export_of(|_| true)
    }

    /// As [`export`](Self::export), of the nodes whose name is `wanted`.
    pub fn export_of(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, StateImage)> {
        let of = |slot: &Slot| {
            slot.ask_state(&self.panics, self.now(), |state| state.export()).unwrap_or_default()
        };
        let images = |slot| of(slot).into_iter().map(|image| (slot.name.clone(), image));
        self.slots.iter().filter(|slot| wanted(&slot.name)).flat_map(images).collect()
    }

    /// The node that state of the node `before` goes to, in the graph that this one takes over from.
    ///
    /// Without a [named successor](GraphBuilder::succeed) it is the node of the same name.
    pub fn successor(&self, before: &str) -> Option<&str> {
        self.successor_place(before).map(|place| self.slots[place].name.as_str())
    }

    fn successor_place(&self, before: &str) -> Option<usize> {
        let named = self.slots.iter().position(|slot| slot.succeeds.as_deref() == Some(before));
        named.or_else(|| self.place(before).filter(|place| self.slots[*place].succeeds.is_none()))
    }

    /// Whether it has a node of this name.
    pub fn has(&self, node: &str) -> bool {
        self.place(node).is_some()
    }

    /// Gives a node state that another exported.
    ///
    /// # Errors
    /// [`crate::ImportError`] when node or state are unknown or the bytes do not fit; nothing is changed
    /// then. A node that panics is rebuilt, without state that it was given before.
    pub fn import(&mut self, node: &str, state: &str, bytes: &[u8]) -> Result<(), crate::ImportError> {
        match self.place(node) {
            Some(i) => {
                let now = self.cx.now();
                self.guarded(i, |node| node.import(state, bytes, now)).unwrap_or_else(|caught| {
                    Err(crate::ImportError::Panicked { name: state.into(), message: caught.message })
                })?;
                let first = self.slots[i].state;
                if self.slots[first].timed {
                    self.rearm(first);
                }
                Ok(())
            }
            None => Err(crate::ImportError::Unknown { name: format!("{node}.{state}") }),
        }
    }

    /// Calls `watch` with the descriptors on which an idle worker may sleep: those of the nodes that had
    /// nothing.
    pub fn descriptors<'g>(&'g mut self, watch: &mut dyn FnMut(BorrowedFd<'g>)) {
        let now = self.cx.now();
        let (idle, panics) = (&self.idle, &self.panics);
        for (_, slot) in self.slots.iter_mut().enumerate().filter(|(node, _)| idle.contains(node)) {
            let node = slot.node.get_mut();
            if let Err(caught) = contain(|| node.descriptors(watch)) {
                note(&slot.name, &slot.unanswered, panics, now, caught);
            }
        }
    }

    /// Whether a worker that sleeps on the descriptors misses nothing.
    ///
    /// Every idle node then has a descriptor, or is an empty queue, which the packets that fill it wake.
    pub fn can_sleep(&self) -> bool {
        self.ready.is_empty()
            && self.idle.iter().all(|node| {
                // A node that panics may have named some.
                self.has_descriptor(*node) == Some(true)
                    || self.slots[*node].queue.is_some() && self.held(*node) == 0
            })
    }

    /// Whether nothing happens in the graph before some time.
    ///
    /// Nothing is then ready. No idle node brings packets in, from outside or from other workers, or waits
    /// for a descriptor. Where nothing else moves the clock, it may go to the next [timer](Turn::Idle) at
    /// once.
    pub fn waits_for_time_alone(&self) -> bool {
        self.ready.is_empty()
            && self
                .idle
                .iter()
                .all(|node| !self.slots[*node].source && self.has_descriptor(*node) == Some(false))
    }

    /// Whether all receive nodes that have not ended wait for a time.
    ///
    /// Where only these nodes move the clock, they are asked again only when some other code moves it.
    pub fn awaits_time(&self) -> bool {
        let receives = |node: &usize| self.slots[*node].role == Role::Receive;
        self.sleeping.iter().any(|Reverse((_, node))| receives(node))
            && !self.idle.iter().chain(&self.ready).any(receives)
    }

    /// Whether the node has a descriptor. `None` after a panic.
    fn has_descriptor(&self, node: usize) -> Option<bool> {
        self.slots[node].ask(&self.panics, self.now(), |node| node.has_descriptor())
    }

    /// Sets the most packets that a source is asked for in a turn: 1 to [`netbricks_buffer::BATCH`], others
    /// are clamped.
    ///
    /// A source that leads to [queues](crate::Shape::queue) is asked for no more than the shortest of them
    /// has room for.
    pub fn set_burst(&mut self, packets: usize) {
        self.burst = packets.clamp(1, netbricks_buffer::BATCH);
        self.cx.burst = self.burst;
    }
}
