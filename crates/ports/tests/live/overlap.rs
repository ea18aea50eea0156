//! The kernel and the reassembler agree on overlapping TCP segments.
//!
//! The kernel's result is the stream that a socket reads; the reassembler has its default policy and gets the
//! same frames. The schedules also have ends and bytes that contradict each other, and segments that do not
//! count at all. The frames go through a TAP device, whose other end is the kernel's stack.

use std::collections::VecDeque;
use std::io::Read;
use std::iter;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::DetachedContext;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Ip, Link, Tcp};
use netbricks_ports::{Port, ReceiveQueue, TransmitQueue};
use netbricks_testkit::stream::{End, Overlap, Protocol, Reassembler, StreamConfig, What};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::fixture::{Lab, open};

/// The number of seeded schedules.
const SCHEDULES: u64 = 1_000;
const US: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PORT: u16 = 7_000;
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]];

/// The near end of a TAP device: frames that are written there arrive at the kernel as from a wire.
struct Wire {
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
    pool: Pool,
    cx: DetachedContext,
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
        let cx = DetachedContext::new(pool.clone());
        Self { receive, transmit, pool, cx, batch: Batch::new(), came: VecDeque::new(), _port: port }
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.batch.push(self.pool.packet(frame).unwrap()).is_ok());
        while !self.batch.is_empty() {
            self.transmit.transmit(&mut self.batch, &mut self.cx);
        }
        assert_eq!(self.cx.take_drops().total().packets, 0, "the device took it");
    }

    /// The next TCP header that the kernel sends to `client`: sequence number, flags, and the frame.
    fn hear(&mut self, client: u16) -> (u32, u8, Vec<u8>) {
        let start = Instant::now();
        loop {
            while let Some(frame) = self.came.pop_front() {
                let Some((flow, at)) = tcp(&frame) else { continue };
                let header = Tcp::view(&frame[at], ());
                if flow.destination_port() == client {
                    let (number, flag) = (header.sequence_number(), header.flags());
                    return (number, flag, frame);
                }
            }
            assert!(start.elapsed() < Duration::from_secs(120), "the kernel does not answer {client}");
            self.drain();
        }
    }

    /// Takes the frames that the kernel sent.
    fn drain(&mut self) {
        let mut batch = Batch::new();
        self.receive.receive(&mut batch, &mut self.cx);
        self.came.extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
}

/// The flow of a frame, and the place of its TCP header.
fn tcp(frame: &[u8]) -> Option<(FlowKey, Range<usize>)> {
    let ip = Layer::<_, Ip>::parse(Layer::<Root, Link>::parse(Root, frame).ok()?, frame).ok()?;
    let (at, facts) = ip.top();
    let flow = FlowKey::at(frame, at, ip.end(), ip.limit(frame.len()), facts);
    let tcp = Layer::<_, Tcp>::parse(ip, frame).ok()?;
    Some((flow, ip.end()..tcp.end()))
}

/// A frame from a client.
fn frame(client: u16, sequence: u32, acknowledgment: u32, flag: u8, bytes: &[u8]) -> Vec<u8> {
    let frame = ethernet().source(MAC[0]).destination(MAC[1]).ipv4(US, KERNEL).tcp(client, PORT);
    frame.sequence(sequence).ack(acknowledgment).flags(flag).payload(bytes).build().unwrap()
}

/// A segment of a schedule: its start, its bytes and its flags.
///
/// `with` are its flags in addition to ACK, `without` the flags that it lacks.
struct Piece {
    at: u32,
    bytes: Vec<u8>,
    with: u8,
    without: u8,
}

impl Piece {
    fn flags(&self) -> u8 {
        (flags::ACK | self.with) & !self.without
    }
}

