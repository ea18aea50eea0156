//! The two address translators.

use netbricks_testkit::build::ethernet;

use crate::harness::{Ip, each, frame, icmp, ip, ip_at, neighbour, only};

const MAC0: &str = "02:00:00:00:00:10";
const MAC1: &str = "02:00:00:00:00:11";

/// Translated ports are of the dynamic range.
#[track_caller]
fn assert_translated(header: &Ip, source: &str, destination: &str) {
    assert_eq!((header.source.as_str(), header.destination.as_str()), (source, destination));
    assert!(header.ports.0 >= 1024, "{header:?}");
}

#[test]
fn a_carrier_grade_nat_shares_addresses() {
    each("cgn.click", |nat| {
        let open = |host: &'static str| {
            frame(ethernet().destination(MAC0).ipv4(host, "8.8.8.8").udp(5000, 53).payload(b"?"))
        };
        // Several subscribers with the same ports.
        let hosts = ["100.64.1.1", "100.64.1.2", "100.64.1.3", "100.64.1.4", "100.64.1.5", "100.64.1.6"];
        let mut seen: Vec<(String, u16)> = Vec::new();
        for host in hosts {
            let [_, out] = nat.routed(0, [open(host)]);
            let sent = ip(only(&out));
            assert!(["203.0.113.10", "203.0.113.11"].contains(&sent.source.as_str()), "{sent:?}");
            assert_eq!((sent.ports.1, sent.ttl, &out[0][..6]), (53, 63, &neighbour([203, 0, 113, 254])[..]));
            assert!(!seen.contains(&(sent.source.clone(), sent.ports.0)), "two flows look the same");
            seen.push((sent.source, sent.ports.0));
        }
        assert!(seen.iter().any(|one| one.0 != seen[0].0), "both addresses are used: {seen:?}");
        // Answers find their subscriber, who has the same translation again.
        for (host, (public, port)) in hosts.into_iter().zip(&seen) {
            let answer =
                ethernet().destination(MAC1).ipv4("8.8.8.8", public.parse::<std::net::Ipv4Addr>().unwrap());
            let [back, _] = nat.routed(1, [frame(answer.udp(53, *port).payload(b"!"))]);
            let got = ip(only(&back));
            assert_eq!((got.destination.as_str(), got.ports, got.ttl), (host, (53, 5000), 63));
            let [_, out] = nat.routed(0, [open(host)]);
            assert_eq!((ip(&out[0]).source, ip(&out[0]).ports.0), (public.clone(), *port));
        }
        // A line for each direction of each flow.
        assert_eq!(nat.read("nat.udp_mappings").lines().count(), 12);
        // Nobody outside opens flows, and no foreign address is translated.
        let before = nat.ended();
        let stranger = frame(ethernet().destination(MAC1).ipv4("8.8.8.8", "203.0.113.10").udp(53, 1023));
        let forged = frame(ethernet().destination(MAC0).ipv4("9.9.9.9", "8.8.8.8").udp(5000, 53));
        assert_eq!(nat.routed(1, [stranger]), [vec![], Vec::<Vec<u8>>::new()]);
        assert_eq!(nat.routed(0, [forged]), [vec![], Vec::<Vec<u8>>::new()]);
        assert_eq!(nat.ended() - before, 2);
    });
}

#[test]
fn a_carrier_grade_nat_translates_tcp_pings_and_errors() {
    each("cgn.click", |nat| {
        let syn = ethernet().destination(MAC0).ipv4("100.64.1.1", "8.8.8.8").tcp(7000, 80).flags(2);
        let [_, out] = nat.routed(0, [frame(syn)]);
        let sent = only(&out).to_vec();
        let header = ip(&sent);
        let public: std::net::Ipv4Addr = header.source.parse().unwrap();
        // A router far away could not deliver it: the error reaches the subscriber and quotes what he sent.
        let error = ethernet().destination(MAC1).ipv4("7.7.7.7", public).icmp_unreachable(1, &sent[14..]);
        let [back, _] = nat.routed(1, [frame(error)]);
        assert_eq!((icmp(only(&back)), ip(&back[0]).destination.as_str()), ((3, 1), "100.64.1.1"));
        assert_eq!((&back[0][54..58], &back[0][62..64]), (&[100, 64, 1, 1][..], &7000_u16.to_be_bytes()[..]));
        // An expired packet is answered by its public address, which is told.
        let ping = ethernet().destination(MAC0).ipv4("100.64.1.2", "8.8.4.4").icmp_echo_request(99, 1);
        let [_, out] = nat.routed(0, [frame(ping)]);
        assert_eq!((icmp(only(&out)), ip(&out[0]).source.as_str()), ((8, 0), "203.0.113.10"));
        let identifier = u16::from_be_bytes([out[0][38], out[0][39]]);
        let pong =
            ethernet().destination(MAC1).ipv4("8.8.4.4", "203.0.113.10").icmp_echo_reply(identifier, 1);
        let [back, _] = nat.routed(1, [frame(pong)]);
        assert_eq!((ip(only(&back)).destination.as_str(), &back[0][38..40]), ("100.64.1.2", &[0, 99][..]));
        // It answers ARP for the shared addresses.
        let [_, back] = nat.send(1, [frame(ethernet().arp_request("203.0.113.254", "203.0.113.11"))]);
        assert_eq!(only(&back)[22..28], [2, 0, 0, 0, 0, 0x11]);
    });
}

