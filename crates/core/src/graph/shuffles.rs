//! Which shuffles a graph has an end of, and in which order packets come to them: what has to be alike on all workers.

use super::Graph;
use crate::shuffle::ShuffleId;

/// A graph's end of a shuffle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuffleEnd {
    /// The node's name.
    pub node: String,
    /// Which shuffle it is.
    pub shuffle: ShuffleId,
    /// Those that its packets may come to.
    pub leads_to: Vec<ShuffleId>,
}

impl Graph {
    /// Its ends of shuffles, in the order of adding. Workers wait for each other for ever where one of them has no end of a
    /// shuffle that others have, or where packets come to two of them in one order here and in the other order there.
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
