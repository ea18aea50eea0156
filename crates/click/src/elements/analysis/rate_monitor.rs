//! `IPRateMonitor`: rates to and from networks, with those of busy networks' parts.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::binary_fraction;
use crate::arguments::{Argument, Arguments, Problem};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::text;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Word, integer};

pub(super) const CLASSES: &[Class] = &[Class::new("IPRateMonitor", configure).ports("1-2/1-2")];

/// An epoch of the averages (ns), and how many there are in a second.
const EPOCH: u64 = 8_000_000;
const EPOCHS_A_SECOND: u64 = 125;
/// Bits of fraction of an average, and by how many bits a sample counts less than the average before.
const SCALE: u32 = 10;
const STABILITY: u32 = 5;
/// Memory that a counter and a level count as (bytes).
const COUNTER_BYTES: usize = 40;
const LEVEL_BYTES: usize = 2080;
/// Memory that is used at most where the configuration sets no limit (bytes).
const MOST_BYTES: usize = 64 << 20;
/// The least limit of memory (KiB).
const LEAST_LIMIT: u32 = 100;

/// Averages of the rates from and to a network.
#[derive(Clone, Default)]
struct Rates {
    epoch: u64,
    samples: [u64; 2],
    averages: [u64; 2],
}

impl Rates {
    fn new(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
    /// Counts epochs that have passed into the averages.
    fn pass(&mut self, now: u64) {
        if now == self.epoch {
            return;
        }
        let idle = now.saturating_sub(self.epoch).saturating_sub(1);
        for (samples, average) in self.samples.iter_mut().zip(&mut self.averages) {
            *average = Self::step(*average, std::mem::take(samples));
            if idle >= 100 {
                *average = 0;
            } else {
                for _ in 0..idle {
                    *average = Self::step(*average, 0);
                }
            }
        }
        self.epoch = now;
    }
    fn step(average: u64, samples: u64) -> u64 {
        let sample = (samples.min(1 << 40) << SCALE) + (1 << (STABILITY - 1));
        let change = (sample as i64 - average as i64) >> STABILITY;
        average.saturating_add_signed(change)
    }
    /// The rate by an average (a second).
    fn rate(&self, which: usize) -> i64 {
        ((self.averages[which] * EPOCHS_A_SECOND) >> SCALE) as i64
    }
}

/// A network, or a host at the last level.
struct Counter {
    rates: Rates,
    /// Its parts are not counted until this epoch.
    closed_until: u64,
    parts: Option<Box<Level>>,
}

/// Networks of one length within another, by their last byte.
struct Level {
    counters: [Option<Box<Counter>>; 256],
}

impl Level {
    fn new() -> Self {
        Self { counters: [const { None }; 256] }
    }
    /// Memory that it and its parts count as.
    fn bytes(&self) -> usize {
        let parts = self
            .counters
            .iter()
            .flatten()
            .map(|counter| COUNTER_BYTES + counter.parts.as_ref().map_or(0, |parts| parts.bytes()));
        LEVEL_BYTES + parts.sum::<usize>()
    }
    /// Forgets the parts of networks whose averages are low, until less memory than `target` is used.
    fn fold(&mut self, threshold: u64, now: u64, memory: &mut usize, target: usize) {
        for counter in self.counters.iter_mut().flatten() {
            if *memory < target {
                return;
            }
            let Some(parts) = &mut counter.parts else { continue };
            counter.rates.pass(now);
            if counter.rates.averages.iter().all(|average| *average < threshold) {
                *memory = memory.saturating_sub(parts.bytes());
                counter.parts = None;
            } else {
                parts.fold(threshold, now, memory, target);
            }
        }
    }
    fn print(&mut self, now: u64, prefix: &str, indent: &str, out: &mut String) {
        for (byte, counter) in self.counters.iter_mut().enumerate() {
            let Some(counter) = counter else { continue };
            if counter.rates.averages == [0; 2] {
                continue;
            }
            counter.rates.pass(now);
            let name = format!("{prefix}{byte}");
            let rate = |which: usize| binary_fraction(counter.rates.averages[which] * EPOCHS_A_SECOND, SCALE);
            out.push_str(&format!("{indent}{name}\t{}\t{}\n", rate(0), rate(1)));
            if let Some(parts) = &mut counter.parts {
                parts.print(now, &format!("{name}."), &format!("{indent}\t"), out);
            }
        }
    }
}

/// `IPRateMonitor(TYPE, RATIO, THRESH [, MEMORY, ANNO])`: measures rates by networks.
///
/// Rates are of `PACKETS` or `BYTES`, from sources (input 0) and to destinations (input 1). Networks have the first
/// byte of addresses, and further bytes where rates reach a threshold.
///
/// With `ANNO` (the default), both rates of the smallest network that is counted go into the packet's annotations.
struct RateMonitor {
    counts_packets: bool,
    annotates: bool,
    /// Parts of 65536 of the packets are counted.
    ratio: u32,
    threshold: i64,
    /// Limit of memory (bytes), 0 for none.
    limit: Cell<usize>,
    memory: Cell<usize>,
    base: RefCell<Level>,
    reset_at: Cell<u64>,
    folded_at: Cell<u64>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let kind: Option<Word> = arguments.required("TYPE");
    let ratio = arguments.required_with("RATIO", |text, _| {
        let value = crate::value::fixed(text, 9).filter(|value| *value >= 0).ok_or(Problem::Syntax)?;
        u32::try_from(((value << 16) + 500_000_000) / 1_000_000_000).map_err(|_| Problem::Syntax)
    });
    let threshold: Option<i32> = arguments.required("THRESH");
    let limit: u32 = arguments.positional("MEMORY").unwrap_or(0);
    let annotates = arguments.positional("ANNO").unwrap_or(true);
    arguments.complete()?;
    let counts_packets = match kind?.0.to_uppercase().as_str() {
        "PACKETS" => true,
        "BYTES" => false,
        _ => {
            setup.errors.error("monitor type should be \"PACKETS\" or \"BYTES\"");
            return None;
        }
    };
    let ratio = ratio?;
    if ratio > 1 << 16 {
        setup.errors.error("ratio must be between 0 and 1");
        return None;
    }
    let now = setup.at.steady() / EPOCH;
    Some(Rc::new(RateMonitor {
        counts_packets,
        annotates,
        ratio,
        threshold: (i64::from(threshold?) * i64::from(ratio)) >> 16,
        limit: Cell::new(limit_of(limit)),
        memory: Cell::new(LEVEL_BYTES),
        base: RefCell::new(Level::new()),
        reset_at: Cell::new(now),
        folded_at: Cell::new(now),
    }))
}

/// The limit of memory in bytes of one in KiB.
fn limit_of(kibibytes: u32) -> usize {
    if kibibytes == 0 { 0 } else { kibibytes.max(LEAST_LIMIT) as usize * 1024 }
}

impl RateMonitor {
    fn limit(&self) -> usize {
        match self.limit.get() {
            0 => MOST_BYTES,
            limit => limit,
        }
    }

