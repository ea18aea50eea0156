//! Design, section 5: arms that split and meet again inside one node.

use netbricks_core::packet::stack::Stack;
use netbricks_core::packet::{Ethernet, FlowKey, Ip, Ipv4, Link, Tcp, Udp, Vlan};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{IpRewrite, Metadata, View};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, Worker};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{run, run_with};
use proptest::prelude::*;

fn udp(port: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).payload(b"\0").build().unwrap()
}
fn tcp(port: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(port, 80).payload(b"\0").build().unwrap()
}
fn write<S: Stack>(packet: &mut View<'_, S>, value: u64) {
    if let Some(last) = packet.payload_mut().last_mut() {
        *last = value as u8;
    }
}

#[test]
fn arms_of_different_headers_meet_in_the_stack_at_the_split_or_on_the_wire() {
    fn marked(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .branch(
                |p| p.header().protocol() == 17,
                |udp| udp.parse::<Udp>().transform(|p| write(p, 17)).deparse(),
                |tcp| tcp.parse::<Tcp>().transform(|p| write(p, 6)).deparse(),
            )
            .transform(|p| p.header_mut().decrement_ttl())
            .done()
    }
    let icmp = ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(1, 1).build().unwrap();
    let report = run(marked, [udp(1), tcp(1), icmp, udp(2)]);
    assert_eq!(
        report.out.iter().map(|f| (*f.last().unwrap(), f[22])).collect::<Vec<_>>(),
        [(17, 63), (6, 63), (17, 63)]
    );
    assert_eq!(report.dropped(DropReason::Unmatched), 1);

    fn forgotten(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .branch(
                |p| p.header().protocol() == 17,
                |udp| udp.parse::<Udp>().forget(),
                |tcp| tcp.parse::<Tcp>().forget(),
            )
            .parse::<Link>()
            .done()
    }
    assert_eq!(run(forgotten, [udp(1), tcp(1)]).out.len(), 2);
}

#[test]
fn ways_of_different_stacks_meet_in_what_they_have_in_common() {
    // One arm knows more headers and metadata, the other inserts a header. The common stack follows both.
    fn met(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .fork(
                |p| p.header().ethertype() == 0x0800,
                |v4| {
                    v4.parse::<Ipv4>()
                        .map(|p| p.header().ttl())
                        .fork(
                            |p| *p.get::<u8>() > 9,
                            |near| near.parse::<Udp>().transform(|p| write(p, 1)),
                            |far| far.filter(DropReason::TtlExpired, |p| *p.get::<u8>() > 1),
                        )
                        .transform(|p| p.header_mut().decrement_ttl())
                },
                |other| other.insert(|_| Vlan::new(7, 0x86dd)).map(|_| 5u64),
            )
            .transform(|p| p.header_mut().set_destination([2; 6].into()))
            .done()
    }
    let v4 = |ttl| ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(ttl).udp(1, 2).payload(b"\0").build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(b"\0").build().unwrap();
    let report = run(met, [v4(64), v4(5), v4(1), v6.clone()]);
    assert_eq!(report.dropped(DropReason::TtlExpired), 1);
    let [near, far, tagged] = report.out.as_slice() else { panic!("{:?}", report.out) };
    assert_eq!((near[22], near.last()), (63, Some(&1)));
    assert_eq!((far[22], far.last()), (4, Some(&0)));
    assert!(report.out.iter().all(|frame| frame[..6] == [2; 6]));
    assert_eq!(tagged[12..16], [0x81, 0, 0, 7]);
    assert_eq!(tagged[16..], v6[12..]);
}

#[test]
fn arms_may_send_away_and_drop() {
    fn apart(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .branch(
                |p| p.header().protocol() == 17,
                |udp| udp.divert(Edge(5), |p| p.payload()[1] == 1),
                |tcp| tcp.filter(DropReason::Denied, |_| false),
            )
            .done()
    }
    let report = run(apart, [udp(1), tcp(1), udp(2)]);
    assert_eq!(
        (&report.out, &report.replies, report.dropped(DropReason::Denied)),
        (&vec![udp(2)], &vec![udp(1)], 1)
    );
}

