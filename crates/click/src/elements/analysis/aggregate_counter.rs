//! `AggregateCounter`: packets or bytes by aggregate.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::general;
use super::output::Output;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::handler_call::HandlerCall;
use crate::language::errors::Errors;
use crate::language::text;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Raw, boolean, integer};

pub(super) const CLASSES: &[Class] = &[Class::new("AggregateCounter", configure).ports("1-2/1-2")];

/// The most aggregates that are counted.
const MOST: usize = 1 << 22;

/// `AggregateCounter([BYTES, IP_BYTES, MULTIPACKET, EXTRA_LENGTH, AGGREGATE_FREEZE, AGGREGATE_STOP, AGGREGATE_CALL,
/// COUNT_FREEZE, COUNT_STOP, COUNT_CALL, BANNER])`: counts packets or bytes of each aggregate.
///
/// While it is frozen, and for packets of input 1, only aggregates that have a count go on counting. With two push
/// outputs, packets that were not counted leave by the second.
struct AggregateCounter {
    bytes: bool,
    ip_bytes: bool,
    counts_extra: bool,
    counts_missing: bool,
    frozen: Cell<bool>,
    active: Cell<bool>,
    counts: RefCell<HashMap<u32, u32>>,
    total: Cell<u64>,
    aggregate_call: Call,
    count_call: Call,
    banner: RefCell<String>,
    is_full: Cell<bool>,
}

/// A handler that is called once at a number.
#[derive(Default)]
struct Call {
    at: Cell<Option<u64>>,
    handler: RefCell<HandlerCall>,
}

/// Which of the three ways to act at a number was chosen: by keyword `..._FREEZE`, `..._STOP` or `..._CALL`.
fn read_call(
    arguments: &mut Arguments<'_>,
    setup: &Setup<'_>,
    kind: &str,
    number: &str,
    most: u64,
) -> Option<Call> {
    let bounded = |text: &str, _: At<'_>| {
        integer(text)
            .and_then(|value| u64::try_from(value).ok())
            .filter(|value| *value <= most)
            .ok_or(crate::arguments::Problem::Syntax)
    };
    let freeze = arguments.keyword_with(&format!("{kind}_FREEZE"), bounded).filter(|at| *at < most);
    let stop = arguments.keyword_with(&format!("{kind}_STOP"), bounded).filter(|at| *at < most);
    let call: Option<Raw> = arguments.keyword(&format!("{kind}_CALL"));
    let given = usize::from(freeze.is_some()) + usize::from(stop.is_some()) + usize::from(call.is_some());
    if given > 1 {
        arguments.error(&format!("'{kind}_FREEZE', '{kind}_STOP', and '{kind}_CALL' are mutually exclusive"));
        return None;
    }
    let own = |name: &str, value: &str| HandlerCall {
        element: setup.at.id,
        name: format!("{}.{name}", setup.at.name()),
        value: value.into(),
    };
    let (at, handler) = match (freeze, stop, call) {
        (Some(at), _, _) => (at, own("freeze", "true")),
        (_, Some(at), _) => (at, own("stop", "")),
        (_, _, Some(Raw(text))) => {
            let (first, rest) = text::next_word(&text);
            let Ok(at) = bounded(&first, setup.at) else {
                arguments.error(&format!("{kind}_CALL first word should be unsigned ({number})"));
                return None;
            };
            match <HandlerCall as Argument>::parse(rest, setup.at) {
                Ok(handler) => (at, handler),
                Err(_) => {
                    arguments.error_of(&format!("{kind}_CALL"), "parse error");
                    return None;
                }
            }
        }
        _ => return Some(Call::default()),
    };
    Some(Call { at: Cell::new(Some(at)), handler: RefCell::new(handler) })
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let bytes = arguments.keyword("BYTES").unwrap_or(false);
    let ip_bytes = arguments.keyword("IP_BYTES").unwrap_or(false);
    let counts_extra = arguments.keyword("MULTIPACKET").unwrap_or(true);
    let counts_missing = arguments.keyword("EXTRA_LENGTH").unwrap_or(true);
    let aggregate_call =
        read_call(arguments, setup, "AGGREGATE", "number of aggregates", u64::from(u32::MAX));
    let count_call = read_call(arguments, setup, "COUNT", "count", u64::MAX);
    let banner: String = arguments.keyword("BANNER").unwrap_or_default();
    arguments.complete()?;
    Some(Rc::new(AggregateCounter {
        bytes,
        ip_bytes,
        counts_extra,
        counts_missing,
        frozen: Cell::new(false),
        active: Cell::new(true),
        counts: RefCell::default(),
        total: Cell::default(),
        aggregate_call: aggregate_call?,
        count_call: count_call?,
        banner: RefCell::new(banner),
        is_full: Cell::default(),
    }))
}

