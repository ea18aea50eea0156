//! Runs on several workers: queues are shared out, transmit queues shared, and nothing is lost or counted twice.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn scratch(name: &str, configuration: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("workers-{name}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    std::fs::write(directory.join("f.toml"), configuration).expect("the directory can be written");
    directory
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test")
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let dropped: u64 =
        report["dropped"].as_object().expect("an object").values().filter_map(Value::as_u64).sum();
    let number = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(
        number("received") + number("created"),
        number("sent") + number("consumed") + number("held") + dropped,
        "{report}"
    );
    assert_eq!((&report["conserved"], number("held")), (&Value::Bool(true), 0), "{report}");
    report
}

/// The flows in the monitor's section, with their packets and bytes.
fn flows(report: &Value) -> Vec<(String, u64, u64)> {
    let sections = report["sections"].as_array().expect("a list");
    let mut of_flows = sections.iter().filter(|section| section["title"] == "largest flows");
    let section = of_flows.next().expect("a monitor's");
    assert!(of_flows.next().is_none(), "the workers' sections are one: {report}");
    let cell = |row: &Value, i: usize| row[i].as_str().unwrap_or_default().to_owned();
    section["rows"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| {
            (cell(row, 0), cell(row, 1).parse().expect("packets"), cell(row, 2).parse().expect("bytes"))
        })
        .collect()
}

fn generated(packets: u64, top: u64, to: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\npackets = {packets}\nflows = 200\ndistribution = \"zipf\"\n\
         frame_sizes = \"imix\"\n[port.wan]\n{to}\n[function.flows]\nuse = \"monitor\"\ntop = {top}\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\", \"flows\"]\nto = \"wan\"\n"
    )
}

#[test]
fn two_workers_with_a_queue_each_account_for_every_packet() {
    let directory = scratch("null", &generated(60_000, 10, "driver = \"null\""));
    let report = report(&run(&directory, &["--workers", "2"]));
    assert_eq!((&report["workers"], &report["received"]), (&Value::from(2), &Value::from(60_000)));
    assert_eq!(report["sent"], 60_000);
}

#[test]
fn the_largest_flows_are_those_of_all_workers() {
    let everything = scratch("all", &generated(60_000, 100_000, "driver = \"null\""));
    let all = flows(&report(&run(&everything, &["--workers", "2"])));
    assert_eq!(all.iter().map(|(_, packets, _)| packets).sum::<u64>(), 60_000);
    let few = scratch("top", &generated(60_000, 10, "driver = \"null\""));
    let report = report(&run(&few, &["--workers", "2"]));
    let top = flows(&report);
    assert!(top.len() == 10 && top.is_sorted_by(|a, b| a.2 >= b.2), "{top:?}");
    assert_eq!(top, all[..10]);
    assert_eq!(report["sections"][0]["of"], all.len());
}

