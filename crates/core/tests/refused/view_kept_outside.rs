//! The view cannot leave the closure.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    let mut kept = None;
    input.parse::<Ethernet>().transform(move |p| kept = Some(p)).done()
}

fn main() {}
