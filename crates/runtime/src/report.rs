//! The result of a run as data: by graph, node and worker and in total, and whether packets are conserved.

use std::collections::BTreeMap;

use netbricks_core::graph::{NodeStatus, TableStatus};
use netbricks_core::tables::Counters;
use netbricks_core::tenants::TenantStatus;
use netbricks_core::{CallError, Class, Count, Drops, Graph, NodeCounters, Role, Section, Totals};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::event::{PanicReport, merge};
use crate::shuffles::ShuffleMismatch;

/// One node's counters, of one worker or merged over all.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its graph.
    pub graph: String,
    /// Its name.
    pub node: String,
    /// Its kind, such as `"function"` or `"pcap receive"`.
    pub kind: String,
    /// The account that its packets belong to; 0 is the operator.
    pub owner: u16,
    /// Its role in the counters: `"receive"`, `"function"` or `"transmit"`.
    #[serde(serialize_with = "role")]
    pub role: Role,
    /// Its counters. `dropped` has a count by reason, and `consumed` is separate.
    #[serde(flatten, serialize_with = "node_counters")]
    pub counters: NodeCounters,
}

fn role<S: Serializer>(role: &Role, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match role {
        Role::Receive => "receive",
        Role::Function => "function",
        Role::Transmit => "transmit",
    })
}

fn node_counters<S: Serializer>(counters: &NodeCounters, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("batches", &counters.batches)?;
    map.serialize_entry("arrived", &counters.arrived)?;
    map.serialize_entry("received", &counters.received)?;
    map.serialize_entry("created", &counters.created)?;
    map.serialize_entry("left", &counters.left)?;
    map.serialize_entry("sent", &counters.sent)?;
    map.serialize_entry("handoff_out", &counters.handoff_out)?;
    map.serialize_entry("handoff_in", &counters.handoff_in)?;
    map.serialize_entry("dropped", &by_reason(&counters.drops, false))?;
    map.serialize_entry("consumed", &by_reason(&counters.drops, true))?;
    map.serialize_entry("held", &counters.held)?;
    map.serialize_entry("cycles_a_packet", &counters.cycles_a_packet())?;
    map.serialize_entry("panics", &counters.panics)?;
    map.end()
}

/// Counts by the names of their reasons: of consumed packets, or of dropped ones.
pub fn by_reason(drops: &Drops, consumed: bool) -> BTreeMap<&'static str, Count> {
    drops
        .iter()
        .filter(|(reason, _)| (reason.class() == Class::Consumed) == consumed)
        .map(|(reason, count)| (reason.name(), count))
        .collect()
}

pub(crate) fn totals<S: Serializer>(totals: &Totals, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("received", &totals.received)?;
    map.serialize_entry("created", &totals.created)?;
    map.serialize_entry("sent", &totals.sent)?;
    map.serialize_entry("consumed", &totals.drops.consumed())?;
    map.serialize_entry("held", &totals.held)?;
    map.serialize_entry("handoff_out", &totals.handoff_out)?;
    map.serialize_entry("handoff_in", &totals.handoff_in)?;
    map.serialize_entry("dropped", &by_reason(&totals.drops, false))?;
    map.end()
}

/// A table that a node adds to the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSection {
    /// Its graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// The table. Its section decides how rows of several workers are merged.
    #[serde(flatten)]
    pub section: Section,
}

/// The beginning of a packet that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedHeader {
    /// The node that dropped it.
    pub node: String,
    /// The reason's stable name.
    pub reason: &'static str,
    /// The time of the drop (ns, the graph's clock).
    pub time: u64,
    /// Bytes of the frame.
    pub frame_len: usize,
    /// Its first bytes; hexadecimal in JSON.
    #[serde(serialize_with = "hexadecimal")]
    pub bytes: Vec<u8>,
}

fn hexadecimal<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Hexadecimal(bytes))
}

struct Hexadecimal<'a>(&'a [u8]);

