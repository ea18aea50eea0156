//! Elements that make packets: `InfiniteSource`, `RandomSource`, `RatedSource`, `TimedSource`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::handler_call::HandlerCall;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Search, Signal};
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Bandwidth, Span, write_span};

use super::tokens::TokenBucket;

pub(super) const CLASSES: &[Class] = &[
    Class::new("InfiniteSource", infinite_source).ports("0/1").live(),
    Class::new("RandomSource", random_source).ports("0/1").live(),
    Class::new("RatedSource", rated_source).ports("0/1"),
    Class::new("TimedSource", timed_source).ports("0/1").processing("h/h"),
];

/// The bytes of packets unless a configuration gives others, as in Click.
const DATA: &[u8] = b"Random bullshit in a packet, at least 64 bytes long. Well, now it is.";
/// The longest packet that a source makes.
const MAX_LENGTH: i32 = 0xFFFF;

/// The value of a handler's text, or an error's.
fn parse<T: Argument>(value: &str, at: At<'_>, error: &str) -> Result<T, String> {
    T::parse(value.trim(), at).map_err(|_| error.to_owned())
}

/// The bytes of a source's packets.
struct Data {
    text: RefCell<Vec<u8>>,
    /// Length of packets, negative where it is the text's.
    length: Cell<i32>,
    bytes: RefCell<Vec<u8>>,
    /// Whether each packet has random bytes instead.
    random: bool,
}

impl Data {
    fn new(text: Vec<u8>, length: i32) -> Self {
        let data =
            Self { text: text.into(), length: Cell::new(length), bytes: RefCell::default(), random: false };
        data.fill();
        data
    }
    /// Reads the arguments `LENGTH` and `DATASIZE`.
    fn read_length(arguments: &mut Arguments<'_>) -> i32 {
        let mut length: i32 = arguments.keyword("LENGTH").unwrap_or(-1);
        length = arguments.keyword("DATASIZE").unwrap_or(length);
        if length > MAX_LENGTH {
            arguments.error_of("LENGTH", &format!("packets have at most {MAX_LENGTH} bytes"));
        }
        length.min(MAX_LENGTH)
    }
    fn fill(&self) {
        let text = self.text.borrow();
        let bytes = match usize::try_from(self.length.get()) {
            Ok(length) if text.is_empty() => vec![0; length],
            Ok(length) => text.iter().copied().cycle().take(length).collect(),
            Err(_) => text.clone(),
        };
        drop(text);
        self.bytes.replace(bytes);
    }
    fn set_text(&self, text: &str) {
        self.text.replace(text.as_bytes().to_vec());
        self.fill();
    }
    fn set_length(&self, length: i32) -> Result<(), String> {
        if length > MAX_LENGTH {
            return Err(format!("packets have at most {MAX_LENGTH} bytes"));
        }
        self.length.set(length);
        self.fill();
        Ok(())
    }
    fn memory(&self) -> usize {
        self.text.borrow().capacity() + self.bytes.borrow().capacity()
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.borrow()).into_owned()
    }
    fn make(&self, at: At<'_>, timestamp: bool) -> Option<Packet> {
        let mut packet = at.packet(&self.bytes.borrow())?;
        if self.random {
            for four in packet.data_mut().chunks_mut(4) {
                four.copy_from_slice(&at.router.random().to_ne_bytes()[..four.len()]);
            }
        }
        if timestamp {
            packet.set_timestamp(at.now());
        }
        Some(packet)
    }
}

/// `InfiniteSource([DATA, LIMIT, BURST, ACTIVE, LENGTH, TIMESTAMP, STOP, END_CALL])`: packets, as many as will pass.
///
/// It makes `LIMIT` packets (no limit if negative), `BURST` in a turn, and then stops the driver or calls a handler.
/// `RandomSource(LENGTH [, LIMIT, BURST, ACTIVE, ...])` makes packets of random bytes.
struct InfiniteSource {
    data: Data,
    limit: Cell<i64>,
    burst: Cell<i32>,
    active: Cell<bool>,
    timestamp: Cell<bool>,
    stop: Cell<bool>,
    end_call: RefCell<Option<HandlerCall>>,
    count: Cell<i64>,
    pushes: bool,
    notifier: Rc<Notifier>,
    full: RefCell<Signal>,
}

fn infinite_source(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let text: Vec<u8> = arguments.positional("DATA").unwrap_or_else(|| DATA.to_vec());
    make_source(arguments, setup, |arguments| Data::new(text, Data::read_length(arguments)))
}

fn random_source(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let length: Option<u16> = arguments.required("LENGTH");
    let length = i32::from(length.unwrap_or_default());
    make_source(arguments, setup, |_| Data { random: true, ..Data::new(Vec::new(), length) })
}

