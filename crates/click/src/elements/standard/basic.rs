//! Elements that pass, copy and discard packets: `Null`, `Idle`, `Discard`, `Tee`, `Hub`, `Bypass` and their kin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Signal};
use crate::router::{At, Setup};
use crate::value::{Span, boolean, write_span};

use super::paint::push_to_all;
use super::source::parse_interval;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Null", null),
    Class::new("PushNull", null).processing("h/h"),
    Class::new("PullNull", null).processing("l/l"),
    Class::new("Idle", idle).ports("-/-").flow("x/y").creates_nothing(),
    Class::new("Discard", discard).ports("1/0"),
    Class::new("TimedSink", timed_sink).ports("1/0").processing("l/l"),
    Class::new("Tee", tee).ports("1/1-").processing("h/h"),
    Class::new("PullTee", pull_tee).ports("1/1-").processing("l/lh"),
    Class::new("Hub", hub).ports("-/=").processing("h/h").flow("#/[^#]"),
    Class::new("Bypass", bypass).ports("1-2/1-2").flow("xy/[xy]x"),
    Class::new("Suppressor", suppressor).ports("-/=").flow("#/#"),
    Class::new("NotifierDebug", notifier_debug),
    Class::new("Null1", null),
    Class::new("Null2", null),
    Class::new("Null3", null),
    Class::new("Null4", null),
    Class::new("Null5", null),
    Class::new("Null6", null),
    Class::new("Null7", null),
    Class::new("Null8", null),
    Class::new("StoreData", store_data),
    Class::new("ClickyInfo", clicky_info).ports("0/0"),
];

/// `ClickyInfo(...)`: what the program Clicky is told. Nothing of it concerns the configuration.
struct ClickyInfo;

impl Element for ClickyInfo {}

fn clicky_info(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.rest();
    Some(Rc::new(ClickyInfo))
}

/// `StoreData(OFFSET, DATA)`: writes bytes into packets, as many as have room behind the offset.
struct StoreData {
    offset: usize,
    data: Vec<u8>,
}

fn store_data(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: Option<u32> = arguments.required("OFFSET");
    let data: Option<Vec<u8>> = arguments.required("DATA");
    arguments.complete()?;
    Some(Rc::new(StoreData { offset: offset? as usize, data: data? }))
}

impl StoreData {
    fn store(&self, packet: &mut Packet) {
        let Some(rest) = packet.data_mut().get_mut(self.offset..) else { return };
        for (place, byte) in rest.iter_mut().zip(&self.data) {
            *place = *byte;
        }
    }
}

impl Element for StoreData {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.store(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.store(packet));
        at.push_batch(0, batch);
    }
}

/// `Null`, `PushNull`, `PullNull`, `Null1` to `Null8`: packets pass.
struct Null;

fn null(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Null))
}

impl Element for Null {
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.push_batch(0, batch);
    }
}

/// `Idle`: yields nothing and discards what it gets.
struct Idle {
    notifier: Rc<Notifier>,
}

fn idle(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Idle { notifier: Notifier::never() }))
}

impl Element for Idle {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        at.discard(packet);
    }
    fn pull(&self, _: At<'_>, _: usize) -> Option<Packet> {
        None
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty).then(|| Rc::clone(&self.notifier))
    }
}

/// `Discard([ACTIVE, BURST])`: takes all packets, by a task where its input is pull, `BURST` in a turn.
struct Discard {
    active: Cell<bool>,
    burst: u32,
    count: Cell<u64>,
    pulls: bool,
    signal: RefCell<Signal>,
}

fn discard(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let burst = arguments.keyword("BURST").unwrap_or(1);
    arguments.complete()?;
    let pulls = setup.at.input_is_pull(0);
    if !active && !pulls {
        setup.errors.error("ACTIVE is meaningless in push context");
        return None;
    }
    Some(Rc::new(Discard {
        active: Cell::new(active),
        burst: if burst == 0 { u32::MAX } else { burst },
        count: Cell::default(),
        pulls,
        signal: RefCell::default(),
    }))
}

impl Element for Discard {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if self.pulls {
            if self.active.get() {
                at.schedule(0);
            }
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        self.count.set(self.count.get() + 1);
        at.discard(packet);
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let mut taken = 0;
        while taken < self.burst
            && at.may_go_on(taken)
            && let Some(packet) = at.pull(0)
        {
            taken += 1;
            at.discard(packet);
        }
        self.count.set(self.count.get() + u64::from(taken));
        if self.active.get() && (taken > 0 || self.signal.borrow().is_active()) {
            at.schedule(0);
        }
        taken > 0
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.button("reset_counts", |this: &Self, _| this.count.set(0));
        if !self.pulls {
            return;
        }
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            let active = boolean(value.trim()).ok_or("syntax error")?;
            this.active.set(active);
            if active {
                at.schedule(0);
            } else {
                at.unschedule(0);
            }
            Ok(String::new())
        });
        handlers.task::<Self>(0);
    }
}

/// `TimedSink([INTERVAL])`: pulls a packet every `INTERVAL` seconds (0.5) and discards it.
struct TimedSink {
    interval: Cell<u64>,
    expiry: Cell<u64>,
}

fn timed_sink(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let interval = arguments.positional("INTERVAL").map_or(500_000_000, |Span(interval)| interval);
    arguments.complete()?;
    Some(Rc::new(TimedSink { interval: Cell::new(interval), expiry: Cell::default() }))
}

