//! The error of a line: its place, the fault, and how to mend it.

use std::fmt;
use std::ops::Range;

/// A line that is no command, with the place and the remedy.
///
/// ```
/// let line = "add tcp-dprt 80 drop";
/// let error = netbricks_mmb::language::parse_command(line).unwrap_err();
/// assert_eq!(error.span, 4..12);
/// assert_eq!(error.to_string(), "column 5: there is no field `tcp-dprt`: did you mean `tcp-dport`?");
/// assert!(error.render(line).ends_with("\n  add tcp-dprt 80 drop\n      ^^^^^^^^"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {}: {message}: {hint}", span.start + 1)]
pub struct LineError {
    /// The bytes of the line that are wrong, from 0; empty at its end.
    pub span: Range<usize>,
    /// The fault, in one sentence without a full stop.
    pub message: String,
    /// The change that mends it, without a full stop.
    pub hint: String,
}

impl LineError {
    /// The error with its line below it, and a caret below each character that is wrong.
    ///
    /// A long line is shown around the fault only.
    pub fn render(&self, line: &str) -> String {
        const BEFORE: usize = 60;
        const AFTER: usize = 40;
        let line = line.trim_end_matches(['\r', '\n']);
        let before = line.get(..self.span.start).unwrap_or(line);
        let marked = line.get(self.span.clone()).unwrap_or_default();
        let behind = line.get(self.span.end..).unwrap_or_default();
        let skipped = before.chars().count().saturating_sub(BEFORE);
        let before: String = before.chars().skip(skipped).map(plain).collect();
        let marked: String = marked.chars().take(BEFORE).map(plain).collect();
        let behind: String = behind.chars().take(AFTER).map(plain).collect();
        let indent = before.chars().count();
        let carets = marked.chars().count().max(1);
        format!("{self}\n  {before}{marked}{behind}\n  {:indent$}{:^<carets$}", "", "")
    }
}

/// A character that takes one column.
fn plain(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// A fault whose place the parser adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
    pub(crate) fn at(self, span: Range<usize>) -> LineError {
        LineError { span, message: self.message, hint: self.hint }
    }
}

/// The wrong lines of a text, of which the first hundred are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileErrors {
    /// The number of each line, from 1, with its error.
    pub errors: Vec<(usize, LineError)>,
    /// The number of all wrong lines.
    pub total: usize,
}

impl FileErrors {
    /// Errors that are kept.
    pub const KEPT: usize = 100;

    /// Adds a wrong line by its number from 1; beyond those that are kept it is only counted.
    pub fn add(&mut self, line: usize, error: LineError) {
        self.total += 1;
        if self.errors.len() < Self::KEPT {
            self.errors.push((line, error));
        }
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, error) in &self.errors {
            writeln!(f, "line {line}, {error}")?;
        }
        match self.total - self.errors.len() {
            0 => {}
            more => writeln!(f, "and {more} more")?,
        }
        match self.total {
            1 => f.write_str("1 line is wrong; nothing is loaded"),
            total => write!(f, "{total} lines are wrong; nothing is loaded"),
        }
    }
}

impl std::error::Error for FileErrors {}
