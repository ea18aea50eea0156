//! Speed of Click configurations and of instances: `cargo bench -p netbricks-click --bench elements -- [--json] [--short] [NAME]`.
//!
//! Frames of 64 bytes in bursts of 32 pass a graph of a source, the node of a configuration and a sink. Beside it runs
//! the same graph with `FromDevice(0) -> ToDevice(0)`, in turns. The figure is the difference of both medians: what the
//! elements cost. Where a function of the library does such work, its cost is beside it (`native`): that of its graph, less that
//! of the same graph with `wire`, in turns. `firewall` remembers flows, `nat` keeps subscribers, and `monitor` has no
//! `Counter` before it.
//!
//! `NAME` chooses the scenarios whose names contain it. `--short` makes a few rounds, which show that each scenario runs
//! and say little about speed.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up has failed")]

mod instances;

use std::alloc::System;
use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Instant;

use netbricks_click::{ClickSettings, node};
use netbricks_core::buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::packet::checksum;
use netbricks_core::{
    Context, Edge, Graph, GraphBuilder, Node, NodeId, Poll, Settings, Shape, Worker, compose,
};
use netbricks_functions::firewall::{self, FirewallConfig};
use netbricks_functions::monitor::{self, MonitorConfig};
use netbricks_functions::nat::{self, NatConfig};
use netbricks_functions::router::{self, RouterConfig};
use netbricks_functions::{macswap, wire};
use rustix::thread::{CpuSet, sched_setaffinity};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Packets of a burst.
const BURST: usize = 32;
/// Packets of a round: it ends before the machine gives the core to another program, as a rule.
const ROUND: u64 = 512 * BURST as u64;
const ROUNDS: usize = 101;
/// The core that the benchmark runs on.
const CORE: usize = 1;

type Frame = [u8; 64];

/// A frame of UDP from a flow.
fn frame(source: (u32, u16), destination: (u32, u16)) -> Frame {
    let mut frame = [0; 64];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&source.0.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.0.to_be_bytes());
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.1.to_be_bytes());
    frame[38..40].copy_from_slice(&30_u16.to_be_bytes());
    frame
}

/// Random numbers, the same in each run (SplitMix64).
struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
    fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.next() as usize % (last + 1));
        }
    }
}

/// Gives bursts of frames, in turn, as long as packets are wanted.
struct Source {
    frames: Rc<[Frame]>,
    length: usize,
    next: usize,
    wanted: Rc<Cell<u64>>,
}

impl Node for Source {
    fn process(&mut self, _input: usize, _batch: &mut Batch, _cx: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let count = self.wanted.get().min(BURST as u64);
        if count == 0 {
            return Poll::Idle;
        }
        cx.pool().allocate_into(batch, count as usize);
        self.wanted.set(self.wanted.get() - batch.len() as u64);
        let (mut next, length) = (self.next, self.length);
        batch.each(|_, bytes| {
            let frame = &self.frames[next];
            next = if next + 1 == self.frames.len() { 0 } else { next + 1 };
            if let Ok(room) = bytes.extend(length.max(frame.len())) {
                room[..frame.len()].copy_from_slice(frame);
            }
        });
        self.next = next;
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Counts packets and frees them.
struct Sink {
    inputs: usize,
    passed: Rc<Cell<u64>>,
}

impl Node for Sink {
    fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
        self.passed.set(self.passed.get() + batch.len() as u64);
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape { inputs: self.inputs, ..Shape::transmit() }
    }
}

/// A graph of sources, a node under test and a sink.
struct Bench {
    graph: Graph,
    wanted: Rc<Cell<u64>>,
    passed: Rc<Cell<u64>>,
    now: u64,
}

const NODE: &str = "click";

impl Bench {
    fn new(pool: &Pool, node: Box<dyn Node>, frames: &[Rc<[Frame]>], length: usize) -> Self {
        let (wanted, passed) = (Rc::<Cell<u64>>::default(), Rc::<Cell<u64>>::default());
        let mut graph = GraphBuilder::new("bench");
        // A node of one input has all sources there.
        let last = node.shape().inputs - 1;
        let node = graph.add(NODE, node).unwrap();
        for (input, frames) in frames.iter().enumerate() {
            let source = Source { frames: Rc::clone(frames), length, next: 0, wanted: Rc::clone(&wanted) };
            let source = graph.add(format!("source{input}"), Box::new(source)).unwrap();
            graph.connect(source, Edge::OUT, node, input.min(last)).unwrap();
        }
        Self::connect(&mut graph, node, &passed);
        let graph = graph.build(pool.clone()).unwrap();
        let mut bench = Self { graph, wanted, passed, now: 1_700_000_000_000_000_000 };
        // The elements get their clock and are initialised.
        bench.rest();
        bench
    }