#[test]
fn more_workers_than_transmit_queues_share_them() {
    let directory = scratch("pcap", &generated(30_000, 10, "driver = \"pcap\"\nwrite = \"out.pcap\""));
    let written = report(&run(&directory, &["--workers", "3"]));
    assert_eq!((&written["workers"], &written["sent"]), (&Value::from(3), &Value::from(30_000)));
    // All packets are in the file, complete.
    std::fs::write(
        directory.join("f.toml"),
        "[port.lan]\ndriver = \"pcap\"\nread = \"out.pcap\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n",
    )
    .expect("the directory can be written");
    let read = report(&run(&directory, &[]));
    assert_eq!(read["received"], 30_000);
    assert_eq!(read["ports"][0]["received_bytes"], written["ports"][1]["sent_bytes"]);

    // A capture has one queue: the second worker would receive nothing, and a warning says so.
    let output = run(&directory, &["--workers", "2"]);
    assert_eq!(report(&output)["workers"], 1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 of 2 workers would receive nothing"), "{said}");
}

/// Frames by flow, in the order of each flow.
fn by_flow(path: &Path) -> std::collections::BTreeMap<Option<netbricks_core::packet::FlowKey>, Vec<Vec<u8>>> {
    let mut flows = std::collections::BTreeMap::<_, Vec<_>>::new();
    for frame in netbricks_testkit::captures::frames(path) {
        flows.entry(netbricks_core::packet::FlowKey::from_frame(&frame)).or_default().push(frame);
    }
    flows
}

#[test]
fn a_shuffle_gives_work_to_workers_that_receive_nothing_and_changes_nothing_but_the_order_between_flows() {
    let make = scratch("shuffle", &generated(30_000, 10, "driver = \"pcap\"\nwrite = \"in.pcap\""));
    report(&run(&make, &["--workers", "1"]));
    let chain = "[port.lan]\ndriver = \"pcap\"\nread = \"in.pcap\"\n[port.wan]\ndriver = \"pcap\"\n\
                 write = \"out.pcap\"\n[function.flows]\nuse = \"monitor\"\ntop = 100_000\n\
                 [function.by-flow]\nuse = \"shuffle\"\nring = 64\n[function.halves]\nuse = \"group-by\"\n\
                 groups = 2\nqueue = 8192\n[function.balance]\nuse = \"maglev\"\nbackends = [\"a 02:00:00:00:01:01\", \
                 \"b 02:00:00:00:01:02 3\"]\n[function.routes]\nuse = \"lpm\"\ntable = \"routes.txt\"\n\
                 [[chain]]\nfrom = \"lan\"\n\
                 through = [\"by-flow\", \"halves\", \"ttl\", \"flows\"]\nto = \"wan\"\n\
                 [[chain]]\nfrom = \"halves.1\"\nthrough = [\"macswap\", \"balance\", \"routes\", \"ttl\", \"flows\"]\nto = \"wan\"\n";
    std::fs::write(make.join("routes.txt"), "10.0.0.0/8 1\n10.0.0.0/24 2\n::/0 3\n")
        .expect("the directory can be written");
    std::fs::write(make.join("f.toml"), chain).expect("the directory can be written");
    let mut expected = None;
    for (workers, burst) in
        [("1", "1"), ("1", "32"), ("1", "256"), ("2", "1"), ("2", "32"), ("2", "256"), ("3", "32")]
    {
        let report = report(&run(&make, &["--workers", workers, "--burst", burst]));
        assert_eq!(report["workers"].to_string(), workers);
        let counted = flows(&report).into_iter().collect::<std::collections::BTreeSet<_>>();
        let found = (by_flow(&make.join("out.pcap")), counted, report["dropped"].clone());
        assert!(found.0.len() > 100);
        for backend in 1..=2 {
            assert!(found.0.values().flatten().any(|frame| frame[..6] == [2, 0, 0, 0, 1, backend]));
        }
        match &expected {
            None => expected = Some(found),
            Some(expected) => {
                assert!(found.0 == expected.0, "frames differ at {workers} workers, bursts of {burst}");
                assert!(
                    (&found.1, &found.2) == (&expected.1, &expected.2),
                    "{workers} workers, bursts of {burst}"
                );
            }
        }
        let handed: u64 = report["nodes"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|node| node["handoff_out"].as_u64())
            .sum();
        assert_eq!(handed > 1_000, workers != "1", "{handed} packets crossed between {workers} workers");
    }
}

#[test]
fn queues_are_on_the_workers_where_the_file_places_them() {
    let text =
        generated(20_000, 10, "driver = \"null\"").replace("imix\"\n", "imix\"\nworkers = [1, 0, 1]\n");
    let directory = scratch("placed", &format!("{text}[runtime]\nworkers = 3\n"));
    let report = report(&run(&directory, &[]));
    let receives: Vec<Vec<&str>> = report["placement"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|place| place["receives"].as_array().expect("a list").iter().filter_map(Value::as_str).collect())
        .collect();
    assert_eq!(receives, [vec!["lan.1"], vec!["lan.0", "lan.2"], vec![]]);
    assert_eq!(report["sent"], 20_000);
}

#[test]
fn shuffles_groups_and_placement_are_drawn() {
    let directory = scratch(
        "drawn",
        "[port.lan]\ndriver = \"generator\"\nworkers = [1, 0]\n[port.wan]\ndriver = \"null\"\n\
         [function.thirds]\nuse = \"group-by\"\ngroups = 3\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"shuffle\", \"thirds\", \"ttl\"]\nto = \"wan\"\n\
         [[chain]]\nfrom = \"thirds.1\"\nthrough = [\"macswap\"]\nto = \"wan\"\n\
         [[chain]]\nfrom = \"thirds.2\"\nto = \"wan\"\n",
    );
    let drawn = |format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["graph", "f.toml", "--format", format])
            .current_dir(&directory)
            .output()
            .expect("the binary was built for this test");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = drawn("text");
    for line in [
        "lan (generator on workers 1, 0) ──▶ shuffle ──▶ thirds ──▶ ttl ──▶ wan.send",
        "thirds ──1──▶ macswap ──▶ wan.send",
        "thirds ──2──▶ wan.send",
    ] {
        assert!(text.lines().any(|drawn| drawn == line), "{text}");
    }
    let dot = drawn("dot");
    assert!(
        dot.contains("label=\"shuffle\\nshuffle\"") && dot.contains("label=\"thirds\\ngroup-by\""),
        "{dot}"
    );
}

