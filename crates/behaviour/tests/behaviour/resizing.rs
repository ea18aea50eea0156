//! Headers are inserted and removed.
//!
//! Lengths, next-header numbers and checksums are updated, which the tests check by dissecting the packet.

use netbricks_core::buffer::Batch;
use netbricks_core::packet::print::dissect;
use netbricks_core::packet::{Ethernet, FlowKey, Ip, Ipv4, Ipv6, Link, Udp, Vlan};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{DetachedContext, DropReason, Function, Input, Operator, Verdict, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{checksums, kinds, run, run_with};

use crate::harness;

fn layers(frame: &[u8]) -> Vec<&'static str> {
    dissect(frame).layers().map(|layer| layer.name()).collect()
}
/// Dissects a packet and checks that nothing in it is wrong.
fn sound(frame: &[u8]) {
    assert!(dissect(frame).malformed().is_none(), "{:?}", dissect(frame));
    assert_eq!(checksums::wrong(frame), Vec::<String>::new(), "{:?}", dissect(frame));
}

fn tag(input: Input) -> impl Function {
    input.parse::<Ethernet>().map(|p| p.header().ethertype()).insert(|p| Vlan::new(7, *p.get::<u16>())).done()
}
fn untag(input: Input) -> impl Function {
    input.parse::<Ethernet>().parse::<Vlan>().or(Verdict::PASS).remove().done()
}

#[test]
fn a_tag_goes_on_and_comes_off_every_kind_of_packet() {
    for (name, frame) in kinds::every() {
        if frame.len() < 14 || frame[12] < 6 {
            continue;
        }
        let tagged = run(tag, [frame.clone()]).out.remove(0);
        assert_eq!(
            (tagged.len(), &tagged[..12], &tagged[16..]),
            (frame.len() + 4, &frame[..12], &frame[12..]),
            "{name}"
        );
        assert_eq!(tagged[12..16], [0x81, 0, 0, 7], "{name}");
        assert_eq!(run(untag, [tagged]).out, [frame], "{name}");
    }
}

#[test]
fn the_chain_goes_on_in_the_new_stack() {
    fn on(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .insert(|_| Vlan::new(9, 0x0800))
            .transform(|p| assert_eq!(p.header().vid(), 9))
            .parse::<Ipv4>()
            .transform(|p| p.header_mut().decrement_ttl())
            .deparse()
            .remove()
            .parse::<Ipv4>()
            .filter(DropReason::Denied, |p| p.header().fixed().ttl() == 63)
            .done()
    }
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"x").build().unwrap();
    let report = run(on, [frame.clone()]);
    assert_eq!((report.panics.len(), layers(&report.out[0])), (0, vec!["ethernet", "ipv4", "udp"]));
    sound(&report.out[0]);
}

#[test]
fn ip_in_ip_before_and_behind_the_header_that_is_there() {
    fn around(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .insert(|p| Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 4, p.payload().len()))
            .done()
    }
    fn inside(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ipv4>()
            .insert(|p| Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17, p.payload().len()))
            .done()
    }
    fn inside6(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ipv6>()
            .insert(|p| Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 253, p.payload().len()))
            .done()
    }
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(b"hello").build().unwrap();
    let out = run(around, [frame.clone()]).out.remove(0);
    sound(&out);
    assert_eq!(layers(&out), ["ethernet", "ipv4", "ipv4", "udp"]);
    assert_eq!((&out[34..], &out[26..30]), (&frame[14..], &[192, 0, 2, 1][..]));

    // Behind: the outer header announces the new one and covers it. The transport checksum knew other addresses.
    for (frame, at) in [
        (
            ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).unchecked().payload(b"hello").build().unwrap(),
            14,
        ),
        (
            ethernet()
                .vlan(3)
                .ipv4("10.0.0.1", "10.0.0.2")
                .router_alert()
                .udp(1, 2)
                .unchecked()
                .build()
                .unwrap(),
            18,
        ),
        (ethernet().pppoe(3).ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).unchecked().build().unwrap(), 22),
    ] {
        let out = run(inside, [frame.clone()]).out.remove(0);
        sound(&out);
        let (before, after) = (layers(&frame), layers(&out));
        assert_eq!(after.len(), before.len() + 1);
        assert_eq!(after[after.len() - 3..], ["ipv4", "ipv4", "udp"]);
        assert_eq!(
            u16::from_be_bytes([out[at + 2], out[at + 3]]),
            u16::from_be_bytes([frame[at + 2], frame[at + 3]]) + 20
        );
        assert_eq!(out[at + 9], 4);
    }
    let frame = ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .hop_by_hop(&[5, 2, 0, 0])
        .udp(1, 2)
        .payload(b"x")
        .build()
        .unwrap();
    let out = run(inside6, [frame.clone()]).out.remove(0);
    assert!(dissect(&out).malformed().is_none());
    assert_eq!(layers(&out)[..3], ["ethernet", "ipv6", "ipv4"]);
    assert_eq!(
        (out[18] as usize * 256 + out[19] as usize, out[54]),
        (8 + 20 + 9, 4),
        "payload length, and what hop-by-hop announces"
    );
}

