//! Design, sections 4 and 5: headers that match, do not match, or are malformed.
//!
//! One chain parses every kind of tag.

use netbricks_core::packet::print::{Protocol, dissect};
use netbricks_core::packet::{Arp, Ethernet, Ip, Ipv4, Link, Udp, Vlan};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{Enclosing, Metadata};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict, Worker};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Report, checksums, kinds, run, run_with};

fn udp() -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hello").build().unwrap()
}
fn arp() -> Vec<u8> {
    ethernet().arp_request("10.0.0.1", "10.0.0.2").pad_to(60).build().unwrap()
}
/// An IPv4 header whose IHL is below the minimum.
fn broken() -> Vec<u8> {
    let mut frame = udp();
    frame[14] = 0x44;
    frame
}
/// An IPv4 header whose total length points beyond the frame.
fn lying() -> Vec<u8> {
    let mut frame = udp();
    frame[16] = 0xff;
    frame
}

fn hops(input: Input) -> impl Function {
    input.parse::<Link>().parse::<Ip>().transform(|p| p.header_mut().decrement_ttl()).done()
}

#[test]
fn unmatched_and_malformed_are_different_reasons() {
    let report = run(hops, [udp(), arp(), broken(), lying(), vec![0; 13]]);
    assert_eq!(report.out.len(), 1);
    assert_eq!([report.dropped(DropReason::Unmatched), report.dropped(DropReason::Malformed)], [1, 3]);
}

#[test]
fn a_parse_without_a_reader_still_selects() {
    let report = run(|input| input.parse::<Ethernet>().parse::<Arp>().done(), [udp(), arp()]);
    assert_eq!((report.out, report.drops.total().packets), (vec![arp()], 1));
}

/// Checks that packets pass a function without `done` as they pass one with it.
///
/// The function stands alone, before another function, and before one that waits on memory.
#[test]
fn packets_pass_a_function_that_does_not_end_in_done() {
    fn open(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .or(Verdict::PASS)
            .transform(|p| p.header_mut().decrement_ttl())
            .forget()
    }
    fn closed(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .or(Verdict::PASS)
            .transform(|p| p.header_mut().decrement_ttl())
            .done()
    }
    fn marks(input: Input) -> impl Function {
        input.parse::<Ethernet>().transform(|p| p.payload_mut()[0] ^= 0xff).done()
    }
    fn waits(input: Input, worker: &Worker) -> impl Function + use<> {
        let seen = worker.flow_table::<u64, u8>("seen", FlowTableConfig::new(16));
        input
            .parse::<Ethernet>()
            .lookup(
                &seen,
                |p| u64::from(p.payload()[0]),
                |_, entry| entry.or_insert_with(|| 7).map_or(0, |v| *v),
            )
            .transform(|p| {
                let seen = *p.get::<u8>();
                p.payload_mut()[1] ^= seen;
            })
            .done()
    }
    let frames = [udp(), arp(), broken(), udp(), arp()];
    let same = |found: Report, expected: Report| {
        assert_eq!(found.out, expected.out);
        assert_eq!(found.drops, expected.drops);
        assert_eq!(found.out.len(), 4);
    };
    same(run(open, frames.clone()), run(closed, frames.clone()));
    same(run(|i| open(i).then(marks), frames.clone()), run(|i| closed(i).then(marks), frames.clone()));
    same(
        run_with(|i, worker| open(i).then(|i| waits(i, worker)), frames.clone()),
        run_with(|i, worker| closed(i).then(|i| waits(i, worker)), frames),
    );
}

#[test]
fn unmatched_packets_may_pass_and_malformed_packets_may_not() {
    fn deny(input: Input) -> impl Function {
        input.parse::<Link>().parse::<Ip>().or(Verdict::PASS).filter(DropReason::Denied, |_| false).done()
    }
    let report = run(deny, [arp(), udp(), broken()]);
    assert_eq!(report.out, [arp()]);
    assert_eq!([report.dropped(DropReason::Denied), report.dropped(DropReason::Malformed)], [1, 1]);
    // `PASS` leaves one function only: the next one still gets the packet.
    let report =
        run(|input| deny(input).then(|input| input.parse::<Ethernet>().parse::<Ipv4>().done()), [arp()]);
    assert_eq!(report.dropped(DropReason::Unmatched), 1);
}

