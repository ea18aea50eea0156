//! Elements of Ethernet and ARP in small configurations. What is expected was seen from Click itself.

use crate::testing::{build, run};

/// Lines that a configuration said, which stops by itself.
fn said(text: &str) -> Vec<String> {
    let run = run(text);
    assert_eq!(run.errors, [""; 0], "{text}");
    run.said()
}

/// Errors of a configuration but the first line, which says where, and the last.
fn errors(text: &str) -> Vec<String> {
    let errors = build(text).errors;
    assert_eq!(errors.last().map(String::as_str), Some("Router could not be initialized!"), "{text}");
    errors[1..errors.len() - 1].iter().map(|line| line.trim_start().to_owned()).collect()
}

#[test]
fn headers_are_put_before_packets_mirrored_and_changed() {
    let lines = said(
        "InfiniteSource(DATA \\<0102>, LIMIT 1, STOP true) -> EtherEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2)
            -> Print(a) -> EtherMirror -> Print(b) -> EtherRewrite(3:3:3:3:3:3, 4:4:4:4:4:4) -> Print(c)
            -> StoreEtherAddress(5:5:5:5:5:5, src) -> Print(d)
            -> GetEtherAddress(0, src) -> StoreEtherAddress(OFFSET 0, ANNO 0) -> Print(e)
            -> SetEtherAddress(6:6:6:6:6:6, 10) -> StoreEtherAddress(OFFSET 0, ANNO 10) -> Print(f) -> Discard",
    );
    assert_eq!(
        lines,
        [
            "a:   16 | 02020202 02020101 01010101 08000102",
            "b:   16 | 01010101 01010202 02020202 08000102",
            "c:   16 | 04040404 04040303 03030303 08000102",
            "d:   16 | 04040404 04040505 05050505 08000102",
            "e:   16 | 05050505 05050505 05050505 08000102",
            "f:   16 | 06060606 06060505 05050505 08000102",
        ]
    );
}

#[test]
fn short_packets_are_left_alone_or_dropped() {
    for (element, expected) in [
        ("EtherMirror", vec!["o:    3 | 010203"]),
        ("EtherRewrite(1:1:1:1:1:1, 2:2:2:2:2:2)", vec!["o:    3 | 010203"]),
        ("VLANDecap", vec!["o:    3 | 010203"]),
        ("VLANEncap(5)", vec![]),
        ("StripEtherVLANHeader", vec![]),
        ("HostEtherFilter(1:1:1:1:1:1)", vec![]),
        ("StoreEtherAddress(1:1:1:1:1:1, 0)", vec![]),
        ("GetEtherAddress(0, 4294967289)", vec![]),
        ("ARPResponder(0/0 1:1:1:1:1:1)", vec![]),
        ("EnsureEther", vec!["o:    3 | 010203"]),
    ] {
        let text = format!(
            "InfiniteSource(DATA \\<010203>, LIMIT 1, STOP true) -> {element} -> Print(o) -> Discard"
        );
        assert_eq!(said(&text), expected, "{element}");
    }
}

#[test]
fn filters_tell_whom_packets_are_for() {
    let lines = said(
        "InfiniteSource(DATA \\<02 02 02 02 02 02 01 01 01 01 01 01 08 00 55>, LIMIT 1, STOP true) -> t::Tee(3)
            -> h::HostEtherFilter(2:2:2:2:2:2) -> Print(h) -> Discard; h[1] -> Print(x) -> Discard;
         t[1] -> g::HostEtherFilter(3:3:3:3:3:3) -> Print(g) -> Discard; g[1] -> Print(y) -> Discard;
         t[2] -> o::HostEtherFilter(1:1:1:1:1:1, true) -> Print(o) -> Discard; o[1] -> Print(z) -> Discard;",
    );
    let data = "02020202 02020101 01010101 080055";
    assert_eq!(
        lines,
        [format!("h:   15 | {data}"), format!("y:   15 | {data}"), format!("z:   15 | {data}")]
    );
}

