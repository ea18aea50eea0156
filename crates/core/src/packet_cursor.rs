//! One packet of a batch on its way through a chain of operators.

use netbricks_buffer::Bytes;
use netbricks_packet::stack::Usual;

use crate::context::Context;

/// One packet of the current batch.
pub struct PacketCursor<'a, 'b> {
    pub(crate) slot: usize,
    pub(crate) bytes: &'a mut Bytes<'b>,
    pub(crate) cx: &'a mut Context,
    /// The known facts about this frame, in the copy of an operator chain for one shape, unless it was
    /// reshaped.
    pub(crate) usual: Usual,
    /// Whether code may have changed the bytes that made this frame a usual one.
    ///
    /// It is a local variable of the code that applies the operator chain, so its value is known without a
    /// read of memory.
    pub(crate) reshaped: &'a mut bool,
    pub(crate) pass: Pass,
}

/// How a packet that waits in a lookup goes on from there, which is known when the loop is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It goes on at once, for any amount of work.
    Only,
    /// It goes on only if that is little work.
    ///
    /// Otherwise its verdict is [`Verdict::AGAIN`], and nothing was done. So the loop has no calls for which
    /// it would have to keep everything in memory.
    First,
    /// As `First`, in a batch that is not [mixed](Context::mixed): [`Verdict::AGAIN`] for every rare case.
    Alike,
    /// It had that verdict in its first pass.
    Second,
}

impl<'a, 'b> PacketCursor<'a, 'b> {
    #[inline(always)]
    pub(crate) fn new(
        slot: usize,
        bytes: &'a mut Bytes<'b>,
        cx: &'a mut Context,
        reshaped: &'a mut bool,
    ) -> Self {
        Self { slot, bytes, cx, usual: Usual::default(), reshaped, pass: Pass::Only }
    }

    /// The same packet, for an earlier operator of the chain.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> PacketCursor<'_, 'b> {
        let Self { slot, bytes, cx, usual, reshaped, pass } = self;
        PacketCursor { slot: *slot, bytes, cx, usual: *usual, reshaped, pass: *pass }
    }

    /// Lends the packet to code that is not inlined.
    ///
    /// Only copies of changing values must then be in memory, and the loop's values stay in registers.
    #[inline(always)]
    pub(crate) fn apart<R>(self, f: impl FnOnce(PacketCursor<'_, '_>) -> R) -> R {
        let Self { slot, bytes, cx, usual, reshaped, pass } = self;
        let mut shape = *reshaped;
        let result =
            bytes.apart(|bytes| f(PacketCursor { slot, bytes, cx, usual, reshaped: &mut shape, pass }));
        *reshaped = shape;
        result
    }
}
