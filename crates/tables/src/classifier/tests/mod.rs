mod limits;
mod naive;
mod random;

use super::*;
use naive::Naive;
use random::{Scene, next};

use proptest::prelude::*;

/// Compares all ways to ask with the naive evaluator.
fn compare(classifier: &Classifier, naive: &Naive, keys: &Keys, cache: &mut MatchCache) {
    let mut batch = vec![Matches::new(); keys.len()];
    let mut firsts = vec![None; keys.len()];
    classifier.matches_batch(keys, &mut batch);
    classifier.first_batch(keys, &mut firsts);
    let (mut one, mut cached) = (Matches::new(), vec![Matches::new(); keys.len()]);
    for twice in 0..2 {
        cache.matches_batch(classifier, keys, &mut cached);
        for (at, cached) in cached.iter_mut().enumerate() {
            let key = keys.get(at).unwrap();
            let expected = naive.matches(key);
            assert_eq!(cached.rules().collect::<Vec<_>>(), expected, "cached batch, pass {twice}");
            cache.matches(classifier, key, cached);
            assert_eq!(cached.rules().collect::<Vec<_>>(), expected, "cached, pass {twice}");
            assert_eq!(cache.first(classifier, key), expected.first().copied(), "cached first");
        }
    }
    for (at, batch) in batch.iter().enumerate() {
        let key = keys.get(at).unwrap();
        let expected = naive.matches(key);
        classifier.matches(key, &mut one);
        assert_eq!(one.rules().collect::<Vec<_>>(), expected, "one by one");
        classifier.every(key, &mut one);
        assert_eq!(one.rules().collect::<Vec<_>>(), naive.every(key), "every");
        assert_eq!(batch.rules().collect::<Vec<_>>(), expected, "batch");
        assert_eq!(classifier.first(key), expected.first().copied(), "first");
        assert_eq!(firsts[at], expected.first().copied(), "first, batch");
    }
}

/// Plays random changes on a classifier and on the naive evaluator, and compares them.
fn play(seed: u64, steps: usize, config: ClassifierConfig) {
    let mut scene = Scene::new(seed);
    let mut classifier = Classifier::new(scene.layout.clone(), config.clone());
    let mut twin = Classifier::new(scene.layout.clone(), config.clone());
    let mut naive = Naive::default();
    let mut cache = MatchCache::new(1 << 12, seed);
    let mut keys = Keys::new(scene.layout.words());
    let mut ids: Vec<EntryId> = vec![];
    for step in 0..steps {
        let random = next(&mut scene.state);
        match random % 16 {
            0..=8 => {
                let entry = scene.entry();
                let before = classifier.version();
                let id = classifier.insert(entry.clone());
                assert_eq!(id, twin.insert(entry.clone()));
                if naive.len() >= config.capacity {
                    assert_eq!(id, Err(ClassifierError::Full { capacity: config.capacity }));
                    assert_eq!(classifier.version(), before);
                } else {
                    let id = id.unwrap();
                    ids.push(id);
                    naive.insert(id, entry);
                }
            }
            9..=11 if !ids.is_empty() => {
                let id = ids.swap_remove((random >> 32) as usize % ids.len());
                assert!(classifier.remove(id) && twin.remove(id));
                assert!(!classifier.remove(id) && !classifier.set_order(id, 0));
                naive.remove(id);
            }
            12 | 13 if !ids.is_empty() => {
                let id = ids[(random >> 32) as usize % ids.len()];
                let order = scene.order();
                assert!(classifier.set_order(id, order) && twin.set_order(id, order));
                naive.set_order(id, order);
            }
            _ => assert_eq!(
                classifier.maintain(random as usize >> 8 & 31),
                twin.maintain(random as usize >> 8 & 31)
            ),
        }
        assert_eq!((classifier.len(), classifier.version()), (naive.len(), twin.version()));
        if step % 16 == 15 || step + 1 == steps {
            keys.clear();
            (0..random as usize >> 16 & 63).for_each(|_| scene.key(keys.push()));
            compare(&classifier, &naive, &keys, &mut cache);
            assert!(classifier.tables().eq(twin.tables()));
        }
    }
    ids.drain(..).for_each(|id| assert!(classifier.remove(id)));
    while classifier.maintain(100) {}
    assert_eq!((classifier.len(), classifier.tables().count(), classifier.tested_words().count()), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn equals_the_naive_evaluator(seed in any::<u64>(), steps in 1usize..300) {
        play(seed, steps, ClassifierConfig { capacity: 200, seed, ..ClassifierConfig::default() });
    }

    /// Few tables and small buckets: merged masks, splits, and trees.
    #[test]
    fn equals_it_where_tables_are_few(
        seed in any::<u64>(), steps in 1usize..600, tables in 0usize..12, crowded in 0usize..12
    ) {
        play(seed, steps, ClassifierConfig { capacity: 1_000, tables, crowded, seed });
    }
}

#[test]
fn equals_it_with_many_entries() {
    for seed in 0..3 {
        play(seed, 2_000, ClassifierConfig { capacity: 5_000, crowded: 20, ..ClassifierConfig::default() });
    }
}
