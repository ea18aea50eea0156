use netbricks_core::packet::MacAddress;
use netbricks_core::packet::print::dissect;
use netbricks_core::{DropReason, Settings};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Report, checksums, kinds, run_configured};

use super::{EchoConfig, icmp_echo};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn config() -> EchoConfig {
    EchoConfig {
        mac: Some("02:00:00:00:00:99".into()),
        v4: Some([10, 0, 0, 2].into()),
        v6: "2001:db8::2".parse().ok(),
    }
}
fn run(frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
    run_configured(icmp_echo, config(), frames)
}
fn sound(frame: &[u8]) {
    assert!(dissect(frame).malformed().is_none(), "{:?}", dissect(frame));
    assert_eq!(checksums::wrong(frame), Vec::<String>::new(), "{:?}", dissect(frame));
}

#[test]
fn arp_requests_for_us_are_answered_as_rfc_826_says() {
    let request = ethernet().arp_request("10.0.0.1", "10.0.0.2").pad_to(60).build().unwrap();
    let report = run([request]);
    let reply = ethernet()
        .source(OURS)
        .destination(THEIRS)
        .arp_reply("10.0.0.2", "10.0.0.1")
        .pad_to(60)
        .build()
        .unwrap();
    assert_eq!((report.out.len(), report.replies), (0, vec![reply]));
    // The reply to a tagged request has the same tag.
    let report = run([ethernet().vlan(7).arp_request("10.0.0.1", "10.0.0.2").build().unwrap()]);
    assert_eq!(report.replies[0][12..16], [0x81, 0, 0, 7]);
    // Requests for others, and replies, pass.
    let others = [
        ethernet().arp_request("10.0.0.1", "10.0.0.3").build().unwrap(),
        ethernet().arp_reply("10.0.0.1", "10.0.0.2").build().unwrap(),
    ];
    assert_eq!(run(others.clone()).out, others);
}

#[test]
fn echo_requests_come_back_with_their_payload_whatever_its_size() {
    let bytes: Vec<u8> = (0..1_400).map(|i| i as u8).collect();
    for size in [0, 1, 2, 3, 55, 56, 57, 1_399, 1_400] {
        let v4 = ethernet()
            .ipv4("10.0.0.1", "10.0.0.2")
            .ttl(3)
            .icmp_echo_request(7, 9)
            .payload(&bytes[..size])
            .build()
            .unwrap();
        let v6 = ethernet()
            .vlan(5)
            .ipv6("2001:db8::1", "2001:db8::2")
            .icmpv6_echo_request(7, 9)
            .payload(&bytes[..size])
            .build()
            .unwrap();
        let report = run([v4, v6]);
        assert_eq!((report.out.len(), report.replies.len(), report.drops.total().packets), (0, 2, 0));
        let v4 = ethernet()
            .source(OURS)
            .destination(THEIRS)
            .ipv4("10.0.0.2", "10.0.0.1")
            .icmp_echo_reply(7, 9)
            .payload(&bytes[..size]);
        let v6 = ethernet().source(OURS).destination(THEIRS).vlan(5).ipv6("2001:db8::2", "2001:db8::1");
        let v6 = v6.icmpv6_echo_reply(7, 9).payload(&bytes[..size]);
        assert_eq!(report.replies, [v4.build().unwrap(), v6.build().unwrap()], "{size} bytes");
    }
}

#[test]
fn a_wrong_checksum_is_not_answered() {
    for mut frame in [
        ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(7, 9).payload(b"abc").build().unwrap(),
        ethernet()
            .ipv6("2001:db8::1", "2001:db8::2")
            .icmpv6_echo_request(7, 9)
            .payload(b"abc")
            .build()
            .unwrap(),
    ] {
        *frame.last_mut().unwrap() ^= 1;
        let report = run([frame]);
        assert_eq!((report.replies.len(), report.dropped(DropReason::BadChecksum)), (0, 1));
    }
}

#[test]
fn padding_is_not_echoed_into_the_checksum() {
    let mut frame =
        ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(7, 9).payload(b"x").build().unwrap();
    frame.extend([0xaa; 17]);
    let report = run([frame]);
    assert_eq!(report.replies.len(), 1);
    sound(&report.replies[0]);
}

#[test]
fn fragments_and_other_protocols_to_us_are_consumed_as_local_delivery() {
    let us = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    let us6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    let frames = [
        us().fragment(0, true).icmp_echo_request(7, 9).payload(&[0; 32]).build().unwrap(),
        us().fragment(100, false).protocol(1).payload(&[0; 32]).build().unwrap(),
        us().udp(1, 2).build().unwrap(),
        us().icmp_echo_reply(1, 1).build().unwrap(),
        ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1, 2).syn().build().unwrap(),
        // On a source route we are a stop, and a sender with a home address is not at its source address.
        us().option(131, &[4, 10, 0, 0, 9]).icmp_echo_request(7, 9).build().unwrap(),
        us6().routing(0, 1, &[0; 20]).icmpv6_echo_request(7, 9).build().unwrap(),
        us6()
            .destination_options(&[&[1, 2, 0, 0, 201, 16][..], &[9; 16]].concat())
            .icmpv6_echo_request(7, 9)
            .build()
            .unwrap(),
    ];
    for frame in frames {
        let report = run([frame.clone()]);
        assert_eq!(
            (report.replies.len(), report.dropped(DropReason::LocalDelivery)),
            (0, 1),
            "{:?}",
            dissect(&frame)
        );
    }
}

