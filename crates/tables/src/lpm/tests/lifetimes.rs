//! Routes that end, by time or by eviction, also behind bytes, compared with a map.

use super::*;
use crate::flow::{Counters, MAXIMUM_WORK};
use crate::shared::Changing;

type Table6 = Lpm<Ipv6Addr, u32>;

#[derive(Clone, Debug)]
enum Act {
    /// Bits, length, value, ns to live, and whether another may leave for it.
    Insert(u128, u8, u32, Option<u64>, bool),
    InsertForever(u128, u8, u32),
    Remove(usize),
    Refresh(usize, Option<u64>),
    Wait(u64),
    /// With this budget, so many times.
    Expire(usize, usize),
    Move,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64..100, 1u64..10_000, 1u64..100_000_000, Just(u64::MAX)]
}

fn act() -> impl Strategy<Value = Act> {
    let len = || prop_oneof![10 => 10u8..=64, 1 => Just(0u8), 1 => Just(128u8)];
    let life = || prop::option::weighted(0.8, span());
    prop_oneof![
        8 => (bits(), len(), 1u32..6, life(), any::<bool>())
            .prop_map(|(bits, len, value, life, evicts)| Act::Insert(bits, len, value, life, evicts)),
        1 => (bits(), len(), 1u32..6).prop_map(|(bits, len, value)| Act::InsertForever(bits, len, value)),
        1 => any::<usize>().prop_map(Act::Remove),
        2 => (any::<usize>(), life()).prop_map(|(nth, life)| Act::Refresh(nth, life)),
        4 => prop_oneof![0u64..200, 0u64..20_000, 0u64..100_000_000].prop_map(Act::Wait),
        3 => (prop_oneof![0usize..4, Just(usize::MAX)], 1usize..8)
            .prop_map(|(budget, times)| Act::Expire(budget, times)),
        1 => Just(Act::Move),
    ]
}

const CAPACITY: usize = 10;

/// Value and end.
type Oracle = BTreeMap<(Ipv6Addr, u8), (u32, Option<u64>)>;

fn held(lpm: &Table6) -> Oracle {
    lpm.iter().map(|(prefix, len, value)| ((prefix, len), (*value, lpm.end(prefix, len)))).collect()
}

fn changed(lpm: &Table6, before: &Counters) -> [u64; 4] {
    let now = lpm.counters();
    [
        now.inserted - before.inserted,
        now.evicted - before.evicted,
        now.expired - before.expired,
        now.refused - before.refused,
    ]
}

/// One insertion in both.
fn insert(lpm: &mut Table6, map: &mut Oracle, key: (Ipv6Addr, u8), value: u32, lifetime: RouteLifetime) {
    let (before, (prefix, len)) = (lpm.counters(), key);
    let inserted = lpm.insert_with_lifetime(prefix, len, value, lifetime);
    let first = map.values().filter_map(|(_, end)| *end).min();
    let full = map.len() == CAPACITY && !map.contains_key(&key);
    let leaves = first.filter(|_| full && lifetime.full == RoutesFull::EvictFirstToEnd);
    if full && leaves.is_none() {
        assert_eq!(inserted, Err(LpmError::PrefixesFull { capacity: CAPACITY }));
        assert_eq!((held(lpm), changed(lpm, &before)), (map.clone(), [0, 0, 0, 1]));
        return;
    }
    let there = held(lpm);
    let left: Vec<_> = map.keys().filter(|key| !there.contains_key(key)).copied().collect();
    let ends: Vec<_> = left.iter().map(|key| map[key].1).collect();
    let over = leaves.is_some_and(|end| end <= lifetime.now);
    if over {
        // No route leaves before those whose time is over.
        assert!(!ends.is_empty() && ends.iter().all(|end| end.is_some_and(|end| end <= lifetime.now)));
    } else {
        assert_eq!(ends, Vec::from_iter(leaves.map(Some)));
    }
    map.retain(|key, _| !left.contains(key));
    let known = map.insert(key, (value, lifetime.end));
    assert_eq!(inserted, Ok(known.map(|(value, _)| value)));
    let [evicted, expired] = if over { [0, left.len() as u64] } else { [left.len() as u64, 0] };
    assert_eq!(changed(lpm, &before), [u64::from(known.is_none()), evicted, expired, 0]);
}