impl std::fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A tenant's use of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantReport {
    /// The tenant.
    pub tenant: String,
    /// Its weight.
    pub weight: u32,
    /// Its strict class.
    pub priority: u8,
    /// The most time that it gets, in thousandths of the worker's time.
    pub ceiling: Option<u32>,
    /// The time that it used (ns).
    pub used_ns: u64,
    /// Slices that it had.
    pub slices: u64,
    /// Slices that took several times as long as slices are.
    pub overruns: u64,
    /// The longest of its slices (ns).
    pub longest_slice_ns: u64,
    /// Times that it waited because of its ceiling.
    pub throttled: u64,
    /// Whether it comes last for a while, because of its overruns.
    pub demoted: bool,
}

impl TenantReport {
    fn of(status: TenantStatus) -> Self {
        let ns = |cycles: u64| {
            let per_us = u128::from(status.cycles_per_us.max(1));
            u64::try_from(u128::from(cycles) * 1_000 / per_us).unwrap_or(u64::MAX)
        };
        Self {
            used_ns: ns(status.cycles),
            longest_slice_ns: ns(status.longest_slice),
            slices: status.slices,
            overruns: status.overruns,
            throttled: status.throttled,
            demoted: status.demoted,
            weight: status.policy.weight,
            priority: status.policy.priority,
            ceiling: status.policy.ceiling,
            tenant: status.policy.name,
        }
    }

    /// Adds the use of another worker.
    fn absorb(&mut self, other: &Self) {
        self.used_ns += other.used_ns;
        self.slices += other.slices;
        self.overruns += other.overruns;
        self.longest_slice_ns = self.longest_slice_ns.max(other.longest_slice_ns);
        self.throttled += other.throttled;
        self.demoted |= other.demoted;
    }
}

/// One worker's copy of a graph.
#[derive(Clone, Debug, Serialize)]
pub struct GraphReport {
    /// Its name.
    pub graph: String,
    /// The sums of its packets.
    #[serde(serialize_with = "totals")]
    pub totals: Totals,
    /// Its nodes, in the order of adding.
    pub nodes: Vec<NodeReport>,
    /// The nodes where packets are not conserved, with numbers; empty when all is well.
    pub unbalanced: Vec<String>,
    /// The tables that its nodes add.
    pub sections: Vec<NodeSection>,
    /// The last dropped packets' headers, newest first.
    pub dropped_headers: Vec<DroppedHeader>,
    /// The tenants' use of the worker, in the order of their owners' numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantReport>,
    /// The tables of its nodes that count their entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableReport>,
}

/// A table of a node: its occupancy and its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// The graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// The owner to whom the node is accounted.
    pub owner: u16,
    /// The table's name.
    pub table: String,
    /// Whether workers share it.
    pub is_shared: bool,
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

impl TableReport {
    fn of(graph: &str, status: TableStatus) -> Self {
        let TableStatus { node, owner, table, is_shared, entries, capacity, counters } = status;
        let Counters { evicted, expired, refused, .. } = counters;
        let graph = graph.to_owned();
        Self { graph, node, owner, table, is_shared, entries, capacity, evicted, expired, refused }
    }

    /// Adds the table of this name on another worker, which is the same one where workers share it.
    fn absorb(&mut self, other: &Self) {
        let shared = self.is_shared;
        let add = |to: &mut u64, from: u64| *to = if shared { from.max(*to) } else { *to + from };
        add(&mut self.entries, other.entries);
        add(&mut self.capacity, other.capacity);
        add(&mut self.evicted, other.evicted);
        add(&mut self.expired, other.expired);
        add(&mut self.refused, other.refused);
    }
}

impl GraphReport {
    /// The report of a graph now, between two batches.
    pub(crate) fn of(graph: &Graph) -> Self {
        let name = graph.name();
        let sections = graph
            .reports()
            .into_iter()
            .flat_map(|(node, sections)| sections.into_iter().map(move |section| (node.clone(), section)))
            .map(|(node, section)| NodeSection { graph: name.to_owned(), node, section })
            .collect();
        Self { sections, ..Self::with_headers(graph) }
    }

