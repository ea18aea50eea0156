//! The guarantees for all rules and all streams; ordinary tests and the fuzz target call it.

use std::collections::BTreeSet;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::tcp::flags;
use netbricks_core::{DetachedContext, Settings, Worker};
use netbricks_functions::signature::{SignatureConfig, node};
use netbricks_testkit::build::ethernet;

/// Bytes of a stream in which every match is found, however the stream is cut.
const MOST: usize = 2_048;

/// Reads rules, and looks for those about streams in a stream that comes whole and in pieces.
///
/// The input is rules, one a line, then a zero byte, a byte that says how to cut, and the stream.
///
/// # Panics
/// When other rules match in the pieces than in the whole.
pub fn signatures(input: &[u8]) {
    let (rules, rest) = match input.iter().position(|byte| *byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &input[..0]),
    };
    let Ok(rules) = std::str::from_utf8(rules) else { return };
    let config = SignatureConfig::of([rules]);
    if config.check().is_err() {
        return;
    }
    // Counts and bits of the flow depend on how often a rule matches, and so on the packets.
    let is_by_count =
        |rule: &&str| ["flowbits", "detection_filter", "pass"].iter().any(|word| rule.contains(word));
    let is_of_stream = |rule: &&str| rule.trim_start().starts_with("alert tcp-stream") && !is_by_count(rule);
    let streams: Vec<&str> = rules.lines().filter(is_of_stream).collect();
    let config = SignatureConfig::of(streams);
    let Some((cut, stream)) = rest.split_first() else { return };
    if config.check().is_err() {
        return;
    }
    let stream = &stream[..stream.len().min(MOST)];
    let whole = matched(&config, &[(0, stream)]);
    let step = usize::from(*cut % 32) + 1;
    let mut pieces: Vec<(usize, &[u8])> =
        stream.chunks(step).enumerate().map(|(at, piece)| (at * step, piece)).collect();
    if cut & 32 != 0 {
        pieces.reverse();
    }
    if cut & 64 != 0 {
        let half = pieces.len() / 2;
        pieces.rotate_left(half);
    }
    assert_eq!(
        matched(&config, &pieces),
        whole,
        "pieces of {step} bytes ({cut}) of {}: {rules}",
        stream.escape_ascii()
    );
}

/// The sids of rules that match in these pieces of a stream.
fn matched(config: &SignatureConfig, pieces: &[(usize, &[u8])]) -> BTreeSet<String> {
    let mut config = config.clone();
    (config.flows, config.memory) = (2, 65_536);
    let pool = Pool::builder().frames(16).large(4, 8_192).build().expect("a small pool");
    let worker = Worker::new(0, 1, pool.clone());
    let mut node = node(&config, &worker).expect("the settings were checked");
    let mut send = |sequence: u32, flag, bytes: &[u8]| {
        let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(sequence).flags(flag);
        let frame = tcp.payload(bytes).build().expect("a short segment");
        let mut batch = Batch::new();
        let packet = pool.packet(&frame).expect("the pool has frames");
        assert!(batch.push(packet).is_ok(), "a batch takes a packet");
        node.process(0, &mut batch, &mut DetachedContext::new(pool.clone()));
    };
    send(99, flags::SYN, b"");
    for (at, bytes) in pieces {
        send(100 + *at as u32, flags::ACK, bytes);
    }
    let end = pieces.iter().map(|(at, bytes)| at + bytes.len()).max().unwrap_or(0);
    send(100 + end as u32, flags::ACK | flags::FIN, b"");
    let matches = node.call("matches", "").expect("the handler is there");
    matches.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
