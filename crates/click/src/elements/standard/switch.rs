//! Switches: which output a packet takes, or which input is pulled.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::llrpc;
use crate::notifier::{Notice, Notifier, Search, Signal};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("Switch", switch).ports("1/-").processing("h/h").live(),
    Class::new("StaticSwitch", static_switch).ports("1/-").processing("h/h"),
    Class::new("InputSwitch", input_switch).ports("-/1").processing("h/h").live(),
    Class::new("RoundRobinSwitch", round_robin_switch).ports("1/1-").processing("h/h"),
    Class::new("RandomSwitch", random_switch).ports("1/1-").processing("h/h"),
    Class::new("PullSwitch", pull_switch).ports("-/1").processing("l/l").live(),
    Class::new("SimplePullSwitch", simple_pull_switch).ports("-/1").processing("l/l").live(),
    Class::new("StaticPullSwitch", static_pull_switch).ports("-/1").processing("l/l"),
];

/// A port that a handler chooses, or none.
struct Choice(Cell<i32>);

impl Choice {
    fn port(&self) -> Option<usize> {
        usize::try_from(self.0.get()).ok()
    }
    /// Handlers `switch` and `config`, whose texts are the port's number.
    fn read_handlers<E: Element>(handlers: &mut Handlers, choice: fn(&E) -> &Self) {
        handlers.read("switch", move |this: &E, _| choice(this).0.get());
        handlers.read("config", move |this: &E, _| choice(this).0.get());
        handlers.change_config();
    }
    fn write_handler<E: Element>(
        handlers: &mut Handlers,
        choice: fn(&E) -> &Self,
        ports: fn(At<'_>) -> usize,
        error: &'static str,
    ) {
        handlers.write("switch", move |this: &E, at, value| {
            let port = i32::parse(value.trim(), at).map_err(|_| error)?;
            choice(this).0.set(if port as usize >= ports(at) && port >= 0 { -1 } else { port });
            Ok(String::new())
        });
    }
}

/// `Switch([OUTPUT])`: sends packets to one output, which its `switch` handler chooses; to none if negative.
struct Switch(Choice);

fn switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let output: i32 = arguments.positional("OUTPUT").unwrap_or(0);
    arguments.complete()?;
    if output >= setup.outputs() as i32 {
        setup.errors.error(&format!("output must be < {}", setup.outputs()));
        return None;
    }
    Some(Rc::new(Switch(Choice(Cell::new(output)))))
}

fn static_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let output: Option<i32> = arguments.required("OUTPUT");
    arguments.complete()?;
    let output = output.filter(|output| *output < setup.outputs() as i32).unwrap_or(-1);
    Some(Rc::new(StaticSwitch(Switch(Choice(Cell::new(output))))))
}

impl Element for Switch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        match self.0.port() {
            Some(output) => at.push_or_drop(output, packet, DropReason::Denied),
            None => at.drop_packet(packet, DropReason::Denied),
        }
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        match self.0.port() {
            Some(output) if output < at.outputs() => at.push_batch(output, batch),
            _ => at.each_alone(batch, |packet| self.push(at, input, packet)),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        Choice::read_handlers(handlers, |this: &Self| &this.0);
        Choice::write_handler(
            handlers,
            |this: &Self| &this.0,
            |at| at.outputs(),
            "Switch output must be integer",
        );
    }
    fn llrpc(&self, at: At<'_>, command: u32, bytes: &mut [u8]) -> std::io::Result<()> {
        match (command, llrpc::number(bytes)) {
            (llrpc::GET_SWITCH, _) => llrpc::set_number(bytes, self.0.0.get()),
            (llrpc::SET_SWITCH, Some(output)) if output < at.outputs() as i32 => self.0.0.set(output),
            _ => return Err(llrpc::unknown()),
        }
        Ok(())
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.0.0.set(fresh.0.0.get());
            true
        })
    }
}

/// `StaticSwitch(OUTPUT)`: sends packets to one output; to none if there is no such output.
struct StaticSwitch(Switch);

impl Element for StaticSwitch {
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        self.0.push(at, input, packet);
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        self.0.push_batch(at, input, batch);
    }
}

/// `InputSwitch([INPUT])`: passes the packets of one input, which its `switch` handler chooses, and drops others.
struct InputSwitch(Choice);

fn input_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    // Click's keyword is OUTPUT.
    let input: i32 = arguments.positional("OUTPUT").unwrap_or(0);
    arguments.complete()?;
    if input >= setup.inputs() as i32 {
        setup.errors.error(&format!("input must be < {}", setup.inputs()));
        return None;
    }
    Some(Rc::new(InputSwitch(Choice(Cell::new(input)))))
}

