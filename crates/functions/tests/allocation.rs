//! No allocation on the packet path: 10,000 warm batches through three functions, counted.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{Context, Edge, Graph, GraphBuilder, Node, Output, Poll, Role, Worker, compose};
use netbricks_functions::{macswap::macswap, monitor, ttl};
use netbricks_testkit::build::ethernet;

/// Frames of 64 flows, over and over; every eighth expires and is answered.
struct Source(Vec<Vec<u8>>, usize);

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            self.1 = (self.1 + 1) % self.0.len();
            let Some(packet) = cx.pool().packet(&self.0[self.1]) else { break };
            if batch.push(packet).is_err() {
                break;
            }
        }
        Poll::Busy
    }
    fn is_schedulable(&self) -> bool {
        true
    }
    fn role(&self) -> Role {
        Role::Receive
    }
    fn inputs(&self) -> usize {
        0
    }
}

struct Sink;

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn role(&self) -> Role {
        Role::Transmit
    }
    fn outputs(&self) -> Vec<Output> {
        Vec::new()
    }
}

fn graph() -> Graph {
    let pool = Pool::builder().frames(1024).build().unwrap();
    let worker = Worker::new(0, 1, pool.clone());
    let ttl_config = ttl::TtlConfig {
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_rate: 1_000_000,
        ..Default::default()
    };
    let monitor_config = monitor::MonitorConfig { capacity: 48, ..Default::default() };
    let frames = (0..64).map(|flow| {
        let hops = if flow % 8 == 0 { 1 } else { 9 };
        ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(hops).udp(flow, 53).payload(b"hello").build().unwrap()
    });
    let mut graph = GraphBuilder::new("warm");
    let mut last = graph.add("source", Box::new(Source(frames.collect(), 0))).unwrap();
    let nodes = [
        ("ttl", compose(&worker, |input| ttl::ttl(input, &ttl_config, &worker)).unwrap()),
        ("monitor", compose(&worker, |input| monitor::monitor(input, &monitor_config, &worker)).unwrap()),
        ("macswap", compose(&worker, macswap).unwrap()),
    ];
    let (sink, replies) =
        (graph.add("sink", Box::new(Sink)).unwrap(), graph.add("replies", Box::new(Sink)).unwrap());
    for (name, node) in nodes {
        let node = graph.add(name, node).unwrap();
        graph.connect(last, Edge::OUT, node, 0).unwrap();
        if name == "ttl" {
            graph.connect(node, Edge::REPLY, replies, 0).unwrap();
        }
        last = node;
    }
    graph.connect(last, Edge::OUT, sink, 0).unwrap();
    graph.build(pool).unwrap()
}

#[test]
fn ten_thousand_warm_batches_allocate_nothing() {
    let mut graph = graph();
    graph.set_burst(32);
    let mut now = 0;
    let mut turns = |graph: &mut Graph, count| {
        for _ in 0..count {
            now += 100_000;
            let _ = graph.turn(now);
        }
    };
    turns(&mut graph, 1_000);
    let counted = allocation_counter::measure(|| turns(&mut graph, 10_000));
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0), "{counted:?}");
    let totals = graph.totals();
    assert_eq!(totals.received.packets, 11_000 * 32);
    assert!(totals.created.packets > 40_000, "answers were made as well");
    assert!(totals.is_conserved());
    // The counter counts.
    assert!(allocation_counter::measure(|| drop(Batch::new())).count_total > 0);
}
