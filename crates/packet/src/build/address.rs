//! Addresses as a packet's author writes them: as values, as octets, or as text.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::BuildError;
use crate::mac::MacAddress;

/// Converts into an address of type `A`: the address itself, its octets, or text.
pub trait IntoAddress<A> {
    /// The address.
    ///
    /// # Errors
    /// [`BuildError::Address`] names text that is none.
    fn into_address(self) -> Result<A, BuildError>;
}

/// A kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A MAC address.
    Mac,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
            Self::Mac => "a MAC address",
        })
    }
}

/// Up to 48 bytes of text, kept in place, so that an error can name the unreadable text without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; 48],
    size: u8,
}

impl Text {
    /// The longest prefix of `text` that fits.
    pub fn new(text: &str) -> Self {
        let mut size = text.len().min(48);
        while !text.is_char_boundary(size) {
            size -= 1;
        }
        let mut bytes = [0; 48];
        bytes[..size].copy_from_slice(&text.as_bytes()[..size]);
        Self { bytes, size: size as u8 }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..usize::from(self.size))
            .and_then(|bytes| str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! address {
    ($($address:ty, $octets:ty, $kind:ident;)*) => {$(
        impl IntoAddress<$address> for $address {
            fn into_address(self) -> Result<$address, BuildError> {
                Ok(self)
            }
        }
        impl IntoAddress<$address> for $octets {
            fn into_address(self) -> Result<$address, BuildError> {
                Ok(self.into())
            }
        }
        impl IntoAddress<$address> for &str {
            fn into_address(self) -> Result<$address, BuildError> {
                self.parse().map_err(|_| BuildError::Address { text: Text::new(self), kind: AddressKind::$kind })
            }
        }
    )*};
}
address! {
    Ipv4Addr, [u8; 4], Ipv4;
    Ipv6Addr, [u8; 16], Ipv6;
    MacAddress, [u8; 6], Mac;
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn text_is_cut_between_characters() {
        let long = "é".repeat(40);
        assert_eq!(Text::new(&long).as_str(), "é".repeat(24));
        assert_eq!(Text::new(&std::format!("x{long}")).as_str(), std::format!("x{}", "é".repeat(23)));
        assert_eq!(Text::new("").as_str(), "");
    }

    #[test]
    fn every_form_is_the_same_address() {
        let forms: [Result<Ipv4Addr, _>; 3] = [
            [10, 0, 0, 1].into_address(),
            "10.0.0.1".into_address(),
            Ipv4Addr::new(10, 0, 0, 1).into_address(),
        ];
        assert!(forms.iter().all(|form| *form == forms[0] && form.is_ok()));
        let error = IntoAddress::<Ipv6Addr>::into_address("10.0.0.1").unwrap_err();
        assert_eq!(error.to_string(), "`10.0.0.1` is not an IPv6 address");
        let error = IntoAddress::<MacAddress>::into_address("2:0").unwrap_err();
        assert_eq!(error.to_string(), "`2:0` is not a MAC address");
    }
}
