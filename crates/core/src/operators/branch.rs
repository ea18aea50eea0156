//! Branches inside one fused node. Each arm is an operator over the stack at the split.
//!
//! All arms meet in one stack. Where an arm waits on memory, or is longer than a loop, packets are parked at
//! the split. Otherwise a branch is an `if` in the one loop.

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, shape};

use super::{Replaces, upstream, view};
use crate::context::Context;
use crate::operator::Operator;
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, Verdict};
use crate::view::View;

/// An arm of a branch: an operator that starts at the split.
#[diagnostic::on_unimplemented(
    message = "this arm does not end in the stack in which the other arm ends",
    note = "arms meet in one stack: end both with the same headers, or both with `.forget()`"
)]
pub trait Arm<S: Stack>: Operator<In = S> {}
impl<S: Stack, A: Operator<In = S>> Arm<S> for A {}

#[derive(Clone, Copy)]
enum Side<S> {
    Yes(S),
    No(S),
    Gone(Verdict),
}

/// Two arms that meet again.
pub struct Branch<A: Operator, P, L, R>(A, P, L, R, Vec<Side<A::Out>>);

impl<A: Operator, P, L, R> Branch<A, P, L, R>
where
    P: FnMut(&View<'_, A::Out>) -> bool + 'static,
{
    pub(crate) fn new(input: A, test: P, yes: L, no: R) -> Self {
        Self(input, test, yes, no, Vec::with_capacity(BATCH))
    }
    #[inline(always)]
    fn side<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Side<A::Out>, Verdict> {
        let stack = upstream!(self, at, stack);
        Ok(if (self.1)(&view!(at, stack)) { Side::Yes(stack) } else { Side::No(stack) })
    }
}

impl<A, P, L, R> Operator for Branch<A, P, L, R>
where
    A: Operator,
    P: FnMut(&View<'_, A::Out>) -> bool + 'static,
    L: Arm<A::Out>,
    R: Arm<A::Out, Out = L::Out>,
{
    type In = A::In;
    type Out = L::Out;
    const WAITS: bool = A::WAITS || L::WAITS || R::WAITS;
    const MAY_DEFER: bool = if L::WAITS || R::WAITS { L::MAY_DEFER || R::MAY_DEFER } else { A::MAY_DEFER };
    const FAST_PATH: bool = A::FAST_PATH || L::FAST_PATH || R::FAST_PATH;
    const REPLACES: Replaces = A::REPLACES.and(L::REPLACES).and(R::REPLACES);
    const FUSED: usize =
        if L::WAITS || R::WAITS { L::FUSED + R::FUSED } else { A::FUSED + L::FUSED + R::FUSED - 2 };
    const RESTARTS: bool = if L::WAITS || R::WAITS {
        (L::RESTARTS || !L::WAITS) && (R::RESTARTS || !R::WAITS)
    } else {
        A::RESTARTS
    };

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.0.prepare(batch, cx, inputs);
        if !(L::WAITS || R::WAITS) {
            return;
        }
        let mut sides = std::mem::take(&mut self.4);
        sides.clear();
        batch.each(|slot, bytes| {
            sides.push(match inputs(slot) {
                None => Side::Gone(Verdict::ELSEWHERE),
                Some(input) => self
                    .side::<{ shape::ANY }>(PacketCursor::new(slot, bytes, &mut *cx, &mut false), input)
                    .unwrap_or_else(Side::Gone),
            });
        });
        self.4 = sides;
        let Self(_, _, yes, no, sides) = self;
        yes.prepare(batch, cx, &|slot| if let Side::Yes(stack) = sides[slot] { Some(stack) } else { None });
        no.prepare(batch, cx, &|slot| if let Side::No(stack) = sides[slot] { Some(stack) } else { None });
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.0.finish();
        self.2.finish();
        self.3.finish();
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<L::Out, Verdict> {
        let side =
            if L::WAITS || R::WAITS { self.4[at.slot] } else { self.side::<SHAPE>(at.again(), stack)? };
        match side {
            Side::Yes(stack) => self.2.apply::<SHAPE>(at, stack),
            Side::No(stack) => self.3.apply::<SHAPE>(at, stack),
            Side::Gone(verdict) => Err(verdict),
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        self.2.edges(visit);
        self.3.edges(visit);
    }
}

/// `n` copies of one sub-chain.
pub struct GroupBy<A: Operator, P, G>(A, P, Vec<G>, Vec<Result<(usize, A::Out), Verdict>>);

impl<A: Operator, P, G> GroupBy<A, P, G>
where
    P: FnMut(&View<'_, A::Out>) -> usize + 'static,
{
    pub(crate) fn new(input: A, group: P, groups: Vec<G>) -> Self {
        Self(input, group, groups, Vec::with_capacity(BATCH))
    }
    #[inline(always)]
    fn group<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<(usize, A::Out), Verdict> {
        let stack = upstream!(self, at, stack);
        let group = (self.1)(&view!(at, stack));
        Ok((if group < self.2.len() { group } else { group % self.2.len() }, stack))
    }
}

impl<A, P, G> Operator for GroupBy<A, P, G>
where
    A: Operator,
    P: FnMut(&View<'_, A::Out>) -> usize + 'static,
    G: Arm<A::Out>,
{
    type In = A::In;
    type Out = G::Out;
    const WAITS: bool = A::WAITS || G::WAITS;
    const MAY_DEFER: bool = if G::WAITS { G::MAY_DEFER } else { A::MAY_DEFER };
    const FAST_PATH: bool = A::FAST_PATH || G::FAST_PATH;
    const REPLACES: Replaces = A::REPLACES.and(G::REPLACES);
    const FUSED: usize = if G::WAITS { G::FUSED } else { A::FUSED + G::FUSED - 1 };
    const RESTARTS: bool = if G::WAITS { G::RESTARTS } else { A::RESTARTS };

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.0.prepare(batch, cx, inputs);
        if !G::WAITS {
            return;
        }
        let mut chosen = std::mem::take(&mut self.3);
        chosen.clear();
        batch.each(|slot, bytes| {
            chosen.push(match inputs(slot) {
                None => Err(Verdict::ELSEWHERE),
                Some(input) => {
                    self.group::<{ shape::ANY }>(PacketCursor::new(slot, bytes, &mut *cx, &mut false), input)
                }
            });
        });
        self.3 = chosen;
        let Self(_, _, groups, chosen) = self;
        for (i, group) in groups.iter_mut().enumerate() {
            group.prepare(batch, cx, &|slot| match chosen[slot] {
                Ok((g, stack)) if g == i => Some(stack),
                _ => None,
            });
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.0.finish();
        self.2.iter_mut().for_each(Operator::finish);
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<G::Out, Verdict> {
        let (group, stack) =
            if G::WAITS { self.3[at.slot]? } else { self.group::<SHAPE>(at.again(), stack)? };
        self.2[group].apply::<SHAPE>(at, stack)
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        for group in &self.2 {
            group.edges(visit);
        }
    }
}
