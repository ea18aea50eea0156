//! `instances`: Click configurations that come and go in a run, and a switch that joins them.

use std::net::TcpListener;

use netbricks_testkit::namespace::eventually;

use crate::dataplane::{Directory, Run, STATE, Told};

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
    // With two workers, one creates an instance and the other may be the one that has it.
    let two = FILE.replace("workers = 1", "workers = 2");
    directory.write("hosts.toml", &format!("{two}{declared}"));
    directory.write("mirror.click", MIRROR);
    let states = || {
        let list = directory.json(&["instances", "list"]);
        let of = |one: &serde_json::Value| format!("{} {}", one["name"], one["state"]).replace('"', "");
        let mut all: Vec<String> = list.as_array().expect("a list").iter().map(of).collect();
        all.sort();
        all
    };
    let mut run = directory.run(&["hosts.toml", "--state", STATE]);
    eventually("the file's instance", || states() == ["echo running"]);
    directory.ask(&["instances", "create", "more", "--ports", "2", "--count", "8"]).well();
    for number in 1..=8 {
        directory.ask(&["instances", "install", &format!("more-{number}"), "mirror.click"]).well();
    }
    directory.ask(&["instances", "create", "gone"]).well();
    directory.ask(&["instances", "destroy", "gone"]).well();
    run.kill();
    run.wait();

    let mut run = directory.run(&["--state", STATE]);
    let more = (1..=8).map(|number| format!("more-{number} running"));
    let expected: Vec<String> = ["echo running".to_owned()].into_iter().chain(more).collect();
    eventually("all instances", || states() == expected);
    let list = directory.json(&["instances", "list"]);
    let echo =
        list.as_array().and_then(|all| all.iter().find(|one| one["name"] == "echo")).expect("it is there");
    assert_eq!(
        (&echo["ports"][0]["ring"], &echo["ports"][0]["mac"]),
        (&128.into(), &"02-00-00-00-00-55".into())
    );
    let counted = || directory.ask(&["instances", "read", "echo", "c.count"]).well();
    eventually("packets in the instance", || counted().trim().parse::<u64>().is_ok_and(|count| count > 20));
    directory.ask(&["stop"]).well();
    let report = run.report();
    assert!(report.contains("every packet accounted for"), "{report}");
}

/// A tenant configures the instances that it owns, by the operator's command; it sees no others.
#[test]
fn a_tenant_drives_its_own_instance_alone() {
    let directory = Directory::new("instances-owned");
    directory.write("acme.token", "acme-0123456789abcdef\n");
    directory.write("admin.token", "admin-0123456789abcdef\n");
    directory.write("mirror.click", MIRROR);
    // Free for a moment at least.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let more = format!(
        "[tenant.acme]\ntoken_file = \"acme.token\"\n[control]\nlisten = \"{address}\"\ntoken_file = \"admin.token\"\n\
         [instance.acme-fw]\nowner = \"acme\"\nmemory = \"1 MB\"\n"
    );
    directory.write("hosts.toml", &format!("{}{more}", FILE.replace("workers = 1", "workers = 2")));
    let mut run = directory.run(&["hosts.toml", "--state", STATE]);
    directory.ask(&["instances", "create", "acme-more", "--owner", "acme", "--memory", "1MB"]).well();
    directory.ask(&["instances", "create", "operators"]).well();
    let url = format!("http://{address}");
    let tenant = |words: &[&str]| {
        let words = [words, &["--socket", &url, "--token-file", "acme.token"]].concat();
        Told::of(&mut directory.netbricks(&words))
    };
    for name in ["acme-fw", "acme-more"] {
        let installed = tenant(&["instances", "install", name, "mirror.click"]).well();
        assert_eq!(installed, format!("{name} runs 4 elements\n"));
        tenant(&["instances", "suspend", name]).well();
        tenant(&["instances", "resume", name]).well();
        assert!(tenant(&["instances", "read", name, "c.count"]).well().trim().parse::<u64>().is_ok());
    }
    let listed = tenant(&["instances", "list", "--json"]).json();
    let names = |listed: &serde_json::Value| {
        let mut names: Vec<String> =
            listed.as_array().expect("a list").iter().map(|one| one["name"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&listed), ["\"acme-fw\"", "\"acme-more\""]);
    for words in [
        &["instances", "install", "operators", "mirror.click"][..],
        &["instances", "read", "operators", "c.count"],
        &["instances", "read", "none", "c.count"],
    ] {
        let told = tenant(words).failed(1);
        assert!(told.contains("tenant `acme` has no instance"), "{words:?}: {told}");
    }
    for words in [
        &["instances", "create", "x"][..],
        &["instances", "destroy", "acme-fw"],
        &["instances", "switch", "show"],
        &["set", "host.tenant-write", "corp suspend operators"],
        &["status"],
    ] {
        assert!(tenant(words).failed(1).contains("tenant `acme` may not ask for this"), "{words:?}");
    }
    // A start from the state does the tenant's writes again.
    run.kill();
    run.wait();
    let mut run = directory.run(&["--state", STATE]);
    eventually("the tenant's configurations", || {
        let listed = directory.json(&["instances", "list"]);
        let all = listed.as_array().expect("a list");
        all.iter().filter(|one| one["state"] == "running" && one["owner"] == "acme").count() == 2
    });
    directory.ask(&["stop"]).well();
    let report = run.report();
    assert!(report.contains("every packet accounted for"), "{report}");
}