/// Reads what both kinds of sources have in common; `data` reads further keywords.
fn make_source(
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
    data: impl FnOnce(&mut Arguments<'_>) -> Data,
) -> Option<Rc<dyn Element>> {
    let limit: i64 = arguments.positional("LIMIT").unwrap_or(-1);
    let burst: i32 = arguments.positional("BURST").unwrap_or(1);
    let active = arguments.positional("ACTIVE").unwrap_or(true);
    let timestamp = arguments.keyword("TIMESTAMP").unwrap_or(true);
    let data = data(arguments);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let end_call: Option<HandlerCall> = arguments.keyword("END_CALL");
    arguments.complete()?;
    if burst < 1 {
        setup.errors.error("burst size must be >= 1");
        return None;
    }
    if stop && end_call.is_some() {
        setup.errors.error("END_CALL and STOP are mutually exclusive");
        return None;
    }
    Some(Rc::new(InfiniteSource {
        data,
        limit: Cell::new(limit),
        burst: Cell::new(burst),
        active: Cell::new(active),
        timestamp: Cell::new(timestamp),
        stop: Cell::new(stop),
        end_call: end_call.into(),
        count: Cell::default(),
        pushes: setup.at.output_is_push(0),
        notifier: setup.at.notifier("empty", Search::Stop),
        full: RefCell::default(),
    }))
}

impl InfiniteSource {
    fn ended(&self) -> bool {
        let limit = self.limit.get();
        limit >= 0 && self.count.get() >= limit
    }
    fn end(&self, at: At<'_>) {
        if self.stop.get() {
            at.router.please_stop();
        }
        let call = self.end_call.borrow().clone();
        if let Some(call) = call {
            // As in Click, its errors are not told.
            let _ = call.write(at.router);
        }
    }
    fn wake(&self, at: At<'_>) -> Answer {
        if self.active.get() && !self.ended() {
            if self.pushes {
                at.schedule(0);
            } else {
                self.notifier.wake(at.router);
            }
        }
        Ok(String::new())
    }
    fn change_length(&self, at: At<'_>, value: &str) -> Answer {
        self.data.set_length(parse(value, at, "length must be integer")?)?;
        self.wake(at)
    }
    fn change_burst(&self, at: At<'_>, value: &str) -> Answer {
        const ERROR: &str = "burstsize parameter must be integer >= 1";
        let burst: i32 = parse(value, at, ERROR)?;
        if burst < 1 {
            return Err(ERROR.into());
        }
        self.burst.set(burst);
        self.wake(at)
    }
}

impl Element for InfiniteSource {
    fn memory(&self) -> usize {
        self.data.memory()
    }
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.pushes {
            at.schedule(0);
            *self.full.borrow_mut() = at.downstream_full(0, Some(0));
        }
        let Some(call) = self.end_call.borrow().as_ref().map(|call| call.ready(at, true)) else {
            return true;
        };
        match call {
            Ok(call) => {
                self.end_call.replace(Some(call));
                true
            }
            Err(message) => {
                errors.error(&message);
                false
            }
        }
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.active.get() || !self.full.borrow().is_active() {
            return false;
        }
        let mut wanted = i64::from(self.burst.get());
        if self.limit.get() >= 0 {
            wanted = wanted.min((self.limit.get() - self.count.get()).max(0));
        }
        let mut made = 0;
        while made < wanted
            && at.may_go_on(made.unsigned_abs())
            && let Some(packet) = self.data.make(at, self.timestamp.get())
        {
            made += 1;
            at.push(0, packet);
        }
        self.count.set(self.count.get() + made);
        if wanted > 0 {
            at.schedule(0);
        } else if self.ended() {
            self.end(at);
        }
        made > 0
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if self.active.get() {
            if !self.ended() {
                let packet = self.data.make(at, self.timestamp.get())?;
                self.count.set(self.count.get() + 1);
                return Some(packet);
            }
            self.end(at);
        }
        self.notifier.sleep();
        None
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("data", |this: &Self, _| this.data.text());
        let data = handlers.write("data", |this: &Self, at, value| {
            this.data.set_text(value);
            this.wake(at)
        });
        (data.raw, data.calm) = (true, true);
        handlers.read("limit", |this: &Self, _| this.limit.get()).calm = true;
        handlers.write("limit", |this: &Self, at, value| {
            let limit: i32 = parse(value, at, "limit parameter must be integer")?;
            this.limit.set(limit.into());
            this.wake(at)
        });
        handlers.read("burst", |this: &Self, _| this.burst.get()).calm = true;
        handlers.write("burst", Self::change_burst);
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.active.set(parse(value, at, "active parameter must be boolean")?);
            this.wake(at)
        });
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.button("reset", |this: &Self, at| {
            this.count.set(0);
            let _ = this.wake(at);
        });
        handlers.read("length", |this: &Self, _| this.data.length.get()).calm = true;
        handlers.write("length", Self::change_length);
        handlers.read("burstsize", |this: &Self, _| this.burst.get()).calm = true;
        handlers.write("burstsize", Self::change_burst).deprecated = true;
        handlers.read("datasize", |this: &Self, _| this.data.length.get()).calm = true;
        handlers.write("datasize", Self::change_length).deprecated = true;
        if self.pushes {
            handlers.task::<Self>(0);
        }
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.data.text.swap(&fresh.data.text);
        self.data.length.set(fresh.data.length.get());
        self.data.fill();
        self.limit.set(fresh.limit.get());
        self.burst.set(fresh.burst.get());
        self.active.set(fresh.active.get());
        self.timestamp.set(fresh.timestamp.get());
        self.stop.set(fresh.stop.get());
        self.end_call.swap(&fresh.end_call);
        self.count.set(0);
        true
    }
}

