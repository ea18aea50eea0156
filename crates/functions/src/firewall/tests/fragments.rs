//! Fragments: the first decides for the others.

use std::time::Duration;

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, FIN, SYN};
use netbricks_testkit::Clocked;
use netbricks_testkit::build::ethernet;

use super::super::{FirewallConfig, FragmentPolicy};
use super::{clocked, run, with};

fn first(id: u16, port: u16) -> Vec<u8> {
    let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").identification(id).fragment(0, true);
    packet.udp(1_000, port).payload(&[7; 24]).build().unwrap()
}

fn later(id: u16, offset: u16, more: bool) -> Vec<u8> {
    let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").identification(id).fragment(offset, more);
    packet.protocol(17).payload(&[7; 16]).build().unwrap()
}

const RULES: [&str; 2] = ["allow udp to any port 53 name dns", "deny udp"];

#[test]
fn later_fragments_share_the_fate_of_the_first() {
    let frames = [first(1, 53), later(1, 4, true), first(2, 54), later(2, 4, false), later(1, 6, false)];
    let report = run(with(&RULES), frames.clone());
    assert_eq!(report.out, [frames[0].clone(), frames[1].clone(), frames[4].clone()]);
    assert_eq!(report.dropped(DropReason::Denied), 2);
    let row = &report.sections[0].rows[0];
    assert_eq!((row[1].as_str(), row[4].as_str()), ("1", "2"), "{row:?}");
}

#[test]
fn a_fragment_without_its_first_is_dropped() {
    let report = run(with(&RULES), [later(1, 4, true), first(1, 53), later(9, 4, false)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Fragment)), (1, 2));
    let section = &report.sections[0];
    assert_eq!(section.counts["fragments_without_first"], 2);
}

#[test]
fn decisions_are_forgotten_after_thirty_seconds() {
    let mut test = clocked(with(&RULES));
    test.send([first(1, 53)]);
    test.advance(Duration::from_secs(20));
    assert_eq!(test.send([later(1, 4, true)]).out.len(), 1);
    test.advance(Duration::from_secs(31));
    assert_eq!(test.send([later(1, 6, false)]).dropped(DropReason::Fragment), 1);
}

#[test]
fn the_table_is_bounded_and_gives_old_packets_away() {
    let config = FirewallConfig { fragment_table: 16, ..with(&RULES) };
    let firsts = (0..1_000).map(|id| first(id, 53));
    let rest = (0..1_000).map(|id| later(id, 4, false));
    let report = run(config, firsts.chain(rest));
    assert!((1_001..=1_016).contains(&report.out.len()), "{}", report.out.len());
}

#[test]
fn fragments_that_could_overwrite_flags_are_dropped() {
    let tiny = ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .fragment(0, true)
        .protocol(6)
        .payload(&[0; 8])
        .build()
        .unwrap();
    let second = ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .fragment(1, false)
        .protocol(6)
        .payload(&[0; 16])
        .build()
        .unwrap();
    let report = run(with(&["policy allow"]), [tiny, second]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Fragment)), (0, 2));
}

#[test]
fn ipv6_fragments_follow_too_and_all_can_be_dropped() {
    let packet = |offset, more| ethernet().ipv6("2001:db8::1", "2001:db8::2").fragment(offset, more, 7);
    let frames = [
        packet(0, true).udp(1, 53).payload(&[0; 24]).build().unwrap(),
        packet(4, false).protocol(17).payload(&[0; 8]).build().unwrap(),
    ];
    assert_eq!(run(with(&RULES), frames.clone()).out, frames);
    let config = FirewallConfig { fragments: FragmentPolicy::Drop, ..with(&RULES) };
    assert_eq!(run(config, frames).dropped(DropReason::Fragment), 2);
}

/// A segment of the server with so many bytes of payload, in fragments of 1,480 bytes.
fn pieces(number: u32, len: usize, flags: u8) -> Vec<Vec<u8>> {
    let whole = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(number).ack(101);
    let whole = whole.flags(flags).window(1_000).payload(&vec![7; len]).build().unwrap();
    let transport = &whole[34..];
    let count = transport.len().div_ceil(1_480);
    let cut = transport.chunks(1_480).enumerate().map(|(at, part)| {
        let packet = ethernet().ipv4("10.0.0.2", "10.0.0.1").identification(7);
        let packet = packet.fragment(at as u16 * 185, at + 1 < count);
        packet.protocol(6).payload(part).build().unwrap()
    });
    cut.collect()
}

#[test]
fn acknowledgments_of_segments_in_fragments_pass() {
    let client = |flags: u8, number: u32, acknowledged: u32| {
        let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80).sequence(number);
        packet.ack(acknowledged).flags(flags).window(8_000).build().unwrap()
    };
    let answer = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(500).ack(101).window(1_000);
    let answer = answer.flags(SYN | ACK).build().unwrap();
    let begin = || [client(SYN, 100, 0), answer.clone(), client(ACK, 101, 501)];
    for (flags, more) in [(ACK, 0), (ACK | FIN, 1)] {
        let mut test = clocked(with(&["allow tcp to any port 80"]));
        assert_eq!(test.send(begin()).out.len(), 3);
        assert_eq!(test.send(pieces(501, 4_000, flags)).out.len(), 3);
        let passes = |test: &mut Clocked, frame: Vec<u8>| test.send([frame]).out.len() == 1;
        assert!(passes(&mut test, client(ACK, 101, 4_501 + more)), "the acknowledgment of the whole segment");
        // A whole segment behind it tells its end again.
        let next = ethernet().ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000).sequence(4_501 + more).ack(101);
        let next = next.flags(ACK).window(1_000).payload(b"next").build().unwrap();
        assert!(passes(&mut test, next));
        assert!(
            !passes(&mut test, client(ACK, 101, 4_506 + more)),
            "nothing was sent that it could acknowledge"
        );
        assert!(passes(&mut test, client(ACK, 101, 4_505 + more)));
    }
    // No packet is larger than 64 KiB, and whole segments have no later fragments.
    let mut test = clocked(with(&["allow tcp to any port 80"]));
    test.send(begin());
    assert_eq!(test.send([client(ACK, 101, 502)]).out.len(), 0);
    test.send(pieces(501, 4_000, ACK));
    assert_eq!(test.send([client(ACK, 101, 501 + 1_460 + 65_536)]).out.len(), 0);
}
