//! Rules for the segments that count: they belong to the followed connection, and the receiver takes them.

use super::blocks::Blocks;
use super::connection::{Connection, Direction, Phase, Start, UNKNOWN, WindowScale};
use super::initial_sequence::{initial_sequence, opens_anew};
use super::segment::{AdvertisedWindow, Segment, Signature, Signatures};

/// The largest distance of a segment from the next byte, in bytes.
///
/// No receiver's window is larger (RFC 7323, section 2.3).
pub(super) const REACH: u64 = 1 << 30;

/// The most bytes that the other end may have and that were not seen.
///
/// It covers the loss on the way to a capture. It is small enough that a number within it cannot be guessed.
pub(super) const NOT_SEEN: u64 = 1 << 20;

/// The most bytes that came with an opening and were not seen, or found no room.
pub(super) const NOT_HELD: u64 = 1 << 16;

/// Whether a segment opens another connection than the followed one.
///
/// It does where the followed connection is over. It also does where the segment has another first number,
/// and the followed connection may be over, as far as was seen. Else the segment may be forged, and does not
/// count (RFC 5961, section 4).
pub(super) fn is_another(connection: &Connection, way: usize, segment: &Segment<'_>, bits: u32) -> bool {
    if !segment.opens || segment.answers {
        return false;
    }
    let (own, other) = (&connection.directions[way], &connection.directions[1 - way]);
    let same = own.phase != Phase::Unseen && own.position(segment.number, bits) == own.first;
    // A SYN that is sent again after a reset is new. A server that still had an older connection was told of
    // the reset first (RFC 9293, section 3.5.1, half-open connections).
    connection.is_over()
        || !same && (connection.doubted || own.phase == Phase::Ended && other.phase == Phase::Unseen)
}

/// Whether a segment with this signature may belong to this connection.
///
/// A receiver without keys drops signed segments, and a receiver with keys drops unsigned ones (RFC 2385,
/// section 2; RFC 5925, section 7.4). It does so before it reads anything else of the segment, resets
/// included.
#[inline]
pub(super) fn may_be_signed_so(connection: &Connection, way: usize, segment: &Segment<'_>) -> bool {
    if segment.opens && !segment.answers {
        return segment.signature != Signature::Several;
    }
    let is_so = |direction: &Direction| {
        direction.signatures.has(segment.signature)
            || direction.rival.is_some_and(|rival| rival.signatures.has(segment.signature))
    };
    let [own, other] = [&connection.directions[way], &connection.directions[1 - way]];
    is_so(own) || own.phase == Phase::Unseen && is_so(other)
}

/// As [`may_be_signed_so`], once it is known which opening counts. Also narrows the signatures that remain
/// possible.
///
/// Where several signatures are possible for a direction, the segment that opens it decides. A segment that
/// answers an opening decides for both directions.
#[inline]
pub(super) fn is_signed_as_agreed(
    connection: &mut Connection,
    way: usize,
    segment: &Segment<'_>,
    bits: u32,
) -> bool {
    let by = Signatures::of(segment.signature);
    let [own, other] = match &mut connection.directions {
        [first, second] if way == 0 => [first, second],
        [first, second] => [second, first],
    };
    let agreed = match own.phase {
        Phase::Unseen => other.signatures,
        _ if segment.answers && other.phase == Phase::Open => other.signatures,
        _ => own.signatures,
    };
    if segment.opens && !segment.answers && own.is_undecided() {
        if own.position(segment.number, bits) == own.first {
            // It is not known yet which of them the receiver took.
            own.signatures = own.signatures.and(by);
        }
        return true;
    }
    if !agreed.has(segment.signature) {
        return false;
    }
    // Few connections have a choice.
    if agreed != by && agreed != Signatures::ANY {
        own.signatures = by;
        if segment.answers {
            other.signatures = by;
        }
    }
    true
}

/// Takes note of a segment that does not count, because the ends of the connection may accept it.
#[cold]
pub(super) fn note_unacceptable(
    connection: &mut Connection,
    way: usize,
    segment: &Segment<'_>,
    blocks: &Blocks,
    bits: u32,
) {
    let other = connection.directions[1 - way].phase;
    let own = &mut connection.directions[way];
    if own.phase == Phase::Unseen {
        return;
    }
    let may_be_over = own.phase == Phase::Ended || matches!(other, Phase::Ended | Phase::Unseen);
    if segment.opens && (!own.is_opened() || may_be_over) {
        // The connection may have ended without being seen.
        own.rival = Some(initial_sequence(segment));
    }
    // Linux also takes a reset behind everything that it acknowledged selectively. Other receivers ask for
    // another one, and that comes.
    connection.doubted |= segment.aborts
        && own.phase == Phase::Open
        && own.position(segment.number, bits) == own.heard_to(blocks);
}

