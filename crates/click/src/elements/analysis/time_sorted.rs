//! `TimeSortedSched`: streams of packets merged by their timestamps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Search, Signal};
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("TimeSortedSched", configure).ports("-/1").processing("l/l").creates_nothing()];

/// `TimeSortedSched([STOP, BUFFER])`: yields the earliest packet of all inputs, of which it holds `BUFFER` each.
struct TimeSortedSched {
    stop: bool,
    buffer: usize,
    signals: RefCell<Vec<Signal>>,
    /// Inputs of which more packets may be held, and how many more of each input.
    ready: RefCell<Vec<usize>>,
    space: RefCell<Vec<usize>>,
    heap: RefCell<Heap>,
    last: Cell<i64>,
    well_ordered: Cell<bool>,
    notifier: Rc<Notifier>,
}

/// Packets with the earliest first. Among equals the order is that of Click's heap.
#[derive(Default)]
struct Heap(Vec<(i64, usize, Packet)>);

impl Heap {
    fn push(&mut self, packet: Packet, input: usize) {
        self.0.push((packet.timestamp() as i64, input, packet));
        let mut place = self.0.len() - 1;
        while place > 0 && self.0[place].0 < self.0[(place - 1) / 2].0 {
            self.0.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }
    fn pop(&mut self) -> Option<(i64, usize, Packet)> {
        if self.0.is_empty() {
            return None;
        }
        let first = self.0.swap_remove(0);
        let mut place = 0;
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.0.len() && self.0[child].0 < self.0[least].0 {
                    least = child;
                }
            }
            if least == place {
                return Some(first);
            }
            self.0.swap(place, least);
            place = least;
        }
    }
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let stop = arguments.keyword("STOP").unwrap_or(false);
    let buffer: i32 = arguments.keyword("BUFFER").unwrap_or(1);
    arguments.complete()?;
    let Some(buffer) = usize::try_from(buffer).ok().filter(|buffer| *buffer > 0) else {
        setup.errors.error("BUFFER must be at least 1");
        return None;
    };
    Some(Rc::new(TimeSortedSched {
        stop,
        buffer,
        signals: RefCell::default(),
        ready: RefCell::default(),
        space: RefCell::default(),
        heap: RefCell::default(),
        last: Cell::default(),
        well_ordered: Cell::new(true),
        notifier: Notifier::new("empty", Search::ContinueWake),
    }))
}

impl TimeSortedSched {
    /// Takes packets of inputs that have some, as many as may be held. Whether any input may have more.
    fn fill(&self, at: At<'_>) -> bool {
        let mut active = false;
        let inputs = self.ready.borrow().len();
        for place in (0..inputs).rev() {
            let Some(input) = self.ready.borrow().get(place).copied() else { continue };
            if !self.signals.borrow().get(input).is_some_and(Signal::is_active) {
                continue;
            }
            active = true;
            while let Some(packet) = at.pull(input) {
                self.heap.borrow_mut().push(packet, input);
                let mut space = self.space.borrow_mut();
                space[input] = space[input].saturating_sub(1);
                if space[input] == 0 {
                    self.ready.borrow_mut().swap_remove(place);
                    break;
                }
            }
        }
        active
    }
}

impl Element for TimeSortedSched {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        let inputs = at.inputs();
        let signals = (0..inputs).map(|input| at.upstream_empty_wakes(input, &self.notifier)).collect();
        *self.signals.borrow_mut() = signals;
        *self.ready.borrow_mut() = (0..inputs).collect();
        *self.space.borrow_mut() = vec![self.buffer; inputs];
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let active = self.fill(at);
        let has_packets = !self.heap.borrow().0.is_empty();
        self.notifier.set_active(has_packets || active, at.router);
        let first = self.heap.borrow_mut().pop();
        let Some((time, input, packet)) = first else {
            if self.stop && !active {
                at.router.please_stop();
            }
            return None;
        };
        if time != 0 {
            if self.last.get() != 0 && time < self.last.get() {
                self.well_ordered.set(false);
            }
            self.last.set(time);
        }
        let mut space = self.space.borrow_mut();
        space[input] += 1;
        if space[input] == 1 {
            self.ready.borrow_mut().push(input);
        }
        Some(packet)
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("well_ordered", |this: &Self, _| this.well_ordered.get()).checkbox = true;
    }
    fn cleanup(&self, at: At<'_>) {
        let held = std::mem::take(&mut *self.heap.borrow_mut());
        for (_, _, packet) in held.0 {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}
