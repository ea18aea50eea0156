//! Packets go to the workers that own their flows: in order, without loss, also during moves and with full
//! rings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::consistency::{BoundedInconsistency, NoExternalAccess, Strict};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::stack::{Layer, Root, With};
use netbricks_core::packet::{FlowKey, Ip, Link, Tcp};
use netbricks_core::tables::{CounterArray, Entry, FlowTable, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Context, DetachedContext, DropReason, Edge, Function, Graph, GraphBuilder, GraphError, Input, Node,
    NodeState, Operator, Poll, Shape, Shuffle, ShuffleConfig, ShuffleKey, StoredFlow, Turn, Verdict,
    WhenFull, Worker, WorkerGroup, compose,
};
use netbricks_runtime::{Clock, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime};
use netbricks_testkit::stream::{StreamWorker, WindowConfig};

/// The position of a packet's number within its flow: behind Ethernet, IPv4 and UDP.
pub(crate) const NUMBER: std::ops::Range<usize> = 42..50;

/// Packets of UDP flows, each numbered within its flow. Odd workers send the other direction of the same
/// connections.
pub(crate) struct Flows {
    templates: Vec<Vec<u8>>,
    numbers: Vec<u64>,
    left: u64,
    seed: u64,
    pub(crate) polls: Arc<AtomicU64>,
}

impl Flows {
    pub(crate) fn new(worker: usize, flows: u16, packets: u64) -> Self {
        let templates: Vec<Vec<u8>> = (0..flows)
            .map(|flow| {
                let (a, b, port) = ("10.0.0.1", "10.9.8.7", 1_000 * (1 + worker as u16 / 2) + flow);
                let frame = match worker % 2 {
                    0 => ethernet().ipv4(a, b).udp(port, 53).payload(&[0; 8]).build(),
                    _ => ethernet().ipv4(b, a).udp(53, port).payload(&[0; 8]).build(),
                };
                frame.unwrap()
            })
            .collect();
        Self::of(worker, templates, packets)
    }

    /// Packets of these flows, which have room for a number in the UDP payload.
    pub(crate) fn of(worker: usize, templates: Vec<Vec<u8>>, packets: u64) -> Self {
        let numbers = vec![0; templates.len()];
        Self { templates, numbers, left: packets, seed: worker as u64 + 1, polls: Arc::default() }
    }
}

impl Node for Flows {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.polls.fetch_add(1, Ordering::Relaxed);
        while self.left > 0 && batch.len() < cx.burst() {
            let flow = (self.seed >> 33) as usize % self.templates.len();
            let Some(mut packet) = cx.pool().packet(&self.templates[flow]) else { return Poll::Busy };
            packet.data_mut()[NUMBER].copy_from_slice(&self.numbers[flow].to_be_bytes());
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.numbers[flow] += 1;
            self.left -= 1;
            batch.push(packet).unwrap();
        }
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The output by flow: each packet's number and the worker that sent it, in the order of sending.
pub(crate) type Seen = Arc<Mutex<BTreeMap<FlowKey, Vec<(u64, usize)>>>>;

/// Sends everything, and records it.
pub(crate) struct Witness {
    pub(crate) worker: usize,
    pub(crate) seen: Seen,
}

impl Node for Witness {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        let mut seen = self.seen.lock().unwrap();
        for packet in batch.drain() {
            let number = u64::from_be_bytes(packet.data()[NUMBER].try_into().unwrap());
            let flow = FlowKey::from_frame(packet.data()).unwrap();
            seen.entry(flow).or_default().push((number, self.worker));
        }
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// Counts each flow's packets in declared state, and drops a packet whose number is not the count.
///
/// Such a packet is out of order, or its flow's state did not come with it.
pub(crate) fn in_turn(input: Input, worker: &Worker, declared: Declared) -> impl Function + use<> {
    let config = FlowTableConfig::new(4_096);
    let flows: netbricks_core::Flows<FlowKey, u64> = match declared {
        Declared::FlowTable => worker.flow_table::<FlowKey, u64>("flows", config),
        Declared::NoExternalAccess => worker.state("flows", NoExternalAccess, config),
    };
    counted(input, flows).done()
}

/// The same as a key function.
pub(crate) fn in_turn_of(
    input: Input,
    worker: &Worker,
) -> impl Operator<In = Root, Out = With<Layer<Layer<Root, Link>, Ip>, bool>> + use<> {
    counted(input, worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(4_096)))
}

fn counted(
    input: Input,
    flows: netbricks_core::Flows<FlowKey, u64>,
) -> impl Operator<In = Root, Out = With<Layer<Layer<Root, Link>, Ip>, bool>> + use<> {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |packet| packet.flow_key(),
            |packet, entry| {
                let number = u64::from_be_bytes(packet.frame()[NUMBER].try_into().unwrap());
                match entry {
                    Entry::Found(mut next) => {
                        let expected = std::mem::replace(next.get_mut(), number + 1);
                        expected == number
                    }
                    Entry::Vacant(place) => {
                        place.insert(number + 1);
                        number == 0
                    }
                    Entry::Full => false,
                }
            },
        )
        .filter(DropReason::Denied, |packet| *netbricks_core::Metadata::get::<bool>(packet))
}

