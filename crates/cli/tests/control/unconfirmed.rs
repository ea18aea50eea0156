//! Changes that are rolled back unless they are confirmed.

use netbricks_testkit::namespace::eventually;

use super::dataplane::{Directory, FILE, STATE};

fn with_ttl(directory: &Directory) -> String {
    let text = FILE.replace("[\"routes\"", "[\"ttl\", \"routes\"");
    directory.write("next.toml", &text);
    text
}

#[test]
fn a_change_that_is_not_confirmed_in_time_is_rolled_back_and_events_say_so() {
    let directory = Directory::new("not-confirmed");
    let next = with_ttl(&directory);
    let _run = directory.run(&["edge.toml", "--state", STATE]);
    directory.ask(&["apply", "next.toml", "--confirm", "1s"]).well();
    // What comes back has a number of its own.
    eventually("the rollback", || directory.json(&["status"])["configuration"] == 3);
    let status = directory.json(&["status"]);
    assert_eq!(status["confirmed"], true, "{status}");
    assert_eq!(directory.config(), FILE);
    let said = directory.ask(&["events"]).well();
    let place = |kind: &str| said.find(kind).unwrap_or_else(|| panic!("no `{kind}`: {said}"));
    assert!(place("not-confirmed") < place("rolled-back"), "{said}");
    assert_eq!(directory.ask(&["config", "--history", "2"]).well(), next);
    let history = directory.json(&["history"]);
    assert_eq!(history[1]["state"], "rolled-back", "{history}");
    let said = directory.ask(&["confirm"]).failed(1);
    assert!(said.contains("nothing waits to be confirmed"), "{said}");
}

#[test]
fn a_change_that_is_confirmed_stays_and_outlives_the_run() {
    let directory = Directory::new("confirmed");
    let next = with_ttl(&directory);
    let mut run = directory.run(&["edge.toml", "--state", STATE]);
    let status = directory.json(&["apply", "next.toml", "--confirm", "1h"]);
    assert_eq!(status["confirm_within_seconds"], 3600.0, "{status}");
    assert!(
        directory.json(&["status"])["confirm_within_seconds"].as_f64().is_some_and(|left| left <= 3600.0)
    );
    directory.ask(&["confirm"]).well();
    assert_eq!(directory.json(&["status"])["confirmed"], true);
    run.kill();
    let _again = directory.run(&["--state", STATE]);
    assert_eq!(directory.config(), next);
}

/// Also after several such changes, and with what handlers changed of the confirmed one.
#[test]
fn a_run_that_is_killed_while_a_change_waits_starts_with_the_confirmed_one() {
    let directory = Directory::new("killed-unconfirmed");
    with_ttl(&directory);
    let mut run = directory.run(&["edge.toml", "--state", STATE]);
    directory.ask(&["set", "routes.add", "10.0.0.0/8", "7"]).well();
    for _ in 0..2 {
        directory.ask(&["apply", "next.toml", "--confirm", "1h"]).well();
        directory.ask(&["set", "routes.add", "10.0.0.0/8", "8"]).well();
    }
    assert_eq!(directory.ask(&["get", "routes.lookup", "10.1.1.1"]).well(), "8\n");
    run.kill();
    let _again = directory.run(&["--state", STATE]);
    assert_eq!(directory.config(), FILE.replace("/0 1\"", "/0 1\", \"10.0.0.0/8 7\""));
    assert_eq!(directory.ask(&["get", "routes.lookup", "10.1.1.1"]).well(), "7\n");
    let status = directory.json(&["status"]);
    assert_eq!((&status["configuration"], &status["confirmed"]), (&1.into(), &true.into()), "{status}");
}

/// A file that changes nothing waits like any other.
///
/// It is rolled back to the first configuration, and nothing is before that one.
#[test]
fn the_file_that_runs_can_wait_to_be_confirmed_and_is_rolled_back_once() {
    let directory = Directory::new("unconfirmed-same");
    let _run = directory.run(&["edge.toml", "--state", STATE]);
    directory.ask(&["apply", "edge.toml", "--confirm", "1s"]).well();
    eventually("the rollback", || directory.json(&["status"])["configuration"] == 3);
    let status = directory.json(&["status"]);
    assert_eq!(status["confirmed"], true, "{status}");
    let again = directory.ask(&["rollback"]);
    assert_eq!(
        (again.code, again.err.as_str()),
        (Some(1), "error: there is no earlier configuration to go back to\n"),
        "{again:?}"
    );
    let history = directory.json(&["history"]);
    assert_eq!(
        (&history[0]["running"], &history[0]["state"]),
        (&true.into(), &"confirmed".into()),
        "{history}"
    );
    let said = directory.ask(&["events"]).well();
    assert_eq!(
        (said.matches("  not-confirmed  ").count(), said.matches("  rolled-back  ").count()),
        (1, 1),
        "{said}"
    );
}

#[test]
fn a_file_that_waits_to_be_confirmed_is_confirmed_by_applying_it_again() {
    let directory = Directory::new("unconfirmed-again");
    let next = with_ttl(&directory);
    let mut run = directory.run(&["edge.toml", "--state", STATE]);
    directory.ask(&["apply", "next.toml", "--confirm", "1h"]).well();
    directory.ask(&["apply", "next.toml"]).well();
    let status = directory.json(&["status"]);
    assert_eq!(status["confirmed"], true, "{status}");
    run.kill();
    let _again = directory.run(&["--state", STATE]);
    assert_eq!(directory.config(), next);
}
