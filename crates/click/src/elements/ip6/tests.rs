//! Small configurations.

use crate::testing::{build, run};

/// Lines that the elements of a configuration say.
#[track_caller]
fn says(configuration: &str, expected: &[&str]) {
    let run = run(configuration);
    assert_eq!(run.errors, Vec::<String>::new(), "{configuration}");
    assert_eq!(run.said(), expected, "{configuration}");
}

const SOURCE: &str = "InfiniteSource(DATA abcdefgh, LIMIT 1, STOP true)";
/// An echo request from `::ffff:1.2.3.4`'s plain form `::1.2.3.4` to `::5.6.7.8`, with a right checksum.
const ECHO: &str = "600000000008 3a40 00000000000000000000000001020304 00000000000000000000000005060708 \
                    8000 6fa6 0001 0002";

fn data(hex: &str) -> String {
    let digits: String = hex.split_whitespace().collect();
    format!("InfiniteSource(DATA \\<{digits}>, LIMIT 1, STOP true)")
}

#[test]
fn bad_configurations_are_refused() {
    for (element, error) in [
        ("CheckIP6Header(1.2.3)", "expects IP6ADDRESS -a "),
        ("GetIP6Address", "OFFSET: required argument missing"),
        ("SetIP6Address(1.2.3.4)", "IPADDR: parse error"),
        ("SetIP6DSCP(64)", "diffserv code point out of range"),
        ("IP6Encap(300, ::1, ::2)", "bad IP protocol"),
        ("IP6Encap(6, ::1, x)", "DST argument should be IP address or 'DST_ANNO'"),
        ("UDPIP6Encap(::1, 5, x, 6)", "bad DST"),
        ("ICMP6Error(::, 1, 0)", "not configured -a"),
        ("ICMP6Error(::1, 5, 0)", "ICMP6 type 5 is not an error or redirect type"),
        ("LookupIP6Route(::/0 3)", "need 4 or more output ports"),
        ("LookupIP6Route(::/0)", "argument 1 should be DADDR/MASK [GW] OUTPUT"),
        ("IP6NDAdvertiser(1:2:3:4:5:6)", "argument 0 had no IP6 address and masks"),
    ] {
        let errors = build(&format!("Idle -> x::{element} -> Discard")).errors;
        assert!(errors.iter().any(|line| line.ends_with(error)), "{element}: {errors:?}");
    }
}

#[test]
fn headers_are_put_on_and_checked() {
    says(
        &format!(
            "{SOURCE} -> IP6Encap(17, 2001:db8::1, ::9.8.7.6, HLIM 7) -> SetIP6DSCP(10) -> CheckIP6Header
             -> IP6Print(a) -> DecIP6HLIM -> IP6Print(b, CONTENTS true, NBYTES 8) -> IP6Mirror -> IP6Print(c)
             -> Discard"
        ),
        &[
            "a: 2001:db8::1 -> ::9.8.7.6 plen 8, next 17, hlim 7",
            "b: 2001:db8::1 -> ::9.8.7.6 plen 8, next 17, hlim 6",
            "  62800000 00081106 ",
            "c: ::9.8.7.6 -> 2001:db8::1 plen 8, next 17, hlim 6",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> UDPIP6Encap(2001:db8::1, 5, 2001:db8::2, 6) -> Print(u, 56) -> IP6Mirror
             -> Print(m, 56) -> Discard"
        ),
        &[
            "u:   56 | 60000000 001011ff 20010db8 00000000 00000000 00000001 20010db8 00000000 00000000 00000002 \
             00050006 001012b9 61626364 65666768",
            "m:   56 | 60000000 001011ff 20010db8 00000000 00000000 00000002 20010db8 00000000 00000000 00000001 \
             00060005 001012b9 61626364 65666768",
        ],
    );
}

#[test]
fn bad_packets_are_counted() {
    let run = run(&format!(
        "{SOURCE} -> c::CheckIP6Header -> Discard; c[1] -> IP6Print(bad) -> d::DecIP6HLIM -> Discard"
    ));
    assert_eq!(run.said(), ["IP6 header check failed", "bad: (Not an IP6 packet)"]);
    assert_eq!((run.read("c.drops"), run.read("d.drops")), ("1".into(), "1".into()));
}

#[test]
fn routes_are_chosen_by_length() {
    let run = run(&format!(
        "{SOURCE} -> SetIP6Address(2001:db8:1::1)
         -> r::LookupIP6Route(::/0 fe80::1 0, 2001:db8::/32 1, 2001:db8:1::/48 fe80::2 2) -> Discard;
         r[1] -> Discard; r[2] -> c::Counter -> IP6Encap(6, ::1, DST_ANNO) -> IP6Print -> Discard"
    ));
    assert_eq!(run.read("c.count"), "1");
    assert_eq!(run.said(), ["::0.0.0.1 -> fe80::2 plen 8, next 6, hlim 250"]);
    assert_eq!(run.write("r.add 2001:db8:1::/64 1"), "");
    assert_eq!(run.write("r.remove ::/0"), "");
    assert_eq!(run.write("r.ctrl drop x"), "bad command, should be `add' or `remove'");
    assert_eq!(run.write("r.add ::/0 9"), "output port out of range");
    assert_eq!(
        run.read("r.table"),
        "# Active routes\n2001:db8::/32\t::\t1\n2001:db8:1::/48\tfe80::2\t2\n2001:db8:1::/64\t::\t1\n"
    );
}

