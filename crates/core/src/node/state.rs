//! The state of a node, as the control side, other workers and the next graph use it.

use crate::consistency::SharedStateRef;
use crate::events::Schedule;
use crate::node::{CallError, Handler, HandlerKind, ImportError, Node, Section, StateImage};
use crate::shuffle::{PacketPart, Part, PartStep, ShuffleKey};
use crate::state::{Declarations, StateSuccession, StateTerms};
use crate::steps::{Steps, at_once};

/// The state of a node, which the node shows by [`Node::with_state`].
///
/// The defaults are those of empty state: no handlers, no exports, no events, no report and so on.
pub trait NodeState {
    /// The node's handlers.
    fn handlers(&self) -> Vec<Handler> {
        Vec::new()
    }
    /// Calls a handler, from the control side, between batches.
    ///
    /// # Errors
    /// [`CallError`] when there is no such handler or its argument does not fit.
    fn call(&mut self, name: &str, _argument: &str) -> Result<String, CallError> {
        let known = self.handlers().into_iter().map(|handler| handler.name).collect::<Vec<_>>().join(", ");
        Err(CallError::Unknown { name: name.into(), known })
    }
    /// Prepares a call of a handler of the workers, on the control side's copy of the node, while packets move.
    ///
    /// The answer is an argument in the place of the given one, for which the call takes less long.
    ///
    /// # Errors
    /// [`CallError`] when its argument does not fit: no worker is called then.
    fn prepare(&mut self, _name: &str, _argument: &str) -> Result<Option<String>, CallError> {
        Ok(None)
    }
    /// Calls a handler that reads and is answered in steps, with packets between them.
    ///
    /// `None` where the node has no such handler: [`call`](Self::call) answers all others at once.
    fn call_steps(&mut self, _name: &str, _argument: &str) -> Option<Result<Steps<String>, CallError>> {
        None
    }
    /// All declared state of the node.
    fn export(&self) -> Vec<StateImage> {
        Vec::new()
    }
    /// Takes over state that a node of the same kind exported, at time `now` (ns).
    ///
    /// # Errors
    /// [`ImportError`] names the state and the error; nothing is changed then.
    fn import(&mut self, name: &str, _bytes: &[u8], _now: u64) -> Result<(), ImportError> {
        Err(ImportError::Unknown { name: name.into() })
    }
    /// The state as a function declared it; `None` for state of another form.
    fn declarations(&mut self) -> Option<&mut Declarations> {
        None
    }
    /// Goes on with the state of the node that this one replaces, as far as that needs no copy.
    ///
    /// Answers the states that it took, and those that begin again here. The others move as [bytes](Self::import).
    fn take_over(&mut self, _old: &mut dyn NodeState, _now: u64) -> Vec<StateSuccession> {
        Vec::new()
    }
    /// The node's declared state that workers share, by name, for the graph that replaces this one.
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        Vec::new()
    }
    /// Takes over shared state of a node of the same kind, at time `now` (ns).
    ///
    /// `None` where the node cannot use that state as it is. It is then moved as [bytes](Self::import).
    fn adopt(&mut self, _name: &str, _shared: &SharedStateRef, _now: u64) -> Option<Result<(), ImportError>> {
        None
    }
    /// Takes out a bounded piece of the state of flows that move to another worker.
    ///
    /// The answer is an image, which [`import`](Self::import) of the same node on the other worker adds to
    /// its state. State that belongs to no flow stays. The graph calls this again, with other packets in
    /// between, until `step` [is over](PartStep::is_over).
    fn take_part(&mut self, _part: &Part, step: &mut PartStep) -> Option<StateImage> {
        step.end();
        None
    }
    /// The names of the state by flow that cannot move with flows where a shuffle uses the key `by`.
    ///
    /// No flow moves where such state is behind that shuffle. Asked once, when the graph is built. A node
    /// that exports state and overrides [`take_part`](Self::take_part) names here the state that `take_part`
    /// leaves. The default is all exported state.
    fn bound(&self, _by: ShuffleKey) -> Vec<String> {
        self.export().into_iter().map(|(name, _)| name).collect()
    }
    /// The names of the state that moves with flows where a shuffle uses the key `by`.
    ///
    /// Together with [`bound`](Self::bound) these are all state by flow: they make it matter to which worker
    /// a packet comes.
    fn follows(&self, _by: ShuffleKey) -> Vec<String> {
        Vec::new()
    }
    /// The part of the node's state that a packet needs, where that is divided by a rule of its own.
    ///
    /// With several workers, a shuffle by that part must stand before the node.
    fn packet_part(&self) -> Option<PacketPart> {
        None
    }
    /// The schedule of the node's events, where it has any.
    ///
    /// `poll` then runs one event that is due, and answers [`Poll::Until`](crate::Poll::Until) with the time
    /// of the next. Nodes that [`compose`](crate::compose()) makes have the events of
    /// [`Worker::invoke_every`](crate::Worker::invoke_every). A node written by hand asks for turns with
    /// [`Shape::schedulable`](crate::Shape::schedulable) alone.
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    /// Says that no more packets come, since the graph is taken down.
    ///
    /// The graph calls this once, where [`Shape::has_end`](crate::Shape::has_end) is set.
    fn end(&mut self) {}
    /// Ends entries that are over at time `now` (ns), such as flows without a packet for their timeout.
    ///
    /// The graph calls this before it asks for a report.
    fn expire(&mut self, _now: u64) {}
    /// Says in one sentence why the node will do with this frame what it does, where a function explains itself.
    ///
    /// The frame is as it comes to the node. The graph asks only for packets that are traced.
    ///
    /// # Errors
    /// Those of `why`, or the function's own: its sentence is then left out.
    fn explain(&self, _frame: &[u8], _why: &mut dyn std::fmt::Write) -> std::fmt::Result {
        Ok(())
    }
    /// Tables for the report at the end of a run, beside the counters; for example a monitor's largest flows.
    fn report(&self) -> Vec<Section> {
        Vec::new()
    }
    /// As [`report`](Self::report) at time `now` (ns), in steps with packets between them.
    fn report_steps(&mut self, now: u64) -> Vec<Steps<Section>> {
        self.expire(now);
        self.report().into_iter().map(at_once).collect()
    }
}

