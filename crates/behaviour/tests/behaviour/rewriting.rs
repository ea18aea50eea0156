//! Addresses and ports: the flow key equals the packet's fields, and every checksum stays right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::print::{Protocol, dissect};
use netbricks_core::packet::rewrite::RewriteError;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::view::IpRewrite;
use netbricks_core::{Function, Input, Operator, Verdict};
use netbricks_testkit::{checksums, kinds, run};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Change {
    v4: [Ipv4Addr; 2],
    v6: [Ipv6Addr; 2],
    ports: [u16; 2],
}

fn rewrite(input: Input, change: Change) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .transform(move |p| {
            let v6 = matches!(p.header(), netbricks_core::packet::IpRef::V6(_));
            let [source, destination] =
                if v6 { change.v6.map(IpAddr::V6) } else { change.v4.map(IpAddr::V4) };
            let other = if v6 { IpAddr::V4(change.v4[0]) } else { IpAddr::V6(change.v6[0]) };
            let before = p.frame().to_vec();
            assert_eq!(p.set_source(other), Err(RewriteError::WrongVersion));
            assert_eq!(p.frame(), before, "a refused change changes nothing");
            if p.set_source(source).is_ok() && p.set_destination(destination).is_ok() {
                let ports = p.set_source_port(change.ports[0]).is_ok()
                    && p.set_destination_port(change.ports[1]).is_ok();
                let key = p.flow_key();
                assert_eq!((key.source(), key.destination()), (source, destination));
                if ports {
                    assert_eq!([key.source_port(), key.destination_port()], change.ports);
                }
            }
        })
        .done()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn checksums_stay_right(a: [u8; 4], b: [u8; 4], c: [u8; 16], d: [u8; 16], ports: [u16; 2]) {
        let change = Change { v4: [a.into(), b.into()], v6: [c.into(), d.into()], ports };
        let all = kinds::every();
        let report = run(move |input| rewrite(input, change), all.iter().map(|(_, frame)| frame.clone()));
        prop_assert_eq!(&report.panics, &[]);
        for frame in &report.out {
            prop_assert_eq!(checksums::wrong(frame), Vec::<String>::new(), "{:?}", dissect(frame));
        }
    }
}

#[test]
fn the_flow_key_is_the_five_tuple_behind_any_tag() {
    fn keys(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .or(Verdict::PASS)
            .parse::<Ip>()
            .or(Verdict::PASS)
            .transform(|p| {
                let (key, frame) = (p.flow_key(), p.frame());
                assert_eq!(Some(key), FlowKey::from_frame(frame));
                let dissection = dissect(frame);
                let ip = dissection
                    .layers()
                    .find(|l| matches!(l.protocol, Protocol::Ipv4 | Protocol::Ipv6))
                    .unwrap();
                let word = |at: usize| [ip.bytes[at], ip.bytes[at + 1], ip.bytes[at + 2], ip.bytes[at + 3]];
                if ip.protocol == Protocol::Ipv4 {
                    assert_eq!(
                        [key.source(), key.destination()],
                        [word(12), word(16)].map(|a| IpAddr::from(Ipv4Addr::from(a)))
                    );
                }
                let after = dissection.layers().find(|l| l.offset == ip.offset + ip.bytes.len());
                if let Some(ports) = after.filter(|l| matches!(l.protocol, Protocol::Udp | Protocol::Tcp))
                    && !key.is_fragment()
                {
                    let expected =
                        [0, 2].map(|at| u16::from_be_bytes([ports.bytes[at], ports.bytes[at + 1]]));
                    assert_eq!([key.source_port(), key.destination_port()], expected);
                }
            })
            .done()
    }
    let report = run(keys, kinds::every().into_iter().map(|(_, frame)| frame));
    assert_eq!(report.panics, []);
}

#[test]
fn exchanged_addresses_go_back_where_they_came_from() {
    fn back(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .or(Verdict::PASS)
            .parse::<Ip>()
            .or(Verdict::PASS)
            .transform(|p| {
                let before = (p.header().source(), p.header().destination());
                p.exchange_addresses().unwrap();
                assert_eq!((p.header().destination(), p.header().source()), before);
            })
            .done()
    }
    let report = run(back, kinds::every().into_iter().map(|(_, frame)| frame));
    assert_eq!(report.panics, []);
    assert!(report.out.iter().all(|frame| checksums::wrong(frame).is_empty()));
}
