//! Tests of streams that are rewritten behind a shuffle on two workers, while their buckets move back and
//! forth.
//!
//! Both ends of every connection must get the other end's bytes, rewritten.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, Link, Tcp, checksum};
use netbricks_core::{Blueprint, Edge, Operator, compose};
use netbricks_stream::{Fate, InlineWindowConfig, PacketizeConfig, StreamOperator, Why};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

use super::two_workers::{Two, by_name};

const CONNECTIONS: u16 = 24;
const FIND: &[u8] = b"abcab";
const PUT: &[u8] = b"<longer than that>";

/// Most bytes that a sender has in flight, and bytes of a segment.
const FLIGHT: usize = 120;
const SEGMENT: usize = 40;
/// Rounds without news after which a sender sends again.
const PATIENCE: usize = 10;

/// One end of a connection; positions count from its first byte, and its FIN is behind the last byte.
struct End {
    data: Vec<u8>,
    first: u32,
    una: usize,
    next: usize,
    /// The position behind all bytes that it has ever sent.
    most: usize,
    quiet: usize,
    timeouts: usize,
    /// The bytes that came, by position, and the number of bytes without a hole.
    seen: BTreeMap<usize, u8>,
    has: usize,
    end: Option<usize>,
    owes: bool,
}

impl End {
    fn new(random: &mut Random) -> Self {
        let data = (0..5_000 + random.below(2_000)).map(|_| b"abcab"[random.below(5)]).collect();
        let first = random.next() as u32;
        Self {
            data,
            first,
            una: 0,
            next: 0,
            most: 0,
            quiet: 0,
            timeouts: 0,
            seen: BTreeMap::new(),
            has: 0,
            end: None,
            owes: false,
        }
    }
    fn is_done(&self) -> bool {
        self.una == self.data.len() + 1 && self.end == Some(self.has)
    }
    fn number(&self, place: usize) -> u32 {
        self.first.wrapping_add(place as u32)
    }
    /// The acknowledgment number for all bytes of the other end that it has.
    fn acknowledgment(&self, peer: u32) -> u32 {
        peer.wrapping_add((self.has + usize::from(self.end == Some(self.has))) as u32)
    }

    /// The pieces of its stream that it sends now; an empty piece only acknowledges.
    fn speak(&mut self, random: &mut Random) -> Vec<(usize, usize)> {
        self.quiet += usize::from(self.una < self.next);
        if self.quiet > PATIENCE {
            (self.next, self.quiet) = (self.una, 0);
            self.timeouts += 1;
        }
        let mut pieces = Vec::new();
        let all = self.data.len() + 1;
        while self.next < all.min(self.una + FLIGHT) && pieces.len() < 3 {
            let to = (self.next + 1 + random.below(SEGMENT)).min(all);
            pieces.push((self.next, to));
            self.next = to;
        }
        self.most = self.most.max(self.next);
        if pieces.is_empty() && std::mem::take(&mut self.owes) {
            pieces.push((self.next, self.next));
        }
        pieces
    }

    fn hear(&mut self, Said { number, acknowledgment, bytes, ends, .. }: Said<'_>, peer: u32) {
        let acknowledged = acknowledgment.wrapping_sub(self.number(self.una)) as usize;
        if (1..=self.most - self.una).contains(&acknowledged) {
            self.una += acknowledged;
            self.next = self.next.max(self.una);
            self.quiet = 0;
        }
        let start = self.has as i64
            + i64::from(number.wrapping_sub(peer.wrapping_add(self.has as u32)).cast_signed());
        self.owes |= !bytes.is_empty() || ends;
        if ends {
            let end = (start + bytes.len() as i64) as usize;
            assert_eq!(*self.end.get_or_insert(end), end, "the end stays where it is");
        }
        for (at, byte) in (start..).zip(bytes) {
            // A single old byte only asks for an acknowledgment, so its value does not matter.
            if at >= 0 && (bytes.len() > 1 || at as usize >= self.has) {
                assert_eq!(self.seen.entry(at as usize).or_insert(*byte), byte, "sent again as it was");
            }
        }
        while self.seen.contains_key(&self.has) {
            self.has += 1;
        }
    }
}

