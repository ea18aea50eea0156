//! Queues between push and pull: `Queue`, `SimpleQueue`, `NotifierQueue`, `MixedQueue`, `FrontDropQueue` and their kin.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::notifier::{Notice, Notifier, Search};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    class("Queue", queue),
    class("FullNoteQueue", queue),
    class("ThreadSafeQueue", queue),
    class("SimpleQueue", simple_queue),
    class("NotifierQueue", notifier_queue),
    class("QuickNoteQueue", quick_note_queue),
    class("FrontDropQueue", front_drop_queue),
    class("MixedQueue", mixed_queue).ports("2/1-2"),
];

type Configure = fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>;

const fn class(name: &'static str, configure: Configure) -> Class {
    Class::new(name, configure).ports("1/1-2").processing("h/lh").live()
}

/// How a queue notifies, and which packet it drops where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It tells nothing.
    Simple,
    /// It tells whether it is empty.
    Notifier,
    /// It tells whether it is empty and whether it is full.
    Full,
    /// As `Full`, and tells that it is empty as soon as it is.
    Quick,
    /// As `Notifier`, and drops the oldest packet.
    FrontDrop,
    /// As `Notifier`, and puts what comes by its second input in front.
    Mixed,
}

/// Failed pulls after which an empty queue says that it is empty.
const SLEEPINESS: u32 = 9;

/// `Queue([CAPACITY])` and its kin: holds up to `CAPACITY` packets (1000), first in first out.
///
/// Packets for which there is no room leave by the second output, if there is one. `Queue` (that is, `FullNoteQueue`) and
/// `ThreadSafeQueue` tell tasks behind them whether they are empty, and those in front whether they are full.
/// `NotifierQueue` tells only the first, `SimpleQueue` nothing. `QuickNoteQueue` tells that it is empty at once.
/// `FrontDropQueue` makes room by dropping its oldest packet. `MixedQueue` puts packets of its second input in front.
struct Queue {
    kind: Kind,
    packets: RefCell<VecDeque<Packet>>,
    capacity: Cell<usize>,
    highest: Cell<usize>,
    drops: Cell<u32>,
    sleepiness: Cell<u32>,
    /// Raised while there are packets.
    empty: Option<Rc<Notifier>>,
    /// Raised while there is room.
    full: Option<Rc<Notifier>>,
}

fn simple_queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Simple)
}
fn notifier_queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Notifier)
}
fn queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Full)
}
fn quick_note_queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Quick)
}
fn front_drop_queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::FrontDrop)
}
fn mixed_queue(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Mixed)
}

fn make(arguments: &mut Arguments<'_>, setup: &Setup<'_>, kind: Kind) -> Option<Rc<dyn Element>> {
    let capacity: u32 = arguments.positional("CAPACITY").unwrap_or(1000);
    arguments.complete()?;
    let tells_full = matches!(kind, Kind::Full | Kind::Quick);
    let full = tells_full.then(|| setup.at.notifier("full", Search::Stop));
    let empty = (kind != Kind::Simple).then(|| setup.at.notifier("empty", Search::Stop));
    Some(Rc::new(Queue {
        kind,
        packets: RefCell::default(),
        capacity: Cell::new(capacity as usize),
        highest: Cell::default(),
        drops: Cell::default(),
        sleepiness: Cell::default(),
        empty,
        full,
    }))
}

