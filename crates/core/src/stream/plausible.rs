//! Which segments count: those of the connection that is followed, where its receiver takes them.

use super::connection::{Connection, Direction, Offer, Phase, UNKNOWN};
use super::segment::{Credit, Segment};

/// How far from the next byte a segment may lie, in bytes: no receiver's window is larger (RFC 7323, section 2.3).
pub(super) const REACH: u64 = 1 << 30;

/// How far from the next byte a reset may lie: an unscaled window, since a wild one must not end a connection.
const RESET_REACH: u64 = 1 << 16;

/// Whether a segment opens another connection than the one that is followed: it opens one at another number, and the one
/// that was is over, or never came further than opening. Else it may be forged, and does not count (RFC 5961, section 4).
pub(super) fn is_another(connection: &Connection, way: usize, segment: &Segment<'_>, bits: u32) -> bool {
    if !segment.opens || segment.answers {
        return false;
    }
    let (own, other) = (&connection.directions[way], &connection.directions[1 - way]);
    let same = own.phase != Phase::Unseen && own.position(segment.number, bits) == own.first;
    let ended = own.phase == Phase::Ended || other.phase == Phase::Ended;
    // A SYN that is sent again after a reset is new: a server that still had an older connection was told so first
    // (RFC 9293, section 3.5.1, half-open connections).
    connection.is_over() || !same && (ended || own.is_silent() && other.is_silent())
}

/// Whether a segment may count at all, by its number.
pub(super) fn is_plausible(direction: &Direction, segment: &Segment<'_>, bits: u32) -> bool {
    let position = direction.position(segment.number, bits);
    match direction.phase {
        Phase::Unseen | Phase::Ended => true,
        // RFC 5961, section 3.2, asks for the very next number; whoever only looks may have missed some before it.
        Phase::Open if segment.aborts => (direction.next..=direction.next + RESET_REACH).contains(&position),
        // RFC 5961, section 4: of an open connection, nothing but the segment that opened it opens it. What is known of
        // one that said nothing yet may be an answer from an older connection (RFC 9293, section 3.5.1).
        Phase::Open if segment.opens => position == direction.first || direction.is_silent(),
        Phase::Open => {
            position.abs_diff(direction.next) <= REACH && direction.takes(position, !segment.bytes.is_empty())
        }
    }
}

/// Takes note of what a segment says of the windows of its sender, who receives the other direction.
pub(super) fn take_credit(
    connection: &mut Connection,
    way: usize,
    segment: &Segment<'_>,
    credit: Credit,
    bits: u32,
) {
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
