//! The context: what a node may use while it has a batch, and where packets go that leave its batch.
//!
//! The graph owns the context. It outlives a panic in a node, so that nothing in it is lost or counted twice.
//!
//! A node cannot replace it: [`Context`] has no constructor, and its type has no size that safe code could
//! move or swap. Calls for ports only (the time, packets from outside and to it) are in [`Receiving`] and
//! [`Transmitting`]. The graph gives these to nodes of that [role](crate::Role) alone. Numbers of packets that a node
//! made or freed unseen are told through [`Keeping`], by nodes that keep packets.

use std::ops::{Deref, DerefMut};

use netbricks_buffer::{BATCH, Batch, Packet, Pool};

use crate::counters::{Count, Dropping, Drops};
use crate::node::Role;
use crate::observer::Observer;
use crate::reason::{DropReason, Edge};
use crate::recorder::Recorder;

/// The clock, the pool, and the way out for packets that do not stay in the batch.
///
/// A graph has one context and lends it to the running node. `Tail` makes the lent type unsized, so that no
/// author can put another in its place. Code without a graph can lend a [`DetachedContext`].
pub struct Context<Tail: ?Sized = [()]> {
    pub(crate) now: u64,
    /// When the graph's next event is due (ns).
    pub(crate) deadline: u64,
    /// Whether the clock was set, which `now` does not tell while it is 0.
    pub(crate) began: bool,
    /// Deadlines that a source reached since its last arrival.
    steps: u32,
    pool: Pool,
    /// Bits for what the running node did besides passing its batch on; 0 where nothing is to settle.
    pub(crate) effects: u8,
    pub(crate) drops: Dropping,
    pub(crate) sent: Count,
    pub(crate) lost_on_arrival: Count,
    /// Packets that the running node created and kept.
    pub(crate) made: Count,
    /// Packets that the running node gave to other workers and took over from them.
    pub(crate) handoff_out: Count,
    pub(crate) handoff_in: Count,
    /// A bit for each shuffle that waits for room and each full queue.
    pub(crate) blocked: u64,
    pub(crate) handoffs: Vec<u64>,
    pub(crate) queues: Vec<u64>,
    /// Whether packets from other workers set the time, as received packets do.
    pub(crate) follows_arrivals: bool,
    pub(crate) burst: usize,
    /// Packets on their way to another edge than `OUT`.
    pub(crate) leaving: Vec<Leaving>,
    /// Batches that leave on other edges than `OUT`, before those packets. Beyond `batches_used` they are spare.
    pub(crate) leaving_batches: Vec<(Edge, Batch)>,
    pub(crate) batches_used: usize,
    /// How many of these packets are new. They exist for the graph only when the call that made them returns.
    newborn: usize,
    /// How many of the new packets are answers, and how many answer the packet in each slot.
    answered: usize,
    answers: [u8; BATCH],
    pub(crate) recorder: Recorder,
    /// The watches over the graph's packets.
    pub(crate) observer: Option<Box<Observer>>,
    pub(crate) node: usize,
    /// The node that last told its place, and the place.
    placed: (usize, usize),
    /// Nodes that cannot do their work, and why.
    pub(crate) failed: Vec<(usize, String)>,
    /// Whether a lookup met packets in this batch that its usual loops do not handle.
    ///
    /// These are frames of an unusual shape, frames without ports where the keys have ports, or long keys.
    /// The flag changes how the lookup works, never its result.
    pub(crate) mixed: bool,
    /// Whether bytes may be missing at the end of packets in this batch: then their lengths are looked up.
    pub(crate) cut: bool,
    /// The role of each node; empty where there is no graph.
    pub(crate) roles: Vec<Role>,
    /// Whether each node keeps packets between calls; empty where there is no graph.
    pub(crate) keeps: Vec<bool>,
    _unsized: Tail,
}

/// A context as its owner holds it: sized.
pub(crate) type OwnedContext = Context<[(); 0]>;

