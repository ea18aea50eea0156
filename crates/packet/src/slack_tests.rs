//! Length fields of frames that are incomplete, or whose length is stated nowhere.
//!
//! For each header: the values that it accepts, and how far it reads.

extern crate std;
use std::vec::Vec;

use crate::build::ethernet;
use crate::stack::{Layer, LengthSlack, Root, Stack};
use crate::{Ethernet, FlowKey, Ip, Ipv4, Ipv6, Link, Udp, Vlan};

fn missing(missing: usize) -> LengthSlack {
    LengthSlack { missing, unstated: false }
}

const UNSTATED: LengthSlack = LengthSlack { missing: 0, unstated: true };

/// The IP header's end and its payload's, if it is well-formed so far.
fn ip(frame: &[u8], slack: LengthSlack) -> Option<(usize, usize)> {
    let link = Layer::<Root, Link>::parse_with(Root, frame, slack).ok()?;
    let ip = Layer::<_, Ip>::parse_with(link, frame, slack).ok()?;
    Some((ip.end(), ip.limit(frame.len())))
}

fn frames() -> Vec<(Vec<u8>, usize)> {
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 300]).build().unwrap();
    let tagged =
        ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 300]).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(&[7; 300]).build().unwrap();
    Vec::from([(v4, 34), (tagged, 38), (v6, 54)])
}

#[test]
fn a_header_of_a_cut_frame_is_found_if_its_end_was_on_the_wire() {
    for (frame, end) in frames() {
        let key = FlowKey::related_from_frame(&frame).unwrap();
        for kept in 0..=frame.len() {
            let (here, gone) = (&frame[..kept], frame.len() - kept);
            let found = (kept >= end).then_some((end, kept));
            assert_eq!(ip(here, missing(gone)), found, "{kept} bytes");
            assert_eq!(ip(here, missing(gone + 9)), found, "a trailer is missing too");
            if gone > 0 {
                assert_eq!(ip(here, missing(gone - 1)), None, "more than was on the wire");
                assert_eq!(ip(here, LengthSlack::default()), None);
            }
            if kept >= end + 4 {
                assert_eq!(FlowKey::related_from_frame_with(here, missing(gone)), Some(key));
            }
        }
        // Existing bytes are limited as before: padding is not payload.
        let padded = [&frame[..], &[0; 9]].concat();
        assert_eq!(ip(&padded, missing(100)), Some((end, frame.len())));
    }
}

#[test]
fn udp_of_a_cut_frame_reaches_as_far_as_its_packet() {
    let (frame, end) = frames().remove(0);
    let here = &frame[..60];
    let slack = missing(frame.len() - 60);
    let parse = |frame: &[u8], slack| {
        let link = Layer::<Root, Ethernet>::parse_with(Root, frame, slack).ok()?;
        let ip = Layer::<_, Ipv4>::parse_with(link, frame, slack).ok()?;
        let udp = Layer::<_, Udp>::parse_with(ip, frame, slack).ok()?;
        Some((udp.end(), udp.limit(frame.len()), udp.next()))
    };
    assert_eq!(parse(here, slack), Some((end + 8, 60, 2)));
    for (length, is_right) in [(7u16, false), (8, true), (309, false), (308, true)] {
        let mut changed = here.to_vec();
        changed[38..40].copy_from_slice(&length.to_be_bytes());
        assert_eq!(parse(&changed, slack).is_some(), is_right, "{length}");
    }
    // Where the packet ends before the frame does, no length of it goes on behind the frame.
    let mut short = here.to_vec();
    short[16..18].copy_from_slice(&30u16.to_be_bytes());
    assert_eq!(parse(&short, slack), None);
}

