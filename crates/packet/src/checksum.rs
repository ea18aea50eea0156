//! The Internet checksum (RFC 1071): whole, incremental (RFC 1624) and with pseudo-headers.
//!
//! Checksums are numbers as the wire's two bytes read big-endian.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol;

/// A one's complement sum under construction: any number of even-sized pieces, then perhaps one of odd size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed.
    pub const ZERO: Self = Self(0);

    /// Adds a 16-bit number.
    #[inline(always)]
    #[must_use]
    pub const fn add16(self, value: u16) -> Self {
        Self(self.0 + value as u64)
    }
    /// Adds a 32-bit number: the same as its two halves.
    #[inline(always)]
    #[must_use]
    pub const fn add32(self, value: u32) -> Self {
        Self(self.0 + (value >> 16) as u64 + (value & 0xffff) as u64)
    }
    /// Adds bytes at an even offset of the sum.
    ///
    /// If their number is odd, they must be the last.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        Self(self.0 + u64::from(sum_native(bytes).to_be()))
    }
    /// Adds the pseudo-header of a TCP, UDP or ICMPv6 segment of `length` bytes (RFC 9293 3.1, RFC 8200 8.1).
    ///
    /// For addresses of different versions, which no packet has, the sum is that of each by its own rule.
    #[inline]
    #[must_use]
    pub fn add_pseudo(self, source: IpAddr, destination: IpAddr, protocol: u8, length: u32) -> Self {
        self.add_address(source).add_address(destination).add16(u16::from(protocol)).add32(length)
    }
    /// Adds an address.
    #[inline(always)]
    #[must_use]
    pub fn add_address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.add32(address.to_bits()),
            IpAddr::V6(address) => self.add128(address.to_bits()),
        }
    }
    /// Adds a 128-bit number: the same as its eight 16-bit words.
    #[inline(always)]
    #[must_use]
    pub const fn add128(self, value: u128) -> Self {
        self.add32((value >> 96) as u32)
            .add32((value >> 64) as u32)
            .add32((value >> 32) as u32)
            .add32(value as u32)
    }
    /// The sum folded to 16 bits: 0xffff if everything under a right checksum was added, that checksum included.
    #[inline(always)]
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }
    /// The checksum: the complement of the sum.
    #[inline(always)]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }
}

/// Folds a sum of 16-bit words, most significant carries included, to 16 bits; 0 only if the sum is 0.
#[inline(always)]
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum + (sum >> 16)) as u16
}

/// The one's complement sum of the 16-bit words of `bytes`, in the machine's own byte order.
///
/// Zero pads a lone last byte. RFC 1071 section 2(B): the sum in one byte order is the other's, swapped.
#[inline]
fn sum_native(bytes: &[u8]) -> u16 {
    // LLVM turns this into vector additions; it would take 2^32 words to overflow.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let (words, rest) = rest.as_chunks::<2>();
    for word in words {
        sum += u64::from(u16::from_ne_bytes(*word));
    }
    if let [last] = rest {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    fold(sum)
}

/// The Internet checksum of `bytes`, in which the checksum field itself must be zero.
///
/// It is 0 if `bytes` include a right checksum.
#[inline]
pub fn internet(bytes: &[u8]) -> u16 {
    Sum::ZERO.add_bytes(bytes).finish()
}

/// The checksum after a 16-bit word under it changed from `old` to `new` (RFC 1624, equation 3).
#[inline(always)]
#[must_use]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// As [`update16`], for 32 bits that stand at an even offset.
#[inline(always)]
#[must_use]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    Sum(!checksum as u64).add32(!old).add32(new).finish()
}

/// As [`update16`], for 128 bits that stand at an even offset.
#[inline(always)]
#[must_use]
pub const fn update128(checksum: u16, old: [u8; 16], new: [u8; 16]) -> u16 {
    Sum(!checksum as u64).add128(!u128::from_be_bytes(old)).add128(u128::from_be_bytes(new)).finish()
}

/// Takes the sum of `bytes` and `length` `out` of the checksum at `at` in them, or adds it.
///
/// A `length` is the pseudo-header's. 0 is written as 0xffff where the checksum is UDP's, to which 0 says "none".
pub(crate) fn cover(bytes: &mut [u8], at: usize, length: usize, out: bool, udp: bool) {
    let Some((before, [high, low, after @ ..])) = bytes.split_at_mut_checked(at) else { return };
    let sum = Sum::ZERO.add_bytes(before).add_bytes(after).add32(length as u32).fold();
    let (old, new) = if out { (sum, 0) } else { (0, sum) };
    let carried = match update16(u16::from_be_bytes([*high, *low]), old, new) {
        0 if udp => 0xffff,
        carried => carried,
    };
    [*high, *low] = carried.to_be_bytes();
}

/// The checksum of a transport `segment` whose own checksum field is zero, with its pseudo-header.
///
/// The protocol is TCP, UDP, UDP-Lite over its whole length, ICMPv6, or ICMP, which has no pseudo-header. For UDP
/// and UDP-Lite, 0 becomes 0xffff, since 0 says "none" (RFC 768).
pub fn transport(source: IpAddr, destination: IpAddr, number: u8, segment: &[u8]) -> u16 {
    let sum = match number {
        protocol::ICMP => Sum::ZERO,
        _ => Sum::ZERO.add_pseudo(source, destination, number, segment.len() as u32),
    };
    let checksum = sum.add_bytes(segment).finish();
    if checksum == 0 && matches!(number, protocol::UDP | protocol::UDP_LITE) { 0xffff } else { checksum }
}

