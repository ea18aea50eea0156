//! Ends of what there can be: full, empty, contradictory, wide, and more masks than tables.

use std::sync::Arc;

use super::*;

fn one(field: Field, test: Test) -> Condition {
    Condition { field, test, negated: false }
}

fn not(field: Field, test: Test) -> Condition {
    Condition { field, test, negated: true }
}

fn range(low: u128, high: u128) -> Test {
    Test::Range { low, high }
}

fn set(intervals: &[(u128, u128)]) -> Test {
    Test::Within(Arc::new(ValueSet::new(intervals.iter().copied())))
}

/// A classifier of one field and one rule.
fn with(bits: u16, conditions: impl FnOnce(Field) -> Vec<Condition>) -> (Classifier, Field) {
    let mut layout = Layout::new();
    let field = layout.field(bits);
    let mut classifier = Classifier::new(layout, ClassifierConfig::default());
    classifier.insert(Entry { rule: 1, order: 1, last: false, conditions: conditions(field) }).unwrap();
    (classifier, field)
}

fn holds((classifier, field): &(Classifier, Field), value: u128) -> bool {
    let mut key = vec![0; classifier.layout().words()];
    field.put(&mut key, value);
    classifier.first(&key).is_some()
}

#[test]
fn contradictions_are_entries_that_never_match() {
    let masked = |value, mask| Test::Masked { value, mask };
    type Make = fn(Field) -> Vec<Condition>;
    let all: [Make; 8] = [
        |f| vec![one(f, Test::Masked { value: 1, mask: 1 }), one(f, Test::Masked { value: 0, mask: 1 })],
        |f| vec![one(f, range(3, 7)), one(f, range(8, 9))],
        |f| vec![one(f, range(7, 3))],
        |f| vec![one(f, set(&[]))],
        |f| vec![not(f, range(0, u128::MAX))],
        |f| vec![one(f, range(16, 23)), one(f, Test::Masked { value: 0x80, mask: 0xf0 })],
        |f| vec![one(f, Test::Masked { value: 1 << 40, mask: 1 << 40 })],
        |f| vec![not(f, Test::Masked { value: 5, mask: 0 })],
    ];
    for (number, conditions) in all.into_iter().enumerate() {
        let never = with(16, conditions);
        assert_eq!((never.0.len(), never.0.tables().count()), (1, 0), "contradiction {number}");
        assert!((0..0x1_0000).all(|value| !holds(&never, value)), "contradiction {number}");
    }
    // Their opposites hold always.
    let always = with(16, |f| {
        vec![not(f, set(&[])), one(f, range(0, u128::MAX)), one(f, masked(7, 0)), not(f, range(9, 2))]
    });
    assert!((0..0x1_0000).step_by(77).all(|value| holds(&always, value)));
    assert_eq!(always.0.tested_words().count(), 0);
}

#[test]
fn ranges_of_128_bits_hold_to_the_last_bit() {
    let (low, high) =
        (0x2001_0db8_0000_0001_ffff_0000_0000_0007_u128, 0x2001_0db8_0000_0002_0000_0000_8000_0000_u128);
    let between = with(128, |f| vec![one(f, range(low, high))]);
    let outside = with(128, |f| vec![not(f, range(low, high))]);
    for (value, inside) in
        [(low - 1, false), (low, true), (low + 1, true), (high - 1, true), (high, true), (high + 1, false)]
    {
        assert_eq!((holds(&between, value), holds(&outside, value)), (inside, !inside), "{value:x}");
    }
    let whole = with(128, |f| vec![one(f, range(0, u128::MAX)), one(f, range(u128::MAX, u128::MAX))]);
    assert!(holds(&whole, u128::MAX) && !holds(&whole, u128::MAX - 1));
}

/// As a replicated state needs it.
#[test]
fn a_classifier_may_be_read_by_other_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Classifier>();
    shared::<MatchCache>();
}

#[test]
fn a_full_classifier_refuses_and_takes_again() {
    let mut classifier =
        Classifier::new(Layout::new(), ClassifierConfig { capacity: 1, ..ClassifierConfig::default() });
    let entry = Entry { rule: 1, order: 1, last: false, conditions: vec![] };
    let first = classifier.insert(entry.clone()).unwrap();
    assert_eq!(classifier.insert(entry.clone()), Err(ClassifierError::Full { capacity: 1 }));
    assert!(classifier.remove(first));
    let second = classifier.insert(entry).unwrap();
    assert!(first != second && !classifier.remove(first) && !classifier.set_order(first, 2));
    assert_eq!((classifier.len(), classifier.version(), classifier.first(&[])), (1, 3, Some(1)));
}

#[test]
fn fields_outside_the_layout_and_short_keys_are_refused() {
    let mut other = Layout::new();
    let fields = [other.field(32), other.field(64)];
    let mut layout = Layout::new();
    layout.field(32);
    let mut classifier = Classifier::new(layout, ClassifierConfig::default());
    let entry = |field| Entry { rule: 1, order: 1, last: false, conditions: vec![one(field, range(0, 5))] };
    let outside = Err(ClassifierError::Outside { word: 1, bits: 64, words: 1 });
    assert_eq!((classifier.insert(entry(fields[1])), classifier.len()), (outside, 0));
    classifier.insert(entry(fields[0])).unwrap();
    let (mut cache, mut found) = (MatchCache::new(1, 1), Matches::new());
    classifier.matches(&[], &mut found);
    assert_eq!((classifier.first(&[]), cache.first(&classifier, &[]), found.len()), (None, None, 0));
    let mut keys = Keys::new(0);
    keys.push();
    let mut batch = [Matches::new()];
    classifier.matches_batch(&keys, &mut batch);
    cache.matches_batch(&classifier, &keys, &mut batch);
    assert!(batch[0].is_empty());
}

