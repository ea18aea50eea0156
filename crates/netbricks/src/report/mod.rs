//! The report of a run: counts by port, node and reason, as one JSON object or as text tables.

mod number;
mod recorded;
mod table;
mod text;

use std::collections::BTreeMap;

use netbricks_buffer::{Pool, PoolCounters};
use netbricks_core::{Count, Drops, NodeCounters, Section, Totals};
use netbricks_runtime::{PanicReport, TenantReport};
use serde::Serialize;

use crate::chain::Parted;

pub(crate) use number::{cores, counted, memory, percent, scaled, thousands};
pub use recorded::RecordedPacket;
pub(crate) use table::{Align, Table};
pub(crate) use text::{too_big_to_receive, too_big_to_send};

/// A run, from its start to the end of its drain.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Whether the run goes on: then this is its report so far, which SIGUSR1 asked for.
    ///
    /// Workers answered one after the other. Packets that went between two of them meanwhile may be counted
    /// twice or not at all.
    pub running: bool,
    /// Packets that came from outside.
    pub received: u64,
    /// Packets made here, such as answers and copies.
    pub created: u64,
    /// Packets sent to the outside.
    pub sent: u64,
    /// Packets whose work was finished here, such as an ARP request that was answered.
    pub consumed: u64,
    /// Packets still held after the run had drained.
    pub held: u64,
    /// Packets lost or refused, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Whether received + created = sent + dropped + consumed + held, overall and at every node.
    pub conserved: bool,
    /// Nodes at which that equation does not hold.
    pub unbalanced: Vec<String>,
    /// The ports, in the order of the file.
    pub ports: Vec<PortSummary>,
    /// The nodes, in the order of the chains; counters of all workers added up.
    pub nodes: Vec<NodeSummary>,
    /// The tenants, added up over workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantReport>,
    /// The packet buffers.
    pub pool: PoolSummary,
    /// The sections that functions add to the report.
    pub sections: Vec<NodeSection>,
    /// Contained panics, by node and place.
    pub panics: Vec<PanicReport>,
    /// Warnings and events of the run for the operator, and at its end [hints](Self::hints).
    pub warnings: Vec<String>,
    /// Reasons why the run failed, such as a truncated capture or a port that could not be written.
    pub failures: Vec<String>,
    /// The seed of the workers: of hashes, and of functions' random numbers.
    ///
    /// Ports start from it too if it was given by the operator, and else from 0.
    pub seed: u64,
    /// How many workers ran.
    pub workers: usize,
    /// Where each worker ran and what it received from.
    pub placement: Vec<WorkerPlace>,
    /// Shuffles that were put in although the file does not name them.
    pub shuffles: Vec<ShuffleSummary>,
    /// Seconds from the first turn to the end of the drain.
    pub seconds: f64,
}

/// A shuffle that was put in behind a port, so that both directions of a flow come to one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShuffleSummary {
    /// The port.
    pub port: String,
    /// The shuffle's node.
    pub node: String,
    /// Why it is needed.
    pub why: String,
}

impl From<&Parted> for ShuffleSummary {
    fn from(parted: &Parted) -> Self {
        Self { port: parted.port.clone(), node: parted.node.clone(), why: parted.why.clone() }
    }
}

/// A run's packet buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolSummary {
    /// Buffers of all sizes.
    pub frames: usize,
    /// Their memory, in bytes.
    pub bytes: u64,
    /// Whether this memory lies on huge pages.
    pub huge_pages: bool,
    /// Times that a buffer was needed and no free one was large enough.
    ///
    /// Buffers are needed for arrivals (which are then dropped, or tried again), for answers, and for frames
    /// that a device receives into.
    pub exhausted: u64,
    /// Packets that were copied: by functions, or into a larger buffer when they grew.
    pub copied: u64,
}

impl From<&Pool> for PoolSummary {
    fn from(pool: &Pool) -> Self {
        let PoolCounters { exhausted, copied } = pool.counters();
        Self {
            frames: pool.capacity(),
            bytes: pool.memory() as u64,
            huge_pages: pool.pages().warning().is_none(),
            exhausted,
            copied,
        }
    }
}

/// A worker's place in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerPlace {
    /// Its number.
    pub worker: usize,
    /// The core that it was bound to.
    pub core: Option<usize>,
    /// Its receive queues: `"lan.0"`.
    pub receives: Vec<String>,
}

impl std::fmt::Display for WorkerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "worker {}", self.worker)?;
        if let Some(core) = self.core {
            write!(f, " on core {core}")?;
        }
        match self.receives.as_slice() {
            [] => f.write_str(" receives from no port"),
            queues => write!(f, " receives from {}", queues.join(", ")),
        }
    }
}

