//! The packets that a node keeps between calls, and the calls by which it passes them on.

use std::any::Any;

use netbricks_buffer::{Batch, Packet};

use crate::context::Context;

/// The progress of a way out of a worker.
///
/// While packets that were given to it have not left, packets from another worker may overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Packets that the way out was given since the node began.
    pub given: u64,
    /// How many of these, counted from the first, have left.
    ///
    /// The number is certain where the way out sends packets in the order in which it was given them.
    pub left: u64,
}

/// The packets of a node that [keeps](crate::Shape::keeps_packets) packets between calls or transmits them.
pub trait NodeQueue {
    /// The number of packets that the node keeps now.
    ///
    /// Asked before each batch of a node that keeps packets.
    fn held(&self) -> u64;
    /// Gives up packets that the node holds, when the graph is taken down.
    ///
    /// The packets go through `batch`, which leaves on [`Edge::OUT`](crate::Edge::OUT), or through `cx`. The
    /// graph calls this again until it leaves `batch` empty.
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context);
    /// Takes one packet, as [`process`](crate::Node::process) takes a batch, where
    /// [`Shape::takes_packets`](crate::Shape::takes_packets) says so.
    ///
    /// Answers whether the node wants a turn that it did not want before. `waits` says that only arrivals move the
    /// clock, so that the node need not drop what is on its way.
    ///
    /// # Errors
    /// Gives the packet back where there is no room: it is dropped as
    /// [`QueueFull`](crate::DropReason::QueueFull).
    fn offer(&mut self, packet: Packet, _waits: bool) -> Result<bool, Packet> {
        Err(packet)
    }
    /// Passes on queued packets, a batch at most, as [`drain`](Self::drain) does, but the node goes on
    /// afterwards.
    ///
    /// The graph calls this while flows move to another worker, since their state may follow only after their
    /// packets were processed. It calls until the node holds no packets, or passes none on. A transmit node
    /// continues to send the packets that it was given.
    fn flush(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// The progress of a node that transmits or gives packets to other workers.
    ///
    /// The answer has an entry for each way out that keeps its own order. Asked while flows move.
    fn departed(&self) -> Vec<Departed> {
        Vec::new()
    }
    /// Keeps its packets, when it is drained, for a node of the same kind that is about to replace it.
    ///
    /// Answers whether it does. That node then [succeeds](Self::succeed) it, or it is drained after all.
    fn keep_for_successor(&mut self, _keep: bool) -> bool {
        false
    }
    /// The node itself, for the node that succeeds it.
    fn predecessor(&mut self) -> Option<&mut dyn Any> {
        None
    }
    /// Goes on with state and packets of the node that this one replaces, which keeps none of them.
    ///
    /// Answers how many packets that are.
    fn succeed(&mut self, _before: &mut dyn Any) -> u64 {
        0
    }
    /// The node itself, where a part of it survives a panic: queued packets, or its ends of rings.
    ///
    /// The graph asks before it builds the new node, and again to let the new node [restore](Self::restore)
    /// that part.
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        None
    }
    /// Takes over the surviving part of the node that this one replaces.
    ///
    /// Where it panics, the graph builds another node, which begins with nothing.
    fn restore(&mut self, _before: &mut dyn Any) {}
    /// Says that no node replaces this one, though the graph asked for its [survivors](Self::survivors).
    ///
    /// The node then goes on.
    fn restore_failed(&mut self) {}
}
