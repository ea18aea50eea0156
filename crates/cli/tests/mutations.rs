//! A million mutated packets through a graph of every function, at batch sizes of 1, 32 and 256.
//!
//! The same packets come out, nothing panics or leaks, and every packet is accounted for. Wireshark finds
//! nothing malformed that was not malformed before.

mod wireshark;

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Worker};
use netbricks_testkit::mutate::{Random, mutate};
use netbricks_testkit::{BURSTS, kinds};

const MUTATIONS: usize = 1_000_000;
const SHOWN_TO_WIRESHARK: usize = 20_000;
/// Packets in a round, all of one time; each batch size divides this number.
const ROUND: usize = 256;
const MILLISECOND: u64 = 1_000_000;

/// Every function, in the order in which packets pass. Each has its first example of settings.
const CHAIN: [&str; 25] = [
    "icmp-echo",
    "wire",
    "ttl",
    "macswap",
    "monitor",
    "policer",
    "shaper",
    "array-access",
    "busy",
    "mss",
    "nat",
    "mmb",
    "firewall",
    "click",
    "http-inspect",
    "rewrite-stream",
    "signature",
    "shuffle",
    "group-by",
    "classify",
    "lpm",
    "maglev",
    "router",
    "load-balancer",
    "sandbox",
];

/// One group has all packets: its key is what there is to get wrong.
const ONE_GROUP: &str = "groups = 1\nkey = \"vlan\"";

/// The way out has nearly all packets, by several conditions.
const ONE_WAY: &str =
    "rules = [\"arp -> out\", \"ipv6, from 2001:db8::/32 -> out\", \"vlan 9, udp, to port 9 -> drop\"]";

/// Rules of each kind of target.
const RULES: &str = "lines = [\"add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460\", \"add tcp-opt-timestamp strip tcp-opt-sackp mod ip-dscp 9\", \
                     \"add tcp-dport 443 mod tcp-dport 444 mod ip6-hop-limit 60\", \"add-stateful ip-proto udp map ip-saddr 30.0.0.0/8\", \
                     \"add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num\", \"add icmp-type 8 icmp-code 7 drop\"]\nconnections = 1024\n";

/// Elements that read headers of all layers; what they refuse goes on as well.
const ELEMENTS: &str = "exact = true\ntext = \"\"\"
FromDevice(0) -> ether :: Classifier(12/0800, 12/86dd, -);
ether[0] -> Strip(14) -> check :: CheckIPHeader -> filter :: IPFilter(allow tcp && dst port 80, allow ip frag, allow all)
  -> GetIPAddress(16) -> SetIPDSCP(3) -> ttl :: DecIPTTL -> back :: Unstrip(14) -> out :: Counter -> ToDevice(0);
ether[1] -> out; ether[2] -> out; check[1] -> back; ttl[1] -> back;
\"\"\"
";

/// Settings of a sandboxed function that swaps addresses, and the file of its module, which is removed in the end.
struct Module(std::path::PathBuf);

