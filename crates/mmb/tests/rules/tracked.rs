//! Stateful rules: connections, mapped addresses and ports, translated sequence numbers.

use std::time::Duration;

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_core::{DropReason, Worker};
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, checksums};

pub(crate) fn clocked(lines: &[&str]) -> Clocked {
    let settings = MmbSettings::of(lines.iter().copied());
    Clocked::of_node(move |worker: &Worker| node(&settings, worker))
}

/// A segment from the client, or back to it.
#[expect(clippy::unwrap_used, reason = "a test's packet can be built")]
pub(crate) fn segment(out: bool, port: u16, bits: u8, sequence: u32, acknowledged: u32) -> Vec<u8> {
    let built = match out {
        true => ethernet().ipv4("10.0.0.9", "192.0.2.7").tcp(port, 80),
        false => ethernet().ipv4("192.0.2.7", "10.0.0.9").tcp(80, port),
    };
    built.flags(bits).sequence(sequence).ack(acknowledged).flags(bits).build().unwrap()
}

#[test]
fn answers_pass_where_a_stateful_rule_met_the_first_packet() {
    let mut bench =
        clocked(&["add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept", "add ip-proto tcp drop"]);
    let report = bench.send([segment(false, 4_000, flags::SYN, 1, 0)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (0, 1), "nobody inside asked");
    assert_eq!(bench.send([segment(true, 4_000, flags::SYN, 1, 0)]).out.len(), 1);
    assert_eq!(bench.send([segment(false, 4_000, flags::SYN | flags::ACK, 1, 2)]).out.len(), 1);
    assert_eq!(bench.send([segment(false, 4_001, flags::SYN | flags::ACK, 1, 2)]).out.len(), 0);
    // The handshake is not over: the connection is forgotten after two minutes.
    bench.advance(Duration::from_secs(125));
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 1, 2)]).out.len(), 0);
    bench.finish();
}

#[test]
fn a_rule_that_an_answer_brings_to_a_known_connection_applies_both_ways() {
    let mut bench =
        clocked(&["add-stateful ip-daddr 192.0.2.0/24 mod ip-ttl 9 accept", "add-stateful all accept"]);
    // The second rule alone, and its verdict is remembered.
    for _ in 0..3 {
        assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 1, 1)]).out[0][22], 64);
    }
    assert_eq!(bench.send([segment(true, 4_000, flags::ACK, 1, 1)]).out[0][22], 9);
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 1, 1)]).out[0][22], 9);
    bench.finish();
}

#[test]
fn a_deleted_rule_ends_its_connections() {
    let mut bench =
        clocked(&["add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept", "add ip-proto tcp drop"]);
    bench.send([segment(true, 4_000, flags::SYN, 1, 0)]);
    assert_eq!(bench.send([segment(false, 4_000, flags::SYN | flags::ACK, 1, 2)]).out.len(), 1);
    bench.call("run", "delete 1");
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 2, 2)]).out.len(), 0);
    bench.finish();
}

#[test]
fn a_connection_is_mapped_both_ways() {
    let mut bench = clocked(&["add-stateful ip-proto tcp map ip-saddr 30.30.30.30 shuffle tcp-sport"]);
    let sent = bench.send([segment(true, 4_000, flags::SYN, 7, 0)]).out.remove(0);
    assert_eq!(checksums::wrong(&sent), Vec::<String>::new());
    let flow = FlowKey::from_frame(&sent).unwrap();
    assert_eq!((flow.source().to_string(), flow.destination_port()), ("30.30.30.30".to_owned(), 80));
    assert!(flow.source_port() >= 1_024);
    let answer = ethernet().ipv4("192.0.2.7", "30.30.30.30").tcp(80, flow.source_port());
    let answer = answer
        .flags(flags::SYN | flags::ACK)
        .sequence(9)
        .ack(8)
        .flags(flags::SYN | flags::ACK)
        .build()
        .unwrap();
    let back = bench.send([answer]).out.remove(0);
    assert_eq!(checksums::wrong(&back), Vec::<String>::new());
    assert_eq!(
        FlowKey::from_frame(&back).unwrap(),
        FlowKey::from_frame(&segment(false, 4_000, 0, 0, 0)).unwrap()
    );
    // The second segment has the same port.
    let again = bench.send([segment(true, 4_000, flags::ACK, 8, 10)]).out.remove(0);
    assert_eq!(FlowKey::from_frame(&again), Some(flow));
    assert!(bench.call("connections", "9").starts_with("1 connections\n"));
    bench.finish();
}

