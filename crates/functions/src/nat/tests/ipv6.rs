//! NAT64 (RFC 6146, RFC 7915, RFC 6052), NPTv6 (RFC 6296), and packets that do not fit a link.

use std::net::Ipv6Addr;

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, SYN};
use netbricks_core::packet::{Ip, IpRef, checksum};

use super::*;

const HOST: &str = "2001:db8:1::5";
const NAT64: &str = "nat64 = \"64:ff9b::/96\"\n";

/// An IPv4 address under the well-known prefix.
fn embedded(address: &str) -> String {
    let address: std::net::Ipv4Addr = address.parse().unwrap();
    Ipv6Addr::from_bits(0x0064_ff9b << 96 | u128::from(address.to_bits())).to_string()
}

fn udp6(port: u16, to: &str, to_port: u16, payload: &[u8]) -> Vec<u8> {
    ethernet().ipv6(HOST, to).hop_limit(9).udp(port, to_port).payload(payload).build().unwrap()
}

fn shown6(frame: &[u8]) -> String {
    assert_eq!(checksums::wrong(frame), Vec::<String>::new());
    let flow = FlowKey::from_frame(frame).expect("an IP packet");
    format!("{} {} > {} {}", flow.source(), flow.source_port(), flow.destination(), flow.destination_port())
}

#[test]
fn rfc6146_3_5_1_udp_goes_from_ipv6_to_ipv4_and_back() {
    let mut test = nat(NAT64);
    for _ in 0..2 {
        let out = through(&mut test, udp6(4_000, &embedded(SERVER), 53, b"hello"));
        let port = source_port(&out);
        assert_eq!(shown(&out), format!("{POOL}:{port} > {SERVER}:53"));
        assert_eq!((&out[12..14], out[22]), (&[8, 0][..], 8), "IPv4, a hop less");
        let back = through(&mut test, udp(SERVER, 53, POOL, port));
        assert_eq!(shown6(&back), format!("{} 53 > {HOST} 4000", embedded(SERVER)));
        assert!(back.ends_with(b"hello"));
        // A mapping is the same for all destinations, and lets all in.
        let stranger = through(&mut test, udp(SERVER_2, 9, POOL, port));
        assert_eq!(shown6(&stranger), format!("{} 9 > {HOST} 4000", embedded(SERVER_2)));
        assert_eq!(source_port(&through(&mut test, udp6(4_000, &embedded(SERVER_2), 9, b""))), port);
    }
}

#[test]
fn rfc6146_3_5_2_tcp_connects_from_ipv6() {
    let mut test = nat(NAT64);
    let segment = |flags| {
        ethernet()
            .ipv6(HOST, embedded(SERVER).as_str())
            .tcp(4_000, 80)
            .flags(flags)
            .payload(b"x")
            .build()
            .unwrap()
    };
    let port = source_port(&through(&mut test, segment(SYN)));
    through(&mut test, tcp(SERVER, 80, POOL, port, SYN | ACK));
    assert_eq!(shown(&through(&mut test, segment(ACK))), format!("{POOL}:{port} > {SERVER}:80"));
    assert!(test.call("sessions", "").contains("established"));
    test.advance(minutes(100));
    let back = through(&mut test, tcp(SERVER, 80, POOL, port, ACK));
    assert_eq!(shown6(&back), format!("{} 80 > {HOST} 4000", embedded(SERVER)));
}

#[test]
fn rfc6146_3_5_3_echoes_go_from_ipv6_to_ipv4_and_back() {
    let mut test = nat(NAT64);
    let request =
        ethernet().ipv6(HOST, embedded(SERVER).as_str()).icmpv6_echo_request(77, 1).payload(b"ping!");
    let out = through(&mut test, request.build().unwrap());
    assert_eq!(out[34], 8, "an echo request");
    let identifier = source_port(&out);
    let back = through(&mut test, pong(SERVER, POOL, identifier));
    assert_eq!(back[54], 129);
    assert_eq!(shown6(&back), format!("{} 77 > {HOST} 77", embedded(SERVER)));
}

