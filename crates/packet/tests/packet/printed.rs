//! Lines, trees and differences as people read them.

use netbricks_packet::build::ethernet;
use netbricks_packet::print::{difference, dissect, one_line, tree};

use crate::kinds::every_kind;

fn line(name: &str) -> String {
    let packets = every_kind();
    let (_, packet) = packets.iter().find(|(kind, _)| *kind == name).unwrap();
    one_line(packet).to_string()
}

#[test]
fn one_line_says_who_talks_to_whom_about_what() {
    for (name, expected) in [
        ("tcp-syn", "10.0.0.1:40000 > 10.0.0.2:80 TCP SYN 74 bytes"),
        ("tcp-ack", "10.0.0.1:40000 > 10.0.0.2:80 TCP PSH ACK 72 bytes"),
        ("qinq", "vlan 100 vlan 200 10.0.0.1:1000 > 10.0.0.2:2000 UDP 51 bytes"),
        ("mpls", "mpls 16 mpls 17 10.0.0.1:1000 > 10.0.0.2:2000 UDP 51 bytes"),
        ("pppoe", "pppoe 0x1234 10.0.0.1:1000 > 10.0.0.2:2000 UDP 51 bytes"),
        ("arp-request", "ARP who-has 10.0.0.2 tell 10.0.0.1 60 bytes"),
        ("arp-reply", "vlan 3 ARP 10.0.0.2 is-at 02:00:00:00:00:01 46 bytes"),
        (
            "ipv4-first-fragment",
            "10.0.0.1:1000 > 10.0.0.2:2000 fragment 0x0007 at 0, more follow, UDP 98 bytes",
        ),
        ("ipv4-last-fragment", "10.0.0.1 > 10.0.0.2 udp fragment 0x0007 at 64, the last, 43 bytes"),
        ("ipv6-last-fragment", "2001:db8::1 > 2001:db8::2 udp fragment 0x00abcdef at 32, the last, 78 bytes"),
        ("ipv6-fields", "[2001:db8::1]:1000 > [2001:db8::2]:80 TCP SYN 74 bytes"),
        ("icmp-echo", "10.0.0.1 > 10.0.0.2 ICMP echo-request id 1 seq 2 98 bytes"),
        (
            "icmp-unreachable",
            "10.0.0.1 > 10.0.0.2 ICMP destination-unreachable code 3 10.0.0.1:1000 > 10.0.0.2:33434 UDP 94 bytes",
        ),
        (
            "icmpv6-too-big",
            "2001:db8::1 > 2001:db8::2 ICMPv6 packet-too-big [2001:db8::1]:1000 > [2001:db8::2]:80 TCP SYN 146 bytes",
        ),
        (
            "vxlan",
            "10.0.0.1:50000 > 10.0.0.2:4789 UDP VXLAN 77 10.1.0.1:1000 > 10.1.0.2:80 TCP SYN 104 bytes",
        ),
        (
            "gtpu",
            "10.0.0.1:2152 > 10.0.0.2:2152 UDP GTP-U 0x01020304 10.1.0.1:1000 > 10.1.0.2:2000 UDP 79 bytes",
        ),
    ] {
        assert_eq!(line(name), expected, "{name}");
    }
}

#[test]
fn unread_protocols_are_still_named() {
    let lldp = ethernet().ethertype(0x88cc).payload(&[0; 46]).build().unwrap();
    let expected = "02:00:00:00:00:01 > 02:00:00:00:00:02 ethertype lldp (0x88cc) 60 bytes";
    assert_eq!(one_line(&lldp).to_string(), expected);
    let ospf = ethernet().ipv4("10.0.0.1", "224.0.0.5").protocol(89).payload(&[0; 8]).build().unwrap();
    assert_eq!(one_line(&ospf).to_string(), "10.0.0.1 > 224.0.0.5 ospf 42 bytes");
    let mut tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).build().unwrap();
    tcp[14 + 20 + 12] = 0x40;
    assert_eq!(
        one_line(&tcp).to_string(),
        "10.0.0.1 > 10.0.0.2 tcp malformed at 34: tcp: its data offset is less than 20 bytes (needed 20, found 16), 54 bytes"
    );
    assert_eq!(
        one_line(&[0; 5]).to_string(),
        "malformed at 0: ethernet: the frame ends before the header does (needed 14, found 5), 5 bytes"
    );
}

#[test]
fn the_tree_has_every_field_and_option() {
    let packet =
        ethernet().ipv4("10.0.0.1", "10.0.0.2").router_alert().tcp(1000, 80).syn().maximum_segment_size(1460);
    let frame = packet.payload(b"hi").pad_to(70).build().unwrap();
    let text = tree(&frame).to_string();
    for layer in dissect(&frame).layers() {
        for (field, shown) in layer.fields() {
            assert!(text.contains(&format!("\n  {} {shown}", field.name)), "{} of {layer}", field.name);
        }
    }
    for expected in [
        "frame, 70 bytes\nethernet at 0, 14 bytes\n  destination 02:00:00:00:00:02\n",
        "\n  router_alert kind 148, length 4, data 0000\ntcp at 38, 24 bytes\n",
        "\n  maximum_segment_size kind 2, length 4, maximum_segment_size 1460\n",
        "\npayload at 62, 2 bytes: 6869\npadding at 64, 6 bytes: 000000000000",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn a_difference_names_fields_headers_and_payload() {
    let base = || ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(64);
    let before = base().udp(1000, 53).payload(b"hello").build().unwrap();
    assert_eq!(difference(&before, &before).to_string(), "");

    let after = base().ttl(63).udp(1000, 53).payload(b"hello").build().unwrap();
    let [old, new] = [&before, &after].map(|frame| u16::from_be_bytes([frame[24], frame[25]]));
    assert_eq!(
        difference(&before, &after).to_string(),
        format!("ipv4.time_to_live 64 → 63, ipv4.header_checksum {old:#06x} → {new:#06x}")
    );

    let tagged =
        ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hello").build().unwrap();
    assert_eq!(
        difference(&before, &tagged).to_string(),
        "ethernet.ethertype ipv4 (0x0800) → 802.1q (0x8100), \
         inserted vlan pcp 0, vid 7, ethertype ipv4 (0x0800)"
    );
    assert!(
        difference(&tagged, &before)
            .to_string()
            .ends_with("removed vlan pcp 0, vid 7, ethertype ipv4 (0x0800)")
    );

    let mut changed = before.clone();
    (changed[43], changed[45]) = (b'a', b'b');
    assert_eq!(difference(&before, &changed).to_string(), "payload: 2 bytes changed from 1 on");

    let [syn, clamped] =
        [1460, 1400].map(|mss| base().tcp(1, 80).syn().maximum_segment_size(mss).build().unwrap());
    let text = difference(&syn, &clamped).to_string();
    assert!(text.ends_with("tcp.maximum_segment_size.maximum_segment_size 1460 → 1400"), "{text}");
    let bare = base().tcp(1, 80).syn().build().unwrap();
    let text = difference(&syn, &bare).to_string();
    assert!(
        text.contains("tcp.data_offset 6 → 5") && text.contains("tcp: removed maximum_segment_size kind 2"),
        "{text}"
    );

    let [one, two] =
        [64, 63].map(|ttl| base().ipv4("1.1.1.1", "2.2.2.2").ttl(ttl).udp(1, 2).build().unwrap());
    assert!(difference(&one, &two).to_string().starts_with("ipv4#2.time_to_live 64 → 63"));
}