impl Call {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.at.get().is_none() {
            return true;
        }
        let ready = self.handler.borrow().ready(at, true);
        match ready {
            Ok(handler) => {
                self.handler.replace(handler);
                true
            }
            Err(message) => {
                errors.error(&message);
                false
            }
        }
    }
    /// Calls the handler if its number is reached. Whether it did.
    fn reached(&self, at: At<'_>, number: u64) -> bool {
        if self.at.get().is_none_or(|wanted| number < wanted) {
            return false;
        }
        self.at.set(None);
        let handler = self.handler.borrow().clone();
        if let Err(message) = handler.write(at.router) {
            at.chatter(&message);
        }
        true
    }
    fn describe(&self, at: At<'_>) -> String {
        let handler = self.handler.borrow();
        self.at.get().map_or_else(String::new, |number| {
            format!("{number} {} {}", handler.full_name(at.router), handler.value).trim_end().to_owned()
        })
    }
    fn set(&self, at: At<'_>, value: &str, name: &str) -> Answer {
        let value = text::uncomment(value);
        if value.is_empty() {
            self.at.set(None);
            return Ok(String::new());
        }
        let (first, rest) = text::next_word(&value);
        let number = integer(&first)
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| format!("argument to '{name}' should be 'N HANDLER [VALUE]'"))?;
        let handler = HandlerCall::parse(rest, at)?;
        handler.check(at.router, true)?;
        self.handler.replace(handler);
        self.at.set(Some(number));
        Ok(String::new())
    }
}

/// Forms of a file of counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Binary,
    Addresses,
    Shares,
}

impl AggregateCounter {
    /// Counts a packet. Whether it did.
    fn update(&self, at: At<'_>, packet: &Packet, frozen: bool) -> bool {
        if !self.active.get() {
            return false;
        }
        let aggregate = packet.anno_u32(place::AGGREGATE);
        let frozen = frozen || self.frozen.get();
        let amount = if self.bytes {
            let missing = if self.counts_missing { packet.anno_u32(place::EXTRA_LENGTH) } else { 0 };
            let before = packet.network_place().filter(|_| self.ip_bytes).unwrap_or(0);
            ((packet.len() as isize - before) as u32).wrapping_add(missing)
        } else if self.counts_extra {
            packet.anno_u32(place::EXTRA_PACKETS).wrapping_add(1)
        } else {
            1
        };
        let known = self.counts.borrow().len();
        let is_new = !self.counts.borrow().contains_key(&aggregate);
        if is_new {
            if frozen {
                return false;
            }
            if amount == 0 {
                return true;
            }
            if self.aggregate_call.reached(at, known as u64) {
                // The handler may have changed the element's state.
                return self.update(at, packet, frozen);
            }
            if known >= MOST {
                if !self.is_full.replace(true) {
                    at.chatter("AggregateCounter: out of memory!");
                }
                return false;
            }
        }
        {
            let mut counts = self.counts.borrow_mut();
            let count = counts.entry(aggregate).or_default();
            *count = count.wrapping_add(amount);
        }
        let total = self.total.get().wrapping_add(u64::from(amount));
        self.total.set(total);
        self.count_call.reached(at, total);
        true
    }

    fn clear(&self) {
        self.counts.borrow_mut().clear();
        self.total.set(0);
        self.is_full.set(false);
    }

    /// Makes counts the aggregates, and counts how often each occurred.
    fn reaggregate(&self) {
        let before = std::mem::take(&mut *self.counts.borrow_mut());
        self.clear();
        let mut counts = self.counts.borrow_mut();
        for count in before.into_values() {
            *counts.entry(count).or_default() += 1;
            self.total.set(self.total.get() + 1);
        }
    }

