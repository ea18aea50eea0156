//! Tests of functions behind a shuffle on two workers; their graphs take turns one after the other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, Context, Declared, Edge, Graph, GraphBuilder, Node, Operator, Poll, Registry, Shape, Verdict,
    Worker, WorkerGroup, compose,
};
use netbricks_testkit::build::ethernet;

use super::*;
use crate::maglev::{Backend, MaglevConfig, maglev};

/// Brings the frames that a test puts into it.
#[derive(Clone, Default)]
struct Line(Arc<Mutex<Vec<Vec<u8>>>>);

impl Node for Line {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for frame in self.0.lock().unwrap().drain(..) {
            batch.push(cx.pool().packet(&frame).unwrap()).unwrap();
        }
        Poll::Idle
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// The frames that came out, each with its worker.
type Sent = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;

/// Keeps the frames that it is to send, with their worker.
struct Sink(usize, Sent);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.1.lock().unwrap().extend(batch.drain().map(|packet| (self.0, packet.data().to_vec())));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

pub(crate) struct Two {
    pub(crate) graphs: Vec<Graph>,
    line: Line,
    sent: Sent,
}

impl Two {
    pub(crate) fn new(blueprint: &Blueprint) -> Self {
        let settings = ShuffleSettings::default();
        Self::behind(blueprint, |worker| shuffle(&settings, worker).unwrap())
    }

    /// As [`new`](Self::new), behind a shuffle by the part of the function's state that packets need.
    pub(crate) fn parted(blueprint: &Blueprint) -> Self {
        let pool = Pool::builder().frames(16).build().unwrap();
        let mut node = blueprint.apart().build(&Worker::new(0, 1, pool)).unwrap();
        let part = node.state(|state| state.packet_part()).flatten().unwrap();
        let shuffle = netbricks_core::Shuffle::new(netbricks_core::ShuffleConfig::default());
        Self::behind(blueprint, |worker| shuffle.node_parted(worker, &part).unwrap())
    }

    fn behind(blueprint: &Blueprint, shuffle: impl Fn(&Worker) -> Box<dyn Node>) -> Self {
        let (pool, group) = (Pool::builder().frames(512).build().unwrap(), WorkerGroup::new(2));
        let (line, sent) = (Line::default(), Sent::default());
        let graphs = (0..2).map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let mut graph = GraphBuilder::new("test");
            // Everything comes in on the first worker.
            let brought = if index == 0 { line.clone() } else { Line::default() };
            let nodes = [
                graph.add("line", Box::new(brought)),
                graph.add("shuffle", shuffle(&worker)),
                graph.add("function", blueprint.build(&worker).unwrap()),
                graph.add("sink", Box::new(Sink(index, sent.clone()))),
            ]
            .map(Result::unwrap);
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0).unwrap();
            }
            graph.build(pool.clone()).unwrap()
        });
        Self { graphs: graphs.collect(), line, sent }
    }

    /// The frames that came out after `turns` turns of each worker, each with its worker.
    pub(crate) fn exchange(&mut self, frames: Vec<Vec<u8>>, turns: usize) -> Vec<(usize, Vec<u8>)> {
        self.line.0.lock().unwrap().extend(frames);
        for _ in 0..turns {
            for graph in &mut self.graphs {
                graph.turn(0);
            }
        }
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    /// The worker that a frame came out on, and the frame as it came out.
    fn send(&mut self, frame: Vec<u8>) -> (usize, Vec<u8>) {
        let mut sent = self.exchange(vec![frame], 4);
        assert_eq!(sent.len(), 1, "one in, one out");
        sent.remove(0)
    }
}

const VIP: &str = "192.0.2.1";
const VIP6: &str = "2001:db8::1";

fn balancer() -> Two {
    let backend = |number: u8| Backend {
        name: format!("web-{number}"),
        mac: netbricks_core::packet::MacAddress::new([2, 0, 0, 0, 1, number]),
        weight: 1,
    };
    let config =
        MaglevConfig { backends: (0..4).map(backend).collect(), slots: 251, ..MaglevConfig::default() };
    Two::new(&Blueprint::new(move |worker| compose(worker, |input| maglev(input, &config, worker))))
}

fn client(flow: u16) -> String {
    format!("10.0.{}.{}", flow >> 8, flow & 0xff)
}

