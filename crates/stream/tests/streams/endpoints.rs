//! Two models of TCP with a rewriter between them, over a network that loses, duplicates and reorders
//! packets.
//!
//! Each end must receive the other's bytes, rewritten, and both must end.

use std::collections::BTreeMap;

use netbricks_core::Declared;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    BLOCK, MidstreamPolicy, PacketizeConfig, Packetizer, Passage, Replace, Rewriter, Side,
};
use netbricks_testkit::mutate::Random;

use super::exercise::flow;

#[derive(Clone, Debug, PartialEq)]
struct Packet {
    number: u32,
    acknowledgment: u32,
    flags: u8,
    window: u16,
    bytes: Vec<u8>,
}

/// One end: an application that writes and reads everything at once, and the parts of TCP that make it
/// reliable.
struct End {
    name: &'static str,
    data: Vec<u8>,
    first: u32,
    /// Offsets: up to `una` the peer has the bytes, up to `next` they were sent. The FIN is one more.
    una: usize,
    next: usize,
    window: usize,
    peer_first: u32,
    /// Every byte that ever came, by its offset.
    seen: BTreeMap<usize, u8>,
    received: Vec<u8>,
    fin: Option<usize>,
    own_window: usize,
    segment: usize,
    duplicates: u32,
    due: u64,
}

const TIMEOUT: u64 = 200;

impl End {
    fn is_done(&self) -> bool {
        self.una == self.data.len() + 1 && self.fin == Some(self.received.len())
    }

    fn acknowledgment(&self) -> u32 {
        let fin = usize::from(self.fin == Some(self.received.len()));
        self.peer_first.wrapping_add((self.received.len() + fin) as u32)
    }

    fn packet(&self, from: usize, to: usize) -> Packet {
        let end = to.min(self.data.len());
        let fin = if from <= self.data.len() && to > self.data.len() { flags::FIN } else { 0 };
        Packet {
            number: self.first.wrapping_add(from as u32),
            acknowledgment: self.acknowledgment(),
            flags: flags::ACK | fin | if end == self.data.len() { flags::PSH } else { 0 },
            window: self.own_window as u16,
            bytes: self.data[from.min(end)..end].to_vec(),
        }
    }

    /// The packets that it sends by itself at `now`.
    fn poll(&mut self, now: u64, random: &mut Random, out: &mut Vec<Packet>) {
        let all = self.data.len() + 1;
        if self.una < self.next && now >= self.due {
            self.due = now + TIMEOUT;
            if random.below(3) == 0 {
                // Everything again, in other segments.
                self.next = self.una;
            } else {
                let to = (self.una + 1 + random.below(self.segment)).min(self.next);
                out.push(self.packet(self.una, to));
            }
        }
        while self.next < all.min(self.una + self.window.min(20 * self.segment)) {
            if self.next == self.una {
                self.due = now + TIMEOUT;
            }
            let most = (1 + random.below(self.segment)).min(self.una + self.window - self.next);
            let to = (self.next + most).min(all);
            out.push(self.packet(self.next, to));
            self.next = to;
        }
        if self.window == 0 && self.una == self.next && self.next < all && now >= self.due {
            // A window probe as Linux sends it: without bytes, one before the next byte.
            self.due = now + TIMEOUT;
            let number = self.first.wrapping_add(self.next as u32).wrapping_sub(1);
            out.push(Packet { number, ..self.packet(self.next, self.next) });
        }
    }

