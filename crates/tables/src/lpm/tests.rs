mod lifetimes;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::flow::Encode;

/// The definition, without a thought for speed.
fn naive<A: Address>(prefixes: &BTreeMap<(A, u8), u32>, address: A) -> Option<u32> {
    (0..=A::BITS).rev().find_map(|len| prefixes.get(&(address.truncated(len), len)).copied())
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u128, u8, u32),
    Remove(u128, u8),
    /// Takes out what is there, by number.
    RemoveNth(usize),
    Move,
}

/// Few different bits, so that prefixes lie inside each other and share groups.
fn bits() -> impl Strategy<Value = u128> {
    (prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x80, 0xff]), 16), 0u32..3).prop_map(
        |(bytes, keep)| {
            let all = u128::from_be_bytes(bytes.try_into().unwrap());
            // Mostly one of few beginnings.
            if keep == 0 { all } else { all & (u128::MAX >> 20) | 0x2001_0000_0000_0000_0000_0000_0000_0000 }
        },
    )
}

/// Lengths around the ends of strides, and rarely the shortest, which write many cells.
fn step(most: u8) -> impl Strategy<Value = Step> {
    let len = move || {
        prop_oneof![
            40 => 9..=most, 20 => prop::sample::select(vec![15u8, 16, 17, 19, 20, 21, 24, 25, 26, 27, 31, 32]), 20 => Just(most), 1 => 0..=8u8
        ]
    };
    prop_oneof![
        6 => (bits(), len(), 1u32..6).prop_map(|(bits, len, value)| Step::Insert(bits, len, value)),
        1 => (bits(), len()).prop_map(|(bits, len)| Step::Remove(bits, len)),
        3 => any::<usize>().prop_map(Step::RemoveNth),
        1 => Just(Step::Move),
    ]
}

/// Plays steps on a table and on a map, and compares their answers for addresses in and around every prefix.
fn play<A: Address + Encode>(lpm: &mut Lpm<A, u32>, steps: &[Step], of: impl Fn(u128) -> A) {
    let mut map: BTreeMap<(A, u8), u32> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(bits, len, value) => {
                let prefix = of(*bits).truncated(*len);
                assert_eq!(lpm.insert(prefix, *len, *value), Ok(map.insert((prefix, *len), *value)));
            }
            Step::Remove(bits, len) => {
                let prefix = of(*bits).truncated(*len);
                assert_eq!(lpm.remove(prefix, *len), map.remove(&(prefix, *len)));
            }
            Step::RemoveNth(nth) => {
                let Some((prefix, len)) = map.keys().nth(nth % map.len().max(1)).copied() else { continue };
                assert_eq!(lpm.remove(prefix, len), map.remove(&(prefix, len)));
            }
            Step::Move => {
                let mut bytes = vec![];
                lpm.encode(&mut bytes);
                assert_eq!(lpm.decode(&bytes, 0), Ok(map.len()));
            }
        }
        assert!(
            lpm.iter()
                .map(|(prefix, len, value)| ((prefix, len), *value))
                .eq(map.iter().map(|(k, v)| (*k, *v)))
        );
        // No group is in use that no prefix needs.
        let needed = LpmConfig::for_prefixes(map.keys().copied());
        assert_eq!((lpm.len(), lpm.groups().0), (map.len(), needed.groups));
    }
    let mut addresses: Vec<A> = map.keys().map(|(prefix, _)| *prefix).collect();
    for step in steps {
        if let Step::Insert(bits, len, _) | Step::Remove(bits, len) = step {
            let last_bit = 1u128.checked_shl(128 - u32::from(*len)).unwrap_or(0);
            addresses.extend(
                [*bits, *bits ^ 1, !*bits, bits.wrapping_add(last_bit), bits.wrapping_sub(last_bit)].map(&of),
            );
        }
    }
    let mut answers = vec![];
    lpm.lookup_bulk(&addresses, 0, |at, value| answers.push((at, value.copied())));
    for (at, address) in addresses.iter().enumerate() {
        let expected = naive(&map, *address);
        assert_eq!(lpm.longest(*address).copied(), expected, "{address}");
        assert_eq!(lpm.lookup(*address, 0).copied(), expected);
        assert_eq!(answers[at], (at, expected));
    }
    let (counted, forks) = lpm.trie.forks_as_counted();
    assert_eq!(counted, forks);
    assert!(lpm.trie.bytes_are_right());
    lpm.clear();
    assert_eq!((lpm.len(), lpm.groups().0, lpm.trie.forks_as_counted().0), (0, 0, 0));
    assert!(lpm.trie.bytes_are_right());
    assert!(addresses.iter().all(|address| lpm.longest(*address).is_none()));
}