#[test]
fn an_error_about_a_mapped_packet_reaches_its_sender() {
    let mut bench = clocked(&["add-stateful ip-proto udp map ip-saddr 30.30.30.30"]);
    let first = ethernet().ipv4("10.0.0.9", "192.0.2.7").udp(4_000, 53).payload(&[1; 40]).build().unwrap();
    let sent = bench.send([first.clone()]).out.remove(0);
    let error = ethernet().ipv4("198.51.100.1", "30.30.30.30").icmp_fragmentation_needed(1_280, &sent[14..]);
    let back = bench.send([error.build().unwrap()]).out.remove(0);
    assert_eq!(checksums::wrong(&back), Vec::<String>::new());
    let (ip, payload) = Ip::in_frame(&back).unwrap();
    assert_eq!(ip.destination().to_string(), "10.0.0.9");
    assert_eq!(ip.source().to_string(), "198.51.100.1", "a router keeps its address");
    assert_eq!(FlowKey::quoted(ip, payload).map(|flow| flow.reversed()), FlowKey::from_frame(&first));
    bench.finish();
}

#[test]
fn sequence_numbers_are_translated_both_ways() {
    let mut bench = clocked(&["add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num"]);
    let numbers = |frame: &[u8]| {
        let read = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        (read(14 + 20 + 4), read(14 + 20 + 8))
    };
    let syn = bench.send([segment(true, 4_000, flags::SYN, 100, 0)]).out.remove(0);
    assert_eq!(checksums::wrong(&syn), Vec::<String>::new());
    let (outside, none) = numbers(&syn);
    assert_ne!(outside, 100);
    assert_eq!(none, 0, "without ACK the number means nothing");
    let answer = segment(false, 4_000, flags::SYN | flags::ACK, 500, outside.wrapping_add(1));
    let (theirs, acknowledged) = numbers(&bench.send([answer]).out.remove(0));
    assert_eq!(acknowledged, 101);
    assert_ne!(theirs, 500);
    let third = segment(true, 4_000, flags::ACK, 101, theirs.wrapping_add(1));
    assert_eq!(numbers(&bench.send([third]).out.remove(0)), (outside.wrapping_add(1), 501));
    bench.finish();
}

#[test]
fn a_rule_shuffles_a_connection_that_another_began() {
    let mut bench = clocked(&[
        "add-stateful ip-proto tcp map ip-saddr 30.30.30.30",
        "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num",
    ]);
    let number = |frame: &[u8]| u32::from_be_bytes(frame[38..42].try_into().unwrap());
    let syn = bench.send([segment(true, 4_000, flags::SYN, 100, 0)]).out.remove(0);
    assert_ne!(number(&syn), 100);
    assert_eq!(FlowKey::from_frame(&syn).unwrap().source().to_string(), "30.30.30.30");
    let next = bench.send([segment(true, 4_000, flags::ACK, 101, 1)]).out.remove(0);
    assert_eq!(number(&next), number(&syn).wrapping_add(1));
    bench.finish();
}

#[test]
fn a_connection_has_the_sequence_numbers_of_one_rule() {
    let mut bench = clocked(&[
        "add-stateful tcp-syn shuffle tcp-seq-num",
        "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num",
    ]);
    bench.send([segment(true, 4_000, flags::SYN, 100, 0)]);
    let listed: serde_json::Value = serde_json::from_str(&bench.call("list", "")).unwrap();
    let not_applied = |at: usize| listed["rules"][at]["not_applied"].as_u64().unwrap();
    assert_eq!((not_applied(0), not_applied(1)), (0, 1));
    bench.finish();
}

