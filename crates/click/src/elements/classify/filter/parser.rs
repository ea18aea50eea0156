//! The grammar of filters: conditions with and, or, not, choices and parentheses.

use std::net::Ipv4Addr;

use crate::arguments::Argument;
use crate::language::errors::Errors;
use crate::router::At;
use crate::value::{Ether, Prefix, integer};

use super::super::program::expression::Expression;
use super::primitive::{Data, Header, Kind, Mask, Primitive, Relation, Side, Tell, bracket_field};
use super::words::{Meaning, look_up};

/// How deep parentheses and choices may lie in each other.
const DEPTH: u32 = 256;

/// Reads the words of a condition.
pub(crate) struct Parser<'a> {
    words: &'a [String],
    at: At<'a>,
    tell: Prefixed<'a>,
    position: usize,
    previous: Primitive,
    depth: u32,
}

/// Messages behind a text that says which pattern they are of.
struct Prefixed<'a> {
    errors: &'a Errors,
    prefix: &'a str,
}

impl Tell for Prefixed<'_> {
    fn error(&self, message: &str) {
        self.errors.error(&format!("{}{message}", self.prefix));
    }
    fn warning(&self, message: &str) {
        self.errors.message(&format!("{}warning: {message}", self.prefix));
    }
}

impl<'a> Parser<'a> {
    pub(crate) fn new(words: &'a [String], at: At<'a>, errors: &'a Errors, prefix: &'a str) -> Self {
        let tell = Prefixed { errors, prefix };
        Self { words, at, tell, position: 0, previous: Primitive::NONE, depth: 0 }
    }

    /// Reads all words as one condition. `None` where it asks for nothing, or after errors were told.
    pub(crate) fn condition(&mut self) -> Option<Expression> {
        let condition = self.choice();
        if let Some(word) = self.word() {
            self.tell.error(&format!("garbage after expression at '{word}'"));
        }
        condition
    }

