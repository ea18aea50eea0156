//! Rules of a function that has rules, such as `mmb`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The rules of a function, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    /// `ordered`, where rules apply until one decides; or `all-match`.
    pub mode: String,
    /// The fate of packets that no rule decides about: `accept` or `drop`.
    pub policy: String,
    /// The rules.
    pub rules: Vec<RuleEntry>,
}

/// A rule with its counts over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleEntry {
    /// Its place, from 1.
    pub number: usize,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The rule, in the function's language.
    pub rule: String,
    /// Whether its first match makes a connection.
    pub stateful: bool,
    /// Packets that it matched, of both directions of its connections.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets among them that were answers of its connections.
    pub replies: u64,
    /// Packets that one of its targets could not change.
    pub not_applied: u64,
    /// When the last packet came, in ns of the run's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
}

/// The answer of a function to commands of its rule language.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleAnswer {
    /// Its lines: warnings, what changed, and the answers to questions.
    pub answer: String,
}
