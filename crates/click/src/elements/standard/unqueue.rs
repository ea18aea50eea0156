//! From pull to push: `Unqueue`, `Unqueue2`, `TimedUnqueue`, `Burster`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::notifier::{Notice, Signal};
use crate::router::{At, Setup};
use crate::value::{Raw, Span};

use super::storages;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Unqueue", unqueue).processing("l/h"),
    Class::new("Unqueue2", unqueue2).processing("l/h"),
    Class::new("TimedUnqueue", timed_unqueue).processing("l/h"),
    Class::new("Burster", burster).processing("l/h"),
];

/// `Unqueue([BURST, ACTIVE, LIMIT])`: pulls packets and pushes them, up to `BURST` in a turn, and `LIMIT` in all.
struct Unqueue {
    /// Packets a turn.
    burst: Cell<i32>,
    active: Cell<bool>,
    /// No limit if negative.
    limit: Cell<i32>,
    count: Cell<u32>,
    signal: RefCell<Signal>,
}

fn unqueue(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let burst: i32 = arguments.positional("BURST").unwrap_or(1);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let limit: i32 = arguments.keyword("LIMIT").unwrap_or(-1);
    arguments.complete()?;
    Some(Rc::new(Unqueue {
        burst: Cell::new(if burst < 0 { i32::MAX } else { burst }),
        active: Cell::new(active),
        limit: Cell::new(limit),
        count: Cell::default(),
        signal: RefCell::default(),
    }))
}

impl Unqueue {
    /// Packets that the limit leaves.
    fn left(&self) -> u32 {
        u32::try_from(self.limit.get()).map_or(u32::MAX, |limit| limit.saturating_sub(self.count.get()))
    }
    fn restart(&self, at: At<'_>) -> Answer {
        if self.active.get() && self.left() > 0 {
            at.schedule(0);
        }
        Ok(String::new())
    }
    fn change<T: Argument>(&self, at: At<'_>, value: &str, set: impl FnOnce(T)) -> Answer {
        set(T::parse(value.trim(), at).map_err(|_| "syntax error")?);
        self.restart(at)
    }
}

impl Element for Unqueue {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.active.get() {
            at.schedule(0);
        }
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        if self.burst.get() == 0 {
            errors.warning("BURST size 0, no packets will be pulled");
        }
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let left = self.left();
        if !self.active.get() || left == 0 {
            return false;
        }
        let most = left.min(self.burst.get().unsigned_abs());
        let mut taken = 0;
        while taken < most && self.active.get() && at.may_go_on(taken) {
            let Some(packet) = at.pull(0) else {
                if !self.signal.borrow().is_active() {
                    return taken > 0;
                }
                break;
            };
            taken += 1;
            self.count.set(self.count.get().wrapping_add(1));
            at.push(0, packet);
        }
        at.schedule(0);
        taken > 0
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("burst", |this: &Self, _| this.burst.get());
        handlers.read("limit", |this: &Self, _| this.limit.get());
        handlers.write("active", |this: &Self, at, value| {
            this.change(at, value, |active| this.active.set(active))
        });
        for name in ["reset", "reset_counts"] {
            handlers
                .button(name, |this: &Self, at| {
                    this.count.set(0);
                    let _ = this.restart(at);
                })
                .uncommon = name == "reset_counts";
        }
        handlers.write("burst", |this: &Self, at, value| {
            this.change(at, value, |burst| this.burst.set(if burst < 0 { i32::MAX } else { burst }))
        });
        handlers
            .write("limit", |this: &Self, at, value| this.change(at, value, |limit| this.limit.set(limit)));
        handlers.task::<Self>(0);
    }
}

/// `Unqueue2([BURST, QUEUES, QUIET])`: pulls packets and pushes them while there is room in queues downstream.
struct Unqueue2 {
    burst: u32,
    /// Queues that the configuration names.
    named: Option<Vec<usize>>,
    queues: RefCell<Vec<usize>>,
    count: Cell<u32>,
    signal: RefCell<Signal>,
}

