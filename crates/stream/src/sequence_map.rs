//! One direction of a connection that is rewritten: which of its bytes went out as which, and those that its receiver has
//! not acknowledged. Positions count bytes from the first, on the way in and on the way out.

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

/// A segment size that nearly every path takes: that of the narrowest link of IPv6 (RFC 8200, section 5) behind its headers.
const ANY_WAY: u16 = 1_220;

/// So often a sender has to send bytes again that are held back before they go on. The first time it is told that all but
/// the last of them arrived, so that it sends what follows; the second time that one comes again beside it.
const PATIENCE: u8 = 3;

/// The options of a segment that opens a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// The number of its first byte.
    pub(super) first: u32,
    /// The largest segment that it takes (bytes), its window scale, and whether it understands selective acknowledgments.
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
    /// Its beginning was seen.
    pub(super) rewrites: bool,
    /// Its sender has no more bytes.
    pub(super) finished: bool,
    /// Its rewriter made more of its bytes than it said, and there was no memory for that. Nothing goes on any more: what
    /// is missing is not known, and must not be made up.
    pub(super) incomplete: bool,
    /// Its rewriter was told of its end.
    pub(super) over: bool,
    /// Its rewriter lets nothing more of the connection through.
    pub(super) cut: Option<Cut>,
    /// The number of its first byte.
    pub(super) first: u32,
    /// Bytes of the input that the rewriter has had, and those of which it said what becomes of them.
    pub(super) taken: u64,
    pub(super) emitted: u64,
    /// Bytes of the output, and how many of them its receiver has.
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    /// How many went out in a packet, and whether the end did: the rest goes with the next packets of this direction.
    pub(super) transmitted: u64,
    pub(super) end_transmitted: bool,
    /// The receiver has its end too.
    end_acknowledged: bool,
    /// Up to where the sender was told that the receiver has its bytes.
    pub(super) told: u64,
    /// Bytes of the input of which the receiver has all that became of them, whatever it has of the replacements behind: as
    /// the first block knows that it has not got all of.
    reached: u64,
    /// How often bytes that are held back were sent again since the last new ones.
    asked: u8,
    /// Output position less input position, before the first replacement that is not acknowledged, and from which output
    /// position on.
    pub(super) shift: i64,
    pub(super) shifted: u64,
    /// Replacements that its receiver has not acknowledged: the first, the last, and how many.
    oldest: u32,
    newest: u32,
    edits: u32,
    /// How many there ever were.
    edited: u64,
    /// The output from `acknowledged` on, and perhaps a little before. Of each block it is known where that input began whose
    /// output is not all before it.
    pub(super) kept: List,
    /// The block in which the latest output begins, and its position.
    recent: (u32, u64),
    /// The window of its receiver, as its sender was told last.
    pub(super) window: u16,
    /// The receiver's last acknowledgment number and window, and the input position from which they counted.
    pub(super) said: (u32, u16, u64),
    /// It understands selective acknowledgments of what it sends.
    pub(super) selective: bool,
    /// Where segments began that came out of order, the latest first.
    pub(super) late: [u64; MOST],
    /// A range that its sender sent again without need, until it is told so (duplicate SACK, RFC 2883).
    pub(super) twice: Option<(u64, u64)>,
    /// Its sender's clock, as its receiver may have seen it.
    pub(super) clock: Option<u32>,
    /// Up to where bytes waited here of which the sender was told.
    pub(super) sack_told: u64,
    /// Up to where the receiver was sent what it missed, by what it said.
    pub(super) retransmitted: u64,
    /// The largest segment that this direction's sender takes (bytes), and its window scale.
    pub(super) maximum_segment_size: u16,
    pub(super) scale: Option<u8>,
    /// The longest of the segments that its sender sends (bytes), as far as it has not cut them smaller since.
    largest: u16,
    /// Another opening of it: which counts is not agreed yet.
    pub(super) rival: Option<Opening>,
    /// The input position of an urgent byte that does not go on, behind bytes of which it is not known yet what becomes; [`FAR`] if
    /// there is none. And how many there were before `emitted`.
    urgent: u64,
    taken_out: u64,
}

