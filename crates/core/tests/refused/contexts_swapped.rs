//! A node cannot swap the graph's context with one of its own.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;
use netbricks_core::{Context, DetachedContext, Node};

struct Forger(DetachedContext);

impl Node for Forger {
    fn process(&mut self, _: usize, _: &mut Batch, cx: &mut Context) {
        std::mem::swap(cx, &mut *self.0);
    }
}

fn main() {}
