//! IP packets: both ways, spoofed ones, too large ones, and the neighbours of the core.

use netbricks_core::DropReason;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Arp, Ip, IpRef};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::checksums;

use super::client::{AC, ACCESS, CORE, Client, GATEWAY, rig};
use crate::router::tests::rig::Rig;

const OPEN: &str = "authentication = []\naddress_v6 = \"2001:db8::1\"\nprefixes = \"2001:db8:100::/56\"\n";

/// A concentrator with an open session.
fn open(more: &str) -> (Rig, Client) {
    let mut rig = rig(&format!("{OPEN}{more}"));
    let mut client = Client { wants_v6: true, ..Client::new(1) };
    client.dial(&mut rig);
    client.wait(&mut rig, 100);
    assert!(client.is_open() && client.is_open_v6(), "{client:?}");
    client.got.clear();
    (rig, client)
}

fn from_core() -> netbricks_core::packet::build::Builder<'static, netbricks_core::packet::Ethernet> {
    ethernet().source(mac(GATEWAY)).destination(mac(AC))
}

fn mac(octets: [u8; 6]) -> netbricks_core::packet::MacAddress {
    netbricks_core::packet::MacAddress::new(octets)
}

/// An IP packet as a frame, for the oracles of frames.
fn framed(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&[0; 12][..], &kind, packet].concat()
}

#[test]
fn packets_go_both_ways_with_one_hop_less_and_no_padding() {
    let (mut rig, mut client) = open("");
    for v6 in [false, true] {
        let up = match v6 {
            false => ethernet().ipv4(client.address, "192.0.2.1").ttl(9).udp(1, 2).payload(b"hi").build(),
            true => ethernet()
                .ipv6("2001:db8:100::7", "2001:db8:9::1")
                .hop_limit(9)
                .udp(1, 2)
                .payload(b"hi")
                .build(),
        };
        let up = up.unwrap();
        let frame = client.ip(&up);
        let core = client.push(&mut rig, frame);
        let [sent] = core.as_slice() else { panic!("{core:?}") };
        assert_eq!((&sent[..6], &sent[6..12], sent.len()), (&GATEWAY[..], &AC[..], up.len()));
        assert_eq!(Ip::in_frame(sent).unwrap().0.ttl(), 8);
        assert_eq!(checksums::wrong(sent), Vec::<String>::new());
        let down = match v6 {
            false => from_core().ipv4("192.0.2.1", client.address).ttl(9).udp(2, 1).payload(b"ho").build(),
            true => from_core()
                .ipv6("2001:db8:9::1", "2001:db8:100::7")
                .hop_limit(9)
                .udp(2, 1)
                .payload(b"ho")
                .build(),
        };
        let mut down = down.unwrap();
        let whole = down.len();
        down.resize(70, 0);
        for (port, frame) in rig.send(CORE, [down]) {
            assert_eq!(port, ACCESS);
            client.hear(&frame);
        }
        let got = client.got.pop().expect("it came");
        assert_eq!(got.len(), whole - 14, "without padding");
        assert_eq!(Ip::in_frame(&framed(&got)).unwrap().0.ttl(), 8);
        assert_eq!(checksums::wrong(&framed(&got)), Vec::<String>::new());
    }
    let listed = rig.ask("sessions", "").unwrap();
    assert!(listed.trim_end().ends_with(" 2 80 2 80"), "{listed}");
}

#[test]
fn spoofed_sources_are_dropped_and_counted() {
    let (mut rig, mut client) = open("");
    let mut other = Client::new(2);
    other.dial(&mut rig);
    let spoofed = [
        ethernet().ipv4(other.address, "192.0.2.1").udp(1, 2).build().unwrap(),
        ethernet().ipv4("0.0.0.0", "192.0.2.1").udp(1, 2).build().unwrap(),
        ethernet().ipv4("10.0.0.1", "192.0.2.1").udp(1, 2).build().unwrap(),
        ethernet().ipv6("2001:db8:100:1::7", "2001:db8:9::1").udp(1, 2).build().unwrap(),
    ];
    for frame in spoofed {
        let frame = client.ip(&frame);
        assert!(client.push(&mut rig, frame).is_empty());
    }
    assert_eq!(rig.dropped(DropReason::Martian), 4);
    assert!(rig.ask("spoofed.occupancy", "").unwrap().starts_with('4'));
    // Nor may another host use the session.
    let mut thief = Client { id: client.id, ..Client::new(3) };
    let own = ethernet().ipv4(client.address, "192.0.2.1").udp(1, 2).build().unwrap();
    let frame = thief.ip(&own);
    assert!(thief.push(&mut rig, frame).is_empty());
    assert_eq!(rig.dropped(DropReason::NoSession), 1);
}

