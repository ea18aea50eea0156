//! Ports in a graph: receive queues become nodes that bring packets in, transmit queues become nodes that
//! send.
//!
//! This module has the duties that ports of all drivers have on arrival: labels and checksum policy. The
//! duties on sending (MTU, offloads, bounded retries, counted failures) are in `transmit`.

mod shared;
mod transmit;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netbricks_buffer::{BATCH, Batch};
use netbricks_core::{Context, DropReason, Node, NodeQueue, Poll, Shape};

pub use shared::SharedTransmit;
pub(crate) use transmit::offer;
pub use transmit::{LiveLimits, TransmitLimits, TransmitNode};

use crate::checksum::ChecksumCheck;
use crate::port::{ChecksumPolicy, Counters, Port, PortError, ReceiveQueue};

/// A node that brings a receive queue's packets into a graph.
pub struct ReceiveNode {
    queue: Box<dyn ReceiveQueue>,
    kind: String,
    port: u16,
    number: u16,
    labelled: bool,
    /// The queue keeps packets, and has checked their checksums on arrival.
    keeps: bool,
    checksums: ChecksumCheck,
}

impl ReceiveNode {
    /// A node over `queue`, which is number `number` of the port with index `port`.
    ///
    /// `driver` names its kind, and wrong checksums are counted in `counters`.
    pub fn new(
        queue: Box<dyn ReceiveQueue>,
        driver: &str,
        (port, number): (u16, u16),
        policy: ChecksumPolicy,
        counters: Arc<Counters>,
    ) -> Self {
        let (labelled, keeps) = (queue.is_labelled(), queue.keeps_packets());
        let checksums = ChecksumCheck::new(policy, counters);
        Self { queue, kind: format!("{driver} receive"), port, number, labelled, keeps, checksums }
    }

    /// Takes receive queue `queue` of a port that has index `number` in its run.
    ///
    /// # Errors
    /// As [`Port::take_receive`].
    pub fn take(port: &mut dyn Port, number: u16, queue: usize) -> Result<Self, PortError> {
        let taken = port.take_receive(queue)?;
        let counters = port.counters().get(queue).cloned().unwrap_or_default();
        Ok(Self::new(taken, port.driver(), (number, queue as u16), port.checksum_policy(), counters))
    }

    /// Removes the packets that the port's checksum policy refuses.
    fn drop_bad_checksums(&self, batch: &mut Batch, cx: &mut Context) {
        let mut refused = [false; BATCH];
        let mut any = false;
        for (packet, refused) in batch.iter().zip(&mut refused) {
            *refused = !self.checksums.accepts(packet);
            any |= *refused;
        }
        if any {
            let kept = batch.compact(|slot, _| u16::from(refused[slot]));
            batch
                .drain_from(kept)
                .for_each(|packet| cx.receiving().drop_arrival(packet, DropReason::BadChecksum));
        }
    }

    /// Writes the port, the queue and the time of arrival, unless the driver has written them.
    #[inline(always)]
    fn label(&self, batch: &mut Batch, now: u64) {
        if self.labelled {
            return;
        }
        batch.each_packet(|_, packet| {
            packet.set_ingress(self.port, self.number);
            if packet.received_at() == 0 {
                packet.set_received_at(now);
            }
        });
    }
}

impl Node for ReceiveNode {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        // The node has no inputs, so the graph never calls this. Packets that arrive anyway are not lost
        // silently.
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let poll = self.queue.receive(batch, cx);
        self.label(batch, cx.now());
        if self.checksums.looks() && !self.keeps {
            self.drop_bad_checksums(batch, cx);
        }
        poll
    }
    fn descriptors<'n>(&'n self, watch: &mut dyn FnMut(BorrowedFd<'n>)) {
        self.queue.descriptors(watch);
    }
    fn has_descriptor(&self) -> bool {
        self.queue.has_descriptor()
    }
    fn shape(&self) -> Shape {
        Shape { kind: self.kind.clone().into(), keeps_packets: self.keeps, ..Shape::receive() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        if self.keeps { Some(self) } else { None }
    }
}

impl NodeQueue for ReceiveNode {
    fn held(&self) -> u64 {
        self.queue.held()
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.queue.release(batch, cx);
        self.label(batch, cx.now());
    }
}

/// Counts a batch as sent, all at once, for drivers without a device.
#[inline(always)]
pub(crate) fn count_sent(counters: &Counters, batch: &Batch, cx: &mut Context) {
    let (packets, bytes) = (batch.len() as u64, batch.bytes());
    Counters::add(&counters.sent, packets);
    Counters::add(&counters.sent_bytes, bytes);
    cx.transmitting().sent(packets, bytes);
}

/// Counts a batch that a driver received.
#[inline(always)]
pub(crate) fn count_received(counters: &Counters, batch: &Batch) {
    Counters::add(&counters.received, batch.len() as u64);
    Counters::add(&counters.received_bytes, batch.bytes());
}