/// A port's part in a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// The link at the end: `up`, `down` or `gone`.
    pub link: String,
    /// Times that its device was deleted and another one of the same name took its place.
    pub returned: u64,
    /// The largest packet that it sends, in bytes without the Ethernet header.
    pub mtu: usize,
    /// Packets that it received.
    pub received: u64,
    /// Bytes of the received packets.
    pub received_bytes: u64,
    /// Packets that it sent.
    pub sent: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets dropped at its queues, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets that it discarded on purpose, by reason.
    pub consumed: BTreeMap<&'static str, u64>,
    /// Packets that the kernel or the device dropped before they reached the port; no other number includes
    /// them.
    pub missed: u64,
    /// Arrivals with a wrong checksum, if the port verifies checksums.
    pub bad_checksum: u64,
    /// Arrivals that came in several pieces.
    pub linearised: u64,
    /// Arrivals for which no buffer was free.
    pub no_buffer: u64,
    /// Arrivals that were dropped because they were too big for the packet buffers or for the port's ring.
    pub too_big_to_receive: u64,
    /// Packets that were dropped because they were larger than the MTU.
    pub too_big_to_send: u64,
    /// Arrivals of which a capture held only the beginning.
    pub cut: u64,
    /// Arrivals of which a capture holds more bytes than its record says were on the wire.
    pub overlong: u64,
    /// Packets that the port duplicated, where it is configured to impair its traffic.
    pub duplicated: u64,
    /// Packets that it delayed so that others overtook them.
    pub reordered: u64,
    /// Packets in which it changed a bit.
    pub corrupted: u64,
    /// Packets that arrived at each of its receive queues, lost ones included.
    pub queues: Vec<u64>,
    /// Whether steering rules chose the receive queue.
    pub steered: bool,
    /// The mechanism that applies filters of the graph, where the port steers by them.
    pub filtered_by: Option<String>,
    /// Warnings about it for the operator; they are in [`Summary::warnings`] too.
    pub warnings: Vec<String>,
}

/// A node's part in a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeSummary {
    /// Its name in the graph.
    pub name: String,
    /// The function or port that it belongs to.
    pub of: String,
    /// `"receive"`, `"function"`, `"transmit"`.
    pub role: &'static str,
    /// The kind of node: `"function"`, `"pcap receive"`.
    pub kind: String,
    /// The owner that it is accounted to; 0 is the operator.
    pub owner: u16,
    /// Packets that arrived from other nodes.
    #[serde(rename = "in")]
    pub arrived: u64,
    /// Packets that left to other nodes.
    #[serde(rename = "out")]
    pub left: u64,
    /// Packets brought in from outside.
    pub received: u64,
    /// Packets given to the outside.
    pub sent: u64,
    /// Packets made here.
    pub created: u64,
    /// Packets given to other workers.
    pub handoff_out: u64,
    /// Packets taken over from other workers.
    pub handoff_in: u64,
    /// Packets held at the end.
    pub held: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets consumed, by reason.
    pub consumed: BTreeMap<&'static str, u64>,
    /// The bytes of all these.
    pub bytes: NodeBytes,
    /// The last packets that were dropped or consumed, those of each worker newest first.
    pub recorded: Vec<RecordedPacket>,
    /// Cycles of the time stamp counter for each packet, from sampled batches.
    pub cycles_per_packet: Option<f64>,
    /// Packets in a batch, on average.
    pub packets_per_batch: Option<f64>,
    /// Panics contained.
    pub panics: u64,
    #[serde(skip)]
    counters: NodeCounters,
}

/// Bytes of the frames, without FCS, that a node counted; the fields are named as in [`NodeSummary`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeBytes {
    /// Arrived from other nodes.
    #[serde(rename = "in")]
    pub arrived: u64,
    /// Left to other nodes.
    #[serde(rename = "out")]
    pub left: u64,
    /// Brought in from outside.
    pub received: u64,
    /// Given to the outside.
    pub sent: u64,
    /// Made here.
    pub created: u64,
    /// Given to other workers.
    pub handoff_out: u64,
    /// Taken over from other workers.
    pub handoff_in: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Consumed, by reason.
    pub consumed: BTreeMap<&'static str, u64>,
}

