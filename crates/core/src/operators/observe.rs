//! The operator that shows packets and the time to an observer with state of its own.

use netbricks_buffer::Batch;

use super::{passes_on, upstream, view};
use crate::context::Context;
use crate::operator::Operator;
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, Verdict};
use crate::view::View;

/// Sees packets with this stack, one by one.
pub trait Observe<S>: 'static {
    /// Sees a packet at time `now` (ns).
    fn observe(&mut self, packet: &View<'_, S>, now: u64);
}

/// Shows packets and passes them on unchanged.
pub struct Observed<A, O>(pub(crate) A, pub(crate) O);

impl<A: Operator, O: Observe<A::Out>> Operator for Observed<A, O> {
    type Out = A::Out;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        let now = at.cx.now();
        self.1.observe(&view!(at, stack), now);
        Ok(stack)
    }
}
