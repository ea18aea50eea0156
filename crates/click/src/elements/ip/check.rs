//! Checks of IPv4 headers: `CheckIPHeader`, `CheckIPHeader2`, `MarkIPHeader`.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::fuse::Step;
use super::header::{self, Ip};
use super::names;
use crate::arguments::{Arguments, Parsed};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::text;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Prefix, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("CheckIPHeader", check_ip_header).ports("1/1-2").processing("a/ah"),
    Class::new("CheckIPHeader2", check_ip_header_2).ports("1/1-2").processing("a/ah"),
    Class::new("MarkIPHeader", mark_ip_header),
];

/// Faults of packets by their number, counted.
pub(super) struct Faults<const N: usize> {
    /// The names of faults.
    texts: [&'static str; N],
    counts: [Cell<u64>; N],
    verbose: bool,
    details: bool,
}

impl<const N: usize> Faults<N> {
    pub(super) fn new(texts: [&'static str; N], verbose: bool, details: bool) -> Self {
        Self { texts, counts: [const { Cell::new(0) }; N], verbose, details }
    }
    /// All faults so far.
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().map(Cell::get).sum()
    }
    /// Counts a fault, says it if it is the first, and sends the packet away.
    pub(super) fn refuse(&self, at: At<'_>, packet: Packet, fault: usize, subject: &str, reason: DropReason) {
        let (Some(text), Some(count)) = (self.texts.get(fault), self.counts.get(fault)) else { return };
        if self.verbose || self.total() == 0 {
            at.chatter(&format!("{subject} header check failed: {text}"));
        }
        count.set(count.get() + 1);
        at.push_or_drop(1, packet, reason);
    }
    fn listed(&self) -> String {
        self.counts.iter().zip(self.texts).map(|(count, text)| format!("{}\t{text}\n", count.get())).collect()
    }
    /// Declares `drops`, and `drop_details` where they were asked for.
    pub(super) fn handlers<E: Element>(&self, handlers: &mut Handlers, faults: fn(&E) -> &Self) {
        handlers.read("drops", move |this: &E, _| faults(this).total());
        if self.details {
            handlers.read("drop_details", move |this: &E, _| faults(this).listed());
        }
    }
}

/// A fault of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Tiny,
    Version,
    HeaderLength,
    Length,
    Checksum,
    Source,
}

impl Fault {
    const ALL: [Self; 6] =
        [Self::Tiny, Self::Version, Self::HeaderLength, Self::Length, Self::Checksum, Self::Source];
    fn reason(self) -> DropReason {
        match self {
            Self::Checksum => DropReason::BadChecksum,
            Self::Source => DropReason::Denied,
            _ => DropReason::Malformed,
        }
    }
}

/// Rules for IPv4 headers: sources that no packet may have, but to some destinations.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) bad_sources: Vec<Ipv4Addr>,
    pub(super) good_destinations: Vec<Ipv4Addr>,
}

impl Rules {
    /// Reads `INTERFACES`, `BADSRC` and `GOODDST`.
    pub(super) fn read(&mut self, arguments: &mut Arguments<'_>) {
        if let Some(rules) = arguments.keyword_with("INTERFACES", Self::of_interfaces) {
            *self = rules;
        }
        if let Some(bad) = arguments.keyword_with("BADSRC", names::addresses) {
            self.bad_sources = bad;
        }
        if let Some(good) = arguments.keyword_with("GOODDST", names::addresses) {
            self.good_destinations = good;
        }
    }
    /// The rules of a router with these addresses and prefixes: no subnet's broadcast address is a source.
    fn of_interfaces(text: &str, at: At<'_>) -> Parsed<Self> {
        let mut rules = Self::default();
        for word in text::split_words(text) {
            let prefix = Prefix::read(&word, at, true)?;
            let (address, mask) = (u32::from(prefix.address), u32::from(prefix.mask));
            rules.bad_sources.push(Ipv4Addr::from(address & mask | !mask));
            rules.good_destinations.push(prefix.address);
        }
        rules.bad_sources.extend([Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]);
        Ok(rules)
    }
    /// These sources, with 0.0.0.0 and 255.255.255.255.
    pub(super) fn bad_sources(text: &str, at: At<'_>) -> Parsed<Vec<Ipv4Addr>> {
        let mut bad = names::addresses(text, at)?;
        bad.extend([Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]);
        Ok(bad)
    }

