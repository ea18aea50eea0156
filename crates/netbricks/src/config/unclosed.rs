//! Finds brackets and quotes in a TOML text that are never closed.
//!
//! The parser notices an open bracket only where the text stops making sense, which may be many lines later.
//! Its message there does not name the cause.

use std::ops::Range;

use crate::diagnostic::Diagnostic;

/// A bracket or quote that must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unclosed {
    /// The opening text: `[`, `[[` of a table's name, `{`, or quotes.
    pub(super) span: Range<usize>,
    /// The text that would close it.
    closing: &'static str,
    /// It must be closed in its own line, so errors in later lines do not follow from it.
    pub(super) one_line: bool,
}

impl Unclosed {
    pub(super) fn diagnostic(&self, text: &str) -> Diagnostic {
        let open = &text[self.span.clone()];
        let within = if self.one_line { ", before the end of the line" } else { "" };
        Diagnostic::error(format!("`{open}` is not closed"))
            .at(self.span.clone(), format!("expected `{}`{within}", self.closing))
    }
}

/// All brackets and quotes that are not closed.
///
/// The list ends at the first one that leaves no sense in the text behind it. A text that the parser accepts
/// has none.
pub(super) fn all(text: &str) -> Vec<Unclosed> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(mut unclosed) = find(&text[from..]) {
        unclosed.span = from + unclosed.span.start..from + unclosed.span.end;
        let next = text[unclosed.span.end..].find('\n').filter(|_| unclosed.one_line);
        let end = unclosed.span.end;
        found.push(unclosed);
        let Some(next) = next else { break };
        from = end + next;
    }
    found
}

/// The first bracket or quote that is not closed.
fn find(text: &str) -> Option<Unclosed> {
    let mut open: Vec<Unclosed> = Vec::new();
    let mut at = 0;
    // Whether a value or a statement may begin here.
    let mut expects = true;
    while let Some(c) = text[at..].chars().next() {
        let line_begins =
            text[..at].trim_end_matches([' ', '\t']).ends_with('\n') || text[..at].trim().is_empty();
        if let Some(outer) = open.last().filter(|_| line_begins && begins_statement(&text[at..], open.last()))
        {
            return Some(outer.clone());
        }
        let rest = &text[at..];
        let mut length = c.len_utf8();
        match c {
            '#' => length = rest.find('\n').unwrap_or(rest.len()),
            '\n' => {
                if let Some(header) = open.iter().find(|open| open.one_line) {
                    return Some(header.clone());
                }
                expects = true;
            }
            '"' | '\'' if expects => match string(rest) {
                Ok(bytes) => {
                    length = bytes;
                    expects = false;
                }
                Err((quotes, closing, one_line)) => {
                    return Some(Unclosed { span: at..at + quotes, closing, one_line });
                }
            },
            '[' | '{' if expects => {
                let header = c == '[' && line_begins && open.is_empty();
                let (bytes, closing) = match (c, header && rest.starts_with("[[")) {
                    (_, true) => (2, "]]"),
                    ('[', _) => (1, "]"),
                    _ => (1, "}"),
                };
                open.push(Unclosed { span: at..at + bytes, closing, one_line: header });
                length = bytes;
            }
            ']' | '}' => {
                match open.pop() {
                    Some(opened) if !rest.starts_with(opened.closing) => return Some(opened),
                    Some(opened) => length = opened.closing.len(),
                    None => {}
                }
                expects = false;
            }
            '=' | ',' | '.' => expects = true,
            ' ' | '\t' | '\r' => {}
            _ => expects = false,
        }
        at += length;
    }
    open.pop()
}

/// The length of the string that begins here; if it is not closed, its quotes.
fn string(rest: &str) -> Result<usize, (usize, &'static str, bool)> {
    let (quotes, escapes, one_line) = match rest {
        _ if rest.starts_with("\"\"\"") => ("\"\"\"", true, false),
        _ if rest.starts_with("'''") => ("'''", false, false),
        _ if rest.starts_with('"') => ("\"", true, true),
        _ => ("'", false, true),
    };
    let unclosed = (quotes.len(), quotes, one_line);
    let mut at = quotes.len();
    loop {
        let next = rest[at..].chars().next().ok_or(unclosed)?;
        if rest[at..].starts_with(quotes) {
            at += quotes.len();
            // Up to two quotes may stand right before the three that close.
            let more = rest[at..].bytes().take_while(|byte| *byte == quotes.as_bytes()[0]).take(2).count();
            return Ok(if one_line { at } else { at + more });
        }
        if next == '\n' && one_line {
            return Err(unclosed);
        }
        at += next.len_utf8();
        if next == '\\' && escapes {
            at +=
                rest[at..].chars().next().filter(|next| *next != '\n' || !one_line).map_or(0, char::len_utf8);
        }
    }
}

