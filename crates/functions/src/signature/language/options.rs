//! The options of a rule: its parts that match bytes, its conditions, and its description.

mod byte_test;
mod conditions;

use std::sync::Arc;

pub(in super::super) use byte_test::ByteTest;
use conditions::Comparison;
pub(in super::super) use conditions::{
    Bits, DataSize, Field, Flags, FlowOption, Number, Side, Threshold, ThresholdKind, Track,
};

use super::super::regex::{Refused, Regex};
use super::content::{bytes, quoted, slashed};
use super::header::{Header, Protocol};
use super::scanner::{Scanner, Written};
use super::{Reading, Unread, shown, unsupported, wrong};
use netbricks_core::nearest;

/// All options of a rule.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Options {
    pub(in super::super) sid: u32,
    pub(in super::super) gid: u32,
    pub(in super::super) rev: u32,
    pub(in super::super) msg: String,
    pub(in super::super) classtype: Option<String>,
    pub(in super::super) priority: Option<u8>,
    pub(in super::super) references: Vec<String>,
    /// The parts to be looked for in the bytes, in order.
    pub(in super::super) parts: Vec<Part>,
    pub(in super::super) flow: FlowOption,
    pub(in super::super) bits: Vec<Bits>,
    /// Whether no event tells of it (`noalert`).
    pub(in super::super) silent: bool,
    pub(in super::super) data_size: Option<DataSize>,
    pub(in super::super) flags: Option<Flags>,
    pub(in super::super) numbers: Vec<Number>,
    pub(in super::super) threshold: Option<Threshold>,
}

/// One thing that is looked for in the bytes.
#[derive(Clone, Debug)]
pub(in super::super) enum Part {
    Content(Content),
    Pcre(Pcre),
    /// Whether there is a byte this far on.
    DataAt {
        distance: u32,
        relative: bool,
        negated: bool,
    },
    ByteTest(ByteTest),
}

/// Bytes, and where they stand.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Content {
    /// Where it stands in the rule.
    at: usize,
    pub(in super::super) bytes: Vec<u8>,
    pub(in super::super) negated: bool,
    pub(in super::super) ignore_case: bool,
    pub(in super::super) place: Place,
    /// Whether it ends with the data (`endswith`).
    pub(in super::super) ends: bool,
    /// Whether it is what the whole rule is looked for by.
    pub(in super::super) fast: bool,
    /// The part of it that is: offset and length.
    pub(in super::super) fast_part: Option<(usize, usize)>,
}

/// Where a content stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Place {
    /// It begins `offset` bytes behind the beginning of the data or later, and ends within `depth` bytes from there.
    Absolute { offset: u32, depth: Option<u32> },
    /// It begins `distance` bytes behind the end of the part before it or later, and ends within `within` bytes.
    Relative { distance: i32, within: Option<u32> },
}