impl Module {
    fn written() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("netbricks-mutations-{}-{number}.wasm", std::process::id());
        let path = std::env::temp_dir().join(name);
        let module = wat::parse_str(include_str!("../../sandbox/tests/modules/macswap.wat"));
        std::fs::write(&path, module.expect("the text is a module")).expect("the directory can be written");
        Self(path)
    }
    fn settings(&self) -> String {
        format!("slice = \"10 ms\"\nmodule = {:?}\n", self.0.display().to_string())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
/// It takes the frames that `maglev` sends to its first backend.
const ROUTER: &str = "interfaces = [\"lan 10.0.0.254/24 2001:db8::fe/64 mac 02:00:00:00:01:01\"]
routes = [\"default via 10.0.0.2\", \"default6 via 2001:db8::2\"]
neighbours = [\"lan 10.0.0.1 02:00:00:00:01:01\", \"lan 10.0.0.2 02:00:00:00:01:02\", \"lan 2001:db8::1 02:00:00:00:01:01\", \"lan 2001:db8::2 02:00:00:00:01:02\"]
";

/// The functions' blueprints, from the registry and settings as an operator writes them.
fn blueprints() -> Vec<(&'static str, Blueprint)> {
    let registry = netbricks::standard();
    // A switch with one port and no instances passes nothing on, and neither does a concentrator without sessions. Both
    // have tests of their own.
    let has_others = |name: &&str| !["instances", "bras"].contains(name);
    let known = registry.iter().map(|definition| definition.name).filter(has_others);
    let known: Vec<&str> = known.collect();
    let mut here = CHAIN;
    here.sort_unstable();
    assert_eq!(here.as_slice(), known, "every function is in the chain");
    let module = Module::written();
    let sandbox = module.settings();
    let blueprint = |name| {
        let definition = registry.get(name).expect("compared above");
        let example = definition.examples.first().copied().unwrap_or_default();
        let settings = match name {
            "group-by" => ONE_GROUP,
            "classify" => ONE_WAY,
            "mmb" => RULES,
            "click" => ELEMENTS,
            "sandbox" => &sandbox,
            "router" => ROUTER,
            _ => example,
        };
        (name, definition.blueprint(settings).expect("the settings fit"))
    };
    CHAIN.into_iter().map(blueprint).collect()
}

/// Frames of one round, and the number of frames that a graph has taken.
#[derive(Clone, Default)]
struct Feed {
    frames: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Number of the round's first frame in the run, from 1 on.
    first: Rc<Cell<u64>>,
    next: Rc<Cell<usize>>,
}

/// Gives out a round's frames.
struct Source(Feed);

impl Node for Source {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let frames = self.0.frames.borrow();
        while batch.len() < cx.burst() {
            let at = self.0.next.get();
            let Some(frame) = frames.get(at) else { break };
            self.0.next.set(at + 1);
            let mut packet = cx.pool().packet(frame).expect("the pool is larger than a round");
            // The number of the frame, so that a frame that leaves can be found among those that came.
            packet.set_received_at(self.0.first.get() + at as u64);
            assert!(batch.push(packet).is_ok(), "a batch takes a burst");
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Hashes all packets that leave, in order, and keeps frames if asked to.
///
/// Each frame has the number of the frame that it came in as.
#[derive(Clone)]
struct Sink(Rc<RefCell<Left>>);

#[derive(Default)]
struct Left {
    /// Whether the order counts.
    ///
    /// Within a batch, newly made answers leave after answers that packets were turned into.
    ordered: bool,
    hash: u64,
    packets: u64,
    kept: Option<Vec<(u64, Vec<u8>)>>,
}

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut left = self.0.borrow_mut();
        for packet in batch.drain() {
            let mut hash = DefaultHasher::new();
            if left.ordered {
                hash.write_u64(left.hash);
            }
            hash.write(packet.data());
            left.hash = if left.ordered { hash.finish() } else { left.hash.wrapping_add(hash.finish()) };
            left.packets += 1;
            if let Some(kept) = &mut left.kept {
                kept.push((packet.received_at(), packet.data().to_vec()));
            }
        }
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// A graph of all functions at one batch size.
///
/// The answers of each function have their own sink: between functions, their order depends on the batch.
struct Replay {
    burst: usize,
    graph: Graph,
    pool: Pool,
    feed: Feed,
    sinks: Vec<(&'static str, Sink)>,
}

impl Replay {
    fn new(burst: usize, keep: bool) -> Self {
        let pool = Pool::builder().frames(2048).large(ROUND, 16_384).short(2048, 512).build();
        let pool = pool.expect("there is memory for a pool");
        let worker = Worker::new(0, 1, pool.clone());
        let feed = Feed::default();
        let sink = |ordered| {
            let left = Left { ordered, kept: keep.then(Vec::new), ..Left::default() };
            Sink(Rc::new(RefCell::new(left)))
        };
        let mut builder = GraphBuilder::new("everything");
        let mut sinks = Vec::new();
        let mut last = builder.add("source", Box::new(Source(feed.clone()))).expect("a new name");
        for (name, blueprint) in blueprints() {
            let node = builder.add_function(name, &blueprint, &worker).expect("it can be made");
            builder.connect(last, Edge::OUT, node, 0).expect("both are there");
            last = node;
            let others: Vec<Edge> = builder.outputs(node).iter().map(|output| output.edge).collect();
            for edge in others.into_iter().filter(|edge| *edge != Edge::OUT) {
                let answers = sink(false);
                let there = builder.add(format!("{name}.{edge:?}"), Box::new(answers.clone()));
                builder.connect(node, edge, there.expect("a new name"), 0).expect("both are there");
                sinks.push((name, answers));
            }
        }
        let out = sink(true);
        let there = builder.add("out", Box::new(out.clone())).expect("a new name");
        builder.connect(last, Edge::OUT, there, 0).expect("both are there");
        sinks.push(("out", out));
        let mut graph = builder.build(pool.clone()).expect("everything is connected");
        graph.set_burst(burst);
        Self { burst, graph, pool, feed, sinks }
    }

    /// Sends a round's frames through the graph at one time.
    fn round(&mut self, first: u64, frames: &mut Vec<Vec<u8>>, now: u64) {
        std::mem::swap(&mut *self.feed.frames.borrow_mut(), frames);
        self.feed.first.set(first);
        self.feed.next.set(0);
        let count = self.feed.frames.borrow().len();
        while self.feed.next.get() < count {
            self.graph.turn(now);
        }
        std::mem::swap(&mut *self.feed.frames.borrow_mut(), frames);
        let panics = self.graph.take_panics();
        assert!(
            panics.is_empty(),
            "batch size {}, in packets {first} to {}: {panics:?}",
            self.burst,
            first + count as u64
        );
    }

    /// Counts and hashes of all packets that left so far.
    fn outcome(&self) -> Outcome {
        self.sinks
            .iter()
            .map(|(name, sink)| {
                let left = sink.0.borrow();
                (*name, left.packets, left.hash)
            })
            .collect()
    }

    /// Ends the run and checks that every packet is accounted for, and that all buffers are back.
    fn finish(mut self, packets: usize, now: u64) -> (String, Vec<(&'static str, Sink)>) {
        self.graph.drain(now);
        let totals = self.graph.totals();
        assert!(totals.is_conserved(), "batch size {}: {totals:?}", self.burst);
        assert_eq!(self.graph.unbalanced(), Vec::<String>::new(), "batch size {}", self.burst);
        assert_eq!(totals.received.packets, packets as u64);
        assert_eq!(totals.drops.of(DropReason::PoolExhausted).packets, 0, "{totals:?}");
        let reports = self.graph.reports();
        let reports = format!("{:?} {reports:?}", totals.drops);
        drop(self.graph);
        assert_eq!(self.pool.available(), self.pool.capacity(), "batch size {}: packets leaked", self.burst);
        (reports, self.sinks)
    }
}

/// Whether packets leave by a sink: those that pass all functions, and the answers of the two that answer.
fn leaves_packets(sink: &str) -> bool {
    ["out", "icmp-echo", "ttl"].contains(&sink)
}

/// The sequence of mutated packets of a seed.
struct Mutations {
    kinds: Vec<Vec<u8>>,
    random: Random,
}

impl Mutations {
    fn new(seed: u64) -> Self {
        let to_us: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
        let from_us = to_us.iter().map(|frame| the_other_way(frame));
        // Most packets are for others, because packets for the host in the chain go no further.
        let kinds =
            [to_us.clone(), from_us.clone().collect(), from_us.clone().collect(), from_us.collect()].concat();
        Self { kinds, random: Random::new(seed) }
    }
    /// Fills a round.
    fn fill(&mut self, frames: &mut Vec<Vec<u8>>, count: usize) {
        frames.resize_with(count, Vec::new);
        for frame in frames {
            frame.clear();
            frame.extend_from_slice(&self.kinds[self.random.below(self.kinds.len())]);
            // One frame in eight stays valid, so that functions do all of their work.
            if self.random.below(8) > 0 {
                mutate(frame, &mut self.random);
            }
        }
    }
}

/// The packet with source and destination swapped in every IP header, which leaves checksums as they are.
fn the_other_way(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let pairs: [(IpAddr, IpAddr); 2] = [
        ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into()),
    ];
    for (one, other) in pairs {
        let [one, other] = [one, other].map(|address| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        });
        let (pair, swapped) = ([&one[..], &other].concat(), [&other[..], &one].concat());
        let at: Vec<usize> = (0..frame.len()).filter(|at| frame[*at..].starts_with(&pair)).collect();
        for at in at {
            frame[at..at + pair.len()].copy_from_slice(&swapped);
        }
    }
    frame
}

/// Counts and hashes of all packets that left, by sink.
type Outcome = Vec<(&'static str, u64, u64)>;

/// Sends all mutations through a graph at one batch size.
///
/// Returns what had left after each round, and drops and reports of the end.
fn replayed(burst: usize) -> (Vec<Outcome>, String) {
    let mut replay = Replay::new(burst, false);
    let mut mutations = Mutations::new(2);
    let (mut frames, mut outcomes) = (Vec::new(), Vec::new());
    let (mut done, mut now) = (0, 0);
    while done < MUTATIONS {
        let count = ROUND.min(MUTATIONS - done);
        mutations.fill(&mut frames, count);
        replay.round(done as u64 + 1, &mut frames, now);
        outcomes.push(replay.outcome());
        done += count;
        now += MILLISECOND;
    }
    (outcomes, replay.finish(MUTATIONS, now).0)
}

#[test]
fn a_million_mutations_come_out_the_same_at_every_batch_size() {
    let [(rounds, reports), more @ ..] = std::thread::scope(|scope| {
        let threads = BURSTS.map(|burst| scope.spawn(move || replayed(burst)));
        threads.map(|thread| thread.join().expect("a replay failed, see above"))
    });
    for ((others, their_reports), burst) in more.iter().zip(&BURSTS[1..]) {
        for (round, (expected, found)) in rounds.iter().zip(others).enumerate() {
            let from = round * ROUND;
            assert_eq!(found, expected, "batch size {burst} in the round from packet {from} on");
        }
        assert_eq!((others.len(), their_reports), (rounds.len(), &reports), "drops and reports at {burst}");
    }
    let outcome = rounds.last().expect("there are rounds");
    for (name, packets, _) in outcome {
        match leaves_packets(name) {
            true => assert!(*packets > 10_000, "`{name}` had its part in it: {outcome:?}"),
            // An exhausted pool of ports is answered, of which a mutation is seldom the cause.
            false if *name == "nat" => {}
            false => assert_eq!(*packets, 0, "`{name}` has nothing to answer"),
        }
    }
}

#[test]
fn wireshark_finds_nothing_new_that_is_malformed() {
    if !wireshark::is_installed() {
        return;
    }
    let mut replay = Replay::new(32, true);
    let mut mutations = Mutations::new(7);
    let (mut came, mut frames, mut now) = (Vec::new(), Vec::new(), 0);
    while came.len() < SHOWN_TO_WIRESHARK {
        mutations.fill(&mut frames, ROUND.min(SHOWN_TO_WIRESHARK - came.len()));
        replay.round(came.len() as u64 + 1, &mut frames, now);
        came.extend(frames.iter().cloned());
        now += MILLISECOND;
    }
    let (_, sinks) = replay.finish(SHOWN_TO_WIRESHARK, now);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let before = wireshark::opinions(&folder.join("mutations-in.pcap"), came.iter().map(Vec::as_slice));
    let mut wrong = Vec::new();
    for (name, sink) in sinks {
        let left = sink.0.take().kept.unwrap_or_default();
        assert_eq!(left.len() > 100, leaves_packets(name), "{name}: {}", left.len());
        let path = folder.join(format!("mutations-{name}.pcap"));
        let after = wireshark::opinions(&path, left.iter().map(|(_, frame)| frame.as_slice()));
        for ((number, frame), opinion) in left.iter().zip(after) {
            // A packet made by a function has no number; other numbers begin with 1.
            let was = number.checked_sub(1).and_then(|at| before.get(at as usize));
            let allowed = was.is_some_and(|before| before.malformed) || opinion.quotes && opinion.sound;
            if opinion.malformed && !allowed {
                wrong.push(format!("{name}: packet {number}, {}: {frame:02x?}", opinion.protocols));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} newly malformed:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
    let malformed = before.iter().filter(|opinion| opinion.malformed).count();
    assert!(malformed > SHOWN_TO_WIRESHARK / 20, "Wireshark did look: {malformed}");
}
