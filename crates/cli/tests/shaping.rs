//! A shaper and a policer in a chain file keep to their rates, by the clock of the written capture.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Runs a chain from a generator through these functions into a capture; returns its folder and the report.
fn run(name: &str, tables: &str, through: &str) -> (PathBuf, Value) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    // 20,000 packets in a second, of 60 bytes and more.
    let file = format!(
        "[port.lan]\ndriver = \"generator\"\npackets = 20_000\nrate = \"20 kpps\"\nflows = 8\n\
         [port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n{tables}\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"wan\"\n"
    );
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json"])
        .current_dir(&directory)
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (directory, serde_json::from_slice(&output.stdout).expect("one JSON value"))
}

/// The time (ns) and the bytes of each packet of a capture.
fn packets(directory: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(directory.join("out.pcap")).expect("the run wrote it");
    let number = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let unit = if number(0) == 0xa1b2_3c4d { 1 } else { 1_000 };
    let mut at = 24;
    let mut packets = Vec::new();
    while at < bytes.len() {
        packets.push((number(at) * 1_000_000_000 + number(at + 4) * unit, number(at + 12)));
        at += 16 + number(at + 8) as usize;
    }
    packets
}

fn node<'r>(report: &'r Value, name: &str) -> &'r Value {
    let nodes = report["nodes"].as_array().expect("a list");
    nodes.iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("no `{name}`: {report}"))
}

#[test]
fn what_leaves_a_shaper_keeps_to_its_rate_and_burst_and_uses_all_of_it() {
    for discipline in ["fifo", "codel", "fq", "fq-codel"] {
        let tables = format!(
            "[function.shape]\nuse = \"shaper\"\nrate = \"4 Mbit/s\"\nburst = 3_000\nqueue = 500\ndiscipline = \"{discipline}\"\n\
             [function.police]\nuse = \"policer\"\ncir = \"4 Mbit/s\"\ncbs = 3_500\ncount = \"frame\"\n"
        );
        let (directory, report) = run(&format!("shaping-{discipline}"), &tables, "\"shape\", \"police\"");
        assert_eq!(
            node(&report, "police")["dropped"].as_object().map_or(0, |dropped| dropped.len()),
            0,
            "{report}"
        );
        let left = packets(&directory);
        assert!(left.len() > 1_000 && left.len() < 20_000, "{discipline}: {}", left.len());
        // No interval has more than the burst and what the rate brings, at the grain of the capture's clock.
        let (mut room, mut before) = (3_000.0 * 8e9, left[0].0);
        for (time, bytes) in &left {
            assert!(*time >= before, "{discipline}: the clock of the capture goes back");
            room = (room + 4e6 * (time - before) as f64).min(3_000.0 * 8e9) - *bytes as f64 * 8e9;
            before = *time;
            assert!(room >= -4e6 * 2_000.0, "{discipline}: {} bytes too many at {time}", -room / 8e9);
        }
        // It never rests while packets wait: they come faster than the rate.
        let bytes: u64 = left.iter().map(|(_, bytes)| bytes).sum();
        let took = (left[left.len() - 1].0 - left[0].0) as f64 / 1e9;
        let rate = (bytes - 3_000) as f64 * 8.0 / took;
        assert!((rate / 4e6 - 1.0).abs() < 0.01, "{discipline}: {rate} bit/s");
        let dropped = node(&report, "shape")["dropped"].as_object().expect("reasons").values();
        let dropped: u64 = dropped.filter_map(Value::as_u64).sum();
        assert_eq!(left.len() as u64 + dropped, 20_000, "{discipline}");
    }
}

#[test]
fn a_policer_passes_its_rate_by_the_clock_of_the_arrivals() {
    let tables = "[function.police]\nuse = \"policer\"\ncir = \"2 Mbit/s\"\ncbs = 3_000\ncount = \"frame\"\n";
    let (directory, report) = run("policing", tables, "\"police\"");
    let left = packets(&directory);
    let bytes: u64 = left.iter().map(|(_, bytes)| bytes).sum();
    // The burst, and a second less the last packet at 2 Mbit/s.
    assert!((252_000..=253_000).contains(&bytes), "{bytes}");
    let dropped = node(&report, "police")["dropped"]["rate-limited"].as_u64();
    assert_eq!(left.len() as u64 + dropped.unwrap_or(0), 20_000);
}
