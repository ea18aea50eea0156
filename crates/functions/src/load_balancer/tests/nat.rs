//! Address translation: packets to servers, their answers, errors and fragments.

use super::*;

const BOTH: &str = "addresses = [\"192.0.2.1\", \"2001:db8::1\"]\nmode = \"nat\"\nslots = 251\n";

#[test]
fn address_translation_goes_to_the_server_and_comes_back() {
    let only = |server: &str, address: &str| {
        format!(
            "servers = [\"{server}\"]\naddresses = [\"{address}\"]\nport = 80\nmode = \"nat\"\nslots = 251\n"
        )
    };
    let there = ethernet().ipv4("10.0.0.9", "192.0.2.1").tcp(1_000, 80).payload(b"GET").build().unwrap();
    let other = ethernet().ipv4("10.0.0.9", "192.0.2.1").tcp(1_000, 81).payload(b"GET").build().unwrap();
    let back = ethernet().ipv4("10.1.0.1", "10.0.0.9").tcp(8_080, 1_000).payload(b"200").build().unwrap();
    let make_v4 = make(&only("a 10.1.0.1:8080 02:00:00:00:01:01", "192.0.2.1"));
    let report = run_node(make_v4, [there, other.clone(), back]);
    let expected = ethernet().ipv4("10.0.0.9", "10.1.0.1").tcp(1_000, 8_080).payload(b"GET").build().unwrap();
    let answer = ethernet().ipv4("192.0.2.1", "10.0.0.9").tcp(80, 1_000).payload(b"200").build().unwrap();
    assert_eq!(report.out[0][14..], expected[14..]);
    assert_eq!(report.out[0][..6], [2, 0, 0, 0, 1, 1]);
    assert_eq!(report.out[1..], [other, answer]);
    let v6 = |from: &str, to: &str, ports: (u16, u16)| {
        ethernet().ipv6(from, to).udp(ports.0, ports.1).payload(b"hello").build().unwrap()
    };
    let report = run_node(
        make(&only("b [2001:db8:1::1]:8080", "2001:db8::1")),
        [v6("2001:db8::9", "2001:db8::1", (1_000, 80)), v6("2001:db8:1::1", "2001:db8::9", (8_080, 1_000))],
    );
    assert_eq!(
        report.out,
        [v6("2001:db8::9", "2001:db8:1::1", (1_000, 8_080)), v6("2001:db8::1", "2001:db8::9", (80, 1_000)),]
    );
}

/// The addresses that packets go to.
fn destinations(frames: &[Vec<u8>]) -> BTreeMap<IpAddr, usize> {
    frames.iter().fold(BTreeMap::new(), |mut tally, frame| {
        *tally.entry(Ip::in_frame(frame).expect("an IP packet").0.destination()).or_default() += 1;
        tally
    })
}

#[test]
fn packets_go_to_servers_of_their_own_ip_version() {
    let servers = "servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\", \"c 10.1.0.3\", \"d 2001:db8:1::4\"]\n";
    let [a, b, c, d]: [IpAddr; 4] =
        ["10.1.0.1", "2001:db8:1::1", "10.1.0.3", "2001:db8:1::4"].map(|text| text.parse().unwrap());
    for policy in ["maglev", "round-robin", "least-connections"] {
        let mut test = Clocked::of_node(make(&format!("{BOTH}{servers}policy = \"{policy}\"")));
        let report = test.send((0..100).flat_map(|flow| [v4(flow), v6(flow)]));
        let found = destinations(&report.out);
        assert_eq!(found.values().sum::<usize>(), 200, "{policy}: none is dropped");
        assert_eq!((found[&a] + found[&c], found[&b] + found[&d]), (100, 100), "{policy}");
        assert!(found.values().all(|count| *count > 20), "{policy}: {found:?}");
        if policy != "maglev" {
            assert!(found.values().all(|count| *count == 50), "{policy}: {found:?}");
        }
        // A server of the same name gets an address of the other version: its connections move.
        test.call("add", "c 2001:db8:1::3");
        let found = destinations(&test.send((0..100).map(v4)).out);
        assert_eq!(found, [(a, 100)].into(), "{policy}");
        test.call("remove", "a");
        let report = test.send((0..10).flat_map(|flow| [v4(flow), v6(flow)]));
        assert_eq!((report.out.len(), report.dropped(DropReason::NoBackend)), (10, 10), "{policy}");
        test.finish();
    }
}

/// A service at port 80, whose servers listen at 8080.
fn web() -> Clocked {
    let servers = "servers = [\"a 10.1.0.1:8080\", \"b [2001:db8:1::1]:8080\"]\nport = 80\n";
    Clocked::of_node(make(&format!("{BOTH}{servers}")))
}