/// Calls of a node's state, for the graph, tests and tools.
///
/// A node without state answers as if its state were empty.
impl dyn Node + '_ {
    /// The answer of `ask` about the node's [state](Node::with_state); `None` where it has none.
    pub fn state<T>(&mut self, ask: impl FnOnce(&mut dyn NodeState) -> T) -> Option<T> {
        let (mut ask, mut answer) = (Some(ask), None);
        self.with_state(&mut |state| {
            // Only the first state that the node shows is asked.
            if let Some(ask) = ask.take() {
                answer = Some(ask(state));
            }
        });
        answer
    }
    /// As [`NodeState::handlers`].
    pub fn handlers(&mut self) -> Vec<Handler> {
        self.state(|state| state.handlers()).unwrap_or_default()
    }
    /// As [`NodeState::call`].
    ///
    /// # Errors
    /// As [`NodeState::call`].
    pub fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        let unknown = || Err(CallError::Unknown { name: name.into(), known: "none".into() });
        self.state(|state| state.call(name, argument)).unwrap_or_else(unknown)
    }
    /// As [`call`](NodeState::call), where the handler is of this kind.
    ///
    /// So a caller that may only read calls no handler that writes.
    ///
    /// # Errors
    /// [`CallError::Kind`] where it is of the other kind, and those of [`NodeState::call`].
    pub fn call_as(&mut self, kind: HandlerKind, name: &str, argument: &str) -> Result<String, CallError> {
        let mut named = self.handlers().into_iter().filter(|handler| handler.name == name);
        match named.next() {
            // A name may be read and written: it is then listed once for each.
            Some(Handler { name, kind: its, .. }) if its != kind && named.all(|other| other.kind != kind) => {
                Err(CallError::Kind { name, kind: its })
            }
            _ => self.call(name, argument),
        }
    }
    /// As [`NodeState::export`].
    pub fn export(&mut self) -> Vec<StateImage> {
        self.state(|state| state.export()).unwrap_or_default()
    }
    /// As [`NodeState::import`].
    ///
    /// # Errors
    /// As [`NodeState::import`].
    pub fn import(&mut self, name: &str, bytes: &[u8], now: u64) -> Result<(), ImportError> {
        let unknown = || Err(ImportError::Unknown { name: name.into() });
        self.state(|state| state.import(name, bytes, now)).unwrap_or_else(unknown)
    }
    /// As [`NodeState::shared_state`].
    pub fn shared_state(&mut self) -> Vec<(String, SharedStateRef)> {
        self.state(|state| state.shared_state()).unwrap_or_default()
    }
    /// As [`NodeState::adopt`].
    pub fn adopt(
        &mut self,
        name: &str,
        shared: &SharedStateRef,
        now: u64,
    ) -> Option<Result<(), ImportError>> {
        self.state(|state| state.adopt(name, shared, now)).flatten()
    }
    /// How running state with these terms, of the node that this one is to replace, goes on here.
    ///
    /// Where that `undoes` writes, what handlers wrote begins again. Nothing is touched by the question, and a graph
    /// that takes over decides alike.
    pub fn successions(&mut self, before: &[(String, StateTerms)], undoes: bool) -> Vec<StateSuccession> {
        let decided =
            self.state(|state| state.declarations().map(|declared| declared.successions(before, undoes)));
        decided.flatten().unwrap_or_else(|| Declarations::default().successions(before, undoes))
    }
    /// As [`NodeState::report`].
    pub fn report(&mut self) -> Vec<Section> {
        self.state(|state| state.report()).unwrap_or_default()
    }
    /// As [`NodeState::schedule`].
    pub fn schedule(&mut self) -> Option<Schedule> {
        self.state(|state| state.schedule()).flatten()
    }
}