/// The declaration of the flows' counts.
#[derive(Clone, Copy)]
pub(crate) enum Declared {
    FlowTable,
    NoExternalAccess,
}

pub(crate) struct Run {
    pub(crate) declared: Declared,
    pub(crate) workers: usize,
    pub(crate) burst: usize,
    pub(crate) config: ShuffleConfig,
    pub(crate) flows: u16,
    pub(crate) packets: u64,
    /// Shuffles one after the other, each with a count behind it.
    pub(crate) stages: usize,
}

pub(crate) const RUN: Run = Run {
    declared: Declared::FlowTable,
    workers: 2,
    burst: 32,
    config: SMALL,
    flows: 61,
    packets: 60_000,
    stages: 1,
};
/// Rings so small that they are full most of the time.
pub(crate) const SMALL: ShuffleConfig =
    ShuffleConfig { key: ShuffleKey::SymmetricFlow, full: WhenFull::Wait, ring: 32 };

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(16_384).build().unwrap()
}

impl Run {
    /// Every worker receives, shuffles, counts and sends packets. `while_running` gets the runtime meanwhile.
    fn go(&self, while_running: impl FnOnce(&Runtime)) -> (FinalReport, Seen) {
        let seen = Seen::default();
        let shuffles: Vec<Shuffle> = (0..self.stages).map(|_| Shuffle::new(self.config)).collect();
        let mut config = Config::new(pool())
            .workers(self.workers)
            .placement(Placement::Unpinned)
            .clock(Clock::Driven)
            .idle(IdlePolicy::Balanced);
        config.burst = self.burst;
        let runtime = Runtime::start(config, |worker| {
            let (shuffles, seen) = (shuffles.clone(), seen.clone());
            let source = Flows::new(worker, self.flows, self.packets);
            let declared = self.declared;
            Factory::new(move |context| -> Result<_, GraphError> {
                let graph = staged(context.worker(), source, &shuffles, declared, seen)?;
                graph.build(context.pool().clone())
            })
        })
        .unwrap();
        while_running(&runtime);
        let report = runtime.wait();
        assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
        (report, seen)
    }
}

/// A source, shuffles one after the other with a count behind each, and a witness.
pub(crate) fn staged(
    worker: &Worker,
    source: Flows,
    shuffles: &[Shuffle],
    declared: Declared,
    seen: Seen,
) -> Result<GraphBuilder, GraphError> {
    let mut graph = GraphBuilder::new("test");
    let failed = |error| GraphError::Node { name: "node".into(), error };
    // From the last to the first: the order in which they are made makes no difference.
    let mut next = graph.add("out", Box::new(Witness { worker: worker.index(), seen }))?;
    for (stage, shuffle) in shuffles.iter().enumerate().rev() {
        let named = |name: &str| if stage == 0 { name.into() } else { format!("{name} {stage}") };
        let node = graph.add(named("shuffle"), shuffle.node(worker).map_err(failed)?)?;
        let count = compose(worker, |input| in_turn(input, worker, declared)).map_err(failed)?;
        let count = graph.add(named("count"), count)?;
        graph.connect(node, Edge::OUT, count, 0)?;
        graph.connect(count, Edge::OUT, next, 0)?;
        next = node;
    }
    let source = graph.add("source", Box::new(source))?;
    graph.connect(source, Edge::OUT, next, 0)?;
    Ok(graph)
}