    fn take(&mut self, packet: &Packet, now: u64, out: &mut Vec<Packet>) {
        let acknowledged =
            packet.acknowledgment.wrapping_sub(self.first.wrapping_add(self.una as u32)).cast_signed();
        if acknowledged > 0 {
            self.una += acknowledged as usize;
            assert!(
                self.una <= self.next.max(self.una.min(self.data.len() + 1)),
                "{}: acknowledged what was not sent",
                self.name
            );
            self.next = self.next.max(self.una);
            (self.duplicates, self.due) = (0, now + TIMEOUT);
        } else if acknowledged == 0 && packet.bytes.is_empty() && self.una < self.next {
            self.duplicates += 1;
            if self.duplicates == 3 {
                out.push(self.packet(self.una, (self.una + self.segment).min(self.next)));
            }
        }
        if acknowledged >= 0 {
            self.window = usize::from(packet.window);
        }
        let has = self.received.len();
        let start = has as i64
            + i64::from(packet.number.wrapping_sub(self.peer_first.wrapping_add(has as u32)).cast_signed());
        for (at, byte) in packet.bytes.iter().enumerate() {
            let Ok(place) = usize::try_from(start + at as i64) else { continue };
            // A single old byte only asks for an acknowledgment; its value does not matter.
            if place < has && packet.bytes.len() == 1 || place >= has + self.own_window {
                continue;
            }
            let known = *self.seen.entry(place).or_insert(*byte);
            assert_eq!(known, *byte, "{}: byte {place} is another than before", self.name);
        }
        if packet.flags & flags::FIN != 0 {
            let end = (start + packet.bytes.len() as i64) as usize;
            assert_eq!(*self.fin.get_or_insert(end), end, "{}: the end moved", self.name);
        }
        while let Some(byte) = self.seen.get(&self.received.len()) {
            self.received.push(*byte);
        }
        let probes = start < has as i64;
        if !packet.bytes.is_empty() || packet.flags & flags::FIN != 0 || probes {
            out.push(self.packet(self.next, self.next));
        }
    }
}

/// The rewriter between the ends.
struct Middle<R: Rewriter> {
    packetizer: Packetizer<R>,
    flow: FlowKey,
    /// Decides when the line onwards takes no packet, if it ever does not.
    line: Option<Random>,
    elsewhere: Option<Elsewhere<R>>,
    /// A packetizer that the connection never leaves. Its output is the expected one.
    alone: Option<Packetizer<R>>,
}

/// The place to which the connection moves.
pub(crate) struct Elsewhere<R: Rewriter> {
    pub(crate) other: Packetizer<R>,
    pub(crate) random: Random,
    pub(crate) moves: usize,
}

impl<R: Rewriter> Elsewhere<R> {
    /// From time to time, the connection moves to the other place.
    pub(crate) fn change(&mut self, here: &mut Packetizer<R>, now: u64) {
        if self.random.below(6) > 0 {
            return;
        }
        let mut bytes = here.take_where(|_| true);
        assert_eq!((here.occupancy().0, here.memory()), (0, 0), "all memory is given back");
        if self.random.below(40) == 0 {
            let at = self.random.below(bytes.len());
            bytes[at] ^= 0x40;
            assert!(self.other.import(&bytes, now).is_err(), "byte {at}");
            assert_eq!((self.other.occupancy().0, self.other.memory()), (0, 0), "nothing was changed");
            bytes[at] ^= 0x40;
        }
        self.other.import(&bytes, now).expect("nothing is wrong with it");
        std::mem::swap(here, &mut self.other);
        self.moves += 1;
    }
}

/// The place to which the connection moves, and a packetizer that it never leaves.
type Both<R> = (Elsewhere<R>, Packetizer<R>);

/// All parts of a packet.
type Sent = (Packet, Vec<u8>, bool);

fn push<R: Rewriter>(
    packetizer: &mut Packetizer<R>,
    flow: FlowKey,
    bytes: &[u8],
    payload: &[u8],
    now: u64,
    mut takes: impl FnMut(usize) -> bool,
) -> (Passage, Vec<Sent>) {
    let mut out = Vec::new();
    let passage = packetizer.push(flow, Tcp::view(bytes, ()), payload, now, |emit| {
        if !takes(emit.len) {
            return false;
        }
        let mut bytes = vec![0; emit.len];
        emit.write(&mut bytes);
        let packet = Packet {
            number: emit.number,
            acknowledgment: emit.acknowledgment,
            flags: emit.flags,
            window: emit.window,
            bytes,
        };
        out.push((packet, emit.options.to_vec(), emit.back));
        true
    });
    (passage, out)
}

