//! Two hundred changes under steady traffic between namespaces: every packet arrives, and every flow keeps its state.

use std::fmt::Write as _;

use netbricks_testkit::namespace::{Process, eventually};
use serde_json::{Value, json};

use super::segment::{Segment, finish};

const CHANGES: usize = 200;
const FLOWS: usize = 64;
const ROUTES: usize = 100_000;
/// The changes in which a table of [`ROUTES`] comes, is swapped and goes again.
const TABLES: [std::ops::Range<usize>; 2] = [100..104, 150..153];

/// `send ADDRESS FLOWS STOP` sends numbered packets of so many flows, 2,000 a second, until the file STOP exists.
///
/// `receive ADDRESS` checks that they are whole and in order, and ends with the sender's last packet. Their sockets
/// have room for seconds (`SO_SNDBUFFORCE`, `SO_RCVBUFFORCE`). After a halt, the sender goes on at its pace, without
/// a burst for the time that is over.
const TRAFFIC: &str = r#"
import json
import os
import socket
import struct
import sys
import time

PORT = 9000
FIRST_SOURCE = 20000
LAST = 0xFFFFFFFF
BURST = 8
PACE = 0.004
SNDBUFFORCE, RCVBUFFORCE = 32, 33
ROOM = 32 << 20


def payload(flow, number):
    return struct.pack("!II", flow, number) + bytes(48)


def send(address, flows, stop):
    sockets = []
    for flow in range(flows):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, 1 << 20)
        one.bind(("", FIRST_SOURCE + flow))
        one.connect((address, PORT))
        sockets.append(one)
    sent = [0] * flows
    at = 0
    due = time.monotonic()
    while sent[-1] == 0 or not os.path.exists(stop):
        for _ in range(BURST):
            sockets[at].send(payload(at, sent[at]))
            sent[at] += 1
            at = (at + 1) % flows
        due = max(due + PACE, time.monotonic() - PACE)
        time.sleep(max(0.0, due - time.monotonic()))
    sockets[0].send(payload(0, LAST))
    sent[0] += 1
    print(json.dumps({"sent": sent}))


def receive(address):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, ROOM)
    here.bind((address, PORT))
    here.settimeout(100)
    expected, received, lost, late = {}, {}, 0, 0
    largest, before = 0.0, None
    print("ready", flush=True)
    while True:
        data, _ = here.recvfrom(2048)
        now = time.monotonic()
        largest, before = max(largest, now - (before or now)), now
        flow, number = struct.unpack("!II", data[:8])
        received[flow] = received.get(flow, 0) + 1
        if number == LAST:
            break
        wanted = expected.get(flow, 0)
        lost += max(0, number - wanted)
        late += int(number < wanted)
        expected[flow] = max(wanted, number + 1)
    counts = [received[flow] for flow in sorted(received)]
    print(json.dumps({"received": counts, "lost": lost, "late": late, "largest_gap_ms": largest * 1000}))


