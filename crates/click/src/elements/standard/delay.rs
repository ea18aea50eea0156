//! Delays and links: `DelayUnqueue`, `DelayShaper`, `LinkUnqueue`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Search, Signal};
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Bandwidth, SECOND, Span, write_span};

pub(super) const CLASSES: &[Class] = &[
    Class::new("DelayUnqueue", delay_unqueue).processing("l/h"),
    Class::new("DelayShaper", delay_shaper).processing("l/l"),
    Class::new("LinkUnqueue", link_unqueue).processing("l/h"),
];

/// How long before its time an element wakes, to wait for the rest by turns of a task (ns).
fn adjustment(at: At<'_>) -> u64 {
    if at.router.surroundings().clock.jumps() { 0 } else { 500_000 }
}

/// Packets that a task moves in one turn at most, so that others have theirs.
const MOST_A_TURN: usize = 1024;

/// Sets timer 0 to expire at a time of day.
fn timer_at_time_of_day(at: At<'_>, time: u64) {
    at.timer_at(0, at.steady().saturating_add(time.saturating_sub(at.now())));
}

/// A packet that waits for its time, which is its timestamp.
#[derive(Default)]
struct Held(RefCell<Option<Packet>>);

impl Held {
    /// Takes a packet from upstream, unless it holds one. The time at which that may go on.
    fn fill(&self, at: At<'_>, delay: u64) -> Option<u64> {
        let time = self.0.borrow().as_ref().map(Packet::timestamp);
        if time.is_some() {
            return time;
        }
        let mut packet = at.pull(0)?;
        let from = if packet.timestamp() < SECOND { at.now() } else { packet.timestamp() };
        let time = from.saturating_add(delay);
        packet.set_timestamp(time);
        *self.0.borrow_mut() = Some(packet);
        Some(time)
    }
    fn take(&self) -> Option<Packet> {
        self.0.borrow_mut().take()
    }
    fn cleanup(&self, at: At<'_>) {
        if let Some(packet) = self.take() {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}

/// `DelayUnqueue(DELAY)`: pulls packets, and pushes each once it is older than `DELAY` seconds.
struct DelayUnqueue {
    delay: Cell<u64>,
    held: Held,
    signal: RefCell<Signal>,
}

fn delay_unqueue(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let delay: Option<Span> = arguments.required("DELAY");
    arguments.complete()?;
    Some(Rc::new(DelayUnqueue {
        delay: Cell::new(delay?.0),
        held: Held::default(),
        signal: RefCell::default(),
    }))
}

impl Element for DelayUnqueue {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.schedule(0);
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let mut worked = false;
        for _ in 0..MOST_A_TURN {
            let Some(time) = self.held.fill(at, self.delay.get()) else {
                if !self.signal.borrow().is_active() {
                    return false;
                }
                break;
            };
            let now = at.now();
            if time > now {
                let expiry = time.saturating_sub(adjustment(at));
                if expiry <= now {
                    at.schedule(0);
                    return worked;
                }
                timer_at_time_of_day(at, expiry);
                return false;
            }
            if let Some(packet) = self.held.take() {
                at.push(0, packet);
            }
            worked = true;
        }
        at.schedule(0);
        worked
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        at.schedule(0);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("delay", |this: &Self, _| write_span(this.delay.get()));
        handlers.write("delay", |this: &Self, at, value| {
            let delay = Span::parse(value.trim(), at).map_err(|_| "expected time in seconds")?;
            this.delay.set(delay.0);
            Ok(String::new())
        });
        handlers.task::<Self>(0);
    }
    fn cleanup(&self, at: At<'_>) {
        self.held.cleanup(at);
    }
}

/// `DelayShaper(DELAY)`: yields packets when they are older than `DELAY` seconds.
struct DelayShaper {
    delay: Cell<u64>,
    held: Held,
    notifier: Rc<Notifier>,
    upstream: RefCell<Signal>,
}

fn delay_shaper(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let notifier = setup.at.notifier("empty", Search::ContinueWake);
    let delay: Option<Span> = arguments.required("DELAY");
    arguments.complete()?;
    Some(Rc::new(DelayShaper {
        delay: Cell::new(delay?.0),
        held: Held::default(),
        notifier,
        upstream: RefCell::default(),
    }))
}

impl Element for DelayShaper {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        *self.upstream.borrow_mut() = at.upstream_empty_wakes(0, &self.notifier);
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let Some(time) = self.held.fill(at, self.delay.get()) else {
            if !self.upstream.borrow().is_active() {
                self.notifier.sleep();
            }
            return None;
        };
        let now = at.now();
        if time <= now {
            let mut packet = self.held.take()?;
            packet.set_timestamp(now);
            return Some(packet);
        }
        let expiry = time.saturating_sub(adjustment(at));
        if expiry <= now {
            self.notifier.wake(at.router);
        } else {
            timer_at_time_of_day(at, expiry);
            self.notifier.sleep();
        }
        None
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        self.notifier.wake(at.router);
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("delay", |this: &Self, _| write_span(this.delay.get())).calm = true;
        handlers.write("delay", |this: &Self, at, value| {
            let delay = Span::parse(value.trim(), at).map_err(|_| "delay must be a timestamp")?;
            this.delay.set(delay.0);
            Ok(String::new())
        });
    }
    fn cleanup(&self, at: At<'_>) {
        self.held.cleanup(at);
    }
}

