//! Splits a rule's text into words, values and options, each with its place.

use super::{Reading, shown, wrong};

/// The text of one rule, and how far it is read.
pub(super) struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

/// One option: `keyword` or `keyword: value`.
pub(super) struct Written<'t> {
    pub(super) at: usize,
    pub(super) keyword: &'t str,
    /// The place of the value, and the value without space around it.
    pub(super) value: Option<(usize, &'t str)>,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(super) fn skip_space(&mut self) {
        // A backslash at the end of a line continues it.
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            self.at += space;
            let rest = self.rest();
            match rest.strip_prefix('\\') {
                Some(more) if more.trim_start_matches([' ', '\t', '\r']).starts_with('\n') => self.at += 1,
                _ => return,
            }
        }
    }

    /// The next word, up to a space or `(`.
    pub(super) fn word(&mut self, expected: &str) -> Reading<(usize, &'t str)> {
        self.skip_space();
        let at = self.at;
        let len =
            self.rest().find(|char: char| char.is_whitespace() || char == '(').unwrap_or(self.rest().len());
        if len == 0 {
            return wrong(at, format!("expected {expected}, found {}", self.found()));
        }
        self.at += len;
        Ok((at, &self.text[at..at + len]))
    }

    /// The next word, which may be a list in brackets with spaces in it.
    pub(super) fn list(&mut self, expected: &str) -> Reading<(usize, &'t str)> {
        self.skip_space();
        let at = self.at;
        let mut depth = 0usize;
        self.at = self.text.len();
        for (offset, char) in self.text[at..].char_indices() {
            match char {
                '[' => depth += 1,
                ']' if depth == 0 => return wrong(at + offset, "expected `[` before `]`"),
                ']' => depth -= 1,
                '(' => {
                    self.at = at + offset;
                    break;
                }
                _ if char.is_whitespace() && depth == 0 => {
                    self.at = at + offset;
                    break;
                }
                _ => {}
            }
        }
        if self.at == at {
            return wrong(at, format!("expected {expected}, found {}", self.found()));
        }
        if depth > 0 {
            return wrong(at, "this list has no `]`");
        }
        Ok((at, &self.text[at..self.at]))
    }

    fn found(&self) -> String {
        let rest = self.rest();
        match rest.split_whitespace().next() {
            Some(word) => format!("`{}`", shown(word)),
            None => "the end of the rule".into(),
        }
    }

    /// Takes the `(` before the options.
    pub(super) fn open(&mut self) -> Reading<()> {
        self.skip_space();
        if !self.rest().starts_with('(') {
            return wrong(self.at, format!("expected `(` and the options, found {}", self.found()));
        }
        self.at += 1;
        Ok(())
    }

    /// The next option; `None` after the `)`.
    pub(super) fn option(&mut self) -> Reading<Option<Written<'t>>> {
        self.skip_space();
        while self.rest().starts_with(';') {
            self.at += 1;
            self.skip_space();
        }
        let at = self.at;
        if self.rest().starts_with(')') {
            self.at += 1;
            self.skip_space();
            let more = self.rest();
            if !more.is_empty() && !more.starts_with('#') {
                return wrong(
                    self.at,
                    format!("expected the end of the rule behind `)`, found {}", self.found()),
                );
            }
            return Ok(None);
        }
        if self.rest().is_empty() {
            return wrong(at, "expected another option or `)`, found the end of the rule");
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
        let len = self.rest().find(|char| !is_name(char)).unwrap_or(self.rest().len());
        if len == 0 {
            return wrong(at, format!("expected a keyword or `)`, found {}", self.found()));
        }
        self.at += len;
        let keyword = &self.text[at..at + len];
        self.skip_space();
        if let Some(rest) = self.rest().strip_prefix(':') {
            let start = self.text.len() - rest.len();
            let end = self.end_of_value(start, keyword)?;
            self.at = end + 1;
            let value = &self.text[start..end];
            let space = value.len() - value.trim_start().len();
            return Ok(Some(Written { at, keyword, value: Some((start + space, value.trim())) }));
        }
        if !self.rest().starts_with(';') {
            return wrong(self.at, format!("expected `;` or `:` behind `{keyword}`, found {}", self.found()));
        }
        self.at += 1;
        Ok(Some(Written { at, keyword, value: None }))
    }

    /// The place of the `;` behind a value that begins at `start`.
    fn end_of_value(&self, start: usize, keyword: &str) -> Reading<usize> {
        let mut escaped = false;
        let mut quoted = None;
        for (offset, byte) in self.text.as_bytes()[start..].iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = if quoted.is_some() { None } else { Some(start + offset) },
                b';' if quoted.is_some() => {
                    return wrong(start + offset, "a `;` inside quotes: write `\\;`, or `|3b|` in a content");
                }
                b';' => return Ok(start + offset),
                _ => {}
            }
        }
        match quoted {
            Some(at) => wrong(at, "this text has no closing `\"`"),
            None => wrong(start, format!("the value of `{keyword}` has no `;` behind it")),
        }
    }
}
