//! Rules as lines: each is read back as the same rule.

use std::fmt::{self, Display, Formatter, Write};

use netbricks_core::packet::protocol;
use netbricks_mmb::rule::{Atom, Value};

use super::language::FLAGS;
use super::lexer::in_quotes;
use super::rule::{Action, Answer, Choice, End, FlagTest, Policy, Rule, RuleList, Tracking, Version, states};
use super::values;

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Count => "count",
            Self::Reject(Answer::Usual) => "reject",
            Self::Reject(Answer::Reset) => "reject with reset",
            Self::Reject(Answer::Prohibited) => "reject with prohibited",
            Self::Reject(Answer::Port) => "reject with port",
            Self::Reject(Answer::Host) => "reject with host",
            Self::Reject(Answer::Route) => "reject with route",
        })
    }
}

impl Policy {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Reject => "reject",
        }
    }
}

impl Tracking {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Explicit => "explicit",
            Self::Off => "off",
        }
    }
}

/// A value, in quotes where it is an interface whose name is no plain word.
fn value(f: &mut Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Atom(Atom::Interface(name)) => {
            // A plain word must be read as an interface in a set, too.
            let is_plain = values::is_name(name)
                && !matches!(name.as_str(), "not" | "any" | "port")
                && values::read_any(name).is_ok_and(|read| matches!(read, Value::Atom(Atom::Interface(_))));
            if is_plain { f.write_str(name) } else { f.write_str(&in_quotes(name)) }
        }
        other => write!(f, "{other}"),
    }
}

fn list(f: &mut Formatter<'_>, values: &[Value]) -> fmt::Result {
    f.write_char('{')?;
    for (at, one) in values.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        value(f, one)?;
    }
    f.write_char('}')
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_negated {
            f.write_str("not ")?;
        }
        match &self.values[..] {
            [one] => value(f, one),
            several => list(f, several),
        }
    }
}

fn end(f: &mut Formatter<'_>, word: &str, of: &End) -> fmt::Result {
    match (&of.addresses, &of.ports) {
        (None, None) => Ok(()),
        (Some(addresses), None) => write!(f, " {word} {addresses}"),
        (Some(addresses), Some(ports)) => write!(f, " {word} {addresses} port {ports}"),
        (None, Some(ports)) => write!(f, " {word} any port {ports}"),
    }
}

/// The word for a protocol that stands alone.
fn protocol_word(choice: &Choice) -> Option<&'static str> {
    let [only] = &choice.values[..] else { return None };
    if choice.is_negated {
        return None;
    }
    match u8::try_from(values::as_number(only)?).ok()? {
        protocol::TCP => Some("tcp"),
        protocol::UDP => Some("udp"),
        protocol::ICMP => Some("icmp"),
        protocol::ICMPV6 => Some("icmp6"),
        protocol::SCTP => Some("sctp"),
        protocol::GRE => Some("gre"),
        protocol::ESP => Some("esp"),
        protocol::AH => Some("ah"),
        _ => None,
    }
}

fn flag_names(f: &mut Formatter<'_>, bits: u8) -> fmt::Result {
    if bits == 0 {
        return f.write_str("none");
    }
    let mut separator = "";
    for (name, _) in FLAGS.iter().filter(|(_, bit)| bits & bit != 0) {
        write!(f, "{separator}{name}")?;
        separator = ",";
    }
    Ok(())
}

impl Display for FlagTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_negated {
            f.write_str("not ")?;
        }
        flag_names(f, self.set)?;
        f.write_char('/')?;
        flag_names(f, self.mask)
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        match self.version {
            Some(Version::V4) => f.write_str(" ip4")?,
            Some(Version::V6) => f.write_str(" ip6")?,
            None => {}
        }
        if let Some(choice) = &self.protocol {
            match protocol_word(choice) {
                Some(word) => write!(f, " {word}")?,
                None => write!(f, " proto {choice}")?,
            }
        }
        for (word, choice) in [("type", &self.icmp_type), ("code", &self.icmp_code)] {
            if let Some(choice) = choice {
                write!(f, " {word} {choice}")?;
            }
        }
        end(f, "from", &self.from)?;
        end(f, "to", &self.to)?;
        for (word, choice) in [("in", &self.input), ("out", &self.output)] {
            if let Some(choice) = choice {
                write!(f, " {word} {choice}")?;
            }
        }
        if let Some(flags) = &self.flags {
            write!(f, " flags {flags}")?;
        }
        if self.states != 0 {
            f.write_str(" state ")?;
            let names = states::NAMES.iter().filter(|(_, bit)| self.states & bit != 0);
            let names: Vec<&str> = names.map(|(name, _)| *name).collect();
            f.write_str(&names.join(","))?;
        }
        if self.is_stateless {
            f.write_str(" stateless")?;
        }
        match &self.log {
            Some(prefix) if prefix.is_empty() => f.write_str(" log")?,
            Some(prefix) => write!(f, " log {}", in_quotes(prefix))?,
            None => {}
        }
        if let Some(name) = &self.name {
            write!(f, " name {name}")?;
        }
        if let Some(comment) = &self.comment {
            write!(f, " comment {}", in_quotes(comment))?;
        }
        if !self.matches.is_empty() {
            f.write_str(" where")?;
            for one in &self.matches {
                write!(f, " {one}")?;
            }
        }
        Ok(())
    }
}

/// The line that defines a set, or adds to it.
fn set_line(word: &str, name: &str, values: &[Value]) -> String {
    struct Values<'v>(&'v [Value]);
    impl Display for Values<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            list(f, self.0)
        }
    }
    format!("{word} @{name} {}", Values(values))
}

/// The lines that make the list.
impl Display for RuleList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy {}", self.policy.name())?;
        writeln!(f, "tracking {}", self.tracking.name())?;
        for (name, values) in &self.sets {
            // A line is not too long for the language.
            let mut parts = values.chunks(512);
            writeln!(f, "{}", set_line("set", name, parts.next().unwrap_or_default()))?;
            for part in parts {
                writeln!(f, "{}", set_line("add", name, part))?;
            }
        }
        for (_, rule) in &self.rules {
            writeln!(f, "{rule}")?;
        }
        Ok(())
    }
}

/// A value as a set shows it.
pub(super) fn shown(of: &Value) -> String {
    struct One<'v>(&'v Value);
    impl Display for One<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            value(f, self.0)
        }
    }
    One(of).to_string()
}
