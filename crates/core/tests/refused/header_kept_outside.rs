//! A header cannot be kept in a variable outside.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    let mut kept: Option<&Ethernet> = None;
    input.parse::<Ethernet>().transform(move |p| kept = Some(p.header())).done()
}

fn main() {}
