//! Time, arrivals and departures are for ports to tell: a context that is not asked for the port's part has no such methods.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;
use netbricks_core::{Context, DropReason, Node};

struct Forger;

impl Node for Forger {
    fn process(&mut self, _: usize, _: &mut Batch, cx: &mut Context) {
        cx.advance(u64::MAX);
        cx.sent(50_000, 3_000_000);
        cx.lost_on_arrival(DropReason::TooBig, 50_000, 3_000_000);
        cx.take_drops();
        cx.deadline = 0;
        cx.node = 0;
    }
}

fn main() {}