/// Every flow is complete and in order. Answers by how many workers each was sent.
pub(crate) fn check_order(seen: &Seen, flows: usize, packets: u64) -> Vec<usize> {
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), flows);
    assert_eq!(seen.values().map(|packets| packets.len() as u64).sum::<u64>(), packets);
    seen.iter()
        .map(|(flow, packets)| {
            let in_order = packets.iter().enumerate().all(|(i, (number, _))| *number == i as u64);
            assert!(in_order, "{flow} is out of order");
            let mut workers: Vec<usize> = packets.iter().map(|(_, worker)| *worker).collect();
            workers.sort_unstable();
            workers.dedup();
            workers.len()
        })
        .collect()
}

#[test]
fn flows_come_to_one_worker_in_order_and_none_is_lost() {
    for (workers, burst) in [(1, 32), (2, 1), (2, 32), (2, 256), (3, 32)] {
        let run = Run { workers, burst, ..RUN };
        let (report, seen) = run.go(|_| ());
        assert_eq!(report.totals.drops.total().packets, 0, "{:?}", report.totals.drops);
        assert_eq!(report.totals.held, 0);
        let on = check_order(&seen, usize::from(run.flows) * workers, run.packets * workers as u64);
        assert!(on.iter().all(|workers| *workers == 1), "a flow is on several workers");
        let seen = seen.lock().unwrap();
        let mut used = std::collections::BTreeSet::new();
        for (flow, packets) in seen.iter() {
            used.insert(packets[0].1);
            if let Some(back) = seen.get(&flow.reversed()) {
                assert_eq!(back[0].1, packets[0].1, "the directions of {flow} do not meet");
            }
        }
        assert_eq!(used.len(), workers, "every worker gets its share");
        assert_eq!(report.totals.handoff_in.packets > 0, workers > 1);
    }
}

#[test]
fn buckets_move_back_and_forth_under_load_with_their_state() {
    move_back_and_forth(&Run { packets: MOST, ..RUN });
}

#[test]
fn a_table_under_no_external_access_moves_with_its_flows() {
    move_back_and_forth(&Run { packets: MOST, declared: Declared::NoExternalAccess, ..RUN });
}

fn move_back_and_forth(run: &Run) {
    move_back_and_forth_by(run, ["shuffle"; 2], |_, _| ());
}

/// The most packets of each worker while buckets move: far more than that takes.
pub(crate) const MOST: u64 = 50_000_000;
/// The number of moves, and the least number of packets between two of them.
const MOVES: usize = 60;
const BETWEEN: u64 = 4_000;

/// Asks one shuffle and then the other for the moves, with traffic until there were enough of them.
///
/// `look` is called when each move is over, with the owner of everything.
pub(crate) fn move_back_and_forth_by(
    run: &Run,
    asked: [&str; 2],
    look: impl Fn(&netbricks_runtime::Control, usize),
) {
    let (report, seen) = run.go(|runtime| {
        let control = runtime.control();
        for number in 1..=MOVES {
            let to = number % 2;
            let pairs = control.call(0, "test", asked[to], "move", &format!("0-4095 {to}")).unwrap();
            let most = 2 * run.stages;
            assert!(pairs.parse::<usize>().is_ok_and(|pairs| pairs <= most), "{pairs}");
            while control.call(1, "test", "shuffle", "moving", "").unwrap() != "0" {
                std::thread::yield_now();
            }
            look(control, to);
            let enough = runtime.progress().sent.packets + BETWEEN;
            while runtime.progress().sent.packets < enough {
                std::thread::yield_now();
            }
        }
        runtime.stop_handle().stop();
    });
    // Packets whose flow's count did not come with them, or that came out of order, were dropped.
    assert_eq!(report.totals.drops.total().packets, 0, "{:?}", report.totals.drops);
    let on = check_order(&seen, 2 * usize::from(run.flows), report.totals.sent.packets);
    assert!(on.iter().all(|workers| *workers == 2), "every flow was on both workers: {on:?}");
}

