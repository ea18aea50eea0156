//! The rules that mmb's description and its users give, over packets that they mean and packets that they do not.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::checksums;

use crate::{run, through};

fn v4() -> netbricks_testkit::build::Builder<'static, netbricks_core::packet::Ipv4> {
    ethernet().ipv4("10.0.0.1", "192.0.2.7")
}

/// The frame after the rules, whose checksums are right.
fn changed(lines: &[&str], frame: &[u8]) -> Vec<u8> {
    let out = through(lines, frame.to_vec()).expect("the packet passes");
    assert_eq!(checksums::wrong(&out), Vec::<String>::new(), "{lines:?}");
    out
}

#[test]
fn a_field_of_all_packets_is_written() {
    let before = v4().ecn(1).udp(1, 2).payload(b"hi").build().unwrap();
    let after = v4().ecn(0).udp(1, 2).payload(b"hi").build().unwrap();
    assert_eq!(changed(&["add all mod ip-ecn 0"], &before), after);
}

#[test]
fn a_port_is_rewritten_and_others_stay() {
    let rule = ["add tcp-dport 80 mod tcp-dport 443"];
    let before = v4().tcp(4000, 80).payload(b"GET").build().unwrap();
    let after = v4().tcp(4000, 443).payload(b"GET").build().unwrap();
    assert_eq!(changed(&rule, &before), after);
    let other = v4().tcp(4000, 81).build().unwrap();
    assert_eq!(changed(&rule, &other), other);
    let udp = v4().udp(4000, 80).build().unwrap();
    assert_eq!(changed(&rule, &udp), udp);
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2");
    let before = v6.tcp(4000, 80).build().unwrap();
    let after = ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(4000, 443).build().unwrap();
    assert_eq!(changed(&rule, &before), after);
}

#[test]
fn packets_are_dropped_by_flags_and_by_what_a_field_is_not() {
    let rule = ["add tcp-cwr tcp-syn tcp-ece drop"];
    let all = v4().tcp(1, 2).flags(flags::CWR | flags::SYN | flags::ECE);
    assert_eq!(run(&rule, [all]).dropped(DropReason::Denied), 1);
    let some = v4().tcp(1, 2).flags(flags::CWR | flags::SYN);
    assert_eq!(run(&rule, [some]).out.len(), 1);
    let rule = ["add ip-proto != tcp drop"];
    let report = run(&rule, [v4().tcp(1, 2).build().unwrap(), v4().udp(1, 2).build().unwrap()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (1, 1));
    let arp = ethernet().arp_request("10.0.0.1", "10.0.0.2").build().unwrap();
    assert_eq!(run(&rule, [arp]).out.len(), 1, "a field implies its protocol");
}

#[test]
fn later_rules_win_on_the_same_field_and_match_what_arrived() {
    let lines = [
        "add ip-ecn 1 mod ip-ecn 3 mod ip-dscp 2",
        "add ip-ecn 3 mod ip-dscp 9",
        "add ip-ecn 1 mod ip-dscp 4",
    ];
    let before = v4().ecn(1).udp(1, 2).build().unwrap();
    let after = v4().ecn(3).dscp(4).udp(1, 2).build().unwrap();
    assert_eq!(changed(&lines, &before), after);
}

#[test]
fn accept_ends_the_rules_in_order_and_outweighs_drop_in_all_match() {
    let lines = ["add udp-dport 53 accept", "add ip-proto udp drop"];
    let frames = || [v4().udp(1, 53).build().unwrap(), v4().udp(1, 54).build().unwrap()];
    let report = run(&lines, frames());
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (1, 1));
    let reversed = ["add ip-proto udp drop", "add udp-dport 53 accept"];
    assert_eq!(run(&reversed, frames()).dropped(DropReason::Denied), 2);
    let all = ["mode all-match", "add ip-proto udp drop", "add udp-dport 53 accept"];
    assert_eq!(run(&all, frames()).dropped(DropReason::Denied), 1);
}

#[test]
fn a_policy_decides_where_no_rule_does() {
    let lines = ["policy drop", "add udp-dport 53 accept"];
    let report = run(&lines, [v4().udp(1, 53).build().unwrap(), v4().udp(1, 54).build().unwrap()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (1, 1));
}

#[test]
fn later_fragments_match_no_transport_field() {
    let later = v4().fragment(8, false).protocol(17).payload(&[0; 16]).build().unwrap();
    assert_eq!(run(&["add udp-sport 0 drop"], [later.clone()]).out.len(), 1);
    assert_eq!(run(&["add ip-frag-offset 8 drop"], [later]).out.len(), 0);
}

#[test]
fn sets_ranges_prefixes_and_masks_match() {
    let lines = [
        "define @web {80, 443, 8000-8100}",
        "add tcp-dport @web drop",
        "add ip-daddr 203.0.113.0/25 drop",
        "add tcp-flags x12&x12 drop",
        "add ip-ttl < 5 drop",
    ];
    let packets = [
        (v4().tcp(1, 8_050).build().unwrap(), true),
        (v4().tcp(1, 8_101).build().unwrap(), false),
        (ethernet().ipv4("10.0.0.1", "203.0.113.127").udp(1, 2).build().unwrap(), true),
        (ethernet().ipv4("10.0.0.1", "203.0.113.128").udp(1, 2).build().unwrap(), false),
        (v4().tcp(1, 2).flags(flags::SYN | flags::ACK).build().unwrap(), true),
        (v4().tcp(1, 2).flags(flags::SYN).build().unwrap(), false),
        (v4().ttl(4).udp(1, 2).build().unwrap(), true),
    ];
    for (packet, is_dropped) in packets {
        assert_eq!(run(&lines, [packet.clone()]).out.is_empty(), is_dropped, "{packet:02x?}");
    }
}

#[test]
fn payloads_are_matched_by_their_first_bytes_and_rewritten() {
    let lines = ["add tcp-payload \"GET \" mod tcp-payload \"PUT \""];
    let before = v4().tcp(1, 80).payload(b"GET /").build().unwrap();
    let after = v4().tcp(1, 80).payload(b"PUT /").build().unwrap();
    assert_eq!(changed(&lines, &before), after);
    let short = v4().tcp(1, 80).payload(b"GET").build().unwrap();
    assert_eq!(changed(&lines, &short), short);
    let others = ["add tcp-dport 80 ! tcp-payload \"GET \" drop"];
    assert_eq!(run(&others, [before]).out.len(), 1);
    assert_eq!(run(&others, [short]).out.len(), 0);
}

#[test]
fn a_share_of_packets_is_dropped() {
    let report = run(&["add all drop 25"], (0..4_000u16).map(|port| v4().udp(port, 2).build().unwrap()));
    let dropped = report.dropped(DropReason::Denied);
    assert!((800..1_200).contains(&dropped), "{dropped}");
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut frame = v4().tcp(1, 80).payload(b"abc").build().unwrap();
    frame[14 + 20 + 16] ^= 0x40;
    let out = through(&["add tcp-dport 80 mod tcp-dport 443 mod tcp-win 7"], frame).unwrap();
    assert_eq!(checksums::wrong(&out).len(), 1);
}
