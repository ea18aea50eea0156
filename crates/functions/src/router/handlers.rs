//! Handlers that change routes and neighbours while packets flow, and those that show them.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::Ip;
use netbricks_core::{Handler, Section, Worker};

use super::StaticNeighbour;
use super::config::listed;
use super::faces::Faces;
use super::forward::{Counts, Forwarding};
use super::neighbours::{Neighbour, NeighbourKey, Neighbours};
use super::route::{self, Lines, Route};
use super::table::{Done, Edit, Edits, Entry, Origin, Refusal, RouteTable, Shown};
use super::words::{Fault, Words};

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;
/// The most routes that one call lists.
const MOST_LISTED: usize = 10_000;

/// Declares the handlers, the report and the explanation of traced packets.
pub(super) fn declare(forwarding: &Forwarding, worker: &Worker) {
    let Forwarding { faces, routes, neighbours, counts, .. } = forwarding;
    declare_changes(routes, faces, worker);
    declare_reads(routes, faces, worker);
    declare_neighbours(neighbours, faces, worker);
    report(counts, worker);
    let (table, faces) = (routes.clone(), faces.clone());
    worker.explain(move |frame, why| {
        let Some((header, _)) = Ip::in_frame(frame) else { return Ok(()) };
        let address = header.destination();
        match table.read(|table| table.route(address)) {
            Some(entry) => write!(why, "route {}", shown(&entry, &faces)),
            None => write!(why, "no route for {address}"),
        }
    });
}

fn shown<'a>(entry: &'a Entry, faces: &'a Faces) -> Shown<'a> {
    Shown { prefix: entry.prefix, len: entry.len, action: &entry.action, faces }
}

fn declare_changes(routes: &Bounded<RouteTable>, faces: &Rc<Faces>, worker: &Worker) {
    let add = "Adds routes, or gives them other next hops: one a line, all at once or none.";
    let add = Handler::write("add", add).argument("PREFIX via ADDRESS [dev INTERFACE] [via ...]");
    let of = faces.clone();
    worker.handler_of(routes, add, move |table, argument| {
        let routes = route::lines(argument, str::parse::<Route>).map_err(|wrong| faulty(argument, &wrong))?;
        let edits =
            added(routes, Origin::Static, &of).map_err(|(line, problem)| place(argument, line) + &problem)?;
        let Done { added, replaced, .. } = change(table, argument, edits, &of)?;
        Ok(format!("{added} added, {replaced} replaced"))
    });
    let withdraw = "Withdraws routes: one prefix a line, all at once or none.";
    let withdraw = Handler::write("withdraw", withdraw).argument("PREFIX");
    let of = faces.clone();
    worker.handler_of(routes, withdraw, move |table, argument| {
        let prefixes = route::lines(argument, prefix_only).map_err(|wrong| faulty(argument, &wrong))?;
        let withdraw = |(line, (prefix, len))| (line, Edit::Withdraw { prefix, len, origin: Origin::Static });
        let edits = prefixes.into_iter().map(withdraw).collect();
        let Done { withdrawn, .. } = change(table, argument, edits, &of)?;
        Ok(format!("{withdrawn} withdrawn"))
    });
    let kernel = "Takes over the kernel's routes: `+ ROUTE` adds one, `- PREFIX` withdraws one; answers those it cannot use.";
    let kernel = Handler::write("kernel", kernel).argument("+ ROUTE | - PREFIX");
    let of = faces.clone();
    worker.handler_of(routes, kernel, move |table, argument| {
        let (edits, unusable) = of_kernel(argument, &of);
        if !edits.is_empty() {
            change(table, argument, edits, &of)?;
        }
        Ok(unusable.join("\n"))
    });
}

/// The edits that put these routes in.
fn added(routes: Lines<Route>, origin: Origin, faces: &Faces) -> Result<Lines<Edit>, (usize, String)> {
    let edit = |(line, route): (usize, Route)| {
        let action = route.resolved(faces).map_err(|problem| (line, problem))?;
        Ok((line, Edit::Add(Entry { prefix: route.prefix, len: route.len, action, origin })))
    };
    routes.into_iter().map(edit).collect()
}

