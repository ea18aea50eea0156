//! The resources of the control API, as the server sends them and the client reads them.
//!
//! Every type is a JSON object. Times are seconds or nanoseconds as the field's name says, sizes are bytes,
//! and counts are packets where nothing else is said.

mod change;
mod json;
mod observe;
mod problem;
mod rules;
mod state;
mod trace;

pub use change::{
    Applied, ApplyOptions, CarriedState, Change, ChangeKind, ChangeOptions, ConfigurationState, HistoryEntry,
    Plan, Source, StateWay,
};
pub use json::read;
pub use observe::{ObserveKind, ObserveRequest};
pub use problem::{Code, Place, Problem};
pub use rules::{RuleAnswer, RuleEntry, RuleList};
pub use state::{
    Answers, CallArgument, Count, Edge, Event, EventLevel, Function, Graph, Handler, HandlerAnswer, Node,
    NodeStats, Port, PortStats, RunState, Stats, Status, TableStats, TenantStats, Worker,
};
pub use trace::{TraceEnd, TraceRecord, TraceStep};

/// The version of the API: the first part of every path, as in `/v1/status`.
pub const VERSION: &str = "v1";
