//! Design, section 6: edges are followed by a worklist.
//!
//! Order is kept, cycles end, and no packet is lost on the way.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::buffer::Batch;
use netbricks_core::{DropReason, Edge, merge};
use netbricks_testkit::BURSTS;

use crate::harness::{Feed, Rig, Sink, act, counters, nothing, number, numbered, run_out, split};

#[test]
fn branches_that_meet_lose_nothing_and_keep_the_order_of_each() {
    for burst in BURSTS {
        let (feed, sink) = (Feed::of((0..1000).map(numbered)), Sink::default());
        let mut rig = Rig::new();
        let source = rig.add("source", Box::new(feed));
        let (a, b, c) = (split(2, |n| n % 3 == 0), split(5, |n| n % 7 == 0), nothing());
        let (a, b, c) = (rig.add("a", a.boxed()), rig.add("b", b.boxed()), rig.add("c", c.boxed()));
        let (meet, end) = (rig.add("meet", merge(3)), rig.add("end", Box::new(sink.clone())));
        rig.chain(&[source, a, b]);
        rig.connect(a, 2, c);
        for (input, (node, edge)) in [(b, 0), (b, 5), (c, 0)].into_iter().enumerate() {
            rig.builder.connect(node, Edge(edge), meet, input).unwrap();
        }
        rig.connect(meet, 0, end);
        let (mut graph, pool) = rig.build();
        graph.set_burst(burst);
        run_out(&mut graph);
        let out = sink.numbers();
        let way = |n: &u32| {
            if n.is_multiple_of(3) {
                0
            } else if n.is_multiple_of(7) {
                1
            } else {
                2
            }
        };
        for w in 0..3 {
            let of_way: Vec<_> = out.iter().copied().filter(|n| way(n) == w).collect();
            assert_eq!(of_way, (0..1000).filter(|n| way(n) == w).collect::<Vec<_>>(), "burst {burst}");
        }
        assert_eq!((out.len(), pool.available()), (1000, pool.capacity()));
    }
}

#[test]
fn packets_from_one_node_to_one_input_stay_in_order_over_any_edge() {
    // Odd numbers go ahead on another edge to the same input: packets that wait there came first.
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..512).map(numbered))));
    let a = rig.add(
        "a",
        act(|_, batch, cx| {
            // All packets are emitted, in order, to one target by two edges.
            for packet in batch.drain() {
                let edge = if number(packet.data()).is_multiple_of(2) { 1 } else { 2 };
                cx.emit(Edge(edge), packet);
            }
        })
        .edges(&[(0, true), (1, false), (2, false)])
        .boxed(),
    );
    let b = rig.add(
        "b",
        act(move |_, batch, _| log.borrow_mut().extend(batch.iter().map(|p| number(p.data())))).boxed(),
    );
    let end = rig.add("end", Box::new(Sink::default()));
    rig.connect(source, 0, a);
    rig.connect(a, 1, b);
    rig.connect(a, 2, b);
    rig.connect(b, 0, end);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    assert_eq!(*seen.borrow(), (0..512).collect::<Vec<_>>());
    // 512 packets in two turns of 256 came in two batches, not in 512.
    assert_eq!(counters(&graph, "b").batches, 2);
}