/// This holds however far the clock has gone, and though expired routes were not collected.
#[test]
fn expired_routes_leave_before_long_lived_ones() {
    const NOW: u64 = 1_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;
    let mut lpm = Table6::new(LpmConfig { prefixes: 100, groups: 2_000 }).unwrap();
    let insert = |lpm: &mut Table6, number: u128, now: u64, lives: u64| {
        let lifetime = RouteLifetime { now, end: Some(now + lives), full: RoutesFull::EvictFirstToEnd };
        lpm.insert_with_lifetime(Ipv6Addr::from_bits(number << 64), 64, 1, lifetime).unwrap();
    };
    (0..64).for_each(|number| insert(&mut lpm, number, NOW, 86_400 * SECOND));
    (64..100).for_each(|number| insert(&mut lpm, number, NOW, SECOND + number as u64));
    // One of those that end soon.
    insert(&mut lpm, 100, NOW, 86_400 * SECOND);
    let there = |lpm: &Table6, number: u128| lpm.end(Ipv6Addr::from_bits(number << 64), 64).is_some();
    assert!((0..64).all(|number| there(&lpm, number)) && lpm.counters().evicted == 1);
    // All of those are over.
    (101..130).for_each(|number| insert(&mut lpm, number, NOW + 10 * SECOND, 86_400 * SECOND));
    assert!((0..64).all(|number| there(&lpm, number)));
    // As many as there was room needed for, and a few more at a time.
    assert!(lpm.counters().evicted == 1 && (29..=35).contains(&lpm.counters().expired));
}

