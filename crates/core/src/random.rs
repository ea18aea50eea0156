//! Random numbers that do not betray the seed of the run: for values that others see.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

/// Random numbers of one owner, which tell nothing about the seed, other owners or each other.
///
/// It is ChaCha with 12 rounds (Bernstein, 2008) under a key that SHA-256 makes of the seed and the owner. The run's seed
/// also keys hashes of flows. So numbers that packets, reports or untrusted code show come from here, never from a
/// generator whose state its output gives away. Equal owners in runs of equal seeds have equal numbers, for replays.
pub struct Random(ChaCha12Rng);

impl Random {
    /// The numbers of the owner that these parts name together; the division into parts counts, too.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut key = Sha256::new_with_prefix(b"netbricks random numbers");
        for part in parts {
            key.update((part.len() as u64).to_le_bytes());
            key.update(part);
        }
        Self(ChaCha12Rng::from_seed(key.finalize().into()))
    }

    /// The next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }
}

impl std::fmt::Debug for Random {
    /// Says nothing: the state gives away what comes next.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random(..)")
    }
}

#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;

    use super::*;
    use crate::Worker;

    fn first(mut random: Random) -> [u64; 3] {
        [(); 3].map(|()| random.draw())
    }

    #[test]
    fn owners_that_differ_in_anything_have_other_numbers() {
        let pool = Pool::builder().frames(64).build().unwrap();
        let of = |index, seed, node: &str, purpose| {
            first(Worker::new(index, seed, pool.clone()).of_node(node).random(purpose))
        };
        let usual = of(0, 7, "acme/swap", "module");
        assert_eq!(usual, of(0, 7, "acme/swap", "module"), "a replay has the same");
        for other in [
            of(1, 7, "acme/swap", "module"),
            of(0, 8, "acme/swap", "module"),
            of(0, 7, "beta/swap", "module"),
            of(0, 7, "acme/swap", "ports"),
            of(0, 7, "acme/swapmodule", ""),
        ] {
            assert_ne!(usual, other);
        }
        assert_eq!(format!("{:?}", Random::of(&[])), "Random(..)");
    }
}
