//! Handlers: the list and its sets, connections, counters and the log.

use std::net::IpAddr;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::packet::FlowKey;
use netbricks_core::{EventLog, Flows, Handler, Steps, StoredFlow, TableKey, Worker, at_once};

use super::connection::Connection;
use super::log::{self, Logged, in_json};
use super::rules::{self, Rules};
use super::state;

/// The state that handlers are about.
pub(super) struct Subject {
    pub(super) rules: Bounded<Rules>,
    pub(super) open: Flows<FlowKey, Connection>,
    pub(super) opening: Flows<FlowKey, Connection>,
    pub(super) log: EventLog<Logged>,
}

/// The most connections in one answer.
const MOST: usize = 100_000;

pub(super) fn declare(subject: Subject, worker: &Worker) {
    let Subject { rules, open, opening, log } = subject;
    let read = Handler::read("rules", "The lines that make the present list.");
    worker.handler_of(&rules, read, |rules, _| Ok(rules.read(|rules| rules.list.to_string())));
    let load =
        Handler::write("load", "Puts another list in the place of the present one: all of it or nothing.");
    worker.handler_of(&rules, load.argument("RULES"), state::replace);
    let sets = Handler::read("sets", "The sets with their sizes, or the values of one.").argument("[SET]");
    worker.handler_of(&rules, sets, |rules, name| rules.read(|rules| show_sets(rules, name.trim())));
    let set = Handler::write("set", "Changes sets by lines as `add @web 192.0.2.1`: all of them or none.");
    let set = set.argument("(add | remove | set) @SET VALUES");
    worker.handler_of(&rules, set, state::change_sets);
    let counters = Handler::read("counters", "The counts of each rule over all workers, as JSON.");
    worker.handler_of(&rules, counters, |rules, _| Ok(rules.read(counters_json)));
    let list = Handler::read("list", "The rules with their counts, one a line.");
    worker.handler_of(&rules, list, |rules, _| Ok(rules.read(rules::listing)));

    let (known, from) = (rules.clone(), [open.clone(), opening.clone()]);
    let show = Handler::read("connections", "How many connections this worker has, and so many of them.");
    worker.handler_in_steps(show.argument("[CONNECTIONS]"), move |argument| {
        Ok(show_connections(&known, &from, number(argument, MOST)?))
    });
    let tables = [open, opening];
    let flush = Handler::write("flush", "Forgets all connections of this worker, or those with an address.");
    worker.handler(flush.argument("[ADDRESS]"), move |argument| forget(&tables, argument.trim()));
    let show =
        Handler::read("log", "The logged packets of this worker from a number on, as JSON, one a line.");
    worker.handler(show.argument("[FROM]"), move |argument| {
        let from = number(argument, usize::MAX)? as u64;
        Ok(rules.read(|rules| log::lines(&log, rules, from)))
    });
}

fn number(argument: &str, most: usize) -> Result<usize, String> {
    match argument.trim() {
        "" => Ok(0),
        text => match text.parse::<usize>() {
            Ok(number) if number <= most => Ok(number),
            _ => Err(format!("expected a number from 0 to {most}, found `{text}`")),
        },
    }
}

fn show_sets(rules: &Rules, name: &str) -> Result<String, String> {
    if name.is_empty() {
        let lines = rules.list.sets.iter().map(|(name, values)| format!("@{name} {}\n", values.len()));
        return Ok(lines.collect());
    }
    let plain = name.strip_prefix('@').unwrap_or(name);
    rules::set_listing(rules, plain).ok_or_else(|| format!("there is no set `@{plain}`"))
}

fn counters_json(rules: &Rules) -> String {
    let rows = rules.built.data.iter().enumerate().map(|(index, data)| {
        let [packets, bytes, connections, later, later_bytes] = data.totals(None);
        let name = data.name.as_deref().map_or_else(|| "null".to_owned(), in_json);
        format!(
            "{{\"place\":{},\"name\":{name},\"packets\":{packets},\"bytes\":{bytes},\"connections\":{connections},\
             \"later_packets\":{later},\"later_bytes\":{later_bytes},\"rule\":{}}}",
            index + 1,
            in_json(&data.text)
        )
    });
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

/// The numbers of connections, and so many of them, in steps.
fn show_connections(
    rules: &Bounded<Rules>,
    tables: &[Flows<FlowKey, Connection>; 2],
    most: usize,
) -> Steps<String> {
    let [open, opening] = tables.each_ref().map(|table| table.borrow().len());
    let mut text = format!("{open} open\n{opening} opening\n");
    if most == 0 {
        return at_once(text);
    }
    let list = |table: &Flows<FlowKey, Connection>| {
        let rules = rules.clone();
        let add = move |(text, left): &mut (String, usize), key: &StoredFlow, connection: &Connection| {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let key = FlowKey::restore(*key);
            let flow = if connection.is_canonical { key } else { key.reversed() };
            let rule = rules.read(|rules| {
                let rule = rules.built.by_id(connection.rule);
                rule.map_or_else(|| "-".to_owned(), |(index, data)| data.label(index))
            });
            *text += &format!("{flow} {} {rule}\n", connection.state_name());
        };
        table.in_steps((String::new(), most), add, |listed, _| listed)
    };
    let mut steps = tables.each_ref().map(list).into_iter();
    let (mut current, mut left) = (steps.next(), most);
    Box::new(move || {
        let table = current.as_mut()?;
        let (listed, rest) = table()?;
        // The second table's lines fill what the first one's leave.
        text.extend(listed.split_inclusive('\n').take(left));
        left = left.saturating_sub(most - rest);
        current = steps.next();
        (current.is_none() || left == 0).then(|| std::mem::take(&mut text))
    })
}

fn forget(tables: &[Flows<FlowKey, Connection>; 2], argument: &str) -> Result<String, String> {
    let wanted: Option<IpAddr> = match argument {
        "" => None,
        text => Some(text.parse().map_err(|_| format!("expected an IP address, found `{text}`"))?),
    };
    let mut gone = 0;
    for table in tables {
        let mut table = table.borrow_mut();
        let before = table.len();
        match wanted {
            None => table.clear(),
            Some(address) => table.retain(|key, _| {
                let flow = FlowKey::restore(*key);
                flow.source() != address && flow.destination() != address
            }),
        }
        gone += before - table.len();
    }
    Ok(format!("{gone} forgotten"))
}
