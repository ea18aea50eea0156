//! A node has only the context that its graph lends it, and cannot make another to replace it.
#![forbid(unsafe_code)]
use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{Context, Node};

struct Forger(Pool);

impl Node for Forger {
    fn process(&mut self, _: usize, _: &mut Batch, cx: &mut Context) {
        *cx = Context::new(self.0.clone());
    }
}

fn main() {}
