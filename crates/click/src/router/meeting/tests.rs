//! Live bursts against the exact mode on random configurations, and which outputs meet in known ones.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::Search;
use crate::drive::{self, Round};
use crate::elements::device::INLET;
use crate::packet::Annotated;
use crate::router::{Capabilities, Router};
use crate::testing::build_with;

/// Random numbers, the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) % bound as u64) as usize
    }
}

/// The sending half of a router, whose elements are done as one.
const SEND: &str = "{ input -> drop :: DropBroadcasts -> tee :: PaintTee(1) -> options :: IPGWOptions(10.9.0.1) \
    -> FixIPSrc(10.9.0.1) -> ttl :: DecIPTTL -> output; tee[1] -> [1] output; options[1] -> [2] output; \
    ttl[1] -> [3] output }";

/// Elements with one input, and the number of their outputs.
const ELEMENTS: &[(&str, usize)] = &[
    ("Counter", 1),
    ("Paint(1)", 1),
    ("Paint(2)", 1),
    ("SetIPDSCP(3)", 1),
    ("FixIPSrc(10.9.0.1)", 1),
    ("IPFilter(deny dst host 10.0.0.3, allow all)", 1),
    ("Tee", 2),
    ("HashSwitch(19, 1)", 2),
    ("RoundRobinSwitch", 3),
    ("PaintSwitch", 3),
    ("CheckPaint(1)", 2),
    ("PaintTee(2)", 2),
    ("CheckIPHeader", 2),
    ("CheckUDPHeader", 2),
    ("CheckLength(100)", 2),
    ("DecIPTTL", 2),
    ("IPGWOptions(10.9.0.1)", 2),
    ("IPFragmenter(90)", 2),
    ("Classifier(8/01, 8/02, -)", 3),
    ("IPClassifier(dst host 10.0.0.1, src host 10.0.0.2, -)", 3),
    ("LinearIPLookup(10.0.0.0/31 0, 10.0.0.4/30 1, 0.0.0.0/0 2)", 3),
    (SEND, 4),
];
/// Elements that draw from what all of their kind share, so that a configuration has one of each.
const ONCE: &[(&str, usize)] =
    &[("ICMPError(10.9.0.1, timeexceeded)", 1), ("IPRewriter(pattern 10.9.0.2 1024-65535 - - 0 1)", 2)];

/// A random configuration without cycles: packets of `in` come to the devices `a`, `b` and `c`.
fn configuration(random: &mut Random) -> String {
    let count = 3 + random.below(10);
    let mut elements: Vec<(&str, usize)> =
        (0..count).map(|_| ELEMENTS[random.below(ELEMENTS.len())]).collect();
    for once in ONCE {
        if random.below(3) == 0 {
            let place = random.below(count);
            elements[place] = *once;
        }
    }
    let mut text = "a :: ToDevice(a); b :: ToDevice(b); c :: Queue(100000) -> ToDevice(c);\n".to_owned();
    text += "Idle -> a; Idle -> b; Idle -> c;\n";
    for (number, (element, _)) in elements.iter().enumerate() {
        let _ = writeln!(text, "e{number} :: {element};");
    }
    text += "FromDevice(in) -> Strip(14) -> MarkIPHeader -> GetIPAddress(16) -> e0;\n";
    let mut reached = vec![false; count];
    reached[0] = true;
    for (number, (_, outputs)) in elements.iter().enumerate() {
        if !reached[number] {
            let _ = writeln!(text, "Idle -> e{number};");
        }
        for output in 0..*outputs {
            let later = number + 1 + random.below(count - number + 2);
            if let Some(reached) = reached.get_mut(later) {
                *reached = true;
                let _ = writeln!(text, "e{number}[{output}] -> e{later};");
            } else {
                let _ = writeln!(text, "e{number}[{output}] -> {};", ["a", "b", "c"][random.below(3)]);
            }
        }
    }
    text
}

