//! Rates: `Shaper`, `RatedUnqueue`, `RatedSplitter`, and the same for bandwidths.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::Signal;
use crate::router::{At, Setup};
use crate::value::{Bandwidth, Span, write_bandwidth};

use super::tokens::{GapRate, TokenBucket};

pub(super) const CLASSES: &[Class] = &[
    Class::new("Shaper", shaper).ports("1/1-2").processing("l/l").live(),
    Class::new("BandwidthShaper", bandwidth_shaper).ports("1/1-2").processing("l/l").live(),
    Class::new("RatedUnqueue", rated_unqueue).processing("l/h").live(),
    Class::new("BandwidthRatedUnqueue", bandwidth_rated_unqueue).processing("l/h").live(),
    Class::new("RatedSplitter", rated_splitter).ports("1/1-2").processing("h/h").live(),
    Class::new("BandwidthRatedSplitter", bandwidth_rated_splitter).ports("1/1-2").processing("h/h").live(),
];

/// The things that a rate counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Packets,
    Bytes,
}

impl Unit {
    /// Reads the argument `RATE`.
    fn read_rate(self, arguments: &mut Arguments<'_>) -> Option<u32> {
        match self {
            Self::Packets => arguments.required("RATE"),
            Self::Bytes => arguments.required("RATE").map(|Bandwidth(rate)| rate),
        }
    }
    fn write_rate(self, rate: u32) -> String {
        match self {
            Self::Packets => rate.to_string(),
            Self::Bytes => write_bandwidth(rate),
        }
    }
    /// Tokens that must be in a bucket before a packet passes: so many that a packet's bytes never overdraw it.
    fn threshold(self) -> u32 {
        match self {
            Self::Packets => 1,
            Self::Bytes => 131_072,
        }
    }
    /// Tokens that a packet takes.
    fn of(self, packet: &Packet) -> u32 {
        match self {
            Self::Packets => 1,
            Self::Bytes => u32::try_from(packet.len()).unwrap_or(u32::MAX),
        }
    }
    /// Handlers `rate` and `config` of an element whose rate is `rate`.
    fn handlers<E: Element>(self, handlers: &mut Handlers, rate: fn(&E) -> u32) {
        handlers.read("rate", move |this: &E, _| self.write_rate(rate(this)));
        handlers.change_argument("rate", Some(0), "RATE");
        handlers.read("config", move |this: &E, _| self.write_rate(rate(this)));
        handlers.change_config();
    }
}

/// `Shaper(RATE)`: yields at most `RATE` packets a second; `BandwidthShaper(RATE)`: bytes.
///
/// A second output of `Shaper` yields packets while the first does not.
struct Shaper {
    rate: GapRate,
    unit: Unit,
}

fn shaper(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    shaped(arguments, setup, Unit::Packets)
}
fn bandwidth_shaper(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    shaped(arguments, setup, Unit::Bytes)
}
fn shaped(arguments: &mut Arguments<'_>, setup: &Setup<'_>, unit: Unit) -> Option<Rc<dyn Element>> {
    let rate = unit.read_rate(arguments);
    arguments.complete()?;
    let rate = rate?;
    if rate > GapRate::MAX {
        // Click tells this as an error, and goes on.
        setup.errors.message(&format!("rate too large; lowered to {}", GapRate::MAX));
    }
    Some(Rc::new(Shaper { rate: GapRate::new(rate), unit }))
}

impl Element for Shaper {
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        let due = self.rate.is_due(at.now());
        let first = output == 0 || self.unit == Unit::Bytes;
        if due != first {
            return None;
        }
        let packet = at.pull(0)?;
        if first {
            self.rate.take(self.unit.of(&packet) as usize);
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.unit.handlers(handlers, |this: &Self| this.rate.rate());
        handlers.write("reset", |this: &Self, _, _| {
            this.rate.reset();
            Ok(String::new())
        });
    }
    fn reconfigure(&self, at: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.rate.assign_from(&fresh.rate, at.now());
            true
        })
    }
}

