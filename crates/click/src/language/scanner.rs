//! The words of the language: a text becomes tokens, with the line that each stands on.

use std::rc::Rc;

use super::errors::Errors;
use super::text::{is_identifier_byte, is_space, slice, unquote};

/// The shape of a token; [`Symbol`](Kind::Symbol) covers all that consist of one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Identifier,
    Variable,
    Arrow,
    DoubleArrow,
    DoubleColon,
    DoubleBar,
    Dots,
    ElementClass,
    Require,
    Provide,
    Define,
    Symbol(char),
}

impl Kind {
    /// The kind as messages name it.
    fn describe(self) -> String {
        match self {
            Self::End => "end of file".to_owned(),
            Self::Identifier => "identifier".to_owned(),
            Self::Variable => "variable".to_owned(),
            Self::Arrow => "'->'".to_owned(),
            Self::DoubleArrow => "'=>'".to_owned(),
            Self::DoubleColon => "'::'".to_owned(),
            Self::DoubleBar => "'||'".to_owned(),
            Self::Dots => "...".to_owned(),
            Self::ElementClass => "elementclass".to_owned(),
            Self::Require => "'require'".to_owned(),
            Self::Provide => "'provide'".to_owned(),
            Self::Define => "'define'".to_owned(),
            Self::Symbol(symbol) => format!("'{symbol}'"),
        }
    }

    pub(super) fn is_arrow(self) -> bool {
        matches!(self, Self::Arrow | Self::DoubleArrow)
    }
}

/// A token: its kind, and the text of identifiers and variables (without the `$`).
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl Token {
    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind == kind
    }
}

/// A place in a file.
#[derive(Clone)]
struct Place {
    file: Rc<str>,
    line: u32,
    position: usize,
}

/// A text on its way to tokens.
pub(super) struct Scanner {
    text: Rc<str>,
    first_file: Rc<str>,
    place: Place,
    returned: Vec<Token>,
    /// The landmark of the latest place that was asked for, since many elements share a line.
    landmark: (Rc<str>, u32, Rc<str>),
    /// The latest line that began outside comments and quotes, where elements have their landmarks from it.
    outside: Option<(Rc<str>, u32)>,
}

impl Scanner {
    pub(super) fn new(text: &str, file: &str) -> Self {
        let file: Rc<str> = if file.is_empty() { "config".into() } else { file.into() };
        let landmark = (Rc::clone(&file), 0, Rc::clone(&file));
        let place = Place { file: Rc::clone(&file), line: 1, position: 0 };
        Self { text: text.into(), first_file: file, place, returned: Vec::new(), landmark, outside: None }
    }

    /// Counts lines for the landmarks of elements as `click-flatten` does: not those that begin in comments or quotes.
    ///
    /// So the end of a comment's line does not count until the next line ends.
    pub(super) fn count_outside(&mut self) {
        self.outside = Some((Rc::clone(&self.place.file), self.place.line));
    }

    /// Whether [`count_outside`](Self::count_outside) was called.
    pub(super) fn counts_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// The landmark of an element whose name is the latest token.
    pub(super) fn element_landmark(&mut self) -> Rc<str> {
        let Some((file, line)) = self.outside.clone() else { return self.landmark() };
        let here =
            (std::mem::replace(&mut self.place.file, file), std::mem::replace(&mut self.place.line, line));
        let landmark = self.landmark();
        (self.place.file, self.place.line) = here;
        landmark
    }

    /// The present place as `file:line`.
    pub(super) fn landmark(&mut self) -> Rc<str> {
        let Place { file, line, .. } = &self.place;
        if self.landmark.1 != *line || !Rc::ptr_eq(&self.landmark.0, file) {
            let text: Rc<str> = if *line == 0 {
                Rc::clone(file)
            } else if file.ends_with(|c: char| c == ':' || c.is_ascii_whitespace()) {
                format!("{file}{line}").into()
            } else {
                format!("{file}:{line}").into()
            };
            self.landmark = (Rc::clone(file), *line, text);
        }
        Rc::clone(&self.landmark.2)
    }

    /// Reports an error at the present place.
    pub(super) fn error(&mut self, errors: &Errors, message: &str) {
        let landmark = self.landmark();
        errors.error_at(&landmark, message);
    }

    /// Leaves out the rest of the text, which makes no sense.
    pub(super) fn give_up(&mut self) {
        self.returned.clear();
        self.place.position = self.text.len();
    }

    /// Puts a token back; the line stays where it is.
    pub(super) fn put_back(&mut self, token: Token) {
        self.returned.push(token);
    }