/// One arm, or none, or both wait on memory.
fn waiting(input: Input, worker: &Worker) -> impl Function {
    let count = |n: Option<&mut u64>| {
        n.map_or(0, |n| {
            *n += 1;
            *n
        })
    };
    let (udps, tcps) = (
        worker.flow_table::<FlowKey, u64>("udps", FlowTableConfig::new(512)),
        worker.flow_table::<FlowKey, u64>("tcps", FlowTableConfig::new(512)),
    );
    input
        .parse::<Link>()
        .parse::<Ip>()
        .branch(
            |p| p.header().protocol() == 17,
            |udp| {
                udp.lookup(&udps, |p| p.flow_key(), move |_, entry| count(entry.or_insert_with(|| 0)))
                    .forget_metadata()
            },
            |tcp| {
                tcp.branch(
                    |p| p.payload()[1] % 2 == 0,
                    |even| {
                        even.lookup(
                            &tcps,
                            |p| p.flow_key(),
                            move |_, entry| count(entry.or_insert_with(|| 100)),
                        )
                        .transform(|p| {
                            let n = *p.get::<u64>();
                            write(p, n);
                        })
                        .forget_metadata()
                    },
                    |odd| odd.filter(DropReason::Denied, |p| p.payload()[1] % 4 == 1),
                )
            },
        )
        .done()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn arms_that_wait_give_what_one_packet_at_a_time_gives(packets in proptest::collection::vec((any::<bool>(), 0u16..8), 0..400)) {
        let report = run_with(waiting, packets.iter().map(|(is_udp, port)| if *is_udp { udp(*port) } else { tcp(*port) }));
        let mut seen = [100u8; 8];
        let mut expected = Vec::new();
        for (is_udp, port) in &packets {
            if *is_udp {
                expected.push(udp(*port));
            } else if port % 2 == 0 {
                let mut frame = tcp(*port);
                seen[*port as usize] += 1;
                *frame.last_mut().unwrap() = seen[*port as usize];
                expected.push(frame);
            } else if port % 4 == 1 {
                expected.push(tcp(*port));
            }
        }
        prop_assert_eq!(report.out, expected);
    }

    #[test]
    fn groups_have_state_of_their_own(ports in proptest::collection::vec(0u16..50, 0..400), groups in 0usize..6) {
        // Each group numbers its packets, in a closure's variable and in a table of its own.
        let report = run_with(move |input, worker| {
            let tables: Vec<_> = (0..groups.max(1))
                .map(|_| worker.flow_table::<u64, u64>("seen", FlowTableConfig::new(4)))
                .collect();
            input.parse::<Link>().parse::<Ip>().group_by(groups, |p| p.payload()[1] as usize, move |i, start| {
                let mut count = 0u64;
                start
                    .lookup(&tables[i], |_| 0u64, |_, entry| entry.or_insert_with(|| 0).map_or(0, |n| { *n += 1; *n }))
                    .transform(move |p| {
                        count += 1;
                        assert_eq!(*p.get::<u64>(), count);
                        write(p, count * 8 + i as u64);
                    })
                    .forget_metadata()
            })
            .done()
        }, ports.iter().map(|port| udp(*port)));
        prop_assert_eq!(report.panics.len(), 0);
        let mut counts = vec![0u64; groups.max(1)];
        let expected: Vec<u8> = ports.iter().map(|port| {
            // A group beyond the last wraps around.
            let group = *port as usize % groups.max(1);
            counts[group] += 1;
            (counts[group] * 8 + group as u64) as u8
        }).collect();
        prop_assert_eq!(report.out.iter().map(|f| *f.last().unwrap()).collect::<Vec<_>>(), expected);
    }
}
