//! Functions that send packets out by the main way, in a chain with others behind them.

use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::{Blueprint, DropReason, Edge, Function, Input, Operator, Verdict, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::stream::{PacketizeConfig, Replace, StreamOperator, StreamWorker};

use crate::harness::{Feed, Rig, Sink, blueprint, pool, run_out, worker};

/// Decrements the TTL, but sends some packets on at once and unchanged.
///
/// These are packets without an IP header and those with an even TTL.
fn odd_hops(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .parse::<Ip>()
        .or(Edge::OUT)
        .divert(Edge::OUT, |p| p.header().ttl().is_multiple_of(2))
        .transform(|p| p.header_mut().decrement_ttl())
        .done()
}
/// Sends out every packet.
fn sent(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Edge::OUT)
        .transform(|p| p.header_mut().ethernet_mut().swap_addresses())
        .send(Edge::OUT)
}
fn few_hops_left(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(DropReason::TtlExpired, |p| p.header().ttl() > 4)
        .done()
}

fn row(nodes: &[Blueprint], frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, u64) {
    let out = Sink::default();
    let mut rig = Rig::new();
    let mut chain = vec![rig.add("source", Box::new(Feed::of(frames.to_vec())))];
    chain.extend(nodes.iter().enumerate().map(|(i, node)| rig.function(&format!("node {i}"), node)));
    chain.push(rig.add("out", Box::new(out.clone())));
    rig.chain(&chain);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!((graph.take_panics(), pool.available()), (Vec::new(), pool.capacity()));
    // A node's packets that stay, and those that it sends out, leave it one group after the other. Their
    // order is not promised.
    let mut frames = out.frames();
    frames.sort();
    (frames, graph.totals().drops.of(DropReason::TtlExpired).packets)
}

#[test]
fn packets_that_leave_by_the_main_way_reach_the_next_function() {
    let mut frames: Vec<Vec<u8>> = (1..=40)
        .map(|ttl| ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(ttl).udp(1, 2).build().unwrap())
        .collect();
    frames.push(vec![0xff; 40]);
    let fused = blueprint(|w| {
        compose(w, |i| {
            odd_hops(i, w).then(|i| sent(i, w)).then(|i| odd_hops(i, w)).then(|i| few_hops_left(i, w))
        })
    });
    let apart = [
        blueprint(|w| compose(w, |i| odd_hops(i, w))),
        blueprint(|w| compose(w, |i| sent(i, w))),
        blueprint(|w| compose(w, |i| odd_hops(i, w))),
        blueprint(|w| compose(w, |i| few_hops_left(i, w))),
    ];
    let (out, expired) = row(&[fused], &frames);
    // Of the times to live 1 to 5 none is above 4 behind the first function; 41 frames came.
    assert_eq!((out.len(), expired), (36, 5));
    assert!((out, expired) == row(&apart, &frames), "fused and composed differ");
}

#[test]
fn functions_that_replace_packets_come_last_in_a_row() {
    fn replaced(input: Input, worker: &Worker) -> impl Function {
        let replace = Replace::new(b"hello", b"HELLO!", None).expect("both strings are short");
        let streams = worker.packetizer("streams", PacketizeConfig::default(), replace);
        input
            .parse::<Link>()
            .or(Edge::OUT)
            .parse::<Ip>()
            .or(Edge::OUT)
            .parse::<Tcp>()
            .or(Edge::OUT)
            .packetize(&streams)
            .done()
    }
    let pool = pool();
    let worker = &worker(&pool);
    assert!(compose(worker, |i| odd_hops(i, worker).then(|i| replaced(i, worker))).is_ok());
    let refused = |made: Result<_, netbricks_core::BuildError>| match made {
        Ok(_) => panic!("it is not refused"),
        Err(error) => error.to_string(),
    };
    let said = refused(compose(worker, |i| replaced(i, worker).then(|i| odd_hops(i, worker))));
    assert!(said.contains("`packetize`") && said.contains("node of its own"), "{said}");
    let inner = |i| odd_hops(i, worker).then(|i| replaced(i, worker)).then(|i| sent(i, worker));
    refused(compose(worker, |i| few_hops_left(i, worker).then(inner).then(|i| odd_hops(i, worker))));
}