#[test]
fn ipv4_agrees_with_the_definition() {
    // One table for all cases: it is large, and each case leaves it empty.
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 200, groups: 400 }).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let lpm = std::cell::RefCell::new(&mut lpm);
    let steps = prop::collection::vec(step(32), 1..60);
    runner
        .run(&steps, |steps| {
            play(*lpm.borrow_mut(), &steps, |bits| Ipv4Addr::from_bits((bits >> 96) as u32));
            Ok(())
        })
        .unwrap();
    assert!(lpm.borrow().trie.first_stride_is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn ipv6_agrees_with_the_definition(steps in prop::collection::vec(step(128), 1..60)) {
        let mut lpm: Lpm<Ipv6Addr, u32> = Lpm::new(LpmConfig { prefixes: 100, groups: 1_500 }).unwrap();
        play(&mut lpm, &steps, Ipv6Addr::from_bits);
        prop_assert!(lpm.trie.first_stride_is_empty());
    }

    #[test]
    fn bytes_that_are_no_export_change_nothing(at in any::<prop::sample::Index>(), bit in 0u32..8, cut in any::<prop::sample::Index>()) {
        let mut lpm: Lpm<Ipv6Addr, u32> = Lpm::new(LpmConfig { prefixes: 9, groups: 30 }).unwrap();
        lpm.insert("2001:db8::".parse().unwrap(), 32, 7).unwrap();
        lpm.insert("::".parse().unwrap(), 0, 8).unwrap();
        let mut bytes = vec![];
        lpm.encode(&mut bytes);
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(lpm.decode(&changed, 0).is_err());
        prop_assert!(lpm.decode(&bytes[..cut.index(bytes.len())], 0).is_err());
        prop_assert_eq!(lpm.len(), 2);
        prop_assert_eq!(lpm.longest("2001:db8::9".parse().unwrap()), Some(&7));
    }
}

#[test]
fn bad_prefixes_are_refused_and_change_nothing() {
    let mut lpm: Lpm<Ipv6Addr, u32> = Lpm::new(LpmConfig { prefixes: 3, groups: 4 }).unwrap();
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    assert_eq!(lpm.insert(address("::"), 129, 1), Err(LpmError::Length { len: 129, bits: 128 }));
    let refused = lpm.insert(address("2001:db8::1"), 32, 1).unwrap_err();
    assert_eq!(refused.to_string(), "2001:db8::1/32 has bits set behind its first 32: write 2001:db8::/32");
    // /48 takes four groups behind the first 16 bits.
    lpm.insert(address("2001:db8:1::"), 48, 1).unwrap();
    assert_eq!(lpm.insert(address("2001:e00::"), 32, 2), Err(LpmError::GroupsFull { groups: 4 }));
    assert_eq!(lpm.groups(), (4, 4));
    lpm.insert(address("2001:db8:2::"), 48, 2).unwrap();
    lpm.insert(address("2001:db8::"), 32, 3).unwrap();
    assert_eq!(lpm.insert(address("::"), 0, 4), Err(LpmError::PrefixesFull { capacity: 3 }));
    // One that is there may change its value all the same.
    assert_eq!(lpm.insert(address("2001:db8::"), 32, 4), Ok(Some(3)));
    assert_eq!(lpm.longest(address("2001:db8:3::")), Some(&4));
    assert_eq!(lpm.longest(address("2001:db9::")), None);
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let refused =
        |prefixes, groups| Lpm::<Ipv4Addr, u32>::new(LpmConfig { prefixes, groups }).map(|_| ()).unwrap_err();
    assert!(matches!(refused(0, 0), LpmTableError::CapacityZero));
    let too_many = |what, asked| LpmTableError::TooMany { what, asked, maximum: (1 << 31) - 1 }.to_string();
    assert_eq!(refused(1, 1 << 31).to_string(), too_many("groups", 1 << 31));
    assert_eq!(refused(1 << 31, 1).to_string(), too_many("prefixes", 1 << 31));
}

