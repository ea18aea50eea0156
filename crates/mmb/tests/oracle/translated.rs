//! `map` and `shuffle` by what must hold: one value a connection, answers restored, no two connections alike.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::DropReason;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{Clocked, checksums};

use crate::packets::{one, rarely};
use crate::places::{Part, Places};
use crate::stateless::bench;
use crate::tracking::{Flow, Seen};

/// The kind of a case's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Tcp6,
    Udp,
    Echo,
}

/// Rules, and what they may make of a flow.
struct Case {
    lines: &'static [&'static str],
    kind: Kind,
    /// Whether this flow may be the translated form of that one.
    may_be: fn(&Flow, &Flow) -> bool,
    shuffles: bool,
}

const CASES: [Case; 9] = [
    Case {
        lines: &["add-stateful ip-proto tcp map ip-saddr 30.30.30.0/29 shuffle tcp-sport"],
        kind: Kind::Tcp,
        may_be: |new, old| {
            new.from.0[..3] == [30, 30, 30] && new.from.0[3] < 8 && new.from.1 >= 1024 && new.to == old.to
        },
        shuffles: false,
    },
    Case {
        lines: &["add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num"],
        kind: Kind::Tcp,
        may_be: |new, old| new == old,
        shuffles: true,
    },
    Case {
        lines: &[
            "add-stateful ip-proto tcp map ip-saddr 30.30.30.30 shuffle tcp-sport shuffle tcp-seq-num shuffle tcp-ack-num",
        ],
        kind: Kind::Tcp,
        may_be: |new, old| new.from.0 == [30; 4] && new.from.1 >= 1024 && new.to == old.to,
        shuffles: true,
    },
    Case {
        lines: &[
            "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num",
            "add-stateful tcp-opt-mss map ip-daddr {10.9.0.1, 10.9.0.7} map tcp-dport 8000-8003",
            "add tcp-opt-timestamp strip tcp-opt-timestamp",
        ],
        kind: Kind::Tcp,
        may_be: |new, old| {
            new.from == old.from
                && (new.to == old.to
                    || new.to.0[..3] == [10, 9, 0]
                        && [1, 7].contains(&new.to.0[3])
                        && (8000..8004).contains(&new.to.1))
        },
        shuffles: true,
    },
    Case {
        lines: &[
            "define @pool {30.30.30.1-30.30.30.3}",
            "add-stateful ip-proto udp map ip-saddr @pool shuffle udp-sport",
        ],
        kind: Kind::Udp,
        may_be: |new, old| {
            new.from.0[..3] == [30, 30, 30] && (1..4).contains(&new.from.0[3]) && new.to == old.to
        },
        shuffles: false,
    },
    Case {
        lines: &["add-stateful ip-proto udp map ip-saddr 30.30.30.0/31"],
        kind: Kind::Udp,
        may_be: |new, old| new.from.0[..3] == [30, 30, 30] && new.from.1 == old.from.1 && new.to == old.to,
        shuffles: false,
    },
    Case {
        lines: &[
            "add-stateful ip6-next tcp map ip6-saddr 2001:db8:f::/120 shuffle tcp-sport shuffle tcp-seq-num",
        ],
        kind: Kind::Tcp6,
        may_be: |new, old| new.from.0[4..6] == [0, 15] && new.to == old.to,
        shuffles: true,
    },
    Case {
        lines: &["add-stateful icmp-id map ip-saddr 30.30.30.30 map icmp-id 1000-60000"],
        kind: Kind::Echo,
        may_be: |new, old| {
            new.from.0 == [30; 4] && (1000..=60_000).contains(&new.from.1) && new.to.0 == old.to.0
        },
        shuffles: false,
    },
    Case {
        lines: &[
            "mode all-match",
            "add-stateful ip-proto tcp map tcp-sport random",
            "add-stateful tcp-dport {80, 443} accept",
        ],
        kind: Kind::Tcp,
        may_be: |new, old| new.from.0 == old.from.0 && new.from.1 >= 1024 && new.to == old.to,
        shuffles: false,
    },
];

