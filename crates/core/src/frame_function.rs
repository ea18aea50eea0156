//! Nodes of functions that are configured while they run, and so see whole frames instead of typed headers.
//!
//! Front ends stand on them: rules and the languages of other systems decide at run time which headers they look
//! at. A function whose headers are known when it is compiled is made of [operators](crate::Operator).

use netbricks_buffer::{Batch, Bytes};

use crate::compose::depart;
use crate::context::Context;
use crate::node::{Node, NodeState, Output, Poll, Shape};
use crate::operators::slack;
use crate::reason::{Edge, Verdict};
use crate::state::Declarations;
use crate::worker::{BuildError, Worker};
use netbricks_packet::stack::LengthSlack;

/// A function over whole frames.
///
/// A batch is announced as a whole, for work that waits on memory. Then each of its packets is decided.
pub trait FrameFunction: 'static {
    /// Sees all packets of a batch before the first is decided.
    fn prepare(&mut self, _batch: &Batch, _cx: &mut Context) {}

    /// Changes the packet in this slot of the batch and decides where it goes: `Ok` along
    /// [`Edge::OUT`](crate::Edge::OUT), or as the verdict says.
    ///
    /// # Errors
    /// The verdict on a packet that does not go on.
    fn decide(&mut self, slot: usize, frame: &mut Bytes<'_>, cx: &mut Context) -> Result<(), Verdict>;

    /// The edges beside `OUT` to which it sends packets, by [`Verdict::leave`], each with its name.
    fn edges(&self) -> Vec<(Edge, String)> {
        Vec::new()
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
    Ok(Box::new(Frames { function, declarations }))
}

struct Frames<F> {
    function: F,
    declarations: Declarations,
}

impl<F: FrameFunction> Node for Frames<F> {
    #[inline(never)]
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let Self { function, declarations } = self;
        let _settling = declarations.settling();
        function.prepare(batch, cx);
        let kept = batch.compact(|slot, frame| match function.decide(slot, frame, cx) {
            Ok(()) | Err(Verdict::PASS) => 0,
            Err(verdict) => verdict.bits(),
        });
        if kept != batch.len() {
            depart(batch, cx, kept);
        }
    }
    fn shape(&self) -> Shape {
        let named = self.function.edges().into_iter();
        let named = named.map(|(edge, name)| Output { edge, name, optional: false });
        Shape {
            outputs: [Output::out()].into_iter().chain(named).collect(),
            has_end: self.declarations.has_ends(),
            ..Shape::default()
        }
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        self.declarations.poll(cx)
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
}
