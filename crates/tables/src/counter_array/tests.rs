use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::flow::{FlowTable, FlowTableConfig, Full, MAXIMUM_WORK};
use crate::table::Table;

proptest! {
    /// No byte can be changed, nor the end be cut off, without being noticed.
    #[test]
    fn a_changed_image_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        let mut tallies = CounterArray::new(5);
        tallies.add(2, 77);
        let mut bytes = tallies.encode();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        let before = tallies.clone();
        prop_assert!(tallies.decode(&bytes).is_err());
        prop_assert_eq!(tallies, before);
    }
}

#[test]
fn images_of_another_number_of_counters_are_refused() {
    let (mut four, five) = (CounterArray::new(4), CounterArray::new(5));
    assert!(four.decode(&five.encode()).unwrap_err().to_string().contains("they are 5, here are 4"));
}

#[test]
fn counters_stand_still_at_the_end() {
    let mut tallies = CounterArray::new(1);
    tallies.add(0, u64::MAX - 1);
    assert_eq!((tallies.add(0, 5), tallies.add(1, 5)), (Some(u64::MAX), None));
    let mut keyed: KeyedCounterArray<u32> = KeyedCounterArray::new(FlowTableConfig::new(1)).unwrap();
    keyed.add(0, u64::MAX - 1, 0);
    assert_eq!((keyed.add(0, 5, 0), keyed.add(1, 5, 0)), (Some(u64::MAX), None));
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, u64, Option<u64>),
    Remove(u32),
    /// How many times 64 entries may be looked at.
    Expire(usize),
    Wait(u64),
    /// Exports to bytes, and imports them into another table.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let by = || prop_oneof![0u64..100, Just(u64::MAX - 50)];
    prop_oneof![
        8 => (0u32..30, by(), prop::option::of(1u64..2_000)).prop_map(|(key, by, timeout)| Step::Add(key, by, timeout)),
        1 => (0u32..30).prop_map(Step::Remove),
        2 => (0usize..4).prop_map(Step::Expire),
        4 => (0u64..700).prop_map(Step::Wait),
        1 => Just(Step::Move),
    ]
}

const IDLE: u64 = 1_000;
const CAPACITY: usize = 12;

/// Value, timeout and the time of the last addition.
type Oracle = BTreeMap<u32, (u64, u64, u64)>;

/// The oracle without counters that have ended, which the table may still hold until they are collected.
fn fresh(oracle: &Oracle, now: u64) -> BTreeMap<u32, u64> {
    let fresh = oracle.iter().filter(|(_, (_, timeout, last))| now - last < *timeout);
    fresh.map(|(key, (value, ..))| (*key, *value)).collect()
}

fn counted(tallies: &KeyedCounterArray<u32>) -> BTreeMap<u32, u64> {
    tallies.table().iter().map(|(key, value)| (key, *value)).collect()
}

