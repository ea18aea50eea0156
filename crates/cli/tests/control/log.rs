//! The log of a run: silent by default, and else text or JSON on standard error.

use std::net::TcpListener;

use netbricks_testkit::namespace::eventually;
use serde_json::Value;

use super::dataplane::{Directory, FILE, Run, SOCKET, STATE, Told};
use super::segment::Segment;

/// The lines of a run's standard error so far, each of which is a JSON object.
fn lines(run: &Run) -> Vec<Value> {
    let said = run.said();
    // The last line may not be whole yet.
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line =
        |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: `{line}` of {said}"));
    let lines: Vec<Value> = whole.lines().map(line).collect();
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["target"].is_string()), "{said}");
    lines
}

/// Waits for a line with these values, and returns it.
fn wait_for(run: &Run, values: &[(&str, &str)]) -> Value {
    let mut found = None;
    eventually(&format!("{values:?} in the log"), || {
        found = lines(run).into_iter().find(|line| values.iter().all(|(key, value)| line[*key] == *value));
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn a_run_logs_changes_and_events_as_lines_of_json_where_it_is_asked_to() {
    let directory = Directory::new("log-json");
    directory.write("next.toml", &FILE.replace("[\"routes\"", "[\"ttl\", \"routes\""));
    directory.write("faulty.toml", &FILE.replace("maglev", "magle"));
    let mut run = directory.run(&["edge.toml", "--state", STATE, "--log", "info", "--log-format", "json"]);
    directory.ask(&["apply", "next.toml"]).well();
    directory.ask(&["apply", "faulty.toml"]).failed(2);
    directory.ask(&["rollback"]).well();
    let applied = wait_for(&run, &[("message", "changed"), ("change", "apply")]);
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap_or_else(|| panic!("no `{key}`: {line}"));
    assert_eq!(applied["target"], "netbricks::changes");
    assert_eq!((number(&applied, "configuration"), number(&applied, "generation")), (2, 2));
    let counts =
        ["functions_added", "functions_removed", "functions_replaced"].map(|key| number(&applied, key));
    assert_eq!((counts[0], counts[1]), (1, 0), "{applied}");
    number(&applied, "longest_pause_microseconds");
    assert_eq!(applied["span"]["file"], "next.toml");
    let event = wait_for(&run, &[("kind", "applied")]);
    assert_eq!((&event["target"], &event["level"]), (&"netbricks::events".into(), &"INFO".into()));
    assert_eq!(event["reason"], "configuration 2 runs: `next.toml`");
    let refused = wait_for(&run, &[("message", "refused")]);
    assert_eq!((&refused["code"], &refused["level"]), (&"faulty".into(), &"WARN".into()));
    let back = wait_for(&run, &[("message", "changed"), ("change", "rollback")]);
    assert_eq!((number(&back, "configuration"), number(&back, "functions_removed")), (3, 1));
    wait_for(&run, &[("kind", "rolled-back")]);
    wait_for(&run, &[("message", "listens")]);
    let opened = wait_for(&run, &[("message", "the state directory is open")]);
    assert_eq!(number(&opened, "configuration"), 1);
    // Each event once, and requests only at debug.
    let told = lines(&run);
    let of_kind = |kind: &str| told.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((of_kind("applied"), of_kind("rolled-back")), (1, 1));
    assert!(!told.iter().any(|line| line["target"] == "netbricks::requests"), "{told:?}");
    run.signal("TERM");
    assert!(run.report().trim_end().ends_with("every packet accounted for"));
    // Up to the end, all of it was JSON.
    lines(&run);
    assert!(run.said().ends_with("}\n"), "{}", run.said());
}

#[test]
fn without_being_asked_a_run_logs_nothing() {
    let directory = Directory::new("log-silent");
    directory.write("next.toml", &FILE.replace("[\"routes\"", "[\"ttl\", \"routes\""));
    let mut run = directory.run(&["edge.toml", "--quiet"]);
    directory.ask(&["apply", "next.toml"]).well();
    directory.ask(&["rollback"]).well();
    directory.ask(&["apply", "missing.toml"]).failed(2);
    directory.ask(&["stop"]).well();
    run.report();
    let said = run.said();
    // The memory of this machine may be in small pages.
    assert!(said.lines().all(|line| !line.contains("netbricks::") && !line.contains("INFO")), "{said}");
}

#[test]
fn a_refused_token_is_a_warning_and_requests_show_at_debug() {
    let directory = Directory::new("log-token");
    let token = "admin-0123456789abcdef";
    directory.write("admin.token", token);
    directory.write("wrong.token", "wrong-0123456789abcdef\n");
    // Free for a moment at least.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let control = format!("{FILE}[control]\nlisten = \"{address}\"\ntoken_file = \"admin.token\"\n");
    directory.write("edge.toml", &control);
    let mut command = directory.netbricks(&["run", "edge.toml", "--quiet", "--socket", SOCKET]);
    command.env("NETBRICKS_LOG", "netbricks::requests=debug");
    let mut run = directory.begin(command);
    run.answers();
    let url = format!("http://{address}");
    let ask =
        |token| Told::of(&mut directory.netbricks(&["status", "--socket", &url, "--token-file", token]));
    ask("wrong.token").failed(1);
    ask("admin.token").well();
    directory.ask(&["set", "balance.drain", "web1"]).well();
    let line = |parts: &[&str]| {
        let said = run.said();
        said.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let path = "path=\"/v1/status\"";
    for parts in [
        &["WARN", "refused", path, "status=401", "code=\"unauthorized\""][..],
        &["DEBUG", "answered", path, "status=200", "client=\"token\"", "microseconds="],
        &["DEBUG", "method=\"PUT\"", "path=\"/v1/functions/balance/handlers/drain\"", "client=\"unix\""],
    ] {
        eventually(&format!("{parts:?}"), || line(parts));
    }
    let said = run.said();
    assert!(!said.contains("0123456789abcdef") && !said.contains("web1"), "{said}");
    assert!(!said.contains("netbricks::events"), "{said}");
    run.signal("TERM");
    run.report();
}

#[test]
fn a_filter_that_is_none_is_told_with_what_is_expected() {
    let directory = Directory::new("log-filter");
    for (arguments, variable, problem) in [
        (&["--log", "inof"][..], None, "--log is `inof`: `inof` is no level; expected `error`, `warn`"),
        (
            &["--log", "netbricks::events=loud"],
            None,
            "--log is `netbricks::events=loud`: error parsing level filter",
        ),
        (&["--log", "info,,debg"], None, "`debg` is no level"),
        (&[], Some("everything"), "NETBRICKS_LOG is `everything`: `everything` is no level"),
        (&["--log-format", "xml"], None, "possible values: text, json"),
    ] {
        let mut command =
            directory.netbricks(&[&["run", "edge.toml", "--duration", "1ms"], arguments].concat());
        command.env_remove("NETBRICKS_LOG").envs(variable.map(|filter| ("NETBRICKS_LOG", filter)));
        let said = Told::of(&mut command).failed(2);
        assert!(said.starts_with("error: ") && said.contains(problem), "{arguments:?}: {said}");
    }
    // The option stands before the variable, and an empty variable is none.
    for (arguments, variable) in [(&["--log", "off"][..], "everything"), (&[], "")] {
        let mut command =
            directory.netbricks(&[&["run", "edge.toml", "--quiet", "--duration", "1ms"], arguments].concat());
        Told::of(command.env("NETBRICKS_LOG", variable)).well();
    }
}

#[test]
fn faults_of_the_file_and_of_the_machine_are_json_too() {
    let directory = Directory::new("log-faults");
    directory.write("faulty.toml", &FILE.replace("maglev", "magle"));
    for (file, code, reason) in [("faulty.toml", 2, "faulty.toml:12:7"), ("missing.toml", 2, "missing.toml")]
    {
        let told = Told::of(&mut directory.netbricks(&["run", file, "--log-format", "json"]));
        assert_eq!(told.code, Some(code), "{told:?}");
        let line: Value =
            serde_json::from_str(told.err.trim_end()).unwrap_or_else(|error| panic!("{error}: {told:?}"));
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"netbricks::run".into()));
        assert!(line["reason"].as_str().is_some_and(|told| told.contains(reason)), "{line}");
    }
}

#[test]
fn lines_and_strikes_of_a_module_are_in_the_log_as_text_of_others() {
    let directory = Directory::new("log-module");
    // It writes a line that looks like one of the log, and then does not go on.
    let module = r#"(module (import "env" "nb_log" (func $log (param i32 i32))) (memory (export "memory") 3)
        (data (i32.const 64) "\0aWARN forged")
        (func (export "nb_abi") (result i32) (i32.const 1))
        (func (export "nb_reads") (result i32) (i32.const 0))
        (func (export "nb_writes") (result i32) (i32.const 0))
        (func (export "nb_setup") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "nb_process") (param i32) (call $log (i32.const 64) (i32.const 12)) unreachable))"#;
    std::fs::write(directory.path().join("m.wasm"), wat::parse_str(module).expect("the text is a module"))
        .expect("the test's directory can be written");
    let guest = "[function.guest]\nuse = \"sandbox\"\nmodule = \"m.wasm\"\nstrikes = 2\nbackoff = \"1 ms\"\n";
    let file = FILE.replacen("[function.routes]", &format!("{guest}[function.routes]"), 1);
    directory.write("edge.toml", &file.replace("[\"routes\"", "[\"guest\", \"routes\""));
    let mut run = directory.run(&["edge.toml", "--log", "netbricks::events=info", "--log-format", "json"]);
    let mut found = Vec::new();
    eventually("the strikes of the module", || {
        let events = lines(&run).into_iter().filter(|line| line["subject"] == "guest");
        found = events.map(|line| (line["level"].clone(), line["reason"].clone())).collect();
        found.iter().filter(|(level, _)| level == "WARN").count() == 2
    });
    let reasons = |level: &str| -> Vec<Value> {
        let of = found.iter().filter(|(of, _)| of == level);
        of.map(|(_, reason)| serde_json::from_str(reason.as_str().unwrap_or_default()).expect("JSON"))
            .collect()
    };
    assert!(reasons("INFO").iter().all(|event| event["event"] == "log" && event["line"] == " WARN forged"));
    assert!(!reasons("INFO").is_empty());
    let strikes = reasons("WARN");
    assert!(strikes.iter().all(|event| event["event"] == "strike"), "{strikes:?}");
    assert_eq!(strikes[1]["state"], "stopped, 2 strikes");
    run.signal("TERM");
    run.wait();
}

/// Needs root.
#[test]
fn a_port_that_goes_down_and_up_is_in_the_log_with_its_name() {
    let Some(segment) = Segment::new("log-port", &[]) else { return };
    let text = "[port.left]\ndriver = \"af_packet\"\ndevice = \"b0\"\n[port.right]\ndriver = \"af_packet\"\n\
                device = \"b1\"\n[runtime]\nframes = 1024\nworkers = 1\n[[chain]]\nfrom = \"left\"\nto = \"right\"\n";
    segment.directory.write("edge.toml", text);
    let mut run = segment.run(&["edge.toml", "--log", "netbricks::events=info", "--log-format", "json"]);
    segment.namespaces.run("client", "ip link set c0 down");
    let down = wait_for(&run, &[("kind", "port-down"), ("subject", "left")]);
    assert_eq!(down["level"], "WARN");
    assert!(down["reason"].as_str().is_some_and(|reason| reason.contains("no link")), "{down}");
    segment.namespaces.run("client", "ip link set c0 up");
    let up = wait_for(&run, &[("kind", "port-up"), ("subject", "left")]);
    assert_eq!(up["level"], "INFO");
    run.signal("TERM");
    run.wait();
    lines(&run);
}