#[test]
fn errors_about_answers_name_the_server_in_their_quote() {
    let mut test = web();
    let there =
        |from: &str| ethernet().ipv4(from, "192.0.2.1").tcp(1_000, 80).flags(flags::SYN).build().unwrap();
    let there_v6 =
        ethernet().ipv6("2001:db8::9", "2001:db8::1").tcp(1_000, 80).flags(flags::SYN).build().unwrap();
    test.send([there("10.0.0.9"), there_v6]);
    let answer = |address: &str, port: u16| {
        let packet =
            ethernet().ipv4(address, "10.0.0.9").tcp(port, 1_000).payload(&[7; 200]).build().unwrap();
        packet[14..].to_vec()
    };
    let answer_v6 = |address: &str, port: u16| {
        let packet =
            ethernet().ipv6(address, "2001:db8::9").tcp(port, 1_000).payload(&[7; 200]).build().unwrap();
        packet[14..].to_vec()
    };
    for cut in [28, 60, 240] {
        let error = |to: &str, address: &str, port: u16| {
            let quote = &answer(address, port)[..cut];
            ethernet().ipv4("203.0.113.3", to).icmp_fragmentation_needed(1_280, quote).build().unwrap()
        };
        let report = test.send([error("192.0.2.1", "192.0.2.1", 80)]);
        assert_eq!(report.out, [error("10.1.0.1", "10.1.0.1", 8_080)], "cut at {cut}");
        let error = |to: &str, address: &str, port: u16| {
            let quote = &answer_v6(address, port)[..cut + 20];
            ethernet().ipv6("2001:db8:3::3", to).icmpv6_packet_too_big(1_280, quote).build().unwrap()
        };
        let report = test.send([error("2001:db8::1", "2001:db8::1", 80)]);
        assert_eq!(report.out, [error("2001:db8:1::1", "2001:db8:1::1", 8_080)], "cut at {cut}");
    }
    assert_eq!(test.call("assigned.occupancy", ""), format!("2 {}", u64::MAX), "errors make no connection");
    test.finish();
}

#[test]
fn errors_about_packets_to_servers_name_the_service_in_their_quote() {
    let mut test = web();
    // From the server itself, and from a router on the way, which keeps its address.
    for (from, shown) in [("10.1.0.1", "192.0.2.1"), ("10.1.0.254", "10.1.0.254")] {
        let error = |from: &str, address: &str, port: u16| {
            let packet =
                ethernet().ipv4("10.0.0.9", address).udp(1_000, port).payload(&[7; 20]).build().unwrap();
            ethernet().ipv4(from, "10.0.0.9").icmp_unreachable(3, &packet[14..]).build().unwrap()
        };
        let report = test.send([error(from, "10.1.0.1", 8_080)]);
        assert_eq!(report.out, [error(shown, "192.0.2.1", 80)], "from {from}");
        // About connections of other ports of the server.
        let other = error(from, "10.1.0.1", 53);
        assert_eq!(test.send([other.clone()]).out, [other]);
    }
    let error = |from: &str, address: &str, port: u16| {
        let packet = ethernet().ipv6("2001:db8::9", address).tcp(1_000, port).build().unwrap();
        ethernet().ipv6(from, "2001:db8::9").icmpv6_unreachable(4, &packet[14..]).build().unwrap()
    };
    let report = test.send([error("2001:db8:1::1", "2001:db8:1::1", 8_080)]);
    assert_eq!(report.out, [error("2001:db8::1", "2001:db8::1", 80)]);
    assert_eq!(test.call("answers.occupancy", ""), format!("3 {}", u64::MAX));
    test.finish();
}

#[test]
fn a_servers_own_connections_keep_its_address() {
    // The port of the service counts for servers that have none of their own.
    let mut test = Clocked::of_node(make(&format!(
        "servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\"]\n{BOTH}port = 80\n"
    )));
    let from = |address: &str, ports: (u16, u16)| {
        ethernet().ipv4(address, "10.0.0.9").tcp(ports.0, ports.1).payload(b"200").build().unwrap()
    };
    let name = ethernet().ipv4("10.1.0.1", "9.9.9.9").udp(40_000, 53).payload(b"name").build().unwrap();
    let ping = ethernet().ipv4("10.1.0.1", "9.9.9.9").icmp_echo_request(7, 1).build().unwrap();
    let ping_v6 = ethernet().ipv6("2001:db8:1::1", "2001:db8::9").icmpv6_echo_request(7, 1).build().unwrap();
    let ssh = from("10.1.0.1", (22, 1_000));
    let own = [name, ping, ping_v6, ssh];
    assert_eq!(test.send(own.clone()).out, own);
    let report = test.send([from("10.1.0.1", (80, 1_000))]);
    assert_eq!(report.out, [from("192.0.2.1", (80, 1_000))]);
    test.finish();

    // Where all ports are the service's, only a known connection tells an answer.
    let mut test =
        Clocked::of_node(make(&format!("servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\"]\n{BOTH}")));
    let answer = from("10.1.0.1", (80, 1_000));
    assert_eq!(test.send([answer.clone()]).out, std::slice::from_ref(&answer));
    assert_eq!(test.send(own.clone()).out, own);
    test.send([ethernet().ipv4("10.0.0.9", "192.0.2.1").tcp(1_000, 80).build().unwrap()]);
    assert_eq!(test.send([answer]).out, [from("192.0.2.1", (80, 1_000))]);
    assert_eq!(test.send(own.clone()).out, own);
    test.finish();
}

