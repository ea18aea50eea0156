//! The running dataplane: its parts, their counters, and events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of the run in a few lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The file that runs, as the operator named it.
    pub file: String,
    /// The graph's name.
    pub graph: String,
    /// Whether packets move.
    pub state: RunState,
    /// Seconds since the first turn.
    pub uptime_seconds: f64,
    /// A number that grows with every change: the `ETag` of all resources that change.
    pub generation: u64,
    /// The number of the configuration in the history.
    pub configuration: u64,
    /// Whether a restart would run this configuration.
    pub confirmed: bool,
    /// Seconds until the configuration is rolled back unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_seconds: Option<f64>,
    /// Writes of handlers since the configuration was applied, which are in the journal.
    pub journal: u64,
    /// The number of workers.
    pub workers: usize,
    /// Packets received, sent, dropped and held so far.
    pub received: Count,
    /// Packets sent.
    pub sent: Count,
    /// Packets created.
    pub created: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets consumed.
    pub consumed: u64,
    /// Packets held.
    pub held: u64,
}

/// Whether packets move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Packets move.
    Running,
    /// Sources are not asked; what was received is processed.
    Suspended,
    /// The run drains and ends.
    Stopping,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl From<netbricks_core::Count> for Count {
    fn from(count: netbricks_core::Count) -> Self {
        Self { packets: count.packets, bytes: count.bytes }
    }
}

/// Counters of the whole dataplane at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Nanoseconds since the first turn.
    pub time_ns: u64,
    /// The [generation](Status::generation) that they belong to.
    pub generation: u64,
    /// Nodes in the order of the chains; workers are added up.
    pub nodes: Vec<NodeStats>,
    /// Ports in the order of the file.
    pub ports: Vec<PortStats>,
    /// Workers by number.
    pub workers: Vec<Worker>,
    /// Tenants in the order of the file; workers are added up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantStats>,
    /// Tables of functions that count their entries, by function; workers are added up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableStats>,
    /// Packet buffers that are free.
    pub free_buffers: u64,
    /// Packet buffers of all sizes.
    pub buffers: u64,
}

/// A table of a function, such as one of flows: its occupancy and its events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableStats {
    /// The function.
    pub function: String,
    /// The table's name.
    pub table: String,
    /// The tenant to whom it belongs; none for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its entries.
    pub entries: u64,
    /// The most entries that it holds.
    pub capacity: u64,
    /// Entries that gave their place to a new one before their timeout.
    pub evicted: u64,
    /// Entries that ended by their timeout.
    pub expired: u64,
    /// New entries that found no place.
    pub refused: u64,
}

/// A tenant's use of the workers, and its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantStats {
    /// Its name.
    pub tenant: String,
    /// Its part of the time that tenants of its priority share.
    pub weight: u32,
    /// Its strict class: tenants of a lower number come first.
    pub priority: u8,
    /// The most time that it gets, in thousandths of each worker's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u32>,
    /// The time that it used on all workers (ns).
    pub used_ns: u64,
    /// Turns of several batches that it had.
    pub slices: u64,
    /// Slices that took several times as long as slices are.
    pub overruns: u64,
    /// The longest of its slices (ns).
    pub longest_slice_ns: u64,
    /// Times that it waited because of its ceiling.
    pub throttled: u64,
    /// Whether it comes last for a while, because of its overruns.
    pub demoted: bool,
    /// Packets that came to its queues.
    pub arrived: Count,
    /// Packets that its nodes hold.
    pub held: u64,
    /// Packets that its nodes dropped, by reason.
    pub dropped: BTreeMap<String, Count>,
}

