//! The language of rules: lines to commands, and commands to lines.
//!
//! One recursive-descent parser over one lexer reads a line. Its errors name a place, the fault and the remedy.
//! [`complete`](crate::complete) takes completion and colours from the same parser. The `Display` of a
//! [`Command`] or [`Rule`] is the line that gives the same command or rule.
//!
//! ```
//! use netbricks_mmb::language::parse_rule;
//!
//! let rule = parse_rule("tcp-syn == 1  ! tcp-opt-mss add tcp-opt-mss x5b4").unwrap();
//! assert_eq!(rule.to_string(), "tcp-syn 1 ! tcp-opt-mss add tcp-opt-mss 1460");
//! ```

use std::collections::BTreeMap;

mod check;
mod error;
pub(crate) mod extent;
mod lexer;
mod matches;
mod names;
mod packet;
mod parser;
mod print;
mod target;
mod value_parser;
mod values;
mod words;

pub use error::{FileErrors, LineError};
pub(crate) use lexer::LONGEST_LINE;
pub(crate) use lexer::{is_word, token};
pub(crate) use parser::Parser;
pub(crate) use values::{Domain, number_of};
pub use values::{LONGEST_OPTION, LONGEST_PAYLOAD, SetKind};
pub(crate) use words::is_target;

use crate::field::FieldId;
use crate::lint::Lint;
use crate::rule::{Atom, Command, Rule, Value};

/// Facts about the middlebox that rules are for. A fact that is `None` is not checked.
#[derive(Clone, Debug, Default)]
pub struct Context<'a> {
    /// The ways out that `lb` may name, from 0.
    pub outputs: Option<usize>,
    /// The interfaces.
    pub interfaces: Option<&'a [String]>,
    /// The fact that makes `out` unknown while rules match, where there is one.
    pub unknown_out: Option<&'a str>,
    /// The sets that are defined, by their names without `@`.
    pub sets: Option<&'a BTreeMap<String, SetKind>>,
    /// The names of rules, for completion.
    pub rules: &'a [String],
}

/// A command, with the warnings about its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The command.
    pub command: Command,
    /// Faults that do not prevent it: host bits that were cleared, a one-way `mod`.
    pub warnings: Vec<Lint>,
}

/// The commands of a text, with the warnings about its lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedFile {
    /// Each command with the number of its line, from 1.
    pub commands: Vec<(usize, Command)>,
    /// Each warning with the number of its line.
    pub warnings: Vec<(usize, Lint)>,
}

/// Reads a line; `None` where it is empty or a comment.
///
/// # Errors
/// The first fault of the line.
pub fn parse_command(line: &str) -> Result<Option<Command>, LineError> {
    Ok(Context::default().parse(line)?.map(|parsed| parsed.command))
}

/// Reads a rule, as it stands behind `add`. A stateful one has `stateful` before it.
///
/// # Errors
/// The first fault of the text.
pub fn parse_rule(text: &str) -> Result<Rule, LineError> {
    Context::default().parse_rule(text)
}

/// The number that a word stands for as a value of this field.
///
/// The word is a number or a name, such as `https` of `tcp-dport`.
/// `None` where it is no value of the field, and for fields whose values are no plain numbers.
pub fn number_named(field: FieldId, word: &str) -> Option<u128> {
    match values::Domain::of(field)?.read(word)? {
        Atom::Number(number) => Some(number),
        _ => None,
    }
}

/// Reads a text of many lines; each command has the number of its line, from 1.
///
/// # Errors
/// All wrong lines. The text is taken whole or not at all.
pub fn parse_file(text: &str) -> Result<Vec<(usize, Command)>, FileErrors> {
    Ok(Context::default().parse_file(text)?.commands)
}

impl Context<'_> {
    /// The kind of a value of a set; `None` for the name of a set that is not known.
    pub fn kind(&self, value: &Value) -> Option<SetKind> {
        match value {
            Value::Atom(atom) | Value::Range(atom, _) | Value::Prefix(atom, _) | Value::Masked(atom, _) => {
                Some(SetKind::of(atom))
            }
            Value::Set(values) => values.iter().find_map(|value| self.kind(value)),
            Value::Named(name) => self.sets?.get(name).copied(),
        }
    }

    /// Reads a line, and checks it against these facts; `None` where it is empty or a comment.
    ///
    /// # Errors
    /// The first fault of the line.
    pub fn parse(&self, line: &str) -> Result<Option<Parsed>, LineError> {
        let mut parser = Parser::new(line, self)?;
        let command = parser.line()?;
        let warnings = parser.warnings;
        Ok(command.map(|command| Parsed { command, warnings }))
    }

    /// Reads a rule, and checks it against these facts.
    ///
    /// # Errors
    /// The first fault of the text.
    pub fn parse_rule(&self, text: &str) -> Result<Rule, LineError> {
        Parser::new(text, self)?.only_rule()
    }

    /// Reads a text of many lines. Where sets are known, those that the text defines are known below.
    ///
    /// # Errors
    /// All wrong lines.
    pub fn parse_file(&self, text: &str) -> Result<ParsedFile, FileErrors> {
        let mut file = ParsedFile::default();
        let mut errors = FileErrors::default();
        let mut defined: Option<BTreeMap<String, SetKind>> = None;
        for (index, line) in text.split('\n').enumerate() {
            let context = Context { sets: defined.as_ref().or(self.sets), ..*self };
            match context.parse(line) {
                Ok(None) => {}
                Ok(Some(Parsed { command, warnings })) => {
                    if let (Some(known), Command::Define(name, values)) = (context.sets, &command) {
                        let kind =
                            values.iter().find_map(|value| context.kind(value)).unwrap_or(SetKind::Number);
                        if defined.is_none() {
                            defined = Some(known.clone());
                        }
                        defined.get_or_insert_default().insert(name.clone(), kind);
                    }
                    file.commands.push((index + 1, command));
                    file.warnings.extend(warnings.into_iter().map(|warning| (index + 1, warning)));
                }
                Err(error) => errors.add(index + 1, error),
            }
        }
        if errors.total == 0 { Ok(file) } else { Err(errors) }
    }
}
