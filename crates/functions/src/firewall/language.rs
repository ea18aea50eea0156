//! The language of rules: a line, a rule.
//!
//! ```
//! use netbricks_functions::firewall::{parse_rules, Action};
//!
//! let list = parse_rules("set @web { 192.0.2.10, 2001:db8::10 }\nallow tcp to @web port { http, https }  # the shop\n");
//! let list = list.unwrap();
//! assert_eq!(list.rules[0].1.action, Action::Allow);
//! assert_eq!(list.rules[0].1.to_string(), "allow tcp to @web port {80, 443}");
//! assert_eq!(parse_rules("alow tcp").unwrap_err().errors[0].1.to_string(), "column 1: `alow` begins no line: did you mean `allow`?");
//! ```

use std::collections::HashMap;
use std::ops::Range;

use netbricks_core::nearest;
use netbricks_core::packet::protocol;
use netbricks_core::packet::tcp::flags;
use netbricks_mmb::field::FieldId;
use netbricks_mmb::language::{FileErrors, LineError, number_named, parse_rule as parse_matches};
use netbricks_mmb::rule::{Match, Target, Value};

use super::lexer::{Kind, Token, token, unquoted};
use super::rule::{
    Action, Answer, Choice, End, FlagTest, Policy, Rule, RuleList, Span, Tracking, ValueKind, Version, states,
};
use super::values;

/// Words that begin a line.
const BEGINNINGS: [&str; 8] = ["allow", "deny", "reject", "count", "policy", "tracking", "set", "add"];
/// Words that begin a part of a rule, beside the names of protocols.
const PARTS: [&str; 18] = [
    "ip4",
    "ip6",
    "proto",
    "from",
    "to",
    "port",
    "in",
    "out",
    "type",
    "code",
    "flags",
    "state",
    "stateless",
    "log",
    "name",
    "comment",
    "where",
    "not",
];
/// Names of protocols that stand alone.
const PROTOCOLS: [&str; 10] = ["tcp", "udp", "icmp", "icmp6", "sctp", "dccp", "udplite", "gre", "esp", "ah"];
/// Flags of TCP by name.
pub(super) const FLAGS: [(&str, u8); 8] = [
    ("fin", flags::FIN),
    ("syn", flags::SYN),
    ("rst", flags::RST),
    ("psh", flags::PSH),
    ("ack", flags::ACK),
    ("urg", flags::URG),
    ("ece", flags::ECE),
    ("cwr", flags::CWR),
];
/// The most bytes of a line.
const LONGEST: usize = 1 << 16;

/// A line of a file of rules.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    Rule(Box<Rule>),
    Policy(Policy),
    Tracking(Tracking),
    Set(SetChange),
}

/// A change of a set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetChange {
    pub(super) name: String,
    pub(super) how: How,
    pub(super) values: Vec<Value>,
}

/// How a set changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It has these values and no others.
    Replace,
    Add,
    Remove,
}

/// Reads a text of many lines.
///
/// # Errors
/// All wrong lines. The text is taken whole or not at all.
pub fn parse_rules(text: &str) -> Result<RuleList, FileErrors> {
    let mut list = RuleList::default();
    let mut errors = FileErrors::default();
    let mut names: HashMap<String, usize> = HashMap::new();
    let mut defined: HashMap<String, usize> = HashMap::new();
    let (mut policy, mut tracking) = (None, None);
    let mut is_set_wrong = false;
    for (number, line) in (1..).zip(text.split('\n')) {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(Line::Rule(rule))) => {
                if let Some(name) = &rule.name
                    && let Some(first) = names.insert(name.clone(), number)
                {
                    let message = format!("the name `{name}` stands in line {first} already");
                    let place = find(line, &format!("name {name}"));
                    errors.add(number, error(place, message, "give each rule its own name"));
                }
                list.rules.push((number, *rule));
            }
            Ok(Some(Line::Policy(found))) => {
                if once(&mut policy, number, "policy", &mut errors) {
                    list.policy = found;
                }
            }
            Ok(Some(Line::Tracking(found))) => {
                if once(&mut tracking, number, "tracking", &mut errors) {
                    list.tracking = found;
                }
            }
            Ok(Some(Line::Set(change))) => define(change, number, line, &mut defined, &mut list, &mut errors),
            Err(wrong) => {
                is_set_wrong |= ["set", "add"].iter().any(|word| line.trim_start().starts_with(word));
                errors.add(number, wrong);
            }
        }
    }
    if list.tracking == Tracking::Off {
        for (number, _) in list.rules.iter().filter(|(_, rule)| rule.states != 0) {
            let line = text.split('\n').nth(number - 1).unwrap_or_default();
            let message = "`state` asks for connections, and `tracking off` knows none".to_owned();
            errors.add(*number, error(find(line, "state"), message, "leave one of the two out"));
        }
    }
    // Of a set whose line is wrong it is not known what is in it.
    if !is_set_wrong {
        check_sets(text, &list, &mut errors);
    }
    errors.errors.sort_by_key(|(number, error)| (*number, error.span.start));
    if errors.total == 0 { Ok(list) } else { Err(errors) }
}

