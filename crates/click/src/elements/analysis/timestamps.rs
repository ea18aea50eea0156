//! Elements that set, change and measure packets' timestamps.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::summary::{first_timestamp, set_first_timestamp, write_signed_time};
use crate::arguments::{Argument, Arguments, Parsed, Problem};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Timestamp, Word};

pub(super) const CLASSES: &[Class] = &[
    Class::new("SetTimestamp", set_timestamp).creates_nothing(),
    Class::new("AdjustTimestamp", adjust_timestamp).creates_nothing(),
    Class::new("SetTimestampDelta", set_timestamp_delta).creates_nothing(),
    Class::new("StoreTimestamp", store_timestamp).creates_nothing(),
    Class::new("TimeRange", time_range).creates_nothing(),
    Class::new("TimestampAccum", timestamp_accum).creates_nothing(),
];

/// A time that is not negative.
pub(super) fn time(text: &str, at: At<'_>) -> Parsed<i64> {
    match Timestamp::parse(text, at)? {
        Timestamp(time) if time >= 0 => Ok(time),
        _ => Err(Problem::Syntax),
    }
}

/// A packet's timestamp, or that of the first packet that it stands for.
fn stamp(packet: &Packet, first: bool) -> i64 {
    if first { first_timestamp(packet) } else { packet.timestamp() as i64 }
}
fn set_stamp(packet: &mut Packet, first: bool, time: i64) {
    if first { set_first_timestamp(packet, time) } else { packet.set_timestamp(time as u64) }
}

/// `SetTimestamp([TIMESTAMP, FIRST])`: sets packets' timestamps to a time, or to the time at which they pass.
struct SetTimestamp {
    time: Option<i64>,
    first: bool,
}

fn set_timestamp(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let time = arguments.positional_with("TIMESTAMP", time);
    let first = arguments.keyword("FIRST").unwrap_or(false);
    let delta = arguments.keyword("DELTA").unwrap_or(false);
    arguments.complete()?;
    if delta {
        setup.errors.error("SetTimestamp(DELTA) is deprecated, use SetTimestampDelta(TYPE FIRST)");
        return None;
    }
    Some(Rc::new(SetTimestamp { time, first }))
}

impl Element for SetTimestamp {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let time = self.time.unwrap_or_else(|| at.now() as i64);
        set_stamp(&mut packet, self.first, time);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| {
            set_stamp(packet, self.first, self.time.unwrap_or_else(|| at.now() as i64));
        });
        at.push_batch(0, batch);
    }
}

/// `AdjustTimestamp(TIME [, FIRST, ALL])`: adds a time to packets' timestamps, and to those of 0 with `ALL`.
struct AdjustTimestamp {
    time: Cell<i64>,
    first: bool,
    all: bool,
}

fn adjust_timestamp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let Timestamp(time) = arguments.positional("TIME").unwrap_or_default();
    let first = arguments.keyword("FIRST").unwrap_or(false);
    let all = arguments.keyword("ALL").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(AdjustTimestamp { time: Cell::new(time), first, all }))
}

/// A span of time as Click writes it: `3ms`, `20us`, `2s`, `1.500000s`.
fn write_interval(span: i64) -> String {
    let sign = if span < 0 { "-" } else { "" };
    let span = span.unsigned_abs();
    let text = match span {
        0 => "0s".to_owned(),
        1..1_000_000_000 if span.is_multiple_of(1_000_000) => format!("{}ms", span / 1_000_000),
        1..1_000_000_000 if span.is_multiple_of(1000) => format!("{}us", span / 1000),
        1..1_000_000_000 => format!("{span}ns"),
        _ if span.is_multiple_of(1_000_000_000) => format!("{}s", span / 1_000_000_000),
        _ => format!("{}s", crate::value::write_time(span)),
    };
    format!("{sign}{text}")
}

impl Element for AdjustTimestamp {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        let time = stamp(&packet, self.first);
        if time != 0 || self.all {
            set_stamp(&mut packet, self.first, time.wrapping_add(self.time.get()));
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("time", |this: &Self, _| write_interval(this.time.get()));
        handlers.write("time", |this: &Self, at, value| {
            let Ok(Timestamp(time)) = Timestamp::parse(value.trim(), at) else {
                return Err("expected time".into());
            };
            this.time.set(time);
            Ok(String::new())
        });
    }
}

/// Origin from which [`SetTimestampDelta`] measures timestamps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The first timestamp that came.
    Range,
    /// The present: the difference is how old the packet is.
    Now,
    /// The timestamp of the first packet that a packet stands for.
    First,
}

/// `SetTimestampDelta([TYPE])`: replaces timestamps by differences of time.
///
/// They are to the first one (`RANGE`), to now (`NOW`) or to the packet's own first timestamp (`FIRST`).
struct SetTimestampDelta {
    origin: Origin,
    first: Cell<i64>,
}

