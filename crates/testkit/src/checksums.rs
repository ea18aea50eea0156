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

/// The pseudo-header and the segment; nothing if there is no checksum, or not all that it covers.
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
    let size = pseudo.len() / 2;
    if let Some(last) = if v4 { source_route(&ip.bytes[20..]) } else { final_segment(ip.bytes) } {
        pseudo[size..].copy_from_slice(last);
    }
    if let Some(home) = if v4 { None } else { home_address(ip.bytes) } {
        pseudo[..size].copy_from_slice(home);
    }
    pseudo.extend((segment.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, number]);
    vec![pseudo, segment.to_vec()]
}

/// The last address of a source route that is not completed.
///
/// The options are "Loose" and "Strict Source and Record Route" (RFC 791, section 3.1).
fn source_route(options: &[u8]) -> Option<&[u8]> {
    match options {
        [131 | 137, length, pointer, ..] if pointer <= length => {
            options.get(usize::from(*length) - 4..usize::from(*length))
        }
        [] | [0, ..] => None,
        [1, rest @ ..] => source_route(rest),
        [_, length, ..] => source_route(options.get(usize::from(*length).max(2)..)?),
        _ => None,
    }
}

/// The extension headers of an IPv6 header: the number of each, and its bytes (RFC 8200, section 4).
fn extensions(header: &[u8]) -> Vec<(u8, &[u8])> {
    let (mut found, mut kind, mut rest) = (Vec::new(), header[6], &header[40..]);
    while let [next, length, ..] = rest {
        let size = match kind {
            44 => 8,
            51 => (usize::from(*length) + 2) * 4,
            _ => (usize::from(*length) + 1) * 8,
        };
        let (extension, behind) = rest.split_at(size);
        found.push((kind, extension));
        (kind, rest) = (*next, behind);
    }
    found
}

/// The final destination in a routing header with segments left.
///
/// It is the first address of a segment routing header's list (RFC 8754, section 2), and the last one in
/// other types (RFC 8200, section 8.1).
fn final_segment(header: &[u8]) -> Option<&[u8]> {
    let routing = extensions(header).into_iter().rfind(|(kind, bytes)| *kind == 43 && bytes[3] > 0)?.1;
    match routing[2] {
        4 => routing.get(8..24),
        _ => routing.get(routing.len() - 16..),
    }
}

/// The address in a home address option (RFC 6275, section 6.3), if it stands behind 4 bytes of padding.
fn home_address(header: &[u8]) -> Option<&[u8]> {
    let is_home = |(kind, bytes): &(u8, &[u8])| *kind == 60 && bytes.get(6..8) == Some(&[201, 16]);
    extensions(header).into_iter().find(is_home)?.1.get(8..24)
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
