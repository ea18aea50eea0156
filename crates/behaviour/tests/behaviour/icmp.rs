//! ICMP errors (RFC 1122 §3.2.2, RFC 1812 §4.3.2.7, RFC 4443 §2.4).
//!
//! The tests check which packets get none, their rate, and their content.

use netbricks_core::icmp::{IcmpError, IcmpErrors, ProblemCode, Unreachable};
use netbricks_core::packet::print::dissect;
use netbricks_core::packet::{Ip, Link};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{checksums, run};

use crate::harness::{Feed, Rig, Sink, blueprint, check};

fn answering(input: Input, rate: u64) -> impl Function {
    let mut errors =
        IcmpErrors::new(Some([192, 0, 2, 1].into()), Some("2001:db8:ff::1".parse().unwrap()), rate);
    input
        .parse::<Link>()
        .parse::<Ip>()
        .filter(DropReason::TtlExpired, |p| p.header().ttl() > 1)
        .on_reject(move |p| {
            errors.answer(p, IcmpError::TimeExceeded);
        })
        .done()
}
fn answers(frame: Vec<u8>) -> Vec<Vec<u8>> {
    run(|input| answering(input, 1_000), [frame]).replies
}

/// Answers every packet with this error.
fn answers_with(error: IcmpError, frame: Vec<u8>) -> Vec<Vec<u8>> {
    let report = run(
        move |input: Input| {
            let mut errors =
                IcmpErrors::new(Some([192, 0, 2, 1].into()), "2001:db8:ff::1".parse().ok(), 1_000);
            input
                .parse::<Link>()
                .parse::<Ip>()
                .filter(DropReason::Denied, |_| false)
                .on_reject(move |packet| {
                    errors.answer(packet, error);
                })
                .done()
        },
        [frame],
    );
    report.replies
}

fn parameter(code: ProblemCode, pointer: u32) -> IcmpError {
    IcmpError::ParameterProblem { code, pointer }
}

