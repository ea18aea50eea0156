//! The operators, one kind a file.

mod branch;
mod lookup;
mod lookup_locked;
mod lookup_shown;
mod meet;
mod observe;
mod replace;
mod replaces;
mod resize;
mod simple;
mod substitute;

pub use branch::{Arm, Branch, GroupBy};
pub use lookup::{Expiring, HitOrElse, Lender, Lookup, LookupHooks, LookupOr};
pub use lookup_locked::LookupLocked;
pub use lookup_shown::LookupShown;
pub(crate) use meet::fork;
pub use meet::{Back, Extends, Fork};
pub use observe::{Observe, Observed};
pub use replace::{
    Decided, Dropped, InsideIp, Otherwise, ReplaceTcpOptions, Replaceable, Replacement, Resize, ResizeError,
};
pub use replaces::Replaces;
pub use resize::{Insert, Insertable, Remove};
pub use simple::is_cut_off;
pub use simple::{
    Boundary, Decide, Divert, Filter, Forget, ForgetMetadata, Inspect, Map, Parse, RejectingFilter, SendTo,
    Then, Transform,
};
pub(crate) use simple::{dispatched, slack};
pub use substitute::{Original, Substitute, Substituted, Substitutes};

/// The loop constants of an operator that adds no loop.
macro_rules! same_loops {
    () => {
        type In = A::In;
        const WAITS: bool = A::WAITS;
        const MAY_DEFER: bool = A::MAY_DEFER;
        const FUSED: usize = A::FUSED;
        const REPLACES: $crate::operators::Replaces = A::REPLACES;
        const RESTARTS: bool = A::RESTARTS;
        #[inline(always)]
        fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
            self.0.prepare(batch, cx, inputs);
        }
        #[inline(always)]
        fn finish(&mut self) {
            self.0.finish();
        }
    };
}

/// The part of `Operator` that all operators share that add no loop and no edge.
macro_rules! passes_on {
    () => {
        $crate::operators::same_loops!();
        const FAST_PATH: bool = A::FAST_PATH;
        fn edges(&self, visit: &mut dyn FnMut(Edge)) {
            self.0.edges(visit);
        }
    };
}

/// The part of `Operator` that operators share whose closure reads a packet and changes nothing.
///
/// The known facts about the packet are those that the operator before knew.
macro_rules! retraces {
    () => {
        const REPARSES: bool = A::REPARSES;
        #[inline(always)]
        fn retrace<const SHAPE: u8>(&self, frame: &[u8], stack: A::In) -> Option<Self::Out> {
            self.0.retrace::<SHAPE>(frame, stack)
        }
    };
}

/// The stack as the operator before this one leaves it.
macro_rules! upstream {
    ($self:ident, $at:ident, $stack:ident) => {
        $self.0.apply::<SHAPE>($at.again(), $stack)?
    };
}

/// The view of the current packet.
///
/// It lends a copy of the stack. Where a user function is not inlined, only the copy goes through memory, and
/// facts that later operators need stay in registers.
macro_rules! view {
    ($at:ident, $stack:ident) => {
        $crate::view::View::new(&mut *$at.bytes, &{ $stack }, &mut *$at.cx, $at.slot)
    };
}

/// Lends the current packet to a user function that may write to it.
macro_rules! lend {
    ($f:expr, $at:ident, $stack:ident) => {{
        let stack = $stack;
        let mut view = $crate::view::View::new(&mut *$at.bytes, &stack, &mut *$at.cx, $at.slot);
        let answer = $f(&mut view);
        *$at.reshaped |= view.reshaped;
        answer
    }};
}

use {lend, passes_on, retraces, same_loops, upstream, view};
