//! A middlebox of `examples/click` as a node of a graph, under a clock that its test moves.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use netbricks_click::ClickSettings;
use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Totals, Turn, Worker,
};
use netbricks_testkit::Frame;

/// Frames of one port.
pub(crate) type Frames = Vec<Vec<u8>>;
/// A port's frames that wait, or that were sent.
type Line = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// The batch sizes at which each test runs.
const BURSTS: [usize; 2] = [1, 32];
/// Turns at one time: a shaper asks for turns while it waits.
const MOST_TURNS: u32 = 256;
/// The time at which the clock begins (ns), as far from 1970 as real ones.
const START: u64 = 1_700_000_000_000_000_000;

/// The folder of the configurations.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/click")
}

/// A middlebox with the ports 0 and 1.
pub(crate) struct Middlebox {
    graph: Graph,
    waiting: [Line; 2],
    sent: [Line; 2],
    now: u64,
    pool: Pool,
}

/// Runs a test of a file at each batch size, with other values of some parameters.
pub(crate) fn with(file: &str, parameters: &[&str], test: impl Fn(&mut Middlebox)) {
    for burst in BURSTS {
        let mut middlebox = Middlebox::load(file, parameters, burst);
        test(&mut middlebox);
        middlebox.finish();
    }
}

/// Runs a test of a file at each batch size.
pub(crate) fn each(file: &str, test: impl Fn(&mut Middlebox)) {
    with(file, &[], test);
}

impl Middlebox {
    /// Makes the node of a file and gives it two ports.
    pub(crate) fn load(file: &str, parameters: &[&str], burst: usize) -> Self {
        let pool = Pool::builder().frames(2048).frame_size(2048).large(16, 69_632).build().expect("memory");
        let worker: &'static Worker = Box::leak(Box::new(Worker::new(0, 1, pool.clone())));
        let mut settings = ClickSettings::default();
        settings.config = Some(folder().join(file));
        settings.parameters = parameters.iter().map(|one| (*one).to_owned()).collect();
        settings.inputs = vec!["0".into(), "1".into()];
        settings.outputs = settings.inputs.clone();
        let blueprint = Blueprint::new(move |worker: &Worker| netbricks_click::node(&settings, worker));
        let (waiting, sent): ([Line; 2], [Line; 2]) = Default::default();
        let mut graph = GraphBuilder::new("test");
        let node =
            graph.add_function("box", &blueprint, worker).unwrap_or_else(|error| panic!("{file}: {error}"));
        let edges: Vec<Edge> = graph.outputs(node).iter().map(|output| output.edge).collect();
        for (port, edge) in edges.into_iter().enumerate() {
            let source =
                graph.add(format!("in{port}"), Box::new(Source(Rc::clone(&waiting[port])))).expect("in");
            graph.connect(source, Edge::OUT, node, port).expect("its input");
            let sink = graph.add(format!("out{port}"), Box::new(Sink(Rc::clone(&sent[port])))).expect("out");
            graph.connect(node, edge, sink, 0).expect("its output");
        }
        let mut graph = graph.build(pool.clone()).expect("a graph");
        graph.set_burst(burst);
        let mut middlebox = Self { graph, waiting, sent, now: START, pool };
        middlebox.settle();
        middlebox
    }

    /// Runs what is due now.
    fn settle(&mut self) {
        for _ in 0..MOST_TURNS {
            match self.graph.turn(self.now) {
                Turn::Moved(_) => (),
                Turn::Idle(Some(next)) if next <= self.now => (),
                Turn::Idle(_) | Turn::Done => break,
            }
        }
        self.totals();
    }

    /// The sums so far, in which each packet is accounted for.
    pub(crate) fn totals(&mut self) -> Totals {
        let totals = self.graph.totals();
        assert!(totals.is_conserved(), "packets are missing: {totals:?}");
        assert_eq!(self.graph.unbalanced(), Vec::<String>::new(), "nodes whose packets do not add up");
        assert!(self.graph.take_panics().is_empty(), "it panics");
        totals
    }

    fn take(&mut self) -> [Frames; 2] {
        [0, 1].map(|port: usize| self.sent[port].borrow_mut().drain(..).collect())
    }

    /// Frames come in at a port. What leaves at once, by port.
    pub(crate) fn send(&mut self, port: usize, frames: impl IntoIterator<Item = Vec<u8>>) -> [Frames; 2] {
        self.waiting[port].borrow_mut().extend(frames);
        while !self.waiting[port].borrow().is_empty() {
            self.settle();
        }
        self.settle();
        self.take()
    }

    /// The clock moves on, in small steps. What leaves meanwhile, by port.
    pub(crate) fn advance(&mut self, by: Duration) -> [Frames; 2] {
        let by = by.as_nanos() as u64;
        let (end, step) = (self.now + by, (by / 1000).max(1_000_000));
        while self.now < end {
            self.now = (self.now + step).min(end);
            self.settle();
        }
        self.take()
    }

