//! Replacements in unacknowledged bytes: ranges of a direction's input, and the ranges of output in their
//! place.

use netbricks_core::tables::MemoryError;

use super::SequenceMap;
use crate::blocks::{BLOCK, NONE};
use crate::memory::filled;

/// Replacements within this many bytes of input and of output may be merged.
const CLOSE: u64 = BLOCK as u64;

/// A replacement: a range of input, and the output in its place.
///
/// It may stand for several replacements and the bytes between them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) input: u64,
    pub(crate) input_end: u64,
    pub(crate) output: u64,
    pub(crate) output_end: u64,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// An earlier replacement, and its distance. It may be forgotten, and its place used by another.
    pub(super) far: u32,
    pub(super) distance: u32,
}

impl Edit {
    /// Output position less input position, behind it.
    pub(crate) fn shift(&self) -> i64 {
        self.output_end.wrapping_sub(self.input_end).cast_signed()
    }
}

/// Memory for replacements. It suffices for any number of them, because several can be merged into one.
///
/// After a merge the sender learns up to a block late how far its bytes arrived.
///
/// The replacements of a direction are a list that grows at its end and shrinks at its beginning. A
/// replacement is found as in a stack with random access (Myers, 1983). Each one knows an earlier one far
/// before it. So a search from the last one takes a logarithmic number of steps in the number of all
/// replacements so far.
pub(crate) struct Edits {
    all: Vec<Edit>,
    free: u32,
    /// Places that directions may still take. Each direction's first replacement has a reserved place
    /// besides.
    available: usize,
    /// The number of replacements of a direction that stay separate even where they lie close together.
    share: usize,
}

impl Edits {
    /// Memory for `count` replacements, and one more for each direction.
    pub(crate) fn new(count: usize, directions: usize, share: usize) -> Result<Self, MemoryError> {
        let mut all = filled(Edit::default(), count.saturating_add(directions))?;
        let behind = (1..all.len() as u32).chain([NONE]);
        all.iter_mut().zip(behind).for_each(|(edit, next)| edit.next = next);
        let free = if all.is_empty() { NONE } else { 0 };
        Ok(Self { all, free, available: count, share })
    }

    pub(super) fn get(&self, at: u32) -> Option<&Edit> {
        self.all.get(at as usize)
    }

    /// The last replacement of a map for which `is` holds, if any; it must hold for all before that.
    pub(crate) fn last(&self, map: &SequenceMap, is: impl Fn(&Edit) -> bool) -> Option<&Edit> {
        let mut edit = self.get(map.newest)?;
        // The number of replacements before `edit`.
        let mut before = map.edits - 1;
        if is(edit) {
            return Some(edit);
        }
        // `is` does not hold for any replacement that this loop steps to.
        while before > 0 {
            let far = self.get(edit.far).filter(|far| edit.distance <= before && !is(far));
            (edit, before) = match far {
                Some(far) => (far, before - edit.distance),
                None => match self.get(edit.previous)? {
                    found if is(found) => return Some(found),
                    previous => (previous, before - 1),
                },
            };
        }
        None
    }

    /// Adds a replacement behind the map's others, either as an own entry or merged with the one before it.
    ///
    /// A map that has entries gets no more of them than are left for all others, as with blocks.
    pub(super) fn add(&mut self, map: &mut SequenceMap, edit: Edit) {
        let own = map.edits as usize;
        let may = self.get(map.newest).is_none_or(|newest| {
            let apart = edit.input_end - newest.input > CLOSE || edit.output_end - newest.output > CLOSE;
            own < self.available && (own < self.share || apart)
        });
        if may {
            self.append(map, edit);
        } else {
            // Acknowledged replacements are not merged with unacknowledged ones.
            map.forget_acknowledged(self);
            self.append_or_extend(map, edit, false);
        }
    }

    /// As [`add`](Self::add), as an own entry wherever there is a place.
    pub(super) fn append(&mut self, map: &mut SequenceMap, edit: Edit) {
        self.append_or_extend(map, edit, self.available > 0);
    }

    fn append_or_extend(&mut self, map: &mut SequenceMap, edit: Edit, may: bool) {
        let previous = map.newest;
        match self.all.get_mut(previous as usize) {
            Some(newest) if !may => {
                (newest.input_end, newest.output_end) = (edit.input_end, edit.output_end);
                return;
            }
            Some(_) => self.available -= 1,
            // Its first replacement.
            None => {}
        }
        map.edited += 1;
        let distance = distance(map.edited);
        let far = if distance == 1 { previous } else { self.far_behind(map) };
        let at = self.free;
        let place = &mut self.all[at as usize];
        self.free = std::mem::replace(place, Edit { next: NONE, previous, far, distance, ..edit }).next;
        map.newest = at;
        map.edits += 1;
        match self.all.get_mut(previous as usize) {
            Some(newest) => newest.next = at,
            None => map.oldest = at,
        }
    }

    /// The place of the replacement two far steps before a map's last one, if it is not forgotten.
    fn far_behind(&self, map: &SequenceMap) -> u32 {
        let mut edit = self.get(map.newest);
        let mut before = map.edits.saturating_sub(1);
        let mut far = NONE;
        for _ in 0..2 {
            let Some(known) = edit.filter(|edit| edit.distance <= before) else { return NONE };
            before -= known.distance;
            far = known.far;
            edit = self.get(far);
        }
        far
    }

    /// Takes out a map's first replacement, if there is one.
    pub(super) fn remove_oldest(&mut self, map: &mut SequenceMap) -> Option<Edit> {
        let edit = *self.get(map.oldest)?;
        self.all[map.oldest as usize].next = self.free;
        self.free = map.oldest;
        map.oldest = edit.next;
        map.edits -= 1;
        if map.oldest == NONE {
            map.newest = NONE;
        } else {
            self.available += 1;
        }
        Some(edit)
    }
}

/// The distance from the `number`th replacement (from 1) to its far one.
///
/// It is the value of the lowest digit of `number` in skew binary, where digits are worth 2^k - 1.
fn distance(number: u64) -> u32 {
    let mut rest = number;
    loop {
        let most = (u64::MAX >> (rest + 1).leading_zeros()) >> 1;
        if rest == most {
            return u32::try_from(most).unwrap_or(u32::MAX);
        }
        rest -= most;
    }
}

#[cfg(test)]
mod tests;
