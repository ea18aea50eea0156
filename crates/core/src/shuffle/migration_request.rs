//! Requests of a shuffle to its graph, which alone reaches the state of the nodes behind it.

use std::sync::Arc;

use super::key::ShuffleKey;
use super::key::{BUCKETS, Buckets};
use crate::node::StateImage;
use crate::state::TableKey;

/// The part of a shuffle's buckets that moves to another worker.
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
    /// The key of the shuffle.
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
    /// The number of the current state, and the place in it.
    pub(crate) state: usize,
    pub(crate) place: usize,
    over: bool,
}

impl PartStep {
    /// Says that no more state of this node moves.
    pub fn end(&mut self) {
        self.over = true;
    }
    /// Whether no more state of this node moves.
    pub fn is_over(&self) -> bool {
        self.over
    }
    /// Whether it is in the middle of a state.
    pub(crate) fn is_within(&self) -> bool {
        self.place > 0
    }
    /// Goes on to this place of the state, or to the next state; there are `states`.
    pub(crate) fn go_on(&mut self, place: Option<usize>, states: usize) {
        self.state += usize::from(place.is_none());
        self.place = place.unwrap_or(0);
        self.over = self.state >= states;
    }
}

/// The identity of a shuffle in a group: the nodes of all workers answer the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShuffleId(pub(crate) usize);

impl ShuffleId {
    /// The identity of nodes that share this state.
    ///
    /// The state must live as long as the nodes' group, as that of [`WorkerGroup::shared`](crate::WorkerGroup::shared)
    /// does.
    pub fn of<T>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared) as usize)
    }
}

/// A node that exchanges packets with its copies on other workers.
pub trait Handoff {
    /// The shuffle of which it is an end.
    fn id(&self) -> ShuffleId;
    /// The key by which it sorts packets. State behind it must follow that key to move with them.
    fn key(&self) -> ShuffleKey;
    /// Tells the shuffle once, when the graph is built, about state behind it that cannot move with its packets.
    ///
    /// `upstream` is the number of other shuffles from which packets come to it.
    fn bound(&mut self, state: Vec<BoundState>, upstream: usize);
    /// Says that no more packets come to it on this worker, except from other workers.
    fn close(&mut self);
    /// The next request to the graph.
    fn migration_request(&mut self) -> Option<MigrationRequest>;
    /// Whether it will still ask to give state to this worker, in a move that is known.
    fn is_to_give(&self, to: usize) -> bool;
    /// Whether it will still ask to take state from this worker, in a move that is known.
    fn is_to_take(&self, from: usize) -> bool;
    /// Passes the state that [`MigrationRequest::Give`] asked for: node, name, bytes.
    ///
    /// It may come later, since other shuffles that lead to the same state must be ready too.
    fn given(&mut self, to: usize, images: Vec<(String, StateImage)>);
    /// Says that the state of [`MigrationRequest::Take`] is in place, except for this many images that were
    /// refused.
    fn took(&mut self, from: usize, refused: usize);
}

/// State that cannot move with its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundState {
    /// The function that declared it.
    pub node: String,
    /// The state's name.
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