#[test]
fn a_full_ring_is_a_drop_with_its_own_reason_where_that_was_asked_for() {
    let config = ShuffleConfig { full: WhenFull::Drop, ring: 1, key: ShuffleKey::Flow };
    let (report, seen) = Run { config, ..RUN }.go(|_| ());
    let dropped = report.totals.drops.of(DropReason::RingFull).packets;
    assert!(dropped > 0);
    // Packets behind a lost one are out of order for the next function.
    let denied = report.totals.drops.of(DropReason::Denied).packets;
    let sent: usize = seen.lock().unwrap().values().map(Vec::len).sum();
    assert_eq!(sent as u64 + dropped + denied, 2 * RUN.packets);
}

/// One worker's graph of a group, turned by hand.
pub(crate) fn by_hand(
    group: &WorkerGroup,
    index: usize,
    pool: &Pool,
    shuffle: &Shuffle,
    seen: &Seen,
) -> (Graph, Arc<AtomicU64>) {
    let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
    let source = Flows::new(index, 64, 1_000);
    let polls = source.polls.clone();
    let mut graph = fed(&worker, [source], shuffle, seen);
    graph.set_burst(32);
    (graph, polls)
}

/// Sources that lead to a shuffle and through it to the exit.
pub(crate) fn fed(
    worker: &Worker,
    sources: impl IntoIterator<Item = Flows>,
    shuffle: &Shuffle,
    seen: &Seen,
) -> Graph {
    let mut graph = GraphBuilder::new("test");
    let shuffle = graph.add("shuffle", shuffle.node(worker).unwrap()).unwrap();
    let out = graph.add("out", Box::new(Witness { worker: worker.index(), seen: seen.clone() })).unwrap();
    graph.connect(shuffle, Edge::OUT, out, 0).unwrap();
    for (number, source) in sources.into_iter().enumerate() {
        let source = graph.add(format!("source {number}"), Box::new(source)).unwrap();
        graph.connect(source, Edge::OUT, shuffle, 0).unwrap();
    }
    graph.build(worker.pool().clone()).unwrap()
}

#[test]
fn a_worker_that_waits_for_room_polls_no_port_and_takes_handoffs() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(ShuffleConfig { ring: 8, ..SMALL });
    let (mut a, polls_a) = by_hand(&group, 0, &pool, &shuffle, &seen);
    let (mut b, polls_b) = by_hand(&group, 1, &pool, &shuffle, &seen);
    // Each fills the other's ring and then stops: no worker takes packets.
    for (graph, polls) in [(&mut a, &polls_a), (&mut b, &polls_b)] {
        (0..100).for_each(|_| {
            graph.turn(0);
        });
        assert_eq!(graph.totals().handoff_out.packets, 8, "the ring is full");
        assert!(graph.totals().held > 0, "and packets wait for it");
        assert!(polls.load(Ordering::Relaxed) <= 2, "polled {polls:?} times after that");
        assert!(graph.totals().is_conserved() && graph.unbalanced().is_empty());
    }
    assert_eq!(b.totals().handoff_in.packets, 8, "full itself, it took what came");
    // Both rings were full at the same time; each turn makes room for the other.
    for _ in 0..10_000 {
        a.turn(0);
        b.turn(0);
    }
    assert_eq!((a.turn(0), b.turn(0)), (Turn::Done, Turn::Done));
    check_order(&seen, 128, 2_000);
    drop((a, b));
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn packets_for_a_worker_that_is_gone_have_a_reason() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(SMALL);
    let (mut a, _) = by_hand(&group, 0, &pool, &shuffle, &seen);
    drop(by_hand(&group, 1, &pool, &shuffle, &seen));
    for _ in 0..1_000 {
        a.turn(0);
    }
    assert_eq!(a.turn(0), Turn::Done);
    let totals = a.totals();
    assert!(totals.drops.of(DropReason::WorkerGone).packets > 0);
    assert_eq!(
        totals.drops.total().packets + totals.sent.packets,
        1_000,
        "no packet is handed off without a receiver"
    );
}