/// A packet on its way to another edge than `OUT`.
pub(crate) struct Leaving {
    /// The slot, whether the packet is new, and how many packets were leaving before it.
    ///
    /// The slot is 0 where no loop over a batch sent the packet.
    pub(crate) order: u64,
    pub(crate) edge: Edge,
    pub(crate) new: bool,
    pub(crate) packet: Packet,
}

/// Bits of [`Leaving::order`] below the slot's bits.
const SLOT: u32 = 33;
/// In [`Leaving::order`]: sorts a new packet behind the slot's own packet.
const NEW: u64 = 1 << 32;

/// New packets that one call of a node may [create](Context::create), or one run of an event inject.
pub const CREATED_LIMIT: usize = 2 * BATCH;
/// Answers that all functions fused into one node may together give to one packet.
///
/// The limit keeps them from multiplying traffic without bound. It counts by packet, so that the number of
/// packets in a batch makes no difference.
pub const ANSWERS_LIMIT: usize = 8;

/// The limit for segments of streams in one call, as high as that for the answers to a whole batch.
///
/// Segments carry the bytes that arrived and answer no packet.
pub(crate) const SEGMENTS_LIMIT: usize = 8 * BATCH;
/// How many more segments a packet of a stream may send than it brings.
pub const SEGMENTS_A_PACKET: usize = 4;

/// Deadlines that a source reaches one by one between two arrivals.
///
/// Where there are more (a capture with a gap of years) the rest are missed, so that no time stamp keeps a
/// graph busy for ever.
const STEPS: u32 = 1_024;

/// How far apart the arrivals of a batch may be (ns).
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// The latest arrival (ns) of packets in a graph at time `now` (ns): the end of that millisecond.
///
/// A batch holds arrivals of one millisecond. A node that acts on a packet's own time, as a line with a delay
/// does, accepts no later time: a function could have written it.
pub fn last_arrival(now: u64) -> u64 {
    (now - now % MILLISECOND).saturating_add(MILLISECOND - 1)
}

pub(crate) const DROPPED: u8 = 1;
pub(crate) const EMITTED: u8 = 2;
pub(crate) const SENT: u8 = 4;
pub(crate) const HANDED_OFF: u8 = 8;
pub(crate) const MIGRATION_REQUESTED: u8 = 16;
pub(crate) const WOKEN: u8 = 32;

impl OwnedContext {
    /// A context over a pool, at time 0.
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            now: 0,
            deadline: u64::MAX,
            began: false,
            steps: 0,
            pool,
            effects: 0,
            drops: Dropping::default(),
            sent: Count::default(),
            lost_on_arrival: Count::default(),
            made: Count::default(),
            handoff_out: Count::default(),
            handoff_in: Count::default(),
            blocked: 0,
            handoffs: Vec::new(),
            queues: Vec::new(),
            follows_arrivals: false,
            burst: BATCH,
            leaving: Vec::with_capacity(2 * BATCH + ANSWERS_LIMIT * BATCH + SEGMENTS_LIMIT),
            leaving_batches: Vec::new(),
            batches_used: 0,
            newborn: 0,
            answered: 0,
            answers: [0; BATCH],
            failed: Vec::new(),
            recorder: Recorder::default(),
            observer: None,
            node: 0,
            placed: (usize::MAX, 0),
            mixed: false,
            cut: false,
            roles: Vec::new(),
            keeps: Vec::new(),
            _unsized: [],
        }
    }
}

