//! Packets between interfaces: next hops, resolution, errors, several paths.

use std::net::IpAddr;

use netbricks_core::DropReason;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{Arp, Icmpv6, Ip, IpRef};

use super::rig::{MS, Out, Rig, Two};

const SETTINGS: &str = "interfaces = [
    \"lan 192.0.2.1/24 2001:db8:1::1/64 mac 02:00:00:00:00:01\",
    \"wan 198.51.100.1/24 2001:db8:2::1/64 mac 02:00:00:00:00:02 mtu 1400\",
]
routes = [\"default via 198.51.100.254\", \"default6 via 2001:db8:2::fe\", \"10.9.0.0/16 blackhole\", \"10.8.0.0/16 prohibit\"]
";
const LAN: usize = 0;
const WAN: usize = 1;
const HOST_MAC: &str = "02:00:00:00:00:aa";
const GATEWAY_MAC: &str = "02:00:00:00:00:fe";

/// A frame from a host on the LAN to the router.
fn from_lan() -> netbricks_core::packet::build::Builder<'static, netbricks_core::packet::Ethernet> {
    ethernet().source(HOST_MAC).destination("02:00:00:00:00:01")
}

fn udp(to: &str) -> Vec<u8> {
    from_lan().ipv4("192.0.2.7", to).ttl(9).udp(1000, 53).payload(b"hello").build().unwrap()
}
fn udp6(to: &str) -> Vec<u8> {
    from_lan().ipv6("2001:db8:1::7", to).hop_limit(9).udp(1000, 53).payload(b"hello").build().unwrap()
}

/// The gateway's answer to an ARP request.
fn arp_answer(request: &[u8], mac: &str) -> Vec<u8> {
    let arp = *Arp::view(&request[14..42], ());
    let mac: netbricks_core::packet::MacAddress = mac.parse().unwrap();
    let reply = arp.reply(mac);
    ethernet()
        .source(mac)
        .destination(arp.sender_mac())
        .ethertype(0x0806)
        .payload(&reply.octets())
        .build()
        .unwrap()
}

fn advertisement(target: &str, mac: &str, to_mac: &str, to: &str) -> Vec<u8> {
    ethernet()
        .source(mac)
        .destination(to_mac)
        .ipv6(target, to)
        .hop_limit(255)
        .neighbor_advertisement(target, mac)
        .build()
        .unwrap()
}

/// An ARP request to all of a link.
fn arp_request(mac: &str, sender: &str, target: &str) -> Vec<u8> {
    let request = Arp::request(mac.parse().unwrap(), sender.parse().unwrap(), target.parse().unwrap());
    let all = "ff:ff:ff:ff:ff:ff";
    ethernet().source(mac).destination(all).ethertype(0x0806).payload(&request.octets()).build().unwrap()
}

fn ports(out: &Out) -> Vec<usize> {
    out.iter().map(|(port, _)| *port).collect()
}

fn ttl(frame: &[u8]) -> u8 {
    Ip::in_frame(frame).unwrap().0.ttl()
}

/// A router whose gateway is known.
fn resolved() -> Rig {
    let mut rig = Rig::new(SETTINGS);
    let asked = rig.send(LAN, [udp("10.1.2.3"), udp6("2001:db8:9::1")]);
    assert_eq!(ports(&asked), [WAN, WAN]);
    rig.send(WAN, [arp_answer(&asked[0].1, GATEWAY_MAC)]);
    let source = Ip::in_frame(&asked[1].1).unwrap().0.source().to_string();
    rig.send(WAN, [advertisement("2001:db8:2::fe", GATEWAY_MAC, "02:00:00:00:00:02", &source)]);
    assert_eq!(rig.held(), 0);
    rig
}

