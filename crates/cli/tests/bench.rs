//! `netbricks bench`: its list, its figures, and its errors. These tests check no speed.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_names_every_benchmark_that_is_promised() {
    let output = bench(&["--list"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let list = text(&output.stdout);
    let listed: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let promised = [
        "harness",
        "alloc",
        "macswap",
        "ttl",
        "monitor-64k",
        "chain-ttl-1",
        "chain-ttl-2",
        "chain-ttl-4",
        "chain-ttl-8",
        "chain-ttl-16",
        "chain-ttl-1-fused",
        "chain-ttl-2-fused",
        "chain-ttl-4-fused",
        "chain-ttl-8-fused",
        "chain-ttl-16-fused",
        "chain-ttl-64-fused",
        "chain-wire-1",
        "chain-wire-2",
        "chain-wire-4",
        "chain-wire-8",
        "chain-wire-16",
        "chain-wire-64",
        "maglev-90",
        "maglev-100",
        "nat-64k",
        "lpm-64k",
        "lpm-uniform",
        "lpm6",
        "shuffle-2",
        "state-strict-2",
        "state-bounded-2",
        "reassemble",
        "sandbox-macswap-copy",
        "sandbox-macswap-mapped",
    ];
    let missing: Vec<_> = promised.iter().filter(|name| !listed.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of\n{list}");
    for line in list.lines() {
        assert!(line.split_whitespace().count() > 1, "`{line}` does not say what is measured");
    }
}

#[test]
fn a_figure_is_one_json_object_a_line() {
    // A figure has the same form whether our code or a device fills the frames.
    for (arguments, names) in [
        (&["harness", "alloc"][..], &["harness", "alloc"][..]),
        (&["harness", "--short-frames"], &["harness"]),
    ] {
        let output = bench(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        let figures: Vec<Value> =
            printed.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
        let named: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
        assert_eq!(named, names, "{printed}");
        for figure in &figures {
            let number = |key: &str| figure[key].as_f64().unwrap_or_else(|| panic!("no `{key}` in {figure}"));
            let (median, min, max) = (number("ns_per_packet"), number("min"), number("max"));
            assert!(0.0 < min && min <= median && median <= max, "{figure}");
            // With one worker, 1,000 divided by the ns a packet is the rate in millions of packets a second.
            assert!((number("mpps") * median / 1e3 - 1.0).abs() < 1e-6, "{figure}");
            assert!(figure["packets"].as_u64().is_some_and(|packets| packets > 0), "{figure}");
            assert_eq!(figure["burst"], 32, "{figure}");
        }
    }
}

/// Two workers exchange packets through rings of 8, and wait for each other.
///
/// A run fails if a packet is lost or overtakes another of its flow.
#[test]
fn a_hundred_million_packets_keep_their_order_between_two_workers() {
    // Each worker gives half of what it receives to the other.
    let output = bench(&["shuffle-2-waiting", "--rounds", "7", "--packets", "7500000", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let figure: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(figure["packets"].as_u64().is_some_and(|packets| packets >= 100_000_000), "{figure}");
}

#[test]
fn bad_benchmark_arguments_are_refused_with_a_suggestion() {
    let said = |arguments: &[&str]| {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let few = said(&["harness", "--rounds", "6"]);
    assert!(few.contains("`--rounds` must be at least 7, found 6"), "{few}");
    let few = said(&["harness", "--packets", "499999"]);
    assert!(few.contains("`--packets` must be at least 500000, found 499999"), "{few}");
    // Nothing is measured if one of the names is wrong.
    let unknown = said(&["harness", "monitor-64"]);
    assert!(unknown.contains("no benchmark `monitor-64`; did you mean `monitor-64k`?"), "{unknown}");
    let strange = said(&["throughput"]);
    assert!(strange.contains("no benchmark `throughput`; `netbricks bench --list`"), "{strange}");
    let nothing = said(&[]);
    assert!(nothing.contains("<NAME>"), "{nothing}");
}
