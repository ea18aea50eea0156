//! Handlers of rewriters, in Click's formats.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::flow_id::FlowId;
use super::flows::Flows;
use super::rewriter::{Rewriter, Rewrites, now};
use super::spec::Spec;
use crate::arguments::{Arguments, Parsed, Problem};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::At;
use crate::value::integer;

/// Declares the handlers of a rewriter, in the order in which Click lists them.
pub(super) fn declare(rewrites: Rewrites, inputs: usize, handlers: &mut Handlers) {
    for input in (0..inputs).rev() {
        let name = format!("pattern{input}");
        handlers.read(&name, move |this: &Rewriter, _| patterns(this, Some(input)));
        handlers.write(&name, move |this: &Rewriter, at, value| set_pattern(this, at, input, value));
    }
    handlers.write("clear", |this: &Rewriter, at, _| {
        this.flows.borrow_mut().shrink(now(at), true);
        Ok(String::new())
    });
    handlers.read("capacity", |this: &Rewriter, _| this.flows.borrow().capacity());
    handlers.write("capacity", set_capacity);
    handlers.read("size", |this: &Rewriter, _| this.flows.borrow().len());
    handlers.read("patterns", |this: &Rewriter, _| patterns(this, None));
    handlers.read("mapping_failures", |this: &Rewriter, _| total(this, |(_, failures)| failures));
    for name in ["nmappings", "table_size"] {
        handlers.read(name, |this: &Rewriter, _| total(this, |(count, _)| count));
    }
    let first = |this: &Rewriter, at: At<'_>| table(this, at, this.first_map());
    match rewrites {
        Rewrites::IpPorts => {
            handlers.ask("tcp_lookup", lookup);
            let second = |this: &Rewriter, at: At<'_>| table(this, at, this.second_map());
            handlers.read("udp_mappings", second);
            handlers.read("tcp_mappings", first);
            handlers.read("udp_table", second);
            handlers.read("tcp_table", first);
        }
        _ => {
            if rewrites == Rewrites::Tcp {
                handlers.ask("lookup", lookup);
            }
            handlers.read("mappings", first);
            handlers.read("table", first);
        }
    }
}

fn total(this: &Rewriter, which: fn((u32, u32)) -> u32) -> u32 {
    let flows = this.flows.borrow();
    (0..this.specs.borrow().len())
        .map(|input| which(flows.counts(this.owner, input)))
        .fold(0, u32::wrapping_add)
}

/// The specification of an input, or of all, with the number of its flows.
fn patterns(this: &Rewriter, only: Option<usize>) -> String {
    let flows = this.flows.borrow();
    let mut all = String::new();
    for (input, spec) in this.specs.borrow().iter().enumerate() {
        if only.is_some_and(|only| only != input) {
            continue;
        }
        let _ = write!(all, "{spec}");
        match flows.counts(this.owner, input) {
            (0, _) => all.push('\n'),
            (count, _) => {
                let _ = writeln!(all, " [{count}]");
            }
        }
    }
    all
}

/// Another specification for an input: its flows end.
fn set_pattern(this: &Rewriter, at: At<'_>, input: usize, value: &str) -> Answer {
    let spec = Spec::parse(value, input, at)?;
    this.flows.borrow_mut().end_of_input(this.owner, u16::try_from(input).unwrap_or(u16::MAX));
    if let Some(place) = this.specs.borrow_mut().get_mut(input) {
        *place = spec;
    }
    Ok(String::new())
}

fn set_capacity(this: &Rewriter, at: At<'_>, value: &str) -> Answer {
    let capacity = arguments(at, value, |arguments| arguments.required::<i32>("CAPACITY"))?;
    let mut flows = this.flows.borrow_mut();
    flows.set_capacity(capacity);
    flows.shrink(now(at), false);
    Ok(String::new())
}

/// Reads the words of a handler's value as arguments.
fn arguments<T>(
    at: At<'_>,
    value: &str,
    read: impl FnOnce(&mut Arguments<'_>) -> Option<T>,
) -> Result<T, String> {
    let errors = Errors::collected();
    let read = {
        let mut arguments = Arguments::of(text::split_words(value), at, &errors);
        let read = read(&mut arguments);
        arguments.complete().and(read)
    };
    read.ok_or_else(|| errors.lines().join("\n"))
}

/// A TCP port by number or name.
fn tcp_port(text: &str, _: At<'_>) -> Parsed<u16> {
    match integer(text) {
        Some(number) if number < 0 => Err(Problem::Syntax),
        Some(number) => u16::try_from(number).map_err(|_| "overflow, range 0-65535".into()),
        None => crate::names::port(text).ok_or(Problem::Syntax),
    }
}

/// Fields that packets of a flow get: `SADDR SPORT DADDR DPORT`, of a flow in the same form. Nothing where none is known.
fn lookup(this: &Rewriter, at: At<'_>, value: &str) -> Answer {
    let id = arguments(at, value, |arguments| {
        let source: Option<Ipv4Addr> = arguments.required("SADDR");
        let source_port = arguments.required_with("SPORT", tcp_port);
        let destination: Option<Ipv4Addr> = arguments.required("DADDR");
        let destination_port = arguments.required_with("DPORT", tcp_port);
        Some(FlowId {
            source: source?.into(),
            source_port: source_port?,
            destination: destination?.into(),
            destination_port: destination_port?,
        })
    })?;
    let flows = this.flows.borrow();
    let Some(entry) = flows.find(id.key(this.first_map())) else { return Ok(String::new()) };
    let to = flows.flow(entry).rewritten(entry & 1 != 0);
    let (source, destination) = to.addresses();
    Ok(format!("{source} {} {destination} {}", to.source_port, to.destination_port))
}

/// The entries of a map, a line each.
fn table(this: &Rewriter, at: At<'_>, map: u32) -> String {
    let flows = this.flows.borrow();
    let now = now(at);
    let mut lines = String::new();
    for entry in flows.entries(map) {
        write_entry(&mut lines, this.rewrites, &flows, entry, now);
    }
    lines
}

fn write_entry(lines: &mut String, rewrites: Rewrites, flows: &Flows, entry: u32, now: u64) {
    let reply = entry & 1 != 0;
    let flow = flows.flow(entry);
    let (from, to) = (flow.ends[usize::from(reply)], flow.rewritten(reply));
    let ((source, destination), (new_source, new_destination)) = (from.addresses(), to.addresses());
    let _ = match rewrites {
        Rewrites::Source => write!(lines, "{source} => {new_source}"),
        Rewrites::Addresses => {
            write!(lines, "({source}, {destination}) => ({new_source}, {new_destination})")
        }
        Rewrites::Ping => write!(
            lines,
            "({source}, {destination}, {}) => ({new_source}, {new_destination}, {})",
            from.source_port, to.source_port
        ),
        _ => write!(lines, "{from} => {to}"),
    };
    if let Some(shifts) = flows.shifts(entry) {
        match shifts[usize::from(reply)].newest() {
            0 => (),
            shift => {
                let _ = write!(lines, " seq {shift:+}");
            }
        }
    }
    let [forward, back] = flow.outputs;
    let _ = if reply { write!(lines, " [{forward} *{back}]") } else { write!(lines, " [*{forward} {back}]") };
    let _ = writeln!(lines, " i{} exp{}", flow.input, flows.remaining(entry, now) / 1000);
}
