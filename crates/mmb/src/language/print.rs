//! Commands and rules as lines. The parser reads each line back as the same command or rule.

use std::fmt::{self, Display, Formatter, Write};

use netbricks_core::packet::field::Show;

use super::check::option_domain;
use super::lexer::is_word;
use super::names::Registry;
use super::words;
use crate::field::FieldId;
use crate::rule::{
    Atom, Command, Comparison, DescribedPacket, MapTo, Match, Mode, Rule, Selector, Shown, Target, Value,
};

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        })
    }
}

/// Numbers are decimal. A field's own form is known by a [`Match`] or a [`Target`].
impl Display for Atom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Ipv4(address) => write!(f, "{address}"),
            Self::Ipv6(address) => write!(f, "{address}"),
            Self::Mac(address) => write!(f, "{address}"),
            Self::Bytes(bytes) => quoted(f, bytes),
            Self::Interface(name) => interface(f, name),
        }
    }
}

/// Numbers are decimal, and bytes texts in quotes, as in the values of a set.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        value(f, self, None)
    }
}

/// Whether a word needs no quotes.
pub(super) fn is_plain(word: &str) -> bool {
    word.bytes().all(is_word) && word.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn interface(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    let is_bare = is_plain(name) && !words::is_reserved(name) && FieldId::named(name).is_none();
    if is_bare { f.write_str(name) } else { quoted(f, name.as_bytes()) }
}

/// A text in quotes. Bytes that are no UTF-8 are escaped.
fn quoted(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\0'..' ' | '\x7f' => write!(f, "\\x{:02x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_char('"')
}

fn hexadecimal(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// A value of a field, in the field's form. `is_single` where no other value stands beside it.
fn atom(f: &mut Formatter<'_>, atom: &Atom, field: Option<FieldId>, is_single: bool) -> fmt::Result {
    let Some(field) = field else { return write!(f, "{atom}") };
    let info = field.info();
    match atom {
        Atom::Number(number) => match info.show {
            Show::Hex => write!(f, "{number:#x}"),
            Show::Protocol | Show::EtherType => {
                let registry = Registry::of(info).filter(|_| is_single);
                match registry.and_then(|registry| registry.name(*number)) {
                    Some(name) => f.write_str(name),
                    None if info.show == Show::EtherType => write!(f, "{number:#06x}"),
                    None => write!(f, "{number}"),
                }
            }
            _ => write!(f, "{number}"),
        },
        Atom::Bytes(bytes) if !bytes.is_empty() => {
            f.write_char('x')?;
            hexadecimal(f, bytes)
        }
        _ => write!(f, "{atom}"),
    }
}

fn value(f: &mut Formatter<'_>, value: &Value, field: Option<FieldId>) -> fmt::Result {
    match value {
        Value::Atom(one) => atom(f, one, field, true),
        Value::Range(low, high) => {
            atom(f, low, field, false)?;
            f.write_char('-')?;
            atom(f, high, field, false)
        }
        Value::Prefix(address, length) => write!(f, "{address}/{length}"),
        Value::Masked(Atom::Number(number), Atom::Number(mask)) => write!(f, "{number:#x}&{mask:#x}"),
        Value::Masked(address @ (Atom::Ipv4(_) | Atom::Ipv6(_) | Atom::Mac(_)), mask) => {
            write!(f, "{address}/{mask}")
        }
        Value::Masked(bytes, mask) => {
            atom(f, bytes, field, false)?;
            f.write_char('&')?;
            atom(f, mask, field, false)
        }
        Value::Set(values) => {
            f.write_char('{')?;
            for (at, one) in values.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { ", " })?;
                self::value(f, one, field)?;
            }
            f.write_char('}')
        }
        Value::Named(name) => write!(f, "@{name}"),
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = &self.field.info().name;
        write!(f, "{}{name}", if self.is_negated { "! " } else { "" })?;
        let Some((comparison, tested)) = &self.test else { return Ok(()) };
        if *comparison != Comparison::Equal {
            write!(f, " {comparison}")?;
        }
        f.write_char(' ')?;
        value(f, tested, Some(self.field))
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of = |field: &FieldId| &field.info().name;
        match self {
            Self::Mod(field, written) => {
                write!(f, "mod {} ", of(field))?;
                atom(f, written, Some(*field), true)
            }
            Self::Strip { is_kept, option } => {
                f.write_str(if *is_kept { "strip ! " } else { "strip " })?;
                match option {
                    Some(option) => f.write_str(&option_domain(*option).0),
                    None => f.write_str("all"),
                }
            }
            Self::Add { option, value } => {
                write!(f, "add {}", option_domain(*option).0)?;
                match value {
                    Some(Atom::Bytes(bytes)) => {
                        f.write_str(" x")?;
                        hexadecimal(f, bytes)
                    }
                    Some(value) => write!(f, " {value}"),
                    None => Ok(()),
                }
            }
            Self::Drop(None) => f.write_str("drop"),
            Self::Drop(Some(percent)) => write!(f, "drop {percent}"),
            Self::Accept => f.write_str("accept"),
            Self::Balance(outputs) => {
                f.write_str("lb")?;
                outputs.iter().try_for_each(|output| write!(f, " {output}"))
            }
            Self::Map(field, MapTo::Random) => write!(f, "map {} random", of(field)),
            Self::Map(field, MapTo::Value(to)) => {
                write!(f, "map {} ", of(field))?;
                value(f, to, Some(*field))
            }
            Self::Shuffle(field) => write!(f, "shuffle {}", of(field)),
        }
    }
}