    fn update(&self, at: At<'_>, packet: &mut Packet, input: usize) {
        let Some(ip) = packet.network().filter(|ip| ip.len() >= 20) else { return };
        let place = if input == 0 { 12 } else { 16 };
        let address = [ip[place], ip[place + 1], ip[place + 2], ip[place + 3]];
        let amount = if self.counts_packets { 1 } else { u64::from(u16::from_be_bytes([ip[2], ip[3]])) };
        let counts = at.router.random() >> 5 & 0xFFFF <= self.ratio;
        let now = at.steady() / EPOCH;
        let limit = self.limit();
        let mut memory = self.memory.get();
        {
            let mut base = self.base.borrow_mut();
            let mut level = &mut *base;
            for (depth, &byte) in address.iter().enumerate() {
                let slot = &mut level.counters[usize::from(byte)];
                if slot.is_none() && memory + COUNTER_BYTES > limit {
                    break;
                }
                let counter = slot.get_or_insert_with(|| {
                    memory += COUNTER_BYTES;
                    Box::new(Counter { rates: Rates::new(now), closed_until: 0, parts: None })
                });
                if counts {
                    counter.rates.pass(now);
                    let samples = &mut counter.rates.samples[usize::from(input != 0)];
                    *samples = samples.saturating_add(amount);
                }
                if counter.parts.is_some() {
                    let Some(parts) = &mut counter.parts else { break };
                    level = parts;
                    continue;
                }
                let (forward, reverse) = (counter.rates.rate(0), counter.rates.rate(1));
                if self.annotates {
                    let bounded = |rate: i64| i32::try_from(rate).unwrap_or(i32::MAX) as u32;
                    packet.set_anno_u32(place::AGGREGATE, bounded(forward));
                    packet.set_anno_u32(place::EXTRA_PACKETS, bounded(reverse));
                }
                let is_busy = forward >= self.threshold || reverse >= self.threshold;
                let fits = memory + COUNTER_BYTES + LEVEL_BYTES <= limit;
                if let Some(next) = address.get(depth + 1)
                    && counter.closed_until < now
                    && is_busy
                    && fits
                {
                    memory += COUNTER_BYTES + LEVEL_BYTES;
                    let mut parts = Box::new(Level::new());
                    let rates = counter.rates.clone();
                    parts.counters[usize::from(*next)] =
                        Some(Box::new(Counter { rates, closed_until: 0, parts: None }));
                    counter.parts = Some(parts);
                }
                break;
            }
        }
        self.memory.set(memory);
        if now.saturating_sub(self.folded_at.get()) >= EPOCHS_A_SECOND {
            let target = match self.limit.get() {
                0 => memory / 10 * 9,
                limit => limit,
            };
            self.fold(self.threshold, now, target);
            self.folded_at.set(now);
        }
    }