#[test]
fn a_packet_waits_for_its_next_hop_and_goes_with_one_hop_less() {
    let mut rig = Rig::new(SETTINGS);
    let asked = rig.send(LAN, [udp("10.1.2.3"), udp("10.1.2.4")]);
    assert_eq!(ports(&asked), [WAN]);
    let arp = Arp::view(&asked[0].1[14..42], ());
    assert_eq!(
        (arp.sender_ip().to_string(), arp.target_ip().to_string()),
        ("198.51.100.1".into(), "198.51.100.254".into())
    );
    assert_eq!(asked[0].1[..6], [0xff; 6]);
    assert_eq!(rig.held(), 2);
    let sent = rig.send(WAN, [arp_answer(&asked[0].1, GATEWAY_MAC)]);
    assert_eq!(ports(&sent), [WAN, WAN]);
    let before = udp("10.1.2.3");
    let frame = &sent[0].1;
    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 2]);
    assert_eq!(ttl(frame), 8);
    let IpRef::V4(header) = Ip::in_frame(frame).unwrap().0 else { panic!() };
    assert!(header.checksum_is_valid());
    assert_eq!(frame[26..], before[26..], "addresses and payload are unchanged");
    // From now on it goes at once.
    let sent = rig.send(LAN, [udp("10.1.2.5")]);
    assert_eq!((ports(&sent), ttl(&sent[0].1)), (vec![WAN], 8));
    assert!(rig.call("neighbours", "").unwrap().contains("wan 198.51.100.254 02:00:00:00:00:fe answered"));
}

#[test]
fn neighbour_discovery_resolves_the_next_hops_of_ipv6() {
    let mut rig = Rig::new(SETTINGS);
    let asked = rig.send(LAN, [udp6("2001:db8:9::1")]);
    let (ip, payload) = Ip::in_frame(&asked[0].1).unwrap();
    assert_eq!(ip.destination().to_string(), "ff02::1:ff00:fe");
    assert_eq!((ip.ttl(), payload[0]), (255, 135));
    assert_eq!(asked[0].1[..6], [0x33, 0x33, 0xff, 0, 0, 0xfe]);
    let source = ip.source().to_string();
    assert!(source.starts_with("fe80::"));
    let sent = rig.send(WAN, [advertisement("2001:db8:2::fe", GATEWAY_MAC, "02:00:00:00:00:02", &source)]);
    assert_eq!((ports(&sent), ttl(&sent[0].1)), (vec![WAN], 8));
    assert_eq!(rig.held(), 0);
}

#[test]
fn a_next_hop_that_is_silent_costs_its_packets_and_their_senders_are_told() {
    let mut rig = Rig::new(SETTINGS);
    rig.send(LAN, [udp("10.1.2.3")]);
    let out = rig.wait(2_900);
    // Two more questions, a second apart.
    assert_eq!(ports(&out), [WAN, WAN]);
    assert_eq!(rig.held(), 1);
    let out = rig.wait(300);
    assert_eq!(ports(&out), [LAN]);
    let (ip, payload) = Ip::in_frame(&out[0].1).unwrap();
    assert_eq!(
        (ip.source().to_string(), ip.destination().to_string()),
        ("192.0.2.1".into(), "192.0.2.7".into())
    );
    assert_eq!((payload[0], payload[1]), (3, 1), "destination unreachable, host");
    // It quotes the packet as it came.
    assert_eq!(payload[8..28], udp("10.1.2.3")[14..34]);
    assert_eq!((rig.dropped(DropReason::Unresolved), rig.held()), (1, 0));
}

#[test]
fn waiting_packets_are_bounded() {
    let mut rig = Rig::new(&format!("{SETTINGS}held_each = 3\nheld = 5\nquestions = 2\n"));
    let asked = rig.send(LAN, (0..5).map(|i| udp(&format!("10.0.0.{i}"))));
    assert_eq!((asked.len(), rig.held()), (1, 3));
    assert_eq!(rig.dropped(DropReason::QueueFull), 2);
    // Hosts on the link have questions of their own, at most two.
    let asked = rig.send(LAN, (10..16).map(|i| udp(&format!("198.51.100.{i}"))));
    assert_eq!((asked.len(), rig.held()), (2, 5));
    assert_eq!((rig.dropped(DropReason::QueueFull), rig.dropped(DropReason::Unresolved)), (2, 4));
    // The newest wait.
    let gateway = rig.send(
        WAN,
        [arp_answer(
            &{
                let mut rig = Rig::new(SETTINGS);
                rig.send(LAN, [udp("10.1.1.1")]).remove(0).1
            },
            GATEWAY_MAC,
        )],
    );
    let last: Vec<u8> = gateway.iter().map(|(_, frame)| frame[33]).collect();
    assert_eq!(last, [2, 3, 4]);
}