/// A fragment of a packet.
fn fragment(flow: u16, offset: u16, more: bool) -> Vec<u8> {
    let whole = ethernet().ipv4(client(flow).as_str(), VIP).udp(1_000 + flow, 53).payload(&[0; 64]);
    let mut frame = whole.build().unwrap();
    frame[20..22].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
    frame[24..26].fill(0);
    let sum = netbricks_core::packet::checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn errors_and_fragments_stay_with_their_flow_on_two_workers() {
    let mut two = balancer();
    let flows = 0..64u16;
    let tcp = |flow: u16| ethernet().ipv4(client(flow).as_str(), VIP).tcp(1_000 + flow, 80).build().unwrap();
    let udp6 = |flow: u16| ethernet().ipv6("2001:db8:1::9", VIP6).udp(1_000 + flow, 443).build().unwrap();
    // Worker and backend of the first packet of each flow, and of each packet in fragments.
    let place = |(worker, frame): (usize, Vec<u8>)| (worker, frame[5]);
    let mut begin = |make: &dyn Fn(u16) -> Vec<u8>| -> Vec<(usize, u8)> {
        flows.clone().map(|flow| place(two.send(make(flow)))).collect()
    };
    let (of_tcp, of_udp6) = (begin(&tcp), begin(&udp6));
    let of_pieces = begin(&|flow| fragment(flow, 0, true));
    for of in [&of_tcp, &of_udp6, &of_pieces] {
        assert_eq!(of.iter().map(|(worker, _)| *worker).collect::<BTreeSet<_>>().len(), 2, "both work");
    }
    // From now on, only a worker that knows a flow sends it to the same backend as before.
    for number in 0..4 {
        two.graphs[0].call("function", "drain", &format!("web-{number}")).unwrap();
    }
    two.graphs[0].call("function", "add", "web-9 02:00:00:00:01:09").unwrap();
    for flow in flows {
        let at = usize::from(flow);
        let answer = ethernet().ipv4(VIP, client(flow).as_str()).tcp(80, 1_000 + flow).build().unwrap();
        let from_a_router = ethernet().ipv4("198.51.100.7", VIP);
        let error = from_a_router.icmp_fragmentation_needed(1_400, &answer[14..42]).build().unwrap();
        assert_eq!(place(two.send(error)), of_tcp[at], "error about flow {flow}");
        let answer = ethernet().ipv6(VIP6, "2001:db8:1::9").udp(443, 1_000 + flow).build().unwrap();
        let error =
            ethernet().ipv6("2001:db8:9::9", VIP6).icmpv6_unreachable(1, &answer[14..]).build().unwrap();
        assert_eq!(place(two.send(error)), of_udp6[at], "ICMPv6 error about flow {flow}");
        for (offset, more) in [(9, true), (18, false)] {
            assert_eq!(place(two.send(fragment(flow, offset, more))), of_pieces[at], "pieces of {flow}");
        }
    }
}

/// A node of the library's function of this name.
pub(crate) fn by_name(name: &str, settings: &str) -> Blueprint {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let definition = registry.get(name).unwrap();
    definition.configure(toml::de::DeTable::parse(settings).unwrap(), Path::new("")).unwrap()
}

/// State by flow that a function does not hand over.
struct Heard(u64);

impl Declared for Heard {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, _: &[u8], _: u64) -> Result<(), String> {
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0, u64::MAX)
    }
}

#[test]
fn functions_that_would_lose_state_keep_their_buckets() {
    let mut two = Two::new(&Blueprint::new(|worker| {
        compose(worker, |input| {
            let heard = worker.declare("heard", Heard(0));
            input
                .filter(Verdict::PASS, move |_| {
                    heard.borrow_mut().0 += 1;
                    true
                })
                .done()
        })
    }));
    let problem = two.graphs[0].call("shuffle", "move", "0-4095 1").unwrap_err().to_string();
    let expected = "state `heard` of function `function` on worker 0 cannot move with its flows";
    assert!(problem.contains(expected), "{problem}");
    assert_eq!(two.graphs[0].call("shuffle", "moving", "").unwrap(), "0");
    let blocks = ("http-inspect", "block = [\"ads.example\"]\nflows = 64");
    let replaces = ("rewrite-stream", "find = \"a\"\nreplace = \"bb\"");
    let balances = ("maglev", "backends = [\"web-1 02:00:00:00:01:01\"]");
    let others = ["http-inspect", "monitor", "ttl", "macswap", "wire"].map(|name| (name, ""));
    for (name, settings) in [blocks, replaces, balances, ("busy", "cycles = 1")].into_iter().chain(others) {
        let mut two = Two::new(&by_name(name, settings));
        assert_eq!(two.graphs[0].call("shuffle", "move", "0-4095 1").as_deref(), Ok("1"), "{name}");
    }
}
