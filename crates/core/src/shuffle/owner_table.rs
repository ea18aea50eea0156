//! The owner table: which worker owns which bucket, for all shuffles of a runtime with the same key.
//!
//! These shuffles change together, so that a flow is on one worker behind each of them. Shuffles of a graph
//! that replaces another start with the present owners.
//!
//! Where one shuffle feeds another, the first moves first. A flow's packets then come to the second through
//! the new owner only after the old one has passed on all earlier ones. Shuffles equally far from the ports
//! move at the same time, since state may be behind several of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::key::BUCKETS;
use super::migration_request::BoundState;
use super::shared::{Change, MoveError, Moved, ShuffleShared};

/// Shuffles of one key, and the owners of its buckets.
pub(crate) struct OwnerTable {
    workers: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    owners: Vec<u8>,
    shuffles: Vec<Weak<ShuffleShared>>,
    /// The last move: its buckets, its pairs of workers, its current shuffles, and those yet to begin, last
    /// first.
    moves: Vec<Moved>,
    pairs: usize,
    under_way: Vec<Weak<ShuffleShared>>,
    pending: Vec<Weak<ShuffleShared>>,
}

impl Table {
    /// Begins the move behind the next shuffles, unless some are still moving.
    fn go_on(&mut self) {
        if self.left() > 0 {
            return;
        }
        self.under_way.clear();
        let mut among = None;
        while let Some(next) = self.pending.pop() {
            let Some(shuffle) = next.upgrade().filter(|shuffle| shuffle.is_whole()) else { continue };
            let upstream = shuffle.upstream.load(Ordering::Relaxed);
            if *among.get_or_insert(upstream) != upstream {
                self.pending.push(next);
                break;
            }
            self.under_way.push(next);
            let mut change = shuffle.change();
            change.pairs = self.pairs;
            change.moves.clone_from(&self.moves);
            change.epoch += 1;
            shuffle.announced.store(change.epoch, Ordering::Release);
        }
        for shuffle in self.under_way.iter().filter_map(Weak::upgrade) {
            // Released after everything that it announces is in place, also for the other shuffles that
            // begin.
            shuffle.epoch.store(shuffle.change().epoch, Ordering::Release);
        }
    }

    /// Pairs of workers for which the shuffles of the move wait.
    ///
    /// A shuffle that has lost a node is not counted, since it may never finish.
    fn left(&self) -> usize {
        let at_it = self.under_way.iter().filter_map(Weak::upgrade);
        at_it.filter(|shuffle| shuffle.is_whole()).map(|shuffle| shuffle.change().pairs).sum()
    }
}

impl OwnerTable {
    /// An owner table that gives the buckets to the workers in rotation.
    pub(super) fn new(workers: usize) -> Self {
        let owners = (0..BUCKETS).map(|bucket| (bucket % workers) as u8).collect();
        Self { workers, table: Mutex::new(Table { owners, ..Table::default() }) }
    }

    /// Locks the table. This lock comes before that of any shuffle.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of each bucket.
    pub(super) fn owners(&self) -> Vec<u8> {
        self.table().owners.clone()
    }

