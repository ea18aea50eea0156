//! The flow table compared with a map and an explicit clock, and attacked with knowledge of its secret.

mod ends;
mod moved;
mod succeeded;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use proptest::prelude::*;

use super::expiry::TIMED;
use super::place::{SAMPLE, STASH};
use super::*;
use crate::group::FREE;

fn config(capacity: usize, idle_timeout: Option<u64>, full: Full) -> FlowTableConfig {
    FlowTableConfig { capacity, idle_timeout, full, seed: 42 }
}

/// Runs one operation and asserts the bound on its work.
fn bounded<K: Key, V, R>(
    table: &mut FlowTable<K, V>,
    operation: impl FnOnce(&mut FlowTable<K, V>) -> R,
) -> R {
    table.work.set(0);
    let result = operation(table);
    assert!(table.work.get() <= MAXIMUM_WORK, "{} slots in one operation", table.work.get());
    result
}

/// Checks the invariants of a table.
fn check<K: Key, V>(table: &FlowTable<K, V>) {
    let (mut live, mut stashed) = (0, 0);
    for index in 0..table.slots.len() {
        let slot = table.slots.get(index).unwrap();
        let tag = table.groups[index / WIDTH].tags[index % WIDTH];
        assert_eq!(slot.is_live(), tag != crate::group::FREE, "slot {index}");
        let timer = table.wheel.deadline(index / TIMED);
        if slot.is_live() {
            live += 1;
            stashed += usize::from(index / WIDTH == table.hashed);
            if slot.timeout() != NEVER {
                let end = table.clock.tick + u64::from(slot.timeout().saturating_sub(table.clock.age(slot)));
                assert!(
                    timer.is_some_and(|timer| timer <= end),
                    "slot {index} ends at {end}, timer {timer:?}"
                );
            }
        }
    }
    for timer in (0..table.slots.len() / TIMED).filter(|timer| table.wheel.deadline(*timer).is_some()) {
        assert_ne!(super::expiry::occupied(&table.groups, timer), 0, "timer {timer} without a flow");
    }
    assert_eq!((live, stashed), (table.len, table.stashed));
    assert!(table.len <= table.capacity);
}

/// Ends all that is due.
fn expire_all<K: Key, V>(table: &mut FlowTable<K, V>, now: u64) {
    table.expire(now, 0);
    while table.next_deadline().is_some_and(|due| due <= now) {
        bounded(table, |table| table.expire(now, MAXIMUM_WORK));
    }
}

/// The map that the table must equal while no flow is refused or evicted: value, last hit, timeout.
#[derive(Default)]
struct Oracle {
    flows: HashMap<u32, (u64, u64, Option<u64>)>,
    hits: u64,
    inserted: u64,
}

impl Oracle {
    fn get(&self, key: u32, now: u64) -> Option<u64> {
        let (value, seen, timeout) = self.flows.get(&key)?;
        timeout.is_none_or(|timeout| now - seen < timeout).then_some(*value)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Count these keys, one packet each.
    Packets(Vec<u32>),
    Remove(u32),
    SetTimeout(u32, u64),
    KeepForever(u32),
    Wait(u64),
    Expire(usize),
    Retain(u32),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(0u32..60, 1..70).prop_map(Step::Packets),
        2 => (0u32..60).prop_map(Step::Remove),
        2 => (0u32..60, 1u64..400).prop_map(|(key, timeout)| Step::SetTimeout(key, timeout)),
        1 => (0u32..60).prop_map(Step::KeepForever),
        4 => prop_oneof![1u64..20, 20u64..500].prop_map(Step::Wait),
        3 => (0usize..100).prop_map(Step::Expire),
        1 => (2u32..5).prop_map(Step::Retain),
        1 => Just(Step::Clear),
    ]
}

/// A number as a key: most are short, and what tells the others apart is all in their far parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Long([u64; 4]);

struct Two;

impl Parts<Long> for Two {
    type Near = [u64; 2];
    type Far = [u64; 2];
    fn split(Long([a, b, rest @ ..]): &Long) -> ([u64; 2], Option<[u64; 2]>) {
        ([*a, *b], (*a == u64::MAX).then_some(*rest))
    }
    fn join([a, b]: [u64; 2], far: impl FnOnce() -> [u64; 2]) -> Long {
        let [c, d] = if a == u64::MAX { far() } else { [0; 2] };
        Long([a, b, c, d])
    }
}

