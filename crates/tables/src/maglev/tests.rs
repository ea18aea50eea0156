use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SIZE: usize = MaglevTable::DEFAULT_SIZE;

fn key(seed: u64) -> Secret {
    Secret::from_seeds(seed, 0)
}

fn names(count: usize, seed: u64) -> Vec<String> {
    (0..count).map(|at| format!("10.{}.{}.{}", seed % 256, at / 256, at % 256)).collect()
}

/// `(name, weight)` with numbers in the order given.
fn table(size: usize, seed: u64, backends: &[(&str, u32)]) -> MaglevTable {
    let backends: Vec<_> = backends
        .iter()
        .zip(0..)
        .map(|((name, weight), number)| MaglevBackend { name, weight: *weight, number })
        .collect();
    MaglevTable::new(size, &key(seed), &backends).unwrap()
}

/// The name in every slot, which does not depend on numbers.
fn by_name<'n>(table: &MaglevTable, backends: &[(&'n str, u32)]) -> Vec<&'n str> {
    table.slots().iter().map(|number| backends[usize::from(*number)].0).collect()
}

fn equal(names: &[String]) -> Vec<(&str, u32)> {
    names.iter().map(|name| (name.as_str(), 1)).collect()
}

/// By Fermat's little theorem.
fn inverse(number: u64, size: u64) -> u64 {
    (0..size - 2).fold(1, |power, _| power * number % size)
}

/// The paper's Pseudocode 1 over our permutations, as whole tables: each backend in turn.
fn by_pseudocode(size: usize, seed: u64, names: &[&str]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|at| (hash_name(RANK, names[*at], &key(seed)), names[*at]));
    let inverses: Vec<u64> = (0..size as u64).map(|number| inverse(number, size as u64)).collect();
    let permutation: Vec<Vec<usize>> = order
        .iter()
        .map(|at| {
            let hash = |purpose| hash_name(purpose, names[*at], &key(seed));
            let (offset, skip) = (hash(OFFSET) % size as u64, hash(SKIP) % (size as u64 - 1) + 1);
            let shift = hash(SHIFT) % size as u64;
            let places = (0..size as u64).map(|j| (offset + j * skip) % size as u64);
            places.map(|place| ((inverses[place as usize] + shift) % size as u64) as usize).collect()
        })
        .collect();
    let mut next = vec![0; names.len()];
    let mut entry = vec![None; size];
    let mut n = 0;
    loop {
        for i in 0..order.len() {
            let mut c = permutation[i][next[i]];
            while entry[c].is_some() {
                next[i] += 1;
                c = permutation[i][next[i]];
            }
            entry[c] = Some(order[i]);
            next[i] += 1;
            n += 1;
            if n == size {
                return entry.into_iter().flatten().collect();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equal_weights_give_the_pseudocodes_table(count in 1usize..40, seed in any::<u64>(), weight in 1u32..9) {
        let names = names(count, seed);
        let backends: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), weight)).collect();
        let plain: Vec<&str> = backends.iter().map(|(name, _)| *name).collect();
        let found: Vec<usize> =
            table(251, seed, &backends).slots().iter().map(|number| usize::from(*number)).collect();
        // Backends with one slot more are the last to be decided: first in turn here as there.
        prop_assert_eq!(found, by_pseudocode(251, seed, &plain));
    }

    #[test]
    fn shares_are_within_a_slot_of_the_weights(
        weights in prop::collection::vec(prop_oneof![1u32..4, 1u32..1_000, Just(u32::MAX)], 1..200),
        seed in any::<u64>(),
    ) {
        let names = names(weights.len(), seed);
        let backends: Vec<(&str, u32)> =
            names.iter().map(String::as_str).zip(weights.iter().copied()).collect();
        let table = table(SIZE, seed, &backends);
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        for (number, weight) in weights.iter().enumerate() {
            let exact = SIZE as f64 * f64::from(*weight) / total;
            let share = table.share(number as u16) as f64;
            prop_assert!((share - exact).abs() < 1.0, "weight {} of {}: {} slots, not {}", weight, total, share, exact);
            // Where 1 % is a slot or more, the same says that it is held.
            prop_assert!(exact < 100.0 || (share / exact - 1.0).abs() <= 0.01);
        }
    }

    #[test]
    fn order_of_insertion_does_not_matter(
        backends in prop::collection::btree_map("[a-z0-9.:]{1,20}", 1u32..20, 1..50),
        seed in any::<u64>(),
    ) {
        let forward: Vec<(&str, u32)> = backends.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
        let mut shuffled = forward.clone();
        shuffled.sort_by_key(|(name, _)| hash_name(9, name, &key(seed)));
        let (one, other) = (table(4_099, seed, &forward), table(4_099, seed, &shuffled));
        prop_assert_eq!(by_name(&one, &forward), by_name(&other, &shuffled));
        // One that went and came back, last and with another number, leaves no trace.
        let at = seed as usize % forward.len();
        let mut again = forward.clone();
        let gone = again.remove(at);
        again.push(gone);
        prop_assert_eq!(by_name(&table(4_099, seed, &again), &again), by_name(&one, &forward));
    }
}

