//! Expiry of flows: on time, also where they share a timer, and a bounded number at once.

use super::*;

#[test]
fn a_million_flows_expire_64_at_a_time_while_packets_come() {
    const FLOWS: usize = 1_000_000;
    let mut table: FlowTable<u64, u64> =
        FlowTable::new(config(FLOWS, Some(1_000_000_000), Full::Refuse)).unwrap();
    for key in 0..FLOWS as u64 {
        assert!(table.lookup(key, 0).or_insert_with(|| key).is_some());
    }
    let mut now = 3_000_000_000;
    let mut key = 0;
    while table.next_deadline().is_some_and(|due| due <= now) {
        bounded(&mut table, |table| table.expire(now, usize::MAX));
        // None of the old flows is ever found again.
        let vacant = bounded(&mut table, |table| matches!(table.lookup(key, now), Entry::Vacant(_)));
        assert!(vacant);
        (key, now) = (key + 1, now + 100);
    }
    assert_eq!((table.len(), table.counters().expired), (0, FLOWS as u64));
}

#[test]
fn timeouts_shrink_grow_and_outlive_silence() {
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(16, Some(1_000), Full::Refuse)).unwrap();
    let Entry::Vacant(place) = table.lookup(1, 0) else { panic!("empty") };
    place.insert_entry(1).set_timeout(10);
    assert_eq!(table.next_deadline(), Some(10));
    assert!(matches!(table.lookup(1, 10), Entry::Vacant(_)));
    table.lookup(2, 10).or_insert_with(|| 2);
    let Entry::Found(mut flow) = table.lookup(2, 11) else { panic!("just put in") };
    flow.set_timeout(100_000);
    table.expire(50_000, 64);
    assert_eq!(table.get(&2), Some(&2));
    // Months of silence, many times what 32 bits of ticks hold: expired, not young again; one that stays, stays.
    table.lookup(3, 50_000).or_insert_with(|| 3);
    let Entry::Found(mut flow) = table.lookup(3, 50_000) else { panic!("just put in") };
    flow.keep_forever();
    for now in [1u64 << 32, (1 << 32) + 50_010, 1 << 40, (1 << 50) + 50_000, u64::MAX] {
        assert!(matches!(table.lookup(2, now), Entry::Vacant(_)), "at {now}");
        assert!(table.lookup(3, now).found().is_some(), "at {now}");
    }
}

#[test]
fn coarse_ticks_are_never_early_and_hardly_late() {
    let second = 1_000_000_000;
    let mut table: FlowTable<u32, ()> = FlowTable::new(config(16, Some(30 * second), Full::Refuse)).unwrap();
    for start in [0, 100 * second + 1, 200 * second + 12_345_678, 377 * second + 999_999] {
        table.lookup(7, start).or_insert_with(|| ());
        assert!(table.lookup(7, start + 30 * second - 1).found().is_some());
        let seen = start + 30 * second - 1;
        assert!(matches!(table.lookup(7, seen + 30 * second + 2 * (1 << 20)), Entry::Vacant(_)));
        table.clear();
    }
}

/// Flows that share a timer end each at its own time, independently of the others.
#[test]
fn neighbours_with_one_timer_end_at_their_own_times() {
    let mut table: FlowTable<u32, u64> =
        FlowTable::new(config(200, Some(1_000), Full::Refuse)).unwrap().without_own_expiry();
    let mut ends = HashMap::new();
    for key in 0..200 {
        let Entry::Vacant(place) = table.lookup(key, 0) else { panic!("new, and room for it") };
        let timeout = 1 + u64::from(key) * 37 % 500;
        place.insert_entry(timeout).set_timeout(timeout);
        ends.insert(key, timeout);
    }
    for now in 0..1_100u64 {
        // One in three is hit again and again, and outlives the others by far; one in five is taken out.
        for key in 0..200u32 {
            if key % 3 == 0 && now % 16 == 0 && now < 500 && ends.get(&key).is_some_and(|end| *end > now) {
                let timeout = *table.lookup(key, now).found().unwrap();
                ends.insert(key, now + timeout);
            }
            if key % 5 == 0 && now == 9 && ends.get(&key).is_some_and(|end| *end > now) {
                assert!(table.remove(&key).is_some());
                ends.remove(&key);
            }
        }
        let mut ended = HashSet::new();
        table.expire(now, 0);
        while table.next_deadline().is_some_and(|due| due <= now) {
            bounded(&mut table, |table| {
                table.expire_with(now, MAXIMUM_WORK, |key, _| assert!(ended.insert(key)))
            });
        }
        let due: HashSet<u32> = ends.iter().filter(|(_, end)| **end <= now).map(|(key, _)| *key).collect();
        assert_eq!(ended, due, "at {now}");
        ends.retain(|_, end| *end > now);
        check(&table);
    }
    assert!(table.is_empty() && table.wheel.is_empty());
}

