//! Wireshark's opinion of frames: which of them are malformed.

use std::path::Path;
use std::process::Command;

use netbricks_testkit::captures;

/// Whether `tshark` is installed; prints a line if it is not.
pub(crate) fn is_installed() -> bool {
    let installed =
        Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !installed {
        eprintln!("skipped: tshark is not installed (Debian package `tshark`)");
    }
    installed
}

/// Wireshark's opinion of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opinion {
    /// Whether some header in it, or in its payload, is malformed.
    pub(crate) malformed: bool,
    /// Whether it is an ICMP or ICMPv6 error, which quotes a packet.
    pub(crate) quotes: bool,
    /// Whether its own IPv4 and ICMP checksums are right, if it has them.
    pub(crate) sound: bool,
    /// The protocols in it.
    pub(crate) protocols: String,
}

/// Writes Ethernet frames to a capture and returns Wireshark's opinion of each.
///
/// Analysis across frames is switched off, so each frame is judged by itself.
pub(crate) fn opinions<'f>(path: &Path, frames: impl IntoIterator<Item = &'f [u8]>) -> Vec<Opinion> {
    let count = captures::write(path, frames);
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(path).args(["-T", "fields", "-E", "occurrence=f"]);
    for option in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
        "tcp.analyze_sequence_numbers:FALSE",
        "ip.check_checksum:TRUE",
    ] {
        command.args(["-o", option]);
    }
    let fields = [
        "frame.number",
        "_ws.malformed",
        "ip.checksum.status",
        "icmp.checksum.status",
        "icmpv6.checksum.status",
        "icmp.type",
        "icmpv6.type",
        "frame.protocols",
    ];
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts: it told its version");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<Opinion> = String::from_utf8_lossy(&output.stdout).lines().map(opinion).collect();
    assert_eq!(found.len(), count, "a line a frame");
    found
}

fn opinion(line: &str) -> Opinion {
    let columns: Vec<&str> = line.split('\t').collect();
    let [_, malformed, ip, icmp, icmpv6, kind, kind_v6, protocols] = columns[..] else {
        panic!("tshark answered something else than was asked: {line}")
    };
    let error = matches!(kind, "3" | "4" | "5" | "11" | "12") || matches!(kind_v6, "1" | "2" | "3" | "4");
    Opinion {
        malformed: !malformed.is_empty(),
        quotes: error,
        // 0 is wrong, 1 right, 2 not verified, 3 absent.
        sound: ip != "0" && [icmp, icmpv6].contains(&"1") && !["0"].contains(&icmp) && icmpv6 != "0",
        protocols: protocols.to_owned(),
    }
}
