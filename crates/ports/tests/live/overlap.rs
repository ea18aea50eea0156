//! Whose bytes count where TCP segments overlap: the kernel's, by what a socket reads, against the reassembler's default policy
//! fed the same segments. They go through a TAP device, whose other end is the kernel's stack.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::Context;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Ip, Link, Tcp};
use netbricks_core::stream::{End, Overlap, Reassembler, Segment, StreamConfig, What};
use netbricks_ports::{Port, ReceiveQueue, TransmitQueue};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::fixture::{Lab, open};

/// Seeded schedules.
const SCHEDULES: u64 = 400;
const US: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PORT: u16 = 7_000;
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]];

/// The near end of a TAP device: what is written there comes to the kernel as from a wire.
struct Wire {
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
    pool: Pool,
    cx: Context,
    batch: Batch,
    came: VecDeque<Vec<u8>>,
    _port: Box<dyn Port>,
}

impl Wire {
    fn open() -> Self {
        let pool = Pool::builder().frames(2_048).build().unwrap();
        let text = "driver = \"tap\"\ndevice = \"t0\"\noffload = false\nmac = \"02:00:00:00:00:01\"\naddress = \"10.9.0.1/24\"\n";
        let mut port = open("port", text, &pool, 1).unwrap();
        let (receive, transmit) = (port.take_receive(0).unwrap(), port.take_transmit(0).unwrap());
        let cx = Context::new(pool.clone());
        Self { receive, transmit, pool, cx, batch: Batch::new(), came: VecDeque::new(), _port: port }
    }

    fn send(&mut self, client: u16, sequence: u32, acknowledgment: u32, flag: u8, bytes: &[u8]) {
        let frame = ethernet().source(MAC[0]).destination(MAC[1]).ipv4(US, KERNEL).tcp(client, PORT);
        let frame = frame.sequence(sequence).ack(acknowledgment).flags(flag).payload(bytes).build().unwrap();
        assert!(self.batch.push(self.pool.packet(&frame).unwrap()).is_ok());
        while !self.batch.is_empty() {
            self.transmit.transmit(&mut self.batch, &mut self.cx);
        }
        assert_eq!(self.cx.take_drops().total().packets, 0, "the device took it");
    }

    /// The next TCP header that the kernel sends to `client`: sequence number and flags.
    fn hear(&mut self, client: u16) -> (u32, u8) {
        let start = Instant::now();
        loop {
            while let Some(frame) = self.came.pop_front() {
                let Ok(link) = Layer::<Root, Link>::parse(Root, &frame) else { continue };
                let Ok(ip) = Layer::<_, Ip>::parse(link, &frame) else { continue };
                let Ok(tcp) = Layer::<_, Tcp>::parse(ip, &frame) else { continue };
                let header = Tcp::view(&frame[ip.end()..tcp.end()], ());
                if header.destination_port() == client {
                    return (header.sequence_number(), header.flags());
                }
            }
            assert!(start.elapsed() < Duration::from_secs(10), "the kernel does not answer {client}");
            self.drain();
        }
    }

