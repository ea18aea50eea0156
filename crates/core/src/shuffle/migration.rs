//! The move of buckets between workers while traffic flows, without a lock on the packets' path.
//!
//! 1. The control side writes the new owners and raises the number of the move.
//! 2. Every worker sees that number before its next batch. From then on it gives the buckets' packets to the
//!    new owner. It also publishes how many packets it had given to each worker until then.
//! 3. The new owner keeps packets that come for these buckets. The old owner goes on until it has seen as
//!    many packets from every worker as that worker published. Then no packet of these buckets can be on its
//!    way to it. Between two batches it takes the flows of these buckets out of its state and hands them
//!    over.
//! 4. The new owner puts them into its own state and releases the packets that it kept, in the order of
//!    arrival.
//!
//! Where several shuffles by one key lead to the same state, the [graph](crate::graph) does 3 and 4 for all
//! of them at once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use netbricks_buffer::{Batch, Packet};

use super::key::BUCKETS;
use super::migration_request::{MigrationRequest, Part};
use super::node::WAITING;
use super::shared::{Handover, ShuffleShared};
use crate::node::StateImage;

/// The status of a bucket that moves to this worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coming {
    #[default]
    No,
    /// Its state is with its old owner.
    Awaited,
    /// Its state is here; packets that waited for it go first.
    Here,
}

/// A worker's part in the moves of its shuffle.
pub(super) struct Moving {
    me: usize,
    /// The last move that this worker knows of.
    epoch: u64,
    /// The owner of each bucket, as far as this worker knows.
    owners: Box<[u8; BUCKETS]>,
    coming: Box<[Coming; BUCKETS]>,
    /// Old owners whose state has not arrived.
    awaited: Vec<usize>,
    /// The number of old owners whose state the graph has, and is about to put in place.
    taking: usize,
    /// The number of old owners whose state is in place, while packets that waited for it are still here.
    arrived: usize,
    /// Buckets to give away, by new owner.
    leaving: Vec<(usize, Vec<u16>)>,
    /// The number of new owners for whom the graph was asked for state, and has not given it yet.
    giving: usize,
    /// Packets that wait for their bucket's state, in the order of arrival.
    kept: VecDeque<(u16, Packet)>,
    /// Packets whose state is here and that go on in this order, with later packets of their buckets.
    released: VecDeque<Packet>,
    request: Option<MigrationRequest>,
}

impl Moving {
    pub(super) fn new(me: usize, shared: &ShuffleShared) -> Self {
        let change = shared.owners();
        let mut owners = Box::new([0; BUCKETS]);
        owners.copy_from_slice(&change);
        // Room for all packets that the node may keep: nothing grows while packets come.
        let room = if shared.workers > 1 { shared.ring + WAITING } else { 0 };
        Self {
            me,
            epoch: shared.epoch.load(Ordering::Acquire),
            owners,
            coming: Box::new([Coming::No; BUCKETS]),
            awaited: Vec::new(),
            taking: 0,
            arrived: 0,
            leaving: Vec::new(),
            giving: 0,
            kept: VecDeque::with_capacity(room),
            released: VecDeque::with_capacity(room),
            request: None,
        }
    }

