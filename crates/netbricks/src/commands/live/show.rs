//! `show`: lists of the parts that run.

use std::collections::BTreeMap;

use netbricks_control::api::{Function, Handler, NodeStats, Port, PortStats, Problem, Stats, Worker};
use netbricks_core::DropReason;
use serde::Serialize;

use super::arguments::{ShowArguments, Shown};
use super::stats::{by_function, cycles_per_packet, packets, packets_per_batch};
use super::units::period;
use super::{Api, Output, Trouble};
use crate::report::Align::{Left, Right};
use crate::report::{self, percent, scaled, thousands};

pub(super) fn show(api: &dyn Api, output: &mut Output<'_>, arguments: &ShowArguments) -> Result<(), Trouble> {
    let (json, name) = (arguments.plain.json, arguments.name.as_deref());
    match arguments.list {
        Shown::Ports => {
            let rows = ports(api.ports()?, &api.stats()?);
            listed(output, json, select("port", name, rows, |row| &row.port.name)?, ports_text)
        }
        Shown::Workers => {
            let numbered = api.stats()?.workers.into_iter().map(|worker| (worker.worker.to_string(), worker));
            let rows = select("worker", name, numbered.collect(), |(number, _)| number)?;
            listed(output, json, rows.into_iter().map(|(_, worker)| worker).collect(), workers_text)
        }
        Shown::Functions => {
            let rows = functions(api.functions()?, &api.stats()?);
            let rows = select("function", name, rows, |row| &row.function.name)?;
            listed(output, json, rows, functions_text)
        }
        Shown::Tables => {
            let known = select("function", name, api.functions()?, |function| &function.name)?;
            listed(output, json, tables(api, &known)?, tables_text)
        }
        Shown::Drops => {
            let nodes = select("node", name, api.stats()?.nodes, |node| &node.node)?;
            listed(output, json, drops(&nodes), drops_text)
        }
        Shown::Handlers => {
            let known = select("function", name, api.functions()?, |function| &function.name)?;
            listed(output, json, handlers(known), handlers_text)
        }
    }
}

