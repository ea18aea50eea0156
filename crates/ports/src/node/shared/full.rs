//! Tests with full queues, and with workers that never stop leaving packets.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use netbricks_buffer::Pool;
use netbricks_core::{DetachedContext, Edge, Graph, GraphBuilder, Totals};

use super::*;
use crate::testing::*;
use crate::{ReceiveNode, TransmitLimits, TransmitNode};

/// The calls and packets of a [`Narrow`] queue, and the number of packets for which it has room.
#[derive(Default)]
struct Wire {
    room: AtomicUsize,
    calls: AtomicUsize,
    sent: Mutex<Vec<Vec<u8>>>,
}

impl Wire {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
    fn sent(&self) -> Vec<Vec<u8>> {
        self.sent.lock().unwrap().clone()
    }
}

/// A queue that takes at most `step` packets a call, as long as there is room.
///
/// It keeps nothing and does not ask for a flush, like a socket.
struct Narrow {
    wire: Arc<Wire>,
    step: usize,
}

impl TransmitQueue for Narrow {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.wire.calls.fetch_add(1, Ordering::Relaxed);
        let room = self.wire.room.load(Ordering::Relaxed);
        let mut out = Batch::new();
        batch.take_front(room.min(self.step).min(batch.len()), &mut out);
        self.wire.room.store(room - out.len(), Ordering::Relaxed);
        cx.transmitting().sent(out.len() as u64, out.bytes());
        self.wire.sent.lock().unwrap().extend(out.drain().map(|packet| packet.data().to_vec()));
    }
}

fn narrow(room: usize, step: usize) -> (Arc<Wire>, SharedTransmit) {
    let wire = Arc::new(Wire { room: room.into(), ..Wire::default() });
    let shared = SharedTransmit::new(Box::new(Narrow { wire: wire.clone(), step }), Arc::default());
    (wire, shared)
}

const LIMITS: TransmitLimits =
    TransmitLimits { mtu: 1500, checksum_offload: false, segmentation_offload: false };

fn graph(from: &mut dyn crate::Port, handle: SharedTransmit, pool: &Pool) -> Graph {
    limited(from, handle, LIMITS, pool)
}

fn limited(from: &mut dyn crate::Port, handle: SharedTransmit, limits: TransmitLimits, pool: &Pool) -> Graph {
    let source = ReceiveNode::take(from, 0, 0).unwrap();
    let counters = Arc::clone(&handle.shared.counters);
    let sink = TransmitNode::new(Box::new(handle), "narrow", limits, counters);
    let mut builder = GraphBuilder::new("test");
    let source = builder.add("in", Box::new(source)).unwrap();
    let sink = builder.add("out", Box::new(sink)).unwrap();
    builder.connect(source, Edge::OUT, sink, 0).unwrap();
    builder.build(pool.clone()).unwrap()
}

/// A batch of packets. The bytes of each are `first` and the packet's number.
fn batch(pool: &Pool, first: u8, packets: u8) -> Batch {
    let mut batch = Batch::new();
    for number in 0..packets {
        assert!(batch.push(pool.packet(&[first, number]).unwrap()).is_ok());
    }
    batch
}

/// Leaves packets while another worker has the queue.
fn leave(handle: &mut SharedTransmit, mut batch: Batch, cx: &mut Context) {
    let shared = handle.shared.clone();
    let taken = shared.lock();
    handle.transmit(&mut batch, cx);
    assert!(batch.is_empty());
    drop(taken);
}

/// A queue to which another worker leaves as many packets as it sends, during each call.
struct Refilled {
    other: Arc<Mutex<Option<SharedTransmit>>>,
    cx: DetachedContext,
    sent: Arc<AtomicUsize>,
}

impl TransmitQueue for Refilled {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        let count = batch.len();
        let sent = self.sent.fetch_add(count, Ordering::Relaxed);
        assert!(sent < 100_000, "the sender is kept for ever");
        cx.transmitting().sent(count as u64, batch.bytes());
        batch.clear();
        let mut more = Batch::new();
        self.cx.pool().allocate_written_into(&mut more, count, b"more");
        if let Some(other) = self.other.lock().unwrap().as_mut() {
            other.transmit(&mut more, &mut self.cx);
        }
        assert!(more.is_empty(), "it has room for as much as left it");
    }
}