impl<R: Rewriter> Middle<R> {
    /// The packets that are sent onwards, and those that are sent back.
    fn pass(&mut self, from: Side, packet: &Packet, options: &[u8], now: u64) -> [Vec<Packet>; 2] {
        let mut header = Tcp::new(0, 0, packet.number, packet.acknowledgment, packet.flags);
        header.set_window(packet.window);
        let mut bytes = header.octets().to_vec();
        bytes[12] += (options.len() / 4 * 16) as u8;
        bytes.extend(options);
        let flow = if from == Side::Client { self.flow } else { self.flow.reversed() };
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.change(&mut self.packetizer, now);
        }
        let mut taken = Vec::new();
        let (passage, sent) = push(&mut self.packetizer, flow, &bytes, &packet.bytes, now, |len| {
            taken.push(len <= 1 || self.line.as_mut().is_none_or(|line| line.below(20) > 0));
            taken[taken.len() - 1]
        });
        if let Some(alone) = &mut self.alone {
            let mut taken = taken.into_iter();
            let alone = push(alone, flow, &bytes, &packet.bytes, now, |_| {
                taken.next().expect("no more is sent than by the others")
            });
            assert_eq!((&passage, &sent), (&alone.0, &alone.1), "as if it had not moved");
        }
        let mut out = [Vec::new(), Vec::new()];
        for (packet, _, back) in sent {
            out[usize::from(back)].push(packet);
        }
        match passage {
            Passage::Unchanged => [vec![packet.clone()], Vec::new()],
            Passage::Replaced | Passage::Refused => out,
            Passage::NoRoom => <[_; 2]>::default(),
        }
    }
}

pub(crate) fn replaced(data: &[u8], find: &[u8], put: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < data.len() {
        if data[at..].starts_with(find) {
            out.extend(put);
            at += find.len();
        } else {
            out.push(data[at]);
            at += 1;
        }
    }
    out
}

fn converse(seed: u64, trouble: usize) -> u64 {
    let mut random = Random::new(seed);
    // Few different bytes, so that the string and its beginnings occur often.
    let find: &[u8] = [&b"aab"[..], b"abcab", b"a", b"bbbb"][random.below(4)];
    let put: &[u8] = [&b"<longer than that>"[..], b"x", b"", b"aab"][random.below(4)];
    let replace = Replace::new(find, put, None).expect("both strings are short");
    let (packetizer, _) = conversation(random, trouble, CONFIG, replace, |data| replaced(data, find, put));
    packetizer.counters().replaced
}

pub(crate) const CONFIG: PacketizeConfig = PacketizeConfig {
    flows: 4,
    flow_memory: 64 * BLOCK,
    memory: 256 * BLOCK,
    edits: 4_096,
    idle: 1 << 40,
    midstream: MidstreamPolicy::Pass,
    seed: 1,
};

/// Two ends talk through a rewriter, and each must receive `expected` of the other's bytes.
///
/// Answers the rewriter and the bytes that they wrote.
pub(crate) fn conversation<R: Rewriter>(
    random: Random,
    trouble: usize,
    config: PacketizeConfig,
    rewriter: R,
    expected: impl Fn(&[u8]) -> Vec<u8>,
) -> (Packetizer<R>, [Vec<u8>; 2]) {
    let packetizer = Packetizer::new(config, rewriter).expect("so little memory is there");
    let (packetizer, _, sent) = conversation_between(random, trouble, packetizer, None, expected);
    (packetizer, sent)
}

