//! Commands of clients: what each answers, for people and for programs.

use netbricks_testkit::namespace::eventually;
use serde_json::Value;

use super::dataplane::{Directory, FILE};

/// Every command that asks, each with a value that its JSON has.
const ASKING: [(&str, &str, &str); 16] = [
    ("status", "/state", "running"),
    ("show ports", "/0/name", "lan"),
    ("show ports wan", "/0/driver", "null"),
    ("show workers", "/0/receives/0", "lan.0"),
    ("show functions", "/0/definition", "lpm"),
    ("show functions balance", "/0/name", "balance"),
    ("show tables", "/0/table", "routes"),
    ("show handlers", "/0/function", "routes"),
    ("get balance.backends", "/handler", "backends"),
    ("get routes.lookup 10.1.2.3", "/answers/0/value", "1"),
    ("history", "/0/file", "edge.toml"),
    ("config", "/name", "edge.toml"),
    ("config --history 1", "/name", "edge.toml"),
    ("plan edge.toml", "/kept/0", "lan"),
    ("stats", "/ports/0/port", "lan"),
    ("graph --live", "/nodes/0/name", "lan"),
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn every_command_that_asks_answers_people_and_programs() {
    let directory = Directory::new("asking");
    let mut run = directory.run(&["edge.toml"]);
    for (line, place, expected) in ASKING {
        let said = directory.ask(&words(line)).well();
        assert!(!said.trim().is_empty(), "{line}");
        let json = directory.json(&words(line));
        let found = json.pointer(place).unwrap_or(&Value::Null);
        assert_eq!(found.as_str().map(str::trim), Some(expected), "{line}: {json}");
    }
    assert_eq!(directory.json(&["show", "drops"]), Value::Array(Vec::new()));
    assert_eq!(directory.ask(&["show", "drops"]).well(), "no packet was dropped\n");
    assert_eq!(directory.config(), FILE);
    let looks = directory.ask(&words("stats --watch --interval 50ms --count 2 --json")).well();
    for line in looks.lines() {
        serde_json::from_str::<Value>(line).expect("a JSON value a line");
    }
    directory.ask(&["stop"]).well();
    run.report();
}

#[test]
fn a_change_of_a_handler_is_seen_by_the_next_reader_and_counted() {
    let directory = Directory::new("set");
    let _run = directory.run(&["edge.toml"]);
    let before = directory.json(&["status"]);
    assert_eq!((&before["generation"], &before["journal"]), (&1.into(), &0.into()), "{before}");
    directory.ask(&words("set balance.add web3 02:00:00:00:00:03 2")).well();
    let set = directory.json(&words("set routes.add 10.0.0.0/8 7"));
    assert_eq!((&set["function"], &set["handler"]), (&"routes".into(), &"add".into()), "{set}");
    let backends = directory.ask(&words("get balance.backends")).well();
    assert!(backends.contains("web3 02:00:00:00:00:03 2"), "{backends}");
    assert_eq!(directory.ask(&words("get routes.lookup 10.1.2.3")).well(), "7\n");
    // A value can come from a file.
    directory.write("routes.txt", "10.1.0.0/16 8\n10.2.0.0/16 9\n");
    directory.ask(&words("set routes.add @routes.txt")).well();
    assert_eq!(directory.ask(&words("get routes.lookup 10.2.2.3")).well(), "9\n");
    let after = directory.json(&["status"]);
    assert_eq!((&after["generation"], &after["journal"]), (&4.into(), &3.into()), "{after}");
}

/// Also where the state that was changed goes on: only the file says what the next start runs.
#[test]
fn an_applied_file_keeps_what_handlers_changed_and_says_what_is_lost() {
    let directory = Directory::new("kept");
    let _run = directory.run(&["edge.toml"]);
    directory.ask(&words("set balance.add web3 02:00:00:00:00:03")).well();
    directory.ask(&words("set routes.add 10.0.0.0/8 7")).well();
    let apply = |file: &str| {
        directory.write("next.toml", file);
        directory.json(&["apply", "next.toml"])["plan"]["warnings"].clone()
    };
    // A function that is made again has its writes again.
    assert_eq!(apply(&FILE.replace("slots", "capacity = 1000\nslots")), serde_json::json!([]));
    assert!(directory.ask(&words("get balance.backends")).well().contains("web3 "));
    assert_eq!(directory.json(&["status"])["journal"], 2);
    let begin = FILE.find("[function.balance]").expect("it is there");
    let end = FILE.find("[[chain]]").expect("it is behind");
    let without = format!("{}{}", &FILE[..begin], FILE[end..].replace(", \"balance\"", ""));
    let told = "what handlers changed of `balance` is lost (1 in the journal): the file has no such function";
    assert_eq!(apply(&without), serde_json::json!([told]));
    assert_eq!(directory.json(&["status"])["journal"], 1);
}

#[test]
fn applied_files_are_in_the_history_and_events_say_so() {
    let directory = Directory::new("applied");
    let _run = directory.run(&["edge.toml"]);
    directory.write("next.toml", &FILE.replace("[\"routes\"", "[\"ttl\", \"routes\""));
    let plan = directory.json(&words("apply next.toml --dry-run"));
    assert_eq!(plan["configuration"], 1, "nothing has changed: {plan}");
    let applied = directory.json(&words("apply next.toml --note with-ttl --generation 1"));
    assert_eq!(applied["configuration"], 2, "{applied}");
    let said = directory.ask(&words("apply next.toml --generation 1")).failed(1);
    assert!(said.contains("the generation is 2, and the request expects 1"), "{said}");
    let history = directory.json(&["history"]);
    assert_eq!(
        (&history[0]["note"], &history[0]["running"], &history[1]["running"]),
        (&"with-ttl".into(), &true.into(), &false.into()),
        "{history}"
    );
    assert!(directory.ask(&["events"]).well().contains("  applied  configuration 2 runs: `next.toml`\n"));
    let events = directory.ask(&["events", "--json"]).well();
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("a JSON value a line")).collect();
    assert!(events.iter().any(|event| event["kind"] == "applied"), "{events:?}");
    let back = directory.json(&["rollback"]);
    assert_eq!(back["configuration"], 3, "{back}");
    assert_eq!(directory.config(), FILE);
}

