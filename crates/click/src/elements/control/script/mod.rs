//! `Script` and `DriverManager`: steps that wait, and that read and write handlers.

mod arithmetic;
mod format;
mod program;
mod run;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::{Raw, integer, signed_seconds};

use program::{Instruction, Op};
pub(crate) use run::ScriptBudget;
use run::Step;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Script", script).ports("-/-").processing("a/a").flow("x/x").creates_nothing(),
    Class::new("DriverManager", driver_manager).ports("0/0").processing("a/a").flow("x/y").creates_nothing(),
];

/// When a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Active,
    Passive,
    Packet,
    Proxy,
    Driver,
    Signal,
}

/// Signals that scripts name.
const SIGNALS: &[(&str, i32)] = &[
    ("ABRT", signal_hook::consts::SIGABRT),
    ("ALRM", signal_hook::consts::SIGALRM),
    ("HUP", signal_hook::consts::SIGHUP),
    ("INT", signal_hook::consts::SIGINT),
    ("IO", signal_hook::consts::SIGIO),
    ("PIPE", signal_hook::consts::SIGPIPE),
    ("QUIT", signal_hook::consts::SIGQUIT),
    ("TERM", signal_hook::consts::SIGTERM),
    ("TSTP", signal_hook::consts::SIGTSTP),
    ("USR1", signal_hook::consts::SIGUSR1),
    ("USR2", signal_hook::consts::SIGUSR2),
];

/// The number of a signal by its name or number.
fn signal(word: &str) -> Option<i32> {
    let named = SIGNALS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    named.or_else(|| {
        integer(word).and_then(|number| i32::try_from(number).ok()).filter(|number| (0..32).contains(number))
    })
}

/// `Script([TYPE,] INSTRUCTION, ...)`: runs instructions one after the other.
///
/// Instructions are `set`, `print`, `read`, `write`, `wait`, `goto`, `return` and so on, as Click has them. `TYPE` is
/// `ACTIVE`, `PASSIVE`, `PACKET`, `PROXY`, `DRIVER` or `SIGNAL n`.
struct Script {
    kind: Kind,
    signals: Vec<i32>,
    instructions: Vec<Instruction>,
    /// Variables and their values; `_` is what the script returns.
    variables: RefCell<Vec<(String, String)>>,
    /// Bytes that the variables take.
    memory: Cell<usize>,
    position: Cell<usize>,
    steps: Cell<i64>,
    /// Steps that a call inside of this script's run adds to it.
    added_steps: Cell<Option<i64>>,
    write_status: Cell<i32>,
    run_handler: RefCell<String>,
    run_arguments: RefCell<String>,
    run_writes: Cell<bool>,
}

fn script(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let given: Option<Raw> = arguments.keyword("TYPE");
    let (word, mut rest) = match &given {
        Some(Raw(text)) => text::next_word(text),
        None => (String::new(), ""),
    };
    let has_ports = setup.inputs() > 0 || setup.outputs() > 0;
    let mut signals = Vec::new();
    let kind = match (word.as_str(), rest.is_empty()) {
        ("ACTIVE", true) => Kind::Active,
        ("PASSIVE", true) => Kind::Passive,
        ("PACKET" | "PUSH", true) => Kind::Packet,
        ("PROXY", true) => Kind::Proxy,
        ("DRIVER", true) => Kind::Driver,
        ("SIGNAL", _) => {
            while !rest.is_empty() {
                let (word, more) = text::next_word(rest);
                rest = more;
                match signal(&word) {
                    Some(number) => signals.push(number),
                    None => signals.clear(),
                }
            }
            if signals.is_empty() {
                arguments.error("bad signal number");
                return None;
            }
            if !setup.at.capabilities().process {
                arguments.error("Script: this instance may not wait for signals (capability process)");
                return None;
            }
            Kind::Signal
        }
        ("", true) if has_ports => Kind::Packet,
        ("", true) => Kind::Active,
        _ => {
            arguments.error("bad TYPE");
            return None;
        }
    };
    make(arguments, setup, kind, signals)
}

fn driver_manager(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(arguments, setup, Kind::Driver, Vec::new())
}

