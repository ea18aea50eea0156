//! `icmp-echo` with ICMPv6 messages whose checksum is right and whose other fields are arbitrary.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use exercise::Answer;
use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

/// A solicitation for us with its sender's address, after the byte that chooses source and destination.
fn solicitation() -> Vec<u8> {
    let us: std::net::Ipv6Addr = "2001:db8::2".parse().unwrap();
    [&[0, 135, 0, 0, 0, 0, 0][..], &us.octets(), &[1, 1, 2, 0, 0, 0, 0, 1]].concat()
}

#[test]
fn only_messages_that_must_be_answered_are_answered() {
    let mut random = Random::new(4861);
    let messages = [solicitation(), [&[0, 128, 0, 0, 7, 0, 9][..], b"ping!"].concat()];
    let mut counts = [0; 3];
    for round in 0..3_000 {
        let mut bytes = messages[round % 2].clone();
        mutate(&mut bytes, &mut random);
        match exercise::message(&bytes) {
            Some(Answer::Advertisement) => counts[0] += 1,
            Some(Answer::Echo) => counts[1] += 1,
            Some(Answer::Silence) => counts[2] += 1,
            None => {}
        }
    }
    assert!(counts.iter().all(|count| *count > 30), "too few of a kind to prove anything: {counts:?}");
}

#[test]
fn whole_messages_have_their_answers() {
    let mut bytes = solicitation();
    for (choice, answer) in [
        (0, Answer::Advertisement),
        (1, Answer::Silence),
        (2, Answer::Advertisement),
        (4, Answer::Silence),
        (10, Answer::Silence),
    ] {
        bytes[0] = choice;
        assert_eq!(exercise::message(&bytes), Some(answer), "{choice}");
    }
    // A host that looks for duplicates has no address yet, and asks the group.
    bytes.truncate(23);
    for (choice, answer) in [(8, Answer::Silence), (9, Answer::Silence), (10, Answer::Advertisement)] {
        bytes[0] = choice;
        assert_eq!(exercise::message(&bytes), Some(answer), "{choice}");
    }
    // With a code, or an option without length, it gets no answer.
    assert_eq!(exercise::message(&[&[10, 135, 1], &bytes[3..]].concat()), Some(Answer::Silence));
    assert_eq!(exercise::message(&[&bytes[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat()), Some(Answer::Silence));
}

#[test]
fn every_kind_of_frame_has_at_most_one_answer() {
    let mut random = Random::new(7);
    for (_, frame) in kinds::every() {
        for _ in 0..40 {
            let mut changed = frame.clone();
            mutate(&mut changed, &mut random);
            exercise::frame(&changed);
        }
        exercise::frame(&frame);
    }
}
