//! Untrusted bytes: random ones, and built packets with a few bytes changed.

use crate::exercise;
use crate::kinds::{Random, every_kind, mutate};

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(2);
    for _ in 0..30_000 {
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        exercise::parsers(&bytes);
        exercise::flow_key(&bytes);
        exercise::printing(&bytes);
        exercise::difference(&bytes);
    }
}

#[test]
fn changed_packets_never_panic_and_print_their_changes() {
    let mut random = Random(3);
    for (name, packet) in every_kind() {
        for _ in 0..600 {
            let mut changed = packet.clone();
            mutate(&mut changed, &mut random);
            // Every header is also tried where it does not belong.
            exercise::parsers(&changed);
            exercise::parsers(changed.get(14..).unwrap_or_default());
            exercise::parsers(changed.get(34..).unwrap_or_default());
            exercise::flow_key(&changed);
            exercise::printing(&changed);
            exercise::changes(&packet, &changed);
            exercise::changes(&changed, &packet);
            assert!(!name.is_empty());
        }
    }
}

#[test]
fn every_prefix_of_every_packet_is_read() {
    for (_, packet) in every_kind() {
        for size in 0..packet.len() {
            exercise::printing(&packet[..size]);
            exercise::parsers(&packet[..size]);
            exercise::flow_key(&packet[..size]);
        }
    }
}

/// A parser that never finds its header keeps every promise, and would be fuzzed for nothing.
#[test]
fn every_parser_finds_its_header_in_some_packet() {
    let packets = every_kind();
    for name in exercise::HEADERS {
        let finds =
            |(_, packet): &(_, Vec<u8>)| (0..packet.len()).any(|at| exercise::finds(name, &packet[at..]));
        assert!(packets.iter().any(finds), "{name}");
    }
}
