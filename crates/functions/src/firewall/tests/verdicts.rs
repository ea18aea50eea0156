//! Verdicts of generated lists are those of the model, with both engines.

use netbricks_core::DropReason;
use netbricks_testkit::mutate::Random;

use super::super::rule::Action;
use super::super::{Engine, FirewallConfig};
use super::{generate, model, run};

fn compare(seed: u64, rules: usize, packets: usize) {
    let mut random = Random::new(seed);
    let list = generate::list(&mut random, rules);
    let mut samples: Vec<_> = (0..packets).map(|_| generate::packet(&mut random)).collect();
    // The second time the rules of their flows are remembered.
    samples.extend_from_within(..);
    let mut counts = vec![0u64; rules];
    let mut expected = Vec::new();
    let [mut denied, mut rejected] = [0, 0];
    for sample in &samples {
        let (action, counted) = model::verdict(&list, sample);
        counted.into_iter().for_each(|place| counts[place] += 1);
        match action {
            Action::Allow | Action::Count => expected.push(sample.frame.clone()),
            Action::Deny => denied += 1,
            Action::Reject(_) => rejected += 1,
        }
    }
    for (engine, flow_cache) in [(Engine::Compiled, 64), (Engine::Compiled, 0), (Engine::Linear, 0)] {
        let text = list.to_string();
        let config = FirewallConfig { engine, flow_cache, top: rules, ..FirewallConfig::of(text.lines()) };
        let report = run(config, samples.iter().map(|sample| sample.frame.clone()));
        assert!(report.out == expected, "seed {seed}, {engine:?}: {text}");
        let dropped = (report.dropped(DropReason::Denied), report.dropped(DropReason::Rejected));
        assert_eq!(dropped, (denied, rejected), "seed {seed}, {engine:?}: {text}");
        let rows = &report.sections[0].rows;
        for (place, count) in counts.iter().enumerate() {
            let name = format!("{}: ", place + 1);
            let row = rows.iter().find(|row| row[0].starts_with(&name));
            let found = row.map_or(0, |row| row[1].parse::<u64>().unwrap());
            assert_eq!(found, *count, "seed {seed}, {engine:?}: rule {}, {}", place + 1, list.rules[place].1);
        }
    }
}

#[test]
fn verdicts_and_counts_are_those_of_the_model() {
    for seed in 1..=40 {
        compare(seed, 1 + seed as usize % 40, 200);
    }
}

#[test]
fn long_lists_too() {
    compare(1_000, 1_000, 300);
}
