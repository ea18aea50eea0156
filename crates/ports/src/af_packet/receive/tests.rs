use super::*;
use proptest::prelude::*;

fn pool() -> Pool {
    Pool::builder().frames(64).large(2, 69_632).build().unwrap()
}

const FRAME: usize = 48;
const HEADER: usize = 82;

/// A frame as the kernel lays it out: header, virtio-net header just before the packet, packet.
fn frame(packet: &[u8], status: u32, vlan: (u16, u16), virtio: [u8; virtio::LEN]) -> Vec<u8> {
    let mut frame = vec![0; HEADER];
    let len = (packet.len() as u32).to_ne_bytes();
    frame[12..16].copy_from_slice(&len);
    frame[16..20].copy_from_slice(&len);
    frame[20..24].copy_from_slice(&status.to_ne_bytes());
    frame[24..26].copy_from_slice(&(HEADER as u16).to_ne_bytes());
    frame[32..36].copy_from_slice(&u32::from(vlan.1).to_ne_bytes());
    frame[36..38].copy_from_slice(&vlan.0.to_ne_bytes());
    frame[HEADER - virtio::LEN..].copy_from_slice(&virtio);
    frame.extend_from_slice(packet);
    frame
}

#[test]
fn the_header_is_as_long_as_the_kernels() {
    // tpacket3_hdr ends with 8 bytes of padding that are never read.
    assert_eq!(size_of::<FrameHeader>() + 8, FRAME);
}

proptest! {
    #[test]
    fn no_block_makes_it_read_outside(
        block in proptest::collection::vec(any::<u8>(), 0..400),
        at in 0_usize..500,
        part in 0_usize..3,
        link in prop::sample::select(vec![LinkHeader::Ethernet, LinkHeader::None]),
    ) {
        let pool = pool();
        let packet = read_frame(&block, at, part, link, &pool).part;
        if let Ok(packet) = packet {
            prop_assert!(packet.len() <= block.len() + ETHERNET);
        }
        prop_assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn tags_are_put_back(
        packet in proptest::collection::vec(any::<u8>(), 14..300),
        protocol in prop_oneof![Just(0x8100_u16), Just(0x88a8)],
        control in any::<u16>(),
    ) {
        let pool = pool();
        let status = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID;
        let mut virtio = [0; virtio::LEN];
        virtio[0] = 1;
        virtio[6] = 10;
        virtio[8] = 2;
        let block = frame(&packet, status, (protocol, control), virtio);
        let found = read_frame(&block, 0, 0, LinkHeader::Ethernet, &pool).part.unwrap();
        prop_assert_eq!(&found.data()[..12], &packet[..12]);
        prop_assert_eq!(&found.data()[12..14], &protocol.to_be_bytes());
        prop_assert_eq!(&found.data()[14..16], &control.to_be_bytes());
        prop_assert_eq!(&found.data()[16..], &packet[12..]);
        prop_assert_eq!((found.offload().checksum_start, found.offload().checksum_offset), (14, 2));
    }
}

#[test]
fn cut_and_huge_packets_are_counted_with_a_reason() {
    let small = Pool::builder().frames(64).build().unwrap();
    let block = frame(&[7; 60_000], 0, (0, 0), [0; virtio::LEN]);
    let lost = read_frame(&block, 0, 0, LinkHeader::Ethernet, &small).part.err().unwrap();
    assert_eq!(lost, Lost { reason: DropReason::TooBig, bytes: 60_000 });
    assert_eq!(read_frame(&block, 0, 0, LinkHeader::Ethernet, &pool()).part.unwrap().len(), 60_000);
    let mut cut = frame(&[7; 100], 0, (0, 0), [0; virtio::LEN]);
    cut[16..20].copy_from_slice(&9000_u32.to_ne_bytes());
    assert_eq!(
        read_frame(&cut, 0, 0, LinkHeader::Ethernet, &pool()).part.err().unwrap().reason,
        DropReason::TooBig
    );
}

#[test]
fn ip_without_a_link_header_gets_an_ethernet_header() {
    // A partial checksum at 20 + 16 of an IPv4 packet, one of IPv6, and a packet of neither version.
    let mut virtio = [0; virtio::LEN];
    virtio[0] = 1;
    virtio[6] = 20;
    virtio[8] = 16;
    for (first, ethertype) in [(0x45, [8, 0]), (0x60, [0x86, 0xdd])] {
        let mut bytes = [7; 60];
        bytes[0] = first;
        let block = frame(&bytes, 0, (0, 0), virtio);
        let found = read_frame(&block, 0, 0, LinkHeader::None, &pool()).part.unwrap();
        assert_eq!(found.data()[..12], [0; 12]);
        assert_eq!(found.data()[12..14], ethertype);
        assert_eq!(found.data()[14..], bytes);
        assert_eq!((found.offload().checksum_start, found.offload().checksum_offset), (34, 16));
    }
    let block = frame(&[7; 60], 0, (0, 0), [0; virtio::LEN]);
    let lost = read_frame(&block, 0, 0, LinkHeader::None, &pool()).part.err().unwrap();
    assert_eq!(lost, Lost { reason: DropReason::Malformed, bytes: 60 });
}