/// The numbers of a segment: sequence, acknowledgment, and the edges of SACK blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers {
    sequence: u32,
    acknowledgment: Option<u32>,
    edges: Vec<u32>,
}

fn read32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn numbers(frame: &[u8]) -> Numbers {
    let places = Places::of(frame);
    let Some(at) = places.at(Part::Tcp) else { return Numbers::default() };
    let blocks = places.tcp_options(frame).0.into_iter().filter(|(kind, _)| *kind == 5);
    Numbers {
        sequence: read32(frame, at + 4),
        acknowledgment: (frame[at + 13] & 0x10 != 0).then(|| read32(frame, at + 8)),
        edges: blocks.flat_map(|(_, range)| range.step_by(4)).map(|at| read32(frame, at)).collect(),
    }
}

fn flow_of(frame: &[u8]) -> Flow {
    Seen::of(frame, &Places::of(frame)).flow.expect("a flow")
}

/// A packet of a flow. TCP segments have what a stack writes, and random numbers.
fn packet(random: &mut Random, flow: &Flow, flags: u8, is_answer: bool) -> Vec<u8> {
    let v4 = |bytes: &[u8]| Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("an address"));
    let v6 = |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("an address"));
    let (from, to) = (&flow.from, &flow.to);
    let (sequence, acknowledgment) = (random.next() as u32, random.next() as u32);
    let payload: Vec<u8> = (0..random.below(9)).map(|_| random.next() as u8).collect();
    macro_rules! segment {
        ($ip:expr) => {{
            let mut segment = $ip.tcp(from.1, to.1).sequence(sequence).ack(acknowledgment).flags(0);
            if rarely(random, 3) {
                segment = segment.timestamps(7, 8);
            }
            if flags & 2 != 0 {
                segment = segment.maximum_segment_size(1_460);
            } else if rarely(random, 3) {
                let edge = random.next() as u32;
                segment = segment.selective_acknowledgment(&[(edge, edge.wrapping_add(9))]);
            }
            // `flags` adds: those of `ack` are taken away below.
            segment.payload(&payload).build()
        }};
    }
    let built = match (flow.protocol, from.0.len()) {
        (6, 4) => segment!(ethernet().ipv4(v4(&from.0), v4(&to.0))),
        (6, _) => segment!(ethernet().ipv6(v6(&from.0), v6(&to.0))),
        (17, _) => ethernet().ipv4(v4(&from.0), v4(&to.0)).udp(from.1, to.1).payload(&payload).build(),
        (_, _) => {
            let ip = ethernet().ipv4(v4(&from.0), v4(&to.0));
            match is_answer {
                true => ip.icmp_echo_reply(from.1, 1).payload(&payload).build(),
                false => ip.icmp_echo_request(from.1, 1).payload(&payload).build(),
            }
        }
    };
    let mut frame = built.expect("a packet");
    if flow.protocol == 6 {
        let places = Places::of(&frame);
        let at = places.at(Part::Tcp).expect("a segment");
        let (before, sum) = (frame[at + 13], u16::from_be_bytes([frame[at + 16], frame[at + 17]]));
        frame[at + 13] = flags;
        // One's complement: the word's other byte stays.
        let mut wide = u32::from(!sum) + 0xffff - u32::from(before) + u32::from(flags);
        while wide > 0xffff {
            wide = (wide & 0xffff) + (wide >> 16);
        }
        frame[at + 16..at + 18].copy_from_slice(&(!(wide as u16)).to_be_bytes());
    }
    assert_eq!(checksums::wrong(&frame), Vec::<String>::new());
    frame
}

/// A connection as it was seen.
#[derive(Clone, Debug)]
struct Known {
    translated: Flow,
    /// Whether its first packet was a SYN.
    is_begun: bool,
    /// The number added to the numbers of each side on their way to the other.
    shift: [Option<u32>; 2],
}

