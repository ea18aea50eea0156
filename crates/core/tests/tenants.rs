//! Tenants share a graph's turns: each packet goes to its tenant, and no tenant takes another's time.

use std::net::IpAddr;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::tenants::{Demultiplexer, TenantFilter, TenantFilterError, TenantPolicy, TenantQueue};
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Turn, Worker,
};
use netbricks_testkit::Frame;
use netbricks_testkit::build::ethernet;

/// Brings packets to these addresses in turn, a burst each turn, as often as it is asked to.
struct Source {
    to: Vec<String>,
    next: usize,
    left: usize,
}

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for _ in 0..cx.burst().min(self.left) {
            let to = self.to[self.next % self.to.len()].as_str();
            self.next += 1;
            let frame = ethernet().ipv4("192.0.2.1", to).udp(1000, 53).payload(b"hi").bytes();
            let Some(packet) = cx.pool().packet(&frame) else { break };
            assert!(batch.push(packet).is_ok());
            self.left -= 1;
        }
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Spins a number of times for each packet.
struct Work(u64);
impl Node for Work {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        for _ in 0..self.0 * batch.len() as u64 {
            std::hint::spin_loop();
        }
    }
}

struct Sink;
impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Discarded);
    }
    fn shape(&self) -> Shape {
        Shape { outputs: Vec::new(), ..Shape::default() }
    }
}

fn filter(tenant: &str, networks: &[&str], vlans: &[u16]) -> TenantFilter {
    let network = |text: &&str| {
        let (address, length) = text.split_once('/').expect("a prefix");
        (address.parse::<IpAddr>().expect("an address"), length.parse().expect("a length"))
    };
    TenantFilter {
        tenant: tenant.into(),
        addresses: networks.iter().map(network).collect(),
        vlans: vlans.to_vec(),
    }
}

/// A port of which three tenants have a network each, and the operator the rest.
fn graph(pool: &Pool, left: usize, works: [u64; 3], policies: Vec<TenantPolicy>) -> Graph {
    let worker = Worker::new(0, 1, pool.clone());
    let mut graph = GraphBuilder::new("test");
    let to = ["10.0.0.1", "10.0.1.1", "10.0.2.1", "172.16.0.1"].map(String::from).to_vec();
    let source = graph.add("port", Box::new(Source { to, next: 0, left })).expect("the test is set up");
    let filters = [
        filter("a", &["10.0.0.0/24"], &[]),
        filter("b", &["10.0.1.0/24"], &[]),
        filter("c", &["10.0.2.0/24"], &[]),
    ];
    let split = Blueprint::new(move |_| Ok(Box::new(Demultiplexer::new(filters.to_vec(), true)?)));
    let split = graph.add_function("split", &split, &worker).expect("the test is set up");
    let sink = graph.add("sink", Box::new(Sink)).expect("the test is set up");
    graph.connect(source, Edge::OUT, split, 0).expect("the test is set up");
    graph.connect(split, Edge::OUT, sink, 0).expect("the test is set up");
    for (number, work) in works.into_iter().enumerate() {
        let queue = Blueprint::new(|_| Ok(Box::new(TenantQueue::new(256))));
        let queue =
            graph.add_function(format!("queue{number}"), &queue, &worker).expect("the test is set up");
        let work = graph.add(format!("work{number}"), Box::new(Work(work))).expect("the test is set up");
        let sink = graph.add(format!("sink{number}"), Box::new(Sink)).expect("the test is set up");
        graph.connect(split, Demultiplexer::edge(number), queue, 0).expect("the test is set up");
        graph.connect(queue, Edge::OUT, work, 0).expect("the test is set up");
        graph.connect(work, Edge::OUT, sink, 0).expect("the test is set up");
        for node in [queue, work, sink] {
            graph.own(node, number as u16 + 1);
        }
    }
    graph.share_among(policies);
    graph.build(pool.clone()).expect("the test is set up")
}

fn three() -> Vec<TenantPolicy> {
    ["a", "b", "c"].map(TenantPolicy::new).to_vec()
}

