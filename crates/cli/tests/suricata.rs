//! The same rules over the same captures as Suricata, where it is installed, raise alerts for the same flows.
//!
//! Differences that are explained in `EXPLAINED` are left out; all others fail the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_testkit::captures;
use serde_json::Value;

/// Rules of each kind that both understand.
const RULES: &str = r#"
alert tcp any any -> any any (msg:"request"; flow:established,to_server; content:"GET "; depth:4; sid:1;)
alert tcp any any -> any any (msg:"host"; flow:established; content:"Host|3a|"; nocase; sid:2;)
alert tcp any any -> any any (msg:"agent"; flow:established; content:"User-Agent|3a 20|"; content:"Mozilla"; distance:0; within:60; sid:3;)
alert tcp any any -> any any (msg:"status"; flow:established,to_client; pcre:"/^HTTP\/1\.[01] [2-5]\d\d/"; sid:4;)
alert tcp any any -> any any (msg:"syn"; flags:S; sid:5;)
alert udp any any -> any any (msg:"sip"; content:"SIP/2.0"; sid:6;)
alert udp any any -> any any (msg:"long"; dsize:>1000; sid:7;)
alert icmp any any -> any any (msg:"echo"; itype:8; sid:8;)
alert tcp any any -> any 21 (msg:"user"; flow:established,to_server; content:"USER "; nocase; pcre:"/^[a-z0-9]+/Ri"; sid:9;)
alert tcp any any -> any any (msg:"hello"; flow:established,to_server; content:"|16 03|"; depth:2; content:"|01|"; distance:3; within:1; sid:10;)
"#;

/// Differences by sid, with the reason.
///
/// Where a rule is looked for in a stream, Suricata raises an alert when it looks at a part of the stream, which is at its
/// acknowledgment or end. We raise it with the packet that completes the match. So flows are compared, and not packets.
const EXPLAINED: [(u64, &str); 0] = [];

/// The flows of alerts by sid: addresses and ports of both ends, sorted.
type Alerts = BTreeMap<u64, BTreeSet<[String; 2]>>;

fn read(lines: &str) -> Alerts {
    let mut alerts = Alerts::new();
    for line in lines.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        if event["event_type"] != "alert" {
            continue;
        }
        let end = |ip: &str, port: &str| {
            format!("{} {}", event[ip].as_str().unwrap_or_default(), event[port].as_u64().unwrap_or(0))
        };
        let mut ends = [end("src_ip", "src_port"), end("dest_ip", "dest_port")];
        ends.sort();
        let sid = event["alert"]["signature_id"].as_u64().expect("an alert has a sid");
        alerts.entry(sid).or_default().insert(ends);
    }
    alerts
}

/// Suricata's alerts, in a directory of their own.
fn suricata(directory: &Path, capture: &Path) -> Alerts {
    let eve = directory.join("eve.json");
    let _ = std::fs::remove_file(&eve);
    let output = Command::new("suricata")
        .args(["-r"])
        .arg(capture)
        .args(["-S", "test.rules", "-l", ".", "-k", "none", "--set", "stream.midstream=true"])
        .args(["--set", "outputs.0.fast.enabled=no"])
        .current_dir(directory)
        .output()
        .expect("it was found");
    assert!(output.status.success(), "{}: {}", capture.display(), String::from_utf8_lossy(&output.stderr));
    read(&std::fs::read_to_string(eve).unwrap_or_default())
}

/// Our alerts, from the report.
fn ours(directory: &Path, capture: &Path) -> Alerts {
    let file = format!(
        "[port.in]\ndriver = \"pcap\"\nread = {:?}\nchecksum = \"trust\"\n[port.out]\ndriver = \"null\"\n[function.ids]\nuse = \"signature\"\n\
         files = [\"test.rules\"]\nflows = 65_536\nevents = 65_536\ntop = 65_536\n[[chain]]\nfrom = \"in\"\nthrough = [\"ids\"]\nto = \"out\"\n",
        capture.display().to_string()
    );
    std::fs::write(directory.join("edge.toml"), file).expect("the test's directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "edge.toml", "--json", "--quiet"])
        .current_dir(directory)
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success(), "{}: {}", capture.display(), String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let mut alerts = Alerts::new();
    let sections = report["sections"].as_array().into_iter().flatten();
    let latest = sections.filter(|section| section["title"] == "latest alerts");
    for row in latest.flat_map(|section| section["rows"].as_array().into_iter().flatten()) {
        let cell = |at: usize| row[at].as_str().unwrap_or_default().to_owned();
        let mut ends = [cell(1), cell(2)];
        ends.sort();
        alerts.entry(cell(0).parse().unwrap_or(0)).or_default().insert(ends);
    }
    alerts
}

#[test]
fn suricata_raises_the_same_alerts() {
    if Command::new("suricata").arg("-V").output().is_err() {
        eprintln!("skipped: suricata is not installed");
        return;
    }
    let directory: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suricata");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    std::fs::write(directory.join("test.rules"), RULES).expect("the test's directory can be written");
    let explained: BTreeSet<u64> = EXPLAINED.iter().map(|(sid, _)| *sid).collect();
    let mut differences = Vec::new();
    for capture in captures::files() {
        let (theirs, ours) = (suricata(&directory, &capture), ours(&directory, &capture));
        for sid in (1..=10).filter(|sid| !explained.contains(sid)) {
            let of = |alerts: &Alerts| alerts.get(&sid).cloned().unwrap_or_default();
            let (theirs, ours) = (of(&theirs), of(&ours));
            let only = |one: &BTreeSet<[String; 2]>, other: &BTreeSet<[String; 2]>| {
                one.difference(other).take(3).cloned().collect::<Vec<_>>()
            };
            if theirs != ours {
                differences.push(format!(
                    "{}, sid {sid}: only Suricata {:?}, only we {:?}",
                    capture.display(),
                    only(&theirs, &ours),
                    only(&ours, &theirs)
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
