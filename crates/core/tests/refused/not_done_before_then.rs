//! One function follows another only where that ends on the wire.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

fn count(input: Input) -> impl Function {
    input.parse::<Ethernet>().done()
}

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().then(count)
}

fn main() {}
