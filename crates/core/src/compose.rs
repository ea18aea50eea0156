//! Functions become nodes: the function's type is erased, and the graph makes one dynamic call a batch.

use netbricks_buffer::{Batch, Bytes, Visit};
use netbricks_packet::stack::{Root, shape};

use crate::context::Context;
use crate::guards::Guards;
use crate::node::{Node, NodeState, Output, Poll, Shape};
use crate::operator::{Function, Input, Operator, Start};
use crate::operators::{Replaces, dispatched};
use crate::packet_cursor::{PacketCursor, Pass};
use crate::reason::{Departure, Edge, Verdict};
use crate::state::Declarations;
use crate::worker::{BuildError, Worker};

/// Makes a node of a function, or of several fused: `compose(worker, |input| ttl(input).then(nat))`.
///
/// # Errors
/// An error of the function's declared state: a table that does not fit into memory, or a name declared
/// twice. Or a function is fused behind one that sends it no packets
/// ([`Operator::then`]).
pub fn compose<F: Function>(
    worker: &Worker,
    function: impl FnOnce(Input) -> F,
) -> Result<Box<dyn Node>, BuildError> {
    compose_guarded(worker, |_| Guards::Unknown, function)
}

/// As [`compose()`], of a function that knows which packets leave by each of its edges.
///
/// A function that drops packets or lets them pass unchanged has [`Guards::of_passing`]. Where functions are fused,
/// the guards are those of all of them together.
///
/// ```
/// use netbricks_core::guards::Guards;
/// use netbricks_core::packet::Ethernet;
/// use netbricks_core::{Edge, Input, Operator, compose_guarded};
///
/// # let pool = netbricks_core::buffer::Pool::builder().frames(16).build()?;
/// # let worker = netbricks_core::Worker::new(0, 1, pool);
/// // Filters know no Ethernet addresses, so that for them nothing changes.
/// let swap = |input: Input| {
///     input.parse::<Ethernet>().transform(|packet| packet.header_mut().swap_addresses()).done()
/// };
/// let node = compose_guarded(&worker, Guards::of_passing, swap)?;
/// assert_eq!(node.guards(Edge::OUT), Guards::Any);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`compose()`].
pub fn compose_guarded<F: Function>(
    worker: &Worker,
    guards: fn(Edge) -> Guards,
    function: impl FnOnce(Input) -> F,
) -> Result<Box<dyn Node>, BuildError> {
    if F::REPLACES == Replaces::TooEarly {
        return Err(BuildError::new(
            "a function is fused behind one with `packetize` or a window in the packets' way, whose packets it would never get: they \
             leave the node at once; give it a node of its own",
        ));
    }
    let (chain, declarations) = worker.declaring(|| function(Start::new()))?;
    Ok(Box::new(Fused { chain, declarations, guards }))
}

struct Fused<A> {
    chain: A,
    declarations: Declarations,
    guards: fn(Edge) -> Guards,
}

impl<A: Function> Node for Fused<A> {
    #[inline(never)]
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        if A::IDENTITY {
            return;
        }
        batch.warm();
        let _settling = self.declarations.settling();
        let finishing = Finishing(&mut self.chain);
        let chain = &mut *finishing.0;
        cx.mixed = false;
        cx.cut = batch.is_cut();
        chain.prepare(batch, cx, &|_| Some(Root));
        let kept = if A::MAY_DEFER && (!A::FAST_PATH || cx.mixed) {
            last_loop_of_mixed(chain, batch, cx)
        } else {
            batch.compact_with(LastLoop::<A, true> { chain, cx: &mut *cx })
        };
        if kept != batch.len() {
            depart(batch, cx, kept);
        }
    }

    fn shape(&self) -> Shape {
        let mut outputs =
            vec![Output::out(), Output { edge: Edge::REPLY, name: "reply".into(), optional: true }];
        self.chain.edges(&mut |edge| {
            if !outputs.iter().any(|output| output.edge == edge) {
                outputs.push(Output { edge, name: edge.0.to_string(), optional: false });
            }
        });
        Shape { outputs, has_end: self.declarations.has_ends(), ..Shape::default() }
    }
    fn guards(&self, edge: Edge) -> Guards {
        (self.guards)(edge)
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        self.declarations.poll(cx)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}

