//! The state of a flow, and the report of the largest flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::tables::Encode;
use netbricks_core::{Flows, Handler, Section, TableKey, Worker};

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
    let all = |flows: &Flows<FlowKey, Usage>| {
        flows.with(|table| {
            let known = table.iter().map(|(key, usage)| (FlowKey::restore(key), *usage));
            (known.collect::<Vec<_>>(), table.counters().refused)
        })
    };
    let row = |(key, usage): &(FlowKey, Usage)| {
        vec![key.to_string(), usage.packets.to_string(), usage.bytes.to_string()]
    };
    let handler = Handler::read("top", "The largest flows, by bytes.").argument("[NUMBER]");
    worker.handler_of(flows, handler, move |flows, argument| {
        let most = match argument.trim() {
            "" => top,
            number => number.parse().map_err(|_| format!("expected a number of flows, found `{number}`"))?,
        };
        let mut text = COLUMNS.join("\t") + "\n";
        for flow in largest(all(flows).0, most.min(1_000), |usage| usage.bytes) {
            text += &(row(&flow).join("\t") + "\n");
        }
        Ok(text)
    });
    let flows = flows.clone();
    worker.report(move || {
        let (known, refused) = all(&flows);
        let of = Some(known.len() as u64);
        Section {
            title: "largest flows".into(),
            columns: COLUMNS.map(Into::into).into(),
            rows: largest(known, top, |usage| usage.bytes).iter().map(row).collect(),
            of,
            counts: [("refused_packets".into(), refused)].into(),
            merge: SectionMerge::Largest { by: 2, rows: top },
        }
    });
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
