//! The words, texts and signs of a line, one at a time.
//!
//! A word is as long as it can be: `tcp-dport`, `1000-2000`, `2001:db8::1`. The parser knows which field a word is for,
//! and so whether a `-` in it is part of a name or stands between two values.

use super::error::Fault;

/// The longest line, in bytes.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    /// A text in quotes, with them.
    Quoted,
    /// A text whose closing quote is missing.
    Unclosed,
    /// The name of a set, with its `@`.
    Named,
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Not,
    Same,
    Open,
    Close,
    Comma,
    Slash,
    And,
    /// A character that no token begins with.
    Stray,
    End,
}

/// A token, by its bytes in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Whether a word may have this byte.
pub(crate) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'%')
}

/// The token at or behind a place of the line.
pub(crate) fn token(line: &str, from: usize) -> Token {
    let bytes = line.as_bytes();
    let mut start = from;
    while bytes.get(start).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        start += 1;
    }
    let rest = bytes.get(start..).unwrap_or_default();
    let followed = |by: u8| rest.get(1) == Some(&by);
    let (kind, length) = match rest.first() {
        None | Some(b'#') => (Kind::End, 0),
        Some(&byte) if is_word(byte) => (Kind::Word, word_length(rest)),
        Some(b'"') => quoted(rest),
        Some(b'@') => (Kind::Named, 1 + word_length(rest.get(1..).unwrap_or_default())),
        Some(b'=') if followed(b'=') => (Kind::Equal, 2),
        Some(b'=') => (Kind::Same, 1),
        Some(b'!') if followed(b'=') => (Kind::NotEqual, 2),
        Some(b'!') => (Kind::Not, 1),
        Some(b'<') if followed(b'=') => (Kind::AtMost, 2),
        Some(b'<') => (Kind::Less, 1),
        Some(b'>') if followed(b'=') => (Kind::AtLeast, 2),
        Some(b'>') => (Kind::Greater, 1),
        Some(b'{') => (Kind::Open, 1),
        Some(b'}') => (Kind::Close, 1),
        Some(b',') => (Kind::Comma, 1),
        Some(b'/') => (Kind::Slash, 1),
        Some(b'&') => (Kind::And, 1),
        Some(_) => {
            let character = line.get(start..).and_then(|rest| rest.chars().next());
            (Kind::Stray, character.map_or(1, char::len_utf8))
        }
    };
    Token { kind, start, end: start + length }
}

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !is_word(byte)).unwrap_or(bytes.len())
}

/// A text in quotes at the start. A backslash keeps the character behind it from ending the text.
fn quoted(bytes: &[u8]) -> (Kind, usize) {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return (Kind::Quoted, at + 1),
            b'\\' if at + 1 < bytes.len() => at += 2,
            _ => at += 1,
        }
    }
    (Kind::Unclosed, bytes.len())
}

/// The bytes of a text in quotes: `\"`, `\\`, `\n`, `\r`, `\t` and `\x1f` stand for one byte each.
pub(crate) fn unquoted(text: &str) -> Result<Vec<u8>, Fault> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default();
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(same @ (b'"' | b'\\')) => same,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => (high << 4 | low) as u8,
                    _ => return Err(Fault::new("`\\x` without two digits", "write for example `\\x1f`")),
                }
            }
            _ => {
                let hint = r#"write `\"`, `\\`, `\n`, `\r`, `\t` or `\x1f`; a backslash itself is `\\`"#;
                return Err(Fault::new("an unknown escape in the text", hint));
            }
        });
    }
    Ok(bytes)
}
