//! Only ports report time, arrivals and departures: a plain context has no methods for them.
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