    /// Adds a shuffle: from now on its buckets move with those of the others.
    pub(super) fn join(&self, shuffle: &Arc<ShuffleShared>) {
        let mut table = self.table();
        if !table.shuffles.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(shuffle))) {
            table.shuffles.push(Arc::downgrade(shuffle));
        }
    }

    /// The number of pairs of workers that have not finished the last move, for all shuffles.
    pub(super) fn moving(&self) -> usize {
        let mut table = self.table();
        table.go_on();
        table.left() + table.pairs * table.pending.len()
    }

    /// Notes that a shuffle has finished the move.
    pub(super) fn finished(&self) {
        self.table().go_on();
    }

    /// Ends a worker's part in a shuffle, if it is over and no further move is to come.
    ///
    /// A bucket that has a new owner in the table is not over before its state has followed.
    pub(super) fn end(
        &self,
        shuffle: &ShuffleShared,
        me: usize,
        is_over: impl FnOnce(&Change) -> bool,
    ) -> bool {
        let mut table = self.table();
        table.go_on();
        if table.pending.iter().any(|other| std::ptr::eq(other.as_ptr(), shuffle)) {
            return false;
        }
        // While the table is locked no move begins.
        let mut change = shuffle.change();
        let over = is_over(&change);
        change.over[me] |= over;
        over
    }

    /// Begins to move buckets to their new owners, behind all shuffles that are not ending, or none.
    pub(super) fn begin(&self, wanted: impl IntoIterator<Item = (usize, usize)>) -> Result<(), MoveError> {
        let mut table = self.table();
        table.go_on();
        // A shuffle without all its nodes is removed: its graph was taken down, or never began to run.
        table.shuffles.retain(|shuffle| shuffle.upgrade().is_some_and(|shuffle| shuffle.is_whole()));
        let shuffles: Vec<Arc<ShuffleShared>> = table.shuffles.iter().filter_map(Weak::upgrade).collect();
        // No more packets come through a shuffle that has ended: it keeps no bucket from moving.
        let going: Vec<(&Arc<ShuffleShared>, MutexGuard<'_, Change>)> = shuffles
            .iter()
            .map(|shuffle| (shuffle, shuffle.change()))
            .filter(|(_, change)| change.over.contains(&false))
            .collect();
        // Packets on their way through a shuffle that is ending would find their state gone.
        if going.iter().all(|(_, change)| change.over.contains(&true)) {
            return Err(MoveError::Ending);
        }
        if !table.under_way.is_empty() || going.iter().any(|(_, change)| change.over.contains(&true)) {
            return Err(MoveError::Busy);
        }
        let mut moves = Vec::new();
        // If a bucket is named twice, the last worker counts.
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
        // State of all workers, whether they give or take: nothing has moved yet.
        for (_, change) in &going {
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
        let mut going: Vec<&Arc<ShuffleShared>> = going.into_iter().map(|(shuffle, _)| shuffle).collect();
        going.sort_by_key(|shuffle| Reverse(shuffle.upstream.load(Ordering::Relaxed)));
        table.pairs = pairs.len();
        table.moves = moves;
        table.pending = going.into_iter().map(Arc::downgrade).collect();
        table.go_on();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShuffleConfig;
    use super::super::migration::Moving;
    use super::*;

    /// The shared state of a shuffle's workers, and each worker's part.
    type Parts = (Arc<ShuffleShared>, [Moving; 2]);

    /// Two shuffles of two workers by one key; the second moves first.
    fn two() -> (Arc<OwnerTable>, [Parts; 2]) {
        let owner_table = Arc::new(OwnerTable::new(2));
        let shuffles = [(); 2].map(|()| {
            let shared =
                ShuffleShared::new(ShuffleConfig::default(), 2, 7, owner_table.clone()).ok().unwrap();
            let shared = Arc::new(shared);
            owner_table.join(&shared);
            (0..2).for_each(|worker| shared.set_bound(worker, Vec::new()));
            let parts = [0, 1].map(|worker| Moving::new(worker, &shared));
            (shared, parts)
        });
        (owner_table, shuffles)
    }

    #[test]
    fn a_shuffle_that_has_ended_keeps_no_other_from_moving() {
        let (owner_table, [(ended, [over, rest]), (going, [last, _])]) = two();
        assert!(over.is_over(&ended));
        // Packets on their way through it on the other worker would find their state gone.
        assert_eq!(owner_table.begin([(1, 0)]), Err(MoveError::Busy));
        assert!(rest.is_over(&ended));
        owner_table.begin([(1, 0)]).unwrap();
        assert_eq!((owner_table.moving(), ended.change().epoch, going.change().epoch), (1, 0, 1));
        assert!(!last.is_over(&going), "it has not even learnt of the move");

        let (owner_table, shuffles) = two();
        assert!(shuffles.iter().all(|(shared, [part, _])| part.is_over(shared)));
        assert_eq!(owner_table.begin([(1, 0)]), Err(MoveError::Ending));
    }

    /// The second shuffle is as far from the ports as the first, or behind it.
    #[test]
    fn those_as_far_from_the_ports_move_at_once_and_others_after_them() {
        for behind in [0, 1] {
            let (owner_table, [(one, _), (other, _)]) = two();
            one.upstream.store(behind, Ordering::Relaxed);
            owner_table.begin([(1, 0), (3, 0)]).unwrap();
            let begun = |shared: &ShuffleShared| {
                [&shared.announced, &shared.epoch].map(|number| number.load(Ordering::Relaxed))
            };
            let first = 1 - behind as u64;
            assert_eq!((begun(&one), begun(&other)), ([first; 2], [1; 2]));
            assert_eq!(owner_table.moving(), 2);
            other.change().pairs = 0;
            owner_table.finished();
            assert_eq!((begun(&one), owner_table.moving()), ([1; 2], 1));
            assert_eq!(owner_table.begin([(1, 1)]), Err(MoveError::Busy));
            one.change().pairs = 0;
            owner_table.finished();
            assert_eq!((owner_table.moving(), owner_table.begin([(1, 1)])), (0, Ok(())));
        }
    }

    #[test]
    fn a_shuffle_that_dies_during_a_move_keeps_no_worker_waiting() {
        let (owner_table, [(next, _), (dies, _)]) = two();
        next.upstream.store(1, Ordering::Relaxed);
        owner_table.begin([(1, 0), (3, 0)]).unwrap();
        assert_eq!((owner_table.moving(), dies.change().epoch, next.change().epoch), (2, 1, 0));
        dies.progress[0].gone.store(true, Ordering::Release);
        assert_eq!((owner_table.moving(), next.change().epoch), (1, 1), "the next one goes on");
        next.change().pairs = 0;
        owner_table.finished();
        assert_eq!((owner_table.moving(), owner_table.begin([(1, 1)])), (0, Ok(())));
        assert_eq!((next.change().epoch, dies.change().epoch), (2, 1));
    }

    #[test]
    fn a_shuffle_whose_move_is_still_to_come_is_not_over() {
        let (owner_table, [(waits, [part, _]), (first, _)]) = two();
        waits.upstream.store(1, Ordering::Relaxed);
        owner_table.begin([(1, 0)]).unwrap();
        assert!(!part.is_over(&waits), "its bucket has changed hands already, the state behind it has not");
        first.change().pairs = 0;
        owner_table.finished();
        assert_eq!(waits.change().pairs, 1, "it was not passed over");
    }
}