#[test]
fn the_router_answers_for_its_own_addresses_only() {
    let mut rig = Rig::new(SETTINGS);
    let request = |target: &str, sender: &str| arp_request(HOST_MAC, sender, target);
    let out = rig.send(
        LAN,
        [
            request("192.0.2.1", "192.0.2.7"),
            request("192.0.2.9", "192.0.2.7"),
            request("198.51.100.1", "192.0.2.7"),
        ],
    );
    assert_eq!(ports(&out), [LAN]);
    let reply = Arp::view(&out[0].1[14..42], ());
    assert_eq!((reply.operation(), reply.sender_mac().to_string()), (2, "02:00:00:00:00:01".into()));
    // The one who asked is known now, and is not asked for.
    let out = rig.send(
        WAN,
        [ethernet()
            .source(GATEWAY_MAC)
            .destination("02:00:00:00:00:02")
            .ipv4("10.0.0.1", "192.0.2.7")
            .udp(1, 2)],
    );
    assert_eq!((ports(&out), &out[0].1[..6]), (vec![LAN], &[2, 0, 0, 0, 0, 0xaa][..]));
    let solicit = |target: &str| {
        ethernet()
            .source(HOST_MAC)
            .destination("33:33:ff:00:00:01")
            .ipv6("2001:db8:1::7", "ff02::1:ff00:1")
            .hop_limit(255)
            .neighbor_solicitation(target, HOST_MAC)
    };
    let out = rig.send(LAN, [solicit("2001:db8:1::1"), solicit("2001:db8:1::9")]);
    assert_eq!(ports(&out), [LAN]);
    let (ip, payload) = Ip::in_frame(&out[0].1).unwrap();
    assert_eq!((ip.destination().to_string(), payload[0], payload[4]), ("2001:db8:1::7".into(), 136, 0xe0));
    assert!(Icmpv6::find(payload, 0).is_ok());
}

#[test]
fn nothing_is_learnt_that_was_not_asked_for() {
    let mut rig = Rig::new(SETTINGS);
    let announced = arp_answer(&arp_request(GATEWAY_MAC, "198.51.100.254", "198.51.100.254"), GATEWAY_MAC);
    let unasked = advertisement("2001:db8:2::fe", GATEWAY_MAC, "33:33:00:00:00:01", "2001:db8:2::1");
    let stranger = arp_request(HOST_MAC, "10.0.0.1", "198.51.100.1");
    let out = rig.send(WAN, [announced, unasked, stranger]);
    // The stranger gets an answer, and no entry.
    assert_eq!(out.len(), 1);
    assert_eq!(rig.call("neighbours", "").unwrap(), "");
}

#[test]
fn old_entries_are_asked_for_while_packets_go_on() {
    let mut rig = resolved();
    rig.wait(31_000);
    // The entry is old: packets go on, and after five seconds the neighbour alone is asked.
    assert_eq!(ports(&rig.send(LAN, [udp("10.1.2.3")])), [WAN]);
    let out = rig.wait(5_200);
    assert_eq!(ports(&out), [WAN]);
    let (mac, arp) = (out[0].1[..6].to_vec(), Arp::view(&out[0].1[14..42], ()));
    assert_eq!((mac, arp.target_ip().to_string()), (vec![2, 0, 0, 0, 0, 0xfe], "198.51.100.254".into()));
    let answer = arp_answer(&out[0].1, GATEWAY_MAC);
    assert!(rig.send(WAN, [answer]).is_empty());
    // It answered: it is fresh again.
    assert!(rig.wait(20_000).is_empty());
    assert_eq!(ports(&rig.send(LAN, [udp("10.1.2.3")])), [WAN]);
    assert!(rig.wait(6_000).is_empty());
    // When it no longer answers, packets wait again and then are lost.
    rig.wait(31_000);
    rig.send(LAN, [udp("10.1.2.3")]);
    let out = rig.wait(8_300);
    assert_eq!(ports(&out), [WAN, WAN, WAN], "three questions");
    let out = rig.send(LAN, [udp("10.1.2.3")]);
    assert_eq!(out[0].1[..6], [0xff; 6], "all are asked again");
    assert_eq!(rig.held(), 1);
}

