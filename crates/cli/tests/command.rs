//! The command as people and programs use it: runs, lists, drawings, completions.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn netbricks(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

const FILE: &str = r#"
[port.lan]
driver = "generator"
packets = 20_000
flows = 100
loss = "1 %"

[port.wan]
driver = "pcap"
write = "out.pcapng"

[function.flows]
use = "monitor"
top = 3

[[chain]]
from = "lan"
through = ["ttl", "flows"]
to = "wan"
"#;

fn with_file(name: &str) -> PathBuf {
    let directory = scratch(name);
    std::fs::write(directory.join("edge.toml"), FILE).expect("the directory can be written");
    directory
}

/// A line that holds more packets than there are buffers.
#[test]
fn a_run_says_how_often_no_buffer_was_free() {
    let directory = with_file("no_buffer");
    let file = "[port.lan]\ndriver = \"generator\"\npackets = 1000\ndelay = \"10s\"\n\
         [port.wan]\ndriver = \"null\"\n[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n[runtime]\nframes = 64\n";
    std::fs::write(directory.join("small.toml"), file).expect("the directory can be written");
    let report = json(&netbricks(&directory, &["run", "small.toml", "--json"]));
    // As many short buffers.
    assert_eq!(report["pool"]["frames"].as_u64(), Some(128), "{report}");
    assert!(report["pool"]["exhausted"].as_u64() > Some(0) && report["conserved"] == true, "{report}");
    let text = netbricks(&directory, &["run", "small.toml"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("times when none that is large enough was free, of 128 in all"), "{text}");
}

/// The examples of functions run from what they hold, without a network card.
#[test]
fn examples_of_functions_run_and_show_their_work() {
    let directory = scratch("examples");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in [
        "nat.toml",
        "router.toml",
        "signature.toml",
        "signature.rules",
        "load-balancer.toml",
        "load-balancer.mmb",
    ] {
        std::fs::copy(examples.join(name), directory.join(name)).expect("the example is there");
    }
    // Ports in memory have no end, so the router's run gets one.
    for (name, arguments, shown) in [
        ("nat.toml", &[][..], "203.0.113.15  active"),
        ("router.toml", &["--duration", "1 s", "--no-control"], "ICMP errors sent"),
        ("signature.toml", &[], "a request for an object of the series 42"),
        ("load-balancer.toml", &[], "web-3   up"),
    ] {
        let output = netbricks(&directory, &[&["run", name], arguments].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{name}: {}{said}", text(&output.stderr));
        assert!(said.contains(shown) && said.contains("every packet accounted for"), "{name}: {said}");
    }
}

#[test]
fn a_run_accounts_for_every_packet() {
    let directory = with_file("run");
    let report = json(&netbricks(&directory, &["run", "edge.toml", "--json", "--seed", "7"]));
    let number = |key: &str| report[key].as_u64().expect("a number");
    let dropped: u64 =
        report["dropped"].as_object().expect("an object").values().filter_map(Value::as_u64).sum();
    assert_eq!(number("received"), 20_000);
    assert!(dropped > 0 && report["dropped"]["impaired"].as_u64() == Some(dropped), "{report}");
    assert_eq!(
        number("received") + number("created"),
        number("sent") + number("consumed") + number("held") + dropped
    );
    assert_eq!(report["conserved"], true);
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let ports = report["ports"].as_array().expect("a list");
    assert_eq!(
        ports.iter().map(|port| port["sent"].as_u64()).collect::<Vec<_>>(),
        [Some(0), report["sent"].as_u64()]
    );
    let nodes = report["nodes"].as_array().expect("a list");
    let names: Vec<_> = nodes.iter().filter_map(|node| node["name"].as_str()).collect();
    assert_eq!(names, ["lan", "ttl", "flows", "wan.send"]);
    // All frames have 60 bytes, those that are dropped too.
    for node in nodes {
        assert_eq!(node["owner"], 0, "the operator's");
        for key in ["in", "out", "received", "sent", "created", "handoff_out", "handoff_in"] {
            assert_eq!(
                node["bytes"][key].as_u64(),
                node[key].as_u64().map(|packets| 60 * packets),
                "{key}: {node}"
            );
        }
    }
    assert_eq!(nodes[0]["bytes"]["dropped"]["impaired"].as_u64(), Some(60 * dropped));

    // The same seed gives the same result, at every batch size.
    let first = std::fs::read(directory.join("out.pcapng")).expect("it was written");
    let again = json(&netbricks(&directory, &["run", "edge.toml", "--json", "--seed", "7", "--burst", "1"]));
    assert_eq!(again["dropped"], report["dropped"]);
    assert_eq!(std::fs::read(directory.join("out.pcapng")).expect("it was written"), first);

    let replayed = json(&netbricks(&directory, &["check", "edge.toml", "--json"]));
    assert_eq!(replayed["ok"], true);
}

/// Senders to a live port must not know the key of hash tables; a replay repeats exactly.
#[test]
fn live_runs_draw_a_new_seed_and_replays_do_not() {
    let directory = with_file("seed");
    let seed = |clock: &str, arguments: &[&str]| {
        let file = format!(
            "[port.lan]\ndriver = \"generator\"\npackets = 10\nclock = \"{clock}\"\n\
             [port.wan]\ndriver = \"null\"\n[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n"
        );
        std::fs::write(directory.join("seed.toml"), file).expect("the directory can be written");
        let arguments = [&["run", "seed.toml", "--json"], arguments].concat();
        json(&netbricks(&directory, &arguments))["seed"].as_u64()
    };
    assert_eq!([seed("own", &[]), seed("own", &["--seed", "5"])], [Some(0), Some(5)]);
    let (one, other) = (seed("real", &[]), seed("real", &[]));
    assert!(one.is_some() && other.is_some() && one != other && one != Some(0), "{one:?} {other:?}");
    assert_eq!(seed("real", &["--seed", "5"]), Some(5));
}

#[test]
fn the_report_ends_with_the_law() {
    let directory = with_file("report");
    let output = netbricks(&directory, &["run", "edge.toml", "--color", "never"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    let lines: Vec<_> = report.lines().collect();
    assert!(lines[0].starts_with("port  received"), "{report}");
    assert!(lines.iter().any(|line| line.starts_with("ttl ")), "{report}");
    let law = lines.last().expect("there are lines");
    assert!(law.starts_with("20,000 received + 0 created = "), "{law}");
    assert!(law.ends_with("+ 0 held   every packet accounted for"), "{law}");
    let opening = text(&output.stderr);
    assert!(opening.contains("edge.toml  2 ports · 1 chain · 2 functions · 1 worker"), "{opening}");
    assert!(opening.matches("huge pages").count() <= 1 + opening.matches("warning: ").count(), "{opening}");
}

#[test]
fn the_last_drops_are_shown_with_their_headers() {
    let directory = scratch("drops");
    let file = "[port.lan]\ndriver = \"generator\"\npackets = 20_000\nframe_sizes = [60, 600]\n\
         [port.wan]\ndriver = \"null\"\nmtu = 100\n[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n";
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    let report = json(&netbricks(&directory, &["run", "f.toml", "--json"]));
    let nodes = report["nodes"].as_array().expect("a list");
    let (lan, wan) = (&nodes[0], &nodes[1]);
    assert_eq!(lan["recorded"].as_array().map(Vec::len), Some(0), "it drops nothing");
    let dropped = wan["dropped"]["too-big"].as_u64().expect("a number");
    assert_eq!(wan["bytes"]["dropped"]["too-big"].as_u64(), Some(600 * dropped));
    let recorded = wan["recorded"].as_array().expect("a list");
    // On its own clock the generator makes a packet a microsecond: in 20 ms, one packet a millisecond is
    // recorded.
    assert_eq!(recorded.len(), 20, "{wan}");
    for packet in recorded {
        assert_eq!((&packet["reason"], &packet["worker"]), (&"too-big".into(), &0.into()), "{packet}");
        assert_eq!(
            (packet["frame_len"].as_u64(), packet["bytes"].as_str().map(str::len)),
            (Some(600), Some(256))
        );
        assert!(
            packet["line"]
                .as_str()
                .is_some_and(|line| line.contains(" UDP ") && line.ends_with(" 600 bytes")),
            "{packet}"
        );
    }
    let times: Vec<_> = recorded.iter().filter_map(|packet| packet["time"].as_u64()).collect();
    assert!(times.len() == 20 && times.is_sorted_by(|a, b| a > b), "newest first: {times:?}");

    let shown = text(&netbricks(&directory, &["run", "f.toml"]).stdout);
    let mut lines = shown.lines().skip_while(|line| *line != "last drops: 3 of 20 recorded").skip(1);
    assert_eq!(lines.next(), Some("time             node      reason   packet"), "{shown}");
    for ms in [19, 18, 17] {
        let line = lines.next().expect("a drop");
        assert!(
            line.starts_with(&format!("00:00:00.0{ms}")) && line.contains("  wan.send  too-big  10.0."),
            "{line}"
        );
        assert!(line.contains(" UDP ") && line.ends_with(" 600 bytes"), "{line}");
    }
    assert_eq!(lines.next(), Some(""), "{shown}");
}

#[test]
fn one_function_in_two_chains_is_one() {
    let directory = scratch("shared");
    std::fs::write(
        directory.join("both.toml"),
        "[port.a]\ndriver = \"generator\"\npackets = 1000\nflows = 1\nseed = 1\n\
         [port.b]\ndriver = \"generator\"\npackets = 500\nflows = 1\nseed = 1\n\
         [port.out]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"a\"\nthrough = [\"monitor\"]\nto = \"out\"\n\
         [[chain]]\nfrom = \"b\"\nthrough = [\"monitor\"]\nto = \"out\"\n",
    )
    .expect("the directory can be written");
    let report = json(&netbricks(&directory, &["run", "both.toml", "--json"]));
    assert_eq!(report["received"], 1500);
    let uses: Vec<_> = report["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|node| node["of"] == "monitor")
        .map(|node| {
            (node["name"].as_str().unwrap_or_default().to_owned(), node["in"].as_u64().unwrap_or_default())
        })
        .collect();
    assert_eq!(uses, [("monitor@a-out".to_owned(), 1000), ("monitor@b-out".to_owned(), 500)]);
    // The same seed makes the same flow, and both chains count it in one table.
    let sections = report["sections"].as_array().expect("a list");
    assert_eq!(sections.len(), 1, "{report}");
    let rows = sections[0]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{report}");
    assert_eq!(rows[0][1].as_str().map(|count| count.replace(',', "")).as_deref(), Some("1500"), "{report}");
}

#[test]
fn generated_traffic_can_be_replayed() {
    let directory = scratch("generate");
    let made = json(&netbricks(
        &directory,
        &["generate", "t.pcap.gz", "--packets", "3000", "--frame-sizes", "imix", "--seed", "3", "--json"],
    ));
    assert_eq!(made["sent"], 3000);
    std::fs::write(
        directory.join("f.toml"),
        "[port.lan]\ndriver = \"pcap\"\nread = \"t.pcap.gz\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"wire\"]\nto = \"wan\"\n",
    )
    .expect("the directory can be written");
    let report = json(&netbricks(&directory, &["run", "f.toml", "--json"]));
    assert_eq!(report["received"], 3000);
    assert_eq!(report["ports"][0]["received_bytes"], made["ports"][1]["sent_bytes"]);
}

#[test]
fn functions_are_listed_by_name() {
    let here = Path::new(".");
    let functions = json(&netbricks(here, &["functions", "--json"]));
    let names: Vec<_> =
        functions.as_array().expect("a list").iter().filter_map(|f| f["name"].as_str()).collect();
    for name in [
        "array-access",
        "busy",
        "classify",
        "group-by",
        "http-inspect",
        "icmp-echo",
        "load-balancer",
        "lpm",
        "macswap",
        "maglev",
        "monitor",
        "mss",
        "nat",
        "policer",
        "rewrite-stream",
        "shaper",
        "shuffle",
        "signature",
        "ttl",
        "wire",
    ] {
        assert!(names.contains(&name), "{names:?}");
        let shown = text(&netbricks(here, &["functions", name]).stdout);
        assert!(shown.starts_with(&format!("{name}: ")), "{shown}");
    }
}

/// The parts by which a chain file and the control side name a function's node.
#[test]
fn a_functions_ways_out_handlers_and_state_are_listed() {
    let here = Path::new(".");
    let listed = json(&netbricks(here, &["functions", "--json"]));
    for function in listed.as_array().expect("a list") {
        let name = function["name"].as_str().expect("a name");
        if name == "sandbox" {
            // Its parts are those of a module, of which there is none here.
            continue;
        }
        let shown = json(&netbricks(here, &["functions", name, "--json"]));
        assert_eq!(shown["parts"]["ways_out"][0]["name"], "out", "{name}: {shown}");
        let text = text(&netbricks(here, &["functions", name]).stdout);
        for part in ["ways_out", "handlers", "state"] {
            for item in shown["parts"][part].as_array().expect("a list") {
                let item = item["name"].as_str().expect("a name");
                let is_of = |line: &str| {
                    line.split("  ").next().is_some_and(|call| call.split(" ").next() == Some(item))
                };
                assert!(text.lines().any(is_of), "{item}: {text}");
            }
        }
    }
    let maglev = text(&netbricks(here, &["functions", "maglev"]).stdout);
    for line in ["drain ", "connections.occupancy ", "connections  by flow; moves", "backends     shared"] {
        assert!(maglev.contains(line), "{line}: {maglev}");
    }
    let group = json(&netbricks(here, &["functions", "group-by", "--json"]));
    assert_eq!(group["parts"]["ways_out"][6]["name"], "6", "{group}");
}

#[test]
fn reasons_are_listed_with_class_and_sentence() {
    let here = Path::new(".");
    let listed = json(&netbricks(here, &["reasons", "--json"]));
    let shown = text(&netbricks(here, &["reasons"]).stdout);
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), netbricks_core::DropReason::COUNT);
    for reason in listed {
        let part = |part: &str| reason[part].as_str().unwrap_or_else(|| panic!("{part}: {reason}"));
        let line = shown.lines().find(|line| line.starts_with(&format!("{} ", part("name"))));
        let line = line.unwrap_or_else(|| panic!("{reason}: {shown}"));
        assert!(line.contains(part("class")) && line.ends_with(part("sentence")), "{line}");
    }
    let one = text(&netbricks(here, &["reasons", "too-big"]).stdout);
    assert!(one.starts_with("too-big (policy): The packet is larger"), "{one}");
    let wrong = netbricks(here, &["reasons", "ttl-expire"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `ttl-expired`?"), "{}", text(&wrong.stderr));
    for (old, now) in [("absorbed", "local-delivery"), ("rewritten", "replaced")] {
        let said = text(&netbricks(here, &["reasons", old]).stderr);
        assert!(said.contains(&format!("it is called `{now}` now")), "{said}");
    }
}

/// Lists for programs have each key's kind, summary and default, or that it has none.
#[test]
fn lists_say_all_of_each_key() {
    let here = Path::new(".");
    for command in ["functions", "ports"] {
        let listed = json(&netbricks(here, &[command, "--json"]));
        let mut keys = 0;
        for item in listed.as_array().expect("a list") {
            let name = item["name"].as_str().expect("a name");
            let shown = text(&netbricks(here, &[command, name]).stdout);
            // Lines are broken between words, and columns are padded.
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            let common = item["common_keys"].as_array();
            assert_eq!(common.is_some(), command == "ports", "{item}");
            for key in item["keys"].as_array().into_iter().chain(common).flatten() {
                let part = |part: &str| key[part].as_str().unwrap_or_else(|| panic!("{part}: {key}"));
                // A required key has no default; an optional key may have none either.
                let default = match (key["required"].as_bool(), key["default"].as_str()) {
                    (Some(true), None) => "Must be given.".to_owned(),
                    (Some(false), default) => format!("Default: {}", default.unwrap_or("none")),
                    _ => panic!("{key}"),
                };
                let whole = format!("{} {} {} {default}", part("name"), part("kind"), part("summary"));
                let whole = whole.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(format!(" {words} ").contains(&format!(" {whole} ")), "{whole}\n{shown}");
                keys += 1;
            }
        }
        assert!(keys > 20, "{command}: {keys}");
    }
}

#[test]
fn graphs_are_drawn() {
    let directory = with_file("graph");
    let drawn = text(&netbricks(&directory, &["graph", "edge.toml"]).stdout);
    assert!(drawn.starts_with("lan (generator) ──▶ ttl ──▶ flows ──▶ wan.send\n"), "{drawn}");
    let dot = text(&netbricks(&directory, &["graph", "edge.toml", "--format", "dot"]).stdout);
    assert!(dot.starts_with("digraph \"edge\" {") && dot.contains("\"ttl\" -> \"flows\""), "{dot}");
    let described = json(&netbricks(&directory, &["graph", "edge.toml", "--format", "json"]));
    assert_eq!(described["name"], "edge");
    // SVG if Graphviz is installed; else a hint how to install it.
    let svg = netbricks(&directory, &["graph", "edge.toml", "--format", "svg"]);
    match svg.status.code() {
        Some(0) => assert!(text(&svg.stdout).contains("<svg")),
        code => {
            assert_eq!(code, Some(1));
            assert!(text(&svg.stderr).contains("install"), "{}", text(&svg.stderr));
        }
    }
}

/// A drawing is no JSON object, so a request for both is refused.
#[test]
fn a_drawing_is_not_asked_for_as_json() {
    let directory = with_file("graph-json");
    for format in ["dot", "svg"] {
        // This is checked before anything else: the file need not exist.
        for file in ["edge.toml", "none.toml"] {
            let refused = netbricks(&directory, &["graph", file, "--format", format, "--json"]);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("`--json`") && said.contains(&format!("`--format {format}`")), "{said}");
            assert!(refused.stdout.is_empty(), "{}", text(&refused.stdout));
        }
    }
    let described = json(&netbricks(&directory, &["graph", "edge.toml", "--format", "json"]));
    for arguments in [&["--json"][..], &["--format", "text", "--json"], &["--format", "json", "--json"]] {
        assert_eq!(json(&netbricks(&directory, &[&["graph", "edge.toml"], arguments].concat())), described);
    }
}

/// The list for programs has the same benchmarks as the list for people.
#[test]
fn benchmarks_are_listed_for_programs() {
    let here = Path::new(".");
    let listed = json(&netbricks(here, &["bench", "--list", "--json"]));
    let of = |benchmark: &Value| {
        let keys: Vec<_> = benchmark.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "summary"]);
        let said = |key: &str| benchmark[key].as_str().expect("text").to_owned();
        (said("name"), said("summary"))
    };
    let listed: Vec<_> = listed.as_array().expect("a list").iter().map(of).collect();
    let shown = text(&netbricks(here, &["bench", "--list"]).stdout);
    let shown: Vec<_> = shown
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, summary)| (name.to_owned(), summary.trim().to_owned()))
        .collect();
    assert!(shown.len() > 30, "{shown:?}");
    assert_eq!(listed, shown);
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&netbricks(Path::new("."), &["completions", shell]).stdout);
        assert!(script.contains("netbricks") && script.contains("frame-sizes"), "{shell}");
    }
}

