//! The state of a flow, and the report of the largest flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::tables::Encode;
use netbricks_core::{Flows, Handler, Section, Steps, StoredFlow, TableKey, Worker};

/// Packets and bytes of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Usage {
    #[inline(always)]
    pub(super) fn count(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

impl Encode for Usage {
    const SIZE: usize = 16;
    const VERSION: u16 = 1;
    fn encode(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.packets.to_be_bytes());
        to[8..].copy_from_slice(&self.bytes.to_be_bytes());
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let (packets, rest) = from.split_first_chunk()?;
        let bytes = rest.first_chunk()?;
        Some(Self { packets: u64::from_be_bytes(*packets), bytes: u64::from_be_bytes(*bytes) })
    }
}

/// Declares the report and the handler `top`: the largest flows by bytes, and packets that found no room.
pub(super) fn report(flows: &Flows<FlowKey, Usage>, top: usize, worker: &Worker) {
    let row = |(key, usage): &(FlowKey, Usage)| {
        vec![key.to_string(), usage.packets.to_string(), usage.bytes.to_string()]
    };
    let size = |usage: &Usage| usage.bytes;
    let (asked, flows) = (flows.clone(), flows.clone());
    let handler = Handler::read("top", "The largest flows, by bytes.").argument("[NUMBER]");
    worker.handler_in_steps(handler, move |argument| {
        let most = most(argument, top, "flows")?;
        Ok(Largest::steps(&asked, most, size, move |flows, _, _| {
            let rows = flows.iter().map(|flow| row(flow).join("\t") + "\n");
            std::iter::once(COLUMNS.join("\t") + "\n").chain(rows).collect()
        }))
    });
    worker.report_in_steps(move || {
        Largest::steps(&flows, top, size, move |flows, of, refused| Section {
            title: "largest flows".into(),
            columns: COLUMNS.map(Into::into).into(),
            rows: flows.iter().map(row).collect(),
            of: Some(of),
            counts: [("refused_packets".into(), refused)].into(),
            merge: SectionMerge::Largest { by: 2, rows: top },
        })
    });
}

/// The number of rows that a handler `top` is to list, at most 1,000.
pub(super) fn most(argument: &str, top: usize, rows: &str) -> Result<usize, String> {
    match argument.trim() {
        "" => Ok(top.min(1_000)),
        number => {
            let number = number.parse().map_err(|_| format!("expected a number of {rows}, found `{number}`"));
            number.map(|number: usize| number.min(1_000))
        }
    }
}

/// The largest entries of a table so far.
pub(super) struct Largest<V> {
    top: usize,
    flows: Vec<(FlowKey, V)>,
    count: u64,
}

impl<V: Copy + 'static> Largest<V> {
    /// The entries that are kept beside the largest ones until they are compared.
    const BESIDE: usize = 512;

    /// An answer from the `top` largest entries of a table, the number of all, and the refused packets.
    pub(super) fn steps<T: 'static>(
        table: &Flows<FlowKey, V>,
        top: usize,
        size: impl Fn(&V) -> u64 + Copy + 'static,
        end: impl FnOnce(Vec<(FlowKey, V)>, u64, u64) -> T + 'static,
    ) -> Steps<T> {
        let add = move |largest: &mut Self, key: &StoredFlow, value: &V| {
            largest.count += 1;
            largest.flows.push((FlowKey::restore(*key), *value));
            if largest.flows.len() >= 2 * largest.top + Self::BESIDE {
                let flows = std::mem::take(&mut largest.flows);
                largest.flows = self::largest(flows, largest.top, size);
            }
        };
        table.in_steps(Self { top, flows: Vec::new(), count: 0 }, add, move |largest, table| {
            let Self { flows, count, .. } = largest;
            end(self::largest(flows, top, size), count, table.counters().refused)
        })
    }
}

const COLUMNS: [&str; 3] = ["flow", "packets", "bytes"];

/// The `top` largest of these flows, largest first.
///
/// They are ordered by name where they are alike, so that one report and the merged reports of several workers show the
/// same flows.
pub(super) fn largest<V: Copy>(
    mut flows: Vec<(FlowKey, V)>,
    top: usize,
    size: impl Fn(&V) -> u64,
) -> Vec<(FlowKey, V)> {
    let bytes = |(_, value): &(FlowKey, V)| Reverse(size(value));
    if let Some(last) = top.checked_sub(1).filter(|last| *last < flows.len()) {
        let least = bytes(flows.select_nth_unstable_by_key(last, bytes).1);
        let alike = flows.iter().filter(|flow| bytes(flow) == least).copied();
        let more = first_by_name(alike, top - flows.iter().filter(|flow| bytes(flow) < least).count());
        flows.retain(|flow| bytes(flow) < least);
        flows.extend(more);
    }
    flows.sort_by_cached_key(|flow| (bytes(flow), flow.0.to_string()));
    flows.truncate(top);
    flows
}

/// The first `count` of these flows by name.
///
/// Only that many names are in memory, since under a flood all flows may be alike.
fn first_by_name<V>(flows: impl Iterator<Item = (FlowKey, V)>, count: usize) -> Vec<(FlowKey, V)> {
    let mut first = BTreeMap::new();
    for (key, usage) in flows {
        first.insert((key.to_string(), key), usage);
        if first.len() > count {
            first.pop_last();
        }
    }
    first.into_iter().map(|((_, key), usage)| (key, usage)).collect()
}
