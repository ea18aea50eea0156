//! Maglev's table (Eisenbud et al., NSDI 2016, section 3.4): which backend a flow goes to.
//!
//! Every node that knows the same backends decides alike and evenly. Few flows move when backends come and go.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::hash::{Secret, hash_words};

/// A backend as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaglevBackend<'n> {
    /// Its name on every node; its permutation of the slots follows from this and the key alone.
    pub name: &'n str,
    /// Its share of the slots, beside the other backends' weights; 1 or more.
    pub weight: u32,
    /// The number that [`MaglevTable::get`] returns for it; means nothing to other nodes.
    pub number: u16,
}

/// Why a table could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaglevError {
    /// The number of slots is none over which every step is a permutation.
    #[error("a Maglev table of {size} slots: the number must be prime, {near} is")]
    NotPrime {
        /// Slots asked for.
        size: usize,
        /// A prime near it.
        near: usize,
    },
    /// More slots than are of use.
    #[error("a Maglev table of {size} slots: at most {} are possible", MaglevTable::MAXIMUM_SIZE)]
    TooLarge {
        /// Slots asked for.
        size: usize,
    },
    /// More backends than slots.
    #[error(
        "{backends} backends for a Maglev table of {size} slots: give it a hundred slots a backend or more"
    )]
    TooManyBackends {
        /// Backends given.
        backends: usize,
        /// Slots of the table.
        size: usize,
    },
    /// One name for two backends.
    #[error("backend `{name}` is given twice: take one out")]
    Twice {
        /// The name.
        name: String,
    },
    /// A backend that is to get nothing.
    #[error("backend `{name}` has weight 0: give it 1 or more, or leave it out")]
    WeightZero {
        /// The backend.
        name: String,
    },
}

/// Slots by hash, each with the backend that it goes to.
///
/// The same backends, key and size give the same table; the order of the backends does not matter. Each has as many
/// slots as its weight says, to within one. Removing one backend moves few slots of the others: less than 1 % at 65,537
/// slots, with two backends or a thousand (the tests hold it to 1.5 %). Memory: 2 bytes a slot.
///
/// The paper's permutations are arithmetic progressions. Two backends whose steps happen to be in a simple ratio then
/// meet in slot after slot. Among ten backends one in a few hundred moves 2 to 4 % of the others' slots when it leaves.
/// Here place `j` is the slot `(offset + j · skip)⁻¹ + shift`, modulo the size: inverses keep no ratio (Eichenauer and
/// Lehn, Statistische Hefte 27, 1986). All else is the paper's.
///
/// ```
/// use netbricks_tables::{MaglevBackend, MaglevTable, Secret};
///
/// let key = Secret::from_seeds(1, 2); // the same on every node
/// let backends = [("a", 1, 0), ("b", 3, 1)].map(|(name, weight, number)| MaglevBackend { name, weight, number });
/// let table = MaglevTable::new(MaglevTable::DEFAULT_SIZE, &key, &backends)?;
/// assert_eq!((table.share(0), table.share(1)), (16_384, 49_153));
/// assert!(table.get(0x1234_5678_9abc_def0).is_some_and(|backend| backend < 2));
/// # Ok::<(), netbricks_tables::MaglevError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaglevTable {
    /// Backend numbers; all are set, unless there is no backend and the table is empty.
    slots: Box<[u16]>,
}

impl MaglevTable {
    /// Slots of the paper's smaller table: good for several hundred backends.
    pub const DEFAULT_SIZE: usize = 65_537;
    /// The most slots of a table.
    pub const MAXIMUM_SIZE: usize = 1 << 24;

    /// The table of these backends. Without any, it answers `None` to all.
    ///
    /// Takes time proportional to `size × log(size)` on average, and memory for `size` slots four times: for the control
    /// side, 1 to 3 ms at 65,537.
    ///
    /// # Errors
    /// When `size` is not prime or too large, or the backends are too many, have weight 0 or a name twice.
    pub fn new(size: usize, key: &Secret, backends: &[MaglevBackend<'_>]) -> Result<Self, MaglevError> {
        if size > Self::MAXIMUM_SIZE {
            return Err(MaglevError::TooLarge { size });
        }
        if !is_prime(size) {
            return Err(MaglevError::NotPrime { size, near: near_prime(size) });
        }
        if backends.len() > size {
            return Err(MaglevError::TooManyBackends { backends: backends.len(), size });
        }
        if backends.is_empty() {
            return Ok(Self { slots: Box::default() });
        }
        let mut turns = turns(size, key, backends)?;
        let inverses = inverses(size);
        let mut slots = vec![FREE; size];
        // The paper's Pseudocode 1, but that turn `k` of a backend is due at `k / weight`: equal weights take turns.
        let mut due: BinaryHeap<Reverse<(u128, usize)>> = (0..turns.len())
            .filter(|at| turns[*at].quota > 0)
            .map(|at| Reverse((turns[at].due(), at)))
            .collect();
        while let Some(mut next) = due.peek_mut() {
            let turn = &mut turns[next.0.1];
            let slot = loop {
                let slot = sum(inverses[turn.at] as usize, turn.shift, size);
                turn.at = sum(turn.at, turn.skip, size);
                if slots[slot] == FREE {
                    break slot;
                }
            };
            slots[slot] = u32::from(turn.number);
            turn.taken += 1;
            if turn.taken == turn.quota {
                PeekMut::pop(next);
            } else {
                next.0.0 = turn.due();
            }
        }
        Ok(Self { slots: slots.into_iter().map(|number| number as u16).collect() })
    }

    /// The number of the backend for a flow with this hash.
    ///
    /// All nodes must use the same hash, under the same key.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<u16> {
        self.slots.get(self.slot(hash)).copied()
    }

