//! Real and hostile captures: every packet is printed without panic.
//!
//! Its headers are those that Wireshark finds. If there are no captures (`NETBRICKS_CAPTURES`, else
//! `../shared/captures` beside the repository), the test says so.

use std::path::{Path, PathBuf};

use netbricks_packet::print::{Dissection, dissect, dissect_ip};

use crate::{exercise, tshark};

fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folder = std::env::var_os("NETBRICKS_CAPTURES").map_or(beside, PathBuf::from);
    if !folder.is_dir() {
        eprintln!("skipped: no captures at {} (set NETBRICKS_CAPTURES)", folder.display());
        return None;
    }
    Some(folder)
}

/// Every capture in the folder and its folders.
fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "pcap") {
            found.push(path);
        }
    }
    found.sort();
}

/// The link type and the packets of a classic capture; `None` for another format.
fn read(path: &Path) -> Option<(u32, Vec<Vec<u8>>)> {
    let bytes = std::fs::read(path).unwrap();
    let swapped = match bytes.get(..4)? {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
        _ => return None,
    };
    let word = |at: usize| {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if swapped { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    let (link, mut at, mut packets) = (word(20)? & 0xffff, 24, Vec::new());
    while let Some(size) = word(at + 8) {
        let Some(packet) = bytes.get(at + 16..at + 16 + size as usize) else { break };
        packets.push(packet.to_vec());
        at += 16 + size as usize;
    }
    Some((link, packets))
}

const ETHERNET: u32 = 1;
const RAW_IP: [u32; 2] = [12, 101];

#[test]
fn every_packet_of_every_capture_is_printed() {
    let Some(folder) = folder() else { return };
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    let (mut packets, mut before) = (0, Vec::new());
    for path in &paths {
        let Some((_, frames)) = read(path) else { continue };
        for frame in frames {
            // Other link types are bytes like any other.
            exercise::printing(&frame);
            exercise::parsers(&frame);
            exercise::flow_key(&frame);
            exercise::changes(&before, &frame);
            (packets, before) = (packets + 1, frame);
        }
    }
    assert!(paths.is_empty() || packets > 0, "no packet in {} captures", paths.len());
    eprintln!("{packets} packets of {} captures", paths.len());
}

/// Whether Wireshark's list goes on where ours ends, and for a reason that is not a difference of opinion.
fn is_explained(ours: &Dissection<'_>, list: &str) -> bool {
    let (mine, theirs) = (tshark::names(ours), tshark::known(list));
    // Wireshark reads on in a header with a wrong length or whose packet was captured in part; for us it is
    // malformed.
    let stopped = ours.malformed().is_some();
    // A tunnel that we do not read, found by content and not by a port.
    let teredo = list.contains(":udp:teredo:") && mine.last() == Some(&"udp");
    // Wireshark shows a quoted header of which not all bytes are there, or make sense.
    let quote = mine.last().is_some_and(|name| name.starts_with("icmp"));
    theirs.starts_with(&mine) && (stopped || teredo || quote)
}

#[test]
fn wireshark_sees_the_same_headers_in_every_capture() {
    let Some(folder) = folder() else { return };
    if !tshark::is_installed() {
        return;
    }
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    let (mut same, mut explained, mut wrong) = (0, 0, Vec::new());
    for path in &paths {
        let Some((link, frames)) = read(path) else { continue };
        if link != ETHERNET && !RAW_IP.contains(&link) {
            continue;
        }
        let lines = tshark::fields(path, &["frame.protocols"]);
        for (i, (frame, line)) in frames.iter().zip(&lines).enumerate() {
            let ours = if link == ETHERNET { dissect(frame) } else { dissect_ip(frame) };
            if tshark::names(&ours) == tshark::known(line) {
                same += 1;
            } else if is_explained(&ours, line) {
                explained += 1;
            } else {
                let ours = tshark::names(&ours).join(":");
                wrong.push(format!("{} packet {}: {ours} but {line}", path.display(), i + 1));
            }
        }
    }
    eprintln!("{same} packets agree, {explained} differ for a reason that `is_explained` names");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(explained * 100 <= same, "{explained} excuses for {same} packets are too many");
}