#[test]
fn errors_say_what_is_wrong() {
    let mut rig = resolved();
    let answer = |rig: &mut Rig, frame: Vec<u8>| {
        let out = rig.send(LAN, [frame]);
        assert_eq!(ports(&out), [LAN]);
        let (ip, payload) = Ip::in_frame(&out[0].1).unwrap();
        let rest = u32::from_be_bytes(payload[4..8].try_into().unwrap());
        (ip.source().to_string(), payload[0], payload[1], rest)
    };
    let expired = from_lan().ipv4("192.0.2.7", "10.0.0.1").ttl(1).udp(1, 2).build().unwrap();
    assert_eq!(answer(&mut rig, expired), ("192.0.2.1".into(), 11, 0, 0));
    let expired = from_lan().ipv6("2001:db8:1::7", "2001:db8:9::1").hop_limit(1).udp(1, 2).build().unwrap();
    assert_eq!(answer(&mut rig, expired), ("2001:db8:1::1".into(), 3, 0, 0));
    let big = vec![7; 1_400];
    let frame =
        from_lan().ipv4("192.0.2.7", "10.0.0.1").dont_fragment().udp(1, 2).payload(&big).build().unwrap();
    assert_eq!(answer(&mut rig, frame), ("192.0.2.1".into(), 3, 4, 1_400));
    let frame = from_lan().ipv6("2001:db8:1::7", "2001:db8:9::1").udp(1, 2).payload(&big).build().unwrap();
    assert_eq!(answer(&mut rig, frame), ("2001:db8:1::1".into(), 2, 0, 1_400));
    assert_eq!(answer(&mut rig, udp("10.8.1.1")), ("192.0.2.1".into(), 3, 13, 0));
    assert!(rig.send(LAN, [udp("10.9.1.1")]).is_empty());
    assert_eq!(rig.dropped(DropReason::Denied), 2);
    rig.call("withdraw", "0.0.0.0/0").unwrap();
    assert_eq!(answer(&mut rig, udp("10.1.1.1")), ("192.0.2.1".into(), 3, 0, 0));
    assert_eq!(rig.dropped(DropReason::NoRoute), 1);
    rig.call("add", "10.7.0.0/16 unreachable").unwrap();
    assert_eq!(answer(&mut rig, udp("10.7.1.1")), ("192.0.2.1".into(), 3, 1, 0));
}

#[test]
fn large_packets_are_cut_where_their_sender_allows_it() {
    let mut rig = resolved();
    let payload: Vec<u8> = (0..1_472u32).map(|i| i as u8).collect();
    let frame = from_lan()
        .ipv4("192.0.2.7", "10.0.0.1")
        .identification(77)
        .option(148, &[0, 0])
        .udp(1, 2)
        .payload(&payload[..1_460])
        .build()
        .unwrap();
    let out = rig.send(LAN, [frame.clone()]);
    assert_eq!(ports(&out), [WAN, WAN]);
    let mut data = Vec::new();
    for (_, frame) in &out {
        let (ip, payload) = Ip::in_frame(frame).unwrap();
        let IpRef::V4(header) = ip else { panic!() };
        assert!(header.checksum_is_valid());
        assert!(ip.stated_len() <= 1_400, "{}", ip.stated_len());
        assert_eq!(usize::from(header.fragment_offset()) * 8, data.len());
        assert_eq!((header.identification(), header.ttl()), (77, 63));
        assert_eq!(header.options_bytes(), [148, 4, 0, 0], "the router alert is in all fragments");
        data.extend_from_slice(payload);
    }
    let (_, whole) = Ip::in_frame(&frame).unwrap();
    assert_eq!(data, whole);
    let IpRef::V4(last) = Ip::in_frame(&out[1].1).unwrap().0 else { panic!() };
    assert!(!last.more_fragments());
    // A fragment that ends beyond what a packet may have is not cut again.
    let far = from_lan().ipv4("192.0.2.7", "10.0.0.1").fragment(8_180, false).protocol(17).payload(&payload);
    assert!(rig.send(LAN, [far.build().unwrap()]).is_empty());
    assert_eq!(rig.dropped(DropReason::Malformed), 1);
}