fn play_lives(acts: &[Act]) {
    let config = LpmConfig { prefixes: CAPACITY, groups: 14 * CAPACITY };
    let (mut lpm, mut map, mut now) = (Table6::new(config).unwrap(), Oracle::new(), 0u64);
    let mut asked = Vec::new();
    for act in acts {
        let nth = |nth: &usize| map.keys().nth(nth % map.len().max(1)).copied();
        let ends = |life: &Option<u64>| life.map(|life| now.saturating_add(life));
        match act {
            Act::Wait(by) => now += by,
            Act::Insert(bits, len, value, life, evicts) => {
                let full = if *evicts { RoutesFull::EvictFirstToEnd } else { RoutesFull::Refuse };
                let lifetime = RouteLifetime { now, end: ends(life), full };
                let key = (Ipv6Addr::from_bits(*bits).truncated(*len), *len);
                insert(&mut lpm, &mut map, key, *value, lifetime);
                asked.push(Ipv6Addr::from_bits(*bits));
            }
            Act::InsertForever(bits, len, value) => {
                let prefix = Ipv6Addr::from_bits(*bits).truncated(*len);
                if let Ok(before) = lpm.insert(prefix, *len, *value) {
                    assert_eq!(before, map.insert((prefix, *len), (*value, None)).map(|(value, _)| value));
                }
            }
            Act::Remove(number) => {
                let Some((prefix, len)) = nth(number) else { continue };
                assert_eq!(lpm.remove(prefix, len), map.remove(&(prefix, len)).map(|(value, _)| value));
            }
            Act::Refresh(number, life) => {
                let Some(key) = nth(number) else { continue };
                let (value, end) = (map[&key].0, ends(life));
                insert(&mut lpm, &mut map, key, value, RouteLifetime { now, end, full: RoutesFull::Refuse });
            }
            Act::Expire(budget, times) => {
                for _ in 0..*times {
                    let before = lpm.counters();
                    let ended = lpm.expire(now, *budget);
                    assert!(ended <= (*budget).min(MAXIMUM_WORK));
                    let there = held(&lpm);
                    let over = |end: &Option<u64>| end.is_some_and(|end| end <= now);
                    let gone = map.iter().filter(|(key, _)| !there.contains_key(key));
                    assert!(gone.clone().all(|(_, (_, end))| over(end)), "one ended early");
                    assert_eq!((gone.count(), changed(&lpm, &before)), (ended, [0, 0, ended as u64, 0]));
                    map.retain(|key, _| there.contains_key(key));
                    assert!(lpm.is_due(now) || !map.values().any(|(_, end)| over(end)), "one was forgotten");
                }
            }
            Act::Move => {
                lpm.expire(now, 0);
                let mut bytes = Vec::new();
                lpm.encode(&mut bytes);
                // Another clock, and a table that held something.
                let later = now / 2 + 77;
                let mut other = Table6::new(config).unwrap();
                let one = RouteLifetime { now: later, end: Some(later + 5), ..Default::default() };
                other.insert_with_lifetime(Ipv6Addr::LOCALHOST, 128, 9, one).unwrap();
                assert_eq!(other.decode(&bytes, later), Ok(map.len()));
                let left = |(value, end): (u32, Option<u64>), now: u64| {
                    (value, end.map(|end| end.saturating_sub(now).min(u64::MAX - 1 - later)))
                };
                let here = map.iter().map(|(key, route)| (*key, left(*route, now)));
                let there = held(&other).into_iter().map(|(key, (value, end))| {
                    (key, left((value, end.map(|end| end.min(u64::MAX - 1))), later))
                });
                assert_eq!(Vec::from_iter(there), Vec::from_iter(here));
                assert_eq!(lpm.decode(&bytes, now), Ok(map.len()));
                // Routes whose time was over are due again, now.
                map.values_mut().for_each(|(_, end)| *end = end.map(|end| end.max(now)));
                for (key, (_, end)) in held(&lpm) {
                    let known = &mut map.get_mut(&key).unwrap().1;
                    assert!(*known == end || *known == Some(u64::MAX) && end >= Some(u64::MAX - 1));
                    *known = end;
                }
            }
        }
        assert_eq!(held(&lpm), map);
        let first = map.values().filter_map(|(_, end)| *end).min();
        assert!(lpm.next_deadline() <= first || first.is_none(), "{:?} and {first:?}", lpm.next_deadline());
        assert_eq!(lpm.next_deadline().is_some(), first.is_some());
    }
    let values = map.iter().map(|(key, (value, _))| (*key, *value)).collect();
    for address in asked {
        assert_eq!(lpm.longest(address).copied(), naive(&values, address), "{address}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn routes_end_when_a_map_says(acts in prop::collection::vec(act(), 1..100)) {
        play_lives(&acts);
    }

    /// Records under a right checksum are taken as they say, or are refused and change nothing.
    #[test]
    fn any_records_under_a_right_checksum(
        records in prop::collection::vec((bits(), prop_oneof![9 => 0u8..=128, 1 => any::<u8>()], any::<bool>(), any::<u32>(), span()), 0..16),
        now in span(),
    ) {
        let config = LpmConfig { prefixes: CAPACITY, groups: 14 * CAPACITY };
        let mut lpm = Table6::new(config).unwrap();
        let lifetime = RouteLifetime { now: 0, end: Some(500), ..Default::default() };
        lpm.insert_with_lifetime(Ipv6Addr::LOCALHOST, 128, 3, lifetime).unwrap();
        let (before, counters) = (held(&lpm), lpm.counters());
        let mut bytes = Vec::new();
        Table6::new(config).unwrap().encode(&mut bytes);
        bytes.truncate(bytes.len() - 4 - 8);
        bytes.extend((records.len() as u64).to_be_bytes());
        let (mut says, mut right) = (Oracle::new(), true);
        for (bits, len, tidy, value, left) in records {
            let address = Ipv6Addr::from_bits(bits);
            let prefix = if tidy { address.truncated(len) } else { address };
            bytes.extend(prefix.octets());
            bytes.push(len);
            bytes.extend(value.to_be_bytes());
            bytes.extend(left.to_be_bytes());
            right &= len <= 128 && prefix == address.truncated(len);
            says.insert((prefix, len), (value, (left != u64::MAX).then(|| now.saturating_add(left))));
        }
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        match lpm.decode(&bytes, now) {
            Ok(_) => {
                prop_assert!(right);
                prop_assert_eq!(held(&lpm), says);
            }
            Err(LpmImportError::Invalid { .. }) => prop_assert!(!right),
            Err(LpmImportError::NoRoom { .. }) => prop_assert!(right && says.len() > CAPACITY),
            Err(other) => prop_assert!(false, "{}", other),
        }
        if lpm.counters() == counters {
            prop_assert!(held(&lpm) == before || held(&lpm).is_empty());
        }
    }

    /// Cut, or a bit of it turned over: of both versions of IP, and with ends.
    #[test]
    fn exports_of_routes_that_end_are_checked(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        let config = Some(LpmConfig { prefixes: 4, groups: 8 });
        let mut routes: Routes<u32> = Routes::new(config, config).unwrap();
        let lifetime = RouteLifetime { now: 5, end: Some(900), ..Default::default() };
        let prefix: IpAddr = "2001:db8::".parse().unwrap();
        routes.insert_with_lifetime(prefix, 32, 7, lifetime).unwrap();
        let mut bytes = Vec::new();
        routes.encode(&mut bytes);
        let whole = bytes.clone();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        let mut other: Routes<u32> = Routes::new(config, config).unwrap();
        other.insert_with_lifetime(prefix, 48, 8, lifetime).unwrap();
        prop_assert!(other.decode(&bytes, 100).is_err());
        prop_assert_eq!((other.len(), other.end(prefix, 48), other.get(prefix, 32)), (1, Some(900), None));
        prop_assert_eq!(other.decode(&whole, 100), Ok(1));
        prop_assert_eq!((other.len(), other.end(prefix, 32)), (1, Some(995)));
    }
}

/// An unused feature takes no memory.
#[test]
fn a_table_without_ends_has_no_wheel() {
    let mut lpm = Table6::new(LpmConfig { prefixes: 9, groups: 0 }).unwrap();
    let forever = RouteLifetime { now: 7, full: RoutesFull::EvictFirstToEnd, ..Default::default() };
    lpm.insert_with_lifetime(Ipv6Addr::UNSPECIFIED, 0, 1, forever).unwrap();
    let mut bytes = Vec::new();
    lpm.encode(&mut bytes);
    lpm.decode(&bytes, 9).unwrap();
    assert_eq!((lpm.expire(1 << 60, 64), lpm.is_due(1 << 60), lpm.next_deadline()), (0, false, None));
    assert!(lpm.ends.wheel.is_none());
    lpm.insert_with_lifetime(Ipv6Addr::UNSPECIFIED, 1, 1, RouteLifetime { end: Some(9), ..forever }).unwrap();
    assert_eq!(lpm.ends.wheel.as_ref().map(crate::TimerWheel::capacity), Some(9));
}

/// All at once, of both versions: 8 a step, also where they have to move down the wheel before.
#[test]
fn many_that_end_at_once_end_8_at_a_time() {
    const ROUTES: u32 = 20_000;
    let size = Some(LpmConfig { prefixes: ROUTES as usize, groups: 700 });
    let mut routes: Routes<u32> = Routes::new(size, size).unwrap();
    let hour = 3_600_000_000_000;
    let prefix = |number: u32| -> (IpAddr, u8) {
        match number % 2 {
            0 => (Ipv4Addr::from_bits(number << 6).into(), 26),
            _ => (Ipv6Addr::from_bits(u128::from(number) << 88).into(), 40),
        }
    };
    for number in 0..2 * ROUTES {
        let (prefix, len) = prefix(number);
        let lifetime = RouteLifetime { now: 0, end: Some(hour), ..Default::default() };
        routes.insert_with_lifetime(prefix, len, number % 9, lifetime).unwrap();
    }
    assert_eq!(routes.expire(hour - 1, usize::MAX), 0);
    let (mut ended, mut calls) = (0, 0);
    while routes.is_due(hour) {
        let now = routes.expire(hour, usize::MAX);
        assert!(now <= MAXIMUM_WORK / 8);
        ended += now;
        calls += 1;
        assert_eq!(routes.len(), 2 * ROUTES as usize - ended);
    }
    assert_eq!((ended, routes.counters().expired), (2 * ROUTES as usize, 2 * u64::from(ROUTES)));
    // Each moves down once for each level of the wheel at most.
    assert!(calls <= 2 * ROUTES as usize * (11 + 8) / MAXIMUM_WORK, "{calls}");
    assert!(routes.iter().next().is_none() && routes.longest(prefix(6).0).is_none());
}

/// Short prefixes have many cells: fewer end at a time, and one at least.
#[test]
fn the_shorter_those_that_end_the_fewer_at_a_time() {
    // Cells of IPv4 in one stride: a /20 has one, a /14 has 64, a /8 has 4,096.
    for (len, most) in [(20, 8), (14, 8), (12, 6), (8, 1), (4, 1)] {
        let mut routes: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 64, groups: 0 }).unwrap();
        let count = 64.min(1 << len);
        for number in 0..count {
            let lifetime = RouteLifetime { now: 0, end: Some(1), ..Default::default() };
            let prefix = Ipv4Addr::from_bits(number << (32 - len));
            routes.insert_with_lifetime(prefix, len as u8, number, lifetime).unwrap();
        }
        let mut ended = Vec::new();
        while routes.is_due(1) {
            ended.push(routes.expire(1, usize::MAX));
        }
        assert_eq!(ended.iter().sum::<usize>(), count as usize);
        assert_eq!(ended.iter().max(), Some(&most), "/{len}: {ended:?}");
    }
}

