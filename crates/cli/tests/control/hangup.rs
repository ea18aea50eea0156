//! Signals: SIGHUP applies the file again, SIGTERM drains and reports.

use netbricks_testkit::namespace::eventually;
use serde_json::Value;

use super::dataplane::{Directory, FILE, STATE};

/// The kinds and messages of the events so far.
fn events(directory: &Directory) -> Vec<(String, String)> {
    let said = directory.ask(&["events", "--json"]).well();
    let events = said.lines().map(|line| serde_json::from_str(line).expect("a JSON value a line"));
    let of = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    events.map(|event: Value| (of(&event, "kind"), of(&event, "message"))).collect()
}

/// A file with the route that these tests set live.
fn with_route(file: &str) -> String {
    file.replace("\"0.0.0.0/0 1\"", "\"0.0.0.0/0 1\", \"10.0.0.0/8 7\"")
}

#[test]
fn sighup_applies_the_file_again_and_a_faulty_one_leaves_what_runs() {
    let directory = Directory::new("hangup");
    let mut run = directory.run(&["edge.toml", "--state", STATE, "--json"]);
    directory.ask(&["set", "routes.add", "10.0.0.0/8", "7"]).well();
    let changed = FILE.replace("[\"routes\"", "[\"ttl\", \"routes\"");
    directory.write("edge.toml", &changed);
    run.signal("HUP");
    eventually("the changed file", || directory.json(&["status"])["configuration"] == 2);
    // What was set live is among the keys.
    let shown = with_route(&changed);
    assert_eq!(directory.config(), shown);
    let journal = &directory.json(&["status"])["journal"];
    assert_eq!(journal, 1, "`routes` is as before, and so is what was set");

    directory.write("edge.toml", &FILE.replace("use = \"lpm\"", "use = \"lmp\""));
    run.signal("HUP");
    eventually("word of the fault", || {
        events(&directory).iter().any(|(kind, said)| kind == "not-applied" && said.contains("edge.toml:9:7"))
    });
    assert_eq!(directory.config(), shown);
    std::fs::remove_file(directory.path().join("edge.toml")).expect("it is there");
    run.signal("HUP");
    eventually("word of the missing file", || {
        let missing =
            |(kind, said): &&(String, String)| kind == "not-applied" && said.contains("there is no file");
        events(&directory).iter().filter(missing).count() == 1
    });
    // The log of a service has it, too.
    eventually("the line on standard error", || run.said().contains("edge.toml:9:7"));

    run.signal("TERM");
    let report: Value = serde_json::from_str(&run.report()).expect("one JSON value");
    assert_eq!((&report["conserved"], &report["running"]), (&true.into(), &false.into()), "{report}");
    let mut again = directory.run(&["--state", STATE]);
    assert_eq!(directory.config(), shown);
    again.signal("TERM");
    assert!(again.report().trim_end().ends_with("every packet accounted for"));
    assert!(again.said().contains("SIGTERM: draining and stopping"), "{}", again.said());
}

#[test]
fn sighup_after_a_start_from_the_state_directory_applies_the_file_that_it_was() {
    let directory = Directory::new("hangup-restored");
    directory.run(&["edge.toml", "--state", STATE]).kill();
    let mut run = directory.run(&["--state", STATE]);
    // The file is as it was, and is the same configuration.
    run.signal("HUP");
    directory.ask(&["set", "routes.add", "10.0.0.0/8", "7"]).well();
    assert_eq!(directory.json(&["status"])["configuration"], 1);
    let changed = FILE.replace("[\"routes\"", "[\"ttl\", \"routes\"");
    directory.write("edge.toml", &changed);
    run.signal("HUP");
    eventually("the changed file", || directory.json(&["status"])["configuration"] == 2);
    assert_eq!(directory.config(), with_route(&changed));
    std::fs::remove_file(directory.path().join("edge.toml")).expect("it is there");
    run.signal("HUP");
    eventually("word of the missing file", || {
        events(&directory)
            .iter()
            .any(|(kind, said)| kind == "not-applied" && said.contains("there is no file"))
    });
    assert!(run.is_running(), "{}", run.said());
}

/// Where there is no control, SIGHUP is what it is elsewhere.
#[test]
fn sighup_ends_a_run_without_control_with_its_report() {
    let directory = Directory::new("hangup-without");
    let file = FILE.replace("driver = \"null\"", "driver = \"pcap\"\nwrite = \"out.pcap\"");
    directory.write("edge.toml", &file);
    // The test itself may have been started to ignore SIGHUP.
    let mut command = std::process::Command::new("env");
    command.arg("--default-signal=HUP").arg(env!("CARGO_BIN_EXE_netbricks"));
    command.args(["run", "edge.toml", "--no-control", "--color", "never"]).current_dir(directory.path());
    let mut run = directory.begin(command);
    // It listens to signals before it opens ports.
    eventually("the run's capture", || directory.path().join("out.pcap.partial").exists());
    run.signal("HUP");
    assert!(run.report().trim_end().ends_with("every packet accounted for"));
}
