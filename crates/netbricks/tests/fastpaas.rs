//! The figures of `bench/fastpaas` at a tiny size: each runs and loses no packet. Nothing here asserts on time.

#[path = "../benches/fastpaas/batches.rs"]
mod batches;
#[path = "../benches/fastpaas/chains.rs"]
mod chains;
#[path = "../benches/fastpaas/endless.rs"]
mod endless;
#[path = "../benches/fastpaas/modes.rs"]
mod modes;
#[path = "../benches/fastpaas/quiet.rs"]
mod quiet;
#[path = "../benches/fastpaas/rust.rs"]
mod rust;
#[path = "../benches/fastpaas/traffic.rs"]
mod traffic;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use modes::Mode;
use netbricks_testkit::Frame;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::captures;

/// The folder of the compiled modules; `None` where this machine has no compiler for them.
fn compiled() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        for program in ["clang-19", "ld.lld-19", "wasm-ld-19", "make"] {
            if Command::new(program).arg("--version").output().is_err() {
                println!("skipped: there is no {program} to compile the figures' modules");
                return None;
            }
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fastpaas");
        std::fs::create_dir_all(&folder).expect("the folder of tests can be written");
        let output = Command::new("make")
            .arg("-C")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/fastpaas/c"))
            .arg(format!("OUT={}", folder.display()))
            .output()
            .expect("make was there before");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(folder)
    });
    folder.as_deref()
}

#[test]
fn each_function_does_the_same_in_each_mode() {
    let Some(modules) = compiled() else { return };
    let plan = modes::Plan {
        modules: modules.into(),
        functions: modes::FUNCTIONS.to_vec(),
        bursts: vec![modes::BURSTS[0], modes::BURSTS[2]],
        routes: 300,
        rounds: 1,
        passes: 1,
        core: None,
    };
    let rows = modes::run(&plan).unwrap();
    assert_eq!(rows.len(), 5 * 2 * 6);
    for of_burst in rows.chunks(6) {
        assert!(of_burst.iter().map(|row| row.mode).eq(Mode::ALL));
        for row in of_burst {
            let name = format!("{} {:?} at bursts of {}", row.function, row.mode, row.burst);
            assert_eq!((row.packets, row.dropped, row.times.len()), (2 * 4_096, 0, 1), "{name}");
            // Where C writes the next hop into the frame, the library's function annotates the packet.
            if row.mode != Mode::Rust || row.function != "lpm" {
                assert!(row.frames == of_burst[0].frames, "{name}");
            }
        }
        let changed = of_burst[0].frames.iter().any(|frame| frame[..26] != traffic::frame()[..26]);
        assert_eq!(changed, of_burst[0].function != "policer");
    }
    assert_eq!(modes::csv(&rows).lines().count(), 1 + rows.len());
}

#[test]
fn every_chain_brings_all_packets_through() {
    let plan = chains::Plan {
        modules: compiled().map(Into::into),
        cores: netbricks_runtime::allowed_cores(),
        lengths: vec![1, 3],
        routes: 300,
        rounds: 1,
        packets: 20_001,
    };
    let rows = chains::run(&plan).unwrap();
    assert_eq!(rows.len(), 2 * if plan.modules.is_some() { 5 } else { 2 });
    assert!(rows.iter().all(|row| row.packets == 20_001 && row.rates.len() == 1));
    assert_eq!(chains::csv(&rows).lines().count(), 1 + rows.len());
}

