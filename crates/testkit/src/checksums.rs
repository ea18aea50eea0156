//! The checksum oracle: computes every checksum of a frame word by word, as in RFC 1071.
//!
//! It shares nothing with the checksum arithmetic of the packet crate, and takes only the places of headers from there.

use netbricks_core::packet::print::{DissectedLayer, Protocol, dissect};

/// The Internet checksum of these pieces, each of an even length but for the last (RFC 1071, section 4.1).
pub fn internet(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for piece in pieces {
        for pair in piece.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !(sum as u16)
}

/// Every wrong IPv4, TCP, UDP, ICMP and ICMPv6 checksum of the frame, by the header's name and offset.
///
/// Fragments and quoted packets have no transport checksum that could be checked.
pub fn wrong(frame: &[u8]) -> Vec<String> {
    let dissection = dissect(frame);
    let mut wrong = Vec::new();
    let mut enclosing: Option<&DissectedLayer<'_>> = None;
    for layer in dissection.layers().filter(|layer| !layer.quoted) {
        let bytes = match layer.protocol {
            Protocol::Ipv4 => vec![layer.bytes.to_vec()],
            Protocol::Tcp | Protocol::Udp | Protocol::Icmpv4 | Protocol::Icmpv6 => match enclosing {
                Some(ip) => covered(frame, ip, layer),
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        let pieces: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        if !pieces.is_empty() && internet(&pieces) != 0 {
            wrong.push(format!("{} at {}", layer.name(), layer.offset));
        }
        if matches!(layer.protocol, Protocol::Ipv4 | Protocol::Ipv6) {
            enclosing = Some(layer);
        }
    }
    wrong
}

/// The pseudo-header and the segment; nothing where there is no checksum or not all that it covers.
fn covered(frame: &[u8], ip: &DissectedLayer<'_>, layer: &DissectedLayer<'_>) -> Vec<Vec<u8>> {
    let v4 = ip.protocol == Protocol::Ipv4;
    let length = |name| ip.value(name).unwrap_or(0) as usize;
    let (end, fragment) = match v4 {
        true => (
            ip.offset + length("total_length"),
            ip.value("fragment_offset") != Some(0) || ip.flag("more_fragments"),
        ),
        false => (ip.offset + 40 + length("payload_length"), ip.bytes.len() > 40 && ip.bytes[6] == 44),
    };
    let Some(segment) = frame.get(layer.offset..end) else { return Vec::new() };
    let unchecked = v4 && layer.protocol == Protocol::Udp && segment.get(6..8) == Some(&[0, 0]);
    if fragment || unchecked {
        return Vec::new();
    }
    let (number, addresses) = (layer.protocol, if v4 { &ip.bytes[12..20] } else { &ip.bytes[8..40] });
    let number = match number {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Icmpv4 => return vec![segment.to_vec()],
        _ => 58,
    };
    let mut pseudo = addresses.to_vec();
    pseudo.extend((segment.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, number]);
    vec![pseudo, segment.to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_packets_are_right_and_a_changed_byte_is_found() {
        for (name, mut frame) in crate::kinds::every() {
            assert_eq!(wrong(&frame), Vec::<String>::new(), "{name}");
            if name == "udp v4" || name == "tcp v6" {
                let last = frame.len() - 1;
                frame[last] ^= 0x40;
                assert_eq!(wrong(&frame).len(), 1, "{name}");
            }
        }
        let mut frame = crate::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).build().unwrap();
        frame[22] -= 1;
        assert_eq!(wrong(&frame), ["ipv4 at 14"]);
    }
}