/// A worker does not become the permanent sender for workers that never stop.
///
/// It sends its own packets and a bounded number of theirs, and then returns.
#[test]
fn no_worker_is_kept_as_the_sender_of_others() {
    let pool = pool();
    let (other, sent) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let queue =
        Refilled { other: Arc::clone(&other), cx: DetachedContext::new(pool.clone()), sent: sent.clone() };
    let mut shared = SharedTransmit::new(Box::new(queue), Arc::default());
    let mut cx = DetachedContext::new(pool.clone());
    let mut one = shared.clone();
    for _ in 0..3 {
        let mut left = Batch::new();
        pool.allocate_written_into(&mut left, BATCH, b"left");
        leave(&mut one, left, &mut cx);
    }
    *other.lock().unwrap() = Some(one);
    let mut own = batch(&pool, 1, 8);
    shared.transmit(&mut own, &mut cx);
    assert!(own.is_empty());
    let before = sent.load(Ordering::Relaxed);
    assert_eq!(before, BUDGET + 8);
    shared.flush(&mut cx);
    assert_eq!(sent.load(Ordering::Relaxed), before + BUDGET, "a turn takes as many");
    // Breaks the cycle of handle and queue.
    let one = other.lock().unwrap().take();
    drop(one);
}

/// When older packets exceed the budget, a worker puts its own packets behind them.
#[test]
fn packets_over_the_budget_stay_in_order() {
    let pool = pool();
    let (wire, mut own) = narrow(usize::MAX, BATCH);
    let mut cx = DetachedContext::new(pool.clone());
    let mut others = [own.clone(), own.clone()];
    for other in &mut others {
        for number in 0..4 {
            leave(other, batch(&pool, number, 200), &mut cx);
        }
    }
    let mut last = batch(&pool, 9, 3);
    own.transmit(&mut last, &mut cx);
    assert!(last.is_empty());
    assert_eq!(wire.sent().len(), BUDGET);
    assert!(own.due().is_some_and(|due| due <= SOON), "a worker comes back soon");
    own.flush(&mut cx);
    let sent = wire.sent();
    assert_eq!(sent.len(), 2 * 800 + 3);
    assert_eq!(sent[1600..], [vec![9, 0], vec![9, 1], vec![9, 2]]);
    assert_eq!(own.due(), None);
    assert_eq!(pool.available(), pool.capacity());
}

