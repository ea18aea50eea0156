//! Batches against vectors of packets: order, ownership and the count of bytes after every operation, panics included.

#![expect(clippy::unwrap_used, reason = "the steps are the test, in methods of its world")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use netbricks_buffer::{BATCH, Batch, Bytes, Packet, Pool, Visit};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize, usize),
    Written(usize, usize),
    Push(usize),
    Pop,
    Change(usize, usize),
    Drain(usize, usize),
    Truncate(usize),
    Split(usize),
    TakeFront(usize),
    Append,
    Clear,
    Each(usize),
    Compact { seed: u64, put_off: u64, panic_at: Option<usize> },
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..300usize;
    let len = 0..90usize;
    prop_oneof![
        (0..200usize, len.clone()).prop_map(|(count, len)| Step::Allocate(count, len)),
        (0..200usize, len.clone()).prop_map(|(count, len)| Step::Written(count, len)),
        len.clone().prop_map(Step::Push),
        Just(Step::Pop),
        (slot.clone(), len.clone()).prop_map(|(slot, len)| Step::Change(slot, len)),
        (slot.clone(), slot.clone()).prop_map(|(kept, used)| Step::Drain(kept, used)),
        slot.clone().prop_map(Step::Truncate),
        slot.clone().prop_map(Step::Split),
        slot.clone().prop_map(Step::TakeFront),
        Just(Step::Append),
        Just(Step::Clear),
        len.prop_map(Step::Each),
        (any::<u64>(), any::<u64>(), proptest::option::of(slot))
            .prop_map(|(seed, put_off, panic_at)| Step::Compact { seed, put_off, panic_at }),
    ]
}

/// A packet in the model: its mark (kept in the metadata) and its length.
type Seen = (u64, usize);

fn seen(batch: &Batch) -> VecDeque<Seen> {
    batch.iter().map(|packet| (packet.received_at(), packet.len())).collect()
}

struct World {
    pool: Pool,
    next: u64,
    batch: Batch,
    model: VecDeque<Seen>,
    other: Batch,
    other_model: VecDeque<Seen>,
}

impl World {
    /// Marks the packets that were added to the batch, and adds them to the model.
    fn mark(&mut self, len: usize) {
        for slot in self.model.len()..self.batch.len() {
            let mut packet = self.batch.packet(slot).unwrap();
            packet.resize(len).unwrap();
            packet.set_received_at(self.next);
            self.model.push_back((self.next, len));
            self.next += 1;
        }
    }

