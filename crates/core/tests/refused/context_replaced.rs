//! A node cannot put a context of its own in the place of the graph's.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;
use netbricks_core::{Context, DetachedContext, Node};

struct Forger(DetachedContext);

impl Node for Forger {
    fn process(&mut self, _: usize, _: &mut Batch, cx: &mut Context) {
        *cx = *self.0;
    }
}

fn main() {}