/// Thousands of masks of random bits, in few tables and in as many as there can be.
#[test]
fn masks_beyond_the_tables_share_them() {
    for tables in [1, 3, 256] {
        let mut layout = Layout::new();
        let fields = [layout.field(32), layout.field(64)];
        let mut classifier =
            Classifier::new(layout, ClassifierConfig { tables, crowded: 4, ..ClassifierConfig::default() });
        let (mut naive, mut state) = (Naive::default(), 7);
        let mut ids = vec![];
        for rule in 0..3_000 {
            let mut masked = |field| {
                let mask = u128::from(next(&mut state) & next(&mut state));
                one(field, Test::Masked { value: u128::from(next(&mut state)) & 0x1111_1111_1111_1111, mask })
            };
            let entry = Entry {
                rule,
                order: u64::from(rule ^ 1),
                last: false,
                conditions: fields.map(&mut masked).into(),
            };
            let id = classifier.insert(entry.clone()).unwrap();
            naive.insert(id, entry);
            ids.push(id);
        }
        assert!((1..=tables).contains(&classifier.tables().count()));
        let mut keys = Keys::new(3);
        for _ in 0..20 {
            let key = keys.push();
            key.fill_with(|| next(&mut state) as u32 & 0x1111_1111);
        }
        let mut cache = MatchCache::new(64, 3);
        compare(&classifier, &naive, &keys, &mut cache);
        for id in ids.into_iter().step_by(2) {
            assert!(classifier.remove(id));
            naive.remove(id);
        }
        while classifier.maintain(10) {}
        compare(&classifier, &naive, &keys, &mut cache);
    }
}

/// The cache turns itself off where every header is new, and on again where flows come back.
#[test]
fn a_cache_is_off_while_it_does_not_hit() {
    let (classifier, field) = with(32, |f| vec![one(f, range(5, 1 << 31))]);
    let mut cache = MatchCache::new(1_024, 1);
    let bytes = cache.bytes();
    let ask = |cache: &mut MatchCache, value: u32| {
        let mut key = [0];
        field.put(&mut key, value.into());
        assert_eq!(cache.first(&classifier, &key), (5..=1 << 31).contains(&value).then_some(1));
    };
    (0..4_096).for_each(|value| ask(&mut cache, value * 1_000_003));
    assert!(!cache.is_on());
    (0..100_000).for_each(|value| ask(&mut cache, value % 100));
    assert!(cache.is_on());
    let (hits, asked) = cache.hits();
    assert!(hits * 2 > asked, "{hits} of {asked}");
    assert_eq!(cache.bytes(), bytes);
}

/// One rule on many values that are in one bucket each way: lists, trees, and back.
#[test]
fn entries_that_differ_in_one_range_are_searched() {
    let mut layout = Layout::new();
    let field = layout.field(16);
    let mut classifier = Classifier::new(layout, ClassifierConfig::default());
    let mut naive = Naive::default();
    let mut state = 1;
    let mut ids = vec![];
    for rule in 0..2_000 {
        let (a, b) = (u128::from(next(&mut state) & 0xffff), u128::from(next(&mut state) & 0xffff));
        let entry = Entry {
            rule,
            order: next(&mut state) % 500,
            last: rule % 50 == 0,
            conditions: vec![one(field, range(a.min(b), a.max(b)))],
        };
        let id = classifier.insert(entry.clone()).unwrap();
        naive.insert(id, entry);
        ids.push(id);
    }
    let mut cache = MatchCache::new(64, 3);
    for part in ids.chunks(400) {
        let mut keys = Keys::new(1);
        (0..40).for_each(|_| keys.push()[0] = next(&mut state) as u32 & 0xffff);
        compare(&classifier, &naive, &keys, &mut cache);
        for id in part {
            assert!(classifier.remove(*id));
            naive.remove(*id);
        }
    }
    assert_eq!(classifier.tables().count(), 0);
}

/// Flows of 14 to 32 words are kept where most are 0.
///
/// The same values at other places are another flow.
#[test]
fn flows_of_many_words_are_kept_without_those_that_are_zero() {
    for (words, kept) in [(13usize, 13usize), (14, 13), (20, 13), (32, 13), (33, 33), (40, 40)] {
        let mut layout = Layout::new();
        let fields: Vec<Field> = (0..words).map(|_| layout.field(32)).collect();
        let mut classifier = Classifier::new(layout, ClassifierConfig::default());
        let mut naive = Naive::default();
        for (rule, field) in (0..).zip(&fields) {
            let test = Test::Masked { value: 7, mask: u128::from(u32::MAX) };
            let entry =
                Entry { rule, order: rule.into(), last: rule > 1, conditions: vec![one(*field, test)] };
            naive.insert(classifier.insert(entry.clone()).unwrap(), entry);
        }
        for others in 0..words {
            let mut keys = Keys::new(words);
            for place in 0..words {
                let key = keys.push();
                // As many other values behind this one.
                (0..=others).for_each(|at| key[(place + at) % words] = 7 + at as u32);
            }
            let mut cache = MatchCache::new(1 << 13, 3);
            compare(&classifier, &naive, &keys, &mut cache);
            // It is asked for each key and its first rule twice, and for the keys of a batch twice.
            let asked = 6 * words as u64;
            let first = cache.hits().0;
            assert_eq!(
                first == asked - words as u64,
                others < kept,
                "{others} of {words}: {first} of {asked}"
            );
            assert!(others < kept || first == 0, "{others} of {words}: {first} of {asked}");
        }
    }
}
