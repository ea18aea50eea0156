//! Handing flows over through the public interface: round trips, buckets, and all faults that the bytes can have.

use std::collections::BTreeMap;

use netbricks_tables::{BUCKETS, Entry, FlowTable, FlowTableConfig, Full, ImportError, Table};
use proptest::prelude::*;

type Flows = FlowTable<u32, (u64, u16)>;

fn table(capacity: usize, seed: u64) -> Flows {
    let config = FlowTableConfig { capacity, idle_timeout: Some(1_000), full: Full::Refuse, seed };
    FlowTable::new(config).expect("memory for a few hundred flows").with_bucket_seed(7)
}

/// Key, value, age and timeout of every flow.
fn flows(table: &Flows) -> BTreeMap<u32, ((u64, u16), u64, u64)> {
    let mut flows = BTreeMap::new();
    table.export(&mut |key, value, age, timeout| {
        assert_eq!(flows.insert(*key, (*value, age, timeout)), None);
    });
    flows
}

fn fill(table: &mut Flows, keys: &[(u32, u64, Option<u64>)]) -> u64 {
    let mut now = 0;
    for (key, wait, timeout) in keys {
        now += wait;
        match table.lookup(*key, now) {
            Entry::Found(mut flow) => flow.get_mut().0 += 1,
            Entry::Vacant(place) => {
                let mut flow = place.insert_entry((1, *key as u16));
                match timeout {
                    Some(timeout) => flow.set_timeout(*timeout),
                    None => flow.keep_forever(),
                }
            }
            Entry::Full => {}
        }
    }
    now
}

fn keys() -> impl Strategy<Value = Vec<(u32, u64, Option<u64>)>> {
    prop::collection::vec((any::<u32>(), 0u64..20, prop::option::of(1u64..5_000)), 0..150)
}

proptest! {
    /// Into a table with another secret, size and time: the same values, ages and timeouts; and expiry goes on.
    #[test]
    fn round_trip(keys in keys(), later in 0u64..1_000_000) {
        let mut from = table(200, 1);
        let now = fill(&mut from, &keys);
        let mut bytes = vec![0xaa];
        from.encode(&mut bytes);
        let mut to = table(300, 2);
        prop_assert_eq!(to.decode(&bytes[1..], now + later), Ok(flows(&from).len()));
        prop_assert_eq!(flows(&to), flows(&from));
        for (key, (_, age, timeout)) in flows(&from) {
            if timeout != u64::MAX {
                let end = now + later + timeout - age;
                let mut again = table(300, 3);
                again.decode(&bytes[1..], now + later).unwrap();
                prop_assert!(again.lookup(key, end - 1).found().is_some());
                let mut again = table(300, 3);
                again.decode(&bytes[1..], now + later).unwrap();
                prop_assert!(again.lookup(key, end).found().is_none());
                break;
            }
        }
    }

    /// The buckets partition the flows, and agree between tables with different secrets.
    #[test]
    fn buckets_partition(keys in keys()) {
        let mut from = table(200, 1);
        let now = fill(&mut from, &keys);
        let mut to = table(200, 99);
        let chosen: Vec<u16> = flows(&from).keys().map(|key| from.bucket(key)).collect();
        for key in flows(&from).keys() {
            prop_assert!(from.bucket(key) < BUCKETS);
            prop_assert_eq!(from.bucket(key), to.bucket(key));
        }
        let mut distinct = chosen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut moved = 0;
        for bucket in distinct {
            let mut bytes = Vec::new();
            from.encode_bucket(bucket, &mut bytes);
            moved += to.decode(&bytes, now).unwrap();
        }
        prop_assert_eq!(moved, flows(&from).len());
        prop_assert_eq!(flows(&to), flows(&from));
    }

    /// Any cut, any changed byte, any tail: an error, and the table holds what it held.
    #[test]
    fn corruption_changes_nothing(keys in keys(), at in any::<prop::sample::Index>(), bits in 1u8.., tail in 1usize..40) {
        let mut from = table(200, 1);
        let now = fill(&mut from, &keys);
        let mut bytes = Vec::new();
        from.encode(&mut bytes);
        let mut to = table(200, 2);
        fill(&mut to, &[(1, 1, Some(4_000)), (2, 1, None)]);
        let before = flows(&to);
        let counters = to.counters();

        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= bits;
        prop_assert!(to.decode(&changed, 2).is_err(), "byte {} changed", at.index(bytes.len()));
        let cut = at.index(bytes.len());
        prop_assert!(matches!(to.decode(&bytes[..cut], 2), Err(ImportError::Length { .. })), "cut to {cut}");
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + tail, 0);
        let refused = matches!(to.decode(&longer, 2), Err(ImportError::Length { .. }));
        prop_assert!(refused);
        let _ = now;
        prop_assert_eq!(flows(&to), before);
        prop_assert_eq!(to.counters(), counters);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        let mut to = table(10, 2);
        let mut input = if honest { b"NBFT\0\x02".to_vec() } else { vec![] };
        input.extend(bytes);
        prop_assert!(to.decode(&input, 0).is_err());
        prop_assert!(to.is_empty());
    }
}

