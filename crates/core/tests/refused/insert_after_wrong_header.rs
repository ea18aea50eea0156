//! A header must not be inserted after a header that it cannot follow.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ethernet, Udp};
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().insert(|_| Udp::new(1, 2, 0)).done()
}

fn main() {}
