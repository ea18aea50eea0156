//! Rules and commands, as they are understood.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use netbricks_core::packet::MacAddress;

use crate::field::FieldId;

/// A rule: which packets it means, and what it does with them.
///
/// A packet is meant where every match holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Whether a packet that it means makes an entry for its connection.
    pub is_stateful: bool,
    /// At least one.
    pub matches: Vec<Match>,
    /// At least one, in the order of the line.
    pub targets: Vec<Target>,
    /// A remark for people.
    pub comment: Option<String>,
}

/// A condition about one field, or several conditions of which one holds ([`Value::Set`]).
///
/// Matches at other places of a line are equal.
#[derive(Clone, Debug)]
pub struct Match {
    /// Whether the condition must not hold. The packet has the field's layer in any case.
    pub is_negated: bool,
    /// The field.
    pub field: FieldId,
    /// The comparison; `None` for a flag that is 1, an option or layer that is there.
    pub test: Option<(Comparison, Value)>,
    /// Its bytes in the line.
    pub span: Range<usize>,
}

impl PartialEq for Match {
    fn eq(&self, other: &Self) -> bool {
        (self.is_negated, self.field) == (other.is_negated, other.field) && self.test == other.test
    }
}

/// How a field is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`, or no sign.
    Equal,
    /// `!=`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    Greater,
    /// `>=`.
    AtLeast,
}

/// A value of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One value.
    Atom(Atom),
    /// From one value to another, both included.
    Range(Atom, Atom),
    /// An IPv4 or IPv6 prefix. Host bits were cleared.
    Prefix(Atom, u8),
    /// A value, and the bits of the field that are compared: `10.0.0.1/255.0.0.255`, `x12&x0f`.
    Masked(Atom, Atom),
    /// Any of these.
    Set(Vec<Value>),
    /// Any value of the set with this name, without its `@`.
    Named(String),
}

/// A single value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Atom {
    /// A number of at most 128 bits.
    Number(u128),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// A MAC address.
    Mac(MacAddress),
    /// Bytes, for fields of variable length.
    Bytes(Vec<u8>),
    /// The name of an interface, for `in` and `out`.
    Interface(String),
}

/// One thing that a rule does with a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Writes a field.
    Mod(FieldId, Atom),
    /// Takes a TCP option out. Several `strip !` of one rule take all options out but those.
    Strip {
        /// Whether this option stays and all others go.
        is_kept: bool,
        /// The option; `None` for all options.
        option: Option<u8>,
    },
    /// Adds a TCP option, with the value behind its kind and length.
    Add {
        /// The option's kind.
        option: u8,
        /// The value: a number as wide as the option's field, or bytes; none for options without one.
        value: Option<Atom>,
    },
    /// Drops the packet, or so many percent of packets.
    Drop(Option<f64>),
    /// Lets the packet pass, without a look at later rules.
    Accept,
    /// Sends connections to these ways out in turn, by a hash of the flow.
    Balance(Vec<u8>),
    /// Writes one value a connection, and its opposite in the other direction.
    Map(FieldId, MapTo),
    /// Writes a random value a connection, and translates it in both directions.
    Shuffle(FieldId),
}

/// The values that `map` gives to connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapTo {
    /// One of these.
    Value(Value),
    /// Any value that the field can have.
    Random,
}

/// A rule among others: its place from 1, its name, or the same rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// The place, from 1.
    Number(usize),
    /// The name.
    Name(String),
    /// The rule with the same matches and targets.
    Same(Rule),
}

/// Which tables `show` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The classifier's tables.
    Tables,
    /// Connections.
    Connections,
    /// Sets.
    Sets,
    /// The fields that rules can speak of.
    Fields,
}

/// The order in which rules apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Rules that match apply in order until one drops or accepts.
    #[default]
    Ordered,
    /// All rules that match apply; `accept` outweighs `drop`.
    AllMatch,
}

/// A packet that is described by words: `from 10.0.0.1 to …`, or its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribedPacket {
    /// The values of fields, each as in `mod`. Layers follow from the fields.
    Fields(Vec<(FieldId, Atom)>),
    /// A frame's bytes.
    Frame(Vec<u8>),
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Rules apply to packets that arrive at this interface (`true`), or do not (`false`).
    Enable(String, bool),
    /// Lists the rules.
    List,
    /// Deletes all rules.
    Flush,
    /// Deletes a rule.
    Delete(Selector),
    /// Shows tables; the flag asks for more.
    Show(Shown, bool),
    /// Adds a rule.
    Add {
        /// Its place from 1; at the end where there is none.
        at: Option<usize>,
        /// Its name.
        name: Option<String>,
        /// The rule.
        rule: Rule,
    },
    /// Puts a rule in another's place.
    Replace(Selector, Rule),
    /// Moves a rule before (`true`) or after another.
    Move(Selector, bool, Selector),
    /// Defines a set, or replaces its values.
    Define(String, Vec<Value>),
    /// Adds values to a set.
    Extend(String, Vec<Value>),
    /// Takes values out of a set.
    Shrink(String, Vec<Value>),
    /// Sets the order in which rules apply.
    Mode(Mode),
    /// Drops (`true`) or accepts packets that no rule accepts or drops.
    PolicyDrop(bool),
    /// Explains which rules match a packet.
    Explain(DescribedPacket),
    /// Runs the rules over a capture.
    Test(String),
    /// Checks the verdict on a packet: whether it is dropped.
    Expect(DescribedPacket, bool),
    /// Begins a batch.
    Begin,
    /// Makes the changes of the batch, all together.
    Commit,
    /// Forgets the batch.
    Abort,
}