/// At shutdown the packets in front of a queue that takes nothing are dropped with a reason.
///
/// The order in which the workers shut down does not matter.
#[test]
fn packets_before_a_full_queue_are_counted_at_the_end() {
    for (first, room) in [(0, 0), (1, 0), (0, 100), (1, 100)] {
        let (pool, directory) = (pool(), Directory::new("full"));
        let cx = context(&pool, &directory);
        let (wire, shared) = narrow(0, BATCH);
        let (one, other) = (shared.clone(), shared.clone());
        let mut graphs: Vec<_> = [one, other]
            .into_iter()
            .map(|handle| {
                let mut from = open("generator", "packets = 900", &cx).unwrap();
                graph(from.as_mut(), handle, &pool)
            })
            .collect();
        let taken = shared.shared.lock();
        for graph in &mut graphs {
            run(graph, |_| false);
            assert_eq!(graph.totals().handoff_out.packets, 900);
        }
        drop(taken);
        wire.room.store(room, Ordering::Relaxed);
        let mut totals = Totals::default();
        graphs[first].drain(0);
        graphs[1 - first].drain(0);
        graphs.iter().for_each(|graph| totals.merge(&graph.totals()));
        assert!(totals.is_conserved(), "{totals:?}");
        assert_eq!((totals.held, totals.handoff(), totals.sent.packets), (0, 0, room as u64));
        assert_eq!(totals.drops.of(DropReason::TransmitFull).packets, 1_800 - room as u64);
        assert_eq!(shared.shared.counters.not_sent.load(Ordering::Relaxed), 1_800 - room as u64);
        // Both handles still exist: no packet was freed uncounted.
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// Two workers lose every packet at the queue that they share, at the same time.
///
/// The queue's counter counts each one.
#[test]
fn packets_lost_by_several_workers_at_one_queue_count_once_each() {
    let (pool, directory) = (pool(), Directory::new("lost"));
    let cx = context(&pool, &directory);
    let (wire, shared) = narrow(0, BATCH);
    let limits = TransmitLimits { mtu: 1, ..LIMITS };
    std::thread::scope(|scope| {
        for handle in [shared.clone(), shared.clone()] {
            let (cx, pool) = (&cx, &pool);
            scope.spawn(move || {
                let _slot = netbricks_buffer::WorkerSlot::claim().unwrap();
                let mut from = open("generator", "packets = 200000", cx).unwrap();
                let mut graph = limited(from.as_mut(), handle, limits, pool);
                run(&mut graph, |totals| totals.drops.total().packets >= 200_000);
                graph.drain(0);
                assert_eq!(graph.totals().drops.of(DropReason::TooBig).packets, 200_000);
            });
        }
    });
    assert_eq!(shared.shared.counters.not_sent.load(Ordering::Relaxed), 400_000);
    assert_eq!((wire.calls(), pool.available()), (0, pool.capacity()));
}

/// Packets that a full queue left go out when it has room, even if no worker sends any more.
#[test]
fn packets_left_by_a_full_queue_go_out_without_new_traffic() {
    let pool = pool();
    let (wire, shared) = narrow(0, BATCH);
    let (mut from, far) = crate::memory::Memory::new("in", 1, 1_024, &pool);
    let mut idle = graph(&mut from, shared.clone(), &pool);
    let mut cx = DetachedContext::new(pool.clone());
    let mut other = shared.clone();
    leave(&mut other, batch(&pool, 1, 100), &mut cx);
    let mut now = 1_000_000_000;
    let mut turns = |graph: &mut Graph, milliseconds: u64| {
        for _ in 0..4 * milliseconds {
            graph.turn(now);
            now += 250_000;
        }
    };
    turns(&mut idle, 20);
    assert!((2..=100).contains(&wire.calls()), "it is asked now and then: {}", wire.calls());
    wire.room.store(usize::MAX, Ordering::Relaxed);
    turns(&mut idle, 20);
    assert_eq!(wire.sent().len(), 100);
    let totals = idle.totals();
    assert_eq!((totals.handoff_in.packets - totals.handoff_out.packets, totals.sent.packets), (100, 100));
    far.end();
    finish(idle, now);
    assert_eq!(pool.available(), pool.capacity());
}

/// A full queue is asked as often as each user asks, and the tries do not multiply.
#[test]
fn tries_of_a_full_queue_do_not_multiply() {
    let pool = pool();
    let (wire, mut shared) = narrow(0, BATCH);
    let mut cx = DetachedContext::new(pool.clone());
    leave(&mut shared.clone(), batch(&pool, 1, 10), &mut cx);
    let mut own = batch(&pool, 2, 10);
    super::super::transmit::offer(&mut shared, &mut own, &mut cx);
    assert_eq!((own.len(), wire.calls()), (10, TRIES));
    shared.release(&mut cx);
    assert_eq!(wire.calls(), 2 * TRIES);
    assert_eq!(cx.take_drops().of(DropReason::TransmitFull).packets, 10, "the others are still the caller's");
}

/// A queue that takes few packets at a time is not full: it is asked while it takes some.
#[test]
fn a_slow_queue_is_not_a_full_one() {
    let pool = pool();
    let (wire, mut shared) = narrow(17, 3);
    let mut cx = DetachedContext::new(pool.clone());
    leave(&mut shared.clone(), batch(&pool, 1, 20), &mut cx);
    shared.flush(&mut cx);
    assert_eq!((wire.sent().len(), wire.calls()), (17, 7));
    wire.room.store(usize::MAX, Ordering::Relaxed);
    let mut own = batch(&pool, 2, 1);
    shared.transmit(&mut own, &mut cx);
    let expected: Vec<Vec<u8>> = (0..20).map(|number| vec![1, number]).chain([vec![2, 0]]).collect();
    assert_eq!(wire.sent(), expected);
}

/// A flow that moved from one worker to another keeps its order, whichever worker came to the queue first.
#[test]
fn waiting_packets_go_by_age_and_not_by_worker() {
    let pool = pool();
    let (wire, mut first) = narrow(usize::MAX, BATCH);
    let mut cx = DetachedContext::new(pool.clone());
    let mut second = first.clone();
    let mut third = first.clone();
    let mut expected = Vec::new();
    for (turn, handle) in [2, 1, 0, 2, 0, 0, 1].into_iter().enumerate() {
        let handle = [&mut first, &mut second, &mut third].into_iter().nth(handle).unwrap();
        leave(handle, batch(&pool, turn as u8, 5), &mut cx);
        expected.extend((0..5).map(|number| vec![turn as u8, number]));
    }
    second.transmit(&mut batch(&pool, 7, 1), &mut cx);
    expected.push(vec![7, 0]);
    assert_eq!(wire.sent(), expected);
}

/// A driver that panics in its flush loses none of the packets that wait.
#[test]
fn waiting_packets_survive_a_panic_in_a_flush() {
    struct Shaky(Narrow, bool);
    impl TransmitQueue for Shaky {
        fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
            self.0.transmit(batch, cx);
        }
        fn flush(&mut self, _cx: &mut Context) {
            assert!(std::mem::replace(&mut self.1, true), "the first time");
        }
    }
    let pool = pool();
    let wire = Arc::new(Wire::default());
    let mut shared = SharedTransmit::new(
        Box::new(Shaky(Narrow { wire: wire.clone(), step: BATCH }, false)),
        Arc::default(),
    );
    let mut cx = DetachedContext::new(pool.clone());
    leave(&mut shared.clone(), batch(&pool, 1, 10), &mut cx);
    let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.flush(&mut DetachedContext::new(pool.clone()))
    }));
    assert!(flushed.is_err());
    wire.room.store(usize::MAX, Ordering::Relaxed);
    shared.flush(&mut cx);
    assert_eq!(wire.sent().len(), 10);
}

