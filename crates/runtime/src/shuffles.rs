//! Checks whether workers' graphs fit together: each has an end of every shuffle, in the same order.
//!
//! Packets must come to the shuffles in one order on all workers. Otherwise an end from which no worker takes
//! packets blocks the others, or workers wait for each other.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use netbricks_core::graph::ShuffleEnd;
use netbricks_core::shuffle::ShuffleId;

/// The reason why workers' graphs cannot exchange packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShuffleMismatch {
    /// A worker has no end of a shuffle.
    #[error(
        "worker {lacks} has no end of shuffle `{shuffle}`, which worker {has} has: no worker would take the packets that belong \
         to worker {lacks}; make every worker's graph with a node of the same shuffle, a clone of one `Shuffle`, also where \
         it receives nothing itself"
    )]
    Missing {
        /// The name of the node that has an end.
        shuffle: String,
        /// A worker that has an end of it.
        has: usize,
        /// The first worker that has none.
        lacks: usize,
    },
    /// Packets come to shuffles in different orders.
    #[error(
        "packets come to the workers' shuffles in different orders, so that workers could wait for each other for ever: {way}; \
         connect them in one order on all workers"
    )]
    Order {
        /// The cycle of shuffles.
        way: ShuffleWay,
    },
}

/// A path from shuffle to shuffle that returns to its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuffleWay(Vec<Step>);

/// A step from one shuffle to the next, with a worker's names for them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    worker: usize,
    from: String,
    to: String,
}

impl fmt::Display for ShuffleWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Step { worker, from, to }) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}from `{from}` to `{to}` on worker {worker}")?;
        }
        Ok(())
    }
}

/// Compares the ends of shuffles of each worker's graphs, by worker.
pub(crate) fn compare(workers: &[Vec<ShuffleEnd>]) -> Result<(), ShuffleMismatch> {
    for (has, ends) in workers.iter().enumerate() {
        for end in ends {
            let knows = |ends: &Vec<ShuffleEnd>| ends.iter().any(|other| other.shuffle == end.shuffle);
            if let Some(lacks) = workers.iter().position(|ends| !knows(ends)) {
                return Err(ShuffleMismatch::Missing { shuffle: end.node.clone(), has, lacks });
            }
        }
    }
    // Each step from one shuffle to another, with a worker that has it.
    let mut steps: BTreeMap<ShuffleId, BTreeMap<ShuffleId, usize>> = BTreeMap::new();
    for (worker, ends) in workers.iter().enumerate() {
        for end in ends {
            let from = steps.entry(end.shuffle).or_default();
            for to in &end.leads_to {
                from.entry(*to).or_insert(worker);
            }
        }
    }
    match steps.keys().filter_map(|shuffle| way_back(*shuffle, &steps)).min_by_key(Vec::len) {
        None => Ok(()),
        Some(way) => {
            let name = |worker: usize, shuffle: ShuffleId| {
                let end = workers[worker].iter().find(|end| end.shuffle == shuffle);
                end.map(|end| end.node.clone()).unwrap_or_default()
            };
            let step = |(worker, from, to)| Step { worker, from: name(worker, from), to: name(worker, to) };
            Err(ShuffleMismatch::Order { way: ShuffleWay(way.into_iter().map(step).collect()) })
        }
    }
}

/// The shortest path from a shuffle back to it: the worker, the start and the end of each step.
fn way_back(
    shuffle: ShuffleId,
    steps: &BTreeMap<ShuffleId, BTreeMap<ShuffleId, usize>>,
) -> Option<Vec<(usize, ShuffleId, ShuffleId)>> {
    // For each shuffle, the step by which it was reached first.
    let mut before: BTreeMap<ShuffleId, (usize, ShuffleId)> = BTreeMap::new();
    let mut reached = VecDeque::from([shuffle]);
    while let Some(here) = reached.pop_front() {
        for (to, worker) in steps.get(&here)? {
            if !before.contains_key(to) {
                before.insert(*to, (*worker, here));
                reached.push_back(*to);
            }
        }
    }
    let mut way = Vec::new();
    let mut to = shuffle;
    loop {
        let (worker, from) = *before.get(&to)?;
        way.insert(0, (worker, from, to));
        if from == shuffle {
            return Some(way);
        }
        to = from;
    }
}
