//! The state of a node: what the control side, other workers and the graph that comes next want of it.

use crate::consistency::SharedStateRef;
use crate::events::Schedule;
use crate::node::{CallError, Handler, ImportError, Node, Section, StateImage};
use crate::shuffle::{Part, PartStep, ShuffleKey};

/// The state of a node, which it shows by [`Node::with_state`]. The default of each method says that there is none of that.
pub trait NodeState {
    /// Its handlers.
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
    /// All its declared state.
    fn export(&self) -> Vec<StateImage> {
        Vec::new()
    }
    /// Takes over state that a node of its kind exported, at time `now` (ns).
    ///
    /// # Errors
    /// [`ImportError`] names the state and what does not fit; nothing is changed then.
    fn import(&mut self, name: &str, _bytes: &[u8], _now: u64) -> Result<(), ImportError> {
        Err(ImportError::Unknown { name: name.into() })
    }
    /// Its declared state that workers share, by name, for the graph that replaces this one.
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        Vec::new()
    }
    /// Goes on with shared state of a node of its kind, at time `now` (ns). `None` where it cannot be had as it is, and moves as
    /// [bytes](Self::import).
    fn adopt(
        &mut self,
        _name: &str,
        _heritage: &SharedStateRef,
        _now: u64,
    ) -> Option<Result<(), ImportError>> {
        None
    }
    /// Takes out the state of flows that move to another worker, a bounded piece of it: an image that
    /// [`import`](Self::import) of the same node there adds to what it has. State that is no flow's stays. Called again, with
    /// other packets in between, until `step` [is over](PartStep::is_over).
    fn take_part(&mut self, _part: &Part, step: &mut PartStep) -> Option<StateImage> {
        step.end();
        None
    }
    /// The names of its state that is of flows but cannot go with them where a shuffle sorts them by `by`: with it behind
    /// that shuffle no flow moves. Asked once, when the graph is built. A node that exports state and overrides
    /// [`take_part`](Self::take_part) says here what that does not take; without, it is all.
    fn bound(&self, _by: ShuffleKey) -> Vec<String> {
        self.export().into_iter().map(|(name, _)| name).collect()
    }
    /// The names of its state that goes with flows where a shuffle sorts them by `by`. With [`bound`](Self::bound), all that
    /// it knows by flow: what makes it matter which worker a packet comes to.
    fn follows(&self, _by: ShuffleKey) -> Vec<String> {
        Vec::new()
    }
    /// When its events are due, where it has any: `poll` then runs one that is due and answers
    /// [`Poll::Until`](crate::Poll::Until) the next. What [`compose`](crate::compose()) makes has them from
    /// [`Worker::invoke_every`](crate::Worker::invoke_every); a node written by hand asks for turns by
    /// [`Shape::schedulable`](crate::Shape::schedulable) alone.
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    /// Nothing more comes, since the graph is taken down: called once where [`Shape::has_end`](crate::Shape::has_end).
    fn end(&mut self) {}
    /// Ends what is over at time `now` (ns), such as flows without a packet for their timeout: asked before a report.
    fn expire(&mut self, _now: u64) {}
    /// Lines for the end-of-run report, beside the counters (a monitor's top flows): a title and rows.
    fn report(&self) -> Vec<Section> {
        Vec::new()
    }
}

/// A node's state as its graph, tests and tools ask for it; a node without state answers as one whose state has none of it.
impl dyn Node + '_ {
    /// The answer of `ask` about its [state](Node::with_state); `None` where it has none.
    pub fn state<T>(&mut self, ask: impl FnOnce(&mut dyn NodeState) -> T) -> Option<T> {
        let (mut ask, mut answer) = (Some(ask), None);
        self.with_state(&mut |state| {
            // The first that it shows is all of it.
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
        heritage: &SharedStateRef,
        now: u64,
    ) -> Option<Result<(), ImportError>> {
        self.state(|state| state.adopt(name, heritage, now)).flatten()
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
