//! The operators that need only the current packet.

use netbricks_core::packet::{Ethernet, Ip, Link, Udp};
use netbricks_core::view::{Enclosing, Metadata};
use netbricks_core::{Class, DropReason, Edge, Function, Input, Operator, Verdict};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run;

fn to_port(port: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, port).payload(b"hello").build().unwrap()
}
fn ports() -> Vec<Vec<u8>> {
    (0..300).map(to_port).collect()
}

#[test]
fn transform_changes_header_and_payload() {
    fn shout(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .transform(|p| {
                p.header_mut().set_destination_port(99);
                p.payload_mut().make_ascii_uppercase();
            })
            .done()
    }
    let report = run(shout, [to_port(1)]);
    assert_eq!((&report.out[0][36..38], &report.out[0][42..]), (&[0, 99][..], &b"HELLO"[..]));
}

#[test]
fn filter_keeps_order_and_counts_the_rest() {
    fn even(input: Input) -> impl Function {
        let even = |port: u16| port.is_multiple_of(2);
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .filter(DropReason::Denied, move |p| even(p.header().destination_port()))
            .done()
    }
    let report = run(even, ports());
    assert_eq!(report.out, (0..300).step_by(2).map(to_port).collect::<Vec<_>>());
    assert_eq!(report.dropped(DropReason::Denied), 150);
    assert_eq!(report.drops.of(DropReason::Denied).bytes, 150 * to_port(0).len() as u64);
}

#[test]
fn rejected_packets_may_be_answered() {
    fn expired(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .filter(DropReason::TtlExpired, |p| p.header().ttl() > 1)
            .on_reject(|p| {
                p.reply(Edge::REPLY, 60, |bytes, p| bytes[0] = p.header().ttl());
            })
            .done()
    }
    let old = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap();
    let report = run(expired, [to_port(1), old]);
    assert_eq!((report.out.len(), report.replies.len(), report.replies[0][0]), (1, 1, 1));
    assert_eq!(report.dropped(DropReason::TtlExpired), 1);
}

#[test]
fn inspect_sees_every_packet_in_order() {
    fn number(input: Input) -> impl Function {
        let (mut seen, mut sum) = (0u16, 0u64);
        input
            .parse::<Ethernet>()
            .inspect(move |p| {
                let port = u16::from_be_bytes([p.frame()[36], p.frame()[37]]);
                assert_eq!(port, seen, "out of order");
                seen += 1;
                sum += p.frame_len() as u64;
                assert_eq!(sum, u64::from(seen) * 47);
            })
            .done()
    }
    let report = run(number, ports());
    assert_eq!((report.out, report.panics.len()), (ports(), 0));
}

#[test]
fn divert_sends_some_away_and_may_change_them_first() {
    fn some(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .divert(Edge(2), |p| {
                p.header_mut().swap_addresses();
                p.payload()[23] >= 128
            })
            .done()
    }
    let report = run(some, ports());
    let swapped = |port| {
        let mut frame = to_port(port);
        frame[..12].rotate_left(6);
        frame
    };
    let is_away = |port: &u16| port % 256 >= 128;
    assert_eq!(report.out, (0..300).filter(|p| !is_away(p)).map(swapped).collect::<Vec<_>>());
    assert_eq!(report.replies, (0..300).filter(is_away).map(swapped).collect::<Vec<_>>());
}

#[test]
fn decide_keeps_drops_consumes_diverts_and_passes() {
    fn each(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .decide(|p| match p.header().destination_port() {
                0 => Ok(()),
                1 => Err(Verdict::drop(DropReason::RateLimited)),
                2 => Err(Verdict::drop(DropReason::LocalDelivery)),
                3 => Err(Verdict::REPLY),
                _ => Err(Verdict::PASS),
            })
            .transform(|p| p.header_mut().set_source_port(9))
            .done()
    }
    let report = run(each, (0..5).map(to_port));
    assert_eq!((report.out.len(), &report.replies), (2, &vec![to_port(3)]));
    assert_eq!((report.out[0][35], report.out[1].clone()), (9, to_port(4)));
    let drops = [DropReason::RateLimited, DropReason::LocalDelivery].map(|reason| report.dropped(reason));
    assert_eq!(drops, [1, 1]);
    assert_eq!((report.drops.dropped().packets, report.drops.consumed().packets), (1, 1));
    assert_eq!(DropReason::LocalDelivery.class(), Class::Consumed);
}

#[test]
fn metadata_is_typed_and_reaches_past_later_parses() {
    #[derive(Clone, Copy)]
    struct Size(usize);
    #[derive(Clone, Copy)]
    struct Last(u8);
    fn classify(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .map(|p| Size(p.frame_len()))
            .parse::<Ip>()
            .map(|p| Last(p.payload()[3]))
            .parse::<Udp>()
            .filter(DropReason::Denied, |p| {
                p.get::<Last>().0 == 7 && p.get::<Size>().0 == 47 && p.outer::<Ip>().ttl() == 64
            })
            .done()
    }
    let report = run(classify, [to_port(7), to_port(8)]);
    assert_eq!((&report.out, report.dropped(DropReason::Denied)), (&vec![to_port(7)], 1));
}

#[test]
fn the_innermost_metadata_of_a_type_counts_and_can_be_forgotten() {
    fn shadow(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .map(|_| 2u8)
            .forget_metadata()
            .parse::<Ip>()
            .map(|p| p.header().ttl())
            .filter(DropReason::Denied, |p| *p.get::<u8>() == 64)
            .done()
    }
    assert_eq!(run(shadow, [to_port(1)]).out.len(), 1);
}

#[test]
fn send_ends_a_function() {
    fn away(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .or(Verdict::PASS)
            .filter(DropReason::Denied, |p| p.header().ttl() > 1)
            .send(Edge(3))
    }
    let arp = ethernet().arp_request("10.0.0.1", "10.0.0.2").build().unwrap();
    let old = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1, 2).build().unwrap();
    let report = run(away, [to_port(1), arp.clone(), old]);
    assert_eq!(
        (report.out.len(), &report.replies, report.dropped(DropReason::Denied)),
        (0, &vec![to_port(1), arp], 1)
    );
}

#[test]
fn the_time_stands_still_within_a_batch() {
    fn timed(input: Input) -> impl Function {
        input.parse::<Ethernet>().filter(DropReason::Denied, |p| p.now() == 0).done()
    }
    assert_eq!(run(timed, ports()).out.len(), 300);
}
