//! The cost of accounting, of idle tenants and of the demultiplexer (ns a packet, bursts of 32).
//!
//! `cargo bench -p netbricks-core --bench tenants`. Two graphs run in turn, many times and each time so briefly that other
//! work rarely comes between. Each row has the tenth percentile of both, and their difference.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use netbricks_core::buffer::{Batch, Packet, Pool};
use netbricks_core::tenants::{Demultiplexer, TenantFilter, TenantPolicy, TenantQueue};
use netbricks_core::{Context, Edge, Graph, GraphBuilder, Node, Poll, Shape};
use netbricks_testkit::Frame;
use netbricks_testkit::build::ethernet;

type Stock = Rc<RefCell<Vec<Packet>>>;

/// Gives the same packets again and again.
struct Source(Stock);
impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let mut stock = self.0.borrow_mut();
        for _ in 0..cx.burst() {
            let Some(packet) = stock.pop() else { break };
            if let Err(packet) = batch.push(packet) {
                stock.push(packet);
                break;
            }
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Takes packets back, in the order in which the source gives them out.
struct Sink(Stock);
impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut stock = self.0.borrow_mut();
        stock.extend(batch.drain());
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

fn stock(pool: &Pool, tenants: usize) -> Stock {
    let packet = |number: usize| {
        let tenant = number % tenants;
        let to = format!("10.{}.{}.1", tenant / 256, tenant % 256);
        let frame = ethernet().ipv4("192.0.2.1", to.as_str()).udp(1000, 53).payload(b"payload").bytes();
        pool.packet(&frame).expect("the pool has room")
    };
    Rc::new(RefCell::new((0..4_096).map(packet).collect()))
}

fn filters(tenants: usize) -> Vec<TenantFilter> {
    (0..tenants)
        .map(|number| TenantFilter {
            tenant: format!("t{number}"),
            addresses: vec![(IpAddr::from([10, (number / 256) as u8, (number % 256) as u8, 0]), 24)],
            vlans: Vec::new(),
        })
        .collect()
}

/// A port whose packets go through a queue for each of `busy` tenants; `idle` tenants have none.
fn tenants(pool: &Pool, busy: usize, idle: usize, shared: bool) -> Graph {
    let mut graph = GraphBuilder::new("bench");
    let stock = stock(pool, busy);
    let source = graph.add("source", Box::new(Source(stock.clone()))).expect("a name");
    let sink = graph.add("sink", Box::new(Sink(stock))).expect("a name");
    let split = Demultiplexer::new(filters(busy), true).expect("few tenants");
    let split = graph.add("split", Box::new(split)).expect("a name");
    graph.connect(source, Edge::OUT, split, 0).expect("an edge");
    graph.connect(split, Edge::OUT, sink, 0).expect("an edge");
    for number in 0..busy + idle {
        let queue = graph.add(format!("queue{number}"), Box::new(TenantQueue::new(1_024))).expect("a name");
        graph.connect(queue, Edge::OUT, sink, 0).expect("an edge");
        if number < busy {
            graph.connect(split, Demultiplexer::edge(number), queue, 0).expect("an edge");
        }
        graph.own(queue, if shared { number as u16 + 1 } else { 0 });
    }
    if shared {
        graph.share_among((0..busy + idle).map(|number| TenantPolicy::new(format!("t{number}"))).collect());
    }
    finish(graph, pool)
}

/// A port whose packets go to one end, with a demultiplexer between or without.
fn split(pool: &Pool, count: usize, with: bool) -> Graph {
    let mut graph = GraphBuilder::new("bench");
    let stock = stock(pool, count);
    let source = graph.add("source", Box::new(Source(stock.clone()))).expect("a name");
    let sink = graph.add("sink", Box::new(Sink(stock))).expect("a name");
    if !with {
        graph.connect(source, Edge::OUT, sink, 0).expect("an edge");
        return finish(graph, pool);
    }
    let mut from = source;
    let all = filters(count);
    for (group, filters) in all.chunks(Demultiplexer::MOST).enumerate() {
        let ways = filters.len();
        // As for a chain file: each node but the last knows the tenants behind it.
        let later = all.get((group + 1) * Demultiplexer::MOST..).unwrap_or_default();
        let node = match later {
            [] => Demultiplexer::new(filters.to_vec(), true),
            _ => Demultiplexer::followed(filters.to_vec(), later.to_vec()),
        };
        let node = node.expect("few tenants");
        let node = graph.add(format!("split{group}"), Box::new(node)).expect("a name");
        graph.connect(from, Edge::OUT, node, 0).expect("an edge");
        for way in 0..ways {
            graph.connect(node, Demultiplexer::edge(way), sink, 0).expect("an edge");
        }
        from = node;
    }
    graph.connect(from, Edge::OUT, sink, 0).expect("an edge");
    finish(graph, pool)
}

fn finish(graph: GraphBuilder, pool: &Pool) -> Graph {
    let mut graph = graph.build(pool.clone()).expect("a whole graph");
    graph.set_burst(32);
    graph
}

/// Nanoseconds a packet over some hundreds of turns.
fn measured(graph: &mut Graph, now: &mut u64) -> f64 {
    let before = graph.totals().sent.packets;
    let begin = Instant::now();
    for _ in 0..8 {
        *now += 20_000;
        graph.begin_round();
        for _ in 0..64 {
            graph.turn(*now);
        }
    }
    let took = begin.elapsed().as_nanos() as f64;
    took / (graph.totals().sent.packets - before) as f64
}

/// The tenth percentiles of both, and their difference.
fn compared(name: &str, mut without: Graph, mut with: Graph) {
    let mut now = 1;
    let run = |_| (measured(&mut without, &mut now), measured(&mut with, &mut now));
    let (mut without, mut with): (Vec<f64>, Vec<f64>) = (0..1_000).map(run).skip(20).unzip();
    let low = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 10]
    };
    let (without, with) = (low(&mut without), low(&mut with));
    let cost = with - without;
    println!("{name:<44} {without:>8.2} {with:>8.2} {cost:>8.2} ns {:>+7.1} %", cost / without * 100.0);
}

fn main() {
    let pool = || Pool::builder().frames(8_192).build().expect("memory");
    println!("{:<44} {:>8} {:>8} {:>11}", "", "without", "with", "cost a packet");
    let graphs = |busy| (tenants(&pool(), busy, 0, false), tenants(&pool(), busy, 0, true));
    for busy in [1, 8] {
        let (without, with) = graphs(busy);
        compared(&format!("accounting and slices, {busy} busy tenants"), without, with);
    }
    compared("990 idle tenants beside 10", tenants(&pool(), 10, 0, true), tenants(&pool(), 10, 990, true));
    for count in [1, 16, 250, 256, 1_000] {
        let (without, with) = (split(&pool(), count, false), split(&pool(), count, true));
        compared(&format!("demultiplexer, {count} tenants in turn"), without, with);
    }
}
