//! Whether workers' graphs fit together: each has an end of every shuffle, and packets come to these in one order everywhere.
//! Where it is otherwise, one that nobody takes packets from keeps the others waiting, or they wait for each other.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use netbricks_core::graph::ShuffleEnd;
use netbricks_core::shuffle::ShuffleId;

/// Why workers' graphs cannot exchange packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShuffleMismatch {
    /// A worker has no end of a shuffle.
    #[error(
        "worker {lacks} has no end of shuffle `{shuffle}`, which worker {has} has: nobody would take the packets that belong \
         to worker {lacks}; make every worker's graph with a node of the same shuffle, a clone of one `Shuffle`, also where \
         it receives nothing itself"
    )]
    Missing {
        /// The node's name where there is one.
        shuffle: String,
        /// A worker that has an end of it.
        has: usize,
        /// The first that has none.
        lacks: usize,
    },
    /// Packets come to shuffles in different orders.
    #[error(
        "packets come to the workers' shuffles in different orders, so that workers could wait for each other for ever: {way}; \
         connect them in one order on all workers"
    )]
    Order {
        /// The way round.
        way: ShuffleWay,
    },
}

/// A way from shuffle to shuffle that comes back to where it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuffleWay(Vec<Step>);

/// From one shuffle to the next, as a worker names them.
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

/// Compares what graphs of each worker have, by worker.
pub(crate) fn compare(workers: &[Vec<ShuffleEnd>]) -> Result<(), ShuffleMismatch> {
    for (has, ends) in workers.iter().enumerate() {
        for end in ends {
            let knows = |ends: &Vec<ShuffleEnd>| ends.iter().any(|other| other.shuffle == end.shuffle);
            if let Some(lacks) = workers.iter().position(|ends| !knows(ends)) {
                return Err(ShuffleMismatch::Missing { shuffle: end.node.clone(), has, lacks });
            }
        }
    }
    // Each step from one to another, with a worker on which it is.
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

/// The shortest way from a shuffle back to it: on which worker, from where and to where.
fn way_back(
    shuffle: ShuffleId,
    steps: &BTreeMap<ShuffleId, BTreeMap<ShuffleId, usize>>,
) -> Option<Vec<(usize, ShuffleId, ShuffleId)>> {
    // By shuffle: from where it was reached first.
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
