//! Streams are rewritten while their connections move between workers under load.
//!
//! No end repeats anything, so a lost byte would never come again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::{
    Context, DropReason, Edge, GraphBuilder, GraphError, Node, Operator, Poll, Shape, Shuffle, ShuffleConfig,
    ShuffleKey, WhenFull, compose,
};
use netbricks_runtime::{Clock, Config, Factory, IdlePolicy, Placement, Runtime};
use netbricks_testkit::stream::{PacketizeConfig, Replace, StreamOperator, StreamWorker};

const CONNECTIONS: u16 = 48;
/// The text that servers repeat, and the text that clients receive.
const SAID: &[u8] = b"a cat, a cub and some other cattle. ";
const HEARD: &[u8] = b"a <tiger>, a cub and some other <tiger>tle. ";
/// The most bytes in flight, and the bytes of a segment.
const FLIGHT: usize = 400;
const SEGMENT: usize = 40;
/// The numbers of the first bytes.
const SERVER: u32 = 0_u32.wrapping_sub(5_000);
const CLIENT: u32 = 100;

/// The moves and bytes that must happen before traffic ends, and the time limit.
const MOVES: u64 = 200;
const BYTES: u64 = 8_000_000;
const PATIENCE: Duration = Duration::from_secs(900);

/// One connection, as both its ends see it.
#[derive(Default)]
struct Talk {
    /// Segments that came through: the client's first, the server's, and the client's acknowledgment.
    opened: u8,
    /// The number of these segments that were sent.
    opening: u8,
    next: usize,
    acknowledged: usize,
    heard: usize,
    owes: bool,
}

#[derive(Default)]
struct Shared {
    talks: Vec<Mutex<Talk>>,
    enough: AtomicBool,
    given_up: AtomicBool,
    heard: AtomicU64,
    wrong: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        let over = |talk: &Mutex<Talk>| {
            let talk = talk.lock().unwrap();
            talk.next == talk.acknowledged && talk.next.is_multiple_of(SAID.len())
        };
        self.enough.load(Relaxed) && self.talks.iter().all(over) || self.given_up.load(Relaxed)
    }

    /// The next segment of this end of a connection.
    fn says(&self, server: bool, connection: u16) -> Option<Vec<u8>> {
        let mut talk = self.talks[usize::from(connection)].lock().unwrap();
        let (number, acknowledgment, flags, bytes) = match (server, talk.opened, talk.opening) {
            (false, 0, 0) => (CLIENT - 1, 0, flags::SYN, Vec::new()),
            (true, 1, 1) => (SERVER.wrapping_sub(1), CLIENT, flags::SYN | flags::ACK, Vec::new()),
            (false, 2, _) if std::mem::take(&mut talk.owes) => {
                (CLIENT, SERVER.wrapping_add(talk.heard as u32), flags::ACK, Vec::new())
            }
            (true, 2, _) => {
                let ends = self.enough.load(Relaxed).then(|| talk.next.next_multiple_of(SAID.len()));
                let most = ends.unwrap_or(usize::MAX).min(talk.acknowledged + FLIGHT);
                let from = talk.next;
                let to = (from + 1 + from * 7 % SEGMENT).min(most);
                if from >= to {
                    return None;
                }
                talk.next = to;
                let bytes = (from..to).map(|at| SAID[at % SAID.len()]).collect();
                (SERVER.wrapping_add(from as u32), CLIENT, flags::ACK, bytes)
            }
            _ => return None,
        };
        talk.opening += u8::from(flags & flags::SYN != 0);
        let (a, b) = ("10.0.0.1", "10.9.8.7");
        let tcp = match server {
            true => ethernet().ipv4(b, a).tcp(80, 1_000 + connection),
            false => ethernet().ipv4(a, b).tcp(1_000 + connection, 80),
        };
        let tcp = tcp.sequence(number).ack(acknowledgment).flags(flags).window(50_000);
        tcp.payload(&bytes).build().ok()
    }

    /// Takes a frame that came through.
    fn hears(&self, frame: &[u8]) {
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let from_server = port(34) == 80;
        let connection = if from_server { port(36) } else { port(34) } - 1_000;
        let mut talk = self.talks[usize::from(connection)].lock().unwrap();
        let bytes = &frame[34 + usize::from(frame[46] >> 4) * 4..];
        if frame[47] & flags::SYN != 0 {
            talk.opened += 1;
            talk.owes |= from_server;
        } else if from_server {
            let place = word(38).wrapping_sub(SERVER) as usize;
            // In order, since no packet overtakes another: no hole and no repetition.
            let right = (place..).zip(bytes).all(|(at, byte)| HEARD[at % HEARD.len()] == *byte);
            self.wrong.fetch_add(u64::from(!right || !bytes.is_empty() && place != talk.heard), Relaxed);
            talk.heard += bytes.len();
            talk.owes |= !bytes.is_empty();
            self.heard.fetch_add(bytes.len() as u64, Relaxed);
        } else {
            let acknowledged = word(42).wrapping_sub(SERVER) as usize;
            self.wrong.fetch_add(u64::from(acknowledged > talk.next), Relaxed);
            talk.acknowledged = talk.acknowledged.max(acknowledged);
        }
    }
}

