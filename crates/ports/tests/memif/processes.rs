//! Two processes of ours. The other one sends back what it receives, until it is killed.

use std::process::{Child, Command, Stdio};

use netbricks_core::{DropReason, Edge, GraphBuilder};
use netbricks_ports::{Link, ReceiveNode, TransmitNode};

use super::fixture::{Directory, Ends, eventually, frame, pool};
use super::open;

const DIRECTORY: &str = "NETBRICKS_MEMIF_DIRECTORY";
const ROLE: &str = "NETBRICKS_MEMIF_ROLE";
const MORE: &str = "ring_size = 256\nqueues = 1\nsecret = \"between us\"";

/// The other process, which ends with the test.
struct Mirror(Child);

impl Mirror {
    fn start(directory: &Directory, role: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::the_other_process", "--ignored"])
            .env(DIRECTORY, &directory.0)
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
    /// Ends it as `kill -9` does.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The work of the other process.
#[test]
#[ignore = "not a test: other tests start it as a process of its own"]
fn the_other_process() {
    let (Ok(directory), Ok(role)) = (std::env::var(DIRECTORY), std::env::var(ROLE)) else { return };
    let pool = pool();
    let mut port = open(directory.as_ref(), &role, MORE, &pool);
    let mut builder = GraphBuilder::new("mirror");
    let source = builder.add("in", Box::new(ReceiveNode::take(&mut *port, 0, 0).unwrap())).unwrap();
    let sink = builder.add("out", Box::new(TransmitNode::take(&mut *port, 0).unwrap())).unwrap();
    builder.connect(source, Edge::OUT, sink, 0).unwrap();
    let mut graph = builder.build(pool).unwrap();
    let parent = rustix::process::getppid();
    // A process whose test has gone ends as well.
    while rustix::process::getppid() == parent {
        graph.wake();
        if let netbricks_core::Turn::Idle(_) = graph.turn(1) {
            let mut files = Vec::new();
            graph.descriptors(&mut |file| {
                files.push(rustix::event::PollFd::from_borrowed_fd(file, rustix::event::PollFlags::IN));
            });
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut files, Some(&second));
        }
    }
}

/// Frames come back in order; a process that is killed may come back.
#[test]
fn another_process_echoes_is_killed_and_comes_back() {
    for (ours, theirs) in [("client", "server"), ("server", "client")] {
        let directory = Directory::new(&format!("memif-{ours}"));
        let pool = pool();
        let mut port = open(&directory.0, ours, MORE, &pool);
        let mut ends = Ends::new(&mut *port, &pool);
        for round in 0..3 {
            let mut mirror = Mirror::start(&directory, theirs);
            eventually("the other process", || port.link() == Link::Up);
            let frames: Vec<_> = (0..2_000).map(|number| frame(number, 60 + number % 1_400)).collect();
            assert!(ends.echo(&frames, 64) == frames, "{ours}, {round}");
            mirror.kill();
            eventually("the end", || port.link() == Link::Down);
            let before = ends.turn().drops.of(DropReason::LinkDown).packets;
            assert!(ends.far.push(0, &frames[0]));
            let totals = ends.turn();
            assert_eq!(totals.drops.of(DropReason::LinkDown).packets, before + 1, "{totals:?}");
            assert_eq!(port.returned(), round);
        }
        let totals = ends.turn();
        assert_eq!(totals.sent.packets, 2 * 3 * 2_000, "to the other process, and to the test: {totals:?}");
    }
}
