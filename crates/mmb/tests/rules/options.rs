//! TCP options: matched, taken out, added, written.

use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::{Builder, ethernet};
use netbricks_testkit::checksums;

use crate::{run, through};

fn syn() -> Builder<'static, netbricks_core::packet::Tcp> {
    ethernet().ipv4("10.0.0.1", "192.0.2.7").tcp(4_000, 80).flags(flags::SYN)
}

fn changed(lines: &[&str], frame: Vec<u8>) -> Vec<u8> {
    let out = through(lines, frame).expect("the packet passes");
    assert_eq!(checksums::wrong(&out), Vec::<String>::new(), "{lines:?}");
    out
}

/// The options of a frame without VLAN tags and IPv4 options.
fn options(frame: &[u8]) -> &[u8] {
    &frame[54..34 + usize::from(frame[46] >> 4) * 4]
}

#[test]
fn a_large_segment_size_is_written_over() {
    let rule = ["add tcp-opt-mss > 1500 mod tcp-opt-mss 1460"];
    let large = syn().maximum_segment_size(8_960).build().unwrap();
    assert_eq!(changed(&rule, large), syn().maximum_segment_size(1_460).build().unwrap());
    let small = syn().maximum_segment_size(1_500).build().unwrap();
    assert_eq!(changed(&rule, small.clone()), small);
    let none = syn().build().unwrap();
    assert_eq!(changed(&rule, none.clone()), none);
}

#[test]
fn a_missing_option_is_added_and_a_present_one_replaced() {
    let add = ["add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460"];
    let out = changed(&add, syn().payload(b"early").build().unwrap());
    assert_eq!(out, syn().maximum_segment_size(1_460).payload(b"early").build().unwrap());
    let replace = ["add tcp-syn tcp-opt-mss strip tcp-opt-mss add tcp-opt-mss 1452"];
    let out = changed(&replace, syn().maximum_segment_size(1_460).window_scale(7).build().unwrap());
    assert_eq!(options(&out), [3, 3, 7, 2, 4, 5, 172, 0]);
}

#[test]
fn all_options_but_some_are_taken_out() {
    let rule = ["add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale"];
    let all =
        syn().maximum_segment_size(1_460).sack_permitted().timestamps(1, 2).window_scale(7).build().unwrap();
    assert_eq!(options(&changed(&rule, all)), [2, 4, 5, 180, 3, 3, 7, 0]);
    let without = syn().maximum_segment_size(1_460).sack_permitted().build().unwrap();
    assert_eq!(changed(&rule, without.clone()), without);
}

#[test]
fn options_are_matched_by_kind_and_by_their_absence() {
    let by_kind = ["add tcp-opt 22 drop"];
    assert!(run(&by_kind, [syn().option(22, b"x")]).out.is_empty());
    assert_eq!(run(&by_kind, [syn().option(23, b"x")]).out.len(), 1);
    let neither = ["add ! tcp-opt-mss ! tcp-opt-wscale drop"];
    assert!(run(&neither, [syn().sack_permitted()]).out.is_empty());
    assert_eq!(run(&neither, [syn().window_scale(1)]).out.len(), 1);
    let udp = ethernet().ipv4("10.0.0.1", "192.0.2.7").udp(1, 2);
    assert_eq!(run(&neither, [udp]).out.len(), 1, "TCP without the options is meant");
    let other = ["add tcp-opt-mss != 1460 drop"];
    assert_eq!(run(&other, [syn()]).out.len(), 1, "a value that is not there is no other value");
    assert!(run(&other, [syn().maximum_segment_size(1)]).out.is_empty());
}

#[test]
fn an_option_without_room_is_not_added_and_counted() {
    let rule = ["add tcp-syn add tcp-opt-mss 1460"];
    let full = syn().option(30, &[0; 38]).build().unwrap();
    let report = run(&rule, [full.clone()]);
    assert_eq!(report.out, [full]);
    let section = report.sections.iter().find(|section| section.title == "rules").unwrap();
    assert_eq!(section.rows[0][3], "1", "{section:?}");
}

#[test]
fn several_conditions_and_targets_hold_together() {
    let rule = [
        "add tcp-syn 1 tcp-dport 80 tcp-opt-mss <= 1480 ip-ect0 tcp-seq-num == x89abcdef mod tcp-ack 1 mod tcp-dport 321 strip tcp-opt-mss",
    ];
    let packet = |sequence| {
        let link = ethernet().ipv4("10.0.0.1", "192.0.2.7").ecn(2);
        link.tcp(4_000, 80).flags(flags::SYN).sequence(sequence).maximum_segment_size(1_480).build().unwrap()
    };
    let out = changed(&rule, packet(0x89ab_cdef));
    let link = ethernet().ipv4("10.0.0.1", "192.0.2.7").ecn(2);
    let expected = link.tcp(4_000, 321).flags(flags::SYN | flags::ACK).sequence(0x89ab_cdef).build().unwrap();
    assert_eq!(out, expected);
    assert_eq!(changed(&rule, packet(1)), packet(1));
}
