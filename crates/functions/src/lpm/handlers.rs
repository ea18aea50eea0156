//! Handlers that change the routes while packets flow, and that show them.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::{Handler, Worker};

use super::config::listed;
use super::route::{self, Lines, RouteError};
use super::table::{Done, Edit, Edits, NextHop, Refusal, RouteTable};

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;
/// The most routes that one call lists.
const MOST_LISTED: usize = 10_000;

/// Declares the handlers of a table of routes.
pub(super) fn declare<V: NextHop>(table: &Bounded<RouteTable<V>>, worker: &Worker) {
    let add = "Adds routes, or gives them another next hop: one a line, all at once or none.";
    let add = Handler::write("add", add).argument("PREFIX NEXT-HOP").about("route", true).by_lines();
    worker.handler_of(table, add, |table, argument| {
        let routes = route::routes(argument).map_err(|wrong| wrong_lines(argument, &wrong))?;
        let edits = routes.into_iter().map(|(line, route)| (line, Edit::Add(route)));
        let Done { added, replaced, .. } = change(table, argument, edits.collect())?;
        Ok(format!("{added} added, {replaced} replaced"))
    });
    let withdraw = "Withdraws routes: one prefix a line, all at once or none.";
    let withdraw = Handler::write("withdraw", withdraw).argument("PREFIX").about("route", false).by_lines();
    worker.handler_of(table, withdraw, |table, argument| {
        let prefixes = route::prefixes(argument).map_err(|wrong| wrong_lines(argument, &wrong))?;
        let edits = prefixes.into_iter().map(|(line, (prefix, len))| (line, Edit::Withdraw { prefix, len }));
        let Done { withdrawn, .. } = change(table, argument, edits.collect())?;
        Ok(format!("{withdrawn} withdrawn"))
    });
    let lookup = Handler::read("lookup", "The next hop for an address.").argument("ADDRESS");
    worker.handler_of(table, lookup, |table, argument| {
        let address = argument.trim();
        let address: IpAddr =
            address.parse().map_err(|_| format!("expected an IP address, found `{address}`"))?;
        let next_hop = table.read(|table| table.longest(address));
        Ok(next_hop.map_or_else(|| "no route".into(), |next_hop| next_hop.to_string()))
    });
    let routes = "How many routes there are by IP version, and so many of them, one a line.";
    let routes = Handler::read("routes", routes).argument("[ROUTES]");
    worker.handler_of(table, routes, |table, argument| {
        let most = match argument.trim() {
            "" => 0,
            text => text.parse().ok().filter(|most| *most <= MOST_LISTED).ok_or_else(|| {
                format!("expected a number of routes to list, 0 to {MOST_LISTED}, found `{text}`")
            })?,
        };
        Ok(table.read(|table| shown(table, most)))
    });
}

/// The numbers of routes, and the first routes.
fn shown<V: NextHop>(table: &RouteTable<V>, most: usize) -> String {
    let (mut text, mut v4, mut v6) = (String::new(), 0u64, 0u64);
    for (at, route) in table.all().enumerate() {
        *(if route.prefix.is_ipv4() { &mut v4 } else { &mut v6 }) += 1;
        if at < most {
            // Text takes any text.
            let _ = writeln!(text, "{route}");
        }
    }
    format!("ipv4 {v4}\nipv6 {v6}\n{text}")
}

/// Makes all these edits, which are readers' next table together, or none.
fn change<V: NextHop>(
    table: &Bounded<RouteTable<V>>,
    argument: &str,
    edits: Lines<Edit>,
) -> Result<Done, String> {
    let lines: Vec<usize> = edits.iter().map(|(line, _)| *line).collect();
    let edits: Arc<[Edit]> = edits.into_iter().map(|(_, edit)| edit).collect();
    if edits.is_empty() {
        return Err("expected at least one route as `192.0.2.0/24 7`, found none".into());
    }
    let at_line = |at: usize| place(argument, lines.get(at).copied().unwrap_or_default());
    for _ in 0..TRIES {
        let outcome = table.update(Edits::All(edits.clone())).map_err(|cannot| cannot.to_string())?;
        match outcome {
            Ok(done) => return Ok(done),
            Err(Refusal::Absent { at }) => return Err(at_line(at) + &absent(table, &edits[at])),
            Err(Refusal::Full { at, .. }) => {
                let copied = table.read(RouteTable::copied);
                let larger = RouteTable::larger(copied, &edits).map_err(|error| at_line(at) + &error)?;
                // Where others came first, the edits are tried again.
                let _changed = table.update(larger).map_err(|cannot| cannot.to_string())?;
            }
            Err(Refusal::Changed) => {}
        }
    }
    Err("others change the routes all the time: try again".into())
}

/// The error about a route that is not there.
fn absent<V: NextHop>(table: &Bounded<RouteTable<V>>, edit: &Edit) -> String {
    let (Edit::Withdraw { prefix, len } | Edit::Add(route::Route { prefix, len, .. })) = *edit;
    match table.read(|table| table.around(prefix, len)) {
        Some((around, shorter)) => {
            format!("there is no route for {prefix}/{len}; the one around it is for {around}/{shorter}")
        }
        None => format!("there is no route for {prefix}/{len}"),
    }
}

/// The number of a line, where the argument has several.
fn place(argument: &str, line: usize) -> String {
    if argument.trim_end().contains('\n') { format!("line {line}: ") } else { String::new() }
}

fn wrong_lines(argument: &str, wrong: &Lines<RouteError>) -> String {
    let lines = wrong.iter().map(|(line, error)| format!("{}{error}", place(argument, *line)));
    let lines: Vec<String> = lines.collect();
    match &lines[..] {
        [line] => line.clone(),
        lines => listed(lines),
    }
}
