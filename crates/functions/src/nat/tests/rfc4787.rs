//! RFC 4787: unicast UDP.

use netbricks_core::DropReason;
use netbricks_core::packet::checksum;

use super::*;

#[test]
fn rfc4787_req_1_a_mapping_is_the_same_for_all_destinations() {
    let mut test = nat("");
    let first = open(&mut test, INSIDE, 4_000, SERVER, 53);
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 54), first);
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER_2, 53), first);
    assert_ne!(open(&mut test, INSIDE, 4_001, SERVER, 53), first, "another endpoint has its own");
    assert_ne!(open(&mut test, OTHER, 4_000, SERVER, 53), first);
    assert_eq!(count(&mut test, "mappings"), 3);
}

#[test]
fn rfc4787_req_2_a_hosts_mappings_have_one_outside_address() {
    let mut test = nat("pool = [\"203.0.113.0/26\"]\n");
    let mut addresses = std::collections::BTreeSet::new();
    for host in 1..40 {
        let from = format!("10.0.0.{host}");
        let mut seen = (0..20).map(|port| {
            let out = through(&mut test, udp(&from, 4_000 + port, SERVER, 53));
            FlowKey::from_frame(&out).unwrap().source()
        });
        let first = seen.next().unwrap();
        assert!(seen.all(|address| address == first), "{from}");
        addresses.insert(first);
    }
    assert!(addresses.len() > 10, "hosts are spread: {addresses:?}");
}

#[test]
fn rfc4787_req_3_no_two_endpoints_share_a_port() {
    let mut test = nat("capacity = 4096");
    let frames = (0..2_000u16).map(|port| udp(INSIDE, 2_000 + port, SERVER, 53));
    let report = test.send(frames);
    let mut ports: Vec<u16> = report.out.iter().map(|frame| source_port(frame)).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2_000);
}

#[test]
fn rfc4787_req_3a_the_class_of_a_port_is_kept() {
    let mut test = nat("");
    for port in [1, 80, 1_023] {
        let outside = open(&mut test, INSIDE, port, SERVER, 53);
        assert!((1..1_024).contains(&outside), "{port} became {outside}");
    }
    for port in [1_024, 5_000, 65_535] {
        assert!(open(&mut test, INSIDE, port, SERVER, 53) >= 1_024);
    }
}

#[test]
fn rfc4787_req_4_the_parity_of_a_port_is_kept_where_asked() {
    let mut test = nat("parity = true");
    for port in 4_000..4_064 {
        assert_eq!(open(&mut test, INSIDE, port, SERVER, 53) % 2, port % 2);
    }
}

#[test]
fn rfc4787_req_5_a_mapping_lives_for_its_timeout() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    test.advance(minutes(5));
    assert_eq!(shown(&through(&mut test, udp(SERVER, 53, POOL, port))), "198.51.100.1:53 > 10.0.0.1:4000");
    test.advance(minutes(6));
    let report = test.send([udp(SERVER, 53, POOL, port)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::NoMapping)), (0, 1));
    assert_eq!(count(&mut test, "mappings"), 0);
    // The time is the operator's.
    let mut test = nat("udp = \"30 s\"");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    test.advance(Duration::from_secs(31));
    assert_eq!(test.send([udp(SERVER, 53, POOL, port)]).dropped(DropReason::NoMapping), 1);
    assert_eq!(config("udp = \"30 s\"").warnings().len(), 1, "less than two minutes");
}

#[test]
fn rfc4787_req_6_packets_from_inside_refresh_a_mapping() {
    let mut test = nat("inbound_refresh = false");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    for _ in 0..5 {
        test.advance(minutes(4));
        assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 53), port);
    }
    // Packets from outside alone do not.
    for _ in 0..1 {
        test.advance(minutes(4));
        through(&mut test, udp(SERVER, 53, POOL, port));
    }
    test.advance(minutes(2));
    assert_eq!(test.send([udp(SERVER, 53, POOL, port)]).dropped(DropReason::NoMapping), 1);
}

#[test]
fn rfc4787_req_6a_packets_from_outside_refresh_a_session_unless_forbidden() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    for _ in 0..5 {
        test.advance(minutes(4));
        through(&mut test, udp(SERVER, 53, POOL, port));
    }
}

