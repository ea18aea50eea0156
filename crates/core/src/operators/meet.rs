//! The meeting of arms with different stacks, in the headers at the split (the paper's merge, section 3.1).
//!
//! All arms still know these headers.

use netbricks_packet::stack::{Forgettable, Further, Header, Here, Layer, Removable, Stack, With};

use super::{Arm, Branch, Forget};
use crate::operator::Operator;
use crate::view::View;

/// A stack that begins with all of `S`, and may know more. `I`, the number of further parts, is inferred.
#[diagnostic::on_unimplemented(
    message = "this way does not come back to the headers at the split",
    label = "ends in `{Self}`",
    note = "a way may parse and insert headers behind those at the split, and may not deparse, remove or forget those"
)]
pub trait Extends<S, I>: Stack {
    /// The stack that it begins with.
    fn prefix(&self) -> S;
}

impl<S: Stack> Extends<S, Here> for S {
    #[inline(always)]
    fn prefix(&self) -> S {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl<S, P: Extends<S, I>, H: Header, I> Extends<S, Further<I>> for Layer<P, H> {
    #[inline(always)]
    fn prefix(&self) -> S {
        Removable::without(self).prefix()
    }
}

#[diagnostic::do_not_recommend]
impl<S, P: Extends<S, I>, M: Copy + 'static, I> Extends<S, Further<I>> for With<P, M> {
    #[inline(always)]
    fn prefix(&self) -> S {
        Forgettable::without(self).prefix()
    }
}

/// Two arms that both come back to the split.
pub type Fork<A, P, L, R> = Branch<A, P, Back<A, L>, Back<A, R>>;
/// An arm that has come back to the stack at the end of `A`.
pub type Back<A, G> = Forget<G, <A as Operator>::Out>;

pub(crate) fn fork<A, P, L, R, I, J>(input: A, test: P, yes: L, no: R) -> Fork<A, P, L, R>
where
    A: Operator,
    P: FnMut(&View<'_, A::Out>) -> bool + 'static,
    L: Arm<A::Out, Out: Extends<A::Out, I>>,
    R: Arm<A::Out, Out: Extends<A::Out, J>>,
{
    Branch::new(input, test, Forget::new(yes, Extends::prefix), Forget::new(no, Extends::prefix))
}