#[test]
fn subscribers_reach_each_other_and_ping_the_concentrator() {
    let (mut rig, mut client) = open("");
    let mut other = Client::new(2);
    other.dial(&mut rig);
    let packet = ethernet().ipv4(client.address, other.address).ttl(9).udp(1, 2).build().unwrap();
    let out = rig.send(ACCESS, [client.ip(&packet)]);
    assert_eq!(out.len(), 1);
    other.hear(&out[0].1);
    assert_eq!(other.got.pop().map(|packet| packet[8]), Some(8));
    let ping =
        ethernet().ipv4(client.address, "10.0.0.1").icmp_echo_request(1, 2).payload(b"abc").build().unwrap();
    let ping = client.ip(&ping);
    client.push(&mut rig, ping);
    let answer = client.got.pop().expect("it answers");
    assert_eq!((answer[20], &answer[12..16]), (0, &[10, 0, 0, 1][..]));
    assert_eq!(checksums::wrong(&framed(&answer)), Vec::<String>::new());
}

#[test]
fn a_packet_for_the_subscribers_own_address_does_not_come_back() {
    let (mut rig, mut client) = open("");
    let v4 = ethernet().ipv4(client.address, client.address).ttl(9).udp(1, 2).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8:100::7", "2001:db8:100::8").hop_limit(9).udp(1, 2).build().unwrap();
    for (packet, kind, code) in [(v4, 3, 1), (v6, 1, 3)] {
        let frame = client.ip(&packet);
        assert!(client.push(&mut rig, frame).is_empty());
        let [error] = client.got.as_slice() else { panic!("{:?}", client.got) };
        let error = framed(error);
        let (_, payload) = Ip::in_frame(&error).unwrap();
        assert_eq!((payload[0], payload[1]), (kind, code), "the host cannot be reached");
        client.got.clear();
    }
    assert_eq!(rig.dropped(DropReason::NoRoute), 2);
    assert!(rig.ask("upstream.occupancy", "").unwrap().starts_with('0'));
    assert!(rig.ask("errors-sent.occupancy", "").unwrap().starts_with('2'));
}

#[test]
fn a_fragment_that_reaches_too_far_is_malformed() {
    let (mut rig, client) = open("");
    for (offset, is_cut) in [(8_189_u16, false), (8_000, true)] {
        let mut fragment = from_core()
            .ipv4("192.0.2.1", client.address)
            .ttl(9)
            .udp(2, 1)
            .payload(&[7; 1_472])
            .build()
            .unwrap();
        fragment[20..22].copy_from_slice(&offset.to_be_bytes());
        netbricks_core::packet::Ipv4::view_mut(&mut fragment[14..34], ()).refresh_checksum();
        let out = rig.send(CORE, [fragment]);
        assert_eq!(out.len(), if is_cut { 2 } else { 0 }, "{out:?}");
    }
    assert_eq!(rig.dropped(DropReason::Malformed), 1);
    assert!(rig.ask("downstream.occupancy", "").unwrap().starts_with('1'), "only the one that left");
}

