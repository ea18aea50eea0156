//! Windows over streams continue while their connections move between workers under load.
//!
//! Every byte is shown once, in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{Ip, Link, Tcp};
use netbricks_core::{
    Context, DropReason, Edge, GraphBuilder, GraphError, Node, Operator, Poll, Shape, Shuffle, ShuffleConfig,
    ShuffleKey, WhenFull, compose,
};
use netbricks_runtime::{Clock, Config, Factory, IdlePolicy, Placement, Runtime};
use netbricks_testkit::stream::{End, StreamConfig, StreamOperator, Why, Window, WindowConfig};

/// Connections, the most segments in each direction, and the bytes of a segment.
///
/// A segment contains a number, which states its position.
const CONNECTIONS: u16 = 48;
const SEGMENTS: u64 = (1 << 18) + 1;
const BYTES: u64 = 8;
/// Bytes of a window: not a whole number of segments.
const SIZE: usize = 20;

/// Behind Ethernet and IPv4.
const SEQUENCE: std::ops::Range<usize> = 38..42;
const NUMBER: std::ops::Range<usize> = 54..62;

/// The counts that must be reached before traffic ends.
const MOVES: u64 = 40;
const MOVED: u64 = 1_000;
const SHOWN: u64 = 2_000_000;

/// One direction of all connections, in which neighbouring segments change places.
struct Streams {
    templates: Vec<Vec<u8>>,
    next: u64,
    shown: Arc<Shown>,
}

impl Streams {
    fn new(worker: usize, shown: Arc<Shown>) -> Self {
        let frame = |connection: u16| {
            let (a, b) = ("10.0.0.1", "10.9.8.7");
            let tcp = match worker {
                0 => ethernet().ipv4(a, b).tcp(1_000 + connection, 80),
                _ => ethernet().ipv4(b, a).tcp(80, 1_000 + connection),
            };
            tcp.ack(7).payload(&[0; BYTES as usize]).build().unwrap()
        };
        Self { templates: (0..CONNECTIONS).map(frame).collect(), next: 0, shown }
    }
}

impl Node for Streams {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let (turn, connection) = (self.next / u64::from(CONNECTIONS), self.next % u64::from(CONNECTIONS));
            // Behind the first segment and any number of pairs.
            let whole = turn % 2 == 1 && connection == 0;
            if whole && (turn == SEGMENTS || self.shown.enough.load(Relaxed)) {
                return Poll::Done;
            }
            let Some(mut packet) = cx.pool().packet(&self.templates[connection as usize]) else { break };
            // The first segment stays first, because it begins a stream whose opening was not seen. Behind
            // it, pairs change places.
            let number = if turn == 0 { turn } else { ((turn - 1) ^ 1) + 1 };
            packet.data_mut()[SEQUENCE].copy_from_slice(&((number * BYTES) as u32).to_be_bytes());
            packet.data_mut()[NUMBER].copy_from_slice(&number.to_be_bytes());
            batch.push(packet).unwrap();
            self.next += 1;
            self.shown.brought.fetch_add(BYTES, Relaxed);
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

struct Sink;

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The bytes that windows on all workers showed, and whether they are enough.
#[derive(Default)]
struct Shown {
    enough: AtomicBool,
    brought: AtomicU64,
    bytes: AtomicU64,
    wrong: AtomicU64,
    missing: AtomicU64,
    moved: AtomicU64,
}

impl Shown {
    fn see(&self, window: &Window<'_>) {
        let place = |at: usize| window.offset + at as u64;
        let byte = |at: usize| (place(at) / BYTES).to_be_bytes()[(place(at) % BYTES) as usize];
        let wrong = (0..window.bytes.len()).filter(|at| window.bytes[*at] != byte(*at)).count();
        self.bytes.fetch_add(window.fresh().len() as u64, Relaxed);
        self.wrong.fetch_add(wrong as u64, Relaxed);
        self.missing.fetch_add(window.gap, Relaxed);
        self.moved.fetch_add(u64::from(window.why == Why::End(End::Moved)), Relaxed);
    }
}

#[test]
fn windows_move_back_and_forth_under_load_with_their_connections() {
    let config = ShuffleConfig { key: ShuffleKey::SymmetricFlow, full: WhenFull::Wait, ring: 32 };
    let (shuffle, shown) = (Shuffle::new(config), Arc::new(Shown::default()));
    let pool = Pool::builder().frames(16_384).build().unwrap();
    let config = Config::new(pool)
        .workers(2)
        .placement(Placement::Unpinned)
        .clock(Clock::Driven)
        .idle(IdlePolicy::Balanced);
    let runtime = Runtime::start(config, |worker| {
        let (shuffle, shown) = (shuffle.clone(), shown.clone());
        Factory::new(move |context| -> Result<_, GraphError> {
            let mut graph = GraphBuilder::new("test");
            let failed = |error| GraphError::Node { name: "node".into(), error };
            let source = Box::new(Streams::new(worker, shown.clone()));
            let streams = StreamConfig { flows: 128, flow_memory: 64 << 10, ..StreamConfig::default() };
            let windows = WindowConfig { streams, ..WindowConfig::new(SIZE, SIZE, u64::MAX) };
            let node = compose(context.worker(), |input| {
                let tcp = input.parse::<Link>().parse::<Ip>().parse::<Tcp>();
                tcp.window(context.worker(), "windows", windows, move |window| shown.see(window)).done()
            });
            let nodes = [
                graph.add("source", source)?,
                graph.add("shuffle", shuffle.node(context.worker()).map_err(failed)?)?,
                graph.add("windows", node.map_err(failed)?)?,
                graph.add("out", Box::new(Sink))?,
            ];
            for pair in nodes.windows(2) {
                graph.connect(pair[0], Edge::OUT, pair[1], 0)?;
            }
            graph.build(context.pool().clone())
        })
    })
    .unwrap();
    let control = runtime.control();
    let mut moves = 0;
    while moves < MOVES || shown.moved.load(Relaxed) < MOVED || shown.bytes.load(Relaxed) < SHOWN {
        let to = 1 - moves % 2;
        let pairs = control.call(0, "test", "shuffle", "move", &format!("0-4095 {to}")).unwrap();
        assert!(["0", "1", "2"].contains(&pairs.as_str()), "{pairs}");
        while control.call(1, "test", "shuffle", "moving", "").unwrap() != "0" {
            std::thread::yield_now();
        }
        moves += 1;
    }
    shown.enough.store(true, Relaxed);
    let report = runtime.wait();
    assert!(report.conserved && report.pool_whole, "{:?}", report.unbalanced);
    assert_eq!(report.totals.drops.of(DropReason::Panicked).packets, 0);
    let [bytes, wrong, missing, moved] =
        [&shown.bytes, &shown.wrong, &shown.missing, &shown.moved].map(|count| count.load(Relaxed));
    let all = shown.brought.load(Relaxed);
    assert_eq!((bytes, wrong, missing), (all, 0, 0), "after {moves} moves, {moved} of directions");
}
