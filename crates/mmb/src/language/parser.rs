//! The parser of lines: its place in the line, its errors, and the commands.

use std::ops::Range;

use netbricks_core::nearest;

use super::error::{Fault, LineError};
use super::lexer::{self, Kind, LONGEST_LINE, Token};
use super::values::{Domain, shortened};
use super::words::{self, COMMANDS, TABLES};
use super::{Context, SetKind};
use crate::complete::{Class, Recording};
use crate::field::FieldId;
use crate::lint::Lint;
use crate::rule::{Command, Mode, Rule, Selector, Shown, Value};

const SELECTORS: &str = "write its place from 1, its name, or `=` and the rule itself";

/// How a rule is asked for, which decides whether it may be stateful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// By `add`, `replace` or alone: stateless without the word `stateful`.
    Stateless,
    /// By `add-stateful`.
    Stateful,
    /// To find a rule that is there.
    Sought,
}

/// A place in a line, with what was found so far.
pub(crate) struct Parser<'t> {
    pub(super) line: &'t str,
    /// The token that is next.
    pub(super) next: Token,
    /// The end of the token before.
    pub(super) end: usize,
    pub(super) context: &'t Context<'t>,
    pub(crate) warnings: Vec<Lint>,
    /// Where completion or colours are asked for: candidates, classes and errors that were passed over.
    pub(crate) recording: Option<Recording>,
}

impl<'t> Parser<'t> {
    pub(crate) fn new(line: &'t str, context: &'t Context<'t>) -> Result<Self, LineError> {
        if line.len() > LONGEST_LINE {
            let fault = Fault::new(
                format!("the line has {} bytes, more than {LONGEST_LINE}", line.len()),
                "write several rules, or a set with `define` and `extend`",
            );
            return Err(fault.at(0..0));
        }
        let line = line.strip_suffix('\n').unwrap_or(line);
        if let Some(at) = line.find('\n') {
            return Err(Fault::new("a line break within a line", "write one command a line").at(at..at + 1));
        }
        let next = lexer::token(line, 0);
        Ok(Self { line, next, end: 0, context, warnings: Vec::new(), recording: None })
    }

    /// A parser that passes over errors where it can, and records.
    pub(crate) fn recording(line: &'t str, context: &'t Context<'t>) -> Result<Self, LineError> {
        let mut parser = Self::new(line, context)?;
        parser.recording = Some(Recording::default());
        Ok(parser)
    }

    // ---- Tokens.

