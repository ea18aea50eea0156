//! Keyed hashing of table keys.
//!
//! A secret of each table decides where a key lives, so that an attacker cannot send flows that all collide.

use crate::parts::{Parts, Whole};

/// A table's secret: 512 bits, expanded from a seed.
///
/// Keep the seed secret where traffic is hostile: draw it from the system's randomness in production. Fix it in tests,
/// and for hashes on which several machines must agree.
#[derive(Clone, Copy)]
pub struct Secret {
    words: [u64; WORDS],
}

const WORDS: usize = 8;
/// Words taken in one step; the other two words of the secret key the end.
const BLOCK: usize = 6;

impl Secret {
    /// The secret that `seed` stands for, the same on every machine.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self::from_seeds(seed, 0x6a09_e667_f3bc_c908)
    }

    /// The secret that 128 bits of seed stand for, where 64 are thought too few.
    #[must_use]
    pub const fn from_seeds(first: u64, second: u64) -> Self {
        let mut words = [0; WORDS];
        let (mut a, mut b) = (first, second);
        let mut at = 0;
        while at < WORDS {
            // Two streams of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), mixed together.
            a = a.wrapping_add(0x9e37_79b9_7f4a_7c15);
            b = b.wrapping_add(0xd1b5_4a32_d192_ed03);
            words[at] = scramble(a ^ scramble(b).rotate_left(23));
            at += 1;
        }
        Self { words }
    }
}

const fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl std::fmt::Debug for Secret {
    /// Says nothing: a secret in a log is none.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Hashes `words` under `secret`.
///
/// Pairs of words go through NH (Black et al., "UMAC", CRYPTO 1999): the sum of `(a + s)·(b + t)` over 128 bits. Two
/// different inputs of equal length collide, or differ by any chosen amount, with a probability of at most 2⁻⁶⁴ over
/// the secrets. One keyed folded multiplication makes 64 well-mixed bits of it. Five words cost four multiplications,
/// two of them one after the other.
///
/// It is not a MAC: it resists attackers that choose keys, not those that can also read hashes.
#[inline(always)]
#[must_use]
pub fn hash_words(words: &[u64], secret: &Secret) -> u64 {
    let mut state = 0;
    let mut rest = words;
    // Longer inputs chain blocks; a loop over a length known when compiling unrolls to nothing.
    while rest.len() > BLOCK {
        let (block, after) = rest.split_at(BLOCK);
        state = finish(compress(block, state, secret), secret);
        rest = after;
    }
    finish(compress(rest, state.wrapping_add(words.len() as u64), secret), secret)
}

/// Hashes two words as [`hash_words`] does, without their number.
///
/// For keys that all have two words, or that differ from longer ones in these words.
#[inline(always)]
#[must_use]
pub fn hash_pair(first: u64, second: u64, secret: &Secret) -> u64 {
    finish(compress(&[first, second], 0, secret), secret)
}

#[inline(always)]
fn compress(words: &[u64], state: u64, secret: &Secret) -> u128 {
    let s = &secret.words;
    let mut sum = u128::from(state);
    let mut at = 0;
    while at < words.len() {
        let second = if at + 1 < words.len() { words[at + 1] } else { 0 };
        let (a, b) = (words[at].wrapping_add(s[at % BLOCK]), second.wrapping_add(s[(at + 1) % BLOCK]));
        sum = sum.wrapping_add(u128::from(a) * u128::from(b));
        at += 2;
    }
    sum
}

#[inline(always)]
fn finish(sum: u128, secret: &Secret) -> u64 {
    let product = u128::from(sum as u64 ^ secret.words[6]) * u128::from((sum >> 64) as u64 ^ secret.words[7]);
    product as u64 ^ (product >> 64) as u64
}

/// A key of a table: a plain value that hashes under a secret.
///
/// ```
/// use netbricks_tables::{Key, Secret, Whole, hash_words};
///
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// struct Tunnel { peer: u128, identifier: u32 }
///
/// impl Key for Tunnel {
///     type Parts = Whole;
///     fn hash(&self, secret: &Secret) -> u64 {
///         hash_words(&[self.peer as u64, (self.peer >> 64) as u64, u64::from(self.identifier)], secret)
///     }
/// }
/// let (a, b) = (Tunnel { peer: 1, identifier: 7 }, Tunnel { peer: 1, identifier: 8 });
/// let secret = Secret::from_seed(1);
/// assert_eq!(a.hash(&secret), a.hash(&secret));
/// assert_ne!(a.hash(&secret), b.hash(&secret));
/// ```
///
/// Keys are plain numbers, so that a table of them can move between threads as freely as its values.
pub trait Key: Copy + Eq + Send + Sync + 'static {
    /// How it lies in a table: [`Whole`], unless most keys are shorter than they could be.
    type Parts: Parts<Self>;

    /// The key's hash under `secret`: all 64 bits count, and equal keys have equal hashes.
    ///
    /// Use [`hash_words`] over every word that `Eq` compares.
    fn hash(&self, secret: &Secret) -> u64;
}