/// The author's code sees each flow that ends. If it panics, flows that share its timer still end, later.
#[test]
fn a_panic_over_one_that_ended_leaves_its_neighbours_on_time() {
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(16, Some(100), Full::Refuse)).unwrap();
    for key in 0..16 {
        table.lookup(key, u64::from(key)).or_insert_with(|| key);
    }
    let mut ended = HashSet::new();
    for _ in 0..16 {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            table.expire_with(115, MAXIMUM_WORK, |key, _| {
                assert!(ended.insert(key));
                panic!("an author's");
            })
        }));
        assert!(panicked.is_err());
        check(&table);
    }
    assert_eq!((ended.len(), table.len()), (16, 0));
    assert_eq!(table.expire(115, MAXIMUM_WORK), 0);
    assert_eq!(table.next_deadline(), None);
}

/// A reader gives the time, since a table without writes is not told it.
#[test]
fn a_table_that_is_not_told_the_time_shows_no_expired_flow() {
    for (wait, shown) in [(0, true), (900, true), (1_200, false), (1 << 40, false), (u64::MAX, false)] {
        let mut flows: FlowTable<u64, u32> = FlowTable::new(config(10, Some(1_000), Full::Refuse)).unwrap();
        flows.lookup(1, 50).or_insert_with(|| 7);
        let now = u64::saturating_add(50, wait);
        assert_eq!(flows.get_at(&1, now).is_some(), shown, "{wait}");
        // As if it were told.
        assert_eq!(flows.get(&1), Some(&7));
        flows.expire(now, 0);
        assert_eq!(flows.get(&1).is_some(), shown, "{wait}");
    }
}

/// After silence for longer than 32 bits of ticks can tell, the next flows are young.
///
/// The cases are the ways in which the flows before them left.
#[test]
fn after_long_silence_new_flows_are_young() {
    let leave: [fn(&mut FlowTable<u32, u32>); 4] = [
        |table| (0..40).for_each(|key| assert!(table.remove(&key).is_some())),
        FlowTable::clear,
        |table| table.retain(|_, _| false),
        |table| {
            let mut bytes = Vec::new();
            assert_eq!(table.take_where(&mut bytes, |_| true), 40);
        },
    ];
    for (way, leave) in leave.into_iter().enumerate() {
        for silence in [1u64 << 30, 1 << 31, 1 << 32, 1 << 33, 1 << 40, u64::MAX - 1_000] {
            let mut table: FlowTable<u32, u32> =
                FlowTable::new(config(100, Some(100), Full::Refuse)).unwrap();
            for key in 0..40 {
                table.lookup(key, 0).or_insert_with(|| key);
            }
            leave(&mut table);
            check(&table);
            assert!(table.is_empty() && table.next_deadline().is_none(), "way {way}");
            for key in 50..60 {
                let now = silence + u64::from(key);
                assert!(table.lookup(key, now).or_insert_with(|| key).is_some());
                for known in 50..=key {
                    assert!(table.lookup(known, now).found().is_some(), "way {way}, {known} at {now}");
                }
            }
            check(&table);
        }
    }
}

/// As above, beside a flow that stays for ever and shared its timer with one that has left.
#[test]
fn an_unneeded_timer_holds_no_clock_back() {
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(8, Some(100), Full::Refuse)).unwrap();
    for key in 0..8 {
        let Entry::Vacant(place) = table.lookup(key, 0) else { panic!("new") };
        let mut flow = place.insert_entry(key);
        if key < 4 {
            flow.keep_forever();
        }
    }
    (4..8).for_each(|key| assert!(table.remove(&key).is_some()));
    for (key, now) in [(50, 1u64 << 33), (51, (1 << 33) + 1), (52, (1 << 33) + 2)] {
        assert!(table.lookup(key, now).or_insert_with(|| key).is_some());
        assert!((50..=key).all(|known| table.lookup(known, now).found().is_some()), "at {now}");
    }
    assert!((0..4).all(|key| table.get(&key) == Some(&key)));
    check(&table);
}

