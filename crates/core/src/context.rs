//! What a node may use while it has a batch, and where what leaves its hands goes.
//!
//! The graph owns it; it outlives a panic in a node, so that nothing in it is lost or counted twice.
//!
//! A node cannot replace it: [`Context`] has no constructor, and its type has no size that safe code could move or swap.
//! What only a port may say (the time, packets from outside and to it) is in [`Receiving`] and [`Transmitting`], which the
//! graph gives to nodes of that [role](crate::Role) alone.

use std::ops::{Deref, DerefMut};

use netbricks_buffer::{BATCH, Batch, Packet, Pool};

use crate::counters::{Count, Dropping, Drops};
use crate::node::Role;
use crate::reason::{DropReason, Edge};
use crate::recorder::Recorder;

/// The clock, the pool, and the way out for packets that do not stay in the batch.
///
/// There is one a graph, and the graph lends it to the node in hand. `Tail` makes the lent type unsized, so that no author
/// can put another in its place. Where there is no graph, [`DetachedContext`] has one to lend.
pub struct Context<Tail: ?Sized = [()]> {
    now: u64,
    /// When the graph's next event is due (ns).
    pub(crate) deadline: u64,
    /// Whether somebody said what time it is, if `now` is 0.
    pub(crate) began: bool,
    /// Deadlines that a source went to since its last arrival.
    steps: u32,
    pool: Pool,
    /// What the node in hand did beside passing its batch on: the graph looks no further where it is 0.
    pub(crate) effects: u8,
    pub(crate) drops: Dropping,
    pub(crate) sent: Count,
    pub(crate) lost_on_arrival: Count,
    /// Packets that the node in hand made and kept in its own hand.
    pub(crate) made: Count,
    /// Packets that the node in hand gave to other workers and took over from them.
    pub(crate) handoff_out: Count,
    pub(crate) handoff_in: Count,
    /// Shuffles that wait for room and queues that are full, a bit each, and the bit of each node that is one.
    pub(crate) blocked: u64,
    pub(crate) handoffs: Vec<u64>,
    pub(crate) queues: Vec<u64>,
    /// What other workers send says what time it is, as what is received does.
    pub(crate) follows_arrivals: bool,
    pub(crate) burst: usize,
    /// Packets on their way to another edge than `OUT`.
    pub(crate) leaving: Vec<Leaving>,
    /// How many of them are new; they become real only when the call that made them returns.
    newborn: usize,
    /// How many of these are answers, and to the packet in each slot.
    answered: usize,
    answers: [u8; BATCH],
    pub(crate) recorder: Recorder,
    pub(crate) node: usize,
    /// Whether a lookup has met packets in this batch that its usual loops have nothing for: frames of another shape than most,
    /// without ports where its keys have some, or long keys. Only how it is done depends on it, never what.
    pub(crate) mixed: bool,
    /// Whether bytes may be missing behind the last of packets in this batch: then their lengths are looked up.
    pub(crate) cut: bool,
    /// The role of each node; empty where there is no graph.
    pub(crate) roles: Vec<Role>,
    _unsized: Tail,
}

/// A context as its owner has it.
pub(crate) type OwnedContext = Context<[(); 0]>;

/// A packet on its way to another edge than `OUT`.
pub(crate) struct Leaving {
    /// Slot, whether it is new, and how many were leaving before it; 0 for the slot where no loop over a batch sent it.
    pub(crate) order: u64,
    pub(crate) edge: Edge,
    pub(crate) new: bool,
    pub(crate) packet: Packet,
}

/// Bits of [`Leaving::order`] below the slot's.
const SLOT: u32 = 33;
/// In [`Leaving::order`]: behind what the slot's own packet became.
const NEW: u64 = 1 << 32;

/// New packets that one call of a node may [create](Context::create), or one run of an event inject.
pub const CREATED_LIMIT: usize = 2 * BATCH;
/// Answers that a packet may get from all functions that are fused into one node together: they do not multiply traffic without
/// bound. By packet, so that it makes no difference how many packets a batch has.
pub const ANSWERS_LIMIT: usize = 8;

/// As much as for answers of a whole batch for segments of streams, which are what came and no answer to it.
pub(crate) const SEGMENTS_LIMIT: usize = 8 * BATCH;
/// More segments than it brings that a packet of a stream may send.
pub const SEGMENTS_A_PACKET: usize = 4;

/// Deadlines to which a source goes one by one between two arrivals. Where there are more (a capture with a hole of years),
/// the rest of them are missed, so that no time stamp makes a graph run for ever.
const STEPS: u32 = 1_024;

/// How far apart the arrivals of a batch may be (ns).
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// The last time at which a packet may have arrived that is in a graph at time `now` (ns): the end of that millisecond.
///
/// A batch holds arrivals of one millisecond. What acts on a packet's own time, as a line with a delay does, takes none later
/// than this: a function could have written it.
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
            newborn: 0,
            answered: 0,
            answers: [0; BATCH],
            recorder: Recorder::default(),
            node: 0,
            mixed: false,
            cut: false,
            roles: Vec::new(),
            _unsized: [],
        }
    }
}

