//! Configurations of every shape: none causes a panic, and valid ones stay valid.

use std::path::Path;

use netbricks_buffer::Pool;
use netbricks_core::Worker;
use netbricks_ports::Drivers;
use proptest::prelude::*;

use super::{Origin, Plan, read};
use crate::chain::Network;
use crate::diagnostic::{Diagnostics, Source};

const GOOD: &str = r#"
[port.lan]
driver = "generator"
packets = 1_000
rate = "1 Mpps"

[port.wan]
driver = "null"

[port.echo]
driver = "memory"

[function.flows]
use = "monitor"
capacity = 1_024

[function.hops]
use = "ttl"
non_ip = "pass"

[[chain]]
name = "up"
from = "lan"
through = ["hops", "flows", "wire", "wire"]
to = "wan"

[[chain]]
from = "hops.reply"
through = ["flows"]
to = "wan"

[runtime]
workers = 2
cores = "0-1"
idle = "quiet"
frames = 4_096
burst = 32
seed = 7
"#;

/// Runs all checks of `check`; returns whether the text is valid.
fn check(text: &str) -> bool {
    let (registry, drivers) = (crate::standard(), Drivers::standard());
    let mut diagnostics = Diagnostics::default();
    let plan = read(text, &registry, &drivers, Path::new(""), &mut diagnostics);
    if !diagnostics.has_errors() {
        build(&plan, &mut diagnostics);
    }
    let source = Source::new("f.toml", text);
    let shown = diagnostics.render(&source, true);
    assert_eq!(shown.is_empty(), diagnostics.is_empty());
    assert!(diagnostics.json(&source).is_array());
    for diagnostic in diagnostics.sorted() {
        assert!(!diagnostic.message.is_empty());
        for label in &diagnostic.labels {
            assert!(label.span.start <= text.len(), "{diagnostic:?}");
        }
    }
    !diagnostics.has_errors()
}

fn build(plan: &Plan<'_>, diagnostics: &mut Diagnostics) {
    let pool = Pool::builder().frames(64).build().unwrap();
    let network = Network::of(plan, &pool, diagnostics);
    if diagnostics.has_errors() {
        return;
    }
    let drivers: Vec<String> = plan.ports.iter().map(|port| port.driver.clone()).collect();
    let design = network.design("f", plan);
    let graph = design.stand_in(&drivers, &Worker::new(0, 0, pool.clone())).unwrap();
    // A plan that passes our checks passes the graph's.
    graph.build(pool).unwrap();
}

#[test]
fn the_good_one_is_good() {
    assert!(check(GOOD));
    let (registry, drivers) = (crate::standard(), Drivers::standard());
    let mut diagnostics = Diagnostics::default();
    let plan = read(GOOD, &registry, &drivers, Path::new(""), &mut diagnostics);
    let ports: Vec<_> = plan.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["lan", "wan"], "a port in no chain is checked and left out");
    assert_eq!(plan.chains[0].name, "up");
    assert_eq!(plan.chains[1].name, "hops-reply-wan");
    assert_eq!(plan.chains[1].origin, Origin::Output { function: 0, output: "reply".into() });
    assert_eq!(plan.runtime.cores.map(|cores| cores.get_ref().numbers()), Some(vec![0, 1]));
}

#[test]
fn a_list_without_an_attestation_is_no_silent_wish() {
    let faults = |keys: &str| {
        let text = format!("{GOOD}{keys}");
        let mut diagnostics = Diagnostics::default();
        read(&text, &crate::standard(), &Drivers::standard(), Path::new(""), &mut diagnostics);
        let place = |found: &crate::diagnostic::Diagnostic| text[found.labels[0].span.clone()].to_owned();
        diagnostics
            .sorted()
            .into_iter()
            .map(|found| (found.message.clone(), place(found)))
            .collect::<Vec<_>>()
    };
    let found = faults("attestation_list = \"vet.toml\"\n");
    assert!(found.len() == 1 && found[0].0.contains("without `attestation`: give that, too"), "{found:?}");
    assert!(found[0].1.contains("vet.toml"), "{found:?}");
    for keys in ["attestation = \"a.json\"\nattestation_list = \"vet.toml\"\n", "attestation = \"a.json\"\n"]
    {
        let found = faults(keys);
        assert!(!found.iter().any(|(message, _)| message.contains("compares nothing")), "{found:?}");
    }
}

#[test]
fn nodes_are_named_so_that_uses_can_be_told_apart() {
    let (registry, drivers) = (crate::standard(), Drivers::standard());
    let mut diagnostics = Diagnostics::default();
    let plan = read(GOOD, &registry, &drivers, Path::new(""), &mut diagnostics);
    let network = Network::of(&plan, &Pool::builder().frames(64).build().unwrap(), &mut diagnostics);
    let names: Vec<_> = network.uses.iter().map(|use_| use_.name.as_str()).collect();
    assert_eq!(names, ["hops", "flows@up", "wire", "wire#2", "flows@hops-reply-wan"]);
}

/// Words that stand in configurations, and some that should not stand there.
const WORDS: &[&str] = &[
    "[port.lan]",
    "[port.wan]",
    "[function.f]",
    "[[chain]]",
    "[runtime]",
    "[chain]",
    "[port]",
    "driver",
    "use",
    "from",
    "to",
    "through",
    "name",
    "=",
    "\"lan\"",
    "\"wan\"",
    "\"ttl\"",
    "\"monitor\"",
    "\"ttl.reply\"",
    "\"ttl.out\"",
    "\"f\"",
    "\"generator\"",
    "\"null\"",
    "\"pcap\"",
    "[",
    "]",
    ",",
    "{",
    "}",
    "\n",
    "\n",
    "\n",
    "\"",
    "1",
    "-1",
    "1e9",
    "true",
    "\"10 Mpps\"",
    "\"é\u{202e}\"",
    "#",
    ".",
    "\u{0}",
    "'''",
    "workers",
    "cores",
    "frames",
    "capacity",
    "1979-05-27",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_row_of_words_panics(words in prop::collection::vec(prop::sample::select(WORDS), 0..60)) {
        check(&words.join(" "));
    }

    #[test]
    fn no_damage_panics(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(WORDS)), 1..4)
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (place, length, word) in cuts {
            let start = place.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, word.chars());
        }
        check(&text.into_iter().collect::<String>());
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text);
    }
}
