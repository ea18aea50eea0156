//! `AggregateIPAddrPair` numbers pairs of addresses; `AggregatePacketCounter` finds packets that were lost on a way.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::annotation::Annotation;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::hash::{Keyed, KeyedMap};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{SECOND, Span, Word};

pub(super) const CLASSES: &[Class] = &[
    Class::new("AggregateIPAddrPair", address_pair).ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("AggregatePacketCounter", packet_counter)
        .ports("-/=")
        .processing("a/a")
        .flow("#/#")
        .creates_nothing(),
];

/// Pairs of addresses that are known at most.
const MOST_PAIRS: usize = 1 << 20;
/// Packet numbers of all aggregates and inputs that are known at most.
const MOST_NUMBERS: usize = 1 << 20;
/// Time of packets between looks for pairs that are over (ns).
const REAP: u64 = 20 * 60 * SECOND;

/// A pair of addresses, the lower one first.
type Pair = [Ipv4Addr; 2];

#[derive(Clone, Copy)]
struct Known {
    aggregate: u32,
    /// Whether its first packet came from the lower address.
    from_lower: bool,
    last: u64,
}

/// `AggregateIPAddrPair([TIMEOUT, REAP])`: numbers pairs of addresses from 1, and paints packets by their direction.
///
/// The first packet of a pair and those that go the same way get paint 0, others 1. A pair is over after `TIMEOUT` seconds
/// without a packet (never); every `REAP` seconds of packets' time such pairs are forgotten. At most 1,048,576 pairs are
/// known: packets of further ones, and those without an IP header, leave by output 1 or are dropped.
struct AddressPair {
    timeout: Option<u64>,
    reap: u64,
    pairs: RefCell<KeyedMap<Pair, Known>>,
    next: Cell<u32>,
    reap_at: Cell<u64>,
}

fn address_pair(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let timeout: Option<Span> = arguments.keyword("TIMEOUT");
    let reap: Option<Span> = arguments.keyword("REAP");
    arguments.complete()?;
    let seed = u64::from(setup.at.router.random());
    Some(Rc::new(AddressPair {
        timeout: timeout.map(|span| span.0).filter(|time| *time > 0),
        reap: reap.map_or(REAP, |span| span.0),
        pairs: RefCell::new(KeyedMap::with_hasher(Keyed::new(seed))),
        next: Cell::new(1),
        reap_at: Cell::default(),
    }))
}

/// Source and destination of a packet's IPv4 header.
fn addresses(packet: &Packet) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let header = packet.network().filter(|header| header.len() >= 20 && header[0] >> 4 == 4)?;
    let address =
        |from: usize| Ipv4Addr::new(header[from], header[from + 1], header[from + 2], header[from + 3]);
    Some((address(12), address(16)))
}

impl AddressPair {
    fn is_over(&self, known: &Known, now: u64) -> bool {
        self.timeout.is_some_and(|timeout| now.saturating_sub(known.last) > timeout)
    }

    /// The number of a packet's pair, and whether it goes the other way than the first packet.
    fn number(&self, source: Ipv4Addr, destination: Ipv4Addr, now: u64) -> Option<(u32, bool)> {
        let from_lower = source <= destination;
        let pair = if from_lower { [source, destination] } else { [destination, source] };
        let mut pairs = self.pairs.borrow_mut();
        if self.timeout.is_some() && now >= self.reap_at.get() {
            pairs.retain(|_, known| !self.is_over(known, now));
            self.reap_at.set(now.saturating_add(self.reap));
        }
        if let Some(known) = pairs.get_mut(&pair)
            && !self.is_over(known, now)
        {
            known.last = now;
            return Some((known.aggregate, known.from_lower != from_lower));
        }
        if pairs.len() >= MOST_PAIRS && !pairs.contains_key(&pair) {
            return None;
        }
        let aggregate = self.next.get();
        self.next.set(aggregate.wrapping_add(1).max(1));
        pairs.insert(pair, Known { aggregate, from_lower, last: now });
        Some((aggregate, false))
    }
}

impl Element for AddressPair {
    fn memory(&self) -> usize {
        self.pairs.borrow().capacity() * size_of::<(Pair, Known)>()
    }
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let ends = addresses(&packet);
        let number =
            ends.and_then(|(source, destination)| self.number(source, destination, packet.timestamp()));
        let Some((aggregate, is_reply)) = number else {
            let reason = if ends.is_some() { DropReason::TableFull } else { DropReason::Unmatched };
            at.push_or_drop(1, packet, reason);
            return None;
        };
        packet.set_anno_u32(place::AGGREGATE, aggregate);
        packet.set_anno_u8(place::PAINT, u8::from(is_reply));
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.button("clear", |this: &Self, _| this.pairs.borrow_mut().clear());
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.pairs.swap(&before.pairs);
            self.next.set(before.next.get());
        }
    }
}

