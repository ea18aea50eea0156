//! The node in a graph: edges, and another configuration in its place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{Context, Edge, Graph, GraphBuilder, Node, Poll, Role, Shape, Turn, Worker};
use netbricks_testkit::build::ethernet;

use super::{ClickSettings, devices, node};

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;
/// Batches that arrived: the last byte of each packet.
type Batches = Rc<RefCell<Vec<Vec<u8>>>>;

/// Brings frames in, and then ends or waits for more.
struct Source {
    frames: Frames,
    ends: bool,
}

impl Node for Source {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < 32
            && let Some(frame) = self.frames.borrow_mut().pop_front()
        {
            assert!(batch.push(cx.pool().packet(&frame).expect("a frame is free")).is_ok());
        }
        match (batch.is_empty(), self.ends) {
            (false, _) => Poll::Busy,
            (true, true) => Poll::Done,
            (true, false) => Poll::Idle,
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

struct Sink(Batches);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let (packets, bytes) = (batch.len() as u64, batch.bytes());
        let last = |packet: &netbricks_core::buffer::Packet| packet.data()[packet.len() - 1];
        self.0.borrow_mut().push(batch.iter().map(last).collect());
        cx.transmitting().sent(packets, bytes);
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape { role: Role::Transmit, ..Shape::transmit() }
    }
}

/// A graph of a configuration between a source and two sinks.
struct Rig {
    to: Frames,
    from: [Batches; 2],
    pool: Pool,
    now: u64,
    ends: bool,
    exact: Option<bool>,
}

impl Rig {
    fn new() -> Self {
        let pool = Pool::builder().frames(1_024).build().expect("memory");
        Self { to: Frames::default(), from: Default::default(), pool, now: 1_000, ends: false, exact: None }
    }
    fn builder(&self, text: &str) -> GraphBuilder {
        let worker = Worker::new(0, 1, self.pool.clone());
        let settings = ClickSettings { exact: self.exact, ..ClickSettings::of(text) };
        self.builder_of(node(&settings, &worker).expect("a configuration"))
    }
    fn builder_of(&self, click: Box<dyn Node>) -> GraphBuilder {
        let mut builder = GraphBuilder::new("rig");
        let source = Source { frames: Rc::clone(&self.to), ends: self.ends };
        let source = builder.add("in", Box::new(source)).expect("a name");
        let click = builder.add("click", click).expect("a name");
        builder.connect(source, Edge::OUT, click, 0).expect("an input");
        for (sink, edge) in self.from.iter().zip([Edge::OUT, Edge(2)]) {
            let name = format!("out{}", edge.0);
            let sink = builder.add(name, Box::new(Sink(Rc::clone(sink)))).expect("a name");
            // A configuration of one device has one way out.
            let _ = builder.connect(click, edge, sink, 0);
        }
        builder
    }
    fn run(&mut self, graph: &mut Graph) {
        for _ in 0..200 {
            self.now += 1_000;
            graph.turn(self.now);
        }
    }
    fn bring(&self, numbers: impl Iterator<Item = u8>) {
        self.to.borrow_mut().extend(numbers.map(|number| vec![number; 60]));
    }
    fn left(&self) -> [Vec<Vec<u8>>; 2] {
        self.from.each_ref().map(|batches| batches.borrow_mut().drain(..).collect())
    }
}

#[test]
fn packets_leave_by_each_edge_in_batches() {
    let mut rig = Rig::new();
    let text = "FromDevice(a) -> c :: Classifier(0/00%01, -); c[0] -> ToDevice(a); c[1] -> ToDevice(b)";
    let mut graph = rig.builder(text).build(rig.pool.clone()).expect("a graph");
    rig.bring(0..64);
    rig.run(&mut graph);
    let [even, odd] = rig.left();
    let each = |turn: u8, odd: u8| (0..16).map(|at| turn * 32 + 2 * at + odd).collect::<Vec<u8>>();
    assert_eq!(even, [each(0, 0), each(1, 0)]);
    assert_eq!(odd, [each(0, 1), each(1, 1)]);
    assert_eq!(graph.drain(rig.now), 0);
    assert!(graph.totals().is_conserved(), "{:?}", graph.totals());
}