/// No position is as large: whatever is added to one fits 64 bits.
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

    /// The opening that it began with.
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

    /// Forgets replacements that its receiver has.
    fn forget_acknowledged(&mut self, edits: &mut Edits) {
        while edits.get(self.oldest).is_some_and(|edit| edit.output_end <= self.acknowledged)
            && let Some(edit) = edits.remove_oldest(self)
        {
            (self.shift, self.shifted) = (edit.shift(), edit.output_end);
        }
    }

    /// The position that a number has, as near as can be to `near`.
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
    /// The number that the receiver is given for an output position.
    pub(super) fn number(&self, position: u64) -> u32 {
        self.first.wrapping_add(position as u32)
    }
    /// Behind everything, the end's own number included.
    pub(super) fn ends(&self) -> u64 {
        self.sent + u64::from(self.finished)
    }

    /// A sender's segment came; answers whether it only repeats bytes that are held back.
    pub(super) fn repeats_held(&mut self, number: u32, len: usize) -> bool {
        let start = self.input(number);
        let end = start + len as u64;
        let repeats = self.rewrites && start < self.taken && self.emitted < end && end <= self.taken;
        self.asked = self.asked.saturating_add(u8::from(repeats));
        repeats
    }
    /// They were repeated so often that nothing seems to follow them: they have to go on.
    pub(super) fn is_overdue(&self) -> bool {
        self.asked >= PATIENCE
    }

    /// Replacements that its receiver has not acknowledged, in order.
    pub(super) fn edits<'e>(&self, edits: &'e Edits) -> impl Iterator<Item = &'e Edit> + use<'e> {
        let get = |at: u32| edits.get(at);
        std::iter::successors(get(self.oldest), move |edit| get(edit.next))
    }

    /// Where the output of an input position begins.
    pub(super) fn output_of(&self, edits: &Edits, input: u64) -> u64 {
        match edits.last(self, |edit| edit.input < input) {
            Some(edit) if input < edit.input_end => edit.output,
            edit => input.saturating_add_signed(self.shift_behind(edit)),
        }
    }

    /// Where the output of all before an input position ends.
    pub(super) fn output_behind(&self, edits: &Edits, input: u64) -> u64 {
        match edits.last(self, |edit| edit.input < input) {
            Some(edit) if input <= edit.input_end => edit.output_end,
            edit => input.saturating_add_signed(self.shift_behind(edit)),
        }
    }

    /// Up to where a receiver has the input who has the output up to a position. Of a replacement it has all or nothing.
    fn input_of(&self, edits: &Edits, output: u64) -> u64 {
        let before = edits.last(self, |edit| edit.output_end <= output);
        match self.next(edits, before) {
            Some(edit) if output > edit.output => edit.input,
            Some(_) => output.saturating_add_signed(-self.shift_behind(before)),
            None => output.saturating_add_signed(-self.shift_behind(before)).min(self.emitted),
        }
    }

    /// The replacement behind one, or the first.
    pub(super) fn next<'e>(&self, edits: &'e Edits, before: Option<&Edit>) -> Option<&'e Edit> {
        edits.get(before.map_or(self.oldest, |edit| edit.next))
    }

    /// Output position less input position, behind a replacement or before all.
    pub(super) fn shift_behind(&self, edit: Option<&Edit>) -> i64 {
        edit.map_or(self.shift, Edit::shift)
    }

    /// Up to where its receiver has the input.
    pub(super) fn input_acknowledged(&self, edits: &Edits) -> u64 {
        self.input_of(edits, self.acknowledged).max(self.reached)
    }

    /// Whether a receiver may acknowledge all before this number.
    pub(super) fn has_sent(&self, number: u32) -> bool {
        let distance = number.wrapping_sub(self.number(self.sent)).cast_signed();
        // None before the first.
        let position = self.sent.checked_add_signed(i64::from(distance));
        self.rewrites
            && position.is_some_and(|position| (self.acknowledged..=self.ends()).contains(&position))
    }

    /// Its receiver acknowledges all before a number.
    pub(super) fn acknowledge(&mut self, number: u32, kept: &mut Blocks, edits: &mut Edits) {
        let position = self.output(number);
        if position > self.ends() {
            return;
        }
        self.end_acknowledged |= position > self.sent;
        self.have(position.min(self.sent), kept, edits);
    }

    /// Nothing will be sent again.
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

    /// Translates what the receiver acknowledges into the sender's numbers; `waits` says whether bytes wait for others that are
    /// missing.
    ///
    /// Bytes that are held back are with the rewriter alone, and their receiver cannot acknowledge them. A sender that
    /// sends it again would not come to what follows. So it is told that it arrived: all of it where something waits,
    /// since the sender then has more to send again; else all but the last byte, so that it still asks.
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

    /// The sender sends bytes again that are held back: what it is told, which is to send them no more, but for the last one
    /// where it has to ask again.
    pub(super) fn own(&mut self, all: bool) -> u32 {
        self.told = self.told.max(self.taken - u64::from(!all));
        self.first.wrapping_add(self.told as u32)
    }
    /// Whether its sender has bytes to send again that it gave.
    pub(super) fn is_owed(&self) -> bool {
        self.told < self.taken
    }

    /// Where the output begins that answers a segment whose input begins at `start`: what the sender does not have to send
    /// again any more is sent with it.
    pub(super) fn answer_from(&self, edits: &Edits, start: u64) -> u64 {
        if start <= self.told {
            self.acknowledged
        } else {
            self.output_of(edits, start).max(self.acknowledged)
        }
    }

    /// How many bytes of input its receiver takes who takes `bytes` of output from a number on. What is held back takes no room
    /// there yet: where that is as much as it takes, it would go on only if more could follow it.
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
        // No less than Linux sends either: a size of 1 would multiply packets.
        self.maximum_segment_size.saturating_sub(options as u16).max(48)
    }

    /// Its sender sends segments of so many bytes, or sends them again.
    pub(super) fn is_cut_into(&mut self, len: usize, again: bool) {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        self.largest = if again { len } else { self.largest.max(len) };
    }

    /// The most bytes of a segment of this direction, where its receiver takes `most`: a sender that has found less of its way to
    /// pass sends less (RFC 1191), and what was made of that goes the same way.
    pub(super) fn at_most(&self, most: u16) -> usize {
        usize::from(most.min(self.largest.max(ANY_WAY)))
    }

    /// More output, block by block: `from` says of which input the output is not all before a position. Answers how many bytes
    /// found no room.
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
            // What was read already is before it: only the first block may begin earlier.
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

