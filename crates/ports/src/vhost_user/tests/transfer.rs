//! Frames between a port and a guest.

use std::sync::atomic::Ordering;

use netbricks_buffer::{GsoKind, Offload};
use netbricks_core::DropReason;

use super::guest::{BASE, END, IN, INDIRECT, NEXT, OUT, SIZE, WRITE};
use super::*;
use crate::vhost_user::device::feature;

#[test]
fn frames_of_every_size_go_both_ways() {
    let sizes = [1, 14, 59, 60, 64, 1_513, 1_514];
    let frames: Vec<_> = (0..20).flat_map(|number| sizes.map(|len| frame(number, len))).collect();
    for (number, features) in
        [u64::MAX, feature::VERSION_1, feature::VERSION_1 | feature::EVENT_IDX, 0].into_iter().enumerate()
    {
        let mut lab = Lab::new(&format!("sizes{number}"), "");
        let mut guest = Guest::connect(&lab, features);
        lab.is_up();
        // Each frame leaves a buffer behind, so that the ring is full after a while.
        for part in frames.chunks(usize::from(SIZE) / 2) {
            guest.echo(&mut lab, &part[..1]);
            part[1..].iter().for_each(|frame| guest.send(frame));
            let totals = lab.turns();
            assert!(lab.far.frames(0) == part[1..], "{totals:?}");
            assert!(guest.used(OUT).len() == part.len() - 1);
        }
        let counters = &lab.port.counters()[0];
        assert_eq!(counters.received.load(Ordering::Relaxed), frames.len() as u64);
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(counters.received_bytes.load(Ordering::Relaxed), bytes as u64);
        assert_eq!(counters.linearised.load(Ordering::Relaxed), 0);
        lab.finish();
    }
}

