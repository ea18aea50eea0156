//! Words of filters: how a text is split, and what its names mean.

use crate::names::{self, Named};
use crate::router::At;

use super::primitive::{Field, Kind};

/// Protocols that stand for several: numbers above all real ones.
pub(crate) const TCP_OR_UDP: i32 = 256;
/// Any transport protocol.
pub(crate) const ANY_TRANSPORT: i32 = 258;
/// The bytes behind the transport header.
const PAYLOAD: i32 = 259;
pub(crate) const ICMP: i32 = 1;
pub(crate) const TCP: i32 = 6;
pub(crate) const UDP: i32 = 17;
pub(crate) const DCCP: i32 = 33;

/// Flags of a TCP header by name.
const TCP_OPTIONS: &[(&str, i32)] =
    &[("ack", 16), ("fin", 1), ("psh", 8), ("rst", 4), ("syn", 2), ("urg", 32)];

/// Names of things that a filter tests.
fn kind(word: &str) -> Option<Kind> {
    Some(match word {
        "ce" => Kind::Ce,
        "dscp" => Kind::Field(Field::DSCP),
        "ect" => Kind::Ect,
        "frag" => Kind::Fragment,
        "hl" => Kind::Field(Field::HEADER_LENGTH),
        "host" => Kind::Host,
        "id" => Kind::Field(Field::ID),
        "len" => Kind::Field(Field::LENGTH),
        "net" => Kind::Net,
        "opt" => Kind::TcpOption,
        "port" => Kind::Port,
        "proto" => Kind::Protocol,
        "tos" => Kind::Field(Field::TOS),
        "ttl" => Kind::Field(Field::TTL),
        "type" => Kind::Field(Field::ICMP_TYPE),
        "unfrag" => Kind::Unfragmented,
        "vers" => Kind::Field(Field::VERSION),
        "win" => Kind::Field(Field::TCP_WINDOW),
        _ => return None,
    })
}

/// Words that are part of the language itself.
const SYNTAX: &[&str] = &["dest", "dst", "ether", "ip", "not", "src"];

/// The kind of thing that a word names.
pub(crate) enum Meaning {
    /// Nothing that this knows.
    None,
    /// The thing that is tested.
    Kind(Kind),
    /// A value of something.
    Value(Kind, i32),
    /// Several things, or none that fits: the message.
    Wrong(String),
}

fn protocol(word: &str) -> Option<i32> {
    match word {
        "tcpudp" => Some(TCP_OR_UDP),
        "transp" => Some(ANY_TRANSPORT),
        "payload" => Some(PAYLOAD),
        _ => names::ip_protocol(word).map(i32::from),
    }
}

fn port(word: &str, named: Named, at: At<'_>) -> Option<i32> {
    match at.names().find(at, named, word).as_deref() {
        Some(&[high, low]) => Some(u16::from_be_bytes([high, low]).into()),
        _ => names::port(word).map(i32::from),
    }
}

/// The meaning of a word, where a kind of thing and a protocol are known, or not.
pub(crate) fn look_up(word: &str, wanted: Option<Kind>, transport: Option<i32>, at: At<'_>) -> Meaning {
    if wanted.is_none() {
        if let Some(kind) = kind(word) {
            return Meaning::Kind(kind);
        }
        if SYNTAX.contains(&word) {
            return Meaning::None;
        }
    }
    let in_list = |list: &[(&str, i32)]| list.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    let icmp = names::ICMP_TYPES.iter().find(|(name, _)| *name == word).map(|(_, value)| i32::from(*value));
    let icmp_type = Kind::Field(Field::ICMP_TYPE);
    // Of each list: the kind of its values, the protocols for which they are, and the value.
    let lists: [(Kind, &[i32], Option<i32>); 5] = [
        (Kind::Protocol, &[], protocol(word)),
        (Kind::Port, &[TCP, TCP_OR_UDP], port(word, Named::TcpPort, at)),
        (Kind::Port, &[UDP, TCP_OR_UDP], port(word, Named::UdpPort, at)),
        (Kind::TcpOption, &[TCP, TCP_OR_UDP], in_list(TCP_OPTIONS)),
        (icmp_type, &[ICMP], icmp),
    ];
    let fits = |(kind, protocols, value): &(Kind, &[i32], Option<i32>)| {
        let of_protocol = protocols.is_empty() || transport.is_none_or(|one| protocols.contains(&one));
        value
            .filter(|_| of_protocol && wanted.is_none_or(|wanted| wanted == *kind))
            .map(|value| (*kind, value))
    };
    let mut fitting: Vec<(Kind, i32)> = lists.iter().filter_map(fits).collect();
    // A port that has one number for both protocols is no question.
    fitting.dedup();
    let named: Vec<String> = lists
        .iter()
        .filter(|(_, _, value)| value.is_some())
        .map(|(kind, _, _)| format!("'{}'", described(Some(*kind), transport, word)))
        .collect();
    match fitting[..] {
        _ if named.is_empty() => Meaning::None,
        [(kind, value)] => Meaning::Value(kind, value),
        _ => Meaning::Wrong(format!(
            "'{}' is {}; try {}",
            described(wanted, transport, word),
            if fitting.is_empty() { "meaningless" } else { "ambiguous" },
            named.join(", ")
        )),
    }
}

fn described(kind: Option<Kind>, transport: Option<i32>, word: &str) -> String {
    format!("{} {} {word}", Kind::name(kind), transport.map(protocol_name).unwrap_or_default())
}

/// The name of a transport protocol.
pub(crate) fn protocol_name(number: i32) -> String {
    match number {
        ICMP => "icmp".into(),
        2 => "igmp".into(),
        4 => "ipip".into(),
        TCP => "tcp".into(),
        UDP => "udp".into(),
        TCP_OR_UDP => "tcpudp".into(),
        ANY_TRANSPORT => "transp".into(),
        _ => format!("ip proto {number}"),
    }
}

/// Splits a filter into words: names and numbers, and signs of one or two characters.
pub(crate) fn split(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() || byte == 0x0B {
            at += 1;
            continue;
        }
        let next = bytes.get(at + 1).copied();
        let length = match byte {
            b'&' | b'|' if next == Some(byte) => 2,
            b'<' | b'>' | b'!' | b'=' if next == Some(b'=') => 2,
            b'&' | b'|' | b'<' | b'>' | b'!' | b'=' => 1,
            _ => bytes[at..].iter().take_while(|byte| is_name_byte(**byte)).count().max(1),
        };
        words.push(String::from_utf8_lossy(&bytes[at..at + length]).into_owned());
        at += length;
    }
    words
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-./@_:".contains(&byte)
}