    /// Gives all nodes turns without packets from the sources.
    fn rest(&mut self) {
        (0..1_000).for_each(|_| self.turn());
    }

    fn connect(graph: &mut GraphBuilder, node: NodeId, passed: &Rc<Cell<u64>>) {
        let edges: Vec<Edge> = graph.outputs(node).iter().map(|output| output.edge).collect();
        let sink = Sink { inputs: edges.len(), passed: Rc::clone(passed) };
        let sink = graph.add("sink", Box::new(sink)).unwrap();
        for (input, edge) in edges.into_iter().enumerate() {
            graph.connect(node, edge, sink, input).unwrap();
        }
    }

    /// The graph of a configuration.
    fn click(pool: &Pool, settings: &ClickSettings, frames: &[Rc<[Frame]>]) -> Self {
        Self::new(pool, node(settings, &worker(pool)).unwrap(), frames, 0)
    }

    fn call(&mut self, handler: &str, argument: &str) -> String {
        self.graph.call(NODE, handler, argument).unwrap()
    }

    fn turn(&mut self) {
        self.now += 2_000;
        self.graph.turns(self.now, 4);
    }

    /// Passes packets: nanoseconds until the last of them has left.
    fn pass(&mut self, packets: u64) -> f64 {
        let end = self.passed.get() + packets;
        self.wanted.set(packets);
        let begin = Instant::now();
        let mut turns = 0_u64;
        while self.passed.get() < end {
            self.turn();
            turns += 1;
            assert!(turns < 10_000 + 100 * packets, "packets are lost: {}", self.lost());
        }
        begin.elapsed().as_nanos() as f64
    }

    /// Where packets are that did not come to the sink.
    fn lost(&self) -> String {
        let mut told = format!("{:?}", self.graph.reports());
        for node in self.graph.nodes() {
            let counters = node.counters;
            let (came, went, held) = (counters.arrived.packets, counters.left.packets, counters.held);
            write!(told, "\n{}: {came} in, {went} out, {held} held", node.name).unwrap();
            for (reason, count) in counters.drops.iter() {
                write!(told, ", {} {}", count.packets, reason.name()).unwrap();
            }
        }
        told
    }

