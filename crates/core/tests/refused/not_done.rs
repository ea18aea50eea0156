//! A function ends on the wire.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ethernet, Ipv4};
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().parse::<Ipv4>()
}

fn main() {}
