//! Ports and graphs for tests with another process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netbricks_buffer::Pool;
use netbricks_core::{Edge, Graph, GraphBuilder, Totals};
use netbricks_ports::memory::{FarEnd, Memory};
use netbricks_ports::{Drivers, OpenContext, Port, ReceiveNode, TransmitNode};
use toml::de::DeTable;

/// The longest wait for another process, which a busy machine may keep from running.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An empty directory for one test, removed with the guard.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netbricks-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl std::ops::Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn pool() -> Pool {
    Pool::builder().frames(8_192).build().unwrap()
}

/// Opens a port on the socket `s` of a directory.
pub(crate) fn open(directory: &Path, driver: &str, more: &str, pool: &Pool) -> Box<dyn Port> {
    let text = format!("socket = \"s\"\n{more}");
    let drivers = Drivers::standard();
    let cx = OpenContext {
        pool: pool.clone(),
        queues: 1,
        seed: 1,
        directory: directory.to_owned(),
        filters: false,
    };
    drivers.get(driver).unwrap().open("shared", DeTable::parse(&text).unwrap(), &cx).unwrap()
}

/// A graph that sends by a port what is put into its far end, and keeps there what it receives.
pub(crate) struct Ends {
    pub(crate) far: FarEnd,
    graph: Graph,
    pub(crate) arrived: Vec<Vec<u8>>,
}

impl Ends {
    pub(crate) fn new(port: &mut dyn Port, pool: &Pool) -> Self {
        let (mut memory, far) = Memory::new("far", 1, 4_096, pool);
        let mut builder = GraphBuilder::new("ends");
        let mut join = |name: &str, from: &mut dyn Port, number: u16, to: &mut dyn Port| {
            let source = ReceiveNode::take(from, number, 0).unwrap();
            let sink = TransmitNode::take(to, 0).unwrap();
            let source = builder.add(format!("{name} in"), Box::new(source)).unwrap();
            let sink = builder.add(format!("{name} out"), Box::new(sink)).unwrap();
            builder.connect(source, Edge::OUT, sink, 0).unwrap();
        };
        join("send", &mut memory, 0, port);
        join("receive", port, 1, &mut memory);
        Self { far, graph: builder.build(pool.clone()).unwrap(), arrived: Vec::new() }
    }

    /// Some turns of the graph, after which all packets are accounted for.
    pub(crate) fn turn(&mut self) -> Totals {
        for _ in 0..64 {
            self.graph.wake();
            self.graph.turn(1);
        }
        self.arrived.extend(self.far.frames(0));
        let totals = self.graph.totals();
        assert!(totals.is_conserved() && self.graph.unbalanced().is_empty(), "{totals:?}");
        totals
    }

    /// Sends frames, `most` at a time, and waits until as many have come back.
    pub(crate) fn echo(&mut self, frames: &[Vec<u8>], most: usize) -> Vec<Vec<u8>> {
        for part in frames.chunks(most) {
            let before = self.arrived.len();
            part.iter().for_each(|frame| assert!(self.far.push(0, frame)));
            eventually("the echo", || {
                self.turn();
                self.arrived.len() >= before + part.len()
            });
        }
        std::mem::take(&mut self.arrived)
    }
}

/// A frame of this length that differs from others.
pub(crate) fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13 + len) as u8).collect()
}
