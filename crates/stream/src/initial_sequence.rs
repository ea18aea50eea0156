//! The beginning of a connection where several segments open it.
//!
//! A server may answer a client that gave up and tries again. An attacker who knows addresses and ports may
//! send a SYN in a client's name. The opening counts from which both ends continue.

use super::acceptability::{NOT_HELD, answers_what_was_sent};
use super::blocks::Blocks;
use super::connection::{Connection, Direction, Phase, Start, WindowScale};
use super::following::{Teller, close};
use super::reassembler::Reassembler;
use super::segment::{Protocol, Segment, Signature, Signatures};
use super::{Delivery, End};

/// The first number of a direction, from the segment that opens it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitialSequence {
    /// The number of the first byte.
    pub(super) number: u64,
    /// The window scale that its sender offered.
    pub(super) offer: WindowScale,
    /// The number of bytes that came with it.
    pub(super) held: u32,
    /// The signatures that are possible for it.
    pub(super) signatures: Signatures,
}

impl InitialSequence {
    /// Whether a direction with this beginning may go on from a number.
    pub(super) fn is_at(&self, number: u64, signature: Signature, bits: u32) -> bool {
        if !self.signatures.has(signature) {
            return false;
        }
        let behind = (self.number + u64::from(self.held)) & (u64::MAX >> (64 - bits));
        number == self.number || number == behind
    }
}

/// Reads the opening from a segment.
pub(super) fn initial_sequence(segment: &Segment<'_>) -> InitialSequence {
    InitialSequence {
        number: segment.number,
        offer: match segment.advertised {
            Some(advertised) if segment.opens => {
                advertised.shift.map_or(WindowScale::None, WindowScale::Shift)
            }
            _ => WindowScale::Unseen,
        },
        held: if segment.opens { segment.bytes.len() as u32 } else { 0 },
        signatures: Signatures::of(segment.signature),
    }
}

/// Whether a segment states another opening of its direction that may count.
///
/// It may as long as the direction has carried nothing, and not both ends have acknowledged the other's
/// opening. Until then a server may answer a client that has given up and tries again (RFC 4987, section
/// 3.6).
pub(super) fn opens_anew(
    connection: &Connection,
    way: usize,
    segment: &Segment<'_>,
    blocks: &Blocks,
    bits: u32,
) -> bool {
    let (own, other) = (&connection.directions[way], &connection.directions[1 - way]);
    segment.opens
        && own.phase == Phase::Open
        && own.is_silent()
        && !connection.is_agreed()
        && own.position(segment.number, bits) != own.first
        && match segment.answers {
            true => {
                other.is_opened() && answers_what_was_sent(connection, way, segment, NOT_HELD, blocks, bits)
            }
            false => own.is_opened(),
        }
}

/// The direction whose rival opening this segment confirms, if any.
///
/// The segment continues from that opening, or acknowledges it.
#[inline]
fn confirms(connection: &Connection, way: usize, segment: &Segment<'_>, bits: u32) -> Option<usize> {
    if connection.directions.iter().all(|direction| direction.rival.is_none()) {
        return None;
    }
    decides(connection, way, segment, bits)
}

#[cold]
fn decides(connection: &Connection, way: usize, segment: &Segment<'_>, bits: u32) -> Option<usize> {
    let (own, other) = (&connection.directions[way], &connection.directions[1 - way]);
    if segment.aborts {
        return None;
    }
    let agreed = connection.is_agreed();
    // A number that fits both openings decides nothing.
    let is_at = |direction: &Direction, number| {
        direction.rival.is_some_and(|rival| rival.is_at(number, segment.signature, bits))
            && !(direction.is_undecided()
                && direction.initial_sequence().is_at(number, segment.signature, bits))
    };
    if segment.acknowledges.is_some_and(|number| is_at(other, number)) {
        // Either both ends confirm it, or an end does whose first segment this is.
        let may = match segment.answers {
            true => !agreed || own.phase == Phase::Ended || other.phase == Phase::Ended,
            // Any other state of an end that was followed from its middle belongs to another connection.
            false if own.is_opened() && !other.is_opened() => true,
            false => !agreed && other.phase == Phase::Open && other.is_silent(),
        };
        if may {
            return Some(1 - way);
        }
    }
    let goes_on = !segment.opens && is_at(own, segment.number);
    // Where the other direction is not seen, no other segment will tell more.
    let may = !agreed && own.is_undecided() || other.phase == Phase::Unseen;
    (goes_on && may).then_some(way)
}

/// Makes a rival opening count after a reset of direction `way`, and answers whether there was one.
///
/// The reset refuses the known opening, or gives it up.
pub(super) fn fall_back(connection: &mut Connection, way: usize, blocks: &mut Blocks) -> bool {
    if connection.is_agreed() {
        return false;
    }
    // A reset in a direction without any segment refuses the opening of the other direction.
    let of = if connection.directions[way].phase == Phase::Unseen { 1 - way } else { way };
    let direction = &mut connection.directions[of];
    let Some(begins) = direction.rival.filter(|_| direction.is_undecided()) else { return false };
    blocks.clear(&mut direction.waiting);
    direction.open(begins, Start::Opened);
    direction.rival = None;
    true
}

impl<P: Protocol> Reassembler<P> {
    /// Applies a segment of direction `way` to decide between two openings of a direction.
    ///
    /// One of the two may be forged, or given up; later segments show which. Answers whether a direction
    /// began with another opening than assumed.
    #[inline]
    pub(super) fn settle(
        &mut self,
        number: u32,
        way: usize,
        segment: &Segment<'_>,
        now: u64,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let mut settled = false;
        // Both directions may have a rival.
        for _ in 0..2 {
            let Some(which) = confirms(self.connections.get(number), way, segment, P::BITS) else { break };
            let client = match segment.answers {
                true => Some(which),
                // It acknowledges an answer.
                false => Some(way)
                    .filter(|_| way != which && !self.connections.get(number).directions[which].is_opened()),
            };
            self.begin_elsewhere(number, which, client, segment.answers, now, deliver);
            settled = true;
        }
        settled
    }

    /// Begins a direction with its rival opening instead of the assumed one.
    ///
    /// The segment that decides may answer that opening, or show which end is the client.
    #[cold]
    fn begin_elsewhere(
        &mut self,
        number: u32,
        way: usize,
        client: Option<usize>,
        answered: bool,
        now: u64,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let connection = self.connections.at(number);
        let Some(begins) = connection.directions[way].rival.take() else { return };
        let [own, other] = [way, 1 - way].map(|way| &connection.directions[way]);
        // Else the direction carried more than an opening, and that was another connection.
        let same = own.phase == Phase::Open && own.is_silent() && (!answered || other.is_silent());
        if same {
            self.blocks.clear(&mut connection.directions[way].waiting);
            if connection.has_told_nothing() {
                connection.client = client.unwrap_or(connection.client);
            }
        } else {
            let mut tell = Teller { counters: &mut self.counters, deliver };
            let client = client.unwrap_or(connection.client);
            close(connection, number, End::Replaced, &mut self.blocks, &mut tell);
            self.begin_again(number, client, now);
        }
        self.connections.at(number).directions[way].open(begins, Start::Opened);
    }
}
