//! Selective acknowledgments through a rewriter, between a sender with a scoreboard and a receiver that
//! reports its blocks.
//!
//! The lines on both sides lose, duplicate and reorder. The sender is told only of bytes that arrived.

use std::collections::BTreeMap;

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp, TcpOption, tcp_options};
use netbricks_stream::{PacketizeConfig, Packetizer, Passage, Replace};
use netbricks_testkit::mutate::Random;

use super::endpoints::{CONFIG, Elsewhere};
use super::exercise::flow;

/// The most bytes of a segment.
const SEGMENT: usize = 100;
const TIMEOUT: u64 = 300;
const ACK: u8 = flags::ACK;

#[derive(Clone, Debug, PartialEq)]
struct Packet {
    number: u32,
    acknowledgment: u32,
    flags: u8,
    options: Vec<u8>,
    bytes: Vec<u8>,
}

impl Packet {
    fn blocks(&self) -> Vec<(u32, u32)> {
        let blocks = tcp_options::TcpOptions::new(&self.options).flatten().find_map(|option| match option {
            TcpOption::Sack(blocks) => Some(blocks.iter().collect()),
            _ => None,
        });
        blocks.unwrap_or_default()
    }
}

/// The output of a stream, and for each input byte the range of output that must be there completely.
fn outputs(data: &[u8], find: &[u8], put: &[u8]) -> (Vec<u8>, Vec<(usize, usize)>) {
    let (mut out, mut places, mut at) = (Vec::new(), Vec::new(), 0);
    while at < data.len() {
        let replaced = data[at..].starts_with(find);
        let (count, bytes) = if replaced { (find.len(), put) } else { (1, &data[at..=at]) };
        places.extend(std::iter::repeat_n((out.len(), out.len() + bytes.len()), count));
        out.extend(bytes);
        at += count;
    }
    (out, places)
}

/// The sender.
///
/// It does not repeat reported bytes until its timer shows that the report no longer holds (RFC 2018, section
/// 8).
struct Sender {
    data: Vec<u8>,
    una: usize,
    next: usize,
    /// For each byte: whether it was reported, and whether it was sent again.
    told: Vec<bool>,
    again: Vec<bool>,
    due: u64,
    timeouts: usize,
}

/// The end counts as a byte behind all others.
impl Sender {
    fn segment(&self, from: usize, first: u32, now: u64) -> Packet {
        let to = (from + SEGMENT).min(self.data.len());
        let number = first.wrapping_add(from as u32);
        let end = if to == self.data.len() { flags::FIN } else { 0 };
        Packet {
            number,
            acknowledgment: 500,
            flags: ACK | end,
            options: [&[1, 1, 8, 10][..], &(now as u32).to_be_bytes(), &[0; 4]].concat(),
            bytes: self.data[from..to].to_vec(),
        }
    }

    fn poll(&mut self, now: u64, first: u32, out: &mut Vec<Packet>) {
        if self.una < self.next && now >= self.due {
            (self.due, self.timeouts) = (now + TIMEOUT, self.timeouts + 1);
            self.told.fill(false);
            self.again.fill(false);
            out.push(self.segment(self.una.min(self.data.len()), first, now));
        }
        // Bytes that are missing before three segments that were reported.
        let last = self.told.iter().rposition(|told| *told).unwrap_or_default();
        let mut at = self.una;
        while at + 3 * SEGMENT < last {
            if self.told[at] || self.again[at] {
                at += 1;
                continue;
            }
            let packet = self.segment(at, first, now);
            let to = at + packet.bytes.len();
            self.again[at..to].fill(true);
            out.push(packet);
            at = to;
        }
        while self.next <= self.data.len() && self.next < self.una + 20 * SEGMENT {
            if self.next == self.una {
                self.due = now + TIMEOUT;
            }
            let packet = self.segment(self.next, first, now);
            self.next += packet.bytes.len() + usize::from(packet.flags & flags::FIN != 0);
            out.push(packet);
        }
    }

