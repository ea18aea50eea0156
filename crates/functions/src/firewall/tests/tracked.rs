//! Connections: states, windows, timeouts, floods.

use std::time::Duration;

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, Report};

use super::super::{FirewallConfig, WhenFull};
use super::{clocked, run, with};

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "192.0.2.80";

/// A segment from the client (`true`) or the server.
fn segment(forward: bool, bits: u8, number: u32, acknowledged: u32, len: usize) -> Vec<u8> {
    let (from, to, ports) =
        if forward { (CLIENT, SERVER, (4_000, 80)) } else { (SERVER, CLIENT, (80, 4_000)) };
    let payload = vec![b'x'; len];
    ethernet()
        .ipv4(from, to)
        .tcp(ports.0, ports.1)
        .sequence(number)
        .ack(acknowledged)
        .flags(bits)
        .window(1_000)
        .payload(&payload)
        .build()
        .unwrap()
}

/// As [`segment`], without payload and with options: each a kind and its data.
fn with_options(
    forward: bool,
    bits: u8,
    (number, acknowledged): (u32, u32),
    options: &[(u8, &[u8])],
) -> Vec<u8> {
    let (from, to, ports) =
        if forward { (CLIENT, SERVER, (4_000, 80)) } else { (SERVER, CLIENT, (80, 4_000)) };
    let tcp = ethernet().ipv4(from, to).tcp(ports.0, ports.1);
    let tcp = tcp.sequence(number).ack(acknowledged).flags(bits).window(1_000);
    options.iter().fold(tcp, |tcp, (kind, data)| tcp.option(*kind, data)).build().unwrap()
}

