//! Processes that are killed (SIGKILL) while they write captures: the written packets are in the file and can
//! be read.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netbricks_core::packet::build::ethernet;
use serde_json::Value;

const PACKETS: u32 = 5;

fn folder(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// A classic capture of packets at one time, and one packet a day later.
fn capture(file: &Path) {
    let mut bytes = Vec::new();
    bytes.extend(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2u16, 4].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0u32, 0, 65_535, 1].map(u32::to_le_bytes).as_flattened());
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 500]).build();
    let frame = frame.expect("a frame of usual size");
    for number in 0..=PACKETS {
        let seconds = 1_700_000_000 + number / PACKETS * 86_400;
        let length = frame.len() as u32;
        bytes.extend([seconds, number, length, length].map(u32::to_le_bytes).as_flattened());
        bytes.extend(&frame);
    }
    std::fs::write(file, bytes).expect("the directory can be written");
}

fn netbricks(directory: &Path, file: &str, chain: &str) -> Command {
    std::fs::write(directory.join(file), chain).expect("the directory can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_netbricks"));
    command.args(["run", file, "--json"]).current_dir(directory);
    command
}

/// Kills the process at the end, also when the test fails.
struct Killed(Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of packets that a run over a capture received, and its failures.
fn received(directory: &Path, capture: &str) -> (u64, String) {
    let chain = format!(
        "[port.a]\ndriver = \"pcap\"\nread = \"{capture}\"\n[port.b]\ndriver = \"null\"\n[[chain]]\nfrom = \"a\"\nto = \"b\"\n"
    );
    let output = netbricks(directory, "read.toml", &chain).output().expect("the binary was built");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (report["received"].as_u64().unwrap_or_default(), report["failures"].to_string())
}

/// A killed process leaves its written packets, in each format, plain and compressed, and in a capture beside
/// a port.
///
/// The process sleeps when it is killed: packets reach the file even if nothing comes after them.
#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let directory = folder("killed");
    capture(&directory.join("in.pcap"));
    let paced = "[port.a]\ndriver = \"pcap\"\nread = \"in.pcap\"\nreplay = \"real-time\"\n[[chain]]\nfrom = \"a\"\nto = \"b\"\n";
    for (name, port) in [
        ("out.pcap", "driver = \"pcap\"\nwrite = \"out.pcap\""),
        ("out.pcapng", "driver = \"pcap\"\nwrite = \"out.pcapng\""),
        ("out.pcap.gz", "driver = \"pcap\"\nwrite = \"out.pcap.gz\""),
        ("out.pcapng.gz", "driver = \"pcap\"\nwrite = \"out.pcapng.gz\""),
        ("beside.pcap", "driver = \"null\"\ncapture = \"beside.pcap\""),
    ] {
        std::fs::write(directory.join(name), b"an older capture").expect("the directory can be written");
        let chain = format!("{paced}[port.b]\n{port}\n");
        let mut command = netbricks(&directory, "write.toml", &chain);
        let child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary was built");
        let mut child = Killed(child);
        let partial = format!("{name}.partial");
        // The process is killed in any case: this bound is only for a very busy machine.
        let mut told = (0, String::new());
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(200));
            if directory.join(&partial).exists() {
                told = received(&directory, &partial);
                if told.0 == u64::from(PACKETS) {
                    break;
                }
            }
            assert!(child.0.try_wait().expect("it is a child").is_none(), "{name}: it ended by itself");
        }
        assert_eq!(told.0, u64::from(PACKETS), "{name}: {}", told.1);
        child.0.kill().expect("it runs");
        child.0.wait().expect("it is a child");
        let (packets, failures) = received(&directory, &partial);
        assert_eq!(packets, u64::from(PACKETS), "{name}: {failures}");
        // A compressed file ends in the middle, and its reader reports that.
        assert_eq!(failures == "[]", !name.ends_with(".gz"), "{name}: {failures}");
        let older = std::fs::read(directory.join(name)).expect("it is there");
        assert_eq!(older, b"an older capture", "{name} was given up before there was another");
    }
}

/// The next run of the same file reports the remaining capture, leaves it alone, and succeeds.
#[test]
fn the_next_run_says_what_a_killed_one_left() {
    let directory = folder("left-behind");
    capture(&directory.join("in.pcap"));
    let left = [b"the first".as_slice(), b"the second"];
    std::fs::write(directory.join("out.pcap.partial"), left[0]).expect("the directory can be written");
    std::fs::write(directory.join("out.pcap.partial.2"), left[1]).expect("the directory can be written");
    let chain = "[port.a]\ndriver = \"pcap\"\nread = \"in.pcap\"\n[port.b]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n\
                 [[chain]]\nfrom = \"a\"\nto = \"b\"\n";
    let output = netbricks(&directory, "again.toml", chain).output().expect("the binary was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for name in ["out.pcap.partial is a capture", "out.pcap.partial.2 is a capture"] {
        assert!(said.contains(name), "{said}");
    }
    assert_eq!(std::fs::read(directory.join("out.pcap.partial")).ok().as_deref(), Some(left[0]));
    assert_eq!(std::fs::read(directory.join("out.pcap.partial.2")).ok().as_deref(), Some(left[1]));
    assert!(!directory.join("out.pcap.partial.3").exists());
    assert_eq!(received(&directory, "out.pcap").0, u64::from(PACKETS) + 1);
}