impl Key for Long {
    type Parts = Two;
    fn hash(&self, secret: &Secret) -> u64 {
        self.0.hash(secret)
    }
}

/// A short key of two parts is found by its near part where its ticket says, and nowhere else.
#[test]
fn short_forms_are_found_where_their_tickets_say() {
    type Flows = FlowTable<Long, u64>;
    let mut table = Flows::new(config(17, Some(1 << 20), Full::Refuse)).unwrap();
    let [long, short, other] = [Long([u64::MAX, 2, 3, 4]), Long([1, 2, 0, 0]), Long([2, 2, 0, 0])];
    for (key, value) in [(long, 1), (short, 2), (other, 3)] {
        table.lookup(key, 0).or_insert_with(|| value);
    }
    let [of_short, of_other] = [short, other].map(|key| {
        let mut ticket = Flows::hash(&table.hasher(), &key);
        table.prefetch(&key, &mut ticket);
        ticket
    });
    assert_eq!(Flows::shorten(&long), None);
    let near = Flows::shorten(&short).unwrap();
    assert_eq!(Flows::lengthen(near), short);
    assert_eq!(table.resolve_here(near, of_short).and_then(Entry::found).copied(), Some(2));
    assert_eq!(table.resolve_there(&short, of_short).and_then(Entry::found).copied(), Some(2));
    let before = table.counters();
    assert!(table.resolve_here(near, of_other).is_none() && table.resolve_there(&short, of_other).is_none());
    // A slot that is empty, or whose flow is over, has nothing for anybody.
    table.remove(&short);
    assert!(table.resolve_here(near, of_short).is_none());
    let near = Flows::shorten(&other).unwrap();
    table.tell(1 << 30);
    assert!(table.resolve_here(near, of_other).is_none());
    assert_eq!(table.counters().hits, before.hits);
}

/// A key made from a number.
trait Numbered: Key + std::fmt::Debug {
    fn of(number: u32) -> Self;
}
impl Numbered for u32 {
    fn of(number: u32) -> Self {
        number
    }
}
impl Numbered for Long {
    fn of(number: u32) -> Self {
        let number = u64::from(number);
        Self(if number.is_multiple_of(3) { [u64::MAX, 7, number, 9] } else { [number, 7, 0, 0] })
    }
}

/// Looks up a batch of keys in the table and in the oracle, compares them, and returns the values.
fn play_batch<K: Numbered, const N: usize>(
    table: &mut FlowTable<K, [u64; N]>,
    oracle: &mut Oracle,
    keys: &[u32],
    now: u64,
    idle_timeout: Option<u64>,
) -> Vec<Option<u64>> {
    let mut tickets: Vec<_> = {
        let hasher = table.hasher();
        keys.iter().map(|key| FlowTable::<K, [u64; N]>::hash(&hasher, &K::of(*key))).collect()
    };
    keys.iter().zip(&mut tickets).for_each(|(key, ticket)| table.prefetch(&K::of(*key), ticket));
    let looked_up = keys.iter().zip(tickets).map(|(key, ticket)| {
        let before = bounded(table, |table| {
            table.tell(now);
            let entry = table.resolve(K::of(*key), ticket);
            assert_eq!(entry.key(), Some(K::of(*key)));
            match entry {
                Entry::Found(mut flow) => {
                    *flow.get_mut() = [flow.get()[0] + 1; N];
                    Some(flow.get()[N - 1] - 1)
                }
                Entry::Vacant(place) => {
                    place.insert([1; N]);
                    None
                }
                Entry::Full => panic!("60 keys fit 64 places"),
            }
        });
        assert_eq!(before, oracle.get(*key, now), "key {key} at {now}");
        oracle.hits += u64::from(before.is_some());
        oracle.inserted += u64::from(before.is_none());
        let timeout = match before {
            Some(_) => oracle.flows[key].2,
            None => idle_timeout,
        };
        oracle.flows.insert(*key, (before.unwrap_or(0) + 1, now, timeout));
        before
    });
    looked_up.collect()
}

