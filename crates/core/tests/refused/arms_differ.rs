//! Arms meet in one stack.
#![forbid(unsafe_code)]
use netbricks_core::packet::{Ip, Link, Tcp, Udp};
use netbricks_core::{Function, Input, Operator};

fn nf(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .branch(|p| p.header().protocol() == 17, |udp| udp.parse::<Udp>(), |tcp| tcp.parse::<Tcp>())
        .done()
}

fn main() {}