fn discarded(graph: &Graph, node: &str) -> u64 {
    graph.nodes().find(|known| known.name == node).expect("the node").counters.drops.total().packets
}

#[test]
fn each_packet_goes_to_its_tenant_and_a_replay_loses_none() {
    for burst in [1, 32, 256] {
        let pool = Pool::builder().frames(4_096).build().expect("the test is set up");
        let mut graph = graph(&pool, 4_000, [0, 1, 40], three());
        graph.set_burst(burst);
        graph.follow_arrivals(true);
        let mut now = 1;
        while graph.turn(now) != Turn::Done {
            now += 1;
        }
        for node in ["sink", "sink0", "sink1", "sink2"] {
            assert_eq!(discarded(&graph, node), 1_000, "{node} at bursts of {burst}");
        }
        assert!(graph.unbalanced().is_empty() && graph.totals().is_conserved());
        assert_eq!(graph.drain(now), 0);
        drop(graph);
        assert_eq!(pool.available(), pool.capacity());
    }
}

#[test]
fn a_tenant_that_does_not_keep_up_loses_its_own_packets_alone() {
    let pool = Pool::builder().frames(4_096).build().expect("the test is set up");
    let mut graph = graph(&pool, usize::MAX, [1, 1, 3_000], three());
    graph.set_burst(32);
    for now in 1..60_000 {
        if now % 64 == 0 {
            graph.begin_round();
        }
        graph.turn(now);
    }
    let nodes: Vec<_> = graph.nodes().collect();
    let drops = |queue: &str| {
        let node = nodes.iter().find(|node| node.name == queue).expect("the test is set up");
        let full = node.counters.drops.iter().find(|(reason, _)| *reason == DropReason::QueueFull);
        full.map_or(0, |(_, count)| count.packets)
    };
    // On a busy machine the others lose some, too: this thread does not always run.
    assert!(drops("queue2") > 1_000, "the hog's queue is full: {}", drops("queue2"));
    for other in ["sink0", "sink1"] {
        assert!(discarded(&graph, other) > 2 * discarded(&graph, "sink2"), "{other} goes on");
    }
    let used: Vec<u64> = graph.tenants().iter().map(|tenant| tenant.cycles).collect();
    assert!(used.iter().all(|cycles| *cycles > 0), "{used:?}");
    assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
    graph.drain(100_000);
    assert!(graph.totals().is_conserved());
}

/// The packets of each way out: the rest, and the tenants.
fn split(filters: Vec<TenantFilter>, rest: bool, frames: &[Vec<u8>]) -> Vec<usize> {
    struct Once(Vec<Vec<u8>>);
    impl Node for Once {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
        fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
            for frame in self.0.drain(..) {
                assert!(batch.push(cx.pool().packet(&frame).expect("the test is set up")).is_ok());
            }
            Poll::Done
        }
        fn shape(&self) -> Shape {
            Shape::receive()
        }
    }
    let pool = Pool::builder().frames(512).build().expect("the test is set up");
    let mut graph = GraphBuilder::new("test");
    let source = graph.add("port", Box::new(Once(frames.to_vec()))).expect("the test is set up");
    let count = filters.len();
    let node = graph
        .add("split", Box::new(Demultiplexer::new(filters, rest).expect("the test is set up")))
        .expect("the test is set up");
    graph.connect(source, Edge::OUT, node, 0).expect("the test is set up");
    for way in 0..=count {
        let sink = graph.add(format!("sink{way}"), Box::new(Sink)).expect("the test is set up");
        let edge = if way == 0 { Edge::OUT } else { Demultiplexer::edge(way - 1) };
        graph.connect(node, edge, sink, 0).expect("the test is set up");
    }
    let mut graph = graph.build(pool).expect("the test is set up");
    while graph.turn(1) != Turn::Done {}
    (0..=count).map(|way| discarded(&graph, &format!("sink{way}")) as usize).collect()
}