#[test]
fn a_ticket_holds_for_one_address_until_its_table_changes() {
    type Table6 = Lpm<Ipv6Addr, u32>;
    let config = LpmConfig { prefixes: 9, groups: 30 };
    let (mut one, mut other) = (Table6::new(config).unwrap(), Table6::new(config).unwrap());
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let (inside, outside) = (address("2001:db8:7::1"), address("2001:db8:8::1"));
    let ticket = |table: &Table6| {
        let mut ticket = Table6::hash(&table.hasher(), &inside);
        table.prefetch_all(std::iter::once((Some(&inside), &mut ticket)), &mut Missed::none());
        assert!(ticket.0.is_some());
        ticket
    };
    one.insert(address("2001:db8::"), 32, 1).unwrap();
    one.insert(address("2001:db8:7::"), 48, 2).unwrap();
    // The same numbers, the other way round.
    other.insert(address("2001:db8:7::"), 48, 6).unwrap();
    other.insert(address("2001:db8::"), 32, 5).unwrap();
    let early = ticket(&one);
    assert_eq!(one.resolve(inside, early), Some(&2));
    assert_eq!(one.resolve(outside, early), Some(&1), "another address");
    assert_eq!(other.resolve(inside, early), Some(&6), "another table");
    one.insert(address("2001:db8:7::"), 64, 3).unwrap();
    assert_eq!(one.resolve(inside, early), Some(&3), "a longer prefix came");
    let early = ticket(&one);
    one.insert(address("2001:db8:7::"), 64, 1).unwrap();
    assert_eq!(one.resolve(inside, early), Some(&1), "its prefix has another's value");
    one.insert(address("2001:db8:7::"), 64, 3).unwrap();
    let early = ticket(&one);
    one.remove(address("2001:db8:7::"), 64);
    assert_eq!(one.resolve(inside, early), Some(&2), "it went");
    let early = ticket(&one);
    one.clear();
    for number in 0..3 {
        // Takes all numbers that were there.
        one.insert(address("2001:db9::").truncated(32 - number), 32 - number, 10 + u32::from(number))
            .unwrap();
    }
    let expected = one.longest(inside).copied();
    assert_eq!(one.resolve(inside, early).copied(), expected, "others have the numbers");
    assert_ne!(expected, Some(10));
}

/// Calls [`Table::prefetch_all`] as a batch does: among packets without a key, and with any tickets.
fn walked_together<A: Address>(table: &mut Lpm<A, u32>, addresses: impl Iterator<Item = A>) {
    let addresses: Vec<A> = addresses.collect();
    let stale = {
        let mut ticket = LpmTicket::default();
        table.prefetch_all(std::iter::once((Some(&addresses[0]), &mut ticket)), &mut Missed::none());
        ticket
    };
    for count in [0, 1, 31, 32, 33, 64, 65, addresses.len()] {
        for every in [1, 2, 5] {
            let here = addresses[..count].iter().enumerate();
            let keys: Vec<Option<A>> = here.map(|(at, key)| (at % every == 0).then_some(*key)).collect();
            let mut tickets = vec![stale; count];
            table.prefetch_all(keys.iter().map(Option::as_ref).zip(&mut tickets), &mut Missed::none());
            for (key, ticket) in keys.iter().flatten().zip(tickets.into_iter().step_by(every)) {
                assert!(matches!(ticket.0, Some(found) if found.address == *key), "{key} was not walked for");
                let expected = table.longest(*key).copied();
                assert_eq!(table.resolve(*key, ticket).copied(), expected);
            }
        }
    }
}

