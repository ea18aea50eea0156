//! The access concentrator with frames that no one should send.
#![forbid(unsafe_code)]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

/// A piece of input: choices, length and content.
fn piece(input: &mut Vec<u8>, choice: u8, content: &[u8]) {
    input.push(choice);
    input.extend_from_slice(&(content.len() as u16).to_be_bytes());
    input.extend_from_slice(content);
}

#[test]
fn mutated_frames_of_every_kind_do_no_harm() {
    let (kinds, mut random) = (kinds::every(), Random::new(34));
    for _ in 0..12 {
        let mut input = Vec::new();
        for _ in 0..32 {
            let mut frame = kinds[random.below(kinds.len())].1.clone();
            if random.below(4) > 0 {
                mutate(&mut frame, &mut random);
            }
            frame.truncate(1_400);
            // Inside a session, the content is what is behind the link header.
            let choice = random.below(256) as u8;
            let from = if choice >> 5 > 4 { 0 } else { frame.len().min(14) };
            piece(&mut input, choice, &frame[from..]);
        }
        exercise::frames(&input);
    }
}

#[test]
fn mutated_control_packets_do_no_harm() {
    let mut random = Random::new(36);
    for _ in 0..24 {
        let mut input = Vec::new();
        for _ in 0..32 {
            let code = 1 + random.below(13) as u8;
            let mut packet = vec![code, random.below(4) as u8, 0, 16, 1, 4, 5, 0xd4, 3, 6, 10, 0, 1, 0, 5, 2];
            if random.below(4) > 0 {
                mutate(&mut packet, &mut random);
            }
            packet.truncate(1_400);
            piece(&mut input, random.below(96) as u8 & 0xfe, &packet);
        }
        exercise::frames(&input);
    }
}

#[test]
fn arbitrary_bytes_do_no_harm() {
    let mut random = Random::new(35);
    for _ in 0..12 {
        let len = random.below(600);
        let input: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        exercise::frames(&input);
    }
}

#[test]
fn packets_of_an_open_session_allocate_nothing() {
    exercise::steady(|run| {
        let allocated = allocation_counter::measure(run);
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{allocated:?}");
    });
}
