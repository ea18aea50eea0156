//! No allocation on the packet path: warm batches through every function, counted on the thread that runs them.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod two_workers;

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use allocation_counter::{AllocationInfo, measure};
use netbricks_core::buffer::{Batch, HEADROOM, Pool, WorkerSlot};
use netbricks_core::{
    Blueprint, BuildError, Context, DetachedContext, Edge, Graph, GraphBuilder, Node, NodeId, Operator, Poll,
    Registry, Shape, Worker, compose, merge,
};
use netbricks_functions::{
    busy, http_inspect, icmp_echo, lpm, macswap, maglev, monitor, mss, nat, rewrite_stream, signature, ttl,
    wire,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::kinds;

const BURST: u64 = 32;
/// Turns until every pool, table and queue has all the memory that it will ever need.
const WARM: u64 = 500;
/// Turns that are counted.
const COUNTED: u64 = 2_000;

/// Whole batches of these frames, over and over.
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
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Counts the packets that it gets.
#[derive(Clone, Default)]
struct Sink(Rc<Cell<u64>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        self.0.set(self.0.get() + batch.len() as u64);
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// A graph under construction, and the sinks of its packets.
struct Setup {
    graph: GraphBuilder,
    worker: Worker,
    out: Sink,
    replies: Sink,
}

impl Setup {
    fn new() -> Self {
        let pool = Pool::builder().frames(1024).large(64, 16_384).build().unwrap();
        let worker = Worker::new(0, 1, pool);
        Self { graph: GraphBuilder::new("warm"), worker, out: Sink::default(), replies: Sink::default() }
    }
    fn source(&mut self, name: &str, frames: Vec<Vec<u8>>) -> NodeId {
        self.graph.add(name, Box::new(Source(frames, 0))).unwrap()
    }
    /// Puts a function behind `last`; its other ways out lead to the replies.
    fn function(&mut self, last: NodeId, name: &str, node: Box<dyn Node>) -> NodeId {
        let node = self.graph.add(name, node).unwrap();
        self.graph.connect(last, Edge::OUT, node, 0).unwrap();
        let edges: Vec<_> = self.graph.outputs(node).iter().map(|output| output.edge).collect();
        for edge in edges.into_iter().filter(|edge| *edge != Edge::OUT) {
            let replies = self.graph.add(format!("{name} {edge:?}"), Box::new(self.replies.clone())).unwrap();
            self.graph.connect(node, edge, replies, 0).unwrap();
        }
        node
    }
    /// Runs it warm, and returns the allocations of the turns after that. All of it runs on this thread.
    fn count(mut self, last: NodeId) -> Counted {
        // A worker claims a slot, too, so that frames come from its stock.
        let _slot = WorkerSlot::claim().unwrap();
        let sink = self.graph.add("sink", Box::new(self.out.clone())).unwrap();
        self.graph.connect(last, Edge::OUT, sink, 0).unwrap();
        let mut graph = self.graph.build(self.worker.pool().clone()).unwrap();
        graph.set_burst(BURST as usize);
        let mut now = 0;
        let mut turns = |graph: &mut Graph, count| {
            for _ in 0..count {
                now += 100_000;
                // Nodes that queue have turns of their own.
                let received = graph.totals().received;
                while graph.totals().received == received {
                    let _ = graph.turn(now);
                }
            }
        };
        turns(&mut graph, WARM);
        let allocated = measure(|| turns(&mut graph, COUNTED));
        let totals = graph.totals();
        assert_eq!(totals.received.packets, (WARM + COUNTED) * BURST, "every batch was whole");
        assert!(totals.is_conserved(), "{totals:?}");
        assert!(graph.take_panics().is_empty());
        Counted { allocated, out: self.out.0.get(), replies: self.replies.0.get() }
    }
}

/// The allocations of the turns, and the number of packets at each sink.
struct Counted {
    allocated: AllocationInfo,
    out: u64,
    replies: u64,
}

type Make = fn(&Worker) -> Result<Box<dyn Node>, BuildError>;

fn through(
    name: &str,
    make: impl FnOnce(&Worker) -> Result<Box<dyn Node>, BuildError>,
    frames: Vec<Vec<u8>>,
) -> Counted {
    let mut setup = Setup::new();
    let source = setup.source("source", frames);
    let node = make(&setup.worker).unwrap();
    let node = setup.function(source, name, node);
    setup.count(node)
}

fn nothing_allocated(name: &str, counted: &Counted) {
    let allocated = counted.allocated;
    assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{name}: {allocated:?}");
}

fn ttl(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = ttl::TtlConfig {
        non_ip: ttl::NonIp::Pass,
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_v6: "2001:db8:ff::1".parse().ok(),
        answer_rate: 1_000_000,
    };
    compose(worker, |input| ttl::ttl(input, &config, worker))
}

fn monitor(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = monitor::MonitorConfig { capacity: 48, ..Default::default() };
    compose(worker, |input| monitor::monitor(input, &config, worker))
}

fn echo_config() -> icmp_echo::EchoConfig {
    icmp_echo::EchoConfig { mac: None, v4: Some([10, 0, 0, 2].into()), v6: "2001:db8::2".parse().ok() }
}

fn echo(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = echo_config();
    compose(worker, |input| icmp_echo::icmp_echo(input, &config, worker))
}

fn http(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = http_inspect::HttpInspectConfig { flows: 4, latest: 2, ..Default::default() };
    compose(worker, |input| http_inspect::http_inspect(input, &config, worker))
}

fn rewrite(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = rewrite_stream::RewriteStreamConfig::new("hello", "good morning");
    compose(worker, |input| rewrite_stream::rewrite_stream(input, &config, worker))
}

fn mss(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let config = mss::MssConfig { size: Some(1_000), mtu: None, add: true };
    compose(worker, |input| mss::mss(input, &config, worker))
}

fn every_kind() -> Vec<Vec<u8>> {
    kinds::every().into_iter().map(|(_, frame)| frame).collect()
}

/// More flows than [`monitor`] has room for; every eighth packet expires and is answered.
fn flows() -> Vec<Vec<u8>> {
    let flow = |flow| {
        let hops = if flow % 8 == 0 { 1 } else { 9 };
        ethernet().ipv4("10.0.0.1", "10.0.0.3").ttl(hops).udp(flow, 53).payload(b"hello").build().unwrap()
    };
    (0..64).map(flow).collect()
}

/// A change frees the backends that all workers have left, also if a worker's packets leave them last.
#[test]
fn replaced_backends_are_not_freed_on_the_packet_path() {
    let backends = ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02"].map(|backend| backend.parse().unwrap());
    let config = maglev::MaglevConfig { backends: backends.into(), capacity: 48, ..Default::default() };
    let blueprint = Blueprint::new(move |w| compose(w, |input| maglev::maglev(input, &config, w)));
    let pool = Pool::builder().frames(64).build().unwrap();
    let [mut changes, mut follows] =
        [0, 1].map(|index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap());
    let mut cx = DetachedContext::new(pool.clone());
    let mut run = |node: &mut Box<dyn Node>| {
        let mut batch = Batch::new();
        batch.push(pool.packet(&flows()[0]).unwrap()).unwrap();
        let freed = measure(|| node.process(0, &mut batch, &mut cx)).count_current;
        assert_eq!(batch.len(), 1);
        freed
    };
    run(&mut changes);
    run(&mut follows);
    for _ in 0..5 {
        for change in ["c 02:00:00:00:01:03", "c 02:00:00:00:01:04", "c 02:00:00:00:01:05"] {
            changes.call("add", change).unwrap();
        }
        assert_eq!((run(&mut changes), run(&mut follows)), (0, 0));
    }
}

#[test]
fn every_function_over_every_kind_of_packet_allocates_nothing() {
    let mut registry = Registry::new();
    netbricks_functions::register(&mut registry);
    for definition in registry.iter() {
        let examples = if definition.examples.is_empty() { &[""] } else { definition.examples.as_slice() };
        for settings in examples {
            let name = definition.name;
            let blueprint = definition.blueprint(settings).unwrap();
            let counted = through(name, |worker| blueprint.build(worker), every_kind());
            nothing_allocated(name, &counted);
            // Without sessions nothing passes `bras`; a test of its own has some.
            assert!(counted.out > 0 || name == "bras", "{name}: nothing passed");
        }
    }
}

/// Requests in and out of order, of more connections than are followed, and more requests than are
/// remembered.
#[test]
fn requests_are_found_without_allocating() {
    let segment = |client, sequence, text: &str| {
        let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(client, 80).sequence(sequence).ack(7);
        tcp.payload(text.as_bytes()).build().unwrap()
    };
    let frames = (0..8).flat_map(|client| {
        [(0, "GET / HTTP/1.1\r\nHost"), (31, "\r\n\r\nGET /late"), (20, ": host.test")]
            .map(|(sequence, text)| segment(client, sequence, text))
    });
    let counted = through("http-inspect", http, frames.collect());
    nothing_allocated("http-inspect", &counted);
    assert_eq!(counted.out, (WARM + COUNTED) * BURST);
}

/// Alerts and drops, in packets and over segments, of more connections than are followed.
#[test]
fn signatures_are_found_without_allocating() {
    let segment = |client, sequence, text: &str| {
        let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(client, 80).sequence(sequence).ack(7);
        tcp.payload(text.as_bytes()).build().unwrap()
    };
    let datagram = |port: u16, text: &str| {
        ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).payload(text.as_bytes()).build().unwrap()
    };
    let frames = (0..8).flat_map(|client| {
        [
            segment(client, 0, "GET / HTTP/1.1\r\nHost"),
            segment(client, 31, "\r\n\r\nGET /late"),
            segment(client, 20, ": Host.test"),
            datagram(client, "a query"),
        ]
    });
    let rules = |worker: &Worker| {
        let mut config = signature::SignatureConfig::of([
            r#"alert tcp any any -> any 80 (content:"host: host.test"; nocase; content:"GET"; distance:0; sid:1;)"#,
            r#"alert tcp any any -> any 80 (pcre:"/G[E-Z]T .{3,30}\.test/"; sid:2;)"#,
            r#"alert tcp any any -> any 80 (content:"GET"; content:!"POST"; within:20; sid:3;)"#,
            r#"alert udp any any -> any 53 (content:"query"; threshold:type limit, track by_src, count 1, seconds 1; sid:4;)"#,
        ]);
        (config.flows, config.events) = (6, 4);
        compose(worker, |input| signature::signature::<{ signature::HISTORY }>(input, &config, worker))
    };
    let counted = through("signature", rules, frames.collect());
    nothing_allocated("signature", &counted);
    assert_eq!(counted.out, (WARM + COUNTED) * BURST);
}

/// Mappings that hosts ask for, filter, prolong and end, beside sessions, and requests that are refused.
#[test]
fn mappings_are_asked_for_without_allocating() {
    let mapped = |client: u8| [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, client]].concat();
    let request = |client: u8, opcode: u8, lifetime: u8, rest: &[u8]| {
        let map = [&[client; 12][..], &[17, 0, 0, 0, 15, 160, 0, 0], &mapped(0)].concat();
        let message = [&[2, opcode, 0, 0, 0, 0, lifetime, 0][..], &mapped(client), &map, rest].concat();
        let frame = ethernet().ipv4([10, 0, 0, client], [10, 0, 0, 254]).udp(50_000, 5_351);
        frame.payload(&message).build().unwrap()
    };
    let frames = (1..9).flat_map(|client| {
        let filter = [&[3, 0, 0, 20, 0, 128, 0, 53][..], &mapped(9)].concat();
        let peer = [&[0, 53, 0, 0][..], &mapped(9)].concat();
        [
            request(client, 1, 7, &filter),
            request(client, 2, 7, &peer),
            ethernet()
                .ipv4([10, 0, 0, client], [198, 51, 100, 1])
                .udp(4_000, 53)
                .payload(b"x")
                .build()
                .unwrap(),
            request(client, 1, 7, &[]),
            request(client, 9, 7, &[]),
            request(client, 2, 0, &peer),
            request(client, 1, 0, &[]),
            request(client, 0x81, 7, &[]),
        ]
    });
    let translator = |worker: &Worker| {
        let text = "inside = [\"10.0.0.0/24\"]\npool = [\"203.0.113.7\"]\npcp = \"10.0.0.254\"\n\
                    udp = \"1 ms\"\npcp_mappings = 12\ncapacity = 12\nhold_down = \"1 ms\"";
        nat::node(&toml::from_str(text).unwrap(), worker)
    };
    let counted = through("nat", translator, frames.collect());
    nothing_allocated("nat", &counted);
    let batches = WARM + COUNTED;
    assert_eq!(counted.out, batches * BURST / 8);
    assert_eq!(counted.replies, batches * BURST * 6 / 8);
}

