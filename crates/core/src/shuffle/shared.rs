//! State that the workers of one shuffle share: the rings, and each worker's progress with a move.
//!
//! The owner table is in its `owner_table`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netbricks_buffer::{Consumer, Producer, Ring};

use super::key::{BUCKETS, Buckets};
use super::migration_request::BoundState;
use super::owner_table::OwnerTable;
use super::{ShuffleConfig, WhenFull};
use crate::node::StateImage;
use crate::worker::BuildError;

/// The most workers that a runtime can have.
const MOST_WORKERS: usize = 64;
/// The numbers of packets that a ring can be asked to hold.
pub(super) const RING: std::ops::RangeInclusive<usize> = 1..=1 << 20;

/// A reason why buckets cannot move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The bucket does not exist.
    #[error("bucket {bucket} does not exist: there are 0 to {}", BUCKETS - 1)]
    NoBucket {
        /// The bucket in the request.
        bucket: usize,
    },
    /// The worker does not exist.
    #[error("worker {worker} does not exist: there are {workers}, from 0")]
    NoWorker {
        /// The worker in the request.
        worker: usize,
        /// The number of workers.
        workers: usize,
    },
    /// The previous move is still in progress.
    #[error("buckets are moving already: ask again when `moving` answers 0")]
    Busy,
    /// State behind the shuffle would be left behind.
    #[error(
        "no bucket moves: state `{state}` of function `{node}` on worker {worker} cannot move with its flows; leave the \
         buckets where they are, or put `{node}` before the shuffle"
    )]
    Bound {
        /// The worker that has the state.
        worker: usize,
        /// The node of the state.
        node: String,
        /// The state's name.
        state: String,
    },
    /// A worker has not built its graph yet, so its state behind the shuffle is not known.
    #[error("worker {worker} is still starting: ask again")]
    Starting {
        /// The worker.
        worker: usize,
    },
    /// A worker has come to its end.
    #[error("the run is ending: no bucket moves any more")]
    Ending,
}

/// A bucket's change of owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) bucket: u16,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The last move, finished or in progress.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) epoch: u64,
    pub(super) moves: Vec<Moved>,
    /// Pairs of old and new owner that have not handed over yet.
    pub(super) pairs: usize,
    /// By worker: whether its part is over.
    pub(super) over: Vec<bool>,
    /// State on its way between workers.
    pub(super) handovers: Vec<Handover>,
    /// By worker, once it has built its graph: state that cannot move.
    pub(super) bound: Vec<Option<Vec<BoundState>>>,
}

impl Change {
    /// The number of handovers that wait for a worker.
    pub(super) fn handovers_to(&self, worker: usize) -> usize {
        self.handovers.iter().filter(|handover| handover.to == worker).count()
    }
}

/// State on its way from worker to worker.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) images: Vec<(String, StateImage)>,
}

/// A worker's ends of the rings, by the other worker's number; there is none to itself.
pub(super) struct Ends {
    pub(super) out: Vec<Option<Producer>>,
    pub(super) into: Vec<Option<Consumer>>,
}

/// The progress of a worker, which the others read.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct WorkerProgress {
    /// The last move that it knows; it sends nothing to an old owner any more.
    pub(super) epoch: AtomicU64,
    /// Packets that it had given to each other worker by then.
    pub(super) given: Vec<AtomicU64>,
    /// Handovers that wait for it; written under the lock of [`Change`].
    pub(super) waiting: AtomicUsize,
    /// Whether its node gets packets only from other workers and from events.
    pub(super) closing: AtomicBool,
    /// Whether its node is gone, so that other workers need not wait for it.
    pub(super) gone: AtomicBool,
    /// Whether another node is about to replace its node and take over its ends.
    succession: AtomicBool,
}

