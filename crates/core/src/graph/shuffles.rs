//! A graph's shuffles and the order in which packets come to them.
//!
//! Both must be the same on all workers.

use super::Graph;
use crate::shuffle::ShuffleId;

/// A graph's end of a shuffle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuffleEnd {
    /// The node's name.
    pub node: String,
    /// The shuffle.
    pub shuffle: ShuffleId,
    /// The shuffles that its packets may reach.
    pub leads_to: Vec<ShuffleId>,
}

impl Graph {
    /// The graph's ends of shuffles, in the order of adding.
    ///
    /// Workers wait for each other for ever where one of them has no end of a shuffle that others have. They
    /// also do where packets come to two shuffles in one order on one worker and in the other order on
    /// another.
    pub fn shuffle_ends(&mut self) -> Vec<ShuffleEnd> {
        let handoffs = (0..self.slots.len()).filter(|node| self.slots[*node].handoff != 0);
        let ids: Vec<(usize, ShuffleId)> = handoffs
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|node| Some((node, self.handoff(node, |handoff| handoff.id())?)))
            .collect();
        let end = |(node, shuffle): &(usize, ShuffleId)| {
            let slot = &self.slots[*node];
            let reached = ids.iter().filter(|(other, _)| slot.feeds & self.slots[*other].handoff != 0);
            let leads_to = reached.map(|(_, shuffle)| *shuffle).collect();
            ShuffleEnd { node: slot.name.clone(), shuffle: *shuffle, leads_to }
        };
        ids.iter().map(end).collect()
    }
}
