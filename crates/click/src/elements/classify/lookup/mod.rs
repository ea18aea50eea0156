//! Lookups of destinations in tables of routes: `RadixIPLookup`, `LinearIPLookup` and similar ones.

pub(crate) mod route;
pub(crate) mod table;

use std::cell::{Cell, OnceCell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::program::matcher::DROP;
use super::sorter::Sorter;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::text;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use route::{Hop, Route};
use table::{Order, Refusal, Table};

const fn class(
    name: &'static str,
    configure: fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>,
) -> Class {
    Class::new(name, configure).ports("1/-").processing("h/h").creates_nothing()
}

pub(super) const CLASSES: &[Class] = &[
    class("LinearIPLookup", |arguments, setup| make(Kind::Linear, arguments, setup)),
    class("SortedIPLookup", |arguments, setup| make(Kind::Sorted, arguments, setup)),
    class("StaticIPLookup", |arguments, setup| make(Kind::Static, arguments, setup)),
    class("LookupIPRoute", |arguments, setup| make(Kind::Static, arguments, setup)),
    class("RadixIPLookup", |arguments, setup| make(Kind::Radix, arguments, setup)),
    class("DirectIPLookup", |arguments, setup| make(Kind::Direct, arguments, setup)),
    class("RangeIPLookup", |arguments, setup| make(Kind::Direct, arguments, setup)),
];

/// The differences of the classes, beside their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Sorted,
    /// Its routes do not change.
    Static,
    Radix,
    /// It says nothing of packets without a route.
    Direct,
}

/// `RadixIPLookup(ADDRESS/MASK [GATEWAY] OUTPUT, ...)` and its kin: the longest prefix of the destination annotation
/// decides.
///
/// The gateway becomes the destination annotation.
struct Lookup {
    kind: Kind,
    table: RefCell<Table>,
    sorter: Sorter,
    /// Counted for all tables of the class: found once, since each packet without a route comes to it.
    complaints: OnceCell<Rc<Complaints>>,
}

/// Complaints of missing routes so far, of all tables.
#[derive(Default)]
struct Complaints(Cell<u32>);

/// The most complaints.
const COMPLAINTS: u32 = 5;

fn make(kind: Kind, arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    if kind == Kind::Sorted {
        let instead = "SortedIPLookup is deprecated; use LinearIPLookup or RadixIPLookup instead";
        setup.errors.warning(instead);
    }
    let mut table = Table::new(match kind {
        Kind::Linear | Kind::Static => Order::FirstFree,
        Kind::Sorted => Order::Length,
        Kind::Radix => Order::LastFree,
        Kind::Direct => Order::Address,
    });
    let (mut good, mut repeated) = (true, 0);
    for (number, argument) in arguments.rest().iter().enumerate() {
        let number = number + 1;
        let problem = match Route::read(argument, false, setup.at) {
            None => format!("argument {number} should be 'ADDR/MASK [GATEWAY] OUTPUT'"),
            Some(route) if !has_port(&route, setup.outputs()) => format!("argument {number} bad OUTPUT"),
            Some(route) => match table.add(route, false) {
                Err(Refusal::Exists(_)) => {
                    repeated += 1;
                    continue;
                }
                Err(Refusal::Full | Refusal::NotFound) => format!("no memory to store route '{route}'"),
                Ok(_) => continue,
            },
        };
        setup.errors.error(&problem);
        good = false;
    }
    if repeated > 0 {
        let routes = if repeated > 1 { "routes" } else { "route" };
        setup.errors.warning(&format!("{repeated} {routes} replaced by later versions"));
    }
    good.then(|| {
        Rc::new(Lookup {
            kind,
            table: RefCell::new(table),
            sorter: Sorter::default(),
            complaints: OnceCell::new(),
        }) as Rc<dyn Element>
    })
}

/// Stands for no route, until that was told. No output has this number.
const MISSING: u32 = DROP - 1;

impl Hop {
    /// Notes the gateway; the output, or [`DROP`].
    #[inline]
    fn apply(self, packet: &mut Packet) -> u32 {
        if self.gateway != 0 {
            packet.set_dst_ip(self.gateway.into());
        }
        u32::try_from(self.port).unwrap_or(DROP)
    }
}

fn has_port(route: &Route, outputs: usize) -> bool {
    usize::try_from(route.hop.port).is_ok_and(|port| port < outputs)
}

/// A change of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Add,
    Set,
    Remove,
}

/// A way to take a change back.
enum Undo {
    Remove(Route),
    Set(Route),
}

impl Lookup {
    fn find(&self, packet: &Packet) -> Option<Hop> {
        self.table.borrow().find(packet.dst_ip().into())
    }

    /// Notes the gateway; the output, or [`DROP`].
    fn apply(&self, at: At<'_>, packet: &mut Packet, hop: Option<Hop>) -> u32 {
        let Some(hop) = hop else {
            self.complain(at, packet.dst_ip());
            return DROP;
        };
        hop.apply(packet)
    }

    /// Complains of the packets that have no route, as [`apply`](Self::apply) does of each.
    #[cold]
    fn complain_of_all(&self, at: At<'_>, batch: &Batch, to: &mut [u32]) {
        for (packet, output) in batch.iter().zip(to) {
            if *output == MISSING {
                self.complain(at, packet.dst_ip());
                *output = DROP;
            }
        }
    }

