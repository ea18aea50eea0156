//! One connection: its two directions, and its place in the order of the last time that each connection was
//! heard.

use netbricks_core::tables::MemoryError;

use super::acceptability::REACH;
use super::blocks::{Blocks, List, NONE, Piece};
use super::initial_sequence::InitialSequence;
use super::memory::room;
use super::segment::{Segment, Signatures};

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// From the end that opened it; where that was not seen, from the end that was heard first.
    Client,
    /// To the end that opened it.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The phase of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No segment was seen.
    Unseen,
    /// Its bytes are followed.
    Open,
    /// Its end was delivered.
    Ended,
}

/// The source of the number of a direction's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// From the segment that opened it, which may be one of several, and forged.
    Opened,
    /// From a segment in its middle, which had bytes.
    Middle,
    /// From a segment in its middle without bytes.
    ///
    /// It may be a keep-alive or a window probe, whose number is one less than the number of the next byte.
    Bare,
    /// From the segment that opened it, which the other end acknowledged.
    Agreed,
}

/// The stage of a connection. Some callers forget connections sooner at some stages than at others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No other stage was stated.
    Open,
    /// Its ends have not agreed yet: one of them may not exist.
    Opening,
    /// Both directions ended.
    Over,
}

/// Whether a sender shifts the windows that it advertises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowScale {
    /// Its first segment was not seen.
    Unseen,
    /// No.
    None,
    /// By so many bits, if the other side offers it too.
    Shift(u8),
}

/// The end, or the time, is not known.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// Nanoseconds within which a receiver answers.
///
/// A sender that hears nothing for this time sends its first unacknowledged segment again (RFC 6298, section
/// 2.1), and no later one.
const ANSWERS_WITHIN: u64 = 1_000_000_000;

/// The position of the transport's number 0.
///
/// Positions are the transport's numbers without wrapping. The first position is the first number plus this
/// constant, so that there are always positions before it.
pub(super) const ORIGIN: u64 = 1 << 62;

/// All positions lie before this one.
///
/// Numbers have 62 bits at most, and no sender has so many bytes that its numbers wrap twice. Windows have
/// room behind this position.
pub(super) const LIMIT: u64 = 3 * ORIGIN;

/// One direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) phase: Phase,
    pub(super) start: Start,
    /// Position of the first byte.
    pub(super) first: u64,
    /// Position of the byte that is delivered next.
    pub(super) next: u64,
    /// Position behind the last byte.
    pub(super) end: u64,
    /// Position of the first byte of the run that said where the end is.
    pub(super) end_from: u64,
    /// Position behind the last byte that its receiver said it takes.
    pub(super) edge: u64,
    /// When a segment first came from behind `edge` since the receiver last answered (ns). Not known after a
    /// move.
    pub(super) beyond: u64,
    /// Position behind the last byte that its receiver acknowledged, as far as that was seen.
    ///
    /// It is 0 where the receiver acknowledged nothing. Not known after a move.
    pub(super) acknowledged: u64,
    /// Another segment that opens it, if there was one.
    ///
    /// The reassembler does not know yet which of the two counts. Not known after a move.
    pub(super) rival: Option<InitialSequence>,
    /// The window scale that its sender, who receives the other direction, offered.
    pub(super) offer: WindowScale,
    /// How its sender signs its segments.
    pub(super) signatures: Signatures,
    /// Position of the urgent byte, as long as it is not before `next`.
    pub(super) urgent: u64,
    /// How many urgent bytes there were.
    pub(super) taken_out: u64,
    /// Bytes that came with its opening, which wait at the first byte.
    ///
    /// It is not known yet whether the receiver took them.
    pub(super) held: u32,
    /// Out-of-order bytes, all of them behind `next`.
    pub(super) waiting: List,
}

impl Direction {
    pub(super) const UNSEEN: Self = Self {
        phase: Phase::Unseen,
        start: Start::Middle,
        first: ORIGIN,
        next: ORIGIN,
        end: UNKNOWN,
        end_from: UNKNOWN,
        edge: UNKNOWN,
        beyond: UNKNOWN,
        acknowledged: 0,
        rival: None,
        offer: WindowScale::Unseen,
        signatures: Signatures::ANY,
        urgent: UNKNOWN,
        taken_out: 0,
        held: 0,
        waiting: List::EMPTY,
    };

    /// The position of a number of `bits` bits: the one nearest to the next byte's position.
    #[inline]
    pub(super) fn position(&self, number: u64, bits: u32) -> u64 {
        let unused = 64 - bits;
        let distance = (number.wrapping_sub(self.next) << unused).cast_signed() >> unused;
        self.next.wrapping_add_signed(distance)
    }