#[test]
fn martians_are_not_forwarded() {
    let mut rig = resolved();
    let v4 = |from: &str, to: &str| from_lan().ipv4(from, to).udp(1, 2).build().unwrap();
    let mut frames = vec![
        v4("127.0.0.1", "10.0.0.1"),
        v4("0.0.0.7", "10.0.0.1"),
        v4("255.255.255.255", "10.0.0.1"),
        v4("224.0.0.1", "10.0.0.1"),
        v4("240.0.0.1", "10.0.0.1"),
        v4("192.0.2.7", "127.0.0.1"),
        v4("192.0.2.7", "0.0.0.0"),
        v4("192.0.2.7", "239.1.1.1"),
        v4("192.0.2.7", "255.255.255.255"),
        v4("192.0.2.7", "198.51.100.255"),
        v4("192.0.2.7", "198.51.100.0"),
        v4("192.0.2.7", "169.254.1.1"),
        v4("169.254.1.1", "10.0.0.1"),
        // The router's own address, from elsewhere.
        v4("198.51.100.1", "10.0.0.1"),
        // A frame to all of the link, and one to another host.
        ethernet().destination("ff:ff:ff:ff:ff:ff").ipv4("192.0.2.7", "10.0.0.1").udp(1, 2).build().unwrap(),
        ethernet().destination("02:00:00:00:00:77").ipv4("192.0.2.7", "10.0.0.1").udp(1, 2).build().unwrap(),
        from_lan().ipv4("192.0.2.7", "10.0.0.1").option(131, &[4, 10, 0, 0, 9]).udp(1, 2).build().unwrap(),
    ];
    let v6 = |from: &str, to: &str| from_lan().ipv6(from, to).udp(1, 2).build().unwrap();
    frames.extend([
        v6("::1", "2001:db8:9::1"),
        v6("ff02::1", "2001:db8:9::1"),
        v6("fe80::7", "2001:db8:9::1"),
        v6("::", "2001:db8:9::1"),
        v6("2001:db8:1::7", "fe80::9"),
        v6("2001:db8:1::7", "ff0e::1"),
        v6("2001:db8:1::7", "::1"),
        v6("::ffff:10.0.0.1", "2001:db8:9::1"),
    ]);
    let count = frames.len() as u64;
    let out = rig.send(LAN, frames);
    assert_eq!(out, Out::new());
    assert_eq!(rig.dropped(DropReason::Martian), count);
    let mut broken = udp("10.0.0.1");
    broken[24] ^= 1;
    assert!(rig.send(LAN, [broken]).is_empty());
    assert_eq!(rig.dropped(DropReason::BadChecksum), 1);
}