/// The most work that one lookup can meet.
///
/// It has a new tick with timers that are due, both groups and the stash in use, a full table, and a policy that looks
/// for a victim.
#[test]
fn the_dearest_lookup_stays_within_the_bound() {
    const PLACES: usize = 2 * WIDTH + STASH;
    let mut table: FlowTable<u64, u64> =
        FlowTable::new(config(PLACES, Some(1_000), Full::EvictOldest)).unwrap();
    let keys: Vec<u64> = {
        let home = |key: u64| table.home(key.hash(&table.secret)).groups;
        let own = (0..).map(home).find(|[first, second]| first != second).unwrap();
        (0..).filter(|key| home(*key) == own).take(PLACES + 200).collect()
    };
    let (old, new) = keys.split_at(PLACES);
    for key in old {
        table.lookup(*key, 0).or_insert_with(|| *key);
    }
    assert_eq!((table.len(), table.stashed), (PLACES, STASH));
    let mut dearest = 0;
    for (at, key) in new.iter().enumerate() {
        // All were hit since their timers were filed, so that these come due and end no flow.
        let now = 900 * at as u64;
        let held: Vec<u64> = table.iter().map(|(key, _)| key).collect();
        held.iter().for_each(|key| assert!(table.lookup(*key, now).found().is_some()));
        bounded(&mut table, |table| table.lookup(*key, now + 500).or_insert_with(|| *key).is_some());
        dearest = dearest.max(table.work.get());
        check(&table);
    }
    assert_eq!((table.len(), dearest), (PLACES, MAXIMUM_WORK));
}

/// A flow that comes after years of silence has its right age, while older flows are still being collected.
#[test]
fn a_silence_of_years_makes_no_later_flow_older() {
    const SECOND: u64 = 1_000_000_000;
    for old in [0, 1, 7, 100, 1_000] {
        let config = FlowTableConfig { idle_timeout: Some(60 * SECOND), ..FlowTableConfig::new(2_048) };
        let mut flows = FlowTable::<u64, u64>::new(config).unwrap();
        (0..old).for_each(|key| assert!(flows.lookup(key, key).or_insert_with(|| 0).is_some()));
        let mut now = 3 * 365 * 86_400 * SECOND;
        for number in 0..400 {
            let count = flows.lookup(1_000_000, now).or_insert_with(|| 0).unwrap();
            *count += 1;
            assert_eq!(*count, number + 1, "after {old} flows, packet {number}");
            assert!(flows.lookup(number % 1_000, now).found().is_none(), "it ended years ago");
            now += SECOND / 7;
        }
        // And it ends in its time.
        assert!(flows.lookup(1_000_000, now + 61 * SECOND).found().is_none(), "after {old} flows");
    }
}

/// And so is what comes between silences, one after the other, while what ended before is still being collected.
#[test]
fn silences_of_years_make_no_flow_younger() {
    const SECOND: u64 = 1_000_000_000;
    for longest in [None, Some(3_600 * SECOND)] {
        let config = FlowTableConfig { idle_timeout: Some(60 * SECOND), ..FlowTableConfig::new(2_048) };
        let mut flows = FlowTable::<u64, u64>::new(config).unwrap();
        for key in 0..1_500 {
            assert!(flows.lookup(key, key).or_insert_with(|| 0).is_some());
            let Entry::Found(mut flow) = flows.lookup(key, key) else { unreachable!() };
            longest.filter(|_| key == 0).into_iter().for_each(|longest| flow.set_timeout(longest));
        }
        let mut now = 0;
        for number in 0..100 {
            // Years, and in between a minute that is just over, or not yet.
            now += [3 * 365 * 86_400, 365 * 86_400][number as usize % 2] * SECOND;
            assert!(flows.lookup(9_000 + number, now).or_insert_with(|| number).is_some());
            let kept = now + 59 * SECOND;
            assert_eq!(flows.lookup(9_000 + number, kept).found(), Some(&mut number.clone()), "{number}");
            now = kept + 61 * SECOND;
            assert!(flows.lookup(9_000 + number, now).found().is_none(), "{number}, {longest:?}");
        }
    }
}