/// Plays `steps` on a table and on the oracle, compares them, and returns all answers of lookups.
///
/// Batches have `batch` keys, and values have `N` words.
fn play<K: Numbered, const N: usize>(
    steps: &[Step],
    batch: usize,
    idle_timeout: Option<u64>,
) -> Vec<Option<u64>> {
    let mut table: FlowTable<K, [u64; N]> = FlowTable::new(config(64, idle_timeout, Full::Refuse)).unwrap();
    let numbers: Vec<K> = (0..60).map(K::of).collect();
    let number = |key: K| numbers.iter().position(|other| *other == key).unwrap() as u32;
    let mut oracle = Oracle::default();
    let mut now = 0;
    let mut answers = Vec::new();
    for step in steps {
        match step {
            Step::Packets(keys) => {
                for keys in keys.chunks(batch) {
                    answers.extend(play_batch(&mut table, &mut oracle, keys, now, idle_timeout));
                }
            }
            Step::Remove(key) => {
                assert_eq!(
                    bounded(&mut table, |table| table.remove(&K::of(*key))),
                    oracle.get(*key, now).map(|value| [value; N])
                );
                oracle.flows.remove(key);
            }
            Step::SetTimeout(key, timeout) => {
                if let Entry::Found(mut flow) = table.lookup(K::of(*key), now) {
                    flow.set_timeout(*timeout);
                    let flow = oracle.flows.get_mut(key).unwrap();
                    (flow.1, flow.2) = (now, Some(*timeout));
                    oracle.hits += 1;
                }
            }
            Step::KeepForever(key) => {
                if let Entry::Found(mut flow) = table.lookup(K::of(*key), now) {
                    flow.keep_forever();
                    let flow = oracle.flows.get_mut(key).unwrap();
                    (flow.1, flow.2) = (now, None);
                    oracle.hits += 1;
                }
            }
            Step::Wait(by) => now += by,
            Step::Expire(budget) => {
                bounded(&mut table, |table| table.expire(now, *budget));
            }
            Step::Retain(of) => {
                table.expire(now, 0);
                table.retain(|key, _| number(*key) % of != 0);
                oracle.flows.retain(|key, _| key % of != 0);
            }
            Step::Clear => {
                table.clear();
                oracle.flows.clear();
            }
        }
        // Told the time, the table and the map hold the same flows.
        table.expire(now, 0);
        for key in 0..60 {
            assert_eq!(
                table.get(&K::of(key)).copied(),
                oracle.get(key, now).map(|value| [value; N]),
                "key {key} at {now}"
            );
        }
        let flows: BTreeMap<u32, u64> = table.iter().map(|(key, value)| (number(key), value[0])).collect();
        assert!(flows.iter().all(|(key, value)| oracle.get(*key, now) == Some(*value)));
        assert_eq!(flows.len(), (0..60).filter(|key| oracle.get(*key, now).is_some()).count());
        check(&table);
    }
    assert_eq!((table.counters.hits, table.counters.inserted), (oracle.hits, oracle.inserted));
    assert_eq!(table.counters.refused + table.counters.evicted, 0);
    // All that can expire does, when it is waited for.
    now += 1_000;
    expire_all(&mut table, now);
    assert_eq!(table.len(), (0..60).filter(|key| oracle.get(*key, now).is_some()).count());
    answers
}

