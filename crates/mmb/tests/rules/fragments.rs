//! Fragments: those behind the first are of its packet's connection.

use std::time::Duration;

use netbricks_core::DropReason;
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::checksums;

use crate::tracked::clocked;

/// The two fragments of a datagram with these addresses, ports and identification.
#[expect(clippy::unwrap_used, reason = "a test's packet can be built")]
fn fragments(addresses: (&str, &str), ports: (u16, u16), identification: u16) -> [Vec<u8>; 2] {
    let (from, to) = addresses;
    let whole = ethernet().ipv4(from, to).udp(ports.0, ports.1).payload(&[7; 64]).build().unwrap();
    let datagram = &whole[34..];
    [(0, true, &datagram[..32]), (4, false, &datagram[32..])].map(|(offset, more, bytes)| {
        let ip = ethernet().ipv4(from, to).identification(identification).fragment(offset, more);
        ip.protocol(17).payload(bytes).build().unwrap()
    })
}

const OUT: (&str, &str) = ("10.0.0.9", "192.0.2.7");

#[expect(clippy::unwrap_used, reason = "a test's frame is a packet")]
fn addresses(frame: &[u8]) -> [String; 2] {
    let (ip, _) = Ip::in_frame(frame).unwrap();
    [ip.source().to_string(), ip.destination().to_string()]
}

/// A datagram put together again.
#[expect(clippy::unwrap_used, reason = "a test's packet can be built")]
fn joined(frames: &[Vec<u8>]) -> Vec<u8> {
    let [first, later] = frames else { panic!("two fragments, found {}", frames.len()) };
    let [from, to] = addresses(first);
    assert_eq!(addresses(later), [from.clone(), to.clone()]);
    let bytes = [&first[34..], &later[34..]].concat();
    ethernet()
        .ipv4(from.parse::<std::net::Ipv4Addr>().unwrap(), to.parse::<std::net::Ipv4Addr>().unwrap())
        .protocol(17)
        .payload(&bytes)
        .build()
        .unwrap()
}

#[test]
fn all_fragments_of_a_packet_are_translated() {
    for rule in [
        "add-stateful udp-dport 53 map ip-saddr 30.30.30.30 shuffle udp-sport",
        "add-stateful ip-proto udp map ip-saddr 30.30.30.30 map udp-sport 5000-5999",
    ] {
        let mut bench = clocked(&[rule]);
        let sent = joined(&bench.send(fragments(OUT, (4_000, 53), 1)).out);
        assert_eq!(checksums::wrong(&sent), Vec::<String>::new(), "{rule}");
        let flow = FlowKey::from_frame(&sent).unwrap();
        assert_eq!((flow.source().to_string(), flow.destination_port()), ("30.30.30.30".into(), 53));
        // A whole packet of the flow, and fragments of its answer, have the same connection.
        let whole = ethernet().ipv4(OUT.0, OUT.1).udp(4_000, 53).build().unwrap();
        let whole = bench.send([whole]).out.remove(0);
        assert_eq!(FlowKey::from_frame(&whole), Some(flow), "{rule}");
        let answer = fragments(("192.0.2.7", "30.30.30.30"), (53, flow.source_port()), 9);
        let back = joined(&bench.send(answer).out);
        assert_eq!(checksums::wrong(&back), Vec::<String>::new(), "{rule}");
        let back = FlowKey::from_frame(&back).unwrap();
        assert_eq!((back.destination().to_string(), back.destination_port()), ("10.0.0.9".into(), 4_000));
        // Another host's packets with the same identification have a way of their own.
        let other = joined(&bench.send(fragments(("10.0.0.8", OUT.1), (4_000, 53), 1)).out);
        assert_ne!(FlowKey::from_frame(&other), Some(flow), "{rule}");
        bench.finish();
    }
}

#[test]
fn a_fragment_whose_first_is_not_known_does_not_leave_untranslated() {
    let mut bench = clocked(&["add-stateful udp-dport 53 map ip-saddr 30.30.30.30"]);
    let [first, later] = fragments(OUT, (4_000, 53), 1);
    let report = bench.send([later.clone()]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Fragment)), (0, 1));
    assert_eq!(bench.send([first, later.clone()]).out.len(), 2);
    bench.advance(Duration::from_secs(70));
    assert_eq!(bench.send([later]).dropped(DropReason::Fragment), 2, "forgotten after a minute");
    // The first of this one passes without a translation, and so does the other.
    let other = fragments(OUT, (4_000, 80), 2);
    assert_eq!(bench.send(other.clone()).out, other);
    // The first of this one is dropped for want of a value.
    let full = bench.send(fragments(("10.0.0.8", OUT.1), (4_000, 53), 3));
    assert_eq!(
        (full.out.len(), full.dropped(DropReason::TableFull), full.dropped(DropReason::Fragment)),
        (0, 1, 3)
    );
    bench.finish();
}

#[test]
fn without_translations_strange_fragments_pass() {
    let mut bench = clocked(&["add-stateful udp-dport 53 accept"]);
    let [_, later] = fragments(OUT, (4_000, 53), 1);
    assert_eq!(bench.send([later.clone()]).out, [later]);
    bench.finish();
}

#[test]
fn fragments_of_an_answer_pass_a_stateful_firewall() {
    let mut bench = clocked(&["add-stateful ip-saddr 10.0.0.0/8 accept", "add all drop"]);
    let asked = ethernet().ipv4(OUT.0, OUT.1).udp(4_000, 53).build().unwrap();
    assert_eq!(bench.send([asked]).out.len(), 1);
    let answer = fragments((OUT.1, OUT.0), (53, 4_000), 5);
    assert_eq!(bench.send(answer.clone()).out, answer);
    assert_eq!(bench.send(fragments((OUT.1, OUT.0), (53, 4_001), 6)).out.len(), 0, "of no connection");
    bench.finish();
}

#[test]
fn fragments_of_ipv6_are_of_their_packet() {
    let mut bench = clocked(&["add-stateful udp-dport 53 map ip6-saddr 2001:db8:f::1"]);
    let (from, to) = ("2001:db8::9", "2001:db8::1");
    let whole = ethernet().ipv6(from, to).udp(4_000, 53).payload(&[7; 64]).build().unwrap();
    let parts = [(0, true, &whole[54..86]), (4, false, &whole[86..])].map(|(offset, more, bytes)| {
        let ip = ethernet().ipv6(from, to).fragment(offset, more, 0x10_0001);
        ip.protocol(17).payload(bytes).build().unwrap()
    });
    let out = bench.send(parts).out;
    assert_eq!(out.len(), 2);
    for frame in &out {
        assert_eq!(addresses(frame), ["2001:db8:f::1", to]);
    }
    bench.finish();
}