#[test]
fn ctrl_c_drains_and_reports() {
    let directory = scratch("ctrl-c");
    std::fs::write(
        directory.join("f.toml"),
        "[port.lan]\ndriver = \"generator\"\n[port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\nsnap_length = 60\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n[runtime]\nidle = \"quiet\"\n",
    )
    .expect("the directory can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json"])
        .current_dir(&directory)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    // Wait until it runs: then its unfinished capture is there.
    while std::fs::read_dir(&directory).expect("it is there").count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let report = json(&output);
    assert_eq!(report["conserved"], true);
    assert_eq!(report["received"], report["sent"]);
    assert!(directory.join("out.pcap").exists(), "the capture has its name");
}

#[test]
fn a_run_ends_when_its_duration_has_passed() {
    let directory = scratch("duration");
    // In real time, since the option is tested. There are far more packets than come in that time: without
    // the option, the test would fail and not hang. Half of them are lost, so that one burst has some of each
    // kind.
    std::fs::write(
        directory.join("f.toml"),
        "[port.lan]\ndriver = \"generator\"\npackets = 1_000_000_000\nloss = \"50 %\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\"]\nto = \"wan\"\n",
    )
    .expect("the directory can be written");
    let report = json(&netbricks(&directory, &["run", "f.toml", "--duration", "200ms", "--json"]));
    let number = |key: &str| report[key].as_u64().expect("a number");
    let dropped: u64 =
        report["dropped"].as_object().expect("an object").values().filter_map(Value::as_u64).sum();
    assert_eq!(report["conserved"], true);
    assert!((1..1_000_000_000).contains(&number("received")), "{report}");
    assert!(number("sent") > 0 && dropped > 0, "{report}");
    assert_eq!(
        number("received") + number("created"),
        number("sent") + number("consumed") + number("held") + dropped,
        "{report}"
    );
    assert_eq!(report["ports"][1]["sent"], report["sent"]);
}

