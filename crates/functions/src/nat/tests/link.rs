//! Ethernet addresses of hosts inside: hairpinning on one link, hosts that are not known yet, and addresses that change.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, SYN};

use super::*;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const MAC: &str = "mac = \"02:00:00:00:00:99\"\n";
const ROUTER: [u8; 6] = [2, 0, 0, 0, 9, 1];
const SECOND_ROUTER: [u8; 6] = [2, 0, 0, 0, 9, 2];
/// A host with an address of its own, and that address.
const WHOLE: &str = "10.0.0.6";
const WHOLE_OUTSIDE: &str = "203.0.113.8";

/// A datagram between link addresses.
fn between(macs: ([u8; 6], [u8; 6]), from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    let frame = ethernet().source(macs.0).destination(macs.1).ipv4(from.0, to.0);
    frame.udp(from.1, to.1).payload(b"x").build().unwrap()
}

/// The answer of a host to our ARP request.
fn arp(host: [u8; 6], address: &str) -> Vec<u8> {
    ethernet().source(host).destination(OURS).arp_reply(address, "0.0.0.0").build().unwrap()
}

/// The only frame that went back inside.
fn back(report: &Report) -> &[u8] {
    assert_eq!((report.out.len(), report.replies.len()), (0, 1), "{:?}", report.drops);
    &report.replies[0]
}

#[test]
fn a_host_with_its_own_address_and_one_with_mapped_ports_reach_each_other() {
    let fixed = "[\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\", \"203.0.113.8 -> 10.0.0.6\"]";
    let mut test = nat(&format!("answer = false\nstatic = {fixed}"));
    let server = "10.0.0.5";
    let syn = test.send([tcp(WHOLE, 9, POOL, 80, SYN)]);
    assert_eq!(shown(back(&syn)), format!("{WHOLE_OUTSIDE}:9 > {server}:8080"));
    let answer = test.send([tcp(server, 8_080, WHOLE_OUTSIDE, 9, SYN | ACK)]);
    assert_eq!(shown(back(&answer)), format!("{POOL}:80 > {WHOLE}:9"));
    let last = test.send([tcp(WHOLE, 9, POOL, 80, ACK)]);
    assert_eq!(shown(back(&last)), format!("{WHOLE_OUTSIDE}:9 > {server}:8080"));
    assert!(test.call("sessions", "").trim_end().ends_with("established"));
    // A port without a mapping is none.
    assert_eq!(test.send([tcp(WHOLE, 9, POOL, 81, SYN)]).dropped(DropReason::NoMapping), 1);
    let gre = ethernet().ipv4(WHOLE, POOL).gre().ipv4("10.1.0.1", "10.1.0.2").udp(1, 2).build().unwrap();
    assert_eq!(test.send([gre]).dropped(DropReason::NoMapping), 2);
}

#[test]
fn errors_between_a_host_with_its_own_address_and_one_with_mapped_ports_turn_back() {
    let fixed = "[\"udp 203.0.113.7:80 -> 10.0.0.5:8080\", \"203.0.113.8 -> 10.0.0.6\"]";
    let mut test = nat(&format!("answer = false\nstatic = {fixed}"));
    let server = "10.0.0.5";
    let about = |frame: &[u8]| {
        let flow = FlowKey::related_from_frame(frame).unwrap().reversed();
        let [from, to] = [&frame[26..30], &frame[30..34]].map(|octets| format!("{octets:?}"));
        (
            from,
            to,
            format!(
                "{}:{} {}:{}",
                flow.source(),
                flow.source_port(),
                flow.destination(),
                flow.destination_port()
            ),
        )
    };
    // The server refuses what the other host sent.
    let asked = test.send([udp(WHOLE, 9, POOL, 80)]);
    let quote = back(&asked)[14..].to_vec();
    let error = ethernet().ipv4(server, WHOLE_OUTSIDE).icmp_unreachable(3, &quote).build().unwrap();
    let error = test.send([error]);
    assert_eq!(checksums::wrong(back(&error)), Vec::<String>::new());
    let (from, to, flow) = about(back(&error));
    assert_eq!((&*from, &*to, &*flow), ("[203, 0, 113, 7]", "[10, 0, 0, 6]", "10.0.0.6:9 203.0.113.7:80"));
    // And the other way round.
    let answered = test.send([udp(server, 8_080, WHOLE_OUTSIDE, 9)]);
    let quote = back(&answered)[14..].to_vec();
    let error = ethernet().ipv4(WHOLE, POOL).icmp_unreachable(3, &quote).build().unwrap();
    let error = test.send([error]);
    assert_eq!(checksums::wrong(back(&error)), Vec::<String>::new());
    let (from, to, flow) = about(back(&error));
    assert_eq!((&*from, &*to, &*flow), ("[203, 0, 113, 8]", "[10, 0, 0, 5]", "10.0.0.5:8080 203.0.113.8:9"));
}

