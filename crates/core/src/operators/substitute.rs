//! The operator that ends packets and sends others in their place.

use netbricks_buffer::{Batch, Offload, Packet, Pool};

use super::{Replaces, upstream};
use crate::context::Context;
use crate::operator::Operator;
use crate::packet_cursor::PacketCursor;
use crate::reason::{DropReason, Edge, Verdict};

/// Sends its own packets in the place of those with this stack.
pub trait Substitute<S>: 'static {
    /// Takes a packet, and answers its verdict.
    fn substitute(&mut self, packet: Original<'_, S>) -> Verdict;
}

/// A packet that is to be replaced.
pub struct Original<'a, S> {
    /// All its bytes.
    pub frame: &'a [u8],
    /// The number of bytes that a capture left out behind the last one.
    pub missing: usize,
    /// The known headers and metadata.
    pub stack: S,
    /// The work that its sender left to a device, and the work that a device did.
    pub offload: Offload,
    /// Whether it comes from a capture, which does not say which work was left to a device.
    pub captured: bool,
    /// The time of its arrival (ns).
    pub received_at: u64,
    /// The way out for packets in its place.
    pub substitutes: Substitutes<'a>,
}

/// Sends packets in the place of one packet of the batch.
///
/// They leave after all packets that earlier packets of the batch send, and before those of later ones.
pub struct Substitutes<'a> {
    slot: usize,
    cx: &'a mut Context,
}

impl Substitutes<'_> {
    /// The time in ns: see [`Context::now`].
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
    /// The pool of new packets.
    pub fn pool(&self) -> &Pool {
        self.cx.pool()
    }
    /// Sends a segment of a stream on an edge, up to a limit for each batch.
    ///
    /// # Errors
    /// The packet, which may be sent with a later one.
    pub fn send_segment(&mut self, edge: Edge, packet: Packet) -> Result<(), Packet> {
        self.cx.create_segment(self.slot, edge, packet)
    }
    /// Sends an answer on an edge. Each packet may be answered up to
    /// [`ANSWERS_LIMIT`](crate::context::ANSWERS_LIMIT) times.
    ///
    /// # Errors
    /// The packet, where there were too many.
    pub fn answer(&mut self, edge: Edge, packet: Packet) -> Result<(), Packet> {
        self.cx.create_for(self.slot, edge, packet)
    }
    /// Counts a packet of so many bytes that could not be made or sent, as created and dropped at once.
    pub fn lost(&mut self, reason: DropReason, bytes: u64) {
        self.cx.lost_on_creation(reason, bytes);
    }
}

/// Ends packets and sends others in their place.
pub struct Substituted<A, F>(pub(crate) A, pub(crate) F);

impl<A: Operator, F: Substitute<A::Out>> Operator for Substituted<A, F> {
    type In = A::In;
    type Out = A::Out;
    const WAITS: bool = A::WAITS;
    const MAY_DEFER: bool = A::MAY_DEFER;
    const FAST_PATH: bool = A::FAST_PATH;
    const FUSED: usize = A::FUSED;
    const RESTARTS: bool = A::RESTARTS;
    const REPLACES: Replaces = A::REPLACES.and(Replaces::Last);

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.0.prepare(batch, cx, inputs);
    }
    #[inline(always)]
    fn finish(&mut self) {
        self.0.finish();
    }
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        let PacketCursor { slot, bytes, cx, .. } = at;
        let offload = bytes.offload();
        let missing = if cx.cut { bytes.missing() } else { 0 };
        let (frame, annotations) = bytes.parts();
        let (received_at, captured) = (annotations.received_at(), annotations.is_captured());
        let substitutes = Substitutes { slot, cx };
        Err(self.1.substitute(Original {
            frame,
            missing,
            stack,
            offload,
            captured,
            received_at,
            substitutes,
        }))
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
    }
}
