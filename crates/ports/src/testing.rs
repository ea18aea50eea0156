//! Support for the tests of several drivers: a graph of one receive and one transmit node, run to its end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_buffer::Pool;
use netbricks_core::{Edge, Graph, GraphBuilder, Totals, Turn};
use toml::de::DeTable;

use crate::memory::{FarEnd, Memory};
use crate::{Drivers, OpenContext, OpenError, Port, ReceiveNode, TransmitNode};

/// The batch sizes at which all results must be the same.
pub(crate) const BURSTS: [usize; 3] = [1, 32, 256];

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(8_192).large(512, 16_384).build().unwrap()
}

/// An empty directory for one test, removed with the guard.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        // Tests that run at the same time may choose the same name.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("netbricks-ports-{name}-{process}-{number}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn context(pool: &Pool, directory: &Directory) -> OpenContext {
    OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: directory.0.clone(), filters: false }
}

/// Opens a port by its driver's name and its settings as text.
pub(crate) fn open(driver: &str, settings: &str, cx: &OpenContext) -> Result<Box<dyn Port>, OpenError> {
    let table = DeTable::parse(settings).unwrap();
    Drivers::standard().get(driver).unwrap().open("under-test", table, cx)
}

/// A graph of one port's receive queue and another's transmit queue.
pub(crate) fn joined(from: &mut dyn Port, to: &mut dyn Port, pool: &Pool, burst: usize) -> Graph {
    let mut builder = GraphBuilder::new("test");
    let source = builder.add("in", Box::new(ReceiveNode::take(from, 0, 0).unwrap())).unwrap();
    let sink = builder.add("out", Box::new(TransmitNode::take(to, 0).unwrap())).unwrap();
    builder.connect(source, Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool.clone()).unwrap();
    graph.set_burst(burst);
    graph
}

/// Gives a graph turns until it is done, or until `stop` says so. Answers the time (ns).
///
/// The clock jumps to the next due time. After each turn, the law of conservation is checked at every node.
pub(crate) fn run(graph: &mut Graph, mut stop: impl FnMut(&Totals) -> bool) -> u64 {
    let (mut now, mut idle, mut turns) = (0, 0, 0);
    loop {
        let turn = graph.turn(now);
        turns += 1;
        assert!(turns < 2_000_000, "it is busy for ever");
        let totals = graph.totals();
        assert!(graph.unbalanced().is_empty(), "{:?}: {totals:?}", graph.unbalanced());
        assert!(totals.is_conserved(), "{totals:?}");
        if turn == Turn::Done || stop(&totals) {
            return now;
        }
        if let Turn::Idle(due) = turn {
            idle += 1;
            assert!(idle < 100_000, "it never ends");
            now = due.unwrap_or(now + 1).max(now);
        }
    }
}

/// Takes a graph down and checks that all packets were released and counted.
pub(crate) fn finish(mut graph: Graph, now: u64) -> Totals {
    assert_eq!(graph.drain(now), 0, "everything is let go at the end");
    assert!(graph.take_panics().is_empty());
    let totals = graph.totals();
    assert!(totals.is_conserved() && graph.unbalanced().is_empty(), "{totals:?}");
    totals
}

/// Forwards packets from one port to another, `burst` at a time, until the source ends and none are held.
pub(crate) fn forward(from: &mut dyn Port, to: &mut dyn Port, pool: &Pool, burst: usize) -> Totals {
    let mut graph = joined(from, to, pool, burst);
    let now = run(&mut graph, |_| false);
    assert_eq!(graph.totals().held, 0, "it is done only when nothing is held");
    finish(graph, now)
}

/// A memory port that takes all packets that a test forwards.
pub(crate) fn collector(pool: &Pool) -> (Memory, FarEnd) {
    Memory::new("collector", 1, 8_192, pool)
}

/// The packets that arrived at a collector: time and bytes.
pub(crate) fn collected(far: &FarEnd) -> Vec<(u64, Vec<u8>)> {
    std::iter::from_fn(|| far.pop(0)).map(|packet| (packet.received_at(), packet.data().to_vec())).collect()
}
