//! The effects of rules on packets and connections: drop, pass, conditions, thresholds and flowbits.

use std::collections::BTreeMap;

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run_configured;

use super::{answer, by_each_engine, matches, open, run, segment, syn, udp};
use crate::signature::{HISTORY, SignatureConfig, signature};

fn counts(pairs: &[(u32, u64)]) -> BTreeMap<u32, u64> {
    pairs.iter().copied().collect()
}

#[test]
fn a_drop_in_a_stream_ends_the_connection_and_in_a_packet_only_the_packet() {
    let rules = [
        r#"drop tcp any any -> any 80 (msg:"s"; content:"attack"; sid:1;)"#,
        r#"drop udp any any -> any 53 (msg:"p"; content:"attack"; sid:2;)"#,
    ];
    let stream = [
        segment(1_000, 100, b"at"),
        segment(1_000, 104, b"ck"),
        segment(1_000, 102, b"ta"),
        segment(1_000, 106, b"more"),
    ];
    let late = answer(1_000, 500, b"x");
    let frames = open(1_000, 100).into_iter().chain(stream.clone()).chain([
        late,
        udp(53, b"attack"),
        udp(53, b"fine"),
    ]);
    let frames: Vec<_> = frames.collect();
    let report = run(&rules, frames.clone());
    assert_eq!(matches(&report), counts(&[(1, 1), (2, 1)]));
    // The segment that completes the match never arrives, nor does anything behind it.
    let left: Vec<_> = [0, 1, 2, 3, 4, 9].map(|at| frames[at].clone()).into();
    assert_eq!(report.out, left);
    assert_eq!(report.dropped(DropReason::SignatureMatched), 4);
}

#[test]
fn pass_comes_first() {
    let rules = [
        r#"drop udp any any -> any any (content:"evil"; sid:1;)"#,
        r#"pass udp any any -> any 53 (content:"good"; sid:2;)"#,
        r#"drop tcp any any -> any any (content:"evil"; sid:3;)"#,
        r#"pass tcp any any -> any any (content:"password"; sid:4;)"#,
    ];
    let frames: Vec<_> = [udp(53, b"evil but good"), udp(54, b"evil but good")]
        .into_iter()
        .chain(open(1_000, 100))
        .chain([segment(1_000, 100, b"password "), segment(1_000, 109, b"evil")])
        .chain(open(1_001, 100))
        .chain([segment(1_001, 100, b"passward "), segment(1_001, 109, b"evil")])
        .collect();
    let report = run(&rules, frames.clone());
    assert_eq!(matches(&report), counts(&[(1, 1), (2, 1), (3, 1), (4, 1)]));
    let kept = |at: &usize| ![1, 11].contains(at);
    let left: Vec<_> = (0..frames.len()).filter(kept).map(|at| frames[at].clone()).collect();
    assert_eq!(report.out, left);
}

#[test]
fn direction_and_state_of_the_flow_count() {
    let rules = [
        r#"alert tcp any any -> any any (content:"word"; flow:to_server; sid:1;)"#,
        r#"alert tcp any any -> any any (content:"word"; flow:to_client; sid:2;)"#,
        r#"alert tcp any any -> any any (content:"word"; flow:established,from_client; sid:3;)"#,
        r#"alert tcp any any -> any any (flags:S; sid:4;)"#,
        r#"alert tcp any any -> any any (flags:S,12; flow:not_established; sid:5;)"#,
        r#"alert udp any any -> any any (content:"word"; flow:established; sid:6;)"#,
        r#"alert tcp any any <> any 80 (content:"word"; sid:7;)"#,
    ];
    let reply = ethernet().ipv4("10.0.0.2", "10.0.0.1").udp(53, 5_000).payload(b"word").build().unwrap();
    let frames = open(1_000, 100).into_iter().chain([
        segment(1_000, 100, b"word"),
        answer(1_000, 500, b"word"),
        udp(53, b"word"),
        reply,
        udp(53, b"word"),
    ]);
    let report = run(&rules, frames);
    assert_eq!(matches(&report), counts(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2)]));
}

#[test]
fn headers_sizes_and_fields_count() {
    let rules = [
        r#"alert udp [10.0.0.0/24,!10.0.0.1] any -> any any (content:"a"; sid:1;)"#,
        r#"alert udp $HOME_NET any -> 10.0.0.2 [50:60,!55] (content:"a"; sid:2;)"#,
        r#"alert udp any any -> any any (dsize:3; sid:3;)"#,
        r#"alert udp any any -> any any (dsize:1<>3; sid:4;)"#,
        r#"alert icmp any any -> any any (itype:8; icode:0; content:"ping"; sid:5;)"#,
        r#"alert ip any any -> any any (ip_proto:udp; ttl:<65; content:"abc"; sid:6;)"#,
        r#"alert udp any any -> any any (content:"c"; isdataat:!1,relative; endswith; sid:7;)"#,
        r#"alert udp any any -> any any (content:!"b"; sid:8;)"#,
        r#"alert udp any any -> any any (pcre:!"/b/"; sid:9;)"#,
        r#"alert udp any any -> any any (pcre:"/^a.*c$/"; sid:10;)"#,
        r#"alert udp 2001:db8::/32 any -> any any (content:"six"; sid:11;)"#,
    ];
    let rules: Vec<&str> = rules.iter().copied().filter(|rule| !rule.contains("endswith; sid:7")).collect();
    let six = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(b"six").build().unwrap();
    let ping =
        ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(1, 2).payload(b"ping").build().unwrap();
    let report = run(&rules, [udp(53, b"abc"), udp(55, b"a"), udp(61, b"ab"), udp(53, b"abc\n"), six, ping]);
    let expected = [(2, 2), (3, 2), (4, 1), (5, 1), (6, 2), (8, 2), (9, 2), (10, 2), (11, 1)];
    assert_eq!(matches(&report), counts(&expected));
}

