//! RFC 5508: ICMP.

use netbricks_core::DropReason;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{Icmpv4, Ip, IpRef};

use super::*;

/// The quoted packet's flow, the outer addresses, and the type and code of an ICMP error.
fn error(frame: &[u8]) -> (String, String, [u8; 2]) {
    assert_eq!(checksums::wrong(frame), Vec::<String>::new());
    let (header, payload) = Ip::in_frame(frame).unwrap();
    let icmp = Icmpv4::view(&payload[..8], ());
    let quoted = icmp.quoted(&payload[8..]).unwrap();
    if let IpRef::V4(inner) = quoted.ip() {
        assert!(inner.checksum_is_valid());
    }
    let flow = quoted.flow();
    let flow = format!(
        "{}:{} > {}:{}",
        flow.source(),
        flow.source_port(),
        flow.destination(),
        flow.destination_port()
    );
    (flow, format!("{} > {}", header.source(), header.destination()), [payload[0], payload[1]])
}

#[test]
fn rfc5508_req_1_queries_from_inside_and_their_answers_pass() {
    let mut test = nat("");
    let out = through(&mut test, ping(INSIDE, SERVER, 77));
    let identifier = source_port(&out);
    assert_eq!(shown(&out), format!("{POOL}:{identifier} > {SERVER}:{identifier}"));
    assert_eq!(
        shown(&through(&mut test, pong(SERVER, POOL, identifier))),
        format!("{SERVER}:77 > {INSIDE}:77")
    );
    // (a): the mapping does not depend on the destination.
    assert_eq!(source_port(&through(&mut test, ping(INSIDE, SERVER_2, 77))), identifier);
    assert_ne!(source_port(&through(&mut test, ping(OTHER, SERVER, 77))), identifier);
}

#[test]
fn rfc5508_req_2_a_query_session_lives_a_minute() {
    let mut test = nat("");
    let identifier = source_port(&through(&mut test, ping(INSIDE, SERVER, 77)));
    test.advance(Duration::from_secs(59));
    through(&mut test, pong(SERVER, POOL, identifier));
    test.advance(Duration::from_secs(61));
    assert_eq!(test.send([pong(SERVER, POOL, identifier)]).dropped(DropReason::NoMapping), 1);
    // The time is the operator's.
    let mut test = nat("icmp = \"2 min\"");
    let identifier = source_port(&through(&mut test, ping(INSIDE, SERVER, 77)));
    test.advance(Duration::from_secs(119));
    through(&mut test, pong(SERVER, POOL, identifier));
}

#[test]
fn rfc5508_req_3_errors_with_wrong_checksums_are_dropped() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let quote = udp(POOL, port, SERVER, 53)[14..].to_vec();
    let made = |quote: &[u8]| ethernet().ipv4("192.0.2.99", POOL).icmp_time_exceeded(quote).build().unwrap();
    let mut wrong = made(&quote);
    wrong[36] ^= 1;
    assert_eq!(test.send([wrong]).dropped(DropReason::BadChecksum), 1);
    // (a): the quoted header's.
    let mut damaged = quote.clone();
    damaged[10] ^= 1;
    assert_eq!(test.send([made(&damaged)]).dropped(DropReason::BadChecksum), 2);
    // (b): options in the quoted header. (c): its transport checksum is not looked at.
    let optioned =
        ethernet().ipv4(POOL, SERVER).router_alert().udp(port, 53).payload(b"hello").build().unwrap();
    let mut optioned = optioned[14..].to_vec();
    let last = optioned.len() - 1;
    optioned[last] ^= 1;
    let report = test.send([made(&optioned)]);
    assert_eq!(report.out.len(), 1, "{:?}", report.drops);
}

#[test]
fn rfc5508_req_4_errors_from_outside_are_translated() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let quote = udp(POOL, port, SERVER, 53)[14..].to_vec();
    // The header and eight bytes, as a router must quote, and all of it.
    for quote in [&quote[..28], &quote] {
        let packet =
            ethernet().ipv4("192.0.2.99", POOL).icmp_fragmentation_needed(1_400, quote).build().unwrap();
        let (about, outer, kind) = error(&through(&mut test, packet));
        assert_eq!(about, format!("{INSIDE}:4000 > {SERVER}:53"));
        assert_eq!((outer, kind), (format!("192.0.2.99 > {INSIDE}"), [3, 4]));
    }
    let identifier = source_port(&through(&mut test, ping(INSIDE, SERVER, 77)));
    let quote = ping(POOL, SERVER, identifier)[14..].to_vec();
    let packet = ethernet().ipv4("192.0.2.99", POOL).icmp_time_exceeded(&quote).build().unwrap();
    let (about, outer, kind) = error(&through(&mut test, packet));
    assert_eq!(about, format!("{INSIDE}:77 > {SERVER}:77"));
    assert_eq!((outer, kind), (format!("192.0.2.99 > {INSIDE}"), [11, 0]));
    // About nothing that is known.
    let quote = udp(POOL, port ^ 1, SERVER, 53)[14..].to_vec();
    let packet = ethernet().ipv4("192.0.2.99", POOL).icmp_time_exceeded(&quote).build().unwrap();
    assert_eq!(test.send([packet]).dropped(DropReason::NoMapping), 1);
}

