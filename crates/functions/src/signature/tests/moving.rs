//! Connections that move between two workers while a match is begun.

use std::collections::BTreeMap;

use netbricks_stream::Kept;
use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use super::{engines, open, segment};
use crate::shuffle::two_workers::{Two, by_name};
use crate::signature::config::{LITTLE, MUCH};
use crate::signature::stream::Reading;

const SETTINGS: &str = r#"
flows = 64
rules = [
  'alert tcp any any -> any 80 (msg:"one"; content:"needle"; sid:1;)',
  'alert tcp any any -> any 80 (msg:"two"; content:"left"; content:"right"; distance:0; sid:2;)',
  'alert tcp any any -> any 80 (msg:"three"; content:"left"; content:!"x"; within:40; sid:3;)',
  'alert tcp any any -> any 80 (msg:"four"; flow:established,to_server; pcre:"/le+ft.{3,60}right/"; sid:4;)',
]
"#;

const INLINE: &str = "inline = true\n";

/// Matches by sid after these rounds of frames; with `random`, connections move between them.
fn through(
    settings: &str,
    rounds: &[Vec<Vec<u8>>],
    random: Option<Random>,
) -> (BTreeMap<String, u64>, usize) {
    let mut two = Two::new(&by_name("signature", settings));
    let (mut moves, mut random) = (0, random);
    for round in rounds {
        two.exchange(round.clone(), 6);
        if let Some(random) = &mut random
            && two.graphs[0].call("shuffle", "moving", "").unwrap() == "0"
        {
            let first = random.below(4_096);
            let last = first + random.below(4_096 - first);
            two.graphs[0].call("shuffle", "move", &format!("{first}-{last} {}", random.below(2))).unwrap();
            moves += 1;
        }
    }
    two.exchange(Vec::new(), 20);
    let mut matches = BTreeMap::new();
    for graph in &mut two.graphs {
        assert_eq!(graph.call("shuffle", "refused", "").unwrap(), "0");
        let sections = graph.reports().into_iter().flat_map(|(_, sections)| sections);
        for row in sections.filter(|section| section.title == "signatures").flat_map(|section| section.rows) {
            *matches.entry(row[0].clone()).or_default() += row[2].parse::<u64>().unwrap();
        }
    }
    (matches, moves)
}

#[test]
fn matches_that_begin_before_a_move_are_found_once() {
    let mut moves = 0;
    let mut found = 0;
    for seed in 1..7 {
        let mut random = Random::new(seed);
        let mut rounds = vec![Vec::new(), Vec::new(), Vec::new()];
        let mut left = BTreeMap::new();
        for port in 1_000..1_032u16 {
            let first = random.next() as u32;
            for (round, frame) in rounds.iter_mut().zip(open(port, first)) {
                round.push(frame);
            }
            let words = ["needle", "left", "right", "x", "............", "nee", "dle "];
            let text: String = (0..random.below(60)).map(|_| words[random.below(words.len())]).collect();
            left.insert(port, (0, first, text.into_bytes()));
        }
        while !left.is_empty() {
            let mut round = Vec::new();
            left.retain(|port, (at, first, text)| {
                let from = *at;
                *at = text.len().min(from + 1 + random.below(30));
                round.push(segment(*port, first.wrapping_add(from as u32), &text[from..*at]));
                *at < text.len()
            });
            rounds.push(round);
        }
        let settings = if seed % 2 == 0 { format!("{INLINE}{SETTINGS}") } else { SETTINGS.into() };
        let (alone, _) = through(&settings, &rounds, None);
        let engine = engines().nth(seed as usize / 2 % engines().count()).unwrap().name();
        let (came, moved) = through(&format!("engine = \"{engine}\"\n{settings}"), &rounds, Some(random));
        moves += moved;
        found += alone.values().sum::<u64>();
        assert_eq!(came, alone);
    }
    assert!(moves > 50 && found > 500, "{moves} moves, {found} matches");
}

proptest! {
    /// Bytes of another worker are taken only where they can be true, and then packed to the same bytes.
    #[test]
    fn images_that_cannot_be_are_refused(bytes: Vec<u8>, fresh: Vec<Vec<u8>>, again: Option<u64>) {
        let mut reading = Reading::<LITTLE>::default();
        for fresh in &fresh {
            reading.append(fresh, again.map(|again| again % (reading.end() + 1)));
        }
        let mut image = Vec::new();
        reading.pack(&mut image);
        let other = Reading::<LITTLE>::unpack(&image).unwrap();
        let history = |reading: &Reading<LITTLE>| {
            let mut history = Vec::new();
            reading.history_from(reading.base(), &mut history);
            history
        };
        prop_assert_eq!((other.end(), other.base(), history(&other)), (reading.end(), reading.base(), history(&reading)));
        for at in 0..17 {
            prop_assert!(Reading::<LITTLE>::unpack(&image[..at]).is_none());
        }
        image.resize(18 + MUCH, 0);
        prop_assert!(Reading::<LITTLE>::unpack(&image).is_none());
        if let Some(reading) = Reading::<LITTLE>::unpack(&bytes) {
            let mut again = Vec::new();
            reading.pack(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn a_shorter_history_takes_the_last_bytes_of_a_longer_one() {
    let mut long = Reading::<MUCH>::default();
    let bytes: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
    bytes.chunks(1_460).for_each(|part| long.append(part, Some(77)));
    let mut image = Vec::new();
    long.pack(&mut image);
    let short = Reading::<LITTLE>::unpack(&image).unwrap();
    assert_eq!((short.end(), short.base()), (10_000, 10_000 - LITTLE as u64));
    let mut history = Vec::new();
    short.history_from(short.base(), &mut history);
    assert_eq!(history, bytes[10_000 - LITTLE..]);
}
