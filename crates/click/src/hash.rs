//! A hash of small keys that packets choose: fast, and keyed so that senders cannot choose keys that collide.

use std::hash::{BuildHasher, Hasher};

/// Makes hashers of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    key: u64,
}

/// A hash table for keys that packets choose.
pub(crate) type KeyedMap<K, V> = std::collections::HashMap<K, V, Keyed>;

/// An odd number without a pattern (the golden ratio's bits).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves of a product, one over the other: each bit of the result depends on all bits of both.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Keyed {
    /// The hash of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { key: fold(seed ^ MIX, 0xD6E8_FEB8_6659_FD93) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;
    #[inline(always)]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.key, key: self.key }
    }
}

/// A hash that is being computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHasher {
    state: u64,
    key: u64,
}

impl Hasher for KeyedHasher {
    #[inline(always)]
    fn finish(&self) -> u64 {
        fold(self.state ^ MIX, self.key)
    }
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut eight = [0; 8];
            eight[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_ne_bytes(eight));
        }
    }
    #[inline(always)]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }
    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }
    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, MIX).wrapping_add(self.key);
    }
}
