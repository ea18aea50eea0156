//! Events of functions, which the run records with its own.

use netbricks_testkit::namespace::eventually;

use super::dataplane::{Directory, FILE};

/// A run with this function, which is named `ids`.
fn with_function(test: &str, name: &str, settings: &str) -> Directory {
    let directory = Directory::new(test);
    let functions = format!("[function.ids]\nuse = \"{name}\"\n{settings}\n[[chain]]");
    let file = FILE
        .replacen("[[chain]]", &functions, 1)
        .replace("[\"routes\", \"balance\"]", "[\"routes\", \"ids\", \"balance\"]");
    directory.write("edge.toml", &file);
    directory
}

#[test]
fn alerts_are_events_of_the_run() {
    // The rule matches each packet, at most twice a second.
    let rules = "rules = ['alert ip any any -> any any (msg:\"each\"; threshold:type limit, track by_rule, count 2, seconds 1; sid:7;)']";
    let directory = with_function("function-events", "signature", rules);
    let _run = directory.run(&["edge.toml"]);
    eventually("an alert", || {
        let told = directory.ask(&["events", "--json"]).well();
        told.lines().any(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let alert: serde_json::Value =
                serde_json::from_str(event["message"].as_str().unwrap_or_default()).unwrap_or_default();
            event["subject"] == "ids" && alert["alert"]["signature_id"] == 7 && alert["event_type"] == "alert"
        })
    });
    // Rules are replaced and switched by the command.
    assert_eq!(directory.ask(&["set", "ids.disable", "7"]).well(), "done\n");
    let loaded = directory.ask(&["set", "ids.load", "drop udp any any -> any any (sid:8;)"]).well();
    assert_eq!(loaded, "1 rules, 0 skipped\n");
    eventually("the new rule's matches", || directory.ask(&["get", "ids.matches"]).well().contains("8 "));
}

#[test]
fn packets_that_a_firewall_logs_are_events_of_the_run() {
    let lines = "lines = ['allow stateless log \"each\" name seen']\nlog = 16";
    let directory = with_function("firewall-events", "firewall", lines);
    let _run = directory.run(&["edge.toml"]);
    eventually("a logged packet", || {
        let told = directory.ask(&["events", "--json"]).well();
        told.lines().any(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let logged: serde_json::Value =
                serde_json::from_str(event["message"].as_str().unwrap_or_default()).unwrap_or_default();
            event["subject"] == "ids"
                && logged["rule"] == "seen"
                && logged["prefix"] == "each"
                && logged["fate"] == "allowed"
        })
    });
}