fn make(
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
    kind: Kind,
    signals: Vec<i32>,
) -> Option<Rc<dyn Element>> {
    if kind == Kind::Driver {
        if setup.at.router.driver_manager().is_some() {
            arguments.error("router has more than one driver script");
            return None;
        }
        setup.at.router.set_driver_manager(setup.at.id);
    }
    if kind == Kind::Packet && setup.inputs() == 0 {
        arguments.error("PACKET script must have inputs");
        return None;
    }
    if kind != Kind::Packet && (setup.inputs() > 0 || setup.outputs() > 0) {
        arguments.error("ports allowed only on PACKET scripts");
        return None;
    }
    let (instructions, variables) = program::read(&arguments.rest(), kind == Kind::Driver, setup.errors);
    arguments.complete()?;
    Some(Rc::new(Script {
        kind,
        signals,
        instructions,
        variables: RefCell::new(variables.into_iter().map(|name| (name, String::new())).collect()),
        memory: Cell::default(),
        position: Cell::new(0),
        steps: Cell::new(0),
        added_steps: Cell::new(None),
        write_status: Cell::new(0),
        run_handler: RefCell::default(),
        run_arguments: RefCell::default(),
        run_writes: Cell::new(false),
    }))
}

impl Script {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.borrow().iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
    fn set_variable(&self, name: &str, value: String) {
        let mut variables = self.variables.borrow_mut();
        let has_room = variables.len() < 4_096;
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => {
                self.memory.set((self.memory.get() + value.capacity()).saturating_sub(old.capacity()));
                *old = value;
            }
            // More variables than any script has use for are not made.
            None if has_room => {
                self.memory.set(self.memory.get() + name.len() + value.capacity());
                variables.push((name.to_owned(), value));
            }
            None => (),
        }
    }

    /// Runs the script from its start for a packet, and yields the output that it returns.
    fn run_for_packet(&self, at: At<'_>, input: usize) -> Option<usize> {
        self.set_variable("input", input.to_string());
        self.position.set(0);
        at.router.told(at, |errors| self.step(at, 0, Step::Jump, 0, errors));
        let answer = self.completed(at).unwrap_or_default();
        integer(answer.trim()).and_then(|output| usize::try_from(output).ok())
    }
}

impl Element for Script {
    fn memory(&self) -> usize {
        self.memory.get()
    }
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let before = errors.count();
        self.initialize_variables(at, errors);
        let first = &self.instructions[0];
        match (self.kind, first.op) {
            (Kind::Signal, _) => self.signals.iter().for_each(|number| at.await_signal(*number)),
            (Kind::Passive | Kind::Packet | Kind::Proxy, _) => (),
            (_, Op::WaitTime) => {
                match signed_seconds(&self.expand(at, &first.text.borrow(), false, errors)) {
                    Some(span) => at.timer_after(0, u64::try_from(span).unwrap_or(0)),
                    None => errors.error("syntax error at 'wait'"),
                }
            }
            (Kind::Driver, Op::Initial) => {
                // The driver comes here at once.
                at.router.adjust_run_count(-1);
                first.count.set(1);
            }
            (_, Op::Initial) => {
                at.timer_after(0, 0);
                first.count.set(1);
            }
            _ => (),
        }
        errors.count() == before
    }

    fn run_timer(&self, at: At<'_>, _: usize) {
        at.router.told(at, |errors| self.step(at, 1, Step::Timer, 0, errors));
        let _ = self.completed(at);
    }

    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        match self.run_for_packet(at, input) {
            Some(output) => at.push_or_drop(output, packet, DropReason::Discarded),
            None => at.discard(packet),
        }
    }

    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let packet = at.pull(0)?;
        match self.run_for_packet(at, 0) {
            Some(0) => Some(packet),
            Some(output) if at.output_is_push(output) => {
                at.push(output, packet);
                None
            }
            _ => {
                at.discard(packet);
                None
            }
        }
    }

    fn signalled(&self, at: At<'_>, _: i32) {
        if let Err(message) = self.run_handler_step(at, "run", "", true) {
            at.chatter(&message);
        }
    }

    fn driver_stopped(&self, at: At<'_>) -> bool {
        // A script whose steps never wait for long cannot keep the driver here.
        for _ in 0..1000 {
            self.step(at, 1, Step::Router, 0, &at.router.said_errors());
            if self.completed(at).is_err() || at.router.run_count() > 0 || self.stopped() {
                break;
            }
        }
        at.router.run_count() > 0
    }

    fn handlers(&self, handlers: &mut Handlers) {
        for name in ["step", "goto"] {
            handlers.write(name, move |this: &Self, at, value| this.run_handler_step(at, name, value, true));
        }
        handlers.ask("run", |this: &Self, at, value| this.run_handler_step(at, "run", value, false));
        handlers.write("run", |this: &Self, at, value| this.run_handler_step(at, "run", value, true));
        arithmetic::declare(handlers);
        if self.kind == Kind::Proxy {
            handlers
                .star(|this: &Self, at, name, value, writes| this.run_handler_step(at, name, value, writes));
        }
        for instruction in &self.instructions {
            if matches!(instruction.op, Op::Export { .. }) {
                let name = instruction.name.clone();
                handlers
                    .read(&instruction.name, move |this: &Self, _| this.variable(&name).unwrap_or_default());
            }
        }
    }
}