/// Whether a transport segment's checksum is right.
///
/// A UDP checksum of 0 over IPv4 counts as right, over IPv6 as wrong (RFC 8200 8.1). `None` if the protocol has
/// no Internet checksum here or the segment is too short to hold it.
pub fn is_valid(source: IpAddr, destination: IpAddr, number: u8, segment: &[u8]) -> Option<bool> {
    let field = field_offset(number)?;
    let stored = segment.get(field..field + 2)?;
    if number == protocol::UDP && stored == [0, 0] {
        return Some(source.is_ipv4());
    }
    let sum = match number {
        protocol::ICMP => Sum::ZERO,
        _ => Sum::ZERO.add_pseudo(source, destination, number, segment.len() as u32),
    };
    Some(sum.add_bytes(segment).fold() == 0xffff)
}

/// Where a transport header holds its checksum, in bytes from its start.
#[inline(always)]
pub const fn field_offset(number: u8) -> Option<usize> {
    match number {
        protocol::TCP => Some(16),
        protocol::UDP | protocol::UDP_LITE => Some(6),
        protocol::ICMP | protocol::ICMPV6 => Some(2),
        protocol::DCCP => Some(6),
        _ => None,
    }
}

/// The sum of an IPv4 pseudo-header.
#[inline(always)]
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    Sum::ZERO.add32(source.to_bits()).add32(destination.to_bits()).add16(u16::from(protocol)).add16(length)
}

/// The sum of an IPv6 pseudo-header.
#[inline(always)]
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u32) -> Sum {
    Sum::ZERO.add128(source.to_bits()).add128(destination.to_bits()).add16(u16::from(protocol)).add32(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{self, Random};

    #[test]
    fn the_fast_sum_is_the_plain_one() {
        let mut random = Random(1);
        for round in 0..20_000 {
            let count = if round < 300 { round } else { random.below(2000) };
            let bytes = random.edgy(count);
            assert_eq!(internet(&bytes), oracle::checksum(&bytes), "{count} bytes");
        }
        // Large enough to overflow 32 bits of carries.
        let bytes = std::vec![0xff; 1 << 20];
        assert_eq!(internet(&bytes), oracle::checksum(&bytes));
    }

    #[test]
    fn updates_are_recomputations() {
        let mut random = Random(2);
        for _ in 0..100_000 {
            // The first byte is not zero, as in every header: sums of nothing but zeros are where 0 and 0xffff differ.
            let mut bytes = random.edgy(32);
            bytes[0] |= 0x40;
            let before = internet(&bytes);
            let new = random.edgy(16);
            let (at, size) = [(2, 2), (4, 4), (16, 16)][random.below(3)];
            let old: std::vec::Vec<u8> = bytes[at..at + size].into();
            bytes[at..at + size].copy_from_slice(&new[..size]);
            let updated = match size {
                2 => update16(
                    before,
                    u16::from_be_bytes([old[0], old[1]]),
                    u16::from_be_bytes([new[0], new[1]]),
                ),
                4 => update32(
                    before,
                    u32::from_be_bytes(old[..].try_into().unwrap()),
                    u32::from_be_bytes(new[..4].try_into().unwrap()),
                ),
                _ => update128(before, old[..].try_into().unwrap(), new[..].try_into().unwrap()),
            };
            assert_eq!(updated, oracle::checksum(&bytes));
        }
    }

    #[test]
    fn transport_checksums_are_the_oracles() {
        let mut random = Random(3);
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            let (ip, payload) = crate::ip::IpRef::split(&sample.bytes).unwrap();
            let pseudo = ip.pseudo_header();
            let (source, destination) = (pseudo.source(), pseudo.destination());
            assert_eq!(ip.transport_checksum_is_valid(payload), Some(true));
            assert_eq!(is_valid(source, destination, sample.protocol, payload), Some(true));
            let field = sample.transport + field_offset(sample.protocol).unwrap();
            let stored = u16::from_be_bytes([sample.bytes[field], sample.bytes[field + 1]]);
            if sample.protocol == protocol::UDP && stored == 0 {
                continue;
            }
            sample.bytes[field..field + 2].fill(0);
            assert_eq!(
                transport(source, destination, sample.protocol, &sample.bytes[sample.transport..]),
                stored
            );
            // Any single bit flipped is noticed.
            sample.bytes[field..field + 2].copy_from_slice(&stored.to_be_bytes());
            let at = sample.transport + random.below(sample.bytes.len() - sample.transport);
            sample.bytes[at] ^= 1 << random.below(8);
            let valid = is_valid(source, destination, sample.protocol, &sample.bytes[sample.transport..]);
            let none = sample.protocol == protocol::UDP && sample.bytes[field..field + 2] == [0, 0];
            assert!(valid == Some(false) || none);
        }
    }

    extern crate std;
}