    /// The accounts balance, and nothing was dropped.
    fn check(&mut self) {
        assert_eq!(self.graph.unbalanced(), Vec::<String>::new());
        let panics = self.graph.take_panics();
        assert!(panics.is_empty(), "{panics:?}");
    }
}

fn worker(pool: &Pool) -> Worker {
    Worker::new(0, 1, pool.clone())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Nanoseconds a packet in graphs that run in turns.
fn beside<const GRAPHS: usize>(report: &Report, mut benches: [&mut Bench; GRAPHS]) -> [f64; GRAPHS] {
    for bench in &mut benches {
        // All flows and scratch memory are made before the first round.
        bench.pass(report.count(4 * 65_536));
    }
    let mut rounds = [(); GRAPHS].map(|()| Vec::new());
    for _ in 0..report.rounds() {
        for (bench, rounds) in benches.iter_mut().zip(&mut rounds) {
            rounds.push(bench.pass(ROUND) / ROUND as f64);
        }
    }
    benches.into_iter().for_each(Bench::check);
    rounds.map(median)
}

/// A figure beside its goal.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Option<f64>,
    /// The figure without the elements, and the whole with them.
    beside: Option<(f64, f64)>,
    /// The figure of a function that does the same work.
    native: Option<f64>,
}

/// Scenarios that the command line asks for, and their figures.
struct Report {
    json: bool,
    short: bool,
    wanted: Vec<String>,
    figures: Vec<Figure>,
    pool: Pool,
}

impl Report {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| name.contains(&wanted[..]))
    }

    fn rounds(&self) -> usize {
        if self.short { 3 } else { ROUNDS }
    }
    /// A number of packets or installs, or a part of it where the run is to be short.
    fn count(&self, full: u64) -> u64 {
        if self.short { full.div_ceil(64) } else { full }
    }

    fn add(&mut self, name: &str, value: f64, unit: &'static str, goal: Option<f64>) {
        self.push(Figure { name: name.to_owned(), value, unit, goal, beside: None, native: None });
    }

    fn push(&mut self, figure: Figure) {
        if !self.json {
            let goal = figure.goal.map(|goal| format!("{goal:.1}")).unwrap_or_default();
            let miss = figure.goal.is_some_and(|goal| figure.value > goal);
            let beside = figure.beside.map(|(base, all)| format!("{all:8.2} {base:8.2}")).unwrap_or_default();
            let native = figure.native.map(|native| format!("{native:8.2}")).unwrap_or_default();
            let Figure { name, value, unit, .. } = &figure;
            let text = format!(
                "{name:32} {value:9.2} {unit:14} {goal:>8} {:4} {beside} {native}",
                if miss { "MISS" } else { "" }
            );
            println!("{}", text.trim_end());
        }
        self.figures.push(figure);
    }

    /// Measures a configuration beside one without elements, and beside a function that does the same work.
    fn click(
        &mut self,
        name: &str,
        goal: impl Into<Option<f64>>,
        configuration: &str,
        frames: &[Rc<[Frame]>],
        prepare: impl FnOnce(&mut Bench),
        native: impl FnOnce(&Worker) -> Option<Box<dyn Node>>,
    ) {
        if !self.wants(name) {
            return;
        }
        let mut empty = String::new();
        for device in 0..frames.len() {
            writeln!(empty, "FromDevice({device}) -> ToDevice({device});").unwrap();
        }
        let mut plain = Bench::click(&self.pool, &ClickSettings::of(&empty), frames);
        let mut full = Bench::click(&self.pool, &ClickSettings::of(configuration), frames);
        prepare(&mut full);
        let [base, all] = beside(self, [&mut plain, &mut full]);
        let native = native(&worker(&self.pool)).map(|node| {
            // What it costs beside a function that does nothing.
            let wire = compose(&worker(&self.pool), wire::wire).unwrap();
            let [mut full, mut plain] = [node, wire].map(|node| Bench::new(&self.pool, node, frames, 0));
            let [all, base] = beside(self, [&mut full, &mut plain]);
            all - base
        });
        self.push(Figure {
            name: name.to_owned(),
            value: all - base,
            unit: "ns/packet",
            goal: goal.into(),
            beside: Some((base, all)),
            native,
        });
    }

    fn print_json(&self) {
        let figures: Vec<serde_json::Value> = self
            .figures
            .iter()
            .map(|figure| {
                serde_json::json!({
                    "scenario": figure.name,
                    "value": figure.value,
                    "unit": figure.unit,
                    "goal": figure.goal,
                    "without_elements": figure.beside.map(|(base, _)| base),
                    "with_elements": figure.beside.map(|(_, all)| all),
                    "native": figure.native,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "figures": figures }));
    }
}

fn main() {
    let mut cores = CpuSet::new();
    cores.set(CORE);
    let pinned = sched_setaffinity(None, &cores).is_ok();
    let _slot = WorkerSlot::claim().ok();
    // `cargo bench` adds options of its own.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut report = Report {
        json: words.iter().any(|word| word == "--json"),
        short: words.iter().any(|word| word == "--short"),
        wanted: words.into_iter().filter(|word| !word.starts_with("--")).collect(),
        figures: Vec::new(),
        pool: Pool::builder().frames(16_384).build().unwrap(),
    };
    if !report.json {
        println!("core {CORE}{}", if pinned { "" } else { " (not pinned)" });
        println!(
            "{:32} {:>9} {:14} {:>8} {:4} {:>8} {:>8} {:>8}",
            "", "figure", "", "at most", "", "with", "without", "native"
        );
    }
    elements(&mut report);
    filters(&mut report);
    flows(&mut report);
    routers(&mut report);
    instances::all(&mut report);
    if report.json {
        report.print_json();
    }
}

/// Address 10.x.y.z of a number.
fn host(number: u64) -> u32 {
    0x0A00_0000 | (number as u32 & 0x00FF_FFFF)
}

