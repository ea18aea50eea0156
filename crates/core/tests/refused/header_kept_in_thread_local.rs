//! A header cannot be kept, not even in a thread-local.
#![forbid(unsafe_code)]
use std::cell::Cell;

use netbricks_core::packet::Ethernet;
use netbricks_core::{Function, Input, Operator};

thread_local! {
    static KEPT: Cell<Option<&'static mut Ethernet>> = const { Cell::new(None) };
}

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().transform(|p| KEPT.set(Some(p.header_mut()))).done()
}

fn main() {}