if sys.argv[1] == "send":
    send(sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    receive(sys.argv[2])
"#;

/// The file after so many changes: each differs from the one before.
fn file(change: usize, server: &str) -> String {
    let table = TABLES.iter().find(|table| table.contains(&change)).map(|_| change % 2);
    let (through, backends, top, capacity) = match change % 8 {
        0 => ("\"flows\", \"balance\"", 1, 100, 4_096),
        1 => ("\"ttl\", \"flows\", \"balance\"", 1, 100, 4_096),
        2 => ("\"ttl\", \"flows\", \"balance\"", 3, 100, 4_096),
        3 => ("\"flows\", \"balance\", \"more\"", 3, 90, 4_096),
        4 => ("\"flows\", \"balance\", \"more\"", 2, 90, 4_096),
        5 => ("\"balance\", \"flows\"", 2, 90, 4_096),
        6 => ("\"balance\", \"flows\"", 2, 90, 8_192),
        _ => ("\"flows\", \"ttl\", \"balance\"", 1, 90, 8_192),
    };
    let through = if table.is_some() { format!("\"routes\", {through}") } else { through.to_owned() };
    let backends: Vec<String> =
        (1..=backends).map(|number| format!("\"web{number} {server} {number}\"")).collect();
    let mut text = format!(
        "[port.left]\ndriver = \"af_packet\"\ndevice = \"b0\"\n[port.right]\ndriver = \"af_packet\"\ndevice = \"b1\"\n\
         [runtime]\nframes = 8192\nlarge_frames = 64\nworkers = 1\nidle = \"quiet\"\n\
         [function.flows]\nuse = \"monitor\"\ncapacity = {capacity}\ntop = {top}\nidle = \"1 d\"\n\
         [function.balance]\nuse = \"maglev\"\nbackends = [{}]\naddresses = [\"10.0.0.2\"]\nidle = \"1 d\"\n\
         [[chain]]\nfrom = \"left\"\nthrough = [{through}]\nto = \"right\"\n\
         [[chain]]\nfrom = \"right\"\nto = \"left\"\n",
        backends.join(", ")
    );
    if through.contains("more") {
        text += "[function.more]\nuse = \"monitor\"\n";
    }
    if let Some(table) = table {
        text += &format!("[function.routes]\nuse = \"lpm\"\ntable = \"routes{table}.txt\"\n");
    }
    text
}

/// Two files of routes to the same prefixes, with other next hops.
fn write_routes(segment: &Segment) {
    for table in 0..2 {
        let mut lines = format!("10.0.0.0/8 {table}\n");
        for number in 0..ROUTES - 1 {
            let (a, b, c) = (11 + number / 65_536, number / 256 % 256, number % 256);
            writeln!(lines, "{a}.{b}.{c}.0/24 {}", number % 7 + table).expect("a text has room");
        }
        segment.directory.write(&format!("routes{table}.txt"), &lines);
    }
}

fn traffic(segment: &Segment, role: &str, arguments: &[&str]) -> Process {
    let file = |name: String| {
        std::fs::File::create(segment.directory.path().join(name)).expect("the directory can be written")
    };
    let script = segment.directory.path().join("traffic.py").display().to_string();
    let words = [&[script.as_str()], arguments].concat();
    segment.namespaces.start(role, "python3", &words, file(role.into()), file(format!("{role}-errors")))
}

/// The last line that a process of [`traffic`] printed, after a good end.
fn told(segment: &Segment, role: &str, process: &mut Process) -> Value {
    assert!(process.wait().success(), "{role}: {}", segment.directory.read(&format!("{role}-errors")));
    let said = segment.directory.read(role);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{role}: {said}"))
}

/// Packets that the kernel has lost on the way, by its own counters, beside those that the ports report.
fn lost_by_the_kernel(segment: &Segment) -> u64 {
    let devices = [("client", "c0"), ("middle", "b0"), ("middle", "b1"), ("server", "s0")];
    let counter = |(role, device): (&str, &str), name: &str| -> u64 {
        let path = format!("cat /sys/class/net/{device}/statistics/{name}");
        segment.namespaces.run(role, &path).trim().parse().expect("a number")
    };
    let dropped = |of: &(&str, &str)| counter(*of, "rx_dropped") + counter(*of, "tx_dropped");
    let snmp = segment.namespaces.run("server", "cat /proc/net/snmp");
    let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (udp.next().unwrap_or_default(), udp.next().unwrap_or_default());
    let errors = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "InErrors");
    let errors: u64 = errors.and_then(|(_, value)| value.parse().ok()).expect("the kernel counts UDP errors");
    devices.iter().map(dropped).sum::<u64>() + errors
}

/// Waits until each flow is in both tables, once.
fn all_flows_are_known(segment: &Segment) -> bool {
    let entries = |handler: &str| {
        let answers = segment.directory.json(&["get", handler]);
        let value = answers["answers"][0]["value"].as_str().unwrap_or_else(|| panic!("{answers}"));
        value.split(' ').next().and_then(|entries| entries.parse::<usize>().ok())
    };
    ["flows.flows.occupancy", "balance.connections.occupancy"].map(entries) == [Some(FLOWS); 2]
}

/// Runs that a kernel without room for all packets may spoil before the test fails.
const ATTEMPTS: usize = 5;

