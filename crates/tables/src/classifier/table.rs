//! One hash table: all entries in it test at least the bits of its mask.

use super::records::{RecordNumber, Records};
use super::slots::Slots;
use crate::hash::{Secret, hash_pair};

/// A word of a mask and its bits.
pub(super) type MaskPart = (u32, u32);
/// Two words of a mask; of an odd number the last is one with no bits.
pub(super) type MaskPair = [MaskPart; 2];

/// A keyed hash of masked words.
///
/// This is NH over words of 32 bits (Black et al., "UMAC", CRYPTO 1999) and a keyed folded multiplication. Two
/// different lists of values collide with a probability of about 2⁻³² over the secrets.
#[derive(Clone, Debug)]
pub(super) struct Hasher {
    /// One for each place in a list of masked words.
    keys: Box<[[u32; 2]]>,
    last: [u64; 2],
}

impl Hasher {
    pub(super) fn new(words: usize, seed: u64) -> Self {
        let secret = Secret::from_seed(seed);
        let draw = |at: u64| hash_pair(at, 0x636c_6173_7369_6679, &secret);
        let keys =
            (0..words.div_ceil(2) as u64).map(|at| [draw(2 * at), draw(2 * at + 1)].map(|word| word as u32));
        let keys = keys.collect();
        Self { keys, last: [draw(u64::MAX), draw(u64::MAX - 1) | 1] }
    }

    #[inline(always)]
    fn finish(&self, sum: u64) -> u32 {
        let product = u128::from(sum ^ self.last[0]) * u128::from(self.last[1]);
        (product as u64 ^ (product >> 64) as u64) as u32
    }

    /// The hash of a key vector under a mask, which is given in pairs of its words.
    #[inline(always)]
    pub(super) fn hash(&self, mask: &[MaskPair], key: &[u32]) -> u32 {
        let masked = |(word, bits): MaskPart| key[word as usize] & bits;
        let mut sum = 0u64;
        for (pair, keys) in mask.iter().zip(&self.keys) {
            sum = sum.wrapping_add(product(masked(pair[0]), masked(pair[1]), *keys));
        }
        self.finish(sum)
    }

    /// The hash of a record under a mask of which it tests all bits.
    pub(super) fn hash_record(&self, mask: &[MaskPart], record: RecordNumber, records: &Records) -> u32 {
        let mut own = records.masked(record);
        let mut masked =
            |(word, bits): MaskPart| own.find(|part| part.word == word).map_or(0, |part| part.value & bits);
        let mut sum = 0u64;
        for (pair, keys) in mask.chunks(2).zip(&self.keys) {
            let first = masked(pair[0]);
            let second = pair.get(1).map_or(0, |part| masked(*part));
            sum = sum.wrapping_add(product(first, second, *keys));
        }
        self.finish(sum)
    }
}

#[inline(always)]
fn product(first: u32, second: u32, keys: [u32; 2]) -> u64 {
    u64::from(first.wrapping_add(keys[0])) * u64::from(second.wrapping_add(keys[1]))
}

/// Buckets of entries by their value under one mask.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// In ascending order of words, no bits 0.
    pub(super) mask: Box<[MaskPart]>,
    /// The same in pairs, for hashing.
    pub(super) pairs: Box<[MaskPair]>,
    pub(super) slots: Slots,
    /// No entry has a lesser order.
    pub(super) least: u64,
    pub(super) entries: usize,
    /// Bits of the mask.
    pub(super) bits: u32,
}

impl Table {
    pub(super) fn new(mask: Box<[MaskPart]>) -> Self {
        let bits = mask.iter().map(|(_, bits)| bits.count_ones()).sum();
        let second = |pair: &[MaskPart]| pair.get(1).copied().unwrap_or((pair[0].0, 0));
        let pairs = mask.chunks(2).map(|pair| [pair[0], second(pair)]).collect();
        Self { mask, pairs, slots: Slots::new(), least: u64::MAX, entries: 0, bits }
    }

    /// Whether entries that test these bits may be here; both in ascending order of words.
    pub(super) fn takes(&self, tested: &[MaskPart]) -> bool {
        within(&self.mask, tested)
    }
}

/// Whether all bits of one mask are also in the other.
pub(super) fn within(inner: &[MaskPart], outer: &[MaskPart]) -> bool {
    let mut outer = outer.iter();
    inner.iter().all(|(word, bits)| {
        outer.find(|(other, _)| other == word).is_some_and(|(_, other)| bits & !other == 0)
    })
}