fn unqueue2(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let burst: i32 = arguments.positional("BURST").unwrap_or(1);
    let queues: Option<Raw> = arguments.keyword("QUEUES");
    let quiet = arguments.keyword("QUIET").unwrap_or(false);
    arguments.complete()?;
    let named = match queues.map(|queues| storages::named(&queues.0, setup.at)) {
        None => None,
        Some(Ok(queues)) => Some(queues),
        Some(Err(_)) => {
            setup.errors.error("bad QUEUES");
            return None;
        }
    };
    if !quiet {
        setup.errors.message("Unqueue2 is deprecated, you should probably use Unqueue");
    }
    let burst = if burst == 0 { i32::MAX.unsigned_abs() } else { burst.max(0).unsigned_abs() };
    Some(Rc::new(Unqueue2 {
        burst,
        named,
        queues: RefCell::default(),
        count: Cell::default(),
        signal: RefCell::default(),
    }))
}

impl Element for Unqueue2 {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let queues = self.named.clone().unwrap_or_else(|| storages::nearest(at, Notice::Full));
        if queues.iter().any(|queue| at.router.element(*queue).storage().is_none()) {
            errors.error("bad QUEUES");
            return false;
        }
        *self.queues.borrow_mut() = queues;
        at.schedule(0);
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let room = |queue: &usize| {
            let (length, capacity) = at.router.element(*queue).storage().unwrap_or_default();
            u32::try_from(capacity.saturating_sub(length)).unwrap_or(u32::MAX)
        };
        let most = self.queues.borrow().iter().map(room).min().unwrap_or(u32::MAX).min(self.burst);
        let mut taken = 0;
        while taken < most && at.may_go_on(taken) {
            let Some(packet) = at.pull(0) else {
                if !self.signal.borrow().is_active() {
                    return taken > 0;
                }
                break;
            };
            taken += 1;
            self.count.set(self.count.get().wrapping_add(1));
            at.push(0, packet);
        }
        at.schedule(0);
        taken > 0
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("packets", |this: &Self, _| format!("{} packets\n", this.count.get()));
        handlers.task::<Self>(0);
    }
}

/// `TimedUnqueue(INTERVAL [, BURST])`: pulls `BURST` packets (1) every `INTERVAL` seconds, and pushes them.
///
/// `Burster` is the same with bursts of 8.
struct TimedUnqueue {
    /// Interval (ns), in whole milliseconds.
    interval: u64,
    burst: u32,
    /// Packets of a burst that had to wait for another turn.
    moved: Cell<u32>,
    signal: RefCell<Signal>,
    /// Whether the timer is set.
    waits: Cell<bool>,
    /// When it expired last.
    expiry: Cell<Option<u64>>,
}

fn timed_unqueue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    timed(arguments, setup, 1)
}
fn burster(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    timed(arguments, setup, 8)
}
fn timed(arguments: &mut Arguments<'_>, setup: &Setup<'_>, burst: i32) -> Option<Rc<dyn Element>> {
    let interval: Option<Span> = arguments.required("INTERVAL");
    let burst: i32 = arguments.positional("BURST").unwrap_or(burst);
    arguments.complete()?;
    if burst <= 0 {
        setup.errors.error("bad BURST");
        return None;
    }
    // Click keeps milliseconds, rounded.
    let interval = interval?.0.saturating_add(500_000) / 1_000_000 * 1_000_000;
    Some(Rc::new(TimedUnqueue {
        interval,
        burst: burst.unsigned_abs(),
        moved: Cell::default(),
        signal: RefCell::default(),
        waits: Cell::default(),
        expiry: Cell::default(),
    }))
}

impl Element for TimedUnqueue {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.schedule(0);
        *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        true
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        // A queue that is filled does not shorten the wait.
        if self.waits.get() {
            return false;
        }
        let begun = self.moved.take();
        for moved in begun..self.burst {
            if !at.may_go_on(moved - begun) {
                // The burst goes on in the next turn.
                self.moved.set(moved);
                at.schedule(0);
                return true;
            }
            let Some(packet) = at.pull(0) else {
                if moved == 0 && !self.signal.borrow().is_active() {
                    self.expiry.set(None);
                    return false;
                }
                break;
            };
            at.push(0, packet);
        }
        let from = self.expiry.get().unwrap_or_else(|| at.steady());
        let next = from.saturating_add(self.interval);
        self.expiry.set(Some(next));
        self.waits.set(true);
        at.timer_at(0, next);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        self.waits.set(false);
        at.schedule(0);
    }
}
