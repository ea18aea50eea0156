//! Checksums at the ports: arrivals are verified if the port's policy says so.
//!
//! A checksum that a sender left to the device is completed in software if the device cannot do it.

use std::sync::Arc;

use netbricks_buffer::{Offload, Packet};
use netbricks_packet::checksum::Sum;
use netbricks_packet::stack::{Layer, LengthSlack, Root, Stack};
use netbricks_packet::{Ip, IpRef, Link, protocol};

use crate::port::{ChecksumPolicy, Counters};

/// Whether the checksums in a frame are right: IPv4 header, TCP, UDP, ICMP and ICMPv6.
///
/// For a fragment, only the IP header is checked. A frame that is not IP, or is malformed, counts as right.
/// So does a packet on a source route that cannot be read, since the checksum covers the final destination
/// ([`PseudoHeader`](netbricks_packet::PseudoHeader)).
pub fn is_valid(frame: &[u8]) -> bool {
    let Ok(link) = Layer::<Root, Link>::parse(Root, frame) else { return true };
    let Some(packet) = frame.get(link.end()..link.limit(frame.len())) else { return true };
    let Ok((ip, segment)) = IpRef::split(packet) else { return true };
    if let IpRef::V4(header) = ip
        && !header.checksum_is_valid()
    {
        return false;
    }
    match ip.protocol() {
        // RFC 768: the sender made no checksum. Tunnels over IPv6 may do the same (RFC 6935).
        protocol::UDP if segment.get(6..8) == Some(&[0, 0]) => true,
        protocol::TCP | protocol::UDP | protocol::ICMP | protocol::ICMPV6 => {
            ip.transport_checksum_is_valid(segment).unwrap_or(true)
        }
        _ => true,
    }
}

/// As [`is_valid`], for a packet: missing bytes cannot be verified, and count as right.
fn is_valid_as_far_as_it_goes(packet: &Packet) -> bool {
    // Perhaps only padding is missing.
    if packet.missing() == 0 || Ip::in_frame(packet.data()).is_some() {
        return is_valid(packet.data());
    }
    let slack = LengthSlack { missing: packet.missing(), unstated: false };
    let found = Ip::in_frame_with(packet.data(), slack);
    // The header is complete, or the packet would be malformed.
    !matches!(found, Some((IpRef::V4(header), _)) if !header.checksum_is_valid())
}

/// A port's policy for the checksums of arrivals, and the counter of the wrong ones.
#[derive(Clone, Debug)]
pub(crate) struct ChecksumCheck {
    policy: ChecksumPolicy,
    counters: Arc<Counters>,
}

impl ChecksumCheck {
    pub(crate) fn new(policy: ChecksumPolicy, counters: Arc<Counters>) -> Self {
        Self { policy, counters }
    }
    /// Whether the policy checks checksums.
    #[inline(always)]
    pub(crate) fn looks(&self) -> bool {
        self.policy != ChecksumPolicy::Trust
    }
    /// Whether the packet may go on; counts the packet if its checksum is wrong.
    pub(crate) fn accepts(&self, packet: &Packet) -> bool {
        let offload = packet.offload();
        let is_right = !self.looks()
            || offload.checksum_valid
            || offload.needs_checksum
            || is_valid_as_far_as_it_goes(packet);
        if !is_right {
            Counters::add(&self.counters.bad_checksum, 1);
        }
        is_right || self.policy == ChecksumPolicy::Verify
    }
}