#[test]
fn a_rollback_undoes_what_handlers_wrote_since_and_keeps_the_connections() {
    let directory = Directory::new("undone");
    let _run = directory.run(&["edge.toml"]);
    let get = |handler: &str| directory.ask(&words(&format!("get {handler}"))).well();
    directory.ask(&words("set balance.weight web1 5")).well();
    directory.write("next.toml", &FILE.replace("[\"routes\"", "[\"ttl\", \"routes\""));
    directory.ask(&words("apply next.toml")).well();
    for line in ["balance.drain web2", "balance.add web3 02:00:00:00:00:03", "routes.add 10.0.0.0/8 9"] {
        directory.ask(&words(&format!("set {line}"))).well();
    }
    let connections = || -> u64 {
        let value = get("balance.connections.occupancy");
        value.split(' ').next().and_then(|entries| entries.parse().ok()).expect("a number")
    };
    eventually("connections", || connections() > 0);
    let before = connections();
    let plan = directory.json(&words("rollback --dry-run"));
    let undone = |plan: &Value| {
        let changes = plan["plan"]["changes"].as_array().expect("a list");
        changes.iter().filter(|change| change["detail"].to_string().contains("is undone")).count()
    };
    assert_eq!(undone(&plan), 2, "{plan}");
    let back = directory.json(&["rollback"]);
    assert_eq!((undone(&back), &back["refused"]), (2, &Value::Array(Vec::new())), "{back}");
    assert!(connections() >= before, "{} of {before}", connections());
    assert_eq!(get("routes.lookup 10.1.1.1"), "1\n");
    let backends = get("balance.backends");
    let backends: Vec<Vec<&str>> = backends.lines().map(|line| line.split(' ').take(4).collect()).collect();
    let web = |name, address, weight| vec![name, address, weight, "takes"];
    assert_eq!(backends, [web("web1", "02:00:00:00:00:01", "5"), web("web2", "02:00:00:00:00:02", "1")]);
    assert_eq!(directory.json(&["status"])["journal"], 1);
}

#[test]
fn a_client_that_follows_events_has_each_as_it_comes_and_ends_with_the_run() {
    let directory = Directory::new("following");
    let mut run = directory.run(&["edge.toml"]);
    let file = std::fs::File::create(directory.path().join("events")).expect("the directory can be written");
    let mut command = directory.client(&words("events --follow --json"));
    let mut following = command.stdout(file).spawn().expect("the binary was built for this test");
    directory.ask(&["suspend"]).well();
    let kinds = || -> Vec<String> {
        let said = directory.read("events");
        // The last line may be half written.
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| event["kind"].as_str().map(str::to_owned)).collect()
    };
    eventually("the first event", || kinds().last().is_some_and(|kind| kind == "suspended"));
    directory.ask(&["resume"]).well();
    eventually("the second event", || kinds().last().is_some_and(|kind| kind == "resumed"));
    directory.ask(&["stop"]).well();
    run.report();
    assert!(following.wait().expect("it is a child").success(), "{}", directory.read("events"));
}

/// Packets wait while the sources are suspended; all else answers.
#[test]
fn a_suspended_run_goes_on_when_it_is_resumed_and_stops_with_its_report() {
    let directory = Directory::new("suspended");
    let mut run = directory.run(&["edge.toml", "--json"]);
    assert_eq!(directory.json(&["suspend"])["state"], "suspended");
    let received = directory.json(&["status"])["received"]["packets"].as_u64();
    assert_eq!(directory.json(&["status"])["state"], "suspended");
    assert_eq!(directory.json(&["status"])["received"]["packets"].as_u64(), received);
    assert_eq!(directory.json(&["resume"])["state"], "running");
    eventually("packets after the pause", || {
        directory.json(&["status"])["received"]["packets"].as_u64() > received
    });
    assert_eq!(directory.json(&["stop"])["state"], "stopping");
    let report: Value = serde_json::from_str(&run.report()).expect("one JSON value");
    assert_eq!((&report["conserved"], &report["running"]), (&true.into(), &false.into()), "{report}");
}

#[test]
fn the_example_of_a_live_run_answers() {
    let directory = Directory::new("example");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/live.toml");
    let mut run = directory.run(&[example]);
    assert_eq!(directory.json(&["status"])["state"], "running");
    directory.ask(&["set", "routes.add", "10.0.0.0/8", "3"]).well();
    directory.ask(&["stop"]).well();
    assert!(run.report().trim_end().ends_with("every packet accounted for"));
}