    pub(super) fn next(&mut self, errors: &Errors) -> Token {
        self.returned.pop().unwrap_or_else(|| self.scan(errors))
    }

    /// Takes the next token if it is of the kind.
    pub(super) fn accept(&mut self, kind: Kind, errors: &Errors) -> bool {
        if let Some(token) = self.returned.last() {
            let same = token.is(kind);
            if same {
                self.returned.pop();
            }
            return same;
        }
        let before = self.place.clone();
        let same = self.scan(errors).is(kind);
        if !same {
            self.place = before;
        }
        same
    }

    /// Takes the next token if it is of the kind; anything else is an error.
    pub(super) fn expect(&mut self, kind: Kind, errors: &Errors) -> bool {
        let found = self.accept(kind, errors);
        if !found {
            self.error(errors, &format!("expected {}", kind.describe()));
        }
        found
    }

    fn byte(&self, position: usize) -> Option<u8> {
        self.text.as_bytes().get(position).copied()
    }

    fn pair(&self, position: usize, pair: &[u8; 2]) -> bool {
        self.text.as_bytes().get(position..position + 2) == Some(pair)
    }

    /// Steps over one byte, or over a line end of two, and counts the line.
    fn step(&mut self, position: usize) -> usize {
        match self.byte(position) {
            Some(b'\n') => self.place.line = self.place.line.wrapping_add(1),
            Some(b'\r') => {
                self.place.line = self.place.line.wrapping_add(1);
                return position + 1 + usize::from(self.byte(position + 1) == Some(b'\n'));
            }
            _ => {}
        }
        position + 1
    }

    /// [`step`](Self::step) outside comments and quotes.
    fn step_outside(&mut self, position: usize) -> usize {
        let next = self.step(position);
        if self.outside.is_some() && matches!(self.byte(position), Some(b'\n' | b'\r')) {
            self.count_outside();
        }
        next
    }

    fn skip_line(&mut self, mut position: usize) -> usize {
        while let Some(byte) = self.byte(position) {
            if byte == b'\n' || byte == b'\r' {
                return self.step(position);
            }
            position += 1;
        }
        position
    }

    fn skip_comment(&mut self, begin: usize) -> usize {
        if self.byte(begin + 1) == Some(b'/') {
            return self.skip_line(begin + 2);
        }
        let mut position = begin + 2;
        while position < self.text.len() {
            if self.pair(position, b"*/") {
                return position + 2;
            }
            position = self.step(position);
        }
        position
    }

    fn at_comment(&self, position: usize) -> bool {
        self.pair(position, b"//") || self.pair(position, b"/*")
    }

    fn scan(&mut self, errors: &Errors) -> Token {
        let begin = self.skip_blank(errors);
        let Some(byte) = self.byte(begin) else {
            self.place.position = begin;
            return Token { kind: Kind::End, text: String::new() };
        };
        if is_identifier_byte(byte) {
            return self.word(begin);
        }
        if byte == b'$' {
            let rest = &self.text.as_bytes()[begin + 1..];
            let length = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            let end = begin + 1 + length.unwrap_or(rest.len());
            return self.token(Kind::Variable, begin + 1, end);
        }
        for (pair, kind) in [
            (b"->", Kind::Arrow),
            (b"=>", Kind::DoubleArrow),
            (b"::", Kind::DoubleColon),
            (b"||", Kind::DoubleBar),
        ] {
            if self.pair(begin, pair) {
                return self.token(kind, begin, begin + 2);
            }
        }
        if self.text.as_bytes()[begin..].starts_with(b"...") {
            return self.token(Kind::Dots, begin, begin + 3);
        }
        let symbol = self.text.get(begin..).and_then(|rest| rest.chars().next()).unwrap_or('?');
        self.token(Kind::Symbol(symbol), begin, begin + symbol.len_utf8())
    }

    fn skip_blank(&mut self, errors: &Errors) -> usize {
        let mut position = self.place.position;
        while let Some(byte) = self.byte(position) {
            if is_space(byte) {
                position = self.step_outside(position);
            } else if self.at_comment(position) {
                position = self.skip_comment(position);
            } else if byte == b'#' && self.starts_line(position) {
                position = self.line_directive(position, errors);
            } else {
                break;
            }
        }
        position
    }

    fn starts_line(&self, position: usize) -> bool {
        position == 0 || matches!(self.byte(position - 1), Some(b'\n' | b'\r'))
    }

