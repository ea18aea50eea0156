//! A hash table from 32-bit hashes to buckets, which grows by a bounded number of moves a change.
//!
//! A slot has the whole hash, so a lookup reads one slot for most keys, and buckets of one hash are one bucket.

/// A bucket: a list of records, or a tree of intervals. Its number is never 0 and never [`MOVED`].
pub(super) type BucketNumber = u32;

/// Slots moved to the larger array in one change.
const MOVES: usize = 32;
/// Slots of a table's first array.
const FIRST: usize = 8;
/// A bucket that has left the smaller array; no bucket has this number.
const MOVED: u32 = u32::MAX;

/// Linear probing, half full at most when it grows, and without gaps in the newer array.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// Hash above, bucket below, 0 where free.
    now: Box<[u64]>,
    /// The array before the last growth, until its slots from [`moved`](Self::moved) on have moved.
    old: Box<[u64]>,
    moved: usize,
    /// Buckets in both.
    used: usize,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { now: vec![0; FIRST].into(), old: Box::default(), moved: 0, used: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// The bucket of a hash, 0 if there is none.
    #[inline(always)]
    pub(super) fn get(&self, hash: u32) -> BucketNumber {
        let bucket = probe(&self.now, hash);
        if bucket == 0 && !self.old.is_empty() { self.get_old(hash) } else { bucket }
    }

    #[cold]
    fn get_old(&self, hash: u32) -> BucketNumber {
        let bucket = probe(&self.old, hash);
        if bucket == MOVED { 0 } else { bucket }
    }

    /// The slot that is read first for a hash, for a prefetch.
    #[inline(always)]
    pub(super) fn address(&self, hash: u32) -> *const u64 {
        self.now.as_ptr().wrapping_add(hash as usize & (self.now.len() - 1))
    }

    /// Gives a hash a bucket, another one where it had one.
    pub(super) fn set(&mut self, hash: u32, bucket: BucketNumber) {
        if let Some(slot) = find(&mut self.now, hash) {
            *slot = join(hash, bucket);
            return;
        }
        if let Some(slot) = find(&mut self.old, hash) {
            *slot = join(hash, bucket);
            return;
        }
        if (self.used + 1) * 2 > self.now.len() && self.old.is_empty() {
            let larger = vec![0; self.now.len() * 2].into();
            self.old = std::mem::replace(&mut self.now, larger);
            self.moved = 0;
        }
        self.used += 1;
        put(&mut self.now, join(hash, bucket));
        self.shift(MOVES);
    }

    /// Moves up to so many slots of the older array; whether it has more.
    pub(super) fn shift(&mut self, moves: usize) -> bool {
        for _ in 0..moves {
            let Some(slot) = self.old.get_mut(self.moved) else { break };
            self.moved += 1;
            let held = std::mem::replace(slot, if *slot == 0 { 0 } else { *slot | u64::from(MOVED) });
            if held as u32 != 0 && held as u32 != MOVED {
                put(&mut self.now, held);
            }
        }
        if self.moved >= self.old.len() {
            self.old = Box::default();
        }
        !self.old.is_empty()
    }

    /// Takes the bucket of a hash out.
    pub(super) fn remove(&mut self, hash: u32) {
        if let Some(slot) = find(&mut self.old, hash) {
            *slot |= u64::from(MOVED);
            self.used -= 1;
            return;
        }
        let mask = self.now.len() - 1;
        let Some(mut gap) = place(&self.now, hash) else { return };
        self.used -= 1;
        // Slots behind it move up, unless their search begins behind the gap.
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = self.now[at];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.now[gap] = slot;
                gap = at;
            }
        }
        self.now[gap] = 0;
    }

    pub(super) fn bytes(&self) -> usize {
        (self.now.len() + self.old.len()) * 8
    }
}

#[inline(always)]
fn join(hash: u32, bucket: BucketNumber) -> u64 {
    u64::from(hash) << 32 | u64::from(bucket)
}

#[inline(always)]
fn probe(slots: &[u64], hash: u32) -> BucketNumber {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    loop {
        let slot = slots[at & mask];
        if slot == 0 {
            return 0;
        }
        if (slot >> 32) as u32 == hash && slot as u32 != MOVED {
            return slot as u32;
        }
        at += 1;
    }
}

/// The place of the slot with this hash and a bucket.
fn place(slots: &[u64], hash: u32) -> Option<usize> {
    let mask = slots.len().checked_sub(1)?;
    let places = (0..slots.len()).map(|step| (hash as usize).wrapping_add(step) & mask);
    places
        .take_while(|at| slots[*at] != 0)
        .find(|at| (slots[*at] >> 32) as u32 == hash && slots[*at] as u32 != MOVED)
}

fn find(slots: &mut [u64], hash: u32) -> Option<&mut u64> {
    let place = place(slots, hash)?;
    slots.get_mut(place)
}

/// Puts a slot in the first free place; the array has one.
fn put(slots: &mut [u64], slot: u64) {
    let mask = slots.len() - 1;
    let mut at = (slot >> 32) as usize & mask;
    while slots[at] != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Few low bits, so that searches run into each other.
        #[test]
        fn equals_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..4, 1u32..1000), 0..400)) {
            let (mut slots, mut map) = (Slots::new(), BTreeMap::new());
            for (put, low, high, bucket) in steps {
                let hash = high << 30 | low;
                if put {
                    slots.set(hash, bucket);
                    map.insert(hash, bucket);
                } else {
                    slots.remove(hash);
                    map.remove(&hash);
                }
                prop_assert_eq!(slots.len(), map.len());
                for hash in (0..40).flat_map(|low| (0..4).map(move |high| high << 30 | low)) {
                    prop_assert_eq!(slots.get(hash), map.get(&hash).copied().unwrap_or(0));
                }
            }
        }
    }
}
