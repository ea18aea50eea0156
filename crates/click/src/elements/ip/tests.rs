//! Small configurations, whose expected output is Click's own.

use crate::testing::{build, run};

/// Lines that the elements of a configuration say.
#[track_caller]
fn says(configuration: &str, expected: &[&str]) {
    let run = run(configuration);
    assert_eq!(run.errors, Vec::<String>::new(), "{configuration}");
    assert_eq!(run.said(), expected, "{configuration}");
}

/// The errors of a configuration's one element between `Idle` and `Discard`.
#[track_caller]
fn refused(element: &str, expected: &[&str]) {
    let configuration = format!("Idle -> x::{element} -> Discard");
    let errors = build(&configuration).errors;
    let inner: Vec<&str> = errors.iter().filter_map(|line| line.strip_prefix("  ")).collect();
    let inner: Vec<&str> = if inner.is_empty() {
        errors.iter().filter_map(|line| line.strip_prefix("config:1:   ")).collect()
    } else {
        inner
    };
    assert_eq!(inner, expected, "{element}: {errors:?}");
}

const SOURCE: &str = "InfiniteSource(LIMIT 1, STOP true)";

#[test]
fn bad_configurations_are_refused_in_clicks_words() {
    for (element, error) in [
        ("IPEncap(foo, 1.1.1.1, 2.2.2.2)", "PROTO: invalid number"),
        ("IPEncap(300, 1.1.1.1, 2.2.2.2)", "bad IP protocol"),
        ("IPEncap(tcp, 1.1.1.1, foo)", "DST argument should be IP address or 'DST_ANNO'"),
        ("IPEncap(tcp, 1.1.1.1, DST_ANNO, ECT 3)", "bad ECT value '3'"),
        ("IPEncap(tcp, 1.1.1.1, DST_ANNO, ECT 1, CE true)", "can set at most one ECN option"),
        ("IPEncap(tcp, 1.1.1.1, DST_ANNO, TOS 3, DSCP 4)", "cannot set both TOS and DSCP"),
        ("IPEncap(tcp, 1.1.1.1, DST_ANNO, TTL 300)", "TTL: out of range, bound 255"),
        ("UDPIPEncap(1.1.1.1, foo, 1.1.1.2, 3)", "SPORT: parse error"),
        ("UDPIPEncap(1.1.1.1, 70000, 1.1.1.2, 3)", "SPORT: overflow, range 0-65535"),
        ("UDPIPEncap(1.1.1.1, 7000, 1.1.1.x, 3)", "bad DST"),
        ("ICMPIPEncap(1.1.1.1, 2.2.2.2, echo, foo)", "invalid CODE"),
        ("ICMPIPEncap(1.1.1.1, 2.2.2.2, 300)", "invalid TYPE"),
        ("ICMPError(1.1.1.1, echo)", "ICMP type 8 is not an error type"),
        ("ICMPError(1.1.1.1, 300)", "ICMP type must be between 0 and 255"),
        ("ICMPError(1.1.1.1, 3, foo)", "argument 2 takes ICMP code (integer between 0 and 255)"),
        ("ICMPError(1.1.1.1, 3, 4, 1.2.3.4 5.6.7.8x)", "BADADDRS: parse error"),
        ("CheckIPHeader(1.2.3.4 1.2.x)", "too many arguments"),
        ("CheckIPHeader(INTERFACES 1.2.3.4/x)", "INTERFACES: parse error"),
        ("CheckIPHeader(FOO x)", "FOO: unknown argument"),
        ("SetIPAddress(1.2.3.4, ANNO 99)", "ANNO: parse error"),
        ("GetIPAddress()", "set one of OFFSET, IP"),
        ("GetIPAddress(IP foo)", "bad IP"),
        ("StoreIPAddress(foo)", "type mismatch: OFFSET requires integer"),
        ("SetIPDSCP(64)", "diffserv code point out of range"),
        ("SetIPECN(64)", "bad ECN argument"),
        ("IPPrint(CONTENTS foo)", "bad contents value 'FOO'; should be 'NONE', 'HEX', or 'ASCII'"),
        ("IPPrint(PAYLOAD foo)", "bad payload value 'no'; should be 'false', 'hex', or 'ascii'"),
        ("IPPrint(PAYLOAD hex, CONTENTS hex)", "specify at most one of PAYLOAD and CONTENTS"),
        ("Strip", "LENGTH: required argument missing"),
        ("Strip(-1)", "LENGTH: invalid number"),
        ("IPFragmenter(4)", "MTU must be at least 8"),
    ] {
        refused(element, &[error]);
    }
}

