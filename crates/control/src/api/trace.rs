//! Packets that were followed through the graph.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A packet that was followed from node to node: an event of the stream of `trace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRecord {
    /// Its number, which no other packet of the stream has.
    pub packet: u32,
    /// When it came to where its trace begins (ns, the clock that drives the graph: since 1970 on live ports).
    pub time_ns: u64,
    /// The node where its trace begins.
    pub node: String,
    /// The port on which it arrived; empty for a packet that the dataplane made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// The receive queue.
    pub queue: u16,
    /// The worker.
    pub worker: usize,
    /// The worker's core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// The packet in one line: addresses, ports, protocol and length.
    pub summary: String,
    /// Bytes of the frame, without FCS.
    pub bytes: usize,
    /// The number of the traced packet for which a node made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<u32>,
    /// The nodes on its way, in order.
    pub steps: Vec<TraceStep>,
    /// The end of its way.
    pub end: TraceEnd,
    /// The last node, the port, the reason or the way out that belongs to the end.
    pub end_of: String,
    /// The sentence of the reason for which it was dropped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// Matching packets and steps that were left out since the record before: too many, or read too slowly.
    pub lost: u64,
}

/// One node on a packet's way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// The node.
    pub node: String,
    /// When it had the packet (ns).
    pub time_ns: u64,
    /// The worker, where it is another than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<usize>,
    /// Why the node did what it did, in the words of its function.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The changes of the packet: `ipv4.time_to_live 64 → 63`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Packets that the node made for this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<u32>,
    /// The way out, where it is not the main one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// Whether the packet waited here: in a queue, or on its way between workers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waited: bool,
}

/// The end of a traced packet's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEnd {
    /// A port took it.
    Sent,
    /// It was dropped.
    Dropped,
    /// Its work is done: no loss.
    Consumed,
    /// It went on in other packets, or its node keeps what it brought.
    Absorbed,
    /// It was still held when nothing had been seen of it for a while.
    Held,
    /// Its end was not seen: trace records were lost, or the graph changed.
    #[default]
    Unknown,
}
