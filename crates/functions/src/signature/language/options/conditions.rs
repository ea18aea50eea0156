//! Conditions of a rule that are not about bytes: its flow, its flowbits, header fields, and thresholds.

use netbricks_core::packet::tcp::flags;

use super::super::{Reading, shown, unsupported, wrong};
use super::number;

/// The side whose packets a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super::super) enum Side {
    ToServer,
    ToClient,
}

/// The values of `flow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super::super) struct FlowOption {
    pub(in super::super::super) side: Option<Side>,
    /// Whether both sides must have spoken, or must not.
    pub(in super::super::super) established: Option<bool>,
    /// Whether only the stream counts, or only packets.
    pub(in super::super::super) stream: Option<bool>,
}

impl FlowOption {
    pub(super) fn take(&mut self, (at, text): (usize, &str)) -> Reading<()> {
        let mut from = at;
        for item in text.split(',') {
            let place = from + (item.len() - item.trim_start().len());
            from += item.len() + 1;
            let (set, clash) = match item.trim() {
                "to_server" | "from_client" => (self.side(Side::ToServer), "`flow` has two directions"),
                "to_client" | "from_server" => (self.side(Side::ToClient), "`flow` has two directions"),
                "established" => (self.state(true), "`flow` has two states"),
                "not_established" => (self.state(false), "`flow` has two states"),
                "stateless" => (true, ""),
                "only_stream" => (self.bytes(true), "`only_stream` and `no_stream` exclude each other"),
                "no_stream" => (self.bytes(false), "`only_stream` and `no_stream` exclude each other"),
                word @ ("only_frag" | "no_frag") => {
                    return unsupported(
                        place,
                        format!("`{word}` of `flow` is not supported: fragments are not put together"),
                    );
                }
                word => {
                    let known = "to_server, to_client, established, not_established, stateless, only_stream or no_stream";
                    return wrong(place, format!("expected {known}, found `{}`", shown(word)));
                }
            };
            if !set {
                return wrong(place, clash);
            }
        }
        Ok(())
    }

    fn side(&mut self, side: Side) -> bool {
        *self.side.get_or_insert(side) == side
    }
    fn state(&mut self, established: bool) -> bool {
        *self.established.get_or_insert(established) == established
    }
    fn bytes(&mut self, stream: bool) -> bool {
        *self.stream.get_or_insert(stream) == stream
    }
}

/// One operation on a flow's bits, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Bits {
    Set(String),
    Unset(String),
    Toggle(String),
    /// One of these is set.
    IsSet(Vec<String>),
    /// None of these is set.
    IsNotSet(Vec<String>),
}

impl Bits {
    pub(super) fn take((at, text): (usize, &str), to: &mut Vec<Self>, silent: &mut bool) -> Reading<()> {
        let (what, names) =
            text.split_once(',').map_or((text, ""), |(what, names)| (what.trim(), names.trim()));
        let names: Vec<String> = names.split('|').map(|name| name.trim().to_owned()).collect();
        if what == "noalert" && names == [""] {
            *silent = true;
            return Ok(());
        }
        if names.iter().any(String::is_empty) {
            return wrong(
                at,
                format!(
                    "expected `noalert`, or an operation and a name as `set,NAME`, found `{}`",
                    shown(text)
                ),
            );
        }
        let one = |make: fn(String) -> Self| match &names[..] {
            [name] => Ok(make(name.clone())),
            _ => wrong(at, format!("`{what}` takes one name")),
        };
        to.push(match what {
            "set" => one(Self::Set)?,
            "unset" => one(Self::Unset)?,
            "toggle" => one(Self::Toggle)?,
            "isset" => Self::IsSet(names),
            "isnotset" => Self::IsNotSet(names),
            _ => {
                return wrong(
                    at,
                    format!(
                        "expected set, unset, toggle, isset, isnotset or noalert, found `{}`",
                        shown(what)
                    ),
                );
            }
        });
        Ok(())
    }
}

/// A comparison of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Comparison {
    Equal(u32),
    NotEqual(u32),
    Below(u32),
    AtMost(u32),
    Above(u32),
    AtLeast(u32),
    /// Above the first and below the second.
    Between(u32, u32),
}

