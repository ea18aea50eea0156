//! Schedulers of pulls: `PrioSched`, `RoundRobinSched`, `StrideSched`, and `StrideSwitch` for pushes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::notifier::Signal;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("PrioSched", prio_sched).ports("-/1").processing("l/l").creates_nothing(),
    Class::new("RoundRobinSched", round_robin_sched).ports("-/1").processing("l/l").creates_nothing(),
    Class::new("StrideSched", stride_sched).ports("1-/1").processing("l/l").creates_nothing().live(),
    Class::new("StrideSwitch", stride_switch).ports("1/1-").processing("h/h").creates_nothing().live(),
];

/// Signals of all inputs.
fn signals(at: At<'_>) -> Vec<Signal> {
    (0..at.inputs()).map(|input| at.upstream_empty(input, None)).collect()
}

/// Pulls from an input whose signal is up.
fn pull_signalled(at: At<'_>, signals: &RefCell<Vec<Signal>>, input: usize) -> Option<Packet> {
    let active = signals.borrow().get(input).is_none_or(Signal::is_active);
    if active { at.pull(input) } else { None }
}

/// `PrioSched`: yields a packet of the first input that has one.
#[derive(Default)]
struct PrioSched {
    signals: RefCell<Vec<Signal>>,
}

fn prio_sched(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(PrioSched::default()))
}

impl Element for PrioSched {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.signals.replace(signals(at));
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        (0..at.inputs()).find_map(|input| pull_signalled(at, &self.signals, input))
    }
}

/// `RoundRobinSched`: yields a packet of the next input in turn that has one.
#[derive(Default)]
struct RoundRobinSched {
    next: Cell<usize>,
    signals: RefCell<Vec<Signal>>,
}

fn round_robin_sched(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(RoundRobinSched::default()))
}

impl Element for RoundRobinSched {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.signals.replace(signals(at));
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let (first, inputs) = (self.next.get(), at.inputs());
        for input in (first..inputs).chain(0..first) {
            if let Some(packet) = pull_signalled(at, &self.signals, input) {
                self.next.set(if input + 1 >= inputs { 0 } else { input + 1 });
                return Some(packet);
            }
        }
        None
    }
}

/// A port that takes its turns by its tickets.
struct Client {
    tickets: Cell<i32>,
    /// When its turn comes, in strides.
    pass: Cell<u32>,
}

impl Client {
    const STRIDE: u32 = 1 << 16;
    const MOST: i32 = 1 << 15;

    fn stride(&self) -> u32 {
        Self::STRIDE.checked_div(self.tickets.get().unsigned_abs()).unwrap_or(0)
    }
    fn step(&self) {
        self.pass.set(self.pass.get().wrapping_add(self.stride()));
    }
}

/// `StrideSched(TICKETS0, ..., TICKETSn)`: yields packets of its inputs in proportion to their tickets.
///
/// `StrideSwitch(TICKETS0, ..., TICKETSn)` pushes packets to its outputs in that way.
struct StrideSched {
    clients: Vec<Client>,
    /// Ports with tickets, in the order of their turns.
    order: RefCell<Vec<usize>>,
    signals: RefCell<Vec<Signal>>,
}

fn stride_sched(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    Some(Rc::new(StrideSched::configure(arguments, setup, setup.inputs(), "input")?))
}