#[test]
fn numbers_in_the_data_are_compared() {
    let tests = [
        ("2,>,0x0102,1", true),
        ("2,>,0x0103,1", false),
        ("2,=,0x0301,1,little", true),
        ("2,!=,259,1,big", false),
        ("2,!,258,1", true),
        ("1,&,0x81,4", true),
        ("1,!&,0x7f,4", true),
        ("1,^,128,4", false),
        ("8,<=,0xffffffffffffffff,0", true),
        ("4,>=,0,12", true),
        ("4,>=,0,13", false),
        ("5,=,1234,5,string", true),
        ("5,=,0x1234,5,string,hex", true),
        ("5,=,668,5,string,oct", true),
        ("6,=,0x1a,10,string,hex", true),
        ("2,=,0,13,string,dec", false),
        ("3,=,0,0,string,dec", false),
    ];
    let rule = |(sid, (test, _)): (usize, &(&str, bool))| {
        format!("alert udp any any -> any 53 (byte_test:{test}; sid:{};)", sid + 1)
    };
    let mut rules: Vec<String> = tests.iter().enumerate().map(rule).collect();
    // Behind each place of a content, also before it.
    rules.push(r#"alert udp any any -> any 54 (content:"n"; byte_test:1,>,6,0,relative; sid:101;)"#.into());
    rules.push(r#"alert udp any any -> any 54 (content:"n"; byte_test:1,>,8,0,relative; sid:102;)"#.into());
    rules.push(
        r#"alert udp any any -> any 54 (content:"n"; byte_test:1,=,7,-2,relative; content:"n"; sid:103;)"#
            .into(),
    );
    rules.push(
        r#"alert udp any any -> any 54 (content:"n"; byte_test:1,=,5,0,relative; content:"n|08|"; distance:1; within:2; sid:104;)"#
            .into(),
    );
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut expected: Vec<(u32, u64)> =
        (1..).zip(&tests).filter(|(_, (_, holds))| *holds).map(|(sid, _)| (sid, 1)).collect();
    expected.extend([(101, 1), (103, 1), (104, 1)]);
    let report = run(&rules, [udp(53, b"\0\x01\x03\0\x80 1234 0x1Ag"), udp(54, b"n\x05n\x08\x07n")]);
    assert_eq!(matches(&report), counts(&expected));
}

#[test]
fn rules_that_count_from_the_beginning_see_each_packet_and_the_stream() {
    let rules = [
        r#"alert tcp any any -> any any (content:"GET"; startswith; sid:1;)"#,
        r#"alert tcp any any -> any any (content:"GET"; startswith; flow:only_stream; sid:2;)"#,
        r#"alert tcp any any -> any any (content:"GET"; depth:3; flow:no_stream; sid:3;)"#,
    ];
    let frames = open(1_000, 100).into_iter().chain([
        segment(1_000, 100, b"GE"),
        segment(1_000, 102, b"T x"),
        segment(1_000, 105, b"GET y"),
        segment(1_000, 110, b"xGET"),
    ]);
    assert_eq!(matches(&run(&rules, frames)), counts(&[(1, 2), (2, 1), (3, 1)]));
}

#[test]
fn flowbits_join_rules() {
    let rules = [
        r#"alert tcp any any -> any 80 (content:"pass"; flowbits:isset,user; flowbits:isnotset,root; sid:3;)"#,
        r#"alert tcp any any -> any 80 (content:"user"; flowbits:set,user; flowbits:noalert; sid:1;)"#,
        r#"alert tcp any any -> any 80 (content:"root"; flowbits:set,root; noalert; sid:2;)"#,
        r#"alert tcp any 80 -> any any (content:"bye"; flowbits:unset,user; sid:4;)"#,
    ];
    let frames = open(1_000, 100).into_iter().chain([
        segment(1_000, 100, b"pass "),
        segment(1_000, 105, b"user pass "),
        answer(1_000, 500, b"bye"),
        segment(1_000, 115, b"pass "),
        segment(1_000, 120, b"user "),
        segment(1_000, 125, b"root "),
        segment(1_000, 130, b"pass "),
    ]);
    let report = run(&rules, frames);
    assert_eq!(matches(&report), counts(&[(1, 2), (2, 1), (3, 1), (4, 1)]));
    let section = report.sections.iter().find(|section| section.title == "signatures").unwrap();
    assert_eq!(section.counts["alerts"], 2);
}

#[test]
fn thresholds_limit_events_and_filters_limit_matches() {
    let rules = [
        r#"alert udp any any -> any 53 (content:"a"; threshold:type limit, track by_src, count 2, seconds 60; sid:1;)"#,
        r#"alert udp any any -> any 53 (content:"a"; threshold:type threshold, track by_dst, count 3, seconds 60; sid:2;)"#,
        r#"alert udp any any -> any 53 (content:"a"; threshold:type both, track by_rule, count 4, seconds 60; sid:3;)"#,
        r#"drop udp any any -> any 53 (content:"a"; detection_filter:track by_src, count 5, seconds 60; sid:4;)"#,
    ];
    let report = run(&rules, (0..8).map(|_| udp(53, b"a")));
    assert_eq!(matches(&report), counts(&[(1, 8), (2, 8), (3, 8), (4, 3)]));
    assert_eq!(report.out.len(), 5);
    let section = report.sections.iter().find(|section| section.title == "signatures").unwrap();
    assert_eq!((section.counts["alerts"], section.counts["suppressed_alerts"]), (2 + 2 + 1 + 3, 6 + 6 + 7));
}

/// Two senders give one range of bytes different contents: the one that Linux reads counts.
#[test]
fn overlaps_are_resolved_as_linux_does() {
    let rules = [r#"alert tcp any any -> any 80 (content:"attack"; sid:1;)"#];
    let with = |second: &[&[u8]; 2]| {
        let frames = open(1_000, 100).into_iter().chain([
            // Behind a gap: the first of two equal segments is kept.
            segment(1_000, 102, second[0]),
            segment(1_000, 102, second[1]),
            segment(1_000, 100, b"at"),
        ]);
        matches(&run(&rules, frames))
    };
    assert_eq!(with(&[b"tack", b"tick"]), counts(&[(1, 1)]));
    assert_eq!(with(&[b"tick", b"tack"]), counts(&[]));
}

#[test]
fn a_match_over_five_segments_in_any_order_is_found() {
    let rules = [r#"alert tcp any any -> any 80 (content:"abcdefghij"; sid:1;)"#];
    let text = b"..abcdefghij..";
    let cuts = [0, 4, 6, 8, 10, 14];
    let mut orders = vec![vec![]];
    for piece in 0..5 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, piece);
                    order
                })
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    let mut frames = Vec::new();
    for (port, order) in (2_000..).zip(&orders) {
        frames.extend(open(port, 100));
        frames.extend(
            order
                .iter()
                .map(|piece| segment(port, 100 + cuts[*piece] as u32, &text[cuts[*piece]..cuts[piece + 1]])),
        );
    }
    let mut config = SignatureConfig::of(rules);
    config.flows = 256;
    let report =
        by_each_engine(&config, |config| run_configured(signature::<HISTORY>, config, frames.clone()));
    assert_eq!(matches(&report), counts(&[(1, 120)]));
}

#[test]
fn a_dropped_connection_does_not_come_back_by_another_handshake() {
    let rules = [r#"drop tcp any any -> any 80 (content:"attack"; sid:1;)"#];
    let frames: Vec<_> = open(1_000, 100)
        .into_iter()
        .chain([
            segment(1_000, 100, b"attack"),
            syn(1_000, 5_000),
            segment(1_000, 100, b"attack"),
            segment(1_000, 106, b"!"),
        ])
        .collect();
    let report = run(&rules, frames.clone());
    assert_eq!(report.out, frames[..3]);
}

#[test]
fn a_fragment_is_no_segment() {
    let rules = [r#"alert tcp any any -> any 80 (content:"word"; sid:1;)"#];
    let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").fragment(0, true).tcp(1_000, 80).sequence(100);
    let first = tcp.flags(flags::ACK).payload(b"a word..").build().unwrap();
    let frames: Vec<_> = open(1_000, 100).into_iter().chain([first]).collect();
    let report = run(&rules, frames.clone());
    assert_eq!(report.out, frames);
    assert_eq!(matches(&report), counts(&[]));
}

#[test]
fn a_connection_that_ends_in_many_pieces_counts_once() {
    let rules = [r#"alert tcp-stream any any -> any any (msg:"m"; content:"needle"; sid:1;)"#];
    let waits = b"needle and hay ".repeat(90);
    // The byte before them never comes: they wait until the connection ends, and are then shown in blocks.
    let begin = || open(1_000, 100).into_iter().chain([segment(1_000, 101, &waits)]);
    for flows in [1, 64] {
        let mut config = SignatureConfig::of(rules);
        config.flows = flows;
        // It gives its place to another one, or is there at the end of the run.
        let frames: Vec<_> = begin().chain(open(1_001, 100)).collect();
        let report =
            by_each_engine(&config, |config| run_configured(signature::<HISTORY>, config, frames.clone()));
        assert_eq!(matches(&report), BTreeMap::from([(1, 1)]), "{flows}");
    }
    assert_eq!(matches(&run(&rules, begin())), BTreeMap::from([(1, 1)]), "the last packet's own");
}
