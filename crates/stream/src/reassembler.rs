//! The reassembler: finds the connection of each segment, applies the rules, and delivers what the segment
//! makes known.

use std::marker::PhantomData;

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Table};

use super::acceptability::{
    is_acceptable, is_another, is_signed_as_agreed, lies_beyond_no_window, may_acknowledge, may_be_signed_so,
    note_unacceptable, update_window,
};
use super::blocks::{BLOCK, Blocks, MOST};
use super::connection::{Connection, Connections, Direction, ORIGIN, Phase, Side, Stage, Start};
use super::following::{Following, Teller, close};
use super::initial_sequence::{fall_back, initial_sequence, opens_anew};
use super::segment::{Protocol, Segment, Signature};
use super::settings::{Full, StreamConfig, StreamError};
use super::{Delivery, End};
use netbricks_core::StoredFlow;
use netbricks_core::state::TableKey;

/// The most overdue connections that a new connection ends.
const EXPIRED_BY_NEW: usize = 2;

/// Counters of a reassembler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were followed.
    pub connections: u64,
    /// New connections for which there was no place.
    pub refused_connections: u64,
    /// Connections that ended because their place or memory was needed.
    pub evicted: u64,
    /// Connections that ended because they were silent for too long.
    pub expired: u64,
    /// Segments that were stored because bytes before them are missing.
    pub out_of_order: u64,
    /// Segments with nothing new: retransmissions, keep-alives.
    pub old: u64,
    /// Segments that did not count: outside any window, of a connection that is over, or behind its end.
    pub ignored: u64,
    /// Segments that found no room.
    pub refused: u64,
    /// Gaps that were delivered.
    pub gaps: u64,
    /// Bytes in those gaps.
    pub gap_bytes: u64,
    /// Bytes that were delivered.
    pub bytes: u64,
    /// Ends of directions that moved to another worker, and that no user function was told of for lack of
    /// memory.
    pub untold: u64,
}

/// The outcome of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was next, or had no bytes. The bytes that it made known were delivered.
    InOrder,
    /// It waits for bytes before it.
    Waits,
    /// Its bytes were known before.
    Old,
    /// It does not count.
    Ignored,
    /// It found no room, as if it had been lost.
    Refused,
}

