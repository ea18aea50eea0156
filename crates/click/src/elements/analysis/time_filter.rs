//! `TimeFilter`: packets of a range of time pass.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::summary::write_signed_time;
use super::timestamps::time;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::handler_call::{HandlerCall, ROOT};
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("TimeFilter", configure).ports("1/1-2").processing("a/ah").creates_nothing()];

/// The end of a filter without one: the last time that Click's timestamps tell.
const FOREVER: i64 = 2_147_483_647_000_000_000;

/// Origin of a bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relative {
    Absolute,
    /// The time of initialisation.
    Start,
    /// The first packet's timestamp.
    FirstPacket,
    /// The filter's own start.
    Interval,
}

/// `TimeFilter([START, END, START_DELAY, END_DELAY, START_AFTER, END_AFTER, INTERVAL, STOP, END_CALL])`: packets whose
/// timestamps lie from the start up to (and not at) the end pass.
///
/// The others leave by output 1 or are dropped. The first packet after the end has a handler called, which sees the
/// packet's time as `$t`; if it moves the end, the packet passes.
struct TimeFilter {
    first: Cell<i64>,
    last: Cell<i64>,
    first_relative: Cell<Relative>,
    last_relative: Cell<Relative>,
    is_ready: Cell<bool>,
    end_call: RefCell<Option<HandlerCall>>,
    call_is_due: Cell<bool>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let start = arguments.positional_with("START", time).unwrap_or(0);
    let end = arguments.positional_with("END", time).unwrap_or(0);
    let start_delay = arguments.keyword_with("START_DELAY", time).unwrap_or(0);
    let end_delay = arguments.keyword_with("END_DELAY", time).unwrap_or(0);
    let start_after = arguments.keyword_with("START_AFTER", time).unwrap_or(0);
    let end_after = arguments.keyword_with("END_AFTER", time).unwrap_or(0);
    let interval = arguments.keyword_with("INTERVAL", time).unwrap_or(0);
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let mut end_call: Option<HandlerCall> = arguments.keyword("END_CALL");
    arguments.complete()?;
    let given = |times: &[i64]| times.iter().filter(|time| **time != 0).count();
    if given(&[start, start_after, start_delay]) > 1 {
        setup.errors.error("START, START_AFTER, and START_AFTER_INIT are mutually exclusive");
        return None;
    }
    if given(&[end, end_after, end_delay, interval]) > 1 {
        setup.errors.error("END, END_AFTER, END_AFTER_INIT, and INTERVAL are mutually exclusive");
        return None;
    }
    if end_call.is_some() && stop {
        setup.errors.error("END_CALL and STOP are mutually exclusive");
        return None;
    }
    if stop {
        end_call = Some(HandlerCall { element: ROOT, name: "stop".into(), value: "true".into() });
    }
    let (first, first_relative) = match (start, start_delay) {
        (0, 0) => (start_after, Relative::FirstPacket),
        (0, delay) => (delay, Relative::Start),
        (start, _) => (start, Relative::Absolute),
    };
    let (last, last_relative) = match (end, end_after, end_delay, interval) {
        (0, 0, 0, 0) => (FOREVER, Relative::Absolute),
        (0, 0, 0, interval) => (interval, Relative::Interval),
        (0, 0, delay, _) => (delay, Relative::Start),
        (0, after, _, _) => (after, Relative::FirstPacket),
        (end, _, _, _) => (end, Relative::Absolute),
    };
    Some(Rc::new(TimeFilter {
        first: Cell::new(first),
        last: Cell::new(last),
        first_relative: Cell::new(first_relative),
        last_relative: Cell::new(last_relative),
        is_ready: Cell::default(),
        end_call: RefCell::new(end_call),
        call_is_due: Cell::default(),
    }))
}

impl TimeFilter {
    fn begin(&self, time: i64) {
        if self.first_relative.get() == Relative::FirstPacket {
            self.first.set(self.first.get().saturating_add(time));
        }
        match self.last_relative.get() {
            Relative::FirstPacket => self.last.set(self.last.get().saturating_add(time)),
            Relative::Interval => self.last.set(self.last.get().saturating_add(self.first.get())),
            _ => (),
        }
        self.is_ready.set(true);
    }

    /// Calls the handler of the end, as long as it moves the end and a packet lies behind.
    fn call(&self, at: At<'_>, time: i64) {
        let Some(call) = self.end_call.borrow().clone() else { return };
        let value = with_time(&call.value, &write_signed_time(time));
        let call = HandlerCall { value, ..call };
        while self.call_is_due.replace(false) {
            let before = self.last.get();
            if let Err(message) = call.write(at.router) {
                at.chatter(&message);
            }
            if time < self.last.get() || self.last.get() <= before {
                break;
            }
        }
    }

    fn set_end(&self, end: i64) {
        self.last.set(end);
        self.call_is_due.set(true);
    }
}

/// The text with a time for `$t` and `${t}`.
fn with_time(text: &str, time: &str) -> String {
    let text = text.replace("${t}", time);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(place) = rest.find("$t") {
        let after = &rest[place + 2..];
        let ends = !after.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        out.push_str(&rest[..place]);
        out.push_str(if ends { time } else { "$t" });
        rest = after;
    }
    out + rest
}

impl Element for TimeFilter {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let now = at.now() as i64;
        if self.first_relative.get() == Relative::Start {
            self.first.set(self.first.get().saturating_add(now));
        }
        if self.last_relative.get() == Relative::Start {
            self.last.set(self.last.get().saturating_add(now));
        }
        let given = self.end_call.borrow().clone();
        if let Some(given) = given {
            match given.ready(at, true) {
                Ok(call) => *self.end_call.borrow_mut() = Some(call),
                Err(message) => {
                    errors.error(&message);
                    return false;
                }
            }
            self.call_is_due.set(true);
        }
        true
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let time = packet.timestamp() as i64;
        if !self.is_ready.get() {
            self.begin(time);
        }
        if time >= self.first.get() {
            if time >= self.last.get() {
                self.call(at, time);
            }
            if time < self.last.get() {
                return Some(packet);
            }
        }
        at.push_or_drop(1, packet, DropReason::Denied);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let parse = |value: &str, at: At<'_>| time(value.trim(), at).map_err(|_| "expected time".to_owned());
        handlers.read("start", |this: &Self, _| write_signed_time(this.first.get()));
        handlers.write("start", move |this: &Self, at, value| {
            let time = parse(value, at)?;
            if !this.is_ready.get() {
                this.begin(time);
            }
            this.first.set(time);
            Ok(String::new())
        });
        handlers.read("end", |this: &Self, _| write_signed_time(this.last.get()));
        handlers.write("end", move |this: &Self, at, value| {
            let end = parse(value, at)?;
            this.last_relative.set(Relative::Absolute);
            this.set_end(end);
            Ok(String::new())
        });
        handlers.read("interval", |this: &Self, _| {
            write_signed_time(this.last.get().wrapping_sub(this.first.get()))
        });
        handlers.write("interval", move |this: &Self, at, value| {
            let span = parse(value, at)?;
            this.set_end(this.first.get().saturating_add(span));
            Ok(String::new())
        });
        handlers.write("extend_interval", move |this: &Self, at, value| {
            let span = parse(value, at)?;
            this.set_end(this.last.get().saturating_add(span));
            Ok(String::new())
        });
    }
}