#[test]
fn the_batches_of_each_series_hold_the_whole_trace() {
    let trace = batches::seeded(30_000);
    let rows = batches::run(&trace).unwrap();
    assert_eq!(rows.len(), 2 * 8);
    // A tenant of which 64 rules leave nothing goes by the hash: with room for all, batches have fewer tenants.
    let mean = |series: &str| {
        let counts = &rows.iter().find(|row| row.by == "source" && row.series == series).unwrap().counts;
        let batches: u64 = counts.tenants.values().sum();
        counts.tenants.iter().map(|(tenants, times)| *tenants as u64 * times).sum::<u64>() as f64
            / batches as f64
    };
    let [few, many, hash] = ["filters-af_packet-8", "filters-af_xdp-8", "rss-8"].map(mean);
    assert!(many < few && few < hash, "{many} {few} {hash}");
    for row in &rows {
        assert_eq!(row.counts.packets(), 30_000, "{} {}", row.by, row.series);
        let most = *row.counts.tenants.keys().next_back().unwrap();
        match row.series.as_str() {
            // The tenants behind the 1,000th share a queue.
            "demultiplexer-1024" => assert!(row.counts.tenants[&1] > 100),
            "one-queue" | "rss-8" => assert!(most > 20, "{most}"),
            _ => {}
        }
    }
    // What follows from the trace alone is the same in each run.
    let again = batches::run(&batches::seeded(30_000)).unwrap();
    for (row, again) in rows.iter().zip(&again).filter(|(row, _)| !row.series.starts_with("demultiplexer")) {
        assert_eq!((&row.counts.tenants, &row.counts.each), (&again.counts.tenants, &again.counts.each));
    }
    assert!(batches::csv(&rows).starts_with("count,tenant_by,series,value,share\ntenants,source,one-queue,"));
}

#[test]
fn a_capture_is_divided_by_a_file_of_prefixes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (capture, prefixes) = (folder.join("fastpaas.pcap"), folder.join("fastpaas-prefixes"));
    let frame = |source: &str, destination: &str| {
        ethernet().ipv4(source, destination).udp(1, 2).payload(b"x").bytes()
    };
    let v6 = ethernet().ipv6("2001:db8:1::1", "2001:db8:2::1").udp(1, 2).payload(b"x").bytes();
    let frames =
        [frame("10.1.0.1", "10.2.0.1"), frame("10.1.9.1", "10.2.0.1"), v6, frame("10.1.0.1", "192.0.2.1")];
    captures::write(&capture, frames.iter().cycle().take(400));
    std::fs::write(
        &prefixes,
        "# a comment\n10.1.0.0/16 64500\n10.1.9.0/24 64501\n10.2.0.0\t16\t64502\n2001:db8:1::/48 64500\n2001:db8:2::/48 64502\n",
    )
    .unwrap();
    let trace = batches::captured(&capture, &prefixes).unwrap();
    let rows = batches::run(&trace).unwrap();
    let packets = rows[0].counts.packets();
    assert_eq!(packets, 300, "one destination of four has no system");
    let tenants = |by: &str| {
        let row = rows.iter().find(|row| (row.by, row.series.as_str()) == (by, "one-queue")).unwrap();
        row.counts.tenants.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!((tenants("source"), tenants("destination")), (vec![2], vec![1]));

    for (text, expected) in [
        ("10.1.0.0/16\n", "line 1: expected `PREFIX/LENGTH AS`, found `10.1.0.0/16`"),
        ("\n10.1.0.0/33 5\n", "line 2: expected an address and a length, found `10.1.0.0/33 5`"),
    ] {
        std::fs::write(&prefixes, text).unwrap();
        let said = batches::captured(&capture, &prefixes).err().unwrap();
        assert!(said.ends_with(expected), "{said}");
    }
}

#[test]
fn endless_loops_are_ended_and_no_packet_is_missing() {
    let Some(modules) = compiled() else { return };
    let times = endless::run(modules, 5, None).unwrap();
    assert_eq!((times.turns.len(), times.received), (5, 5 * 32));
    assert_eq!(times.preempted + times.quarantined, times.received);
    assert!(times.csv().starts_with("loops,median_us,median_ticks,"));
}

#[test]
fn a_quiet_tenant_and_seven_that_hog_lose_no_packet_unseen() {
    let Some(modules) = compiled() else { return };
    let plan = quiet::Plan { modules: modules.into(), seconds: 0.05, rounds: 1, core: None };
    let rows = quiet::run(&plan).unwrap();
    assert_eq!(
        rows.iter().map(|row| row.setup).collect::<Vec<_>>(),
        ["alone", "beside-7-not-demoted", "beside-7-busy", "beside-7-endless"]
    );
    for row in &rows {
        assert_eq!(row.packets + row.lost, 1_000, "{}", row.setup);
        assert_eq!(row.latencies.len(), 1);
        assert_eq!(row.hogs == (0, 0), row.setup == "alone");
    }
    assert_eq!(quiet::csv(&rows).lines().count(), 5);
}
