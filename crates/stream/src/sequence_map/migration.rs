//! A direction that moves to another worker: writes its state as bytes, and reads it from them.

use std::ops::Range;

use super::{Edit, Edits, FAR, SequenceMap};
use crate::blocks::{BLOCK, Blocks, Piece};
use crate::reader::{Reader, number};
use crate::segment::MOST_SHIFT;

/// Bytes of a position.
const PLACE: usize = 8;
/// The scale of a direction that does not shift its windows.
const UNSHIFTED: u8 = u8::MAX;

/// A direction on its way. Its slices refer to the bytes that came.
pub(crate) struct MovedSequenceMap<'a> {
    map: SequenceMap,
    edits: Vec<Edit>,
    /// The output that its receiver has not acknowledged, and the acknowledged bytes of its first block.
    ///
    /// `begun` holds, for each block, the input position from which the output does not all lie before the
    /// block.
    kept: &'a [u8],
    begun: &'a [u8],
}

impl SequenceMap {
    /// Writes all of a direction that is neither incomplete nor cut.
    ///
    /// Of the kept output, it writes the part that may be sent again.
    pub(crate) fn write(&self, kept: &Blocks, edits: &Edits, to: &mut Vec<u8>) {
        // Every field is named, so that a new one is not forgotten. Places in this memory mean nothing
        // elsewhere.
        let Self {
            rewrites,
            finished,
            incomplete: _,
            over,
            cut: _,
            first,
            taken,
            emitted,
            sent,
            acknowledged,
            transmitted,
            end_transmitted,
            end_acknowledged,
            told,
            reached,
            asked,
            shift,
            shifted,
            oldest: _,
            newest: _,
            edits: _,
            edited: _,
            kept: _,
            recent: _,
            window,
            said,
            selective,
            late,
            twice,
            clock,
            sack_told,
            retransmitted,
            maximum_segment_size,
            scale,
            // The next segment tells it.
            largest: _,
            // A connection that moves so early does not go back to its rival opening.
            rival: _,
            urgent,
            taken_out,
        } = *self;
        let set = [
            rewrites,
            finished,
            over,
            end_transmitted,
            end_acknowledged,
            selective,
            twice.is_some(),
            clock.is_some(),
        ];
        to.push(set.into_iter().rev().fold(0, |flags, flag| flags << 1 | u8::from(flag)));
        to.push(asked);
        to.push(scale.unwrap_or(UNSHIFTED));
        to.extend(first.to_be_bytes());
        to.extend(clock.unwrap_or_default().to_be_bytes());
        to.extend(window.to_be_bytes());
        to.extend(maximum_segment_size.to_be_bytes());
        to.extend(said.0.to_be_bytes());
        to.extend(said.1.to_be_bytes());
        let (from, behind) = twice.unwrap_or_default();
        let places = [
            taken,
            emitted,
            sent,
            acknowledged,
            transmitted,
            told,
            reached,
            shifted,
            sack_told,
            retransmitted,
            from,
            behind,
            taken_out,
        ];
        let others = [urgent, said.2, shift.cast_unsigned()];
        places.iter().chain(&late).chain(&others).for_each(|number| to.extend(number.to_be_bytes()));
        let count = self.edits(edits).count();
        to.extend((count as u32).to_be_bytes());
        for Edit { input, input_end, output, output_end, .. } in self.edits(edits) {
            [input, input_end, output, output_end].iter().for_each(|place| to.extend(place.to_be_bytes()));
        }
        let pieces =
            || std::iter::successors(kept.get(self.kept.head), |piece: &&Piece| kept.get(piece.next));
        let first = pieces().next().map_or(acknowledged, |piece| piece.start);
        to.extend(first.to_be_bytes());
        let start = to.len();
        to.resize(start + (sent - first) as usize, 0);
        self.read(kept, first, &mut to[start..]);
        pieces().for_each(|piece| to.extend(piece.from.to_be_bytes()));
    }
}

