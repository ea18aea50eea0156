//! Streams that pass inline: receivers get the bytes that were looked at, and connections are reset.

use std::collections::BTreeMap;

use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{Report, run_configured};
use proptest::prelude::*;

use super::{by_each_engine, matches};
use crate::signature::{HISTORY, SignatureConfig, signature, signature_inline};

const ACK: u8 = flags::ACK;

fn client(port: u16, sequence: u32, acknowledged: u32, flag: u8, bytes: &[u8]) -> Vec<u8> {
    let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).sequence(sequence).ack(acknowledged);
    tcp.flags(flag).window(60_000).payload(bytes).build().unwrap()
}

fn open(port: u16) -> [Vec<u8>; 3] {
    let server = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, port).sequence(499).ack(100).window(60_000);
    [
        client(port, 99, 0, flags::SYN, b""),
        server.flags(flags::SYN | ACK).build().unwrap(),
        client(port, 100, 500, ACK, b""),
    ]
}

fn settings(rules: &[&str]) -> SignatureConfig {
    let mut config = SignatureConfig::of(rules.iter().copied());
    (config.flows, config.inline) = (16, true);
    config
}

/// Bytes of a client that reached the server, and whether it was reset.
fn reached(report: &Report, port: u16) -> (Vec<u8>, bool) {
    let (mut bytes, mut reset) = (Vec::new(), false);
    for frame in report.out.iter().filter(|frame| frame[34..36] == port.to_be_bytes()) {
        let at = u32::from_be_bytes(frame[38..42].try_into().unwrap()).wrapping_sub(100) as usize;
        let payload = &frame[34 + usize::from(frame[46] >> 4) * 4..];
        reset |= frame[47] & flags::RST != 0;
        if at == bytes.len() {
            bytes.extend_from_slice(payload);
        }
    }
    (bytes, reset)
}

#[test]
fn a_connection_with_a_dropped_match_is_reset_before_the_server_has_it() {
    let rules = [
        r#"drop tcp any any -> any 80 (content:"attack"; sid:1;)"#,
        r#"drop udp any any -> any 53 (content:"attack"; sid:2;)"#,
        r#"drop tcp any any -> any 80 (content:"packet"; flow:no_stream; sid:3;)"#,
    ];
    let udp =
        |bytes: &[u8]| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 53).payload(bytes).build().unwrap();
    let frames: Vec<_> = [1_000, 1_001, 1_002].into_iter().flat_map(open).collect();
    let frames = frames.into_iter().chain([
        client(1_000, 100, 500, ACK, b"an at"),
        client(1_000, 107, 500, ACK, b"ck"),
        client(1_000, 105, 500, ACK, b"ta"),
        client(1_000, 109, 500, ACK, b" more"),
        client(1_001, 100, 500, ACK, b"an atta"),
        client(1_001, 107, 500, ACK, b"k"),
        client(1_002, 100, 500, ACK, b"one "),
        client(1_002, 104, 500, ACK, b"packet"),
        client(1_002, 104, 500, ACK, b"pa"),
        udp(b"attack"),
        udp(b"fine"),
    ]);
    let run = |config| run_configured(signature_inline::<HISTORY>, config, frames.clone());
    let report = by_each_engine(&settings(&rules), run);
    assert_eq!(matches(&report), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    let (bytes, reset) = reached(&report, 1_000);
    assert!(reset && b"an atta".starts_with(&bytes), "{}", bytes.escape_ascii());
    assert_eq!(reached(&report, 1_001), (b"an attak".to_vec(), false));
    assert_eq!(reached(&report, 1_002), (b"one pa".to_vec(), false));
    assert!(report.replies.iter().any(|frame| frame[47] & flags::RST != 0), "the client is reset, too");
    assert_eq!(report.out.iter().filter(|frame| frame[23] == 17).count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Inline and beside the path, the same rules match, and all bytes arrive.
    #[test]
    fn rules_match_inline_as_beside_the_path(seed: u64) {
        let rules = [
            r#"alert tcp-stream any any -> any 80 (content:"needle"; sid:1;)"#,
            r#"alert tcp-stream any any -> any 80 (content:"ne"; content:"le"; distance:1; within:5; sid:2;)"#,
            r#"alert tcp-stream any any -> any 80 (pcre:"/d.{1,4}e/"; content:!"n"; within:3; sid:3;)"#,
        ];
        let mut random = Random::new(seed);
        let words = ["needle", "ne", "d", "le", ".", "dle"];
        let text: Vec<u8> = (0..40).flat_map(|_| words[random.below(words.len())].bytes()).collect();
        let mut frames: Vec<Vec<u8>> = open(1_000).into();
        let mut at = 0;
        while at < text.len() {
            let end = text.len().min(at + 1 + random.below(30));
            frames.push(client(1_000, 100 + at as u32, 500, ACK, &text[at..end]));
            at = end;
        }
        let mut beside = settings(&rules);
        beside.inline = false;
        let expected = matches(&run_configured(signature::<HISTORY>, beside, frames.clone()));
        let run = |config| run_configured(signature_inline::<HISTORY>, config, frames.clone());
        let report = by_each_engine(&settings(&rules), run);
        prop_assert_eq!(matches(&report), expected);
        prop_assert_eq!(reached(&report, 1_000), (text, false));
    }
}