/// A schedule of segments over the same bytes with different contents, in any order.
///
/// No receiver takes some of them, and there may be an end before the end. The whole stream follows once more
/// at last, so that no bytes are missing.
fn schedule(random: &mut impl Rng) -> Vec<Piece> {
    let mut below = |most: u32| random.next_u32() % most;
    let length = 60 + below(2_400);
    let longest = 1 + below(length.min(900));
    // The bytes depend on the segment and the place, so that no two segments agree by chance.
    let said = |number: u32, at: u32, len: u32| -> Vec<u8> {
        (at..at + len).map(|place| (number * 37 + place % 31) as u8).collect()
    };
    let mut pieces = Vec::new();
    let mut piece = |at: u32, len: u32, number: u32| {
        let with = if at + len == length && number.is_multiple_of(3) { flags::FIN } else { 0 };
        pieces.push(Piece { at, bytes: said(number, at, len), with, without: 0 });
    };
    let count = 2 + below(9);
    for number in 1..=count {
        let at = below(length);
        // Often where another segment begins or ends.
        let at = if below(3) == 0 { at / 50 * 50 } else { at };
        let len = (1 + below(longest)).min(length - at);
        let len = if below(3) == 0 { len.next_multiple_of(50).min(length - at) } else { len };
        piece(at, len, number);
        if below(6) == 0 {
            piece(at, len, number);
        }
    }
    // A wrong end, with or without bytes before it: some later segments go beyond it.
    if below(2) == 0 {
        let at = below(length);
        let bytes = vec![b'e'; below(longest.min(length - at) + 1) as usize];
        let end = at + bytes.len() as u32;
        let place = below(count + 1) as usize;
        // Linux joins bytes that begin directly behind an end to it, and then finds that end behind both.
        if pieces.iter().all(|piece| piece.at != end + 1) {
            pieces.insert(place.min(pieces.len()), Piece { at, bytes, with: flags::FIN, without: 0 });
        }
    }
    // Linux may join a segment to one that it directly follows, although it also overlaps or follows another.
    // The shape of its tree decides to which one.
    let ranges: Vec<Range<u32>> =
        pieces.iter().map(|Piece { at, bytes, .. }| *at..at + bytes.len() as u32).collect();
    let is_odd = |at: u32| {
        let before = ranges.iter().filter(|range| range.start < at && at <= range.end);
        let last = before.clone().find(|range| range.end == at);
        last.is_some_and(|last| before.clone().any(|other| other != last))
    };
    pieces.retain(|piece| !is_odd(piece.at));
    // A segment behind the window does not count, and neither does its end.
    if below(2) == 0 {
        let (place, at) = (below(count) as usize, (1 << 17) + below(length));
        let with = [0, flags::FIN][below(2) as usize];
        pieces.insert(place.min(pieces.len()), Piece { at, bytes: vec![b'w'; 50], with, without: 0 });
    }
    // A segment without acknowledgment does not count, and neither does one without any flag.
    for _ in 0..below(3) {
        let (place, at) = (below(count) as usize, below(length));
        let bytes = vec![b'n'; 1 + below(100) as usize];
        let with = [0, flags::PSH, flags::FIN][below(3) as usize];
        pieces.insert(place.min(pieces.len()), Piece { at, bytes, with, without: flags::ACK });
    }
    let mut at = 0;
    while at < length {
        let len = (1 + below(1_200)).min(length - at);
        let with = if at + len == length { flags::FIN } else { 0 };
        pieces.push(Piece { at, bytes: said(100 + count, at, len), with, without: 0 });
        at += len;
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
    // The kernel's ARP requests get no answer.
    is_open.recv().unwrap();
    lab.run("host", "ip neighbour replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    known.send(()).unwrap();
    let told_apart = thread.join().unwrap();
    // Otherwise the schedules show nothing.
    assert!(told_apart.iter().all(|count| *count > SCHEDULES / 4), "other policies: {told_apart:?}");
}

/// Sends a schedule to a socket and to reassemblers.
///
/// The socket must read the bytes that the default policy gives. Answers which of the other policies would
/// have given other bytes.
fn agree(wire: &mut Wire, listener: &TcpListener, seed: u64) -> [bool; 2] {
    let mut random = Xoshiro256StarStar::seed_from_u64(seed);
    let pieces = schedule(&mut random);
    let client = 20_000 + seed as u16;
    // Sequence numbers wrap in the middle of some schedules.
    let first =
        if seed.is_multiple_of(4) { 0u32.wrapping_sub(random.next_u32() % 1_000) } else { random.next_u32() };
    let mut frames = vec![frame(client, first.wrapping_sub(1), 0, flags::SYN, b"")];
    wire.send(&frames[0]);
    let (number, flag, answer) = wire.hear(client);
    assert_eq!(flag, flags::SYN | flags::ACK, "seed {seed}");
    frames.push(answer);
    let acknowledgment = number.wrapping_add(1);
    let rest = iter::once((first, flags::ACK, &[][..])).chain(
        pieces.iter().map(|piece| (first.wrapping_add(piece.at), piece.flags(), piece.bytes.as_slice())),
    );
    for (place, (sequence, flag, bytes)) in rest.enumerate() {
        frames.push(frame(client, sequence, acknowledgment, flag, bytes));
        wire.send(&frames[2 + place]);
        wire.drain();
    }
    let (stream, _) = listener.accept().unwrap();
    let read = read(stream, seed);
    let behind = first.wrapping_add(read.len() as u32 + 1);
    wire.send(&frame(client, behind, acknowledgment, flags::RST, b""));
    let told =
        [Overlap::Linux, Overlap::First, Overlap::Last].map(|overlap| reassembled(overlap, client, &frames));
    let differs = read.iter().zip(&told[0]).position(|(read, told)| read != told);
    assert!(
        read == told[0],
        "seed {seed}: the socket read {} bytes, told were {}; they differ first at {differs:?}: {:?}",
        read.len(),
        told[0].len(),
        pieces.iter().map(|piece| (piece.at, piece.bytes.len(), piece.flags())).collect::<Vec<_>>()
    );
    [told[1] != told[0], told[2] != told[0]]
}

fn read(mut stream: TcpStream, seed: u64) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .unwrap_or_else(|error| panic!("seed {seed}: {} bytes, then {error}", bytes.len()));
    bytes
}

fn reassembled(overlap: Overlap, client: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut streams =
        Reassembler::<Tcp>::new(StreamConfig { overlap, flows: 1, ..StreamConfig::default() }).unwrap();
    let (mut whole, mut end) = (Vec::new(), None);
    for frame in frames {
        let (flow, at) = tcp(frame).unwrap();
        let segment = Tcp::segment(Tcp::view(&frame[at.clone()], ()), &frame[at.end..]);
        streams.push(flow, segment, 0, |told| match told.what {
            _ if told.flow.source_port() != client => {}
            What::Bytes(more) => whole.extend_from_slice(more),
            What::End(why) => end = Some(why),
            What::Urgent(byte) => panic!("{byte} is not urgent"),
            What::Gap(missing) => panic!("{missing} bytes are missing"),
        });
    }
    assert_eq!(end, Some(End::Finished));
    whole
}
