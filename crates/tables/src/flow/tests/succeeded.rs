//! Flows of a table of another size move a bounded number at a time, and are found meanwhile.

use super::*;

type Flows = FlowTable<u64, u64>;

const OLD: usize = 600;

fn of(capacity: usize, idle: Option<u64>, seed: u64) -> Flows {
    FlowTable::new(FlowTableConfig { seed, ..config(capacity, idle, Full::Refuse) }).unwrap()
}

/// Checks both tables, and that the counts of the new one are of both.
fn check_both(table: &Flows) {
    check(table);
    table.before.iter().for_each(|before| check(before));
    assert_eq!(table.len(), table.iter().count());
    assert!(table.len() <= table.capacity());
    assert!(table.before.as_ref().is_none_or(|before| before.len > 0 && table.settled == 0));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Look(u64),
    Add(u64, u64),
    Remove(u64),
    Get(u64),
    Move(usize),
    Export,
    Walk,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u64..900;
    prop_oneof![
        4 => key().prop_map(Op::Look),
        3 => (key(), any::<u64>()).prop_map(|(key, value)| Op::Add(key, value)),
        2 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Get),
        3 => (1usize..80).prop_map(Op::Move),
        1 => Just(Op::Export),
        1 => Just(Op::Walk),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// As a map that knows of no second table.
    #[test]
    fn a_table_that_succeeds_another_is_as_one(
        first in 0u64..OLD as u64, ops in prop::collection::vec(op(), 1..120), smaller: bool, seed in 1u64..1_000,
    ) {
        let (mut old, mut map) = (of(OLD, None, seed), BTreeMap::new());
        for key in 0..first {
            old.lookup(key, 0).or_insert_with(|| key).unwrap();
            map.insert(key, key);
        }
        let before = old.counters();
        let mut table = of(if smaller { OLD - 1 } else { 1_500 }, None, 7);
        let capacity = table.capacity();
        prop_assert!(table.succeed(&mut old));
        prop_assert_eq!((old.len(), table.len(), table.capacity()), (0, first as usize, capacity));
        prop_assert_eq!(table.counters(), before);
        for op in ops {
            match op {
                Op::Look(key) => {
                    let found = bounded_both(&mut table, |table| table.lookup(key, 0).found().copied());
                    prop_assert_eq!(found, map.get(&key).copied());
                }
                Op::Add(key, value) => {
                    let room = map.len() < capacity;
                    match table.lookup(key, 0).or_insert_with(|| value) {
                        Some(place) => *place = value,
                        None => {
                            prop_assert!(!room && !map.contains_key(&key));
                            continue;
                        }
                    }
                    map.insert(key, value);
                }
                Op::Remove(key) => prop_assert_eq!(table.remove(&key), map.remove(&key)),
                Op::Get(key) => {
                    prop_assert_eq!(table.get(&key), map.get(&key));
                    prop_assert_eq!(table.get_mut(&key).copied(), map.get(&key).copied());
                }
                Op::Move(slots) => {
                    let (moved, goes_on) = (table.next_moved, table.move_on(slots));
                    prop_assert!(table.next_moved - moved <= slots);
                    prop_assert_eq!(goes_on, table.before.is_some());
                }
                Op::Export => {
                    let (mut whole, mut steps, mut next) = (Vec::new(), Vec::new(), Some(0));
                    table.encode(&mut whole);
                    while let Some(slot) = next {
                        next = table.encode_step(slot, &mut steps);
                    }
                    Flows::encode_end(&mut steps);
                    prop_assert_eq!(&whole, &steps);
                    let mut copy = of(2_000, None, 9);
                    prop_assert_eq!(copy.decode(&whole, 0), Ok(map.len()));
                }
                Op::Walk => {
                    let (mut cursor, mut met) = (Cursor::default(), 0);
                    while table.walk(&mut cursor, MAXIMUM_WORK, |_, _| { met += 1; true }) {}
                    prop_assert_eq!(met, map.len());
                    prop_assert!(table.before.is_none());
                }
            }
            check_both(&table);
            prop_assert_eq!(table.len(), map.len());
        }
        while table.move_on(64) {}
        check_both(&table);
        prop_assert_eq!(table.iter().map(|(key, value)| (key, *value)).collect::<BTreeMap<_, _>>(), map);
        prop_assert_eq!((table.capacity(), table.settled), (capacity, capacity));
    }
}

/// A lookup in each of two tables, and a flow that moves between them.
fn bounded_both<R>(table: &mut Flows, operation: impl FnOnce(&mut Flows) -> R) -> R {
    table.work.set(0);
    let result = operation(table);
    assert!(table.work.get() <= 2 * MAXIMUM_WORK, "{} slots in one operation", table.work.get());
    result
}

#[test]
fn flows_that_move_expire_when_they_would_have() {
    const IDLE: u64 = 1 << 20;
    for (other, moves_first) in [(IDLE * 4, true), (IDLE * 4, false), (IDLE / 4, true), (IDLE / 4, false)] {
        let mut old = of(OLD, Some(IDLE), 3);
        for key in 0..500 {
            old.lookup(key, key * 1_000).or_insert_with(|| key).unwrap();
        }
        let mut table = of(1_000, Some(other), 5);
        assert!(table.succeed(&mut old));
        while moves_first && table.move_on(64) {}
        // A hit of the old time still counts; a new flow has the new timeout.
        table.lookup(1_000, 500_000).or_insert_with(|| 1).unwrap();
        while table.move_on(64) {}
        assert_eq!(table.len(), 501);
        check(&table);
        let live = |table: &Flows| table.iter().filter(|(key, _)| *key < 500).count();
        let early = IDLE - 1_000;
        expire_all(&mut table, early);
        assert_eq!(live(&table), 500, "{other} {moves_first}");
        // At most two ticks late, of the longer kind.
        expire_all(&mut table, IDLE + 250_000);
        assert!(live(&table) <= 252 && live(&table) >= 249, "{} {other} {moves_first}", live(&table));
        expire_all(&mut table, IDLE + 500_000 + 200);
        assert_eq!(live(&table), 0, "{other} {moves_first}");
        assert_eq!(table.get(&1_000).is_some(), other > IDLE);
    }
}

#[test]
fn a_table_with_too_little_room_or_with_flows_takes_nothing() {
    let mut old = of(OLD, None, 3);
    for key in 0..500 {
        old.lookup(key, 0).or_insert_with(|| key).unwrap();
    }
    let mut small = of(499, None, 5);
    assert!(!small.succeed(&mut old));
    let mut used = of(1_000, None, 5);
    used.lookup(1, 0).or_insert_with(|| 1);
    assert!(!used.succeed(&mut old));
    assert_eq!((old.len(), small.len(), used.len()), (500, 0, 1));
    // One that still moves gives all of it to the next one.
    let mut large = of(1_000, None, 5);
    assert!(large.succeed(&mut old));
    assert!(large.move_on(100));
    let mut last = of(2_000, None, 6);
    assert!(last.succeed(&mut large));
    assert_eq!((large.len(), last.len()), (0, 500));
    last.clear();
    check_both(&last);
    assert_eq!((last.len(), last.capacity(), last.settled), (0, 2_000, 2_000));
}