impl From<&NodeCounters> for NodeBytes {
    fn from(counters: &NodeCounters) -> Self {
        let (dropped, consumed) = by_reason(&counters.drops, |count| count.bytes);
        Self {
            arrived: counters.arrived.bytes,
            left: counters.left.bytes,
            received: counters.received.bytes,
            sent: counters.sent.bytes,
            created: counters.created.bytes,
            handoff_out: counters.handoff_out.bytes,
            handoff_in: counters.handoff_in.bytes,
            dropped,
            consumed,
        }
    }
}

/// A table that a node adds to the report.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSection {
    /// The node.
    pub node: String,
    /// The table, combined from all workers.
    #[serde(flatten)]
    pub section: Section,
}

/// Dropped and consumed packets (or bytes), by reason.
fn by_reason(
    drops: &Drops,
    number: impl Fn(Count) -> u64,
) -> (BTreeMap<&'static str, u64>, BTreeMap<&'static str, u64>) {
    let mut dropped = BTreeMap::new();
    let mut consumed = BTreeMap::new();
    for (reason, count) in drops.iter() {
        let group =
            if reason.class() == netbricks_core::Class::Consumed { &mut consumed } else { &mut dropped };
        group.insert(reason.name(), number(count));
    }
    (dropped, consumed)
}

impl NodeSummary {
    /// A node of this name, which belongs to the function or port `of` and is accounted to `owner`.
    pub fn new(
        name: String,
        of: String,
        owner: u16,
        role: netbricks_core::Role,
        kind: String,
        counters: NodeCounters,
    ) -> Self {
        let (dropped, consumed) = by_reason(&counters.drops, |count| count.packets);
        let turns = counters.arrived.packets.max(counters.received.packets);
        Self {
            name,
            of,
            role: match role {
                netbricks_core::Role::Receive => "receive",
                netbricks_core::Role::Function => "function",
                netbricks_core::Role::Transmit => "transmit",
            },
            kind,
            owner,
            arrived: counters.arrived.packets,
            left: counters.left.packets,
            received: counters.received.packets,
            sent: counters.sent.packets,
            created: counters.created.packets,
            handoff_out: counters.handoff_out.packets,
            handoff_in: counters.handoff_in.packets,
            held: counters.held,
            dropped,
            consumed,
            bytes: NodeBytes::from(&counters),
            recorded: Vec::new(),
            cycles_per_packet: counters.cycles_a_packet(),
            packets_per_batch: (counters.batches > 0 && turns > 0)
                .then(|| turns as f64 / counters.batches as f64),
            panics: counters.panics,
            counters,
        }
    }

    /// Combines several uses of one function into one row.
    fn merged(&self, others: &[&Self]) -> Self {
        let mut counters = self.counters.clone();
        for other in others {
            counters.merge(&other.counters);
        }
        let role = match self.role {
            "receive" => netbricks_core::Role::Receive,
            "transmit" => netbricks_core::Role::Transmit,
            _ => netbricks_core::Role::Function,
        };
        Self::new(self.of.clone(), self.of.clone(), self.owner, role, self.kind.clone(), counters)
    }
}

impl PortSummary {
    /// Adds the counters of one of the port's nodes.
    pub fn add(&mut self, counters: &NodeCounters) {
        self.received += counters.received.packets;
        self.received_bytes += counters.received.bytes;
        self.sent += counters.sent.packets;
        self.sent_bytes += counters.sent.bytes;
        let (dropped, consumed) = by_reason(&counters.drops, |count| count.packets);
        for (reason, packets) in dropped {
            *self.dropped.entry(reason).or_default() += packets;
        }
        for (reason, packets) in consumed {
            *self.consumed.entry(reason).or_default() += packets;
        }
    }
}

impl Summary {
    /// Sets the totals, and whether they are conserved.
    pub fn set_totals(&mut self, totals: &Totals) {
        self.received = totals.received.packets;
        self.created = totals.created.packets;
        self.sent = totals.sent.packets;
        self.consumed = totals.drops.consumed().packets;
        self.held = totals.held;
        self.dropped = by_reason(&totals.drops, |count| count.packets).0;
        self.conserved = totals.is_conserved() && self.unbalanced.is_empty();
    }

    /// Adds [hints](Self::hints) to the warnings, where programs look for them, unless they are there.
    pub(crate) fn add_hints(&mut self) {
        for hint in self.hints() {
            if !self.warnings.contains(&hint) {
                self.warnings.push(hint);
            }
        }
    }

    /// The number of dropped packets, for all reasons together.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether the run did its work.
    ///
    /// Every packet is accounted for, every port and node worked to the end, and no function panicked.
    pub fn succeeded(&self) -> bool {
        self.conserved && self.failures.is_empty() && self.panics.is_empty()
    }
}
