//! Metadata borrows nothing.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().map(|p| p.header()).done()
}

fn main() {}