struct Trial {
    bench: Clocked,
    known: HashMap<Vec<u8>, Known>,
    full: u64,
    random: Random,
}

fn key(flow: &Flow) -> Vec<u8> {
    let ports = [flow.from.1.to_be_bytes(), flow.to.1.to_be_bytes()].concat();
    [&flow.from.0[..], &flow.to.0, &ports].concat()
}

impl Trial {
    /// The frame that leaves, if one does.
    fn send(&mut self, case: &Case, frame: &[u8]) -> Option<Vec<u8>> {
        let report = self.bench.send([frame]);
        let full = report.dropped(DropReason::TableFull);
        let out = report.out.into_iter().next();
        assert_eq!(out.is_none(), full > self.full, "{:?}: a packet is lost for no value alone", case.lines);
        self.full = full;
        if let Some(out) = &out {
            assert_eq!(
                checksums::wrong(out),
                Vec::<String>::new(),
                "{:?}\n{frame:02x?}\n{out:02x?}",
                case.lines
            );
        }
        out
    }

    /// Checks the numbers of one direction against those before.
    fn numbers(&mut self, case: &Case, flow: &Flow, is_answer: bool, (before, after): (&Numbers, &Numbers)) {
        let known = self.known.get_mut(&key(flow)).expect("the connection");
        let (own, other) = (usize::from(is_answer), usize::from(!is_answer));
        let added = after.sequence.wrapping_sub(before.sequence);
        assert_eq!(*known.shift[own].get_or_insert(added), added, "{:?}: sequence numbers", case.lines);
        if let (Some(before), Some(after)) = (before.acknowledgment, after.acknowledgment) {
            let taken = before.wrapping_sub(after);
            assert_eq!(*known.shift[other].get_or_insert(taken), taken, "{:?}: acknowledgments", case.lines);
        }
        if before.acknowledgment.is_some() {
            for (before, after) in before.edges.iter().zip(&after.edges) {
                assert_eq!(Some(before.wrapping_sub(*after)), known.shift[other], "{:?}: SACK", case.lines);
            }
            assert_eq!(before.edges.len(), after.edges.len());
        }
    }

    fn forward(&mut self, case: &Case, flow: &Flow, frame: &[u8]) -> Option<Vec<u8>> {
        let out = self.send(case, frame)?;
        let translated = flow_of(&out);
        assert!((case.may_be)(&translated, flow), "{:?}: {flow:?} became {translated:?}", case.lines);
        let is_begun = Places::of(frame).at(Part::Tcp).is_some_and(|at| frame[at + 13] & 2 != 0);
        let is_new = !self.known.contains_key(&key(flow));
        let fresh = Known { translated: translated.clone(), is_begun, shift: [None; 2] };
        let known = self.known.entry(key(flow)).or_insert(fresh);
        assert_eq!(known.translated, translated, "{:?}: one value a connection", case.lines);
        if is_new {
            let alike = self.known.values().filter(|other| other.translated == translated).count();
            assert_eq!(alike, 1, "{:?}: two connections with the same answers", case.lines);
        }
        self.numbers(case, flow, false, (&numbers(frame), &numbers(&out)));
        Some(out)
    }

    fn answer(&mut self, case: &Case, flow: &Flow) {
        let Known { translated, is_begun, .. } = &self.known[&key(flow)];
        // A SYN that is no answer to one would begin a connection of its own.
        let flags = one(&mut self.random, &[if *is_begun { 0x12 } else { 0x10 }, 0x10, 0x18]);
        let there = translated.reversed();
        let answer = packet(&mut self.random, &there, flags, true);
        let out = self.send(case, &answer).expect("an answer passes");
        assert_eq!(flow_of(&out), flow.reversed(), "{:?}: answers are restored", case.lines);
        self.numbers(case, flow, true, (&numbers(&answer), &numbers(&out)));
    }