    /// Whether its receiver takes a segment at a position ahead of the next byte, by the windows that were
    /// seen.
    ///
    /// A segment that the receiver does not take never counts. It must not make later bytes look known. A
    /// segment at or before the next byte counts in any case, because the window that permits it may not have
    /// been seen.
    pub(super) fn takes(&self, position: u64, bytes: bool) -> bool {
        // An edge before `next` is out of date: acknowledgments are not seen any more.
        position <= self.next
            || self.edge == UNKNOWN
            || self.edge < self.next
            || position < self.edge + u64::from(!bytes)
    }

    /// Takes note that a segment lies behind the edge, at `now` (ns).
    ///
    /// A receiver that exists answers such a segment (RFC 9293, section 3.10.7.4). Where no answer came for
    /// `ANSWERS_WITHIN`, the receiver's segments are not seen, and the edge is forgotten.
    pub(super) fn comes_beyond(&mut self, now: u64) {
        if self.beyond == UNKNOWN {
            self.beyond = now;
        } else if now.saturating_sub(self.beyond) >= ANSWERS_WITHIN {
            (self.edge, self.beyond) = (UNKNOWN, UNKNOWN);
        }
    }

    /// Whether it has carried nothing but the bytes that came with its opening.
    pub(super) fn is_silent(&self) -> bool {
        self.next == self.first && self.waiting.bytes == u64::from(self.held) && self.end == UNKNOWN
    }

    /// Whether another segment that opens it may be the one that counts.
    pub(super) fn is_undecided(&self) -> bool {
        self.phase == Phase::Open && self.is_opened() && self.is_silent()
    }

    /// Whether the segment that opened it was seen.
    pub(super) fn is_opened(&self) -> bool {
        matches!(self.start, Start::Opened | Start::Agreed)
    }

    /// Position behind everything that was seen of it, whether or not earlier bytes are missing.
    pub(super) fn heard_to(&self, blocks: &Blocks) -> u64 {
        blocks.get(self.waiting.tail).map_or(self.next, Piece::end)
    }

    /// Position of the first byte behind the bytes that came with its opening and are not delivered yet.
    pub(super) fn behind_held(&self) -> u64 {
        self.first + u64::from(self.held)
    }

    /// Whether its positions are in order, have room before and behind them, and end where a segment could
    /// say.
    pub(super) fn is_sound(&self) -> bool {
        self.first >= ORIGIN
            && self.first <= self.next
            && self.next <= self.end
            && self.taken_out <= self.next - self.first
            && Signatures::ANY.0 & self.signatures.0 == self.signatures.0
            && self.signatures.0 != 0
            && self.next < LIMIT
            && self.end_from <= self.end
            && (self.held == 0
                || self.phase == Phase::Open && self.start == Start::Opened && self.next == self.first)
            && (self.end == UNKNOWN || self.end - self.next <= 2 * REACH)
    }

    /// Its own opening, as an [`InitialSequence`].
    pub(super) fn initial_sequence(&self) -> InitialSequence {
        let Self { offer, held, signatures, .. } = *self;
        InitialSequence { number: self.first - ORIGIN, offer, held, signatures }
    }

    /// Begins it with this opening. An earlier opening becomes its rival. No bytes of it wait afterwards.
    pub(super) fn open(&mut self, by: InitialSequence, start: Start) {
        let is_opened = self.is_opened() && self.phase == Phase::Open;
        let rival = if is_opened { Some(self.initial_sequence()) } else { self.rival };
        let rival = rival.filter(|rival| rival.number != by.number);
        let first = ORIGIN + by.number;
        let InitialSequence { offer, signatures, .. } = by;
        let phase = Phase::Open;
        *self = Self { phase, start, first, next: first, rival, offer, signatures, ..Self::UNSEEN };
    }

    /// Whether all that was seen of it may have been a keep-alive.
    ///
    /// Then no bytes wait at its first byte, and it does not end there.
    pub(super) fn may_start_later(&self) -> bool {
        self.phase == Phase::Open
            && self.start == Start::Bare
            && self.next == self.first
            && self.next < self.end
    }

    /// Its receiver says that it has all bytes before this number.
    pub(super) fn is_acknowledged(&mut self, number: u64, bits: u32) {
        let position = self.position(number, bits);
        if self.phase == Phase::Unseen {
            self.acknowledged = position;
        } else if position <= self.next {
            // An acknowledgment of bytes that were never seen may be forged.
            self.acknowledged = self.acknowledged.max(position);
        }
    }

