//! Patterns: what addresses and ports new flows get. `IPRewriterPatterns` gives them names.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::Ipv4Addr;
use std::rc::Rc;

use super::flow_id::FlowId;
use super::flows::Flows;
use super::rewriter::beside;
use crate::arguments::{Argument, Arguments, Parsed, Problem};
use crate::element::{Class, Element};
use crate::language::text;
use crate::names::Named;
use crate::router::{At, Setup};
use crate::value::{Prefix, integer};

pub(super) const CLASSES: &[Class] =
    &[Class::new("IPRewriterPatterns", patterns).ports("0/0").phase(Class::INFO)];

/// The most values of a range that one new flow tries.
const MOST_TRIES: u64 = 1 << 16;

/// Fields that new flows get: a field that is 0 stays as it is.
pub(super) struct Pattern {
    source: u32,
    source_port: u16,
    destination: u32,
    destination_port: u16,
    /// Whether it has ports.
    ports: bool,
    /// So many more than its first value has the range of source ports, or of source addresses without ports.
    range: u32,
    /// Whether values come in turn instead of by chance.
    in_turn: bool,
    /// Whether a flow keeps its own port where it can.
    keeps: bool,
    next: Cell<u32>,
    /// The last flow that found all of its range taken, and how many flows had ended then.
    exhausted: Cell<Option<([u64; 2], u64)>>,
}

/// How a range gives its values.
#[derive(Clone, Copy)]
struct Range {
    more: u32,
    in_turn: bool,
    keeps: bool,
}

impl Range {
    const NONE: Self = Self { more: 0, in_turn: false, keeps: true };

    /// Takes `#` or `?` off the end of a text.
    fn ending(text: &str) -> (&str, Self) {
        if let Some(text) = text.strip_suffix('#') {
            return (text, Self { more: 0, in_turn: true, keeps: false });
        }
        match text.strip_suffix('?') {
            Some(text) => (text, Self { more: 0, in_turn: false, keeps: false }),
            None => (text, Self::NONE),
        }
    }
}

/// A source address: `-`, an address, a range, or a prefix without its first and last addresses.
fn source_address(text: &str, at: At<'_>) -> Option<(u32, Range)> {
    if text == "-" {
        return Some((0, Range::NONE));
    }
    if let Ok(address) = Ipv4Addr::parse(text, at) {
        return Some((address.into(), Range::NONE));
    }
    let (text, range) = Range::ending(text);
    if let Some((first, last)) = text.split_once('-') {
        let first = u32::from(Ipv4Addr::parse(first, at).ok()?);
        let more = u32::from(Ipv4Addr::parse(last, at).ok()?).checked_sub(first)?;
        return Some((first, Range { more, ..range }));
    }
    let prefix = Prefix::read(text, at, true).ok()?;
    let (address, mask) = (u32::from(prefix.address), u32::from(prefix.mask));
    if address == 0 || mask == 0 {
        return None;
    }
    match prefix.length()? {
        32 => Some((address, range)),
        31 => Some((address & mask, Range { more: 1, ..range })),
        _ => Some((address & mask | 1, Range { more: !mask - 2, ..range })),
    }
}

fn port(text: &str) -> Option<u16> {
    integer(text).and_then(|port| u16::try_from(port).ok())
}

/// A source port: `-`, a port or a range.
fn source_port(text: &str) -> Option<(u16, Option<Range>)> {
    if text == "-" {
        return Some((0, None));
    }
    if let Some(port) = port(text).filter(|port| *port > 0) {
        return Some((port, None));
    }
    let (text, range) = Range::ending(text);
    let (first, last) = text.split_once('-')?;
    let (first, last) = (port(first)?, port(last)?);
    let more = u32::from(last.checked_sub(first)?);
    Some((first, Some(Range { more, ..range })))
}

/// The pattern that a packet of a new flow meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It leaves by an output as it is.
    Pass(u16),
    /// It ends.
    Drop,
    /// The flow gets these ends and outputs.
    Add {
        /// Fields that its packets get.
        rewritten: FlowId,
        /// Outputs forward and in reply, which may be none of the element's.
        outputs: [i32; 2],
    },
}

