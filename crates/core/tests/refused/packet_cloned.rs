//! A packet is unique: a copy is explicit and counted.
#![forbid(unsafe_code)]
use netbricks_core::buffer::Packet;

fn copy(packet: &Packet) -> Packet {
    packet.clone()
}

fn main() {}
