//! A clock that comes to its end.
//!
//! A capture may hold any time, and so may a host whose clock is wrong. Flows and timers near 2⁶⁴ ns end when they are
//! over. Nothing overflows, hangs or ends early but in the very last tick.

use std::collections::HashMap;

use netbricks_tables::{FlowTable, FlowTableConfig, Table, TimerWheel};
use proptest::prelude::*;

/// Most lateness (ns): two ticks of a millisecond (2²⁰ ns), or of 2⁻¹⁵ of a shorter timeout.
fn late(timeout: u64) -> u64 {
    (2 << 20).min(timeout >> 14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn flows_end_when_they_are_over(
        timeout in prop::sample::select(vec![1u64, 50, 100_000, 200_000, 30_000_000_000, 3_600_000_000_000, u64::MAX]),
        steps in prop::collection::vec((0u64..8, 0u64..1_000), 1..120),
    ) {
        // The steps go just beyond the end.
        let all: u64 = steps.iter().map(|(_, by)| by).sum();
        let unit = (timeout / 500).clamp(1, u64::MAX / 4_000_000);
        let mut now = u64::MAX - all.saturating_mul(unit).saturating_mul(9) / 10;
        let config = FlowTableConfig { idle_timeout: Some(timeout), ..FlowTableConfig::new(64) };
        let mut table: FlowTable<u64, u64> = FlowTable::new(config).unwrap();
        // No timeout is longer than 2³¹ - 1 ticks, the one included in which the last hit was.
        let timeout = timeout.min(((1 << 31) - 2) << 20);
        let mut hits: HashMap<u64, u64> = HashMap::new();
        for (key, by) in steps {
            now = now.saturating_add(by * unit);
            table.expire(now, 64);
            let found = table.lookup(key, now).found().is_some();
            let age = hits.get(&key).map(|hit| now - hit);
            match age {
                None => prop_assert!(!found),
                // A tick of its own each, and they saturate.
                Some(age) if !found => {
                    let last = now >= u64::MAX - (1 << 20).min(timeout);
                    prop_assert!(age >= timeout || last, "{key} ended {age} ns after its hit, at {now}");
                }
                Some(age) => prop_assert!(age <= timeout.saturating_add(late(timeout)), "{key} is {age} ns old"),
            }
            table.lookup(key, now).or_insert_with(|| key);
            hits.insert(key, now);
        }
        // The clock stands at its end: the table still takes, finds, and moves to another.
        for key in 100..110 {
            prop_assert!(table.lookup(key, u64::MAX).or_insert_with(|| key).is_some());
            prop_assert_eq!(table.get(&key), Some(&key));
        }
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        let mut other: FlowTable<u64, u64> = FlowTable::new(config).unwrap();
        other.decode(&bytes, u64::MAX).unwrap();
        prop_assert_eq!(other.len(), table.len());
        for _ in 0..4 {
            table.expire(u64::MAX, 64);
        }
        // An entry that outlives the clock is due at its end, and not at its beginning again.
        prop_assert!(table.next_deadline().is_none_or(|due| due == u64::MAX));
    }

    #[test]
    fn timers_fire_when_they_are_due(
        timers in prop::collection::vec(0u64..200, 1..40),
        steps in prop::collection::vec(0u64..30, 1..20),
    ) {
        let mut wheel = TimerWheel::new(40).unwrap();
        let mut now = u64::MAX - 150;
        wheel.advance(now, 1, |_| None);
        let due: Vec<u64> = timers.iter().map(|after| now.saturating_add(*after)).collect();
        for (timer, due) in due.iter().enumerate() {
            wheel.insert(timer, *due);
        }
        let mut fired = vec![false; due.len()];
        for by in steps.into_iter().chain([200]) {
            now = now.saturating_add(by);
            wheel.advance(now, 1_000, |timer| {
                assert!(due[timer] <= now && !std::mem::replace(&mut fired[timer], true));
                None
            });
            for (timer, due) in due.iter().enumerate() {
                prop_assert_eq!(fired[timer], *due <= now);
            }
        }
        prop_assert!(wheel.is_empty());
        // One that puts itself off to the end of time is due there for ever, a budget at a time.
        wheel.insert(0, u64::MAX);
        prop_assert_eq!(wheel.advance(u64::MAX, 10, |_| Some(u64::MAX)), 10);
        prop_assert_eq!(wheel.deadline(0), Some(u64::MAX));
    }
}
