//! The IP router, the tunnel and the multicast router.

use std::time::Duration;

use netbricks_testkit::build::ethernet;

use crate::harness::{Middlebox, each, frame, icmp, ip, ip_at, neighbour, only, u16_at};

const MAC0: &str = "02:00:00:00:00:10";
const MAC1: &str = "02:00:00:00:00:11";

/// A packet of a host on link 0.
fn packet(from: &'static str, to: &'static str, ttl: u8) -> Vec<u8> {
    frame(ethernet().destination(MAC0).ipv4(from, to).ttl(ttl).udp(1000, 2000).payload(b"data"))
}

#[test]
fn a_router_forwards_between_its_links() {
    each("ip-router.click", |router| {
        let [back, out] = router.routed(0, [packet("10.0.0.5", "192.168.1.7", 64)]);
        let sent = only(&out);
        let header = ip(sent);
        assert_eq!((header.source.as_str(), header.destination.as_str()), ("10.0.0.5", "192.168.1.7"));
        assert_eq!((header.ttl, back.len(), &sent[42..]), (63, 0, &b"data"[..]));
        assert_eq!(
            (&sent[..6], &sent[6..12]),
            (&neighbour([192, 168, 1, 7])[..], &[2, 0, 0, 0, 0, 0x11][..])
        );
        // Others are reached by the next router.
        let [_, out] = router.routed(0, [packet("10.0.0.5", "8.8.8.8", 64)]);
        assert_eq!(only(&out)[..6], neighbour([192, 168, 1, 254]));
        let answer = frame(ethernet().destination(MAC1).ipv4("8.8.8.8", "10.0.0.5").udp(2000, 1000));
        let [out, _] = router.routed(1, [answer]);
        assert_eq!((&only(&out)[..6], ip(only(&out)).ttl), (&neighbour([10, 0, 0, 5])[..], 63));
        // A route that is added while it runs.
        router.call("routes.add", "172.16.0.0/12 10.0.0.9 1");
        let packet = frame(ethernet().destination(MAC1).ipv4("8.8.8.8", "172.16.0.1").udp(1, 2));
        assert_eq!(only(&router.routed(1, [packet])[0])[..6], neighbour([10, 0, 0, 9]));
    });
}

#[test]
fn a_router_tells_senders_of_errors() {
    each("ip-router.click", |router| {
        let expired = packet("10.0.0.5", "192.168.1.7", 1);
        let [back, out] = router.routed(0, [expired.clone()]);
        let error = only(&back);
        assert_eq!((icmp(error), out.len()), ((11, 0), 0));
        let header = ip(error);
        assert_eq!((header.source.as_str(), header.destination.as_str()), ("10.0.0.1", "10.0.0.5"));
        assert_eq!(error[42..46], expired[14..18], "it quotes the packet");
        // A port of the router itself.
        let [back, _] = router.routed(0, [packet("10.0.0.5", "10.0.0.1", 64)]);
        assert_eq!(icmp(only(&back)), (3, 3));
        // A packet of link 1 whose next hop is on link 1 goes there, and its sender is told.
        let astray = frame(ethernet().destination(MAC1).ipv4("192.168.1.9", "8.8.8.8").udp(1, 2));
        let [_, out] = router.routed(1, [astray]);
        assert_eq!(out.len(), 2);
        let (redirect, passed): (Vec<_>, Vec<_>) = out.into_iter().partition(|frame| ip(frame).protocol == 1);
        assert_eq!((icmp(only(&redirect)), &redirect[0][38..42]), ((5, 1), &[192, 168, 1, 254][..]));
        assert_eq!(only(&passed)[..6], neighbour([192, 168, 1, 254]));
        // A record route option that points into itself.
        let option = ethernet().destination(MAC0).ipv4("10.0.0.5", "8.8.8.8").option(7, &[3, 0, 0, 0, 0]);
        let [back, _] = router.routed(0, [frame(option.udp(1, 2))]);
        assert_eq!(icmp(only(&back)), (12, 0));
    });
}

#[test]
fn a_router_fragments_what_is_too_large() {
    each("ip-router.click", |router| {
        let large = |forbidden: bool| {
            let header = ethernet().destination(MAC0).ipv4("10.0.0.5", "8.8.8.8").identification(7);
            let header = if forbidden { header.dont_fragment() } else { header };
            frame(header.udp(1, 2).payload(&[b'x'; 1600]))
        };
        let [back, out] = router.routed(0, [large(false)]);
        assert_eq!((back.len(), out.len()), (0, 2));
        let pieces: Vec<(u16, u16)> = out.iter().map(|piece| (ip(piece).length, u16_at(piece, 20))).collect();
        assert_eq!(pieces, [(1500, 0x2000), (148, 185)]);
        let [back, out] = router.routed(0, [large(true)]);
        assert_eq!((icmp(only(&back)), u16_at(&back[0], 40), out.len()), ((3, 4), 1500, 0));
    });
}

