//! The proxy between IPv6 and IPv4.

use netbricks_testkit::build::ethernet;
use netbricks_testkit::checksums;

use crate::harness::{Middlebox, each, frame, icmp, ip, neighbour, only, u16_at};

const MAC0: &str = "02:00:00:00:00:10";
const MAC1: &str = "02:00:00:00:00:11";
const HOST: &str = "2001:db8::5";

/// Tells the proxy the host's Ethernet address when it asks.
fn answered(proxy: &mut Middlebox, [asked, rest]: [Vec<Vec<u8>>; 2]) -> [Vec<Vec<u8>>; 2] {
    let question = only(&asked);
    assert_eq!(
        (u16_at(question, 12), question[54]),
        (0x86DD, 135),
        "it asks for its neighbour: {question:02x?}"
    );
    let target: [u8; 16] = question[62..78].try_into().expect("an address");
    let own = [2, 0xAA, 0, 0, 0, 5];
    let body = [&target[..], &[2, 1], &own].concat();
    let link: std::net::Ipv6Addr = "fe80::10".parse().expect("an address");
    let advertisement = ethernet()
        .source("02:aa:00:00:00:05")
        .destination(MAC0)
        .ipv6(std::net::Ipv6Addr::from(target), link)
        .hop_limit(255)
        .icmpv6(136, 0, [0x60, 0, 0, 0])
        .payload(&body);
    let [back, more] = proxy.send(0, [frame(advertisement)]);
    [back, [rest, more].concat()]
}

#[test]
fn a_proxy_takes_ipv6_hosts_to_ipv4_hosts() {
    each("ipv6-proxy.click", |proxy| {
        let host = || ethernet().destination(MAC0).ipv6(HOST, "::8.8.8.8").hop_limit(64);
        let [_, out] = proxy.routed(0, [frame(host().udp(5000, 53).payload(b"question"))]);
        let sent = only(&out).to_vec();
        let header = ip(&sent);
        assert_eq!((header.source.as_str(), header.destination.as_str()), ("203.0.113.1", "8.8.8.8"));
        assert_eq!((header.protocol, header.ports.1, &sent[42..]), (17, 53, &b"question"[..]));
        assert!((6000..=6999).contains(&header.ports.0), "{header:?}");
        assert_eq!(sent[..6], neighbour([203, 0, 113, 254]));
        let answer = ethernet().destination(MAC1).ipv4("8.8.8.8", "203.0.113.1").udp(53, header.ports.0);
        let out = proxy.routed(1, [frame(answer.payload(b"answer"))]);
        let [back, _] = answered(proxy, out);
        let back = only(&back);
        assert_eq!(checksums::wrong(back), Vec::<String>::new());
        assert_eq!((&back[..6], u16_at(back, 12)), (&[2, 0xAA, 0, 0, 0, 5][..], 0x86DD));
        let expected = frame(ethernet().ipv6("::8.8.8.8", HOST).udp(53, 5000).payload(b"answer"));
        assert_eq!((&back[22..54], u16_at(back, 54), u16_at(back, 56)), (&expected[22..54], 53, 5000));
        assert!(back.ends_with(b"answer"));
        // TCP gets a port of its own; a stranger's packet and other IPv6 destinations end.
        let [_, out] = proxy.routed(0, [frame(host().tcp(5000, 80).flags(2))]);
        assert_eq!((ip(only(&out)).protocol, ip(&out[0]).ports.1), (6, 80));
        let before = proxy.ended();
        let stranger = ethernet().destination(MAC1).ipv4("9.9.9.9", "203.0.113.1").udp(1, 6500);
        assert_eq!(proxy.routed(1, [frame(stranger)]).map(|frames| frames.len()), [0, 0]);
        let other = ethernet().destination(MAC0).ipv6(HOST, "2001:db8::99").udp(1, 2);
        assert_eq!(proxy.routed(0, [frame(other)]).map(|frames| frames.len()), [0, 0]);
        assert!(proxy.ended() - before >= 2);
        assert_eq!(proxy.read("up.count"), "2");
    });
}

#[test]
fn a_proxy_translates_pings() {
    each("ipv6-proxy.click", |proxy| {
        let ping = ethernet().destination(MAC0).ipv6(HOST, "::8.8.8.8").icmpv6_echo_request(7, 1);
        let [_, out] = proxy.routed(0, [frame(ping)]);
        assert_eq!(icmp(only(&out)), (8, 0));
        let identifier = u16_at(&out[0], 38);
        let pong = ethernet().destination(MAC1).ipv4("8.8.8.8", "203.0.113.1").icmp_echo_reply(identifier, 1);
        let out = proxy.routed(1, [frame(pong)]);
        let [back, _] = answered(proxy, out);
        assert_eq!(checksums::wrong(only(&back)), Vec::<String>::new());
        assert_eq!((back[0][54], u16_at(&back[0], 58)), (129, 7));
    });
}