/// Every error, with type, code and the four bytes behind the checksum in IPv4, and in IPv6.
fn every_error() -> Vec<(IcmpError, [u8; 6], [u8; 6])> {
    let unreachable = IcmpError::DestinationUnreachable;
    vec![
        (unreachable(Unreachable::NoRoute), [3, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
        (unreachable(Unreachable::Host), [3, 1, 0, 0, 0, 0], [1, 3, 0, 0, 0, 0]),
        (unreachable(Unreachable::Port), [3, 3, 0, 0, 0, 0], [1, 4, 0, 0, 0, 0]),
        (unreachable(Unreachable::Prohibited), [3, 13, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]),
        (IcmpError::PacketTooBig { mtu: 1_400 }, [3, 4, 0, 0, 5, 120], [2, 0, 0, 0, 5, 120]),
        (IcmpError::PacketTooBig { mtu: 70_000 }, [3, 4, 0, 0, 255, 255], [2, 0, 0, 1, 0x11, 0x70]),
        (IcmpError::TimeExceeded, [11, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]),
        (parameter(ProblemCode::ErroneousField, 1), [12, 0, 1, 0, 0, 0], [4, 0, 0, 0, 0, 1]),
        (parameter(ProblemCode::UnrecognizedNextHeader, 6), [12, 0, 6, 0, 0, 0], [4, 1, 0, 0, 0, 6]),
        (parameter(ProblemCode::UnrecognizedOption, 42), [12, 0, 42, 0, 0, 0], [4, 2, 0, 0, 0, 42]),
    ]
}

#[test]
fn every_error_says_what_its_rfc_says_in_both_versions() {
    let v4 = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hello").build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1000, 53).payload(b"hello").build().unwrap();
    for (error, in_v4, in_v6) in every_error() {
        for (frame, link, header, expected) in [(&v4, 18, 20, in_v4), (&v6, 14, 40, in_v6)] {
            let replies = answers_with(error, frame.clone());
            let [answer] = &replies[..] else { panic!("{error:?}: {} answers", replies.len()) };
            assert_eq!(checksums::wrong(answer), Vec::<String>::new(), "{error:?}");
            assert!(dissect(answer).malformed().is_none(), "{error:?}");
            let icmp = &answer[link + header..];
            assert_eq!((&icmp[..2], &icmp[4..8]), (&expected[..2], &expected[2..]), "{error:?}");
            assert_eq!(icmp[8..], frame[link..], "{error:?} quotes the packet");
        }
    }
    // A pointer beyond what IPv4 has room for.
    let far = parameter(ProblemCode::ErroneousField, 256);
    assert_eq!((answers_with(far, v4).len(), answers_with(far, v6).len()), (0, 1));
}

#[test]
fn ipv4_errors_are_atomic_and_have_precedence_6() {
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(&[3; 900]).build().unwrap();
    for (error, ..) in every_error() {
        let answer = &answers_with(error, frame.clone())[0];
        // RFC 1812 section 4.3.2.5; the other bits of the octet are 0.
        assert_eq!(answer[15], 6 << 5, "{error:?}");
        // RFC 6864 section 4.1: don't fragment, no fragment.
        assert_eq!(answer[20..22], [0x40, 0], "{error:?}");
    }
}

/// Checks for every kind of error that it is not sent where it must not be.
#[test]
fn no_error_of_any_kind_is_an_answer_to_what_must_not_be_answered() {
    let v4 = |from: &str, to: &str| ethernet().ipv4(from, to).udp(1, 2).payload(b"x").build().unwrap();
    let mut frames = vec![
        ("an error", ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_unreachable(1, &[0; 28]).build().unwrap()),
        ("a redirect", ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp(5, 0, [0; 4]).build().unwrap()),
        (
            "an error of IPv6",
            ethernet().ipv6("2001:db8::1", "2001:db8::2").icmpv6_unreachable(1, &[0; 48]).build().unwrap(),
        ),
        (
            "a later fragment",
            ethernet()
                .ipv4("10.0.0.1", "10.0.0.2")
                .fragment(9, true)
                .protocol(17)
                .payload(&[1; 8])
                .build()
                .unwrap(),
        ),
        (
            "a later fragment of IPv6",
            ethernet()
                .ipv6("2001:db8::1", "2001:db8::2")
                .fragment(9, true, 1)
                .protocol(17)
                .payload(&[1; 8])
                .build()
                .unwrap(),
        ),
        ("without a source", v4("0.0.0.0", "10.0.0.2")),
        ("from many", v4("224.0.0.1", "10.0.0.2")),
        ("to many", v4("10.0.0.1", "239.1.2.3")),
        ("to all", v4("10.0.0.1", "255.255.255.255")),
        ("from many in IPv6", ethernet().ipv6("ff02::1", "2001:db8::2").udp(1, 2).build().unwrap()),
        ("without a source in IPv6", ethernet().ipv6("::", "ff02::2").udp(1, 2).build().unwrap()),
        (
            "in a broadcast of the link",
            ethernet()
                .destination("ff:ff:ff:ff:ff:ff")
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(1, 2)
                .build()
                .unwrap(),
        ),
    ];
    let mut broken = v4("10.0.0.1", "10.0.0.2");
    broken[24] ^= 1;
    frames.push(("a wrong header checksum", broken));
    for (error, ..) in every_error() {
        for (name, frame) in &frames {
            assert_eq!(answers_with(error, frame.clone()).len(), 0, "{name}: {error:?}");
        }
    }
}

#[test]
fn ipv6_packets_to_many_are_answered_where_they_are_too_big_or_an_option_asks_for_it() {
    // A hop-by-hop header whose option is of this type: at byte 42 of the packet.
    let multicast = |option: u8| {
        let packet = ethernet().destination("33:33:00:00:00:05").ipv6("2001:db8::1", "ff0e::5");
        packet.hop_by_hop(&[option, 2, 0, 0]).udp(1, 2).payload(b"x").build().unwrap()
    };
    for (error, ..) in every_error() {
        for option in [0x05, 0x45, 0x85, 0xc5] {
            let expected = match error {
                IcmpError::PacketTooBig { .. } => 1,
                IcmpError::ParameterProblem { code: ProblemCode::UnrecognizedOption, .. } => {
                    usize::from(option == 0x85)
                }
                _ => 0,
            };
            assert_eq!(answers_with(error, multicast(option)).len(), expected, "{error:?}, {option:#x}");
        }
    }
    let beyond = parameter(ProblemCode::UnrecognizedOption, u32::MAX);
    assert_eq!(answers_with(beyond, multicast(0x85)).len(), 0);
}

const GROUP: &str = "01:00:5e:00:00:01";

#[test]
fn the_answer_is_valid_goes_back_and_quotes_the_packet() {
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1000, 53).payload(b"hello").build().unwrap();
    let answer = &answers(v4.clone())[0];
    assert_eq!(checksums::wrong(answer), Vec::<String>::new());
    assert_eq!((&answer[..6], &answer[6..12]), (&v4[6..12], &v4[..6]));
    assert_eq!((&answer[26..30], &answer[30..34]), (&[192, 0, 2, 1][..], &[10, 0, 0, 1][..]));
    assert_eq!((&answer[34..36], &answer[42..]), (&[11, 0][..], &v4[14..]));

    let v6 = ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .hop_limit(1)
        .udp(1000, 53)
        .payload(b"hello")
        .build()
        .unwrap();
    let answer = &answers(v6.clone())[0];
    assert_eq!(checksums::wrong(answer), Vec::<String>::new());
    assert_eq!((&answer[38..54], &answer[54..56], &answer[62..]), (&v6[22..38], &[3, 0][..], &v6[14..]));
}

#[test]
fn tags_are_kept_and_padding_is_not_quoted() {
    let frame =
        ethernet().qinq(100, 200).ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).pad_to(80).build().unwrap();
    let answer = &answers(frame.clone())[0];
    assert_eq!(answer[12..22], frame[12..22]);
    assert_eq!(answer.len(), 22 + 20 + 8 + 28);
    let names: Vec<_> = dissect(answer).layers().map(|layer| (layer.name(), layer.quoted)).collect();
    assert_eq!(names[3..], [("ipv4", false), ("icmp", false), ("ipv4", true), ("udp", true)]);
}