/// An IPv4 router of two ports as in Click's documentation (RFC 1812), with all ways aside.
const ROUTER: &str = "
rt :: LinearIPLookup(10.1.0.1/32 0, 10.2.0.1/32 0, 10.1.0.0/16 1, 10.2.0.0/16 2, 0.0.0.0/0 10.2.0.9 2);
rt[0] -> Discard;
elementclass In { $colour |
    input -> c :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    c[0] -> [1]output; c[1] -> [2]output; c[3] -> Discard;
    c[2] -> Paint($colour) -> Strip(14) -> CheckIPHeader(INTERFACES 10.1.0.1/16 10.2.0.1/16) -> GetIPAddress(16) -> output;
}
elementclass Out { $address, $mac, $colour |
    input -> DropBroadcasts -> cp :: PaintTee($colour) -> gio :: IPGWOptions($address) -> FixIPSrc($address)
    -> dt :: DecIPTTL -> fr :: IPFragmenter(1500) -> [0] arpq :: ARPQuerier($address, $mac) -> output;
    input[1] -> [1] arpq;
    cp[1] -> ICMPError($address, redirect, host) -> [1]output;
    gio[1] -> ICMPError($address, parameterproblem) -> [1]output;
    dt[1] -> ICMPError($address, timeexceeded) -> [1]output;
    fr[1] -> ICMPError($address, unreachable, needfrag) -> [1]output;
}
in1 :: In(1); in2 :: In(2);
FromDevice(0) -> in1 -> rt; FromDevice(1) -> in2 -> rt;
out1 :: Out(10.1.0.1, 02:00:00:00:01:01, 1); out2 :: Out(10.2.0.1, 02:00:00:00:02:01, 2);
rt[1] -> out1 -> d0 :: ToDevice(0); rt[2] -> out2 -> d1 :: ToDevice(1);
out1[1] -> rt; out2[1] -> rt;
in1[1] -> ARPResponder(10.1.0.1 02:00:00:00:01:01) -> d0; in2[1] -> ARPResponder(10.2.0.1 02:00:00:00:02:01) -> d1;
in1[2] -> [1]out1; in2[2] -> [1]out2;
";

fn elements(report: &mut Report) {
    let one: Rc<[Frame]> = Rc::from([frame((host(1), 1), (host(2), 2))]);
    let nothing = |_: &mut Bench| ();
    report.click(
        "click-ether-mirror",
        4.0,
        "FromDevice(0) -> EtherMirror -> ToDevice(0);",
        &[Rc::clone(&one)],
        nothing,
        |worker| Some(compose(worker, macswap::macswap).unwrap()),
    );
    let text = "FromDevice(0) -> Queue(1024) -> Unqueue(BURST 32) -> ToDevice(0);";
    report.click("click-queue-unqueue", None, text, &[Rc::clone(&one)], nothing, |_| None);
    // From each network to the other.
    let between = |from: u32, to: u32| -> Rc<[Frame]> {
        let address = |network: u32, host: u32| 0x0A00_0000 | network << 16 | host;
        let flow = |port: u16| frame((address(from, 2), 1_000 + port), (address(to, 2), 80));
        let to_router = |mut frame: Frame| {
            frame[4] = from as u8;
            frame
        };
        (0..256).map(flow).map(to_router).collect()
    };
    let neighbours = |bench: &mut Bench| {
        bench.call("out1/arpq.insert", "10.1.0.2 02:00:00:00:01:02");
        bench.call("out2/arpq.insert", "10.2.0.2 02:00:00:00:02:02");
    };
    let native = |worker: &Worker| {
        let config: RouterConfig = toml::from_str(
            "interfaces = [\"a 10.1.0.1/16 mac 02:00:00:00:01:01\", \"b 10.2.0.1/16 mac 02:00:00:00:02:01\"]\n\
             routes = [\"0.0.0.0/0 via 10.2.0.9\"]\n\
             neighbours = [\"a 10.1.0.2 02:00:00:00:01:02\", \"b 10.2.0.2 02:00:00:00:02:02\"]",
        )
        .unwrap();
        config.check().unwrap();
        Some(router::node(&config, worker).unwrap())
    };
    report.click("click-ip-router", 16.0, ROUTER, &[between(1, 2), between(2, 1)], neighbours, native);
}