/// All servers or all clients.
struct Ends {
    server: bool,
    next: u16,
    shared: Arc<Shared>,
}

impl Node for Ends {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for _ in 0..CONNECTIONS {
            if batch.len() == cx.burst() {
                return Poll::Busy;
            }
            self.next = (self.next + 1) % CONNECTIONS;
            if let Some(frame) = self.shared.says(self.server, self.next) {
                batch.push(cx.pool().packet(&frame).unwrap()).unwrap();
            }
        }
        match batch.is_empty() {
            true if self.shared.is_over() => Poll::Done,
            true => Poll::Idle,
            false => Poll::Busy,
        }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

struct Sink(Arc<Shared>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.drain().for_each(|packet| self.0.hears(packet.data()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

#[test]
fn rewritten_streams_move_back_and_forth_under_load_and_nothing_is_sent_twice() {
    let config = ShuffleConfig { key: ShuffleKey::SymmetricFlow, full: WhenFull::Wait, ring: 32 };
    let shuffle = Shuffle::new(config);
    let talks = (0..CONNECTIONS).map(|_| Mutex::default()).collect();
    let shared = Arc::new(Shared { talks, ..Shared::default() });
    let config = Config::new(Pool::builder().frames(16_384).build().unwrap())
        .workers(2)
        .placement(Placement::Unpinned)
        .clock(Clock::Driven)
        .idle(IdlePolicy::Balanced);
    let runtime = Runtime::start(config, |worker| {
        let (shuffle, shared) = (shuffle.clone(), shared.clone());
        Factory::new(move |context| -> Result<_, GraphError> {
            let mut graph = GraphBuilder::new("test");
            let failed = |error| GraphError::Node { name: "node".into(), error };
            let node = compose(context.worker(), |input| {
                let streams = PacketizeConfig { flows: 64, memory: 16 << 20, ..PacketizeConfig::default() };
                let replace = Replace::new(b"cat", b"<tiger>", None).unwrap();
                let streams = context.worker().packetizer("streams", streams, replace);
                let ip = input.parse::<Link>().or(Edge::OUT).parse::<Ip>().or(Edge::OUT);
                ip.parse::<Tcp>().or(Edge::OUT).packetize(&streams).done()
            });
            let ends = Ends { server: worker == 0, next: 0, shared: shared.clone() };
            let nodes = [
                graph.add("ends", Box::new(ends))?,
                graph.add("shuffle", shuffle.node(context.worker()).map_err(failed)?)?,
                graph.add("rewrite", node.map_err(failed)?)?,
                graph.add("out", Box::new(Sink(shared.clone())))?,
            ];
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0)?;
            }
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    let (control, began, mut moves) = (runtime.control(), Instant::now(), 0);
    while (moves < MOVES || shared.heard.load(Relaxed) < BYTES) && began.elapsed() < PATIENCE {
        let to = 1 - moves % 2;
        control.call(0, "test", "shuffle", "move", &format!("0-4095 {to}")).unwrap();
        while control.call(1, "test", "shuffle", "moving", "").unwrap() != "0" {
            std::thread::yield_now();
        }
        moves += 1;
        // Some bytes arrive in between.
        let before = shared.heard.load(Relaxed);
        while shared.heard.load(Relaxed) < before + 1_000 && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
    shared.enough.store(true, Relaxed);
    while !shared.is_over() {
        shared.given_up.store(began.elapsed() > PATIENCE, Relaxed);
        std::thread::yield_now();
    }
    let counts = [0, 1].map(|worker| control.call(worker, "test", "shuffle", "refused", ""));
    let report = runtime.wait();
    assert!(!shared.given_up.load(Relaxed), "after {moves} moves a worker waits in vain");
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    for reason in [DropReason::Panicked, DropReason::TableFull, DropReason::Denied] {
        assert_eq!(report.totals.drops.of(reason).packets, 0, "{reason:?}");
    }
    assert!(counts.iter().flatten().all(|refused| refused == "0"), "{counts:?}");
    assert_eq!(shared.wrong.load(Relaxed), 0, "after {moves} moves");
    for talk in &shared.talks {
        let talk = talk.lock().unwrap();
        assert_eq!(talk.heard / HEARD.len() * SAID.len(), talk.next);
        assert!(talk.next > 10_000, "{}", talk.next);
    }
}
