//! The values that a field can have, read from words.

use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::nearest;
use netbricks_core::packet::MacAddress;
use netbricks_core::packet::field::Show;

use super::error::Fault;
use super::names::Registry;
use crate::field::{FieldId, Kind};
use crate::rule::Atom;

/// The most bytes that a value of a payload has.
pub const LONGEST_PAYLOAD: usize = 1024;
/// The most bytes that the value of a TCP option has: 40 without its kind and length.
pub const LONGEST_OPTION: usize = 38;

/// The values of a set, all of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Numbers: ports, protocols.
    Number,
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// MAC addresses.
    Mac,
    /// Bytes.
    Bytes,
    /// Interfaces.
    Interface,
}

impl SetKind {
    /// The kind of a value.
    pub fn of(atom: &Atom) -> Self {
        match atom {
            Atom::Number(_) => Self::Number,
            Atom::Ipv4(_) => Self::Ipv4,
            Atom::Ipv6(_) => Self::Ipv6,
            Atom::Mac(_) => Self::Mac,
            Atom::Bytes(_) => Self::Bytes,
            Atom::Interface(_) => Self::Interface,
        }
    }
    /// Its name in messages: "IPv4 addresses".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Number => "numbers",
            Self::Ipv4 => "IPv4 addresses",
            Self::Ipv6 => "IPv6 addresses",
            Self::Mac => "MAC addresses",
            Self::Bytes => "bytes",
            Self::Interface => "interfaces",
        }
    }
}

/// The values that may stand at a place of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Numbers of so many bits, some with a name.
    Number(u16, Option<Registry>),
    Ipv4,
    Ipv6,
    Mac,
    /// So many bytes at most.
    Bytes(usize),
    Interface,
    /// Those of any set.
    Any,
}

impl Domain {
    /// The values of a field; `None` where it has none.
    pub(crate) fn of(field: FieldId) -> Option<Self> {
        let info = field.info();
        Some(match (info.kind, info.show) {
            (Kind::All, _) => return None,
            (Kind::In | Kind::Out, _) => Self::Interface,
            (Kind::Payload, _) => Self::Bytes(LONGEST_PAYLOAD),
            (Kind::BytesOption { .. }, _) => Self::Bytes(LONGEST_OPTION),
            (_, Show::Ipv4) => Self::Ipv4,
            (_, Show::Ipv6) => Self::Ipv6,
            (_, Show::Mac) => Self::Mac,
            (kind, _) => Self::Number(kind.bits(), Registry::of(info)),
        })
    }

    /// Bits of a value; 0 where it has no number.
    pub(crate) const fn bits(self) -> u16 {
        match self {
            Self::Number(bits, _) => bits,
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
            Self::Mac => 48,
            Self::Bytes(_) | Self::Interface | Self::Any => 0,
        }
    }

    /// Whether sets of this kind can hold these values.
    pub(crate) const fn takes(self, kind: SetKind) -> bool {
        matches!(
            (self, kind),
            (Self::Any, _)
                | (Self::Number(..), SetKind::Number)
                | (Self::Ipv4, SetKind::Ipv4)
                | (Self::Ipv6, SetKind::Ipv6)
                | (Self::Mac, SetKind::Mac)
                | (Self::Bytes(_), SetKind::Bytes)
                | (Self::Interface, SetKind::Interface)
        )
    }

    /// The values of a set, once its first value is known.
    pub(crate) fn of_set(kind: SetKind) -> Self {
        match kind {
            SetKind::Number => Self::Number(128, Some(Registry::OfSets)),
            SetKind::Ipv4 => Self::Ipv4,
            SetKind::Ipv6 => Self::Ipv6,
            SetKind::Mac => Self::Mac,
            SetKind::Bytes => Self::Bytes(LONGEST_PAYLOAD),
            SetKind::Interface => Self::Interface,
        }
    }