impl Default for Place {
    fn default() -> Self {
        Self::Absolute { offset: 0, depth: None }
    }
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(in super::super) struct Pcre {
    pub(in super::super) regex: Arc<Regex>,
    pub(in super::super) negated: bool,
    pub(in super::super) relative: bool,
}

/// The largest offset, depth, distance and length.
const MOST: u32 = 65_535;

/// Keywords without an effect on matching.
const DESCRIPTIONS: [&str; 6] = ["metadata", "target", "tag", "requires", "rawbytes", "pkt_data"];

/// Keywords that are read, for suggestions.
const KNOWN: [&str; 38] = [
    "content",
    "nocase",
    "offset",
    "depth",
    "distance",
    "within",
    "startswith",
    "endswith",
    "rawbytes",
    "fast_pattern",
    "pcre",
    "isdataat",
    "byte_test",
    "flow",
    "flowbits",
    "noalert",
    "dsize",
    "flags",
    "itype",
    "icode",
    "ttl",
    "ip_proto",
    "id",
    "seq",
    "ack",
    "window",
    "threshold",
    "detection_filter",
    "msg",
    "sid",
    "gid",
    "rev",
    "classtype",
    "priority",
    "reference",
    "metadata",
    "target",
    "pkt_data",
];

impl Options {
    /// Reads the options up to the `)`. Answers the place of the sid, too.
    pub(super) fn read(scanner: &mut Scanner<'_>, header: &Header) -> Reading<(usize, Self)> {
        scanner.open()?;
        let mut options = Self { gid: 1, rev: 0, ..Self::default() };
        let (mut sid_at, mut skipped) = (None, None);
        let begin = 0;
        while let Some(written) = scanner.option()? {
            if written.keyword == "sid" {
                sid_at = Some(written.at);
            }
            match options.take(&written) {
                // What is not supported is told once the rest was found to be right.
                Err(problem @ Unread::Unsupported(..)) => skipped = skipped.or(Some(problem)),
                other => other?,
            }
        }
        let Some(sid_at) = sid_at else {
            return wrong(begin, "this rule has no `sid`: give it a number of its own");
        };
        if let Some(skipped) = skipped {
            return Err(skipped);
        }
        options.check(header, sid_at)?;
        Ok((sid_at, options))
    }

    fn take(&mut self, written: &Written<'_>) -> Reading<()> {
        let Written { at, keyword, value } = *written;
        match keyword {
            "content" => self.content(value_of(written)?),
            "nocase" | "startswith" | "endswith" => self.modifier(written, 0),
            "offset" | "depth" | "distance" | "within" => {
                let (place, text) = value_of(written)?;
                let least = if keyword == "distance" { -i64::from(MOST) } else { 0 };
                let number = number(text, place, least, i64::from(MOST))?;
                self.modifier(written, number)
            }
            "fast_pattern" => self.fast_pattern(written),
            "pcre" => self.pcre(value_of(written)?),
            "isdataat" => self.data_at(value_of(written)?),
            "byte_test" => {
                self.parts.push(Part::ByteTest(ByteTest::read(value_of(written)?)?));
                Ok(())
            }
            "flow" => self.flow.take(value_of(written)?),
            "flowbits" => Bits::take(value_of(written)?, &mut self.bits, &mut self.silent),
            "noalert" => {
                self.silent = true;
                none(written)
            }
            "dsize" => {
                let (place, text) = value_of(written)?;
                self.data_size = Some(DataSize(Comparison::read(text, place, MOST)?));
                Ok(())
            }
            "flags" => {
                let (place, text) = value_of(written)?;
                self.flags = Some(Flags::read(text, place)?);
                Ok(())
            }
            "itype" | "icode" | "ttl" | "ip_proto" | "id" | "seq" | "ack" | "window" => {
                let (place, text) = value_of(written)?;
                self.numbers.push(Number::read(keyword, text, place)?);
                Ok(())
            }
            "threshold" | "detection_filter" => {
                let (place, text) = value_of(written)?;
                if self.threshold.is_some() {
                    return wrong(at, "a second threshold: take one out");
                }
                self.threshold = Some(Threshold::read(keyword, text, place)?);
                Ok(())
            }
            "msg" => {
                let (place, text) = value_of(written)?;
                let (_, _, text) = quoted(text, place, "msg")?;
                self.msg = text.replace('\\', "");
                Ok(())
            }
            "sid" | "gid" | "rev" => {
                let (place, text) = value_of(written)?;
                let least = i64::from(keyword == "sid");
                let number = number(text, place, least, i64::from(u32::MAX))? as u32;
                *(match keyword {
                    "sid" => &mut self.sid,
                    "gid" => &mut self.gid,
                    _ => &mut self.rev,
                }) = number;
                Ok(())
            }
            "priority" => {
                let (place, text) = value_of(written)?;
                self.priority = Some(number(text, place, 1, 255)? as u8);
                Ok(())
            }
            "classtype" => {
                self.classtype = Some(value_of(written)?.1.to_owned());
                Ok(())
            }
            "reference" => {
                self.references.push(value_of(written)?.1.to_owned());
                Ok(())
            }
            _ if DESCRIPTIONS.contains(&keyword) => Ok(()),
            _ => {
                let near = nearest(keyword, KNOWN);
                let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let _ = value;
                unsupported(at, format!("the keyword `{}` is not supported{near}", shown(keyword)))
            }
        }
    }

