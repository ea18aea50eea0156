//! 48-bit MAC addresses (IEEE 802).

use core::fmt;
use core::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A MAC address, in the order of the wire.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address of these six bytes.
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }
    /// Its six bytes.
    #[inline(always)]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
    /// The group bit: multicast or broadcast.
    #[inline(always)]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl From<[u8; 6]> for MacAddress {
    #[inline(always)]
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six hexadecimal pairs separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddressError;

impl fmt::Display for MacAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six hexadecimal pairs separated by colons, as 02:00:00:00:00:01")
    }
}
impl core::error::Error for MacAddressError {}

impl FromStr for MacAddress {
    type Err = MacAddressError;
    fn from_str(text: &str) -> Result<Self, MacAddressError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or(MacAddressError)?;
        }
        if parts.next().is_some() { Err(MacAddressError) } else { Ok(Self(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn text_and_back() {
        let mac: MacAddress = "02:aB:00:00:00:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:ab:00:00:00:ff");
        for bad in [
            "",
            "02:ab",
            "02:ab:00:00:00:ff:00",
            "2:ab:00:00:00:ff",
            "+2:ab:00:00:00:ff",
            "02-ab-00-00-00-ff",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }
}
