//! The targets of a rule.

use std::ops::Range;

use super::check;
use super::error::{Fault, LineError};
use super::lexer::Kind;
use super::matches::MOST_PARTS;
use super::parser::Parser;
use super::values::{Domain, LONGEST_OPTION, number, shortened};
use super::words::{self, TARGETS};
use crate::complete::Class;
use crate::field::{FieldId, Kind as FieldKind};
use crate::rule::{Atom, MapTo, Target, Value};

impl Parser<'_> {
    pub(super) fn targets(&mut self) -> Result<(Vec<Target>, Vec<Range<usize>>), LineError> {
        let (mut targets, mut spans) = (Vec::with_capacity(2), Vec::with_capacity(2));
        loop {
            self.expects(TARGETS);
            let start = self.next.start;
            let Some(word) = self.word().filter(|word| words::is_target(word)) else { break };
            if targets.len() == MOST_PARTS {
                let message = format!("a rule has at most {MOST_PARTS} targets");
                return Err(Fault::new(message, "write several rules").at(self.span()));
            }
            self.advance(Class::Target);
            targets.push(self.target(word)?);
            spans.push(start..self.end);
        }
        if targets.is_empty() {
            let hint = "write what to do with the packets: `drop`, `accept`, `mod`, `strip`, `add`, `lb`, `map` or `shuffle`";
            return Err(self.unexpected("a target", hint));
        }
        // Behind `= rule` another rule may follow; elsewhere the line ends here, with an error if it does not.
        Ok((targets, spans))
    }

    fn target(&mut self, word: &str) -> Result<Target, LineError> {
        Ok(match word {
            "mod" => {
                let start = self.next.start;
                let field = self.field("mod", |field| field.info().is_writable)?;
                if let Err(error) = check::writable(field, start..self.end) {
                    self.pass_over_late(error)?;
                }
                let name = &field.info().name;
                self.expects_values(field);
                let Some(domain) = Domain::of(field) else {
                    return Err(self.unexpected("a value", format!("`{name}` has none")));
                };
                if !self.starts_value() {
                    return Err(self.unexpected(&format!("a value of {name}"), domain.range_of(name)));
                }
                let span = self.span();
                let value = self.atom(domain, name)?;
                check::written(field, &value, span)?;
                Target::Mod(field, value)
            }
            "strip" => {
                self.expects(&[("!", "the option behind it stays, and all others go")]);
                let is_kept = self.take(Kind::Not);
                self.expects(&[("all", "every TCP option")]);
                if self.is_word("all") {
                    if is_kept {
                        let hint = "write `strip all`, or name the options that stay: `strip ! tcp-opt-mss`";
                        return Err(self.fault(Fault::new("`strip ! all` takes nothing out", hint)));
                    }
                    self.advance(Class::Keyword);
                    return Ok(Target::Strip { is_kept, option: None });
                }
                Target::Strip { is_kept, option: Some(self.option("strip")?) }
            }
            "add" => self.added_option()?,
            "drop" => Target::Drop(self.percentage()?),
            "accept" => Target::Accept,
            "lb" => Target::Balance(self.outputs()?),
            "map" => {
                let start = self.next.start;
                let field = self.field("map", check::can_translate)?;
                check::translated(field, "map", start..self.end)?;
                let domain = Domain::of(field).unwrap_or(Domain::Any);
                self.expects_values(field);
                if self.take_word("random") {
                    return Ok(Target::Map(field, MapTo::Random));
                }
                let start = self.next.start;
                let value = self.value(domain, &field.info().name, 0)?;
                if matches!(value, Value::Masked(..)) {
                    let hint = "write a value, a range, a prefix, a set or `random`";
                    return Err(Fault::new("`map` chooses from no mask", hint).at(start..self.end));
                }
                Target::Map(field, MapTo::Value(value))
            }
            _ => {
                let start = self.next.start;
                let field = self.field("shuffle", check::can_translate)?;
                check::translated(field, "shuffle", start..self.end)?;
                Target::Shuffle(field)
            }
        })
    }

    /// The kind of a TCP option: by its name, or behind `tcp-opt`.
    fn option(&mut self, behind: &str) -> Result<u8, LineError> {
        self.expects_fields(|field| field.info().kind.is_option());
        let hint = || "write an option such as `tcp-opt-mss`, or `tcp-opt` and a kind".to_owned();
        let Some(word) = self.word() else { return Err(self.unexpected("a TCP option", hint())) };
        let Some(field) = FieldId::named(word) else {
            let options =
                FieldId::names().filter(|(_, field)| field.info().kind.is_option()).map(|(name, _)| name);
            let hint = Self::nearest_hint(word, options, hint);
            return Err(self.fault(Fault::new(format!("there is no TCP option `{}`", shortened(word)), hint)));
        };
        match field.info().kind {
            FieldKind::NumberOption { kind, .. } | FieldKind::BytesOption { kind } => {
                self.advance(Class::Field);
                Ok(kind)
            }
            FieldKind::AnyOption => {
                self.advance(Class::Field);
                let kind = self.word().and_then(number).and_then(|kind| u8::try_from(kind).ok());
                match kind {
                    Some(kind @ 2..) => {
                        self.advance(Class::Value);
                        Ok(kind)
                    }
                    Some(_) => {
                        let fault =
                            Fault::new("kinds 0 and 1 only fill up the header", "write a kind from 2 to 255");
                        Err(self.fault(fault))
                    }
                    None => Err(self.unexpected(
                        "the kind of an option",
                        "write a number from 2 to 255, such as `22` or `x16`",
                    )),
                }
            }
            _ => {
                let message = format!("`{behind}` is for TCP options, and `{word}` is none");
                Err(self.fault(Fault::new(message, hint())))
            }
        }
    }

    /// The option and value behind `add`.
    fn added_option(&mut self) -> Result<Target, LineError> {
        let option = self.option("add")?;
        let (name, domain) = check::option_domain(option);
        let has_value = self.starts_value();
        let span = self.span();
        let value = match domain {
            Some(domain) if has_value => Some(self.atom(domain, &name)?),
            Some(Domain::Number(..)) => {
                let hint = domain.map(|domain| domain.range_of(&name)).unwrap_or_default();
                return Err(self.unexpected(&format!("a value of {name}"), hint));
            }
            None if has_value => {
                return Err(self.fault(Fault::new(format!("{name} has no value"), "remove the value")));
            }
            _ => None,
        };
        if matches!(&value, Some(Atom::Bytes(bytes)) if bytes.is_empty() || bytes.len() > LONGEST_OPTION) {
            let hint = format!("write 1 to {LONGEST_OPTION} bytes, or no value");
            return Err(Fault::new("no bytes for a value", hint).at(span));
        }
        Ok(Target::Add { option, value })
    }

    fn percentage(&mut self) -> Result<Option<f64>, LineError> {
        let Some(word) =
            self.word().filter(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        else {
            return Ok(None);
        };
        let digits = word.strip_suffix('%').unwrap_or(word);
        let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match digits.parse::<f64>() {
            Ok(percent) if is_decimal && percent > 0.0 && percent <= 100.0 => {
                self.advance(Class::Value);
                Ok(Some(percent))
            }
            _ => {
                let message = format!("`{}` is no percentage of packets", shortened(word));
                Err(self.fault(Fault::new(message, "write a number above 0, 100 at most: `drop 0.1`")))
            }
        }
    }

    fn outputs(&mut self) -> Result<Vec<u8>, LineError> {
        let mut outputs = Vec::new();
        while let Some(word) = self.word().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            let most = self.context.outputs.unwrap_or(256).min(256);
            match word.parse::<u8>() {
                Ok(output) if usize::from(output) < most => outputs.push(output),
                _ => {
                    let hint = match most {
                        0 => "there are none".to_owned(),
                        1 => "there is only output 0".to_owned(),
                        most => format!("write outputs from 0 to {}", most - 1),
                    };
                    return Err(
                        self.fault(Fault::new(format!("there is no output {}", shortened(word)), hint))
                    );
                }
            }
            if outputs.len() > MOST_PARTS {
                return Err(self.fault(Fault::new("too many outputs", format!("write at most {MOST_PARTS}"))));
            }
            self.advance(Class::Value);
        }
        match outputs.is_empty() {
            true => Err(self.unexpected("an output", "write the numbers of outputs: `lb 0 1`")),
            false => Ok(outputs),
        }
    }
}
