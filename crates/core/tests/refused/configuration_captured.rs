//! A function owns what it uses: it outlives the settings that it was made of.
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