#[test]
fn a_batch_fills_buffers_in_order_until_there_is_none() {
    let mut lab = Lab::new("full", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    guest.post(40, 2_048);
    let frames: Vec<_> = (0..50).map(|number| frame(number, 100)).collect();
    frames.iter().for_each(|frame| assert!(lab.far.push(0, frame)));
    let totals = lab.turns();
    assert!(guest.received() == frames[..40]);
    assert_eq!(totals.drops.of(DropReason::TransmitFull).packets, 10);
    assert_eq!(lab.port.counters()[0].sent.load(Ordering::Relaxed), 40);
    assert_eq!(lab.port.counters()[0].not_sent.load(Ordering::Relaxed), 10);
    guest.post(1, 2_048);
    assert!(lab.far.push(0, &frames[49]));
    lab.turns();
    assert!(guest.received() == frames[49..]);
    lab.finish();
}

#[test]
fn a_large_frame_takes_several_buffers_if_the_guest_agreed() {
    let mut lab = Lab::new("merge", "device_mtu = 9000");
    let mut guest = Guest::connect(&lab, u64::MAX);
    guest.post(20, 1_024);
    let frames = [frame(1, 9_000), frame(2, 60), frame(3, 1_012), frame(4, 1_013)];
    frames.iter().for_each(|frame| assert!(lab.far.push(0, frame)));
    lab.turns();
    assert!(guest.received() == frames);
    // 9, 1, 1 and 2 buffers are used: this frame finds too few, and the next one enough.
    let more = [frame(5, 8_000), frame(6, 7_000)];
    more.iter().for_each(|frame| assert!(lab.far.push(0, frame)));
    let totals = lab.turns();
    assert_eq!(totals.drops.of(DropReason::TransmitFull).packets, 2, "a batch waits for its first frame");
    assert!(lab.far.push(0, &more[1]));
    lab.turns();
    assert!(guest.received() == more[1..]);
    drop(guest);
    lab.is_down();
    // Without the feature a frame has one chain.
    let mut guest = Guest::connect(&lab, feature::VERSION_1);
    guest.post(20, 1_024);
    [&frames[0], &frames[2], &frames[3]].iter().for_each(|frame| assert!(lab.far.push(0, frame)));
    let totals = lab.turns();
    assert_eq!(totals.drops.of(DropReason::TooBig).packets, 2);
    assert_eq!(lab.port.counters()[0].too_big_to_send.load(Ordering::Relaxed), 2);
    assert!(guest.received() == frames[2..3]);
    lab.finish();
}

/// Chains in pieces, with a header of its own, in a table, and over the border of two regions.
#[test]
fn chains_of_every_form_are_joined() {
    let mut lab = Lab::new("chains", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    let data = frame(7, 600);
    let whole = [&[0; 12][..], &data].concat();
    let border = (END - BASE) as usize / 2;
    for (number, (at, cuts)) in
        [(0x9_0000, vec![12]), (0x9_0001, vec![5, 100, 300]), (border - 100, vec![]), (border - 4, vec![300])]
            .into_iter()
            .enumerate()
    {
        for indirect in [false, true] {
            assert!(guest.memory.copy_in(at, &whole));
            let ends: Vec<_> = cuts.iter().copied().chain([whole.len()]).collect();
            let mut begin = 0;
            for (piece, end) in ends.iter().enumerate() {
                let place = (BASE + (at + begin) as u64, (end - begin) as u32);
                let flags = if piece + 1 < ends.len() { NEXT } else { 0 };
                let next = piece as u16 + 1;
                if indirect {
                    guest.describe_at(0xf_8000 + 16 * piece, place, flags, next);
                } else {
                    guest.describe(OUT, piece as u16, place, flags, next);
                }
                begin = *end;
            }
            if indirect {
                guest.describe(OUT, 9, (BASE + 0xf_8000, 16 * ends.len() as u32), INDIRECT, 0);
            }
            let head = if indirect { 9 } else { 0 };
            guest.offer(OUT, head);
            let totals = lab.turns();
            assert!(lab.far.frames(0) == [data.clone()], "{number} {indirect} {totals:?}");
            assert_eq!(guest.used(OUT), [(head, 0)]);
        }
    }
    assert_eq!(lab.port.counters()[0].linearised.load(Ordering::Relaxed), 4);
    // A frame to the guest goes over the same border, in two pieces of a chain.
    guest.describe(IN, 0, (BASE + border as u64 - 40, 30), WRITE | NEXT, 1);
    guest.describe(IN, 1, (BASE + border as u64 - 10, 800), WRITE, 0);
    guest.offer(IN, 0);
    assert!(lab.far.push(0, &data));
    lab.turns();
    assert_eq!(guest.used(IN), [(0, 612)]);
    let found = guest.bytes(border - 40, 612);
    assert_eq!(found[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert!(found[12..] == data);
    lab.finish();
}

/// An Ethernet frame with UDP over IPv4, whose checksum is partial or complete.
fn udp(partial: bool) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 12, 0, 0, b'a', b'b', b'c', b'd']);
    // By hand, as in RFC 768: addresses, protocol and length; then the segment as well.
    let pseudo = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 12;
    let sum: u32 = if partial { pseudo } else { pseudo + 0x1000 + 0x2000 + 12 + 0x6162 + 0x6364 };
    let folded = ((sum & 0xffff) + (sum >> 16)) as u16;
    let sum = if partial { folded } else { !folded };
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The header of a partial checksum in such a frame.
const PARTIAL: [u8; 10] = [1, 0, 0, 0, 0, 0, 34, 0, 6, 0];
/// The same as the engine has it.
const PARTIAL_OFFLOAD: Offload = Offload {
    needs_checksum: true,
    checksum_valid: false,
    gso: GsoKind::None,
    gso_ecn: false,
    gso_size: 0,
    checksum_start: 34,
    checksum_offset: 6,
};

#[test]
fn partial_checksums_go_both_ways_where_both_ends_agreed() {
    let mut lab = Lab::new("checksums", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    guest.send_with(PARTIAL.to_vec(), &udp(true));
    lab.turns();
    let packet = lab.far.pop(0).unwrap();
    assert!(packet.data() == udp(true) && packet.offload() == PARTIAL_OFFLOAD, "{:?}", packet.offload());
    drop(packet);
    let send = |lab: &mut Lab| {
        let mut packet = lab.pool.packet(&udp(true)).unwrap();
        packet.set_offload(PARTIAL_OFFLOAD);
        assert!(lab.far.push_packet(0, packet).is_ok());
        lab.turns()
    };
    assert!(lab.port.capabilities().segmentation_offload);
    guest.post(4, 2_048);
    send(&mut lab);
    let found = guest.received_with();
    assert!(found.len() == 1 && found[0].0[..10] == PARTIAL && found[0].1 == udp(true), "{found:?}");
    drop(guest);
    lab.is_down();
    let mut guest = Guest::connect(&lab, feature::VERSION_1);
    assert!(!lab.port.capabilities().checksum_offload);
    guest.post(4, 2_048);
    send(&mut lab);
    let found = guest.received_with();
    assert!(found.len() == 1 && found[0].0[..10] == [0; 10] && found[0].1 == udp(false), "{found:?}");
    // Nor may it leave checksums to us.
    guest.send_with(PARTIAL.to_vec(), &udp(true));
    assert_eq!(lab.turns().drops.of(DropReason::NoOffload).packets, 1);
    lab.finish();
}

/// A stopped virtqueue goes on where it was, and a disabled one takes nothing and brings nothing.
#[test]
fn a_virtqueue_is_stopped_and_goes_on() {
    use vhost::VhostBackend;
    use vhost::vhost_user::VhostUserFrontend;
    let mut lab = Lab::new("stop", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    let frames: Vec<_> = (0..6).map(|number| frame(number, 80)).collect();
    guest.echo(&mut lab, &frames[..3]);
    let base = guest.front.get_vring_base(OUT).unwrap();
    assert_eq!(base, 3);
    assert_eq!(lab.port.link(), Link::Down);
    guest.send(&frames[3]);
    lab.turns();
    assert!(lab.far.frames(0).is_empty() && guest.used(OUT).is_empty());
    guest.start(OUT, base as u16);
    lab.turns();
    assert!(lab.far.frames(0) == frames[3..4] && guest.used(OUT).len() == 1);
    assert_eq!((lab.port.link(), lab.port.returned()), (Link::Up, 0));
    // The same memory again, and then other memory, while the virtqueues run.
    guest.front.set_mem_table(&guest.regions()).unwrap();
    guest.echo(&mut lab, &frames[4..]);
    guest.move_memory();
    guest.echo(&mut lab, &frames[4..]);
    guest.front.set_vring_enable(IN, false).unwrap();
    guest.front.set_vring_enable(OUT, false).unwrap();
    guest.post(2, 2_048);
    guest.send(&frames[0]);
    assert!(lab.far.push(0, &frames[1]));
    let totals = lab.turns();
    assert_eq!(totals.drops.of(DropReason::LinkDown).packets, 2, "one each way");
    assert!(guest.used(IN).is_empty());
    assert_eq!(guest.used(OUT).len(), 1, "what a disabled queue sends is discarded");
    guest.front.set_vring_enable(IN, true).unwrap();
    guest.front.set_vring_enable(OUT, true).unwrap();
    guest.echo(&mut lab, &frames);
    lab.finish();
}

#[test]
fn without_a_guest_packets_are_dropped_and_guests_come_again() {
    let mut lab = Lab::new("again", "");
    for round in 0..4 {
        assert!(lab.far.push(0, &frame(0, 60)));
        assert_eq!(lab.turns().drops.of(DropReason::LinkDown).packets, round + 1);
        assert_eq!(lab.port.warnings(), [""; 0]);
        lab.works();
        assert_eq!(lab.port.returned(), round);
    }
    // A guest that goes away between two turns.
    let mut guest = Guest::connect(&lab, u64::MAX);
    guest.post(4, 2_048);
    guest.send(&frame(1, 60));
    assert!(lab.far.push(0, &frame(0, 60)));
    drop(guest);
    lab.is_down();
    let totals = lab.turns();
    assert_eq!(totals.drops.of(DropReason::LinkDown).packets, 5);
    assert!(!lab.path().as_os_str().is_empty() && lab.path().exists());
    let path = lab.path();
    lab.finish();
    assert!(!path.exists(), "the socket goes with its port");
}

/// Several queues, each with its own two virtqueues.
#[test]
fn queues_are_numbered_in_pairs() {
    use vhost::vhost_user::VhostUserFrontend;
    let lab = Lab::new("queues", "queues = 3");
    let capabilities = lab.port.capabilities();
    assert_eq!((capabilities.receive_queues, capabilities.transmit_queues), (3, 3));
    let mut guest = Guest::connect(&lab, u64::MAX);
    assert!(guest.features & feature::MQ != 0);
    assert!(guest.front.set_vring_enable(5, true).is_ok());
    assert!(guest.front.set_vring_enable(6, true).is_err());
    lab.is_down();
    let said = lab.port.warnings();
    assert!(said[0].contains("virtqueue 6") && said[0].contains("`queues`: 3"), "{said:?}");
    let mut guest = Guest::connect(&lab, u64::MAX);
    assert_eq!(guest.front.get_queue_num().unwrap(), 3);
    lab.finish();
}

/// The front end listens, and the port connects to it again and again.
#[test]
fn a_client_connects_to_its_front_end() {
    let directory = Directory::new("vhost-user-client");
    let pool = Pool::builder().frames(2_048).large(64, 69_632).build().unwrap();
    let text = "socket = \"s\"\nmode = \"client\"";
    let mut port = open("vhost-user", text, &context(&pool, &directory)).unwrap();
    let (graph, far) = Lab::graph(&mut *port, &pool);
    let mut lab = Lab { graph: Some(graph), port, far, directory, pool };
    for round in 0..3 {
        let listener = std::os::unix::net::UnixListener::bind(lab.path()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let front = vhost::vhost_user::Frontend::from_stream(stream, 128);
        let mut guest = Guest::talk(front, u64::MAX);
        guest.echo(&mut lab, &[frame(round, 60), frame(round, 1_514)]);
        drop(guest);
        // One connection may wait already.
        drop(listener);
        std::fs::remove_file(lab.path()).unwrap();
        lab.is_down();
    }
    lab.finish();
}

/// An Ethernet frame with a TCP segment of `len` payload bytes over IPv4, not cut, with its offload.
fn tcp(len: usize) -> (Vec<u8>, Offload) {
    let total = (40 + len) as u16;
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..len).map(|at| at as u8));
    let gso = Offload { gso: GsoKind::TcpV4, gso_size: 1_000, checksum_offset: 16, ..PARTIAL_OFFLOAD };
    (frame, gso)
}

#[test]
fn segments_go_uncut_where_both_ends_agreed() {
    let mut lab = Lab::new("segments", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    let (whole, offload) = tcp(20_500);
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let at = 0x9_0000;
    assert!(guest.memory.copy_in(at, &[&header, &whole[..]].concat()));
    guest.describe(OUT, 0, (BASE + at as u64, (12 + whole.len()) as u32), 0, 0);
    guest.offer(OUT, 0);
    lab.turns();
    let packet = lab.far.pop(0).unwrap();
    assert!(packet.data() == whole && packet.offload() == offload, "{:?}", packet.offload());
    // It goes back to the guest as it came.
    guest.post(20, 4_096);
    assert!(lab.far.push_packet(0, packet).is_ok());
    lab.turns();
    let found = guest.received_with();
    assert!(found.len() == 1 && found[0].0[..10] == header[..10] && found[0].1 == whole, "{:?}", found[0].0);
    drop(guest);
    lab.is_down();
    // A guest that did not agree gets segments with whole checksums.
    let mut guest = Guest::connect(&lab, feature::VERSION_1 | feature::MRG_RXBUF);
    guest.post(40, 4_096);
    let mut packet = lab.pool.packet(&whole).unwrap();
    packet.set_offload(offload);
    assert!(lab.far.push_packet(0, packet).is_ok());
    lab.turns();
    let found = guest.received_with();
    assert_eq!(found.len(), 21);
    assert!(found.iter().all(|(header, _)| header[..10] == [0; 10]));
    let payload: Vec<_> = found.iter().flat_map(|(_, frame)| frame[54..].to_vec()).collect();
    assert!(payload == whole[54..]);
    lab.finish();
}