#[test]
fn a_shuffle_that_the_file_does_not_name_is_shown_with_its_reason() {
    let file = |runtime: &str| {
        format!(
            "[port.lan]\ndriver = \"tap\"\ndevice = \"nowhere0\"\n[port.wan]\ndriver = \"null\"\n\
             [[chain]]\nfrom = \"lan\"\nthrough = [\"monitor\", \"ttl\"]\nto = \"wan\"\n[runtime]\n{runtime}"
        )
    };
    let say = |runtime: &str, arguments: &[&str]| {
        let directory = scratch("put-in", &file(runtime));
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(arguments)
            .current_dir(&directory)
            .output()
            .expect("the binary was built for this test");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let reason = "  lan.shuffle  a shuffle by symmetric flow, put behind `lan`: the queues of port `lan` may bring the \
                  two directions of a flow to different workers, and `monitor` keeps state by flow; `shuffles = false` \
                  in `[runtime]` leaves it out\n";
    let (two, answers) = ("workers = 2\n", "answers of monitor, ttl ──▶ lan.send\n");
    assert_eq!(
        say(two, &["graph", "f.toml"]),
        format!("lan (tap) ──▶ lan.shuffle ──▶ monitor ──▶ ttl ──▶ wan.send\n{answers}{reason}")
    );
    assert!(say(two, &["graph", "f.toml", "--format", "dot"]).contains("\"lan.shuffle\\nshuffle, put in\""));
    let checked = say(two, &["check", "f.toml"]);
    let rest = checked.strip_prefix(&format!("f.toml  2 ports · 1 chain · 2 functions   good\n{reason}"));
    let rest = rest.unwrap_or_else(|| panic!("{checked}"));
    assert!(rest.starts_with("  512 packet buffers of 68 KiB (34 MB) beside 16,384: `lan` "), "{rest}");
    assert_eq!(rest.lines().count(), 1, "{rest}");
    let json: Value =
        serde_json::from_str(&say(two, &["check", "f.toml", "--json"])).expect("one JSON object");
    assert_eq!(json["shuffles"][0]["node"], "lan.shuffle");
    assert_eq!(json["functions"], serde_json::json!(["monitor", "ttl"]));
    for runtime in ["workers = 1\n", "workers = 2\nshuffles = false\n"] {
        let drawn = say(runtime, &["graph", "f.toml"]);
        assert_eq!(drawn, format!("lan (tap) ──▶ monitor ──▶ ttl ──▶ wan.send\n{answers}"), "{runtime}");
    }
}

/// Compares the queues that a file's rules choose with a generator of one queue and the same settings.
#[test]
fn steered_queues_bring_what_the_rules_say_and_every_packet_is_accounted_for() {
    let lan = "[port.lan]\ndriver = \"generator\"\nprotocol = \"mix\"\nip = \"mix\"\nflows = 300\npackets = 20_000\n";
    let chain = "[[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\"]\nto = \"wan\"\n";
    let wan = |to: &str| format!("[port.wan]\n{to}\n{chain}");
    let plain = scratch("unsteered", &format!("{lan}{}", wan("driver = \"pcap\"\nwrite = \"out.pcap\"")));
    report(&run(&plain, &["--workers", "1"]));
    let frames = netbricks_testkit::captures::frames(&plain.join("out.pcap"));
    let is = |wanted: fn(&netbricks_core::packet::FlowKey) -> bool| {
        let keys = frames.iter().filter_map(|frame| netbricks_core::packet::FlowKey::from_frame(frame));
        keys.filter(wanted).count() as u64
    };
    let vxlan = is(|key| key.protocol() == 17 && key.destination_port() == 4789);
    let other_udp = is(|key| key.protocol() == 17 && key.destination_port() != 4789);
    let v6_tcp = is(|key| key.protocol() == 6 && key.is_v6());
    let rest = 20_000 - vxlan - other_udp - v6_tcp;
    assert!([vxlan, other_udp, v6_tcp, rest].iter().all(|packets| *packets > 500));

    let steer = "steer = [\n    { protocol = \"udp\", destination_port = 4789, queue = 1 },\n    \
                 { protocol = \"udp\", queue = 0 },\n    { ip = \"v6\", protocol = \"tcp\", queue = 1 },\n    \
                 { queue = 0 },\n]\n";
    let steered = scratch("steered", &format!("{lan}{steer}{}", wan("driver = \"null\"")));
    for burst in ["1", "32", "256"] {
        let report = report(&run(&steered, &["--workers", "2", "--burst", burst]));
        assert_eq!((&report["workers"], &report["sent"]), (&Value::from(2), &Value::from(20_000)));
        let queues = serde_json::json!([other_udp + rest, vxlan + v6_tcp]);
        assert_eq!(report["ports"][0]["queues"], queues, "bursts of {burst}");
        let receives = |worker: usize| &report["placement"][worker]["receives"];
        assert_eq!(
            (receives(0), receives(1)),
            (&serde_json::json!(["lan.0"]), &serde_json::json!(["lan.1"]))
        );
    }
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--workers", "2"])
        .current_dir(&steered)
        .output()
        .expect("the binary was built for this test");
    assert!(String::from_utf8_lossy(&output.stdout).contains("lan: steered: "));
}

/// Rules that separate directions get a shuffle, and other rules get none.
///
/// Either way, state by flow is the same as on one worker.
#[test]
fn rules_that_part_directions_change_no_flows_state() {
    let file = |steer: &str| {
        format!(
            "[port.lan]\ndriver = \"generator\"\nconversation = true\npayload = \"http\"\nflows = 40\n\
             packets = 20_000\n{steer}\n[port.wan]\ndriver = \"null\"\n[function.flows]\nuse = \"monitor\"\n\
             top = 100_000\n[[chain]]\nfrom = \"lan\"\nthrough = [\"flows\"]\nto = \"wan\"\n"
        )
    };
    let alone = scratch("conversations", &file(""));
    let counted = |report: &Value| flows(report).into_iter().collect::<std::collections::BTreeSet<_>>();
    let expected = counted(&report(&run(&alone, &["--workers", "1"])));
    let there = "{ protocol = \"tcp\", destination_port = 80, queue = 1 }";
    let back = "{ protocol = \"tcp\", source_port = 80, queue = 1 }";
    for (steer, parts) in [
        (format!("steer = [{there}, {{ queue = 0 }}]"), true),
        (format!("steer = [{there}, {back}, {{ queue = 0 }}]"), false),
    ] {
        let directory = scratch("conversations-steered", &file(&steer));
        let report = report(&run(&directory, &["--workers", "2"]));
        assert_eq!(counted(&report), expected, "{steer}");
        let nodes = report["nodes"].as_array().expect("a list");
        assert_eq!(nodes.iter().any(|node| node["name"] == "lan.shuffle"), parts, "{steer}");
        let queues = report["ports"][0]["queues"].as_array().expect("a list");
        assert_eq!(queues[0] != 0, parts, "the conversations are all over port 80: {report}");
    }
}

/// Packets of two ports meet, so that an answer belongs to neither; the report says what to add.
#[test]
fn answers_with_nowhere_to_go_are_explained() {
    let hops = vec!["\"hops\""; 64].join(", ");
    let text = format!(
        "[port.lan]\ndriver = \"generator\"\npackets = 300\nflows = 64\n\
         [port.far]\ndriver = \"generator\"\npackets = 300\nflows = 64\n[port.wan]\ndriver = \"null\"\n\
         [function.split]\nuse = \"group-by\"\ngroups = 2\n\
         [function.hops]\nuse = \"ttl\"\nanswer_v4 = \"192.0.2.1\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"split\"]\nto = \"wan\"\n\
         [[chain]]\nfrom = \"far\"\nthrough = [\"split\"]\nto = \"wan\"\n\
         [[chain]]\nname = \"both\"\nfrom = \"split.1\"\nthrough = [{hops}]\nto = \"wan\"\n"
    );
    let said = |text: &str| {
        let found = report(&run(&scratch("answers", text), &["--workers", "1"]));
        let lost = found["dropped"]["unconnected"].as_u64().unwrap_or(0);
        let of_answers = |said: &&Value| said.as_str().is_some_and(|said| said.contains("answers of"));
        (lost, found["warnings"].as_array().and_then(|said| said.iter().find(of_answers).cloned()))
    };
    let (lost, warning) = said(&text);
    assert!(lost > 0);
    let expected = format!(
        "{lost} answers of `hops#64` had nowhere to go (dropped as `unconnected`): its packets come from ports `lan` and \
         `far`, so say where they belong: `[[chain]]` with `from = \"hops.reply\"` and `to`"
    );
    assert_eq!(warning, Some(Value::String(expected)));
    // The remedy that the warning names.
    assert_eq!(said(&format!("{text}[[chain]]\nfrom = \"hops.reply\"\nto = \"wan\"\n")), (0, None));

    // From one port that cannot send: the graph shows no edge for answers, and the report has the same
    // warning.
    let text = format!(
        "[port.lan]\ndriver = \"generator\"\npackets = 300\nflows = 64\n[port.wan]\ndriver = \"null\"\n\
         [function.hops]\nuse = \"ttl\"\nanswer_v4 = \"192.0.2.1\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{hops}]\nto = \"wan\"\n"
    );
    let (lost, warning) = said(&text);
    assert!(lost > 0);
    let expected = format!(
        "{lost} answers of `hops#64` had nowhere to go (dropped as `unconnected`): its packets come from port `lan`, which \
         only receives, so say where they belong: `[[chain]]` with `from = \"hops.reply\"` and `to`"
    );
    assert_eq!(warning, Some(Value::String(expected)));
    let drawn = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["graph", "f.toml"])
        .current_dir(scratch("answers-drawn", &text))
        .output()
        .expect("the binary was built for this test");
    let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
    assert!(drawn.contains("hops#64 ──▶ wan.send") && !drawn.contains("answers"), "{drawn}");
}