#[test]
fn another_configuration_goes_on_with_state_and_packets() {
    let mut rig = Rig::new();
    let first =
        "FromDevice(a) -> f :: FlowMonitor(100) -> Tee [0] -> q :: Queue(100) -> Idle; Idle -> ToDevice(a)";
    let mut graph = rig.builder(first).build(rig.pool.clone()).expect("a graph");
    rig.bring(0..50);
    rig.run(&mut graph);
    assert_eq!(graph.call("click", "q.length", "").expect("a handler"), "50");
    // The new configuration takes what has its name and class, and ends the rest.
    let second = "FromDevice(a) -> f :: FlowMonitor(100) -> q :: Queue(40) -> Unqueue -> ToDevice(a)";
    let builder = rig.builder(second);
    let (mut next, _) = Graph::take_over(builder, rig.pool.clone(), &mut graph, rig.now).expect("a graph");
    let gone = graph.totals();
    assert_eq!((gone.held, gone.handoff_out.packets, gone.drops.total().packets), (0, 50, 0));
    assert!(gone.is_conserved(), "{gone:?}");
    assert_eq!((next.totals().held, next.totals().handoff_in.packets), (50, 50));
    rig.run(&mut next);
    rig.bring(50..60);
    rig.run(&mut next);
    let [left, _] = rig.left();
    let left: Vec<u8> = left.into_iter().flatten().collect();
    assert_eq!(left, (0..40).chain(50..60).collect::<Vec<u8>>());
    assert_eq!(next.call("click", "f.strangers", "").expect("a handler"), "60");
    assert_eq!(next.drain(rig.now), 0);
    let totals = next.totals();
    assert_eq!((totals.sent.packets, totals.drops.total().packets), (50, 10));
    assert!(totals.is_conserved(), "{totals:?}");
    assert_eq!(next.unbalanced(), Vec::<String>::new());
    drop((graph, next));
    assert_eq!(rig.pool.available(), rig.pool.capacity(), "frames are lost");
}

#[test]
fn packets_of_a_configuration_end_where_the_next_cannot_start() {
    let mut rig = Rig::new();
    let first = "FromDevice(a) -> q :: Queue(100) -> Idle; Idle -> ToDevice(a)";
    let mut graph = rig.builder(first).build(rig.pool.clone()).expect("a graph");
    rig.bring(0..5);
    rig.run(&mut graph);
    let second = "FromDevice(a) -> q :: Queue(100) -> Unqueue -> ToDevice(a); Error(no)";
    let builder = rig.builder(second);
    let (mut next, _) = Graph::take_over(builder, rig.pool.clone(), &mut graph, rig.now).expect("a graph");
    rig.bring(5..7);
    rig.run(&mut next);
    let failures = next.take_failures();
    assert!(matches!(&failures[..], [(node, _)] if node == "click"), "{failures:?}");
    assert_eq!(next.drain(rig.now), 0);
    let totals = next.totals();
    assert_eq!((totals.sent.packets, totals.drops.total().packets), (0, 7));
    assert!(totals.is_conserved(), "{totals:?}");
    drop((graph, next));
    assert_eq!(rig.pool.available(), rig.pool.capacity(), "frames are lost");
}

#[test]
fn elements_that_wait_for_time_let_the_graph_go_to_its_next_deadline() {
    let timed = [
        "Unqueue",
        "Shaper(1000) -> Unqueue",
        "Shaper(1) -> Unqueue",
        "BandwidthShaper(10000) -> Unqueue",
        "DelayShaper(0.01) -> Unqueue",
        "DelayUnqueue(0.01)",
        "RatedUnqueue(1000)",
        "BandwidthRatedUnqueue(10000)",
        "LinkUnqueue(0.01, 10kBps)",
        "TimedUnqueue(0.01)",
        "Burster(0.01)",
        "Shaper(1000) -> Unqueue -> Queue(500) -> DelayShaper(0.01) -> Unqueue -> Queue(500) -> Shaper(10) -> Unqueue",
    ];
    for (elements, exact) in timed.iter().flat_map(|elements| [(elements, true), (elements, false)]) {
        let mut rig = Rig { ends: true, exact: Some(exact), ..Rig::new() };
        let text = format!("FromDevice(a) -> Queue(500) -> {elements} -> ToDevice(b)");
        let mut graph = rig.builder(&text).build(rig.pool.clone()).expect("a graph");
        rig.bring(0..10);
        // Far fewer turns than a step of a microsecond each would take.
        let ended = (0..100_000).any(|_| match graph.turn(rig.now) {
            Turn::Idle(Some(time)) => {
                rig.now = rig.now.max(time);
                false
            }
            turn => turn == Turn::Done,
        });
        assert!(ended, "{elements}, exact {exact}: the graph never rests");
        let [left, _] = rig.left();
        let left: Vec<u8> = left.into_iter().flatten().collect();
        assert_eq!(left, (0..10).collect::<Vec<u8>>(), "{elements}, exact {exact}");
        assert!(graph.totals().is_conserved(), "{elements}: {:?}", graph.totals());
    }
}

