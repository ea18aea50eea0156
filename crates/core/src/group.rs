//! Groups: packets take separate ways through the graph by a key (the paper's group by, section 3.1).
//!
//! They do so at once, or through a queue for each group; the queues then take turns.

use std::any::Any;
use std::collections::VecDeque;

use netbricks_buffer::{BATCH, Batch, Packet};
use netbricks_packet::stack::Root;

use crate::context::Context;
use crate::node::{CallError, Handler, Node, NodeQueue, NodeState, Output, Poll, Shape};
use crate::operator::{Input, Operator};
use crate::reason::{DropReason, Edge};
use crate::shuffle::{Buckets, ShuffleKey, SortedBy, SortedByKey, Sorter, sorters_state};
use crate::view::View;
use crate::worker::{BuildError, Worker};

/// The configuration of a grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The number of groups; 1 to [`MOST`](Self::MOST).
    pub groups: usize,
    /// Packets that each group's queue holds; 0 means no queues, so that packets go on at once.
    pub queue: usize,
}

impl GroupConfig {
    /// The most groups that a node can have: each is a way out.
    pub const MOST: usize = 128;
    /// The most packets that a queue can be asked to hold.
    pub const LONGEST: usize = 1 << 20;
}

/// Makes nodes that group packets.
///
/// Group 0 goes on ([`Edge::OUT`]), and group `g` leaves by [`Groups::edge`], which has its number as name.
///
/// With queues, the node takes part in the round robin of its graph. A turn sends a burst of the group whose
/// turn it is, and of the next groups where that has less. Each group sends a burst before the next does
/// (deficit round robin with that quantum). So groups that always have packets get equal shares of their
/// worker's turns, however unequal their traffic is. Groups with more packets get the turns that others
/// leave. A packet for which a queue has no room is dropped as [`DropReason::QueueFull`].
///
/// Where only arrivals move the clock, none is dropped, since a replay can wait. No source is polled that
/// leads to a queue without room for a burst, and packets that were on their way are queued all the same.
///
/// ```
/// use netbricks_core::buffer::Pool;
/// use netbricks_core::packet::{Ip, Link};
/// use netbricks_core::{GroupConfig, Groups, Operator, ShuffleKey, Worker};
///
/// let worker = Worker::new(0, 1, Pool::builder().frames(64).build()?);
/// let groups = Groups::new(GroupConfig { groups: 3, queue: 0 })?;
/// // By a predefined key, or by what a function of one's own says.
/// let by_flow = groups.node(&worker, ShuffleKey::Flow);
/// let by_hops = groups.node_by(
///     &worker,
///     |input| input.parse::<Link>().parse::<Ip>(),
///     |packet| usize::from(packet.header().ttl()) / 100,
/// )?;
/// let names: Vec<_> = by_hops.shape().outputs.into_iter().map(|output| output.name).collect();
/// assert_eq!(names, ["out", "1", "2", "reply"]);
/// # assert_eq!(by_flow.shape().outputs.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Groups(GroupConfig);

impl Groups {
    /// Groups as configured.
    ///
    /// # Errors
    /// When there are no groups, more than [`GroupConfig::MOST`], or queues longer than [`GroupConfig::LONGEST`].
    pub fn new(config: GroupConfig) -> Result<Self, BuildError> {
        let GroupConfig { groups, queue } = config;
        if !(1..=GroupConfig::MOST).contains(&groups) {
            let problem = format!("`groups` must be 1 to {}, found {groups}", GroupConfig::MOST);
            return Err(BuildError::new(problem));
        }
        if queue > GroupConfig::LONGEST {
            let problem = format!("`queue` must be 0 to {} packets, found {queue}", GroupConfig::LONGEST);
            return Err(BuildError::new(problem));
        }
        Ok(Self(config))
    }

