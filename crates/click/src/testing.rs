//! Runs small configurations for the tests of elements.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::Random;
use netbricks_core::buffer::Pool;

use crate::clock::{Clock, SIMULATION_BEGINS};
use crate::drive::{self, Round};
use crate::language::config::Source;
use crate::language::errors::Errors;
use crate::router::{Capabilities, Router, Surroundings};
use crate::{build, handler_call};

/// A configuration that was built and run.
pub(crate) struct Run {
    /// The configuration, if it could be built.
    pub(crate) router: Option<Rc<Router>>,
    /// Errors of building it.
    pub(crate) errors: Vec<String>,
    chatter: Rc<RefCell<Vec<String>>>,
}

/// Rounds of the driver that a test gets.
const ROUNDS: usize = 20_000;

/// Builds a configuration, with simulated time and without files, sockets and devices.
pub(crate) fn build(text: &str) -> Run {
    build_with(text, Capabilities::default())
}

/// Builds a configuration that runs in real time and may open files and sockets, and be replaced.
pub(crate) fn build_outside(text: &str) -> Run {
    build_in(text, Clock::machine(), Capabilities::ALL)
}

/// Builds a configuration, with simulated time, that may reach what is said.
pub(crate) fn build_with(text: &str, capabilities: Capabilities) -> Run {
    build_in(text, Clock::simulated(SIMULATION_BEGINS), capabilities)
}

fn build_in(text: &str, clock: Clock, capabilities: Capabilities) -> Run {
    let chatter: Rc<RefCell<Vec<String>>> = Rc::default();
    let lines = Rc::clone(&chatter);
    let pool = Pool::builder().frames(512).frame_size(2048).large(8, 66 * 1024).build();
    let surroundings = Surroundings {
        pool: pool.expect("memory for packets"),
        clock: Rc::new(clock),
        capabilities,
        chatter: Rc::new(move |line| lines.borrow_mut().extend(line.lines().map(str::to_owned))),
        seed: 1,
        secrets: Rc::new(RefCell::new(Random::of(&[b"click secrets"]))),
        reconfigures: capabilities.process,
        exact: None,
        most_elements: usize::MAX,
        most_memory: usize::MAX,
        most_text: 1 << 26,
        most_automata: usize::MAX,
        most_work: u64::MAX,
        keeps_dropped: false,
    };
    let errors = Errors::collected();
    let source = Source { text, file: "config", is_expression: true };
    let router = build::build(&source, &[], surroundings, &errors);
    Run { router, errors: errors.lines(), chatter }
}

/// Builds a configuration and runs it until it stops, or has nothing to do.
pub(crate) fn run(text: &str) -> Run {
    let run = build(text);
    run.go();
    run
}

impl Run {
    /// Runs on until the configuration stops, or has nothing to do.
    pub(crate) fn go(&self) {
        let Some(router) = &self.router else { return };
        for _ in 0..ROUNDS {
            match drive::round(router, 16) {
                Round::Busy => (),
                Round::Until(time) => router.surroundings().clock.jump(time),
                Round::Idle | Round::Stopped => return,
            }
        }
    }
    /// The lines that elements said.
    pub(crate) fn said(&self) -> Vec<String> {
        self.chatter.borrow().clone()
    }
    fn call(&self, text: &str, write: bool) -> String {
        let Some(router) = &self.router else { return format!("not built: {:?}", self.errors) };
        let call = match handler_call::HandlerCall::parse(text, router.at(handler_call::ROOT)) {
            Ok(call) => call,
            Err(error) => return error,
        };
        if write { call.write(router) } else { call.read(router) }.unwrap_or_else(|error| error)
    }
    /// Reads a handler; its error where it has one.
    pub(crate) fn read(&self, text: &str) -> String {
        self.call(text, false)
    }
    /// Writes a handler; the answer is its error where it has one.
    pub(crate) fn write(&self, text: &str) -> String {
        self.call(text, true)
    }
}
