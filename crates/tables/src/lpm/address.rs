//! Addresses of prefixes, IPv4 and IPv6, cut into the strides of the trie.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::compressed_leaf::REST;
use crate::flow::Encode;
use crate::hash::{Key, Secret, hash_words};
use crate::parts::Whole;

/// An address that an [`Lpm`](super::Lpm) can look up: [`Ipv4Addr`] or [`Ipv6Addr`].
pub trait Address: Key + Ord + std::fmt::Display + sealed::Strides {
    /// Bits of an address.
    const BITS: u8;
    /// The address with all but its first `len` bits cleared.
    #[must_use]
    fn truncated(self, len: u8) -> Self;
}

pub(super) mod sealed {
    pub trait Strides {
        /// Bits that the first stride takes.
        const ROOT: u8;
        /// Whether most lookups end there, so that it pays to have its cells in a byte each as well.
        const ENDS: bool;
        /// Bits that each later one takes.
        const STRIDE: u8;
        /// The first stride.
        fn root(self) -> usize;
        /// The bits behind the first stride, where [most lookups end](Self::ENDS) in it.
        fn rest(self) -> u32;
        /// Stride `level` after the first, counted from 0.
        fn part(self, level: u8) -> usize;
    }
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;
    fn truncated(self, len: u8) -> Self {
        Self::from_bits(self.to_bits() & u32::MAX.checked_shl(u32::from(32 - len.min(32))).unwrap_or(0))
    }
}

/// DIR-24-8 (Gupta, Lin and McKeown, INFOCOM 1998) with a shorter first stride, and a third.
///
/// A lookup takes one access for prefixes within 20 bits, two within 26, and three beyond. While the first stride has
/// bytes, an exception takes two accesses if a compressed leaf answers it, else two more than without bytes.
///
/// The first stride takes 4 MiB, or 1 MiB in bytes, which lies in the caches and in few pages. One of 24 bits would
/// take 32 or 64 MiB. Nearly every access would then wait for memory and for the address's translation.
impl sealed::Strides for Ipv4Addr {
    const ROOT: u8 = 32 - REST;
    const ENDS: bool = true;
    const STRIDE: u8 = 6;
    #[inline(always)]
    fn root(self) -> usize {
        (self.to_bits() >> (32 - Self::ROOT)) as usize
    }
    #[inline(always)]
    fn rest(self) -> u32 {
        self.to_bits() % (1 << REST)
    }
    #[inline(always)]
    fn part(self, level: u8) -> usize {
        let below = 32 - u32::from(Self::ROOT) - u32::from(Self::STRIDE) * (u32::from(level) + 1);
        (self.to_bits() >> below) as usize % (1 << Self::STRIDE)
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;
    fn truncated(self, len: u8) -> Self {
        Self::from_bits(self.to_bits() & u128::MAX.checked_shl(u32::from(128 - len.min(128))).unwrap_or(0))
    }
}

/// The first stride is short, since nearly all of the Internet's prefixes share their first bits (2000::/3).
///
/// An address behind a /48 takes five accesses, of which the first two or three stay in the caches.
impl sealed::Strides for Ipv6Addr {
    const ROOT: u8 = 16;
    const ENDS: bool = false;
    const STRIDE: u8 = 8;
    #[inline(always)]
    fn root(self) -> usize {
        (self.to_bits() >> 112) as usize
    }
    #[inline(always)]
    fn rest(self) -> u32 {
        0
    }
    #[inline(always)]
    fn part(self, level: u8) -> usize {
        (self.to_bits() >> (104 - 8 * u32::from(level)) & 0xff) as usize
    }
}

impl Key for Ipv4Addr {
    type Parts = Whole;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        hash_words(&[u64::from(self.to_bits())], secret)
    }
}

impl Key for Ipv6Addr {
    type Parts = Whole;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        hash_words(&[(self.to_bits() >> 64) as u64, self.to_bits() as u64], secret)
    }
}

/// In network byte order.
impl Encode for Ipv4Addr {
    const SIZE: usize = 4;
    fn encode(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.octets());
    }
    fn decode(from: &[u8]) -> Option<Self> {
        <[u8; 4]>::try_from(from).ok().map(Self::from)
    }
}

/// In network byte order.
impl Encode for Ipv6Addr {
    const SIZE: usize = 16;
    fn encode(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.octets());
    }
    fn decode(from: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(from).ok().map(Self::from)
    }
}
