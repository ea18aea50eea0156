//! Rules of the function `firewall`, which decides by states as other firewalls do.
//!
//! Its list has the order of the text. Addresses, ports and interfaces have words of their own, and all other fields
//! stand behind `where`.

use std::fmt::Write as _;

use super::condition::{Conditions, Version, states};
use super::emit::quoted;
use super::flatten::{Flat, FlatAction};
use super::{Chain, Imported, Table};
use crate::language::parse_command;
use crate::rule::{Atom, Command, Comparison, Match, Value};

/// Names of states, by their bits.
const STATES: [(&str, u8); 5] = [
    ("new", states::NEW),
    ("established", states::ESTABLISHED),
    ("related", states::RELATED),
    ("invalid", states::INVALID),
    ("untracked", states::UNTRACKED),
];
/// Values of a set in one line.
const VALUES: usize = 256;

/// Writes the rules of a base chain, and its policy where it is the last.
pub(super) fn emit(flats: Vec<Flat>, last: Option<(&Table, &Chain)>, imported: &mut Imported) {
    for flat in &flats {
        write(flat, imported);
    }
    let Some((table, chain)) = last else { return };
    let action = if chain.drops { "deny" } else { "allow" };
    let version = version_word(table.version);
    imported.lines.push(format!(
        "{action}{version} # line {}: policy of {}",
        chain.place.line,
        one_line(&chain.name)
    ));
}

/// Lists rules that translate addresses, which is another function's work.
pub(super) fn without_translations(flats: &[Flat], imported: &mut Imported) {
    for flat in flats {
        if matches!(flat.action, FlatAction::Nat(_)) {
            imported.skip(&flat.place, "the firewall translates no addresses: that is the function `nat`");
        }
    }
}

const fn version_word(version: Version) -> &'static str {
    match version {
        Version::V4 => " ip4",
        Version::V6 => " ip6",
        Version::Any | Version::Ip => "",
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn write(flat: &Flat, imported: &mut Imported) {
    let action = match &flat.action {
        FlatAction::Accept => "allow".to_owned(),
        FlatAction::Drop => "deny".to_owned(),
        FlatAction::Reject(how) => format!("reject{how}"),
        FlatAction::Log => "count".to_owned(),
        FlatAction::Change(targets) => {
            let why = format!("the firewall changes no packets (`{targets}`): that is the function `mmb`");
            return imported.skip(&flat.place, why);
        }
        FlatAction::Nat(_) => return without_translations(std::slice::from_ref(flat), imported),
    };
    let mut line = action + &conditions(&flat.conditions);
    let (line, behind) = match line.find(" where ") {
        Some(at) => {
            let behind = line.split_off(at);
            (line, behind)
        }
        None => (line, String::new()),
    };
    let log = match flat.log.as_deref() {
        None => String::new(),
        Some("") => " log".to_owned(),
        Some(prefix) => format!(" log {}", quoted(prefix)),
    };
    let comment =
        flat.comment.as_deref().map_or_else(String::new, |text| format!(" comment {}", quoted(text)));
    let line = format!("{line}{log}{comment}{behind} # line {}", flat.place.line);
    if imported.lines.last() != Some(&line) {
        imported.lines.push(line);
    }
}

/// The parts of a rule for these conditions, each with a blank before it.
fn conditions(of: &Conditions) -> String {
    let mut text = version_word(of.version).to_owned();
    // Taking the text cannot fail.
    match (of.protocol, &of.not_protocols[..]) {
        (Some(number), _) => text += &protocol(number),
        (None, []) => {}
        (None, [one]) => {
            let _ = write!(text, " proto not {one}");
        }
        (None, several) => {
            let all: Vec<String> = several.iter().map(ToString::to_string).collect();
            let _ = write!(text, " proto not {{{}}}", all.join(", "));
        }
    }
    let mut words = Words::default();
    for one in &of.matches {
        words.take(one, of.protocol);
    }
    text += &words.text();
    if of.states & states::ALL != states::ALL {
        let names = STATES.iter().filter(|(_, bit)| of.states & bit != 0).map(|(name, _)| *name);
        let _ = write!(text, " state {}", names.collect::<Vec<_>>().join(","));
    }
    if !words.others.is_empty() {
        let _ = write!(text, " where {}", words.others.join(" "));
    }
    text
}

fn protocol(number: u8) -> String {
    match number {
        6 => " tcp".into(),
        17 => " udp".into(),
        1 => " icmp".into(),
        58 => " icmp6".into(),
        other => format!(" proto {other}"),
    }
}

/// The matches that have words of their own, and the others.
#[derive(Default)]
struct Words {
    from: Option<String>,
    from_port: Option<String>,
    to: Option<String>,
    to_port: Option<String>,
    input: Option<String>,
    output: Option<String>,
    kind: Option<String>,
    code: Option<String>,
    others: Vec<String>,
}

impl Words {
    fn take(&mut self, one: &Match, protocol: Option<u8>) {
        let place = match one.field.info().name.as_str() {
            "ip-saddr" | "ip6-saddr" => Some(&mut self.from),
            "ip-daddr" | "ip6-daddr" => Some(&mut self.to),
            "tcp-sport" | "udp-sport" => Some(&mut self.from_port),
            "tcp-dport" | "udp-dport" => Some(&mut self.to_port),
            "in" => Some(&mut self.input),
            "out" => Some(&mut self.output),
            "icmp-type" if protocol == Some(1) => Some(&mut self.kind),
            "icmp6-type" if protocol == Some(58) => Some(&mut self.kind),
            // A code stands behind a type.
            "icmp-code" | "icmp6-code" if self.kind.is_some() => Some(&mut self.code),
            _ => None,
        };
        match place.filter(|place| place.is_none()).zip(word(one)) {
            Some((place, word)) => *place = Some(word),
            None => self.others.push(one.to_string()),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut put = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                let _ = write!(text, " {name} {value}");
            }
        };
        put("type", &self.kind);
        put("code", &self.code);
        for (name, addresses, ports) in
            [("from", &self.from, &self.from_port), ("to", &self.to, &self.to_port)]
        {
            match (addresses, ports) {
                (None, Some(_)) => put(name, &Some("any".into())),
                _ => put(name, addresses),
            }
            put("port", ports);
        }
        put("in", &self.input);
        put("out", &self.output);
        text
    }
}