impl Comparison {
    pub(super) fn read(text: &str, at: usize, most: u32) -> Reading<Self> {
        let number = |text: &str| number(text, at, 0, i64::from(most)).map(|number| number as u32);
        if let Some((low, high)) = text.split_once("<>") {
            let (low, high) = (number(low)?, number(high)?);
            if high.saturating_sub(low) < 2 {
                return wrong(at, format!("no number lies between {low} and {high}"));
            }
            return Ok(Self::Between(low, high));
        }
        let text = text.trim();
        type Make = fn(u32) -> Comparison;
        let forms: [(&str, Make); 6] = [
            ("<=", Self::AtMost),
            (">=", Self::AtLeast),
            ("<", Self::Below),
            (">", Self::Above),
            ("!", Self::NotEqual),
            ("=", Self::Equal),
        ];
        for (sign, make) in forms {
            if let Some(rest) = text.strip_prefix(sign) {
                return number(rest).map(make);
            }
        }
        number(text).map(Self::Equal)
    }

    #[inline]
    pub(in super::super::super) fn holds(self, number: u32) -> bool {
        match self {
            Self::Equal(than) => number == than,
            Self::NotEqual(than) => number != than,
            Self::Below(than) => number < than,
            Self::AtMost(than) => number <= than,
            Self::Above(than) => number > than,
            Self::AtLeast(than) => number >= than,
            Self::Between(low, high) => low < number && number < high,
        }
    }
}

/// The size of a packet's data (`dsize`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct DataSize(pub(in super::super::super) Comparison);

/// A condition on the flags of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct Flags {
    how: How,
    flags: u8,
    /// Flags that do not count.
    ignored: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Exactly,
    /// These and any others (`+`).
    All,
    /// One of these (`*`).
    Any,
    /// Not exactly these (`!`).
    Not,
}

impl Flags {
    pub(super) fn read(text: &str, at: usize) -> Reading<Self> {
        let (text, ignored) =
            text.split_once(',').map_or((text, ""), |(text, ignored)| (text, ignored.trim()));
        let ignored = Self::letters(ignored, at)?;
        let text = text.trim();
        let (how, letters) = match (text.strip_prefix(['+', '*', '!']), text.strip_suffix(['+', '*', '!'])) {
            (Some(letters), _) => (text.as_bytes()[0], letters),
            (None, Some(letters)) => (text.as_bytes()[text.len() - 1], letters),
            (None, None) => (b' ', text),
        };
        let how = match how {
            b'+' => How::All,
            b'*' => How::Any,
            b'!' => How::Not,
            _ => How::Exactly,
        };
        if letters.is_empty() {
            return wrong(at, "expected flags of TCP as `S` or `SA`, or `0` for none");
        }
        Ok(Self { how, flags: Self::letters(letters, at)?, ignored })
    }

    fn letters(text: &str, at: usize) -> Reading<u8> {
        text.chars().try_fold(0, |set, letter| {
            Ok(set
                | match letter.to_ascii_uppercase() {
                    'F' => flags::FIN,
                    'S' => flags::SYN,
                    'R' => flags::RST,
                    'P' => flags::PSH,
                    'A' => flags::ACK,
                    'U' => flags::URG,
                    'E' | '2' => flags::ECE,
                    'C' | '1' => flags::CWR,
                    '0' => 0,
                    _ => {
                        return wrong(
                            at,
                            format!("expected letters of F S R P A U E C, or 0, found `{}`", shown(text)),
                        );
                    }
                })
        })
    }

    #[inline]
    pub(in super::super::super) fn holds(self, set: u8) -> bool {
        let set = set & !self.ignored;
        match self.how {
            How::Exactly => set == self.flags,
            How::All => set & self.flags == self.flags,
            How::Any => set & self.flags != 0,
            How::Not => set & self.flags != self.flags,
        }
    }
}

/// A field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Field {
    IcmpType,
    IcmpCode,
    Ttl,
    Protocol,
    Identification,
    Sequence,
    Acknowledgment,
    Window,
}