/// Under every policy, at and beyond capacity: bounded, whole, never more than the capacity, and counted.
fn overfill<K: Numbered, const N: usize>(packets: &[(u32, u64)], config: FlowTableConfig) {
    let mut table: FlowTable<K, [u64; N]> = FlowTable::new(config).unwrap();
    let (mut now, mut misses) = (0, 0);
    for (at, (number, wait)) in packets.iter().enumerate() {
        now += wait;
        let value = [u64::from(*number); N];
        let found = bounded(&mut table, |table| match table.lookup(K::of(*number), now) {
            Entry::Found(flow) => Some(*flow.get()),
            Entry::Vacant(place) => {
                if let Some((key, value)) = place.displaces() {
                    assert_eq!(key, K::of(value[0] as u32));
                }
                if let (Some((key, value)), _) = place.replace(value) {
                    assert_eq!(key, K::of(value[0] as u32));
                }
                None
            }
            Entry::Full => None,
        });
        assert!(found.is_none_or(|found| found == value));
        misses += u64::from(found.is_none());
        if at % 64 == 0 {
            check(&table);
        }
    }
    check(&table);
    assert!(table.iter().all(|(key, value)| key == K::of(value[0] as u32)));
    let counters = table.counters();
    assert_eq!(misses, counters.inserted + counters.refused);
    assert_eq!(table.len() as u64, counters.inserted - counters.evicted - counters.expired);
    if config.full != Full::EvictOldest {
        assert_eq!(counters.evicted, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn equals_a_map_whatever_the_batch(
        steps in prop::collection::vec(step(), 1..40),
        // Short enough for ticks of a nanosecond, which the map has; the last outlives the test.
        idle in prop_oneof![1u64..300, Just(100_000)],
    ) {
        let one = play::<u32, 1>(&steps, 1, Some(idle));
        prop_assert_eq!(&one, &play::<u32, 1>(&steps, 32, Some(idle)));
        prop_assert_eq!(&one, &play::<u32, 1>(&steps, 256, Some(idle)));
        // Keys of two parts, of which the far ones lie apart, and behind their slots.
        const { assert!(Slots::<Long, [u64; 1]>::BYTES == 48 && Slots::<Long, [u64; 2]>::BYTES == 64) };
        prop_assert_eq!(&one, &play::<Long, 1>(&steps, 32, Some(idle)));
        prop_assert_eq!(&one, &play::<Long, 2>(&steps, 32, Some(idle)));
    }

    #[test]
    fn stays_whole_when_full(
        packets in prop::collection::vec((0u32..400, 0u64..30), 1..600),
        capacity in 1usize..120,
        full in prop::sample::select(vec![Full::Refuse, Full::EvictOldest, Full::EvictExpired]),
        idle in prop::option::of(1u64..2_000),
    ) {
        overfill::<u32, 1>(&packets, config(capacity, idle, full));
        overfill::<Long, 1>(&packets, config(capacity, idle, full));
        overfill::<Long, 2>(&packets, config(capacity, idle, full));
    }

    #[test]
    fn every_hash_names_groups_and_a_tag_that_exist(hash in prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)], hashed in 1u64..1 << 28) {
        let Home { groups, tag } = Home::of(hash, hashed * WIDTH as u64);
        prop_assert!(groups.iter().all(|group| u64::from(*group) < hashed), "{:?}", groups);
        prop_assert_ne!(tag, FREE);
    }

    #[test]
    fn stale_and_foreign_tickets_only_cost_time(words in prop::collection::vec(any::<u64>(), 1..50)) {
        let mut table: FlowTable<u64, u64> = FlowTable::new(config(30, None, Full::EvictOldest)).unwrap();
        for (at, word) in words.iter().enumerate() {
            let key = word % 40;
            let mut ticket = FlowTicket(*word);
            if at % 2 == 0 { table.prefetch(&key, &mut ticket) }
            if let Some(value) = table.resolve(key, ticket).or_insert_with(|| key) { prop_assert_eq!(*value, key) }
        }
        check(&table);
    }
}

#[test]
fn refuses_senseless_capacities() {
    let new = |capacity| FlowTable::<u32, u32>::new(FlowTableConfig::new(capacity)).err().unwrap();
    assert!(matches!(new(0), TableError::CapacityZero));
    assert!(matches!(new(usize::MAX), TableError::CapacityTooLarge { .. }));
    let error = new(FlowTable::<u32, u32>::MAXIMUM_CAPACITY);
    assert!(
        matches!(error, TableError::Memory { source: MemoryError::BeyondPhysical { .. }, .. }),
        "{error}"
    );
}

/// Another key's ticket leads to a slot whose near part is this key's as well.
#[test]
fn equal_near_parts_are_told_apart_by_far_parts() {
    fn with<const N: usize>() {
        let mut table: FlowTable<Long, [u64; N]> = FlowTable::new(config(17, None, Full::Refuse)).unwrap();
        let [first, second, third] = [3, 6, 9].map(Long::of);
        table.lookup(first, 0).or_insert_with(|| [1; N]);
        table.lookup(second, 0).or_insert_with(|| [2; N]);
        let mut ticket = FlowTable::<Long, [u64; N]>::hash(&table.hasher(), &first);
        table.prefetch(&first, &mut ticket);
        assert!(table.slots.is(ticket.0 as usize, &first) && !table.slots.is(ticket.0 as usize, &second));
        assert_eq!(table.resolve(second, ticket).found().copied(), Some([2; N]));
        assert!(matches!(table.resolve(third, ticket), Entry::Vacant(_)));
        // Long keys have no short form, and another's ticket leads nowhere, which changes nothing.
        assert!(FlowTable::<Long, [u64; N]>::shorten(&first).is_none());
        let before = table.counters();
        assert!(table.resolve_there(&second, ticket).is_none());
        assert_eq!(table.counters(), before);
        let found = table.resolve_there(&first, ticket).and_then(Entry::found);
        assert_eq!(found.copied(), Some([1; N]));
        assert_eq!(table.resolve(first, ticket).found().copied(), Some([1; N]));
    }
    with::<1>();
    with::<2>();
}