#[test]
fn a_reset_that_no_end_takes_closes_nothing() {
    let lines = ["add-stateful ip-saddr 10.0.0.0/8 accept", "policy drop"];
    let signed = |bits, sequence| {
        let tcp = ethernet().ipv4("10.0.0.9", "192.0.2.7").tcp(4_000, 80).flags(bits).option(19, &[7; 16]);
        tcp.sequence(sequence).build().unwrap()
    };
    let mut corrupt = segment(true, 4_000, flags::RST, 101, 0);
    corrupt[50] ^= 1;
    let plain = segment(true, 4_000, flags::RST, 101, 0);
    for (name, reset, is_closed) in
        [("signed", signed(flags::RST, 101), false), ("corrupt", corrupt, false), ("its own", plain, true)]
    {
        let mut bench = clocked(&lines);
        bench.send([segment(true, 4_000, flags::SYN, 100, 0)]);
        bench.send([segment(false, 4_000, flags::SYN | flags::ACK, 500, 101)]);
        bench.send([segment(true, 4_000, flags::ACK, 101, 501)]);
        bench.send([reset]);
        bench.advance(Duration::from_secs(130));
        let answered = bench.send([segment(false, 4_000, flags::ACK, 501, 101)]).out.len();
        assert_eq!(answered, usize::from(!is_closed), "{name}");
        bench.finish();
    }
    // Of a connection that was met in its middle, it is not known whether it is signed.
    let mut bench = clocked(&lines);
    bench.send([signed(flags::ACK, 100)]);
    bench.send([segment(false, 4_000, flags::ACK, 500, 100)]);
    bench.send([signed(flags::RST, 100)]);
    bench.advance(Duration::from_secs(130));
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 501, 101)]).out.len(), 0);
    bench.finish();
    // A connection whose SYNs are signed is ended by signed segments.
    let mut bench = clocked(&lines);
    bench.send([signed(flags::SYN, 100)]);
    bench.send([segment(false, 4_000, flags::ACK, 500, 101)]);
    bench.send([signed(flags::RST, 101)]);
    bench.advance(Duration::from_secs(130));
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 501, 101)]).out.len(), 0);
    bench.finish();
}

#[test]
fn fields_that_a_packet_has_not_are_not_mapped() {
    let v4 = || ethernet().ipv4("10.0.0.9", "192.0.2.7");
    let v6 = || ethernet().ipv6("2001:db8::9", "2001:db8::7");
    let tcp = || v4().tcp(4_000, 80).flags(flags::SYN).build().unwrap();
    let udp = || v4().udp(4_000, 53).payload(&[1; 8]).build().unwrap();
    let ping = || v4().icmp_echo_request(77, 1).payload(b"0123456789").build().unwrap();
    let six = || v6().tcp(4_000, 80).flags(flags::SYN).build().unwrap();
    for (line, kept) in [
        ("add-stateful tcp-dport 80 map ip6-saddr fd00::9", vec![tcp()]),
        ("add-stateful tcp-dport 80 map ip-saddr 203.0.113.5", vec![six()]),
        ("add-stateful all map icmp-id 1000", vec![tcp(), udp(), six()]),
        ("add-stateful all map tcp-sport 1000", vec![ping(), udp()]),
        ("add-stateful all map udp-dport 1000", vec![ping(), tcp(), six()]),
        ("add-stateful all map icmp6-id 1000", vec![ping(), tcp(), six()]),
        ("add-stateful all map ip6-hop-limit 9", vec![ping(), tcp()]),
    ] {
        let mut bench = clocked(&[line]);
        assert_eq!(bench.send(kept.clone()).out, kept, "{line}");
        bench.finish();
    }
    // The address is mapped, and the identifier stays; so its answer comes back.
    let mut bench =
        clocked(&["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 203.0.113.5 map tcp-sport 7777"]);
    let sent = bench.send([ping()]).out.remove(0);
    assert_eq!(FlowKey::from_frame(&sent).unwrap().source_port(), 77);
    let answer = ethernet()
        .ipv4("192.0.2.7", "203.0.113.5")
        .icmp_echo_reply(77, 1)
        .payload(b"0123456789")
        .build()
        .unwrap();
    let back = bench.send([answer]).out.remove(0);
    assert_eq!(FlowKey::from_frame(&back).unwrap().destination().to_string(), "10.0.0.9");
    // A rule of which nothing applies leaves the connection to the next.
    for first in ["add-stateful tcp-dport 80 map ip6-saddr fd00::9", "add-stateful all map vlan-id 5"] {
        let mut bench = clocked(&[first, "add-stateful tcp-dport 80 map ip-saddr 203.0.113.5"]);
        let sent = bench.send([tcp()]).out.remove(0);
        assert_eq!(FlowKey::from_frame(&sent).unwrap().source().to_string(), "203.0.113.5", "{first}");
        bench.finish();
    }
    // A timestamp request (RFC 792) has an identifier, and is no echo.
    let mut timestamp = v4().icmp_echo_request(77, 1).payload(&[0; 12]).build().unwrap();
    timestamp[34] = 13;
    let sum = u16::from_be_bytes([timestamp[36], timestamp[37]]);
    timestamp[36..38].copy_from_slice(&(sum - 0x500).to_be_bytes());
    let mut bench = clocked(&["add-stateful all map ip-saddr 203.0.113.5 map icmp-id 1000"]);
    let sent = bench.send([timestamp]).out.remove(0);
    assert_eq!(
        (FlowKey::from_frame(&sent).unwrap().source().to_string(), &sent[38..40]),
        ("203.0.113.5".into(), &[0, 77][..])
    );
    bench.finish();
}