#[test]
fn tags_come_and_go_with_their_annotation() {
    let lines = said(
        "InfiniteSource(DATA \\<AAABACAD>, LIMIT 1, STOP true)
            -> EtherVLANEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2, 0x3005) -> Print(a)
            -> VLANDecap -> Print(b) -> VLANEncap(ANNO, NATIVE_VLAN -1) -> Print(c)
            -> StripEtherVLANHeader -> Print(d) -> SetVLANAnno(VLAN_ID 9, VLAN_PCP 7)
            -> EtherVLANEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2, ANNO, NATIVE_VLAN 9) -> Print(e)
            -> VLANEncap(VLAN_ID 6, VLAN_PCP 1, ETHERTYPE 0x88a8) -> Print(f) -> Discard",
    );
    assert_eq!(
        lines,
        [
            "a:   22 | 02020202 02020101 01010101 81003005 0800aaab acad",
            "b:   18 | 02020202 02020101 01010101 0800aaab acad",
            "c:   22 | 02020202 02020101 01010101 81003005 0800aaab acad",
            "d:    4 | aaabacad",
            "e:   18 | 02020202 02020101 01010101 0800aaab acad",
            "f:   22 | 02020202 02020101 01010101 88a82006 0800aaab acad",
        ]
    );
}

#[test]
fn arguments_change_while_elements_run() {
    let run = build(
        "AddressInfo(b 00:01:02:03:04:06);
         Idle -> e::EtherEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> Idle;
         Idle -> v::EtherVLANEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, 5) -> Idle;",
    );
    assert_eq!(run.errors, [""; 0]);
    assert_eq!(run.write("e.ethertype 5000"), "");
    assert_eq!(run.read("e.config"), "5000, 1:1:1:1:1:1, 2:2:2:2:2:2");
    assert_eq!(run.write("e.dst b"), "");
    assert_eq!(run.read("e.dst"), "00-01-02-03-04-06");
    assert_eq!(run.write("e.src ff"), "SRC: parse error");
    assert_eq!(run.write("e.ethertype zz"), "ETHERTYPE: invalid number");
    assert_eq!(
        run.write("e.config foo"),
        "ETHERTYPE: invalid number\nSRC: required argument missing\nDST: required argument missing"
    );
    assert_eq!(run.write("v.vlan_tci ANNO"), "");
    assert_eq!(run.read("v.vlan_tci"), "ANNO");
    assert_eq!(run.write("v.vlan_tci 9"), "");
    assert_eq!(run.write("v.vlan_pcp 3"), "");
    assert_eq!(run.read("v.vlan_id"), "9");
    assert_eq!(run.read("v.config"), "2048, 01-01-01-01-01-01, 02-02-02-02-02-02, VLAN_ID 9, VLAN_PCP 3");
    assert_eq!(run.write("v.src f"), "expected Ethernet address");
    assert_eq!(run.write("v.ethertype x"), "expected uint16_t");
}

#[test]
fn names_mean_addresses_within_their_compound() {
    let run = build(
        "elementclass C { AddressInfo(a 1.2.3.4/8);
            Idle -> r::ARPResponder(a 1:1:1:1:1:1, a:bcast 2:2:2:2:2:2, a:gw 3:3:3:3:3:3, a:net 4:4:4:4:4:4) -> Idle }
         AddressInfo(n 10.0.0.5/24 1:2:3:4:5:6 10.1.0.0/16, six fe80::1/64);
         c::C; q::ARPQuerier(n) -> Discard; Idle -> q; Idle -> [1]q;",
    );
    assert_eq!(run.errors, [""; 0]);
    assert_eq!(
        run.read("c/r.table"),
        "1.2.3.4/32 01-01-01-01-01-01\n1.255.255.255/32 02-02-02-02-02-02\n1.0.0.1/32 03-03-03-03-03-03\n\
         1.0.0.0/8 04-04-04-04-04-04\n"
    );
    assert_eq!(run.read("q.ipaddr"), "10.0.0.5");
    assert_eq!(run.read("q.broadcast"), "255.255.255.255");
    assert_eq!(run.write("q.config n, BROADCAST 9.9.9.9"), "");
    assert_eq!(run.read("q.broadcast"), "9.9.9.9");
}

