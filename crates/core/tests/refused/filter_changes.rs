//! A filter does not change packets.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{DropReason, Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input
        .parse::<Ethernet>()
        .filter(DropReason::Denied, |p| {
            p.header_mut().swap_addresses();
            true
        })
        .done()
}

fn main() {}