/// Where a [`Rewriter`](super::Rewriter) says what becomes of the bytes that it was given, in their order.
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

    /// The next byte of the input is urgent: its receiver would not read it in its place, and it goes nowhere. Answers `false` where
    /// another one still waits for what becomes of the bytes before it.
    pub(super) fn take_out(&mut self) -> bool {
        if self.map.urgent != FAR {
            return false;
        }
        self.map.urgent = self.map.taken;
        self.taken(1);
        self.skip_urgent();
        true
    }

    /// Takes the urgent byte out once it is known what becomes of all bytes before it.
    fn skip_urgent(&mut self) {
        if self.map.urgent == self.map.emitted {
            self.put(0, &[]);
        }
    }

    /// Lets nothing more through of this connection, in either direction.
    pub fn cut(&mut self, cut: Cut) {
        self.counters.cut += u64::from(self.map.cut.is_none());
        self.map.cut.get_or_insert(cut);
    }
    /// Whether nothing is let through.
    pub fn is_cut(&self) -> bool {
        self.map.cut.is_some()
    }

    /// These bytes, which are next of those it was given, go on as they are.
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

    /// In the place of the next `input` bytes these go on.
    pub fn replace(&mut self, input: usize, bytes: &[u8]) {
        if !self.map.incomplete {
            self.counters.replaced += 1;
        }
        self.put(input, bytes);
        self.skip_urgent();
    }

    /// In the place of the next `input` bytes, and of an urgent one among or before them, these go on.
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

    /// `from` says of which input the output is not all before one of these bytes.
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
