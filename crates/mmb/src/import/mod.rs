//! Rules of other firewalls, translated to mmb's.
//!
//! Each format has a reader, [`iptables`] and [`nft`]. Both give chains of one form, which are flattened and put in
//! mmb's order. Parts without a translation are listed by line, and those that decide about packets are named as
//! holes.
//!
//! ```
//! use netbricks_mmb::import::{ImportOptions, iptables};
//!
//! let saved = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n";
//! let imported = iptables(saved, &ImportOptions::default());
//! assert_eq!(
//!     imported.lines,
//!     ["add ip-saddr 10.0.0.0/8 tcp-dport 80 accept # line 3", "add net-proto ip4 drop # line 2: policy of FORWARD"],
//! );
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use self::condition::Conditions;

mod condition;
mod emit;
mod firewall;
mod flatten;
mod iptables;
mod iptables_rule;
mod nat;
mod nft;
mod nft_lexer;
mod nft_match;
mod nft_rule;
mod nft_tables;
mod order;

pub use iptables::iptables;
pub use nft::nft;

/// Facts that the text of a firewall's rules does not have.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The chain to translate, as `FORWARD` or `inet filter forward`; `None` for all that see forwarded packets.
    pub chain: Option<String>,
    /// Names of mmb's sets that are defined elsewhere.
    pub sets: BTreeSet<String>,
    /// The address of each interface, which `MASQUERADE` gives to connections.
    pub addresses: BTreeMap<String, IpAddr>,
    /// The path MTU in bytes, to which rules clamp the segment size.
    pub mtu: Option<u16>,
    /// The language of the translation.
    pub target: Language,
}

/// A language to which rules are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// mmb's commands.
    #[default]
    Mmb,
    /// Rules of the function `firewall`, which know states, answers and the log.
    ///
    /// They are for `tracking explicit`, as the other firewalls' rules are.
    Firewall,
}

/// A rule without a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The number of its line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The reason.
    pub why: String,
}

/// Rules in mmb's language, and what has no translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Commands, each of which the language understands.
    pub lines: Vec<String>,
    /// Rules without a translation, in order.
    pub skipped: Vec<Skipped>,
    /// Differences between the rules and their translation.
    pub warnings: Vec<String>,
}

/// A rule's place in its text, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    text: String,
}

/// The effect of a rule on its packets.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Accept,
    Drop,
    /// It drops and answers; the text is behind the firewall's `reject`.
    Reject(&'static str),
    Return,
    Jump(String),
    Goto(String),
    /// Targets of mmb, each for packets that fulfil more conditions.
    Change(Vec<(Conditions, String)>),
    Nat(Nat),
    /// It counts or logs.
    Nothing,
}

/// A translation of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nat {
    is_source: bool,
    /// An address or a range; `None` for the address of the interface.
    address: Option<String>,
    /// A port or a range.
    ports: Option<String>,
}

/// A rule of a chain.
#[derive(Clone, Debug)]
struct Rule {
    place: Place,
    /// Conditions of which one holds, each with an action.
    cases: Vec<(Conditions, Action)>,
    comment: Option<String>,
    /// The text that stands in the log before its packets.
    log: Option<String>,
    /// The reason why the rule has no translation.
    problem: Option<String>,
    warnings: Vec<String>,
}

/// The packets that a chain sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// Those that pass through.
    Forward,
    /// Before they are routed: destinations are translated here.
    Prerouting,
    /// After that: sources are translated here.
    Postrouting,
    /// Packets from or to the machine itself.
    Other,
}

/// A chain that packets enter, or that rules jump to.
#[derive(Clone, Debug)]
struct Chain {
    name: String,
    /// `None` for a chain that rules jump to.
    hook: Option<Hook>,
    is_nat: bool,
    priority: i64,
    drops: bool,
    place: Place,
    rules: Vec<Rule>,
}

/// Chains that can jump to each other.
#[derive(Clone, Debug)]
struct Table {
    name: String,
    version: condition::Version,
    chains: Vec<Chain>,
}

impl Imported {
    fn skip(&mut self, place: &Place, why: impl Into<String>) {
        self.skipped.push(Skipped { line: place.line, text: place.text.clone(), why: why.into() });
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Names a rule that decides about packets and has no translation.
    fn hole(&mut self, place: &Place, what: &str) {
        self.warn(format!("line {}: a hole: {what}: {}", place.line, place.text));
    }

    /// Puts what was skipped in order, each once: a chain may have been met by several jumps.
    fn finished(mut self) -> Self {
        self.skipped.sort_by(|a, b| (a.line, &a.why).cmp(&(b.line, &b.why)));
        self.skipped.dedup();
        let mut seen = BTreeSet::new();
        self.warnings.retain(|warning| seen.insert(warning.clone()));
        self
    }
}