#[test]
fn behind_labels_and_in_sessions_there_is_no_way_back() {
    assert!(
        answers(ethernet().mpls(16).ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap())
            .is_empty()
    );
    assert!(
        answers(ethernet().pppoe(1).ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap())
            .is_empty()
    );
}

#[test]
fn answers_are_as_large_as_they_may_be() {
    let payload = [7; 1_400];
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).payload(&payload).build().unwrap();
    // RFC 1812 §4.3.2.3: as much as fits 576 bytes. RFC 4443 §2.4 (c): the minimum MTU.
    assert_eq!(answers(v4)[0].len(), 14 + 576);
    let v6 = ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .hop_limit(0)
        .udp(1, 2)
        .payload(&payload)
        .build()
        .unwrap();
    assert_eq!(answers(v6)[0].len(), 14 + 1280);
}

#[test]
fn ipv4_that_must_never_be_answered() {
    let from = |source: &str, destination: &str| {
        ethernet().ipv4(source, destination).ttl(1).udp(1, 2).payload(b"x").build().unwrap()
    };
    assert_eq!(answers(from("10.0.0.1", "10.0.0.2")).len(), 1);
    for source in
        ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"]
    {
        assert!(answers(from(source, "10.0.0.2")).is_empty(), "from {source}, which is no single host");
    }
    for destination in ["224.0.0.5", "239.1.2.3", "255.255.255.255"] {
        assert!(answers(from("10.0.0.1", destination)).is_empty(), "to {destination}, which is many");
    }
    for mac in [GROUP, "ff:ff:ff:ff:ff:ff"] {
        let frame =
            ethernet().destination(mac).ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap();
        assert!(answers(frame).is_empty(), "in a link-layer broadcast");
    }
    let later =
        ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).fragment(100, true).protocol(17).payload(&[1; 16]);
    assert!(answers(later.build().unwrap()).is_empty(), "a later fragment");
    let first = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).fragment(0, true).udp(1, 2).payload(&[1; 16]);
    assert_eq!(answers(first.build().unwrap()).len(), 1, "the first fragment is answered");
}

