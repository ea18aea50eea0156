//! Elements: what a class of Click's is to this engine.

use std::any::Any;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::Arguments;
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier};
use crate::router::{At, Setup};

/// A class of elements: its ports, how they work, and how an element is made from its configuration.
pub struct Class {
    /// `"Counter"`.
    pub name: &'static str,
    /// Numbers of inputs and outputs, as Click writes them: `"1/1-2"`.
    pub ports: &'static str,
    /// Push, pull or agnostic ports, as Click writes them: `"a/ah"`.
    pub processing: &'static str,
    /// Which inputs lead to which outputs, as Click writes it: `"x/x"`.
    pub flow: &'static str,
    /// Elements with lower phases are configured and initialised earlier.
    pub phase: i32,
    /// Whether an element without inputs in sight may still yield packets (Click's flag `S`).
    pub creates: bool,
    /// Whether elements take another configuration while they run, by [`Element::reconfigure`].
    pub live: bool,
    /// Whether its packets answer those that come in, as ICMP errors do.
    pub answers: bool,
    /// Makes an element. `None` after an error was told.
    pub configure: fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>,
}

impl Class {
    /// The phase of elements that only hold information for others.
    pub const INFO: i32 = 0;
    /// The phase of elements that need privileges, and give them up.
    pub const PRIVILEGED: i32 = 90;
    /// The phase of most elements.
    pub const DEFAULT: i32 = 100;
    /// The phase of elements that come last.
    pub const LAST: i32 = 2000;

    /// A class with one input and one output that are push or pull as their neighbours are.
    pub const fn new(
        name: &'static str,
        configure: fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>,
    ) -> Self {
        Self {
            name,
            ports: "1/1",
            processing: "a/a",
            flow: "x/x",
            phase: Self::DEFAULT,
            creates: true,
            live: false,
            answers: false,
            configure,
        }
    }
    /// The same with other numbers of ports.
    #[must_use]
    pub const fn ports(mut self, ports: &'static str) -> Self {
        self.ports = ports;
        self
    }
    /// The same with other kinds of ports.
    #[must_use]
    pub const fn processing(mut self, processing: &'static str) -> Self {
        self.processing = processing;
        self
    }
    /// The same with another flow code.
    #[must_use]
    pub const fn flow(mut self, flow: &'static str) -> Self {
        self.flow = flow;
        self
    }
    /// The same in another phase.
    #[must_use]
    pub const fn phase(mut self, phase: i32) -> Self {
        self.phase = phase;
        self
    }
    /// The same, for a class whose elements yield only what came in.
    #[must_use]
    pub const fn creates_nothing(mut self) -> Self {
        self.creates = false;
        self
    }
    /// The same, for a class whose packets answer those that come in.
    #[must_use]
    pub const fn answers(mut self) -> Self {
        self.answers = true;
        self
    }
    /// Whether packets only end in its elements, where their order does not show.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.name, "Discard" | "Idle")
    }
    /// The same, for a class whose elements take another configuration while they run.
    #[must_use]
    pub const fn live(mut self) -> Self {
        self.live = true;
        self
    }
}

/// An element of a running configuration.
///
/// Elements call each other: a packet that an element pushes may come back to it before the call returns. So they are
/// shared, keep what changes in cells, and borrow none while they push, pull or call a handler.
pub trait Element: Any {
    /// Prepares the element when all are configured: tasks, timers, notifiers. `false` after an error was told.
    fn initialize(&self, _at: At<'_>, _errors: &Errors) -> bool {
        true
    }

    /// Works on a packet, for an element with one way through. `None`: it took the packet.
    fn action(&self, _at: At<'_>, packet: Packet) -> Option<Packet> {
        Some(packet)
    }

    /// Takes a packet on an input.
    fn push(&self, at: At<'_>, _input: usize, packet: Packet) {
        if let Some(packet) = self.action(at, packet) {
            at.push(0, packet);
        }
    }

    /// Takes the packets of a batch on an input, and leaves the batch empty.
    ///
    /// An element that has a faster way for many packets implements this; what it does is what
    /// [`push`](Self::push) does to each in turn.
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        for packet in batch.drain() {
            self.push(at, input, packet);
        }
    }

    /// Yields a packet on an output.
    fn pull(&self, at: At<'_>, _output: usize) -> Option<Packet> {
        let packet = at.pull(0)?;
        self.action(at, packet)
    }

    /// A turn of the element's task. Whether it did any work.
    fn run_task(&self, _at: At<'_>, _task: usize) -> bool {
        false
    }

    /// A timer of the element has expired.
    fn run_timer(&self, _at: At<'_>, _timer: usize) {}

    /// A signal that the element [listens to](At::upstream_empty_calls) has risen.
    fn signal_rose(&self, _at: At<'_>) {}

    /// Packets that it holds and for how many it has room, if it is a storage such as a queue.
    fn storage(&self) -> Option<(usize, usize)> {
        None
    }

    /// Bytes that its tables take now, beside the element itself and the packets that it holds.
    ///
    /// Elements whose tables grow with what packets or handlers bring implement this. It is asked often, and must not
    /// take long.
    fn memory(&self) -> usize {
        0
    }

    /// A descriptor that the element [watches](At::watch) is ready.
    fn ready(&self, _at: At<'_>, _descriptor: usize) {}

    /// An element said a line, and this one [listens](At::listen_to_chatter).
    fn heard(&self, _at: At<'_>, _line: &str) {}

    /// A low-level procedure call ([`llrpc`](crate::llrpc)), whose bytes it takes and gives.
    ///
    /// # Errors
    /// The system's number for what is wrong.
    fn llrpc(&self, _at: At<'_>, _command: u32, _bytes: &mut [u8]) -> std::io::Result<()> {
        Err(crate::llrpc::unknown())
    }

    /// The process got a signal that the element waits for.
    fn signalled(&self, _at: At<'_>, _signal: i32) {}

    /// The driver was asked to stop. Whether the element, which manages the driver, has it go on.
    fn driver_stopped(&self, _at: At<'_>) -> bool {
        false
    }

    /// The notifier of a port: an output for [`Notice::Empty`], an input for [`Notice::Full`].
    fn notifier(&self, _notice: Notice, _port: usize) -> Option<Rc<Notifier>> {
        None
    }

    /// Declares the element's handlers.
    fn handlers(&self, _handlers: &mut Handlers) {}

    /// Takes over what an element of the same name and class held, when a configuration replaces another.
    fn take_state(&self, _at: At<'_>, _before: &dyn Element) {}

    /// Takes over the settings of a newly configured element of the same class, which then goes. `false` if it cannot.
    fn reconfigure(&self, _at: At<'_>, _fresh: &dyn Element) -> bool {
        false
    }

    /// Gives back what it holds, when the configuration ends: packets, files.
    fn cleanup(&self, _at: At<'_>) {}
}

/// The element as one of a type, if it is.
pub fn as_type<E: Element>(element: &dyn Element) -> Option<&E> {
    (element as &dyn Any).downcast_ref()
}
