//! A function can follow another only where the first ends on the wire.
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