    fn step(&mut self, step: &Step) {
        let len_before = self.batch.len();
        match *step {
            Step::Allocate(count, len) | Step::Written(count, len) => {
                let free = self.pool.available();
                let got = if matches!(step, Step::Written(..)) {
                    self.pool.allocate_written_into(&mut self.batch, count, &[5; 90][..len])
                } else {
                    self.pool.allocate_into(&mut self.batch, count)
                };
                assert_eq!(got, count.min(BATCH - len_before).min(free));
                if matches!(step, Step::Written(..)) {
                    assert!(
                        self.batch.iter().skip(len_before).all(|packet| packet.data() == &[5; 90][..len])
                    );
                }
                self.mark(len);
            }
            Step::Push(len) => {
                let Some(packet) = self.pool.allocate(len) else { return };
                match self.batch.push(packet) {
                    Ok(()) => self.mark(len),
                    Err(packet) => assert_eq!((len_before, packet.len()), (BATCH, len)),
                }
            }
            Step::Pop => {
                let popped = self.batch.pop().map(|packet| (packet.received_at(), packet.len()));
                assert_eq!(popped, self.model.pop_back());
            }
            Step::Change(slot, len) => match self.batch.packet(slot) {
                Some(mut packet) => {
                    packet.resize(len).unwrap();
                    self.model[slot].1 = len;
                }
                None => assert!(slot >= len_before),
            },
            Step::Drain(kept, used) => {
                let gone = self.model.split_off(kept.min(len_before));
                let drained: Vec<Packet> = self.batch.drain_from(kept).take(used).collect();
                assert_eq!(drained.len(), gone.len().min(used));
                for (packet, expected) in drained.iter().zip(gone) {
                    assert_eq!((packet.received_at(), packet.len()), expected);
                }
            }
            Step::Truncate(kept) => {
                self.batch.truncate(kept);
                self.model.truncate(kept);
            }
            Step::Split(kept) => {
                let moved = self.batch.split_into(kept, &mut self.other);
                let kept = kept.min(len_before);
                assert_eq!(moved, (len_before - kept).min(BATCH - self.other_model.len()));
                self.other_model.extend(self.model.drain(kept..kept + moved));
            }
            Step::TakeFront(count) => {
                let moved = self.batch.take_front(count, &mut self.other);
                assert_eq!(moved, count.min(len_before).min(BATCH - self.other_model.len()));
                self.other_model.extend(self.model.drain(..moved));
            }
            Step::Append => {
                let moved = self.batch.append(&mut self.other);
                assert_eq!(moved, (BATCH - len_before).min(self.other_model.len()));
                self.model.extend(self.other_model.drain(..moved));
            }
            Step::Clear => {
                self.batch.clear();
                self.model.clear();
            }
            Step::Each(len) => {
                let mut slots = 0..;
                self.batch.each(|slot, bytes| {
                    assert_eq!(Some(slot), slots.next());
                    bytes.truncate(len);
                });
                self.model.iter_mut().for_each(|(_, old)| *old = len.min(*old));
            }
            Step::Compact { seed, put_off, panic_at } => self.compact(seed, put_off, panic_at),
        }
    }

    /// Decides by the seed's bits, cuts one byte off every third packet, and panics in slot `panic_at`.
    ///
    /// It decides some packets only when they come again.
    fn compact(&mut self, seed: u64, put_off: u64, panic_at: Option<usize>) {
        let verdict = |slot: usize| if seed >> (slot % 64) & 1 == 0 { 0 } else { slot as u16 + 1 };
        let all = std::mem::take(&mut self.model);
        let kept = catch_unwind(AssertUnwindSafe(|| {
            let decide = |slot: usize, bytes: &mut Bytes<'_>| {
                assert_eq!(bytes.len(), all[slot].1);
                if slot.is_multiple_of(3) {
                    bytes.truncate(bytes.len().saturating_sub(1));
                }
                assert_ne!(Some(slot), panic_at, "on purpose");
                verdict(slot)
            };
            self.batch.compact_with(PuttingOff(put_off, decide))
        }));
        let visited = panic_at.unwrap_or(usize::MAX);
        // A size holds from when it is set, also in the slot that panics.
        let after = |slot: usize, (mark, len): Seen| {
            (mark, if slot.is_multiple_of(3) && slot <= visited { len.saturating_sub(1) } else { len })
        };
        let mut parts = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
        for (slot, packet) in all.into_iter().enumerate() {
            let part = if slot >= visited { 2 } else { usize::from(verdict(slot) != 0) };
            parts[part].push_back((slot, after(slot, packet)));
        }
        match kept {
            Ok(kept) => {
                assert_eq!(kept, parts[0].len());
                for (slot, (at, _)) in (kept..).zip(&parts[1]) {
                    assert_eq!(self.batch.get(slot).unwrap().verdict(), verdict(*at));
                }
            }
            Err(_) => assert!(visited < self.batch.len()),
        }
        self.model = parts.into_iter().flatten().map(|(_, packet)| packet).collect();
    }

    fn check(&self) {
        for (batch, model) in [(&self.batch, &self.model), (&self.other, &self.other_model)] {
            assert_eq!(&seen(batch), model);
            assert_eq!(batch.len(), model.len());
            assert_eq!(batch.bytes(), model.iter().map(|packet| packet.1 as u64).sum::<u64>());
            assert_eq!((batch.is_empty(), batch.is_full()), (model.is_empty(), model.len() == BATCH));
        }
        assert_eq!(self.pool.available(), self.pool.capacity() - self.model.len() - self.other_model.len());
    }
}