/// `LinkUnqueue(LATENCY, BANDWIDTH)`: pulls packets, and pushes them as a link of that latency and bandwidth would.
struct LinkUnqueue {
    latency: Cell<u64>,
    /// Bandwidth in hundreds of bytes a second.
    bandwidth: Cell<u32>,
    /// Packets on the link; their timestamps say when they leave it.
    packets: RefCell<VecDeque<Packet>>,
    back_to_back: Cell<bool>,
    signal: RefCell<Signal>,
}

const TOO_SMALL: &str = "bandwidth too small, minimum 100Bps";

fn link_unqueue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let latency: Option<Span> = arguments.required("LATENCY");
    let bandwidth: Option<Bandwidth> = arguments.required("BANDWIDTH");
    arguments.complete()?;
    let (latency, bandwidth) = (latency?.0, bandwidth?.0);
    if bandwidth < 100 {
        setup.errors.error(TOO_SMALL);
        return None;
    }
    Some(Rc::new(LinkUnqueue {
        latency: Cell::new(latency),
        bandwidth: Cell::new(bandwidth / 100),
        packets: RefCell::default(),
        back_to_back: Cell::new(false),
        signal: RefCell::default(),
    }))
}

impl LinkUnqueue {
    /// When the last packet leaves the link.
    fn last(&self) -> Option<u64> {
        self.packets.borrow().back().map(Packet::timestamp)
    }
    fn first(&self) -> Option<u64> {
        self.packets.borrow().front().map(Packet::timestamp)
    }
    /// Time that a packet takes to be sent (ns), in whole microseconds.
    fn time_to_send(&self, packet: &Packet) -> u64 {
        let length = packet.len() as u64 + u64::from(packet.anno_u32(place::EXTRA_LENGTH));
        length * 10_000 / u64::from(self.bandwidth.get().max(1)) * 1000
    }
    /// Fills the link, which has room up to its latency. Whether packets came.
    fn fill(&self, at: At<'_>, arrival: u64) -> bool {
        let mut worked = false;
        while self.last().is_none_or(|last| last <= arrival) {
            let Some(mut packet) = at.pull(0) else {
                self.back_to_back.set(false);
                break;
            };
            let begin = self.last().filter(|_| self.back_to_back.get()).unwrap_or(arrival);
            packet.set_timestamp(begin.saturating_add(self.time_to_send(&packet)));
            self.packets.borrow_mut().push_back(packet);
            self.back_to_back.set(true);
            worked = true;
        }
        worked
    }
    fn clear(&self, at: At<'_>) {
        let packets = std::mem::take(&mut *self.packets.borrow_mut());
        for packet in packets {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
    fn restart(&self, at: At<'_>) -> Answer {
        self.clear(at);
        at.unschedule_timer(0);
        at.schedule(0);
        Ok(String::new())
    }
}

impl Element for LinkUnqueue {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.schedule(0);
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let now = at.now();
        let latency = self.latency.get();
        let mut worked = self.fill(at, now.saturating_add(latency));
        while self.first().is_some_and(|first| first <= now) {
            let packet = self.packets.borrow_mut().pop_front();
            if let Some(packet) = packet {
                at.push(0, packet);
            }
            worked = true;
        }
        let active = self.signal.borrow().is_active();
        match (self.first(), self.last()) {
            (Some(first), Some(last)) => {
                let room = last.saturating_sub(latency);
                let next = if active { first.min(room) } else { first };
                let expiry = next.saturating_sub(adjustment(at));
                if expiry <= now {
                    at.schedule(0);
                } else {
                    timer_at_time_of_day(at, expiry);
                }
            }
            _ if active => at.schedule(0),
            _ => (),
        }
        worked
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        at.schedule(0);
    }
    fn storage(&self) -> Option<(usize, usize)> {
        Some((self.packets.borrow().len(), i32::MAX as usize))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("latency", |this: &Self, _| write_span(this.latency.get())).calm = true;
        handlers.read("bandwidth", |this: &Self, _| u64::from(this.bandwidth.get()) * 100).calm = true;
        handlers.read("size", |this: &Self, _| this.packets.borrow().len());
        handlers.button("reset", |this: &Self, at| {
            let _ = this.restart(at);
        });
        handlers.write("latency", |this: &Self, at, value| {
            let latency = Span::parse(value.trim(), at).map_err(|_| "latency must be a timestamp")?;
            this.latency.set(latency.0);
            this.restart(at)
        });
        handlers.write("bandwidth", |this: &Self, at, value| {
            let bandwidth = Bandwidth::parse(value.trim(), at).map_err(|_| "invalid bandwidth")?;
            if bandwidth.0 < 100 {
                return Err(TOO_SMALL.into());
            }
            this.bandwidth.set(bandwidth.0 / 100);
            this.restart(at)
        });
        handlers.task::<Self>(0);
    }
    fn cleanup(&self, at: At<'_>) {
        self.clear(at);
    }
}
