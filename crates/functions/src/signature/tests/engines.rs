//! Engines: they find the same literals, and the default one does what the library does not.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_core::buffer::Pool;
use netbricks_core::{Counter, Settings, Worker};
use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use super::engines;
use crate::signature::group::{Group, Searcher};
use crate::signature::language::{Variables, read};
use crate::signature::library;
use crate::signature::set::RuleSet;
use crate::signature::{SearchEngine, SignatureConfig};

#[test]
fn an_engine_that_the_build_lacks_is_refused_with_its_remedy() {
    let mut config = SignatureConfig::of([r#"alert udp any any -> any any (content:"needle"; sid:1;)"#]);
    config.engine = SearchEngine::Hyperscan;
    if library::IS_BUILT {
        assert_eq!(config.check(), Ok(()));
        return;
    }
    let refused = config.check().unwrap_err();
    assert_eq!(refused.key, "engine");
    for part in ["this build lacks", "libhyperscan-dev or libvectorscan-dev", "--features hyperscan"] {
        assert!(refused.problem.contains(part), "{refused}");
    }
}

fn counter() -> Counter {
    Worker::new(0, 1, Pool::builder().frames(1).build().unwrap()).counter("unfinished")
}

/// A set of rules about these literals, numbered from 1.
fn set(literals: &[Vec<u8>], engine: SearchEngine) -> RuleSet {
    let rule = |(sid, bytes): (usize, &Vec<u8>)| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("alert udp any any -> any any (content:\"|{hex}|\"; nocase; sid:{};)\n", sid + 1)
    };
    let text: String = literals.iter().enumerate().map(rule).collect();
    let rules = read(&text, &Variables::default(), &mut BTreeMap::new(), "").rules;
    assert_eq!(rules.len(), literals.len());
    RuleSet::new(&rules, engine).unwrap()
}

type Hits = BTreeSet<(u32, usize, usize)>;

/// The hits behind the first `known` bytes, all that was there before being read.
fn hits(group: &Group, searcher: &Searcher, data: &[u8], known: usize) -> Hits {
    let mut hits = BTreeSet::new();
    let state = group.state_behind(&data[..known]);
    group.scan(searcher, state, data, known, |rule, end, len| {
        hits.insert((rule, end, len));
    });
    hits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn engines_find_the_same_literals(seed: u64) {
        let mut random = Random::new(seed);
        let mut word = |most: usize| -> Vec<u8> {
            let len = 1 + random.below(most);
            (0..len).map(|_| b"aB\0\xe9\xc9|.\\k"[random.below(9)]).collect()
        };
        let literals: Vec<Vec<u8>> = (0..40).map(|number| word([2, 5, 12][number % 3])).collect();
        let mut data = word(80);
        literals.iter().step_by(5).for_each(|literal| data.extend(literal));
        data.extend(word(80));
        // A hit behind the known bytes, however many those are.
        data.extend(&literals[0]);
        let known = random.below(data.len());
        let mut expected = Hits::new();
        let default = set(&literals, SearchEngine::Default);
        for (place, signature) in (0..).zip(&default.signatures) {
            let literal = &literals[signature.description.sid as usize - 1];
            for end in (known + 1).max(literal.len())..=data.len() {
                if data[end - literal.len()..end].eq_ignore_ascii_case(literal) {
                    expected.insert((place, end, literal.len()));
                }
            }
        }
        prop_assert!(!expected.is_empty());
        for engine in engines() {
            let set = set(&literals, engine);
            let unfinished = counter();
            let mut searcher = Searcher::new(unfinished.clone());
            let group = set.packets(17, (1, 2));
            if engine == SearchEngine::Hyperscan {
                // Without memory for the library.
                prop_assert_eq!(&hits(group, &searcher, &data, known), &expected);
                prop_assert_eq!(unfinished.get(), 1);
            }
            let before = unfinished.get();
            searcher.fit(&set).unwrap();
            prop_assert_eq!(&hits(group, &searcher, &data, known), &expected, "{:?}", engine);
            // A stream's later bytes need no more than those in reach.
            let reach = group.reach().min(known);
            let mut later = Hits::new();
            let state = group.state_behind(&data[..known]);
            group.scan(&searcher, state, &data[known - reach..], reach, |rule, end, len| {
                later.insert((rule, end + known - reach, len));
            });
            prop_assert_eq!(&later, &expected, "{:?}", engine);
            prop_assert_eq!(unfinished.get(), before);
        }
    }
}

/// One group of rules may have any number of literals: only several groups share a bound.
#[test]
fn literals_of_more_than_four_mebibytes_are_looked_for() {
    let literal = |number: usize| format!("{number:05}{}", "x".repeat(250)).into_bytes();
    let literals: Vec<Vec<u8>> = (0..17_000).map(literal).collect();
    let set = set(&literals, SearchEngine::Default);
    let group = set.packets(17, (1, 2));
    let found = hits(group, &Searcher::new(counter()), &literals[16_383], 0);
    assert_eq!(found, BTreeSet::from([(16_383, 255, 255)]));
    assert_eq!(hits(group, &Searcher::new(counter()), &literals[16_383][..254], 0), BTreeSet::new());
}