    /// The slot of a hash: all of its bits count, scaled to the table's size.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    /// Where slot `hash` lies in memory, to be [prefetched](crate::prefetch).
    #[inline(always)]
    #[must_use]
    pub fn place(&self, hash: u64) -> *const u16 {
        self.slots.as_ptr().wrapping_add(self.slot(hash))
    }

    /// The backend of each slot.
    #[must_use]
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// Slots that backend `number` has.
    #[must_use]
    pub fn share(&self, number: u16) -> usize {
        self.slots.iter().filter(|slot| **slot == number).count()
    }
}

/// A slot without a backend: no backend's number.
const FREE: u32 = u32::MAX;

/// One backend while the table is filled.
struct Turn {
    /// Decides the order of backends; the same on every node.
    rank: u64,
    /// Place `j` of its permutation is slot `(offset + j · skip)⁻¹ + shift`, modulo the size; this is the next
    /// `offset + j · skip`.
    at: usize,
    skip: usize,
    shift: usize,
    weight: u32,
    taken: usize,
    /// Slots that it gets in all; those of all backends together are the table's.
    quota: usize,
    number: u16,
}

impl Turn {
    /// When its next turn is, in slots by weight (64 bits behind the point).
    fn due(&self) -> u128 {
        ((self.taken as u128 + 1) << 64) / u128::from(self.weight.max(1))
    }
}

/// The permutation and share of each backend, in an order that does not depend on the one given.
fn turns(size: usize, key: &Secret, backends: &[MaglevBackend<'_>]) -> Result<Vec<Turn>, MaglevError> {
    let mut order: Vec<&MaglevBackend<'_>> = backends.iter().collect();
    order.sort_unstable_by_key(|backend| backend.name);
    if let Some(pair) = order.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(MaglevError::Twice { name: pair[0].name.into() });
    }
    if let Some(backend) = order.iter().find(|backend| backend.weight == 0) {
        return Err(MaglevError::WeightZero { name: backend.name.into() });
    }
    let total: u128 = order.iter().map(|backend| u128::from(backend.weight)).sum();
    let mut turns: Vec<(u128, Turn)> = order
        .into_iter()
        .map(|backend| {
            let hash = |purpose| hash_name(purpose, backend.name, key);
            let exact = size as u128 * u128::from(backend.weight);
            let turn = Turn {
                rank: hash(RANK),
                at: (hash(OFFSET) % size as u64) as usize,
                skip: (hash(SKIP) % (size as u64 - 1)) as usize + 1,
                shift: (hash(SHIFT) % size as u64) as usize,
                weight: backend.weight,
                taken: 0,
                quota: (exact / total) as usize,
                number: backend.number,
            };
            (exact % total, turn)
        })
        .collect();
    // Not by name, so that `a` is not favoured on every table; the sort is stable, so that names decide ties.
    turns.sort_by_key(|(_, turn)| turn.rank);
    // The rest of the division goes to the backends that lost most by it (largest remainders).
    let left = size - turns.iter().map(|(_, turn)| turn.quota).sum::<usize>();
    let mut by_remainder: Vec<usize> = (0..turns.len()).collect();
    by_remainder.sort_by_key(|at| Reverse(turns[*at].0));
    for at in by_remainder.into_iter().take(left) {
        turns[at].1.quota += 1;
    }
    Ok(turns.into_iter().map(|(_, turn)| turn).collect())
}

const OFFSET: u64 = 1;
const SKIP: u64 = 2;
const RANK: u64 = 3;
const SHIFT: u64 = 4;

/// A name's hash for one of several purposes.
fn hash_name(purpose: u64, name: &str, key: &Secret) -> u64 {
    let mut words = vec![purpose, name.len() as u64];
    words.extend(name.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    }));
    hash_words(&words, key)
}

/// The sum of two numbers below `size`, modulo `size`.
#[inline]
fn sum(a: usize, b: usize, size: usize) -> usize {
    let sum = a + b;
    if sum >= size { sum - size } else { sum }
}

/// The inverse of every number modulo the prime `size`; of 0, 0.
fn inverses(size: usize) -> Vec<u32> {
    let mut inverses = vec![0, 1];
    for number in 2..size {
        // From size = quotient · number + rest follows number⁻¹ = −quotient · rest⁻¹, and the rest is smaller.
        let (quotient, rest) = (size / number, size % number);
        inverses.push((size - quotient * inverses[rest] as usize % size) as u32);
    }
    inverses
}

fn is_prime(number: usize) -> bool {
    number >= 2
        && (2..).take_while(|factor| factor * factor <= number).all(|factor| !number.is_multiple_of(factor))
}

fn near_prime(size: usize) -> usize {
    (size..=MaglevTable::MAXIMUM_SIZE)
        .find(|number| is_prime(*number))
        .or_else(|| (2..size).rev().find(|number| is_prime(*number)))
        .unwrap_or(MaglevTable::DEFAULT_SIZE)
}