impl<const N: usize> Key for [u64; N] {
    type Parts = Whole;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        hash_words(self, secret)
    }
}

macro_rules! integer_keys {
    ($($integer:ty)*) => {$(
        impl Key for $integer {
            type Parts = Whole;
            #[inline(always)]
            fn hash(&self, secret: &Secret) -> u64 {
                hash_words(&[u64::from(*self)], secret)
            }
        }
    )*};
}
integer_keys!(u8 u16 u32 u64);

impl Key for u128 {
    type Parts = Whole;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        hash_words(&[*self as u64, (*self >> 64) as u64], secret)
    }
}

macro_rules! tuple_keys {
    ($($part:ident)*) => {
        impl<$($part: Key),*> Key for ($($part,)*) {
            type Parts = Whole;
            #[inline(always)]
            fn hash(&self, secret: &Secret) -> u64 {
                #[expect(non_snake_case, reason = "one name serves as type and variable in this macro")]
                let ($($part,)*) = self;
                hash_words(&[$($part.hash(secret)),*], secret)
            }
        }
    };
}
tuple_keys!(A B);
tuple_keys!(A B C);
tuple_keys!(A B C D);
tuple_keys!(A B C D E);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, written without a thought for speed.
    fn by_definition(words: &[u64], s: &[u64; 8]) -> u64 {
        let mut state = 0u64;
        let blocks: Vec<&[u64]> = if words.is_empty() { vec![&[]] } else { words.chunks(6).collect() };
        for (at, block) in blocks.iter().enumerate() {
            if at + 1 == blocks.len() {
                state = state.wrapping_add(words.len() as u64);
            }
            let mut padded = block.to_vec();
            padded.resize(block.len().next_multiple_of(2), 0);
            let mut sum = u128::from(state);
            for (pair, keys) in padded.chunks(2).zip(s.chunks(2)) {
                let (a, b) = (pair[0].wrapping_add(keys[0]), pair[1].wrapping_add(keys[1]));
                sum = sum.wrapping_add(u128::from(a) * u128::from(b));
            }
            let product = u128::from(sum as u64 ^ s[6]) * u128::from((sum >> 64) as u64 ^ s[7]);
            state = (product as u64) ^ ((product >> 64) as u64);
        }
        state
    }

    proptest! {
        #[test]
        fn equals_its_definition(words in prop::collection::vec(any::<u64>(), 0..20), seed in any::<u64>()) {
            let secret = Secret::from_seed(seed);
            prop_assert_eq!(hash_words(&words, &secret), by_definition(&words, &secret.words));
        }

        #[test]
        fn a_pair_is_two_words_without_their_number(words in any::<[u64; 2]>(), seed in any::<u64>()) {
            let secret = Secret::from_seed(seed);
            let s = &secret.words;
            let sum = u128::from(words[0].wrapping_add(s[0])) * u128::from(words[1].wrapping_add(s[1]));
            let product = u128::from(sum as u64 ^ s[6]) * u128::from((sum >> 64) as u64 ^ s[7]);
            prop_assert_eq!(hash_pair(words[0], words[1], &secret), product as u64 ^ (product >> 64) as u64);
        }

        #[test]
        fn every_bit_of_every_word_counts(words in any::<[u64; 5]>(), seed in any::<u64>(), bit in 0usize..320) {
            let secret = Secret::from_seed(seed);
            let mut other = words;
            other[bit / 64] ^= 1 << (bit % 64);
            prop_assert_ne!(words.hash(&secret), other.hash(&secret));
        }
    }

    /// Keys as real traffic has them (counters in one byte) fill every bucket evenly, whichever bits choose it.
    #[test]
    fn ordinary_keys_spread_evenly() {
        let secret = Secret::from_seed(7);
        for shift in [0, 16, 32, 52] {
            for step in [1u64, 1 << 8, 1 << 16, 1 << 40] {
                for word in 0..5 {
                    let mut counts = [0u32; 4096];
                    for at in 0..65_536u64 {
                        let mut key = [17, 0x0a00_0001_c0a8_0001, 0, 0, 0];
                        key[word] ^= at.wrapping_mul(step);
                        counts[(key.hash(&secret) >> shift) as usize & 4095] += 1;
                    }
                    // Mean 16, so chi-square has 4095 degrees of freedom: standard deviation 90.5.
                    let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 16.0).powi(2) / 16.0).sum();
                    assert!(
                        chi < 4095.0 + 6.0 * 90.5,
                        "chi-square {chi}: bits from {shift}, word {word}, step {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn secrets_differ_by_seed_and_do_not_print() {
        let (a, b) = (Secret::from_seed(1), Secret::from_seed(2));
        assert!(a.words.iter().zip(&b.words).all(|(a, b)| a != b));
        assert_eq!(format!("{a:?}"), "Secret(..)");
        assert_ne!((1u32, 2u32).hash(&a), (2u32, 1u32).hash(&a));
        assert_ne!([1u64].hash(&a), [1u64, 0].hash(&a));
        assert_ne!(5u128.hash(&a), (5u128 << 64).hash(&a));
    }
}