impl<Tail: ?Sized> Context<Tail> {
    /// The time (ns) since the epoch of the clock that drives the graph. It stands still within a batch.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }
    /// As [`Receiving::advance`].
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }
    /// The time of the graph's next event (ns); [`u64::MAX`] where there is none.
    ///
    /// A batch never spans this time: a source that drives the clock ends its batch before the first arrival
    /// at or after it.
    #[inline(always)]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }
    /// As [`Receiving::approach`].
    pub(crate) fn approach(&mut self, time: u64) -> bool {
        if time < self.deadline || self.deadline == u64::MAX {
            self.steps = 0;
            return true;
        }
        let known = self.knows_time() && self.steps < STEPS;
        self.began = true;
        self.steps += 1;
        self.advance(if known { self.deadline } else { time });
        false
    }
    /// Whether the clock has begun to run: periods are counted from its first time and not from 1970.
    pub(crate) fn knows_time(&self) -> bool {
        self.began || self.now > 0
    }
    /// The place of the running node through which its packets came, from 0.
    ///
    /// A function with state that stands in several chains is one node on a worker. Its uses, in the order of
    /// the chains, are the node's places. All other nodes have the place 0.
    #[inline(always)]
    pub fn place(&self) -> usize {
        if self.placed.0 == self.node { self.placed.1 } else { 0 }
    }
    /// Sets the place of the running node; it holds until that node is called through another place.
    ///
    /// For a node in front of a function that stands in several places.
    #[inline(always)]
    pub fn set_place(&mut self, place: usize) {
        self.placed = (self.node, place);
    }
    /// The pool of new packets.
    #[inline(always)]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many packets a source may put into its batch this turn.
    #[inline(always)]
    pub fn burst(&self) -> usize {
        self.burst
    }

    /// Ends a packet: counts it under its reason and frees it.
    #[inline]
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.effects |= DROPPED;
        self.drops.add(reason, 1, packet.wire_len() as u64);
        if self.recorder.is_due(self.node, reason, self.now) {
            self.show_drop(self.node, reason, packet);
        }
    }

    /// Records a drop, unless one of this node and reason was recorded a moment ago.
    pub(crate) fn record_drop(&mut self, node: usize, reason: DropReason, packet: Packet) {
        if self.recorder.is_due(node, reason, self.now) {
            self.show_drop(node, reason, packet);
        }
    }

    /// Takes the packet by value, so that callers need not put its handle into memory for this rare call.
    #[cold]
    #[inline(never)]
    fn show_drop(&mut self, node: usize, reason: DropReason, packet: Packet) {
        self.recorder.record(node, reason, self.now, packet.data());
        if let Some(observer) = &mut self.observer {
            observer.dropped(node, reason, self.now, &packet);
        }
    }

    /// As [`record_drop`](Self::record_drop), for all packets of a batch; the first stands for all in the recorder.
    #[cold]
    fn show_drops(&mut self, reason: DropReason, batch: &Batch) {
        if let Some(first) = batch.get(0) {
            self.recorder.record(self.node, reason, self.now, first.data());
        }
        if let Some(observer) = &mut self.observer {
            batch.iter().for_each(|packet| observer.dropped(self.node, reason, self.now, packet));
        }
    }

    /// Ends all packets of a batch for one reason.
    pub fn drop_batch(&mut self, batch: &mut Batch, reason: DropReason) {
        if batch.is_empty() {
            return;
        }
        self.effects |= DROPPED;
        self.drops.add(reason, batch.len() as u64, batch.bytes());
        if self.recorder.is_due(self.node, reason, self.now) {
            self.show_drops(reason, batch);
        }
        batch.clear();
    }

    /// As [`Receiving::lost_on_arrival`].
    pub(crate) fn lost_on_arrival(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        if packets > 0 {
            self.effects |= DROPPED;
            self.lost_on_arrival.add(packets, bytes);
            self.drops.add(reason, packets, bytes);
        }
    }

    /// As [`Receiving::drop_arrival`].
    pub(crate) fn drop_arrival(&mut self, packet: Packet, reason: DropReason) {
        self.lost_on_arrival(reason, 1, packet.wire_len() as u64);
        self.record_drop(self.node, reason, packet);
    }

    /// Counts a packet for which there was no buffer.
    #[cold]
    pub fn lost_without_buffer(&mut self, length: usize) {
        let reason =
            if length > self.pool.largest_packet() { DropReason::TooBig } else { DropReason::PoolExhausted };
        self.lost_on_creation(reason, length as u64);
    }

    /// Counts a packet that could not be made, as created and dropped at once.
    pub(crate) fn lost_on_creation(&mut self, reason: DropReason, bytes: u64) {
        self.effects |= DROPPED | SENT;
        self.made.add(1, bytes);
        self.drops.add(reason, 1, bytes);
    }

    /// Passes a packet on by an edge.
    #[inline]
    pub fn emit(&mut self, edge: Edge, packet: Packet) {
        self.leave(edge, packet, 0);
    }

    /// Passes all packets of a batch on by an edge, together and in their order. The batch is empty then.
    ///
    /// They come behind those that this call has passed on by that edge before.
    pub fn emit_batch(&mut self, edge: Edge, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        if !self.leaving.is_empty() || self.observer.is_some() {
            // Packets that left one by one came first; and a trace looks at each packet.
            batch.drain().for_each(|packet| self.emit(edge, packet));
            return;
        }
        self.effects |= EMITTED;
        match self.leaving_batches.get_mut(self.batches_used) {
            Some((to, spare)) => {
                *to = edge;
                std::mem::swap(spare, batch);
            }
            None => self.leaving_batches.push((edge, std::mem::take(batch))),
        }
        self.batches_used += 1;
    }

    /// Frees the packets of batches that were to leave; returns how many they were.
    pub(crate) fn clear_leaving_batches(&mut self) -> usize {
        let used = std::mem::take(&mut self.batches_used);
        let batches = self.leaving_batches.iter_mut().take(used);
        batches
            .map(|(_, batch)| {
                let packets = batch.len();
                batch.clear();
                packets
            })
            .sum()
    }

    /// As [`emit`](Self::emit), for a packet that a loop over the batch found in its `slot`.
    pub(crate) fn emit_from(&mut self, slot: usize, edge: Edge, packet: Packet) {
        self.leave(edge, packet, (slot as u64) << SLOT);
    }

    #[inline]
    fn leave(&mut self, edge: Edge, packet: Packet, order: u64) {
        self.effects |= EMITTED;
        let order = order | self.leaving.len() as u64 & (NEW - 1);
        self.leaving.push(Leaving { order, edge, new: false, packet });
    }

    /// Adds a new packet (an answer, a copy) that leaves on `edge`.
    ///
    /// If the call that makes it panics, the packet is neither counted nor sent.
    ///
    /// # Errors
    /// Gives the packet back when this call already made [`CREATED_LIMIT`].
    pub fn create(&mut self, edge: Edge, packet: Packet) -> Result<(), Packet> {
        if self.newborn >= CREATED_LIMIT {
            return Err(packet);
        }
        self.bear(edge, packet, 0);
        Ok(())
    }

    /// As [`create`](Self::create), on behalf of the packet in a `slot` of the batch, up to [`ANSWERS_LIMIT`]
    /// for each.
    ///
    /// The new packet leaves after its cause and before all packets that later slots send away. So the order
    /// of packets does not depend on the batch size.
    pub(crate) fn create_for(&mut self, slot: usize, edge: Edge, packet: Packet) -> Result<(), Packet> {
        match self.answers.get_mut(slot) {
            Some(answers) if usize::from(*answers) < ANSWERS_LIMIT => *answers += 1,
            _ => return Err(packet),
        }
        self.answered += 1;
        self.bear(edge, packet, (slot as u64) << SLOT | NEW);
        Ok(())
    }

    /// Adds a new packet that answers the one in a `slot` of the batch; answers whether it leaves.
    ///
    /// It leaves after its cause and before all packets that later slots send away. A packet has at most
    /// [`ANSWERS_LIMIT`] answers; more are counted as created and dropped at once.
    pub fn answer(&mut self, slot: usize, edge: Edge, packet: Packet) -> bool {
        match self.create_for(slot, edge, packet) {
            Ok(()) => true,
            Err(packet) => {
                self.lost_on_creation(DropReason::RateLimited, packet.len() as u64);
                false
            }
        }
    }

    /// As [`answer`](Self::answer), for a packet that carries bytes which arrived in that slot's packet or
    /// before.
    ///
    /// Segments have no limit for each packet, but one for each call, of eight for each packet of a full batch.
    ///
    /// # Errors
    /// Gives the packet back when this call already made so many.
    pub fn create_segment(&mut self, slot: usize, edge: Edge, packet: Packet) -> Result<(), Packet> {
        if self.newborn - self.answered >= SEGMENTS_LIMIT {
            return Err(packet);
        }
        self.bear(edge, packet, (slot as u64) << SLOT | NEW);
        Ok(())
    }

    /// The number of new packets among those that leave, at the end of the call that made them. Resets it.
    pub(crate) fn take_newborn(&mut self) -> usize {
        if std::mem::take(&mut self.answered) > 0 {
            self.answers.fill(0);
        }
        std::mem::take(&mut self.newborn)
    }

    fn bear(&mut self, edge: Edge, packet: Packet, order: u64) {
        self.effects |= EMITTED;
        self.newborn += 1;
        let order = order | self.leaving.len() as u64 & (NEW - 1);
        self.leaving.push(Leaving { order, edge, new: true, packet });
    }

    /// Counts a packet that this node made, and that leaves later by [`emit`](Self::emit) or is dropped.
    ///
    /// [`create`](Self::create) counts the packets that it takes by itself.
    #[inline]
    pub fn created(&mut self, packet: &Packet) {
        self.count_created(1, packet.wire_len() as u64);
    }

    /// As [`Keeping::created`].
    #[inline]
    pub(crate) fn count_created(&mut self, packets: u64, bytes: u64) {
        self.effects |= SENT;
        self.made.add(packets, bytes);
    }

    /// As [`Transmitting::sent`].
    #[inline]
    pub(crate) fn sent(&mut self, packets: u64, bytes: u64) {
        self.effects |= SENT;
        self.sent.add(packets, bytes);
    }

    /// Counts packets that this node passes to its copy on another worker: they are no longer this graph's.
    #[inline]
    pub(crate) fn handoff_out(&mut self, packets: u64, bytes: u64) {
        self.effects |= HANDED_OFF;
        self.handoff_out.add(packets, bytes);
    }

    /// Counts packets from this node's copy on another worker, which counted them as
    /// [`handoff_out`](Self::handoff_out).
    #[inline]
    pub(crate) fn handoff_in(&mut self, packets: u64, bytes: u64) {
        self.effects |= HANDED_OFF;
        self.handoff_in.add(packets, bytes);
    }

    /// Says whether the running shuffle waits for room: the graph then polls no source that leads to it.
    #[inline]
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let bit = self.handoffs.get(self.node).copied().unwrap_or_default();
        self.blocked = if blocked { self.blocked | bit } else { self.blocked & !bit };
    }

    /// As [`set_blocked`](Self::set_blocked), for the running queue and whether it is full.
    pub(crate) fn set_full(&mut self, full: bool) {
        let bit = self.queues.get(self.node).copied().unwrap_or_default();
        self.blocked = if full { self.blocked | bit } else { self.blocked & !bit };
    }

    /// Asks for a turn of the running node soon, although its last turn ended idle or until a time.
    ///
    /// A node that queues packets, or sets timers while it processes them, calls this when it was idle or slept.
    pub fn wake(&mut self) {
        self.effects |= WOKEN;
    }

    /// Whether the packets' times of arrival drive the clock, as in a replay of captures.
    #[inline]
    pub fn follows_arrivals(&self) -> bool {
        self.follows_arrivals
    }

    /// Says why the running node cannot do its work. The run goes on, and its end is a failure.
    ///
    /// A node calls this once, when it finds out, and from then on drops what comes. The operator sees the sentence at
    /// once and in the report.
    pub fn fail(&mut self, problem: String) {
        self.failed.push((self.node, problem));
    }

    /// Says that the running shuffle has state to give away or to take over.
    pub(crate) fn request_migration(&mut self) {
        self.effects |= MIGRATION_REQUESTED;
    }

    /// The calls for a receive node: the time, and arrivals that never became packets of the graph.
    ///
    /// # Panics
    /// For a node of another role. The graph [contains](crate::graph) this like any panic of the node.
    #[inline]
    pub fn receiving(&mut self) -> Receiving<'_, Tail> {
        self.require(Role::Receive);
        Receiving(self)
    }

    /// The calls for a node that exchanges packets with its copies on other workers.
    ///
    /// # Panics
    /// For a node without a part in the [exchange](crate::Node::as_handoff). The graph
    /// [contains](crate::graph) this like any panic of the node.
    #[inline]
    pub fn exchanging(&mut self) -> Exchanging<'_, Tail> {
        let bit = self.handoffs.get(self.node).copied();
        assert!(
            bit != Some(0),
            "`Context::exchanging` is for nodes that exchange packets with other workers: `as_handoff` must answer"
        );
        Exchanging(self)
    }

    /// The calls for a node that keeps packets between calls: those that its parts made and freed.
    ///
    /// # Panics
    /// For a node whose [shape](crate::Shape::keeps_packets) does not say so. The graph [contains](crate::graph) this like
    /// any panic of the node.
    #[inline]
    pub fn keeping(&mut self) -> Keeping<'_, Tail> {
        assert!(
            self.keeps.get(self.node) != Some(&false),
            "`Context::keeping` is for nodes that keep packets: `Shape::keeps_packets` must say so"
        );
        Keeping(self)
    }

    /// The calls for a transmit node: how many packets have left.
    ///
    /// # Panics
    /// As [`receiving`](Self::receiving).
    #[inline]
    pub fn transmitting(&mut self) -> Transmitting<'_, Tail> {
        self.require(Role::Transmit);
        Transmitting(self)
    }

    #[inline]
    fn require(&self, role: Role) {
        if self.roles.get(self.node).is_some_and(|own| *own != role) {
            refuse(role);
        }
    }
}