/// Puts off the packets in slots whose bit is set.
struct PuttingOff<F>(u64, F);

impl<F: FnMut(usize, &mut Bytes<'_>) -> u16> Visit for PuttingOff<F> {
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        if self.0 >> (slot % 64) & 1 == 1 { u16::MAX } else { self.1(slot, bytes) }
    }
    fn is_unfinished(verdict: u16) -> bool {
        verdict == u16::MAX
    }
    fn finish(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        assert_eq!(self.0 >> (slot % 64) & 1, 1, "no other packet's");
        self.1(slot, bytes)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_behaves_like_a_vector(steps in proptest::collection::vec(step(), 1..40)) {
        std::panic::set_hook(Box::new(|panic| {
            if !panic.to_string().contains("on purpose") { eprintln!("{panic}"); }
        }));
        let pool = Pool::builder().frames(450).frame_size(1024).build().unwrap();
        let mut world = World {
            pool, next: 1, batch: Batch::new(), model: VecDeque::new(),
            other: Batch::new(), other_model: VecDeque::new(),
        };
        for step in &steps {
            world.step(step);
            world.check();
        }
        let World { pool, batch, other, .. } = world;
        drop((batch, other));
        prop_assert_eq!(pool.available(), pool.capacity());
    }
}

#[test]
fn leaving_packets_keep_their_order() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut batch = Batch::new();
    for byte in 0..8 {
        batch.push(pool.packet(&[byte]).unwrap()).unwrap();
    }
    let kept = batch.compact(|_, bytes| u16::from(bytes.data()[0] < 5));
    let order: Vec<u8> = batch.iter().map(|packet| packet.data()[0]).collect();
    assert_eq!((kept, order), (3, vec![5, 6, 7, 0, 1, 2, 3, 4]));
    let warm = batch.compact(|_, bytes| u16::from(bytes.data()[0] % 2));
    let order: Vec<u8> = batch.iter().map(|packet| packet.data()[0]).collect();
    assert_eq!((warm, order), (4, vec![6, 0, 2, 4, 5, 7, 1, 3]));
}

#[test]
fn a_batch_of_several_pools_and_sizes_frees_each_packet_to_its_own() {
    let first = Pool::builder().frames(300).large(20, 16_384).build().unwrap();
    let second = Pool::builder().frames(300).build().unwrap();
    let mut batch = Batch::new();
    for slot in 0..BATCH {
        let packet = match slot * 7 % 13 {
            0 => first.allocate(9000),
            1..8 => first.allocate(slot),
            _ => second.packet(&[1; 60]),
        };
        let mut packet = packet.unwrap();
        packet.annotations_mut().near_mut()[slot % 8] = 1;
        packet.annotations_mut().far_mut()[slot % 48] = 1;
        batch.push(packet).unwrap();
    }
    assert!(first.available() < 320 && second.available() < 300);
    drop(batch);
    assert_eq!((first.available(), second.available()), (320, 300));
    for pool in [first, second] {
        let all: Vec<_> = std::iter::from_fn(|| pool.empty(0)).collect();
        assert_eq!(all.len(), 300);
        assert!(
            all.iter()
                .all(|packet| (packet.near_annotations(), packet.far_annotations()) == (&[0; 8], &[0; 48]))
        );
    }
}

#[test]
fn a_packet_that_was_exchanged_in_its_slot_is_the_one_that_loops_see() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut batch = Batch::new();
    for byte in 0..4 {
        batch.push(pool.packet(&[byte; 4]).unwrap()).unwrap();
    }
    let other = pool.packet(&[9; 30]).unwrap();
    drop(std::mem::replace(&mut *batch.packet(2).unwrap(), other));
    let mut seen = Vec::new();
    batch.each(|_, bytes| seen.push(bytes.data().to_vec()));
    assert_eq!(seen, [vec![0; 4], vec![1; 4], vec![9; 30], vec![3; 4]]);
    assert_eq!((batch.len(), batch.bytes(), pool.available()), (4, 42, 60));
    // A loan that never ends costs the packets from there on, and shows no other packet's bytes.
    std::mem::forget(batch.packet(1).unwrap());
    let mut seen = Vec::new();
    batch.each(|_, bytes| seen.push(bytes.data().to_vec()));
    assert_eq!(seen, [vec![0; 4]]);
    assert_eq!((batch.len(), batch.bytes()), (1, 4), "nor counts their bytes");
    std::mem::forget(batch.packet(0).unwrap());
    assert_eq!((batch.len(), batch.bytes()), (0, 0));
    drop(batch);
    assert_eq!(pool.available(), 60);
}