#[test]
fn a_nat_opens_flows_from_inside_only() {
    each("nat.click", |nat| {
        let inside = || ethernet().destination(MAC0).ipv4("192.168.0.7", "8.8.8.8");
        let [_, out] = nat.routed(0, [frame(inside().tcp(5000, 443).flags(2).sequence(77))]);
        let tcp = ip(only(&out));
        assert_translated(&tcp, "203.0.113.1", "8.8.8.8");
        let outside = || ethernet().destination(MAC1).ipv4("8.8.8.8", "203.0.113.1");
        let [back, _] = nat.routed(1, [frame(outside().tcp(443, tcp.ports.0).flags(0x12).ack(78))]);
        let got = ip(only(&back));
        assert_eq!((got.destination.as_str(), got.ports), ("192.168.0.7", (443, 5000)));
        let [_, out] = nat.routed(0, [frame(inside().udp(5000, 53).payload(b"?"))]);
        let udp = ip(only(&out));
        assert_translated(&udp, "203.0.113.1", "8.8.8.8");
        let [back, _] = nat.routed(1, [frame(outside().udp(53, udp.ports.0).payload(b"!"))]);
        assert_eq!(ip(only(&back)).ports, (53, 5000));
        let [_, out] = nat.routed(0, [frame(inside().icmp_echo_request(9, 1))]);
        let [back, _] = nat
            .routed(1, [frame(outside().icmp_echo_reply(u16::from_be_bytes([out[0][38], out[0][39]]), 1))]);
        assert_eq!((icmp(only(&back)), &back[0][38..40]), ((0, 0), &[0, 9][..]));
        assert_eq!(["tcp.mappings", "udp.mappings"].map(|name| nat.read(name).lines().count()), [2, 2]);
        let before = nat.ended();
        let scan = [
            frame(outside().tcp(1, 22).flags(2)),
            frame(outside().udp(1, 22)),
            frame(outside().icmp_echo_request(1, 1)),
        ];
        assert_eq!(nat.routed(1, scan).map(|frames| frames.len()), [0, 0]);
        assert_eq!(nat.ended() - before, 3);
    });
}

#[test]
fn a_nat_leads_the_outside_to_the_server() {
    each("nat.click", |nat| {
        let syn = ethernet().destination(MAC1).ipv4("9.9.9.9", "203.0.113.1").tcp(3000, 80).flags(2);
        let [inside, _] = nat.routed(1, [frame(syn)]);
        let header = ip(only(&inside));
        assert_eq!(
            (header.source.as_str(), header.destination.as_str(), header.ports),
            ("9.9.9.9", "192.168.0.80", (3000, 80))
        );
        assert_eq!(inside[0][..6], neighbour([192, 168, 0, 80]));
        let answer = ethernet().destination(MAC0).ipv4("192.168.0.80", "9.9.9.9").tcp(80, 3000).flags(0x12);
        let [_, outside] = nat.routed(0, [frame(answer)]);
        let header = ip(only(&outside));
        assert_eq!(
            (header.source.as_str(), header.destination.as_str(), header.ports),
            ("203.0.113.1", "9.9.9.9", (80, 3000))
        );
        // An error about the answer goes to the server.
        let error = ethernet()
            .destination(MAC1)
            .ipv4("7.7.7.7", "203.0.113.1")
            .icmp_unreachable(1, &outside[0][14..]);
        let [inside, _] = nat.routed(1, [frame(error)]);
        assert_eq!((icmp(only(&inside)), ip(&inside[0]).destination.as_str()), ((3, 1), "192.168.0.80"));
        assert_eq!(ip_at(&inside[0], 42).source, "192.168.0.80");
        // A packet that has no hop left is told of by its sender's gateway.
        let old = ethernet().destination(MAC0).ipv4("192.168.0.7", "8.8.8.8").ttl(1).udp(1, 2);
        let [back, _] = nat.routed(0, [frame(old)]);
        assert_eq!((icmp(only(&back)), ip(&back[0]).source.as_str()), ((11, 0), "192.168.0.1"));
    });
}
