//! Handlers that change the backends while packets flow, and that report them.

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::packet::FlowKey;
use netbricks_core::{Flows, Handler, Worker};

use super::backend::Backend;
use super::backends::{Backends, Snapshot};
use crate::snapshot::{Changes, Holds};

/// Makes a change, and says which backends it leaves without flows.
fn make(
    changes: &Changes<Snapshot>,
    backends: &Bounded<Backends>,
    next: impl Fn(&Snapshot) -> Result<Snapshot, String>,
) -> Result<String, String> {
    let starved = changes.make(backends, "backends", next)?.starved();
    Ok(starved.map_or("done".into(), |starved| format!("done, but {starved}")))
}

/// The lines of an argument; an empty one has one.
fn lines(argument: &str) -> impl Iterator<Item = &str> {
    argument.trim().split('\n')
}

/// The only word of an argument.
fn word<'a>(argument: &'a str, expected: &str) -> Result<&'a str, String> {
    let mut words = argument.split_whitespace();
    match (words.next(), words.next()) {
        (Some(word), None) => Ok(word),
        _ => Err(format!("expected {expected}, found `{}`", argument.trim())),
    }
}

/// A backend's name and its new weight.
fn name_and_weight(argument: &str) -> Result<(&str, u32), String> {
    let most = Backend::MOST_WEIGHT;
    let expected =
        || format!("expected a backend's name and a weight of 0 to {most}, found `{}`", argument.trim());
    let words: Vec<&str> = argument.split_whitespace().collect();
    let [name, weight] = words[..] else { return Err(expected()) };
    let weight = weight.parse().ok().filter(|weight| *weight <= most).ok_or_else(expected)?;
    Ok((name, weight))
}

/// Declares the handlers that need only the backends.
pub(super) fn declare_changes(backends: &Bounded<Backends>, worker: &Worker) {
    let [added, drained, removed, weighted] = {
        let changes = Changes::default();
        std::array::from_fn(|_| changes.clone())
    };
    let add = "Adds backends, takes draining ones back, or gives them another address or weight: one a line, all or none.";
    worker.handler_of(
        backends,
        Handler::write("add", add).argument("NAME MAC [WEIGHT]"),
        move |backends, text| {
            let given: Result<Vec<Backend>, _> = lines(text).map(str::parse).collect();
            let given = given.map_err(|error: super::BackendError| error.problem)?;
            make(&added, backends, |now| now.with(given.iter().cloned()))
        },
    );
    let drain = Handler::write("drain", "Gives a backend no new flows; those it has stay.").argument("NAME");
    worker.handler_of(backends, drain, move |backends, argument| {
        let name = word(argument, "a backend's name")?;
        make(&drained, backends, |now| now.drained(name))
    });
    let remove = "Takes backends out, one a line, all or none; their flows go elsewhere with each worker's next batch.";
    worker.handler_of(
        backends,
        Handler::write("remove", remove).argument("NAME"),
        move |backends, argument| {
            let names: Result<Vec<&str>, _> =
                lines(argument).map(|line| word(line, "a backend's name")).collect();
            let names = names?;
            make(&removed, backends, |now| now.without(&names))
        },
    );
    let weight = "Gives a backend another share of the new flows; with 0 it drains.";
    worker.handler_of(
        backends,
        Handler::write("weight", weight).argument("NAME WEIGHT").about("weight", true),
        move |backends, argument| {
            let (name, weight) = name_and_weight(argument)?;
            make(&weighted, backends, |now| now.weighted(name, weight))
        },
    );
    let listed = Handler::read("backends", "Each backend: name, address, weight, state, slots of the table.");
    worker.handler_of(backends, listed, |backends, _| {
        let now = backends.read(|backends| backends.snapshot().clone());
        let shares = now.shares();
        let lines = now.all().map(|(number, known)| {
            let state = if known.draining { "draining" } else { "takes" };
            format!("{} {state} {} slots\n", known.backend, shares[number])
        });
        Ok(lines.collect())
    });
}

/// Declares all handlers.
pub(super) fn declare(backends: &Bounded<Backends>, connections: &Flows<FlowKey, u64>, worker: &Worker) {
    declare_changes(backends, worker);
    let memory = Handler::read("memory", "Bytes of memory of this worker's connections, and for how many.");
    worker.handler_of(connections, memory, |table, _| {
        Ok(table.with(|table| format!("{} {}", table.bytes(), table.capacity())))
    });
    let forget =
        Handler::write("forget", "Forgets this worker's connections: each goes where a new one would.");
    worker.handler_of(connections, forget, |table, _| {
        table.with(|table| table.clear());
        Ok("done".into())
    });
    let backends = backends.clone();
    let open = Handler::read("connections", "Each backend, and this worker's connections to it.");
    let connections = connections.clone();
    worker.handler_in_steps(open, move |_| {
        let now = backends.read(|backends| backends.snapshot().clone());
        Ok(now.with_connections(&connections, |now, open| {
            now.all().map(|(number, known)| format!("{} {}\n", known.backend.name, open[number])).collect()
        }))
    });
}
