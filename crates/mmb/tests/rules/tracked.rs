//! Stateful rules: connections, mapped addresses and ports, translated sequence numbers.

use std::time::Duration;

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_core::{DropReason, Worker};
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, checksums};

fn clocked(lines: &[&str]) -> Clocked {
    let settings = MmbSettings::of(lines.iter().copied());
    Clocked::of_node(move |worker: &Worker| node(&settings, worker))
}

/// A segment from the client, or back to it.
#[expect(clippy::unwrap_used, reason = "a test's packet can be built")]
fn segment(out: bool, port: u16, bits: u8, sequence: u32, acknowledged: u32) -> Vec<u8> {
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
