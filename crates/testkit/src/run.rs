//! Runs a function over frames and reports the fate of each.

use netbricks_core::buffer::Pool;
use netbricks_core::packet::build::Builder;
use netbricks_core::{
    Blueprint, BuildError, Context, DropReason, Drops, Edge, Function, Graph, GraphBuilder, Input, Node,
    Poll, Shape, Totals, Turn, Worker, compose,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Batch sizes at which every test runs: results must not depend on the size.
pub const BURSTS: [usize; 3] = [1, 32, 256];

/// A value that can be given as a packet.
pub trait Frame {
    /// Its bytes.
    fn bytes(self) -> Vec<u8>;
}
impl Frame for Vec<u8> {
    fn bytes(self) -> Vec<u8> {
        self
    }
}
impl Frame for &[u8] {
    fn bytes(self) -> Vec<u8> {
        self.to_vec()
    }
}
impl<H> Frame for Builder<'_, H> {
    fn bytes(self) -> Vec<u8> {
        match self.build() {
            Ok(frame) => frame,
            Err(error) => panic!("a test's packet cannot be built: {error}"),
        }
    }
}

/// The fate of all packets of a run.
#[derive(Debug)]
pub struct Report {
    /// Frames that left on `OUT`, in order.
    pub out: Vec<Vec<u8>>,
    /// Frames that left on `REPLY` and on other edges, in order at the batch size 1.
    pub replies: Vec<Vec<u8>>,
    /// Dropped and consumed packets, by reason.
    pub drops: Drops,
    /// All counters.
    pub totals: Totals,
    /// Lines that the function adds to a report.
    pub sections: Vec<netbricks_core::Section>,
    /// Panics that were contained.
    pub panics: Vec<netbricks_core::Panic>,
}

impl Report {
    /// Packets that were dropped or consumed for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.of(reason).packets
    }

    /// The graph's totals so far, and the frames that left it since the last call.
    pub(crate) fn of(graph: &mut Graph, out: &Sink, replies: &Sink) -> Self {
        let totals = graph.totals();
        assert!(totals.is_conserved(), "packets are missing: {totals:?}");
        assert_eq!(graph.unbalanced(), Vec::<String>::new(), "nodes whose packets do not add up");
        Self {
            out: out.0.take(),
            replies: replies.0.take(),
            drops: totals.drops.clone(),
            totals,
            sections: graph.reports().into_iter().flat_map(|(_, sections)| sections).collect(),
            panics: graph.take_panics(),
        }
    }

    /// Checks that results do not depend on the batch size; `other` has the results with `burst`.
    pub(crate) fn assert_same(&self, other: &Self, burst: usize) {
        assert_eq!(self.out, other.out, "what leaves depends on the batch size ({burst})");
        assert_eq!(self.replies, other.replies, "replies depend on the batch size ({burst})");
        // A panic costs its whole batch, so the drops differ only then.
        if self.panics.is_empty() {
            assert_eq!(self.drops, other.drops, "drops depend on the batch size ({burst})");
        }
    }
}

/// Runs a function without settings: `testkit::run(macswap, [packet])`.
///
/// It runs at batch sizes 1, 32 and 256. It checks that all three agree, that every packet is accounted for, and that
/// the pool is full again. Then it returns one report.
pub fn run<F: Function, P: Frame>(
    function: impl Fn(Input) -> F + Clone + Send + Sync + 'static,
    frames: impl IntoIterator<Item = P>,
) -> Report {
    run_with(move |input, _| function(input), frames)
}

/// As [`run`], for a function that asks its worker for state: `run_with(|input, worker| nat(input, &config, worker), …)`.
pub fn run_with<F: Function, P: Frame>(
    // For ever, since a function's return type may name its worker's lifetime (`impl Function` does, in
    // edition 2024).
    function: impl Fn(Input, &'static Worker) -> F + Clone + Send + Sync + 'static,
    frames: impl IntoIterator<Item = P>,
) -> Report {
    run_node(
        move |worker| {
            // One worker for each run: the state that it shares is this run's.
            let worker: &'static Worker = Box::leak(Box::new(worker.clone()));
            compose(worker, |input| function(input, worker))
        },
        frames,
    )
}

/// As [`run`], for a function with settings: `run_configured(nat, config, frames)`.
pub fn run_configured<C: Send + Sync + 'static, F: Function, P: Frame>(
    function: impl Fn(Input, &'static C, &'static Worker) -> F + Clone + Send + Sync + 'static,
    config: C,
    frames: impl IntoIterator<Item = P>,
) -> Report {
    let config: &'static C = Box::leak(Box::new(config));
    run_with(move |input, worker| function(input, config, worker), frames)
}

