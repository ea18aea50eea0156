//! Changes of the configuration: planned, applied, confirmed, rolled back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file that is to run, in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The file's text.
    pub text: String,
    /// The file's name, for messages and for the history.
    pub name: String,
    /// The directory from which relative names in the file start; an absolute path.
    pub directory: String,
}

/// How a file is applied, as parameters of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplyOptions {
    /// Only plan: nothing changes.
    #[serde(rename = "dry-run")]
    pub dry_run: bool,
    /// Roll back by itself unless the change is confirmed within this many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<f64>,
    /// A note for the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Begin as the file says: what handlers changed is undone, and leaves the journal.
    pub forget: bool,
}

/// The conditions of a change, which each change takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Only check: nothing changes.
    pub dry_run: bool,
    /// The generation that must still be the current one, sent as `If-Match`.
    pub generation: Option<u64>,
}

/// The changes that a file would make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The generation that it was planned against.
    pub generation: u64,
    /// Whether nothing would change.
    pub unchanged: bool,
    /// The changes, ports first.
    pub changes: Vec<Change>,
    /// Names of functions and ports that go on as they are.
    pub kept: Vec<String>,
    /// Warnings about the file.
    pub warnings: Vec<String>,
}

/// One change of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The part: `port`, `function` or `chain`.
    pub part: String,
    /// Its name.
    pub name: String,
    /// One sentence: which keys changed.
    pub detail: String,
    /// The state of a function that is replaced or updated, and how it goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<CarriedState>,
    /// Bytes of state copied while packets waited, on all workers; none in a plan, and without a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_bytes: Option<u64>,
}

/// State that a function has, and how it goes on after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarriedState {
    /// Its name, such as `flows`.
    pub name: String,
    /// How it goes on.
    pub way: StateWay,
    /// Its entries on all workers.
    pub entries: u64,
    /// Bytes of the entries that move or are copied, where they are known; none where it is handed on whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it is not handed on whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// How state goes on after a change; later ones cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StateWay {
    /// It is handed on as it is.
    Whole,
    /// Its entries move in bounded steps with packets between them.
    InSteps,
    /// Its entries are copied while packets wait.
    Copied,
    /// It begins again.
    Anew,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// A new one takes its place, with the state that carries over.
    Replaced,
    /// It goes on, with other values or connections.
    Updated,
}

/// A file that was applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    /// The number of the configuration in the history.
    pub configuration: u64,
    /// The generation after the change.
    pub generation: u64,
    /// The plan that was carried out.
    pub plan: Plan,
    /// State that moved across: `flows: connections`.
    pub moved: Vec<String>,
    /// State that did not fit, with the reason.
    pub refused: Vec<String>,
    /// Seconds in which it must be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_seconds: Option<f64>,
    /// The longest time for which a worker moved no packet for this change (ns).
    pub longest_pause_ns: u64,
}

/// A configuration of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Its number.
    pub number: u64,
    /// When it was applied (nanoseconds since 1970, UTC).
    pub time_ns: u64,
    /// The file's name.
    pub file: String,
    /// The operator's note.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Its fate.
    pub state: ConfigurationState,
    /// Whether it runs now.
    pub running: bool,
}

/// The fate of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigurationState {
    /// It ran, and waits to be confirmed.
    Applied,
    /// A restart runs it, or could have run it.
    Confirmed,
    /// It was rolled back.
    RolledBack,
    /// It could not be applied.
    Failed,
}
