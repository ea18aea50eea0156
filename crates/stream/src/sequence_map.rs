//! One direction of a connection that is rewritten: maps its input to its output, and keeps unacknowledged
//! output.
//!
//! Positions count bytes from the direction's first byte, in the input and in the output.

mod edits;
mod migration;

use super::blocks::{BLOCK, Blocks, List, NONE};
use super::packetize::PacketizeCounters;
use super::rewriter::Cut;
use super::sack::MOST;

pub(super) use edits::{Edit, Edits};
pub(super) use migration::MovedSequenceMap;

/// The segment size of a sender that states none (RFC 9293, section 3.7.1).
const DEFAULT_SEGMENT_SIZE: u16 = 536;

/// A segment size that nearly every path takes, in bytes.
///
/// It is the smallest MTU of IPv6 (RFC 8200, section 5) less the headers.
const ANY_WAY: u16 = 1_220;

/// The number of times that a sender has to repeat held bytes, until these have to be forwarded.
///
/// After the first repetition the sender is told that all but the last byte arrived, so that it sends the
/// following bytes. At the second one, the last byte comes again together with them.
const PATIENCE: u8 = 3;

/// The options of a segment that opens a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// The number of its first byte.
    pub(super) first: u32,
    /// The largest segment that its sender takes (bytes), its window scale, and whether it understands SACK.
    pub(super) maximum_segment_size: u16,
    pub(super) scale: Option<u8>,
    pub(super) selective: bool,
}

impl Opening {
    pub(super) fn new(first: u32) -> Self {
        Self { first, maximum_segment_size: DEFAULT_SEGMENT_SIZE, scale: None, selective: false }
    }
}

/// One direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceMap {
    /// Whether its beginning was seen.
    pub(super) rewrites: bool,
    /// Whether its sender has no more bytes.
    pub(super) finished: bool,
    /// Whether there was no memory for some of its output.
    ///
    /// Its rewriter made more of the bytes than it had stated. Nothing is forwarded any more, because the
    /// missing output is not known.
    pub(super) incomplete: bool,
    /// Whether its rewriter was told of its end.
    pub(super) over: bool,
    /// Set once its rewriter lets nothing more of the connection through.
    pub(super) cut: Option<Cut>,
    /// The number of its first byte.
    pub(super) first: u32,
    /// Bytes of the input that the rewriter was given, and those for which it has decided the output.
    pub(super) taken: u64,
    pub(super) emitted: u64,
    /// Bytes of the output, and how many of them its receiver has acknowledged.
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    /// How many bytes of the output went out in a packet, and whether the end did.
    ///
    /// The rest goes out with the next packets of this direction.
    pub(super) transmitted: u64,
    pub(super) end_transmitted: bool,
    /// Whether the receiver has acknowledged its end too.
    end_acknowledged: bool,
    /// Input position up to which the sender was told that the receiver has its bytes.
    pub(super) told: u64,
    /// Bytes of the input whose complete output the receiver has.
    ///
    /// The value comes from the first block that the receiver does not have completely. Later replacements do
    /// not change it.
    reached: u64,
    /// How often bytes that are held back were sent again since the last new bytes.
    asked: u8,
    /// Output position less input position, before the first unacknowledged replacement, and the output
    /// position from which this shift holds.
    pub(super) shift: i64,
    pub(super) shifted: u64,
    /// Replacements that its receiver has not acknowledged: the first, the last, and their number.
    oldest: u32,
    newest: u32,
    edits: u32,
    /// The number of replacements since the beginning.
    edited: u64,
    /// The output from `acknowledged` on, and perhaps a little before.
    ///
    /// Each block states the input position from which the output does not all lie before the block.
    pub(super) kept: List,
    /// The block in which the latest output begins, and its position.
    recent: (u32, u64),
    /// The window of its receiver that its sender was told last.
    pub(super) window: u16,
    /// The receiver's last acknowledgment number and window, and the input position at which they came.
    pub(super) said: (u32, u16, u64),
    /// Whether its sender understands selective acknowledgments.
    pub(super) selective: bool,
    /// The positions of segments that came out of order, the latest first.
    pub(super) late: [u64; MOST],
    /// A range that its sender sent again without need, until it is told so (duplicate SACK, RFC 2883).
    pub(super) twice: Option<(u64, u64)>,
    /// Its sender's clock (the time stamp), as its receiver may have seen it.
    pub(super) clock: Option<u32>,
    /// Position up to which the sender was told of bytes that waited here.
    pub(super) sack_told: u64,
    /// Position up to which the receiver was sent missing bytes again, by its selective acknowledgments.
    pub(super) retransmitted: u64,
    /// The largest segment that this direction's sender takes (bytes), and its window scale.
    pub(super) maximum_segment_size: u16,
    pub(super) scale: Option<u8>,
    /// The longest segment that its sender sends (bytes); smaller after it sent smaller segments again.
    largest: u16,
    /// Another opening of it, as long as the ends have not agreed on one.
    pub(super) rival: Option<Opening>,
    /// The input position of an urgent byte that is not forwarded, while earlier bytes are undecided.
    ///
    /// It is [`FAR`] if there is none. `taken_out` is the number of urgent bytes before `emitted`.
    urgent: u64,
    taken_out: u64,
}

