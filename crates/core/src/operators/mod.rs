//! The operators, one kind a file.

mod branch;
mod lookup;
mod meet;
mod resize;
mod simple;

pub use branch::{Arm, Branch, GroupBy};
pub use lookup::{Expiring, Lookup};
pub(crate) use meet::fork;
pub use meet::{Back, Extends, Fork};
pub use resize::{Insert, Insertable, Remove};
pub(crate) use simple::dispatched;
pub use simple::{
    Boundary, Decide, Divert, Filter, FilterOr, Forget, ForgetMetadata, Inspect, Map, Parse, Send, Then,
    Transform,
};

/// The part of `Operator` that every operator without a pass of its own shares.
macro_rules! passes_on {
    () => {
        type In = A::In;
        const WAITS: bool = A::WAITS;
        const USUAL: bool = A::USUAL;
        #[inline(always)]
        fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
            self.0.prepare(batch, cx, inputs);
        }
        fn edges(&self, visit: &mut dyn FnMut(Edge)) {
            self.0.edges(visit);
        }
    };
}

/// The stack as the operator before this one leaves it.
macro_rules! upstream {
    ($self:ident, $at:ident, $stack:ident) => {
        $self.0.apply::<USUAL>(
            $crate::operator::At {
                slot: $at.slot,
                bytes: &mut *$at.bytes,
                cx: &mut *$at.cx,
                usual: $at.usual,
            },
            $stack,
        )?
    };
}

/// The view of the packet in hand. It lends a copy of the stack: where a user function is not inlined, only the copy
/// goes through memory, and what the operators after it know stays in registers.
macro_rules! view {
    ($at:ident, $stack:ident) => {
        $crate::view::View::new(&mut *$at.bytes, &{ $stack }, &mut *$at.cx, $at.slot)
    };
}

use {passes_on, upstream, view};
