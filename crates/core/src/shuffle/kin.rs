//! The owner table: which worker owns which bucket, for all shuffles of a team that sort by one key. They change together,
//! so that a flow is on one worker behind each of them, and shuffles that are made later (of a graph that replaces another)
//! go on with the same owners.
//!
//! Where packets come to one of them from another, the first moves first: a flow's packets then come to the second by the new
//! owner only when the old one has let go of all that came before.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::duty::BoundState;
use super::fabric::{Change, Fabric, MoveError, Moved};
use super::key::BUCKETS;

/// Shuffles of one key, and who owns its buckets.
pub(crate) struct Kin {
    workers: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    owners: Vec<u8>,
    shuffles: Vec<Weak<Fabric>>,
    /// Of the last move: what it was, between how many pairs of workers, and the shuffles that have not begun it, last first.
    moves: Vec<Moved>,
    pairs: usize,
    pending: Vec<Arc<Fabric>>,
}

impl Table {
    /// Begins the move behind the next shuffle.
    fn go_on(&mut self) {
        while let Some(shuffle) = self.pending.pop() {
            let mut change = shuffle.change();
            if change.ending || !shuffle.is_whole() {
                continue;
            }
            change.pairs = self.pairs;
            change.moves.clone_from(&self.moves);
            change.epoch += 1;
            // Released after everything that it announces is in place.
            return shuffle.epoch.store(change.epoch, Ordering::Release);
        }
    }
}

impl Kin {
    /// Buckets are shared out among the workers one by one.
    pub(super) fn new(workers: usize) -> Self {
        let owners = (0..BUCKETS).map(|bucket| (bucket % workers) as u8).collect();
        Self { workers, table: Mutex::new(Table { owners, ..Table::default() }) }
    }

    /// Taken before the lock of any shuffle.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of each bucket.
    pub(super) fn owners(&self) -> Vec<u8> {
        self.table().owners.clone()
    }

    /// From now on the shuffle's buckets move with the others'.
    pub(super) fn join(&self, shuffle: &Arc<Fabric>) {
        let mut table = self.table();
        if !table.shuffles.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(shuffle))) {
            table.shuffles.push(Arc::downgrade(shuffle));
        }
    }

    /// Pairs of workers that have not finished the last move, of all shuffles.
    pub(super) fn moving(&self) -> usize {
        let table = self.table();
        let begun: usize =
            table.shuffles.iter().filter_map(Weak::upgrade).map(|shuffle| shuffle.change().pairs).sum();
        begun + table.pairs * table.pending.len()
    }

    /// A shuffle has finished the move.
    pub(super) fn finished(&self) {
        self.table().go_on();
    }

    /// Begins to move buckets to their new owners, behind all shuffles or none.
    pub(super) fn begin(&self, wanted: impl IntoIterator<Item = (usize, usize)>) -> Result<(), MoveError> {
        let mut table = self.table();
        // A node of it is gone: its graph was taken down, or never came to run.
        table.shuffles.retain(|shuffle| shuffle.upgrade().is_some_and(|shuffle| shuffle.is_whole()));
        let shuffles: Vec<Arc<Fabric>> = table.shuffles.iter().filter_map(Weak::upgrade).collect();
        let changes: Vec<MutexGuard<'_, Change>> = shuffles.iter().map(|shuffle| shuffle.change()).collect();
        if changes.is_empty() || changes.iter().any(|change| change.ending) {
            return Err(MoveError::Ending);
        }
        if !table.pending.is_empty() || changes.iter().any(|change| change.pairs > 0) {
            return Err(MoveError::Busy);
        }
        let mut moves = Vec::new();
        // Of what is said twice, the last word counts.
        for (bucket, to) in wanted.into_iter().collect::<BTreeMap<_, _>>() {
            if to >= self.workers {
                return Err(MoveError::NoWorker { worker: to, workers: self.workers });
            }
            let from = *table.owners.get(bucket).ok_or(MoveError::NoBucket { bucket })?;
            if usize::from(from) != to {
                moves.push(Moved { bucket: bucket as u16, from: usize::from(from), to });
            }
        }
        if moves.is_empty() {
            return Ok(());
        }
        // Of all workers, whichever gives or takes: nothing has moved yet.
        for change in &changes {
            for (worker, bound) in change.bound.iter().enumerate() {
                let bound = bound.as_ref().ok_or(MoveError::Starting { worker })?;
                if let Some(BoundState { node, state }) = bound.first().cloned() {
                    return Err(MoveError::Bound { worker, node, state });
                }
            }
        }
        for moved in &moves {
            table.owners[usize::from(moved.bucket)] = moved.to as u8;
        }
        let mut pairs: Vec<(usize, usize)> = moves.iter().map(|moved| (moved.from, moved.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        drop(changes);
        table.pairs = pairs.len();
        table.moves = moves;
        table.pending = shuffles;
        table.pending.sort_by_key(|shuffle| Reverse(shuffle.upstream.load(Ordering::Relaxed)));
        table.go_on();
        Ok(())
    }
}
