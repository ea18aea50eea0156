//! A node has the context that its graph lends it, and can't make another to put in its place.
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