#[test]
fn two_senders_of_one_port_cannot_both_be_the_same_address() {
    let mut bench = clocked(&["add-stateful ip-proto udp map ip-saddr 30.30.30.30"]);
    let from = |host: &str| ethernet().ipv4(host, "192.0.2.7").udp(4_000, 53).build().unwrap();
    assert_eq!(bench.send([from("10.0.0.1")]).out.len(), 1);
    let report = bench.send([from("10.0.0.2")]);
    assert_eq!((report.out.len(), report.dropped(DropReason::TableFull)), (0, 1));
    bench.finish();
}

#[test]
fn sack_blocks_are_translated_among_options_that_change() {
    let lines = ["add-stateful tcp-syn shuffle tcp-seq-num", "add tcp-opt-timestamp strip tcp-opt-timestamp"];
    let mut bench = clocked(&lines);
    let read = |frame: &[u8], at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let syn = bench.send([segment(true, 4_000, flags::SYN, 100, 0)]).out.remove(0);
    let shift = read(&syn, 38).wrapping_sub(100);
    let answer = ethernet().ipv4("192.0.2.7", "10.0.0.9").tcp(80, 4_000).flags(flags::ACK);
    let answer = answer.ack(101u32.wrapping_add(shift)).timestamps(1, 2);
    let answer = answer.selective_acknowledgment(&[(200u32.wrapping_add(shift), 300u32.wrapping_add(shift))]);
    let back = bench.send([answer]).out.remove(0);
    assert_eq!(checksums::wrong(&back), Vec::<String>::new());
    assert_eq!(back.len(), 14 + 20 + 20 + 12);
    assert_eq!((read(&back, 42), read(&back, 56), read(&back, 60)), (101, 200, 300));
    bench.finish();
}

#[test]
fn a_rule_that_another_hides_is_told() {
    let mut bench = clocked(&["add tcp-dport 1-100 drop"]);
    let said = bench.call("run", "add tcp-dport 80 accept");
    assert!(said.contains("line 1: ") && said.contains("rule 1"), "{said}");
    assert_eq!(bench.call("run", "add udp-dport 80 accept"), "rule 3 of 3\n");
    bench.finish();
}

#[test]
fn a_connection_is_of_the_packet_as_it_arrived() {
    let lines =
        ["add tcp-dport 80 mod tcp-dport 8080", "add-stateful tcp-syn accept", "add ip-proto tcp drop"];
    let mut bench = clocked(&lines);
    assert_eq!(bench.send([segment(true, 4_000, flags::SYN, 1, 0)]).out.len(), 1);
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 1, 2)]).out.len(), 1);
    bench.finish();
}