/// An Ethernet frame of an IPv4 packet of a few flows.
///
/// Some are odd. Its number is in its identification.
fn frame(random: &mut Random, number: u16) -> Vec<u8> {
    let options = if random.below(6) == 0 { 4 } else { 0 };
    let payload = [8, 26, 60, 100][random.below(4)];
    let mut all = vec![0; 14 + 20 + options + payload];
    all[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    all[12..14].copy_from_slice(&[8, 0]);
    let length = (all.len() - 14) as u16;
    let ip = &mut all[14..];
    ip[0] = 0x45 + (options / 4) as u8;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[4..6].copy_from_slice(&number.to_be_bytes());
    ip[8] = [1, 2, 3, 64][random.below(4)];
    ip[9] = 17;
    ip[12..16].copy_from_slice(&[10, 0, 0, random.below(4) as u8]);
    ip[16..20].copy_from_slice(&[10, 0, 0, random.below(8) as u8]);
    if options > 0 {
        // Now and then an option without a meaning's length.
        ip[20..24].copy_from_slice(&[[1, 1, 1, 0], [7, 0, 4, 0]][random.below(2)]);
    }
    let header = 20 + options;
    ip[header..header + 4].copy_from_slice(&[4, random.below(3) as u8, 0, 53]);
    ip[header + 4..header + 6].copy_from_slice(&(payload as u16).to_be_bytes());
    let sum = checksum::internet(&ip[..header]).wrapping_add(u16::from(random.below(9) == 0));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    all
}

/// Packets that left by each device, in their order.
type Left = BTreeMap<String, Vec<Vec<u8>>>;

fn settle(router: &Router, left: &mut Left) {
    while drive::round(router, 64) == Round::Busy {}
    let devices = router.devices();
    router.take_outbox(|device, packet| {
        let mut seen = packet.data().to_vec();
        seen.extend_from_slice(packet.anno());
        left.entry(devices[device].clone()).or_default().push(seen);
    });
}

/// Brings bursts to a configuration, packet by packet or whole.
fn outcome(text: &str, bursts: &[Vec<Vec<u8>>], exact: bool, fuses: bool) -> Left {
    let run = build_with(text, Capabilities { devices: true, ..Capabilities::default() });
    let router: Rc<Router> = run.router.unwrap_or_else(|| panic!("{:?}\n{text}", run.errors));
    router.set_fusing(fuses);
    let inlet = (0..router.len()).find(|id| router.class(*id) == "FromDevice").expect("it is there");
    let mut left = Left::new();
    for burst in bursts {
        let packet =
            |bytes: &Vec<u8>| -> Packet { router.surroundings().pool.packet(bytes).expect("a frame") };
        router.arrived(burst.len() as u64);
        if exact {
            for bytes in burst {
                router.element(inlet).push(router.at(inlet), INLET, packet(bytes));
                settle(&router, &mut left);
            }
        } else {
            let mut batch = Batch::new();
            burst.iter().for_each(|bytes| assert!(batch.push(packet(bytes)).is_ok()));
            router.element(inlet).push_batch(router.at(inlet), INLET, &mut batch);
            settle(&router, &mut left);
        }
    }
    left
}

#[test]
fn bursts_leave_as_their_packets_do_one_by_one() {
    let mut random = Random(11);
    let mut packets = BTreeMap::<String, usize>::new();
    for graph in 0..200 {
        let text = configuration(&mut random);
        let mut number = 0;
        let bursts: Vec<Vec<Vec<u8>>> = (0..6)
            .map(|_| {
                (0..1 + random.below(40))
                    .map(|_| {
                        number += 1;
                        frame(&mut random, number)
                    })
                    .collect()
            })
            .collect();
        let exact = outcome(&text, &bursts, true, true);
        for fuses in [false, true] {
            let live = outcome(&text, &bursts, false, fuses);
            for device in ["a", "b", "c"] {
                let (one, other) = (exact.get(device), live.get(device));
                let differs = one
                    .zip(other)
                    .and_then(|(one, other)| one.iter().zip(other).position(|(one, other)| one != other));
                assert!(
                    one == other,
                    "graph {graph}, device {device}, fused {fuses}, from {differs:?}\n{text}"
                );
            }
        }
        for (device, left) in exact {
            *packets.entry(device).or_default() += left.len();
        }
    }
    assert!(packets.len() == 3 && packets.values().all(|count| *count > 3_000), "{packets:?}");
}

fn built(text: &str) -> Rc<Router> {
    let run = build_with(text, Capabilities { devices: true, ..Capabilities::default() });
    run.router.unwrap_or_else(|| panic!("{:?}\n{text:.2000}", run.errors))
}

/// The groups of an element's outputs.
fn groups(text: &str, element: &str) -> Option<Vec<u32>> {
    let router = built(text);
    let id = router.exactly(element).expect("it is there");
    router.at(id).groups().map(<[u32]>::to_vec)
}

#[test]
fn outputs_meet_where_their_packets_can() {
    let begin = "FromDevice(in) -> s :: Classifier(0/01, 0/02, 0/03, -);";
    let cases = [
        ("s[0] -> ToDevice(a); s[1] -> ToDevice(b); s[2] -> Discard; s[3] -> Discard", None),
        // Nobody sees in which order packets end.
        ("d :: Discard; s[0] -> d; s[1] -> d; s[2] -> d; s[3] -> Counter -> d", None),
        (
            "q :: Queue -> ToDevice(a); s[0] -> q; s[1] -> Idle; s[2] -> Strip(1) -> q; s[3] -> ToDevice(b)",
            Some(vec![0, 1, 0, 3]),
        ),
        (
            "t :: Tee -> a :: ToDevice(a); t[1] -> b :: ToDevice(b); s[0] -> a; s[1] -> b; s[2] -> t; s[3] -> ToDevice(c)",
            Some(vec![0, 0, 0, 3]),
        ),
        // What comes back leaves by any output.
        (
            "s[0] -> Strip(1) -> s; s[1] -> ToDevice(a); s[2] -> ToDevice(b); s[3] -> ToDevice(c)",
            Some(vec![0; 4]),
        ),
        // Answers come back as others, and elsewhere they have their place.
        (
            "s[0] -> ICMPError(10.0.0.1, unreachable) -> Null -> s; s[1] -> ToDevice(a); s[2] -> ToDevice(b); \
          s[3] -> ToDevice(c)",
            None,
        ),
        (
            "a :: ToDevice(a); s[0] -> ICMPError(10.0.0.1, unreachable) -> a; s[1] -> a; s[2] -> ToDevice(b); \
          s[3] -> ToDevice(c)",
            Some(vec![0, 0, 2, 3]),
        ),
        (
            "a :: ToDevice(a); p :: ICMPPingResponder; s[0] -> p; p[0] -> s; p[1] -> a; s[1] -> a; s[2] -> ToDevice(b); \
          s[3] -> ToDevice(c)",
            Some(vec![0, 0, 2, 3]),
        ),
        // Both know the same addresses.
        (
            "x, y :: Queue; s[0] -> q :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1) -> x -> ToDevice(a); \
          s[1] -> r :: ARPQuerier(10.0.0.2, 2:0:0:0:0:2, TABLE q) -> y -> ToDevice(b); \
          Idle -> [1] q; Idle -> [1] r; s[2] -> ToDevice(c); \
          s[3] -> ToDevice(d)",
            Some(vec![0, 0, 2, 3]),
        ),
    ];
    for (rest, expected) in cases {
        assert_eq!(groups(&format!("{begin} {rest}"), "s"), expected, "{rest}");
    }
}

#[test]
fn a_routers_ways_do_not_meet() {
    let text = include_str!("../../../../../examples/click/ip-router.click");
    // Errors come back to the lookup, and bursts stay whole behind it.
    assert_eq!(groups(text, "routes"), None);
    // ARP and IP packets come to the same link.
    assert_eq!(groups(text, "link0/kinds"), Some(vec![0, 0, 0, 3]));
    assert_eq!(groups(text, "send0/ttl"), Some(vec![0, 0]));
}

#[test]
fn handler_calls_and_patterns_are_places() {
    let begin = "FromDevice(in) -> s :: Classifier(0/01, -); s[1] -> sw :: Switch(0) -> ToDevice(b); sw[1] -> ToDevice(c);";
    for (way, meets) in [
        ("s[0] -> Counter -> ToDevice(a)", false),
        ("s[0] -> Counter(COUNT_CALL 2 sw.switch 1) -> ToDevice(a)", true),
        ("s[0] -> AggregateCounter(COUNT_CALL 2 sw.switch 1) -> ToDevice(a)", true),
        ("s[0] -> Script(TYPE PACKET, write sw.switch 1, return 0) -> ToDevice(a)", true),
        (
            "x :: Script(TYPE PASSIVE, write sw.switch 1); s[0] -> Counter(COUNT_CALL 2 x.run) -> ToDevice(a)",
            true,
        ),
        ("Script(TYPE PASSIVE, write sw.switch 1); s[0] -> Counter -> ToDevice(a)", false),
    ] {
        assert_eq!(groups(&format!("{begin} {way}"), "s"), meets.then(|| vec![0, 0]), "{way}");
    }
    let begin = "IPRewriterPatterns(p 10.0.0.9 1024-65535 - -); m :: RoundRobinIPMapper(p 0 0, p 0 0); \
        FromDevice(in) -> s :: Classifier(0/01, -);";
    for (one, other, meets) in [
        ("pattern 10.0.0.9 1024-65535 - - 0 0", "pattern p 0 0", false),
        ("pattern p 0 0", "pattern p 0 0", true),
        ("m", "pattern p 0 0", true),
        ("m", "m", true),
    ] {
        let ways =
            format!("s[0] -> IPRewriter({one}) -> ToDevice(a); s[1] -> IPRewriter({other}) -> ToDevice(b)");
        assert_eq!(groups(&format!("{begin} {ways}"), "s"), meets.then(|| vec![0, 0]), "{ways}");
    }
}

#[test]
fn a_handler_call_acts_between_two_packets_of_a_burst() {
    let text = "FromDevice(in) -> s :: Classifier(0/01, -); s[0] -> Counter(COUNT_CALL 2 sw.switch 1) -> ToDevice(a); \
        s[1] -> sw :: Switch(0) -> ToDevice(b); sw[1] -> ToDevice(c)";
    let burst: Vec<Vec<u8>> = (0..8_u8).map(|number| vec![number % 2, number, 0, 0]).collect();
    let exact = outcome(text, std::slice::from_ref(&burst), true, true);
    let counts: Vec<usize> = ["a", "b", "c"].iter().map(|device| exact[*device].len()).collect();
    assert_eq!(counts, [4, 2, 2]);
    assert_eq!(outcome(text, &[burst], false, true), exact);
}

#[test]
fn answers_meet_packets_of_outputs_before_and_behind() {
    let begin = "FromDevice(in) -> s :: Classifier(0/01, -); d :: Counter -> Discard;";
    let error = "ICMPError(10.0.0.1, unreachable)";
    for ways in [
        format!("s[0] -> {error} -> d; s[1] -> d"),
        format!("s[0] -> d; s[1] -> {error} -> d"),
        format!("s[0] -> {error} -> d; s[1] -> {error} -> d"),
    ] {
        assert_eq!(groups(&format!("{begin} {ways}"), "s"), Some(vec![0, 0]), "{ways}");
    }
}

/// Steps of the search, and the most elements that it noted to answer packets of one element's outputs.
fn effort(text: &str) -> (usize, usize) {
    let router = built(text);
    let mut search = Search::new(&router);
    search.run();
    (search.steps, search.answers.capacity())
}

#[test]
fn the_search_takes_few_steps() {
    let mut back = "s :: RoundRobinSwitch; Idle -> s;".to_owned();
    (0..16_384).for_each(|output| {
        let _ = write!(back, "s[{output}] -> s;");
    });
    // The first that comes back says all.
    assert_eq!(effort(&back).0, 1);
    assert_eq!(groups(&back, "s"), Some(vec![0; 16_384]));
    let (steps, answers) = effort(
        "FromDevice(in) -> s :: Classifier(12/0800, -); s[0] -> p :: ICMPPingResponder -> Discard; p[1] -> p; \
         s[1] -> Discard",
    );
    assert!(steps < 20 && answers < 20, "{steps} steps, {answers} answers");
}

#[test]
fn a_search_that_ends_early_is_told() {
    let count = 2_100;
    let mut text = "FromDevice(in) -> t0 :: Tee; d :: Counter -> ToDevice(a);".to_owned();
    for number in 1..count {
        let before = number - 1;
        let _ = write!(text, "t{before}[0] -> t{number} :: Tee; t{before}[1] -> t{number};");
    }
    let _ = write!(text, "t{0}[0] -> d; t{0}[1] -> Discard", count - 1);
    let run = build_with(&text, Capabilities { devices: true, ..Capabilities::default() });
    assert!(run.errors.iter().any(|line| line.contains("search for outputs")), "{:?}", run.errors);
    let router = run.router.expect("a warning is no error");
    // These two never meet, which nobody knows.
    let last = router.exactly(&format!("t{}", count - 1)).expect("it is there");
    assert_eq!(router.at(last).groups(), Some(&[0, 0][..]));
}

#[test]
fn cycles_of_bursts_end_within_the_stack() {
    let whole = "FromDevice(0) -> n :: Null -> n;";
    let divided = "FromDevice(0) -> s :: Classifier(0/01, -); s[0] -> Strip(1) -> s; s[1] -> Strip(1) -> s;";
    // Each byte parts one frame from the others.
    let frame = |number: usize| {
        let mut bytes = vec![0; 600];
        bytes[..255 - number].fill(1);
        bytes
    };
    for (text, count) in [(whole, 1), (divided, 256)] {
        let cycle = move || {
            let router = built(text);
            let inlet = (0..router.len()).find(|id| router.class(*id) == "FromDevice").expect("it is there");
            let mut batch = Batch::new();
            for number in 0..count {
                let packet = router.surroundings().pool.packet(&frame(number)).expect("a frame");
                assert!(batch.push(packet).is_ok());
            }
            router.arrived(count as u64);
            router.element(inlet).push_batch(router.at(inlet), INLET, &mut batch);
            assert_eq!((batch.len(), router.drops(), router.held()), (0, count as u64, 0), "{text}");
        };
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(cycle).expect("a thread");
        thread.join().expect("it fits its stack");
    }
}
