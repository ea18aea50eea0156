mod guest;
mod lies;
mod requests;
mod sleeping;
mod transfer;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netbricks_buffer::Pool;
use netbricks_core::{Graph, Totals};

use self::guest::Guest;
use super::*;
use crate::memory::{FarEnd, Memory};
use crate::peer::wait;
use crate::testing::{Directory, context, finish, joined, open};

/// The longest wait for another thread, which a busy machine may keep from running.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(text: &str) -> Result<VhostUserSettings, String> {
    let settings: VhostUserSettings = toml::from_str(text).map_err(|error| error.to_string())?;
    settings.check().map_err(|refused| refused.to_string())?;
    Ok(settings)
}

/// Waits until a condition holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A port on the socket of a directory, in a graph.
///
/// It sends what is put into `far`, and keeps there what it receives.
struct Lab {
    // Dropped in this order: the port's packets go back to the pool.
    graph: Option<Graph>,
    port: Box<dyn Port>,
    far: FarEnd,
    directory: Directory,
    pool: Pool,
}

impl Lab {
    fn new(name: &str, more: &str) -> Self {
        let pool = Pool::builder().frames(2_048).large(64, 69_632).build().unwrap();
        Self::over(pool, name, more)
    }
    fn over(pool: Pool, name: &str, more: &str) -> Self {
        let directory = Directory::new(&format!("vhost-user-{name}"));
        let text = format!("socket = \"s\"\n{more}");
        let mut port = open("vhost-user", &text, &context(&pool, &directory)).unwrap();
        let (graph, far) = Self::graph(&mut *port, &pool);
        Self { graph: Some(graph), port, far, directory, pool }
    }
    fn graph(port: &mut dyn Port, pool: &Pool) -> (Graph, FarEnd) {
        use netbricks_core::{Edge, GraphBuilder};

        use crate::{ReceiveNode, TransmitNode};
        let (mut memory, far) = Memory::new("far", 1, 4_096, pool);
        let mut builder = GraphBuilder::new("ends");
        let mut join = |name: &str, from: &mut dyn Port, number: u16, to: &mut dyn Port| {
            let source = Box::new(ReceiveNode::take(from, number, 0).unwrap());
            let sink = Box::new(TransmitNode::take(to, 0).unwrap());
            let source = builder.add(format!("{name} in"), source).unwrap();
            let sink = builder.add(format!("{name} out"), sink).unwrap();
            builder.connect(source, Edge::OUT, sink, 0).unwrap();
        };
        join("send", &mut memory, 0, port);
        join("receive", port, 1, &mut memory);
        (builder.build(pool.clone()).unwrap(), far)
    }

    fn path(&self) -> PathBuf {
        self.directory.0.join("s")
    }
    /// Turns until nothing more moves, after which all packets are accounted for.
    fn turns(&mut self) -> Totals {
        let graph = self.graph.as_mut().unwrap();
        let mut before = u64::MAX;
        loop {
            for _ in 0..16 {
                graph.wake();
                graph.turn(1);
            }
            let totals = graph.totals();
            assert!(totals.is_conserved() && graph.unbalanced().is_empty(), "{totals:?}");
            if totals.received.packets == before {
                return totals;
            }
            before = totals.received.packets;
        }
    }
    fn is_up(&self) {
        eventually("a guest", || self.port.link() == Link::Up);
    }
    fn is_down(&self) {
        eventually("the end", || self.port.link() == Link::Down);
    }
    /// Frames go both ways with a new guest.
    fn works(&mut self) {
        let mut guest = Guest::connect(self, u64::MAX);
        self.is_up();
        self.far.frames(0);
        guest.echo(self, &[frame(1, 60), frame(2, 1_514)]);
        drop(guest);
        self.is_down();
    }
    /// Ends the port. All packets are accounted for, and all buffers are back in the pool.
    fn finish(mut self) -> Totals {
        self.far.frames(0);
        let totals = finish(self.graph.take().unwrap(), 1);
        self.port.close().unwrap();
        let Self { port, far, pool, .. } = self;
        drop((port, far));
        assert_eq!(pool.available(), pool.capacity(), "all buffers are back");
        totals
    }
}

/// A frame of this length that differs from others.
fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13 + len) as u8).collect()
}

#[test]
fn settings_are_checked() {
    let good = settings("socket = \"/run/a.sock\"\nmode = \"client\"\nqueues = 4").unwrap();
    assert_eq!((good.mode, good.queues, good.device_mtu), (Mode::Client, 4, 1500));
    assert!(good.offload && good.sealed_memory && good.warnings().is_empty());
    for (text, key) in [
        (format!("socket = \"{}\"", "x".repeat(108)), "`socket`"),
        ("socket = \"\"".into(), "`socket`"),
        ("socket = \"s\"\nqueues = 0".into(), "`queues`"),
        ("socket = \"s\"\nqueues = 65".into(), "`queues`"),
        ("socket = \"s\"\ndevice_mtu = 65522".into(), "`device_mtu`"),
    ] {
        let refused = settings(&text).unwrap_err();
        assert!(refused.starts_with(key), "{text}: {refused}");
    }
    let warned = settings("socket = \"s\"\nsealed_memory = false").unwrap().warnings();
    assert!(warned.len() == 1 && warned[0].problem.contains("SIGBUS"), "{warned:?}");
}

#[test]
fn a_pool_without_large_frames_is_offered_checksums_only() {
    let pool = Pool::builder().frames(512).build().unwrap();
    let lab = Lab::over(pool, "small", "");
    assert!(lab.port.warnings()[0].contains("large_frames"), "{:?}", lab.port.warnings());
    let offered = Guest::offered(&lab);
    assert_eq!(offered & (device::feature::CSUM | device::feature::HOST_TSO4), device::feature::CSUM);
    lab.finish();
}
