//! Values in a line: single ones, ranges, prefixes, masks and sets.

use std::ops::Range;

use super::error::{Fault, LineError};
use super::lexer::{Kind, unquoted};
use super::parser::Parser;
use super::values::{Domain, number_of, shortened, with_number};
use super::{SetKind, extent, print, words};
use crate::complete::Class;
use crate::lint::Lint;
use crate::rule::{Atom, Value};

/// The most values of a set in a line.
const MOST_VALUES: usize = 65_536;
/// How deep sets stand in sets.
const DEEPEST: usize = 16;

impl Parser<'_> {
    /// A value: one, a range, a prefix, a masked one, a set, or the name of a set.
    pub(super) fn value(&mut self, domain: Domain, of: &str, depth: usize) -> Result<Value, LineError> {
        match self.next.kind {
            Kind::Open => self.set(domain, of, depth),
            Kind::Named => {
                self.expects_sets_of(|kind| domain.takes(kind));
                let span = self.span();
                let (name, kind) = self.set_name(true)?;
                match kind.filter(|&kind| !domain.takes(kind)) {
                    Some(kind) => {
                        let message = format!("`@{name}` is a set of {}", kind.name());
                        Err(Fault::new(message, domain.range_of(of)).at(span))
                    }
                    None => Ok(Value::Named(name)),
                }
            }
            Kind::Quoted => {
                let bytes = unquoted(self.text()).map_err(|fault| fault.at(self.span()))?;
                let atom = domain.read_text(bytes, of).map_err(|fault| fault.at(self.span()))?;
                self.known_interface(&atom)?;
                self.advance(Class::Text);
                self.behind(atom, domain, of)
            }
            Kind::Word => self.word_value(domain, of),
            _ => Err(self.unexpected(&format!("a value of {of}"), domain.range_of(of))),
        }
    }

    fn known_interface(&self, atom: &Atom) -> Result<(), LineError> {
        match atom {
            Atom::Interface(name) => self.checked_interface(name),
            _ => Ok(()),
        }
    }

    /// A value that begins with a word.
    ///
    /// A `-` in the word may be part of a name, or stand between two values.
    fn word_value(&mut self, domain: Domain, of: &str) -> Result<Value, LineError> {
        let word = self.text();
        if let Some(atom) = domain.read(word) {
            self.known_interface(&atom)?;
            self.advance(Class::Value);
            return self.behind(atom, domain, of);
        }
        let mut parts = word.match_indices('-').take(16);
        let range = parts.find_map(|(at, _)| {
            let low = domain.read(word.get(..at)?)?;
            Some((low, domain.read(word.get(at + 1..)?)?))
        });
        if let Some((low, high)) = range {
            let value = self.range(low, high, self.span())?;
            self.advance(Class::Value);
            return Ok(value);
        }
        if domain == Domain::Any && print::is_plain(word) {
            let atom = Atom::Interface(word.to_owned());
            self.known_interface(&atom)?;
            self.advance(Class::Value);
            return Ok(Value::Atom(atom));
        }
        // The part of a range that is wrong.
        let wrong = match word.split_once('-') {
            Some((low, high)) if domain.read(low).is_some() && !high.is_empty() => high,
            Some((low, high)) if domain.read(high).is_some() && !low.is_empty() => low,
            _ => word,
        };
        Err(self.fault(domain.explain(wrong, of)))
    }

    fn range(&self, low: Atom, high: Atom, span: Range<usize>) -> Result<Value, LineError> {
        let (Some(from), Some(to)) = (number_of(&low), number_of(&high)) else {
            return Err(
                Fault::new("a range of values that have no order", "write the values as a set").at(span)
            );
        };
        if SetKind::of(&low) != SetKind::of(&high) {
            return Err(Fault::new("a range between values of two kinds", "write two of one kind").at(span));
        }
        if from > to {
            let text = self.line.get(span.clone()).unwrap_or_default();
            let message = format!("the range `{}` begins behind its end", shortened(text));
            return Err(Fault::new(message, "write the lower value first").at(span));
        }
        Ok(Value::Range(low, high))
    }

    /// The value with the mask, the prefix length or the end of a range behind it.
    fn behind(&mut self, atom: Atom, domain: Domain, of: &str) -> Result<Value, LineError> {
        let start = self.end;
        match self.next.kind {
            Kind::Slash => {
                self.advance(Class::Operator);
                self.prefix(atom, of)
            }
            Kind::And => {
                self.advance(Class::Operator);
                let mask = self.atom(of_kind(domain, &atom), of)?;
                self.masked(atom, mask)
            }
            Kind::Word if self.text() == "-" => {
                self.advance(Class::Operator);
                let high = self.atom(of_kind(domain, &atom), of)?;
                self.range(atom, high, start.min(self.end)..self.end)
            }
            _ => Ok(Value::Atom(atom)),
        }
    }

    /// One value.
    pub(super) fn atom(&mut self, domain: Domain, of: &str) -> Result<Atom, LineError> {
        let atom = match self.next.kind {
            Kind::Quoted => {
                let bytes = unquoted(self.text()).map_err(|fault| fault.at(self.span()))?;
                domain.read_text(bytes, of).map_err(|fault| fault.at(self.span()))?
            }
            Kind::Word => match domain.read(self.text()) {
                Some(atom) => atom,
                None => return Err(self.fault(domain.explain(self.text(), of))),
            },
            Kind::Open | Kind::Named => {
                return Err(self.unexpected("one value", "a set may stand in a match, or behind `map`"));
            }
            _ => return Err(self.unexpected(&format!("a value of {of}"), domain.range_of(of))),
        };
        self.known_interface(&atom)?;
        self.advance(Class::Value);
        Ok(atom)
    }

    /// The length or mask behind `/`.
    fn prefix(&mut self, atom: Atom, of: &str) -> Result<Value, LineError> {
        let (bits, version) = match atom {
            Atom::Ipv4(_) => (32, "IPv4"),
            Atom::Ipv6(_) => (128, "IPv6"),
            Atom::Mac(_) => (48, "MAC"),
            _ => {
                let message = format!("`/` stands behind addresses, and {of} has none");
                return Err(
                    Fault::new(message, "write a mask behind `&`: `x12&x0f`").at(self.end - 1..self.end)
                );
            }
        };
        let Some(word) = self.word() else {
            let hint = format!("write a length from 0 to {bits}, or a mask");
            return Err(self.unexpected("the length of a prefix", hint));
        };
        if !word.bytes().all(|byte| byte.is_ascii_digit()) || matches!(atom, Atom::Mac(_)) {
            let mask = self.atom(Domain::of_set(SetKind::of(&atom)), "the mask")?;
            return self.masked(atom, mask);
        }
        let Some(length) = word.parse().ok().filter(|&length: &u8| u16::from(length) <= bits) else {
            let message = format!("a prefix of {} bits is too long for {version}", shortened(word));
            return Err(self.fault(Fault::new(message, format!("write a length from 0 to {bits}"))));
        };
        self.advance(Class::Value);
        let number = number_of(&atom).unwrap_or_default();
        let mask = extent::prefix_mask(length, bits);
        let cleared = with_number(&atom, number & mask);
        self.host_bits(&atom, &cleared, Some(length));
        Ok(Value::Prefix(cleared, length))
    }

    /// A value with the bits that are compared; a mask of leading ones over an IP address is a prefix.
    fn masked(&mut self, atom: Atom, mask: Atom) -> Result<Value, LineError> {
        let (Some(number), Some(bits)) = (number_of(&atom), number_of(&mask)) else {
            return match (atom, mask) {
                (Atom::Bytes(bytes), Atom::Bytes(mask)) if bytes.len() == mask.len() => {
                    let cleared = bytes.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
                    Ok(Value::Masked(Atom::Bytes(cleared), Atom::Bytes(mask)))
                }
                (Atom::Bytes(bytes), Atom::Bytes(mask)) => {
                    let (value, mask) = (bytes.len(), mask.len());
                    let message = format!("a value and its mask differ in length: {value} and {mask} bytes");
                    Err(Fault::new(message, "write as many bytes for each").at(self.end..self.end))
                }
                _ => Err(Fault::new("a name has no mask", "remove `&` and the mask").at(self.end..self.end)),
            };
        };
        let cleared = with_number(&atom, number & bits);
        let width = match atom {
            Atom::Ipv4(_) => Some(32),
            Atom::Ipv6(_) => Some(128),
            _ => None,
        };
        if let Some(width) = width
            && let Some(length) = extent::prefix_length(bits, width)
        {
            self.host_bits(&atom, &cleared, Some(length));
            return Ok(Value::Prefix(cleared, length));
        }
        self.host_bits(&atom, &cleared, None);
        Ok(Value::Masked(cleared, mask))
    }

    fn host_bits(&mut self, written: &Atom, cleared: &Atom, length: Option<u8>) {
        if written != cleared {
            let behind = length.map(|length| format!("/{length}")).unwrap_or_default();
            self.warnings.push(Lint::HostBits {
                end: self.end,
                written: format!("{written}{behind}"),
                cleared: format!("{cleared}{behind}"),
            });
        }
    }

    /// A set. Sets within it give their values to it.
    fn set(&mut self, domain: Domain, of: &str, depth: usize) -> Result<Value, LineError> {
        if depth == DEEPEST {
            return Err(self.fault(Fault::new("sets stand too deep in sets", "write the values in one set")));
        }
        let open = self.advance(Class::Operator);
        let mut domain = domain;
        let mut values = Vec::new();
        loop {
            self.expects_sets_of(|kind| domain.takes(kind));
            if self.is(Kind::End) {
                return Err(Fault::new("the set has no closing brace", "write `}` at its end").at(open));
            }
            if self.is(Kind::Close) {
                return Err(
                    self.unexpected("a value", "write values with commas between them: `{ 80, 443 }`")
                );
            }
            match self.value(domain, of, depth + 1)? {
                Value::Set(inner) => values.extend(inner),
                value => values.push(value),
            }
            if domain == Domain::Any
                && let Some(kind) = values.iter().find_map(|value| self.context.kind(value))
            {
                domain = Domain::of_set(kind);
            }
            if values.len() > MOST_VALUES {
                let message = format!("a set in a line has at most {MOST_VALUES} values");
                return Err(Fault::new(message, "define it, and extend it by several lines").at(open));
            }
            if self.take(Kind::Comma) {
                continue;
            }
            if self.take(Kind::Close) {
                return Ok(Value::Set(values));
            }
            if self.is(Kind::End) || self.word().is_some_and(words::is_reserved) {
                return Err(Fault::new("the set has no closing brace", "write `}` at its end").at(open));
            }
            return Err(self.unexpected("`,` or `}`", "write commas between the values of a set"));
        }
    }
}

/// The values of the same kind as a value that is known.
fn of_kind(domain: Domain, atom: &Atom) -> Domain {
    if domain == Domain::Any { Domain::of_set(SetKind::of(atom)) } else { domain }
}