#[test]
fn rfc5508_req_5_errors_from_inside_are_translated() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let quote = udp(SERVER, 53, INSIDE, 4_000)[14..].to_vec();
    // From the host, and from a router inside: (d) both have the outside address.
    for from in [INSIDE, "10.0.9.9"] {
        let packet = ethernet().ipv4(from, SERVER).icmp_unreachable(3, &quote).build().unwrap();
        let (about, outer, kind) = error(&through(&mut test, packet));
        assert_eq!(about, format!("{SERVER}:53 > {POOL}:{port}"));
        assert_eq!((outer, kind), (format!("{POOL} > {SERVER}"), [3, 3]));
    }
    let quote = udp(SERVER, 53, INSIDE, 9)[14..].to_vec();
    let packet = ethernet().ipv4(INSIDE, SERVER).icmp_unreachable(3, &quote).build().unwrap();
    assert_eq!(test.send([packet]).dropped(DropReason::NoMapping), 1);
}

#[test]
fn rfc5508_req_6_errors_refresh_no_session() {
    let mut test = nat("");
    let identifier = source_port(&through(&mut test, ping(INSIDE, SERVER, 77)));
    let quote = ping(POOL, SERVER, identifier)[14..].to_vec();
    let packet = || ethernet().ipv4(SERVER, POOL).icmp_unreachable(1, &quote).build().unwrap();
    for _ in 0..2 {
        test.advance(Duration::from_secs(25));
        through(&mut test, packet());
    }
    assert_eq!(count(&mut test, "sessions"), 1, "nor do they end it");
    test.advance(Duration::from_secs(15));
    assert_eq!(count(&mut test, "sessions"), 0);
}

#[test]
fn rfc5508_req_7_queries_and_errors_turn_back_inside() {
    let mut test = nat("");
    let port = open(&mut test, OTHER, 5_000, SERVER, 53);
    let client = source_port(&test.send([udp(INSIDE, 4_000, POOL, port)]).replies[0]);
    // The other host refuses what it got.
    let quote = udp(POOL, client, OTHER, 5_000)[14..].to_vec();
    let packet = ethernet().ipv4(OTHER, POOL).icmp_unreachable(3, &quote).build().unwrap();
    let report = test.send([packet]);
    let (about, outer, kind) = error(&report.replies[0]);
    assert_eq!(about, format!("{INSIDE}:4000 > {POOL}:{port}"));
    assert_eq!((outer, kind), (format!("{POOL} > {INSIDE}"), [3, 3]));
    // A query to an identifier that has a mapping.
    let identifier = source_port(&through(&mut test, ping(OTHER, SERVER, 77)));
    let report = test.send([ping(INSIDE, POOL, identifier)]);
    assert_eq!(report.replies.len(), 1, "{:?}", report.drops);
    assert_eq!(FlowKey::from_frame(&report.replies[0]).unwrap().destination().to_string(), OTHER);
}

#[test]
fn rfc5508_req_8_a_host_without_a_session_is_told() {
    let mut test = nat("subscriber_ports = 1\nrefusal = \"prohibited\"");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    let report = test.send([udp(INSIDE, 4_001, SERVER, 53)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::SubscriberLimit)), (0, 1));
    let (about, outer, kind) = error(&report.replies[0]);
    assert_eq!(about, format!("{INSIDE}:4001 > {SERVER}:53"));
    assert_eq!((outer, kind), (format!("{POOL} > {INSIDE}"), [3, 13]));
}

#[test]
fn rfc5508_req_9_the_operator_can_silence_errors() {
    let mut test = nat("subscriber_ports = 1\nrefusal = \"silent\"");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    let report = test.send([udp(INSIDE, 4_001, SERVER, 53)]);
    assert_eq!((report.replies.len(), report.dropped(DropReason::SubscriberLimit)), (0, 1));
}

#[test]
fn rfc5508_req_10_errors_of_all_kinds_pass() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let quote = udp(POOL, port, SERVER, 53)[14..].to_vec();
    let made = |kind: u8, code: u8| {
        ethernet().ipv4("192.0.2.99", POOL).icmp(kind, code, [0; 4]).payload(&quote).build().unwrap()
    };
    for (kind, code) in [(3, 0), (3, 1), (3, 3), (11, 0), (11, 1), (12, 0), (4, 0)] {
        let report = test.send([made(kind, code)]);
        assert_eq!(report.out.len(), 1, "type {kind} code {code}: {:?}", report.drops);
    }
}

#[test]
fn rfc5508_req_11_other_messages_are_dropped() {
    let mut test = nat("");
    // A timestamp and an address mask request.
    for kind in [13, 17] {
        let packet = ethernet().ipv4(INSIDE, SERVER).icmp(kind, 0, [0; 4]).payload(&[0; 12]).build().unwrap();
        assert_eq!(test.send([packet]).out.len(), 0);
    }
    assert_eq!(test.finish().dropped(DropReason::NoMapping), 2);
}
