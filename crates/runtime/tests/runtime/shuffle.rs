//! Packets go to the workers that own their flows: in order, none lost, also while ownership moves and rings are full.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Context, Drop, Edge, Function, GraphBuilder, GraphError, Input, Node, Operator, Output, Poll, Role, Shuffle,
    ShuffleConfig, ShuffleKey, Team, Turn, WhenFull, Worker, compose,
};
use netbricks_runtime::{Clock, Config, Factory, FinalReport, IdlePolicy, Placement, Runtime};

/// Where a packet's number within its flow lies: behind Ethernet, IPv4 and UDP.
const NUMBER: std::ops::Range<usize> = 42..50;

/// Packets of UDP flows, each numbered within its flow. Odd workers send the other direction of the same connections.
struct Flows {
    templates: Vec<Vec<u8>>,
    numbers: Vec<u64>,
    left: u64,
    seed: u64,
    polls: Arc<AtomicU64>,
}

impl Flows {
    fn new(worker: usize, flows: u16, packets: u64) -> Self {
        let templates: Vec<Vec<u8>> = (0..flows)
            .map(|flow| {
                let (a, b) = ("10.0.0.1", "10.9.8.7");
                let frame = match worker % 2 {
                    0 => ethernet().ipv4(a, b).udp(1_000 + flow, 53).payload(&[0; 8]).build(),
                    _ => ethernet().ipv4(b, a).udp(53, 1_000 + flow).payload(&[0; 8]).build(),
                };
                frame.unwrap()
            })
            .collect();
        let numbers = vec![0; templates.len()];
        Self { templates, numbers, left: packets, seed: worker as u64 + 1, polls: Arc::default() }
    }
}

impl Node for Flows {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn inputs(&self) -> usize {
        0
    }
    fn is_schedulable(&self) -> bool {
        true
    }
    fn role(&self) -> Role {
        Role::Receive
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.polls.fetch_add(1, Ordering::Relaxed);
        while self.left > 0 && batch.len() < cx.burst() {
            let flow = (self.seed >> 33) as usize % self.templates.len();
            let Some(mut packet) = cx.pool().packet(&self.templates[flow]) else { return Poll::Busy };
            packet.data_mut()[NUMBER].copy_from_slice(&self.numbers[flow].to_be_bytes());
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.numbers[flow] += 1;
            self.left -= 1;
            batch.push(packet).unwrap();
        }
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
}

/// What came out: by flow, each packet's number and the worker that sent it, in the order of sending.
type Seen = Arc<Mutex<BTreeMap<FlowKey, Vec<(u64, usize)>>>>;

/// Sends everything, and tells.
struct Witness {
    worker: usize,
    seen: Seen,
}

impl Node for Witness {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.sent(batch.len() as u64, batch.bytes());
        let mut seen = self.seen.lock().unwrap();
        for packet in batch.drain() {
            let number = u64::from_be_bytes(packet.data()[NUMBER].try_into().unwrap());
            let flow = FlowKey::from_frame(packet.data()).unwrap();
            seen.entry(flow).or_default().push((number, self.worker));
        }
    }
    fn role(&self) -> Role {
        Role::Transmit
    }
    fn outputs(&self) -> Vec<Output> {
        Vec::new()
    }
}

/// Counts each flow's packets in declared state, and drops the packet whose number is not the count: one that came out
/// of turn, or whose flow's state did not come with it.
fn in_turn(input: Input, worker: &Worker) -> impl Function + use<> {
    let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(4_096));
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
        .filter(Drop::Denied, |packet| *netbricks_core::Metadata::get::<bool>(packet))
        .done()
}

struct Run {
    workers: usize,
    burst: usize,
    config: ShuffleConfig,
    flows: u16,
    packets: u64,
}

const RUN: Run =
    Run { workers: 2, burst: 32, config: SMALL, flows: 61, packets: 60_000 };
/// Rings so small that they are full most of the time.
const SMALL: ShuffleConfig =
    ShuffleConfig { key: ShuffleKey::SymmetricFlow, full: WhenFull::Wait, ring: 32, seed: 7 };

fn pool() -> Pool {
    Pool::builder().frames(16_384).build().unwrap()
}

impl Run {
    /// Every worker brings packets in, shuffles, counts and sends. `while_running` gets the runtime meanwhile.
    fn go(&self, while_running: impl FnOnce(&Runtime)) -> (FinalReport, Seen) {
        let (shuffle, seen) = (Shuffle::new(self.config), Seen::default());
        let mut config = Config::new(pool())
            .workers(self.workers)
            .placement(Placement::Unpinned)
            .clock(Clock::Driven)
            .idle(IdlePolicy::Balanced);
        config.burst = self.burst;
        let runtime = Runtime::start(config, |worker| {
            let (shuffle, seen) = (shuffle.clone(), seen.clone());
            let source = Flows::new(worker, self.flows, self.packets);
            Factory::new(move |context| {
                let mut graph = GraphBuilder::new("test");
                let source = graph.add("source", Box::new(source))?;
                let failed = |error| GraphError::Node { name: "node".into(), error };
                let shuffle = graph.add("shuffle", shuffle.node(context.worker()).map_err(failed)?)?;
                let count = compose(context.worker(), |input| in_turn(input, context.worker()));
                let count = graph.add("count", count.map_err(failed)?)?;
                let out = graph.add("out", Box::new(Witness { worker: context.index(), seen }))?;
                graph.connect(source, Edge::OUT, shuffle, 0)?;
                graph.connect(shuffle, Edge::OUT, count, 0)?;
                graph.connect(count, Edge::OUT, out, 0)?;
                Ok::<_, GraphError>(graph.build(context.pool().clone())?)
            })
        })
        .unwrap();
        while_running(&runtime);
        let report = runtime.wait();
        assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
        (report, seen)
    }
}

#[test]
fn flows_come_to_one_worker_in_order_and_none_is_lost() {
    for workers in [1, 2, 3] {
        let run = Run { workers, ..RUN };
        let (report, seen) = run.go(|_| ());
        assert_eq!(report.totals.sent.packets, run.packets * workers as u64);
        assert_eq!(report.totals.drops.total().packets, 0, "{:?}", report.totals.drops);
        let seen = seen.lock().unwrap();
        let sources = workers.min(2);
        assert_eq!(seen.len(), usize::from(run.flows) * sources);
        let mut used = std::collections::BTreeSet::new();
        for (flow, packets) in seen.iter() {
            let owner = packets[0].1;
            used.insert(owner);
            assert!(packets.iter().all(|(_, worker)| *worker == owner), "{flow} is on several workers");
            if sources == 2 {
                assert_eq!(seen[&flow.reversed()][0].1, owner, "the directions of {flow} do not meet");
            }
            // With three workers two of them send the same flows: each packet's number comes twice.
            if workers < 3 {
                let in_order = packets.iter().enumerate().all(|(i, (number, _))| *number == i as u64);
                assert!(in_order, "{flow} is out of order");
            }
        }
        assert_eq!(used.len(), workers, "every worker gets its share");
    }
}