#[test]
fn packets_changed_in_a_loop_over_the_batch_are_counted_as_they_are_afterwards() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut batch = Batch::new();
    for byte in 0..4 {
        batch.push(pool.packet(&[byte; 4]).unwrap()).unwrap();
    }
    batch.each_packet(|slot, packet| packet.truncate(slot));
    assert_eq!((batch.len(), batch.bytes()), (4, 6));
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        batch.each_packet(|slot, packet| {
            packet.truncate(1);
            assert!(slot < 2, "in the middle");
        });
    }));
    assert!(stopped.is_err());
    assert_eq!((batch.len(), batch.bytes()), (4, 5), "0 + 1 + 1 + 3");
    let mut seen = Vec::new();
    batch.each(|_, bytes| seen.push(bytes.len()));
    assert_eq!(seen, [0, 1, 1, 3]);
}

#[test]
fn each_item_beside_goes_with_its_packet() {
    let pool = Pool::builder().frames(8).build().unwrap();
    let mut batch = Batch::new();
    for byte in 0..3 {
        batch.push(pool.packet(&[byte]).unwrap()).unwrap();
    }
    for beside in [&["a", "b"][..], &["a", "b", "c"], &["a", "b", "c", "d"]] {
        let mut seen = Vec::new();
        batch.each_beside(beside, |slot, bytes, name| seen.push((slot, bytes.data()[0], *name)));
        let expected: Vec<_> =
            [(0, 0, "a"), (1, 1, "b"), (2, 2, "c")].into_iter().take(beside.len()).collect();
        assert_eq!(seen, expected);
    }
    // From a slot on, and until a closure answers `false`.
    let mut seen = Vec::new();
    let mut look = |from, until| {
        seen.clear();
        let stopped = batch.each_beside_while(from, ["x", "y", "z"], |slot, bytes, name| {
            seen.push((slot, bytes.data()[0], name));
            slot != until
        });
        (stopped, seen.clone())
    };
    assert_eq!(look(0, 1), (1, vec![(0, 0, "x"), (1, 1, "y")]));
    assert_eq!(look(1, 9), (3, vec![(1, 1, "x"), (2, 2, "y")]));
    assert_eq!(look(3, 9), (3, vec![]));
}

#[test]
fn bytes_that_grow_and_shrink_at_both_ends_stay_where_they_are() {
    let pool = Pool::builder().frames(8).frame_size(1024).build().unwrap();
    let mut batch = Batch::new();
    batch.push(pool.packet(&[1, 2, 3]).unwrap()).unwrap();
    let headroom = batch.get(0).unwrap().headroom();
    batch.each(|_, bytes| {
        bytes.push_front(2).unwrap().copy_from_slice(&[7, 8]);
        bytes.extend(2).unwrap()[1] = 9;
        bytes.pull_front(1).unwrap();
        bytes.truncate(5);
        assert_eq!((bytes.data(), bytes.headroom()), (&[8, 1, 2, 3, 0][..], headroom - 1));
        let room = bytes.tailroom();
        assert!(bytes.extend(room + 1).is_err() && bytes.push_front(headroom).is_err());
    });
    let packet = batch.get(0).unwrap();
    assert_eq!((packet.data(), packet.headroom()), (&[8, 1, 2, 3, 0][..], headroom - 1));
    assert_eq!(batch.bytes(), 5);
    assert_eq!(batch.compact(|_, bytes| u16::from(bytes.data() != [8, 1, 2, 3, 0])), 1);
}