/// Parts that contradict themselves and are equal for all keys give wrong answers, and nothing worse.
#[test]
fn wrong_parts_give_wrong_answers_alone() {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Wrong(u64);
    struct Mixed;
    impl Parts<Wrong> for Mixed {
        type Near = u64;
        type Far = [u64; 4];
        fn split(Wrong(number): &Wrong) -> (u64, Option<[u64; 4]>) {
            (0, number.is_multiple_of(3).then_some([*number; 4]))
        }
        fn join(_: u64, far: impl FnOnce() -> [u64; 4]) -> Wrong {
            Wrong(far()[3])
        }
    }
    impl Key for Wrong {
        type Parts = Mixed;
        fn hash(&self, secret: &Secret) -> u64 {
            self.0.hash(secret)
        }
    }
    // `join` asks for the far part of every key, also of one for which `split` gave none.
    assert_eq!(FlowTable::<Wrong, u64>::lengthen(7), Wrong(0));
    let mut table: FlowTable<Wrong, u64> = FlowTable::new(config(50, Some(100), Full::EvictOldest)).unwrap();
    for number in 0..1_000 {
        table.lookup(Wrong(number % 130), number).or_insert_with(|| number);
        let _ = table.iter().count();
        table.retain(|key, _| key.0 % 50 != 7);
    }
    check(&table);
    expire_all(&mut table, 10_000);
    assert_eq!(table.len(), 0);
}

#[test]
fn the_monitors_slot_is_one_cache_line() {
    assert_eq!(Slots::<[u64; 5], (u64, u64)>::STRIDE, 64);
    assert_eq!(Slots::<u32, u32>::STRIDE, 16);
    assert_eq!(Slots::<[u64; 5], [u64; 4]>::STRIDE, 128);
    // With a far part, behind the slot and apart.
    assert_eq!((Slots::<Long, [u64; 7]>::STRIDE, Slots::<Long, [u64; 7]>::BYTES), (128, 128));
    assert_eq!((Slots::<Long, u64>::STRIDE, Slots::<Long, u64>::BYTES), (32, 48));
    assert_eq!(size_of::<FlowTicket>(), 8);
}

/// To its capacity and at it: random keys come in, hardly any into the stash, and the next is refused.
#[test]
fn holds_its_capacity() {
    for capacity in [1, 2, 15, 16, 17, 20, 25, 33, 40, 64, 100, 200, 1_000, 10_000, 65_536] {
        for seed in 0..(200_000 / capacity as u64).clamp(2, 400) {
            let mut table: FlowTable<u64, ()> =
                FlowTable::new(FlowTableConfig { seed, ..FlowTableConfig::new(capacity) }).unwrap();
            for key in 0..capacity as u64 {
                let entry = bounded(&mut table, |table| table.lookup(key, 0).or_insert_with(|| ()).is_some());
                assert!(entry, "full at {} of {capacity}, seed {seed}", table.len());
            }
            assert!(matches!(table.lookup(u64::MAX, 0), Entry::Full));
            assert_eq!((table.len(), table.counters().refused), (capacity, 1));
            assert!(table.stashed <= STASH / 2, "{} of {capacity} in the stash", table.stashed);
            if seed == 0 {
                check(&table);
                (0..capacity as u64).for_each(|key| assert!(table.get(&key).is_some()));
            }
        }
    }
}

/// Flows come and go at a full table for long: places don't wear out.
#[test]
fn stays_usable_under_churn() {
    let mut table: FlowTable<u64, ()> = FlowTable::new(FlowTableConfig::new(5_000)).unwrap();
    for key in 0..200_000u64 {
        if key >= 5_000 {
            assert!(table.remove(&(key - 5_000)).is_some());
        }
        assert!(table.lookup(key, 0).or_insert_with(|| ()).is_some(), "full at {}", table.len());
    }
    check(&table);
}

