//! The router with frames that no one should send.
#![forbid(unsafe_code)]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

#[test]
fn mutated_frames_of_every_kind_do_no_harm() {
    let (kinds, mut random) = (kinds::every(), Random::new(34));
    for _ in 0..12 {
        let mut input = Vec::new();
        for _ in 0..32 {
            let mut frame = kinds[random.below(kinds.len())].1.clone();
            frame.truncate(2_000);
            if random.below(4) > 0 {
                mutate(&mut frame, &mut random);
                frame.truncate(2_000);
            }
            input.push(random.below(16) as u8);
            input.extend_from_slice(&(frame.len() as u16).to_be_bytes());
            input.extend_from_slice(&frame);
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