/// Whether a line inside of brackets begins a new statement.
///
/// Such a line is a table's header or, inside of a list, a key.
fn begins_statement(line: &str, within: Option<&Unclosed>) -> bool {
    let line = line.lines().next().unwrap_or_default();
    let word = |text: &str| {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        end.unwrap_or(text.len())
    };
    let name = line.trim_start_matches('[');
    let brackets = line.len() - name.len();
    let end = word(name);
    if brackets > 0 {
        let is_value = matches!(&name[..end], "true" | "false" | "inf" | "nan");
        let letters = name.starts_with(|c: char| c.is_ascii_alphabetic());
        return letters && !is_value && name[end..].starts_with([']', '.']);
    }
    let in_list = within.is_some_and(|open| open.closing == "]");
    in_list && end > 0 && name[end..].trim_start().starts_with('=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_bracket_and_quote_is_found_where_it_opens() {
        assert_eq!(opens_at("a = 1\nlist = [1, 2\nb = 3\n"), (13, "["));
        assert_eq!(opens_at("list = [1, 2,\n  3\n\n[port.lan]\n"), (7, "["));
        assert_eq!(opens_at("list = [1, 2"), (7, "["));
        assert_eq!(opens_at("list = [[1, 2], [3\n]\n"), (7, "["));
        assert_eq!(opens_at("table = { a = 1, b = [1]\n[port.lan]\n"), (8, "{"));
        assert_eq!(opens_at("list = [{ a = 1, { b = 2 }]\n"), (8, "{"));
        assert_eq!(opens_at("[port.lan\ndriver = \"pcap\"\n"), (0, "["));
        assert_eq!(opens_at("a = 1\n[[chain]\nfrom = \"lan\"\n"), (6, "[["));
        assert_eq!(opens_at("[[chain\nfrom = \"lan\"\n"), (0, "[["));
        assert_eq!(opens_at("a = \"open\nb = \"closed\"\n"), (4, "\""));
        assert_eq!(opens_at("a = [\"one\", \"two]\n"), (12, "\""));
        assert_eq!(opens_at("a = 'open\nb = 'closed'\n"), (4, "'"));
        assert_eq!(opens_at("a = \"\"\"open\nb = 1\n"), (4, "\"\"\""));
        assert_eq!(opens_at("a = '''open\nb = ''\n"), (4, "'''"));
        assert_eq!(opens_at("a = \"ends in \\\"\n"), (4, "\""));
    }

    fn opens_at(text: &str) -> (usize, &str) {
        let found = find(text).unwrap_or_else(|| panic!("nothing is open in {text}"));
        assert!(toml::de::DeTable::parse(text).is_err(), "{text}");
        (found.span.start, &text[found.span])
    }

    #[test]
    fn lines_after_one_with_an_open_name_or_text_are_looked_at() {
        let text = "a = \"open\n[[chain]\nb = 'x\nlist = [1\n[port\n";
        let opening: Vec<_> = all(text).into_iter().map(|found| &text[found.span]).collect();
        assert_eq!(opening, ["\"", "[[", "'", "["]);
    }

    #[test]
    fn closed_brackets_and_quotes_are_not_found() {
        for text in [
            "",
            "# [ \" {\na = \"[\" # '\n",
            "a = [\n  1, # ]\n  [true],\n  [ 'x' ],\n]\n[b]\n\"q.[\" = '{'\n",
            "[[chain]]\nx = { a = [1], b = \"}\" }\n[ port . lan ]\n",
            "a = \"\"\"\n\"two\" quotes, [ and five\"\"\"\"\"\nb = ''''four''''\n",
            "a = \"\\\\\"\nb = 1979-05-27T07:32:00Z\nc = [[1, 2], [\"a\"]]\n",
            "a = [\n  { protocol = \"udp\", queue = 0 },\n]\r\n\r\n[runtime]\r\n",
        ] {
            assert!(toml::de::DeTable::parse(text).is_ok(), "{text}");
            assert_eq!(find(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_through(text in "[\\[\\]{}\"'=, \n#\\\\aé.]{0,60}") {
            for found in all(&text) {
                prop_assert!(text.get(found.span.clone()).is_some());
                // A text that the parser accepts has nothing open.
                prop_assert!(toml::de::DeTable::parse(&text).is_err(), "{found:?}");
            }
        }
    }
}