#[test]
fn authenticated_sequence_numbers_stay() {
    for (kind, is_translated) in [(19, false), (29, false), (30, true)] {
        let mut bench = clocked(&["add-stateful tcp-syn shuffle tcp-seq-num"]);
        let syn = ethernet().ipv4("10.0.0.9", "192.0.2.7").tcp(4_000, 80).flags(flags::SYN).sequence(100);
        let syn = syn.option(kind, &[7; 16]).build().unwrap();
        let out = bench.send([syn.clone()]).out.remove(0);
        assert_eq!(out != syn, is_translated, "option {kind}");
        bench.finish();
    }
}

#[test]
fn an_answer_is_not_mapped_by_a_rule_for_connections_the_other_way() {
    let lines = [
        "add-stateful ip-saddr 192.0.2.0/24 accept",
        "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 30.30.30.30",
    ];
    let mut bench = clocked(&["mode all-match", lines[0], lines[1]]);
    let asked = ethernet().ipv4("192.0.2.7", "10.0.0.9").udp(4_000, 53).build().unwrap();
    let answer = ethernet().ipv4("10.0.0.9", "192.0.2.7").udp(53, 4_000).build().unwrap();
    assert_eq!(bench.send([asked.clone()]).out, std::slice::from_ref(&asked));
    assert_eq!(bench.send([answer.clone()]).out, [answer]);
    assert_eq!(bench.send([asked.clone()]).out, [asked]);
    bench.finish();
}

#[test]
fn a_set_keeps_a_value() {
    use netbricks_core::buffer::Pool;
    let pool = Pool::builder().frames(16).build().unwrap();
    let settings = MmbSettings::of(["define @web {80, 443}", "add tcp-dport @web drop"]);
    let mut node = node(&settings, &Worker::new(0, 1, pool)).unwrap();
    node.call("run", "shrink @web {443}").unwrap();
    let refused = node.call("run", "shrink @web {80}").unwrap_err().to_string();
    assert!(refused.contains("would be empty"), "{refused}");
    assert!(node.call("lines", "").unwrap().starts_with("define @web {80}\n"));
}

#[test]
fn a_mapped_port_is_free_when_its_connection_is_over() {
    let mut bench = clocked(&["add-stateful ip-proto udp map ip-saddr 30.30.30.30"]);
    let from = |host: &str| ethernet().ipv4(host, "192.0.2.7").udp(4_000, 53).build().unwrap();
    assert_eq!(bench.send([from("10.0.0.1")]).out.len(), 1);
    // Packets of one direction keep the way from the answers open.
    for _ in 0..3 {
        bench.advance(Duration::from_secs(400));
        assert_eq!(bench.send([from("10.0.0.1")]).out.len(), 1);
    }
    let answer = ethernet().ipv4("192.0.2.7", "30.30.30.30").udp(53, 4_000).build().unwrap();
    let back = bench.send([answer]).out.remove(0);
    assert_eq!(FlowKey::from_frame(&back).unwrap().destination().to_string(), "10.0.0.1");
    bench.advance(Duration::from_secs(700));
    for host in ["10.0.0.2", "10.0.0.2"] {
        let report = bench.send([from(host)]);
        assert_eq!((report.out.len(), report.dropped(DropReason::TableFull)), (1, 0), "{host}");
    }
    bench.call("run", "flush\nadd-stateful ip-proto udp map ip-saddr 30.30.30.30");
    assert_eq!(bench.send([from("10.0.0.2")]).out.len(), 1, "of a deleted rule nothing is left in the way");
    bench.finish();
}

#[test]
fn a_translation_ends_with_its_rule_though_the_connection_has_another() {
    let lines = [
        "add-stateful ip-proto tcp map ip-saddr 30.30.30.30 shuffle tcp-sport",
        "add-stateful tcp-dport 80 accept",
    ];
    let mut bench = clocked(&["mode all-match", lines[0], lines[1]]);
    let syn = segment(true, 4_000, flags::SYN, 7, 0);
    let sent = FlowKey::from_frame(&bench.send([syn.clone()]).out.remove(0)).unwrap();
    assert_eq!(sent.source().to_string(), "30.30.30.30");
    bench.call("run", "delete 1");
    let next = segment(true, 4_000, flags::ACK, 8, 10);
    assert_eq!(bench.send([next.clone()]).out, [next], "as it came");
    let back = segment(false, 4_000, flags::ACK, 10, 8);
    assert_eq!(bench.send([back.clone()]).out, [back]);
    // Its outside port is free, and what still comes there is of no connection.
    let late = ethernet().ipv4("192.0.2.7", "30.30.30.30").tcp(80, sent.source_port()).build().unwrap();
    assert_eq!(bench.send([late.clone()]).out, [late]);
    assert!(bench.call("connections", "").starts_with("1 connections"));
    bench.finish();
}

