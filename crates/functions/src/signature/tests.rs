mod captures;
mod engines;
mod inline;
mod live;
mod moving;
mod naive;
mod random;
mod rules;
mod verdicts;
mod work;

use std::collections::BTreeMap;

use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Report, run_configured, run_node};

use super::{HISTORY, SearchEngine, SignatureConfig, library, node, signature};

/// Matches by sid, from the report.
fn matches(report: &Report) -> BTreeMap<u32, u64> {
    let section = report.sections.iter().find(|section| section.title == "signatures").unwrap();
    section.rows.iter().map(|row| (row[0].parse().unwrap(), row[2].parse().unwrap())).collect()
}

/// The engines of this build.
fn engines() -> impl Iterator<Item = SearchEngine> + Clone {
    let is_there = |engine: &SearchEngine| *engine == SearchEngine::Default || library::IS_BUILT;
    [SearchEngine::Default, SearchEngine::Hyperscan].into_iter().filter(is_there)
}

/// Runs with each engine: they answer alike in all that can be seen.
fn by_each_engine(config: &SignatureConfig, run: impl Fn(SignatureConfig) -> Report) -> Report {
    let mut reports = engines().map(|engine| {
        let mut config = config.clone();
        config.engine = engine;
        (engine, run(config))
    });
    let (_, first) = reports.next().unwrap();
    for (engine, other) in reports {
        assert_eq!(other.sections, first.sections, "{engine:?}");
        assert_eq!((&other.out, &other.replies), (&first.out, &first.replies), "{engine:?}");
        assert_eq!(format!("{:?}", other.drops), format!("{:?}", first.drops), "{engine:?}");
        let counts = &other.sections.iter().find(|section| section.title == "signatures").unwrap().counts;
        assert_eq!(counts["unfinished_searches"], 0, "{engine:?}");
    }
    first
}

/// Settings with these rules, and few flows.
fn settings(rules: &[&str]) -> SignatureConfig {
    let mut config = SignatureConfig::of(rules.iter().copied());
    (config.top, config.flows) = (10_000, 64);
    config
}

/// Runs frames past rules.
fn run(rules: &[&str], frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
    let frames: Vec<Vec<u8>> = frames.into_iter().collect();
    by_each_engine(&settings(rules), |config| run_configured(signature::<HISTORY>, config, frames.clone()))
}

/// A segment from the client at `10.0.0.1:port` to port 80 of `10.0.0.2`.
fn segment(port: u16, sequence: u32, bytes: &[u8]) -> Vec<u8> {
    let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).sequence(sequence);
    tcp.flags(flags::ACK | flags::PSH).payload(bytes).build().unwrap()
}

/// A segment from the server.
fn answer(port: u16, sequence: u32, bytes: &[u8]) -> Vec<u8> {
    let tcp = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, port).sequence(sequence);
    tcp.flags(flags::ACK | flags::PSH).payload(bytes).build().unwrap()
}

fn syn(port: u16, sequence: u32) -> Vec<u8> {
    ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .tcp(port, 80)
        .sequence(sequence)
        .flags(flags::SYN)
        .build()
        .unwrap()
}

/// The handshake of a connection whose client's first byte has this number.
fn open(port: u16, first: u32) -> [Vec<u8>; 3] {
    let server = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, port).sequence(499).ack(first);
    [
        syn(port, first.wrapping_sub(1)),
        server.flags(flags::SYN | flags::ACK).build().unwrap(),
        segment(port, first, b""),
    ]
}

fn udp(port: u16, bytes: &[u8]) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(5_000, port).payload(bytes).build().unwrap()
}

#[test]
fn a_literal_is_found_in_packets_and_over_segments() {
    let rules = [
        r#"alert udp any any -> any 53 (msg:"u"; content:"Needle"; sid:1;)"#,
        r#"alert tcp any any -> any 80 (msg:"t"; content:"needle"; nocase; sid:2;)"#,
        r#"alert tcp any any -> any 81 (msg:"other port"; content:"needle"; sid:3;)"#,
        r#"alert tcp any 80 -> any any (msg:"other way"; content:"needle"; sid:4;)"#,
        r#"alert tcp any any -> any any (msg:"two"; content:"xNee"; content:"dLe"; distance:0; within:3; pcre:"/[a-z]dLe[^q]/"; sid:5;)"#,
    ];
    let frames: Vec<_> = open(1_000, 100)
        .into_iter()
        .chain([udp(53, b"a Needle"), udp(53, b"a needle"), udp(54, b"a Needle")])
        .chain([
            segment(1_000, 100, b"xNe"),
            segment(1_000, 104, b"dL"),
            segment(1_000, 103, b"e"),
            segment(1_000, 106, b"e."),
        ])
        .collect();
    let report = run(&rules, frames.clone());
    assert_eq!(matches(&report), BTreeMap::from([(1, 1), (2, 1), (5, 1)]));
    assert_eq!(report.out, frames);
}

/// Segments of 1,460 bytes: the first begins with `begin`, the last one ends with `needle`.
fn spread(port: u16, count: usize) -> Vec<Vec<u8>> {
    let mut text = vec![b'.'; count * 1_460];
    text[..5].copy_from_slice(b"begin");
    let end = text.len();
    text[end - 6..].copy_from_slice(b"needle");
    text.chunks(1_460).enumerate().map(|(at, part)| segment(port, 100 + at as u32 * 1_460, part)).collect()
}

#[test]
fn a_match_over_several_segments_of_usual_size_is_found() {
    let rule = r#"alert tcp any any -> any 80 (content:"begin"; content:"needle"; distance:0; sid:1;)"#;
    let found = |history: usize, inline: bool, frames: Vec<Vec<u8>>| {
        let mut config = SignatureConfig::of([rule]);
        (config.flows, config.history, config.inline) = (64, history, inline);
        let report =
            by_each_engine(&config, |config| run_node(move |worker| node(&config, worker), frames.clone()));
        matches(&report).contains_key(&1)
    };
    for count in 2..=5 {
        for inline in [false, true] {
            let mut orders = vec![spread(1_000, count), spread(1_000, count)];
            orders[1].reverse();
            // The same bytes once more in other segments, and one of them before the others.
            let mut overlapped = spread(1_000, count);
            overlapped.insert(0, segment(1_000, 100 + 700, &[b'.'; 1_000][..1_000.min(count * 1_460 - 706)]));
            overlapped.push(segment(1_000, 100 + 1_000, &[b'.'; 400]));
            overlapped.swap(1, count);
            orders.push(overlapped);
            for (number, order) in orders.into_iter().enumerate() {
                let frames = open(1_000, 100).into_iter().chain(order).collect();
                assert!(found(HISTORY, inline, frames), "{count} segments, inline {inline}, order {number}");
            }
        }
    }
    // Each size of the history has its bound, behind which the packet at hand comes.
    for (history, count, expected) in
        [(2_048, 1, true), (2_048, 3, false), (8_192, 7, false), (32_768, 6, true), (32_768, 22, true)]
    {
        let frames = || open(1_000, 100).into_iter().chain(spread(1_000, count)).collect();
        assert_eq!(found(history, false, frames()), expected, "{count} segments in {history} bytes");
    }
    let mut other = SignatureConfig::of([rule]);
    other.history = 4_096;
    let refused = netbricks_core::Settings::check(&other).unwrap_err().to_string();
    assert!(refused.contains("must be 2,048, 8,192 or 32,768 bytes, found 4096"), "{refused}");
}
