//! The tables of the tabs: their columns, and their rows from the change between two looks.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use netbricks_control::api::{NodeStats, Stats};

use super::super::live::show::{self, sentence};
use super::super::live::stats::{by_function, cycles_per_packet, packets, packets_per_batch};
use super::super::live::units::period;
use super::model::Tab;
use crate::diagnostic::visible;
use crate::report::{percent, scaled, thousands};

/// A cell, and the value by which its column is sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) key: Key,
}

/// The value by which a column is sorted: numbers largest first, texts by the alphabet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    Text(String),
    Number(f64),
}

impl Key {
    /// The order in which rows with these values stand.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => b.total_cmp(a),
            (Self::Text(_), Self::Number(_)) => Ordering::Less,
            (Self::Number(_), Self::Text(_)) => Ordering::Greater,
        }
    }
}

fn text(text: impl Into<String>) -> Cell {
    let text = visible(&text.into());
    Cell { key: Key::Text(text.to_lowercase()), text }
}

fn number(value: f64, text: String) -> Cell {
    Cell { key: Key::Number(value), text }
}

/// A column's heading, and whether it has numbers.
pub(super) type Column = (&'static str, bool);

/// The columns of a tab. Those to the right are left out where the terminal is too narrow.
pub(super) fn columns(tab: Tab) -> &'static [Column] {
    match tab {
        Tab::Functions => &[
            ("function", false),
            ("in", true),
            ("out", true),
            ("cycles/packet", true),
            ("packets/batch", true),
            ("drops", true),
            ("held", true),
            ("bits", true),
        ],
        Tab::Ports => &[
            ("port", false),
            ("received", true),
            ("bits", true),
            ("sent", true),
            ("bits", true),
            ("missed", true),
            ("link", false),
            ("driver", false),
        ],
        Tab::Drops => &[
            ("node", false),
            ("reason", false),
            ("drops", true),
            ("share", true),
            ("bits", true),
            ("packets that leave for it", false),
        ],
        Tab::Workers => &[
            ("worker", false),
            ("core", true),
            ("received", true),
            ("sent", true),
            ("dropped", true),
            ("turns", true),
            ("sleeps", true),
            ("longest pause", true),
            ("receives from", false),
        ],
        Tab::Tables => &[
            ("function", false),
            ("table", false),
            ("worker", false),
            ("entries", true),
            ("capacity", true),
            ("full", true),
            ("node", false),
        ],
    }
}

/// Rates over a time.
#[derive(Clone, Copy)]
struct Rates(f64);

impl Rates {
    fn packets(self, packets: u64) -> Cell {
        let rate = packets as f64 / self.0;
        number(rate, scaled(rate, "pps"))
    }
    fn bits(self, bytes: u64) -> Cell {
        let rate = 8.0 * bytes as f64 / self.0;
        number(rate, scaled(rate, "b/s"))
    }
    fn times(self, times: u64) -> Cell {
        let rate = times as f64 / self.0;
        number(rate, scaled(rate, "/s"))
    }
}

fn decimal(value: Option<f64>) -> Cell {
    // A function that had no packets stands behind all others.
    value.map_or_else(|| number(-1.0, String::new()), |value| number(value, format!("{value:.1}")))
}

/// The rows of functions, or of their nodes.
pub(super) fn functions(change: &Stats, seconds: f64, nodes: bool) -> Vec<Vec<Cell>> {
    let rates = Rates(seconds);
    let rows = if nodes { change.nodes.clone() } else { by_function(&change.nodes) };
    let row = |node: &NodeStats| {
        // A port's nodes have packets of the outside, too.
        let came = node.arrived.packets + node.received.packets;
        vec![
            text(&node.node),
            rates.packets(came),
            rates.packets(node.left.packets + node.sent.packets),
            decimal(cycles_per_packet(node)),
            decimal(packets_per_batch(node)),
            rates.packets(packets(&node.dropped)),
            number(node.held as f64, thousands(node.held)),
            rates.bits(node.arrived.bytes + node.received.bytes),
        ]
    };
    rows.iter().map(row).collect()
}

