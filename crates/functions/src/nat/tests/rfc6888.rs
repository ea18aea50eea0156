//! RFC 6888: carrier-grade NAT.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, FIN, SYN};

use super::*;

#[test]
fn rfc6888_req_1_protocols_that_are_not_translated_do_not_pass() {
    let mut test = nat("");
    let gre = ethernet().ipv4(INSIDE, SERVER).gre().ipv4("10.1.0.1", "10.1.0.2").udp(1, 2).build().unwrap();
    let sctp = ethernet().ipv4(INSIDE, SERVER).protocol(132).payload(&[0; 12]).build().unwrap();
    let report = test.send([gre.clone(), sctp.clone()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::NoMapping)), (0, 2));
    let mut test = nat("others = \"pass\"");
    assert_eq!(test.send([gre.clone(), sctp.clone()]).out, [gre, sctp]);
}

#[test]
fn rfc6888_req_2_pooling_is_paired_by_default() {
    assert_eq!(config("").pooling, super::super::Pooling::Paired);
    let mut test = nat("pool = [\"203.0.113.0/26\"]\npooling = \"arbitrary\"");
    let addresses: std::collections::BTreeSet<_> = (0..40)
        .map(|port| {
            let out = through(&mut test, udp(INSIDE, 4_000 + port, SERVER, 53));
            FlowKey::from_frame(&out).unwrap().source()
        })
        .collect();
    assert!(addresses.len() > 10, "{addresses:?}");
}

#[test]
fn rfc6888_req_3_a_pool_need_not_be_contiguous() {
    let pool = "pool = [\"203.0.113.7\", \"198.18.0.0/30\", \"192.0.2.9-192.0.2.11\"]";
    let mut test = nat(pool);
    for host in 1..100 {
        open(&mut test, &format!("10.0.0.{host}"), 4_000, SERVER, 53);
    }
    let used = test.call("pool", "");
    assert_eq!(used.lines().count(), 8, "{used}");
    assert!(used.lines().all(|line| !line.contains(" 0 0 0 0 0")), "all are used: {used}");
}

#[test]
fn rfc6888_req_4_a_subscribers_mappings_are_limited() {
    let mut test = nat("subscriber_ports = 3");
    let report = test.send((0..5).map(|port| udp(INSIDE, 4_000 + port, SERVER, 53)));
    assert_eq!((report.out.len(), report.dropped(DropReason::SubscriberLimit)), (3, 2));
    // Each transport and each subscriber has its own.
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN));
    open(&mut test, OTHER, 4_000, SERVER, 53);
    assert_eq!(count(&mut test, "refused_by_limits"), 2);
    // The rate of new mappings.
    let mut test = nat("subscriber_rate = 2");
    let report = test.send((0..5).map(|port| udp(INSIDE, 4_000 + port, SERVER, 53)));
    assert_eq!(report.out.len(), 2);
    test.advance(Duration::from_millis(600));
    let report = test.send((0..5).map(|port| udp(INSIDE, 5_000 + port, SERVER, 53)));
    assert_eq!(report.out.len(), 1);
}

#[test]
fn rfc6888_req_5_a_subscribers_sessions_are_limited() {
    let mut test = nat("subscriber_sessions = 3");
    let report = test.send((0..5).map(|port| udp(INSIDE, 4_000, SERVER, 53 + port)));
    assert_eq!((report.out.len(), report.dropped(DropReason::SubscriberLimit)), (3, 2));
    assert_eq!(count(&mut test, "mappings"), 1);
}

#[test]
fn rfc6888_req_6_translation_can_be_turned_off_by_destination() {
    let mut test = nat("exempt = [\"192.0.2.0/24\", \"udp 198.51.100.1/32:53\"]");
    let plain = [udp(INSIDE, 4_000, "192.0.2.5", 9), udp(INSIDE, 4_000, SERVER, 53)];
    assert_eq!(test.send(plain.clone()).out, plain);
    assert_ne!(through(&mut test, udp(INSIDE, 4_000, SERVER, 54)), udp(INSIDE, 4_000, SERVER, 54));
}

#[test]
fn rfc6888_req_7_filtering_is_endpoint_independent_by_default() {
    assert_eq!(config("").filtering, super::super::Filtering::EndpointIndependent);
}

#[test]
fn rfc6888_req_8_a_released_port_is_held_down() {
    // Low ports are few: all are in use, and their mappings end.
    let mut test = nat("udp = \"1 s\"\ncapacity = 4096");
    let all = |test: &mut Clocked, hosts: std::ops::Range<u16>| {
        let frames = hosts.map(|host| udp(&format!("10.0.{}.{}", host / 250, host % 250 + 1), 9, SERVER, 53));
        test.send(frames).out.iter().filter(|frame| source_port(frame) < 1_024).count()
    };
    assert_eq!(all(&mut test, 0..1_100), 1_023);
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "ports_held_down")), (0, 1_100));
    assert_eq!(all(&mut test, 2_000..2_100), 0, "none is given out again");
    test.advance(Duration::from_secs(121));
    assert_eq!(all(&mut test, 3_000..3_100), 100);
    // (A): the port of a TCP connection that was closed is free at once.
    let mut test = nat("tcp_transitory = \"1 s\"");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, FIN | ACK));
    through(&mut test, tcp(SERVER, 80, POOL, outside, FIN | ACK));
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "ports_held_down")), (0, 0));
}