/// The edits of the kernel follower's lines, and the faults of those that the router cannot use.
///
/// None of those stops the others. A route in the place of which one came that cannot be used goes.
fn of_kernel(argument: &str, faces: &Faces) -> (Lines<Edit>, Vec<String>) {
    let (mut edits, mut unusable) = (Vec::new(), Vec::new());
    let origin = Origin::Kernel;
    for (line, text) in (1..).zip(argument.lines()) {
        let (sign, rest) = text.split_at_checked(1).unwrap_or((text, ""));
        let (prefix, edit) = match sign {
            "+" => {
                let prefix = route::prefix(&mut Words::of(rest));
                let route = rest.parse::<Route>().map_err(|fault| fault.to_string());
                let edit = route.and_then(|route| {
                    let action = route.resolved(faces)?;
                    Ok(Edit::Add(Entry { prefix: route.prefix, len: route.len, action, origin }))
                });
                (prefix.ok(), edit)
            }
            "-" => {
                let prefix = prefix_only(rest).map_err(|fault| fault.to_string());
                (None, prefix.map(|(prefix, len)| Edit::Withdraw { prefix, len, origin }))
            }
            _ => (None, Err("expected `+ ROUTE` or `- PREFIX`".into())),
        };
        match (edit, prefix) {
            (Ok(edit), _) => edits.push((line, edit)),
            (Err(problem), prefix) => {
                unusable.push(match prefix {
                    Some((prefix, len)) => format!("{prefix}/{len}: {problem}"),
                    None => format!("line {line}, `{}`: {problem}", beginning(text)),
                });
                let gone = prefix.map(|(prefix, len)| Edit::Withdraw { prefix, len, origin });
                edits.extend(gone.map(|gone| (line, gone)));
            }
        }
    }
    (edits, unusable)
}

/// The first characters of a line, which may have many next hops.
fn beginning(line: &str) -> &str {
    line.char_indices().nth(60).map_or(line, |(end, _)| &line[..end])
}

fn prefix_only(line: &str) -> Result<(IpAddr, u8), Fault> {
    let mut words = Words::of(line);
    let prefix = route::prefix(&mut words)?;
    match words.more() {
        None => Ok(prefix),
        Some(word) => Err(words.fault(word, format!("expected nothing behind the prefix, found `{word}`"))),
    }
}

fn declare_reads(routes: &Bounded<RouteTable>, faces: &Rc<Faces>, worker: &Worker) {
    let lookup = Handler::read("lookup", "The route for an address.").argument("ADDRESS");
    let of = faces.clone();
    worker.handler_of(routes, lookup, move |table, argument| {
        let address = argument.trim();
        let address: IpAddr =
            address.parse().map_err(|_| format!("expected an IP address, found `{address}`"))?;
        let route = table.read(|table| table.route(address));
        Ok(route.map_or_else(|| "no route".into(), |route| shown(&route, &of).to_string()))
    });
    let list = "How many routes there are by origin, and so many of them, one a line, from one on.";
    let list = Handler::read("routes", list).argument("[ROUTES [FROM [ORIGIN]]]");
    let of = faces.clone();
    worker.handler_of(routes, list, move |table, argument| {
        let mut words = Words::of(argument);
        let number = |word: Option<&str>, most: usize| match word {
            None => Ok(0),
            Some(word) => word
                .parse()
                .ok()
                .filter(|number| *number <= most)
                .ok_or_else(|| format!("expected a number, 0 to {most}, found `{word}`")),
        };
        let most = number(words.more(), MOST_LISTED)?;
        let from = number(words.more(), usize::MAX)?;
        let origin = match words.more() {
            None => None,
            Some("interface") => Some(Origin::Interface),
            Some("static") => Some(Origin::Static),
            Some("kernel") => Some(Origin::Kernel),
            Some(word) => return Err(format!("expected `interface`, `static` or `kernel`, found `{word}`")),
        };
        Ok(table.read(|table| listed_routes(table, &of, (most, from), origin)))
    });
    let of = faces.clone();
    let interfaces = Handler::read("interfaces", "The interfaces: name, MAC address, MTU and addresses.");
    worker.handler_of(routes, interfaces, move |_, _| {
        let mut text = String::new();
        for face in &of.all {
            let host = if face.is_host { " host" } else { "" };
            // Text takes any text.
            let _ = write!(text, "{} mac {} mtu {}{host}", face.name, face.mac, face.mtu);
            for network in &face.networks {
                let _ = write!(text, " {network}");
            }
            text.push('\n');
        }
        Ok(text)
    });
}