/// A lookup packs the stack and unpacks it after the batch has waited: lengths are restated as without a
/// lookup.
#[test]
fn packets_that_waited_on_memory_are_resized_like_others() {
    fn on(input: Input, _: &Worker) -> impl Function {
        input.parse::<Link>().parse::<Ip>().insert(|p| Udp::new(5000, 6000, p.payload().len())).done()
    }
    fn on_later(input: Input, worker: &Worker) -> impl Function {
        let flows = worker.flow_table::<FlowKey, u8>("flows", FlowTableConfig::new(8));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(&flows, |p| p.flow_key(), |_, _| ())
            .forget_metadata()
            .insert(|p| Udp::new(5000, 6000, p.payload().len()))
            .done()
    }
    fn off(input: Input, _: &Worker) -> impl Function {
        input.parse::<Link>().parse::<Ip>().parse::<Udp>().remove().done()
    }
    fn off_later(input: Input, worker: &Worker) -> impl Function {
        let flows = worker.flow_table::<FlowKey, u8>("flows", FlowTableConfig::new(8));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .lookup(&flows, |p| p.flow_key(), |_, _| ())
            .forget_metadata()
            .remove()
            .done()
    }
    let mut resized = 0;
    for (name, frame) in kinds::every().into_iter().filter(|(_, frame)| frame.len() < 1_500) {
        let out = run_with(on, [frame.clone()]).out;
        resized += out.len();
        assert_eq!(run_with(on_later, [frame.clone()]).out, out, "{name}");
        for longer in out {
            let back = run_with(off, [longer.clone()]).out;
            assert_eq!(run_with(off_later, [longer]).out, back, "{name}");
        }
    }
    assert!(resized > 10, "{resized}");
}

#[test]
fn a_header_in_between_and_out_again_restores_every_byte() {
    fn on(input: Input) -> impl Function {
        input.parse::<Link>().parse::<Ip>().insert(|p| Udp::new(5000, 6000, p.payload().len())).done()
    }
    fn off(input: Input) -> impl Function {
        input.parse::<Link>().parse::<Ip>().parse::<Udp>().remove().done()
    }
    for (name, frame) in kinds::every() {
        let dissection = dissect(&frame);
        let Some(ip) = dissection.layers().find(|l| l.name().starts_with("ipv")) else { continue };
        if name.contains("fragment") || name == "jumbo" {
            continue;
        }
        let end = ip.offset + ip.bytes.len();
        let report = run(on, [frame.clone()]);
        let out = &report.out[0];
        // Only an IPv6 packet must have a checksum there, which is the author's task.
        assert!(
            checksums::wrong(out)
                .iter()
                .all(|wrong| ip.name() == "ipv6" && wrong == &format!("udp at {end}")),
            "{name}"
        );
        assert_eq!(&out[end..end + 4], &[0x13, 0x88, 0x17, 0x70], "{name}");
        assert_eq!(&out[end + 8..], &frame[end..], "{name}");
        let back = run(off, [out.clone()]).out.remove(0);
        let number = if ip.name() == "ipv4" { 9 } else { 6 };
        // What UDP carried has no number of its own, so the packet says UDP still or nothing; all else is as before.
        let mut expected = frame.clone();
        let same = back.len() == expected.len() && {
            if ip.bytes.len() <= 40 || ip.name() == "ipv4" {
                expected[ip.offset + number] = back[ip.offset + number];
            }
            if ip.name() == "ipv4" {
                expected[ip.offset + 10..ip.offset + 12]
                    .copy_from_slice(&back[ip.offset + 10..ip.offset + 12]);
            }
            back[end..] == expected[end..] && back[..ip.offset + 4] == expected[..ip.offset + 4]
        };
        assert!(same, "{name}");
        assert!(!checksums::wrong(&back).iter().any(|wrong| wrong.starts_with("ipv4")), "{name}");
    }
}

#[test]
fn lengths_beyond_their_field_are_too_big() {
    fn inside(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ipv4>()
            .insert(|p| Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17, p.payload().len()))
            .done()
    }
    for (payload, fits) in [(0xffff - 48, 1), (0xffff - 47, 0)] {
        let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).unchecked();
        let report = run(inside, [frame.payload(&vec![0; payload]).build().unwrap()]);
        assert_eq!((report.out.len(), report.dropped(DropReason::TooBig)), (fits, 1 - fits as u64));
        report.out.iter().for_each(|out| sound(out));
    }
}

#[test]
fn without_headroom_a_packet_is_too_big() {
    let pool = harness::pool();
    let worker = harness::worker(&pool);
    let mut node = compose(&worker, tag).unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).build().unwrap();
    let packet = pool.packet(&frame).unwrap();
    let room = packet.headroom();
    assert!(batch.push(packet).is_ok());
    for tags in 1..=room / 4 {
        node.process(0, &mut batch, &mut cx);
        assert_eq!(batch.bytes() as usize, frame.len() + 4 * tags, "a batch knows its bytes");
    }
    assert_eq!(cx.take_drops().total().packets, 0);
    node.process(0, &mut batch, &mut cx);
    assert_eq!((batch.len(), cx.take_drops().of(DropReason::TooBig).packets), (0, 1));
    assert_eq!(pool.available(), pool.capacity());
}