#[test]
fn a_ping_of_a_host_with_its_own_address_is_answered_inside() {
    let mut test = nat("answer = false\nstatic = [\"203.0.113.8 -> 10.0.0.6\"]");
    let asked = test.send([ping(INSIDE, WHOLE_OUTSIDE, 77)]);
    let asked = back(&asked).to_vec();
    let identifier = u16::from_be_bytes([asked[38], asked[39]]);
    let answer = test.send([pong(WHOLE, POOL, identifier)]);
    let answer = back(&answer);
    assert_eq!(checksums::wrong(answer), Vec::<String>::new());
    assert_eq!((&answer[30..34], &answer[38..40]), (&[10, 0, 0, 1][..], &[0, 77][..]));
}

#[test]
fn hosts_on_one_link_are_asked_for_their_link_addresses() {
    let (sender, host, gateway) = ([2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 6], [2, 0, 0, 0, 0, 0x55]);
    for (fixed, to, real) in [
        ("203.0.113.8 -> 10.0.0.6", (WHOLE_OUTSIDE, 80), (WHOLE, 80)),
        ("udp 203.0.113.7:80 -> 10.0.0.6:8080", (POOL, 80), (WHOLE, 8_080)),
    ] {
        let mut test = nat(&format!("{MAC}static = [\"{fixed}\"]"));
        let packet = || between((sender, gateway), (INSIDE, 4_000), to);
        // Until it is known, a router on this link may know the way.
        let report = test.send([packet()]);
        assert_eq!((report.out.len(), report.replies.len()), (0, 2), "{:?}", report.drops);
        assert_eq!(report.replies[0][..12], [sender, gateway].concat());
        let request = &report.replies[1];
        assert_eq!((&request[..12], &request[38..42]), (&[[0xff; 6], OURS].concat()[..], &[10, 0, 0, 6][..]));
        assert_eq!(test.send([arp(host, WHOLE)]).dropped(DropReason::LocalDelivery), 1);
        let report = test.send([packet()]);
        let frame = back(&report);
        assert_eq!(
            (&frame[..12], shown(frame).ends_with(&format!("{}:{}", real.0, real.1))),
            (&[host, gateway].concat()[..], true)
        );
    }
}

#[test]
fn a_whole_mapping_of_an_address_beside_the_inside_gets_its_packets() {
    let mut test = nat(&format!("{MAC}static = [\"203.0.113.8 -> 192.168.5.5\"]"));
    let packet = || between(([2, 0, 0, 0, 0, 1], OURS), (SERVER, 9), (WHOLE_OUTSIDE, 80));
    let report = test.send([packet()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Unresolved)), (1, 1));
    assert_eq!(report.out[0][38..42], [192, 168, 5, 5]);
    let host = [2, 0, 0, 0, 7, 5];
    assert_eq!(test.send([arp(host, "192.168.5.5")]).dropped(DropReason::LocalDelivery), 1);
    assert_eq!(through(&mut test, packet())[..6], host);
}

#[test]
fn a_host_that_does_not_answer_is_asked_for_once_a_second_and_others_beside_it() {
    let fixed = "[\"203.0.113.8 -> 10.0.0.6\", \"203.0.113.9 -> 10.0.0.7\"]";
    let mut test = nat(&format!("{MAC}static = {fixed}"));
    let asked = |test: &mut Clocked, to: &str| {
        let report = test.send([between(([2, 0, 0, 0, 0, 1], OURS), (SERVER, 9), (to, 80))]);
        report.out.iter().map(|request| request[41]).collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut test, WHOLE_OUTSIDE), [6]);
    assert!(asked(&mut test, WHOLE_OUTSIDE).is_empty());
    assert_eq!(asked(&mut test, "203.0.113.9"), [7]);
    test.advance(Duration::from_millis(900));
    assert!(asked(&mut test, WHOLE_OUTSIDE).is_empty());
    test.advance(Duration::from_millis(100));
    assert_eq!(asked(&mut test, WHOLE_OUTSIDE), [6]);
    assert_eq!(test.send([arp([2, 0, 0, 0, 7, 6], WHOLE)]).dropped(DropReason::LocalDelivery), 1);
}