    fn take(&mut self, packet: &Packet, now: u64, first: u32) {
        let una = packet.acknowledgment.wrapping_sub(first) as usize;
        assert!(una <= self.next, "acknowledged what was not sent");
        if una > self.una {
            (self.una, self.due) = (una, now + TIMEOUT);
            self.told[..una].fill(false);
        }
        for (from, to) in packet.blocks() {
            let [from, to] = [from, to].map(|number| number.wrapping_sub(first) as usize);
            if let Some(told) = self.told.get_mut(from.max(self.una)..to.min(self.next)) {
                told.fill(true);
            }
        }
    }
}

/// The receiver: its bytes, and its runs, the run that grew last first.
struct Receiver {
    has: Vec<Option<u8>>,
    next: usize,
    /// The latest clock in segments that were not ahead (RFC 7323, section 4.3).
    ///
    /// `older` counts the segments with an earlier one.
    clock: u32,
    older: usize,
    runs: Vec<(usize, usize)>,
    fin: Option<usize>,
}

impl Receiver {
    fn take(&mut self, packet: &Packet, first: u32, lies: Option<&mut Random>) -> Packet {
        let start = packet.number.wrapping_sub(first) as usize;
        let to = start.wrapping_add(packet.bytes.len());
        let clock = packet.options.get(4..8).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four")));
        let clock = clock.unwrap_or(self.clock);
        if clock < self.clock {
            self.older += 1;
        } else if packet.number.wrapping_sub(first).cast_signed() <= self.next as i32 {
            self.clock = clock;
        }
        let known = packet.number.wrapping_sub(first).cast_signed() < 0
            || !packet.bytes.is_empty() && (start..to).all(|at| self.has[at].is_some());
        if !known {
            for (at, byte) in (start..).zip(&packet.bytes) {
                assert_eq!(*self.has[at].get_or_insert(*byte), *byte, "byte {at} is another than before");
            }
            if packet.flags & flags::FIN != 0 {
                assert_eq!(*self.fin.get_or_insert(to), to, "the end moved");
            }
            // Runs that it touches become one.
            let mut run = (start, to + usize::from(packet.flags & flags::FIN != 0));
            self.runs.retain(|(from, behind)| {
                let apart = *behind < run.0 || run.1 < *from;
                if !apart {
                    run = (run.0.min(*from), run.1.max(*behind));
                }
                apart
            });
            self.runs.insert(0, run);
        }
        while self.has.get(self.next).is_some_and(Option::is_some) {
            self.next += 1;
        }
        let next = self.next + usize::from(self.fin == Some(self.next));
        self.runs.retain(|(from, to)| from < to && *from > next);
        let mut blocks = Vec::new();
        if known {
            blocks.push((packet.number, packet.number.wrapping_add(packet.bytes.len() as u32)));
        }
        blocks.extend(
            self.runs
                .iter()
                .map(|(from, to)| (first.wrapping_add(*from as u32), first.wrapping_add(*to as u32))),
        );
        let timestamps = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8];
        let mut options = [0; tcp_options::LONGEST];
        let len = tcp_options::with_sack(&timestamps, &blocks, &mut options);
        let mut options = options[..len].to_vec();
        if let Some(random) = lies {
            let near = first.wrapping_add(next as u32);
            lie(&mut options, near, random);
        }
        let acknowledgment = first.wrapping_add(next as u32);
        Packet { number: 500, acknowledgment, flags: ACK, options, bytes: Vec::new() }
    }
}

/// Malformed blocks: inverted, empty, old, at the end of the numbers, too many, cut off, or none.
fn lie(options: &mut Vec<u8>, near: u32, random: &mut Random) {
    let number = |random: &mut Random| match random.below(4) {
        0 => random.next() as u32,
        _ => near.wrapping_add(random.below(3_000) as u32).wrapping_sub(600),
    };
    match random.below(3) {
        0 => {
            let count = random.below(5);
            let blocks: Vec<_> = (0..count).map(|_| (number(random), number(random))).collect();
            let mut to = [0; tcp_options::LONGEST];
            let len = tcp_options::with_sack(&[], &blocks, &mut to);
            *options = to[..len].to_vec();
        }
        1 => {
            *options = (0..4 * random.below(11)).map(|_| [5, 10, 18, 1, 0, 255][random.below(6)]).collect();
        }
        _ => {}
    }
}

