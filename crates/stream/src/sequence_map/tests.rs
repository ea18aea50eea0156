//! Positions of a direction that went round its numbers.

use super::{Opening, SequenceMap};

#[test]
fn unsent_bytes_may_not_be_acknowledged() {
    for sent in [0, 1, 70_000, u64::from(u32::MAX), 1 << 32, (5 << 32) + 9] {
        for finished in [false, true] {
            let map = SequenceMap { sent, finished, ..SequenceMap::opened(Opening::new(u32::MAX - 5), None) };
            let end = map.number(map.ends());
            assert!(map.has_sent(end), "{sent}");
            for further in [1, 2, 1_000, 1 << 30] {
                assert!(!map.has_sent(end.wrapping_add(further)), "{further} behind {sent}");
                let before = map.has_sent(end.wrapping_sub(further));
                assert_eq!(before, u64::from(further) <= map.ends(), "{further} before {sent}");
            }
        }
    }
}

#[test]
fn acknowledged_bytes_are_not_acknowledged_again() {
    for sent in [100, 1 << 32, 5 << 30] {
        let map =
            SequenceMap { sent, acknowledged: sent - 50, ..SequenceMap::opened(Opening::new(77), None) };
        let may = |distance: i64| map.has_sent(map.number(sent.wrapping_add_signed(distance)));
        assert!(may(-50) && may(-49), "{sent}");
        for distance in [-51, -100, -(1 << 20), i64::from(i32::MIN)] {
            assert!(!may(distance), "{distance} from {sent}");
        }
    }
}
