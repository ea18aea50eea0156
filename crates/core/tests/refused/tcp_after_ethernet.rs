//! TCP cannot follow Ethernet.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ethernet, Tcp};
use netbricks_core::{DropReason, Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().parse::<Tcp>().filter(DropReason::Denied, |p| p.header().fixed().destination_port() != 80).done()
}

fn main() {}