#[test]
fn a_stopped_run_takes_everything_along() {
    let run = Run { packets: u64::MAX, ..RUN };
    let (report, seen) = run.go(|runtime| {
        while runtime.progress().sent.packets < 20_000 {
            std::thread::yield_now();
        }
        runtime.stop_handle().stop();
    });
    assert_eq!(report.totals.drops.total().packets, 0, "{:?}", report.totals.drops);
    assert_eq!(report.totals.sent, report.totals.received);
    check_order(&seen, 2 * usize::from(run.flows), report.totals.sent.packets);
}

#[test]
fn moves_that_cannot_be_say_why() {
    let (pool, group, seen) = (pool(), WorkerGroup::new(2), Seen::default());
    let shuffle = Shuffle::new(SMALL);
    let (mut a, _) = by_hand(&group, 0, &pool, &shuffle, &seen);
    let ask = |a: &mut Graph, argument: &str| {
        a.call("shuffle", "move", argument).map_err(|error| error.to_string())
    };
    for (argument, problem) in [
        ("0-4096 1", "bucket 4096 does not exist: there are 0 to 4095"),
        ("0-7 2", "worker 2 does not exist: there are 2, from 0"),
        ("5-2 1", "buckets 5-2 are none: expected the smaller number first, as `2-5 1`"),
        ("all 1", "expected buckets and a worker, as `0-2047 1`, found `all 1`"),
    ] {
        assert_eq!(ask(&mut a, argument).unwrap_err(), format!("handler `move`: {problem}"));
    }
    assert_eq!(ask(&mut a, "0 0").unwrap(), "0", "it is there already");
    assert!(ask(&mut a, "1 0").unwrap_err().contains("worker 1 is still starting: ask again"));
    let _b = by_hand(&group, 1, &pool, &shuffle, &seen);
    assert_eq!(ask(&mut a, "0-1 1, 3 0").unwrap(), "2");
    assert!(ask(&mut a, "4 1").unwrap_err().contains("moving already"));
    assert!(a.call("shuffle", "owners", "").unwrap().starts_with("0-1 1, 2-4 0, 5-5 1"));
    let again = shuffle.node(&Worker::new(0, 1, pool).in_group(group)).err().unwrap().to_string();
    assert!(again.contains("has its end of this shuffle already"), "{again}");
}

/// The answer of worker 0 to a move, and the owners after it.
///
/// `function` stands behind the shuffle of worker 1, and nothing behind that of worker 0.
fn moving_past(function: impl FnOnce(&Worker) -> Box<dyn Node>) -> (Result<String, String>, String) {
    let (pool, group, shuffle) = (pool(), WorkerGroup::new(2), Shuffle::new(SMALL));
    let mut function = Some(function);
    let mut graphs = [0, 1].map(|index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let mut graph = GraphBuilder::new("test");
        let source = graph.add("source", Box::new(Flows::new(index, 1, 0))).unwrap();
        let mut last = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
        graph.connect(source, Edge::OUT, last, 0).unwrap();
        if index == 1
            && let Some(function) = function.take()
        {
            let node = graph.add("knows", function(&worker)).unwrap();
            graph.connect(last, Edge::OUT, node, 0).unwrap();
            last = node;
        }
        let out = graph.add("out", Box::new(Witness { worker: index, seen: Seen::default() })).unwrap();
        graph.connect(last, Edge::OUT, out, 0).unwrap();
        graph.build(pool.clone()).unwrap()
    });
    let answer = graphs[0].call("shuffle", "move", "1 0").map_err(|error| error.to_string());
    let owners = graphs[0].call("shuffle", "owners", "").unwrap();
    (answer, owners)
}