    fn word(&self) -> Option<&'a str> {
        self.words.get(self.position).map(String::as_str)
    }
    /// The word here, unless it is the last.
    fn word_before_last(&self) -> &'a str {
        if self.position + 1 < self.words.len() { self.word().unwrap_or("") } else { "" }
    }
    fn takes(&mut self, accepted: &[&str]) -> bool {
        let found = self.word().is_some_and(|word| accepted.contains(&word));
        self.position += usize::from(found);
        found
    }

    fn choice(&mut self) -> Option<Expression> {
        if self.depth >= DEPTH {
            self.tell.error("expression is nested too deeply");
            self.position = self.words.len();
            return None;
        }
        self.depth += 1;
        let mut parts = vec![self.alternatives()];
        while self.takes(&["?"]) {
            let before = self.position;
            parts.push(self.choice());
            if self.position == before || !self.takes(&[":"]) {
                self.tell.error("missing ':' in ternary expression");
                break;
            }
            parts.push(self.alternatives());
        }
        self.depth -= 1;
        combined(parts, Expression::choice)
    }

    fn alternatives(&mut self) -> Option<Expression> {
        let mut parts = vec![self.term()];
        while self.takes(&["or", "||"]) {
            parts.push(self.term());
        }
        combined(parts, Expression::Any)
    }

    fn term(&mut self) -> Option<Expression> {
        let mut parts = Vec::new();
        let mut wanted = true;
        loop {
            let before = self.position;
            parts.push(self.factor());
            if self.position == before {
                if wanted {
                    self.tell.error("missing expression");
                }
                return combined(parts, Expression::All);
            }
            wanted = self.takes(&["and", "&&"]);
        }
    }

    fn factor(&mut self) -> Option<Expression> {
        let mut negated = false;
        let mut last = None;
        while let Some(word @ ("not" | "!")) = self.word() {
            self.position += 1;
            negated = !negated;
            last = Some(word);
        }
        let before = self.position;
        let factor = if self.takes(&["("]) {
            let inside = self.position;
            let factor = self.choice();
            let empty = self.position == inside;
            if empty {
                self.tell.error("missing expression after '('");
            }
            if !self.takes(&[")"]) && !empty {
                self.tell.error("missing ')'");
            }
            if negated { factor.map(Expression::not) } else { factor }
        } else {
            self.test(negated)
        };
        if let Some(word) = last.filter(|_| self.position == before) {
            self.tell.error(&format!("missing expression after '{word}'"));
        }
        factor
    }

    /// Reads a primitive, or `true` or `false`.
    fn test(&mut self, mut negated: bool) -> Option<Expression> {
        let first = self.position;
        match self.word()? {
            ")" | "||" | "or" | "?" | ":" => return None,
            word @ ("true" | "false") => {
                self.position += 1;
                return Some(Expression::constant((word == "true") != negated));
            }
            _ => (),
        }
        let mut primitive = Primitive::NONE;
        let mut header = self.qualifiers(&mut primitive, &mut negated);
        if self.position != first {
            self.previous = Primitive::NONE;
        }
        if self.previous.data == Data::Of(Kind::Ether) {
            header = Some(Header::Ether);
        }
        if self.word_before_last() == "[" && self.position > first && primitive.kind.is_none() {
            self.brackets(&mut primitive);
        }
        let mask = self.mask(header);
        self.relation(&mut primitive);
        let near = self.data(&mut primitive, header);
        if self.position == first {
            self.tell.error(&format!("empty term near '{near}'"));
            return None;
        }
        primitive.complete(&self.previous, header, mask, &self.tell).ok()?;
        self.previous = primitive;
        let condition = primitive.expression();
        if negated { condition.map(Expression::not) } else { condition }
    }

    /// Reads words that say what is tested.
    fn qualifiers(&mut self, primitive: &mut Primitive, negated: &mut bool) -> Option<Header> {
        let mut header = None;
        while let Some(word) = self.word() {
            match look_up(word, None, None, self.at) {
                Meaning::Kind(kind) => {
                    primitive.set_kind(kind, &self.tell);
                    if let Kind::Field(field) = kind
                        && field.transport != 0
                    {
                        primitive.set_transport(field.transport, &self.tell);
                    }
                }
                Meaning::Value(Kind::Protocol, number) => primitive.set_transport(number, &self.tell),
                Meaning::Value(..) | Meaning::Wrong(_) => break,
                Meaning::None => match word {
                    "src" => {
                        let side = self.source_side();
                        primitive.set_side(side, &self.tell);
                    }
                    "dst" | "dest" => primitive.set_side(Side::Destination, &self.tell),
                    "ip" if header.is_none() => header = Some(Header::Ip),
                    "ether" if header.is_none() => header = Some(Header::Ether),
                    "not" | "!" => *negated = !*negated,
                    _ => break,
                },
            }
            self.position += 1;
        }
        header
    }

    /// `src`, `src and dst` or `src or dst`; the position stays at the last of these words.
    fn source_side(&mut self) -> Side {
        let second = self.words.get(self.position + 1).map(String::as_str);
        let side = match self.words.get(self.position + 2).map(String::as_str) {
            Some("dst" | "dest") => match second {
                Some("and" | "&&") => Side::Both,
                Some("or" | "||") => Side::Either,
                _ => return Side::Source,
            },
            _ => return Side::Source,
        };
        self.position += 2;
        side
    }

    /// Reads `[POS]`, `[POS:LEN]` or `[FIRST,LAST]`.
    fn brackets(&mut self, primitive: &mut Primitive) {
        self.position += 1;
        let rest = &self.words[self.position..];
        let Some(length) = rest.iter().position(|word| word == "]") else {
            self.tell.error("missing ']'");
            return;
        };
        self.position += length + 1;
        let text: String = rest[..length].concat();
        let number = |text: &str| integer(text).and_then(|number| i32::try_from(number).ok());
        let inner = |sign: char| text.split_once(sign).filter(|(_, behind)| !behind.is_empty());
        let parsed = if let Some((first, length)) = inner(':') {
            number(first).zip(number(length))
        } else if let Some((first, last)) = inner(',') {
            number(first)
                .zip(number(last))
                .map(|(first, last)| (first, last.saturating_sub(first).saturating_add(1)))
        } else {
            number(&text).map(|first| (first, 1))
        };
        let Some((first, length)) = parsed else {
            self.tell.error("syntax error after '[', expected '[POS]' or '[POS:LEN]'");
            return;
        };
        if !(1..=4).contains(&length) {
            self.tell.error("LEN in '[POS:LEN]' out of range, should be between 1 and 4");
            return;
        }
        match u16::try_from(first) {
            Ok(byte) if byte < 8192 && i32::from(byte % 4) + length <= 4 => {
                let field = bracket_field(primitive.transport, byte, length as u32);
                primitive.set_kind(Kind::Field(field), &self.tell);
            }
            _ => self.tell.error(&format!("field [{first}:{length}] does not fit in a single word")),
        }
    }

    /// Reads `& MASK`.
    fn mask(&mut self, header: Option<Header>) -> Mask {
        if self.word_before_last() != "&" {
            return Mask::None;
        }
        let word = &self.words[self.position + 1];
        let mask = if let Some(number) = integer(word).and_then(|number| u32::try_from(number).ok()) {
            Mask::Number(number)
        } else if let Some(address) = self.address(word).filter(|_| header != Some(Header::Ether)) {
            Mask::Address(address)
        } else if let Some(address) = self.ether(word).filter(|_| header != Some(Header::Ip)) {
            Mask::Ether(address)
        } else {
            return Mask::None;
        };
        self.position += 2;
        if matches!(mask, Mask::Number(0) | Mask::Address(0)) {
            self.tell.error("zero mask ignored");
            return Mask::None;
        }
        mask
    }

    /// Reads a sign that compares.
    fn relation(&mut self, primitive: &mut Primitive) {
        (primitive.relation, primitive.negated) = match self.word_before_last() {
            "=" | "==" => (Relation::Equal, false),
            "!=" => (Relation::Equal, true),
            ">" => (Relation::Above, false),
            "<" => (Relation::Below, false),
            ">=" => (Relation::Below, true),
            "<=" => (Relation::Above, true),
            _ => return,
        };
        self.position += 1;
    }

    /// Reads the value. The answer is the word near which a fault is.
    fn data(&mut self, primitive: &mut Primitive, header: Option<Header>) -> &'a str {
        let Some(word) = self.word() else { return "" };
        self.position += 1;
        match look_up(word, primitive.kind, primitive.transport, self.at) {
            Meaning::Wrong(message) => {
                self.tell.error(&message);
                primitive.wrong = true;
                return word;
            }
            Meaning::Value(kind, value) => {
                primitive.data = Data::Of(kind);
                primitive.value = value as u32;
                return word;
            }
            Meaning::None | Meaning::Kind(_) => (),
        }
        if let Some(number) = integer(word).and_then(|number| i32::try_from(number).ok()) {
            primitive.data = Data::Number;
            primitive.value = number as u32;
            return word;
        }
        if header != Some(Header::Ether) && self.address_or_net(word, primitive) {
            return word;
        }
        if let Some(address) = self.ether(word).filter(|_| header != Some(Header::Ip)) {
            primitive.data = Data::Of(Kind::Ether);
            primitive.ether = address;
            return word;
        }
        if primitive.relation != Relation::Equal || primitive.negated {
            self.tell.error(&format!("dangling operator near '{word}'"));
        }
        self.position -= 1;
        word
    }

    /// Reads an address, `ADDRESS mask MASK` or a prefix.
    fn address_or_net(&mut self, word: &str, primitive: &mut Primitive) -> bool {
        let prefix = Prefix::parse(word, self.at).ok();
        if let Some(address) = self.address(word) {
            primitive.data = Data::Of(Kind::Host);
            primitive.value = address;
            if self.word_before_last() == "mask"
                && let Some(mask) = self.address(&self.words[self.position + 1])
            {
                self.position += 2;
                primitive.data = Data::Of(Kind::Net);
                primitive.mask = mask;
                return true;
            }
            if primitive.kind != Some(Kind::Net) {
                return true;
            }
        }
        if let Some(prefix) = prefix {
            primitive.data = Data::Of(Kind::Net);
            primitive.value = prefix.address.into();
            primitive.mask = prefix.mask.into();
        }
        primitive.data != Data::None
    }

    fn address(&self, word: &str) -> Option<u32> {
        Ipv4Addr::parse(word, self.at).ok().map(u32::from)
    }
    fn ether(&self, word: &str) -> Option<[u8; 6]> {
        Ether::parse(word, self.at).ok().map(|address| address.0)
    }
}

/// Parts combined; those that ask for nothing are left out.
fn combined(parts: Vec<Option<Expression>>, by: fn(Vec<Expression>) -> Expression) -> Option<Expression> {
    let mut parts: Vec<Expression> = parts.into_iter().flatten().collect();
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(by(parts)),
    }
}