/// Larger than every position. The sum of two values up to this one fits 64 bits.
const FAR: u64 = 1 << 62;

impl Default for SequenceMap {
    fn default() -> Self {
        Self {
            rewrites: false,
            finished: false,
            incomplete: false,
            over: false,
            cut: None,
            first: 0,
            taken: 0,
            emitted: 0,
            sent: 0,
            acknowledged: 0,
            transmitted: 0,
            end_transmitted: false,
            end_acknowledged: false,
            told: 0,
            reached: 0,
            asked: 0,
            shift: 0,
            shifted: 0,
            oldest: NONE,
            newest: NONE,
            edits: 0,
            edited: 0,
            kept: List::EMPTY,
            recent: (NONE, 0),
            window: 0,
            said: (0, 0, u64::MAX),
            selective: false,
            late: [0; MOST],
            twice: None,
            clock: None,
            sack_told: 0,
            retransmitted: 0,
            maximum_segment_size: DEFAULT_SEGMENT_SIZE,
            scale: None,
            largest: 0,
            rival: None,
            urgent: FAR,
            taken_out: 0,
        }
    }
}

impl SequenceMap {
    pub(super) fn opened(by: Opening, rival: Option<Opening>) -> Self {
        let Opening { first, maximum_segment_size, scale, selective } = by;
        Self { rewrites: true, first, maximum_segment_size, scale, selective, rival, ..Self::default() }
    }

    /// Its own opening.
    pub(super) fn opening(&self) -> Opening {
        let Self { first, maximum_segment_size, scale, selective, .. } = *self;
        Opening { first, maximum_segment_size, scale, selective }
    }

    /// Forgets everything and gives back its memory.
    pub(super) fn clear(&mut self, kept: &mut Blocks, edits: &mut Edits) {
        while edits.remove_oldest(self).is_some() {}
        kept.clear(&mut self.kept);
        *self = Self::default();
    }

    /// Forgets replacements whose output its receiver has.
    fn forget_acknowledged(&mut self, edits: &mut Edits) {
        while edits.get(self.oldest).is_some_and(|edit| edit.output_end <= self.acknowledged)
            && let Some(edit) = edits.remove_oldest(self)
        {
            (self.shift, self.shifted) = (edit.shift(), edit.output_end);
        }
    }

    /// The position of a number that is nearest to `near`.
    fn position(&self, number: u32, near: u64) -> u64 {
        let distance = number.wrapping_sub(self.first).wrapping_sub(near as u32).cast_signed();
        near.saturating_add_signed(i64::from(distance))
    }
    /// Input position of a sender's number.
    pub(super) fn input(&self, number: u32) -> u64 {
        self.position(number, self.taken)
    }
    /// Output position of a receiver's number.
    pub(super) fn output(&self, number: u32) -> u64 {
        self.position(number, self.sent)
    }
    /// The number in the receiver's segments for an output position.
    pub(super) fn number(&self, position: u64) -> u32 {
        self.first.wrapping_add(position as u32)
    }
    /// The position behind all output, the end's own number included.
    pub(super) fn ends(&self) -> u64 {
        self.sent + u64::from(self.finished)
    }

    /// Records a segment of the sender. Answers whether it only repeats bytes that are held back.
    pub(super) fn repeats_held(&mut self, number: u32, len: usize) -> bool {
        let start = self.input(number);
        let end = start + len as u64;
        let repeats = self.rewrites && start < self.taken && self.emitted < end && end <= self.taken;
        self.asked = self.asked.saturating_add(u8::from(repeats));
        repeats
    }
    /// Whether the sender repeated held bytes so often that nothing seems to follow them: they have to be
    /// forwarded.
    pub(super) fn is_overdue(&self) -> bool {
        self.asked >= PATIENCE
    }

