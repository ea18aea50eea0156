//! RFC 5382: TCP.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, FIN, RST, SYN};

use super::*;

/// Opens a connection from inside; answers its outside port.
fn connect(test: &mut Clocked, port: u16) -> u16 {
    let outside = source_port(&through(test, tcp(INSIDE, port, SERVER, 80, SYN)));
    through(test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    through(test, tcp(INSIDE, port, SERVER, 80, ACK));
    outside
}

/// The state of the only session.
fn state(test: &mut Clocked) -> String {
    let sessions = test.call("sessions", "");
    assert_eq!(sessions.lines().count(), 1, "{sessions}");
    sessions.trim_end().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn rfc5382_req_1_a_mapping_is_the_same_for_all_destinations() {
    let mut test = nat("");
    let first = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    assert_eq!(source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER_2, 81, SYN))), first);
}

#[test]
fn rfc5382_req_2_connections_open_from_both_sides() {
    let mut test = nat("");
    connect(&mut test, 4_000);
    assert_eq!(state(&mut test), "established");
    // From outside, by a mapping that is there.
    let mut test = nat("static = [\"tcp 203.0.113.7:80 -> 10.0.0.1:8080\"]");
    let syn = through(&mut test, tcp(SERVER, 9, POOL, 80, SYN));
    assert_eq!(shown(&syn), "198.51.100.1:9 > 10.0.0.1:8080");
    let answer = through(&mut test, tcp(INSIDE, 8_080, SERVER, 9, SYN | ACK));
    assert_eq!(shown(&answer), "203.0.113.7:80 > 198.51.100.1:9");
    assert_eq!(state(&mut test), "opening");
    through(&mut test, tcp(SERVER, 9, POOL, 80, ACK));
    assert_eq!(state(&mut test), "established");
}

#[test]
fn rfc5382_req_2a_a_simultaneous_open_becomes_a_connection() {
    let mut test = nat("");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN));
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN | ACK));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    assert_eq!(state(&mut test), "established");
}

#[test]
fn rfc5382_req_3_a_mapping_lets_in_connections_of_every_endpoint() {
    let mut test = nat("");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    let syn = through(&mut test, tcp(SERVER_2, 9, POOL, outside, SYN));
    assert_eq!(shown(&syn), "198.51.100.2:9 > 10.0.0.1:4000");
    // The host's refusal goes back, and makes no session.
    let sessions = count(&mut test, "sessions");
    let refusal = through(&mut test, tcp(INSIDE, 4_000, SERVER_2, 9, RST | ACK));
    assert_eq!(shown(&refusal), format!("203.0.113.7:{outside} > 198.51.100.2:9"));
    assert_eq!(count(&mut test, "sessions"), sessions);
    let mut test = nat("filtering = \"address-dependent\"");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    assert_eq!(test.send([tcp(SERVER_2, 9, POOL, outside, SYN)]).dropped(DropReason::Denied), 1);
}

#[test]
fn rfc5382_req_5_timeouts_depend_on_the_state() {
    // Opening: four minutes.
    let mut test = nat("");
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN));
    test.advance(Duration::from_secs(239));
    assert_eq!(count(&mut test, "sessions"), 1);
    test.advance(Duration::from_secs(5));
    assert_eq!(count(&mut test, "sessions"), 0);
    // Established: two hours and four minutes.
    connect(&mut test, 4_000);
    test.advance(minutes(123));
    assert_eq!(state(&mut test), "established");
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, ACK));
    test.advance(minutes(123));
    assert_eq!(state(&mut test), "established");
    test.advance(minutes(2));
    assert_eq!(count(&mut test, "sessions"), 0);
    // Closed by both: four minutes, which late segments do not make longer.
    let outside = connect(&mut test, 4_000);
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, FIN | ACK));
    assert_eq!(state(&mut test), "closing");
    test.advance(minutes(60));
    through(&mut test, tcp(SERVER, 80, POOL, outside, FIN | ACK));
    assert_eq!(state(&mut test), "closed");
    test.advance(minutes(3));
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, ACK));
    test.advance(Duration::from_secs(65));
    assert_eq!(count(&mut test, "sessions"), 0);
}

/// A connection from outside on the ports of one that ended is as any other.
#[test]
fn rfc5382_req_5_a_connection_from_outside_opens_again_on_its_ports() {
    let ends: [&[(bool, u8)]; 2] = [&[(true, FIN | ACK), (false, FIN | ACK)], &[(false, RST)]];
    for end in ends {
        let mut test = nat("static = [\"tcp 203.0.113.7:80 -> 10.0.0.1:8080\"]");
        let segment = |from_inside, flags| match from_inside {
            true => tcp(INSIDE, 8_080, SERVER, 9, flags),
            false => tcp(SERVER, 9, POOL, 80, flags),
        };
        for round in 0..3 {
            through(&mut test, segment(false, SYN));
            if round > 0 {
                assert!(["closed", "reset"].contains(&&*state(&mut test)), "it waits for the answer");
            }
            through(&mut test, segment(true, SYN | ACK));
            assert_eq!(state(&mut test), "opening");
            through(&mut test, segment(false, ACK));
            assert_eq!(state(&mut test), "established");
            end.iter()
                .for_each(|(from_inside, flags)| drop(through(&mut test, segment(*from_inside, *flags))));
        }
        // And one from inside.
        through(&mut test, segment(true, SYN));
        assert_eq!(state(&mut test), "opening");
        through(&mut test, segment(false, SYN | ACK));
        assert_eq!(state(&mut test), "established");
    }
}