/// A chain with a batch, whose drop finishes the batch.
pub(crate) struct Finishing<'c, A: Operator>(pub(crate) &'c mut A);

impl<A: Operator> Drop for Finishing<'_, A> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// A chain's last loop over the batch.
///
/// It is not a closure: the closure of a long operator chain would not be inlined. Then the packet's bounds
/// would be in memory, which every write to the packet might change.
///
/// The loop for batches with only `ALIKE` packets, in which nothing is [mixed](Context::mixed), sends every
/// rare case to the second pass. So rare cases take no registers here.
struct LastLoop<'a, A, const ALIKE: bool> {
    chain: &'a mut A,
    cx: &'a mut Context,
}

impl<A: Function, const ALIKE: bool> Visit for LastLoop<'_, A, ALIKE> {
    #[inline(always)]
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        let mut reshaped = false;
        let at = PacketCursor::new(slot, bytes, &mut *self.cx, &mut reshaped);
        // Packets that waited on memory were parsed in an earlier loop: there is no copy for usual frames.
        decided(if A::WAITS && !A::RESTARTS {
            let pass = match (A::MAY_DEFER, ALIKE) {
                (true, true) => Pass::Alike,
                (true, false) => Pass::First,
                (false, _) => Pass::Only,
            };
            self.chain.apply::<{ shape::ANY }>(PacketCursor { pass, ..at }, Root)
        } else {
            dispatched(&mut *self.chain, at, Root)
        })
    }
    #[inline(always)]
    fn is_unfinished(verdict: u16) -> bool {
        A::MAY_DEFER && verdict == Verdict::AGAIN.bits()
    }
    #[inline(always)]
    fn finish(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        // Written so that chains that never defer do not compile the second pass.
        if A::MAY_DEFER { finish(self.chain, self.cx, slot, bytes) } else { 0 }
    }
}

/// The last loop of a mixed batch, which also has the code for unusual packets.
#[inline(never)]
fn last_loop_of_mixed<A: Function>(chain: &mut A, batch: &mut Batch, cx: &mut Context) -> usize {
    batch.compact_with(LastLoop::<A, false> { chain, cx })
}

/// The second pass of a packet, in another copy of the operator chain.
///
/// So the loop contains no calls.
#[inline(never)]
fn finish<A: Function>(chain: &mut A, cx: &mut Context, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
    let mut reshaped = false;
    let at = PacketCursor { pass: Pass::Second, ..PacketCursor::new(slot, bytes, cx, &mut reshaped) };
    decided(chain.apply::<{ shape::ANY }>(at, Root))
}

#[inline(always)]
fn decided<S>(decided: Result<S, Verdict>) -> u16 {
    match decided {
        // `PASS` without a `done` behind it leaves the function at its end too.
        Ok(_) | Err(Verdict::PASS) => 0,
        Err(verdict) => verdict.bits(),
    }
}

/// Drops packets and sends them away. This happens only here, after every user function has returned.
#[inline(never)]
pub(crate) fn depart(batch: &mut Batch, cx: &mut Context, kept: usize) {
    for packet in batch.drain_from(kept) {
        match Verdict::departure(packet.verdict()) {
            Departure::Drop(reason) => cx.drop_packet(packet, reason),
            Departure::Edge(edge) => cx.emit_from(packet.slot() as usize, edge, packet),
        }
    }
}

/// A node with several inputs and one way out, at which separate branches of the graph meet.
pub fn merge(inputs: usize) -> Box<dyn Node> {
    Box::new(Merge(inputs.max(1)))
}

struct Merge(usize);

impl Node for Merge {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { inputs: self.0, kind: "merge".into(), ..Shape::default() }
    }
}
