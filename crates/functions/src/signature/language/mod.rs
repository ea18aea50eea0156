//! Suricata's rules, read into what this function can match.
//!
//! A line is a rule, a fault or skipped: it is valid, but needs what is not supported. Faults and skipped rules have
//! their line, their column and the reason.

mod address;
mod content;
mod header;
mod options;
mod port;
mod scanner;
mod variables;

use std::collections::BTreeMap;
use std::fmt;

pub(super) use address::Addresses;
pub(super) use content::PcreFlags;
pub(super) use header::{Header, Protocol};
pub(super) use options::{
    Bits, ByteTest, Content, DataSize, Field, Flags, FlowOption, Number, Part, Pcre, Place, Side, Threshold,
    ThresholdKind, Track,
};
pub(super) use port::Ports;
pub(super) use variables::Variables;

use options::Options;
use scanner::Scanner;

/// The effect of a rule that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Action {
    /// The packet passes, and no other rule counts.
    Pass,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped; where the function stands in the path of the streams, both ends get a reset.
    Reject,
    /// An event tells of it.
    Alert,
}

impl Action {
    pub(super) const ALL: [Self; 4] = [Self::Pass, Self::Drop, Self::Reject, Self::Alert];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Alert => "alert",
        }
    }
}

/// One rule as it was written.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    pub(super) action: Action,
    pub(super) header: Header,
    pub(super) options: Options,
}

/// A place in a text and its problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in bytes, from 1.
    pub(super) column: usize,
    pub(super) problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.problem)
    }
}

/// The rules of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    pub(super) rules: Vec<Rule>,
    /// Wrong lines.
    pub(super) faults: Vec<Fault>,
    /// Rules that were left out, with the reason.
    pub(super) skipped: Vec<Fault>,
}

/// Why a rule was not read.
#[derive(Clone, Debug)]
pub(super) enum Unread {
    /// It is wrong at this byte of its text.
    Wrong(usize, String),
    /// It is valid, but this byte begins what is not supported.
    Unsupported(usize, String),
}

pub(super) type Reading<T> = Result<T, Unread>;

/// A wrong rule, whose fault begins at this byte.
pub(super) fn wrong<T>(at: usize, problem: impl Into<String>) -> Reading<T> {
    Err(Unread::Wrong(at, problem.into()))
}

/// A rule that needs what is not supported at this byte.
pub(super) fn unsupported<T>(at: usize, problem: impl Into<String>) -> Reading<T> {
    Err(Unread::Unsupported(at, problem.into()))
}

/// Reads all rules of a text; with `sids` of rules that were read before.
pub(super) fn read(text: &str, variables: &Variables, sids: &mut BTreeMap<u32, String>, name: &str) -> Read {
    let mut read = Read::default();
    for (first, start, end) in logical_lines(text) {
        let line = &text[start..end];
        let place = |at: usize| {
            let before = &line.as_bytes()[..at.min(line.len())];
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            (first + before.iter().filter(|byte| **byte == b'\n').count(), column)
        };
        let fault = |at: usize, problem: String| {
            let (line, column) = place(at);
            Fault { line, column, problem }
        };
        match rule(line, first, variables) {
            Ok((sid_at, rule)) => {
                let here = if name.is_empty() { format!("line {first}") } else { format!("{name}:{first}") };
                if let Some(other) = sids.get(&rule.options.sid) {
                    let problem =
                        format!("sid {} stands in {other} already: give it another one", rule.options.sid);
                    read.faults.push(fault(sid_at, problem));
                } else {
                    sids.insert(rule.options.sid, here);
                    read.rules.push(rule);
                }
            }
            Err(Unread::Wrong(at, problem)) => read.faults.push(fault(at, problem)),
            Err(Unread::Unsupported(at, problem)) => read.skipped.push(fault(at, problem)),
        }
    }
    read
}

/// The rules' texts: the number of the first line, and the bytes.
///
/// Empty lines and comments are left out. A backslash at the end of a line continues it.
fn logical_lines(text: &str) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    let (mut at, mut number) = (0, 1);
    std::iter::from_fn(move || {
        while at < text.len() {
            let (start, first) = (at, number);
            loop {
                let end = text[at..].find('\n').map_or(text.len(), |len| at + len);
                let goes_on = text[at..end].trim_end().ends_with('\\') && end < text.len();
                (at, number) = ((end + 1).min(text.len()), number + 1);
                if !goes_on {
                    let line = text[start..end].trim_start();
                    if !line.is_empty() && !line.starts_with('#') {
                        return Some((first, start, end));
                    }
                    break;
                }
            }
        }
        None
    })
}

/// Reads one rule, and the place of its sid.
fn rule(text: &str, line: usize, variables: &Variables) -> Reading<(usize, Rule)> {
    let mut scanner = Scanner::new(text);
    let (at, action) = scanner.word("an action: alert, drop, pass or reject")?;
    let action = match action {
        "alert" => Action::Alert,
        "drop" => Action::Drop,
        "pass" => Action::Pass,
        "reject" | "rejectsrc" | "rejectdst" | "rejectboth" => Action::Reject,
        _ => {
            return wrong(
                at,
                format!("expected an action (alert, drop, pass or reject), found `{}`", shown(action)),
            );
        }
    };
    let header = Header::read(&mut scanner, variables)?;
    let (sid_at, options) = Options::read(&mut scanner, &header)?;
    Ok((sid_at, Rule { line, action, header, options }))
}

/// Text of a rule in an error: its beginning, with control characters escaped.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    let short: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() { format!("{short}…") } else { short }
}
