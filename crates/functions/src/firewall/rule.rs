//! Rules as they are understood, and lists of them.

use std::collections::BTreeMap;
use std::ops::Range;

use netbricks_mmb::rule::{Match, Value};

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The message by which a packet is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// A reset for TCP, and "administratively prohibited" for all else.
    #[default]
    Usual,
    /// A reset; packets that are not TCP get no answer.
    Reset,
    /// ICMP "administratively prohibited".
    Prohibited,
    /// ICMP "port unreachable".
    Port,
    /// ICMP "host unreachable", in IPv6 "address unreachable".
    Host,
    /// ICMP "network unreachable", in IPv6 "no route".
    Route,
}

/// The fate of the packets of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They pass, and begin connections.
    Allow,
    /// They are dropped.
    Deny,
    /// They are dropped, and their senders are told.
    Reject(Answer),
    /// They are counted, and meet the rules behind this one.
    Count,
}

/// States of a packet's connection, as bits.
pub mod states {
    /// It begins a connection, or belongs to one that was not answered yet.
    pub const NEW: u8 = 1;
    /// It belongs to a connection of which both directions were seen.
    pub const ESTABLISHED: u8 = 2;
    /// It is an ICMP error about a known connection.
    pub const RELATED: u8 = 4;
    /// It fits no connection and begins none.
    pub const INVALID: u8 = 8;
    /// It is of a kind that makes no connections: neighbour discovery, multicast listener discovery.
    pub const UNTRACKED: u8 = 16;
    /// All states.
    pub const ALL: u8 = 31;
    /// Each state with its name.
    pub const NAMES: [(&str, u8); 5] = [
        ("new", NEW),
        ("established", ESTABLISHED),
        ("related", RELATED),
        ("invalid", INVALID),
        ("untracked", UNTRACKED),
    ];
}

/// Values of which one is meant, or none of which is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Whether packets with one of these values are not meant.
    pub is_negated: bool,
    /// The values; sets stand among them by name.
    pub values: Vec<Value>,
    /// Its bytes in the line.
    pub span: Span,
}

/// A place in a line. Places of equal rules need not be equal.
#[derive(Clone, Debug, Default)]
pub struct Span(pub Range<usize>);

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// One end of a packet's way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Addresses; any where there are none.
    pub addresses: Option<Choice>,
    /// Ports; any where there are none.
    pub ports: Option<Choice>,
}

/// A test of TCP's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagTest {
    /// Whether the flags must differ.
    pub is_negated: bool,
    /// The flags that are set, of those in the mask.
    pub set: u8,
    /// The flags that are looked at.
    pub mask: u8,
}

/// A rule: which packets it means, and their fate.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The fate.
    pub action: Action,
    /// The version of IP.
    pub version: Option<Version>,
    /// IP protocols.
    pub protocol: Option<Choice>,
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
    /// Ports of arrival.
    pub input: Option<Choice>,
    /// Ports of departure.
    pub output: Option<Choice>,
    /// Types of ICMP or ICMPv6.
    pub icmp_type: Option<Choice>,
    /// Their codes.
    pub icmp_code: Option<Choice>,
    /// TCP's flags.
    pub flags: Option<FlagTest>,
    /// States of the connection, as bits; 0 where the rule does not say.
    pub states: u8,
    /// Matches of mmb's language, on any field.
    pub matches: Vec<Match>,
    /// Whether its packets are logged, and the text that stands in the log.
    pub log: Option<String>,
    /// Whether an allowed packet makes no connection.
    pub is_stateless: bool,
    /// Its name.
    pub name: Option<String>,
    /// A remark for people.
    pub comment: Option<String>,
}

impl Rule {
    /// A rule about all packets.
    pub fn of(action: Action) -> Self {
        Self {
            action,
            version: None,
            protocol: None,
            from: End::default(),
            to: End::default(),
            input: None,
            output: None,
            icmp_type: None,
            icmp_code: None,
            flags: None,
            states: 0,
            matches: Vec::new(),
            log: None,
            is_stateless: false,
            name: None,
            comment: None,
        }
    }

    /// All choices of values, each with the kind of its values.
    pub fn choices(&self) -> impl Iterator<Item = (ValueKind, &Choice)> {
        use ValueKind as K;
        [
            (K::Protocol, &self.protocol),
            (K::Address, &self.from.addresses),
            (K::Port, &self.from.ports),
            (K::Address, &self.to.addresses),
            (K::Port, &self.to.ports),
            (K::Interface, &self.input),
            (K::Interface, &self.output),
            (K::Number, &self.icmp_type),
            (K::Number, &self.icmp_code),
        ]
        .into_iter()
        .filter_map(|(kind, choice)| Some((kind, choice.as_ref()?)))
    }
}

/// The kind of the values that may stand at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Addresses and prefixes of both versions of IP.
    Address,
    /// Ports of TCP, UDP, SCTP, DCCP and UDP-Lite.
    Port,
    /// IP protocols.
    Protocol,
    /// Ports of the chain file.
    Interface,
    /// Other numbers.
    Number,
}

/// The fate of packets that no rule decides about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// They pass.
    Allow,
    /// They are dropped.
    #[default]
    Deny,
    /// They are dropped, and their senders are told.
    Reject,
}

/// The part that connections have in decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// Packets of known connections pass, and invalid ones are dropped, unless a rule with `state` decides otherwise.
    ///
    /// Rules without `state` are about packets that begin connections.
    #[default]
    Automatic,
    /// Rules decide about every packet, also by `state`.
    Explicit,
    /// No connections are remembered.
    Off,
}

/// A set and its values.
pub type Sets = BTreeMap<String, Vec<Value>>;

/// A list of rules, with what stands beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList {
    /// The fate of packets that no rule decides about.
    pub policy: Policy,
    /// The part of connections.
    pub tracking: Tracking,
    /// Sets by name, without `@`.
    pub sets: Sets,
    /// The rules in order, each with the number of its line.
    pub rules: Vec<(usize, Rule)>,
}