fn listed<T: Serialize>(
    output: &mut Output<'_>,
    json: bool,
    rows: Vec<T>,
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Trouble> {
    Ok(output.show(json, &rows, |rows| text(rows))?)
}

/// All of them, or the one of this name.
fn select<T>(
    kind: &str,
    wanted: Option<&str>,
    rows: Vec<T>,
    name: impl Fn(&T) -> &String,
) -> Result<Vec<T>, Problem> {
    let Some(wanted) = wanted else { return Ok(rows) };
    if !rows.iter().any(|row| name(row) == wanted) {
        return Err(Problem::unknown(kind, wanted, rows.iter().map(|row| name(row).as_str())));
    }
    Ok(rows.into_iter().filter(|row| name(row) == wanted).collect())
}

/// A port with its counters.
#[derive(Debug, Serialize)]
struct PortRow {
    #[serde(flatten)]
    port: Port,
    stats: PortStats,
}

fn ports(ports: Vec<Port>, stats: &Stats) -> Vec<PortRow> {
    let stats = |name: &str| stats.ports.iter().find(|port| port.port == name).cloned().unwrap_or_default();
    ports.into_iter().map(|port| PortRow { stats: stats(&port.name), port }).collect()
}

fn ports_text(rows: &[PortRow]) -> String {
    let mut table = report::Table::new([
        ("port", Left),
        ("driver", Left),
        ("link", Left),
        ("mtu", Right),
        ("queues", Right),
        ("received", Right),
        ("bytes", Right),
        ("sent", Right),
        ("bytes", Right),
        ("missed", Right),
    ]);
    for PortRow { port, stats } in rows {
        table.row([
            port.name.clone(),
            port.driver.clone(),
            port.link.clone(),
            thousands(port.mtu as u64),
            format!("{} in {} out", port.receive_queues, port.transmit_queues),
            thousands(stats.received.packets),
            scaled(stats.received.bytes as f64, "B"),
            thousands(stats.sent.packets),
            scaled(stats.sent.bytes as f64, "B"),
            thousands(stats.missed),
        ]);
    }
    let mut text = table.render();
    for PortRow { port, stats } in rows {
        let counters = stats.counters.iter().filter(|(_, count)| **count > 0);
        let counters: Vec<_> = counters
            .map(|(name, count)| format!("{} {}", thousands(*count), name.replace('_', " ")))
            .collect();
        if !counters.is_empty() {
            text.push_str(&format!("{}: {}\n", port.name, counters.join(", ")));
        }
        for warning in &port.warnings {
            text.push_str(&format!("warning: {}\n", crate::diagnostic::visible(warning)));
        }
    }
    text
}

fn workers_text(workers: &[Worker]) -> String {
    let mut table = report::Table::new([
        ("worker", Right),
        ("core", Right),
        ("receives from", Left),
        ("received", Right),
        ("sent", Right),
        ("dropped", Right),
        ("turns", Right),
        ("sleeps", Right),
        ("longest pause", Right),
        ("", Left),
    ]);
    for worker in workers {
        table.row([
            worker.worker.to_string(),
            worker.core.map(|core| core.to_string()).unwrap_or_default(),
            worker.receives.join(", "),
            thousands(worker.received.packets),
            thousands(worker.sent.packets),
            thousands(worker.dropped),
            thousands(worker.turns),
            thousands(worker.sleeps),
            period(worker.longest_pause_ns),
            if worker.ended { "ended".into() } else { String::new() },
        ]);
    }
    table.render()
}

/// A function with the counters of its nodes.
#[derive(Debug, Serialize)]
struct FunctionRow {
    #[serde(flatten)]
    function: Function,
    stats: Vec<NodeStats>,
}

fn functions(functions: Vec<Function>, stats: &Stats) -> Vec<FunctionRow> {
    let nodes = |function: &Function| {
        stats.nodes.iter().filter(|node| function.nodes.contains(&node.node)).cloned().collect()
    };
    functions.into_iter().map(|function| FunctionRow { stats: nodes(&function), function }).collect()
}

fn functions_text(rows: &[FunctionRow]) -> String {
    let mut table = report::Table::new([
        ("function", Left),
        ("use", Left),
        ("in", Right),
        ("out", Right),
        ("cycles/packet", Right),
        ("packets/batch", Right),
        ("dropped", Right),
        ("nodes", Left),
    ]);
    let decimal = |value: Option<f64>| value.map(|value| format!("{value:.1}")).unwrap_or_default();
    for FunctionRow { function, stats } in rows {
        // Its nodes belong to it alone, so that there is one row at most.
        let total = by_function(stats).pop().unwrap_or_default();
        table.row([
            function.name.clone(),
            function.definition.clone(),
            thousands(total.arrived.packets),
            thousands(total.left.packets),
            decimal(cycles_per_packet(&total)),
            decimal(packets_per_batch(&total)),
            thousands(packets(&total.dropped)),
            function.nodes.join(", "),
        ]);
    }
    table.render()
}

/// A table of a function, with its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    /// The function.
    pub(crate) function: String,
    /// The table: the handler's name without `.occupancy`.
    pub(crate) table: String,
    /// The worker that has it; none where all share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<usize>,
    /// The node.
    pub(crate) node: String,
    /// Its entries now.
    pub(crate) entries: u64,
    /// The entries that it can hold, where there is a bound.
    pub(crate) capacity: Option<u64>,
}

/// The tables of these functions, which their handlers `*.occupancy` tell.
pub(crate) fn tables(api: &dyn Api, functions: &[Function]) -> Result<Vec<Table>, Problem> {
    let mut tables = Vec::new();
    for function in functions {
        let occupancy = |handler: &Handler| {
            let table = handler.name.strip_suffix("occupancy").filter(|_| !handler.writes)?;
            (table.is_empty() || table.ends_with('.')).then(|| table.trim_end_matches('.').to_owned())
        };
        for (handler, table) in function.handlers.iter().filter_map(|h| Some((h, occupancy(h)?))) {
            let answers = api.read(&function.name, &handler.name, "", None)?;
            tables.extend(answers.answers.into_iter().filter_map(|answer| {
                let mut numbers = answer.value.split_whitespace().map(str::parse);
                let entries = numbers.next()?.ok()?;
                // A table without a bound of its own says the largest number.
                let capacity = numbers.next().and_then(Result::ok).filter(|capacity| *capacity < u64::MAX);
                let (function, table) = (function.name.clone(), table.clone());
                Some(Table { function, table, worker: answer.worker, node: answer.node, entries, capacity })
            }));
        }
    }
    Ok(tables)
}

