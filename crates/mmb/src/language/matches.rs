//! Rules in a line, and their matches.

use super::check;
use super::error::{Fault, LineError};
use super::lexer::Kind;
use super::parser::{Asked, Parser};
use super::values::{Domain, shortened};
use super::words::{self, COMPARISONS, TARGETS};
use crate::complete::Class;
use crate::field::{FieldId, Kind as FieldKind};
use crate::rule::{Comparison, Match, Rule, Value};

/// The most matches and the most targets of a rule.
pub(super) const MOST_PARTS: usize = 256;

impl Parser<'_> {
    /// A rule: matches, targets, and perhaps a comment.
    pub(super) fn rule(&mut self, asked: Asked) -> Result<Rule, LineError> {
        let mut is_stateful = asked == Asked::Stateful;
        if !is_stateful && self.is_word("stateful") {
            self.advance(Class::Keyword);
            is_stateful = true;
        } else if self.is_word("stateless") && asked != Asked::Stateful {
            self.advance(Class::Keyword);
        }
        let start = self.next.start;
        let mut matches = self.matches()?;
        let (mut targets, spans) = self.targets()?;
        // Rules stay: 100,000 of them are held at once.
        matches.shrink_to_fit();
        targets.shrink_to_fit();
        let mut comment = None;
        if self.take_word("comment") {
            if !self.is(Kind::Quoted) {
                return Err(self
                    .unexpected("a text", "write the comment in quotes: `comment \"for the mail server\"`"));
            }
            comment = Some(self.quoted_text()?);
            self.advance(Class::Text);
        }
        let rule = Rule { is_stateful, matches, targets, comment };
        let facts = check::Facts { asked, spans: &spans, whole: start..self.end };
        if let Err(error) = check::rule(&rule, &facts) {
            self.pass_over_late(error)?;
        }
        if asked != Asked::Sought && !rule.is_stateful {
            self.warnings.extend(crate::lint::one_way(&rule));
        }
        Ok(rule)
    }

    /// An error about the rule as a whole, which hinders neither completion nor colours.
    pub(super) fn pass_over_late(&mut self, error: LineError) -> Result<(), LineError> {
        match &mut self.recording {
            Some(recording) => {
                recording.errors.push(error);
                Ok(())
            }
            None => Err(error),
        }
    }

    fn matches(&mut self) -> Result<Vec<Match>, LineError> {
        let mut matches = Vec::with_capacity(4);
        loop {
            self.expects_fields(|_| true);
            self.expects(&[("!", "the condition behind it must not hold")]);
            if !matches.is_empty() {
                self.expects(TARGETS);
            }
            let start = self.next.start;
            let is_negated = self.take(Kind::Not);
            let Some(word) = self.word() else {
                if matches.is_empty() || is_negated || !self.is(Kind::End) {
                    let hint = "write a field such as `tcp-dport`, or `all` for every packet";
                    return Err(self.unexpected("a field", hint));
                }
                return Ok(matches);
            };
            if !is_negated && (words::is_target(word) || word == "comment") {
                let is_first = self.recording.as_ref().is_none_or(|recording| recording.errors.is_empty());
                if matches.is_empty() && is_first {
                    let hint = "write `all` before it for every packet, or a field such as `tcp-dport 80`";
                    let message = format!("there is no match before `{word}`");
                    self.pass_over(Fault::new(message, hint).at(self.span()))?;
                }
                return Ok(matches);
            }
            if matches.len() == MOST_PARTS {
                let message = format!("a rule has at most {MOST_PARTS} matches");
                return Err(Fault::new(message, "write several values of a field as a set: `{ 80, 443 }`")
                    .at(self.span()));
            }
            let Some(field) = FieldId::named(word) else {
                let error = self.unknown_field(word);
                self.pass_over(error)?;
                self.advance(Class::Error);
                self.skip_value();
                continue;
            };
            if let (FieldKind::Out, Some(fact)) = (field.info().kind, self.context.unknown_out) {
                let message = format!("`out` is not known here, as {fact}");
                let hint = "put the function into a chain for each port, behind what chooses one";
                self.pass_over(Fault::new(message, hint).at(self.span()))?;
            }
            self.advance(Class::Field);
            let test = self.test(field)?;
            matches.push(Match { is_negated, field, test, span: start..self.end });
        }
    }

    /// Goes behind the comparison and value of a field that is unknown.
    fn skip_value(&mut self) {
        use Kind as K;
        if matches!(self.next.kind, K::Equal | K::NotEqual | K::Less | K::AtMost | K::Greater | K::AtLeast) {
            self.advance(Class::Operator);
        }
        if self.word().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
            self.advance(Class::Value);
        }
    }

    /// The error about a word that is no field and no target.
    pub(super) fn unknown_field(&self, word: &str) -> LineError {
        let known = FieldId::names().map(|(name, _)| name).chain(TARGETS.iter().map(|(name, _)| *name));
        let hint = Self::nearest_hint(word, known, || "`show fields` lists them".to_owned());
        self.fault(Fault::new(format!("there is no field `{}`", shortened(word)), hint))
    }

    /// A field where only a field may stand.
    pub(super) fn field(
        &mut self,
        behind: &str,
        may_be: impl Fn(FieldId) -> bool,
    ) -> Result<FieldId, LineError> {
        self.expects_fields(may_be);
        let Some(word) = self.word() else {
            return Err(
                self.unexpected("a field", format!("write a field behind `{behind}`, such as `ip-ttl`"))
            );
        };
        let Some(field) = FieldId::named(word) else { return Err(self.unknown_field(word)) };
        self.advance(Class::Field);
        Ok(field)
    }

    /// The comparison and value behind a field, if there are.
    fn test(&mut self, field: FieldId) -> Result<Option<(Comparison, Value)>, LineError> {
        let name = &field.info().name;
        let domain = Domain::of(field);
        if domain.is_some() {
            self.expects(COMPARISONS);
        }
        let sign = self.span();
        let comparison = match self.next.kind {
            Kind::Equal => Some(Comparison::Equal),
            Kind::NotEqual => Some(Comparison::NotEqual),
            Kind::Less => Some(Comparison::Less),
            Kind::AtMost => Some(Comparison::AtMost),
            Kind::Greater => Some(Comparison::Greater),
            Kind::AtLeast => Some(Comparison::AtLeast),
            Kind::Same => {
                let error = Fault::new("`=` is no comparison", "write `==`, or nothing").at(sign.clone());
                self.pass_over(error)?;
                Some(Comparison::Equal)
            }
            _ => None,
        };
        if comparison.is_some() {
            self.advance(Class::Operator);
        }
        let Some(domain) = domain else {
            return match comparison.is_some() || self.starts_value() {
                true => {
                    Err(Fault::new(format!("`{name}` has no value"), format!("write `{name}` alone"))
                        .at(sign))
                }
                false => Ok(None),
            };
        };
        self.expects_values(field);
        if comparison.is_none()
            && !self.starts_value()
            && !(domain == Domain::Interface && self.is(Kind::Word))
        {
            return match domain {
                Domain::Interface => {
                    Err(self
                        .unexpected("the name of an interface", format!("write for example `{name} eth0`")))
                }
                _ => Ok(None),
            };
        }
        let comparison = comparison.unwrap_or(Comparison::Equal);
        if let Err(error) = check::comparison(field, comparison, sign) {
            self.pass_over_late(error)?;
        }
        let start = self.next.start;
        let value = match self.value_of(field, domain)? {
            Some(value) => value,
            None => return Ok(None),
        };
        check::compared(field, &value, start..self.end)?;
        let is_ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        if is_ordered && !matches!(value, Value::Atom(_)) {
            let hint = "write one value, or no sign before ranges, prefixes and sets";
            return Err(Fault::new("`<` and `>` compare with one value", hint).at(start..self.end));
        }
        Ok(Some((comparison, value)))
    }

    /// Whether a value stands here, and not the next part of the rule.
    pub(super) fn starts_value(&self) -> bool {
        match self.next.kind {
            Kind::Open | Kind::Named | Kind::Quoted | Kind::Unclosed => true,
            Kind::Word => {
                let word = self.text();
                let is_number = word.as_bytes().first().is_some_and(u8::is_ascii_digit);
                is_number || !(words::is_reserved(word) || FieldId::named(word).is_some())
            }
            _ => false,
        }
    }

    /// A value of a field. `None` where an error was passed over.
    fn value_of(&mut self, field: FieldId, domain: Domain) -> Result<Option<Value>, LineError> {
        let name = field.info().name.as_str();
        if let Some(word) = self.word()
            && (words::is_reserved(word) || FieldId::named(word).is_some())
            && !word.starts_with(|first: char| first.is_ascii_digit())
        {
            let hint = match domain {
                Domain::Interface => {
                    "write the name of an interface, in quotes if it is a word of the language".to_owned()
                }
                _ => domain.range_of(name),
            };
            return Err(self.unexpected(&format!("a value of {name}"), hint));
        }
        let before = self.next;
        match self.value(domain, name, 0) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let word = self.line.get(before.start..before.end).unwrap_or_default();
                // A misspelled field behind a flag or an option looks like its value.
                let is_word = before.kind == Kind::Word
                    && self.next == before
                    && word.starts_with(|first: char| first.is_ascii_alphabetic());
                let names =
                    || FieldId::names().map(|(name, _)| name).chain(TARGETS.iter().map(|(name, _)| *name));
                let is_near = word.len() <= 64
                    && netbricks_core::nearest(&word.to_ascii_lowercase(), names()).is_some();
                let error = match is_word && !error.hint.starts_with("did you mean") && is_near {
                    true => self.unknown_field(word),
                    false => error,
                };
                self.pass_over(error)?;
                if self.next == before {
                    self.advance(Class::Error);
                }
                Ok(None)
            }
        }
    }

    pub(super) fn expects_fields(&mut self, may_be: impl Fn(FieldId) -> bool) {
        if self.is_asked() {
            for field in FieldId::all().filter(|field| may_be(*field)) {
                self.expects_one(field.info().name.clone(), crate::complete::summary(field));
            }
        }
    }

    pub(super) fn expects_values(&mut self, field: FieldId) {
        if !self.is_asked() {
            return;
        }
        match Domain::of(field) {
            Some(Domain::Number(_, Some(registry))) => {
                for (name, value) in registry.names() {
                    self.expects_one(name.to_owned(), value.to_string());
                }
            }
            Some(Domain::Interface) => {
                for name in self.context.interfaces.unwrap_or_default() {
                    self.expects_one(name.clone(), "an interface".to_owned());
                }
            }
            _ => {}
        }
        if let Some(domain) = Domain::of(field) {
            self.expects_sets_of(|kind| domain.takes(kind));
        }
    }
}