#[test]
fn lengths_below_ip_may_lie_in_what_is_missing() {
    // 802.3 with LLC, and a PPPoE session (RFC 2516).
    let llc = [&[1; 12][..], &[0, 100], &[0xaa; 20]].concat();
    assert!(
        Layer::<Root, Ethernet>::parse(Root, &llc).is_err()
            && Layer::<Root, Link>::parse(Root, &llc).is_err()
    );
    for (gone, is_right) in [(79, false), (80, true), (200, true)] {
        assert_eq!(
            Layer::<Root, Ethernet>::parse_with(Root, &llc, missing(gone)).is_ok(),
            is_right,
            "{gone}"
        );
        assert_eq!(Layer::<Root, Link>::parse_with(Root, &llc, missing(gone)).is_ok(), is_right, "{gone}");
    }
    let (frame, _) = frames().remove(0);
    let session =
        [&frame[..12], &[0x88, 0x64, 0x11, 0, 0, 1], &330u16.to_be_bytes(), &[0, 0x21], &frame[14..]]
            .concat();
    let whole = ip(&session, LengthSlack::default()).unwrap();
    assert_eq!(whole, (42, session.len()));
    let here = &session[..60];
    assert_eq!(ip(here, LengthSlack::default()), None);
    assert_eq!(ip(here, missing(session.len() - 60)), Some((42, 60)));
    assert_eq!(ip(here, missing(session.len() - 61)), None);
}

/// A length of 0 stands for a frame's own only in segments that a device cuts, never in fragments.
#[test]
fn an_unstated_length_is_the_frames() {
    let v4 = |protocol: u8, fragment: u16| {
        let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).payload(&[7; 900]).build().unwrap();
        let mut frame = frame;
        frame[16..18].fill(0);
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[23] = protocol;
        frame
    };
    for (protocol, fragment, is_right) in [
        (6, 0, true),
        (17, 0, true),
        (6, 0x4000, true),
        (6, 0x2000, false),
        (6, 1, false),
        (1, 0, false),
        (47, 0, false),
    ] {
        let frame = v4(protocol, fragment);
        assert_eq!(ip(&frame, LengthSlack::default()), None);
        assert_eq!(ip(&frame, missing(70_000)), None, "nothing says that it is unstated");
        let expected = is_right.then_some((34, frame.len()));
        assert_eq!(ip(&frame, UNSTATED), expected, "protocol {protocol}, fragment {fragment:#x}");
    }
    for (next, end) in [(6, 974), (17, 974), (58, 54), (59, 54)] {
        let frame =
            ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1, 2).payload(&[7; 900]).build().unwrap();
        let mut frame = frame;
        frame[18..20].fill(0);
        frame[20] = next;
        assert_eq!(ip(&frame, LengthSlack::default()), Some((54, 54)), "nothing but a header");
        assert_eq!(ip(&frame, UNSTATED), Some((54, end)), "next header {next}");
    }
}

/// A change of size changes each enclosing length by the same number of bytes, even in an incomplete frame.
#[test]
fn lengths_of_a_cut_frame_are_restated_by_the_difference() {
    for (frame, end) in frames() {
        for by in [20isize, -4] {
            let mut here = frame[..end + 8].to_vec();
            let slack = missing(frame.len() - here.len());
            let link = Layer::<Root, Link>::parse_with(Root, &here, slack).unwrap();
            let layer = Layer::<_, Ip>::parse_with(link, &here, slack).unwrap();
            let udp = Layer::<_, Udp>::parse_with(layer, &here, slack).unwrap();
            udp.restate_by(&mut here, by);
            let stated = |frame: &[u8]| {
                let (header, _) = Ip::in_frame_with(frame, missing(2_000)).unwrap();
                let udp = u16::from_be_bytes([frame[end + 4], frame[end + 5]]);
                (header.stated_len() as isize, isize::from(udp as i16))
            };
            let (before, after) = (stated(&frame), stated(&here));
            assert_eq!(after, (before.0 + by, before.1 + by));
        }
    }
    let tagged = frames().remove(1).0;
    let layer = Layer::<Root, Ethernet>::parse(Root, &tagged).unwrap();
    let vlan = Layer::<_, Vlan>::parse(layer, &tagged).unwrap();
    let mut same = tagged.clone();
    vlan.restate_by(&mut same, 4);
    assert_eq!(same, tagged, "neither says a length");
    assert_eq!(Ipv6::SIZE, 40);
}