    /// The owner of each bucket, as far as this worker knows. It gives packets away by this table.
    pub(super) fn owners(&self) -> &[u8] {
        &*self.owners
    }
    /// The owner of a bucket.
    #[inline(always)]
    pub(super) fn owner(&self, bucket: u16) -> usize {
        usize::from(self.owners[usize::from(bucket) % BUCKETS])
    }
    /// Whether a bucket's packets must wait here.
    #[inline(always)]
    pub(super) fn waits(&self, bucket: u16) -> bool {
        self.coming[usize::from(bucket) % BUCKETS] != Coming::No
    }
    /// Whether any bucket's packets must wait here.
    #[inline(always)]
    pub(super) fn is_expecting(&self) -> bool {
        !self.awaited.is_empty() || self.taking > 0 || self.arrived > 0
    }
    /// Whether packets that waited for their state are still leaving.
    ///
    /// Until they have left, new packets for their buckets go behind them, and the move is not over.
    #[inline(always)]
    pub(super) fn is_releasing(&self) -> bool {
        !self.released.is_empty()
    }
    pub(super) fn kept(&self) -> usize {
        self.kept.len() + self.released.len()
    }
    /// Keeps a packet until its bucket's state is here.
    pub(super) fn keep(&mut self, bucket: u16, packet: Packet) {
        if self.coming[usize::from(bucket) % BUCKETS] == Coming::Here {
            self.released.push_back(packet);
        } else {
            self.kept.push_back((bucket, packet));
        }
    }
    /// Gives up all packets that it keeps.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.released.drain(..).chain(self.kept.drain(..).map(|(_, packet)| packet))
    }

    /// Learns of a new move, if there is one; `given` counts packets sent to each other worker so far.
    #[inline(always)]
    pub(super) fn learn(&mut self, shared: &ShuffleShared, given: &[u64]) {
        if shared.epoch.load(Ordering::Acquire) != self.epoch {
            self.adopt(shared, given);
        }
    }

    #[cold]
    fn adopt(&mut self, shared: &ShuffleShared, given: &[u64]) {
        let change = shared.change();
        self.epoch = change.epoch;
        for moved in &change.moves {
            self.owners[usize::from(moved.bucket)] = moved.to as u8;
            if moved.to == self.me {
                self.coming[usize::from(moved.bucket)] = Coming::Awaited;
                if !self.awaited.contains(&moved.from) {
                    self.awaited.push(moved.from);
                }
            }
            if moved.from == self.me {
                match self.leaving.iter_mut().find(|(to, _)| *to == moved.to) {
                    Some((_, buckets)) => buckets.push(moved.bucket),
                    None => self.leaving.push((moved.to, vec![moved.bucket])),
                }
            }
        }
        let progress = &shared.progress[self.me];
        for (count, given) in progress.given.iter().zip(given) {
            count.store(*given, Ordering::Relaxed);
        }
        // A worker that reads this number also reads the counts above.
        progress.epoch.store(self.epoch, Ordering::Release);
    }

    /// Whether the graph has something to do.
    ///
    /// `seen` gives the number of a worker's packets that have come, or `None` where no more can.
    pub(super) fn has_request(
        &mut self,
        shared: &ShuffleShared,
        seen: impl Fn(usize) -> Option<u64>,
    ) -> bool {
        if self.request.is_some() {
            return true;
        }
        if !self.leaving.is_empty() && self.is_alone(shared, &seen) {
            if let Some((to, buckets)) = self.leaving.pop() {
                let part = Part::new(shared.buckets().clone(), buckets);
                self.request = Some(MigrationRequest::Give { to, part });
            }
        } else {
            self.request = self.arrival(shared);
        }
        self.request.is_some()
    }

    /// State that was handed over; or no state, where its old owner is gone.
    fn arrival(&self, shared: &ShuffleShared) -> Option<MigrationRequest> {
        let waiting = &shared.progress[self.me].waiting;
        let is_gone = |from: &usize| shared.progress[*from].gone.load(Ordering::Acquire);
        let any = waiting.load(Ordering::Acquire) > 0;
        let gone = self.awaited.iter().copied().find(is_gone);
        if !any && gone.is_none() {
            return None;
        }
        // Locked after `gone` was read. A worker that is gone handed its state over before, under this lock.
        // So its state is here now, or there was none for this worker. That `waiting` was 0 does not prove
        // this: it was read before `gone`, and the old owner may have handed over and gone in between.
        let mut change = shared.change();
        let Some(place) = change.handovers.iter().position(|handover| handover.to == self.me) else {
            return gone.map(|from| MigrationRequest::Take { from, images: Vec::new() });
        };
        let Handover { from, images, .. } = change.handovers.swap_remove(place);
        waiting.store(change.handovers_to(self.me), Ordering::Relaxed);
        Some(MigrationRequest::Take { from, images })
    }

    /// Whether no more packets of the leaving buckets can come to this worker.
    fn is_alone(&self, shared: &ShuffleShared, seen: &impl Fn(usize) -> Option<u64>) -> bool {
        (0..shared.workers).filter(|other| *other != self.me).all(|other| {
            let progress = &shared.progress[other];
            let Some(seen) = seen(other) else { return true };
            progress.epoch.load(Ordering::Acquire) >= self.epoch
                && seen >= progress.given[self.me].load(Ordering::Relaxed)
        })
    }

    /// The number of packets that this worker must still take from another before it can give its buckets away.
    ///
    /// They came before the move, so that none of them waits for state.
    pub(super) fn owed(&self, shared: &ShuffleShared, from: usize, seen: u64) -> u64 {
        let progress = &shared.progress[from];
        if self.leaving.is_empty() || progress.epoch.load(Ordering::Acquire) < self.epoch {
            return 0;
        }
        progress.given[self.me].load(Ordering::Relaxed).saturating_sub(seen)
    }

    /// Passes the next request to the graph.
    pub(super) fn take_request(&mut self) -> Option<MigrationRequest> {
        let request = self.request.take()?;
        match &request {
            MigrationRequest::Give { .. } => self.giving += 1,
            MigrationRequest::Take { from, .. } => {
                self.awaited.retain(|other| other != from);
                self.taking += 1;
            }
        }
        Some(request)
    }

    /// Whether it must still ask to give state to a worker, in a move that is announced.
    pub(super) fn is_to_give(&self, shared: &ShuffleShared, to: usize) -> bool {
        self.is_to_learn(shared)
            || self.leaving.iter().any(|(other, _)| *other == to)
            || matches!(&self.request, Some(MigrationRequest::Give { to: other, .. }) if *other == to)
    }
    /// Whether it must still ask to take state from a worker, in a move that is announced.
    pub(super) fn is_to_take(&self, shared: &ShuffleShared, from: usize) -> bool {
        self.is_to_learn(shared) || self.awaited.contains(&from)
    }
    fn is_to_learn(&self, shared: &ShuffleShared) -> bool {
        shared.announced.load(Ordering::Acquire) != self.epoch
    }

    /// Hands state over to its new owner.
    pub(super) fn given(&mut self, shared: &ShuffleShared, to: usize, images: Vec<(String, StateImage)>) {
        let mut change = shared.change();
        change.handovers.push(Handover { from: self.me, to, images });
        // Under the lock, as the new owner's writes are, so that neither undoes the other's write.
        shared.progress[to].waiting.store(change.handovers_to(to), Ordering::Release);
        self.giving = self.giving.saturating_sub(1);
    }

    /// Notes that the state of all buckets that came from `from` is in place.
    pub(super) fn took(&mut self, shared: &ShuffleShared, from: usize, refused: usize) {
        shared.refused.fetch_add(refused, Ordering::Relaxed);
        self.taking = self.taking.saturating_sub(1);
        self.arrived += 1;
        for moved in shared.change().moves.iter().filter(|moved| moved.from == from && moved.to == self.me) {
            self.coming[usize::from(moved.bucket)] = Coming::Here;
        }
        // Done once for each handover, and not for each batch, since the kept packets may fill a large ring.
        for _ in 0..self.kept.len() {
            let Some((bucket, packet)) = self.kept.pop_front() else { break };
            self.keep(bucket, packet);
        }
    }

    /// Releases up to `count` packets whose buckets' state is here, in order.
    ///
    /// Only when none is left is the move over. The next move may take the buckets away again, and must find
    /// the state as these packets leave it.
    pub(super) fn release(&mut self, batch: &mut Batch, count: usize, shared: &ShuffleShared) {
        if self.arrived == 0 {
            return;
        }
        while batch.len() < count
            && !batch.is_full()
            && let Some(packet) = self.released.pop_front()
        {
            // The batch is not full.
            let _room = batch.push(packet);
        }
        if self.released.is_empty() {
            for coming in self.coming.iter_mut().filter(|coming| **coming == Coming::Here) {
                *coming = Coming::No;
            }
            let mut change = shared.change();
            change.pairs = change.pairs.saturating_sub(std::mem::take(&mut self.arrived));
            let finished = change.pairs == 0;
            drop(change);
            if finished {
                shared.owner_table.finished();
            }
        }
    }

    /// Whether this worker has no part in a move any more, and no move will begin.
    pub(super) fn is_over(&self, shared: &ShuffleShared) -> bool {
        shared.owner_table.end(shared, self.me, |change| {
            change.epoch == self.epoch
                && self.leaving.is_empty()
                && self.giving == 0
                && self.awaited.is_empty()
                && self.taking == 0
                && self.arrived == 0
                && self.kept() == 0
                && self.request.is_none()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use netbricks_buffer::{BATCH, Pool};

    use super::*;
    use crate::shuffle::{OwnerTable, ShuffleConfig};

    /// Worker 0 of two, to which buckets 1 and 3 are about to come.
    fn expecting(ring: usize) -> (Arc<ShuffleShared>, Moving) {
        let (config, owner_table) =
            (ShuffleConfig { ring, ..ShuffleConfig::default() }, Arc::new(OwnerTable::new(2)));
        let shared = Arc::new(ShuffleShared::new(config, 2, 7, owner_table).ok().unwrap());
        shared.owner_table.join(&shared);
        let mut moving = Moving::new(0, &shared);
        (0..2).for_each(|worker| shared.set_bound(worker, Vec::new()));
        shared.owner_table.begin([(1, 0), (3, 0)]).unwrap();
        moving.learn(&shared, &[0, 0]);
        (shared, moving)
    }

    #[test]
    fn all_that_may_be_kept_fits_without_growing() {
        let pool = Pool::builder().frames(8_192).build().unwrap();
        let (shared, mut moving) = expecting(16);
        let reserved = |moving: &Moving| (moving.kept.capacity(), moving.released.capacity());
        let before = reserved(&moving);
        let most = shared.ring + WAITING;
        (0..most).for_each(|_| moving.keep(1, pool.packet(&[0]).unwrap()));
        moving.took(&shared, 1, 0);
        assert_eq!((moving.kept(), moving.released.len()), (most, most));
        assert_eq!(reserved(&moving), before);
    }

    /// The next request, where no packets are awaited.
    fn migration_request(moving: &mut Moving, shared: &ShuffleShared) -> Option<(usize, usize)> {
        moving.has_request(shared, |_| None);
        match moving.take_request()? {
            MigrationRequest::Take { from, images } => Some((from, images.len())),
            MigrationRequest::Give { .. } => panic!("nothing leaves"),
        }
    }

    fn image() -> Vec<(String, StateImage)> {
        vec![("node".into(), ("state".into(), vec![1]))]
    }

    /// The old owner hands over, and its node goes, just when the new one has read that nothing waits.
    #[test]
    fn an_owner_that_hands_over_and_goes_at_any_time_is_heard_once() {
        for stale in [false, true] {
            let (shared, mut moving) = expecting(16);
            let other = Moving::new(1, &shared);
            assert_eq!(migration_request(&mut moving, &shared), None);
            other_hands_over(other, &shared);
            if stale {
                // The value that was read before that.
                shared.progress[0].waiting.store(0, Ordering::Relaxed);
            }
            assert_eq!(
                migration_request(&mut moving, &shared),
                Some((1, 1)),
                "its state, and not that there is none"
            );
            moving.took(&shared, 1, 0);
            assert_eq!((migration_request(&mut moving, &shared), shared.change().handovers.len()), (None, 0));
            moving.release(&mut Batch::new(), BATCH, &shared);
            assert!(!moving.is_expecting() && shared.change().pairs == 0, "counted once");
        }
    }

    fn other_hands_over(mut other: Moving, shared: &ShuffleShared) {
        other.given(shared, 0, image());
        shared.progress[1].gone.store(true, Ordering::Release);
    }

    #[test]
    fn an_owner_that_goes_without_handing_over_is_not_awaited() {
        let (shared, mut moving) = expecting(16);
        shared.progress[1].gone.store(true, Ordering::Release);
        assert_eq!(migration_request(&mut moving, &shared), Some((1, 0)));
        moving.took(&shared, 1, 0);
        assert_eq!(migration_request(&mut moving, &shared), None);
    }

    #[test]
    fn kept_packets_go_on_in_order_and_are_turned_over_once() {
        let pool = Pool::builder().frames(8_192).build().unwrap();
        let (shared, mut moving) = expecting(2_048);
        let packet = |number: u16| pool.packet(&number.to_be_bytes()).unwrap();
        (0..1_000).for_each(|number| moving.keep(1 + number % 2 * 2, packet(number)));
        let mut batch = Batch::new();
        moving.release(&mut batch, BATCH, &shared);
        assert!(batch.is_empty(), "the state is not here");
        other_hands_over(Moving::new(1, &shared), &shared);
        assert_eq!(migration_request(&mut moving, &shared), Some((1, 1)));
        moving.took(&shared, 1, 0);
        assert!(moving.kept.is_empty(), "no batch looks at what waited again");
        let (mut came, mut next) = (Vec::new(), 1_000);
        while moving.is_expecting() {
            moving.release(&mut batch, 32, &shared);
            came.extend(batch.drain().map(|packet| u16::from_be_bytes(packet.data().try_into().unwrap())));
            // Packets that come meanwhile go behind.
            if next < 1_500 && moving.waits(3) {
                moving.keep(3, packet(next));
                next += 1;
            }
        }
        assert_eq!(came, (0..next).collect::<Vec<_>>());
        assert!(next > 1_000 && shared.change().pairs == 0);
    }
}
