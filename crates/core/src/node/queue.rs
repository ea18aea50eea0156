//! The packets that a node keeps between calls, and how it lets go of them.

use std::any::Any;

use netbricks_buffer::Batch;

use crate::context::Context;

/// How far a way out is: what another worker sends may overtake packets of it that have not left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Packets that it was given since the node began.
    pub given: u64,
    /// How many of these, the first ones, have left: for certain where it sends in the order in which it was given.
    pub left: u64,
}

/// The packets of a node that [keeps](crate::Shape::keeps_packets) some between calls, or of one that transmits.
pub trait NodeQueue {
    /// Packets that it keeps now. Asked before each batch of a node that keeps packets.
    fn held(&self) -> u64;
    /// Gives up what it holds when the graph is taken down, through `batch` (leaves on [`Edge::OUT`](crate::Edge::OUT)) or
    /// `cx`. Called again until it leaves `batch` empty.
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context);
    /// Lets go of packets that it queues, a batch at most, as [`drain`](Self::drain) does, but goes on afterwards: flows
    /// move to another worker, and their state may follow only what has been worked on. Called until it holds none, or
    /// lets none go. What transmits gets on with what it was given.
    fn flush(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
    /// Of what transmits or gives packets to other workers: how far it is with what it was given, for each of its ways out that
    /// keep an order of their own. Asked while flows move.
    fn departed(&self) -> Vec<Departed> {
        Vec::new()
    }
    /// Itself, where a part of it survives a panic in its function: packets that it queues, its ends of rings. It is asked before
    /// a node is made in its place, and again for that one to [restore](Self::restore).
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        None
    }
    /// Takes over what survives of the node in whose place it comes. Where it panics, another node begins with nothing.
    fn restore(&mut self, _before: &mut dyn Any) {}
    /// None came in its place, though it was asked for its [survivors](Self::survivors): it goes on itself.
    fn restore_failed(&mut self) {}
}
