//! Cases that the oracle found wrong.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::checksums;

use crate::{run, through};

fn changed(lines: &[&str], frame: Vec<u8>) -> Vec<u8> {
    let out = through(lines, frame).expect("the packet passes");
    assert_eq!(checksums::wrong(&out), Vec::<String>::new(), "{lines:?}");
    out
}

fn syn() -> netbricks_testkit::build::Builder<'static, netbricks_core::packet::Tcp> {
    ethernet().ipv4("10.0.0.1", "192.0.2.7").tcp(4_000, 80).flags(flags::SYN)
}

#[test]
fn a_payload_of_udp_ends_where_its_length_says() {
    let mut frame =
        ethernet().ipv4("10.0.0.1", "192.0.2.7").udp(1, 2).unchecked().payload(b"Gx").build().unwrap();
    assert!(run(&["add udp-payload \"G\" drop"], [frame.clone()]).out.is_empty());
    frame[14 + 20 + 5] = 8;
    assert_eq!(run(&["add udp-payload \"G\" drop"], [frame]).out.len(), 1);
}

#[test]
fn a_message_of_zeros_has_all_ones_as_its_checksum() {
    let frame = ethernet().ipv4("10.0.0.1", "192.0.2.7").icmp_echo_reply(7, 0x0501).build().unwrap();
    let out = changed(&["add icmp-type 0 mod icmp-id 0 mod icmp-seq 0"], frame);
    assert_eq!(out[34..42], [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    let back = changed(&["add icmp-type 0 mod icmp-id 7"], out);
    assert_eq!(back[34..42], [0, 0, 0xff, 0xf8, 0, 7, 0, 0]);
}

#[test]
fn a_value_of_a_set_that_is_too_large_for_a_field_means_no_packet() {
    let lines = ["define @large {65541, 70000-70010, x10050&x1ffff}", "add tcp-opt-mss @large drop"];
    let frames = [5u16, 80, 4_464].map(|size| syn().maximum_segment_size(size).build().unwrap());
    assert_eq!(run(&lines, frames).out.len(), 3);
    let part = ["define @large {60000-70000}", "add tcp-opt-mss @large drop"];
    let frames = [59_999u16, 60_000, 65_535].map(|size| syn().maximum_segment_size(size).build().unwrap());
    assert_eq!(run(&part, frames).dropped(DropReason::Denied), 2);
}

#[test]
fn an_option_is_written_behind_one_that_was_taken_out_or_added() {
    let lines = ["add tcp-syn strip tcp-opt-wscale", "add tcp-syn mod tcp-opt-mss 1400"];
    let frame = syn().maximum_segment_size(1_460).window_scale(7).build().unwrap();
    assert_eq!(changed(&lines, frame), syn().maximum_segment_size(1_400).build().unwrap());
    let lines = ["add tcp-syn add tcp-opt-mss 1460", "add tcp-syn mod tcp-opt-mss 1400"];
    assert_eq!(changed(&lines, syn().build().unwrap()), syn().maximum_segment_size(1_400).build().unwrap());
    // An option for which there was no room does not undo what follows.
    let full = || syn().maximum_segment_size(1_460).option(30, &[0; 32]);
    let lines =
        ["add tcp-syn add tcp-opt-timestamp 1", "add tcp-syn mod tcp-opt-mss 1400 strip tcp-opt-mptcp"];
    let out = changed(&lines, full().build().unwrap());
    assert_eq!(out, syn().maximum_segment_size(1_400).build().unwrap());
}

#[test]
fn a_tunnel_header_that_is_cut_before_its_checksum_is_left_alone() {
    let mut frame =
        ethernet().ipv4("10.0.0.1", "192.0.2.7").protocol(47).payload(&[0x80, 0, 8, 0]).build().unwrap();
    frame.truncate(38);
    assert_eq!(run(&["add ip-payload x80 mod ip-payload x81"], [frame]).out[0][34], 0x81);
}

#[test]
fn a_long_payload_is_written_with_its_checksum() {
    let (before, after) = ("a".repeat(300), "b".repeat(301));
    let frame = syn().payload(format!("{before}a.").as_bytes()).build().unwrap();
    let line = format!("add tcp-syn mod tcp-payload \"{after}\"");
    assert_eq!(changed(&[&line], frame), syn().payload(format!("{after}.").as_bytes()).build().unwrap());
}

#[test]
fn bytes_of_a_first_fragment_that_ends_in_its_tcp_header_are_carried_into_the_checksum() {
    let whole = syn().maximum_segment_size(1_460).window_scale(7);
    let ip = |frame: &[u8]| frame[34..].to_vec();
    let first = |bytes: &[u8]| {
        ethernet()
            .ipv4("10.0.0.1", "192.0.2.7")
            .fragment(0, true)
            .protocol(6)
            .payload(&bytes[..24])
            .build()
            .unwrap()
    };
    let out = run(&["add ip-mf mod ip-payload x1111"], [first(&ip(&whole.build().unwrap()))]).out.remove(0);
    let other = ethernet().ipv4("10.0.0.1", "192.0.2.7").tcp(0x1111, 80).flags(flags::SYN);
    let other = other.maximum_segment_size(1_460).window_scale(7).build().unwrap();
    assert_eq!(out, first(&ip(&other)));
}

#[test]
fn an_address_of_a_later_fragment_under_an_authentication_header_stays() {
    let frame =
        ethernet().ipv6("2001:db8::1", "2001:db8::2").fragment(8, false, 7).protocol(51).payload(&[1; 16]);
    let frame = frame.build().unwrap();
    assert_eq!(run(&["add all mod ip6-daddr 2001:db8::9"], [frame.clone()]).out, [frame]);
}

#[test]
fn a_length_is_no_protocol() {
    let frame = [&[1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 3, 0x42, 0x42, 3][..], &[0; 43]].concat();
    assert_eq!(run(&["add net-proto 1-65535 drop"], [frame]).out.len(), 1);
}

#[test]
fn a_field_by_which_packets_are_of_a_session_is_not_written() {
    let refused = netbricks_mmb::language::parse_rule("all mod pppoe-code 1").unwrap_err();
    assert!(refused.to_string().contains("`mod` does not write `pppoe-code`"), "{refused}");
}