    fn fold(&self, threshold: i64, now: u64, target: usize) {
        let mut memory = self.memory.get();
        let threshold = u64::try_from(threshold).unwrap_or(0);
        self.base.borrow_mut().fold(threshold, now, &mut memory, target);
        self.memory.set(memory);
    }

    fn set_limit(&self, at: At<'_>, value: &str) -> Answer {
        let limit = match &text::split_arguments(value)[..] {
            [one] => integer(one).and_then(|limit| u32::try_from(limit).ok()).ok_or("not an integer")?,
            _ => return Err("expecting 1 integer".into()),
        };
        self.limit.set(limit_of(limit));
        let mut threshold = self.threshold.max(1);
        while limit != 0 && self.memory.get() > self.limit.get() && threshold < 1 << 40 {
            self.fold(threshold, at.steady() / EPOCH, self.limit.get());
            threshold += (threshold / 5).max(1);
        }
        Ok(String::new())
    }

    /// Has the parts of a network not be counted for a while: `ADDRESS LEVEL SECONDS`.
    fn close(&self, at: At<'_>, value: &str) -> Answer {
        let arguments = text::split_arguments(value);
        let [address, depth, seconds] = &arguments[..] else {
            return Err("expecting 3 arguments".into());
        };
        let address = Ipv4Addr::parse(address, at).map_err(|_| "not an IP address".to_owned())?;
        let depth = integer(depth)
            .filter(|depth| (0..4).contains(depth))
            .ok_or("2nd argument specifies a level, between 0 and 3, to annotate")?;
        let seconds = integer(seconds)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .ok_or("3rd argument specifies when this rule expires, must be > 0")?;
        let until = at.steady() / EPOCH + u64::from(seconds) * EPOCHS_A_SECOND;
        let mut base = self.base.borrow_mut();
        let mut level = &mut *base;
        for (place, byte) in address.octets().into_iter().enumerate() {
            let Some(counter) = &mut level.counters[usize::from(byte)] else { break };
            if place == depth as usize {
                counter.closed_until = until;
                if let Some(parts) = counter.parts.take() {
                    self.memory.set(self.memory.get().saturating_sub(parts.bytes()));
                }
                break;
            }
            let Some(parts) = &mut counter.parts else { break };
            level = parts;
        }
        Ok(String::new())
    }
}

impl Element for RateMonitor {
    fn memory(&self) -> usize {
        self.memory.get()
    }
    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        self.update(at, &mut packet, input);
        at.push(input, packet);
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        let mut packet = at.pull(output)?;
        self.update(at, &mut packet, output);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("thresh", |this: &Self, _| this.threshold);
        handlers.read("look", |this: &Self, at| {
            let now = at.steady() / EPOCH;
            let mut out = format!("{}\n", now.saturating_sub(this.reset_at.get()));
            this.base.borrow_mut().print(now, "", "", &mut out);
            out
        });
        handlers.read("mem", |this: &Self, _| this.memory.get());
        handlers.read("memmax", |this: &Self, _| this.limit.get());
        handlers.write("anno_level", |this: &Self, at, value| this.close(at, value));
        handlers.button("reset", |this: &Self, at| {
            this.base.replace(Level::new());
            this.memory.set(LEVEL_BYTES);
            this.reset_at.set(at.steady() / EPOCH);
        });
        handlers.write("memmax", |this: &Self, at, value| this.set_limit(at, value));
    }
}