    /// The number of bytes before the next one: bytes in gaps count, urgent bytes do not.
    pub(super) fn offset(&self) -> u64 {
        self.next - self.first - self.taken_out
    }

    /// A segment says that the byte with this number is urgent.
    ///
    /// This does the same as Linux (`tcp_check_urg`) where the application reads the urgent byte before a
    /// further one comes. Of several urgent bytes that are still to come, the last one counts.
    pub(super) fn is_urgent_at(&mut self, number: u64, bits: u32) {
        let position = self.position(number, bits);
        let pending = self.urgent != UNKNOWN && self.urgent >= self.next;
        if self.phase == Phase::Open && position >= self.next && !(pending && position <= self.urgent) {
            self.urgent = position;
        }
    }

    /// Whether the one byte of a segment at the beginning may be a byte that its sender's application never
    /// wrote.
    ///
    /// That is so where the receiver is known to have that byte already. It is also so where the segment
    /// looks like a keep-alive, and nothing shows whether it is one.
    pub(super) fn may_be_garbage(&self, segment: &Segment<'_>, bits: u32) -> bool {
        let begins = match self.phase {
            Phase::Unseen => true,
            _ => self.may_start_later() && self.position(segment.number, bits) == self.next,
        };
        begins
            && segment.bytes.len() == 1
            && !(segment.opens || segment.ends)
            && (segment.may_probe
                || self.acknowledged != 0 && self.position(segment.number, bits) + 1 == self.acknowledged)
    }

    /// A segment has this number.
    ///
    /// Where the first byte's number came from a keep-alive, this corrects it to the next number.
    pub(super) fn corrects_start(&mut self, number: u64, bits: u32) {
        if self.may_start_later() && self.position(number, bits) == self.first + 1 {
            (self.first, self.next) = (self.first + 1, self.next + 1);
            self.start = Start::Middle;
        }
    }
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// Its canonical flow key.
    pub(super) key: [u64; 5],
    /// The direction of the canonical key, then the other direction.
    pub(super) directions: [Direction; 2],
    /// The index of the client's direction.
    pub(super) client: usize,
    /// A reset came that some receivers would take. Any later opening segment opens a new connection.
    pub(super) doubted: bool,
    /// When its last segment was heard (ns).
    pub(super) heard: u64,
    /// The stage whose queue it is in.
    pub(super) stage: Stage,
    /// Its neighbours in that queue, in the order in which they were heard.
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl Connection {
    pub(super) fn new(key: [u64; 5], client: usize, now: u64) -> Self {
        let directions = [Direction::UNSEEN; 2];
        Self {
            key,
            directions,
            client,
            doubted: false,
            heard: now,
            stage: Stage::Open,
            older: NONE,
            newer: NONE,
        }
    }
    /// The index of a side's direction.
    pub(super) fn way(&self, side: Side) -> usize {
        if side == Side::Client { self.client } else { 1 - self.client }
    }
    pub(super) fn is_over(&self) -> bool {
        self.directions.iter().all(|direction| direction.phase == Phase::Ended)
    }
    /// Nothing of it was delivered.
    pub(super) fn has_told_nothing(&self) -> bool {
        self.directions
            .iter()
            .all(|direction| direction.phase != Phase::Ended && direction.next == direction.first)
    }
    /// Both ends acknowledged the other's opening. Only segments that both ends agree with can end it now.
    pub(super) fn is_agreed(&self) -> bool {
        self.directions.iter().all(|direction| direction.start == Start::Agreed)
    }
    pub(super) fn blocks(&self) -> usize {
        self.directions.iter().map(|direction| direction.waiting.blocks as usize).sum()
    }
}

/// The connections of a stage, in the order in which they were last heard.
#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
}

/// Connections, by stage.
#[derive(Debug)]
pub(super) struct Connections {
    all: Vec<Connection>,
    /// The first free place; `newer` leads to the next free one.
    free: u32,
    queues: [Queue; 3],
    /// Nanoseconds of silence after which a connection of a stage is over.
    pub(super) limits: [u64; 3],
    /// Memory for the numbers of all connections, used when they are sorted.
    order: Vec<u32>,
    capacity: usize,
}

