//! Sending on an interface: a batch a system call, each packet behind a virtio-net header.
//!
//! The header says which checksum and which segmentation are left to the kernel.
//!
//! This does not use a transmit ring. The kernel puts a ring's memory into its packets without copying. It
//! frees the slot when the packet's owner changes, not when its last reader is done. On veth pairs, and
//! wherever a packet is received again on the same host, a reused slot would change bytes of packets that
//! wait in a socket.

use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::{Context, DropReason};
use zerocopy::IntoBytes;

use crate::interface::LinkHeader;
use crate::port::{Counters, TransmitQueue};
use crate::sys::packet::{self, PacketSocket, VIRTIO};
use crate::virtio::VirtioHeader;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

pub(super) struct Sender {
    socket: PacketSocket,
    tables: packet::Sender,
    offload: bool,
    /// Bytes of a packet that are not sent: an Ethernet header that the device's packets do not have.
    stays: usize,
    counters: Arc<Counters>,
    /// Packets that were sent or failed, before they return to the pool.
    done: Batch,
}

impl Sender {
    pub(super) fn new(
        socket: PacketSocket,
        offload: bool,
        header: LinkHeader,
        counters: Arc<Counters>,
    ) -> Self {
        let stays = match header {
            LinkHeader::Ethernet => 0,
            LinkHeader::None => ETHERNET,
        };
        Self { socket, tables: packet::Sender::new(), offload, stays, counters, done: Batch::new() }
    }

    /// The number of packets at the batch's front that can be sent.
    ///
    /// All can, but a device without link headers sends only IP.
    fn sendable(&self, batch: &Batch) -> usize {
        if self.stays == 0 {
            return batch.len();
        }
        batch.iter().take_while(|packet| is_ip(packet.data())).count()
    }
}

/// Whether an IP header directly follows the Ethernet header.
fn is_ip(frame: &[u8]) -> bool {
    match (frame.get(12..ETHERNET), frame.get(ETHERNET)) {
        (Some([8, 0]), Some(first)) => first >> 4 == 4,
        (Some([0x86, 0xdd]), Some(first)) => first >> 4 == 6,
        _ => false,
    }
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        while !batch.is_empty() {
            let (offload, stays) = (self.offload, self.stays);
            let sendable = self.sendable(batch);
            if sendable == 0 {
                batch.take_front(1, &mut self.done);
                Counters::add_shared(&self.counters.not_sent, 1);
                cx.drop_batch(&mut self.done, DropReason::Unmatched);
                continue;
            }
            let packets = batch.iter().take(sendable).map(|packet| {
                let header = offload.then(|| {
                    let mut header = [0; VIRTIO];
                    if packet.needs_device() {
                        let of = VirtioHeader::of(&packet.offload(), packet.data());
                        header.copy_from_slice(of.behind(stays).as_bytes());
                    }
                    header
                });
                (header, packet.data().get(stays..).unwrap_or_default())
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
                        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => (DropReason::LinkDown, true),
                        Some(libc::EMSGSIZE) => (DropReason::TooBig, false),
                        _ if needs_device => (DropReason::NoOffload, false),
                        _ => (DropReason::Malformed, false),
                    };
                    batch.take_front(if all { batch.len() } else { 1 }, &mut self.done);
                    Counters::add_shared(&self.counters.not_sent, self.done.len() as u64);
                    if reason == DropReason::TooBig {
                        Counters::add_shared(&self.counters.too_big_to_send, 1);
                    }
                    cx.drop_batch(&mut self.done, reason);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ip_right_behind_the_ethernet_header_leaves_without_it() {
        let frame = |ethertype: u16, first: u8| {
            let mut frame = vec![0; 12];
            frame.extend(ethertype.to_be_bytes());
            frame.push(first);
            frame
        };
        for (ethertype, first, expected) in [
            (0x0800, 0x45, true),
            (0x86dd, 0x60, true),
            (0x0800, 0x60, false),
            (0x86dd, 0x45, false),
            (0x0806, 0x00, false),
            (0x8100, 0x45, false),
        ] {
            assert_eq!(is_ip(&frame(ethertype, first)), expected, "{ethertype:#06x} {first:#04x}");
        }
        for len in 0..15 {
            assert!(!is_ip(&frame(0x0800, 0x45)[..len]));
        }
    }
}
