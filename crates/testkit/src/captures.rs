//! Real captures, if there are any: in `NETBRICKS_CAPTURES`, or `../shared/captures` beside the checkout.

use std::fs::File;
use std::path::{Path, PathBuf};

use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

/// All capture files, sorted; empty if there are none, and then a test must say that it was skipped.
pub fn files() -> Vec<PathBuf> {
    let folder = std::env::var_os("NETBRICKS_CAPTURES")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures"));
    let mut files = Vec::new();
    collect(&folder, &mut files);
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "pcap" || end == "pcapng") {
            files.push(path);
        }
    }
}

/// All frames of a pcap or pcapng file, in order, as far as it can be read.
///
/// Link types are ignored, since tests take any bytes.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    records(path).into_iter().map(|(frame, _)| frame).collect()
}

/// As [`frames`], each with the bytes that it had on the wire.
pub fn records(path: &Path) -> Vec<(Vec<u8>, usize)> {
    let mut frames = Vec::new();
    let Ok(Ok(mut reader)) = File::open(path).map(|file| create_reader(1 << 18, file)) else { return frames };
    loop {
        match reader.next() {
            Ok((size, block)) => {
                match block {
                    PcapBlockOwned::Legacy(packet) => {
                        frames.push((packet.data.to_vec(), packet.origlen as usize));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        frames.push((packet.data.to_vec(), packet.origlen as usize));
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        frames.push((packet.data.to_vec(), packet.origlen as usize));
                    }
                    _ => {}
                }
                reader.consume(size);
            }
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() || reader.reader_exhausted() {
                    return frames;
                }
            }
            // The end, or bytes that are no capture any more.
            Err(_) => return frames,
        }
    }
}

/// Writes a classic capture of Ethernet frames, all at time 0, and returns their number.
///
/// The capture has magic 0xa1b2c3d4, version 2.4 and link type 1.
///
/// # Panics
/// When the file cannot be written.
pub fn write<F: AsRef<[u8]>>(path: &Path, frames: impl IntoIterator<Item = F>) -> usize {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    let mut count = 0;
    for frame in frames {
        let size = frame.as_ref().len() as u32;
        for word in [0, 0, size, size] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame.as_ref());
        count += 1;
    }
    if let Err(error) = std::fs::write(path, bytes) {
        panic!("{} cannot be written: {error}", path.display());
    }
    count
}