#[test]
fn rfc6146_3_8_a_host_of_ipv6_reaches_another_by_its_outside_endpoint() {
    let mut test = nat(NAT64);
    let port = open(&mut test, OTHER, 5_000, SERVER, 53);
    let report = test.send([udp6(4_000, &embedded(POOL), port, b"x")]);
    let client = source_port(&report.replies[0]);
    assert_eq!(shown(&report.replies[0]), format!("{POOL}:{client} > {OTHER}:5000"));
    let report = test.send([udp(OTHER, 5_000, POOL, client)]);
    assert_eq!(shown6(&report.replies[0]), format!("{} {port} > {HOST} 4000", embedded(POOL)));
}

#[test]
fn rfc7915_4_1_fields_of_the_header_are_carried_over() {
    let mut test = nat(NAT64);
    let packet =
        ethernet().ipv6(HOST, embedded(SERVER).as_str()).dscp(46).ecn(1).hop_limit(64).udp(4_000, 53);
    let out = through(&mut test, packet.payload(&[1; 64]).build().unwrap());
    let (IpRef::V4(header), _) = Ip::in_frame(&out).unwrap() else { panic!("IPv4") };
    assert_eq!((header.fixed().dscp(), header.fixed().ecn(), header.fixed().ttl()), (46, 1, 63));
    assert_eq!(header.fixed().octets()[6] & 0x40, 0, "a small packet may be cut");
    let packet = ethernet().ipv6(HOST, embedded(SERVER).as_str()).udp(4_000, 53).payload(&[1; 1_400]);
    let out = through(&mut test, packet.build().unwrap());
    assert_eq!(out[20] & 0x40, 0x40, "a large one may not");
    let back = ethernet().ipv4(SERVER, POOL).dscp(10).ttl(5).dont_fragment().udp(53, source_port(&out));
    let back = through(&mut test, back.payload(&[1; 1_400]).build().unwrap());
    let (IpRef::V6(header), _) = Ip::in_frame(&back).unwrap() else { panic!("IPv6") };
    assert_eq!((IpRef::V6(header).dscp(), IpRef::V6(header).ttl()), (10, 4));
}

#[test]
fn rfc7915_4_2_errors_change_their_version() {
    let mut test = nat(NAT64);
    let out = through(&mut test, udp6(4_000, &embedded(SERVER), 53, b"hello"));
    let port = source_port(&out);
    let quote = out[14..].to_vec();
    // From outside: type and code, the quoted packet, and the MTU.
    for (kind, code, rest, expected, word) in [
        (3, 1, [0; 4], [1, 0], 0),
        (3, 3, [0; 4], [1, 4], 0),
        (3, 10, [0; 4], [1, 1], 0),
        (3, 4, [0, 0, 5, 120], [2, 0], 1_420),
        (3, 4, [0, 0, 2, 0], [2, 0], 1_280),
        (11, 0, [0; 4], [3, 0], 0),
        (12, 0, [8, 0, 0, 0], [4, 0], 7),
        (3, 2, [0; 4], [4, 1], 6),
    ] {
        let error =
            ethernet().ipv4("192.0.2.99", POOL).icmp(kind, code, rest).payload(&quote).build().unwrap();
        let back = through(&mut test, error);
        assert_eq!(checksums::wrong(&back), Vec::<String>::new(), "type {kind} code {code}");
        assert_eq!(back[54..56], expected, "type {kind} code {code}");
        assert_eq!(u32::from_be_bytes(back[58..62].try_into().unwrap()), word, "type {kind} code {code}");
        let (header, payload) = Ip::in_frame(&back).unwrap();
        assert_eq!(
            (header.source().to_string(), header.destination().to_string()),
            (embedded("192.0.2.99"), HOST.into())
        );
        let about = FlowKey::quoted(header, payload).unwrap().reversed();
        assert_eq!(about, FlowKey::from_frame(&udp6(4_000, &embedded(SERVER), 53, b"")).unwrap());
    }
    // From inside.
    let quote = through(&mut test, udp(SERVER, 53, POOL, port))[14..].to_vec();
    for (kind, code, rest, expected, word) in [
        (1, 4, [0; 4], [3, 3], 0),
        (1, 1, [0; 4], [3, 10], 0),
        (2, 0, 1_400u32.to_be_bytes(), [3, 4], 1_380),
        (3, 1, [0; 4], [11, 1], 0),
        (4, 0, 7u32.to_be_bytes(), [12, 0], 8 << 24),
    ] {
        let error = ethernet().ipv6(HOST, embedded(SERVER).as_str()).icmpv6(kind, code, rest).payload(&quote);
        let out = through(&mut test, error.build().unwrap());
        assert_eq!(checksums::wrong(&out), Vec::<String>::new(), "type {kind} code {code}");
        assert_eq!(out[34..36], expected, "type {kind} code {code}");
        assert_eq!(u32::from_be_bytes(out[38..42].try_into().unwrap()), word, "type {kind} code {code}");
        let (header, payload) = Ip::in_frame(&out).unwrap();
        assert_eq!(
            (header.source().to_string(), header.destination().to_string()),
            (POOL.into(), SERVER.into())
        );
        let about = FlowKey::quoted(header, payload).unwrap().reversed();
        assert_eq!(about, FlowKey::from_frame(&udp(SERVER, 53, POOL, port)).unwrap());
    }
}

