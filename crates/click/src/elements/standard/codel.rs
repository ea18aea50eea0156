//! Controlled delay: `CoDel` drops packets that waited too long in a queue (RFC 8289).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::storages;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::notifier::Notice;
use crate::router::{At, Setup};
use crate::value::Raw;

pub(super) const CLASSES: &[Class] = &[Class::new("CoDel", codel).ports("1/1-2").processing("l/lh")];

const MILLISECOND: u64 = 1_000_000;
/// Packets that one pull drops at most, so that others have their turns.
const MOST_A_PULL: usize = 1024;

/// `CoDel([TARGET, INTERVAL, QUEUES])`: drops packets while all have waited longer than `TARGET` for an `INTERVAL`.
///
/// Both are in milliseconds (5 and 100). A packet's wait is measured from its first timestamp, as
/// `SetTimestamp(FIRST true)` sets it before the queue; the wait then stands in that annotation. What it drops leaves by
/// its second output, if there is one.
struct CoDel {
    target: Cell<u64>,
    interval: Cell<u64>,
    named: Option<Vec<usize>>,
    queues: RefCell<Vec<usize>>,
    /// When the wait will have been too long for an interval; 0 while it is not.
    first_above: Cell<u64>,
    dropping: Cell<bool>,
    next_drop: Cell<u64>,
    /// Drops of this phase, and at the beginning of the last one.
    count: Cell<u32>,
    last_count: Cell<u32>,
    drops: Cell<u64>,
}

fn codel(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let target: u32 = arguments.positional("TARGET").unwrap_or(5);
    let interval: u32 = arguments.positional("INTERVAL").unwrap_or(100);
    let queues: Option<Raw> = arguments.keyword("QUEUES");
    arguments.complete()?;
    let named = storages::of_argument(queues.as_ref(), setup)?;
    Some(Rc::new(CoDel {
        target: Cell::new(u64::from(target)),
        interval: Cell::new(u64::from(interval)),
        named,
        queues: RefCell::default(),
        first_above: Cell::default(),
        dropping: Cell::default(),
        next_drop: Cell::default(),
        count: Cell::default(),
        last_count: Cell::default(),
        drops: Cell::default(),
    }))
}

impl CoDel {
    fn interval_ns(&self) -> u64 {
        self.interval.get() * MILLISECOND
    }

    /// A packet, and whether it may be dropped at `now`.
    fn take(&self, at: At<'_>, now: u64) -> Option<(Packet, bool)> {
        let Some(mut packet) = at.pull(0) else {
            self.first_above.set(0);
            return None;
        };
        let began = crate::packet::first_timestamp(&packet);
        // Without a first timestamp nothing is known of its wait.
        let wait = match u64::try_from(began) {
            Ok(began) if began > 0 => now.saturating_sub(began),
            _ => 0,
        };
        crate::packet::set_first_timestamp(&mut packet, i64::try_from(wait).unwrap_or(i64::MAX));
        let left = |queue: &usize| at.router.element(*queue).storage().map_or(0, |(length, _)| length);
        let is_last = self.queues.borrow().iter().map(left).sum::<usize>() == 0;
        if wait < self.target.get() * MILLISECOND || is_last {
            self.first_above.set(0);
            return Some((packet, false));
        }
        if self.first_above.get() == 0 {
            self.first_above.set(now + self.interval_ns());
            return Some((packet, false));
        }
        Some((packet, now >= self.first_above.get()))
    }

    /// When the next packet is dropped: the more were dropped, the sooner.
    fn after(&self, time: u64) -> u64 {
        time + (self.interval_ns() as f64 / f64::from(self.count.get().max(1)).sqrt()) as u64
    }

    fn drop(&self, at: At<'_>, packet: Packet) {
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::QueueFull);
    }

    /// Goes on with the drops of a phase that has begun.
    fn go_on(&self, at: At<'_>, now: u64, mut taken: (Packet, bool)) -> Option<Packet> {
        if !taken.1 {
            self.dropping.set(false);
            return Some(taken.0);
        }
        for _ in 0..MOST_A_PULL {
            if now < self.next_drop.get() {
                break;
            }
            self.drop(at, taken.0);
            self.count.set(self.count.get().saturating_add(1));
            let Some(next) = self.take(at, now) else {
                self.dropping.set(false);
                return None;
            };
            taken = next;
            if !taken.1 {
                self.dropping.set(false);
                break;
            }
            self.next_drop.set(self.after(self.next_drop.get()));
        }
        Some(taken.0)
    }

    fn set(&self, which: fn(&Self) -> &Cell<u64>, value: &str) -> Answer {
        let number: u32 = value.trim().parse().map_err(|_| "expected milliseconds (integer)")?;
        which(self).set(number.into());
        Ok(String::new())
    }
}

impl Element for CoDel {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let queues = self.named.clone().unwrap_or_else(|| storages::nearest(at, Notice::Empty));
        if queues.is_empty() {
            errors.error("no nearby Queues");
            return false;
        }
        for queue in &queues {
            if at.router.element(*queue).storage().is_none() {
                errors.error(&format!("'{}' is not a Storage element", at.router.name(*queue)));
                return false;
            }
        }
        *self.queues.borrow_mut() = queues;
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let now = at.now();
        let Some(taken) = self.take(at, now) else {
            self.dropping.set(false);
            return None;
        };
        if self.dropping.get() {
            return self.go_on(at, now, taken);
        }
        let (packet, may_drop) = taken;
        if !may_drop {
            return Some(packet);
        }
        self.drop(at, packet);
        let next = self.take(at, now).map(|(packet, _)| packet);
        self.dropping.set(true);
        // Soon after the last phase it begins near the rate at which that one ended.
        let more = self.count.get().wrapping_sub(self.last_count.get());
        let is_soon = now.saturating_sub(self.next_drop.get()) < 16 * self.interval_ns();
        self.count.set(if more > 1 && is_soon { more } else { 1 });
        self.next_drop.set(self.after(now));
        self.last_count.set(self.count.get());
        next
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("target", |this: &Self, _| this.target.get());
        handlers.write("target", |this: &Self, _, value| this.set(|this| &this.target, value));
        handlers.read("interval", |this: &Self, _| this.interval.get());
        handlers.write("interval", |this: &Self, _, value| this.set(|this| &this.interval, value));
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.read("queues", |this: &Self, at| {
            this.queues
                .borrow()
                .iter()
                .map(|queue| format!("{}\n", at.router.name(*queue)))
                .collect::<String>()
        });
        handlers.read("stats", |this: &Self, _| {
            let state = if this.dropping.get() { "dropping" } else { "not dropping" };
            format!("{state}\n{} drops in this phase\n{} drops\n", this.count.get(), this.drops.get())
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.first_above.set(before.first_above.get());
            self.dropping.set(before.dropping.get());
            self.next_drop.set(before.next_drop.get());
            self.count.set(before.count.get());
            self.last_count.set(before.last_count.get());
            self.drops.set(before.drops.get());
        }
    }
}