#[test]
fn vlans_come_before_destinations_and_those_before_sources() {
    let filters = vec![
        filter("a", &["10.1.0.0/16", "2001:db8:a::/48"], &[]),
        filter("b", &["10.2.0.0/16", "2001:db8:b::/48"], &[7]),
    ];
    let udp = |from: &str, to: &str| ethernet().ipv4(from, to).udp(1, 2).payload(b"x").bytes();
    let tagged =
        |vlan: u16| ethernet().vlan(vlan).ipv4("10.1.0.1", "10.1.0.2").udp(1, 2).payload(b"x").bytes();
    let of = |frame: Vec<u8>| split(filters.clone(), true, &[frame]);
    assert_eq!(of(udp("192.0.2.1", "10.1.2.3")), [0, 1, 0]);
    assert_eq!(of(udp("10.1.0.1", "10.2.0.1")), [0, 0, 1], "the destination's tenant");
    assert_eq!(
        of(udp("10.1.0.1", "192.0.2.1")),
        [0, 1, 0],
        "the source's, where no tenant has the destination"
    );
    assert_eq!(of(udp("192.0.2.1", "192.0.2.2")), [1, 0, 0]);
    assert_eq!(of(tagged(7)), [0, 0, 1], "its VLAN says more than its addresses");
    assert_eq!(of(tagged(8)), [0, 1, 0]);
    let v6 = ethernet().ipv6("2001:db8:b::1", "2001:db8:a::1").udp(1, 2).payload(b"x").bytes();
    assert_eq!(of(v6), [0, 1, 0]);
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend([2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 10, 2, 0, 1]);
    assert_eq!(of(arp.clone()), [0, 0, 1], "who has 10.2.0.1");
    // Cut short anywhere, it is a packet of no tenant or of the right one.
    for frame in [arp, udp("10.1.0.1", "10.1.0.2"), tagged(8)] {
        for length in 14..frame.len() {
            let ways = of(frame[..length].to_vec());
            assert_eq!(ways.iter().sum::<usize>(), 1);
        }
    }
    assert_eq!(split(filters, false, &[udp("192.0.2.1", "192.0.2.2")]), [0, 0, 0], "dropped as unmatched");
}

#[test]
fn tenants_that_share_packets_are_told_apart() {
    let check = |filters: &[TenantFilter]| TenantFilter::check_apart(filters);
    assert_eq!(
        check(&[filter("a", &["10.0.0.0/8", "10.1.0.0/16"], &[1]), filter("b", &["11.0.0.0/8"], &[2])]),
        Ok(())
    );
    let nested = check(&[filter("a", &["10.0.0.0/8"], &[]), filter("b", &["9.0.0.0/8", "10.7.0.0/16"], &[])]);
    assert_eq!(
        nested.expect_err("they overlap").to_string(),
        "`10.7.0.0/16` of tenant `b` overlaps `10.0.0.0/8` of tenant `a`"
    );
    let whole = check(&[filter("a", &["0.0.0.0/0"], &[]), filter("b", &["::/0"], &[])]);
    assert_eq!(whole, Ok(()), "the families are apart");
    let vlan = check(&[filter("a", &[], &[5]), filter("b", &[], &[4, 5])]);
    assert_eq!(vlan, Err(TenantFilterError::Vlan { first: "a".into(), second: "b".into(), vlan: 5 }));
}

#[test]
fn a_call_of_a_handler_is_charged_to_the_tenant_whose_function_it_is() {
    let pool = Pool::builder().frames(64).build().expect("the test is set up");
    let mut graph = graph(&pool, 0, [0, 0, 0], three());
    for _ in 0..100 {
        assert_eq!(graph.call("queue1", "queued", "").as_deref(), Ok("0"));
        assert!(graph.call("sink", "none", "").is_err(), "the operator's are charged to none");
    }
    let used: Vec<u64> = graph.tenants().into_iter().map(|tenant| tenant.cycles).collect();
    assert!(used[1] > 0, "{used:?}");
    assert_eq!((used[0], used[2]), (0, 0));
}