impl<Tail: ?Sized> Context<Tail> {
    /// The time in ns: since the epoch of the clock that drives the graph. It stands still within a batch.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }
    /// As [`Receiving::advance`].
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }
    /// When the graph's next event is due (ns); [`u64::MAX`] where there is none. A batch never spans it: a source that
    /// drives the clock ends its batch before the first arrival at or after this time.
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
    /// Whether the clock has begun to go: periods are counted from there, and not from 1970.
    pub(crate) fn knows_time(&self) -> bool {
        self.began || self.now > 0
    }
    /// Where new packets come from.
    #[inline(always)]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many packets a source may put into its batch this turn.
    #[inline(always)]
    pub fn burst(&self) -> usize {
        self.burst
    }

    /// Ends a packet: it is counted under its reason and freed.
    #[inline]
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.effects |= DROPPED;
        self.drops.add(reason, 1, packet.wire_len() as u64);
        self.recorder.record(self.node, reason, self.now, packet.data());
    }

    /// Ends all packets of a batch for one reason.
    pub fn drop_batch(&mut self, batch: &mut Batch, reason: DropReason) {
        if batch.is_empty() {
            return;
        }
        self.effects |= DROPPED;
        self.drops.add(reason, batch.len() as u64, batch.bytes());
        if let Some(first) = batch.get(0) {
            self.recorder.record(self.node, reason, self.now, first.data());
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
        self.recorder.record(self.node, reason, self.now, packet.data());
    }

    /// Counts a packet for which there was no buffer.
    #[cold]
    pub(crate) fn lost_without_buffer(&mut self, length: usize) {
        let reason =
            if length > self.pool.largest_packet() { DropReason::TooBig } else { DropReason::PoolExhausted };
        self.lost_on_creation(reason, length as u64);
    }

    /// Counts a packet that could not be made: created, and dropped at once.
    pub(crate) fn lost_on_creation(&mut self, reason: DropReason, bytes: u64) {
        self.effects |= DROPPED | SENT;
        self.made.add(1, bytes);
        self.drops.add(reason, 1, bytes);
    }

    /// Hands a packet on by an edge; the packet is gone for the caller.
    #[inline]
    pub fn emit(&mut self, edge: Edge, packet: Packet) {
        self.leave(edge, packet, 0);
    }

    /// As [`emit`](Self::emit), of a packet that a loop over the batch found in its `slot`.
    pub(crate) fn emit_from(&mut self, slot: usize, edge: Edge, packet: Packet) {
        self.leave(edge, packet, (slot as u64) << SLOT);
    }

    #[inline]
    fn leave(&mut self, edge: Edge, packet: Packet, order: u64) {
        self.effects |= EMITTED;
        let order = order | self.leaving.len() as u64 & (NEW - 1);
        self.leaving.push(Leaving { order, edge, new: false, packet });
    }

    /// Adds a new packet (an answer, a copy) that leaves on `edge`. If the call that makes it panics, it never was.
    ///
    /// # Errors
    /// Gives the packet back when this call made [`CREATED_LIMIT`] already.
    pub fn create(&mut self, edge: Edge, packet: Packet) -> Result<(), Packet> {
        if self.newborn >= CREATED_LIMIT {
            return Err(packet);
        }
        self.bear(edge, packet, 0);
        Ok(())
    }

    /// As [`create`](Self::create), on behalf of the packet in a `slot` of the batch, which may have [`ANSWERS_LIMIT`]: it leaves
    /// before whatever later slots send away, and after its cause, so that their order does not depend on how packets came in
    /// batches.
    pub(crate) fn create_for(&mut self, slot: usize, edge: Edge, packet: Packet) -> Result<(), Packet> {
        match self.answers.get_mut(slot) {
            Some(answers) if usize::from(*answers) < ANSWERS_LIMIT => *answers += 1,
            _ => return Err(packet),
        }
        self.answered += 1;
        self.bear(edge, packet, (slot as u64) << SLOT | NEW);
        Ok(())
    }

    /// As [`create_for`](Self::create_for), where what cannot leave is counted: created, and dropped at once. Answers whether it
    /// leaves.
    pub(crate) fn answer(&mut self, slot: usize, edge: Edge, packet: Packet) -> bool {
        match self.create_for(slot, edge, packet) {
            Ok(()) => true,
            Err(packet) => {
                self.lost_on_creation(DropReason::RateLimited, packet.len() as u64);
                false
            }
        }
    }

    /// As [`create_for`](Self::create_for), of a segment of a stream that came in that slot's packet or before, of which there is no
    /// number for each packet.
    pub(crate) fn create_segment(&mut self, slot: usize, edge: Edge, packet: Packet) -> Result<(), Packet> {
        if self.newborn - self.answered >= SEGMENTS_LIMIT {
            return Err(packet);
        }
        self.bear(edge, packet, (slot as u64) << SLOT | NEW);
        Ok(())
    }

    /// How many of those that leave are new: the call that made them is over.
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

    /// As [`Receiving::created`].
    #[inline]
    pub(crate) fn created(&mut self, packets: u64, bytes: u64) {
        self.effects |= SENT;
        self.made.add(packets, bytes);
    }

    /// As [`Transmitting::sent`].
    #[inline]
    pub(crate) fn sent(&mut self, packets: u64, bytes: u64) {
        self.effects |= SENT;
        self.sent.add(packets, bytes);
    }

    /// Counts packets that this node of another worker gets from here on: they are no longer this graph's.
    #[inline]
    pub(crate) fn handoff_out(&mut self, packets: u64, bytes: u64) {
        self.effects |= HANDED_OFF;
        self.handoff_out.add(packets, bytes);
    }

    /// Counts packets that came from this node of another worker, where they were counted as [`handoff_out`](Self::handoff_out).
    #[inline]
    pub(crate) fn handoff_in(&mut self, packets: u64, bytes: u64) {
        self.effects |= HANDED_OFF;
        self.handoff_in.add(packets, bytes);
    }

    /// Says whether the shuffle in hand waits for room: whatever leads to it is not polled then.
    #[inline]
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let bit = self.handoffs.get(self.node).copied().unwrap_or_default();
        self.blocked = if blocked { self.blocked | bit } else { self.blocked & !bit };
    }

    /// As [`set_blocked`](Self::set_blocked), of the queue in hand and whether it is full.
    pub(crate) fn set_full(&mut self, full: bool) {
        let bit = self.queues.get(self.node).copied().unwrap_or_default();
        self.blocked = if full { self.blocked | bit } else { self.blocked & !bit };
    }

    /// The queue in hand was empty and is not: it waits no longer among the idle.
    pub(crate) fn wake(&mut self) {
        self.effects |= WOKEN;
    }

    /// The shuffle in hand has state to give away or to take over.
    pub(crate) fn call_on_duty(&mut self) {
        self.effects |= MIGRATION_REQUESTED;
    }

    /// What a receive node may say: the time, and arrivals that never became packets of the graph.
    ///
    /// # Panics
    /// For a node of another role, which its graph [contains](crate::graph) as any panic of the node.
    #[inline]
    pub fn receiving(&mut self) -> Receiving<'_, Tail> {
        self.require(Role::Receive);
        Receiving(self)
    }

    /// What a transmit node may say: how many packets have left.
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

