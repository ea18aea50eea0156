//! Operators that need only the current packet.

use std::any::Any;
use std::hint::cold_path;
use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch, Bytes};
use netbricks_packet::ip::Version;
use netbricks_packet::stack::{
    Follows, Forgettable, Header, Layer, LengthSlack, Root, Stack, Usual, With, shape,
};
use netbricks_packet::{IpRef, Ipv6};

use super::{Replaces, lend, passes_on, retraces, same_loops, upstream, view};
use crate::context::Context;
use crate::operator::{Known, Operator, Parsed};
use crate::packet_cursor::PacketCursor;
use crate::reason::{DropReason, Edge, OnMismatch, Verdict};
use crate::view::View;

/// Parses the next header.
pub struct Parse<A, H>(A, OnMismatch, PhantomData<fn() -> H>);
impl<A, H> Parse<A, H> {
    pub(crate) fn new(input: A) -> Self {
        Self(input, OnMismatch(Verdict::drop(DropReason::Unmatched)), PhantomData)
    }
    /// Sends a packet with another next header where the policy says, in place of dropping it as `unmatched`.
    ///
    /// A malformed header is dropped as `malformed` all the same.
    #[must_use]
    pub fn or(mut self, policy: impl Into<OnMismatch>) -> Self {
        self.1 = policy.into();
        self
    }
}
impl<A: Operator, H: Follows<<A::Out as Stack>::Top>> Operator for Parse<A, H> {
    type Out = Parsed<A, H>;
    same_loops!();
    const FAST_PATH: bool = A::FAST_PATH || H::FAST_PATH;
    const REPARSES: bool = A::REPARSES && H::FAST_PATH;
    #[inline(always)]
    fn retrace<const SHAPE: u8>(&self, frame: &[u8], stack: A::In) -> Option<Self::Out> {
        if !Self::REPARSES {
            return None;
        }
        Some(Layer::retrace::<SHAPE>(self.0.retrace::<SHAPE>(frame, stack)?, frame))
    }
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let outer = upstream!(self, at, stack);
        if !H::is_announced_by(outer.next()) {
            return Err(self.1.0);
        }
        let usual = (SHAPE != shape::ANY && !*at.reshaped).then_some(at.usual);
        match Layer::parse_in::<SHAPE>(outer, at.bytes.data(), usual) {
            // It may say 0 for its length, and have a payload. A usual frame says how long it is.
            Ok(layer) if H::UNSTATED_IS_EMPTY && usual.is_none() && layer.end() == layer.limit(0) => {
                cold_path();
                Ok(at.bytes.apart(|bytes| parse_with_slack(outer, bytes)).unwrap_or(layer))
            }
            Ok(layer) => Ok(layer),
            Err(_) => {
                cold_path();
                // A copy of the bounds: those of the loop stay in registers.
                let layer = at.bytes.apart(|bytes| parse_with_slack(outer, bytes));
                layer.ok_or(Verdict::drop(DropReason::Malformed))
            }
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        self.1.edge().into_iter().for_each(visit);
    }
}

/// Parses where the frame had more bytes on the wire, or a device was still to cut it.
#[cold]
#[inline(never)]
pub(crate) fn parse_with_slack<P: Stack, H: Header>(outer: P, bytes: &Bytes<'_>) -> Option<Layer<P, H>> {
    let slack = slack(bytes);
    if slack.is_none() { None } else { Layer::parse_with(outer, bytes.data(), slack).ok() }
}

/// Whether a capture left out the end of an IP packet.
///
/// Its header is at offset `at` of a frame of which `here` bytes are present. A packet whose header does not
/// state its length counts as cut off.
#[cold]
pub fn is_cut_off(ip: IpRef<'_>, at: usize, here: usize) -> bool {
    let stated = ip.stated_len();
    let unstated = match ip.version() {
        Version::V4 => 0,
        Version::V6 => Ipv6::SIZE,
    };
    stated == unstated || at + stated > here
}

/// The slack that the packet's metadata allow its length fields.
pub(crate) fn slack(bytes: &Bytes<'_>) -> LengthSlack {
    LengthSlack { missing: bytes.missing(), unstated: bytes.is_length_unstated() }
}

