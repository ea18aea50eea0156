//! Sending on an interface: a batch a system call, each packet behind a virtio-net header that says which checksum and
//! which segmentation are left to the kernel.
//!
//! Not through a transmit ring: the kernel puts a ring's memory into its packets without copying and frees the slot when
//! the packet's owner changes, not when its last reader is done. On veth pairs, and wherever else a packet is received
//! again on the same host, a reused slot would then change bytes of packets that wait in a socket.

use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::{Context, Drop};
use zerocopy::IntoBytes;

use crate::port::{Counters, TransmitQueue};
use crate::sys::packet::{self, PacketSocket, VIRTIO};
use crate::virtio::VirtioHeader;

pub(super) struct Sender {
    socket: PacketSocket,
    tables: packet::Sender,
    offload: bool,
    counters: Arc<Counters>,
    /// For packets that were sent or failed, on their way back to the pool.
    done: Batch,
}

impl Sender {
    pub(super) fn new(socket: PacketSocket, offload: bool, counters: Arc<Counters>) -> Self {
        Self { socket, tables: packet::Sender::new(), offload, counters, done: Batch::new() }
    }
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        while !batch.is_empty() {
            let offload = self.offload;
            let packets = batch.iter().map(|packet| {
                let header = offload.then(|| {
                    let mut header = [0; VIRTIO];
                    if packet.needs_device() {
                        let of = VirtioHeader::of(&packet.offload(), packet.data());
                        header.copy_from_slice(of.as_bytes());
                    }
                    header
                });
                (header, packet.data())
            });
            match self.tables.send(&self.socket, packets) {
                Ok(0) => return,
                Ok(sent) => {
                    batch.take_front(sent, &mut self.done);
                    let (packets, bytes) = (self.done.len() as u64, self.done.bytes());
                    cx.transmitting().sent(packets, bytes);
                    Counters::add(&self.counters.sent, packets);
                    Counters::add(&self.counters.sent_bytes, bytes);
                    self.done.clear();
                }
                Err(error) => {
                    let needs_device = batch.get(0).is_some_and(netbricks_buffer::Packet::needs_device);
                    let (reason, all) = match error.raw_os_error() {
                        // The socket's or the device's queue is full.
                        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return,
                        Some(libc::EINTR) => continue,
                        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => (Drop::LinkDown, true),
                        Some(libc::EMSGSIZE) => (Drop::TooBig, false),
                        _ if needs_device => (Drop::NoOffload, false),
                        _ => (Drop::Malformed, false),
                    };
                    batch.take_front(if all { batch.len() } else { 1 }, &mut self.done);
                    Counters::add_shared(&self.counters.not_sent, self.done.len() as u64);
                    cx.drop_batch(&mut self.done, reason);
                }
            }
        }
    }
}