#[test]
fn checks_count_and_name_what_they_refuse() {
    let run = run("InfiniteSource(LIMIT 3, STOP true) -> IPEncap(17, 1.2.3.255, 9.9.9.9)
        -> c::CheckIPHeader(INTERFACES 1.2.3.4/24, VERBOSE true, DETAILS true) -> Discard");
    assert_eq!(run.said(), ["c: IP header check failed: bad source address"; 3]);
    assert_eq!(run.read("c.drops"), "3");
    assert!(run.read("c.drop_details").ends_with("0\tbad IP checksum\n3\tbad source address\n"));
    for (element, text) in [
        ("CheckIPHeader", "c: IP header check failed: bad IP version"),
        ("CheckIPHeader(99)", "c: IP header check failed: tiny packet"),
        ("CheckTCPHeader", "c :: CheckTCPHeader: TCP header check failed: not TCP"),
        ("CheckUDPHeader", "UDP header check failed: not UDP"),
        ("CheckICMPHeader", "c :: CheckICMPHeader: ICMP header check failed: not ICMP"),
        ("SetIPChecksum", "SetIPChecksum: bad input packet"),
        ("SetTCPChecksum", "SetTCPChecksum: bad lengths"),
        ("SetUDPChecksum", "c :: SetUDPChecksum: fragment or short packet"),
    ] {
        says(&format!("{SOURCE} -> c::{element} -> Print -> Discard"), &[text]);
    }
    for (encap, element, text) in [
        ("udp", "CheckUDPHeader", "UDP header check failed: bad packet length"),
        ("tcp", "CheckTCPHeader", "c :: CheckTCPHeader: TCP header check failed: bad TCP checksum"),
        ("icmp", "CheckICMPHeader", "c :: CheckICMPHeader: ICMP header check failed: bad ICMP checksum"),
    ] {
        says(
            &format!("{SOURCE} -> IPEncap({encap}, 1.1.1.1, 2.2.2.2) -> c::{element} -> Print -> Discard"),
            &[text],
        );
    }
}

#[test]
fn headers_are_put_before_packets() {
    says(
        &format!(
            "{SOURCE} -> IPEncap(tcp, 1.2.3.4, 5.6.7.8, TTL 7, DSCP 9, ECT 2, DF true) -> Print(MAXLENGTH 20)
            -> CheckIPHeader -> IPPrint(TIMESTAMP no, ID true, TTL true, TOS true, LENGTH true) -> Discard"
        ),
        &[
            "  89 | 45260059 00004000 07066366 01020304 05060708",
            "id 0 ttl 7 tos 38 length 89 1.2.3.4.21089 > 5.6.7.8.28260: FP 1869422690:1869422736(46,89,89) win 29728",
        ],
    );
    says(
        "InfiniteSource(DATA \\<0001020202010200>, LIMIT 2, STOP true) -> UDPIPEncap(1.1.1.1, ssh, 1.1.1.2, 300, false)
        -> Print(MAXLENGTH 28) -> CheckIPHeader -> CheckUDPHeader -> IPPrint(TIMESTAMP no, PAYLOAD hex) -> Discard",
        &[
            "  36 | 45000024 00000000 fa11bcc4 01010101 01010102 0016012c 00100000",
            "1.1.1.1.22 > 1.1.1.2.300: udp 16",
            "  00010202 02010200",
            "  36 | 45000024 00010000 fa11bcc3 01010101 01010102 0016012c 00100000",
            "1.1.1.1.22 > 1.1.1.2.300: udp 16",
            "  00010202 02010200",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> ICMPPingEncap(1.1.1.1, 1.1.1.2, IDENTIFIER 99) -> Print(MAXLENGTH 28) -> CheckIPHeader
            -> CheckICMPHeader -> IPPrint(TIMESTAMP no) -> IPPrint(TIMESTAMP no, SWAP false) -> Discard"
        ),
        &[
            "  97 | 45000061 00010000 ff01b796 01010101 01010102 08004c93 00630001",
            "1.1.1.1 > 1.1.1.2: icmp echo (99, 1)",
            "1.1.1.1 > 1.1.1.2: icmp echo (25344, 256)",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> UDPIPEncap(1.1.1.1, 1, 2.2.2.2, 5) -> ICMPIPEncap(1.1.1.1, 1.1.1.2, unreachable, port)
            -> CheckIPHeader -> CheckICMPHeader -> IPPrint(TIMESTAMP no) -> Discard"
        ),
        &["1.1.1.1 > 1.1.1.2: icmp 2.2.2.2 unreachable port udp/5"],
    );
}

#[test]
fn settings_change_while_packets_move() {
    let run = build("Idle -> s::IPEncap(tcp, 1.1.1.1, 2.2.2.2, TTL 3) -> Discard");
    run.write("s.src 3.4.5.6");
    assert_eq!(run.read("s.config").trim_end(), "tcp, 3.4.5.6, 2.2.2.2, TTL 3");
    run.write("s.dst DST_ANNO");
    assert_eq!(run.read("s.dst"), "DST_ANNO");
    assert_eq!(run.write("s.src foo"), "SRC: parse error");
    assert_eq!(run.read("s.src"), "3.4.5.6");
    let run = build("Idle -> s::SetIPDSCP(DSCP 10) -> Discard");
    assert_eq!(run.read("s.dscp"), "10");
    run.write("s.dscp 2");
    assert_eq!(
        (run.read("s.dscp"), run.read("s.config").trim_end().to_owned()),
        ("2".into(), "DSCP 2".into())
    );
    assert_eq!(run.write("s.dscp 99"), "diffserv code point out of range");
    let run = build("Idle -> s::DecIPTTL -> Discard");
    assert_eq!(run.write("s.active foo"), "expected boolean");
}

#[test]
fn stripped_bytes_come_back() {
    says(
        "InfiniteSource(DATA abcdefghijklmnop, LIMIT 1, STOP true) -> Strip(4) -> Print -> Unstrip(3) -> Print
        -> Strip(5) -> Unstrip(6) -> Print -> Strip(100) -> Print -> Discard",
        &[
            "  12 | 65666768 696a6b6c 6d6e6f70",
            "  15 | 62636465 66676869 6a6b6c6d 6e6f70",
            "  16 | 61626364 65666768 696a6b6c 6d6e6f70",
            "Packet::pull 100 > length 16",
            "   0",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> UDPIPEncap(1.1.1.1, 1, 2.2.2.2, 5, false) -> Unstrip(14) -> StripToNetworkHeader
            -> Print(MAXLENGTH 4) -> StripIPHeader -> Print(MAXLENGTH 4) -> t::Tee -> UnstripIPHeader
            -> Print(MAXLENGTH 4) -> StripTransportHeader -> Print(MAXLENGTH 4) -> Discard;
            t[1] -> UnstripIPHeader -> Print(COPY, MAXLENGTH 4) -> Discard"
        ),
        &[
            "  97 | 45000061",
            "  77 | 00010005",
            "  97 | 45000061",
            "  69 | 52616e64",
            "COPY:   97 | 45000061",
        ],
    );
}

#[test]
fn fields_change_and_checksums_follow() {
    says(
        &format!(
            "{SOURCE} -> IPEncap(udp, 1.1.1.1, 2.2.2.2, TTL 3) -> SetIPDSCP(60) -> CheckIPHeader -> SetECN(ce)
            -> CheckIPHeader -> Print(MAXLENGTH 20) -> DecIPTTL -> CheckIPHeader -> SetIPECN(no) -> d::DecIPTTL
            -> CheckIPHeader -> e::DecIPTTL -> Print(NOT) -> Discard; e[1] -> Print(MAXLENGTH 20) -> m::MarkIPCE
            -> Print(NOT) -> Discard"
        ),
        &[
            "  89 | 45f30059 00000000 0311b09c 01010101 02020202",
            "  89 | 45f00059 00000000 0111b29f 01010101 02020202",
        ],
    );
    // Addresses, ports and the source for answers.
    says(
        "InfiniteSource(DATA \\<00010002001000000001020102020102>, LIMIT 1, STOP true)
        -> IPEncap(udp, 1.1.1.1, 2.2.2.2) -> SetUDPChecksum -> Print(MAXLENGTH 100) -> CheckUDPHeader -> IPMirror
        -> CheckUDPHeader -> Print -> StoreIPAddress(7.7.7.7, src) -> CheckUDPHeader -> CheckIPHeader -> Print
        -> Discard",
        &[
            "  36 | 45000024 00000000 fa11bac3 01010101 02020202 00010002 0010f4bf 00010201 02020102",
            "  36 | 45000024 00000000 fa11bac3 02020202 01010101 00020001",
            "  36 | 45000024 00000000 fa11b0b9 07070707 01010101 00020001",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> IPEncap(tcp, 1.1.1.1, 2.2.2.2) -> SetTCPChecksum -> Print(MAXLENGTH 40) -> CheckTCPHeader
            -> IPMirror -> CheckTCPHeader -> Print(MAXLENGTH 40) -> Discard"
        ),
        &[
            "  89 | 45000059 00000000 fa06ba99 01010101 02020202 52616e64 6f6d2062 756c6c73 68697420 b8142061",
            "  89 | 45000059 00000000 fa06ba99 02020202 01010101 6e645261 756c6c73 6f6d2062 68697420 b8142061",
        ],
    );
}

#[test]
fn fragments_are_cut_and_put_together() {
    let fragments = [
        "1.0.0.1.2 > 3.0.0.3.4: udp 77 (frag 0:24@0+)",
        "1.0.0.1 > 3.0.0.3: udp (frag 0:24@24+)",
        "1.0.0.1 > 3.0.0.3: udp (frag 0:24@48+)",
        "1.0.0.1 > 3.0.0.3: udp (frag 0:5@72)",
    ];
    let path = "InfiniteSource(LIMIT 1) -> UDPIPEncap(1.0.0.1, 2, 3.0.0.3, 4) -> IPFragmenter(45)";
    let whole = "1.0.0.1.2 > 3.0.0.3.4: udp 77";
    let mut expected = fragments.to_vec();
    expected.push(whole);
    says(
        &format!(
            "{path} -> IPPrint(TIMESTAMP no) -> IPReassembler -> CheckIPHeader -> CheckUDPHeader
            -> IPPrint(TIMESTAMP no) -> Discard"
        ),
        &expected,
    );
    // Fragments in another order.
    let run = run(&format!(
        "{path} -> rr::RoundRobinSwitch -> a::Null; rr[1] -> Queue -> DelayUnqueue(0.01) -> a;
        rr[2] -> Queue -> DelayUnqueue(0.005) -> a; rr[3] -> a;
        a -> IPPrint(TIMESTAMP no) -> r::IPReassembler(MAX_MTU_ANNO 20) -> CheckIPHeader -> CheckUDPHeader
        -> IPPrint(TIMESTAMP no) -> Discard; DriverManager(wait 0.05, stop)"
    ));
    assert_eq!(run.said(), [fragments[0], fragments[3], fragments[2], fragments[1], whole]);
    assert!(run.read("r.dump").starts_with("frags seen total:    4\ngood reassemblies:   1\n"));
}

#[test]
fn fragments_that_stay_alone_are_given_up() {
    let lost = "InfiniteSource(LIMIT 40, STOP true) -> UDPIPEncap(1.0.0.1, 2, 3.0.0.3, 4) -> IPFragmenter(45)
        -> rr::RoundRobinSwitch -> Discard; rr[1] -> a::Null; rr[2] -> a; rr[3] -> a;
        a -> r::IPReassembler(HIMEM 800) -> Print(NOT) -> Discard; r[1] -> c::Counter -> CheckIPHeader(VERBOSE true)
        -> Discard";
    let run = run(lost);
    assert_eq!(run.said(), Vec::<String>::new());
    let held = run.read("r.dump").lines().count() - 5;
    assert!((1..8).contains(&held), "{held}");
    assert_eq!(run.read("c.count"), (40 - held).to_string());
}

#[test]
fn fragments_keep_their_options() {
    let source = |data: &str| {
        format!(
            "InfiniteSource(DATA \\<{data}>, LIMIT 1, STOP true) -> MarkIPHeader -> IPFragmenter(40, false)
            -> Print(MAXLENGTH 1000) -> Discard"
        )
    };
    says(
        &source(
            "4600002c 00000000 64063482 121a042c 0a000004 01010000 001e0028 00000000 00000000 50000000 8f550000",
        ),
        &[
            "  40 | 46000028 00002000 64061486 121a042c 0a000004 01010000 001e0028 00000000 00000000 50000000",
            "  24 | 45000018 00000002 64063695 121a042c 0a000004 8f550000",
        ],
    );
    // Loose source routes are in every fragment.
    says(
        &source(
            "4700002c 00000000 64060000 121a042c 0a000004 83070405 06070800 001e0028 00000000 00000000 50000000",
        ),
        &[
            "  36 | 47000024 00002000 64067f77 121a042c 0a000004 83070405 06070800 001e0028 00000000",
            "  36 | 47000024 00000001 64069f76 121a042c 0a000004 83070405 06070800 00000000 50000000",
        ],
    );
    says(
        &format!("{SOURCE} -> IPEncap(udp, 1.1.1.1, 2.2.2.2, DF true) -> IPFragmenter(50) -> Discard"),
        &["IPFragmenter(50) DF 1.1.1.1 2.2.2.2 len=89"],
    );
}

#[test]
fn errors_answer_only_what_may_be_answered() {
    says(
        &format!(
            "{SOURCE} -> UDPIPEncap(4.3.2.1, 1, 2.2.2.2, 5) -> ICMPError(1.1.1.1, unreachable, needfrag, PMTU 1300,
            MTU 60) -> CheckIPHeader -> CheckICMPHeader -> IPPrint(TIMESTAMP no, LENGTH true) -> FixIPSrc(9.9.9.9)
            -> CheckIPHeader -> IPPrint(TIMESTAMP no) -> ICMPError(1.1.1.1, 3, 1) -> Print(NOT) -> Discard"
        ),
        &[
            "length 60 1.1.1.1 > 4.3.2.1: icmp 2.2.2.2 unreachable needfrag (mtu 1300)",
            "9.9.9.9 > 4.3.2.1: icmp 2.2.2.2 unreachable needfrag (mtu 1300)",
        ],
    );
    for (source, destination) in [
        ("127.3.2.1", "2.2.2.2"),
        ("241.3.2.1", "2.2.2.2"),
        ("0.3.2.1", "2.2.2.2"),
        ("1.2.3.4", "225.2.2.2"),
        ("1.2.3.4", "2.2.2.255"),
        ("1.2.3.4", "255.255.255.255"),
    ] {
        says(
            &format!(
                "{SOURCE} -> UDPIPEncap({source}, 1, {destination}, 5) -> ICMPError(1.1.1.1, 3, 1, 2.2.2.255)
                -> Print(NOT) -> Discard"
            ),
            &[],
        );
    }
}

