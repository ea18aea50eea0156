//! `nat` with arbitrary frames among sessions that are there.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use netbricks_testkit::build::ethernet;
use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

/// Frames that open sessions of each kind, and answers to some of them.
fn openers() -> Vec<Vec<u8>> {
    let v4 = |from: &str, to: &str| ethernet().ipv4(from, to);
    let quote = v4("203.0.113.8", "198.51.100.1").udp(9, 53).payload(b"x").build().unwrap()[14..].to_vec();
    let mapped = [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 1]].concat();
    let wish = [&[7; 12][..], &[17, 0, 0, 0, 15, 160, 0, 80], &mapped].concat();
    let filter = [&[3, 0, 0, 20, 0, 128, 0, 53][..], &mapped].concat();
    let pcp = |opcode: u8, rest: &[u8]| {
        let message = [&[2, opcode, 0, 0, 0, 0, 14, 16][..], &mapped, rest].concat();
        v4("10.0.0.1", "192.0.2.254").udp(50_000, 5_351).payload(&message).build().unwrap()
    };
    vec![
        pcp(0, &[]),
        pcp(1, &[&wish[..], &filter].concat()),
        pcp(2, &[&wish[..], &[0, 53, 0, 0], &mapped].concat()),
        v4("10.0.0.1", "198.51.100.1").udp(4_000, 53).payload(b"hello").build().unwrap(),
        v4("10.0.0.1", "198.51.100.1").tcp(4_000, 80).syn().build().unwrap(),
        v4("10.0.0.1", "198.51.100.1").icmp_echo_request(7, 1).payload(b"ping").build().unwrap(),
        v4("10.0.0.1", "203.0.113.7").udp(4_000, 53).payload(b"x").build().unwrap(),
        v4("198.51.100.1", "203.0.113.7").udp(9, 53).payload(b"x").build().unwrap(),
        v4("10.0.0.6", "198.51.100.1").udp(9, 53).payload(&[7; 1_500]).build().unwrap(),
        v4("192.0.2.9", "203.0.113.8").icmp_time_exceeded(&quote).build().unwrap(),
        v4("10.0.0.1", "198.51.100.9").fragment(0, true).udp(1, 2).payload(&[1; 32]).build().unwrap(),
        v4("10.0.0.1", "198.51.100.9").fragment(5, false).protocol(17).payload(&[2; 40]).build().unwrap(),
        ethernet().ipv6("2001:db8::1", "64:ff9b::c633:6401").udp(4_000, 53).payload(b"x").build().unwrap(),
        ethernet().ipv6("2001:db8::1", "64:ff9b::c633:6401").icmpv6_echo_request(7, 1).build().unwrap(),
        ethernet().ipv6("fd00::1", "2001:db8::9").tcp(1, 2).syn().build().unwrap(),
    ]
}

#[test]
fn whole_frames_are_translated() {
    assert!(exercise::run(&openers()) >= openers().len() - 1);
}

#[test]
fn mutated_frames_do_no_harm() {
    let mut random = Random::new(4_787);
    let mut base = openers();
    base.extend(kinds::every().into_iter().map(|(_, frame)| frame));
    let mut changed = 0;
    for _ in 0..150 {
        let frames: Vec<Vec<u8>> = (0..40)
            .map(|_| {
                let mut frame = base[random.below(base.len())].clone();
                if random.below(3) > 0 {
                    mutate(&mut frame, &mut random);
                }
                frame
            })
            .collect();
        changed += exercise::run(&frames);
    }
    assert!(changed > 1_000, "{changed}");
}

#[test]
fn frames_are_found_in_bytes() {
    let bytes: Vec<u8> = [&[1][..], &[9; 8], &[0], &[4], &[7; 3]].concat();
    assert_eq!(exercise::frames(&bytes), [vec![9; 8], vec![], vec![7; 3]]);
}
