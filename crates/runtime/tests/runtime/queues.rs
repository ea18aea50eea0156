//! Losses of a group's queue: none when its worker has enough time, and none of a replay, at any burst.

use netbricks_buffer::Batch;
use netbricks_core::{
    Context, Edge, Graph, GraphBuilder, GroupConfig, Groups, Node, NodeId, Output, Shape, Turn, Worker, merge,
};
use netbricks_runtime::{Clock, Factory, Runtime};

use crate::groups::{Ends, Seen, by_first_byte, pool, source};
use crate::nodes::{Hourly, Sink, Source, chain, config};

const PACKETS: u64 = 1_000;

/// Runs a graph to its end, and answers its output.
///
/// It has `sources` sources of `PACKETS` each, of three groups, before the nodes that `wire` makes.
fn run_out(
    (sources, burst, led): (u8, usize, bool),
    wire: impl FnOnce(&mut GraphBuilder, &Worker, NodeId) -> NodeId,
) -> (Graph, Seen) {
    let (pool, seen) = (pool(), Seen::default());
    let worker = Worker::new(0, 1, pool.clone());
    let mut graph = GraphBuilder::new("test");
    let ends = graph.add("ends", Box::new(Ends(4, seen.clone()))).unwrap();
    let first = wire(&mut graph, &worker, ends);
    for from in 0..sources {
        let source = graph.add(format!("in {from}"), source(&[16, 4, 4], PACKETS, from)).unwrap();
        graph.connect(source, Edge::OUT, first, 0).unwrap();
    }
    let mut graph = graph.build(pool).unwrap();
    graph.set_burst(burst);
    graph.follow_arrivals(led);
    let ended = (0..200_000).find(|_| graph.turn(0) == Turn::Done);
    assert!(ended.is_some(), "it does not end");
    assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
    (graph, seen)
}

fn queue(graph: &mut GraphBuilder, worker: &Worker, (groups, queue): (usize, usize), to: NodeId) -> NodeId {
    let node = graph.add(format!("queue {queue}"), by_first_byte(groups, queue, worker)).unwrap();
    (0..groups).for_each(|group| graph.connect(node, Groups::edge(group), to, 0).unwrap());
    node
}

#[test]
fn a_queue_before_which_one_source_stands_loses_nothing_at_any_burst() {
    for length in [1, 64, 128, 1_024] {
        for burst in [1, 32, 256] {
            for led in [false, true] {
                let (graph, seen) =
                    run_out((1, burst, led), |graph, worker, ends| queue(graph, worker, (1, length), ends));
                let at = format!("queues of {length}, bursts of {burst}, led: {led}");
                assert_eq!(graph.totals().drops.total().packets, 0, "{at}");
                assert_eq!(seen.lock().unwrap().len() as u64, PACKETS, "{at}");
            }
        }
    }
}

#[test]
fn a_replay_loses_nothing_in_queues_however_many_sources_it_has() {
    for length in [64, 128] {
        for burst in [1, 32, 256] {
            let (graph, seen) = run_out((3, burst, true), |graph, worker, ends| {
                let second = queue(graph, worker, (1, length + 1), ends);
                queue(graph, worker, (3, length), second)
            });
            let at = format!("queues of {length}, bursts of {burst}");
            assert_eq!(graph.totals().drops.total().packets, 0, "{at}");
            assert_eq!(seen.lock().unwrap().len() as u64, 3 * PACKETS, "{at}");
        }
    }
}

/// Sends two copies of each packet after it.
struct Copies;

impl Node for Copies {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        for packet in batch.iter() {
            for edge in [1, 2] {
                cx.create(Edge(edge), packet.try_copy().unwrap()).unwrap();
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape {
            outputs: (0..3)
                .map(|edge| Output { edge: Edge(edge), name: edge.to_string(), optional: false })
                .collect(),
            ..Shape::default()
        }
    }
}

#[test]
fn copies_of_a_replays_burst_find_room_in_a_queue() {
    for burst in [1, 32, 256] {
        let (graph, seen) = run_out((2, burst, true), |graph, worker, ends| {
            let queue = queue(graph, worker, (1, 256), ends);
            let meet = graph.add("meet", merge(3)).unwrap();
            let copies = graph.add("copies", Box::new(Copies)).unwrap();
            (0..3).for_each(|edge| graph.connect(copies, Edge(edge), meet, edge.into()).unwrap());
            graph.connect(meet, Edge::OUT, queue, 0).unwrap();
            copies
        });
        assert_eq!(graph.totals().drops.total().packets, 0, "bursts of {burst}");
        assert_eq!(seen.lock().unwrap().len() as u64, 6 * PACKETS);
    }
}

/// Subtracts one from the byte by which packets are grouped.
struct Down;

impl Node for Down {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        (0..batch.len()).for_each(|slot| batch.packet(slot).unwrap().data_mut()[0] -= 1);
    }
}