impl Field {
    pub(in super::super::super) fn is_of_tcp(self) -> bool {
        matches!(self, Self::Sequence | Self::Acknowledgment | Self::Window)
    }
    pub(in super::super::super) fn is_of_icmp(self) -> bool {
        matches!(self, Self::IcmpType | Self::IcmpCode)
    }
}

/// A condition on a field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct Number {
    pub(in super::super::super) field: Field,
    pub(in super::super::super) comparison: Comparison,
}

impl Number {
    pub(super) fn read(keyword: &str, text: &str, at: usize) -> Reading<Self> {
        let (field, most) = match keyword {
            "itype" => (Field::IcmpType, 255),
            "icode" => (Field::IcmpCode, 255),
            "ttl" => (Field::Ttl, 255),
            "ip_proto" => (Field::Protocol, 255),
            "id" => (Field::Identification, 65_535),
            "seq" => (Field::Sequence, u32::MAX),
            "ack" => (Field::Acknowledgment, u32::MAX),
            _ => (Field::Window, 65_535),
        };
        if field == Field::Protocol {
            let (sign, name) = text.split_at(text.len() - text.trim_start_matches(['!', '<', '>']).len());
            let number = match name.trim() {
                "tcp" | "TCP" => "6",
                "udp" | "UDP" => "17",
                "icmp" | "ICMP" => "1",
                "ipv6-icmp" | "icmp6" => "58",
                "sctp" | "SCTP" => "132",
                "gre" | "GRE" => "47",
                "esp" | "ESP" => "50",
                "igmp" | "IGMP" => "2",
                other => other,
            };
            return Ok(Self { field, comparison: Comparison::read(&format!("{sign}{number}"), at, most)? });
        }
        Ok(Self { field, comparison: Comparison::read(text, at, most)? })
    }
}

/// How many matches make an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct Threshold {
    pub(in super::super::super) kind: ThresholdKind,
    pub(in super::super::super) track: Track,
    pub(in super::super::super) count: u32,
    /// Nanoseconds.
    pub(in super::super::super) time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum ThresholdKind {
    /// The first `count` of a time.
    Limit,
    /// Every `count`th of a time.
    Threshold,
    /// One of a time, the `count`th.
    Both,
    /// All behind the first `count` of a time; others do not count as matches.
    Filter,
}

/// The packets that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Track {
    Source,
    Destination,
    Both,
    Rule,
}

impl Threshold {
    pub(super) fn read(keyword: &str, text: &str, at: usize) -> Reading<Self> {
        let (mut kind, mut track, mut count, mut seconds) = (None, None, None, None);
        if keyword == "detection_filter" {
            kind = Some(ThresholdKind::Filter);
        }
        for item in text.split(',').map(str::trim) {
            let (name, value) =
                item.split_once(char::is_whitespace).map_or((item, ""), |(name, value)| (name, value.trim()));
            match (name, value) {
                ("type", "limit") => kind = Some(ThresholdKind::Limit),
                ("type", "threshold") => kind = Some(ThresholdKind::Threshold),
                ("type", "both") => kind = Some(ThresholdKind::Both),
                ("track", "by_src") => track = Some(Track::Source),
                ("track", "by_dst") => track = Some(Track::Destination),
                ("track", "by_both") => track = Some(Track::Both),
                ("track", "by_rule") => track = Some(Track::Rule),
                ("track", "by_flow") => return unsupported(at, "`track by_flow` is not supported"),
                ("count", value) => count = Some(number(value, at, 1, 1 << 20)? as u32),
                ("seconds", value) => seconds = Some(number(value, at, 1, 86_400 * 366)? as u64),
                _ => {
                    let form = "`type limit, track by_src, count 1, seconds 60`";
                    return wrong(at, format!("expected a list as {form}, found `{}`", shown(item)));
                }
            }
        }
        match (kind, track, count, seconds) {
            (Some(kind), Some(track), Some(count), Some(seconds)) => {
                Ok(Self { kind, track, count, time: seconds * 1_000_000_000 })
            }
            _ => wrong(at, format!("`{keyword}` needs its type, track, count and seconds")),
        }
    }
}