#[test]
fn rfc7915_4_a_packet_that_may_be_cut_fits_every_link_of_ipv6() {
    let mut test = nat(NAT64);
    let port = source_port(&through(&mut test, udp6(4_000, &embedded(SERVER), 53, b"")));
    let payload: Vec<u8> = (0..1_400).map(|byte| byte as u8).collect();
    let packet = ethernet().ipv4(SERVER, POOL).udp(53, port).payload(&payload).build().unwrap();
    let report = test.send([packet]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Segmented)), (2, 1));
    let mut whole = Vec::new();
    for (frame, more) in report.out.iter().zip([true, false]) {
        let (IpRef::V6(header), payload) = Ip::in_frame(frame).unwrap() else { panic!("IPv6") };
        assert!(frame.len() <= 14 + 1_280);
        assert_eq!((usize::from(header.fragment_offset()) * 8, header.more_fragments()), (whole.len(), more));
        whole.extend(payload);
    }
    let (from, to): (Ipv6Addr, Ipv6Addr) = (embedded(SERVER).parse().unwrap(), HOST.parse().unwrap());
    assert_eq!(checksum::is_valid(from.into(), to.into(), 17, &whole), Some(true));
    assert_eq!(whole[8..], payload);
}

#[test]
fn rfc7915_5_1_1_fragments_of_ipv6_become_fragments_of_ipv4() {
    let mut test = nat(NAT64);
    let to = embedded(SERVER);
    let whole = udp6(4_000, &to, 53, &[7; 200]);
    let piece = |offset: usize, bytes: usize, more: bool| {
        let part = &whole[54 + offset..54 + offset + bytes];
        let mut frame = ethernet()
            .ipv6(HOST, to.as_str())
            .fragment(0, true, 0x1234_5678)
            .protocol(17)
            .payload(part)
            .build()
            .unwrap();
        frame[56..58].copy_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
        frame
    };
    // The second comes first.
    let report = test.send([piece(104, 104, false), piece(0, 104, true)]);
    assert_eq!(report.out.len(), 2, "{:?}", report.drops);
    let mut pieces: Vec<&Vec<u8>> = report.out.iter().collect();
    pieces.sort_by_key(|frame| frame[21]);
    let segment = [&pieces[0][34..], &pieces[1][34..]].concat();
    assert_eq!(
        (&pieces[0][18..22], &pieces[1][18..22]),
        (&[0x56, 0x78, 0x20, 0][..], &[0x56, 0x78, 0, 13][..])
    );
    let (from, to): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
        (POOL.parse().unwrap(), SERVER.parse().unwrap());
    assert_eq!(checksum::is_valid(from.into(), to.into(), 17, &segment), Some(true));
}