fn frame(connection: u16, from_server: bool, ends: &[End; 2], piece: (usize, usize), opens: bool) -> Vec<u8> {
    let [own, other] = [usize::from(from_server), usize::from(!from_server)].map(|end| &ends[end]);
    let (client, server) = ("10.0.0.1", "10.9.8.7");
    let tcp = match from_server {
        false => ethernet().ipv4(client, server).tcp(1_000 + connection, 80),
        true => ethernet().ipv4(server, client).tcp(80, 1_000 + connection),
    };
    let acknowledges = if opens && !from_server { 0 } else { flags::ACK };
    let syn = if opens { flags::SYN } else { 0 };
    let tcp =
        tcp.sequence(own.number(piece.0).wrapping_sub(u32::from(opens))).ack(own.acknowledgment(other.first));
    let len = own.data.len();
    let fin = if piece.0 <= len && piece.1 > len { flags::FIN } else { 0 };
    let tcp = tcp.flags(acknowledges | syn | fin).window(60_000);
    tcp.payload(&own.data[piece.0.min(len)..piece.1.min(len)]).build().unwrap()
}

/// The relevant fields of a frame.
struct Said<'f> {
    from_server: bool,
    connection: u16,
    number: u32,
    acknowledgment: u32,
    ends: bool,
    bytes: &'f [u8],
}

fn read(frame: &[u8]) -> Said<'_> {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let [source, destination] = [26, 30].map(|at| IpAddr::from(Ipv4Addr::from(word(at))));
    assert_eq!(checksum::is_valid(source, destination, 6, &frame[34..]), Some(true));
    let from_server = port(34) == 80;
    let client = if from_server { port(36) } else { port(34) };
    Said {
        from_server,
        connection: client - 1_000,
        number: word(38),
        acknowledgment: word(42),
        ends: frame[47] & flags::FIN != 0,
        bytes: &frame[34 + usize::from(frame[46] >> 4) * 4..],
    }
}

fn rewritten(data: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    text(data).replace(&text(FIND), &text(PUT)).into_bytes()
}

/// All ends talk until each end has all bytes of the other end.
///
/// Of 100 frames, `trouble` are lost before the workers, and as many behind them. Returns the workers, how
/// often buckets moved, and how often an end sent again.
fn talk(blueprint: &Blueprint, seed: u64, trouble: usize) -> (Two, usize, usize) {
    let (mut two, mut random) = (Two::new(blueprint), Random::new(seed));
    let mut all: Vec<[End; 2]> =
        (0..CONNECTIONS).map(|_| [End::new(&mut random), End::new(&mut random)]).collect();
    for (number, ends) in (0..).zip(&all) {
        for from_server in [false, true] {
            assert_eq!(two.exchange(vec![frame(number, from_server, ends, (0, 0), true)], 6).len(), 1);
        }
    }
    let (mut moves, mut workers) = (0, [0; 2]);
    let mut rounds = 0;
    while !all.iter().flatten().all(End::is_done) {
        rounds += 1;
        assert!(rounds < 20_000, "it does not end");
        if two.graphs[0].call("shuffle", "moving", "").unwrap() == "0" {
            let first = random.below(4_096);
            let last = first + random.below(4_096 - first);
            let moved = format!("{first}-{last} {}", random.below(2));
            moves += usize::from(two.graphs[0].call("shuffle", "move", &moved).unwrap() != "0");
        }
        let mut frames = Vec::new();
        for (number, ends) in (0..).zip(&mut all) {
            for from_server in [false, true] {
                for piece in ends[usize::from(from_server)].speak(&mut random) {
                    if random.below(100) >= trouble {
                        frames.push(frame(number, from_server, ends, piece, false));
                    }
                }
            }
        }
        for at in (1..frames.len()).filter(|_| trouble > 0) {
            frames.swap(at, at - random.below(2));
        }
        // Some of its output comes while the next round goes in.
        for (worker, frame) in two.exchange(frames, 1 + random.below(3)) {
            workers[worker] += 1;
            if random.below(100) >= trouble {
                let said = read(&frame);
                let ends = &mut all[usize::from(said.connection)];
                let peer = ends[usize::from(said.from_server)].first;
                ends[usize::from(!said.from_server)].hear(said, peer);
            }
        }
    }
    while two.graphs[0].call("shuffle", "moving", "").unwrap() != "0" {
        two.exchange(Vec::new(), 1);
    }
    assert!(workers[0] > 1_000 && workers[1] > 1_000, "{workers:?}");
    for ends in &all {
        for [from, to] in [[&ends[0], &ends[1]], [&ends[1], &ends[0]]] {
            let has: Vec<u8> = to.seen.values().copied().collect();
            assert_eq!(has.len(), to.has, "without a hole");
            assert!(has == rewritten(&from.data), "{} bytes", has.len());
        }
    }
    for graph in &mut two.graphs {
        assert_eq!(graph.call("shuffle", "refused", "").unwrap(), "0");
    }
    (two, moves, all.iter().flatten().map(|end| end.timeouts).sum())
}