    /// The value that a word stands for, if it is one of these.
    pub(crate) fn read(self, word: &str) -> Option<Atom> {
        match self {
            Self::Number(bits, registry) => match number(word) {
                Some(value) => (value <= largest(bits)).then_some(Atom::Number(value)),
                None => registry.and_then(|registry| registry.value(word)).map(Atom::Number),
            },
            Self::Ipv4 => match word.parse() {
                Ok(address) => Some(Atom::Ipv4(address)),
                Err(_) => Some(Atom::Ipv4(Ipv4Addr::from_bits(u32::try_from(hexadecimal(word)?).ok()?))),
            },
            Self::Ipv6 => match word.parse() {
                Ok(address) => Some(Atom::Ipv6(address)),
                Err(_) => Some(Atom::Ipv6(Ipv6Addr::from_bits(hexadecimal(word)?))),
            },
            Self::Mac => match word.parse() {
                Ok(address) => Some(Atom::Mac(address)),
                Err(_) => {
                    let [zero @ .., a, b, c, d, e, f] = hexadecimal(word)?.to_be_bytes();
                    (zero == [0; 10]).then(|| Atom::Mac(MacAddress::new([a, b, c, d, e, f])))
                }
            },
            Self::Bytes(most) => {
                bytes(hexadecimal_digits(word)?).filter(|bytes| bytes.len() <= most).map(Atom::Bytes)
            }
            Self::Interface => Some(Atom::Interface(word.to_owned())),
            Self::Any => any(word),
        }
    }

    /// The value that a text in quotes stands for.
    pub(crate) fn read_text(self, bytes: Vec<u8>, of: &str) -> Result<Atom, Fault> {
        match self {
            Self::Interface => match String::from_utf8(bytes) {
                Ok(name) if !name.is_empty() => Ok(Atom::Interface(name)),
                _ => Err(Fault::new("no name of an interface", "write a name such as `eth0`")),
            },
            Self::Bytes(most) if bytes.len() > most => Err(too_long(bytes.len(), most, of)),
            Self::Bytes(_) => Ok(Atom::Bytes(bytes)),
            Self::Any if bytes.len() > LONGEST_PAYLOAD => Err(too_long(bytes.len(), LONGEST_PAYLOAD, of)),
            Self::Any => Ok(Atom::Bytes(bytes)),
            _ => Err(Fault::new(format!("a text is no value of {of}"), self.range_of(of))),
        }
    }

    /// The reason why a word is none of these values. `of` is the field's name, or `the set`.
    pub(crate) fn explain(self, word: &str, of: &str) -> Fault {
        if let Self::Bytes(most) = self
            && let Some(digits) = hexadecimal_digits(word)
        {
            return match bytes(digits) {
                Some(bytes) => too_long(bytes.len(), most, of),
                None => Fault::new("a byte has two digits", format!("write a digit more: `x0{digits}`")),
            };
        }
        let (is_v4, is_v6) = (word.parse::<Ipv4Addr>().is_ok(), word.parse::<Ipv6Addr>().is_ok());
        match self {
            Self::Ipv4 | Self::Any if is_v6 => return self.other_version(word, "IPv6", "IPv4", of),
            Self::Ipv6 | Self::Any if is_v4 => return self.other_version(word, "IPv4", "IPv6", of),
            _ => {}
        }
        let is_long = word.bytes().all(|byte| byte.is_ascii_digit()) || hexadecimal_digits(word).is_some();
        if is_long && !word.is_empty() && number(word).is_none() {
            return Fault::new(format!("`{}` has more than 128 bits", shortened(word)), self.range_of(of));
        }
        let mut hint = self.range_of(of);
        if let Self::Number(_, Some(registry)) = self
            && word.len() <= 64
            && let Some(near) = nearest(&word.to_ascii_lowercase(), registry.names().map(|(name, _)| name))
        {
            hint = format!("did you mean `{near}`? {hint}");
        }
        Fault::new(format!("`{}` is no value of {of}", shortened(word)), hint)
    }

    fn other_version(self, word: &str, found: &str, takes: &str, of: &str) -> Fault {
        let message = format!("`{word}` is an {found} address, and {of} takes {takes} addresses");
        let other = match (self, of.strip_prefix("ip6-"), of.strip_prefix("ip-")) {
            (_, Some(rest), _) => format!("ip-{rest}"),
            (_, _, Some(rest)) => format!("ip6-{rest}"),
            _ => String::new(),
        };
        match FieldId::named(&other) {
            Some(_) => Fault::new(message, format!("write `{other} {word}`")),
            None => Fault::new(message, format!("write an {takes} address")),
        }
    }