fn set_timestamp_delta(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let word: Option<Word> = arguments.keyword("TYPE");
    arguments.complete()?;
    let origin = match word.as_ref().map(|word| word.0.as_str()) {
        None | Some("RANGE") => Origin::Range,
        Some("NOW") => Origin::Now,
        Some("FIRST") => Origin::First,
        Some(_) => {
            setup.errors.error("bad TYPE");
            return None;
        }
    };
    Some(Rc::new(SetTimestampDelta { origin, first: Cell::default() }))
}

impl Element for SetTimestampDelta {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let time = packet.timestamp() as i64;
        if time == 0 {
            return Some(packet);
        }
        let delta = match self.origin {
            Origin::Range => {
                if self.first.get() == 0 {
                    self.first.set(time);
                }
                time.wrapping_sub(self.first.get())
            }
            Origin::Now => (at.now() as i64).wrapping_sub(time),
            Origin::First => time.wrapping_sub(first_timestamp(&packet)),
        };
        packet.set_timestamp(delta as u64);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("first", |this: &Self, _| format!("{}\n", write_signed_time(this.first.get())));
        handlers.button("reset", |this: &Self, _| this.first.set(0));
    }
}

/// `StoreTimestamp([OFFSET, TAIL])`: writes the timestamp into the packet: seconds and nanoseconds, 4 bytes each.
struct StoreTimestamp {
    /// `None`: behind the packet's last byte.
    offset: Option<usize>,
}

fn store_timestamp(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: Option<i32> = arguments.positional("OFFSET");
    let tail = arguments.keyword("TAIL").unwrap_or(false);
    arguments.complete()?;
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    if offset.is_some() == tail {
        setup.errors.error("supply exactly one of 'OFFSET' and 'TAIL'");
        return None;
    }
    Some(Rc::new(StoreTimestamp { offset }))
}

impl Element for StoreTimestamp {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let offset = self.offset.unwrap_or(packet.len());
        let time = packet.timestamp() as i64;
        let needed = offset.saturating_add(8).saturating_sub(packet.len());
        if !packet.put_bytes(needed) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let seconds = time.div_euclid(1_000_000_000) as u32;
        let rest = time.rem_euclid(1_000_000_000) as u32;
        let bytes = packet.data_mut();
        bytes[offset..offset + 4].copy_from_slice(&seconds.to_ne_bytes());
        bytes[offset + 4..offset + 8].copy_from_slice(&rest.to_ne_bytes());
        Some(packet)
    }
}

/// `TimeRange([SIMPLE])`: notes the first and last timestamps, by time or (`SIMPLE`) by arrival.
struct TimeRange {
    simple: bool,
    first: Cell<i64>,
    last: Cell<i64>,
}

fn time_range(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let simple = arguments.keyword("SIMPLE").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(TimeRange { simple, first: Cell::default(), last: Cell::default() }))
}

impl Element for TimeRange {
    fn action(&self, _: At<'_>, packet: Packet) -> Option<Packet> {
        let time = packet.timestamp() as i64;
        if self.first.get() == 0 {
            self.first.set(time);
            self.last.set(time);
        } else if self.simple || self.last.get() < time {
            self.last.set(time);
        } else if time < self.first.get() {
            self.first.set(time);
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("first", |this: &Self, _| write_signed_time(this.first.get()));
        handlers.read("last", |this: &Self, _| write_signed_time(this.last.get()));
        handlers.read("range", |this: &Self, _| {
            format!("{} {}", write_signed_time(this.first.get()), write_signed_time(this.last.get()))
        });
        handlers.read("interval", |this: &Self, _| {
            write_signed_time(this.last.get().wrapping_sub(this.first.get()))
        });
        handlers.button("reset", |this: &Self, _| {
            this.first.set(0);
            this.last.set(0);
        });
    }
}

/// `TimestampAccum`: adds up how old packets are when they pass.
struct TimestampAccum {
    seconds: Cell<f64>,
    count: Cell<u64>,
}

fn timestamp_accum(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(TimestampAccum { seconds: Cell::default(), count: Cell::default() }))
}

impl Element for TimestampAccum {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let age = (at.now() as i64).wrapping_sub(packet.timestamp() as i64);
        self.seconds.set(self.seconds.get() + age as f64 / 1e9);
        self.count.set(self.count.get() + 1);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("time", |this: &Self, _| super::general(this.seconds.get()));
        handlers.read("average_time", |this: &Self, _| {
            super::general(this.seconds.get() / this.count.get() as f64)
        });
        handlers.button("reset_counts", |this: &Self, _| {
            this.seconds.set(0.0);
            this.count.set(0);
        });
    }
}