#[test]
fn sequence_numbers_are_translated_no_longer_than_their_rule_is_there() {
    let lines = ["add-stateful tcp-syn shuffle tcp-seq-num", "add-stateful tcp-dport 80 accept"];
    let mut bench = clocked(&["mode all-match", lines[0], lines[1]]);
    let syn = segment(true, 4_000, flags::SYN, 7, 0);
    assert_ne!(bench.send([syn.clone()]).out, [syn]);
    bench.call("run", "delete 1");
    let next = segment(true, 4_000, flags::ACK, 8, 10);
    assert_eq!(bench.send([next.clone()]).out, [next]);
    bench.finish();
}

#[test]
fn a_packet_that_does_not_reach_a_translation_keeps_its_addresses() {
    let lines = ["add-stateful ip-proto tcp map ip-saddr 30.30.30.30", "add ip-proto tcp accept"];
    let mut bench = clocked(&lines);
    let syn = segment(true, 4_000, flags::SYN, 7, 0);
    assert_ne!(bench.send([syn.clone()]).out, [syn]);
    bench.call("run", "add at 1 tcp-ack accept");
    let next = segment(true, 4_000, flags::ACK, 8, 10);
    assert_eq!(bench.send([next.clone()]).out, [next], "an earlier rule accepts it");
    bench.finish();
}

#[test]
fn of_two_rules_that_write_a_field_the_later_wins_also_over_a_translation() {
    let map = "add-stateful ip-proto tcp map ip-saddr 30.30.30.30 map tcp-sport 5000";
    let shuffle = "add-stateful tcp-syn shuffle tcp-seq-num";
    let source = |frame: &[u8]| {
        let flow = FlowKey::from_frame(frame).unwrap();
        (flow.source().to_string(), flow.source_port())
    };
    let number = |frame: &[u8]| u32::from_be_bytes(frame[38..42].try_into().unwrap());
    let first = |lines: &[&str]| {
        let mut bench = clocked(lines);
        let out = bench.send([segment(true, 4_000, flags::SYN, 7, 0)]).out.remove(0);
        assert_eq!(checksums::wrong(&out), Vec::<String>::new(), "{lines:?}");
        bench.finish();
        out
    };
    let mods = ["add tcp-syn mod ip-saddr 9.9.9.9", "add tcp-syn mod tcp-seq-num 1000"];
    assert_eq!(source(&first(&[map, mods[0]])), ("9.9.9.9".into(), 5_000));
    assert_eq!(source(&first(&[mods[0], map])), ("30.30.30.30".into(), 5_000));
    assert_eq!(number(&first(&[shuffle, mods[1]])), 1_000);
    assert_eq!(number(&first(&[mods[1], shuffle])), number(&first(&[shuffle])), "the number as it arrived");
}

#[test]
fn a_translation_that_cannot_be_done_counts_at_its_rule() {
    // An authentication header covers the addresses.
    let lines = ["add all mod ip-dscp 1", "add-stateful ip-proto ah map ip-saddr 30.30.30.30"];
    let mut bench = clocked(&lines);
    let packet = ethernet().ipv4("10.0.0.9", "192.0.2.7").protocol(51).payload(&[0; 32]).build().unwrap();
    assert_eq!(bench.send([packet]).out.len(), 1);
    let list: serde_json::Value = serde_json::from_str(&bench.call("list", "")).unwrap();
    let counts: Vec<u64> =
        list["rules"].as_array().unwrap().iter().map(|rule| rule["not_applied"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1]);
    bench.finish();
}

