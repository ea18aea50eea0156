//! Counters of nodes that are gone, added up on the control side.
//!
//! A worker hands each node in once, when it goes. So its own reports take no longer, however many there were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netbricks_core::Role;

use crate::report::{GraphReport, NodeReport, WorkerReport};

/// The changes of a worker that reports under way may be older than.
const RECENT: usize = 32;
/// Nodes by name. Those beyond are added up under [`GONE`].
const NODES: usize = 4_096;
/// Places where packets were not conserved.
const UNBALANCED: usize = 64;
/// The name of the sum of nodes beyond [`NODES`]. No node of a file can have it.
const GONE: &str = "(gone)";

/// The nodes that are gone from one worker.
#[derive(Default)]
pub(crate) struct Retired {
    /// Handed in by the worker, each with its number.
    incoming: Mutex<Vec<(u64, GraphReport)>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By graph and node.
    nodes: BTreeMap<String, BTreeMap<String, NodeReport>>,
    count: usize,
    unbalanced: Vec<(String, String)>,
    /// The last ones, which older reports do not count yet.
    recent: VecDeque<(u64, GraphReport)>,
}

/// No value under these locks can be half-written, so poison is ignored.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retired {
    /// Takes the nodes of a graph; their number counts the worker's changes so far.
    pub(crate) fn hand_in(&self, number: u64, report: GraphReport) {
        lock(&self.incoming).push((number, report));
    }

    /// Adds up what was handed in, but for the last ones.
    pub(crate) fn add_up(&self) {
        drop(self.known());
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = lock(&self.known);
        // The worker waits for no more than this exchange.
        let incoming = std::mem::take(&mut *lock(&self.incoming));
        known.recent.extend(incoming);
        while known.recent.len() > RECENT {
            let Some((_, report)) = known.recent.pop_front() else { break };
            known.add(report);
        }
        known
    }

    /// Adds the nodes that were gone when the worker made the report.
    pub(crate) fn complete(&self, report: &mut WorkerReport) {
        let Some(number) = report.retired.take() else { return };
        let known = self.known();
        for graph in &mut report.graphs {
            let mut places: BTreeMap<String, usize> =
                graph.nodes.iter().enumerate().map(|(place, node)| (node.node.clone(), place)).collect();
            let earlier = known.nodes.get(&graph.graph).into_iter().flat_map(BTreeMap::values);
            let recent = known.recent.iter().filter(|(of, _)| *of <= number).map(|(_, report)| report);
            let recent = recent.filter(|report| report.graph == graph.graph);
            let nodes = earlier.chain(recent.clone().flat_map(|report| &report.nodes));
            for node in nodes {
                match places.get(&node.node) {
                    Some(place) => graph.nodes[*place].counters.merge(&node.counters),
                    None => {
                        places.insert(node.node.clone(), graph.nodes.len());
                        graph.nodes.push(node.clone());
                    }
                }
            }
            let unbalanced = known.unbalanced.iter().filter(|(of, _)| *of == graph.graph);
            graph.unbalanced.extend(unbalanced.map(|(_, what)| what.clone()));
            graph.unbalanced.extend(recent.flat_map(|report| report.unbalanced.iter().cloned()));
        }
    }
}

impl Known {
    fn add(&mut self, report: GraphReport) {
        let of_graph = self.nodes.entry(report.graph.clone()).or_default();
        for mut node in report.nodes {
            if self.count >= NODES && !of_graph.contains_key(&node.node) {
                node = NodeReport { node: GONE.into(), kind: "gone".into(), role: Role::Function, ..node };
            }
            match of_graph.get_mut(&node.node) {
                Some(known) => known.counters.merge(&node.counters),
                None => {
                    self.count += 1;
                    of_graph.insert(node.node.clone(), node);
                }
            }
        }
        let left = UNBALANCED.saturating_sub(self.unbalanced.len());
        let unbalanced = report.unbalanced.into_iter().take(left);
        self.unbalanced.extend(unbalanced.map(|what| (report.graph.clone(), what)));
    }
}
