//! Rule sets of ClassBench through a classifier, against a search rule by rule.

mod classbench;

use classbench::{FiveTuple, Rule, rules};
use netbricks_tables::classifier::{Classifier, ClassifierConfig, Keys, MatchCache, Matches};

/// The sets beside the checkout.
const SETS: [&str; 12] = [
    "acl1_1k", "acl1_10k", "acl4_1k", "acl4_10k", "fw1_1k", "fw1_10k", "fw3_1k", "fw3_10k", "ipc1_1k",
    "ipc1_10k", "acl5_1k", "acl5_10k",
];

fn matches(rule: &Rule, key: &[u32]) -> bool {
    let prefix = |(value, len): (u32, u32), at: u32| len == 0 || (value ^ at) >> (32 - len) == 0;
    let port = |(low, high): (u16, u16), at: u32| (u32::from(low)..=u32::from(high)).contains(&at);
    let masked = |(value, mask): (u16, u16), at: u32| u32::from(value & mask) == at & u32::from(mask);
    prefix(rule.prefixes[0], key[0])
        && prefix(rule.prefixes[1], key[1])
        && port(rule.ports[0], key[2])
        && port(rule.ports[1], key[3])
        && masked(rule.masked[0], key[4])
        && masked(rule.masked[1], key[5])
}

fn random(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as u32
}

#[test]
fn classbench_sets_match_as_rule_by_rule() {
    let fields = FiveTuple::new();
    let mut state = 88_172_645_463_325_252;
    let mut sets = 0;
    for name in SETS {
        let Some(rules) = rules(name) else { continue };
        sets += 1;
        let mut classifier = Classifier::new(fields.layout.clone(), ClassifierConfig::default());
        let inserted: Vec<_> =
            (0..).zip(&rules).map(|(n, rule)| classifier.insert(rule.entry(n, &fields)).unwrap()).collect();
        let mut cache = MatchCache::new(1 << 16, 1);
        for gone in 0..2 {
            let mut keys = Keys::new(6);
            for _ in 0..1_000 {
                let rule = &rules[random(&mut state) as usize % rules.len()];
                let header = rule.header(&mut || random(&mut state));
                keys.push().copy_from_slice(&header);
            }
            let mut found = vec![Matches::new(); keys.len()];
            let mut cached = found.clone();
            classifier.matches_batch(&keys, &mut found);
            cache.matches_batch(&classifier, &keys, &mut cached);
            for at in 0..keys.len() {
                let key = keys.get(at).unwrap();
                let left = |number: &usize| gone == 0 || number.is_multiple_of(3);
                let expected: Vec<u32> = (0..rules.len())
                    .filter(left)
                    .filter(|number| matches(&rules[*number], key))
                    .map(|number| number as u32)
                    .collect();
                assert_eq!(found[at].rules().collect::<Vec<_>>(), expected, "{name} {key:?}");
                assert_eq!(cached[at].rules().collect::<Vec<_>>(), expected, "{name} {key:?}");
                assert_eq!(classifier.first(key), expected.first().copied());
            }
            for (number, id) in inserted.iter().enumerate() {
                assert_eq!(number % 3 != 0 && gone == 0, number % 3 != 0 && classifier.remove(*id));
            }
            while classifier.maintain(64) {}
        }
    }
    if sets == 0 {
        eprintln!("no ClassBench sets in NETBRICKS_CLASSBENCH or ../shared/classbench: nothing was compared");
    }
}