#[test]
fn configurations_with_faults_are_told() {
    for (text, expected) in [
        ("AddressInfo(foo)", "expected 'NAME [ADDRS]'"),
        ("AddressInfo(foo bar)", "'bar' is not a recognizable address"),
        ("PortInfo(foo bar)", "expected 'NAME PORT/PROTO'"),
        ("AnnotationInfo(foo)", "bad entry for 'foo'"),
        ("AnnotationInfo(foo 3 4, bar foo 8)", "bad entry for 'bar'"),
        ("AnnotationInfo(PAINT 3)", "bad NAME 'PAINT'"),
        ("AnnotationInfo(a 0 4, b 2 4, CHECK_OVERLAP a b)", "annotations 'a' and 'b' conflict"),
        ("AlignmentInfo(AlignmentInfo@1 1)", "expected 'ELEMENTNAME CHUNK OFFSET [CHUNK OFFSET...]'"),
        ("Idle -> VLANEncap(99999) -> Idle", "VLAN_TCI: out of range, bound 65535"),
        ("Idle -> VLANEncap(VLAN_PCP 9) -> Idle", "VLAN_PCP: out of range, bound 7"),
        ("Idle -> EtherVLANEncap(1, 2:2:2:2:2:2, 1:1:1:1:1:1, foo) -> Idle", "VLAN_TCI: invalid number"),
        ("Idle -> StripEtherVLANHeader(5000) -> Idle", "bad NATIVE_VLAN"),
        ("Idle -> SetVLANAnno(-1) -> Idle", "VLAN_TCI: out of range, bound 0"),
        ("Idle -> StoreEtherAddress(1:2:3:4:5:6, foo) -> Idle", "type mismatch: bad OFFSET"),
        ("Idle -> StoreEtherAddress(OFFSET 6) -> Idle", "must specify exactly one of ADDR/ANNO"),
        ("Idle -> GetEtherAddress(45, src) -> Idle", "ANNO: parse error"),
        ("Idle -> EnsureEther(99999) -> Idle", "argument 1 (Ethernet encapsulation type) must be <= 0xFFFF"),
        ("ARPTable(CAPACITY_SLIM_FACTOR 0)", "CAPACITY_SLIM_FACTOR cannot be zero"),
        ("Idle -> ARPResponder(1.2.3.4) -> Idle", "argument 0: missing ETH"),
        ("Idle -> ARPResponder(1:2:3:4:5:6) -> Idle", "argument 0: missing IP/MASK"),
        (
            "q::ARPQuerier(1.0.0.1, 1:1:1:1:1:1, TABLE q) -> Discard; Idle -> q; Idle -> [1]q;",
            "TABLE: element type mismatch, expected ARPTable",
        ),
    ] {
        assert_eq!(errors(text), [expected], "{text}");
    }
}

#[test]
fn responders_answer_by_the_narrowest_prefix() {
    let run = build(
        "Idle -> r::ARPResponder(1.0.0.0/8 1:1:1:1:1:1, 1.2.0.0/16 2:2:2:2:2:2, 1.2.3.4 4:4:4:4:4:4) -> Idle",
    );
    assert_eq!(run.errors, [""; 0]);
    assert_eq!(run.read("r.lookup 1.2.3.4"), "04-04-04-04-04-04");
    assert_eq!(run.read("r.lookup 1.2.9.9"), "02-02-02-02-02-02");
    assert_eq!(run.read("r.lookup 9.9.9.9"), "");
    assert_eq!(run.read("r.lookup x"), "expected IP address");
    assert_eq!(run.write("r.remove 9.9.9.9"), "9.9.9.9/32 not found");
    assert_eq!(run.write("r.add 5"), "expected IP/MASK ETH");
    assert_eq!(run.write("r.remove 1.2.0.0/16"), "");
    assert_eq!(run.read("r.lookup 1.2.9.9"), "01-01-01-01-01-01");
}

