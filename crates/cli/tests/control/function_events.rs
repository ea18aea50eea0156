//! Events of functions, which the run records with its own.

use netbricks_testkit::namespace::eventually;

use super::dataplane::{Directory, FILE};

/// A run of `signature` whose first rule matches each packet, at most twice a second.
fn with_rules(test: &str) -> Directory {
    let directory = Directory::new(test);
    let rules = "rules = ['alert ip any any -> any any (msg:\"each\"; threshold:type limit, track by_rule, count 2, seconds 1; sid:7;)']";
    let functions = format!("[function.ids]\nuse = \"signature\"\n{rules}\n[[chain]]");
    let file = FILE
        .replacen("[[chain]]", &functions, 1)
        .replace("[\"routes\", \"balance\"]", "[\"routes\", \"ids\", \"balance\"]");
    directory.write("edge.toml", &file);
    directory
}

#[test]
fn alerts_are_events_of_the_run() {
    let directory = with_rules("function-events");
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