/// `RatedSource([DATA, RATE, LIMIT, ACTIVE, LENGTH, STOP, BANDWIDTH])`: `RATE` packets a second (10).
struct RatedSource {
    data: Data,
    bucket: TokenBucket,
    /// No limit if negative.
    limit: Cell<i32>,
    active: Cell<bool>,
    stop: bool,
    count: Cell<u32>,
    pushes: bool,
}

fn burst_of(rate: u32) -> u32 {
    if rate < 200 { 2 } else { rate / 100 }
}

fn rated_source(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let text: Vec<u8> = arguments.positional("DATA").unwrap_or_else(|| DATA.to_vec());
    let mut rate: u32 = arguments.positional("RATE").unwrap_or(10);
    let limit: i32 = arguments.positional("LIMIT").unwrap_or(-1);
    let active = arguments.positional("ACTIVE").unwrap_or(true);
    let length = Data::read_length(arguments);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let bandwidth = arguments.keyword("BANDWIDTH").map_or(0, |Bandwidth(bandwidth)| bandwidth);
    arguments.complete()?;
    if bandwidth > 0 {
        let bytes = u32::try_from(length).unwrap_or(text.len() as u32);
        rate = bandwidth / bytes.max(1);
    }
    let mut burst = burst_of(rate);
    if bandwidth > 0 {
        burst = burst.max(u32::try_from(length).unwrap_or(0).saturating_mul(2));
    }
    Some(Rc::new(RatedSource {
        data: Data::new(text, length),
        bucket: TokenBucket::new(rate, burst),
        limit: Cell::new(limit.max(-1)),
        active: Cell::new(active),
        stop,
        count: Cell::default(),
        pushes: setup.at.output_is_push(0),
    }))
}

impl RatedSource {
    /// Whether it makes packets now; it stops the driver after the last.
    fn is_on(&self, at: At<'_>) -> bool {
        if !self.active.get() {
            return false;
        }
        let ended = u32::try_from(self.limit.get()).is_ok_and(|limit| self.count.get() >= limit);
        if ended && self.stop {
            at.router.please_stop();
        }
        !ended
    }
    fn next(&self, at: At<'_>) -> Option<Packet> {
        self.bucket.refill(at);
        if !self.bucket.contains(1) {
            return None;
        }
        let packet = self.data.make(at, true)?;
        self.bucket.remove(1);
        self.count.set(self.count.get().wrapping_add(1));
        Some(packet)
    }
    fn restart(&self, at: At<'_>) {
        let waits = at.router.tasks.is_scheduled((at.id, 0));
        if self.pushes && self.active.get() && !waits {
            self.bucket.set(1);
            at.schedule(0);
        }
    }
    fn change_length(&self, at: At<'_>, value: &str) -> Answer {
        self.data.set_length(parse(value, at, "syntax error")?)?;
        Ok(String::new())
    }
}