fn tallies(full: Full, seed: u64) -> KeyedCounterArray<u32> {
    let config = FlowTableConfig { idle_timeout: Some(IDLE), full, seed, ..FlowTableConfig::new(CAPACITY) };
    KeyedCounterArray::new(config).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Compares with a map that forgets by the clock.
    ///
    /// Counters that are there are right; missing ones were evicted or refused, and each of that is counted.
    #[test]
    fn keyed_counters_agree_with_a_map(
        full in prop_oneof![Just(Full::Refuse), Just(Full::EvictOldest), Just(Full::EvictExpired)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (mut table, mut oracle, mut now) = (tallies(full, 1), Oracle::new(), 0);
        let (mut evicted, mut refused) = (0, 0);
        for step in steps {
            // A tick of such timeouts is a nanosecond, so that nothing ends late.
            table.tell(now);
            match step {
                Step::Wait(by) => now += by,
                Step::Add(key, by, timeout) => {
                    let before = fresh(&oracle, now);
                    let change = CounterChange::Add { key, by, timeout, now };
                    let room = table.table().len() < CAPACITY;
                    match table.apply(&change) {
                        CounterOutcome::Added(value) => {
                            prop_assert_eq!(value, before.get(&key).unwrap_or(&0).saturating_add(by));
                            let known = before.get(&key).and_then(|_| oracle.get(&key));
                            let timeout = timeout.or(known.map(|(_, timeout, _)| *timeout)).unwrap_or(IDLE);
                            oracle.insert(key, (value, timeout, now));
                        }
                        CounterOutcome::Full => {
                            prop_assert!(!before.contains_key(&key) && !room && full != Full::EvictOldest);
                            refused += 1;
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                    // At most one flow gave way for it, and only where it had to.
                    let there = counted(&table);
                    let gone: Vec<u32> =
                        fresh(&oracle, now).into_keys().filter(|key| !there.contains_key(key)).collect();
                    prop_assert!(gone.len() <= usize::from(!room && full == Full::EvictOldest && !before.contains_key(&key)));
                    for key in gone {
                        evicted += 1;
                        oracle.remove(&key);
                    }
                }
                Step::Remove(key) => {
                    let value = fresh(&oracle, now).remove(&key);
                    oracle.remove(&key);
                    prop_assert_eq!(table.apply(&CounterChange::Remove { key, now }), CounterOutcome::Removed(value));
                }
                Step::Expire(times) => for _ in 0..times {
                    let before = table.table().len();
                    let CounterOutcome::Expired(ended) = table.apply(&CounterChange::Expire { now }) else {
                        panic!("an expiry is one");
                    };
                    prop_assert_eq!(before - table.table().len(), ended);
                },
                Step::Move => {
                    let mut bytes = Vec::new();
                    table.tell(now);
                    table.table().encode(&mut bytes);
                    let (counters, there) = (table.counters(), counted(&table));
                    prop_assert_eq!(table.table_mut().decode(&bytes, now), Ok(0), "all of it is there");
                    prop_assert_eq!((table.counters(), counted(&table)), (counters, there));
                    let mut other = tallies(full, 2);
                    prop_assert_eq!(other.table_mut().decode(&bytes, now), Ok(fresh(&oracle, now).len()));
                    prop_assert_eq!(counted(&other), counted(&table));
                }
            }
            table.tell(now);
            let expected = fresh(&oracle, now);
            prop_assert_eq!(&counted(&table), &expected);
            prop_assert!(table.table().len() <= CAPACITY);
            let keys: Vec<u32> = (0..30).collect();
            let mut found = Vec::new();
            table.get_bulk(&keys, |at, value| found.push((at, value)));
            for (at, value) in found {
                prop_assert_eq!((value, table.get(&keys[at])), (expected.get(&keys[at]).copied(), value));
            }
            prop_assert_eq!((table.counters().evicted, table.counters().refused), (evicted, refused));
        }
    }

    /// Any cut or flipped bit is an error, after which the table is as it was.
    #[test]
    fn a_changed_image_of_keyed_counters_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        let mut table = tallies(Full::Refuse, 1);
        for key in 0..5 {
            table.add(key, 7, 3);
        }
        let mut bytes = Vec::new();
        table.table().encode(&mut bytes);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        let mut other = tallies(Full::Refuse, 2);
        other.add(9, 4, 3);
        let counters = other.counters();
        prop_assert!(other.table_mut().decode(&bytes, 3).is_err());
        prop_assert_eq!((counted(&other), other.counters()), (BTreeMap::from([(9, 4)]), counters));
    }
}

/// A crowd that came together goes together, in steps of 64, while others count on.
#[test]
fn a_million_counters_that_end_at_once_end_64_at_a_time() {
    const KEYS: u64 = 1_000_000;
    let config = FlowTableConfig { idle_timeout: Some(1_000_000_000), ..FlowTableConfig::new(KEYS as usize) };
    let mut table: KeyedCounterArray<u64> = KeyedCounterArray::new(config).unwrap();
    for key in 0..KEYS {
        assert_eq!(table.add(key, key, 0), Some(key));
    }
    let (mut now, mut calls, mut own) = (2_000_000_000, 0, 0);
    while table.table().len() as u64 > 1 || own == 0 {
        let before = table.table().len();
        let ended = table.expire(now, usize::MAX);
        assert!(ended <= MAXIMUM_WORK && before - table.table().len() == ended);
        // Beside it a lookup in a tick of its own ends some by itself: those that share a timer.
        let before = table.table().len();
        own += 1;
        now += 1 << 20;
        assert_eq!(table.add(KEYS, 1, now), Some(own));
        let less = before as u64 + u64::from(own == 1) - table.table().len() as u64;
        assert!(less <= MAXIMUM_WORK as u64, "{less}");
        calls += 1;
    }
    assert_eq!((table.counters().expired, table.get(&KEYS)), (KEYS, Some(own)));
    // Nothing but that ends them: as many calls as there are timers, each of which may have to move nearer a few times.
    assert!((KEYS / (2 * MAXIMUM_WORK as u64)..KEYS / 8).contains(&calls), "{calls}");
}

/// A flow table's image is one of keyed counters, and the other way round.
#[test]
fn keyed_counters_are_exported_as_flows() {
    let mut flows: FlowTable<u32, u64> = FlowTable::new(FlowTableConfig::new(4)).unwrap();
    flows.lookup(3, 0).or_insert_with(|| 77);
    let mut bytes = Vec::new();
    flows.encode(&mut bytes);
    let mut table = tallies(Full::Refuse, 1);
    assert_eq!(table.table_mut().decode(&bytes, 0), Ok(1));
    assert_eq!(table.add(3, 3, 0), Some(80));
}
