mod handshakes;
mod lies;
mod sleeping;
mod transfer;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netbricks_buffer::Pool;
use netbricks_core::{Graph, Totals};

use super::handshake::{self, Agreed};
use super::message::Message;
use super::socket::{Channel, Listener, Trouble};
use super::*;
use crate::memory::{FarEnd, Memory};
use crate::peer::wait;
use crate::testing::{Directory, context, joined, open};

/// The longest wait for another thread, which a busy machine may keep from running.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(text: &str) -> Result<MemifSettings, String> {
    let settings: MemifSettings = toml::from_str(text).map_err(|error| error.to_string())?;
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

/// A directory for sockets, and a pool for all ports in it.
struct Lab {
    directory: Directory,
    pool: Pool,
}

impl Lab {
    fn new(name: &str) -> Self {
        let pool = Pool::builder().frames(4_096).large(64, 16_384).build().unwrap();
        Self { directory: Directory::new(&format!("memif-{name}")), pool }
    }
    fn text(role: &str, more: &str) -> String {
        format!("socket = \"s\"\nrole = \"{role}\"\n{more}")
    }
    /// A port of this role.
    fn port(&self, role: &str, more: &str) -> Box<dyn Port> {
        open("memif", &Self::text(role, more), &context(&self.pool, &self.directory)).unwrap()
    }
    /// The state of a peer whose rings a test writes itself.
    fn peer(&self, role: &str, more: &str) -> Shared {
        let settings = settings(&Self::text(role, more)).unwrap();
        Shared::new("peer", &settings, self.directory.0.join("s")).unwrap()
    }
    /// Connects such a peer to the server of this directory.
    fn join(&self, more: &str) -> (Channel, Agreed) {
        let peer = self.peer("client", more);
        let channel = self.connect();
        let agreed = handshake::join(&channel, &peer).unwrap();
        (channel, agreed)
    }
    fn connect(&self) -> Channel {
        let mut found = None;
        eventually("a server", || {
            found = Channel::connect(&self.directory.0.join("s")).ok();
            found.is_some()
        });
        found.unwrap()
    }
    /// Waits for the client of this directory as such a peer.
    fn serve(&self, more: &str) -> (Listener, Channel, Agreed) {
        let peer = self.peer("server", more);
        let listener = Listener::open("peer", &peer.path).unwrap();
        let mut found = None;
        eventually("a client", || {
            found = listener.accept();
            found.is_some()
        });
        let channel = found.unwrap();
        let agreed = handshake::serve(&channel, &peer).unwrap();
        (listener, channel, agreed)
    }
    /// A port of each role, connected.
    fn pair(&self, more: &str) -> (Box<dyn Port>, Box<dyn Port>) {
        let (server, client) = (self.port("server", more), self.port("client", more));
        is_up(&*server);
        is_up(&*client);
        (server, client)
    }
    /// A graph that sends by a port what is put into its far end.
    fn sender(&self, port: &mut dyn Port) -> (FarEnd, Graph) {
        let (mut source, far) = Memory::new("source", 1, 8_192, &self.pool);
        (far, joined(&mut source, port, &self.pool, 32))
    }
    /// A graph that receives from a port into its far end.
    fn receiver(&self, port: &mut dyn Port) -> (FarEnd, Graph) {
        let (mut sink, far) = Memory::new("sink", 1, 8_192, &self.pool);
        (far, joined(port, &mut sink, &self.pool, 32))
    }
}

fn is_up(port: &dyn Port) {
    eventually("a peer", || port.link() == Link::Up);
}

/// Gives a graph turns that bring nothing more, and checks that all packets are accounted for.
fn turns(graph: &mut Graph) -> Totals {
    let mut before = u64::MAX;
    loop {
        for _ in 0..64 {
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

/// Turns until a graph has received this many packets.
fn turns_until(graph: &mut Graph, packets: u64) -> Totals {
    let mut totals = graph.totals();
    eventually("all packets", || {
        totals = turns(graph);
        totals.received.packets >= packets
    });
    totals
}

/// The next message of a peer, or how it ended the connection.
fn hear(channel: &Channel) -> Result<Message, String> {
    let start = Instant::now();
    loop {
        match channel.receive() {
            Ok(Some((message, _))) => return Ok(message),
            Ok(None) => {}
            Err(Trouble::Fault(text)) => return Err(text),
            Err(other) => return Err(format!("{other:?}")),
        }
        assert!(start.elapsed() < PATIENCE, "the peer says nothing");
        wait([channel.as_fd()], Duration::from_millis(100));
    }
}

/// A frame of this length that differs from others.
fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13 + len) as u8).collect()
}

#[test]
fn settings_are_checked() {
    let good = settings("socket = \"/run/a.sock\"\nrole = \"client\"\nring_size = 64").unwrap();
    assert_eq!((good.role, good.log2(), good.queues, good.buffer_size), (Role::Client, 6, 1, 2048));
    for (text, key) in [
        (format!("socket = \"{}\"", "x".repeat(108)), "`socket`"),
        ("socket = \"\"".into(), "`socket`"),
        ("socket = \"s\"\nsecret = \"a secret of 25 characters\"".into(), "`secret`"),
        ("socket = \"s\"\nsecret = \"\"".into(), "`secret`"),
        ("socket = \"s\"\nqueues = 0".into(), "`queues`"),
        ("socket = \"s\"\nqueues = 65".into(), "`queues`"),
        ("socket = \"s\"\nring_size = 1000".into(), "`ring_size`"),
        ("socket = \"s\"\nring_size = 8".into(), "`ring_size`"),
        ("socket = \"s\"\nring_size = 32768".into(), "`ring_size`"),
        ("socket = \"s\"\nbuffer_size = 255".into(), "`buffer_size`"),
        ("socket = \"s\"\ndevice_mtu = 65522".into(), "`device_mtu`"),
        ("socket = \"s\"\nrole = \"client\"\nring_size = 16384\nqueues = 32".into(), "`queues`"),
    ] {
        let refused = settings(&text).unwrap_err();
        assert!(refused.starts_with(key), "{text}: {refused}");
    }
    assert!(settings("socket = \"s\"\nring_size = 16384\nqueues = 32").is_ok(), "a server makes no memory");
}

#[test]
fn a_socket_has_one_server_and_a_killed_ones_is_replaced() {
    let lab = Lab::new("socket");
    let path = lab.directory.0.join("s");
    let cx = context(&lab.pool, &lab.directory);
    let again = || open("memif", &Lab::text("server", ""), &cx).map(|_| ()).unwrap_err().to_string();
    let server = lab.port("server", "");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let said = again();
    assert!(said.contains("listens there") && said.contains(&path.display().to_string()), "{said}");
    drop(server);
    assert!(!path.exists(), "its file goes with it");
    // As a process leaves it that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(lab.port("server", ""));
    std::fs::write(&path, "a file").unwrap();
    assert!(again().contains("no socket"), "{}", again());
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    let long = "x".repeat(100);
    let said = open("memif", &format!("socket = \"{long}\""), &cx).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("107 bytes"), "{said}");
}

use std::os::unix::fs::PermissionsExt;
