//! A batch that was given to another core is gone.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;

fn twice(batch: Batch, send: impl Fn(Batch)) {
    send(batch);
    send(batch);
}

fn main() {}