impl StrideSched {
    fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>, ports: usize, kind: &str) -> Option<Self> {
        let texts = arguments.rest();
        if texts.len() != ports {
            setup.errors.error(&format!("need {ports} arguments, one per {kind} port"));
            return None;
        }
        let before = setup.errors.count();
        let mut clients = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let mut tickets = match i32::parse(text, setup.at) {
                Ok(tickets) if tickets >= 0 => tickets,
                Ok(_) => {
                    setup.errors.error(&format!("argument {number} (number of tickets) must be >= 0"));
                    continue;
                }
                Err(_) => {
                    let message = format!("argument {number} should be number of tickets (integer)");
                    setup.errors.error(&message);
                    continue;
                }
            };
            if tickets > Client::MOST {
                let message = format!("input {number}'s tickets reduced to {}", Client::MOST);
                setup.errors.warning(&message);
                tickets = Client::MOST;
            }
            let client = Client { tickets: Cell::new(tickets), pass: Cell::new(0) };
            client.step();
            clients.push(client);
        }
        if setup.errors.count() > before {
            return None;
        }
        let sched = Self { clients, order: RefCell::default(), signals: RefCell::default() };
        sched.sort();
        Some(sched)
    }

    /// Puts all ports with tickets in order; those with equal passes in the order of their numbers.
    fn sort(&self) {
        self.order.borrow_mut().clear();
        for (port, client) in self.clients.iter().enumerate().rev() {
            if client.tickets.get() > 0 {
                self.insert(port);
            }
        }
    }

    /// Puts a port in its place: before those whose turn comes no earlier.
    fn insert(&self, port: usize) {
        let Some(client) = self.clients.get(port) else { return };
        let pass = client.pass.get();
        let is_later = |other: &usize| {
            let other = self.clients.get(*other).map_or(0, |other| other.pass.get());
            // Passes wrap around.
            pass.wrapping_sub(other) as i32 <= 0
        };
        let mut order = self.order.borrow_mut();
        let place = order.iter().position(is_later).unwrap_or(order.len());
        order.insert(place, port);
    }

    /// Puts ports that had their turn into their new places.
    fn insert_again(&self, ports: &[usize]) {
        self.order.borrow_mut().retain(|port| !ports.contains(port));
        for port in ports {
            if self.clients.get(*port).is_some_and(|client| client.tickets.get() > 0) {
                self.insert(*port);
            }
        }
    }

    fn set_tickets(&self, at: At<'_>, port: usize, value: &str) -> Answer {
        let tickets = i32::parse(value.trim(), at).map_err(|_| "tickets value must be integer")?;
        let Some(client) = self.clients.get(port) else {
            return Err(format!("port {port} out of range"));
        };
        if tickets < 0 {
            return Err("number of tickets must be >= 0".into());
        }
        let before = client.tickets.replace(tickets.min(Client::MOST));
        if tickets == 0 {
            self.order.borrow_mut().retain(|other| *other != port);
        } else if before == 0 {
            let first = self.order.borrow().first().and_then(|first| self.clients.get(*first));
            client.pass.set(first.map_or(0, |first| first.pass.get().wrapping_add(client.stride())));
            self.insert(port);
        }
        Ok(String::new())
    }

    fn take_settings(&self, fresh: &Self) -> bool {
        for (client, fresh) in self.clients.iter().zip(&fresh.clients) {
            client.tickets.set(fresh.tickets.get());
        }
        self.sort();
        true
    }

    fn declare<E: Element>(&self, handlers: &mut Handlers, own: fn(&E) -> &Self) {
        for port in 0..self.clients.len() {
            let name = format!("tickets{port}");
            handlers.read(&name, move |this: &E, _| {
                own(this).clients.get(port).map_or(-1, |client| client.tickets.get())
            });
            handlers.write(&name, move |this: &E, at, value| own(this).set_tickets(at, port, value));
        }
        handlers.read("config", move |this: &E, _| {
            let tickets: Vec<String> =
                own(this).clients.iter().map(|client| client.tickets.get().to_string()).collect();
            tickets.join(", ")
        });
        handlers.change_config();
    }
}

impl Element for StrideSched {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.signals.replace(signals(at));
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let order = self.order.borrow().clone();
        let mut packet = None;
        let mut had_turn = 0;
        while packet.is_none()
            && let Some(port) = order.get(had_turn)
        {
            packet = pull_signalled(at, &self.signals, *port);
            if let Some(client) = self.clients.get(*port) {
                client.step();
            }
            had_turn += 1;
        }
        self.insert_again(&order[..had_turn]);
        packet
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.declare(handlers, |this: &Self| this);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| self.take_settings(fresh))
    }
}

struct StrideSwitch(StrideSched);

fn stride_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    Some(Rc::new(StrideSwitch(StrideSched::configure(arguments, setup, setup.outputs(), "output")?)))
}

impl Element for StrideSwitch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let first = self.0.order.borrow().first().copied();
        let Some(port) = first else {
            at.drop_packet(packet, DropReason::Denied);
            return;
        };
        if let Some(client) = self.0.clients.get(port) {
            client.step();
        }
        self.0.insert_again(&[port]);
        at.push(port, packet);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        self.0.declare(handlers, |this: &Self| &this.0);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| self.0.take_settings(&fresh.0))
    }
}
