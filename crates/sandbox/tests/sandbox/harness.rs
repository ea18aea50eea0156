//! A graph of a sandboxed function beside neighbours, driven batch by batch under a clock that the test moves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Totals, Turn, Worker,
};

/// Frames for the next turns of a source, a batch each.
type Waiting = Rc<RefCell<Vec<Vec<Vec<u8>>>>>;

struct Source {
    waiting: Waiting,
    now: Rc<Cell<u64>>,
}

impl Node for Source {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        cx.receiving().advance(self.now.get());
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return Poll::Idle;
        }
        for frame in waiting.remove(0) {
            batch.push(cx.pool().packet(&frame).unwrap()).unwrap();
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<Vec<u8>>>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// Sandboxed functions side by side on one worker, each with a source and a sink of its own.
pub(crate) struct Bench {
    pub(crate) graph: Graph,
    pool: Pool,
    now: Rc<Cell<u64>>,
    lanes: Vec<(Waiting, Sink)>,
}

impl Bench {
    pub(crate) fn new(functions: &[Blueprint]) -> Self {
        let pool = Pool::builder().frames(4_096).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let mut graph = GraphBuilder::new("bench");
        let now = Rc::new(Cell::new(1_000_000_000));
        let mut lanes = Vec::new();
        for (lane, function) in functions.iter().enumerate() {
            let waiting = Waiting::default();
            let source = Source { waiting: waiting.clone(), now: now.clone() };
            let source = graph.add(format!("source{lane}"), Box::new(source)).unwrap();
            let node = graph.add_function(format!("function{lane}"), function, &worker).unwrap();
            let sink = Sink::default();
            let end = graph.add(format!("sink{lane}"), Box::new(sink.clone())).unwrap();
            graph.connect(source, Edge::OUT, node, 0).unwrap();
            let others: Vec<Edge> = graph.outputs(node).iter().map(|output| output.edge).collect();
            for edge in others {
                graph.connect(node, edge, end, 0).unwrap();
            }
            lanes.push((waiting, sink));
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(256);
        Self { graph, pool, now, lanes }
    }

    /// Functions one behind the other, in one lane.
    pub(crate) fn chain(functions: &[Blueprint]) -> Self {
        let pool = Pool::builder().frames(4_096).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let mut graph = GraphBuilder::new("bench");
        let (now, waiting, sink) = (Rc::new(Cell::new(1_000_000_000)), Waiting::default(), Sink::default());
        let source = Source { waiting: waiting.clone(), now: now.clone() };
        let mut last = graph.add("source", Box::new(source)).unwrap();
        let end = graph.add("sink", Box::new(sink.clone())).unwrap();
        for (place, function) in functions.iter().enumerate() {
            let node = graph.add_function(format!("function{place}"), function, &worker).unwrap();
            graph.connect(last, Edge::OUT, node, 0).unwrap();
            graph.connect(node, Edge::REPLY, end, 0).unwrap();
            last = node;
        }
        graph.connect(last, Edge::OUT, end, 0).unwrap();
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(256);
        Self { graph, pool, now, lanes: vec![(waiting, sink)] }
    }

    /// Moves the clock on.
    pub(crate) fn wait(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }

    /// Sends a batch through a lane.
    pub(crate) fn send(&mut self, lane: usize, frames: Vec<Vec<u8>>) {
        self.lanes[lane].0.borrow_mut().push(frames);
        self.run();
    }

    /// Runs until all batches are through, and checks that no packet is missing.
    fn run(&mut self) {
        while self.lanes.iter().any(|(waiting, _)| !waiting.borrow().is_empty()) {
            assert_ne!(self.graph.turn(0), Turn::Done);
        }
        let totals = self.totals();
        assert!(totals.is_conserved(), "packets are missing: {totals:?}");
        assert_eq!(self.graph.unbalanced(), Vec::<String>::new());
    }

    pub(crate) fn totals(&self) -> Totals {
        self.graph.totals()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.totals().drops.of(reason).packets
    }

    /// Frames that left a lane since the last call.
    pub(crate) fn out(&self, lane: usize) -> Vec<Vec<u8>> {
        self.lanes[lane].1.0.take()
    }

    /// The answer of a handler of a lane's function.
    pub(crate) fn ask(&mut self, lane: usize, handler: &str) -> String {
        self.graph.call(&format!("function{lane}"), handler, "").unwrap()
    }

    /// Takes the graph down: nothing panicked, and all frames are free.
    pub(crate) fn end(mut self) {
        assert_eq!(self.graph.take_panics(), []);
        self.graph.drain(0);
        drop(self.graph);
        assert_eq!(self.pool.available(), self.pool.capacity(), "packets leaked");
    }
}