/// A table short of groups evicts no prefix in vain.
#[test]
fn groups_are_not_made_free_by_policy() {
    let mut lpm = Table6::new(LpmConfig { prefixes: 2, groups: 2 }).unwrap();
    let until = |end| RouteLifetime { now: 0, end: Some(end), full: RoutesFull::EvictFirstToEnd };
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    lpm.insert_with_lifetime(address("2001:db8::"), 32, 1, until(9)).unwrap();
    lpm.insert_with_lifetime(address("2001:db9::"), 32, 1, until(8)).unwrap();
    let before = held(&lpm);
    let refused = lpm.insert_with_lifetime(address("3001:db8::"), 32, 1, until(7));
    assert_eq!(refused, Err(LpmError::GroupsFull { groups: 2 }));
    assert_eq!((held(&lpm), lpm.counters().refused, lpm.counters().evicted), (before, 1, 0));
    // In the groups that are there it takes the place of the one that ends first, which ends with its groups' last.
    lpm.insert_with_lifetime(address("2001:dba::"), 32, 2, until(7)).unwrap();
    assert_eq!((lpm.longest(address("2001:db9::1")), lpm.counters().evicted), (None, 1));
}

/// An export from before routes could end is another format.
#[test]
fn exports_of_another_format_are_named() {
    let mut lpm = Table6::new(LpmConfig { prefixes: 2, groups: 0 }).unwrap();
    let mut bytes = Vec::new();
    lpm.encode(&mut bytes);
    bytes[5] = 1;
    assert_eq!(lpm.decode(&bytes, 0), Err(LpmImportError::Damaged { problem: "they are of another format" }));
}

