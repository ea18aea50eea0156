//! Arguments of rewriters.

use std::cell::RefCell;
use std::rc::Rc;

use super::flows::{Flows, Lifetimes, SharedFlows};
use super::pattern::seconds;
use super::rewriter::{Annotations, Rewriter, Rewrites, is_rewriter};
use super::spec::Spec;
use crate::arguments::{Arguments, Parsed, Problem};
use crate::element::Element;
use crate::names::Named;
use crate::router::{At, Setup};
use crate::value::{Raw, SECOND, integer};

/// Makes an element from its arguments.
pub(super) type Make = fn(&mut Arguments<'_>, &Setup<'_>) -> Option<Rc<dyn Element>>;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Arguments of a rewriter's class, before those that all have. Times in seconds.
struct Own {
    /// Of TCP flows in the first map, or of all.
    lifetimes: Lifetimes,
    /// Of UDP flows, where they have a map of their own.
    udp: Option<Lifetimes>,
    annotations: Annotations,
}

impl Own {
    fn new(idle: u64) -> Self {
        Self {
            lifetimes: Lifetimes { idle, busy: idle, done: idle, guarantee: 5 },
            udp: None,
            annotations: Annotations { destination: true, reply: None },
        }
    }
}

/// Reads a time (s) into `to`, if it is there. Whether it is.
fn time(arguments: &mut Arguments<'_>, keyword: &str, to: &mut u64) -> bool {
    match arguments.keyword_with(keyword, seconds) {
        Some(read) => {
            *to = read;
            true
        }
        None => false,
    }
}

/// The place of an annotation of one byte.
fn annotation(text: &str, at: At<'_>) -> Parsed<usize> {
    match at.names().find(at, Named::Annotation, text).as_deref() {
        Some(&[place, _]) => Ok(usize::from(place)),
        _ if text == "PAINT" => Ok(crate::packet::place::PAINT),
        _ => Err(Problem::Syntax),
    }
}

/// Reads which annotations packets get.
pub(super) fn annotations(arguments: &mut Arguments<'_>, destination: bool) -> Annotations {
    let destination = if destination { arguments.keyword("DST_ANNO").unwrap_or(true) } else { true };
    let reply = arguments.keyword_with("REPLY_ANNO", annotation);
    Annotations { destination, reply }
}

pub(super) fn ip(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut udp = Lifetimes { idle: 5 * MINUTE, busy: 0, done: 0, guarantee: 5 };
    time(arguments, "UDP_TIMEOUT", &mut udp.idle);
    if !time(arguments, "UDP_STREAMING_TIMEOUT", &mut udp.busy) {
        udp.busy = udp.idle;
    }
    time(arguments, "UDP_GUARANTEE", &mut udp.guarantee);
    if !arguments.is_good() {
        return None;
    }
    let mut own = read_tcp(arguments)?;
    own.udp = Some(udp);
    common(Rewrites::IpPorts, own, arguments, setup)
}

fn read_tcp(arguments: &mut Arguments<'_>) -> Option<Own> {
    let mut own = Own::new(5 * MINUTE);
    let lifetimes = &mut own.lifetimes;
    (lifetimes.busy, lifetimes.done) = (DAY, 4 * MINUTE);
    time(arguments, "TCP_NODATA_TIMEOUT", &mut lifetimes.idle);
    time(arguments, "TCP_GUARANTEE", &mut lifetimes.guarantee);
    time(arguments, "TIMEOUT", &mut lifetimes.busy);
    time(arguments, "TCP_TIMEOUT", &mut lifetimes.busy);
    time(arguments, "TCP_DONE_TIMEOUT", &mut lifetimes.done);
    own.annotations = annotations(arguments, true);
    arguments.is_good().then_some(own)
}

pub(super) fn tcp(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let own = read_tcp(arguments)?;
    common(Rewrites::Tcp, own, arguments, setup)
}

pub(super) fn udp(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut own = Own::new(5 * MINUTE);
    own.annotations = annotations(arguments, true);
    let lifetimes = &mut own.lifetimes;
    time(arguments, "UDP_TIMEOUT", &mut lifetimes.idle);
    time(arguments, "TIMEOUT", &mut lifetimes.idle);
    lifetimes.busy = lifetimes.idle;
    time(arguments, "UDP_STREAMING_TIMEOUT", &mut lifetimes.busy);
    time(arguments, "STREAMING_TIMEOUT", &mut lifetimes.busy);
    time(arguments, "UDP_GUARANTEE", &mut lifetimes.guarantee);
    if !arguments.is_good() {
        return None;
    }
    common(Rewrites::Udp, own, arguments, setup)
}

