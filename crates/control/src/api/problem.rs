//! The answer to a request that could not be done.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that could not be done, in the shape of RFC 9457.
///
/// Nothing has changed where a request to change something is answered so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// The kind of problem, for programs.
    pub code: Code,
    /// One sentence: the error, the place, and the expected and found values.
    pub detail: String,
    /// How to mend it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Places in the file that was sent, where the problem lies there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// All faults of a file as the command line prints them, with the lines that they point at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered: Option<String>,
}

/// The kinds of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request itself is wrong: its JSON, a parameter, a value out of range.
    BadRequest,
    /// There is no token, or it is wrong.
    Unauthorized,
    /// The token may only read.
    Forbidden,
    /// There is no such resource: no function, handler, port, configuration of this name.
    NotFound,
    /// The handler exists but cannot be used so: a read handler that is written, or the reverse.
    WrongKind,
    /// The generation in `If-Match` is not the current one: another writer was first.
    Stale,
    /// The request does not fit the state of the run, such as `confirm` with nothing to confirm.
    Conflict,
    /// The body is larger than allowed.
    TooLarge,
    /// The file has faults; `places` and `rendered` show them.
    Faulty,
    /// The file is right, but not everything in it can change while the dataplane runs.
    NeedsRestart,
    /// The machine refused: a device is missing, memory ran out, a file cannot be written.
    Machine,
    /// Too many requests wait already.
    Busy,
    /// A worker did not answer before the deadline.
    Timeout,
    /// The dataplane is ending.
    Ending,
    /// A fault of the program itself, such as a panic in a handler.
    Internal,
    /// No process answers at the address. Only clients report it.
    Unreachable,
}

impl Code {
    /// The status of HTTP for this kind.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::WrongKind => 405,
            Self::Conflict | Self::NeedsRestart => 409,
            Self::Stale => 412,
            Self::TooLarge => 413,
            Self::Faulty => 422,
            Self::Internal => 500,
            Self::Machine => 507,
            Self::Busy | Self::Ending | Self::Unreachable => 503,
            Self::Timeout => 504,
        }
    }
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The message about this place.
    pub message: String,
}

impl Problem {
    /// A problem with this sentence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), help: None, places: Vec::new(), rendered: None }
    }
    /// The same with a remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
    /// A name that is not there, with the nearest of those that are.
    pub fn unknown<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        let tenant = |name: &str| name.split_once(':').map(|(tenant, _)| tenant.to_owned());
        let of = tenant(name);
        // A node often has the name of its function or port.
        let mut seen = BTreeSet::new();
        let known: Vec<&str> = known
            .into_iter()
            .filter(|known| of.is_none() || tenant(known) == of)
            .filter(|name| seen.insert(*name))
            .collect();
        let problem = Self::new(Code::NotFound, format!("there is no {kind} `{name}`"));
        match netbricks_core::nearest(name, known.iter().copied()) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if known.is_empty() => problem,
            None => problem.help(format!("there are: {}", known.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_known_names_has_each_once() {
        let problem = Problem::unknown("node or port", "zzz", ["lan", "fw", "fw", "lan", "wan"]);
        assert_eq!(problem.help.as_deref(), Some("there are: lan, fw, wan"));
    }
}
