//! Every real and every broken capture at hand, through a chain of every function.
//!
//! - The same bytes come out at batch sizes 1, 32 and 256, and on two workers, except for the order between
//!   flows.
//! - Every packet is accounted for.
//! - Functions change only the bytes that they are meant to change.
//! - Wireshark finds nothing malformed that was not malformed before.

mod wireshark;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_core::packet::FlowKey;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_testkit::{BURSTS, captures};
use serde_json::Value;

/// All functions; the answers of each go to a file of its own.
const EVERYTHING: &str = r#"
[port.answers]
driver = "pcap"
write = "answers.pcap"
[port.expired]
driver = "pcap"
write = "expired.pcap"
[function.host]
use = "icmp-echo"
v4 = "192.168.0.1"
v6 = "2001:db8:0:12::2"
[function.hops]
use = "ttl"
non_ip = "pass"
answer_v4 = "10.255.255.254"
answer_v6 = "2001:db8::fe"
answer_rate = 1_000_000
[function.routes]
use = "lpm"
routes = ["0.0.0.0/0 1", "192.168.0.0/16 2", "::/0 3"]
[function.balance]
use = "maglev"
backends = ["web-1 02:00:00:00:00:01", "web-2 02:00:00:00:00:02"]
addresses = ["192.168.0.254"]
[function.web]
use = "http-inspect"
[function.signatures]
use = "signature"
rules = [
  'alert tcp any any -> any any (msg:"request"; content:"GET "; content:"HTTP/1."; distance:1; sid:1;)',
  'alert udp any any -> any any (msg:"zeros"; content:"|00 00|"; sid:2;)',
]
# Other tests show what it rewrites: here it must leave alone all that is none of its business.
[function.rewrite]
use = "rewrite-stream"
find = "l"
replace = "longer"
ports = [1]
# Nothing is larger than that.
[function.segments]
use = "mss"
size = 65_535
[function.spin]
use = "busy"
cycles = 0
[function.one]
use = "group-by"
groups = 1
[function.sites]
use = "classify"
rules = ["arp -> out", "udp, to port 53 -> out"]
[function.cells]
use = "array-access"
accesses = 2
[function.rates]
use = "policer"
cir = "100 Gbit/s"
cbs = 500_000_000
ebs = 500_000_000
by = "source"
# A decision about a first fragment holds for the others, and nothing else is denied.
[function.filter]
use = "firewall"
lines = ["tracking explicit", "count tcp", "allow"]
tcp_opening = "2 h"
tcp_closing = "2 h"
tcp_closed = "2 h"
udp_opening = "2 h"
udp = "2 h"
icmp = "2 h"
other = "2 h"
[function.rules]
use = "mmb"
lines = ["add ip-saddr 198.18.255.254 drop"]
[function.servers]
use = "load-balancer"
servers = ["web-1 198.18.255.1:8080", "web-2 198.18.255.2"]
addresses = ["198.18.255.253"]
port = 80
mode = "nat"
[[chain]]
from = "lan"
through = [
  "host", "shuffle", "wire", "hops", "macswap", "monitor", "routes", "web", "signatures", "rewrite", "balance", "segments", "one",
  "sites", "cells", "rates", "filter", "rules", "servers", "spin",
]
to = "wan"
[[chain]]
from = "host.reply"
to = "answers"
[[chain]]
from = "hops.reply"
to = "expired"
"#;

/// Functions that change or drop more than the checks of that chain allow, on one worker.
///
/// Every frame goes to the router's address.
const ROUTED: &str = r#"
[function.shape]
use = "shaper"
rate = "100 Gbit/s"
burst = "64 MB"
[function.toward]
use = "maglev"
backends = ["router 02:00:00:00:00:fe"]
[function.translate]
use = "nat"
inside = ["10.0.0.0/8", "192.168.0.0/16"]
pool = ["198.18.253.1"]
others = "pass"
[function.route]
use = "router"
interfaces = ["lan 198.18.0.254/24 2001:db8:ffff::fe/64 mac 02:00:00:00:00:fe"]
routes = ["default via 198.18.0.2", "default6 via 2001:db8:ffff::2"]
neighbours = ["lan 198.18.0.2 02:00:00:00:01:02", "lan 2001:db8:ffff::2 02:00:00:00:01:02"]
[[chain]]
from = "lan"
through = ["shape", "translate", "toward", "route"]
to = "lan"
"#;