    fn complain(&self, at: At<'_>, address: Ipv4Addr) {
        let name = match self.kind {
            Kind::Direct => return,
            Kind::Sorted => {
                let number = u32::from_ne_bytes(address.octets());
                return at.complain(|| format!("SortedIPLookup: no gw for {number:x}"));
            }
            Kind::Linear | Kind::Static => "LinearIPLookup",
            Kind::Radix => "IPRouteTable",
        };
        let complaints = self
            .complaints
            .get_or_init(|| at.router.shared(&format!("{name} complaints"), Complaints::default));
        if complaints.0.get() < COMPLAINTS {
            complaints.0.set(complaints.0.get() + 1);
            at.chatter(&format!("{name}: no route for {address}"));
        }
    }

    /// Changes the table; what takes the change back.
    fn change(&self, at: At<'_>, command: Command, text: &str) -> Result<Undo, String> {
        let to_remove = command == Command::Remove;
        let Some(route) = Route::read(text, to_remove, at) else {
            let rest = if to_remove { " OUTPUT]" } else { "] OUTPUT" };
            return Err(format!("expected 'ADDR/MASK [GATEWAY{rest}'"));
        };
        let names_none = to_remove && route.hop.port == -1;
        if !names_none && !has_port(&route, at.outputs()) {
            return Err("bad OUTPUT".into());
        }
        let mut table = self.table.borrow_mut();
        let changed = match command {
            Command::Remove => table.remove(&route).map(Some),
            Command::Add | Command::Set => table.add(route, command == Command::Set),
        };
        match changed {
            Ok(Some(before)) => Ok(Undo::Set(before)),
            Ok(None) => Ok(Undo::Remove(route)),
            Err(Refusal::Exists(before)) => Err(format!("conflict with existing route '{before}'")),
            Err(Refusal::NotFound) => Err(format!("route '{route}' not found")),
            Err(Refusal::Full) => Err(format!("no memory to store route '{route}'")),
        }
    }

    /// Makes changes, one a line: all, or none where one fails.
    fn control(&self, at: At<'_>, text: &str) -> Answer {
        let mut done = Vec::new();
        for line in text::uncomment(text).lines() {
            let (word, rest) = text::next_word(line);
            let command = match &word[..] {
                "" => continue,
                "add" => Ok(Command::Add),
                "set" => Ok(Command::Set),
                "remove" => Ok(Command::Remove),
                _ => Err(format!("bad command '{word}'")),
            };
            match command.and_then(|command| self.change(at, command, rest)) {
                Ok(undo) => done.push(undo),
                Err(problem) => {
                    self.take_back(done);
                    return Err(problem);
                }
            }
        }
        Ok(String::new())
    }

    fn take_back(&self, done: Vec<Undo>) {
        let mut table = self.table.borrow_mut();
        for undo in done.into_iter().rev() {
            // It was so before, so that it fits.
            let _ = match undo {
                Undo::Remove(route) => table.remove(&route).map(Some),
                Undo::Set(route) => table.add(route, true),
            };
        }
    }

    fn ask(&self, at: At<'_>, text: &str) -> Answer {
        let address = Ipv4Addr::parse(text.trim(), at).map_err(|_| "expected IP address")?;
        Ok(match self.table.borrow().find(address.into()) {
            None => "-1".into(),
            Some(Hop { gateway: 0, port }) => port.to_string(),
            Some(Hop { gateway, port }) => format!("{port} {}", Ipv4Addr::from(gateway)),
        })
    }
}

impl Element for Lookup {
    fn memory(&self) -> usize {
        self.table.borrow().memory()
    }
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        let hop = self.find(&packet);
        let output = self.apply(at, &mut packet, hop);
        at.push_or_drop(output as usize, packet, DropReason::NoRoute);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        self.sorter.pass(at, batch, DropReason::NoRoute, |batch, to| {
            to.clear();
            let table = self.table.borrow();
            let mut misses = false;
            batch.each_packet(|_, packet| {
                let hop = table.find(packet.dst_ip().into());
                misses |= hop.is_none();
                to.push(hop.map_or(MISSING, |hop| hop.apply(packet)));
            });
            drop(table);
            if misses {
                self.complain_of_all(at, batch, to);
            }
        });
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers
            .read("table", |this: &Self, _| -> String {
                this.table.borrow().routes().iter().map(Route::line).collect()
            })
            .expensive = self.kind != Kind::Static;
        handlers.ask("lookup", |this: &Self, at, address| this.ask(at, address));
        if self.kind == Kind::Static {
            return;
        }
        for (name, command) in [("add", Command::Add), ("set", Command::Set), ("remove", Command::Remove)] {
            handlers.write(name, move |this: &Self, at, value| {
                this.change(at, command, value).map(|_| String::new())
            });
        }
        handlers.write("ctrl", |this: &Self, at, value| this.control(at, value));
        if matches!(self.kind, Kind::Radix | Kind::Direct) {
            handlers.button("flush", |this: &Self, _| this.table.borrow_mut().clear());
        }
    }
}