    /// The counters of a graph, and the headers of its last dropped packets.
    pub(crate) fn with_headers(graph: &Graph) -> Self {
        let dropped_headers = graph
            .dropped_headers()
            .map(|(node, record)| DroppedHeader {
                node: node.to_owned(),
                reason: record.reason.name(),
                time: record.time,
                frame_len: record.frame_len,
                bytes: record.bytes().to_vec(),
            })
            .collect();
        Self { dropped_headers, ..Self::counters(graph) }
    }

    /// The report of a graph of which nothing is known.
    pub(crate) fn empty(graph: &str) -> Self {
        Self {
            graph: graph.to_owned(),
            totals: Totals::default(),
            nodes: Vec::new(),
            unbalanced: Vec::new(),
            sections: Vec::new(),
            dropped_headers: Vec::new(),
            tenants: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// The counters of a graph now, between two batches.
    pub(crate) fn counters(graph: &Graph) -> Self {
        let name = graph.name().to_owned();
        let nodes: Vec<NodeReport> = graph
            .nodes()
            .map(|NodeStatus { name: node, owner, kind, role, counters }| NodeReport {
                graph: name.clone(),
                node,
                kind,
                owner,
                role,
                counters,
            })
            .collect();
        let totals = graph.totals();
        let unbalanced: Vec<String> = nodes.iter().filter_map(imbalance).collect();
        let tenants = graph.tenants().into_iter().map(TenantReport::of).collect();
        let tables = graph.tables().into_iter().map(|status| TableReport::of(&name, status)).collect();
        let (sections, dropped_headers) = (Vec::new(), Vec::new());
        Self { graph: name, totals, nodes, unbalanced, sections, dropped_headers, tenants, tables }
    }

    /// Checks the sums over all nodes.
    ///
    /// Where a graph has taken over nodes from another, only both together have all of a packet's way.
    pub(crate) fn checked(mut self) -> Self {
        let totals = &self.totals;
        if !totals.is_conserved() {
            self.unbalanced.push(format!(
                "`{}` as a whole: {} received + {} created + {} handed in, but {} sent + {} handed off + {} dropped + {} consumed + {} held",
                self.graph,
                totals.received.packets,
                totals.created.packets,
                totals.handoff_in.packets,
                totals.sent.packets,
                totals.handoff_out.packets,
                totals.drops.dropped().packets,
                totals.drops.consumed().packets,
                totals.held
            ));
        }
        self
    }
}

fn imbalance(node: &NodeReport) -> Option<String> {
    let counters = &node.counters;
    (!counters.is_conserved()).then(|| {
        format!(
            "`{}` of `{}`: {} received + {} created + {} arrived + {} handed in, but {} left + {} sent + {} handed off + {} dropped + {} consumed + {} held",
            node.node,
            node.graph,
            counters.received.packets,
            counters.created.packets,
            counters.arrived.packets,
            counters.handoff_in.packets,
            counters.left.packets,
            counters.sent.packets,
            counters.handoff_out.packets,
            counters.drops.dropped().packets,
            counters.drops.consumed().packets,
            counters.held
        )
    })
}

/// Reports of one kind that are merged by a key, in the order in which they came.
struct Merged<K, T> {
    places: BTreeMap<K, usize>,
    all: Vec<T>,
    merge: fn(&mut T, &T),
}

impl<K: Ord, T: Clone> Merged<K, T> {
    fn new(merge: fn(&mut T, &T)) -> Self {
        Self { places: BTreeMap::new(), all: Vec::new(), merge }
    }

    fn add(&mut self, key: K, report: &T) {
        match self.places.get(&key) {
            Some(place) => (self.merge)(&mut self.all[*place], report),
            None => {
                self.places.insert(key, self.all.len());
                self.all.push(report.clone());
            }
        }
    }
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: usize,
    /// The core that it was bound to.
    pub core: Option<usize>,
    /// Its graphs, removed and replaced ones included (their counters only).
    pub graphs: Vec<GraphReport>,
    /// The changes after which it was made, while nodes that are gone are missing.
    #[serde(skip)]
    pub(crate) retired: Option<u64>,
    /// Turns that its graphs had.
    pub turns: u64,
    /// Times that it went to sleep in the kernel.
    pub sleeps: u64,
    /// Processor time that it used, in seconds.
    pub cpu_seconds: f64,
    /// Its contained panics.
    pub panics: Vec<PanicReport>,
    /// The fault of the runtime that ended it, if it did not end normally.
    pub failure: Option<String>,
    /// The reason why it ended a run before its sources had ended: they waited for buffers, and none came
    /// back.
    pub gave_up: Option<String>,
    /// Nodes that could not do their work, and why.
    pub failed_nodes: Vec<String>,
}

/// All workers at one moment (each between two of its batches).
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// The sums of packets over all workers.
    #[serde(serialize_with = "totals")]
    pub totals: Totals,
    /// Nodes by graph and name, merged over workers.
    pub nodes: Vec<NodeReport>,
    /// The tables that nodes add, merged over workers.
    pub sections: Vec<NodeSection>,
    /// Contained panics by node and place, merged over workers.
    pub panics: Vec<PanicReport>,
    /// The places where packets are not conserved, with the worker.
    pub unbalanced: Vec<String>,
    /// The tenants, added up over workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantReport>,
    /// The tables of nodes that count their entries, merged over workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableReport>,
    /// The workers.
    pub workers: Vec<WorkerReport>,
}

impl Snapshot {
    /// The reports of all workers together.
    pub fn of(workers: Vec<WorkerReport>) -> Self {
        let mut totals = Totals::default();
        let mut nodes = Merged::new(|known: &mut NodeReport, node| known.counters.merge(&node.counters));
        let mut sections =
            Merged::new(|known: &mut NodeSection, section| known.section.absorb(&section.section));
        let mut tenants = Merged::new(TenantReport::absorb);
        let mut tables = Merged::new(TableReport::absorb);
        let (mut panics, mut unbalanced) = (Vec::new(), Vec::new());
        for worker in &workers {
            for graph in &worker.graphs {
                totals.merge(&graph.totals);
                graph.nodes.iter().for_each(|node| nodes.add((&node.graph, &node.node), node));
                for of in &graph.sections {
                    sections.add((&of.graph, &of.node, &of.section.title, &of.section.columns), of);
                }
                graph.tenants.iter().for_each(|tenant| tenants.add(&tenant.tenant, tenant));
                for table in &graph.tables {
                    tables.add((&table.graph, &table.node, &table.table), table);
                }
                let wrong = graph.unbalanced.iter().map(|what| format!("worker {}, {what}", worker.worker));
                unbalanced.extend(wrong);
            }
            worker.panics.iter().for_each(|panic| merge(&mut panics, panic.clone()));
        }
        let (nodes, sections, tenants, tables) = (nodes.all, sections.all, tenants.all, tables.all);
        Self { totals, nodes, sections, panics, unbalanced, tenants, tables, workers }
    }
}

/// The result of a run, after drain.
#[derive(Clone, Debug, Serialize)]
pub struct FinalReport {
    /// The sums, nodes, sections, panics and workers.
    #[serde(flatten)]
    pub state: Snapshot,
    /// Whether packets are conserved and no worker failed.
    ///
    /// Received + created = sent + dropped + consumed + held must hold at every node of every worker, and in
    /// total.
    pub conserved: bool,
    /// Whether every frame is back in the pool.
    pub pool_whole: bool,
    /// Frames in the pool now.
    pub pool_available: usize,
    /// Frames that the pool has.
    pub pool_capacity: usize,
    /// How long the workers ran, in seconds.
    pub seconds: f64,
}

impl std::ops::Deref for FinalReport {
    type Target = Snapshot;
    fn deref(&self) -> &Snapshot {
        &self.state
    }
}

/// The result of a replacement.
#[derive(Clone, Debug, Serialize)]
pub struct Replaced {
    /// The graph that took over.
    pub graph: String,
    /// Declared state that moved across: `"monitor: flows"`.
    pub moved: Vec<String>,
    /// Declared state that did not fit, with the reason.
    pub refused: Vec<String>,
    /// Bytes of declared state that were copied, by the node that has it now.
    ///
    /// State that went on as it is has none.
    pub copied: BTreeMap<String, u64>,
    /// The counters of the old graph.
    pub old: GraphReport,
}

/// A call of the control side that failed. The running graphs continue.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such worker.
    #[error("there is no worker {worker}: there are {workers}, from 0")]
    NoWorker {
        /// The requested worker.
        worker: usize,
        /// The number of workers.
        workers: usize,
    },
    /// The worker has ended.
    #[error("worker {worker} has ended: its graphs' sources did, or the run was stopped")]
    Ended {
        /// The worker.
        worker: usize,
    },
    /// The worker did not answer in time.
    #[error(
        "worker {worker} did not answer within {seconds:.1} s: a function that never returns holds it; it is not interrupted"
    )]
    NoAnswer {
        /// The worker.
        worker: usize,
        /// The time that was waited for it.
        seconds: f64,
    },
    /// The worker came to the call only after its deadline, and did nothing.
    #[error("worker {worker} was busy until after the deadline, and did nothing")]
    TooLate {
        /// The worker.
        worker: usize,
    },
    /// There are as many watches as there may be.
    #[error("{watches} traces and captures run already: end one of them first")]
    TooManyWatches {
        /// How many there may be.
        watches: usize,
    },
    /// No such graph.
    #[error("worker {worker} runs no graph `{graph}`; it runs: {known}")]
    NoGraph {
        /// The worker.
        worker: usize,
        /// The requested graph.
        graph: String,
        /// The graphs that it runs.
        known: String,
    },
    /// A graph of that name runs.
    #[error(
        "worker {worker} runs a graph `{graph}` already: replace or remove it, or name the new one otherwise"
    )]
    NameTaken {
        /// The worker.
        worker: usize,
        /// The name.
        graph: String,
    },
    /// The new graph could not be made.
    #[error("worker {worker} could not make the graph: {problem}")]
    Build {
        /// The worker.
        worker: usize,
        /// The factory's error, or the message of its panic.
        problem: String,
    },
    /// A change of one worker alone for a graph that exchanges packets with other workers.
    #[error(
        "worker {worker}: graph `{graph}` has the shuffle `{shuffle}`, by which it and the other workers' exchange packets: \
         install, replace or remove it on all of them at once (`install_all`, `replace_all`, `remove_all`)"
    )]
    Alone {
        /// The worker.
        worker: usize,
        /// The graph.
        graph: String,
        /// The first of its shuffles.
        shuffle: String,
    },
    /// The workers' new graphs exchange packets, and do not fit together.
    #[error(transparent)]
    Shuffles(#[from] ShuffleMismatch),
    /// The worker's graph has no such node: no packet reaches it there.
    #[error("worker {worker} has no node `{node}`")]
    NoNode {
        /// The worker.
        worker: usize,
        /// The node.
        node: String,
    },
    /// The handler refused.
    #[error("worker {worker}, graph `{graph}`, node `{node}`: {error}")]
    Call {
        /// The worker.
        worker: usize,
        /// The graph.
        graph: String,
        /// The node.
        node: String,
        /// The reason.
        error: CallError,
    },
    /// The called code panicked.
    #[error("worker {worker}: the call panicked: {message}")]
    Panicked {
        /// The worker.
        worker: usize,
        /// The message of the panic.
        message: String,
    },
}
