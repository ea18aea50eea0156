//! The values of `content` and `pcre`: quoted text with `|hex|` bytes, and `/pattern/flags`.

use super::{Reading, shown, unsupported, wrong};

/// A value in quotes: whether `!` stands before it, the place of the text and the text.
pub(super) fn quoted<'t>(value: &'t str, at: usize, keyword: &str) -> Reading<(bool, usize, &'t str)> {
    let (negated, rest) = match value.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let trimmed = rest.trim_start();
    let place = at + (value.len() - trimmed.len());
    let inner = trimmed.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match inner {
        Some(text) => Ok((negated, place + 1, text)),
        None => wrong(
            place,
            format!("expected text in quotes as the value of `{keyword}`, found `{}`", shown(trimmed)),
        ),
    }
}

/// The bytes of a content: text, escapes `\"`, `\\`, `\;`, `\:`, and hexadecimal bytes between bars.
pub(super) fn bytes(text: &str, at: usize) -> Reading<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.char_indices();
    while let Some((offset, char)) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\' | ';' | ':' | '|'))) => bytes.push(escaped as u8),
                _ => {
                    return wrong(
                        at + offset,
                        "expected `\\\"`, `\\\\`, `\\;` or `\\:` behind `\\`; other bytes as `|0a|`",
                    );
                }
            },
            '|' => {
                let Some(len) = text[offset + 1..].find('|') else {
                    return wrong(at + offset, "these hexadecimal bytes have no second `|`");
                };
                hex(&text[offset + 1..offset + 1 + len], at + offset + 1, &mut bytes)?;
                while chars.next().is_some_and(|(next, _)| next < offset + 1 + len) {}
            }
            _ => bytes.extend(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if bytes.is_empty() {
        return wrong(at, "a content without bytes matches everywhere: give it one at least");
    }
    Ok(bytes)
}

/// Bytes as two hexadecimal digits each, with or without spaces between them.
fn hex(text: &str, at: usize, to: &mut Vec<u8>) -> Reading<()> {
    let mut high = None;
    for (offset, char) in text.char_indices() {
        match (char.to_digit(16), high) {
            (Some(digit), None) => high = Some(digit),
            (Some(digit), Some(before)) => {
                to.push((before << 4 | digit) as u8);
                high = None;
            }
            (None, None) if char.is_whitespace() => {}
            _ => {
                return wrong(
                    at + offset,
                    format!("expected two hexadecimal digits, found `{}`", char.escape_debug()),
                );
            }
        }
    }
    if high.is_some() {
        return wrong(at + text.len(), "expected a second hexadecimal digit before `|`");
    }
    Ok(())
}

/// A pattern with its flags: `/pattern/flags`.
pub(super) struct Slashed<'t> {
    pub(super) at: usize,
    pub(super) pattern: &'t str,
    pub(super) flags: PcreFlags,
}

/// The flags of a `pcre`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PcreFlags {
    pub(in super::super) ignore_case: bool,
    pub(in super::super) dot_all: bool,
    pub(in super::super) multi_line: bool,
    pub(in super::super) extended: bool,
    pub(in super::super) anchored: bool,
    /// `$` matches only at the very end, and not before a last line feed.
    pub(in super::super) dollar_end: bool,
    /// Behind the match of the part before it.
    pub(in super::super) relative: bool,
}

pub(super) fn slashed(text: &str, at: usize) -> Reading<Slashed<'_>> {
    let Some(rest) = text.strip_prefix('/') else {
        return wrong(at, format!("expected `/pattern/flags`, found `{}`", shown(text)));
    };
    let Some(end) = rest.rfind('/') else { return wrong(at, "this pattern has no second `/`") };
    let mut flags = PcreFlags::default();
    for (offset, flag) in rest[end + 1..].char_indices() {
        let place = at + 1 + end + 1 + offset;
        match flag {
            'i' => flags.ignore_case = true,
            's' => flags.dot_all = true,
            'm' => flags.multi_line = true,
            'x' => flags.extended = true,
            'A' => flags.anchored = true,
            'E' => flags.dollar_end = true,
            'R' => flags.relative = true,
            // Greediness changes no match's existence, and raw bytes are all that there is.
            'G' | 'B' | 'O' => {}
            'U' | 'I' | 'P' | 'Q' | 'H' | 'D' | 'M' | 'C' | 'S' | 'Y' | 'V' | 'W' | 'Z' | 'K' => {
                return unsupported(
                    place,
                    format!("the flag `{flag}` of `pcre` means a part of an HTTP message"),
                );
            }
            _ => return wrong(place, format!("`pcre` has no flag `{}`", flag.escape_debug())),
        }
    }
    Ok(Slashed { at: at + 1, pattern: &rest[..end], flags })
}
