//! Memory and the number of connections stay within their bounds, with all segments that can come.

use netbricks_core::packet::Tcp;
use netbricks_stream::{Arrival, BLOCK, Full, Reassembler, StreamConfig, What};

use super::exercise::{flow, segment};

const FLOWS: u32 = 1_000_000;

/// A million connections, each with gaps that are never filled.
#[test]
fn a_gap_flood_of_a_million_flows_stays_within_its_memory() {
    for full in [Full::Refuse, Full::SkipGap, Full::Evict] {
        let config = StreamConfig {
            flows: 4_096,
            flow_memory: 8 * BLOCK,
            memory: 1_000 * BLOCK,
            full,
            ..StreamConfig::default()
        };
        let mut streams = Reassembler::<Tcp>::new(config).unwrap();
        let (mut bytes, mut gaps, mut ends) = (0u64, 0u64, 0u64);
        let (mut sent, mut turned_away) = (0u64, 0u64);
        let allocated = allocation_counter::measure(|| {
            for number in 0..FLOWS {
                for (at, text) in [(100, &[1; 1][..]), (200, &[2; 700]), (2_000, &[3; 1_460])] {
                    let arrival =
                        streams.push(flow(number), segment(at, text), u64::from(number), |delivery| {
                            match delivery.what {
                                What::Bytes(told) => bytes += told.len() as u64,
                                What::Gap(missing) => gaps += missing,
                                What::Urgent(_) => {}
                                What::End(_) => ends += 1,
                            }
                        });
                    sent += text.len() as u64;
                    if matches!(arrival, Arrival::Refused | Arrival::Ignored) {
                        turned_away += text.len() as u64;
                    }
                }
                assert!(streams.len() <= 4_096 && streams.memory().0 <= 1_000 * BLOCK);
            }
        });
        // All its memory was allocated when it was made. The allocator's counts show that, not the
        // reassembler's.
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{full:?}");
        let counters = streams.counters();
        assert!(streams.memory().1 > 990 * BLOCK, "the flood filled it: {counters:?}");
        streams.expire(u64::MAX, 4_096, |delivery| {
            if let What::Bytes(told) = delivery.what {
                bytes += told.len() as u64;
            }
        });
        assert_eq!((streams.len(), streams.memory().0), (0, 0), "all of it was given back");
        assert_eq!(bytes + turned_away, sent, "{full:?}: every byte was told or turned away: {counters:?}");
        match full {
            Full::Refuse => {
                assert_eq!((ends, counters.evicted), (0, 0), "{counters:?}");
                assert_eq!(counters.connections, 4_096, "{counters:?}");
            }
            Full::SkipGap => assert!(turned_away == 0 && gaps > u64::from(FLOWS) * 500, "{counters:?}"),
            Full::Evict => assert!(counters.evicted > u64::from(FLOWS) - 4_097, "{counters:?}"),
        }
    }
}

/// One connection gets its share and no more, and other connections lose nothing because of it.
#[test]
fn one_flow_takes_no_more_than_its_share() {
    for full in [Full::Refuse, Full::SkipGap, Full::Evict] {
        let config = StreamConfig {
            flows: 10,
            flow_memory: 8 * BLOCK,
            memory: 100 * BLOCK,
            full,
            ..StreamConfig::default()
        };
        let mut streams = Reassembler::<Tcp>::new(config).unwrap();
        streams.push(flow(2), segment(0, b"here"), 0, |_| ());
        streams.push(flow(2), segment(9, b"waits"), 0, |_| ());
        streams.push(flow(1), segment(0, b"a"), 0, |_| ());
        streams.push(flow(1).reversed(), segment(0, b"b"), 0, |_| ());
        for at in 1..1_000 {
            for flow in [flow(1), flow(1).reversed()] {
                streams.push(flow, segment(at * 10, b"piece"), 0, |delivery| {
                    assert_eq!(delivery.flow.canonical(), flow.canonical(), "another one's");
                });
                assert!(streams.memory().0 <= 9 * BLOCK, "{full:?}: {streams:?}");
            }
        }
    }
}