    fn content(&mut self, (at, text): (usize, &str)) -> Reading<()> {
        let (negated, place, text) = quoted(text, at, "content")?;
        let bytes = bytes(text, place)?;
        if bytes.len() > MOST_CONTENT {
            return wrong(place, format!("a content of {} bytes: {MOST_CONTENT} are the most", bytes.len()));
        }
        self.parts.push(Part::Content(Content { at, bytes, negated, ..Content::default() }));
        Ok(())
    }

    fn last(&mut self, written: &Written<'_>) -> Reading<&mut Content> {
        match self.parts.last_mut() {
            Some(Part::Content(content)) => Ok(content),
            _ => wrong(
                written.at,
                format!("`{}` follows no `content`: write it behind the one it is for", written.keyword),
            ),
        }
    }

    fn modifier(&mut self, written: &Written<'_>, number: i64) -> Reading<()> {
        let Written { at, keyword, .. } = *written;
        let content = self.last(written)?;
        let len = content.bytes.len() as i64;
        let mixed = || {
            wrong(
                at,
                "`offset` and `depth` count from the beginning, `distance` and `within` from the part before: use one kind",
            )
        };
        if matches!(keyword, "depth" | "within") && number < len {
            return wrong(
                at,
                format!("`{keyword}` is {number}, but the content has {len} bytes and can never fit"),
            );
        }
        match (keyword, &mut content.place) {
            ("nocase", _) => content.ignore_case = true,
            ("endswith", _) => content.ends = true,
            ("startswith", Place::Absolute { offset: 0, depth: depth @ None }) => *depth = Some(len as u32),
            ("startswith", _) => {
                return wrong(
                    at,
                    "`startswith` with `offset`, `depth`, `distance` or `within`: take one out",
                );
            }
            ("offset", Place::Absolute { offset, .. }) => *offset = number as u32,
            ("depth", Place::Absolute { depth, .. }) => *depth = Some(number as u32),
            ("distance", Place::Relative { distance, .. }) => *distance = number as i32,
            ("within", Place::Relative { within, .. }) => *within = Some(number as u32),
            ("distance" | "within", place @ Place::Absolute { offset: 0, depth: None }) => {
                let within = (keyword == "within").then_some(number as u32);
                *place =
                    Place::Relative { distance: if within.is_some() { 0 } else { number as i32 }, within };
            }
            _ => return mixed(),
        }
        if matches!(keyword, "nocase" | "startswith" | "endswith") { none(written) } else { Ok(()) }
    }

    fn fast_pattern(&mut self, written: &Written<'_>) -> Reading<()> {
        let at = written.at;
        if self.parts.iter().any(|part| matches!(part, Part::Content(content) if content.fast)) {
            return wrong(at, "a second `fast_pattern`: take one out");
        }
        let content = self.last(written)?;
        if content.negated {
            return wrong(
                at,
                "`fast_pattern` for a negated content: bytes that are missing cannot be looked for",
            );
        }
        content.fast = true;
        match written.value {
            None | Some((_, "only")) => Ok(()),
            Some((place, text)) => {
                let range = text.split_once(',').and_then(|(offset, len)| {
                    Some((offset.trim().parse::<usize>().ok()?, len.trim().parse::<usize>().ok()?))
                });
                let len = content.bytes.len();
                match range {
                    Some((offset, part))
                        if part > 0 && offset.checked_add(part).is_some_and(|end| end <= len) =>
                    {
                        content.fast_part = Some((offset, part));
                        Ok(())
                    }
                    _ => wrong(
                        place,
                        format!(
                            "expected `only` or `OFFSET,LENGTH` within {len} bytes, found `{}`",
                            shown(text)
                        ),
                    ),
                }
            }
        }
    }

