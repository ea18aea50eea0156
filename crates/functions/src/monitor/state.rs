//! The state of a flow, and the report of the largest flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::tables::Encode;
use netbricks_core::{Flows, Section, TableKey, Worker};

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

/// Declares the report: the number of flows, the largest by bytes, and packets that found no room.
pub(super) fn report(flows: &Flows<FlowKey, Usage>, top: usize, worker: &Worker) {
    let flows = flows.clone();
    worker.report(move || {
        let (mut largest, refused): (Vec<(FlowKey, Usage)>, u64) = flows.with(|table| {
            let known = table.iter().map(|(key, usage)| (FlowKey::restore(key), *usage));
            (known.collect(), table.counters().refused)
        });
        let count = largest.len() as u64;
        // By name where bytes are equal, so that one report and the merged reports of several workers show
        // the same flows.
        let bytes = |(_, usage): &(FlowKey, Usage)| Reverse(usage.bytes);
        if let Some(last) = top.checked_sub(1).filter(|last| *last < largest.len()) {
            let least = bytes(largest.select_nth_unstable_by_key(last, bytes).1);
            let alike = largest.iter().filter(|flow| bytes(flow) == least).copied();
            let more = first_by_name(alike, top - largest.iter().filter(|flow| bytes(flow) < least).count());
            largest.retain(|flow| bytes(flow) < least);
            largest.extend(more);
        }
        largest.sort_by_cached_key(|flow| (bytes(flow), flow.0.to_string()));
        Section {
            title: "largest flows".into(),
            columns: ["flow", "packets", "bytes"].map(Into::into).into(),
            rows: largest
                .into_iter()
                .take(top)
                .map(|(key, usage)| vec![key.to_string(), usage.packets.to_string(), usage.bytes.to_string()])
                .collect(),
            of: Some(count),
            counts: [("refused_packets".into(), refused)].into(),
            merge: SectionMerge::Largest { by: 2, rows: top },
        }
    });
}

/// The first `count` of these flows by name.
///
/// Only that many names are in memory, since under a flood all flows may be alike.
fn first_by_name(flows: impl Iterator<Item = (FlowKey, Usage)>, count: usize) -> Vec<(FlowKey, Usage)> {
    let mut first = BTreeMap::new();
    for (key, usage) in flows {
        first.insert((key.to_string(), key), usage);
        if first.len() > count {
            first.pop_last();
        }
    }
    first.into_iter().map(|((_, key), usage)| (key, usage)).collect()
}