/// Connections that hold, pass and are cut, opened again and again.
#[test]
fn requests_are_held_and_cut_without_allocating() {
    use netbricks_core::packet::tcp::flags;
    let frames = (0..6u16).flat_map(|client| {
        let up = |sequence| ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(client, 80).sequence(sequence);
        let down = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, client).sequence(99).ack(10);
        let opening =
            [up(9).flags(flags::SYN).build().unwrap(), down.flags(flags::SYN | flags::ACK).build().unwrap()];
        let host = if client % 2 == 0 { "a.test" } else { "blocked.test" };
        let pieces = [(10, "GET / HTTP/1.1\r\nHost".to_owned()), (30, format!(": {host}\r\n\r\n"))];
        let said = pieces.map(|(at, text)| up(at).ack(100).payload(text.as_bytes()).build().unwrap());
        opening.into_iter().chain(said)
    });
    let block = |worker: &Worker| {
        let block = vec!["blocked.test".to_owned()];
        let config = http_inspect::HttpInspectConfig { flows: 4, latest: 2, block, ..Default::default() };
        http_inspect::node(&config, worker)
    };
    let counted = through("http-inspect", block, frames.collect());
    nothing_allocated("http-inspect", &counted);
    assert!(counted.out > COUNTED * BURST / 2);
}