/// Takes the line of a set: one defines it, and others add to it.
fn define(
    change: SetChange,
    number: usize,
    line: &str,
    defined: &mut HashMap<String, usize>,
    list: &mut RuleList,
    errors: &mut FileErrors,
) {
    let SetChange { name, how, values } = change;
    let place = || find(line, &format!("@{name}"));
    match (how, defined.get(&name)) {
        (How::Add, None) => errors.add(number, unknown_set(place(), &name, &list.sets)),
        (How::Add, Some(_)) => list.sets.entry(name).or_default().extend(values),
        (_, Some(first)) => {
            let message = format!("the set `@{name}` stands in line {first} already");
            errors.add(number, error(place(), message, format!("add to it by `add @{name} {{ … }}`")));
        }
        (_, None) => {
            defined.insert(name.clone(), number);
            list.sets.insert(name, values);
        }
    }
}

/// Reads a rule, as it stands in a line.
///
/// # Errors
/// The first fault of the line.
pub fn parse_rule(line: &str) -> Result<Rule, LineError> {
    match parse_line(line)? {
        Some(Line::Rule(rule)) => Ok(*rule),
        _ => Err(error(
            0..line.len().min(1),
            "the line has no rule".into(),
            "write one, as `allow tcp to any port 443`",
        )),
    }
}

/// Notes that a directive stands in a line; `false`, and an error, where it stood before.
fn once(known: &mut Option<usize>, line: usize, name: &str, errors: &mut FileErrors) -> bool {
    match known {
        None => {
            *known = Some(line);
            true
        }
        Some(first) => {
            let message = format!("`{name}` stands in line {first} already");
            errors.add(line, error(0..name.len(), message, "write it once"));
            false
        }
    }
}

/// Checks that the sets which rules name are there and have values of the kind that the place takes.
fn check_sets(text: &str, list: &RuleList, errors: &mut FileErrors) {
    // Most files name few sets.
    if !list.rules.iter().any(|(_, rule)| names_sets(rule)) {
        return;
    }
    let lines: Vec<&str> = text.split('\n').collect();
    for (number, rule) in &list.rules {
        let line = lines.get(number - 1).copied().unwrap_or_default();
        if errors.errors.iter().any(|(known, _)| known == number) {
            continue;
        }
        if let Err(wrong) = check_sets_of(line, rule, &list.sets) {
            errors.add(*number, wrong);
        }
    }
}

fn names_sets(rule: &Rule) -> bool {
    let named = |choice: &Choice| choice.values.iter().any(|value| matches!(value, Value::Named(_)));
    rule.choices().any(|(_, choice)| named(choice)) || !rule.matches.is_empty()
}

