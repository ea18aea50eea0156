//! RFC 7857: updates to the requirements.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, FIN, RST, SYN};

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

/// A signature covers addresses and ports (RFC 2385), so no connection through a NAT has keys.
#[test]
fn rfc7857_2_a_segment_that_no_receiver_takes_ends_no_connection() {
    let mut test = nat("");
    let outside = source_port(&through(&mut test, tcp(INSIDE, 4_000, SERVER, 80, SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, outside, SYN | ACK));
    for bits in [RST, FIN | ACK] {
        let signed =
            ethernet().ipv4(SERVER, POOL).tcp(80, outside).flags(bits).option(19, &[7; 16]).build().unwrap();
        let mut wrong = tcp(SERVER, 80, POOL, outside, bits);
        wrong[14 + 20 + 4] ^= 1;
        for frame in [signed, wrong] {
            test.send([frame]);
            assert!(test.call("sessions", "").contains(" established"), "{bits:#x}");
        }
    }
    through(&mut test, tcp(SERVER, 80, POOL, outside, RST));
    assert!(test.call("sessions", "").contains(" reset"));
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

/// The identification of a frame of IPv4.
fn identification(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[18], frame[19]])
}

#[test]
fn rfc7857_10_hosts_behind_one_address_have_different_identifications() {
    let mut test = nat("");
    let sent = |from: &str, port: u16| {
        let frame = ethernet().ipv4(from, SERVER).identification(77).udp(port, 53);
        frame.payload(b"hello").build().unwrap()
    };
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..200 {
        for from in [INSIDE, OTHER] {
            // The first makes a session, and the others go by it.
            let out = through(&mut test, sent(from, 4_000 + number % 4));
            shown(&out);
            assert!(seen.insert(identification(&out)), "{number} of {from}");
        }
    }
    // Packets that cannot be cut, and those to the inside, keep theirs.
    let whole = ethernet().ipv4(INSIDE, SERVER).identification(77).dont_fragment().udp(4_000, 53);
    let out = through(&mut test, whole.payload(b"x").build().unwrap());
    assert_eq!(identification(&out), 77);
    let port = source_port(&out);
    let back = ethernet().ipv4(SERVER, POOL).identification(78).udp(53, port).payload(b"x").build().unwrap();
    assert_eq!(identification(&through(&mut test, back)), 78);
    // So does the host of a whole address, and everything where that is set.
    let own = nat("static = [\"203.0.113.8 -> 10.0.0.6\"]").send([sent("10.0.0.6", 1)]);
    assert_eq!(identification(only(&own)), 77);
    let mut test = nat("identification = false");
    for _ in 0..2 {
        assert_eq!(identification(&through(&mut test, sent(INSIDE, 4_000))), 77);
    }
}

#[test]
fn rfc7857_10_all_fragments_of_a_packet_have_its_identification() {
    let mut test = nat("");
    let whole = |from: &str| ethernet().ipv4(from, SERVER).udp(4_000, 53).payload(&[7; 500]).build().unwrap();
    let mut seen = Vec::new();
    for (from, order) in [(INSIDE, [0, 176, 352]), (OTHER, [352, 0, 176]), (INSIDE, [176, 352, 0])] {
        let pieces =
            order.map(|offset| super::rfc4787::fragment(&whole(from), offset, 176, 7 + order[0] as u16));
        let report = test.send(pieces);
        assert_eq!(report.out.len(), 3, "{:?}", report.drops);
        let own: std::collections::BTreeSet<u16> = report.out.iter().map(|out| identification(out)).collect();
        assert_eq!(own.len(), 1, "of {from}");
        assert!(report.out.iter().all(|out| checksum_of_header(out) == 0));
        seen.extend(own);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
}

fn checksum_of_header(frame: &[u8]) -> u16 {
    netbricks_core::packet::checksum::internet(&frame[14..34])
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