    /// As `send`, beside neighbours that answer when the box asks for their addresses. ARP is left out.
    pub(crate) fn routed(&mut self, port: usize, frames: impl IntoIterator<Item = Vec<u8>>) -> [Frames; 2] {
        let mut all = self.send(port, frames);
        let mut kept: [Frames; 2] = Default::default();
        loop {
            let mut answers: [Frames; 2] = Default::default();
            for (port, frames) in all.into_iter().enumerate() {
                for frame in frames {
                    match arp_answer(&frame) {
                        Some(answer) => answers[port].push(answer),
                        None if frame.get(12..14) == Some(&[8, 6]) => (),
                        None => kept[port].push(frame),
                    }
                }
            }
            if answers.iter().all(Vec::is_empty) {
                return kept;
            }
            let [first, second] = answers;
            all = self.send(0, first);
            let more = self.send(1, second);
            all.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
        }
    }

    /// Reads a handler.
    pub(crate) fn read(&mut self, handler: &str) -> String {
        self.call(handler, "")
    }

    /// Calls a handler.
    pub(crate) fn call(&mut self, handler: &str, value: &str) -> String {
        self.graph.call("box", handler, value).unwrap_or_else(|error| panic!("`{handler}`: {error}"))
    }

    /// Packets that ended in the box so far: work done counts as well.
    pub(crate) fn ended(&mut self) -> u64 {
        self.totals().drops.total().packets
    }

    /// Ends the box: nothing is held any more, and all buffers are back.
    pub(crate) fn finish(mut self) {
        self.graph.drain(self.now);
        assert_eq!(self.totals().held, 0, "it still holds packets");
        drop(self.graph);
        assert_eq!(self.pool.available(), self.pool.capacity(), "packets leaked");
    }
}

/// Gives the frames that wait.
struct Source(Line);
impl Node for Source {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(frame) = self.0.borrow_mut().pop_front() else { return Poll::Idle };
            let packet = cx.pool().packet(&frame).expect("room for a packet");
            assert!(batch.push(packet).is_ok(), "room in the batch");
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Keeps the frames that were sent.
struct Sink(Line);
impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The Ethernet address of a neighbour.
pub(crate) fn neighbour(address: [u8; 4]) -> [u8; 6] {
    let [a, b, c, d] = address;
    [2, 0xAA, a, b, c, d]
}

/// A neighbour's answer to an ARP request.
fn arp_answer(frame: &[u8]) -> Option<Vec<u8>> {
    let [sender, target] = [28, 38].map(|at: usize| frame.get(at..at + 4).and_then(|it| it.try_into().ok()));
    let (sender, target): ([u8; 4], [u8; 4]) = (sender?, target?);
    if frame.get(12..14)? != [8, 6] || frame.get(20..22)? != [0, 1] || sender == target {
        return None;
    }
    let own = neighbour(target);
    let mut answer = frame[6..12].to_vec();
    answer.extend(own);
    answer.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    answer.extend(own);
    answer.extend(target);
    answer.extend(&frame[22..32]);
    Some(answer)
}

/// A frame as a builder makes it.
pub(crate) fn frame(builder: impl Frame) -> Vec<u8> {
    builder.bytes()
}

/// Fields of an IPv4 packet, and of TCP, UDP or ICMP in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) source: String,
    pub(crate) destination: String,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    pub(crate) length: u16,
    /// Ports, or the first two words of ICMP.
    pub(crate) ports: (u16, u16),
}

/// Two bytes of a frame.
pub(crate) fn u16_at(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// An address as text.
pub(crate) fn address(bytes: &[u8]) -> String {
    bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".")
}

/// Reads a frame of IPv4 whose checksums are right.
#[track_caller]
pub(crate) fn ip(frame: &[u8]) -> Ip {
    assert_eq!(frame[12..14], [8, 0], "not IPv4: {frame:02x?}");
    ip_at(frame, 14)
}

/// As `ip`, at an offset.
#[track_caller]
pub(crate) fn ip_at(frame: &[u8], at: usize) -> Ip {
    assert_eq!(netbricks_testkit::checksums::wrong(frame), Vec::<String>::new(), "{frame:02x?}");
    let packet = &frame[at..];
    let transport = usize::from(packet[0] & 15) * 4;
    Ip {
        source: address(&packet[12..16]),
        destination: address(&packet[16..20]),
        ttl: packet[8],
        protocol: packet[9],
        tos: packet[1],
        length: u16_at(packet, 2),
        ports: (u16_at(packet, transport), u16_at(packet, transport + 2)),
    }
}

/// Type and code of the ICMP message in a frame of IPv4.
#[track_caller]
pub(crate) fn icmp(frame: &[u8]) -> (u8, u8) {
    let header = ip(frame);
    assert_eq!(header.protocol, 1, "not ICMP: {header:?}");
    let [kind, code] = header.ports.0.to_be_bytes();
    (kind, code)
}

/// Takes the only frame.
#[track_caller]
pub(crate) fn only(frames: &Frames) -> &[u8] {
    assert_eq!(frames.len(), 1, "one frame is expected: {frames:02x?}");
    &frames[0]
}