impl Queue {
    fn length(&self) -> usize {
        self.packets.borrow().len()
    }
    /// Counts a packet that is dropped, and says so the first time.
    fn count_drop(&self, at: At<'_>) {
        if self.drops.get() == 0 && self.capacity.get() > 0 {
            at.chatter(&format!("{}: overflow", at.declaration()));
        }
        self.drops.set(self.drops.get().wrapping_add(1));
    }
    /// Takes note of a packet that came in.
    fn grew(&self, at: At<'_>) {
        let length = self.length();
        self.highest.set(self.highest.get().max(length));
        if let Some(empty) = &self.empty {
            empty.wake(at.router);
        }
        if let Some(full) = &self.full
            && length == self.capacity.get()
        {
            full.sleep();
        }
    }
    fn push_back(&self, at: At<'_>, packet: Packet) {
        if self.length() < self.capacity.get() {
            self.packets.borrow_mut().push_back(packet);
            self.grew(at);
        } else {
            self.count_drop(at);
            at.push_or_drop(1, packet, DropReason::QueueFull);
        }
    }
    /// Puts a packet behind the last, and drops the first where there is no room.
    fn push_and_drop_first(&self, at: At<'_>, packet: Packet) {
        if self.length() >= self.capacity.get() {
            self.count_drop(at);
            let first = self.packets.borrow_mut().pop_front();
            let Some(first) = first else {
                at.push_or_drop(1, packet, DropReason::QueueFull);
                return;
            };
            at.push_or_drop(1, first, DropReason::QueueFull);
        }
        self.packets.borrow_mut().push_back(packet);
        self.grew(at);
    }
    /// Puts a packet before the first, and drops the last where there is no room.
    fn push_front(&self, at: At<'_>, packet: Packet) {
        let mut last = None;
        if self.length() >= self.capacity.get() {
            self.count_drop(at);
            last = self.packets.borrow_mut().pop_back();
            if last.is_none() {
                at.push_or_drop(1, packet, DropReason::QueueFull);
                return;
            }
        }
        self.packets.borrow_mut().push_front(packet);
        self.grew(at);
        if let Some(last) = last {
            at.push_or_drop(1, last, DropReason::QueueFull);
        }
    }
    /// Drops what is beyond the capacity, and yields how many packets those were.
    fn cut(&self, at: At<'_>) -> usize {
        let mut cut = 0;
        while self.length() > self.capacity.get() {
            let packet = match self.kind {
                Kind::FrontDrop => self.packets.borrow_mut().pop_front(),
                _ => self.packets.borrow_mut().pop_back(),
            };
            let Some(packet) = packet else { break };
            at.drop_packet(packet, DropReason::QueueFull);
            cut += 1;
        }
        cut
    }
    /// A pull found nothing.
    fn found_nothing(&self) {
        let Some(empty) = &self.empty else { return };
        if self.sleepiness.get() >= SLEEPINESS {
            empty.sleep();
        } else {
            self.sleepiness.set(self.sleepiness.get() + 1);
        }
    }
}

impl Element for Queue {
    fn memory(&self) -> usize {
        self.packets.borrow().capacity() * size_of::<Packet>()
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        match self.kind {
            Kind::FrontDrop => self.push_and_drop_first(at, packet),
            Kind::Mixed if input == 1 => self.push_front(at, packet),
            _ => self.push_back(at, packet),
        }
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        let in_order = self.kind != Kind::FrontDrop && (self.kind != Kind::Mixed || input == 0);
        let room = self.capacity.get().saturating_sub(self.length());
        // The last place that is free has the queue say that it is full. Only the first packet wakes what sleeps.
        if !in_order || batch.len() >= room || !self.empty.as_ref().is_none_or(|empty| empty.is_active()) {
            for packet in batch.drain() {
                self.push(at, input, packet);
            }
            return;
        }
        let mut packets = self.packets.borrow_mut();
        packets.extend(batch.drain());
        self.highest.set(self.highest.get().max(packets.len()));
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let packet = self.packets.borrow_mut().pop_front();
        match &packet {
            Some(_) => {
                self.sleepiness.set(0);
                if let Some(full) = &self.full {
                    full.wake(at.router);
                }
            }
            None if self.kind != Kind::Quick => self.found_nothing(),
            None => (),
        }
        if self.kind == Kind::Quick
            && self.length() == 0
            && let Some(empty) = &self.empty
        {
            empty.sleep();
        }
        packet
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        match notice {
            Notice::Empty => self.empty.clone(),
            Notice::Full => self.full.clone(),
        }
    }
    fn storage(&self) -> Option<(usize, usize)> {
        Some((self.length(), self.capacity.get()))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("length", |this: &Self, _| this.length());
        handlers.read("highwater_length", |this: &Self, _| this.highest.get());
        handlers.read("capacity", |this: &Self, _| this.capacity.get()).calm = true;
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.change_argument("capacity", Some(0), "CAPACITY");
        handlers.button("reset_counts", |this: &Self, _| {
            this.drops.set(0);
            this.highest.set(this.length());
        });
        handlers.button("reset", |this: &Self, at| {
            while let Some(packet) = this.pull(at, 0) {
                at.push_or_drop(1, packet, DropReason::Drained);
            }
        });
    }
    fn reconfigure(&self, at: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.capacity.set(fresh.capacity.get());
        self.cut(at);
        if let Some(full) = &self.full
            && self.length() < self.capacity.get()
        {
            full.wake(at.router);
        }
        true
    }
    fn take_state(&self, at: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        let packets = std::mem::take(&mut *before.packets.borrow_mut());
        let length = packets.len();
        self.packets.borrow_mut().extend(packets);
        if self.cut(at) > 0 {
            let capacity = self.capacity.get();
            at.chatter(&format!("some packets lost (old length {length}, new capacity {capacity})"));
        }
        self.highest.set(self.length());
    }
    fn cleanup(&self, at: At<'_>) {
        let packets = std::mem::take(&mut *self.packets.borrow_mut());
        for packet in packets {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}
