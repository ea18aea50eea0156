//! Which segments count: those of the connection that is followed, where its receiver takes them.

use super::blocks::{Blocks, Piece};
use super::connection::{Connection, Direction, Offer, Phase, Start, UNKNOWN};
use super::segment::{Credit, Segment};

/// How far from the next byte a segment may lie, in bytes: no receiver's window is larger (RFC 7323, section 2.3).
pub(super) const REACH: u64 = 1 << 30;

/// Whether a segment opens another connection than the one that is followed: it opens one at another number, and the one
/// that was is over, or never came further than opening. Else it may be forged, and does not count (RFC 5961, section 4).
pub(super) fn is_another(connection: &Connection, way: usize, segment: &Segment<'_>, bits: u32) -> bool {
    if !segment.opens || segment.answers {
        return false;
    }
    let (own, other) = (&connection.directions[way], &connection.directions[1 - way]);
    let same = own.phase != Phase::Unseen && own.position(segment.number, bits) == own.first;
    // A SYN that is sent again after a reset is new: a server that still had an older connection was told so first
    // (RFC 9293, section 3.5.1, half-open connections).
    connection.is_over() || !same && own.is_silent() && other.is_silent()
}

/// Whether a segment may count at all, by its number.
pub(super) fn is_plausible(
    connection: &Connection,
    way: usize,
    segment: &Segment<'_>,
    blocks: &Blocks,
    bits: u32,
) -> bool {
    let (direction, other) = (&connection.directions[way], &connection.directions[1 - way]);
    let position = direction.position(segment.number, bits);
    let heard_to = |of: &Direction| blocks.get(of.waiting.tail).map_or(of.next, Piece::end);
    match direction.phase {
        // RFC 9293, section 3.10.7.3: whoever was asked to open refuses by what it was asked with.
        Phase::Unseen if segment.aborts && other.start == Start::Opened => {
            let acknowledged = segment.acknowledges.map(|number| other.position(number, bits));
            acknowledged.is_some_and(|at| (other.first..=heard_to(other) + 1).contains(&at))
        }
        Phase::Unseen => true,
        // RFC 5961, section 3.2: the very next number, or, of a receiver that acknowledges selectively, the one behind all that it has.
        Phase::Open if segment.aborts => position == direction.next || position == heard_to(direction),
        // RFC 5961, section 4: of an open connection, nothing but the segment that opened it opens it. What is known of
        // one that said nothing yet may be an answer from an older connection (RFC 9293, section 3.5.1).
        Phase::Open if segment.opens => position == direction.first || direction.is_silent(),
        Phase::Open => is_in_reach(direction, position) && !is_beyond(direction, segment, position),
        // The end has a number too, and nothing comes behind that.
        Phase::Ended if segment.aborts => (direction.next..=direction.next + 1).contains(&position),
        Phase::Ended if segment.opens => position == direction.first,
        Phase::Ended => is_in_reach(direction, position) && position <= direction.next + 1,
    }
}

fn is_in_reach(direction: &Direction, position: u64) -> bool {
    position.abs_diff(direction.next) <= REACH
}
fn is_beyond(direction: &Direction, segment: &Segment<'_>, position: u64) -> bool {
    !direction.takes(position, !segment.bytes.is_empty())
}

/// Takes note of a segment that does not count, at `now` (ns): perhaps since it lies behind the edge of its receiver's window.
/// Answers whether that was none, and it counts.
#[cold]
pub(super) fn lies_beyond_no_edge(
    direction: &mut Direction,
    segment: &Segment<'_>,
    now: u64,
    bits: u32,
) -> bool {
    let position = direction.position(segment.number, bits);
    let is_open = direction.phase == Phase::Open && !segment.aborts && !segment.opens;
    if !is_open || !is_in_reach(direction, position) || !is_beyond(direction, segment, position) {
        return false;
    }
    direction.comes_beyond(now);
    !is_beyond(direction, segment, position)
}

/// Takes note of what a segment says of the windows of its sender, who receives the other direction.
pub(super) fn take_credit(
    connection: &mut Connection,
    way: usize,
    segment: &Segment<'_>,
    credit: Credit,
    bits: u32,
) {
    connection.directions[1 - way].beyond = UNKNOWN;
    let offers = connection.directions.map(|direction| direction.offer);
    let shift = match offers {
        // The windows of segments that open are never shifted, and the others' only where both offer it (RFC 7323, 2.2).
        _ if segment.opens => 0,
        [Offer::Shift(_), Offer::Shift(_)] if let Offer::Shift(shift) = offers[way] => shift,
        [Offer::None, _] | [_, Offer::None] => 0,
        // Whoever has not seen both does not know.
        _ => return,
    };
    if let Some(acknowledged) = segment.acknowledges {
        let other = &mut connection.directions[1 - way];
        if other.phase == Phase::Open {
            let edge = other.position(acknowledged, bits) + (u64::from(credit.window) << shift);
            other.edge = if other.edge == UNKNOWN { edge } else { other.edge.max(edge) };
        }
    }
}