#[test]
fn two_hundred_changes_lose_no_packet_and_keep_the_state_of_every_flow() {
    for attempt in 1..=ATTEMPTS {
        match changes_under_traffic(&format!("two-hundred-{attempt}")) {
            None | Some(0) => return,
            Some(lost) => {
                eprintln!("attempt {attempt}: the kernel had no room for {lost} packets: once more")
            }
        }
    }
    panic!("the kernel lost packets in each of {ATTEMPTS} attempts, so that flows could not be compared");
}

/// Makes all changes under traffic. Answers the packets that the kernel lost; `None` without permission for a segment.
fn changes_under_traffic(name: &str) -> Option<u64> {
    let segment = Segment::new(name, &["python3"])?;
    let server = segment.server();
    write_routes(&segment);
    segment.directory.write("traffic.py", TRAFFIC);
    segment.directory.write("edge.toml", &file(0, &server));
    // Without questions for addresses, all packets are those of the test.
    segment
        .namespaces
        .run("client", &format!("ip neighbour add 10.0.0.2 lladdr {server} dev c0 nud permanent"));
    let before = lost_by_the_kernel(&segment);
    let mut run = segment.run(&["edge.toml"]);
    let mut receiver = traffic(&segment, "server", &["receive", "10.0.0.2"]);
    eventually("the receiver's start", || segment.directory.read("server").contains("ready"));
    let stop = segment.directory.path().join("stop").display().to_string();
    let mut sender = traffic(&segment, "client", &["send", "10.0.0.2", &FLOWS.to_string(), &stop]);
    eventually("the first packets", || all_flows_are_known(&segment));

    let mut longest = 0;
    for change in 1..=CHANGES {
        segment.directory.write("next.toml", &file(change, &server));
        let applied = segment.directory.json(&["apply", "next.toml"]);
        assert_eq!(applied["configuration"], change + 1, "{applied}");
        assert_eq!(
            (&applied["plan"]["unchanged"], &applied["refused"]),
            (&json!(false), &json!([])),
            "{applied}"
        );
        let kept = applied["plan"]["kept"].as_array().expect("a list");
        assert!(["left", "right"].iter().all(|port| kept.contains(&Value::from(*port))), "{applied}");
        longest = longest.max(applied["longest_pause_ns"].as_u64().expect("a number"));
        assert!(all_flows_are_known(&segment), "after change {change}");
        assert!(sender.is_running(), "{}", segment.directory.read("client-errors"));
    }
    segment.directory.write("stop", "");
    let sent = told(&segment, "client", &mut sender);
    let received = told(&segment, "server", &mut receiver);
    let report = finish(&mut run);
    let missed: u64 =
        report["ports"].as_array().into_iter().flatten().filter_map(|port| port["missed"].as_u64()).sum();
    let lost = lost_by_the_kernel(&segment) - before + missed;
    eprintln!(
        "{CHANGES} changes, {} packets; the worker's longest time without a packet for a change: {} µs, between two \
         arrivals: {} ms; lost by the kernel: {lost}",
        report["received"],
        longest / 1_000,
        received["largest_gap_ms"]
    );
    assert_eq!(report["dropped"], json!({}), "{report}");
    assert_eq!(report["received"], report["sent"], "{report}");
    assert_eq!((&received["lost"], &received["late"]), (&json!(lost), &json!(0)), "{received}");
    if lost == 0 {
        assert_eq!(received["received"], sent["sent"]);
        assert_eq!(
            packets_of_flows(&report),
            counts(&sent["sent"]),
            "the state of all flows, from the first packet on"
        );
    }
    Some(lost)
}

fn counts(list: &Value) -> Vec<u64> {
    let mut counts: Vec<u64> = list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    counts.sort_unstable();
    counts
}

/// The packets that `flows` has counted of each flow, in ascending order.
fn packets_of_flows(report: &Value) -> Vec<u64> {
    let sections = report["sections"].as_array().expect("a list");
    let flows =
        sections.iter().find(|section| section["node"] == "flows").unwrap_or_else(|| panic!("{report}"));
    let columns = flows["columns"].as_array().expect("a list");
    let column = columns.iter().position(|column| column == "packets").expect("a column");
    let rows = flows["rows"].as_array().expect("a list").iter();
    let mut packets: Vec<u64> =
        rows.filter_map(|row| row[column].as_str()?.replace(',', "").parse().ok()).collect();
    packets.sort_unstable();
    packets
}