/// The router of `examples/click`, with its input and output paths done in one pass each, and element by element.
fn routers(report: &mut Report) {
    const TEXT: &str = include_str!("../../../../examples/click/ip-router.click");
    if !report.wants("click-router-fused") && !report.wants("click-router-elements") {
        return;
    }
    let frames = |device: usize| -> Rc<[Frame]> {
        let (inside, outside) = (0x0A00_0002, 0xC0A8_0102);
        let way = |flow: u16| match device {
            0 => frame((inside, 1_000 + flow), (outside, 80)),
            _ => frame((outside, 80), (inside, 1_000 + flow)),
        };
        let to_router = |mut frame: Frame| {
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x10 + device as u8]);
            frame
        };
        (0..256).map(way).map(to_router).collect()
    };
    let make = |fuse: bool| {
        let mut settings = ClickSettings::of(TEXT);
        settings.fuse = fuse;
        let mut bench = Bench::click(&report.pool, &settings, &[frames(0), frames(1)]);
        bench.call("send0/querier.insert", "10.0.0.2 02:00:00:00:01:02");
        bench.call("send1/querier.insert", "192.168.1.2 02:00:00:00:02:02");
        bench
    };
    let [fused, apart] = beside(report, [&mut make(true), &mut make(false)]);
    report.add("click-router-fused", fused, "ns/packet", None);
    report.add("click-router-elements", apart, "ns/packet", None);
    report.add("click-router-fused-saves", (1.0 - fused / apart) * 100.0, "%", None);
}

/// Rules that refuse some services of some networks, and allow the rest.
///
/// Packets that pass have been by all of them.
fn filters(report: &mut Report) {
    for rules in [10, 64, 1_000] {
        let mut text = String::from("FromDevice(0) -> MarkIPHeader(14) -> IPFilter(");
        let mut lines = vec!["tracking off".to_owned()];
        let mut random = Random(7);
        let network = |random: &mut Random| 0x0A00_0000 | (random.next() as u32 & 0x001F_FF00);
        for _ in 1..rules {
            let source = std::net::Ipv4Addr::from(network(&mut random));
            let port = 1 + random.next() % 1_000;
            write!(text, "deny src net {source}/24 && udp && dst port {port}, ").unwrap();
            lines.push(format!("deny udp from {source}/24 to any port {port}"));
        }
        lines.push("allow from any".into());
        text += "allow all) -> ToDevice(0);";
        let mut random = Random(8);
        let frames: Rc<[Frame]> = (0..1_024)
            .map(|_| {
                let source = network(&mut random) | 5;
                frame((source, 9_999), (host(random.next()), 2_000 + (random.next() % 1_000) as u16))
            })
            .collect();
        report.click(
            &format!("click-ip-filter-{rules}"),
            12.0,
            &text,
            &[frames],
            |_| (),
            |worker| {
                let config: FirewallConfig = toml::from_str(&format!("lines = {lines:?}")).unwrap();
                config.check().unwrap();
                Some(firewall::node(&config, worker).unwrap())
            },
        );
    }
}

fn flows(report: &mut Report) {
    let mut many: Vec<Frame> = (0..65_536_u64)
        .map(|flow| frame((host(flow), 1_024 + flow as u16 % 512), (0xC000_0201 + (flow as u32 & 3), 80)))
        .collect();
    Random(9).shuffle(&mut many);
    let many: Rc<[Frame]> = many.into();
    let text = "rw :: IPRewriter(pattern 198.51.100.1 1024-65535 - - 0 1, CAPACITY 131072);
        FromDevice(0) -> MarkIPHeader(14) -> rw; rw[0] -> ToDevice(0); rw[1] -> Discard;";
    report.click(
        "click-ip-rewriter-64k",
        18.0,
        text,
        &[many],
        |_| (),
        |worker| {
            let config =
                "inside = [\"10.0.0.0/8\"]\npool = [\"198.51.100.1-198.51.100.2\"]\ncapacity = 131072";
            let config: NatConfig = toml::from_str(config).unwrap();
            config.check().unwrap();
            Some(nat::node(&config, worker).unwrap())
        },
    );
    let few: Rc<[Frame]> = (0..1_024_u64).map(|flow| frame((host(flow), 1_024), (0xC000_0201, 80))).collect();
    let text =
        |element: &str| format!("FromDevice(0) -> MarkIPHeader(14) -> Counter -> {element} -> ToDevice(0);");
    report.click(
        "click-flow-monitor",
        14.0,
        &text("FlowMonitor"),
        &[Rc::clone(&few)],
        |_| (),
        |worker| Some(monitor::node(&MonitorConfig::default(), worker).unwrap()),
    );
    report.click("click-aggregate-flows", None, &text("AggregateIPFlows"), &[few], |_| (), |_| None);
}
