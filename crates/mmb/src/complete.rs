//! Completion and colours of lines, from the parser of the language.

use std::ops::Range;

use netbricks_core::packet::field::Show;

use crate::field::{FieldId, Kind};
use crate::language::{Context, LineError, Parser, is_word, token};

/// A word that may stand at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The word; it begins with the part of it that stands before the cursor.
    pub text: String,
    /// Its meaning, in a few words; may be empty.
    pub summary: String,
}

/// The part that a piece of a line plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The command: `add`, `list`.
    Command,
    /// A word of a command: `at`, `name`, `before`.
    Keyword,
    /// A field or an option.
    Field,
    /// A comparison, `!`, a brace or a comma.
    Operator,
    /// A value.
    Value,
    /// A target: `mod`, `drop`.
    Target,
    /// The name of a rule, a set or an interface.
    Name,
    /// A text in quotes, or the name of a file.
    Text,
    /// A remark behind `#`.
    Comment,
    /// A piece that is wrong.
    Error,
}

/// The notes of a parser for completion and colours.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) classes: Vec<(Range<usize>, Class)>,
    pub(crate) errors: Vec<LineError>,
}

impl Recording {
    pub(crate) fn add(&mut self, text: String, summary: String) {
        self.candidates.push(Candidate { text, summary });
    }
}

/// The words that may stand at the cursor, a byte of the line, in the order of their kinds.
///
/// Sets, rules and interfaces come from the context. Errors before the cursor hinder as little as can be.
pub fn complete(line: &str, cursor: usize, context: &Context<'_>) -> Vec<Candidate> {
    let cursor = line.floor_char_boundary(cursor);
    let head = line.get(..cursor).unwrap_or_default();
    let bytes = head.as_bytes();
    let mut start = bytes.len();
    while start > 0 && bytes.get(start - 1).is_some_and(|byte| is_word(*byte)) {
        start -= 1;
    }
    if start > 0 && bytes.get(start - 1) == Some(&b'@') {
        start -= 1;
    }
    let (before, part) = head.split_at(start);
    if is_remark(before) {
        return Vec::new();
    }
    let Ok(mut parser) = Parser::recording(before, context) else { return Vec::new() };
    // An error leaves the candidates that were noted before it, which are those at the line's end.
    let _ = parser.line();
    let mut candidates = parser.recording.map(|recording| recording.candidates).unwrap_or_default();
    candidates.retain(|candidate| candidate.text.starts_with(part));
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.text.clone()));
    candidates
}

/// Whether a line ends in a remark.
fn is_remark(line: &str) -> bool {
    let mut at = 0;
    while let Some(token) = line.get(at..).filter(|rest| !rest.is_empty()).map(|_| token(line, at)) {
        if token.start == token.end {
            return token.start < line.len();
        }
        at = token.end;
    }
    false
}

/// The pieces of a line in their order, each with its part. Blanks are left out.
pub fn highlight(line: &str) -> Vec<(Range<usize>, Class)> {
    let context = Context::default();
    let Ok(mut parser) = Parser::recording(line, &context) else {
        return vec![(0..line.len(), Class::Error)];
    };
    let error = parser.line().err();
    let recording = parser.recording.unwrap_or_default();
    let mut pieces: Vec<(Range<usize>, Class)> = recording.classes;
    let mut at = pieces.last().map_or(0, |(range, _)| range.end);
    // Behind an error that ended the parse, pieces are known by their form only.
    loop {
        let token = token(line, at);
        if token.start == token.end {
            if token.start < line.len() {
                pieces.push((token.start..line.len(), Class::Comment));
            }
            break;
        }
        pieces.push((token.start..token.end, by_form(line.get(token.start..token.end).unwrap_or_default())));
        at = token.end;
    }
    for error in recording.errors.into_iter().chain(error) {
        for (range, class) in &mut pieces {
            if range.start < error.span.end && error.span.start < range.end {
                *class = Class::Error;
            }
        }
    }
    pieces
}

fn by_form(text: &str) -> Class {
    match text.as_bytes().first() {
        Some(b'"') => Class::Text,
        Some(b'@') => Class::Name,
        Some(byte) if !is_word(*byte) => Class::Operator,
        _ if crate::language::is_target(text) => Class::Target,
        _ if FieldId::named(text).is_some() => Class::Field,
        _ => Class::Value,
    }
}

/// A field in a few words: its layer, and the values that it has.
pub(crate) fn summary(field: FieldId) -> String {
    let info = field.info();
    let layer = info.layer.name();
    let values = match (info.kind, info.show) {
        (Kind::All, _) => return "every packet".to_owned(),
        (Kind::In, _) => return "the interface of arrival".to_owned(),
        (Kind::Out, _) => return "the interface by which the packet leaves".to_owned(),
        (Kind::Payload, _) => "the bytes behind the header".to_owned(),
        (Kind::ExtensionHeader(number), _) => format!("extension header {number}"),
        (Kind::NumberOption { kind, bits }, _) => format!("option {kind}, {bits} bits"),
        (Kind::BytesOption { kind }, _) => format!("option {kind}, bytes"),
        (Kind::AnyOption, _) => "any option, or one by its kind".to_owned(),
        (_, Show::Ipv4 | Show::Ipv6 | Show::Mac) => "an address".to_owned(),
        (kind, _) if kind.is_flag() => "a flag".to_owned(),
        (kind, _) => format!("{} bits", kind.bits()),
    };
    format!("{layer}: {values}")
}
