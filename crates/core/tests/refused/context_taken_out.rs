//! A node cannot take the graph's context out and keep it.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;
use netbricks_core::{Context, DetachedContext, Node};

struct Forger(Box<DetachedContext>);

impl Node for Forger {
    fn process(&mut self, _: usize, _: &mut Batch, cx: &mut Context) {
        let _kept = std::mem::replace(cx, **self.0);
    }
}

fn main() {}