#[test]
fn rfc7915_4_5_a_datagram_without_checksum_gets_one() {
    let mut test = nat(NAT64);
    let port = source_port(&through(&mut test, udp6(4_000, &embedded(SERVER), 53, b"")));
    let bare = ethernet().ipv4(SERVER, POOL).udp(53, port).unchecked().payload(b"odd").build().unwrap();
    let back = through(&mut test, bare);
    assert_eq!(shown6(&back), format!("{} 53 > {HOST} 4000", embedded(SERVER)));
    assert_ne!(back[60..62], [0, 0]);
}

#[test]
fn rfc7915_4_a_packet_without_a_hop_left_is_answered() {
    let mut test = nat("nat64 = \"64:ff9b::/96\"\nanswer_v6 = \"2001:db8:1::1\"");
    let port = source_port(&through(&mut test, udp6(4_000, &embedded(SERVER), 53, b"")));
    let last = ethernet().ipv6(HOST, embedded(SERVER).as_str()).hop_limit(1).udp(4_000, 53).build().unwrap();
    let report = test.send([last]);
    assert_eq!((report.dropped(DropReason::TtlExpired), report.replies[0][54]), (1, 3));
    let last = ethernet().ipv4(SERVER, POOL).ttl(1).udp(53, port).build().unwrap();
    let report = test.send([last]);
    assert_eq!((report.dropped(DropReason::TtlExpired), report.replies[0][34]), (2, 11));
}

#[test]
fn rfc6146_subscribers_of_ipv6_share_their_limits_by_prefix() {
    let mut test = nat("nat64 = \"64:ff9b::/96\"\nsubscriber_ports = 3");
    let to = embedded(SERVER);
    let from = |host: u16, port| {
        let host = format!("2001:db8:1::{host:x}");
        ethernet().ipv6(host.as_str(), to.as_str()).udp(port, 53).build().unwrap()
    };
    let report = test.send((1..6).map(|host| from(host, 4_000)));
    assert_eq!((report.out.len(), report.dropped(DropReason::SubscriberLimit)), (3, 2));
}

#[test]
fn hosts_of_one_prefix_get_their_answers_at_their_own_ethernet_addresses() {
    let ours = [2, 0, 0, 0, 0, 0x99];
    let mut test = nat(&format!("{NAT64}mac = \"02:00:00:00:00:99\""));
    let out = |test: &mut Clocked, (host, mac): (&str, [u8; 6])| {
        let frame = ethernet().source(mac).destination(ours).ipv6(host, embedded(SERVER).as_str());
        source_port(&through(test, frame.udp(4_000, 53).payload(b"x").build().unwrap()))
    };
    let answered = |test: &mut Clocked, port| {
        let frame = ethernet().destination(ours).ipv4(SERVER, POOL).udp(53, port).payload(b"x");
        through(test, frame.build().unwrap())[..6].to_vec()
    };
    let mut hosts = [("2001:db8:1::5", [2, 0, 0, 0, 7, 5]), ("2001:db8:1::6", [2, 0, 0, 0, 7, 6])];
    let ports = hosts.map(|host| out(&mut test, host));
    for round in 0..3 {
        for ((host, mac), port) in hosts.iter().zip(ports) {
            assert_eq!(answered(&mut test, port), mac, "{host} in round {round}");
        }
        // One gets another address, which the other one had.
        hosts[0].1 = [[2, 0, 0, 0, 7, 6], [2, 0, 0, 0, 7, 5], [2, 0, 0, 0, 7, 9]][round];
        for host in hosts {
            out(&mut test, host);
        }
    }
}