#[cold]
#[inline(never)]
fn refuse(role: Role) -> ! {
    let (name, what) = match role {
        Role::Receive => ("receiving", "moves the time on and counts arrivals"),
        Role::Transmit | Role::Function => ("transmitting", "counts packets as sent"),
    };
    panic!("`Context::{name}` is for ports: only a node whose `role` is `Role::{role:?}` {what}");
}

/// The calls of a node of role [`Receive`](Role::Receive) to its graph.
pub struct Receiving<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Receiving<'_, Tail> {
    /// Sets the time, which never goes back. A source that replays a capture sets it to the capture's time
    /// stamps.
    ///
    /// Where the source also asks [`approach`](Self::approach), events run exactly on time.
    #[inline(always)]
    pub fn advance(&mut self, now: u64) {
        self.0.advance(now);
    }
    /// Whether an arrival at `time` (ns) may be the first of its batch, for a source that drives the clock.
    ///
    /// The source asks while its batch is empty. Where an event is due before, the clock goes to that event's
    /// time instead. The source then ends its poll with [`Poll::Busy`](crate::Poll::Busy), and asks again in
    /// the next.
    pub fn approach(&mut self, time: u64) -> bool {
        self.0.approach(time)
    }
    /// Counts arrivals that were lost before they became packets, such as those without a buffer at a receive
    /// queue.
    ///
    /// They count as received and dropped at once.
    pub fn lost_on_arrival(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        self.0.lost_on_arrival(reason, packets, bytes);
    }
    /// Ends an arrival that is lost before the graph has it, for a reason.
    ///
    /// It counts as received and dropped at once, and is recorded.
    pub fn drop_arrival(&mut self, packet: Packet, reason: DropReason) {
        self.0.drop_arrival(packet, reason);
    }
    /// Counts packets that a port made and put into its batch itself, such as a wrapper's copy.
    ///
    /// Packets that leave on an edge go through [`Context::create`] instead.
    #[inline]
    pub fn created(&mut self, packets: u64, bytes: u64) {
        self.0.count_created(packets, bytes);
    }
}