#[test]
fn replaced_bytes_survive_moves_of_their_buckets() {
    let settings = format!(
        "find = \"{}\"\nreplace = \"{}\"\nfrom = \"both\"",
        String::from_utf8_lossy(FIND),
        String::from_utf8_lossy(PUT)
    );
    let function = by_name("rewrite-stream", &settings);
    for (seed, trouble) in [(1, 0), (2, 0), (3, 3), (4, 10)] {
        let (mut two, moves, timeouts) = talk(&function, seed, trouble);
        assert!(moves > 30, "{moves}");
        assert_eq!(timeouts > 0, trouble > 0, "{timeouts}: nothing is lost but what is lost on its way");
        let [one, other] = [0, 1].map(|worker| {
            let of = |name: &str, two: &mut Two| two.graphs[worker].call("function", name, "").unwrap();
            assert_eq!((of("no-room", &mut two), of("unchanged", &mut two)), ("0".into(), "0".into()));
            let text = of("streams.occupancy", &mut two);
            text.split(' ').next().and_then(|count| count.parse::<u16>().ok()).unwrap()
        });
        assert_eq!(one + other, CONNECTIONS);
    }
}

/// Inline windows, some of which are held until they are full.
#[test]
fn held_bytes_survive_moves_of_their_buckets() {
    let function = Blueprint::new(|worker| {
        compose(worker, |input| {
            let packets =
                PacketizeConfig { flows: 64, flow_memory: 64 << 10, memory: 4 << 20, ..Default::default() };
            let size = 32;
            let windows = InlineWindowConfig {
                memory: 128 * size,
                packets,
                ..InlineWindowConfig::new(size, size - 4, 0)
            };
            input
                .parse::<Link>()
                .or(Edge::OUT)
                .parse::<Ip>()
                .or(Edge::OUT)
                .parse::<Tcp>()
                .or(Edge::OUT)
                .window_in_path(worker, "streams", windows, |window, replacing| {
                    let mut at = 0;
                    while let Some(next) =
                        window.bytes[at..].windows(FIND.len()).position(|bytes| bytes == FIND)
                    {
                        at += next + FIND.len();
                        assert!(replacing.replace(at - FIND.len()..at, PUT));
                    }
                    // Another occurrence may begin here.
                    if window.why == Why::Due { Fate::Hold } else { Fate::Pass }
                })
                .done()
        })
    });
    for (seed, trouble) in [(1, 0), (2, 5)] {
        let (_, moves, _) = talk(&function, seed, trouble);
        assert!(moves > 30, "{moves}");
    }
}
