//! A batch cannot be sent and kept.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Batch;

fn mirror(batch: &Batch) -> Batch {
    batch.clone()
}

fn main() {}