    /// The values that there are, in a sentence.
    pub(crate) fn range_of(self, of: &str) -> String {
        match self {
            Self::Number(128, Some(_)) => {
                format!("{of} takes numbers of at most 128 bits, or names such as `http`")
            }
            Self::Number(1, _) => format!("{of} is 0 or 1"),
            Self::Number(bits, None) => format!("{of} is a number from 0 to {}", largest(bits)),
            Self::Number(bits, Some(registry)) => {
                let example = registry.names().next().map_or("", |(name, _)| name);
                format!("{of} is a number from 0 to {}, or a name such as `{example}`", largest(bits))
            }
            Self::Ipv4 => {
                format!("{of} takes IPv4 addresses such as `10.0.0.1`, and prefixes such as `10.0.0.0/24`")
            }
            Self::Ipv6 => {
                format!(
                    "{of} takes IPv6 addresses such as `2001:db8::1`, and prefixes such as `2001:db8::/32`"
                )
            }
            Self::Mac => format!("{of} takes MAC addresses such as `02:00:00:00:00:01`"),
            Self::Bytes(_) => {
                format!("{of} takes bytes such as `x474554`, or a text in quotes such as `\"GET \"`")
            }
            Self::Interface => format!("{of} takes the name of an interface"),
            Self::Any => format!("{of} takes numbers, addresses, interfaces, or texts in quotes"),
        }
    }
}

fn too_long(found: usize, most: usize, of: &str) -> Fault {
    Fault::new(format!("{found} bytes are too many for {of}"), format!("write at most {most} bytes"))
}

/// A word in a message.
pub(crate) fn shortened(word: &str) -> String {
    match word.char_indices().nth(48) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()),
        None => word.to_owned(),
    }
}

/// The largest number of so many bits.
pub(crate) const fn largest(bits: u16) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// A decimal or hexadecimal number: `31`, `0x1f`, `x1f`.
pub(crate) fn number(word: &str) -> Option<u128> {
    match word.as_bytes().first()? {
        b'x' | b'X' => hexadecimal(word),
        b'0' if word.len() > 1 && matches!(word.as_bytes().get(1), Some(b'x' | b'X')) => hexadecimal(word),
        b'0'..=b'9' => word.parse().ok(),
        _ => None,
    }
}

fn hexadecimal(word: &str) -> Option<u128> {
    u128::from_str_radix(hexadecimal_digits(word)?, 16).ok()
}

/// The digits behind `0x` or `x`, at least one.
pub(crate) fn hexadecimal_digits(word: &str) -> Option<&str> {
    let word = word.strip_prefix('0').unwrap_or(word);
    let digits = word.strip_prefix(['x', 'X'])?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// The bytes that pairs of hexadecimal digits stand for.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// A value of a set: a number, an address, or a name of a port or protocol.
///
/// Other words are names of interfaces.
fn any(word: &str) -> Option<Atom> {
    if let Some(number) = number(word) {
        return Some(Atom::Number(number));
    }
    if let Ok(address) = word.parse::<MacAddress>() {
        return Some(Atom::Mac(address));
    }
    if word.contains(['.', ':']) {
        if let Ok(address) = word.parse() {
            return Some(Atom::Ipv4(address));
        }
        if let Ok(address) = word.parse() {
            return Some(Atom::Ipv6(address));
        }
    }
    Registry::OfSets.value(word).map(Atom::Number)
}

/// The number that a value stands for; `None` for bytes and interfaces.
pub(crate) fn number_of(atom: &Atom) -> Option<u128> {
    Some(match atom {
        Atom::Number(number) => *number,
        Atom::Ipv4(address) => address.to_bits().into(),
        Atom::Ipv6(address) => address.to_bits(),
        Atom::Mac(address) => {
            address.octets().iter().fold(0, |number, octet| number << 8 | u128::from(*octet))
        }
        Atom::Bytes(_) | Atom::Interface(_) => return None,
    })
}

/// The value of the same kind as `like` with this number.
pub(crate) fn with_number(like: &Atom, number: u128) -> Atom {
    match like {
        Atom::Ipv4(_) => Atom::Ipv4(Ipv4Addr::from_bits(number as u32)),
        Atom::Ipv6(_) => Atom::Ipv6(Ipv6Addr::from_bits(number)),
        Atom::Mac(_) => {
            let [.., a, b, c, d, e, f] = number.to_be_bytes();
            Atom::Mac(MacAddress::new([a, b, c, d, e, f]))
        }
        _ => Atom::Number(number),
    }
}
