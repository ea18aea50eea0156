//! Packets larger than a packet buffer, with the default settings and beyond them.

use serde_json::Value;

use super::fixture::{Driver, Segment};

/// Two ports without functions.
const DEFAULTS: &str = "[port.left]\ndriver = \"af_packet\"\ndevice = \"b0\"\n[port.right]\ndriver = \"af_packet\"\n\
    device = \"b1\"\n[[chain]]\nfrom = \"left\"\nto = \"right\"\n[[chain]]\nfrom = \"right\"\nto = \"left\"\n";

/// Transfers 50 MB of TCP with each IP version.
fn stream(segment: &Segment) {
    let _server = segment.namespaces.start(
        "server",
        "iperf3",
        &["-s"],
        segment.file("iperf"),
        segment.file("iperf-errors"),
    );
    for address in ["10.0.0.2", "fd00::2"] {
        let line = format!("iperf3 -J -n 50M --connect-timeout 5000 -c {address}");
        netbricks_testkit::namespace::eventually("50 MB by iperf3", || {
            let output = segment.namespaces.attempt("client", &line);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            // Retry until the server listens; with -J the exit status is 0 in either case.
            output.status.success() && report.get("error").is_none()
        });
    }
}

#[test]
fn tcp_with_offloads_on_loses_nothing_with_the_defaults() {
    let Some(segment) = Segment::new("defaults", Driver::AfPacket, &["iperf3"]) else { return };
    let run = segment.start(DEFAULTS, &[]);
    segment.settle();
    stream(&segment);
    let report = run.finish();
    assert_eq!(report["dropped"], serde_json::json!({}), "{report}");
    assert!(!report["warnings"].to_string().contains("large_frames"), "{report}");
}

/// A jumbo frame that fits no buffer is reported once during the run, and in the final report.
#[test]
fn packets_that_no_buffer_takes_are_told_at_once_and_at_the_end() {
    let Some(segment) = Segment::new("oversized", Driver::AfPacket, &["ping"]) else { return };
    for (role, device) in [("client", "c0"), ("middle", "b0"), ("middle", "b1"), ("server", "s0")] {
        segment.namespaces.run(role, &format!("ip link set {device} mtu 9000"));
    }
    let small = format!("{DEFAULTS}[runtime]\nlarge_frames = 0\n");
    let run = segment.start(&small, &[]);
    segment.settle();
    let told = |said: &str| said.matches("left: arrivals are dropped as too-big").count();
    for _ in 0..2 {
        let line = "ping -q -c 2 -i 0.02 -W 1 -s 8000 10.0.0.2";
        assert!(!segment.namespaces.attempt("client", line).status.success());
        netbricks_testkit::namespace::eventually("the warning", || told(&run.said()) == 1);
    }
    let report = run.finish();
    assert_eq!(report["dropped"], serde_json::json!({"too-big": 4}), "{report}");
    assert_eq!(report["ports"][0]["too_big_to_receive"], 4, "{report}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("left: 4 arrivals dropped as too-big"), "{report}");

    // `check` and `run` know before the run which packets do not fit.
    let file = segment.directory.join("run.toml");
    let check = |role: &str, text: &str| {
        std::fs::write(&file, text).expect("the directory can be written");
        let line = format!("{} check {} --color never", env!("CARGO_BIN_EXE_netbricks"), file.display());
        let output = segment.namespaces.attempt(role, &line);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (code, said) = check("middle", &small);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("the largest packet buffer takes 1792").count(), 2, "{said}");
    let (_, said) = check("middle", DEFAULTS);
    assert!(said.contains("512 packet buffers of 68 KiB"), "{said}");
    assert!(!said.contains("warning"), "{said}");
}

/// One interface at two ports is an error, with all its names and drivers.
#[test]
fn two_names_of_one_interface_are_an_error() {
    let Some(segment) = Segment::new("twice", Driver::AfPacket, &[]) else { return };
    segment.namespaces.run("middle", "ip link property add dev b0 altname uplink0");
    let file = segment.directory.join("run.toml");
    for driver in ["af_packet", "af_xdp"] {
        for command in ["check", "run"] {
            let text =
                DEFAULTS.replace("af_packet\"\ndevice = \"b1", &format!("{driver}\"\ndevice = \"uplink0"));
            std::fs::write(&file, text).expect("the directory can be written");
            let line =
                format!("{} {command} {} --color never", env!("CARGO_BIN_EXE_netbricks"), file.display());
            let output = segment.namespaces.attempt("middle", &line);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("b0 and uplink0 are two names of one"), "{said}");
            assert!(said.contains("run.toml:6:10") && said.contains("3 | device"), "{said}");
        }
    }
}

/// A veth's other end leaves checksums incomplete: `check` and the report warn of it.
#[test]
fn af_xdp_on_a_veth_is_warned_of_before_and_after() {
    let Some(segment) = Segment::new("unfinished", Driver::AfXdp, &["ping"]) else { return };
    let text = DEFAULTS.replace("af_packet", "af_xdp");
    let file = segment.directory.join("check.toml");
    std::fs::write(&file, &text).expect("the directory can be written");
    let line = format!("{} check {} --color never", env!("CARGO_BIN_EXE_netbricks"), file.display());
    let said = segment.namespaces.attempt("middle", &line);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.matches("leaves checksums unfinished").count(), 2, "{said}");
    let line =
        format!("{} run {} --duration 1s --color never", env!("CARGO_BIN_EXE_netbricks"), file.display());
    let report = segment.namespaces.run("middle", &line);
    for device in ["left: b0", "right: b1"] {
        assert!(
            report.contains(&format!("{device} is a veth: its other end leaves checksums unfinished")),
            "{report}"
        );
    }
    let run = segment.start(&text, &[]);
    let report = run.finish();
    assert_eq!(report["warnings"].to_string().matches("leaves checksums unfinished").count(), 2, "{report}");
}
