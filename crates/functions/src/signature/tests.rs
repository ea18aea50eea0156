mod captures;
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
use netbricks_testkit::{Report, run_configured};

use super::{SignatureConfig, signature};

/// Matches by sid, from the report.
fn matches(report: &Report) -> BTreeMap<u32, u64> {
    let section = report.sections.iter().find(|section| section.title == "signatures").unwrap();
    section.rows.iter().map(|row| (row[0].parse().unwrap(), row[2].parse().unwrap())).collect()
}

/// Runs frames past rules.
fn run(rules: &[&str], frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
    let mut config = SignatureConfig::of(rules.iter().copied());
    (config.top, config.flows) = (10_000, 64);
    run_configured(signature, config, frames)
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