/// Functions that are in neither chain, and why.
const APART: [(&str, &str); 4] = [
    ("bras", "it passes only packets of sessions that it opened; its own tests open some"),
    ("click", "a configuration runs on one worker; mutated packets pass one in `mutations`"),
    ("instances", "a switch without instances passes nothing on; its own tests make some"),
    ("sandbox", "a module decides what it does; mutated packets pass one in `mutations`"),
];

/// Seconds after which the first of these functions forgets a flow.
const IDLE: u64 = 60;

/// Only the ports' work: frames of every link type as Ethernet.
const NOTHING: &str = "[[chain]]\nfrom = \"lan\"\nthrough = [\"wire\"]\nto = \"wan\"\n";

/// The result of a run.
struct Outcome {
    code: Option<i32>,
    said: String,
    report: Value,
    /// The captures that it wrote: `wan`, `answers`, `expired`, if they exist.
    files: Vec<Option<Vec<u8>>>,
    /// Their frames.
    frames: Vec<Vec<Vec<u8>>>,
    /// The same frames, each with the bytes that it had on the wire.
    records: Vec<Vec<(Vec<u8>, usize)>>,
}

fn run(directory: &Path, capture: &Path, chains: &str, burst: usize, workers: usize) -> Outcome {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).expect("the target directory can be written");
    // A router sends out of the port at which it stands.
    let other_port = if chains == ROUTED { "" } else { "[port.wan]\ndriver = \"pcap\"\n" };
    // A literal string: a path may have any character except quotes.
    let configuration = format!(
        "[port.lan]\ndriver = \"pcap\"\nread = '{}'\n{other_port}write = \"wan.pcap\"\n\
         [runtime]\nframes = 2048\nlarge_frames = 64\n{chains}",
        capture.display()
    );
    std::fs::write(directory.join("run.toml"), configuration).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "run.toml", "--json", "--quiet", "--burst", &burst.to_string()])
        .args(["--workers", &workers.to_string()])
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test");
    let files = ["wan.pcap", "answers.pcap", "expired.pcap"].map(|name| directory.join(name));
    Outcome {
        code: output.status.code(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        report: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        frames: files.iter().map(|path| captures::frames(path)).collect(),
        records: files.iter().map(|path| captures::records(path)).collect(),
        files: files.iter().map(|path| std::fs::read(path).ok()).collect(),
    }
}

fn number(report: &Value, key: &str) -> u64 {
    match &report[key] {
        Value::Object(reasons) => reasons.values().filter_map(Value::as_u64).sum(),
        number => number.as_u64().unwrap_or_else(|| panic!("`{key}` is no number: {report}")),
    }
}

/// Checks that hold for every run over every capture.
fn check(name: &str, outcome: &Outcome) {
    let Outcome { report, .. } = outcome;
    assert_eq!(report["conserved"], true, "{name}: {report}");
    assert_eq!(report["panics"], Value::Array(Vec::new()), "{name}: {report}");
    assert_eq!(number(report, "held"), 0, "{name}: {report}");
    assert_eq!(
        number(report, "received") + number(report, "created"),
        number(report, "sent") + number(report, "consumed") + number(report, "dropped"),
        "{name}: {report}"
    );
    // No packet was lost because there was no room.
    for reason in ["pool-exhausted", "queue-full", "transmit-full", "unconnected"] {
        assert!(report["dropped"].get(reason).is_none(), "{name}: {report}");
    }
}

