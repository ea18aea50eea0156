//! A function owns all that it uses, since it outlives the settings from which it was made.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{DropReason, Function, Input, Operator};

struct Settings {
    longest: usize,
}

fn nf(input: Input, settings: &Settings) -> impl Function {
    input.parse::<Ethernet>().filter(DropReason::TooBig, |p| p.frame_len() <= settings.longest).done()
}

fn main() {}