/// An MD5 digest (RFC 2385) and an authentication code (RFC 5925).
const MD5: (u8, &[u8]) = (19, &[7; 16]);
const AUTHENTICATION: (u8, &[u8]) = (29, &[1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
const TIMESTAMPS: (u8, &[u8]) = (8, &[0, 0, 0, 1, 0, 0, 0, 2]);

const HTTP: [&str; 2] = ["allow tcp to any port 80 name web", "allow icmp type echo-request name ping"];

fn handshake() -> [Vec<u8>; 3] {
    [segment(true, SYN, 100, 0, 0), segment(false, SYN | ACK, 500, 101, 0), segment(true, ACK, 101, 501, 0)]
}

fn passes(test: &mut Clocked, frame: Vec<u8>) -> bool {
    test.send([frame]).out.len() == 1
}

#[test]
fn answers_of_an_allowed_connection_pass_and_others_do_not() {
    let [syn, syn_ack, ack] = handshake();
    let report = run(with(&HTTP), [syn_ack.clone(), syn.clone(), syn_ack.clone(), ack.clone()]);
    assert_eq!(report.out, [syn, syn_ack, ack]);
    assert_eq!(report.dropped(DropReason::InvalidState), 1);
    let rows = &report.sections[0].rows;
    assert_eq!(rows[0][1..], ["1", "54", "1", "2"], "{rows:?}");
    assert_eq!(report.sections[1].rows, [["tcp established", "1"]]);
}

#[test]
fn segments_outside_the_window_fit_no_connection() {
    let mut test = clocked(with(&HTTP));
    for frame in handshake() {
        assert!(passes(&mut test, frame));
    }
    for (frame, expected) in [
        (segment(true, PSH | ACK, 101, 501, 500), true),
        (segment(false, ACK, 501, 601, 0), true),
        // Beyond the server's window of 1,000 bytes.
        (segment(true, PSH | ACK, 5_000, 501, 10), false),
        // An acknowledgment of bytes that were not sent.
        (segment(false, ACK, 501, 90_000, 0), false),
        // Long before: it says nothing new, and passes.
        (segment(true, ACK, 101u32.wrapping_sub(100_000), 501, 10), true),
        // A reset that its receiver would not take.
        (segment(false, RST, 400, 0, 0), false),
        (segment(true, PSH | ACK, 601, 501, 100), true),
        // Flags that no end sends.
        (segment(true, SYN | FIN, 701, 501, 0), false),
        (segment(true, 0, 701, 501, 0), false),
        (segment(true, FIN, 701, 501, 0), false),
    ] {
        let shown = format!("{:?}", &frame[34..54]);
        assert_eq!(passes(&mut test, frame), expected, "{shown}");
    }
    assert_eq!(test.finish().dropped(DropReason::InvalidState), 6);
}

#[test]
fn a_connection_closes_by_both_fins_and_is_forgotten_soon() {
    let config = FirewallConfig { tcp_closed: "1 s".parse().unwrap(), ..with(&HTTP) };
    let mut test = clocked(config);
    let all = handshake().into_iter().chain([
        segment(true, FIN | ACK, 101, 501, 0),
        segment(false, FIN | ACK, 501, 102, 0),
        segment(true, ACK, 102, 502, 0),
    ]);
    assert_eq!(test.send(all).out.len(), 6);
    assert_eq!(
        test.call("connections", "1"),
        "1 open\n0 opening\n10.0.0.1:4000 > 192.0.2.80:80 TCP time-wait web\n"
    );
    // A late segment of it still passes; after the time it fits nothing.
    assert!(passes(&mut test, segment(false, ACK, 502, 102, 0)));
    test.advance(Duration::from_millis(1_500));
    assert!(!passes(&mut test, segment(false, ACK, 502, 102, 0)));
    // The same ports may be used again.
    let [syn, syn_ack, ack] = handshake();
    assert_eq!(test.send([syn, syn_ack, ack]).out.len(), 3);
}

#[test]
fn a_new_connection_may_have_the_ports_of_one_that_is_over() {
    let mut test = clocked(with(&HTTP));
    let all = handshake().into_iter().chain([segment(true, RST, 101, 0, 0)]);
    assert_eq!(test.send(all).out.len(), 4);
    let again = [
        segment(true, SYN, 9_000, 0, 0),
        segment(false, SYN | ACK, 7_000, 9_001, 0),
        segment(true, ACK, 9_001, 7_001, 0),
        segment(false, PSH | ACK, 7_001, 9_001, 100),
    ];
    assert_eq!(test.send(again).out.len(), 4);
    assert_eq!(test.call("connections", ""), "1 open\n0 opening\n");
}

#[test]
fn a_connection_that_is_met_in_its_middle_needs_leave() {
    let frames = || [segment(true, ACK, 101, 501, 10), segment(false, ACK, 501, 111, 10)];
    assert_eq!(run(with(&HTTP), frames()).dropped(DropReason::InvalidState), 2);
    let config = FirewallConfig { pick_up: true, ..with(&HTTP) };
    assert_eq!(run(config, frames()).out.len(), 2);
}

#[test]
fn a_connection_that_is_met_in_its_middle_follows_what_its_windows_do_not_allow() {
    let config = FirewallConfig { pick_up: true, ..with(&HTTP) };
    let frames = [
        segment(true, ACK, 101, 501, 10),
        segment(false, ACK, 501, 111, 10),
        // Beyond the window that is assumed, which is not the true one.
        segment(true, FIN | ACK, 1_200, 511, 10),
    ];
    let report = run(config, frames);
    assert_eq!(report.out.len(), 3);
    assert_eq!(report.sections[1].rows, [["tcp fin-wait", "1"]]);
}

#[test]
fn a_syn_is_reset_by_the_other_end_alone() {
    // The server's acknowledgment passes by; then the client sends its SYN again, with another number.
    let begin = [
        segment(true, SYN, 1_000, 0, 0),
        segment(false, ACK, 3_900_000_000, 1_001, 239),
        segment(true, SYN, 500, 0, 0),
    ];
    let end = 3_900_000_239;
    for (by_client, passes_then) in [(true, false), (false, true)] {
        let mut test = clocked(with(&HTTP));
        assert_eq!(test.send(begin.clone()).out.len(), 3);
        assert!(passes(&mut test, segment(by_client, RST | ACK, 1_001, end, 0)));
        // A FIN is of no connection that opens, and may be a late one of a connection that is over.
        assert_eq!(passes(&mut test, segment(true, FIN | ACK, 1_001, end, 10)), passes_then, "{by_client}");
    }
}

fn udp(forward: bool, port: u16) -> Vec<u8> {
    let (from, to) = if forward { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let (a, b) = if forward { (port, 53) } else { (53, port) };
    ethernet().ipv4(from, to).udp(a, b).payload(b"question").build().unwrap()
}

#[test]
fn udp_answers_pass_until_the_connection_is_forgotten() {
    let lines = ["allow udp to any port 53 name dns"];
    let config =
        FirewallConfig { udp_opening: "1 s".parse().unwrap(), udp: "5 s".parse().unwrap(), ..with(&lines) };
    let mut test = clocked(config);
    assert!(!passes(&mut test, udp(false, 1_000)));
    assert!(passes(&mut test, udp(true, 1_000)));
    test.advance(Duration::from_millis(1_200));
    assert!(!passes(&mut test, udp(false, 1_000)), "it was not answered in time");
    assert!(passes(&mut test, udp(true, 1_000)) && passes(&mut test, udp(false, 1_000)));
    test.advance(Duration::from_millis(3_000));
    assert!(passes(&mut test, udp(false, 1_000)), "an answered one stays longer");
    test.advance(Duration::from_millis(6_000));
    assert!(!passes(&mut test, udp(false, 1_000)));
}

#[test]
fn echo_replies_need_their_request() {
    let echo = |reply: bool, id: u16| {
        if reply {
            ethernet().ipv4(SERVER, CLIENT).icmp_echo_reply(id, 1).build().unwrap()
        } else {
            ethernet().ipv4(CLIENT, SERVER).icmp_echo_request(id, 1).build().unwrap()
        }
    };
    let back = ethernet().ipv4(SERVER, CLIENT).icmp_echo_request(7, 1).build().unwrap();
    let denied = with(&["allow icmp from 10.0.0.0/8"]);
    let frames = [echo(true, 7), echo(false, 7), echo(true, 8), echo(true, 7), back];
    let report = run(denied, frames);
    assert_eq!(report.out.len(), 2);
    // The server may not ask with the client's identifier.
    assert_eq!((report.dropped(DropReason::InvalidState), report.dropped(DropReason::Denied)), (2, 1));
    let report = run(
        with(&HTTP),
        [
            echo(false, 7),
            ethernet().ipv4(SERVER, CLIENT).icmp_echo_request(7, 1).build().unwrap(),
            echo(true, 7),
        ],
    );
    assert_eq!(report.out.len(), 3, "both may ask where the rules allow it");
}

#[test]
fn errors_pass_with_their_connection_only() {
    let about = |packet: &[u8]| {
        ethernet().ipv4("203.0.113.9", CLIENT).icmp_time_exceeded(&packet[14..]).build().unwrap()
    };
    let other = ethernet().ipv4(CLIENT, SERVER).udp(9, 9).build().unwrap();
    let [syn, ..] = handshake();
    let report = run(with(&HTTP), [about(&syn), syn.clone(), about(&syn), about(&other)]);
    assert_eq!(report.out, [syn.clone(), about(&syn)]);
    assert_eq!(report.dropped(DropReason::InvalidState), 2);
    // A rule may decide otherwise.
    let strict = ["deny state related", "allow tcp to any port 80"];
    assert_eq!(run(with(&strict), [syn.clone(), about(&syn)]).dropped(DropReason::Denied), 1);
}

#[test]
fn rules_with_states_decide_about_known_connections() {
    let lines = [
        "deny state established from 192.0.2.80 log",
        "allow state invalid to any port 4000",
        "allow tcp to any port 80",
    ];
    let [syn, syn_ack, ack] = handshake();
    let report = run(with(&lines), [syn.clone(), syn_ack.clone(), ack.clone()]);
    assert_eq!(report.out, [syn.clone(), ack]);
    let report = run(with(&lines), [syn_ack.clone()]);
    assert_eq!(report.out, [syn_ack], "it is invalid, and a rule allows that");
}

/// In explicit mode the same list as for nftables decides.
#[test]
fn explicit_lists_see_every_packet_with_its_state() {
    let lines = [
        "tracking explicit",
        "allow state established,related name known",
        "deny state invalid",
        "allow tcp to any port 80 flags syn/syn,ack,rst,fin state new name web",
    ];
    let [syn, syn_ack, ack] = handshake();
    let report = run(with(&lines), [ack.clone(), syn.clone(), syn.clone(), syn_ack.clone(), ack.clone()]);
    assert_eq!(report.out, [syn.clone(), syn, syn_ack, ack]);
    let rows = &report.sections[0].rows;
    let of = |name: &str| rows.iter().find(|row| row[0].contains(name)).unwrap()[1].clone();
    assert_eq!((of("known"), of("web")), ("2".into(), "2".into()));
}

#[test]
fn a_flood_takes_no_room_from_open_connections() {
    let config = FirewallConfig { opening: 64, connections: 8, ..with(&HTTP) };
    let mut test = clocked(config);
    for frame in handshake() {
        assert!(passes(&mut test, frame));
    }
    let flood = |from: u32| {
        (from..from + 5_000).map(|at| {
            let address: std::net::Ipv4Addr = (0xc633_0000 | at).into();
            ethernet().ipv4(address, [192, 0, 2, 80]).tcp(1_000, 80).syn().build().unwrap()
        })
    };
    assert_eq!(test.send(flood(0)).out.len(), 5_000, "new ones still begin");
    assert!(passes(&mut test, segment(true, PSH | ACK, 101, 501, 100)));
    let shown = test.call("connections", "");
    assert!(shown.starts_with("1 open\n"), "{shown}");
    let opening: usize = shown.lines().nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((32..=64).contains(&opening), "{shown}");
}

/// Opens so many connections, each with a handshake.
fn open_many(test: &mut Clocked, count: u16) -> Report {
    let frames = (0..count).flat_map(|port| {
        let to = |bits, number, acknowledged| {
            ethernet()
                .ipv4(CLIENT, SERVER)
                .tcp(port + 1, 80)
                .sequence(number)
                .ack(acknowledged)
                .flags(bits)
                .build()
                .unwrap()
        };
        let back = ethernet()
            .ipv4(SERVER, CLIENT)
            .tcp(80, port + 1)
            .sequence(9)
            .ack(2)
            .flags(SYN | ACK)
            .build()
            .unwrap();
        [to(SYN, 1, 0), back, to(ACK, 2, 10)]
    });
    test.send(frames)
}

#[test]
fn a_full_table_refuses_or_gives_the_oldest_away() {
    for (full, open, opening) in [(WhenFull::Refuse, 32, 18), (WhenFull::Oldest, 32, 0)] {
        let mut test = clocked(FirewallConfig { connections: 32, opening: 1_000, full, ..with(&HTTP) });
        let report = open_many(&mut test, 50);
        assert_eq!(report.out.len(), 150, "{full:?}");
        assert_eq!(test.call("connections", ""), format!("{open} open\n{opening} opening\n"), "{full:?}");
        let crowded = test.finish().sections[1].counts["not_opened"];
        assert_eq!(crowded > 0, full == WhenFull::Refuse, "{full:?}");
    }
}

#[test]
fn connections_are_flushed_by_address() {
    let mut test = clocked(with(&["policy allow"]));
    test.send([
        udp(true, 1),
        udp(true, 2),
        ethernet().ipv4("10.9.9.9", "10.9.9.8").udp(1, 2).build().unwrap(),
    ]);
    assert_eq!(test.call("flush", "192.0.2.80"), "2 forgotten");
    assert_eq!(test.call("flush", ""), "1 forgotten");
    assert_eq!(test.call("connections", "9"), "0 open\n0 opening\n");
}

#[test]
fn neighbour_discovery_is_untracked_and_other_frames_pass() {
    let solicitation = ethernet()
        .ipv6("fe80::1", "ff02::1:ff00:2")
        .hop_limit(255)
        .icmpv6(135, 0, [0; 4])
        .payload(&[0; 16])
        .build()
        .unwrap();
    let arp = ethernet().ethertype(0x0806).payload(&[0; 28]).build().unwrap();
    let report = run(with(&["allow icmp6 type 135 state untracked"]), [solicitation.clone(), arp.clone()]);
    assert_eq!(report.out, [solicitation.clone(), arp.clone()]);
    let report = run(with(&["allow tcp"]), [solicitation, arp]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (1, 1));
}

#[test]
fn a_wrong_checksum_fits_no_connection_unless_it_is_not_verified() {
    let mut wrong = udp(true, 1);
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(run(with(&["policy allow"]), [wrong.clone()]).dropped(DropReason::InvalidState), 1);
    let config = FirewallConfig { verify: false, ..with(&["policy allow"]) };
    assert_eq!(run(config, [wrong]).out.len(), 1);
}

#[test]
fn a_segment_signed_otherwise_than_its_connection_changes_nothing() {
    let mut test = clocked(with(&HTTP));
    for frame in handshake() {
        assert!(passes(&mut test, frame));
    }
    for options in [&[MD5][..], &[AUTHENTICATION], &[MD5, AUTHENTICATION], &[TIMESTAMPS, MD5]] {
        for (forward, bits, numbers) in
            [(false, RST, (501, 0)), (true, RST | ACK, (101, 501)), (false, FIN | ACK, (501, 101))]
        {
            let frame = with_options(forward, bits, numbers, options);
            assert!(!passes(&mut test, frame), "{bits:#x} with {options:?}");
        }
    }
    // Longer than a connection is remembered that a reset or a FIN has closed.
    test.advance(Duration::from_secs(300));
    assert!(passes(&mut test, segment(true, PSH | ACK, 101, 501, 10)));
    // Other options are no signature.
    assert!(passes(&mut test, with_options(false, RST, (501, 0), &[TIMESTAMPS])));
    test.advance(Duration::from_secs(300));
    assert!(!passes(&mut test, segment(true, PSH | ACK, 111, 501, 10)), "it was closed");
}

#[test]
fn a_signed_connection_takes_segments_of_its_own_signature_alone() {
    let mut test = clocked(with(&HTTP));
    // A SYN without a signature before the signed one: the answer tells which of them counts.
    for (forward, bits, numbers, options, expected) in [
        (true, SYN, (100, 0), &[][..], true),
        (true, SYN, (100, 0), &[MD5][..], true),
        (false, SYN | ACK, (500, 101), &[MD5], true),
        (true, ACK, (101, 501), &[MD5], true),
        (false, RST, (501, 0), &[], false),
        (false, RST, (501, 0), &[AUTHENTICATION], false),
        (true, ACK, (101, 501), &[], false),
        (true, ACK, (101, 501), &[MD5], true),
        (false, RST, (501, 0), &[MD5], true),
    ] {
        let frame = with_options(forward, bits, numbers, options);
        assert_eq!(passes(&mut test, frame), expected, "{forward} {bits:#x} {options:?}");
    }
    // A SYN with more than one begins nothing.
    let mut test = clocked(with(&HTTP));
    assert!(!passes(&mut test, with_options(true, SYN, (100, 0), &[MD5, AUTHENTICATION])));
}

#[test]
fn a_reset_with_a_wrong_checksum_closes_nothing() {
    let mut test = clocked(with(&HTTP));
    for frame in handshake() {
        assert!(passes(&mut test, frame));
    }
    let mut reset = segment(false, RST, 501, 0, 0);
    reset[51] ^= 1;
    assert!(!passes(&mut test, reset));
    test.advance(Duration::from_secs(300));
    assert!(passes(&mut test, segment(true, PSH | ACK, 101, 501, 10)));
}
