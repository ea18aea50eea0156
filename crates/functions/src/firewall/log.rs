//! The log: the latest packets of rules that say `log`, as events.

use netbricks_core::EventLog;
use netbricks_core::packet::FlowKey;

use super::rules::Rules;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Passed,
    Denied,
    Rejected,
    Invalid,
    /// There was no room for its connection.
    Full,
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Passed => "allowed",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Invalid => "invalid",
            Self::Full => "table-full",
        }
    }
}

/// A packet in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// Its number in the log.
    number: u64,
    /// When it came (ns).
    time: u64,
    rule: u32,
    fate: Fate,
    flow: FlowKey,
    len: u32,
    ingress: u16,
}

impl Logged {
    pub(super) fn new(
        (number, time): (u64, u64),
        rule: u32,
        fate: Fate,
        flow: &FlowKey,
        len: usize,
        ingress: u16,
    ) -> Self {
        Self { number, time, rule, fate, flow: *flow, len: len as u32, ingress }
    }

    /// The packet as an object of JSON.
    pub(super) fn json(&self, rules: &Rules) -> String {
        let known = rules.built.by_id(self.rule);
        let label = known.map_or_else(|| "gone".to_owned(), |(index, data)| data.label(index));
        let prefix = known.and_then(|(_, data)| data.log.clone()).unwrap_or_default();
        let port = rules.setup.ports.names.iter().find(|(_, number)| number + 1 == self.ingress);
        let port = port.map_or("", |(name, _)| name.as_str());
        format!(
            "{{\"number\":{},\"time\":{},\"rule\":{},\"prefix\":{},\"fate\":\"{}\",\"flow\":{},\"in\":{},\
             \"bytes\":{}}}",
            self.number,
            self.time,
            in_json(&label),
            in_json(&prefix),
            self.fate.name(),
            in_json(&self.flow.to_string()),
            in_json(port),
            self.len
        )
    }
}

/// A text as a string of JSON (RFC 8259, section 7).
pub(super) fn in_json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..' ' => quoted += &format!("\\u{:04x}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// The packets in the log from a number on, one a line, oldest first.
pub(super) fn lines(log: &EventLog<Logged>, rules: &Rules, from: u64) -> String {
    let mut text = String::new();
    log.each(|number, logged| {
        if number >= from {
            text += &logged.json(rules);
            text.push('\n');
        }
    });
    text
}
