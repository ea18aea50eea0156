//! Handlers: named operations of a node that the control side calls, as Click's read and write handlers.

use std::fmt;

/// A named operation of a node for the control side, like Click's read and write handlers.
///
/// It is also the form in which an author declares one, with [`Worker::handler`](crate::Worker::handler) or
/// [`Worker::handler_of`](crate::Worker::handler_of):
///
/// ```
/// use netbricks_core::{Handler, HandlerKind, HandlerSide};
///
/// let handler = Handler::write("add", "Adds a route.").argument("PREFIX NEXT-HOP");
/// assert_eq!((handler.kind, handler.side), (HandlerKind::Write, HandlerSide::Worker));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Handler {
    /// Its name, one for each node: `"flows.occupancy"`.
    pub name: String,
    /// Whether a call only asks, or may change state.
    pub kind: HandlerKind,
    /// Where a call is made.
    pub side: HandlerSide,
    /// The syntax of its argument, placeholders in capitals: `"NAME MAC [WEIGHT]"`.
    ///
    /// `None` where it takes no argument. A call with one is then refused.
    pub argument: Option<String>,
    /// One sentence about its answer and its effect.
    pub summary: String,
    /// The subject of its writes, so that a journal of them stays short. `None` where each write counts.
    #[serde(skip)]
    pub subject: Option<WriteSubject>,
    /// Whether tenants may call it about what is theirs in a function of the operator's.
    ///
    /// The call then comes as one of [`TENANT_READ`] or [`TENANT_WRITE`].
    pub tenants: bool,
}

/// The read handler by which tenants call others: its argument is `TENANT HANDLER [ARGUMENT]`.
pub const TENANT_READ: &str = "tenant-read";
/// The write handler by which tenants call others: its argument is `TENANT HANDLER [ARGUMENT]`.
pub const TENANT_WRITE: &str = "tenant-write";

/// The subject of a handler's writes: by it, a later write stands for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSubject {
    /// The name of the state; with the first word of an argument it says which entry.
    pub name: &'static str,
    /// Whether a write gives the entry its whole value.
    pub sets: bool,
    /// Whether an argument may have several lines, each of which is as a write of its own.
    pub by_lines: bool,
}

/// The kind of a handler: what a call may do to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandlerKind {
    /// A call only asks: it never changes state.
    Read,
    /// A call may change state.
    Write,
}

/// The place where calls of a handler are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandlerSide {
    /// The control side calls it on a [copy of its own](crate::Blueprint::control), which disturbs no worker.
    ///
    /// The handler needs only state that all workers share.
    Control,
    /// Each worker has its own answer: the call concerns one worker, or all of them one after the other.
    Worker,
    /// Every worker has the same answer, and a change on one is a change for all: one worker is asked.
    AnyWorker,
}

impl Handler {
    /// A handler that only asks, with the summary of its answer. It takes no argument.
    pub fn read(name: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new(name.into(), HandlerKind::Read, summary.into())
    }

    /// A handler that may change state, with the summary of its effect. It takes no argument.
    pub fn write(name: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new(name.into(), HandlerKind::Write, summary.into())
    }

    fn new(name: String, kind: HandlerKind, summary: String) -> Self {
        Self { name, kind, side: HandlerSide::Worker, argument: None, summary, subject: None, tenants: false }
    }

    /// The same handler with an argument of this syntax, placeholders in capitals: `"PREFIX NEXT-HOP"`.
    #[must_use]
    pub fn argument(self, syntax: impl Into<String>) -> Self {
        Self { argument: Some(syntax.into()), ..self }
    }

    /// The same handler, whose writes are about the entry of `state` that the argument's first word names.
    ///
    /// With `sets`, a write gives the entry its whole value, so that a journal drops earlier writes about it.
    #[must_use]
    pub fn about(self, state: &'static str, sets: bool) -> Self {
        let by_lines = self.subject.is_some_and(|subject| subject.by_lines);
        Self { subject: Some(WriteSubject { name: state, sets, by_lines }), ..self }
    }

    /// The same handler [about](Self::about) some state, whose argument may have several lines: each is as a write.
    #[must_use]
    pub fn by_lines(mut self) -> Self {
        self.subject.iter_mut().for_each(|subject| subject.by_lines = true);
        self
    }

    /// The same handler, which [tenants](Self::tenants) may call, too.
    #[must_use]
    pub fn for_tenants(self) -> Self {
        Self { tenants: true, ..self }
    }

    /// The same handler for this side.
    #[must_use]
    pub fn on(self, side: HandlerSide) -> Self {
        Self { side, ..self }
    }

    /// Whether a call with this argument is possible: one that takes none gets none.
    pub(crate) fn admits(&self, argument: &str) -> Result<(), CallError> {
        if self.argument.is_some() || argument.trim().is_empty() {
            return Ok(());
        }
        let problem = format!("takes no argument, found `{}`: leave it out", argument.trim());
        Err(CallError::Argument { name: self.name.clone(), problem })
    }
}

impl fmt::Display for HandlerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

impl fmt::Display for HandlerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Worker => "worker",
            Self::AnyWorker => "any-worker",
        })
    }
}

/// A handler that could not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node has no handler of that name.
    #[error("no handler `{name}`; there are: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// All handlers of the node, separated by commas.
        known: String,
    },
    /// The handler is of the other kind.
    #[error("handler `{name}` is a {kind} handler: call it as one")]
    Kind {
        /// The handler.
        name: String,
        /// Its kind.
        kind: HandlerKind,
    },
    /// Each worker has its own answer, and the control side's copy of the node has none.
    #[error("handler `{name}` is answered by a worker, not by the control side: call it on a worker")]
    OnWorker {
        /// The handler.
        name: String,
    },
    /// The thing that the argument names is not on this worker. The answers of other workers count.
    #[error("handler `{name}`: {problem}")]
    Elsewhere {
        /// The handler.
        name: String,
        /// The thing that is not here, and its place, if that is known.
        problem: String,
    },
    /// The argument does not fit.
    #[error("handler `{name}`: {problem}")]
    Argument {
        /// The handler.
        name: String,
        /// The error, and what was expected.
        problem: String,
    },
    /// The control side's copy of the node cannot reach the state that workers share.
    #[error("handler `{name}` does not reach the workers' state: {problem}")]
    Unreachable {
        /// The handler.
        name: String,
        /// The cause.
        problem: String,
    },
    /// The handler panicked, and its node was rebuilt.
    #[error("handler `{name}` panicked: {message}")]
    Panicked {
        /// The handler.
        name: String,
        /// The panic's message.
        message: String,
    },
}