fn tables_text(tables: &[Table]) -> String {
    if tables.is_empty() {
        return "no function that runs has a table\n".into();
    }
    let mut text = report::Table::new([
        ("function", Left),
        ("table", Left),
        ("worker", Right),
        ("node", Left),
        ("entries", Right),
        ("capacity", Right),
        ("full", Right),
    ]);
    for table in tables {
        text.row([
            table.function.clone(),
            table.table.clone(),
            table.worker.map_or_else(|| "all".into(), |worker| worker.to_string()),
            table.node.clone(),
            thousands(table.entries),
            table.capacity.map(thousands).unwrap_or_default(),
            table.capacity.map(|capacity| percent(table.entries, capacity)).unwrap_or_default(),
        ]);
    }
    text.render()
}

/// The packets that a node dropped for one reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Drops {
    node: String,
    reason: String,
    packets: u64,
    bytes: u64,
    /// As `netbricks reasons` says it; none for a reason that this version of the program does not know.
    sentence: Option<&'static str>,
}

/// The sentence of `netbricks reasons` about a reason.
pub(crate) fn sentence(reason: &str) -> Option<&'static str> {
    DropReason::ALL.iter().find(|known| known.name() == reason).map(|known| known.sentence())
}

fn drops(nodes: &[NodeStats]) -> Vec<Drops> {
    let of = |node: &NodeStats| {
        let rows = node.dropped.iter().map(|(reason, count)| Drops {
            node: node.node.clone(),
            reason: reason.clone(),
            packets: count.packets,
            bytes: count.bytes,
            sentence: sentence(reason),
        });
        let mut rows: Vec<_> = rows.filter(|row| row.packets > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
        rows
    };
    nodes.iter().flat_map(of).collect()
}

fn drops_text(rows: &[Drops]) -> String {
    if rows.is_empty() {
        return "no packet was dropped\n".into();
    }
    let mut table = report::Table::new([
        ("node", Left),
        ("reason", Left),
        ("packets", Right),
        ("bytes", Right),
        ("packets that leave for it", Left),
    ]);
    for row in rows {
        table.row([
            row.node.clone(),
            row.reason.clone(),
            thousands(row.packets),
            scaled(row.bytes as f64, "B"),
            row.sentence.unwrap_or_default().to_owned(),
        ]);
    }
    let mut text = table.render();
    let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows {
        *by_reason.entry(&row.reason).or_default() += row.packets;
    }
    if rows.len() > by_reason.len() {
        let mut sorted: Vec<_> = by_reason.into_iter().collect();
        sorted.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        let sums: Vec<_> =
            sorted.iter().map(|(reason, packets)| format!("{} {reason}", thousands(*packets))).collect();
        text.push_str(&format!("\nin all: {}\n", sums.join(", ")));
    }
    text
}

/// A handler with its function.
#[derive(Debug, Serialize)]
struct HandlerRow {
    function: String,
    #[serde(flatten)]
    handler: Handler,
}

fn handlers(functions: Vec<Function>) -> Vec<HandlerRow> {
    let of = |function: Function| {
        let Function { name, handlers, .. } = function;
        handlers.into_iter().map(move |handler| HandlerRow { function: name.clone(), handler })
    };
    functions.into_iter().flat_map(of).collect()
}

fn handlers_text(rows: &[HandlerRow]) -> String {
    if rows.is_empty() {
        return "no function that runs has a handler\n".into();
    }
    let columns = ["handler", "call with", "argument", "answer", "summary"];
    let mut table = report::Table::new(columns.map(|column| (column, Left)));
    for HandlerRow { function, handler } in rows {
        table.row([
            format!("{function}.{}", handler.name),
            if handler.writes { "set" } else { "get" }.to_owned(),
            handler.argument.clone(),
            if handler.by_worker { "each worker" } else { "one" }.to_owned(),
            handler.summary.clone(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    #[test]
    fn ports_are_listed_with_their_counters_and_warnings() {
        assert_eq!(
            ran(&Canned::default(), &["show", "ports"]).out,
            "port  driver     link    mtu      queues  received   bytes   sent   bytes  missed\n\
             lan   generator  up    1,500  2 in 0 out     3,000  180 kB      0     0 B      12\n\
             wan   null       up    9,000  0 in 2 out         0     0 B  2,700  162 kB       0\n\
             lan: 3 no buffer\n\
             warning: port `wan` has no receive queue\n"
        );
    }

    #[test]
    fn workers_are_listed_with_their_queues() {
        assert_eq!(
            ran(&Canned::default(), &["show", "workers"]).out,
            "worker  core  receives from  received   sent  dropped   turns  sleeps  longest pause\n\
             \u{20}    0     1  lan.0             3,000  2,700      300  12,345       6        43.0 µs\n\
             \u{20}    1     2  lan.1                 0      0        0   9,000     800        1.20 ms  ended\n"
        );
    }

    #[test]
    fn functions_are_listed_with_their_nodes() {
        assert_eq!(
            ran(&Canned::default(), &["show", "functions"]).out,
            "function  use         in    out  cycles/packet  packets/batch  dropped  nodes\n\
             ttl       ttl      3,000  2,700            8.0           60.0      300  ttl\n\
             flows     monitor  2,700  2,700           15.0           54.0        0  flows\n"
        );
    }

    #[test]
    fn tables_are_those_whose_occupancy_can_be_read() {
        let api = Canned::default();
        assert_eq!(
            ran(&api, &["show", "tables"]).out,
            "function  table  worker  node   entries  capacity    full\n\
             flows     flows       0  flows        3       100  3.00 %\n\
             flows     flows       1  flows       50       100  50.0 %\n"
        );
        let told = ran(&api, &["show", "tables", "--json"]);
        assert_eq!(
            told.out.lines().next(),
            Some(
                "[{\"function\":\"flows\",\"table\":\"flows\",\"worker\":0,\"node\":\"flows\",\"entries\":3,\"capacity\":100},\
                 {\"function\":\"flows\",\"table\":\"flows\",\"worker\":1,\"node\":\"flows\",\"entries\":50,\"capacity\":100}]"
            )
        );
        assert_eq!(ran(&api, &["show", "tables", "ttl"]).out, "no function that runs has a table\n");
    }

    #[test]
    fn drops_are_explained() {
        let expired = sentence("ttl-expired").unwrap();
        let malformed = sentence("malformed").unwrap();
        assert_eq!(
            ran(&Canned::default(), &["show", "drops"]).out,
            format!(
                "node  reason       packets    bytes  packets that leave for it\n\
                 ttl   ttl-expired      290  17.4 kB  {expired}\n\
                 ttl   malformed         10    600 B  {malformed}\n"
            )
        );
        assert_eq!(ran(&Canned::default(), &["show", "drops", "flows"]).out, "no packet was dropped\n");
    }

    #[test]
    fn handlers_are_listed_with_their_arguments() {
        assert_eq!(
            ran(&Canned::default(), &["show", "handlers", "flows"]).out,
            "handler                call with  argument  answer       summary\n\
             flows.flows.occupancy  get                  each worker  Entries and capacity of `flows`.\n\
             flows.flows.top        get        [COUNT]   one          The flows with the most bytes.\n\
             flows.clear            set                  each worker  Forgets all flows.\n"
        );
    }

    #[test]
    fn json_is_that_of_the_api_s_types() {
        let api = Canned::default();
        let json = |list: &str| ran(&api, &["show", list, "--json"]).out;
        assert_eq!(serde_json::from_str::<Vec<Port>>(&json("ports")).unwrap(), api.ports);
        assert_eq!(serde_json::from_str::<Vec<Worker>>(&json("workers")).unwrap(), api.stats[0].workers);
        assert_eq!(serde_json::from_str::<Vec<Function>>(&json("functions")).unwrap(), api.functions);
        let handlers: Vec<Handler> = api.functions.iter().flat_map(|f| f.handlers.clone()).collect();
        assert_eq!(serde_json::from_str::<Vec<Handler>>(&json("handlers")).unwrap(), handlers);
        let drops = json("drops");
        assert!(
            drops.starts_with("[{\"node\":\"ttl\",\"reason\":\"ttl-expired\",\"packets\":290,"),
            "{drops}"
        );
    }

    #[test]
    fn a_wrong_name_gets_the_nearest_one() {
        let told = ran(&Canned::default(), &["show", "handlers", "flow"]);
        assert_eq!(told.code, 1);
        assert_eq!(told.err, "error: there is no function `flow`\n = did you mean `flows`?\n");
        let told = ran(&Canned::default(), &["show", "hosts"]);
        assert_eq!(told.code, 2);
    }
}
