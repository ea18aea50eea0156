//! `stats`: the counters of ports and functions, as totals or as rates between two looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use netbricks_control::api::{Count, NodeStats, PortStats, Stats, TableStats, Worker};

use super::arguments::StatsArguments;
use super::{Api, Failure, Output, Trouble};
use crate::report::Align::{Left, Right};
use crate::report::{Table, percent, scaled, thousands};

/// The shortest time between two looks: each one asks every worker.
const SHORTEST: Duration = Duration::from_millis(50);

pub(super) fn stats(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &StatsArguments,
) -> Result<(), Trouble> {
    let json = arguments.plain.json;
    if !arguments.watch {
        return Ok(output.show(json, &api.stats()?, |stats| text(stats, None))?);
    }
    let interval = interval(arguments.interval)?;
    let mut before = api.stats()?;
    let mut due = Instant::now();
    let mut looks = 0;
    while arguments.count.is_none_or(|count| looks < count) {
        // A late look does not make the following ones come sooner.
        due = (due + interval).max(Instant::now());
        if !output.wait_until(due) {
            break;
        }
        let now = api.stats()?;
        if json {
            output.json(&now)?;
        } else {
            let change = since(&now, &before);
            let blank = if looks == 0 { "" } else { "\n" };
            output.print(&format!("{blank}{}", text(&change, Some(seconds(&change)))))?;
        }
        before = now;
        looks += 1;
    }
    Ok(())
}

/// The time between two looks, if it is long enough.
pub(crate) fn interval(interval: netbricks_core::units::Duration) -> Result<Duration, Failure> {
    let interval = Duration::from(interval);
    if interval < SHORTEST {
        return Err(Failure::Usage(format!(
            "`--interval {}` is too short: expected at least {} ms",
            netbricks_core::units::Duration::from(interval),
            SHORTEST.as_millis()
        )));
    }
    Ok(interval)
}

/// The span of a change, in seconds.
pub(crate) fn seconds(change: &Stats) -> f64 {
    (change.time_ns as f64 / 1e9).max(1e-9)
}

/// Counters of all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Packets from outside.
    pub(crate) received: Count,
    /// Packets to the outside.
    pub(crate) sent: Count,
    /// Packets made here.
    pub(crate) created: u64,
    /// Packets dropped.
    pub(crate) dropped: u64,
    /// Packets consumed.
    pub(crate) consumed: u64,
    /// Packets held.
    pub(crate) held: u64,
}

/// The sums over all nodes.
pub(crate) fn totals(stats: &Stats) -> Totals {
    let mut totals = Totals::default();
    for node in &stats.nodes {
        add(&mut totals.received, node.received);
        add(&mut totals.sent, node.sent);
        totals.created += node.created.packets;
        totals.dropped += packets(&node.dropped);
        totals.consumed += packets(&node.consumed);
        totals.held += node.held;
    }
    totals
}

/// The packets of all reasons.
pub(crate) fn packets(by_reason: &BTreeMap<String, Count>) -> u64 {
    by_reason.values().map(|count| count.packets).sum()
}

fn table_since(now: &TableStats, before: &[TableStats]) -> TableStats {
    let is_it = |old: &&TableStats| (&old.function, &old.table) == (&now.function, &now.table);
    let Some(old) = before.iter().find(is_it) else { return now.clone() };
    TableStats {
        evicted: now.evicted.saturating_sub(old.evicted),
        expired: now.expired.saturating_sub(old.expired),
        refused: now.refused.saturating_sub(old.refused),
        ..now.clone()
    }
}

/// The growth of every counter from `before` to `now`, whose time is the span between them.
///
/// Levels, such as packets held and free buffers, are those of `now`. A part that is new began at 0.
pub(crate) fn since(now: &Stats, before: &Stats) -> Stats {
    let old_node = |name: &str| before.nodes.iter().find(|node| node.node == name);
    let old_port = |name: &str| before.ports.iter().find(|port| port.port == name);
    let old_worker = |number: usize| before.workers.iter().find(|worker| worker.worker == number);
    Stats {
        time_ns: now.time_ns.saturating_sub(before.time_ns),
        nodes: now
            .nodes
            .iter()
            .map(|node| old_node(&node.node).map_or_else(|| node.clone(), |old| node_since(node, old)))
            .collect(),
        ports: now
            .ports
            .iter()
            .map(|port| old_port(&port.port).map_or_else(|| port.clone(), |old| port_since(port, old)))
            .collect(),
        workers: now
            .workers
            .iter()
            .map(|worker| {
                old_worker(worker.worker).map_or_else(|| worker.clone(), |old| worker_since(worker, old))
            })
            .collect(),
        tables: now.tables.iter().map(|table| table_since(table, &before.tables)).collect(),
        ..now.clone()
    }
}