#[test]
fn options_are_filled_in() {
    let source = "InfiniteSource(LIMIT 1, STOP true, DATA \\<4800003c 00000000 64063482 121a042c 0a000004 070b0401 \
                  02030405 06070800 001e0028 00000000 00000000 50000000 8f550000 00000000>) -> MarkIPHeader";
    says(
        &format!(
            "{source} -> IPGWOptions(9.9.9.9) -> StripIPHeader -> UnstripIPHeader -> IPGWOptions(9.9.9.8)
            -> Print(MAXLENGTH 32) -> IPGWOptions(9.9.9.7) -> Print(MAXLENGTH 24) -> Discard"
        ),
        &[
            "  56 | 4800003c 00000000 6406fd43 121a042c 0a000004 070b0c09 09090909 09090800",
            "  56 | 4800003c 00000000 6406fd43 121a042c 0a000004 070b0c09",
        ],
    );
    let source = source.replace("070b0401", "070c0401");
    says(
        &format!(
            "{source} -> IPGWOptions(9.9.9.9) -> IPGWOptions(9.9.9.8) -> g::IPGWOptions(9.9.9.7) -> Print(NOT)
            -> Discard; g[1] -> ICMPError(1.1.1.1, parameterproblem, erroratptr) -> CheckICMPHeader -> StripIPHeader
            -> Print(MAXLENGTH 8) -> Discard"
        ),
        &["  64 | 0c00fe63 16000000"],
    );
}