/// The calls of a node of role [`Transmit`](Role::Transmit) to its graph.
pub struct Transmitting<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Transmitting<'_, Tail> {
    /// Counts packets of the batch that the node gave to the outside.
    #[inline]
    pub fn sent(&mut self, packets: u64, bytes: u64) {
        self.0.sent(packets, bytes);
    }
    /// Counts packets that a port made and sends itself, such as the segments of a packet that was too long.
    #[inline]
    pub fn created(&mut self, packets: u64, bytes: u64) {
        self.0.count_created(packets, bytes);
    }
    /// Counts packets that this node passes to its copy on another worker: they are no longer this graph's.
    #[inline]
    pub fn handoff_out(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_out(packets, bytes);
    }
    /// Counts packets from this node's copy on another worker, which counted them as
    /// [`handoff_out`](Self::handoff_out).
    #[inline]
    pub fn handoff_in(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_in(packets, bytes);
    }
}

/// The calls of a node that [keeps packets](crate::Shape::keeps_packets) to its graph.
///
/// What such a node says of its packets must agree with those that it [holds](crate::NodeQueue::held).
pub struct Keeping<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Keeping<'_, Tail> {
    /// Counts packets that this node made, and that leave later by [`Context::emit`] or are dropped.
    #[inline]
    pub fn created(&mut self, packets: u64, bytes: u64) {
        self.0.count_created(packets, bytes);
    }
    /// Counts packets that this node freed by itself, as dropped for a reason.
    pub fn dropped(&mut self, packets: u64, bytes: u64, reason: DropReason) {
        if packets > 0 {
            self.0.effects |= DROPPED;
            self.0.drops.add(reason, packets, bytes);
        }
    }
}