struct Run {
    timeouts: usize,
    /// Acknowledgments with blocks, and those whose blocks were changed on the way.
    blocks: usize,
    changed: usize,
    /// Segments with an earlier clock than one before them.
    older: usize,
    replaced: u64,
}

/// `trouble`: the percentage of packets that each line loses, before the rewriter and behind it.
fn converse(seed: u64, trouble: [usize; 2], strings: Option<(&[u8], &[u8])>, lies: bool) -> Run {
    converse_with(CONFIG, seed, trouble, strings, lies)
}

#[expect(
    clippy::too_many_lines,
    reason = "one conversation from beginning to end, whose steps share a dozen local values"
)]
fn converse_with(
    config: PacketizeConfig,
    seed: u64,
    trouble: [usize; 2],
    strings: Option<(&[u8], &[u8])>,
    lies: bool,
) -> Run {
    let mut random = Random::new(seed);
    let find: &[u8] = [&b"aab"[..], b"abcab", b"a", b"bbbb"][random.below(4)];
    let put: &[u8] = [&b"<longer than that>"[..], b"x", b"", b"aab"][random.below(4)];
    let (find, put) = strings.unwrap_or((find, put));
    let data: Vec<u8> = (0..random.below(6_000)).map(|_| b"abcab"[random.below(5)]).collect();
    let (expected, places) = outputs(&data, find, put);
    let first = [random.next() as u32, 0u32.wrapping_sub(random.below(2_000) as u32)][random.below(2)];
    let mut sender = Sender {
        data: data.clone(),
        una: 0,
        next: 0,
        told: vec![false; data.len() + 1],
        again: vec![false; data.len() + 1],
        due: 0,
        timeouts: 0,
    };
    let mut receiver = Receiver {
        has: vec![None; expected.len()],
        next: 0,
        clock: 0,
        older: 0,
        runs: Vec::new(),
        fin: None,
    };
    let replace = Replace::new(find, put, None).expect("both strings are short");
    let new = || Packetizer::new(config, replace.clone()).expect("so little memory is there");
    let (mut middle, mut migration) = (new(), new());
    let mut elsewhere = Elsewhere { other: new(), random: Random::new(seed), moves: 0 };
    let push = |middle: &mut Packetizer<Replace>, flow: FlowKey, packet: &Packet, now: u64| {
        let header = Tcp::new(0, 0, packet.number, packet.acknowledgment, packet.flags);
        let mut bytes = header.octets().to_vec();
        bytes[12] += (packet.options.len() / 4 * 16) as u8;
        bytes.extend(&packet.options);
        let mut out = [Vec::new(), Vec::new()];
        let passage = middle.push(flow, Tcp::view(&bytes, ()), &packet.bytes, now, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out[usize::from(emit.back)].push(Packet {
                number: emit.number,
                acknowledgment: emit.acknowledgment,
                flags: emit.flags,
                options: emit.options.to_vec(),
                bytes,
            });
            true
        });
        assert!(matches!(passage, Passage::Replaced | Passage::NoRoom), "{passage:?}");
        out
    };
    let mut pass = |middle: &mut Packetizer<Replace>, flow: FlowKey, packet: &Packet, now: u64| {
        let out = push(middle, flow, packet, now);
        // As if the connection moved from time to time.
        elsewhere.change(&mut migration, now);
        assert_eq!(push(&mut migration, flow, packet, now), out, "seed {seed}");
        out
    };
    let opening = |number: u32, acknowledgment, flags| {
        // 100 bytes a segment, and selective acknowledgments.
        let options = vec![2, 4, 0, SEGMENT as u8, 1, 1, 4, 2];
        Packet { number, acknowledgment, flags, options, bytes: Vec::new() }
    };
    let (there, back) = (flow(1), flow(1).reversed());
    for (flow, packet) in [
        (there, opening(first.wrapping_sub(1), 0, flags::SYN)),
        (back, opening(499, first, flags::SYN | ACK)),
    ] {
        let [out, _] = pass(&mut middle, flow, &packet, 0);
        assert_eq!((out.len(), &out[0].options), (1, &packet.options), "they agree on it");
    }
    // The bytes that arrived at the rewriter, and a byte for the end.
    let (mut here, mut taken) = (vec![false; data.len() + 1], 0);
    let mut run = Run { timeouts: 0, blocks: 0, changed: 0, older: 0, replaced: 0 };
    // By time and a serial number: whether it goes to the receiver, and whether it has passed the rewriter.
    let mut flying: BTreeMap<(u64, u64), (bool, bool, Packet)> = BTreeMap::new();
    let (mut serial, mut now) = (0, 0);
    while sender.una <= data.len() {
        now += 1;
        assert!(now < 1_000_000, "it does not end: {} of {}", sender.una, data.len());
        let mut launch = |random: &mut Random, to_receiver: bool, passed: bool, packet: Packet| {
            let trouble = trouble[usize::from(to_receiver == passed)];
            for _ in 0..if trouble > 0 && random.below(20) == 0 { 2 } else { 1 } {
                serial += 1;
                if random.below(100) >= trouble {
                    let delay = if trouble > 0 { 1 + random.below(8) } else { 3 };
                    flying.insert((now + delay as u64, serial), (to_receiver, passed, packet.clone()));
                }
            }
        };
        let mut out = Vec::new();
        sender.poll(now, first, &mut out);
        out.drain(..).for_each(|packet| launch(&mut random, true, false, packet));
        let arrived: Vec<_> = flying.extract_if(..=(now, u64::MAX), |_, _| true).map(|(_, it)| it).collect();
        for (to_receiver, passed, packet) in arrived {
            let mut launch = |random: &mut Random, to_receiver: bool, passed: bool, packet: Packet| {
                serial += 1;
                let trouble = trouble[usize::from(to_receiver == passed)];
                if random.below(100) >= trouble {
                    let delay = if trouble > 0 { 1 + random.below(8) } else { 3 };
                    flying.insert((now + delay as u64, serial), (to_receiver, passed, packet));
                }
            };
            match (to_receiver, passed) {
                (true, true) => {
                    let lies = lies.then_some(&mut random);
                    let answer = receiver.take(&packet, first, lies);
                    launch(&mut random, false, false, answer);
                }
                (false, true) => sender.take(&packet, now, first),
                (true, false) => {
                    let start = packet.number.wrapping_sub(first) as usize;
                    let ends = usize::from(packet.flags & flags::FIN != 0);
                    let [on, back] = pass(&mut middle, there, &packet, now);
                    if !on.is_empty() {
                        here[start..start + packet.bytes.len() + ends].fill(true);
                    }
                    while here.get(taken).is_some_and(|here| *here) {
                        taken += 1;
                    }
                    on.into_iter().for_each(|packet| launch(&mut random, true, true, packet));
                    back.into_iter().for_each(|packet| launch(&mut random, false, true, packet));
                }
                (false, false) => {
                    let [on, back] = pass(&mut middle, flow(1).reversed(), &packet, now);
                    run.blocks += usize::from(!packet.blocks().is_empty());
                    for told in on {
                        // Late acknowledgments report earlier blocks.
                        let late = told.acknowledgment != packet.acknowledgment;
                        // A duplicate block is in another place, and takes one.
                        let above = |packet: &Packet| {
                            let mut blocks = packet.blocks();
                            let number = packet.acknowledgment;
                            blocks.retain(|(from, _)| from.wrapping_sub(number).cast_signed() > 0);
                            blocks
                        };
                        let [told_of, said] = [above(&told), above(&packet)];
                        let same = said.starts_with(&told_of) && told_of.len() + 1 >= said.len();
                        run.changed += usize::from(!late && !same);
                        let una = told.acknowledgment.wrapping_sub(first) as usize;
                        let place = |number: u32| number.wrapping_sub(first) as usize;
                        for (at, (from, to)) in told.blocks().into_iter().enumerate() {
                            let [from, to] = [from, to].map(place);
                            assert!(from < to && to <= data.len() + 1, "seed {seed}: {from} to {to}");
                            assert!(una < from || at == 0 && to <= una, "seed {seed}: {from} to {to}, {una}");
                            for (byte, here) in here.iter().enumerate().take(to).skip(from) {
                                let waits = byte >= taken && *here;
                                let (start, end) =
                                    *places.get(byte).unwrap_or(&(expected.len(), expected.len()));
                                let has = (start..end).all(|at| receiver.has[at].is_some())
                                    && (byte < data.len() || receiver.fin.is_some());
                                assert!(waits || has || lies, "seed {seed}: it does not have {byte}");
                            }
                        }
                        let times = |packet: &Packet| packet.options.get(..12).map(<[u8]>::to_vec);
                        assert!(lies || times(&told) == times(&packet), "timestamps stay");
                        launch(&mut random, false, true, told);
                    }
                    back.into_iter().for_each(|packet| launch(&mut random, true, true, packet));
                }
            }
        }
    }
    run.older = receiver.older;
    let received: Vec<u8> = receiver.has.into_iter().flatten().collect();
    assert!(received == expected, "seed {seed}: {} bytes of {}", received.len(), expected.len());
    Run { timeouts: sender.timeouts, replaced: middle.counters().replaced, ..run }
}