/// A prefetched ticket names the flow's slot, but for flows in the stash and flows that share a tag.
///
/// Otherwise every packet would need a search.
#[test]
fn tickets_name_the_slots_of_flows() {
    for capacity in [1, 16, 17, 1_000, 10_000] {
        let mut table: FlowTable<u64, u64> = FlowTable::new(config(capacity, None, Full::Refuse)).unwrap();
        let keys: Vec<u64> = (0..capacity as u64)
            .filter(|key| table.lookup(*key, 0).or_insert_with(|| *key).is_some())
            .collect();
        let hasher = table.hasher();
        let mut tickets: Vec<FlowTicket> =
            keys.iter().map(|key| FlowTable::<u64, u64>::hash(&hasher, key)).collect();
        table.prefetch_all(keys.iter().map(Some).zip(tickets.iter_mut()), &mut Missed::none());
        let here = keys
            .iter()
            .zip(tickets)
            .filter(|(key, ticket)| table.resolve_here(**key, *ticket).is_some())
            .count();
        assert!(here + capacity / 200 >= keys.len(), "{here} of {}", keys.len());
    }
}

/// Keys that are not there are listed, also between keys that are there.
///
/// The exception is a key that shares another's tag, which a table cannot tell apart.
#[test]
fn keys_that_are_not_there_are_listed_as_missed() {
    let mut table: FlowTable<u64, u64> = FlowTable::new(config(10_000, None, Full::Refuse)).unwrap();
    (0..8_000).for_each(|key| assert!(table.lookup(key, 0).or_insert_with(|| key).is_some()));
    let hasher = table.hasher();
    let mut missed = Missed::none();
    let (mut listed, mut strangers) = (0, 0);
    for batch in 0..100u64 {
        // Every third is there in one, all in the next, none in the one after; and none in a batch that fills the list.
        let keys: Vec<u64> = (0..[7, 32, 200, 256][batch as usize % 4])
            .map(|at| match batch % 3 {
                _ if batch % 4 == 3 => 1 << 40 | batch << 20 | at,
                0 if at % 3 > 0 => 1 << 32 | batch << 16 | at,
                2 => 1 << 36 | batch << 16 | at,
                _ => (batch * 97 + at) % 8_000,
            })
            .collect();
        let mut tickets: Vec<FlowTicket> =
            keys.iter().map(|key| FlowTable::<u64, u64>::hash(&hasher, key)).collect();
        // Some have no key, and a ticket from anywhere.
        let asked = keys.iter().enumerate().map(|(at, key)| (at % 11 != 10).then_some(key));
        table.prefetch_all(asked.zip(tickets.iter_mut()), &mut missed);
        let places: Vec<usize> = missed.iter().collect();
        assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|place| *place < keys.len()));
        for (at, key) in keys.iter().enumerate() {
            let there = *key < 8_000;
            assert!(!there || !places.contains(&at), "{key} is there");
            strangers += usize::from(!there);
            listed += usize::from(places.contains(&at));
            table.prefetch_missed(key);
        }
    }
    assert!(listed <= strangers && listed + strangers / 200 >= strangers, "{listed} of {strangers}");
}

/// Both groups and the tag are chosen evenly and by different bits: any two say nothing of the third.
#[test]
fn the_two_groups_and_the_tag_of_hashes_are_independent() {
    const GROUPS: usize = 13;
    let secret = Secret::from_seed(3);
    let mut counts = vec![0u32; GROUPS * GROUPS * 16];
    for key in 0..(counts.len() * 64) as u64 {
        let Home { groups: [first, second], tag } = Home::of(key.hash(&secret), (GROUPS * WIDTH) as u64);
        counts[(first as usize * GROUPS + second as usize) * 16 + (tag & 15) as usize] += 1;
    }
    // Mean 64, and 2,703 degrees of freedom: the standard deviation is 73.5.
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 64.0).powi(2) / 64.0).sum();
    assert!(chi < 2_703.0 + 6.0 * 73.5, "chi-square {chi}");
}

/// Keys that all hash to one pair of groups with one tag; choosing them takes the secret.
fn colliding(table: &FlowTable<u64, u64>, keys: usize, same_tag: bool) -> Vec<u64> {
    let home = |key: u64| table.home(key.hash(&table.secret));
    let (groups, tag) = (home(0).groups, home(0).tag);
    (0..)
        .filter(|key| home(*key).groups == groups && (!same_tag || home(*key).tag == tag))
        .take(keys)
        .collect()
}