#[test]
fn elements_hold_no_more_packets_than_the_node_declares() {
    let mut rig = Rig::new();
    let text = "FromDevice(a) -> q :: Queue(10) -> u :: RatedUnqueue(1) -> ToDevice(a)";
    let settings = ClickSettings { frames: Some(256), ..ClickSettings::of(text) };
    let click = node(&settings, &Worker::new(0, 1, rig.pool.clone())).expect("a configuration");
    assert_eq!(click.shape().holds, Some(256));
    let mut graph = rig.builder_of(click).build(rig.pool.clone()).expect("a graph");
    graph.call("click", "q.capacity", "100000").expect("a handler");
    rig.bring((0..1_000_u16).map(|number| number as u8));
    rig.run(&mut graph);
    let held: u64 = graph.call("click", "q.length", "").expect("a handler").parse().expect("a number");
    assert!((200..=256).contains(&held), "{held}");
    assert_eq!(graph.drain(rig.now), 0);
    assert!(graph.totals().is_conserved(), "{:?}", graph.totals());
    let few = ClickSettings { frames: Some(255), ..settings };
    assert!(node(&few, &Worker::new(0, 1, rig.pool.clone())).is_ok(), "settings are checked before");
    assert_eq!(netbricks_core::Settings::check(&few).expect_err("a batch does not fit").key, "frames");
}

#[test]
fn a_device_of_answers_comes_behind_those_that_are_sent_to() {
    let tun = "KernelTun(10.0.0.1/24, DEVNAME tun)";
    for (text, outputs) in [
        (format!("{tun} -> ToDevice(b)"), &["b", "tun"][..]),
        (format!("{tun} -> Counter -> Discard; FromDevice(a) -> ToDevice(b)"), &["b", "tun"]),
        (format!("{tun} -> q :: Queue -> ToDevice(b); FromDevice(a) -> ToDevice(tun)"), &["b", "tun"]),
        (format!("FromDevice(a) -> t :: {tun} -> ToDevice(b)"), &["tun", "b"]),
        ("KernelTap(10.0.0.1/24, DEVNAME tap) -> ToDevice(b)".into(), &["b"]),
        ("FromHost(host, 10.0.0.1/24) -> ToDevice(b)".into(), &["b"]),
    ] {
        let found = devices(&ClickSettings::of(&text)).expect("a configuration").outputs;
        let named = |name: &&str| found.iter().position(|one| one == name);
        assert_eq!(found.len(), outputs.len(), "{text}: {found:?}");
        assert!(outputs.iter().map(named).is_sorted(), "{text}: {found:?}");
    }
}

#[test]
fn a_device_of_answers_need_not_be_named() {
    let text = "KernelTun(10.0.0.1/24, DEVNAME tun) -> Strip(1) -> ToDevice(b)";
    let mut rig = Rig::new();
    let worker = Worker::new(0, 1, rig.pool.clone());
    let settings = |outputs: &[&str]| ClickSettings {
        outputs: outputs.iter().map(|name| (*name).to_owned()).collect(),
        ..ClickSettings::of(text)
    };
    for outputs in [&[][..], &["b"], &["b", "tun"]] {
        let node = node(&settings(outputs), &worker).expect("a configuration");
        let mut graph = rig.builder_of(node).build(rig.pool.clone()).expect("a graph");
        let packet =
            ethernet().ipv4("10.0.0.1", "10.0.0.9").udp(1, 2).payload(b"7").build().expect("a frame");
        let request = ethernet().arp_request("10.0.0.1", "10.0.0.9").build().expect("a frame");
        rig.to.borrow_mut().extend([packet, request]);
        rig.run(&mut graph);
        // The answer ends with the address of who asked.
        assert_eq!(rig.left(), [vec![vec![b'7']], vec![vec![1]]], "{outputs:?}");
    }
    let refused = node(&settings(&["tun"]), &worker).err().expect("`b` is missing");
    assert!(refused.to_string().contains("`outputs` leaves out `b`"), "{refused}");
}