#[test]
fn icmp_errors_are_never_answered_and_queries_are() {
    let v4 = |kind| {
        ethernet()
            .ipv4("10.0.0.1", "10.0.0.2")
            .ttl(1)
            .icmp(kind, 0, [0; 4])
            .payload(&[0; 28])
            .build()
            .unwrap()
    };
    let v6 = |kind| {
        ethernet()
            .ipv6("2001:db8::1", "2001:db8::2")
            .hop_limit(1)
            .icmpv6(kind, 0, [0; 4])
            .payload(&[0; 48])
            .build()
            .unwrap()
    };
    let is_query = |kind| matches!(kind, 0 | 8 | 9 | 10 | 13..=18);
    for kind in 0..=255 {
        assert_eq!(answers(v4(kind)).len(), usize::from(is_query(kind)), "ICMP type {kind}");
        assert_eq!(answers(v6(kind)).len(), usize::from(kind >= 128 && kind != 137), "ICMPv6 type {kind}");
    }
    // A message without even a type may be anything.
    let empty = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).protocol(1).payload(b"").build().unwrap();
    assert!(answers(empty).is_empty());
}

#[test]
fn ipv6_that_must_never_be_answered() {
    let from = |source: &str, destination: &str| {
        ethernet().ipv6(source, destination).hop_limit(1).udp(1, 2).payload(b"x").build().unwrap()
    };
    assert_eq!(answers(from("2001:db8::1", "2001:db8::2")).len(), 1);
    for source in ["::", "::1", "ff02::1"] {
        assert!(answers(from(source, "2001:db8::2")).is_empty(), "from {source}");
    }
    for destination in ["ff02::1", "ff0e::5"] {
        assert!(answers(from("2001:db8::1", destination)).is_empty(), "to {destination}");
    }
    let frame =
        ethernet().destination("33:33:00:00:00:01").ipv6("2001:db8::1", "2001:db8::2").hop_limit(1).udp(1, 2);
    assert!(answers(frame.build().unwrap()).is_empty(), "in a link-layer multicast");
    let later = ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .hop_limit(1)
        .fragment(8, false, 1)
        .protocol(17)
        .payload(&[1; 16]);
    assert!(answers(later.build().unwrap()).is_empty(), "a later fragment");
}

#[test]
fn answers_are_limited_by_the_clock() {
    let (feed, replies) = (Feed::default(), Sink::default());
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(feed.clone()));
    let node = rig.function("ttl", &blueprint(|worker| compose(worker, |input| answering(input, 100))));
    let (end, aside) =
        (rig.add("end", Box::new(Sink::default())), rig.add("replies", Box::new(replies.clone())));
    rig.chain(&[source, node, end]);
    rig.connect(node, Edge::REPLY.0, aside);
    let (mut graph, _) = rig.build();
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap();
    let answered = |graph: &mut netbricks_core::Graph, now| {
        let before = replies.frames().len();
        feed.add(vec![frame.clone(); 100]);
        graph.wake();
        let _ = graph.turn(now);
        check(graph);
        replies.frames().len() - before
    };
    // 100 a second in bursts of 32, from a clock that starts wherever it does.
    let start = 1_700_000_000_000_000_000;
    assert_eq!(answered(&mut graph, start), 32);
    assert_eq!(answered(&mut graph, start), 0);
    assert_eq!(answered(&mut graph, start + 9_999_999), 0);
    assert_eq!(answered(&mut graph, start + 10_000_000), 1);
    assert_eq!(answered(&mut graph, start + 75_000_000), 6);
    assert_eq!(answered(&mut graph, start + 80_000_000), 1, "what is left of an interval is not lost");
    assert_eq!(answered(&mut graph, start + 10_000_000_000), 32);
}

#[test]
fn errors_without_an_address_or_a_rate_are_silent() {
    assert!(IcmpErrors::new(None, None, 100).is_silent());
    assert!(IcmpErrors::new(Some([10, 0, 0, 1].into()), None, 0).is_silent());
    fn only_v6(input: Input) -> impl Function {
        let mut errors = IcmpErrors::new(None, Some("2001:db8::9".parse().unwrap()), 100);
        input
            .parse::<Link>()
            .parse::<Ip>()
            .filter(DropReason::TtlExpired, |_| false)
            .on_reject(move |p| {
                errors.answer(p, IcmpError::TimeExceeded);
            })
            .done()
    }
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").hop_limit(1).udp(1, 2).build().unwrap();
    assert_eq!(run(only_v6, [v4, v6]).replies.len(), 1);
}