#[test]
fn fragments_for_a_host_that_is_not_known_wait_for_its_link_address() {
    let mut test = nat(&format!("{MAC}static = [\"203.0.113.8 -> 10.0.0.6\"]"));
    let frame = ethernet().destination(OURS).ipv4(SERVER, WHOLE_OUTSIDE).udp(9, 80);
    let whole = frame.payload(&[7; 500]).build().unwrap();
    let piece = |offset| super::rfc4787::fragment(&whole, offset, 176, 7);
    // One that waits for the first is given up with it.
    let report = test.send([piece(176), piece(0), piece(352)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Unresolved)), (1, 2), "{:?}", report.drops);
    assert_eq!((count(&mut test, "fragments_waiting"), count(&mut test, "fragments_given_up")), (0, 1));
    let host = [2, 0, 0, 0, 7, 6];
    test.send([arp(host, WHOLE)]);
    // The translation of the packet is known, and its host now, too.
    let report = test.send([piece(176), piece(0), piece(352)]);
    assert_eq!(report.out.len(), 3, "{:?}", report.drops);
    assert!(report.out.iter().all(|frame| frame[..6] == host));
}

#[test]
fn packets_follow_an_inside_router_whose_link_address_changes() {
    let mut test = nat(MAC);
    let out = |router, port| between((router, [2, 0, 0, 0, 0, 0x55]), (INSIDE, port), (SERVER, 53));
    let outside = [4_000, 4_001].map(|port| source_port(&through(&mut test, out(ROUTER, port))));
    let back = |port| between(([2, 0, 0, 0, 0, 1], OURS), (SERVER, 53), (POOL, port));
    for port in outside {
        // Twice, so that the routes of both directions are in use.
        for _ in 0..2 {
            assert_eq!(through(&mut test, back(port))[..6], ROUTER);
        }
    }
    // The next packet of each session tells.
    through(&mut test, out(SECOND_ROUTER, 4_000));
    for _ in 0..2 {
        assert_eq!(through(&mut test, back(outside[0]))[..6], SECOND_ROUTER);
    }
    through(&mut test, out(SECOND_ROUTER, 4_001));
    assert_eq!(through(&mut test, back(outside[1]))[..6], SECOND_ROUTER);
    // So does a packet that makes another session of the same mapping, for those without one.
    through(&mut test, between((ROUTER, [2, 0, 0, 0, 0, 0x55]), (INSIDE, 4_000), (SERVER_2, 53)));
    let stranger = between(([2, 0, 0, 0, 0, 1], OURS), ("192.0.2.1", 1), (POOL, outside[0]));
    assert_eq!(through(&mut test, stranger)[..6], ROUTER);
    // Routes of addresses that are gone are given back.
    test.advance(Duration::from_secs(1_000));
    assert_eq!(count(&mut test, "sessions"), 0);
}

#[test]
fn an_arp_packet_tells_of_a_changed_link_address() {
    let mut test = nat(&format!("{MAC}filtering = \"endpoint-independent\""));
    let out = between((ROUTER, [2, 0, 0, 0, 0, 0x55]), (INSIDE, 4_000), (SERVER, 53));
    let outside = source_port(&through(&mut test, out));
    let stranger = || between(([2, 0, 0, 0, 0, 1], OURS), (SERVER_2, 1), (POOL, outside));
    assert_eq!(through(&mut test, stranger())[..6], ROUTER);
    let announced = ethernet().source(SECOND_ROUTER).arp_request(INSIDE, INSIDE).build().unwrap();
    test.send([announced]);
    assert_eq!(through(&mut test, stranger())[..6], SECOND_ROUTER);
}

#[test]
fn answers_that_a_redirect_makes_ambiguous_are_avoided() {
    let mut test = nat("redirect = [\"udp 198.51.100.1:53 -> 198.51.100.2:5353\"]");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    // By its other address from the same port: nothing could tell the answers apart.
    let report = test.send([udp(INSIDE, 4_000, SERVER_2, 5_353)]);
    assert_eq!((report.out.len(), report.replies.len(), report.dropped(DropReason::NoMapping)), (0, 0, 1));
    assert_eq!((count(&mut test, "refused_as_ambiguous"), count(&mut test, "sessions")), (1, 1));
    open(&mut test, INSIDE, 4_001, SERVER_2, 5_353);
}