#[test]
fn a_next_hop_that_goes_moves_only_its_flows() {
    let routes = "interfaces = [\"lan 192.0.2.1/24 mac 02:00:00:00:00:01\", \"wan 198.51.100.1/24\"]
routes = [\"default via 198.51.100.2 via 198.51.100.3 via 198.51.100.4\"]
neighbours = [\"wan 198.51.100.2 02:00:00:00:01:02\", \"wan 198.51.100.3 02:00:00:00:01:03\"]
";
    let flows = |count: u16| {
        (0..count).map(|port| from_lan().ipv4("192.0.2.7", "10.0.0.1").udp(port, 53).build().unwrap())
    };
    let mut rig = Rig::new(routes);
    // The third is not known yet, and answers the first question.
    let asked: Vec<_> =
        rig.send(LAN, flows(16)).into_iter().filter(|(_, frame)| frame[12..14] == [8, 6]).collect();
    assert_eq!(asked.len(), 1);
    rig.send(WAN, [arp_answer(&asked[0].1, "02:00:00:00:01:04")]);
    let hops = |out: Out| -> Vec<u8> {
        out.into_iter()
            .filter(|(_, frame)| frame[12] == 8 && frame[13] == 0)
            .map(|(_, frame)| frame[5])
            .collect()
    };
    let before = hops(rig.send(LAN, flows(300)));
    assert_eq!(before.len(), 300);
    for hop in [2, 3, 4] {
        let share = before.iter().filter(|mac| **mac == hop).count();
        assert!((60..140).contains(&share), "hop {hop} has {share} of 300 flows");
    }
    // It ceases to answer.
    rig.wait(31_000);
    rig.send(LAN, flows(300));
    rig.wait(8_500);
    let after = hops(rig.send(LAN, flows(300)));
    assert_eq!(after.len(), 300, "no flow waits for the silent one");
    for (was, is) in before.iter().zip(&after) {
        assert!(was == is || *was == 4 && *is != 4, "{was} to {is}");
    }
    assert!(rig.call("neighbours", "").unwrap().contains("198.51.100.4 00:00:00:00:00:00 silent"));
    // It comes back, and so do its flows.
    let out = rig.send(LAN, flows(300));
    assert!(out.iter().all(|(_, frame)| frame[12..14] == [8, 0]), "it is asked for already, once a second");
    rig.now += MS;
    let asked = rig.wait(1_100).into_iter().find(|(_, frame)| frame[12..14] == [8, 6]).unwrap();
    rig.send(WAN, [arp_answer(&asked.1, "02:00:00:00:01:04")]);
    assert_eq!(hops(rig.send(LAN, flows(300))), before);
    // A withdrawn one moves its flows in the same way.
    rig.call("add", "default via 198.51.100.2 via 198.51.100.3").unwrap();
    for (was, is) in before.iter().zip(hops(rig.send(LAN, flows(300)))) {
        assert!(*was == is || *was == 4, "{was} to {is}");
    }
}

#[test]
fn packets_of_the_host_go_out_and_those_for_it_go_in() {
    let mut rig =
        Rig::new(&format!("{SETTINGS}host = \"tap\"\nneighbours = [\"wan 198.51.100.254 {GATEWAY_MAC}\"]\n"));
    const TAP: usize = 2;
    let tap_mac = "02:00:00:00:00:cc";
    // The host asks for anything, and the router answers, except for the host's own addresses.
    let arp = |target: &str, sender: &str| arp_request(tap_mac, sender, target);
    let out = rig.send(
        TAP,
        [arp("198.51.100.254", "198.51.100.1"), arp("192.0.2.1", "0.0.0.0"), arp("192.0.2.1", "192.0.2.1")],
    );
    assert_eq!(ports(&out), [TAP]);
    let router_mac = Arp::view(&out[0].1[14..42], ()).sender_mac().to_string();
    // A BGP packet of the host has a TTL of 1, and keeps it.
    let bgp = ethernet()
        .source(tap_mac)
        .destination(&*router_mac)
        .ipv4("198.51.100.1", "198.51.100.254")
        .ttl(1)
        .tcp(179, 40_000);
    let out = rig.send(TAP, [bgp]);
    assert_eq!((ports(&out), ttl(&out[0].1)), (vec![WAN], 1));
    assert_eq!(out[0].1[..12], [2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 2]);
    // Its answer goes to the host, which is known for this address by now.
    let answer = |to: &str| {
        ethernet()
            .source(GATEWAY_MAC)
            .destination("02:00:00:00:00:02")
            .ipv4("198.51.100.254", to)
            .ttl(1)
            .tcp(40_000, 179)
    };
    let out = rig.send(WAN, [answer("198.51.100.1")]);
    assert_eq!((ports(&out), &out[0].1[..6]), (vec![TAP], &[2, 0, 0, 0, 0, 0xcc][..]));
    // For another address, the router asks the host by ARP.
    let out = rig.send(WAN, [answer("192.0.2.1")]);
    assert_eq!(ports(&out), [TAP]);
    let asked = Arp::view(&out[0].1[14..42], ());
    assert_eq!(
        (asked.target_ip().to_string(), asked.sender_ip().to_string()),
        ("192.0.2.1".into(), "0.0.0.0".into())
    );
    let out = rig.send(TAP, [arp_answer(&out[0].1, tap_mac)]);
    assert_eq!((ports(&out), ttl(&out[0].1)), (vec![TAP], 1));
    assert_eq!(out[0].1[..6], [2, 0, 0, 0, 0, 0xcc]);
    // No packet of the host's own addresses comes from elsewhere.
    let forged = from_lan().ipv4("198.51.100.1", "10.0.0.1").udp(1, 2);
    assert!(rig.send(LAN, [forged]).is_empty());
    assert_eq!(rig.dropped(DropReason::Martian), 1);
}

#[test]
fn pings_to_the_router_are_answered() {
    let mut rig = Rig::new(SETTINGS);
    let frames = [
        from_lan()
            .ipv4("192.0.2.7", "198.51.100.1")
            .ttl(1)
            .icmp_echo_request(7, 9)
            .payload(b"who")
            .build()
            .unwrap(),
        from_lan()
            .ipv6("2001:db8:1::7", "2001:db8:1::1")
            .icmpv6_echo_request(7, 9)
            .payload(b"who")
            .build()
            .unwrap(),
    ];
    let out = rig.send(LAN, frames.clone());
    assert_eq!(ports(&out), [LAN, LAN]);
    for ((_, frame), asked) in out.iter().zip(&frames) {
        assert_eq!(netbricks_testkit::checksums::wrong(frame), Vec::<String>::new());
        let ((ip, payload), (before, _)) = (Ip::in_frame(frame).unwrap(), Ip::in_frame(asked).unwrap());
        assert_eq!((ip.source(), ip.destination(), ip.ttl()), (before.destination(), before.source(), 64));
        assert!(matches!(payload[0], 0 | 129));
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 1]);
    }
    // Other packets for it are told that nothing listens.
    let out = rig.send(LAN, [udp("192.0.2.1")]);
    let (_, payload) = Ip::in_frame(&out[0].1).unwrap();
    assert_eq!((payload[0], payload[1]), (3, 3));
    let mut broken = frames[0].clone();
    *broken.last_mut().unwrap() ^= 1;
    assert!(rig.send(LAN, [broken]).is_empty());
    assert_eq!(rig.dropped(DropReason::BadChecksum), 1);
}