#[test]
fn changes_say_what_came_of_them() {
    let mut routes: Routes<u32> = Routes::new(None, Some(LpmConfig { prefixes: 1, groups: 9 })).unwrap();
    let (prefix, len) = ("2001:db8::".parse().unwrap(), 32);
    let lifetime = RouteLifetime { now: 1, end: Some(5), ..Default::default() };
    let outcomes = [
        RouteChange::InsertWithLifetime { prefix, len, value: 3, lifetime },
        RouteChange::Insert { prefix, len: 31, value: 4 },
        RouteChange::Insert { prefix, len, value: 4 },
        RouteChange::Expire { now: 9 },
        RouteChange::InsertWithLifetime { prefix, len, value: 5, lifetime },
        RouteChange::Expire { now: 9 },
        RouteChange::Remove { prefix, len },
    ]
    .map(|change| routes.apply(&change));
    assert_eq!(
        outcomes,
        [
            RouteOutcome::Inserted(None),
            RouteOutcome::Refused(LpmError::PrefixesFull { capacity: 1 }),
            RouteOutcome::Inserted(Some(3)),
            // The second insertion gave it no end.
            RouteOutcome::Expired(0),
            RouteOutcome::Inserted(Some(4)),
            RouteOutcome::Expired(1),
            RouteOutcome::Removed(None),
        ]
    );
}
