//! Answers to rejected packets.

use std::time::Duration;

use netbricks_core::DropReason;
use netbricks_core::packet::print::dissect;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{Ip, IpRef};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{checksums, kinds};

use super::super::FirewallConfig;
use super::{clocked, run, with};

fn answering(lines: &[&str]) -> FirewallConfig {
    FirewallConfig {
        answer_v4: Some([192, 0, 2, 1].into()),
        answer_v6: "2001:db8:ff::1".parse().ok(),
        answer_rate: 1_000_000,
        ..with(lines)
    }
}

fn tcp(reply: &[u8]) -> (u8, u32, u32) {
    let (_, segment) = Ip::in_frame(reply).unwrap();
    let word = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    (segment[13], word(4), word(8))
}

#[test]
fn a_segment_is_answered_by_the_reset_that_its_receiver_would_send() {
    let segment = |bits: u8| {
        ethernet()
            .vlan(9)
            .ipv4("10.0.0.1", "10.0.0.2")
            .tcp(1_000, 80)
            .sequence(700)
            .ack(900)
            .flags(bits)
            .payload(b"12345")
    };
    for (sent, (bits, number, acknowledged)) in [
        (flags::SYN, (flags::RST | flags::ACK, 0, 706)),
        (flags::ACK, (flags::RST, 900, 0)),
        (flags::FIN | flags::ACK, (flags::RST, 900, 0)),
    ] {
        let frame = segment(sent).build().unwrap();
        let report = run(answering(&["tracking explicit", "reject"]), [frame.clone()]);
        assert_eq!(report.dropped(DropReason::Rejected), 1);
        let [reply] = &report.replies[..] else { panic!("{} replies", report.replies.len()) };
        assert_eq!(tcp(reply), (bits, number, acknowledged), "flags {sent:#x}");
        assert_eq!(
            (&reply[..6], &reply[6..12], &reply[12..18]),
            (&frame[6..12], &frame[..6], &frame[12..18])
        );
        assert_eq!(checksums::wrong(reply), Vec::<String>::new());
        let (header, segment) = Ip::in_frame(reply).unwrap();
        assert_eq!(header.source(), std::net::IpAddr::from([10, 0, 0, 2]));
        assert_eq!(segment[..4], [0, 80, 3, 232]);
    }
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1_000, 80).syn().build().unwrap();
    let report = run(answering(&["policy reject"]), [v6]);
    assert_eq!(tcp(&report.replies[0]), (flags::RST | flags::ACK, 0, 1));
    assert_eq!(checksums::wrong(&report.replies[0]), Vec::<String>::new());
}

#[test]
fn other_packets_are_answered_by_the_error_that_the_rule_says() {
    let v4 = || ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1_000, 80).build().unwrap();
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1_000, 80).build().unwrap();
    for (rule, codes) in [
        ("reject", [(3, 13), (1, 1)]),
        ("reject with prohibited", [(3, 13), (1, 1)]),
        ("reject with port", [(3, 3), (1, 4)]),
        ("reject with host", [(3, 1), (1, 3)]),
        ("reject with route", [(3, 0), (1, 0)]),
    ] {
        let report = run(answering(&[rule]), [v4(), v6()]);
        let found = report.replies.iter().map(|reply| {
            let (header, message) = Ip::in_frame(reply).unwrap();
            assert_eq!(checksums::wrong(reply), Vec::<String>::new());
            let from = match header {
                IpRef::V4(_) => "192.0.2.1".parse().unwrap(),
                IpRef::V6(_) => "2001:db8:ff::1".parse::<std::net::IpAddr>().unwrap(),
            };
            assert_eq!(header.source(), from);
            (message[0], message[1])
        });
        assert_eq!(found.collect::<Vec<_>>(), codes, "{rule}");
    }
    let report = run(answering(&["reject with reset"]), [v4(), v6()]);
    assert_eq!((report.replies.len(), report.dropped(DropReason::Rejected)), (0, 2));
    // Without an address there is no error to send; a reset needs none.
    let syn = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).syn().build().unwrap();
    assert_eq!(run(with(&["reject"]), [v4(), syn]).replies.len(), 1);
}

#[test]
fn some_packets_are_never_answered() {
    let ip = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    let mut wrong_sum = ip().tcp(1, 2).syn().build().unwrap();
    *wrong_sum.last_mut().unwrap() ^= 1;
    wrong_sum[50] ^= 1;
    let frames = [
        ip().tcp(1, 2).rst().build().unwrap(),
        ip().icmp_unreachable(1, &ip().udp(1, 2).build().unwrap()[14..]).build().unwrap(),
        ethernet().ipv4("10.0.0.1", "224.0.0.5").udp(1, 2).build().unwrap(),
        ethernet().ipv4("10.0.0.1", "224.0.0.5").tcp(1, 2).syn().build().unwrap(),
        ethernet().ipv4("0.0.0.0", "10.0.0.2").udp(1, 2).build().unwrap(),
        ethernet().ipv4("224.0.0.1", "10.0.0.2").tcp(1, 2).syn().build().unwrap(),
        ethernet().ipv4("10.0.0.1", "255.255.255.255").udp(1, 2).build().unwrap(),
        ethernet().destination("ff:ff:ff:ff:ff:ff").ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).build().unwrap(),
        ethernet()
            .destination("ff:ff:ff:ff:ff:ff")
            .ipv4("10.0.0.1", "10.0.0.2")
            .tcp(1, 2)
            .syn()
            .build()
            .unwrap(),
        ethernet().ipv6("2001:db8::1", "2001:db8::2").icmpv6_unreachable(1, &[0; 48]).build().unwrap(),
        wrong_sum,
    ];
    for frame in frames {
        let report = run(answering(&["tracking off", "policy reject"]), [frame.clone()]);
        assert_eq!(report.dropped(DropReason::Rejected), 1, "{frame:?}");
        assert_eq!(report.replies.len(), 0, "{frame:?}");
    }
}

#[test]
fn answers_are_well_formed_whatever_is_rejected() {
    for (name, frame) in kinds::every() {
        let report = run(answering(&["tracking off", "policy reject"]), [frame]);
        for reply in &report.replies {
            assert_eq!(checksums::wrong(reply), Vec::<String>::new(), "{name}");
            assert!(dissect(reply).malformed().is_none(), "{name}");
        }
    }
}

#[test]
fn one_rate_limit_holds_for_resets_and_errors() {
    let mut test = clocked(FirewallConfig { answer_rate: 10, ..answering(&["policy reject"]) });
    let frames = || {
        (0..100u16).map(|port| {
            let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2");
            if port % 2 == 0 { packet.tcp(port, 80).syn().build() } else { packet.udp(port, 80).build() }
                .unwrap()
        })
    };
    // The first ten, and those of the second at which the clock begins.
    assert_eq!(test.send(frames()).replies.len(), 20);
    test.advance(Duration::from_millis(550));
    assert_eq!(test.send(frames()).replies.len(), 5);
    assert_eq!(test.finish().dropped(DropReason::Rejected), 200);
}