/// What a node of role [`Receive`](Role::Receive) may say to its graph.
pub struct Receiving<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Receiving<'_, Tail> {
    /// Sets the time. A source that replays a capture sets it to what the capture says; it never goes back. Where it
    /// also asks [`approach`](Self::approach), events run exactly on time.
    #[inline(always)]
    pub fn advance(&mut self, now: u64) {
        self.0.advance(now);
    }
    /// For a source that drives the clock and whose batch is empty: whether an arrival at `time` (ns) may be the first
    /// of it. Where an event comes before, the clock goes to that event's time instead; the source then ends its poll with
    /// [`Poll::Busy`](crate::Poll::Busy), and asks again in its next.
    pub fn approach(&mut self, time: u64) -> bool {
        self.0.approach(time)
    }
    /// Counts arrivals that were lost before they became packets (no buffer at a receive queue): received, and
    /// dropped at once.
    pub fn lost_on_arrival(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        self.0.lost_on_arrival(reason, packets, bytes);
    }
    /// Ends an arrival that is lost before the graph has it, for a reason: received, dropped at once, and recorded.
    pub fn drop_arrival(&mut self, packet: Packet, reason: DropReason) {
        self.0.drop_arrival(packet, reason);
    }
    /// Counts packets that a port made and keeps in its own hand: a copy that a wrapper puts into the batch. What leaves
    /// on an edge goes through [`Context::create`].
    #[inline]
    pub fn created(&mut self, packets: u64, bytes: u64) {
        self.0.created(packets, bytes);
    }
}

/// What a node of role [`Transmit`](Role::Transmit) may say to its graph.
pub struct Transmitting<'c, Tail: ?Sized = [()]>(&'c mut Context<Tail>);

impl<Tail: ?Sized> Transmitting<'_, Tail> {
    /// Counts packets of the batch in hand that the node gave to the outside.
    #[inline]
    pub fn sent(&mut self, packets: u64, bytes: u64) {
        self.0.sent(packets, bytes);
    }
    /// Counts packets that a port made and sends itself: the segments of one that was too long.
    #[inline]
    pub fn created(&mut self, packets: u64, bytes: u64) {
        self.0.created(packets, bytes);
    }
    /// Counts packets that this node of another worker sends from here on: they are no longer this graph's.
    #[inline]
    pub fn handoff_out(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_out(packets, bytes);
    }
    /// Counts packets that came from this node of another worker, where they were counted as [`handoff_out`](Self::handoff_out).
    #[inline]
    pub fn handoff_in(&mut self, packets: u64, bytes: u64) {
        self.0.handoff_in(packets, bytes);
    }
}

/// A context of no graph, to run a queue or a node by itself: in a test, a benchmark, a port that wraps another.
///
/// Nothing that is counted in it reaches any graph. It has every role.
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
