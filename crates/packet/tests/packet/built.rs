//! A dissection finds the headers that the builder was asked for.
//!
//! Lengths and checksums are compared with a naive oracle.

use netbricks_packet::build::{BuildError, ethernet, ipv4};
use netbricks_packet::print::{Dissection, Protocol, dissect};

use crate::kinds::{Random, every_kind};

/// RFC 1071 as its section 1 words it: add 16-bit words, add the carry back each time, complement.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

/// The pseudo-header and segment of a transport header, from its IP header on, laid out as the RFCs draw it.
fn pseudo(
    dissection: &Dissection<'_>,
    ip: &netbricks_packet::print::DissectedLayer<'_>,
    number: u8,
    from: usize,
) -> Vec<u8> {
    let end = dissection.payload_offset() + dissection.payload().len();
    let segment = &dissection.frame()[from..end];
    let mut bytes = Vec::new();
    if ip.protocol == Protocol::Ipv4 {
        bytes.extend(&ip.bytes[12..16]);
        // RFC 791, section 3.1: the last address of a source route that is not completed.
        let route = ip.parts().find(|part| part.name == "loose_source_route");
        bytes.extend(route.map_or(&ip.bytes[16..20], |part| &part.bytes[part.bytes.len() - 4..]));
        bytes.extend([0, number]);
        bytes.extend((segment.len() as u16).to_be_bytes());
    } else {
        // RFC 6275, section 6.3: the home address, here behind 4 bytes of padding.
        let home =
            ip.parts().find(|part| part.name == "destination-options" && part.bytes[6..8] == [201, 16]);
        bytes.extend(home.map_or(&ip.bytes[8..24], |part| &part.bytes[8..24]));
        // RFC 8200, section 8.1: with a routing header, the final destination, which RFC 8754's list holds first and
        // the others last.
        let routing = ip.parts().find(|part| part.bytes[3] > 0 && ["srv6", "routing"].contains(&part.name));
        bytes.extend(match routing {
            None => &ip.bytes[24..40],
            Some(part) if part.name == "srv6" => &part.bytes[8..24],
            Some(part) => &part.bytes[part.bytes.len() - 16..],
        });
        bytes.extend((segment.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, number]);
    }
    bytes.extend(segment);
    bytes
}

