//! The control side's copy of a node: its handlers read and write what workers share, and disturb no worker.

use std::fmt;

use netbricks_buffer::Pool;

use crate::graph::{Caught, contain};
use crate::node::{CallError, Handler, HandlerKind, HandlerSide, Node};
use crate::registry::Blueprint;
use crate::state::Declarations;
use crate::worker::{BuildError, PortNames, Worker};
use crate::worker_group::WorkerGroup;

/// The control side's copy of a node, which answers the node's control handlers.
///
/// [`Blueprint::control`] makes it. It shares the state of the workers' nodes, and no packet comes to it. It
/// stays on the thread that made it.
///
/// A call joins the state that the workers' graphs have taken over since the last one. A panic in a handler
/// costs its answer: the copy is made again.
pub struct ControlCopy {
    /// `None` after a panic, until the copy could be made again.
    node: Option<Box<dyn Node>>,
    handlers: Vec<Handler>,
    blueprint: Blueprint,
    pool: Pool,
    seed: u64,
    workers: usize,
    ports: PortNames,
}

impl ControlCopy {
    pub(crate) fn new(
        blueprint: &Blueprint,
        (pool, seed): (Pool, u64),
        workers: usize,
        ports: PortNames,
    ) -> Result<Self, BuildError> {
        let (blueprint, node, handlers) = (blueprint.clone(), None, Vec::new());
        let mut copy = Self { node, handlers, blueprint, pool, seed, workers, ports };
        copy.make()?;
        Ok(copy)
    }

    fn make(&mut self) -> Result<&mut Box<dyn Node>, BuildError> {
        // A group of its own, which tells the number of workers.
        let worker = Worker::control(self.seed, self.pool.clone())
            .in_group(WorkerGroup::new(self.workers))
            .among(self.ports.clone());
        let made = contain(|| self.blueprint.build(&worker));
        let mut node = made.map_err(|caught| panicked("making it", &caught))??;
        let handlers = match contain(|| node.handlers()) {
            Ok(handlers) => handlers,
            Err(caught) => {
                // Its drop is contained on its own: a second panic while one unwinds would end the process.
                let _ended = contain(|| drop(node));
                return Err(panicked("asking for its handlers", &caught));
            }
        };
        self.handlers = handlers;
        Ok(self.node.insert(node))
    }

    /// All handlers of the node, those of its workers too.
    pub fn handlers(&self) -> &[Handler] {
        &self.handlers
    }

    /// Begins with what the copy in whose place it comes had learned: [`Declared::learned`](crate::Declared::learned).
    ///
    /// It is called before workers join the state that they share with this copy. Answers what was not taken, and why.
    pub fn learn_from(&mut self, before: &mut Self) -> Vec<String> {
        let declared = |copy: &mut Self, ask: &mut dyn FnMut(&Declarations)| {
            let Some(node) = &mut copy.node else { return Ok(()) };
            contain(|| {
                node.state(|state| state.declarations().map(|declared| ask(declared)));
            })
            .map_err(|caught| panicked("learning", &caught).problem)
        };
        let mut learned = Vec::new();
        let mut problems: Vec<String> =
            declared(before, &mut |state| learned = state.learned()).err().into_iter().collect();
        for (name, bytes) in learned {
            let mut taken = Ok(());
            let asked = declared(self, &mut |state| taken = state.learn(&name, &bytes));
            problems.extend(asked.and(taken).err().map(|problem| format!("{name}: {problem}")));
        }
        problems
    }

    /// Takes note that the state which workers share is now that of this copy's settings.
    ///
    /// Nothing of it is changed: handlers have [written](crate::LiveChange::write) it.
    pub fn agree(&mut self) {
        if let Some(node) = &mut self.node {
            // Where that panics, the state goes on as before.
            let _panicked =
                contain(|| node.state(|state| state.declarations().map(|declared| declared.agree())));
        }
    }

    /// Calls a control handler of this kind.
    ///
    /// State that it changes is published when the call ends: a worker's next batch sees it.
    ///
    /// # Errors
    /// [`CallError::Kind`] where the handler is of the other kind, [`CallError::OnWorker`] where it is a
    /// worker's, and those of [`NodeState::call`](crate::NodeState::call).
    pub fn call_as(&mut self, kind: HandlerKind, name: &str, argument: &str) -> Result<String, CallError> {
        match self.handlers.iter().find(|handler| handler.name == name) {
            Some(Handler { kind: its, .. }) if *its != kind => {
                Err(CallError::Kind { name: name.into(), kind: *its })
            }
            _ => self.call(name, argument),
        }
    }

    /// Calls a control handler, of either kind.
    ///
    /// # Errors
    /// As [`call_as`](Self::call_as), without `Kind`.
    pub fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        let known = self.handlers.iter().find(|handler| handler.name == name);
        if known.is_some_and(|handler| handler.side != HandlerSide::Control) {
            return Err(CallError::OnWorker { name: name.into() });
        }
        self.ask(name, |node| node.call(name, argument))
    }

    /// Prepares a call of a handler of the workers: [`NodeState::prepare`](crate::NodeState::prepare).
    ///
    /// # Errors
    /// The argument does not fit, or the copy panicked.
    pub fn prepare(&mut self, name: &str, argument: &str) -> Result<Option<String>, CallError> {
        let mut prepared = Ok(None);
        self.ask(name, |node| {
            node.state(|state| prepared = state.prepare(name, argument));
            Ok(String::new())
        })?;
        prepared
    }

    /// Asks the node, which is made again after a panic.
    fn ask(
        &mut self,
        name: &str,
        ask: impl FnOnce(&mut Box<dyn Node>) -> Result<String, CallError>,
    ) -> Result<String, CallError> {
        let node = match &mut self.node {
            Some(node) => node,
            None => self.make().map_err(|BuildError { problem }| CallError::Unreachable {
                name: name.into(),
                problem: format!("after a panic its copy could not be made again: {problem}"),
            })?,
        };
        contain(|| ask(node)).unwrap_or_else(|Caught { message, .. }| {
            let node = self.node.take();
            // Its drop is an author's code too.
            let message = match contain(|| drop(node)) {
                Ok(()) => message,
                Err(again) => format!("{message}; and its end panicked: {}", again.message),
            };
            Err(CallError::Panicked { name: name.into(), message })
        })
    }
}

/// Its drop runs authors' code, contained.
impl Drop for ControlCopy {
    fn drop(&mut self) {
        let node = self.node.take();
        let _ended = contain(|| drop(node));
    }
}

impl fmt::Debug for ControlCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlCopy").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}

/// The error of a blueprint whose code panicked in this action.
pub(crate) fn panicked(action: &str, Caught { message, place }: &Caught) -> BuildError {
    let place = place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default();
    BuildError::new(format_args!("{action} panicked: {message}{place}"))
}
