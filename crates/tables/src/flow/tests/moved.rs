//! Flows that moved here: what is kept, what leaves, and what is counted.

use super::*;

type Flows = FlowTable<u64, u64>;

const CAPACITY: usize = 1_000;
/// ns: a tick is 16 of them.
const IDLE: u64 = 1 << 20;

fn table(full: Full, seed: u64) -> Flows {
    FlowTable::new(FlowTableConfig { seed, ..config(CAPACITY, Some(IDLE), full) }).unwrap()
}

/// One after the other, each hit at its time.
fn fill(table: &mut Flows, keys: std::ops::Range<u64>, time: impl Fn(u64) -> u64) {
    for key in keys {
        table.lookup(key, time(key)).or_insert_with(|| key).unwrap();
    }
}

fn keys(table: &Flows) -> HashSet<u64> {
    table.iter().map(|(key, value)| (key == *value).then_some(key).unwrap()).collect()
}

/// An export of flows from a table with another secret.
fn moved(keys: std::ops::Range<u64>, time: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut from = table(Full::Refuse, 7);
    fill(&mut from, keys, time);
    let (mut bytes, flows) = (Vec::new(), from.len());
    assert_eq!(from.take_where(&mut bytes, |_| true), flows);
    assert!(from.is_empty());
    check(&from);
    bytes
}

#[test]
fn where_half_has_room_the_policy_decides_about_the_rest() {
    for (full, evicted, refused) in
        [(Full::EvictOldest, 300, 0), (Full::Refuse, 0, 300), (Full::EvictExpired, 0, 300)]
    {
        let mut to = table(full, 9);
        fill(&mut to, 0..700, |_| 0);
        let before = to.counters();
        let taken = to.admit(&moved(10_000..10_600, |_| 0), 0).unwrap();
        check(&to);
        let expected = Counters { inserted: before.inserted + 300 + evicted, evicted, refused, ..before };
        assert_eq!((to.len(), to.counters()), (CAPACITY, expected), "{full:?}");
        let here = keys(&to);
        let came = here.iter().filter(|key| **key >= 10_000).count();
        assert!(here.iter().all(|key| (0..700).contains(key) || (10_000..10_600).contains(key)));
        if full == Full::EvictOldest {
            assert_eq!(taken, 600, "all came in, though some of them left again for others");
            assert!(came > 300);
        } else {
            assert_eq!((taken, came), (300, 300), "{full:?}");
        }
    }
}

/// The flow hit longest ago leaves, an old one or a new one.
#[test]
fn flows_that_moved_are_as_old_as_they_were() {
    const NOW: u64 = IDLE / 2;
    for (here, there, stay) in [(NOW, 0, 0..CAPACITY as u64), (0, NOW, 10_000..10_000 + CAPACITY as u64)] {
        let mut to = table(Full::EvictOldest, 9);
        fill(&mut to, 0..CAPACITY as u64, |_| here);
        // The clock of who gave them away goes on to the same time.
        let mut from = table(Full::Refuse, 7);
        fill(&mut from, 10_000..10_000 + CAPACITY as u64, |_| there);
        from.expire(NOW, 0);
        let mut bytes = Vec::new();
        from.take_where(&mut bytes, |_| true);
        to.admit(&bytes, NOW).unwrap();
        check(&to);
        let counters = to.counters();
        assert_eq!((counters.evicted, counters.inserted), (CAPACITY as u64, 2 * CAPACITY as u64));
        let stayed = keys(&to).into_iter().filter(|key| stay.contains(key)).count();
        // 16 are looked at: of each hundred that come last, a few meet none that is older.
        assert!(
            stayed * 100 >= CAPACITY * if here > there { 100 } else { 80 },
            "{stayed} at {here} and {there}"
        );
    }
}

