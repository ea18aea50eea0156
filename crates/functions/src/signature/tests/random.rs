//! Random rules in random streams and packets, compared with the naive search.

use std::collections::BTreeMap;

use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use super::naive::{self, Part, Place, Seen};
use super::{matches, open, run, segment, udp};

fn word(random: &mut Random, most: usize) -> Vec<u8> {
    (0..1 + random.below(most)).map(|_| b"abAc"[random.below(4)]).collect()
}

fn content(random: &mut Random, first: bool, stream: bool) -> Part {
    let bytes = word(random, 3);
    let len = bytes.len();
    let negated = !first && random.below(4) == 0;
    let bounded = random.below(2) == 0 || negated && stream;
    let within = bounded.then(|| len + random.below(8));
    let place = if first || random.below(3) == 0 {
        let offset = if random.below(2) == 0 { random.below(12) } else { 0 };
        Place::Absolute { offset, depth: within }
    } else {
        Place::Relative { distance: random.below(8) as i64 - 3, within }
    };
    Part::Content { bytes, negated, nocase: random.below(3) == 0, place }
}

const PATTERNS: [&str; 11] = [
    "ab+c",
    "a.c",
    "(ab|ca){2}",
    "[^a]{3,5}A",
    "c.*A",
    "^ab",
    "a(?:b|c)+?A",
    "^.{2,6}c",
    "(?:^|A)b+[^b]",
    "^a|^[bA]{1,3}c|ca",
    "\\x41[[:lower:]]+",
];

pub(super) fn parts(random: &mut Random, stream: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    for number in 0..1 + random.below(4) {
        let kind = random.below(8);
        parts.push(if kind == 7 && number > 0 {
            let relative = random.below(3) > 0;
            Part::Above {
                value: u16::from_be_bytes(*b"aA"),
                offset: random.below(6) as i64 - if relative { 3 } else { 0 },
                relative,
                negated: random.below(3) == 0,
            }
        } else if kind < 2 {
            Part::Pcre {
                pattern: PATTERNS[random.below(PATTERNS.len())].into(),
                negated: number > 0 && !stream && random.below(3) == 0,
                relative: number > 0 && random.below(2) == 0,
            }
        } else {
            content(random, number == 0, stream)
        });
    }
    parts
}

/// Rules with these parts, numbered from 1.
fn rules(protocol: &str, all: &[Vec<Part>]) -> Vec<String> {
    let rule = |(number, parts): (usize, &Vec<Part>)| {
        let options: String = parts.iter().map(Part::text).collect();
        format!("alert {protocol} any any -> any any ({options}sid:{};)", number + 1)
    };
    all.iter().enumerate().map(rule).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packets_match_as_a_naive_search_says(seed: u64) {
        let mut random = Random::new(seed);
        let all: Vec<_> = (0..12).map(|_| parts(&mut random, false)).collect();
        let payloads: Vec<_> = (0..8).map(|_| word(&mut random, 40)).collect();
        let texts = rules("udp", &all);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let report = run(&texts, payloads.iter().map(|payload| udp(53, payload)));
        let mut expected = BTreeMap::new();
        for (number, parts) in (1..).zip(&all) {
            let found = payloads.iter().filter(|bytes| naive::matches(parts, Seen { bytes, known: -1, ended: true })).count();
            if found > 0 {
                expected.insert(number, found as u64);
            }
        }
        prop_assert_eq!(matches(&report), expected, "{:?} in {:?}", texts, payloads);
    }

    #[test]
    fn streams_match_as_a_naive_search_says_however_they_are_cut(seed: u64) {
        let mut random = Random::new(seed);
        let all: Vec<_> = (0..12).map(|_| parts(&mut random, true)).collect();
        let texts = rules("tcp-stream", &all);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let stream = word(&mut random, 120);
        // Pieces, some sent twice, mostly in order.
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < stream.len() {
            let end = stream.len().min(at + 1 + random.below(20));
            let begin = at.saturating_sub(random.below(4));
            for _ in 0..1 + random.below(5) / 4 {
                pieces.push((pieces.len() + random.below(4), begin, end));
            }
            at = end;
        }
        pieces.sort_unstable();
        let first = random.next() as u32;
        let mut frames: Vec<Vec<u8>> = open(1_000, first).into();
        frames.extend(pieces.iter().map(|(_, begin, end)| segment(1_000, first.wrapping_add(*begin as u32), &stream[*begin..*end])));
        let report = run(&texts, frames);
        // Each packet makes a prefix known.
        let (mut ends, mut have) = (Vec::new(), 0);
        let mut waits: Vec<(usize, usize)> = Vec::new();
        for (_, begin, end) in &pieces {
            waits.push((*begin, *end));
            let before = have;
            while let Some(next) = waits.iter().filter(|(begin, end)| *begin <= have && *end > have).map(|(_, end)| *end).max() {
                have = next;
            }
            ends.push((before, have, false));
        }
        ends.push((have, have, true));
        let mut expected = BTreeMap::new();
        for (number, parts) in (1..).zip(&all) {
            let found = ends.iter().filter(|(before, end, ended)| {
                (end > before || *ended) && naive::matches(parts, Seen { bytes: &stream[..*end], known: *before as i64, ended: *ended })
            });
            let found = found.count();
            if found > 0 {
                expected.insert(number, found as u64);
            }
        }
        prop_assert_eq!(matches(&report), expected, "{:?} in {:?}, pieces {:?}", texts, String::from_utf8_lossy(&stream), pieces);
    }
}