/// Slots, in percent of those that the backend which left did not have, that changed hands.
fn moved(seed: u64, backends: &[(&str, u32)], leaves: usize) -> f64 {
    let before = by_name(&table(SIZE, seed, backends), backends);
    let rest: Vec<_> = backends.iter().copied().filter(|backend| *backend != backends[leaves]).collect();
    let after = by_name(&table(SIZE, seed, &rest), &rest);
    let others = before.iter().zip(&after).filter(|(before, _)| **before != backends[leaves].0);
    let (mut all, mut moved) = (0, 0);
    for (before, after) in others {
        all += 1;
        moved += u32::from(before != after);
    }
    100.0 * f64::from(moved) / f64::from(all)
}

#[test]
fn taking_one_out_moves_little_else() {
    let mut worst: f64 = 0.0;
    for count in [2, 3, 4, 5, 8, 10, 20, 50, 100, 200, 300, 500, 700, 1_000] {
        // Few backends differ most from seed to seed.
        for seed in 0..if count <= 10 { 40u64 } else { 4 } {
            let names = names(count, seed);
            let found = moved(seed, &equal(&names), seed as usize * 31 % count);
            assert!(found <= 1.5, "one of {count} left, {found:.2} % of the other slots moved");
            worst = worst.max(found);
        }
    }
    assert!(worst > 0.3, "the measure sees nothing: {worst}");
}

#[test]
fn taking_one_out_moves_little_else_by_weight_too() {
    for count in [3, 10, 50, 200] {
        for seed in 0..4u64 {
            let names = names(count, seed);
            let backends: Vec<(&str, u32)> =
                names.iter().enumerate().map(|(at, name)| (name.as_str(), 1 + at as u32 % 5)).collect();
            let found = moved(seed, &backends, seed as usize * 31 % count);
            assert!(found <= 1.5, "one of {count} left, {found:.2} % of the other slots moved");
        }
    }
}

/// Equals a table of another node, machine and release: a change of this table breaks every cluster.
#[test]
fn the_table_is_the_same_everywhere() {
    let backends = [("192.0.2.1", 1), ("192.0.2.2", 2), ("2001:db8::3", 1)];
    let digest =
        |seed| crc32fast::hash(by_name(&table(SIZE, seed, &backends), &backends).concat().as_bytes());
    assert_eq!([digest(1), digest(2)], [2_191_276_617, 1_736_077_680]);
}

#[test]
fn the_key_decides_the_table() {
    let names = names(10, 0);
    let tables: BTreeSet<Vec<u16>> =
        (0..20).map(|seed| table(251, seed, &equal(&names)).slots().to_vec()).collect();
    assert_eq!(tables.len(), 20);
}

#[test]
fn hashes_reach_every_slot_alike() {
    let table = table(251, 3, &[("a", 1)]);
    let mut slots = BTreeMap::new();
    for at in 0..251u64 * 1_000 {
        *slots.entry(table.slot(hash_words(&[at], &key(7)))).or_insert(0u32) += 1;
    }
    assert_eq!(slots.len(), 251);
    assert!(slots.values().all(|count| (800..1_200).contains(count)), "{slots:?}");
    assert_eq!((table.slot(0), table.slot(u64::MAX)), (0, 250));
    assert_eq!(table.place(u64::MAX), &raw const table.slots()[250]);
}

#[test]
fn impossible_tables_are_refused() {
    let make = |size, backends: &[(&str, u32)]| {
        let backends: Vec<_> = backends
            .iter()
            .map(|(name, weight)| MaglevBackend { name, weight: *weight, number: 0 })
            .collect();
        MaglevTable::new(size, &key(0), &backends).map(|table| table.slots().len())
    };
    assert_eq!(make(65_536, &[("a", 1)]), Err(MaglevError::NotPrime { size: 65_536, near: 65_537 }));
    assert_eq!(make(0, &[("a", 1)]), Err(MaglevError::NotPrime { size: 0, near: 2 }));
    assert_eq!(make(1 << 24, &[]), Err(MaglevError::NotPrime { size: 1 << 24, near: 16_777_213 }));
    assert_eq!(make((1 << 24) + 1, &[]), Err(MaglevError::TooLarge { size: (1 << 24) + 1 }));
    assert_eq!(
        make(2, &[("a", 1), ("b", 1), ("c", 1)]),
        Err(MaglevError::TooManyBackends { backends: 3, size: 2 })
    );
    assert_eq!(make(251, &[("a", 1), ("b", 1), ("a", 2)]), Err(MaglevError::Twice { name: "a".into() }));
    assert_eq!(make(251, &[("a", 1), ("b", 0)]), Err(MaglevError::WeightZero { name: "b".into() }));
    assert_eq!(make(251, &[]), Ok(0));
    assert_eq!(MaglevTable::new(251, &key(0), &[]).unwrap().get(7), None);
    assert_eq!(make(2, &[("a", 1), ("b", 9)]), Ok(2));
}
