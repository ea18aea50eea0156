//! One built packet of every kind, by name: what the tests here mutate, print, and show to `tshark`.

use netbricks_packet::build::{BuildError, Builder, ethernet};
use netbricks_packet::{Icmpv4, Ipv4, Ipv6};

/// A 64-bit generator of Steele, Lea and Flood's SplitMix family: seeded, so that every run is the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes, cuts, lengthens or doubles a few bytes, most of them near the front, where the headers are.
pub(crate) fn mutate(packet: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let near = if random.below(4) == 0 { packet.len() } else { packet.len().min(96) };
        let at = random.below(near);
        match (random.below(8), packet.get_mut(at)) {
            (0, _) => packet.truncate(at),
            (1, _) => packet.extend((0..random.below(64)).map(|_| random.next() as u8).collect::<Vec<_>>()),
            (2, Some(byte)) => *byte = [0, 1, 0x0f, 0x40, 0x7f, 0x80, 0xff][random.below(7)],
            (3, Some(byte)) => *byte = byte.wrapping_add(1),
            (4, Some(byte)) => *byte = byte.wrapping_sub(1),
            (5, Some(byte)) => *byte ^= 1 << random.below(8),
            (6, Some(_)) => packet.insert(at, random.next() as u8),
            (_, Some(byte)) => *byte = random.next() as u8,
            (_, None) => packet.push(random.next() as u8),
        }
    }
}

fn v4() -> Builder<'static, Ipv4> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2")
}
fn v6() -> Builder<'static, Ipv6> {
    ethernet().ipv6("2001:db8::1", "2001:db8::2")
}

type Kinds = Vec<(&'static str, Result<Vec<u8>, BuildError>)>;

/// UDP and TCP, behind every link.
fn transports_and_links() -> Kinds {
    vec![
        ("udp", v4().udp(1000, 2000).payload(b"hello").build()),
        ("udp-empty", v4().udp(1000, 2000).build()),
        ("udp-padded", v4().udp(1000, 2000).payload(b"hi").pad_to(60).build()),
        ("udp-unchecked", v4().udp(1000, 2000).unchecked().payload(b"hi").build()),
        ("udp-odd", v4().udp(1000, 2000).payload(b"odd").build()),
        ("tcp-syn", {
            let options = v4().dont_fragment().tcp(40000, 80).syn().sequence(1).window(64240);
            let options = options.maximum_segment_size(1460).sack_permitted().timestamps(1, 0);
            options.option(1, &[]).window_scale(7).build()
        }),
        ("tcp-ack", v4().tcp(40000, 80).sequence(2).ack(3).psh().payload(b"GET / HTTP/1.0\r\n\r\n").build()),
        ("tcp-sack", v4().tcp(40000, 80).ack(3).selective_acknowledgment(&[(10, 20), (30, 40)]).build()),
        ("tcp-fin", v4().tcp(40000, 80).sequence(2).ack(3).fin().build()),
        ("tcp-rst", v4().tcp(40000, 80).sequence(2).rst().build()),
        (
            "tcp-urg",
            v4().tcp(40000, 80).sequence(2).ack(1).urgent_pointer(1).ece().cwr().payload(b"x").build(),
        ),
        (
            "vlan",
            ethernet().vlan(7).priority(5).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 2000).payload(b"x").build(),
        ),
        (
            "qinq",
            ethernet().qinq(100, 200).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 2000).payload(b"x").build(),
        ),
        ("mpls", {
            let labels = ethernet().mpls(16).traffic_class(3).mpls(17).ttl(9);
            labels.ipv4("10.0.0.1", "10.0.0.2").udp(1000, 2000).payload(b"x").build()
        }),
        (
            "mpls-v6",
            ethernet().mpls(16).ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build(),
        ),
        (
            "pppoe",
            ethernet().pppoe(0x1234).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 2000).payload(b"x").build(),
        ),
        (
            "pppoe-v6",
            ethernet().pppoe(1).ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build(),
        ),
        ("arp-request", ethernet().arp_request("10.0.0.1", "10.0.0.2").pad_to(60).build()),
        ("arp-reply", ethernet().vlan(3).arp_reply("10.0.0.2", "10.0.0.1").build()),
    ]
}