#[test]
fn a_completed_route_ends_at_us() {
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").option(131, &[8, 10, 0, 0, 9]);
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").routing(0, 0, &[0; 20]);
    for frame in [v4.icmp_echo_request(7, 9).build(), v6.icmpv6_echo_request(7, 9).build()] {
        let report = run([frame.unwrap()]);
        assert_eq!(report.replies.len(), 1);
        sound(&report.replies[0]);
    }
}

#[test]
fn neighbour_solicitations_are_answered_as_rfc_4861_says() {
    let solicitation = |source: &str, hops| {
        ethernet()
            .ipv6(source, "ff02::1:ff00:2")
            .hop_limit(hops)
            .neighbor_solicitation("2001:db8::2", THEIRS)
            .build()
            .unwrap()
    };
    let report = run([solicitation("2001:db8::1", 255)]);
    assert_eq!((report.dropped(DropReason::Answered), report.out.len()), (1, 0));
    let expected =
        ethernet().source(OURS).destination(THEIRS).ipv6("2001:db8::2", "2001:db8::1").hop_limit(255);
    assert_eq!(report.replies, [expected.neighbor_advertisement("2001:db8::2", OURS).build().unwrap()]);
    // With a hop limit below 255, it came from another link (section 7.1.1).
    let report = run([solicitation("2001:db8::1", 254)]);
    assert_eq!((report.replies.len(), report.dropped(DropReason::Malformed)), (0, 1));
    // A solicitation for another host passes.
    let other = ethernet()
        .ipv6("2001:db8::1", "ff02::1:ff00:3")
        .hop_limit(255)
        .neighbor_solicitation("2001:db8::3", THEIRS);
    let other = other.build().unwrap();
    assert_eq!(run([other.clone()]).out, [other]);
}

#[test]
fn duplicate_detection_is_answered_to_all_nodes() {
    // RFC 4861, section 7.2.4: from the unspecified address, without a link address option; the answer goes to all
    // nodes and is not "solicited".
    let target: std::net::Ipv6Addr = "2001:db8::2".parse().unwrap();
    let packet = ethernet().destination("33:33:ff:00:00:02").ipv6("::", "ff02::1:ff00:2").hop_limit(255);
    let report = run([packet.icmpv6(135, 0, [0; 4]).payload(&target.octets()).build().unwrap()]);
    let answer = &report.replies[0];
    sound(answer);
    assert_eq!((&answer[..6], &answer[6..12]), (&[0x33, 0x33, 0, 0, 0, 1][..], &OURS[..]));
    assert_eq!((&answer[38..40], answer[53], answer[54], answer[58] & 0x40), (&[0xff, 0x02][..], 1, 136, 0));
}

#[test]
fn a_solicitation_with_a_wrong_checksum_is_not_answered() {
    let packet = ethernet()
        .ipv6("2001:db8::1", "ff02::1:ff00:2")
        .hop_limit(255)
        .neighbor_solicitation("2001:db8::2", THEIRS);
    let mut frame = packet.build().unwrap();
    frame[57] ^= 0x11;
    let report = run([frame]);
    assert_eq!(
        (report.replies.len(), report.dropped(DropReason::BadChecksum)),
        (0, 1),
        "RFC 4861, section 7.1.1"
    );
}

#[test]
fn everything_else_passes_unchanged() {
    for (name, frame) in kinds::every() {
        let to_us =
            [[10, 0, 0, 2].to_vec(), "2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()];
        let is_ours = to_us.iter().any(|us| frame.windows(us.len()).any(|bytes| bytes == us));
        if !is_ours && frame.len() >= 14 {
            assert_eq!(run([frame.clone()]).out, [frame], "{name}");
        }
    }
}

#[test]
fn no_multicast_source_is_answered() {
    let mut frame = ethernet().ipv4("224.0.0.1", "10.0.0.2").icmp_echo_request(1, 1).build().unwrap();
    assert_eq!(run([frame.clone()]).replies.len(), 0, "RFC 1122 §3.2.1.3: a source address is one host's");
    frame = ethernet().ipv6("ff02::1", "2001:db8::2").icmpv6_echo_request(1, 1).build().unwrap();
    assert_eq!(run([frame]).replies.len(), 0);
}

#[test]
fn settings_that_do_not_do_are_named() {
    let refused = |text: &str| toml::from_str::<EchoConfig>(text).unwrap().check().unwrap_err().key;
    assert_eq!(refused(""), "v4");
    assert_eq!(refused("v4 = \"224.0.0.1\""), "v4");
    assert_eq!(refused("v6 = \"::\""), "v6");
    assert_eq!(refused("v4 = \"10.0.0.1\"\nmac = \"01:00:5e:00:00:01\""), "mac");
    assert_eq!(refused("v4 = \"10.0.0.1\"\nmac = \"nonsense\""), "mac");
    assert_eq!(
        toml::from_str::<EchoConfig>("v4 = \"10.0.0.1\"").unwrap().mac(),
        MacAddress::new([2, 0x4e, 0x42, 0, 0, 1])
    );
}