    /// A router's error about a packet that left comes back about the packet that was sent.
    fn error(&mut self, case: &Case, sent: &[u8], left: &[u8]) {
        let quote = &left[14..14 + left.len().min(42) - 14];
        let built = match case.kind {
            Kind::Tcp6 => return,
            _ => {
                let to = <[u8; 4]>::try_from(&quote[12..16]).expect("an address");
                ethernet().ipv4("198.51.100.1", Ipv4Addr::from(to)).icmp_time_exceeded(quote).build()
            }
        };
        let error = built.expect("an error");
        let out = self.send(case, &error).expect("an error passes");
        let start = 14 + 20 + 8;
        assert_eq!(out[30..34], sent[26..30], "{:?}: to the sender", case.lines);
        assert_eq!(out[start + 12..start + 20], sent[26..34], "{:?}: quoted addresses", case.lines);
        let ports = if case.kind == Kind::Echo { 4..6 } else { 0..4 };
        let (quoted, original) = (&out[start + 20..], &sent[34..]);
        assert_eq!(quoted[ports.clone()], original[ports], "{:?}: quoted ports", case.lines);
        if case.kind == Kind::Tcp {
            assert_eq!(quoted[4..8], original[4..8], "{:?}: quoted sequence number", case.lines);
        }
    }
}

fn first_flow(random: &mut Random, kind: Kind) -> Flow {
    let server = one(random, &[[192, 0, 2, 7], [203, 0, 113, 9]]).to_vec();
    let client = vec![10, 0, 0, 1 + random.below(3) as u8];
    let (port, to) = (4_000 + random.below(6) as u16, one(random, &[80, 443]));
    match kind {
        Kind::Tcp => Flow { from: (client, port), to: (server, to), protocol: 6 },
        Kind::Udp => Flow { from: (client, port), to: (server, to), protocol: 17 },
        Kind::Echo => Flow { from: (client, port), to: (server, port), protocol: 1 },
        Kind::Tcp6 => {
            let address =
                |last: u8| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).octets().to_vec();
            Flow { from: (address(client[3]), port), to: (address(9), to), protocol: 6 }
        }
    }
}

#[test]
fn connections_are_translated_both_ways_and_never_alike() {
    let packets: usize =
        std::env::var("NETBRICKS_MMB_PAIRS").map_or(18_000, |pairs| pairs.parse().expect("a number"));
    for (seed, case) in CASES.iter().enumerate() {
        let bench = bench(&case.lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let random = Random::new(seed as u64 + 3);
        let mut trial = Trial { bench, known: HashMap::new(), full: 0, random };
        let (mut shifted, mut errors) = (0, 0);
        for _ in 0..packets / CASES.len() {
            let flow = first_flow(&mut trial.random, case.kind);
            let is_known = trial.known.contains_key(&key(&flow));
            if is_known && rarely(&mut trial.random, 2) {
                trial.answer(case, &flow);
                continue;
            }
            // Some connections are met in their middle.
            let is_first = !is_known && !rarely(&mut trial.random, 8);
            let flags = if is_first { 0x02 } else { one(&mut trial.random, &[0x10, 0x18, 0x10]) };
            let frame = packet(&mut trial.random, &flow, flags, false);
            let Some(left) = trial.forward(case, &flow, &frame) else { continue };
            if rarely(&mut trial.random, 5) {
                errors += 1;
                trial.error(case, &frame, &left);
            }
        }
        for known in trial.known.values() {
            shifted += usize::from(known.shift[0].is_some_and(|shift| shift != 0));
        }
        assert_eq!(shifted > 0, case.shuffles, "{:?}", case.lines);
        assert!(trial.known.len() > 10 && errors > 10, "{:?}: {} connections", case.lines, trial.known.len());
        trial.bench.call("run", "flush");
        let flow = first_flow(&mut trial.random, case.kind);
        let frame = packet(&mut trial.random, &flow, 0x10, false);
        assert_eq!(trial.send(case, &frame), Some(frame), "a rule's end is that of its connections");
        println!("{} connections, {} without a value: {:?}", trial.known.len(), trial.full, case.lines);
        trial.bench.finish();
    }
}