/// Checks the sets that a rule names.
pub(super) fn check_sets_of(line: &str, rule: &Rule, sets: &super::rule::Sets) -> Result<(), LineError> {
    for (kind, choice) in rule.choices() {
        for value in &choice.values {
            let Value::Named(name) = value else { continue };
            let place = || find(line, &format!("@{name}"));
            let Some(values) = sets.get(name) else {
                return Err(unknown_set(place(), name, sets));
            };
            if let Some(wrong) = values.iter().find(|value| !values::is_of(value, kind)) {
                let message =
                    format!("the set `@{name}` has `{wrong}`, which is no {}", values::name_of(kind));
                return Err(error(place(), message, "name a set of the values that stand at this place"));
            }
        }
    }
    for one in &rule.matches {
        if let Some((_, value)) = &one.test
            && let Some(name) = values::named_in(value)
            && !sets.contains_key(name)
        {
            return Err(unknown_set(find(line, &format!("@{name}")), name, sets));
        }
    }
    Ok(())
}

fn unknown_set(span: Range<usize>, name: &str, sets: &super::rule::Sets) -> LineError {
    let hint = match nearest(name, sets.keys().map(String::as_str)) {
        Some(known) => format!("did you mean `@{known}`?"),
        None => format!("define it, as `set @{name} {{ 192.0.2.0/24 }}`"),
    };
    error(span, format!("there is no set `@{name}`"), hint)
}

/// The place of a word in a line.
fn find(line: &str, word: &str) -> Range<usize> {
    line.find(word).map_or(0..0, |at| at..at + word.len())
}

/// Reads a line; `None` where it is empty or a remark.
pub(super) fn parse_line(line: &str) -> Result<Option<Line>, LineError> {
    let line = line.trim_end_matches('\r');
    if line.len() > LONGEST {
        let message = format!("the line has {} bytes", line.len());
        return Err(error(LONGEST..LONGEST, message, format!("a line has at most {LONGEST}")));
    }
    let mut parser = Parser::new(line);
    if parser.next.kind == Kind::End {
        return Ok(None);
    }
    let first = parser.word(&listed(&BEGINNINGS))?;
    let parsed = match parser.text(&first) {
        "policy" => Line::Policy(parser.one_of(&[
            ("allow", Policy::Allow),
            ("deny", Policy::Deny),
            ("reject", Policy::Reject),
        ])?),
        "tracking" => Line::Tracking(parser.one_of(&[
            ("automatic", Tracking::Automatic),
            ("explicit", Tracking::Explicit),
            ("off", Tracking::Off),
        ])?),
        "set" => Line::Set(parser.set(How::Replace)?),
        "add" => Line::Set(parser.set(How::Add)?),
        "allow" => Line::Rule(parser.rule(Action::Allow)?),
        "deny" => Line::Rule(parser.rule(Action::Deny)?),
        "count" => Line::Rule(parser.rule(Action::Count)?),
        "reject" => {
            let mut answer = Answer::Usual;
            if parser.take("with") {
                answer = parser.one_of(&[
                    ("reset", Answer::Reset),
                    ("prohibited", Answer::Prohibited),
                    ("port", Answer::Port),
                    ("host", Answer::Host),
                    ("route", Answer::Route),
                ])?;
            }
            Line::Rule(parser.rule(Action::Reject(answer))?)
        }
        other => {
            let message = format!("`{}` begins no line", short(other));
            return Err(error(first.span.clone(), message, meant(other, &BEGINNINGS)));
        }
    };
    parser.end()?;
    Ok(Some(parsed))
}

/// Reads a change of a set: `add @web 192.0.2.1, 192.0.2.2`, `remove @web { … }`, `set @web { … }`.
pub(super) fn parse_set_change(line: &str) -> Result<Option<SetChange>, LineError> {
    let line = line.trim_end_matches('\r');
    let mut parser = Parser::new(line);
    if parser.next.kind == Kind::End {
        return Ok(None);
    }
    let how = parser.one_of(&[("add", How::Add), ("remove", How::Remove), ("set", How::Replace)])?;
    let change = parser.set(how)?;
    parser.end()?;
    Ok(Some(change))
}

pub(super) fn error(span: Range<usize>, message: String, hint: impl Into<String>) -> LineError {
    LineError { span, message, hint: hint.into() }
}

fn meant(word: &str, known: &[&'static str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("expected {}", listed(known)),
    }
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// A word for a message.
fn short(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", word.get(..at).unwrap_or_default()),
        None => word.to_owned(),
    }
}

struct Parser<'l> {
    line: &'l str,
    next: Token,
}

