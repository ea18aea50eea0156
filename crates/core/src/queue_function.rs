//! Nodes of functions that hold packets and let them go later, as a shaper does.

use std::any::Any;

use netbricks_buffer::Batch;

use crate::context::Context;
use crate::guards::Guards;
use crate::node::{Node, NodeQueue, NodeState, Poll, Shape};
use crate::reason::Edge;
use crate::state::Declarations;
use crate::worker::{BuildError, Worker};

/// A function that holds packets between calls, with declared state.
///
/// ```
/// use netbricks_core::buffer::{Batch, Packet, Pool};
/// use netbricks_core::{Context, DetachedContext, Poll, QueueFunction, Worker, compose_queue};
///
/// /// Holds each packet for a microsecond.
/// #[derive(Default)]
/// struct Late(std::collections::VecDeque<(u64, Packet)>);
///
/// impl QueueFunction for Late {
///     fn enqueue(&mut self, batch: &mut Batch, cx: &mut Context) {
///         if self.0.is_empty() {
///             cx.wake();
///         }
///         self.0.extend(batch.drain().map(|packet| (cx.now() + 1_000, packet)));
///     }
///     fn dequeue(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
///         while let Some((_, packet)) = self.0.pop_front_if(|(due, _)| *due <= cx.now()) {
///             if let Err(packet) = batch.push(packet) {
///                 self.0.push_front((cx.now(), packet));
///                 return Poll::Busy;
///             }
///         }
///         self.0.front().map_or(Poll::Idle, |(due, _)| Poll::Until(*due))
///     }
///     fn release(&mut self, batch: &mut Batch, _: &mut Context) {
///         while let Some((due, packet)) = self.0.pop_front() {
///             if let Err(packet) = batch.push(packet) {
///                 return self.0.push_front((due, packet));
///             }
///         }
///     }
///     fn held(&self) -> u64 {
///         self.0.len() as u64
///     }
///     fn restore(&mut self, before: &mut Self) {
///         std::mem::swap(&mut self.0, &mut before.0);
///     }
/// }
///
/// let pool = Pool::builder().frames(16).build()?;
/// let worker = Worker::new(0, 1, pool.clone());
/// let mut node = compose_queue(&worker, Late::default)?;
/// let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
/// assert!(batch.push(pool.packet(&[0; 60]).ok_or("a buffer")?).is_ok());
/// node.process(0, &mut batch, &mut cx);
/// assert_eq!((batch.len(), node.poll(&mut batch, &mut cx)), (0, Poll::Until(1_000)));
/// cx.advance(1_000);
/// assert_eq!((node.poll(&mut batch, &mut cx), batch.len()), (Poll::Idle, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait QueueFunction: 'static {
    /// Takes packets of the batch. Those that it leaves there go on at once.
    ///
    /// A function that had nothing to do until later than now, or nothing at all, calls [`Context::wake`].
    fn enqueue(&mut self, batch: &mut Batch, cx: &mut Context);
    /// Puts packets that are due into the empty batch, a [burst](Context::burst) at most.
    ///
    /// The answer says when it has more.
    fn dequeue(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll;
    /// Puts packets into the empty batch, due or not, a batch at most.
    ///
    /// The graph calls this until it leaves the batch empty: when it is taken down, and where flows move to
    /// another worker, whose packets may not wait.
    fn release(&mut self, batch: &mut Batch, cx: &mut Context);
    /// The number of packets that it holds.
    fn held(&self) -> u64;
    /// The most packets that it ever holds, by its settings.
    ///
    /// `None`: it knows no bound, and no tenant may have it.
    fn most_held(&self) -> Option<usize> {
        None
    }
    /// Takes over the packets of the function that this one replaces after a panic.
    fn restore(&mut self, before: &mut Self);
    /// The packets that may leave, as [`Node::guards`] says of [`Edge::OUT`](crate::Edge::OUT). The default knows
    /// nothing.
    fn guards(&self) -> Guards {
        Guards::Unknown
    }
}

/// Makes a node of a function that holds packets, with the state that `make` declares.
///
/// # Errors
/// As [`compose`](crate::compose::compose). Also where `make` declares events or an end, which such a node
/// does not run.
pub fn compose_queue<F: QueueFunction>(
    worker: &Worker,
    make: impl FnOnce() -> F,
) -> Result<Box<dyn Node>, BuildError> {
    let (function, declarations) = worker.declaring(make)?;
    if declarations.schedule().is_some() || declarations.has_ends() {
        return Err(BuildError::new(
            "a function that holds packets has its turns when they are due, and no events: give it none",
        ));
    }
    Ok(Box::new(QueueNode { function, declarations }))
}

struct QueueNode<F> {
    function: F,
    declarations: Declarations,
}

impl<F: QueueFunction> Node for QueueNode<F> {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.function.enqueue(batch, cx);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let _settling = self.declarations.settling();
        self.function.dequeue(batch, cx)
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, keeps_packets: true, holds: self.function.most_held(), ..Shape::default() }
    }
    fn guards(&self, _: Edge) -> Guards {
        self.function.guards()
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(&mut self.declarations);
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl<F: QueueFunction> NodeQueue for QueueNode<F> {
    fn held(&self) -> u64 {
        self.function.held()
    }
    fn drain(&mut self, batch: &mut Batch, cx: &mut Context) {
        let _settling = self.declarations.settling();
        self.function.release(batch, cx);
    }
    fn flush(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.drain(batch, cx);
    }
    fn survivors(&mut self) -> Option<&mut dyn Any> {
        Some(&mut self.function)
    }
    fn restore(&mut self, before: &mut dyn Any) {
        if let Some(before) = before.downcast_mut() {
            self.function.restore(before);
        }
    }
}
