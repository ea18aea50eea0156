//! A run that is stopped while many packets wait before a shuffle.
//!
//! With backpressure none of them is lost, however small rings are.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::{
    DetachedContext, DropReason, Edge, Function, GraphBuilder, GraphError, Input, Node, Operator, Shuffle,
    ShuffleConfig, Totals, Worker, WorkerGroup, compose,
};
use netbricks_runtime::{Clock, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime};

use crate::deadlines::Capture;
use crate::nodes::Keeper;
use crate::shuffle::{Declared, Flows, SMALL, Seen, Witness, check_order, in_turn};

/// Far more than a shuffle keeps waiting beside its rings.
const WAITS: usize = 6_000;

/// Counts its ends, after which no packet may come any more.
fn ending(input: Input, worker: &Worker, ends: Arc<AtomicU64>) -> impl Function + use<> {
    let over = Rc::new(Cell::new(false));
    let ended = over.clone();
    worker.at_the_end(move || {
        ends.fetch_add(1, Ordering::Relaxed);
        ended.set(true);
    });
    input.map(move |_| assert!(!over.get(), "a packet comes after the end")).done()
}

/// Two workers, each with a keeper before a shuffle and another shuffle behind it, stopped after the first
/// output.
///
/// Behind each shuffle is a function that waits for its end.
fn stopped(rings: [usize; 2]) -> (FinalReport, Seen) {
    let (seen, ends) = (Seen::default(), Arc::<AtomicU64>::default());
    let shuffles = rings.map(|ring| Shuffle::new(ShuffleConfig { ring, ..SMALL }));
    let config = Config::new(Pool::builder().frames(65_536).build().unwrap())
        .workers(2)
        .placement(Placement::Unpinned)
        .clock(Clock::Driven)
        .idle(IdlePolicy::Balanced);
    let runtime = Runtime::start(config, |index| {
        let (shuffles, seen, ends) = (shuffles.clone(), seen.clone(), ends.clone());
        Factory::new(move |context| -> Result<_, GraphError> {
            let failed = |error| GraphError::Node { name: "node".into(), error };
            let mut graph = GraphBuilder::new("test");
            let worker = context.worker();
            let ending = || compose(worker, |input| ending(input, worker, ends.clone())).map_err(failed);
            let nodes = [
                graph.add("in", Box::new(Flows::new(index, 61, u64::MAX)))?,
                graph.add("keeper", Box::new(Keeper::new(WAITS)))?,
                graph.add("first", shuffles[0].node(context.worker()).map_err(failed)?)?,
                graph.add("ends between", ending()?)?,
                graph.add("second", shuffles[1].node(context.worker()).map_err(failed)?)?,
                graph.add("ends", ending()?)?,
                graph.add("out", Box::new(Witness { worker: index, seen }))?,
            ];
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0)?;
            }
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    while runtime.progress().sent.packets < 20_000 {
        std::thread::yield_now();
    }
    runtime.stop_handle().stop();
    let report = runtime.wait();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert!(report.panics.is_empty(), "{:?}", report.panics);
    assert_eq!(ends.load(Ordering::Relaxed), 4, "each is told once");
    (report, seen)
}

#[test]
fn packets_before_a_full_ring_are_taken_along() {
    // First small rings, then a large one that empties into a small one.
    for rings in [[16, 16], [16_384, 16]] {
        let (report, seen) = stopped(rings);
        assert_eq!(report.totals.drops.of(DropReason::RingFull).packets, 0, "rings of {rings:?}");
        assert_eq!(report.totals.sent, report.totals.received);
        check_order(&seen, 122, report.totals.sent.packets);
    }
}

/// Packets of a replay, each in its own millisecond, which wait in a ring when it is stopped.
const REPLAYED: u64 = 600;
const REPLAYED_FLOWS: u16 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// All buckets move to the second worker once half the packets have been received.
    Move,
    /// The first packet at the second worker's function makes it panic.
    Panic,
}

/// Behind the shuffle: a function with events.
fn timed(worker: &Worker, meanwhile: Meanwhile, panics: &Arc<AtomicBool>) -> Box<dyn Node> {
    let tick = || worker.invoke_every("tick", 333_333, |_| ());
    let panics = panics.clone();
    let node = match meanwhile {
        Meanwhile::Move => compose(worker, |input| {
            tick();
            in_turn(input, worker, Declared::FlowTable)
        }),
        Meanwhile::Panic => compose(worker, |input| {
            tick();
            input.map(move |_| assert!(!panics.swap(false, Ordering::Relaxed), "the planted panic")).done()
        }),
    };
    node.unwrap()
}

/// The totals of two workers that are stopped before the second has had a turn.
fn stopped_replay(meanwhile: Meanwhile) -> ([Totals; 2], Seen) {
    let (pool, group, seen) =
        (Pool::builder().frames(4_096).build().unwrap(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 1_024, ..SMALL });
    let (ready, panics) = (Barrier::new(2), Arc::new(AtomicBool::new(false)));
    let part = |index: usize| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        let shuffled = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
        let timed = graph.add("timed", timed(&worker, meanwhile, &panics)).unwrap();
        let out = graph.add("out", Box::new(Witness { worker: index, seen: seen.clone() })).unwrap();
        graph.connect(shuffled, Edge::OUT, timed, 0).unwrap();
        graph.connect(timed, Edge::OUT, out, 0).unwrap();
        if index == 0 {
            let capture = Capture::new(REPLAYED_FLOWS, REPLAYED, (1_700_000_000_123_456_789, 1_300_000));
            let capture = graph.add("capture", Box::new(capture)).unwrap();
            graph.connect(capture, Edge::OUT, shuffled, 0).unwrap();
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.follow_arrivals(true);
        ready.wait();
        if index == 0 {
            let received = |graph: &netbricks_core::Graph| graph.totals().received.packets;
            while received(&graph) < REPLAYED / 2 {
                graph.turn(0);
            }
            if meanwhile == Meanwhile::Move {
                assert_ne!(graph.call("shuffle", "move", "0-4095 1").unwrap(), "0");
            }
            while received(&graph) < REPLAYED {
                graph.turn(0);
            }
            // It has given its state away, for its part of the move.
            (0..1_000).for_each(|_| _ = graph.turn(0));
            panics.store(meanwhile == Meanwhile::Panic, Ordering::Relaxed);
        }
        ready.wait();
        assert_eq!(graph.drain(0), 0);
        assert_eq!(graph.unbalanced(), Vec::<String>::new());
        graph.totals()
    };
    let totals = std::thread::scope(|scope| {
        [0, 1].map(|index| scope.spawn(move || part(index))).map(|thread| thread.join().unwrap())
    });
    assert_eq!(pool.available(), pool.capacity());
    (totals, seen)
}

/// No event runs any more then, and none delays packets whose time comes.
#[test]
fn a_stopped_replay_takes_everything_along_whatever_happens_meanwhile() {
    for meanwhile in [Meanwhile::Move, Meanwhile::Panic] {
        let ([first, second], seen) = stopped_replay(meanwhile);
        assert!(first.is_conserved() && second.is_conserved());
        assert_eq!(first.handoff_out, second.handoff_in, "{meanwhile:?}");
        assert!(second.handoff_in.packets > REPLAYED / 4, "{meanwhile:?}: {}", second.handoff_in.packets);
        let panicked = second.drops.of(DropReason::Panicked).packets;
        let lost = first.drops.total() + second.drops.total();
        assert_eq!((panicked, lost.packets), (u64::from(meanwhile == Meanwhile::Panic), panicked));
        if meanwhile == Meanwhile::Move {
            let on = check_order(&seen, REPLAYED_FLOWS.into(), REPLAYED);
            assert!(on.contains(&2), "some have moved");
        }
    }
}

/// A worker that gives up waiting for another counts the packets that it got from it.
#[test]
fn packets_in_the_rings_of_an_abandoned_shuffle_are_counted() {
    let (pool, group) = (Pool::builder().frames(256).build().unwrap(), WorkerGroup::new(2));
    let shuffle = Shuffle::new(ShuffleConfig { ring: 64, ..SMALL });
    let workers = [0, 1].map(|index| Worker::new(index, 1, pool.clone()).in_group(group.clone()));
    let [mut giving, mut given_up] = workers.map(|worker| {
        let by_number = shuffle.node_by(&worker, |input| input, |packet| u64::from(packet.frame()[0]));
        (by_number.unwrap(), DetachedContext::new(pool.clone()))
    });
    let send = |giving: &mut (Box<dyn Node>, DetachedContext)| {
        let mut batch = Batch::new();
        for number in 0..40 {
            batch.push(pool.packet(&[number; 60]).unwrap()).unwrap();
        }
        giving.0.process(0, &mut batch, &mut giving.1);
        40 - batch.len() as u64
    };
    let handed = send(&mut giving);
    assert!((1..40).contains(&handed));
    let mut batch = Batch::new();
    given_up.0.as_queue().unwrap().drain(&mut batch, &mut given_up.1);
    assert!(batch.is_empty());
    let drops = given_up.1.take_drops();
    assert_eq!((drops.of(DropReason::Drained).packets, drops.total().packets), (handed, handed));
    // A worker that gives it more learns that it is gone.
    assert_eq!(send(&mut giving), handed);
    let drops = giving.1.take_drops();
    assert_eq!((drops.of(DropReason::WorkerGone).packets, drops.total().packets), (handed, handed));
    assert_eq!(pool.available(), pool.capacity());
}