#[test]
fn rfc6888_req_10_mappings_can_be_listed() {
    let mut test = nat("static = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let expected =
        format!("tcp 10.0.0.5:8080 203.0.113.7:80 0 static\nudp 10.0.0.1:4000 203.0.113.7:{port} 1\n");
    assert_eq!(test.call("mappings", ""), expected);
    assert_eq!(test.call("mappings", "udp 10.0.0.1").lines().count(), 1);
    assert_eq!(test.call("mappings", "tcp 10.0.0.1"), "");
    assert_eq!(test.call("sessions", "198.51.100.0/24").lines().count(), 1);
    assert_eq!(test.call("subscribers", ""), "10.0.0.1 203.0.113.7 0 1 0 1 0\n");
}

#[test]
fn rfc6888_req_11_exhaustion_is_answered_and_ends_no_mapping() {
    // One block of 64 ports for all.
    let pool = "block = 64512\nblocks = 1";
    let mut test = nat(pool);
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let report = test.send([udp(OTHER, 4_000, SERVER, 53)]);
    // A: it is dropped. B: the sender is told. D: the mapping that is there stays.
    assert_eq!((report.out.len(), report.dropped(DropReason::PortsExhausted)), (0, 1));
    assert_eq!(report.replies.len(), 1);
    assert_eq!(report.replies[0][34..36], [3, 1], "host unreachable");
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 53), port);
    // C: the operator is told.
    assert_eq!(count(&mut test, "refused_exhausted"), 1);
    assert!(test.call("log", "").contains("exhausted 10.0.0.2"), "{}", test.call("log", ""));
    // It recovers.
    test.advance(minutes(8));
    open(&mut test, OTHER, 4_000, SERVER, 53);
    assert_eq!(test.send([udp(INSIDE, 4_000, SERVER, 53)]).out.len(), 0);
}

#[test]
fn rfc6888_req_12_the_log_names_no_destination() {
    let mut test = nat("block = 512");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    let log = test.call("log", "");
    assert_eq!(log.lines().count(), 1);
    assert!(log.contains("assigned 10.0.0.1 203.0.113.7 ") && !log.contains(SERVER), "{log}");
}

#[test]
fn rfc6888_req_13_every_port_can_be_used() {
    let mut test = nat("capacity = 65_536\nhold_down = \"0 s\"");
    let mut out = 0;
    for host in 0..129u32 {
        let from = format!("10.0.1.{host}");
        let frames = (0..500).map(|port| udp(&from, 2_000 + port, SERVER, 53));
        out += test.send(frames).out.len();
    }
    assert_eq!(out, 64_500);
    let report = test.send((0..20).map(|port| udp(OTHER, 9_000 + port, SERVER, 53)));
    assert_eq!((report.out.len(), report.dropped(DropReason::PortsExhausted)), (12, 8));
}

#[test]
fn rfc6888_req_14_blocks_keep_the_log_short() {
    let mut test = nat("block = 256\nhold_down = \"0 s\"");
    for port in 0..250 {
        open(&mut test, INSIDE, 4_000 + port, SERVER, 53);
    }
    assert_eq!(test.call("log", "").lines().count(), 1, "one event for 250 mappings");
    test.advance(minutes(6));
    let log = test.call("log", "1");
    assert_eq!(log.lines().count(), 1, "and one for their end");
    assert!(log.contains("released 10.0.0.1 203.0.113.7"), "{log}");
    assert_eq!(count(&mut test, "subscribers"), 0);
}

/// A port that is free early, since too many are held down, may be the last of its block.
#[test]
fn a_block_is_released_where_no_more_ports_can_be_held_down() {
    let mut test = nat("block = 64\ncapacity = 4\nudp = \"1 s\"");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "subscribers"), count(&mut test, "ports_held_down")), (1, 1));
    for port in 0..4 {
        open(&mut test, OTHER, 4_000 + port, SERVER, 53);
    }
    assert_eq!(count(&mut test, "subscribers"), 2);
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "subscribers"), count(&mut test, "ports_held_down")), (1, 4));
    let log = test.call("log", "");
    assert!(log.contains("released 10.0.0.1 203.0.113.7") && !log.contains("released 10.0.0.2"), "{log}");
    test.advance(Duration::from_secs(121));
    assert_eq!((count(&mut test, "subscribers"), count(&mut test, "ports_held_down")), (0, 0));
    let log = test.call("log", "");
    assert_eq!((log.matches("assigned").count(), log.matches("released").count()), (2, 2), "{log}");
}

/// A block in which no port of the parity is stays with no one.
#[test]
fn a_block_without_a_port_of_the_parity_is_released() {
    let mut test = nat("block = 1\nparity = true\nhold_down = \"0 s\"\nudp = \"1 s\"");
    test.send((0..20).map(|port| udp(INSIDE, 4_000 + port, SERVER, 53)));
    test.advance(Duration::from_secs(2));
    let log = test.call("log", "");
    assert_eq!(log.matches("assigned").count(), log.matches("released").count(), "{log}");
    assert_eq!(count(&mut test, "subscribers"), 0);
}

#[test]
fn rfc6888_req_15_ports_are_hard_to_guess() {
    let mut test = nat("");
    let ports: Vec<u16> = (0..64).map(|port| open(&mut test, INSIDE, 4_000 + port, SERVER, 53)).collect();
    let steps: std::collections::BTreeSet<i32> =
        ports.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0])).collect();
    assert!(steps.len() > 60, "no step repeats: {steps:?}");
    assert!(
        ports.iter().max().unwrap() - ports.iter().min().unwrap() > 30_000,
        "all of the range: {ports:?}"
    );
}