#[test]
fn queues_that_lead_to_each_other_do_not_wait_for_each_other() {
    for burst in [1, 32, 64] {
        let (graph, seen) = run_out((2, burst, true), |graph, worker, ends| {
            let down = graph.add("down", Box::new(Down)).unwrap();
            let groups = Groups::new(GroupConfig { groups: 2, queue: 64 }).unwrap();
            let node = groups.node_by(worker, |input| input, |packet| packet.frame()[0].min(1).into());
            let first = graph.add("first", node.unwrap()).unwrap();
            let second = queue(graph, worker, (1, 65), first);
            graph.connect(first, Groups::edge(0), ends, 0).unwrap();
            graph.connect(first, Groups::edge(1), down, 0).unwrap();
            graph.connect(down, Edge::OUT, second, 0).unwrap();
            first
        });
        assert_eq!(graph.totals().drops.total().packets, 0, "bursts of {burst}");
        assert_eq!(seen.lock().unwrap().len() as u64, 2 * PACKETS);
    }
}

#[test]
fn more_queues_than_there_are_bits_lose_nothing_of_a_replay_either() {
    let (graph, seen) = run_out((2, 32, true), |graph, worker, ends| {
        (0..70).fold(ends, |next, number| queue(graph, worker, (1, 64 + number), next))
    });
    assert_eq!(graph.totals().drops.total().packets, 0);
    assert_eq!(seen.lock().unwrap().len() as u64, 2 * PACKETS);
}

/// Deep queues fill a short one faster than it releases packets.
#[test]
fn packets_of_a_stopped_replay_in_queues_go_out() {
    for (burst, turns) in [(8, 400), (32, 150)] {
        let (pool, seen) = (pool(), Seen::default());
        let worker = Worker::new(0, 1, pool.clone());
        let mut graph = GraphBuilder::new("test");
        let ends = graph.add("ends", Box::new(Ends(4, seen.clone()))).unwrap();
        let short = queue(&mut graph, &worker, (1, 64), ends);
        for from in 0..3 {
            let deep = queue(&mut graph, &worker, (1, 300 + from), short);
            let source = graph.add(format!("in {from}"), source(&[16], PACKETS, from as u8)).unwrap();
            graph.connect(source, Edge::OUT, deep, 0).unwrap();
        }
        let mut graph = graph.build(pool).unwrap();
        graph.set_burst(burst);
        graph.follow_arrivals(true);
        for _ in 0..turns {
            graph.turn(0);
        }
        let received = graph.totals().received.packets;
        assert!(graph.totals().held > 64, "{} are held", graph.totals().held);
        assert_eq!(graph.drain(0), 0);
        assert_eq!(graph.totals().drops.total().packets, 0, "bursts of {burst}");
        assert_eq!(seen.lock().unwrap().len() as u64, received);
    }
}

/// Only the clock can bring more packets for them, and only the next deadline moves it.
#[test]
fn idle_queues_let_a_driven_graph_go_to_what_is_due_next() {
    let config = config(pool(), 1).clock(Clock::Driven);
    let report = Runtime::start(config, |_| {
        Factory::new(|context| {
            let nodes: Vec<(&str, Box<dyn Node>)> = vec![
                ("in", Box::new(Source::new(100))),
                ("first queue", by_first_byte(1, 256, context.worker())),
                ("hourly", Box::new(Hourly::default())),
                ("second queue", by_first_byte(1, 256, context.worker())),
                ("out", Box::new(Sink)),
            ];
            chain("g", nodes)?.build(context.pool().clone())
        })
    })
    .unwrap()
    .wait();
    assert!(report.conserved, "{report:?}");
    // No packet is discarded by a drain: each had its hour.
    assert_eq!((report.totals.sent.packets, report.totals.drops.total().packets), (100, 0));
}

#[test]
fn a_worker_may_sleep_while_a_queue_is_empty_and_not_while_it_holds_packets() {
    let (pool, worker) = (pool(), Worker::new(0, 1, pool()));
    let mut graph = GraphBuilder::new("test");
    let ends = graph.add("ends", Box::new(Ends(1, Seen::default()))).unwrap();
    let queue = queue(&mut graph, &worker, (1, 64), ends);
    let source = graph.add("in", source(&[1], 1, 0)).unwrap();
    graph.connect(source, Edge::OUT, queue, 0).unwrap();
    let mut graph = graph.build(pool).unwrap();
    let mut slept = Vec::new();
    for _ in 0..6 {
        slept.push((graph.totals().held, graph.can_sleep() && graph.waits_for_time_alone()));
        graph.turn(0);
    }
    assert!(slept.iter().all(|(held, sleeps)| *held == 0 || !sleeps), "{slept:?}");
    assert_eq!(slept.last(), Some(&(0, true)), "{slept:?}");
}