#[test]
fn a_packet_that_is_too_large_is_cut_or_its_sender_told() {
    let (mut rig, mut client) = open("");
    let large = |builder: netbricks_core::packet::build::Builder<'static, netbricks_core::packet::Ipv4>| {
        builder.udp(2, 1).payload(&[7; 1_472]).build().unwrap()
    };
    let refused = large(from_core().ipv4("192.0.2.1", client.address).ttl(9).dont_fragment());
    let out = rig.send(CORE, [refused]);
    let [(CORE, error)] = out.as_slice() else { panic!("{out:?}") };
    let (ip, payload) = Ip::in_frame(error).unwrap();
    assert_eq!((ip.source().to_string(), payload[0], payload[1]), ("10.0.0.1".into(), 3, 4));
    assert_eq!(payload[6..8], 1_492_u16.to_be_bytes());
    let out = rig.send(CORE, [large(from_core().ipv4("192.0.2.1", client.address).ttl(9))]);
    out.iter().for_each(|(_, frame)| drop(client.hear(frame)));
    assert_eq!(client.got.len(), 2, "two fragments");
    assert!(client.got.iter().all(|fragment| fragment.len() <= 1_492));
    let sum: usize = client.got.iter().map(|fragment| fragment.len() - 20).sum();
    assert_eq!(sum, 1_480);
    let v6 =
        from_core().ipv6("2001:db8:9::1", "2001:db8:100::7").udp(2, 1).payload(&[7; 1_452]).build().unwrap();
    let out = rig.send(CORE, [v6]);
    let [(CORE, error)] = out.as_slice() else { panic!("{out:?}") };
    let (ip, payload) = Ip::in_frame(error).unwrap();
    assert_eq!(
        (ip.source().to_string(), payload[0], &payload[4..8]),
        ("2001:db8::1".into(), 2, &1_492_u32.to_be_bytes()[..])
    );
    assert_eq!(rig.dropped(DropReason::TooBig), 2);
}

#[test]
fn a_session_with_larger_payloads_takes_whole_ethernet_packets() {
    let mut rig = rig("authentication = []\nmru = 1500\n");
    let mut client = Client { max_payload: Some(1_500), mru: 1_500, ..Client::new(1) };
    client.dial(&mut rig);
    let whole = from_core().ipv4("192.0.2.1", client.address).udp(2, 1).payload(&[7; 1_472]).build().unwrap();
    let out = rig.send(CORE, [whole]);
    client.hear(&out[0].1);
    assert_eq!(client.got.pop().map(|packet| packet.len()), Some(1_500));
}

#[test]
fn segments_are_told_the_size_that_fits() {
    let (mut rig, mut client) = open("");
    let clamped = |packet: &[u8]| {
        let frame = framed(packet);
        assert_eq!(checksums::wrong(&frame), Vec::<String>::new());
        let at = packet.windows(2).position(|bytes| bytes == [2, 4]).unwrap();
        u16::from_be_bytes([packet[at + 2], packet[at + 3]])
    };
    for (mss, expected) in [(1_460, 1_452), (1_400, 1_400)] {
        let syn = ethernet()
            .ipv4(client.address, "192.0.2.1")
            .tcp(1, 80)
            .flags(flags::SYN)
            .maximum_segment_size(mss)
            .build()
            .unwrap();
        let syn = client.ip(&syn);
        let core = client.push(&mut rig, syn);
        assert_eq!(clamped(&core[0][14..]), expected);
        let answer = from_core()
            .ipv4("192.0.2.1", client.address)
            .tcp(80, 1)
            .flags(flags::SYN | flags::ACK)
            .maximum_segment_size(mss);
        let out = rig.send(CORE, [answer]);
        client.hear(&out[0].1);
        assert_eq!(clamped(&client.got.pop().unwrap()), expected);
    }
    let syn = from_core()
        .ipv6("2001:db8:9::1", "2001:db8:100::7")
        .tcp(80, 1)
        .flags(flags::SYN)
        .maximum_segment_size(1_440);
    let out = rig.send(CORE, [syn]);
    client.hear(&out[0].1);
    assert_eq!(clamped(&client.got.pop().unwrap()), 1_432);
}