    fn pcre(&mut self, (at, text): (usize, &str)) -> Reading<()> {
        let (negated, place, text) = quoted(text, at, "pcre")?;
        let slashed = slashed(text, place)?;
        let regex = Regex::new(slashed.pattern, slashed.flags).map_err(|refused| match refused {
            Refused::Wrong(offset, problem) => Unread::Wrong(slashed.at + offset, problem),
            Refused::Unsupported(offset, problem) => Unread::Unsupported(slashed.at + offset, problem),
        })?;
        self.parts.push(Part::Pcre(Pcre {
            regex: Arc::new(regex),
            negated,
            relative: slashed.flags.relative,
        }));
        Ok(())
    }

    fn data_at(&mut self, (at, text): (usize, &str)) -> Reading<()> {
        let (negated, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text.trim()));
        let mut words = text.split(',').map(str::trim);
        let distance = number(words.next().unwrap_or_default(), at, 0, i64::from(MOST))? as u32;
        let mut relative = false;
        for word in words {
            match word {
                "relative" => relative = true,
                "rawbytes" => {}
                _ => return wrong(at, format!("expected `relative`, found `{}`", shown(word))),
            }
        }
        self.parts.push(Part::DataAt { distance, relative, negated });
        Ok(())
    }

    /// Checks what concerns several options.
    fn check(&self, header: &Header, at: usize) -> Reading<()> {
        let tcp = header.protocol.is_tcp();
        let is_icmp = header.protocol == Protocol::Icmp;
        if (self.flags.is_some() || self.numbers.iter().any(|number| number.field.is_of_tcp())) && !tcp {
            return wrong(
                at,
                "`flags`, `seq`, `ack` and `window` are about TCP: write `tcp` as the protocol",
            );
        }
        if self.numbers.iter().any(|number| number.field.is_of_icmp()) && !is_icmp {
            return wrong(at, "`itype` and `icode` are about ICMP: write `icmp` as the protocol");
        }
        if header.protocol == Protocol::TcpStream && (self.needs_packet() || self.parts.is_empty()) {
            return wrong(at, "a rule for `tcp-stream` needs contents, and nothing that only a packet has");
        }
        for part in &self.parts {
            if let Part::Content(Content {
                at, place: Place::Absolute { offset, depth: Some(depth) }, ..
            }) = part
                && offset + depth > MOST
            {
                return wrong(*at, format!("`offset` and `depth` reach beyond {MOST} bytes"));
            }
        }
        Ok(())
    }

    /// Whether it is about something that only a packet has.
    pub(in super::super) fn needs_packet(&self) -> bool {
        self.data_size.is_some() || self.flags.is_some() || !self.numbers.is_empty()
    }
}

/// The most bytes of a content.
const MOST_CONTENT: usize = 255;

fn value_of<'t>(written: &Written<'t>) -> Reading<(usize, &'t str)> {
    match written.value {
        Some((at, text)) if !text.is_empty() => Ok((at, text)),
        _ => wrong(written.at, format!("`{0}` needs a value: `{0}: …;`", written.keyword)),
    }
}

fn none(written: &Written<'_>) -> Reading<()> {
    match written.value {
        None => Ok(()),
        Some((at, text)) => {
            wrong(at, format!("`{}` takes no value, found `{}`", written.keyword, shown(text)))
        }
    }
}

/// A whole number in this range.
pub(super) fn number(text: &str, at: usize, least: i64, most: i64) -> Reading<i64> {
    match text.trim().parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => wrong(at, format!("expected a number from {least} to {most}, found `{}`", shown(text))),
    }
}