#[test]
fn a_sender_is_told_of_nothing_that_did_not_arrive() {
    let (mut blocks, mut replaced) = (0, 0);
    for seed in 1..400 {
        let run = converse(seed, [[0, 5], [5, 0], [5, 5], [12, 12]][seed as usize % 4], None, false);
        (blocks, replaced) = (blocks + run.blocks, replaced + run.replaced);
    }
    assert!(blocks > 5_000 && replaced > 5_000, "{blocks} {replaced}");
}

/// The same where replacements are merged, because only few are known separately.
#[test]
fn a_sender_is_told_of_nothing_of_which_a_part_did_not_arrive() {
    let (mut blocks, mut replaced) = (0, 0);
    for seed in 1..400 {
        let config = PacketizeConfig { edits: [0, 1, 8, 40][seed as usize / 4 % 4], ..CONFIG };
        let trouble = [[0, 5], [5, 0], [5, 5], [12, 12]][seed as usize % 4];
        let run = converse_with(config, seed, trouble, None, seed % 16 == 0);
        (blocks, replaced) = (blocks + run.blocks, replaced + run.replaced);
    }
    assert!(blocks > 5_000 && replaced > 5_000, "{blocks} {replaced}");
}

/// Where nothing is replaced and nothing waits, blocks go on unchanged.
#[test]
fn blocks_of_what_is_not_replaced_stay_the_same() {
    let mut blocks = 0;
    for seed in 1..200 {
        let run = converse(seed, [0, 5], Some((b"none", b"of it")), false);
        assert_eq!(run.changed, 0, "seed {seed}");
        blocks += run.blocks;
    }
    assert!(blocks > 5_000, "{blocks}");
}

/// A segment that others overtook has an older clock than they.
///
/// Bytes that wait for it would not count if they had that clock too.
#[test]
fn clocks_do_not_go_back() {
    for seed in 1..200 {
        let run = converse(seed, [5, 0], None, false);
        assert_eq!(run.older, 0, "seed {seed}");
    }
}

/// Lost bytes are sent again because of the reported blocks, and not by a timer.
///
/// They may be lost before the rewriter or behind it.
#[test]
fn few_losses_cost_a_timeout() {
    for (trouble, most) in [([2, 0], 1.0), ([0, 2], 1.0), ([2, 2], 2.0)] {
        let runs = 200;
        let all: usize = (1..=runs).map(|seed| converse(seed, trouble, None, false).timeouts).sum();
        assert!((all as f64) < most * runs as f64, "{trouble:?}: {all} in {runs}");
    }
}

#[test]
fn blocks_that_lie_break_nothing() {
    for seed in 1..400 {
        converse(seed, [[0, 0], [3, 3]][seed as usize % 2], None, true);
    }
}
