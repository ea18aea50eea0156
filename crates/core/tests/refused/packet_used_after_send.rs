//! A packet that was sent is gone.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Packet;
use netbricks_core::{Context, Edge};

fn send(packet: Packet, cx: &mut Context) -> usize {
    cx.emit(Edge::OUT, packet);
    packet.data().len()
}

fn main() {}
