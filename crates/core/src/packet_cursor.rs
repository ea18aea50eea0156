//! One packet of a batch on its way through a chain of operators.

use netbricks_buffer::Bytes;
use netbricks_packet::stack::Usual;

use crate::context::Context;

/// One packet of the batch in hand.
pub struct PacketCursor<'a, 'b> {
    pub(crate) slot: usize,
    pub(crate) bytes: &'a mut Bytes<'b>,
    pub(crate) cx: &'a mut Context,
    /// In the copy of an operator chain for one shape of frames, what is known of this one, unless it was reshaped.
    pub(crate) usual: Usual,
    /// Whether somebody may have changed what made this frame a usual one. A local variable of whoever applies the operator chain:
    /// it is known without looking.
    pub(crate) reshaped: &'a mut bool,
    pub(crate) pass: Pass,
}

/// How a packet that waits in a lookup goes on from there. Known when the loop is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// At once, whatever it takes.
    Only,
    /// Only if it takes little; otherwise its verdict is [`Verdict::AGAIN`], and nothing was done. So the loop has no calls
    /// for which it would have to keep everything in memory.
    First,
    /// As `First`, in a batch that is not [mixed](Context::mixed): [`Verdict::AGAIN`] for whatever is rare.
    Alike,
    /// It had that verdict.
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

    /// The same packet, for an operator further up.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> PacketCursor<'_, 'b> {
        let Self { slot, bytes, cx, usual, reshaped, pass } = self;
        PacketCursor { slot: *slot, bytes, cx, usual: *usual, reshaped, pass: *pass }
    }

    /// Lends the packet to code that is not inlined: only copies of what changes must be in memory then, and what the loop
    /// has stays in registers.
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