/// Reads a rate and a burst, and makes the bucket.
fn read_bucket(arguments: &mut Arguments<'_>, setup: &Setup<'_>, unit: Unit) -> Option<TokenBucket> {
    let burst = if unit == Unit::Bytes { "BURST_BYTES" } else { "BURST_SIZE" };
    let rate = unit.read_rate(arguments);
    let duration: Option<Span> = arguments.keyword("BURST_DURATION");
    let tokens: Option<u32> = arguments.keyword(burst);
    arguments.complete()?;
    let rate = rate?;
    if duration.is_some() && tokens.is_some() {
        setup.errors.error("cannot specify both BURST_DURATION and BURST_SIZE");
        return None;
    }
    let mut tokens = tokens.unwrap_or_else(|| {
        // A burst of 20 ms, unless told otherwise; Click keeps whole milliseconds.
        let milliseconds = duration.map_or(20, |Span(time)| time.saturating_add(500_000) / 1_000_000);
        u32::try_from(u64::from(rate).saturating_mul(milliseconds) / 1000).unwrap_or(u32::MAX)
    });
    if unit == Unit::Bytes {
        tokens = tokens.saturating_add(unit.threshold());
    }
    Some(TokenBucket::new(rate, tokens.max(1)))
}

/// `RatedUnqueue(RATE [, BURST_DURATION, BURST_SIZE])`: pulls `RATE` packets a second, and pushes them.
///
/// `BandwidthRatedUnqueue(RATE [, BURST_DURATION, BURST_BYTES])` does so with bytes.
struct RatedUnqueue {
    bucket: TokenBucket,
    unit: Unit,
    active: Cell<bool>,
    signal: RefCell<Signal>,
    runs: Cell<u32>,
    pushes: Cell<u32>,
    failed_pulls: Cell<u32>,
    empty_runs: Cell<u32>,
}

fn rated_unqueue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    unqueue(arguments, setup, Unit::Packets)
}
fn bandwidth_rated_unqueue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    unqueue(arguments, setup, Unit::Bytes)
}
fn unqueue(arguments: &mut Arguments<'_>, setup: &Setup<'_>, unit: Unit) -> Option<Rc<dyn Element>> {
    Some(Rc::new(RatedUnqueue {
        bucket: read_bucket(arguments, setup, unit)?,
        unit,
        active: Cell::new(true),
        signal: RefCell::default(),
        runs: Cell::default(),
        pushes: Cell::default(),
        failed_pulls: Cell::default(),
        empty_runs: Cell::default(),
    }))
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get().wrapping_add(1));
}

impl Element for RatedUnqueue {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.schedule(0);
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        count(&self.runs);
        if !self.active.get() {
            return false;
        }
        self.bucket.refill(at);
        let threshold = self.unit.threshold();
        if !self.bucket.contains(threshold) {
            at.timer_after(0, self.bucket.time_until_contains(threshold));
            count(&self.empty_runs);
            return false;
        }
        let Some(packet) = at.pull(0) else {
            count(&self.failed_pulls);
            if self.signal.borrow().is_active() {
                at.schedule(0);
                count(&self.empty_runs);
            }
            return false;
        };
        self.bucket.remove(self.unit.of(&packet));
        count(&self.pushes);
        at.push(0, packet);
        at.schedule(0);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        at.schedule(0);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("calls", |this: &Self, _| {
            format!(
                "{} calls to run_task()\n{} empty runs\n{} pushes\n{} failed pulls\n",
                this.runs.get(),
                this.empty_runs.get(),
                this.pushes.get(),
                this.failed_pulls.get()
            )
        });
        self.unit.handlers(handlers, |this: &Self| this.bucket.rate());
        handlers.flag("active", |this: &Self| &this.active);
        handlers.task::<Self>(0);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.bucket.assign_from(&fresh.bucket);
            true
        })
    }
}

/// `RatedSplitter(RATE [, BURST_DURATION, BURST_SIZE])`: passes `RATE` packets a second, and drops others.
///
/// Dropped packets leave by its second output, if there is one.
/// `BandwidthRatedSplitter(RATE [, BURST_DURATION, BURST_BYTES])` does so with bytes.
struct RatedSplitter {
    bucket: TokenBucket,
    unit: Unit,
}

fn rated_splitter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let bucket = read_bucket(arguments, setup, Unit::Packets)?;
    Some(Rc::new(RatedSplitter { bucket, unit: Unit::Packets }))
}
fn bandwidth_rated_splitter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let bucket = read_bucket(arguments, setup, Unit::Bytes)?;
    Some(Rc::new(RatedSplitter { bucket, unit: Unit::Bytes }))
}

impl Element for RatedSplitter {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        self.bucket.refill(at);
        if self.bucket.contains(self.unit.threshold()) {
            self.bucket.remove(self.unit.of(&packet));
            at.push(0, packet);
        } else {
            at.push_or_drop(1, packet, DropReason::RateLimited);
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.unit.handlers(handlers, |this: &Self| this.bucket.rate());
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.bucket.assign_from(&fresh.bucket);
            true
        })
    }
}