/// Whether `out` is the expected result for `came`.
///
/// The addresses are swapped, one hop is gone and the checksum fits, and everything else is as before.
fn is_successor(came: &[u8], out: &[u8]) -> bool {
    if came.len() != out.len() {
        return false;
    }
    if came.len() < 14 {
        return came == out;
    }
    if came[..6] != out[6..12] || came[6..12] != out[..6] {
        return false;
    }
    let changed: Vec<usize> = (12..came.len()).filter(|at| came[*at] != out[*at]).collect();
    match changed[..] {
        [] => true,
        // The hop limit of IPv6, or a TTL whose decrement left one byte of the checksum as it was.
        [hops] => out[hops] + 1 == came[hops],
        [hops, check] => out[hops] + 1 == came[hops] && (2..=3).contains(&(check - hops)),
        [hops, check, next] => out[hops] + 1 == came[hops] && check == hops + 2 && next == check + 1,
        _ => false,
    }
}

/// For each frame that left, the number of the frame that came; `None` if a frame has no origin.
fn origins(came: &[Vec<u8>], left: &[Vec<u8>]) -> Option<Vec<usize>> {
    let mut next = 0;
    left.iter()
        .map(|out| {
            let at = next + came[next..].iter().position(|frame| is_successor(frame, out))?;
            next = at + 1;
            Some(at)
        })
        .collect()
}

/// The frames of each flow in their order, errors with the flow that they are about.
fn by_flow(records: &[(Vec<u8>, usize)]) -> BTreeMap<String, Vec<&[u8]>> {
    let mut flows: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
    for (frame, wire) in records {
        // As a capture port sees it: a cut frame has its flow all the same, and so has a segment without a
        // length.
        let slack = LengthSlack { missing: wire.saturating_sub(frame.len()), unstated: *wire > 60 };
        let mut ends = match FlowKey::related_from_frame_with(frame, slack) {
            Some(flow) => [flow, flow.reversed()].map(|flow| flow.to_string()),
            None => [0..6, 6..12].map(|at| format!("{:02x?}", frame.get(at))),
        };
        ends.sort();
        flows.entry(ends.concat()).or_default().push(frame);
    }
    flows
}

/// The seconds between the first packet and the last of a capture in the format that `pcap` writes.
fn seconds(capture: &[u8]) -> u64 {
    let word = |at: usize| Some(u32::from_le_bytes(*capture.get(at..)?.first_chunk()?));
    let (mut at, mut times) = (24, Vec::new());
    while let (Some(second), Some(length)) = (word(at), word(at + 8)) {
        times.push(u64::from(second));
        at += 16 + length as usize;
    }
    times.iter().max().zip(times.first()).map_or(0, |(last, first)| last.saturating_sub(*first))
}

/// Two workers give the same packets as one, except for the order between flows.
fn same_by_flow(name: &str, one: &Outcome, two: &Outcome, seconds: u64) {
    assert_eq!((one.code, &two.report["workers"]), (two.code, &Value::from(2)), "{name}: {}", two.said);
    for key in ["received", "created", "sent", "consumed", "dropped", "failures"] {
        assert_eq!(one.report[key], two.report[key], "{name} on two workers: {key}");
    }
    for (file, (one, two)) in one.records.iter().zip(&two.records).enumerate() {
        let (one, two) = (by_flow(one), by_flow(two));
        for (flow, frames) in &one {
            assert!(two.get(flow) == Some(frames), "{name}, file {file}: {flow} differs on two workers");
        }
        assert_eq!(one.len(), two.len(), "{name}, file {file}");
    }
    let rows = |report: &Value| -> Vec<String> {
        let sections = report["sections"].as_array().cloned().unwrap_or_default();
        let mut rows: Vec<_> = sections
            .iter()
            // Each worker remembers the latest of its own.
            .filter(|section| section["title"] != "latest alerts")
            .flat_map(|section| {
                let rows = section["rows"].as_array().cloned().unwrap_or_default();
                let node = section["node"].clone();
                rows.into_iter().map(move |row| format!("{node}: {row}"))
            })
            .collect();
        rows.sort();
        rows
    };
    // Each worker reports the flows that it remembers at the time of its own last packet.
    if seconds < IDLE {
        assert_eq!(rows(&one.report), rows(&two.report), "{name} on two workers");
    }
}

/// A capture whose frames come out alike at all batch sizes.
struct Passed {
    name: String,
    came: Vec<Vec<u8>>,
    left: Vec<Vec<u8>>,
    origins: Vec<usize>,
    /// Answers to echo requests, and to expired packets.
    answers: Vec<Vec<u8>>,
    expired: Vec<Vec<u8>>,
}