/// Changes header and payload.
pub struct Transform<A, F>(pub(crate) A, pub(crate) F);
impl<A: Operator, F: FnMut(&mut View<'_, A::Out>) + 'static> Operator for Transform<A, F> {
    type Out = A::Out;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        lend!((self.1), at, stack);
        Ok(stack)
    }
}

/// Shows each packet to a closure.
pub struct Inspect<A, F>(pub(crate) A, pub(crate) F);
impl<A: Operator, F: FnMut(&View<'_, A::Out>) + 'static> Operator for Inspect<A, F> {
    type Out = A::Out;
    passes_on!();
    retraces!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        (self.1)(&view!(at, stack));
        Ok(stack)
    }
}

/// Keeps packets for which a closure returns `true`.
pub struct Filter<A, F>(pub(crate) A, pub(crate) OnMismatch, pub(crate) F);
impl<A: Operator, F: FnMut(&View<'_, A::Out>) -> bool + 'static> Filter<A, F> {
    /// Shows a rejected packet to `f` before it leaves; `f` may answer it.
    pub fn on_reject<G>(self, f: G) -> RejectingFilter<A, F, G>
    where
        G: FnMut(&mut View<'_, A::Out>) + 'static,
    {
        RejectingFilter(self.0, self.1, self.2, f)
    }
}
impl<A: Operator, F: FnMut(&View<'_, A::Out>) -> bool + 'static> Operator for Filter<A, F> {
    type Out = A::Out;
    same_loops!();
    retraces!();
    const FAST_PATH: bool = A::FAST_PATH;
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        if (self.2)(&view!(at, stack)) { Ok(stack) } else { Err(self.1.0) }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        self.1.edge().into_iter().for_each(visit);
    }
}

/// Keeps packets for which a closure returns `true`, and shows the rest to another closure.
pub struct RejectingFilter<A, F, G>(A, OnMismatch, F, G);
impl<A, F, G> Operator for RejectingFilter<A, F, G>
where
    A: Operator,
    F: FnMut(&View<'_, A::Out>) -> bool + 'static,
    G: FnMut(&mut View<'_, A::Out>) + 'static,
{
    type Out = A::Out;
    same_loops!();
    const FAST_PATH: bool = A::FAST_PATH;
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        if (self.2)(&view!(at, stack)) {
            return Ok(stack);
        }
        lend!((self.3), at, stack);
        Err(self.1.0)
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        self.1.edge().into_iter().for_each(visit);
    }
}

/// Sends some packets away on another edge.
pub struct Divert<A, F>(pub(crate) A, pub(crate) Edge, pub(crate) F);
impl<A: Operator, F: FnMut(&mut View<'_, A::Out>) -> bool + 'static> Operator for Divert<A, F> {
    type Out = A::Out;
    same_loops!();
    const FAST_PATH: bool = A::FAST_PATH;
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        if lend!((self.2), at, stack) { Err(Verdict::edge(self.1)) } else { Ok(stack) }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        visit(self.1);
    }
}

/// Decides packet by packet.
pub struct Decide<A, F>(pub(crate) A, pub(crate) F);
impl<A: Operator, F: FnMut(&mut View<'_, A::Out>) -> Result<(), Verdict> + 'static> Operator
    for Decide<A, F>
{
    type Out = A::Out;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        lend!((self.1), at, stack)?;
        Ok(stack)
    }
}

/// Computes metadata of each packet.
pub struct Map<A, F, M>(A, F, PhantomData<fn() -> M>);
impl<A, F, M> Map<A, F, M> {
    pub(crate) fn new(input: A, f: F) -> Self {
        Self(input, f, PhantomData)
    }
}
impl<A: Operator, M: Copy + 'static, F: FnMut(&mut View<'_, A::Out>) -> M + 'static> Operator
    for Map<A, F, M>
{
    type Out = Known<A, M>;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let outer = upstream!(self, at, stack);
        let value = lend!((self.1), at, outer);
        Ok(With { outer, value })
    }
}

/// Forgets parsed headers; the packet is not changed.
pub struct Forget<A: Operator, S>(A, fn(&A::Out) -> S);
impl<A: Operator, S> Forget<A, S> {
    pub(crate) fn new(input: A, without: fn(&A::Out) -> S) -> Self {
        Self(input, without)
    }
}
impl<A: Operator, S: Stack> Operator for Forget<A, S> {
    type Out = S;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, mut at: PacketCursor<'_, '_>, stack: A::In) -> Result<S, Verdict> {
        let stack = upstream!(self, at, stack);
        Ok((self.1)(&stack))
    }
}