/// The numbers of routes, and some of them.
fn listed_routes(
    table: &RouteTable,
    faces: &Faces,
    (most, from): (usize, usize),
    wanted: Option<Origin>,
) -> String {
    let (mut text, mut counts, mut at) = (String::new(), [0u64; 3], 0);
    for (prefix, len, target) in table.all() {
        let (count, name) = match target.origin {
            Origin::Interface => (&mut counts[0], "interface"),
            Origin::Static => (&mut counts[1], "static"),
            Origin::Kernel => (&mut counts[2], "kernel"),
        };
        *count += 1;
        if wanted.is_some_and(|wanted| wanted != target.origin) {
            continue;
        }
        if at >= from && at - from < most {
            let route = Shown { prefix, len, action: &target.action, faces };
            // Text takes any text.
            let _ = writeln!(text, "{route} {name}");
        }
        at += 1;
    }
    format!("interface {}\nstatic {}\nkernel {}\n{text}", counts[0], counts[1], counts[2])
}

fn declare_neighbours(neighbours: &Neighbours, faces: &Rc<Faces>, worker: &Worker) {
    let state = &neighbours.0;
    let of = faces.clone();
    let list = Handler::read(
        "neighbours",
        "The neighbours that were learnt or set: interface, address, MAC address, state.",
    );
    worker.handler_of(state, list, move |state, _| {
        let mut all = Neighbours(state.clone()).all();
        all.sort_by_key(|(key, _)| (key.interface, key.address));
        let mut text = String::new();
        for (
            NeighbourKey { interface, address },
            Neighbour { mac, is_static, is_dead, is_asked, confirmed },
        ) in all
        {
            let name = of.get(interface).map_or("?", |face| face.name.as_str());
            let state = match (is_static, is_dead, confirmed) {
                _ if is_asked => "asked",
                (true, ..) => "static",
                (_, true, _) => "silent",
                (_, _, 0) => "heard",
                _ => "answered",
            };
            // Text takes any text.
            let _ = writeln!(text, "{name} {address} {mac} {state}");
        }
        Ok(text)
    });
    let of = faces.clone();
    let set = "Gives a neighbour a MAC address that is not asked for.";
    let set = Handler::write("set-neighbour", set).argument("INTERFACE ADDRESS MAC");
    worker.handler_of(state, set, move |state, argument| {
        let given: StaticNeighbour = argument.parse().map_err(|fault: Fault| fault.to_string())?;
        let key = key_of(&of, &given.interface, given.address)?;
        let neighbour = Neighbour { mac: given.mac, is_static: true, ..Neighbour::default() };
        let written = Neighbours(state.clone()).put(key, neighbour, 0);
        if written { Ok("set".into()) } else { Err("a worker writes at this moment: try again".into()) }
    });
    let of = faces.clone();
    let forget = Handler::write("forget-neighbour", "Forgets a neighbour.").argument("INTERFACE ADDRESS");
    worker.handler_of(state, forget, move |state, argument| {
        let mut words = Words::of(argument);
        let told = |fault: Fault| fault.to_string();
        let interface = words.next("the name of an interface").map_err(told)?;
        let word = words.next("an IP address").map_err(told)?;
        let address = word.parse().map_err(|_| format!("expected an IP address, found `{word}`"))?;
        let key = key_of(&of, interface, address)?;
        match Neighbours(state.clone()).remove(key, 0) {
            Some(true) => Ok("forgotten".into()),
            Some(false) => Err(format!("`{interface}` has no neighbour {address}")),
            None => Err("a worker writes at this moment: try again".into()),
        }
    });
}