#[test]
fn every_checksum_is_right_by_the_naive_oracle() {
    let mut checked = 0;
    for (name, packet) in every_kind() {
        let dissection = dissect(&packet);
        assert!(dissection.malformed().is_none(), "{name}: {:?}", dissection.malformed());
        let layers: Vec<_> = dissection.layers().filter(|layer| !layer.quoted).collect();
        for (i, layer) in layers.iter().enumerate() {
            let end = dissection.payload_offset() + dissection.payload().len();
            let from = layer.offset;
            let innermost = i + 1 == layers.len();
            let number = match layer.protocol {
                Protocol::Ipv4 => {
                    assert_eq!(naive(layer.bytes), 0, "{name}: {layer}");
                    checked += 1;
                    continue;
                }
                Protocol::Gre if layer.flag("checksum_present") => {
                    assert_eq!(naive(&packet[from..end]), 0, "{name}: {layer}");
                    checked += 1;
                    continue;
                }
                Protocol::Icmpv4 => {
                    // The packet that an error quotes is its payload, headers included.
                    assert_eq!(naive(&packet[from..end]), 0, "{name}: {layer}");
                    checked += 1;
                    continue;
                }
                Protocol::Tcp => 6,
                Protocol::Udp if layer.value("checksum") == Some(0) => continue,
                Protocol::Udp => 17,
                Protocol::Icmpv6 => 58,
                _ => continue,
            };
            assert!(innermost || layer.protocol == Protocol::Udp);
            assert_eq!(naive(&pseudo(&dissection, layers[i - 1], number, from)), 0, "{name}: {layer}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn every_length_ends_where_the_packet_does() {
    for (name, packet) in every_kind() {
        let dissection = dissect(&packet);
        let end = dissection.payload_offset() + dissection.payload().len();
        for layer in dissection.layers().filter(|layer| !layer.quoted) {
            let rest = (end - layer.offset) as u128;
            let (field, expected) = match layer.protocol {
                Protocol::Ipv4 => ("total_length", rest),
                Protocol::Ipv6 => ("payload_length", rest - 40),
                Protocol::Udp => ("length", rest),
                Protocol::Pppoe => ("length", rest - 6),
                Protocol::Gtpu => ("length", rest - 8),
                _ => continue,
            };
            assert_eq!(layer.value(field), Some(expected), "{name}: {layer}");
        }
        let padded = name.ends_with("padded") || name == "arp-request";
        assert_eq!(dissection.padding().is_empty(), !padded, "{name}");
    }
}

/// A random value that fits `bits`.
fn some(random: &mut Random, bits: u32) -> u64 {
    random.next() >> (64 - bits)
}

#[test]
fn every_field_asked_for_is_found() {
    let mut random = Random(1);
    for _ in 0..2_000 {
        let r = &mut random;
        let (vid, pcp, ttl, dscp) = (some(r, 12), some(r, 3), some(r, 8), some(r, 6));
        let (ecn, identification, source, destination) = (some(r, 2), some(r, 16), some(r, 32), some(r, 32));
        let (sport, dport, seq, ack, window) =
            (some(r, 16), some(r, 16), some(r, 32), some(r, 32), some(r, 16));
        let (mss, shift, flags, label) = (some(r, 16), some(r, 4), some(r, 8), some(r, 20));
        let payload: Vec<u8> = (0..some(r, 8)).map(|_| r.next() as u8).collect();
        let packet = ethernet()
            .vlan(vid as u16)
            .priority(pcp as u8)
            .mpls(label as u32)
            .ipv4((source as u32).to_be_bytes(), (destination as u32).to_be_bytes())
            .ttl(ttl as u8)
            .dscp(dscp as u8)
            .ecn(ecn as u8)
            .identification(identification as u16)
            .tcp(sport as u16, dport as u16)
            .sequence(seq as u32)
            .ack(ack as u32)
            .flags(flags as u8)
            .window(window as u16)
            .maximum_segment_size(mss as u16)
            .window_scale(shift as u8)
            .payload(&payload);
        let frame = packet.build().unwrap();
        // Written without memory, it is the same, and no shorter buffer will do.
        let mut buffer = vec![0xaa; frame.len() + 7];
        assert_eq!(packet.write(&mut buffer), Ok(frame.len()));
        assert_eq!(buffer[..frame.len()], frame);
        assert!(buffer[frame.len()..].iter().all(|byte| *byte == 0xaa));
        let short = packet.write(&mut buffer[..frame.len() - 1]);
        assert_eq!(short, Err(BuildError::TooShort { needed: frame.len(), found: frame.len() - 1 }));

        let dissection = dissect(&frame);
        let found: Vec<_> = dissection.layers().collect();
        let kinds: Vec<_> = found.iter().map(|layer| layer.protocol).collect();
        assert_eq!(
            kinds,
            [Protocol::Ethernet, Protocol::Vlan, Protocol::Mpls, Protocol::Ipv4, Protocol::Tcp]
        );
        for (layer, field, value) in [
            (1, "vid", vid),
            (1, "pcp", pcp),
            (2, "label", label),
            (3, "time_to_live", ttl),
            (3, "dscp", dscp),
            (3, "ecn", ecn),
            (3, "identification", identification),
            (3, "source", source),
            (3, "destination", destination),
            (4, "source_port", sport),
            (4, "destination_port", dport),
            (4, "sequence_number", seq),
            (4, "acknowledgment_number", ack),
            (4, "window", window),
        ] {
            assert_eq!(found[layer].value(field), Some(u128::from(value)), "{field}");
        }
        for (field, bit) in
            [("fin", 0), ("syn", 1), ("rst", 2), ("psh", 3), ("ack", 4), ("urg", 5), ("ece", 6), ("cwr", 7)]
        {
            assert_eq!(found[4].flag(field), flags >> bit & 1 == 1, "{field}");
        }
        let options: Vec<_> = found[4].parts().map(|part| part.to_string()).collect();
        assert_eq!(
            options,
            [
                format!("maximum_segment_size kind 2, length 4, maximum_segment_size {mss}"),
                format!("window_scale kind 3, length 3, shift_count {shift}"),
            ]
        );
        assert_eq!(dissection.payload(), payload);
    }
}

#[test]
fn headers_come_in_the_order_asked_for() {
    let layers = |name: &str| {
        let packets = every_kind();
        let (_, packet) = packets.iter().find(|(kind, _)| *kind == name).unwrap();
        dissect(packet).layers().map(|layer| layer.name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(layers("qinq"), "ethernet vlan vlan ipv4 udp");
    assert_eq!(layers("mpls"), "ethernet mpls mpls ipv4 udp");
    assert_eq!(layers("pppoe-v6"), "ethernet pppoe ppp ipv6 udp");
    assert_eq!(layers("gre-words"), "ethernet ipv4 gre ipv6 udp");
    assert_eq!(layers("gre-ethernet"), "ethernet ipv6 gre ethernet vlan ipv4 udp");
    assert_eq!(layers("gre-mpls"), "ethernet ipv4 gre mpls ipv4 udp");
    assert_eq!(layers("pptp"), "ethernet ipv4 gre ppp ipv4 udp");
    assert_eq!(layers("vxlan"), "ethernet ipv4 udp vxlan ethernet ipv4 tcp");
    assert_eq!(layers("geneve"), "ethernet ipv4 udp geneve ethernet ipv6 udp");
    assert_eq!(layers("geneve-ip"), "ethernet ipv6 udp geneve ipv4 udp");
    assert_eq!(layers("gtpu-extension"), "ethernet ipv4 udp gtpu ipv6 udp");
    assert_eq!(layers("6in4"), "ethernet ipv4 ipv6 udp");
    assert_eq!(layers("icmp-unreachable"), "ethernet ipv4 icmp ipv4 udp");
    assert_eq!(layers("icmpv6-too-big"), "ethernet ipv6 icmpv6 ipv6 tcp");
    assert_eq!(layers("ipv4-last-fragment"), "ethernet ipv4");
}

#[test]
fn the_first_fragment_of_a_long_datagram_has_its_udp_header() {
    let whole = ipv4("10.0.0.1", "10.0.0.2").udp(1000, 2000).payload(&[5; 3000]).build().unwrap();
    let part = ethernet().ipv4("10.0.0.1", "10.0.0.2").protocol(17).identification(9).fragment(0, true);
    let frame = part.payload(&whole[20..20 + 1480]).build().unwrap();
    let dissection = dissect(&frame);
    assert_eq!(dissection.malformed(), None);
    let udp = dissection.layers().last().unwrap();
    // The length is that of the datagram; the payload is this fragment's part of it.
    assert_eq!((udp.name(), udp.value("length")), ("udp", Some(3008)));
    assert_eq!(dissection.payload().len(), 1480 - 8);
}

#[test]
fn packets_that_cannot_be_built_are_errors_that_say_why() {
    let text = |error: Result<Vec<u8>, BuildError>| error.unwrap_err().to_string();
    let base = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    assert_eq!(text(ethernet().source("02:00").build()), "`02:00` is not a MAC address");
    // The first error is reported.
    assert_eq!(text(ethernet().ipv6("::g", "x").udp(1, 2).build()), "`::g` is not an IPv6 address");
    assert_eq!(
        text(base().udp(1, 2).payload(&[0; 65_536]).build()),
        "udp: 65544 bytes are more than its length field can state (65535); shorten the payload"
    );
    assert_eq!(text(base().option(7, &[0; 39]).build()), "ipv4: 41 bytes of options, and 40 fit");
    let mut tcp = base().tcp(1, 2);
    for _ in 0..5 {
        tcp = tcp.timestamps(1, 2);
    }
    assert_eq!(text(tcp.build()), "tcp: 50 bytes of options, and 40 fit");
    let mut deep = ipv4("10.0.0.1", "10.0.0.2");
    for _ in 0..30 {
        deep = deep.ipv4("10.0.0.1", "10.0.0.2");
    }
    assert!(text(deep.build()).starts_with("the headers take more than 512 bytes or are more than 24"));
    // A call after an error does no harm.
    let v6 = ethernet()
        .ipv6("::g", "::1")
        .hop_by_hop(&[0; 300])
        .fragment(1, true, 2)
        .protocol(3)
        .routing(1, 2, &[0; 300]);
    assert!(v6.udp(1, 2).geneve(1).option(1, 2, &[0; 200]).build().is_err());
    let gtpu =
        ethernet().ipv4("x", "y").udp(1, 2).gtpu(1).sequence(1).extension(1, &[0; 300]).extension(1, &[0; 9]);
    assert!(gtpu.build().is_err());
    assert!(ethernet().ipv4("x", "y").gre().key(1).checksum().sequence(1).build().is_err());
    assert!(ethernet().arp_request("x", "y").build().is_err());
}