/// Forgets the last metadata.
pub struct ForgetMetadata<A>(pub(crate) A);
impl<A: Operator<Out: Forgettable>> Operator for ForgetMetadata<A> {
    type Out = <A::Out as Forgettable>::Outer;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        Ok(stack.without())
    }
}

/// The end of a function.
pub struct Boundary<A>(pub(crate) A);
impl<A: Operator> Operator for Boundary<A> {
    same_loops!();
    type Out = Root;
    const FAST_PATH: bool = A::FAST_PATH;
    const IDENTITY: bool = A::IDENTITY;
    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, at: PacketCursor<'_, '_>, stack: A::In) -> Result<Root, Verdict> {
        match self.0.apply::<SHAPE>(at, stack) {
            Ok(_) | Err(Verdict::PASS) => Ok(Root),
            Err(verdict) => Err(verdict),
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
    }
}

/// The end of a function at which every packet leaves on an edge.
pub struct SendTo<A>(pub(crate) A, pub(crate) Edge);
impl<A: Operator> Operator for SendTo<A> {
    same_loops!();
    type Out = Root;
    const FAST_PATH: bool = A::FAST_PATH;
    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, at: PacketCursor<'_, '_>, stack: A::In) -> Result<Root, Verdict> {
        match self.0.apply::<SHAPE>(at, stack) {
            Ok(_) | Err(Verdict::PASS) => Err(Verdict::edge(self.1)),
            Err(verdict) => Err(verdict),
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        visit(self.1);
    }
}

/// Applies the copy of an operator chain that suits the packet.
///
/// Nearly all packets take a copy with constant offsets, from the first function of a loop to its last. A
/// fact that one function checked is not checked again in the next.
#[inline(always)]
pub(crate) fn dispatched<A: Operator>(
    chain: &mut A,
    at: PacketCursor<'_, '_>,
    stack: A::In,
) -> Result<A::Out, Verdict> {
    // Each copy takes as long to compile as the first, and long chains of functions take long.
    if const { A::FUSED <= MANY } {
        among::<true, A>(chain, at, stack)
    } else {
        among::<false, A>(chain, at, stack)
    }
}

/// The longest chain of functions that has a copy for each shape.
///
/// Longer chains have one copy for most frames and one for all others.
const MANY: usize = 4;

/// As [`dispatched`], with a copy for each shape or only for the most usual one.
#[inline(always)]
fn among<const ALL: bool, A: Operator>(
    chain: &mut A,
    at: PacketCursor<'_, '_>,
    stack: A::In,
) -> Result<A::Out, Verdict> {
    if const { !A::FAST_PATH } {
        return chain.apply::<{ shape::ANY }>(at, stack);
    }
    let frame = at.bytes.data();
    if let Some(usual) = Usual::of::<{ shape::V4 }>(frame) {
        return chain.apply::<{ shape::V4 }>(PacketCursor { usual, reshaped: &mut false, ..at }, stack);
    }
    cold_path();
    // These are inlined too: a call would take more instructions than a usual function.
    if ALL && let Some(usual) = Usual::of::<{ shape::V6 }>(frame) {
        return chain.apply::<{ shape::V6 }>(PacketCursor { usual, reshaped: &mut false, ..at }, stack);
    }
    if ALL && let Some(usual) = Usual::of::<{ shape::TAGGED_V4 }>(frame) {
        return chain
            .apply::<{ shape::TAGGED_V4 }>(PacketCursor { usual, reshaped: &mut false, ..at }, stack);
    }
    at.apart(|at| of_any_shape(chain, at, stack))
}

/// Applies the copy for frames of any shape.
///
/// It is out of line, where it takes no registers from the loop over usual frames.
#[inline(never)]
fn of_any_shape<A: Operator>(
    chain: &mut A,
    at: PacketCursor<'_, '_>,
    stack: A::In,
) -> Result<A::Out, Verdict> {
    // Here too the bounds stay in registers only if no other code has their address.
    at.apart(|at| chain.apply::<{ shape::ANY }>(at, stack))
}