impl<'a> MovedSequenceMap<'a> {
    /// Reads the bytes of [`SequenceMap::write`]; `None` where they are malformed.
    pub(crate) fn read(from: &mut Reader<'a>) -> Option<Self> {
        let flags = from.byte()?;
        let set = |place: u8| flags >> place & 1 == 1;
        let mut map =
            SequenceMap { rewrites: set(0), finished: set(1), over: set(2), ..SequenceMap::default() };
        (map.end_transmitted, map.end_acknowledged, map.selective) = (set(3), set(4), set(5));
        map.asked = from.byte()?;
        map.scale = match from.byte()? {
            UNSHIFTED => None,
            shift if shift <= MOST_SHIFT => Some(shift),
            _ => return None,
        };
        map.first = from.number(4)? as u32;
        let clock = from.number(4)? as u32;
        map.clock = set(7).then_some(clock);
        (map.window, map.maximum_segment_size) = (from.number(2)? as u16, from.number(2)? as u16);
        let said = (from.number(4)? as u32, from.number(2)? as u16);
        let mut place = || from.number(8).filter(|place| *place < FAR);
        (map.taken, map.emitted, map.sent) = (place()?, place()?, place()?);
        (map.acknowledged, map.transmitted, map.told) = (place()?, place()?, place()?);
        map.reached = place()?;
        (map.shifted, map.sack_told, map.retransmitted) = (place()?, place()?, place()?);
        let twice = (place()?, place()?);
        map.twice = set(6).then_some(twice);
        map.taken_out = place()?;
        for late in &mut map.late {
            *late = place()?;
        }
        map.urgent = from.number(8)?;
        map.said = (said.0, said.1, from.number(8)?);
        map.shift = from.number(8)?.cast_signed();
        let count = from.number(4)?;
        let edits: Option<Vec<Edit>> = (0..count).map(|_| edit(from)).collect();
        let mut moved = Self { map, edits: edits?, kept: &[], begun: &[] };
        let first = from.number(8)?;
        let whole = first <= map.acknowledged && map.acknowledged < first + BLOCK as u64;
        if !moved.is_sound() || !whole {
            return None;
        }
        moved.kept = from.take(usize::try_from(map.sent - first).ok()?)?;
        moved.begun = from.take(moved.needs() * PLACE)?;
        let sound = moved.places().all(|place| place <= map.emitted);
        sound.then_some(moved)
    }

    /// Whether its positions are in order.
    fn is_sound(&self) -> bool {
        let SequenceMap {
            taken,
            emitted,
            sent,
            acknowledged,
            transmitted,
            told,
            reached,
            urgent,
            taken_out,
            ..
        } = self.map;
        let (mut shift, mut input, mut output) = (self.map.shift, 0, self.map.shifted);
        for edit in &self.edits {
            let follows = input <= edit.input
                && edit.input <= edit.input_end
                && output <= edit.output
                && edit.output <= edit.output_end
                && acknowledged <= edit.output_end
                && edit.output.wrapping_sub(edit.input).cast_signed() == shift;
            if !follows {
                return false;
            }
            (shift, input, output) = (edit.shift(), edit.input_end, edit.output_end);
        }
        input <= emitted
            && emitted <= taken
            && output <= sent
            && acknowledged <= sent
            && transmitted <= sent
            && told <= taken + 1
            && reached <= emitted
            && taken_out <= emitted
            && (urgent == FAR || (emitted + 1..taken).contains(&urgent))
            && sent.wrapping_sub(emitted).cast_signed() == shift
            && self.map.shift.unsigned_abs() < FAR
    }

    /// Whether its rewriter has more to decide.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.map.rewrites && !self.map.over
    }
    /// The positions of its bytes that are held back, not counting urgent bytes.
    pub(crate) fn held(&self) -> Range<u64> {
        let SequenceMap { emitted, taken, taken_out, urgent, .. } = self.map;
        emitted - taken_out..taken - taken_out - u64::from(urgent != FAR)
    }
    /// For each block, the input position from which the output does not all lie before it.
    fn places(&self) -> impl Iterator<Item = u64> + '_ {
        self.begun.chunks_exact(PLACE).map(number)
    }
    /// The number of blocks that it takes.
    pub(crate) fn needs(&self) -> usize {
        self.kept.len().div_ceil(BLOCK)
    }
    /// Whether its ends understand each other without the rewriter.
    ///
    /// They do where three conditions hold. The numbers are the same on both sides. The sender has the same
    /// bytes as any that the receiver may ask for again. The sender still has all bytes that the receiver
    /// does not have.
    pub(crate) fn is_unaltered(&self) -> bool {
        let SequenceMap { shift, told, acknowledged, end_acknowledged, .. } = self.map;
        shift == 0 && self.edits.is_empty() && told <= acknowledged + u64::from(end_acknowledged)
    }

    /// Continues the direction here. The caller has made sure that there is room for it.
    pub(crate) fn settle(&self, kept: &mut Blocks, edits: &mut Edits) -> SequenceMap {
        let mut map = self.map;
        for edit in &self.edits {
            edits.append(&mut map, *edit);
        }
        let end = map.sent;
        map.sent -= self.kept.len() as u64;
        for (block, begun) in self.kept.chunks(BLOCK).zip(self.places()) {
            map.incomplete |= map.keep(kept, block, |_| begun) > 0;
        }
        map.sent = end;
        map
    }
}

fn edit(from: &mut Reader<'_>) -> Option<Edit> {
    let mut place = || from.number(8).filter(|place| *place < FAR);
    let (input, input_end, output, output_end) = (place()?, place()?, place()?, place()?);
    Some(Edit { input, input_end, output, output_end, ..Edit::default() })
}