pub(crate) struct ShuffleShared {
    buckets: Buckets,
    pub(super) full: WhenFull,
    pub(super) ring: usize,
    pub(super) workers: usize,
    ends: Mutex<Vec<Option<Ends>>>,
    pub(super) progress: Vec<WorkerProgress>,
    /// The number of the last move.
    ///
    /// It costs one load a batch, from a cache line that is written only when buckets move.
    pub(super) epoch: AtomicU64,
    /// The number of the next move, set before any of the shuffles that move together begins.
    ///
    /// So each of them knows that the others move too.
    pub(super) announced: AtomicU64,
    change: Mutex<Change>,
    /// All shuffles with the same key, and the owners of its buckets.
    pub(super) owner_table: Arc<OwnerTable>,
    /// The number of shuffles from which packets come to this one.
    pub(super) upstream: AtomicUsize,
    /// The number of states that a new owner's nodes refused.
    pub(super) refused: AtomicUsize,
}

impl ShuffleShared {
    pub(super) fn new(
        config: ShuffleConfig,
        workers: usize,
        seed: u64,
        owner_table: Arc<OwnerTable>,
    ) -> Result<Self, BuildError> {
        if workers > MOST_WORKERS {
            return Err(BuildError::new(format_args!(
                "{workers} workers: at most {MOST_WORKERS} can shuffle"
            )));
        }
        if !RING.contains(&config.ring) {
            let (least, most) = (RING.start(), RING.end());
            let problem = format!("`ring` must be {least} to {most} packets, found {}", config.ring);
            return Err(BuildError::new(problem));
        }
        let mut ends: Vec<Ends> = (0..workers)
            .map(|_| Ends {
                out: (0..workers).map(|_| None).collect(),
                into: (0..workers).map(|_| None).collect(),
            })
            .collect();
        for from in 0..workers {
            for to in (0..workers).filter(|to| *to != from) {
                let (producer, consumer) = Ring::new(config.ring);
                ends[from].out[to] = Some(producer);
                ends[to].into[from] = Some(consumer);
            }
        }
        let progress = (0..workers)
            .map(|_| WorkerProgress {
                epoch: AtomicU64::new(0),
                given: (0..workers).map(|_| AtomicU64::new(0)).collect(),
                waiting: AtomicUsize::new(0),
                closing: AtomicBool::new(false),
                gone: AtomicBool::new(false),
                succession: AtomicBool::new(false),
            })
            .collect();
        Ok(Self {
            buckets: Buckets::new(config.key, seed),
            full: config.full,
            ring: config.ring.next_power_of_two(),
            workers,
            ends: Mutex::new(ends.into_iter().map(Some).collect()),
            progress,
            epoch: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            change: Mutex::new(Change {
                bound: vec![None; workers],
                over: vec![false; workers],
                ..Change::default()
            }),
            owner_table,
            upstream: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        })
    }

    pub(crate) fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// The ends of a worker's rings; only the first call gets them.
    pub(super) fn take(&self, worker: usize) -> Option<Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }

    /// Allows a second node of a worker, which takes over from the first.
    pub(super) fn publish_succession(&self, worker: usize) {
        self.progress[worker].succession.store(true, Ordering::Relaxed);
    }

    /// Empty ends, which a replacing node has until it takes over.
    pub(super) fn succession(&self, worker: usize) -> Option<Ends> {
        let announced = self.progress[worker].succession.swap(false, Ordering::Relaxed);
        announced.then(|| Ends {
            out: (0..self.workers).map(|_| None).collect(),
            into: (0..self.workers).map(|_| None).collect(),
        })
    }

    /// Locks the state of the move: when buckets move, when a worker ends, and for questions. Never for a
    /// packet.
    pub(super) fn change(&self) -> MutexGuard<'_, Change> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of each bucket.
    pub(super) fn owners(&self) -> Vec<u8> {
        self.owner_table.owners()
    }

    /// Sets the state that keeps a worker's flows from moving.
    pub(super) fn set_bound(&self, worker: usize, state: Vec<BoundState>) {
        if let Some(bound) = self.change().bound.get_mut(worker) {
            *bound = Some(state);
        }
    }

    /// Whether all workers' nodes get packets only from each other. Until then events may still send through
    /// it.
    pub(super) fn is_closing(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        self.progress.iter().all(|progress| is(&progress.closing) || is(&progress.gone))
    }

    /// Whether no worker's node is gone.
    pub(super) fn is_whole(&self) -> bool {
        !self.progress.iter().any(|progress| progress.gone.load(Ordering::Acquire))
    }
}