/// IPv4 and IPv6 with options and extension headers.
fn networks() -> Kinds {
    let segments = ["2001:db8:1::1".parse().unwrap(), "2001:db8:2::1".parse().unwrap()];
    vec![
        ("ipv4-fields", {
            let fields = v4().ttl(3).dscp(46).ecn(1).identification(0xbeef).dont_fragment();
            fields.udp(1000, 2000).payload(b"x").build()
        }),
        ("ipv4-options", v4().router_alert().option(7, &[8, 0, 0, 0, 0, 0, 0, 0, 0]).udp(1000, 2000).build()),
        (
            "ipv4-first-fragment",
            v4().identification(7).fragment(0, true).udp(1000, 2000).payload(&[3; 56]).build(),
        ),
        (
            "ipv4-last-fragment",
            v4().identification(7).fragment(8, false).protocol(17).payload(&[4; 9]).build(),
        ),
        ("ipv6-udp", v6().udp(1000, 2000).payload(b"x").build()),
        ("ipv6-fields", v6().dscp(10).ecn(2).flow_label(0x12345).hop_limit(9).tcp(1000, 80).syn().build()),
        ("ipv6-hop-by-hop", v6().hop_by_hop(&[5, 2, 0, 0]).udp(1000, 2000).payload(b"x").build()),
        ("ipv6-destination", v6().destination_options(&[0x1e, 3, 1, 2, 3]).udp(1000, 2000).build()),
        ("ipv6-routing", v6().routing(253, 0, &[9; 4]).udp(1000, 2000).build()),
        ("ipv6-all", {
            let headers = v6().hop_by_hop(&[]).destination_options(&[0x1e, 7, 1, 2, 3, 4, 5, 6, 7]);
            headers.fragment(0, false, 77).udp(1000, 2000).payload(b"x").build()
        }),
        ("ipv6-last-fragment", v6().fragment(4, false, 0xabcdef).protocol(17).payload(&[1; 16]).build()),
        ("srv6", v6().segment_routing(&segments).udp(1000, 2000).payload(b"x").build()),
        (
            "ipv6-type-0",
            v6().routing(0, 1, &[[0; 4].as_slice(), &[9; 32]].concat()).tcp(1000, 80).syn().build(),
        ),
        (
            "ipv6-type-2",
            v6().routing(2, 1, &[[0; 4].as_slice(), &[9; 16]].concat()).tcp(1000, 80).syn().build(),
        ),
        ("ipv6-home-address", {
            let home = [[1, 2, 0, 0, 201, 16].as_slice(), &[9; 16]].concat();
            v6().destination_options(&home).udp(1000, 2000).payload(b"x").build()
        }),
        ("ipv4-source-route", v4().option(131, &[4, 10, 0, 0, 7, 10, 0, 0, 8]).tcp(1000, 80).syn().build()),
    ]
}