/// A match's value as the firewall writes it; `None` where it has no word for it.
fn word(one: &Match) -> Option<String> {
    let (comparison, value) = one.test.as_ref()?;
    let is_negated = match comparison {
        Comparison::Equal => one.is_negated,
        Comparison::NotEqual => !one.is_negated,
        _ => return None,
    };
    let text = values(value)?;
    Some(if is_negated { format!("not {text}") } else { text })
}

fn values(value: &Value) -> Option<String> {
    match value {
        Value::Set(all) => {
            let all: Option<Vec<String>> = all.iter().map(single).collect();
            Some(format!("{{{}}}", all?.join(", ")))
        }
        one => single(one),
    }
}

fn single(value: &Value) -> Option<String> {
    match value {
        Value::Atom(Atom::Interface(name)) => Some(quoted(name)),
        Value::Atom(Atom::Number(_) | Atom::Ipv4(_) | Atom::Ipv6(_))
        | Value::Range(..)
        | Value::Prefix(..) => Some(value.to_string()),
        Value::Named(name) => Some(format!("@{name}")),
        Value::Atom(_) | Value::Masked(..) | Value::Set(_) => None,
    }
}

/// The lines of a set, of which mmb has understood `define`.
///
/// # Errors
/// The reason why the firewall has no such sets.
pub(super) fn define(name: &str, given: &[String]) -> Result<Vec<String>, String> {
    if given.is_empty() {
        return Ok(vec![format!("set @{name} {{}}")]);
    }
    let mut lines = Vec::new();
    for part in given.chunks(VALUES) {
        let command = parse_command(&format!("define @{name} {{{}}}", part.join(", ")));
        let Some(Command::Define(_, parsed)) = command.map_err(|error| error.message)? else {
            return Err("its values are not understood".into());
        };
        let all: Option<Vec<String>> = parsed.iter().map(single).collect();
        let all = all.ok_or("the firewall's sets have addresses, numbers and interfaces")?;
        let word = if lines.is_empty() { "set" } else { "add" };
        lines.push(format!("{word} @{name} {{{}}}", all.join(", ")));
    }
    Ok(lines)
}

impl Imported {
    /// The translation in order; a list of the firewall begins with how it is to be read.
    pub(super) fn finished_in(mut self, target: super::Language) -> Self {
        if target == super::Language::Firewall {
            self.lines.splice(0..0, ["tracking explicit".to_owned(), "policy allow".to_owned()]);
        }
        self.finished()
    }
}
