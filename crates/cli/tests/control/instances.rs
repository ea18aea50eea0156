//! `instances`: Click configurations that come and go in a run, and a switch that joins them.

use netbricks_testkit::namespace::eventually;

use crate::dataplane::{Directory, Run, STATE};

/// A generator, a switch, and nothing else.
const FILE: &str = r#"
[port.wire]
driver = "generator"
rate = "1 kpps"
clock = "real"
[port.back]
driver = "null"
[function.host]
use = "instances"
devices = ["wire"]
[[chain]]
from = "wire"
through = ["host"]
to = "back"
[runtime]
frames = 512
workers = 1
idle = "quiet"
"#;

const MIRROR: &str = "FromDevice(0) -> c :: Counter -> EtherMirror -> ToDevice(0);\n";

fn running(test: &str) -> (Directory, Run) {
    let directory = Directory::new(test);
    directory.write("hosts.toml", FILE);
    directory.write("mirror.click", MIRROR);
    directory.write("bad.click", "FromDevice(0) -> NoSuchClass -> ToDevice(0);\n");
    let run = directory.run(&["hosts.toml"]);
    (directory, run)
}

#[test]
fn instances_are_created_asked_changed_and_destroyed() {
    let (directory, mut run) = running("instances");
    assert_eq!(directory.ask(&["instances", "create", "echo", "--ring", "128"]).well(), "created echo\n");
    let installed = directory.ask(&["instances", "install", "echo", "mirror.click"]).well();
    assert_eq!(installed, "echo runs 4 elements\n");
    let counted = || directory.ask(&["instances", "read", "echo", "c.count"]).well();
    eventually("packets in the instance", || counted().trim().parse::<u64>().is_ok_and(|count| count > 20));
    assert_eq!(directory.ask(&["instances", "write", "echo", "c.reset"]).code, Some(0));

    let told = directory.ask(&["instances", "install", "echo", "bad.click"]).failed(1);
    assert!(told.contains("echo:1: undeclared element 'NoSuchClass'"), "{told}");
    let told = directory.ask(&["instances", "create", "echo"]).failed(1);
    assert!(told.contains("there is an instance `echo` already"), "{told}");
    let told = directory.ask(&["instances", "destroy", "ecko"]).failed(1);
    assert!(told.contains("did you mean `echo`?"), "{told}");

    let told = directory.ask(&["instances", "create", "tiny", "--memory", "0.5"]).failed(2);
    assert!(told.contains("--memory"), "{told}");
    directory.ask(&["instances", "create", "tiny", "--memory", "3 kB"]).well();
    let told = directory.ask(&["instances", "install", "tiny", "mirror.click"]).failed(1);
    assert!(told.contains("`memory` allows 3000."), "{told}");
    directory.ask(&["instances", "destroy", "tiny"]).well();

    let list = directory.json(&["instances", "list"]);
    assert_eq!(
        (list[0]["name"].as_str(), list[0]["state"].as_str()),
        (Some("echo"), Some("running")),
        "{list}"
    );
    assert_eq!(list[0]["ports"][0]["ring"], 128);
    let switch = directory.json(&["instances", "switch", "show"]);
    assert_eq!(switch["ports"][0]["name"], "wire", "{switch}");
    let handlers = directory.ask(&["instances", "handlers", "echo", "c"]).well();
    assert!(handlers.contains("c.count  r"), "{handlers}");

    for (command, state) in [("suspend", "suspended"), ("resume", "running")] {
        assert_eq!(directory.ask(&["instances", command, "echo"]).code, Some(0));
        assert_eq!(directory.json(&["instances", "list"])[0]["state"], state);
    }
    assert_eq!(directory.ask(&["instances", "destroy", "echo"]).well(), "destroyed echo\n");
    assert_eq!(
        directory.ask(&["instances", "create", "n", "--count", "3"]).well(),
        "created n-1\ncreated n-2\ncreated n-3\n"
    );
    directory.ask(&["stop"]).well();
    let report = run.report();
    assert!(report.contains("every packet accounted for"), "{report}");
}

/// Instances of the file are there after each start, and those that commands made after a start from the state.
#[test]
fn instances_of_the_file_and_of_the_journal_come_back_after_a_kill() {
    let directory = Directory::new("instances-again");
    let declared = "[instance.echo]\nfile = \"mirror.click\"\nring = 128\nmac = \"02:00:00:00:00:55\"\n";
    directory.write("hosts.toml", &format!("{FILE}{declared}"));
    directory.write("mirror.click", MIRROR);
    let states = || {
        let list = directory.json(&["instances", "list"]);
        let of = |one: &serde_json::Value| format!("{} {}", one["name"], one["state"]).replace('"', "");
        list.as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let mut run = directory.run(&["hosts.toml", "--state", STATE]);
    eventually("the file's instance", || states() == ["echo running"]);
    directory.ask(&["instances", "create", "more", "--ports", "2"]).well();
    directory.ask(&["instances", "install", "more", "mirror.click"]).well();
    directory.ask(&["instances", "create", "gone"]).well();
    directory.ask(&["instances", "destroy", "gone"]).well();
    run.kill();
    run.wait();

    let mut run = directory.run(&["--state", STATE]);
    eventually("both instances", || states() == ["echo running", "more running"]);
    let list = directory.json(&["instances", "list"]);
    assert_eq!(
        (&list[0]["ports"][0]["ring"], &list[0]["ports"][0]["mac"]),
        (&128.into(), &"02-00-00-00-00-55".into())
    );
    let counted = || directory.ask(&["instances", "read", "echo", "c.count"]).well();
    eventually("packets in the instance", || counted().trim().parse::<u64>().is_ok_and(|count| count > 20));
    directory.ask(&["stop"]).well();
    let report = run.report();
    assert!(report.contains("every packet accounted for"), "{report}");
}
