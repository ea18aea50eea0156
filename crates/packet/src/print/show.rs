//! Turns the bits of a [`Field`] into text, in the form that its table gives.
//!
//! Every `Display` of a header, every tree and every difference goes through here, so a value reads the same everywhere.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ethernet::ethertype;
use crate::field::{Field, Show};
use crate::mac::MacAddress;
use crate::protocol;

/// One field's value, printed in the form of its table: `64`, `0x1f2a`, `10.0.0.1`, `ipv4 (0x0800)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// How people read it.
    pub show: Show,
    /// Its width in bits, which is the width of a hexadecimal number.
    pub bits: u16,
    /// The value, right-aligned.
    pub value: u128,
}

impl Shown {
    /// The value of `field` in `header`; `None` where the header's bytes end before the field does.
    pub fn of(field: &Field, header: &[u8]) -> Option<Self> {
        Some(Self { show: field.show, bits: field.bits, value: field.read(header)? })
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.show {
            Show::Dec => write!(f, "{value}"),
            Show::Hex => write!(f, "{value:#0width$x}", width = 2 + usize::from(self.bits).div_ceil(4)),
            Show::Flag => f.write_str(if value == 0 { "clear" } else { "set" }),
            Show::Mac => {
                let [.., a, b, c, d, e, g] = value.to_be_bytes();
                write!(f, "{}", MacAddress::new([a, b, c, d, e, g]))
            }
            Show::Ipv4 => write!(f, "{}", Ipv4Addr::from_bits(value as u32)),
            Show::Ipv6 => write!(f, "{}", Ipv6Addr::from_bits(value)),
            Show::EtherType => match ethertype::name(value as u16) {
                Some(name) => write!(f, "{name} ({value:#06x})"),
                None => write!(f, "{value:#06x}"),
            },
            Show::Protocol => match protocol::name(value as u8) {
                Some(name) => write!(f, "{name} ({value})"),
                None => write!(f, "{value}"),
            },
        }
    }
}

/// A header's fixed part in one line, from its table: `mpls label 16, bottom_of_stack, time_to_live 64`.
///
/// Flags are named when they are set and left out when they are not.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// The header's short name.
    pub name: &'static str,
    /// Its field table.
    pub table: &'static [Field],
    /// Its bytes, from the first on.
    pub bytes: &'a [u8],
}

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let mut before = " ";
        for field in self.table {
            let Some(shown) = Shown::of(field, self.bytes) else { break };
            match field.show {
                Show::Flag if shown.value == 0 => continue,
                Show::Flag => write!(f, "{before}{}", field.name)?,
                _ => write!(f, "{before}{} {shown}", field.name)?,
            }
            before = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Covered;
    extern crate std;
    use std::string::ToString;

    fn shown(show: Show, bits: u16, value: u128) -> std::string::String {
        Shown { show, bits, value }.to_string()
    }

    #[test]
    fn each_kind_reads_as_people_write_it() {
        assert_eq!(shown(Show::Dec, 8, 64), "64");
        assert_eq!(shown(Show::Hex, 16, 0x2a), "0x002a");
        assert_eq!(shown(Show::Hex, 20, 1), "0x00001");
        assert_eq!(shown(Show::Mac, 48, 0x0200_0000_00ff), "02:00:00:00:00:ff");
        assert_eq!(shown(Show::Ipv4, 32, 0x0a00_0001), "10.0.0.1");
        assert_eq!(shown(Show::Ipv6, 128, 1), "::1");
        assert_eq!(shown(Show::EtherType, 16, 0x0800), "ipv4 (0x0800)");
        assert_eq!(shown(Show::EtherType, 16, 0x1234), "0x1234");
        assert_eq!(shown(Show::Protocol, 8, 17), "udp (17)");
        assert_eq!(shown(Show::Protocol, 8, 253), "253");
    }

    #[test]
    fn flags_are_named_when_set_and_a_short_header_ends_the_line() {
        const TABLE: &[Field] = &[
            Field { name: "up", bit: 0, bits: 1, covered: Covered::No, show: Show::Flag },
            Field { name: "down", bit: 1, bits: 1, covered: Covered::No, show: Show::Flag },
            Field { name: "rest", bit: 2, bits: 6, covered: Covered::No, show: Show::Dec },
            Field { name: "far", bit: 8, bits: 8, covered: Covered::No, show: Show::Dec },
        ];
        let line = Fields { name: "x", table: TABLE, bytes: &[0x85] }.to_string();
        assert_eq!(line, "x up, rest 5");
    }
}