#[test]
fn errors_answer_packets_but_not_errors() {
    let run = run(&format!(
        "{SOURCE} -> UDPIP6Encap(2001:db8::1, 5, 2001:db8::2, 6) -> ICMP6Error(2001:db8::9, 3, 0) -> t::Tee
         -> CheckIP6Header -> IP6Print -> p::ProtocolTranslator64 -> Discard;
         t[1] -> ICMP6Error(::1, 1, 0) -> c::Counter -> Discard"
    ));
    assert_eq!(run.said(), ["2001:db8::9 -> 2001:db8::1 plen 64, next 58, hlim 255"]);
    assert_eq!(run.read("c.count"), "0");
}

#[test]
fn neighbours_are_asked_and_answer() {
    let run = run(&format!(
        "{SOURCE} -> UDPIP6Encap(2001:db8::1, 5, 2001:db8::2, 6)
         -> n::IP6NDSolicitor(2001:db8::1, 00:00:00:00:00:01) -> out::Counter -> Print(out, 14) -> Discard;
         n[1] -> IP6NDAdvertiser(2001:db8::/64 00:00:00:00:00:02) -> [1]n"
    ));
    assert_eq!(run.said(), ["out:   70 | 00000000 00020000 00000001 86dd"]);
    assert_eq!(run.read("n.table"), "2001:db8::2 1 00-00-00-00-00-02\n");
    assert_eq!(run.read("n.stats"), "0 packets killed\n1 ND Solicitation Message sent\n");
}

#[test]
fn versions_are_translated() {
    says(
        &format!(
            "{} -> CheckIP6Header -> ProtocolTranslator64 -> CheckIPHeader(VERBOSE true)
             -> CheckICMPHeader(VERBOSE true) -> IPPrint(four, TIMESTAMP false) -> ProtocolTranslator46 -> CheckIP6Header
             -> IP6Print(six) -> Print(six, 48) -> Discard",
            data(ECHO)
        ),
        &[
            "four: 1.2.3.4 > 5.6.7.8: icmp echo (1, 2)",
            "six: ::1.2.3.4 -> ::5.6.7.8 plen 8, next 58, hlim 64",
            "six:   48 | 60000000 00083a40 00000000 00000000 00000000 01020304 00000000 00000000 00000000 05060708 \
             80006fa6 00010002",
        ],
    );
    says(
        &format!(
            "{SOURCE} -> UDPIPEncap(1.2.3.4, 5, 5.6.7.8, 6) -> ICMPError(9.9.9.9, 3, 3) -> ProtocolTranslator46
             -> CheckIP6Header -> IP6Print -> ProtocolTranslator64 -> CheckIPHeader(VERBOSE true)
             -> CheckICMPHeader(VERBOSE true) -> IPPrint(TIMESTAMP false) -> Discard"
        ),
        &[
            "::9.9.9.9 -> ::1.2.3.4 plen 64, next 58, hlim 200",
            "9.9.9.9 > 1.2.3.4: icmp 5.6.7.8 unreachable port udp/6",
        ],
    );
}

#[test]
fn addresses_and_ports_are_mapped() {
    let run = run(&format!(
        "{SOURCE} -> UDPIP6Encap(2001:db8::1, 5, 2001:db8::2, 6)
         -> t::AddressTranslator(0, true, true, false, 2001:db8::99 4000 4001)
         -> IP6Print(out) -> IP6Mirror -> [1]t; t[1] -> IP6Print(in) -> Print(in, 44) -> Discard"
    ));
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.said()[0], "out: 2001:db8::99 -> 2001:db8::2 plen 16, next 17, hlim 255");
    assert_eq!(run.said()[1], "in: 2001:db8::2 -> 2001:db8::1 plen 16, next 17, hlim 255");
    assert!(run.said()[2].ends_with("00060005"), "{:?}", run.said());
    says(
        &format!(
            "{SOURCE} -> UDPIP6Encap(2001:db8::1, 5, 2001:db8::2, 6)
             -> t::AddressTranslator(1, false, 2001:db8::1 2001:db8::98, false) -> IP6Print -> Discard;
             Idle -> [1]t; t[1] -> Discard"
        ),
        &["2001:db8::98 -> 2001:db8::2 plen 16, next 17, hlim 255"],
    );
}

#[test]
fn short_packets_break_nothing() {
    let mut configuration = String::new();
    for (number, element) in [
        "CheckIP6Header",
        "MarkIP6Header -> DecIP6HLIM",
        "MarkIP6Header -> IP6Mirror -> SetIP6DSCP(3) -> IP6Print(CONTENTS true)",
        "MarkIP6Header(9) -> ICMP6Error(::1, 4, 0)",
        "GetIP6Address(24)",
        "ProtocolTranslator64",
        "ProtocolTranslator46",
        "IP6NDAdvertiser(::/0 00:00:00:00:00:02)",
        "IP6NDSolicitor(::1, 00:00:00:00:00:02)",
        "AddressTranslator(0, true, true, false, ::99 4000 4001)",
        "UDPIP6Encap(::1, 1, DST_ANNO, 2) -> Strip(3) -> ProtocolTranslator64",
    ]
    .into_iter()
    .enumerate()
    {
        configuration += &format!("t{number}::Tee -> e{number}::{element} -> Discard; t{number}[1]");
        configuration += match element.split(['(', ' ']).next() {
            Some("IP6NDSolicitor" | "AddressTranslator") => " -> [1]",
            _ => " -> Discard; Idle -> ",
        };
        configuration += &format!("e{number}; ");
        if element.starts_with("AddressTranslator") {
            configuration += &format!("e{number}[1] -> Discard; ");
        }
        for length in 0..72 {
            for fill in ["3a", "60", "45"] {
                let text = format!("{fill}000000{}", fill.repeat(length));
                let source = format!("InfiniteSource(DATA \\<{text}>, LIMIT 1)");
                configuration += &format!("{source} -> Truncate({length}) -> t{number}; ");
            }
        }
    }
    let run = run(&configuration);
    assert_eq!(run.errors, Vec::<String>::new());
}