#[test]
fn a_router_answers_for_itself_and_takes_nothing_else() {
    each("ip-router.click", |router| {
        let [back, _] = router.send(0, [frame(ethernet().arp_request("10.0.0.5", "10.0.0.1"))]);
        assert_eq!((u16_at(only(&back), 20), &back[0][22..28]), (2, &[2, 0, 0, 0, 0, 0x10][..]));
        let ping = ethernet().destination(MAC0).ipv4("10.0.0.5", "10.0.0.1").icmp_echo_request(1, 2);
        let [back, _] = router.routed(0, [frame(ping)]);
        assert_eq!((icmp(only(&back)), ip(&back[0]).destination.as_str()), ((0, 0), "10.0.0.5"));
        let before = router.ended();
        let mut broken = packet("10.0.0.5", "8.8.8.8", 64);
        broken[24] ^= 1;
        let other = frame(ethernet().destination("02:00:00:00:00:77").ipv4("10.0.0.5", "8.8.8.8").udp(1, 2));
        let [back, out] = router.routed(0, [broken, other, vec![0xFF; 20], vec![0; 14]]);
        assert_eq!((back.len(), out.len(), router.ended() - before), (0, 0, 4));
    });
}

/// Two ends of one tunnel.
fn far(file: &str) -> Middlebox {
    let parameters = [
        "SITE=10.2.0.1/16",
        "LOCAL=198.51.100.1/24",
        "REMOTE=192.0.2.1",
        "NEXT_HOP=198.51.100.254",
        "FAR=10.1.0.0/16",
    ];
    Middlebox::load(file, &parameters, 32)
}

#[test]
fn a_tunnel_joins_two_sites() {
    each("tunnel.click", |near| {
        let mut far = far("tunnel.click");
        let packet = |ttl: u8, size: usize, whole: bool| {
            let header = ethernet().destination(MAC0).ipv4("10.1.0.5", "10.2.0.6").ttl(ttl);
            let header = if whole { header.dont_fragment() } else { header };
            frame(header.udp(7, 8).payload(&vec![b'p'; size]))
        };
        let [_, out] = near.routed(0, [packet(64, 100, false)]);
        let wrapped = only(&out).to_vec();
        let outer = ip(&wrapped);
        assert_eq!(
            (outer.source.as_str(), outer.destination.as_str(), outer.protocol),
            ("192.0.2.1", "198.51.100.1", 47)
        );
        assert_eq!(wrapped[34..42], [0x30, 0, 8, 0, 0, 0, 0, 7], "key and number are there");
        let carry = |wrapped: &[u8]| [&[2, 0, 0, 0, 0, 0x11], &wrapped[6..]].concat();
        let [inside, _] = far.routed(1, [carry(&wrapped)]);
        let header = ip(only(&inside));
        assert_eq!(
            (header.source.as_str(), header.destination.as_str(), header.ttl),
            ("10.1.0.5", "10.2.0.6", 63)
        );
        assert_eq!((header.ports, &inside[0][42..]), ((7, 8), &[b'p'; 100][..]));
        // The same packet again is out of order, another key is not ours, and neither is another sender.
        let mut key = wrapped.clone();
        key[41] = 8;
        let forged = frame(
            ethernet().ipv4("192.0.2.66", "198.51.100.1").gre().key(7).ipv4("10.1.0.5", "10.2.0.6").udp(7, 8),
        );
        let [inside, _] = far.routed(1, [carry(&wrapped), carry(&key), carry(&forged)]);
        assert_eq!(
            (inside.len(), far.read("gre.drops"), far.read("unwrapped.count")),
            (0, "2".into(), "1".into())
        );
        // What does not fit is cut before it is wrapped, or refused with the size that fits.
        let [_, out] = near.routed(0, [packet(64, 1460, false)]);
        assert_eq!(out.iter().map(|frame| ip(frame).length).collect::<Vec<_>>(), [1500, 72]);
        assert_eq!(ip_at(&out[1], 46).length, 40);
        let [back, out] = near.routed(0, [packet(64, 1460, true)]);
        assert_eq!((icmp(only(&back)), u16_at(&back[0], 40), out.len()), ((3, 4), 1468, 0));
        let [back, _] = near.routed(0, [packet(1, 10, false)]);
        assert_eq!(icmp(only(&back)), (11, 0));
        far.finish();
    });
}

