//! IPv4 addresses in IPv6 addresses (RFC 6052).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::spec::Prefix;

/// The prefix under which IPv4 addresses are embedded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Embedding {
    prefix: u128,
    len: u8,
}

impl Embedding {
    pub(super) fn new(prefix: &Prefix) -> Option<Self> {
        match prefix.address {
            IpAddr::V6(address) => Some(Self { prefix: address.to_bits(), len: prefix.len }),
            IpAddr::V4(_) => None,
        }
    }

    /// The octets of the IPv4 address, which leave out octet 8 (section 2.2).
    fn places(self) -> [usize; 4] {
        let first = usize::from(self.len / 8);
        std::array::from_fn(|at| match first + at {
            // The octet "u" is always 0.
            place if first <= 8 && place >= 8 => place + 1,
            place => place,
        })
    }

    pub(super) fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.prefix.to_be_bytes();
        for (place, octet) in self.places().into_iter().zip(address.octets()) {
            octets[place] = octet;
        }
        octets.into()
    }

    /// The IPv4 address in an address under this prefix.
    pub(super) fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let rest = 128 - u32::from(self.len);
        if (address.to_bits() ^ self.prefix).checked_shr(rest).unwrap_or(0) != 0 {
            return None;
        }
        let octets = address.octets();
        Some(self.places().map(|place| octets[place]).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6052, section 2.4.
    #[test]
    fn the_rfcs_examples_hold() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let embedding = Embedding::new(&prefix.parse().unwrap()).unwrap();
            let (v4, v6) = ("192.0.2.33".parse().unwrap(), address.parse().unwrap());
            assert_eq!(embedding.embed(v4), v6, "{prefix}");
            assert_eq!(embedding.extract(v6), Some(v4), "{prefix}");
        }
        let embedding = Embedding::new(&"64:ff9b::/96".parse().unwrap()).unwrap();
        assert_eq!(embedding.extract("64:ff9c::1".parse().unwrap()), None);
    }
}
