//! Graphs made of scripted nodes: a feed filled by hand, a sink that remembers, and nodes from closures.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, BuildError, Context, DropReason, Edge, Graph, GraphBuilder, Node, NodeId, Output, Poll, Shape,
    Turn, Worker,
};

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(1024).short(512, 512).build().unwrap()
}

pub(crate) fn worker(pool: &Pool) -> Worker {
    Worker::new(0, 1, pool.clone())
}

/// A frame that carries a number.
pub(crate) fn numbered(number: u32) -> Vec<u8> {
    let mut frame = number.to_be_bytes().to_vec();
    frame.resize(60, 0);
    frame
}

pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[..4].try_into().unwrap())
}

/// A receive node that gives out what it is fed, and remembers when it was asked.
#[derive(Clone, Default)]
pub(crate) struct Feed(Rc<RefCell<FeedState>>);

#[derive(Default)]
struct FeedState {
    frames: VecDeque<Vec<u8>>,
    ended: bool,
    until: Option<u64>,
    polls: Vec<u64>,
    limit: usize,
}

impl Feed {
    pub(crate) fn of(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let feed = Self::default();
        feed.add(frames);
        feed.end();
        feed
    }
    pub(crate) fn add(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.0.borrow_mut().frames.extend(frames);
    }
    pub(crate) fn end(&self) {
        self.0.borrow_mut().ended = true;
    }
    /// The time that it names where it has nothing.
    pub(crate) fn until(&self, time: Option<u64>) {
        self.0.borrow_mut().until = time;
    }
    /// The most packets of a poll, where the graph allows more.
    pub(crate) fn limit(&self, packets: usize) {
        self.0.borrow_mut().limit = packets;
    }
    /// The times at which it was asked.
    pub(crate) fn polls(&self) -> Vec<u64> {
        self.0.borrow().polls.clone()
    }
}

impl Node for Feed {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let mut state = self.0.borrow_mut();
        state.polls.push(cx.now());
        let most = if state.limit == 0 { cx.burst() } else { state.limit.min(cx.burst()) };
        while batch.len() < most {
            let Some(frame) = state.frames.pop_front() else { break };
            match cx.pool().packet(&frame) {
                Some(packet) => assert!(batch.push(packet).is_ok()),
                None => cx.receiving().lost_on_arrival(DropReason::PoolExhausted, 1, frame.len() as u64),
            }
        }
        match (state.frames.is_empty(), state.ended, state.until) {
            (false, ..) => Poll::Busy,
            (true, true, _) => Poll::Done,
            (true, false, Some(time)) => Poll::Until(time),
            (true, false, None) => Poll::Idle,
        }
    }
    fn shape(&self) -> Shape {
        Shape { kind: "feed".into(), ..Shape::receive() }
    }
}

/// A transmit node that remembers the packets that came, by input.
#[derive(Clone, Default)]
pub(crate) struct Sink(Rc<RefCell<Vec<Vec<u8>>>>);

impl Sink {
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.0.borrow().clone()
    }
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.borrow().iter().map(|frame| number(frame)).collect()
    }
}

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape { kind: "sink".into(), ..Shape::transmit() }
    }
}

type Process = dyn FnMut(usize, &mut Batch, &mut Context);

/// A node that is a closure.
pub(crate) struct Act {
    process: Box<Process>,
    edges: Vec<(u8, bool)>,
    inputs: usize,
}

/// A node that runs this closure, with `OUT` alone.
pub(crate) fn act(process: impl FnMut(usize, &mut Batch, &mut Context) + 'static) -> Act {
    Act { process: Box::new(process), edges: vec![(0, false)], inputs: 1 }
}

impl Act {
    /// A node with these ways out, and whether each may be left unconnected.
    pub(crate) fn edges(mut self, edges: &[(u8, bool)]) -> Self {
        self.edges = edges.to_vec();
        self
    }
    pub(crate) fn inputs(mut self, inputs: usize) -> Self {
        self.inputs = inputs;
        self
    }
    pub(crate) fn boxed(self) -> Box<dyn Node> {
        Box::new(self)
    }
}

impl Node for Act {
    fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        (self.process)(input, batch, cx);
    }
    fn shape(&self) -> Shape {
        Shape {
            inputs: self.inputs,
            outputs: {
                let name = |edge| if edge == 0 { "out".to_owned() } else { format!("edge {edge}") };
                self.edges
                    .iter()
                    .map(|(edge, optional)| Output {
                        edge: Edge(*edge),
                        name: name(*edge),
                        optional: *optional,
                    })
                    .collect()
            },
            ..Shape::default()
        }
    }
}

/// Sends every packet whose number fits to an edge; the others stay.
pub(crate) fn split(edge: u8, test: impl Fn(u32) -> bool + 'static) -> Act {
    act(move |_, batch, cx| {
        let packets: Vec<_> = batch.drain().collect();
        for packet in packets {
            if test(number(packet.data())) {
                cx.emit(Edge(edge), packet);
            } else {
                assert!(batch.push(packet).is_ok());
            }
        }
    })
    .edges(&[(0, false), (edge, true)])
}

pub(crate) fn nothing() -> Act {
    act(|_, _, _| {})
}

/// A blueprint of nodes made by a plain function.
pub(crate) fn blueprint(
    make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static,
) -> Blueprint {
    Blueprint::new(make)
}

/// A graph under construction, by names.
pub(crate) struct Rig {
    pub(crate) builder: GraphBuilder,
    pub(crate) pool: Pool,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self { builder: GraphBuilder::new("test"), pool: pool() }
    }
    pub(crate) fn add(&mut self, name: &str, node: Box<dyn Node>) -> NodeId {
        self.builder.add(name, node).unwrap()
    }
    pub(crate) fn function(&mut self, name: &str, blueprint: &Blueprint) -> NodeId {
        let worker = worker(&self.pool);
        self.builder.add_function(name, blueprint, &worker).unwrap()
    }
    pub(crate) fn connect(&mut self, from: NodeId, edge: u8, to: NodeId) {
        self.builder.connect(from, Edge(edge), to, 0).unwrap();
    }
    /// Connects these in a row by `OUT`.
    pub(crate) fn chain(&mut self, nodes: &[NodeId]) {
        for pair in nodes.windows(2) {
            self.connect(pair[0], 0, pair[1]);
        }
    }
    pub(crate) fn build(self) -> (Graph, Pool) {
        (self.builder.build(self.pool.clone()).unwrap(), self.pool)
    }
}

/// Runs until every source has ended, checking after each turn that every packet is accounted for.
pub(crate) fn run_out(graph: &mut Graph) {
    run_out_by(graph, 1);
}

/// As [`run_out`], with up to this many turns at once.
pub(crate) fn run_out_by(graph: &mut Graph, most: u32) {
    for turns in 0.. {
        assert!(turns < 100_000, "the graph does not end");
        let (turn, taken) = graph.turns(0, most);
        assert!((1..=most).contains(&taken));
        check(graph);
        match turn {
            Turn::Done => break,
            Turn::Moved(_) | Turn::Idle(_) => {}
        }
    }
}

/// Checks that packets are conserved, overall and at every node.
pub(crate) fn check(graph: &Graph) {
    let totals = graph.totals();
    assert!(totals.is_conserved(), "{totals:?}");
    assert_eq!(graph.unbalanced(), Vec::<String>::new());
}

/// The counters of a node.
pub(crate) fn counters(graph: &Graph, name: &str) -> netbricks_core::NodeCounters {
    graph.nodes().find(|node| node.name == name).unwrap().counters
}