fn pass(directory: &Path, capture: &Path) -> Option<Passed> {
    let name = capture.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let reference = run(directory, capture, NOTHING, 32, 1);
    let mut outcomes = BURSTS.map(|burst| run(directory, capture, EVERYTHING, burst, 1));
    let [one, more @ ..] = &outcomes;
    for (other, burst) in more.iter().zip(&BURSTS[1..]) {
        assert_eq!((one.code, &one.said), (other.code, &other.said), "{name} at {burst}");
        assert!(one.files == other.files, "{name}: what leaves depends on the batch size ({burst})");
        for key in ["received", "created", "sent", "consumed", "dropped", "failures", "sections"] {
            assert_eq!(one.report[key], other.report[key], "{name} at {burst}: {key}");
        }
    }
    if one.report.is_null() {
        // No capture, or of a link type that is not supported: one plain error, and no file is left behind.
        assert_eq!(one.code, Some(1), "{name}: {}", one.said);
        assert_eq!(one.said.matches("error: ").count(), 1, "{name}: {}", one.said);
        assert!(one.said.contains(&name), "{}", one.said);
        assert!(one.files.iter().all(Option::is_none), "{name} left a file behind");
        eprintln!("{name}: {}", one.said.lines().next().unwrap_or_default());
        return None;
    }
    check(&name, &reference);
    outcomes.iter().for_each(|outcome| check(&name, outcome));
    assert_eq!(number(&reference.report, "received"), number(&one.report, "received"), "{name}");
    if one.code != Some(0) {
        // Cut off or broken later on: the failure names the place.
        assert_eq!(one.code, Some(1), "{name}: {}", one.said);
        let failures = one.report["failures"].to_string();
        assert!(failures.contains(&name) && failures.contains("record"), "{name}: {failures}");
        eprintln!("{name}: {failures}");
    }
    let two = run(directory, capture, EVERYTHING, 32, 2);
    check(&name, &two);
    same_by_flow(&name, one, &two, seconds(reference.files[0].as_deref().unwrap_or_default()));
    routed(&name, directory, capture);
    let outcome = &mut outcomes[0];
    let mut frames = std::mem::take(&mut outcome.frames).into_iter();
    let mut next = || frames.next().unwrap_or_default();
    let (left, answers, expired) = (next(), next(), next());
    let came = reference.frames.into_iter().next().unwrap_or_default();
    let captured = captures::frames(capture);
    for (frame, raw) in came.iter().zip(&captured) {
        // Behind the longest header that a link may have in the place of Ethernet's (Linux cooked, version 2).
        assert!(frame.ends_with(&raw[raw.len().min(20)..]), "{name}: not what was captured");
    }
    if one_is_whole(&outcome.report) {
        assert_eq!(came.len(), captured.len(), "{name}");
    }
    let sent = number(&outcome.report, "sent") as usize;
    assert_eq!(left.len() + answers.len() + expired.len(), sent, "{name}");
    let origins = origins(&came, &left);
    let Some(origins) = origins else {
        panic!("{name}: something left that did not come in, or changed too much")
    };
    Some(Passed { name, came, left, origins, answers, expired })
}

/// A router and a translation do the same at every batch size, and account for every packet.
fn routed(name: &str, directory: &Path, capture: &Path) {
    let outcomes = BURSTS.map(|burst| run(directory, capture, ROUTED, burst, 1));
    let [one, more @ ..] = &outcomes;
    for (other, burst) in more.iter().zip(&BURSTS[1..]) {
        assert_eq!((one.code, &one.said), (other.code, &other.said), "{name}, routed at {burst}");
        assert!(one.files == other.files, "{name}: what is routed depends on the batch size ({burst})");
        for key in ["received", "created", "sent", "consumed", "dropped", "failures"] {
            assert_eq!(one.report[key], other.report[key], "{name}, routed at {burst}: {key}");
        }
    }
    outcomes.iter().for_each(|outcome| check(name, outcome));
}