    /// Checks the header at a place, marks it, cuts what follows the packet, and notes the destination.
    #[inline]
    pub(super) fn apply(&self, packet: &mut Packet, offset: usize, sum: bool) -> Result<(), Fault> {
        let bytes = packet.data().get(offset..).unwrap_or_default();
        if bytes.len() < header::LENGTH {
            return Err(Fault::Tiny);
        }
        if bytes[0] >> 4 != 4 {
            return Err(Fault::Version);
        }
        let ip = Ip(bytes);
        let (header_length, length) = (ip.header_length(), ip.total_length());
        if header_length < header::LENGTH {
            return Err(Fault::HeaderLength);
        }
        if length > bytes.len() || length < header_length {
            return Err(Fault::Length);
        }
        if sum && checksum::internet(&bytes[..header_length]) != 0 {
            return Err(Fault::Checksum);
        }
        let destination = ip.destination();
        if self.bad_sources.contains(&ip.source()) && !self.good_destinations.contains(&destination) {
            return Err(Fault::Source);
        }
        packet.set_network(offset, header_length);
        packet.truncate(offset + length);
        packet.set_dst_ip(destination);
        Ok(())
    }
}

/// `CheckIPHeader([INTERFACES, BADSRC, GOODDST, OFFSET, VERBOSE, DETAILS, CHECKSUM])`: refuses bad IPv4 packets.
///
/// Packets that pass have their header marked, no bytes behind their length, and the destination annotation set.
/// `CheckIPHeader2` leaves the checksum alone.
pub(super) struct CheckIpHeader {
    rules: Rules,
    offset: usize,
    checksum: bool,
    faults: Faults<6>,
}

fn check_ip_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    configure(arguments, true)
}

fn check_ip_header_2(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    configure(arguments, false)
}

/// The word before an argument's value that can be a keyword.
fn keyword(argument: &str) -> Option<&str> {
    let (keyword, value) = text::keyword(argument)?;
    (keyword.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && !value.is_empty())
        .then_some(keyword)
}

fn configure(arguments: &mut Arguments<'_>, checksum: bool) -> Option<Rc<dyn Element>> {
    let mut rules = Rules::default();
    rules.read(arguments);
    let mut offset: i32 = arguments.keyword("OFFSET").unwrap_or(0);
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let details = arguments.keyword("DETAILS").unwrap_or(false);
    let checksum = arguments.keyword("CHECKSUM").unwrap_or(checksum);
    // A lone number is the offset; all else is too much.
    let rest = arguments.rest();
    match &rest[..] {
        [] => (),
        [one] if integer(one).is_some_and(|number| i32::try_from(number).is_ok()) => {
            offset = integer(one).and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
        }
        _ => {
            for argument in rest.iter().filter_map(|argument| keyword(argument)) {
                arguments.error(&format!("{argument}: unknown argument"));
            }
            if rest.iter().any(|argument| keyword(argument).is_none()) {
                arguments.error("too many arguments");
            }
        }
    }
    arguments.complete()?;
    let texts = [
        "tiny packet",
        "bad IP version",
        "bad IP header length",
        "bad IP length",
        "bad IP checksum",
        "bad source address",
    ];
    Some(Rc::new(CheckIpHeader {
        rules,
        // A place before the packet is none: every packet is too small for it.
        offset: usize::try_from(offset).unwrap_or(usize::MAX),
        checksum,
        faults: Faults::new(texts, verbose, details),
    }))
}

impl CheckIpHeader {
    #[cold]
    fn report(&self, at: At<'_>, packet: Packet, fault: Fault) {
        let subject = format!("{}: IP", at.name());
        self.faults.refuse(at, packet, fault as usize, &subject, fault.reason());
    }
}

impl Step for CheckIpHeader {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        match self.rules.apply(packet, self.offset, self.checksum) {
            Ok(()) => 0,
            Err(fault) => fault as u8 + 1,
        }
    }
    fn refuse(&self, at: At<'_>, packet: Packet, verdict: u8) {
        if let Some(fault) = Fault::ALL.get(usize::from(verdict).wrapping_sub(1)) {
            self.report(at, packet, *fault);
        }
    }
}

impl Element for CheckIpHeader {
    #[inline]
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match self.rules.apply(&mut packet, self.offset, self.checksum) {
            Ok(()) => Some(packet),
            Err(fault) => {
                self.report(at, packet, fault);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.sift(batch, |packet| self.act(at, packet), |packet, verdict| self.refuse(at, packet, verdict));
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.faults.handlers(handlers, |this: &Self| &this.faults);
    }
}

/// `MarkIPHeader([OFFSET])`: marks the IPv4 header at a place, without a check.
struct MarkIpHeader {
    offset: usize,
}

fn mark_ip_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: i32 = arguments.positional("OFFSET").unwrap_or(0);
    arguments.complete()?;
    let Ok(offset) = usize::try_from(offset) else {
        arguments.error("OFFSET: must not be negative");
        return None;
    };
    Some(Rc::new(MarkIpHeader { offset }))
}

impl MarkIpHeader {
    fn mark(&self, packet: &mut Packet) {
        let length = header::header_length(packet.data().get(self.offset..).unwrap_or_default());
        packet.set_network(self.offset, length);
    }
}

impl Element for MarkIpHeader {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.mark(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.mark(packet));
        at.push_batch(0, batch);
    }
}
