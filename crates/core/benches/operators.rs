//! The cost of operators in a graph of one node: ns for a burst of 32. `cargo bench -p netbricks-core`
//!
//! The figures to quote are those of `netbricks bench`, which builds its graphs as `run` does.

use divan::Bencher;
use netbricks_core::buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{Ethernet, Ip, Ipv4, Link, Udp};
use netbricks_core::{DetachedContext, DropReason, Function, Input, Node, Operator, Worker, compose};

fn main() {
    divan::main();
}

fn over(bencher: Bencher, make: impl Fn(&Worker) -> Box<dyn Node>) {
    let _slot = WorkerSlot::claim().ok();
    let pool = Pool::builder().frames(1024).build().expect("a small pool fits into memory");
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[0; 22]).build();
    let frame = frame.expect("the packet is well formed");
    let mut batch = Batch::new();
    for _ in 0..32 {
        let packet = pool.packet(&frame).expect("the pool is not empty");
        batch.push(packet).expect("the batch is not full");
    }
    let mut node = make(&Worker::new(0, 1, pool.clone()));
    let mut cx = DetachedContext::new(pool);
    bencher.bench_local(|| {
        node.process(0, &mut batch, &mut cx);
        assert_eq!(batch.len(), 32);
    });
}

fn node<F: Function>(worker: &Worker, function: impl FnOnce(Input) -> F) -> Box<dyn Node> {
    compose(worker, function).expect("it declares no state")
}

#[divan::bench]
fn wire(bencher: Bencher) {
    over(bencher, |worker| node(worker, |input| input.done()));
}

#[divan::bench]
fn swap_addresses(bencher: Bencher) {
    over(bencher, |worker| {
        node(worker, |input| input.parse::<Ethernet>().transform(|p| p.header_mut().swap_addresses()).done())
    });
}

#[divan::bench]
fn parse_and_filter_by_version(bencher: Bencher) {
    over(bencher, |worker| {
        node(worker, |input| {
            input
                .parse::<Ethernet>()
                .parse::<Ipv4>()
                .filter(DropReason::Denied, |p| p.header().ttl() > 1)
                .done()
        })
    });
}

#[divan::bench]
fn parse_and_filter_by_family(bencher: Bencher) {
    over(bencher, |worker| {
        node(worker, |input| {
            input.parse::<Link>().parse::<Ip>().filter(DropReason::Denied, |p| p.header().ttl() > 1).done()
        })
    });
}

#[divan::bench]
fn parse_to_ports(bencher: Bencher) {
    over(bencher, |worker| {
        node(worker, |input| {
            let chain = input.parse::<Link>().parse::<Ip>().parse::<Udp>();
            chain.filter(DropReason::Denied, |p| p.header().destination_port() == 2).done()
        })
    });
}

#[divan::bench]
fn branch(bencher: Bencher) {
    over(bencher, |worker| {
        node(worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .branch(
                    |p| p.header().protocol() == 17,
                    |udp| udp.filter(DropReason::Denied, |p| p.header().ttl() > 1),
                    |other| other.filter(DropReason::Denied, |p| p.header().ttl() > 2),
                )
                .done()
        })
    });
}