    /// Takes what the kernel sent.
    fn drain(&mut self) {
        let mut batch = Batch::new();
        self.receive.receive(&mut batch, &mut self.cx);
        self.came.extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
}

/// A segment of a schedule: where it begins, its bytes, whether the stream ends behind it.
struct Piece {
    at: u32,
    bytes: Vec<u8>,
    ends: bool,
}

/// Segments over the same bytes that say different things, in whatever order, and at last the whole stream once more, so that
/// nothing is missing.
fn schedule(random: &mut impl Rng) -> Vec<Piece> {
    let mut below = |most: u32| random.next_u32() % most;
    let length = 60 + below(2_400);
    let longest = 1 + below(length.min(900));
    let mut pieces = Vec::new();
    let mut piece = |at: u32, len: u32, said: u32| {
        // Who said it and where, so that no two agree by chance.
        let bytes = (at..at + len).map(|place| (said * 37 + place % 31) as u8).collect();
        pieces.push(Piece { at, bytes, ends: at + len == length && said.is_multiple_of(3) });
    };
    let count = 2 + below(9);
    for said in 1..=count {
        let at = below(length);
        // Often where another one begins or ends.
        let at = if below(3) == 0 { at / 50 * 50 } else { at };
        let len = (1 + below(longest)).min(length - at);
        let len = if below(3) == 0 { len.next_multiple_of(50).min(length - at) } else { len };
        piece(at, len, said);
        if below(6) == 0 {
            piece(at, len, said);
        }
    }
    let mut at = 0;
    while at < length {
        let len = (1 + below(1_200)).min(length - at);
        piece(at, len, 100 + count);
        at += len;
    }
    if let Some(last) = pieces.last_mut() {
        last.ends = true;
    }
    pieces
}

#[test]
fn overlaps_are_resolved_as_linux_resolves_them() {
    let Some(lab) = Lab::new(&["host"]) else { return };
    let (opened, is_open) = mpsc::channel();
    let (known, is_known) = mpsc::channel();
    let thread = lab.inside("host", move || {
        let mut wire = Wire::open();
        opened.send(()).unwrap();
        is_known.recv().unwrap();
        let listener = TcpListener::bind((KERNEL, PORT)).unwrap();
        (0..SCHEDULES).fold([0; 2], |[first, last], seed| {
            let [not_first, not_last] = agree(&mut wire, &listener, seed);
            [first + u64::from(not_first), last + u64::from(not_last)]
        })
    });
    // Nobody answers the kernel's ARP requests.
    is_open.recv().unwrap();
    lab.run("host", "ip neighbour replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    known.send(()).unwrap();
    let told_apart = thread.join().unwrap();
    // Else the schedules show nothing.
    assert!(told_apart.iter().all(|count| *count > SCHEDULES / 4), "other policies: {told_apart:?}");
}

/// Sends a schedule to a socket and to reassemblers; what the socket reads must be what the default policy tells. Answers
/// which of the others would have told something else.
fn agree(wire: &mut Wire, listener: &TcpListener, seed: u64) -> [bool; 2] {
    let mut random = Xoshiro256StarStar::seed_from_u64(seed);
    let pieces = schedule(&mut random);
    let client = 20_000 + seed as u16;
    // Numbers wrap in the middle of some.
    let first =
        if seed.is_multiple_of(4) { 0u32.wrapping_sub(random.next_u32() % 1_000) } else { random.next_u32() };
    wire.send(client, first.wrapping_sub(1), 0, flags::SYN, b"");
    let (number, answer) = wire.hear(client);
    assert_eq!(answer, flags::SYN | flags::ACK, "seed {seed}");
    let acknowledgment = number.wrapping_add(1);
    wire.send(client, first, acknowledgment, flags::ACK, b"");
    let (stream, _) = listener.accept().unwrap();
    for Piece { at, bytes, ends } in &pieces {
        let fin = if *ends { flags::FIN } else { 0 };
        wire.send(client, first.wrapping_add(*at), acknowledgment, flags::ACK | fin, bytes);
        wire.drain();
    }
    let read = read(stream, seed);
    wire.send(client, first.wrapping_add(read.len() as u32 + 1), acknowledgment, flags::RST, b"");
    let told = [Overlap::Linux, Overlap::First, Overlap::Last]
        .map(|overlap| reassembled(overlap, client, first, &pieces));
    let differs = read.iter().zip(&told[0]).position(|(read, told)| read != told);
    assert!(
        read == told[0],
        "seed {seed}: the socket read {} bytes, told were {}; they differ first at {differs:?}: {:?}",
        read.len(),
        told[0].len(),
        pieces.iter().map(|piece| (piece.at, piece.bytes.len(), piece.ends)).collect::<Vec<_>>()
    );
    [told[1] != told[0], told[2] != told[0]]
}

fn read(mut stream: TcpStream, seed: u64) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .unwrap_or_else(|error| panic!("seed {seed}: {} bytes, then {error}", bytes.len()));
    bytes
}

fn reassembled(overlap: Overlap, client: u16, first: u32, pieces: &[Piece]) -> Vec<u8> {
    let mut streams =
        Reassembler::<Tcp>::new(StreamConfig { overlap, flows: 1, ..StreamConfig::default() }).unwrap();
    let flow = FlowKey::new(IpAddr::from(US), IpAddr::from(KERNEL), client, PORT, 6);
    let (mut whole, mut end) = (Vec::new(), None);
    let mut push = |number: u32, opens: bool, ends: bool, bytes: &[u8]| {
        let number = u64::from(number);
        let segment = Segment {
            number,
            opens,
            answers: false,
            ends,
            aborts: false,
            acknowledges: None,
            credit: None,
            bytes,
        };
        streams.push(flow, segment, 0, |told| match told.what {
            What::Bytes(more) => whole.extend_from_slice(more),
            What::End(why) => end = Some(why),
            What::Gap(missing) => panic!("{missing} bytes are missing"),
        });
    };
    push(first, true, false, b"");
    for piece in pieces {
        push(first.wrapping_add(piece.at), false, piece.ends, &piece.bytes);
    }
    assert_eq!(end, Some(End::Finished));
    whole
}