/// The marks and packets of a ring agree, however packets are left and taken; checked against a model.
#[test]
fn marks_keep_step_with_packets() {
    let pool = pool();
    let tickets = Tickets::default();
    let (mut leaves, left) = left::ring();
    let (mut rings, mut model) = ([left], std::collections::VecDeque::new());
    let (mut next, mut seed) = (0u32, 1u64);
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % below) as usize
    };
    for _ in 0..20_000 {
        if random(2) == 0 {
            let mut batch = Batch::new();
            for _ in 0..=random(if next.is_multiple_of(3) { 2 } else { 60 }) {
                assert!(batch.push(pool.packet(&next.to_be_bytes()).unwrap()).is_ok());
                next += 1;
            }
            let (ticket, all) = (tickets.next(), batch.len() as u32);
            let pushed = leaves.push(&mut batch, &tickets);
            model.extend((0..pushed as u32).map(|number| (ticket, next - all + number)));
            assert!(pushed as u32 == all || model.len() == WAITING);
        } else {
            let (before, count, mut batch) =
                (tickets.next() - random(3).min(1) as u64 * (tickets.next() / 2), random(80), Batch::new());
            let taken = left::take(&mut rings, before, count, &mut batch);
            let ready = model.iter().take_while(|(ticket, _)| *ticket < before).count();
            assert_eq!(taken, ready.min(count));
            for (packet, (_, number)) in batch.iter().zip(model.drain(..taken)) {
                assert_eq!(packet.data(), number.to_be_bytes());
            }
        }
    }
    assert!(next > 100_000);
}