impl<'l> Parser<'l> {
    fn new(line: &'l str) -> Self {
        Self { line, next: token(line, 0) }
    }

    fn text(&self, of: &Token) -> &'l str {
        self.line.get(of.span.clone()).unwrap_or_default()
    }

    fn advance(&mut self) -> Token {
        let behind = token(self.line, self.next.span.end);
        std::mem::replace(&mut self.next, behind)
    }

    /// Whether this word is next; then it is taken.
    fn take(&mut self, word: &str) -> bool {
        let found = self.next.kind == Kind::Word && self.text(&self.next) == word;
        if found {
            self.advance();
        }
        found
    }

    fn unexpected(&self, expected: &str) -> LineError {
        let found = match self.next.kind {
            Kind::End => "the line ends".to_owned(),
            Kind::Unclosed => "the text has no closing quote".to_owned(),
            _ => format!("found `{}`", short(self.text(&self.next))),
        };
        error(self.next.span.clone(), found, format!("expected {expected}"))
    }

    fn word(&mut self, expected: &str) -> Result<Token, LineError> {
        if self.next.kind == Kind::Word { Ok(self.advance()) } else { Err(self.unexpected(expected)) }
    }

    fn one_of<T: Copy>(&mut self, known: &[(&'static str, T)]) -> Result<T, LineError> {
        let names: Vec<&'static str> = known.iter().map(|(name, _)| *name).collect();
        let word = self.word(&listed(&names))?;
        let text = self.text(&word);
        match known.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let message = format!("found `{}`", short(text));
                Err(error(word.span, message, format!("expected {}", listed(&names))))
            }
        }
    }

    fn end(&self) -> Result<(), LineError> {
        if self.next.kind == Kind::End { Ok(()) } else { Err(self.unexpected("nothing more in this line")) }
    }

    /// A set behind `set`, `add` or `remove`: its name, then values with or without braces.
    fn set(&mut self, how: How) -> Result<SetChange, LineError> {
        let name = self.word("the name of a set, as `@web`")?;
        let Some(plain) = self.text(&name).strip_prefix('@').filter(|name| values::is_name(name)) else {
            let message = format!("found `{}`", short(self.text(&name)));
            return Err(error(name.span, message, "expected the name of a set, as `@web`"));
        };
        let braces = self.next.kind == Kind::Open;
        let mut values = Vec::new();
        if braces {
            self.advance();
        }
        while !(braces && self.next.kind == Kind::Close) && self.next.kind != Kind::End {
            values.push(self.value(None)?);
            if self.next.kind != Kind::Comma {
                break;
            }
            self.advance();
        }
        if braces {
            if self.next.kind != Kind::Close {
                return Err(self.unexpected("`,` or `}`"));
            }
            self.advance();
        } else if values.is_empty() {
            return Err(self.unexpected("values, as `{ 192.0.2.1, 192.0.2.2 }`"));
        }
        Ok(SetChange { name: plain.to_owned(), how, values })
    }

    /// One value: of this kind, or of any kind that sets have.
    fn value(&mut self, kind: Option<ValueKind>) -> Result<Value, LineError> {
        let expected = kind.map_or("a value", values::name_of);
        if self.next.kind == Kind::Quoted && matches!(kind, None | Some(ValueKind::Interface)) {
            let token = self.advance();
            return Ok(values::interface(&unquoted(self.text(&token))));
        }
        let token = self.word(&format!("{expected}, {}", values::example_of(kind)))?;
        let text = self.text(&token);
        if let Some(name) = text.strip_prefix('@') {
            if kind.is_none() || !values::is_name(name) {
                let hint = "write the values themselves: sets have no sets in them";
                return Err(error(token.span, format!("found `{}`", short(text)), hint));
            }
            return Ok(Value::Named(name.to_owned()));
        }
        let read = match kind {
            Some(kind) => values::read(text, kind),
            None => values::read_any(text),
        };
        read.map_err(|(message, hint)| error(token.span, message, hint))
    }

    /// Values of which one is meant: `VALUE`, `not VALUE`, `{ VALUE, VALUE }`, `not { VALUE, VALUE }`.
    fn choice(&mut self, kind: ValueKind) -> Result<Choice, LineError> {
        let start = self.next.span.start;
        let is_negated = self.take("not");
        let mut values = Vec::new();
        if self.next.kind == Kind::Open {
            self.advance();
            loop {
                values.push(self.value(Some(kind))?);
                match self.next.kind {
                    Kind::Comma => {
                        self.advance();
                    }
                    Kind::Close => break,
                    _ => return Err(self.unexpected("`,` or `}`")),
                }
            }
            self.advance();
        } else {
            values.push(self.value(Some(kind))?);
        }
        Ok(Choice { is_negated, values, span: Span(start..self.next.span.start) })
    }

    /// The parts behind a rule's action.
    fn rule(&mut self, action: Action) -> Result<Box<Rule>, LineError> {
        let mut rule = Box::new(Rule::of(action));
        while self.next.kind != Kind::End {
            let token = self.word("a part of a rule, as `tcp`, `from 10.0.0.0/8` or `to any port 443`")?;
            self.part(&mut rule, &token)?;
        }
        check(&rule, self.line)?;
        Ok(rule)
    }

    fn part(&mut self, rule: &mut Rule, token: &Token) -> Result<(), LineError> {
        let text = self.text(token);
        match text {
            "ip4" => put(&mut rule.version, Version::V4, "a version of IP", token),
            "ip6" => put(&mut rule.version, Version::V6, "a version of IP", token),
            "proto" => {
                let choice = self.choice(ValueKind::Protocol)?;
                put(&mut rule.protocol, choice, "a protocol", token)
            }
            "from" => self.end_of(&mut rule.from, token),
            "to" => self.end_of(&mut rule.to, token),
            "in" => {
                let choice = self.choice(ValueKind::Interface)?;
                put(&mut rule.input, choice, "`in`", token)
            }
            "out" => {
                let choice = self.choice(ValueKind::Interface)?;
                put(&mut rule.output, choice, "`out`", token)
            }
            "type" => {
                let choice = self.icmp_types(rule, token)?;
                put(&mut rule.icmp_type, choice, "`type`", token)
            }
            "code" => {
                let choice = self.choice(ValueKind::Number)?;
                put(&mut rule.icmp_code, choice, "`code`", token)
            }
            "flags" => {
                let test = self.flags()?;
                put(&mut rule.flags, test, "`flags`", token)
            }
            "state" => {
                if rule.states != 0 {
                    return Err(twice("`state`", token));
                }
                rule.states = self.states()?;
                Ok(())
            }
            "stateless" => {
                rule.is_stateless = true;
                Ok(())
            }
            "log" => {
                let prefix = if self.next.kind == Kind::Quoted {
                    let token = self.advance();
                    unquoted(self.text(&token))
                } else {
                    String::new()
                };
                put(&mut rule.log, prefix, "`log`", token)
            }
            "name" => {
                let name = self.word("a name, as `web`")?;
                let text = self.text(&name);
                if !values::is_name(text) {
                    let hint = "a name has letters, digits, `-`, `_` and `.`, and begins with a letter";
                    return Err(error(name.span, format!("`{}` is no name", short(text)), hint));
                }
                put(&mut rule.name, text.to_owned(), "`name`", token)
            }
            "comment" => {
                if self.next.kind != Kind::Quoted {
                    return Err(self.unexpected("a text in quotes"));
                }
                let text = self.advance();
                put(&mut rule.comment, unquoted(self.text(&text)), "`comment`", token)
            }
            "where" => {
                rule.matches = self.matches()?;
                Ok(())
            }
            name if PROTOCOLS.contains(&name) => {
                let value = values::read(name, ValueKind::Protocol);
                let value = value.map_err(|(message, hint)| error(token.span.clone(), message, hint))?;
                let span = Span(token.span.clone());
                let choice = Choice { is_negated: false, values: vec![value], span };
                put(&mut rule.protocol, choice, "a protocol", token)
            }
            other => {
                let known: Vec<&'static str> = PARTS.iter().chain(&PROTOCOLS).copied().collect();
                let hint = match nearest(other, known.iter().copied()) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => "parts are a protocol, `from`, `to`, `in`, `out`, `type`, `code`, `flags`, `state`, `stateless`, \
                             `log`, `name`, `comment` and `where`"
                        .to_owned(),
                };
                Err(error(token.span.clone(), format!("`{}` is no part of a rule", short(other)), hint))
            }
        }
    }

    /// Reads the words behind `from` or `to`: `any`, addresses, and then perhaps `port` with ports.
    fn end_of(&mut self, end: &mut End, at: &Token) -> Result<(), LineError> {
        if *end != End::default() {
            return Err(twice(self.text(at), at));
        }
        let has_ports_alone = self.next.kind == Kind::Word && self.text(&self.next) == "port";
        if !has_ports_alone && !self.take("any") {
            end.addresses = Some(self.choice(ValueKind::Address)?);
        }
        if self.take("port") {
            end.ports = Some(self.choice(ValueKind::Port)?);
        }
        Ok(())
    }

    /// Types of ICMP or ICMPv6 behind `type`, by number or name.
    fn icmp_types(&mut self, rule: &Rule, at: &Token) -> Result<Choice, LineError> {
        let Some(number) = values::icmp_of(rule) else {
            let hint = "write `icmp` or `icmp6` before it";
            return Err(error(at.span.clone(), "`type` is of ICMP or ICMPv6".into(), hint));
        };
        let field = if number == protocol::ICMP { "icmp-type" } else { "icmp6-type" };
        let start = self.next.span.start;
        let is_negated = self.take("not");
        let braces = self.next.kind == Kind::Open;
        if braces {
            self.advance();
        }
        let mut values = Vec::new();
        loop {
            let word = self.word("a type, as `echo-request` or `8`")?;
            let text = self.text(&word);
            let named = FieldId::named(field).and_then(|field| number_named(field, text));
            let value = match named {
                Some(number) => values::number(number),
                None => values::read(text, ValueKind::Number).map_err(|_| {
                    let message = format!("`{}` is no type of {}", short(text), &field[..field.len() - 5]);
                    error(
                        word.span.clone(),
                        message,
                        "write a number from 0 to 255, or a name as `echo-request`",
                    )
                })?,
            };
            values.push(value);
            match self.next.kind {
                Kind::Comma if braces => {
                    self.advance();
                }
                Kind::Close if braces => {
                    self.advance();
                    break;
                }
                _ if braces => return Err(self.unexpected("`,` or `}`")),
                _ => break,
            }
        }
        Ok(Choice { is_negated, values, span: Span(start..self.next.span.start) })
    }

    /// `syn/syn,ack`: the flags that are set, of those behind the stroke.
    fn flags(&mut self) -> Result<FlagTest, LineError> {
        let is_negated = self.take("not");
        let start = self.next.span.start;
        let mut text = String::new();
        loop {
            let word = self.word("flags, as `syn/syn,ack`")?;
            text += self.text(&word);
            if self.next.kind != Kind::Comma {
                break;
            }
            self.advance();
            text.push(',');
        }
        let span = start..self.next.span.start;
        let Some((set, mask)) = text.split_once('/') else {
            let hint = "write the flags that are set, and behind `/` those that are looked at: `syn/syn,ack`";
            return Err(error(span, format!("`{}` says not which flags are looked at", short(&text)), hint));
        };
        let bits = |text: &str| -> Result<u8, LineError> {
            let mut bits = 0;
            for name in text.split(',').filter(|name| !matches!(*name, "" | "none")) {
                let Some((_, bit)) = FLAGS.iter().find(|(known, _)| *known == name) else {
                    let known = FLAGS.map(|(name, _)| name);
                    let message = format!("`{}` is no flag of TCP", short(name));
                    return Err(error(span.clone(), message, meant(name, &known)));
                };
                bits |= bit;
            }
            Ok(bits)
        };
        let (set, mask) = (bits(set)?, bits(mask)?);
        if set & !mask != 0 || mask == 0 {
            let message = format!("`{}` asks for a flag that is not looked at", short(&text));
            return Err(error(span, message, "write each flag before `/` behind it, too"));
        }
        Ok(FlagTest { is_negated, set, mask })
    }

    /// `new,established`.
    fn states(&mut self) -> Result<u8, LineError> {
        let is_negated = self.take("not");
        let mut bits = 0;
        loop {
            bits |= self.one_of(&states::NAMES)?;
            if self.next.kind != Kind::Comma {
                break;
            }
            self.advance();
        }
        Ok(if is_negated { states::ALL & !bits } else { bits })
    }

    /// Matches of mmb's language, up to the end of the line.
    fn matches(&mut self) -> Result<Vec<Match>, LineError> {
        let start = self.next.span.start;
        while self.next.kind != Kind::End {
            self.advance();
        }
        let end = self.next.span.start;
        let text = self.line.get(start..end).unwrap_or_default().trim_end();
        let shifted = |wrong: LineError| {
            let end = start + text.len();
            let span = (wrong.span.start + start).min(end)..(wrong.span.end + start).min(end);
            LineError { span, ..wrong }
        };
        let alone = |found: bool| {
            let hint = "write the action at the beginning of the line, and `comment` before `where`";
            if found { Ok(()) } else { Err(error(start..end, "`where` takes matches alone".into(), hint)) }
        };
        // With a target of its own it would be a rule of mmb.
        alone(parse_matches(text).is_err())?;
        let parsed = parse_matches(&format!("{text} accept")).map_err(shifted)?;
        alone(parsed.targets == [Target::Accept] && !parsed.is_stateful && parsed.comment.is_none())?;
        if parsed.matches.iter().any(|one| one.field.info().kind == netbricks_mmb::field::Kind::All) {
            let hint = "leave `where all` out: a rule without parts is about all packets";
            return Err(error(start..end, "`all` says nothing here".into(), hint));
        }
        Ok(parsed.matches.into_iter().map(|one| Match { span: 0..0, ..one }).collect())
    }
}

