//! The naive search that all tests compare with: every placement of every part is tried, one after the other.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// A part of a rule, as the generator made it.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Content {
        bytes: Vec<u8>,
        negated: bool,
        nocase: bool,
        place: Place,
    },
    Pcre {
        pattern: String,
        negated: bool,
        relative: bool,
    },
    /// Two bytes, the most significant one first, are above a value.
    Above {
        value: u16,
        offset: i64,
        relative: bool,
        negated: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Absolute { offset: usize, depth: Option<usize> },
    Relative { distance: i64, within: Option<usize> },
}

impl Part {
    /// The part as an option of a rule.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Content { bytes, negated, nocase, place } => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
                let mut text = format!("content:{}\"|{}|\"; ", if *negated { "!" } else { "" }, hex.trim());
                text += if *nocase { "nocase; " } else { "" };
                match place {
                    Place::Absolute { offset, depth } => {
                        text += &if *offset > 0 { format!("offset:{offset}; ") } else { String::new() };
                        text += &depth.map_or(String::new(), |depth| format!("depth:{depth}; "));
                    }
                    Place::Relative { distance, within } => {
                        text += &format!("distance:{distance}; ");
                        text += &within.map_or(String::new(), |within| format!("within:{within}; "));
                    }
                }
                text
            }
            Self::Pcre { pattern, negated, relative } => {
                let (not, flags) = (if *negated { "!" } else { "" }, if *relative { "R" } else { "" });
                format!("pcre:{not}\"/{pattern}/{flags}\"; ")
            }
            Self::Above { value, offset, relative, negated } => {
                let (not, relative) =
                    (if *negated { "!" } else { "" }, if *relative { ",relative" } else { "" });
                format!("byte_test:2,{not}>,{value},{offset}{relative}; ")
            }
        }
    }
}

/// Some bytes, and the position that was known before them.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) bytes: &'a [u8],
    /// Matches that were complete here do not count; -1 for a packet.
    pub(super) known: i64,
    pub(super) ended: bool,
}

/// Whether the parts stand in the bytes, and are complete behind `known`.
pub(super) fn matches(parts: &[Part], seen: Seen<'_>) -> bool {
    search(parts, seen, 0, 0)
}

/// Tries all placements of the parts behind `cursor`, with earlier parts complete at `done`.
fn search(parts: &[Part], seen: Seen<'_>, cursor: i64, done: i64) -> bool {
    let len = seen.bytes.len() as i64;
    let limit = len + i64::from(seen.ended);
    let Some((part, rest)) = parts.split_first() else { return done > seen.known && done <= limit };
    match part {
        Part::Content { bytes, negated, nocase, place } => {
            let (from, to) = match *place {
                Place::Absolute { offset, depth } => {
                    (offset as i64, depth.map(|depth| (offset + depth) as i64))
                }
                Place::Relative { distance, within } => {
                    (cursor + distance, within.map(|within| cursor + distance + within as i64))
                }
            };
            let stands = |start: i64| {
                let end = start + bytes.len() as i64;
                let fits = start >= from.max(0) && end <= to.unwrap_or(len).min(len);
                let there = fits.then(|| &seen.bytes[start as usize..end as usize]);
                there.is_some_and(
                    |there| if *nocase { there.eq_ignore_ascii_case(bytes) } else { there == bytes },
                )
            };
            if *negated {
                if (0..=len).any(stands) {
                    return false;
                }
                let decided = to.unwrap_or(i64::MAX);
                let decided = if decided <= len {
                    decided
                } else if seen.ended {
                    decided.min(limit)
                } else {
                    return false;
                };
                return search(rest, seen, cursor, done.max(decided.max(0)));
            }
            let ends: Vec<i64> =
                (0..=len).filter(|start| stands(*start)).map(|start| start + bytes.len() as i64).collect();
            ends.into_iter().any(|end| search(rest, seen, end, done.max(end)))
        }
        Part::Pcre { pattern, negated, relative } => {
            let from = if *relative { cursor.clamp(0, len) } else { 0 };
            if *negated {
                return spans(pattern, &seen.bytes[from as usize..]).is_empty()
                    && search(rest, seen, cursor, done);
            }
            spans(pattern, &seen.bytes[from as usize..]).into_iter().any(|(_, end)| {
                let end = from + end as i64;
                search(rest, seen, end, done.max(end))
            })
        }
        Part::Above { value, offset, relative, negated } => {
            let from = if *relative { cursor + offset } else { *offset };
            if from < 0 || from + 2 > len {
                return false;
            }
            let from = from as usize;
            let number = u16::from_be_bytes([seen.bytes[from], seen.bytes[from + 1]]);
            (number > *value) != *negated && search(rest, seen, cursor, done.max(from as i64 + 2))
        }
    }
}

/// All spans of bytes that an expression matches, by trying.
fn spans(pattern: &str, bytes: &[u8]) -> Vec<(usize, usize)> {
    let hir = ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).unwrap();
    (0..=bytes.len())
        .flat_map(|start| ends(&hir, bytes, start).into_iter().map(move |end| (start, end)))
        .filter(|(start, end)| end > start)
        .collect()
}

/// All places where a match that begins at `at` may end.
fn ends(hir: &Hir, bytes: &[u8], at: usize) -> Vec<usize> {
    let mut all = match hir.kind() {
        HirKind::Empty => vec![at],
        HirKind::Literal(literal) => {
            let stands = bytes[at..].starts_with(&literal.0);
            stands.then_some(at + literal.0.len()).into_iter().collect()
        }
        HirKind::Class(Class::Bytes(class)) => {
            let is = bytes
                .get(at)
                .is_some_and(|byte| class.iter().any(|range| (range.start()..=range.end()).contains(byte)));
            is.then_some(at + 1).into_iter().collect()
        }
        HirKind::Class(Class::Unicode(class)) => {
            let letter = bytes.get(at).map(|byte| char::from(*byte)).filter(char::is_ascii);
            let is = letter.is_some_and(|letter| {
                class.iter().any(|range| (range.start()..=range.end()).contains(&letter))
            });
            is.then_some(at + 1).into_iter().collect()
        }
        HirKind::Look(Look::Start) => (at == 0).then_some(at).into_iter().collect(),
        HirKind::Look(look) => panic!("{look:?} is not used"),
        HirKind::Repetition(repetition) => {
            let (mut reached, mut now, mut times) = (Vec::new(), vec![at], 0);
            loop {
                if times >= repetition.min {
                    reached.extend(&now);
                }
                if now.is_empty() || repetition.max.is_some_and(|max| times == max) || times > 200 {
                    break;
                }
                now = now.iter().flat_map(|at| ends(&repetition.sub, bytes, *at)).collect();
                now.sort_unstable();
                now.dedup();
                times += 1;
            }
            reached
        }
        HirKind::Capture(capture) => ends(&capture.sub, bytes, at),
        HirKind::Concat(parts) => parts
            .iter()
            .fold(vec![at], |now, part| now.into_iter().flat_map(|at| ends(part, bytes, at)).collect()),
        HirKind::Alternation(parts) => parts.iter().flat_map(|part| ends(part, bytes, at)).collect(),
    };
    all.sort_unstable();
    all.dedup();
    all
}