#[test]
fn pings_come_back() {
    let run = run("p::ICMPPingSource(1.1.1.1, 2.2.2.2, LIMIT 2, INTERVAL 0.5, STOP true, DATA hello)
        -> IPPrint(TIMESTAMP no) -> Queue -> DelayUnqueue(0.01) -> ICMPPingResponder -> CheckIPHeader
        -> CheckICMPHeader -> IPPrint(TIMESTAMP no) -> p");
    let mut expected = Vec::new();
    for number in 1..3 {
        expected.push(format!("1.1.1.1 > 2.2.2.2: icmp echo (0, {number})"));
        expected.push(format!("2.2.2.2 > 1.1.1.1: icmp echo-reply (0, {number})"));
        expected.push(format!(
            "p :: ICMPPingSource: 5 bytes from 2.2.2.2: icmp_seq={number} ttl=255 time=10.000 ms"
        ));
    }
    assert_eq!(run.said(), expected);
    assert_eq!(
        run.read("p.summary"),
        "2 packets transmitted, 2 received, 0% packet loss\n\
         rtt min/avg/max/mdev = 10.000/10.000/10.000/0.000\n"
    );
    assert_eq!(run.read("p.rtt_avg"), "0.01s");
    assert_eq!(run.write("p.limit foo"), "'limit' should be integer");
}

#[test]
fn combos_do_what_their_parts_do() {
    says(
        &format!(
            "{SOURCE} -> UDPIPEncap(1.1.1.1, 1, 2.2.2.2, 5, false) -> Unstrip(14) -> IPInputCombo(4, 5.5.5.5)
            -> o::IPOutputCombo(4, 9.9.9.9, 90) -> Print(NOT) -> Discard; o[1] -> Print(ONE, MAXLENGTH 4) -> Discard;
            o[2] -> Discard; o[3] -> Discard; o[4] -> CheckIPHeader -> Print(FOUR, MAXLENGTH 12) -> Discard"
        ),
        &["ONE:   97 | 45000061", "FOUR:   97 | 45000061 00000000 f911bb86"],
    );
}

#[test]
fn sources_of_udp_packets_step_their_ports() {
    says(
        "FastUDPSource(0, 3, 60, 1:2:3:4:5:6, 1.1.1.1, 5, 2:3:4:5:6:7, 2.2.2.2, 9, true, 2) -> Strip(14)
        -> CheckIPHeader(VERBOSE true) -> CheckUDPHeader(VERBOSE true) -> IPPrint(TIMESTAMP no) -> Unqueue -> Discard;
        DriverManager(wait 0.1)",
        &[
            "1.1.1.1.5 > 2.2.2.2.9: udp 26",
            "1.1.1.1.5 > 2.2.2.2.9: udp 26",
            "1.1.1.1.6 > 2.2.2.2.10: udp 26",
        ],
    );
    let run = run("f::FastUDPFlows(0, 5, 80, 1:2:3:4:5:6, 1.1.1.1, 2:3:4:5:6:7, 2.2.2.2, 3, 2) -> Strip(14)
        -> CheckIPHeader(VERBOSE true) -> CheckUDPHeader(VERBOSE true) -> c::Counter -> Unqueue -> Discard;
        DriverManager(wait 0.1)");
    assert_eq!((run.said(), run.read("c.count")), (Vec::new(), "5".to_owned()));
}

#[test]
fn tunnels_of_gre_lead_through() {
    says(
        &format!(
            "{SOURCE} -> IPEncap(udp, 1.1.1.1, 2.2.2.2) -> GREEncap(0x800, KEY 7, SEQUENCE true, CHECKSUM true)
            -> Print(MAXLENGTH 20) -> IPEncap(gre, 9.9.9.9, 8.8.8.8) -> CheckIPHeader -> StripIPHeader -> t::Tee(3)
            -> d::GREDecap(0x800, KEY 7, SEQUENCE true) -> Print(MAXLENGTH 4) -> Discard;
            t[1] -> d; d[1] -> Print(AGAIN, MAXLENGTH 4) -> Discard;
            t[2] -> k::GREDecap(KEY 8) -> Print(NOT) -> Discard; k[1] -> Print(KEY, MAXLENGTH 4) -> Discard"
        ),
        &[
            " 105 | b0000800 9cef0000 00000007 00000000 45000059",
            "  89 | 45000059",
            "AGAIN:  105 | b0000800",
            "KEY:  105 | b0000800",
        ],
    );
}

/// An IPv4 packet with an IGMP message, as data of a source.
fn message(kind: u8, group: [u8; 4]) -> String {
    let [a, b, c, d] = group;
    let words = u32::from(kind) * 256 + u32::from(a) * 256 + u32::from(b) + u32::from(c) * 256 + u32::from(d);
    let sum = !((words & 0xFFFF) + (words >> 16));
    format!("\\<{kind:02x}00{:04x}{a:02x}{b:02x}{c:02x}{d:02x}>", sum & 0xFFFF)
}

#[test]
fn groups_have_members_while_hosts_report() {
    let run = run(&format!(
        "i::IGMP(10.0.0.1, CAPACITY 1);
        a::InfiniteSource({}, LIMIT 1, ACTIVE false) -> IPEncap(igmp, 10.0.0.2, 224.0.0.2, TTL 1) -> i;
        b::InfiniteSource({}, LIMIT 1, ACTIVE false) -> IPEncap(igmp, 10.0.0.2, 224.0.0.2, TTL 1) -> i;
        c::InfiniteSource({}, LIMIT 1, ACTIVE false) -> IPEncap(igmp, 10.0.0.2, 224.0.0.2, TTL 1) -> i;
        m::InfiniteSource(LIMIT 1, ACTIVE false) -> IPEncap(udp, 1.1.1.1, 239.1.2.3) -> [1] i;
        i -> n::Counter -> Discard;
        i[1] -> CheckIPHeader(VERBOSE true) -> IPPrint(TIMESTAMP no) -> StripIPHeader -> Print(MAXLENGTH 8) -> Discard;
        DriverManager(wait 1, write m.active true, wait 1, write a.active true, wait 1,
            write m.reset, wait 1, write b.active true, wait 1,
            write c.active true, wait 5, write m.reset, wait 1, stop)",
        message(0x16, [239, 1, 2, 3]),
        message(0x16, [239, 1, 2, 4]),
        message(0x17, [239, 1, 2, 3]),
    ));
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(
        run.said(),
        [
            "10.0.0.1 > 224.0.0.1: ip-proto-2",
            "   8 | 1164ee9b 00000000",
            "10.0.0.1 > 239.1.2.3: ip-proto-2",
            "   8 | 110afdf0 ef010203",
            "10.0.0.1 > 239.1.2.3: ip-proto-2",
            "   8 | 110afdf0 ef010203",
        ]
    );
    assert_eq!(run.read("n.count"), "1");
    assert_eq!(
        (run.read("i.refused"), run.read("i.groups"), run.read("i.bad")),
        ("1".into(), String::new(), "0".into())
    );
}

/// A TCP packet with these flags, sequence number and payload, as data of a source.
fn segment(sequence: u32, flags: u8, payload: &str) -> String {
    let length = 40 + payload.len();
    let text: String = payload.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "\\<4500{length:04x} 00000000 40060000 01010101 02020202 00010002 {sequence:08x} 00000000 50{flags:02x}1000 \
         00000000 {text}>"
    )
}

#[test]
fn tcp_payload_comes_in_order_and_once() {
    let packets = [
        (99, 2, ""),
        (100, 16, "abcd"),
        (108, 16, "ijkl"),
        (104, 16, "efgh"),
        (106, 16, "ghijklmn"),
        (100, 16, "abcd"),
        (200_000, 16, "far"),
        (116, 17, "qr"),
        (114, 16, "op"),
    ];
    let mut configuration = String::from(
        "h::Null -> MarkIPHeader -> SetIPChecksum -> SetTCPChecksum -> c::TCPCollector(BYTES 1000)
        -> CheckIPHeader(VERBOSE true) -> CheckTCPHeader(VERBOSE true)
        -> IPPrint(TIMESTAMP no) -> Strip(40) -> Print -> Discard; c[1] -> Strip(40) -> Print(FAR) -> Discard;",
    );
    let mut script = Vec::new();
    for (number, (sequence, flags, payload)) in packets.into_iter().enumerate() {
        let data = segment(sequence, flags, payload);
        configuration += &format!("s{number}::InfiniteSource({data}, LIMIT 1, ACTIVE false) -> h;");
        script.push(format!("write s{number}.active true, wait 0.01"));
    }
    configuration += &format!("DriverManager({}, stop)", script.join(", "));
    let run = run(&configuration);
    assert_eq!(run.errors, Vec::<String>::new());
    let head = "1.1.1.1.1 > 2.2.2.2.2:";
    assert_eq!(
        run.said(),
        [
            format!("{head} S 99:100(1,40,40) win 4096"),
            "   0".into(),
            format!("{head} . 100:104(4,44,44) ack 0 win 4096"),
            "   4 | 61626364".into(),
            format!("{head} . 104:108(4,44,44) ack 0 win 4096"),
            "   4 | 65666768".into(),
            format!("{head} . 108:112(4,44,44) ack 0 win 4096"),
            "   4 | 696a6b6c".into(),
            format!("{head} . 112:114(2,42,42) ack 0 win 4096"),
            "   2 | 6d6e".into(),
            "FAR:    3 | 666172".into(),
            format!("{head} . 114:116(2,42,42) ack 0 win 4096"),
            "   2 | 6f70".into(),
            format!("{head} F 116:119(3,42,42) ack 0 win 4096"),
            "   2 | 7172".into(),
        ]
    );
    assert_eq!(
        (run.read("c.flows"), run.read("c.held"), run.read("c.duplicates")),
        ("0".into(), "0".into(), "1".into())
    );
}

/// A PPPoE discovery frame of a host, as data of a source.
fn discovery(code: u8, session: u16, to: &str, tags: &str) -> String {
    let length = tags.chars().filter(|letter| !letter.is_whitespace()).count() / 2;
    format!("\\<{to} 020000000002 8863 11{code:02x} {session:04x} {length:04x} {tags}>")
}

#[test]
fn hosts_find_a_concentrator_and_get_sessions() {
    let here = "020000000001";
    let asks = discovery(9, 0, "ffffffffffff", "0101 0000 0103 0002 abcd");
    let other = discovery(9, 0, "ffffffffffff", "0101 0003 666f6f");
    let forged = discovery(0x19, 0, here, "0101 0000 0104 0008 0000000000000000");
    let run = run(&format!(
        "d::PPPoEDiscovery(02:00:00:00:00:01, ac, CAPACITY 1, SERVICES video) -> Print(MAXLENGTH 100) -> Discard;
        a::InfiniteSource({asks}, LIMIT 1) -> d; InfiniteSource({other}, LIMIT 1) -> d;
        InfiniteSource({forged}, LIMIT 1) -> d;
        e::InfiniteSource(\\<0021 4500>, LIMIT 1, ACTIVE false) -> PPPoEEncap(02:00:00:00:00:02, 02:00:00:00:00:01, 1)
        -> Print(MAXLENGTH 30) -> x::PPPoEDecap(DISCOVERY d) -> SetIPAddress(1.2.3.4) -> Print(IN)
        -> PPPoEEncap(DISCOVERY d) -> Print(MAXLENGTH 30) -> Discard; x[1] -> Print(OUT) -> Discard;
        DriverManager(wait 0.01, stop)"
    ));
    assert_eq!(run.errors, Vec::<String>::new());
    let said = run.said();
    assert_eq!(said.len(), 1, "{said:?}");
    let offer: String = said[0].chars().skip(7).filter(|letter| *letter != ' ').collect();
    let begin = "020000000002020000000001886311070000";
    assert!(offer.starts_with(begin), "{offer}");
    assert!(offer.contains("0101000001010005766964656f"), "{offer}");
    assert!(offer.contains("010200026163") && offer.ends_with("01030002abcd"), "{offer}");
    let place = offer.find("01040008").expect("a cookie");
    let cookie = &offer[place..place + 24];
    let request = discovery(0x19, 0, here, &format!("01010000{cookie}01030002abcd"));
    let feed = |frame: &str| {
        let router = run.router.as_ref().expect("a router");
        let at = router.at(router.exactly("d").expect("the concentrator"));
        let digits: Vec<u8> = frame.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("digits");
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        router.element(at.id).push(at, 0, at.packet(&bytes).expect("memory"));
        run.said().last().cloned().unwrap_or_default()
    };
    let granted = feed(&request);
    assert!(granted.contains("88631165 0001"), "{granted}");
    assert_eq!(run.read("d.sessions"), "1\t02-00-00-00-00-02\n");
    // The table is full: a system error.
    let refused = feed(&request);
    assert!(refused.contains("88631165 0000") && refused.contains("0202"), "{refused}");
    assert_eq!(run.read("d.refused"), "1");
    run.write("e.active true");
    run.router.as_ref().expect("a router").set_run_count(1);
    run.go();
    let said = run.said();
    assert_eq!(
        said[said.len() - 3..],
        [
            "  24 | 02000000 00010200 00000002 88641100 00010004 00214500",
            "IN:    4 | 00214500",
            "  24 | 02000000 00020200 00000001 88641100 00010004 00214500",
        ]
    );
    let ended = discovery(0xA7, 1, here, "");
    feed(&ended);
    assert_eq!(run.read("d.count"), "0");
}

#[test]
fn ppp_links_come_up() {
    let run = run("a::PPPControlProtocol(10.0.0.1, 10.0.0.2); b::PPPControlProtocol(10.0.0.2, 10.0.0.1);
        a -> Print(A, MAXLENGTH 8) -> q::Queue -> DelayUnqueue(0.001) -> b;
        b -> Queue -> DelayUnqueue(0.001) -> a;
        s::InfiniteSource(\\<45000014>, LIMIT 1, ACTIVE false) -> [1] a; Idle -> [1] b; a[1] -> Discard;
        b[1] -> Print(B) -> Discard;
        DriverManager(write s.active true, wait 0.1, write a.open, wait 1, write s.reset, wait 1, stop)");
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!((run.read("a.up"), run.read("b.up")), ("true".into(), "true".into()));
    let said = run.said();
    assert_eq!(said[said.len() - 2..], ["A:    6 | 00214500 0014", "B:    4 | 45000014"]);
    let run = build("a::PPPControlProtocol(10.0.0.1, 10.0.0.2) -> a; Idle -> [1] a; a[1] -> Discard");
    // A link that leads back to its own end stays down.
    run.write("a.open");
    assert_eq!(run.read("a.up"), "false");
}

#[test]
fn no_packet_upsets_an_element() {
    // Bytes without meaning, marked as headers at places inside, at the end of and behind them.
    let elements = [
        "CheckIPHeader",
        "CheckIPHeader2",
        "CheckTCPHeader",
        "CheckUDPHeader",
        "CheckICMPHeader",
        "IPPrint(PAYLOAD hex)",
        "StripToNetworkHeader",
        "StripIPHeader",
        "UnstripIPHeader",
        "StripTransportHeader",
        "DecIPTTL",
        "IPFragmenter(28)",
        "IPReassembler",
        "ICMPError(1.1.1.1, 3, 4)",
        "ICMPPingResponder",
        "GetIPAddress(16)",
        "GetIPAddress(IP dst)",
        "StoreIPAddress(2)",
        "StoreIPAddress(1.1.1.1, dst)",
        "SetIPDSCP(1)",
        "SetIPECN(1)",
        "MarkIPCE(true)",
        "SetIPChecksum",
        "SetTCPChecksum(true)",
        "SetUDPChecksum",
        "DropBroadcasts",
        "IPGWOptions(1.1.1.1)",
        "GREDecap",
        "PPPoEDecap",
        "TCPCollector",
        "FixIPSrc(1.1.1.1)",
        "IPInputCombo(1)",
        "IPMirror",
    ];
    let headers = [
        "45",
        "4500",
        "4f0000ff 00000000 40060000 01010101 02020202 07ffff",
        "46000018 00002000 40010000 01010101 \
         02020202 44020000",
        "45000014 00000000 40060000 01010101 02020202",
        "4500001c 00003fff 40110000 01010101 \
         02020202 00010002 ffff0000",
        "4600ffff 00000000 00010000 01010101 02020202 83ff0503 0b000000 00000000",
        "40000000 00000000 40060000 01010101 02020202 00000000",
        "47000024 00000000 40060000 01010101 02020202 \
         44080d03 01010101 00000000 00000000",
        "4500002c 00000000 40060000 01010101 02020202 00000000 00000000 \
         00000000 f0020000 00000000 00000000",
    ];
    let marks = [
        "",
        "-> MarkIPHeader",
        "-> MarkIPHeader(1)",
        "-> MarkIPHeader(20)",
        "-> MarkIPHeader(99)",
        "-> Unstrip(14)",
    ];
    for element in elements {
        let mut configuration = format!("x::{element} -> Discard; DriverManager(wait 0.01, stop);");
        for header in headers {
            for mark in marks {
                configuration += &format!("InfiniteSource(DATA \\<{header}>, LIMIT 2) {mark} -> x;");
            }
        }
        assert_eq!(run(&configuration).errors, Vec::<String>::new());
    }
}

#[test]
fn payloads_are_erased_and_cut() {
    says(
        "InfiniteSource(DATA 123456789abcdefgh, LIMIT 1, STOP true) -> UDPIPEncap(1.1.1.1, 1, 2.2.2.2, 2, false) -> t::Tee
         -> EraseIPPayload -> Print(a, 100) -> Discard; t[1] -> TruncateIPPayload(3) -> Print(b, 100)
         -> SetRandIPAddress(9.9.9.0/30, 5) -> g::GetIPAddress(0, ANNO MISC_IP) -> Discard",
        &[
            "a:   45 | 4500002d 00000000 fa11baba 01010101 02020202 00010002 00190000 00000000 00000000 00000000 \
             00000000 00",
            "b:   31 | 4500002d 00000000 fa11baba 01010101 02020202 00010002 00190000 313233",
        ],
    );
}

#[test]
fn ports_of_a_dynamic_encapsulation_step() {
    let run = run(
        "InfiniteSource(LIMIT 5, STOP true, DATA ab) -> e::DynamicUDPIPEncap(1.0.0.1, 1234, 2.0.0.2, 5, true, 2) \
                   -> CheckIPHeader -> k::CheckUDPHeader -> Strip(20) -> Print(p, 4) -> Discard",
    );
    assert_eq!(run.errors, [""; 0]);
    let ports: Vec<String> =
        run.said().iter().map(|line| line.split("| ").nth(1).unwrap_or("").to_owned()).collect();
    assert_eq!(ports, ["04d20005", "04d20005", "04d30006", "04d30006", "04d40007"]);
    assert_eq!((run.read("k.drops"), run.read("e.sport")), ("0".into(), "1236".into()));
}