fn less(now: Count, before: Count) -> Count {
    Count {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

fn reasons_since(now: &BTreeMap<String, Count>, before: &BTreeMap<String, Count>) -> BTreeMap<String, Count> {
    now.iter()
        .map(|(reason, count)| {
            (reason.clone(), less(*count, before.get(reason).copied().unwrap_or_default()))
        })
        .filter(|(_, count)| count.packets > 0)
        .collect()
}

fn node_since(now: &NodeStats, before: &NodeStats) -> NodeStats {
    NodeStats {
        arrived: less(now.arrived, before.arrived),
        left: less(now.left, before.left),
        received: less(now.received, before.received),
        sent: less(now.sent, before.sent),
        created: less(now.created, before.created),
        dropped: reasons_since(&now.dropped, &before.dropped),
        consumed: reasons_since(&now.consumed, &before.consumed),
        batches: now.batches.saturating_sub(before.batches),
        sampled_cycles: now.sampled_cycles.saturating_sub(before.sampled_cycles),
        sampled_packets: now.sampled_packets.saturating_sub(before.sampled_packets),
        panics: now.panics.saturating_sub(before.panics),
        ..now.clone()
    }
}

fn port_since(now: &PortStats, before: &PortStats) -> PortStats {
    let old = |name: &String| before.counters.get(name).copied().unwrap_or_default();
    PortStats {
        received: less(now.received, before.received),
        sent: less(now.sent, before.sent),
        missed: now.missed.saturating_sub(before.missed),
        counters: now
            .counters
            .iter()
            .map(|(name, count)| (name.clone(), count.saturating_sub(old(name))))
            .collect(),
        ..now.clone()
    }
}

fn worker_since(now: &Worker, before: &Worker) -> Worker {
    Worker {
        received: less(now.received, before.received),
        sent: less(now.sent, before.sent),
        dropped: now.dropped.saturating_sub(before.dropped),
        turns: now.turns.saturating_sub(before.turns),
        sleeps: now.sleeps.saturating_sub(before.sleeps),
        ..now.clone()
    }
}

fn add(to: &mut Count, count: Count) {
    to.packets += count.packets;
    to.bytes += count.bytes;
}

/// The functions' nodes, those of one function added up and named after it, in the order of the chains.
pub(crate) fn by_function(nodes: &[NodeStats]) -> Vec<NodeStats> {
    let mut functions: Vec<NodeStats> = Vec::new();
    for node in nodes.iter().filter(|node| node.role == "function") {
        match functions.iter_mut().find(|known| known.of == node.of) {
            Some(known) => merge(known, node),
            None => functions.push(NodeStats { node: node.of.clone(), ..node.clone() }),
        }
    }
    functions
}

fn merge(to: &mut NodeStats, node: &NodeStats) {
    add(&mut to.arrived, node.arrived);
    add(&mut to.left, node.left);
    add(&mut to.received, node.received);
    add(&mut to.sent, node.sent);
    add(&mut to.created, node.created);
    to.held += node.held;
    to.batches += node.batches;
    to.sampled_cycles += node.sampled_cycles;
    to.sampled_packets += node.sampled_packets;
    to.panics += node.panics;
    for (into, from) in [(&mut to.dropped, &node.dropped), (&mut to.consumed, &node.consumed)] {
        for (reason, count) in from {
            add(into.entry(reason.clone()).or_default(), *count);
        }
    }
}

/// Cycles for each packet, where batches were sampled.
pub(crate) fn cycles_per_packet(node: &NodeStats) -> Option<f64> {
    (node.sampled_packets > 0).then(|| node.sampled_cycles as f64 / node.sampled_packets as f64)
}

/// Packets in a batch, on average.
pub(crate) fn packets_per_batch(node: &NodeStats) -> Option<f64> {
    let packets = node.arrived.packets.max(node.received.packets);
    (node.batches > 0 && packets > 0).then(|| packets as f64 / node.batches as f64)
}

/// A number of packets, or with `seconds` their rate.
fn amount(packets: u64, seconds: Option<f64>) -> String {
    seconds.map_or_else(|| thousands(packets), |seconds| scaled(packets as f64 / seconds, "pps"))
}

/// A number of bytes, or with `seconds` the rate of their bits.
fn volume(bytes: u64, seconds: Option<f64>) -> String {
    seconds.map_or_else(|| scaled(bytes as f64, "B"), |seconds| scaled(8.0 * bytes as f64 / seconds, "b/s"))
}

fn decimal(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.1}")).unwrap_or_default()
}

/// `34,081 ttl-expired, 2 malformed`, most frequent first; rates with `seconds`.
fn reasons(counts: &BTreeMap<String, Count>, seconds: Option<f64>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(count.packets), *name));
    let shown = sorted.iter().map(|(name, count)| format!("{} {name}", amount(count.packets, seconds)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Counters as tables of ports and functions; with `seconds`, the rates of a change over that time.
pub(super) fn text(stats: &Stats, seconds: Option<f64>) -> String {
    let mut parts = Vec::new();
    if seconds.is_some() {
        parts.push(rates_line(stats, seconds));
    }
    parts.push(ports_text(&stats.ports, seconds));
    let functions = by_function(&stats.nodes);
    if !functions.is_empty() {
        parts.push(functions_text(&functions, seconds));
    }
    if seconds.is_none() {
        let Totals { received, sent, created, dropped, consumed, held } = totals(stats);
        parts.push(format!(
            "{} received · {} created · {} sent · {} dropped · {} consumed · {} held · {} of {} buffers free\n",
            thousands(received.packets),
            thousands(created),
            thousands(sent.packets),
            thousands(dropped),
            thousands(consumed),
            thousands(held),
            thousands(stats.free_buffers),
            thousands(stats.buffers),
        ));
    }
    // Rates come again and again: a blank line between the looks, none within.
    parts.join(if seconds.is_some() { "" } else { "\n" })
}

/// All rates in one line.
pub(crate) fn rates_line(change: &Stats, seconds: Option<f64>) -> String {
    let Totals { received, sent, created, dropped, .. } = totals(change);
    format!(
        "received {} {} · sent {} {} · dropped {} ({})\n",
        amount(received.packets, seconds),
        volume(received.bytes, seconds),
        amount(sent.packets, seconds),
        volume(sent.bytes, seconds),
        amount(dropped, seconds),
        percent(dropped, received.packets + created),
    )
}

fn ports_text(ports: &[PortStats], seconds: Option<f64>) -> String {
    let bytes = if seconds.is_some() { "bits" } else { "bytes" };
    let columns = [("port", Left), ("driver", Left), ("link", Left), ("received", Right), (bytes, Right)];
    let mut table =
        Table::new(columns.into_iter().chain([("sent", Right), (bytes, Right), ("missed", Right)]));
    for port in ports {
        table.row([
            port.port.clone(),
            port.driver.clone(),
            port.link.clone(),
            amount(port.received.packets, seconds),
            volume(port.received.bytes, seconds),
            amount(port.sent.packets, seconds),
            volume(port.sent.bytes, seconds),
            amount(port.missed, seconds),
        ]);
    }
    table.render()
}

/// The functions' table, as in the report of a run.
pub(super) fn functions_text(functions: &[NodeStats], seconds: Option<f64>) -> String {
    let bytes = if seconds.is_some() { "bits" } else { "bytes" };
    let created = functions.iter().any(|node| node.created.packets > 0);
    let held = functions.iter().any(|node| node.held > 0);
    let consumed = functions.iter().any(|node| packets(&node.consumed) > 0);
    let panics = functions.iter().any(|node| node.panics > 0);
    let mut columns = vec![("function", Left), ("in", Right), (bytes, Right), ("out", Right), (bytes, Right)];
    columns.extend(created.then_some(("created", Right)));
    columns.extend(held.then_some(("held", Right)));
    columns.extend([("cycles/packet", Right), ("packets/batch", Right)]);
    columns.extend(panics.then_some(("panics", Right)));
    columns.push(("dropped", Left));
    columns.extend(consumed.then_some(("consumed", Left)));
    let mut table = Table::new(columns);
    for node in functions {
        let mut row = vec![
            node.node.clone(),
            amount(node.arrived.packets, seconds),
            volume(node.arrived.bytes, seconds),
            amount(node.left.packets, seconds),
            volume(node.left.bytes, seconds),
        ];
        row.extend(created.then(|| amount(node.created.packets, seconds)));
        row.extend(held.then(|| thousands(node.held)));
        row.extend([decimal(cycles_per_packet(node)), decimal(packets_per_batch(node))]);
        row.extend(panics.then(|| thousands(node.panics)));
        row.push(reasons(&node.dropped, seconds));
        row.extend(consumed.then(|| reasons(&node.consumed, seconds)));
        table.row(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran, stats_after};
    use super::*;

    #[test]
    fn totals_are_tables_as_in_the_report() {
        assert_eq!(
            ran(&Canned::default(), &["stats"]).out,
            "port  driver     link  received   bytes   sent   bytes  missed\n\
             lan   generator  up       3,000  180 kB      0     0 B      12\n\
             wan   null       up           0     0 B  2,700  162 kB       0\n\
             \n\
             function     in   bytes    out   bytes  cycles/packet  packets/batch  dropped\n\
             ttl       3,000  180 kB  2,700  162 kB            8.0           60.0  290 ttl-expired, 10 malformed\n\
             flows     2,700  162 kB  2,700  162 kB           15.0           54.0\n\
             \n\
             3,000 received · 0 created · 2,700 sent · 300 dropped · 0 consumed · 0 held · 4,000 of 4,096 buffers free\n"
        );
    }

    #[test]
    fn a_watch_shows_the_changes_since_the_last_look() {
        let api = Canned { stats: vec![stats_after(1), stats_after(2), stats_after(4)], ..Canned::default() };
        let told = ran(&api, &["stats", "--watch", "--interval", "50ms", "--count", "2"]);
        assert_eq!(
            told.out,
            "received 3.00 kpps 1.44 Mb/s · sent 2.70 kpps 1.30 Mb/s · dropped 300 pps (10.0 %)\n\
             port  driver     link   received       bits       sent       bits  missed\n\
             lan   generator  up    3.00 kpps  1.44 Mb/s      0 pps      0 b/s  12 pps\n\
             wan   null       up        0 pps      0 b/s  2.70 kpps  1.30 Mb/s   0 pps\n\
             function         in       bits        out       bits  cycles/packet  packets/batch  dropped\n\
             ttl       3.00 kpps  1.44 Mb/s  2.70 kpps  1.30 Mb/s            8.0           60.0  290 pps ttl-expired, 10 pps malformed\n\
             flows     2.70 kpps  1.30 Mb/s  2.70 kpps  1.30 Mb/s           15.0           54.0\n"
                .to_owned()
                .repeat(2)
                .replace("flows     2.70 kpps  1.30 Mb/s  2.70 kpps  1.30 Mb/s           15.0           54.0\nreceived",
                         "flows     2.70 kpps  1.30 Mb/s  2.70 kpps  1.30 Mb/s           15.0           54.0\n\nreceived")
        );
    }

    #[test]
    fn json_is_the_api_s_own() {
        let api = Canned { stats: vec![stats_after(1), stats_after(2), stats_after(4)], ..Canned::default() };
        let told = ran(&api, &["stats", "--watch", "--interval", "50ms", "--count", "2", "--json"]);
        let read: Vec<Stats> = told.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, [stats_after(2), stats_after(4)]);
        let told = ran(&Canned::default(), &["stats", "--json"]);
        assert_eq!(serde_json::from_str::<Stats>(&told.out).unwrap(), stats_after(1));
    }

    #[test]
    fn a_part_that_is_new_began_at_zero() {
        let (mut before, now) = (stats_after(1), stats_after(3));
        before.nodes.retain(|node| node.of != "flows");
        let change = since(&now, &before);
        let flows = change.nodes.iter().find(|node| node.of == "flows").unwrap();
        assert_eq!(flows.arrived.packets, 8_100);
        let ttl = change.nodes.iter().find(|node| node.of == "ttl").unwrap();
        assert_eq!(ttl.arrived.packets, 6_000);
        assert_eq!(change.free_buffers, now.free_buffers);
        // Counters that went back, as after a restart, are no change.
        assert_eq!(totals(&since(&before, &now)).received.packets, 0);
    }

    #[test]
    fn the_nodes_of_one_function_are_one_row() {
        let mut nodes = stats_after(1).nodes;
        let again = NodeStats { node: "ttl@wan".into(), ..nodes[1].clone() };
        nodes.push(again);
        let functions = by_function(&nodes);
        assert_eq!(functions.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["ttl", "flows"]);
        assert_eq!(functions[0].arrived.packets, 6_000);
        assert_eq!(functions[0].dropped["ttl-expired"].packets, 580);
    }

    #[test]
    fn looks_are_not_too_frequent() {
        let told = ran(&Canned::default(), &["stats", "--watch", "--interval", "1ms"]);
        assert_eq!(told.code, 2);
        assert!(told.err.contains("`--interval 1 ms` is too short: expected at least 50 ms"), "{}", told.err);
    }
}
