//! RFC 7857: updates to the requirements.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, RST, SYN};

use super::*;

#[test]
fn rfc7857_2_a_reset_that_is_not_followed_ends_the_connection_soon() {
    let mut test = nat("");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    through(&mut test, tcp(SERVER, 80, POOL, outside, RST));
    assert!(test.call("sessions", "").contains(" reset"));
    test.advance(Duration::from_secs(245));
    assert_eq!(count(&mut test, "sessions"), 0);
}

#[test]
fn rfc7857_2_a_forged_reset_does_not_end_a_live_connection() {
    let mut test = nat("");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    through(&mut test, tcp(SERVER, 80, POOL, outside, RST));
    through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, ACK));
    test.advance(minutes(100));
    assert!(test.call("sessions", "").contains(" established"));
}

#[test]
fn rfc7857_3_ports_do_not_overlap() {
    // One port for two hosts would need different destinations; each has its own.
    let mut test = nat("");
    let first = open(&mut test, INSIDE, 4_000, SERVER, 53);
    assert_ne!(open(&mut test, OTHER, 4_000, SERVER_2, 53), first);
}

#[test]
fn rfc7857_4_a_subscriber_whose_address_has_no_ports_gets_no_other() {
    let mut test = nat("pool = [\"203.0.113.0/30\"]\nblock = 64\nblocks = 1");
    let report = test.send((0..100).map(|port| udp(INSIDE, 4_000 + port, SERVER, 53)));
    assert_eq!((report.out.len(), report.dropped(DropReason::PortsExhausted)), (64, 36));
}

#[test]
fn rfc7857_5_mappings_of_transports_do_not_depend_on_each_other() {
    let mut test = nat("");
    let of_udp = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let of_tcp = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    assert_ne!(of_udp, of_tcp);
    assert_eq!(count(&mut test, "mappings"), 2);
}

#[test]
fn rfc7857_6_filtering_of_transports_does_not_depend_on_each_other() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    assert_eq!(test.send([tcp(SERVER, 9, POOL, port, SYN)]).dropped(DropReason::NoMapping), 1);
}

#[test]
fn rfc7857_7_strangers_do_not_refresh_a_mapping() {
    let mut test = nat("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    for _ in 0..2 {
        test.advance(minutes(2));
        through(&mut test, udp(SERVER_2, 9, POOL, port));
    }
    test.advance(minutes(2));
    assert_eq!(test.send([udp(SERVER_2, 9, POOL, port)]).dropped(DropReason::NoMapping), 1);
}

#[test]
fn rfc7857_7_1_refusals_of_strangers_do_not_refresh_a_mapping() {
    let mut test = nat("tcp_transitory = \"4 min\"");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    for _ in 0..2 {
        test.advance(Duration::from_secs(100));
        through(&mut test, tcp(SERVER_2, 9, POOL, outside, SYN));
        through(&mut test, tcp(INSIDE, 4_000, SERVER_2, 9, RST | ACK));
    }
    test.advance(Duration::from_secs(60));
    assert_eq!(count(&mut test, "mappings"), 0);
}

#[test]
fn rfc7857_8_parity_is_not_kept_unless_asked() {
    assert!(!config("").parity);
}

#[test]
fn rfc7857_9_ports_are_chosen_at_random() {
    let mut test = nat("");
    let ports: std::collections::BTreeSet<u16> =
        (0..64).map(|port| open(&mut test, INSIDE, 4_000 + port, SERVER, 53) >> 12).collect();
    assert!(ports.len() > 10, "of 16 parts of the range: {ports:?}");
}

#[test]
fn rfc7857_11_a_query_mapping_ends_with_its_last_session() {
    let mut test = nat("");
    through(&mut test, ping(INSIDE, SERVER, 77));
    test.advance(Duration::from_secs(40));
    through(&mut test, ping(INSIDE, SERVER_2, 77));
    test.advance(Duration::from_secs(40));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (1, 1));
    test.advance(Duration::from_secs(40));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (0, 0));
}

#[test]
fn rfc7857_12_a_host_reaches_another_by_the_identifier_of_its_query() {
    let mut test = nat("");
    let identifier = source_port(&through(&mut test, ping(OTHER, SERVER, 77)));
    let report = test.send([ping(INSIDE, POOL, identifier)]);
    assert_eq!(FlowKey::from_frame(&report.replies[0]).unwrap().destination_port(), 77);
}
