//! Nodes that queue packets until their turn.
//!
//! An empty queue counts as idle. Nodes that lead to a full queue may wait for it. Only they bring no more
//! packets in a turn than the queue has room for.

use std::cmp::Reverse;

use netbricks_buffer::BATCH;

use super::{Graph, Slot};

/// The first bit for queues, from the top; bits of shuffles begin at the bottom.
const TOP: u64 = 1 << 63;

/// Gives each queue a bit, as far as shuffles leave any, and determines which nodes fill which queues.
///
/// Queues that share the last bit are full together: a node that leads to one of them waits for the other as
/// well. Answers the bits by node.
pub(super) fn connect(slots: &mut [Slot]) -> Vec<u64> {
    let taken = slots.iter().fold(0, |taken, slot| taken | slot.handoff);
    let mut next = TOP;
    let mut bits = vec![0; slots.len()];
    for (bit, _) in bits.iter_mut().zip(slots.iter()).filter(|(_, slot)| slot.queue.is_some()) {
        if next & taken == 0 {
            *bit = next;
        }
        if next > 1 && next >> 1 & taken == 0 {
            next >>= 1;
        }
    }
    if slots.iter().all(|slot| slot.queue.is_none()) {
        return Vec::new();
    }
    let reached: Vec<Vec<usize>> = (0..slots.len()).map(|node| reached_from(node, slots)).collect();
    let rooms: Vec<Option<usize>> = slots.iter().map(|slot| slot.queue).collect();
    for (slot, ahead) in slots.iter_mut().zip(&reached) {
        // A queue decides by its own burst whether it has room for another.
        let room =
            ahead.iter().filter_map(|ahead| rooms[*ahead]).chain(slot.queue).min().unwrap_or(usize::MAX);
        slot.most = room.clamp(1, BATCH);
    }
    for (node, slot) in slots.iter_mut().enumerate() {
        let ahead = reached[node].iter().filter(|ahead| !reached[**ahead].contains(&node));
        // A node that waited for a node that waits for it would wait for ever.
        slot.fills = ahead.fold(0, |fills, ahead| fills | bits[*ahead]) & !bits[node];
    }
    bits
}

/// The nodes that a node's packets may reach.
fn reached_from(node: usize, slots: &[Slot]) -> Vec<usize> {
    let mut reached: Vec<usize> = Vec::new();
    let mut here = Some(node);
    let mut next = 0;
    while let Some(from) = here {
        for target in slots[from].targets.iter().flatten() {
            if !reached.contains(&target.node) {
                reached.push(target.node);
            }
        }
        here = reached.get(next).copied();
        next += 1;
    }
    reached
}

impl Graph {
    /// Makes a queue ready that was empty, before the source that filled it.
    ///
    /// So packets that a source brings in one turn leave before its next turn. They do not wait as long as
    /// idle nodes do.
    pub(super) fn wake_queue(&mut self, node: usize) {
        if std::mem::take(&mut self.slots[node].asleep) {
            self.make_ready(node);
        } else if let Some(place) = self.idle.iter().position(|idle| *idle == node) {
            self.idle.remove(place);
            self.make_ready(node);
        } else {
            self.wake_sleeper(node);
        }
    }

    /// Has a node that waits for a time be ready; one that is idle is asked in its turn.
    pub(super) fn wake_sleeper(&mut self, node: usize) {
        if std::mem::take(&mut self.slots[node].asleep) {
            self.make_ready(node);
        } else if self.sleeping.iter().any(|Reverse((_, sleeper))| *sleeper == node) {
            self.sleeping.retain(|Reverse((_, sleeper))| *sleeper != node);
            self.make_ready(node);
        }
    }

    fn make_ready(&mut self, node: usize) {
        if self.tenants.is_some() && self.slots[node].owner > 0 {
            return self.push_ready(node);
        }
        let filler = self.ready.back() == Some(&self.polled);
        self.ready.insert(self.ready.len() - usize::from(filler), node);
    }
}