impl TimedSink {
    fn wait(&self, at: At<'_>, from: u64) {
        self.expiry.set(from.saturating_add(self.interval.get()));
        at.timer_at(0, self.expiry.get());
    }
}

impl Element for TimedSink {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.wait(at, at.steady());
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if let Some(packet) = at.pull(0) {
            at.discard(packet);
        }
        self.wait(at, self.expiry.get());
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("interval", |this: &Self, _| write_span(this.interval.get())).calm = true;
        handlers.write("interval", |this: &Self, at, value| {
            this.interval.set(parse_interval(value, at)?);
            Ok(String::new())
        });
    }
}

/// Reads the number of outputs of a tee, which must be right where it is given.
fn arms(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<()> {
    let count: Option<u32> = arguments.positional("N");
    arguments.complete()?;
    let outputs = setup.outputs();
    if count.is_some_and(|count| count as usize != outputs) {
        setup.errors.error(&format!("{outputs} outputs implies {outputs} arms"));
        return None;
    }
    Some(())
}

/// `Tee([N])`: a copy of each packet for each output.
struct Tee;

fn tee(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arms(arguments, setup)?;
    Some(Rc::new(Tee))
}

impl Element for Tee {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        push_to_all(at, packet);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        if at.outputs() == 1 {
            at.push_batch(0, batch);
        } else {
            at.each_alone(batch, |packet| push_to_all(at, packet));
        }
    }
}

/// `PullTee([N])`: yields packets on its first output, and pushes copies to the others.
struct PullTee;

fn pull_tee(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arms(arguments, setup)?;
    Some(Rc::new(PullTee))
}

impl Element for PullTee {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        for output in 1..at.outputs() {
            if let Some(copy) = at.copy(&packet) {
                at.push(output, copy);
            }
        }
        Some(packet)
    }
}

/// `Hub`: a copy of each packet for each output but the one of the input that it came by.
struct Hub;

fn hub(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Hub))
}

impl Element for Hub {
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        let Some(last) = (0..at.outputs()).rev().find(|output| *output != input) else {
            at.drop_packet(packet, DropReason::Unconnected);
            return;
        };
        for output in (0..last).filter(|output| *output != input) {
            if let Some(copy) = at.copy(&packet) {
                at.push(output, copy);
            }
        }
        at.push(last, packet);
    }
}

/// `Bypass([ACTIVE, INLINE])`: packets pass from port 0 to port 0; while it is active, by way of ports 1.
struct Bypass {
    active: Cell<bool>,
}

fn bypass(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let active = arguments.positional("ACTIVE").unwrap_or(false);
    // In Click, it says whether neighbours may be connected around the element: here they never are.
    let _: Option<bool> = arguments.keyword("INLINE");
    arguments.complete()?;
    Some(Rc::new(Bypass { active: Cell::new(active) }))
}

impl Bypass {
    /// The port across, of so many.
    fn across(&self, port: usize, ports: usize) -> usize {
        usize::from(self.active.get() && port == 0 && ports > 1)
    }
}

impl Element for Bypass {
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        at.push(self.across(input, at.outputs()), packet);
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        at.push_batch(self.across(input, at.outputs()), batch);
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        at.pull(self.across(output, at.inputs()))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("active", |this: &Self, _| this.active.get());
        handlers.write("active", |this: &Self, _, value| {
            this.active.set(boolean(value.trim()).ok_or("syntax error")?);
            Ok(String::new())
        });
    }
}

/// `Suppressor`: packets of each input pass to the same output, unless the port's handler `activeN` is false.
struct Suppressor {
    suppressed: Vec<Cell<bool>>,
}

fn suppressor(_: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    // As in Click, arguments mean nothing.
    let suppressed = (0..setup.outputs()).map(|_| Cell::new(false)).collect();
    Some(Rc::new(Suppressor { suppressed }))
}

impl Suppressor {
    fn is_suppressed(&self, port: usize) -> bool {
        self.suppressed.get(port).is_none_or(Cell::get)
    }
}

impl Element for Suppressor {
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        if self.is_suppressed(input) {
            at.drop_packet(packet, DropReason::Denied);
        } else {
            at.push(input, packet);
        }
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        if self.is_suppressed(output) { None } else { at.pull(output) }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        for port in 0..self.suppressed.len() {
            let name = format!("active{port}");
            handlers.read(&name, move |this: &Self, _| !this.is_suppressed(port)).checkbox = true;
            handlers.write(&name, move |this: &Self, at, value| {
                let active = bool::parse(value.trim(), at).map_err(|_| "type mismatch")?;
                if let Some(suppressed) = this.suppressed.get(port) {
                    suppressed.set(!active);
                }
                Ok(String::new())
            });
        }
        handlers.button("reset", |this: &Self, _| this.suppressed.iter().for_each(|port| port.set(false)));
    }
}

/// `NotifierDebug`: its handler `signal` shows the notifiers that an element in its place would follow.
struct NotifierDebug {
    signal: RefCell<Signal>,
}

fn notifier_debug(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(NotifierDebug { signal: RefCell::default() }))
}

impl Element for NotifierDebug {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        let signal =
            if at.input_is_push(0) { at.downstream_full(0, None) } else { at.upstream_empty(0, None) };
        self.signal.replace(signal);
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("signal", |this: &Self, _| this.signal.borrow().describe());
    }
}