#[test]
fn packets_with_no_hop_left_are_answered_in_the_session_and_at_the_core() {
    let (mut rig, mut client) = open("");
    let last = ethernet().ipv4(client.address, "192.0.2.1").ttl(1).udp(1, 2).build().unwrap();
    let last = client.ip(&last);
    assert!(client.push(&mut rig, last).is_empty());
    let error = client.got.pop().expect("time exceeded");
    assert_eq!((error[20], &error[16..20]), (11, &client.address.octets()[..]));
    let out = rig.send(CORE, [from_core().ipv4("192.0.2.1", client.address).ttl(1).udp(2, 1)]);
    let [(CORE, error)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(Ip::in_frame(error).unwrap().1[0], 11);
    assert_eq!(rig.dropped(DropReason::TtlExpired), 2);
}

#[test]
fn packets_for_no_session_end_at_the_core() {
    let (mut rig, client) = open("");
    let stray = from_core().ipv4("192.0.2.1", "10.0.1.99").udp(1, 2).build().unwrap();
    let other = ethernet().ipv4("192.0.2.1", client.address).udp(1, 2).build().unwrap();
    let tagged = from_core().vlan(7).ipv4("192.0.2.1", client.address).udp(1, 2).build().unwrap();
    let mut broken = from_core().ipv4("192.0.2.1", client.address).udp(1, 2).build().unwrap();
    broken[24] ^= 1;
    assert!(rig.send(CORE, [stray, other, tagged, broken]).is_empty());
    let reasons =
        [DropReason::NoSession, DropReason::Martian, DropReason::Unmatched, DropReason::BadChecksum];
    assert_eq!(reasons.map(|reason| rig.dropped(reason)), [1; 4]);
}

fn arp(sender: &str, target: &str) -> Vec<u8> {
    let request = Arp::request(mac(GATEWAY), sender.parse().unwrap(), target.parse().unwrap());
    let all = "ff:ff:ff:ff:ff:ff";
    ethernet()
        .source(mac(GATEWAY))
        .destination(all)
        .ethertype(0x0806)
        .payload(&request.octets())
        .build()
        .unwrap()
}

#[test]
fn the_core_learns_where_subscribers_are_and_only_while_they_are() {
    let (mut rig, mut client) = open("");
    let asked = client.address.to_string();
    let ask = |rig: &mut Rig, target: &str| rig.send(CORE, [arp("10.0.0.9", target)]);
    for target in [asked.as_str(), "10.0.0.1"] {
        let out = ask(&mut rig, target);
        let [(CORE, reply)] = out.as_slice() else { panic!("{target}: {out:?}") };
        let reply = Arp::view(&reply[14..42], ());
        assert_eq!((reply.sender_ip().to_string(), reply.sender_mac()), (target.to_owned(), mac(AC)));
    }
    assert!(ask(&mut rig, "10.0.1.99").is_empty());
    let solicitation = |target: &str| {
        ethernet()
            .source(mac(GATEWAY))
            .destination("33:33:ff:00:00:07")
            .ipv6("fe80::9", "ff02::1:ff00:7")
            .hop_limit(255)
            .neighbor_solicitation(target, mac(GATEWAY))
            .build()
            .unwrap()
    };
    let out = rig.send(CORE, [solicitation("2001:db8:100::7")]);
    let [(CORE, advertisement)] = out.as_slice() else { panic!("{out:?}") };
    let (ip, payload) = Ip::in_frame(advertisement).unwrap();
    assert!(matches!(ip, IpRef::V6(_)) && payload[0] == 136);
    assert_eq!(checksums::wrong(advertisement), Vec::<String>::new());
    let padt = client.padt();
    client.push(&mut rig, padt);
    assert!(ask(&mut rig, &asked).is_empty());
    assert!(rig.send(CORE, [solicitation("2001:db8:100::7")]).is_empty());
}

#[test]
fn the_gateway_is_asked_for_and_packets_wait_for_no_answer() {
    let settings = super::client::COMMON.replace("02:00:00:00:00:fe", "10.0.0.254");
    let mut rig = Rig::of("bras", &format!("{settings}authentication = []\n"));
    let mut client = Client::new(1);
    let mut asked = Vec::new();
    client.dial(&mut rig);
    asked.extend(client.wait(&mut rig, 1_000));
    let packet = ethernet().ipv4(client.address, "192.0.2.1").udp(1, 2).build().unwrap();
    let frame = client.ip(&packet);
    asked.extend(client.push(&mut rig, frame.clone()));
    assert_eq!(rig.dropped(DropReason::Unresolved), 1);
    assert!(
        !asked.is_empty()
            && asked
                .iter()
                .all(|frame| Arp::view(&frame[14..42], ()).target_ip().to_string() == "10.0.0.254")
    );
    let request = *Arp::view(&asked[0][14..42], ());
    let reply = request.reply(mac(GATEWAY)).octets();
    let reply = ethernet().source(mac(GATEWAY)).destination(mac(AC)).ethertype(0x0806).payload(&reply);
    rig.send(CORE, [reply]);
    let core = client.push(&mut rig, frame);
    assert_eq!((core.len(), &core[0][..6]), (1, &GATEWAY[..]));
}