#[test]
fn an_ipsec_tunnel_encrypts_signs_and_refuses_what_came_before() {
    each("ipsec-tunnel.click", |near| {
        let mut far = far("ipsec-tunnel.click");
        let packet = |size: usize| {
            let header = ethernet().destination(MAC0).ipv4("10.1.0.5", "10.2.0.6").ttl(64);
            frame(header.udp(7, 8).payload(&vec![b'p'; size]))
        };
        let [_, out] = near.routed(0, [packet(100)]);
        let wrapped = only(&out).to_vec();
        let outer = ip(&wrapped);
        assert_eq!(
            (outer.source.as_str(), outer.destination.as_str(), outer.protocol),
            ("192.0.2.1", "198.51.100.1", 50)
        );
        assert_eq!(wrapped[34..42], [0, 0, 0x10, 0, 0, 0, 0, 1], "index and number are there");
        assert!(!wrapped.windows(4).any(|bytes| bytes == b"pppp"), "nothing is readable");
        let carry = |wrapped: &[u8]| [&[2, 0, 0, 0, 0, 0x11], &wrapped[6..]].concat();
        let [inside, _] = far.routed(1, [carry(&wrapped)]);
        let header = ip(only(&inside));
        assert_eq!(
            (header.source.as_str(), header.destination.as_str(), header.ttl),
            ("10.1.0.5", "10.2.0.6", 63)
        );
        assert_eq!((header.ports, &inside[0][42..]), ((7, 8), &[b'p'; 100][..]));
        // The same packet again, one that was changed, and one of a sender without the keys.
        let mut changed = near.routed(0, [packet(50)])[1][0].clone();
        *changed.last_mut().expect("a frame") ^= 1;
        let other = frame(ethernet().ipv4("10.1.0.5", "10.2.0.6").udp(7, 8));
        let [inside, _] = far.routed(1, [carry(&wrapped), carry(&changed), carry(&other)]);
        assert_eq!(
            (inside.len(), far.read("signed.drops"), far.read("unwrapped.count")),
            (0, "1".into(), "1".into())
        );
        // The largest packet of the tunnel fits, and what is larger is cut.
        let [_, out] = near.routed(0, [packet(1_438 - 28), packet(1_439 - 28)]);
        assert!(out.iter().all(|frame| frame.len() <= 1_514), "all fit the network between");
        assert_eq!((out.len(), near.read("wrapped.count")), (3, "5".into()));
        far.finish();
    });
}

#[test]
fn multicast_goes_where_hosts_asked_for_it() {
    each("multicast.click", |router| {
        let group =
            || frame(ethernet().ipv4("10.0.0.1", "239.129.1.2").ttl(9).udp(5000, 5000).payload(b"film"));
        let message = |kind: u8, group: [u8; 4]| {
            let mut message = [&[kind, 0, 0, 0][..], &group].concat();
            let sum = netbricks_core::packet::checksum::internet(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
            frame(
                ethernet()
                    .ipv4("192.168.1.5", "239.129.1.2")
                    .ttl(1)
                    .router_alert()
                    .protocol(2)
                    .payload(&message),
            )
        };
        // It asks all hosts first.
        let [_, out] = router.advance(Duration::from_millis(1));
        let [_, more] = router.send(0, [group()]);
        let query = only(&if out.is_empty() { more } else { out }).to_vec();
        assert_eq!(
            (&query[..6], ip(&query).destination.as_str(), query[38]),
            (&[1, 0, 0x5E, 0, 0, 1][..], "224.0.0.1", 0x11)
        );
        assert_eq!(router.read("igmp.groups"), "", "no host has asked, so the film ended");
        router.send(1, [message(0x16, [239, 129, 1, 2])]);
        assert_eq!(router.read("igmp.groups"), "239.129.1.2\t260\n");
        let other = frame(ethernet().ipv4("10.0.0.1", "239.1.1.1").udp(1, 1));
        let [_, out] = router.send(0, [group(), other]);
        let film = only(&out);
        assert_eq!((&film[..6], ip(film).ttl, &film[42..]), (&[1, 0, 0x5E, 1, 1, 2][..], 8, &b"film"[..]));
        // A host leaves, nobody else answers the question, and the group ends.
        let [_, out] = router.send(1, [message(0x17, [239, 129, 1, 2])]);
        let [_, more] = router.advance(Duration::from_secs(3));
        let asked: Vec<_> = out.iter().chain(&more).map(|frame| ip(frame).destination).collect();
        assert_eq!(asked, ["239.129.1.2", "239.129.1.2"]);
        let [_, out] = router.send(0, [group()]);
        assert_eq!((out.len(), router.read("passed.count")), (0, "1".into()));
    });
}
