//! Metadata must have been computed before.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::view::Metadata;
use netbricks_core::{DropReason, Function, Input, Operator};

#[derive(Clone, Copy)]
struct Class(u8);

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().filter(DropReason::Denied, |p| p.get::<Class>().0 == 1).done()
}

fn main() {}
