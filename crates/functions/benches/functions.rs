//! Cost of functions for a burst of 32, each through its compiled node. `cargo bench -p netbricks-functions`
//!
//! Packets are made and freed outside the clock. The figures to quote are those of `netbricks bench`, which builds its
//! graphs as `run` does.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use divan::Bencher;
use divan::counter::ItemsCount;
use netbricks_core::buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::{Blueprint, BuildError, DetachedContext, Node, Worker, compose};
use netbricks_functions::{busy, icmp_echo, lpm, macswap, maglev, monitor, mss, ttl, wire};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::kinds;

const BURST: usize = 32;
/// Batches that are alive at once: those of one sample.
const SAMPLE: u32 = 16;

fn main() {
    divan::main();
}

type Made = Result<Box<dyn Node>, BuildError>;

/// Measures a function over bursts of these frames; `passing` packets of each burst must be in it afterwards.
///
/// Every burst is new, so that no burst meets the results of an earlier one: expired packets, replies, an
/// empty batch.
fn over(bencher: Bencher, frames: &[Vec<u8>], passing: usize, make: impl Fn(&Worker) -> Made) {
    let _slot = WorkerSlot::claim().ok();
    let pool = Pool::builder().frames(4_096).build().expect("a small pool fits into memory");
    let mut node = make(&Worker::new(0, 1, pool.clone())).expect("its settings do");
    let mut now = 0;
    bencher
        .counter(ItemsCount::new(BURST))
        .with_inputs(|| {
            let mut cx = DetachedContext::new(pool.clone());
            // Long enough that every answer of the next burst is within its rate.
            now += 1_000_000;
            cx.advance(now);
            let mut batch = Batch::new();
            for frame in frames.iter().cycle().take(BURST) {
                let packet = cx.pool().packet(frame).expect("a sample's packets fit into the pool");
                batch.push(packet).expect("a burst fits into a batch");
            }
            (batch, cx)
        })
        .bench_local_refs(|(batch, cx)| {
            node.process(0, batch, cx);
            assert_eq!(batch.len(), passing);
        });
}

#[derive(Clone, Copy, Debug)]
enum Version {
    V4,
    V6,
    /// IPv4 behind a VLAN tag.
    Tagged,
}

const VERSIONS: [Version; 3] = [Version::V4, Version::V6, Version::Tagged];

/// A burst of as many flows, to an address that does not answer.
fn flows(version: Version) -> Vec<Vec<u8>> {
    let flow = |port| {
        let built = match version {
            Version::V4 => ethernet().ipv4("10.0.0.1", "10.0.0.3").udp(port, 53).payload(&[0; 22]).build(),
            Version::V6 => {
                ethernet().ipv6("2001:db8::1", "2001:db8::3").udp(port, 53).payload(&[0; 22]).build()
            }
            Version::Tagged => {
                ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.3").udp(port, 53).payload(&[0; 22]).build()
            }
        };
        built.expect("the packet is well formed")
    };
    (1..=BURST as u16).map(flow).collect()
}

fn kind(name: &str) -> Vec<Vec<u8>> {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(kind, _)| *kind == name).map(|(_, frame)| frame).collect();
    assert_eq!(frames.len(), 1, "no kind of packet is named {name}");
    frames
}

fn ttl(worker: &Worker) -> Made {
    let config = ttl::TtlConfig {
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_v6: "2001:db8:ff::1".parse().ok(),
        answer_rate: 1_000_000,
        ..Default::default()
    };
    compose(worker, |input| ttl::ttl(input, &config, worker))
}

fn echo(worker: &Worker) -> Made {
    let config =
        icmp_echo::EchoConfig { mac: None, v4: Some([10, 0, 0, 2].into()), v6: "2001:db8::2".parse().ok() };
    compose(worker, |input| icmp_echo::icmp_echo(input, &config, worker))
}

#[divan::bench(name = "wire", sample_size = SAMPLE)]
fn pass_on(bencher: Bencher) {
    over(bencher, &flows(Version::V4), BURST, |worker| compose(worker, wire::wire));
}

#[divan::bench(name = "macswap", sample_size = SAMPLE)]
fn swap_addresses(bencher: Bencher) {
    over(bencher, &flows(Version::V4), BURST, |worker| compose(worker, macswap::macswap));
}

#[divan::bench(name = "ttl", args = VERSIONS, sample_size = SAMPLE)]
fn decrement(bencher: Bencher, version: Version) {
    over(bencher, &flows(version), BURST, ttl);
}

#[divan::bench(args = ["expired v4", "expired v6"], sample_size = SAMPLE)]
fn ttl_answering(bencher: Bencher, name: &str) {
    over(bencher, &kind(name), 0, ttl);
}