fn key_of(faces: &Faces, interface: &str, address: IpAddr) -> Result<NeighbourKey, String> {
    let number = faces
        .by_name(interface)
        .ok_or_else(|| format!("there is no interface `{interface}`; there are: {}", faces.names()))?;
    match faces.get(number) {
        Some(face) if face.is_host || face.is_on_link(address) => {
            Ok(NeighbourKey { interface: number, address })
        }
        _ => Err(format!("{address} is not on the network of `{interface}`")),
    }
}

/// Makes all these edits, which are readers' next table together, or none.
fn change(
    table: &Bounded<RouteTable>,
    argument: &str,
    edits: Lines<Edit>,
    faces: &Faces,
) -> Result<Done, String> {
    let lines: Vec<usize> = edits.iter().map(|(line, _)| *line).collect();
    let edits: Arc<[Edit]> = edits.into_iter().map(|(_, edit)| edit).collect();
    if edits.is_empty() {
        return Err("expected at least one route as `192.0.2.0/24 via 198.51.100.1`, found none".into());
    }
    let at_line = |at: usize| place(argument, lines.get(at).copied().unwrap_or_default());
    let prefix = |at: usize| match &edits[at] {
        Edit::Add(Entry { prefix, len, .. }) | Edit::Withdraw { prefix, len, .. } => {
            format!("{prefix}/{len}")
        }
    };
    for _ in 0..TRIES {
        let outcome = table.update(Edits::All(edits.clone())).map_err(|cannot| cannot.to_string())?;
        match outcome {
            Ok(done) => return Ok(done),
            Err(Refusal::Absent { at }) => {
                return Err(format!("{}there is no route of the operator for {}", at_line(at), prefix(at)));
            }
            Err(Refusal::OfInterface { at }) => {
                let names = faces.names();
                return Err(format!(
                    "{}{} is of an interface; interfaces are {names}",
                    at_line(at),
                    prefix(at)
                ));
            }
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

/// The number of a line, where the argument has several.
fn place(argument: &str, line: usize) -> String {
    if argument.trim_end().contains('\n') { format!("line {line}: ") } else { String::new() }
}

fn faulty(argument: &str, wrong: &Lines<Fault>) -> String {
    let lines: Vec<String> =
        wrong.iter().map(|(line, fault)| format!("{}{fault}", place(argument, *line))).collect();
    match &lines[..] {
        [line] => line.clone(),
        lines => listed(lines),
    }
}

/// The report's table of what the router did.
fn report(counts: &Counts, worker: &Worker) {
    let rows = [
        ("forwarded", &counts.forwarded),
        ("delivered to the host", &counts.delivered),
        ("sent by the host", &counts.from_host),
        ("ARP and neighbour requests answered", &counts.answered),
        ("cut into fragments", &counts.fragmented),
        ("ICMP errors sent", &counts.errors_sent),
        ("neighbours asked for", &counts.questions),
        ("neighbours resolved", &counts.resolved),
        ("dropped without a neighbour", &counts.unresolved),
        ("sent to another next hop than the first", &counts.moved),
        ("duplicates of own addresses heard", &counts.duplicates),
    ];
    let rows = rows.map(|(name, count)| (name, count.clone()));
    worker.report(move || Section {
        title: "router".into(),
        columns: ["event", "count"].map(Into::into).into(),
        rows: rows.iter().map(|(name, count)| vec![(*name).into(), count.get().to_string()]).collect(),
        merge: SectionMerge::Sum,
        ..Section::default()
    });
}