#[test]
fn rfc4787_req_7_a_pool_inside_is_refused() {
    let text = "inside = [\"10.0.0.0/8\"]\npool = [\"10.1.0.0/24\"]";
    let refused = toml::from_str::<NatConfig>(text).unwrap().check().unwrap_err();
    assert_eq!(refused.key, "pool");
    assert!(refused.problem.contains("which is inside"), "{refused}");
}

#[test]
fn rfc4787_req_8_a_mapping_lets_in_every_endpoint() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    assert_eq!(shown(&through(&mut test, udp(SERVER_2, 99, POOL, port))), "198.51.100.2:99 > 10.0.0.1:4000");
    assert_eq!(count(&mut test, "sessions"), 1, "a stranger makes no state");
}

#[test]
fn rfc4787_req_8a_filtering_is_the_operators_choice() {
    for (filtering, same_address, other_address) in
        [("address-dependent", 1, 0), ("address-and-port-dependent", 0, 0)]
    {
        let mut test = nat(&format!("filtering = \"{filtering}\""));
        let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
        assert_eq!(test.send([udp(SERVER, 53, POOL, port)]).out.len(), 1, "{filtering}");
        assert_eq!(test.send([udp(SERVER, 99, POOL, port)]).out.len(), same_address, "{filtering}");
        let report = test.send([udp(SERVER_2, 53, POOL, port)]);
        assert_eq!(report.out.len(), other_address, "{filtering}");
        assert!(report.dropped(DropReason::Denied) > 0);
        // The address is known as long as a session with it lives.
        test.advance(minutes(11));
        assert_eq!(test.send([udp(SERVER, 99, POOL, port)]).out.len(), 0);
    }
}

#[test]
fn rfc4787_req_9_hosts_inside_reach_each_other_by_their_outside_endpoints() {
    let mut test = nat("");
    let server = open(&mut test, OTHER, 5_000, SERVER, 53);
    let report = test.send([udp(INSIDE, 4_000, POOL, server)]);
    assert_eq!((report.out.len(), report.replies.len()), (0, 1), "back where it came from");
    // REQ-9 (a): the other host sees the outside endpoint.
    let client = source_port(&report.replies[0]);
    assert_eq!(shown(&report.replies[0]), format!("{POOL}:{client} > {OTHER}:5000"));
    let answer = test.send([udp(OTHER, 5_000, POOL, client)]);
    assert_eq!(shown(&answer.replies[0]), format!("{POOL}:{server} > {INSIDE}:4000"));
    // To a port that has no mapping, no session is made.
    let sessions = count(&mut test, "sessions");
    let report = test.send([udp(INSIDE, 4_000, POOL, server ^ 1)]);
    assert_eq!(report.dropped(DropReason::NoMapping), 1);
    assert_eq!(count(&mut test, "sessions"), sessions);
}

#[test]
fn rfc4787_req_10_payloads_stay_as_they_are() {
    let mut test = nat("");
    let payload = b"INVITE sip:10.0.0.1:4000 SIP/2.0\r\nVia: 10.0.0.1\r\n";
    let packet = ethernet().ipv4(INSIDE, SERVER).udp(5_060, 5_060).payload(payload).build().unwrap();
    let out = through(&mut test, packet);
    assert!(out.ends_with(payload));
}

#[test]
fn rfc4787_req_11_its_behaviour_does_not_change_with_what_others_do() {
    let run = |others: u16| {
        let mut test = nat("capacity = 4096");
        test.send((0..others).map(|port| udp(OTHER, 2_000 + port, SERVER_2, 53)));
        let first = open(&mut test, INSIDE, 4_000, SERVER, 53);
        let same = open(&mut test, INSIDE, 4_000, SERVER_2, 99) == first;
        let stranger = test.send([udp(SERVER_2, 1, POOL, first)]).out.len();
        (same, stranger)
    };
    assert_eq!([run(0), run(1_000)], [(true, 1); 2]);
}

