//! `resize` replaces only parts that the innermost header has.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ip, Link, Udp};
use netbricks_core::{Function, Input, Operator};

fn options_of_udp(input: Input) -> impl Function {
    input.parse::<Link>().parse::<Ip>().parse::<Udp>().resize(|_, replace| replace.options(&[])).done()
}

fn of_a_link(input: Input) -> impl Function {
    input.parse::<Link>().resize(|_, _| {}).done()
}

fn main() {}
