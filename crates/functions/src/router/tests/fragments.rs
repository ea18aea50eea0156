//! Fragments that are put together before they are routed.

use netbricks_core::DropReason;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{Ip, IpRef};

use super::rig::Rig;

const SETTINGS: &str = "interfaces = [\"lan 192.0.2.1/24 mac 02:00:00:00:00:01\", \"wan 198.51.100.1/24\"]
neighbours = [\"wan 198.51.100.9 02:00:00:00:00:09\"]
reassemble = true
reassembling = 4
";

/// A fragment of a packet of 3,000 bytes that begins at `from`.
fn fragment(identification: u16, from: usize, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (from..from + len).map(|at| (at / 8) as u8).collect();
    ethernet()
        .destination("02:00:00:00:00:01")
        .ipv4("192.0.2.7", "198.51.100.9")
        .identification(identification)
        .fragment((from / 8) as u16, from + len < 3_000)
        .protocol(17)
        .payload(&payload)
        .build()
        .unwrap()
}

#[test]
fn fragments_in_any_order_become_the_packet_and_leave_as_fragments_of_the_next_link() {
    let mut rig = Rig::new(SETTINGS);
    assert!(rig.send(0, [fragment(1, 2_000, 1_000), fragment(1, 0, 1_000)]).is_empty());
    assert_eq!(rig.held(), 2);
    let out = rig.send(0, [fragment(1, 1_000, 1_000)]);
    let mut data = Vec::new();
    for (_, frame) in &out {
        let (IpRef::V4(header), payload) = Ip::in_frame(frame).unwrap() else { panic!() };
        assert!(header.checksum_is_valid() && header.identification() == 1 && header.ttl() == 63);
        assert_eq!(usize::from(header.fragment_offset()) * 8, data.len());
        data.extend_from_slice(payload);
    }
    assert_eq!((out.len(), data), (3, (0..3_000).map(|at| (at / 8) as u8).collect::<Vec<u8>>()));
    assert_eq!((rig.held(), rig.dropped(DropReason::Replaced)), (0, 3));
}

#[test]
fn fragments_that_overlap_or_never_end_are_given_up() {
    let mut rig = Rig::new(SETTINGS);
    // The same one twice is no harm; an overlap ends the packet.
    rig.send(0, [fragment(1, 0, 1_000), fragment(1, 0, 1_000)]);
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (1, 1));
    rig.send(0, [fragment(1, 800, 1_000)]);
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (0, 3));
    // Four packets at a time: the oldest goes.
    for identification in 2..8 {
        rig.send(0, [fragment(identification, 0, 1_000)]);
        rig.wait(100);
    }
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (4, 5));
    rig.wait(30_100);
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (0, 9));
}

#[test]
fn a_fragment_waits_for_30_s_and_no_longer() {
    let mut rig = Rig::new(SETTINGS);
    rig.wait(300);
    rig.send(0, [fragment(1, 0, 1_000)]);
    rig.wait(29_900);
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (1, 0));
    rig.wait(100);
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (0, 1));
}

#[test]
fn a_packet_of_many_fragments_in_any_order_is_put_together() {
    let mut rig = Rig::new(SETTINGS);
    // 64 of them, in an order that jumps; then one more than there is room for.
    let pieces: Vec<(usize, usize)> = (0..64).map(|number| (number * 40, 40)).collect();
    for step in [1, 5, 17, 63] {
        let mut packets: Vec<Vec<u8>> = Vec::new();
        for number in 0..64 {
            let (from, len) = pieces[(number * step + 3) % 64];
            let len = if from == 63 * 40 { 3_000 - from } else { len };
            packets.push(fragment(step as u16, from, len));
        }
        let out = rig.send(0, packets);
        assert_eq!((out.len(), rig.held()), (3, 0), "{step}");
    }
    rig.send(0, (0..65).map(|number| fragment(99, number * 8, 8)));
    assert_eq!((rig.held(), rig.dropped(DropReason::Fragment)), (0, 65));
}