/// `AggregatePacketCounter([ANNO])`: counts how often each packet number of an aggregate came, by input.
///
/// `ANNO` is an annotation of four bytes (`PACKET_NUMBER`), or `NONE`. At most 1,048,576 numbers are known; others count
/// for `count` alone, and as `missed`.
struct PacketCounter {
    anno: Option<usize>,
    /// By input and aggregate: packet numbers and how often each came.
    inputs: RefCell<Vec<HashMap<u32, BTreeMap<u32, u32>>>>,
    known: Cell<usize>,
    count: Cell<u64>,
    missed: Cell<u64>,
}

fn packet_counter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let word: Option<Word> = arguments.keyword("ANNO");
    arguments.complete()?;
    let anno = match word.as_ref().map(|word| word.0.as_str()) {
        None => Some(place::PACKET_NUMBER),
        Some("NONE") => None,
        Some(name) => {
            let found = Annotation::find(name, setup.at).filter(|found| matches!(found.size, 0 | 4));
            let Some(found) = found.filter(|found| found.place + 4 <= place::SIZE) else {
                setup.errors.error(&format!("ANNO: '{name}' is no annotation of 4 bytes"));
                return None;
            };
            Some(found.place)
        }
    };
    let inputs = RefCell::new(vec![HashMap::new(); setup.inputs()]);
    Some(Rc::new(PacketCounter {
        anno,
        inputs,
        known: Cell::default(),
        count: Cell::default(),
        missed: Cell::default(),
    }))
}

impl PacketCounter {
    fn count(&self, input: usize, packet: &Packet) {
        self.count.set(self.count.get() + 1);
        let number = self.anno.map_or(0, |anno| packet.anno_u32(anno));
        let mut inputs = self.inputs.borrow_mut();
        let Some(aggregates) = inputs.get_mut(input) else { return };
        let aggregate = packet.anno_u32(place::AGGREGATE);
        let counted = aggregates.get_mut(&aggregate).and_then(|numbers| numbers.get_mut(&number));
        if let Some(count) = counted {
            *count = count.saturating_add(1);
        } else if self.known.get() < MOST_NUMBERS {
            self.known.set(self.known.get() + 1);
            aggregates.entry(aggregate).or_default().insert(number, 1);
        } else {
            self.missed.set(self.missed.get() + 1);
        }
    }

    /// Numbers of an aggregate of which `wanted` holds, by how often each came on each input, one a line.
    fn numbers(&self, parameter: &str, wanted: impl Fn(&[u32]) -> bool) -> Answer {
        let aggregate: u32 = parameter.trim().parse().map_err(|_| "expected aggregate number")?;
        let inputs = self.inputs.borrow();
        let mut counts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (input, aggregates) in inputs.iter().enumerate() {
            for (number, count) in aggregates.get(&aggregate).into_iter().flatten() {
                counts.entry(*number).or_insert_with(|| vec![0; inputs.len()])[input] = *count;
            }
        }
        let lines = counts.into_iter().filter(|(_, counts)| wanted(counts));
        Ok(lines.map(|(number, _)| format!("{number}\n")).collect())
    }
}

impl Element for PacketCounter {
    fn memory(&self) -> usize {
        // A table's slots, the first leaf of each tree, and about what further entries take.
        let slot = size_of::<(u32, BTreeMap<u32, u32>)>() + 1;
        let inputs = self.inputs.borrow();
        let trees = inputs.iter().map(|one| one.capacity() * slot + one.len() * 112);
        trees.sum::<usize>() + self.known.get() * 12
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        self.count(input, &packet);
        at.push(input, packet);
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        let packet = at.pull(output)?;
        self.count(output, &packet);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("missed", |this: &Self, _| this.missed.get());
        handlers.ask("received", |this: &Self, _, parameter| this.numbers(parameter, |_| true));
        if self.inputs.borrow().len() >= 2 {
            handlers.ask("undelivered", |this: &Self, _, parameter| {
                this.numbers(parameter, |counts| counts[0] > 0 && counts[1] == 0)
            });
        }
        handlers.button("clear", |this: &Self, _| {
            this.inputs.borrow_mut().iter_mut().for_each(HashMap::clear);
            this.known.set(0);
            this.count.set(0);
            this.missed.set(0);
        });
    }
}
