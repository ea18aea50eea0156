//! What a run came to: by port, node and reason, as one JSON object or as the table that people read.

mod number;
mod recorded;
mod table;
mod text;

use std::collections::BTreeMap;

use netbricks_buffer::{Pool, PoolCounters};
use netbricks_core::{Count, Drops, NodeCounters, Section, Totals};
use netbricks_runtime::PanicReport;
use serde::Serialize;

use crate::chain::Parted;

pub(crate) use number::{cores, counted, memory, percent, scaled, thousands};
pub use recorded::RecordedPacket;
pub(crate) use table::{Align, Table};
pub(crate) use text::{too_big_to_receive, too_big_to_send};

/// A run, from its opening to its drain.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Whether the run goes on: this is its report so far, which SIGUSR1 asked for. Workers answered one after the other, so
    /// packets that went from one to another in between may be counted twice or not at all.
    pub running: bool,
    /// Packets from outside.
    pub received: u64,
    /// Packets made here: answers, copies.
    pub created: u64,
    /// Packets given to the outside.
    pub sent: u64,
    /// Packets whose work was done here: an answered ARP request.
    pub consumed: u64,
    /// Packets still held when the run had drained.
    pub held: u64,
    /// Packets lost or refused, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Whether received + created = sent + dropped + consumed + held, overall and at every node.
    pub conserved: bool,
    /// Nodes at which that does not hold.
    pub unbalanced: Vec<String>,
    /// The ports, in the order of the file.
    pub ports: Vec<PortSummary>,
    /// The nodes, in the order of the chains; counters of all workers added up.
    pub nodes: Vec<NodeSummary>,
    /// The packet buffers.
    pub pool: PoolSummary,
    /// What functions add to the report.
    pub sections: Vec<NodeSection>,
    /// Panics that were contained, by node and place.
    pub panics: Vec<PanicReport>,
    /// What an operator should know: warnings and events of the run, and at its end [hints](Self::hints).
    pub warnings: Vec<String>,
    /// Why the run failed, if it did: a truncated capture, a port that could not be written.
    pub failures: Vec<String>,
    /// The seed of the workers: of hashes, and of what functions draw. Ports start from it too where somebody gave it, and else
    /// from 0.
    pub seed: u64,
    /// How many workers ran.
    pub workers: usize,
    /// Where each worker ran and what it received from.
    pub placement: Vec<WorkerPlace>,
    /// Shuffles that the file does not name and that were put in.
    pub shuffles: Vec<ShuffleSummary>,
    /// From the first turn to the end of the drain.
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
    /// Whether it lies on huge pages.
    pub huge_pages: bool,
    /// Times that a buffer was asked for and none that is large enough was free: for arrivals, which are dropped or asked for
    /// again, for answers, and for frames that a device is given.
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

/// A port's part in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// `up`, `down` or `gone` at the end.
    pub link: String,
    /// How often its device was deleted and another of its name took its place.
    pub returned: u64,
    /// Largest packet it takes, in bytes without the Ethernet header.
    pub mtu: usize,
    /// Packets it brought in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets it took.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped at its queues, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets that it was there to discard, by reason.
    pub consumed: BTreeMap<&'static str, u64>,
    /// Packets that the kernel or the device dropped before they came here: not part of any other number.
    pub missed: u64,
    /// Arrivals with a wrong checksum, where the port looks.
    pub bad_checksum: u64,
    /// Arrivals that came in pieces.
    pub linearised: u64,
    /// Arrivals for which no buffer was free.
    pub no_buffer: u64,
    /// Arrivals that were dropped as too big: for the packet buffers, or for the port's ring.
    pub too_big_to_receive: u64,
    /// Packets that were dropped as too big when they were to leave: for the MTU.
    pub too_big_to_send: u64,
    /// Arrivals of which a capture held only the beginning.
    pub cut: u64,
    /// Arrivals of which a capture holds more than it says was on the wire.
    pub overlong: u64,
    /// Packets that the port's line doubled, where it was told to be a bad one.
    pub duplicated: u64,
    /// Packets that it let others overtake.
    pub reordered: u64,
    /// Packets in which it changed a bit.
    pub corrupted: u64,
    /// Packets that arrived at each of its receive queues, lost ones included.
    pub queues: Vec<u64>,
    /// Rules said at which.
    pub steered: bool,
    /// What an operator should know of it; in [`Summary::warnings`] too.
    pub warnings: Vec<String>,
}

/// A node's part in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeSummary {
    /// Its name in the graph.
    pub name: String,
    /// The function or port that it belongs to.
    pub of: String,
    /// `"receive"`, `"function"`, `"transmit"`.
    pub role: &'static str,
    /// What kind it is: `"function"`, `"pcap receive"`.
    pub kind: String,
    /// To whom it is accounted; 0 is the operator.
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

/// Bytes of the frames, without FCS, that a node counted: under the names of the packets in [`NodeSummary`].
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
    /// The table, of all workers.
    #[serde(flatten)]
    pub section: Section,
}

/// What was dropped and what was consumed, by reason: packets or bytes of each.
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

    /// Several uses of one function as one row.
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
    /// Adds what the port's nodes counted.
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
    /// Takes over the sums, and whether they hold.
    pub fn set_totals(&mut self, totals: &Totals) {
        self.received = totals.received.packets;
        self.created = totals.created.packets;
        self.sent = totals.sent.packets;
        self.consumed = totals.drops.consumed().packets;
        self.held = totals.held;
        self.dropped = by_reason(&totals.drops, |count| count.packets).0;
        self.conserved = totals.is_conserved() && self.unbalanced.is_empty();
    }

    /// Adds [hints](Self::hints) to the warnings: where programs look.
    pub(crate) fn add_hints(&mut self) {
        let hints = self.hints();
        self.warnings.extend(hints);
    }

    /// All that was dropped, whatever the reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether the run did what it should: every packet is accounted for, every port worked to the end, and no function
    /// panicked.
    pub fn succeeded(&self) -> bool {
        self.conserved && self.failures.is_empty() && self.panics.is_empty()
    }
}