/// Whether the bytes that a segment acknowledges, if any, were sent. `more` of them may be unseen.
pub(super) fn answers_what_was_sent(
    connection: &Connection,
    way: usize,
    segment: &Segment<'_>,
    more: u64,
    blocks: &Blocks,
    bits: u32,
) -> bool {
    let other = &connection.directions[1 - way];
    // The end has a number too.
    let sent = other.first..=other.heard_to(blocks) + 1 + more;
    !other.is_opened()
        || segment.acknowledges.is_none_or(|number| sent.contains(&other.position(number, bits)))
}

/// Whether a segment may count by its number.
///
/// As long as nothing else is known of its sender, its acknowledgment number must also fit (RFC 9293, section
/// 3.10.7.3).
pub(super) fn is_acceptable(
    connection: &Connection,
    way: usize,
    segment: &Segment<'_>,
    blocks: &Blocks,
    bits: u32,
) -> bool {
    let (direction, other) = (&connection.directions[way], &connection.directions[1 - way]);
    let position = direction.position(segment.number, bits);
    let answers = |more| answers_what_was_sent(connection, way, segment, more, blocks, bits);
    match direction.phase {
        // An end that was asked to open refuses by acknowledging the opening.
        Phase::Unseen if segment.aborts && other.is_opened() => segment.acknowledges.is_some() && answers(0),
        // Else the reset has the number that the other end expects.
        Phase::Unseen if segment.aborts => direction.acknowledged == 0 || position == direction.acknowledged,
        Phase::Unseen => answers(if segment.opens { NOT_HELD } else { NOT_SEEN }),
        // RFC 5961, section 3.2: the number of the next byte. For any other number the receiver asks, and the
        // reset comes again.
        Phase::Open if segment.aborts => {
            position == direction.next || direction.may_start_later() && position == direction.next + 1
        }
        // RFC 5961, section 4: only the segment that opened an open connection opens it again. What is known
        // of a direction that carried nothing yet may be an answer from an older connection (RFC 9293,
        // section 3.5.1).
        Phase::Open if segment.opens => {
            position == direction.first || opens_anew(connection, way, segment, blocks, bits)
        }
        Phase::Open => {
            // Where the opening that counts is not known yet, what the segment acknowledges must fit too.
            let known = direction.rival.is_none() || direction.start != Start::Opened || answers(NOT_SEEN);
            is_in_reach(direction, position) && !is_beyond(direction, segment, position) && known
        }
        // The end has a number too, and no byte comes after it.
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

/// Takes note of a segment that does not count, at `now` (ns). Answers whether it counts after all.
///
/// It may lie behind the edge of its receiver's window. It counts where that edge turns out to be out of
/// date.
#[cold]
pub(super) fn lies_beyond_no_window(
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

/// Whether the acknowledgment and window of a segment count.
///
/// A receiver ignores a segment that lies completely before the bytes that it has acknowledged (RFC 9293,
/// section 3.10.7.4). A reset in a direction that is not seen yet acknowledges only the opening that it
/// refuses.
pub(super) fn may_acknowledge(direction: &Direction, segment: &Segment<'_>, bits: u32) -> bool {
    match direction.phase {
        Phase::Unseen => !segment.aborts,
        _ => direction.position(segment.number, bits) + segment.bytes.len() as u64 >= direction.acknowledged,
    }
}

/// Records the window that a segment advertises. Its sender receives the other direction.
pub(super) fn update_window(
    connection: &mut Connection,
    way: usize,
    segment: &Segment<'_>,
    advertised: AdvertisedWindow,
    bits: u32,
) {
    connection.directions[1 - way].beyond = UNKNOWN;
    let offers = connection.directions.map(|direction| direction.offer);
    let shift = match offers {
        // Windows of segments that open are never shifted, and others only where both ends offer it (RFC
        // 7323, 2.2).
        _ if segment.opens => 0,
        [WindowScale::Shift(_), WindowScale::Shift(_)] if let WindowScale::Shift(shift) = offers[way] => {
            shift
        }
        [WindowScale::None, _] | [_, WindowScale::None] => 0,
        // Without both offers the shift is not known.
        _ => return,
    };
    if let Some(acknowledged) = segment.acknowledges {
        let other = &mut connection.directions[1 - way];
        if other.phase == Phase::Open {
            let edge = other.position(acknowledged, bits) + (u64::from(advertised.window) << shift);
            other.edge = if other.edge == UNKNOWN { edge } else { other.edge.max(edge) };
        }
    }
}
