//! One built packet of every kind, for tests to send and to mutate.

use std::net::Ipv6Addr;

use netbricks_core::packet::build::{BuildError, Builder, ethernet};
use netbricks_core::packet::{Ipv4, Ipv6};

const ALL_ONES: &str = "ff:ff:ff:ff:ff:ff";

fn v4() -> Builder<'static, Ipv4> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2")
}
fn v6() -> Builder<'static, Ipv6> {
    ethernet().ipv6("2001:db8::1", "2001:db8::2")
}

/// A name and a whole valid frame of every kind that functions have to cope with.
pub fn every() -> Vec<(&'static str, Vec<u8>)> {
    match build() {
        Ok(frames) => frames,
        Err(error) => panic!("a test's packet cannot be built: {error}"),
    }
}

fn build() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let quoted = v4().udp(1000, 33_434).payload(&[7; 24]).build()?[14..].to_vec();
    let quoted6 = v6().udp(1000, 33_434).payload(&[7; 24]).build()?[14..].to_vec();
    let segments = [1, 2].map(|last| Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, last));
    let sender = [2, 0, 0, 0, 0, 1];
    Ok(vec![
        ("udp v4", v4().udp(1000, 53).payload(b"hello").build()?),
        ("udp v4 padded", v4().udp(1000, 53).payload(b"x").pad_to(60).build()?),
        ("udp v4 unchecked", v4().udp(1000, 53).unchecked().payload(b"odd").build()?),
        ("udp v6", v6().udp(1000, 53).payload(b"hello").build()?),
        ("tcp v4", v4().tcp(40_000, 80).syn().maximum_segment_size(1460).timestamps(1, 2).build()?),
        ("tcp v6", v6().tcp(40_000, 80).ack(3).payload(b"GET / HTTP/1.0\r\n\r\n").build()?),
        ("expired v4", v4().ttl(1).udp(1000, 53).payload(b"hello").build()?),
        ("expired v6", v6().hop_limit(1).udp(1000, 53).payload(b"hello").build()?),
        ("dead v4", v4().ttl(0).udp(1000, 53).payload(b"hello").build()?),
        ("options", v4().router_alert().udp(1000, 53).payload(b"x").build()?),
        ("first fragment", v4().fragment(0, true).udp(1000, 53).payload(&[1; 32]).build()?),
        ("later fragment", v4().fragment(185, false).protocol(17).payload(&[2; 40]).build()?),
        ("v6 fragment", v6().fragment(0, true, 7).udp(1000, 53).payload(&[1; 32]).build()?),
        ("v6 later fragment", v6().fragment(8, false, 7).protocol(17).payload(&[2; 40]).build()?),
        ("v6 hop-by-hop", v6().hop_by_hop(&[5, 2, 0, 0]).udp(1000, 53).payload(b"x").build()?),
        ("source route", v4().option(131, &[4, 10, 0, 0, 7, 10, 0, 0, 8]).tcp(1000, 80).ack(9).build()?),
        ("source route completed", v4().option(137, &[8, 10, 0, 0, 7]).udp(1000, 53).payload(b"x").build()?),
        (
            "routing type 0",
            v6().routing(0, 1, &[[0; 4].as_slice(), &[9; 32]].concat()).tcp(1000, 80).ack(9).build()?,
        ),
        ("routing type 2", v6().routing(2, 1, &[[0; 4].as_slice(), &[9; 16]].concat()).udp(1, 2).build()?),
        ("srv6", v6().segment_routing(&segments).tcp(1, 2).ack(9).build()?),
        ("home address", {
            let home = [[1, 2, 0, 0, 201, 16].as_slice(), &[9; 16]].concat();
            v6().destination_options(&home).tcp(1000, 80).ack(9).build()?
        }),
        ("vlan", ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"x").build()?),
        ("qinq", ethernet().qinq(100, 200).ipv6("2001:db8::1", "2001:db8::2").tcp(1, 2).syn().build()?),
        ("mpls", ethernet().mpls(16).mpls(17).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).build()?),
        ("pppoe", ethernet().pppoe(9).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"x").build()?),
        ("arp request", ethernet().arp_request("10.0.0.1", "10.0.0.2").pad_to(60).build()?),
        ("arp reply", ethernet().vlan(3).arp_reply("10.0.0.2", "10.0.0.1").build()?),
        ("echo v4", v4().icmp_echo_request(7, 1).payload(b"ping!").build()?),
        ("echo v6", v6().icmpv6_echo_request(7, 1).payload(b"ping!").build()?),
        ("time exceeded", v4().ttl(1).icmp_time_exceeded(&quoted).build()?),
        ("unreachable v6", v6().hop_limit(1).icmpv6_unreachable(4, &quoted6).build()?),
        ("solicitation", v6().hop_limit(255).neighbor_solicitation("2001:db8::2", sender).build()?),
        (
            "broadcast",
            ethernet().destination(ALL_ONES).ipv4("10.0.0.1", "255.255.255.255").udp(68, 67).build()?,
        ),
        ("link-local", ethernet().ipv6("fe80::1", "ff02::1").hop_limit(1).udp(5353, 5353).build()?),
        ("gre", v4().gre().ipv4("10.1.0.1", "10.1.0.2").udp(1000, 53).payload(b"x").build()?),
        ("vxlan", v4().udp(5000, 0).vxlan(7).ethernet().ipv4("10.1.0.1", "10.1.0.2").udp(1, 2).build()?),
        ("ip in ip", v4().ipv4("10.1.0.1", "10.1.0.2").udp(1000, 53).payload(b"x").build()?),
        ("jumbo", v4().udp(1000, 53).payload(&[9; 8_000]).build()?),
        ("llc", [&[1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 38, 0x42, 0x42, 3][..], &[0; 35]].concat()),
        ("runt", vec![2, 0, 0, 0, 0, 2, 2, 0]),
    ])
}