/// Where a pattern looks for values that are taken.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    /// The rewriter.
    pub(super) at: At<'a>,
    /// Its flows.
    pub(super) flows: &'a Flows,
    /// Its map.
    pub(super) map: u32,
    /// Whether the destination port follows the source port, as with pings.
    pub(super) follows: bool,
}

impl Search<'_> {
    fn is_taken(&self, id: FlowId) -> bool {
        let id = if self.follows { FlowId { destination_port: beside(id.source_port), ..id } } else { id };
        self.flows.find(id.reverse().key(self.map)).is_some()
    }
}

impl Pattern {
    /// Reads `SADDR SPORT DADDR DPORT`, fewer fields, or a name.
    ///
    /// # Errors
    /// Click's words for the fault.
    pub(super) fn parse(words: &[String], at: At<'_>) -> Result<Rc<Self>, String> {
        let (source, source_port_word, destination, destination_port) = match words {
            [name] => {
                let place = number_of(name, at);
                let known = place.and_then(|place| at.router.attachment::<Known>(KNOWN)?.get(place));
                let (owner, known) = known.ok_or_else(|| format!("no such pattern '{name}'"))?;
                // Its values go to the packets of all who use it, in turn.
                at.router.note_shared(at.id, owner);
                return Ok(known);
            }
            [source, destination] => (source, None, destination, None),
            [source, destination, port] => (source, Some(port), destination, None),
            [source, port, destination, other] => (source, Some(port), destination, Some(other)),
            _ => return Err("syntax error".into()),
        };
        let (source, mut range) = source_address(source, at).ok_or("bad source address")?;
        let (source_port, of_ports) =
            source_port_word.map_or(Some((0, None)), |word| source_port(word)).ok_or("bad source port")?;
        if let Some(of_ports) = of_ports {
            range = of_ports;
        }
        let destination = match destination.as_str() {
            "-" => 0,
            text => Ipv4Addr::parse(text, at).map_err(|_| "bad destination address")?.into(),
        };
        let destination_port = match destination_port.map_or("-", String::as_str) {
            "-" => 0,
            text => port(text).filter(|port| *port > 0).ok_or("bad destination port")?,
        };
        let ports = words.len() >= 3;
        if ports && of_ports.is_none() {
            // A range of addresses counts for patterns without ports alone.
            range.more = 0;
        }
        Ok(Rc::new(Self {
            source,
            source_port,
            destination,
            destination_port,
            ports,
            range: range.more,
            in_turn: range.in_turn,
            keeps: range.keeps,
            next: Cell::new(0),
            exhausted: Cell::new(None),
        }))
    }

    /// Reads a pattern and two output ports behind it.
    ///
    /// # Errors
    /// Click's words for the fault.
    pub(super) fn parse_with_ports(words: &[String], at: At<'_>) -> Result<(Rc<Self>, [i32; 2]), String> {
        let Some((pattern, ports)) =
            words.len().checked_sub(2).filter(|count| *count > 0).map(|count| words.split_at(count))
        else {
            return Err("syntax error".into());
        };
        let pattern = Self::parse(pattern, at)?;
        Ok((pattern, output_ports(ports)?))
    }

    /// Fields of a flow that this pattern is for. `None`: all values of its range are taken.
    pub(super) fn rewrite(&self, id: FlowId, search: Search<'_>) -> Option<FlowId> {
        let or = |new: u16, old: u16| if new != 0 { new } else { old };
        let mut to = FlowId {
            source: if self.source != 0 { self.source } else { id.source },
            destination: if self.destination != 0 { self.destination } else { id.destination },
            source_port: or(self.source_port, id.source_port),
            destination_port: or(self.destination_port, id.destination_port),
        };
        if self.range == 0 {
            return Some(to);
        }
        let own = u32::from(id.source_port).wrapping_sub(u32::from(self.source_port));
        if self.keeps && self.ports && own <= self.range {
            let kept = FlowId { source_port: id.source_port, ..to };
            if !search.is_taken(kept) {
                self.next.set(own.wrapping_add(1));
                return Some(kept);
            }
        }
        let (key, ended) = (to.key(search.map), search.flows.ended());
        if self.exhausted.get() == Some((key, ended)) {
            return None;
        }
        let mut value = if self.in_turn {
            if self.next.get() > self.range { 0 } else { self.next.get() }
        } else {
            match self.range.checked_add(1) {
                Some(values) => search.at.router.random_below(values),
                None => search.at.router.random(),
            }
        };
        for _ in 0..(u64::from(self.range) + 1).min(MOST_TRIES) {
            if self.ports {
                to.source_port = self.source_port.wrapping_add(value as u16);
            } else {
                to.source = self.source.wrapping_add(value);
            }
            if !search.is_taken(to) {
                self.next.set(value.wrapping_add(1));
                return Some(to);
            }
            value = if value == self.range { 0 } else { value + 1 };
        }
        self.exhausted.set(Some((key, ended)));
        None
    }
}