    fn word(&mut self, begin: usize) -> Token {
        let bytes = self.text.as_bytes();
        let fits = |at: usize| bytes.get(at).is_some_and(|byte| is_identifier_byte(*byte));
        let mut end = begin + 1;
        while fits(end) || (bytes.get(end) == Some(&b'/') && fits(end + 1)) {
            end += 1;
        }
        let kind = match &bytes[begin..end] {
            b"elementclass" => Kind::ElementClass,
            b"require" => Kind::Require,
            b"provide" => Kind::Provide,
            b"define" => Kind::Define,
            _ => Kind::Identifier,
        };
        self.token(kind, begin, end)
    }

    fn token(&mut self, kind: Kind, begin: usize, end: usize) -> Token {
        self.place.position = end;
        Token { kind, text: slice(&self.text, begin, end) }
    }

    /// Reads `# 100 "file"` or `#line 100 "file"`; gives the position of the line's end.
    fn line_directive(&mut self, begin: usize, errors: &Errors) -> usize {
        let text = Rc::clone(&self.text);
        let bytes = text.as_bytes();
        let blanks = |mut at: usize| {
            while matches!(bytes.get(at), Some(b' ' | b'\t')) {
                at += 1;
            }
            at
        };
        let mut position = blanks(begin + 1);
        if bytes[position..].starts_with(b"line") && matches!(bytes.get(position + 4), Some(b' ' | b'\t')) {
            position = blanks(position + 5);
        }
        if !bytes.get(position).is_some_and(u8::is_ascii_digit) {
            self.error(errors, "unknown preprocessor directive");
            return self.skip_line(position);
        }
        let mut line = 0_u32;
        while let Some(digit) = bytes.get(position).filter(|byte| byte.is_ascii_digit()) {
            line = line.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            position += 1;
        }
        // The end of this line counts as one more.
        self.place.line = line.wrapping_sub(1);
        position = blanks(position);
        if bytes.get(position) == Some(&b'"') {
            let open = position;
            position += 1;
            while let Some(&byte) = bytes.get(position).filter(|byte| !b"\"\n\r".contains(byte)) {
                let escaped =
                    byte == b'\\' && bytes.get(position + 1).is_some_and(|next| !b"\n\r".contains(next));
                position += 1 + usize::from(escaped);
            }
            let name = unquote(&(slice(&text, open, position.min(bytes.len())) + "\""));
            self.place.file = match String::from_utf8_lossy(&name).as_ref() {
                "" => Rc::clone(&self.first_file),
                name if *name == *self.place.file => Rc::clone(&self.place.file),
                name => name.into(),
            };
        }
        while bytes.get(position).is_some_and(|byte| !b"\n\r".contains(byte)) {
            position += 1;
        }
        let pair = bytes.get(position..position + 2) == Some(b"\r\n");
        position + usize::from(pair)
    }

    /// Takes a configuration up to its closing parenthesis, which stays.
    ///
    /// The opening one must be the last token that was taken.
    pub(super) fn configuration(&mut self, errors: &Errors) -> String {
        let mut out = String::new();
        let mut position = self.place.position;
        let (mut copied, mut open) = (position, 1_usize);
        while let Some(byte) = self.byte(position) {
            match byte {
                b'(' => open += 1,
                b')' if open == 1 => break,
                b')' => open -= 1,
                b'#' if position > 0 && self.starts_line(position) => {
                    out.push_str(&slice(&self.text, copied, position));
                    position = self.line_directive(position, errors);
                    copied = position;
                    continue;
                }
                b'/' if self.at_comment(position) => {
                    position = self.skip_comment(position);
                    continue;
                }
                b'\'' | b'"' => {
                    position = self.skip_quote(position + 1, byte);
                    continue;
                }
                b'\\' if self.byte(position + 1) == Some(b'<') => {
                    position = self.skip_data(position + 2);
                    continue;
                }
                _ => {}
            }
            position = self.step_outside(position);
        }
        self.place.position = position;
        out.push_str(&slice(&self.text, copied, position));
        out
    }

    fn skip_quote(&mut self, mut position: usize, quote: u8) -> usize {
        while let Some(byte) = self.byte(position) {
            if byte == quote {
                return position + 1;
            }
            if byte == b'\\' && quote == b'"' {
                if self.byte(position + 1) == Some(b'<') {
                    position = self.skip_data(position + 2);
                    continue;
                }
                position += 1;
                if self.byte(position).is_some() {
                    position += 1;
                }
                continue;
            }
            position = self.step(position);
        }
        self.text.len()
    }

    fn skip_data(&mut self, mut position: usize) -> usize {
        while let Some(byte) = self.byte(position) {
            if byte == b'>' {
                return position + 1;
            }
            position =
                if self.at_comment(position) { self.skip_comment(position) } else { self.step(position) };
        }
        self.text.len()
    }
}
