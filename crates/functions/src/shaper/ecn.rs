//! Marks packets with Congestion Experienced (RFC 3168).

use netbricks_core::buffer::Packet;
use netbricks_core::packet::stack::{Header, Layer, LengthSlack, Root, Stack};
use netbricks_core::packet::{Ip, Link};

/// Not capable of ECN.
const NOT_ECT: u8 = 0;
/// Congestion experienced.
const CE: u8 = 3;

/// Marks a packet whose transport is capable of ECN; `false` for all others, which stay as they are.
pub(super) fn mark(packet: &mut Packet) -> bool {
    let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
    let frame = packet.data();
    let Ok(link) = Layer::<Root, Link>::parse_with(Root, frame, slack) else { return false };
    let Ok(ip) = Layer::<_, Ip>::parse_with(link, frame, slack) else { return false };
    let ((at, facts), end) = (ip.top(), ip.end());
    match Ip::view(&frame[at..end], facts).ecn() {
        NOT_ECT => false,
        CE => true,
        _ => {
            Ip::view_mut(&mut packet.data_mut()[at..end], facts).set_ecn(CE);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::buffer::Pool;
    use netbricks_core::packet::IpRef;
    use netbricks_testkit::build::ethernet;
    use netbricks_testkit::{checksums, kinds};

    use super::*;

    fn marked(frame: &[u8]) -> (bool, Vec<u8>) {
        let pool = Pool::builder().frames(4).large(4, 69_632).build().unwrap();
        let mut packet = pool.packet(frame).unwrap();
        (mark(&mut packet), packet.data().to_vec())
    }

    #[test]
    fn only_what_is_capable_is_marked_and_its_checksum_stays_right() {
        let v4 = |ecn| ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").ecn(ecn).udp(1, 2).build().unwrap();
        let v6 = |class: u8| {
            let mut frame = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).build().unwrap();
            frame[15] |= class << 4;
            frame
        };
        for (frame, can) in
            [(v4(0), false), (v4(1), true), (v4(2), true), (v4(3), true), (v6(0), false), (v6(2), true)]
        {
            let (did, after) = marked(&frame);
            assert_eq!(did, can);
            let ecn = Ip::in_frame(&after).unwrap().0.ecn();
            assert_eq!(ecn, if can { 3 } else { 0 });
            assert_eq!(checksums::wrong(&after), Vec::<String>::new());
            if let (IpRef::V4(header), _) = Ip::in_frame(&after).unwrap() {
                assert!(header.checksum_is_valid());
            }
        }
    }

    #[test]
    fn other_packets_stay_as_they_are() {
        for (name, frame) in kinds::every() {
            assert_eq!(marked(&frame), (false, frame), "{name}");
        }
    }
}