    pub(super) fn text(&self) -> &'t str {
        self.line.get(self.next.start..self.next.end).unwrap_or_default()
    }
    pub(super) fn span(&self) -> Range<usize> {
        self.next.start..self.next.end
    }
    pub(super) fn is(&self, kind: Kind) -> bool {
        self.next.kind == kind
    }
    /// The next token, where it is a word.
    pub(super) fn word(&self) -> Option<&'t str> {
        self.is(Kind::Word).then(|| self.text())
    }
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }
    /// Goes to the token behind the next one.
    pub(super) fn advance(&mut self, class: Class) -> Range<usize> {
        let span = self.span();
        if let Some(recording) = &mut self.recording
            && !span.is_empty()
        {
            recording.classes.push((span.clone(), class));
        }
        self.end = span.end;
        self.next = lexer::token(self.line, span.end);
        span
    }
    pub(super) fn take(&mut self, kind: Kind) -> bool {
        let found = self.is(kind);
        if found {
            self.advance(Class::Operator);
        }
        found
    }
    pub(super) fn take_word(&mut self, word: &'static str) -> bool {
        self.expects(&[(word, "")]);
        let found = self.is_word(word);
        if found {
            self.advance(Class::Keyword);
        }
        found
    }

    // ---- Completion.

    /// Whether the cursor is here, so that candidates are asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.recording.is_some() && self.is(Kind::End)
    }
    /// Notes words that may stand here.
    pub(super) fn expects(&mut self, words: &[(&str, &str)]) {
        if self.is_asked() {
            for (word, summary) in words {
                self.expects_one((*word).to_owned(), (*summary).to_owned());
            }
        }
    }
    pub(super) fn expects_one(&mut self, text: String, summary: String) {
        if let Some(recording) = &mut self.recording {
            recording.add(text, summary);
        }
    }
    fn expects_sets(&mut self) {
        if self.is_asked()
            && let Some(sets) = self.context.sets
        {
            for (name, kind) in sets {
                self.expects_one(format!("@{name}"), format!("a set of {}", kind.name()));
            }
        }
    }
    pub(super) fn expects_sets_of(&mut self, takes: impl Fn(SetKind) -> bool) {
        if self.is_asked()
            && let Some(sets) = self.context.sets
        {
            for (name, kind) in sets.iter().filter(|(_, kind)| takes(**kind)) {
                self.expects_one(format!("@{name}"), format!("a set of {}", kind.name()));
            }
        }
    }
    fn expects_interfaces(&mut self) {
        if self.is_asked() {
            for name in self.context.interfaces.unwrap_or_default() {
                self.expects_one(name.clone(), "an interface".to_owned());
            }
        }
    }

    // ---- Errors.

    /// An error at the next token, unless that token is itself one.
    pub(super) fn fault(&self, fault: Fault) -> LineError {
        match self.next.kind {
            Kind::Unclosed => Fault::new("the text has no closing quote", "write `\"` at its end"),
            Kind::Stray => Fault::new(
                format!("`{}` has no meaning here", self.text().escape_debug()),
                "remove the character",
            ),
            _ => fault,
        }
        .at(self.span())
    }
    /// An error about what is missing or wrong at the next token: `expected` names what may stand there.
    pub(super) fn unexpected(&self, expected: &str, hint: impl Into<String>) -> LineError {
        let found = match self.next.kind {
            Kind::End => "the line ends".to_owned(),
            _ => format!("`{}` stands", shortened(self.text())),
        };
        self.fault(Fault::new(format!("{found} where {expected} is expected"), hint))
    }
    /// Passes over an error where the parser records; the caller then goes on.
    pub(super) fn pass_over(&mut self, error: LineError) -> Result<(), LineError> {
        match &mut self.recording {
            Some(recording) if self.next.kind != Kind::End => {
                recording.errors.push(error);
                Ok(())
            }
            _ => Err(error),
        }
    }
    /// The hint that names the nearest of some words.
    pub(super) fn nearest_hint<'a>(
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: impl FnOnce() -> String,
    ) -> String {
        let near = if word.len() <= 64 { nearest(&word.to_ascii_lowercase(), known) } else { None };
        near.map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
    }

    // ---- Lines.

    /// The command of the line, if it has one.
    pub(crate) fn line(&mut self) -> Result<Option<Command>, LineError> {
        self.take_word("mmb");
        self.expects(COMMANDS);
        if self.is(Kind::End) {
            return Ok(None);
        }
        let command = self.command()?;
        self.ends()?;
        Ok(Some(command))
    }

    /// A rule, with nothing behind it. `add` may stand before it.
    pub(crate) fn only_rule(&mut self) -> Result<Rule, LineError> {
        let asked = match self.word() {
            Some("add" | "add-stateless") => Some(Asked::Stateless),
            Some("add-stateful") => Some(Asked::Stateful),
            _ => None,
        };
        if asked.is_some() {
            self.advance(Class::Command);
        }
        let rule = self.rule(asked.unwrap_or(Asked::Stateless))?;
        self.ends()?;
        Ok(rule)
    }

    fn ends(&mut self) -> Result<(), LineError> {
        match self.next.kind {
            Kind::End => Ok(()),
            Kind::Word if FieldId::named(self.text()).is_some() => {
                let message = format!("the match `{}` stands behind a target", self.text());
                Err(self.fault(Fault::new(message, "write all matches before the targets")))
            }
            _ => Err(self.unexpected("the end of the line", "remove the rest, or write `#` before a remark")),
        }
    }

    fn command(&mut self) -> Result<Command, LineError> {
        let Some(word) = self.word() else {
            return Err(self.unexpected("a command", "write for example `add tcp-dport 80 drop` or `list`"));
        };
        if !COMMANDS.iter().any(|(known, _)| *known == word) {
            let hint = match words::is_target(word) || FieldId::named(word).is_some() {
                true => "a rule is added by `add`: write `add` before it".to_owned(),
                false => Self::nearest_hint(word, COMMANDS.iter().map(|(name, _)| *name), || {
                    format!("the commands are {}", listed(COMMANDS))
                }),
            };
            return Err(self.fault(Fault::new(format!("there is no command `{}`", shortened(word)), hint)));
        }
        self.advance(Class::Command);
        Ok(match word {
            "add" | "add-stateless" => self.add(Asked::Stateless)?,
            "add-stateful" => self.add(Asked::Stateful)?,
            "enable" => Command::Enable(self.interface()?, true),
            "disable" => Command::Enable(self.interface()?, false),
            "list" => Command::List,
            "flush" => Command::Flush,
            "delete" | "del" => Command::Delete(self.selector()?),
            "show" => self.show()?,
            "replace" => Command::Replace(self.selector()?, self.rule(Asked::Stateless)?),
            "move" => {
                let moved = self.selector()?;
                let is_before = self.either("before", "after")?;
                Command::Move(moved, is_before, self.selector()?)
            }
            "define" => {
                let (name, _) = self.set_name(false)?;
                Command::Define(name, self.values_of_set(None)?)
            }
            "extend" | "shrink" => {
                let (name, kind) = self.set_name(true)?;
                let values = self.values_of_set(kind)?;
                if word == "extend" { Command::Extend(name, values) } else { Command::Shrink(name, values) }
            }
            "mode" => Command::Mode(match self.either("ordered", "all-match")? {
                true => Mode::Ordered,
                false => Mode::AllMatch,
            }),
            "policy" => Command::PolicyDrop(self.either("drop", "accept")?),
            "explain" => Command::Explain(self.packet()?),
            "test" => Command::Test(self.file()?),
            "expect" => {
                let packet = self.packet()?;
                Command::Expect(packet, self.either("drop", "accept")?)
            }
            "begin" => Command::Begin,
            "commit" => Command::Commit,
            _ => Command::Abort,
        })
    }

    /// One of two words: whether it is the first.
    pub(super) fn either(&mut self, yes: &'static str, no: &'static str) -> Result<bool, LineError> {
        if self.take_word(yes) {
            return Ok(true);
        }
        if self.take_word(no) {
            return Ok(false);
        }
        let hint = Self::nearest_hint(self.text(), [yes, no], || "write one of them".to_owned());
        Err(self.unexpected(&format!("`{yes}` or `{no}`"), hint))
    }

    fn show(&mut self) -> Result<Command, LineError> {
        self.expects(TABLES);
        let shown = match self.word() {
            Some("tables") => Shown::Tables,
            Some("connections") => Shown::Connections,
            Some("sets") => Shown::Sets,
            Some("fields") => Shown::Fields,
            _ => {
                let hint = Self::nearest_hint(self.text(), TABLES.iter().map(|(name, _)| *name), || {
                    format!("write one of {}", listed(TABLES))
                });
                return Err(self.unexpected("a table", hint));
            }
        };
        self.advance(Class::Keyword);
        Ok(Command::Show(shown, self.take_word("verbose")))
    }

    fn add(&mut self, asked: Asked) -> Result<Command, LineError> {
        let (mut at, mut name) = (None, None);
        loop {
            if at.is_none() && self.take_word("at") {
                let place = self.word().and_then(|word| word.parse().ok()).filter(|&place: &usize| place > 0);
                if place.is_none() {
                    return Err(self.unexpected("a place", "write a number from 1"));
                }
                self.advance(Class::Value);
                at = place;
            } else if name.is_none() && self.take_word("name") {
                name = Some(self.name("a rule")?);
            } else {
                break;
            }
        }
        Ok(Command::Add { at, name, rule: self.rule(asked)? })
    }

    fn name(&mut self, of: &str) -> Result<String, LineError> {
        match self.word().filter(|word| words::is_name(word)) {
            Some(word) => {
                self.advance(Class::Name);
                Ok(word.to_owned())
            }
            None => Err(self.unexpected(
                &format!("the name of {of}"),
                "a name has a letter, then letters, digits, `_`, `-` and `.`, 64 at most",
            )),
        }
    }

    fn selector(&mut self) -> Result<Selector, LineError> {
        if self.is_asked() {
            for name in self.context.rules {
                self.expects_one(name.clone(), "a rule".to_owned());
            }
            self.expects_one("=".to_owned(), "the rule that is written behind it".to_owned());
        }
        if self.take(Kind::Same) {
            return Ok(Selector::Same(self.rule(Asked::Sought)?));
        }
        let Some(word) = self.word().filter(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        else {
            let Some(name) = self.word().filter(|word| words::is_name(word)) else {
                return Err(self.unexpected("a rule", SELECTORS));
            };
            self.advance(Class::Name);
            return Ok(Selector::Name(name.to_owned()));
        };
        match word.parse() {
            Ok(place) if place > 0 => {
                self.advance(Class::Value);
                Ok(Selector::Number(place))
            }
            _ => Err(self.unexpected("a rule", SELECTORS)),
        }
    }

    fn interface(&mut self) -> Result<String, LineError> {
        self.expects_interfaces();
        let name = match self.next.kind {
            Kind::Word => self.text().to_owned(),
            Kind::Quoted => self.quoted_text()?,
            _ => return Err(self.unexpected("the name of an interface", "write a name such as `eth0`")),
        };
        self.checked_interface(&name)?;
        self.advance(Class::Name);
        Ok(name)
    }

    /// Checks that there is such an interface, where interfaces are known.
    pub(super) fn checked_interface(&self, name: &str) -> Result<(), LineError> {
        let known = self.context.interfaces.unwrap_or_default();
        if self.context.interfaces.is_none() || known.iter().any(|known| known == name) {
            return Ok(());
        }
        let hint = Self::nearest_hint(name, known.iter().map(String::as_str), || match known {
            [] => "there are none".to_owned(),
            _ => format!("the interfaces are {}", known.join(", ")),
        });
        Err(self.fault(Fault::new(format!("there is no interface `{}`", shortened(name)), hint)))
    }

    /// The text of the next token, which is in quotes.
    pub(super) fn quoted_text(&self) -> Result<String, LineError> {
        let bytes = lexer::unquoted(self.text()).map_err(|fault| fault.at(self.span()))?;
        String::from_utf8(bytes).map_err(|_| {
            Fault::new("the text is not UTF-8", "remove escapes such as `\\xff`").at(self.span())
        })
    }

    /// The name of a file: a text in quotes, or all up to the next blank.
    fn file(&mut self) -> Result<String, LineError> {
        if self.is(Kind::Quoted) {
            let name = self.quoted_text()?;
            self.advance(Class::Text);
            return Ok(name);
        }
        if matches!(self.next.kind, Kind::End | Kind::Unclosed) {
            return Err(self.unexpected("a file", "write the path of a capture"));
        }
        let rest = self.line.get(self.next.start..).unwrap_or_default();
        let name = rest.split([' ', '\t', '\r', '#', '"']).next().unwrap_or_default();
        self.next.end = self.next.start + name.len();
        self.advance(Class::Text);
        Ok(name.to_owned())
    }

    /// The name of a set. Where it must be defined, its kind is answered if it is known.
    pub(super) fn set_name(&mut self, is_defined: bool) -> Result<(String, Option<SetKind>), LineError> {
        self.expects_sets();
        let name = match self.text().strip_prefix('@') {
            Some(name) if self.is(Kind::Named) && words::is_name(name) => name,
            _ => {
                return Err(self.unexpected(
                    "the name of a set",
                    "write `@` and a name: a letter, then letters, digits, `_`, `-` and `.`",
                ));
            }
        };
        let kind = match self.context.sets {
            Some(sets) if is_defined => match sets.get(name) {
                Some(kind) => Some(*kind),
                None => {
                    let hint = Self::nearest_hint(name, sets.keys().map(String::as_str), || {
                        format!("define it first: `define @{name} {{ … }}`")
                    });
                    let hint = hint.replace("mean `", "mean `@");
                    return Err(self.fault(Fault::new(format!("there is no set `@{name}`"), hint)));
                }
            },
            _ => None,
        };
        self.advance(Class::Name);
        Ok((name.to_owned(), kind))
    }

    /// The values of a set that is defined or changed, all of one kind.
    fn values_of_set(&mut self, kind: Option<SetKind>) -> Result<Vec<Value>, LineError> {
        if !self.is(Kind::Open) {
            self.expects(&[("{", "values, with commas between them")]);
            return Err(self.unexpected("`{`", "write the values in braces: `{ 80, 443, 1000-2000 }`"));
        }
        let domain = kind.map_or(Domain::Any, Domain::of_set);
        match self.value(domain, "the set", 0)? {
            Value::Set(values) => Ok(values),
            value => Ok(vec![value]),
        }
    }
}

/// Words for a message.
fn listed(words: &[(&str, &str)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    words.join(", ")
}