/// Functions that share a loop over the batch; longer chains take one loop after the other.
///
/// The time to compile a loop grows with the square of its length (`bench/fuse-build.sh`). The cost of a loop
/// itself is small beside that of so many functions (`bench/fused-cost.sh` counts it).
const TOGETHER: usize = 16;

/// Applies a function, within the copy for usual frames, to a frame that an earlier function may have made
/// unusual.
///
/// Most functions that could have done so only changed an address. Later functions still hold facts about the
/// frame before the change, so it stays reshaped for them.
#[inline(never)]
fn afresh<B: Operator>(chain: &mut B, at: PacketCursor<'_, '_>, stack: B::In) -> Result<B::Out, Verdict> {
    among::<false, B>(chain, at, stack)
}

/// Passes to the next function packets that a function lets pass or sends out by [`Edge::OUT`].
///
/// This also works where the function ends with `forget` instead of `done`, as the next function expects.
#[inline(always)]
fn passed<S: Stack>(decided: Result<S, Verdict>) -> Result<S, Verdict> {
    match decided {
        Err(verdict @ (Verdict::PASS | Verdict::OUT)) => {
            (&Root as &dyn Any).downcast_ref::<S>().copied().ok_or(verdict)
        }
        decided => decided,
    }
}

/// One function after another in one node: `ttl(input).then(nat)`.
pub struct Then<A: Operator, B>(A, B, Vec<Result<A::Out, Verdict>>);
impl<A: Operator, B: Operator<In = A::Out>> Then<A, B> {
    pub(crate) fn new(first: A, second: B) -> Self {
        Self(first, second, if Self::PARKS { Vec::with_capacity(BATCH) } else { Vec::new() })
    }

    /// Whether the second function begins a loop because the first one's loop is long enough.
    const DIVIDES: bool = !B::WAITS && A::FUSED + B::FUSED > TOGETHER;
    /// Whether packets wait between the two functions until the whole batch is there.
    const PARKS: bool = B::WAITS || Self::DIVIDES;

    /// Runs the first function's last loop, and the second function's loops before its last.
    #[inline(always)]
    fn park(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        let Self(first, second, parked) = self;
        parked.clear();
        batch.each(|slot, bytes| {
            parked.push(match inputs(slot) {
                None => Err(Verdict::ELSEWHERE),
                Some(input) => {
                    passed(dispatched(first, PacketCursor::new(slot, bytes, &mut *cx, &mut false), input))
                }
            });
        });
        second.prepare(batch, cx, &|slot| parked[slot].ok());
    }
}
impl<A: Operator, B: Operator<In = A::Out>> Operator for Then<A, B> {
    type In = A::In;
    type Out = B::Out;
    const WAITS: bool = A::WAITS || Self::PARKS;
    const MAY_DEFER: bool = if Self::PARKS { B::MAY_DEFER } else { A::MAY_DEFER };
    const RESTARTS: bool = if B::WAITS { B::RESTARTS } else { Self::DIVIDES || A::RESTARTS };
    const FAST_PATH: bool = A::FAST_PATH || B::FAST_PATH;
    const REPLACES: Replaces = if B::IDENTITY { A::REPLACES } else { A::REPLACES.then(B::REPLACES) };
    const IDENTITY: bool = A::IDENTITY && B::IDENTITY;
    const FUSED: usize = if Self::PARKS { B::FUSED } else { A::FUSED + B::FUSED };

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.0.prepare(batch, cx, inputs);
        if Self::PARKS {
            self.park(batch, cx, inputs);
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.0.finish();
        self.1.finish();
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<B::Out, Verdict> {
        // Constant conditions, so that the branch not taken is not compiled at all.
        let between =
            if Self::PARKS { self.2[at.slot]? } else { passed(self.0.apply::<SHAPE>(at.again(), stack))? };
        if const { SHAPE != shape::ANY && !Self::PARKS } && *at.reshaped {
            cold_path();
            return at.apart(|at| afresh(&mut self.1, at, between));
        }
        if const { SHAPE == shape::ANY && A::WAITS && !A::RESTARTS && !Self::PARKS } {
            return dispatched(&mut self.1, at, between);
        }
        self.1.apply::<SHAPE>(at, between)
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        self.1.edges(visit);
    }
}