#[test]
fn a_batch_walks_to_what_each_alone_finds() {
    let config = LpmConfig { prefixes: 300, groups: 1_000 };
    let mut v6: Lpm<Ipv6Addr, u32> = Lpm::new(config).unwrap();
    let mut v4: Lpm<Ipv4Addr, u32> = Lpm::new(config).unwrap();
    let scattered = |number: u32| number.wrapping_mul(0x9e37_79b9);
    for number in 0..200u32 {
        let len = 8 + (number % 25) as u8;
        v4.insert(Ipv4Addr::from_bits(scattered(number)).truncated(len), len, number).unwrap();
        let (bits, len) =
            (u128::from(scattered(number)) << 96 | u128::from(number), 16 + (number % 60) as u8);
        v6.insert(Ipv6Addr::from_bits(bits).truncated(len), len, number).unwrap();
    }
    walked_together(&mut v4, (0..200).map(|number| Ipv4Addr::from_bits(scattered(number) ^ (number % 3))));
    walked_together(&mut v6, (0..200).map(|number| Ipv6Addr::from_bits(u128::from(scattered(number)) << 96)));
}

/// Routes ask for second cells in the one case and not in the other.
#[test]
fn shallow_and_deep_routes_answer_alike() {
    let prefixes = 1 << 15;
    let mut routes: Routes<u32> = Routes::new(Some(LpmConfig { prefixes, groups: prefixes }), None).unwrap();
    let address = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number << 12 | 0x300));
    for number in 0..prefixes as u32 {
        assert!(!routes.v4.trie.is_deep(), "{number}");
        if number % 5_000 == 0 {
            ask(&mut routes, number, address);
        }
        routes.insert(address(number), 24, number).unwrap();
    }
    assert!(routes.v4.trie.is_deep());
    ask(&mut routes, prefixes as u32, address);
    assert_eq!(routes.remove(address(7), 24), Some(7));
    assert!(!routes.v4.trie.is_deep());
}

/// Asks for the routes up to `known`, and for those that there are not.
fn ask(routes: &mut Routes<u32>, known: u32, address: impl Fn(u32) -> IpAddr) {
    let asked: Vec<u32> = (0..100).map(|at| at * 397).collect();
    let addresses: Vec<IpAddr> = asked.iter().map(|number| address(*number)).collect();
    let mut answers = vec![];
    routes.lookup_bulk(&addresses, 0, |_, found| answers.push(found.copied()));
    let expected: Vec<Option<u32>> =
        asked.iter().map(|number| (*number < known).then_some(*number)).collect();
    assert_eq!(answers, expected);
    for (address, expected) in addresses.iter().zip(expected) {
        assert_eq!(here(routes, *address), Some(expected), "IPv4 has three strides");
    }
}

/// The result of a batch's loop for an address without a walk, or `None` if it leaves the address.
fn here(routes: &mut Routes<u32>, address: IpAddr) -> Option<Option<u32>> {
    let ticket = LpmTicket::default();
    if let Some(short) = Routes::<u32>::shorten(&address) {
        let here = routes.resolve_here(short, ticket).map(|found| found.copied());
        assert_eq!(Routes::<u32>::lengthen(short), address);
        assert_eq!(routes.resolve_there(&address, ticket).map(|found| found.copied()), here);
    }
    routes.resolve_there(&address, ticket).map(|found| found.copied())
}