#[test]
fn unmatched_packets_may_take_an_edge_or_the_configured_way() {
    let report = run(|input| input.parse::<Link>().parse::<Ip>().or(Edge(4)).done(), [arp(), udp()]);
    assert_eq!((report.out, report.replies), (vec![udp()], vec![arp()]));
    for (verdict, passed, denied) in [(Verdict::PASS, 1, 0), (Verdict::drop(DropReason::Denied), 0, 1)] {
        let report = run(move |input| input.parse::<Link>().parse::<Ip>().or(verdict).done(), [arp()]);
        assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (passed, denied));
    }
}

/// The remaining hops of the outermost IP header.
fn hops_left(frame: &[u8]) -> Option<u128> {
    let dissection = dissect(frame);
    let ip = dissection.layers().find(|l| matches!(l.protocol, Protocol::Ipv4 | Protocol::Ipv6))?;
    ip.value("ttl").or_else(|| ip.value("time_to_live")).or_else(|| ip.value("hop_limit"))
}

#[test]
fn one_chain_serves_every_tag_and_both_versions() {
    let frames: Vec<_> = kinds::every().into_iter().filter(|(_, frame)| hops_left(frame).is_some()).collect();
    assert!(["vlan", "qinq", "mpls", "pppoe"].iter().all(|tag| frames.iter().any(|(name, _)| name == tag)));
    for (name, frame) in frames {
        let report = run(hops, [frame.clone()]);
        let out = &report.out[0];
        assert_eq!(hops_left(out), hops_left(&frame).map(|ttl| ttl.saturating_sub(1)), "{name}");
        assert_eq!(checksums::wrong(out), Vec::<String>::new(), "{name}");
        // Nothing but the hops and, in IPv4, the checksum (2 bytes) may have changed.
        let changed = frame.iter().zip(out).filter(|(before, after)| before != after).count();
        assert!(changed <= 3 && frame.len() == out.len(), "{name}: {changed} bytes changed");
    }
}

#[test]
fn enclosing_headers_and_tags_stay_visible() {
    fn tagged(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .filter(DropReason::Denied, |p| {
                p.outer::<Link>().vlans().iter().map(|vlan| vlan.vid()).eq([5, 6])
                    && p.outer::<Ip>().ttl() == 64
                    && p.header().destination_port() == 53
                    && p.payload() == b"hi"
            })
            .transform(|p| p.outer_mut::<Link>().ethernet_mut().swap_addresses())
            .done()
    }
    let tags =
        |a, b| ethernet().qinq(a, b).ipv4("10.0.0.1", "10.0.0.2").udp(1, 53).payload(b"hi").build().unwrap();
    let report = run(tagged, [tags(5, 6), tags(6, 5)]);
    assert_eq!((report.out.len(), report.dropped(DropReason::Denied)), (1, 1));
    assert_eq!(report.out[0][..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
}

#[test]
fn padding_is_no_payload() {
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"x").pad_to(60).build().unwrap();
    fn exact(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .filter(DropReason::Denied, |p| p.payload() == b"x")
            .done()
    }
    assert_eq!(run(exact, [frame]).out.len(), 1);
}

#[test]
fn deparse_returns_a_header_to_the_payload_and_changes_nothing() {
    fn back(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .parse::<Vlan>()
            .parse::<Ipv4>()
            .deparse()
            .filter(DropReason::Denied, |p| p.header().vid() == 7 && p.payload()[0] == 0x45)
            .parse::<Ipv4>()
            .filter(DropReason::Denied, |p| p.header().fixed().ttl() == 64)
            .deparse()
            .deparse()
            .filter(DropReason::Denied, |p| p.payload().len() == p.frame_len() - 14)
            .done()
    }
    let frame = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).build().unwrap();
    assert_eq!(run(back, [frame.clone()]).out, [frame]);
}

#[test]
fn offsets_are_those_of_the_parse() {
    // A change of a length field has no effect until the next parse, which then sees it.
    fn shrink(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .transform(|p| p.payload_mut()[2..4].copy_from_slice(&0xffffu16.to_be_bytes()))
            .transform(|p| assert_eq!(p.payload().len(), p.frame_len() - 14))
            .parse::<Ipv4>()
            .done()
    }
    assert_eq!(run(shrink, [udp()]).dropped(DropReason::Malformed), 1);
}