/// A connection whose bytes come again and again, in order and not.
#[test]
fn streams_are_rewritten_without_allocating() {
    use netbricks_core::packet::tcp::flags;
    let from_server = |sequence| ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(sequence);
    let opens = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(9).flags(flags::SYN);
    let mut frames =
        vec![opens.build().unwrap(), from_server(99).ack(10).flags(flags::SYN | flags::ACK).build().unwrap()];
    for (sequence, text) in [(100, "say hel"), (110, "lo hello"), (107, "lo, hel"), (100, "say hel")] {
        frames.push(from_server(sequence).ack(10).payload(text.as_bytes()).build().unwrap());
    }
    let counted = through("rewrite-stream", rewrite, frames);
    nothing_allocated("rewrite-stream", &counted);
    assert!(counted.out > COUNTED * BURST / 2);
}

/// Sizes that are lowered and sizes that are added, one of them without room behind.
#[test]
fn segments_are_made_longer_without_allocating() {
    let syn = || ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).syn();
    let frames = vec![
        syn().maximum_segment_size(1_460).timestamps(1, 2).build().unwrap(),
        syn().timestamps(1, 2).build().unwrap(),
        syn().payload(&[1; 1_738]).build().unwrap(),
    ];
    assert_eq!(frames[2].len(), 2_048 - HEADROOM, "it fills its frame");
    let counted = through("mss", mss, frames);
    nothing_allocated("mss", &counted);
    assert_eq!(counted.out, (WARM + COUNTED) * BURST);
}