/// Counters of a node; those of graphs before a change are included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStats {
    /// Its name.
    pub node: String,
    /// The function or port that it belongs to.
    pub of: String,
    /// The tenant to whom it belongs; none for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `receive`, `function` or `transmit`; `gone` for the sum of all nodes that changes took out.
    pub role: String,
    /// Packets that arrived from other nodes.
    pub arrived: Count,
    /// Packets that left to other nodes.
    pub left: Count,
    /// Packets brought in from outside.
    pub received: Count,
    /// Packets given to the outside.
    pub sent: Count,
    /// Packets made here.
    pub created: Count,
    /// Packets given to other workers.
    pub handoff_out: Count,
    /// Packets taken over from other workers.
    pub handoff_in: Count,
    /// Packets that it holds.
    pub held: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, Count>,
    /// Packets consumed, by reason.
    pub consumed: BTreeMap<String, Count>,
    /// Batches.
    pub batches: u64,
    /// Cycles of the time stamp counter in sampled batches.
    pub sampled_cycles: u64,
    /// Packets in sampled batches.
    pub sampled_packets: u64,
    /// Contained panics.
    pub panics: u64,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// Its name.
    pub port: String,
    /// Its driver.
    pub driver: String,
    /// `up`, `down` or `gone`.
    pub link: String,
    /// Packets received.
    pub received: Count,
    /// Packets sent.
    pub sent: Count,
    /// Packets that the kernel or the device dropped before they reached the port.
    pub missed: u64,
    /// Other counters by name, such as `bad_checksum` and `no_buffer`.
    pub counters: BTreeMap<String, u64>,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its number.
    pub worker: usize,
    /// Its core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Its receive queues: `lan.0`.
    pub receives: Vec<String>,
    /// Packets received.
    pub received: Count,
    /// Packets sent.
    pub sent: Count,
    /// Packets dropped.
    pub dropped: u64,
    /// Turns of its graphs.
    pub turns: u64,
    /// Times that it slept in the kernel.
    pub sleeps: u64,
    /// The longest time between two batches for a command of the control side, since the run began (ns).
    pub longest_pause_ns: u64,
    /// Such times of more than 500 µs.
    #[serde(default)]
    pub long_pauses: u64,
    /// Whether it has ended.
    pub ended: bool,
}

/// The graph as names and edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its edges.
    pub edges: Vec<Edge>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// `receive`, `function` or `transmit`.
    pub role: String,
}

/// An edge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Edge {
    /// The node that packets leave.
    pub from: String,
    /// The way out that they take.
    pub output: String,
    /// The node that they reach.
    pub to: String,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// `up`, `down` or `gone`.
    pub link: String,
    /// The largest packet that it sends, in bytes without the Ethernet header.
    pub mtu: usize,
    /// Its receive queues.
    pub receive_queues: usize,
    /// Its transmit queues.
    pub transmit_queues: usize,
    /// Warnings about it.
    pub warnings: Vec<String>,
}

/// A function of the running file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Function {
    /// Its name in the file.
    pub name: String,
    /// The registered function behind it.
    pub definition: String,
    /// The nodes that run it.
    pub nodes: Vec<String>,
    /// Its handlers.
    pub handlers: Vec<Handler>,
}

/// A handler of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// One sentence about it.
    pub summary: String,
    /// Whether it changes state: it is then called with PUT, else with GET.
    pub writes: bool,
    /// The syntax of its argument; empty where it takes none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub argument: String,
    /// Whether each worker has an answer of its own.
    pub by_worker: bool,
    /// Whether tenants may call it about what is theirs, also where the function is the operator's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tenants: bool,
}

/// The argument of a handler that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallArgument {
    /// The value, in the handler's syntax.
    pub value: String,
    /// The worker to call; all where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<usize>,
}

/// The answers of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Answers {
    /// The function.
    pub function: String,
    /// The handler.
    pub handler: String,
    /// One answer for each node and worker; one of the control side where all workers share the state.
    pub answers: Vec<HandlerAnswer>,
}

/// An answer of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandlerAnswer {
    /// The worker; none where the control side answered for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<usize>,
    /// The node.
    pub node: String,
    /// The answer.
    pub value: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number: one more than that of the event before.
    pub number: u64,
    /// Nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// How much it matters.
    pub level: EventLevel,
    /// Its kind: `port-down`, `panic`, `applied` and so on.
    pub kind: String,
    /// The part concerned: a port, a function, a worker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// One sentence.
    pub message: String,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventLevel {
    /// For the record.
    Info,
    /// An operator should look at it.
    Warning,
    /// Packets or state were lost, or a part stopped.
    Error,
}