#[test]
fn values_of_one_rule_are_not_written_by_another() {
    let lines = ["add-stateful ip-proto tcp map ip-ttl 7", "add-stateful tcp-dport 80 map ip-dscp 3"];
    let mut bench = clocked(&lines);
    let out = bench.send([segment(true, 4_000, flags::SYN, 7, 0)]).out.remove(0);
    assert_eq!((out[22], out[15] >> 2), (7, 0), "a connection has the values of the first rule that maps it");
    let list: serde_json::Value = serde_json::from_str(&bench.call("list", "")).unwrap();
    assert_eq!((&list["rules"][0]["not_applied"], &list["rules"][1]["not_applied"]), (&0.into(), &1.into()));
    bench.finish();
}

/// A tuple that is used again has the states of its new connection.
#[test]
fn a_connection_after_another_of_the_same_ports_is_open_as_long() {
    let mut bench = clocked(&["add-stateful ip-saddr 10.0.0.9 accept", "add all drop"]);
    for begin in [100, 9_000] {
        let there = |bits, sequence| segment(true, 4_000, bits, begin + sequence, begin + 501);
        let back = |bits, sequence| segment(false, 4_000, bits, begin + 500 + sequence, begin + 1);
        assert_eq!(bench.send([there(flags::SYN, 0)]).out.len(), 1);
        assert_eq!(bench.send([back(flags::SYN | flags::ACK, 0)]).out.len(), 1);
        assert_eq!(bench.send([there(flags::ACK, 1)]).out.len(), 1);
        bench.advance(Duration::from_secs(14_000));
        assert_eq!(bench.send([back(flags::ACK, 1)]).out.len(), 1, "it is open for hours");
        assert_eq!(bench.send([there(flags::FIN | flags::ACK, 1)]).out.len(), 1);
        assert_eq!(bench.send([back(flags::FIN | flags::ACK, 1)]).out.len(), 1);
        bench.advance(Duration::from_secs(60));
    }
    bench.advance(Duration::from_secs(125));
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 9_502, 9_002)]).out.len(), 0, "both are done");
    bench.finish();
}

#[test]
fn a_forged_reset_closes_nothing() {
    let mut bench = clocked(&["add-stateful ip-saddr 10.0.0.9 accept", "add all drop"]);
    bench.send([segment(true, 4_000, flags::SYN, 100, 0)]);
    bench.send([segment(false, 4_000, flags::SYN | flags::ACK, 500, 101)]);
    bench.send([segment(true, 4_000, flags::ACK, 101, 501)]);
    let reset = |sequence| segment(false, 4_000, flags::RST, sequence, 0);
    assert_eq!(bench.send([reset(77)]).out.len(), 1, "its receiver will ignore it");
    bench.advance(Duration::from_secs(3_600));
    assert_eq!(bench.send([reset(501)]).out.len(), 1);
    bench.advance(Duration::from_secs(125));
    assert_eq!(bench.send([segment(false, 4_000, flags::ACK, 501, 101)]).out.len(), 0, "reset by its peer");
    bench.finish();
}

#[test]
fn rules_leave_packets_of_a_disabled_interface_alone() {
    let settings = |lines: &[&str]| MmbSettings::of(lines.iter().copied());
    let made = |lines: &[&str]| {
        let settings = settings(lines);
        Clocked::of_node(move |worker: &Worker| {
            let names = [("lan".to_owned(), 0), ("wan".to_owned(), 1)].into();
            node(
                &settings,
                &worker.clone().among(netbricks_core::PortNames { names, egress: Default::default() }),
            )
        })
    };
    let lines = ["policy drop", "add-stateful ip-saddr 10.0.0.9 map ip-saddr 30.30.30.30 accept"];
    let mut bench = made(&lines);
    let (syn, foreign) = (segment(true, 4_000, flags::SYN, 7, 0), segment(false, 4_000, flags::SYN, 7, 0));
    assert_ne!(bench.send([syn.clone()]).out, std::slice::from_ref(&syn));
    assert_eq!(bench.send([foreign.clone()]).out.len(), 0, "the policy drops it");
    bench.call("run", "disable lan");
    let both = [syn, foreign];
    assert_eq!(bench.send(both.clone()).out, both, "no policy, no translation");
    bench.call("run", "enable lan");
    let report = bench.send(both.clone());
    assert!(report.out.len() == 1 && report.out[0] != both[0]);
    bench.finish();
}
