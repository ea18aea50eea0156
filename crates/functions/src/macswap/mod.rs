//! Swaps the Ethernet addresses, as a port's reflector does.

#[cfg(test)]
mod tests;

use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

/// Swaps the Ethernet addresses.
pub fn macswap(input: Input) -> impl Function {
    input.parse::<Ethernet>().transform(|packet| packet.header_mut().swap_addresses()).done()
}