#[test]
fn adversarial_keys_stay_within_the_bound() {
    for full in [Full::Refuse, Full::EvictOldest, Full::EvictExpired] {
        // Few groups and few tags to hit, so that the search for keys ends.
        let mut table: FlowTable<u64, u64> = FlowTable::new(config(60, Some(1_000), full)).unwrap();
        let keys = colliding(&table, 200, false);
        let home = table.home(keys[0].hash(&table.secret));
        let places = if home.groups[0] == home.groups[1] { WIDTH } else { 2 * WIDTH } + STASH;
        for (at, key) in keys.iter().enumerate() {
            let held =
                bounded(&mut table, |table| table.lookup(*key, at as u64).or_insert_with(|| *key).is_some());
            assert_eq!(held, at < places || full == Full::EvictOldest, "key {at}, {full:?}");
            assert!(table.len() <= places);
        }
        check(&table);
        // All due at once: each operation still does its bounded share.
        bounded(&mut table, |table| {
            table.lookup(keys[0], 1_000_000).or_insert_with(|| 0);
        });
        check(&table);
    }
}

#[test]
fn equal_tags_are_told_apart_by_key() {
    let mut table: FlowTable<u64, u64> = FlowTable::new(config(17, None, Full::Refuse)).unwrap();
    let keys = colliding(&table, 10, true);
    for key in &keys {
        table.lookup(*key, 0).or_insert_with(|| *key);
    }
    for key in &keys {
        assert_eq!(table.lookup(*key, 0).found().copied(), Some(*key));
    }
    assert_eq!(table.remove(&keys[3]), Some(keys[3]));
    assert_eq!((table.get(&keys[3]), table.get(&keys[4])), (None, Some(&keys[4])));
}

#[test]
fn evicts_who_was_seen_longest_ago() {
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(16, None, Full::EvictOldest)).unwrap();
    let ms = 1 << 20;
    for key in 0..16 {
        table.lookup(key, u64::from(key) * ms).or_insert_with(|| key);
    }
    // 0 is seen again, so that 1 is the oldest: exactly, in a table of 16.
    assert!(table.lookup(0, 20 * ms).found().is_some());
    let Entry::Vacant(place) = table.lookup(99, 21 * ms) else { panic!("room by eviction") };
    assert_eq!(place.displaces(), Some((1, &1)));
    let (displaced, _) = place.replace(99);
    assert_eq!(displaced, Some((1, 1)));
    assert_eq!((table.get(&0), table.get(&1), table.get(&99)), (Some(&0), None, Some(&99)));
    assert_eq!(table.counters().evicted, 1);

    // In a large one, on average older than nearly all: a quarter that is hit again and again loses hardly anyone.
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(10_000, None, Full::EvictOldest)).unwrap();
    for key in 0..10_000 {
        table.lookup(key, 0).or_insert_with(|| key);
    }
    let mut now = 0;
    for new in 0..5_000 {
        if new % 50 == 0 {
            now += ms;
            (0..2_500).for_each(|key| {
                table.lookup(key, now).found();
            });
        }
        assert!(table.lookup(20_000 + new, now).or_insert_with(|| new).is_some());
    }
    let kept = (0..2_500).filter(|key| table.get(key).is_some()).count();
    assert!(kept > 2_450, "{kept} of 2500 busy flows survived");
    check(&table);
}

#[test]
fn an_expired_flow_makes_room_by_policy() {
    let mut table: FlowTable<u32, u32> =
        FlowTable::new(config(16, Some(100), Full::EvictExpired)).unwrap().without_own_expiry();
    for key in 0..16 {
        table.lookup(key, 0).or_insert_with(|| key);
    }
    assert!(matches!(table.lookup(50, 99), Entry::Full));
    let Entry::Vacant(place) = table.lookup(50, 100) else { panic!("all are expired") };
    assert!(place.displaces().is_some());
    place.insert(50);
    assert_eq!((table.len(), table.counters().expired, table.counters().evicted), (16, 1, 0));
    let mut ended = vec![];
    assert_eq!(table.expire_with(100, 64, |key, _| ended.push(key)), 15);
    assert_eq!(ended.len(), 15);
    assert_eq!(table.len(), 1);
}

