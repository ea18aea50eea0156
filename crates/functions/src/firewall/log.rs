//! The log: the latest packets of rules that say `log`, in a ring.

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{Encode, RingLog};

use super::rules::Rules;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fate {
    Passed,
    Denied,
    Rejected,
    Invalid,
    /// There was no room for its connection.
    Full,
}

impl Fate {
    const ALL: [Self; 5] = [Self::Passed, Self::Denied, Self::Rejected, Self::Invalid, Self::Full];

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
    rule: u32,
    fate: Fate,
    flow: [u64; 5],
    len: u32,
    ingress: u16,
}

impl Logged {
    pub(super) fn new(rule: u32, fate: Fate, flow: &FlowKey, len: usize, ingress: u16) -> Self {
        Self { rule, fate, flow: flow.words(), len: len as u32, ingress }
    }

    /// The packet as an object of JSON, which came at `time` (ns) and has this number in the log.
    pub(super) fn json(&self, number: u64, time: u64, rules: &Rules) -> String {
        let known = rules.built.by_id(self.rule);
        let label = known.map_or_else(|| "gone".to_owned(), |(index, data)| data.label(index));
        let prefix = known.and_then(|(_, data)| data.log.clone()).unwrap_or_default();
        let flow = FlowKey::try_from_words(self.flow);
        let flow = flow.map_or_else(String::new, |flow| flow.to_string());
        let port = rules.setup.ports.names.iter().find(|(_, number)| number + 1 == self.ingress);
        let port = port.map_or("", |(name, _)| name.as_str());
        format!(
            "{{\"number\":{number},\"time\":{time},\"rule\":{},\"prefix\":{},\"fate\":\"{}\",\"flow\":{},\"in\":{},\
             \"bytes\":{}}}",
            in_json(&label),
            in_json(&prefix),
            self.fate.name(),
            in_json(&flow),
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
pub(super) fn lines(log: &RingLog<Logged>, rules: &Rules, from: u64) -> String {
    let gone = log.evicted() + log.expired();
    let mut kept: Vec<(u64, Logged)> = log.iter(0).collect();
    kept.reverse();
    let numbered = (gone..).zip(kept).skip_while(|(number, _)| *number < from);
    let mut text = String::new();
    for (number, (time, logged)) in numbered {
        text += &logged.json(number, time, rules);
        text.push('\n');
    }
    text
}

impl Encode for Logged {
    const SIZE: usize = 4 + 1 + 40 + 4 + 2;
    const VERSION: u16 = 1;

    fn encode(&self, to: &mut [u8]) {
        (self.rule, self.fate as u8, self.flow, self.len, self.ingress).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let (rule, fate, flow, len, ingress) = <(u32, u8, [u64; 5], u32, u16)>::decode(from)?;
        FlowKey::try_from_words(flow)?;
        Some(Self { rule, fate: *Fate::ALL.get(usize::from(fate))?, flow, len, ingress })
    }
}
