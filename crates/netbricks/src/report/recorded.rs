//! The last dropped packets, whose headers the graphs' recorders kept.
//!
//! They answer "why was it dropped?" without any preparation.

use std::collections::BTreeMap;

use netbricks_core::{Class, DropReason};
use netbricks_packet::print::{OneLine, dissect};
use netbricks_runtime::DroppedHeader;
use serde::Serialize;

use super::number::time_of_day;
use super::table::Align::Left;
use super::{NodeSummary, Table, thousands};

/// Most lines for one node and reason in the text: more would tell no more.
const EACH: usize = 3;
/// Most lines in all.
const MOST: usize = 10;
/// Bytes that hardly any header exceeds.
const LONGEST: usize = 64;

/// The beginning of a packet that was dropped or consumed.
///
/// Of each node and reason, at most one a millisecond is kept; of each worker, the last 64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedPacket {
    /// The worker that had it.
    pub worker: usize,
    /// Node, reason, time and bytes.
    #[serde(flatten)]
    pub header: DroppedHeader,
    /// Its headers, as far as they were kept, in one line.
    pub line: String,
}

impl RecordedPacket {
    /// Makes the entry for a packet that a worker's recorder kept.
    pub(crate) fn new(worker: usize, header: DroppedHeader) -> Self {
        let line = line(&header.bytes, header.frame_len);
        Self { worker, header, line }
    }

    fn is_dropped(&self) -> bool {
        let reason = DropReason::ALL.iter().find(|reason| reason.name() == self.header.reason);
        reason.is_none_or(|reason| reason.class() != Class::Consumed)
    }
}

/// A frame of `len` bytes in one line, although only its beginning was kept.
fn line(kept: &[u8], len: usize) -> String {
    // Length fields count the whole frame: without padding they would seem wrong.
    let mut frame = kept.to_vec();
    frame.resize(len.max(kept.len()), 0);
    let dissection = dissect(&frame);
    // The padding tells nothing about headers.
    let unknown = |at: usize| at > kept.len();
    let malformed = dissection.malformed().is_some_and(|(at, _)| unknown(at + LONGEST));
    let cut = kept.len() < len && (unknown(dissection.payload_offset()) || malformed);
    let note = if cut { format!(", of which {} were kept", kept.len()) } else { String::new() };
    format!("{}{note}", OneLine::from(dissection))
}

/// The last drops of all nodes as text, newest first.
///
/// It has few lines of each kind, so that many drops of one kind hide no other.
pub(super) fn text(nodes: &[NodeSummary]) -> Option<String> {
    let mut dropped: Vec<&RecordedPacket> =
        nodes.iter().flat_map(|node| &node.recorded).filter(|packet| packet.is_dropped()).collect();
    // The sort is stable: packets that one worker recorded at the same time stay newest first.
    dropped.sort_by_key(|packet| std::cmp::Reverse(packet.header.time));
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(dropped.len());
    for (place, packet) in dropped.iter().enumerate() {
        let before = seen.entry((&packet.header.node, packet.header.reason)).or_default();
        ranked.push((*before, place));
        *before += 1;
    }
    ranked.retain(|(before, _)| *before < EACH);
    ranked.sort_unstable();
    let mut shown: Vec<usize> = ranked.into_iter().take(MOST).map(|(_, place)| place).collect();
    shown.sort_unstable();
    if shown.is_empty() {
        return None;
    }
    let mut table = Table::new([("time", Left), ("node", Left), ("reason", Left), ("packet", Left)]);
    for packet in shown.iter().map(|place| dropped[*place]) {
        let DroppedHeader { node, reason, time, .. } = &packet.header;
        table.row([time_of_day(*time), node.clone(), (*reason).to_owned(), packet.line.clone()]);
    }
    let (few, all) = (thousands(shown.len() as u64), thousands(dropped.len() as u64));
    Some(format!("last drops: {few} of {all} recorded\n{}", table.render()))
}

#[cfg(test)]
mod tests {
    use netbricks_core::{NodeCounters, Role};
    use netbricks_testkit::build::ethernet;

    use super::*;

    fn dropped(node: &str, reason: DropReason, time: u64, frame: &[u8]) -> RecordedPacket {
        let header = DroppedHeader {
            node: node.into(),
            reason: reason.name(),
            time,
            frame_len: frame.len(),
            bytes: frame[..frame.len().min(128)].to_vec(),
        };
        RecordedPacket::new(0, header)
    }

    fn node(name: &str, recorded: Vec<RecordedPacket>) -> NodeSummary {
        let counters = NodeCounters::default();
        let node = NodeSummary::new(name.into(), name.into(), 0, Role::Function, "function".into(), counters);
        NodeSummary { recorded, ..node }
    }

    #[test]
    fn a_flood_of_one_reason_hides_no_other() {
        let frame = |ttl| {
            let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(ttl).udp(1000, 53).payload(&[0; 300]);
            packet.build().unwrap()
        };
        let ms = 1_000_000;
        let mut flood: Vec<_> =
            (1..=60).rev().map(|i| dropped("ttl", DropReason::TtlExpired, i * ms, &frame(1))).collect();
        flood.push(dropped("ttl", DropReason::Malformed, 2_000, &frame(1)[..20]));
        // A packet that was answered was not lost.
        let others = vec![
            dropped("echo", DropReason::Answered, 99 * ms, &frame(9)),
            dropped("echo", DropReason::Denied, 86_399_999_999_000, &frame(9)),
        ];
        let text = text(&[node("ttl", flood), node("echo", others)]).unwrap();
        assert_eq!(
            text,
            "last drops: 5 of 62 recorded\n\
             time             node  reason       packet\n\
             23:59:59.999999  echo  denied       10.0.0.1:1000 > 10.0.0.2:53 UDP 342 bytes\n\
             00:00:00.060000  ttl   ttl-expired  10.0.0.1:1000 > 10.0.0.2:53 UDP 342 bytes\n\
             00:00:00.059000  ttl   ttl-expired  10.0.0.1:1000 > 10.0.0.2:53 UDP 342 bytes\n\
             00:00:00.058000  ttl   ttl-expired  10.0.0.1:1000 > 10.0.0.2:53 UDP 342 bytes\n\
             00:00:00.000002  ttl   malformed    malformed at 14: ipv4: the bytes end before the header does (needed 20, found 6), 20 bytes\n"
        );
        assert_eq!(super::text(&[node("ttl", Vec::new())]), None);
    }

    #[test]
    fn headers_behind_what_was_kept_are_not_made_up() {
        let deep =
            ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 9).payload(&[0; 200]).build().unwrap();
        assert_eq!(line(&deep[..128], deep.len()), line(&deep, deep.len()));
        assert!(line(&deep[..40], deep.len()).ends_with(", of which 40 were kept"));
    }
}
