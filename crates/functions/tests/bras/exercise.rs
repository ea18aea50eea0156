//! `bras` with arbitrary frames, before and behind an open session. Tests and a fuzz target call this.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::{Ip, IpRef};
use netbricks_core::{
    Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Registry, Shape, Turn, Worker,
};

const SETTINGS: &str = "access = \"access\"\ncore = \"core\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:ac:01\"
gateway = \"02:00:00:00:00:fe\"\npool = [\"10.0.1.0/30\"]\nprefixes = \"2001:db8:100::/62\"\nauthentication = []
sessions = 4\nper_mac = 3\ndiscovery_rate = 100_000\ndiscovery_rate_each = 100_000\nsetup_timeout = \"5 s\"\n";
/// The concentrator's Ethernet address, the gateway's and the subscriber's.
const AC: [u8; 6] = [2, 0, 0, 0, 0xac, 1];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const HOST: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl Node for Wire {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(frame) = self.0.borrow_mut().pop_front() else { return Poll::Idle };
            let Some(packet) = cx.pool().packet(&frame) else { continue };
            assert!(batch.push(packet).is_ok(), "a batch takes a burst");
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Keeps frames, or only counts them.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<Vec<u8>>>>, Rc<Cell<Option<u64>>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        if let Some(count) = self.1.get() {
            self.1.set(Some(count + batch.len() as u64));
            return batch.clear();
        }
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

struct Bench {
    graph: Graph,
    pool: Pool,
    wires: [Wire; 2],
    sinks: [Sink; 2],
    now: u64,
    /// The SESSION_ID of the open session.
    id: u16,
}

fn session(id: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let [[a, b], [c, d]] = [id, 2 + payload.len() as u16].map(u16::to_be_bytes);
    [&AC[..], &HOST, &[0x88, 0x64, 0x11, 0, a, b, c, d], &protocol.to_be_bytes(), payload].concat()
}

impl Bench {
    fn new() -> Option<Self> {
        let mut registry = Registry::new();
        netbricks_functions::register(&mut registry);
        let blueprint = registry.get("bras")?.blueprint(SETTINGS).ok()?;
        let pool = Pool::builder().frames(512).large(16, 4_096).build().ok()?;
        let worker = Worker::new(0, 1, pool.clone());
        let mut builder = GraphBuilder::new("exercise");
        let node = builder.add_function("bras", &blueprint, &worker).ok()?;
        let (wires, sinks) = <([Wire; 2], [Sink; 2])>::default();
        for (port, output) in builder.outputs(node).to_vec().into_iter().enumerate() {
            let source = builder.add(format!("in{port}"), Box::new(wires[port].clone())).ok()?;
            builder.connect(source, Edge::OUT, node, port).ok()?;
            let sink = builder.add(format!("out{port}"), Box::new(sinks[port].clone())).ok()?;
            builder.connect(node, output.edge, sink, 0).ok()?;
        }
        let graph = builder.build(pool.clone()).ok()?;
        Some(Self { graph, pool, wires, sinks, now: SECOND, id: 0 })
    }

    fn send(&mut self, port: usize, frame: Vec<u8>) -> Vec<Vec<u8>> {
        self.wires[port].0.borrow_mut().push_back(frame);
        self.run();
        self.sinks[port].0.take()
    }

    /// Takes turns until nothing moves.
    fn run(&mut self) {
        let mut idle = 0;
        while idle < 4 {
            match self.graph.turn(self.now) {
                Turn::Moved(packets) if packets > 0 => idle = 0,
                _ => idle += 1,
            }
        }
    }

    /// Opens a session, up to IPCP.
    fn open(&mut self) -> Option<()> {
        let padi = [&[0xff; 6][..], &HOST, &[0x88, 0x63, 0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0]].concat();
        let offer = self.send(0, padi).pop()?;
        let at = offer.windows(4).position(|tag| tag == [1, 4, 0, 16])?;
        let tags = [&[1, 1, 0, 0][..], offer.get(at..at + 20)?].concat();
        let padr = [&AC[..], &HOST, &[0x88, 0x63, 0x11, 0x19, 0, 0, 0, tags.len() as u8], &tags].concat();
        let answers = self.send(0, padr);
        let pads = answers.first()?;
        self.id = u16::from_be_bytes([*pads.get(16)?, *pads.get(17)?]);
        self.agree(0xc021, answers.last()?, &[])?;
        let last = self.sinks[0].0.take();
        let request = |frames: &[Vec<u8>], number: u16| {
            frames
                .iter()
                .find(|frame| frame.get(20..23) == Some(&[(number >> 8) as u8, number as u8, 1]))
                .cloned()
        };
        self.agree(0x8021, &request(&last, 0x8021)?, &[3, 6, 10, 0, 1, 0])?;
        let _ = request(&last, 0x8057)
            .and_then(|frame| self.agree(0x8057, &frame, &[1, 10, 0, 0, 0, 0, 0, 0, 0, 9]));
        self.sinks.iter().for_each(|sink| sink.0.borrow_mut().clear());
        Some(())
    }

    /// Acknowledges a Configure-Request of the concentrator, and sends one with these options.
    fn agree(&mut self, protocol: u16, request: &[u8], wishes: &[u8]) -> Option<()> {
        let len = usize::from(u16::from_be_bytes([*request.get(24)?, *request.get(25)?]));
        let mut ack = request.get(22..22 + len)?.to_vec();
        *ack.first_mut()? = 2;
        let own = [&[1, 1, 0, 4 + wishes.len() as u8], wishes].concat();
        let mut heard = self.send(0, session(self.id, protocol, &ack));
        heard.extend(self.send(0, session(self.id, protocol, &own)));
        self.sinks[0].0.borrow_mut().extend(heard);
        Some(())
    }
}

/// The frame that a piece of input stands for. Its first byte says how much of it is put right.
fn frame(choice: u8, content: &[u8], id: u16) -> Vec<u8> {
    let protocol =
        [0xc021, 0x8021, 0x8057, 0x0021, 0x0057, 0xc023, 0xc223, 0x80fd][usize::from(choice >> 1 & 7)];
    match choice >> 5 {
        0..=2 => session(id, protocol, content),
        3 => {
            let code = [0x09, 0x19, 0xa7, 0x65][usize::from(choice >> 1 & 3)];
            let [c, d] = (content.len() as u16).to_be_bytes();
            [&AC[..], &HOST, &[0x88, 0x63, 0x11, code, 0, 0, c, d], content].concat()
        }
        4 => [&AC[..], &GATEWAY, &[8, 0], content].concat(),
        _ => content.to_vec(),
    }
}

/// Runs `around` over the work of a thousand packets each way in an open session, after as many before it.
pub fn steady(around: impl FnOnce(&mut dyn FnMut())) {
    let Some(mut bench) = Bench::new() else { panic!("the settings fit") };
    assert!(bench.open().is_some(), "a session opens");
    let packet = |from: [u8; 4], to: [u8; 4]| {
        let up = netbricks_core::packet::build::ethernet().source(mac(GATEWAY)).destination(mac(AC));
        let built =
            up.ipv4(std::net::Ipv4Addr::from(from), std::net::Ipv4Addr::from(to)).ttl(9).udp(1, 2).build();
        built.unwrap_or_default()
    };
    let up = session(bench.id, 0x0021, &packet([10, 0, 1, 0], [192, 0, 2, 1])[14..]);
    let down = packet([192, 0, 2, 1], [10, 0, 1, 0]);
    let fill = |bench: &mut Bench| {
        bench.wires[0].0.borrow_mut().extend((0..1_000).map(|_| up.clone()));
        bench.wires[1].0.borrow_mut().extend((0..1_000).map(|_| down.clone()));
    };
    bench.sinks.iter().for_each(|sink| sink.1.set(Some(0)));
    fill(&mut bench);
    bench.run();
    fill(&mut bench);
    around(&mut || bench.run());
    assert_eq!(bench.sinks.each_ref().map(|sink| sink.1.get()), [Some(2_000); 2]);
    let now = bench.now;
    bench.graph.drain(now);
}

fn mac(octets: [u8; 6]) -> netbricks_core::packet::MacAddress {
    netbricks_core::packet::MacAddress::new(octets)
}

/// Takes the input for frames, each a byte of choices and two bytes of its length before its content.
pub fn frames(mut bytes: &[u8]) {
    let Some(mut bench) = Bench::new() else { panic!("the settings fit") };
    assert!(bench.open().is_some(), "a session opens");
    let mut count = 0;
    while let [choice, high, low, rest @ ..] = bytes
        && count < 32
    {
        count += 1;
        let len = usize::from(u16::from_be_bytes([*high, *low]) & 0x7ff).min(rest.len());
        let port = usize::from(choice & 1);
        let frame = frame(*choice, &rest[..len], bench.id);
        let mut left = bench.send(port, frame);
        left.extend(bench.sinks[1 - port].0.take());
        for frame in left {
            check(&frame);
        }
        bench.now += u64::from(*low) * SECOND / 64;
        bytes = &rest[len..];
    }
    assert_eq!(bench.graph.take_panics(), []);
    let now = bench.now;
    bench.graph.drain(now);
    assert!(bench.graph.totals().is_conserved(), "{:?}", bench.graph.totals());
    drop(bench.graph);
    assert_eq!(bench.pool.available(), bench.pool.capacity(), "packets leaked");
}

/// Checks a frame that left: sound lengths, and addresses that the session may have.
fn check(frame: &[u8]) {
    assert!(frame.len() >= 14, "a frame leaves without a link header");
    if frame[6..12] != AC {
        panic!("it is not from the concentrator: {frame:02x?}");
    }
    match frame[12..14] {
        [0x88, 0x63 | 0x64] => {
            let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            assert!(20 + len <= frame.len(), "its length leads beyond it: {frame:02x?}");
            assert!(len <= 1_494, "it is larger than the session takes: {len}");
        }
        [8, 0] => {
            let Some((ip, _)) = Ip::in_frame(frame) else { panic!("it is no IP packet: {frame:02x?}") };
            assert_ne!(ip.ttl(), 0, "it had no hops left");
            if let IpRef::V4(header) = ip {
                assert!(header.checksum_is_valid(), "{frame:02x?}");
                let own = [[10, 0, 0, 1], [10, 0, 1, 0]].map(std::net::Ipv4Addr::from);
                assert!(own.contains(&header.source()), "spoofed: {frame:02x?}");
            }
        }
        _ => {}
    }
}