#[test]
fn rfc5382_req_5a_timeouts_are_the_operators() {
    let mut test = nat("tcp = \"10 s\"\ntcp_transitory = \"1 s\"");
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN));
    test.advance(Duration::from_millis(1_100));
    assert_eq!(count(&mut test, "sessions"), 0);
    connect(&mut test, 4_000);
    test.advance(Duration::from_millis(9_900));
    assert_eq!(count(&mut test, "sessions"), 1);
    test.advance(Duration::from_millis(200));
    assert_eq!(count(&mut test, "sessions"), 0);
    assert_eq!(config("tcp = \"10 s\"\ntcp_transitory = \"1 s\"").warnings().len(), 2);
}

#[test]
fn rfc5382_req_6_payloads_stay_as_they_are() {
    let mut test = nat("");
    connect(&mut test, 4_000);
    let payload = b"PORT 10,0,0,1,15,160\r\n";
    let segment = ethernet().ipv4(INSIDE, SERVER).tcp(4_000, 80).flags(ACK).payload(payload).build().unwrap();
    assert!(through(&mut test, segment).ends_with(payload));
}

#[test]
fn rfc5382_req_7_no_two_endpoints_share_a_port() {
    let mut test = nat("capacity = 4096");
    let report = test.send((0..2_000u16).map(|port| tcp(INSIDE, 2_000 + port, SERVER, 80, SYN)));
    let mut ports: Vec<u16> = report.out.iter().map(|frame| source_port(frame)).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2_000);
}

#[test]
fn rfc5382_req_8_hosts_inside_connect_by_their_outside_endpoints() {
    let mut test = nat("static = [\"tcp 203.0.113.7:80 -> 10.0.0.2:8080\"]");
    let syn = test.send([tcp(INSIDE, 4_000, POOL, 80, SYN)]);
    let client = source_port(&syn.replies[0]);
    assert_eq!(shown(&syn.replies[0]), format!("{POOL}:{client} > {OTHER}:8080"));
    let answer = test.send([tcp(OTHER, 8_080, POOL, client, SYN | ACK)]);
    assert_eq!(shown(&answer.replies[0]), format!("{POOL}:80 > {INSIDE}:4000"));
    let last = test.send([tcp(INSIDE, 4_000, POOL, 80, ACK)]);
    assert_eq!(shown(&last.replies[0]), format!("{POOL}:{client} > {OTHER}:8080"));
    let states = test.call("sessions", "");
    assert_eq!(states.matches("established").count(), 2, "{states}");
}

#[test]
fn rfc5382_req_9_errors_about_segments_are_translated() {
    let mut test = nat("");
    let outside = connect(&mut test, 4_000);
    let quote = tcp(POOL, outside, SERVER, 80, ACK)[14..].to_vec();
    let error = ethernet().ipv4("192.0.2.99", POOL).icmp_unreachable(1, &quote[..28]).build().unwrap();
    let out = through(&mut test, error);
    assert_eq!(FlowKey::from_frame(&out).unwrap().destination().to_string(), INSIDE);
    let about = FlowKey::related_from_frame(&out).unwrap().reversed().to_string();
    assert!(about.contains("10.0.0.1:4000"), "{about}");
}

#[test]
fn rfc5382_req_10_no_icmp_error_ends_a_connection() {
    let mut test = nat("");
    let outside = connect(&mut test, 4_000);
    let quote = tcp(POOL, outside, SERVER, 80, ACK)[14..].to_vec();
    for code in 0..16 {
        let error = ethernet().ipv4(SERVER, POOL).icmp_unreachable(code, &quote).build().unwrap();
        assert_eq!(test.send([error]).out.len(), 1);
    }
    assert_eq!(state(&mut test), "established");
}

#[test]
fn segments_that_fit_no_connection_are_dropped() {
    let mut test = nat("");
    let report =
        test.send([ACK, FIN | ACK, RST, SYN | ACK].map(|flags| tcp(INSIDE, 4_000, SERVER, 80, flags)));
    assert_eq!((report.out.len(), report.dropped(DropReason::InvalidState)), (0, 4));
    assert_eq!(count(&mut test, "mappings"), 0);
}

#[test]
fn rfc5382_req_4a_an_unsolicited_syn_is_dropped_in_silence() {
    let mut test = nat("");
    let report = test.send([tcp(SERVER, 9, POOL, 4_000, SYN)]);
    assert_eq!((report.out.len(), report.replies.len(), report.dropped(DropReason::NoMapping)), (0, 0, 1));
    let report = test.advance(Duration::from_secs(10));
    assert_eq!((report.out.len(), report.replies.len()), (0, 0));
}