#[test]
fn interfaces_on_one_port_are_told_apart_by_their_tags() {
    let mut rig = Rig::new(
        "interfaces = [\"trunk 192.0.2.1/24 mac 02:00:00:00:00:01\", \"trunk 198.51.100.1/24 vlan 7 mac 02:00:00:00:00:02\"]
neighbours = [\"trunk.7 198.51.100.9 02:00:00:00:00:09\", \"trunk 192.0.2.9 02:00:00:00:00:19\"]
",
    );
    let plain = from_lan().ipv4("192.0.2.9", "198.51.100.9").udp(1, 2).payload(&[1; 40]).build().unwrap();
    let out = rig.send(0, [plain.clone()]);
    assert_eq!((out[0].1.len(), &out[0].1[12..18]), (plain.len() + 4, &[0x81, 0, 0, 7, 8, 0][..]));
    assert_eq!(ttl(&out[0].1), 63);
    let tagged = ethernet()
        .source(HOST_MAC)
        .destination("02:00:00:00:00:02")
        .vlan(7)
        .ipv4("198.51.100.9", "192.0.2.9")
        .udp(1, 2)
        .payload(&[1; 40]);
    let out = rig.send(0, [tagged]);
    assert_eq!((out[0].1.len(), &out[0].1[12..14]), (plain.len(), &[8, 0][..]));
    assert_eq!(out[0].1[..6], [2, 0, 0, 0, 0, 0x19]);
    let unknown =
        ethernet().destination("02:00:00:00:00:02").vlan(8).ipv4("198.51.100.9", "192.0.2.9").udp(1, 2);
    assert!(rig.send(0, [unknown]).is_empty());
    assert_eq!(rig.dropped(DropReason::Unmatched), 1);
}

#[test]
fn a_route_of_the_kernel_that_cannot_be_used_stops_no_other() {
    let mut rig = Rig::new(SETTINGS);
    rig.call("kernel", "+ 10.1.0.0/16 via 198.51.100.9\n+ 10.2.0.0/16 via 198.51.100.9").unwrap();
    let hops: String = (2..80).map(|host| format!(" via 198.51.100.{host}")).collect();
    let lines = format!(
        "+ 224.0.0.0/4 via 198.51.100.9\n+ 10.1.0.0/16{hops}\n+ 10.2.0.0/16 via 203.0.113.1\n? 10.4.0.0/16\n\n\
         - 10.5.0.0/99\n+ 10.3.0.0/16 via 198.51.100.9"
    );
    let unusable = rig.call("kernel", &lines).unwrap();
    let unusable: Vec<&str> = unusable.lines().collect();
    let expected = [
        "line 1, `+ 224.0.0.0/4 via 198.51.100.9`: ",
        "10.1.0.0/16: ",
        "10.2.0.0/16: next hop 203.0.113.1 is unreachable",
        "line 4, `? 10.4.0.0/16`: expected `+ ROUTE` or `- PREFIX`",
        "line 5, ``: expected",
        "line 6, `- 10.5.0.0/99`: ",
    ];
    assert_eq!(unusable.len(), expected.len(), "{unusable:#?}");
    for (found, expected) in unusable.iter().zip(expected) {
        assert!(found.starts_with(expected), "{unusable:#?}");
    }
    assert!(
        unusable[0].contains("is of groups") && unusable[1].contains("more than 64 next hops"),
        "{unusable:#?}"
    );
    // The route behind them is there, and those that cannot be used any more are gone.
    let listed = rig.call("routes", "10 0 kernel").unwrap();
    assert!(listed.ends_with("kernel 1\n10.3.0.0/16 via 198.51.100.9 dev wan kernel\n"), "{listed}");
}

#[test]
fn handlers_change_routes_together_or_not_at_all() {
    let mut rig = Rig::new(SETTINGS);
    assert_eq!(
        rig.call("add", "10.1.0.0/16 via 198.51.100.2\n10.2.0.0/16 via 192.0.2.2").unwrap(),
        "2 added, 0 replaced"
    );
    assert_eq!(rig.call("lookup", "10.2.3.4").unwrap(), "10.2.0.0/16 via 192.0.2.2 dev lan");
    let refused = rig.call("add", "10.3.0.0/16 via 198.51.100.2\n192.0.2.0/24 via 198.51.100.2").unwrap_err();
    assert!(refused.contains("line 2: 192.0.2.0/24 is of an interface"), "{refused}");
    let refused = rig.call("add", "10.3.0.0/16 via 198.51.100.2\n10.4.0.0/16 via 203.0.113.1").unwrap_err();
    assert!(refused.contains("line 2: next hop 203.0.113.1 is unreachable"), "{refused}");
    let refused = rig.call("withdraw", "10.1.0.0/16\n10.5.0.0/16").unwrap_err();
    assert!(refused.contains("line 2: there is no route of the operator for 10.5.0.0/16"), "{refused}");
    assert_eq!(rig.call("lookup", "10.3.3.4").unwrap(), "0.0.0.0/0 via 198.51.100.254 dev wan");
    // The kernel's routes stand behind the operator's.
    let kernel =
        "+ 10.1.0.0/16 via 198.51.100.9\n+ 10.6.0.0/16 via 198.51.100.9\n+ 10.7.0.0/16 via 203.0.113.1";
    let unusable = rig.call("kernel", kernel).unwrap();
    assert!(unusable.starts_with("10.7.0.0/16: next hop 203.0.113.1 is unreachable"), "{unusable}");
    assert_eq!(rig.call("lookup", "10.1.1.1").unwrap(), "10.1.0.0/16 via 198.51.100.2 dev wan");
    rig.call("withdraw", "10.1.0.0/16").unwrap();
    assert_eq!(rig.call("lookup", "10.1.1.1").unwrap(), "10.1.0.0/16 via 198.51.100.9 dev wan");
    let listed = rig.call("routes", "10 0 kernel").unwrap();
    assert!(
        listed.ends_with(
            "10.1.0.0/16 via 198.51.100.9 dev wan kernel\n10.6.0.0/16 via 198.51.100.9 dev wan kernel\n"
        ),
        "{listed}"
    );
    rig.call("kernel", "- 10.1.0.0/16\n- 10.6.0.0/16").unwrap();
    assert_eq!(rig.call("lookup", "10.6.1.1").unwrap(), "0.0.0.0/0 via 198.51.100.254 dev wan");
    // The table grows by itself.
    for round in 0..20u32 {
        let lines: String = (0..1_000u32)
            .map(|i| format!("172.{}.{}.{}/32 via 198.51.100.2\n", 16 + round, i >> 2, 64 * (i & 3)))
            .collect();
        assert_eq!(rig.call("add", &lines).unwrap(), "1000 added, 0 replaced");
    }
    assert!(rig.call("routes", "").unwrap().contains("static 20005\n"));
    assert_eq!(rig.call("lookup", "172.20.1.64").unwrap(), "172.20.1.64/32 via 198.51.100.2 dev wan");
    let address: IpAddr = "172.20.1.64".parse().unwrap();
    assert!(address.is_ipv4());
}

#[test]
fn an_answer_that_another_worker_hears_lets_packets_go() {
    let mut two = Two::new(SETTINGS);
    let asked = two.send(1, LAN, [udp("10.1.2.3")]);
    assert_eq!(ports(&asked), [WAN]);
    // The answer comes to the other worker, which did not ask itself.
    assert!(two.send(0, WAN, [arp_answer(&asked[0].1, GATEWAY_MAC)]).is_empty());
    let sent = two.wait(1, 1);
    assert_eq!((ports(&sent), ttl(&sent[0].1)), (vec![WAN], 8));
    // Both know it now.
    let sent = two.send(0, LAN, [udp("10.1.2.4")]);
    assert_eq!((ports(&sent), ttl(&sent[0].1)), (vec![WAN], 8));
    // When it is old, the worker that uses it asks, and the other one hears the answer.
    two.now += 31_000 * MS;
    assert_eq!(ports(&two.send(1, LAN, [udp("10.1.2.3")])), [WAN]);
    let asked = two.wait(1, 5_001);
    assert_eq!(ports(&asked), [WAN]);
    assert!(two.send(0, WAN, [arp_answer(&asked[0].1, GATEWAY_MAC)]).is_empty());
    assert!(two.wait(1, 10_000).is_empty(), "it asks no more");
    assert_eq!(ports(&two.send(1, LAN, [udp("10.1.2.3")])), [WAN]);
}