/// The calls of a node that exchanges packets with its copies on other workers.
pub struct Exchanging<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Exchanging<'_, Tail> {
    /// Makes a packet ready to go to another worker, whose clock its time of arrival may move.
    ///
    /// A function may have written any time: it is limited to the millisecond that now is.
    #[inline]
    pub fn departs(&mut self, packet: &mut Packet) {
        if self.0.follows_arrivals {
            packet.set_received_at(packet.received_at().min(last_arrival(self.0.now())));
        }
    }
    /// Whether a packet from another worker may be taken now. It moves the clock where only arrivals do.
    ///
    /// Where an event is due before, the clock goes to that event's time instead, and the node asks again in its
    /// next turn.
    #[inline]
    pub fn arrives(&mut self, packet: &Packet) -> bool {
        if !self.0.follows_arrivals {
            return true;
        }
        let time = packet.received_at();
        if !self.0.approach(time) {
            return false;
        }
        self.0.advance(time - time % MILLISECOND);
        true
    }
    /// Counts packets that this node passes to its copy on another worker: they are no longer this graph's.
    #[inline]
    pub fn handoff_out(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_out(packets, bytes);
    }
    /// Counts packets from this node's copy on another worker, which counted them as
    /// [`handoff_out`](Self::handoff_out).
    #[inline]
    pub fn handoff_in(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_in(packets, bytes);
    }
    /// Says whether the node waits for room at other workers: the graph then polls no source that leads to it.
    #[inline]
    pub fn set_blocked(&mut self, blocked: bool) {
        self.0.set_blocked(blocked);
    }
}

/// A context without a graph, for a queue or a node that runs alone.
///
/// Tests, benchmarks and ports that wrap other ports use it. No graph sees its counts, so a node that puts its own
/// packets through one leaves its graph's accounts out of balance, and the run says so. It has every role.
pub struct DetachedContext(OwnedContext);

impl DetachedContext {
    /// A context over a pool, at time 0.
    pub fn new(pool: Pool) -> Self {
        Self(Context::new(pool))
    }
    /// Sets the time (ns); it never goes back.
    pub fn advance(&mut self, now: u64) {
        self.0.advance(now);
    }
    /// Drops counted since the last call.
    pub fn take_drops(&mut self) -> Drops {
        self.0.drops.take()
    }
}

impl Deref for DetachedContext {
    type Target = Context;
    fn deref(&self) -> &Context {
        &self.0
    }
}

impl DerefMut for DetachedContext {
    fn deref_mut(&mut self) -> &mut Context {
        &mut self.0
    }
}