#[test]
fn every_answer_is_made_without_allocating() {
    let kinds = kinds::every();
    let answers: [(&str, Make); 6] = [
        ("arp request", echo),
        ("solicitation", echo),
        ("echo v4", echo),
        ("echo v6", echo),
        ("expired v4", ttl),
        ("expired v6", ttl),
    ];
    for (kind, make) in answers {
        let frame = kinds.iter().find(|(name, _)| *name == kind).unwrap().1.clone();
        let counted = through(kind, make, vec![frame]);
        nothing_allocated(kind, &counted);
        assert_eq!((counted.out, counted.replies), (0, (WARM + COUNTED) * BURST), "{kind}: all are answered");
    }
}

#[test]
fn four_functions_in_one_loop_allocate_nothing() {
    let counted = through(
        "four",
        |worker| {
            let echo = echo_config();
            let ttl = ttl::TtlConfig { answer_v4: Some([192, 0, 2, 1].into()), ..Default::default() };
            let monitor = monitor::MonitorConfig { capacity: 48, ..Default::default() };
            compose(worker, |input| {
                icmp_echo::icmp_echo(input, &echo, worker)
                    .then(|input| ttl::ttl(input, &ttl, worker))
                    .then(|input| monitor::monitor(input, &monitor, worker))
                    .then(macswap::macswap)
            })
        },
        every_kind(),
    );
    nothing_allocated("four", &counted);
    assert!(counted.out > 0 && counted.replies > 0);
}