    /// The way out of a group.
    pub fn edge(group: usize) -> Edge {
        match group {
            0 => Edge::OUT,
            // The edge of answers lies between.
            group => Edge((group + 1).min(u8::MAX.into()) as u8),
        }
    }

    /// A node that groups by a predefined key, with another hash of it than a shuffle.
    ///
    /// So every worker behind a shuffle has packets of all groups.
    pub fn node(&self, worker: &Worker, key: ShuffleKey) -> Box<dyn Node> {
        // The constant is arbitrary: it makes the seed differ from a shuffle's.
        let buckets = Buckets::new(key, worker.seed() ^ 0x6772_6f75_7073_2121);
        self.sorted(Box::new(SortedByKey(buckets)))
    }

    /// A node that parses packets by `function` and asks `group` for the group of each.
    ///
    /// Numbers beyond the last group wrap around. Packets that the function lets pass unparsed are in group
    /// 0.
    ///
    /// # Errors
    /// Errors of the function's declared state.
    pub fn node_by<F, G>(
        &self,
        worker: &Worker,
        function: impl FnOnce(Input) -> F,
        mut group: G,
    ) -> Result<Box<dyn Node>, BuildError>
    where
        F: Operator<In = Root>,
        G: FnMut(&View<'_, F::Out>) -> usize + 'static,
    {
        let groups = self.0.groups;
        let place = move |packet: &View<'_, F::Out>| (group(packet) % groups) as u16;
        let sorter = SortedBy::new(worker, function, place)?;
        let mut clash = None;
        sorter.edges(&mut |edge| {
            if (2..=groups).contains(&usize::from(edge.0)) {
                clash = Some(edge);
            }
        });
        match clash {
            Some(Edge(edge)) => Err(BuildError::new(format_args!(
                "edge {edge} is that of group {}: let other packets leave by edge {} or later",
                edge - 1,
                groups + 1
            ))),
            None => Ok(self.sorted(Box::new(sorter))),
        }
    }

    fn sorted(&self, sorter: Box<dyn Sorter>) -> Box<dyn Node> {
        let GroupConfig { groups, queue } = self.0;
        Box::new(GroupNode {
            sorter,
            queues: (0..groups).map(|_| VecDeque::with_capacity(queue)).collect(),
            queue,
            held: 0,
            next: 0,
            left: 0,
            numbers: Vec::with_capacity(BATCH),
        })
    }
}

/// Packets beyond a full queue that it takes from sources that are not polled meanwhile.
///
/// These are the packets that functions and events made from a few batches.
const ON_THEIR_WAY: usize = 8 * BATCH;

struct GroupNode {
    sorter: Box<dyn Sorter>,
    queues: Vec<VecDeque<Packet>>,
    /// The most packets that a queue holds.
    queue: usize,
    /// Packets in all queues.
    held: usize,
    /// The group whose turn it is.
    next: usize,
    /// Packets that this group may still send before the next group's turn.
    left: usize,
    numbers: Vec<u16>,
}

impl GroupNode {
    fn enqueue(&mut self, batch: &mut Batch, cx: &mut Context) {
        let held = self.held;
        let most = if cx.follows_arrivals { self.queue + ON_THEIR_WAY } else { self.queue };
        for (packet, group) in batch.drain().zip(&self.numbers) {
            let queue = &mut self.queues[usize::from(*group)];
            if queue.len() < most {
                queue.push_back(packet);
                self.held += 1;
            } else {
                cx.drop_packet(packet, DropReason::QueueFull);
            }
        }
        if held == 0 && self.held > 0 {
            cx.wake();
        }
        self.tell_room(cx);
    }

    /// Reports whether the queues have room, where a replay drives the clock: it waits.
    ///
    /// Live traffic comes whether there is room or not, and each group's queue drops the excess of its own
    /// group.
    fn tell_room(&self, cx: &mut Context) {
        if cx.follows_arrivals {
            cx.set_full(self.queues.iter().any(|queue| queue.len() + cx.burst() > self.queue));
        }
    }