    /// Replacements that its receiver has not acknowledged, in order.
    pub(super) fn edits<'e>(&self, edits: &'e Edits) -> impl Iterator<Item = &'e Edit> + use<'e> {
        let get = |at: u32| edits.get(at);
        std::iter::successors(get(self.oldest), move |edit| get(edit.next))
    }

    /// The output position at which the output of an input position begins.
    pub(super) fn output_of(&self, edits: &Edits, input: u64) -> u64 {
        match edits.last(self, |edit| edit.input < input) {
            Some(edit) if input < edit.input_end => edit.output,
            edit => input.saturating_add_signed(self.shift_behind(edit)),
        }
    }

    /// The output position at which the output of all bytes before an input position ends.
    pub(super) fn output_behind(&self, edits: &Edits, input: u64) -> u64 {
        match edits.last(self, |edit| edit.input < input) {
            Some(edit) if input <= edit.input_end => edit.output_end,
            edit => input.saturating_add_signed(self.shift_behind(edit)),
        }
    }

    /// The input position up to which a receiver has the input, if it has the output up to `output`.
    ///
    /// A replacement counts only when all of its output is there.
    fn input_of(&self, edits: &Edits, output: u64) -> u64 {
        let before = edits.last(self, |edit| edit.output_end <= output);
        match self.next(edits, before) {
            Some(edit) if output > edit.output => edit.input,
            Some(_) => output.saturating_add_signed(-self.shift_behind(before)),
            None => output.saturating_add_signed(-self.shift_behind(before)).min(self.emitted),
        }
    }

    /// The replacement behind `before`, or the first.
    pub(super) fn next<'e>(&self, edits: &'e Edits, before: Option<&Edit>) -> Option<&'e Edit> {
        edits.get(before.map_or(self.oldest, |edit| edit.next))
    }

    /// Output position less input position behind a replacement, or before all replacements.
    pub(super) fn shift_behind(&self, edit: Option<&Edit>) -> i64 {
        edit.map_or(self.shift, Edit::shift)
    }

    /// The input position up to which its receiver has the input.
    pub(super) fn input_acknowledged(&self, edits: &Edits) -> u64 {
        self.input_of(edits, self.acknowledged).max(self.reached)
    }

    /// Whether a receiver may acknowledge all bytes before this number.
    pub(super) fn has_sent(&self, number: u32) -> bool {
        let distance = number.wrapping_sub(self.number(self.sent)).cast_signed();
        // No position lies before the first.
        let position = self.sent.checked_add_signed(i64::from(distance));
        self.rewrites
            && position.is_some_and(|position| (self.acknowledged..=self.ends()).contains(&position))
    }

    /// Its receiver acknowledges all bytes before a number.
    pub(super) fn acknowledge(&mut self, number: u32, kept: &mut Blocks, edits: &mut Edits) {
        let position = self.output(number);
        if position > self.ends() {
            return;
        }
        self.end_acknowledged |= position > self.sent;
        self.have(position.min(self.sent), kept, edits);
    }

    /// Treats all output as acknowledged: nothing will be sent again.
    pub(super) fn give_up(&mut self, kept: &mut Blocks, edits: &mut Edits) {
        self.have(self.sent, kept, edits);
    }

    fn have(&mut self, position: u64, kept: &mut Blocks, edits: &mut Edits) {
        self.acknowledged = self.acknowledged.max(position);
        self.forget_acknowledged(edits);
        while !self.kept.is_empty() && kept.piece(self.kept.head).end() <= self.acknowledged {
            kept.remove_after(&mut self.kept, NONE);
        }
        let first = kept.get(self.kept.head);
        if first.is_none_or(|first| first.start > self.recent.1) {
            self.recent.0 = NONE;
        }
        if let Some(first) = first.filter(|first| first.start <= self.acknowledged) {
            self.reached = self.reached.max(first.from);
        }
    }

    /// Translates the receiver's acknowledgment number into the sender's numbers.
    ///
    /// `waits` says whether bytes wait for missing ones. Only the rewriter has bytes that are held back, and
    /// their receiver cannot acknowledge them. A sender that sends them again would not reach the following
    /// bytes. So it is told that they arrived. Where bytes wait, it is told so of all of them, since it then
    /// has other bytes to send again. Else it is told so of all but the last byte, so that it still asks.
    pub(super) fn translate(&mut self, edits: &Edits, number: u32, waits: bool) -> u32 {
        if !self.rewrites {
            return number;
        }
        let has = if self.end_acknowledged { self.taken + 1 } else { self.input_acknowledged(edits) };
        let held = self.emitted < self.taken && self.acknowledged == self.sent;
        let owned = match (held, waits, self.asked) {
            (true, true, _) => self.taken,
            (true, false, 1..) => self.taken - 1,
            _ => 0,
        };
        self.told = self.told.max(has).max(owned);
        self.first.wrapping_add(self.told as u32)
    }

    /// The acknowledgment number for a sender that repeats bytes that are held back.
    ///
    /// It acknowledges all of them where `all` is set. Else it leaves out the last byte, so that the sender
    /// asks again.
    pub(super) fn own(&mut self, all: bool) -> u32 {
        self.told = self.told.max(self.taken - u64::from(!all));
        self.first.wrapping_add(self.told as u32)
    }
    /// Whether its sender has bytes that it may send again.
    pub(super) fn is_owed(&self) -> bool {
        self.told < self.taken
    }

    /// The output position at which the answer to a repeated segment begins.
    ///
    /// The segment's input begins at `start`. Bytes that the sender does not have to repeat any more are sent
    /// with it.
    pub(super) fn answer_from(&self, edits: &Edits, start: u64) -> u64 {
        if start <= self.told {
            self.acknowledged
        } else {
            self.output_of(edits, start).max(self.acknowledged)
        }
    }

    /// The bytes of input that its receiver takes, if it takes `bytes` bytes of output from a number on.
    ///
    /// Bytes that are held back take no part of that window yet. If they filled it, nothing could follow
    /// them, and they would never be forwarded.
    pub(super) fn takes(&self, edits: &Edits, number: u32, bytes: u64) -> u64 {
        let edge = self.output(number).min(self.ends()) + bytes;
        let input = match edge.checked_sub(self.sent) {
            Some(more) => self.emitted + more,
            None => self.input_of(edits, edge),
        };
        input.saturating_sub(self.told.min(self.emitted))
    }

    /// The most bytes of a segment to this direction's sender, with so many bytes of options (RFC 6691).
    pub(super) fn segment_size(&self, options: usize) -> u16 {
        // At least the minimum of Linux: a size of 1 would multiply packets.
        self.maximum_segment_size.saturating_sub(options as u16).max(48)
    }

    /// Its sender sends a segment of `len` bytes, or sends it again.
    pub(super) fn is_cut_into(&mut self, len: usize, again: bool) {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        self.largest = if again { len } else { self.largest.max(len) };
    }

    /// The most bytes of a segment of this direction, where its receiver takes `most`.
    ///
    /// A sender whose path has a smaller MTU sends smaller segments (RFC 1191), and the output takes the same
    /// path.
    pub(super) fn at_most(&self, most: u16) -> usize {
        usize::from(most.min(self.largest.max(ANY_WAY)))
    }

    /// Keeps more output, block by block. Answers how many bytes found no room.
    ///
    /// `from` gives the input position from which the output does not all lie before an output position.
    fn keep(&mut self, kept: &mut Blocks, mut bytes: &[u8], from: impl Fn(u64) -> u64) -> usize {
        while !bytes.is_empty() {
            let tail = self.kept.tail;
            let room = kept.get(tail).map_or(0, |tail| BLOCK - (tail.end() - tail.start) as usize);
            let (begun, most) = match kept.get(tail) {
                Some(tail) if room > 0 => (tail.from, room),
                _ => (from(self.sent), BLOCK),
            };
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            let (_, missing) = kept.insert(&mut self.kept, tail, begun, self.sent, part);
            self.sent += (part.len() - missing) as u64;
            if missing > 0 {
                return missing + rest.len();
            }
            bytes = rest;
        }
        0
    }

    /// Reads the output from a position on.
    pub(super) fn read(&self, kept: &Blocks, from: u64, mut to: &mut [u8]) {
        let (recent, start) = self.recent;
        let mut block = if recent != NONE && start <= from { recent } else { self.kept.head };
        while block != NONE && !to.is_empty() {
            let piece = kept.piece(block);
            // Only the first block may begin before `from`. The later ones follow the bytes that were read
            // already.
            let skip = from.saturating_sub(piece.start) as usize;
            if let Some(bytes) = kept.bytes(block).get(skip..)
                && !bytes.is_empty()
            {
                let count = bytes.len().min(to.len());
                let (now, rest) = to.split_at_mut(count);
                now.copy_from_slice(&bytes[..count]);
                to = rest;
            }
            block = piece.next;
        }
    }
}

