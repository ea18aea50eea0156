//! A packet that went into a batch is gone.
#![forbid(unsafe_code)]
use netbricks_core::buffer::{Batch, Packet};

fn send(batch: &mut Batch, packet: Packet) -> usize {
    let _ = batch.push(packet);
    packet.data().len()
}

fn main() {}
