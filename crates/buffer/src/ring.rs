//! A bounded ring of packets between two cores: one producer, one consumer, batches in, batches out.

use crate::BATCH;
use crate::batch::Batch;
use crate::packet::Packet;
use crate::prefetch::prefetch_read;
use crate::queue::{Receiver, Sender, queue};

/// Packets whose metadata lines are asked for before the first of them is looked at.
const AHEAD: usize = 32;

/// Makes rings.
#[derive(Debug)]
pub struct Ring;

impl Ring {
    /// Makes a ring for at least `capacity` packets and returns its two ends.
    ///
    /// The capacity is the next power of two, at most 2^30. Packets still in it when both ends are gone are freed.
    #[expect(clippy::new_ret_no_self, reason = "a ring is only its two ends")]
    pub fn new(capacity: usize) -> (Producer, Consumer) {
        let (sender, receiver) = queue(capacity);
        (Producer(sender), Consumer(receiver))
    }
}

/// The end that packets go in by.
pub struct Producer(Sender<Packet>);

/// The end that packets come out of.
pub struct Consumer(Receiver<Packet>);

impl Producer {
    /// Moves as many packets as fit off the front of the batch, in order; answers how many. The rest stays.
    pub fn push(&mut self, batch: &mut Batch) -> usize {
        let mut places = self.0.write(batch.len());
        let count = places.room();
        batch.give_front(count, |packet| {
            let put = places.put(packet);
            debug_assert!(put.is_ok(), "as many places as there was room for");
        });
        count
    }
    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
    /// Packets that wait, as far as this end knows.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

impl Consumer {
    /// Moves as many packets as are there and fit behind the last of the batch; answers how many.
    pub fn pop(&mut self, batch: &mut Batch) -> usize {
        self.pop_up_to(batch, BATCH)
    }
    /// As [`pop`](Self::pop), of at most `count` packets.
    pub fn pop_up_to(&mut self, batch: &mut Batch, count: usize) -> usize {
        let mut packets = self.0.read(count.min(BATCH - batch.len()));
        let count = packets.len();
        let mut ahead = [const { None }; AHEAD];
        while packets.len() > 0 {
            // The lines are in the other core's cache: asked for together, they come together.
            for (place, packet) in ahead.iter_mut().zip(&mut packets) {
                prefetch_read(packet.line());
                *place = Some(packet);
            }
            for packet in ahead.iter_mut().filter_map(Option::take) {
                let pushed = batch.push(packet);
                debug_assert!(pushed.is_ok(), "no more than fit");
            }
        }
        count
    }
    /// Whether the other end is gone and nothing waits.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
    /// Packets that wait, as far as this end knows.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn packets_in_a_ring_are_freed_with_it() {
        let pool = Pool::builder().frames(64).build().unwrap();
        let (mut producer, mut consumer) = Ring::new(20);
        let mut batch = Batch::new();
        assert_eq!(pool.allocate_written_into(&mut batch, 40, b"some"), 40);
        assert_eq!(producer.push(&mut batch), 32, "20 rounded up");
        assert_eq!((batch.len(), batch.bytes()), (8, 32));
        assert_eq!(producer.push(&mut batch), 0);
        assert_eq!((producer.waiting(), consumer.waiting()), (32, 32));
        let mut out = Batch::new();
        assert_eq!(consumer.pop(&mut out), 32);
        assert_eq!(producer.push(&mut batch), 8);
        assert!(!consumer.is_closed());
        drop(producer);
        assert!(!consumer.is_closed(), "eight still wait");
        drop(out);
        assert_eq!(pool.available(), 56);
        drop(consumer);
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn a_full_batch_takes_nothing_out() {
        let pool = Pool::builder().frames(512).build().unwrap();
        let (mut producer, mut consumer) = Ring::new(8);
        let (mut full, mut one) = (Batch::new(), Batch::new());
        pool.allocate_into(&mut full, BATCH);
        pool.allocate_into(&mut one, 1);
        assert_eq!(producer.push(&mut one), 1);
        assert_eq!(consumer.pop(&mut full), 0);
        assert_eq!(full.len(), BATCH);
        drop(consumer);
        assert!(producer.is_closed());
    }

    #[test]
    fn packets_keep_their_order_between_two_threads() {
        const PACKETS: u64 = 200_000;
        let _alone = crate::worker::tests::alone();
        let pool = Pool::builder().frames(1024).build().unwrap();
        let (mut producer, mut consumer) = Ring::new(128);
        let sender = {
            let pool = pool.clone();
            std::thread::spawn(move || {
                let _slot = crate::WorkerSlot::claim().unwrap();
                let (mut batch, mut next) = (Batch::new(), 0u64);
                while next < PACKETS || !batch.is_empty() {
                    let wanted = (PACKETS - next).min(1 + next % 37) as usize;
                    let first = batch.len();
                    let taken = if first < 100 { pool.allocate_into(&mut batch, wanted) } else { 0 };
                    for slot in first..first + taken {
                        let mut packet = batch.packet(slot).unwrap();
                        packet.extend_from(&next.to_be_bytes()).unwrap();
                        packet.set_received_at(next);
                        next += 1;
                    }
                    if producer.push(&mut batch) == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let (mut batch, mut expected) = (Batch::new(), 0u64);
        while !consumer.is_closed() {
            if consumer.pop(&mut batch) == 0 {
                std::thread::yield_now();
            }
            for packet in batch.drain() {
                assert_eq!(packet.data(), expected.to_be_bytes());
                assert_eq!(packet.received_at(), expected);
                expected += 1;
            }
        }
        sender.join().unwrap();
        assert_eq!(expected, PACKETS);
        assert_eq!(pool.available(), pool.capacity());
    }
}
