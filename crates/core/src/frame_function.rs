//! Nodes of functions that are configured while they run, and so see whole frames instead of typed headers.
//!
//! Front ends stand on them: rules and the languages of other systems decide at run time which headers they look
//! at. A function whose headers are known when it is compiled is made of [operators](crate::Operator).

use netbricks_buffer::{Batch, Bytes, Packet};
use netbricks_packet::stack::LengthSlack;

use crate::compose::depart;
use crate::context::Context;
use crate::guards::Guards;
use crate::node::{Node, NodeState, Output, Poll, Shape};
use crate::operators::slack;
use crate::reason::{Edge, Verdict};
use crate::state::Declarations;
use crate::worker::{BuildError, Worker};

/// A function over whole frames, a batch at a time.
///
/// ```
/// use netbricks_core::buffer::Pool;
/// use netbricks_core::{Context, DropReason, FrameFunction, Frames, Verdict, Worker, compose_frames};
///
/// /// Drops frames shorter than this, which nothing on Ethernet is.
/// struct Runts(usize);
///
/// impl FrameFunction for Runts {
///     fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
///         frames.decide(cx, |_, frame, _| {
///             if frame.len() < self.0 { Err(Verdict::drop(DropReason::Malformed)) } else { Ok(()) }
///         });
///     }
/// }
///
/// let worker = Worker::new(0, 1, Pool::builder().frames(16).build()?);
/// let node = compose_frames(&worker, || Runts(60))?;
/// assert_eq!(node.shape().outputs.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FrameFunction: 'static {
    /// Changes the packets of a batch and decides where each goes.
    fn process(&mut self, frames: Frames<'_>, cx: &mut Context);

    /// The edges beside `OUT` to which it sends packets, by [`Verdict::leave`], each with its name.
    fn edges(&self) -> Vec<(Edge, String)> {
        Vec::new()
    }
    /// The most copies of packets that it keeps, whose frames are the pool's. The default is none.
    fn copies(&self) -> usize {
        0
    }
    /// The packets that may leave by an edge, as [`Node::guards`] says. The default knows nothing.
    fn guards(&self, _edge: Edge) -> Guards {
        Guards::Unknown
    }
}

/// The packets of a batch, lent to a [`FrameFunction`].
pub struct Frames<'b> {
    batch: &'b mut Batch,
    kept: &'b mut usize,
}

impl Frames<'_> {
    /// The packets, in order; those that were sent away are no longer there.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> + Clone {
        let batch: &Batch = self.batch;
        (0..*self.kept).filter_map(|slot| batch.get(slot))
    }

    /// Calls `decide` with each packet's place and frame: `Ok` keeps it on the main way out, `Err` sends it away.
    ///
    /// Packets that leave do so when the function has returned. A second call does nothing.
    pub fn decide(
        &mut self,
        cx: &mut Context,
        mut decide: impl FnMut(usize, &mut Bytes<'_>, &mut Context) -> Result<(), Verdict>,
    ) {
        if *self.kept < self.batch.len() {
            return;
        }
        *self.kept = self.batch.compact(|slot, frame| match decide(slot, frame, cx) {
            Ok(()) | Err(Verdict::PASS) => 0,
            Err(verdict) => verdict.bits(),
        });
    }
}

/// The bytes beyond its end that a frame's length fields may state; see [`LengthSlack`].
#[must_use]
pub fn length_slack(frame: &Bytes<'_>) -> LengthSlack {
    slack(frame)
}

/// Makes a node of a function over whole frames, with the state that `make` declares.
///
/// # Errors
/// As [`compose`](crate::compose::compose).
pub fn compose_frames<F: FrameFunction>(
    worker: &Worker,
    make: impl FnOnce() -> F,
) -> Result<Box<dyn Node>, BuildError> {
    let (function, declarations) = worker.declaring(make)?;
    Ok(Box::new(FrameNode { function, declarations }))
}

/// Makes a node of one that is written by hand, with the state that `make` declares.
///
/// The node's own [`poll`](Node::poll) and [`with_state`](Node::with_state) are never called: its events and its state
/// are those that it declares.
///
/// # Errors
/// As [`compose`](crate::compose::compose).
pub fn declare_node<N: Node + 'static>(
    worker: &Worker,
    make: impl FnOnce() -> N,
) -> Result<Box<dyn Node>, BuildError> {
    let (node, declarations) = worker.declaring(make)?;
    Ok(Box::new(DeclaredNode { node, declarations }))
}

struct DeclaredNode<N> {
    node: N,
    declarations: Declarations,
}

impl<N: Node> Node for DeclaredNode<N> {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.node.process(input, batch, cx);
    }
    fn shape(&self) -> Shape {
        Shape { has_end: self.declarations.has_ends(), ..self.node.shape() }
    }
    fn guards(&self, edge: Edge) -> Guards {
        self.node.guards(edge)
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        self.declarations.poll(cx)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}

struct FrameNode<F> {
    function: F,
    declarations: Declarations,
}

impl<F: FrameFunction> Node for FrameNode<F> {
    #[inline(never)]
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let Self { function, declarations } = self;
        let _settling = declarations.settling();
        let mut kept = batch.len();
        function.process(Frames { batch, kept: &mut kept }, cx);
        if kept != batch.len() {
            depart(batch, cx, kept);
        }
    }
    fn shape(&self) -> Shape {
        let named = self.function.edges().into_iter();
        // Answers go to the port of arrival where it can send.
        let named = named.map(|(edge, name)| Output { edge, name, optional: edge == Edge::REPLY });
        Shape {
            outputs: [Output::out()].into_iter().chain(named).collect(),
            has_end: self.declarations.has_ends(),
            holds: Some(self.function.copies()),
            ..Shape::default()
        }
    }
    fn guards(&self, edge: Edge) -> Guards {
        self.function.guards(edge)
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        self.declarations.poll(cx)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}