/// A chain from one port to another through `through`, with the smallest possible pool.
fn few_buffers(port: &str, through: &str, workers: usize) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\n{port}\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"wan\"\n\
         [runtime]\nframes = 64\nworkers = {workers}\n"
    )
}

/// The generator moves the clock, so that buffers that are all held for a time become free again.
///
/// The same holds for buffers that other workers hold.
#[test]
fn a_generator_that_finds_no_buffer_goes_on_when_there_are_some() {
    for (name, port, through, workers) in [
        ("delay", "packets = 1000\ndelay = \"10 s\"", "", 1),
        ("delay-shuffle", "packets = 1000\ndelay = \"10 s\"", "\"shuffle\"", 2),
        ("shuffle", "packets = 20000", "\"shuffle\"", 2),
    ] {
        let directory = scratch(&format!("few-buffers-{name}"), &few_buffers(port, through, workers));
        // Long enough for any machine; a run that hangs has sent fewer packets.
        let report = report(&run(&directory, &["--duration", "600s"]));
        let packets = if name == "shuffle" { 20_000 } else { 1_000 };
        assert_eq!(report["sent"], packets, "{name}: {report}");
        // The scheduler decides whether rings hold all buffers at some time; a delay always does.
        let exhausted = report["pool"]["exhausted"].as_u64();
        assert!(exhausted > Some(0) || name == "shuffle", "{name}: {report}");
    }
}

