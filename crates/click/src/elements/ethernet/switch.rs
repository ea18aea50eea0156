//! `EtherSwitch` and `ListenEtherSwitch`: learning Ethernet switches.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::{ether_at, made};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, SECOND, Span, signed_seconds};

pub(super) const CLASSES: &[Class] = &[
    Class::new("EtherSwitch", configure).ports("2-/=").processing("h/h").flow("#/[^#]").creates_nothing(),
    Class::new("ListenEtherSwitch", configure).ports("1-/=+").processing("h/h").flow("x/x").creates_nothing(),
];

/// Addresses that a switch knows at once, unless its configuration says otherwise.
const CAPACITY: usize = 1 << 16;

/// Where an address was last seen, and when (ns).
#[derive(Clone, Copy)]
struct Seen {
    port: usize,
    time: u64,
}

/// `EtherSwitch([TIMEOUT, CAPACITY])`: sends packets to the port where their destination was seen, or to all others.
///
/// It forgets addresses after TIMEOUT seconds (300); with 0 it learns none. It learns at most CAPACITY addresses.
/// `ListenEtherSwitch` has one output more, which gets a copy of each packet.
struct EtherSwitch {
    table: RefCell<HashMap<Ether, Seen>>,
    /// Seconds.
    timeout: Cell<u64>,
    capacity: usize,
    /// When old addresses were last removed to make room (ns).
    swept: Cell<u64>,
}

fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let timeout: Option<Span> = arguments.keyword("TIMEOUT");
    let capacity = arguments.keyword("CAPACITY").unwrap_or(CAPACITY);
    arguments.complete()?;
    made(EtherSwitch {
        table: RefCell::default(),
        timeout: Cell::new(timeout.map_or(300, |span| span.0 / SECOND)),
        capacity,
        swept: Cell::default(),
    })
}

impl EtherSwitch {
    fn expires(&self, seen: Seen) -> u64 {
        seen.time.saturating_add(self.timeout.get().saturating_mul(SECOND))
    }

    fn learn(&self, at: At<'_>, source: Ether, seen: Seen) {
        let mut table = self.table.borrow_mut();
        if table.len() >= self.capacity && !table.contains_key(&source) {
            // A full table is swept once a second at most, so that many new addresses cost little.
            let now = at.steady();
            if now < self.swept.get().saturating_add(SECOND) && self.swept.get() != 0 {
                return;
            }
            self.swept.set(now.max(1));
            table.retain(|_, old| seen.time < self.expires(*old));
            if table.len() >= self.capacity {
                return;
            }
        }
        table.insert(source, seen);
    }

    /// The port of an address, if it is known and was seen lately.
    fn find(&self, destination: Ether, time: u64) -> Option<usize> {
        let mut table = self.table.borrow_mut();
        let seen = *table.get(&destination)?;
        if time < self.expires(seen) {
            return Some(seen.port);
        }
        table.remove(&destination);
        None
    }

    fn send_to_others(at: At<'_>, input: usize, packet: Packet) {
        let others: Vec<usize> = (0..at.inputs()).rev().filter(|port| *port != input).collect();
        let Some((last, others)) = others.split_last() else {
            at.drop_packet(packet, DropReason::Unconnected);
            return;
        };
        for port in others {
            if let Some(copy) = at.copy(&packet) {
                at.push(*port, copy);
            }
        }
        at.push(*last, packet);
    }
}

impl Element for EtherSwitch {
    fn memory(&self) -> usize {
        self.table.borrow().capacity() * size_of::<(Ether, Seen)>()
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        let (Some(destination), Some(source)) = (ether_at(packet.data(), 0), ether_at(packet.data(), 6))
        else {
            at.drop_packet(packet, DropReason::Truncated);
            return;
        };
        if at.outputs() > at.inputs()
            && let Some(copy) = at.copy(&packet)
        {
            at.push(at.inputs(), copy);
        }
        let time = packet.timestamp();
        let mut port = None;
        if self.timeout.get() != 0 {
            self.learn(at, source, Seen { port: input, time });
            if !destination.is_group() {
                port = self.find(destination, time);
            }
        }
        match port {
            None => Self::send_to_others(at, input, packet),
            Some(port) if port == input => at.drop_packet(packet, DropReason::Denied),
            Some(port) => at.push(port, packet),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, _| {
            let mut known: Vec<(Ether, usize)> =
                this.table.borrow().iter().map(|(address, seen)| (*address, seen.port)).collect();
            known.sort_unstable();
            let mut text = String::new();
            for (address, port) in known {
                let _ = writeln!(text, "{address} {port}");
            }
            text
        });
        handlers.read("timeout", |this: &Self, _| this.timeout.get());
        handlers.write("timeout", |this: &Self, _, value| {
            let time = signed_seconds(value.trim()).and_then(|time| u64::try_from(time).ok());
            this.timeout.set(time.ok_or("expected timeout (integer)")? / SECOND);
            Ok(String::new())
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            *self.table.borrow_mut() = std::mem::take(&mut *before.table.borrow_mut());
        }
    }
}