#[test]
fn rfc6296_2_1_prefixes_are_exchanged_and_no_checksum_changes() {
    let mut test = nat("pool = []\ninside = []\nnptv6 = [\"fd01:203:405::/48 2001:db8:1::/48\"]");
    let (host, outside, server) = ("fd01:203:405:1::1234", "2001:db8:1:d550::1234", "2001:db8:9::1");
    let make = |from: &str, to: &str| ethernet().ipv6(from, to).tcp(4_000, 80).syn().build().unwrap();
    let out = through(&mut test, make(host, server));
    assert_eq!(shown6(&out), format!("{outside} 4000 > {server} 80"));
    assert_eq!(out[70..72], make(host, server)[70..72], "the checksum is as it was");
    assert_eq!(shown6(&through(&mut test, make(server, outside))), format!("{server} 4000 > {host} 80"));
    // Errors, with what they quote.
    let quote = make(outside, server)[14..].to_vec();
    let error =
        ethernet().ipv6("2001:db8:7::7", outside).icmpv6_packet_too_big(1_280, &quote).build().unwrap();
    let back = through(&mut test, error);
    assert_eq!(checksums::wrong(&back), Vec::<String>::new());
    let about = FlowKey::related_from_frame(&back).unwrap().reversed();
    assert_eq!((about.source().to_string(), about.destination().to_string()), (host.into(), server.into()));
    // Every protocol passes, and packets of others do.
    let esp = ethernet().ipv6(host, server).protocol(50).payload(&[0; 16]).build().unwrap();
    assert_eq!(through(&mut test, esp)[22..38], outside.parse::<Ipv6Addr>().unwrap().octets());
    let other = make("2001:db8:5::5", server);
    assert_eq!(through(&mut test, other.clone()), other);
}

#[test]
fn rfc6296_2_3_hosts_inside_reach_each_other_by_their_outside_addresses() {
    let mut test = nat("pool = []\ninside = []\nnptv6 = [\"fd01:203:405::/48 2001:db8:1::/48\"]");
    let packet = ethernet().ipv6("fd01:203:405:2::9", "2001:db8:1:d550::1234").udp(9, 53).build().unwrap();
    let report = test.send([packet]);
    let flow = FlowKey::from_frame(&report.replies[0]).unwrap();
    assert_eq!(flow.destination().to_string(), "fd01:203:405:1::1234");
    assert!(flow.source().to_string().starts_with("2001:db8:1:"));
    assert_eq!(checksums::wrong(&report.replies[0]), Vec::<String>::new());
}

#[test]
fn solicitations_for_outside_addresses_are_answered() {
    let mut test = nat("pool = []\ninside = []\nnptv6 = [\"fd01:203:405::/48 2001:db8:1::/48\"]");
    let ask = |target: &str| {
        ethernet()
            .ipv6("2001:db8:1::1", target)
            .hop_limit(255)
            .neighbor_solicitation(target, [2, 0, 0, 0, 0, 1])
            .build()
            .unwrap()
    };
    let report = test.send([ask("2001:db8:1:d550::1234")]);
    assert_eq!((report.out.len(), report.replies.len()), (0, 1));
    assert_eq!(report.replies[0][54], 136);
    assert_eq!(checksums::wrong(&report.replies[0]), Vec::<String>::new());
    let other = ask("2001:db8:2::1");
    assert_eq!(test.send([other.clone()]).out, [other]);
}

#[test]
fn rfc4787_req_13_a_packet_that_is_too_long_is_reported() {
    let mut test = nat("mtu = 1_280");
    let big = |df: bool| {
        let packet = ethernet().ipv4(INSIDE, SERVER);
        let packet = if df { packet.dont_fragment() } else { packet };
        packet.udp(4_000, 53).payload(&[7; 1_400]).build().unwrap()
    };
    let report = test.send([big(true)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::TooBig)), (0, 1));
    assert_eq!(report.replies[0][34..42], [3, 4, report.replies[0][36], report.replies[0][37], 0, 0, 5, 0]);
    // (a): without DF it goes out in fragments, in order.
    let report = test.send([big(false)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Segmented)), (2, 1));
    assert!(report.out.iter().all(|frame| frame.len() <= 14 + 1_280));
    assert_eq!(report.out[0][20..22], [0x20, 0]);
    let segment = [&report.out[0][34..], &report.out[1][34..]].concat();
    let (from, to): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
        (POOL.parse().unwrap(), SERVER.parse().unwrap());
    assert_eq!(checksum::is_valid(from.into(), to.into(), 17, &segment), Some(true));
}