#[divan::bench(name = "monitor", args = VERSIONS, sample_size = SAMPLE)]
fn count_by_flow(bencher: Bencher, version: Version) {
    over(bencher, &flows(version), BURST, |worker| {
        let config = monitor::MonitorConfig::default();
        compose(worker, |input| monitor::monitor(input, &config, worker))
    });
}

/// Datagrams, which pass, segments whose size is lowered, and segments that get a size.
#[divan::bench(name = "mss", args = ["udp v4", "tcp v4", "qinq"], sample_size = SAMPLE)]
fn lower_segment_sizes(bencher: Bencher, name: &str) {
    over(bencher, &kind(name), BURST, |worker| {
        let config = mss::MssConfig { size: Some(1_300), mtu: None, add: true };
        compose(worker, |input| mss::mss(input, &config, worker))
    });
}

#[divan::bench(name = "lpm", args = VERSIONS, sample_size = SAMPLE)]
fn find_next_hop(bencher: Bencher, version: Version) {
    over(bencher, &flows(version), BURST, |worker| {
        let routes = ["10.0.0.0/30 1", "2001:db8::/48 2"];
        let config = lpm::LpmSettings::of(routes.map(|route| route.parse().expect("a route")));
        compose(worker, |input| lpm::lpm(input, &config, worker))
    });
}

/// Adds a route to a table of 100,000 by a call of the control side, and withdraws it by another.
///
/// So many workers on threads of their own look up 32 packets at a time meanwhile. Two items are two calls.
#[divan::bench(args = [0, 1], sample_size = 64)]
fn lpm_add_and_withdraw(bencher: Bencher, workers: u32) {
    let route = |i: u32| format!("{}/24 {}", Ipv4Addr::from(0x0b00_0000 + (i << 8)), i % 200);
    let routes = (0..100_000).map(|i| route(i).parse().expect("a route"));
    let config = lpm::LpmSettings::of(routes);
    let blueprint = Blueprint::new(move |worker| lpm::node(&config, worker));
    let pool = || Pool::builder().frames(256).build().expect("a small pool fits into memory");
    let mut control = blueprint.control(pool(), 1).expect("its settings do");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in 0..workers as usize {
            let (blueprint, done) = (&blueprint, &done);
            scope.spawn(move || {
                let pool = pool();
                let mut node =
                    blueprint.build(&Worker::new(index, 1, pool.clone())).expect("its settings do");
                let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
                for frame in flows(Version::V4).iter().cycle().take(BURST) {
                    let packet = pool.packet(frame).expect("a burst fits into the pool");
                    batch.push(packet).expect("a burst fits into a batch");
                }
                while !done.load(Ordering::Acquire) {
                    node.process(0, &mut batch, &mut cx);
                    assert_eq!(batch.len(), BURST);
                }
            });
        }
        let mut next = 0;
        bencher.counter(ItemsCount::new(2usize)).bench_local(|| {
            next = (next + 7_919) % 60_000;
            let prefix = Ipv4Addr::from(0x0a00_0000 + (next << 4));
            control.call("add", &format!("{prefix}/28 7")).expect("there is room");
            control.call("withdraw", &format!("{prefix}/28")).expect("it is there");
        });
        done.store(true, Ordering::Release);
    });
}

#[divan::bench(name = "maglev", args = VERSIONS, sample_size = SAMPLE)]
fn send_to_backend(bencher: Bencher, version: Version) {
    over(bencher, &flows(version), BURST, |worker| {
        let backends = ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02"];
        let backends = backends.map(|backend| backend.parse().expect("a backend")).into();
        let config = maglev::MaglevConfig { backends, ..Default::default() };
        compose(worker, |input| maglev::maglev(input, &config, worker))
    });
}

#[divan::bench(name = "icmp_echo", args = VERSIONS, sample_size = SAMPLE)]
fn leave_alone(bencher: Bencher, version: Version) {
    over(bencher, &flows(version), BURST, echo);
}

#[divan::bench(args = ["arp request", "solicitation", "echo v4", "echo v6"], sample_size = SAMPLE)]
fn icmp_echo_answering(bencher: Bencher, name: &str) {
    over(bencher, &kind(name), 0, echo);
}

#[divan::bench(name = "busy", args = [0, 100], sample_size = SAMPLE)]
fn spin(bencher: Bencher, cycles: u64) {
    over(bencher, &flows(Version::V4), BURST, |worker| {
        let config = busy::BusyConfig { cycles };
        compose(worker, |input| busy::busy(input, &config))
    });
}
