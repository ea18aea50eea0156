//! `capture`: the next packets that match, into a file or a pipe.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use super::arguments::CaptureArguments;
use super::waiting::{each, filter};
use super::{Api, Failure, Output, Trouble};
use crate::report::counted;

/// The most bytes that a block's type and length take (pcapng, section 3.1).
const HEADER: usize = 8;
/// The type of an Enhanced Packet Block (pcapng, section 4.3).
const PACKET: u32 = 6;

/// The capture that was written, as `--json` prints it.
#[derive(Serialize)]
struct Written<'a> {
    file: &'a str,
    packets: u64,
    bytes: u64,
}

/// Counts the packets of a pcapng stream in little-endian order, which the dataplane writes.
#[derive(Default)]
struct PacketCount {
    packets: u64,
    /// The begin of a block that has not all arrived.
    header: Vec<u8>,
    /// Bytes of the current block that are yet to come.
    left: usize,
}

impl PacketCount {
    fn add(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let skipped = self.left.min(piece.len());
            self.left -= skipped;
            piece = &piece[skipped..];
            let missing = (HEADER - self.header.len()).min(piece.len());
            self.header.extend_from_slice(&piece[..missing]);
            piece = &piece[missing..];
            let Some((kind, length)) = self.header.split_first_chunk::<4>() else { continue };
            let Ok(length) = <[u8; 4]>::try_from(length) else { continue };
            self.packets += u64::from(u32::from_le_bytes(*kind) == PACKET);
            self.left = (u32::from_le_bytes(length) as usize).saturating_sub(HEADER);
            self.header.clear();
        }
    }
}

pub(super) fn capture(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &CaptureArguments,
) -> Result<(), Trouble> {
    let CaptureArguments { filter: words, at, count, snaplen, write, .. } = arguments;
    let filter = filter(output, words)?;
    let to_output = write == Path::new("-");
    if to_output && std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "a terminal shows no capture: name a file with `-w FILE`, or pipe it: `-w - | tshark -r -`"
                .into(),
        )
        .into());
    }
    let pieces = api.capture(&filter, at.as_deref(), *count, *snaplen)?;
    let failed = |error: std::io::Error| Failure::Failed(format!("`{}`: {error}", write.display()));
    let mut file = if to_output { None } else { Some(File::create(write).map_err(failed)?) };
    let (mut bytes, mut count) = (0u64, PacketCount::default());
    let copied = each(output, pieces, |output, piece: Vec<u8>| {
        bytes += piece.len() as u64;
        count.add(&piece);
        match &mut file {
            Some(file) => file.write_all(&piece).map_err(failed),
            None => output.write(&piece),
        }
    });
    match copied {
        // The reader has seen enough.
        Err(Trouble::Failure(Failure::Closed)) => Ok(()),
        Err(trouble) => Err(trouble),
        // The capture itself is the output.
        Ok(()) if file.is_none() => Ok(()),
        Ok(()) if arguments.plain.json => {
            let file = &*write.to_string_lossy();
            Ok(output.json(&Written { file, packets: count.packets, bytes })?)
        }
        Ok(()) => {
            let packets = counted(count.packets as usize, "packet");
            output.tell(&format!("{packets}, {bytes} bytes in {}\n", write.display()));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_in_pieces_of_any_size() {
        let block = |kind: u32, bytes: usize| {
            let length = (bytes + 12) as u32;
            [&kind.to_le_bytes()[..], &length.to_le_bytes(), &vec![6; bytes], &length.to_le_bytes()].concat()
        };
        let stream = [block(0x0a0d_0d0a, 16), block(1, 8), block(6, 64), block(5, 12), block(6, 0)].concat();
        for size in [1, 3, 8, 21, stream.len()] {
            let mut count = PacketCount::default();
            stream.chunks(size).for_each(|piece| count.add(piece));
            assert_eq!((count.packets, count.left), (2, 0), "pieces of {size}");
        }
    }
}
