//! Replays of different lengths on several workers: flows are forgotten as on a single worker.

use std::path::Path;
use std::process::Command;

use netbricks_core::packet::build::ethernet;
use serde_json::Value;

const FLOWS: u16 = 64;
/// The time at which the captures begin, in seconds.
const BEGIN: u32 = 1_700_000_000;

/// A packet of a flow.
fn frame(flow: u16) -> Vec<u8> {
    let built = ethernet().ipv4("10.0.0.1", "10.9.8.7").udp(1_000 + flow, 53).payload(&[0; 18]).build();
    built.expect("a frame of usual size")
}

/// A classic capture of Ethernet frames (magic 0xa1b2c3d4, version 2.4, link type 1), each with its second.
fn capture(file: &Path, packets: impl IntoIterator<Item = (u32, Vec<u8>)>) {
    let mut bytes = Vec::new();
    bytes.extend(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2u16, 4].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0u32, 0, 65_535, 1].map(u32::to_le_bytes).as_flattened());
    for (second, frame) in packets {
        let length = frame.len() as u32;
        bytes.extend([second, 0, length, length].map(u32::to_le_bytes).as_flattened());
        bytes.extend(frame);
    }
    std::fs::write(file, bytes).expect("the directory can be written");
}

/// One capture goes through a shuffle and lasts a minute; the other does not and lasts a second.
///
/// Of each flow, only the packets at the end are remembered, because the flow was silent for too long before
/// them.
#[test]
fn flows_are_forgotten_on_a_worker_whose_own_capture_has_ended() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clocks");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    // A burst of 7 packets a flow after 10 s, which fills rings, and one of 2 at the end.
    let bursts = [(10, 7), (30, 3), (60, 2)];
    let long = bursts.into_iter().flat_map(|(second, packets)| {
        (0..packets).flat_map(move |_| (0..FLOWS).map(move |flow| (BEGIN + second, frame(flow))))
    });
    capture(&directory.join("long.pcap"), long);
    capture(&directory.join("short.pcap"), (0..100).map(|packet| (BEGIN + packet / 100, frame(0))));
    let file = "[port.long]\ndriver = \"pcap\"\nread = \"long.pcap\"\n\
                [port.short]\ndriver = \"pcap\"\nread = \"short.pcap\"\n[port.out]\ndriver = \"null\"\n\
                [function.flows]\nuse = \"monitor\"\nidle = \"5 s\"\ntop = 1_000\n\
                [[chain]]\nfrom = \"long\"\nthrough = [\"shuffle\", \"flows\"]\nto = \"out\"\n\
                [[chain]]\nfrom = \"short\"\nto = \"out\"\n";
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    for (workers, burst) in [("1", "32"), ("2", "1"), ("2", "32"), ("2", "256"), ("3", "32")] {
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["run", "f.toml", "--json", "--workers", workers, "--burst", burst])
            .current_dir(&directory)
            .output()
            .expect("the binary was built for this test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["workers"].to_string(), workers);
        assert_eq!(report["sent"], 100 + 12 * u64::from(FLOWS), "{report}");
        let flows = report["sections"][0]["rows"].as_array().expect("a list");
        assert_eq!(flows.len(), usize::from(FLOWS), "{workers} workers, bursts of {burst}");
        for flow in flows {
            assert_eq!(flow[1], "2", "{workers} workers, bursts of {burst}: {flow}");
        }
    }
}