/// All functions that can be fused, and as many more as it takes to divide the row.
///
/// Packets wait where the row is divided, and where functions look up. Functions that send packets away come
/// last, so that the others have packets to process.
#[test]
fn every_function_that_fuses_in_a_divided_row_allocates_nothing() {
    let counted = through(
        "row",
        |worker| {
            let echo = echo_config();
            let ttl = ttl::TtlConfig { answer_v4: Some([192, 0, 2, 1].into()), ..Default::default() };
            let monitor = monitor::MonitorConfig { capacity: 48, ..Default::default() };
            let mss = mss::MssConfig { size: Some(1_000), mtu: None, add: true };
            let inspect = http_inspect::HttpInspectConfig { flows: 4, latest: 2, ..Default::default() };
            let backends =
                ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02"].map(|backend| backend.parse().unwrap());
            let maglev =
                maglev::MaglevConfig { backends: backends.into(), capacity: 48, ..Default::default() };
            let lpm = lpm::LpmSettings::of(["2001:db8::/32 3"].map(|route| route.parse().unwrap()));
            let rewrite = rewrite_stream::RewriteStreamConfig::new("hello", "good morning");
            compose(worker, |input| {
                // None of these waits on memory, so the seventeenth begins a new loop.
                let swaps = macswap::macswap(input)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap)
                    .then(macswap::macswap);
                swaps
                    .then(wire::wire)
                    .then(|input| icmp_echo::icmp_echo(input, &echo, worker))
                    .then(|input| ttl::ttl(input, &ttl, worker))
                    .then(|input| busy::busy(input, &busy::BusyConfig { cycles: 1 }))
                    .then(|input| mss::mss(input, &mss, worker))
                    .then(|input| monitor::monitor(input, &monitor, worker))
                    .then(|input| http_inspect::http_inspect(input, &inspect, worker))
                    .then(|input| maglev::maglev(input, &maglev, worker))
                    .then(|input| lpm::lpm(input, &lpm, worker))
                    .then(|input| rewrite_stream::rewrite_stream(input, &rewrite, worker))
            })
        },
        every_kind(),
    );
    nothing_allocated("row", &counted);
    assert!(counted.out > 0 && counted.replies > 0);
}

#[test]
fn two_inputs_that_merge_before_three_functions_allocate_nothing() {
    let mut setup = Setup::new();
    let (left, right) = (setup.source("left", flows()), setup.source("right", every_kind()));
    let merge = setup.graph.add("merge", merge(2)).unwrap();
    setup.graph.connect(left, Edge::OUT, merge, 0).unwrap();
    setup.graph.connect(right, Edge::OUT, merge, 1).unwrap();
    let mut last = merge;
    let nodes = [("ttl", ttl(&setup.worker)), ("monitor", monitor(&setup.worker))];
    for (name, node) in nodes {
        last = setup.function(last, name, node.unwrap());
    }
    let counted = setup.count(last);
    nothing_allocated("merge", &counted);
    assert!(counted.out > 0 && counted.replies > 0);
}

#[test]
fn two_ways_into_one_input_allocate_nothing() {
    let mut setup = Setup::new();
    let source = setup.source("source", flows());
    let first = ttl(&setup.worker).unwrap();
    let first = setup.graph.add("ttl", first).unwrap();
    setup.graph.connect(source, Edge::OUT, first, 0).unwrap();
    // Answers of the first function go on with the packets that it passes.
    let second = monitor(&setup.worker).unwrap();
    let second = setup.function(first, "monitor", second);
    setup.graph.connect(first, Edge::REPLY, second, 0).unwrap();
    let counted = setup.count(second);
    nothing_allocated("two ways", &counted);
    assert_eq!(counted.out, (WARM + COUNTED) * BURST, "an answer for every packet that expired");
}

/// Without this, the tests above could pass because nothing is counted.
#[test]
fn one_allocation_a_packet_is_counted() {
    let counted = through(
        "allocates",
        |worker| {
            compose(worker, |input| {
                input.inspect(|packet| drop(black_box(Box::new(packet.frame_len())))).done()
            })
        },
        flows(),
    );
    assert_eq!(counted.allocated.count_total, COUNTED * BURST);
}