/// Expired flows that wait to be collected make room, under any policy, as for new flows.
#[test]
fn expired_flows_make_room_for_moved_flows() {
    for full in [Full::EvictOldest, Full::Refuse] {
        let mut to = table(full, 9);
        fill(&mut to, 0..CAPACITY as u64, |_| 0);
        to.admit(&moved(10_000..10_000 + CAPACITY as u64, |_| 0), 2 * IDLE).unwrap();
        check(&to);
        let Counters { inserted, evicted, expired, refused, .. } = to.counters();
        assert_eq!(inserted - evicted - expired, to.len() as u64, "{full:?}");
        assert_eq!(inserted + refused, 2 * CAPACITY as u64, "{full:?}");
        assert_eq!(evicted, 0, "{full:?}");
        assert!(
            keys(&to).iter().all(|key| *key >= 10_000) && to.len() > CAPACITY / 2,
            "{full:?}: {}",
            to.len()
        );
    }
}

#[test]
fn timeouts_ages_and_the_more_recent_of_two_go_as_with_an_import() {
    let mut from = table(Full::Refuse, 7);
    for key in 0..40 {
        let Entry::Vacant(place) = from.lookup(key, 1_024 * key) else { panic!("new") };
        let mut flow = place.insert_entry(key);
        match key % 4 {
            0 => flow.keep_forever(),
            1 => flow.set_timeout(20 * 1_024),
            _ => {}
        }
    }
    let mut both = [table(Full::EvictOldest, 9), table(Full::EvictOldest, 9)];
    for to in &mut both {
        // The first of these were hit before those that come, and the last later.
        fill(to, 0..40, |key| 20 * 1_024 + key);
        to.iter().for_each(|(key, value)| assert_eq!(key, *value));
        (0..40).for_each(|key| *to.get_mut(&key).unwrap() += 100);
    }
    let mut bytes = Vec::new();
    from.take_where(&mut bytes, |_| true);
    let now = 40 * 1_024;
    let [admits, decodes] = &mut both;
    assert_eq!(admits.admit(&bytes, now), decodes.decode(&bytes, now));
    let all = |table: &Flows| {
        let mut all = BTreeMap::new();
        table.export(&mut |key, value, age, timeout| {
            all.insert(*key, (*value, age, timeout));
        });
        all
    };
    assert_eq!(all(admits), all(decodes));
    assert_eq!(admits.counters(), decodes.counters());
    let values: HashSet<bool> = all(admits).values().map(|(value, ..)| *value < 100).collect();
    assert_eq!(values.len(), 2, "some were younger, and some older");
}

/// Its owner would not learn which flow leaves, so none does.
#[test]
fn a_table_without_expiry_of_its_own_evicts_no_flow() {
    let mut to = table(Full::EvictOldest, 9).without_own_expiry();
    fill(&mut to, 0..900, |_| 0);
    assert_eq!(to.admit(&moved(10_000..10_300, |_| 0), 2 * IDLE), Ok(100));
    check(&to);
    assert_eq!((to.len(), to.counters().refused, to.counters().expired), (CAPACITY, 200, 0));
}

#[test]
fn no_flow_that_comes_takes_more_work_than_a_lookup() {
    for full in [Full::EvictOldest, Full::Refuse, Full::EvictExpired] {
        let mut to = table(full, 9);
        fill(&mut to, 0..CAPACITY as u64, |key| key * IDLE / CAPACITY as u64);
        for key in 10_000..10_400 {
            let now = IDLE + (key - 10_000) * IDLE / 400;
            let bytes = moved(key..key + 1, |_| 0);
            bounded(&mut to, |to| to.admit(&bytes, now)).unwrap();
        }
        check(&to);
    }
}

proptest! {
    #[test]
    fn a_changed_image_changes_nothing(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let bytes = moved(10_000..10_020, |_| 0);
        let mut to = table(Full::EvictOldest, 9);
        fill(&mut to, 0..CAPACITY as u64, |_| 0);
        let (before, counters) = (keys(&to), to.counters());
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1u8 << bit;
        prop_assert!(to.admit(&changed, 0).is_err());
        prop_assert!(to.admit(&bytes[..at.index(bytes.len())], 0).is_err());
        prop_assert_eq!((keys(&to), to.counters()), (before, counters));
    }
}
