//! Elements that choose packets by their aggregate: `AggregateFilter`, `AggregateFirst`, `AggregateLast`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::text;
use crate::packet::{Annotated, first_timestamp, place, set_first_timestamp};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("AggregateFilter", aggregate_filter).ports("1/-").processing("h/h").creates_nothing(),
    Class::new("AggregateFirst", aggregate_first).ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("AggregateLast", aggregate_last).ports("1/1-2").processing("h/h").creates_nothing(),
];

/// Aggregates that `AggregateFirst` knows at most.
const MOST_KNOWN: usize = 1 << 22;
/// Packets that `AggregateLast` holds at most.
const MOST_HELD: usize = 1 << 16;

/// A filter's decision about the aggregates that it names.
struct Rule {
    aggregates: RangeInclusive<u32>,
    /// `None`: drop.
    output: Option<usize>,
}

/// `AggregateFilter(ACTION AGGREGATES, ...)`: sends packets where the first rule with their aggregate says.
///
/// `ACTION` is an output, `allow` (0), or `drop` or `deny`. `AGGREGATES` are numbers and ranges, or `all`. Packets
/// without a rule are dropped.
struct AggregateFilter {
    rules: Vec<Rule>,
}

fn action(word: &str, outputs: usize) -> Option<Option<usize>> {
    match word {
        "allow" => Some(Some(0)),
        "drop" | "deny" => Some(None),
        _ => word.parse().ok().filter(|output| *output < outputs).map(Some),
    }
}

fn aggregates(word: &str) -> Option<RangeInclusive<u32>> {
    if matches!(word, "all" | "-") {
        return Some(0..=u32::MAX);
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

fn aggregate_filter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let before = setup.errors.count();
    let mut rules: Vec<Rule> = Vec::new();
    for (number, argument) in arguments.rest().iter().enumerate() {
        let words = text::split_words(argument);
        let Some((first, words)) = words.split_first() else { continue };
        let Some(output) = action(first, setup.outputs()) else {
            setup.errors.error(&format!(
                "filter {number}: '{first}' is no action: expected 'allow', 'drop', or an output below {}",
                setup.outputs()
            ));
            continue;
        };
        for word in words {
            let Some(aggregates) = aggregates(word) else {
                setup
                    .errors
                    .error(&format!("filter {number}: '{word}' is no aggregate and no range of them"));
                continue;
            };
            let covers = |rule: &Rule| {
                rule.aggregates.start() <= aggregates.start() && aggregates.end() <= rule.aggregates.end()
            };
            if rules.iter().any(covers) {
                setup
                    .errors
                    .warning(&format!("filter {number}: '{word}' is ignored: an earlier filter has it"));
            }
            rules.push(Rule { aggregates, output });
        }
        if words.is_empty() {
            setup.errors.warning(&format!("filter {number} matches no packets"));
        }
    }
    arguments.complete()?;
    (setup.errors.count() == before).then(|| Rc::new(AggregateFilter { rules }) as Rc<dyn Element>)
}

impl Element for AggregateFilter {
    fn memory(&self) -> usize {
        self.rules.capacity() * size_of::<Rule>()
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let aggregate = packet.anno_u32(place::AGGREGATE);
        let rule = self.rules.iter().find(|rule| rule.aggregates.contains(&aggregate));
        match rule.map(|rule| rule.output) {
            Some(Some(output)) => at.push(output, packet),
            Some(None) => at.drop_packet(packet, DropReason::Denied),
            None => at.drop_packet(packet, DropReason::Unmatched),
        }
    }
}

/// `AggregateFirst`: passes the first packet of each aggregate; others leave by output 1 or are dropped.
///
/// It knows at most 4,194,304 aggregates: packets of further ones count as others.
#[derive(Default)]
struct AggregateFirst {
    known: RefCell<HashSet<u32>>,
}

fn aggregate_first(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(AggregateFirst::default()))
}

impl Element for AggregateFirst {
    fn memory(&self) -> usize {
        self.known.borrow().capacity() * size_of::<u32>()
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let mut known = self.known.borrow_mut();
        let is_full = known.len() >= MOST_KNOWN;
        if !is_full && known.insert(packet.anno_u32(place::AGGREGATE)) {
            return Some(packet);
        }
        drop(known);
        at.push_or_drop(1, packet, DropReason::Unmatched);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.button("clear", |this: &Self, _| this.known.borrow_mut().clear());
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.known.swap(&before.known);
        }
    }
}

/// `AggregateLast([STOP_AFTER_CLEAR])`: holds the last packet of each aggregate until its handler `clear` is written.
///
/// Earlier ones leave by output 1 or are dropped. A packet that leaves says in its annotations how many packets and bytes
/// it stands for, and when the first of them came. It holds at most 65,536 packets; those of further aggregates leave by
/// output 1 or are dropped.
struct AggregateLast {
    stop: bool,
    held: RefCell<BTreeMap<u32, Held>>,
}

struct Held {
    packet: Packet,
    /// Packets and bytes beside this packet.
    packets: u32,
    bytes: u32,
    first: i64,
}

fn aggregate_last(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let stop = arguments.keyword("STOP_AFTER_CLEAR").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(AggregateLast { stop, held: RefCell::default() }))
}

impl AggregateLast {
    fn clear(&self, at: At<'_>) {
        for Held { mut packet, packets, bytes, first } in
            std::mem::take(&mut *self.held.borrow_mut()).into_values()
        {
            packet.set_anno_u32(place::EXTRA_PACKETS, packets);
            packet.set_anno_u32(place::EXTRA_LENGTH, bytes);
            set_first_timestamp(&mut packet, first);
            at.push(0, packet);
        }
        if self.stop {
            at.router.please_stop();
        }
    }
}

impl Element for AggregateLast {
    fn memory(&self) -> usize {
        self.held.borrow().len() * size_of::<(u32, Held)>()
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let aggregate = packet.anno_u32(place::AGGREGATE);
        let extra = packet.anno_u32(place::EXTRA_LENGTH);
        let own = packet.anno_u32(place::EXTRA_PACKETS);
        let mut held = self.held.borrow_mut();
        if held.len() >= MOST_HELD && !held.contains_key(&aggregate) {
            drop(held);
            at.push_or_drop(1, packet, DropReason::TableFull);
            return;
        }
        let first = match first_timestamp(&packet) {
            0 => i64::try_from(packet.timestamp()).unwrap_or(i64::MAX),
            first => first,
        };
        let mut next = Held { packet, packets: own, bytes: extra, first };
        let Some(before) = held.remove(&aggregate) else {
            held.insert(aggregate, next);
            return;
        };
        let length = u32::try_from(before.packet.len()).unwrap_or(u32::MAX);
        next.packets = next.packets.wrapping_add(before.packets).wrapping_add(1);
        next.bytes = next.bytes.wrapping_add(before.bytes).wrapping_add(length);
        next.first = before.first;
        held.insert(aggregate, next);
        drop(held);
        at.push_or_drop(1, before.packet, DropReason::Replaced);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.button("clear", |this: &Self, at| this.clear(at));
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.held.swap(&before.held);
        }
    }
    fn cleanup(&self, at: At<'_>) {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        held.into_values().for_each(|held| at.drop_packet(held.packet, DropReason::Drained));
    }
}