/// Computes the checksum that the packet's sender left to the device.
///
/// The field already holds the pseudo-header's sum (as in Linux and virtio-net). Answers `false` and changes
/// nothing if the offload's places lie outside the packet.
pub fn complete(packet: &mut Packet) -> bool {
    let offload = packet.offload();
    if !offload.needs_checksum {
        return true;
    }
    let start = usize::from(offload.checksum_start);
    let place = start + usize::from(offload.checksum_offset);
    let data = packet.data_mut();
    if place + 2 > data.len() {
        return false;
    }
    // A sum of 0 is written as 0xffff, which is the same number and never means "no checksum" (RFC 768).
    let checksum = match Sum::ZERO.add_bytes(&data[start..]).finish() {
        0 => 0xffff,
        checksum => checksum,
    };
    data[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.set_offload(Offload { needs_checksum: false, checksum_valid: true, ..offload });
    true
}

/// Bytes of the link header, Ethernet and its VLAN tags, which an MTU does not count.
pub(crate) fn link_len(frame: &[u8]) -> usize {
    let mut len = 14;
    while len < 14 + 4 * 8
        && let Some([high, low]) = frame.get(len - 2..len)
        && netbricks_packet::ethertype::is_vlan(u16::from_be_bytes([*high, *low]))
    {
        len += 4;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use netbricks_buffer::Pool;

    /// A UDP datagram in IPv4 with right checksums.
    ///
    /// It is written by hand, so that the test does not depend on our builders.
    const FRAME: [u8; 46] = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x10, 0, 0x20, 0, 0, 12, 0xf7, 0x0c, // UDP
        b'a', b'b', b'c', b'd',
    ];

    #[test]
    fn any_flipped_bit_that_a_checksum_covers_is_found() {
        assert!(is_valid(&FRAME));
        for bit in 14 * 8..FRAME.len() * 8 {
            let mut frame = FRAME;
            frame[bit / 8] ^= 1 << (bit % 8);
            // A flip that changes the kind of packet (version, length, fragment, protocol) may leave nothing
            // to check.
            let judged = !matches!(bit / 8, 14 | 16..=17 | 38..=39);
            if judged {
                assert!(!is_valid(&frame), "bit {bit}");
            }
        }
        for len in 0..FRAME.len() {
            is_valid(&FRAME[..len]);
        }
    }

    #[test]
    fn packets_on_a_source_route_are_judged_by_their_final_destination() {
        // By hand, as in RFC 1071: 0x11 is UDP's number.
        let frame = |kind: &str, wrong: bool| {
            let (header, addresses): (Vec<u8>, Vec<u8>) = match kind {
                "lsrr" => {
                    let route = [131, 7, 4, 10, 9, 9, 9, 0];
                    let mut header =
                        [0x47, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2].to_vec();
                    header.extend(route);
                    let sum = sum(&header);
                    header[10..12].copy_from_slice(&sum.to_be_bytes());
                    (header, [10, 0, 0, 1, 10, 9, 9, 9].to_vec())
                }
                _ => {
                    let mut header = [0x60, 0, 0, 0, 0, 36, 43, 64].to_vec();
                    header.extend([[0x20; 16], [0x21; 16]].concat());
                    // Type 2 has one address, and so has type 4 here. 1 segment is left. 77 is not a type.
                    let number = match kind {
                        "mobile" => 2,
                        "srv6" => 4,
                        _ => 77,
                    };
                    header.extend([17, 2, number, 1, 0, 0, 0, 0]);
                    header.extend([0x22; 16]);
                    (header, [[0x20; 16], [0x22; 16]].concat())
                }
            };
            let mut segment = [0x10, 0, 0x20, 0, 0, 12, 0, 0, b'a', b'b', b'c', b'd'];
            let covered = [&addresses[..], &[0, 17, 0, 12], &segment].concat();
            segment[6..8].copy_from_slice(&(sum(&covered) ^ u16::from(wrong)).to_be_bytes());
            let ethertype = if kind == "lsrr" { [8, 0] } else { [0x86, 0xdd] };
            [&[2; 12][..], &ethertype, &header, &segment].concat()
        };
        for kind in ["lsrr", "mobile", "srv6"] {
            assert!(is_valid(&frame(kind, false)), "{kind}");
            assert!(!is_valid(&frame(kind, true)), "{kind}");
        }
        // Its final destination is not known, so the checksum cannot be checked.
        assert!(is_valid(&frame("unknown", true)));
    }

    fn sum(bytes: &[u8]) -> u16 {
        let mut sum = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_partial_checksum_is_completed_to_what_the_sender_would_have_written() {
        let pool = Pool::builder().frames(4).build().unwrap();
        let mut packet = pool.packet(&FRAME).unwrap();
        let pseudo = Sum::ZERO.add_pseudo([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 12).fold();
        packet.data_mut()[40..42].copy_from_slice(&pseudo.to_be_bytes());
        let offload =
            Offload { needs_checksum: true, checksum_start: 34, checksum_offset: 6, ..Offload::default() };
        packet.set_offload(offload);
        assert!(complete(&mut packet));
        assert_eq!(packet.data(), FRAME);
        assert!(!packet.needs_device());
        packet.set_offload(Offload { checksum_start: 40, ..offload });
        assert!(!complete(&mut packet), "the field would lie behind the packet");
    }
}