/// Whether the capture was read to its end, and every frame could be shown as Ethernet.
fn one_is_whole(report: &Value) -> bool {
    report["failures"] == Value::Array(Vec::new())
        && ["malformed", "not-ethernet"].iter().all(|reason| report["dropped"].get(reason).is_none())
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The captures that can be read, in their order; each of two threads takes the next capture that is left.
fn pass_all(directory: &Path, files: &[PathBuf]) -> Vec<Passed> {
    let next = AtomicUsize::new(0);
    let take = |directory: PathBuf| {
        let mut passed = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else { return passed };
            passed.extend(pass(&directory, file).map(|capture| (at, capture)));
        }
    };
    let mut passed: Vec<(usize, Passed)> = std::thread::scope(|scope| {
        let threads = ["one", "two"].map(|name| {
            let take = &take;
            scope.spawn(move || take(directory.join(name)))
        });
        threads.into_iter().flat_map(|thread| thread.join().expect("a capture failed, see above")).collect()
    });
    passed.sort_by_key(|(at, _)| *at);
    passed.into_iter().map(|(_, capture)| capture).collect()
}

#[test]
fn every_function_is_in_a_chain_or_has_a_reason() {
    let of_chains = [EVERYTHING, ROUTED].into_iter().flat_map(|chains| {
        let uses = chains.lines().filter_map(|line| line.strip_prefix("use = "));
        let plain = chains.split(&['[', ',', ']', '\n'][..]).map(|word| word.trim().trim_matches('"'));
        // Functions without settings stand in the chain by their names.
        let named = plain.filter(|word| ["wire", "shuffle", "macswap", "monitor"].contains(word));
        uses.map(|name| name.trim_matches('"')).chain(named).collect::<Vec<_>>()
    });
    let mut here: Vec<&str> = of_chains.chain(APART.map(|(name, _)| name)).collect();
    here.sort_unstable();
    here.dedup();
    let registry = netbricks::standard();
    let known: Vec<&str> = registry.iter().map(|definition| definition.name).collect();
    assert_eq!(here, known);
}

#[test]
fn every_capture_passes_every_function() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: there are no captures; NETBRICKS_CAPTURES names their folder");
        return;
    }
    let directory = folder("captures");
    let passed = pass_all(&directory, &files);
    let sum = |part: fn(&Passed) -> usize| passed.iter().map(part).sum::<usize>();
    eprintln!(
        "{} of {} captures: {} packets came, {} left, {} answers, {} expired",
        passed.len(),
        files.len(),
        sum(|passed| passed.came.len()),
        sum(|passed| passed.left.len()),
        sum(|passed| passed.answers.len()),
        sum(|passed| passed.expired.len()),
    );
    assert!(passed.len() * 2 > files.len(), "most captures can be read");
    if !wireshark::is_installed() {
        return;
    }
    let frames = |part: fn(&Passed) -> &Vec<Vec<u8>>| passed.iter().flat_map(part).map(Vec::as_slice);
    let before = wireshark::opinions(&directory.join("all-in.pcap"), frames(|passed| &passed.came));
    let after = wireshark::opinions(&directory.join("all-out.pcap"), frames(|passed| &passed.left));
    let (mut first, mut after) = (0, after.into_iter());
    let mut wrong = Vec::new();
    for passed in &passed {
        for (origin, frame) in passed.origins.iter().zip(&passed.left) {
            let opinion = after.next().unwrap_or_default();
            if opinion.malformed && !before[first + origin].malformed {
                wrong.push(format!(
                    "{}: frame {}, {}: {frame:02x?}",
                    passed.name,
                    origin + 1,
                    opinion.protocols
                ));
            }
        }
        first += passed.came.len();
    }
    for (name, part) in [
        ("answers", (|passed| &passed.answers) as fn(&Passed) -> &Vec<Vec<u8>>),
        ("expired", |passed: &Passed| &passed.expired),
    ] {
        let opinions = wireshark::opinions(&directory.join(format!("all-{name}.pcap")), frames(part));
        for (opinion, frame) in opinions.iter().zip(frames(part)) {
            // An error may quote any packet.
            if opinion.malformed && !(opinion.quotes && opinion.sound) {
                wrong.push(format!("{name}: {}: {frame:02x?}", opinion.protocols));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} newly malformed:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}
