//! Routes as they are written: `ADDRESS/MASK [GATEWAY] OUTPUT`.

use std::fmt;
use std::net::Ipv4Addr;

use crate::arguments::Argument;
use crate::language::text;
use crate::router::At;
use crate::value::{Prefix, integer};

/// A route of packets whose destination lies in a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::elements) struct Route {
    /// The address; bits that the mask does not have are 0.
    pub(in crate::elements) address: u32,
    /// The mask.
    pub(in crate::elements) mask: u32,
    /// Where packets go.
    pub(in crate::elements) hop: Hop,
}

/// A gateway and an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::elements) struct Hop {
    /// The gateway, 0 for none.
    pub(in crate::elements) gateway: u32,
    /// The output; negative in a route to remove that names none.
    pub(in crate::elements) port: i32,
}

impl Route {
    /// Reads a route. One that is to be removed needs no output.
    pub(in crate::elements) fn read(text: &str, to_remove: bool, at: At<'_>) -> Option<Self> {
        let words = text::split_words(text);
        let (prefix, mut rest) = words.split_first()?;
        let prefix = Prefix::read(prefix, at, true).ok()?;
        let mut gateway = 0;
        if let Some((first, behind)) = rest.split_first() {
            if first == "-" {
                rest = behind;
            } else if let Ok(address) = Ipv4Addr::parse(first, at) {
                gateway = address.into();
                rest = behind;
            }
        }
        let port = match rest {
            [] if to_remove => -1,
            [port] => i32::try_from(integer(port)?).ok()?,
            _ => return None,
        };
        let mask = u32::from(prefix.mask);
        Some(Self { address: u32::from(prefix.address) & mask, mask, hop: Hop { gateway, port } })
    }

    /// The mask's length, where its ones come first.
    pub(in crate::elements) fn length(&self) -> Option<u8> {
        (self.mask.count_ones() == self.mask.leading_ones()).then_some(self.mask.leading_ones() as u8)
    }
    /// Whether a destination lies in it.
    pub(in crate::elements) fn contains(&self, address: u32) -> bool {
        address & self.mask == self.address
    }
    /// Whether this, as one to remove, means another.
    pub(in crate::elements) fn means(&self, other: &Self) -> bool {
        (self.address, self.mask) == (other.address, other.mask)
            && (self.hop.port < 0 || self.hop == other.hop)
    }

    fn prefix(&self) -> String {
        let address = Ipv4Addr::from(self.address);
        match self.length() {
            Some(length) => format!("{address}/{length}"),
            None => format!("{address}/{}", Ipv4Addr::from(self.mask)),
        }
    }
    fn gateway(&self) -> String {
        match self.hop.gateway {
            0 => "-".into(),
            gateway => Ipv4Addr::from(gateway).to_string(),
        }
    }
    /// The line of a table that shows it, in columns.
    pub(in crate::elements) fn line(&self) -> String {
        let tabs = |text: &str, width: usize| if text.len() + 1 < width { "\t\t" } else { "\t" };
        let (prefix, gateway) = (self.prefix(), self.gateway());
        format!("{prefix}{}{gateway}{}{}\n", tabs(&prefix, 17), tabs(&gateway, 9), self.hop.port)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {}", self.prefix(), self.gateway(), self.hop.port)
    }
}