impl fmt::Display for Pattern {
    /// `1.0.0.1 1024-65535 - -`, as Click writes it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |address: u32| match address {
            0 => "-".to_owned(),
            address => Ipv4Addr::from(address).to_string(),
        };
        if !self.ports && self.range > 0 {
            let last = Ipv4Addr::from(self.source.wrapping_add(self.range));
            return write!(to, "{}-{last} {}", Ipv4Addr::from(self.source), address(self.destination));
        }
        write!(to, "{}", address(self.source))?;
        if self.ports {
            match (self.source_port, self.range) {
                (0, _) => write!(to, " -")?,
                (first, 0) => write!(to, " {first}")?,
                (first, range) => write!(to, " {first}-{}", u32::from(first) + range)?,
            }
        }
        write!(to, " {}", address(self.destination))?;
        match (self.ports, self.destination_port) {
            (false, _) => Ok(()),
            (true, 0) => write!(to, " -"),
            (true, port) => write!(to, " {port}"),
        }
    }
}

/// Reads the outputs of packets forward and in reply.
pub(super) fn output_ports(words: &[String]) -> Result<[i32; 2], String> {
    let port = |word: &str| integer(word).and_then(|port| i32::try_from(port).ok());
    let [forward, reply] = words else { return Err("bad forward port".into()) };
    let forward = port(forward).ok_or("bad forward port")?;
    let reply = port(reply).ok_or("bad reply port")?;
    Ok([forward, reply])
}

/// Where a configuration keeps its named patterns.
const KNOWN: &str = "IPRewriterPatterns";

/// Named patterns of a configuration, by number.
#[derive(Default)]
struct Known {
    /// Each with the element that defines it.
    patterns: RefCell<Vec<(usize, Rc<Pattern>)>>,
}

impl Known {
    fn get(&self, place: usize) -> Option<(usize, Rc<Pattern>)> {
        self.patterns.borrow().get(place).cloned()
    }
}

/// The number of a named pattern, or the number that the text is.
fn number_of(name: &str, at: At<'_>) -> Option<usize> {
    let number = match at.names().find(at, Named::RewriterPattern, name).as_deref() {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => u32::try_from(integer(name)?).ok()?,
    };
    usize::try_from(number).ok()
}

/// `IPRewriterPatterns(NAME PATTERN, ...)`: names for patterns of rewriters.
struct Patterns;

fn patterns(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let (at, errors) = (setup.at, setup.errors);
    let known = at.router.shared(KNOWN, Known::default);
    let before = errors.count();
    for argument in arguments.rest() {
        let (name, rest) = text::next_word(&argument);
        if name.is_empty() {
            continue;
        }
        if number_of(&name, at).is_some() {
            errors.error(&format!("pattern '{name}' already defined"));
            continue;
        }
        match Pattern::parse(&text::split_words(rest), at) {
            Ok(pattern) => {
                let mut patterns = known.patterns.borrow_mut();
                let number = u32::try_from(patterns.len()).unwrap_or(u32::MAX);
                patterns.push((at.id, pattern));
                at.names().define(at, Named::RewriterPattern, &name, &number.to_be_bytes());
            }
            Err(message) => errors.error(&message),
        }
    }
    (errors.count() == before).then(|| Rc::new(Patterns) as Rc<dyn Element>)
}

impl Element for Patterns {}

/// Seconds, rounded, as Click's arguments of whole seconds.
pub(super) fn seconds(text: &str, _: At<'_>) -> Parsed<u64> {
    let span = crate::value::signed_seconds(text).filter(|span| *span >= 0).ok_or(Problem::Syntax)?;
    let rounded = span.saturating_add(500_000_000) / 1_000_000_000;
    u32::try_from(rounded).map(u64::from).map_err(|_| "out of range".into())
}