/// Puts the segments of many connections into order.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use netbricks_core::packet::{FlowKey, Tcp};
/// use netbricks_stream::{Reassembler, Segment, StreamConfig, What};
///
/// let mut streams = Reassembler::<Tcp>::new(StreamConfig::default())?;
/// let address = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
/// let flow = FlowKey::new(address(1), address(2), 1000, 80, 6);
/// let mut told = Vec::new();
/// for (number, bytes) in [(4_294_967_294, "GE"), (2, "/"), (0, "T ")] {
///     let segment = Segment { number, bytes: bytes.as_bytes(), ..Segment::default() };
///     streams.push(flow, segment, 0, |delivery| match delivery.what {
///         What::Bytes(bytes) => told.extend_from_slice(bytes),
///         other => panic!("{other:?}"),
///     });
/// }
/// assert_eq!(told, b"GET /");
/// # Ok::<(), netbricks_stream::StreamError>(())
/// ```
pub struct Reassembler<P: Protocol> {
    pub(super) config: StreamConfig,
    /// The most blocks of a connection.
    pub(super) share: usize,
    pub(super) index: FlowTable<StoredFlow, u32>,
    pub(super) connections: Connections,
    pub(super) blocks: Blocks,
    expired_by_new: usize,
    pub(super) counters: Counters,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol> Reassembler<P> {
    /// A reassembler that follows no connection yet.
    ///
    /// # Errors
    /// [`StreamError`]: a bound of 0, bounds that don't fit each other, or memory that can't be had.
    pub fn new(config: StreamConfig) -> Result<Self, StreamError> {
        let StreamConfig { flows, flow_memory, memory, idle, seed, .. } = config;
        let share = flow_memory / BLOCK;
        if share == 0 {
            return Err(StreamError::FlowMemory { flow_memory });
        }
        if memory < flow_memory {
            return Err(StreamError::Memory { memory, flow_memory });
        }
        if memory / BLOCK > MOST {
            return Err(StreamError::TooMuch { memory, most: MOST.saturating_mul(BLOCK) });
        }
        if idle == 0 {
            return Err(StreamError::Idle);
        }
        Ok(Self {
            config,
            share,
            index: FlowTable::new(FlowTableConfig { seed, ..FlowTableConfig::new(flows) })?,
            connections: Connections::new(flows, idle)?,
            blocks: Blocks::indexed(memory / BLOCK)?,
            expired_by_new: EXPIRED_BY_NEW,
            counters: Counters::default(),
            protocol: PhantomData,
        })
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
    /// Connections that it follows, including those that are over and not forgotten yet.
    pub fn len(&self) -> usize {
        self.index.len()
    }
    /// Whether it follows no connection.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
    /// The most connections that it follows at a time.
    pub fn capacity(&self) -> usize {
        self.config.flows
    }
    /// Bytes of memory that out-of-order segments take now, and the most that they ever took.
    pub fn memory(&self) -> (usize, usize) {
        (self.blocks.used() as usize * BLOCK, self.blocks.high_water as usize * BLOCK)
    }

    /// Takes a segment of `flow` that arrived at `now` (ns), and delivers its new bytes, gaps and ends.
    ///
    /// `flow` is the key from the segment's sender to its receiver. The work is bounded by the segment's
    /// bytes, by the bytes that are delivered or discarded because of it, and by two connections that end.
    /// The number of bytes that wait adds only a logarithm.
    pub fn push(
        &mut self,
        flow: FlowKey,
        segment: Segment<'_>,
        now: u64,
        deliver: impl FnMut(Delivery<'_>),
    ) -> Arrival {
        self.take(flow, segment, now, true, deliver)
    }

    /// As [`push`](Self::push), after [`settle`](Self::settle) has decided which opening counts.
    pub(super) fn push_settled(
        &mut self,
        flow: FlowKey,
        segment: Segment<'_>,
        now: u64,
        deliver: impl FnMut(Delivery<'_>),
    ) -> Arrival {
        self.take(flow, segment, now, false, deliver)
    }

    #[inline]
    fn take(
        &mut self,
        flow: FlowKey,
        segment: Segment<'_>,
        now: u64,
        settles: bool,
        mut deliver: impl FnMut(Delivery<'_>),
    ) -> Arrival {
        let canonical = flow.canonical();
        let way = usize::from(canonical != flow);
        let known = match self.index.lookup(canonical.store(), now) {
            Entry::Found(number) => Some(*number.get()),
            Entry::Vacant(_) | Entry::Full => None,
        };
        if let Some(number) = known {
            let silent = self.connections.deadline(number) <= now;
            if !silent && !may_be_signed_so(self.connections.get(number), way, &segment) {
                self.counters.ignored += 1;
                return Arrival::Ignored;
            }
            if settles {
                self.settle(number, way, &segment, now, &mut deliver);
            }
            let mut tell = Teller { counters: &mut self.counters, deliver: &mut deliver };
            let connection = self.connections.get(number);
            if silent || is_another(connection, way, &segment, P::BITS) {
                let connection = self.connections.at(number);
                let end = if silent { End::Idle } else { End::Replaced };
                tell.counters.expired += u64::from(silent);
                close(connection, number, end, &mut self.blocks, &mut tell);
                self.begin_again(number, client(way, &segment), now);
            }
            return self.arrived(number, way, segment, now, &mut deliver);
        }
        if segment.aborts || segment.says_nothing() || segment.signature == Signature::Several {
            // Its connection would end at once, or would not be opened.
            self.counters.ignored += 1;
            return Arrival::Ignored;
        }
        self.expire(now, self.expired_by_new, &mut deliver);
        match self.open(canonical.words(), client(way, &segment), now, &mut deliver) {
            Some(number) => self.arrived(number, way, segment, now, &mut deliver),
            None => {
                self.counters.refused_connections += 1;
                Arrival::Refused
            }
        }
    }

    /// Starts a new connection of the same ends in the place of one that was closed.
    pub(super) fn begin_again(&mut self, number: u32, client: usize, now: u64) {
        self.counters.connections += 1;
        let connection = self.connections.at(number);
        let Connection { key, stage, older, newer, .. } = *connection;
        *connection = Connection { stage, older, newer, ..Connection::new(key, client, now) };
    }

    /// Ends at most `most` connections that were silent for too long at `now` (ns). Answers how many it
    /// ended.
    pub fn expire(&mut self, now: u64, most: usize, mut deliver: impl FnMut(Delivery<'_>)) -> usize {
        for ended in 0..most {
            let Some(oldest) = self.overdue(now) else { return ended };
            self.counters.expired += 1;
            self.end(oldest, End::Idle, &mut deliver);
        }
        most
    }

    /// Ends all connections. Call it when no more segments come.
    pub fn finish(&mut self, mut deliver: impl FnMut(Delivery<'_>)) {
        while let Some(oldest) = self.connections.oldest() {
            self.end(oldest, End::Drained, &mut deliver);
        }
    }

    /// When the first connection will have been silent for too long (ns), if it stays silent until then.
    pub fn next_expiry(&self) -> Option<u64> {
        self.connections.next_overdue().map(|number| self.connections.deadline(number))
    }

    /// The connections heard at `now` (ns) that were heard last at each stage.
    pub(super) fn heard_at(&self, now: u64) -> impl Iterator<Item = u32> {
        self.connections.newest_each().filter(move |number| self.connections.get(*number).heard == now)
    }
    /// A connection that was silent for too long at `now` (ns).
    pub(super) fn overdue(&self, now: u64) -> Option<u32> {
        self.connections.next_overdue().filter(|number| self.is_overdue(*number, now))
    }
    /// Whether this connection was silent for too long at `now` (ns).
    pub(super) fn is_overdue(&self, number: u32, now: u64) -> bool {
        self.connections.deadline(number) <= now
    }

    /// Sets shorter limits (ns) for connections whose handshake is not complete, and for those that are over.
    ///
    /// The caller states the stage of each connection with [`comes_to`](Self::comes_to). A new connection no
    /// longer ends overdue ones.
    pub(super) fn forget_sooner(&mut self, opening: u64, over: u64) {
        self.connections.limits[Stage::Opening as usize] = opening.min(self.config.idle);
        self.connections.limits[Stage::Over as usize] = over.min(self.config.idle);
        self.expired_by_new = 0;
    }
    /// Sets the stage of a connection of which a segment arrived just now, unless the connection is over.
    pub(super) fn comes_to(&mut self, number: u32, stage: Stage) {
        let stage = if self.connections.get(number).is_over() { Stage::Over } else { stage };
        self.connections.comes_to(number, stage);
    }
    /// The stage of a connection.
    pub(super) fn stage(&self, number: u32) -> Stage {
        self.connections.get(number).stage
    }
    /// The connection to give up first, if there is one that can be given up.
    ///
    /// It is the oldest connection that is over, else the oldest whose handshake is not complete.
    pub(super) fn expendable(&self) -> Option<u32> {
        [Stage::Over, Stage::Opening].into_iter().find_map(|stage| self.connections.oldest_of(stage))
    }
    /// Forgets a connection without delivering its end.
    pub(super) fn forget(&mut self, number: u32, end: End) {
        match end {
            End::Idle => self.counters.expired += 1,
            End::Moved => {}
            _ => self.counters.evicted += 1,
        }
        self.end(number, end, &mut |_| ());
    }

    /// Ends a connection that stays known, without delivering its end, and sets its stage.
    pub(super) fn reset(&mut self, number: u32, stage: Stage) {
        let mut tell = Teller { counters: &mut self.counters, deliver: &mut |_: Delivery<'_>| () };
        close(self.connections.at(number), number, End::Reset, &mut self.blocks, &mut tell);
        self.connections.comes_to(number, stage);
    }
    /// A segment of the connection was heard at `now` (ns).
    pub(super) fn heard(&mut self, number: u32, now: u64) {
        self.connections.heard(number, now);
    }
    /// When the last segment of the connection was heard (ns).
    pub(super) fn last_heard(&self, number: u32) -> u64 {
        self.connections.get(number).heard
    }
    /// The connection that was silent longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.connections.oldest()
    }
    /// The numbers of all connections.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.numbers()
    }
    /// A connection's canonical key.
    pub(super) fn key(&self, number: u32) -> FlowKey {
        FlowKey::from_words(self.connections.get(number).key)
    }
    /// A direction of a connection.
    pub(super) fn direction(&self, number: u32, side: Side) -> &Direction {
        let connection = self.connections.get(number);
        &connection.directions[connection.way(side)]
    }
    /// The number of a direction's first byte.
    pub(super) fn first(&self, number: u32, side: Side) -> u32 {
        (self.direction(number, side).first - ORIGIN) as u32
    }
    /// The progress of a direction of a connection in bytes, unless it ended or never began.
    pub(super) fn progress(&self, number: u32, side: Side) -> Option<u64> {
        let direction = self.direction(number, side);
        (direction.phase == Phase::Open).then(|| direction.offset())
    }
    /// The flow key of a direction, from its sender to its receiver.
    pub(super) fn flow(&self, number: u32, side: Side) -> FlowKey {
        let connection = self.connections.get(number);
        let key = FlowKey::from_words(connection.key);
        // The direction of the canonical key is number 0.
        if (connection.client == 0) == (side == Side::Client) { key } else { key.reversed() }
    }

    /// The bytes that wait in a direction of a connection for missing bytes before them.
    pub(super) fn waiting(&self, number: u32, side: Side) -> usize {
        self.direction(number, side).waiting.bytes as usize
    }
    /// Discards the waiting bytes of a direction, which its sender has to send again. Answers how many.
    pub(super) fn throw_away(&mut self, number: u32, side: Side) -> u64 {
        let connection = self.connections.at(number);
        let waiting = &mut connection.directions[connection.way(side)].waiting;
        let bytes = waiting.bytes;
        self.blocks.clear(waiting);
        bytes
    }

    /// The connection of `flow` and its direction, if it is followed.
    pub fn side(&self, flow: FlowKey) -> Option<(u32, Side)> {
        let canonical = flow.canonical();
        let number = *self.index.get(&canonical.store())?;
        let way = usize::from(canonical != flow);
        let client = self.connections.get(number).client == way;
        Some((number, if client { Side::Client } else { Side::Server }))
    }

    fn open(
        &mut self,
        key: [u64; 5],
        client: usize,
        now: u64,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Option<u32> {
        if self.index.len() == self.config.flows {
            if self.config.full == Full::Refuse {
                return None;
            }
            self.counters.evicted += 1;
            self.end(self.connections.oldest()?, End::Evicted, deliver);
        }
        let Entry::Vacant(place) = self.index.lookup(stored(key), now) else { return None };
        let number = self.connections.add(Connection::new(key, client, now))?;
        place.insert(number);
        self.counters.connections += 1;
        Some(number)
    }

    /// Continues a connection from its state elsewhere.
    pub(super) fn resume(&mut self, connection: &Connection) -> Option<u32> {
        let Entry::Vacant(place) = self.index.lookup(stored(connection.key), connection.heard) else {
            return None;
        };
        let number = self.connections.add(*connection)?;
        place.insert(number);
        self.counters.connections += 1;
        Some(number)
    }

    /// Ends a connection and forgets it.
    fn end(&mut self, number: u32, end: End, deliver: &mut impl FnMut(Delivery<'_>)) {
        let mut tell = Teller { counters: &mut self.counters, deliver };
        let connection = self.connections.at(number);
        close(connection, number, end, &mut self.blocks, &mut tell);
        self.index.remove(&stored(connection.key));
        self.connections.remove(number);
    }

    fn arrived(
        &mut self,
        number: u32,
        way: usize,
        mut segment: Segment<'_>,
        now: u64,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Arrival {
        let mut tell = Teller { counters: &mut self.counters, deliver };
        let connection = self.connections.at(number);
        if !is_signed_as_agreed(connection, way, &segment, P::BITS) {
            tell.counters.ignored += 1;
            return Arrival::Ignored;
        }
        // This comes first, since the acknowledgment of a segment that does not count does not count either.
        if !is_acceptable(connection, way, &segment, &self.blocks, P::BITS)
            && !lies_beyond_no_window(&mut connection.directions[way], &segment, now, P::BITS)
            || connection.is_over()
        {
            // Such a segment does not count as heard. If the ends continue with bytes that were not seen, the
            // connection becomes idle, and is followed again from there.
            note_unacceptable(connection, way, &segment, &self.blocks, P::BITS);
            tell.counters.ignored += 1;
            return Arrival::Ignored;
        }
        self.connections.heard(number, now);
        let connection = self.connections.at(number);
        let anew = opens_anew(connection, way, &segment, &self.blocks, P::BITS);
        let may_acknowledge = may_acknowledge(&connection.directions[way], &segment, P::BITS);
        if let Some(advertised) = segment.advertised.filter(|_| may_acknowledge) {
            update_window(connection, way, &segment, advertised, P::BITS);
        }
        if let Some(acknowledged) = segment.acknowledges.filter(|_| may_acknowledge) {
            let mut other = Following::new(connection, number, 1 - way, &mut self.blocks, &mut tell);
            if other.direction.start == Start::Opened {
                other.opening_acknowledged(acknowledged, P::BITS);
            }
            if self.config.gaps_by_acknowledgment {
                other.acknowledged(acknowledged, P::BITS);
            }
            other.direction.is_acknowledged(acknowledged, P::BITS);
        }
        if segment.aborts {
            if !fall_back(connection, way, &mut self.blocks) {
                close(connection, number, End::Reset, &mut self.blocks, &mut tell);
            }
            return Arrival::InOrder;
        }
        if segment.opens
            && !segment.answers
            && connection.has_told_nothing()
            && !connection.directions[1 - way].is_opened()
        {
            // Segments that were heard before did not begin the connection.
            connection.client = way;
        }
        let direction = &mut connection.directions[way];
        if direction.phase == Phase::Unseen && segment.says_nothing() {
            return Arrival::InOrder;
        }
        if direction.may_be_garbage(&segment, P::BITS) {
            segment.bytes = &[];
        }
        direction.corrects_start(segment.number, P::BITS);
        if direction.phase == Phase::Unseen || anew {
            let start = match segment {
                Segment { opens: true, .. } => Start::Opened,
                Segment { bytes: [], ends: false, .. } => Start::Bare,
                _ => Start::Middle,
            };
            self.blocks.clear(&mut direction.waiting);
            direction.open(initial_sequence(&segment), start);
        } else if segment.opens && !direction.is_opened() {
            // The segment has the number of the direction's first byte.
            (direction.start, direction.offer) = (Start::Opened, initial_sequence(&segment).offer);
        }
        if let Some(urgent) = segment.urgent {
            connection.directions[way].is_urgent_at(urgent, P::BITS);
        }
        let shares = connection_shares(self.share, connection, way);
        let mut following = Following::new(connection, number, way, &mut self.blocks, &mut tell);
        let arrival = following.take(&segment, P::BITS, self.config.overlap, shares);
        if arrival == Arrival::Refused {
            return self.make_room(number, way, segment, deliver);
        }
        arrival
    }

    /// Makes room for a segment that found none, by the policy [`Full`].
    #[cold]
    fn make_room(
        &mut self,
        number: u32,
        way: usize,
        segment: Segment<'_>,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Arrival {
        let refused = Arrival::Refused;
        match self.config.full {
            Full::Refuse => {}
            Full::SkipGap => {
                let mut tell = Teller { counters: &mut self.counters, deliver };
                let connection = self.connections.at(number);
                let shares = connection_shares(self.share, connection, way);
                let mut following = Following::new(connection, number, way, &mut self.blocks, &mut tell);
                // Either waiting bytes are delivered, or no bytes wait here and the new segment is delivered.
                if following.direction.waiting.is_empty() {
                    following.skip_as_far_as(following.direction.position(segment.number, P::BITS));
                } else {
                    following.skip_gap();
                }
                let arrival = following.take(&segment, P::BITS, self.config.overlap, shares);
                if arrival != refused {
                    return arrival;
                }
                // Its direction holds nothing any more, so the other direction has the whole share. The
                // segment is delivered at once.
                following.flush();
                following.skip_as_far_as(following.direction.position(segment.number, P::BITS));
                return following.take(&segment, P::BITS, self.config.overlap, shares);
            }
            Full::Evict => {
                let need = segment.bytes.len().div_ceil(BLOCK);
                if self.connections.get(number).blocks() + need > self.share {
                    self.counters.evicted += 1;
                    let mut tell = Teller { counters: &mut self.counters, deliver };
                    let connection = self.connections.at(number);
                    close(connection, number, End::Evicted, &mut self.blocks, &mut tell);
                    return refused;
                }
                // The connection that was silent longest, unless it is this one. It may hold no memory; then
                // the next segment without room ends the next connection.
                if let Some(oldest) = self.connections.oldest().filter(|oldest| *oldest != number) {
                    self.counters.evicted += 1;
                    self.end(oldest, End::Evicted, deliver);
                    let mut tell = Teller { counters: &mut self.counters, deliver };
                    let connection = self.connections.at(number);
                    let shares = connection_shares(self.share, connection, way);
                    let mut following = Following::new(connection, number, way, &mut self.blocks, &mut tell);
                    let arrival = following.take(&segment, P::BITS, self.config.overlap, shares);
                    if arrival != refused {
                        return arrival;
                    }
                }
            }
        }
        self.counters.refused += 1;
        refused
    }
}

/// The key as the index stores it, from words that are the same on all machines.
fn stored(key: [u64; 5]) -> StoredFlow {
    FlowKey::from_words(key).store()
}

/// The blocks that a direction may have: the connection's share without the blocks of the other direction.
fn connection_shares(share: usize, connection: &Connection, way: usize) -> usize {
    share.saturating_sub(connection.directions[1 - way].waiting.blocks as usize)
}

/// The index of the client's direction, if this segment is the connection's first.
fn client(way: usize, segment: &Segment<'_>) -> usize {
    if segment.answers { 1 - way } else { way }
}

impl<P: Protocol> std::fmt::Debug for Reassembler<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reassembler")
            .field("connections", &self.len())
            .field("memory", &self.memory())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
