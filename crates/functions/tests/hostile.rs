//! Tests of all functions with valid packets of every kind, seeded mutations of them, and all captures.
//!
//! Nothing panics, every packet is accounted for, and results do not depend on the batch size (which
//! `run_node` checks).
#![forbid(unsafe_code)]

use std::fmt;

use netbricks_core::packet::tcp::flags;
use netbricks_core::{BuildError, DropReason, Node, Operator, Registry, Worker, compose};
use netbricks_functions::{
    http_inspect, icmp_echo, lpm, macswap, maglev, monitor, mss, policer, signature, ttl, wire,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::{Random, mutate};
use netbricks_testkit::{Report, captures, checksums, kinds, run_node};

/// A function of the registry with one of its examples of settings.
#[derive(Clone)]
struct Tried {
    name: &'static str,
    /// Which of its examples, from 1.
    example: usize,
    settings: &'static str,
}

impl Tried {
    fn is(&self, name: &str) -> bool {
        self.name == name && self.example == 1
    }
    /// `http-inspect` in the path of the packets.
    fn blocks(&self) -> bool {
        self.name == "http-inspect" && self.settings.contains("block = ")
    }
    fn run(&self, frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
        let Self { name, settings, .. } = *self;
        if name == ALL {
            return run_node(all, frames);
        }
        run_node(
            move |worker| {
                let registry = registry();
                let definition = registry.get(name).ok_or_else(|| BuildError::new("it is not registered"))?;
                definition.blueprint(settings).map_err(BuildError::new)?.build(worker)
            },
            frames,
        )
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, example {}", self.name, self.example)
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    netbricks_functions::register(&mut registry);
    registry
}

const ALL: &str = "all";

/// Every function alone, and all that can be fused in one loop.
fn functions() -> Vec<Tried> {
    let registry = registry();
    let tried = registry.iter().flat_map(|definition| {
        let examples = if definition.examples.is_empty() { &[""] } else { definition.examples.as_slice() };
        let numbered = (1..).zip(examples);
        numbered.map(|(example, settings)| Tried { name: definition.name, example, settings })
    });
    tried.chain([Tried { name: ALL, example: 1, settings: "" }]).collect()
}

fn all(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let ttl = ttl::TtlConfig {
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_v6: "2001:db8:ff::1".parse().ok(),
        answer_rate: 1_000_000,
        ..Default::default()
    };
    let echo =
        icmp_echo::EchoConfig { mac: None, v4: Some([10, 0, 0, 2].into()), v6: "2001:db8::2".parse().ok() };
    let monitor = monitor::MonitorConfig { capacity: 4_096, ..Default::default() };
    let mss = mss::MssConfig { size: Some(1_000), mtu: None, add: true };
    let lpm = lpm::LpmSettings::of(
        ["10.0.0.0/8 1", "10.0.0.0/31 2", "2001:db8::/32 3"].map(|route| route.parse().expect("a route")),
    );
    let policer = policer::PolicerConfig { yellow: policer::Action::Mark, ..Default::default() };
    let maglev = maglev::MaglevConfig {
        backends: ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02 3"]
            .map(|backend| backend.parse().expect("a backend"))
            .into(),
        capacity: 256,
        slots: 251,
        ..Default::default()
    };
    let http = http_inspect::HttpInspectConfig { ports: vec![80, 443, 53], flows: 64, ..Default::default() };
    let mut rules = signature::SignatureConfig::of(["alert ip any any -> any any (content:\"l\"; sid:1;)"]);
    rules.flows = 64;
    compose(worker, |input| {
        icmp_echo::icmp_echo(input, &echo, worker)
            .then(|input| ttl::ttl(input, &ttl, worker))
            .then(|input| mss::mss(input, &mss, worker))
            .then(|input| monitor::monitor(input, &monitor, worker))
            .then(|input| policer::policer_by_flow(input, &policer, worker))
            .then(|input| policer::policer_by_address(input, &policer, worker))
            .then(|input| lpm::lpm(input, &lpm, worker))
            .then(|input| maglev::maglev(input, &maglev, worker))
            .then(|input| http_inspect::http_inspect(input, &http, worker))
            .then(|input| signature::signature::<{ signature::HISTORY }>(input, &rules, worker))
            .then(macswap::macswap)
            .then(wire::wire)
    })
}

fn survive(frames: &[Vec<u8>]) {
    for function in functions() {
        // Shown only where the test fails.
        println!("{function}");
        let report = function.run(frames.iter().cloned());
        assert_eq!(report.panics, [], "{function}");
        assert_eq!(report.totals.received.packets, frames.len() as u64, "{function}");
    }
}

#[test]
fn whole_packets_stay_whole() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for function in functions() {
        let report = function.run(frames.iter().cloned());
        assert_eq!(report.panics, [], "{function}");
        for frame in report.out.iter().chain(&report.replies) {
            assert_eq!(checksums::wrong(frame), Vec::<String>::new(), "{function}");
        }
    }
}

/// Frames of one connection from its SYN on, and of other protocols.
///
/// A payload with `RIGHT` is changed to `WRONG` after its sender's checksum was made. Then the sender sends
/// the right bytes again.
fn corrupted_on_the_way() -> Vec<Vec<u8>> {
    let ends = [("10.0.0.1", "10.0.0.2", 4_000, 80), ("10.0.0.2", "10.0.0.1", 80, 4_000)];
    let tcp = |way: usize, sequence, ack, flag, payload: &[u8]| {
        let (from, to, from_port, to_port) = ends[way];
        let tcp = ethernet().ipv4(from, to).tcp(from_port, to_port).sequence(sequence).ack(ack);
        let tcp = if flag & flags::SYN != 0 { tcp.maximum_segment_size(1_460) } else { tcp };
        tcp.flags(flag).payload(payload).build().expect("a segment")
    };
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    let request = b"GET /RIGHT HTTP/1.1\r\nHost: l.example\r\n\r\n";
    let whole = [
        tcp(0, 99, 0, flags::SYN, b"RIGHT"),
        tcp(0, 99, 0, flags::SYN, b""),
        tcp(1, 499, 100, flags::SYN | flags::ACK, b""),
        tcp(0, 100, 500, flags::ACK, b""),
        tcp(0, 100, 500, flags::ACK, request),
        tcp(1, 500, 100, flags::ACK, b"RIGHT, all is well"),
        v6().tcp(5_000, 80)
            .flags(flags::SYN)
            .maximum_segment_size(1_440)
            .payload(b"RIGHT")
            .build()
            .expect("TCP"),
        v6().udp(5_000, 53).payload(b"RIGHT").build().expect("UDP"),
        ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(4_000, 53).payload(b"RIGHT").build().expect("UDP"),
        ethernet()
            .ipv4("10.0.0.1", "10.0.0.2")
            .icmp_echo_request(1, 2)
            .payload(b"RIGHT")
            .build()
            .expect("ICMP"),
        v6().icmpv6_echo_request(1, 2).payload(b"RIGHT").build().expect("ICMPv6"),
    ];
    let corrupt = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        let at = frame.windows(5).position(|bytes| bytes == b"RIGHT");
        if let Some(at) = at {
            frame[at..at + 5].copy_from_slice(b"WRONG");
        }
        frame
    };
    whole.iter().flat_map(|frame| [corrupt(frame), frame.clone()]).collect()
}