/// ICMP and ICMPv6.
fn messages() -> Kinds {
    let quoted = v4().udp(1000, 33434).payload(&[7; 24]).build().unwrap()[14..].to_vec();
    let quoted6 = v6().tcp(1000, 80).syn().payload(&[7; 24]).build().unwrap()[14..].to_vec();
    let icmp: Builder<'_, Icmpv4> = v4().icmp_echo_request(1, 2);
    vec![
        ("icmp-echo", icmp.payload(&[1; 56]).build()),
        ("icmp-reply", v4().icmp_echo_reply(1, 2).payload(&[1; 56]).build()),
        ("icmp-unreachable", v4().icmp_unreachable(3, &quoted).build()),
        ("icmp-fragmentation-needed", v4().icmp_fragmentation_needed(1400, &quoted).build()),
        ("icmp-time-exceeded", v4().icmp_time_exceeded(&quoted[..28]).build()),
        ("icmp-parameter-problem", v4().icmp_parameter_problem(20, &quoted).build()),
        ("icmpv6-echo", v6().icmpv6_echo_request(1, 2).payload(&[1; 56]).build()),
        ("icmpv6-reply", v6().icmpv6_echo_reply(1, 2).payload(&[1; 56]).build()),
        ("icmpv6-unreachable", v6().icmpv6_unreachable(4, &quoted6).build()),
        ("icmpv6-too-big", v6().icmpv6_packet_too_big(1280, &quoted6).build()),
        ("icmpv6-time-exceeded", v6().icmpv6_time_exceeded(&quoted6).build()),
        ("icmpv6-parameter-problem", v6().icmpv6_parameter_problem(1, 40, &quoted6).build()),
        (
            "neighbor-solicitation",
            v6().hop_limit(255).neighbor_solicitation("2001:db8::2", "02:00:00:00:00:01").build(),
        ),
        ("neighbor-advertisement", {
            v6().hop_limit(255).neighbor_advertisement("2001:db8::1", [2, 0, 0, 0, 0, 1]).build()
        }),
    ]
}

/// Tunnels.
fn tunnels() -> Kinds {
    vec![
        ("gre", v4().gre().ipv4("192.168.0.1", "192.168.0.2").udp(1000, 2000).payload(b"x").build()),
        ("gre-words", {
            let words = v4().gre().sequence(9).key(0x1234).checksum();
            words.ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build()
        }),
        (
            "gre-ethernet",
            v6().gre().key(1).ethernet().vlan(9).ipv4("10.1.0.1", "10.1.0.2").udp(1, 2000).build(),
        ),
        ("gre-mpls", v4().gre().mpls(99).ipv4("10.1.0.1", "10.1.0.2").udp(1000, 2000).build()),
        ("pptp", v4().pptp(7, 1).ppp().ipv4("10.1.0.1", "10.1.0.2").udp(1000, 2000).payload(b"x").build()),
        ("vxlan", {
            let tunnel = v4()
                .udp(50000, 0)
                .vxlan(77)
                .ethernet()
                .source([2, 0, 0, 0, 1, 1])
                .destination("02:00:00:00:01:02");
            tunnel.ipv4("10.1.0.1", "10.1.0.2").tcp(1000, 80).syn().build()
        }),
        ("geneve", {
            let tunnel =
                v4().udp(50000, 0).geneve(77).option(0x0102, 0x80, &[1, 2, 3]).option(0x0103, 1, &[]);
            tunnel.ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build()
        }),
        ("geneve-ip", v6().udp(50000, 0).geneve(1).ipv4("10.1.0.1", "10.1.0.2").udp(1000, 2000).build()),
        (
            "gtpu",
            v4().udp(2152, 0)
                .gtpu(0x0102_0304)
                .ipv4("10.1.0.1", "10.1.0.2")
                .udp(1000, 2000)
                .payload(b"x")
                .build(),
        ),
        ("gtpu-extension", {
            let tunnel = v4().udp(2152, 0).gtpu(7).sequence(5).extension(0x85, &[0x10, 9]);
            tunnel.ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build()
        }),
        ("ip-in-ip", v4().ipv4("10.1.0.1", "10.1.0.2").udp(1000, 2000).payload(b"x").build()),
        ("6in4", v4().ipv6("2001:db8::1", "2001:db8::2").udp(1000, 2000).payload(b"x").build()),
        ("4in6", v6().ipv4("10.1.0.1", "10.1.0.2").tcp(1000, 80).syn().build()),
    ]
}

/// One packet of every kind that the builder can make.
pub(crate) fn every_kind() -> Vec<(&'static str, Vec<u8>)> {
    [transports_and_links(), networks(), messages(), tunnels()]
        .into_iter()
        .flatten()
        .map(|(name, packet)| (name, packet.unwrap_or_else(|error| panic!("{name}: {error}"))))
        .collect()
}
