//! Walks over hostile bytes, compared with naive ones.

use netbricks_packet::stack::shape;

use crate::kinds::{Random, every_kind, mutate};
use crate::oracles;

/// Bytes that mean something to the walk now and then: each is drawn from `few`, a small number, or all.
fn bytes(random: &mut Random, few: &[u8], size: usize) -> Vec<u8> {
    (0..size)
        .map(|_| match random.below(4) {
            0 => few[random.below(few.len())],
            1 | 2 => random.below(12) as u8,
            _ => random.next() as u8,
        })
        .collect()
}

#[test]
fn options_are_where_a_naive_walk_finds_them() {
    let mut random = Random(11);
    for _ in 0..50_000 {
        let size = random.below(64);
        let bytes = bytes(&mut random, &[0, 1, 2, 3, 4, 5, 8, 10, 18, 19, 29, 30, 34], size);
        oracles::tcp_options(&bytes);
        oracles::ipv4_options(&bytes);
    }
}

#[test]
fn extension_headers_are_where_a_naive_walk_finds_them() {
    let mut random = Random(12);
    for _ in 0..50_000 {
        let size = random.below(200);
        let mut bytes = bytes(&mut random, &[0, 43, 44, 51, 60, 135, 139, 140, 17, 59, 50], size);
        // Headers of one unit each, so that a walk goes on for some time.
        for unit in bytes[1.min(size)..].chunks_mut(8).filter(|unit| unit.len() > 1) {
            if random.below(8) != 0 {
                unit[1] = 0;
            }
        }
        oracles::ipv6_extensions(&bytes);
    }
}

#[test]
fn the_seventeenth_extension_header_is_refused_and_the_sixteenth_is_not() {
    for headers in [16, 17] {
        let mut bytes = vec![60];
        for left in (0..headers).rev() {
            bytes.extend([if left == 0 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        oracles::ipv6_extensions(&bytes);
    }
}

#[test]
fn keys_of_changed_packets_are_those_of_their_dissection() {
    let (mut random, mut with_key) = (Random(13), 0);
    for (_, packet) in every_kind() {
        for _ in 0..600 {
            let mut changed = packet.clone();
            mutate(&mut changed, &mut random);
            with_key += usize::from(oracles::flow(&changed));
        }
    }
    assert!(with_key > 5_000, "only {with_key} changed packets had a flow");
}

#[test]
fn a_usual_frame_is_known_as_it_would_be_found() {
    let (mut random, mut usual) = (Random(14), [0; 4]);
    let mut look = |frame: &[u8]| usual[usize::from(oracles::usual(frame).unwrap_or(0))] += 1;
    for (_, packet) in every_kind() {
        for _ in 0..2_000 {
            let mut changed = packet.clone();
            mutate(&mut changed, &mut random);
            look(&changed);
        }
        for size in 0..=packet.len() {
            look(&packet[..size]);
        }
    }
    assert!(usual[1] > 10_000 && usual[2] > 1_000 && usual[3] > 2_000, "usual by shape: {usual:?}");
}

/// Checks the shapes of complete frames: otherwise the test above proves little.
#[test]
fn whole_packets_are_of_the_shape_that_they_are_built_in() {
    let mut shapes = [0; 4];
    for (name, packet) in every_kind() {
        let shape = oracles::usual(&packet);
        let plain = packet[12..15] == [8, 0, 0x45];
        assert_eq!(shape == Some(shape::V4), plain, "{name}");
        shapes[usize::from(shape.unwrap_or(shape::ANY))] += 1;
    }
    assert!(shapes.iter().all(|count| *count > 0), "kinds by shape: {shapes:?}");
}