#[test]
fn a_batch_leaves_by_an_edge_as_a_whole() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..600).map(numbered))));
    let a = rig.add(
        "a",
        act(|_, batch, cx| {
            // Every third packet leaves alone behind the others; edge 3 leads nowhere.
            let (mut whole, mut lost) = (Batch::new(), Batch::new());
            let mut alone = Vec::new();
            for packet in batch.drain() {
                match number(packet.data()) % 3 {
                    0 => alone.push(packet),
                    1 => assert!(whole.push(packet).is_ok()),
                    _ => assert!(lost.push(packet).is_ok()),
                }
            }
            cx.emit_batch(Edge(1), &mut whole);
            cx.emit_batch(Edge(3), &mut lost);
            let mut last: Option<Batch> = None;
            for packet in alone {
                if number(packet.data()).is_multiple_of(2) {
                    cx.emit(Edge(1), packet);
                } else {
                    assert!(last.get_or_insert_default().push(packet).is_ok());
                }
            }
            // Behind packets that left one by one, so does a batch.
            cx.emit_batch(Edge(1), &mut last.unwrap_or_default());
            assert!(whole.is_empty() && lost.is_empty());
        })
        .edges(&[(0, true), (1, false), (3, true)])
        .boxed(),
    );
    let b = rig.add(
        "b",
        act(move |_, batch, _| log.borrow_mut().extend(batch.iter().map(|p| number(p.data())))).boxed(),
    );
    let end = rig.add("end", Box::new(Sink::default()));
    rig.connect(source, 0, a);
    rig.connect(a, 1, b);
    rig.connect(b, 0, end);
    let (mut graph, pool) = rig.build();
    graph.set_burst(200);
    run_out(&mut graph);
    let mut expected = Vec::new();
    for turn in 0..3_u32 {
        let numbers = || turn * 200..(turn + 1) * 200;
        expected.extend(numbers().filter(|n| n % 3 == 1));
        expected.extend(numbers().filter(|n| n % 3 == 0 && n % 2 == 0));
        expected.extend(numbers().filter(|n| n % 3 == 0 && n % 2 == 1));
    }
    assert_eq!(*seen.borrow(), expected);
    assert_eq!(counters(&graph, "b").batches, 3, "one for each turn");
    let totals = graph.totals();
    assert_eq!(totals.drops.of(DropReason::Unconnected).packets, 200);
    assert!(totals.is_conserved(), "{totals:?}");
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn cycles_end_and_are_counted() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let (a, b) = (rig.add("a", nothing().boxed()), rig.add("b", split(1, |n| n >= 50).boxed()));
    let sink = Sink::default();
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, a, b]);
    rig.connect(b, 1, end);
    rig.connect(b, 0, a);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    let totals = graph.totals();
    assert_eq!((totals.sent.packets, totals.drops.of(DropReason::LoopLimit).packets), (50, 50));
    assert_eq!(sink.numbers(), (50..100).collect::<Vec<_>>());
    assert_eq!(pool.available(), pool.capacity());
    // A bounded number of rounds.
    assert!(counters(&graph, "a").batches < 100);
}

#[test]
fn cycles_over_other_edges_end_as_well() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let (a, b) = (rig.add("a", merge(2)), rig.add("b", split(1, |n| n < 5).boxed()));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, a, b, end]);
    rig.builder.connect(b, Edge(1), a, 1).unwrap();
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!((graph.totals().sent.packets, graph.totals().drops.of(DropReason::LoopLimit).packets), (5, 5));
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn an_optional_edge_that_leads_nowhere_is_a_counted_reason() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let node = rig.add("node", split(3, |n| n < 40).boxed());
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    let lost = counters(&graph, "node").drops.of(DropReason::Unconnected);
    assert_eq!((lost.packets, lost.bytes), (40, 2_400));
    let (node, record) = graph.dropped_headers().next().unwrap();
    assert_eq!(
        (node, record.reason, record.frame_len, number(record.bytes()) < 40),
        ("node", DropReason::Unconnected, 60, true)
    );
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn more_packets_than_one_batch_holds_may_wait_for_a_node() {
    // Every packet makes three more for the same node.
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..150).map(numbered))));
    let node = rig.add(
        "node",
        act(|_, batch, cx| {
            let copies: Vec<_> =
                batch.iter().flat_map(|p| [p.try_copy(), p.try_copy(), p.try_copy()]).flatten().collect();
            for copy in copies {
                cx.create(Edge(1), copy).unwrap();
            }
        })
        .edges(&[(0, false), (1, false)])
        .boxed(),
    );
    let (sink, copies) = (Sink::default(), Sink::default());
    let (end, others) = (rig.add("end", Box::new(sink.clone())), rig.add("others", Box::new(copies.clone())));
    rig.chain(&[source, node, end]);
    rig.connect(node, 1, others);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(copies.numbers(), (0..150).flat_map(|n| [n; 3]).collect::<Vec<_>>());
    assert_eq!((graph.totals().created.packets, pool.available()), (450, pool.capacity()));
}
