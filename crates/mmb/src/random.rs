//! Random values, the same from the same seed.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// A keyed generator of numbers: ChaCha with 12 rounds (Bernstein, "ChaCha, a variant of Salsa20", 2008).
///
/// Peers see its values in ports and sequence numbers. Without the seed they learn nothing of later ones from them, as
/// RFC 6528 and RFC 6056 ask.
#[derive(Debug)]
pub(crate) struct Random(ChaCha12Rng);

impl Random {
    /// A generator with this seed. `stream` tells generators of one seed apart.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&stream.to_le_bytes());
        Self(ChaCha12Rng::from_seed(key))
    }
    /// The next number.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A number below `bound`, which is not 0; numbers are equally likely to within 2⁻⁶⁴ of the bound.
    pub(crate) fn below(&mut self, bound: u128) -> u128 {
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        wide % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// RFC 8439's layout with 12 rounds, key and nonce 0: `draft-strombergson-chacha-test-vectors-01`, TC1.
    #[test]
    fn numbers_are_the_cipher_s_key_stream() {
        let mut random = Random::new(0, 0);
        let stream: Vec<u8> = (0..2).flat_map(|_| random.next().to_le_bytes()).collect();
        let expected =
            [0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53, 0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5];
        assert_eq!(stream, expected);
    }

    #[test]
    fn streams_of_one_seed_have_nothing_in_common() {
        let of = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next()]
        };
        let all = [of(1, 0), of(1, 1), of(2, 0), of(2, 1)].concat();
        let different: std::collections::BTreeSet<&u64> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of(1, 1), of(1, 1));
    }
}
