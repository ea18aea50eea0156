//! An NF's crate forbids `unsafe`.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input
        .parse::<Ethernet>()
        .transform(|p| {
            let start = p.payload_mut().as_mut_ptr();
            unsafe { *start.add(10_000) = 1 }
        })
        .done()
}

fn main() {}