impl Element for InputSwitch {
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        if self.0.port() == Some(input) {
            at.push(0, packet);
        } else {
            at.drop_packet(packet, DropReason::Denied);
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let error = "InputSwitch input must be integer";
        Choice::read_handlers(handlers, |this: &Self| &this.0);
        Choice::write_handler(handlers, |this: &Self| &this.0, |at| at.inputs(), error);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.0.0.set(fresh.0.0.get());
            true
        })
    }
}

/// `RoundRobinSwitch`: sends each packet to the next output in turn.
struct RoundRobinSwitch {
    next: Cell<usize>,
}

fn round_robin_switch(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(RoundRobinSwitch { next: Cell::default() }))
}

impl Element for RoundRobinSwitch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let output = self.next.get();
        self.next.set(if output + 1 >= at.outputs() { 0 } else { output + 1 });
        at.push(output, packet);
    }
}

/// `RandomSwitch`: sends each packet to any output, each as likely as the others.
struct RandomSwitch;

fn random_switch(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(RandomSwitch))
}

impl Element for RandomSwitch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let output = at.router.random_below(u32::try_from(at.outputs()).unwrap_or(u32::MAX));
        at.push(output as usize, packet);
    }
}

/// `PullSwitch([INPUT])`: pulls from one input, which its `switch` handler chooses; from none if negative.
///
/// It tells tasks behind it whether the chosen input has packets. `SimplePullSwitch` does not.
struct PullSwitch {
    input: Choice,
    /// None for `SimplePullSwitch`.
    notifier: Option<Rc<Notifier>>,
    signals: RefCell<Vec<Signal>>,
}

fn pull_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    pulls(arguments, setup, Some(Notifier::new("empty", Search::Stop)))
}
fn simple_pull_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    pulls(arguments, setup, None)
}
fn pulls(
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
    notifier: Option<Rc<Notifier>>,
) -> Option<Rc<dyn Element>> {
    let input: i32 = arguments.positional("INPUT").unwrap_or(0);
    arguments.complete()?;
    let input = if input < setup.inputs() as i32 { input.max(-1) } else { -1 };
    Some(Rc::new(PullSwitch { input: Choice(Cell::new(input)), notifier, signals: RefCell::default() }))
}

impl PullSwitch {
    /// Whether the chosen input may have packets.
    fn may_have(&self) -> bool {
        let chosen = self.input.port();
        chosen.is_some_and(|input| self.signals.borrow().get(input).is_some_and(Signal::is_active))
    }
    fn choose(&self, at: At<'_>, input: i32) {
        self.input.0.set(if input < 0 || input as usize >= at.inputs() { -1 } else { input });
        let Some(notifier) = &self.notifier else { return };
        if self.input.port().is_none() {
            notifier.set(false);
        } else if self.may_have() {
            notifier.wake(at.router);
        }
    }
}

impl Element for PullSwitch {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if let Some(notifier) = &self.notifier {
            notifier.set(self.input.port().is_some());
            let signals = (0..at.inputs()).map(|input| at.upstream_empty_calls(input)).collect();
            self.signals.replace(signals);
        }
        true
    }
    fn signal_rose(&self, at: At<'_>) {
        if let Some(notifier) = &self.notifier
            && self.may_have()
        {
            notifier.wake(at.router);
        }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let packet = at.pull(self.input.port().unwrap_or(usize::MAX));
        if let Some(notifier) = &self.notifier {
            if packet.is_some() {
                notifier.set(true);
            } else if !self.may_have() {
                notifier.set(false);
            }
        }
        packet
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        self.notifier.clone().filter(|_| notice == Notice::Empty)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        Choice::read_handlers(handlers, |this: &Self| &this.input);
        handlers.write("switch", |this: &Self, at, value| {
            this.choose(at, i32::parse(value.trim(), at).map_err(|_| "syntax error")?);
            Ok(String::new())
        });
    }
    fn reconfigure(&self, at: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.choose(at, fresh.input.0.get());
            true
        })
    }
}

/// `StaticPullSwitch(INPUT)`: pulls from one input; from none if there is no such input.
struct StaticPullSwitch {
    input: usize,
}

fn static_pull_switch(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let input: Option<i32> = arguments.required("INPUT");
    arguments.complete()?;
    Some(Rc::new(StaticPullSwitch { input: usize::try_from(input?).unwrap_or(usize::MAX) }))
}

impl Element for StaticPullSwitch {
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        at.pull(self.input)
    }
}