/// A function that passes everything, and that makes these declarations.
fn knowing(declare: impl FnOnce(&Worker)) -> impl FnOnce(&Worker) -> Box<dyn Node> {
    |worker| {
        compose(worker, |input| {
            declare(worker);
            input.parse::<Link>().or(Verdict::PASS).done()
        })
        .unwrap()
    }
}

/// A handwritten node whose state cannot be divided.
struct Exports;

impl Node for Exports {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Exports {
    fn export(&self) -> Vec<netbricks_core::StateImage> {
        vec![("past".into(), vec![1])]
    }
}

#[test]
fn a_move_that_would_leave_state_behind_is_refused_by_name() {
    let table = FlowTableConfig::new(8);
    let refused = |state: &str, (answer, owners): (Result<String, String>, String)| {
        let problem = answer.unwrap_err();
        let expected = format!("state `{state}` of function `knows` on worker 1 cannot move with its flows");
        assert!(problem.contains(&expected), "{problem}");
        assert!(owners.starts_with("0-0 0, 1-1 1,"), "nothing has moved: {}", &owners[..40]);
    };
    refused(
        "seen",
        moving_past(knowing(|worker| drop(worker.state::<CounterArray, _>("seen", NoExternalAccess, 8)))),
    );
    refused("past", moving_past(|_| Box::new(Exports)));
    // Packets are sorted by flow: an address does not tell the bucket.
    let hosts = |worker: &Worker| drop(worker.flow_table::<std::net::IpAddr, u64>("hosts", table));
    refused("hosts", moving_past(knowing(hosts)));
    let pairs = |worker: &Worker| {
        drop(worker.state::<FlowTable<[u64; 2], u64>, _>("pairs", NoExternalAccess, table));
    };
    refused("pairs", moving_past(knowing(pairs)));

    // State that moves, state that is shared, and state that belongs to no flow.
    let moves = |worker: &Worker| {
        worker.flow_table::<FlowKey, u64>("flows", table);
        worker.state::<FlowTable<StoredFlow, u64>, _>("own", NoExternalAccess, table);
        worker.state::<CounterArray, _>("all", Strict, 8);
        worker.state::<CounterArray, _>("most", BoundedInconsistency { updates: 1 }, 8);
        worker.windows::<Tcp, _>("windows", WindowConfig::new(64, 64, 1_000_000_000), |_| ());
        worker.counter("total");
    };
    let (answer, owners) = moving_past(knowing(moves));
    assert_eq!((answer.as_deref(), owners.starts_with("0-2 0, ")), (Ok("1"), true), "{owners:.40}");
}

/// Packets 150 µs apart, in their own time, which advances in whole milliseconds as with ports.
struct Replay {
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Node for Replay {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let millisecond = |next: usize| next as u64 * 3 / 2 * 100_000 / 1_000_000 * 1_000_000 + 1_000_000_000;
        if self.next == self.frames.len() {
            return Poll::Done;
        }
        let time = millisecond(self.next);
        if !cx.receiving().approach(time) {
            return Poll::Busy;
        }
        cx.receiving().advance(time);
        while self.next < self.frames.len() && millisecond(self.next) == time && batch.len() < cx.burst() {
            let mut packet = cx.pool().packet(&self.frames[self.next]).unwrap();
            packet.set_received_at(self.next as u64 * 3 / 2 * 100_000 + 1_000_000_000);
            self.next += 1;
            batch.push(packet).unwrap();
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[test]
fn replayed_time_goes_on_where_packets_are_the_only_clock() {
    // Each packet's function sees the same time with one worker and with several.
    let run = |workers: usize, burst: usize| {
        let (pool, group, times) = (pool(), WorkerGroup::new(workers), Arc::new(Mutex::new(BTreeMap::new())));
        let shuffle = Shuffle::new(SMALL);
        let frames: Vec<Vec<u8>> = (0..600)
            .map(|i| {
                ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1_000 + i, 53).payload(&[0; 8]).build().unwrap()
            })
            .collect();
        let mut graphs: Vec<Graph> = (0..workers)
            .map(|index| {
                let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
                let mut graph = GraphBuilder::new("test");
                let node = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
                if index == 0 {
                    let replay = Replay { frames: frames.clone(), next: 0 };
                    let replay = graph.add("replay", Box::new(replay)).unwrap();
                    graph.connect(replay, Edge::OUT, node, 0).unwrap();
                }
                let times = times.clone();
                let look = compose(&worker, |input| {
                    input
                        .parse::<Link>()
                        .parse::<Ip>()
                        .inspect(move |packet| {
                            times.lock().unwrap().insert(packet.flow_key(), packet.now());
                        })
                        .done()
                });
                let look = graph.add("look", look.unwrap()).unwrap();
                let out =
                    graph.add("out", Box::new(Witness { worker: index, seen: Seen::default() })).unwrap();
                graph.connect(node, Edge::OUT, look, 0).unwrap();
                graph.connect(look, Edge::OUT, out, 0).unwrap();
                let mut graph = graph.build(pool.clone()).unwrap();
                graph.set_burst(burst);
                graph.follow_arrivals(true);
                graph
            })
            .collect();
        let mut done = vec![false; workers];
        for turn in 0..1_000_000 {
            let at = turn % workers;
            done[at] = graphs[at].turn(0) == Turn::Done;
            if done.iter().all(|done| *done) {
                break;
            }
        }
        assert!(done.iter().all(|done| *done));
        drop(graphs);
        assert_eq!(pool.available(), pool.capacity());
        Arc::try_unwrap(times).unwrap().into_inner().unwrap()
    };
    let alone = run(1, 32);
    assert_eq!(alone.len(), 600);
    for (workers, burst) in [(1, 1), (2, 1), (2, 32), (2, 256), (3, 32)] {
        assert!(run(workers, burst) == alone, "{workers} workers, bursts of {burst}");
    }
}

#[test]
fn packets_that_wait_for_room_are_not_overtaken() {
    let (pool, group) = (pool(), WorkerGroup::new(2));
    let shuffle = Shuffle::new(ShuffleConfig { ring: 8, ..SMALL });
    let mut nodes = [0, 1].map(|index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        shuffle.node_by(&worker, |input| input, |packet| u64::from(packet.frame()[0])).unwrap()
    });
    let mut cx = DetachedContext::new(pool.clone());
    let (mut batch, mut came) = (Batch::new(), Vec::new());
    // A key that the second worker owns.
    let key = (0..=255)
        .find(|key| {
            assert!(batch.push(pool.packet(&[*key, 0]).unwrap()).is_ok());
            nodes[0].process(0, &mut batch, &mut cx);
            let stayed = !batch.is_empty();
            batch.clear();
            !stayed
        })
        .unwrap();
    let give = |node: &mut Box<dyn Node>, numbers: std::ops::Range<u8>, cx: &mut Context| {
        let mut batch = Batch::new();
        numbers.for_each(|number| assert!(batch.push(pool.packet(&[key, number]).unwrap()).is_ok()));
        node.process(0, &mut batch, cx);
        assert!(batch.is_empty());
    };
    give(&mut nodes[0], 1..21, &mut cx);
    assert_eq!(nodes[0].as_queue().unwrap().held(), 13, "with the first, eight are in the ring");
    for round in 0..20 {
        nodes[1].poll(&mut batch, &mut cx);
        came.extend(batch.drain().map(|packet| packet.data()[1]));
        // Between the two, there is room in the ring, and some packets still wait for it.
        if round == 0 {
            give(&mut nodes[0], 21..25, &mut cx);
        }
        let mut nothing = Batch::new();
        nodes[0].poll(&mut nothing, &mut cx);
        assert!(nothing.is_empty());
    }
    assert_eq!(came, (0..25).collect::<Vec<_>>());
}