/// Matches, targets and comment, in the order of the line.
struct Parts<'a>(&'a Rule);

impl Display for Parts<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(rule) = self;
        for condition in &rule.matches {
            write!(f, "{condition} ")?;
        }
        for (at, target) in rule.targets.iter().enumerate() {
            write!(f, "{}{target}", if at == 0 { "" } else { " " })?;
        }
        if let Some(comment) = &rule.comment {
            f.write_str(" comment ")?;
            quoted(f, comment.as_bytes())?;
        }
        Ok(())
    }
}

/// The rule as it stands behind `add`; a stateful one has `stateful` before it.
impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_stateful { "stateful " } else { "" }, Parts(self))
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(place) => write!(f, "{place}"),
            Self::Name(name) => f.write_str(name),
            Self::Same(rule) => write!(f, "= {rule}"),
        }
    }
}

impl Display for DescribedPacket {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields(fields) => {
                for (at, (field, value)) in fields.iter().enumerate() {
                    write!(f, "{}{} ", if at == 0 { "" } else { " " }, field.info().name)?;
                    atom(f, value, Some(*field), true)?;
                }
                Ok(())
            }
            Self::Frame(bytes) => {
                f.write_str("hex ")?;
                hexadecimal(f, bytes)
            }
        }
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enable(name, is_enabled) => {
                f.write_str(if *is_enabled { "enable " } else { "disable " })?;
                if is_plain(name) { f.write_str(name) } else { quoted(f, name.as_bytes()) }
            }
            Self::List => f.write_str("list"),
            Self::Flush => f.write_str("flush"),
            Self::Delete(selector) => write!(f, "delete {selector}"),
            Self::Show(shown, is_verbose) => {
                f.write_str(match shown {
                    Shown::Tables => "show tables",
                    Shown::Connections => "show connections",
                    Shown::Sets => "show sets",
                    Shown::Fields => "show fields",
                })?;
                f.write_str(if *is_verbose { " verbose" } else { "" })
            }
            Self::Add { at, name, rule } => {
                f.write_str(if rule.is_stateful { "add-stateful" } else { "add" })?;
                if let Some(at) = at {
                    write!(f, " at {at}")?;
                }
                if let Some(name) = name {
                    write!(f, " name {name}")?;
                }
                write!(f, " {}", Parts(rule))
            }
            Self::Replace(selector, rule) => write!(f, "replace {selector} {rule}"),
            Self::Move(moved, is_before, other) => {
                write!(f, "move {moved} {} {other}", if *is_before { "before" } else { "after" })
            }
            Self::Define(name, values) => set(f, "define", name, values),
            Self::Extend(name, values) => set(f, "extend", name, values),
            Self::Shrink(name, values) => set(f, "shrink", name, values),
            Self::Mode(Mode::Ordered) => f.write_str("mode ordered"),
            Self::Mode(Mode::AllMatch) => f.write_str("mode all-match"),
            Self::PolicyDrop(is_drop) => f.write_str(if *is_drop { "policy drop" } else { "policy accept" }),
            Self::Explain(packet) => write!(f, "explain {packet}"),
            Self::Test(file) => {
                let is_bare = !file.is_empty() && file.bytes().all(|byte| is_word(byte) || byte == b'/');
                f.write_str("test ")?;
                if is_bare { f.write_str(file) } else { quoted(f, file.as_bytes()) }
            }
            Self::Expect(packet, is_dropped) => {
                write!(f, "expect {packet} {}", if *is_dropped { "drop" } else { "accept" })
            }
            Self::Begin => f.write_str("begin"),
            Self::Commit => f.write_str("commit"),
            Self::Abort => f.write_str("abort"),
        }
    }
}

fn set(f: &mut Formatter<'_>, word: &str, name: &str, values: &[Value]) -> fmt::Result {
    write!(f, "{word} @{name} {{")?;
    for (at, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
    }
    f.write_char('}')
}
