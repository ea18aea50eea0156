use std::sync::atomic::Ordering;

use netbricks_core::Totals;

use super::*;
use crate::testing::*;
use crate::{ReceiveNode, TransmitLimits, TransmitNode};

/// Two graphs in two threads send through one queue: all of it arrives, each flow in order, and both count exactly.
#[test]
fn two_graphs_share_a_transmit_queue() {
    let (pool, directory) = (pool(), Directory::new("shared"));
    let cx = crate::OpenContext { queues: 2, ..context(&pool, &directory) };
    let settings = "packets = 60000\nflows = 64\npayload = 'pattern'";
    let mut from = open("generator", settings, &cx).unwrap();
    let mut to = open("null", "", &crate::OpenContext { queues: 1, ..cx.clone() }).unwrap();
    let limits = TransmitLimits::of(to.as_ref());
    let counters = to.counters()[0].clone();
    let shared = SharedTransmit::new(to.take_transmit(0).unwrap());
    let start = std::sync::Barrier::new(2);
    let totals: Vec<Totals> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|number| {
                let source = ReceiveNode::take(from.as_mut(), 0, number).unwrap();
                let sink = TransmitNode::new(Box::new(shared.clone()), "null", limits, counters.clone());
                let (pool, start) = (pool.clone(), &start);
                scope.spawn(move || {
                    let mut builder = netbricks_core::GraphBuilder::new("test");
                    let source = builder.add("in", Box::new(source)).unwrap();
                    let sink = builder.add("out", Box::new(sink)).unwrap();
                    builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
                    let mut graph = builder.build(pool).unwrap();
                    start.wait();
                    let now = run(&mut graph, |_| false);
                    finish(graph, now)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    for totals in &totals {
        assert_eq!((totals.received.packets, totals.sent.packets), (30_000, 30_000));
    }
    assert_eq!(counters.sent.load(Ordering::Relaxed), 60_000);
    assert_eq!(pool.available(), pool.capacity());
}

/// A line behind a shared queue: each graph alone does not know what of its packets the other let out, but the sums of
/// both are exact once both are taken down, in either order.
#[test]
fn what_a_shared_line_keeps_is_counted_once() {
    for first in [0, 1] {
        let (pool, directory) = (pool(), Directory::new("shared-line"));
        let cx = crate::OpenContext { queues: 2, ..context(&pool, &directory) };
        let mut from = open("generator", "rate = '10 kpps'", &cx).unwrap();
        let one = crate::OpenContext { queues: 1, ..cx };
        let mut to = open("null", "delay = '3 ms'\nreorder = 0.1\nduplicate = 0.1", &one).unwrap();
        let limits = TransmitLimits::of(to.as_ref());
        let counters = to.counters()[0].clone();
        let shared = SharedTransmit::new(to.take_transmit(0).unwrap());
        let handles = [shared.clone(), shared];
        let mut graphs: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(number, handle)| {
                let mut builder = netbricks_core::GraphBuilder::new("test");
                let source = ReceiveNode::take(from.as_mut(), 0, number).unwrap();
                let source = builder.add("in", Box::new(source)).unwrap();
                let sink = TransmitNode::new(Box::new(handle), "null", limits, counters.clone());
                let sink = builder.add("out", Box::new(sink)).unwrap();
                builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
                builder.build(pool.clone()).unwrap()
            })
            .collect();
        let sum = |graphs: &[netbricks_core::Graph]| {
            let mut totals = Totals::default();
            graphs.iter().for_each(|graph| totals.merge(&graph.totals()));
            totals
        };
        for _ in 0..500 {
            graphs.iter_mut().for_each(|graph| {
                graph.turn(0);
            });
            assert!(sum(&graphs).is_conserved(), "{:?}", sum(&graphs));
        }
        assert!(sum(&graphs).held > 0);
        graphs[first].drain(0);
        graphs[1 - first].drain(0);
        let totals = sum(&graphs);
        assert!(totals.is_conserved() && totals.held == 0, "{totals:?}");
        assert_eq!(totals.created.packets, counters.duplicated.load(Ordering::Relaxed));
        assert_eq!(pool.available(), pool.capacity());
    }
}