#[test]
fn the_loop_has_all_of_ipv4_and_of_ipv6_what_was_walked_for() {
    let config = LpmConfig { prefixes: 9, groups: 20 };
    let mut routes: Routes<u32> = Routes::new(Some(config), None).unwrap();
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (prefix, len, value) in [("10.0.0.0", 8, 1), ("10.1.2.0", 24, 2), ("10.1.2.64", 27, 3)] {
        routes.insert(address(prefix), len, value).unwrap();
    }
    for (asked, expected) in [
        ("10.9.9.9", Some(1)),
        ("10.1.2.1", Some(2)),
        // The third stride decides, here and beside it.
        ("10.1.2.65", Some(3)),
        ("10.1.2.97", Some(2)),
        ("11.0.0.1", None),
        // There are no routes for the other version.
        ("2001:db8::1", None),
    ] {
        assert_eq!(here(&mut routes, address(asked)), Some(expected), "{asked}");
        assert_eq!(routes.longest(address(asked)).copied(), expected, "{asked}");
    }
    let mut routes: Routes<u32> = Routes::new(None, Some(config)).unwrap();
    routes.insert(address("2001:db8::"), 32, 4).unwrap();
    let (known, other) = (address("2001:db8::1"), address("192.0.2.1"));
    assert_eq!((here(&mut routes, known), here(&mut routes, other)), (None, Some(None)));
    let mut ticket = LpmTicket::default();
    routes.prefetch_all(std::iter::once((Some(&known), &mut ticket)), &mut Missed::none());
    assert_eq!(routes.resolve_there(&known, ticket), Some(Some(&4)));
}

/// The bytes go out of use in the middle of a change, and come back in the middle of another.
#[test]
fn one_prefix_may_be_too_much_for_bytes() {
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 400, groups: 0 }).unwrap();
    let of = |block: u32| Ipv4Addr::from_bits(block << 12);
    for block in 0..300 {
        lpm.insert(of(block), 20, block).unwrap();
    }
    assert!(lpm.trie.is_in_bytes() && lpm.trie.bytes_are_right());
    lpm.insert(of(0), 0, 1_000).unwrap();
    assert!(!lpm.trie.is_in_bytes() && lpm.trie.bytes_are_right());
    let asked =
        |lpm: &Lpm<Ipv4Addr, u32>| [0, 253, 254, 299, 300].map(|block| lpm.longest(of(block)).copied());
    assert_eq!(asked(&lpm), [Some(0), Some(253), Some(254), Some(299), Some(1_000)]);
    assert_eq!(lpm.remove(of(0), 0), Some(1_000));
    assert!(lpm.trie.is_in_bytes() && lpm.trie.bytes_are_right());
    assert_eq!(asked(&lpm), [Some(0), Some(253), Some(254), Some(299), None]);
    // Numbers that come free are given out from below: the same prefix is not too much then.
    for block in 0..300 {
        lpm.remove(of(299 - block), 20).unwrap();
    }
    lpm.insert(of(0), 0, 1_000).unwrap();
    assert!(lpm.trie.is_in_bytes() && lpm.trie.bytes_are_right());
    assert_eq!(asked(&lpm), [Some(1_000); 5]);
}

#[test]
fn unused_values_give_their_numbers_back() {
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 300, groups: 0 }).unwrap();
    let prefix = |number: u32| Ipv4Addr::from_bits(number << 16);
    for round in 0..9 {
        for number in 0..300 {
            lpm.insert(prefix(number), 16, round * 1_000 + number / 2).unwrap();
        }
        assert!(lpm.values.len() <= 300, "{}", lpm.values.len());
        for number in 0..300 {
            assert_eq!(lpm.longest(prefix(number)), Some(&(round * 1_000 + number / 2)));
        }
    }
    lpm.clear();
    assert!(lpm.numbers.is_empty() && lpm.uses.iter().all(|uses| *uses == 0));
}

#[test]
fn routes_of_both_versions_are_taken_over_whole_or_not_at_all() {
    let config = Some(LpmConfig { prefixes: 4, groups: 8 });
    let (mut both, mut other): (Routes<u32>, Routes<u32>) =
        (Routes::new(config, config).unwrap(), Routes::new(config, config).unwrap());
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    both.insert(address("192.0.2.0"), 24, 1).unwrap();
    both.insert(address("2001:db8::"), 32, 2).unwrap();
    other.insert(address("198.51.100.0"), 24, 3).unwrap();
    let said = |routes: &Routes<u32>| {
        ["192.0.2.1", "198.51.100.1", "2001:db8::1"].map(|text| routes.longest(address(text)).copied())
    };
    let mut bytes = vec![];
    both.encode(&mut bytes);
    // A good first part before a damaged second one.
    *bytes.last_mut().unwrap() ^= 1;
    assert!(other.decode(&bytes, 0).is_err());
    assert_eq!(said(&other), [None, Some(3), None]);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(other.decode(&bytes, 0), Ok(2));
    assert_eq!(said(&other), [Some(1), None, Some(2)]);
    // From a table without IPv6, into one with it and one without IPv4.
    let mut v4: Routes<u32> = Routes::new(config, None).unwrap();
    v4.insert(address("198.51.100.0"), 24, 4).unwrap();
    let mut bytes = vec![];
    v4.encode(&mut bytes);
    assert_eq!(other.decode(&bytes, 0), Ok(1));
    assert_eq!(said(&other), [None, Some(4), None]);
    assert!(Routes::<u32>::new(None, config).unwrap().decode(&bytes, 0).is_err());
}

