//! Wireshark's reading of built packets: nothing malformed, no bad checksum, and the same headers in the same
//! order.
//!
//! If `tshark` is not installed, the test says so and ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_packet::print::{Dissection, Protocol, dissect};

use crate::kinds::every_kind;

/// Whether `tshark` can be asked.
pub(crate) fn is_installed() -> bool {
    let installed =
        Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !installed {
        eprintln!("skipped: tshark is not installed (Debian package `tshark`)");
    }
    installed
}

/// One line a packet of a capture, the fields separated by tabs.
pub(crate) fn fields(capture: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(capture).args(["-T", "fields", "-E", "occurrence=f"]);
    // Reassembly would show the last fragment's headers as those of the whole packet.
    for option in ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE"] {
        command.args(["-o", option]);
    }
    for option in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts: it told its version");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Writes a classic capture of Ethernet frames (magic 0xa1b2c3d4, version 2.4, link type 1).
fn write_capture(path: &Path, packets: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for packet in packets {
        let size = packet.len() as u32;
        for word in [0, 0, size, size] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    std::fs::write(path, bytes).unwrap();
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("netbricks-packet-{}-{name}.pcap", std::process::id()))
}

/// Wireshark's name of a header, where it has one in `frame.protocols`.
pub(crate) fn wireshark_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Ethernet => "eth",
        Protocol::Vlan => "vlan",
        Protocol::Mpls => "mpls",
        Protocol::Pppoe => "pppoes",
        Protocol::Ppp => "ppp",
        Protocol::Arp => "arp",
        Protocol::Ipv4 => "ip",
        Protocol::Ipv6 => "ipv6",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmpv4 => "icmp",
        Protocol::Icmpv6 => "icmpv6",
        Protocol::Gre => "gre",
        Protocol::Vxlan => "vxlan",
        Protocol::Geneve => "geneve",
        Protocol::Gtpu => "gtp",
    }
}

/// The headers found, by Wireshark's names. Headers in the packet that an ICMP error quotes are included.
///
/// A stack of labels is one entry.
pub(crate) fn names(dissection: &Dissection<'_>) -> Vec<&'static str> {
    let mut names: Vec<_> = dissection
        .layers()
        .map(|layer| match layer.protocol {
            Protocol::Pppoe if layer.value("code") != Some(0) => "pppoed",
            protocol => wireshark_name(protocol),
        })
        .collect();
    names.dedup_by(|next, before| (*next, *before) == ("mpls", "mpls"));
    names
}

/// Wireshark's list, reduced to the headers that this crate reads.
///
/// Extension headers are part of IPv6 here, and 802.1ad tags are tags.
pub(crate) fn known(list: &str) -> Vec<&str> {
    let names = list.split(':').map(|name| if name == "ieee8021ad" { "vlan" } else { name });
    let read =
        ["eth", "vlan", "mpls", "pppoes", "ppp", "arp", "ip", "ipv6", "tcp", "udp", "icmp", "icmpv6", "gre"];
    names.filter(|name| read.contains(name) || ["pppoed", "vxlan", "geneve", "gtp"].contains(name)).collect()
}

#[test]
fn wireshark_agrees_with_every_built_packet() {
    if !is_installed() {
        return;
    }
    let packets = every_kind();
    let capture = temporary("kinds");
    write_capture(&capture, &packets.iter().map(|(_, packet)| packet.clone()).collect::<Vec<_>>());
    let lines = fields(
        &capture,
        &[
            "frame.protocols",
            "_ws.malformed",
            "ip.checksum.status",
            "tcp.checksum.status",
            "udp.checksum.status",
            "icmp.checksum.status",
            "icmpv6.checksum.status",
            "_ws.expert.message",
        ],
    );
    std::fs::remove_file(&capture).unwrap();
    assert_eq!(lines.len(), packets.len());
    for ((name, packet), line) in packets.iter().zip(&lines) {
        let mut columns = line.split('\t');
        let list = columns.next().unwrap();
        assert_eq!(names(&dissect(packet)), known(list), "{name}: {list}");
        assert_eq!(columns.next(), Some(""), "{name} is malformed: {line}");
        for status in columns.by_ref().take(5) {
            // 0 is bad; 1 good, 2 unverified (quoted or cut), 3 not present.
            assert_ne!(status, "0", "{name} has a bad checksum: {line}");
        }
        let message = columns.next().unwrap_or_default().to_lowercase();
        for word in ["malformed", "bad checksum", "incorrect", "invalid", "bogus", "exceeds"] {
            assert!(!message.contains(word), "{name}: {message}");
        }
    }
}