impl Element for RatedSource {
    fn memory(&self) -> usize {
        self.data.memory()
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if self.pushes {
            at.schedule(0);
        }
        self.bucket.set(1);
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.is_on(at) {
            return false;
        }
        if let Some(packet) = self.next(at) {
            at.push(0, packet);
            at.schedule(0);
            return true;
        }
        at.timer_after(0, self.bucket.time_until_contains(1));
        false
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        at.schedule(0);
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if self.is_on(at) { self.next(at) } else { None }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("data", |this: &Self, _| this.data.text()).calm = true;
        let data = handlers.write("data", |this: &Self, _, value| {
            // As in Click, the length is then the text's until another is set.
            this.data.set_text(value);
            this.data.bytes.replace(value.as_bytes().to_vec());
            Ok(String::new())
        });
        data.raw = true;
        handlers.read("rate", |this: &Self, _| this.bucket.rate());
        handlers.write("rate", |this: &Self, at, value| {
            let rate = parse(value, at, "syntax error")?;
            this.bucket.adjust(rate, burst_of(rate));
            Ok(String::new())
        });
        handlers.read("limit", |this: &Self, _| this.limit.get()).calm = true;
        handlers.write("limit", |this: &Self, at, value| {
            let limit: i32 = parse(value, at, "syntax error")?;
            this.limit.set(limit.max(-1));
            Ok(String::new())
        });
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.active.set(parse(value, at, "syntax error")?);
            this.restart(at);
            Ok(String::new())
        });
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.button("reset", |this: &Self, at| {
            this.count.set(0);
            this.bucket.set(1);
            this.restart(at);
        });
        handlers.read("length", |this: &Self, _| this.data.length.get());
        handlers.write("length", Self::change_length);
        handlers.read("datasize", |this: &Self, _| this.data.length.get());
        handlers.write("datasize", Self::change_length).deprecated = true;
        if self.pushes {
            handlers.task::<Self>(0);
        }
    }
}

/// `TimedSource([INTERVAL, DATA, LIMIT, ACTIVE, STOP, HEADROOM])`: a packet every `INTERVAL` seconds (0.5).
struct TimedSource {
    data: Data,
    interval: Cell<u64>,
    limit: Cell<i32>,
    active: Cell<bool>,
    stop: bool,
    count: Cell<i32>,
    headroom: Cell<u32>,
    /// When the timer expires, if it is set.
    expiry: Cell<Option<u64>>,
}

fn timed_source(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let interval = arguments.positional("INTERVAL").map_or(500_000_000, |Span(interval)| interval);
    let text: Vec<u8> = arguments.positional("DATA").unwrap_or_else(|| DATA.to_vec());
    let limit = arguments.keyword("LIMIT").unwrap_or(-1);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let headroom = arguments.keyword("HEADROOM").unwrap_or(48);
    arguments.complete()?;
    Some(Rc::new(TimedSource {
        data: Data::new(text, -1),
        interval: Cell::new(interval),
        limit: Cell::new(limit),
        active: Cell::new(active),
        stop,
        count: Cell::default(),
        headroom: Cell::new(headroom),
        expiry: Cell::default(),
    }))
}

impl TimedSource {
    fn expire_at(&self, at: At<'_>, time: u64) {
        self.expiry.set(Some(time));
        at.timer_at(0, time);
    }
    fn restart(&self, at: At<'_>) {
        if self.active.get() && self.expiry.get().is_none() {
            self.expire_at(at, at.steady());
        }
    }
}

impl Element for TimedSource {
    fn memory(&self) -> usize {
        self.data.memory()
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if self.active.get() {
            self.expire_at(at, at.steady().saturating_add(self.interval.get()));
        }
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let expiry = self.expiry.take().unwrap_or_else(|| at.steady());
        if !self.active.get() {
            return;
        }
        if self.limit.get() < 0 || self.count.get() < self.limit.get() {
            if let Some(packet) = self.data.make(at, true) {
                at.push(0, packet);
                self.count.set(self.count.get().wrapping_add(1));
            }
            self.expire_at(at, expiry.saturating_add(self.interval.get()));
        } else if self.stop {
            at.router.please_stop();
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("data", |this: &Self, _| this.data.text()).calm = true;
        let data = handlers.write("data", |this: &Self, _, value| {
            this.data.set_text(value);
            Ok(String::new())
        });
        data.raw = true;
        handlers.number("limit", |this: &Self| &this.limit).calm = true;
        handlers.read("interval", |this: &Self, _| write_span(this.interval.get())).calm = true;
        handlers.write("interval", |this: &Self, at, value| {
            this.interval.set(parse_interval(value, at)?);
            Ok(String::new())
        });
        let active = handlers.read("active", |this: &Self, _| this.active.get());
        (active.calm, active.checkbox) = (true, true);
        handlers.write("active", |this: &Self, at, value| {
            this.active.set(parse(value, at, "bad active")?);
            this.restart(at);
            Ok(String::new())
        });
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("headroom", |this: &Self, _| this.headroom.get()).calm = true;
        handlers.write("headroom", |this: &Self, at, value| {
            this.headroom.set(parse(value, at, "bad headroom")?);
            Ok(String::new())
        });
        handlers.button("reset", |this: &Self, at| {
            this.count.set(0);
            this.restart(at);
        });
    }
}

/// An interval of a handler's text: not zero.
pub(super) fn parse_interval(value: &str, at: At<'_>) -> Result<u64, String> {
    parse(value, at, "bad interval").and_then(|Span(interval)| match interval {
        0 => Err("bad interval".into()),
        _ => Ok(interval),
    })
}
