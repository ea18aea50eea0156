//! Shuffle: packets go to the worker that owns their flow (NetBricks, section 3.1).
//!
//! A key puts every packet into one of 4,096 buckets, and a table says which worker owns each. Packets of
//! this worker's own buckets stay. The rest cross to their owner in batches, through a ring with one producer
//! and one consumer for each pair of workers. There are as many branches as workers, a number that is not
//! known when a function is compiled. Packets of a flow keep their order, also while their bucket moves to
//! another owner.
//!
//! Read in this order: `key` (buckets), `owner_table` (owners), `shared` (state that the workers share),
//! `node` (a worker's part), `migration` (how a bucket changes its owner).

mod key;
mod migration;
mod migration_request;
mod node;
mod owner_table;
mod shared;
mod sorter;

use netbricks_packet::stack::Root;

pub use key::{BUCKETS, PacketPart, ShuffleKey};
pub use migration_request::{BoundState, Handoff, MigrationRequest, Part, PartStep, ShuffleId};
pub use shared::MoveError;

use crate::node::Node;
use crate::operator::{Input, Operator};
use crate::state::TableKey;
use crate::view::View;
use crate::worker::{BuildError, Worker};
use crate::worker_group::SharedSlot;
use node::ShuffleNode;
use shared::ShuffleShared;
use sorter::{Classified, Parted, Predefined};

pub(crate) use key::Buckets;
pub(crate) use owner_table::OwnerTable;
pub(crate) use sorter::{Classified as SortedBy, Predefined as SortedByKey, Sorter, sorters_state};

/// The fate of a packet when the ring to its owner is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The packet waits, and nothing on this worker that leads to the shuffle is polled until there is room.
    ///
    /// Packets from other workers are still taken, so that two workers with full rings to each other both go
    /// on.
    ///
    /// At most 2,048 packets wait for one ring. Beyond that they are dropped as
    /// [`RingFull`](crate::DropReason::RingFull) here too. Received packets never exceed this, since
    /// receiving stops first. Packets that functions make from them may, and so may packets of events, which
    /// run on time in any case.
    #[default]
    Wait,
    /// The packet is dropped as [`RingFull`](crate::DropReason::RingFull).
    Drop,
}

/// The configuration of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuffleConfig {
    /// The key that decides the bucket.
    pub key: ShuffleKey,
    /// The fate of packets when a ring is full.
    pub full: WhenFull,
    /// Packets that each ring holds; rounded up to a power of two.
    pub ring: usize,
}

impl ShuffleConfig {
    /// The numbers of packets that a ring may be asked to hold.
    pub const RING: std::ops::RangeInclusive<usize> = shared::RING;
}

impl Default for ShuffleConfig {
    fn default() -> Self {
        Self { key: ShuffleKey::default(), full: WhenFull::default(), ring: 1_024 }
    }
}

/// A shuffle; each worker has a node of it.
///
/// ```
/// use netbricks_core::buffer::Pool;
/// use netbricks_core::packet::{Ip, Link};
/// use netbricks_core::view::{Enclosing, IpRewrite};
/// use netbricks_core::{Blueprint, Operator, Shuffle, ShuffleConfig, Worker};
///
/// // By a predefined key: both directions of a flow come to one worker.
/// let shuffle = Shuffle::new(ShuffleConfig::default());
/// let by_flow = Blueprint::new(move |worker| shuffle.node(worker));
///
/// // By what a function of one's own says: here, the upper half of the source address.
/// let shuffle = Shuffle::new(ShuffleConfig::default());
/// let by_network = Blueprint::new(move |worker| {
///     shuffle.node_by(
///         worker,
///         |input| input.parse::<Link>().parse::<Ip>(),
///         |packet| (packet.flow_key().words()[1] >> 16) as u32,
///     )
/// });
///
/// // A group of one keeps everything.
/// let worker = Worker::new(0, 1, Pool::builder().frames(64).build()?);
/// assert_eq!(by_flow.build(&worker)?.shape().kind, "shuffle");
/// assert_eq!(by_network.build(&worker)?.shape().kind, "shuffle");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Shuffle {
    config: ShuffleConfig,
    place: SharedSlot,
}

impl Shuffle {
    /// A separate shuffle: only nodes made from it, or from its clones, exchange packets.
    pub fn new(config: ShuffleConfig) -> Self {
        Self { config, place: SharedSlot::default() }
    }

    /// A worker's node, by the key of the configuration.
    ///
    /// # Errors
    /// When this worker already has its node, or the group is too large.
    pub fn node(&self, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
        let shared = self.shared(worker)?;
        let sorter = Predefined(shared.buckets().clone());
        Ok(Box::new(ShuffleNode::new(Box::new(sorter), shared, worker.index())?))
    }

    /// A worker's node that parses packets by `function` and shuffles by the answer of `key`.
    ///
    /// Equal answers come to one worker. Packets that the function drops or sends elsewhere leave before the shuffle.
    /// Packets that it lets pass unparsed (`parse` with the policy `Verdict::PASS`) are all in one bucket.
    ///
    /// # Errors
    /// As [`node`](Self::node), and errors of the function's declared state.
    pub fn node_by<F, K, Q>(
        &self,
        worker: &Worker,
        function: impl FnOnce(Input) -> F,
        mut key: K,
    ) -> Result<Box<dyn Node>, BuildError>
    where
        F: Operator<In = Root>,
        Q: TableKey,
        K: FnMut(&View<'_, F::Out>) -> Q + 'static,
    {
        let own = Self { config: ShuffleConfig { key: ShuffleKey::Own, ..self.config }, ..self.clone() };
        let shared = own.shared(worker)?;
        let buckets = shared.buckets().clone();
        let place = move |packet: &View<'_, F::Out>| buckets.of_key(key(packet));
        let sorter = Classified::new(worker, function, place)?;
        Ok(Box::new(ShuffleNode::new(Box::new(sorter), shared, worker.index())?))
    }

    /// A worker's node that shuffles by the part of a function's state that packets need.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn node_parted(&self, worker: &Worker, part: &PacketPart) -> Result<Box<dyn Node>, BuildError> {
        let own = Self { config: ShuffleConfig { key: ShuffleKey::Own, ..self.config }, ..self.clone() };
        let shared = own.shared(worker)?;
        let sorter = Parted { buckets: shared.buckets().clone(), part: part.clone() };
        Ok(Box::new(ShuffleNode::new(Box::new(sorter), shared, worker.index())?))
    }

    fn shared(&self, worker: &Worker) -> Result<std::sync::Arc<ShuffleShared>, BuildError> {
        let (group, seed) = (worker.group(), worker.seed());
        let workers = group.workers();
        let shared = group.shared(&self.place, || {
            // The answers of user functions are not comparable: such a shuffle has its own owner table.
            let owner_table = match self.config.key {
                ShuffleKey::Own => std::sync::Arc::new(OwnerTable::new(workers)),
                key => group.owner_table(worker.tenant(), key, seed, || OwnerTable::new(workers)),
            };
            ShuffleShared::new(self.config, workers, seed, owner_table)
        })?;
        shared.owner_table.join(&shared);
        Ok(shared)
    }
}