/// The rows of ports.
pub(super) fn ports(change: &Stats, seconds: f64) -> Vec<Vec<Cell>> {
    let rates = Rates(seconds);
    let row = |port: &netbricks_control::api::PortStats| {
        vec![
            text(&port.port),
            rates.packets(port.received.packets),
            rates.bits(port.received.bytes),
            rates.packets(port.sent.packets),
            rates.bits(port.sent.bytes),
            rates.packets(port.missed),
            text(&port.link),
            text(&port.driver),
        ]
    };
    change.ports.iter().map(row).collect()
}

/// The rows of drops: a node and a reason each, most frequent first.
pub(super) fn drops(change: &Stats, seconds: f64) -> Vec<Vec<Cell>> {
    let rates = Rates(seconds);
    let all: u64 = change.nodes.iter().map(|node| packets(&node.dropped)).sum();
    let of = |node: &NodeStats| -> Vec<(u64, Vec<Cell>)> {
        let row = |(reason, count): (&String, &netbricks_control::api::Count)| {
            let share = number(count.packets as f64, percent(count.packets, all));
            let cells = vec![
                text(&node.node),
                text(reason),
                rates.packets(count.packets),
                share,
                rates.bits(count.bytes),
                text(sentence(reason).unwrap_or_default()),
            ];
            (count.packets, cells)
        };
        node.dropped.iter().map(row).collect()
    };
    let mut rows: Vec<_> = change.nodes.iter().flat_map(of).collect();
    rows.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The rows of workers.
pub(super) fn workers(change: &Stats, seconds: f64) -> Vec<Vec<Cell>> {
    let rates = Rates(seconds);
    let row = |worker: &netbricks_control::api::Worker| {
        let core = worker.core.map_or((-1.0, String::new()), |core| (core as f64, core.to_string()));
        let ended = if worker.ended { " ended" } else { "" };
        let shown = format!("{}{ended}", worker.worker);
        vec![
            Cell { key: Key::Text(format!("{:06}", worker.worker)), text: shown },
            number(core.0, core.1),
            rates.packets(worker.received.packets),
            rates.packets(worker.sent.packets),
            rates.packets(worker.dropped),
            rates.times(worker.turns),
            rates.times(worker.sleeps),
            number(worker.longest_pause_ns as f64, period(worker.longest_pause_ns)),
            text(worker.receives.join(", ")),
        ]
    };
    change.workers.iter().map(row).collect()
}

/// The rows of functions' tables, and above the shares of several workers their sum.
pub(super) fn occupancy(tables: &[show::Table]) -> Vec<Vec<Cell>> {
    let mut shares: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for table in tables {
        *shares.entry((&table.function, &table.table)).or_default() += 1;
    }
    let mut summed: Vec<(&str, &str)> = Vec::new();
    let mut rows = Vec::new();
    for table in tables {
        let of = (table.function.as_str(), table.table.as_str());
        if shares.get(&of).is_some_and(|shares| *shares > 1) && !summed.contains(&of) {
            summed.push(of);
            let same = || tables.iter().filter(|other| (other.function.as_str(), other.table.as_str()) == of);
            let entries = same().map(|other| other.entries).sum();
            let capacity = same().map(|other| other.capacity).sum();
            rows.push(occupancy_row(of, "all", entries, capacity, ""));
        }
        let worker = table.worker.map_or_else(|| "all".into(), |worker| worker.to_string());
        rows.push(occupancy_row(of, &worker, table.entries, table.capacity, &table.node));
    }
    rows
}

fn occupancy_row(
    (function, table): (&str, &str),
    worker: &str,
    entries: u64,
    capacity: Option<u64>,
    node: &str,
) -> Vec<Cell> {
    let full =
        capacity.map(|capacity| number(entries as f64 / capacity.max(1) as f64, percent(entries, capacity)));
    vec![
        text(function),
        text(table),
        text(worker),
        number(entries as f64, thousands(entries)),
        decimal(None).or(capacity.map(|capacity| number(capacity as f64, thousands(capacity)))),
        decimal(None).or(full),
        text(node),
    ]
}

impl Cell {
    /// The other cell where there is one.
    fn or(self, other: Option<Self>) -> Self {
        other.unwrap_or(self)
    }
}