/// Takes a [`Rewriter`](super::Rewriter)'s decisions on the bytes that it was given, in the order of the
/// bytes.
pub struct Output<'a> {
    map: &'a mut SequenceMap,
    kept: &'a mut Blocks,
    edits: &'a mut Edits,
    counters: &'a mut PacketizeCounters,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        map: &'a mut SequenceMap,
        kept: &'a mut Blocks,
        edits: &'a mut Edits,
        counters: &'a mut PacketizeCounters,
    ) -> Self {
        Self { map, kept, edits, counters }
    }

    pub(super) fn taken(&mut self, count: usize) {
        self.map.taken += count as u64;
        self.map.asked = 0;
        let tail = self.map.kept.tail;
        self.map.recent = if tail == NONE { (NONE, 0) } else { (tail, self.kept.piece(tail).start) };
    }

    /// Takes the next byte of the input out, because it is urgent.
    ///
    /// Its receiver would not read it in its place. Answers `false` while another urgent byte waits for the
    /// decision on earlier bytes.
    pub(super) fn take_out(&mut self) -> bool {
        if self.map.urgent != FAR {
            return false;
        }
        self.map.urgent = self.map.taken;
        self.taken(1);
        self.skip_urgent();
        true
    }

    /// Takes the urgent byte out once all bytes before it are decided.
    fn skip_urgent(&mut self) {
        if self.map.urgent == self.map.emitted {
            self.put(0, &[]);
        }
    }

    /// Lets nothing more of this connection through, in either direction.
    pub fn cut(&mut self, cut: Cut) {
        self.counters.cut += u64::from(self.map.cut.is_none());
        self.map.cut.get_or_insert(cut);
    }
    /// Whether the connection was [cut](Self::cut).
    pub fn is_cut(&self) -> bool {
        self.map.cut.is_some()
    }

    /// Passes these bytes on unchanged. They are the next undecided bytes of the input.
    pub fn pass(&mut self, bytes: &[u8]) {
        let before = (self.map.urgent - self.map.emitted).min(bytes.len() as u64);
        let (before, behind) = bytes.split_at(before as usize);
        self.pass_plain(before);
        self.skip_urgent();
        if !behind.is_empty() {
            self.pass_plain(behind);
        }
    }

    fn pass_plain(&mut self, bytes: &[u8]) {
        let from = self.map.emitted;
        self.map.emitted += bytes.len() as u64;
        self.send(bytes, |place| from + place);
    }

    /// Replaces the next `input` bytes by these bytes.
    pub fn replace(&mut self, input: usize, bytes: &[u8]) {
        if !self.map.incomplete {
            self.counters.replaced += 1;
        }
        self.put(input, bytes);
        self.skip_urgent();
    }

    /// Replaces the next `input` bytes by these, and takes out an urgent byte among or before them.
    fn put(&mut self, input: usize, bytes: &[u8]) {
        let map = &mut *self.map;
        let mut input = input as u64;
        if map.urgent - map.emitted <= input.saturating_sub(1) {
            (map.urgent, map.taken_out) = (FAR, map.taken_out + 1);
            input += 1;
        }
        let edit = Edit {
            input: map.emitted,
            input_end: map.emitted + input,
            output: map.sent,
            output_end: map.sent + bytes.len() as u64,
            ..Edit::default()
        };
        if map.incomplete {
            return;
        }
        self.edits.add(map, edit);
        map.emitted += input;
        self.send(bytes, |_| edit.input);
    }

    /// Keeps output for sending.
    ///
    /// `from` gives, for each byte, the input position from which the output does not all lie before the
    /// byte.
    fn send(&mut self, bytes: &[u8], from: impl Fn(u64) -> u64) {
        let map = &mut *self.map;
        if map.incomplete || map.cut.is_some() {
            return;
        }
        let start = map.sent;
        let missing = map.keep(self.kept, bytes, |position| from(position - start));
        map.incomplete = missing > 0;
    }
}

#[cfg(test)]
mod tests;
