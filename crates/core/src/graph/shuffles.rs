//! A graph's shuffles and the order in which packets come to them.
//!
//! Both must be the same on all workers.

use super::{Graph, Slot};
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
    pub fn shuffle_ends(&self) -> Vec<ShuffleEnd> {
        ends(&self.slots, |slot| {
            slot.ask(&self.panics, self.now(), |node| node.as_handoff().map(|handoff| handoff.id())).flatten()
        })
    }
}

/// The ends of shuffles among connected nodes; `id` asks a node for its shuffle.
pub(super) fn ends(slots: &[Slot], id: impl Fn(&Slot) -> Option<ShuffleId>) -> Vec<ShuffleEnd> {
    let shuffles = slots.iter().filter(|slot| slot.handoff != 0);
    let ids: Vec<(&Slot, ShuffleId)> = shuffles.filter_map(|slot| Some((slot, id(slot)?))).collect();
    let end = |(slot, shuffle): &(&Slot, ShuffleId)| {
        let reached = ids.iter().filter(|(other, _)| slot.feeds & other.handoff != 0);
        let leads_to = reached.map(|(_, shuffle)| *shuffle).collect();
        ShuffleEnd { node: slot.name.clone(), shuffle: *shuffle, leads_to }
    };
    ids.iter().map(end).collect()
}