fn plain(
    rewrites: Rewrites,
    idle: u64,
    destination: bool,
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
) -> Option<Rc<dyn Element>> {
    let mut own = Own::new(idle);
    own.annotations = annotations(arguments, destination);
    if !arguments.is_good() {
        return None;
    }
    common(rewrites, own, arguments, setup)
}

pub(super) fn source(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    plain(Rewrites::Source, 2 * HOUR, false, arguments, setup)
}

pub(super) fn addresses(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    plain(Rewrites::Addresses, 2 * HOUR, false, arguments, setup)
}

pub(super) fn ping(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    plain(Rewrites::Ping, 5 * MINUTE, true, arguments, setup)
}

/// The set of flows that belongs to a rewriter, whether that is made yet or not.
fn flows_of(at: At<'_>, rewriter: usize) -> SharedFlows {
    let seed = at.router.surroundings().seed.rotate_left(32) ^ (rewriter as u64).wrapping_mul(0x9E37_79B9);
    at.router.shared(&format!("rewriter {rewriter}: flows"), || {
        RefCell::new(Flows::new(seed, Rc::clone(at.router.room())))
    })
}

/// The set that `MAPPING_CAPACITY` means: one's own with a capacity, or that of another rewriter.
fn flows(at: At<'_>, capacity: Option<&str>) -> Option<SharedFlows> {
    let own = flows_of(at, at.id);
    let Some(word) = capacity else { return Some(own) };
    if let Some(capacity) = integer(word).and_then(|capacity| i32::try_from(capacity).ok()) {
        own.borrow_mut().set_capacity(capacity);
        return Some(own);
    }
    let other = at.router.find(word, at.id)?;
    is_rewriter(at.router.class(other)).then(|| flows_of(at, other))
}

fn common(
    rewrites: Rewrites,
    mut own: Own,
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
) -> Option<Rc<dyn Element>> {
    let (at, errors) = (setup.at, setup.errors);
    let mut capacity: Option<Raw> = arguments.keyword("CAPACITY");
    if let Some(mapping) = arguments.keyword("MAPPING_CAPACITY") {
        capacity = Some(mapping);
    }
    let mut reap = 15 * MINUTE;
    let plain = rewrites != Rewrites::IpPorts && rewrites != Rewrites::Tcp;
    if time(arguments, "TIMEOUT", &mut own.lifetimes.idle) && plain {
        own.lifetimes.busy = own.lifetimes.idle;
    }
    time(arguments, "GUARANTEE", &mut own.lifetimes.guarantee);
    time(arguments, "REAP_INTERVAL", &mut reap);
    if time(arguments, "REAP_TIME", &mut reap) {
        errors.message("REAP_TIME: warning: argument deprecated");
    }
    if !arguments.is_good() {
        return None;
    }
    let Some(flows) = flows(at, capacity.as_ref().map(|word| word.0.as_str())) else {
        errors.error("bad MAPPING_CAPACITY");
        return None;
    };
    let lines = arguments.rest();
    let inputs = setup.inputs();
    if lines.len() != inputs {
        errors.error(&format!("need {inputs} arguments, one per input port"));
        return None;
    }
    let mut specs = Vec::with_capacity(inputs);
    for (number, line) in lines.iter().enumerate() {
        match Spec::parse(line, number, at) {
            Ok(spec) => specs.push(spec),
            Err(message) => errors.error(&message),
        }
    }
    if specs.len() != inputs {
        return None;
    }
    let in_milliseconds = |times: Lifetimes| Lifetimes {
        idle: times.idle * 1000,
        busy: times.busy * 1000,
        done: times.done * 1000,
        guarantee: times.guarantee * 1000,
    };
    let lifetimes = [own.lifetimes, own.udp.unwrap_or(own.lifetimes)].map(in_milliseconds);
    let owner = flows.borrow_mut().register(lifetimes, inputs);
    Some(Rc::new(Rewriter {
        rewrites,
        flows,
        owner,
        specs: RefCell::new(specs),
        annotations: own.annotations,
        reap: reap.saturating_mul(SECOND),
        spare: RefCell::default(),
        scratch: RefCell::default(),
    }))
}