    /// Sends up to a burst of packets: of the group whose turn it is, and of the groups after it.
    fn send(&mut self, batch: &mut Batch, cx: &mut Context) {
        let mut budget = cx.burst();
        while budget > 0 && self.held > 0 {
            let group = self.next;
            let queue = &mut self.queues[group];
            if self.left == 0 {
                self.left = cx.burst();
            }
            let count = queue.len().min(self.left).min(budget);
            budget -= count;
            self.held -= count;
            self.left -= count;
            for packet in queue.drain(..count) {
                if group > 0 {
                    cx.emit(Groups::edge(group), packet);
                } else if let Err(packet) = batch.push(packet) {
                    // Not reached: the batch was empty, and a burst fits.
                    cx.drop_packet(packet, DropReason::QueueFull);
                }
            }
            if self.left == 0 || queue.is_empty() {
                self.next = (group + 1) % self.queues.len();
                self.left = 0;
            }
        }
        self.tell_room(cx);
    }
}

impl Node for GroupNode {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        self.sorter.sort(batch, cx, &mut self.numbers);
        let groups = self.queues.len() as u16;
        self.numbers.iter_mut().for_each(|number| *number %= groups);
        if self.queue > 0 {
            return self.enqueue(batch, cx);
        }
        let numbers = &self.numbers;
        let kept = batch.compact(|slot, _| u16::from(numbers[slot] != 0));
        if kept == batch.len() {
            return;
        }
        for packet in batch.drain_from(kept) {
            let slot = usize::from(packet.slot());
            cx.emit_from(slot, Groups::edge(usize::from(self.numbers[slot])), packet);
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.send(batch, cx);
        if self.held > 0 { Poll::Busy } else { Poll::Idle }
    }
    fn shape(&self) -> Shape {
        let group = |group: usize| Output {
            edge: Groups::edge(group),
            name: if group == 0 { "out".into() } else { group.to_string() },
            optional: false,
        };
        let mut outputs: Vec<_> = (0..self.queues.len()).map(group).collect();
        if self.sorter.declarations().is_some() {
            outputs.push(Output { edge: Edge::REPLY, name: "reply".into(), optional: true });
        }
        self.sorter.edges(&mut |edge| {
            if !outputs.iter().any(|output| output.edge == edge) {
                outputs.push(Output { edge, name: format!("edge-{}", edge.0), optional: false });
            }
        });
        let queues = self.queue > 0;
        Shape {
            kind: "group-by".into(),
            outputs,
            schedulable: queues,
            keeps_packets: queues,
            holds: Some(self.queues.len().saturating_mul(self.queue)),
            queue: queues.then_some(self.queue),
            has_end: self.sorter.declared(|declared| declared.has_ends()),
            ..Shape::default()
        }
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        if self.queue > 0 { Some(self) } else { None }
    }
}

impl NodeQueue for GroupNode {
    fn held(&self) -> u64 {
        self.held as u64
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.send(batch, cx);
    }
    fn flush(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.send(batch, cx);
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
    /// Takes over the groups' queues, since packets that wait there were sorted before.
    fn restore(&mut self, before: &mut dyn Any) {
        if let Some(before) = before.downcast_mut::<Self>() {
            std::mem::swap(&mut self.queues, &mut before.queues);
            (self.held, self.next, self.left) = (before.held, before.next, before.left);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl NodeState for GroupNode {
    fn handlers(&self) -> Vec<Handler> {
        let queued = Handler::read("queued", "Packets in each group's queue.");
        std::iter::once(queued).chain(self.sorter.declared(|declared| declared.handlers())).collect()
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        if name != "queued" {
            return self.sorter.call(name, argument, "queued");
        }
        let lengths: Vec<_> = self.queues.iter().map(|queue| queue.len().to_string()).collect();
        Ok(lengths.join(" "))
    }
    sorters_state!();
}