#[test]
fn queriers_hold_packets_until_the_address_is_known() {
    let lines = said(
        "AddressInfo(me 10.0.0.1 1:1:1:1:1:1);
         InfiniteSource(LIMIT 2, DATA \\<AA>) -> SetIPAddress(10.0.0.2) -> q::ARPQuerier(me) -> Print(out)
            -> Discard;
         q[1] -> ARPPrint(ask, ETHER true, TIMESTAMP false) -> r::ARPResponder(10.0.0.2 2:2:2:2:2:2) -> Queue -> DelayUnqueue(1)
            -> ARPPrint(answer, TIMESTAMP false) -> [1]q;
         DriverManager(wait 2, read q.stats, read q.count, read q.length, read q.responses, read q.table, stop)",
    );
    assert_eq!(
        lines,
        [
            "ask: 01-01-01-01-01-01 > FF-FF-FF-FF-FF-FF: arp who-has 10.0.0.2 tell 10.0.0.1",
            "answer: arp reply 10.0.0.2 is-at 02-02-02-02-02-02",
            "out:   15 | 02020202 02020101 01010101 0800aa",
            "out:   15 | 02020202 02020101 01010101 0800aa",
            "q.stats:",
            "0 packets killed",
            "1 ARP queries sent",
            "",
            "q.count:",
            "1",
            "q.length:",
            "0",
            "q.responses:",
            "1",
            "q.table:",
            "10.0.0.2 1 02-02-02-02-02-02 1.000000",
            "",
        ]
    );
}

#[test]
fn queriers_know_groups_and_warn_of_packets_without_destination() {
    let lines = said(
        "InfiniteSource(LIMIT 1) -> SetIPAddress(224.129.2.3) -> t::Tee
            -> q::ARPQuerier(1.0.0.1, 1:1:1:1:1:1) -> Print(q, 14) -> Discard; Idle -> [1]q;
         t[1] -> IPMulticastEtherEncap(0x800, 3:3:3:3:3:3) -> Print(m, 14) -> Discard;
         InfiniteSource(LIMIT 2) -> q; DriverManager(wait 1, read q.drops, stop)",
    );
    assert_eq!(
        lines,
        [
            "q:   83 | 01005e01 02030101 01010101 0800",
            "m:   83 | 01005e01 02030303 03030303 0800",
            "q :: ARPQuerier: would query for 0.0.0.0; missing dest IP addr annotation?",
            "q.drops:",
            "2",
        ]
    );
}

#[test]
fn tables_hold_no_more_than_they_may() {
    let run = crate::testing::run(
        "t::ARPTable(CAPACITY 10, ENTRY_CAPACITY 3);
         InfiniteSource(LIMIT 60) -> c::RoundRobinSwitch;
         c[0] -> SetIPAddress(1.0.0.1) -> q::ARPQuerier(9.0.0.1, 1:1:1:1:1:1, TABLE t) -> Discard;
         c[1] -> SetIPAddress(1.0.0.2) -> q; c[2] -> SetIPAddress(1.0.0.3) -> q;
         c[3] -> SetIPAddress(1.0.0.4) -> q; c[4] -> SetIPAddress(1.0.0.5) -> q; Idle -> [1]q;
         DriverManager(wait 1, stop)",
    );
    assert_eq!(run.errors, [""; 0]);
    assert_eq!(run.read("t.count"), "3");
    let length: usize = run.read("t.length").parse().expect("a number");
    let drops: usize = run.read("t.drops").parse().expect("a number");
    assert!(length <= 10 && length + drops == 60, "{length} packets, {drops} drops");
    assert_eq!(run.write("t.clear"), "");
    assert_eq!(run.read("t.count"), "0");
    assert_eq!(run.write("t.insert 1.2.3.4"), "ETH: required argument missing");
    assert_eq!(run.write("t.insert 1.2.3.4 5:6:7:8:9:A 5"), "too many arguments");
    assert_eq!(run.write("t.insert 1.2.3.4 5:6:7:8:9:A"), "");
    assert!(run.read("t.table").starts_with("1.2.3.4 1 05-06-07-08-09-0A 0.0"));
    assert_eq!(run.write("t.delete 1.2.3.4"), "");
    assert!(run.read("t.table").starts_with("1.2.3.4 0 FF-FF-FF-FF-FF-FF 0.0"));
}

#[test]
fn prints_say_what_arp_packets_say() {
    let lines = said(
        "f::ARPFaker(1.2.3.4, 1:2:3:4:5:6, 5.6.7.8, 5:6:7:8:9:A) -> ARPPrint(p, ETHER true) -> Truncate(20)
            -> ARPPrint(TIMESTAMP false) -> Discard; DriverManager(wait 12, stop)",
    );
    let whole =
        "p: 0.000000: 05-06-07-08-09-0A > 01-02-03-04-05-06: arp reply 5.6.7.8 is-at 05-06-07-08-09-0A";
    assert_eq!(lines, [whole, "truncated-arp (6)", whole, "truncated-arp (6)"]);
}

