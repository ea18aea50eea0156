//! Requests of a shuffle to its graph, which alone reaches the state of the nodes behind it.

use super::key::ShuffleKey;
use super::key::{BUCKETS, Buckets};
use crate::node::StateImage;
use crate::state::TableKey;

/// Some of the buckets of a shuffle: what moves to another worker.
#[derive(Clone, Debug)]
pub struct Part {
    buckets: Buckets,
    chosen: Box<[bool; BUCKETS]>,
}

impl Part {
    pub(crate) fn new(buckets: Buckets, chosen: impl IntoIterator<Item = u16>) -> Self {
        let mut part = Self { buckets, chosen: Box::new([false; BUCKETS]) };
        for bucket in chosen {
            part.chosen[usize::from(bucket) % BUCKETS] = true;
        }
        part
    }
    /// By what the shuffle sorts.
    pub fn key(&self) -> ShuffleKey {
        self.buckets.by
    }
    /// Whether the entry of this key moves.
    pub fn holds(&self, key: impl TableKey) -> bool {
        self.buckets.of_entry(key).is_some_and(|bucket| self.chosen[usize::from(bucket)])
    }
}

/// Progress through a node's state for a move.
///
/// Each call takes a bounded piece, so that other packets go on in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartStep {
    /// Which of its states, and where in it.
    pub(crate) state: usize,
    pub(crate) place: usize,
    over: bool,
}

impl PartStep {
    /// Nothing more of this node moves.
    pub fn end(&mut self) {
        self.over = true;
    }
    /// Whether nothing more of it does.
    pub fn is_over(&self) -> bool {
        self.over
    }
    /// Whether it is in the middle of a state.
    pub(crate) fn is_within(&self) -> bool {
        self.place > 0
    }
    /// On to this place of the state, or to the next state; there are `states`.
    pub(crate) fn go_on(&mut self, place: Option<usize>, states: usize) {
        self.state += usize::from(place.is_none());
        self.place = place.unwrap_or(0);
        self.over = self.state >= states;
    }
}

/// Which shuffle of a group: all workers' nodes of one answer the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShuffleId(pub(crate) usize);

/// A node that exchanges packets with its copies on other workers.
pub trait Handoff {
    /// Which it is an end of.
    fn id(&self) -> ShuffleId;
    /// By what it sorts packets: what state behind it must go by to move with them.
    fn key(&self) -> ShuffleKey;
    /// Tells the shuffle once, when the graph is built, about state behind it that cannot move with its packets.
    ///
    /// `upstream` is the number of other shuffles from which packets come to it.
    fn bound(&mut self, state: Vec<BoundState>, upstream: usize);
    /// Nothing comes to it on this worker any more but from other workers.
    fn close(&mut self);
    /// The next request to the graph.
    fn migration_request(&mut self) -> Option<MigrationRequest>;
    /// Whether a move is known for which it will ask to give state to this worker, and has not yet.
    fn is_to_give(&self, to: usize) -> bool;
    /// Whether a move is known for which it will ask to take state from this worker, and has not yet.
    fn is_to_take(&self, from: usize) -> bool;
    /// Passes the state that [`MigrationRequest::Give`] asked for: node, name, bytes.
    ///
    /// It may come later, since other shuffles that lead to the same state must be done with it, too.
    fn given(&mut self, to: usize, images: Vec<(String, StateImage)>);
    /// The state of [`MigrationRequest::Take`] is in place, but for so many images that were refused.
    fn took(&mut self, from: usize, refused: usize);
}

/// State that cannot move with its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundState {
    /// The function that declared it.
    pub node: String,
    /// Its name there.
    pub state: String,
}

/// A request of a shuffle to its graph.
#[derive(Debug)]
pub enum MigrationRequest {
    /// Take this part out of the state of all nodes behind the shuffle: worker `to` has its packets now.
    Give {
        /// The new owner.
        to: usize,
        /// The moving part.
        part: Part,
    },
    /// Add this state to that of the nodes that it names.
    Take {
        /// The old owner.
        from: usize,
        /// Node, name, bytes.
        images: Vec<(String, StateImage)>,
    },
}
