//! The queue in which a tenant's packets wait for its turn.

use std::any::Any;
use std::collections::VecDeque;

use netbricks_buffer::{BATCH, Batch, Packet};

use crate::context::Context;
use crate::guards::Guards;
use crate::node::{CallError, Handler, Node, NodeQueue, NodeState, Poll, Shape};
use crate::reason::{DropReason, Edge};

/// Packets beyond a full queue that it takes where only arrivals move the clock.
///
/// A replay gives ports no turn while a tenant has packets, so these are the packets of one turn of each port.
const ON_THEIR_WAY: usize = 64 * BATCH;

/// A queue of a tenant's packets; each poll is a part of the tenant's turn.
///
/// A packet for which it has no room is dropped as [`DropReason::QueueFull`]. So a tenant that does not keep up
/// loses its own packets alone.
#[derive(Debug)]
pub struct TenantQueue {
    packets: VecDeque<Packet>,
    capacity: usize,
}

impl TenantQueue {
    /// The most packets that a queue can be asked to hold.
    pub const LONGEST: usize = 1 << 20;

    /// A queue for this many packets, 1 to [`LONGEST`](Self::LONGEST); the nearest of them counts.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::LONGEST);
        Self { packets: VecDeque::with_capacity(capacity.min(4 * BATCH)), capacity }
    }

    fn send(&mut self, batch: &mut Batch, burst: usize) {
        for _ in 0..burst.min(self.packets.len()) {
            let Some(packet) = self.packets.pop_front() else { return };
            if let Err(packet) = batch.push(packet) {
                // Not reached: the batch was empty, and a burst fits.
                return self.packets.push_front(packet);
            }
        }
    }
}

impl Node for TenantQueue {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        let waits = cx.follows_arrivals;
        for packet in batch.drain() {
            match self.offer(packet, waits) {
                Ok(false) => {}
                Ok(true) => cx.wake(),
                Err(packet) => cx.drop_packet(packet, DropReason::QueueFull),
            }
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.send(batch, cx.burst());
        if self.packets.is_empty() { Poll::Asleep } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape {
            kind: "tenant-queue".into(),
            schedulable: true,
            keeps_packets: true,
            holds: Some(self.capacity),
            takes_packets: true,
            ..Shape::default()
        }
    }
    fn guards(&self, _: Edge) -> Guards {
        Guards::Any
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for TenantQueue {
    fn held(&self) -> u64 {
        self.packets.len() as u64
    }
    fn offer(&mut self, packet: Packet, waits: bool) -> Result<bool, Packet> {
        let most = if waits { self.capacity + ON_THEIR_WAY } else { self.capacity };
        if self.packets.len() >= most {
            return Err(packet);
        }
        let was_empty = self.packets.is_empty();
        self.packets.push_back(packet);
        Ok(was_empty)
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.send(batch, cx.burst());
    }
    fn flush(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.send(batch, cx.burst());
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
    fn restore(&mut self, before: &mut dyn Any) {
        if let Some(before) = before.downcast_mut::<Self>() {
            std::mem::swap(&mut self.packets, &mut before.packets);
        }
    }
}

impl NodeState for TenantQueue {
    fn handlers(&self) -> Vec<Handler> {
        vec![
            Handler::read("queued", "Packets that wait in the queue."),
            Handler::read("capacity", "Packets that the queue has room for."),
        ]
    }
    fn call(&mut self, name: &str, _argument: &str) -> Result<String, CallError> {
        match name {
            "queued" => Ok(self.packets.len().to_string()),
            "capacity" => Ok(self.capacity.to_string()),
            _ => Err(CallError::Unknown { name: name.into(), known: "queued, capacity".into() }),
        }
    }
}