/// As [`conversation`], in two places where `elsewhere` is given, and in one place that it never leaves.
#[expect(
    clippy::too_many_lines,
    reason = "one conversation from beginning to end, whose steps share a dozen local values"
)]
pub(crate) fn conversation_between<R: Rewriter>(
    mut random: Random,
    trouble: usize,
    packetizer: Packetizer<R>,
    elsewhere: Option<Both<R>>,
    expected: impl Fn(&[u8]) -> Vec<u8>,
) -> (Packetizer<R>, Option<Both<R>>, [Vec<u8>; 2]) {
    let text = |random: &mut Random, length: usize| -> Vec<u8> {
        (0..length).map(|_| b"abcab"[random.below(5)]).collect()
    };
    let lengths = [random.below(3_000), random.below(3_000)];
    let end = |name, length, random: &mut Random| End {
        name,
        data: text(random, length),
        first: if random.below(2) == 0 {
            random.next() as u32
        } else {
            0u32.wrapping_sub(random.below(2_000) as u32)
        },
        una: 0,
        next: 0,
        window: 0,
        peer_first: 0,
        seen: BTreeMap::new(),
        received: Vec::new(),
        fin: None,
        own_window: 200 + random.below(3_000),
        segment: 60 + random.below(100),
        duplicates: 0,
        due: 0,
    };
    let mut ends = [end("client", lengths[0], &mut random), end("server", lengths[1], &mut random)];
    (ends[0].peer_first, ends[1].peer_first) = (ends[1].first, ends[0].first);
    let (elsewhere, alone) = elsewhere.unzip();
    let mut middle = Middle { packetizer, flow: flow(1), line: None, elsewhere, alone };
    // Both take segments of at most 100 bytes.
    for (way, opening) in [(0, flags::SYN), (1, flags::SYN | flags::ACK)] {
        let packet = Packet {
            number: ends[way].first.wrapping_sub(1),
            acknowledgment: if way == 1 { ends[0].first } else { 0 },
            flags: opening,
            window: ends[way].own_window as u16,
            bytes: Vec::new(),
        };
        let side = [Side::Client, Side::Server][way];
        let [out, _] = middle.pass(side, &packet, &[2, 4, 0, 100], 0);
        assert_eq!(
            (out.len(), out[0].number, out[0].acknowledgment),
            (1, packet.number, packet.acknowledgment)
        );
        // An end knows no other window of its peer until the peer's next segment.
        ends[1 - way].window = usize::from(out[0].window);
    }
    middle.line = (trouble > 0).then(|| Random::new(trouble as u64));
    // By time and a serial number: the receiver of a packet, or the middle on the way there.
    let mut flying: BTreeMap<(u64, u64), (usize, bool, Packet)> = BTreeMap::new();
    let mut serial = 0;
    let mut now = 0;
    while !ends.iter().all(End::is_done) {
        now += 1;
        assert!(
            now < 1_000_000,
            "it does not end: {:?}",
            ends.each_ref().map(|end| (
                end.una,
                end.next,
                end.data.len(),
                end.received.len(),
                end.fin,
                end.window,
                end.own_window
            ))
        );
        let mut launch = |random: &mut Random, to: usize, arrives: bool, packet: Packet| {
            for _ in 0..[1, 1, 1, 1, 1, 1, 1, 2][random.below(8)] {
                serial += 1;
                if random.below(100) >= trouble {
                    let delay = if trouble > 0 { 1 + random.below(8) } else { 3 };
                    flying.insert((now + delay as u64, serial), (to, arrives, packet.clone()));
                }
            }
        };
        let mut out = Vec::new();
        for (way, end) in ends.iter_mut().enumerate() {
            end.poll(now, &mut random, &mut out);
            out.drain(..).for_each(|packet| launch(&mut random, 1 - way, false, packet));
        }
        let later = flying.split_off(&(now + 1, 0));
        let here = std::mem::replace(&mut flying, later);
        for (to, arrives, packet) in here.into_values() {
            let mut launch = |random: &mut Random, to: usize, arrives: bool, packet: Packet| {
                serial += 1;
                if random.below(100) >= trouble {
                    let delay = if trouble > 0 { 1 + random.below(8) } else { 3 };
                    flying.insert((now + delay as u64, serial), (to, arrives, packet));
                }
            };
            if arrives {
                ends[to].take(&packet, now, &mut out);
                out.drain(..).for_each(|packet| launch(&mut random, 1 - to, false, packet));
            } else {
                let side = [Side::Server, Side::Client][to];
                let [on, back] = middle.pass(side, &packet, &[], now);
                for packet in on {
                    assert!(packet.bytes.len() <= 100, "no segment is larger than its receiver takes");
                    launch(&mut random, to, true, packet);
                }
                for packet in back {
                    launch(&mut random, 1 - to, true, packet);
                }
            }
        }
    }
    assert_eq!(middle.packetizer.counters().unchanged, 0);
    for way in 0..2 {
        let (sent, received) = (&ends[way].data, &ends[1 - way].received);
        let expected = expected(sent);
        assert!(
            *received == expected,
            "{}: {} bytes, {} expected, equal up to {}",
            ends[way].name,
            received.len(),
            expected.len(),
            received.iter().zip(&expected).take_while(|(a, b)| a == b).count()
        );
    }
    (middle.packetizer, middle.elsewhere.zip(middle.alone), ends.map(|end| end.data))
}

#[test]
fn both_ends_have_what_the_other_wrote_rewritten() {
    let mut all = 0;
    for seed in 1..400 {
        all += converse(seed, 0);
    }
    assert!(all > 1_000, "{all}");
}

#[test]
fn loss_and_reordering_change_nothing() {
    let mut all = 0;
    for seed in 1..400 {
        all += converse(seed, [1, 5, 12][seed as usize % 3]);
    }
    assert!(all > 1_000, "{all}");
}
