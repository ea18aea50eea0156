//! Fields that depend on the whole packet: lengths and checksums, written from the innermost header outwards.

use super::{BuildError, Placed};
use crate::checksum;
use crate::ip::IpRef;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::protocol_table::Protocol;
use crate::pseudo::PseudoHeader;
use crate::stack::Header;

/// Fills in every length and checksum of a packet that ends where `frame` does, and whose headers take `headers` bytes.
pub(super) fn finish(frame: &mut [u8], headers: usize, layers: &[Placed]) -> Result<(), BuildError> {
    for (i, layer) in layers.iter().enumerate().rev() {
        let (outside, packet) = frame.split_at_mut(layer.at);
        let end = layers.get(i + 1).map_or(headers, |inner| inner.at) - layer.at;
        let total = packet.len();
        let header = &mut packet[..end];
        if let Some(uncounted) = layer.protocol.uncounted(header) {
            let (bytes, most) = (total - uncounted, usize::from(u16::MAX));
            if bytes > most {
                return Err(BuildError::TooLong { header: layer.protocol.name(), bytes, most });
            }
            layer.protocol.set_total(header, total);
        }
        match layer.protocol {
            Protocol::Ipv4 => Ipv4::view_mut(header, ()).refresh_checksum(),
            // Only if the flag announces a checksum; RFC 2637's GRE has a length at that place.
            Protocol::Gre if packet[0] & 0x80 != 0 => {
                let sum = checksum::internet(packet);
                packet[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            _ if layer.unchecked => {}
            other => {
                let pseudo =
                    layers[..i].last().and_then(|outer| pseudo_header(outside.get(outer.at..)?, outer));
                if let (Some(number), Some(pseudo)) = (other.checksummed_number(), pseudo) {
                    transport(packet, pseudo, number);
                }
            }
        }
    }
    Ok(())
}

/// The pseudo-header of a packet with this header, if the header is IP.
///
/// All of the header's bytes exist, but the lengths in them are not set yet.
fn pseudo_header(header: &[u8], outer: &Placed) -> Option<PseudoHeader> {
    let ip = match outer.protocol {
        Protocol::Ipv4 => IpRef::V4(Ipv4::view(header, ())),
        Protocol::Ipv6 => IpRef::V6(Ipv6::whole_header(header)),
        _ => return None,
    };
    Some(ip.pseudo_header())
}

/// Writes the checksum of a transport segment, whose checksum field is still zero.
fn transport(segment: &mut [u8], pseudo: PseudoHeader, number: u8) {
    if let Some(at) = checksum::field_offset(number) {
        let sum = pseudo.checksum(number, segment);
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}
