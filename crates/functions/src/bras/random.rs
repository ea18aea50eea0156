//! Numbers that others cannot guess, from the worker's seed: session IDs, magic numbers, challenges and cookies.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};

/// A generator that is keyed by a seed and its owner's name, and goes on with the clock.
///
/// Equal seeds at equal times give equal numbers, so that replays repeat exactly. A generator that is made again at
/// another time, such as after a panic, gives other numbers than the first.
pub(super) struct Random {
    key: Hmac<Md5>,
    count: u64,
    /// The time (ns) of the last [`stir`](Self::stir).
    time: u64,
}

impl Random {
    pub(super) fn new(seed: u64, owner: &str, purpose: &[u8]) -> Self {
        let mut key = [0; 64];
        let len = purpose.len().min(40);
        key[..8].copy_from_slice(&seed.to_be_bytes());
        key[8..24].copy_from_slice(&Md5::digest(owner));
        key[24..24 + len].copy_from_slice(&purpose[..len]);
        // A key of any length is taken; this one has the length of a block.
        let key = Hmac::new_from_slice(&key).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Self { key, count: 0, time: 0 }
    }

    /// Makes the numbers from now on depend on the time (ns), too.
    pub(super) fn stir(&mut self, now: u64) {
        self.time = now;
    }

    /// The keyed digest of some parts; equal for equal parts.
    pub(super) fn digest(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut mac = self.key.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// The next 16 bytes.
    pub(super) fn bytes(&mut self) -> [u8; 16] {
        self.count += 1;
        self.digest(&[&self.count.to_be_bytes(), &self.time.to_be_bytes()])
    }

    pub(super) fn number(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// A magic number (RFC 1661, section 6.4): never 0.
    pub(super) fn magic(&mut self) -> u32 {
        (self.number() as u32).max(1)
    }
}

/// Whether two byte strings are equal, in a time that does not tell where they differ.
pub(super) fn are_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_others_do_not() {
        let numbers = |seed, owner, purpose: &[u8], now| {
            let mut random = Random::new(seed, owner, purpose);
            random.stir(now);
            [random.number(), random.number()]
        };
        let first = numbers(1, "north", b"a", 7);
        assert_eq!(first, numbers(1, "north", b"a", 7));
        assert_ne!(first[0], first[1]);
        let others =
            [numbers(2, "north", b"a", 7), numbers(1, "south", b"a", 7), numbers(1, "north", b"b", 7)];
        // Made again at another time, as after a panic.
        for other in others.into_iter().chain([numbers(1, "north", b"a", 8)]) {
            assert!(other.iter().all(|number| !first.contains(number)), "{other:?} {first:?}");
        }
    }

    #[test]
    fn strings_are_compared_whole() {
        assert!(are_equal(b"same", b"same") && are_equal(b"", b""));
        assert!(!are_equal(b"same", b"sam") && !are_equal(b"same", b"samf"));
    }
}
