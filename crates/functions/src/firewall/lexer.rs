//! A line as words, braces, commas and texts in quotes.

use std::ops::Range;

/// The kind of a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// A text in quotes.
    Quoted,
    /// A text whose closing quote is missing.
    Unclosed,
    Open,
    Close,
    Comma,
    /// The end of the line, or the beginning of a remark.
    End,
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

/// The piece that begins at `from`, or behind blanks there.
pub(super) fn token(line: &str, from: usize) -> Token {
    let rest = line.get(from..).unwrap_or_default();
    let start = from + (rest.len() - rest.trim_start().len());
    let rest = line.get(start..).unwrap_or_default();
    let (kind, len) = match rest.chars().next() {
        None | Some('#') => (Kind::End, 0),
        Some('{') => (Kind::Open, 1),
        Some('}') => (Kind::Close, 1),
        Some(',') => (Kind::Comma, 1),
        Some('"') => quoted(rest),
        Some(_) => (Kind::Word, rest.find(is_end_of_word).unwrap_or(rest.len())),
    };
    Token { kind, span: start..start + len }
}

fn is_end_of_word(character: char) -> bool {
    character.is_whitespace() || matches!(character, '{' | '}' | ',' | '"' | '#')
}

/// A text in quotes; a backslash keeps the character behind it from ending it.
fn quoted(rest: &str) -> (Kind, usize) {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return (Kind::Quoted, at + 1),
            _ => {}
        }
    }
    (Kind::Unclosed, rest.len())
}

/// The text between quotes: `\"` and `\\` stand for one character each.
pub(super) fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default();
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

/// A text in quotes, as [`unquoted`] reads it.
pub(super) fn in_quotes(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(if character.is_control() { ' ' } else { character });
    }
    quoted.push('"');
    quoted
}
