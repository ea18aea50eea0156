//! The error of a filter text: its place, what was expected and found, and how to mend it.

use std::ops::Range;

/// A filter text that cannot be read, with the place and the remedy.
///
/// The `Display` is one line: the place, what was expected, what was found, and how to mend it.
///
/// ```
/// let error = netbricks_core::filter::Filter::parse("tcp prot 80").unwrap_err();
/// assert_eq!((error.range.clone(), error.nearest), (4..8, Some("port")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter, byte {}: expected {expected}, found {found}; {help}{}", range.start, suggestion(*nearest))]
pub struct FilterError {
    /// The bytes of the text that are wrong, from 0; empty at the text's end.
    pub range: Range<usize>,
    /// The words or values that may stand there.
    pub expected: String,
    /// The text that was found, in quotes, or `the end of the filter`.
    pub found: String,
    /// The change that mends it, in one sentence without a full stop.
    pub help: String,
    /// The keyword nearest to a word that is none, if one is near.
    pub nearest: Option<&'static str>,
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default()
}

/// A rule that a primitive breaks. The parser adds the place and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) expected: String,
    pub(super) help: String,
    pub(super) nearest: Option<&'static str>,
}

impl Fault {
    pub(super) fn new(expected: impl Into<String>, help: impl Into<String>) -> Self {
        Self { expected: expected.into(), help: help.into(), nearest: None }
    }
}
