//! No allocation where workers share rings and state, and events make packets.
//!
//! Both workers' graphs take turns on one thread, which counts.
use allocation_counter::measure;
use netbricks_core::buffer::{Pool, WorkerSlot};
use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, Shares, Strict};
use netbricks_core::tables::{CounterArray, FlowTable, FlowTableConfig, MapChange};
use netbricks_core::{
    Edge, Graph, GraphBuilder, Node, Operator, Shuffle, ShuffleConfig, Worker, WorkerGroup, compose,
};
use netbricks_testkit::build::ethernet;

use crate::{BURST, Sink, Source};

const WARM: u64 = 2_000;
const COUNTED: u64 = 8_000;

/// Counts packets and keeps flows under both consistencies, and sends their number every 50 µs.
fn shared(worker: &Worker) -> Box<dyn Node> {
    fn both<C: Consistency + Copy>(
        worker: &Worker,
        name: &str,
        consistency: C,
    ) -> (C::Handle<CounterArray>, C::Handle<FlowTable<u64, u64>>) {
        let counts = worker.state::<CounterArray, C>(&format!("{name} counts"), consistency, 16);
        let flows = FlowTableConfig::new(8);
        (counts, worker.state::<FlowTable<u64, u64>, C>(&format!("{name} flows"), consistency, flows))
    }
    let node = compose(worker, |input| {
        let (strict, strict_flows) = both(worker, "strict", Strict);
        let (bounded, bounded_flows) = both(worker, "bounded", BoundedInconsistency { updates: 1 << 20 });
        let (told, written) = (bounded.clone(), bounded.clone());
        worker.invoke_every("tell", 50_000, move |event| {
            let seen = told.read(|counts| counts.get(0).unwrap_or_default());
            event.inject(Edge::OUT, 60, |frame| frame[14..22].copy_from_slice(&seen.to_be_bytes()));
            written.update((1, 1)).unwrap();
        });
        let mut number = 0u64;
        input
            .inspect(move |_| {
                number += 1;
                let put = MapChange::Put { key: number % 16, value: number, timeout: None, now: number };
                strict.update_all([(0, 1), (1, 1)], |_| ()).unwrap();
                strict_flows.update(put).unwrap();
                bounded.update((0, 1)).unwrap();
                bounded_flows.update(put).unwrap();
            })
            .done()
    });
    node.unwrap()
}

#[test]
fn packets_that_cross_and_state_that_workers_share_allocate_nothing() {
    let _slot = WorkerSlot::claim().unwrap();
    let pool = Pool::builder().frames(4_096).build().unwrap();
    let (group, shares) = (WorkerGroup::new(2), Shares::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 64, ..ShuffleConfig::default() });
    let frames: Vec<_> = (0..16)
        .map(|flow| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1_000 + flow, 53).build().unwrap())
        .collect();
    let mut graphs: Vec<Graph> = (0..2)
        .map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone()).sharing(&shares);
            let mut graph = GraphBuilder::new("warm");
            let source = graph.add("source", Box::new(Source(frames.clone(), 0))).unwrap();
            let across = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
            let shared = graph.add("shared", shared(&worker)).unwrap();
            let sink = graph.add("sink", Box::new(Sink::default())).unwrap();
            for (from, to) in [(source, across), (across, shared), (shared, sink)] {
                graph.connect(from, Edge::OUT, to, 0).unwrap();
            }
            let mut graph = graph.build(pool.clone()).unwrap();
            graph.set_burst(BURST as usize);
            graph
        })
        .collect();
    let mut now = 0;
    let mut turns = |graphs: &mut [Graph], count| {
        for turn in 0..count {
            now += 1_000;
            // The workers get ahead of each other in turn, so that rings are both full and empty.
            let at = usize::from(turn % 7 > 2);
            let _ = graphs[at].turn(now);
        }
    };
    turns(&mut graphs, WARM);
    let before: Vec<_> = graphs.iter().map(Graph::totals).collect();
    let allocated = measure(|| turns(&mut graphs, COUNTED));
    assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{allocated:?}");
    for (graph, before) in graphs.iter_mut().zip(before) {
        let totals = graph.totals();
        assert!(totals.handoff_out.packets > before.handoff_out.packets + 1_000, "packets crossed");
        assert!(totals.created.packets > before.created.packets, "events made packets");
        assert!(graph.take_panics().is_empty());
    }
}