#[test]
fn other_versions_are_named() {
    let mut from = table(10, 1);
    fill(&mut from, &[(5, 0, None)]);
    let mut bytes = Vec::new();
    from.encode(&mut bytes);

    let mut other: FlowTable<u32, u64> = FlowTable::new(FlowTableConfig::new(10)).unwrap();
    let error = other.decode(&bytes, 0).unwrap_err();
    assert!(
        matches!(error, ImportError::Version { what: "value", expected_size: 8, found_size: 10, .. }),
        "{error}"
    );
    let mut other: FlowTable<u64, (u64, u16)> = FlowTable::new(FlowTableConfig::new(10)).unwrap();
    assert!(matches!(other.decode(&bytes, 0), Err(ImportError::Version { what: "key", .. })));

    bytes[5] = 9;
    assert_eq!(from.decode(&bytes, 0), Err(ImportError::Format { found: 9 }));
    assert!(matches!(from.decode(b"PK\x03\x04etc", 0), Err(ImportError::NotAnExport { .. })));
    assert!(matches!(from.decode(b"NB", 0), Err(ImportError::Length { found: 2, .. })));
}

#[test]
fn more_than_there_is_room_for_changes_nothing() {
    let mut from = table(100, 1);
    fill(&mut from, &(0..100).map(|key| (key, 0, None)).collect::<Vec<_>>());
    let mut bytes = Vec::new();
    from.encode(&mut bytes);
    let mut to = table(99, 2);
    let keys: Vec<_> = (0..10).map(|key| (key * 11, 0, None)).collect();
    fill(&mut to, &keys);
    let (before, counters) = (flows(&to), to.counters());
    assert_eq!(to.decode(&bytes, 0), Err(ImportError::NoRoom { flows: 100, len: 10, capacity: 99 }));
    assert_eq!((flows(&to), to.counters()), (before, counters));
}

#[test]
fn the_more_recent_hit_wins() {
    let mut old = table(10, 1);
    fill(&mut old, &[(1, 0, Some(900)), (2, 0, Some(900))]);
    old.expire(100, 0);
    let mut bytes = Vec::new();
    old.encode(&mut bytes);

    let mut to = table(10, 2);
    to.lookup(1, 0).or_insert_with(|| (70, 0)); // 200 ns ago: older than the exported
    to.lookup(2, 150).or_insert_with(|| (80, 0)); // 50 ns ago: newer
    assert_eq!(to.decode(&bytes, 200), Ok(1));
    assert_eq!((to.get(&1), to.get(&2)), (Some(&(1, 1)), Some(&(80, 0))));
}

#[test]
fn taken_flows_are_in_exactly_one_of_two_tables() {
    let config = FlowTableConfig { idle_timeout: Some(1_000_000_000), ..FlowTableConfig::new(2_000) };
    let mut here: FlowTable<u32, u64> = FlowTable::new(config).expect("memory for 2,000 flows");
    let mut there: FlowTable<u32, u64> =
        FlowTable::new(FlowTableConfig { seed: 9, ..config }).expect("memory for 2,000 flows");
    for key in 0..1_000u32 {
        let now = u64::from(key) * 1_000_000;
        here.lookup(key, now).or_insert_with(|| u64::from(key) * 3);
    }
    // The flows of every third key move; the first ones have been idle for nearly a second.
    let now = 1_000_000_000 - 1_000_000;
    let mut bytes = Vec::new();
    let alive = (0..1_000u32).filter(|key| here.get(key).is_some()).collect::<Vec<_>>();
    let taken = here.take_where(&mut bytes, |key| key.is_multiple_of(3));
    assert_eq!(there.decode(&bytes, now), Ok(taken));
    assert_eq!(taken, alive.iter().filter(|key| key.is_multiple_of(3)).count());
    for key in alive {
        let value = Some(u64::from(key) * 3);
        let found = (here.get(&key).copied(), there.get(&key).copied());
        assert_eq!(found, if key.is_multiple_of(3) { (None, value) } else { (value, None) }, "{key}");
    }
    assert_eq!(here.take_where(&mut Vec::new(), |key| key.is_multiple_of(3)), 0, "they are gone");
}