    fn contents(&self, form: Form) -> Vec<u8> {
        let mut counts: Vec<(u32, u32)> =
            self.counts.borrow().iter().map(|(aggregate, count)| (*aggregate, *count)).collect();
        counts.sort_unstable();
        let banner = self.banner.borrow();
        let mut head = format!("!IPAggregate 1.0\n{banner}");
        if !banner.is_empty() && !banner.ends_with('\n') {
            head.push('\n');
        }
        head.push_str(&format!("!num_nonzero {}\n", counts.len()));
        match form {
            Form::Binary if cfg!(target_endian = "little") => head.push_str("!packed_le\n"),
            Form::Binary => head.push_str("!packed_be\n"),
            Form::Addresses => head.push_str("!ip\n"),
            _ => (),
        }
        let mut out = head.into_bytes();
        let total = self.total.get() as f64;
        for (aggregate, count) in counts {
            match form {
                Form::Binary => {
                    out.extend_from_slice(&aggregate.to_ne_bytes());
                    out.extend_from_slice(&count.to_ne_bytes());
                }
                Form::Text => out.extend_from_slice(format!("{aggregate} {count}\n").as_bytes()),
                Form::Addresses => {
                    let address = std::net::Ipv4Addr::from(aggregate);
                    out.extend_from_slice(format!("{address} {count}\n").as_bytes());
                }
                Form::Shares => {
                    let share = general(f64::from(count) / total);
                    out.extend_from_slice(format!("{aggregate} {share}\n").as_bytes());
                }
            }
        }
        out
    }

    fn write_file(&self, at: At<'_>, value: &str, form: Form) -> Answer {
        let name = String::parse(value, at).unwrap_or_default();
        let errors = Errors::collected();
        let Some(mut output) = Output::open(&name, at, &errors) else {
            return Err(errors.lines().join("\n"));
        };
        let written = output.write(&self.contents(form)).and_then(|()| output.close());
        written.map(|()| String::new()).map_err(|_| format!("{name}: file error"))
    }
}

impl Element for AggregateCounter {
    fn memory(&self) -> usize {
        self.counts.borrow().capacity() * size_of::<(u32, u32)>()
    }
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        self.aggregate_call.initialize(at, errors) && self.count_call.initialize(at, errors)
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        let counted = self.update(at, &packet, input == 1);
        at.push(if at.outputs() == 1 { 0 } else { usize::from(!counted) }, packet);
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        let packet = at.pull(if at.inputs() == 1 { 0 } else { output })?;
        self.update(at, &packet, output == 1);
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        for (name, form) in [
            ("write_text_file", Form::Text),
            ("write_ascii_file", Form::Text),
            ("write_file", Form::Binary),
            ("write_ip_file", Form::Addresses),
            ("write_pdf_file", Form::Shares),
        ] {
            handlers.write(name, move |this: &Self, at, value| this.write_file(at, value, form));
        }
        let truth = |value: &str| boolean(value.trim()).ok_or("type mismatch");
        handlers.read("freeze", |this: &Self, _| this.frozen.get()).checkbox = true;
        handlers.write("freeze", move |this: &Self, _, value| {
            this.frozen.set(truth(value)?);
            Ok(String::new())
        });
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", move |this: &Self, _, value| {
            this.active.set(truth(value)?);
            Ok(String::new())
        });
        handlers.button("stop", |this: &Self, at| {
            this.active.set(false);
            at.router.please_stop();
        });
        for name in ["reaggregate_counts", "counts_pdf"] {
            handlers.write(name, |this: &Self, _, _| {
                this.reaggregate();
                Ok(String::new())
            });
        }
        handlers.read("banner", |this: &Self, _| this.banner.borrow().clone());
        let banner = handlers.write("banner", |this: &Self, _, value| {
            let banner = match value {
                "" | "\n" => String::new(),
                _ => format!("{}\n", value.strip_suffix('\n').unwrap_or(value)),
            };
            this.banner.replace(banner);
            Ok(String::new())
        });
        banner.raw = true;
        handlers.write("clear", |this: &Self, _, _| {
            this.clear();
            Ok(String::new())
        });
        handlers.read("aggregate_call", |this: &Self, at| this.aggregate_call.describe(at));
        handlers.write("aggregate_call", |this: &Self, at, value| {
            this.aggregate_call.set(at, value, "aggregate_call")
        });
        handlers.read("count_call", |this: &Self, at| this.count_call.describe(at));
        handlers.write("count_call", |this: &Self, at, value| this.count_call.set(at, value, "count_call"));
        handlers.read("count", |this: &Self, _| this.total.get());
        handlers.read("nagg", |this: &Self, _| this.counts.borrow().len());
    }
}
