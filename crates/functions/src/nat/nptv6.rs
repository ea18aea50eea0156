//! IPv6 prefixes that are exchanged without state, so that no checksum changes (NPTv6, RFC 6296).

use std::net::Ipv6Addr;

use netbricks_core::packet::checksum::Sum;

use super::spec::{Prefix, PrefixPair};

/// A pair of prefixes, and the sum by which an address is adjusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) inside: Prefix,
    pub(super) outside: Prefix,
    /// To be added to a word of an address that goes outside; its complement is added on the way back.
    adjustment: u16,
}

impl Pair {
    pub(super) fn new(pair: &PrefixPair) -> Self {
        let sum = |prefix: &Prefix| match prefix.address {
            std::net::IpAddr::V6(address) => Sum::ZERO.add128(address.to_bits()).fold(),
            std::net::IpAddr::V4(_) => 0,
        };
        let adjustment = Sum::ZERO.add16(sum(&pair.inside)).add16(!sum(&pair.outside)).fold();
        Self { inside: pair.inside, outside: pair.outside, adjustment }
    }

    /// The address outside of one inside; `None` where it has none (RFC 6296, section 3.5).
    pub(super) fn outward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        exchange(address, &self.outside, self.adjustment)
    }

    /// The address inside of one outside.
    pub(super) fn inward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        exchange(address, &self.inside, !self.adjustment)
    }
}

/// Writes a prefix into an address, and adjusts the word that follows the prefix.
///
/// Prefixes of up to 48 bits leave the subnet (bits 48 to 63) for that. With longer ones it is the first word of
/// the interface identifier that is not all ones (RFC 6296, section 3.4 and 3.5).
fn exchange(address: Ipv6Addr, prefix: &Prefix, adjustment: u16) -> Option<Ipv6Addr> {
    let std::net::IpAddr::V6(new) = prefix.address else { return None };
    let host = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
    let mut words = Ipv6Addr::from_bits(new.to_bits() | address.to_bits() & host).segments();
    let at = match prefix.len {
        0..=48 => 3,
        _ => (4..8).find(|at| words[*at] != 0xffff)?,
    };
    if words[at] == 0xffff {
        return None;
    }
    let adjusted = Sum::ZERO.add16(words[at]).add16(adjustment).fold();
    // All ones and zero are the same number; only zero is sent.
    words[at] = if adjusted == 0xffff { 0 } else { adjusted };
    Some(words.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Pair {
        Pair::new(&text.parse().unwrap())
    }

    /// The example of RFC 6296, section 3.1.
    #[test]
    fn the_rfcs_example_holds() {
        let pair = pair("fd01:203:405::/48 2001:db8:1::/48");
        let inside: Ipv6Addr = "fd01:203:405:1::1234".parse().unwrap();
        let outside: Ipv6Addr = "2001:db8:1:d550::1234".parse().unwrap();
        assert_eq!(pair.outward(inside), Some(outside));
        assert_eq!(pair.inward(outside), Some(inside));
    }

    #[test]
    fn sums_stay_and_addresses_come_back() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 7
        };
        for len in [1u8, 16, 33, 47, 48, 49, 56, 63, 64] {
            let mask = !u128::MAX.checked_shr(len.into()).unwrap_or(0);
            for _ in 0..500 {
                let bits = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
                let (a, b) = (bits(draw() << 7, 0) & mask, bits(draw() << 7, 0) & mask);
                if a == b {
                    continue;
                }
                let text = format!("{}/{len} {}/{len}", Ipv6Addr::from_bits(a), Ipv6Addr::from_bits(b));
                let pair = pair(&text);
                let host = Ipv6Addr::from_bits(a | bits(draw() << 7 | draw(), draw() << 7) & !mask);
                let Some(outside) = pair.outward(host) else { continue };
                let sum = |address: Ipv6Addr| Sum::ZERO.add128(address.to_bits()).fold() % 0xffff;
                assert_eq!(sum(host), sum(outside), "{text} {host}");
                assert!(pair.outside.holds(outside.into()));
                assert_eq!(pair.inward(outside), Some(host), "{text} {outside}");
            }
        }
    }
}