#[test]
fn rfc4787_req_12_no_icmp_error_ends_a_mapping() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let quote = udp(POOL, port, SERVER, 53)[14..].to_vec();
    for code in 0..16 {
        // (a): whoever sends it.
        let error = ethernet().ipv4("192.0.2.99", POOL).icmp_unreachable(code, &quote).build().unwrap();
        assert_eq!(test.send([error]).out.len(), 1, "code {code}");
    }
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 53), port);
}

/// A fragment of `whole`, an IPv4 frame without options: so many bytes of its payload from an offset on.
pub(super) fn fragment(whole: &[u8], offset: usize, bytes: usize, identification: u16) -> Vec<u8> {
    let payload = &whole[34..];
    let end = payload.len().min(offset + bytes);
    let mut frame = [&whole[..34], &payload[offset..end]].concat();
    frame[16..18].copy_from_slice(&((20 + end - offset) as u16).to_be_bytes());
    frame[18..20].copy_from_slice(&identification.to_be_bytes());
    let more = if end < payload.len() { 0x2000 } else { 0 };
    frame[20..22].copy_from_slice(&(more | (offset / 8) as u16).to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The packet that fragments make together, which may have come in any order.
fn together(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces: Vec<(usize, &[u8])> = fragments
        .iter()
        .map(|frame| (usize::from(u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff) * 8, &frame[34..]))
        .collect();
    pieces.sort_unstable();
    let mut frame = fragments[0][..34].to_vec();
    for (offset, piece) in pieces {
        assert_eq!(offset, frame.len() - 34, "without a hole");
        frame.extend(piece);
    }
    let length = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[20..22].fill(0);
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn rfc4787_req_14_fragments_pass_in_any_order() {
    let payload: Vec<u8> = (0..500).map(|number| number as u8).collect();
    let big = |from: &str, port: u16, to: &str, to_port: u16| {
        ethernet().ipv4(from, to).udp(port, to_port).payload(&payload).build().unwrap()
    };
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut test = nat("");
        let whole = big(INSIDE, 4_000, SERVER, 53);
        let pieces = order.map(|at| fragment(&whole, at * 176, 176, 7));
        let report = test.send(pieces);
        assert_eq!(report.out.len(), 3, "{order:?}: {:?}", report.drops);
        let out = together(&report.out);
        let port = source_port(&out);
        assert_eq!(shown(&out), format!("{POOL}:{port} > {SERVER}:53"), "{order:?}");
        assert!(out.ends_with(&payload));
        // Another packet, from outside.
        let whole = big(SERVER, 53, POOL, port);
        let report = test.send(order.map(|at| fragment(&whole, at * 176, 176, 9)));
        assert_eq!(shown(&together(&report.out)), format!("{SERVER}:53 > {INSIDE}:4000"), "{order:?}");
        // And one between hosts inside.
        let whole = big(OTHER, 9, POOL, port);
        let report = test.send(order.map(|at| fragment(&whole, at * 176, 176, 11)));
        let out = together(&report.replies);
        assert_eq!(shown(&out), format!("{POOL}:{} > {INSIDE}:4000", source_port(&out)), "{order:?}");
        assert_eq!(count(&mut test, "fragments_waiting"), 0);
    }
}

#[test]
fn rfc4787_req_14a_fragments_that_wait_are_bounded() {
    let mut test = nat("fragments_held = 8\nfragment_timeout = \"1 s\"");
    let whole = ethernet().ipv4(INSIDE, SERVER).udp(4_000, 53).payload(&[7; 500]).build().unwrap();
    let report = test.send((0..20).map(|number| fragment(&whole, 176, 176, number)));
    assert_eq!(report.out.len(), 0);
    assert_eq!((report.dropped(DropReason::Replaced), report.dropped(DropReason::Fragment)), (8, 12));
    assert_eq!(count(&mut test, "fragments_waiting"), 8);
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "fragments_waiting"), count(&mut test, "fragments_given_up")), (0, 8));
    // One packet cannot have it all: the parts of others still find room.
    let mut test = nat("fragments_held = 256");
    test.send((0..200).map(|_| fragment(&whole, 176, 176, 1)));
    assert!(count(&mut test, "fragments_waiting") < 64);
}