#[test]
fn a_generator_whose_buffers_never_return_fails_the_run() {
    let directory = scratch("no-buffers", &few_buffers("packets = 1000\ndelay = \"100 h\"", "", 1));
    let output = run(&directory, &["--duration", "600s"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let why = report["failures"][0].as_str().unwrap_or_default();
    assert!(
        why.starts_with("graph `f`: its sources wait for packet buffers, of which 0 of 128 are free"),
        "{report}"
    );
    assert_eq!(report["conserved"], true, "{report}");
}

/// A queue before a port that delays packets does not keep a run on its own clock from its end.
///
/// An idle queue waits only for the clock, and the clock of a generator moves only to the next event.
#[test]
fn a_queue_before_a_line_that_holds_packets_does_not_keep_a_run_on_its_own_clock_from_its_end() {
    for (name, line) in [
        ("delay", "delay = \"20 ms\""),
        ("reorder", "reorder = 0.5\nreorder_gap = 200"),
        ("delay-and-reorder", "delay = \"20 ms\"\nreorder = 0.5\nreorder_gap = 200"),
    ] {
        let directory = scratch(
            &format!("queue-{name}"),
            &format!(
                "[port.lan]\ndriver = \"generator\"\npackets = 100\nflows = 20\n[port.wan]\ndriver = \"null\"\n\
                 {line}\n[function.split]\nuse = \"group-by\"\ngroups = 2\nqueue = 512\n\
                 [[chain]]\nfrom = \"lan\"\nthrough = [\"split\"]\nto = \"wan\"\n\
                 [[chain]]\nfrom = \"split.1\"\nto = \"wan\"\n"
            ),
        );
        for workers in ["1", "2"] {
            // If the run does not end by itself, its duration ends it.
            let report = report(&run(&directory, &["--workers", workers, "--duration", "60s"]));
            assert_eq!(report["sent"], 100, "{name}, {workers} workers");
            assert!(report["seconds"].as_f64() < Some(60.0), "{name}, {workers} workers: it did not end");
        }
    }
}
