//! Small elements of aggregates and averages: `AggregatePaint`, `AggregateLength`, `AverageCounter`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::general;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::SECOND;

pub(super) const CLASSES: &[Class] = &[
    Class::new("AggregatePaint", aggregate_paint).creates_nothing(),
    Class::new("AggregateLength", aggregate_length).ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("AverageCounter", average_counter).creates_nothing(),
];

/// Sets a packet's aggregate, or puts `bits` more bits behind it.
pub(super) fn aggregate(packet: &mut Packet, value: u32, incremental: Option<u32>) {
    let value = match incremental {
        Some(bits) => {
            let before = packet.anno_u32(place::AGGREGATE);
            before.checked_shl(bits).unwrap_or(0).wrapping_add(value)
        }
        None => value,
    };
    packet.set_anno_u32(place::AGGREGATE, value);
}

/// `AggregatePaint([BITS, INCREMENTAL])`: makes the paint, or its lowest bits, the aggregate.
struct AggregatePaint {
    bits: u32,
    incremental: bool,
}

fn aggregate_paint(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let bits: i32 = arguments.positional("BITS").unwrap_or(8);
    let incremental = arguments.keyword("INCREMENTAL").unwrap_or(false);
    arguments.complete()?;
    if !(1..=8).contains(&bits) {
        setup.errors.error("bad number of bits");
        return None;
    }
    Some(Rc::new(AggregatePaint { bits: bits.unsigned_abs(), incremental }))
}

impl Element for AggregatePaint {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        let value = u32::from(packet.paint()) & ((1 << self.bits) - 1);
        aggregate(&mut packet, value, self.incremental.then_some(self.bits));
        Some(packet)
    }
}

/// `AggregateLength([IP])`: makes the packet's length on the wire the aggregate, from the IP header on with `IP`.
///
/// Packets without an IP header leave by output 1 or are dropped then.
struct AggregateLength {
    ip: bool,
}

fn aggregate_length(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ip = arguments.keyword("IP").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(AggregateLength { ip }))
}

impl Element for AggregateLength {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let before = if self.ip {
            match packet.network_place() {
                Some(place) => place,
                None => {
                    at.push_or_drop(1, packet, DropReason::Unmatched);
                    return None;
                }
            }
        } else {
            0
        };
        let length = (packet.len() as isize - before) as u32;
        let missing = packet.anno_u32(place::EXTRA_LENGTH);
        aggregate(&mut packet, length.wrapping_add(missing), None);
        Some(packet)
    }
}

/// `AverageCounter([IGNORE])`: counts packets and bytes, and their average rates.
///
/// Those of the first `IGNORE` seconds do not count. Rates are over all time between the first and the last packet.
struct AverageCounter {
    ignore: u64,
    count: Cell<u64>,
    bytes: Cell<u64>,
    first: Cell<u64>,
    last: Cell<u64>,
}

fn average_counter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ignore: u32 = arguments.positional("IGNORE").unwrap_or(0);
    arguments.complete()?;
    Some(Rc::new(AverageCounter {
        ignore: u64::from(ignore) * SECOND,
        count: Cell::default(),
        bytes: Cell::default(),
        first: Cell::default(),
        last: Cell::default(),
    }))
}

impl AverageCounter {
    fn rate(&self, count: u64) -> String {
        let span = self.last.get().saturating_sub(self.first.get()).saturating_sub(self.ignore);
        // A span counts as at least Click's clock tick, a millisecond.
        general(count as f64 * SECOND as f64 / span.max(SECOND / 1000) as f64)
    }
}

impl Element for AverageCounter {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let now = at.steady();
        if self.first.get() == 0 {
            self.first.set(now);
        }
        if now.saturating_sub(self.first.get()) >= self.ignore {
            self.count.set(self.count.get() + 1);
            self.bytes.set(self.bytes.get() + packet.len() as u64);
        }
        self.last.set(now);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("byte_count", |this: &Self, _| this.bytes.get());
        handlers.read("rate", |this: &Self, _| this.rate(this.count.get()));
        handlers.read("byte_rate", |this: &Self, _| this.rate(this.bytes.get()));
        handlers.button("reset", |this: &Self, _| {
            for cell in [&this.count, &this.bytes, &this.first, &this.last] {
                cell.set(0);
            }
        });
    }
}
