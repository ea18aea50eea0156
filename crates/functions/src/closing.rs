//! The segments that close a TCP connection, as far as a receiver would take them.
//!
//! A function that believes any FIN or reset forgets connections that go on. Anyone can send a segment with a signature
//! for which no receiver has keys, or with a wrong checksum.

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::tcp_options::Signature;
use netbricks_core::packet::{IpRef, protocol};

/// The offset of the checksum in a TCP header (RFC 9293, section 3.1).
const CHECKSUM: usize = 16;

/// The flags of a TCP segment, without FIN and RST where no receiver without keys takes it.
///
/// `header` and `payload` are of the packet in `frame`, which is no later fragment.
pub(crate) fn believed_flags(header: IpRef<'_>, payload: &[u8], frame: &Bytes<'_>) -> u8 {
    const CLOSES: u8 = flags::FIN | flags::RST;
    let Some([offset, found]) = payload.get(12..14) else { return 0 };
    if found & CLOSES == 0 {
        return *found;
    }
    let options = payload.get(20..usize::from(offset >> 4) * 4).unwrap_or_default();
    let is_believed = Signature::of(options) == Signature::None && is_intact(header, payload, frame);
    if is_believed { *found } else { found & !CLOSES }
}

/// Whether a segment arrived as it was sent, as far as that can be known.
fn is_intact(header: IpRef<'_>, segment: &[u8], frame: &Bytes<'_>) -> bool {
    let offload = frame.offload();
    if offload.needs_checksum || offload.checksum_valid || frame.missing() > 0 {
        return true;
    }
    if header.transport_checksum_is_valid(segment) != Some(false) {
        return true;
    }
    // A capture does not say that the checksum was left to a device: the field then holds the pseudo-header's sum.
    let stored = segment.get(CHECKSUM..CHECKSUM + 2).map(|field| u16::from_be_bytes([field[0], field[1]]));
    frame.is_captured()
        && stored == Some(header.pseudo_header().sum(protocol::TCP, segment.len() as u32).fold())
}
