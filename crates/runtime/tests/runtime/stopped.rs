//! A run that is stopped while much waits before a shuffle: with back-pressure nothing of it is lost, however small rings are.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Pool;
use netbricks_core::{
    Drop, Edge, Function, GraphBuilder, GraphError, Input, Operator, Shuffle, ShuffleConfig, Worker, compose,
};
use netbricks_runtime::{Clock, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime};

use crate::nodes::Keeper;
use crate::shuffle::{Flows, SMALL, Seen, Witness, check_order};

/// Far more than a shuffle lets wait beside its rings.
const WAITS: usize = 6_000;

/// Counts its ends, after which nothing may come any more.
fn ending(input: Input, worker: &Worker, ends: Arc<AtomicU64>) -> impl Function + use<> {
    let over = Rc::new(Cell::new(false));
    let ended = over.clone();
    worker.at_the_end(move || {
        ends.fetch_add(1, Ordering::Relaxed);
        ended.set(true);
    });
    input.map(move |_| assert!(!over.get(), "a packet comes after the end")).done()
}

/// Two workers, each with a keeper before a shuffle and another shuffle behind that, stopped once something has been sent. Behind
/// each shuffle is a function that waits for its end.
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
fn what_waits_before_a_full_ring_is_taken_along() {
    // Small ones first, and one that empties into a small one.
    for rings in [[16, 16], [16_384, 16]] {
        let (report, seen) = stopped(rings);
        assert_eq!(report.totals.drops.of(Drop::RingFull).packets, 0, "rings of {rings:?}");
        assert_eq!(report.totals.sent, report.totals.received);
        check_order(&seen, 122, report.totals.sent.packets);
    }
}