/// This thread's worker: number 0, seed 1.
///
/// All runs share its pool, so that a run finds used frames, of all sizes.
pub(crate) fn worker() -> &'static Worker {
    thread_local! {
        static WORKER: &'static Worker = {
            match Pool::builder().frames(2048).large(64, 69_632).short(1024, 512).build() {
                Ok(pool) => Box::leak(Box::new(Worker::new(0, 1, pool))),
                Err(error) => panic!("no pool for a test: {error}"),
            }
        };
    }
    WORKER.with(|worker| *worker)
}

/// As [`run`], for a node.
pub fn run_node<P: Frame>(
    make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + 'static,
    frames: impl IntoIterator<Item = P>,
) -> Report {
    let frames: Vec<Vec<u8>> = frames.into_iter().map(Frame::bytes).collect();
    let mut reports = BURSTS.map(|burst| once(Blueprint::new(make.clone()), &frames, burst)).into_iter();
    let Some(first) = reports.next() else { unreachable!("there are three batch sizes") };
    reports.zip(&BURSTS[1..]).for_each(|(other, burst)| first.assert_same(&other, *burst));
    first
}

fn once(blueprint: Blueprint, frames: &[Vec<u8>], burst: usize) -> Report {
    let pool = worker().pool().clone();
    let (out, replies) = (Sink::default(), Sink::default());
    let report = {
        let waiting = Rc::new(RefCell::new(frames.iter().cloned().collect()));
        let mut graph = match assemble(&blueprint, waiting, true, &pool, &out, &replies) {
            Ok(graph) => graph,
            Err(error) => panic!("a test's graph cannot be built: {error}"),
        };
        graph.set_burst(burst);
        let mut now = 0;
        loop {
            match graph.turn(now) {
                Turn::Done => break,
                // A function holds packets until then, and all others were sent.
                Turn::Idle(Some(next)) => now = now.max(next),
                Turn::Idle(None) | Turn::Moved(_) => {}
            }
        }
        graph.drain(now);
        Report::of(&mut graph, &out, &replies)
    };
    assert_eq!(pool.available(), pool.capacity(), "packets leaked");
    report
}

/// Puts a source of the waiting frames, the function, and the sinks of its packets into a graph.
///
/// With `ends`, the source ends after the waiting frames; else it waits for more.
pub(crate) fn assemble(
    blueprint: &Blueprint,
    waiting: Rc<RefCell<VecDeque<Vec<u8>>>>,
    ends: bool,
    pool: &Pool,
    out: &Sink,
    replies: &Sink,
) -> Result<Graph, netbricks_core::GraphError> {
    let mut graph = GraphBuilder::new("test");
    let source = graph.add("source", Box::new(Source { waiting, ends }))?;
    let node = graph.add_function("function", blueprint, worker())?;
    graph.connect(source, Edge::OUT, node, 0)?;
    let sink = graph.add("out", Box::new(out.clone()))?;
    graph.connect(node, Edge::OUT, sink, 0)?;
    let others: Vec<_> =
        graph.outputs(node).iter().map(|output| output.edge).filter(|edge| *edge != Edge::OUT).collect();
    if !others.is_empty() {
        let replies = graph.add("replies", Box::new(replies.clone()))?;
        for edge in others {
            graph.connect(node, edge, replies, 0)?;
        }
    }
    graph.build(pool.clone())
}

struct Source {
    waiting: Rc<RefCell<VecDeque<Vec<u8>>>>,
    ends: bool,
}

impl Node for Source {
    fn process(&mut self, _: usize, batch: &mut netbricks_core::buffer::Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut netbricks_core::buffer::Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(frame) = self.waiting.borrow_mut().pop_front() else {
                return if self.ends { Poll::Done } else { Poll::Idle };
            };
            match cx.pool().packet(&frame) {
                Some(packet) => {
                    if batch.push(packet).is_err() {
                        return Poll::Busy;
                    }
                }
                None => cx.receiving().lost_on_arrival(DropReason::PoolExhausted, 1, frame.len() as u64),
            }
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Sink(Rc<RefCell<Vec<Vec<u8>>>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut netbricks_core::buffer::Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}