impl Connections {
    pub(super) fn new(capacity: usize, idle: u64) -> Result<Self, MemoryError> {
        let queues = [Queue { oldest: NONE, newest: NONE }; 3];
        let order = room(capacity)?;
        Ok(Self { all: room(capacity)?, free: NONE, queues, limits: [idle; 3], order, capacity })
    }
    pub(super) fn at(&mut self, number: u32) -> &mut Connection {
        &mut self.all[number as usize]
    }
    pub(super) fn get(&self, number: u32) -> &Connection {
        &self.all[number as usize]
    }

    /// All connections by stage. Within a stage, the connection that was silent longest comes first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.numbers().map(|number| self.get(number))
    }
    /// The numbers of all connections, in the order of [`iter`](Self::iter).
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let place = |number: u32| (number != NONE).then_some(number);
        self.queues.iter().flat_map(move |queue| {
            std::iter::successors(place(queue.oldest), move |number| place(self.get(*number).newer))
        })
    }

    /// The connection of a stage that was silent longest.
    pub(super) fn oldest_of(&self, stage: Stage) -> Option<u32> {
        Some(self.queues[stage as usize].oldest).filter(|number| *number != NONE)
    }
    fn oldest_each(&self) -> impl Iterator<Item = u32> + use<> {
        self.queues.into_iter().map(|queue| queue.oldest).filter(|number| *number != NONE)
    }
    /// The connection of each stage that was heard last.
    pub(super) fn newest_each(&self) -> impl Iterator<Item = u32> + use<> {
        self.queues.into_iter().map(|queue| queue.newest).filter(|number| *number != NONE)
    }
    /// The connection that was silent longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.oldest_each().min_by_key(|number| self.get(*number).heard)
    }
    /// When a connection will have been silent for too long (ns).
    pub(super) fn deadline(&self, number: u32) -> u64 {
        let Connection { heard, stage, .. } = self.get(number);
        heard.saturating_add(self.limits[*stage as usize])
    }
    /// The connection that will be overdue first, if no connection is heard again.
    pub(super) fn next_overdue(&self) -> Option<u32> {
        self.oldest_each().min_by_key(|number| self.deadline(*number))
    }

    /// Finds a place for a new connection, which was heard now.
    pub(super) fn add(&mut self, connection: Connection) -> Option<u32> {
        let number = if self.free != NONE {
            let number = self.free;
            self.free = self.get(number).newer;
            *self.at(number) = connection;
            number
        } else if self.all.len() < self.capacity {
            // Within the capacity that was reserved at the start.
            self.all.push(connection);
            self.all.len() as u32 - 1
        } else {
            return None;
        };
        self.append(number);
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.unlink(number);
        let free = std::mem::replace(&mut self.free, number);
        self.at(number).newer = free;
    }

    /// A segment of the connection was heard at `now` (ns).
    pub(super) fn heard(&mut self, number: u32, now: u64) {
        let stage = self.get(number).stage;
        self.at(number).heard = now;
        if self.queues[stage as usize].newest != number {
            self.unlink(number);
            self.append(number);
        }
    }

    /// The connection was heard just now, and is at this stage.
    pub(super) fn comes_to(&mut self, number: u32, stage: Stage) {
        if self.get(number).stage != stage {
            self.unlink(number);
            self.at(number).stage = stage;
            self.append(number);
        }
    }

    /// Sorts all queues by the time at which their connections were heard.
    ///
    /// This is needed after connections were added that had been heard earlier than others already here.
    pub(super) fn sort(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.extend(self.numbers());
        // Until a connection is in a queue again, `older` holds its place in the old order. So connections
        // with equal times keep their order.
        for (place, number) in (0..).zip(&order) {
            self.at(*number).older = place;
        }
        order.sort_unstable_by_key(|number| (self.get(*number).heard, self.get(*number).older));
        self.queues = [Queue { oldest: NONE, newest: NONE }; 3];
        order.drain(..).for_each(|number| self.append(number));
        self.order = order;
    }

    fn append(&mut self, number: u32) {
        let queue = &mut self.queues[self.all[number as usize].stage as usize];
        let older = std::mem::replace(&mut queue.newest, number);
        match older {
            NONE => queue.oldest = number,
            _ => self.at(older).newer = number,
        }
        let connection = self.at(number);
        (connection.older, connection.newer) = (older, NONE);
    }

    fn unlink(&mut self, number: u32) {
        let Connection { older, newer, stage, .. } = *self.get(number);
        let stage = stage as usize;
        match older {
            NONE => self.queues[stage].oldest = newer,
            _ => self.at(older).newer = newer,
        }
        match newer {
            NONE => self.queues[stage].newest = older,
            _ => self.at(newer).older = older,
        }
    }
}