/// The first stride answers in bytes while they hold nearly all of it.
///
/// Neither more distinct values than a byte holds nor groups change an answer. When there are fewer again, bytes come
/// back.
#[test]
fn bytes_answer_for_the_first_stride_while_they_hold_nearly_all_of_it() {
    let config = LpmConfig { prefixes: 100_000, groups: 40_000 };
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(config).unwrap();
    let of = |block: u32| Ipv4Addr::from_bits(block << 12);
    // A value for each /20: the first 254 have numbers that a byte holds, one below a 32nd of the first stride does without.
    let many = 254 + (1 << 15);
    for block in 0..many {
        assert!(lpm.trie.is_in_bytes(), "{block}");
        lpm.insert(of(block), 20, block).unwrap();
    }
    assert!(!lpm.trie.is_in_bytes());
    assert!(lpm.trie.bytes_are_right());
    for block in [0, 1, 253, 254, 255, 256, 257, many - 1] {
        assert_eq!(lpm.longest(of(block)), Some(&block));
    }
    assert_eq!(lpm.longest(of(many)), None);
    // One goes, and a longer prefix in its place has a group where a byte would have been.
    assert_eq!(lpm.remove(of(many - 1), 20), Some(many - 1));
    assert!(lpm.trie.is_in_bytes());
    lpm.insert(of(many - 1), 24, 7).unwrap();
    assert!(!lpm.trie.is_in_bytes());
    assert_eq!((lpm.longest(of(many - 1)), lpm.longest(of(many - 2))), (Some(&7), Some(&(many - 2))));
    // One value for all of them: every byte holds it but the one where the group is.
    lpm.insert(of(0), 1, 9).unwrap();
    for block in 0..many - 1 {
        lpm.remove(of(block), 20).unwrap();
    }
    assert!(lpm.trie.is_in_bytes() && lpm.trie.bytes_are_right());
    assert_eq!((lpm.longest(of(many - 1)), lpm.longest(of(3))), (Some(&7), Some(&9)));
    walked_together(&mut lpm, (0..200).map(|number| of(many - 100 + number)));
}