#[test]
fn removal_while_walking_meets_every_flow_once() {
    let mut table: FlowTable<u32, u32> = FlowTable::new(config(2_000, None, Full::Refuse)).unwrap();
    (0..1_500).for_each(|key| {
        table.lookup(key, 0).or_insert_with(|| key);
    });
    let mut met = HashSet::new();
    let mut cursor = Cursor::default();
    let mut steps = 0;
    while bounded(&mut table, |table| {
        table.walk(&mut cursor, 1_000, |key, _| {
            assert!(met.insert(*key));
            key % 3 != 0
        })
    }) {
        steps += 1;
        // Others are removed and inserted meanwhile.
        table.remove(&(steps * 3 + 1));
        table.lookup(10_000 + steps, 0).or_insert_with(|| 0);
    }
    for key in 0..1_500 {
        if key % 3 == 0 {
            assert!(met.contains(&key) && table.get(&key).is_none());
        } else if key % 3 == 2 {
            assert!(met.contains(&key) && table.get(&key).is_some());
        }
    }
    check(&table);
}

#[test]
fn a_sum_over_a_walk_can_be_kept_right_while_flows_come_and_go() {
    let mut table: FlowTable<u32, u32> =
        FlowTable::new(config(512, Some(1_000), Full::EvictOldest)).unwrap().without_own_expiry();
    let (mut walk, mut sum, mut steps) = (Cursor::default(), 0i64, 0u32);
    (0..400).for_each(|key| {
        table.lookup(key, 0).or_insert_with(|| key);
    });
    while table.walk(&mut walk, 16, |_, value| {
        sum += i64::from(*value);
        true
    }) {
        steps += 1;
        let (key, now) = (1_000 + steps * 7, u64::from(steps) * 60);
        let mut ended = |_, value, behind| sum -= i64::from(value) * i64::from(behind);
        table.expire_during(now, 64, walk, &mut ended);
        while table.is_due() {
            // The walk does not meet flows that are over.
            table.expire_during(now, 64, walk, &mut ended);
        }
        let Entry::Vacant(place) = table.lookup(key, now) else { panic!("it is new") };
        let behind = place.displaces_behind(walk);
        let (displaced, entered) = place.replace(key);
        sum += i64::from(key) * i64::from(entered.is_behind(walk));
        sum -= displaced.map_or(0, |(_, value)| i64::from(value) * i64::from(behind));
    }
    assert!(steps > 20 && table.len() < 400, "flows expired during the walk");
    assert_eq!(sum, table.iter().map(|(_, value)| i64::from(*value)).sum::<i64>());
}

/// A value that says when it is dropped, and how often.
struct Dropped(Rc<RefCell<Vec<u32>>>, u32);
impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn every_value_is_dropped_exactly_once() {
    let drops = Rc::new(RefCell::new(Vec::new()));
    let mut table: FlowTable<u32, Dropped> =
        FlowTable::new(config(16, Some(100), Full::EvictOldest)).unwrap();
    let insert = |table: &mut FlowTable<u32, Dropped>, key, now| {
        table.lookup(key, now).or_insert_with(|| Dropped(drops.clone(), key));
    };
    for key in 0..20 {
        insert(&mut table, key, 0); // four are evicted
    }
    table.remove(&19);
    insert(&mut table, 18, 100); // expired, and in again
    insert(&mut table, 50, 101);
    table.expire(150, 64);
    insert(&mut table, 51, 151);
    table.retain(|key, _| *key != 50);
    drop(table);
    let mut drops = drops.borrow().clone();
    drops.sort_unstable();
    let mut expected: Vec<u32> = (0..20).chain([18, 50, 51]).collect();
    expected.sort_unstable();
    assert_eq!(drops, expected);
}

#[test]
fn bulk_equals_one_by_one() {
    let keys: Vec<u64> = (0..1_000).map(|at: u64| at * at % 300).collect();
    let mut bulk: FlowTable<u64, u32> = FlowTable::new(config(500, None, Full::Refuse)).unwrap();
    let mut order = vec![];
    bulk.lookup_bulk(&keys, 5, |at, entry| {
        order.push(at);
        *entry.or_insert_with(|| 0).unwrap() += 1;
    });
    assert_eq!(order, (0..1_000).collect::<Vec<_>>());
    for (key, count) in &bulk {
        assert_eq!(*count as usize, keys.iter().filter(|other| **other == key).count());
    }
    bulk.lookup_bulk(&[], 5, |_, _| panic!("no keys"));
}

/// The work of one operation adds up to its bound in the worst case.
#[test]
fn the_parts_of_the_bound_add_up() {
    const { assert!(2 * WIDTH + STASH + SAMPLE + TIMED <= MAXIMUM_WORK) };
}