#[test]
fn answers_without_ports_are_translated_by_their_address() {
    let mut test = web();
    let reply = |from: &str| {
        ethernet().ipv4(from, "10.0.0.9").icmp_echo_reply(7, 1).payload(&[1; 8]).build().unwrap()
    };
    assert_eq!(test.send([reply("10.1.0.1")]).out, [reply("192.0.2.1")]);
    let reply = |from: &str| ethernet().ipv6(from, "2001:db8::9").icmpv6_echo_reply(7, 1).build().unwrap();
    assert_eq!(test.send([reply("2001:db8:1::1")]).out, [reply("2001:db8::1")]);
    let first = |from: &str, port: u16, identification: u16| {
        let packet = ethernet().ipv4(from, "10.0.0.9").identification(identification).fragment(0, true);
        packet.udp(port, 1_000).payload(&[1; 32]).build().unwrap()
    };
    let later = |from: &str, identification: u16| {
        let packet = ethernet().ipv4(from, "10.0.0.9").identification(identification).fragment(5, false);
        packet.protocol(17).payload(&[2; 40]).build().unwrap()
    };
    // The first fragment decides; a later one ahead of it goes by the address.
    let (came, out) = ("10.1.0.1", "192.0.2.1");
    let frames = [first(came, 8_080, 1), later(came, 1), first(came, 53, 2), later(came, 2), later(came, 3)];
    let report = test.send(frames);
    assert_eq!(report.out[1..], [later(out, 1), first(came, 53, 2), later(came, 2), later(out, 3)]);
    // The builder's sum is over the fragment; the rewrite carries the change of the same bytes.
    assert_eq!(report.out[0], first(out, 80, 1));
    test.finish();
}

#[test]
fn fragments_follow_their_first_one() {
    let servers = "servers = [\"a 10.1.0.1:8080\", \"b 10.1.0.2:8080\", \"c 10.1.0.3:8080\"]\n";
    let nat = "addresses = [\"192.0.2.1\"]\nmode = \"nat\"\nslots = 251\n";
    let first = |flow: u16, to: u16| {
        let packet = ethernet().ipv4("10.0.0.9", "192.0.2.1").identification(flow).fragment(0, true);
        packet.udp(1_000 + flow, to).payload(&[1; 32]).build().unwrap()
    };
    let later = |flow: u16| {
        let packet = ethernet().ipv4("10.0.0.9", "192.0.2.1").identification(flow).fragment(5, false);
        packet.protocol(17).payload(&[2; 40]).build().unwrap()
    };
    let whole = |flow: u16| ethernet().ipv4("10.0.0.9", "192.0.2.1").udp(1_000 + flow, 80).build().unwrap();
    let to = |frames: &[Vec<u8>]| -> Vec<u8> { frames.iter().map(|frame| frame[33]).collect() };
    for policy in ["maglev", "round-robin"] {
        let mut test = Clocked::of_node(make(&format!("{servers}{nat}port = 80\npolicy = \"{policy}\"")));
        let expected = to(&test.send((0..60).map(whole)).out);
        assert_eq!(to(&test.send((0..60).map(|flow| first(flow, 80))).out), expected, "{policy}");
        assert_eq!(to(&test.send((0..60).map(later)).out), expected, "{policy}");
        assert_eq!(test.call("assigned.occupancy", ""), format!("60 {}", u64::MAX), "{policy}");
        // Packets to other ports pass whole, and so do their fragments and those whose first is not known.
        let others = [first(100, 81), later(100), later(101)];
        assert_eq!(test.send(others.clone()).out, others, "{policy}");
        // A first fragment begins a connection, too.
        let begun = to(&test.send((200..220).map(|flow| first(flow, 80))).out);
        assert_eq!(to(&test.send((200..220).map(whole)).out), begun, "{policy}");
        test.finish();
    }
    // With all ports, a fragment whose first is not known has a server all the same, and makes no connection.
    let mut test = Clocked::of_node(make(&format!("servers = [\"a 10.1.0.1\", \"b 10.1.0.2\"]\n{nat}")));
    assert!([1, 2].contains(&to(&test.send([later(7)]).out)[0]));
    assert_eq!(test.call("connections.occupancy", ""), "0 65536");
    test.finish();
}