#[test]
fn no_function_makes_a_wrong_checksum_right() {
    let frames = corrupted_on_the_way();
    let says = |frame: &[u8], what: &[u8]| frame.windows(5).any(|bytes| bytes == what);
    for function in functions() {
        // The oracle does not look into generic UDP encapsulation, where the wrong checksum still stands.
        if function.settings.contains("mode = \"gue\"") {
            continue;
        }
        let report = function.run(frames.iter().cloned());
        let said = report.out.iter().chain(&report.replies).filter(|frame| says(frame, b"WRONG"));
        // An ICMP error quotes the packet with the checksum that it came with.
        for frame in said.filter(|frame| !is_icmp_error(frame)) {
            assert_ne!(checksums::wrong(frame), Vec::<String>::new(), "{function} believed it");
        }
        let right = |frames: &[Vec<u8>]| frames.iter().filter(|frame| says(frame, b"RIGHT")).count();
        if function.blocks() || function.is("rewrite-stream") {
            // What opens a connection goes on without its bytes.
            assert_eq!(right(&report.out), right(&frames) - 2, "{function}");
        }
    }
}

/// Whether an untagged frame is an ICMP error without IP options or extension headers.
fn is_icmp_error(frame: &[u8]) -> bool {
    match (&frame[12..14], frame.get(23), frame.get(20)) {
        ([8, 0], Some(1), _) => matches!(frame.get(34), Some(3 | 11 | 12)),
        ([0x86, 0xdd], _, Some(58)) => frame.get(54).is_some_and(|kind| *kind < 128),
        _ => false,
    }
}

/// A first fragment of a TCP segment to `port` that ends `bytes` bytes after its IPv4 header.
fn cut_off(port: u16, bytes: usize) -> Vec<u8> {
    let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").fragment(0, true).tcp(4_000, port).flags(flags::ACK);
    let mut frame = tcp.timestamps(1, 2).payload(b"GET / HTTP/1.1").build().expect("a segment");
    frame.truncate(34 + bytes);
    let length = (20 + bytes) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    let sum = checksums::internet(&[&frame[14..24], &frame[26..34]]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_first_fragment_that_ends_in_the_middle_of_its_tcp_header_is_not_malformed() {
    // The header has 32 bytes.
    let frames: Vec<_> =
        [80, 9].into_iter().flat_map(|port| [8, 16, 24].map(|bytes| cut_off(port, bytes))).collect();
    let malformed = {
        let mut frame = cut_off(9, 24);
        frame[34 + 12] = 0x40;
        frame
    };
    for function in functions() {
        let report = function.run(frames.iter().cloned());
        assert_eq!(report.dropped(DropReason::Malformed), 0, "{function}");
        if ["mss", "http-inspect", "rewrite-stream"].into_iter().any(|name| function.is(name)) {
            assert_eq!(report.out, frames, "{function}");
            let report = function.run([malformed.clone()]);
            assert_eq!(
                report.dropped(DropReason::Malformed),
                1,
                "{function}: no fragment makes its data offset right"
            );
        }
        if function.blocks() {
            // Its server would put the request together.
            assert_eq!(
                (report.out.as_slice(), report.dropped(DropReason::Fragment)),
                (&frames[3..], 3),
                "{function}"
            );
        }
    }
}

#[test]
fn twenty_thousand_mutations() {
    let (kinds, mut random) = (kinds::every(), Random::new(2026));
    for _ in 0..40 {
        let frames: Vec<_> = (0..500)
            .map(|_| {
                let mut frame = kinds[random.below(kinds.len())].1.clone();
                mutate(&mut frame, &mut random);
                frame
            })
            .collect();
        survive(&frames);
    }
}

#[test]
fn all_captures() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: no captures (set NETBRICKS_CAPTURES)");
    }
    let mut packets = 0;
    for file in &files {
        let frames: Vec<_> =
            captures::frames(file).into_iter().filter(|frame| frame.len() <= 65_535).collect();
        packets += frames.len();
        survive(&frames);
    }
    assert!(files.is_empty() || packets > 10_000, "only {packets} packets in {} captures", files.len());
}