/// Checks the parts of a rule together.
fn check(rule: &Rule, line: &str) -> Result<(), LineError> {
    if rule.icmp_code.is_some() && rule.icmp_type.is_none() {
        let hint = "write `type` before it: a code means something else in each type";
        return Err(error(find(line, "code"), "`code` stands without `type`".into(), hint));
    }
    if rule.icmp_type.is_some() && values::icmp_of(rule).is_none() {
        return Err(error(
            find(line, "type"),
            "`type` is of ICMP or ICMPv6".into(),
            "write `icmp` or `icmp6`",
        ));
    }
    for end in [&rule.from, &rule.to] {
        let Some(choice) = &end.addresses else { continue };
        let other = |value: &&Value| match rule.version {
            Some(version) => values::version_of(value).is_some_and(|found| found != version),
            None => false,
        };
        if let Some(wrong) = choice.values.iter().find(other) {
            let message = format!("`{wrong}` is an address of the other version of IP");
            return Err(error(
                choice.span.0.clone(),
                message,
                "leave `ip4` or `ip6` out, or write other addresses",
            ));
        }
    }
    let both = |version| {
        let all = [&rule.from, &rule.to].map(|end| end.addresses.as_ref());
        all.iter().flatten().any(|choice| {
            !choice.is_negated && choice.values.iter().all(|value| values::version_of(value) == Some(version))
        })
    };
    if both(Version::V4) && both(Version::V6) {
        let hint = "write two rules, or addresses of both versions at each end";
        return Err(error(find(line, "from"), "no packet has addresses of both versions of IP".into(), hint));
    }
    if rule.is_stateless && !matches!(rule.action, Action::Allow) {
        let hint = "only rules that allow make connections: leave it out";
        return Err(error(
            find(line, "stateless"),
            "`stateless` stands in a rule that does not allow".into(),
            hint,
        ));
    }
    Ok(())
}

fn put<T>(place: &mut Option<T>, value: T, what: &str, at: &Token) -> Result<(), LineError> {
    if place.is_some() {
        return Err(twice(what, at));
    }
    *place = Some(value);
    Ok(())
}

fn twice(what: &str, at: &Token) -> LineError {
    error(at.span.clone(), format!("{what} stands twice"), "write it once, with several values in braces")
}