/// A /20 in which one longer prefix differs is a compressed leaf, also after changes around it.
///
/// With more than that, or values beyond a byte, the groups decide.
#[test]
fn one_prefix_within_a_cell_is_a_compressed_leaf() {
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 400, groups: 400 }).unwrap();
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    let asked = |lpm: &Lpm<Ipv4Addr, u32>| {
        assert!(lpm.trie.bytes_are_right());
        let all = ["192.0.2.0", "192.0.2.63", "192.0.2.64", "192.0.3.0", "192.0.15.255", "192.0.16.0"];
        (lpm.trie.leaves(), all.map(|text| lpm.longest(address(text)).copied()))
    };
    lpm.insert(address("192.0.2.0"), 26, 1).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), None, None, None, None]));
    // The value around it changes, in this cell and in all.
    lpm.insert(address("192.0.0.0"), 20, 2).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), Some(2), Some(2), Some(2), None]));
    lpm.insert(address("0.0.0.0"), 0, 3).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), Some(2), Some(2), Some(2), Some(3)]));
    lpm.remove(address("192.0.0.0"), 20).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), Some(3), Some(3), Some(3), Some(3)]));
    // A second one is one too many, unless it says what is said around it, or both are one.
    lpm.insert(address("192.0.3.0"), 25, 4).unwrap();
    assert_eq!(asked(&lpm), (0, [Some(1), Some(1), Some(3), Some(4), Some(3), Some(3)]));
    lpm.insert(address("192.0.3.0"), 25, 3).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), Some(3), Some(3), Some(3), Some(3)]));
    lpm.insert(address("192.0.2.64"), 26, 1).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(1), Some(1), Some(1), Some(3), Some(3), Some(3)]));
    lpm.remove(address("192.0.3.0"), 25).unwrap();
    lpm.remove(address("192.0.2.64"), 26).unwrap();
    // An address alone, within another group.
    lpm.remove(address("192.0.2.0"), 26).unwrap();
    assert_eq!(asked(&lpm), (0, [Some(3); 6]));
    lpm.insert(address("192.0.2.63"), 32, 5).unwrap();
    assert_eq!(asked(&lpm), (1, [Some(3), Some(5), Some(3), Some(3), Some(3), Some(3)]));
    // Numbers beyond a byte, behind a cell and in one that had a compressed leaf.
    for block in 0..300 {
        lpm.insert(Ipv4Addr::from_bits(block << 12), 20, 1_000 + block).unwrap();
    }
    lpm.insert(address("192.0.2.63"), 32, 1_299).unwrap();
    assert_eq!(asked(&lpm), (0, [Some(3), Some(1_299), Some(3), Some(3), Some(3), Some(3)]));
    lpm.insert(address("192.0.2.63"), 32, 5).unwrap();
    assert_eq!(asked(&lpm).0, 1);
    lpm.remove(address("192.0.2.63"), 32).unwrap();
    lpm.insert(address("192.0.0.0"), 20, 1_299).unwrap();
    assert_eq!(asked(&lpm), (0, [Some(1_299), Some(1_299), Some(1_299), Some(1_299), Some(1_299), Some(3)]));
}

/// All addresses of a /20 are looked up after each change in it and around it.
///
/// Values have numbers that bytes hold, compressed leaves hold, and neither does.
#[test]
fn compressed_leaves_agree_with_the_definition() {
    const BLOCK: u32 = 0xc000_0000;
    let lengths = prop::sample::select(vec![0u8, 8, 20, 20, 21, 24, 25, 26, 26, 27, 28, 31, 32, 32]);
    let change = (0u32..1 << 12, lengths, 0u32..4, any::<bool>());
    let changes = prop::collection::vec(change, 1..12);
    // One for all cases, since it is large; the others' values have the first 252 numbers.
    let mut lpm: Lpm<Ipv4Addr, u32> = Lpm::new(LpmConfig { prefixes: 400, groups: 40 }).unwrap();
    let fill = |lpm: &mut Lpm<Ipv4Addr, u32>| {
        for block in 0..252 {
            lpm.insert(Ipv4Addr::from_bits(block << 12), 20, 1_000 + block).unwrap();
        }
    };
    let lpm = std::cell::RefCell::new(&mut lpm);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    let leaves = std::cell::Cell::new(0);
    runner
        .run(&changes, |changes| {
            let mut lpm = lpm.borrow_mut();
            fill(&mut lpm);
            let mut map = BTreeMap::new();
            for (bits, len, value, goes) in changes {
                let prefix = Ipv4Addr::from_bits(BLOCK + bits).truncated(len);
                if goes && let Some((prefix, len)) = map.keys().nth(bits as usize % map.len().max(1)).copied()
                {
                    prop_assert_eq!(lpm.remove(prefix, len), map.remove(&(prefix, len)));
                } else {
                    prop_assert_eq!(lpm.insert(prefix, len, value), Ok(map.insert((prefix, len), value)));
                }
                for rest in 0..1 << 12 {
                    let address = Ipv4Addr::from_bits(BLOCK + rest);
                    prop_assert_eq!(lpm.longest(address).copied(), naive(&map, address), "{}", address);
                }
                prop_assert!(lpm.trie.bytes_are_right());
                leaves.set(leaves.get() + lpm.trie.leaves());
            }
            lpm.clear();
            Ok(())
        })
        .unwrap();
    assert!(leaves.get() > 100, "{}", leaves.get());
}