#[test]
fn switches_learn_where_addresses_are_and_forget_what_they_cannot_hold() {
    let run = crate::testing::run(
        "s::EtherSwitch(CAPACITY 2);
         InfiniteSource(LIMIT 1, DATA \\<0A0000000002 0A0000000001 0800>) -> [0]s;
         InfiniteSource(LIMIT 1, DATA \\<0A0000000001 0A0000000002 0800>) -> [1]s;
         InfiniteSource(LIMIT 1, DATA \\<0A0000000009 0A0000000003 0800>) -> [2]s;
         InfiniteSource(LIMIT 1, DATA \\<0A0000000002 0A0000000001 0800>) -> [2]s;
         s[0] -> Print(0) -> Discard; s[1] -> Print(1) -> Discard; s[2] -> Print(2) -> Discard;",
    );
    assert_eq!(run.errors, [""; 0]);
    let ports: Vec<String> =
        run.said().iter().filter_map(|line| line.split(':').next().map(str::to_owned)).collect();
    assert_eq!(ports, ["2", "1", "0", "1", "0", "1"]);
    assert_eq!(run.read("s.table"), "0A-00-00-00-00-01 2\n0A-00-00-00-00-02 1\n");
    assert_eq!(run.read("s.timeout"), "300");
    assert_eq!(run.write("s.timeout x"), "expected timeout (integer)");
}

#[test]
fn bad_arp_packets_are_refused() {
    for (data, fault) in [
        ("00010800060400", "tiny packet"),
        ("00010800060400010102030405060a000001", "too small for addresses"),
        ("0001080005040001010203040506070809101112131415161718", "bad hardware type/length"),
        ("00010800060300010102030405060708091011121314151617181920", "bad protocol type/length"),
    ] {
        let run = crate::testing::run(&format!(
            "InfiniteSource(DATA \\<{data}>, LIMIT 2, STOP true) -> c::CheckARPHeader(DETAILS true) -> Discard"
        ));
        assert_eq!(run.said(), [format!("ARP header check failed: {fault}")]);
        assert_eq!(run.read("c.drops"), "2");
        assert!(run.read("c.drop_details").contains(&format!("2\t{fault}\n")));
    }
}

#[test]
fn a_switch_with_a_listener_copies_each_packet_there() {
    let frame = |to: u8, from: u8| format!("\\<02000000000{to} 02000000000{from} 0800>");
    let run = run(&format!(
        "TimedSource(0.1, {}, LIMIT 1) -> [0]s::ListenEtherSwitch; TimedSource(0.2, {}, LIMIT 1) -> [1]s; Idle -> [2]s; \
         s[0] -> c0::Counter -> Discard; s[1] -> c1::Counter -> Discard; s[2] -> c2::Counter -> Discard; \
         s[3] -> l::Counter -> Discard; Script(wait 1, stop)",
        frame(1, 2),
        frame(2, 1)
    ));
    assert_eq!(run.errors, [""; 0]);
    // The first packet is flooded; the answer goes to its port.
    assert_eq!(
        ["c0.count", "c1.count", "c2.count", "l.count"].map(|name| run.read(name)),
        ["1", "1", "1", "2"]
    );
}

#[test]
fn pause_frames_are_those_of_ieee_802_3() {
    let run =
        run("p::EtherPauseSource(00:11:22:33:44:55, 390, LIMIT 2, INTERVAL 0.5) -> Print(p) -> Discard; \
                   Script(wait 10, write p.reset_counts, write p.pausetime 1, wait 0.6, stop)");
    let frame = |time: &str| format!("p:   60 | 0180c200 00010011 22334455 88080001 {time}0000 00000000");
    assert_eq!(run.said(), [frame("0186"), frame("0186"), frame("0001")]);
    assert_eq!(run.read("p.count"), "1");
    assert_eq!(
        errors("EtherPauseSource(0:0:0:0:0:1, 1, INTERVAL 0) -> Discard"),
        ["INTERVAL must be at least 1ms"]
    );
}