#[test]
fn generate_speaks_of_flags() {
    let directory = scratch("generate-flags");
    let said = |arguments: &[&str]| {
        let output = netbricks(&directory, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let wrong = said(&["generate", "t.pcap", "--packets", "many"]);
    assert!(wrong.contains("`--packets` has the wrong type") && !wrong.contains("port `traffic`"), "{wrong}");
    let wrong = said(&["generate", "t.pcap", "--packets", "10", "--frame-sizes", "9"]);
    assert!(wrong.contains("frame-sizes"), "{wrong}");
    let wrong = said(&["generate", "t.txt", "--packets", "10"]);
    assert!(wrong.contains("`t.txt`") && wrong.contains(".pcapng"), "{wrong}");
    // A capture file has no queues, so no value is right.
    for (flag, value) in [("--steer", "[{ queue = 0 }]"), ("--workers", "2"), ("--workers", "[0, 1]")] {
        let wrong = said(&["generate", "t.pcap", "--packets", "10", flag, value]);
        assert!(wrong.contains(&format!("`{flag}` is about receive queues")), "{wrong}");
        assert!(wrong.contains("leave it out"), "{wrong}");
    }
    assert_eq!(std::fs::read_dir(&directory).expect("it is there").count(), 0, "no half-made file");
}

/// A fault of the machine is a failure, reported for the file that the command line names.
#[test]
fn generate_speaks_of_the_file_that_it_cannot_write() {
    let directory = scratch("generate-nowhere");
    std::fs::create_dir(directory.join("taken.pcap")).expect("the directory can be written");
    // The first fault is found before anything is opened, the others when the file is opened.
    for (file, problem) in [
        ("nowhere/t.pcap", "there is no directory"),
        ("taken.pcap", "it is a directory"),
        ("/proc/t.pcap", "cannot be written"),
    ] {
        for more in [&[][..], &["--json"]] {
            let output = netbricks(&directory, &[&["generate", file, "--packets", "1"], more].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.starts_with(&format!("error: `{file}`: ")) && said.contains(problem), "{said}");
            assert_eq!(said.lines().count(), 1, "no place in a file that was not written: {said}");
            assert!(!said.contains("port `"), "{said}");
            assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        }
    }
}

#[test]
fn every_command_shows_examples() {
    let overview = text(&netbricks(Path::new("."), &["--help"]).stdout);
    let commands: Vec<&str> = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 8, "{overview}");
    for command in commands {
        let help = text(&netbricks(Path::new("."), &[command, "--help"]).stdout);
        assert!(help.contains(&format!("Examples:\n  netbricks {command}")), "{help}");
    }
}

#[test]
fn output_has_no_colours_or_progress_without_a_terminal() {
    let directory = with_file("plain");
    for arguments in [&["run", "edge.toml"][..], &["run", "none.toml"], &["check", "edge.toml"]] {
        let output = netbricks(&directory, arguments);
        assert!(!text(&output.stderr).contains('\u{1b}') && !text(&output.stdout).contains('\u{1b}'));
        assert!(!text(&output.stderr).contains('\r'));
    }
    let coloured = netbricks(&directory, &["run", "none.toml", "--color", "always"]);
    assert!(text(&coloured.stderr).contains('\u{1b}'));
}
