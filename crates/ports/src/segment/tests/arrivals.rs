//! Arrivals that no buffer takes whole: BIG TCP, and segments for which there are no large buffers.

use super::*;

/// The form in which a packet states a length beyond 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    V4,
    V6Jumbo,
    V6,
}

fn sent(v6: bool, size: u16, len: usize) -> Sent {
    Sent {
        v6,
        tcp: true,
        flags: 0x99,
        sequence: u32::MAX - 70_000,
        identification: 0xfff0,
        size,
        payload: (0..len).map(|i| (i * 7 + i / 251) as u8).collect(),
        vlan: false,
    }
}

/// The frame that Linux hands over, with its offload.
fn long(kind: Long, sent: &Sent) -> (Vec<u8>, Offload) {
    // The builder states lengths: this makes a short packet, to which the payload is added.
    let mut frame = Sent { payload: Vec::new(), ..sent.clone() }.frame();
    frame.extend(&sent.payload);
    let mut offload = sent.offload();
    match kind {
        Long::V4 => {
            frame[16..18].fill(0);
            frame[24..26].fill(0);
            let sum = checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        Long::V6 => frame[18..20].fill(0),
        Long::V6Jumbo => {
            frame[18..20].fill(0);
            frame[20] = 0;
            let [a, b, c, d] = (8 + 20 + sent.payload.len() as u32).to_be_bytes();
            frame.splice(54..54, [6, 0, 0xc2, 4, a, b, c, d]);
            offload.checksum_start += 8;
        }
    }
    (frame, offload)
}

fn parts(frame: &[u8], offload: &Offload, largest: usize, pool: &Pool) -> Option<Vec<Packet>> {
    let cut = Cut::of_arrival(frame, offload, largest)?;
    (0..cut.segments()).map(|index| cut.part(frame, index, pool)).collect()
}

fn deep() -> Pool {
    Pool::builder().frames(2_048).large(64, 69_632).build().unwrap()
}

/// Parts are packets that IP can express and buffers hold.
///
/// When they are sent they become the segments that the sender asked for: each valid, in order, with
/// consecutive numbers.
#[test]
fn big_tcp_becomes_packets_that_can_be_cut_further() {
    for kind in [Long::V4, Long::V6Jumbo, Long::V6] {
        for len in [65_600, 180_000, 250_000] {
            let sent = sent(kind != Long::V4, 1_400, len);
            let pool = deep();
            let (frame, offload) = long(kind, &sent);
            let parts = parts(&frame, &offload, pool.largest_packet(), &pool).unwrap();
            assert_eq!(parts.len(), len.div_ceil(46 * 1_400), "{kind:?} {len}");
            for part in &parts {
                assert!(part.len() <= 14 + 65_535);
                let segment = &part.data()[sent.transport()..];
                let (source, destination) = sent.ends();
                let pseudo =
                    checksum::Sum::ZERO.add_pseudo(source, destination, 6, segment.len() as u32).fold();
                assert_eq!(segment[16..18], pseudo.to_be_bytes());
                assert_eq!(usize::from(part.offload().checksum_start), sent.transport());
            }
            let (frames, totals) = through(parts, &pool, 32);
            let mut bytes = Vec::new();
            let count = frames.len();
            let headers = Sent { payload: Vec::new(), ..sent.clone() };
            for (index, frame) in frames.iter().enumerate() {
                let offset = bytes.len();
                bytes.extend(check(&headers, frame, index, offset, index + 1 == count));
            }
            assert!(bytes == sent.payload, "{kind:?} {len}");
            assert_eq!(count, len.div_ceil(1_400));
            assert_eq!(totals.drops.of(DropReason::TooBig).packets, 0);
        }
    }
}

/// Without large buffers, segments come one by one.
#[test]
fn without_large_buffers_segments_are_cut_as_they_arrive() {
    for sent in [sent(false, 1_448, 60_000), sent(true, 1_400, 60_000)] {
        let pool = Pool::builder().frames(512).build().unwrap();
        let big = deep();
        let whole = sent.packet(&big);
        let parts = parts(whole.data(), &whole.offload(), pool.largest_packet(), &pool).unwrap();
        let mut bytes = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            assert!(!part.needs_device());
            let offset = bytes.len();
            bytes.extend(check(&sent, part.data(), index, offset, index + 1 == parts.len()));
        }
        assert!(bytes == sent.payload);
    }
}

#[test]
fn packets_that_are_no_segments_or_do_not_fit_are_refused() {
    let pool = deep();
    let plain = sent(false, 1_400, 100_000);
    let (frame, offload) = long(Long::V4, &plain);
    let largest = pool.largest_packet();
    assert!(parts(&frame, &offload, largest, &pool).is_some());
    assert!(parts(&frame, &Offload::default(), largest, &pool).is_none(), "not a segment");
    assert!(parts(&frame, &offload, 1_000, &pool).is_none(), "no room for one segment");
    let (mut jumbo, offload) = long(Long::V6Jumbo, &sent(true, 1_400, 100_000));
    assert!(parts(&jumbo, &offload, largest, &pool).is_some());
    jumbo[58] ^= 1;
    assert!(parts(&jumbo, &offload, largest, &pool).is_none(), "a jumbo option with another length");
    for len in 0..80 {
        let _ = Cut::of_arrival(&frame[..len], &offload, largest);
        let _ = Cut::of_arrival(&jumbo[..len], &offload, largest);
    }
}
