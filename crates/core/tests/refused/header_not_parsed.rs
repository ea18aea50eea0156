//! An enclosing header must have been parsed before.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ethernet, Ipv4, Vlan};
use netbricks_core::view::Enclosing;
use netbricks_core::{DropReason, Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input.parse::<Ethernet>().parse::<Ipv4>().filter(DropReason::Denied, |p| p.outer::<Vlan>().vid() == 1).done()
}

fn main() {}
